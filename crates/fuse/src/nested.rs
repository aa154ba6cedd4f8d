//! File systems inside the mount of another: *nested* ones.
//!
//! # Theory
//! A user who may not mount has `fusermount3` mount for him, and `fusermount3` can't enter a FUSE
//! mount of that user. So a file system whose mountpoint lies in such a mount gets no mount of its
//! own. [`Nest`] is the tree of the outer mount, and shows the nested file systems in it: a lookup
//! that finds a folder which is a mountpoint gives the root of the nested file system instead.
//!
//! The kernel sees one file system, with one `st_dev`. So the numbers of nodes and inodes must
//! differ between all file systems of a mount. Those of the outer one stay as they are. The node
//! number of a nested file has [`NESTED`], then a number of a *place*, then the object number. A
//! place stands for a file system and the upper bits of its own node numbers: a snapshot's slot
//! ([`crate::ctldir`]) or an era. So no number is lost, whatever a damaged pool says.
//!
//! Inode numbers of nested files are made of the dataset's object number and the file's, as those
//! of snapshots are ([`crate::ctldir::snapshot_ino`]): they stay the same over mounts. Numbers too
//! large for that become the node's.
//!
//! # Life
//! The kernel says nothing of open files and working directories, but keeps their nodes, and says
//! when it forgets a node. So each file system counts how many nodes the kernel knows. To unmount
//! is to have the kernel drop what it doesn't need, and to see whether the count comes to 0: then
//! nothing is in use. A file system that is taken away in use is *gone*: its nodes stay numbered
//! until the kernel forgets them, and answer `ENOTCONN`.
//!
//! A file system may be opened late ([`Content::Later`]): by the first request that leads into it.
//! Until then it costs little more than its name. A directory that lists its mountpoint doesn't
//! open it.
//!
//! # Locks
//! [`Fs::changing`] comes first: it is held while a folder is removed or renamed, and while a
//! mountpoint is covered, so that none of these misses another. The table of covered folders is
//! held for looking up and entering.
//!
//! # Absent
//! Mount flags: all file systems of a mount have those of the outer one. What a nested file system
//! can't have otherwise is refused before ([`crate::Served::new`]), and so is a change of the outer
//! mount that would take it away ([`crate::Mount::remount`]).

mod files;
mod mount;
mod places;

pub use mount::Nested;

use crate::dataset::Stale;

use crate::ctldir::SLOT_SHIFT;
use crate::system::Options;
use crate::tree::{Attr, Caller, NewNode, Node, Tree};
use parking_lot::{Mutex, RwLock};
use places::{BITS, Places};
use rustix::io::Errno;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};

/// Set in the number of each node whose number says a place.
const NESTED: u64 = 1 << 63;
/// Bits of the object number in there.
pub(crate) const OBJECT_BITS: u32 = u64::BITS - 1 - BITS;
const OBJECT_MASK: u64 = (1 << OBJECT_BITS) - 1;
/// How many upper bits one file system may have: two for each of its snapshots, and more.
const TAGS_MAX: usize = 1 << 17;
/// Where a number leads that no file has.
const NOWHERE: Node = Node(u64::MAX);
/// In [`Known`]: the file system is gone.
const GONE: u64 = 1 << 63;

const S_IFMT: u32 = 0o170_000;
const S_IFDIR: u32 = 0o040_000;

/// How many nodes of a file system the kernel knows, and how many others need it.
#[derive(Debug, Default)]
struct Known(AtomicU64);

impl Known {
    /// Counts one. False if the file system is gone.
    fn hold(&self) -> bool {
        if self.0.fetch_add(1, Ordering::AcqRel) & GONE == 0 {
            return true;
        }
        self.0.fetch_sub(1, Ordering::AcqRel);
        false
    }

    /// Counts so many less. Says whether the file system is gone and nothing is left of it.
    fn release(&self, times: u64) -> bool {
        let less = |now: u64| now & GONE | (now & !GONE).saturating_sub(times);
        let before = self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, |now| Some(less(now)));
        before.is_ok_and(|before| less(before) == GONE)
    }

    /// Makes it gone if nothing is known. Says whether it is gone.
    fn close(&self) -> bool {
        match self.0.compare_exchange(0, GONE, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => true,
            Err(now) => now & GONE != 0,
        }
    }

    /// Makes it gone, whatever is known. Says whether nothing was.
    fn force(&self) -> bool {
        self.0.fetch_or(GONE, Ordering::AcqRel) & !GONE == 0
    }

    fn is_gone(&self) -> bool {
        self.0.load(Ordering::Acquire) & GONE != 0
    }

    /// Whether so many need it, and the kernel knows nothing of it.
    fn is(&self, needed: usize) -> bool {
        self.0.load(Ordering::Acquire) == needed as u64
    }

    fn is_idle(&self) -> bool {
        self.0.load(Ordering::Acquire) & !GONE == 0
    }
}

/// The files of a file system that is to be served.
///
/// Those that are opened late are also closed again when nothing uses them ([`Nested::rest`]).
#[derive(Clone)]
pub enum Content {
    /// They are open.
    Open(Arc<dyn Tree>),
    /// This opens them, and reads the root. A nested file system has that done by the first request
    /// that leads into it.
    Later(Arc<dyn Fn() -> Result<Arc<dyn Tree>, Errno> + Send + Sync>),
}

impl Content {
    /// The open files.
    pub(crate) fn open(self) -> Result<Arc<dyn Tree>, Errno> {
        match self {
            Self::Open(tree) => Ok(tree),
            Self::Later(open) => open(),
        }
    }
}

/// Where a nested file system is.
struct Seat {
    /// The file system of its mountpoint.
    parent: Weak<Fs>,
    /// The mountpoint, there. It changes with [`Fs::changing`] held, when that is rolled back.
    at: RwLock<Spot>,
    /// The name by which the kernel found it last.
    name: Mutex<Vec<u8>>,
}

/// A folder, and the directory that it is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Spot {
    dir: Node,
    folder: Node,
}

/// What a nested file system says of flags that all of a mount have.
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

    /// What of it a mount with these options takes from it, as its properties say it.
    ///
    /// What the mount protects better is nothing of that.
    pub(crate) fn missing(self, mount: &Options) -> Option<String> {
        all([
            (self.noexec && !mount.noexec, "exec=off"),
            (self.nosuid && !mount.nosuid, "setuid=off"),
            (self.nodev && !mount.nodev, "devices=off"),
            (self.posix_acl && !mount.posix_acl, "acltype=posix"),
            (!self.read_only && mount.read_only, "readonly=off"),
        ])
    }

    /// What was so `before`, is to be so no longer, and stays so in a mount with these options.
    fn denied(self, before: Self, mount: &Options) -> Self {
        Self {
            noexec: !self.noexec && before.noexec && mount.noexec,
            nosuid: !self.nosuid && before.nosuid && mount.nosuid,
            nodev: !self.nodev && before.nodev && mount.nodev,
            ..Self::default()
        }
    }

    /// What of these is to be lifted, as its properties say it.
    fn lifted(self) -> Option<String> {
        all([(self.noexec, "exec=on"), (self.nosuid, "setuid=on"), (self.nodev, "devices=on")])
    }

    /// What either has.
    fn or(self, other: Self) -> Self {
        Self {
            read_only: self.read_only || other.read_only,
            noexec: self.noexec || other.noexec,
            nosuid: self.nosuid || other.nosuid,
            nodev: self.nodev || other.nodev,
            posix_acl: self.posix_acl || other.posix_acl,
        }
    }

    /// The part of it that a mount with these options has.
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

/// Those that are so, as a list.
fn all<const N: usize>(settings: [(bool, &'static str); N]) -> Option<String> {
    let those: Vec<&str> = settings.into_iter().filter_map(|(is, what)| is.then_some(what)).collect();
    (!those.is_empty()).then(|| those.join(", "))
}

/// A folder for a nested file system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Folder {
    /// Folders that were made for it, outermost first.
    pub made: Vec<PathBuf>,
    /// There is nothing in it.
    pub empty: bool,
}

/// One file system of a mount.
pub(crate) struct Fs {
    me: Weak<Fs>,
    /// None for the outer file system.
    seat: Option<Seat>,
    /// None for the outer file system, whose tree [`Nest`] has, and for what is gone.
    content: RwLock<Option<Content>>,
    /// What opens it again, if it may be closed.
    later: Option<Content>,
    /// Held while it is opened or closed.
    opening: Mutex<()>,
    /// Once it is open.
    root: OnceLock<Node>,
    /// The dataset's object number.
    dataset: u64,
    read_only: AtomicBool,
    /// Nothing of the outer file system.
    flags: Mutex<Option<Flags>>,
    /// What its properties lifted while it was mounted, and the mount has all the same.
    denied: Mutex<Flags>,
    known: Known,
    /// By the upper bits of its node numbers.
    places: RwLock<HashMap<u32, u32>>,
    /// The place of those that have none; nothing for the outer file system.
    main: OnceLock<u32>,
    /// The mountpoints in it, each with what covers it.
    covers: RwLock<HashMap<Node, Arc<Fs>>>,
    /// How many there are, to be read without the lock.
    covered: AtomicUsize,
    changing: RwLock<()>,
}

impl Fs {
    /// Whether it is the outer one.
    fn is_outer(&self) -> bool {
        self.seat.is_none()
    }

    /// Its files, which are opened if they aren't.
    fn tree(&self) -> Result<Arc<dyn Tree>, Errno> {
        if let Some(Content::Open(tree)) = &*self.content.read() {
            return Ok(Arc::clone(tree));
        }
        let _opening = self.opening.lock();
        // Nothing is locked while it is opened but that.
        let content = self.content.read().clone();
        let tree = match content.ok_or(Errno::NOTCONN)? {
            Content::Open(tree) => return Ok(tree),
            Content::Later(open) => open()?,
        };
        let mut content = self.content.write();
        match &mut *content {
            Some(content) => *content = Content::Open(Arc::clone(&tree)),
            // It was taken away by force meanwhile.
            None => return Err(Errno::NOTCONN),
        }
        self.root.get_or_init(|| tree.root());
        Ok(tree)
    }

    /// Its files, if they are open.
    fn open_tree(&self) -> Option<Arc<dyn Tree>> {
        match &*self.content.read() {
            Some(Content::Open(tree)) => Some(Arc::clone(tree)),
            Some(Content::Later(_)) | None => None,
        }
    }

    /// Closes it until it is used again, if that can be: `closing` is called while nothing has its
    /// files, before they are released, and may refuse. Says whether it did.
    fn rest(&self, closing: impl FnOnce() -> bool) -> bool {
        let Some(later) = &self.later else { return false };
        let Some(_opening) = self.opening.try_lock() else { return false };
        let mut content = self.content.write();
        match &mut *content {
            // Who needs the files has a handle of them, and no other gets one now.
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

    /// Its root, by its own number.
    fn root(&self) -> Result<Node, Errno> {
        match self.root.get() {
            Some(root) => Ok(*root),
            None => Ok(self.tree()?.root()),
        }
    }

    /// What covers a folder of it.
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
    top: Arc<dyn Tree>,
    outer: Arc<Fs>,
    places: Places<(Arc<Fs>, u32)>,
    /// The kernel was told to ask for POSIX ACLs.
    posix_acl: bool,
    /// File systems in there.
    count: AtomicUsize,
}

impl Nest {
    /// Shows `top`, in which there is nothing yet. `posix_acl`: the kernel is told to check ACLs.
    pub fn new(top: Arc<dyn Tree>, posix_acl: bool) -> Self {
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

    /// Refuses changes of the outer file system, or lets them again.
    pub(crate) fn keep_unchanged(&self, read_only: bool) {
        self.outer.read_only.store(read_only, Ordering::Release);
    }

    /// What one of those nested in it would lose if it had these options.
    pub(crate) fn refuses(&self, options: &Options) -> Option<String> {
        self.all().iter().find_map(|fs| (*fs.flags.lock())?.missing(options))
    }

    /// How many file systems are nested in it.
    pub(crate) fn count(&self) -> usize {
        self.count.load(Ordering::Acquire)
    }

    /// Does something with the file system that has a node, and with its tree and its own number
    /// of that node.
    fn at<R>(
        &self,
        node: Node,
        work: impl FnOnce(&Fs, &dyn Tree, Node) -> Result<R, Errno>,
    ) -> Result<R, Errno> {
        if node.0 & NESTED == 0 {
            return work(&self.outer, &*self.top, node);
        }
        let (fs, tag) = self.place(node)?;
        let inner = Node(u64::from(tag) << OBJECT_BITS | node.0 & OBJECT_MASK);
        self.in_fs(&fs, |tree| work(&fs, tree, inner))
    }

    fn in_fs<R>(&self, fs: &Fs, work: impl FnOnce(&dyn Tree) -> Result<R, Errno>) -> Result<R, Errno> {
        if fs.is_outer() { work(&*self.top) } else { work(&*fs.tree()?) }
    }

    fn place(&self, node: Node) -> Result<(Arc<Fs>, u32), Errno> {
        let number = u32::try_from((node.0 & !NESTED) >> OBJECT_BITS).expect("23 bits");
        self.places.get(number).ok_or(Errno::STALE)
    }

    /// A node of the same file system, by its own number; `EXDEV` if it is of another.
    fn same(&self, fs: &Fs, node: Node) -> Result<Node, Errno> {
        self.at(node, |other, _, inner| if std::ptr::eq(other, fs) { Ok(inner) } else { Err(Errno::XDEV) })
    }

    /// The mount's number of a node of one of its file systems.
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

    /// The inode number that the mount shows for a node, of which its file system says `ino`.
    fn ino(&self, fs: &Fs, inner: Node, ino: u64) -> Result<u64, Errno> {
        let packed = if fs.is_outer() || (1..crate::ctldir::CONTROL_SLOT).contains(&(inner.0 >> SLOT_SHIFT)) {
            // A snapshot's number is its own in the whole pool.
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
        // The kernel refuses such an answer, and doesn't say that it has not taken the node.
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

    /// The same of what a directory has under a name: what covers it, if something does.
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

    /// Finds the folder at a path below the mount's root, which is to be a mountpoint.
    ///
    /// # Errors
    /// `EBUSY` if something covers it already, or if it is the root; `ENOTDIR`; as looking it up
    /// fails.
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

    /// Makes what is missing of the folders of a path below the root. Says what the kernel is to
    /// look up again.
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

    /// The folder of a name in a directory, and whether it was made. `stale` gets what the kernel
    /// is to look up again.
    fn made(&self, fs: &Fs, dir: Node, name: &[u8], stale: &mut Vec<Stale>) -> Result<(Node, bool), Errno> {
        let caller =
            Caller { uid: rustix::process::geteuid().as_raw(), gid: rustix::process::getegid().as_raw() };
        let new = NewNode { mode: S_IFDIR | 0o755, umask: 0, rdev: (0, 0), target: b"", caller };
        let (found, made) = match self.in_fs(fs, |tree| tree.lookup(dir, name)) {
            Err(Errno::NOENT) => {
                fs.may_be_written()?;
                let made = match self.in_fs(fs, |tree| tree.create(dir, name, &new)) {
                    // A program was faster.
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

    /// Has a file system in `parent` lie where a path leads that begins at the root of that. What
    /// is missing of it is made. Says what the kernel is to look up again.
    fn settle(&self, parent: &Fs, fs: &Fs, path: &Path) -> Result<Vec<Stale>, Errno> {
        let Some(seat) = &fs.seat else { return Ok(Vec::new()) };
        let _changing = parent.changing.write();
        let root = parent.root()?;
        let (mut stale, mut dir, mut folder) = (Vec::new(), root, root);
        let names = names(path)?;
        for name in &names {
            dir = folder;
            // What is mounted over a part of the path is not what this lies in.
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
            // The directory may be gone, and then the kernel was told so.
            if let Ok(dir) = self.outward(parent, dir) {
                stale.extend([Stale::Name(dir, name), Stale::File(dir)]);
            }
        }
        *seat.name.lock() = name.to_vec();
        Ok(stale)
    }

    /// Puts files, of a dataset of this number, over the folder at a path below the root.
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

    /// Takes a file system out, which is gone already ([`Known`]). What the kernel still knows of
    /// it answers `ENOTCONN`.
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

    /// Gives back the places of a file system that is gone and of which the kernel knows nothing.
    fn bury(&self, fs: &Fs) {
        let places = std::mem::take(&mut *fs.places.write());
        places.into_values().chain(fs.main.get().copied()).for_each(|number| self.places.give_back(number));
    }
}

/// The names on a path below a root.
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

/// Where a directory leads: to the root of what covers it, if something does.
fn into(fs: Arc<Fs>, dir: Node) -> Result<(Arc<Fs>, Node), Errno> {
    match fs.cover(dir) {
        Some(child) => {
            let root = child.root()?;
            Ok((child, root))
        }
        None => Ok((fs, dir)),
    }
}

/// Whether this is a type that a file can have, as `st_mode` says it.
fn is_type(mode: u32) -> bool {
    matches!(mode >> 12, 0o1 | 0o2 | 0o4 | 0o6 | 0o10 | 0o12 | 0o14)
}

#[cfg(test)]
mod tests;
