//! States of a vdev, and why it is in one.

/// State of a vdev (`vdev_state_t`). The order matters: from [`Degraded`](Self::Degraded) on it can
/// be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum VdevState {
    /// Not opened yet.
    Unknown = 0,
    /// Closed.
    Closed = 1,
    /// Taken offline by hand.
    Offline = 2,
    /// Its device was pulled.
    Removed = 3,
    /// It could not be opened.
    CantOpen = 4,
    /// It was faulted: too many errors, or by hand.
    Faulted = 5,
    /// It works, with errors or with less redundancy.
    Degraded = 6,
    /// All is well.
    Healthy = 7,
}

impl VdevState {
    pub(crate) fn from_u8(v: u8) -> Self {
        use VdevState::*;
        [Unknown, Closed, Offline, Removed, CantOpen, Faulted, Degraded, Healthy][usize::from(v)]
    }

    /// The word that `zpool status` shows (`zpool_state_to_name`).
    pub fn name(self, aux: VdevAux) -> &'static str {
        match self {
            VdevState::Unknown => "UNKNOWN",
            VdevState::Closed | VdevState::Offline => "OFFLINE",
            VdevState::Removed => "REMOVED",
            VdevState::CantOpen => match aux {
                VdevAux::CorruptData | VdevAux::BadLog => "FAULTED",
                VdevAux::SplitPool => "SPLIT",
                _ => "UNAVAIL",
            },
            VdevState::Faulted => "FAULTED",
            VdevState::Degraded => "DEGRADED",
            VdevState::Healthy => "ONLINE",
        }
    }
}

/// Why a vdev is in its state (`vdev_aux_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[repr(u8)]
pub enum VdevAux {
    /// No reason needed.
    #[default]
    None = 0,
    /// The device can't be opened.
    OpenFailed,
    /// Its label or contents are bad.
    CorruptData,
    /// Too many children are missing.
    NoReplicas,
    /// The sum of the guids doesn't match.
    BadGuidSum,
    /// The device is too small.
    TooSmall,
    /// The label is readable and invalid.
    BadLabel,
    /// The on-disk version is too new.
    VersionNewer,
    /// The on-disk version is too old.
    VersionOlder,
    /// Features are in use that can't be read.
    UnsupFeat,
    /// The hot spare is in use by another pool.
    Spared,
    /// Too many errors.
    ErrExceeded,
    /// I/O failed.
    IoFailure,
    /// An intent log can't be read.
    BadLog,
    /// Faulted by hand.
    External,
    /// The device was split off into another pool.
    SplitPool,
    /// The sector shift is invalid.
    BadAshift,
    /// Faulted by hand, and stays so after an import.
    ExternalPersist,
    /// In use by another host.
    Active,
    /// All its children are offline.
    ChildrenOffline,
    /// The device's sectors are larger than the vdev's.
    AshiftTooBig,
}

impl VdevAux {
    pub(crate) fn from_u8(v: u8) -> Self {
        use VdevAux::*;
        const ALL: [VdevAux; 21] = [
            None,
            OpenFailed,
            CorruptData,
            NoReplicas,
            BadGuidSum,
            TooSmall,
            BadLabel,
            VersionNewer,
            VersionOlder,
            UnsupFeat,
            Spared,
            ErrExceeded,
            IoFailure,
            BadLog,
            External,
            SplitPool,
            BadAshift,
            ExternalPersist,
            Active,
            ChildrenOffline,
            AshiftTooBig,
        ];
        ALL[usize::from(v)]
    }

    /// The note that `zpool status` prints after the counters; empty for [`None`](Self::None).
    pub fn note(self) -> &'static str {
        match self {
            VdevAux::None => "",
            VdevAux::OpenFailed => "cannot open",
            VdevAux::BadGuidSum => "missing device",
            VdevAux::NoReplicas => "insufficient replicas",
            VdevAux::VersionNewer => "newer version",
            VdevAux::UnsupFeat => "unsupported feature(s)",
            VdevAux::AshiftTooBig => "unsupported minimum blocksize",
            VdevAux::Spared => "currently in use",
            VdevAux::ErrExceeded => "too many errors",
            VdevAux::IoFailure => "experienced I/O failures",
            VdevAux::BadLog => "bad intent log",
            VdevAux::External => "external device fault",
            VdevAux::SplitPool => "split into new pool",
            VdevAux::Active => "currently in use",
            VdevAux::ChildrenOffline => "all children offline",
            VdevAux::BadLabel => "invalid label",
            VdevAux::CorruptData
            | VdevAux::TooSmall
            | VdevAux::VersionOlder
            | VdevAux::BadAshift
            | VdevAux::ExternalPersist => "corrupted data",
        }
    }
}
