//! Names in the meta object set's directory (object 1, `DMU_POOL_*`) and of its ZAPs' fields.

macro_rules! names {
    ($($(#[$m:meta])* $name:ident = $v:expr;)*) => {
        $($(#[$m])* pub const $name: &str = $v;)*
    };
}

/// The directory's object number (`DMU_POOL_DIRECTORY_OBJECT`).
pub const DIRECTORY_OBJECT: u64 = 1;

names! {
    /// Packed nvlist of the pool's configuration.
    CONFIG = "config";
    /// ZAP of feature guid to reference count: features needed to write.
    FEATURES_FOR_WRITE = "features_for_write";
    /// ZAP of feature guid to reference count: features needed to read.
    FEATURES_FOR_READ = "features_for_read";
    /// ZAP of feature guid to description.
    FEATURE_DESCRIPTIONS = "feature_descriptions";
    /// ZAP of feature guid to the txg it was enabled in.
    FEATURE_ENABLED_TXG = "feature_enabled_txg";
    /// The root DSL directory.
    ROOT_DATASET = "root_dataset";
    /// Blocks freed but still to be released.
    SYNC_BPOBJ = "sync_bplist";
    /// Errors found by the running scrub.
    ERRLOG_SCRUB = "errlog_scrub";
    /// Errors found since.
    ERRLOG_LAST = "errlog_last";
    /// Packed nvlist of the hot spares.
    SPARES = "spares";
    /// Deflated space accounting is on.
    DEFLATE = "deflate";
    /// The history.
    HISTORY = "history";
    /// ZAP of the pool's properties.
    PROPS = "pool_props";
    /// Packed nvlist of the cache devices.
    L2CACHE = "l2cache";
    /// ZAP of temporary holds.
    TMP_USERREFS = "tmp_userrefs";
    /// ZAP of DDT statistics.
    DDT_STATS = "DDT-statistics";
    /// Pool version at creation.
    CREATION_VERSION = "creation_version";
    /// State of the last scan.
    SCAN = "scan";
    /// State of the last error scrub.
    ERRORSCRUB = "error_scrub";
    /// The txg of the last finished scrub.
    LAST_SCRUBBED_TXG = "last_scrubbed_txg";
    /// Blocks to free in the background.
    FREE_BPOBJ = "free_bpobj";
    /// Datasets to free in the background.
    BPTREE_OBJ = "bptree_obj";
    /// The shared empty bpobj.
    EMPTY_BPOBJ = "empty_bpobj";
    /// Salt of salted checksums, 32 bytes.
    CHECKSUM_SALT = "org.illumos:checksum_salt";
    /// ZAP of the vdevs' ZAPs.
    VDEV_ZAP_MAP = "com.delphix:vdev_zap_map";
    /// State of the last device removal.
    REMOVING = "com.delphix:removing";
    /// Obsolete blocks on indirect vdevs.
    OBSOLETE_BPOBJ = "com.delphix:obsolete_bpobj";
    /// A mapping being condensed.
    CONDENSING_INDIRECT = "com.delphix:condensing_indirect";
    /// The uberblock of the checkpoint.
    ZPOOL_CHECKPOINT = "com.delphix:zpool_checkpoint";
    /// ZAP of txg to log space map.
    LOG_SPACEMAP_ZAP = "com.delphix:log_spacemap_zap";
    /// ZAP of deleted clones' livelists.
    DELETED_CLONES = "com.delphix:deleted_clones";

    /// Top-level vdev's ZAP: the obsolete space map of an indirect vdev.
    VDEV_TOP_INDIRECT_OBSOLETE_SM = "com.delphix:indirect_obsolete_sm";
    /// Top-level vdev's ZAP: the obsolete counts are precise.
    VDEV_TOP_OBSOLETE_COUNTS_ARE_PRECISE = "com.delphix:obsolete_counts_are_precise";
    /// Top-level vdev's ZAP: the checkpoint's space map.
    VDEV_TOP_POOL_CHECKPOINT_SM = "com.delphix:pool_checkpoint_sm";
    /// Top-level vdev's ZAP: object of each metaslab's last flushed txg.
    VDEV_TOP_MS_UNFLUSHED_PHYS_TXGS = "com.delphix:ms_unflushed_phys_txgs";
    /// Top-level vdev's ZAP: state of a sequential rebuild.
    VDEV_TOP_REBUILD_PHYS = "org.openzfs:vdev_rebuild";
    /// Top-level vdev's ZAP: allocation class, `log`, `special` or `dedup`.
    VDEV_TOP_ALLOCATION_BIAS = "org.zfsonlinux:allocation_bias";
    /// Top-level vdev's ZAP: state of a raidz expansion.
    VDEV_TOP_RAIDZ_EXPAND_STATE = "org.openzfs:raidz_expand_state";
    /// Top-level vdev's ZAP: when it started.
    VDEV_TOP_RAIDZ_EXPAND_START_TIME = "org.openzfs:raidz_expand_start_time";
    /// Top-level vdev's ZAP: when it ended.
    VDEV_TOP_RAIDZ_EXPAND_END_TIME = "org.openzfs:raidz_expand_end_time";
    /// Top-level vdev's ZAP: bytes copied.
    VDEV_TOP_RAIDZ_EXPAND_BYTES_COPIED = "org.openzfs:raidz_expand_bytes_copied";

    /// Leaf's ZAP: how far initialisation came, a byte of the device.
    VDEV_LEAF_INITIALIZE_LAST_OFFSET = "com.delphix:next_offset_to_initialize";
    /// Leaf's ZAP: where initialisation stands.
    VDEV_LEAF_INITIALIZE_STATE = "com.delphix:vdev_initialize_state";
    /// Leaf's ZAP: when it was started, stopped or completed, seconds since 1970.
    VDEV_LEAF_INITIALIZE_ACTION_TIME = "com.delphix:vdev_initialize_action_time";
    /// Leaf's ZAP: how far TRIM came, a byte of the device.
    VDEV_LEAF_TRIM_LAST_OFFSET = "org.zfsonlinux:next_offset_to_trim";
    /// Leaf's ZAP: where TRIM stands.
    VDEV_LEAF_TRIM_STATE = "org.zfsonlinux:vdev_trim_state";
    /// Leaf's ZAP: when it was started, stopped or completed, seconds since 1970.
    VDEV_LEAF_TRIM_ACTION_TIME = "org.zfsonlinux:vdev_trim_action_time";
    /// Leaf's ZAP: bytes a second that TRIM may do; 0 is no limit.
    VDEV_LEAF_TRIM_RATE = "org.zfsonlinux:vdev_trim_rate";
    /// Leaf's ZAP: TRIM passes over metaslabs that were never used.
    VDEV_LEAF_TRIM_PARTIAL = "org.zfsonlinux:vdev_trim_partial";
    /// Leaf's ZAP: TRIM is to be a secure one.
    VDEV_LEAF_TRIM_SECURE = "org.zfsonlinux:vdev_trim_secure";

    /// Dataset's ZAP: its bookmarks.
    DS_BOOKMARK_NAMES = "com.delphix:bookmarks";
    /// Dataset's ZAP: it has large dnodes.
    DS_LARGE_DNODE = "org.zfsonlinux:large_dnode";
    /// Dataset's ZAP: resume state of a receive.
    DS_RESUME_FROMGUID = "com.delphix:resume_fromguid";
    /// Dataset's ZAP: resume state of a receive.
    DS_RESUME_TONAME = "com.delphix:resume_toname";
    /// Dataset's ZAP: resume state of a receive.
    DS_RESUME_TOGUID = "com.delphix:resume_toguid";
    /// Dataset's ZAP: resume state of a receive.
    DS_RESUME_OBJECT = "com.delphix:resume_object";
    /// Dataset's ZAP: resume state of a receive.
    DS_RESUME_OFFSET = "com.delphix:resume_offset";
    /// Dataset's ZAP: resume state of a receive.
    DS_RESUME_BYTES = "com.delphix:resume_bytes";
    /// Dataset's ZAP: resume state of a receive.
    DS_RESUME_LARGEBLOCK = "com.delphix:resume_largeblockok";
    /// Dataset's ZAP: resume state of a receive.
    DS_RESUME_EMBEDOK = "com.delphix:resume_embedok";
    /// Dataset's ZAP: resume state of a receive.
    DS_RESUME_COMPRESSOK = "com.delphix:resume_compressok";
    /// Dataset's ZAP: resume state of a receive.
    DS_RESUME_RAWOK = "com.datto:resume_rawok";
    /// Dataset's ZAP: resume state of a receive.
    DS_RESUME_REDACT_BOOKMARK_SNAPS = "com.delphix:resume_redact_book_snaps";
    /// Dataset's ZAP: guids of the snapshots that it was redacted for.
    DS_REDACTED_SNAPS = "com.delphix:redacted_datasets";
    /// Dataset's ZAP: deadlist of remapped blocks.
    DS_REMAP_DEADLIST = "com.delphix:remap_deadlist";
    /// Dataset's ZAP: guid of its set of initialisation vectors.
    DS_IVSET_GUID = "com.datto:ivset_guid";

    /// Directory's ZAP: file systems and volumes below, for `filesystem_limit`.
    DD_FILESYSTEM_COUNT = "com.joyent:filesystem_count";
    /// Directory's ZAP: snapshots below, for `snapshot_limit`.
    DD_SNAPSHOT_COUNT = "com.joyent:snapshot_count";
    /// Directory's ZAP: the clone's livelist.
    DD_LIVELIST = "com.delphix:livelist";
    /// Directory's ZAP: when its snapshots last changed, seconds since 1970.
    DD_SNAPSHOTS_CHANGED = "com.ixsystems:snapshots_changed";
}
