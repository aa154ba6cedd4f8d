//! Writing the log of one object set.
//!
//! # Theory
//! A log makes a promise true at once that the group would make true in seconds: what was done is there after a crash. Every change leaves a
//! record. Those of names (created, removed, renamed) are *ordered*: any commit takes all of them, since a file is worth nothing without its
//! name. Those of one object (its data, attributes) wait in the object's own list until somebody commits the object, and nobody else ever looks at them;
//! only a rename pulls its object's in first, so that the new name never shows old data.
//!
//! A commit takes what is ordered, by whomever, lays it out in log blocks, and writes these; it returns when every block up to its own is durable,
//! and waits for none behind. While some are being written others may be filled and written too; whoever comes while much is on its way waits
//! a little, and then takes along what others have brought meanwhile.
//!
//! Records are numbered by *takes*: a committer needs the take that holds his records, and every block says up to which take it goes.
//!
//! What was done after a change that has no record may rely on it (a rename over a file, of one whose contents have no record): it gets into the log only
//! when the change is on disk. So nothing is taken, nor is anything written of what was, while there is such a change; who commits waits for its group, as he had to anyway.
//!
//! Whenever the log can't be used, or is of no use (much data, no room, a device failed, a change without a record, no chain yet) the commit waits for its group instead, which
//! promises the same. A chain that failed is dropped with the next group, and a new one begins.
//!
//! Much data is not copied into the log: its blocks go to their places at once, and the log names these ([`dmu::DirtyBlock`]), so that nothing is
//! written twice. That is for blocks of the open group, which can't sync before they are written; of an older one, which is about to sync, the data
//! is copied.
//!
//! # On disk
//! A chain of blocks, each pointing at the next, which is allocated before it is filled. The object set's header points at the first, from the group on
//! that allocated it: until then nobody relies on it.
//!
//! # Life
//! A block is freed by the group that makes all its records superfluous. The block that comes next stays while the log is open; with
//! [`Zilog::close`] it goes, and the header with it. When a group syncs, [`Zilog::sync`] does that first of all, and before it waits for blocks that are being
//! written and point at blocks of the group: else these would be allocated after a crash, and nothing would lead to them.
//!
//! # Locks
//! `pending` and `chain` are held for a few instructions, neither inside the other. Whoever waits does so by himself, and is woken when his own take has
//! come down, or when his turn to fill blocks has come: nobody wakes for others' ([`waiting`]). `carry` is held by the one who fills blocks (`Chain::issuing`), who may wait
//! in it for data and for groups, but never for a device. A committer holds no lock of his own, and no transaction. Whoever syncs a group
//! takes `chain` alone.
//!
//! # Crash
//! A block counts when it and all before it are whole on the devices, which their checksums show. Nobody is told that his commit is done before that.
//!
//! # Absent
//! Reading and replaying, which are [`crate::Log`]'s and its readers'.
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
use observe::{Mutex, Site};
use ondisk::zil::{ClonedRange, RecordBody, TxKind, Write};
use ondisk::{Blkptr, DmuType, DnodePhys, ObjNum, Txg};
use parking_lot::Condvar;
use pending::{Body, Itx, Pending};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Instant;
use waiting::Waiting;
use zio::WritePolicy;

/// A commit that would copy more data than this waits for the group: the data would be written twice, and keep others' commits waiting.
const LARGE: u64 = 32 << 20;
/// Data whose blocks the log names count for that as a fraction: they are written once, but others wait for them, too.
const NAMED_SHARE: u64 = 8;

/// Where logs are waited for.
static PENDING: Site = Site::new("zil pending");
static CARRY: Site = Site::new("zil carry");
static CHAIN: Site = Site::new("zil chain");

/// When changes are durable (`sync`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SyncMode {
    /// When somebody asks for it.
    #[default]
    Standard,
    /// When they are acknowledged.
    Always,
    /// With their group, whoever asks.
    Disabled,
}

/// What properties say about a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LogPolicy {
    /// When changes are durable (`sync`).
    pub sync: SyncMode,
    /// Log devices are left to others (`logbias=throughput`).
    pub throughput: bool,
}

impl LogPolicy {
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

/// How data blocks of an object of this type and dnode are written, if that is known now.
pub type EarlyPolicy = Arc<dyn Fn(DmuType, &DnodePhys) -> Option<WritePolicy> + Send + Sync>;

/// Has a dataset use the feature `zilsaxattr` from the next group on, or no more.
pub type UseSaXattrs = Arc<dyn Fn(bool) + Send + Sync>;

/// What was taken and is not in a block yet.
#[derive(Default)]
struct Carry {
    take: u64,
    records: VecDeque<Itx>,
}

/// The log of an object set that is changed (`zilog_t`).
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
    /// Blocks have come down, for which a sync may wait.
    landed: Condvar,
    counters: Counters,
}

impl std::fmt::Debug for Zilog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Zilog({})", self.os.id())
    }
}

impl Zilog {
    /// The log of a live object set. `random` gives a chain its guid. While there is a log in it that somebody left, commits wait for groups.
    /// `sa_xattrs`: the feature `zilsaxattr` is enabled, and this has the dataset use it.
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
            pending: Mutex::new(&PENDING, Pending::default()),
            carry: Mutex::new(&CARRY, Carry::default()),
            chain: Mutex::new(&CHAIN, Chain::default()),
            landed: Condvar::new(),
            counters: Counters::default(),
        }
    }

    /// The same, and `policy` tells how blocks are written that go to their places before their group syncs.
    #[must_use]
    pub fn with_early_writes(self, policy: EarlyPolicy) -> Zilog {
        Zilog { early: Some(policy), ..self }
    }

    /// The object set.
    pub fn objset(&self) -> &Objset {
        &self.os
    }

    /// What properties say.
    pub fn policy(&self) -> LogPolicy {
        LogPolicy::unpack(self.policy.load(Ordering::Relaxed))
    }

    /// From now on they say this.
    pub fn set_policy(&self, policy: LogPolicy) {
        self.policy.store(policy.pack(), Ordering::Relaxed);
    }

    /// Whether extended attributes among a file's own have records ([`TxKind::SetSaXattr`]).
    pub fn takes_sa_xattrs(&self) -> bool {
        self.sa_xattrs.is_some()
    }

    /// What it has done.
    pub fn stats(&self) -> Stats {
        self.counters.snapshot()
    }

    /// Whether a change in the group of `tx` is to have a record. If not, commits wait for the group.
    fn wants(&self, tx: &Tx) -> bool {
        let wants = self.policy().sync != SyncMode::Disabled;
        if !wants {
            self.unlogged(tx);
        }
        wants
    }

    /// Notes a change in the group of `tx` that has no record: commits wait for the group.
    pub fn unlogged(&self, tx: &Tx) {
        self.owe(tx.txg());
    }

    /// Has commits wait for a group: it has changes that are not in this log.
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

    /// Logs a change of names, which every commit from now on makes durable. `ci`: names were compared without case.
    pub fn log_names(&self, tx: &Tx, kind: TxKind, ci: bool, body: &RecordBody) {
        if self.wants(tx)
            && let Some(itx) = self.itx(tx, body.encode(kind, ci))
        {
            self.pending.lock().push(itx);
        }
    }

    /// Logs changes of names that are one: a crash leaves all of them, or none.
    pub fn log_names_at_once(&self, tx: &Tx, bodies: &[(TxKind, RecordBody)]) {
        if self.wants(tx)
            && let Some(itx) =
                self.itx(tx, bodies.iter().flat_map(|(kind, body)| body.encode(*kind, false)).collect())
        {
            self.pending.lock().push(itx);
        }
    }

    /// Logs a change of an object, for whoever commits that.
    pub fn log_object(&self, tx: &Tx, object: ObjNum, kind: TxKind, body: &RecordBody) {
        if self.wants(tx)
            && let Some(itx) = self.itx(tx, body.encode(kind, false))
        {
            self.pending.lock().push_of(object.0, itx);
        }
    }

    /// Logs that blocks became an object's, those of `bps`, each `block` bytes large. They must be on disk, since
    /// the record is nothing without them, and fit into one record; else commits wait for the group.
    ///
    /// A claim gives each of them a reference, wherever it has been freed since: so such a record is only in the log while its group is not
    /// on disk, for which it goes into a block while that group is open, or not at all.
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
        self.pending.lock().push_of(object.0, Itx { txg: tx.txg(), body: Body::Clones(raw) });
    }

    /// Logs a write. `soon`: it will be committed at once, so that a little data may as well be copied now. Else it is fetched when it is
    /// committed, as it is then.
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
        self.pending.lock().push_of(object.0, Itx { txg: tx.txg(), body });
    }

    /// Puts what waits for an object before what is logged next: the object is about to be renamed.
    pub fn pull(&self, object: ObjNum) {
        self.pending.lock().pull(Some(object.0));
    }

    /// Forgets what waits for an object that has just been removed: its number may soon be another's.
    pub fn forget(&self, object: ObjNum) {
        self.pending.lock().forget(object.0);
    }

    /// Makes durable what was done to an object, or to all, and to any names (`zil_commit`). The caller holds no transaction, and no lock that
    /// `source` takes. Nothing happens with `sync=disabled`.
    ///
    /// # Errors
    /// [`crate::Error::Stopped`].
    pub fn commit(&self, object: Option<ObjNum>, source: &dyn Source) -> Result<()> {
        if self.policy().sync == SyncMode::Disabled {
            return Ok(());
        }
        let since = Instant::now();
        self.counters.commit_count.inc();
        let done = self.commit_all(object, source);
        self.counters.commit_ns.record(u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX));
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
            // What was lost is so even if later takes are durable; takes count from one.
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
            drop(chain);
            self.counters.commit_writer_count.inc();
            // The turn is over with that.
            self.issue(source)?;
            leads = false;
            chain = self.chain.lock();
        };
        if leads {
            chain.waiting.follow();
        }
        // It may have been the caller's turn to lead, which is another's now.
        match chain.waiting.is_led() {
            true => drop(chain),
            false => Chain::wake(chain),
        }
        if !in_log {
            return self.wait_group();
        }
        // Something may have turned out to have no record meanwhile.
        self.wait_unlogged()
    }

    /// Waits for what has no record.
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
