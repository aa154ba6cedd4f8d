//! Import: from a candidate to the pool alive.
//!
//! # Theory
//! The steps are those of OpenZFS, since each has a reason. The labels' config is only believed as far as to find devices
//! and the best uberblock; through that the MOS is read, and its config, the one that was written together with the data, replaces
//! the labels' one: the tree is built and the devices are opened and held against their labels again. If the trusted tree
//! brings devices that the first lacked, and these hold a newer uberblock, everything is done again with that.
//! Then come the mappings of removed devices, before anything may be read that lies on one, the features, the salt, what each
//! device has missed, and the spares and cache devices.
//!
//! # Locks
//! An import claims each device once, at the first step that opens it, and every later step, of a rewind too, is handed the
//! same open device: a second claim would be refused, as the first is not let go between them. A search before the import only
//! reads labels and claims nothing; what it found is read again under the claim. Claims last as long as the pool does,
//! and a failed import leaves none behind. Hot spares and cache devices are claimed too, also by a
//! pool that is only read; pools of one process share what they hold of a spare ([`crate::aux_devices`]).
//!
//! # Absent
//! OpenZFS reads the metadata of the
//! last groups at every import and refuses the pool if some is damaged; here that is only done to choose the state of a rewind,
//! since a reader can live with damage that it doesn't meet.
//!
//! # See
//! OpenZFS `module/zfs/spa.c`: `spa_load_impl`, `spa_load_best`, `spa_import`, `spa_tryimport`.

mod aux;
mod devices;
mod features;
mod load;
pub mod mmp;
mod pass;
mod report;
mod rewind;
mod uberblock;
mod verify;

#[cfg(test)]
mod tests;

pub use aux::AuxVdev;
pub(crate) use aux::look;
pub use load::MISSING_TOPS;
pub(crate) use load::furnish;
pub use mmp::{Clock, Seen, SystemClock};
pub use pass::Pass;
pub use report::{Report, examine};
pub use rewind::{TxgState, list_txgs};
pub use verify::{VERIFY_DATA, VERIFY_METADATA};

use device::{Layer, Mode};
use ondisk::Txg;
use vdev::VdevAux;

use std::sync::Arc;

use crate::engine::{SystemWorld, World, WriteRefusal};
use crate::{Candidate, Failure, Host, Spa, SpaError};

/// What to do when the newest state can't be opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Rewind {
    /// Fail (`ZPOOL_NO_REWIND`).
    #[default]
    No,
    /// Go back to the newest of the last states that can be opened (`-F`, `ZPOOL_DO_REWIND`).
    Recover,
    /// Go back as far as there are uberblocks (`-FX`, `ZPOOL_EXTREME_REWIND`).
    Extreme,
}

/// What is claimed of a pool's devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Claim {
    /// They are ours alone: one pool, one owner.
    #[default]
    Own,
    /// Nobody may own them meanwhile, as far as that can be had; other readers may read.
    Share,
    /// Nothing: to look at a pool that somebody may own, as `zdb` does.
    Nothing,
}

/// How a pool is imported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Import for reading only (`readonly=on`).
    pub readonly: bool,
    /// What is claimed of the devices.
    pub claim: Claim,
    /// Import although another host used the pool last (`-f`, `ZFS_IMPORT_ANY_HOST`).
    pub force: bool,
    /// Import without missing log devices (`-m`, `ZFS_IMPORT_MISSING_LOG`).
    pub missing_log: bool,
    /// Don't watch for another host's activity (`ZFS_IMPORT_SKIP_MMP`); only safe for a reader that can live with change.
    pub skip_mmp: bool,
    /// Open the state of the checkpoint (`--rewind-to-checkpoint`, `ZFS_IMPORT_CHECKPOINT`).
    pub checkpoint: bool,
    /// What to do when the newest state can't be opened.
    pub rewind: Rewind,
    /// Open no state newer than this (`-T`, `ZPOOL_LOAD_REQUEST_TXG`).
    pub max_txg: Option<Txg>,
    /// The name to import it under, if not its own.
    pub name: Option<String>,
    /// That name holds for this import alone: the devices keep the pool's own (`-t`, `ZFS_IMPORT_TEMP_NAME`).
    pub temporary: bool,
    /// The memory of its block cache (`zfs_arc_max`).
    pub cache: arc::Room,
    /// Blocks are read ahead of who reads one after another.
    pub read_ahead: bool,
    /// What an earlier [`Report`] saw of the pool's activity: if it is unchanged it isn't watched again.
    pub seen: Option<Seen>,
    /// What is put around each device.
    pub layer: Layer,
    /// The pass over all datasets when the pool is opened for writing.
    pub pass: Pass,
    /// Scans and rebuilds that went on stand still from the start, as after [`PoolWriter::hold_scans`](crate::engine::PoolWriter::hold_scans) (`zfs_scan_suspend_progress`).
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
            cache: arc::Room::Own(256 << 20),
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
    /// It can be imported for reading only.
    #[error("the pool can only be imported for reading")]
    Refused(#[from] WriteRefusal),
}

/// What writing takes.
pub struct Hands {
    /// Threads that compress, checksum and write.
    pub workers: Arc<zio::Workers>,
    /// Clock and random numbers.
    pub world: Arc<dyn World>,
}

impl Hands {
    /// Those of this machine, for a pool of this name: a thread for each processor, the system's clock and random numbers.
    pub fn of_system(pool: &str) -> Hands {
        let threads = std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
        let workers = Arc::new(zio::Workers::new(&format!("zio-{pool}"), threads));
        Hands { workers, world: Arc::new(SystemWorld) }
    }
}

/// Imports a pool for writing. `options` say how; of them `readonly` must be false. When this
/// returns, the labels say that the pool is in use, and by which host.
///
/// # Errors
/// [`OpenFailure`]: nothing has been written then, but for [`WriteRefusal::Stopped`] and
/// [`WriteRefusal::GoBack`], of which it is not known.
pub fn import_for_writing(
    candidate: &Candidate,
    options: &Options,
    altroot: Option<String>,
    host: &Host,
    clock: &dyn Clock,
    hands: Hands,
) -> Result<Spa, OpenFailure> {
    if options.readonly || options.claim != Claim::Own {
        return Err(WriteRefusal::Unclaimed.into());
    }
    // A writer can't live with another one.
    let options = &Options { skip_mmp: false, ..options.clone() };
    let purpose = load::Purpose::Import;
    let loader = load::Loader { candidate, options, host, clock, purpose };
    let spa = rewind::best(&loader).map_err(OpenFailure::Import)?;
    let features = features::unknown_for_write(&spa.mos, &spa.features());
    // What is left of a pool may be read; who wrote it would have to know what he can't.
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
    Ok(spa.into_live(host, altroot, hands, options)?)
}

/// Imports a pool for reading, whatever `options` say of that.
///
/// # Errors
/// [`Failure`], with what had been found out by then.
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

/// The device of a leaf of a pool that is ours, if it is where its path leads and nobody has it.
pub(crate) fn reopen(
    leaf: &ondisk::VdevConfig,
    top_level: bool,
    pool: ondisk::Guid,
    newest: Txg,
    layer: Layer,
) -> Option<Arc<dyn device::Device>> {
    let trust = devices::Trust::Mos { pool, newest };
    devices::Devices::new(&[], Mode::Write, layer).open(leaf, top_level, trust).ok()
}

/// Whether a pool that is ours and was suspended still is: nobody has written to it since `last`, and nobody does while it is watched
/// (`spa_mmp_remote_host_activity`).
pub(crate) fn check_still_ours(
    tree: &vdev::Tree,
    root: &ondisk::VdevConfig,
    last: &ondisk::Uberblock,
) -> Result<(), SpaError> {
    let devices = uberblock::leaves(tree, root);
    let look = || uberblock::select(&devices, Txg(u64::MAX), true).map(|s| (s.uberblock, s.label));
    let (now, label) = look().ok_or(SpaError::NoUberblock)?;
    if now.newer(last).is_gt() {
        let hostid = label.as_ref().and_then(|l| l.hostid);
        return Err(SpaError::Active { hostname: label.and_then(|l| l.hostname), hostid });
    }
    mmp::watch(&now, &SystemClock, look)
}
