//! File systems and volumes that are changed, and what they need of their pool.

use crate::{Error, Pool, Result};
use dmu::Tx;
use dsl::{Need, Owned, Refusal};
use ondisk::Txg;
use spa::Spa;
use spa::engine::{Live, LogHandle, TaskError};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};
use zpl::{FileSystem, Policies, Purpose, Time, Txs};
use zvol::Volume;

/// A head with the pool that it is written to.
struct Head {
    /// Closed before its dataset is let go of, and that before the pool.
    log: LogHandle,
    owned: Owned,
    spa: Arc<Spa>,
}

impl Head {
    fn live(&self) -> &Live {
        self.spa.writer().expect("a head is owned only in a pool that is written")
    }
}

fn stopped(e: impl std::error::Error + Send + Sync + 'static) -> zpl::Error {
    zpl::Error::Stopped { source: Arc::new(e) }
}

impl Txs for Head {
    fn tx(&self, bytes: u64, purpose: Purpose) -> zpl::Result<Tx> {
        let need = Need { bytes, netfree: purpose == Purpose::Free };
        self.live().tx_for(&self.owned, need).map_err(|e| match e {
            TaskError::Refused(dsl::Error::Refused { why: Refusal::NoSpace, .. }) => zpl::Error::NoSpace,
            TaskError::Refused(dsl::Error::Refused { why: Refusal::Quota, .. }) => zpl::Error::Quota,
            e => stopped(e),
        })
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
        Some(&self.log)
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
        let live = self.spa().writer().ok_or(Error::ReadOnly)?;
        let owned = live.dsl().heads().own(dataset)?;
        let os = owned.objset().clone();
        let head = Arc::new(Head { owned, spa: Arc::clone(self.spa()) });
        Ok(Volume::open_live(&os, head)?)
    }

    /// Opens a file system to be changed. Nobody else can have it as long as a handle of it is alive, and it can't be destroyed or rolled
    /// back. What was removed before and is not freed yet is freed ([`FileSystem::drain`]).
    ///
    /// # Errors
    /// [`Error::ReadOnly`] if the pool is; [`Error::Dataset`] if the dataset is a snapshot or somebody has it; [`Error::File`] if it holds no
    /// file system, or one of an old version, which is read only.
    pub fn open_for_writing(&self, dataset: &dsl::Dataset, policies: Policies) -> Result<FileSystem> {
        let live = self.spa().writer().ok_or(Error::ReadOnly)?;
        let owned = live.dsl().heads().own(dataset)?;
        let os = owned.objset().clone();
        let head = Arc::new(Head { log: live.log(&owned), owned, spa: Arc::clone(self.spa()) });
        let fs = FileSystem::open_live(&os, head, policies)?;
        fs.drain()?;
        Ok(fs)
    }
}
