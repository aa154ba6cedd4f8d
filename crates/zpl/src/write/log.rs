//! What changes leave in the intent log (`zfs_log.c`).
//!
//! # Theory
//! A change is logged in its transaction, under the locks that order it among others. Without a
//! record, commits wait for its txg. That is the default, unless an operation calls
//! [`Writer::logged_tx`]. So a new operation that does not consider the log is slow, but loses
//! nothing.
//!
//! A file without a name has no records either: after a crash it is gone. The operation that gives
//! it its first name makes commits wait for its txg, as in OpenZFS. Whether the file has a name is
//! checked under the lock of its attributes, in the change itself.
//!
//! Attributes in hidden directories are names with contents. All changes of them are ordered with
//! names. So such a change never follows the removal of its file, and never shows an attribute
//! without its value.

use super::Writer;
use super::make::Kind;
use super::replay::{FLAG_BITS, PROJID};
use super::setattr::SetAttr;
use crate::{Attr, Error, FileSystem, FileType, Node, Result, Time};
use dmu::{DirtyBlock, Dnode, Tx};
use dsl::Need;
use ondisk::zil::{Create, FileId, RecordBody, Rename, Setattr, TxKind, Whiteout, Write, Xvattr};
use ondisk::znode::Pflags;
use ondisk::{BlkId, Blkptr, ObjNum, Txg};
use zil::{Bytes, Missing, Source, SyncMode, Zilog};

/// Bits of `lr_setattr_t.lr_mask` in Linux's port (`ATTR_*`).
const ATTR_MODE: u64 = 1 << 0;
const ATTR_UID: u64 = 1 << 1;
const ATTR_GID: u64 = 1 << 2;
const ATTR_ATIME: u64 = 1 << 4;
const ATTR_MTIME: u64 = 1 << 5;
/// The record has optional attributes (`ATTR_XVATTR`).
const ATTR_XVATTR: u64 = 1 << 31;
/// Words in the set of optional attributes of a record (`XVA_MAPSIZE`).
const XVA_MAPSIZE: usize = 3;

fn words(t: Time) -> [u64; 2] {
    [t.secs as u64, u64::from(t.nanos)]
}

/// A completed rename.
pub(super) struct Renamed<'a> {
    pub(super) kind: TxKind,
    pub(super) from: (ObjNum, &'a [u8]),
    pub(super) to: (ObjNum, &'a [u8]),
    /// Files that have another name now.
    pub(super) moved: &'a [ObjNum],
    /// The file that lost its last name.
    pub(super) gone: Option<ObjNum>,
    /// A whiteout that replaced the source.
    pub(super) whiteout: Option<&'a Node>,
}

/// An attribute that was set in a hidden directory.
pub(super) struct Hidden<'a> {
    /// The hidden directory.
    pub(super) dir: &'a Node,
    /// True if the directory is new.
    pub(super) new_dir: bool,
    /// The file with the value, as it was before.
    pub(super) file: &'a Node,
    /// True if the file is new.
    pub(super) new_file: bool,
    /// The attribute's name.
    pub(super) name: &'a [u8],
    /// The attribute's value.
    pub(super) value: &'a [u8],
}

/// The record of a new file.
fn create(doid: ObjNum, name: &[u8], node: &Node, rdev: u64, link: Option<Vec<u8>>) -> RecordBody {
    let a = node.attr();
    let slots = node.dnode().phys().num_slots() as u64;
    RecordBody::Create(Create {
        doid: doid.0,
        foid: FileId { object: a.object.0, slots },
        mode: a.mode.into(),
        uid: a.uid.0,
        gid: a.gid.0,
        gen_: a.generation,
        crtime: words(a.crtime),
        rdev,
        xvattr: None,
        acl: None,
        domains: Vec::new(),
        name: name.to_vec(),
        link,
    })
}

impl Writer {
    /// The log with the current properties; without one, commits wait for txgs.
    pub(super) fn log(&self) -> Option<&Zilog> {
        let log = self.txs.log()?;
        let policy = self.policy().log;
        if log.policy() != policy {
            log.set_policy(policy);
        }
        Some(log)
    }

    /// A transaction for a change without a record: commits wait for its txg.
    pub(super) fn tx(&self, need: Need) -> Result<Tx> {
        let tx = self.logged_tx(need)?;
        self.unlogged(&tx);
        Ok(tx)
    }

    /// Notes that a change has no record: commits wait for its txg.
    pub(super) fn unlogged(&self, tx: &Tx) {
        if let Some(log) = self.log() {
            log.unlogged(tx);
        }
    }

    /// After an error, notes that the change has no record, because a part of it may have happened.
    pub(super) fn or_unlogged<R>(&self, tx: &Tx, result: Result<R>) -> Result<R> {
        if result.is_err() {
            self.unlogged(tx);
        }
        result
    }

    /// Logs a new file of any type that has a name (`zfs_log_create`).
    pub(super) fn log_create(&self, tx: &Tx, dir: ObjNum, name: &[u8], node: &Node, kind: &Kind) {
        let Some(log) = self.log() else { return };
        let (tx_kind, link) = match kind {
            Kind::Directory => (TxKind::Mkdir, None),
            Kind::Symlink(target) => (TxKind::Symlink, Some(target.clone())),
            _ => (TxKind::Create, None),
        };
        log.log_names(tx, tx_kind, false, &create(dir, name, node, kind.rdev().unwrap_or(0), link));
    }

    /// Logs that a name was removed, and with it the file, if `gone` (`zfs_log_remove`).
    pub(super) fn log_remove(&self, tx: &Tx, dir: ObjNum, name: &[u8], file: (ObjNum, FileType), gone: bool) {
        let Some(log) = self.log() else { return };
        if gone {
            log.forget(file.0);
        }
        let kind = if file.1 == FileType::Directory { TxKind::Rmdir } else { TxKind::Remove };
        log.log_names(tx, kind, false, &RecordBody::Remove { doid: dir.0, name: name.to_vec() });
    }

    /// Logs one more name of a file (`zfs_log_link`).
    pub(super) fn log_link(&self, tx: &Tx, dir: ObjNum, name: &[u8], file: ObjNum) {
        if let Some(log) = self.log() {
            let body = RecordBody::Link { doid: dir.0, link_obj: file.0, name: name.to_vec() };
            log.log_names(tx, TxKind::Link, false, &body);
        }
    }

    /// Logs a rename. Earlier changes of the file precede it, so that the new name never shows
    /// older contents (`zfs_log_rename`).
    pub(super) fn log_rename(&self, tx: &Tx, r: &Renamed<'_>) {
        let Some(log) = self.log() else { return };
        r.moved.iter().for_each(|object| log.pull(*object));
        if let Some(gone) = r.gone {
            log.forget(gone);
        }
        let whiteout = r.whiteout.map(|node| {
            let a = node.attr();
            Whiteout {
                foid: FileId { object: a.object.0, slots: node.dnode().phys().num_slots() as u64 },
                mode: a.mode.into(),
                uid: a.uid.0,
                gid: a.gid.0,
                gen_: a.generation,
                crtime: words(a.crtime),
                rdev: 0,
            }
        });
        let kind = if whiteout.is_some() { TxKind::RenameWhiteout } else { r.kind };
        let (source, target) = (r.from.1.to_vec(), r.to.1.to_vec());
        let body = Rename { sdoid: r.from.0.0, tdoid: r.to.0.0, source, target, whiteout };
        log.log_names(tx, kind, false, &RecordBody::Rename(body));
    }

    /// Logs a write to a file (`zfs_log_write`).
    pub(super) fn log_write(&self, tx: &Tx, file: &Attr, offset: u64, data: &[u8]) {
        if let Some(log) = self.log().filter(|_| file.nlink > 0) {
            log.log_write(tx, file.object, offset, data, log.policy().sync == SyncMode::Always);
        }
    }

    /// Logs that a range was freed. Length 0 means everything from `offset` on, where the file then
    /// ends (`zfs_log_truncate`).
    pub(super) fn log_truncate(&self, tx: &Tx, file: &Attr, offset: u64, length: u64) {
        if let Some(log) = self.log().filter(|_| file.nlink > 0) {
            let body = RecordBody::Truncate { foid: file.object.0, offset, length };
            log.log_object(tx, file.object, TxKind::Truncate, &body);
        }
    }

    /// Logs new attributes of a file, except its size (`zfs_log_setattr`).
    pub(super) fn log_setattr(&self, tx: &Tx, file: &Attr, set: &SetAttr) {
        let Some(log) = self.log().filter(|_| file.nlink > 0) else { return };
        let mode = match set.permissions {
            Some(p) => Some(file.mode & !0o7777 | p & 0o7777),
            None if set.kill => file.mode_without_privileges(),
            None => None,
        };
        let bit = |bit: u64, is: bool| if is { bit } else { 0 };
        let mask = bit(ATTR_MODE, mode.is_some())
            | bit(ATTR_UID, set.uid.is_some())
            | bit(ATTR_GID, set.gid.is_some())
            | bit(ATTR_ATIME, set.atime.is_some())
            | bit(ATTR_MTIME, set.mtime.is_some());
        if mask == 0 {
            return;
        }
        let body = Setattr {
            foid: file.object.0,
            mask,
            mode: mode.unwrap_or(file.mode).into(),
            uid: set.uid.map_or(file.uid.0, u64::from),
            gid: set.gid.map_or(file.gid.0, u64::from),
            size: 0,
            atime: words(set.atime.unwrap_or(file.atime)),
            mtime: words(set.mtime.unwrap_or(file.mtime)),
            xvattr: None,
            domains: Vec::new(),
        };
        log.log_object(tx, file.object, TxKind::Setattr, &RecordBody::Setattr(body));
    }

    /// Logs that a file lost set-user-id and set-group-id, if `kill` says so and it had them.
    pub(super) fn log_kill(&self, tx: &Tx, file: &Attr, kill: bool) {
        if kill {
            self.log_setattr(tx, file, &SetAttr { kill, ..SetAttr::default() });
        }
    }

    /// Logs new flags of a file, and its new project.
    pub(super) fn log_flags(&self, tx: &Tx, file: &Attr, flags: Pflags, project: u32) {
        let Some(log) = self.log().filter(|_| file.nlink > 0) else { return };
        let settable = FLAG_BITS.iter().filter(|(_, flag)| flag & Pflags::FS_FLAGS != 0);
        let (mut wanted, attrs) = settable
            .fold((0, 0), |(all, on), (bit, flag)| (all | bit, on | if flags.has(*flag) { *bit } else { 0 }));
        let mut scanstamp = [0; 32];
        if u64::from(project) != file.projid {
            wanted |= PROJID;
            scanstamp[..8].copy_from_slice(&u64::from(project).to_le_bytes());
        }
        let mut bitmap = vec![0; XVA_MAPSIZE];
        bitmap[0] = wanted as u32;
        let body = Setattr {
            foid: file.object.0,
            mask: ATTR_XVATTR,
            mode: file.mode.into(),
            uid: file.uid.0,
            gid: file.gid.0,
            size: 0,
            atime: words(file.atime),
            mtime: words(file.mtime),
            xvattr: Some(Xvattr { bitmap, attrs, crtime: [0, 0], scanstamp }),
            domains: Vec::new(),
        };
        log.log_object(tx, file.object, TxKind::Setattr, &RecordBody::Setattr(body));
    }

    /// Logs that a file gained the blocks `bps`, each `block` bytes large, from `offset` on
    /// (`zfs_log_clone_range`).
    pub(super) fn log_clone(
        &self,
        tx: &Tx,
        file: &Attr,
        (offset, length): (u64, u64),
        block: u64,
        bps: Vec<Blkptr>,
    ) {
        if let Some(log) = self.log().filter(|_| file.nlink > 0) {
            log.log_clone(tx, file.object, (offset, length), block, bps);
        }
    }

    /// Logs an attribute in a hidden directory.
    pub(super) fn log_hidden(&self, tx: &Tx, file: &Attr, h: &Hidden<'_>) {
        let Some(log) = self.log().filter(|_| file.nlink > 0) else { return };
        let mut bodies = Vec::with_capacity(3);
        if h.new_dir {
            bodies.push((TxKind::Mkxattr, create(file.object, b"", h.dir, 0, None)));
        }
        let foid = h.file.object().0;
        if h.new_file {
            bodies.push((TxKind::Create, create(h.dir.object(), h.name, h.file, 0, None)));
        } else if h.file.attr().size > 0 {
            bodies.push((TxKind::Truncate, RecordBody::Truncate { foid, offset: 0, length: 0 }));
        }
        if !h.value.is_empty() {
            let (length, data) = (h.value.len() as u64, h.value.to_vec());
            bodies.push((
                TxKind::Write,
                RecordBody::Write(Write { foid, offset: 0, length, blkptr: None, data }),
            ));
        }
        log.log_names_at_once(tx, &bodies);
    }

    /// Logs that an attribute was removed from a hidden directory. It may be a system attribute
    /// now.
    pub(super) fn log_unhidden(&self, tx: &Tx, file: &Attr, dir: ObjNum, name: &[u8]) {
        if let Some(log) = self.log().filter(|_| file.nlink > 0) {
            log.pull(file.object);
            let body = RecordBody::Remove { doid: dir.0, name: name.to_vec() };
            log.log_names(tx, TxKind::Remove, false, &body);
        }
    }

    /// Logs an extended attribute stored as a system attribute; `None` means that it was removed
    /// (`zfs_log_setsaxattr`).
    pub(super) fn log_sa_xattr(&self, tx: &Tx, file: &Attr, name: &[u8], value: Option<&[u8]>) {
        let Some(log) = self.log().filter(|_| file.nlink > 0) else { return };
        // An empty value in a record would mean that the attribute was removed.
        if !log.takes_sa_xattrs() || value.is_some_and(<[u8]>::is_empty) {
            return log.unlogged(tx);
        }
        let value = value.map(<[u8]>::to_vec);
        let body = RecordBody::SetSaXattr { foid: file.object.0, name: name.to_vec(), value };
        log.log_object(tx, file.object, TxKind::SetSaXattr, &body);
    }
}

impl FileSystem {
    /// Queries a file with a byte at `offset`, while no write there is in progress and its blocks
    /// don't grow.
    fn amid<T>(&self, object: ObjNum, offset: u64, ask: impl FnOnce(&Dnode) -> Option<T>) -> Option<T> {
        let w = self.writer_if_any()?;
        let held = w.locks.hold(object);
        let _range = held.range(offset, offset.saturating_add(1), false);
        let node = self.node(object).ok()?;
        let a = node.attr();
        let has = a.kind == FileType::Regular && a.nlink > 0 && offset < a.size;
        if has { ask(&node.dn) } else { None }
    }
}

impl Source for FileSystem {
    fn data(&self, object: ObjNum, offset: u64, len: usize) -> std::result::Result<Bytes, Missing> {
        let w = self.writer_if_any().ok_or(Missing::Unreadable)?;
        let held = w.locks.hold(object);
        let _range = held.range(offset, offset.saturating_add(len as u64), false);
        let node = self.node(object).map_err(|e| match e {
            Error::NoFile { .. } => Missing::Gone,
            _ => Missing::Unreadable,
        })?;
        let a = node.attr();
        if a.kind != FileType::Regular || a.nlink == 0 || offset >= a.size {
            return Err(Missing::Gone);
        }
        Bytes::of(&node.dn, offset, len).map_err(|_| Missing::Unreadable)
    }

    fn dirty(&self, object: ObjNum, offset: u64, txg: Txg) -> Option<DirtyBlock> {
        self.amid(object, offset, |dn| dn.dirty_block(txg, BlkId(offset / dn.block_size())))
    }
}

fn stopped(e: zil::Error) -> Error {
    Error::Stopped { source: std::sync::Arc::new(e) }
}

impl FileSystem {
    /// Makes durable all earlier changes of a file or directory, and all earlier changes of names
    /// (`zfs_fsync`).
    ///
    /// With `sync=disabled` this does nothing.
    ///
    /// # Errors
    /// * [`Error::Stopped`]: the pool stopped before the changes were durable.
    pub fn fsync(&self, object: ObjNum) -> Result<()> {
        let Some(w) = self.writer_if_any() else { return Ok(()) };
        match w.log() {
            Some(log) => log.commit(Some(object), self).map_err(stopped),
            None => self.sync(),
        }
    }

    /// With `sync=always`, makes changes durable before they are acknowledged.
    pub(super) fn settle(&self, object: ObjNum) -> Result<()> {
        match self.writer()?.log() {
            Some(log) if log.policy().sync == SyncMode::Always => {
                log.commit(Some(object), self).map_err(stopped)
            }
            _ => Ok(()),
        }
    }
}
