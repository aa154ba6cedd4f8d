//! Why a pool could not be imported.

use device::DeviceError;
use ondisk::{Corrupt, Guid, ObjNum, Txg};
use vdev::{VdevAux, VdevError, VdevInfo};

/// A feature that stands in the way, by guid, with the pool's own description of it when it could be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnsupportedFeature {
    /// The feature's guid.
    pub guid: String,
    /// What the pool says of it; empty if nothing.
    pub description: String,
}

/// Why a pool could not be imported. Each variant's doc names the error number that OpenZFS returns for it.
#[derive(Debug, thiserror::Error)]
pub enum SpaError {
    /// A device is held by somebody else, who has the pool imported (`EBUSY`).
    #[error("a device of the pool is in use")]
    InUse(#[source] DeviceError),
    /// The labels' config means nothing (`EINVAL`).
    #[error("the pool's labels make no valid config")]
    Config(#[source] VdevError),
    /// Too many devices are missing or bad (`ENXIO`).
    #[error("too many devices are missing or bad")]
    CantOpen {
        /// Why the root is in its state.
        aux: VdevAux,
    },
    /// No uberblock verifies, or none is old enough (`ENXIO`).
    #[error("no valid uberblock was found")]
    NoUberblock,
    /// The device with the newest uberblock has no label that goes with it (`ENXIO`).
    #[error("the label of the newest uberblock cannot be read")]
    NoLabel,
    /// Another host writes to the pool (`EREMOTEIO`, `MMP_STATE_ACTIVE`).
    #[error("the pool is imported on another host")]
    Active {
        /// Name of that host, if its label tells.
        hostname: Option<String>,
        /// Its hostid, if its label tells.
        hostid: Option<u64>,
    },
    /// The pool has `multihost` on and this host has no hostid (`EREMOTEIO`, `MMP_STATE_NO_HOSTID`).
    #[error("the pool has the multihost property on and this host has no hostid")]
    NoHostid,
    /// The wait for another host's activity was broken off (`EINTR`).
    #[error("interrupted while waiting for activity of another host")]
    Interrupted,
    /// Another host used the pool last and didn't export it; `-f` is needed.
    #[error("the pool was last used by another host and not exported")]
    ForceRequired {
        /// Name of that host.
        hostname: Option<String>,
        /// Its hostid.
        hostid: u64,
        /// When it was last written, seconds of the epoch.
        timestamp: u64,
    },
    /// The version can't be read (`ENOTSUP`).
    #[error("pool version {version} is not supported")]
    Version {
        /// The version.
        version: u64,
    },
    /// Features are in use that this software doesn't know (`ENOTSUP`).
    #[error("the pool uses features that are not supported")]
    UnsupportedFeatures {
        /// Which.
        features: Vec<UnsupportedFeature>,
        /// Whether the pool can be imported read-only all the same.
        can_readonly: bool,
    },
    /// An object of the MOS can't be read (`EIO`).
    #[error("the pool's metadata cannot be read: {what}")]
    Mos {
        /// What was being read.
        what: &'static str,
        /// Why not.
        #[source]
        source: pool::Error,
    },
    /// The MOS contradicts itself (`EIO`).
    #[error("the pool's metadata are corrupt: {what}")]
    Corrupt {
        /// What was being read.
        what: &'static str,
        /// What is wrong with it.
        #[source]
        source: Corrupt,
    },
    /// The trusted config means nothing (`EIO`).
    #[error("the pool's config means nothing")]
    TrustedConfig(#[source] VdevError),
    /// A removed device's mapping means nothing (`EIO`).
    #[error("the mapping of the removed vdev, object {object}, means nothing")]
    Mapping {
        /// The mapping object.
        object: ObjNum,
        /// Why.
        #[source]
        source: VdevError,
    },
    /// Log devices are missing; `-m` imports without them (`ENXIO`).
    #[error("log devices are missing")]
    MissingLogs {
        /// The top-level vdevs that are missing.
        logs: Vec<VdevInfo>,
    },
    /// The vdevs are not all that the uberblock counts (`ENXIO`).
    #[error("the sum of the guids is {found}, the uberblock has {expected}")]
    BadGuidSum {
        /// The sum over the config's vdevs.
        found: Guid,
        /// The uberblock's sum.
        expected: Guid,
    },
    /// Metadata that the last groups wrote can't be read (`EIO`); only looked for in a rewind.
    #[error("{blocks} blocks of metadata cannot be read")]
    Damaged {
        /// How many.
        blocks: u64,
    },
    /// There is no checkpoint to rewind to (`ZFS_ERR_NO_CHECKPOINT`).
    #[error("the pool has no checkpoint")]
    NoCheckpoint,
}

impl SpaError {
    /// Why the root vdev counts as unopenable after this error (`spa_vdev_err`); `None` leaves it as it is.
    pub fn root_aux(&self) -> Option<VdevAux> {
        Some(match self {
            SpaError::NoUberblock
            | SpaError::NoLabel
            | SpaError::Mos { .. }
            | SpaError::Corrupt { .. }
            | SpaError::TrustedConfig(_)
            | SpaError::Mapping { .. }
            | SpaError::Damaged { .. } => VdevAux::CorruptData,
            SpaError::Active { .. } | SpaError::NoHostid => VdevAux::Active,
            SpaError::Version { .. } => VdevAux::VersionNewer,
            SpaError::UnsupportedFeatures { .. } => VdevAux::UnsupFeat,
            SpaError::MissingLogs { .. } | SpaError::BadGuidSum { .. } => VdevAux::BadGuidSum,
            SpaError::InUse(_)
            | SpaError::Config(_)
            | SpaError::CantOpen { .. }
            | SpaError::Interrupted
            | SpaError::ForceRequired { .. }
            | SpaError::NoCheckpoint => return None,
        })
    }

    /// Whether an older uberblock might do better (as `spa_load_best` tries).
    pub(crate) fn worth_rewinding(&self) -> bool {
        !matches!(
            self,
            SpaError::InUse(_)
                | SpaError::Config(_)
                | SpaError::Active { .. }
                | SpaError::NoHostid
                | SpaError::Interrupted
                | SpaError::ForceRequired { .. }
                | SpaError::NoCheckpoint
        )
    }
}

/// What an import that failed had found out by then.
#[derive(Debug, thiserror::Error)]
#[error("import")]
pub struct Failure {
    /// Why it failed.
    #[source]
    pub error: SpaError,
    /// The vdev tree as far as it was opened.
    pub tree: Option<VdevInfo>,
    /// The transaction group and time of the uberblock that was used, if one was found.
    pub used: Option<(Txg, u64)>,
    /// The older state that a rewind would bring back, if one was looked for and found.
    pub rewind: Option<RewindInfo>,
}

/// An older state of the pool that can be opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RewindInfo {
    /// Its transaction group (`ZPOOL_CONFIG_LOAD_TIME` goes with it).
    pub txg: Txg,
    /// When it was written, seconds of the epoch.
    pub timestamp: u64,
    /// Seconds of changes that are lost with the newer ones (`ZPOOL_CONFIG_REWIND_TIME`).
    pub lost_secs: u64,
    /// Blocks of files and volumes in it that can't be read (`ZPOOL_CONFIG_LOAD_DATA_ERRORS`).
    pub data_errors: u64,
}
