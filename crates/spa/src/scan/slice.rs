//! One slice: the work of a scan before a txg.

use std::collections::{BTreeSet, HashMap};
use std::ops::ControlFlow;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use device::Block;
use ondisk::scan::{DSF_SCRUB_PAUSED, ScanFunc, ScanPhys};
use ondisk::{Blkptr, Guid, Txg};
use vdev::{Priority, Request, TxgRanges};
use zio::{Bookmark, ExamineKind, IoFlags, ReadOptions, Workers};

use crate::scan::Scans;
use crate::scan::order;
use crate::scan::order::Visit;
use crate::scan::queue;
use crate::scan::queue::{Queue, asize};
use crate::scan::walk::{Counted, Position, Walk};
use crate::scan::windows::extents;
use crate::scan::windows::{Row, Windows};
use crate::scan::{SCAN_VDEV_LIMIT, ScanStat, covers};

/// Duration of a slice while a caller waits for a txg.
pub(crate) const HURRIED: Duration = Duration::from_millis(25);
/// Most blocks verified in one batch, and most bytes queued, of a scan that an import resumed.
pub(crate) const GATHER: (usize, u64) = (8192, 256 << 20);
/// Most bytes queued of such a scan, as a multiple of the bytes read at a time.
const TIMES: u64 = 4;
/// Most bytes of a batch while a caller waits for a txg.
pub(crate) const GATHER_HURRIED: u64 = 4 << 20;
/// Attempts in succession to read what the walk needs.
const PATIENCE: u32 = 3;
/// Waiting for more than this part of a slice's time is much.
const MUCH: u128 = 4;
/// Threads that verify blocks.
const THREADS: usize = 8;

/// The results of a slice.
#[derive(Debug, Default)]
pub(crate) struct Found {
    examined: u64,
    skipped: u64,
    pub(crate) issued: u64,
    repaired: u64,
    errors: u64,
    behind: HashMap<Guid, TxgRanges>,
    /// Those of them that are present but incomplete, since a part of a distributed spare is on an
    /// absent device.
    in_part: BTreeSet<Guid>,
    lost: TxgRanges,
}

/// Why a dataset is not visited.
enum NotEntered {
    /// The dataset is gone.
    Gone,
    /// It can't be read; try again.
    Unreadable,
}

/// A slice under way.
pub(crate) struct Slice<'a> {
    pub(crate) scans: &'a Scans,
    phys: ScanPhys,
    pub(crate) look: ExamineKind,
    pub(crate) workers: &'a Workers,
    /// The blocks that wait to be verified.
    pub(crate) queue: &'a Queue,
    pub(crate) room: Room,
    /// Blocks of the dataset born up to this txg belong to an older snapshot.
    pub(crate) min: u64,
    /// The walk's position at the start: everything before has been found.
    pub(crate) from: Position,
    /// The position where it stopped.
    to: Position,
    since: Instant,
    long: Duration,
    /// Bytes that are verified together.
    pub(crate) at_a_time: u64,
    pub(crate) windows: Windows,
    /// How it yields to foreground I/O.
    pub(crate) request: Request,
    /// Nanoseconds that scans had yielded before.
    waited_ns: u64,
    /// Blocks that it found.
    met: u64,
    /// Most blocks to find; 0 is no limit.
    most: u64,
    /// All queued blocks are verified before it ends.
    pub(crate) whole: bool,
    pub(crate) found: Found,
}

/// The limits of the queue.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Room {
    /// Bytes of memory.
    pub(crate) memory: u64,
    blocks: u64,
    /// Stored bytes of the blocks.
    bytes: u64,
}

/// The priority of a scan's I/O.
fn priority(look: ExamineKind) -> Priority {
    match look {
        ExamineKind::Scrub => Priority::Scrub,
        ExamineKind::Resilver => Priority::Resilver,
    }
}

impl Slice<'_> {
    /// Stops here if the slice is over: `at` is the next block. It always makes progress, however
    /// slow: an indirect block has the position of the first block below it.
    pub(crate) fn rest(&mut self, at: Position) -> ControlFlow<()> {
        if at <= self.from || !self.is_over() && !self.is_full() {
            self.met += 1;
            return ControlFlow::Continue(());
        }
        self.to = at;
        ControlFlow::Break(())
    }

    pub(crate) fn is_over(&self) -> bool {
        self.since.elapsed() >= self.long || self.most != 0 && self.met >= self.most || self.is_interrupted()
    }

    /// A caller waits, or the scan must stop.
    pub(crate) fn is_interrupted(&self) -> bool {
        self.scans.is_called_off(self.since)
    }

    /// The sums for a record of the walk's current position.
    fn counted(&self) -> Counted {
        Counted {
            examined: self.phys.examined.saturating_add(self.found.examined),
            skipped: self.phys.skipped.saturating_add(self.found.skipped),
            processed: self.phys.processed.saturating_add(self.found.repaired),
            errors: self.phys.errors.saturating_add(self.found.errors),
        }
    }

    /// A caller waits for a txg.
    pub(crate) fn is_waited_for(&self) -> bool {
        self.scans.scan.waiters.load(Ordering::Relaxed) > 0
    }

    /// Whether it yields for much of the time: verifying a batch takes long then.
    pub(crate) fn makes_way(&self) -> bool {
        let waited = self.scans.scan.waited_ns.get().saturating_sub(self.waited_ns);
        u128::from(waited) > self.since.elapsed().as_nanos() / MUCH
    }

    /// The queue is full.
    fn is_full(&self) -> bool {
        let (_, bytes) = self.queue.size();
        let hurried = self.room.bytes != u64::MAX && self.is_waited_for();
        let most = if hurried { self.room.bytes.min(GATHER_HURRIED) } else { self.room.bytes };
        self.queue.takes(self.room.memory) || self.queue.len() >= self.room.blocks || bytes >= most
    }

    /// Queues a block to be verified later.
    pub(crate) fn gather(&mut self, bp: &Blkptr, bookmark: &Bookmark) {
        let Some(s) = bp.stored() else { return };
        let bytes = asize(bp);
        let tree = self.scans.core.tree();
        // The members of a gang block may be anywhere.
        let behind = || s.copies().any(|dva| dva.gang) || extents(bp).any(|copy| tree.lacks(&copy));
        let wanted = covers(&self.phys, s.phys_birth) && (self.look == ExamineKind::Scrub || behind());
        if !wanted {
            self.found.skipped = self.found.skipped.saturating_add(bytes);
        }
        if !wanted || self.queue.add(bp, bookmark) {
            self.found.examined = self.found.examined.saturating_add(bytes);
        }
    }

    /// The contents of an indirect block; it is queued too if it is `fresh`.
    pub(crate) fn lead(&mut self, bp: &Blkptr, bm: &Bookmark, fresh: bool) -> ControlFlow<(), Option<Block>> {
        let zio = self.scans.core.cache.zio();
        let looked_at = self.look == ExamineKind::Scrub
            && bp.stored().is_some_and(|s| covers(&self.phys, s.phys_birth))
            && (fresh || self.queue.holds(bp));
        let read = {
            // The error counts once, and fetched contents would show again what a repair has fixed.
            let flags = if looked_at { IoFlags::SCRUBBED_NEXT } else { IoFlags::NONE };
            let window = self.windows.of(&zio.tree(), bp, &self.request);
            let request = match window {
                Some(window) => self.request.with_fetched(window),
                None => self.request.clone(),
            };
            zio.read_undecrypted(bp, bm, &ReadOptions { flags, request })
        };
        match read {
            Ok(block) => {
                if fresh {
                    self.gather(bp, bm);
                }
                ControlFlow::Continue(Some(block))
            }
            Err(_) => {
                self.check_devices(self.to)?;
                self.unknown(bp.birth.0);
                ControlFlow::Continue(None)
            }
        }
    }

    /// Reads indirect blocks that are needed next, unless a caller waits. Gives the number of the
    /// first that is left for later, if there is one.
    pub(crate) fn look_ahead(
        &mut self,
        row: Row,
        blocks: impl Iterator<Item = (usize, Blkptr)>,
    ) -> Option<usize> {
        if self.is_waited_for() || self.makes_way() || self.is_over() {
            return None;
        }
        let mut windows = std::mem::take(&mut self.windows);
        let left = windows.ahead(row, &self.scans.core.tree(), blocks, || self.is_over(), &self.request);
        self.windows = windows;
        left
    }

    /// Stops, to return to `at`, if too many devices are absent: failures mean nothing then.
    fn check_devices(&mut self, at: Position) -> ControlFlow<()> {
        if self.scans.core.tree().is_whole() {
            return ControlFlow::Continue(());
        }
        self.to = at;
        ControlFlow::Break(())
    }

    /// Whether to skip what can't be read, after some attempts. Nothing is skipped while devices of
    /// the pool are absent.
    fn gives_up(&self, walk: &mut Walk) -> bool {
        if !self.scans.core.tree().is_whole() {
            return false;
        }
        walk.failures += 1;
        walk.failures >= PATIENCE
    }

    pub(crate) fn note_repair(&mut self, birth: Txg, done: vdev::RepairOutcome) {
        self.found.repaired += done.repaired;
        if done.refused > 0 || done.incomplete {
            self.found.errors += 1;
        }
        if done.incomplete {
            self.lose(birth.0, birth.0);
        }
        if done.refused == 0 {
            self.found.in_part.extend(&done.behind);
        }
        for guid in done.behind {
            let groups = self.found.behind.entry(guid).or_default();
            if !groups.contains(birth.0) {
                groups.add(birth.0);
            }
        }
    }

    /// Counts a block with no good copy.
    pub(crate) fn failed(&mut self, bp: &Blkptr) {
        self.found.errors += 1;
        let birth = bp.stored().map_or(bp.birth, |s| s.phys_birth).0;
        self.lose(birth, birth);
    }

    /// Counts an indirect block that can't be read or is invalid. The blocks below are unknown, but
    /// none is younger than this txg.
    pub(crate) fn unknown(&mut self, last: u64) {
        self.found.errors += 1;
        self.lose(0, last);
    }

    /// Keeps these txgs, the last included, in the DTLs of all devices.
    fn lose(&mut self, first: u64, last: u64) {
        let lost = &mut self.found.lost;
        if !(lost.contains(first) && lost.contains(last)) || first != last {
            *lost = TxgRanges::new(lost.iter().chain([(first, last.saturating_add(1))]));
        }
    }
}

impl Scans {
    /// The work of a scan before a txg: see the module's theory. The only caller is the sync
    /// thread.
    pub(crate) fn scan_slice(&self, txg: Txg) {
        let scan = &self.scan;
        if self.core.cache.zio().suspension().reason().is_none()
            && let Some(stat) = scan.stat().filter(ScanStat::is_scanning)
        {
            // Before the txg changes what the record refers to.
            self.load_walk(&mut scan.walk.lock(), &stat.phys, txg);
        }
        let idle = scan.quiet.load(Ordering::Relaxed)
            || scan.held.load(Ordering::Relaxed)
            || self.core.cache.zio().suspension().reason().is_some();
        if !idle {
            self.heal_slice();
            self.error_slice();
        }
        let Some(stat) = scan.stat().filter(|_| !idle && scan.goes_on()) else { return };
        let phys = stat.phys;
        if phys.flags & DSF_SCRUB_PAUSED != 0 {
            return;
        }
        let look = if phys.func == ScanFunc::Resilver { ExamineKind::Resilver } else { ExamineKind::Scrub };
        let workers = Workers::new("scan", THREADS);
        let most = scan.slice_blocks.load(Ordering::Relaxed);
        let mut walk = scan.walk.lock();
        let mut slice = Slice {
            scans: self,
            phys,
            look,
            workers: &workers,
            queue: &scan.queue,
            room: self.room_to_wait(walk.young),
            most,
            whole: most != 0,
            min: 0,
            from: (0, 0),
            to: (0, 0),
            since: Instant::now(),
            long: scan.long(look),
            at_a_time: self.bytes_at_a_time(),
            windows: Windows::default(),
            request: Request::paced(priority(look), self.pace(Instant::now(), scan.long(look))),
            waited_ns: scan.waited_ns.get(),
            met: 0,
            found: Found { skipped: scan.queue.take_freed(), ..Found::default() },
        };
        let before = self.here();
        let over = self.gather_and_drain(&mut walk, &mut slice, Txg(txg.0.saturating_sub(1)));
        let after = self.here();
        let found = std::mem::take(&mut slice.found);
        drop(slice);
        self.note_slice(txg, found, walk.min, &|guid| before.contains(guid) && after.contains(guid), over);
    }

    /// Adds what a slice found to the state. `present`: whether a device was there all the time.
    fn note_slice(&self, txg: Txg, found: Found, walk_min: u64, present: &dyn Fn(&Guid) -> bool, over: bool) {
        let mut state = self.scan.state.lock();
        let state = &mut *state;
        let Some(stat) = &mut state.stat else { return };
        let were_here = state.present.len();
        // This import doesn't know what another found behind: it uses the txgs that devices have
        // missed.
        let got_all = |guid: &Guid| present(guid) && !found.in_part.contains(guid);
        state.present.retain(got_all);
        if state.present.len() < were_here {
            // Devices are up to date beyond all that the scan covers, as when it began.
            self.core.tree().passed_by(&state.present, Txg(txg.0.max(stat.phys.max_txg)));
        }
        for (guid, groups) in found.behind {
            let all = state.behind.remove(&guid).unwrap_or_default();
            state.behind.insert(guid, TxgRanges::new(all.iter().chain(groups.iter())));
        }
        state.lost = TxgRanges::new(state.lost.iter().chain(found.lost.iter()));
        let add = |sum: &mut u64, more: u64| *sum = sum.saturating_add(more);
        add(&mut stat.pass_examined, found.examined);
        add(&mut stat.pass_issued, found.issued);
        add(&mut stat.issued, found.issued);
        let phys = &mut stat.phys;
        add(&mut phys.examined, found.examined);
        add(&mut phys.skipped, found.skipped);
        add(&mut phys.processed, found.repaired);
        add(&mut phys.errors, found.errors);
        phys.cur_min_txg = walk_min.max(phys.min_txg);
        (state.dirty, state.over) = (true, over);
    }

    /// The limits of the queue. They are small for a scan that an import resumed, until that has
    /// been verified. So a scan makes progress even if the program ends again and again.
    fn room_to_wait(&self, young: bool) -> Room {
        let set = self.scan.queue_memory.load(Ordering::Relaxed);
        let memory = if set == 0 { queue::memory_limit(self.core.world.memory()) } else { set };
        let little = || self.bytes_at_a_time().saturating_mul(TIMES).min(GATHER.1);
        let (blocks, bytes) = if young { (GATHER.0 as u64, little()) } else { (u64::MAX, u64::MAX) };
        Room { memory, blocks, bytes }
    }

    /// Walks until the queue is full or the walk is at its end, then drains the queue, and so on,
    /// until the slice is over. True if everything has been visited and verified.
    fn gather_and_drain(&self, walk: &mut Walk, slice: &mut Slice<'_>, as_of: Txg) -> bool {
        let looks_held = self.scan.looks_held.load(Ordering::Relaxed);
        let mut over = false;
        loop {
            if !walk.draining {
                if slice.queue.is_empty() {
                    walk.record(slice.counted());
                }
                let ended = self.walk_on(walk, slice, as_of);
                let due = slice.is_full() || slice.whole || walk.young || walk.is_due();
                walk.draining = ended || due && !slice.queue.is_empty();
            }
            if !walk.draining || looks_held {
                break;
            }
            if !slice.drain() {
                break;
            }
            walk.drained();
            over = walk.at.is_none();
            if over || slice.is_over() {
                break;
            }
            slice.room = self.room_to_wait(false);
            // What was read before may have been repaired.
            slice.windows = Windows::default();
        }
        if slice.queue.is_empty() {
            walk.drained();
        }
        self.scan.stands_still.store(looks_held && walk.draining, Ordering::Relaxed);
        over
    }

    /// Bytes that a scan reads together of all devices.
    fn bytes_at_a_time(&self) -> u64 {
        let set = self.scan.bytes.load(Ordering::Relaxed);
        let each = if set == 0 { SCAN_VDEV_LIMIT } else { set };
        each.saturating_mul(self.core.tree().devices().count() as u64).max(1)
    }

    /// The devices that are present and writable.
    pub(crate) fn here(&self) -> BTreeSet<Guid> {
        self.core.tree().writable_devices().into_iter().collect()
    }

    /// Continues the walk until the slice is over; true if everything has been visited. `as_of` is
    /// the last txg on disk.
    fn walk_on(&self, walk: &mut Walk, slice: &mut Slice<'_>, as_of: Txg) -> bool {
        loop {
            slice.from = walk.position;
            slice.to = walk.position;
            let at = walk.at;
            let went = match at {
                Some(0) => {
                    slice.min = slice.phys.min_txg;
                    slice.dataset(0, &self.mos_root())
                }
                Some(objset) => match self.enter(walk, slice, objset) {
                    Ok(went) => went,
                    Err(NotEntered::Gone) => {
                        let (at, created) = (objset, walk.created);
                        walk.left.retain(|v| (v.objset, v.created) != (at, created));
                        walk.choose();
                        continue;
                    }
                    Err(NotEntered::Unreadable) => return false,
                },
                None => return true,
            };
            if went.is_break() {
                walk.position = slice.to;
                return false;
            }
            if let Some(objset) = walk.at.filter(|at| *at != 0) {
                walk.visited.enter(objset, as_of);
                if let Some(n) = walk.left.iter().position(|v| v.objset == objset) {
                    walk.left.remove(n);
                }
            } else if !self.plan_datasets(walk, slice) {
                return false;
            }
            walk.failures = 0;
            walk.choose();
            if walk.at.is_none() {
                return true;
            }
            if slice.is_over() || slice.is_full() {
                return false;
            }
        }
    }

    /// Lists the datasets when the MOS has been visited; whether the walk may continue.
    fn plan_datasets(&self, walk: &mut Walk, slice: &mut Slice<'_>) -> bool {
        let list = order::datasets(&self.core.mos);
        if list.cut_short {
            if !slice.gives_up(walk) {
                return false;
            }
            if !std::mem::replace(&mut walk.cut_short, true) {
                slice.unknown(u64::MAX);
            }
        }
        walk.plan(&list.all);
        // Listing them does not count toward the slice's time.
        slice.since = Instant::now();
        true
    }

    /// Visits a dataset from the walk's position on.
    fn enter(
        &self,
        walk: &mut Walk,
        slice: &mut Slice<'_>,
        objset: u64,
    ) -> Result<ControlFlow<()>, NotEntered> {
        let visit = match Visit::load(&self.core.mos, objset) {
            Ok(Some(visit)) if visit.created == walk.created => visit,
            Ok(_) => return Err(NotEntered::Gone),
            Err(_) if slice.gives_up(walk) => {
                slice.unknown(u64::MAX);
                return Ok(ControlFlow::Continue(()));
            }
            Err(_) => return Err(NotEntered::Unreadable),
        };
        slice.min = visit.min.max(slice.phys.min_txg);
        if visit.is_head() && walk.position == (0, 0) && !visit.bp.is_hole() {
            let options = ReadOptions::new(slice.request.clone());
            match dmu::Objset::open(self.core.cache.clone(), objset, &visit.bp, options) {
                Ok(os) => slice.log(&os),
                Err(_) if slice.check_devices((0, 0)).is_break() => return Ok(ControlFlow::Break(())),
                // Its log can't be found.
                Err(_) => slice.unknown(u64::MAX),
            }
        }
        let young = slice.min >= slice.phys.max_txg;
        Ok(if young { ControlFlow::Continue(()) } else { slice.dataset(objset, &visit.bp) })
    }

    /// The root pointer of the MOS in the last uberblock.
    fn mos_root(&self) -> Blkptr {
        let root = Blkptr::decode(&self.core.synced.read().uberblock.rootbp);
        root.expect("the pool was opened by it, or wrote it")
    }
}
