//! File systems and volumes that are open for writing, and what they need of their pool.

use crate::{Error, Pool, Result};
use dmu::{Objset, Tx};
use dsl::prop::Prop;
use dsl::{Need, Owned, Refusal};
use ondisk::objset::ObjsetKind;
use ondisk::version::SPA_VERSION_SLIM_ZIL;
use ondisk::zil::ZIL_HEADER_SIZE;
use ondisk::{Blkptr, ObjNum, Txg};
use spa::Spa;
use spa::engine::{LogHandle, PoolWriter, TaskError};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};
use zil::{LogPolicy, SyncMode};
use zpl::{FileSystem, Orphans, Policies, Purpose, Time, Txs};
use zvol::Volume;

/// A head dataset with its pool.
struct Head {
    /// The generation of the properties that were read last ([`dsl::Heads::generation`]).
    ///
    /// Used for volumes only. The holder of a file system follows its properties.
    properties: AtomicU64,
    /// Must be dropped before `owned`, and `owned` before `spa`. So the order of the fields
    /// matters.
    log: Option<LogHandle>,
    owned: Owned,
    spa: Arc<Spa>,
}

impl Head {
    /// This head with a log for writing. The caller has replayed and destroyed the old log.
    fn with_log(self: Arc<Self>) -> Arc<Head> {
        let mut head = Arc::into_inner(self).expect("a replay keeps no handle");
        // Poolhouse does not write the log format of pools before version 23. There, a commit waits
        // for its transaction group.
        if head.spa.version() >= SPA_VERSION_SLIM_ZIL {
            head.log = Some(head.live().log(&head.owned));
        }
        Arc::new(head)
    }

    /// Applies the current properties of a volume to its log.
    fn follow(&self, log: &zil::Zilog) {
        let now = self.live().dsl().heads().generation();
        if self.properties.load(Ordering::Relaxed) == now {
            return;
        }
        match log_policy(self.live().dsl(), &self.owned) {
            Ok(policy) => {
                log.set_policy(policy);
                self.follow_cache();
                self.properties.store(now, Ordering::Relaxed);
            }
            // Until the properties can be read, each write is durable before it returns.
            Err(_) => log.set_policy(LogPolicy { sync: SyncMode::Always, ..LogPolicy::default() }),
        }
    }

    /// Applies the current properties to the cache.
    fn follow_cache(&self) {
        let object = self.owned.object();
        let which = |prop| self.live().dsl().number_for(ObjNum(object), prop).map(arc::Which::of_number);
        // A property that can't be read leaves the policy as it was. This costs only time.
        if let (Ok(keep), Ok(ahead)) = (which(Prop::Primarycache), which(Prop::Prefetch)) {
            self.spa.cache().set_policy(object, arc::Policy { keep, ahead });
        }
    }

    fn live(&self) -> &PoolWriter {
        self.spa.writer().expect("a head is owned only in a pool that is written")
    }
}

fn stopped(e: impl std::error::Error + Send + Sync + 'static) -> zpl::Error {
    zpl::Error::Stopped { source: Arc::new(e) }
}

fn refused(e: TaskError) -> zpl::Error {
    match e {
        TaskError::Refused(dsl::Error::Refused { why: Refusal::NoSpace, .. }) => zpl::Error::NoSpace,
        TaskError::Refused(dsl::Error::Refused { why: Refusal::Quota, .. }) => zpl::Error::Quota,
        e => stopped(e),
    }
}

fn need(bytes: u64, purpose: Purpose) -> Need {
    Need { bytes, netfree: purpose == Purpose::Free }
}

impl Txs for Head {
    fn tx(&self, bytes: u64, purpose: Purpose) -> zpl::Result<Tx> {
        self.live().tx_for(&self.owned, need(bytes, purpose)).map_err(refused)
    }

    fn try_tx(&self, bytes: u64, purpose: Purpose) -> zpl::Result<Option<Tx>> {
        self.live().try_tx_for(&self.owned, need(bytes, purpose)).map_err(refused)
    }

    fn wait(&self, txg: Txg) -> zpl::Result<()> {
        self.live().txgs().wait_synced(txg).map_err(stopped)
    }

    fn now(&self) -> Time {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Time { secs: i64::try_from(since.as_secs()).unwrap_or(i64::MAX), nanos: since.subsec_nanos() }
    }

    fn begin_feature(&self, feature: &'static str) {
        self.live().dsl().heads().begin_feature(self.owned.object(), feature);
    }

    fn may_clone(&self) -> bool {
        let head = self.owned.object();
        // If this can't be read, copying still works.
        self.live().dsl().may_clone(head, head).unwrap_or(false)
    }

    fn log(&self) -> Option<&zil::Zilog> {
        self.log.as_deref()
    }
}

impl zvol::Txs for Head {
    fn tx(&self, bytes: u64, netfree: bool) -> zvol::Result<Tx> {
        self.live().tx_for(&self.owned, Need { bytes, netfree }).map_err(|e| match e {
            TaskError::Refused(dsl::Error::Refused { why: Refusal::NoSpace, .. }) => zvol::Error::NoSpace,
            TaskError::Refused(dsl::Error::Refused { why: Refusal::Quota, .. }) => zvol::Error::Quota,
            e => zvol::Error::Stopped { source: Arc::new(e) },
        })
    }

    fn wait(&self, txg: Txg) -> zvol::Result<()> {
        let synced = self.live().txgs().wait_synced(txg);
        synced.map_err(|e| zvol::Error::Stopped { source: Arc::new(e) })
    }

    fn log(&self) -> Option<&zil::Zilog> {
        let log = self.log.as_deref()?;
        self.follow(log);
        Some(log)
    }
}

impl Pool {
    /// Opens a volume for writing (`zvol_open`).
    ///
    /// While a handle is alive, no other user can have the volume, and it can't be destroyed or
    /// rolled back. A pending intent log is replayed first.
    ///
    /// ```
    /// use poolhouse::{OpenOptions, Pool};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let copy = testkit::fixture_copy("zvols");
    /// # let images = copy.images();
    /// let options = OpenOptions { write: true, force: true, ..OpenOptions::default() };
    /// let pool = Pool::open(images, &options)?;
    /// let volume = pool.open_volume(pool.dataset("zvols/sparse")?.dsl())?;
    /// volume.write_at(b"written", 5000)?;
    /// volume.punch(0, 4096)?;
    /// volume.flush()?;
    /// pool.export()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// * [`Error::ReadOnly`]: the pool is not open for writing.
    /// * [`Error::Dataset`]: the dataset is a snapshot or in use, its key is not loaded, or a
    ///   property can't be read.
    /// * [`Error::Volume`]: the dataset holds no volume, or the volume's records can't be read.
    /// * [`Error::Log`], [`Error::ReplayVolume`]: the intent log can't be read or replayed.
    /// * [`Error::Object`], [`Error::Stopped`]: the intent log can't be destroyed after its replay.
    pub fn open_volume(&self, dataset: &dsl::Dataset) -> Result<Volume> {
        let (os, head) = self.take(dataset)?;
        if os.kind() != ObjsetKind::Zvol {
            return Err(zvol::Error::NotVolume.into());
        }
        self.replay_volume(&os, &head)?;
        head.follow_cache();
        let head = head.with_log();
        if let Some(log) = &head.log {
            log.set_policy(log_policy(self.dsl(), &head.owned)?);
        }
        Ok(Volume::open_live(&os, head)?)
    }

    /// Opens a file system for writing (`zfsvfs_setup`).
    ///
    /// While a handle is alive, no other user can have the file system, and it can't be destroyed
    /// or rolled back. A pending intent log is replayed first. Then the unlinked files are freed
    /// ([`FileSystem::drain`]).
    ///
    /// # Errors
    /// * [`Error::ReadOnly`]: the pool is not open for writing.
    /// * [`Error::Dataset`]: the dataset is a snapshot or in use, or its key is not loaded.
    /// * [`Error::File`]: the dataset holds no file system, or the file system can't be read.
    /// * [`Error::Log`], [`Error::ReplayFiles`]: the intent log can't be read or replayed.
    /// * [`Error::Object`], [`Error::Stopped`]: the intent log can't be destroyed after its replay.
    pub fn open_for_writing(&self, dataset: &dsl::Dataset, policies: Policies) -> Result<FileSystem> {
        let fs = self.open_undrained(dataset, policies)?;
        fs.drain()?;
        Ok(fs)
    }

    /// Reopens a file system for writing, for a caller that had it open a moment ago.
    ///
    /// The unlinked files in `users` still have users, so they are not freed.
    ///
    /// # Errors
    /// See [`Pool::open_for_writing`].
    pub fn reopen_for_writing(
        &self,
        dataset: &dsl::Dataset,
        policies: Policies,
        users: Orphans,
    ) -> Result<FileSystem> {
        let fs = self.open_undrained(dataset, policies)?;
        fs.adopt(users);
        Ok(fs)
    }

    fn open_undrained(&self, dataset: &dsl::Dataset, policies: Policies) -> Result<FileSystem> {
        let (os, head) = self.take(dataset)?;
        self.replay_files(&os, &head, &policies)?;
        Ok(FileSystem::open_live(&os, head.with_log(), policies)?)
    }

    /// Owns a head dataset, with what it needs of the pool.
    fn take(&self, dataset: &dsl::Dataset) -> Result<(Objset, Arc<Head>)> {
        let live = self.spa().writer().ok_or(Error::ReadOnly)?;
        let owned = live.dsl().heads().own(dataset)?;
        Ok((
            owned.objset().clone(),
            Arc::new(Head {
                properties: AtomicU64::new(u64::MAX),
                log: None,
                owned,
                spa: Arc::clone(self.spa()),
            }),
        ))
    }

    /// Replays the intent log that a crash left in a dataset (`zil_replay`).
    ///
    /// No handle of the dataset may be open. It serves callers that then only read the dataset:
    /// they must open their handle after this call. Opening for writing also replays the log.
    /// Returns `None` if no records were pending.
    ///
    /// # Errors
    /// See [`Pool::open_volume`] and [`Pool::open_for_writing`].
    pub fn replay(&self, dataset: &dsl::Dataset) -> Result<Option<Replay>> {
        let Some(os) = dataset.objset()?.filter(|_| !dataset.is_snapshot()) else { return Ok(None) };
        if !is_pending(&os, self)? {
            return Ok(None);
        }
        let (os, head) = self.take(dataset)?;
        let done = match os.kind() {
            ObjsetKind::Zvol => self.replay_volume(&os, &head),
            _ => self.replay_files(&os, &head, &Policies::default()),
        }?;
        // A reader opens the state on disk, so the replayed changes must be there.
        head.live().sync_all()?;
        Ok(done)
    }

    fn replay_files(&self, os: &Objset, head: &Arc<Head>, policies: &Policies) -> Result<Option<Replay>> {
        let Some(log) = zil::Log::open(os, self.spa().last_synced_txg().0, 0)? else { return Ok(None) };
        if !log.is_pending() {
            return drop_idle(os, head, &log).map(|()| None);
        }
        // The log may create objects again that wait in the list of unlinked files. So free them
        // first.
        FileSystem::open_live(os, head.clone(), policies.clone())?.drain()?;
        let done = zpl::replay(os, &log, head.clone(), policies)?;
        destroy_log(os, head.live(), done.references)?;
        Ok(Some(Replay { records: done.records, ended: done.ended.map(|e| Box::new(e) as _) }))
    }

    fn replay_volume(&self, os: &Objset, head: &Arc<Head>) -> Result<Option<Replay>> {
        let Some(log) = zil::Log::open(os, self.spa().last_synced_txg().0, 0)? else { return Ok(None) };
        if !log.is_pending() {
            return drop_idle(os, head, &log).map(|()| None);
        }
        let done = zvol::replay(os, &log, head.clone())?;
        destroy_log(os, head.live(), done.references)?;
        Ok(Some(Replay { records: done.records, ended: done.ended.map(|e| Box::new(e) as _) }))
    }
}

/// The result of replaying an intent log.
#[derive(Debug)]
pub struct Replay {
    /// Number of replayed records.
    pub records: u64,
    /// Why the replay ended early, if it did: a record that can't be replayed. The later records
    /// are lost.
    pub ended: Option<Box<dyn std::error::Error + Send + Sync>>,
}

/// The policy of a log, by the properties of its dataset.
fn log_policy(dsl: &dsl::Dsl, head: &Owned) -> dsl::Result<LogPolicy> {
    let number = |prop| dsl.number_for(ObjNum(head.object()), prop);
    let sync = match number(Prop::Sync)? {
        1 => SyncMode::Always,
        2 => SyncMode::Disabled,
        _ => SyncMode::Standard,
    };
    Ok(LogPolicy { sync, throughput: number(Prop::Logbias)? == 1 })
}

/// Whether a dataset has a log with records to replay.
fn is_pending(os: &Objset, pool: &Pool) -> Result<bool> {
    let log = zil::Log::open(os, pool.spa().last_synced_txg().0, 0)?;
    Ok(log.is_some_and(|log| log.is_pending()))
}

/// Destroys a log without records, so that there can be a new one. A log that this process writes
/// stays.
fn drop_idle(os: &Objset, head: &Head, log: &zil::Log) -> Result<()> {
    match head.live().is_logged(&head.owned) {
        true => Ok(()),
        false => destroy_log(os, head.live(), log.references()),
    }
}

/// Destroys a log (`zil_destroy`).
///
/// From the next transaction group on, its header is empty and its blocks are free.
fn destroy_log(os: &Objset, live: &PoolWriter, references: Vec<Blkptr>) -> Result<()> {
    let tx = live.tx(0)?;
    os.set_zil_header(&tx, [0; ZIL_HEADER_SIZE])?;
    live.free_log(&tx, references);
    Ok(())
}
