//! The error scrub: it verifies the blocks in the error log, and nothing else.
//!
//! # Theory
//! It goes through the log as it was when the scrub began, in slices like any scan. Each block is
//! verified once, for all datasets that hold it. What is still damaged goes to the log that scrubs
//! fill, which replaces the other in the end. So repaired blocks, and blocks that no dataset holds
//! any more, leave the log.
//!
//! # On disk
//! `error_scrub` in the MOS's directory ([`ErrorScrubPhys`]). Its cursor is always at the
//! beginning: an import starts the log again.
//!
//! # Life
//! *Running* (perhaps *paused*), *finished* or *canceled*. A scrub or resilver that begins ends it
//! and removes its record.
//!
//! # See
//! OpenZFS `dsl_errorscrub_sync`, `dsl_errorscrub_done`.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use dmu::Tx;
use dsl::sync::Event;
use ondisk::scan::{ErrBookmark, ErrorScrubPhys, ScanFunc, ScanState};
use ondisk::{BlkId, Level, ObjNum, mos};
use pool::errlog::ErrLog;
use zio::{Bookmark, Priority, ReadOptions, Request};

use crate::damaged::{HEAD_ERRLOG, Holders, Search};
use crate::error_log::Turn;
use crate::pool_core::errors::SyncError;
use crate::scan::Scans;
use crate::scan::slice::HURRIED;
use crate::scan::sync::event;
use crate::scan::{SCRUB_MS, ScanDone, ScanRefusal};

/// The state of an error scrub.
#[derive(Debug)]
pub(crate) struct ErrorScrub {
    pub(crate) phys: ErrorScrubPhys,
    /// When it was paused; 0 if it is not.
    pub(crate) paused_at: u64,
    /// The rest of the log; `None` if it has not been read.
    left: Option<VecDeque<ErrBookmark>>,
    /// The next txg must write the state.
    dirty: bool,
    /// All blocks have been verified: the next txg ends it.
    over: bool,
    /// The log can't be read: the next txg ends it.
    unreadable: bool,
}

impl Default for ErrorScrub {
    fn default() -> Self {
        ErrorScrub {
            phys: ErrorScrubPhys::NONE,
            paused_at: 0,
            left: None,
            dirty: false,
            over: false,
            unreadable: false,
        }
    }
}

impl ErrorScrub {
    pub(crate) fn is_running(&self) -> bool {
        self.phys.func == ScanFunc::ErrorScrub && self.phys.state == ScanState::ErrorScrubbing
    }

    /// Whether there is something to verify.
    pub(crate) fn goes_on(&self) -> bool {
        self.is_running() && !self.phys.paused && !self.over
    }

    pub(crate) fn is_over(&self) -> bool {
        self.over
    }
}

impl Scans {
    /// Loads the error scrub from the pool metadata, when the pool is opened.
    pub(crate) fn load_error_scrub(&self) {
        let words = self.core.mos.dir_words(mos::ERRORSCRUB).ok().flatten();
        let Some(Ok(phys)) = words.map(|w| ErrorScrubPhys::decode(&w)) else { return };
        let mut scrub = self.scan.errors.lock();
        let paused_at = if phys.paused { self.core.world.now() } else { 0 };
        *scrub = ErrorScrub { phys, paused_at, ..ErrorScrub::default() };
    }

    /// Starts one, or resumes a paused one.
    pub(crate) fn start_error_scrub(
        &self,
        tx: &Tx,
        events: &mut Vec<Event>,
    ) -> Result<Result<ScanDone, ScanRefusal>, SyncError> {
        let now = self.core.world.now();
        let mut scrub = self.scan.errors.lock();
        if scrub.is_running() && scrub.phys.paused {
            (scrub.phys.paused, scrub.paused_at, scrub.dirty) = (false, 0, true);
            self.scan.state.lock().notice("errorscrub_resume", self.core.world.wall());
            return Ok(Ok(ScanDone::Resumed));
        }
        if scrub.is_running() || self.scan.stat().is_some_and(|s| s.is_scanning()) {
            return Ok(Err(ScanRefusal::Busy));
        }
        let by_head = |source| SyncError::Metadata { txg: tx.txg(), source };
        let to_examine = self.core.sync_mos.errlog_count(ErrLog::Last, true).map_err(by_head)?;
        let phys = ErrorScrubPhys {
            func: ScanFunc::ErrorScrub,
            state: ScanState::ErrorScrubbing,
            start_time: now,
            to_examine,
            ..ErrorScrubPhys::NONE
        };
        *scrub = ErrorScrub { phys, dirty: true, ..ErrorScrub::default() };
        self.scan.state.lock().notice("errorscrub_start", self.core.world.wall());
        let number = ScanFunc::ErrorScrub.to_disk();
        events.push(event("error scrub setup", format!("func={number} mintxg=0 maxtxg={}", tx.txg())));
        Ok(Ok(ScanDone::Done))
    }

    /// Pauses the running one.
    pub(crate) fn pause_error_scrub(&self) -> Result<ScanDone, ScanRefusal> {
        let now = self.core.world.now();
        let mut scrub = self.scan.errors.lock();
        if scrub.phys.paused {
            return Err(ScanRefusal::Busy);
        }
        (scrub.phys.paused, scrub.paused_at, scrub.dirty) = (true, now, true);
        self.scan.state.lock().notice("errorscrub_paused", self.core.world.wall());
        Ok(ScanDone::Done)
    }

    /// Ends the running one.
    pub(crate) fn end_error_scrub(&self, complete: bool, events: &mut Vec<Event>) {
        let now = self.core.world.now();
        let mut scrub = self.scan.errors.lock();
        if !scrub.is_running() {
            return;
        }
        let (state, what, text, turn) = match complete {
            true => (ScanState::Finished, "errorscrub_finish", "error scrub done", Turn::Replace),
            false => (ScanState::Canceled, "errorscrub_abort", "error scrub canceled", Turn::Add),
        };
        let phys = ErrorScrubPhys { state, end_time: now, paused: false, ..scrub.phys };
        *scrub = ErrorScrub { phys, dirty: true, ..ErrorScrub::default() };
        self.core.error_logs.over(turn);
        self.scan.state.lock().notice(what, self.core.world.wall());
        events.push(event(text, format!("errors={}", phys.errors)));
    }

    /// Removes the record, as another scan begins.
    pub(crate) fn forget_error_scrub(&self) {
        let mut scrub = self.scan.errors.lock();
        let dirty = scrub.dirty || scrub.phys != ErrorScrubPhys::NONE;
        *scrub = ErrorScrub { dirty, ..ErrorScrub::default() };
    }

    /// Verifies some of the rest, before a txg ([`Scans::scan_slice`]).
    pub(crate) fn error_slice(&self) {
        if !self.scan.errors.lock().goes_on() {
            return;
        }
        let since = Instant::now();
        let set = self.scan.slice_ms[0].load(Ordering::Relaxed);
        let long = Duration::from_millis(if set == 0 { SCRUB_MS } else { set });
        let most = self.scan.slice_blocks.load(Ordering::Relaxed);
        let mut left = match self.scan.errors.lock().left.take() {
            Some(left) => left,
            None => match self.core.mos.errlog(ErrLog::Last, true) {
                Ok(log) => log.into(),
                // If devices of the pool are absent, the next txg tries again.
                Err(_) if !self.core.tree().is_whole() => return,
                Err(_) => {
                    let mut scrub = self.scan.errors.lock();
                    (scrub.over, scrub.unreadable, scrub.dirty) = (true, true, true);
                    return;
                }
            },
        };
        let total = left.len() as u64;
        let (mut done, mut errors) = (0, 0);
        while let Some(e) = left.front() {
            let Some(whole) = self.look_again(e) else { break };
            errors += u64::from(!whole);
            left.pop_front();
            done += 1;
            let took = since.elapsed();
            let hurried = took >= HURRIED && self.scan.waiters.load(Ordering::Relaxed) > 0;
            if took >= long || hurried || done == most || self.scan.quiet.load(Ordering::Relaxed) {
                break;
            }
        }
        let mut scrub = self.scan.errors.lock();
        scrub.phys.examined += done;
        scrub.phys.errors += errors;
        scrub.phys.to_examine = total - done;
        (scrub.over, scrub.left, scrub.dirty) = (left.is_empty(), Some(left), true);
    }

    /// Verifies the block of an entry; true if it is good, or no dataset holds it. `None` if that
    /// is unknown now, as too many devices are absent.
    fn look_again(&self, e: &ErrBookmark) -> Option<bool> {
        // A log block, which was freed long ago.
        let Ok(level) = u8::try_from(e.level) else { return Some(true) };
        let search = Search::on_disk(&self.core.mos);
        let at = |objset| {
            let (object, blkid) = (ObjNum(e.object), BlkId(e.blkid));
            Bookmark { objset, object, level: Level(level), blkid }
        };
        let datasets = match search.holders(e) {
            Ok(Holders::These(datasets)) => datasets,
            Ok(Holders::None) => return Some(true),
            Err(_) => Vec::new(),
        };
        let found = datasets.iter().find_map(|objset| Some((*objset, search.pointer(*objset, e)?)));
        let Some((objset, bp)) = found else {
            if !self.core.tree().is_whole() {
                return None;
            }
            // The way to the block is damaged, or only its object set knows it: the block can't be
            // verified.
            self.core.cache.zio().damage().note(&at(e.objset), ondisk::Txg(e.birth.unwrap_or(0)));
            return Some(false);
        };
        // Unlike other scans it does not yield to foreground I/O.
        let options = ReadOptions::new(Request::new(Priority::Scrub));
        match self.core.cache.zio().look(&bp, &at(objset), &options) {
            Ok(_) => Some(true),
            Err(_) if !self.core.tree().is_whole() => None,
            Err(_) => Some(false),
        }
    }

    /// Writes what has changed since the last txg.
    pub(crate) fn sync_error_scrub(&self, tx: &Tx, events: &mut Vec<Event>) -> Result<(), SyncError> {
        let (over, unreadable) = {
            let scrub = self.scan.errors.lock();
            (scrub.over, scrub.unreadable)
        };
        if over {
            self.end_error_scrub(!unreadable, events);
        }
        let mut scrub = self.scan.errors.lock();
        if !std::mem::take(&mut scrub.dirty) {
            return Ok(());
        }
        let words = scrub.phys.encode();
        let metadata = |source| SyncError::Metadata { txg: tx.txg(), source };
        self.core.sync_mos.set_dir_words(tx, mos::ERRORSCRUB, &words).map_err(metadata)
    }

    /// Whether the pool supports it: its log records the births of blocks (`head_errlog`).
    pub(crate) fn may_scrub_errors(&self) -> bool {
        self.core.mos.feature_enabled(HEAD_ERRLOG).unwrap_or(false)
    }
}
