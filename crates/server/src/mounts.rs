//! The mounted file systems of a pool.
//!
//! # Life
//! A file system is *coming* from the moment a request takes it on, so that no other does, and *here* when its mount
//! answers. Somebody's `umount` ends it behind our back; it is forgotten the next time anybody looks.
//!
//! # Locks
//! The table is held for looking up and entering, never while something is mounted or unmounted.

use crate::api::{self, Error, Reason};
use crate::faults::{chain, of_dsl, of_fuse, of_library, of_zpl};
use crate::plan::{Plan, SnapDir, Where};
use dsl::ops::destroy::DestroySnapshots;
use dsl::ops::rename::RenameSnapshot;
use dsl::{Dsl, Refusal, SyncTask};
use fuse::ctldir::{Named, Snapshot, Snapshots, WithSnapshots};
use fuse::dataset::{Dataset as Shown, Shown as How};
use fuse::tree::{Statfs, Tree};
use fuse::{Detach, Workers};
use parking_lot::Mutex;
use poolhouse::Pool;
use rustix::io::Errno;
use spa::Spa;
use spa::engine::TaskError;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use zpl::{FileSystem, Policies, WeakFileSystem};

/// The mounts of one pool.
pub struct Mounts {
    workers: Arc<Workers>,
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    by_dataset: BTreeMap<String, State>,
    made: u64,
}

enum State {
    Coming,
    Here(Arc<Live>),
}

/// A mounted file system.
pub struct Live {
    mount: fuse::Mount,
    /// Its dataset.
    pub dataset: String,
    /// Its options, in words.
    options: Mutex<String>,
    /// Those that it was mounted with, which go before its properties (`mount -o`).
    given: Mutex<Vec<String>>,
    read_only: bool,
    /// What the mount was made with for good: POSIX ACLs, and extended attributes.
    fixed: (bool, bool),
    /// In which order mounts were made.
    pub number: u64,
    /// What properties say about writing to it.
    policies: Policies,
    /// Its files, if it can be written.
    pub files: Option<WeakFileSystem>,
}

impl Live {
    /// Where it is.
    pub fn target(&self) -> &Path {
        self.mount.target()
    }

    /// For the control API.
    pub fn describe(&self) -> api::Mount {
        api::Mount {
            dataset: self.dataset.clone(),
            mountpoint: self.target().to_string_lossy().into_owned(),
            options: self.options.lock().clone(),
        }
    }
}

/// A file system to be changed, as it is shown, and a way back to it.
type Writable = (Arc<dyn Tree>, WeakFileSystem);

/// What mounting made.
struct Made {
    mount: fuse::Mount,
    policies: Policies,
    files: Option<WeakFileSystem>,
}

impl Live {
    /// What the kernel was told when this was mounted, and can't be told again, stays with the next mount.
    fn keep_fixed(&self, plan: &mut Plan) {
        (plan.options.posix_acl, plan.xattrs) = self.fixed;
        plan.policy.posix_acl = self.fixed.0;
    }

    /// Gives the kernel the options of a plan, if they are others than it has.
    fn remount(&self, plan: &Plan) -> Result<(), fuse::Error> {
        let words = plan.words(self.read_only || plan.options.read_only);
        let mut now = self.options.lock();
        if *now == words {
            return Ok(());
        }
        let read_only = self.read_only || plan.options.read_only;
        self.mount.remount(&fuse::Options { read_only, ..plan.options.clone() })?;
        *now = words;
        Ok(())
    }
}

impl Mounts {
    /// No mounts yet. `threads` serve all that are to come.
    pub fn new(pool: &str, threads: usize) -> Result<Self, fuse::Error> {
        let workers = Arc::new(Workers::start(&format!("fuse-{pool}"), threads)?);
        Ok(Self { workers, table: Mutex::default() })
    }

    /// What is mounted, in the order in which it was.
    pub fn list(&self) -> Vec<Arc<Live>> {
        let mut table = self.table.lock();
        table.by_dataset.retain(|_, state| !matches!(state, State::Here(live) if live.mount.is_over()));
        let here = table.by_dataset.values().filter_map(|state| match state {
            State::Here(live) => Some(Arc::clone(live)),
            State::Coming => None,
        });
        let mut list: Vec<_> = here.collect();
        list.sort_by_key(|live| live.number);
        list
    }

    /// Whether a dataset is mounted, or about to be.
    pub fn holds(&self, dataset: &str) -> bool {
        match self.table.lock().by_dataset.get(dataset) {
            Some(State::Here(live)) => !live.mount.is_over(),
            Some(State::Coming) => true,
            None => false,
        }
    }

    /// Mounts a file system at its place. `cover` lets it cover what is there (`-O`).
    pub fn mount(&self, pool: &Pool, plan: &Plan, cover: bool) -> Result<(), Error> {
        let fail = |reason| Error::new(&plan.name, reason);
        let Where::Path(target) = &plan.place else { return Err(fail(Reason::NoMountpoint)) };
        {
            let mut table = self.table.lock();
            match table.by_dataset.get(&plan.name) {
                Some(State::Here(live)) if live.mount.is_over() => {}
                Some(State::Here(_) | State::Coming) => return Err(fail(Reason::AlreadyMounted)),
                None => {}
            }
            table.by_dataset.insert(plan.name.clone(), State::Coming);
        }
        let mounted = self.mount_at(pool, plan, target, cover);
        let mut table = self.table.lock();
        match mounted {
            Ok(Made { mount, policies, files }) => {
                table.made += 1;
                let (dataset, number) = (plan.name.clone(), table.made);
                let read_only = files.is_none();
                let options = Mutex::new(plan.words(read_only));
                let given = Mutex::new(plan.given.clone());
                let fixed = (plan.options.posix_acl, plan.xattrs);
                let live = Live { mount, dataset, options, given, read_only, fixed, number, policies, files };
                table.by_dataset.insert(plan.name.clone(), State::Here(Arc::new(live)));
                Ok(())
            }
            Err(reason) => {
                table.by_dataset.remove(&plan.name);
                Err(fail(reason))
            }
        }
    }

    /// Mounts.
    fn mount_at(&self, pool: &Pool, plan: &Plan, target: &Path, cover: bool) -> Result<Made, Reason> {
        let system = |error: std::io::Error| Reason::System { errno: error.raw_os_error().unwrap_or(5) };
        let fresh = make_mountpoint(target).map_err(system)?;
        if !fresh && !cover && !plan.overlay && !is_empty(target).map_err(system)? {
            return Err(Reason::MountpointNotEmpty);
        }
        let how = Look { posix_acl: plan.options.posix_acl, xattrs: plan.xattrs, sizes: plan.sizes };
        let policies = Policies::new(plan.policy);
        let wanted = !plan.options.read_only && pool.spa().writer().is_some();
        let replayed = pool.spa().writer().is_some() && replay(pool, plan)?;
        let dataset = match replayed {
            // The plan's handle is of the time before.
            true => pool.dsl().dataset(&plan.name).map_err(|error| of_dsl(&error))?,
            false => plan.dataset.clone(),
        };
        let writable = if wanted { how.open_for_writing(pool, plan, &policies)? } else { None };
        let read_only = writable.is_none();
        let (head, files) = match writable {
            Some((tree, files)) => (tree, Some(files)),
            None => (how.open(&dataset)?, None),
        };
        let spa = Arc::clone(pool.spa());
        let snapshots = Heads { head: plan.dataset.clone(), how, snapdir: plan.snapdir, spa };
        let tree = Arc::new(WithSnapshots::new(head, Box::new(snapshots)));
        let options = fuse::Options { read_only, ..plan.options.clone() };
        let mount = fuse::Mount::new(&self.workers, tree, target, &options).map_err(|error| {
            tracing::warn!(dataset = plan.name, %error, "not mounted");
            of_fuse(&error)
        })?;
        Ok(Made { mount, policies, files })
    }

    /// Lets what properties say now take effect, as far as what the mount was given with `-o` leaves them a say.
    ///
    /// # Errors
    /// As the system refuses to change the mount's options, where this process may change them: say, because a file is open for writing.
    pub fn follow(&self, live: &Live, mut plan: Plan) -> Result<(), Error> {
        let given = live.given.lock().clone();
        if let Err(option) = plan.apply(&given) {
            tracing::warn!(dataset = live.dataset, option, "it was known when this was mounted");
        }
        live.keep_fixed(&mut plan);
        plan.rest_if_read_only(live.read_only);
        live.policies.set(plan.policy);
        if let Err(error) = live.remount(&plan) {
            tracing::info!(dataset = live.dataset, %error, "its mount options stay as they are");
            // Only root may: for others it takes effect with the next mount.
            if rustix::process::geteuid().is_root() {
                return Err(Error::new(&live.dataset, of_fuse(&error)));
            }
        }
        Ok(())
    }

    /// Mounts again what is mounted, with other options (`-o remount`).
    ///
    /// # Errors
    /// [`Reason::PoolReadonly`] if it was mounted to be read only, and is to be written; as the system refuses it.
    pub fn remount(&self, live: &Live, mut plan: Plan, options: &[String]) -> Result<(), Error> {
        let fail = |reason| Error::new(&live.dataset, reason);
        let mut given = live.given.lock().clone();
        given.extend(options.iter().filter(|option| *option != "remount").cloned());
        plan.apply(&given).map_err(|option| fail(Reason::BadMountOption { option }))?;
        live.keep_fixed(&mut plan);
        if live.read_only && !plan.options.read_only {
            return Err(fail(Reason::PoolReadonly));
        }
        live.remount(&plan).map_err(|error| fail(of_fuse(&error)))?;
        plan.rest_if_read_only(live.read_only);
        live.policies.set(plan.policy);
        *live.given.lock() = given;
        Ok(())
    }

    /// Unmounts one file system.
    pub fn unmount(&self, live: &Live, how: Detach) -> Result<(), Error> {
        live.mount.unmount(how).map_err(|error| {
            tracing::info!(dataset = live.dataset, %error, "not unmounted");
            Error::new(live.target().to_string_lossy(), of_fuse(&error))
        })?;
        let mut table = self.table.lock();
        // Unless it was mounted again meanwhile.
        if matches!(table.by_dataset.get(&live.dataset), Some(State::Here(now)) if now.number == live.number)
        {
            table.by_dataset.remove(&live.dataset);
        }
        Ok(())
    }
}

/// Replays what a crash left in the intent log: also of what is mounted to be read only. Says whether there was anything.
fn replay(pool: &Pool, plan: &Plan) -> Result<bool, Reason> {
    let done = match pool.replay(&plan.dataset) {
        // It can't be changed here, and is only read; its log stays.
        Err(poolhouse::Error::File(zpl::Error::OldVersion { .. })) => {
            tracing::warn!(dataset = plan.name, "its intent log was not replayed, as its version is old");
            return Ok(false);
        }
        done => done,
    };
    let done = done.map_err(|error| {
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

/// Reads the plans of a dataset, or of all below it too, in one pass.
pub fn plans(dsl: &Dsl, start: Option<&str>, below: bool, threads: usize) -> Result<Vec<Plan>, Error> {
    let about = |error: dsl::Error| Error::new(start.unwrap_or(dsl.pool_name()), of_dsl(&error));
    if !below {
        let dataset = dsl.dataset(start.unwrap_or(dsl.pool_name())).map_err(about)?;
        let plan = Plan::of(dataset).map_err(about)?;
        return match plan {
            Some(plan) => Ok(vec![plan]),
            None => Err(Error::new(start.unwrap_or(dsl.pool_name()), Reason::BadType)),
        };
    }
    let dir = start.map(|name| dsl.dir(name)).transpose().map_err(about)?;
    let found = Mutex::new(Vec::new());
    let options = dsl::ListOptions { threads, ..dsl::ListOptions::default() };
    dsl.list(dir, &options, &|listed| {
        let plan = match listed {
            dsl::Listed::Dataset(dataset) => {
                let name = dataset.name();
                Plan::of(dataset).map_err(|error| (name, error))
            }
            dsl::Listed::Failed { name, error } => Err((name, error)),
        };
        match plan {
            Ok(Some(plan)) => found.lock().push(plan),
            Ok(None) => {}
            // Its siblings are none the worse.
            Err((dataset, error)) => tracing::warn!(dataset, %error, "passed over"),
        }
    })
    .map_err(about)?;
    let mut plans = found.into_inner();
    plans.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(plans)
}

/// How the files of a dataset and its snapshots are shown.
#[derive(Clone, Copy)]
struct Look {
    posix_acl: bool,
    xattrs: bool,
    sizes: Statfs,
}

impl Look {
    fn open(self, dataset: &dsl::Dataset) -> Result<Arc<dyn Tree>, Reason> {
        let objset = dataset.objset().map_err(|error| of_dsl(&error))?;
        // One that was only just created in a transaction group that never came to be.
        let objset = objset.ok_or(Reason::BadType)?;
        let fs = FileSystem::open(&objset).map_err(|error| of_zpl(&error))?;
        let Self { posix_acl, xattrs, sizes } = self;
        Ok(Arc::new(Shown::new(fs, How { name: dataset.name(), posix_acl, xattrs, sizes })))
    }
}

impl Look {
    /// A file system to be changed; `None` for one that can only be read, because its version is old.
    fn open_for_writing(
        self,
        pool: &Pool,
        plan: &Plan,
        policies: &Policies,
    ) -> Result<Option<Writable>, Reason> {
        let fs = match pool.open_for_writing(&plan.dataset, policies.clone()) {
            Ok(fs) => fs,
            Err(poolhouse::Error::File(error @ zpl::Error::OldVersion { .. })) => {
                tracing::warn!(dataset = plan.name, %error, "mounted read-only");
                return Ok(None);
            }
            Err(error) => return Err(of_library(&error)),
        };
        let Self { posix_acl, xattrs, sizes } = self;
        let name = plan.name.clone();
        let (dsl, about) = (pool.dsl().clone(), name.clone());
        let now = move || {
            let found = dsl.dataset(&about);
            found.and_then(|dataset| Plan::sizes_of(&dataset, sizes.unit, sizes.name_max)).map_err(|error| {
                tracing::warn!(dataset = about, %error, "its sizes are unreadable");
                Errno::IO
            })
        };
        let files = fs.downgrade();
        let shown = Shown::new(fs, How { name, posix_acl, xattrs, sizes }).with_sizes(Box::new(now));
        Ok(Some((Arc::new(shown), files)))
    }
}

/// The snapshots of a mounted head.
struct Heads {
    head: dsl::Dataset,
    how: Look,
    snapdir: SnapDir,
    spa: Arc<Spa>,
}

/// The name of a snapshot, as the kernel gives it.
fn text(name: &[u8]) -> Result<String, Errno> {
    String::from_utf8(name.to_vec()).map_err(|_| Errno::INVAL)
}

impl Heads {
    fn failed(&self, error: &dyn std::error::Error) -> Errno {
        tracing::warn!(dataset = self.head.name(), %error, "its snapshots are unreadable");
        Errno::IO
    }

    /// Does an operation on snapshots, as its command would.
    fn run(&self, task: impl SyncTask + Send + 'static) -> Result<(), Errno> {
        let live = self.spa.writer().ok_or(Errno::ROFS)?;
        live.run(Box::new(task)).map_err(|error| match &error {
            TaskError::Refused(dsl::Error::Refused { why, .. }) => refused(*why),
            TaskError::Refused(dsl::Error::NoSuchDataset { .. }) => Errno::NOENT,
            TaskError::Refused(dsl::Error::BadName { .. }) => Errno::INVAL,
            TaskError::Refused(dsl::Error::Several(all)) => {
                let first = all.iter().find_map(|e| match e {
                    dsl::Error::Refused { why, .. } => Some(refused(*why)),
                    dsl::Error::NoSuchDataset { .. } => Some(Errno::NOENT),
                    _ => None,
                });
                first.unwrap_or(Errno::IO)
            }
            TaskError::Refused(error) => self.failed(error),
            TaskError::Stopped(error) => self.failed(error),
        })
    }
}

impl Snapshots for Heads {
    fn page(&self, from: u64, limit: usize) -> Result<Vec<Named>, Errno> {
        let page = self.head.snapshot_page(from, limit).map_err(|error| self.failed(&error))?;
        Ok(page
            .into_iter()
            .map(|entry| Named { name: entry.name, dataset: entry.object.0, next: entry.next })
            .collect())
    }

    fn count(&self) -> Result<u64, Errno> {
        self.head.snapshot_count().map_err(|error| self.failed(&error))
    }

    fn open(&self, name: &[u8]) -> Result<Snapshot, Errno> {
        let name = std::str::from_utf8(name).map_err(|_| Errno::NOENT)?;
        let found = self.head.snapshot(name).map_err(|error| self.failed(&error))?;
        let snapshot = found.ok_or(Errno::NOENT)?;
        let tree = self.how.open(&snapshot).map_err(|reason| {
            tracing::warn!(dataset = snapshot.name(), ?reason, "unreadable");
            Errno::IO
        })?;
        Ok(Snapshot { tree, dataset: snapshot.object().0, born: snapshot.phys().creation_txg.0 })
    }

    fn create(&self, name: &[u8]) -> Result<(), Errno> {
        let names = vec![format!("{}@{}", self.head.name(), text(name)?)];
        self.run(dsl::ops::snapshot::Snapshot { names, props: Vec::new(), enforce_limits: true })
    }

    fn destroy(&self, name: &[u8]) -> Result<(), Errno> {
        let names = vec![format!("{}@{}", self.head.name(), text(name)?)];
        self.run(DestroySnapshots { names, defer: false })
    }

    fn rename(&self, old: &[u8], new: &[u8]) -> Result<(), Errno> {
        let (dataset, old, new) = (self.head.name(), text(old)?, text(new)?);
        self.run(RenameSnapshot { dataset, old, new, recursive: false })
    }

    fn version(&self) -> Result<u64, Errno> {
        // A new snapshot is the head's last; one that goes makes fewer.
        let name = self.head.name();
        let head = self.head.dsl().dataset(&name).map_err(|error| self.failed(&error))?;
        let last = head.phys().prev_snap_txg.wrapping_mul(0x9e37_79b9);
        Ok(last.wrapping_add(self.count()?))
    }

    fn visible(&self) -> bool {
        self.snapdir == SnapDir::Visible
    }

    fn disabled(&self) -> bool {
        self.snapdir == SnapDir::Disabled
    }
}

/// The errno of what an operation on snapshots is refused for.
fn refused(why: Refusal) -> Errno {
    match why {
        Refusal::Exists => Errno::EXIST,
        Refusal::NoSpace => Errno::NOSPC,
        Refusal::Quota => Errno::DQUOT,
        Refusal::NameTooLong => Errno::NAMETOOLONG,
        Refusal::ReadOnly => Errno::ROFS,
        Refusal::Again => Errno::AGAIN,
        Refusal::Busy | Refusal::HasClones | Refusal::Held => Errno::BUSY,
        _ => Errno::INVAL,
    }
}

/// The directories of a path that is to be mounted on, made as needed. Says whether it is new.
fn make_mountpoint(path: &Path) -> std::io::Result<bool> {
    match std::fs::metadata(path) {
        Ok(meta) if meta.is_dir() => Ok(false),
        Ok(_) => Err(Errno::NOTDIR.into()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            std::fs::create_dir_all(path).map(|()| true)
        }
        Err(error) => Err(error),
    }
}

fn is_empty(path: &Path) -> std::io::Result<bool> {
    Ok(std::fs::read_dir(path)?.next().is_none())
}
