//! Valid values of `sharenfs` and `sharesmb` (`sa_validate_shareopts`).
//!
//! They are stored, though no layer here shares anything.

use super::Prop;

/// Options of NFS by their names on Linux and other systems.
///
/// `sec`, `ro` and `rw` have values of their own.
const NFS: [&str; 34] = [
    "all_squash",
    "anon",
    "anongid",
    "anonuid",
    "async",
    "auth_nlm",
    "crossmnt",
    "fsid",
    "fsuid",
    "hide",
    "insecure",
    "insecure_locks",
    "mountpoint",
    "mp",
    "no_acl",
    "no_all_squash",
    "no_auth_nlm",
    "no_root_squash",
    "no_subtree_check",
    "no_wdelay",
    "nohide",
    "nosub",
    "refer",
    "replicas",
    "root_mapping",
    "root_squash",
    "ro",
    "rw",
    "sec",
    "secure",
    "secure_locks",
    "subtree_check",
    "sync",
    "wdelay",
];

/// Whether a sharing property can have this value; other properties can have any.
pub(super) fn is_valid(prop: Prop, text: &str) -> bool {
    match prop {
        Prop::Sharesmb => matches!(text, "on" | "off"),
        Prop::Sharenfs => {
            matches!(text, "on" | "off") || (!text.is_empty() && text.split(',').all(nfs_option))
        }
        _ => true,
    }
}

fn nfs_option(option: &str) -> bool {
    let (key, value) = option.split_once('=').unwrap_or((option, ""));
    // Empty options are ignored.
    option.is_empty() || (NFS.contains(&key) && (!matches!(key, "ro" | "rw") || hosts(value)))
}

/// Whether a list of hosts and networks, separated by colons, is valid.
///
/// An IPv6 address is in brackets, and a length may follow it.
fn hosts(mut list: &str) -> bool {
    while !list.is_empty() {
        let after = match list.strip_prefix('[') {
            None => list,
            Some(literal) => match literal.split_once(']') {
                Some((_, rest)) if rest.is_empty() || rest.starts_with(['/', ':']) => rest,
                _ => return false,
            },
        };
        list = after.split_once(':').map_or("", |(_, next)| next);
    }
    true
}
