//! The files of a volume of AFS, mounted read-only while the server has them.
//!
//! # Theory
//! The server owns the open file system of a volume, opens it at the first use, and closes it for
//! `vos` and at the end of its partition. So a mount keeps nothing open. Each request of the kernel
//! enters the volume as a call of a client does, and uses the server's own file system. It sees
//! each change at once.
//!
//! | the volume | a request gets |
//! |---|---|
//! | is online, or lets clients read only | its answer |
//! | is offline or in a transaction, or its files are being replaced | `EBUSY` |
//! | can't be opened | `EIO` |
//! | is not here any more | `ESTALE` |
//!
//! `vos` never waits for a mount, but only for requests in progress. The end of a volume ends its
//! mount ([`Mounts::end`](super::Mounts::end)).
//!
//! A vnode that is free gets a new file with another unique. So a node number has bits of the
//! unique too, and a program that has the former file open gets `ESTALE`.
//!
//! # Absent
//! Access lists: the kernel checks the modes of files. So only the user that mounts may enter the
//! mount, unless an option lets others in.

use crate::mounts::look::NameNow;
use crate::replies::of_zpl;
use afs::errors::volume as code;
use afs::server::Core;
use afs::server::store::Found;
use afs::server::volume::Volume;
use afs::types::VolumeId;
use api::Reason;
use fuse::dataset::{Dataset, Shown};
use fuse::tree::{Attr, Entry, FileTree, Flags, Node, Seek, Statfs};
use observe::ops::{DatasetUse, Ended, Frontend};
use rustix::io::Errno;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

/// Bits of the object number in a node number. An object is a vnode of 32 bits and a constant.
const OBJECT_BITS: u32 = 33;
/// How many values the bits above have for uniques. 0 fits each file of the number.
const TAGS: u64 = (1 << 15) - 1;

/// What the AFS server has of the datasets of a pool.
pub(crate) trait Server: Send + Sync {
    /// Whether it has a dataset or snapshot.
    fn has(&self, name: &str) -> bool;

    /// The volume that it has of a file system, for a mount. `None`: it has neither the file
    /// system nor its snapshot.
    ///
    /// # Errors
    /// * [`Reason::ServedOverAfs`]: it can't be mounted. It is no volume, or its partition is being
    ///   added or removed.
    fn volume_at(&self, name: &str) -> Result<Option<Place>, Reason>;
}

/// A volume of the server.
#[derive(Clone)]
pub(crate) struct Place {
    core: Weak<Core>,
    partition: String,
    id: VolumeId,
}

impl Place {
    /// The volume `id` of the partition that is the file system `partition`.
    pub(crate) fn new(core: &Arc<Core>, partition: &str, id: VolumeId) -> Self {
        Self { core: Arc::downgrade(core), partition: partition.to_owned(), id }
    }

    /// The volume, if the server has it there with files of its own.
    pub(crate) fn volume(&self) -> Option<Arc<Volume>> {
        let volume = self.core.upgrade()?.table.get(self.id)?;
        let is_here = volume.partition.dataset() == self.partition;
        (is_here && volume.found() == Found::Dataset(self.id)).then_some(volume)
    }
}

/// The files of a volume.
pub(super) struct VolumeFiles {
    place: Place,
    root: Node,
    how: Shown,
    sizes: Box<dyn Fn() -> Result<Statfs, Errno> + Send + Sync>,
    /// Where operations are counted, and under which name.
    ops: (DatasetUse, NameNow),
    ended: Arc<AtomicBool>,
}

impl VolumeFiles {
    /// The files of a volume, which is opened.
    ///
    /// # Errors
    /// * [`Reason::Afs`]: it is offline, in a transaction, or can't be opened.
    /// * [`Reason::NoSuchDataset`]: it is not here any more.
    /// * [`Reason::Io`], [`Reason::Corrupt`]: its root can't be read.
    pub(super) fn new(
        place: Place,
        how: Shown,
        sizes: Box<dyn Fn() -> Result<Statfs, Errno> + Send + Sync>,
        ops: (DatasetUse, NameNow),
    ) -> Result<Self, Reason> {
        let volume = place.volume().ok_or(Reason::NoSuchDataset)?;
        let used = volume.look().map_err(|code| refused(place.id, code))?;
        used.fs.node(used.fs.root()).map_err(|error| of_zpl(&error))?;
        let root = Node(used.fs.root().0);
        drop(used);
        Ok(Self { place, root, how, sizes, ops, ended: Arc::default() })
    }

    /// Set when its mount ends. Then all requests get `ESTALE`.
    pub(super) fn ended(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.ended)
    }

    /// Runs a request on the server's file system.
    fn with<R>(&self, work: impl FnOnce(&Dataset) -> Result<R, Errno>) -> Result<R, Errno> {
        if self.ended.load(Ordering::Acquire) {
            return Err(Errno::STALE);
        }
        let volume = self.place.volume().ok_or(Errno::STALE)?;
        let used = volume.look().map_err(errno)?;
        // It must not outlive `used`: the server closes files that nothing else has.
        work(&Dataset::lent(used.fs.clone(), self.how.clone()))
    }

    /// Runs a request about a file.
    ///
    /// # Errors
    /// `ESTALE`: its number means another file, or none. That is checked after the request, since
    /// the file may have been removed meanwhile.
    fn at<R>(&self, node: Node, work: impl FnOnce(&Dataset, Node) -> Result<R, Errno>) -> Result<R, Errno> {
        let (object, tag) = parts(node);
        self.with(|files| {
            let done = work(files, object);
            if tag == 0 {
                return done;
            }
            match files.attr(object) {
                Ok(attr) if tag_of(attr.generation) != tag => Err(Errno::STALE),
                Err(Errno::STALE) => Err(Errno::STALE),
                Ok(_) | Err(_) => done,
            }
        })
    }

    /// The attributes of a file, with its number in the mount.
    fn shown(&self, mut attr: Attr) -> Attr {
        if attr.node != self.root {
            attr.node = Node(attr.node.0 | tag_of(attr.generation) << OBJECT_BITS);
        }
        attr
    }
}

/// The bits of a unique in a node number.
fn tag_of(unique: u64) -> u64 {
    unique % TAGS + 1
}

/// The object of a node number, and the bits of its unique.
fn parts(node: Node) -> (Node, u64) {
    (Node(node.0 & ((1 << OBJECT_BITS) - 1)), node.0 >> OBJECT_BITS)
}

/// The errno for a code of [`Volume::look`].
fn errno(found: i32) -> Errno {
    match found {
        code::VNOVOL => Errno::STALE,
        code::VOFFLINE | code::VBUSY => Errno::BUSY,
        _ => Errno::IO,
    }
}

/// Why a volume can't be mounted, by a code of [`Volume::look`].
fn refused(VolumeId(id): VolumeId, found: i32) -> Reason {
    let what = match found {
        code::VNOVOL => return Reason::NoSuchDataset,
        code::VOFFLINE => format!("volume {id} is offline; use 'vos online' first"),
        code::VBUSY => format!("volume {id} is in a transaction; try again when 'vos' has ended"),
        _ => format!("volume {id} can't be opened; the log has the cause"),
    };
    Reason::Afs { what }
}

impl FileTree for VolumeFiles {
    fn root(&self) -> Node {
        self.root
    }

    fn lookup(&self, dir: Node, name: &[u8]) -> Result<Attr, Errno> {
        self.at(dir, |files, dir| files.lookup(dir, name)).map(|attr| self.shown(attr))
    }

    fn attr(&self, node: Node) -> Result<Attr, Errno> {
        let (object, tag) = parts(node);
        let attr = self.with(|files| files.attr(object))?;
        if tag == 0 || tag_of(attr.generation) == tag { Ok(self.shown(attr)) } else { Err(Errno::STALE) }
    }

    fn readlink(&self, node: Node) -> Result<Vec<u8>, Errno> {
        self.at(node, FileTree::readlink)
    }

    fn read(&self, node: Node, offset: u64, buf: &mut [u8]) -> Result<usize, Errno> {
        self.at(node, |files, node| files.read(node, offset, buf))
    }

    fn readdir(&self, dir: Node, cookie: u64, limit: usize) -> Result<Vec<Entry>, Errno> {
        self.at(dir, |files, dir| files.readdir(dir, cookie, limit))
    }

    fn xattr(&self, node: Node, name: &[u8]) -> Result<Vec<u8>, Errno> {
        self.at(node, |files, node| files.xattr(node, name))
    }

    fn xattr_names(&self, node: Node) -> Result<Vec<Vec<u8>>, Errno> {
        self.at(node, FileTree::xattr_names)
    }

    fn statfs(&self, _node: Node) -> Result<Statfs, Errno> {
        (self.sizes)()
    }

    fn seek(&self, node: Node, offset: u64, what: Seek) -> Result<u64, Errno> {
        self.at(node, |files, node| files.seek(node, offset, what))
    }

    fn flags(&self, node: Node) -> Result<Flags, Errno> {
        self.at(node, FileTree::flags)
    }

    fn keeps_pages(&self) -> bool {
        false
    }

    fn names_stay(&self, _dir: Node) -> bool {
        false
    }

    fn changes_elsewhere(&self) -> bool {
        true
    }

    fn dataset_of(&self, node: Node) -> Option<(String, Option<u64>)> {
        Some((self.ops.1.get(), Some(parts(node).0.0)))
    }

    fn count(&self, _node: Node, ended: &Ended) {
        let (ops, name) = &self.ops;
        ops.count(Frontend::Fuse, ended, || name.get());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a node number has its object and bits of its unique, and leaves the bits free that
    /// snapshots need.
    #[test]
    fn node_numbers() {
        let most = u64::from(u32::MAX) + 256;
        for (object, unique) in [(257, 1), (258, 7), (most, u64::from(u32::MAX)), (most, TAGS - 1)] {
            let node = Node(object | tag_of(unique) << OBJECT_BITS);
            assert_eq!(parts(node), (Node(object), tag_of(unique)));
            assert!(tag_of(unique) != 0 && tag_of(unique) != tag_of(unique + 1));
            assert!(node.0 < 1 << fuse::ctldir::SLOT_SHIFT);
        }
        assert_eq!(parts(Node(257)), (Node(257), 0));
    }
}
