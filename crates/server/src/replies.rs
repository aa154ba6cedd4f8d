//! The reply for each failure of the engine. No other module decides that.

use api::{Host, LoadInfo, MmpState, Reason, RewindInfo, chain};
use rustix::io::Errno;

fn io(what: &dyn std::error::Error) -> Reason {
    Reason::Io { what: chain(what), info: Box::<LoadInfo>::default() }
}

fn corrupt(what: &dyn std::error::Error) -> Reason {
    Reason::Corrupt { what: chain(what), info: Box::<LoadInfo>::default() }
}

/// The reason for a failure of the dataset layer.
pub(crate) fn of_dsl(error: &dsl::Error) -> Reason {
    match error {
        dsl::Error::Object(_) | dsl::Error::Pool(_) => io(error),
        dsl::Error::Corrupt { .. } => corrupt(error),
        dsl::Error::NoSuchDataset { .. } => Reason::NoSuchDataset,
        dsl::Error::BadName { .. } => Reason::InvalidName,
        dsl::Error::NoSuchProperty { property, .. } => Reason::BadProperty { property: property.clone() },
        dsl::Error::BadProperty { why, .. } => Reason::BadValue { what: why.to_string() },
        dsl::Error::Refused { why, .. } => {
            Reason::Refused { why: crate::commands::dataset::tasks::refusal(*why) }
        }
        dsl::Error::Several(errors) => match errors.first() {
            Some(first) => of_dsl(first),
            None => io(error),
        },
        dsl::Error::Key { why: dsl::KeyRefusal::NotLoaded, .. } => {
            Reason::Refused { why: api::Refusal::ParentKeyNotLoaded }
        }
        dsl::Error::Key { why, .. } => Reason::BadValue { what: why.to_string() },
        dsl::Error::Contents { .. } => io(error),
    }
}

/// The reason for a failure of a file system.
pub(crate) fn of_zpl(error: &zpl::Error) -> Reason {
    match error {
        zpl::Error::Dmu(_) => io(error),
        zpl::Error::NotFileSystem => Reason::BadType,
        // The message of `zfs_setprop_error` for `ENOTSUP`.
        zpl::Error::NotCounted => Reason::BadValue {
            what: "pool and or dataset must be upgraded to set this property or value".to_owned(),
        },
        zpl::Error::UnsupportedVersion { version } => {
            Reason::NotSupported { what: format!("file system version {version}") }
        }
        zpl::Error::ReadOnly => Reason::System { errno: Errno::ROFS.raw_os_error() },
        zpl::Error::NoSpace => Reason::System { errno: Errno::NOSPC.raw_os_error() },
        zpl::Error::Quota => Reason::System { errno: Errno::DQUOT.raw_os_error() },
        zpl::Error::Stopped { .. } => Reason::Daemon { what: chain(error) },
        zpl::Error::Corrupt { .. }
        | zpl::Error::NoEntry { .. }
        | zpl::Error::NoFile { .. }
        | zpl::Error::Unlinked { .. }
        | zpl::Error::NoXattr { .. }
        | zpl::Error::XattrTooLarge { .. }
        | zpl::Error::XattrsTooLarge { .. }
        | zpl::Error::NotDirectory { .. }
        | zpl::Error::IsDirectory { .. }
        | zpl::Error::NotSymlink { .. }
        | zpl::Error::NameTooLong { .. }
        | zpl::Error::NotUtf8
        | zpl::Error::TooManyLinks
        | zpl::Error::LeavesFileSystem { .. }
        | zpl::Error::PastEnd { .. }
        | zpl::Error::Exists { .. }
        | zpl::Error::XattrExists { .. }
        | zpl::Error::BadAcl { .. }
        | zpl::Error::BadFlags { .. }
        | zpl::Error::NotEmpty { .. }
        | zpl::Error::NotPermitted { .. }
        | zpl::Error::NotRegular { .. }
        | zpl::Error::BadName
        | zpl::Error::BadRange { .. }
        | zpl::Error::NotCloneable { .. }
        | zpl::Error::IntoItself { .. }
        | zpl::Error::OtherProject { .. }
        | zpl::Error::TooLarge { .. } => corrupt(error),
    }
}

/// The reason for a failure to mount or unmount.
pub(crate) fn of_fuse(error: &fuse::Error) -> Reason {
    let system = |errno: Errno| Reason::System { errno: errno.raw_os_error() };
    if let Some(advice) = error.advice() {
        return Reason::Daemon { what: format!("{}; {advice}", chain(error)) };
    }
    match error {
        _ if error.is_busy() => Reason::Busy,
        fuse::Error::Device { source }
        | fuse::Error::Descriptors { source }
        | fuse::Error::Mount { source, .. }
        | fuse::Error::Silent { source, .. } => system(*source),
        fuse::Error::Unmount { source: Errno::INVAL, .. } => Reason::NotMounted,
        fuse::Error::Unmount { source, .. } => system(*source),
        fuse::Error::Inside { what, .. } | fuse::Error::Holds { what, .. } => {
            Reason::NotInEffect { setting: what.clone(), what: chain(error) }
        }
        fuse::Error::Helper { .. }
        | fuse::Error::HelperRefused { .. }
        | fuse::Error::Closed { .. }
        | fuse::Error::Workers { .. }
        | fuse::Error::Table { .. } => Reason::Daemon { what: chain(error) },
    }
}

/// The reason for a refused key.
pub(crate) fn of_key(error: &dsl::keys::KeyError) -> Reason {
    use dsl::keys::KeyError;
    match error {
        KeyError::NotEncrypted => Reason::NotEncrypted,
        KeyError::NotRoot { root, .. } => Reason::NotEncryptionRoot { root: root.clone() },
        KeyError::Loaded { .. } => Reason::KeyLoaded,
        KeyError::NotLoaded { .. } => Reason::KeyNotLoaded,
        KeyError::Busy { .. } => Reason::Busy,
        // No key was ever made of a passphrase that short.
        KeyError::Malformed(dsl::keys::Malformed::PassphraseShort) => Reason::WrongKey,
        KeyError::Malformed(_) => Reason::BadKey,
        KeyError::Wrong { .. } => Reason::WrongKey,
        KeyError::Dataset(error) => of_dsl(error),
    }
}

/// The reason for a failure of the library.
pub(crate) fn of_library(error: &poolhouse::Error) -> Reason {
    use poolhouse::Error;
    match error {
        Error::NoPool { .. } | Error::NoSuchPool { .. } | Error::SeveralPools { .. } => Reason::NoSuchImport,
        Error::Import(failure) => of_spa(failure),
        Error::Create(error) => crate::commands::pool::of_create(error),
        Error::Refused(why) => Reason::ReadonlyOnly { why: chain(why) },
        Error::Stopped(_) => Reason::Suspended,
        Error::Pool(_) | Error::Object(_) | Error::Volume(_) | Error::Log(_) => io(error),
        Error::ReplayFiles(_) | Error::ReplayVolume(_) => io(error),
        Error::Dataset(error) => of_dsl(error),
        Error::Key(error) => of_key(error),
        Error::File(error) => of_zpl(error),
        Error::Empty { .. } => Reason::BadType,
        Error::ReadOnly => Reason::PoolReadonly,
    }
}

/// The reason for a failure to open a pool for writing.
pub(crate) fn of_open(failure: &spa::import::OpenFailure) -> Reason {
    match failure {
        spa::import::OpenFailure::Import(failure) => of_spa(failure),
        spa::import::OpenFailure::Refused(why) => Reason::ReadonlyOnly { why: chain(why) },
    }
}

/// The reason for a failed import, with what the import found out.
pub(crate) fn of_spa(failure: &spa::Failure) -> Reason {
    use spa::SpaError;
    let error = &failure.error;
    let info = Box::new(load_info(failure));
    match error {
        SpaError::InUse(_) => Reason::DevicesInUse,
        SpaError::Config(_) => Reason::InvalidConfig,
        SpaError::Active { .. } | SpaError::NoHostid => Reason::Active(info),
        SpaError::ForceRequired { hostname, hostid, timestamp } => {
            Reason::UsedElsewhere { hostname: hostname.clone(), hostid: *hostid, timestamp: *timestamp }
        }
        SpaError::Version { .. } | SpaError::UnsupportedFeatures { .. } => Reason::Unsupported(info),
        // OpenZFS reports these as `ENXIO`.
        SpaError::MissingLogs { .. }
        | SpaError::CantOpen { .. }
        | SpaError::NoUberblock
        | SpaError::NoLabel
        | SpaError::BadGuidSum { .. } => Reason::MissingDevices(info),
        SpaError::Mos { .. }
        | SpaError::Corrupt { .. }
        | SpaError::TrustedConfig(_)
        | SpaError::Mapping { .. }
        | SpaError::Damaged { .. } => Reason::Io { what: chain(error), info },
        SpaError::Interrupted => Reason::System { errno: Errno::INTR.raw_os_error() },
        SpaError::NoCheckpoint => Reason::NoCheckpoint,
    }
}

fn load_info(failure: &spa::Failure) -> LoadInfo {
    use spa::SpaError;
    let mut info = LoadInfo::default();
    match &failure.error {
        SpaError::UnsupportedFeatures { features, can_readonly } => {
            info.unsup_features =
                features.iter().map(|feature| (feature.guid.clone(), feature.description.clone())).collect();
            info.can_rdonly = *can_readonly;
        }
        SpaError::Active { hostname, hostid } => {
            info.mmp = MmpState::Active;
            info.mmp_host = Host { name: hostname.clone(), id: *hostid };
        }
        SpaError::NoHostid => info.mmp = MmpState::NoHostid,
        SpaError::MissingLogs { logs } => info.missing_devices = crate::view::missing(logs),
        _ => {}
    }
    info.rewind = failure.rewind.map(|state| RewindInfo {
        load_time: state.timestamp,
        seconds_lost: i64::try_from(state.lost_secs).ok(),
        data_errors: Some(state.data_errors),
    });
    info
}
