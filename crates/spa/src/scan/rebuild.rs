//! Sequential rebuild: a device gets all that it lacks in the order of its space, without reading
//! block pointers.
//!
//! # Theory
//! A resilver follows pointers, so checksums show what is right. On disks with heads much of its
//! time is seeks, and a block of few kilobytes is one operation. In a mirror or a dRAID, what a
//! device lacks can also be read as a *stretch* of space ([`vdev::Tree::read_stretch`]), whatever
//! blocks lie there. So a rebuild goes through the metaslabs of one top-level vdev in order. It
//! copies what their space maps call allocated, from devices that have missed nothing. The scrub
//! that follows verifies the result.
//!
//! Like a scan it works in *slices*, before the sync thread's txg frees or writes anything
//! ([`Scans::rebuild_slice`]). The space maps of the last txg say what was allocated then. Nothing
//! of that is freed or overwritten meanwhile, except by intent logs, whose blocks are allocated
//! ahead, and by repairs of readers. A cordon keeps these apart ([`vdev::ClosedRanges`]). What is
//! allocated later is written to the new device as to all others. Stretches near one another are
//! copied with the unused space between them: a seek costs more.
//!
//! # On disk
//! `org.openzfs:vdev_rebuild` in the ZAP of the top-level vdev has the state, and the place below
//! which all is copied ([`RebuildPhys`]). Each txg writes what a slice before it did. While a
//! rebuild is active, the feature `device_rebuild` is active, and new devices have `rebuild_txg` in
//! the config.
//!
//! # Life
//! A rebuild is *active* from the txg that adds its device. It begins three txgs later, when all
//! blocks that may have been laid out without the device have been written.
//!
//! It is *complete* at the end of the space. If nothing went wrong then, the DTLs of the vdev's
//! devices are cleared. It is *canceled* if no device needs it any more, or no device has what it
//! needs. The txg that detaches such a device cancels it, or a slice that finds that. Another
//! device that joins the same vdev in this way restarts it. A device that missed more or was absent
//! meanwhile, and everything that went wrong, is left to the resilver that follows.
//!
//! While one is active, no resilver and no scrub begins, and a running scrub is canceled.
//!
//! # Locks
//! `all`, and `ending` after it, are held for a few instructions.
//!
//! # Crash
//! What was copied is flushed with its txg, before the uberblock that records it. What was copied
//! after that is copied again.
//!
//! # Absent
//! What was freed in the last txgs is not copied: after a rewind to one of these it is on the other
//! devices.
//!
//! # See
//! OpenZFS `module/zfs/vdev_rebuild.c`.

mod slice;
mod sync;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;
use std::time::Instant;

use observe::lock::Mutex;
use observe::{Tunable, Unit};
use ondisk::scan::RebuildPhys;
use ondisk::{Guid, Txg, VdevId, VdevKind};
use pool::Mos;

use crate::pool_core::errors::LifeError;
use crate::scan::Scans;

/// Bytes of each device that are read at once (`zfs_rebuild_max_segment`).
pub static REBUILD_MAX_SEGMENT: Tunable = Tunable::new(
    "zfs_rebuild_max_segment",
    1 << 20,
    4096..=16 << 20,
    Unit::Bytes,
    "largest read of a device by a sequential resilver",
);
/// Bytes of each device that are read ahead of the writes (`zfs_rebuild_vdev_limit`).
pub static REBUILD_VDEV_LIMIT: Tunable = Tunable::new(
    "zfs_rebuild_vdev_limit",
    64 << 20,
    1 << 20..=1 << 30,
    Unit::Bytes,
    "most data of a device that a sequential resilver reads ahead of its writes",
);
/// Whether a scrub follows (`zfs_rebuild_scrub_enabled`).
pub static REBUILD_SCRUB_ENABLED: Tunable = Tunable::new(
    "zfs_rebuild_scrub_enabled",
    1,
    0..=1,
    Unit::Flag,
    "1: start a scrub after a sequential resilver",
);

/// The feature that is active during a rebuild.
pub(crate) const DEVICE_REBUILD: &str = "org.openzfs:device_rebuild";

/// How a rebuild ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Complete,
    Canceled,
}

/// The work since this import started or resumed it.
#[derive(Debug, Clone, Copy)]
struct Pass {
    since: Instant,
    /// Milliseconds of the passes before.
    before_ms: u64,
    scanned: u64,
    issued: u64,
    skipped: u64,
}

impl Pass {
    fn begin(before_ms: u64) -> Pass {
        Pass { since: Instant::now(), before_ms, scanned: 0, issued: 0, skipped: 0 }
    }

    fn ms(&self) -> u64 {
        self.since.elapsed().as_millis() as u64
    }
}

/// An active rebuild.
#[derive(Debug)]
struct Rebuild {
    phys: RebuildPhys,
    /// The first txg before which something is copied.
    begins: Txg,
    /// The next txg must write the state.
    dirty: bool,
    end: Option<End>,
    /// Devices that have been present since it began, or was loaded.
    present: BTreeSet<Guid>,
    pass: Pass,
}

/// The active rebuilds of a pool.
#[derive(Debug, Default)]
pub(crate) struct Rebuilds {
    all: Mutex<BTreeMap<VdevId, Rebuild>>,
    /// The reported states of those that ended in the syncing txg, until that is on disk; locked
    /// after `all`.
    ending: Mutex<BTreeMap<VdevId, RebuildStat>>,
}

impl Rebuilds {
    /// Whether a rebuild is active (`vdev_rebuild_active`).
    pub(crate) fn any(&self) -> bool {
        !self.all.lock().is_empty()
    }

    /// The same for status queries: a rebuild has ended only once its end is on disk.
    pub(crate) fn any_told(&self) -> bool {
        self.any() || !self.ending.lock().is_empty()
    }

    /// The txg is on disk: status queries now report what ended in it as ended.
    pub(crate) fn on_disk(&self) {
        self.ending.lock().clear();
    }

    /// Notes that one ends in the syncing txg.
    fn end(&self, vdev: VdevId) {
        let mut all = self.all.lock();
        if let Some(rebuild) = all.remove(&vdev) {
            self.ending.lock().insert(vdev, rebuild.stat());
        }
    }
}

/// The state of an active rebuild for status queries (`vdev_rebuild_stat_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RebuildStat {
    /// Its record on disk, or as the next txg writes it.
    pub phys: RebuildPhys,
    /// Milliseconds since this import started or resumed it.
    pub pass_ms: u64,
    /// Bytes of allocated space that were passed since then.
    pub pass_scanned: u64,
    /// The part of these that was copied, in bytes.
    pub pass_issued: u64,
    /// The part of these that no device lacked, in bytes.
    pub pass_skipped: u64,
}

impl Rebuild {
    fn stat(&self) -> RebuildStat {
        RebuildStat {
            phys: self.phys,
            pass_ms: self.pass.ms(),
            pass_scanned: self.pass.scanned,
            pass_issued: self.pass.issued,
            pass_skipped: self.pass.skipped,
        }
    }
}

impl Scans {
    /// Ends the rebuild of a top-level vdev that a device has left, with the syncing txg, if no
    /// device needs it any more. Others continue (`vdev_rebuild_should_cancel`).
    pub(crate) fn end_needless_rebuild(&self, vdev: VdevId) {
        if !self.core.tree().behind_in(vdev).is_empty() {
            return;
        }
        if let Some(rebuild) = self.rebuilds.all.lock().get_mut(&vdev) {
            rebuild.end.get_or_insert(End::Canceled);
        }
    }

    /// Whether txgs must follow one another at once, since each runs a slice.
    pub(crate) fn is_rebuilding_now(&self) -> bool {
        self.rebuilds.any()
            && !self.scan.quiet.load(Ordering::Relaxed)
            && !self.scan.held.load(Ordering::Relaxed)
    }

    /// Whether a device may be attached to `old` with a sequential rebuild.
    pub(crate) fn may_rebuild(
        &self,
        mos: &Mos,
        root: &ondisk::VdevConfig,
        old: Guid,
    ) -> Result<(), LifeError> {
        if !mos.feature_enabled(DEVICE_REBUILD).unwrap_or(false) {
            return Err(LifeError::RebuildDisabled);
        }
        let resilvers = self.scan.stat().is_some_and(|s| s.is_resilvering());
        if resilvers || self.scan.is_turning() || self.scan.deferred.load(Ordering::Relaxed) {
            return Err(LifeError::Resilvering);
        }
        let top = root.children.iter().find(|top| top.find(old).is_some());
        let fits = |top: &&ondisk::VdevConfig| {
            let alone = matches!(top.kind, VdevKind::Disk | VdevKind::File);
            let kind = alone || matches!(top.kind, VdevKind::Mirror | VdevKind::Draid);
            kind && top.top_zap.is_some() && self.core.tree().is_sequential(VdevId(top.id as u32))
        };
        top.filter(fits).map(drop).ok_or(LifeError::NotSequential { guid: old })
    }
}

impl Scans {
    /// The state of a top-level vdev's active rebuild; `None` if there is none. It is active until
    /// its end is on disk.
    pub fn rebuild_stat(&self, vdev: VdevId) -> Option<RebuildStat> {
        let rebuilds = &self.rebuilds;
        let all = rebuilds.all.lock();
        let ending = rebuilds.ending.lock().get(&vdev).copied();
        ending.or_else(|| all.get(&vdev).map(Rebuild::stat))
    }
}
