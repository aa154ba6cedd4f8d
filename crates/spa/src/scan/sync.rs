//! What a txg writes of the scan, and how one begins and ends.

use std::collections::{BTreeMap, BTreeSet};

use dmu::Tx;
use dsl::sync::Event;
use ondisk::scan::{DSF_SCRUB_PAUSED, DSF_VISIT_DS_AGAIN, ScanFunc, ScanPhys, ScanState};
use ondisk::{DmuType, ObjNum, Txg, mos};
use pool::Mos;
use std::sync::atomic::Ordering;
use vdev::TxgRanges;

use crate::error_log::Turn;
use crate::pool_core::errors::SyncError;
use crate::scan::Scans;
use crate::scan::order;
use crate::scan::order::Visited;
use crate::scan::walk::Walk;
use crate::scan::{ScanCommand, ScanDone, ScanRefusal, ScanStat, State};

const CHECKPOINT: &str = "com.delphix:zpool_checkpoint";
const CLONES: &str = "com.fudosecurity:block_cloning";
pub(crate) const DEFER: &str = "com.datto:resilver_defer";
/// Pool version from which a scan's queue has a type of its own (`SPA_VERSION_DSL_SCRUB`).
const DSL_SCRUB: u64 = 11;
/// Object set of a bookmark whose dataset was destroyed (`ZB_DESTROYED_OBJSET`).
const DESTROYED: u64 = u64::MAX;

type Obeyed = (Result<ScanDone, ScanRefusal>, Vec<Event>);

pub(crate) fn event(what: &'static str, text: String) -> Event {
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

impl Scans {
    /// Loads scans from the pool metadata, when the pool is opened.
    pub(crate) fn load_scan(&self) {
        // A record that can't be read is not resumed, and the next scan overwrites it.
        self.load_error_scrub();
        self.scan.deferred.store(Self::is_deferred_on_disk(&self.core.mos), Ordering::Relaxed);
        let Ok(Some(phys)) = self.core.mos.scan() else { return };
        let present = self.here();
        let mut state = self.scan.state.lock();
        state.stat = Some(ScanStat::of(phys, self.core.world.now()));
        state.present = present;
    }

    /// Executes a command in the syncing txg.
    pub(crate) fn obey(&self, tx: &Tx, command: ScanCommand) -> Result<Obeyed, SyncError> {
        let running = self.scan.stat().filter(ScanStat::is_scanning);
        let resilvers = running.is_some_and(|s| s.phys.func == ScanFunc::Resilver);
        let paused = running.is_some_and(|s| s.phys.flags & DSF_SCRUB_PAUSED != 0);
        let mut events = Vec::new();
        let error_scrub = self.scan.errors.lock().is_running();
        let result = match command {
            ScanCommand::ErrorScrub => self.start_error_scrub(tx, &mut events)?,
            ScanCommand::Pause if error_scrub => self.pause_error_scrub(),
            ScanCommand::Stop if error_scrub => {
                self.end_error_scrub(false, &mut events);
                Ok(ScanDone::Done)
            }
            ScanCommand::Scrub | ScanCommand::ScrubOn if error_scrub => Err(ScanRefusal::Busy),
            ScanCommand::Scrub | ScanCommand::ScrubOn if paused => {
                self.pause(false);
                Ok(ScanDone::Resumed)
            }
            ScanCommand::Scrub | ScanCommand::ScrubOn if running.is_some() => Err(ScanRefusal::Busy),
            ScanCommand::Scrub | ScanCommand::ScrubOn if self.rebuilds.any() => Err(ScanRefusal::Busy),
            ScanCommand::ScrubOn => {
                let last = self.core.sync_mos.last_scrubbed_txg();
                let last = last.map_err(|source| SyncError::Metadata { txg: tx.txg(), source })?.unwrap_or(0);
                self.begin_scan(tx, ScanFunc::Scrub, (last, tx.txg().0), &mut events)?;
                Ok(ScanDone::Done)
            }
            ScanCommand::Scrub => {
                self.begin_scan(tx, ScanFunc::Scrub, (0, tx.txg().0), &mut events)?;
                Ok(ScanDone::Done)
            }
            ScanCommand::Resilver if self.rebuilds.any() => {
                // The resilver begins when no rebuild is active any more, if it is still needed.
                self.scan.wanted.store(true, Ordering::SeqCst);
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
        let now = self.core.world.now();
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
        state.notice(if pause { "scrub_paused" } else { "scrub_resume" }, self.core.world.wall());
    }

    /// Ends the running scan and starts a resilver, if one is needed.
    pub(crate) fn restart_resilver(&self, tx: &Tx, events: &mut Vec<Event>) -> Result<(), SyncError> {
        let Some(missing) = self.missing() else { return Ok(()) };
        if self.scan.stat().is_some_and(|s| s.is_scanning()) {
            self.end_scan(tx, false, "scan aborted, restarting", events)?;
        }
        self.begin_scan(tx, ScanFunc::Resilver, (missing.0.saturating_sub(1), missing.1), events)
    }

    pub(crate) fn begin_scan(
        &self,
        tx: &Tx,
        func: ScanFunc,
        (min_txg, max_txg): (u64, u64),
        events: &mut Vec<Event>,
    ) -> Result<(), SyncError> {
        let now = self.core.world.now();
        self.end_error_scrub(false, events);
        self.forget_error_scrub();
        if func == ScanFunc::Resilver {
            self.forget_rebuilds(tx)?;
        }
        let metadata = |source| SyncError::Metadata { txg: tx.txg(), source };
        let old = self.core.synced.read().uberblock.version < DSL_SCRUB;
        let kind = if old { DmuType::ZAP_OTHER } else { DmuType::SCAN_QUEUE };
        let queue_obj = self.core.sync_mos.create_zap_of(tx, kind).map_err(metadata)?.0;
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
            to_examine: self.core.allocator.totals().alloc(),
            examined: 0,
            skipped: 0,
            processed: 0,
            errors: 0,
            ddt_class_max: 0,
            ddt_bookmark: [0; 4],
            bookmark: [0; 4],
            flags: 0,
        };
        let tree = self.core.tree();
        tree.devices().filter_map(|(guid, _)| tree.stats(guid).ok()).for_each(|s| s.scan_repaired.clear());
        let present = self.here();
        // Devices are up to date only beyond this txg. `max_txg` is later if a device has missed
        // some of this very txg.
        tree.passed_by(&present, Txg(tx.txg().0.max(max_txg)));
        *self.scan.walk.lock() = Walk::from_the_beginning();
        self.scan.queue.clear();
        let mut state = self.scan.state.lock();
        let (notices, ending) = (std::mem::take(&mut state.notices), state.ending);
        *state = State {
            stat: Some(ScanStat::of(phys, now)),
            dirty: true,
            ours: true,
            present,
            notices,
            ending,
            ..State::default()
        };
        let scrub = func == ScanFunc::Scrub;
        state.notice(if scrub { "scrub_start" } else { "resilver_start" }, self.core.world.wall());
        let number = if scrub { 1 } else { 2 };
        events.push(event("scan setup", format!("func={number} mintxg={min_txg} maxtxg={max_txg}")));
        Ok(())
    }

    /// Cancels a running scrub for a rebuild.
    pub(crate) fn give_up_scrub(&self, tx: &Tx, events: &mut Vec<Event>) -> Result<(), SyncError> {
        let scrubs = self.scan.stat().is_some_and(|s| s.is_scanning() && s.phys.func == ScanFunc::Scrub);
        if scrubs { self.end_scan(tx, false, "scan cancelled", events) } else { Ok(()) }
    }

    /// Ends the running scan (`dsl_scan_done`).
    fn end_scan(
        &self,
        tx: &Tx,
        complete: bool,
        what: &'static str,
        events: &mut Vec<Event>,
    ) -> Result<(), SyncError> {
        let metadata = |source| SyncError::Metadata { txg: tx.txg(), source };
        let now = self.core.world.now();
        let (phys, ours, behind, lost, present, moved) = {
            let mut state = self.scan.state.lock();
            let state = &mut *state;
            let Some(stat) = &mut state.stat else { return Ok(()) };
            state.ending.get_or_insert(*stat);
            let scrub = stat.phys.func == ScanFunc::Scrub;
            let queue = std::mem::take(&mut stat.phys.queue_obj);
            stat.phys.state = if complete { ScanState::Finished } else { ScanState::Canceled };
            stat.phys.flags &= !DSF_SCRUB_PAUSED;
            stat.phys.end_time = now;
            stat.paused_at = 0;
            let phys = ScanPhys { queue_obj: queue, ..stat.phys };
            (state.dirty, state.over) = (true, false);
            match (scrub, complete) {
                (true, true) => state.notice("scrub_finish", self.core.world.wall()),
                (true, false) => state.notice("scrub_abort", self.core.world.wall()),
                (false, true) => state.notice("resilver_finish", self.core.world.wall()),
                (false, false) => {}
            }
            let (behind, lost) = (std::mem::take(&mut state.behind), std::mem::take(&mut state.lost));
            let moved = std::mem::take(&mut state.moved);
            let lost = TxgRanges::new(lost.iter().chain(moved.iter()));
            (phys, state.ours, behind, lost, std::mem::take(&mut state.present), !moved.is_empty())
        };
        *self.scan.walk.lock() = Walk { loaded: true, ..Walk::default() };
        self.scan.queue.clear();
        if phys.queue_obj != 0 && self.is_queue(&self.core.sync_mos, phys.queue_obj) {
            let freed = self.core.sync_mos.objset().free_object(tx, ObjNum(phys.queue_obj));
            freed.map_err(|source| SyncError::Mos { txg: tx.txg(), source })?;
        }
        events.push(event(what, format!("errors={}", phys.errors)));
        let all = phys.func == ScanFunc::Resilver || phys.min_txg == 0;
        self.core.error_logs.over(if complete && all { Turn::Replace } else { Turn::Add });
        if complete && phys.func == ScanFunc::Scrub {
            let words = [phys.max_txg];
            self.core.sync_mos.set_dir_words(tx, mos::LAST_SCRUBBED_TXG, &words).map_err(metadata)?;
        }
        let checkpoint = ondisk::feature::Feature::by_guid(CHECKPOINT).expect("it is in the table");
        let held = self.core.sync_mos.feature_refcount(checkpoint).map_err(metadata)?.unwrap_or(0) > 0;
        let clones = ondisk::feature::Feature::by_guid(CLONES).expect("it is in the table");
        // An earlier import knew what was cloned behind the scan.
        let known = ours
            || phys.errors == 0
                && self.core.sync_mos.feature_refcount(clones).map_err(metadata)?.unwrap_or(0) == 0;
        if complete && !held && !known && phys.errors == 0 && self.missing().is_some() {
            self.scan.wanted.store(true, Ordering::Relaxed);
        }
        if complete && !held && known {
            self.forget_missed(&phys, &behind, &lost, &present);
            self.core.request_end_of_replacements();
            if moved && self.missing().is_some() {
                self.scan.wanted.store(true, Ordering::Relaxed);
            }
        }
        if self.undefer(tx, events)? && complete {
            self.scan.wanted.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Clears the devices' DTLs of what the scan has covered (`vdev_dtl_reassess`).
    fn forget_missed(
        &self,
        phys: &ScanPhys,
        behind: &std::collections::HashMap<ondisk::Guid, TxgRanges>,
        lost: &TxgRanges,
        present: &BTreeSet<ondisk::Guid>,
    ) {
        let tree = self.core.tree();
        for guid in tree.behind().into_iter().filter(|guid| present.contains(guid)) {
            let Ok(missed) = tree.dtl(guid) else { continue };
            // A device that was absent during the scan has missed more than that covered.
            let within = |(start, _): (u64, u64)| start > phys.min_txg || phys.min_txg == 0;
            if missed.iter().last().is_some_and(|(_, end)| end > phys.max_txg)
                || !missed.iter().next().is_some_and(within)
            {
                continue;
            }
            let failed = behind.get(&guid).into_iter().flat_map(TxgRanges::iter);
            let keep = TxgRanges::new(failed.chain(lost.iter()));
            // The guid is from the same tree.
            let _ = tree.forget_missed(guid, Txg(phys.max_txg), &keep);
        }
    }

    /// Writes what has changed of the scan since the last txg.
    pub(crate) fn sync_scan(&self, tx: &Tx) -> Result<(), SyncError> {
        let mut events = Vec::new();
        self.scan.turning.store(true, Ordering::SeqCst);
        if self.scan.state.lock().over {
            self.end_scan(tx, true, "scan done", &mut events)?;
        }
        self.sync_rebuilds(tx, &mut events)?;
        let resilvers =
            self.scan.stat().is_some_and(|s| s.is_scanning() && s.phys.func == ScanFunc::Resilver);
        if !resilvers && self.scan.deferred.load(Ordering::Relaxed) && self.undefer(tx, &mut events)? {
            self.scan.wanted.store(true, Ordering::Relaxed);
        }
        let wanted = !self.rebuilds.any() && self.scan.wanted.swap(false, Ordering::SeqCst);
        match wanted {
            true if resilvers => self.want_another(tx, &mut events)?,
            true => self.restart_resilver(tx, &mut events)?,
            false => {}
        }
        self.sync_error_scrub(tx, &mut events)?;
        self.scan.turned();
        self.core.log_events(tx, &events)?;
        self.put_scan(tx).map_err(|source| SyncError::Metadata { txg: tx.txg(), source })
    }

    /// Whether this object of the MOS is a queue of datasets. Nothing else is changed or freed,
    /// whatever the record says.
    fn is_queue(&self, mos: &Mos, object: u64) -> bool {
        let old = self.core.synced.read().uberblock.version < DSL_SCRUB;
        let kind = if old { DmuType::ZAP_OTHER } else { DmuType::SCAN_QUEUE };
        mos.objset().dnode(ObjNum(object)).is_ok_and(|dnode| dnode.kind() == kind)
    }

    /// Updates the walk for the datasets that the txg has changed: the record in this txg must say
    /// what is left after it.
    fn replan(&self, walk: &mut Walk, state: &mut State) {
        let Some(stat) = state.stat.as_mut().filter(|s| s.is_scanning()) else { return };
        if !walk.loaded {
            // The record has not been read yet, and the datasets that it names may be gone.
            *walk = Walk { young: true, ..Walk::from_the_beginning() };
        } else if walk.at != Some(0) {
            let list = order::datasets(&self.core.sync_mos);
            if list.cut_short && !std::mem::replace(&mut walk.cut_short, true) {
                let recorded = walk.recorded.as_mut().map(|r| &mut r.counted.errors);
                recorded.into_iter().chain([&mut stat.phys.errors]).for_each(|n| *n = n.saturating_add(1));
                state.lost = TxgRanges::new([(0, u64::MAX)]);
            }
            walk.plan(&list.all);
            // Within the MOS no datasets are planned yet.
            if let Some(recorded) = walk.recorded.as_mut().filter(|r| r.walk.at != Some(0)) {
                recorded.walk.plan(&list.all);
            }
        }
        state.dirty = true;
    }

    /// Writes the scan's state as far as all found blocks have been verified (`SYNC_CACHED`).
    /// Queued blocks are found again after an import.
    fn put_scan(&self, tx: &Tx) -> pool::Result<()> {
        let walk = &mut *self.scan.walk.lock();
        let (phys, sums, walk) = {
            let mut state = self.scan.state.lock();
            let state = &mut *state;
            if self.scan.replan.swap(false, Ordering::Relaxed) {
                self.replan(walk, state);
            }
            let Some(stat) = state.stat.as_mut().filter(|_| std::mem::take(&mut state.dirty)) else {
                return Ok(());
            };
            let (known, counted) = match &walk.recorded {
                Some(recorded) => (&recorded.walk, Some(recorded.counted)),
                None => (&*walk, None),
            };
            // For a scan that this import has not resumed yet, the record has the position.
            if stat.phys.state == ScanState::Scanning && known.loaded {
                let at = known.at.unwrap_or(DESTROYED);
                stat.phys.bookmark = [at, known.position.0, 0, known.position.1];
                stat.phys.cur_min_txg = known.min.max(stat.phys.min_txg);
                let current = known.left.iter().find(|v| Some(v.objset) == known.at);
                stat.phys.cur_max_txg = current.map_or(stat.phys.max_txg, |v| v.max().min(stat.phys.max_txg));
            }
            let (mut phys, sums) = (stat.phys, [stat.phys.examined, stat.issued]);
            if let Some(counted) = counted {
                (phys.examined, phys.skipped) = (counted.examined, counted.skipped);
                phys.errors = counted.errors;
                // After an import a resilver writes its blocks again; a scrub's repairs are done.
                if phys.func == ScanFunc::Resilver {
                    phys.processed = counted.processed;
                }
            }
            (phys, sums, known)
        };
        let mut phys = phys;
        if phys.state == ScanState::Scanning && walk.loaded {
            if !self.is_queue(&self.core.sync_mos, phys.queue_obj) {
                let old = self.core.synced.read().uberblock.version < DSL_SCRUB;
                let kind = if old { DmuType::ZAP_OTHER } else { DmuType::SCAN_QUEUE };
                phys.queue_obj = self.core.sync_mos.create_zap_of(tx, kind)?.0;
                if let Some(stat) = &mut self.scan.state.lock().stat {
                    stat.phys.queue_obj = phys.queue_obj;
                }
            }
            self.put_queue(tx, ObjNum(phys.queue_obj), walk)?;
        }
        // While blocks are queued the record doesn't change, and it does not cause a txg by itself.
        // If the scan made no progress before a txg, the record is written: if devices are absent,
        // that shows then.
        let put = self.scan.state.lock().put.replace((phys, sums));
        if put.is_some_and(|(before, then)| before == phys && then != sums) {
            return Ok(());
        }
        self.core.sync_mos.set_dir_words(tx, mos::SCAN, &phys.encode())
    }

    fn put_queue(&self, tx: &Tx, zap: ObjNum, walk: &Walk) -> pool::Result<()> {
        let old: BTreeMap<String, Option<u64>> = self
            .core
            .sync_mos
            .entries(zap)?
            .flatten()
            .map(|e| (e.name_lossy(), e.value.iter().next()))
            .collect();
        // OpenZFS enters the first datasets itself when it has visited the MOS.
        let list = if walk.at == Some(0) {
            Vec::new()
        } else {
            order::queue(&walk.left, walk.at.unwrap_or(DESTROYED))
        };
        let new: BTreeMap<String, u64> =
            list.into_iter().map(|(objset, min)| (format!("{objset:x}"), min)).collect();
        for name in old.keys().filter(|name| !new.contains_key(*name)) {
            self.core.sync_mos.unset(tx, zap, name)?;
        }
        for (name, min) in new.iter().filter(|(name, min)| old.get(*name) != Some(&Some(**min))) {
            self.core.sync_mos.set_word(tx, zap, name, *min)?;
        }
        Ok(())
    }

    /// The datasets of a queue, each with the txg from which on it must be visited; `None` if it
    /// can't be read.
    fn read_queue(&self, object: u64) -> Option<Vec<(u64, u64)>> {
        if !self.is_queue(&self.core.mos, object) {
            return None;
        }
        let entries = self.core.mos.entries(ObjNum(object)).ok()?;
        let pair =
            |e: pool::Entry| Some((u64::from_str_radix(&e.name_lossy(), 16).ok()?, e.value.iter().next()?));
        entries.map(|e| e.ok().and_then(pair)).collect()
    }

    /// Finds the position of a scan that an import resumes. If that is uncertain, it is the
    /// beginning.
    pub(crate) fn load_walk(&self, walk: &mut Walk, phys: &ScanPhys, txg: Txg) {
        if walk.loaded {
            return;
        }
        let [objset, object, level, block] = phys.bookmark;
        *walk = Walk { young: true, ..Walk::from_the_beginning() };
        if objset == 0 {
            // Positions in the MOS may have changed, and the MOS is small: visit it again.
            return;
        }
        let list = order::datasets(&self.core.mos);
        let (false, Some(mut queue)) = (list.cut_short, self.read_queue(phys.queue_obj)) else { return };
        let all = list.all;
        let named = |objset: u64| all.iter().find(|v| v.objset == objset);
        if queue.iter().any(|(objset, _)| named(*objset).is_none()) {
            return;
        }
        let current = if objset == DESTROYED {
            None
        } else {
            let Some(current) = named(objset) else { return };
            queue.push((objset, phys.cur_min_txg.min(current.min)));
            Some(current)
        };
        walk.visited = Visited::from_queue(&all, &queue, Txg(txg.0.saturating_sub(1)));
        walk.left = walk.visited.left(&all).into();
        let Some(current) = current else { return walk.choose() };
        (walk.at, walk.created, walk.min) = (Some(objset), current.created, current.min);
        // At another level, or in blocks of dnodes, OpenZFS's position is within what is verified
        // again.
        let exact = level == 0 && object != 0 && block != u64::MAX - 1;
        let again = phys.flags & DSF_VISIT_DS_AGAIN != 0 || object == 0 || (level as i64) < 0;
        walk.position = match (exact, level) {
            _ if again => (0, 0),
            (true, _) => (object, block),
            (false, 0) => (0, 0),
            (false, _) => (object, 0),
        };
        if let Some(stat) = &mut self.scan.state.lock().stat {
            stat.phys.flags &= !DSF_VISIT_DS_AGAIN;
        }
    }
}
