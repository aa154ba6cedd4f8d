//! What `zpool import` shows of an importable pool.

use api::{Candidate, PoolState, StatusReason as S, VdevAux, VdevState};

use super::{config, info, list, reason};
use crate::cx::{Color, Cx};
use crate::vdev_name::NameFlags;
use console::words;

/// Shows the pool's state, its problem, the possible action, and its tree (`show_import`).
pub fn show(cx: &mut Cx, c: &Candidate) {
    let pool = &c.pool;
    let root = &pool.root.stat;
    let health = info::state_name(root.state, root.aux);
    let pad = if c.comment.is_some() { " " } else { "" };
    write!(cx.out, "{pad}  pool: {}\n{pad}    id: {}\n{pad} state: {health}", pool.name, pool.guid);
    cx.out.put(if pool.state == PoolState::Destroyed { " (DESTROYED)\n" } else { "\n" });
    if pool.status != S::Ok {
        cx.out.put(pad);
        cx.colored(Some(Color::Bold), "status: ");
        let text = status(c, pad);
        cx.colored(Some(Color::Yellow), &text);
    }
    if root.state != VdevState::Healthy || pool.status != S::Errata || pool.errata != 0 {
        write!(cx.out, "{pad}action: ");
    }
    let text = action(c, pad);
    cx.out.put(&text);
    if let Some(comment) = &c.comment {
        let comment = cx.out.cell(comment);
        writeln!(cx.out, "comment: {comment}");
    }
    if matches!(root.state, VdevState::Closed | VdevState::CantOpen) && root.aux == VdevAux::CorruptData {
        match pool.state {
            PoolState::Destroyed => {
                writeln!(cx.out, "\t{pad}The pool was destroyed, but can be imported using the '-Df' flags.");
            }
            PoolState::Exported => {}
            _ => write!(
                cx.out,
                "\t{pad}The pool may be active on another system, but can be imported using\n\t{pad}the '-f' flag.\n"
            ),
        }
    }
    if let Some(id) = reason::message_id(pool.status) {
        writeln!(cx.out, "{pad}   see: {}{id}", reason::MESSAGES);
    }
    write!(cx.out, "{pad}config:\n\n");
    let width = list::max_width(None, pool, pool.name.len(), NameFlags::default().with_id()).max(10);
    config::candidate(cx, pool, width);
    if pool.status == S::BadGuidSum {
        write!(
            cx.out,
            "\n\t{pad}Additional devices are known to be part of this pool, though their\n\t{pad}exact configuration cannot be \
             determined.\n"
        );
    }
}

fn status(c: &Candidate, pad: &str) -> String {
    match c.pool.status {
        S::MissingDevReplicated | S::MissingDevNotReplicated | S::BadGuidSum => {
            "One or more devices are missing from the system.\n".into()
        }
        S::CorruptLabelReplicated | S::CorruptLabelNotReplicated => {
            "One or more devices contains corrupted data.\n".into()
        }
        S::CorruptData => "The pool data is corrupted.\n".into(),
        S::OfflineDev => "One or more devices are offlined.\n".into(),
        S::CorruptPool => "The pool metadata is corrupted.\n".into(),
        S::VersionOlder => "The pool is formatted using a legacy on-disk version.\n".into(),
        S::VersionNewer => "The pool is formatted using an incompatible version.\n".into(),
        S::FeatDisabled => format!(
            "Some supported features are not enabled on the pool.\n\t{pad}(Note that they may be intentionally disabled if \
             the\n\t{pad}'compatibility' property is set.)\n"
        ),
        S::CompatibilityErr => {
            format!(
                "Error reading or parsing the file(s) indicated by the 'compatibility'\n\t{pad}property.\n"
            )
        }
        S::IncompatibleFeat => format!(
            "One or more features are enabled on the pool despite not being\n\t{pad}requested by the 'compatibility' property.\n"
        ),
        S::UnsupFeatRead => format!(
            "The pool uses the following feature(s) not supported on this system:\n{}",
            words::unsupported_features(&c.pool.load_info)
        ),
        S::UnsupFeatWrite => format!(
            "The pool can only be accessed in read-only mode on this system. It\n\t{pad}cannot be accessed in read-write mode \
             because it uses the following\n\t{pad}feature(s) not supported on this system:\n{}",
            words::unsupported_features(&c.pool.load_info)
        ),
        S::HostidActive => "The pool is currently imported by another system.\n".into(),
        S::HostidRequired => format!(
            "The pool has the multihost property on.  It cannot\n\t{pad}be safely imported when the system hostid is not set.\n"
        ),
        S::HostidMismatch => "The pool was last accessed by another system.\n".into(),
        S::FaultedDevReplicated | S::FaultedDevNotReplicated => "One or more devices are faulted.\n".into(),
        S::BadLog => "An intent log record cannot be read.\n".into(),
        S::Resilvering | S::Rebuilding => "One or more devices were being resilvered.\n".into(),
        S::Errata => format!("Errata #{} detected.\n", c.pool.errata),
        S::NonNativeAshift => format!(
            "One or more devices are configured to use a non-native block size.\n\t{pad}Expect reduced performance.\n"
        ),
        _ => "\n".into(),
    }
}

fn action(c: &Candidate, pad: &str) -> String {
    match c.pool.root.stat.state {
        VdevState::Healthy => action_healthy(c, pad),
        VdevState::Degraded => format!(
            "The pool can be imported despite missing or damaged devices.  The\n\t{pad}fault tolerance of the pool may be \
             compromised if imported.\n"
        ),
        _ => action_unavailable(c, pad),
    }
}

fn action_healthy(c: &Candidate, pad: &str) -> String {
    match (c.pool.status, c.pool.errata) {
        (S::VersionOlder | S::FeatDisabled, _) => format!(
            "The pool can be imported using its name or numeric identifier, though\n\t{pad}some features will not be available \
             without an explicit 'zpool upgrade'.\n"
        ),
        (S::CompatibilityErr, _) => format!(
            "The pool can be imported using its name or numeric\n\t{pad}identifier, though the file(s) indicated by its \
             'compatibility'\n\t{pad}property cannot be parsed at this time.\n"
        ),
        (S::HostidMismatch, _) => {
            format!(
                "The pool can be imported using its name or numeric identifier and\n\t{pad}the '-f' flag.\n"
            )
        }
        (S::Errata, 1) => format!(
            "The pool can be imported using its name or numeric identifier,\n\t{pad}however there is a compatibility issue which \
             should be corrected\n\t{pad}by running 'zpool scrub'\n"
        ),
        (S::Errata, 2) => format!(
            "The pool cannot be imported with this version of ZFS due to\n\t{pad}an active asynchronous destroy. Revert to an \
             earlier version\n\t{pad}and allow the destroy to complete before updating.\n"
        ),
        (S::Errata, 3) => format!(
            "Existing encrypted datasets contain an on-disk incompatibility, which\n\t{pad}needs to be corrected. Backup these \
             datasets to new encrypted datasets\n\t{pad}and destroy the old ones.\n"
        ),
        (S::Errata, 4) => format!(
            "Existing encrypted snapshots and bookmarks contain an on-disk\n\t{pad}incompatibility. This may cause on-disk \
             corruption if they are used\n\t{pad}with 'zfs recv'. To correct the issue, enable the bookmark_v2 \
             feature.\n\t{pad}No additional action is needed if there are no encrypted snapshots or\n\t{pad}bookmarks. If \
             preserving the encrypted snapshots and bookmarks is\n\t{pad}required, use a non-raw send to backup and restore \
             them. Alternately,\n\t{pad}they may be removed to resolve the incompatibility.\n"
        ),
        (S::Errata, _) => String::new(),
        _ => "The pool can be imported using its name or numeric identifier.\n".into(),
    }
}

fn action_unavailable(c: &Candidate, pad: &str) -> String {
    match c.pool.status {
        S::VersionNewer => format!(
            "The pool cannot be imported.  Access the pool on a system running newer\n\t{pad}software, or recreate the pool from \
             backup.\n"
        ),
        S::UnsupFeatRead => format!(
            "The pool cannot be imported. Access the pool on a system that supports\n\t{pad}the required feature(s), or recreate \
             the pool from backup.\n"
        ),
        S::UnsupFeatWrite => format!(
            "The pool cannot be imported in read-write mode. Import the pool with\n\t{pad}'-o readonly=on', access the pool on a \
             system that supports the\n\t{pad}required feature(s), or recreate the pool from backup.\n"
        ),
        S::MissingDevReplicated | S::MissingDevNotReplicated | S::BadGuidSum => {
            format!("The pool cannot be imported. Attach the missing\n\t{pad}devices and try again.\n")
        }
        S::HostidActive => {
            let host = &c.pool.load_info.mmp_host;
            format!(
                "The pool must be exported from {} (hostid={:x})\n\t{pad}before it can be safely imported.\n",
                host.name.as_deref().unwrap_or("unknown"),
                host.id.unwrap_or(0)
            )
        }
        S::HostidRequired => "Set a unique system hostid with the zgenhostid(8) command.\n".into(),
        _ => "The pool cannot be imported due to damaged devices or data.\n".into(),
    }
}
