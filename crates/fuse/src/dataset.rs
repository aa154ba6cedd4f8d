//! A dataset's file system as a [`FileTree`].

mod change;
mod reborn;
mod sizes;

use crate::tree::{
    Allocate, Attr, CloneRange, Entry, FileTree, Flags, NewNode, Node, Rename, Seek, SetAttr, SetXattr,
    Statfs, Time,
};
use observe::lock::{Mutex, RwLock};
use observe::ops::{DatasetUse, Ended, Frontend};
use ondisk::ObjNum;
use reborn::Eras;
use rustix::io::Errno;
use std::sync::atomic::{AtomicBool, Ordering};
use zpl::{DirCookie, Error, FileSystem, RollbackDiff, XATTR_LIST_MAX};

const POSIX_ACLS: [&[u8]; 2] = [b"system.posix_acl_access", b"system.posix_acl_default"];

/// How properties say that a file system is shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shown {
    /// The dataset's name, for messages.
    pub name: String,
    /// Whether POSIX ACLs take effect (`acltype=posix`).
    pub posix_acl: bool,
    /// Whether extended attributes of users are shown (`xattr`). ACLs and attributes of the system
    /// are shown in any case.
    pub xattrs: bool,
    /// Sizes to show. A file system that can change reads them anew each time
    /// ([`Dataset::with_sizes`]).
    pub sizes: Statfs,
}

/// Something that the kernel may have cached and that is no longer true.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stale {
    /// All of a file: attributes, contents, and the listing of a directory.
    File(Node),
    /// The meaning of a name in a directory.
    Name(Node, Vec<u8>),
}

/// Returns the sizes for `statfs`.
type Sizes = Box<dyn Fn() -> Result<Statfs, Errno> + Send + Sync>;

/// The head dataset's or a snapshot's file system as a [`FileTree`], by object number.
pub struct Dataset {
    /// `None` during a rollback, and after one if the file system could not be reopened.
    fs: RwLock<Option<FileSystem>>,
    root: Node,
    /// Whether different names may mean one entry.
    folds: bool,
    eras: Eras,
    name: RwLock<String>,
    posix_acl: bool,
    xattrs: AtomicBool,
    statfs: Statfs,
    sizes: Option<Sizes>,
    ops: Option<DatasetUse>,
    /// Another front end has the file system, and changes it.
    lent: bool,
    /// The object of the last log message, so that a large damaged file doesn't fill the log.
    told: Mutex<Option<u64>>,
}

impl Dataset {
    /// Makes a tree of `fs`, shown as `shown` says.
    pub fn new(fs: FileSystem, shown: Shown) -> Self {
        let Shown { name, posix_acl, xattrs, sizes } = shown;
        Self {
            root: Node(fs.root().0),
            folds: fs.folds_names(),
            fs: RwLock::new(Some(fs)),
            eras: Eras::default(),
            name: RwLock::new(name),
            posix_acl,
            xattrs: AtomicBool::new(xattrs),
            statfs: sizes,
            sizes: None,
            ops: None,
            lent: false,
            told: Mutex::new(None),
        }
    }

    /// Makes a read-only tree of `fs`, which another front end has open and changes meanwhile.
    ///
    /// The caller drops it before that front end needs `fs` for itself alone.
    pub fn lent(fs: FileSystem, shown: Shown) -> Self {
        let mut tree = Self::new(fs, shown);
        tree.lent = true;
        tree
    }

    /// Has `statfs` call `sizes` each time.
    ///
    /// This is for file systems that can change, or may later ([`Dataset::make_writable`]).
    #[must_use]
    pub fn with_sizes(mut self, sizes: Sizes) -> Self {
        self.sizes = Some(sizes);
        self
    }

    /// Counts the operations there.
    #[must_use]
    pub fn with_ops(mut self, ops: DatasetUse) -> Self {
        self.ops = Some(ops);
        self
    }

    /// The file system. `None` during a rollback, and after one if it could not be reopened.
    pub fn fs(&self) -> Option<FileSystem> {
        self.fs.read().clone()
    }

    /// The file system, for a request of the kernel.
    ///
    /// # Errors
    /// `EIO`: there is none, during or after a rollback.
    fn here(&self) -> Result<FileSystem, Errno> {
        self.fs().ok_or(Errno::IO)
    }

    fn is_writable(&self) -> bool {
        !self.lent && self.fs.read().as_ref().is_some_and(FileSystem::is_writable)
    }

    /// Allows changes from now on, through `fs`.
    ///
    /// The file system was read-only until now, and what the kernel has cached is still true. Does
    /// nothing if changes are allowed already.
    pub fn make_writable(&self, fs: FileSystem) {
        let mut now = self.fs.write();
        if !now.as_ref().is_some_and(FileSystem::is_writable) {
            *now = Some(fs);
        }
    }

    /// Takes the file system out, to be reopened and put back with [`Dataset::resume`].
    ///
    /// No request may be in progress meanwhile ([`crate::Mount::suspended`]).
    ///
    /// OpenZFS: `zfs_suspend_fs`.
    pub fn suspend(&self) -> Option<FileSystem> {
        self.fs.write().take()
    }

    /// Puts a file system in after [`Dataset::suspend`].
    ///
    /// OpenZFS: `zfs_resume_fs`.
    pub fn resume(&self, fs: FileSystem) {
        *self.fs.write() = Some(fs);
    }

    /// The node number by which the kernel knows an object.
    pub fn node_of(&self, object: ObjNum) -> Node {
        self.eras.node(object)
    }

    /// Whether it may be rolled back while the kernel has files of it.
    ///
    /// It may a few hundred times per mount.
    pub fn may_roll_back(&self) -> bool {
        self.eras.may_begin()
    }

    /// Whether it may be closed and reopened while it is mounted.
    ///
    /// It may if nothing else uses its files, and no rollback has given its node numbers a history.
    pub fn may_rest(&self) -> bool {
        let shared = self.fs.read().as_ref().is_none_or(FileSystem::is_shared);
        !shared && !self.eras.any()
    }

    /// Begins a new era after a rollback, and returns what the kernel has to drop.
    ///
    /// # Panics
    /// If [`Dataset::may_roll_back`] is false.
    pub fn rolled_back(&self, by: &RollbackDiff) -> Vec<Stale> {
        // The node numbers that the kernel has, from before the new era.
        let files = by.files.iter().map(|file| Stale::File(self.eras.node(*file)));
        let names = by.names.iter().map(|(dir, name)| Stale::Name(self.eras.node(*dir), name.clone()));
        let stale = files.chain(names).collect();
        self.eras.begin(&by.gone);
        stale
    }

    /// Sets the name of the dataset, for messages and counters.
    pub fn set_name(&self, name: &str) {
        name.clone_into(&mut self.name.write());
        if let Some(ops) = &self.ops {
            ops.rename_to(|| self.name());
        }
    }

    /// Sets whether extended attributes of users are shown (`xattr`).
    pub fn show_xattrs(&self, shown: bool) {
        self.xattrs.store(shown, Ordering::Relaxed);
    }

    fn name(&self) -> String {
        self.name.read().clone()
    }

    fn shows_xattrs(&self) -> bool {
        self.xattrs.load(Ordering::Relaxed)
    }

    /// Whether the file system shows an extended attribute of this name.
    fn shows(&self, name: &[u8]) -> bool {
        if POSIX_ACLS.contains(&name) {
            return self.posix_acl;
        }
        self.shows_xattrs() || !name.starts_with(b"user.")
    }

    fn node(&self, node: Node) -> Result<zpl::Node, Errno> {
        match self.here()?.node(self.object(node)?) {
            // The kernel's number was an object once. So its absence is not an absent name but a
            // stale node.
            Err(Error::NoFile { .. }) => Err(Errno::STALE),
            result => self.told(node, result),
        }
    }

    /// The object that a node number means.
    ///
    /// # Errors
    /// `ESTALE`: after a rollback the number means another file.
    fn object(&self, node: Node) -> Result<ObjNum, Errno> {
        if !self.eras.any() {
            return Ok(ObjNum(node.0));
        }
        let object = reborn::parts(node).0;
        // The number may mean another file now.
        if self.eras.node(object) == node { Ok(object) } else { Err(Errno::STALE) }
    }

    /// Turns an error into an errno, and logs it if the errno doesn't explain it.
    fn told<T>(&self, node: Node, result: Result<T, Error>) -> Result<T, Errno> {
        result.map_err(|error| {
            let errno = errno(&error);
            if errno == Errno::IO && self.told.lock().replace(node.0) != Some(node.0) {
                tracing::warn!(dataset = self.name(), object = node.0, %error, "unreadable");
            }
            errno
        })
    }

    fn of(&self, attr: &zpl::Attr) -> Attr {
        let time = |time: zpl::Time| Time { sec: time.secs, nsec: time.nanos };
        Attr {
            node: self.eras.node(attr.object),
            ino: attr.object.0,
            generation: attr.generation,
            parent: self.eras.node(attr.parent),
            mode: attr.mode,
            // More links than Linux can count show as its maximum.
            nlink: u32::try_from(attr.nlink).unwrap_or(u32::MAX),
            uid: attr.uid.rid(),
            gid: attr.gid.rid(),
            rdev: attr.rdev.unwrap_or_default(),
            size: attr.size,
            blocks: attr.blocks,
            blksize: u32::try_from(attr.block_size).unwrap_or(512),
            atime: time(attr.atime),
            mtime: time(attr.mtime),
            ctime: time(attr.ctime),
            btime: time(attr.crtime),
            settled: attr.settled && !self.lent,
        }
    }
}

impl Drop for Dataset {
    /// Frees the removed files that the kernel still had. At an unmount it sends no FORGET for
    /// them.
    fn drop(&mut self) {
        if !self.lent
            && let Some(fs) = self.fs().filter(FileSystem::has_orphans)
            && let Err(error) = fs.drain()
        {
            tracing::warn!(dataset = self.name(), %error, "removed files are left for the next mount");
        }
    }
}

/// The errno for each error of a file system.
fn errno(error: &Error) -> Errno {
    match error {
        Error::Dmu(_) | Error::Corrupt { .. } | Error::Stopped { .. } => Errno::IO,
        Error::NotFileSystem
        | Error::NotSymlink { .. }
        | Error::NotRegular { .. }
        | Error::BadName
        | Error::BadRange { .. }
        | Error::IntoItself { .. } => Errno::INVAL,
        Error::UnsupportedVersion { .. } | Error::BadFlags { .. } | Error::NotCounted => Errno::OPNOTSUPP,
        Error::NoEntry { .. } | Error::NoFile { .. } => Errno::NOENT,
        Error::Unlinked { .. } => Errno::STALE,
        Error::NoXattr { .. } => Errno::NODATA,
        Error::XattrTooLarge { .. } | Error::XattrsTooLarge { .. } => Errno::TOOBIG,
        Error::NotDirectory { .. } => Errno::NOTDIR,
        Error::IsDirectory { .. } => Errno::ISDIR,
        Error::NameTooLong { .. } => Errno::NAMETOOLONG,
        Error::NotUtf8 => Errno::ILSEQ,
        Error::TooManyLinks => Errno::LOOP,
        Error::LeavesFileSystem { .. } | Error::OtherProject { .. } | Error::NotCloneable { .. } => {
            Errno::XDEV
        }
        Error::PastEnd { .. } => Errno::NXIO,
        Error::XattrExists { .. } => Errno::EXIST,
        Error::BadAcl { .. } => Errno::INVAL,
        Error::ReadOnly => Errno::ROFS,
        Error::Exists { .. } => Errno::EXIST,
        Error::NotEmpty { .. } => Errno::NOTEMPTY,
        Error::NotPermitted { .. } => Errno::PERM,
        Error::TooLarge { .. } => Errno::FBIG,
        Error::NoSpace => Errno::NOSPC,
        Error::Quota => Errno::DQUOT,
    }
}

impl FileTree for Dataset {
    fn root(&self) -> Node {
        self.root
    }

    fn lookup(&self, dir: Node, name: &[u8]) -> Result<Attr, Errno> {
        if name.len() > self.here()?.name_max() {
            return Err(Errno::NAMETOOLONG);
        }
        let found = self.told(dir, self.node(dir)?.lookup_entry(name, false))?;
        // An entry without its object is damage, not an absent name.
        match self.here()?.node(found.object) {
            Err(error @ Error::NoFile { .. }) => {
                let object = found.object.0;
                tracing::warn!(dataset = self.name(), directory = dir.0, object, %error, "unreadable");
                Err(Errno::IO)
            }
            result => Ok(self.of(self.told(Node(found.object.0), result)?.attr())),
        }
    }

    fn attr(&self, node: Node) -> Result<Attr, Errno> {
        Ok(self.of(self.node(node)?.attr()))
    }

    fn readlink(&self, node: Node) -> Result<Vec<u8>, Errno> {
        self.told(node, self.node(node)?.readlink())
    }

    fn read(&self, node: Node, offset: u64, buf: &mut [u8]) -> Result<usize, Errno> {
        match self.here()?.read(self.object(node)?, offset, buf) {
            Err(Error::NoFile { .. }) => Err(Errno::STALE),
            result => self.told(node, result),
        }
    }

    fn readdir(&self, dir: Node, cookie: u64, limit: usize) -> Result<Vec<Entry>, Errno> {
        // Cookies below 2 are `.` and `..`, which the protocol layer lists.
        let entries = self.told(dir, self.node(dir)?.read_dir(DirCookie(cookie.max(2))))?;
        let mut list = Vec::with_capacity(limit.min(1024));
        for entry in entries.take(limit) {
            let entry = match self.told(dir, entry) {
                Ok(entry) => entry,
                // The entries read so far come first. The next call returns the error.
                Err(_) if !list.is_empty() => break,
                Err(errno) => return Err(errno),
            };
            list.push(Entry {
                name: entry.name,
                node: Some(self.eras.node(entry.object)),
                ino: entry.object.0,
                kind: u8::try_from(entry.kind.bits()).expect("four bits"),
                cookie: entry.next.0,
            });
        }
        Ok(list)
    }

    fn xattr(&self, node: Node, name: &[u8]) -> Result<Vec<u8>, Errno> {
        if !self.shows(name) {
            return Err(Errno::OPNOTSUPP);
        }
        self.told(node, self.node(node)?.xattr(name))
    }

    fn xattr_names(&self, node: Node) -> Result<Vec<Vec<u8>>, Errno> {
        let mut names = self.told(node, self.node(node)?.xattr_names(XATTR_LIST_MAX))?;
        names.retain(|name| self.shows(name));
        Ok(names)
    }

    fn statfs(&self, node: Node) -> Result<Statfs, Errno> {
        let whole = self.sizes.as_ref().map_or(Ok(self.statfs), |sizes| sizes())?;
        self.seen_from(node, whole)
    }

    fn seek(&self, node: Node, offset: u64, what: Seek) -> Result<u64, Errno> {
        let file = self.node(node)?;
        let found = match what {
            Seek::Data => file.seek_data(offset),
            Seek::Hole => file.seek_hole(offset),
        };
        self.told(node, found)
    }

    fn flags(&self, node: Node) -> Result<Flags, Errno> {
        let file = self.node(node)?;
        let attr = file.attr();
        let project = u32::try_from(attr.projid).map_err(|_| Errno::OVERFLOW)?;
        Ok(Flags { bits: attr.fs_flags(), project })
    }

    fn writable(&self) -> bool {
        Dataset::is_writable(self)
    }

    fn keeps_pages(&self) -> bool {
        self.fs().is_none_or(|fs| fs.keeps_data())
    }

    fn names_stay(&self, _dir: Node) -> bool {
        // A file system with variable sizes can change, or may later.
        let fixed = self.sizes.is_none() && !Dataset::is_writable(self);
        fixed || !self.folds
    }

    fn create(&self, dir: Node, name: &[u8], new: &NewNode<'_>) -> Result<Attr, Errno> {
        self.make(dir, name, new)
    }

    fn create_unnamed(&self, dir: Node, new: &NewNode<'_>) -> Result<Attr, Errno> {
        self.make_unnamed(dir, new)
    }

    fn clone_range(&self, range: &CloneRange) -> Result<u64, Errno> {
        self.cloned(range)
    }

    fn clone_out_of(&self, snapshot: &dyn FileTree, range: &CloneRange) -> Result<u64, Errno> {
        self.cloned_out_of(&snapshot.file_system().ok_or(Errno::XDEV)?, range)
    }

    fn file_system(&self) -> Option<FileSystem> {
        self.fs()
    }

    fn accessed(&self, node: Node) {
        if self.lent {
            return;
        }
        let (Ok(fs), Ok(object)) = (self.here(), self.object(node)) else { return };
        match fs.accessed(object) {
            // The read itself succeeded. Without space for the new access time, the old one stays.
            Ok(()) | Err(Error::NoSpace | Error::Quota | Error::NoFile { .. }) => {}
            Err(error) => tracing::debug!(dataset = self.name(), object = node.0, %error, "atime stays"),
        }
    }

    fn link(&self, node: Node, dir: Node, name: &[u8]) -> Result<Attr, Errno> {
        let (file, parent) = (self.object(node)?, self.object(dir)?);
        let attr = self.told(node, self.here()?.link(file, parent, name))?;
        Ok(self.of(&attr))
    }

    fn unlink(&self, dir: Node, name: &[u8]) -> Result<(), Errno> {
        self.told(dir, self.here()?.unlink(self.object(dir)?, name)).map(|_| ())
    }

    fn rmdir(&self, dir: Node, name: &[u8]) -> Result<(), Errno> {
        self.told(dir, self.here()?.rmdir(self.object(dir)?, name)).map(|_| ())
    }

    fn rename(&self, from: (Node, &[u8]), to: (Node, &[u8]), how: Rename) -> Result<(), Errno> {
        self.moved(from, to, how)
    }

    fn write(&self, node: Node, offset: u64, data: &[u8], kill: bool) -> Result<(), Errno> {
        self.told(node, self.here()?.write(self.object(node)?, offset, data, kill))
    }

    fn set_attr(&self, node: Node, set: &SetAttr) -> Result<Attr, Errno> {
        self.changed(node, set)
    }

    fn allocate(&self, node: Node, offset: u64, len: u64, what: Allocate) -> Result<(), Errno> {
        self.allocated(node, offset, len, what)
    }

    fn set_xattr(&self, node: Node, name: &[u8], value: &[u8], how: SetXattr) -> Result<(), Errno> {
        self.may_set_xattr(name)?;
        self.told(node, self.here()?.set_xattr(self.object(node)?, name, value, how.into()))
    }

    fn remove_xattr(&self, node: Node, name: &[u8]) -> Result<(), Errno> {
        self.may_set_xattr(name)?;
        self.told(node, self.here()?.remove_xattr(self.object(node)?, name))
    }

    fn set_flags(&self, node: Node, flags: Flags) -> Result<(), Errno> {
        self.told(node, self.here()?.set_flags(self.object(node)?, flags.bits, flags.project))
    }

    fn fsync(&self, node: Node) -> Result<(), Errno> {
        self.told(node, self.here()?.fsync(self.object(node)?))
    }

    fn sync(&self) -> Result<(), Errno> {
        self.told(self.root(), self.here()?.sync())
    }

    fn dataset_of(&self, node: Node) -> Option<(String, Option<u64>)> {
        Some((self.name(), self.object(node).ok().map(|object| object.0)))
    }

    fn path_of(&self, node: Node) -> Option<Vec<u8>> {
        self.here().ok()?.object_path(self.object(node).ok()?).ok()
    }

    fn count(&self, _node: Node, ended: &Ended) {
        if let Some(ops) = &self.ops {
            ops.count(Frontend::Fuse, ended, || self.name());
        }
    }

    fn forget(&self, node: Node, _times: u64) {
        let Some(fs) = self.fs().filter(|fs| fs.has_orphans() && !self.lent) else { return };
        // A file that a rollback removed has nothing left to free.
        let Ok(object) = self.object(node) else { return };
        if let Err(error) = fs.reap(object) {
            // The file stays in the list of unlinked files, and the next mount tries again.
            tracing::warn!(dataset = self.name(), object = node.0, %error, "not freed");
        }
    }
}
