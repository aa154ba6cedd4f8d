//! A nested file system, from mount to unmount.

use super::{Content, Flags, Fs, Nest};
use crate::dataset::Stale;
use crate::error::Error;
use crate::mount::Mount;
use crate::place::MountId;
use crate::served::Served;
use crate::system::{self, Detach, Options, Places};
use crate::tree::Node;
use crate::users::{Files, Which};
use crate::workers::Workers;
use observe::lock::{Mutex, RwLock};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, StatxFlags};
use rustix::io::Errno;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// How often an unmount has the kernel drop the nodes that it doesn't need.
const TRIES: u32 = 10;
/// How many users of a file system a message names.
const USERS_MAX: usize = 8;
/// How often the count of known nodes is checked after that, and the pause between checks.
const LOOKS: u32 = 20;
const PAUSE: Duration = Duration::from_millis(1);

/// A file system nested in the mount of another, which this process serves.
///
/// Dropping it does not unmount, as with a [`Mount`].
pub struct Nested {
    target: PathBuf,
    nest: Weak<Nest>,
    fs: Weak<Fs>,
    workers: Arc<Workers>,
    /// The number of the outer mount in `workers`.
    id: u64,
    mount: MountId,
    /// Set once the outer mount is no longer in the tree of mounts.
    detached: Arc<AtomicBool>,
    /// The options of the outer mount.
    around: Arc<RwLock<Options>>,
    /// The mountpoint of the outer mount.
    outer: PathBuf,
    /// Held during an unmount.
    turn: Mutex<()>,
}

impl Nested {
    /// Mounts `content` at `target`, which lies in the mount `top`. `dataset` is the object number
    /// of its dataset.
    ///
    /// # Errors
    /// * [`Error::Inside`]: it needs options that `top` doesn't have.
    /// * [`Error::Mount`] with `EBUSY`: a nested file system is mounted there already.
    /// * [`Error::Mount`] with `ENODEV`: no file system can be nested in `top`.
    /// * [`Error::Mount`] with `EINVAL`: the path does not lie in `top`, or contains `..`.
    /// * [`Error::Mount`] with `ENFILE`: no node numbers are left.
    /// * [`Error::Mount`] with another errno: the mountpoint can't be found, is no directory, or
    ///   the root of the content can't be read.
    pub(crate) fn new(
        top: &Mount,
        content: Content,
        dataset: u64,
        target: &Path,
        options: &Options,
    ) -> Result<Self, Error> {
        let failed = |source| Error::Mount { target: target.to_owned(), source };
        let (nest, around) = top.nest().ok_or_else(|| failed(Errno::NODEV))?;
        let outer = around.read();
        let flags = Flags::of(options);
        if let Some(what) = flags.missing(&outer) {
            return Err(Error::Inside { target: target.to_owned(), mount: top.target().to_owned(), what });
        }
        let path = target.strip_prefix(top.target()).map_err(|_| failed(Errno::INVAL))?;
        if let Content::Open(tree) = &content {
            // This loads the root, so that the first request is answered from memory.
            tree.attr(tree.root()).map_err(failed)?;
        }
        let fs = nest.put(path, content, dataset, flags).map_err(failed)?;
        let (workers, id, mount, detached) = top.served_by();
        let made = Self {
            target: target.to_owned(),
            nest: Arc::downgrade(&nest),
            fs: Arc::downgrade(&fs),
            workers,
            id,
            mount,
            detached,
            around: around.clone(),
            outer: top.target().to_owned(),
            turn: Mutex::default(),
        };
        drop(outer);
        made.tell_place(&nest, &fs);
        Ok(made)
    }

    fn here(&self) -> Option<(Arc<Nest>, Arc<Fs>)> {
        let (nest, fs) = (self.nest.upgrade()?, self.fs.upgrade()?);
        (!fs.known.is_gone()).then_some((nest, fs))
    }

    /// The path at which it was mounted.
    pub fn target(&self) -> &Path {
        &self.target
    }

    /// `st_dev` of its files, as major and minor number: that of the outer mount.
    pub fn device(&self) -> (u32, u32) {
        self.mount.device()
    }

    /// Whether it has been unmounted.
    pub fn is_over(&self) -> bool {
        self.here().is_none()
    }

    /// Whether it is still served although this process no longer has the outer mount mounted.
    pub fn lingers(&self) -> bool {
        self.detached.load(Ordering::Acquire) && !self.is_over()
    }

    /// Whether it is still mounted.
    pub fn is_attached(&self) -> bool {
        !self.is_over() && !self.lingers() && !self.workers.is_gone(self.id)
    }

    /// Whether it is the topmost mount at `path`.
    pub fn is_at(&self, path: &Path) -> bool {
        let Some((nest, fs)) = self.here() else { return false };
        let flags = AtFlags::NO_AUTOMOUNT | AtFlags::SYMLINK_NOFOLLOW;
        let Ok(stat) = rustix::fs::statx(CWD, path, flags, StatxFlags::INO) else { return false };
        // The statx(2) above has opened whatever is mounted there.
        (stat.stx_dev_major, stat.stx_dev_minor) == self.mount.device()
            && fs.open_tree().is_some()
            && nest.root_of(&fs).is_ok_and(|root| root.ino == stat.stx_ino)
    }

    /// Opens its files now, if they aren't open yet.
    ///
    /// # Errors
    /// [`Error::Mount`] with `ENOTCONN` if it has been unmounted, else with the errno by which the
    /// files can't be opened.
    pub fn open(&self) -> Result<(), Error> {
        let failed = |source| Error::Mount { target: self.target.clone(), source };
        let (_, fs) = self.here().ok_or_else(|| failed(Errno::NOTCONN))?;
        fs.tree().map(drop).map_err(failed)
    }

    /// Closes its files until the next use, if it is idle and can be opened again
    /// ([`Content::Later`]).
    ///
    /// `closing` runs before that. If it returns false, the files stay open. Returns whether they
    /// were closed.
    pub fn rest(&self, closing: impl FnOnce() -> bool) -> bool {
        self.here().is_some_and(|(_, fs)| fs.rest(closing))
    }

    /// Processes that use it, with the names of their programs. A few entries at most.
    pub fn users(&self) -> Vec<(u32, String)> {
        self.files().map(|files| files.users(USERS_MAX)).unwrap_or_default()
    }

    fn files(&self) -> Option<Files<'_>> {
        let (_, fs) = self.here()?;
        Some(Files { device: self.mount.device(), which: Which::Dataset(fs.dataset), target: &self.target })
    }

    /// Descriptions of what uses it, as far as `/proc` shows it.
    ///
    /// These are other mountpoints of a folder of it, processes, and loop devices: a few entries at
    /// most. `asker` is as in [`crate::Served::in_use_by`].
    pub fn holders(&self, asker: Option<u32>) -> Vec<String> {
        let below = self.target.strip_prefix(&self.outer).unwrap_or(&self.target);
        let bound =
            |places: Places| places.bound(&self.mount.device_text(), &Path::new("/").join(below), USERS_MAX);
        let bound = Places::read().map(bound).unwrap_or_default();
        let users = self.files().map(|files| files.holders(USERS_MAX, asker)).unwrap_or_default();
        bound.into_iter().chain(users).take(USERS_MAX).collect()
    }

    /// Whether it lies in another, at any depth.
    pub fn lies_in(&self, other: &Self) -> bool {
        let (Some((_, fs)), Some((_, other))) = (self.here(), other.here()) else { return false };
        let above = |fs: &Arc<Fs>| fs.seat.as_ref()?.parent.upgrade();
        std::iter::successors(above(&fs), above).any(|fs| Arc::ptr_eq(&fs, &other))
    }

    /// Moves it to where its path leads in `parent`, which was rolled back. Creates missing
    /// folders.
    ///
    /// Does nothing if its mountpoint is in another file system than `parent`.
    ///
    /// # Errors
    /// After an error it is mounted nowhere, and the caller has to unmount it by force.
    /// [`Error::Mount`], with:
    ///
    /// * `EBUSY`: another file system is mounted there now.
    /// * `ENOTDIR`: a component of the path is not a directory.
    /// * `EROFS`: a folder is missing, and `parent` was mounted read-only.
    /// * Any errno of [`crate::tree::FileTree::lookup`] and [`crate::tree::FileTree::create`].
    pub fn settle(&self, parent: &Served) -> Result<(), Error> {
        let failed = |source| Error::Mount { target: self.target.clone(), source };
        let Some((nest, fs)) = self.here() else { return Ok(()) };
        let Some(around) = fs.seat.as_ref().and_then(|seat| seat.parent.upgrade()) else { return Ok(()) };
        let its = match parent {
            Served::Own(mount) => {
                around.is_outer() && mount.nest().is_some_and(|(top, _)| Arc::ptr_eq(&top, &nest))
            }
            Served::Nested(other) => other.here().is_some_and(|(_, fs)| Arc::ptr_eq(&fs, &around)),
        };
        let Some(path) = self.target.strip_prefix(parent.target()).ok().filter(|_| its) else {
            return Ok(());
        };
        let stale = nest.settle(&around, &fs, path).map_err(failed)?;
        self.workers.tell(self.id, &stale);
        Ok(())
    }

    /// Changes its options. `readonly` always takes effect; other options do as far as the outer
    /// mount has them.
    ///
    /// # Errors
    /// * [`Error::Mount`] with `EINVAL`: it has been unmounted.
    /// * [`Error::Inside`]: some options don't take effect, since the outer mount has others. All
    ///   other options have taken effect.
    pub fn remount(&self, options: &Options) -> Result<(), Error> {
        let ended = || Error::Mount { target: self.target.clone(), source: Errno::INVAL };
        let (_, fs) = self.here().ok_or_else(ended)?;
        let around = self.around.read();
        // Whether ACLs count is settled when it is mounted.
        let acls = fs.flags.lock().is_some_and(|flags| flags.posix_acl);
        let flags = Flags { posix_acl: acls, ..Flags::of(options) };
        let before = fs.flags.lock().replace(flags.within(&around)).unwrap_or_default();
        let denied = {
            let mut denied = fs.denied.lock();
            *denied = flags.denied(before.or(*denied), &around);
            *denied
        };
        fs.read_only.store(flags.read_only, Ordering::Release);
        match [flags.missing(&around), denied.lifted()]
            .into_iter()
            .flatten()
            .reduce(|a, b| format!("{a}, {b}"))
        {
            Some(what) => Err(self.inside(what)),
            None => Ok(()),
        }
    }

    /// The error with which it can't have POSIX ACLs, since the mount around it has none. `None` if
    /// it can.
    pub fn refuses_acls(&self) -> Option<Error> {
        (!self.around.read().posix_acl).then(|| self.inside("acltype=posix".to_owned()))
    }

    fn inside(&self, what: String) -> Error {
        Error::Inside { target: self.target.clone(), mount: self.outer.clone(), what }
    }

    /// Runs `work` while no request of the outer mount is in progress. New requests wait until it
    /// returns.
    ///
    /// Before that, the kernel writes out what programs changed through memory maps.
    pub fn suspended<R>(&self, work: impl FnOnce() -> R) -> R {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        if let Ok(root) = rustix::fs::open(&self.target, flags, Mode::empty())
            && let Err(error) = rustix::fs::syncfs(root)
        {
            tracing::debug!(%error, "what the kernel has not written comes later");
        }
        self.workers.suspended(self.id, work)
    }

    /// Has the kernel drop cached data that are no longer true. `stale` has the file system's own
    /// nodes.
    ///
    /// This waits for requests in progress. So the caller must not hold anything for which a
    /// request waits.
    pub fn tell(&self, stale: &[Stale]) {
        let Some((nest, fs)) = self.here() else { return };
        let out = |node: &Node| nest.outward(&fs, *node);
        let stale = stale.iter().filter_map(|one| match one {
            Stale::File(node) => out(node).ok().map(Stale::File),
            Stale::Name(dir, name) => out(dir).ok().map(|dir| Stale::Name(dir, name.clone())),
        });
        self.workers.tell(self.id, &stale.collect::<Vec<_>>());
    }

    /// Has the kernel drop all that it has cached of a file ([`crate::Mount::drop_file`]).
    pub fn drop_file(&self, node: Node) -> bool {
        let Some((nest, fs)) = self.here() else { return false };
        nest.outward(&fs, node).is_ok_and(|node| self.workers.drop_file(self.id, node))
    }

    /// Has the kernel look its mountpoint up again.
    fn tell_place(&self, nest: &Nest, fs: &Fs) {
        let Some(seat) = &fs.seat else { return };
        let dir = seat.at.read().dir;
        let Some(dir) = seat.parent.upgrade().and_then(|parent| nest.outward(&parent, dir).ok()) else {
            return;
        };
        let name = seat.name.lock().clone();
        self.workers.tell(self.id, &[Stale::Name(dir, name), Stale::File(dir)]);
    }

    /// Unmounts. On return its tree is released; after a forced or lazy unmount, once the requests
    /// in progress are answered.
    ///
    /// After a forced or lazy unmount, processes that still use it get `ENOTCONN`. An unmount of
    /// what has been unmounted does nothing.
    ///
    /// # Errors
    /// * [`Error::Unmount`] with `EBUSY`: a process uses it, or something is mounted in it.
    /// * [`Error::Descriptors`]: too many open files.
    /// * [`Error::Table`]: the table of mounts can't be read.
    pub fn unmount(&self, how: Detach) -> Result<(), Error> {
        let _turn = self.turn.lock();
        let Some((nest, fs)) = self.here() else { return Ok(()) };
        if how == Detach::Normal {
            self.close(&nest, &fs)?;
            // A request may be opening it at this moment.
            let _opening = fs.opening.lock();
            nest.take_out(&fs);
        } else {
            fs.known.force();
            nest.take_out(&fs);
        }
        self.tell_place(&nest, &fs);
        Ok(())
    }

    /// Makes it gone if it is not in use.
    fn close(&self, nest: &Nest, fs: &Fs) -> Result<(), Error> {
        let busy = || Error::Unmount { target: self.target.clone(), source: Errno::BUSY };
        // If the kernel drops a mountpoint in it, it unmounts what is mounted there.
        let inside = |at: &Path| at.starts_with(&self.target) && at != self.target;
        if fs.covered.load(Ordering::Acquire) > 0
            || system::table()?.iter().any(|mount| inside(&mount.target))
        {
            return Err(busy());
        }
        for _ in 0..TRIES {
            self.tell_place(nest, fs);
            for _ in 0..LOOKS {
                if fs.known.close() {
                    return Ok(());
                }
                std::thread::sleep(PAUSE);
            }
        }
        // A lookup makes the kernel find it again by its name.
        if let Err(errno) = system::probe(&self.target) {
            tracing::debug!(target = %self.target.display(), %errno, "busy, and not found");
        }
        Err(busy())
    }
}
