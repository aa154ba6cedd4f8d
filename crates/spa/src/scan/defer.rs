//! A deferred resilver, which waits for the end of the current one.
//!
//! # Theory
//! A device that becomes available or is attached during a resilver has missed more than that
//! covers. A restart would discard the work done, perhaps again and again. So with `resilver_defer`
//! enabled the new resilver waits, unless little has been done.
//!
//! # On disk
//! While one is deferred, the feature is active, and its devices have `com.datto:resilver_defer` in
//! the config, so that their DTLs are left alone.
//!
//! # See
//! OpenZFS `vdev_defer_resilver`, `vdev_clear_resilver_deferred`, `dsl_scan_sync`.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use dmu::Tx;
use dsl::sync::Event;
use observe::{Tunable, Unit};
use ondisk::feature::Feature;
use ondisk::{Guid, VdevConfig};
use pool::Mos;

use crate::pool_core::errors::SyncError;
use crate::scan::Scans;
use crate::scan::sync::{DEFER, event};
use crate::vdev_ops::replicas;

/// Percent of a resilver that must be done for another to be deferred
/// (`zfs_resilver_defer_percent`).
pub static DEFER_PERCENT: Tunable = Tunable::new(
    "zfs_resilver_defer_percent",
    10,
    0..=100,
    Unit::Percent,
    "progress from which a running resilver delays a new one instead of restarting",
);

fn feature() -> &'static Feature {
    Feature::by_guid(DEFER).expect("it is in the table")
}

impl Scans {
    /// Whether a resilver is deferred, by the pool metadata.
    pub(crate) fn is_deferred_on_disk(mos: &Mos) -> bool {
        mos.feature_refcount(feature()).is_ok_and(|count| count.unwrap_or(0) > 0)
    }

    /// Handles a request for a resilver while one is running. If that doesn't cover what devices
    /// have missed, it is restarted, or the new one is deferred.
    pub(crate) fn want_another(&self, tx: &Tx, events: &mut Vec<Event>) -> Result<(), SyncError> {
        let Some((_, end)) = self.missing() else { return Ok(()) };
        let Some(stat) = self.scan.stat().filter(|s| end > s.phys.max_txg) else { return Ok(()) };
        if !self.core.sync_mos.feature_enabled(DEFER).unwrap_or(false) {
            return self.restart_resilver(tx, events);
        }
        self.scan.deferred.store(true, Ordering::Relaxed);
        let whole = stat.phys.to_examine.saturating_sub(stat.phys.skipped);
        if stat.issued < whole / 100 * DEFER_PERCENT.get() {
            return self.restart_resilver(tx, events);
        }
        let metadata = |source| SyncError::Metadata { txg: tx.txg(), source };
        if !Self::is_deferred_on_disk(&self.core.sync_mos) {
            self.core.sync_mos.feature_incr(tx, feature()).map_err(metadata)?;
        }
        let tree = self.core.tree();
        let beyond = |guid: &Guid| {
            let last = tree.dtl(*guid).ok().and_then(|missed| missed.iter().last());
            last.is_some_and(|(_, end)| end > stat.phys.max_txg)
        };
        let late: BTreeSet<Guid> = tree.behind().into_iter().filter(beyond).collect();
        self.mark_deferred(|leaf| leaf.resilver_defer || late.contains(&leaf.guid));
        Ok(())
    }

    fn mark_deferred(&self, waits: impl Fn(&VdevConfig) -> bool) {
        let config = self.core.config_now();
        let root = config.root();
        let wrong: Vec<Guid> =
            root.leaves().filter(|leaf| leaf.resilver_defer != waits(leaf)).map(|leaf| leaf.guid).collect();
        if wrong.is_empty() {
            return;
        }
        self.core.edit_config(|config| {
            let root = config.root_mut();
            for guid in wrong {
                replicas::edit(root, guid, &mut |leaf| leaf.resilver_defer = !leaf.resilver_defer);
            }
        });
    }

    /// Ends the deferral, as a scan has ended or none is running. True if a deferred resilver must
    /// begin.
    pub(crate) fn undefer(&self, tx: &Tx, events: &mut Vec<Event>) -> Result<bool, SyncError> {
        let active = Self::is_deferred_on_disk(&self.core.sync_mos);
        if !self.scan.deferred.swap(false, Ordering::Relaxed) && !active {
            return Ok(false);
        }
        if active {
            let metadata = |source| SyncError::Metadata { txg: tx.txg(), source };
            self.core.sync_mos.feature_decr(tx, feature()).map_err(metadata)?;
        }
        self.mark_deferred(|_| false);
        let begins = self.missing().is_some();
        if begins {
            let errors = self.scan.stat().map_or(0, |s| s.phys.errors);
            events.push(event("starting deferred resilver", format!("errors={errors}")));
        }
        Ok(begins)
    }
}
