//! `.zfs/snapshot`: a dataset's snapshots beside its files, in one mount.
//!
//! # Theory
//! The kernel module mounts a snapshot as a file system of its own when a program enters it. So a
//! file and its snapshot differ by device. Here, snapshots are part of the mount of their dataset,
//! and differ by inode number. A mount per snapshot has these drawbacks:
//!
//! * It needs the right to mount on a read-only directory, which `fusermount3` denies to users.
//! * It has to be made in the middle of a lookup for which the kernel waits.
//! * It has to be unmounted before the dataset is.
//! * Ten thousand snapshots would be ten thousand mounts.
//!
//! `cp` and other programs compare device and inode to find out whether two files are the same. The
//! inode numbers of a snapshot are never those of a live file ([`snapshot_ino`]).
//!
//! The parts of a node number are:
//!
//! | bits | content |
//! |---|---|
//! | top 16 | where the node is: 0 the head dataset, `0xffff` the control directory, else a slot |
//! | low 48 | the object number |
//!
//! A slot stands for a snapshot that was looked up in this mount. It keeps its number for the life
//! of the mount, but only the [`OPEN_MAX`] most recently used snapshots stay open. A number from
//! the pool that is too large for an object number never becomes a node number: it could mean
//! another slot.
//!
//! # Locks
//! The lock of the table of slots is held for lookups. No lock is held while a snapshot is opened.
//! So two threads may open one snapshot at once, and the later finds the result of the earlier.
//!
//! # Absent
//! `.zfs/shares`.
//!
//! # See
//! `zfs_ctldir.c`.

use crate::caller::Asker;
use crate::tree::{
    Allocate, Attr, CloneRange, Entry, FileTree, Flags, NewNode, Node, Rename, Seek, SetAttr, SetXattr,
    Statfs, Time,
};
use observe::lock::Mutex;
use observe::ops::Ended;
use rustix::io::Errno;
use std::any::Any;
use std::collections::HashMap;
use std::sync::Arc;

/// The lowest bit of the slot in a node number. Object numbers are below (`DN_MAX_OBJECT_SHIFT`).
pub const SLOT_SHIFT: u32 = 48;
const OBJECT_MASK: u64 = (1 << SLOT_SHIFT) - 1;
/// How many snapshots of one mount stay open.
pub const OPEN_MAX: usize = 64;

pub(crate) const CONTROL_SLOT: u64 = 0xffff;
const CONTROL: Node = Node(CONTROL_SLOT << SLOT_SHIFT | 1);
const SNAPDIR: Node = Node(CONTROL_SLOT << SLOT_SHIFT | 2);
/// Inode numbers of `.zfs` and `.zfs/snapshot` (`ZFSCTL_INO_ROOT`, `ZFSCTL_INO_SNAPDIR`).
const CONTROL_INO: u64 = 0x0000_ffff_ffff_ffff;
const SNAPDIR_INO: u64 = CONTROL_INO - 2;
/// The number below which unopened snapshots are listed (`ZFSCTL_INO_SNAPDIRS`).
const SNAPDIRS_INO: u64 = CONTROL_INO - 3;

/// A node number that no object has. Requests for it fail.
const NOWHERE: Node = Node(CONTROL_SLOT << SLOT_SHIFT);

const S_IFMT: u32 = 0o170_000;
const S_IFDIR: u32 = 0o040_000;
const DT_DIR: u8 = 4;

/// The snapshots of a dataset.
///
/// # Errors of changes
/// [`Snapshots::create`], [`Snapshots::destroy`] and [`Snapshots::rename`] fail with:
///
/// * `EROFS`: snapshots can't change here, which is the default; or the pool is read-only.
/// * `ENOENT`: there is no such snapshot.
/// * `EEXIST`: a snapshot of the new name exists.
/// * `EINVAL`, `ENAMETOOLONG`: no snapshot can have the new name.
/// * `EBUSY`: the snapshot is in use or held, or has clones.
/// * `ENOSPC`, `EDQUOT`: no space is left, or a quota is exhausted.
/// * `EAGAIN`: the operation may succeed later.
/// * `EIO`: the pool's metadata can't be read, or the pool has stopped writing.
pub trait Snapshots: Send + Sync {
    /// Lists at most `limit` snapshots after the position `from`. 0 starts at the first.
    ///
    /// The list is empty at the end.
    ///
    /// # Errors
    /// `EIO`: the list can't be read.
    ///
    /// OpenZFS: `dmu_snapshot_list_next`.
    fn page(&self, from: u64, limit: usize) -> Result<Vec<Named>, Errno>;
    /// Number of snapshots.
    ///
    /// # Errors
    /// `EIO`: the list can't be read.
    fn count(&self) -> Result<u64, Errno>;
    /// A number that changes whenever a snapshot is created or destroyed.
    ///
    /// # Errors
    /// `EIO`: the list can't be read.
    fn version(&self) -> Result<u64, Errno> {
        self.count()
    }
    /// Opens a snapshot.
    ///
    /// # Errors
    /// `ENOENT`: there is none of this name. `EIO`: it can't be read.
    ///
    /// OpenZFS: `zfsctl_snapdir_lookup`.
    fn open(&self, name: &[u8]) -> Result<Snapshot, Errno>;
    /// How many snapshots of the pool were destroyed. While this number is the same, all that are
    /// open exist.
    fn destroyed(&self) -> u64 {
        0
    }
    /// Whether an open snapshot still exists. Blocks of one that was destroyed may have other
    /// contents.
    ///
    /// # Errors
    /// `EIO`: that can't be read.
    fn is_there(&self, _snapshot: &Snapshot) -> Result<bool, Errno> {
        Ok(true)
    }
    /// Prevents the destruction of an open snapshot until the result is dropped.
    ///
    /// # Errors
    /// `EXDEV`: that is not possible, and the caller has to copy files out of the snapshot.
    fn keep(&self, _snapshot: &Snapshot) -> Result<Box<dyn Any>, Errno> {
        Err(Errno::XDEV)
    }
    /// Creates a snapshot (`mkdir`).
    ///
    /// # Errors
    /// [Those of changes](Snapshots#errors-of-changes).
    ///
    /// OpenZFS: `zfsctl_snapdir_mkdir`.
    fn create(&self, _name: &[u8]) -> Result<(), Errno> {
        Err(Errno::ROFS)
    }
    /// Destroys a snapshot (`rmdir`).
    ///
    /// # Errors
    /// [Those of changes](Snapshots#errors-of-changes).
    ///
    /// OpenZFS: `zfsctl_snapdir_remove`.
    fn destroy(&self, _name: &[u8]) -> Result<(), Errno> {
        Err(Errno::ROFS)
    }
    /// Renames a snapshot (`mv`).
    ///
    /// # Errors
    /// [Those of changes](Snapshots#errors-of-changes).
    ///
    /// OpenZFS: `zfsctl_snapdir_rename`.
    fn rename(&self, _old: &[u8], _new: &[u8]) -> Result<(), Errno> {
        Err(Errno::ROFS)
    }
    /// Whether no snapshot is created or destroyed while this is mounted.
    fn stay(&self) -> bool {
        true
    }
    /// Whether the root lists `.zfs` (`snapdir=visible`).
    ///
    /// A lookup finds it in any case, unless [`Self::disabled`].
    fn visible(&self) -> bool;
    /// Whether there is no `.zfs` at all (`snapdir=disabled`).
    fn disabled(&self) -> bool;
}

/// A snapshot in a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Named {
    /// Its name: the part after the `@`.
    pub name: Vec<u8>,
    /// The object number of its dataset.
    pub dataset: u64,
    /// The position after it. Above 1.
    pub next: u64,
}

/// An open snapshot.
#[derive(Clone)]
pub struct Snapshot {
    /// Its files.
    pub tree: Arc<dyn FileTree>,
    /// The object number of its dataset, which identifies it among the present snapshots of the
    /// pool.
    pub dataset: u64,
    /// The transaction group that created it. With `dataset`, it identifies the snapshot for good.
    pub born: u64,
}

impl Snapshot {
    fn identity(&self) -> (u64, u64) {
        (self.dataset, self.born)
    }
}

/// A dataset's files with its control directory.
pub struct WithSnapshots {
    head: Arc<dyn FileTree>,
    snapshots: Box<dyn Snapshots>,
    slots: Mutex<Slots>,
}

#[derive(Default)]
struct Slots {
    by_name: HashMap<Vec<u8>, u64>,
    /// Name and identity of the snapshot of each slot.
    names: Vec<(Vec<u8>, (u64, u64))>,
    /// The open snapshots, the most recently used last.
    open: Vec<Opened>,
}

/// A snapshot that is open in a slot.
struct Opened {
    slot: u64,
    snapshot: Snapshot,
    /// [`Snapshots::destroyed`] when it was known to exist.
    seen: u64,
}

/// The inode number of a file in a snapshot.
///
/// It combines the object numbers of the dataset and the file, so that it is the same in every
/// mount. The numbers of a live file never reach 2^40. If the object numbers are too large to
/// combine, the slot replaces the dataset. The result is then unique in this mount only.
pub fn snapshot_ino(slot: u64, dataset: u64, object: u64) -> u64 {
    if dataset < 1 << 23 && object < 1 << 40 {
        dataset << 40 | object
    } else {
        1 << 63 | slot << SLOT_SHIFT | object & OBJECT_MASK
    }
}

/// The node number in the mount of a node in one of its trees. Slot 0 is the head dataset.
///
/// `None` for a number that no object can have: it would mean another slot.
fn node_in(slot: u64, node: Node) -> Option<Node> {
    (node.0 & !OBJECT_MASK == 0).then_some(Node(slot << SLOT_SHIFT | node.0))
}

/// Where a node is.
enum NodeLocation {
    Head,
    Control,
    Snapdir,
    Snapshot(u64, Node),
}

impl WithSnapshots {
    /// Adds `.zfs` to the root of `head`.
    pub fn new(head: Arc<dyn FileTree>, snapshots: Box<dyn Snapshots>) -> Self {
        Self { head, snapshots, slots: Mutex::default() }
    }

    fn place(node: Node) -> Result<NodeLocation, Errno> {
        match (node, node.0 >> SLOT_SHIFT) {
            (CONTROL, _) => Ok(NodeLocation::Control),
            (SNAPDIR, _) => Ok(NodeLocation::Snapdir),
            (_, 0) => Ok(NodeLocation::Head),
            (_, CONTROL_SLOT) => Err(Errno::STALE),
            (_, slot) => Ok(NodeLocation::Snapshot(slot, Node(node.0 & OBJECT_MASK))),
        }
    }

    /// The snapshot of a slot, reopened if it was closed meanwhile.
    ///
    /// # Errors
    /// `ESTALE`: the slot is unknown, the snapshot was destroyed, or another one has the name now.
    /// Besides, those of [`Snapshots::open`].
    fn snapshot(&self, slot: u64) -> Result<Snapshot, Errno> {
        let destroyed = self.snapshots.destroyed();
        let found = self.slots.lock().touch(slot);
        match found {
            Some((found, seen)) if seen == destroyed => return Ok(found),
            Some((found, _)) => {
                let is_there = self.snapshots.is_there(&found)?;
                let mut slots = self.slots.lock();
                slots.checked(slot, is_there.then_some(destroyed));
                return if is_there { Ok(found) } else { Err(Errno::STALE) };
            }
            None => {}
        }
        let (name, identity) = {
            let slots = self.slots.lock();
            let at = usize::try_from(slot - 1).map_err(|_| Errno::STALE)?;
            slots.names.get(at).cloned().ok_or(Errno::STALE)?
        };
        let opened = match self.snapshots.open(&name) {
            Err(Errno::NOENT) => return Err(Errno::STALE),
            opened => opened?,
        };
        if opened.identity() != identity {
            // Another snapshot has the name now.
            return Err(Errno::STALE);
        }
        Ok(self.slots.lock().keep(slot, opened, destroyed))
    }

    /// The slot of a snapshot, by name.
    ///
    /// # Errors
    /// `ENFILE`: all slots are taken. Besides, those of [`Snapshots::open`].
    fn slot(&self, name: &[u8]) -> Result<(u64, Snapshot), Errno> {
        // If snapshots can change, the name may mean another snapshot than before.
        let known = self.slots.lock().by_name.get(name).copied().filter(|_| self.snapshots.stay());
        if let Some(slot) = known {
            return Ok((slot, self.snapshot(slot)?));
        }
        let destroyed = self.snapshots.destroyed();
        let opened = self.snapshots.open(name)?;
        let mut slots = self.slots.lock();
        let slot = slots.assign(name, opened.identity())?;
        Ok((slot, slots.keep(slot, opened, destroyed)))
    }

    /// The attributes of a node of a snapshot, as the mount shows them.
    fn moved(slot: u64, snapshot: &Snapshot, attr: Attr) -> Result<Attr, Errno> {
        let is_root = attr.node == snapshot.tree.root();
        let ino = snapshot_ino(slot, snapshot.dataset, attr.node.0);
        let mut attr = Self::placed(slot, attr)?;
        attr.ino = ino;
        if is_root {
            attr.parent = SNAPDIR;
        }
        Ok(attr)
    }

    /// Attributes with the node numbers of the mount. An impossible parent, in a damaged pool,
    /// leads nowhere.
    ///
    /// # Errors
    /// `EIO`: no object can have the number of the node.
    fn placed(slot: u64, mut attr: Attr) -> Result<Attr, Errno> {
        attr.node = node_in(slot, attr.node).ok_or(Errno::IO)?;
        attr.parent = node_in(slot, attr.parent).unwrap_or(NOWHERE);
        Ok(attr)
    }

    /// The attributes of `.zfs` or a directory in it. They belong to root, even in another user's
    /// tree, and are as old as the tree (`zfsctl_inode_alloc`).
    fn directory(&self, node: Node, ino: u64, parent: Node, entries: u64) -> Result<Attr, Errno> {
        let root = self.head.attr(self.head.root())?;
        Ok(Attr {
            node,
            ino,
            generation: 0,
            parent,
            mode: S_IFDIR | 0o555,
            nlink: 2,
            uid: 0,
            gid: 0,
            rdev: (0, 0),
            size: entries,
            blocks: 0,
            blksize: 512,
            atime: root.btime,
            mtime: root.btime,
            ctime: root.btime,
            btime: Time::default(),
            // Snapshots are created and destroyed without the kernel.
            settled: self.snapshots.stay(),
        })
    }

    fn list(&self, cookie: u64, limit: usize) -> Result<Vec<Entry>, Errno> {
        let entries = self.snapshots.page(cookie, limit)?.into_iter().map(|Named { name, dataset, next }| {
            // A listing doesn't open the snapshot. A lookup finds the node.
            let ino = SNAPDIRS_INO - dataset % (SNAPDIRS_INO >> 1);
            Entry { name, node: None, ino, kind: DT_DIR, cookie: next }
        });
        Ok(entries.collect())
    }
}

impl Entry {
    /// Converts the node of an entry to the mount's number. An impossible one is listed, and its
    /// lookup fails.
    fn place(&mut self, slot: u64) {
        self.node = self.node.and_then(|node| node_in(slot, node));
    }
}

impl Slots {
    /// An open snapshot, which is the most recently used one now, and when it was known to exist.
    fn touch(&mut self, slot: u64) -> Option<(Snapshot, u64)> {
        let at = self.open.iter().position(|open| open.slot == slot)?;
        self.open[at..].rotate_left(1);
        self.open.last().map(|open| (open.snapshot.clone(), open.seen))
    }

    /// An open snapshot, without a use of it.
    fn peek(&self, slot: u64) -> Option<Snapshot> {
        self.open.iter().find(|open| open.slot == slot).map(|open| open.snapshot.clone())
    }

    /// Notes when a snapshot was known to exist, or closes it.
    fn checked(&mut self, slot: u64, seen: Option<u64>) {
        match seen {
            Some(seen) => {
                let open = self.open.iter_mut().find(|open| open.slot == slot);
                open.into_iter().for_each(|open| open.seen = open.seen.max(seen));
            }
            None => self.open.retain(|open| open.slot != slot),
        }
    }

    fn keep(&mut self, slot: u64, snapshot: Snapshot, seen: u64) -> Snapshot {
        if let Some((earlier, _)) = self.touch(slot) {
            self.checked(slot, Some(seen));
            return earlier;
        }
        if self.open.len() == OPEN_MAX {
            self.open.remove(0);
        }
        self.open.push(Opened { slot, snapshot: snapshot.clone(), seen });
        snapshot
    }

    fn assign(&mut self, name: &[u8], identity: (u64, u64)) -> Result<u64, Errno> {
        if let Some(&slot) = self.by_name.get(name)
            && self.names.get(slot as usize - 1).is_some_and(|(_, known)| *known == identity)
        {
            return Ok(slot);
        }
        let slot = self.names.len() as u64 + 1;
        if slot >= CONTROL_SLOT {
            // 65,534 snapshots were entered through this mount.
            return Err(Errno::NFILE);
        }
        self.names.push((name.to_vec(), identity));
        self.by_name.insert(name.to_vec(), slot);
        Ok(slot)
    }
}

impl FileTree for WithSnapshots {
    fn root(&self) -> Node {
        self.head.root()
    }

    fn lookup(&self, dir: Node, name: &[u8]) -> Result<Attr, Errno> {
        match Self::place(dir)? {
            NodeLocation::Head if name == b".zfs" && dir == self.root() && !self.snapshots.disabled() => {
                self.attr(CONTROL)
            }
            NodeLocation::Head => Self::placed(0, self.head.lookup(dir, name)?),
            NodeLocation::Control if name == b"snapshot" => self.attr(SNAPDIR),
            NodeLocation::Control => Err(Errno::NOENT),
            NodeLocation::Snapdir => {
                let (slot, snapshot) = self.slot(name)?;
                let attr = snapshot.tree.attr(snapshot.tree.root())?;
                Self::moved(slot, &snapshot, attr)
            }
            NodeLocation::Snapshot(slot, dir) => {
                let snapshot = self.snapshot(slot)?;
                let attr = snapshot.tree.lookup(dir, name)?;
                Self::moved(slot, &snapshot, attr)
            }
        }
    }

    fn attr(&self, node: Node) -> Result<Attr, Errno> {
        match Self::place(node)? {
            NodeLocation::Head => {
                let mut attr = Self::placed(0, self.head.attr(node)?)?;
                // A listed `.zfs` counts as a subdirectory of the root.
                let listed = node == self.root() && self.snapshots.visible() && !self.snapshots.disabled();
                attr.nlink = attr.nlink.saturating_add(u32::from(listed));
                Ok(attr)
            }
            NodeLocation::Control => self.directory(CONTROL, CONTROL_INO, self.root(), 3),
            NodeLocation::Snapdir => {
                let entries = self.snapshots.count()?.saturating_add(2);
                let mut attr = self.directory(SNAPDIR, SNAPDIR_INO, CONTROL, entries)?;
                if !self.snapshots.stay() {
                    // The kernel keeps a listing while the modification time of the directory is
                    // the same.
                    attr.mtime.nsec = (self.snapshots.version()? % 1_000_000_000) as u32;
                }
                Ok(attr)
            }
            NodeLocation::Snapshot(slot, node) => {
                let snapshot = self.snapshot(slot)?;
                let attr = snapshot.tree.attr(node)?;
                Self::moved(slot, &snapshot, attr)
            }
        }
    }

    fn readdir(&self, dir: Node, cookie: u64, limit: usize) -> Result<Vec<Entry>, Errno> {
        match Self::place(dir)? {
            NodeLocation::Head => {
                // The root lists `.zfs` first, so its own cookies are shifted up by 1.
                let listed = dir == self.root() && self.snapshots.visible() && !self.snapshots.disabled();
                if !listed {
                    let mut entries = self.head.readdir(dir, cookie, limit)?;
                    entries.iter_mut().for_each(|entry| entry.place(0));
                    return Ok(entries);
                }
                let mut entries = Vec::new();
                if cookie == 0 {
                    let (name, node, ino) = (b".zfs".to_vec(), Some(CONTROL), CONTROL_INO);
                    entries.push(Entry { name, node, ino, kind: DT_DIR, cookie: 1 });
                }
                for mut entry in self.head.readdir(dir, cookie.saturating_sub(1), limit)? {
                    entry.cookie = entry.cookie.checked_add(1).ok_or(Errno::OVERFLOW)?;
                    entry.place(0);
                    entries.push(entry);
                }
                Ok(entries)
            }
            NodeLocation::Control if cookie == 0 => {
                let (name, node, ino) = (b"snapshot".to_vec(), Some(SNAPDIR), SNAPDIR_INO);
                Ok(vec![Entry { name, node, ino, kind: DT_DIR, cookie: 1 }])
            }
            NodeLocation::Control => Ok(Vec::new()),
            NodeLocation::Snapdir => self.list(cookie, limit),
            NodeLocation::Snapshot(slot, dir) => {
                let snapshot = self.snapshot(slot)?;
                let mut entries = snapshot.tree.readdir(dir, cookie, limit)?;
                for entry in &mut entries {
                    entry.ino = snapshot_ino(slot, snapshot.dataset, entry.ino);
                    entry.place(slot);
                }
                Ok(entries)
            }
        }
    }

    fn readlink(&self, node: Node) -> Result<Vec<u8>, Errno> {
        self.file(node, Err(Errno::INVAL), |tree, node| tree.readlink(node))
    }

    fn read(&self, node: Node, offset: u64, buf: &mut [u8]) -> Result<usize, Errno> {
        self.file(node, Err(Errno::ISDIR), |tree, node| tree.read(node, offset, buf))
    }

    fn xattr(&self, node: Node, name: &[u8]) -> Result<Vec<u8>, Errno> {
        // There are no attributes here, not even an ACL for the kernel. Whether ACLs count is
        // settled for the whole mount.
        self.file(node, Err(Errno::NODATA), |tree, node| tree.xattr(node, name))
    }

    fn xattr_names(&self, node: Node) -> Result<Vec<Vec<u8>>, Errno> {
        self.file(node, Ok(Vec::new()), |tree, node| tree.xattr_names(node))
    }

    fn statfs(&self, node: Node) -> Result<Statfs, Errno> {
        // The control directory and snapshots show the sizes of the head dataset.
        let node = if Self::in_head(node).is_ok() { node } else { self.root() };
        self.head.statfs(node)
    }

    fn seek(&self, node: Node, offset: u64, what: Seek) -> Result<u64, Errno> {
        self.file(node, Err(Errno::INVAL), |tree, node| tree.seek(node, offset, what))
    }

    fn flags(&self, node: Node) -> Result<Flags, Errno> {
        self.file(node, Err(Errno::NOTTY), |tree, node| tree.flags(node))
    }

    fn writable(&self) -> bool {
        self.head.writable()
    }

    fn keeps_pages(&self) -> bool {
        self.head.keeps_pages()
    }

    fn changes_elsewhere(&self) -> bool {
        self.head.changes_elsewhere()
    }

    fn names_stay(&self, dir: Node) -> bool {
        match Self::place(dir) {
            Ok(NodeLocation::Head) => self.head.names_stay(dir),
            // Snapshots may be created and destroyed without the kernel.
            Ok(NodeLocation::Control | NodeLocation::Snapdir) | Err(_) => self.snapshots.stay(),
            Ok(NodeLocation::Snapshot(..)) => true,
        }
    }

    /// Only an administrator may create, rename and destroy snapshots here, or the user that serves
    /// the mount if that isn't root (`zfs_secpolicy_snapshot_perms`, without delegation).
    fn admits(&self, dir: Node, who: Asker) -> bool {
        let us = rustix::process::geteuid();
        dir != SNAPDIR || (!us.is_root() && who.uid == us.as_raw()) || who.administrates()
    }

    fn create(&self, dir: Node, name: &[u8], new: &NewNode<'_>) -> Result<Attr, Errno> {
        if dir == SNAPDIR && self.head.writable() {
            if new.mode & S_IFMT != S_IFDIR {
                return Err(Errno::PERM);
            }
            self.snapshots.create(name)?;
            return self.lookup(dir, name);
        }
        self.named(dir, name)?;
        Self::placed(0, self.head.create(dir, name, new)?)
    }

    fn create_unnamed(&self, dir: Node, new: &NewNode<'_>) -> Result<Attr, Errno> {
        Self::in_head(dir)?;
        Self::placed(0, self.head.create_unnamed(dir, new)?)
    }

    fn clone_range(&self, range: &CloneRange) -> Result<u64, Errno> {
        Self::in_head(range.target)?;
        match Self::place(range.source)? {
            NodeLocation::Head => self.head.clone_range(range),
            NodeLocation::Snapshot(slot, source) => {
                let snapshot = self.snapshot(slot)?;
                // If the snapshot can't be kept, the program has to copy.
                let _kept = self.snapshots.keep(&snapshot)?;
                self.head.clone_out_of(&*snapshot.tree, &CloneRange { source, ..*range })
            }
            NodeLocation::Control | NodeLocation::Snapdir => Err(Errno::XDEV),
        }
    }

    fn accessed(&self, node: Node) {
        if Self::in_head(node).is_ok() {
            self.head.accessed(node);
        }
    }

    fn link(&self, node: Node, dir: Node, name: &[u8]) -> Result<Attr, Errno> {
        self.named(dir, name)?;
        Self::in_head(node)?;
        Self::placed(0, self.head.link(node, dir, name)?)
    }

    fn unlink(&self, dir: Node, name: &[u8]) -> Result<(), Errno> {
        self.named(dir, name)?;
        self.head.unlink(dir, name)
    }

    fn rmdir(&self, dir: Node, name: &[u8]) -> Result<(), Errno> {
        if dir == SNAPDIR && self.head.writable() {
            return self.snapshots.destroy(name);
        }
        self.named(dir, name)?;
        self.head.rmdir(dir, name)
    }

    fn rename(&self, from: (Node, &[u8]), to: (Node, &[u8]), how: Rename) -> Result<(), Errno> {
        if (from.0, to.0) == (SNAPDIR, SNAPDIR) && self.head.writable() {
            return match how {
                // A rename never replaces a snapshot.
                Rename::Replace | Rename::NoReplace => self.snapshots.rename(from.1, to.1),
                Rename::Exchange | Rename::Whiteout { .. } => Err(Errno::INVAL),
            };
        }
        self.named(from.0, from.1)?;
        self.named(to.0, to.1)?;
        self.head.rename(from, to, how)
    }

    fn write(&self, node: Node, offset: u64, data: &[u8], kill: bool) -> Result<(), Errno> {
        Self::in_head(node)?;
        self.head.write(node, offset, data, kill)
    }

    fn set_attr(&self, node: Node, set: &SetAttr) -> Result<Attr, Errno> {
        Self::in_head(node)?;
        self.head.set_attr(node, set)?;
        self.attr(node)
    }

    fn allocate(&self, node: Node, offset: u64, len: u64, what: Allocate) -> Result<(), Errno> {
        Self::in_head(node)?;
        self.head.allocate(node, offset, len, what)
    }

    fn set_xattr(&self, node: Node, name: &[u8], value: &[u8], how: SetXattr) -> Result<(), Errno> {
        Self::in_head(node)?;
        self.head.set_xattr(node, name, value, how)
    }

    fn remove_xattr(&self, node: Node, name: &[u8]) -> Result<(), Errno> {
        Self::in_head(node)?;
        self.head.remove_xattr(node, name)
    }

    fn set_flags(&self, node: Node, flags: Flags) -> Result<(), Errno> {
        Self::in_head(node)?;
        self.head.set_flags(node, flags)
    }

    fn fsync(&self, node: Node) -> Result<(), Errno> {
        // The control directory and snapshots have no changes to make durable.
        if Self::in_head(node).is_ok() { self.head.fsync(node) } else { Ok(()) }
    }

    fn sync(&self) -> Result<(), Errno> {
        self.head.sync()
    }

    fn forget(&self, node: Node, times: u64) {
        if Self::in_head(node).is_ok() {
            self.head.forget(node, times);
        }
    }

    fn dataset_of(&self, node: Node) -> Option<(String, Option<u64>)> {
        match Self::place(node).ok()? {
            NodeLocation::Snapshot(slot, node) => {
                let tree = self.slots.lock().peek(slot)?.tree;
                tree.dataset_of(node)
            }
            NodeLocation::Head => self.head.dataset_of(node),
            NodeLocation::Control | NodeLocation::Snapdir => {
                self.head.dataset_of(self.root()).map(|(dataset, _)| (dataset, None))
            }
        }
    }

    fn path_of(&self, node: Node) -> Option<Vec<u8>> {
        match Self::place(node).ok()? {
            // It may have been destroyed. Then its blocks can have other contents.
            NodeLocation::Snapshot(..) => None,
            NodeLocation::Head => self.head.path_of(node),
            NodeLocation::Control => Some(b"/.zfs".to_vec()),
            NodeLocation::Snapdir => Some(b"/.zfs/snapshot".to_vec()),
        }
    }

    fn count(&self, node: Node, ended: &Ended) {
        match Self::place(node) {
            Ok(NodeLocation::Snapshot(slot, node)) => {
                let found = self.slots.lock().touch(slot);
                match found {
                    Some((snapshot, _)) => snapshot.tree.count(node, ended),
                    // It was destroyed, or closed meanwhile.
                    None => self.head.count(self.root(), ended),
                }
            }
            // The control directory is the head's.
            Ok(NodeLocation::Head | NodeLocation::Control | NodeLocation::Snapdir) | Err(_) => {
                self.head.count(node, ended);
            }
        }
    }
}

impl WithSnapshots {
    /// Refuses changes outside the head dataset.
    ///
    /// # Errors
    /// `EROFS`: the node is in the control directory or in a snapshot.
    fn in_head(node: Node) -> Result<(), Errno> {
        match Self::place(node)? {
            NodeLocation::Head => Ok(()),
            NodeLocation::Control | NodeLocation::Snapdir | NodeLocation::Snapshot(..) => Err(Errno::ROFS),
        }
    }

    /// Refuses changes of names outside the head dataset, and of `.zfs`.
    ///
    /// # Errors
    /// `EROFS`: the directory is in the control directory or in a snapshot. `EPERM`: the name is
    /// `.zfs`.
    fn named(&self, dir: Node, name: &[u8]) -> Result<(), Errno> {
        Self::in_head(dir)?;
        let control = name == b".zfs" && dir == self.root() && !self.snapshots.disabled();
        if control { Err(Errno::PERM) } else { Ok(()) }
    }

    /// Passes a request on to the tree that has the node. For the control directory the result is
    /// `control`.
    fn file<T>(
        &self,
        node: Node,
        control: Result<T, Errno>,
        ask: impl FnOnce(&dyn FileTree, Node) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        match Self::place(node)? {
            NodeLocation::Head => ask(&*self.head, node),
            NodeLocation::Control | NodeLocation::Snapdir => control,
            NodeLocation::Snapshot(slot, node) => ask(&*self.snapshot(slot)?.tree, node),
        }
    }
}

#[cfg(test)]
mod tests;
