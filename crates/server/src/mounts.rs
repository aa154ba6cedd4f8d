//! The mounted file systems of a pool.
//!
//! # Life
//! A file system is *coming* from the moment when a request takes it on, so that no other request
//! does. It is *here* when its mount answers. A user's `umount` can end it without the daemon's
//! knowledge; the next look-up notices that.
//!
//! A file system may be unmounted while other users have it mounted elsewhere, by a bind mount or
//! in another mount namespace. Then it *lingers*: it is here, served and busy, and not listed as
//! mounted. Mounting it gives it a place again.
//!
//! # Locks
//! The table is held for look-ups and inserts, never while a file system is mounted or unmounted. A
//! mount's `turn` is held from reading its properties until the mount follows them. So no other
//! thread uses older values.

pub(crate) mod changelist;
pub mod forest;
pub(crate) mod journal;
pub(crate) mod restore;
pub mod threads;

mod beside;
mod busy;
mod follow;
mod later;
mod load;
mod look;
mod rollback;
mod snapshots;
mod spot;
mod volume;

pub(crate) use beside::BesideAfs;
pub(crate) use load::{Plans, plans};
pub(crate) use volume::{Place, Server};

use crate::mounts::journal::Journal;
use crate::replies::{of_dsl, of_fuse, of_library, of_zpl};
use crate::view::MountedAs;
use api::chain;
use api::{self, Error, Reason};
use dsl::Prop;
use fuse::dataset::{Dataset as Shown, Stale};
use fuse::tree::FileTree;
use fuse::{Content, Detach, Nesting, Workers};
use later::{Files, Hold, Later};
use look::{Look, NameNow, SnapDirNow, to_be_written, tree_of};
use mount_rules::{Plan, Where, decided};
use observe::lock::Mutex;
use ondisk::ObjNum;
use poolhouse::Pool;
use rustix::io::Errno;
use spot::Spot;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use zpl::{FileSystem, Policies};

/// The mounts of one pool.
pub struct Mounts {
    workers: Arc<Workers>,
    /// Whether other users may use all mounts (`allow_other`).
    others: bool,
    /// Which file systems are nested in others.
    nesting: Nesting,
    /// The record of the mounts.
    journal: Arc<Journal>,
    /// The server that has volumes of AFS.
    afs: Arc<dyn Server>,
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    /// The mounts by their datasets' objects, which stay the same after a rename.
    by_object: BTreeMap<u64, State>,
}

/// The number of mounts so far.
static MADE: AtomicU64 = AtomicU64::new(0);

enum State {
    Coming(NameNow),
    Here(Arc<MountedFs>),
}

/// A mounted file system.
pub struct MountedFs {
    mount: fuse::Served,
    /// The object number of its dataset.
    object: u64,
    name: NameNow,
    /// Its options, as text.
    options: Mutex<String>,
    /// The options given with `mount -o`, which override its properties.
    given: Arc<Mutex<Vec<String>>>,
    /// Whether the mount has POSIX ACLs. The kernel can't change that later.
    posix_acl: bool,
    /// Its position in the order of all mounts, of all pools.
    pub number: u64,
    /// The write policies from its properties.
    policies: Policies,
    /// The visibility of `.zfs`.
    snapdir: SnapDirNow,
    files: Files,
    hold: Hold,
    /// Held from reading its properties until the mount follows them, so that no other thread uses
    /// older values.
    ///
    /// Also held while the system remounts, and while its files are used without the kernel.
    turn: Arc<Mutex<()>>,
}

impl MountedFs {
    /// Its mountpoint.
    pub fn target(&self) -> &Path {
        self.mount.target()
    }

    /// Whether this is the file system that is mounted at a path.
    pub fn is_at(&self, path: &Path) -> bool {
        self.mount.is_at(path)
    }

    /// A few of the processes that have it mounted, and their programs.
    pub fn users(&self) -> Vec<(u32, String)> {
        self.mount.users()
    }

    /// Whether it is mounted. Notices if a user unmounted it.
    pub fn is_attached(&self) -> bool {
        self.mount.is_attached()
    }

    /// What would keep it served if it were unmounted now: see [`fuse::Mount::keeper`].
    pub fn keeper(&self, places: &fuse::system::Places) -> Option<String> {
        self.mount.keeper(places)
    }

    /// Removes it from the tree of names, without waiting.
    ///
    /// # Errors
    /// See [`fuse::Mount::leave_tree`].
    pub fn leave_tree(&self, how: fuse::Detach) -> Result<(), fuse::Error> {
        self.mount.leave_tree(how)
    }

    /// The present name of its dataset.
    pub fn name(&self) -> String {
        self.name.get()
    }

    /// Whether its files can't be changed, whatever its options say.
    fn is_read_only(&self) -> bool {
        self.files.is_read_only()
    }

    /// The object number of its dataset.
    pub(crate) fn object(&self) -> u64 {
        self.object
    }

    /// Its files, while they are served.
    ///
    /// # Errors
    /// Why they could not be opened, now or after a rollback.
    pub(crate) fn files(&self) -> Result<FileSystem, Reason> {
        let (_turn, shown) = self.opened();
        shown.and_then(|shown| shown.fs()).ok_or_else(|| self.files.failure())
    }

    /// Whether it is mounted read-only.
    pub(crate) fn is_mounted_read_only(&self) -> bool {
        self.options.lock().split(',').any(|word| word == "ro")
    }

    /// Makes the kernel drop what changed without it. Don't call this with locks of the file system
    /// held.
    pub(crate) fn tell_changes(&self, stale: impl FnOnce(&Shown) -> Vec<Stale>) {
        if let Some(shown) = self.files.get() {
            self.mount.tell(&stale(&shown));
        }
    }

    /// Makes the kernel drop all of a file. Returns whether the kernel knew the file.
    pub(crate) fn drop_file(&self, object: ObjNum) -> bool {
        self.files.get().is_some_and(|shown| self.mount.drop_file(shown.node_of(object)))
    }

    /// The mount, as the control protocol shows it.
    pub fn describe(&self) -> api::Mount {
        api::Mount {
            dataset: self.name(),
            mountpoint: self.target().to_string_lossy().into_owned(),
            options: self.options.lock().clone(),
        }
    }

    /// Changes the name of its dataset.
    fn rename(&self, name: String) {
        if let Some(shown) = self.files.get() {
            shown.set_name(&name);
        }
        self.name.set(name);
    }
}

/// How to mount a file system.
#[derive(Debug, Clone, Copy)]
pub struct How {
    /// It may cover what is there (`-O`).
    pub cover: bool,
    /// If it is nested, it may be opened at its first use.
    pub later: bool,
}

/// The parts of a new mount.
struct Made {
    mount: fuse::Served,
    policies: Policies,
    snapdir: SnapDirNow,
    files: Files,
    given: Arc<Mutex<Vec<String>>>,
    turn: Arc<Mutex<()>>,
    hold: Hold,
}

impl Mounts {
    /// An empty set of mounts. `threads` worker threads serve all of them. `others` allows other
    /// users.
    ///
    /// # Errors
    /// * [`fuse::Error::Workers`]: a worker thread or what it waits on can't be created.
    pub(crate) fn new(
        pool: &str,
        threads: usize,
        (others, nesting): (bool, Nesting),
        (journal, afs): (Arc<Journal>, Arc<dyn Server>),
    ) -> Result<Self, fuse::Error> {
        let workers = Arc::new(Workers::start(&format!("fuse-{pool}"), threads)?);
        Ok(Self { workers, others, nesting, journal, afs, table: Mutex::default() })
    }

    /// The options for a mount, or for a place in the mount `around` it.
    fn options(
        &self,
        pool: &Pool,
        plan: &Plan,
        around: Option<&fuse::Mount>,
        read_only: bool,
    ) -> Result<fuse::Options, Reason> {
        // The mount knows no access lists of AFS, so other users come in only by an option.
        let by_default = plan.options.allow_other && !self.afs.has(&plan.name);
        let by_option = plan.given.iter().any(|option| option == "allow_other");
        let allow_other = by_default || by_option || self.others;
        // This is checked here, since the mount helper for users gives no reason.
        if allow_other && !fuse::system::may_let_others_in() {
            return Err(Reason::NobodyElse);
        }
        // A nested file system that only its owner enters, and that can't change, needs no ACLs of
        // the kernel.
        let needless = around.is_some() && !allow_other && pool.spa().writer().is_none();
        let posix_acl = plan.options.posix_acl && !needless;
        Ok(fuse::Options { read_only, allow_other, posix_acl, ..plan.options.clone() })
    }

    /// The worker threads that serve the mounts of this pool.
    pub(crate) fn workers(&self) -> &Arc<Workers> {
        &self.workers
    }

    /// The mounted file systems, in the order of mounting.
    pub fn list(&self) -> Vec<Arc<MountedFs>> {
        let mut list = self.served();
        list.retain(|live| !live.mount.lingers());
        list
    }

    /// The file systems that the daemon sees mounted nowhere, and serves for users that have them
    /// mounted.
    pub fn lingering(&self) -> Vec<Arc<MountedFs>> {
        let mut list = self.served();
        list.retain(|live| live.mount.lingers());
        list
    }

    /// The mounted and the lingering file systems.
    pub fn served(&self) -> Vec<Arc<MountedFs>> {
        let mut table = self.table.lock();
        table.by_object.retain(|_, state| !matches!(state, State::Here(live) if live.mount.is_over()));
        let here = table.by_object.values().filter_map(|state| match state {
            State::Here(live) => Some(Arc::clone(live)),
            State::Coming(_) => None,
        });
        let mut list: Vec<_> = here.collect();
        list.sort_by_key(|live| live.number);
        list
    }

    /// The mount of a dataset, by its object. It may linger.
    pub(crate) fn live(&self, dataset: u64) -> Option<Arc<MountedFs>> {
        match self.table.lock().by_object.get(&dataset) {
            Some(State::Here(live)) if !live.mount.is_over() => Some(Arc::clone(live)),
            Some(State::Here(_) | State::Coming(_)) | None => None,
        }
    }

    /// Whether a dataset is mounted, or about to be, by its object.
    pub fn holds(&self, dataset: u64) -> bool {
        let live = match self.table.lock().by_object.get(&dataset) {
            Some(State::Here(live)) => Arc::clone(live),
            Some(State::Coming(_)) => return true,
            None => return false,
        };
        live.mount.is_attached()
    }

    /// What the options of a dataset's mount override; `None` if it isn't mounted.
    ///
    /// For one that is about to be mounted, only that fact is known.
    pub fn mounted_as(&self, dataset: u64) -> Option<MountedAs> {
        let table = self.table.lock();
        match table.by_object.get(&dataset)? {
            State::Here(live) if live.mount.is_over() || live.mount.lingers() => None,
            State::Here(live) => {
                let mut decided = decided(&live.given.lock());
                decided.retain(|(prop, _)| *prop != Prop::Readonly);
                let words = live.options.lock();
                decided.push((Prop::Readonly, words.split(',').any(|word| word == "ro")));
                Some(decided)
            }
            State::Coming(_) => Some(Vec::new()),
        }
    }

    /// Renames a dataset, and all below it.
    pub fn renamed(&self, from: &str, to: &str) {
        let mut renamed = Vec::new();
        for state in self.table.lock().by_object.values() {
            let name = match state {
                State::Coming(name) => name.get(),
                State::Here(live) => live.name(),
            };
            let own = |t: &&str| t.is_empty() || t.starts_with(['/', '@']);
            let Some(tail) = name.strip_prefix(from).filter(own) else {
                continue;
            };
            let name_now = format!("{to}{tail}");
            match state {
                State::Coming(name) => name.set(name_now),
                State::Here(live) => {
                    live.rename(name_now);
                    renamed.push(Arc::clone(live));
                }
            }
        }
        renamed.iter().for_each(|live| self.write_down(live));
    }

    /// Mounts a file system at its place (`zfs_mount_at`).
    ///
    /// # Errors
    /// * [`Reason::NoMountpoint`]: the plan has no path.
    /// * [`Reason::AlreadyMounted`]: it is mounted, or about to be.
    /// * [`Reason::NoSuchDataset`]: it was destroyed or renamed meanwhile.
    /// * [`Reason::MountpointNotEmpty`]: the directory is not empty, and may not be covered.
    /// * [`Reason::MountpointNotMade`]: the directory can't be created.
    /// * [`Reason::NobodyElse`]: this user can't allow other users.
    /// * [`Reason::Busy`]: it lingers and can't be moved, or is open elsewhere.
    /// * [`Reason::System`], [`Reason::Daemon`]: the system or the mount helper refused.
    /// * [`Reason::Io`], [`Reason::Corrupt`], [`Reason::NotSupported`]: it can't be opened or
    ///   replayed.
    pub fn mount(&self, pool: &Pool, plan: &Plan, how: How) -> Result<(), Error> {
        let fail = |reason| Error::new(&plan.name, reason);
        let Where::Path(target) = &plan.place else { return Err(fail(Reason::NoMountpoint)) };
        let (object, name) = (plan.dataset.object().0, NameNow::new(&plan.name));
        // The look-up must not hold the table: the system may ask other mounts for the way to this
        // one.
        let here = match self.table.lock().by_object.get(&object) {
            Some(State::Here(live)) => Some(Arc::clone(live)),
            Some(State::Coming(_)) | None => None,
        };
        let before = here.filter(|live| !live.mount.is_attached() && !live.mount.is_over());
        {
            let mut table = self.table.lock();
            match (table.by_object.get(&object), &before) {
                (Some(State::Here(live)), Some(before)) if live.number == before.number => {}
                (Some(State::Here(live)), _) if live.mount.is_over() => {}
                (Some(State::Here(_) | State::Coming(_)), _) => return Err(fail(Reason::AlreadyMounted)),
                (None, _) => {}
            }
            table.by_object.insert(object, State::Coming(name.clone()));
        }
        let mounted = match &before {
            Some(before) => self.mount_again(pool, plan, before, &name, (target, how)),
            None => self.mount_at(pool, plan, &name, (target, how)),
        };
        let mut table = self.table.lock();
        match mounted {
            Ok(Made { mount, policies, snapdir, files, given, turn, hold }) => {
                let live = MountedFs {
                    mount,
                    object,
                    name,
                    options: Mutex::default(),
                    given,
                    posix_acl: match &before {
                        Some(live) => live.posix_acl,
                        None => plan.options.posix_acl && !files.are_served(),
                    },
                    number: MADE.fetch_add(1, Ordering::Relaxed),
                    policies,
                    snapdir,
                    files,
                    hold,
                    turn,
                };
                *live.options.lock() = plan.words(live.is_read_only() || plan.options.read_only);
                let live = Arc::new(live);
                table.by_object.insert(object, State::Here(Arc::clone(&live)));
                drop(table);
                self.check_volume(&live)?;
                self.write_down(&live);
                if before.is_some()
                    && let Err(error) = self.follow(pool, &live)
                {
                    tracing::warn!(%error, "it is mounted again with the options that it had");
                }
                Ok(())
            }
            Err(reason) => {
                match before.filter(|live| !live.mount.is_over()) {
                    Some(before) => table.by_object.insert(object, State::Here(before)),
                    None => table.by_object.remove(&object),
                };
                let of_place =
                    matches!(reason, Reason::MountpointNotEmpty | Reason::MountpointNotMade { .. });
                let about = if of_place { target.to_string_lossy() } else { plan.name.as_str().into() };
                Err(Error::new(about, reason))
            }
        }
    }

    /// Gives a lingering file system a place again. Mounts it anew if it ends meanwhile.
    fn mount_again(
        &self,
        pool: &Pool,
        plan: &Plan,
        before: &MountedFs,
        name: &NameNow,
        (target, how): (&Path, How),
    ) -> Result<Made, Reason> {
        let read_only = before.is_read_only() || plan.options.read_only;
        let options = self.options(pool, plan, None, read_only)?;
        let spot = self.place(plan, target, (how.cover, None))?;
        let mount = match before.mount.again(&spot.path, &options) {
            Ok(mount) => mount,
            Err(_) if before.mount.is_over() => {
                spot.undo();
                // A list of mounts may keep `before`.
                drop(before.hold.lock().take());
                return self.mount_at(pool, plan, name, (target, how));
            }
            Err(error) => {
                spot.undo();
                let (dataset, users) = (&plan.name, before.mount.users());
                tracing::warn!(dataset, %error, ?users, "not mounted: others have it mounted elsewhere");
                return Err(Reason::Busy);
            }
        };
        Ok(Made {
            mount,
            policies: before.policies.clone(),
            snapdir: before.snapdir.clone(),
            files: before.files.clone(),
            given: Arc::new(Mutex::new(plan.given.clone())),
            turn: Arc::clone(&before.turn),
            hold: Arc::clone(&before.hold),
        })
    }

    /// Mounts a head or snapshot.
    fn mount_at(
        &self,
        pool: &Pool,
        plan: &Plan,
        name: &NameNow,
        (target, how): (&Path, How),
    ) -> Result<Made, Reason> {
        // It may have been renamed before the table had it. A later rename changes `name`.
        let now = pool.dsl().dataset(&plan.name).map_err(|error| of_dsl(&error))?;
        if now.object() != plan.dataset.object() {
            return Err(Reason::NoSuchDataset);
        }
        // The table has the mount already, so the server does not begin to use it from now on.
        let volume = self.afs.volume_at(&plan.name)?;
        let mut around = self.around(target);
        let mount = around.as_ref().and_then(|live| live.mount.own());
        let spot = self.place(plan, target, (how.cover, mount))?;
        if spot.path != target {
            // A link led there.
            around = self.around(&spot.path);
        }
        let around = around.as_ref().and_then(|live| live.mount.own());
        let mounted = if plan.dataset.is_snapshot() {
            self.mount_snapshot(pool, plan, (around, &spot.path))
        } else if let Some(volume) = volume {
            self.mount_volume(pool, plan, name, (around, &spot.path), volume)
        } else if how.later && around.is_some() {
            self.mount_later(pool, plan, name, (around, &spot.path))
        } else {
            self.mount_head(pool, plan, name, (around, &spot.path))
        };
        mounted.inspect_err(|_| spot.undo())
    }

    /// Mounts a head on a directory.
    fn mount_head(
        &self,
        pool: &Pool,
        plan: &Plan,
        name: &NameNow,
        (around, target): (Option<&fuse::Mount>, &Path),
    ) -> Result<Made, Reason> {
        let (policies, snapdir) = (Policies::new(plan.policy), SnapDirNow::new(plan.snapdir));
        pool.spa().cache().set_policy(plan.dataset.object().0, plan.cache);
        let (tree, shown) = tree_of(pool, plan, Look::of(plan), name, (&policies, &snapdir))?;
        // The first request of the mount would occupy a worker that also serves others. So what it
        // needs is read here.
        if let Some(fs) = shown.fs() {
            fs.node(fs.root()).map_err(|error| of_zpl(&error))?;
        }
        let options = self.options(pool, plan, around, !shown.writable())?;
        let files = Files::open(&shown);
        drop(shown);
        let mount = self.serve(plan, Content::Open(tree), (around, target), &options)?;
        let (given, turn) = (Arc::new(Mutex::new(plan.given.clone())), Arc::default());
        Ok(Made { mount, policies, snapdir, files, given, turn, hold: Hold::default() })
    }

    /// Mounts a head, nested in another mount, that is opened at its first use.
    fn mount_later(
        &self,
        pool: &Pool,
        plan: &Plan,
        name: &NameNow,
        (around, target): (Option<&fuse::Mount>, &Path),
    ) -> Result<Made, Reason> {
        if pool.spa().writer().is_some() {
            replay(pool, plan)?;
        }
        let (policies, snapdir) = (Policies::new(plan.policy), SnapDirNow::new(plan.snapdir));
        let (given, turn) = (Arc::new(Mutex::new(plan.given.clone())), Arc::<Mutex<()>>::default());
        let shared = (Arc::clone(&given), Arc::clone(&turn));
        let later = Later::new(pool, plan, name, (policies.clone(), snapdir.clone()), shared)?;
        let (files, hold) = later.shared();
        let read_only = files.is_read_only() || plan.options.read_only;
        let options = self.options(pool, plan, around, read_only)?;
        let content = Content::Later(Arc::new(move || later.open()));
        let mount = self.serve(plan, content, (around, target), &options)?;
        Ok(Made { mount, policies, snapdir, files, given, turn, hold })
    }

    /// Finds the directory to mount on, and creates it if needed. It has no link in its path.
    ///
    /// In the mount `around`, this needs no request to the kernel. There, directories of other
    /// users are no obstacle to root, nor to the owner of the mount.
    fn place(
        &self,
        plan: &Plan,
        target: &Path,
        (cover, around): (bool, Option<&fuse::Mount>),
    ) -> Result<Spot, Reason> {
        let covers = cover || plan.overlay;
        let errno = |error: &std::io::Error| error.raw_os_error().unwrap_or(5);
        let not_made = |errno| match target.symlink_metadata() {
            Ok(_) => Reason::System { errno },
            Err(_) => Reason::MountpointNotMade { errno },
        };
        if let Some(around) = around {
            match around.folder(target) {
                Ok(folder) if !folder.empty && !covers => return Err(Reason::MountpointNotEmpty),
                Ok(folder) => return Ok(Spot { path: target.to_owned(), made: folder.made }),
                // This may be a link, which the kernel follows.
                Err(fuse::Error::Mount { source: Errno::NOTDIR, .. }) => {}
                Err(error) => {
                    return Err(match of_fuse(&error) {
                        Reason::System { errno } => not_made(errno),
                        reason => reason,
                    });
                }
            }
        }
        match spot::find(target) {
            Ok(spot) if covers || spot.is_fresh() => Ok(spot),
            Ok(spot) => match is_empty(&spot.path) {
                Ok(true) => Ok(spot),
                Ok(false) => Err(Reason::MountpointNotEmpty),
                Err(error) => Err(Reason::System { errno: errno(&error) }),
            },
            Err(error) => Err(not_made(errno(&error))),
        }
    }

    /// Serves files at a place: in the mount `around` it, if they are to be nested there.
    fn serve(
        &self,
        plan: &Plan,
        content: Content,
        (around, target): (Option<&fuse::Mount>, &Path),
        options: &fuse::Options,
    ) -> Result<fuse::Served, Reason> {
        let content = (content, plan.dataset.object().0);
        fuse::Served::new(&self.workers, (self.nesting, around), content, target, options).map_err(|error| {
            tracing::warn!(dataset = plan.name, %error, "not mounted");
            of_fuse(&error)
        })
    }

    /// The file system whose mount a new one at `path` would be nested in.
    fn around(&self, path: &Path) -> Option<Arc<MountedFs>> {
        if self.nesting == Nesting::Never {
            return None;
        }
        let mounts: Vec<_> = {
            let table = self.table.lock();
            let own = table.by_object.values().filter_map(|state| match state {
                State::Here(live) if !live.mount.is_nested() => Some(live),
                State::Here(_) | State::Coming(_) => None,
            });
            own.filter(|live| path.starts_with(live.target())).cloned().collect()
        };
        // The table must not be held: the system may ask these mounts for the way.
        let mut mounts: Vec<_> = mounts
            .into_iter()
            .filter(|live| live.mount.own().is_some_and(|mount| mount.nests(path, self.nesting)))
            .collect();
        mounts.sort_by_key(|live| live.target().as_os_str().len());
        mounts.pop()
    }

    /// Mounts a snapshot, which then can't be destroyed.
    fn mount_snapshot(
        &self,
        pool: &Pool,
        plan: &Plan,
        (around, target): (Option<&fuse::Mount>, &Path),
    ) -> Result<Made, Reason> {
        let (dataset, dsl, policies) = (&plan.dataset, pool.dsl(), Policies::new(plan.policy));
        pool.spa().cache().set_policy(dataset.object().0, plan.cache);
        // Under this lock, no snapshot is destroyed between the check and the hold.
        let held = || match dsl.is_snapshot(dataset.object(), dataset.phys().creation_txg) {
            Ok(true) => Ok(dsl.heads().long_hold(dataset.object().0)),
            Ok(false) => Err(Reason::NoSuchDataset),
            Err(error) => Err(of_dsl(&error)),
        };
        let hold = Arc::new(Mutex::new(Some(pool.spa().read(held)?)));
        let shown = Look::of(plan).snapshot(dataset, pool.ops())?;
        let options = self.options(pool, plan, around, true)?;
        let files = Files::open(&shown);
        let mount = self.serve(plan, Content::Open(shown), (around, target), &options)?;
        let (given, turn) = (Arc::new(Mutex::new(plan.given.clone())), Arc::default());
        let snapdir = SnapDirNow::new(plan.snapdir);
        Ok(Made { mount, policies, snapdir, files, given, turn, hold })
    }

    /// Mounts a file system again where and as it was. `later` is as in [`How`].
    ///
    /// # Errors
    /// * [`Reason::BadMountOption`]: an option is unknown.
    /// * All others: see [`Mounts::mount`].
    pub fn restore(&self, pool: &Pool, live: &MountedFs, later: bool) -> Result<(), Error> {
        let (name, given) = (live.name(), live.given.lock().clone());
        let plan = || {
            let plan = pool.dsl().dataset(&name).and_then(Plan::of).map_err(|error| of_dsl(&error))?;
            let mut plan = plan.ok_or(Reason::BadType)?;
            plan.apply(&given).map_err(|option| Reason::BadMountOption { option })?;
            plan.place = Where::Path(live.target().to_owned());
            Ok(plan)
        };
        let plan = plan().map_err(|reason| Error::new(&name, reason))?;
        self.mount(pool, &plan, How { cover: true, later })
    }

    fn write_down(&self, live: &MountedFs) {
        let given = live.given.lock().clone();
        self.journal.made(&live.name(), &live.mount, &given);
    }

    /// Unmounts one file system (`zfs_unmount`).
    ///
    /// # Errors
    /// * [`Reason::Busy`]: it is in use.
    /// * [`Reason::NotMounted`]: it is not mounted.
    /// * [`Reason::System`], [`Reason::Daemon`]: the system or the mount helper refused.
    pub fn unmount(&self, live: &MountedFs, how: Detach) -> Result<(), Error> {
        live.mount.unmount(how).map_err(|error| {
            tracing::info!(dataset = live.name(), %error, "not unmounted");
            Error::new(live.target().to_string_lossy(), of_fuse(&error))
        })?;
        if live.mount.is_nested() {
            self.journal.ended(&live.name(), &live.mount);
        }
        if live.mount.lingers() {
            // The file system is in use, so it stays in the table.
            return Ok(());
        }
        // A list of mounts may keep `live`.
        drop(live.hold.lock().take());
        let mut table = self.table.lock();
        // It may have been mounted again meanwhile.
        if matches!(table.by_object.get(&live.object), Some(State::Here(now)) if now.number == live.number) {
            table.by_object.remove(&live.object);
        }
        Ok(())
    }
}

/// Replays the intent log after a crash, even for a read-only mount (`zil_replay`). Returns whether
/// there was anything.
fn replay(pool: &Pool, plan: &Plan) -> Result<bool, Reason> {
    let done = pool.replay(&plan.dataset).map_err(|error| {
        tracing::warn!(dataset = plan.name, error = chain(&error), "its intent log was not replayed");
        of_library(&error)
    })?;
    let Some(done) = done else { return Ok(false) };
    tracing::info!(dataset = plan.name, records = done.records, "intent log replayed");
    if let Some(ended) = done.ended {
        tracing::warn!(dataset = plan.name, error = chain(&*ended), "the rest of the intent log is lost");
    }
    Ok(true)
}

fn is_empty(path: &Path) -> std::io::Result<bool> {
    Ok(std::fs::read_dir(path)?.next().is_none())
}
