//! Why an import failed.

use device::DeviceError;
use ondisk::{Corrupt, Guid, ObjNum, Txg};
use vdev::{VdevAux, VdevError, VdevInfo};

/// An unsupported feature, by guid, with the description in the pool if it could be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnsupportedFeature {
    /// The feature's guid.
    pub guid: String,
    /// The description in the pool; empty if there is none.
    pub description: String,
}

/// Why a pool could not be imported. The documentation of each variant names the error number of
/// OpenZFS.
#[derive(Debug, thiserror::Error)]
pub enum SpaError {
    /// A device is in use: another program has the pool imported (`EBUSY`).
    #[error("a device of the pool is in use")]
    InUse(#[source] DeviceError),
    /// The labels' config is invalid (`EINVAL`).
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
    /// The device with the newest uberblock has no label for it (`ENXIO`).
    #[error("the label of the newest uberblock cannot be read")]
    NoLabel,
    /// Another host writes to the pool (`EREMOTEIO`, `MMP_STATE_ACTIVE`).
    #[error("the pool is imported on another host")]
    Active {
        /// Name of that host, if its label has it.
        hostname: Option<String>,
        /// Its hostid, if its label has it.
        hostid: Option<u64>,
    },
    /// The pool has `multihost` on and this host has no hostid (`EREMOTEIO`,
    /// `MMP_STATE_NO_HOSTID`).
    #[error("the pool has the multihost property on and this host has no hostid")]
    NoHostid,
    /// The wait for another host's activity was interrupted (`EINTR`).
    #[error("interrupted while waiting for activity of another host")]
    Interrupted,
    /// Another host used the pool last and did not export it; `-f` overrides.
    #[error("the pool was last used by another host and not exported")]
    ForceRequired {
        /// Name of that host.
        hostname: Option<String>,
        /// Its hostid.
        hostid: u64,
        /// When it was last written, seconds of the epoch.
        timestamp: u64,
    },
    /// The pool version is not supported (`ENOTSUP`).
    #[error("pool version {version} is not supported")]
    Version {
        /// The version.
        version: u64,
    },
    /// Active features are unknown to this software (`ENOTSUP`).
    #[error("the pool uses features that are not supported")]
    UnsupportedFeatures {
        /// The features.
        features: Vec<UnsupportedFeature>,
        /// Whether the pool can still be imported read-only.
        can_readonly: bool,
    },
    /// An object of the MOS can't be read (`EIO`).
    #[error("the pool's metadata cannot be read: {what}")]
    Mos {
        /// What was being read.
        what: &'static str,
        /// The cause.
        #[source]
        source: pool::Error,
    },
    /// The MOS is inconsistent (`EIO`).
    #[error("the pool's metadata are corrupt: {what}")]
    Corrupt {
        /// What was being read.
        what: &'static str,
        /// What is wrong with it.
        #[source]
        source: Corrupt,
    },
    /// The trusted config is invalid (`EIO`).
    #[error("the pool's config means nothing")]
    TrustedConfig(#[source] VdevError),
    /// A removed device's mapping is invalid (`EIO`).
    #[error("the mapping of the removed vdev, object {object}, means nothing")]
    Mapping {
        /// The mapping object.
        object: ObjNum,
        /// The cause.
        #[source]
        source: VdevError,
    },
    /// Log devices are missing; `-m` imports without them (`ENXIO`).
    #[error("log devices are missing")]
    MissingLogs {
        /// The top-level vdevs that are missing.
        logs: Vec<VdevInfo>,
    },
    /// The guids of the vdevs do not add up to the uberblock's sum (`ENXIO`).
    #[error("the sum of the guids is {found}, the uberblock has {expected}")]
    BadGuidSum {
        /// The sum over the config's vdevs.
        found: Guid,
        /// The uberblock's sum.
        expected: Guid,
    },
    /// Metadata of the last txgs can't be read (`EIO`). Only a rewind checks this.
    #[error("{blocks} blocks of metadata cannot be read")]
    Damaged {
        /// Number of blocks.
        blocks: u64,
    },
    /// There is no checkpoint to rewind to (`ZFS_ERR_NO_CHECKPOINT`).
    #[error("the pool has no checkpoint")]
    NoCheckpoint,
}

impl SpaError {
    /// Why the root vdev counts as unopenable after this error (`spa_vdev_err`); `None` leaves it
    /// unchanged.
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

    /// Whether an older uberblock may succeed (as `spa_load_best` tries).
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

/// The state that a failed import had reached.
#[derive(Debug, thiserror::Error)]
#[error("import")]
pub struct Failure {
    /// Why it failed.
    #[source]
    pub error: SpaError,
    /// The vdev tree as far as it was opened.
    pub tree: Option<VdevInfo>,
    /// The txg and time of the uberblock that was used, if one was found.
    pub used: Option<(Txg, u64)>,
    /// The older state that a rewind would restore, if one was searched for and found.
    pub rewind: Option<RewindInfo>,
}

/// An older state of the pool that can be opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RewindInfo {
    /// Its transaction group (`ZPOOL_CONFIG_LOAD_TIME` goes with it).
    pub txg: Txg,
    /// When it was written, seconds of the epoch.
    pub timestamp: u64,
    /// Seconds of changes that a rewind to it loses (`ZPOOL_CONFIG_REWIND_TIME`).
    pub lost_secs: u64,
    /// Blocks of files and volumes in it that can't be read (`ZPOOL_CONFIG_LOAD_DATA_ERRORS`).
    pub data_errors: u64,
}
