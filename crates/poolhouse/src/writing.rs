//! File systems and volumes that are changed, and what they need of their pool.

use crate::{Error, Pool, Result};
use dmu::{Objset, Tx};
use dsl::prop::Prop;
use dsl::{Need, Owned, Refusal};
use ondisk::objset::ObjsetKind;
use ondisk::version::SPA_VERSION_SLIM_ZIL;
use ondisk::zil::ZIL_HEADER_SIZE;
use ondisk::{Blkptr, ObjNum, Txg};
use spa::Spa;
use spa::engine::{Live, LogHandle, TaskError};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};
use zil::{LogPolicy, SyncMode};
use zpl::{FileSystem, Orphans, Policies, Purpose, Time, Txs};
use zvol::Volume;

/// A head with the pool that it is written to.
struct Head {
    /// Of a volume, when its properties were read last ([`dsl::Heads::generation`]). Those of a file system its holder follows.
    properties: AtomicU64,
    /// Closed before its dataset is let go of, and that before the pool.
    log: Option<LogHandle>,
    owned: Owned,
    spa: Arc<Spa>,
}

impl Head {
    /// The same with the log that is written, since the one that was there is gone.
    fn with_log(self: Arc<Self>) -> Arc<Head> {
        let mut head = Arc::into_inner(self).expect("a replay keeps no handle");
        // Before version 23 logs had another form, which is not written: commits wait for groups.
        if head.spa.version() >= SPA_VERSION_SLIM_ZIL {
            head.log = Some(head.live().log(&head.owned));
        }
        Arc::new(head)
    }

    /// Lets a volume's log follow its properties.
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
            // Until they can be read, what is written is durable at once.
            Err(_) => log.set_policy(LogPolicy { sync: SyncMode::Always, ..LogPolicy::default() }),
        }
    }

    /// Lets the cache follow the properties.
    fn follow_cache(&self) {
        let object = self.owned.object();
        let which = |prop| self.live().dsl().number_for(ObjNum(object), prop).map(arc::Which::of_number);
        // What can't be read stays as it was: it is nobody's loss but time.
        if let (Ok(keep), Ok(ahead)) = (which(Prop::Primarycache), which(Prop::Prefetch)) {
            self.spa.cache().set_policy(object, arc::Policy { keep, ahead });
        }
    }

    fn live(&self) -> &Live {
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
        // Copying works where this can't be read.
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
    /// Opens a volume to be written. Nobody else can have it as long as a handle of it is alive, and it can't be destroyed or rolled back.
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
    /// [`Error::ReadOnly`] if the pool is; [`Error::Dataset`] if the dataset is a snapshot or somebody has it; [`Error::Volume`] if it holds
    /// no volume.
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

    /// Opens a file system to be changed. Nobody else can have it as long as a handle of it is alive, and it can't be destroyed or rolled
    /// back. What was removed before and is not freed yet is freed ([`FileSystem::drain`]).
    ///
    /// # Errors
    /// [`Error::ReadOnly`] if the pool is; [`Error::Dataset`] if the dataset is a snapshot or somebody has it; [`Error::File`] if it holds no
    /// file system.
    pub fn open_for_writing(&self, dataset: &dsl::Dataset, policies: Policies) -> Result<FileSystem> {
        let fs = self.open_undrained(dataset, policies)?;
        fs.drain()?;
        Ok(fs)
    }

    /// The same for who had it open a moment ago, and has users yet of files that were removed: these stay.
    ///
    /// # Errors
    /// As [`Pool::open_for_writing`].
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

    /// A head with everything that it needs of the pool.
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

    /// Replays the intent log of a dataset that nobody has open, if it has one that was left by a crash: for who is going to read it
    /// only, with a handle that he gets behind this one. Opening to write does it too. Returns what came of it.
    ///
    /// # Errors
    /// As opening to write fails.
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
        // Who only reads opens what is on disk.
        head.live().sync_all()?;
        Ok(done)
    }

    fn replay_files(&self, os: &Objset, head: &Arc<Head>, policies: &Policies) -> Result<Option<Replay>> {
        let Some(log) = zil::Log::open(os, self.spa().last_synced_txg().0, 0)? else { return Ok(None) };
        if !log.is_pending() {
            return drop_idle(os, head, &log).map(|()| None);
        }
        // What the last group had only to free may be made anew by the log.
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

/// What came of replaying an intent log.
#[derive(Debug)]
pub struct Replay {
    /// Records that were replayed.
    pub records: u64,
    /// Why the log ended before its end, if it did: a record in it that can't be. What was behind it is lost.
    pub ended: Option<Box<dyn std::error::Error + Send + Sync>>,
}

/// What properties say about a log.
fn log_policy(dsl: &dsl::Dsl, head: &Owned) -> dsl::Result<LogPolicy> {
    let number = |prop| dsl.number_for(ObjNum(head.object()), prop);
    let sync = match number(Prop::Sync)? {
        1 => SyncMode::Always,
        2 => SyncMode::Disabled,
        _ => SyncMode::Standard,
    };
    Ok(LogPolicy { sync, throughput: number(Prop::Logbias)? == 1 })
}

/// Whether a dataset has a log that is to be replayed.
fn is_pending(os: &Objset, pool: &Pool) -> Result<bool> {
    let log = zil::Log::open(os, pool.spa().last_synced_txg().0, 0)?;
    Ok(log.is_some_and(|log| log.is_pending()))
}

/// Ends a log that holds nothing, so that there can be a new one; one that is written here stays.
fn drop_idle(os: &Objset, head: &Head, log: &zil::Log) -> Result<()> {
    match head.live().is_logged(&head.owned) {
        true => Ok(()),
        false => destroy_log(os, head.live(), log.references()),
    }
}

/// Ends a log: its header is empty from the next group on, and what it referred to is free (`zil_destroy`).
fn destroy_log(os: &Objset, live: &Live, references: Vec<Blkptr>) -> Result<()> {
    let tx = live.tx(0)?;
    os.set_zil_header(&tx, [0; ZIL_HEADER_SIZE])?;
    live.free_log(&tx, references);
    Ok(())
}
