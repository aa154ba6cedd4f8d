//! The pool's checkpoint: its state at some moment, kept whole to go back to.
//!
//! # Theory
//! A checkpoint is the uberblock of a group, kept in the MOS, and the promise that nothing which it reaches is written over: what is freed of that
//! is put aside by the allocator until the checkpoint is let go. That must hold from the first free after that uberblock on, and so a checkpoint is
//! taken, and let go, before anything else in its group.
//!
//! # Life
//! It is there from [`PoolWriter::checkpoint`] to [`PoolWriter::discard_checkpoint`]. Then each group frees a part of what was put aside, until nothing is left: only
//! then the feature is no longer in use, and another checkpoint may be taken. An import goes on with that.
//!
//! # Crash
//! To go back to a checkpoint for writing, its uberblock is first written to all devices under a number beyond all others
//! ([`Engine::go_back`]). Before that nothing else is written; after that there is no other way than on from there.
//!
//! # See
//! OpenZFS `module/zfs/spa_checkpoint.c`, `spa.c` (`spa_ld_checkpoint_rewind`).

use std::sync::atomic::{AtomicBool, Ordering};

use dmu::Tx;
use dsl::sync::Event;
use observe::{Tunable, Unit};
use ondisk::feature::Feature;
use ondisk::{Txg, Uberblock, bytes, mos};
use parking_lot::Mutex;
use pool::Mos;

use crate::engine::{Engine, PoolWriter, ShapeError, SyncError};
use crate::txg::Stopped;

/// `zpool_checkpoint`: in use from taking a checkpoint until nothing is left of it.
const FEATURE: &str = "com.delphix:zpool_checkpoint";
/// Bytes of what a checkpoint held that one group may look at (`zfs_spa_discard_memory_limit`): it frees as many ranges as a quarter of their words.
pub static DISCARD_MEMORY: Tunable = Tunable::new(
    "zfs_spa_discard_memory_limit",
    16 << 20,
    0..=1 << 40,
    Unit::Bytes,
    "most of a discarded checkpoint's space maps that one transaction group frees",
);

/// Why a checkpoint was not taken or let go; the pool is as it was.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    /// The pool has stopped.
    #[error(transparent)]
    Stopped(#[from] Stopped),
    /// The feature is not enabled (`ENOTSUP`).
    #[error("the feature zpool_checkpoint is not enabled")]
    Feature,
    /// There is one (`ZFS_ERR_CHECKPOINT_EXISTS`).
    #[error("a checkpoint exists")]
    Exists,
    /// The last one is not all gone yet (`ZFS_ERR_DISCARDING_CHECKPOINT`).
    #[error("a checkpoint is being discarded")]
    Discarding,
    /// There is none (`ZFS_ERR_NO_CHECKPOINT`).
    #[error("there is no checkpoint")]
    Absent,
    /// The pool's books can't be read.
    #[error("the pool's books")]
    Books(#[from] pool::Error),
}

/// What the engine knows of the checkpoint.
pub(crate) struct Checkpoint {
    uberblock: Mutex<Option<Uberblock>>,
    /// What one held is being freed.
    going: AtomicBool,
}

fn feature() -> &'static Feature {
    Feature::by_guid(FEATURE).expect("it is in the table")
}

/// The uberblock that the words of the MOS's entry mean.
pub(crate) fn decode(words: &[u64]) -> ondisk::Result<Uberblock> {
    // Software before a field was added wrote fewer words.
    let mut raw = [0; ondisk::uberblock::UBERBLOCK_SIZE];
    for (to, word) in raw.chunks_exact_mut(8).zip(words) {
        to.copy_from_slice(&word.to_le_bytes());
    }
    Uberblock::decode(&raw)
}

impl Checkpoint {
    /// What a pool's books say. One that can't be understood is one all the same: what it holds stays held.
    pub(crate) fn of(mos: &Mos) -> pool::Result<Checkpoint> {
        let words = mos.checkpoint()?;
        let going = words.is_none() && mos.feature_refcount(feature())?.unwrap_or(0) > 0;
        let uberblock = words.and_then(|w| decode(&w).ok());
        Ok(Checkpoint { uberblock: Mutex::new(uberblock), going: AtomicBool::new(going) })
    }

    /// Whether groups have to go on freeing what one held.
    pub(crate) fn is_going(&self) -> bool {
        self.going.load(Ordering::Relaxed)
    }
}

impl Engine {
    /// Refuses when there is a checkpoint, or what is left of one.
    pub(crate) fn no_checkpoint(&self) -> Result<(), CheckpointError> {
        if self.mos.checkpoint()?.is_some() {
            return Err(CheckpointError::Exists);
        }
        if self.mos.feature_refcount(feature())?.unwrap_or(0) > 0 {
            return Err(CheckpointError::Discarding);
        }
        Ok(())
    }

    /// As [`Engine::no_checkpoint`], for changes of the pool's shape that one forbids.
    pub(crate) fn shape_is_free(&self) -> Result<(), ShapeError> {
        self.no_checkpoint().map_err(|e| match e {
            CheckpointError::Exists => ShapeError::CheckpointExists,
            CheckpointError::Books(e) => ShapeError::Books(e),
            CheckpointError::Stopped(e) => ShapeError::Stopped(e),
            CheckpointError::Discarding | CheckpointError::Absent | CheckpointError::Feature => {
                ShapeError::DiscardingCheckpoint
            }
        })
    }

    fn take(&self, tx: &Tx) -> pool::Result<Event> {
        let at = self.synced.read().uberblock.clone();
        let at = Uberblock { checkpoint_txg: at.txg, ..at };
        self.allocator.set_checkpoint(Some(at.txg));
        let raw = at.encode();
        let words: Vec<u64> = (0..raw.len() / 8).map(|i| bytes::le64(&raw, i * 8)).collect();
        self.sync_mos.set_dir_words(tx, mos::ZPOOL_CHECKPOINT, &words)?;
        self.sync_mos.feature_incr(tx, feature())?;
        let text = format!("checkpointed uberblock txg={}", at.txg.0);
        *self.checkpoint.uberblock.lock() = Some(at);
        Ok(event("spa checkpoint", text))
    }

    fn let_go(&self, tx: &Tx) -> pool::Result<Event> {
        self.sync_mos.unlink(tx, mos::ZPOOL_CHECKPOINT)?;
        self.allocator.set_checkpoint(None);
        *self.checkpoint.uberblock.lock() = None;
        self.checkpoint.going.store(true, Ordering::Relaxed);
        Ok(event("spa discard checkpoint", "started discarding checkpointed state from the pool".to_owned()))
    }

    /// Frees a part of what a checkpoint held that was let go.
    pub(crate) fn discard_checkpoint(&self, tx: &Tx) -> Result<(), SyncError> {
        if !self.checkpoint.is_going() {
            return Ok(());
        }
        let txg = tx.txg();
        let books = |source| SyncError::Books { txg, source };
        if self.allocator.discard(tx, &self.sync_mos, (DISCARD_MEMORY.get() / 32).max(1)).map_err(books)? {
            self.sync_mos.feature_decr(tx, feature()).map_err(books)?;
            self.checkpoint.going.store(false, Ordering::Relaxed);
            let text = "finished discarding checkpointed state from the pool".to_owned();
            self.log_events(tx, &[event("spa discard checkpoint", text)])?;
        }
        Ok(())
    }

    /// Makes a checkpoint's uberblock, which has got a number beyond all others, the newest of all devices.
    pub(crate) fn go_back(&self, to: &Uberblock) -> Result<(), SyncError> {
        let config = self.synced.read().config.clone();
        let tree = config.vdev_tree.as_ref().expect("an engine's config has a tree");
        self.put_uberblock(tree, to, true)?;
        let txg = to.txg;
        self.cache.zio().flush_once(txg).map_err(|source| SyncError::Flush { txg, source })
    }
}

fn event(what: &'static str, text: String) -> Event {
    Event { what, dataset: String::new(), object: 0, text }
}

impl PoolWriter {
    /// Takes a checkpoint of the pool as it is now (`spa_checkpoint`).
    ///
    /// # Errors
    /// [`CheckpointError`].
    pub fn checkpoint(&self) -> Result<(), CheckpointError> {
        let engine = self.engine();
        let _alone = engine.shape.lock();
        if !engine.mos.feature_enabled(FEATURE)? {
            return Err(CheckpointError::Feature);
        }
        engine.no_checkpoint()?;
        // What was done before the call is in it.
        self.sync_all()?;
        Ok(self.change_early(Box::new(|engine, tx| {
            let taken = engine.take(tx);
            taken.map(|e| vec![e]).map_err(|source| SyncError::Books { txg: tx.txg(), source })
        }))?)
    }

    /// Lets the checkpoint go. What it held is freed by the groups that follow, which `wait` waits for (`spa_checkpoint_discard`).
    ///
    /// # Errors
    /// [`CheckpointError`].
    pub fn discard_checkpoint(&self, wait: bool) -> Result<(), CheckpointError> {
        let engine = self.engine();
        let _alone = engine.shape.lock();
        match engine.no_checkpoint() {
            Ok(()) => return Err(CheckpointError::Absent),
            Err(CheckpointError::Exists) => {}
            Err(e) => return Err(e),
        }
        self.change_early(Box::new(|engine, tx| {
            let gone = engine.let_go(tx);
            gone.map(|e| vec![e]).map_err(|source| SyncError::Books { txg: tx.txg(), source })
        }))?;
        while wait && self.is_discarding() {
            self.sync_all()?;
        }
        Ok(())
    }

    /// The uberblock of the checkpoint, if there is one.
    pub(crate) fn checkpointed(&self) -> Option<Uberblock> {
        self.engine().checkpoint.uberblock.lock().clone()
    }

    /// Whether what a checkpoint held is being freed.
    pub(crate) fn is_discarding(&self) -> bool {
        self.engine().checkpoint.is_going()
    }

    /// Notes in the history that the pool went back to the checkpoint of that group, and writes its first group.
    pub(crate) fn went_back(&self, to: Txg) -> Result<(), Stopped> {
        let text = format!("rewound state to txg={}", to.0);
        self.change_pool(Box::new(move |_, _| Ok(vec![event("checkpoint rewind", text)])))
    }
}
