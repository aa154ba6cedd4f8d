//! Records of attributes.

use super::{bad, id, time};
use crate::write::{SetAttr, Writer};
use crate::{Error, FileSystem, Node, Result};
use dsl::Need;
use ondisk::ObjNum;
use ondisk::nvlist::Value;
use ondisk::sa::Attr as Sa;
use ondisk::zil::{Setattr, Xvattr};
use ondisk::znode::Pflags;

/// The attributes that a record sets, as Linux numbers them (`ATTR_*`).
mod mask {
    pub(super) const MODE: u64 = 1;
    pub(super) const UID: u64 = 1 << 1;
    pub(super) const GID: u64 = 1 << 2;
    pub(super) const SIZE: u64 = 1 << 3;
    pub(super) const ATIME: u64 = 1 << 4;
    pub(super) const MTIME: u64 = 1 << 5;
}

/// Optional attributes that are flags of a file: their bit in a record (`XAT0_*`), and in the file.
pub(in crate::write) const FLAG_BITS: [(u64, u64); 15] = [
    (0x2, Pflags::ARCHIVE),
    (0x4, Pflags::SYSTEM),
    (0x8, Pflags::READONLY),
    (0x10, Pflags::HIDDEN),
    (0x20, Pflags::NOUNLINK),
    (0x40, Pflags::IMMUTABLE),
    (0x80, Pflags::APPENDONLY),
    (0x100, Pflags::NODUMP),
    (0x200, 1 << 40),
    (0x400, 1 << 41),
    (0x800, 1 << 42),
    (0x2000, 1 << 43),
    (0x8000, 1 << 44),
    (0x1_0000, 1 << 45),
    (0x2_0000, Pflags::PROJINHERIT),
];
/// The creation time (`XAT0_CREATETIME`).
const CREATETIME: u64 = 0x1;
/// The project (`XAT0_PROJID`).
pub(in crate::write) const PROJID: u64 = 0x4_0000;

impl FileSystem {
    /// Sets attributes (`zfs_replay_setattr`).
    pub(super) fn replay_setattr(&self, w: &Writer, s: &Setattr) -> Result<()> {
        let has = |bit| s.mask & bit != 0;
        let object = ObjNum(s.foid);
        let set = SetAttr {
            permissions: has(mask::MODE).then_some((s.mode & 0o7777) as u32),
            uid: has(mask::UID).then(|| id(s.uid)),
            gid: has(mask::GID).then(|| id(s.gid)),
            size: has(mask::SIZE).then_some(s.size),
            atime: has(mask::ATIME).then(|| time(s.atime)),
            mtime: has(mask::MTIME).then(|| time(s.mtime)),
            ..SetAttr::default()
        };
        self.set_attr(object, &set)?;
        let given = |bit, id| if has(bit) { id } else { 0 };
        self.replay_owners(w, object, [given(mask::UID, s.uid), given(mask::GID, s.gid)], &s.domains)?;
        match &s.xvattr {
            Some(x) => self.replay_xvattr(w, object, x),
            None => Ok(()),
        }
    }

    /// Sets optional attributes (`zfs_xvattr_set`).
    pub(super) fn replay_xvattr(&self, w: &Writer, object: ObjNum, x: &Xvattr) -> Result<()> {
        let wanted = u64::from(x.bitmap.first().copied().unwrap_or(0));
        let word = x.scanstamp.first_chunk::<8>().map_or(0, |raw| u64::from_le_bytes(*raw));
        let project = || u32::try_from(word).map_err(|_| bad(object.0, "project", word));
        let tx = w.tx(Need::growing(0))?;
        // A znode has no space for a project, and gets none if it stays a znode.
        let wanted = if self.node(object)?.takes_own() { wanted } else { wanted & !PROJID };
        if wanted & PROJID != 0 && word != 0 {
            let as_it_is = (|node: &Node| node.attr().pflags.0, self.attr(object)?.ctime);
            self.add_project(w, &tx, object, project()?.into(), as_it_is)?;
        }
        self.update(w, object, &tx, |node, c| {
            let a = node.attr();
            let mut flags = a.pflags.0;
            for (bit, flag) in FLAG_BITS.iter().filter(|(bit, _)| wanted & bit != 0) {
                flags = if x.attrs & bit != 0 { flags | flag } else { flags & !flag };
            }
            c.word(Sa::Flags, flags);
            if wanted & CREATETIME != 0 {
                c.time(Sa::Crtime, time(x.crtime));
            }
            if wanted & PROJID != 0 && a.pflags.has(Pflags::PROJID) {
                c.word(Sa::Projid, project()?.into());
            }
            Ok(())
        })?;
        if wanted & PROJID != 0 { self.hidden_follow(w, object) } else { Ok(()) }
    }

    /// Sets or removes an extended attribute stored as a system attribute
    /// (`zfs_replay_setsaxattr`).
    pub(super) fn replay_xattr(
        &self,
        w: &Writer,
        node: &Node,
        name: &[u8],
        value: Option<&[u8]>,
    ) -> Result<()> {
        if name.is_empty() {
            return Err(Error::NameTooLong { len: 0 });
        }
        if !node.takes_own() {
            // The upgrade for which this was logged did not survive, and the present version has
            // only hidden directories.
            return match value {
                Some(value) => self.put_hidden(w, node, name, value),
                None => self.unset_hidden(w, node, name),
            };
        }
        let mut list = node.sa_xattrs()?.unwrap_or_default();
        match value {
            Some(value) => list.set(name, Value::ByteArray(value.to_vec())),
            None => drop(list.remove(name)),
        }
        let packed = list.encode_xdr();
        let tx = w.tx(Need::growing(0))?;
        self.update(w, node.object(), &tx, |node, c| self.own_list(w, node, c, packed))
    }
}
