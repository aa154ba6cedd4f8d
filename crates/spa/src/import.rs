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
//! Locks on devices last as long as the pool does. A failed import leaves nothing behind.
//!
//! # Absent
//! Pools are imported read-only: log blocks are not claimed, nothing is written to labels. OpenZFS reads the metadata of the
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
mod report;
mod rewind;
mod uberblock;
mod verify;

#[cfg(test)]
mod tests;

pub use aux::AuxVdev;
pub use mmp::{Clock, Seen, SystemClock};
pub use report::{Report, examine};
pub use rewind::{TxgState, list_txgs};

use device::Mode;
use ondisk::Txg;

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

/// How a pool is imported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Import for reading only (`readonly=on`). Nothing else is possible yet, and asking for it says why.
    pub readonly: bool,
    /// Whether the devices are locked for this import (false is for looking at a pool that somebody may own, as `zdb` does).
    pub lock: bool,
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
    /// Bytes of the block cache (`zfs_arc_max`).
    pub cache_bytes: u64,
    /// What an earlier [`Report`] saw of the pool's activity: if it is unchanged it isn't watched again.
    pub seen: Option<Seen>,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            readonly: true,
            lock: true,
            force: false,
            missing_log: false,
            skip_mmp: false,
            checkpoint: false,
            rewind: Rewind::No,
            max_txg: None,
            name: None,
            cache_bytes: 256 << 20,
            seen: None,
        }
    }
}

impl Options {
    fn mode(&self) -> Mode {
        if self.lock { Mode::Read } else { Mode::Peek }
    }
}

/// Imports a pool.
///
/// # Errors
/// [`Failure`], with what had been found out by then.
pub fn import(
    candidate: &Candidate,
    options: &Options,
    host: &Host,
    clock: &dyn Clock,
) -> Result<Spa, Box<Failure>> {
    let purpose = load::Purpose::Import;
    let spa = rewind::best(&load::Loader { candidate, options, host, clock, purpose })?;
    if options.readonly {
        return Ok(spa);
    }
    let features = features::unknown_for_write(&spa.mos, &spa.features);
    let error = if features.is_empty() {
        SpaError::ReadOnly
    } else {
        SpaError::UnsupportedFeatures { features, can_readonly: true }
    };
    let used = Some((spa.uberblock.txg, spa.uberblock.timestamp));
    Err(Box::new(Failure { error, tree: Some(spa.tree.describe()), used, rewind: None }))
}
