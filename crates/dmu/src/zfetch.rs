//! Prefetch: which blocks of an object will be read next (`dmu_zfetch.c`).
//!
//! # Theory
//! Reads of an object form streams. Most go from front to back, some in steps or backwards. There
//! may be several at a time. Where several threads share a stream, its reads come out of order.
//!
//! A read reports its block if it has to wait for a device, or if it is the first to use a
//! prefetched block. A read of a block that was in memory before reports nothing, so it neither
//! waits nor writes here.
//!
//! A stream knows which block it expects next, and how far ahead blocks were requested. A read in
//! between moves the stream to its own place: the blocks before it may have been in memory, and so
//! unreported.
//!
//! A stream begins with two neighbours in forward order, or with four blocks at even distances. Its
//! prefetch distance doubles from the size of one read up to [`ZFETCH_MIN_DISTANCE`]. It grows
//! further, up to [`ZFETCH_MAX_DISTANCE`], only while readers come before their blocks. Skipped
//! blocks are counted. A stream that skips more than a share of what it reads
//! ([`ZFETCH_HOLE_SHIFT`]) goes no further.
//!
//! A prefetch has its own tree of the object's pointers. The object can change meanwhile, so these
//! pointers may be old. So an error of a prefetch says nothing about the object
//! ([`zio::IoFlags::SPECULATIVE`]).
//!
//! # Memory
//! Each pool has one table for a fixed number of objects, whatever is mounted. Idle objects take no
//! part of it. The table holds numbers, and neither blocks nor object sets. The tree of a prefetch
//! lives as long as there is something to read.
//!
//! # Locks
//! One for each few objects of a pool, held only for arithmetic.
//!
//! # Absent
//! Streams of writes, and reads that a caller knows in advance.

use crate::tree::BlockTree;
use arc::{BlockOrigin, Run, Zfetch as Counters};
use observe::lock::Mutex;
use observe::{Tunable, Unit};
use ondisk::ObjNum;
use std::collections::HashMap;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Instant;

/// 1 turns prefetch off (`zfs_prefetch_disable`).
pub static PREFETCH_DISABLE: Tunable =
    Tunable::new("zfs_prefetch_disable", 0, 0..=1, Unit::Flag, "1: do not prefetch");
/// Most streams of an object (`zfetch_max_streams`).
pub static ZFETCH_MAX_STREAMS: Tunable =
    Tunable::new("zfetch_max_streams", 8, 1..=1 << 10, Unit::Count, "most prefetch streams of an object");
/// Seconds for which a new stream can't replace an idle one (`zfetch_min_sec_reap`).
pub static ZFETCH_MIN_SEC_REAP: Tunable = Tunable::new(
    "zfetch_min_sec_reap",
    1,
    0..=1 << 20,
    Unit::Seconds,
    "idle time before which a new stream can not replace this one",
);
/// Seconds after which an idle stream is forgotten (`zfetch_max_sec_reap`).
pub static ZFETCH_MAX_SEC_REAP: Tunable = Tunable::new(
    "zfetch_max_sec_reap",
    2,
    0..=1 << 20,
    Unit::Seconds,
    "idle time after which a stream is forgotten",
);
/// Prefetch distance that a stream reaches soon, in bytes (`zfetch_min_distance`).
pub static ZFETCH_MIN_DISTANCE: Tunable = Tunable::new(
    "zfetch_min_distance",
    4 << 20,
    0..=1 << 40,
    Unit::Bytes,
    "data to prefetch ahead of a stream soon after it begins",
);
/// Largest prefetch distance, in bytes (`zfetch_max_distance`).
pub static ZFETCH_MAX_DISTANCE: Tunable = Tunable::new(
    "zfetch_max_distance",
    64 << 20,
    0..=1 << 40,
    Unit::Bytes,
    "most data to prefetch ahead of a stream",
);
/// Largest prefetch distance of indirect blocks, in bytes of data (`zfetch_max_idistance`).
pub static ZFETCH_MAX_IDISTANCE: Tunable = Tunable::new(
    "zfetch_max_idistance",
    128 << 20,
    0..=1 << 40,
    Unit::Bytes,
    "distance ahead of a stream for which indirect blocks are prefetched",
);
/// Largest distance from its expected place at which a read still belongs to a stream, in bytes
/// (`zfetch_max_reorder`).
pub static ZFETCH_MAX_REORDER: Tunable = Tunable::new(
    "zfetch_max_reorder",
    16 << 20,
    0..=1 << 40,
    Unit::Bytes,
    "largest distance from its expected offset at which a read still belongs to a stream",
);
/// Share of a stream that may be skipped, as a shift (`zfetch_hole_shift`).
pub static ZFETCH_HOLE_SHIFT: Tunable =
    Tunable::new("zfetch_hole_shift", 2, 0..=63, Unit::Shift, "share of a stream that a reader may skip");

/// All tunables of prefetch.
pub static TUNABLES: &[&Tunable] = &[
    &PREFETCH_DISABLE,
    &ZFETCH_MAX_STREAMS,
    &ZFETCH_MIN_SEC_REAP,
    &ZFETCH_MAX_SEC_REAP,
    &ZFETCH_MIN_DISTANCE,
    &ZFETCH_MAX_DISTANCE,
    &ZFETCH_MAX_IDISTANCE,
    &ZFETCH_MAX_REORDER,
    &ZFETCH_HOLE_SHIFT,
];

/// Most objects with streams, for each lock.
const OBJECTS: usize = 16;
/// Locks of a pool.
const LOCKS: usize = 32;
/// Most reads that are remembered though they belong to no stream.
const LONELY: usize = 8;

/// What is known of an object when one of its blocks is read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shape {
    /// Bytes of a block.
    pub(crate) block: u64,
    /// The last block.
    pub(crate) last: u64,
    /// log2 of the blocks below an indirect block. `None` if there is no indirect block.
    pub(crate) epbs: Option<u32>,
}

/// Blocks to prefetch: `count` of them from `next` on, in steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PrefetchRange {
    pub(crate) level: u8,
    pub(crate) next: u64,
    pub(crate) step: i64,
    pub(crate) count: u64,
}

/// Reads at even distances (`zstream_t`).
#[derive(Debug)]
struct Stream {
    step: i64,
    /// The block that is expected next.
    next: u64,
    /// How many steps from there on were requested.
    asked: u64,
    /// The number of steps for whose data blocks the indirect blocks were requested.
    asked_above: u64,
    /// The prefetch distances of data and of indirect blocks, in bytes.
    distance: u64,
    distance_above: u64,
    /// Counts of blocks that were read and skipped.
    read: u64,
    skipped: u64,
    /// The last block among the requested ones that was read out of place.
    peeked: Option<u64>,
    /// The second of its last use, and the second from which another stream may replace it.
    used: u64,
    spare_from: u64,
}

/// The streams of an object.
#[derive(Debug, Default)]
pub(crate) struct Streams {
    streams: Vec<Stream>,
    /// The last reads without a stream, the newest last.
    lonely: Vec<u64>,
}

/// The place of a read, relative to a stream.
enum StreamMatch {
    /// So many steps past the expected block, and among the requested ones or near them.
    On(u64),
    /// Further ahead.
    Ahead,
    Behind,
    Elsewhere,
}

impl Stream {
    fn begin(next: Option<u64>, step: i64, read: u64, now: u64) -> Option<Stream> {
        let spare_from = now;
        let (distance, distance_above) = (0, 0);
        let (asked, asked_above, skipped) = (0, 0, 0);
        Some(Stream {
            step,
            next: next?,
            asked,
            asked_above,
            distance,
            distance_above,
            read,
            skipped,
            peeked: None,
            used: now,
            spare_from,
        })
    }

    fn see(&self, blkid: u64, block: u64) -> StreamMatch {
        let reorder = ZFETCH_MAX_REORDER.get() / block + 1;
        let delta = i128::from(blkid) - i128::from(self.next);
        let step = i128::from(self.step);
        if delta.unsigned_abs() > u128::from(reorder) * u128::from(self.step.unsigned_abs()).min(64)
            && delta.unsigned_abs() > u128::from(self.asked) * u128::from(self.step.unsigned_abs())
        {
            return StreamMatch::Elsewhere;
        }
        if delta % step != 0 {
            return StreamMatch::Elsewhere;
        }
        let Ok(steps) = u64::try_from(delta / step) else { return StreamMatch::Behind };
        // Skipped blocks may be a share of the blocks that were read. Two neighbours among the
        // requested blocks show that the blocks before them were in memory.
        let hole = (self.read + steps) >> ZFETCH_HOLE_SHIFT.get().min(63);
        let before = blkid.checked_add_signed(-self.step);
        let resumed = steps < self.asked && self.peeked.is_some() && self.peeked == before;
        if steps == 0 || resumed || self.skipped + steps <= hole {
            StreamMatch::On(steps)
        } else {
            StreamMatch::Ahead
        }
    }

    /// Moves past the block that is `steps` on, and returns what to prefetch then. `late` means
    /// that its reader had to wait.
    fn advance(
        &mut self,
        steps: u64,
        late: bool,
        shape: Shape,
        fetch: Fetch,
        now: u64,
    ) -> Vec<PrefetchRange> {
        let expected = steps < self.asked;
        let resumed = self.peeked.take().is_some() && steps > 0;
        let passed = if resumed { 0 } else { steps };
        (self.read, self.skipped) = (self.read + 1, self.skipped + passed);
        let gone = steps + 1;
        // No overflow: the block lies within the object.
        self.next = self.next.wrapping_add_signed(self.step.wrapping_mul(gone as i64));
        self.asked = self.asked.saturating_sub(gone);
        self.asked_above = self.asked_above.saturating_sub(gone);
        (self.used, self.spare_from) = (now, now.saturating_add(ZFETCH_MIN_SEC_REAP.get()));
        self.widen(late && expected, shape.block, fetch);
        self.wishes(shape, fetch)
    }

    fn widen(&mut self, late: bool, block: u64, fetch: Fetch) {
        let most = ZFETCH_MAX_DISTANCE.get();
        self.distance = match self.distance {
            0 => block,
            d if d < ZFETCH_MIN_DISTANCE.get() && (fetch.roomy || d < block) => d * 2,
            d if late => d + d / 8,
            d => d,
        };
        self.distance = self.distance.min(most);
        let above = if self.distance_above == 0 { block } else { self.distance_above * 2 };
        self.distance_above = above.min(ZFETCH_MAX_IDISTANCE.get());
    }

    /// Steps from the expected block to the end of the object.
    fn left(&self, last: u64) -> u64 {
        let Some(next) = Some(self.next).filter(|next| *next <= last) else { return 0 };
        match self.step {
            step if step > 0 => (last - next) / step.unsigned_abs() + 1,
            step => next / step.unsigned_abs() + 1,
        }
    }

    fn wishes(&mut self, shape: Shape, fetch: Fetch) -> Vec<PrefetchRange> {
        let mut out = Vec::new();
        let left = self.left(shape.last);
        let at = |n: u64| self.next.wrapping_add_signed(self.step.wrapping_mul(n as i64));
        let want = if fetch.data {
            (self.distance / shape.block).max(u64::from(self.distance > 0)).min(left)
        } else {
            0
        };
        if want > self.asked {
            out.push(PrefetchRange {
                level: 0,
                next: at(self.asked),
                step: self.step,
                count: want - self.asked,
            });
        }
        let asked = self.asked.max(want);
        // Only indirect blocks for data that is read from front to back are prefetched. In large
        // steps each block has an indirect block of its own, which its own prefetch brings.
        if let Some(epbs) = shape.epbs.filter(|_| self.step == 1) {
            let (from, to) = (self.asked_above.max(asked), asked + self.distance_above / shape.block);
            let to = to.min(left);
            if from < to {
                // The first one after those that the prefetch of data brings.
                let first = (at(from) + (1 << epbs) - 1) >> epbs;
                let end = (at(to) + (1 << epbs) - 1) >> epbs;
                if first < end {
                    out.push(PrefetchRange { level: 1, next: first, step: 1, count: end - first });
                }
                self.asked_above = to;
            }
        }
        self.asked = asked;
        out
    }
}

/// What may be prefetched.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fetch {
    /// Data, and not only indirect blocks.
    pub(crate) data: bool,
    /// True while few prefetches are under way.
    pub(crate) roomy: bool,
}

impl Streams {
    /// True if one of the streams was used lately.
    fn is_followed(&self, now: u64) -> bool {
        let reap = ZFETCH_MAX_SEC_REAP.get();
        self.streams.iter().any(|s| now <= s.used.saturating_add(reap))
    }

    /// Notes a read that a device had to serve, or that was the first to use a prefetched block.
    /// Returns what to prefetch then.
    ///
    /// `now` is in seconds.
    pub(crate) fn note(
        &mut self,
        blkid: u64,
        came: BlockOrigin,
        shape: Shape,
        fetch: Fetch,
        now: u64,
        counters: &Counters,
    ) -> Vec<PrefetchRange> {
        let late = !matches!(came, BlockOrigin::Prefetched);
        let reap = ZFETCH_MAX_SEC_REAP.get();
        let mut near = None;
        for (i, stream) in self.streams.iter_mut().enumerate() {
            match stream.see(blkid, shape.block) {
                StreamMatch::On(steps) => {
                    let regular = steps < stream.asked.max(1) && stream.step == 1;
                    if regular {
                        counters.hits.inc()
                    } else {
                        counters.stride.inc()
                    }
                    let wishes = stream.advance(steps, late, shape, fetch, now);
                    if stream.left(shape.last) == 0 {
                        self.streams.remove(i);
                    }
                    return wishes;
                }
                StreamMatch::Ahead => {
                    near = Some(&counters.future);
                    if came != BlockOrigin::Missed {
                        // The block was requested, and belongs to no other stream.
                        stream.peeked = Some(blkid);
                        counters.future.inc();
                        return Vec::new();
                    }
                }
                StreamMatch::Behind if now <= stream.used.saturating_add(reap) => {
                    // Another reader of the stream is ahead of this one. So the block was not
                    // skipped after all.
                    stream.skipped = stream.skipped.saturating_sub(1);
                    stream.used = now;
                    counters.past.inc();
                    return Vec::new();
                }
                StreamMatch::Behind | StreamMatch::Elsewhere => {}
            }
        }
        near.unwrap_or(&counters.misses).inc();
        self.begin(blkid, shape, fetch, now, counters)
    }

    /// Handles a read that belongs to no stream. A stream may begin with it.
    fn begin(
        &mut self,
        blkid: u64,
        shape: Shape,
        fetch: Fetch,
        now: u64,
        counters: &Counters,
    ) -> Vec<PrefetchRange> {
        let size = shape.last.saturating_add(1).saturating_mul(shape.block);
        // The streams of a small object should not overlap.
        let most = (size / ZFETCH_MAX_DISTANCE.get().max(1)).clamp(1, ZFETCH_MAX_STREAMS.get().max(1));
        let (step, read) = match self.step_to(blkid, shape.block, most as usize) {
            Some(found) => found,
            None => {
                if self.lonely.len() >= LONELY {
                    self.lonely.remove(0);
                }
                if !self.lonely.contains(&blkid) {
                    self.lonely.push(blkid);
                }
                return Vec::new();
            }
        };
        let next = blkid.checked_add_signed(step).filter(|next| *next <= shape.last);
        let Some(stream) = Stream::begin(next, step, read, now) else { return Vec::new() };
        self.streams.retain(|s| now <= s.used.saturating_add(ZFETCH_MAX_SEC_REAP.get()));
        if self.streams.len() as u64 >= most {
            let oldest = (0..self.streams.len()).min_by_key(|i| self.streams[*i].used);
            match oldest.filter(|i| self.streams[*i].spare_from <= now) {
                Some(i) => drop(self.streams.remove(i)),
                None => {
                    counters.max_streams.inc();
                    return Vec::new();
                }
            }
        }
        self.lonely.retain(|b| !(0..4).any(|n| blkid.checked_add_signed(-step * n) == Some(*b)));
        self.streams.push(stream);
        let stream = self.streams.last_mut().expect("it was just put there");
        stream.widen(false, shape.block, fetch);
        stream.wishes(shape, fetch)
    }

    /// The step that leads to this block from earlier reads, and the number of those reads.
    fn step_to(&self, blkid: u64, block: u64, streams: usize) -> Option<(i64, u64)> {
        let was = |at: Option<u64>| at.is_some_and(|at| self.lonely.contains(&at));
        // In a smaller object, two reads are more often neighbours by chance.
        let recent = &self.lonely[self.lonely.len().saturating_sub(streams.max(2))..];
        if blkid.checked_sub(1).is_some_and(|before| recent.contains(&before)) {
            return Some((1, 2));
        }
        let reorder = (ZFETCH_MAX_REORDER.get() / block + 1).min(1 << 32) as i64;
        let steps = self.lonely.iter().rev().filter_map(|from| {
            let step = i64::try_from(i128::from(blkid) - i128::from(*from)).ok()?;
            (step != 0 && step.abs() <= reorder).then_some(step)
        });
        steps
            .into_iter()
            .find(|step| (2..4).all(|n| was(blkid.checked_add_signed(-step * n))))
            .map(|step| (step, 4))
    }
}

/// An object with its streams.
struct Object {
    /// The tree of a prefetch, while one is under way.
    ahead: Weak<BlockTree>,
    streams: Streams,
    /// The time of its last use, in milliseconds.
    used: u64,
}

impl Object {
    /// The tree for a prefetch of this tree's blocks.
    fn ahead_of(&mut self, tree: &BlockTree) -> Arc<BlockTree> {
        if let Some(ahead) = self.ahead.upgrade().filter(|ahead| ahead.is_like(tree)) {
            return ahead;
        }
        let ahead = Arc::new(tree.detached());
        self.ahead = Arc::downgrade(&ahead);
        ahead
    }
}

/// By object set and number.
type Objects = HashMap<(u64, ObjNum), Object>;

/// The streams of an object. If there are too many objects, it replaces another.
fn object_of(objects: &mut Objects, name: (u64, ObjNum), now_ms: u64) -> &mut Object {
    if objects.len() >= OBJECTS && !objects.contains_key(&name) {
        // An object without a followed stream is replaced before one that is read in order.
        let idle = |o: &Object| (o.streams.is_followed(now_ms / 1000), o.used);
        let oldest = objects.iter().min_by_key(|(_, o)| idle(o)).map(|(name, _)| *name);
        oldest.and_then(|name| objects.remove(&name));
    }
    let new = || Object { ahead: Weak::new(), streams: Streams::default(), used: now_ms };
    let object = objects.entry(name).or_insert_with(new);
    object.used = now_ms;
    object
}

/// The streams of all objects of a pool (`zfetch_t`, which has those of one). The pool's cache
/// keeps them ([`arc::Cache::beside`]).
pub(crate) struct Zfetch {
    objects: OnceLock<Box<[Mutex<Objects>; LOCKS]>>,
    start: Instant,
}

impl Default for Zfetch {
    fn default() -> Self {
        Zfetch { objects: OnceLock::new(), start: Instant::now() }
    }
}

/// Notes how a read got a data block of this tree, and requests the blocks that may come next
/// (`dmu_zfetch_run`).
pub(crate) fn note(tree: &BlockTree, blkid: u64, came: BlockOrigin) {
    let cache = &tree.home.cache;
    // Small objects are left out, because most of them are read once.
    if tree.phys.maxblkid.0 < 2 || PREFETCH_DISABLE.get() != 0 || !cache.reads_ahead() {
        return;
    }
    if let (Some(data), Some(zfetch)) = (cache.prefetches(tree.home.id), cache.beside::<Zfetch>()) {
        zfetch.note(tree, blkid, came, data || tree.phys.kind.is_metadata());
    }
}

impl Zfetch {
    fn note(&self, tree: &BlockTree, blkid: u64, came: BlockOrigin, data: bool) {
        let (phys, cache) = (&tree.phys, &tree.home.cache);
        let counters = cache.store().zfetch();
        let shape = Shape {
            block: phys.datablksz.into(),
            last: phys.maxblkid.0,
            epbs: (phys.nlevels > 1).then(|| phys.epbs()),
        };
        // A sixteenth of the cache may be under way before distances stop doubling.
        let under_way = counters.io_active().saturating_mul(shape.block);
        let fetch = Fetch { data, roomy: under_way < cache.store().max() / 16 };
        let now_ms = self.start.elapsed().as_millis() as u64;
        let all = self.objects.get_or_init(Box::default);
        let name = (tree.home.id, tree.object);
        // Neighbours are objects of one object set, and objects of object sets that were made
        // alike.
        let lock = (name.0.wrapping_mul(7) ^ name.1.0) as usize % LOCKS;
        let mut objects = all[lock].lock();
        let object = object_of(&mut objects, name, now_ms);
        let wishes = object.streams.note(blkid, came, shape, fetch, now_ms / 1000, counters);
        if wishes.is_empty() {
            return;
        }
        let of = object.ahead_of(tree);
        drop(objects);
        for PrefetchRange { level, next, step, count } in wishes {
            let bytes = if level == 0 { shape.block } else { 1 << phys.indblkshift };
            // If too many prefetches wait, the cache drops this one. The reader then reads the
            // block itself.
            cache.read_ahead(Run { of: of.clone(), level, next, step, count, bytes });
        }
    }
}

#[cfg(test)]
mod tests;
