//! A mounted tree, from mount to unmount.
//!
//! # Life
//! A mount has three states:
//!
//! | state | from | meaning |
//! |---|---|---|
//! | attached | [`Mount::new`] | it is in this process's mount namespace |
//! | lingering | an unmount that leaves other mounts of the same file system | still served |
//! | over | an unmount that leaves none | no longer served; the tree is released |
//!
//! Other mounts of the same file system are bind mounts, and copies of the mount in other mount
//! namespaces. The mount lingers until the last of them is gone. [`Mount::again`] attaches a
//! lingering file system again. Any process that may can unmount it, not only this one.

use crate::dataset::Stale;
use crate::dispatch::{Behaviour, MAX_READ};
use crate::error::Error;
use crate::nested::{Folder, Nest};
use crate::place::{Found, MountId, MountPoint};
use crate::reserve;
use crate::served::Nesting;
use crate::system::{self, Detach, Options, Places};
use crate::tree::{FileTree, Node};
use crate::users::{Files, Which};
use crate::workers::{Done, Workers};
use observe::lock::RwLock;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// How often [`Mount::unmount`] tries to unmount a mount that a process uses.
const TRIES: u32 = 40;
/// How often it tries if no process is seen to use the mount. On a busy machine, a program that
/// inspects all mounts may hold each of them that long.
const TRIES_UNUSED: u32 = 200;
/// How often it checks after an unmount whether the mount is over, before the mount lingers.
const LOOKS: u32 = 100;
/// The pause between two such tries or checks.
const PAUSE: Duration = Duration::from_millis(5);
/// How many users of a mount a message names.
const USERS_MAX: usize = 8;

/// A mount that this process serves.
///
/// Dropping it does not unmount. The workers serve the mount until it is unmounted or they end. To
/// unmount, call [`Mount::unmount`].
pub struct Mount {
    target: PathBuf,
    /// Distinguishes it from other mounts at the same path, earlier or later.
    mount: MountId,
    id: u64,
    done: Arc<Done>,
    workers: Arc<Workers>,
    /// Set once it is no longer in the tree of mounts.
    detached: Arc<AtomicBool>,
    /// The tree in which other file systems can be nested, if they can.
    nest: Option<Inside>,
}

/// The tree of a mount in which other file systems can be nested.
#[derive(Clone)]
struct Inside {
    tree: Weak<Nest>,
    /// The options of the mount. Locked for reading while a file system is being nested, and for
    /// writing while the options change.
    options: Arc<RwLock<Options>>,
}

impl Mount {
    /// Mounts `tree` at the directory `target` and serves it from `workers`.
    ///
    /// No component of `target` may be a symbolic link. On return the mount answers requests.
    ///
    /// # Errors
    /// * Those of [`system::attach`].
    /// * [`Error::Workers`]: the workers can't watch the FUSE device.
    /// * [`Error::Silent`]: the kernel mounted it, but the first request failed. It is unmounted
    ///   again.
    pub fn new(
        workers: &Arc<Workers>,
        tree: Arc<dyn FileTree>,
        target: &Path,
        options: &Options,
    ) -> Result<Self, Error> {
        let device = system::attach(target, options)?;
        let behaviour = Behaviour { posix_acl: options.posix_acl, ..Behaviour::default() };
        let (id, done) = match workers.serve(device, tree, behaviour) {
            Ok(served) => served,
            Err(error) => {
                undo(target);
                return Err(error);
            }
        };
        // The first request waits for the INIT handshake. Only after that can the readahead be set.
        match system::probe(target).and_then(|_| MountId::at(target)) {
            Ok(mount) => {
                let device = mount.device();
                system::raise_readahead(device.0, device.1, MAX_READ);
                let (target, workers) = (target.to_owned(), Arc::clone(workers));
                Ok(Self { target, mount, id, done, workers, detached: Arc::default(), nest: None })
            }
            Err(source) => {
                undo(target);
                workers.abandon(id);
                Err(Error::Silent { target: target.to_owned(), source })
            }
        }
    }

    /// Mounts `tree` in such a way that other file systems can be nested in it
    /// ([`crate::Served::new`]).
    ///
    /// # Errors
    /// Those of [`Mount::new`].
    pub fn with_nest(
        workers: &Arc<Workers>,
        tree: Arc<dyn FileTree>,
        target: &Path,
        options: &Options,
    ) -> Result<Self, Error> {
        let nest = Arc::new(Nest::new(tree, options.posix_acl));
        let tree = Arc::downgrade(&nest);
        let mount = Self::new(workers, nest, target, options)?;
        // `fusermount3` adds flags of its own.
        let options = Arc::new(RwLock::new(system::with_flags_of(target, options)));
        Ok(Self { nest: Some(Inside { tree, options }), ..mount })
    }

    /// The tree in which others can be nested, and the options of the mount. The options stay the
    /// same while the caller holds their lock.
    pub(crate) fn nest(&self) -> Option<(Arc<Nest>, &Arc<RwLock<Options>>)> {
        let nest = self.nest.as_ref()?;
        Some((nest.tree.upgrade()?, &nest.options))
    }

    /// Whether a file system with this mountpoint is to be nested in this mount.
    ///
    /// The mountpoint must lie in this mount, and no other mount in between. Then [`Nesting`]
    /// decides:
    ///
    /// * [`Nesting::Never`]: never nested.
    /// * [`Nesting::Needed`]: yes, if the mount lets no other user in. Such a mount keeps
    ///   `fusermount3` out, too.
    /// * [`Nesting::Always`]: always nested.
    pub fn nests(&self, path: &Path, nesting: Nesting) -> bool {
        let Some((_, options)) = self.nest() else { return false };
        let wanted = match nesting {
            Nesting::Never => false,
            Nesting::Needed => !options.read().allow_other,
            Nesting::Always => true,
        };
        let inside = path.starts_with(&self.target) && path != self.target;
        inside && wanted && system::device_around(path).is_ok_and(|at| at == self.mount.device())
    }

    /// Finds the folder at `path` in this mount, for a file system to nest, and creates missing
    /// folders.
    ///
    /// It works on the tree directly, without requests through the kernel. So it does not check
    /// whether this process may create the folders.
    ///
    /// # Errors
    /// [`Error::Mount`], with:
    ///
    /// * `ENODEV`: no file system can be nested in this mount.
    /// * `EINVAL`: the path does not lie in this mount, or contains `..`.
    /// * `ENOTDIR`: a component is not a directory. A symbolic link is none.
    /// * `EROFS`: a folder is missing, and the file system was mounted read-only.
    /// * Any errno of [`FileTree::lookup`], [`FileTree::create`] and [`FileTree::readdir`].
    pub fn folder(&self, path: &Path) -> Result<Folder, Error> {
        let failed = |source| Error::Mount { target: path.to_owned(), source };
        let (nest, _) = self.nest().ok_or_else(|| failed(Errno::NODEV))?;
        let below = path.strip_prefix(&self.target).map_err(|_| failed(Errno::INVAL))?;
        let (mut folder, stale) = nest.make(below).map_err(failed)?;
        self.tell(&stale);
        folder.made.iter_mut().for_each(|made| *made = self.target.join(&*made));
        Ok(folder)
    }

    /// The workers that serve it, its number there, its mount ID, and the flag that it is detached.
    pub(crate) fn served_by(&self) -> (Arc<Workers>, u64, MountId, Arc<AtomicBool>) {
        (Arc::clone(&self.workers), self.id, self.mount, Arc::clone(&self.detached))
    }

    /// Mounts the file system of a lingering mount at `target`.
    ///
    /// # Errors
    /// * [`Error::Mount`] with `ENODEV`: the mount is over.
    /// * [`Error::Mount`] with `EBUSY`: another mount appeared at `target` meanwhile.
    /// * [`Error::Mount`] with another errno: the kernel refuses. Kernels before Linux 5.15 do, and
    ///   every kernel if this process mounts through `fusermount3`.
    pub fn again(&self, target: &Path, options: &Options) -> Result<Self, Error> {
        let failed = |source| Error::Mount { target: target.to_owned(), source };
        self.workers
            .with_device(self.id, |device| system::attach_device(device, target, options))
            .ok_or_else(|| failed(Errno::NODEV))??;
        match MountId::at(target) {
            Ok(mount) if mount.device() == self.mount.device() => {
                // File systems nested in it are attached again, too.
                self.detached.store(false, Ordering::Release);
                Ok(Self {
                    target: target.to_owned(),
                    mount,
                    id: self.id,
                    done: Arc::clone(&self.done),
                    workers: Arc::clone(&self.workers),
                    detached: Arc::clone(&self.detached),
                    nest: self.nest.clone(),
                })
            }
            Ok(_) => Err(failed(Errno::BUSY)),
            Err(errno) => {
                undo(target);
                Err(failed(errno))
            }
        }
    }

    /// The path at which it was mounted.
    pub fn target(&self) -> &Path {
        &self.target
    }

    /// `st_dev` of its files, as major and minor number.
    pub fn device(&self) -> (u32, u32) {
        self.mount.device()
    }

    /// Whether it is no longer mounted anywhere, and so no longer served.
    pub fn is_over(&self) -> bool {
        self.done.is_over()
    }

    /// Whether it is still served although this process no longer has it mounted.
    ///
    /// This tells what the last check found; it does not check itself ([`Mount::is_attached`]
    /// does).
    pub fn lingers(&self) -> bool {
        self.detached.load(Ordering::Acquire) && !self.is_over()
    }

    /// Whether it is still mounted. Checks whether another process has unmounted it.
    pub fn is_attached(&self) -> bool {
        if self.is_over() || self.detached.load(Ordering::Acquire) {
            return false;
        }
        if self.mount.leads(&self.target) {
            return true;
        }
        if matches!(self.mount.find(&self.target), Ok(Found::Gone)) {
            self.left();
            return false;
        }
        true
    }

    /// Whether this mount is the topmost one at `path`.
    pub fn is_at(&self, path: &Path) -> bool {
        self.mount.leads(path)
    }

    /// Processes that have it mounted, with the names of their programs.
    ///
    /// The list has one process for each mount namespace, and a few entries at most.
    pub fn users(&self) -> Vec<(u32, String)> {
        system::seen_by(&self.mount.device_text(), USERS_MAX)
    }

    /// Descriptions of what has it mounted: other mountpoints, and processes in other mount
    /// namespaces.
    ///
    /// The list has a few entries at most. It is empty if the table of mounts can't be read.
    pub fn holders(&self) -> Vec<String> {
        Places::read().map_or_else(|_| Vec::new(), |p| p.holders(&self.mount.device_text(), USERS_MAX))
    }

    /// Descriptions of what uses it in this mount namespace, as far as `/proc` shows it.
    ///
    /// The list has a few processes and loop devices at most. `asker` is as in
    /// [`crate::Served::in_use_by`].
    pub(crate) fn in_use_by(&self, asker: Option<u32>) -> Vec<String> {
        let by = |which| Files { device: self.device(), which, target: &self.target };
        let found = by(Which::Mount(self.mount.row())).holders(USERS_MAX, asker);
        // An unmount here can unmount copies of it in other namespaces, and those may be in use.
        if found.is_empty() { by(Which::Mount(None)).holders(USERS_MAX, asker) } else { found }
    }

    /// What would keep it mounted if this process unmounted it now.
    ///
    /// That is another mountpoint, or a process in another mount namespace. `None` if nothing is
    /// certain to keep it.
    pub fn keeper(&self, places: &Places) -> Option<String> {
        match self.mount.find(&self.target) {
            Ok(Found::At(place)) => places.keeper(&self.mount.device_text(), &place.path),
            Ok(Found::Hidden | Found::Gone) | Err(_) => None,
        }
    }

    /// Changes the options while it is mounted. Only root may.
    ///
    /// # Errors
    /// * [`Error::Holds`]: a file system nested in it relies on an option that would change.
    /// * [`Error::Mount`] with `EINVAL`: it is not mounted where this process sees it.
    /// * [`Error::Mount`] with another errno: the kernel refuses; `EPERM` if this process is not
    ///   root.
    /// * [`Error::Unmount`] with `EBUSY`: another mount hides it.
    /// * [`Error::Descriptors`]: too many open files.
    /// * [`Error::Table`]: the table of mounts can't be read.
    pub fn remount(&self, options: &Options) -> Result<(), Error> {
        let Some((nest, now)) = self.nest() else { return self.remount_itself(options) };
        let mut now = now.write();
        if let Some(what) = nest.refuses(options) {
            return Err(Error::Holds { target: self.target.clone(), what });
        }
        self.remount_itself(options)?;
        *now = Options { posix_acl: now.posix_acl, ..options.clone() };
        Ok(())
    }

    /// Refuses changes of its own file system from now on, or allows them again. Nested file
    /// systems stay as they are.
    ///
    /// This serves processes that may not change mount options. Programs that have mapped files go
    /// on changing them through the maps.
    ///
    /// Returns whether it had an effect: it has only on mounts in which others can be nested.
    pub fn keep_unchanged(&self, read_only: bool) -> bool {
        let Some((nest, _)) = self.nest() else { return false };
        nest.keep_unchanged(read_only);
        true
    }

    fn remount_itself(&self, options: &Options) -> Result<(), Error> {
        let failed = |source| Error::Mount { target: self.target.clone(), source };
        let root = self.root(OFlags::PATH)?.ok_or_else(|| failed(Errno::INVAL))?;
        system::remount(&system::by_number(&root), options).map_err(|error| match error {
            Error::Mount { source, .. } => failed(source),
            error => error,
        })
    }

    /// Opens its root directory. `None` if it is not mounted here, or hidden by another mount.
    fn root(&self, flags: OFlags) -> Result<Option<OwnedFd>, Error> {
        let Some(place) = self.place()? else { return Ok(None) };
        let flags = flags | OFlags::DIRECTORY | OFlags::CLOEXEC;
        match rustix::fs::open(place.by_number(), flags, Mode::empty()) {
            Ok(root) if self.mount.leads(&system::by_number(&root).join(".")) => Ok(Some(root)),
            Ok(_) | Err(_) => Ok(None),
        }
    }

    /// Runs `work` while no request of the kernel is in progress. New requests wait until it
    /// returns.
    ///
    /// Before that, the kernel writes out what programs changed through memory maps.
    pub fn suspended<R>(&self, work: impl FnOnce() -> R) -> R {
        // A lingering mount has no path at which the kernel can be reached.
        if let Ok(Some(root)) = self.root(OFlags::RDONLY)
            && let Err(error) = rustix::fs::syncfs(root)
        {
            tracing::debug!(%error, "what the kernel has not written comes later");
        }
        self.workers.suspended(self.id, work)
    }

    /// Has the kernel drop cached data that are no longer true.
    ///
    /// This waits for requests in progress. So the caller must not hold anything for which a
    /// request waits.
    pub fn tell(&self, stale: &[Stale]) {
        self.workers.tell(self.id, stale);
    }

    /// Has the kernel drop all that it has cached of a file. Returns whether the kernel knew the
    /// file.
    ///
    /// If it did, it will send a FORGET for the file. This waits for requests in progress, as
    /// [`Mount::tell`] does.
    pub fn drop_file(&self, node: Node) -> bool {
        self.workers.drop_file(self.id, node)
    }

    /// Unmounts. On return the mount is over and its tree released, unless it lingers.
    ///
    /// After a forced or lazy unmount the mount is over in any case, and processes that still use
    /// it get `ENOTCONN`. After a failure the workers serve the mount as before. An unmount of a
    /// mount that is over does nothing.
    ///
    /// # Errors
    /// * [`Error::Unmount`] with `EBUSY`: a process uses the mount, another mount hides it, or file
    ///   systems are nested in it.
    /// * [`Error::Unmount`] with another errno: the kernel refuses.
    /// * [`Error::Helper`], [`Error::HelperRefused`]: `fusermount3` can't be run, or refuses.
    /// * [`Error::Descriptors`]: too many open files, and the reserve has none left.
    /// * [`Error::Table`]: the table of mounts can't be read.
    pub fn unmount(&self, how: Detach) -> Result<(), Error> {
        if self.is_over() {
            return Ok(());
        }
        if how == Detach::Normal && self.nest().is_some_and(|(nest, _)| nest.count() > 0) {
            return Err(Error::Unmount { target: self.target.clone(), source: Errno::BUSY });
        }
        if let Some(place) = self.place_at_last()? {
            match (self.detach(&place, how), how) {
                // Forcing aborts all requests in progress, so nothing is left to serve. But an open
                // file or a working directory still keeps the mount in place.
                (Err(error), Detach::Force) if error.is_busy() => self.detach(&place, Detach::Lazy)?,
                (result, _) => result?,
            }
            // Before the place is released: the next thread that unmounts must see it.
            self.detached.store(true, Ordering::Release);
        }
        self.left();
        match how {
            Detach::Normal if self.lingers() => self.tell_users(),
            Detach::Normal => {}
            Detach::Force | Detach::Lazy => self.end(),
        }
        Ok(())
    }

    /// Removes it from the tree of mounts and goes on serving it. Does not wait for users to
    /// finish.
    ///
    /// With [`Detach::Force`] requests in progress fail, and a mount in use stays where it is.
    ///
    /// # Errors
    /// Those of [`Mount::unmount`].
    pub fn leave_tree(&self, how: Detach) -> Result<(), Error> {
        match self.place_at_last()? {
            Some(place) => self.detach(&place, how),
            None => Ok(()),
        }
    }

    /// Notes that it is no longer in the tree of mounts, and ends it if nothing else has it
    /// mounted.
    fn left(&self) {
        self.detached.store(true, Ordering::Release);
        // A process that makes a new mount namespace has copies of all mounts there until it
        // unmounts them.
        for _ in 0..LOOKS {
            if self.is_over() || self.workers.is_gone(self.id) {
                return self.end();
            }
            std::thread::sleep(PAUSE);
        }
    }

    fn end(&self) {
        self.workers.abandon(self.id);
        self.done.wait();
    }

    fn tell_users(&self) {
        let target = self.target.display();
        tracing::info!(%target, users = ?self.users(), "unmounted here, and served for those who have it mounted elsewhere");
    }

    /// Removes it from the tree of mounts.
    ///
    /// Programs that inspect all mounts hold each of them for a moment: `df` does, and a starting
    /// daemon. So a busy mount is retried. It is retried longer if neither a process nor another
    /// mount is seen to use it.
    fn detach(&self, place: &MountPoint, how: Detach) -> Result<(), Error> {
        let (at, path) = (place.by_number(), &place.path);
        for tried in 1..TRIES_UNUSED {
            match system::detach_at(&at, path, how) {
                Err(error) if error.is_busy() && how == Detach::Normal => {
                    if tried == TRIES && self.is_used(path) {
                        return Err(error);
                    }
                    std::thread::sleep(PAUSE);
                }
                done => return done,
            }
        }
        system::detach_at(&at, path, how)
    }

    /// Whether a process uses it, or another mount lies in it.
    fn is_used(&self, path: &Path) -> bool {
        let below = |mount: &system::Mounted| mount.target != path && mount.target.starts_with(path);
        !self.users().is_empty() || system::table().map_or(true, |table| table.iter().any(below))
    }

    /// As [`Mount::place`], but with the reserve of open files if this process has no others left.
    fn place_at_last(&self) -> Result<Option<MountPoint>, Error> {
        match self.place() {
            // The returned place holds one open file until it is dropped. The reserve is short of
            // it meanwhile.
            Err(error) if error.lacks_descriptors() => reserve::with(|| self.place()),
            found => found,
        }
    }

    /// Where it is mounted. `None` if it no longer is.
    ///
    /// # Errors
    /// * [`Error::Unmount`] with `EBUSY`: another mount hides it.
    /// * [`Error::Descriptors`]: too many open files.
    /// * [`Error::Table`]: the table of mounts can't be read.
    fn place(&self) -> Result<Option<MountPoint>, Error> {
        if self.is_over() || self.detached.load(Ordering::Acquire) {
            return Ok(None);
        }
        match self.mount.find(&self.target)? {
            Found::At(place) => Ok(Some(place)),
            Found::Gone => Ok(None),
            // Another thread was quicker, and another mount may have its numbers.
            Found::Hidden if self.is_over() || self.detached.load(Ordering::Acquire) => Ok(None),
            Found::Hidden => Err(Error::Unmount { target: self.target.clone(), source: Errno::BUSY }),
        }
    }
}

fn undo(target: &Path) {
    if let Err(error) = system::detach(target, Detach::Lazy) {
        tracing::error!(%error, "a mount that failed stays behind");
    }
}
