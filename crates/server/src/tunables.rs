//! Numbers that can be set while the daemon runs, by the names of OpenZFS's module parameters. Those that would do nothing are not here.
//!
//! # Theory
//! What was set is kept here and told to every pool, also to those that are imported later; nothing outlives the daemon, as nothing outlives a module. A value is taken
//! or refused as a whole. 0 gives the default back where OpenZFS's parameter is 0 by default.
//!
//! # Absent
//! Parameters of parts that don't exist here, and those whose part takes them for granted: they are not listed, so that nobody believes to have set one.

use crate::api::{Error, Reason, Tunable};
use crate::pools::{Imported, MOUNT_THREADS_DEFAULT, set_mount_threads};
use parking_lot::Mutex;
use spa::txg;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// A number that can be set.
struct Knob {
    name: &'static str,
    what: &'static str,
    least: u64,
    most: u64,
}

/// All of them.
const KNOBS: [Knob; 7] = [
    Knob { name: "mount_tp_nthr", what: "threads that mount and unmount at a time", least: 1, most: 4096 },
    Knob {
        name: "zfs_arc_max",
        what: "bytes that the block caches of all pools may take",
        least: 64 << 20,
        most: u64::MAX,
    },
    Knob {
        name: "zfs_delay_min_dirty_percent",
        what: "percent of zfs_dirty_data_max from which writers are delayed",
        least: 0,
        most: 100,
    },
    Knob {
        name: "zfs_delay_scale",
        what: "nanoseconds of delay at the middle of its curve",
        least: 0,
        most: 1_000_000_000,
    },
    Knob {
        name: "zfs_dirty_data_max",
        what: "most bytes of a pool that are changed and not yet written",
        least: 1 << 20,
        most: 1 << 40,
    },
    Knob {
        name: "zfs_dirty_data_sync_percent",
        what: "percent of zfs_dirty_data_max at which a group is written",
        least: 1,
        most: 99,
    },
    Knob {
        name: "zfs_txg_timeout",
        what: "seconds after which a group with changes is written",
        least: 1,
        most: 86_400,
    },
];

/// What was set.
#[derive(Debug, Default)]
pub(crate) struct Tunables(Mutex<BTreeMap<&'static str, u64>>);

impl Tunables {
    /// All numbers as they are now.
    pub(crate) fn list(&self) -> Vec<Tunable> {
        let set = self.0.lock().clone();
        let row = |knob: &Knob| Tunable {
            name: knob.name.to_owned(),
            value: set.get(knob.name).copied().unwrap_or_else(|| default(knob.name)),
            default: default(knob.name),
            what: knob.what.to_owned(),
        };
        KNOBS.iter().map(row).collect()
    }

    /// Sets one, and tells these pools.
    ///
    /// # Errors
    /// [`Reason::BadProperty`] where there is none of that name, [`Reason::BadValue`].
    pub(crate) fn set(&self, name: &str, value: u64, pools: &[Arc<Imported>]) -> Result<(), Error> {
        let unknown = || Error::new(name, Reason::BadProperty { property: name.to_owned() });
        let knob = KNOBS.iter().find(|knob| knob.name == name).ok_or_else(unknown)?;
        let back = value == 0 && knob.least > 0 && matches!(name, "zfs_arc_max" | "zfs_dirty_data_max");
        if !back && !(knob.least..=knob.most).contains(&value) {
            let what = format!("'{value}' is not between {} and {}", knob.least, knob.most);
            return Err(Error::new(name, Reason::BadValue { what }));
        }
        if back {
            self.0.lock().remove(knob.name);
        } else {
            self.0.lock().insert(knob.name, value);
        }
        self.tell(pools);
        Ok(())
    }

    /// Tells pools what was set: all that are here, since they share the memory of caches.
    pub(crate) fn tell(&self, pools: &[Arc<Imported>]) {
        let set = self.0.lock().clone();
        let value = |name: &str| set.get(name).copied().unwrap_or_else(|| default(name));
        // All caches together take no more than one would.
        let each = value("zfs_arc_max") / pools.len().max(1) as u64;
        let of_groups = txg::Tunables {
            timeout: Duration::from_secs(value("zfs_txg_timeout")),
            dirty_max: value("zfs_dirty_data_max"),
            sync_percent: value("zfs_dirty_data_sync_percent"),
            delay_min_percent: value("zfs_delay_min_dirty_percent"),
            delay_scale_ns: value("zfs_delay_scale"),
        };
        set_mount_threads(u32::try_from(value("mount_tp_nthr")).expect("no more than 4096"));
        for pool in pools {
            let spa = pool.pool.spa();
            spa.cache().set_max(each);
            if let Some(live) = spa.writer() {
                live.set_tunables(of_groups);
            }
        }
    }
}

/// What holds if nobody sets it.
fn default(name: &str) -> u64 {
    let of_groups = txg::Tunables::for_memory(spa::host::memory());
    match name {
        "mount_tp_nthr" => MOUNT_THREADS_DEFAULT.into(),
        "zfs_arc_max" => poolhouse::default_cache_bytes(),
        "zfs_txg_timeout" => of_groups.timeout.as_secs(),
        "zfs_dirty_data_max" => of_groups.dirty_max,
        "zfs_dirty_data_sync_percent" => of_groups.sync_percent,
        "zfs_delay_min_dirty_percent" => of_groups.delay_min_percent,
        "zfs_delay_scale" => of_groups.delay_scale_ns,
        _ => unreachable!("every knob has a default"),
    }
}

#[cfg(test)]
mod tests;
