//! Feature flags: the named extensions of the format at pool version 5000.
//!
//! # On disk
//! The directory of the MOS names three ZAPs, whose keys are the guids of features:
//!
//! * `features_for_read` and `features_for_write` map a feature to its number of users; 0 is
//!   enabled, but not active.
//! * `feature_descriptions` maps a feature to a text.
//!
//! A feature is in `features_for_write` if software that doesn't know it can read a pool that uses
//! it. Some features must be known to read the MOS ([`Feature::mos`]). While they are active, every
//! label lists them too.
//!
//! OpenZFS: `module/zcommon/zfeature_common.c`, `module/zfs/zfeature.c`.

#[cfg(test)]
mod tests;

const NONE: u8 = 0;
const RO: u8 = 1;
const MOS: u8 = 2;
const ACT: u8 = 4;
const DS: u8 = 8;

/// A feature of OpenZFS 2.3 (`zfeature_info_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Feature {
    /// Name on disk, `org:name` (`fi_guid`).
    pub guid: &'static str,
    /// Name in properties, `feature@name` (`fi_uname`).
    pub name: &'static str,
    /// Description, in OpenZFS's words (`fi_desc`).
    pub description: &'static str,
    /// Names of the features that `enabled` enables together with this one (`fi_depends`).
    pub depends: &'static [&'static str],
    flags: u8,
}

impl Feature {
    /// True if software that doesn't know the feature can read a pool on which it is active
    /// (`ZFEATURE_FLAG_READONLY_COMPAT`).
    pub fn readonly_compatible(&self) -> bool {
        self.flags & RO != 0
    }

    /// True if a reader of the MOS must know the feature, so that labels name it
    /// (`ZFEATURE_FLAG_MOS`).
    pub fn mos(&self) -> bool {
        self.flags & MOS != 0
    }

    /// True if the feature becomes active as soon as it is enabled
    /// (`ZFEATURE_FLAG_ACTIVATE_ON_ENABLE`).
    pub fn activate_on_enable(&self) -> bool {
        self.flags & ACT != 0
    }

    /// True if the users of the feature are datasets, each of which names it
    /// (`ZFEATURE_FLAG_PER_DATASET`).
    pub fn per_dataset(&self) -> bool {
        self.flags & DS != 0
    }

    /// True if Poolhouse reads pools on which the feature is active (`zfeature_is_supported`).
    pub fn can_read(&self) -> bool {
        true
    }

    /// True if Poolhouse writes pools on which the feature is active. New pools have such features
    /// enabled.
    pub fn can_write(&self) -> bool {
        true
    }

    /// The feature with this guid (`zfeature_lookup_guid`).
    pub fn by_guid(guid: &str) -> Option<&'static Feature> {
        FEATURES.iter().find(|f| f.guid == guid)
    }

    /// The feature with this short name (`zfeature_lookup_name`).
    pub fn by_name(name: &str) -> Option<&'static Feature> {
        FEATURES.iter().find(|f| f.name == name)
    }
}

/// True if `guid` has the form of a feature's guid (`zfeature_is_valid_guid`).
///
/// The form is a reversed domain of an organisation, one colon, and a name.
pub fn is_valid_guid(guid: &str) -> bool {
    let word = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit();
    guid.split_once(':').is_some_and(|(org, name)| {
        org.bytes().all(|c| word(c) || c == b'.' || c == b'-') && name.bytes().all(|c| word(c) || c == b'_')
    })
}

const fn f(
    guid: &'static str,
    name: &'static str,
    flags: u8,
    depends: &'static [&'static str],
    description: &'static str,
) -> Feature {
    Feature { guid, name, description, depends, flags }
}

/// The features of OpenZFS 2.3, in the order of `spa_feature_t` (`spa_feature_table`).
pub static FEATURES: [Feature; 44] = [
    f("com.delphix:async_destroy", "async_destroy", RO, &[], "Destroy filesystems asynchronously."),
    f("com.delphix:empty_bpobj", "empty_bpobj", RO, &[], "Snapshots use less space."),
    f("org.illumos:lz4_compress", "lz4_compress", ACT, &[], "LZ4 compression algorithm support."),
    f(
        "com.joyent:multi_vdev_crash_dump",
        "multi_vdev_crash_dump",
        NONE,
        &[],
        "Crash dumps to multiple vdev pools.",
    ),
    f(
        "com.delphix:spacemap_histogram",
        "spacemap_histogram",
        RO,
        &[],
        "Spacemaps maintain space histograms.",
    ),
    f("com.delphix:enabled_txg", "enabled_txg", RO, &[], "Record txg at which a feature is enabled"),
    f(
        "com.delphix:hole_birth",
        "hole_birth",
        MOS | ACT,
        &["enabled_txg"],
        "Retain hole birth txg for more precise zfs send",
    ),
    f(
        "com.delphix:extensible_dataset",
        "extensible_dataset",
        NONE,
        &[],
        "Enhanced dataset functionality, used by other features.",
    ),
    f(
        "com.delphix:embedded_data",
        "embedded_data",
        MOS | ACT,
        &[],
        "Blocks which compress very well use even less space.",
    ),
    f("com.delphix:bookmarks", "bookmarks", RO, &["extensible_dataset"], "\"zfs bookmark\" command"),
    f(
        "com.joyent:filesystem_limits",
        "filesystem_limits",
        RO,
        &["extensible_dataset"],
        "Filesystem and snapshot limits.",
    ),
    f(
        "org.open-zfs:large_blocks",
        "large_blocks",
        DS,
        &["extensible_dataset"],
        "Support for blocks larger than 128KB.",
    ),
    f(
        "org.zfsonlinux:large_dnode",
        "large_dnode",
        DS,
        &["extensible_dataset"],
        "Variable on-disk size of dnodes.",
    ),
    f("org.illumos:sha512", "sha512", DS, &["extensible_dataset"], "SHA-512/256 hash algorithm."),
    f("org.illumos:skein", "skein", DS, &["extensible_dataset"], "Skein hash algorithm."),
    f("org.illumos:edonr", "edonr", DS, &["extensible_dataset"], "Edon-R hash algorithm."),
    f(
        "org.zfsonlinux:userobj_accounting",
        "userobj_accounting",
        RO | DS,
        &["extensible_dataset"],
        "User/Group object accounting.",
    ),
    f(
        "com.datto:encryption",
        "encryption",
        DS,
        &["extensible_dataset", "bookmark_v2"],
        "Support for dataset level encryption",
    ),
    f(
        "org.zfsonlinux:project_quota",
        "project_quota",
        RO | DS,
        &["extensible_dataset"],
        "space/object accounting based on project ID.",
    ),
    f(
        "com.delphix:device_removal",
        "device_removal",
        MOS,
        &[],
        "Top-level vdevs can be removed, reducing logical pool size.",
    ),
    f(
        "com.delphix:obsolete_counts",
        "obsolete_counts",
        RO,
        &["extensible_dataset", "device_removal"],
        "Reduce memory used by removed devices when their blocks are freed or remapped.",
    ),
    f(
        "com.delphix:zpool_checkpoint",
        "zpool_checkpoint",
        RO,
        &[],
        "Pool state can be checkpointed, allowing rewind later.",
    ),
    f(
        "com.delphix:spacemap_v2",
        "spacemap_v2",
        RO | ACT,
        &[],
        "Space maps representing large segments are more efficient.",
    ),
    f(
        "org.zfsonlinux:allocation_classes",
        "allocation_classes",
        RO,
        &[],
        "Support for separate allocation classes.",
    ),
    f(
        "com.datto:resilver_defer",
        "resilver_defer",
        RO,
        &[],
        "Support for deferring new resilvers when one is already running.",
    ),
    f(
        "com.datto:bookmark_v2",
        "bookmark_v2",
        NONE,
        &["extensible_dataset", "bookmarks"],
        "Support for larger bookmarks",
    ),
    f(
        "com.delphix:redaction_bookmarks",
        "redaction_bookmarks",
        NONE,
        &["bookmark_v2", "extensible_dataset", "bookmarks"],
        "Support for bookmarks which store redaction lists for zfs redacted send/recv.",
    ),
    f(
        "com.delphix:redacted_datasets",
        "redacted_datasets",
        DS,
        &["extensible_dataset"],
        "Support for redacted datasets, produced by receiving a redacted zfs send stream.",
    ),
    f(
        "com.delphix:bookmark_written",
        "bookmark_written",
        NONE,
        &["bookmark_v2", "extensible_dataset", "bookmarks"],
        "Additional accounting, enabling the written#<bookmark> property (space written since a bookmark), and estimates of send stream sizes for incrementals from bookmarks.",
    ),
    f(
        "com.delphix:log_spacemap",
        "log_spacemap",
        RO,
        &["spacemap_v2"],
        "Log metaslab changes on a single spacemap and flush them periodically.",
    ),
    f(
        "com.delphix:livelist",
        "livelist",
        RO,
        &["extensible_dataset"],
        "Improved clone deletion performance.",
    ),
    f(
        "org.openzfs:device_rebuild",
        "device_rebuild",
        RO,
        &[],
        "Support for sequential mirror/dRAID device rebuilds",
    ),
    f(
        "org.freebsd:zstd_compress",
        "zstd_compress",
        DS,
        &["extensible_dataset"],
        "zstd compression algorithm support.",
    ),
    f("org.openzfs:draid", "draid", MOS, &[], "Support for distributed spare RAID"),
    f(
        "org.openzfs:zilsaxattr",
        "zilsaxattr",
        RO | DS,
        &["extensible_dataset"],
        "Support for xattr=sa extended attribute logging in ZIL.",
    ),
    f("com.delphix:head_errlog", "head_errlog", ACT, &[], "Support for per-dataset on-disk error logs."),
    f("org.openzfs:blake3", "blake3", DS, &["extensible_dataset"], "BLAKE3 hash algorithm."),
    f(
        "com.fudosecurity:block_cloning",
        "block_cloning",
        RO,
        &[],
        "Support for block cloning via Block Reference Table.",
    ),
    f("com.klarasystems:vdev_zaps_v2", "vdev_zaps_v2", MOS, &[], "Support for root vdev ZAP."),
    f(
        "com.delphix:redaction_list_spill",
        "redaction_list_spill",
        NONE,
        &["redaction_bookmarks"],
        "Support for increased number of redaction_snapshot arguments in zfs redact.",
    ),
    f("org.openzfs:raidz_expansion", "raidz_expansion", MOS, &[], "Support for raidz expansion"),
    f("com.klarasystems:fast_dedup", "fast_dedup", RO, &[], "Support for advanced deduplication"),
    f(
        "org.zfsonlinux:longname",
        "longname",
        DS,
        &["extensible_dataset"],
        "support filename up to 1024 bytes",
    ),
    f(
        "com.klarasystems:large_microzap",
        "large_microzap",
        RO | DS,
        &["extensible_dataset", "large_blocks"],
        "Support for microzaps larger than 128KB.",
    ),
];
