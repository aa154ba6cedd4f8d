//! Names in the directory of the MOS (object 1), and in the ZAPs of vdevs, datasets and
//! directories.
//!
//! The constants have OpenZFS's names without a prefix, or with a shorter one:
//!
//! | here | OpenZFS |
//! |---|---|
//! | in the directory | `DMU_POOL_` before the name |
//! | `VDEV_TOP_` | `VDEV_TOP_ZAP_` |
//! | `VDEV_LEAF_` | `VDEV_LEAF_ZAP_` |
//! | `DS_` | `DS_FIELD_`; of a feature, its guid |
//! | `DD_` | `DD_FIELD_` |

macro_rules! names {
    ($($(#[$m:meta])* $name:ident = $v:expr;)*) => {
        $($(#[$m])* pub const $name: &str = $v;)*
    };
}

/// Object number of the directory (`DMU_POOL_DIRECTORY_OBJECT`).
pub const DIRECTORY_OBJECT: u64 = 1;

names! {
    /// Packed nvlist of the pool's config.
    CONFIG = "config";
    /// ZAP of feature guid to number of users: features that only a writer must know.
    FEATURES_FOR_WRITE = "features_for_write";
    /// ZAP of feature guid to number of users: features that a reader must know.
    FEATURES_FOR_READ = "features_for_read";
    /// ZAP of feature guid to description.
    FEATURE_DESCRIPTIONS = "feature_descriptions";
    /// ZAP of feature guid to the transaction group in which the feature was enabled.
    FEATURE_ENABLED_TXG = "feature_enabled_txg";
    /// The root DSL directory.
    ROOT_DATASET = "root_dataset";
    /// Freed blocks whose space is not released yet.
    SYNC_BPOBJ = "sync_bplist";
    /// Errors that the current scrub found.
    ERRLOG_SCRUB = "errlog_scrub";
    /// Errors found since the last scrub.
    ERRLOG_LAST = "errlog_last";
    /// Packed nvlist of the hot spares.
    SPARES = "spares";
    /// Space is counted without the overhead of raidz parity ("deflated").
    DEFLATE = "deflate";
    /// The history of the pool.
    HISTORY = "history";
    /// ZAP of the pool's properties.
    PROPS = "pool_props";
    /// Packed nvlist of the cache devices.
    L2CACHE = "l2cache";
    /// ZAP of temporary holds.
    TMP_USERREFS = "tmp_userrefs";
    /// ZAP of DDT statistics.
    DDT_STATS = "DDT-statistics";
    /// Version of the pool at its creation.
    CREATION_VERSION = "creation_version";
    /// State of the last scan.
    SCAN = "scan";
    /// State of the last error scrub.
    ERRORSCRUB = "error_scrub";
    /// Last transaction group that a scrub has covered.
    LAST_SCRUBBED_TXG = "last_scrubbed_txg";
    /// Blocks that the pool frees in the background.
    FREE_BPOBJ = "free_bpobj";
    /// Datasets that the pool frees in the background.
    BPTREE_OBJ = "bptree_obj";
    /// The empty bpobj that all users share.
    EMPTY_BPOBJ = "empty_bpobj";
    /// Salt of the salted checksums, 32 bytes.
    CHECKSUM_SALT = "org.illumos:checksum_salt";
    /// ZAP of the objects of the vdevs' ZAPs.
    VDEV_ZAP_MAP = "com.delphix:vdev_zap_map";
    /// State of the last device removal.
    REMOVING = "com.delphix:removing";
    /// Obsolete blocks on indirect vdevs.
    OBSOLETE_BPOBJ = "com.delphix:obsolete_bpobj";
    /// State of the condensing of an indirect mapping.
    CONDENSING_INDIRECT = "com.delphix:condensing_indirect";
    /// The uberblock of the checkpoint.
    ZPOOL_CHECKPOINT = "com.delphix:zpool_checkpoint";
    /// ZAP of transaction group to log space map.
    LOG_SPACEMAP_ZAP = "com.delphix:log_spacemap_zap";
    /// ZAP of the livelists of deleted clones.
    DELETED_CLONES = "com.delphix:deleted_clones";
    /// A txg, and the heads that an import had to look at then. Unknown to OpenZFS.
    UNSETTLED = "poolhouse:unsettled";

    /// Top-level vdev's ZAP: the obsolete space map of an indirect vdev.
    VDEV_TOP_INDIRECT_OBSOLETE_SM = "com.delphix:indirect_obsolete_sm";
    /// Top-level vdev's ZAP: the obsolete counts are precise.
    VDEV_TOP_OBSOLETE_COUNTS_ARE_PRECISE = "com.delphix:obsolete_counts_are_precise";
    /// Top-level vdev's ZAP: the checkpoint's space map.
    VDEV_TOP_POOL_CHECKPOINT_SM = "com.delphix:pool_checkpoint_sm";
    /// Top-level vdev's ZAP: object with the transaction group of each metaslab's last flush.
    VDEV_TOP_MS_UNFLUSHED_PHYS_TXGS = "com.delphix:ms_unflushed_phys_txgs";
    /// Top-level vdev's ZAP: state of a sequential rebuild.
    VDEV_TOP_REBUILD_PHYS = "org.openzfs:vdev_rebuild";
    /// Top-level vdev's ZAP: allocation class, `log`, `special` or `dedup`.
    VDEV_TOP_ALLOCATION_BIAS = "org.zfsonlinux:allocation_bias";
    /// Top-level vdev's ZAP: state of a raidz expansion.
    VDEV_TOP_RAIDZ_EXPAND_STATE = "org.openzfs:raidz_expand_state";
    /// Top-level vdev's ZAP: start time of the raidz expansion.
    VDEV_TOP_RAIDZ_EXPAND_START_TIME = "org.openzfs:raidz_expand_start_time";
    /// Top-level vdev's ZAP: end time of the raidz expansion.
    VDEV_TOP_RAIDZ_EXPAND_END_TIME = "org.openzfs:raidz_expand_end_time";
    /// Top-level vdev's ZAP: bytes that the raidz expansion has copied.
    VDEV_TOP_RAIDZ_EXPAND_BYTES_COPIED = "org.openzfs:raidz_expand_bytes_copied";

    /// Leaf's ZAP: offset up to which the device is initialized.
    VDEV_LEAF_INITIALIZE_LAST_OFFSET = "com.delphix:next_offset_to_initialize";
    /// Leaf's ZAP: state of the initialization.
    VDEV_LEAF_INITIALIZE_STATE = "com.delphix:vdev_initialize_state";
    /// Leaf's ZAP: time of the last start, stop or end of the initialization, in seconds since
    /// 1970.
    VDEV_LEAF_INITIALIZE_ACTION_TIME = "com.delphix:vdev_initialize_action_time";
    /// Leaf's ZAP: offset up to which the device is trimmed.
    VDEV_LEAF_TRIM_LAST_OFFSET = "org.zfsonlinux:next_offset_to_trim";
    /// Leaf's ZAP: state of the TRIM.
    VDEV_LEAF_TRIM_STATE = "org.zfsonlinux:vdev_trim_state";
    /// Leaf's ZAP: time of the last start, stop or end of the TRIM, in seconds since 1970.
    VDEV_LEAF_TRIM_ACTION_TIME = "org.zfsonlinux:vdev_trim_action_time";
    /// Leaf's ZAP: limit of the TRIM in bytes a second; 0 is no limit.
    VDEV_LEAF_TRIM_RATE = "org.zfsonlinux:vdev_trim_rate";
    /// Leaf's ZAP: the TRIM skips metaslabs that were never used.
    VDEV_LEAF_TRIM_PARTIAL = "org.zfsonlinux:vdev_trim_partial";
    /// Leaf's ZAP: the TRIM is secure.
    VDEV_LEAF_TRIM_SECURE = "org.zfsonlinux:vdev_trim_secure";

    /// Dataset's ZAP: ZAP of its bookmarks.
    DS_BOOKMARK_NAMES = "com.delphix:bookmarks";
    /// Dataset's ZAP: the dataset has large dnodes.
    DS_LARGE_DNODE = "org.zfsonlinux:large_dnode";
    /// Dataset's ZAP, resume state of a receive: guid of the snapshot that the stream starts from.
    DS_RESUME_FROMGUID = "com.delphix:resume_fromguid";
    /// Dataset's ZAP, resume state of a receive: name of the stream's snapshot.
    DS_RESUME_TONAME = "com.delphix:resume_toname";
    /// Dataset's ZAP, resume state of a receive: guid of the stream's snapshot.
    DS_RESUME_TOGUID = "com.delphix:resume_toguid";
    /// Dataset's ZAP, resume state of a receive: object up to which data arrived.
    DS_RESUME_OBJECT = "com.delphix:resume_object";
    /// Dataset's ZAP, resume state of a receive: offset in that object.
    DS_RESUME_OFFSET = "com.delphix:resume_offset";
    /// Dataset's ZAP, resume state of a receive: bytes received.
    DS_RESUME_BYTES = "com.delphix:resume_bytes";
    /// Dataset's ZAP, resume state of a receive: the stream has large blocks.
    DS_RESUME_LARGEBLOCK = "com.delphix:resume_largeblockok";
    /// Dataset's ZAP, resume state of a receive: the stream has embedded blocks.
    DS_RESUME_EMBEDOK = "com.delphix:resume_embedok";
    /// Dataset's ZAP, resume state of a receive: the stream has compressed blocks.
    DS_RESUME_COMPRESSOK = "com.delphix:resume_compressok";
    /// Dataset's ZAP, resume state of a receive: the stream is raw.
    DS_RESUME_RAWOK = "com.datto:resume_rawok";
    /// Dataset's ZAP, resume state of a receive: snapshots of the redaction bookmark.
    DS_RESUME_REDACT_BOOKMARK_SNAPS = "com.delphix:resume_redact_book_snaps";
    /// Dataset's ZAP: guids of the snapshots with respect to which the dataset is redacted
    /// (`SPA_FEATURE_REDACTED_DATASETS`).
    DS_REDACTED_SNAPS = "com.delphix:redacted_datasets";
    /// Dataset's ZAP: deadlist of remapped blocks.
    DS_REMAP_DEADLIST = "com.delphix:remap_deadlist";
    /// Dataset's ZAP: guid of its set of initialisation vectors.
    DS_IVSET_GUID = "com.datto:ivset_guid";

    /// Directory's ZAP: number of file systems and volumes below, for `filesystem_limit`.
    DD_FILESYSTEM_COUNT = "com.joyent:filesystem_count";
    /// Directory's ZAP: number of snapshots below, for `snapshot_limit`.
    DD_SNAPSHOT_COUNT = "com.joyent:snapshot_count";
    /// Directory's ZAP: livelist of the clone.
    DD_LIVELIST = "com.delphix:livelist";
    /// Directory's ZAP: time of the last change of its snapshots, in seconds since 1970.
    DD_SNAPSHOTS_CHANGED = "com.ixsystems:snapshots_changed";
}
