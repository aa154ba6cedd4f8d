//! One slice: what a scan does before a group.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use device::Block;
use ondisk::scan::{DSF_SCRUB_PAUSED, ScanFunc, ScanPhys};
use ondisk::{Blkptr, Guid, Txg};
use vdev::TxgRanges;
use zio::{Bookmark, Look, Workers};

use super::plan::{self, Visit};
use super::walk::{Position, Walk};
use super::{RESILVER_MS, SCRUB_MS, covers};
use crate::engine::Engine;

/// A slice while somebody waits for a group.
const HURRIED: Duration = Duration::from_millis(25);
/// Most blocks, and most of their bytes, that are gathered before they are looked at.
const GATHER: (usize, u64) = (512, 32 << 20);
/// Threads that look at blocks.
const THREADS: usize = 8;

/// What a slice found.
#[derive(Debug, Default)]
struct Found {
    examined: u64,
    skipped: u64,
    repaired: u64,
    errors: u64,
    behind: HashMap<Guid, TxgRanges>,
    lost: TxgRanges,
}

/// A block that is to be looked at.
struct Item {
    bp: Blkptr,
    bookmark: Bookmark,
}

/// A slice under way.
pub(super) struct Slice<'a> {
    engine: &'a Engine,
    phys: ScanPhys,
    look: Look,
    workers: &'a Workers,
    /// Blocks of the dataset born up to this group are another's.
    pub(super) min: u64,
    /// What was looked at before.
    pub(super) from: Position,
    /// Where it stopped.
    to: Position,
    since: Instant,
    long: Duration,
    gathered: Vec<Item>,
    gathered_bytes: u64,
    /// Where the first of those stands.
    gathered_from: Position,
    /// Blocks that it came to.
    met: u64,
    found: Found,
}

impl Slice<'_> {
    /// Stops here if the slice is over: `at` is the next block.
    pub(super) fn rest(&mut self, at: Position) -> ControlFlow<()> {
        if self.met == 0 || !self.is_over() {
            self.met += 1;
            return ControlFlow::Continue(());
        }
        self.look_at_gathered()?;
        self.to = at;
        ControlFlow::Break(())
    }

    fn is_over(&self) -> bool {
        let scan = &self.engine.scan;
        let took = self.since.elapsed();
        scan.quiet.load(Ordering::Relaxed)
            || took >= self.long
            || took >= HURRIED && scan.waiters.load(Ordering::Relaxed) > 0
            || self.engine.cache.zio().suspension().reason().is_some()
    }

    /// Enters a block that nothing is below.
    pub(super) fn gather(&mut self, bp: &Blkptr, bookmark: &Bookmark, at: Position) -> ControlFlow<()> {
        if !self.wants(bp) {
            return ControlFlow::Continue(());
        }
        if self.gathered.is_empty() {
            self.gathered_from = at;
        }
        self.gathered_bytes += bp.stored().map_or(0, |s| s.psize.0);
        self.gathered.push(Item { bp: *bp, bookmark: *bookmark });
        if self.gathered.len() >= GATHER.0 || self.gathered_bytes >= GATHER.1 {
            return self.look_at_gathered();
        }
        ControlFlow::Continue(())
    }

    /// Counts a block; whether it is to be looked at.
    fn wants(&mut self, bp: &Blkptr) -> bool {
        let Some(s) = bp.stored() else { return false };
        let bytes = s.copies().fold(0u64, |n, dva| n.saturating_add(dva.asize.0));
        self.found.examined += bytes;
        let tree = self.engine.tree();
        let behind = || s.copies().any(|dva| dva.gang || tree.is_behind(dva.vdev, s.phys_birth));
        let wanted = covers(&self.phys, s.phys_birth) && (self.look == Look::Scrub || behind());
        if !wanted {
            self.found.skipped += bytes;
        }
        wanted
    }

    /// The contents of a block that others are below: looked at too, if it is `fresh`.
    pub(super) fn lead(&mut self, bp: &Blkptr, bm: &Bookmark, fresh: bool) -> ControlFlow<(), Option<Block>> {
        let zio = self.engine.cache.zio();
        let read = if fresh && self.wants(bp) {
            zio.look(bp, bm, self.look).and_then(|(raw, done)| {
                let birth = bp.stored().map_or(bp.birth, |s| s.phys_birth);
                self.mended(birth, done);
                match raw {
                    Some(raw) => zio.open_raw(bp, raw, bm),
                    None => zio.read_undecrypted(bp, bm),
                }
            })
        } else {
            zio.read_undecrypted(bp, bm)
        };
        match read {
            Ok(block) => ControlFlow::Continue(Some(block)),
            Err(_) => {
                self.check_devices(self.to)?;
                if fresh {
                    self.failed(bp);
                }
                ControlFlow::Continue(None)
            }
        }
    }

    /// Stops, to come back to `at`, if too many devices have gone: what fails then says nothing.
    fn check_devices(&mut self, at: Position) -> ControlFlow<()> {
        if self.engine.tree().is_whole() {
            return ControlFlow::Continue(());
        }
        self.to = at;
        ControlFlow::Break(())
    }

    /// Looks at what was gathered, in the order in which it lies on the devices.
    pub(super) fn look_at_gathered(&mut self) -> ControlFlow<()> {
        let mut items = std::mem::take(&mut self.gathered);
        self.gathered_bytes = 0;
        if items.is_empty() {
            return ControlFlow::Continue(());
        }
        items.sort_by_key(|item| {
            item.bp.stored().and_then(|s| s.copies().next()).map(|dva| (dva.vdev, dva.offset))
        });
        let (cache, look) = (Arc::clone(&self.engine.cache), self.look);
        let done = self.workers.map(items, move |item| {
            let done = cache.zio().look(&item.bp, &item.bookmark, look).map(|(_, done)| done);
            (item.bp, done)
        });
        if done.iter().any(|(_, done)| done.is_err()) {
            self.check_devices(self.gathered_from)?;
        }
        for (bp, done) in done {
            match done {
                Ok(done) => self.mended(bp.stored().map_or(bp.birth, |s| s.phys_birth), done),
                Err(_) => self.failed(&bp),
            }
        }
        ControlFlow::Continue(())
    }

    fn mended(&mut self, birth: Txg, done: vdev::Mended) {
        self.found.repaired += done.repaired;
        for guid in done.behind {
            let groups = self.found.behind.entry(guid).or_default();
            if !groups.contains(birth.0) {
                groups.add(birth.0);
            }
        }
    }

    /// A block of which no copy is right.
    pub(super) fn failed(&mut self, bp: &Blkptr) {
        self.found.errors += 1;
        let birth = bp.stored().map_or(bp.birth, |s| s.phys_birth).0;
        if !self.found.lost.contains(birth) {
            self.found.lost.add(birth);
        }
    }

    /// A pointer or dnode that means nothing: what it led to is not known.
    pub(super) fn undecodable(&mut self) {
        self.found.errors += 1;
    }
}

impl Engine {
    /// What a scan does before a group: see the module's theory. The only caller is the sync thread.
    pub(in crate::engine) fn scan_slice(&self, txg: Txg) {
        let scan = &self.scan;
        let idle = scan.quiet.load(Ordering::Relaxed)
            || scan.held.load(Ordering::Relaxed)
            || self.cache.zio().suspension().reason().is_some();
        let Some(stat) = scan.stat().filter(|_| !idle && scan.goes_on()) else { return };
        let phys = stat.phys;
        if phys.flags & DSF_SCRUB_PAUSED != 0 {
            return;
        }
        let look = if phys.func == ScanFunc::Resilver { Look::Resilver } else { Look::Scrub };
        let (which, default) = if look == Look::Scrub { (0, SCRUB_MS) } else { (1, RESILVER_MS) };
        let set = scan.slice_ms[which].load(Ordering::Relaxed);
        let workers = Workers::new("scan", THREADS);
        let mut slice = Slice {
            engine: self,
            phys,
            look,
            workers: &workers,
            min: 0,
            from: (0, 0),
            to: (0, 0),
            since: Instant::now(),
            long: Duration::from_millis(if set == 0 { default } else { set }),
            gathered: Vec::new(),
            gathered_bytes: 0,
            gathered_from: (0, 0),
            met: 0,
            found: Found::default(),
        };
        let mut walk = scan.walk.lock();
        self.load_walk(&mut walk, &phys, txg);
        let over = self.walk_on(&mut walk, &mut slice, txg);
        let found = std::mem::take(&mut slice.found);
        let mut state = scan.state.lock();
        let state = &mut *state;
        let Some(stat) = &mut state.stat else { return };
        for (guid, groups) in found.behind {
            let all = state.behind.remove(&guid).unwrap_or_default();
            state.behind.insert(guid, TxgRanges::new(all.iter().chain(groups.iter())));
        }
        state.lost = TxgRanges::new(state.lost.iter().chain(found.lost.iter()));
        let issued = found.examined - found.skipped;
        stat.pass_examined += found.examined;
        stat.pass_issued += issued;
        stat.issued += issued;
        let phys = &mut stat.phys;
        phys.examined += found.examined;
        phys.skipped += found.skipped;
        phys.processed += found.repaired;
        phys.errors += found.errors;
        phys.cur_min_txg = walk.min.max(phys.min_txg);
        (state.dirty, state.over) = (true, over);
    }

    /// Goes on where the walk was, until the slice is over; whether all has been visited.
    fn walk_on(&self, walk: &mut Walk, slice: &mut Slice<'_>, txg: Txg) -> bool {
        let all = plan::datasets(&self.mos);
        loop {
            let visit = match walk.at {
                Some(0) => Some((0, self.mos_root(), slice.phys.min_txg)),
                Some(objset) => {
                    self.current(walk, objset).map(|v| (v.objset, v.bp, v.min.max(slice.phys.min_txg)))
                }
                None => None,
            };
            if let Some((objset, bp, min)) = visit {
                walk.at = Some(objset);
                (slice.from, slice.to, slice.min) = (walk.position, walk.position, min);
                let young = min >= slice.phys.max_txg;
                let went = if young { ControlFlow::Continue(()) } else { slice.dataset(objset, &bp) };
                if went.is_break() || slice.look_at_gathered().is_break() {
                    walk.position = slice.to;
                    walk.left = walk.visited.left(&all);
                    return false;
                }
                if objset != 0 {
                    walk.visited.enter(objset, txg.0);
                }
            }
            walk.left = walk.visited.left(&all);
            walk.position = (0, 0);
            let next = walk.left.first();
            walk.at = next.map(|v| v.objset);
            walk.min = next.map_or(0, |v| v.min);
            if walk.at.is_none() {
                return true;
            }
        }
    }

    /// The dataset that is being visited. If a snapshot has been taken of it meanwhile, the walk goes on in that.
    fn current(&self, walk: &Walk, objset: u64) -> Option<Visit> {
        let mut visit = Visit::load(&self.mos, objset)?;
        while visit.min > walk.min && visit.prev != 0 {
            visit = Visit::load(&self.mos, visit.prev)?;
        }
        Some(visit)
    }

    /// The MOS as the last uberblock has it.
    fn mos_root(&self) -> Blkptr {
        let root = Blkptr::decode(&self.synced.read().uberblock.rootbp);
        root.expect("the pool was opened by it, or wrote it")
    }
}
