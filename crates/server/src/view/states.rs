//! The engine's states as values of the control protocol.

use ondisk::config::{AllocBias, PoolState};
use ondisk::scan;
use vdev::{VdevAux, VdevState};

/// A vdev's state (`vdev_state_t`).
pub fn state(s: VdevState) -> api::VdevState {
    use api::VdevState as A;
    match s {
        VdevState::Unknown => A::Unknown,
        VdevState::Closed => A::Closed,
        VdevState::Offline => A::Offline,
        VdevState::Removed => A::Removed,
        VdevState::CantOpen => A::CantOpen,
        VdevState::Faulted => A::Faulted,
        VdevState::Degraded => A::Degraded,
        VdevState::Healthy => A::Healthy,
    }
}

/// The reason for a vdev's state (`vdev_aux_t`).
pub fn aux(a: VdevAux) -> api::VdevAux {
    use api::VdevAux as A;
    match a {
        VdevAux::None => A::None,
        VdevAux::OpenFailed => A::OpenFailed,
        VdevAux::CorruptData => A::CorruptData,
        VdevAux::NoReplicas => A::NoReplicas,
        VdevAux::BadGuidSum => A::BadGuidSum,
        VdevAux::TooSmall => A::TooSmall,
        VdevAux::BadLabel => A::BadLabel,
        VdevAux::VersionNewer => A::VersionNewer,
        VdevAux::VersionOlder => A::VersionOlder,
        VdevAux::UnsupFeat => A::UnsupFeat,
        VdevAux::Spared => A::Spared,
        VdevAux::ErrExceeded => A::ErrExceeded,
        VdevAux::IoFailure => A::IoFailure,
        VdevAux::BadLog => A::BadLog,
        VdevAux::External => A::External,
        VdevAux::SplitPool => A::SplitPool,
        VdevAux::BadAshift => A::BadAshift,
        VdevAux::ExternalPersist => A::ExternalPersist,
        VdevAux::Active => A::Active,
        VdevAux::ChildrenOffline => A::ChildrenOffline,
        VdevAux::AshiftTooBig => A::AshiftTooBig,
    }
}

/// A pool's state from its labels (`pool_state_t`).
pub fn pool_state(s: PoolState) -> api::PoolState {
    use api::PoolState as A;
    match s {
        PoolState::Active => A::Active,
        PoolState::Exported => A::Exported,
        PoolState::Destroyed => A::Destroyed,
        PoolState::Spare => A::Spare,
        PoolState::L2cache => A::L2cache,
        PoolState::Uninitialized => A::Uninitialized,
        PoolState::Unavail => A::Unavail,
        PoolState::PotentiallyActive => A::PotentiallyActive,
    }
}

/// The kind of a scan (`pool_scan_func_t`).
pub fn scan_func(f: scan::ScanFunc) -> api::ScanFunc {
    use api::ScanFunc as A;
    match f {
        scan::ScanFunc::None => A::None,
        scan::ScanFunc::Scrub => A::Scrub,
        scan::ScanFunc::Resilver => A::Resilver,
        scan::ScanFunc::ErrorScrub => A::ErrorScrub,
    }
}

/// The state of a scan (`dsl_scan_state_t`).
pub fn scan_state(s: scan::ScanState) -> api::ScanState {
    use api::ScanState as A;
    match s {
        scan::ScanState::None => A::None,
        scan::ScanState::Scanning => A::Scanning,
        scan::ScanState::Finished => A::Finished,
        scan::ScanState::Canceled => A::Canceled,
        scan::ScanState::ErrorScrubbing => A::ErrorScrubbing,
    }
}

/// The state of a removal or expansion. An unknown number means none.
pub fn work_state(n: u64) -> api::ScanState {
    match n {
        1 => api::ScanState::Scanning,
        2 => api::ScanState::Finished,
        3 => api::ScanState::Canceled,
        _ => api::ScanState::None,
    }
}

/// The allocation class of a top-level vdev, by its word in configurations.
pub fn bias(b: AllocBias) -> &'static str {
    match b {
        AllocBias::Log => "log",
        AllocBias::Special => "special",
        AllocBias::Dedup => "dedup",
    }
}
