//! What a group writes of the scan, and what it does when one begins and ends.

use dmu::Tx;
use dsl::sync::Event;
use ondisk::scan::{DSF_SCRUB_PAUSED, ScanFunc, ScanPhys, ScanState};
use ondisk::{DmuType, ObjNum, Txg, mos};
use std::sync::atomic::Ordering;
use vdev::TxgRanges;

use super::plan::{self, Visited};
use super::walk::Walk;
use super::{ScanCommand, ScanDone, ScanRefusal, ScanStat, State};
use crate::engine::{Engine, SyncError};

const CHECKPOINT: &str = "com.delphix:zpool_checkpoint";
const DEFER: &str = "com.datto:resilver_defer";
/// The version of pools from which a scan's queue has a type of its own (`SPA_VERSION_DSL_SCRUB`).
const DSL_SCRUB: u64 = 11;
/// Object set of a bookmark whose dataset was destroyed (`ZB_DESTROYED_OBJSET`).
const DESTROYED: u64 = u64::MAX;

type Obeyed = (Result<ScanDone, ScanRefusal>, Vec<Event>);

fn event(what: &'static str, text: String) -> Event {
    Event { what, dataset: String::new(), object: 0, text }
}

impl ScanStat {
    fn of(phys: ScanPhys, now: u64) -> ScanStat {
        let paused = phys.state == ScanState::Scanning && phys.flags & DSF_SCRUB_PAUSED != 0;
        ScanStat {
            phys,
            pass_start: now,
            pass_examined: 0,
            pass_issued: 0,
            issued: phys.examined.saturating_sub(phys.skipped),
            paused_at: if paused { now } else { 0 },
            spent_paused: 0,
        }
    }
}

impl Engine {
    /// What the pool's books say of scans, when it is opened.
    pub(in crate::engine) fn load_scan(&self) {
        // What can't be read is not gone on with, and is written over by the next scan.
        let Ok(Some(phys)) = self.mos.scan() else { return };
        self.scan.state.lock().stat = Some(ScanStat::of(phys, self.world.now()));
    }

    /// Does what somebody asked for, in the group that syncs.
    pub(super) fn obey(&self, tx: &Tx, command: ScanCommand) -> Result<Obeyed, SyncError> {
        let running = self.scan.stat().filter(ScanStat::is_scanning);
        let resilvers = running.is_some_and(|s| s.phys.func == ScanFunc::Resilver);
        let paused = running.is_some_and(|s| s.phys.flags & DSF_SCRUB_PAUSED != 0);
        let mut events = Vec::new();
        let result = match command {
            ScanCommand::Scrub | ScanCommand::ScrubOn if paused => {
                self.pause(false);
                Ok(ScanDone::Resumed)
            }
            ScanCommand::Scrub | ScanCommand::ScrubOn if running.is_some() => Err(ScanRefusal::Busy),
            ScanCommand::ScrubOn => {
                let last = self.mos.last_scrubbed_txg();
                let last = last.map_err(|source| SyncError::Books { txg: tx.txg(), source })?.unwrap_or(0);
                self.begin_scan(tx, ScanFunc::Scrub, (last, tx.txg().0), &mut events)?;
                Ok(ScanDone::Done)
            }
            ScanCommand::Scrub => {
                self.begin_scan(tx, ScanFunc::Scrub, (0, tx.txg().0), &mut events)?;
                Ok(ScanDone::Done)
            }
            ScanCommand::Resilver => {
                self.restart_resilver(tx, &mut events)?;
                Ok(ScanDone::Done)
            }
            ScanCommand::Pause | ScanCommand::Stop if resilvers => Err(ScanRefusal::Busy),
            ScanCommand::Pause | ScanCommand::Stop if running.is_none() => Err(ScanRefusal::Idle),
            ScanCommand::Pause if paused => Err(ScanRefusal::Busy),
            ScanCommand::Pause => {
                self.pause(true);
                Ok(ScanDone::Done)
            }
            ScanCommand::Stop => {
                self.end_scan(tx, false, "scan cancelled", &mut events)?;
                Ok(ScanDone::Done)
            }
        };
        Ok((result, events))
    }

    fn pause(&self, pause: bool) {
        let now = self.world.now();
        let mut state = self.scan.state.lock();
        let state = &mut *state;
        let Some(stat) = &mut state.stat else { return };
        if pause {
            stat.phys.flags |= DSF_SCRUB_PAUSED;
            stat.paused_at = now;
        } else {
            stat.phys.flags &= !DSF_SCRUB_PAUSED;
            stat.spent_paused += now.saturating_sub(stat.paused_at);
            stat.paused_at = 0;
        }
        state.dirty = true;
        state.notice(if pause { "scrub_paused" } else { "scrub_resume" }, now);
    }

    /// Ends what goes on and begins the resilver that is needed, if one is.
    fn restart_resilver(&self, tx: &Tx, events: &mut Vec<Event>) -> Result<(), SyncError> {
        let Some(missing) = self.missing() else { return Ok(()) };
        if self.scan.stat().is_some_and(|s| s.is_scanning()) {
            self.end_scan(tx, false, "scan aborted, restarting", events)?;
        }
        self.scan.deferred.store(false, Ordering::Relaxed);
        self.begin_scan(tx, ScanFunc::Resilver, (missing.0.saturating_sub(1), missing.1), events)
    }

    fn begin_scan(
        &self,
        tx: &Tx,
        func: ScanFunc,
        (min_txg, max_txg): (u64, u64),
        events: &mut Vec<Event>,
    ) -> Result<(), SyncError> {
        let now = self.world.now();
        let books = |source| SyncError::Books { txg: tx.txg(), source };
        let old = self.synced.read().uberblock.version < DSL_SCRUB;
        let kind = if old { DmuType::ZAP_OTHER } else { DmuType::SCAN_QUEUE };
        let queue_obj = self.mos.create_zap_of(tx, kind).map_err(books)?.0;
        let phys = ScanPhys {
            func,
            state: ScanState::Scanning,
            queue_obj,
            min_txg,
            max_txg,
            cur_min_txg: min_txg,
            cur_max_txg: max_txg,
            start_time: now,
            end_time: 0,
            to_examine: self.allocator.totals().alloc(),
            examined: 0,
            skipped: 0,
            processed: 0,
            errors: 0,
            ddt_class_max: 0,
            ddt_bookmark: [0; 4],
            bookmark: [0; 4],
            flags: 0,
        };
        let tree = self.tree();
        tree.devices().filter_map(|(guid, _)| tree.stats(guid).ok()).for_each(|s| s.scan_repaired.clear());
        *self.scan.walk.lock() = Walk { loaded: true, at: Some(0), ..Walk::default() };
        let mut state = self.scan.state.lock();
        let notices = std::mem::take(&mut state.notices);
        *state = State {
            stat: Some(ScanStat::of(phys, now)),
            dirty: true,
            ours: true,
            notices,
            ..State::default()
        };
        let scrub = func == ScanFunc::Scrub;
        state.notice(if scrub { "scrub_start" } else { "resilver_start" }, now);
        let number = if scrub { 1 } else { 2 };
        events.push(event("scan setup", format!("func={number} mintxg={min_txg} maxtxg={max_txg}")));
        Ok(())
    }

    /// Ends the scan that goes on (`dsl_scan_done`).
    fn end_scan(
        &self,
        tx: &Tx,
        complete: bool,
        what: &'static str,
        events: &mut Vec<Event>,
    ) -> Result<(), SyncError> {
        let books = |source| SyncError::Books { txg: tx.txg(), source };
        let now = self.world.now();
        let (phys, ours, behind, lost) = {
            let mut state = self.scan.state.lock();
            let state = &mut *state;
            let Some(stat) = &mut state.stat else { return Ok(()) };
            let scrub = stat.phys.func == ScanFunc::Scrub;
            let queue = std::mem::take(&mut stat.phys.queue_obj);
            stat.phys.state = if complete { ScanState::Finished } else { ScanState::Canceled };
            stat.phys.flags &= !DSF_SCRUB_PAUSED;
            stat.phys.end_time = now;
            stat.paused_at = 0;
            let phys = ScanPhys { queue_obj: queue, ..stat.phys };
            (state.dirty, state.over) = (true, false);
            match (scrub, complete) {
                (true, true) => state.notice("scrub_finish", now),
                (true, false) => state.notice("scrub_abort", now),
                (false, true) => state.notice("resilver_finish", now),
                (false, false) => {}
            }
            (phys, state.ours, std::mem::take(&mut state.behind), std::mem::take(&mut state.lost))
        };
        *self.scan.walk.lock() = Walk { loaded: true, ..Walk::default() };
        if phys.queue_obj != 0 {
            let freed = self.mos.objset().free_object(tx, ObjNum(phys.queue_obj));
            freed.map_err(|source| SyncError::Mos { txg: tx.txg(), source })?;
        }
        events.push(event(what, format!("errors={}", phys.errors)));
        if complete && phys.func == ScanFunc::Scrub {
            let words = [phys.max_txg];
            self.mos.set_dir_words(tx, mos::LAST_SCRUBBED_TXG, &words).map_err(books)?;
        }
        let checkpoint = ondisk::feature::Feature::by_guid(CHECKPOINT).expect("it is in the table");
        let held = self.mos.feature_refcount(checkpoint).map_err(books)?.unwrap_or(0) > 0;
        if complete && !held && (ours || phys.errors == 0) {
            self.forget_missed(&phys, &behind, &lost);
            self.errands.end_replacements();
        }
        if complete && self.scan.deferred.swap(false, Ordering::Relaxed) {
            self.scan.wanted.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Forgets of the devices' DTLs what the scan has covered (`vdev_dtl_reassess`).
    fn forget_missed(
        &self,
        phys: &ScanPhys,
        behind: &std::collections::HashMap<ondisk::Guid, TxgRanges>,
        lost: &TxgRanges,
    ) {
        let tree = self.tree();
        for guid in tree.behind() {
            let Ok(missed) = tree.dtl(guid) else { continue };
            // One that was away during the scan has missed more than that covered.
            let within = |(start, _): (u64, u64)| start > phys.min_txg || phys.min_txg == 0;
            if missed.iter().last().is_some_and(|(_, end)| end > phys.max_txg)
                || !missed.iter().next().is_some_and(within)
            {
                continue;
            }
            let failed = behind.get(&guid).into_iter().flat_map(TxgRanges::iter);
            let keep = TxgRanges::new(failed.chain(lost.iter()));
            // It is in the tree that was just asked.
            let _ = tree.forget_missed(guid, Txg(phys.max_txg), &keep);
        }
    }

    /// Writes what has changed of the scan since the last group.
    pub(in crate::engine) fn sync_scan(&self, tx: &Tx) -> Result<(), SyncError> {
        let mut events = Vec::new();
        if self.scan.state.lock().over {
            self.end_scan(tx, true, "scan done", &mut events)?;
        }
        if self.scan.wanted.swap(false, Ordering::Relaxed) {
            let resilvers =
                self.scan.stat().is_some_and(|s| s.is_scanning() && s.phys.func == ScanFunc::Resilver);
            if resilvers && self.mos.feature_enabled(DEFER).unwrap_or(false) {
                self.scan.deferred.store(true, Ordering::Relaxed);
            } else {
                self.restart_resilver(tx, &mut events)?;
            }
        }
        self.log_events(tx, &events)?;
        self.put_scan(tx).map_err(|source| SyncError::Books { txg: tx.txg(), source })
    }

    fn put_scan(&self, tx: &Tx) -> pool::Result<()> {
        // Of a scan that this import has not gone on with yet, the record knows the place.
        let (phys, known) = {
            let walk = self.scan.walk.lock();
            let mut state = self.scan.state.lock();
            let state = &mut *state;
            let Some(stat) = state.stat.as_mut().filter(|_| std::mem::take(&mut state.dirty)) else {
                return Ok(());
            };
            if stat.phys.state == ScanState::Scanning && walk.loaded {
                stat.phys.bookmark = [walk.at.unwrap_or(0), walk.position.0, 0, walk.position.1];
                let current = walk.left.iter().find(|v| Some(v.objset) == walk.at);
                stat.phys.cur_max_txg = current.map_or(stat.phys.max_txg, |v| v.max().min(stat.phys.max_txg));
            }
            (stat.phys, walk.loaded)
        };
        if phys.queue_obj != 0 && known {
            let zap = ObjNum(phys.queue_obj);
            let old: Vec<String> = self.mos.entries(zap)?.flatten().map(|e| e.name_lossy()).collect();
            let new: Vec<(String, u64)> = {
                let walk = self.scan.walk.lock();
                let at = walk.at.unwrap_or(0);
                // OpenZFS enters the first datasets itself when it has visited the MOS.
                let list = if at == 0 { Vec::new() } else { plan::queue(&walk.left, at) };
                list.into_iter().map(|(objset, min)| (format!("{objset:x}"), min)).collect()
            };
            for name in old.iter().filter(|name| !new.iter().any(|(n, _)| n == *name)) {
                self.mos.unset(tx, zap, name)?;
            }
            for (name, min) in &new {
                if !old.contains(name) {
                    self.mos.set_word(tx, zap, name, *min)?;
                }
            }
        }
        self.mos.set_dir_words(tx, mos::SCAN, &phys.encode())
    }

    /// Finds the place of a scan that an import goes on with.
    pub(super) fn load_walk(&self, walk: &mut Walk, phys: &ScanPhys, txg: Txg) {
        if walk.loaded {
            return;
        }
        let [objset, object, level, block] = phys.bookmark;
        *walk = Walk { loaded: true, at: Some(0), ..Walk::default() };
        if objset == 0 {
            // In the MOS a position may have become another: it is small.
            return;
        }
        let all = plan::datasets(&self.mos);
        let entries = self.mos.entries(ObjNum(phys.queue_obj));
        let names = entries.into_iter().flatten().flatten().map(|e| e.name_lossy());
        let queue: Vec<u64> = names.filter_map(|n| u64::from_str_radix(&n, 16).ok()).collect();
        let current = Some(objset).filter(|o| *o != DESTROYED);
        walk.visited = Visited::from_queue(&all, current, &queue, txg.0);
        walk.left = walk.visited.left(&all);
        walk.at = current;
        let loaded = all.iter().find(|v| current == Some(v.objset));
        walk.min = loaded.map_or(0, |v| v.min);
        // Of another level, or in the blocks of dnodes, OpenZFS's position is within what is looked at again.
        let exact = level == 0 && object != 0 && block != u64::MAX - 1;
        walk.position = if exact {
            (object, block)
        } else if level == 0 {
            (0, 0)
        } else {
            (object, 0)
        };
        if object == 0 || level as i64 != 0 && (level as i64) < 0 {
            walk.position = (0, 0);
        }
    }
}
