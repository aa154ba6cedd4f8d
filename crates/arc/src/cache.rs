//! The cache in front of the block pipeline of one pool.

use crate::header::Key;
use crate::l2_read::SecondaryCaches;
use crate::policy::{Policies, Policy};
use crate::prefetch::{PrefetchWorkers, Run};
use crate::recipe::Recipe;
use crate::store::{BlockRef, Found, PendingRead, Stats, Store, Stored};
use codec::compress::ZstdLevel;
use device::{Block, Sparse};
use observe::work::{self, Wait};
use ondisk::{Blkptr, DmuType, Txg};
use std::any::Any;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, OnceLock};
use zio::{Bookmark, IoFlags, ReadOptions, Workers, WriteReq, Zio};

/// The memory that the cache of a pool may use.
#[derive(Clone)]
pub enum CacheMemory {
    /// So many bytes, for each cache that is created.
    Own(u64),
    /// The memory that pools share.
    Shared(Arc<Store>),
}

impl From<u64> for CacheMemory {
    fn from(max: u64) -> Self {
        Self::Own(max)
    }
}

impl From<Arc<Store>> for CacheMemory {
    fn from(store: Arc<Store>) -> Self {
        Self::Shared(store)
    }
}

impl PartialEq for CacheMemory {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Own(a), Self::Own(b)) => a == b,
            (Self::Shared(a), Self::Shared(b)) => Arc::ptr_eq(a, b),
            (Self::Own(_), Self::Shared(_)) | (Self::Shared(_), Self::Own(_)) => false,
        }
    }
}

impl Eq for CacheMemory {}

impl std::fmt::Debug for CacheMemory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Own(bytes) => write!(f, "Own({bytes})"),
            Self::Shared(store) => write!(f, "Shared({})", store.stats().c_max),
        }
    }
}

/// A block cache of one pool.
pub struct Cache {
    zio: Zio,
    pub(crate) store: Arc<Store>,
    /// The pool's number in the store.
    pub(crate) pool: u32,
    /// What may be on cache devices of each object set, where that is not everything.
    pub(crate) second: SecondaryCaches,
    prefetcher: PrefetchWorkers,
    policies: Policies,
    /// An object of the crate above, one for each pool.
    beside: OnceLock<Box<dyn Any + Send + Sync>>,
}

/// Blocks are read ahead while this lives ([`Cache::begin_prefetch`]).
///
/// When it has been dropped, the reads under way have ended, and hold no device any more.
pub struct PrefetchGuard(Arc<Cache>);

impl Drop for PrefetchGuard {
    fn drop(&mut self) {
        self.0.prefetcher.close();
    }
}

/// Where a read found its block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlockOrigin {
    /// In memory, read ahead, and this is its first use.
    Prefetched,
    /// It was being read ahead.
    Late,
    /// It had to be read, or another reader was reading it.
    Missed,
}

/// Removes the flight from the table however its read ends, so that no reader waits for one that is
/// over.
struct PendingReadGuard<'a> {
    store: &'a Store,
    key: Key,
    flight: Arc<PendingRead>,
    ahead: bool,
    kept: bool,
    result: Option<zio::Result<Sparse>>,
    packed: Option<Block>,
    recipe: Recipe,
}

impl Drop for PendingReadGuard<'_> {
    fn drop(&mut self) {
        let bookmark = Bookmark { objset: 0, object: 0.into(), level: 0.into(), blkid: 0.into() };
        let why = "the thread that read it died";
        let result = self.result.take().unwrap_or(Err(zio::Error::Corrupt {
            bookmark,
            source: ondisk::Corrupt::Shape { what: "read", why },
        }));
        let block = result.as_ref().ok().filter(|_| self.kept).cloned();
        if block.is_none() {
            // There is no block. A waiter that tries again does not meet this flight again.
            self.store.land(&self.key, None, Stored::default(), self.ahead);
        }
        // Before the block is entered, since that may wait for memory.
        *self.flight.done.lock() = Some(result);
        self.flight.landed.notify_all();
        if block.is_some() {
            let stored = Stored { packed: self.packed.as_ref(), recipe: Some(self.recipe) };
            self.store.land(&self.key, block.as_ref(), stored, self.ahead);
        }
    }
}

/// What a reader wants besides the block.
#[derive(Clone, Copy, Default)]
pub struct ReadHooks<'a> {
    /// Called with a [`BlockRef`] if the block is read again and again.
    pub keep: Option<&'a dyn Fn(BlockRef)>,
    /// Called with where the block comes from, before a wait for it. Not called for a block that
    /// was in memory and had been used before.
    pub told: Option<&'a dyn Fn(BlockOrigin)>,
}

impl ReadHooks<'_> {
    fn tell(&self, came: BlockOrigin) {
        if let Some(told) = self.told {
            told(came);
        }
    }
}

/// Which reader read a block.
enum ReadBy {
    Me,
    Another,
    /// A speculative reader.
    Guesser,
    /// A reader whose block may have been freed.
    Doubter,
}

impl Cache {
    /// A cache in this memory in front of `zio`. A number is the limit in bytes (`zfs_arc_max`).
    pub fn new(zio: Zio, room: impl Into<CacheMemory>) -> Cache {
        let store = match room.into() {
            CacheMemory::Own(max) => Store::new(max),
            CacheMemory::Shared(store) => store,
        };
        let pool = store.new_pool();
        let prefetcher = PrefetchWorkers::new(pool, store.zfetch().clone());
        Cache {
            zio,
            store,
            pool,
            prefetcher,
            policies: Policies::default(),
            second: SecondaryCaches::default(),
            beside: OnceLock::new(),
        }
    }

    /// Sets what is kept and read ahead of an object set, from now on. Cached blocks stay until
    /// they are evicted.
    pub fn set_policy(&self, objset: u64, policy: Policy) {
        self.policies.set(objset, policy);
    }

    /// Whether data of an object set is kept.
    pub fn keeps_data(&self, objset: u64) -> bool {
        self.policies.keeps(objset, false)
    }

    /// Whether data of an object set is read ahead, or metadata only; `None` if neither is.
    pub fn prefetches(&self, objset: u64) -> Option<bool> {
        self.policies.reads_ahead(objset)
    }

    /// Begins to read blocks ahead, until the returned value is dropped. Before this call nothing
    /// is read ahead.
    #[must_use]
    pub fn begin_prefetch(self: &Arc<Self>) -> PrefetchGuard {
        self.prefetcher.begin(self.devices());
        PrefetchGuard(self.clone())
    }

    fn devices(&self) -> u64 {
        self.zio.tree().devices().count().max(1) as u64
    }

    /// An object of the crate above, kept while this pool is open, and created by the first call.
    /// `None` for calls with another type than the first.
    pub fn beside<T: Any + Default + Send + Sync>(&self) -> Option<&T> {
        self.beside.get_or_init(|| Box::new(T::default())).downcast_ref()
    }

    /// Whether blocks are read ahead.
    pub fn reads_ahead(&self) -> bool {
        self.prefetcher.is_begun()
    }

    /// Queues blocks to be read ahead, after the reads that callers wait for (`dmu_zfetch_run`).
    /// Returns false if too much is queued.
    pub fn read_ahead(&self, run: Run) -> bool {
        if !self.prefetcher.is_begun() {
            return false;
        }
        // There may be more devices by now.
        self.prefetcher.begin(self.devices());
        self.prefetcher.push(run)
    }

    /// Reads a block ahead, unless it is cached, being read, or memory is short.
    pub fn fetch_ahead(&self, bp: &Blkptr, bookmark: &Bookmark) {
        if let Some(key) = self.key(bp, bookmark.objset)
            && self.store.may_read_ahead(&key)
        {
            let mut mine = None;
            let start = || mine.insert(PendingRead::new(true)).clone();
            if let Found::Nothing = self.store.find_or_start(&key, true, start, None) {
                let flight = mine.expect("it was just entered");
                // A failure is ignored: the reader that needs the block meets it again.
                let _ = self.fly(bp, bookmark, key, flight, &ReadOptions::prefetch());
            }
        }
    }

    /// The memory that it uses.
    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// The pipeline below, for reads that must not be cached.
    pub fn zio(&self) -> &Zio {
        &self.zio
    }

    fn key(&self, bp: &Blkptr, objset: u64) -> Option<Key> {
        let mut key = self.store.key(bp, objset, self.pool)?;
        if !self.second.wants(objset, &key) {
            key.keep_from_l2();
        }
        Some(key)
    }

    /// Reads a block through the cache (`arc_read`).
    ///
    /// # Errors
    /// Those of [`Zio::read`]. Failures are not cached.
    pub fn read(&self, bp: &Blkptr, bookmark: &Bookmark, options: &ReadOptions) -> zio::Result<Block> {
        self.read_asking(bp, bookmark, ReadHooks::default(), options)
    }

    /// The block of a [`BlockRef`], if the cache still holds it. Counts as a hit.
    pub fn by_ref(&self, hand: &BlockRef) -> Option<Block> {
        self.store.by_ref(hand)
    }

    /// Reads a block like [`Cache::read`], and reports what `ask` wants.
    ///
    /// # Errors
    /// Those of [`Zio::read`].
    pub fn read_asking(
        &self,
        bp: &Blkptr,
        bookmark: &Bookmark,
        ask: ReadHooks<'_>,
        options: &ReadOptions,
    ) -> zio::Result<Block> {
        let sparse = self.read_sparse_asking(bp, bookmark, ask, options)?;
        if sparse.is_whole() {
            return Ok(sparse.into_head());
        }
        let whole = sparse.whole();
        if let Some(key) = self.key(bp, bookmark.objset) {
            // Has no effect if the block is not cached. A block that is read whole once is likely
            // to be so again.
            self.store.complete(&key, &whole);
        }
        Ok(whole)
    }

    /// Reads a block through the cache, perhaps without the zeros at its end. These are not held of
    /// blocks that were written without, nor of indirect blocks and blocks of dnodes.
    ///
    /// # Errors
    /// Those of [`Zio::read`].
    pub fn read_sparse(
        &self,
        bp: &Blkptr,
        bookmark: &Bookmark,
        options: &ReadOptions,
    ) -> zio::Result<Sparse> {
        self.read_sparse_asking(bp, bookmark, ReadHooks::default(), options)
    }

    /// Reads a block like [`Cache::read_sparse`], and reports what `ask` wants.
    ///
    /// # Errors
    /// Those of [`Zio::read`].
    pub fn read_sparse_asking(
        &self,
        bp: &Blkptr,
        bookmark: &Bookmark,
        ask: ReadHooks<'_>,
        options: &ReadOptions,
    ) -> zio::Result<Sparse> {
        let Some(key) = self.key(bp, bookmark.objset) else {
            return self.zio.read(bp, bookmark, options).map(Sparse::from);
        };
        loop {
            match self.read_once(bp, bookmark, key, ask, options) {
                // The failure of a speculative read is no result for other readers.
                (ReadBy::Guesser, Err(_)) if !options.has(IoFlags::SPECULATIVE) => {}
                // Nor is that of a reader that records no damage.
                (ReadBy::Doubter, Err(_)) if !options.has(IoFlags::MAY_BE_FREED) => {}
                // A reader that must succeed waits for devices itself, and does not take another
                // reader's failure.
                (ReadBy::Another, Err(zio::Error::Io { .. } | zio::Error::Checksum { .. }))
                    if options.has(IoFlags::MUST_SUCCEED) => {}
                (_, result) => return result,
            }
        }
    }

    /// Reads through the cache; returns also which reader read the block.
    fn read_once(
        &self,
        bp: &Blkptr,
        bookmark: &Bookmark,
        key: Key,
        ask: ReadHooks<'_>,
        options: &ReadOptions,
    ) -> (ReadBy, zio::Result<Sparse>) {
        let ahead = options.has(IoFlags::SPECULATIVE);
        let may_be_freed = options.has(IoFlags::MAY_BE_FREED);
        let is_paced = options.request.is_paced();
        let mut mine = None;
        let new = || Arc::new(PendingRead { guessed: ahead, may_be_freed, ..PendingRead::default() });
        let start = || mine.insert(new()).clone();
        match self.store.find_or_start(&key, ahead, start, ask.keep) {
            Found::Block(block, prefetched) => {
                if prefetched {
                    ask.tell(BlockOrigin::Prefetched);
                }
                (ReadBy::Another, Ok(block))
            }
            Found::PendingRead(other, prefetched) => {
                ask.tell(if prefetched { BlockOrigin::Late } else { BlockOrigin::Missed });
                let by = match &*other {
                    PendingRead { guessed: true, .. } => ReadBy::Guesser,
                    PendingRead { may_be_freed: true, .. } => ReadBy::Doubter,
                    _ => ReadBy::Another,
                };
                if !is_paced {
                    other.hurries.store(true, Relaxed);
                }
                let _waiting = work::wait(Wait::Read, 0);
                let mut done = other.done.lock();
                loop {
                    match done.as_ref() {
                        Some(result) => return (by, result.clone()),
                        None => other.landed.wait(&mut done),
                    }
                }
            }
            Found::Nothing => {
                ask.tell(BlockOrigin::Missed);
                let flight = mine.expect("it was just entered");
                // A read that yields does not hold up what is read ahead for others.
                let _demand = (!ahead && !is_paced).then(|| self.prefetcher.demand());
                (ReadBy::Me, self.fly(bp, bookmark, key, flight, options))
            }
        }
    }

    /// Reads a block that is entered as a flight.
    fn fly(
        &self,
        bp: &Blkptr,
        bookmark: &Bookmark,
        key: Key,
        flight: Arc<PendingRead>,
        options: &ReadOptions,
    ) -> zio::Result<Sparse> {
        let ahead = options.has(IoFlags::SPECULATIVE);
        let kept = self.policies.keeps(bookmark.objset, key.kind() == 1);
        let (store, recipe) = (&*self.store, Recipe::of(bp, None));
        // A reader in the foreground that waits for this read does not wait for its turn.
        let paced = options.request.is_paced().then(|| {
            let flight = flight.clone();
            let request = options.request.hurried_by(move || flight.hurries.load(Relaxed));
            ReadOptions { request, ..options.clone() }
        });
        let options = paced.as_ref().unwrap_or(options);
        let mut landing =
            PendingReadGuard { store, key, flight, ahead, kept, result: None, packed: None, recipe };
        let opened = self.l2_read(bp, bookmark, &key, options.request.priority());
        let opened = opened.unwrap_or_else(|| self.zio.read_packed(bp, bookmark, options));
        let result = opened.map(|zio::Opened { block, packed }| {
            landing.recipe = Recipe::of(bp, Recipe::level_of(bp, packed.as_ref()));
            landing.packed = packed;
            if key.is_mostly_free() && block.is_whole() { Sparse::trimmed(block.head()) } else { block }
        });
        landing.result = Some(result.clone());
        drop(landing);
        result
    }

    /// Writes blocks through the pipeline ([`Zio::write_batch`]), and caches them, since many are
    /// soon read.
    ///
    /// # Errors
    /// Those of [`Zio::write_batch`].
    pub fn write_batch(&self, txg: Txg, reqs: Vec<WriteReq>, workers: &Workers) -> zio::Result<Vec<Blkptr>> {
        // A block that arrived compressed or encrypted is not cached: its contents are not known
        // here.
        let is_known = |r: &WriteReq| r.compressed.is_none() && r.encrypted.is_none();
        let told = |r: &WriteReq| is_known(r).then(|| (r.bookmark, r.data.clone(), r.policy.zstd));
        let blocks: Vec<Option<(Bookmark, Sparse, ZstdLevel)>> = reqs.iter().map(told).collect();
        let written = self.zio.write_batch_packed(txg, reqs, workers)?;
        let kept = written.into_iter().zip(blocks).map(|(written, block)| {
            let zio::Written { pointer, packed } = written;
            let Some((bookmark, block, level)) = block else { return pointer };
            let recipe = Some(Recipe::of(&pointer, Some(level)));
            self.keep(&pointer, &bookmark, &block, Stored { packed: packed.as_ref(), recipe });
            pointer
        });
        Ok(kept.collect())
    }

    /// Caches the contents of a block that the caller knows, for the object set of the bookmark.
    pub fn insert(&self, bp: &Blkptr, bookmark: &Bookmark, block: &Block) {
        let recipe = Some(Recipe::of(bp, None));
        self.keep(bp, bookmark, &block.clone().into(), Stored { packed: None, recipe });
    }

    fn keep(&self, bp: &Blkptr, bookmark: &Bookmark, block: &Sparse, stored: Stored<'_>) {
        // The object set of an encrypted dataset gets its MACs during the write.
        let sealed = bp.kind == DmuType::OBJSET && bp.stored().is_some_and(|s| s.crypt);
        let kept = |key: &Key| !sealed && self.policies.keeps(bookmark.objset, key.kind() == 1);
        if let Some(key) = self.key(bp, bookmark.objset).filter(kept) {
            let trimmed = (block.is_whole() && key.is_mostly_free()).then(|| Sparse::trimmed(block.head()));
            self.store.insert(&key, trimmed.as_ref().unwrap_or(block), stored);
        }
    }

    /// Frees a block ([`Zio::free`]) and drops it from the cache (`arc_freed`).
    ///
    /// `objset` is the object set that it belonged to, as far as known. It is needed to find a
    /// block that was decrypted with a key. Such blocks are otherwise evicted when they have not
    /// been used for long.
    ///
    /// # Errors
    /// Those of [`Zio::free`].
    pub fn free(&self, txg: Txg, bp: &Blkptr, objset: Option<u64>) -> zio::Result<()> {
        // The pointers in lists of freed blocks have no checksums.
        if let Some(key) = self.key(bp, objset.unwrap_or_default()) {
            self.store.forget(&key.with_any_sum());
        }
        self.forget_l2(bp);
        self.zio.free(txg, bp)
    }

    /// Whether a block is cached for this object set (`arc_cached`). Does not count as a use.
    pub fn holds(&self, bp: &Blkptr, objset: u64) -> bool {
        self.key(bp, objset).is_some_and(|key| self.store.holds(&key))
    }

    /// Drops a block from the cache that stays on disk, since it won't be needed soon, or that was
    /// overwritten in its place. `objset` is the object set for which it was read.
    pub fn let_go(&self, bp: &Blkptr, objset: u64) {
        if let Some(key) = self.key(bp, objset) {
            self.store.forget(&key);
        }
    }

    /// Drops every block of this pool (`arc_flush`), as after a key was unloaded.
    pub fn purge(&self) {
        self.store.purge(self.pool);
    }

    /// The counters of its memory, over all pools that share it.
    pub fn stats(&self) -> Stats {
        self.store.stats()
    }
}

impl Drop for Cache {
    fn drop(&mut self) {
        // No reader can find these blocks any more.
        self.store.purge(self.pool);
        self.store.remove_disks(|disk| disk.pool == self.pool);
    }
}
