//! File systems that are changed.
//!
//! # Theory
//! A writable file system is one on a live object set, with somebody who hands out transactions ([`Txs`]). An operation takes its
//! locks, looks at everything that it is about to change (so that an unreadable block fails it before it has changed anything),
//! takes a transaction, and changes: what it did appears on disk whole or not at all. Layout, order of attributes and
//! what happens to times, sizes and links are OpenZFS's, so that its readers and accounting find what they expect.
//!
//! A file that loses its last link goes into the list of unlinked files (`DELETE_QUEUE`) in the same transaction, and is freed when its
//! last user has let go ([`FileSystem::reap`]). Users are the door's to know. What a crash leaves in the list, the next mount frees
//! ([`FileSystem::drain`]).
//!
//! What is too much to be freed in one group is freed in pieces ([`dmu::Pieces`]), a group for each, from where it begins on, before the operation that frees it: a
//! crash amid the truncation of a file of terabytes leaves it at its size with a hole. As in OpenZFS.
//!
//! # Locks
//! In this order: the renaming of directories from one parent to another (one for a file system, as Linux has it); names, one lock for each
//! directory, several in the order of their object numbers; the ranges of a file's contents. Then the transaction. Behind it only the lock
//! of a node's attributes, which is held for one change of them and never across the taking of a transaction. A thread with a
//! transaction must take none of the first three: who holds them may be waiting for a transaction of the next group.
//!
//! # Crash
//! Nothing is durable before its group is, for which [`FileSystem::sync`] waits, or before its record is in the intent log, which
//! [`FileSystem::fsync`] sees to.
//!
//! # Absent
//! Permissions, which the kernel checks. NFSv4 ACLs that say more than the mode are kept and inherited (`aclinherit`), and a new mode
//! does to them what `aclmode` says, but nobody can edit them.

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

/// What a change is for, as far as room matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// It takes room.
    Grow,
    /// It leaves more room than it takes, and may use what is kept for that (`dmu_tx_mark_netfree`).
    Free,
}

/// What a file system that is changed needs of its pool and of the world.
pub trait Txs: Send + Sync {
    /// A transaction for a change that dirties about `bytes`; waits while too much is dirty.
    ///
    /// # Errors
    /// [`Error::Stopped`], [`Error::NoSpace`], [`Error::Quota`].
    fn tx(&self, bytes: u64, purpose: Purpose) -> Result<Tx>;

    /// The same for what is not worth waiting for: `None` if that would wait.
    ///
    /// # Errors
    /// As [`Txs::tx`].
    fn try_tx(&self, bytes: u64, purpose: Purpose) -> Result<Option<Tx>> {
        self.tx(bytes, purpose).map(Some)
    }

    /// Waits until a group is on disk.
    ///
    /// # Errors
    /// [`Error::Stopped`].
    fn wait(&self, txg: Txg) -> Result<()>;

    /// The time, for the stamps of files.
    fn now(&self) -> Time;

    /// Notes that the dataset uses a feature from now on.
    fn begin_feature(&self, feature: &'static str);

    /// Whether files of the dataset may share blocks (the feature `block_cloning`).
    fn may_clone(&self) -> bool {
        false
    }

    /// The dataset's intent log; without one, commits wait for groups.
    fn log(&self) -> Option<&Zilog> {
        None
    }

    /// Whether quotas of users, groups and projects hold.
    fn holds_quotas(&self) -> bool {
        true
    }

    /// Whether an operation may take several transactions, and wait for their groups.
    fn takes_several(&self) -> bool {
        true
    }
}

/// What properties say about writing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    /// Largest block of a file (`recordsize`), a power of two.
    pub recordsize: u32,
    /// Extended attributes go into the file's own attributes where they fit (`xattr=sa`).
    pub xattr_sa: bool,
    /// POSIX ACLs count (`acltype=posix`): new files begin with what their directory gives on.
    pub posix_acl: bool,
    /// Slots of a new file's dnode (`dnodesize`); more than one needs the feature `large_dnode`.
    pub slots: u8,
    /// Longest name, in bytes: 255, or 1023 with `longname=on`.
    pub name_max: usize,
    /// When reading changes the time of access (`atime`, `relatime`).
    pub atime: Atime,
    /// When changes are durable, and where they are logged (`sync`, `logbias`).
    pub log: LogPolicy,
    /// What a new mode does to an NFSv4 ACL that says more than a mode (`aclmode`).
    pub acl_mode: AclMode,
    /// What a new file inherits of its directory's NFSv4 ACL (`aclinherit`).
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

/// What properties say now: one who follows them may change it while the file system is used.
#[derive(Debug, Clone, Default)]
pub struct Policies(Arc<RwLock<Policy>>);

impl Policies {
    /// What they say to begin with.
    pub fn new(policy: Policy) -> Self {
        Policies(Arc::new(RwLock::new(policy)))
    }

    /// What they say.
    pub fn get(&self) -> Policy {
        *self.0.read()
    }

    /// From now on they say this.
    pub fn set(&self, policy: Policy) {
        *self.0.write() = policy;
    }
}

/// What a writable file system has beside a readable one.
pub(crate) struct Writer {
    txs: Arc<dyn Txs>,
    policies: Policies,
    locks: Locks,
    /// Held while a directory moves to another parent.
    moves: Mutex<()>,
    /// The list of unlinked files.
    queue: Zap,
    /// Files of the list that lost their last link since the file system was opened: they may have users.
    orphans: Mutex<HashSet<ObjNum>>,
    /// Those among them that never had a link.
    unnamed: Mutex<HashSet<ObjNum>>,
    quotas: Quotas,
    /// The newest group that changed something here.
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

    /// A transaction for what its caller logs, or what nobody ever waits for.
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

    /// Longest name that is looked up, in bytes: as long as new ones may be, where it can be changed.
    pub fn name_max(&self) -> usize {
        self.writer_if_any().map_or(crate::NAME_MAX, |w| w.policy().name_max)
    }

    /// True if it can be changed.
    pub fn is_writable(&self) -> bool {
        self.writer_if_any().is_some()
    }

    /// Waits until every change that was made before the call is on disk with its group (`syncfs`). At once if nothing changed since the last
    /// group.
    ///
    /// # Errors
    /// [`Error::Stopped`].
    pub fn sync(&self) -> Result<()> {
        let Some(w) = self.writer_if_any() else { return Ok(()) };
        match w.newest.load(Ordering::Relaxed) {
            0 => Ok(()),
            txg => w.txs.wait(Txg(txg)),
        }
    }

    /// The time that a change made now is stamped with.
    ///
    /// # Errors
    /// [`Error::ReadOnly`].
    pub fn now(&self) -> Result<Time> {
        Ok(self.writer()?.txs.now())
    }

    /// A file's attributes as they are now.
    ///
    /// # Errors
    /// As [`FileSystem::node`].
    pub fn attr(&self, object: ObjNum) -> Result<Attr> {
        Ok(*self.node(object)?.attr())
    }
}
