//! The pool's checkpoint: a past state, kept whole to rewind to.
//!
//! # Theory
//! A checkpoint is the uberblock of a txg, kept in the MOS. Nothing that it reaches is overwritten:
//! the allocator sets aside what is freed of it until the checkpoint is discarded. That must hold
//! from the first free after that uberblock. So a checkpoint is taken, and discarded, before
//! anything else in its txg.
//!
//! # Life
//! It exists from [`Checkpoints::take`] to [`Checkpoints::discard`]. Then each txg
//! frees a part of what was set aside until nothing is left. Only then is the feature no longer
//! active, and another checkpoint may be taken. An import continues the discarding.
//!
//! # Crash
//! To rewind to a checkpoint for writing, its uberblock is first written to all devices with a txg
//! beyond all others ([`go_back`]). Before that nothing else is written; after that the
//! pool can only go on from there.
//!
//! # See
//! OpenZFS `module/zfs/spa_checkpoint.c`, `spa.c` (`spa_ld_checkpoint_rewind`).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use dmu::Tx;
use dsl::sync::Event;
use observe::lock::Mutex;
use observe::{Tunable, Unit};
use ondisk::feature::Feature;
use ondisk::{Txg, Uberblock, bytes, mos};
use pool::Mos;

use crate::pool_core::PoolCore;
use crate::pool_core::errors::{ShapeError, SyncError};
use crate::txg::Stopped;

/// `zpool_checkpoint`: active from taking a checkpoint until nothing is left of it.
const FEATURE: &str = "com.delphix:zpool_checkpoint";
/// Bytes of a checkpoint's space map that one txg may process (`zfs_spa_discard_memory_limit`). It
/// frees as many ranges as a quarter of their words.
pub static DISCARD_MEMORY: Tunable = Tunable::new(
    "zfs_spa_discard_memory_limit",
    16 << 20,
    0..=1 << 40,
    Unit::Bytes,
    "most of a discarded checkpoint's space maps that one transaction group frees",
);

/// Why a checkpoint was not taken or discarded; the pool is as it was.
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
    /// The last one is still being discarded (`ZFS_ERR_DISCARDING_CHECKPOINT`).
    #[error("a checkpoint is being discarded")]
    Discarding,
    /// There is none (`ZFS_ERR_NO_CHECKPOINT`).
    #[error("there is no checkpoint")]
    Absent,
    /// The pool metadata can't be read.
    #[error("the pool's metadata")]
    Metadata(#[from] pool::Error),
}

/// Refuses if there is a checkpoint, or one is being discarded.
pub(crate) fn no_checkpoint(mos: &Mos) -> Result<(), CheckpointError> {
    if mos.checkpoint()?.is_some() {
        return Err(CheckpointError::Exists);
    }
    if mos.feature_refcount(feature())?.unwrap_or(0) > 0 {
        return Err(CheckpointError::Discarding);
    }
    Ok(())
}

/// Like [`no_checkpoint`], for changes of the vdev tree that a checkpoint forbids.
pub(crate) fn shape_is_free(mos: &Mos) -> Result<(), ShapeError> {
    no_checkpoint(mos).map_err(|e| match e {
        CheckpointError::Exists => ShapeError::CheckpointExists,
        CheckpointError::Metadata(e) => ShapeError::Metadata(e),
        CheckpointError::Stopped(e) => ShapeError::Stopped(e),
        CheckpointError::Discarding | CheckpointError::Absent | CheckpointError::Feature => {
            ShapeError::DiscardingCheckpoint
        }
    })
}

/// Writes a checkpoint's uberblock, with a txg beyond all others, as the newest of all devices.
pub(crate) fn go_back(core: &PoolCore, to: &Uberblock) -> Result<(), SyncError> {
    let config = core.synced.read().config.clone();
    let tree = config.root();
    core.put_uberblock(tree, to, true)?;
    let txg = to.txg;
    core.cache.zio().flush_once(txg).map_err(|source| SyncError::Flush { txg, source })
}

/// The checkpoint of an open pool.
pub struct Checkpoints {
    core: Arc<PoolCore>,
    uberblock: Mutex<Option<Uberblock>>,
    /// A checkpoint is being discarded.
    going: AtomicBool,
}

fn feature() -> &'static Feature {
    Feature::by_guid(FEATURE).expect("it is in the table")
}

/// The uberblock in the words of the MOS's entry.
pub(crate) fn decode(words: &[u64]) -> ondisk::Result<Uberblock> {
    // Software from before a field was added wrote fewer words.
    let mut raw = [0; ondisk::uberblock::UBERBLOCK_SIZE];
    for (to, word) in raw.chunks_exact_mut(8).zip(words) {
        to.copy_from_slice(&word.to_le_bytes());
    }
    Uberblock::decode(&raw)
}

impl Checkpoints {
    /// The checkpoint by the pool metadata. One that can't be decoded still counts: its space stays
    /// set aside.
    pub(crate) fn open(core: Arc<PoolCore>) -> pool::Result<Checkpoints> {
        let mos = &core.mos;
        let words = mos.checkpoint()?;
        let going = words.is_none() && mos.feature_refcount(feature())?.unwrap_or(0) > 0;
        let uberblock = words.and_then(|w| decode(&w).ok());
        Ok(Checkpoints { uberblock: Mutex::new(uberblock), going: AtomicBool::new(going), core })
    }

    /// Whether txgs must go on with discarding.
    pub(crate) fn is_going(&self) -> bool {
        self.going.load(Ordering::Relaxed)
    }
}

impl Checkpoints {
    fn record(&self, tx: &Tx) -> pool::Result<Event> {
        let at = self.core.synced.read().uberblock.clone();
        let at = Uberblock { checkpoint_txg: at.txg, ..at };
        self.core.allocator.set_checkpoint(Some(at.txg));
        let raw = at.encode();
        let words: Vec<u64> = (0..raw.len() / 8).map(|i| bytes::le64(&raw, i * 8)).collect();
        self.core.sync_mos.set_dir_words(tx, mos::ZPOOL_CHECKPOINT, &words)?;
        self.core.sync_mos.feature_incr(tx, feature())?;
        let text = format!("checkpointed uberblock txg={}", at.txg.0);
        *self.uberblock.lock() = Some(at);
        Ok(event("spa checkpoint", text))
    }

    fn release(&self, tx: &Tx) -> pool::Result<Event> {
        self.core.sync_mos.unlink(tx, mos::ZPOOL_CHECKPOINT)?;
        self.core.allocator.set_checkpoint(None);
        *self.uberblock.lock() = None;
        self.going.store(true, Ordering::Relaxed);
        Ok(event("spa discard checkpoint", "started discarding checkpointed state from the pool".to_owned()))
    }

    /// Frees a part of the space of a discarded checkpoint.
    pub(crate) fn sync(&self, tx: &Tx) -> Result<(), SyncError> {
        if !self.is_going() {
            return Ok(());
        }
        let txg = tx.txg();
        let metadata = |source| SyncError::Metadata { txg, source };
        if self
            .core
            .allocator
            .discard(tx, &self.core.sync_mos, (DISCARD_MEMORY.get() / 32).max(1))
            .map_err(metadata)?
        {
            self.core.sync_mos.feature_decr(tx, feature()).map_err(metadata)?;
            self.going.store(false, Ordering::Relaxed);
            let text = "finished discarding checkpointed state from the pool".to_owned();
            self.core.log_events(tx, &[event("spa discard checkpoint", text)])?;
        }
        Ok(())
    }
}

fn event(what: &'static str, text: String) -> Event {
    Event { what, dataset: String::new(), object: 0, text }
}

impl Checkpoints {
    /// Takes a checkpoint of the pool as it is now (`spa_checkpoint`).
    ///
    /// # Errors
    /// * [`CheckpointError::Stopped`]: the pool has stopped.
    /// * [`CheckpointError::Feature`]: the feature `zpool_checkpoint` is not enabled.
    /// * [`CheckpointError::Exists`]: the pool has a checkpoint.
    /// * [`CheckpointError::Discarding`]: the last checkpoint is still being discarded.
    /// * [`CheckpointError::Metadata`]: the pool metadata cannot be read.
    pub fn take(self: &Arc<Self>) -> Result<(), CheckpointError> {
        let _alone = self.core.shape.lock();
        if !self.core.mos.feature_enabled(FEATURE)? {
            return Err(CheckpointError::Feature);
        }
        no_checkpoint(&self.core.mos)?;
        // The checkpoint contains all changes before the call.
        self.core.txgs().sync_all()?;
        let me = Arc::clone(self);
        Ok(self.core.change_early(Box::new(move |_, tx| {
            let taken = me.record(tx);
            taken.map(|e| vec![e]).map_err(|source| SyncError::Metadata { txg: tx.txg(), source })
        }))?)
    }

    /// Discards the checkpoint (`spa_checkpoint_discard`). The following txgs free its space; with
    /// `wait`, the call waits for them.
    ///
    /// # Errors
    /// * [`CheckpointError::Stopped`]: the pool has stopped.
    /// * [`CheckpointError::Absent`]: there is no checkpoint.
    /// * [`CheckpointError::Metadata`]: the pool metadata cannot be read.
    pub fn discard(self: &Arc<Self>, wait: bool) -> Result<(), CheckpointError> {
        let _alone = self.core.shape.lock();
        match no_checkpoint(&self.core.mos) {
            Ok(()) => return Err(CheckpointError::Absent),
            Err(CheckpointError::Exists) => {}
            Err(e) => return Err(e),
        }
        let me = Arc::clone(self);
        self.core.change_early(Box::new(move |_, tx| {
            let gone = me.release(tx);
            gone.map(|e| vec![e]).map_err(|source| SyncError::Metadata { txg: tx.txg(), source })
        }))?;
        while wait && self.is_going() {
            self.core.txgs().sync_all()?;
        }
        Ok(())
    }

    /// The uberblock of the checkpoint, if there is one.
    pub(crate) fn uberblock(&self) -> Option<Uberblock> {
        self.uberblock.lock().clone()
    }

    /// Records in the history that the pool was rewound to the checkpoint of that txg, and writes
    /// its first txg.
    pub(crate) fn note_rewind(&self, to: Txg) -> Result<(), Stopped> {
        let text = format!("rewound state to txg={}", to.0);
        self.core.change_pool(Box::new(move |_, _| Ok(vec![event("checkpoint rewind", text)])))
    }
}
