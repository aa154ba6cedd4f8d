//! Writing to cache devices (`l2arc_feed_thread`).
//!
//! # Theory
//! See [`crate::l2`]. A round frees space in front of the hand of one device. From one sublist of
//! each list it takes the blocks that are not on a device yet, metadata and blocks that were used
//! again first. It writes them one contiguous run at a time. Only blocks that have been written are
//! entered in the index, so a block on its way is never read.
//!
//! # Locks
//! The lock of the device's writer, for the whole round. The lock of a sublist, while a few of its
//! headers are examined. The lock of the bucket of each header that is taken, and again when it was
//! written.

use super::Inner;
use crate::forms::Form;
use crate::header::{Header, Key, State};
use crate::l2::index::{L2Address, Name, PLACE_OVERHEAD};
use crate::l2::{Disk, Writer};
use crate::recipe::Recipe;
use crate::tunables::{
    L2ARC_HEADROOM, L2ARC_META_PERCENT, L2ARC_MFUONLY, L2ARC_NOPREFETCH, L2ARC_WRITE_BOOST, L2ARC_WRITE_MAX,
};
use codec::compress::ZstdLevel;
use device::{Block, Sparse};
use ondisk::l2arc::{L2ARC_LOG_BLK_SIZE, LogEntry};
use ondisk::{Blkptr, CompressKind, SPA_MINBLOCKSHIFT, Txg};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Bytes that are written at once.
const RUN: u64 = 1 << 20;
/// Chunks of a sublist that are examined while it is locked.
const CHUNKS: usize = 4;

/// The outcome of a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FeedOutcome {
    /// Bytes for which way was made.
    pub(crate) wanted: u64,
    /// Bytes that were written.
    pub(crate) wrote: u64,
}

/// A block on its way to a device.
struct PendingWrite {
    header: Arc<Header>,
    entry: LogEntry,
    /// Its bytes there, with padding.
    bytes: Block,
}

/// The source of the stored form of a block.
struct Source {
    held: Held,
    recipe: Option<Recipe>,
}

enum Held {
    Plain(Block),
    Packed(Block),
}

impl Source {
    /// Completes the pointer, and returns the zstd level if it has one; `None` if that is not
    /// known.
    fn level(&self, key: &Key, pointer: &mut Blkptr) -> Option<ZstdLevel> {
        let packed = match &self.held {
            Held::Packed(packed) => Some(packed),
            Held::Plain(_) => None,
        };
        match &self.recipe {
            Some(recipe) => recipe.complete(pointer),
            None if key.needs_recipe(packed.is_some()) => return None,
            None => {}
        }
        let told = self.recipe.and_then(|recipe| recipe.level());
        Some(told.or_else(|| Recipe::level_of(pointer, packed)).unwrap_or_default())
    }
}

/// The state of a round.
struct Round<'a> {
    inner: &'a Inner,
    disk: &'a Arc<Disk>,
    writer: &'a mut Writer,
    target: u64,
    wrote: u64,
    run: Vec<PendingWrite>,
    run_bytes: u64,
    /// There is no more space, or the device failed.
    over: bool,
}

/// Bytes to free (`l2arc_write_size`).
fn write_size(disk: &Disk, writer: &Writer, warm: bool) -> u64 {
    let boost = if warm { 0 } else { L2ARC_WRITE_BOOST.get() };
    let size = L2ARC_WRITE_MAX.get().max(1).saturating_add(boost);
    let logs = match writer.log_entries as u64 {
        0 => 0,
        // The most entries there can be, with one sector for each block.
        entries => (size >> SPA_MINBLOCKSHIFT).div_ceil(entries).saturating_mul(L2ARC_LOG_BLK_SIZE as u64),
    };
    let most = (writer.write_hand.end - writer.write_hand.start) / 4;
    // At most a quarter of the device, so that rounding up stays within it.
    disk.round(size.saturating_add(logs).min(most))
}

impl Inner {
    /// A round of feeding a device.
    pub(super) fn feed(&self, disk: &Arc<Disk>) -> FeedOutcome {
        let l2 = &self.l2;
        l2.counters.feeds.inc();
        let mut writer = disk.writer.lock();
        if !disk.takes_blocks() {
            return FeedOutcome { wanted: 0, wrote: 0 };
        }
        let warm = l2.warm.load(Ordering::Relaxed);
        let target = write_size(disk, &writer, warm);
        let before = writer.write_hand;
        for range in writer.write_hand.make_way(target) {
            self.pressure.give(l2.index.evict(disk, range) * PLACE_OVERHEAD);
        }
        let logs = writer.logs.len();
        let asize = disk.drop_logs(&mut writer);
        l2.counters.log_blk_count.fetch_sub((logs - writer.logs.len()) as u64, Ordering::Relaxed);
        l2.counters.log_blk_asize.fetch_sub(asize, Ordering::Relaxed);
        disk.busy.store(true, Ordering::Relaxed);
        let mut round = Round {
            inner: self,
            disk,
            writer: &mut writer,
            target,
            wrote: 0,
            run: Vec::new(),
            run_bytes: 0,
            over: false,
        };
        let mfuonly = L2ARC_MFUONLY.get();
        for (state, kind) in [(State::Mfu, 1), (State::Mru, 1), (State::Mfu, 0), (State::Mru, 0)] {
            let left_out = state == State::Mru && (mfuonly == 1 || mfuonly > 1 && kind == 0);
            if !left_out && !round.over {
                round.look_through(state, kind, !warm);
            }
        }
        round.write();
        let wrote = round.wrote;
        let news = writer.write_hand != before || disk.is_stale();
        if news && disk.write_header(&writer).is_err() {
            disk.suspect();
        }
        disk.busy.store(false, Ordering::Relaxed);
        FeedOutcome { wanted: target, wrote }
    }

    /// Whether places take as much memory as they may (`l2arc_hdr_limit_reached`).
    pub(super) fn too_many_places(&self) -> bool {
        let taken = self.l2.index.sums.count.load(Ordering::Relaxed) * PLACE_OVERHEAD;
        taken > self.pressure.max() / 100 * L2ARC_META_PERCENT.get().min(100)
    }

    /// Reserves memory for a place of a block, if it is free.
    pub(super) fn room_for_place(&self) -> bool {
        !self.too_many_places() && self.pressure.try_take(PLACE_OVERHEAD)
    }

    /// Marks a header as being written, if its block can be; returns the block.
    fn take_for_l2(&self, header: &Header, state: State) -> Option<Source> {
        let bucket = self.bucket(&header.key).lock();
        if header.state() != state || header.is_writing() {
            return None;
        }
        let held = match (header.forms.packed(), header.forms.get()) {
            (Some(packed), _) => Held::Packed(packed),
            (None, Form::Plain(head)) => Held::Plain(Sparse::new(head, header.key.lsize()).whole()),
            (None, Form::Packed(_) | Form::Nothing) => return None,
        };
        header.set_writing(true);
        Some(Source { held, recipe: bucket.recipes.get(header) })
    }

    /// Ends the writing of a block and enters its place. Enters none if the block is gone
    /// meanwhile, or no place is given.
    fn written(&self, header: &Header, place: Option<L2Address>) -> bool {
        let bucket = self.bucket(&header.key);
        // The lock's holder is soon done, and a header that stays marked would never be evicted.
        let _bucket = bucket.try_lock().unwrap_or_else(|| {
            self.l2.counters.writes_lock_retry.inc();
            bucket.lock()
        });
        header.set_writing(false);
        let Some(place) = place.filter(|_| header.state() != State::Gone) else { return false };
        if !self.room_for_place() {
            self.l2.counters.abort_lowmem.inc();
            return false;
        }
        let entered = self.l2.index.insert(Name::of(&header.key), place);
        if !entered {
            self.pressure.give(PLACE_OVERHEAD);
        }
        entered
    }
}

impl Round<'_> {
    /// Examines a sublist of a list: from its old end, or from the young one while nothing was
    /// evicted.
    fn look_through(&mut self, state: State, kind: usize, young: bool) {
        let inner = self.inner;
        let list = &inner.lists[state.list(kind)];
        let sublist = inner.roll() % list.sublists();
        // A block that was read ahead may never be used.
        let noprefetch = L2ARC_NOPREFETCH.get() != 0;
        let headroom = self.target.saturating_mul(L2ARC_HEADROOM.get());
        let (mut passed, mut skip) = (0u64, 0);
        while !self.over && (headroom == 0 || passed <= headroom) {
            let mut some: Vec<Arc<Header>> = Vec::new();
            let more = list.look(sublist, skip, CHUNKS, young, |header| {
                passed = passed.saturating_add(header.key.lsize() as u64);
                let wanted = header.for_l2() && !(noprefetch && header.is_ahead());
                if header.state() == state && header.key.pool == self.disk.pool && wanted {
                    some.push(header.clone());
                }
            });
            skip += CHUNKS;
            for header in some {
                if !self.over && !inner.l2.index.has(&Name::of(&header.key)) {
                    self.offer(header, state, kind == 1);
                }
            }
            if !more {
                return;
            }
        }
    }

    /// Takes a block into the run, if it can be written.
    fn offer(&mut self, header: Arc<Header>, state: State, metadata: bool) {
        let key = header.key;
        let psize = key.psize();
        let asize = self.disk.round(psize);
        if self.disk.gone.load(Ordering::Acquire) {
            self.over = true;
            return;
        }
        // A log block always has space behind it. A block that never fits does not hold up those
        // behind it.
        if asize + L2ARC_LOG_BLK_SIZE as u64 > self.target {
            return;
        }
        if self.wrote + self.run_bytes + asize + L2ARC_LOG_BLK_SIZE as u64 > self.target {
            self.over = true;
            return;
        }
        if self.inner.too_many_places() {
            self.inner.l2.counters.abort_lowmem.inc();
            self.over = true;
            return;
        }
        let Some(source) = self.inner.take_for_l2(&header, state) else { return };
        let (mut pointer, objset, remaker) = (key.pointer(), key.keyed_by(), &self.disk.remaker);
        let level = source.level(&key, &mut pointer);
        let stored = level.and_then(|level| match source.held {
            Held::Plain(block) => remaker.of_plain(&pointer, objset, level, &block, asize as usize),
            Held::Packed(packed) => remaker.of_packed(&pointer, objset, &packed, asize as usize),
        });
        let zstd = level.filter(|_| key.compress() == CompressKind::Zstd);
        let dva = pointer.stored().and_then(|s| s.dvas[0]);
        let placed = dva.zip(stored).and_then(|(dva, bytes)| {
            let tree = self.disk.trees.get();
            let on_pool = tree.psize_to_asize(dva.vdev, ondisk::Psize(psize), Txg(key.birth())).ok()?;
            Some((ondisk::Dva { asize: on_pool, ..dva }, bytes))
        });
        let Some((dva, bytes)) = placed else {
            // Otherwise each round would try it again.
            header.not_for_l2();
            self.inner.written(&header, None);
            return;
        };
        let entry = LogEntry {
            dva,
            birth: Txg(key.birth()),
            daddr: self.writer.write_hand.hand + self.run_bytes,
            lsize: pointer.lsize,
            psize: ondisk::Psize(psize),
            compress: key.compress(),
            complevel: zstd.map_or(0, |level| level.to_disk().into()),
            metadata,
            protected: key.is_protected(),
            prefetch: header.is_ahead(),
            again: state == State::Mfu,
        };
        self.run.push(PendingWrite { header, entry, bytes });
        self.run_bytes += asize;
        let full =
            self.writer.log_entries > 0 && self.writer.log.len() + self.run.len() >= self.writer.log_entries;
        if full || self.run_bytes >= RUN {
            self.write();
        }
    }

    /// Writes the run, and the log block if that becomes full.
    fn write(&mut self) {
        let run = std::mem::take(&mut self.run);
        let bytes = std::mem::take(&mut self.run_bytes);
        if run.is_empty() {
            return;
        }
        let counters = &self.inner.l2.counters;
        let daddr = self.writer.write_hand.hand;
        self.writer.write_hand.hand += bytes;
        self.wrote += bytes;
        counters.writes_sent.inc();
        let bufs: Vec<&[u8]> = run.iter().map(|going| &going.bytes[..]).collect();
        let written = self.disk.write(&bufs, daddr);
        match &written {
            Ok(()) => counters.writes_done.inc(),
            Err(_) => counters.writes_error.inc(),
        }
        for PendingWrite { header, entry, .. } in run {
            let place = L2Address {
                disk: self.disk.clone(),
                daddr: entry.daddr,
                psize: entry.psize.0,
                lsize: entry.lsize.0,
                metadata: entry.metadata,
                again: entry.again,
                ahead: entry.prefetch,
            };
            let entered = self.inner.written(&header, written.is_ok().then_some(place));
            if entered {
                counters.write_bytes.add(entry.psize.0);
                if self.writer.log_entries > 0 {
                    self.writer.log.push(entry);
                }
            }
        }
        if written.is_err() {
            self.fail();
        } else if self.writer.log_entries > 0 && self.writer.log.len() >= self.writer.log_entries {
            self.log();
        }
    }

    /// Writes the full log block.
    fn log(&mut self) {
        let counters = &self.inner.l2.counters;
        match self.disk.commit_log(self.writer) {
            Ok(asize) => {
                self.wrote += asize;
                counters.log_blk_writes.inc();
                counters.write_bytes.add(asize);
                counters.log_blk_count.fetch_add(1, Ordering::Relaxed);
                counters.log_blk_asize.fetch_add(asize, Ordering::Relaxed);
            }
            Err(_) => {
                counters.writes_error.inc();
                self.fail();
            }
        }
    }

    fn fail(&mut self) {
        self.disk.suspect();
        self.over = true;
    }
}
