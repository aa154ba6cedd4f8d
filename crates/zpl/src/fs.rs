//! The file system: its master node, and the state that all files share (`zfsvfs_t`).

use crate::afs::{self, AfsCaller};
use crate::fuid::Domains;
use crate::write::{Policies, Quotas, Writer, Writing};
use crate::{Error, FileType, Node, Result, SpaceKind};
use dmu::sa::Sa;
use dmu::zap::{Normalization, Zap};
use dmu::{Dnode, Objset};
use observe::lock::Mutex;
use ondisk::dirent::Dirent;
use ondisk::objset::ObjsetKind;
use ondisk::{Corrupt, DmuType, ObjNum};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use zil::TxSource;

/// The master node's object (`MASTER_NODE_OBJ`).
const MASTER_NODE: ObjNum = ObjNum(1);
/// The newest version of file systems (`ZPL_VERSION`).
pub(crate) const ZPL_VERSION: u64 = 5;
/// The first version with system attributes (`ZPL_VERSION_SA`).
pub(crate) const ZPL_VERSION_SA: u64 = 5;
/// The first version whose directory entries hold the type of the file (`ZPL_VERSION_DIRENT_TYPE`).
const ZPL_VERSION_DIRENT_TYPE: u64 = 2;
/// Names are compared without case (`U8_TEXTPREP_TOUPPER`).
pub(crate) const TOUPPER: u64 = 0x02;
/// Number of directories that are kept open.
const OPEN_DIRS: usize = 32;
/// Directories with larger blocks are not kept open, because each would pin its first block.
/// OpenZFS makes such blocks only if a tunable says so.
const OPEN_DIR_BLOCK: u64 = 128 << 10;

/// How a file system treats the case of names: the property `casesensitivity` (`zfs_case_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CaseSensitivity {
    /// Names that differ in case are different.
    Sensitive,
    /// Names that differ only in case are the same.
    Insensitive,
    /// Names that differ in case are different, unless the caller wants to ignore case.
    Mixed,
}

/// An open file system; clones share it (`zfsvfs_t`).
///
/// A handle may act for a user of an AFS cell ([`FileSystem::by_afs_user`]).
#[derive(Debug, Clone)]
pub struct FileSystem(pub(crate) Arc<Inner>, pub(crate) Option<AfsCaller>);

/// A reference to an open file system that doesn't keep it open.
#[derive(Debug, Clone)]
pub struct WeakFileSystem(Weak<Inner>);

impl WeakFileSystem {
    /// The file system, if it is still open.
    pub fn upgrade(&self) -> Option<FileSystem> {
        self.0.upgrade().map(|inner| FileSystem(inner, None))
    }
}

#[derive(Debug)]
pub(crate) struct Inner {
    os: Objset,
    /// It is a volume of an AFS cell.
    pub(crate) afs: bool,
    master: Zap,
    version: AtomicU64,
    root: ObjNum,
    norm: Normalization,
    norm_on_disk: Normalization,
    utf8only: bool,
    case: CaseSensitivity,
    unlinked: Option<ObjNum>,
    fuid_table: Option<ObjNum>,
    shares: Option<ObjNum>,
    sa: Sa,
    /// System attributes of a file system that was upgraded to a version with them.
    newer_sa: OnceLock<Sa>,
    domains: OnceLock<Domains>,
    dirs: Mutex<OpenDirs>,
    writer: Option<Writer>,
}

/// The directories that were used last.
#[derive(Debug, Default)]
struct OpenDirs {
    all: VecDeque<(ObjNum, Zap)>,
    /// Number of freed directories. A directory opened before the last free may belong to a number
    /// that is reused now.
    freed: u64,
}

impl FileSystem {
    /// Opens the file system that `os` holds, for reading (`zfsvfs_init`).
    ///
    /// # Errors
    /// * [`Error::NotFileSystem`]: the object set is of another kind, or has no master node or no
    ///   root directory.
    /// * [`Error::UnsupportedVersion`]: the version is newer than this crate supports.
    /// * [`Error::Corrupt`]: a setting in the master node has no meaning.
    /// * [`Error::Dmu`]: an object can't be read.
    pub fn open(os: &Objset) -> Result<FileSystem> {
        Self::open_with(os, None)
    }

    /// Opens the file system of a live object set, for reading and changing.
    ///
    /// # Errors
    /// * All errors of [`FileSystem::open`].
    /// * [`Error::Corrupt`]: also if there is no list of unlinked files.
    pub fn open_live(os: &Objset, txs: Arc<dyn TxSource>, policies: Policies) -> Result<FileSystem> {
        Self::open_with(os, Some(Writing { txs, policies, replaying: false }))
    }

    pub(crate) fn open_with(os: &Objset, write: Option<Writing>) -> Result<FileSystem> {
        if os.kind() != ObjsetKind::Zfs {
            return Err(Error::NotFileSystem);
        }
        let dn = os.dnode(MASTER_NODE).map_err(|e| match e {
            dmu::Error::NoSuchObject { .. } => Error::NotFileSystem,
            e => Error::Dmu(e),
        })?;
        if dn.kind() != DmuType::MASTER_NODE {
            return Err(Error::NotFileSystem);
        }
        let master = Zap::open(&dn)?;
        let number = |name: &str| master.lookup_u64(name.as_bytes());
        let object = |name: &str| Ok::<_, dmu::Error>(number(name)?.filter(|o| *o != 0).map(ObjNum));
        let bad = |field, value| Error::Corrupt {
            object: MASTER_NODE,
            source: Corrupt::Range { what: "master node", field, value },
        };
        let version = number("VERSION")?.unwrap_or(ZPL_VERSION);
        if !(1..=ZPL_VERSION).contains(&version) {
            return Err(Error::UnsupportedVersion { version });
        }
        let root = object("ROOT")?.ok_or(Error::NotFileSystem)?;
        let norm = number("normalization")?.unwrap_or(0);
        let norm = Normalization::from_disk(norm).map_err(|_| bad("normalization", norm))?;
        let case = match number("casesensitivity")?.unwrap_or(0) {
            0 => CaseSensitivity::Sensitive,
            1 => CaseSensitivity::Insensitive,
            2 => CaseSensitivity::Mixed,
            v => return Err(bad("casesensitivity", v)),
        };
        let unlinked = object("DELETE_QUEUE")?;
        let writer = match write {
            Some(write) => {
                let none = Corrupt::Shape { what: "master node", why: "it has no list of unlinked files" };
                let queue = unlinked.ok_or(Error::Corrupt { object: MASTER_NODE, source: none })?;
                let quotas = Quotas::load(os, &master)?;
                Some(Writer::new(os, write, Zap::open(&os.dnode(queue)?)?, quotas))
            }
            None => None,
        };
        let fold = if case == CaseSensitivity::Sensitive { 0 } else { TOUPPER };
        let norm_on_disk = Normalization::from_disk(norm.to_disk() | fold)
            .map_err(|source| Error::Corrupt { object: MASTER_NODE, source })?;
        let sa_master = if version >= ZPL_VERSION_SA { object("SA_ATTRS")? } else { None };
        let inner = Arc::new(Inner {
            os: os.clone(),
            afs: version >= ZPL_VERSION_SA && number(afs::MARK)? == Some(afs::LAYOUT.into()),
            version: AtomicU64::new(version),
            root,
            norm,
            norm_on_disk,
            utf8only: number("utf8only")?.is_some_and(|v| v != 0),
            case,
            unlinked,
            fuid_table: object("FUID")?,
            shares: object("SHARES")?,
            sa: Sa::load(os, sa_master)?,
            newer_sa: OnceLock::new(),
            master,
            domains: OnceLock::new(),
            dirs: Mutex::default(),
            writer,
        });
        Ok(FileSystem(inner, None))
    }

    pub(crate) fn writer_if_any(&self) -> Option<&Writer> {
        self.0.writer.as_ref()
    }

    /// The master node.
    pub(crate) fn master(&self) -> &Zap {
        &self.0.master
    }

    /// How new directories compare names: normalization, and whether case is folded.
    pub(crate) fn normalization_on_disk(&self) -> Normalization {
        self.0.norm_on_disk
    }

    /// A reference that doesn't keep the file system open.
    pub fn downgrade(&self) -> WeakFileSystem {
        WeakFileSystem(Arc::downgrade(&self.0))
    }

    /// True if there are other handles of this file system.
    pub fn is_shared(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }

    /// The object set (`z_os`).
    pub fn objset(&self) -> &Objset {
        &self.0.os
    }

    /// The version of the file system, 1 to 5 (`z_version`).
    pub fn version(&self) -> u64 {
        self.0.version.load(Ordering::Acquire)
    }

    /// Whether an object that an older state of this file system has as it is here is the same file
    /// there: both have the same root, settings of names and meaning of attributes.
    pub fn reads_files_like(&self, older: &FileSystem) -> bool {
        let settings = |fs: &FileSystem| {
            let inner = &fs.0;
            let names = (inner.norm_on_disk, inner.utf8only, inner.case);
            (inner.afs, fs.version(), inner.root, names, inner.fuid_table, inner.shares)
        };
        settings(self) == settings(older) && self.sa().registry().extends(&older.sa().registry())
    }

    /// Notes an upgrade to a version, which may have added system attributes.
    pub(crate) fn now_is(&self, version: u64, sa: Option<Sa>) {
        if let Some(sa) = sa {
            let _ = self.0.newer_sa.set(sa);
        }
        self.0.version.store(version, Ordering::Release);
    }

    /// True if new files have system attributes; files that an older version made have not
    /// (`z_use_sa`).
    pub(crate) fn uses_sa(&self) -> bool {
        self.version() >= ZPL_VERSION_SA
    }

    /// The value of a directory entry. In version 1 it doesn't hold the file's type.
    pub(crate) fn entry_value(&self, obj: ObjNum, kind: FileType) -> u64 {
        let kind = if self.version() < ZPL_VERSION_DIRENT_TYPE { FileType::Unknown } else { kind };
        Dirent { obj, kind }.to_disk()
    }

    /// The root directory (`z_root`).
    pub fn root(&self) -> ObjNum {
        self.0.root
    }

    /// How names are normalized, without folding case: the property `normalization` (`z_norm`).
    pub fn normalization(&self) -> Normalization {
        self.0.norm
    }

    /// True if names must be UTF-8: the property `utf8only` (`z_utf8`).
    pub fn utf8only(&self) -> bool {
        self.0.utf8only
    }

    /// How the case of names is treated: the property `casesensitivity` (`z_case`).
    pub fn case_sensitivity(&self) -> CaseSensitivity {
        self.0.case
    }

    /// The directory of SMB shares: the master node's entry `SHARES` (`ZFS_SHARES_DIR`).
    pub fn shares(&self) -> Option<ObjNum> {
        self.0.shares
    }

    /// The registry of system attributes (`z_attr_table`).
    pub fn sa(&self) -> &Sa {
        self.0.newer_sa.get().unwrap_or(&self.0.sa)
    }

    /// Files that were removed and wait for their last user, or for the next mount
    /// (`ZFS_UNLINKED_SET`).
    ///
    /// # Errors
    /// * [`Error::Dmu`]: the list can't be read.
    pub fn unlinked(&self) -> Result<Vec<ObjNum>> {
        let Some(queue) = self.0.unlinked else { return Ok(Vec::new()) };
        let zap = Zap::open(&self.0.os.dnode(queue)?)?;
        zap.entries().map(|e| Ok(ObjNum(e?.value.first().unwrap_or(0)))).collect()
    }

    /// True if `obj` was removed and only waits to be freed.
    pub(crate) fn is_unlinked(&self, obj: ObjNum) -> Result<bool> {
        let Some(queue) = self.0.unlinked else { return Ok(false) };
        let zap = Zap::open(&self.0.os.dnode(queue)?)?;
        Ok(zap.lookup(format!("{:x}", obj.0).as_bytes())?.is_some())
    }

    /// The domains that FUIDs name (`zfs_fuid_table_load`).
    ///
    /// # Errors
    /// * [`Error::Dmu`]: the table of domains can't be read.
    /// * [`Error::Corrupt`]: the table is not what the format says.
    pub fn domains(&self) -> Result<&Domains> {
        if let Some(d) = self.0.domains.get() {
            return Ok(d);
        }
        let loaded = match self.0.fuid_table {
            None => Domains::default(),
            Some(obj) => Domains::load(&self.0.os.dnode(obj)?)?,
        };
        Ok(self.0.domains.get_or_init(|| loaded))
    }

    /// The object with quotas of a kind (`userquota@` and others), if such a quota was ever set.
    pub(crate) fn quota_object(&self, kind: SpaceKind) -> Result<Option<ObjNum>> {
        let Some(name) = kind.quota_name() else { return Ok(None) };
        Ok(self.0.master.lookup_u64(name.as_bytes())?.filter(|o| *o != 0).map(ObjNum))
    }

    /// Opens the file with this object number (`zfs_zget`).
    ///
    /// # Errors
    /// The errors of [opening](Error#opening).
    pub fn node(&self, object: ObjNum) -> Result<Node> {
        let dn = self.0.os.dnode(object).map_err(|e| match e {
            dmu::Error::NoSuchObject { .. } => Error::NoFile { object },
            e => Error::Dmu(e),
        })?;
        Node::new(self.clone(), dn)
    }

    /// The ZAP of a directory, which is kept open for later calls.
    pub(crate) fn dir_zap(&self, dn: &Dnode) -> Result<Zap> {
        let object = dn.object();
        let (kept, freed) = {
            let OpenDirs { all, freed } = &mut *self.0.dirs.lock();
            let at = all.iter().position(|(o, _)| *o == object);
            (at.and_then(|i| all.remove(i)).inspect(|d| all.push_back(d.clone())), *freed)
        };
        if let Some((_, zap)) = kept {
            return Ok(zap);
        }
        let zap = Zap::open(dn)?;
        if dn.block_size() > OPEN_DIR_BLOCK {
            return Ok(zap);
        }
        let dirs = &mut *self.0.dirs.lock();
        // Another thread may have opened or freed the directory meanwhile.
        dirs.all.retain(|(o, _)| *o != object);
        if dirs.freed != freed {
            return Ok(zap);
        }
        if dirs.all.len() >= OPEN_DIRS {
            dirs.all.pop_front();
        }
        dirs.all.push_back((object, zap.clone()));
        Ok(zap)
    }

    /// Forgets a directory that is about to be freed, because its number may soon be reused.
    pub(crate) fn forget_dir(&self, object: ObjNum) {
        let dirs = &mut *self.0.dirs.lock();
        dirs.all.retain(|(o, _)| *o != object);
        dirs.freed += 1;
    }
}
