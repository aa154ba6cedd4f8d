//! File systems inside the mount of another: *nested* ones.
//!
//! # Theory
//! A user who may not mount uses `fusermount3`, and `fusermount3` can't enter a FUSE mount of that
//! user. So a file system with a mountpoint in such a mount gets no mount of its own. [`Nest`] is
//! the tree of the outer mount, and shows the nested file systems in it. A lookup that finds a
//! mountpoint returns the root of the nested file system instead of the folder.
//!
//! The kernel sees one file system, with one `st_dev`. So node and inode numbers must differ
//! between all file systems of a mount. The outer file system keeps its numbers. The node number of
//! a nested file consists of `NESTED`, the number of a *place*, and the object number.
//!
//! A place stands for a file system and the upper bits of its own node numbers: a snapshot's slot
//! ([`crate::ctldir`]) or an era. So no bits of a number are lost, even in a damaged pool.
//!
//! The inode number of a nested file combines the object numbers of the dataset and the file, as
//! [`crate::ctldir::snapshot_ino`] does. It stays the same over mounts. If the numbers are too
//! large for that, the inode number is the node number.
//!
//! # Life
//! The kernel does not report open files and working directories. But it keeps their nodes, and
//! reports when it forgets a node. So each file system counts the nodes that the kernel knows. An
//! unmount has the kernel drop the nodes that it doesn't need, and waits for the count to reach 0:
//! then nothing is in use.
//!
//! A file system that is unmounted while in use is *gone*. Its node numbers stay reserved until the
//! kernel forgets them, and requests for them fail with `ENOTCONN`.
//!
//! A file system may be opened late ([`Content::Later`]): by the first request that leads into it.
//! Until then it costs little more than its name. A listing of the directory that holds its
//! mountpoint doesn't open it.
//!
//! # Locks
//! `Fs::changing` comes first. The removal or rename of a folder holds it, and so does the mount
//! of a file system, so that each sees the other's result. The lock of the table of covered folders
//! is held only to look up and to enter.
//!
//! # Absent
//! Mount flags: all file systems of a mount have those of the outer one. A nested file system that
//! needs other flags is refused ([`crate::Served::new`]). So is a change of the outer mount that
//! would take away a flag that a nested one needs ([`crate::Mount::remount`]).

mod files;
mod mount;
mod places;

pub use mount::Nested;

use crate::dataset::Stale;

use crate::ctldir::SLOT_SHIFT;
use crate::system::Options;
use crate::tree::{Attr, Caller, FileTree, NewNode, Node};
use observe::lock::{Mutex, RwLock};
use places::{BITS, Places};
use rustix::io::Errno;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};

/// Set in each node number that contains the number of a place.
const NESTED: u64 = 1 << 63;
/// Bits of the object number in such a node number.
pub(crate) const OBJECT_BITS: u32 = u64::BITS - 1 - BITS;
const OBJECT_MASK: u64 = (1 << OBJECT_BITS) - 1;
/// How many values of upper bits a file system may have: two for each of its snapshots, and more.
const TAGS_MAX: usize = 1 << 17;
/// A node number that no file has.
const NOWHERE: Node = Node(u64::MAX);
/// In [`Known`]: set once the file system is gone.
const GONE: u64 = 1 << 63;

const S_IFMT: u32 = 0o170_000;
const S_IFDIR: u32 = 0o040_000;

/// The number of nodes of a file system that the kernel knows, and of file systems nested in it.
#[derive(Debug, Default)]
struct Known(AtomicU64);

impl Known {
    /// Adds one. Returns false, and adds nothing, if the file system is gone.
    fn hold(&self) -> bool {
        if self.0.fetch_add(1, Ordering::AcqRel) & GONE == 0 {
            return true;
        }
        self.0.fetch_sub(1, Ordering::AcqRel);
        false
    }

    /// Subtracts `times`. Returns whether the file system is gone and the count is now 0.
    fn release(&self, times: u64) -> bool {
        let less = |now: u64| now & GONE | (now & !GONE).saturating_sub(times);
        let before = self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, |now| Some(less(now)));
        before.is_ok_and(|before| less(before) == GONE)
    }

    /// Makes the file system gone if the count is 0. Returns whether it is gone.
    fn close(&self) -> bool {
        match self.0.compare_exchange(0, GONE, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => true,
            Err(now) => now & GONE != 0,
        }
    }

    /// Makes the file system gone in any case. Returns whether the count was 0.
    fn force(&self) -> bool {
        self.0.fetch_or(GONE, Ordering::AcqRel) & !GONE == 0
    }

    fn is_gone(&self) -> bool {
        self.0.load(Ordering::Acquire) & GONE != 0
    }

    /// Whether the count is `needed`: then the kernel knows no node.
    fn is(&self, needed: usize) -> bool {
        self.0.load(Ordering::Acquire) == needed as u64
    }

    fn is_idle(&self) -> bool {
        self.0.load(Ordering::Acquire) & !GONE == 0
    }
}

/// The files of a file system to serve.
///
/// Content that is opened late can also be closed again while idle ([`Nested::rest`]).
#[derive(Clone)]
pub enum Content {
    /// The open files.
    Open(Arc<dyn FileTree>),
    /// A function that opens the files and reads the root. For a nested file system, the first
    /// request that leads into it calls this function.
    Later(Arc<dyn Fn() -> Result<Arc<dyn FileTree>, Errno> + Send + Sync>),
}

impl Content {
    /// The open files. Opens them if necessary.
    pub(crate) fn open(self) -> Result<Arc<dyn FileTree>, Errno> {
        match self {
            Self::Open(tree) => Ok(tree),
            Self::Later(open) => open(),
        }
    }
}

/// The mountpoint of a nested file system.
struct Seat {
    /// The file system that holds the mountpoint.
    parent: Weak<Fs>,
    /// The mountpoint in that file system. After a rollback of that file system it can change, with
    /// [`Fs::changing`] held.
    at: RwLock<Spot>,
    /// The name under which the kernel found it last.
    name: Mutex<Vec<u8>>,
}

/// A folder, and the directory that holds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Spot {
    dir: Node,
    folder: Node,
}

/// What a nested file system needs of the flags that its whole mount has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Flags {
    read_only: bool,
    nosuid: bool,
    nodev: bool,
    noexec: bool,
    posix_acl: bool,
}

impl Flags {
    pub(crate) fn of(options: &Options) -> Self {
        let Options { read_only, nosuid, nodev, noexec, posix_acl, .. } = *options;
        Self { read_only, nosuid, nodev, noexec, posix_acl }
    }

    /// The properties that a mount with these options does not satisfy, as text.
    ///
    /// A mount that protects more satisfies `exec`, `setuid` and `devices`.
    pub(crate) fn missing(self, mount: &Options) -> Option<String> {
        all([
            (self.noexec && !mount.noexec, "exec=off"),
            (self.nosuid && !mount.nosuid, "setuid=off"),
            (self.nodev && !mount.nodev, "devices=off"),
            (self.posix_acl && !mount.posix_acl, "acltype=posix"),
            (!self.read_only && mount.read_only, "readonly=off"),
        ])
    }

    /// The flags set `before` that no longer should be, but are set in a mount with these options.
    fn denied(self, before: Self, mount: &Options) -> Self {
        Self {
            noexec: !self.noexec && before.noexec && mount.noexec,
            nosuid: !self.nosuid && before.nosuid && mount.nosuid,
            nodev: !self.nodev && before.nodev && mount.nodev,
            ..Self::default()
        }
    }

    /// The properties that would clear these flags, as text.
    fn lifted(self) -> Option<String> {
        all([(self.noexec, "exec=on"), (self.nosuid, "setuid=on"), (self.nodev, "devices=on")])
    }

    /// The flags that either has set.
    fn or(self, other: Self) -> Self {
        Self {
            read_only: self.read_only || other.read_only,
            noexec: self.noexec || other.noexec,
            nosuid: self.nosuid || other.nosuid,
            nodev: self.nodev || other.nodev,
            posix_acl: self.posix_acl || other.posix_acl,
        }
    }

    /// These flags as far as a mount with these options satisfies them.
    fn within(self, mount: &Options) -> Self {
        Self {
            read_only: self.read_only || mount.read_only,
            noexec: self.noexec && mount.noexec,
            nosuid: self.nosuid && mount.nosuid,
            nodev: self.nodev && mount.nodev,
            posix_acl: self.posix_acl && mount.posix_acl,
        }
    }
}

/// The names of the settings that are true, as a list. `None` if none is.
fn all<const N: usize>(settings: [(bool, &'static str); N]) -> Option<String> {
    let those: Vec<&str> = settings.into_iter().filter_map(|(is, what)| is.then_some(what)).collect();
    (!those.is_empty()).then(|| those.join(", "))
}

/// A folder for a nested file system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Folder {
    /// Folders that were created for it, outermost first.
    pub made: Vec<PathBuf>,
    /// Whether the folder is empty.
    pub empty: bool,
}

/// One file system of a mount.
pub(crate) struct Fs {
    me: Weak<Fs>,
    /// `None` for the outer file system.
    seat: Option<Seat>,
    /// `None` for the outer file system, the tree of which [`Nest`] has, and for one that is gone.
    content: RwLock<Option<Content>>,
    /// Opens it again, if it may be closed.
    later: Option<Content>,
    /// Held while the file system is being opened or closed.
    opening: Mutex<()>,
    /// Set once it has been opened.
    root: OnceLock<Node>,
    /// The object number of its dataset.
    dataset: u64,
    read_only: AtomicBool,
    /// `None` for the outer file system.
    flags: Mutex<Option<Flags>>,
    /// Flags that its properties cleared while it was mounted, but that the mount still sets.
    denied: Mutex<Flags>,
    known: Known,
    /// The places of its node numbers, by their upper bits.
    places: RwLock<HashMap<u32, u32>>,
    /// The place of node numbers without upper bits. Unset for the outer file system.
    main: OnceLock<u32>,
    /// The mountpoints in it, each with the file system mounted there.
    covers: RwLock<HashMap<Node, Arc<Fs>>>,
    /// The length of `covers`, to be read without the lock.
    covered: AtomicUsize,
    changing: RwLock<()>,
}

impl Fs {
    /// Whether it is the outer file system.
    fn is_outer(&self) -> bool {
        self.seat.is_none()
    }

    /// Its files, which this opens if necessary.
    ///
    /// # Errors
    /// `ENOTCONN`: it is gone. Besides, any errno of the function that opens it.
    fn tree(&self) -> Result<Arc<dyn FileTree>, Errno> {
        if let Some(Content::Open(tree)) = &*self.content.read() {
            return Ok(Arc::clone(tree));
        }
        let _opening = self.opening.lock();
        // While the files are being opened, only this lock is held.
        let content = self.content.read().clone();
        let tree = match content.ok_or(Errno::NOTCONN)? {
            Content::Open(tree) => return Ok(tree),
            Content::Later(open) => open()?,
        };
        let mut content = self.content.write();
        match &mut *content {
            Some(content) => *content = Content::Open(Arc::clone(&tree)),
            // It was unmounted by force meanwhile.
            None => return Err(Errno::NOTCONN),
        }
        self.root.get_or_init(|| tree.root());
        Ok(tree)
    }

    /// Its files, if they are open.
    fn open_tree(&self) -> Option<Arc<dyn FileTree>> {
        match &*self.content.read() {
            Some(Content::Open(tree)) => Some(Arc::clone(tree)),
            Some(Content::Later(_)) | None => None,
        }
    }

    /// Closes its files until the next use, if they can be opened again and nothing uses them.
    ///
    /// `closing` runs before the files are released, while nothing else has them. If it returns
    /// false, they stay open. Returns whether the files were closed.
    fn rest(&self, closing: impl FnOnce() -> bool) -> bool {
        let Some(later) = &self.later else { return false };
        let Some(_opening) = self.opening.try_lock() else { return false };
        let mut content = self.content.write();
        match &mut *content {
            // Each user of the files has a reference to them, and the lock keeps others from
            // getting one now.
            Some(now @ Content::Open(_)) if self.known.is(self.covered.load(Ordering::Acquire)) => {
                let Content::Open(tree) = &*now else { return false };
                if Arc::strong_count(tree) > 1 || !closing() {
                    return false;
                }
                let tree = std::mem::replace(now, later.clone());
                drop(content);
                drop(tree);
                true
            }
            _ => false,
        }
    }

    /// Its root, by its own node number.
    fn root(&self) -> Result<Node, Errno> {
        match self.root.get() {
            Some(root) => Ok(*root),
            None => Ok(self.tree()?.root()),
        }
    }

    /// The file system mounted on a folder of it.
    fn cover(&self, folder: Node) -> Option<Arc<Fs>> {
        if self.covered.load(Ordering::Acquire) == 0 {
            return None;
        }
        self.covers.read().get(&folder).cloned()
    }

    fn may_be_written(&self) -> Result<(), Errno> {
        if self.read_only.load(Ordering::Acquire) { Err(Errno::ROFS) } else { Ok(()) }
    }
}

/// The tree of a mount with other file systems in it.
pub struct Nest {
    top: Arc<dyn FileTree>,
    outer: Arc<Fs>,
    places: Places<(Arc<Fs>, u32)>,
    /// Whether the mount has POSIX ACLs, by the flags of its `FUSE_INIT`.
    posix_acl: bool,
    /// Number of nested file systems.
    count: AtomicUsize,
}

impl Nest {
    /// Makes a tree that shows `top`, with nothing nested in it yet.
    ///
    /// `posix_acl` is whether the kernel checks POSIX ACLs in this mount.
    pub fn new(top: Arc<dyn FileTree>, posix_acl: bool) -> Self {
        let root = top.root();
        let outer = Arc::new_cyclic(|me| Fs {
            me: Weak::clone(me),
            seat: None,
            content: RwLock::new(None),
            later: None,
            opening: Mutex::default(),
            root: OnceLock::from(root),
            dataset: 0,
            read_only: AtomicBool::new(false),
            flags: Mutex::default(),
            denied: Mutex::default(),
            known: Known::default(),
            places: RwLock::default(),
            main: OnceLock::new(),
            covers: RwLock::default(),
            covered: AtomicUsize::new(0),
            changing: RwLock::new(()),
        });
        Self { top, outer, places: Places::default(), posix_acl, count: AtomicUsize::new(0) }
    }

    /// All file systems in it, the outer one first.
    fn all(&self) -> Vec<Arc<Fs>> {
        let mut all = vec![Arc::clone(&self.outer)];
        let mut at = 0;
        while let Some(fs) = all.get(at).cloned() {
            all.extend(fs.covers.read().values().cloned());
            at += 1;
        }
        all
    }

    /// Refuses changes of the outer file system, or allows them again.
    pub(crate) fn keep_unchanged(&self, read_only: bool) {
        self.outer.read_only.store(read_only, Ordering::Release);
    }

    /// The properties of a nested file system that a mount with these options would not satisfy.
    pub(crate) fn refuses(&self, options: &Options) -> Option<String> {
        self.all().iter().find_map(|fs| (*fs.flags.lock())?.missing(options))
    }

    /// Number of file systems nested in it.
    pub(crate) fn count(&self) -> usize {
        self.count.load(Ordering::Acquire)
    }

    /// Calls `work` with the file system that has a node, its tree, and its own number of the node.
    fn at<R>(
        &self,
        node: Node,
        work: impl FnOnce(&Fs, &dyn FileTree, Node) -> Result<R, Errno>,
    ) -> Result<R, Errno> {
        if node.0 & NESTED == 0 {
            return work(&self.outer, &*self.top, node);
        }
        let (fs, tag) = self.place(node)?;
        let inner = Node(u64::from(tag) << OBJECT_BITS | node.0 & OBJECT_MASK);
        self.in_fs(&fs, |tree| work(&fs, tree, inner))
    }

    fn in_fs<R>(&self, fs: &Fs, work: impl FnOnce(&dyn FileTree) -> Result<R, Errno>) -> Result<R, Errno> {
        if fs.is_outer() { work(&*self.top) } else { work(&*fs.tree()?) }
    }

    fn place(&self, node: Node) -> Result<(Arc<Fs>, u32), Errno> {
        let number = u32::try_from((node.0 & !NESTED) >> OBJECT_BITS).expect("23 bits");
        self.places.get(number).ok_or(Errno::STALE)
    }

    /// Runs `work` with the file system of a node and its own number of it, without a wait. `None`
    /// if the file system is closed.
    fn within<R>(&self, node: Node, work: impl FnOnce(&dyn FileTree, Node) -> Option<R>) -> Option<R> {
        if node.0 & NESTED == 0 {
            return work(&*self.top, node);
        }
        let (fs, tag) = self.place(node).ok()?;
        let inner = Node(u64::from(tag) << OBJECT_BITS | node.0 & OBJECT_MASK);
        if fs.is_outer() {
            return work(&*self.top, inner);
        }
        let tree = match fs.content.try_read()?.as_ref()? {
            Content::Open(tree) => Arc::clone(tree),
            Content::Later(_) => return None,
        };
        work(&*tree, inner)
    }

    /// The file system's own number of a node.
    ///
    /// # Errors
    /// `EXDEV`: the node is in another file system.
    fn same(&self, fs: &Fs, node: Node) -> Result<Node, Errno> {
        self.at(node, |other, _, inner| if std::ptr::eq(other, fs) { Ok(inner) } else { Err(Errno::XDEV) })
    }

    /// The mount's number of a node of one of its file systems.
    ///
    /// # Errors
    /// `ENOTCONN`: the file system is gone. `ENFILE`: no places are left.
    fn outward(&self, fs: &Fs, inner: Node) -> Result<Node, Errno> {
        if fs.is_outer() && inner.0 & NESTED == 0 {
            return Ok(inner);
        }
        let tag = u32::try_from(inner.0 >> OBJECT_BITS).expect("24 bits");
        let number = match fs.main.get() {
            Some(main) if tag == 0 => *main,
            _ => self.number_of(fs, tag)?,
        };
        Ok(Node(NESTED | u64::from(number) << OBJECT_BITS | inner.0 & OBJECT_MASK))
    }

    fn number_of(&self, fs: &Fs, tag: u32) -> Result<u32, Errno> {
        if let Some(number) = fs.places.read().get(&tag) {
            return Ok(*number);
        }
        let mut places = fs.places.write();
        if let Some(number) = places.get(&tag) {
            return Ok(*number);
        }
        if fs.known.is_gone() {
            return Err(Errno::NOTCONN);
        }
        if places.len() >= TAGS_MAX {
            return Err(Errno::NFILE);
        }
        let me = fs.me.upgrade().ok_or(Errno::NOTCONN)?;
        let number = self.places.take((me, tag)).ok_or(Errno::NFILE)?;
        places.insert(tag, number);
        Ok(number)
    }

    /// The inode number that the mount shows for a node. `ino` is the number in its own file
    /// system.
    fn ino(&self, fs: &Fs, inner: Node, ino: u64) -> Result<u64, Errno> {
        let packed = if fs.is_outer() || (1..crate::ctldir::CONTROL_SLOT).contains(&(inner.0 >> SLOT_SHIFT)) {
            // The inode numbers of a snapshot are unique in the pool.
            (ino & NESTED == 0).then_some(ino)
        } else {
            let fits = fs.dataset < 1 << 23 && ino < 1 << OBJECT_BITS && inner.0 >> SLOT_SHIFT == 0;
            fits.then_some(fs.dataset << OBJECT_BITS | ino)
        };
        match packed {
            Some(ino) => Ok(ino),
            None => self.outward(fs, inner).map(|node| node.0),
        }
    }

    /// Attributes as the mount shows them.
    fn show(&self, fs: &Fs, mut attr: Attr) -> Result<Attr, Errno> {
        if fs.is_outer() && (attr.node.0 | attr.parent.0 | attr.ino) & NESTED == 0 {
            return Ok(attr);
        }
        // The kernel refuses such an answer as a whole. It would not count the reference to the
        // node then.
        if i64::try_from(attr.size).is_err() || !is_type(attr.mode & S_IFMT) {
            return Err(Errno::IO);
        }
        let inner = attr.node;
        attr.ino = self.ino(fs, inner, attr.ino)?;
        attr.node = self.outward(fs, inner)?;
        let parent = match &fs.seat {
            Some(seat) if fs.root.get() == Some(&inner) => {
                seat.parent.upgrade().map(|parent| (parent, seat.at.read().dir))
            }
            _ => fs.me.upgrade().map(|me| (me, attr.parent)),
        };
        let parent = parent.and_then(|(fs, dir)| self.outward(&fs, dir).ok());
        attr.parent = parent.unwrap_or(NOWHERE);
        Ok(attr)
    }

    /// As [`Nest::show`], but of the file system mounted on that entry, if there is one.
    fn shown(&self, fs: &Fs, attr: Attr, name: &[u8]) -> Result<Attr, Errno> {
        match fs.cover(attr.node) {
            Some(child) => {
                if let Some(seat) = &child.seat {
                    name.clone_into(&mut seat.name.lock());
                }
                self.root_of(&child)
            }
            None => self.show(fs, attr),
        }
    }

    /// The attributes of the root of a nested file system.
    fn root_of(&self, fs: &Fs) -> Result<Attr, Errno> {
        let root = fs.root()?;
        let attr = self.in_fs(fs, |tree| tree.attr(root))?;
        self.show(fs, attr)
    }

    /// Finds the mountpoint at a path below the root of the mount.
    ///
    /// # Errors
    /// * `EBUSY`: the path is the root.
    /// * `ENOTDIR`: it leads to something else than a directory.
    /// * `EINVAL`: it contains `..` or begins with `/`.
    /// * Any errno of a lookup on the way.
    fn find(&self, path: &Path) -> Result<(Arc<Fs>, Seat), Errno> {
        let mut names = names(path)?;
        let last = names.pop().ok_or(Errno::BUSY)?;
        let (mut fs, mut dir) = (Arc::clone(&self.outer), self.top.root());
        for name in names {
            let found = self.in_fs(&fs, |tree| tree.lookup(dir, name))?;
            (fs, dir) = into(fs, found.node)?;
        }
        let folder = self.in_fs(&fs, |tree| tree.lookup(dir, last))?;
        if folder.mode & S_IFMT != S_IFDIR {
            return Err(Errno::NOTDIR);
        }
        let name = Mutex::new(last.to_vec());
        let at = RwLock::new(Spot { dir, folder: folder.node });
        let seat = Seat { parent: Arc::downgrade(&fs), at, name };
        Ok((fs, seat))
    }

    /// Creates the missing folders of a path below the root. Returns the folder, and the names that
    /// the kernel has to look up again.
    pub(crate) fn make(&self, path: &Path) -> Result<(Folder, Vec<Stale>), Errno> {
        let (mut fs, mut dir) = (Arc::clone(&self.outer), self.top.root());
        let (mut at, mut made, mut stale) = (PathBuf::new(), Vec::new(), Vec::new());
        for name in names(path)? {
            at.push(OsStr::from_bytes(name));
            let (found, fresh) = self.made(&fs, dir, name, &mut stale)?;
            made.extend(fresh.then(|| at.clone()));
            (fs, dir) = into(fs, found)?;
        }
        let empty = !made.is_empty() || self.in_fs(&fs, |tree| tree.readdir(dir, 0, 1))?.is_empty();
        Ok((Folder { made, empty }, stale))
    }

    /// Finds the folder of a name in a directory, or creates it. Returns whether it was created.
    ///
    /// Adds to `stale` the names that the kernel has to look up again.
    fn made(&self, fs: &Fs, dir: Node, name: &[u8], stale: &mut Vec<Stale>) -> Result<(Node, bool), Errno> {
        let caller =
            Caller { uid: rustix::process::geteuid().as_raw(), gid: rustix::process::getegid().as_raw() };
        let new = NewNode { mode: S_IFDIR | 0o755, umask: 0, rdev: (0, 0), target: b"", caller };
        let (found, made) = match self.in_fs(fs, |tree| tree.lookup(dir, name)) {
            Err(Errno::NOENT) => {
                fs.may_be_written()?;
                let made = match self.in_fs(fs, |tree| tree.create(dir, name, &new)) {
                    // A program created it first.
                    Err(Errno::EXIST) => (self.in_fs(fs, |tree| tree.lookup(dir, name))?, false),
                    made => (made?, true),
                };
                let at = self.outward(fs, dir)?;
                stale.extend([Stale::Name(at, name.to_vec()), Stale::File(at)]);
                made
            }
            found => (found?, false),
        };
        if found.mode & S_IFMT != S_IFDIR { Err(Errno::NOTDIR) } else { Ok((found.node, made)) }
    }

    /// Moves the mountpoint of a file system in `parent` to where `path` leads now.
    ///
    /// `path` begins at the root of `parent`. Creates missing folders. Returns the names that the
    /// kernel has to look up again.
    fn settle(&self, parent: &Fs, fs: &Fs, path: &Path) -> Result<Vec<Stale>, Errno> {
        let Some(seat) = &fs.seat else { return Ok(Vec::new()) };
        let _changing = parent.changing.write();
        let root = parent.root()?;
        let (mut stale, mut dir, mut folder) = (Vec::new(), root, root);
        let names = names(path)?;
        for name in &names {
            dir = folder;
            // The path leads through `parent` only, not into file systems mounted over parts of it.
            folder = self.made(parent, dir, name, &mut stale)?.0;
        }
        let name = names.last().ok_or(Errno::BUSY)?;
        let (before, now) = (*seat.at.read(), Spot { dir, folder });
        if before == now && stale.is_empty() {
            return Ok(stale);
        }
        let mut covers = parent.covers.write();
        if before.folder != folder {
            if covers.contains_key(&folder) {
                return Err(Errno::BUSY);
            }
            if let Some(child) = covers.remove(&before.folder) {
                covers.insert(folder, child);
            }
        }
        *seat.at.write() = now;
        drop(covers);
        for (dir, name) in [(before.dir, seat.name.lock().clone()), (dir, name.to_vec())] {
            // If the directory is gone, the kernel knows that already.
            if let Ok(dir) = self.outward(parent, dir) {
                stale.extend([Stale::Name(dir, name), Stale::File(dir)]);
            }
        }
        *seat.name.lock() = name.to_vec();
        Ok(stale)
    }

    /// Mounts a file system on the folder at a path below the root.
    ///
    /// # Errors
    /// * Those of [`Nest::find`].
    /// * `EBUSY`: a nested file system is mounted there already.
    /// * `ENOTCONN`: the file system around it is gone.
    /// * `ENFILE`: no places are left.
    fn put(&self, path: &Path, content: Content, dataset: u64, flags: Flags) -> Result<Arc<Fs>, Errno> {
        let (parent, seat) = self.find(path)?;
        let _changing = parent.changing.write();
        let folder = seat.at.read().folder;
        // It may have been removed meanwhile.
        self.in_fs(&parent, |tree| tree.attr(folder))?;
        let mut covers = parent.covers.write();
        if covers.contains_key(&folder) {
            return Err(Errno::BUSY);
        }
        if !parent.known.hold() {
            return Err(Errno::NOTCONN);
        }
        let child = Arc::new_cyclic(|me| Fs {
            me: Weak::clone(me),
            seat: Some(seat),
            root: match &content {
                Content::Open(tree) => OnceLock::from(tree.root()),
                Content::Later(_) => OnceLock::new(),
            },
            later: Some(content.clone()).filter(|content| matches!(content, Content::Later(_))),
            content: RwLock::new(Some(content)),
            opening: Mutex::default(),
            dataset,
            read_only: AtomicBool::new(flags.read_only),
            flags: Mutex::new(Some(flags)),
            denied: Mutex::default(),
            known: Known::default(),
            places: RwLock::default(),
            main: OnceLock::new(),
            covers: RwLock::default(),
            covered: AtomicUsize::new(0),
            changing: RwLock::new(()),
        });
        let Some(number) = self.places.take((Arc::clone(&child), 0)) else {
            parent.known.release(1);
            return Err(Errno::NFILE);
        };
        child.main.get_or_init(|| number);
        covers.insert(folder, Arc::clone(&child));
        parent.covered.store(covers.len(), Ordering::Release);
        self.count.fetch_add(1, Ordering::AcqRel);
        Ok(child)
    }

    /// Removes a file system that is gone ([`Known`]) from the table of its parent.
    ///
    /// Requests for nodes that the kernel still knows fail with `ENOTCONN` from now on.
    fn take_out(&self, fs: &Fs) {
        let Some(seat) = &fs.seat else { return };
        if let Some(parent) = seat.parent.upgrade() {
            let mut covers = parent.covers.write();
            let folder = seat.at.read().folder;
            if covers.get(&folder).is_none_or(|there| !std::ptr::eq(&**there, fs)) {
                return;
            }
            covers.remove(&folder);
            parent.covered.store(covers.len(), Ordering::Release);
            drop(covers);
            self.count.fetch_sub(1, Ordering::AcqRel);
            if parent.known.release(1) {
                self.bury(&parent);
            }
        }
        let content = fs.content.write().take();
        drop(content);
        if fs.known.is_idle() {
            self.bury(fs);
        }
    }

    /// Releases the places of a file system that is gone, once the kernel knows none of its nodes.
    fn bury(&self, fs: &Fs) {
        let places = std::mem::take(&mut *fs.places.write());
        places.into_values().chain(fs.main.get().copied()).for_each(|number| self.places.give_back(number));
    }
}

/// The names on a path below a root.
///
/// # Errors
/// `EINVAL`: the path contains `..` or begins with `/`.
fn names(path: &Path) -> Result<Vec<&[u8]>, Errno> {
    let mut names = Vec::new();
    for part in path.components() {
        match part {
            Component::Normal(name) => names.push(name.as_bytes()),
            Component::CurDir => {}
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => return Err(Errno::INVAL),
        }
    }
    Ok(names)
}

/// The directory itself, or the root of the file system mounted on it.
fn into(fs: Arc<Fs>, dir: Node) -> Result<(Arc<Fs>, Node), Errno> {
    match fs.cover(dir) {
        Some(child) => {
            let root = child.root()?;
            Ok((child, root))
        }
        None => Ok((fs, dir)),
    }
}

/// Whether a file can have this type, as in `st_mode`.
fn is_type(mode: u32) -> bool {
    matches!(mode >> 12, 0o1 | 0o2 | 0o4 | 0o6 | 0o10 | 0o12 | 0o14)
}

#[cfg(test)]
mod tests;
