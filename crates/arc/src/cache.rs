//! The cache in front of the block pipeline.

use crate::shard::{Found, Key, Shard};
use device::{Block, Sparse};
use ondisk::{Blkptr, DmuType, Txg};
use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use zio::{Bookmark, WriteReq, Zio};

/// Number of shards; more than any machine has threads that read at once.
const SHARDS: usize = 64;

/// Whether a block may be zeros nearly to the end: indirect blocks of small objects are, and blocks of dnodes where there are few, and thousands of
/// datasets have several of each.
fn is_mostly_free(bp: &Blkptr) -> bool {
    bp.level.0 > 0 || bp.kind == DmuType::DNODE
}

/// Counters by OpenZFS's names (`arcstats`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stats {
    /// Reads that found their block (`hits`).
    pub hits: u64,
    /// Reads that did not (`misses`).
    pub misses: u64,
    /// Bytes held (`size`).
    pub size: u64,
    /// Bytes that may be held (`c_max`).
    pub c_max: u64,
}

/// A block cache of one pool, bounded in bytes.
pub struct Cache {
    zio: Zio,
    shards: Vec<Mutex<Shard>>,
    hits: AtomicU64,
    misses: AtomicU64,
    max: AtomicU64,
}

/// A read under way, for those that want the same block.
#[derive(Default)]
pub(crate) struct Flight {
    done: Mutex<Option<zio::Result<Sparse>>>,
    landed: Condvar,
}

/// Takes the flight out of the table however its read ends, so that nobody waits for one that is over.
struct Landing<'a> {
    shard: &'a Mutex<Shard>,
    key: Key,
    flight: Arc<Flight>,
    result: Option<zio::Result<Sparse>>,
}

impl Drop for Landing<'_> {
    fn drop(&mut self) {
        let bookmark = Bookmark { objset: 0, object: 0.into(), level: 0.into(), blkid: 0.into() };
        let why = "the thread that read it died";
        let result = self.result.take().unwrap_or(Err(zio::Error::Corrupt {
            bookmark,
            source: ondisk::Corrupt::Shape { what: "read", why },
        }));
        self.shard.lock().land(&self.key, result.as_ref().ok());
        *self.flight.done.lock() = Some(result);
        self.flight.landed.notify_all();
    }
}

impl Cache {
    /// A cache of at most `max` bytes of blocks (`zfs_arc_max`) in front of `zio`.
    pub fn new(zio: Zio, max: u64) -> Cache {
        let each = max / SHARDS as u64;
        let shards = (0..SHARDS).map(|_| Mutex::new(Shard::new(each))).collect();
        Cache { zio, shards, hits: AtomicU64::new(0), misses: AtomicU64::new(0), max: AtomicU64::new(max) }
    }

    /// Holds at most `max` bytes of blocks from now on; what is too much goes at once.
    pub fn set_max(&self, max: u64) {
        self.max.store(max, Ordering::Relaxed);
        for shard in &self.shards {
            shard.lock().limit(max / SHARDS as u64);
        }
    }

    /// The pipeline below, for reads that must not be cached.
    pub fn zio(&self) -> &Zio {
        &self.zio
    }

    /// Reads a block through the cache (`arc_read`).
    ///
    /// # Errors
    /// As [`Zio::read`]; failures are not cached.
    pub fn read(&self, bp: &Blkptr, bookmark: &Bookmark) -> zio::Result<Block> {
        let sparse = self.read_sparse(bp, bookmark)?;
        let whole = sparse.whole();
        if !sparse.is_whole()
            && let Some(key) = Key::of(bp, bookmark.objset)
        {
            // Who reads it once is likely to do so again.
            self.shards[key.shard(SHARDS)].lock().complete(&key, &whole);
        }
        Ok(whole)
    }

    /// Reads a block through the cache for who can do without the zeros at its end, which are not held of what was written without, nor of
    /// indirect blocks and blocks of dnodes.
    ///
    /// # Errors
    /// As [`Cache::read`].
    pub fn read_sparse(&self, bp: &Blkptr, bookmark: &Bookmark) -> zio::Result<Sparse> {
        let Some(key) = Key::of(bp, bookmark.objset) else {
            return self.zio.read(bp, bookmark).map(Sparse::from);
        };
        loop {
            match self.read_once(bp, bookmark, key) {
                // Who must not fail waits for devices himself, and does not take another's failure.
                (true, Err(zio::Error::Io { .. })) if zio::Patience::is_here() => {}
                (_, result) => return result,
            }
        }
    }

    /// Reads through the cache; says whether somebody else did it.
    fn read_once(&self, bp: &Blkptr, bookmark: &Bookmark, key: Key) -> (bool, zio::Result<Sparse>) {
        let shard = &self.shards[key.shard(SHARDS)];
        let flight = Arc::new(Flight::default());
        let found = shard.lock().find_or_start(&key, &flight);
        match found {
            Found::Block(block) => {
                self.hits.fetch_add(1, Ordering::Relaxed);
                (true, Ok(block))
            }
            Found::Flight(other) => {
                self.hits.fetch_add(1, Ordering::Relaxed);
                let mut done = other.done.lock();
                loop {
                    match done.as_ref() {
                        Some(result) => return (true, result.clone()),
                        None => other.landed.wait(&mut done),
                    }
                }
            }
            Found::Nothing => {
                self.misses.fetch_add(1, Ordering::Relaxed);
                let mut landing = Landing { shard, key, flight, result: None };
                let result = self.zio.read(bp, bookmark);
                let result = result
                    .map(|block| if is_mostly_free(bp) { Sparse::trimmed(&block) } else { block.into() });
                landing.result = Some(result.clone());
                drop(landing);
                (false, result)
            }
        }
    }

    /// Writes blocks through the pipeline ([`Zio::write_batch`]); what was written is cached, since much of it is soon read.
    ///
    /// # Errors
    /// As [`Zio::write_batch`].
    pub fn write_batch(&self, txg: Txg, reqs: Vec<WriteReq>) -> zio::Result<Vec<Blkptr>> {
        let blocks: Vec<(Bookmark, Sparse)> = reqs.iter().map(|r| (r.bookmark, r.data.clone())).collect();
        let pointers = self.zio.write_batch(txg, reqs)?;
        for (bp, (bookmark, block)) in pointers.iter().zip(blocks) {
            self.keep(bp, &bookmark, &block);
        }
        Ok(pointers)
    }

    /// Caches the contents of a block that its caller knows, for the object set of the bookmark.
    pub fn insert(&self, bp: &Blkptr, bookmark: &Bookmark, block: &Block) {
        self.keep(bp, bookmark, &block.clone().into());
    }

    fn keep(&self, bp: &Blkptr, bookmark: &Bookmark, block: &Sparse) {
        // The object set of an encrypted dataset gets its MACs on its way down.
        let sealed = bp.kind == DmuType::OBJSET && bp.stored().is_some_and(|s| s.crypt);
        if let Some(key) = Key::of(bp, bookmark.objset).filter(|_| !sealed) {
            let trimmed = (block.is_whole() && is_mostly_free(bp)).then(|| Sparse::trimmed(block.head()));
            self.shards[key.shard(SHARDS)].lock().insert(&key, trimmed.as_ref().unwrap_or(block));
        }
    }

    /// Frees a block ([`Zio::free`]) and forgets it (`arc_freed`). `objset` is the object set that it belonged to, as far as that is known: it
    /// takes one to find a block that a key makes readable; others are forgotten when they have not been used for long.
    ///
    /// # Errors
    /// As [`Zio::free`].
    pub fn free(&self, txg: Txg, bp: &Blkptr, objset: Option<u64>) -> zio::Result<()> {
        self.let_go(bp, objset.unwrap_or_default());
        self.zio.free(txg, bp)
    }

    /// Whether a block is cached for this object set; asking is no use of it (`arc_cached`).
    pub fn holds(&self, bp: &Blkptr, objset: u64) -> bool {
        Key::of(bp, objset).is_some_and(|key| self.shards[key.shard(SHARDS)].lock().holds(&key))
    }

    /// Forgets a block that stays where it is, since nobody is going to ask for it soon. `objset` is the object set that it was read for.
    pub fn let_go(&self, bp: &Blkptr, objset: u64) {
        if let Some(key) = Key::of(bp, objset) {
            self.shards[key.shard(SHARDS)].lock().forget(&key);
        }
    }

    /// Forgets every block, as after a key was unloaded.
    pub fn purge(&self) {
        for shard in &self.shards {
            shard.lock().purge();
        }
    }

    /// The counters.
    pub fn stats(&self) -> Stats {
        Stats {
            hits: self.hits.load(Ordering::Relaxed),
            misses: self.misses.load(Ordering::Relaxed),
            size: self.shards.iter().map(|s| s.lock().size()).sum(),
            c_max: self.max.load(Ordering::Relaxed),
        }
    }
}
