//! Records of names: creating, removing, renaming.

use super::{Given, SLOTS_MAX, bad, id, time};
use crate::write::make::{Birth, Kind, NewFile};
use crate::write::{Rename, Writer};
use crate::{Error, FileSystem, FileType, Result};
use dsl::Need;
use ondisk::ObjNum;
use ondisk::sa::Attr as Sa;
use ondisk::zil::{Create, FileId, Rename as RenameRecord, TxKind, Whiteout};
use ondisk::znode::Pflags;

impl Given {
    fn new(id: FileId, generation: u64, crtime: [u64; 2]) -> Result<Given> {
        let slots = u8::try_from(id.slots).ok().filter(|n| (1..=SLOTS_MAX).contains(&u64::from(*n)));
        let slots = slots.ok_or_else(|| bad(id.object, "slots", id.slots))?;
        Ok(Given { object: ObjNum(id.object), slots, generation, time: time(crtime) })
    }
}

/// The type of the file that a record creates.
fn kind(c: &Create) -> Result<Kind> {
    let rdev = ((c.rdev >> 20) as u32, (c.rdev & 0xf_ffff) as u32);
    Ok(match FileType::from_mode(c.mode) {
        FileType::Regular => Kind::Regular,
        FileType::Directory => Kind::Directory,
        FileType::Symlink => Kind::Symlink(c.link.clone().unwrap_or_default()),
        FileType::Fifo => Kind::Fifo,
        FileType::Socket => Kind::Socket,
        FileType::CharDevice => Kind::CharDevice(rdev.0, rdev.1),
        FileType::BlockDevice => Kind::BlockDevice(rdev.0, rdev.1),
        _ => return Err(bad(c.foid.object, "mode", c.mode)),
    })
}

fn new_file(c: &Create, kind: Kind) -> NewFile {
    NewFile { kind, permissions: (c.mode & 0o7777) as u32, umask: 0, uid: id(c.uid), gid: id(c.gid) }
}

impl FileSystem {
    /// Creates a file of any type.
    pub(super) fn replay_create(&self, w: &Writer, c: &Create) -> Result<()> {
        let new = new_file(c, kind(c)?);
        let given = Given::new(c.foid, c.gen_, c.crtime)?;
        let object = given.object;
        self.replay_make(w, ObjNum(c.doid), &c.name, &new, &given)?;
        let domains = c.acl.as_ref().map_or(&c.domains, |acl| &acl.domains);
        self.replay_owners(w, object, [c.uid, c.gid], domains)?;
        if let Some(acl) = &c.acl {
            self.replay_acl(w, &self.node(object)?, acl)?;
        }
        match &c.xvattr {
            Some(x) => self.replay_xvattr(w, object, x),
            None => Ok(()),
        }
    }

    fn replay_make(&self, w: &Writer, dir: ObjNum, name: &[u8], new: &NewFile, given: &Given) -> Result<()> {
        let parent = self.dir_to_change(dir, true)?;
        if parent.attr().pflags.has(Pflags::XATTR) {
            self.check_entry(w, name)?;
        } else {
            self.check_name(w, name)?;
        }
        if self.find(&parent, name)?.is_some() {
            return Err(Error::Exists { dir });
        }
        let tx = w.tx(Need::growing(0))?;
        let birth = Birth { given: Some(given), ..Birth::new(new, &parent) };
        let born = self.make(w, &tx, &birth)?;
        if let Err(e) = self.enter_name(w, &parent, &tx, name, (born.object(), new.kind.file_type())) {
            self.objset().free_object(&tx, born.object())?;
            return Err(e);
        }
        Ok(())
    }

    /// Creates the hidden directory of a file's extended attributes (`TX_MKXATTR`).
    pub(super) fn replay_hidden_dir(&self, w: &Writer, c: &Create) -> Result<()> {
        let owner = self.node(ObjNum(c.doid))?;
        if owner.attr().xattr_dir.is_some() {
            return Err(Error::XattrExists { object: owner.object() });
        }
        let new = new_file(c, Kind::Directory);
        let given = Given::new(c.foid, c.gen_, c.crtime)?;
        let tx = w.tx(Need::growing(0))?;
        let birth = Birth { xattr: true, given: Some(&given), ..Birth::new(&new, &owner) };
        let born = self.make(w, &tx, &birth)?;
        self.update(w, owner.object(), &tx, |_, changes| {
            changes.word(Sa::Xattr, born.object().0);
            Ok(())
        })
    }

    /// Removes a name. A file without names is freed at once, because it has no users.
    pub(super) fn replay_remove(&self, dir: ObjNum, name: &[u8], kind: TxKind, ci: bool) -> Result<()> {
        let name = self.stored_name(dir, name, ci)?;
        match kind {
            TxKind::Rmdir => {
                let object = self.rmdir(dir, &name)?;
                self.reap(object)
            }
            _ => match self.unlink(dir, &name)? {
                Some(object) => self.reap(object),
                None => Ok(()),
            },
        }
    }

    /// Renames, and leaves a whiteout if the record has one.
    pub(super) fn replay_rename(&self, w: &Writer, r: &RenameRecord, kind: TxKind, ci: bool) -> Result<()> {
        let (from, to) = (ObjNum(r.sdoid), ObjNum(r.tdoid));
        let source = self.stored_name(from, &r.source, ci)?;
        let how = if kind == TxKind::RenameExchange { Rename::Exchange } else { Rename::Replace };
        if let Some(gone) = self.rename((from, &source), (to, &r.target), how)? {
            self.reap(gone)?;
        }
        match &r.whiteout {
            Some(white) => self.replay_whiteout(w, from, &source, white),
            None => Ok(()),
        }
    }

    fn replay_whiteout(&self, w: &Writer, dir: ObjNum, name: &[u8], white: &Whiteout) -> Result<()> {
        let new = NewFile {
            kind: Kind::CharDevice(0, 0),
            permissions: (white.mode & 0o7777) as u32,
            umask: 0,
            uid: id(white.uid),
            gid: id(white.gid),
        };
        let given = Given::new(white.foid, white.gen_, white.crtime)?;
        self.replay_make(w, dir, name, &new, &given)
    }
}
