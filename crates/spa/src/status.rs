//! The condition of a pool, in OpenZFS's terms.

/// Condition of a pool (`zpool_status_t`), as `zpool import` and `zpool status` explain it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PoolStatus {
    /// `ZPOOL_STATUS_CORRUPT_CACHE`.
    CorruptCache,
    /// A device is missing, and others have its data (`ZPOOL_STATUS_MISSING_DEV_R`).
    MissingDevR,
    /// A device is missing, without redundancy (`ZPOOL_STATUS_MISSING_DEV_NR`).
    MissingDevNr,
    /// A label is bad, and others have the device's data (`ZPOOL_STATUS_CORRUPT_LABEL_R`).
    CorruptLabelR,
    /// A label is bad, without redundancy (`ZPOOL_STATUS_CORRUPT_LABEL_NR`).
    CorruptLabelNr,
    /// Devices are missing that no label describes (`ZPOOL_STATUS_BAD_GUID_SUM`).
    BadGuidSum,
    /// The pool's metadata are corrupt (`ZPOOL_STATUS_CORRUPT_POOL`).
    CorruptPool,
    /// Files are corrupt (`ZPOOL_STATUS_CORRUPT_DATA`).
    CorruptData,
    /// A device has errors (`ZPOOL_STATUS_FAILING_DEV`).
    FailingDev,
    /// The version is newer than this software (`ZPOOL_STATUS_VERSION_NEWER`).
    VersionNewer,
    /// Another host used it last (`ZPOOL_STATUS_HOSTID_MISMATCH`).
    HostidMismatch,
    /// Another host uses it now (`ZPOOL_STATUS_HOSTID_ACTIVE`).
    HostidActive,
    /// `multihost` is on and this host has no hostid (`ZPOOL_STATUS_HOSTID_REQUIRED`).
    HostidRequired,
    /// I/O failed, `failmode=wait` (`ZPOOL_STATUS_IO_FAILURE_WAIT`).
    IoFailureWait,
    /// I/O failed, `failmode=continue` (`ZPOOL_STATUS_IO_FAILURE_CONTINUE`).
    IoFailureContinue,
    /// Multihost writes failed (`ZPOOL_STATUS_IO_FAILURE_MMP`).
    IoFailureMmp,
    /// The intent log can't be read (`ZPOOL_STATUS_BAD_LOG`).
    BadLog,
    /// A known defect (`ZPOOL_STATUS_ERRATA`).
    Errata(Errata),
    /// Active features prevent reading (`ZPOOL_STATUS_UNSUP_FEAT_READ`).
    UnsupFeatRead,
    /// Active features prevent writing (`ZPOOL_STATUS_UNSUP_FEAT_WRITE`).
    UnsupFeatWrite,
    /// A device is faulted, and others have its data (`ZPOOL_STATUS_FAULTED_DEV_R`).
    FaultedDevR,
    /// A device is faulted, without redundancy (`ZPOOL_STATUS_FAULTED_DEV_NR`).
    FaultedDevNr,
    /// An old version, usable (`ZPOOL_STATUS_VERSION_OLDER`).
    VersionOlder,
    /// Supported features are not enabled (`ZPOOL_STATUS_FEAT_DISABLED`).
    FeatDisabled,
    /// A resilver runs (`ZPOOL_STATUS_RESILVERING`).
    Resilvering,
    /// A device is offline (`ZPOOL_STATUS_OFFLINE_DEV`).
    OfflineDev,
    /// A device was removed (`ZPOOL_STATUS_REMOVED_DEV`).
    RemovedDev,
    /// A rebuild runs (`ZPOOL_STATUS_REBUILDING`).
    Rebuilding,
    /// A rebuild ended and no scrub followed (`ZPOOL_STATUS_REBUILD_SCRUB`).
    RebuildScrub,
    /// A device has larger sectors than its vdev (`ZPOOL_STATUS_NON_NATIVE_ASHIFT`).
    NonNativeAshift,
    /// The `compatibility` files can't be read (`ZPOOL_STATUS_COMPATIBILITY_ERR`).
    CompatibilityErr,
    /// Features are enabled beyond `compatibility` (`ZPOOL_STATUS_INCOMPATIBLE_FEAT`).
    IncompatibleFeat,
    /// No problem (`ZPOOL_STATUS_OK`).
    Ok,
}

impl PoolStatus {
    /// Number of its message on the OpenZFS site; `None` if there is none.
    pub fn msgid(self) -> Option<&'static str> {
        use PoolStatus::*;
        Some(match self {
            CorruptCache => "ZFS-8000-14",
            MissingDevR => "ZFS-8000-2Q",
            MissingDevNr => "ZFS-8000-3C",
            CorruptLabelR => "ZFS-8000-4J",
            CorruptLabelNr => "ZFS-8000-5E",
            BadGuidSum => "ZFS-8000-6X",
            CorruptPool => "ZFS-8000-72",
            CorruptData => "ZFS-8000-8A",
            FailingDev => "ZFS-8000-9P",
            VersionNewer => "ZFS-8000-A5",
            HostidMismatch | HostidActive | HostidRequired => "ZFS-8000-EY",
            IoFailureWait => "ZFS-8000-HC",
            IoFailureContinue => "ZFS-8000-JQ",
            IoFailureMmp => "ZFS-8000-MM",
            BadLog => "ZFS-8000-K4",
            Errata(_) => "ZFS-8000-ER",
            UnsupFeatRead | UnsupFeatWrite | FaultedDevR | FaultedDevNr | VersionOlder | FeatDisabled
            | Resilvering | OfflineDev | RemovedDev | Rebuilding | RebuildScrub | NonNativeAshift
            | CompatibilityErr | IncompatibleFeat | Ok => return None,
        })
    }
}

/// A known defect of a pool (`zpool_errata_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Errata {
    /// A scrub is needed (`ZPOOL_ERRATA_ZOL_2094_SCRUB`).
    Zol2094Scrub,
    /// An asynchronous destroy must end first (`ZPOOL_ERRATA_ZOL_2094_ASYNC_DESTROY`).
    Zol2094AsyncDestroy,
    /// Encrypted datasets are in an old format (`ZPOOL_ERRATA_ZOL_6845_ENCRYPTION`).
    Zol6845Encryption,
    /// Encryption without `bookmark_v2` (`ZPOOL_ERRATA_ZOL_8308_ENCRYPTION`).
    Zol8308Encryption,
    /// A defect unknown to this software, by number.
    Unknown(u64),
}

impl Errata {
    /// The defect of an on-disk number; `None` for none.
    pub fn from_disk(v: u64) -> Option<Errata> {
        Some(match v {
            0 => return None,
            1 => Errata::Zol2094Scrub,
            2 => Errata::Zol2094AsyncDestroy,
            3 => Errata::Zol6845Encryption,
            4 => Errata::Zol8308Encryption,
            n => Errata::Unknown(n),
        })
    }

    /// Its number in messages.
    pub fn number(self) -> u64 {
        match self {
            Errata::Zol2094Scrub => 1,
            Errata::Zol2094AsyncDestroy => 2,
            Errata::Zol6845Encryption => 3,
            Errata::Zol8308Encryption => 4,
            Errata::Unknown(n) => n,
        }
    }
}
