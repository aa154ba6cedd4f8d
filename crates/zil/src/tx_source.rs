//! Transactions for changes of one head dataset.
//!
//! # Theory
//! `zpl` and `zvol` change a head dataset, but know no pool. They get everything that a change
//! needs of the pool through [`TxSource`]: space, a transaction group, and the intent log. The
//! trait is here because it names the log. `spa::OpenHead` implements it for a pool that is open
//! for writing.
//!
//! A change works in this order:
//!
//! 1. It takes its locks, and reads what it will change.
//! 2. [`TxSource::tx`] reserves space and joins the open transaction group. A refusal has changed
//!    nothing.
//! 3. It changes blocks in memory, and adds its record to [`TxSource::log`].
//! 4. It drops the transaction, so that the group can sync.
//! 5. If the change must be durable now, it commits the log. Without a log it calls
//!    [`TxSource::wait`].
//!
//! A thread that has a transaction must not wait for another transaction, nor for a group.
//!
//! # See
//! OpenZFS `dmu_tx.c`: `dmu_tx_hold_write` and its like count what [`Need::bytes`] says, and
//! `dmu_tx_assign` is [`TxSource::tx`].

use crate::Zilog;
use dmu::Tx;
use dsl::Need;
use ondisk::Txg;
use ondisk::objset::ObjsetFlags;
use std::sync::Arc;
use std::time::SystemTime;

/// A change got no transaction, or its transaction group will not be on disk.
#[derive(Debug, Clone, thiserror::Error)]
pub enum TxError {
    /// The pool has no free space (`ENOSPC`).
    #[error("no space left in the pool")]
    NoSpace,
    /// A quota of the dataset, or of one above it, is exceeded (`EDQUOT`).
    #[error("a quota is exceeded")]
    Quota,
    /// The pool accepts no more changes, or its accounting of space can't be read (`EIO`).
    #[error("the pool takes no changes")]
    Stopped {
        /// The cause.
        #[source]
        source: Arc<dyn std::error::Error + Send + Sync>,
    },
}

/// What changes of a head dataset need of its pool.
pub trait TxSource: Send + Sync {
    /// Reserves space for a change, and joins the open transaction group (`dmu_tx_assign` with
    /// `DMU_TX_WAIT`).
    ///
    /// Waits while too much is dirty, and while the pool is suspended. Also waits while changes in
    /// flight may take the last space.
    ///
    /// # Errors
    /// * [`TxError::NoSpace`]: the pool has no free space.
    /// * [`TxError::Quota`]: a quota is exceeded.
    /// * [`TxError::Stopped`]: the pool accepts no more changes, or its accounting of space can't
    ///   be read.
    fn tx(&self, need: Need) -> Result<Tx, TxError>;

    /// Does what [`TxSource::tx`] does, but returns `None` instead of waiting (`dmu_tx_assign` with
    /// `DMU_TX_NOWAIT`).
    ///
    /// # Errors
    /// Those of [`TxSource::tx`].
    fn try_tx(&self, need: Need) -> Result<Option<Tx>, TxError>;

    /// Waits until a transaction group is on disk (`txg_wait_synced`).
    ///
    /// # Errors
    /// * [`TxError::Stopped`]: the pool stopped before the group was on disk.
    fn wait(&self, txg: Txg) -> Result<(), TxError>;

    /// The dataset's intent log. Without one, commits wait for transaction groups.
    fn log(&self) -> Option<&Zilog>;

    /// The current time, for the timestamps of files (`gethrestime`).
    fn now(&self) -> SystemTime;

    /// Notes that the dataset uses a feature from now on (`dsl_dataset_activate_feature`).
    fn begin_feature(&self, feature: &'static str);

    /// What the pool can count of a file system's users, groups and projects
    /// (`dmu_objset_userused_enabled` and its sisters).
    fn accounting(&self) -> ObjsetFlags;

    /// True if files of the dataset may share blocks (the feature `block_cloning`).
    fn may_clone(&self) -> bool;
}
