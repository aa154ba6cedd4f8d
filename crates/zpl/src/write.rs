//! Changing a file system.
//!
//! # Theory
//! A writable file system lies on a live object set, and gets its transactions from a
//! [`zil::TxSource`]. An operation works in this order:
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
//! The first change of a file system whose space is not counted by user begins the count
//! (`recount`).
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
mod legacy;
mod link;
mod locks;
mod log;
mod make;
mod names;
mod nfs4;
mod plant;
mod policy;
mod posix;
mod project;
mod quota;
mod recount;
mod remove;
mod rename;
mod replay;
mod setattr;
mod setxattr;
mod tmpfile;
mod trivial;
mod undo;
mod update;
mod xattr_dir;

use crate::{Attr, Error, FileSystem, Result, Time};
pub use atime::Atime;
pub use clone::CloneRange;
use dmu::zap::Zap;
use dmu::{Objset, Tx};
use dsl::Need;
pub(crate) use legacy::znode;
use locks::Locks;
pub use make::{Kind, NewFile, Place};
pub use nfs4::{AclInherit, AclMode};
use observe::lock::Mutex;
use ondisk::{ObjNum, Txg};
pub use plant::{AFS_HEADER_MAX, Plant, PlantedEntry};
pub use policy::{Policies, Policy};
pub(crate) use quota::Quotas;
use recount::Recount;
pub use remove::{Orphans, Unlinked};
pub use rename::Rename;
pub use replay::replay;
pub use setattr::SetAttr;
pub use setxattr::SetXattr;
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use zil::TxSource;

/// How a file system is opened for changes.
pub(crate) struct Writing {
    pub(crate) txs: Arc<dyn TxSource>,
    pub(crate) policies: Policies,
    /// See [`Writer::replaying`].
    pub(crate) replaying: bool,
}

/// The state of a writable file system.
pub(crate) struct Writer {
    txs: Arc<dyn TxSource>,
    policies: Policies,
    /// True while a log is replayed: quotas were checked before, and all transactions are one.
    replaying: bool,
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
    recount: Recount,
}

impl std::fmt::Debug for Writer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Writer({:?})", self.policies.get())
    }
}

impl Writer {
    pub(crate) fn new(os: &Objset, open: Writing, queue: Zap, quotas: Quotas) -> Writer {
        Writer {
            txs: open.txs,
            policies: open.policies,
            replaying: open.replaying,
            locks: Locks::default(),
            moves: Mutex::default(),
            queue,
            orphans: Mutex::default(),
            unnamed: Mutex::default(),
            quotas,
            newest: AtomicU64::new(0),
            recount: Recount::new(os),
        }
    }

    /// A transaction for a change that its caller logs, or that no commit ever waits for.
    fn logged_tx(&self, need: Need) -> Result<Tx> {
        let tx = self.txs.tx(need)?;
        self.changes(&tx);
        Ok(tx)
    }

    /// Notes that a transaction is about to change the file system.
    fn changes(&self, tx: &Tx) {
        self.newest.fetch_max(tx.txg().0, Ordering::Relaxed);
        self.count_users(tx);
    }

    fn policy(&self) -> Policy {
        self.policies.get()
    }

    /// The timestamp of a change made now.
    fn now(&self) -> Time {
        self.txs.now().into()
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
            txg => Ok(w.txs.wait(Txg(txg))?),
        }
    }

    /// The timestamp of a change made now.
    ///
    /// # Errors
    /// * [`Error::ReadOnly`]: the file system is not open for changes.
    pub fn now(&self) -> Result<Time> {
        Ok(self.writer()?.now())
    }

    /// A file's current attributes.
    ///
    /// # Errors
    /// The errors of [opening](Error#opening).
    pub fn attr(&self, object: ObjNum) -> Result<Attr> {
        Ok(*self.node(object)?.attr())
    }
}
