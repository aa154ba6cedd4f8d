//! The cache in front of the block pipeline of one pool.

use crate::header::Key;
use crate::second::Seconds;
use crate::store::{Flight, Found, Hand, Stats, Store};
use device::{Block, Sparse};
use ondisk::{Blkptr, DmuType, Txg};
use std::sync::Arc;
use zio::{Bookmark, WriteReq, Zio};

/// Whether a block may be zeros nearly to the end: indirect blocks of small objects are, and blocks of dnodes where there are few, and thousands of
/// datasets have several of each.
fn is_mostly_free(bp: &Blkptr) -> bool {
    bp.level.0 > 0 || bp.kind == DmuType::DNODE
}

/// The memory that the cache of a pool may use.
#[derive(Clone)]
pub enum Room {
    /// So many bytes, for each cache that is made.
    Own(u64),
    /// What pools share.
    Shared(Arc<Store>),
}

impl From<u64> for Room {
    fn from(max: u64) -> Self {
        Self::Own(max)
    }
}

impl From<Arc<Store>> for Room {
    fn from(store: Arc<Store>) -> Self {
        Self::Shared(store)
    }
}

impl PartialEq for Room {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Own(a), Self::Own(b)) => a == b,
            (Self::Shared(a), Self::Shared(b)) => Arc::ptr_eq(a, b),
            (Self::Own(_), Self::Shared(_)) | (Self::Shared(_), Self::Own(_)) => false,
        }
    }
}

impl Eq for Room {}

impl std::fmt::Debug for Room {
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
    /// What object sets want to have on cache devices, where that is not everything.
    pub(crate) second: Seconds,
}

/// Takes the flight out of the table however its read ends, so that nobody waits for one that is over.
struct Landing<'a> {
    store: &'a Store,
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
        let block = result.as_ref().ok().cloned();
        // Before it is entered, which may wait for room.
        *self.flight.done.lock() = Some(result);
        self.flight.landed.notify_all();
        self.store.land(&self.key, block.as_ref());
    }
}

impl Cache {
    /// A cache in this memory in front of `zio`: of as many bytes if it is a number (`zfs_arc_max`).
    pub fn new(zio: Zio, room: impl Into<Room>) -> Cache {
        let store = match room.into() {
            Room::Own(max) => Store::new(max),
            Room::Shared(store) => store,
        };
        let pool = store.new_pool();
        Cache { zio, store, pool, second: Seconds::default() }
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
    /// As [`Zio::read`]; failures are not cached.
    pub fn read(&self, bp: &Blkptr, bookmark: &Bookmark) -> zio::Result<Block> {
        self.read_whole(bp, bookmark, None)
    }

    /// The block that a hand leads to, if the cache holds it still; counted as a hit.
    pub fn at_hand(&self, hand: &Hand) -> Option<Block> {
        self.store.at_hand(hand)
    }

    /// As [`Cache::read`]; a block that is read again and again is shown to `keep`.
    ///
    /// # Errors
    /// As [`Cache::read`].
    pub fn read_keeping(&self, bp: &Blkptr, bookmark: &Bookmark, keep: impl Fn(Hand)) -> zio::Result<Block> {
        self.read_whole(bp, bookmark, Some(&keep))
    }

    fn read_whole(
        &self,
        bp: &Blkptr,
        bookmark: &Bookmark,
        keep: Option<&dyn Fn(Hand)>,
    ) -> zio::Result<Block> {
        let sparse = self.read_sparse_keeping(bp, bookmark, keep)?;
        if sparse.is_whole() {
            return Ok(sparse.into_head());
        }
        let whole = sparse.whole();
        if let Some(key) = self.key(bp, bookmark.objset) {
            // Who reads it once is likely to do so again.
            self.store.complete(&key, &whole);
        }
        Ok(whole)
    }

    /// Reads a block through the cache for who can do without the zeros at its end, which are not held of what was written without, nor of
    /// indirect blocks and blocks of dnodes.
    ///
    /// # Errors
    /// As [`Cache::read`].
    pub fn read_sparse(&self, bp: &Blkptr, bookmark: &Bookmark) -> zio::Result<Sparse> {
        self.read_sparse_keeping(bp, bookmark, None)
    }

    fn read_sparse_keeping(
        &self,
        bp: &Blkptr,
        bookmark: &Bookmark,
        keep: Option<&dyn Fn(Hand)>,
    ) -> zio::Result<Sparse> {
        let Some(key) = self.key(bp, bookmark.objset) else {
            return self.zio.read(bp, bookmark).map(Sparse::from);
        };
        loop {
            match self.read_once(bp, bookmark, key, keep) {
                // Who must not fail waits for devices himself, and does not take another's failure.
                (true, Err(zio::Error::Io { .. })) if zio::Patience::is_here() => {}
                (_, result) => return result,
            }
        }
    }

    /// Reads through the cache; says whether somebody else did it.
    fn read_once(
        &self,
        bp: &Blkptr,
        bookmark: &Bookmark,
        key: Key,
        keep: Option<&dyn Fn(Hand)>,
    ) -> (bool, zio::Result<Sparse>) {
        let mut mine = None;
        let start = || mine.insert(Arc::<Flight>::default()).clone();
        match self.store.find_or_start(&key, start, keep) {
            Found::Block(block) => (true, Ok(block)),
            Found::Flight(other) => {
                let mut done = other.done.lock();
                loop {
                    match done.as_ref() {
                        Some(result) => return (true, result.clone()),
                        None => other.landed.wait(&mut done),
                    }
                }
            }
            Found::Nothing => {
                let flight = mine.expect("it was just entered");
                let mut landing = Landing { store: &self.store, key, flight, result: None };
                let result =
                    self.second_read(bp, bookmark, &key).unwrap_or_else(|| self.zio.read(bp, bookmark));
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
        if let Some(key) = self.key(bp, bookmark.objset).filter(|_| !sealed) {
            let trimmed = (block.is_whole() && is_mostly_free(bp)).then(|| Sparse::trimmed(block.head()));
            self.store.insert(&key, trimmed.as_ref().unwrap_or(block));
        }
    }

    /// Frees a block ([`Zio::free`]) and forgets it (`arc_freed`). `objset` is the object set that it belonged to, as far as that is known: it
    /// takes one to find a block that a key makes readable; others are forgotten when they have not been used for long.
    ///
    /// # Errors
    /// As [`Zio::free`].
    pub fn free(&self, txg: Txg, bp: &Blkptr, objset: Option<u64>) -> zio::Result<()> {
        self.let_go(bp, objset.unwrap_or_default());
        self.forget_second(bp);
        self.zio.free(txg, bp)
    }

    /// Whether a block is cached for this object set; asking is no use of it (`arc_cached`).
    pub fn holds(&self, bp: &Blkptr, objset: u64) -> bool {
        self.key(bp, objset).is_some_and(|key| self.store.holds(&key))
    }

    /// Forgets a block that stays where it is, since nobody is going to ask for it soon. `objset` is the object set that it was read for.
    pub fn let_go(&self, bp: &Blkptr, objset: u64) {
        if let Some(key) = self.key(bp, objset) {
            self.store.forget(&key);
        }
    }

    /// Forgets every block of this pool, as after a key was unloaded.
    pub fn purge(&self) {
        self.store.purge(self.pool);
    }

    /// The counters of the memory that it uses, of all pools that share it.
    pub fn stats(&self) -> Stats {
        self.store.stats()
    }
}

impl Drop for Cache {
    fn drop(&mut self) {
        // Nobody can ask for them any more.
        self.store.purge(self.pool);
        self.store.remove_disks(|disk| disk.pool == self.pool);
    }
}
