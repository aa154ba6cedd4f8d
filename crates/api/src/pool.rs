//! A pool's status: its configuration tree with states, errors and statistics.

use serde::{Deserialize, Serialize};

use super::{IoStat, LoadInfo, Prop};

/// What to include in the answer about a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct PoolQuery {
    /// The pool's properties and features.
    pub props: bool,
    /// Each vdev's properties (`zpool get … vdev`).
    pub vdev_props: bool,
    /// The list of damaged files, as paths (`zpool status -v`, `zpool_get_errlog`).
    pub errors: bool,
    /// The cached size of the deduplication tables (`zpool status -DD`).
    pub dedup_cached: bool,
    /// Detailed I/O statistics of each vdev (`zpool iostat`).
    pub io: bool,
}

/// An imported pool, or the configuration of one that could be imported.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Pool {
    /// Its name.
    pub name: String,
    /// Its guid (`pool_guid`).
    pub guid: u64,
    /// The state that the configuration records (`pool_state`).
    pub state: PoolState,
    /// The number of the last transaction group.
    pub txg: u64,
    /// The on-disk version (`version`): 1 to 28, or 5000.
    pub version: u64,
    /// The most severe problem.
    pub status: StatusReason,
    /// The erratum that applies (`zpool_errata_t`), 0 for none.
    pub errata: u64,
    /// Why the pool is suspended, if it is.
    pub suspended: Option<SuspendReason>,
    /// Why the pool can't write transaction groups until its next import, if so.
    #[serde(default)]
    pub broken: Option<String>,
    /// For how many seconds the present transaction group has been syncing. Absent if that is less
    /// than `zfs_deadman_synctime_ms`.
    #[serde(default)]
    pub slow_group: Option<u64>,
    /// The root vdev.
    pub root: Vdev,
    /// Hot spares.
    pub spares: Vec<Vdev>,
    /// Cache devices.
    pub l2cache: Vec<Vdev>,
    /// The last or current scrub or resilver (`scan_stats`).
    pub scan: Option<ScanStat>,
    /// A resilver is wanted, and begins with a later transaction group.
    #[serde(default)]
    pub resilver_wanted: bool,
    /// The last or current device removal (`removal_stats`).
    pub removal: Option<RemovalStat>,
    /// The checkpoint (`checkpoint_stats`).
    pub checkpoint: Option<CheckpointStat>,
    /// The last or current raidz expansion (`raidz_expand_stats`).
    pub expand: Option<ExpandStat>,
    /// The pool did not answer. This is an older state, with the present states of its devices.
    #[serde(default)]
    pub stale: bool,
    /// Files of its devices that were removed while in use. They vanish when the pool is exported.
    #[serde(default)]
    pub nameless: Vec<Nameless>,
    /// Paths of its devices for which a write found no free space: the file system or pool that
    /// holds them is full.
    #[serde(default)]
    pub no_room: Vec<String>,
    /// The number of damaged objects known (`error_count`); absent if the pool could not be loaded.
    pub error_count: Option<u64>,
    /// The damaged files, if requested: `/mountpoint/path`, `dataset:/path`, `dataset:<0x12>` or
    /// `<metadata>:<0x12>`.
    pub errors: Vec<String>,
    /// They were requested by a caller that may not see their names.
    #[serde(default)]
    pub errors_withheld: bool,
    /// The totals of the deduplication tables; absent if the pool could not be loaded.
    pub ddt: Option<DdtSummary>,
    /// What its import found out.
    pub load_info: LoadInfo,
    /// Properties, if requested: native ones in OpenZFS's order, user properties, `feature@…`,
    /// `unsupported@…`.
    pub props: Vec<Prop>,
}

impl Pool {
    /// The property of that name.
    pub fn prop(&self, name: &str) -> Option<&Prop> {
        self.props.iter().find(|p| p.name == name)
    }
}

/// The state of a pool in its configuration (`pool_state_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PoolState {
    /// In active use.
    #[default]
    Active,
    /// Explicitly exported.
    Exported,
    /// Explicitly destroyed.
    Destroyed,
    /// The device is a hot spare.
    Spare,
    /// The device is a cache device.
    L2cache,
    /// Not known.
    Uninitialized,
    /// Can't be opened.
    Unavail,
    /// Could be imported.
    PotentiallyActive,
}

/// The most severe problem of a pool (`zpool_status_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs, reason = "each is the OpenZFS name, explained by the text that commands print for it")]
pub enum StatusReason {
    CorruptCache,
    MissingDevReplicated,
    MissingDevNotReplicated,
    CorruptLabelReplicated,
    CorruptLabelNotReplicated,
    BadGuidSum,
    CorruptPool,
    CorruptData,
    FailingDev,
    VersionNewer,
    HostidMismatch,
    HostidActive,
    HostidRequired,
    IoFailureWait,
    IoFailureContinue,
    IoFailureMmp,
    Broken,
    SlowGroup,
    BadLog,
    Errata,
    UnsupFeatRead,
    UnsupFeatWrite,
    FaultedDevReplicated,
    FaultedDevNotReplicated,
    VersionOlder,
    FeatDisabled,
    Resilvering,
    OfflineDev,
    RemovedDev,
    Rebuilding,
    RebuildScrub,
    NonNativeAshift,
    CompatibilityErr,
    IncompatibleFeat,
    #[default]
    Ok,
}

/// Why a pool is suspended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SuspendReason {
    /// A write failed and `failmode` is `wait` or `panic`.
    IoWait,
    /// A write failed and `failmode` is `continue`.
    IoContinue,
    /// A multihost write failed.
    Mmp,
}

/// A vdev in the configuration tree.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Vdev {
    /// The type: `root`, `mirror`, `raidz`, `draid`, `dspare`, `disk`, `file`, `replacing`,
    /// `spare`, `missing`, `hole`, `indirect` or `log`.
    pub kind: String,
    /// Its position among its siblings.
    pub id: u64,
    /// Its guid.
    pub guid: u64,
    /// The path where it was last found.
    pub path: Option<String>,
    /// Its physical location.
    pub phys_path: Option<String>,
    /// Its device id.
    pub devid: Option<String>,
    /// The enclosure's path.
    pub enc_path: Option<String>,
    /// Its field-replaceable unit.
    pub fru: Option<String>,
    /// Whether ZFS owns the whole disk, so that its name is shown without the partition.
    pub whole_disk: bool,
    /// It was not found when the pool was opened. Its path is where it was.
    pub not_present: bool,
    /// It is a log device.
    pub is_log: bool,
    /// It is a gap in the numbering of top-level vdevs.
    pub is_hole: bool,
    /// It is a hot spare, or the spare that replaces another device for now.
    pub is_spare: bool,
    /// The other pool that uses a hot spare.
    pub spared_by: Option<String>,
    /// `special` or `dedup`, for a top-level vdev of an allocation class.
    pub alloc_bias: Option<String>,
    /// The number of parity devices of a raidz or draid.
    pub nparity: u64,
    /// The number of data devices in a group of a draid.
    pub draid_ndata: u64,
    /// The number of distributed spares of a draid.
    pub draid_nspares: u64,
    /// Its statistics.
    pub stat: VdevStat,
    /// The last or current sequential resilver, for a top-level vdev that had one.
    pub rebuild: Option<RebuildStat>,
    /// Its properties, if requested.
    pub props: Vec<Prop>,
    /// Its children.
    pub children: Vec<Vdev>,
}

/// The file of a device that was removed while in use.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Nameless {
    /// The guid of the device.
    pub guid: u64,
    /// The path where it was.
    pub path: String,
    /// The path where it can be read as long as the pool is imported.
    pub still: String,
}

/// A vdev's statistics (`vdev_stat_t`), since it was opened.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct VdevStat {
    /// Its state.
    pub state: VdevState,
    /// The reason for its state.
    pub aux: VdevAux,
    /// Bytes allocated.
    pub alloc: u64,
    /// Its size in bytes; 0 for a leaf below a top-level vdev.
    pub space: u64,
    /// Its size in deflated bytes: without parity.
    pub dspace: u64,
    /// The least size of a replacement in bytes.
    pub rsize: u64,
    /// The bytes by which it could grow.
    pub esize: u64,
    /// The size of the physical device in bytes.
    pub pspace: u64,
    /// Operations by kind: null, read, write, free, claim, trim (`vs_ops`).
    pub ops: [u64; 6],
    /// Bytes by kind, in the same order.
    pub bytes: [u64; 6],
    /// Reads that failed.
    pub read_errors: u64,
    /// Writes that failed.
    pub write_errors: u64,
    /// Blocks whose checksum did not match.
    pub checksum_errors: u64,
    /// Initializing writes that failed.
    pub initialize_errors: u64,
    /// Bytes repaired.
    pub self_healed: u64,
    /// Bytes of this device that the current scan repaired.
    pub scan_processed: u64,
    /// It is being removed.
    pub removing: bool,
    /// Fragmentation in per cent; absent where it isn't known.
    pub fragmentation: Option<u64>,
    /// Bytes held by the checkpoint.
    pub checkpoint_space: u64,
    /// A resilver of it waits until the present one ends.
    pub resilver_deferred: bool,
    /// I/Os that took too long.
    pub slow_ios: u64,
    /// Nothing new is allocated on it (`noalloc`).
    pub noalloc: bool,
    /// Direct writes whose data changed while they were written.
    pub dio_verify_errors: u64,
    /// `ashift` in use.
    pub configured_ashift: u64,
    /// The device's own block size, as a power of two.
    pub physical_ashift: u64,
    /// The progress of its initialization.
    pub initialize: LeafWork,
    /// The progress of its TRIM.
    pub trim: LeafWork,
    /// The device does not support TRIM.
    pub trim_notsup: bool,
    /// Nanoseconds since it was opened, if requested.
    pub timestamp_ns: u64,
    /// Its detailed I/O statistics, if requested.
    pub io: Option<Box<IoStat>>,
}

/// The progress of a leaf's initialization or TRIM.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct LeafWork {
    /// Its present state.
    pub state: WorkState,
    /// When it was started, stopped or completed, in seconds since the epoch.
    pub action_time: u64,
    /// Bytes done.
    pub bytes_done: u64,
    /// Bytes to do.
    pub bytes_est: u64,
    /// The number of errors.
    pub errors: u64,
}

/// The state of a leaf's initialization or TRIM (`vdev_initializing_state_t`, `vdev_trim_state_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs, reason = "the words say it")]
pub enum WorkState {
    #[default]
    None,
    Active,
    Canceled,
    Suspended,
    Complete,
}

/// A vdev's state (`vdev_state_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs, reason = "the OpenZFS names")]
pub enum VdevState {
    #[default]
    Unknown,
    Closed,
    Offline,
    Removed,
    CantOpen,
    Faulted,
    Degraded,
    Healthy,
}

/// The reason for a vdev's state (`vdev_aux_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs, reason = "the OpenZFS names")]
pub enum VdevAux {
    #[default]
    None,
    OpenFailed,
    CorruptData,
    NoReplicas,
    BadGuidSum,
    TooSmall,
    BadLabel,
    VersionNewer,
    VersionOlder,
    UnsupFeat,
    Spared,
    ErrExceeded,
    IoFailure,
    BadLog,
    External,
    SplitPool,
    BadAshift,
    ExternalPersist,
    Active,
    ChildrenOffline,
    AshiftTooBig,
}

/// The kind of a scan (`pool_scan_func_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs, reason = "the OpenZFS names")]
pub enum ScanFunc {
    #[default]
    None,
    Scrub,
    Resilver,
    ErrorScrub,
}

/// The state of a scan, removal or expansion (`dsl_scan_state_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs, reason = "the OpenZFS names")]
pub enum ScanState {
    #[default]
    None,
    Scanning,
    Finished,
    Canceled,
    ErrorScrubbing,
}

/// A scrub or resilver (`pool_scan_stat_t`). Times are in seconds since the epoch, sizes in bytes.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "named as in pool_scan_stat_t, without its prefix")]
pub struct ScanStat {
    pub func: ScanFunc,
    pub state: ScanState,
    pub start_time: u64,
    pub end_time: u64,
    pub to_examine: u64,
    pub examined: u64,
    pub skipped: u64,
    pub processed: u64,
    pub errors: u64,
    pub pass_exam: u64,
    pub pass_start: u64,
    pub pass_scrub_pause: u64,
    pub pass_scrub_spent_paused: u64,
    pub pass_issued: u64,
    pub issued: u64,
    pub error_scrub_func: ScanFunc,
    pub error_scrub_state: ScanState,
    pub error_scrub_start: u64,
    pub error_scrub_end: u64,
    pub error_scrub_examined: u64,
    pub error_scrub_to_be_examined: u64,
    pub pass_error_scrub_pause: u64,
}

/// A device removal (`pool_removal_stat_t`).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "named as in pool_removal_stat_t, without its prefix")]
pub struct RemovalStat {
    pub state: ScanState,
    pub removing_vdev: u64,
    pub start_time: u64,
    pub end_time: u64,
    pub to_copy: u64,
    pub copied: u64,
    pub mapping_memory: u64,
}

/// Whether there is a checkpoint (`checkpoint_state_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs, reason = "the words say it")]
pub enum CheckpointState {
    #[default]
    None,
    Exists,
    Discarding,
}

/// The checkpoint (`pool_checkpoint_stat_t`).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "named as in pool_checkpoint_stat_t, without its prefix")]
pub struct CheckpointStat {
    pub state: CheckpointState,
    pub start_time: u64,
    pub space: u64,
}

/// A raidz expansion (`pool_raidz_expand_stat_t`).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "named as in pool_raidz_expand_stat_t, without its prefix")]
pub struct ExpandStat {
    pub state: ScanState,
    pub expanding_vdev: u64,
    pub start_time: u64,
    pub end_time: u64,
    pub to_reflow: u64,
    pub reflowed: u64,
    pub waiting_for_resilver: bool,
}

/// The state of a sequential resilver (`vdev_rebuild_state_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs, reason = "the words say it")]
pub enum RebuildState {
    #[default]
    None,
    Active,
    Canceled,
    Complete,
}

/// A sequential resilver (`vdev_rebuild_stat_t`).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "named as in vdev_rebuild_stat_t, without its prefix")]
pub struct RebuildStat {
    pub state: RebuildState,
    pub start_time: u64,
    pub end_time: u64,
    pub scan_time_ms: u64,
    pub bytes_scanned: u64,
    pub bytes_issued: u64,
    pub bytes_rebuilt: u64,
    pub bytes_est: u64,
    pub errors: u64,
    pub pass_time_ms: u64,
    pub pass_bytes_scanned: u64,
    pub pass_bytes_issued: u64,
    pub pass_bytes_skipped: u64,
}

/// The totals of one bucket of the deduplication tables (`ddt_stat_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "named as in ddt_stat_t, without its prefix")]
pub struct DdtTotals {
    pub blocks: u64,
    pub lsize: u64,
    pub psize: u64,
    pub dsize: u64,
    pub ref_blocks: u64,
    pub ref_lsize: u64,
    pub ref_psize: u64,
    pub ref_dsize: u64,
}

/// The totals of a pool's deduplication tables (`ddt_object_t`).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct DdtSummary {
    /// The number of entries.
    pub count: u64,
    /// Bytes on disk of all entries.
    pub dspace: u64,
    /// Bytes in memory if all were loaded.
    pub mspace: u64,
    /// Bytes cached, if requested.
    pub cached: Option<u64>,
    /// The totals over all buckets.
    pub total: DdtTotals,
    /// The buckets that hold something: (power of two of the reference count, totals).
    pub histogram: Vec<(u32, DdtTotals)>,
}

/// A part of a pool's history, oldest record first (`zpool_get_history`).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct HistoryPage {
    /// The records.
    pub records: Vec<HistoryRecord>,
    /// The position of the next part; absent when this is the last.
    pub next: Option<u64>,
}

/// A record of the pool's history.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HistoryRecord {
    /// Seconds since the epoch.
    #[serde(default)]
    pub time: Option<u64>,
    /// How long the command took, in nanoseconds, if the record says so.
    #[serde(default)]
    pub elapsed_ns: Option<u64>,
    /// The uid of the user that ran it.
    #[serde(default)]
    pub who: Option<u64>,
    /// The host where it ran.
    #[serde(default)]
    pub host: Option<String>,
    /// The zone where it ran.
    #[serde(default)]
    pub zone: Option<String>,
    /// What was done.
    pub what: HistoryKind,
}

/// The contents of a history record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HistoryKind {
    /// A command line.
    Command(String),
    /// An internal event of an old pool, by number (`ZPOOL_HIST_INT_EVENT`).
    LegacyEvent {
        /// The number of the event (`history internal event`).
        event: u64,
        /// Its transaction group.
        txg: u64,
        /// Its text.
        text: String,
    },
    /// An internal event, by name.
    Internal {
        /// Its name.
        name: String,
        /// Its transaction group.
        txg: u64,
        /// The dataset that it is about, by name and object number.
        dataset: Option<(String, u64)>,
        /// Its text.
        text: String,
    },
    /// A system call, with its arguments as indented lines.
    Ioctl {
        /// Its name.
        name: String,
        /// Its argument list, dumped as `dump_nvlist` does with indent 8.
        #[serde(default)]
        input: Option<String>,
        /// Its result list, dumped the same way.
        #[serde(default)]
        output: Option<String>,
        /// The size of a result too large to log, in bytes.
        #[serde(default)]
        output_size: Option<i64>,
        /// The error number that it returned.
        #[serde(default)]
        errno: Option<i64>,
    },
    /// Any other record, dumped with indent 4.
    Unknown(String),
}
