//! Import: from a candidate to an open pool.
//!
//! # Theory
//! The steps are those of OpenZFS, since each has a reason:
//!
//! 1. The labels' config serves only to find devices and the best uberblock.
//! 2. The uberblock leads to the MOS and its config, which was written together with the data. This
//!    trusted config replaces the labels' one.
//! 3. The tree is built again, and the devices are opened and checked against their labels again.
//! 4. If the trusted tree has devices that the first lacked, and these hold a newer uberblock, all
//!    steps start again with that.
//! 5. The mappings of removed devices are loaded, before anything is read that lies on one.
//! 6. Features, the salt, DTLs, spares and cache devices follow.
//!
//! # Locks
//! An import claims each device once, at the first step that opens it. Every later step, also of a
//! rewind, gets the same open device. A second claim would be refused, as the first still holds.
//! The search before the import only reads labels and claims nothing; its results are read again
//! under the claim.
//!
//! Claims last as long as the pool, and a failed import leaves none behind. Hot spares and cache
//! devices are claimed too, even by a read-only pool. Pools of one process share their claim of a
//! spare (`crate::aux_devices`).
//!
//! # Absent
//! OpenZFS reads the metadata of the last txgs at every import and refuses a pool if some are
//! damaged. Here only the choice of a rewind's state does that, since a reader can live with damage
//! elsewhere.
//!
//! # See
//! OpenZFS `module/zfs/spa.c`: `spa_load_impl`, `spa_load_best`, `spa_import`, `spa_tryimport`.

pub(crate) mod aux;
mod claim_logs;
pub(crate) mod devices;
mod features;
pub(crate) mod load;
pub mod mmp;
pub(crate) mod open_for_writing;
mod pass;
mod report;
mod rewind;
pub(crate) mod uberblock;
pub(crate) mod unsettled;
mod verify;

#[cfg(test)]
mod tests;

pub use aux::AuxVdev;
pub use load::MISSING_TOPS;
pub use mmp::{Clock, Seen, SystemClock};
pub use open_for_writing::WriteRefusal;
pub use pass::Pass;
pub use report::{Report, examine};
pub use rewind::{TxgState, list_txgs};
pub use verify::{VERIFY_DATA, VERIFY_METADATA};

use device::{Layer, Mode};
use ondisk::Txg;
use vdev::VdevAux;

use std::sync::Arc;

use crate::pool_core::world::{SystemWorld, World};
use crate::{Candidate, Failure, Host, Spa, SpaError};

/// What to do if the newest state can't be opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Rewind {
    /// Fail (`ZPOOL_NO_REWIND`).
    #[default]
    No,
    /// Rewind to the newest of the last few states that can be opened (`-F`, `ZPOOL_DO_REWIND`).
    Recover,
    /// Rewind as far as there are uberblocks (`-FX`, `ZPOOL_EXTREME_REWIND`).
    Extreme,
}

/// How an import claims a pool's devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Claim {
    /// Exclusively: one pool, one owner.
    #[default]
    Own,
    /// Shared: other readers may read, but no program may own them, as far as the system can ensure
    /// that.
    Share,
    /// Not at all: to read a pool that another program may own, like `zdb`.
    Nothing,
}

/// How a pool is imported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Import for reading only (`readonly=on`).
    pub readonly: bool,
    /// How the devices are claimed.
    pub claim: Claim,
    /// Import even if another host used the pool last (`-f`, `ZFS_IMPORT_ANY_HOST`).
    pub force: bool,
    /// Import without missing log devices (`-m`, `ZFS_IMPORT_MISSING_LOG`).
    pub missing_log: bool,
    /// Don't watch for another host's activity (`ZFS_IMPORT_SKIP_MMP`). Only safe for a reader that
    /// tolerates changes.
    pub skip_mmp: bool,
    /// Open the state of the checkpoint (`--rewind-to-checkpoint`, `ZFS_IMPORT_CHECKPOINT`).
    pub checkpoint: bool,
    /// What to do if the newest state can't be opened.
    pub rewind: Rewind,
    /// Open no state newer than this (`-T`, `ZPOOL_LOAD_REQUEST_TXG`).
    pub max_txg: Option<Txg>,
    /// The name for the imported pool, if not its own.
    pub name: Option<String>,
    /// The name is for this import only: the devices keep the pool's own (`-t`,
    /// `ZFS_IMPORT_TEMP_NAME`).
    pub temporary: bool,
    /// The memory limits of its block cache (`zfs_arc_max`).
    pub cache: arc::CacheMemory,
    /// Prefetch blocks for sequential readers.
    pub read_ahead: bool,
    /// The activity that an earlier [`Report`] saw: if it is unchanged, the pool is not watched
    /// again.
    pub seen: Option<Seen>,
    /// The layer around each device.
    pub layer: Layer,
    /// The pass over all datasets when the pool is opened for writing.
    pub pass: Pass,
    /// Unfinished scans and rebuilds stay suspended from the start, as after
    /// [`Scans::hold`](crate::engine::Scans::hold)
    /// (`zfs_scan_suspend_progress`).
    pub hold_scans: bool,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            readonly: true,
            claim: Claim::Own,
            force: false,
            missing_log: false,
            skip_mmp: false,
            checkpoint: false,
            rewind: Rewind::No,
            max_txg: None,
            name: None,
            temporary: false,
            cache: arc::CacheMemory::Own(256 << 20),
            read_ahead: true,
            seen: None,
            layer: Layer::default(),
            pass: Pass::default(),
            hold_scans: false,
        }
    }
}

impl Options {
    fn mode(&self) -> Mode {
        match self.claim {
            Claim::Own if !self.readonly => Mode::Write,
            Claim::Own => Mode::Own,
            Claim::Share => Mode::Share,
            Claim::Nothing => Mode::Peek,
        }
    }
}

/// Why a pool could not be opened for writing.
#[derive(Debug, thiserror::Error)]
pub enum OpenFailure {
    /// It could not be imported at all.
    #[error("the pool could not be imported")]
    Import(#[source] Box<Failure>),
    /// It can only be imported for reading.
    #[error("the pool can only be imported for reading")]
    Refused(#[from] WriteRefusal),
}

/// The resources that writing needs.
pub struct Resources {
    /// Threads that compress, checksum and write.
    pub workers: Arc<zio::Workers>,
    /// Clock and random numbers.
    pub world: Arc<dyn World>,
}

impl Resources {
    /// Resources of this machine for a pool of this name: a thread for each processor, the system's
    /// clock and random numbers.
    pub fn of_system(pool: &str) -> Resources {
        let threads = std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
        let workers = Arc::new(zio::Workers::new(&format!("zio-{pool}"), threads));
        Resources { workers, world: Arc::new(SystemWorld) }
    }
}

/// Imports a pool for writing (`spa_import`). `readonly` must be false in `options`. When this
/// returns, the labels say that the pool is in use, and by which host.
///
/// # Errors
/// * [`OpenFailure::Import`]: the pool could not be imported; see [`SpaError`] for the causes.
///   Nothing has been written.
/// * [`OpenFailure::Refused`]: the pool can only be read; see [`WriteRefusal`] for the causes.
///   Nothing has been written, except perhaps with [`WriteRefusal::Stopped`] and
///   [`WriteRefusal::GoBack`].
pub fn import_for_writing(
    candidate: &Candidate,
    options: &Options,
    altroot: Option<String>,
    host: &Host,
    clock: &dyn Clock,
    resources: Resources,
) -> Result<Spa, OpenFailure> {
    if options.readonly || options.claim != Claim::Own {
        return Err(WriteRefusal::Unclaimed.into());
    }
    // A writer doesn't tolerate another one.
    let options = &Options { skip_mmp: false, ..options.clone() };
    let purpose = load::Purpose::Import;
    let loader = load::Loader { candidate, options, host, clock, purpose };
    let spa = rewind::best(&loader).map_err(OpenFailure::Import)?;
    let features = features::unknown_for_write(&spa.mos, &spa.features());
    // A pool with missing vdevs or unknown features may be read, but not written.
    let refusal = match (spa.tree().lost_tops(), features.is_empty()) {
        (0, true) => None,
        (0, false) => Some(SpaError::UnsupportedFeatures { features, can_readonly: true }),
        _ => Some(SpaError::CantOpen { aux: VdevAux::NoReplicas }),
    };
    if let Some(error) = refusal {
        let ub = spa.uberblock();
        let (tree, used) = (Some(spa.tree().describe()), Some((ub.txg, ub.timestamp)));
        return Err(OpenFailure::Import(Box::new(Failure { error, tree, used, rewind: None })));
    }
    Ok(spa.into_live(host, altroot, resources, options)?)
}

/// Imports a pool for reading, whatever `options.readonly` says (`spa_import`).
///
/// # Errors
/// * [`Failure`]: see [`SpaError`] for the causes. It holds what the import had found by then.
pub fn import(
    candidate: &Candidate,
    options: &Options,
    host: &Host,
    clock: &dyn Clock,
) -> Result<Spa, Box<Failure>> {
    let options = &Options { readonly: true, ..options.clone() };
    let purpose = load::Purpose::Import;
    rewind::best(&load::Loader { candidate, options, host, clock, purpose })
}
