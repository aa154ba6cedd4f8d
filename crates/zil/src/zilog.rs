//! Writing the log of one object set.
//!
//! # Theory
//! The log makes a change durable at once, which the transaction group would do seconds later.
//! Every change leaves a record. There are two kinds:
//!
//! * Records of names (create, remove, rename) are *ordered*: every commit takes all of them,
//!   because a file is worth nothing without its name.
//! * Records of one object (its data and attributes) wait in that object's own list until a commit
//!   of the object, or of all objects. Other commits don't look at them. Only a rename first moves
//!   its object's records into the order, so that the new name never shows old data.
//!
//! A commit takes all ordered records, of all callers, lays them out in log blocks and writes
//! these. It returns when every block up to its own is durable, and waits for no later block. Other
//! blocks may be filled and written at the same time. While many writes are in flight, a new commit
//! waits a little, and then also takes the records that others added meanwhile.
//!
//! Records are numbered by *takes*. A committer needs the take that holds its records, and every
//! block says up to which take it goes.
//!
//! A change may rely on an earlier change that has no record. An example is a rename over another
//! file, of a file whose contents have no record. The later change may enter the log only when the
//! earlier one is on disk. So while such a change exists, nothing is taken, and nothing that was
//! taken is written. A committer waits for its txg, which it had to do anyway.
//!
//! In these cases a commit waits for its transaction group instead, which gives the same promise:
//!
//! * much data, where the log is of no use;
//! * no free space;
//! * a failed device;
//! * a change without a record;
//! * no chain yet.
//!
//! A chain that failed is dropped with the next txg, and a new one begins.
//!
//! Large data is not copied into the log. Its blocks are written to their final location at once,
//! and the log names them ([`dmu::DirtyBlock`]), so that nothing is written twice. This applies to
//! blocks of the open txg, which can't sync before they are written. Data of an older txg, which is
//! about to sync, is copied.
//!
//! # On disk
//! A chain of blocks. Each points at the next, which is allocated before it is filled. The object
//! set's header points at the first block, from the txg on that allocated it. Until that txg is on
//! disk, no commit relies on the chain.
//!
//! # Life
//! The txg that makes all records of a block superfluous frees the block. The next, empty block
//! stays while the log is open. [`Zilog::close`] frees it too, and clears the header. When a txg
//! syncs, [`Zilog::sync`] runs before everything else. It waits for blocks that are being written
//! and point at blocks of the txg. Otherwise those would be allocated after a crash, with nothing
//! leading to them.
//!
//! # Locks
//! * `pending` and `chain` are held for a few instructions. [`Zilog::clean`] holds both, `pending`
//!   first.
//! * Each waiter waits by itself. It wakes when its own take is durable, or when its turn to fill
//!   blocks has come; other takes don't wake it ([`waiting`]).
//! * `carry` is held by the thread that fills blocks (`Chain::issuing`). It may wait for data and
//!   for txgs while it holds `carry`, but never for a device.
//! * A committer holds no lock of its own, and no transaction.
//! * The thread that syncs a txg takes `chain` alone.
//!
//! # Crash
//! A block counts when it and all blocks before it are whole on the devices, as their checksums
//! show. No commit returns before that.
//!
//! # Absent
//! Reading and replaying: see [`crate::Log`].
//!
//! # See
//! OpenZFS `zil.c`: `zil_itx_assign`, `zil_commit`, `zil_lwb_commit`, `zil_sync`, `zil_clean`.

mod chain;
mod early;
mod fill;
mod issue;
mod pending;
mod sync;
mod waiting;

use crate::stats::Counters;
use crate::tunables::MAXCOPIED;
use crate::{Groups, Result, Source, Stats};
use chain::Chain;
use dmu::{Objset, Tx};
use fill::RECORD_MAX;
use observe::event::{self, ZilCommit};
use observe::lock::Condvar;
use observe::{Mutex, Site};
use ondisk::zil::{ClonedRange, RecordBody, TxKind, Write};
use ondisk::{Blkptr, DmuType, DnodePhys, ObjNum, Txg};
use pending::{Body, Itx, Pending};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::Instant;
use waiting::Waiting;
use zio::WritePolicy;

/// A commit that would copy more data than this waits for the txg. The data would be written twice,
/// and would delay other commits.
const LARGE: u64 = 32 << 20;
/// Data whose blocks the log names counts as this fraction. It is written once, but still delays
/// other commits.
const NAMED_SHARE: u64 = 8;

/// Lock sites of logs.
static PENDING: Site = Site::new("zil pending");
static CARRY: Site = Site::new("zil carry");
static CHAIN: Site = Site::new("zil chain");

/// When changes become durable: the property `sync` (`zfs_sync_type_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SyncMode {
    /// When a caller requests it, as by an fsync.
    #[default]
    Standard,
    /// Before they are acknowledged.
    Always,
    /// With their transaction group, even after an fsync.
    Disabled,
}

/// The dataset properties that steer a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LogPolicy {
    /// When changes become durable (`sync`).
    pub sync: SyncMode,
    /// The log does not use log devices (`logbias=throughput`, `ZFS_LOGBIAS_THROUGHPUT`).
    pub throughput: bool,
}

impl LogPolicy {
    /// The policy by the values of the properties `sync` and `logbias`, as they are stored.
    pub fn from_properties(sync: u64, logbias: u64) -> LogPolicy {
        let sync = match sync {
            1 => SyncMode::Always,
            2 => SyncMode::Disabled,
            _ => SyncMode::Standard,
        };
        LogPolicy { sync, throughput: logbias == 1 }
    }

    fn pack(self) -> u8 {
        self.sync as u8 | u8::from(self.throughput) << 4
    }

    fn unpack(bits: u8) -> LogPolicy {
        let sync = match bits & 0xf {
            0 => SyncMode::Standard,
            1 => SyncMode::Always,
            _ => SyncMode::Disabled,
        };
        LogPolicy { sync, throughput: bits >> 4 != 0 }
    }
}

/// How data blocks of an object of this type and dnode are written; `None` if that is not known
/// yet.
pub type EarlyPolicy = Arc<dyn Fn(DmuType, &DnodePhys) -> Option<WritePolicy> + Send + Sync>;

/// Turns the dataset's use of the feature `zilsaxattr` on or off, from the next txg on.
pub type UseSaXattrs = Arc<dyn Fn(bool) + Send + Sync>;

/// Records that were taken and are not in a block yet.
#[derive(Default)]
struct Carry {
    take: u64,
    records: VecDeque<Itx>,
}

/// The log of an object set that is open for changes (`zilog_t`).
pub struct Zilog {
    os: Objset,
    groups: Arc<dyn Groups>,
    random: Arc<dyn Fn() -> u64 + Send + Sync>,
    sa_xattrs: Option<UseSaXattrs>,
    early: Option<EarlyPolicy>,
    policy: AtomicU8,
    pending: Mutex<Pending>,
    carry: Mutex<Carry>,
    chain: Mutex<Chain>,
    /// Signals that blocks have landed, for which a sync may wait.
    landed: Condvar,
    counters: Counters,
    /// Syncs have something to do for it. Changed with the lock of the records or of the chain
    /// held; reset with both.
    busy: AtomicBool,
}

impl std::fmt::Debug for Zilog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Zilog({})", self.os.id())
    }
}

impl Zilog {
    /// The log of a live object set (`zil_alloc`).
    ///
    /// Commits wait for txgs while the object set still has a log from before. `random` gives a
    /// chain its guid. `sa_xattrs` is present if the feature `zilsaxattr` is enabled, and turns the
    /// dataset's use of it on and off.
    pub fn new(
        os: Objset,
        groups: Arc<dyn Groups>,
        random: Arc<dyn Fn() -> u64 + Send + Sync>,
        sa_xattrs: Option<UseSaXattrs>,
    ) -> Zilog {
        Zilog {
            os,
            groups,
            random,
            sa_xattrs,
            early: None,
            policy: AtomicU8::default(),
            pending: Mutex::of(&PENDING, Pending::default()),
            carry: Mutex::of(&CARRY, Carry::default()),
            chain: Mutex::of(&CHAIN, Chain::default()),
            landed: Condvar::new(),
            counters: Counters::default(),
            busy: AtomicBool::new(false),
        }
    }

    /// Notes that syncs have something to do for the log. The caller has locked the records or the
    /// chain.
    fn note_work(&self) {
        if !self.busy.swap(true, Ordering::AcqRel) {
            self.groups.note_work(self.os.id());
        }
    }

    /// Adds records.
    fn add(&self, add: impl FnOnce(&mut Pending)) {
        let mut pending = self.pending.lock();
        add(&mut pending);
        self.note_work();
    }

    /// Adds `policy`, which says how blocks are written to their final location before their txg
    /// syncs.
    #[must_use]
    pub fn with_early_writes(self, policy: EarlyPolicy) -> Zilog {
        Zilog { early: Some(policy), ..self }
    }

    /// The object set.
    pub fn objset(&self) -> &Objset {
        &self.os
    }

    /// The properties that apply now.
    pub fn policy(&self) -> LogPolicy {
        LogPolicy::unpack(self.policy.load(Ordering::Relaxed))
    }

    /// Changes the properties (`zil_set_sync`, `zil_set_logbias`).
    pub fn set_policy(&self, policy: LogPolicy) {
        self.policy.store(policy.pack(), Ordering::Relaxed);
    }

    /// True if changes of extended attributes stored as system attributes have records
    /// ([`TxKind::SetSaXattr`]).
    pub fn takes_sa_xattrs(&self) -> bool {
        self.sa_xattrs.is_some()
    }

    /// Counts a file that lost its last name. This is the place for it because the log is what a
    /// file system has of its pool, as long as it is open.
    pub fn count_unlink(&self) {
        self.counters.unlinks.inc();
    }

    /// Counts a file without names that was freed.
    pub fn count_unlinked(&self) {
        self.counters.unlinked.inc();
    }

    /// What the log has done (`zl_sums`).
    pub fn stats(&self) -> Stats {
        self.counters.snapshot()
    }

    /// True if a change in the txg of `tx` needs a record. If not, commits wait for the txg.
    fn wants(&self, tx: &Tx) -> bool {
        let wants = self.policy().sync != SyncMode::Disabled;
        if !wants {
            self.unlogged(tx);
        }
        wants
    }

    /// Notes a change in the txg of `tx` that has no record: commits wait for the txg.
    pub fn unlogged(&self, tx: &Tx) {
        self.owe(tx.txg());
    }

    /// Makes commits wait for a txg, because it has changes that are not in this log.
    pub fn owe(&self, txg: Txg) {
        let mut pending = self.pending.lock();
        pending.unlogged = pending.unlogged.max(txg);
    }

    fn itx(&self, tx: &Tx, raw: Vec<u8>) -> Option<Itx> {
        if raw.len() > RECORD_MAX {
            self.unlogged(tx);
            return None;
        }
        self.counters.itx_count.inc();
        Some(Itx { txg: tx.txg(), body: Body::Whole(raw) })
    }

    /// Logs a change of names, which every later commit makes durable (`zil_itx_assign`).
    ///
    /// `ci`: names were compared without case.
    pub fn log_names(&self, tx: &Tx, kind: TxKind, ci: bool, body: &RecordBody) {
        if self.wants(tx)
            && let Some(itx) = self.itx(tx, body.encode(kind, ci))
        {
            self.add(|pending| pending.push(itx));
        }
    }

    /// Logs several changes of names as one: a crash leaves all of them, or none.
    pub fn log_names_at_once(&self, tx: &Tx, bodies: &[(TxKind, RecordBody)]) {
        if self.wants(tx)
            && let Some(itx) =
                self.itx(tx, bodies.iter().flat_map(|(kind, body)| body.encode(*kind, false)).collect())
        {
            self.add(|pending| pending.push(itx));
        }
    }

    /// Logs a change of an object, for a commit of that object.
    pub fn log_object(&self, tx: &Tx, object: ObjNum, kind: TxKind, body: &RecordBody) {
        if self.wants(tx)
            && let Some(itx) = self.itx(tx, body.encode(kind, false))
        {
            self.add(|pending| pending.push_of(object.0, itx));
        }
    }

    /// Logs that an object gained the blocks `bps`, each `block` bytes large.
    ///
    /// They must be on disk, because the record is useless without them, and they must fit into one
    /// record. Otherwise commits wait for the txg.
    ///
    /// A claim adds a reference to each of them, even if it has been freed since. So the record may
    /// be in the log only while its txg is not on disk. It goes into a log block while that txg is
    /// open, or not at all.
    pub fn log_clone(
        &self,
        tx: &Tx,
        object: ObjNum,
        (offset, length): (u64, u64),
        block: u64,
        bps: Vec<Blkptr>,
    ) {
        if !self.wants(tx) {
            return;
        }
        let synced = self.groups.synced();
        let raw = if bps.iter().all(|bp| bp.stored().is_none_or(|s| s.phys_birth <= synced)) {
            let body = ClonedRange { foid: object.0, offset, length, blksz: block, blkptrs: bps };
            RecordBody::CloneRange(body).encode(TxKind::CloneRange, false)
        } else {
            Vec::new()
        };
        if raw.is_empty() || raw.len() > RECORD_MAX {
            return self.unlogged(tx);
        }
        self.counters.itx_count.inc();
        self.add(|pending| pending.push_of(object.0, Itx { txg: tx.txg(), body: Body::Clones(raw) }));
    }

    /// Logs a write (`zfs_log_write`, `zvol_log_write`).
    ///
    /// `soon` means that a commit follows at once, so that a small write is copied now. Otherwise
    /// the commit fetches the data as it is then.
    pub fn log_write(&self, tx: &Tx, object: ObjNum, offset: u64, data: &[u8], soon: bool) {
        if data.is_empty() || !self.wants(tx) {
            return;
        }
        let length = data.len() as u64;
        self.counters.itx_count.inc();
        let body = if soon && length <= MAXCOPIED.get() {
            self.counters.itx_copied_count.inc();
            self.counters.itx_copied_bytes.add(length);
            let write = Write { foid: object.0, offset, length, blkptr: None, data: data.to_vec() };
            Body::Whole(RecordBody::Write(write).encode(TxKind::Write, false))
        } else {
            Body::Data { object: object.0, offset, length }
        };
        self.add(|pending| pending.push_of(object.0, Itx { txg: tx.txg(), body }));
    }

    /// Puts the records of an object before all later records, because the object is about to be
    /// renamed (`zil_async_to_sync`).
    pub fn pull(&self, object: ObjNum) {
        self.pending.lock().pull(Some(object.0));
    }

    /// Drops the waiting records of an object that was just removed: its number may soon be reused
    /// (`zil_remove_async`).
    pub fn forget(&self, object: ObjNum) {
        self.pending.lock().forget(object.0);
    }

    /// Makes all changes of names durable, and the changes of `object`, or of all objects with
    /// `None`.
    ///
    /// The caller holds no transaction, and no lock that `source` takes. With `sync=disabled` this
    /// does nothing (`zil_commit`).
    ///
    /// # Errors
    /// * [`crate::Error::Stopped`]: the pool stopped before the changes were durable.
    /// * [`crate::Error::Dmu`]: the object set is not open for changes, so that no chain can begin.
    pub fn commit(&self, object: Option<ObjNum>, source: &dyn Source) -> Result<()> {
        if self.policy().sync == SyncMode::Disabled {
            return Ok(());
        }
        let since = Instant::now();
        self.counters.commit_count.inc();
        let done = self.commit_all(object, source);
        let ns = u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.counters.commit_ns.record(ns);
        event::zil_commit(|| ZilCommit { ns });
        done
    }

    fn commit_all(&self, object: Option<ObjNum>, source: &dyn Source) -> Result<()> {
        self.wait_unlogged()?;
        let open = self.groups.open();
        let synced = self.groups.synced();
        let need = {
            let mut pending = self.pending.lock();
            let named = self.names_blocks().then_some(open);
            if object.is_some_and(|o| pending.bytes_of(o.0, named) > LARGE) {
                drop(pending);
                return self.wait_group();
            }
            pending.pull(object.map(|o| o.0));
            pending.takes + u64::from(pending.is_waiting(synced))
        };
        let mut chain = self.chain.lock();
        let mut leads = false;
        let in_log = loop {
            // A lost take stays lost even if later takes are durable. Takes count from one.
            let lost = chain.lost >= need.max(1);
            if chain.durable >= need && !lost {
                break true;
            }
            // Everything from before the call is on disk.
            if self.groups.synced() >= open {
                break true;
            }
            if chain.broken || chain.closing || lost {
                break false;
            }
            if chain.taken >= need || chain.waiting.is_led() && !leads {
                Waiting::wait(&mut chain, need);
                continue;
            }
            leads = true;
            chain.waiting.lead();
            if let Err(left) = chain.due(Instant::now()) {
                Waiting::wait_to_lead(&mut chain, left);
                continue;
            }
            chain.issuing = true;
            self.note_work();
            drop(chain);
            self.counters.commit_writer_count.inc();
            // This ends the turn.
            self.issue(source)?;
            leads = false;
            chain = self.chain.lock();
        };
        if leads {
            chain.waiting.follow();
        }
        // If it was the caller's turn to lead, wake the next leader.
        match chain.waiting.is_led() {
            true => drop(chain),
            false => Chain::wake(chain),
        }
        if !in_log {
            return self.wait_group();
        }
        // Meanwhile a change may have turned out to have no record.
        self.wait_unlogged()
    }

    /// Waits for changes that have no record.
    fn wait_unlogged(&self) -> Result<()> {
        let unlogged = self.pending.lock().unlogged;
        if unlogged > self.groups.synced() {
            self.counters.commit_group_waits.inc();
            self.groups.wait(unlogged)?;
        }
        Ok(())
    }

    /// Waits for everything that was done before the call.
    fn wait_group(&self) -> Result<()> {
        self.counters.commit_group_waits.inc();
        self.groups.wait(self.groups.open())
    }
}
