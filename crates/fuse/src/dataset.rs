//! A dataset's file system as a [`Tree`].

mod change;
mod sizes;

use crate::tree::{
    Allocate, Attr, CloneRange, Entry, Flags, NewNode, Node, Rename, Seek, SetAttr, SetXattr, Statfs, Time,
    Tree,
};
use ondisk::ObjNum;
use parking_lot::{Mutex, RwLock};
use rustix::io::Errno;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use zpl::{DirCookie, Error, FileSystem, XATTR_LIST_MAX};

const POSIX_ACLS: [&[u8]; 2] = [b"system.posix_acl_access", b"system.posix_acl_default"];

/// What properties say about how a file system is shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shown {
    /// The dataset's name, for messages.
    pub name: String,
    /// Whether POSIX ACLs count (`acltype=posix`).
    pub posix_acl: bool,
    /// Whether users' extended attributes are shown (`xattr`); ACLs and the system's own are there either way.
    pub xattrs: bool,
    /// Sizes. Of a file system that can be changed they are asked for anew ([`Dataset::with_sizes`]).
    pub sizes: Statfs,
}

/// Says what `statfs` shows.
type Sizes = Box<dyn Fn() -> Result<Statfs, Errno> + Send + Sync>;

/// A file system of a pool, by object number.
pub struct Dataset {
    /// As it was when this was made.
    first: FileSystem,
    /// The same to be changed, if it was only read at first.
    later: OnceLock<FileSystem>,
    name: RwLock<String>,
    posix_acl: bool,
    xattrs: AtomicBool,
    statfs: Statfs,
    sizes: Option<Sizes>,
    /// The object that the last message was about, so that a large damaged file doesn't fill the log.
    told: Mutex<Option<u64>>,
}

impl Dataset {
    /// Shows `fs` as `shown` says.
    pub fn new(fs: FileSystem, shown: Shown) -> Self {
        let Shown { name, posix_acl, xattrs, sizes } = shown;
        Self {
            first: fs,
            later: OnceLock::new(),
            name: RwLock::new(name),
            posix_acl,
            xattrs: AtomicBool::new(xattrs),
            statfs: sizes,
            sizes: None,
            told: Mutex::new(None),
        }
    }

    /// Asks for sizes each time that somebody wants to see them: for what can be changed, or may be later ([`Dataset::make_writable`]).
    #[must_use]
    pub fn with_sizes(mut self, sizes: Sizes) -> Self {
        self.sizes = Some(sizes);
        self
    }

    /// The file system.
    pub fn fs(&self) -> &FileSystem {
        self.later.get().unwrap_or(&self.first)
    }

    /// From now on it can be changed, by way of `fs`. It has been only read, and what was read is still so.
    pub fn make_writable(&self, fs: FileSystem) {
        if !self.fs().is_writable() {
            // Another may have been faster, with a handle that is as good.
            let _ = self.later.set(fs);
        }
    }

    /// It has another name, for messages.
    pub fn set_name(&self, name: &str) {
        name.clone_into(&mut self.name.write());
    }

    /// Whether users' extended attributes are shown (`xattr`).
    pub fn show_xattrs(&self, shown: bool) {
        self.xattrs.store(shown, Ordering::Relaxed);
    }

    fn name(&self) -> String {
        self.name.read().clone()
    }

    fn shows_xattrs(&self) -> bool {
        self.xattrs.load(Ordering::Relaxed)
    }

    /// Whether there can be an extended attribute of this name.
    fn shows(&self, name: &[u8]) -> bool {
        if POSIX_ACLS.contains(&name) {
            return self.posix_acl;
        }
        self.shows_xattrs() || !name.starts_with(b"user.")
    }

    fn node(&self, node: Node) -> Result<zpl::Node, Errno> {
        // A number that the kernel has was an object once; that it is none is news to its user, not an absent name.
        match self.fs().node(ObjNum(node.0)) {
            Err(Error::NoFile { .. }) => Err(Errno::STALE),
            result => self.told(node, result),
        }
    }

    /// Turns an error into an errno, and puts what the caller can't see into the log.
    fn told<T>(&self, node: Node, result: Result<T, Error>) -> Result<T, Errno> {
        result.map_err(|error| {
            let errno = errno(&error);
            if errno == Errno::IO && self.told.lock().replace(node.0) != Some(node.0) {
                tracing::warn!(dataset = self.name(), object = node.0, %error, "unreadable");
            }
            errno
        })
    }

    fn of(attr: &zpl::Attr) -> Attr {
        let time = |time: zpl::Time| Time { sec: time.secs, nsec: time.nanos };
        Attr {
            node: Node(attr.object.0),
            ino: attr.object.0,
            generation: attr.generation,
            parent: Node(attr.parent.0),
            mode: attr.mode,
            // More links than Linux can count show as the most that it can.
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
            settled: attr.settled,
        }
    }
}

impl Drop for Dataset {
    /// The kernel forgets what is left without saying so when it unmounts.
    fn drop(&mut self) {
        if self.fs().has_orphans()
            && let Err(error) = self.fs().drain()
        {
            tracing::warn!(dataset = self.name(), %error, "removed files are left for the next mount");
        }
    }
}

/// The errno of every failure of a file system: the one place where this door decides.
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
        Error::ReadOnly | Error::OldVersion { .. } | Error::OldNode { .. } => Errno::ROFS,
        Error::Exists { .. } => Errno::EXIST,
        Error::NotEmpty { .. } => Errno::NOTEMPTY,
        Error::NotPermitted { .. } => Errno::PERM,
        Error::TooLarge { .. } => Errno::FBIG,
        Error::NoSpace => Errno::NOSPC,
        Error::Quota => Errno::DQUOT,
    }
}

impl Tree for Dataset {
    fn root(&self) -> Node {
        Node(self.fs().root().0)
    }

    fn lookup(&self, dir: Node, name: &[u8]) -> Result<Attr, Errno> {
        if name.len() > self.fs().name_max() {
            return Err(Errno::NAMETOOLONG);
        }
        let found = self.told(dir, self.node(dir)?.lookup_entry(name, false))?;
        // An entry whose object is none is damage, not an absent name.
        match self.fs().node(found.object) {
            Err(error @ Error::NoFile { .. }) => {
                let object = found.object.0;
                tracing::warn!(dataset = self.name(), directory = dir.0, object, %error, "unreadable");
                Err(Errno::IO)
            }
            result => Ok(Self::of(self.told(Node(found.object.0), result)?.attr())),
        }
    }

    fn attr(&self, node: Node) -> Result<Attr, Errno> {
        Ok(Self::of(self.node(node)?.attr()))
    }

    fn readlink(&self, node: Node) -> Result<Vec<u8>, Errno> {
        self.told(node, self.node(node)?.readlink())
    }

    fn read(&self, node: Node, offset: u64, buf: &mut [u8]) -> Result<usize, Errno> {
        match self.fs().read(ObjNum(node.0), offset, buf) {
            Err(Error::NoFile { .. }) => Err(Errno::STALE),
            result => self.told(node, result),
        }
    }

    fn readdir(&self, dir: Node, cookie: u64, limit: usize) -> Result<Vec<Entry>, Errno> {
        // Cookies below 2 are `.` and `..`, which the door lists itself.
        let entries = self.told(dir, self.node(dir)?.read_dir(DirCookie(cookie.max(2))))?;
        let mut list = Vec::with_capacity(limit.min(1024));
        for entry in entries.take(limit) {
            let entry = match self.told(dir, entry) {
                Ok(entry) => entry,
                // What was read so far comes first; the error when the caller asks on.
                Err(_) if !list.is_empty() => break,
                Err(errno) => return Err(errno),
            };
            list.push(Entry {
                name: entry.name,
                node: Some(Node(entry.object.0)),
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
        self.fs().is_writable()
    }

    fn names_stay(&self, _dir: Node) -> bool {
        // Sizes that are asked for anew are of one that can be changed, or may be later.
        let fixed = self.sizes.is_none() && !self.fs().is_writable();
        fixed || !self.fs().folds_names()
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

    fn clone_out_of(&self, snapshot: &dyn Tree, range: &CloneRange) -> Result<u64, Errno> {
        self.cloned_out_of(snapshot.file_system().ok_or(Errno::XDEV)?, range)
    }

    fn file_system(&self) -> Option<&FileSystem> {
        Some(self.fs())
    }

    fn accessed(&self, node: Node) {
        match self.fs().accessed(ObjNum(node.0)) {
            // Reading went well: where there is no room for its time, that stays as it is.
            Ok(()) | Err(Error::NoSpace | Error::Quota | Error::NoFile { .. }) => {}
            Err(error) => tracing::debug!(dataset = self.name(), object = node.0, %error, "atime stays"),
        }
    }

    fn link(&self, node: Node, dir: Node, name: &[u8]) -> Result<Attr, Errno> {
        let attr = self.told(node, self.fs().link(ObjNum(node.0), ObjNum(dir.0), name))?;
        Ok(Self::of(&attr))
    }

    fn unlink(&self, dir: Node, name: &[u8]) -> Result<(), Errno> {
        self.told(dir, self.fs().unlink(ObjNum(dir.0), name)).map(|_| ())
    }

    fn rmdir(&self, dir: Node, name: &[u8]) -> Result<(), Errno> {
        self.told(dir, self.fs().rmdir(ObjNum(dir.0), name)).map(|_| ())
    }

    fn rename(&self, from: (Node, &[u8]), to: (Node, &[u8]), how: Rename) -> Result<(), Errno> {
        self.moved(from, to, how)
    }

    fn write(&self, node: Node, offset: u64, data: &[u8], kill: bool) -> Result<(), Errno> {
        self.told(node, self.fs().write(ObjNum(node.0), offset, data, kill))
    }

    fn set_attr(&self, node: Node, set: &SetAttr) -> Result<Attr, Errno> {
        self.changed(node, set)
    }

    fn allocate(&self, node: Node, offset: u64, len: u64, what: Allocate) -> Result<(), Errno> {
        self.allocated(node, offset, len, what)
    }

    fn set_xattr(&self, node: Node, name: &[u8], value: &[u8], how: SetXattr) -> Result<(), Errno> {
        self.may_set_xattr(name)?;
        self.told(node, self.fs().set_xattr(ObjNum(node.0), name, value, how.into()))
    }

    fn remove_xattr(&self, node: Node, name: &[u8]) -> Result<(), Errno> {
        self.may_set_xattr(name)?;
        self.told(node, self.fs().remove_xattr(ObjNum(node.0), name))
    }

    fn set_flags(&self, node: Node, flags: Flags) -> Result<(), Errno> {
        self.told(node, self.fs().set_flags(ObjNum(node.0), flags.bits, flags.project))
    }

    fn fsync(&self, node: Node) -> Result<(), Errno> {
        self.told(node, self.fs().fsync(ObjNum(node.0)))
    }

    fn sync(&self) -> Result<(), Errno> {
        self.told(self.root(), self.fs().sync())
    }

    fn forget(&self, node: Node) {
        if self.fs().has_orphans()
            && let Err(error) = self.fs().reap(ObjNum(node.0))
        {
            // It stays in the list, and the next mount tries again.
            tracing::warn!(dataset = self.name(), object = node.0, %error, "not freed");
        }
    }
}
