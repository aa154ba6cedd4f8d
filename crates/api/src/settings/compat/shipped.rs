//! The sets that OpenZFS installs as files, for machines that have no OpenZFS.
//!
//! # Theory
//! Software grew, and so did its sets: each is described by one that it contains and its additions.

/// A set: its name, the set that it contains, and its additions.
type Set = (&'static str, Option<&'static str>, &'static [&'static str]);

const SETS: [Set; 24] = [
    ("zol-0.6.1", None, &["async_destroy", "empty_bpobj", "lz4_compress"]),
    (
        "zol-0.6.4",
        Some("zol-0.6.1"),
        &[
            "bookmarks",
            "embedded_data",
            "enabled_txg",
            "extensible_dataset",
            "hole_birth",
            "spacemap_histogram",
        ],
    ),
    ("zol-0.6.5", Some("zol-0.6.4"), &["filesystem_limits", "large_blocks"]),
    ("compat-2018", Some("zol-0.6.5"), &[]),
    ("freenas-9.10.2", Some("compat-2018"), &["multi_vdev_crash_dump"]),
    ("freebsd-11.0", Some("freenas-9.10.2"), &["sha512", "skein"]),
    ("compat-2019", Some("freebsd-11.0"), &[]),
    ("compat-2020", Some("freebsd-11.0"), &[]),
    ("freebsd-11.2", Some("freebsd-11.0"), &["device_removal", "obsolete_counts", "zpool_checkpoint"]),
    ("freebsd-11.3", Some("freebsd-11.2"), &["spacemap_v2"]),
    ("compat-2021", Some("freebsd-11.3"), &[]),
    ("openzfsonosx-1.7.0", Some("freebsd-11.0"), &["edonr"]),
    ("openzfsonosx-1.8.1", Some("freebsd-11.3"), &["edonr"]),
    (
        "openzfsonosx-1.9.3",
        Some("openzfsonosx-1.8.1"),
        &[
            "allocation_classes",
            "bookmark_v2",
            "encryption",
            "large_dnode",
            "project_quota",
            "resilver_defer",
            "userobj_accounting",
        ],
    ),
    ("zol-0.7", Some("openzfsonosx-1.7.0"), &["large_dnode", "userobj_accounting"]),
    ("zol-0.8", Some("openzfsonosx-1.9.3"), &[]),
    (
        "openzfs-2.0-linux",
        Some("zol-0.8"),
        &[
            "bookmark_written",
            "device_rebuild",
            "livelist",
            "log_spacemap",
            "redacted_datasets",
            "redaction_bookmarks",
            "zstd_compress",
        ],
    ),
    (
        "openzfs-2.0-freebsd",
        Some("freebsd-11.3"),
        &[
            "allocation_classes",
            "bookmark_v2",
            "bookmark_written",
            "device_rebuild",
            "encryption",
            "large_dnode",
            "livelist",
            "log_spacemap",
            "project_quota",
            "redacted_datasets",
            "redaction_bookmarks",
            "resilver_defer",
            "userobj_accounting",
            "zstd_compress",
        ],
    ),
    ("openzfs-2.1-linux", Some("openzfs-2.0-linux"), &["draid"]),
    ("openzfs-2.1-freebsd", Some("openzfs-2.0-freebsd"), &["draid"]),
    (
        "openzfs-2.2",
        Some("openzfs-2.1-linux"),
        &["blake3", "block_cloning", "head_errlog", "vdev_zaps_v2", "zilsaxattr"],
    ),
    (
        "openzfs-2.3",
        Some("openzfs-2.2"),
        &["fast_dedup", "large_microzap", "longname", "raidz_expansion", "redaction_list_spill"],
    ),
    (
        "grub2-2.06",
        Some("zol-0.6.1"),
        &[
            "allocation_classes",
            "block_cloning",
            "device_rebuild",
            "embedded_data",
            "enabled_txg",
            "hole_birth",
            "log_spacemap",
            "resilver_defer",
            "spacemap_histogram",
            "spacemap_v2",
            "zpool_checkpoint",
        ],
    ),
    (
        "grub2-2.12",
        Some("grub2-2.06"),
        &[
            "bookmarks",
            "extensible_dataset",
            "filesystem_limits",
            "large_blocks",
            "livelist",
            "project_quota",
            "userobj_accounting",
            "zilsaxattr",
        ],
    ),
];

/// Other names of sets.
const ALIASES: [(&str, &[&str]); 16] = [
    ("compat-2018", &["2018"]),
    ("compat-2019", &["2019"]),
    ("compat-2020", &["2020"]),
    ("compat-2021", &["2021"]),
    ("freebsd-11.0", &["freebsd-11.1", "freenas-11.0", "freenas-11.1"]),
    ("freebsd-11.2", &["freenas-11.2"]),
    (
        "freebsd-11.3",
        &[
            "freebsd-11.4",
            "freebsd-12.0",
            "freebsd-12.1",
            "freebsd-12.2",
            "freebsd-12.3",
            "freebsd-12.4",
            "freenas-11.3",
        ],
    ),
    ("grub2-2.12", &["grub2"]),
    ("openzfs-2.1-freebsd", &["freebsd-13.0", "freebsd-13.1", "freebsd-13.2"]),
    ("openzfsonosx-1.9.3", &["openzfsonosx-1.9.4"]),
    ("openzfs-2.0-freebsd", &["truenas-12.0"]),
    ("zol-0.7", &["ubuntu-18.04"]),
    ("zol-0.8", &["ubuntu-20.04"]),
    ("openzfs-2.1-linux", &["ubuntu-22.04"]),
    ("openzfs-2.2", &["openzfs-2.2-linux", "openzfs-2.2-freebsd"]),
    ("openzfs-2.3", &["openzfs-2.3-linux", "openzfs-2.3-freebsd"]),
];

/// The names of the features in the set of this name, if there is one.
pub(super) fn names(set: &str) -> Option<Vec<&'static str>> {
    let alias = ALIASES.iter().find(|(_, others)| others.contains(&set));
    let find = |name: &str| SETS.iter().find(|(own, ..)| *own == name);
    let mut at = Some(find(alias.map_or(set, |(own, _)| own))?);
    let mut names = Vec::new();
    while let Some((_, from, more)) = at {
        names.extend_from_slice(more);
        at = from.and_then(find);
    }
    Some(names)
}

/// All names of sets, other names included.
#[cfg(test)]
pub(super) fn all() -> impl Iterator<Item = &'static str> {
    SETS.iter().map(|(name, ..)| *name).chain(ALIASES.iter().flat_map(|(_, others)| others.iter().copied()))
}
