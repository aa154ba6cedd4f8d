//! Changing a node's attributes.

use super::Writer;
use crate::node::Store;
use crate::{Attr, FileSystem, Node, Result, Time};
use dmu::Tx;
use ondisk::ObjNum;
use ondisk::sa::Attr as Sa;
use ondisk::znode::Pflags;

/// The contents of the file were changed (`ZFS_AV_MODIFIED`).
pub(super) const AV_MODIFIED: u64 = 1 << 42;
/// The file's ACL lets everyone execute it (`ZFS_NO_EXECS_DENIED`).
pub(super) const NO_EXECS_DENIED: u64 = 0x100;
/// Set-user-id and set-group-id.
const S_ISUID: u32 = 0o4000;
const S_ISGID: u32 = 0o2000;

/// An attribute's new value.
pub(super) enum Value {
    Word([u8; 8]),
    Time([u8; 16]),
    Bytes(Vec<u8>),
    Gone,
}

impl Value {
    /// The bytes; `None` if the attribute is removed.
    pub(super) fn bytes(&self) -> Option<&[u8]> {
        match self {
            Value::Word(b) => Some(b),
            Value::Time(b) => Some(b),
            Value::Bytes(b) => Some(b),
            Value::Gone => None,
        }
    }
}

/// Changes of one node's attributes, applied together.
#[derive(Default)]
pub(super) struct Changes {
    list: Vec<(Sa, Value)>,
    /// The contents changed too.
    contents: bool,
    /// The new access list of a directory of an AFS volume.
    access_list: Option<Vec<u8>>,
}

pub(super) fn time_bytes(t: Time) -> [u8; 16] {
    let mut raw = [0; 16];
    raw[..8].copy_from_slice(&t.secs.to_le_bytes());
    raw[8..].copy_from_slice(&u64::from(t.nanos).to_le_bytes());
    raw
}

impl Changes {
    fn put(&mut self, attr: Sa, value: Value) {
        match self.list.iter_mut().find(|(a, _)| *a == attr) {
            Some((_, v)) => *v = value,
            None => self.list.push((attr, value)),
        }
    }

    pub(super) fn word(&mut self, attr: Sa, value: u64) {
        self.put(attr, Value::Word(value.to_le_bytes()));
    }

    pub(super) fn time(&mut self, attr: Sa, t: Time) {
        self.put(attr, Value::Time(time_bytes(t)));
    }

    pub(super) fn bytes(&mut self, attr: Sa, value: Vec<u8>) {
        self.put(attr, Value::Bytes(value));
    }

    pub(super) fn remove(&mut self, attr: Sa) {
        self.put(attr, Value::Gone);
    }

    /// Notes a change of the contents (`zfs_tstamp_update_setup` with `CONTENT_MODIFIED`).
    pub(super) fn modified(&mut self, attr: &Attr, now: Time) {
        self.contents = true;
        self.time(Sa::Mtime, now);
        self.time(Sa::Ctime, now);
        self.word(Sa::Flags, attr.pflags.0 | Pflags::ARCHIVE | AV_MODIFIED);
    }

    /// Notes that the entry `..` of a directory changed. Clients of an AFS cell read it with the
    /// others.
    pub(super) fn new_parent(&mut self) {
        self.contents = true;
    }

    /// Replaces the access list of a directory of an AFS volume.
    pub(super) fn access_list(&mut self, list: Vec<u8>) {
        self.access_list = Some(list);
    }

    /// Notes another change (`STATE_CHANGED`).
    pub(super) fn changed(&mut self, attr: &Attr, now: Time) {
        self.time(Sa::Ctime, now);
        self.word(Sa::Flags, attr.pflags.0 | Pflags::ARCHIVE);
    }

    /// Clears the bits that let others act as the file's owner, after a write or a change of the
    /// owner.
    pub(super) fn drop_privileges(&mut self, attr: &Attr) {
        if let Some(mode) = attr.mode_without_privileges() {
            self.word(Sa::Mode, mode.into());
        }
    }

    /// True if only the time of the last access changes.
    fn is_access(&self) -> bool {
        self.list.iter().all(|(attr, _)| *attr == Sa::Atime)
    }

    pub(super) fn apply(&self, node: &Node, tx: &Tx) -> Result<()> {
        if let Store::Znode(z) = &node.store {
            return node.apply_to_znode(z, &self.list, tx);
        }
        let list: Vec<_> = self.list.iter().map(|(attr, v)| (*attr, v.bytes())).collect();
        Ok(node.fs.sa().set(&node.dn, tx, &list)?)
    }
}

impl Attr {
    /// The mode without the bits that let others act as the file's owner; `None` if it has none.
    pub(super) fn mode_without_privileges(&self) -> Option<u32> {
        let lost = S_ISUID | if self.mode & 0o10 != 0 { S_ISGID } else { 0 };
        (self.mode & lost != 0 && self.kind == crate::FileType::Regular).then_some(self.mode & !lost)
    }
}

impl FileSystem {
    /// Changes a node's attributes with `f`, which gets the current ones.
    ///
    /// # Errors
    /// The error of `f`, or the errors of [opening](crate::Error#opening), with
    /// [`Error::Dmu`](crate::Error::Dmu) if the attributes don't fit.
    pub(super) fn update<R>(
        &self,
        w: &Writer,
        object: ObjNum,
        tx: &Tx,
        f: impl FnOnce(&Node, &mut Changes) -> Result<R>,
    ) -> Result<R> {
        self.update_and(w, object, tx, f, |_| {})
    }

    /// As `update`, and then calls `done` with the former attributes while they are still locked.
    /// So changes are logged in the order in which they are made.
    pub(super) fn update_and<R>(
        &self,
        w: &Writer,
        object: ObjNum,
        tx: &Tx,
        f: impl FnOnce(&Node, &mut Changes) -> Result<R>,
        done: impl FnOnce(&Attr),
    ) -> Result<R> {
        let held = w.locks.hold(object);
        let _attrs = held.attrs();
        let node = self.node(object)?;
        let mut changes = Changes::default();
        let r = f(&node, &mut changes)?;
        if !changes.list.is_empty() {
            if self.is_afs()
                && !changes.is_access()
                && let Some(status) = node.afs_status_to_change()?
            {
                let contents = changes.contents && self.counts_versions() && tx.is_first(object);
                let mut status = status.changed(contents, self.afs_author(), w.now());
                if let Some(list) = changes.access_list.take() {
                    status.access_list = list;
                }
                changes.bytes(Sa::Afs, status.encode());
            }
            changes.apply(&node, tx)?;
        }
        done(node.attr());
        Ok(r)
    }
}
