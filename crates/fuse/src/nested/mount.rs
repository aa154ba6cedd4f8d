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
use parking_lot::{Mutex, RwLock};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, StatxFlags};
use rustix::io::Errno;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// How often the kernel is told to drop what it doesn't need of one that is to be unmounted.
const TRIES: u32 = 10;
/// How many of its users are named.
const USERS_MAX: usize = 8;
/// How often after that the count is looked at, and how long apart.
const LOOKS: u32 = 20;
const PAUSE: Duration = Duration::from_millis(1);

/// A file system in the mount of another, which this process serves.
///
/// Dropping it leaves it where it is, as dropping a [`Mount`] does.
pub struct Nested {
    target: PathBuf,
    nest: Weak<Nest>,
    fs: Weak<Fs>,
    workers: Arc<Workers>,
    /// The outer mount.
    id: u64,
    mount: MountId,
    /// The outer mount is no longer in the tree of names.
    detached: Arc<AtomicBool>,
    /// How the outer mount is mounted.
    around: Arc<RwLock<Options>>,
    /// Where that is.
    outer: PathBuf,
    /// Held while it is unmounted.
    turn: Mutex<()>,
}

impl Nested {
    /// Shows `content`, of the dataset with this object number, at `target`, which lies in the
    /// mount `top`.
    ///
    /// # Errors
    /// [`Error::Mount`] with `EBUSY` if something is mounted there already, and as the folder can't
    /// be found; [`Error::Inside`] if `options` say what can't be had in another's mount.
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
            // Its first request is answered from memory.
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

    /// Where it was mounted.
    pub fn target(&self) -> &Path {
        &self.target
    }

    /// `st_dev` of its files, which is that of the outer mount.
    pub fn device(&self) -> (u32, u32) {
        self.mount.device()
    }

    /// Whether it has ended.
    pub fn is_over(&self) -> bool {
        self.here().is_none()
    }

    /// Whether it is served for others, and mounted nowhere that this process sees.
    pub fn lingers(&self) -> bool {
        self.detached.load(Ordering::Acquire) && !self.is_over()
    }

    /// Whether it is mounted.
    pub fn is_attached(&self) -> bool {
        !self.is_over() && !self.lingers() && !self.workers.is_gone(self.id)
    }

    /// Whether it is what is mounted at a path.
    pub fn is_at(&self, path: &Path) -> bool {
        let Some((nest, fs)) = self.here() else { return false };
        let flags = AtFlags::NO_AUTOMOUNT | AtFlags::SYMLINK_NOFOLLOW;
        let Ok(stat) = rustix::fs::statx(CWD, path, flags, StatxFlags::INO) else { return false };
        // Whatever is there was opened by that question.
        (stat.stx_dev_major, stat.stx_dev_minor) == self.mount.device()
            && fs.open_tree().is_some()
            && nest.root_of(&fs).is_ok_and(|root| root.ino == stat.stx_ino)
    }

    /// Opens its files, if they aren't.
    ///
    /// # Errors
    /// [`Error::Mount`] as that fails, and with `ENOTCONN` if it has ended.
    pub fn open(&self) -> Result<(), Error> {
        let failed = |source| Error::Mount { target: self.target.clone(), source };
        let (_, fs) = self.here().ok_or_else(|| failed(Errno::NOTCONN))?;
        fs.tree().map(drop).map_err(failed)
    }

    /// Closes its files until they are used again, if nothing uses them and they are opened late.
    /// `closing` is called before, and may refuse. Says whether they were.
    pub fn rest(&self, closing: impl FnOnce() -> bool) -> bool {
        self.here().is_some_and(|(_, fs)| fs.rest(closing))
    }

    /// Processes that use it, and their programs: a few.
    pub fn users(&self) -> Vec<(u32, String)> {
        self.files().map(|files| files.users(USERS_MAX)).unwrap_or_default()
    }

    fn files(&self) -> Option<Files<'_>> {
        let (_, fs) = self.here()?;
        Some(Files { device: self.mount.device(), which: Which::Dataset(fs.dataset), target: &self.target })
    }

    /// Who uses it, in words: other mountpoints of a folder of it, and a few processes and loop
    /// devices. `asker` is as in [`crate::Served::in_use_by`].
    pub fn holders(&self, asker: Option<u32>) -> Vec<String> {
        let below = self.target.strip_prefix(&self.outer).unwrap_or(&self.target);
        let bound =
            |places: Places| places.bound(&self.mount.device_text(), &Path::new("/").join(below), USERS_MAX);
        let bound = Places::read().map(bound).unwrap_or_default();
        let users = self.files().map(|files| files.holders(USERS_MAX, asker)).unwrap_or_default();
        bound.into_iter().chain(users).take(USERS_MAX).collect()
    }

    /// Whether it lies in another, at whatever depth.
    pub fn lies_in(&self, other: &Self) -> bool {
        let (Some((_, fs)), Some((_, other))) = (self.here(), other.here()) else { return false };
        let above = |fs: &Arc<Fs>| fs.seat.as_ref()?.parent.upgrade();
        std::iter::successors(above(&fs), above).any(|fs| Arc::ptr_eq(&fs, &other))
    }

    /// Has it lie where its path leads in the file system of its mountpoint, which was rolled back
    /// to another state. What is missing of the path is made.
    ///
    /// Nothing is done if its mountpoint is in another file system than `parent`.
    ///
    /// # Errors
    /// [`Error::Mount`]: `EBUSY` if something else is mounted there now; `ENOTDIR`; as making a
    /// folder fails. Then it is mounted nowhere, and is to be unmounted by force.
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

    /// Lets other options take effect: `readonly`, and of the others what the outer mount has.
    ///
    /// # Errors
    /// [`Error::Mount`] with `EINVAL` if it has ended; [`Error::Inside`] if one of them takes no
    /// effect. All the others have.
    pub fn remount(&self, options: &Options) -> Result<(), Error> {
        let ended = || Error::Mount { target: self.target.clone(), source: Errno::INVAL };
        let (_, fs) = self.here().ok_or_else(ended)?;
        let around = self.around.read();
        // Whether ACLs count is agreed upon when it is mounted.
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

    /// Why it can't have POSIX ACLs, if it can't: the mount around it has none.
    pub fn refuses_acls(&self) -> Option<Error> {
        (!self.around.read().posix_acl).then(|| self.inside("acltype=posix".to_owned()))
    }

    fn inside(&self, what: String) -> Error {
        Error::Inside { target: self.target.clone(), mount: self.outer.clone(), what }
    }

    /// Does something while nothing that the kernel asks of the outer mount is under way. What
    /// programs changed through maps of files comes before.
    pub fn suspended<R>(&self, work: impl FnOnce() -> R) -> R {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        if let Ok(root) = rustix::fs::open(&self.target, flags, Mode::empty())
            && let Err(error) = rustix::fs::syncfs(root)
        {
            tracing::debug!(%error, "what the kernel has not written comes later");
        }
        self.workers.suspended(self.id, work)
    }

    /// Has the kernel drop what it knows and is no longer so, by the file system's own nodes. No
    /// request may wait for who calls this.
    pub fn tell(&self, stale: &[Stale]) {
        let Some((nest, fs)) = self.here() else { return };
        let out = |node: &Node| nest.outward(&fs, *node);
        let stale = stale.iter().filter_map(|one| match one {
            Stale::File(node) => out(node).ok().map(Stale::File),
            Stale::Name(dir, name) => out(dir).ok().map(|dir| Stale::Name(dir, name.clone())),
        });
        self.workers.tell(self.id, &stale.collect::<Vec<_>>());
    }

    /// As [`crate::Mount::drop_file`].
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

    /// Unmounts. When this returns its tree is released, but for requests that are under way after
    /// a forced or lazy unmount; who still uses it then gets `ENOTCONN`.
    ///
    /// # Errors
    /// [`Error::Unmount`] with `EBUSY` if it is used, or something is mounted in it.
    pub fn unmount(&self, how: Detach) -> Result<(), Error> {
        let _turn = self.turn.lock();
        let Some((nest, fs)) = self.here() else { return Ok(()) };
        if how == Detach::Normal {
            self.close(&nest, &fs)?;
            // A request may be opening it just now.
            let _opening = fs.opening.lock();
            nest.take_out(&fs);
        } else {
            fs.known.force();
            nest.take_out(&fs);
        }
        self.tell_place(&nest, &fs);
        Ok(())
    }

    /// Makes it gone if it isn't used.
    fn close(&self, nest: &Nest, fs: &Fs) -> Result<(), Error> {
        let busy = || Error::Unmount { target: self.target.clone(), source: Errno::BUSY };
        // To drop a mountpoint in it is to unmount what is there.
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
        // The kernel finds it again by its name.
        if let Err(errno) = system::probe(&self.target) {
            tracing::debug!(target = %self.target.display(), %errno, "busy, and not found");
        }
        Err(busy())
    }
}
