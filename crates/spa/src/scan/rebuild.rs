//! Sequential rebuild: a device gets all that it lacks in the order of its space, without anybody reading what refers to it.
//!
//! # Theory
//! A resilver follows pointers, so that checksums tell what is right; on disks with heads much of its time is seeks, and a block of few kilobytes is an operation. Of a mirror
//! or a dRAID what a device lacks can also be had as a *stretch* of space ([`vdev::Tree::read_stretch`]), whatever blocks lie there. So a rebuild goes
//! through the metaslabs of one top-level vdev, in order, and copies what their maps say is allocated, from devices that have missed nothing. Whether it is right is told by the scrub that follows.
//!
//! As scans do, it works in *slices*, before the sync thread's group frees or writes anything ([`Engine::rebuild_slice`]). The maps of the last group say what was
//! allocated then; nothing of that is freed or written over meanwhile, but for blocks of intent logs, which are allocated ahead, and repairs by readers: these are kept apart by
//! a cordon ([`vdev::Cordon`]). What is allocated later is written to the new device as to all others. Stretches that are near one another are copied
//! with what lies between them, which nobody uses: a seek costs more.
//!
//! # On disk
//! `org.openzfs:vdev_rebuild` in the ZAP of the top-level vdev has the state and the place below which all is copied ([`RebuildPhys`]); each group writes what a slice
//! before it did. While one is active, the feature `device_rebuild` is, and new devices have `rebuild_txg` in the config.
//!
//! # Life
//! A rebuild is *active* from the group that takes its device in. It begins three groups later, when all blocks have been written that may have been laid out without the device.
//! It is *complete* at the end of the space: then, if nothing went wrong, all that the vdev's devices missed is forgotten. It is *canceled* when no device is left that needs it or nobody has what
//! it needs: with the group in which such a device is detached, or when a slice finds so. Another device that joins the same vdev so begins it anew. A device that missed more meanwhile, or was away, and whatever went wrong, is left to a resilver, which follows.
//!
//! While one is active, no resilver begins, a scrub that went on is given up, and none begins.
//!
//! # Locks
//! `all`, and `ending` after it, are held for a few instructions.
//!
//! # Crash
//! What was copied is flushed with its group, before the uberblock that says so; what was copied after it is copied again.
//!
//! # Absent
//! What was freed in the last groups is not copied: who goes back to one of these finds it on the other devices.
//!
//! # See
//! OpenZFS `module/zfs/vdev_rebuild.c`.

mod slice;
mod sync;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;
use std::time::Instant;

use observe::{Tunable, Unit};
use ondisk::scan::RebuildPhys;
use ondisk::{Guid, Txg, VdevId, VdevKind};
use parking_lot::Mutex;
use pool::Mos;

use crate::engine::{Engine, LifeError, PoolWriter};

/// Bytes of each device that are read at once (`zfs_rebuild_max_segment`).
pub static REBUILD_MAX_SEGMENT: Tunable = Tunable::new(
    "zfs_rebuild_max_segment",
    1 << 20,
    4096..=16 << 20,
    Unit::Bytes,
    "largest read of a device by a sequential resilver",
);
/// Bytes of each device that are read ahead of what is written (`zfs_rebuild_vdev_limit`).
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

/// The feature that is active meanwhile.
pub(crate) const DEVICE_REBUILD: &str = "org.openzfs:device_rebuild";

/// How a rebuild ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Complete,
    Canceled,
}

/// What was done since this import began with it.
#[derive(Debug, Clone, Copy)]
struct Pass {
    since: Instant,
    /// Milliseconds that others had taken before.
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
    /// The first group before which something is copied.
    begins: Txg,
    /// The next group has something to write of it.
    dirty: bool,
    end: Option<End>,
    /// Devices that have been there since it was begun, or loaded.
    present: BTreeSet<Guid>,
    pass: Pass,
}

/// The active rebuilds of a pool.
#[derive(Debug, Default)]
pub(crate) struct Rebuilds {
    all: Mutex<BTreeMap<VdevId, Rebuild>>,
    /// As what those that ended in the group that syncs are told, until that is on disk; locked after `all`.
    ending: Mutex<BTreeMap<VdevId, RebuildStat>>,
}

impl Rebuilds {
    /// Whether there is one (`vdev_rebuild_active`).
    pub(crate) fn any(&self) -> bool {
        !self.all.lock().is_empty()
    }

    /// The same as it is told: one whose end is not on disk has not ended.
    pub(crate) fn any_told(&self) -> bool {
        self.any() || !self.ending.lock().is_empty()
    }

    /// What a group did is on disk: what ended in it is told from now on.
    pub(crate) fn on_disk(&self) {
        self.ending.lock().clear();
    }

    /// One ends in the group that syncs.
    fn end(&self, vdev: VdevId) {
        let mut all = self.all.lock();
        if let Some(rebuild) = all.remove(&vdev) {
            self.ending.lock().insert(vdev, rebuild.stat());
        }
    }
}

/// An active rebuild as people see it (`vdev_rebuild_stat_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RebuildStat {
    /// What is on disk of it, or will be with the next group.
    pub phys: RebuildPhys,
    /// Milliseconds since this import began with it.
    pub pass_ms: u64,
    /// Bytes of allocated space that were come to since then.
    pub pass_scanned: u64,
    /// Of these, bytes that were copied.
    pub pass_issued: u64,
    /// And those that no device lacked.
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

impl Engine {
    /// A device has left a top-level vdev: its rebuild ends with the group that syncs if nobody needs it any more. Others go on
    /// (`vdev_rebuild_should_cancel`).
    pub(crate) fn end_needless_rebuild(&self, vdev: VdevId) {
        if !self.tree().behind_in(vdev).is_empty() {
            return;
        }
        if let Some(rebuild) = self.rebuilds.all.lock().get_mut(&vdev) {
            rebuild.end.get_or_insert(End::Canceled);
        }
    }

    /// Whether groups are to follow one another, since each does a slice.
    pub(crate) fn is_rebuilding_now(&self) -> bool {
        self.rebuilds.any()
            && !self.scan.quiet.load(Ordering::Relaxed)
            && !self.scan.held.load(Ordering::Relaxed)
    }

    /// Whether a device may be put beside `old` so.
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
            kind && top.top_zap.is_some() && self.tree().is_sequential(VdevId(top.id as u32))
        };
        top.filter(fits).map(drop).ok_or(LifeError::NotSequential { guid: old })
    }
}

impl PoolWriter {
    /// How the active rebuild of a top-level vdev stands; nothing if there is none. It is active until its end is on disk.
    pub fn rebuild_stat(&self, vdev: VdevId) -> Option<RebuildStat> {
        let rebuilds = &self.engine().rebuilds;
        let all = rebuilds.all.lock();
        let ending = rebuilds.ending.lock().get(&vdev).copied();
        ending.or_else(|| all.get(&vdev).map(Rebuild::stat))
    }
}
