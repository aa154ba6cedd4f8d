//! A mounted tree, from mount to unmount.
//!
//! # Life
//! A mount is *attached* from [`Mount::new`] until it is unmounted, by us or by somebody else. Then
//! it is *over*, unless the kernel has more places of the same file system: bind mounts, or copies
//! of the mount in other namespaces of mounts. Those go on being served, and the mount *lingers*
//! until the last of them is gone. [`Mount::again`] gives a file system that lingers a place in the
//! tree again.

use crate::dataset::Stale;
use crate::dispatch::{Behaviour, MAX_READ};
use crate::error::Error;
use crate::nested::{Folder, Nest};
use crate::place::{Found, MountId, Place};
use crate::reserve;
use crate::served::Nesting;
use crate::system::{self, Detach, Options, Places};
use crate::tree::{Node, Tree};
use crate::users::{Files, Which};
use crate::workers::{Done, Workers};
use parking_lot::RwLock;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// How often a mount is unmounted that is busy.
const TRIES: u32 = 10;
/// How often one that was unmounted is asked whether it is over, before it lingers.
const LOOKS: u32 = 100;
/// How long apart.
const PAUSE: Duration = Duration::from_millis(5);
/// How many users of a mount are named.
const USERS_MAX: usize = 8;

/// A mount that this process serves.
///
/// Dropping it leaves the mount as it is, served until somebody unmounts it or the workers end; call
/// [`Mount::unmount`].
pub struct Mount {
    target: PathBuf,
    /// By which it is told from what else is mounted there, or was.
    mount: MountId,
    id: u64,
    done: Arc<Done>,
    workers: Arc<Workers>,
    /// It is no longer in the tree of names.
    detached: Arc<AtomicBool>,
    /// What others can be nested in, if they can.
    nest: Option<Inside>,
}

/// The inside of a mount in which others can be nested.
#[derive(Clone)]
struct Inside {
    tree: Weak<Nest>,
    /// How it is mounted. Held while something is nested in it, and while that changes.
    options: Arc<RwLock<Options>>,
}

impl Mount {
    /// Mounts `tree` at the directory `target`, whose path has no link in it, and serves it from `workers`. On return the mount answers.
    pub fn new(
        workers: &Arc<Workers>,
        tree: Arc<dyn Tree>,
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
        // The first question waits for the handshake, after which the readahead may be set.
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

    /// Mounts `tree` in such a way that others can be nested in it ([`crate::Served::new`]).
    ///
    /// # Errors
    /// As [`Mount::new`].
    pub fn with_nest(
        workers: &Arc<Workers>,
        tree: Arc<dyn Tree>,
        target: &Path,
        options: &Options,
    ) -> Result<Self, Error> {
        let nest = Arc::new(Nest::new(tree, options.posix_acl));
        let tree = Arc::downgrade(&nest);
        let mount = Self::new(workers, nest, target, options)?;
        // `fusermount3` adds some.
        let options = Arc::new(RwLock::new(system::with_flags_of(target, options)));
        Ok(Self { nest: Some(Inside { tree, options }), ..mount })
    }

    /// The tree in which others can be nested, and how it is mounted, which stays so as long as
    /// that is held.
    pub(crate) fn nest(&self) -> Option<(Arc<Nest>, &Arc<RwLock<Options>>)> {
        let nest = self.nest.as_ref()?;
        Some((nest.tree.upgrade()?, &nest.options))
    }

    /// Whether a path lies in it, at which something else is to be mounted, and that is to be
    /// nested: always, or if this process may not mount there, and the mount lets no other user in
    /// who could.
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

    /// Finds a folder in it, for a file system that it nests, and makes what is missing of its path:
    /// whatever this process may do with these folders. Nothing is asked through the kernel.
    ///
    /// # Errors
    /// [`Error::Mount`]: `ENOTDIR` for a link too; as making a folder fails.
    pub fn folder(&self, path: &Path) -> Result<Folder, Error> {
        let failed = |source| Error::Mount { target: path.to_owned(), source };
        let (nest, _) = self.nest().ok_or_else(|| failed(Errno::NODEV))?;
        let below = path.strip_prefix(&self.target).map_err(|_| failed(Errno::INVAL))?;
        let (mut folder, stale) = nest.make(below).map_err(failed)?;
        self.tell(&stale);
        folder.made.iter_mut().for_each(|made| *made = self.target.join(&*made));
        Ok(folder)
    }

    /// By whom it is served, and what shows that it is.
    pub(crate) fn served_by(&self) -> (Arc<Workers>, u64, MountId, Arc<AtomicBool>) {
        (Arc::clone(&self.workers), self.id, self.mount, Arc::clone(&self.detached))
    }

    /// Mounts the file system of a mount that lingers at `target`, too.
    ///
    /// # Errors
    /// [`Error::Mount`] if the system refuses: before Linux 5.15, and to those who mount by a
    /// helper.
    pub fn again(&self, target: &Path, options: &Options) -> Result<Self, Error> {
        let failed = |source| Error::Mount { target: target.to_owned(), source };
        self.workers
            .with_device(self.id, |device| system::attach_device(device, target, options))
            .ok_or_else(|| failed(Errno::NODEV))??;
        match MountId::at(target) {
            Ok(mount) if mount.device() == self.mount.device() => {
                // What is nested in it is in the tree again, too.
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

    /// Where it was mounted.
    pub fn target(&self) -> &Path {
        &self.target
    }

    /// `st_dev` of its files.
    pub fn device(&self) -> (u32, u32) {
        self.mount.device()
    }

    /// Whether it has ended: nobody has it mounted.
    pub fn is_over(&self) -> bool {
        self.done.is_over()
    }

    /// Whether it is served for others, and mounted nowhere that this process sees, as far as was
    /// noticed.
    pub fn lingers(&self) -> bool {
        self.detached.load(Ordering::Acquire) && !self.is_over()
    }

    /// Notices if somebody else unmounted it; says whether it is still mounted.
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

    /// Whether this is what is mounted at a path.
    pub fn is_at(&self, path: &Path) -> bool {
        self.mount.leads(path)
    }

    /// Processes that have it mounted, one for each namespace of mounts: a few, with their
    /// programs.
    pub fn users(&self) -> Vec<(u32, String)> {
        system::seen_by(&self.mount.device_text(), USERS_MAX)
    }

    /// Who has it mounted, in words: other mountpoints, and a few processes in other namespaces of
    /// mounts.
    pub fn holders(&self) -> Vec<String> {
        Places::read().map_or_else(|_| Vec::new(), |p| p.holders(&self.mount.device_text(), USERS_MAX))
    }

    /// Who uses it here, in words, as far as that can be told: a few processes and loop devices.
    /// `asker` is as in [`crate::Served::in_use_by`].
    pub(crate) fn in_use_by(&self, asker: Option<u32>) -> Vec<String> {
        let by = |which| Files { device: self.device(), which, target: &self.target };
        let found = by(Which::Mount(self.mount.row())).holders(USERS_MAX, asker);
        // To unmount it may unmount copies of it, which may be used.
        if found.is_empty() { by(Which::Mount(None)).holders(USERS_MAX, asker) } else { found }
    }

    /// What would keep it served if it were unmounted now: another mountpoint, or a process in
    /// another namespace of mounts. `None` if nothing surely does.
    pub fn keeper(&self, places: &Places) -> Option<String> {
        match self.mount.find(&self.target) {
            Ok(Found::At(place)) => places.keeper(&self.mount.device_text(), &place.path),
            Ok(Found::Hidden | Found::Gone) | Err(_) => None,
        }
    }

    /// Lets other options take effect while it is mounted. Only root may.
    ///
    /// # Errors
    /// [`Error::Mount`] if the system refuses; [`Error::Holds`] if they would take from what is
    /// nested in it what that says.
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

    /// Refuses changes of its own file system, and not of those nested in it, or lets them again:
    /// for those whom the system doesn't let change a mount. Programs that have maps of files go on
    /// changing them. Says whether it could: only where others can be nested.
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

    /// Opens its root, if it is mounted and not hidden.
    fn root(&self, flags: OFlags) -> Result<Option<OwnedFd>, Error> {
        let Some(place) = self.place()? else { return Ok(None) };
        let flags = flags | OFlags::DIRECTORY | OFlags::CLOEXEC;
        match rustix::fs::open(place.by_number(), flags, Mode::empty()) {
            Ok(root) if self.mount.leads(&system::by_number(&root).join(".")) => Ok(Some(root)),
            Ok(_) | Err(_) => Ok(None),
        }
    }

    /// Does something while nothing that the kernel asks is under way; what it asks waits. What programs changed through maps of files comes before.
    pub fn suspended<R>(&self, work: impl FnOnce() -> R) -> R {
        // One that lingers has no place at which the kernel could be asked.
        if let Ok(Some(root)) = self.root(OFlags::RDONLY)
            && let Err(error) = rustix::fs::syncfs(root)
        {
            tracing::debug!(%error, "what the kernel has not written comes later");
        }
        self.workers.suspended(self.id, work)
    }

    /// Has the kernel drop what it knows and is no longer so. No request may wait for who calls this.
    pub fn tell(&self, stale: &[Stale]) {
        self.workers.tell(self.id, stale);
    }

    /// Has the kernel drop all that it knows of a file, and says whether it knew the file: then it
    /// will say when it forgets it. No request may wait for who calls this.
    pub fn drop_file(&self, node: Node) -> bool {
        self.workers.drop_file(self.id, node)
    }

    /// Unmounts. When this returns, it is over, and its tree released, unless it lingers.
    ///
    /// After a forced or lazy unmount it is over in any case, and whoever still uses it gets
    /// `ENOTCONN`.
    /// After a failure (say, because it is busy) the mount is served as before.
    ///
    /// # Errors
    /// [`Error::Unmount`] with `EBUSY` if it is used or hidden by another mount; as the system
    /// refuses it.
    pub fn unmount(&self, how: Detach) -> Result<(), Error> {
        if self.is_over() {
            return Ok(());
        }
        if how == Detach::Normal && self.nest().is_some_and(|(nest, _)| nest.count() > 0) {
            return Err(Error::Unmount { target: self.target.clone(), source: Errno::BUSY });
        }
        if let Some(place) = self.place_at_last()? {
            match (self.detach(&place, how), how) {
                // Forcing aborts whatever is under way, so nothing is left to serve, but an open
                // file or a working directory keeps the mount in place.
                (Err(error), Detach::Force) if error.is_busy() => self.detach(&place, Detach::Lazy)?,
                (result, _) => result?,
            }
        }
        self.left();
        match how {
            Detach::Normal if self.lingers() => self.tell_users(),
            Detach::Normal => {}
            Detach::Force | Detach::Lazy => self.end(),
        }
        Ok(())
    }

    /// Takes it out of the tree of names and goes on serving it, without waiting for anything. With
    /// [`Detach::Force`] what is under way fails, and a mount that is used stays where it is.
    ///
    /// # Errors
    /// As [`Mount::unmount`].
    pub fn leave_tree(&self, how: Detach) -> Result<(), Error> {
        match self.place_at_last()? {
            Some(place) => self.detach(&place, how),
            None => Ok(()),
        }
    }

    /// It is no longer in the tree. If nothing else has it mounted, it ends.
    fn left(&self) {
        self.detached.store(true, Ordering::Release);
        // A new namespace of mounts has copies until its maker has unmounted them.
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

    /// Takes it out of the tree. Whoever looks at all mounts, as `df` does and a daemon that starts, holds each for a moment: that is waited for.
    fn detach(&self, place: &Place, how: Detach) -> Result<(), Error> {
        let (at, path) = (place.by_number(), &place.path);
        for _ in 1..TRIES {
            match system::detach_at(&at, path, how) {
                Err(error) if error.is_busy() && how == Detach::Normal => std::thread::sleep(PAUSE),
                done => return done,
            }
        }
        system::detach_at(&at, path, how)
    }

    /// The same, with the reserve of open files if there are no others.
    fn place_at_last(&self) -> Result<Option<Place>, Error> {
        match self.place() {
            // The place keeps a file that the reserve lacks until it is dropped.
            Err(error) if error.lacks_descriptors() => reserve::with(|| self.place()),
            found => found,
        }
    }

    /// Where it is mounted; `None` if it isn't any more.
    ///
    /// # Errors
    /// `EBUSY` if something else is mounted over it.
    fn place(&self) -> Result<Option<Place>, Error> {
        if self.is_over() || self.detached.load(Ordering::Acquire) {
            return Ok(None);
        }
        match self.mount.find(&self.target)? {
            Found::At(place) => Ok(Some(place)),
            Found::Gone => Ok(None),
            Found::Hidden => Err(Error::Unmount { target: self.target.clone(), source: Errno::BUSY }),
        }
    }
}

fn undo(target: &Path) {
    if let Err(error) = system::detach(target, Detach::Lazy) {
        tracing::error!(%error, "a mount that failed stays behind");
    }
}
