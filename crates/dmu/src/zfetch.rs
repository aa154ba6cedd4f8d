//! Foreseeing which blocks of an object are read next (`dmu_zfetch.c`).
//!
//! # Theory
//! Reads of an object are streams: from front to back mostly, in steps or backwards sometimes, several at a time, and not in order where several threads share one. A read that has to wait for a
//! device, or that is the first to use what was read ahead, says where it was; one of what is in memory says nothing, so that who reads what is cached neither waits nor writes here. A stream
//! knows where it is expected next, and how far ahead has been asked for. A read anywhere in between takes it there, since what was in memory already is passed over in silence.
//!
//! A stream begins with two neighbours, forwards, or with four places at even distances. How far ahead is asked for doubles from the size of a read to [`ZFETCH_MIN_DISTANCE`], and grows
//! further, to [`ZFETCH_MAX_DISTANCE`], only while readers come before their blocks. What is passed over is counted: a stream of which more is passed over than a part of what is read ([`ZFETCH_HOLE_SHIFT`]) goes
//! no further.
//!
//! A reader ahead has a tree of its own of the object's pointers. These keep nobody from changing
//! the object, and may be of the past: what it finds wrong says nothing
//! ([`zio::IoFlags::SPECULATIVE`]).
//!
//! # Memory
//! A pool has one table, of so many objects at most, whatever is mounted: who stands idle has no part of it. It holds numbers, and neither blocks nor object sets; the tree of who reads ahead
//! lives as long as there is something to read.
//!
//! # Locks
//! One for each few objects of a pool, held for the arithmetic alone.
//!
//! # Absent
//! Streams of writes; the reads that a caller knows to come.

use crate::tree::BlockTree;
use arc::{Came, Run, Zfetch as Counters};
use observe::{Tunable, Unit};
use ondisk::ObjNum;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Instant;

/// 1: nothing is read ahead (`zfs_prefetch_disable`).
pub static PREFETCH_DISABLE: Tunable =
    Tunable::new("zfs_prefetch_disable", 0, 0..=1, Unit::Flag, "1: do not prefetch");
/// Streams of an object (`zfetch_max_streams`).
pub static ZFETCH_MAX_STREAMS: Tunable =
    Tunable::new("zfetch_max_streams", 8, 1..=1 << 10, Unit::Count, "most prefetch streams of an object");
/// Seconds for which a stream keeps its place from another (`zfetch_min_sec_reap`).
pub static ZFETCH_MIN_SEC_REAP: Tunable = Tunable::new(
    "zfetch_min_sec_reap",
    1,
    0..=1 << 20,
    Unit::Seconds,
    "idle time before which a new stream can not replace this one",
);
/// Seconds after which a stream is forgotten (`zfetch_max_sec_reap`).
pub static ZFETCH_MAX_SEC_REAP: Tunable = Tunable::new(
    "zfetch_max_sec_reap",
    2,
    0..=1 << 20,
    Unit::Seconds,
    "idle time after which a stream is forgotten",
);
/// Bytes that are soon asked for ahead of a stream (`zfetch_min_distance`).
pub static ZFETCH_MIN_DISTANCE: Tunable = Tunable::new(
    "zfetch_min_distance",
    4 << 20,
    0..=1 << 40,
    Unit::Bytes,
    "data to prefetch ahead of a stream soon after it begins",
);
/// Most bytes that are asked for ahead of a stream (`zfetch_max_distance`).
pub static ZFETCH_MAX_DISTANCE: Tunable = Tunable::new(
    "zfetch_max_distance",
    64 << 20,
    0..=1 << 40,
    Unit::Bytes,
    "most data to prefetch ahead of a stream",
);
/// Most bytes ahead of a stream for which indirect blocks are asked for (`zfetch_max_idistance`).
pub static ZFETCH_MAX_IDISTANCE: Tunable = Tunable::new(
    "zfetch_max_idistance",
    128 << 20,
    0..=1 << 40,
    Unit::Bytes,
    "distance ahead of a stream for which indirect blocks are prefetched",
);
/// How far from its place a read is still of a stream, bytes (`zfetch_max_reorder`).
pub static ZFETCH_MAX_REORDER: Tunable = Tunable::new(
    "zfetch_max_reorder",
    16 << 20,
    0..=1 << 40,
    Unit::Bytes,
    "largest distance from its expected offset at which a read still belongs to a stream",
);
/// What part of a stream may be passed over, as a shift (`zfetch_hole_shift`).
pub static ZFETCH_HOLE_SHIFT: Tunable =
    Tunable::new("zfetch_hole_shift", 2, 0..=63, Unit::Shift, "share of a stream that a reader may skip");

/// All tunables of prefetching.
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

/// Objects that are watched at a time, of each lock.
const OBJECTS: usize = 16;
/// Locks of a pool.
const LOCKS: usize = 32;
/// Reads that belong to no stream, which are kept in mind.
const LONELY: usize = 8;

/// What is known of an object when a block is read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shape {
    /// Bytes of a block.
    pub(crate) block: u64,
    /// The last block.
    pub(crate) last: u64,
    /// Blocks below an indirect block, as a shift; none if there is no indirect block.
    pub(crate) epbs: Option<u32>,
}

/// Blocks to be read ahead: so many from one on, in steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Wish {
    pub(crate) level: u8,
    pub(crate) next: u64,
    pub(crate) step: i64,
    pub(crate) count: u64,
}

/// Reads at even distances.
#[derive(Debug)]
struct Stream {
    step: i64,
    /// Where it is expected.
    next: u64,
    /// How many steps from there on have been asked for.
    asked: u64,
    /// The same of data blocks whose indirect blocks have been.
    asked_above: u64,
    /// How far ahead is asked for, bytes; of indirect blocks.
    distance: u64,
    distance_above: u64,
    /// Blocks that were read, and passed over.
    read: u64,
    skipped: u64,
    /// The last block that was read out of place, among what was asked for.
    peeked: Option<u64>,
    /// When it was last used, in seconds; from when on another may have its place.
    used: u64,
    spare_from: u64,
}

/// The streams of an object.
#[derive(Debug, Default)]
pub(crate) struct Streams {
    streams: Vec<Stream>,
    /// The newest last.
    lonely: Vec<u64>,
}

/// Where a read is to be seen from a stream.
enum Seen {
    /// So many steps from where it is expected, and among what has been asked for, or near.
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

    fn see(&self, blkid: u64, block: u64) -> Seen {
        let reorder = ZFETCH_MAX_REORDER.get() / block + 1;
        let delta = i128::from(blkid) - i128::from(self.next);
        let step = i128::from(self.step);
        if delta.unsigned_abs() > u128::from(reorder) * u128::from(self.step.unsigned_abs()).min(64)
            && delta.unsigned_abs() > u128::from(self.asked) * u128::from(self.step.unsigned_abs())
        {
            return Seen::Elsewhere;
        }
        if delta % step != 0 {
            return Seen::Elsewhere;
        }
        let Ok(steps) = u64::try_from(delta / step) else { return Seen::Behind };
        // What is passed over is a part of what is read; two neighbours among what was asked for say that the blocks before were there already.
        let hole = (self.read + steps) >> ZFETCH_HOLE_SHIFT.get().min(63);
        let before = blkid.checked_add_signed(-self.step);
        let resumed = steps < self.asked && self.peeked.is_some() && self.peeked == before;
        if steps == 0 || resumed || self.skipped + steps <= hole { Seen::On(steps) } else { Seen::Ahead }
    }

    /// Goes to the block that is so many steps on, and past it; `late` if its reader had to wait. What is to be read ahead then.
    fn advance(&mut self, steps: u64, late: bool, shape: Shape, fetch: Fetch, now: u64) -> Vec<Wish> {
        let expected = steps < self.asked;
        let resumed = self.peeked.take().is_some() && steps > 0;
        let passed = if resumed { 0 } else { steps };
        (self.read, self.skipped) = (self.read + 1, self.skipped + passed);
        let gone = steps + 1;
        // It stays within the object, since the block is.
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

    /// Steps that lie in the object from where it is expected on.
    fn left(&self, last: u64) -> u64 {
        let Some(next) = Some(self.next).filter(|next| *next <= last) else { return 0 };
        match self.step {
            step if step > 0 => (last - next) / step.unsigned_abs() + 1,
            step => next / step.unsigned_abs() + 1,
        }
    }

    fn wishes(&mut self, shape: Shape, fetch: Fetch) -> Vec<Wish> {
        let mut out = Vec::new();
        let left = self.left(shape.last);
        let at = |n: u64| self.next.wrapping_add_signed(self.step.wrapping_mul(n as i64));
        let want = if fetch.data {
            (self.distance / shape.block).max(u64::from(self.distance > 0)).min(left)
        } else {
            0
        };
        if want > self.asked {
            out.push(Wish { level: 0, next: at(self.asked), step: self.step, count: want - self.asked });
        }
        let asked = self.asked.max(want);
        // Indirect blocks are read ahead of data that is read from front to back: in large steps each block has one of its own, which it brings.
        if let Some(epbs) = shape.epbs.filter(|_| self.step == 1) {
            let (from, to) = (self.asked_above.max(asked), asked + self.distance_above / shape.block);
            let to = to.min(left);
            if from < to {
                // The first that begins behind what data brings with it.
                let first = (at(from) + (1 << epbs) - 1) >> epbs;
                let end = (at(to) + (1 << epbs) - 1) >> epbs;
                if first < end {
                    out.push(Wish { level: 1, next: first, step: 1, count: end - first });
                }
                self.asked_above = to;
            }
        }
        self.asked = asked;
        out
    }
}

/// What may be read ahead.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fetch {
    /// Data, not only indirect blocks.
    pub(crate) data: bool,
    /// There is not too much to do yet.
    pub(crate) roomy: bool,
}

impl Streams {
    /// Whether one of them was used lately.
    fn is_followed(&self, now: u64) -> bool {
        let reap = ZFETCH_MAX_SEC_REAP.get();
        self.streams.iter().any(|s| now <= s.used.saturating_add(reap))
    }

    /// Notes a read that came to a device, or was the first of what was read ahead, at a time in seconds; what is to be read ahead then.
    pub(crate) fn note(
        &mut self,
        blkid: u64,
        came: Came,
        shape: Shape,
        fetch: Fetch,
        now: u64,
        counters: &Counters,
    ) -> Vec<Wish> {
        let late = !matches!(came, Came::Foreseen);
        let reap = ZFETCH_MAX_SEC_REAP.get();
        let mut near = None;
        for (i, stream) in self.streams.iter_mut().enumerate() {
            match stream.see(blkid, shape.block) {
                Seen::On(steps) => {
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
                Seen::Ahead => {
                    near = Some(&counters.future);
                    if came != Came::Missed {
                        // It was asked for, and is of no other stream.
                        stream.peeked = Some(blkid);
                        counters.future.inc();
                        return Vec::new();
                    }
                }
                Seen::Behind if now <= stream.used.saturating_add(reap) => {
                    // Somebody else reads ahead of him: it was not passed over after all.
                    stream.skipped = stream.skipped.saturating_sub(1);
                    stream.used = now;
                    counters.past.inc();
                    return Vec::new();
                }
                Seen::Behind | Seen::Elsewhere => {}
            }
        }
        near.unwrap_or(&counters.misses).inc();
        self.begin(blkid, shape, fetch, now, counters)
    }

    /// A read that is of no stream: perhaps one begins with it.
    fn begin(&mut self, blkid: u64, shape: Shape, fetch: Fetch, now: u64, counters: &Counters) -> Vec<Wish> {
        let size = shape.last.saturating_add(1).saturating_mul(shape.block);
        // Those of a small object should not overlap.
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

    /// The step that leads to this block from what was read before, and how many blocks were.
    fn step_to(&self, blkid: u64, block: u64, streams: usize) -> Option<(i64, u64)> {
        let was = |at: Option<u64>| at.is_some_and(|at| self.lonely.contains(&at));
        // The smaller an object is, the more often neighbours meet by chance.
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

/// An object whose streams are known.
struct Object {
    /// The pointers of who reads ahead, while somebody does.
    ahead: Weak<BlockTree>,
    streams: Streams,
    /// Milliseconds.
    used: u64,
}

impl Object {
    /// The pointers for who reads ahead of this tree.
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

/// The streams of an object, which takes the place of another if there are too many.
fn object_of(objects: &mut Objects, name: (u64, ObjNum), now_ms: u64) -> &mut Object {
    if objects.len() >= OBJECTS && !objects.contains_key(&name) {
        // Who is read here and there gives way to who is read one after another.
        let idle = |o: &Object| (o.streams.is_followed(now_ms / 1000), o.used);
        let oldest = objects.iter().min_by_key(|(_, o)| idle(o)).map(|(name, _)| *name);
        oldest.and_then(|name| objects.remove(&name));
    }
    let new = || Object { ahead: Weak::new(), streams: Streams::default(), used: now_ms };
    let object = objects.entry(name).or_insert_with(new);
    object.used = now_ms;
    object
}

/// The streams of a pool (`zfetch_t`, for all its objects), which its cache has beside it ([`arc::Cache::beside`]).
pub(crate) struct Zfetch {
    objects: OnceLock<Box<[Mutex<Objects>; LOCKS]>>,
    start: Instant,
}

impl Default for Zfetch {
    fn default() -> Self {
        Zfetch { objects: OnceLock::new(), start: Instant::now() }
    }
}

/// Notes how a data block of this tree came to its reader, and has read ahead what may come next.
pub(crate) fn note(tree: &BlockTree, blkid: u64, came: Came) {
    let cache = &tree.home.cache;
    // Small objects, and the first block of any: most are read once, and no further.
    if tree.phys.maxblkid.0 < 2 || PREFETCH_DISABLE.get() != 0 || !cache.reads_ahead() {
        return;
    }
    if let (Some(data), Some(zfetch)) = (cache.prefetches(tree.home.id), cache.beside::<Zfetch>()) {
        zfetch.note(tree, blkid, came, data || tree.phys.kind.is_metadata());
    }
}

impl Zfetch {
    fn note(&self, tree: &BlockTree, blkid: u64, came: Came, data: bool) {
        let (phys, cache) = (&tree.phys, &tree.home.cache);
        let counters = cache.store().zfetch();
        let shape = Shape {
            block: phys.datablksz.into(),
            last: phys.maxblkid.0,
            epbs: (phys.nlevels > 1).then(|| phys.epbs()),
        };
        // A sixteenth of the memory is enough to have under way.
        let under_way = counters.io_active().saturating_mul(shape.block);
        let fetch = Fetch { data, roomy: under_way < cache.store().max() / 16 };
        let now_ms = self.start.elapsed().as_millis() as u64;
        let all = self.objects.get_or_init(Box::default);
        let name = (tree.home.id, tree.object);
        // Objects of one object set are neighbours, and so are those of object sets that were made alike.
        let lock = (name.0.wrapping_mul(7) ^ name.1.0) as usize % LOCKS;
        let mut objects = all[lock].lock();
        let object = object_of(&mut objects, name, now_ms);
        let wishes = object.streams.note(blkid, came, shape, fetch, now_ms / 1000, counters);
        if wishes.is_empty() {
            return;
        }
        let of = object.ahead_of(tree);
        drop(objects);
        for Wish { level, next, step, count } in wishes {
            let bytes = if level == 0 { shape.block } else { 1 << phys.indblkshift };
            // Where there is too much to do, what was wished is forgotten: who asks for it reads it.
            cache.read_ahead(Run { of: of.clone(), level, next, step, count, bytes });
        }
    }
}

#[cfg(test)]
mod tests;
