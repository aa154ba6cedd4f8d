//! A head dataset that is open for changes.
//!
//! # Theory
//! [`OpenHead`] joins what changes of one dataset need: the dataset itself, which no other user can
//! have meanwhile, its intent log, and the pool. `zpl` and `zvol` use it as a [`TxSource`].
//!
//! A crash may have left an intent log with records. The caller opens a dataset in this order:
//!
//! 1. [`OpenHead::open`] takes the dataset.
//! 2. [`OpenHead::pending_log`] finds the records. `zpl` or `zvol` replays them.
//! 3. [`OpenHead::destroy_log`] destroys what was replayed.
//! 4. [`OpenHead::begin_log`] starts the new log.
//!
//! # See
//! OpenZFS `dmu_objset_own`, `zil_replay`, `zil_destroy`, `zil_open`.

use crate::Spa;
use crate::engine::{LogHandle, PoolWriter, TaskError};
use crate::txg::Stopped;
use dmu::{Objset, Tx};
use dsl::prop::Prop;
use dsl::{Need, Owned, Refusal};
use ondisk::objset::{ObjsetFlags, ObjsetKind};
use ondisk::version::{SPA_VERSION_SLIM_ZIL, SPA_VERSION_USERSPACE};
use ondisk::zil::ZIL_HEADER_SIZE;
use ondisk::{Blkptr, ObjNum, Txg};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;
use zil::{LogPolicy, SyncMode, TxError, TxSource, Zilog};

/// A head dataset can't be opened for changes.
#[derive(Debug, thiserror::Error)]
pub enum HeadError {
    /// The pool is not open for writing (`EROFS`).
    #[error("the pool is not open for writing")]
    ReadOnly,
    /// The dataset is a snapshot or in use, its key is not loaded, or it can't be read.
    #[error(transparent)]
    Dataset(#[from] dsl::Error),
    /// The header of the intent log is invalid.
    #[error(transparent)]
    Log(#[from] zil::Error),
    /// The header of the intent log can't be changed.
    #[error(transparent)]
    Object(#[from] dmu::Error),
    /// The pool accepts no more changes.
    #[error(transparent)]
    Stopped(#[from] Stopped),
}

/// A head dataset that is open for changes, with its intent log and its pool.
///
/// While it exists, no other user can have the dataset, and it can't be destroyed or rolled back.
pub struct OpenHead {
    /// The generation of the properties that were read last ([`dsl::Heads::generation`]).
    ///
    /// Used for volumes only. The holder of a file system follows its properties.
    properties: AtomicU64,
    /// Must be dropped before `owned`, and `owned` before `spa`. So the order of the fields
    /// matters.
    log: OnceLock<LogHandle>,
    owned: Owned,
    spa: Arc<Spa>,
}

impl std::fmt::Debug for OpenHead {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "OpenHead({}, log: {:?})", self.owned.object(), self.log.get())
    }
}

impl OpenHead {
    /// Takes a head dataset (`dmu_objset_own`). It has no log yet: commits wait for transaction
    /// groups.
    ///
    /// # Errors
    /// * [`HeadError::ReadOnly`]: the pool is not open for writing.
    /// * [`HeadError::Dataset`]: the dataset is a snapshot or in use, its key is not loaded, or it
    ///   can't be read.
    pub fn open(spa: &Arc<Spa>, dataset: &dsl::Dataset) -> Result<OpenHead, HeadError> {
        let live = spa.writer().ok_or(HeadError::ReadOnly)?;
        let owned = live.dsl().heads().own(dataset)?;
        let (properties, log) = (AtomicU64::new(u64::MAX), OnceLock::new());
        Ok(OpenHead { properties, log, owned, spa: Arc::clone(spa) })
    }

    /// The objects of the dataset, which change.
    pub fn objset(&self) -> &Objset {
        self.owned.objset()
    }

    /// The pool.
    pub fn spa(&self) -> &Arc<Spa> {
        &self.spa
    }

    /// What changes the pool.
    ///
    /// # Panics
    /// Never: [`OpenHead::open`] checks that the pool is open for writing.
    pub fn live(&self) -> &PoolWriter {
        self.spa.writer().expect("a head is owned only in a pool that is written")
    }

    /// The log that a crash left, if it has records to replay.
    ///
    /// Destroys a log without records, so that there can be a new one. A log that this process
    /// writes stays.
    ///
    /// # Errors
    /// * [`HeadError::Log`]: the header of the log is invalid.
    /// * [`HeadError::Object`], [`HeadError::Stopped`]: see [`OpenHead::destroy_log`].
    pub fn pending_log(&self) -> Result<Option<zil::Log>, HeadError> {
        let Some(log) = self.spa.left_log(self.objset())? else { return Ok(None) };
        if log.is_pending() {
            return Ok(Some(log));
        }
        if !self.live().logs().is_open(&self.owned) {
            self.destroy_log(log.references())?;
        }
        Ok(None)
    }

    /// Destroys the log that a crash left (`zil_destroy`).
    ///
    /// From the next transaction group on, its header is empty. The blocks in `references` are free
    /// then.
    ///
    /// # Errors
    /// * [`HeadError::Object`]: the object set's header can't be changed.
    /// * [`HeadError::Stopped`]: the pool accepts no more changes.
    pub fn destroy_log(&self, references: Vec<Blkptr>) -> Result<(), HeadError> {
        let live = self.live();
        let tx = live.tx(0)?;
        self.objset().set_zil_header(&tx, [0; ZIL_HEADER_SIZE])?;
        // Only records needed it.
        live.dsl().heads().end_feature(self.owned.object(), "zilsaxattr");
        live.free_log(&tx, references);
        Ok(())
    }

    /// Begins a log (`zil_open`). The caller has replayed and destroyed the old one.
    ///
    /// The log and the cache of a volume follow the volume's properties from now on.
    ///
    /// # Errors
    /// * [`HeadError::Dataset`]: a property of a volume can't be read.
    pub fn begin_log(&self) -> Result<(), HeadError> {
        let volume = self.objset().kind() == ObjsetKind::Zvol;
        if volume {
            self.follow_cache();
        }
        // Poolhouse does not write the log format of pools before version 23. There, a commit waits
        // for its transaction group.
        if self.spa.version() < SPA_VERSION_SLIM_ZIL {
            return Ok(());
        }
        let log = self.log.get_or_init(|| self.live().logs().open(&self.owned));
        if volume {
            log.set_policy(self.log_policy()?);
        }
        Ok(())
    }

    /// Applies the current properties of a volume to its log.
    fn follow(&self, log: &Zilog) {
        let now = self.live().dsl().heads().generation();
        if self.properties.load(Ordering::Relaxed) == now {
            return;
        }
        match self.log_policy() {
            Ok(policy) => {
                log.set_policy(policy);
                self.follow_cache();
                self.properties.store(now, Ordering::Relaxed);
            }
            // Until the properties can be read, each write is durable before it returns.
            Err(_) => log.set_policy(LogPolicy { sync: SyncMode::Always, ..LogPolicy::default() }),
        }
    }

    /// The policy of the log, by the properties of its dataset.
    fn log_policy(&self) -> dsl::Result<LogPolicy> {
        let number = |prop| self.live().dsl().number_for(ObjNum(self.owned.object()), prop);
        Ok(LogPolicy::from_properties(number(Prop::Sync)?, number(Prop::Logbias)?))
    }

    /// Applies the current properties to the cache.
    fn follow_cache(&self) {
        let object = self.owned.object();
        let which = |prop| self.live().dsl().number_for(ObjNum(object), prop).map(arc::CacheType::of_number);
        // A property that can't be read leaves the policy as it was. This costs only time.
        if let (Ok(keep), Ok(ahead)) = (which(Prop::Primarycache), which(Prop::Prefetch)) {
            self.spa.cache().set_policy(object, arc::Policy { keep, ahead });
        }
    }
}

/// The cause for which a change gets no transaction.
fn refused(e: TaskError) -> TxError {
    match e {
        TaskError::Refused(dsl::Error::Refused { why: Refusal::NoSpace, .. }) => TxError::NoSpace,
        TaskError::Refused(dsl::Error::Refused { why: Refusal::Quota, .. }) => TxError::Quota,
        e => TxError::Stopped { source: Arc::new(e) },
    }
}

impl TxSource for OpenHead {
    fn tx(&self, need: Need) -> Result<Tx, TxError> {
        self.live().tx_for(&self.owned, need).map_err(refused)
    }

    fn try_tx(&self, need: Need) -> Result<Option<Tx>, TxError> {
        self.live().try_tx_for(&self.owned, need).map_err(refused)
    }

    fn wait(&self, txg: Txg) -> Result<(), TxError> {
        self.live().txgs().wait_synced(txg).map_err(|e| TxError::Stopped { source: Arc::new(e) })
    }

    fn log(&self) -> Option<&Zilog> {
        let log: &Zilog = self.log.get()?;
        if self.objset().kind() == ObjsetKind::Zvol {
            self.follow(log);
        }
        Some(log)
    }

    fn now(&self) -> SystemTime {
        SystemTime::now()
    }

    fn begin_feature(&self, feature: &'static str) {
        self.live().dsl().heads().begin_feature(self.owned.object(), feature);
    }

    fn accounting(&self) -> ObjsetFlags {
        if self.spa.version() < SPA_VERSION_USERSPACE {
            return ObjsetFlags::default();
        }
        // If this can't be read, the next open counts.
        self.live().dsl().accounting().unwrap_or_default()
    }

    fn may_clone(&self) -> bool {
        let head = self.owned.object();
        // If this can't be read, copying still works.
        self.live().dsl().may_clone(head, head).unwrap_or(false)
    }
}

impl Spa {
    /// The log that an object set has on disk.
    fn left_log(&self, os: &Objset) -> zil::Result<Option<zil::Log>> {
        zil::Log::open(os, self.last_synced_txg().0, 0)
    }

    /// True if a crash left a log with records to replay in an object set.
    ///
    /// # Errors
    /// * [`zil::Error::Header`]: the header of the log is invalid.
    pub fn has_pending_log(&self, os: &Objset) -> zil::Result<bool> {
        Ok(self.left_log(os)?.is_some_and(|log| log.is_pending()))
    }
}
