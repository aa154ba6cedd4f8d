//! Tunables: numbers that an administrator sets while the daemon runs.
//!
//! # Theory
//! Names are those of OpenZFS's module parameters. Most tunables are statics beside the code that
//! they control ([`poolhouse::tunables`]), and apply to every pool of the process. A few are stored
//! here, and passed to every pool, also to pools that are imported later. Their default depends on
//! the machine, or their value belongs to a pool.
//!
//! Values end with the daemon, as those of module parameters end with the module. 0 restores the
//! default where OpenZFS's default is 0.
//!
//! OpenZFS's other parameters are listed too, marked as without effect: [`no_effect`].

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;

use afs::server::AFS_SEND_BLOCKS;
use arc::tunables::{ARC_LEAST, ARC_MAX, ARC_MIN};
use observe::lock::Mutex;
use observe::{OutOfRange, Parameter, Tunable};
use spa::engine::{RESILVER_MIN_TIME, SCAN_SUSPEND_PROGRESS, SCAN_VDEV_BYTES, SCRUB_MIN_TIME};
use spa::txg::{
    self, DELAY_MIN_DIRTY_PERCENT, DELAY_SCALE, DIRTY_DATA_MAX, DIRTY_DATA_SYNC_PERCENT, TXG_TIMEOUT,
};

use crate::mounts::threads::MOUNT_TP_NTHR;
use crate::pools::imported::Imported;
use api::{self, Caller, Error, Reason};

mod no_effect;

/// Parameters that are passed to pools and the cache.
const GIVEN: [&Parameter; 11] = [
    &ARC_MAX,
    &ARC_MIN,
    &DELAY_MIN_DIRTY_PERCENT,
    &DELAY_SCALE,
    &DIRTY_DATA_MAX,
    &DIRTY_DATA_SYNC_PERCENT,
    &RESILVER_MIN_TIME,
    &SCAN_SUSPEND_PROGRESS,
    &SCAN_VDEV_BYTES,
    &SCRUB_MIN_TIME,
    &TXG_TIMEOUT,
];

/// All statics that steer something, in no particular order.
fn statics() -> impl Iterator<Item = &'static Tunable> {
    poolhouse::tunables::all().chain([&MOUNT_TP_NTHR, &AFS_SEND_BLOCKS, &observe::trace::COST])
}

fn refused(name: &str, error: &OutOfRange) -> Error {
    Error::new(name, Reason::BadValue { what: error.to_string() })
}

/// The values that were set, and the memory that all caches share.
pub(crate) struct Tunables {
    set: Mutex<BTreeMap<&'static str, u64>>,
    store: Arc<arc::Store>,
    /// Keeps the reports of free memory to the cache running.
    watch: Mutex<Option<Sender<()>>>,
}

impl Default for Tunables {
    fn default() -> Self {
        let tunables = Self {
            set: Mutex::default(),
            store: arc::Store::new(default("zfs_arc_max")),
            watch: Mutex::default(),
        };
        tunables.tell(&[]);
        tunables
    }
}

impl Tunables {
    /// The memory that the caches of all pools share.
    pub(crate) fn store(&self) -> &Arc<arc::Store> {
        &self.store
    }

    /// From now on, shrinks the cache when other programs lack memory.
    pub(crate) fn watch_memory(&self) {
        let mut watch = self.watch.lock();
        if watch.is_none() {
            *watch = crate::telemetry::memory::watch(Arc::downgrade(&self.store));
        }
    }

    /// The same memory, for a pool that is opened.
    pub(crate) fn room(&self) -> arc::CacheMemory {
        Arc::clone(&self.store).into()
    }

    /// Whether scans are paused. A pool has to know that at its import, before it starts one.
    pub(crate) fn hold_scans(&self) -> bool {
        self.set.lock().get("zfs_scan_suspend_progress").is_some_and(|value| *value != 0)
    }

    /// All numbers with their present values.
    pub(crate) fn list(&self) -> Vec<api::Tunable> {
        let set = self.set.lock().clone();
        let row = |parameter: &Parameter, value, default, words: &[&str]| api::Tunable {
            name: parameter.name.to_owned(),
            value,
            default,
            what: parameter.text.to_owned(),
            words: words.iter().map(|&word| word.to_owned()).collect(),
            no_effect: false,
            read_only: false,
            signed: false,
        };
        let given = GIVEN.iter().map(|parameter| {
            let default = default(parameter.name);
            row(parameter, set.get(parameter.name).copied().unwrap_or(default), default, &[])
        });
        let of_static = |one: &Tunable| row(one.parameter(), one.get(), one.default(), one.words());
        let statics = statics().map(of_static);
        let no_effect = no_effect::all().map(|one| api::Tunable {
            no_effect: true,
            read_only: one.read_only,
            signed: one.kind == no_effect::Kind::Int,
            ..of_static(&one.tunable)
        });
        let mut all: Vec<_> = given.chain(statics).chain(no_effect).collect();
        all.sort_by(|a, b| a.name.cmp(&b.name));
        all
    }

    /// Sets one tunable, and passes it to these pools.
    ///
    /// # Errors
    /// * [`Reason::Permission`]: the caller does not own the daemon.
    /// * [`Reason::BadProperty`]: there is no such tunable.
    /// * [`Reason::BadValue`]: the value is out of range, or the tunable can only be read.
    pub(crate) fn set(
        &self,
        caller: &Caller,
        name: &str,
        value: u64,
        pools: &[Arc<Imported>],
    ) -> Result<(), Error> {
        caller.must_own(name)?;
        if let Some(one) = statics().find(|one| one.parameter().name == name) {
            one.assign(value).map_err(|error| refused(name, &error))?;
            if name.starts_with("zfs_arc_") {
                self.tell(&[]);
            }
            return Ok(());
        }
        if let Some(one) = no_effect::all().find(|one| one.tunable.parameter().name == name) {
            return one.keep(value).map_err(|what| Error::new(name, Reason::BadValue { what }));
        }
        let unknown = || Error::new(name, Reason::BadProperty { property: name.to_owned() });
        let parameter = GIVEN.iter().find(|parameter| parameter.name == name).ok_or_else(unknown)?;
        if value == 0 && matches!(name, "zfs_arc_max" | "zfs_arc_min" | "zfs_dirty_data_max") {
            self.set.lock().remove(parameter.name);
        } else {
            parameter.check(value).map_err(|error| refused(name, &error))?;
            self.set.lock().insert(parameter.name, value);
        }
        self.tell(pools);
        Ok(())
    }

    /// Passes the values, and the shared memory, to pools.
    pub(crate) fn tell(&self, pools: &[Arc<Imported>]) {
        let set = self.set.lock().clone();
        let value = |name: &str| set.get(name).copied().unwrap_or_else(|| default(name));
        self.store.set_bounds(value("zfs_arc_min"), value("zfs_arc_max"));
        let of_groups = txg::Tunables {
            timeout: Duration::from_secs(value("zfs_txg_timeout")),
            dirty_max: value("zfs_dirty_data_max"),
            sync_percent: value("zfs_dirty_data_sync_percent"),
            delay_min_percent: value("zfs_delay_min_dirty_percent"),
            delay_scale_ns: value("zfs_delay_scale"),
        };
        for pool in pools {
            let spa = pool.pool.spa();
            if let Some(live) = spa.writer() {
                live.set_tunables(of_groups);
                live.scans().set_slices(value("zfs_scrub_min_time_ms"), value("zfs_resilver_min_time_ms"));
                live.scans().limit_bytes(value("zfs_scan_vdev_limit"));
                live.scans().hold(value("zfs_scan_suspend_progress") != 0);
            }
        }
    }
}

/// The default value.
fn default(name: &str) -> u64 {
    let of_groups = txg::Tunables::for_memory(spa::discovery::host::memory());
    match name {
        "zfs_arc_max" => poolhouse::default_cache_bytes(),
        "zfs_arc_min" => (spa::discovery::host::memory() / 32).max(ARC_LEAST),
        "zfs_txg_timeout" => of_groups.timeout.as_secs(),
        "zfs_dirty_data_max" => of_groups.dirty_max,
        "zfs_dirty_data_sync_percent" => of_groups.sync_percent,
        "zfs_delay_min_dirty_percent" => of_groups.delay_min_percent,
        "zfs_delay_scale" => of_groups.delay_scale_ns,
        "zfs_scan_suspend_progress" => 0,
        "zfs_scan_vdev_limit" => spa::engine::SCAN_VDEV_LIMIT,
        "zfs_scrub_min_time_ms" => spa::engine::SCRUB_MS,
        "zfs_resilver_min_time_ms" => spa::engine::RESILVER_MS,
        _ => unreachable!("every parameter has a default"),
    }
}

#[cfg(test)]
mod tests;
