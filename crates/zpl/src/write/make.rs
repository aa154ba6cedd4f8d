//! New files of all types (`zfs_create`, `zfs_mkdir`, `zfs_symlink`, `zfs_mknode`).
//!
//! # On disk
//! A new file's attributes have the order in which OpenZFS writes them, because accounting finds
//! owner, flags and project at fixed offsets.

use super::nfs4::{AUTO_INHERIT, HAS_INHERITABLE, Heir, NewAcl};
use super::quota::Payers;
use super::replay::Given;
use super::update::{AV_MODIFIED, NO_EXECS_DENIED, time_bytes};
use super::{Writer, nfs4, trivial};
use crate::{AfsStatus, Attr, Error, FileSystem, FileType, Node, Result, Time};
use dmu::zap::Zap;
use dmu::{Dnode, NewObject, Tx};
use dsl::Need;
use ondisk::objset::ObjsetFlags;
use ondisk::sa::Attr as Sa;
use ondisk::zap::ZapFlags;
use ondisk::znode::{Pflags, ZNODE_SIZE};
use ondisk::{DmuType, ObjNum};

/// Longest target of a symbolic link with its NUL, in bytes: Linux's limit (`PATH_MAX`).
pub(super) const TARGET_MAX: usize = 4096;
/// Estimate of what creating a file dirties, in bytes: its dnode, and its share of directory
/// blocks.
pub(super) const MAKE_BYTES: u64 = 2048;
/// Set-group-id.
const S_ISGID: u32 = 0o2000;

/// The type of a new file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    Regular,
    /// A directory.
    Directory,
    /// A symbolic link to this target.
    Symlink(Vec<u8>),
    /// A fifo.
    Fifo,
    /// A socket.
    Socket,
    /// A character device: major and minor number.
    CharDevice(u32, u32),
    /// A block device: major and minor number.
    BlockDevice(u32, u32),
}

impl Kind {
    pub(super) fn file_type(&self) -> FileType {
        match self {
            Kind::Regular => FileType::Regular,
            Kind::Directory => FileType::Directory,
            Kind::Symlink(_) => FileType::Symlink,
            Kind::Fifo => FileType::Fifo,
            Kind::Socket => FileType::Socket,
            Kind::CharDevice(..) => FileType::CharDevice,
            Kind::BlockDevice(..) => FileType::BlockDevice,
        }
    }

    /// The device number as Linux's port stores it.
    pub(super) fn rdev(&self) -> Option<u64> {
        match self {
            Kind::CharDevice(major, minor) | Kind::BlockDevice(major, minor) => {
                Some(u64::from(*major) << 20 | u64::from(*minor & 0xf_ffff))
            }
            _ => None,
        }
    }
}

/// A file to create (`vattr_t`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewFile {
    /// The type.
    pub kind: Kind,
    /// Permissions: the low twelve bits of a mode.
    pub permissions: u32,
    /// Permissions to remove, unless the directory has a default ACL.
    pub umask: u32,
    /// Owner.
    pub uid: u32,
    /// Group, unless the directory passes its own group on (set-group-id).
    pub gid: u32,
}

impl NewFile {
    /// A file owned by root.
    pub fn new(kind: Kind, permissions: u32) -> Self {
        NewFile { kind, permissions, umask: 0, uid: 0, gid: 0 }
    }
}

/// The object that a new file gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// Its number, which must be free.
    pub object: ObjNum,
    /// Its generation.
    pub generation: u64,
}

/// All properties of a new object.
pub(super) struct Birth<'a> {
    pub(super) new: &'a NewFile,
    /// The directory of the new file. For a hidden directory, the file that it belongs to.
    pub(super) parent: &'a Node,
    /// The object is a hidden directory of extended attributes, or one of its entries.
    pub(super) xattr: bool,
    /// The file has no name (`O_TMPFILE`).
    pub(super) unnamed: bool,
    /// The values in a replayed record, which has owner, group and the whole mode.
    pub(super) given: Option<&'a Given>,
}

impl<'a> Birth<'a> {
    /// A file in a directory.
    pub(super) fn new(new: &'a NewFile, parent: &'a Node) -> Birth<'a> {
        Birth { new, parent, xattr: false, unnamed: false, given: None }
    }

    fn gives_group(&self) -> bool {
        self.parent.attr().mode & S_ISGID != 0 && !self.xattr && self.given.is_none()
    }

    fn gid(&self) -> u64 {
        if self.gives_group() { self.parent.attr().gid.0 } else { u64::from(self.new.gid) }
    }

    /// The project that the directory passes on.
    fn project(&self) -> Option<u64> {
        let counted = matches!(self.new.kind, Kind::Regular | Kind::Directory);
        (counted && self.parent.attr().pflags.has(Pflags::PROJINHERIT)).then_some(self.parent.attr().projid)
    }

    /// The final mode and ACL for the requested `mode`, including what the directory passes on
    /// (`zfs_acl_ids_create`).
    fn acl(&self, w: &Writer, mode: u32) -> Result<(u32, NewAcl)> {
        let from = self.parent.attr().pflags;
        let kind = self.new.kind.file_type();
        if from.has(HAS_INHERITABLE) && !from.has(Pflags::XATTR) {
            let heir = Heir { kind, mode, uid: self.new.uid.into(), gid: self.gid() };
            let (how, acl_mode) = (w.policy().acl_inherit, w.policy().acl_mode);
            return Ok(nfs4::inherit(&self.parent.acl()?.aces, &heir, how, acl_mode));
        }
        let directory = kind == FileType::Directory;
        let (count, aces) = trivial::aces(mode, directory);
        let mut flags = Pflags::ACL_TRIVIAL;
        flags |= if directory { AUTO_INHERIT } else { 0 };
        flags |= if trivial::all_execute(mode) { NO_EXECS_DENIED } else { 0 };
        Ok((mode, NewAcl { count, aces, flags }))
    }

    /// The users, groups and projects whose quotas apply.
    pub(super) fn payers(&self) -> Payers {
        Payers::new(Some(self.new.uid.into()), Some(self.gid()), self.project())
    }
}

impl FileSystem {
    /// Creates a file in a directory (`zfs_create`).
    ///
    /// # Errors
    /// * [`Error::Exists`]: the directory has an entry of this name.
    /// * [`Error::BadName`]: no entry can have this name.
    /// * [`Error::NameTooLong`]: the name is longer than the limit, or the target of a symbolic
    ///   link is empty or too long.
    /// * [`Error::NotUtf8`]: the file system accepts only UTF-8, and the name is not.
    /// * [`Error::NotDirectory`]: `dir` is no directory.
    /// * [`Error::NoEntry`]: the directory was removed.
    /// * [`Error::NotPermitted`]: the directory is immutable.
    /// * [`Error::BadAcl`]: the default ACL of the directory is malformed.
    /// * The errors of [changing](Error#changing).
    pub fn create(&self, dir: ObjNum, name: &[u8], new: &NewFile) -> Result<Attr> {
        let made = self.create_now(dir, name, new, None)?;
        self.settle(made.object)?;
        Ok(made)
    }

    /// Creates a file with an object and a generation that the caller chooses, with exactly the
    /// owner, group and mode of `new`, and with these times or the current one.
    ///
    /// The object numbers of an AFS volume follow from its vnodes.
    ///
    /// # Errors
    /// * All errors of [`FileSystem::create`].
    /// * [`Error::Dmu`] with [`dmu::Error::ObjectExists`]: the object exists.
    pub fn create_at(
        &self,
        dir: ObjNum,
        name: &[u8],
        new: &NewFile,
        place: Place,
        time: Option<Time>,
    ) -> Result<Attr> {
        let now = self.writer()?.now();
        let time = time.unwrap_or(now);
        let given = Given { object: place.object, slots: 1, generation: place.generation, time };
        let made = self.create_now(dir, name, new, Some(&given))?;
        self.settle(made.object)?;
        Ok(made)
    }

    fn create_now(&self, dir: ObjNum, name: &[u8], new: &NewFile, given: Option<&Given>) -> Result<Attr> {
        let w = self.writer()?;
        self.check_name(w, name)?;
        if let Kind::Symlink(target) = &new.kind
            && (target.is_empty() || target.len() >= TARGET_MAX)
        {
            return Err(Error::NameTooLong { len: target.len() });
        }
        let held = w.locks.hold(dir);
        let _names = held.names();
        let parent = self.dir_to_change(dir, true)?;
        if self.find(&parent, name)?.is_some() {
            return Err(Error::Exists { dir });
        }
        let (permissions, acls) = self.inherited(w, &parent, new)?;
        let new = &NewFile { permissions, ..new.clone() };
        let birth = Birth { given, ..Birth::new(new, &parent) };
        self.check_one_more(w, birth.payers())?;
        let tx = w.logged_tx(Need::growing(MAKE_BYTES))?;
        let born = self.make(w, &tx, &birth)?;
        let kind = new.kind.file_type();
        let named = || {
            if let Err(e) = self.enter_name(w, &parent, &tx, name, (born.object(), kind)) {
                // An object without a name must not remain.
                self.objset().free_object(&tx, born.object())?;
                return Err(e);
            }
            let node = self.node(born.object())?;
            w.log_create(&tx, dir, name, &node, &new.kind);
            Ok(*node.attr())
        };
        let attr = w.or_unlogged(&tx, named())?;
        drop(tx);
        if acls.is_empty() {
            return Ok(attr);
        }
        // No other thread has seen the file yet, because the directory is locked.
        self.endow(w, born.object(), acls)?;
        self.attr(born.object())
    }

    /// Creates the object of a file that has no name yet (`zfs_mknode`).
    pub(super) fn make(&self, w: &Writer, tx: &Tx, b: &Birth<'_>) -> Result<Dnode> {
        let kind = b.new.kind.file_type();
        let directory = kind == FileType::Directory;
        let dmu_kind = if directory { DmuType::DIRECTORY_CONTENTS } else { DmuType::PLAIN_FILE_CONTENTS };
        let slots = b.given.map_or(if self.uses_sa() { w.policy().slots } else { 1 }, |g| g.slots);
        let spec = NewObject { slots, ..NewObject::new(dmu_kind) };
        let spec = match self.uses_sa() {
            true => spec.with_bonus(DmuType::SA, Vec::new()),
            false => spec.with_bonus(DmuType::ZNODE, vec![0; ZNODE_SIZE]),
        };
        let os = self.objset();
        let (norm, plain) = (self.normalization_on_disk(), ZapFlags::default());
        let dn = match b.given {
            None if directory => Zap::create(os, tx, &spec, norm, plain)?.dnode().clone(),
            None => os.create_object(tx, &spec)?,
            Some(g) if directory => Zap::create_claim(os, tx, g.object, &spec, norm, plain)?.dnode().clone(),
            Some(g) => os.claim_object(tx, g.object, &spec)?,
        };
        if let Err(e) = self.attributes(w, tx, b, &dn) {
            os.free_object(tx, dn.object())?;
            return Err(e);
        }
        if slots > 1 {
            w.txs.begin_feature("large_dnode");
        }
        Ok(dn.reload()?)
    }

    fn attributes(&self, w: &Writer, tx: &Tx, b: &Birth<'_>, dn: &Dnode) -> Result<()> {
        let new = b.new;
        let kind = new.kind.file_type();
        let directory = kind == FileType::Directory;
        let mut permissions = new.permissions & 0o7777;
        if b.gives_group() && directory {
            permissions |= S_ISGID;
        }
        let mode = (kind.bits() as u32) << 12 | permissions;

        let (mode, NewAcl { count, aces, flags: acl }) = b.acl(w, mode)?;

        let mut flags = Pflags::ARCHIVE | AV_MODIFIED | acl;
        flags |= if b.xattr || b.parent.attr().pflags.has(Pflags::XATTR) { Pflags::XATTR } else { 0 };
        let mut project = 0;
        let counts = self.uses_sa() && self.objset().phys().flags.0 & ObjsetFlags::PROJECTQUOTA_COMPLETE != 0;
        if matches!(kind, FileType::Regular | FileType::Directory) {
            flags |= if counts { Pflags::PROJID } else { 0 };
            if let Some(inherited) = b.project() {
                flags |= Pflags::PROJINHERIT;
                project = inherited;
            }
        }

        let word = |n: u64| n.to_le_bytes();
        let now = time_bytes(b.given.map_or_else(|| w.now(), |g| g.time));
        let target: &[u8] = if let Kind::Symlink(t) = &new.kind { t } else { b"" };
        let size = if directory { 2 } else { target.len() as u64 };
        let words = [
            (Sa::Mode, word(mode.into())),
            (Sa::Size, word(size)),
            (Sa::Gen, word(b.given.map_or(tx.txg().0, |g| g.generation))),
            (Sa::Uid, word(new.uid.into())),
            (Sa::Gid, word(b.gid())),
            (Sa::Parent, word(b.parent.object().0)),
            (Sa::Flags, word(flags)),
        ];
        let mut all: Vec<(Sa, &[u8])> = words.iter().map(|(a, v)| (*a, &v[..])).collect();
        all.extend([Sa::Atime, Sa::Mtime, Sa::Ctime, Sa::Crtime].map(|a| (a, &now[..])));
        let (links, project) = (word(if directory { 2 } else { u64::from(!b.unnamed) }), word(project));
        let (rdev, count) = (new.kind.rdev().map(word), word(count));
        all.push((Sa::Links, &links));
        if flags & Pflags::PROJID != 0 {
            all.push((Sa::Projid, &project));
        }
        if let Some(rdev) = &rdev {
            all.push((Sa::Rdev, rdev));
        }
        all.push((Sa::DaclCount, &count));
        all.push((Sa::DaclAces, &aces));
        if kind == FileType::Symlink {
            all.push((Sa::Symlink, target));
        }
        let status = match self.is_afs() && !b.xattr {
            true => Some(AfsStatus::of_new(b.parent, directory, self.afs_author(), w.now())?.encode()),
            false => None,
        };
        if let Some(status) = &status {
            all.push((Sa::Afs, status));
        }
        match self.uses_sa() {
            true => Ok(self.sa().replace(dn, tx, &all)?),
            false => self.begin_znode(tx, dn, &all),
        }
    }
}
