//! The replies for failures of the engine.
//!
//! Each error of the layers below has one function here. It lists all variants, so a new variant
//! does not compile until it has a reply. Damaged data becomes [`Reason::Corrupt`], and a device
//! that fails becomes [`Reason::Io`]: [`of_engine`] tells them apart by the chain of causes.

use std::error::Error;

use api::{
    DeviceRefusal, Host, LoadInfo, MmpState, PoolState, Reason, Refusal, RewindInfo, StreamFault, chain,
};
use rustix::io::Errno;
use spa::create::CreateError;
use spa::engine::{CheckpointError, ClearError, LifeError, ScanRefusal, ShapeError, WorkRefusal};
use spa::import::WriteRefusal;
use spa::{SplitError, Unfit};

fn io(error: &dyn Error) -> Reason {
    Reason::Io { what: chain(error), info: Box::default() }
}

fn corrupt(error: &dyn Error) -> Reason {
    Reason::Corrupt { what: chain(error), info: Box::default() }
}

/// Whether a failed read of a block is damaged data.
fn of_block(error: &zio::Error) -> bool {
    use zio::Error;
    match error {
        Error::Place { .. } | Error::Checksum { .. } | Error::Decode { .. } | Error::Corrupt { .. } => true,
        Error::Io { .. }
        | Error::Key { .. }
        | Error::Encode { .. }
        | Error::NoSpace { .. }
        | Error::Write { .. }
        | Error::Suspended { .. }
        | Error::Redacted { .. } => false,
    }
}

/// The same for an object. `None`: the error does not say it itself, and its cause may.
fn of_object(error: &dmu::Error) -> Option<bool> {
    use dmu::Error;
    match error {
        Error::Read(error) => Some(of_block(error)),
        Error::Corrupt { .. } | Error::Misplaced { .. } => Some(true),
        Error::NoSuchObject { .. }
        | Error::Fixed { .. }
        | Error::ObjectExists { .. }
        | Error::NoObjects { .. }
        | Error::BlockSize { .. }
        | Error::Unsynced { .. }
        | Error::CloneShape { .. }
        | Error::PackedShape { .. }
        | Error::DnodesShape { .. }
        | Error::DnodesTree { .. }
        | Error::BonusLength { .. }
        | Error::EntryExists { .. }
        | Error::NoEntry { .. }
        | Error::EntryName { .. }
        | Error::EntryValue { .. }
        | Error::ZapFull { .. }
        | Error::Attributes { .. } => None,
    }
}

/// Whether this is damaged data, and not a failure of a device. `None`: the error does not say it
/// itself, and its cause may.
fn is_damage(error: &(dyn Error + 'static)) -> Option<bool> {
    // An error that is transparent hides the one in it from the chain of causes.
    if let Some(error) = error.downcast_ref::<zio::Error>() {
        Some(of_block(error))
    } else if let Some(error) = error.downcast_ref::<dmu::Error>() {
        of_object(error)
    } else if let Some(pool::Error::Object(error)) = error.downcast_ref() {
        of_object(error)
    } else if let Some(dsl::Error::Object(error) | dsl::Error::Pool(pool::Error::Object(error))) =
        error.downcast_ref()
    {
        of_object(error)
    } else if let Some(zpl::Error::Dmu(error)) = error.downcast_ref() {
        of_object(error)
    } else if let Some(zvol::Error::Dmu(error)) = error.downcast_ref() {
        of_object(error)
    } else if let Some(poolhouse::Error::Object(error)) = error.downcast_ref() {
        of_object(error)
    } else if let Some(poolhouse::Error::Pool(pool::Error::Object(error))) = error.downcast_ref() {
        of_object(error)
    } else if let Some(poolhouse::Error::Volume(error)) = error.downcast_ref() {
        is_damage(error)
    } else {
        error.is::<ondisk::Corrupt>().then_some(true)
    }
}

/// Whether a failure is one of damaged data.
fn is_corrupt(error: &(dyn Error + 'static)) -> bool {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(damage) = is_damage(error) {
            return damage;
        }
        cause = error.source();
    }
    false
}

/// The reason for a failed read or write below the datasets: damaged data is kept apart from
/// devices that fail.
pub(crate) fn of_engine(error: &(dyn Error + 'static)) -> Reason {
    if is_corrupt(error) { corrupt(error) } else { io(error) }
}

/// The reason for a failure of the dataset layer.
pub(crate) fn of_dsl(error: &dsl::Error) -> Reason {
    match error {
        dsl::Error::Object(_) | dsl::Error::Pool(_) => of_engine(error),
        dsl::Error::Corrupt { .. } => corrupt(error),
        dsl::Error::NoSuchDataset { .. } => Reason::NoSuchDataset,
        dsl::Error::BadName { .. } => Reason::InvalidName,
        dsl::Error::NoSuchProperty { property, .. } => Reason::BadProperty { property: property.clone() },
        dsl::Error::BadProperty { why, .. } => Reason::BadValue { what: why.to_string() },
        dsl::Error::Refused { why: dsl::Refusal::Stream(what), .. } => {
            Reason::Stream { fault: StreamFault::Invalid, what: (*what).to_owned() }
        }
        dsl::Error::Refused { why: dsl::Refusal::RawStream(what), .. } => {
            Reason::Stream { fault: StreamFault::Encryption, what: (*what).to_owned() }
        }
        dsl::Error::Refused { why, .. } => Reason::Refused { why: refusal(*why) },
        dsl::Error::Several(errors) => match errors.first() {
            Some(first) => of_dsl(first),
            None => io(error),
        },
        dsl::Error::Key { why: dsl::KeyRefusal::NotLoaded, .. } => {
            Reason::Refused { why: Refusal::ParentKeyNotLoaded }
        }
        dsl::Error::Key { why, .. } => Reason::BadValue { what: why.to_string() },
        dsl::Error::Contents { .. } => of_engine(error),
    }
}

/// The protocol's value for an engine's refusal.
fn refusal(why: dsl::Refusal) -> Refusal {
    use dsl::Refusal as R;
    match why {
        R::Exists => Refusal::Exists,
        R::NoParent => Refusal::NoParent,
        R::WrongParent => Refusal::WrongParent,
        R::Busy => Refusal::Busy,
        R::HasSnapshots => Refusal::HasSnapshots,
        R::HasChildren => Refusal::HasChildren,
        R::HasClones => Refusal::HasClones,
        R::Held => Refusal::Held,
        R::NamesCollide => Refusal::NamesCollide,
        R::NoSpace => Refusal::NoSpace,
        R::Quota => Refusal::Quota,
        R::Inconsistent => Refusal::Inconsistent,
        R::Again => Refusal::Again,
        R::ReadOnly => Refusal::ReadOnly,
        R::NotSnapshot => Refusal::NotSnapshot,
        R::NotHead => Refusal::NotHead,
        R::NotClone => Refusal::NotClone,
        R::CrossDevice => Refusal::CrossDevice,
        R::Recursive => Refusal::Recursive,
        R::Root => Refusal::Root,
        R::NameTooLong => Refusal::NameTooLong,
        R::TooDeep => Refusal::TooDeep,
        R::SnapshotConflict => Refusal::SnapshotConflict,
        R::NotLatest => Refusal::NotLatest,
        R::NoSnapshot => Refusal::NoSnapshot,
        R::TagExists => Refusal::TagExists,
        R::NoTag => Refusal::NoTag,
        R::TagTooLong => Refusal::TagTooLong,
        R::TooManySnapshots => Refusal::TooManySnapshots,
        R::Feature(_) => Refusal::Feature,
        R::NotBefore => Refusal::NotBefore,
        // Where its text counts, `of_dsl` keeps it.
        R::NotSource | R::Stream(_) | R::RawStream(_) => Refusal::NotSource,
        R::Modified => Refusal::Modified,
        R::LargeBlocks => Refusal::LargeBlocks,
        R::ResumeExists => Refusal::ResumeExists,
        R::BadGrant => Refusal::BadGrant,
    }
}

/// The subject and the reason of a failed operation.
pub(crate) fn error_of(about: &str, error: &dsl::Error) -> api::Error {
    let name = match error {
        dsl::Error::Refused { name, .. }
        | dsl::Error::NoSuchDataset { name }
        | dsl::Error::BadName { name, .. }
        | dsl::Error::BadProperty { name, .. }
        | dsl::Error::Key { name, .. }
        | dsl::Error::Contents { name, .. } => name,
        _ => about,
    };
    match error {
        dsl::Error::Several(errors) => {
            let errors = errors.iter().map(|e| error_of(about, e)).collect();
            api::Error::new(about, Reason::Several { errors })
        }
        _ => api::Error::new(name, of_dsl(error)),
    }
}

/// The reason for a failure of a file system.
pub(crate) fn of_zpl(error: &zpl::Error) -> Reason {
    match error {
        zpl::Error::Dmu(_) => of_engine(error),
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
        // The daemon itself walks only what a file system refers to: what that lacks is damaged.
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
    if error.is_busy() {
        return Reason::Busy;
    }
    match error {
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

/// The reason for a failure to send.
pub(crate) fn of_send(error: &stream::SendError) -> Reason {
    use stream::SendError;
    let read = |error: &zio::Error| match error {
        zio::Error::Key { .. } => Some(Reason::KeyNotLoaded),
        zio::Error::Suspended { .. } => Some(Reason::Suspended),
        _ => None,
    };
    let known = match error {
        SendError::Dataset(error) => Some(of_dsl(error)),
        SendError::NotEarlier => Some(Reason::Refused { why: Refusal::NotBefore }),
        SendError::Empty(_) => Some(Reason::BadType),
        SendError::LargeMicrozap => Some(Reason::LargeMicrozap),
        SendError::Incomplete | SendError::NotPartial(_) => {
            Some(Reason::System { errno: Errno::INVAL.raw_os_error() })
        }
        SendError::OldKeys => Some(Reason::NotSupported { what: error.to_string() }),
        SendError::Walk(dmu::Error::Read(source)) | SendError::Block { source, .. } => read(source),
        SendError::Walk(_) => None,
        SendError::Write(error) => error.raw_os_error().map(|errno| Reason::System { errno }),
    };
    known.unwrap_or_else(|| of_engine(error))
}

/// The reason why a snapshot is not redacted.
pub(crate) fn of_redact(error: &stream::RedactError) -> Reason {
    use stream::RedactError as E;
    let system = |errno: Errno| Reason::System { errno: errno.raw_os_error() };
    match error {
        E::Dataset(error) => of_dsl(error),
        E::NotSnapshot | E::NotDescendant(_) => system(Errno::INVAL),
        E::OtherPool(_) => system(Errno::XDEV),
        E::Redacted(_) => system(Errno::ALREADY),
        E::Exists => system(Errno::EXIST),
        E::Mismatched => system(Errno::SRCH),
        E::NameTooLong => system(Errno::NAMETOOLONG),
        E::Walk(dmu::Error::Read(zio::Error::Key { .. })) => Reason::KeyNotLoaded,
        E::Walk(_) => of_engine(error),
        E::Thread(source) => {
            source.raw_os_error().map_or_else(|| io(error), |errno| Reason::System { errno })
        }
        E::Stopped(_) => Reason::Suspended,
    }
}

/// The reason for a failure to receive.
pub(crate) fn of_receive(error: &stream::ReceiveError) -> Reason {
    use stream::ReceiveError;
    match error {
        ReceiveError::Stream(error) => of_stream(error),
        ReceiveError::Record { .. } => Reason::Stream { fault: StreamFault::Invalid, what: chain(error) },
        ReceiveError::Feature(what) => {
            Reason::Stream { fault: StreamFault::Feature, what: (*what).to_owned() }
        }
        ReceiveError::Incompatible(what) => {
            Reason::Stream { fault: StreamFault::Feature, what: (*what).to_owned() }
        }
        ReceiveError::NotRestored { .. } => {
            Reason::Stream { fault: StreamFault::Checksum, what: chain(error) }
        }
        ReceiveError::Refused(error) => of_dsl(error),
        ReceiveError::Pool(source) => of_engine(source.as_ref()),
        ReceiveError::Resumable { source } => Reason::Kept { reason: Box::new(of_receive(source)) },
    }
}

/// The reason why a stream can't be used.
fn of_stream(error: &stream::Error) -> Reason {
    use stream::Error;
    let fault = match error {
        Error::Io { source, .. } | Error::Write { source, .. } => {
            return match source.raw_os_error() {
                Some(errno) => Reason::System { errno },
                None => Reason::Daemon { what: chain(error) },
            };
        }
        Error::Empty { .. } | Error::Truncated { .. } => StreamFault::Truncated,
        Error::Checksum { .. } => StreamFault::Checksum,
        Error::Magic { .. } | Error::Record { .. } | Error::Order { .. } => StreamFault::Invalid,
    };
    Reason::Stream { fault, what: chain(error) }
}

/// The reason for a failure of the library.
pub(crate) fn of_library(error: &poolhouse::Error) -> Reason {
    use poolhouse::Error;
    match error {
        Error::NoPool { .. } | Error::NoSuchPool { .. } | Error::SeveralPools { .. } => Reason::NoSuchImport,
        Error::Import(failure) => of_spa(failure),
        Error::Create(error) => of_create(error),
        Error::Refused(why) => Reason::ReadonlyOnly { why: chain(why) },
        Error::Stopped(_) => Reason::Suspended,
        Error::Pool(_) | Error::Object(_) | Error::Volume(_) | Error::Log(_) => of_engine(error),
        Error::ReplayFiles(_) | Error::ReplayVolume(_) => of_engine(error),
        Error::Dataset(error) => of_dsl(error),
        Error::Key(error) => of_key(error),
        Error::File(error) => of_zpl(error),
        Error::Send(error) => of_send(error),
        Error::Receive(error) => of_receive(error),
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

/// The reason why devices could not become vdevs of a pool.
pub(crate) fn of_create(error: &CreateError) -> Reason {
    match error {
        CreateError::Open { source, .. } => match device_errno(source) {
            Some(errno) => Reason::DeviceOpen { errno },
            None => Reason::DeviceTwice,
        },
        CreateError::TooSmall { .. } => Reason::DeviceTooSmall,
        CreateError::InUse { pool, .. } => {
            Reason::DeviceOfPool { pool: pool.clone(), state: PoolState::PotentiallyActive }
        }
        CreateError::Twice { .. } => Reason::DeviceTwice,
        CreateError::Shape { .. } | CreateError::NoData => Reason::InvalidConfig,
        CreateError::OldPool => Reason::BadValue { what: error.to_string() },
        CreateError::Ashift { .. } => Reason::BadAshift,
        CreateError::Write(_) => of_engine(error),
    }
}

/// The system's error number in the causes of an error, if it is there.
fn device_errno(error: &(dyn Error + 'static)) -> Option<i32> {
    let causes = std::iter::successors(Some(error), |e| (**e).source());
    causes.into_iter().find_map(|e| e.downcast_ref::<std::io::Error>().and_then(std::io::Error::raw_os_error))
}

/// The reason for a refused change of a pool.
pub(crate) fn of_shape(error: &ShapeError) -> Reason {
    match error {
        ShapeError::Stopped(_) => Reason::Suspended,
        ShapeError::Devices(e) => of_create(e),
        ShapeError::AshiftMismatch { .. } => Reason::AshiftMismatch,
        ShapeError::Unhealthy => Reason::MissingDevices(Box::default()),
        ShapeError::Busy { .. } => Reason::Busy,
        ShapeError::NoRoom => Reason::Refused { why: Refusal::NoSpace },
        ShapeError::NamesCollide => Reason::Refused { why: Refusal::NamesCollide },
        ShapeError::CheckpointExists => Reason::CheckpointExists,
        ShapeError::DiscardingCheckpoint => Reason::DiscardingCheckpoint,
        ShapeError::Guid { .. } => Reason::BadGuid,
        ShapeError::Unsupported { what } => Reason::NotSupported { what: (*what).to_owned() },
        ShapeError::Tree(vdev::VdevError::NoSuchGuid { .. }) => Reason::NoSuchDevice,
        ShapeError::Labels(_) | ShapeError::Metadata(_) | ShapeError::Tree(_) => of_engine(error),
    }
}

/// Why a device was not changed.
///
/// Most failures become [`Reason::Device`] with the [`DeviceRefusal`] of the same name. Those of
/// the vdev tree become what [`of_shape`] gives for them.
pub(crate) fn of_life(error: &LifeError) -> Reason {
    let device = |why| Reason::Device { why };
    match error {
        LifeError::Shape(ShapeError::Devices(e)) => match of_create(e) {
            // Another pool or process uses the device.
            Reason::DeviceTwice => device(DeviceRefusal::InUse),
            Reason::DeviceTooSmall => device(DeviceRefusal::TooSmall),
            reason => reason,
        },
        LifeError::Shape(e) => of_shape(e),
        LifeError::NotLeaf { .. } => device(DeviceRefusal::NotLeaf),
        LifeError::NoReplicas { .. } => device(DeviceRefusal::NoReplicas),
        LifeError::SplitOff { .. } => device(DeviceRefusal::SplitOff),
        LifeError::Target { .. } => device(DeviceRefusal::Target),
        LifeError::TooSmall { .. } => device(DeviceRefusal::TooSmall),
        LifeError::Ashift { .. } => device(DeviceRefusal::Ashift),
        LifeError::InUse => device(DeviceRefusal::InUse),
        LifeError::OnlySpare { .. } => device(DeviceRefusal::OnlySpare),
        LifeError::NotMirror { .. } => device(DeviceRefusal::NotMirror),
        LifeError::Resilvering => device(DeviceRefusal::Resilvering),
        LifeError::Rebuilding => device(DeviceRefusal::Rebuilding),
        LifeError::NotSequential { .. } => device(DeviceRefusal::NotSequential),
        LifeError::RebuildDisabled => device(DeviceRefusal::RebuildDisabled),
    }
}

/// The reason for a refused operation on a checkpoint.
pub(crate) fn of_checkpoint(error: &CheckpointError) -> Reason {
    match error {
        CheckpointError::Stopped(_) => Reason::Suspended,
        CheckpointError::Feature => Reason::System { errno: Errno::NOTSUP.raw_os_error() },
        CheckpointError::Exists => Reason::CheckpointExists,
        CheckpointError::Discarding => Reason::DiscardingCheckpoint,
        CheckpointError::Absent => Reason::NoCheckpoint,
        CheckpointError::Metadata(_) => of_engine(error),
    }
}

/// The reason for a refused split.
pub(crate) fn of_split(error: &SplitError) -> Reason {
    match error {
        SplitError::Shape(e) => of_shape(e),
        SplitError::Unfit(Unfit::NotMirror { .. } | Unfit::Devices) => {
            Reason::System { errno: Errno::INVAL.raw_os_error() }
        }
        SplitError::Unfit(Unfit::Busy { .. }) | SplitError::Open(WriteRefusal::Unreplayed { .. }) => {
            Reason::Busy
        }
        SplitError::Unfit(Unfit::Tree(_)) | SplitError::Load(_) | SplitError::Open(_) => of_engine(error),
    }
}

/// The reason why errors of a pool were not cleared.
pub(crate) fn of_clear(error: ClearError) -> Reason {
    match error {
        ClearError::Vdev(error) => of_shape(&error.into()),
        ClearError::Shape(error) => of_shape(&error),
        ClearError::Active(_) => Reason::System { errno: Errno::REMOTEIO.raw_os_error() },
    }
}

/// The reason for a refused scrub or resilver.
pub(crate) fn of_scan(error: &ScanRefusal) -> Reason {
    let system = |errno: Errno| Reason::System { errno: errno.raw_os_error() };
    match error {
        ScanRefusal::Idle => system(Errno::NOENT),
        ScanRefusal::Busy => system(Errno::BUSY),
        ScanRefusal::Unsupported { .. } => system(Errno::NOTSUP),
        ScanRefusal::Stopped(_) => Reason::Suspended,
    }
}

/// The reason why a device is neither initialized nor trimmed (`spa_vdev_initialize_impl`,
/// `spa_vdev_trim_impl`).
pub(crate) fn of_work(why: WorkRefusal) -> Reason {
    let errno = match why {
        WorkRefusal::NoDevice => Errno::NODEV,
        WorkRefusal::NotLeaf => Errno::INVAL,
        WorkRefusal::NotWritable => Errno::ROFS,
        WorkRefusal::Unsupported => Errno::OPNOTSUPP,
        WorkRefusal::Busy => Errno::BUSY,
        WorkRefusal::Idle => Errno::SRCH,
    };
    Reason::System { errno: errno.raw_os_error() }
}

/// The reason for a failure to serve a volume.
pub(crate) fn of_nbd(error: &nbd::Error) -> Reason {
    match error {
        nbd::Error::NoExport { .. } => Reason::BadType,
        nbd::Error::Busy { .. } => Reason::Busy,
        nbd::Error::ReadOnly => Reason::System { errno: Errno::ROFS.raw_os_error() },
        nbd::Error::Volume(error) => of_zvol(error),
        nbd::Error::System { source, .. } => {
            Reason::System { errno: source.raw_os_error().unwrap_or(Errno::IO.raw_os_error()) }
        }
        nbd::Error::Open { .. } => of_engine(error),
        nbd::Error::Tls(_) => Reason::BadValue { what: chain(error) },
        // Requests of a client: the client gets the answer, and no command does.
        nbd::Error::PastEnd { .. }
        | nbd::Error::BadRequest { .. }
        | nbd::Error::TooLong { .. }
        | nbd::Error::NotFast => Reason::Daemon { what: chain(error) },
    }
}

/// The reason for a failure of a volume.
pub(crate) fn of_zvol(error: &zvol::Error) -> Reason {
    match error {
        zvol::Error::Dmu(_) => of_engine(error),
        zvol::Error::Corrupt(_) => corrupt(error),
        zvol::Error::NotVolume => Reason::BadType,
        zvol::Error::BadSize { block, .. } => {
            Reason::BadValue { what: dsl::PropError::NotMultiple(*block).to_string() }
        }
        zvol::Error::ReadOnly => Reason::System { errno: Errno::ROFS.raw_os_error() },
        zvol::Error::NoSpace => Reason::System { errno: Errno::NOSPC.raw_os_error() },
        zvol::Error::Quota => Reason::System { errno: Errno::DQUOT.raw_os_error() },
        zvol::Error::Stopped { .. } => Reason::Suspended,
        zvol::Error::PastEnd { .. } => Reason::Daemon { what: chain(error) },
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
        SpaError::Corrupt { .. } | SpaError::Damaged { .. } => Reason::Corrupt { what: chain(error), info },
        SpaError::Mos { .. } | SpaError::TrustedConfig(_) | SpaError::Mapping { .. } => {
            let what = chain(error);
            if is_corrupt(error) { Reason::Corrupt { what, info } } else { Reason::Io { what, info } }
        }
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
        SpaError::MissingLogs { logs } => info.missing_devices = crate::view::candidate::missing(logs),
        _ => {}
    }
    info.rewind = failure.rewind.map(|state| RewindInfo {
        load_time: state.timestamp,
        seconds_lost: i64::try_from(state.lost_secs).ok(),
        data_errors: Some(state.data_errors),
    });
    info
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: damaged data is `Corrupt` however deep it was found; a device that fails is `Io`.
    #[test]
    fn damage_is_no_failure_of_a_device() {
        let place = zio::Bookmark {
            objset: 54,
            object: ondisk::ObjNum(3),
            level: ondisk::Level(0),
            blkid: ondisk::BlkId(0),
        };
        let damaged = || zio::Error::Corrupt {
            bookmark: place,
            source: ondisk::Corrupt::Magic { what: "a gang header", found: 7 },
        };
        let dva = ondisk::Dva {
            vdev: ondisk::VdevId(0),
            offset: ondisk::Offset(0),
            asize: ondisk::Asize(512),
            gang: false,
        };
        let unread = || zio::Error::Io { bookmark: place, dva, unread: 1, source: None };
        let of = |error: zio::Error| of_dsl(&dsl::Error::Object(dmu::Error::Read(error)));
        assert!(matches!(of(damaged()), Reason::Corrupt { .. }));
        assert!(matches!(of(unread()), Reason::Io { .. }));
        let lost = dmu::Error::Misplaced {
            objset: 54,
            object: ondisk::ObjNum(3),
            level: ondisk::Level(1),
            blkid: ondisk::BlkId(0),
        };
        assert!(matches!(of_dsl(&dsl::Error::Object(lost)), Reason::Corrupt { .. }));
        let pool = |error: zio::Error| of_library(&poolhouse::Error::Pool(dmu::Error::Read(error).into()));
        assert!(matches!(pool(damaged()), Reason::Corrupt { .. }));
        assert!(matches!(pool(unread()), Reason::Io { .. }));
        let file = |error: zio::Error| of_zpl(&zpl::Error::Dmu(dmu::Error::Read(error)));
        assert!(matches!(file(damaged()), Reason::Corrupt { .. }));
        assert!(matches!(file(unread()), Reason::Io { .. }));
    }
}
