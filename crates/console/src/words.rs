//! The reasons of the API in OpenZFS's words (`libzfs_error_description`).

use api::{DeviceRefusal, LoadInfo, MmpState, Reason, Refusal, RewindInfo, Unmounts};

use crate::Clock;

#[cfg(test)]
mod tests;

/// Why a pool can't be exported or destroyed: one of its datasets, and what uses that.
pub fn pool_is_busy(dataset: &str, by: &str) -> String {
    format!("pool is busy: '{dataset}' is in use by {by}")
}

/// The text that follows `cannot VERB 'NAME': `.
pub fn reason(reason: &Reason, clock: &Clock) -> String {
    match reason {
        Reason::BadProperty { property } => format!("invalid property '{property}'"),
        Reason::UsedElsewhere { hostname, hostid, timestamp } => format!(
            "pool was previously in use from another system.\nLast accessed by {} (hostid={hostid:x}) at {}\n\
             The pool can be imported, use 'zpool import -f' to import the pool.",
            hostname.as_deref().unwrap_or("<unknown>"),
            clock.ctime(*timestamp),
        ),
        Reason::Active(info) => active(info),
        Reason::ReadonlyOnly { why } => {
            format!("this release can't write it: {why}\nThe pool can be imported using '-o readonly=on'.")
        }
        Reason::NotWritable { device, errno: number } => format!(
            "cannot write {device}: {}\nThe pool can be imported using '-o readonly=on'.",
            errno(*number)
        ),
        Reason::Corrupt { what, .. } | Reason::Io { what, .. } if !what.is_empty() => {
            format!("I/O error: {what}")
        }
        Reason::Corrupt { .. } | Reason::Io { .. } => "I/O error".into(),
        Reason::NotEncryptionRoot { root } => format!("Keys must be loaded for encryption root ({root})"),
        Reason::HeldOpen { by } => format!("dataset is busy: in use by {by}"),
        Reason::InTheWay { dataset, by, why } => in_the_way("rollback", dataset, by.as_deref(), *why),
        Reason::MountpointLost { at, errno: number, by } => {
            let by = by.as_ref().map(|by| format!("; it was in use by {by}")).unwrap_or_default();
            format!("{at} can't be made again ({}){by}", errno(*number))
        }
        Reason::ServedOverAfs { partition, volume } => served_over_afs(partition, *volume),
        Reason::InTransaction { volume, transaction, call } => format!(
            "AFS volume {volume} is in transaction {transaction} ({call}); wait for its end, or end it \
             with 'vos endtrans -server HOST -transaction {transaction}'"
        ),
        Reason::AlreadyAttached { at } => format!("already attached, as {at}"),
        Reason::MountpointNotMade { errno: number } => {
            format!("failed to create mountpoint: {}", errno(*number))
        }
        Reason::BadMountOption { option } => format!("invalid mount option '{option}'"),
        Reason::Device { why } => device(*why).into(),
        Reason::System { errno: number } | Reason::DeviceOpen { errno: number } => errno(*number),
        Reason::Refused { why } => refusal(*why).into(),
        Reason::BadValue { what } => what.clone(),
        Reason::Several { errors } => {
            errors.first().map_or_else(|| "unknown error".into(), |e| self::reason(&e.reason, clock))
        }
        Reason::DeviceOfPool { pool, .. } => format!("one or more devices are part of the pool '{pool}'"),
        Reason::Nameless { files } => {
            let mut text =
                "files that it is kept in have been removed, and are gone once it is exported:".to_owned();
            for file in files {
                text += &format!("\n\t{}, still readable as {}", file.path, file.still);
            }
            text + "\nUse 'zpool replace', or copy them while nothing is written; 'zpool export -f' gives them up."
        }
        Reason::BadRequest { what }
        | Reason::Daemon { what }
        | Reason::Afs { what }
        | Reason::Program { what }
        | Reason::NotInEffect { what, .. } => what.clone(),
        Reason::Stream { what, .. } => format!("invalid backup stream: {what}"),
        Reason::Kept { reason } => self::reason(reason, clock),
        Reason::NotSupported { what } => format!("{what} is not in this release"),
        one_text => fixed(one_text).map_or_else(|| format!("{one_text:?}"), str::to_owned),
    }
}

/// The text for what the AFS server has. It leads to what can be done meanwhile.
fn served_over_afs(partition: &str, volume: Option<u32>) -> String {
    match volume {
        Some(volume) => format!(
            "AFS serves it as volume {volume}; use 'vos' to change it, and 'zfs mount' or a snapshot of it \
             to read it; 'poolhouse afs disable {partition}' ends the service"
        ),
        None => format!("AFS serves '{partition}'; use 'poolhouse afs disable {partition}' first"),
    }
}

/// The text for `work`, a rollback or receive, that has to unmount a file system that is in use.
pub fn in_the_way(work: &str, dataset: &str, by: Option<&str>, why: Unmounts) -> String {
    let by = by.map(|by| format!(" by {by}")).unwrap_or_default();
    format!(
        "dataset is busy: {}, so that the {work} has to unmount '{dataset}', which is in use{by}; \
         end that, and try again",
        unmounts(why)
    )
}

/// The text of a reason that has only one, whatever it is about. A test holds that none without
/// fields is missing.
fn fixed(reason: &Reason) -> Option<&'static str> {
    Some(match reason {
        Reason::NoSuchPool => "no such pool",
        Reason::NoSuchDataset => "dataset does not exist",
        Reason::NoSuchImport => "no such pool available",
        Reason::InvalidName => "invalid name",
        Reason::BadType => "operation not applicable to datasets of this type",
        Reason::Permission => "permission denied",
        Reason::DelegationOff => "delegated administration is disabled on pool",
        Reason::PoolExists => "a pool with that name already exists",
        Reason::Busy => "pool or dataset is busy",
        Reason::DevicesInUse => "one or more devices are already in use\n",
        Reason::Unsupported(_) => "unsupported version or feature",
        Reason::MissingDevices(_) => "one or more devices is currently unavailable",
        Reason::NoCheckpoint => "checkpoint does not exist",
        Reason::CheckpointExists => "checkpoint exists",
        Reason::DiscardingCheckpoint => "currently discarding checkpoint",
        Reason::InvalidConfig => "invalid vdev configuration",
        Reason::PoolReadonly => "pool is read-only",
        Reason::LegacyMountpoint => "legacy mountpoint",
        Reason::NoMountpoint => "no mountpoint set",
        Reason::CanmountOff => "'canmount' property is set to 'off'",
        Reason::Zoned => "dataset is exported to a local zone",
        Reason::KeyNotLoaded => "encryption key not loaded",
        Reason::KeyLoaded => "Key already loaded",
        Reason::WrongKey => "Incorrect key provided",
        Reason::BadKey => "Invalid key",
        Reason::NotEncrypted => "dataset is not encrypted",
        Reason::PartiallyReceived => {
            "Contains partially-completed state from \"zfs receive -s\", which can be resumed with \
                                      \"zfs send -t\""
        }
        Reason::Redacted => "Dataset is not complete, was created by receiving a redacted zfs send stream.",
        Reason::AlreadyMounted => "filesystem already mounted",
        Reason::NotMounted => "not currently mounted",
        Reason::NotOffered => "not exported",
        Reason::NotAttached => "not attached",
        Reason::NotAfs => "not a partition of AFS; 'poolhouse afs status' lists them",
        Reason::MountpointNotEmpty => "directory is not empty",
        Reason::NobodyElse => "allow_other takes the line 'user_allow_other' in /etc/fuse.conf",
        Reason::NotAMountpoint => "not a mountpoint",
        Reason::DeviceTooSmall => "one or more devices is less than the minimum size (64M)",
        Reason::DeviceTwice => {
            "one or more vdevs refer to the same device, or one of\nthe devices is part of an active md or lvm device"
        }
        Reason::BadAshift => "block size out of range or does not match",
        Reason::AshiftMismatch => "adding devices with different physical sector sizes is not allowed",
        Reason::NoSuchDevice => "no such device in pool",
        Reason::BadGuid => "invalid guid",
        Reason::Suspended => "pool I/O is currently suspended",
        Reason::LargeMicrozap => {
            "source snapshot contains large microzaps, need -L (--large-block) or -w (--raw) to \
             generate stream"
        }
        Reason::TooMuch => {
            "the answer would take more memory or time than the daemon gives to other users; \
             ask for fewer datasets or properties at once"
        }
        Reason::Silent => "its devices do not answer",
        Reason::NoSuchMethod => "the daemon is of another version",
        _ => return None,
    })
}

/// Why an operation is refused (`zfs_standard_error`, and libzfs's texts for single operations).
pub fn refusal(why: Refusal) -> &'static str {
    match why {
        Refusal::Exists => "dataset already exists",
        Refusal::NoParent => "parent does not exist",
        Refusal::WrongParent => "parent is not a filesystem",
        Refusal::Busy | Refusal::Inconsistent | Refusal::Again => "dataset is busy",
        Refusal::HasSnapshots | Refusal::HasChildren => "filesystem has children",
        Refusal::HasClones => "snapshot has dependent clones",
        Refusal::Held => "dataset is busy",
        Refusal::NoSpace | Refusal::Quota => "out of space",
        Refusal::ReadOnly => "dataset is read-only",
        Refusal::NotSnapshot | Refusal::NotHead => "operation not applicable to datasets of this type",
        Refusal::NotClone => "not a cloned filesystem",
        Refusal::CrossDevice => "datasets must be within same pool",
        Refusal::Recursive => "New dataset name cannot be a descendant of current dataset name",
        Refusal::Root => "operation does not apply to pools",
        Refusal::NameTooLong => "dataset name is too long",
        Refusal::TooDeep => "maximum name nesting depth exceeded",
        Refusal::SnapshotConflict => "conflicting snapshot name from parent",
        Refusal::NotLatest => "more recent snapshots or bookmarks exist",
        Refusal::NoSnapshot => "dataset has no snapshots",
        Refusal::TagExists => "tag already exists on this dataset",
        Refusal::NoTag => "no such tag on this dataset",
        Refusal::TagTooLong => "tag too long",
        Refusal::NamesCollide => "too many names in its list collide with this one; choose another name",
        Refusal::TooManySnapshots => "too many redaction snapshots specified",
        Refusal::Feature => "pool must be upgraded to set this property or value",
        Refusal::NotSource => "most recent snapshot does not\nmatch incremental source",
        Refusal::Modified => "destination has been modified\nsince most recent snapshot",
        Refusal::LargeBlocks => {
            "incremental send stream requires -L (--large-block), to match previous receive."
        }
        Refusal::ResumeExists => "Resuming recv on existing dataset without force",
        Refusal::BadGrant => "operation not applicable to datasets of this type",
        Refusal::NotBefore => "not an earlier snapshot from the same fs",
        Refusal::ParentKeyNotLoaded => "encryption root's key is not loaded or provided",
        Refusal::Key => "encryption failure",
    }
}

/// The system's text for an I/O error.
pub fn io(error: &std::io::Error) -> String {
    api::plain(&error.to_string())
}

/// The system's text for an error number (`strerror`).
pub fn errno(errno: i32) -> String {
    io(&std::io::Error::from_raw_os_error(errno))
}

fn active(info: &LoadInfo) -> String {
    match info.mmp {
        MmpState::NoHostid => {
            "pool has the multihost property on and the\nsystem's hostid is not set. Set a unique system \
                               hostid with the zgenhostid(8) command.\n"
                .into()
        }
        MmpState::Active | MmpState::Inactive => format!(
            "pool is imported on host '{}' (hostid={:x}).\nExport the pool on the other system, then run 'zpool import'.",
            info.mmp_host.name.as_deref().unwrap_or("<unknown>"),
            info.mmp_host.id.unwrap_or(0),
        ),
    }
}

/// What can still be done for a pool that can't be opened (`zpool_explain_recover`).
pub fn recover(verb: &str, name: &str, rewind: Option<&RewindInfo>, clock: &Clock) -> String {
    let Some(r) = rewind else {
        return "Destroy and re-create the pool from\n\ta backup source.\n".into();
    };
    let mut s = String::from("Recovery is possible, but will result in some data loss.\n");
    s += &format!(
        "\tReturning the pool to its state as of {}\n\tshould correct the problem.  ",
        clock.ctime(r.load_time)
    );
    match r.seconds_lost {
        Some(n) if n > 120 => {
            s += &format!(
                "Approximately {} minutes of data\n\tmust be discarded, irreversibly.  ",
                (n + 30) / 60
            );
        }
        Some(n) if n > 0 => {
            s += &format!("Approximately {n} seconds of data\n\tmust be discarded, irreversibly.  ")
        }
        _ => {}
    }
    match r.data_errors {
        Some(1) => s += "After rewind, at least\n\tone persistent user-data error will remain.  ",
        Some(n) if n != 0 => s += "After rewind, several\n\tpersistent user-data errors will remain.  ",
        _ => {}
    }
    s += &format!("Recovery can be attempted\n\tby executing 'zpool {verb} -F {name}'.  ");
    s += "A scrub of the pool\n\tis strongly recommended after recovery.\n";
    s
}

/// What a rewind did or would do (`zpool_rewind_exclaim`).
pub fn rewound(name: &str, dry_run: bool, r: &RewindInfo, clock: &Clock) -> String {
    let when = clock.ctime(r.load_time);
    let mut s = if dry_run {
        format!("Would be able to return {name} to its state as of {when}.\n")
    } else {
        format!("Pool {name} returned to its state as of {when}.\n")
    };
    let verb = if dry_run { "Would discard" } else { "Discarded" };
    match r.seconds_lost {
        Some(n) if n > 120 => {
            s += &format!("{verb} approximately {} minutes of transactions.\n", (n + 30) / 60)
        }
        Some(n) if n > 0 => s += &format!("{verb} approximately {n} seconds of transactions.\n"),
        _ => {}
    }
    s
}

/// The unsupported features, one a line (`zpool_collect_unsup_feat`).
pub fn unsupported_features(info: &LoadInfo) -> String {
    let mut s = String::new();
    for (guid, text) in &info.unsup_features {
        match text.as_str() {
            "" => s += &format!("\t{guid}\n"),
            t => s += &format!("\t{guid} ({t})\n"),
        }
    }
    s
}

/// Why a rollback has to unmount a file system.
fn unmounts(why: Unmounts) -> &'static str {
    match why {
        Unmounts::Differences => "more than a million files and names differ",
        Unmounts::Unreadable => "what differs can't be read",
        Unmounts::Often => "it was rolled back 255 times since it was mounted",
        Unmounts::Closed => "its files can't be opened",
        Unmounts::Replaced => "the stream replaces all of it",
    }
}

/// Why an operation on a device is refused (`zfs_error_aux`, `libzfs_error_description`).
fn device(why: DeviceRefusal) -> &'static str {
    match why {
        DeviceRefusal::NotLeaf => "operation not supported on this type of pool",
        DeviceRefusal::NoReplicas => "no valid replicas",
        DeviceRefusal::SplitOff => "was split from this pool into a new one.  Use 'zpool detach' instead",
        DeviceRefusal::Target => "can only attach to mirrors and top-level disks",
        DeviceRefusal::TooSmall => "device is too small",
        DeviceRefusal::Ashift => {
            "new device has a different optimal sector size; use the option '-o ashift=N' to override the optimal size"
        }
        DeviceRefusal::InUse => "device is busy",
        DeviceRefusal::OnlySpare => "can only be replaced by another hot spare",
        DeviceRefusal::Resilvering => "currently resilvering",
        DeviceRefusal::Rebuilding => "currently sequentially resilvering",
        DeviceRefusal::NotSequential => "can only attach to mirrors and top-level disks",
        DeviceRefusal::RebuildDisabled => {
            "device_rebuild feature must be enabled in order to use sequential reconstruction"
        }
        DeviceRefusal::NotMirror => "only applicable to mirror and replacing vdevs",
    }
}
