//! The memory of caches: a table of headers, and the lists that they are in.

mod evict;
mod feed;
mod l2_devices;
mod limit;
mod packed;
mod rebuild;
mod stats;

pub use limit::Memory;
pub use stats::{Stats, Sublists};

use crate::balance::{Balance, Sizes};
use crate::forms::{Form, Held};
use crate::header::{BOTH_OVERHEAD, Entry, GHOST_OVERHEAD, HELD_OVERHEAD, Header, Key, Same, State};
use crate::l2::L2;
use crate::multilist::Multilist;
use crate::prefetch::Zfetch;
use crate::pressure::{Pressure, Reserved};
use crate::recipe::{RECIPE_OVERHEAD, Recipe, Recipes};
use crate::tunables::{ARC_NUM_SUBLISTS, ARC_OVERFLOW_SHIFT};
use device::{Block, Sparse};
use observe::lock::{Condvar, Mutex};
use observe::{Counter, Sharded};
use std::collections::HashSet;
use std::hash::{BuildHasherDefault, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Instant;

/// Milliseconds before a second use counts (`ARC_MINTIME`, 62 there; here time has steps of 16).
/// Reads of parts of a block in sequence are one use.
const MINTIME_MS: u32 = 64;

/// The memory of the caches of all pools of a process, limited in bytes (`arc_c_max`). Its one
/// thread evicts, and is started when that is first needed.
pub struct Store {
    inner: Arc<Inner>,
    thread: Mutex<Evictor>,
    feeder: Mutex<Option<JoinHandle<()>>>,
    next_pool: AtomicU32,
}

enum Evictor {
    NotNeeded,
    Runs(JoinHandle<()>),
    CannotBe,
}

/// A read under way, with which other readers of the same block wait.
#[derive(Default)]
pub(crate) struct PendingRead {
    /// The read is speculative.
    pub(crate) guessed: bool,
    /// The block may have been freed before the read ([`zio::IoFlags::MAY_BE_FREED`]).
    pub(crate) may_be_freed: bool,
    /// A reader that yields to nothing waits for it.
    pub(crate) hurries: AtomicBool,
    pub(crate) done: Mutex<Option<zio::Result<Sparse>>>,
    pub(crate) landed: Condvar,
}

impl PendingRead {
    pub(crate) fn new(guessed: bool) -> Arc<PendingRead> {
        Arc::new(PendingRead { guessed, ..PendingRead::default() })
    }
}

pub(crate) struct PendingEntry {
    key: Key,
    flight: Arc<PendingRead>,
    forget: bool,
    /// It is read ahead, and no reader waits for it yet.
    ahead: bool,
}

/// The headers whose hashes have some bits in common, behind one lock, and the reads under way.
#[derive(Default)]
struct Bucket {
    entries: HashSet<Entry, BuildHasherDefault<Same>>,
    flights: Vec<PendingEntry>,
    hits: Hits,
    /// Recipes of the blocks here that need one.
    recipes: Recipes,
}

/// How a block is stored, as far as known.
#[derive(Clone, Copy, Default)]
pub(crate) struct Stored<'a> {
    /// Its compressed bytes.
    pub(crate) packed: Option<&'a Block>,
    /// What else is needed to restore its stored form.
    pub(crate) recipe: Option<Recipe>,
}

impl<'a> From<Option<&'a Block>> for Stored<'a> {
    fn from(packed: Option<&'a Block>) -> Self {
        Self { packed, recipe: None }
    }
}

/// Hits, counted in memory that they write anyway: of data and metadata, and of blocks used once
/// and again.
#[derive(Default, Clone, Copy)]
struct Hits {
    kinds: [u64; 2],
    states: [u64; 2],
}

/// Number and bytes of the headers in a list.
#[derive(Default)]
struct Sum {
    bytes: AtomicU64,
    count: AtomicU64,
}

/// Counters other than the hits of buckets.
#[derive(Default)]
struct Counters {
    misses: [Sharded; 2],
    iohits: [Sharded; 2],
    /// Hits without a bucket: all of blocks that were used again.
    by_ref: [Sharded; 2],
    /// Reads ahead, of data and metadata.
    ahead: [AheadCounters; 2],
    /// Blocks that were read ahead and then used, or needed while they were read.
    ahead_wanted: Counter,
    ahead_joined: Counter,
    /// Blocks read ahead that the eviction skipped once.
    evict_skip: Counter,
    ghost_hits: [Counter; 2],
    deleted: Counter,
    mutex_miss: Counter,
    evict_not_enough: Counter,
    evicted: Evicted,
    waited: Counter,
    refused: Counter,
    elements_max: AtomicU64,
}

/// Bytes of evicted blocks, uncompressed.
#[derive(Default)]
struct Evicted {
    /// A cache device has them.
    l2_cached: Counter,
    /// No cache device has them, though one might: of blocks used once, and again.
    l2_eligible: [Counter; 2],
    /// No cache device may have them.
    l2_ineligible: Counter,
}

/// Outcomes of reads ahead.
#[derive(Default)]
struct AheadCounters {
    hits: Counter,
    iohits: Counter,
    misses: Counter,
}

type Clock = Box<dyn Fn() -> u32 + Send + Sync>;

struct Inner {
    buckets: Box<[Mutex<Bucket>]>,
    seed: RandomState,
    /// Of each state, for data and for metadata.
    lists: [Multilist<Arc<Header>>; State::LISTS],
    sums: [Sum; State::LISTS],
    pressure: Pressure,
    limits: Mutex<limit::Limits>,
    balance: Balance,
    counters: Counters,
    l2: L2,
    packed: packed::Packed,
    /// Bytes of blocks that were read ahead and not used yet.
    ahead: AtomicU64,
    zfetch: Arc<Zfetch>,
    /// State of the random choice of sublists.
    dice: AtomicU64,
    /// Milliseconds since some moment.
    clock: Clock,
}

/// A direct reference to the header of a block. It finds the block again without the table, unless
/// the block was evicted or dropped.
///
/// It leads to the block only for the object set for which it was read. It keeps the header in
/// memory, never the block.
#[derive(Clone)]
pub struct BlockRef(Arc<Header>);

impl BlockRef {
    /// Bytes of the block.
    #[allow(clippy::len_without_is_empty, reason = "a size, not a count")]
    pub fn len(&self) -> usize {
        self.0.key.lsize()
    }
}

impl std::fmt::Debug for BlockRef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "BlockRef({:?})", self.0.key)
    }
}

/// What the table has of a block. The flag says whether it was read ahead and is now used first.
pub(crate) enum Found {
    Block(Sparse, bool),
    PendingRead(Arc<PendingRead>, bool),
    Nothing,
}

/// Bytes down to which the eviction goes, for a limit of `max`. Even in a small cache, large blocks
/// should enter without waiting.
fn low_mark(max: u64) -> u64 {
    let shift = u32::try_from(ARC_OVERFLOW_SHIFT.get()).unwrap_or(u32::MAX);
    let overflow = max.checked_shr(shift).unwrap_or(0);
    max - overflow.max((max / 16).min(8 << 20)).min(max)
}

/// Number of sublists of each list.
fn sublists() -> usize {
    let set = usize::try_from(ARC_NUM_SUBLISTS.get()).unwrap_or(usize::MAX);
    if set > 0 { set } else { std::thread::available_parallelism().map_or(4, |n| n.get().max(4)) }
}

impl Store {
    /// Memory for at most `max` bytes of blocks (`zfs_arc_max`), including what they take beyond
    /// their bytes.
    pub fn new(max: u64) -> Arc<Store> {
        let start = Instant::now();
        Store::with_clock(max, Box::new(move || start.elapsed().as_millis() as u32))
    }

    pub(crate) fn with_clock(max: u64, clock: Clock) -> Arc<Store> {
        // About one lock for each block of moderate size, within bounds. So a lock is rarely
        // contended.
        let buckets = (max >> 15).clamp(64, 4096).next_power_of_two();
        let lists = sublists();
        let inner = Inner {
            buckets: (0..buckets).map(|_| Mutex::default()).collect(),
            seed: RandomState::new(),
            lists: std::array::from_fn(|_| Multilist::new(lists)),
            sums: Default::default(),
            pressure: Pressure::new(max, low_mark(max)),
            limits: Mutex::new(limit::Limits::new(max)),
            balance: Balance::new(),
            counters: Counters::default(),
            l2: L2::new(),
            packed: packed::Packed::new(lists),
            ahead: AtomicU64::new(0),
            zfetch: Arc::default(),
            dice: AtomicU64::new(0x9e37_79b9_7f4a_7c15),
            clock,
        };
        let thread = Mutex::new(Evictor::NotNeeded);
        let feeder = Mutex::default();
        Arc::new(Store { inner: Arc::new(inner), thread, feeder, next_pool: AtomicU32::new(0) })
    }

    /// A number for a pool that has blocks here.
    pub(crate) fn new_pool(&self) -> u32 {
        self.next_pool.fetch_add(1, Ordering::Relaxed)
    }

    /// The name of a block of a pool, if it is worth caching.
    pub(crate) fn key(&self, bp: &ondisk::Blkptr, objset: u64, pool: u32) -> Option<Key> {
        Key::of(bp, objset, pool, &self.inner.seed)
    }

    /// Wakes or starts the evict thread. Returns false if there can be no thread, and this call has
    /// evicted itself.
    fn wake(&self) -> bool {
        let mut thread = self.thread.lock();
        if let Evictor::NotNeeded = *thread {
            let inner = self.inner.clone();
            let run = move || {
                while inner.pressure.await_work() {
                    inner.make_room();
                    inner.pressure.end_round();
                }
            };
            let spawned = std::thread::Builder::new().name("arc_evict".into()).spawn(run);
            *thread = spawned.map_or(Evictor::CannotBe, Evictor::Runs);
        }
        let runs = matches!(*thread, Evictor::Runs(_));
        drop(thread);
        if !runs {
            self.inner.make_room();
        }
        runs
    }

    /// Reserves memory for a block, and waits for it if needed; returns false if there is none.
    fn take(&self, bytes: u64) -> bool {
        let counters = &self.inner.counters;
        let taken = self.inner.pressure.take(bytes, || self.wake());
        match taken {
            Reserved::Yes => {}
            Reserved::Waited => counters.waited.inc(),
            Reserved::No => counters.refused.inc(),
        }
        taken != Reserved::No
    }

    /// The block, or the flight that will bring it; otherwise `flight` is entered.
    ///
    /// A read with `ahead` does not count as a use. For a block that is used again and again,
    /// `keep` is called with a [`BlockRef`].
    pub(crate) fn find_or_start(
        &self,
        key: &Key,
        ahead: bool,
        flight: impl FnOnce() -> Arc<PendingRead>,
        keep: Option<&dyn Fn(BlockRef)>,
    ) -> Found {
        let inner = &*self.inner;
        let (kind, c) = (key.kind(), &inner.counters);
        let mut bucket = inner.bucket(key).lock();
        if let Some(Entry(header)) = bucket.entries.get(key)
            && let Some(held) = self.hold(header)
        {
            let prefetched = !ahead && header.is_ahead();
            let again = if ahead { None } else { Some(inner.touch(header)) };
            let hand = keep.filter(|_| again.is_some() && header.state() == State::Mfu);
            let hand = hand.map(|keep| (keep, BlockRef(header.clone())));
            match again {
                Some(again) => {
                    bucket.hits.kinds[kind] += 1;
                    bucket.hits.states[again] += 1;
                }
                None => c.ahead[kind].hits.inc(),
            }
            drop(bucket);
            let Some(block) = held.open(self) else {
                // The compressed form in memory is damaged: the pool still has the block.
                self.forget(key);
                return self.find_or_start(key, ahead, flight, keep);
            };
            if let Some((keep, hand)) = hand.filter(|_| block.is_whole()) {
                keep(hand);
            }
            return Found::Block(block, prefetched);
        }
        if let Some(flying) = bucket.flights.iter_mut().find(|f| f.key == *key) {
            let prefetched = flying.ahead && !ahead;
            flying.ahead &= ahead;
            if ahead {
                c.ahead[kind].iohits.inc();
            } else {
                c.iohits[kind].inc();
            }
            if prefetched {
                c.ahead_joined.inc();
            }
            return Found::PendingRead(flying.flight.clone(), prefetched);
        }
        bucket.flights.push(PendingEntry { key: *key, flight: flight(), forget: false, ahead });
        drop(bucket);
        if ahead {
            c.ahead[kind].misses.inc();
        } else {
            c.misses[kind].inc();
        }
        Found::Nothing
    }

    /// What a header holds, if anything.
    fn hold(&self, header: &Arc<Header>) -> Option<Hit> {
        match header.forms.get() {
            Form::Plain(head) => Some(Hit::Plain(Sparse::new(head, header.key.lsize()))),
            Form::Packed(packed) => Some(Hit::Packed(header.clone(), packed)),
            Form::Nothing => None,
        }
    }

    /// The block of a hand, if it is still held. Takes only the lock of its forms.
    pub(crate) fn by_ref(&self, BlockRef(header): &BlockRef) -> Option<Block> {
        let block = match header.forms.get() {
            Form::Plain(head) => head,
            Form::Packed(packed) => self.open_packed(header, &packed)?.into_head(),
            Form::Nothing => return None,
        };
        if block.len() != header.key.lsize() {
            return None;
        }
        header.mark();
        self.inner.counters.by_ref[header.key.kind()].inc();
        Some(block)
    }

    /// Whether a block may be read ahead: memory is free without urgency, and blocks that were read
    /// ahead and not used are not too many.
    pub(crate) fn may_read_ahead(&self, key: &Key) -> bool {
        let (pressure, bytes) = (&self.inner.pressure, key.lsize() as u64 + HELD_OVERHEAD);
        let waiting = self.inner.ahead.load(Ordering::Relaxed).saturating_add(bytes);
        let may = waiting <= pressure.max() / 4 && pressure.is_roomy(bytes);
        if !may {
            self.inner.zfetch.throttled.inc();
        }
        may
    }

    /// Bytes that may be held now: at most `c_max`.
    pub fn max(&self) -> u64 {
        self.inner.pressure.max()
    }

    /// The counters of prefetch.
    pub fn zfetch(&self) -> &Arc<Zfetch> {
        &self.inner.zfetch
    }

    /// Ends a flight: its block takes its place, or nothing does. With `ahead` it does not wait for
    /// memory.
    pub(crate) fn land<'a>(
        &self,
        key: &Key,
        block: Option<&Sparse>,
        stored: impl Into<Stored<'a>>,
        ahead: bool,
    ) {
        let stored =
            block.map_or(Stored::default(), |block| self.inner.worth_keeping(key, block, stored.into()));
        let room = |block: &Sparse| match ahead {
            true => self.inner.pressure.take_idle(weight(block, &stored), || self.wake()),
            false => self.take(weight(block, &stored)),
        };
        let taken = block.filter(|block| self.worth(key, block) && room(block));
        let mut bucket = self.inner.bucket(key).lock();
        let at = bucket.flights.iter().position(|f| f.key == *key);
        let flying = at.map(|at| bucket.flights.swap_remove(at));
        let kept = taken.filter(|_| flying.as_ref().is_some_and(|f| !f.forget));
        let unasked = flying.is_some_and(|f| f.ahead);
        let entered = kept.is_some_and(|block| self.inner.enter(&mut bucket, key, block, &stored, unasked));
        drop(bucket);
        if let Some(block) = taken.filter(|_| !entered) {
            self.inner.pressure.give(weight(block, &stored));
        }
    }

    fn worth(&self, key: &Key, block: &Sparse) -> bool {
        block.len() == key.lsize()
    }

    /// Enters a block that was not requested. Does nothing if it is cached or being read.
    pub(crate) fn insert<'a>(&self, key: &Key, block: &Sparse, stored: impl Into<Stored<'a>>) {
        let stored = self.inner.worth_keeping(key, block, stored.into());
        let there = self.inner.bucket(key).lock().holds(key);
        // No lock is held during the wait for memory.
        if there || !self.worth(key, block) || !self.take(weight(block, &stored)) {
            return;
        }
        let mut bucket = self.inner.bucket(key).lock();
        let entered = !bucket.holds(key) && self.inner.enter(&mut bucket, key, block, &stored, false);
        drop(bucket);
        if !entered {
            self.inner.pressure.give(weight(block, &stored));
        }
    }

    /// Whether a block is held, not only being read. Does not count as a use.
    pub(crate) fn holds(&self, key: &Key) -> bool {
        let bucket = self.inner.bucket(key).lock();
        bucket.entries.get(key).is_some_and(|e| !e.0.state().is_ghost())
    }

    /// Replaces the held beginning of a block with the whole block.
    pub(crate) fn complete(&self, key: &Key, whole: &Block) {
        let partly = |bucket: &Bucket| {
            let header = bucket.entries.get(key)?.0.clone();
            let Form::Plain(head) = header.forms.get() else { return None };
            let more = (whole.len() as u64).checked_sub(head.len() as u64).filter(|more| *more > 0)?;
            Some((header, more))
        };
        let Some((_, more)) = partly(&self.inner.bucket(key).lock()) else { return };
        if !self.take(more) {
            return;
        }
        let bucket = self.inner.bucket(key).lock();
        match partly(&bucket).filter(|(_, now)| *now == more) {
            Some((header, _)) => {
                self.inner.asked_for(&header);
                // The form is not released while the bucket is locked.
                header.forms.replace(whole);
                self.inner.add_bytes(&header, more);
                if header.is_both() {
                    self.inner.packed.overhead.fetch_add(more, Ordering::Relaxed);
                }
            }
            None => self.inner.pressure.give(more),
        }
    }

    /// Drops a block, also one that is being read.
    pub(crate) fn forget(&self, key: &Key) {
        let inner = &*self.inner;
        let mut bucket = inner.bucket(key).lock();
        if let Some(flying) = bucket.flights.iter_mut().find(|f| f.key == *key) {
            flying.forget = true;
        }
        let gone = bucket.entries.take(key);
        let was_held = gone.as_ref().is_some_and(|entry| !entry.0.state().is_ghost());
        // Released without a lock.
        let held = gone.map(|entry| inner.remove(&mut bucket.recipes, &entry.0));
        drop(bucket);
        drop(held);
        if was_held {
            inner.counters.deleted.inc();
        }
    }

    /// Drops every block of a pool.
    pub(crate) fn purge(&self, pool: u32) {
        let inner = &*self.inner;
        for bucket in &inner.buckets {
            let mut bucket = bucket.lock();
            bucket.flights.iter_mut().filter(|f| f.key.pool == pool).for_each(|f| f.forget = true);
            let mut blocks = Vec::new();
            let Bucket { entries, recipes, .. } = &mut *bucket;
            entries.retain(|Entry(header)| {
                let stays = header.key.pool != pool;
                if !stays {
                    blocks.push(inner.remove(recipes, header));
                }
                stays
            });
            bucket.entries.shrink_to_fit();
            drop(bucket);
        }
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        self.inner.pressure.close();
        self.inner.l2.close();
        let feeder = self.feeder.get_mut().take();
        if feeder.is_some_and(|thread| thread.join().is_err()) {
            // As for the evict thread.
        }
        if let Evictor::Runs(thread) = std::mem::replace(self.thread.get_mut(), Evictor::CannotBe)
            && thread.join().is_err()
        {
            // A thread that panicked has reported that itself, and is no longer needed.
        }
    }
}

/// Memory of a block in these forms.
fn weight(block: &Sparse, stored: &Stored<'_>) -> u64 {
    let packed = stored.packed.map_or(0, |packed| packed.len() as u64 + BOTH_OVERHEAD);
    let recipe = stored.recipe.map_or(0, |_| RECIPE_OVERHEAD);
    block.head().len() as u64 + packed + HELD_OVERHEAD + recipe
}

/// The result of a hit.
enum Hit {
    Plain(Sparse),
    Packed(Arc<Header>, Block),
}

impl Hit {
    /// The block; `None` if its compressed form is damaged. No lock is held.
    fn open(self, store: &Store) -> Option<Sparse> {
        match self {
            Hit::Plain(block) => Some(block),
            Hit::Packed(header, packed) => store.open_packed(&header, &packed),
        }
    }
}

impl Bucket {
    /// Whether a block is held or being read.
    fn holds(&self, key: &Key) -> bool {
        self.entries.get(key).is_some_and(|e| !e.0.state().is_ghost())
            || self.flights.iter().any(|f| f.key == *key)
    }
}

impl Inner {
    fn bucket(&self, key: &Key) -> &Mutex<Bucket> {
        &self.buckets[key.bucket() & (self.buckets.len() - 1)]
    }

    /// Puts a header, whose bucket is locked, into the list of a state.
    fn put(&self, header: &Arc<Header>, state: State) {
        let list = state.list(header.key.kind());
        let sublist = self.lists[list].index(header.key.hash());
        header.set_state(state);
        header.set_sublist(sublist);
        self.sums[list].bytes.fetch_add(header.bytes(), Ordering::Relaxed);
        self.sums[list].count.fetch_add(1, Ordering::Relaxed);
        self.lists[list].push(sublist, header.clone());
    }

    /// Subtracts it from the sums of its list.
    fn uncount(&self, header: &Header) -> usize {
        let list = header.state().list(header.key.kind());
        self.sums[list].bytes.fetch_sub(header.bytes(), Ordering::Relaxed);
        self.sums[list].count.fetch_sub(1, Ordering::Relaxed);
        list
    }

    /// Moves it from its list to a state.
    fn leave(&self, header: &Header, state: State) {
        let (list, was) = (self.uncount(header), header.state());
        header.set_state(state);
        self.lists[list].note_stale(header.sublist(), |h| h.state() != was);
    }

    /// Records a use; returns 1 if the block was used again before. Its bucket is locked.
    fn touch(&self, header: &Arc<Header>) -> usize {
        header.mark();
        if header.is_ahead() {
            // This is its first use, though it has been here for long.
            self.asked_for(header);
            self.counters.ahead_wanted.inc();
            return usize::from(header.state() != State::Mru);
        }
        if header.state() != State::Mru {
            return 1;
        }
        if header.age_ms((self.clock)()) >= MINTIME_MS {
            self.leave(header, State::Gone);
            self.put(header, State::Mfu);
        }
        0
    }

    /// Records that a block that was read ahead is used first, or gone. Its bucket is locked.
    fn asked_for(&self, header: &Header) {
        if header.is_ahead() {
            header.wanted((self.clock)());
            self.ahead.fetch_sub(header.room(), Ordering::Relaxed);
        }
    }

    /// What is kept of a block's stored form. The compressed form is kept if that saves enough
    /// memory, and a recipe if a cache device might need it.
    fn worth_keeping<'a>(&self, key: &Key, block: &Sparse, stored: Stored<'a>) -> Stored<'a> {
        let packed = packed::worth(block, stored.packed);
        let wanted = |recipe: &Recipe| {
            let held = packed.is_some();
            self.l2.any() && key.is_for_l2() && key.needs_recipe(held) && recipe.serves(key, held)
        };
        Stored { packed, recipe: stored.recipe.filter(wanted) }
    }

    /// Enters a block that is not there into a bucket, which is locked. Its memory is reserved.
    /// With `ahead` it has not been used yet.
    fn enter(
        &self,
        bucket: &mut Bucket,
        key: &Key,
        block: &Sparse,
        stored: &Stored<'_>,
        ahead: bool,
    ) -> bool {
        let packed = stored.packed;
        let ghost = bucket.entries.get(key).map(|e| e.0.clone());
        if ghost.as_ref().is_some_and(|h| !h.state().is_ghost()) {
            return false;
        }
        let state = if ghost.is_some() && !ahead { State::Mfu } else { State::Mru };
        if let Some(ghost) = ghost {
            let (again, kind) = (ghost.state() == State::MfuGhost, key.kind());
            self.counters.ghost_hits[usize::from(again)].inc();
            let ghosts = [State::MruGhost, State::MfuGhost]
                .map(|s| self.sums[s.list(kind)].bytes.load(Ordering::Relaxed));
            self.balance.ghost_hit(ghost.bytes(), kind == 1, again, self.pressure.max(), ghosts);
            bucket.entries.remove(key);
            self.remove(&mut bucket.recipes, &ghost);
        }
        let (plain, now) = (block.head().clone(), (self.clock)());
        let header = Arc::new(Header::new(*key, plain, packed.cloned(), state, now));
        if ahead {
            // It gets one round of eviction to be used (`zfs_arc_min_prefetch_ms`, though that is a
            // time).
            header.mark();
            header.mark_ahead();
            self.ahead.fetch_add(weight(block, stored), Ordering::Relaxed);
        }
        if let Some(recipe) = stored.recipe {
            bucket.recipes.keep(&header, recipe);
            self.l2.recipes.fetch_add(1, Ordering::Relaxed);
        }
        bucket.entries.insert(Entry(header.clone()));
        self.put(&header, state);
        if let Some(packed) = packed {
            self.enter_packed(&header, block.head(), packed);
        }
        self.counters.elements_max.fetch_max(self.elements(), Ordering::Relaxed);
        true
    }

    /// Ends a header that is no longer in its bucket; the bucket is locked.
    fn remove(&self, recipes: &mut Recipes, header: &Header) -> Held<Block> {
        self.asked_for(header);
        let room = if header.state().is_ghost() { GHOST_OVERHEAD } else { header.room() };
        let held = self.give_up(recipes, header);
        self.leave(header, State::Gone);
        self.pressure.give(room);
        held
    }

    fn elements(&self) -> u64 {
        self.sums.iter().map(|s| s.count.load(Ordering::Relaxed)).sum()
    }

    /// Bytes of the lists of held blocks.
    fn sizes(&self) -> Sizes {
        let bytes = |state: State, kind| self.sums[state.list(kind)].bytes.load(Ordering::Relaxed);
        [0, 1].map(|kind| [bytes(State::Mru, kind), bytes(State::Mfu, kind)])
    }
}

#[cfg(test)]
mod tests;
