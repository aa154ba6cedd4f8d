//! The problems of imported pools and the actions against them, in OpenZFS's wording
//! (`print_status_reason`).

use api::{Pool, StatusReason as S};

use crate::cx::Cx;
use console::words;

/// The address of the pages that explain the messages.
pub const MESSAGES: &str = "https://openzfs.github.io/openzfs-docs/msg/";

/// The message that explains a reason, if there is one (`zfs_msgid_table`).
pub fn message_id(reason: S) -> Option<&'static str> {
    Some(match reason {
        S::CorruptCache => "ZFS-8000-14",
        S::MissingDevReplicated => "ZFS-8000-2Q",
        S::MissingDevNotReplicated => "ZFS-8000-3C",
        S::CorruptLabelReplicated => "ZFS-8000-4J",
        S::CorruptLabelNotReplicated => "ZFS-8000-5E",
        S::BadGuidSum => "ZFS-8000-6X",
        S::CorruptPool => "ZFS-8000-72",
        S::CorruptData => "ZFS-8000-8A",
        S::FailingDev => "ZFS-8000-9P",
        S::VersionNewer => "ZFS-8000-A5",
        S::HostidMismatch | S::HostidActive | S::HostidRequired => "ZFS-8000-EY",
        S::IoFailureWait => "ZFS-8000-HC",
        S::IoFailureContinue => "ZFS-8000-JQ",
        S::IoFailureMmp => "ZFS-8000-MM",
        S::BadLog => "ZFS-8000-K4",
        S::Errata => "ZFS-8000-ER",
        S::UnsupFeatRead
        | S::UnsupFeatWrite
        | S::FaultedDevReplicated
        | S::FaultedDevNotReplicated
        | S::VersionOlder
        | S::FeatDisabled
        | S::Resilvering
        | S::OfflineDev
        | S::RemovedDev
        | S::Rebuilding
        | S::RebuildScrub
        | S::NonNativeAshift
        | S::CompatibilityErr
        | S::IncompatibleFeat
        | S::Broken
        | S::SlowGroup
        | S::Ok => return None,
    })
}

/// The status and action texts of an imported pool, each with its newline; empty without a problem.
///
/// Unlinked device files come first: only the daemon still holds their data.
pub fn texts(cx: &Cx, pool: &Pool) -> (String, String) {
    let (mut status, mut action) = usual_texts(cx, pool);
    if !pool.nameless.is_empty() {
        let mut removed = "One or more files that the pool is kept in have been removed.  They are\n\tgone once the pool is \
                           exported:\n"
            .to_owned();
        for file in &pool.nameless {
            removed += &format!("\t\t{}, still readable as {}\n", file.path, file.still);
        }
        let rescue = "Replace the device using 'zpool replace', or copy the file while\n\tnothing is written to the pool.\n";
        let first = |own: &str, rest: &str| {
            if rest.is_empty() { own.to_owned() } else { format!("{own}\t{rest}") }
        };
        (status, action) = (first(&removed, &status), first(rescue, &action));
    }
    (status, action)
}

fn usual_texts(cx: &Cx, pool: &Pool) -> (String, String) {
    match pool.status {
        S::CorruptLabelNotReplicated | S::CorruptPool => (
            fixed(pool.status).0.to_owned(),
            words::recover("clear", &pool.name, pool.load_info.rewind.as_ref(), &cx.clock),
        ),
        S::UnsupFeatRead | S::UnsupFeatWrite => {
            let (status, action) = fixed(pool.status);
            (format!("{status}{}", words::unsupported_features(&pool.load_info)), action.to_owned())
        }
        S::Errata => errata(pool.errata),
        S::Broken => broken(&pool.name, pool.broken.as_deref().unwrap_or("unknown")),
        S::SlowGroup => slow_group(&pool.name, pool.slow_group.unwrap_or(0)),
        S::IoFailureWait | S::IoFailureContinue if !pool.no_room.is_empty() => {
            let mut status =
                "One or more devices are faulted in response to IO failures: there is no\n\tspace left \
                              (ENOSPC or EDQUOT) on what holds\n"
                    .to_owned();
            pool.no_room.iter().for_each(|path| status += &format!("\t\t{path}\n"));
            (status, "Make room there, then run 'zpool clear'.\n".to_owned())
        }
        reason => {
            let (status, action) = fixed(reason);
            (status.to_owned(), action.to_owned())
        }
    }
}

/// The texts for a transaction group that failed for another reason than the devices.
fn broken(pool: &str, cause: &str) -> (String, String) {
    let status = format!(
        "The pool can write nothing any more: a transaction group failed.  What was\n\twritten before it is on disk, changes since \
         then are not.\n\tThe cause: {cause}\n"
    );
    let action = format!(
        "Use 'zpool export -f {pool}' to give the pool up as a crash would leave\n\tit, end the service, and import the pool again.  \
         If that recurs, import it\n\twith '-o readonly=on' and copy what is needed.\n"
    );
    (status, action)
}

/// The texts for a transaction group that takes too long.
fn slow_group(pool: &str, seconds: u64) -> (String, String) {
    let status = format!(
        "The pool has been writing one transaction group for {seconds} seconds.\n\tUntil it is written, changes wait and are not on disk.\n"
    );
    let action = format!(
        "Wait if its devices are slow.  If it makes no progress, use\n\t'zpool export -f {pool}' to give the pool up as a crash would \
         leave it,\n\tthen end the service and import the pool again.\n"
    );
    (status, action)
}

/// The texts without variable parts: about devices here, the others in the functions below.
fn fixed(reason: S) -> (&'static str, &'static str) {
    match reason {
        S::MissingDevReplicated => (
            "One or more devices could not be opened.  Sufficient replicas exist for\n\tthe pool to continue functioning in a \
             degraded state.\n",
            "Attach the missing device and online it using 'zpool online'.\n",
        ),
        S::MissingDevNotReplicated => (
            "One or more devices could not be opened.  There are insufficient\n\treplicas for the pool to continue functioning.\n",
            "Attach the missing device and online it using 'zpool online'.\n",
        ),
        S::CorruptLabelReplicated => (
            "One or more devices could not be used because the label is missing or\n\tinvalid.  Sufficient replicas exist for the \
             pool to continue\n\tfunctioning in a degraded state.\n",
            "Replace the device using 'zpool replace'.\n",
        ),
        S::CorruptLabelNotReplicated => (
            "One or more devices could not be used because the label is missing \n\tor invalid.  There are insufficient replicas \
             for the pool to continue\n\tfunctioning.\n",
            "",
        ),
        S::FailingDev => (
            "One or more devices has experienced an unrecoverable error.  An\n\tattempt was made to correct the error.  \
             Applications are unaffected.\n",
            "Determine if the device needs to be replaced, and clear the errors\n\tusing 'zpool clear' or replace the device with \
             'zpool replace'.\n",
        ),
        S::OfflineDev => (
            "One or more devices has been taken offline by the administrator.\n\tSufficient replicas exist for the pool to \
             continue functioning in a\n\tdegraded state.\n",
            "Online the device using 'zpool online' or replace the device with\n\t'zpool replace'.\n",
        ),
        S::RemovedDev => (
            "One or more devices has been removed by the administrator.\n\tSufficient replicas exist for the pool to continue \
             functioning in a\n\tdegraded state.\n",
            "Online the device using zpool online' or replace the device with\n\t'zpool replace'.\n",
        ),
        S::FaultedDevReplicated => (
            "One or more devices are faulted in response to persistent errors.\n\tSufficient replicas exist for the pool to \
             continue functioning in a\n\tdegraded state.\n",
            "Replace the faulted device, or use 'zpool clear' to mark the device\n\trepaired.\n",
        ),
        S::FaultedDevNotReplicated => (
            "One or more devices are faulted in response to persistent errors.  There are insufficient replicas for the pool \
             to\n\tcontinue functioning.\n",
            "Destroy and re-create the pool from a backup source.  Manually marking the device\n\trepaired using 'zpool clear' \
             may allow some data to be recovered.\n",
        ),
        other => fixed_contents(other),
    }
}

/// The texts about resilvering, damaged contents, and failed I/O.
fn fixed_contents(reason: S) -> (&'static str, &'static str) {
    match reason {
        S::Resilvering | S::Rebuilding => (
            "One or more devices is currently being resilvered.  The pool will\n\tcontinue to function, possibly in a degraded \
             state.\n",
            "Wait for the resilver to complete.\n",
        ),
        S::RebuildScrub => (
            "One or more devices have been sequentially resilvered, scrubbing\n\tthe pool is recommended.\n",
            "Use 'zpool scrub' to verify all data checksums.\n",
        ),
        S::CorruptData => (
            "One or more devices has experienced an error resulting in data\n\tcorruption.  Applications may be affected.\n",
            "Restore the file in question if possible.  Otherwise restore the\n\tentire pool from backup.\n",
        ),
        S::CorruptPool => ("The pool metadata is corrupted and the pool cannot be opened.\n", ""),
        S::BadLog => (
            "An intent log record could not be read.\n\tWaiting for administrator intervention to fix the faulted pool.\n",
            "Either restore the affected device(s) and run 'zpool online',\n\tor ignore the intent log records by running 'zpool \
             clear'.\n",
        ),
        S::IoFailureMmp => (
            "The pool is suspended because multihost writes failed or were delayed;\n\tanother system could import the pool \
             undetected.\n",
            "Make sure the pool's devices are connected, then reboot your system and\n\timport the pool or run 'zpool clear' to \
             resume the pool.\n",
        ),
        S::IoFailureWait | S::IoFailureContinue => (
            "One or more devices are faulted in response to IO failures.\n",
            "Make sure the affected devices are connected, then run 'zpool clear'.\n",
        ),
        other => fixed_format(other),
    }
}

/// The texts about versions, features and the host.
fn fixed_format(reason: S) -> (&'static str, &'static str) {
    match reason {
        S::VersionOlder => (
            "The pool is formatted using a legacy on-disk format.  The pool can\n\tstill be used, but some features are \
             unavailable.\n",
            "Upgrade the pool using 'zpool upgrade'.  Once this is done, the\n\tpool will no longer be accessible on software \
             that does not support\n\tfeature flags.\n",
        ),
        S::VersionNewer => (
            "The pool has been upgraded to a newer, incompatible on-disk version.\n\tThe pool cannot be accessed on this \
             system.\n",
            "Access the pool from a system running more recent software, or\n\trestore the pool from backup.\n",
        ),
        S::FeatDisabled => (
            "Some supported and requested features are not enabled on the pool.\n\tThe pool can still be used, but some features \
             are unavailable.\n",
            "Enable all features using 'zpool upgrade'. Once this is done,\n\tthe pool may no longer be accessible by software \
             that does not support\n\tthe features. See zpool-features(7) for details.\n",
        ),
        S::CompatibilityErr => (
            "This pool has a compatibility list specified, but it could not be\n\tread/parsed at this time. The pool can still \
             be used, but this\n\tshould be investigated.\n",
            "Check the value of the 'compatibility' property against the\n\tappropriate file in /etc/zfs/compatibility.d or \
             /usr/share/zfs/compatibility.d.\n",
        ),
        S::IncompatibleFeat => (
            "One or more features are enabled on the pool despite not being\n\trequested by the 'compatibility' property.\n",
            "Consider setting 'compatibility' to an appropriate value, or\n\tadding needed features to the relevant file \
             in\n\t/etc/zfs/compatibility.d or /usr/share/zfs/compatibility.d.\n",
        ),
        S::UnsupFeatRead => (
            "The pool cannot be accessed on this system because it uses the\n\tfollowing feature(s) not supported on this \
             system:\n",
            "Access the pool from a system that supports the required feature(s),\n\tor restore the pool from backup.\n",
        ),
        S::UnsupFeatWrite => (
            "The pool can only be accessed in read-only mode on this system. It\n\tcannot be accessed in read-write mode because \
             it uses the following\n\tfeature(s) not supported on this system:\n",
            "The pool cannot be accessed in read-write mode. Import the pool with\n\t\"-o readonly=on\", access the pool from a \
             system that supports the\n\trequired feature(s), or restore the pool from backup.\n",
        ),
        S::NonNativeAshift => (
            "One or more devices are configured to use a non-native block size.\n\tExpect reduced performance.\n",
            "Replace affected devices with devices that support the\n\tconfigured block size, or migrate data to a properly \
             configured\n\tpool.\n",
        ),
        S::HostidMismatch => (
            "Mismatch between pool hostid and system hostid on imported pool.\n\tThis pool was previously imported into a system \
             with a different hostid,\n\tand then was verbatim imported into this system.\n",
            "Export this pool on all systems on which it is imported.\n\tThen import it to correct the mismatch.\n",
        ),
        _ => ("", ""),
    }
}

fn errata(number: u64) -> (String, String) {
    let mut status = format!("Errata #{number} detected.\n");
    let action = match number {
        1 => "To correct the issue run 'zpool scrub'.\n",
        3 => {
            status += "\tExisting encrypted datasets contain an on-disk incompatibility\n\t which needs to be corrected.\n";
            "To correct the issue backup existing encrypted datasets to new\n\tencrypted datasets and destroy the old ones. 'zfs \
             mount -o ro' can\n\tbe used to temporarily mount existing encrypted datasets readonly.\n"
        }
        4 => {
            status += "\tExisting encrypted snapshots and bookmarks contain an on-disk\n\tincompatibility. This may cause on-disk \
                       corruption if they are used\n\twith 'zfs recv'.\n";
            "To correct theissue, enable the bookmark_v2 feature. No additional\n\taction is needed if there are no encrypted \
             snapshots or bookmarks.\n\tIf preservingthe encrypted snapshots and bookmarks is required, use\n\ta non-raw send to \
             backup and restore them. Alternately, they may be\n\tremoved to resolve the incompatibility.\n"
        }
        _ => "",
    };
    (status, action.into())
}
