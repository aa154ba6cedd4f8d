//! What a txg writes of rebuilds, and how one begins and ends.

use dmu::Tx;
use dsl::sync::Event;
use ondisk::feature::Feature;
use ondisk::scan::{REBUILD_ACTIVE, REBUILD_CANCELED, REBUILD_COMPLETE, RebuildPhys, ScanFunc};
use ondisk::{Guid, ObjNum, Txg, VdevId, mos};
use std::sync::atomic::Ordering;
use vdev::TxgRanges;

use crate::pool_core::errors::SyncError;
use crate::scan::Scans;
use crate::scan::rebuild::{DEVICE_REBUILD, End, Pass, REBUILD_SCRUB_ENABLED, Rebuild};
use crate::vdev_ops::attach::CONCURRENT;

fn feature() -> &'static Feature {
    Feature::by_guid(DEVICE_REBUILD).expect("it is in the table")
}

impl Scans {
    /// A top-level vdev's guid and ZAP, in the syncing txg.
    fn top_of_rebuild(&self, vdev: VdevId) -> Option<(Guid, ObjNum)> {
        let config = self.core.config_now();
        let top = config.root().children.get(vdev.0 as usize)?;
        Some((top.guid, top.top_zap?))
    }

    /// Loads rebuilds from the pool metadata, when the pool is opened at txg `last`. Active ones
    /// are resumed.
    pub(crate) fn load_rebuilds(&self, last: Txg) {
        let config = self.core.config_now();
        let root = config.root();
        for top in &root.children {
            // A record that can't be read is not resumed: a resilver follows (`vdev_rebuild_load`).
            let phys = top.top_zap.and_then(|zap| self.core.mos.rebuild(zap).ok().flatten());
            let Some(phys) = phys.filter(|phys| phys.state == REBUILD_ACTIVE) else { continue };
            let vdev = VdevId(top.id as u32);
            let rebuild = Rebuild {
                phys,
                // By then the space maps of an imported pool are complete.
                begins: Txg(last.0.saturating_add(2)),
                dirty: false,
                // The record makes no sense, and can't be resumed.
                end: (!self.core.tree().is_sequential(vdev)).then_some(End::Canceled),
                present: self.here(),
                pass: Pass::begin(phys.scan_time_ms),
            };
            self.rebuilds.all.lock().insert(vdev, rebuild);
        }
    }

    /// The txgs that devices of a vdev have missed, in the form of a record
    /// (`vdev_resilver_needed`).
    fn missed_in(&self, vdev: VdevId) -> Option<(u64, u64)> {
        let tree = self.core.tree();
        let spans = tree.behind_in(vdev).into_iter().filter_map(|guid| {
            let missed = tree.dtl(guid).ok()?;
            Some((missed.iter().next()?.0.saturating_sub(1), missed.iter().last()?.1))
        });
        spans.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)))
    }

    /// Starts or restarts the rebuild of the vdev that a device has just joined (`vdev_rebuild`).
    pub(crate) fn begin_rebuild(
        &self,
        tx: &Tx,
        vdev: VdevId,
        events: &mut Vec<Event>,
    ) -> Result<(), SyncError> {
        let metadata = |source| SyncError::Metadata { txg: tx.txg(), source };
        let Some((guid, zap)) = self.top_of_rebuild(vdev) else { return Ok(()) };
        let Some((min_txg, max_txg)) = self.missed_in(vdev) else { return Ok(()) };
        self.give_up_scrub(tx, events)?;
        let used = self.core.allocator.metaslab_figures(vdev).into_iter().map(|ms| ms.allocated);
        let phys = RebuildPhys {
            state: REBUILD_ACTIVE,
            min_txg,
            max_txg,
            start_time: self.core.world.now(),
            bytes_est: used.fold(0, u64::saturating_add),
            ..RebuildPhys::default()
        };
        let rebuild = Rebuild {
            phys,
            begins: Txg(tx.txg().0.saturating_add(CONCURRENT)),
            dirty: false,
            end: None,
            present: self.here(),
            pass: Pass::begin(0),
        };
        let anew = self.rebuilds.all.lock().insert(vdev, rebuild).is_some();
        self.core
            .sync_mos
            .set_words(tx, zap, mos::VDEV_TOP_REBUILD_PHYS, &phys.encode())
            .map_err(metadata)?;
        if !anew {
            self.core.sync_mos.feature_incr(tx, feature()).map_err(metadata)?;
            self.scan.notice_rebuild("resilver_start", guid, self.core.world.wall());
        }
        events.push(told(vdev, guid, if anew { "reset" } else { "started" }));
        Ok(())
    }

    /// Writes what has changed of rebuilds since the last txg, and ends those that are over.
    pub(crate) fn sync_rebuilds(&self, tx: &Tx, events: &mut Vec<Event>) -> Result<(), SyncError> {
        let changed: Vec<(VdevId, RebuildPhys, Option<End>)> = {
            let mut all = self.rebuilds.all.lock();
            let changed = all.iter_mut().filter(|(_, r)| r.dirty || r.end.is_some());
            changed
                .map(|(vdev, r)| {
                    r.dirty = false;
                    (*vdev, r.phys, r.end)
                })
                .collect()
        };
        for (vdev, phys, end) in changed {
            match end {
                Some(end) => self.end_rebuild(tx, vdev, end, events)?,
                None => self.put_rebuild(tx, vdev, &phys)?,
            }
        }
        Ok(())
    }

    fn put_rebuild(&self, tx: &Tx, vdev: VdevId, phys: &RebuildPhys) -> Result<(), SyncError> {
        let Some((_, zap)) = self.top_of_rebuild(vdev) else { return Ok(()) };
        let put = self.core.sync_mos.set_words(tx, zap, mos::VDEV_TOP_REBUILD_PHYS, &phys.encode());
        put.map_err(|source| SyncError::Metadata { txg: tx.txg(), source })
    }

    fn end_rebuild(&self, tx: &Tx, vdev: VdevId, end: End, events: &mut Vec<Event>) -> Result<(), SyncError> {
        let Some((mut phys, present)) =
            self.rebuilds.all.lock().get(&vdev).map(|r| (r.phys, r.present.clone()))
        else {
            return Ok(());
        };
        let complete = end == End::Complete;
        phys.state = if complete { REBUILD_COMPLETE } else { REBUILD_CANCELED };
        phys.end_time = self.core.world.now();
        if complete && phys.errors == 0 {
            let tree = self.core.tree();
            for guid in tree.behind_in(vdev).into_iter().filter(|guid| present.contains(guid)) {
                let covered =
                    |missed: &TxgRanges| missed.iter().last().is_none_or(|(_, e)| e <= phys.max_txg);
                if tree.dtl(guid).is_ok_and(|missed| covered(&missed)) {
                    // The guid is from the same tree.
                    let _ = tree.forget_missed(guid, Txg(phys.max_txg), &TxgRanges::default());
                }
            }
        }
        self.put_rebuild(tx, vdev, &phys)?;
        let decr = self.core.sync_mos.feature_decr(tx, feature());
        decr.map_err(|source| SyncError::Metadata { txg: tx.txg(), source })?;
        self.rebuilds.end(vdev);
        self.core.edit_config(|config| {
            let top = config.root_mut().children.get_mut(vdev.0 as usize);
            top.into_iter().for_each(forget_rebuild);
        });
        if let Some((guid, _)) = self.top_of_rebuild(vdev) {
            events.push(told(vdev, guid, if complete { "complete" } else { "canceled" }));
            self.scan.notice_rebuild("resilver_finish", guid, self.core.world.wall());
        }
        self.core.request_end_of_replacements();
        if self.rebuilds.any() {
            return Ok(());
        }
        if self.missing().is_some() {
            // Whatever the rebuild did not cover.
            self.scan.wanted.store(true, Ordering::SeqCst);
            return Ok(());
        }
        if complete && REBUILD_SCRUB_ENABLED.get() != 0 && !self.scan.is_scanning() {
            self.begin_scan(tx, ScanFunc::Scrub, (0, tx.txg().0), events)?;
        }
        Ok(())
    }

    /// Removes the records of rebuilds that are over: status queries report the resilver from now
    /// on (`vdev_rebuild_clear_sync`).
    pub(crate) fn forget_rebuilds(&self, tx: &Tx) -> Result<(), SyncError> {
        let metadata = |source| SyncError::Metadata { txg: tx.txg(), source };
        let config = self.core.config_now();
        for top in &config.root().children {
            let active = self.rebuilds.all.lock().contains_key(&VdevId(top.id as u32));
            let Some(zap) = top.top_zap.filter(|_| !active) else { continue };
            let known = self.core.sync_mos.rebuild(zap).ok().flatten();
            if known.is_some_and(|phys| phys != RebuildPhys::default()) {
                let none = RebuildPhys::default().encode();
                self.core.sync_mos.set_words(tx, zap, mos::VDEV_TOP_REBUILD_PHYS, &none).map_err(metadata)?;
            }
        }
        Ok(())
    }
}

fn told(vdev: VdevId, guid: Guid, what: &str) -> Event {
    let text = format!("vdev_id={} vdev_guid={} {what}", vdev.0, guid.0);
    Event { what: "rebuild", dataset: String::new(), object: 0, text }
}

// Recursion as deep as the tree, whose depth was checked when it was built.
fn forget_rebuild(vdev: &mut ondisk::VdevConfig) {
    vdev.rebuild_txg = None;
    vdev.children.iter_mut().for_each(forget_rebuild);
}
