//! What changes leave in the intent log (`zfs_log.c`).
//!
//! # Theory
//! A change is logged in its transaction, under the locks that order it among others. Where nobody logs it, commits wait for its group, and that is what
//! happens unless an operation asks for [`Writer::logged_tx`]: so a change that is added without a thought of the log is slow, and not lost.
//! A file that has no name has no records either: after a crash it is gone, and who gives it a name has commits wait for his group. Whether
//! it has one is asked under the lock of its attributes, in the change itself.

use super::make::Kind;
use super::setattr::SetAttr;
use super::{Purpose, Writer};
use crate::{Attr, Error, FileSystem, FileType, Node, Result, Time};
use dmu::Tx;
use ondisk::ObjNum;
use ondisk::zil::{Create, FileId, RecordBody, Rename, Setattr, TxKind};
use zil::{Found, Source, SyncMode, Zilog};

/// Bits of `lr_setattr_t.lr_mask` as Linux's port has them (`ATTR_*`).
const ATTR_MODE: u64 = 1 << 0;
const ATTR_UID: u64 = 1 << 1;
const ATTR_GID: u64 = 1 << 2;
const ATTR_ATIME: u64 = 1 << 4;
const ATTR_MTIME: u64 = 1 << 5;

fn words(t: Time) -> [u64; 2] {
    [t.secs as u64, u64::from(t.nanos)]
}

/// A rename that was done.
pub(super) struct Renamed<'a> {
    pub(super) kind: TxKind,
    pub(super) from: (ObjNum, &'a [u8]),
    pub(super) to: (ObjNum, &'a [u8]),
    /// What has another name now.
    pub(super) moved: &'a [ObjNum],
    /// What lost its last one.
    pub(super) gone: Option<ObjNum>,
    /// A whiteout stays behind.
    pub(super) whiteout: bool,
}

impl Writer {
    /// The log, as properties want it now; without one commits wait for groups.
    pub(super) fn log(&self) -> Option<&Zilog> {
        let log = self.txs.log()?;
        let policy = self.policy().log;
        if log.policy() != policy {
            log.set_policy(policy);
        }
        Some(log)
    }

    /// A transaction for what has no record: commits wait for its group.
    pub(super) fn tx(&self, bytes: u64, purpose: Purpose) -> Result<Tx> {
        let tx = self.logged_tx(bytes, purpose)?;
        self.unlogged(&tx);
        Ok(tx)
    }

    /// Notes that a change has no record: commits wait for its group.
    pub(super) fn unlogged(&self, tx: &Tx) {
        if let Some(log) = self.log() {
            log.unlogged(tx);
        }
    }

    /// Notes that a change has no record if it failed: some of it may be there.
    pub(super) fn or_unlogged<R>(&self, tx: &Tx, result: Result<R>) -> Result<R> {
        if result.is_err() {
            self.unlogged(tx);
        }
        result
    }

    /// Logs a new file of any kind, which has a name.
    pub(super) fn log_create(&self, tx: &Tx, dir: ObjNum, name: &[u8], node: &Node, kind: &Kind) {
        let Some(log) = self.log() else { return };
        let a = node.attr();
        let (tx_kind, link) = match kind {
            Kind::Directory => (TxKind::Mkdir, None),
            Kind::Symlink(target) => (TxKind::Symlink, Some(target.clone())),
            _ => (TxKind::Create, None),
        };
        let slots = node.dnode().phys().num_slots() as u64;
        let create = Create {
            doid: dir.0,
            foid: FileId { object: a.object.0, slots },
            mode: a.mode.into(),
            uid: a.uid.0,
            gid: a.gid.0,
            gen_: a.generation,
            crtime: words(a.crtime),
            rdev: kind.rdev().unwrap_or(0),
            xvattr: None,
            acl: None,
            domains: Vec::new(),
            name: name.to_vec(),
            link,
        };
        log.log_names(tx, tx_kind, false, &RecordBody::Create(create));
    }

    /// Logs that a name is gone, and with it the file, if `gone`.
    pub(super) fn log_remove(&self, tx: &Tx, dir: ObjNum, name: &[u8], file: (ObjNum, FileType), gone: bool) {
        let Some(log) = self.log() else { return };
        if gone {
            log.forget(file.0);
        }
        let kind = if file.1 == FileType::Directory { TxKind::Rmdir } else { TxKind::Remove };
        log.log_names(tx, kind, false, &RecordBody::Remove { doid: dir.0, name: name.to_vec() });
    }

    /// Logs one more name of a file.
    pub(super) fn log_link(&self, tx: &Tx, dir: ObjNum, name: &[u8], file: ObjNum) {
        if let Some(log) = self.log() {
            let body = RecordBody::Link { doid: dir.0, link_obj: file.0, name: name.to_vec() };
            log.log_names(tx, TxKind::Link, false, &body);
        }
    }

    /// Logs a rename. What was done to the file before comes before it: the new name never shows less.
    pub(super) fn log_rename(&self, tx: &Tx, r: &Renamed<'_>) {
        let Some(log) = self.log() else { return };
        r.moved.iter().for_each(|object| log.pull(*object));
        if let Some(gone) = r.gone {
            log.forget(gone);
        }
        if r.whiteout {
            return log.unlogged(tx);
        }
        let (source, target) = (r.from.1.to_vec(), r.to.1.to_vec());
        let body = Rename { sdoid: r.from.0.0, tdoid: r.to.0.0, source, target, whiteout: None };
        log.log_names(tx, r.kind, false, &RecordBody::Rename(body));
    }

    /// Logs a write to a file.
    pub(super) fn log_write(&self, tx: &Tx, file: &Attr, offset: u64, data: &[u8]) {
        if let Some(log) = self.log().filter(|_| file.nlink > 0) {
            log.log_write(tx, file.object, offset, data, log.policy().sync == SyncMode::Always);
        }
    }

    /// Logs that a range was freed; length 0: everything behind, and the file ends there.
    pub(super) fn log_truncate(&self, tx: &Tx, file: &Attr, offset: u64, length: u64) {
        if let Some(log) = self.log().filter(|_| file.nlink > 0) {
            let body = RecordBody::Truncate { foid: file.object.0, offset, length };
            log.log_object(tx, file.object, TxKind::Truncate, &body);
        }
    }

    /// Logs new attributes of a file, all but its size.
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

    /// Logs an extended attribute among a file's own; `None`: it was removed.
    pub(super) fn log_sa_xattr(&self, tx: &Tx, file: &Attr, name: &[u8], value: Option<&[u8]>) {
        let Some(log) = self.log().filter(|_| file.nlink > 0) else { return };
        // An empty value would say that it was removed.
        if !log.takes_sa_xattrs() || value.is_some_and(<[u8]>::is_empty) {
            return log.unlogged(tx);
        }
        let value = value.map(<[u8]>::to_vec);
        let body = RecordBody::SetSaXattr { foid: file.object.0, name: name.to_vec(), value };
        log.log_object(tx, file.object, TxKind::SetSaXattr, &body);
    }
}

impl Source for FileSystem {
    fn data(&self, object: ObjNum, offset: u64, buf: &mut [u8]) -> Found {
        let Some(w) = self.writer_if_any() else { return Found::Unreadable };
        let held = w.locks.hold(object);
        let _range = held.range(offset, offset.saturating_add(buf.len() as u64), false);
        let node = match self.node(object) {
            Ok(node) => node,
            Err(Error::NoFile { .. }) => return Found::Gone,
            Err(_) => return Found::Unreadable,
        };
        let a = node.attr();
        if a.kind != FileType::Regular || a.nlink == 0 || offset >= a.size {
            return Found::Gone;
        }
        match node.dn.read_at(offset, buf) {
            Ok(()) => Found::Here,
            Err(_) => Found::Unreadable,
        }
    }
}

fn stopped(e: zil::Error) -> Error {
    Error::Stopped { source: std::sync::Arc::new(e) }
}

impl FileSystem {
    /// Makes durable what was done to a file or directory before the call, and to any names (`fsync`, `zil_commit`); nothing with
    /// `sync=disabled`.
    ///
    /// # Errors
    /// [`Error::Stopped`].
    pub fn fsync(&self, object: ObjNum) -> Result<()> {
        let Some(w) = self.writer_if_any() else { return Ok(()) };
        match w.log() {
            Some(log) => log.commit(Some(object), self).map_err(stopped),
            None => self.sync(),
        }
    }

    /// Where changes are durable when they are acknowledged (`sync=always`), makes them so.
    pub(super) fn settle(&self, object: ObjNum) -> Result<()> {
        match self.writer()?.log() {
            Some(log) if log.policy().sync == SyncMode::Always => {
                log.commit(Some(object), self).map_err(stopped)
            }
            _ => Ok(()),
        }
    }
}
