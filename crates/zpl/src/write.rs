//! Changing a file system.
//!
//! # Theory
//! A writable file system lies on a live object set, and gets its transactions from the caller
//! ([`Txs`]). An operation works in this order:
//!
//! 1. It takes its locks.
//! 2. It reads everything that it will change, so that an unreadable block fails the operation
//!    before any change.
//! 3. It takes a transaction.
//! 4. It makes its changes, which appear on disk entirely or not at all.
//!
//! Layout, the order of attributes, and the effects on times, sizes and links are OpenZFS's. So its
//! readers and its accounting find what they expect.
//!
//! A file that loses its last link enters the list of unlinked files (`DELETE_QUEUE`) in the same
//! transaction. It is freed when its last user has released it ([`FileSystem::reap`]). The front
//! end knows the users. The next mount frees what a crash left in the list ([`FileSystem::drain`]).
//!
//! If too much is to be freed for one txg, it is freed in pieces from its beginning on
//! ([`dmu::Pieces`]), with a txg for each. This happens before the operation itself. So a crash
//! during the truncation of a very large file leaves it at its size with a hole, as in OpenZFS.
//!
//! # Locks
//! Locks are taken in this order:
//!
//! 1. the lock for moving directories to another parent, one for a file system, as in Linux;
//! 2. names, one lock for each directory, several in the order of their object numbers;
//! 3. the ranges of a file's contents;
//! 4. the transaction;
//! 5. the lock of a node's attributes, held for one change of them, and never while a transaction
//!    is taken.
//!
//! A thread with a transaction must take none of the first three. The thread that holds them may be
//! waiting for a transaction of the next txg.
//!
//! # Crash
//! A change is durable with its txg, for which [`FileSystem::sync`] waits, or with its record in
//! the intent log, which [`FileSystem::fsync`] writes.
//!
//! # Absent
//! * Permissions: the kernel checks them.
//! * Editing NFSv4 ACLs that say more than the mode. They are kept and inherited (`aclinherit`),
//!   and a new mode changes them as `aclmode` says.

mod atime;
mod clone;
mod data;
mod hidden;
mod link;
mod locks;
mod log;
mod make;
mod names;
mod nfs4;
mod old;
mod posix;
mod project;
mod quota;
mod remove;
mod rename;
mod replay;
mod setattr;
mod setxattr;
mod tmpfile;
mod trivial;
mod undo;
mod update;

use crate::{Attr, Error, FileSystem, Result, Time};
pub use atime::Atime;
pub use clone::CloneRange;
use dmu::Tx;
use dmu::zap::Zap;
use locks::Locks;
pub use make::{Kind, NewFile};
pub use nfs4::{AclInherit, AclMode};
pub(crate) use old::znode;
use ondisk::{ObjNum, Txg};
use parking_lot::{Mutex, RwLock};
pub(crate) use quota::Quotas;
pub use remove::Orphans;
pub use rename::Rename;
pub use replay::replay;
pub use setattr::SetAttr;
pub use setxattr::SetXattr;
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use zil::{LogPolicy, Zilog};

/// What a change does to free space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// The change takes space.
    Grow,
    /// The change frees more space than it takes, and may use the space that is reserved for such
    /// changes (`dmu_tx_mark_netfree`).
    Free,
}

/// What a writable file system needs from its pool and its surroundings.
pub trait Txs: Send + Sync {
    /// A transaction for a change that dirties about `bytes`; waits while too much is dirty
    /// (`dmu_tx_assign`).
    ///
    /// # Errors
    /// * [`Error::Stopped`]: the pool accepts no more changes.
    /// * [`Error::NoSpace`]: the pool has no free space.
    /// * [`Error::Quota`]: a quota is exceeded.
    fn tx(&self, bytes: u64, purpose: Purpose) -> Result<Tx>;

    /// As [`Txs::tx`], but returns `None` instead of waiting.
    ///
    /// # Errors
    /// As [`Txs::tx`].
    fn try_tx(&self, bytes: u64, purpose: Purpose) -> Result<Option<Tx>> {
        self.tx(bytes, purpose).map(Some)
    }

    /// Waits until a transaction group is on disk (`txg_wait_synced`).
    ///
    /// # Errors
    /// * [`Error::Stopped`]: the pool stopped before the txg was on disk.
    fn wait(&self, txg: Txg) -> Result<()>;

    /// The current time, for the timestamps of files.
    fn now(&self) -> Time;

    /// Notes that the dataset uses a feature from now on (`dsl_dataset_activate_feature`).
    fn begin_feature(&self, feature: &'static str);

    /// True if files of the dataset may share blocks (the feature `block_cloning`).
    fn may_clone(&self) -> bool {
        false
    }

    /// The dataset's intent log; without one, commits wait for txgs.
    fn log(&self) -> Option<&Zilog> {
        None
    }

    /// True if quotas of users, groups and projects are enforced.
    fn holds_quotas(&self) -> bool {
        true
    }

    /// True if an operation may take several transactions, and wait for their txgs.
    fn takes_several(&self) -> bool {
        true
    }
}

/// The dataset properties that steer changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    /// Largest block of a file in bytes, a power of two (`recordsize`).
    pub recordsize: u32,
    /// Extended attributes are stored as a system attribute where they fit (`xattr=sa`).
    pub xattr_sa: bool,
    /// POSIX ACLs apply: new files inherit from their directory (`acltype=posix`).
    pub posix_acl: bool,
    /// Slots of a new file's dnode (`dnodesize`). More than one needs the feature `large_dnode`.
    pub slots: u8,
    /// Longest name in bytes: 255, or 1023 with `longname=on`.
    pub name_max: usize,
    /// When reading changes the access time (`atime`, `relatime`).
    pub atime: Atime,
    /// When changes are durable, and where they are logged (`sync`, `logbias`).
    pub log: LogPolicy,
    /// What a new mode does to an NFSv4 ACL that says more than a mode (`aclmode`).
    pub acl_mode: AclMode,
    /// What a new file inherits from its directory's NFSv4 ACL (`aclinherit`).
    pub acl_inherit: AclInherit,
}

impl Default for Policy {
    fn default() -> Self {
        Policy {
            recordsize: 128 << 10,
            xattr_sa: true,
            posix_acl: false,
            slots: 1,
            name_max: 255,
            atime: Atime::Relative,
            log: LogPolicy::default(),
            acl_mode: AclMode::Discard,
            acl_inherit: AclInherit::Restricted,
        }
    }
}

/// The current [`Policy`], which may change while the file system is in use; clones share it.
#[derive(Debug, Clone, Default)]
pub struct Policies(Arc<RwLock<Policy>>);

impl Policies {
    /// Starts with this policy.
    pub fn new(policy: Policy) -> Self {
        Policies(Arc::new(RwLock::new(policy)))
    }

    /// The current policy.
    pub fn get(&self) -> Policy {
        *self.0.read()
    }

    /// Replaces the policy.
    pub fn set(&self, policy: Policy) {
        *self.0.write() = policy;
    }
}

/// The state of a writable file system.
pub(crate) struct Writer {
    txs: Arc<dyn Txs>,
    policies: Policies,
    locks: Locks,
    /// Held while a directory moves to another parent.
    moves: Mutex<()>,
    /// The list of unlinked files.
    queue: Zap,
    /// Files of that list that lost their last link since the file system was opened: they may have
    /// users.
    orphans: Mutex<HashSet<ObjNum>>,
    /// Those of them that never had a link.
    unnamed: Mutex<HashSet<ObjNum>>,
    quotas: Quotas,
    /// The newest txg that changed this file system.
    newest: AtomicU64,
}

impl std::fmt::Debug for Writer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Writer({:?})", self.policies.get())
    }
}

impl Writer {
    pub(crate) fn new(txs: Arc<dyn Txs>, policies: Policies, queue: Zap, quotas: Quotas) -> Writer {
        Writer {
            txs,
            policies,
            locks: Locks::default(),
            moves: Mutex::default(),
            queue,
            orphans: Mutex::default(),
            unnamed: Mutex::default(),
            quotas,
            newest: AtomicU64::new(0),
        }
    }

    /// A transaction for a change that its caller logs, or that no commit ever waits for.
    fn logged_tx(&self, bytes: u64, purpose: Purpose) -> Result<Tx> {
        let tx = self.txs.tx(bytes, purpose)?;
        self.newest.fetch_max(tx.txg().0, Ordering::Relaxed);
        Ok(tx)
    }

    fn policy(&self) -> Policy {
        self.policies.get()
    }
}

impl FileSystem {
    fn writer(&self) -> Result<&Writer> {
        self.writer_if_any().ok_or(Error::ReadOnly)
    }

    /// Longest name that a lookup accepts, in bytes.
    ///
    /// In a writable file system it is the limit for new names.
    pub fn name_max(&self) -> usize {
        self.writer_if_any().map_or(crate::NAME_MAX, |w| w.policy().name_max)
    }

    /// True if the file system is open for changes.
    pub fn is_writable(&self) -> bool {
        self.writer_if_any().is_some()
    }

    /// Waits until every earlier change is on disk with its txg, as `syncfs` does (`zfs_sync`).
    ///
    /// Returns at once if nothing was changed.
    ///
    /// # Errors
    /// * [`Error::Stopped`]: the pool stopped before the txg was on disk.
    pub fn sync(&self) -> Result<()> {
        let Some(w) = self.writer_if_any() else { return Ok(()) };
        match w.newest.load(Ordering::Relaxed) {
            0 => Ok(()),
            txg => w.txs.wait(Txg(txg)),
        }
    }

    /// The timestamp of a change made now.
    ///
    /// # Errors
    /// * [`Error::ReadOnly`]: the file system is not open for changes.
    pub fn now(&self) -> Result<Time> {
        Ok(self.writer()?.txs.now())
    }

    /// A file's current attributes.
    ///
    /// # Errors
    /// The errors of [opening](Error#opening).
    pub fn attr(&self, object: ObjNum) -> Result<Attr> {
        Ok(*self.node(object)?.attr())
    }
}
