//! The table of [`super::GROUPS`]: OpenZFS's parameters that steer nothing here.

use super::{Group, NoEffect, big, big_read, int, uint, uint_read, uint_within, words, words_read};
use observe::Unit;

/// A group of rows: type, name, default, unit and text.
macro_rules! group {
    ($title:literal, $why:literal; $($kind:ident $name:ident = $default:expr, $unit:ident: $text:literal;)*) => {
        {
            static ROWS: [NoEffect; [$(stringify!($name)),*].len()] =
                [$($kind(stringify!($name), $default, Unit::$unit, $text)),*];
            Group { title: $title, why: $why, rows: &ROWS }
        }
    };
}

pub(super) static SPACE: Group = group! {
    "Space", "The rules by which blocks find their place are [fixed](../decisions/0009-allocator.md).";
    big metaslab_aliquot = 2 << 20, Bytes: "bytes allocated from one vdev before the next one";
    int metaslab_bias_enabled = 1, Flag: "1: emptier vdevs get more blocks";
    int metaslab_debug_load = 0, Flag: "1: all metaslabs are loaded at import";
    int metaslab_debug_unload = 0, Flag: "1: metaslabs stay loaded";
    big metaslab_df_alloc_threshold = 128 << 10, Bytes:
        "largest free segment below which the search is for the best fit";
    uint metaslab_df_free_pct = 4, Percent: "free part below which the search is for the best fit";
    uint metaslab_df_max_search = 16 << 20, Bytes: "distance searched before the tree of sizes is used";
    int metaslab_df_use_largest_segment = 0, Flag: "1: the largest segment is taken, not the best fit";
    big metaslab_force_ganging = (16 << 20) + 1, Bytes: "size from which some blocks become gang blocks";
    uint metaslab_force_ganging_pct = 3, Percent: "part of such blocks that become gang blocks";
    int metaslab_fragmentation_factor_enabled = 1, Flag: "1: less fragmented metaslabs come first";
    int metaslab_lba_weighting_enabled = 1, Flag: "1: lower addresses of spinning disks come first";
    int metaslab_perf_bias = 1, Count: "how faster vdevs get more blocks: never, when writing, always";
    int metaslab_preload_enabled = 1, Flag: "1: the next metaslabs are loaded in advance";
    uint metaslab_preload_limit = 10, Count: "metaslabs of a vdev that are loaded in advance";
    uint metaslab_preload_pct = 50, Percent: "processors that load metaslabs in advance";
    uint metaslab_unload_delay = 32, Count: "transaction groups after which an unused metaslab is unloaded";
    uint metaslab_unload_delay_ms = 600_000, Milliseconds: "time after which an unused metaslab is unloaded";
    uint spa_asize_inflation = 24, Count: "factor by which a write's need of space is overestimated";
    int spa_cpus_per_allocator = 4, Count: "processors for each allocator";
    int spa_num_allocators = 4, Count: "allocators of a pool";
    uint_within spa_slop_shift = (5, 1..=31), Shift: "part of a pool that is held back";
    int zfs_ddt_data_is_special = 1, Flag: "1: dedup tables go to special vdevs";
    uint zfs_embedded_slog_min_ms = 64, Count: "metaslabs from which a vdev sets one apart for log blocks";
    uint zfs_metaslab_condense_pct = 200, Percent:
        "size of a space map, against its smallest form, from which it is rewritten";
    uint zfs_metaslab_find_max_tries = 100, Count: "metaslabs tried before the search is wider";
    uint zfs_metaslab_fragmentation_threshold = 77, Percent:
        "fragmentation above which a metaslab is used last";
    big zfs_metaslab_max_size_cache_sec = 3600, Seconds:
        "time that an unloaded metaslab's largest segment is remembered";
    uint zfs_metaslab_mem_limit = 25, Percent: "memory that loaded metaslabs may take";
    int zfs_metaslab_segment_weight_enabled = 1, Flag: "1: metaslabs are weighed by their segments";
    int zfs_metaslab_sm_blksz_no_log = 16 << 10, Bytes: "block size of space maps without log space maps";
    int zfs_metaslab_sm_blksz_with_log = 128 << 10, Bytes: "block size of space maps with log space maps";
    int zfs_metaslab_switch_threshold = 2, Count: "classes of segments used up before the next metaslab";
    int zfs_metaslab_try_hard_before_gang = 0, Flag:
        "1: all metaslabs are tried before a gang block is made";
    uint zfs_mg_fragmentation_threshold = 95, Percent: "fragmentation above which a vdev is avoided";
    uint zfs_mg_noalloc_threshold = 0, Percent: "free part below which a vdev is avoided";
    uint zfs_special_class_metadata_reserve_pct = 25, Percent:
        "part of special vdevs that is left to metadata";
    int zfs_user_indirect_is_special = 1, Flag: "1: indirect blocks of files go to special vdevs";
    int zfs_vdev_dtl_sm_blksz = 4096, Bytes: "block size of the space maps of dirty time logs";
    int zfs_vdev_standard_sm_blksz = 128 << 10, Bytes: "block size of other space maps of vdevs";
    int zio_dva_throttle_enabled = 1, Flag: "1: vdevs that are faster get more of the waiting writes";
    words zfs_active_allocator = &["dynamic", "cursor", "new-dynamic"], Words: "the search for free space";
};

pub(super) static LOG_SPACE_MAPS_AND_LIVELISTS: Group = group! {
    "Log space maps and livelists", "Neither is written.";
    int zfs_keep_log_spacemaps_at_export = 0, Flag: "1: an export leaves log space maps";
    int zfs_livelist_condense_new_alloc = 0, Count: "counter of a test";
    int zfs_livelist_condense_sync_cancel = 0, Count: "counter of a test";
    int zfs_livelist_condense_sync_pause = 0, Flag: "1: condensing waits in the sync thread";
    int zfs_livelist_condense_zthr_cancel = 0, Count: "counter of a test";
    int zfs_livelist_condense_zthr_pause = 0, Flag: "1: condensing waits in its own thread";
    big zfs_livelist_max_entries = 500_000, Count: "entries of a part of a livelist";
    int zfs_livelist_min_percent_shared = 75, Percent:
        "shared part below which a clone's livelist is given up";
    big zfs_max_log_walking = 5, Count: "past transaction groups considered for flushing";
    big zfs_max_logsm_summary_length = 10, Count: "rows in the summary of logs";
    uint zfs_min_metaslabs_to_condense_pct = 5, Percent: "metaslabs that are flushed together";
    big zfs_min_metaslabs_to_flush = 1, Count: "metaslabs flushed in a transaction group at least";
    big zfs_unflushed_log_block_max = 1 << 17, Count: "blocks of logs at most";
    big zfs_unflushed_log_block_min = 1000, Count: "blocks of logs that are always allowed";
    uint zfs_unflushed_log_block_pct = 400, Percent: "blocks of logs for each metaslab";
    big zfs_unflushed_log_txg_max = 1000, Count: "transaction groups whose logs are kept";
    big zfs_unflushed_max_mem_amt = 1 << 30, Bytes: "memory for changes that are only in logs";
    big zfs_unflushed_max_mem_ppm = 1000, Count: "the same, in millionths of memory";
};

pub(super) static REMOVAL_AND_EXPANSION_OF_VDEVS: Group = group! {
    "Removal and expansion of vdevs",
    "No data vdev is removed, no raidz vdev grows by a disk, and mappings of removed vdevs are not condensed.";
    big raidz_expand_max_copy_bytes = 160 << 20, Bytes: "bytes that an expansion copies at a time";
    big raidz_expand_max_reflow_bytes = 0, Bytes: "bytes after which an expansion pauses";
    uint vdev_removal_max_span = 32 << 10, Bytes: "free space that a copied range may contain";
    uint zfs_condense_indirect_commit_entry_delay_ms = 0, Milliseconds: "delay of a test";
    uint zfs_condense_indirect_obsolete_pct = 25, Percent: "obsolete part from which a mapping is condensed";
    int zfs_condense_indirect_vdevs_enable = 1, Flag: "1: mappings are condensed";
    big zfs_condense_max_obsolete_bytes = 1 << 30, Bytes:
        "size of a list of obsolete ranges from which a mapping is condensed";
    big zfs_condense_min_mapping_bytes = 128 << 10, Bytes: "size from which a mapping is condensed";
    uint zfs_obsolete_min_time_ms = 500, Milliseconds: "time of a transaction group for obsolete ranges";
    uint zfs_reconstruct_indirect_combinations_max = 4096, Count:
        "combinations of copies tried for a block of a removed vdev";
    int zfs_removal_ignore_errors = 0, Flag: "1: a removal goes on after errors";
    uint zfs_removal_suspend_progress = 0, Flag: "1: a removal stands still";
    uint zfs_remove_max_segment = 16 << 20, Bytes: "bytes that a removal copies at once";
    int zfs_scrub_after_expand = 1, Flag: "1: a scrub follows an expansion";
    uint zfs_vdev_removal_max_active = 2, Count: "requests of a removal to a device at most";
    uint zfs_vdev_removal_min_active = 1, Count: "requests of a removal to a device at least";
};

pub(super) static CACHE: Group = group! {
    "Cache",
    "The other limits of the [cache](../decisions/0016-arc.md) are fixed.";
    uint dbuf_cache_hiwater_pct = 10, Percent: "excess from which a reader evicts";
    uint dbuf_cache_lowater_pct = 10, Percent: "shortfall at which eviction stops";
    big dbuf_cache_max_bytes = u64::MAX, Bytes: "size of the cache of dbufs";
    big dbuf_metadata_cache_max_bytes = u64::MAX, Bytes: "size of the cache of metadata dbufs";
    uint dbuf_metadata_cache_shift = 6, Shift: "the same, as a part of the cache";
    uint_read dbuf_mutex_cache_shift = 0, Shift: "locks of the table of dbufs";
    uint dmu_prefetch_max = 128 << 20, Bytes: "bytes that one call prefetches";
    uint_read zfs_arc_average_blocksize = 8192, Bytes: "block size for which the hash table is made";
    big zfs_arc_dnode_limit = 0, Bytes: "bytes of dnodes that are kept";
    uint zfs_arc_dnode_limit_percent = 10, Percent: "the same, as a part of metadata";
    uint zfs_arc_dnode_reduce_percent = 10, Percent: "part of the excess of dnodes that is released";
    uint zfs_arc_evict_batches_limit = 5, Count: "batches of a thread that evicts";
    uint_read zfs_arc_evict_threads = 0, Count: "threads that evict";
    uint zfs_arc_eviction_pct = 200, Percent: "part of a request that is evicted before it goes on";
    uint zfs_arc_grow_retry = 0, Seconds: "time before the cache grows again";
    uint zfs_arc_lotsfree_percent = 10, Percent: "free memory below which writes wait";
    uint zfs_arc_min_prefetch_ms = 0, Milliseconds: "time that prefetched blocks stay";
    uint zfs_arc_min_prescient_prefetch_ms = 0, Milliseconds:
        "time that blocks prefetched for a scan or stream stay";
    uint zfs_arc_no_grow_shift = 5, Shift: "part of the cache below which free memory stops its growth";
    uint zfs_arc_pc_percent = 0, Percent: "part of the page cache that the cache counts as its own";
    int zfs_arc_prune_task_threads = 1, Count: "threads that release dnodes";
    uint zfs_arc_shrink_shift = 0, Shift: "part of the cache released at once";
    int zfs_arc_shrinker_limit = 0, Count: "pages that a call of the kernel may release";
    uint_read zfs_arc_shrinker_seeks = 2, Count: "cost of a block as the kernel counts it";
    uint zfs_multilist_num_sublists = 0, Count: "sublists of a list";
    big l2arc_dwpd_limit = 100, Percent: "writes to a cache device in a day, of its size";
    int l2arc_exclude_special = 0, Flag: "1: blocks on special vdevs are not written";
    big l2arc_ext_headroom_pct = 25, Percent:
        "part of a list that is searched before the search begins again";
    big l2arc_headroom_boost = 200, Percent: "factor for the depth of the search for compressed blocks";
    big l2arc_meta_cycles = 2, Count: "rounds of metadata after which data comes first";
    big l2arc_trim_ahead = 0, Percent: "discarded space ahead of the writes to a cache device";
};

pub(super) static DEDUP_AND_CLONED_BLOCKS: Group = group! {
    "Dedup and cloned blocks",
    "Dedup tables are written without logs, and cloned blocks are counted in tables of fixed block sizes.";
    uint brt_zap_default_bs = 13, Shift: "block size of tables of cloned blocks";
    uint brt_zap_default_ibs = 13, Shift: "size of their indirect blocks";
    int brt_zap_prefetch = 1, Flag: "1: their blocks are prefetched";
    uint ddt_zap_default_bs = 15, Shift: "block size of dedup tables";
    uint ddt_zap_default_ibs = 15, Shift: "size of their indirect blocks";
    uint dmu_ddt_copies = 0, Count: "copies of dedup tables; 0: as for other metadata";
    uint zfs_dedup_log_cap = (1 << 32) - 1, Count: "entries of a log at which it is flushed faster";
    uint zfs_dedup_log_flush_entries_max = (1 << 32) - 1, Count:
        "entries flushed in a transaction group at most";
    uint zfs_dedup_log_flush_entries_min = 200, Count: "entries flushed in a transaction group at least";
    uint zfs_dedup_log_flush_flow_rate_txgs = 10, Count:
        "transaction groups over which the rate is averaged";
    uint zfs_dedup_log_flush_min_time_ms = 1000, Milliseconds: "time of a transaction group for flushing";
    uint zfs_dedup_log_flush_txgs = 100, Count: "transaction groups in which a log is flushed";
    uint zfs_dedup_log_hard_cap = 0, Flag: "1: the cap holds at once";
    big_read zfs_dedup_log_mem_max = 0, Bytes: "memory for logs";
    uint_read zfs_dedup_log_mem_max_percent = 1, Percent: "the same, as a part of memory";
    uint zfs_dedup_log_txg_max = 8, Count: "transaction groups before a log is exchanged";
    int zfs_dedup_prefetch = 0, Flag: "1: entries of blocks that are freed are prefetched";
    big zfs_max_async_dedup_frees = 250_000, Count: "dedup blocks that a transaction group frees";
    int zfs_bclone_enabled = 1, Flag: "0: no blocks are cloned";
    int zfs_bclone_strict_properties = 1, Flag: "1: clones need equal properties of both file systems";
    int zfs_bclone_wait_dirty = 1, Flag: "1: a clone of blocks not yet on disk waits for them";
};

pub(super) static REQUESTS_TO_DEVICES: Group = group! {
    "Requests to devices",
    "Only prefetched reads have a queue of their own. [Scans yield by time](../decisions/0023-making-way.md).";
    big raidz_io_aggregate_rows = 4, Count: "rows of an expanded raidz that are read at once";
    big vdev_raidz_outlier_check_interval_ms = 1000, Milliseconds:
        "time between two searches for slow disks";
    uint vdev_raidz_outlier_insensitivity = 50, Count: "how much slower a disk must be";
    big vdev_read_sit_out_secs = 600, Seconds: "time that a slow disk is not read";
    uint zfs_vdev_aggregation_limit_non_rotating = 128 << 10, Bytes:
        "size of joined requests to solid-state disks";
    uint zfs_vdev_async_write_active_max_dirty_percent = 60, Percent:
        "dirty data at which writes are most parallel";
    uint zfs_vdev_async_write_active_min_dirty_percent = 30, Percent:
        "dirty data from which writes are more parallel";
    uint zfs_vdev_async_write_max_active = 10, Count: "writes of a transaction group to a device at most";
    uint zfs_vdev_async_write_min_active = 2, Count: "writes of a transaction group to a device at least";
    uint zfs_vdev_disk_calling_thread_io = 0, Flag: "1: the requesting thread issues its requests";
    uint zfs_vdev_disk_max_segs = 0, Count: "memory segments of a request";
    uint zfs_vdev_failfast_mask = 1, Pattern: "errors after which the kernel does not try again";
    uint zfs_vdev_initializing_max_active = 1, Count: "requests of an initialization to a device at most";
    uint zfs_vdev_initializing_min_active = 1, Count: "requests of an initialization to a device at least";
    uint zfs_vdev_max_active = 1000, Count: "requests to a device at most";
    int zfs_vdev_mirror_non_rotating_inc = 0, Count: "load of a near read on a solid-state disk";
    int zfs_vdev_mirror_non_rotating_seek_inc = 1, Count: "load of a far read on a solid-state disk";
    int zfs_vdev_mirror_rotating_inc = 0, Count: "load of a near read on a spinning disk";
    int zfs_vdev_mirror_rotating_seek_inc = 5, Count: "load of a far read on a spinning disk";
    int zfs_vdev_mirror_rotating_seek_offset = 1 << 20, Bytes: "distance from which a read is far";
    uint zfs_vdev_nia_credit = 5, Count: "background requests in a row";
    uint zfs_vdev_nia_delay = 5, Count:
        "background requests after the last foreground request before the limits rise";
    uint zfs_vdev_open_timeout_ms = 1000, Milliseconds: "time that a missing device is waited for";
    uint zfs_vdev_read_gap_limit = 32 << 10, Bytes: "gap over which reads are joined";
    uint zfs_vdev_rebuild_max_active = 3, Count: "requests of a sequential resilver to a device at most";
    uint zfs_vdev_rebuild_min_active = 1, Count: "requests of a sequential resilver to a device at least";
    uint zfs_vdev_scrub_max_active = 3, Count: "requests of a scan to a device at most";
    uint zfs_vdev_scrub_min_active = 1, Count: "requests of a scan to a device at least";
    uint zfs_vdev_sync_read_max_active = 10, Count: "reads of programs to a device at most";
    uint zfs_vdev_sync_read_min_active = 10, Count: "reads of programs to a device at least";
    uint zfs_vdev_sync_write_max_active = 10, Count: "synchronous writes to a device at most";
    uint zfs_vdev_sync_write_min_active = 10, Count: "synchronous writes to a device at least";
    uint zfs_vdev_trim_max_active = 2, Count: "trims of a device at most";
    uint zfs_vdev_trim_min_active = 1, Count: "trims of a device at least";
    uint zfs_vdev_write_gap_limit = 4096, Bytes: "gap over which writes are joined";
    int zfs_nocacheflush = 0, Flag: "1: caches of devices are not flushed";
    int zio_deadman_log_all = 0, Flag: "1: hung requests above the devices are logged too";
    int zio_requeue_io_start_cut_in_line = 1, Flag: "1: a request that is issued again comes first";
    uint zfs_trim_queue_limit = 10, Count: "trims of a device that wait";
};

pub(super) static SCRUB_AND_RESILVER: Group = group! {
    "Scrub and resilver", "Scans have one way through a pool, and memory that is full is emptied at once.";
    int zfs_no_scrub_io = 0, Flag: "1: a scrub reads no data";
    int zfs_no_scrub_prefetch = 0, Flag: "1: a scrub prefetches no metadata";
    int zfs_resilver_disable_defer = 0, Flag: "1: resilvers are never deferred";
    int zfs_scan_blkstats = 0, Flag: "1: a scrub counts blocks by type";
    uint zfs_scan_fill_weight = 3, Count: "how much a segment's fill counts against its size";
    int zfs_scan_ignore_errors = 0, Flag: "1: a resilver with errors counts as done";
    uint zfs_scan_issue_strategy = 0, Count: "what is issued first: largest segments, or lowest addresses";
    int zfs_scan_legacy = 0, Flag: "1: blocks are read in the order of their names";
    big zfs_scan_max_ext_gap = 2 << 20, Bytes: "gap over which blocks are one segment";
    uint zfs_scan_mem_lim_soft_fact = 20, Divisor: "part of the memory for blocks at which issuing stops";
    uint zfs_scan_report_txgs = 0, Flag: "1: the state of a scan names its transaction group";
    int zfs_scan_strict_mem_lim = 0, Flag: "1: the memory for blocks is a firm limit";
    uint zfs_scrub_error_blocks_per_txg = 4096, Count:
        "blocks of the error log that a transaction group scrubs";
    int zfs_scrub_partial_writes = 1, Flag:
        "1: blocks that were written while a disk was missing are repaired";
};

pub(super) static SEND_AND_RECEIVE: Group = group! {
    "Send and receive", "Streams have one queue each way, whose length is in [Tunables](tunables.md).";
    int send_holes_without_birth_time = 1, Flag: "1: holes without a birth are sent";
    uint zfs_recv_defer_batch_size = 32 << 20, Bytes: "bytes of writes that a receive holds back";
    uint zfs_recv_queue_ff = 20, Divisor: "part of a queue that wakes a receive";
    uint zfs_send_no_prefetch_queue_ff = 20, Divisor: "part of a queue that wakes a stream without prefetch";
    uint zfs_send_no_prefetch_queue_length = 1 << 20, Bytes: "bytes of a queue without prefetch";
    uint zfs_send_queue_ff = 20, Divisor: "part of a queue that wakes a stream";
    int zfs_send_unmodified_spill_blocks = 1, Flag: "1: unchanged spill blocks are sent too";
};

pub(super) static TRANSACTION_GROUPS_AND_FREEING: Group = group! {
    "Transaction groups and freeing",
    "The limits of a transaction group are those of [Tunables](tunables.md).";
    big_read zfs_dirty_data_max_max = 0, Bytes: "largest `zfs_dirty_data_max`";
    uint_read zfs_dirty_data_max_max_percent = 25, Percent: "the same, as a part of memory";
    uint_read zfs_dirty_data_max_percent = 10, Percent: "`zfs_dirty_data_max` as a part of memory";
    big zfs_async_free_zio_wait_interval = 2000, Count: "frees after which a thread waits for its requests";
    int zfs_free_bpobj_enabled = 1, Flag: "0: lists of blocks to be freed stand still";
    int zfs_free_leak_on_eio = 0, Flag: "1: blocks that can't be read are leaked when they are freed";
    uint zfs_free_min_time_ms = 500, Milliseconds: "time of a transaction group for freeing";
    uint zfs_import_defer_txgs = 5, Count: "transaction groups after an import before freeing begins";
    int zfs_nopwrite_enabled = 1, Flag: "1: blocks overwritten with the same bytes are not written";
    int zfs_pd_bytes_max = 50 << 20, Bytes: "bytes prefetched by a walk";
    uint zfs_per_txg_dirty_frees_percent = 30, Percent: "frees of a transaction group, of all dirty data";
    uint zfs_sync_pass_deferred_free = 2, Count: "pass from which frees wait for the next group";
    uint zfs_sync_pass_dont_compress = 8, Count: "pass from which nothing is compressed";
    uint zfs_sync_pass_rewrite = 2, Count: "pass from which blocks are rewritten in place";
    uint zfs_traverse_indirect_prefetch_limit = 32, Count:
        "blocks of an indirect block that a walk prefetches";
    big zfs_wrlog_data_max = 0, Bytes: "bytes of writes in memory for logs; 0: twice `zfs_dirty_data_max`";
    uint spa_flush_txg_time = 600, Seconds: "time between two writes of the table of times";
    uint spa_note_txg_time = 600, Seconds: "time between two rows of the table of times";
};

pub(super) static INTENT_LOG: Group = group! {
    "Intent log", "Log blocks are always flushed and always replayed, in one class.";
    int zfs_zil_clean_taskq_maxalloc = 1 << 20, Count: "cached tasks that clean logs at most";
    int zfs_zil_clean_taskq_minalloc = 1024, Count: "cached tasks that clean logs at least";
    int zfs_zil_clean_taskq_nthr_pct = 100, Percent: "processors that clean logs";
    int zfs_zil_saxattr = 1, Flag: "0: a set of extended attributes waits for its transaction group";
    int zil_nocacheflush = 0, Flag: "1: caches of log devices are not flushed";
    int zil_replay_disable = 0, Flag: "1: logs are given up";
    big zil_slog_bulk = 64 << 20, Bytes: "bytes of a commit that have priority on a log device";
    int zil_special_is_slog = 1, Flag: "1: special vdevs serve as log devices";
};

pub(super) static OBJECTS: Group = group! {
    "Objects", "Block sizes that no property sets are fixed.";
    uint dmu_object_alloc_chunk_shift = 7, Shift: "objects that a processor takes at once";
    int zap_iterate_prefetch = 1, Flag: "1: a table is prefetched when it is listed";
    int zap_micro_max_size = 128 << 10, Bytes: "size at which a small table becomes a large one";
    int zap_shrink_enabled = 1, Flag: "1: tables shrink";
    int zfs_default_bs = 9, Shift: "block size of objects";
    int zfs_default_ibs = 17, Shift: "size of their indirect blocks";
    uint zfs_max_recordsize = 16 << 20, Bytes: "largest `recordsize`";
};

pub(super) static FILE_SYSTEMS: Group = group! {
    "File systems", "How mounts behave is [fixed](file-systems.md).";
    int zfs_admin_snapshot = 0, Flag: "1: `mkdir` in `.zfs/snapshot` makes a snapshot";
    big zfs_delete_blocks = 20_480, Count: "blocks from which a file is freed in the background";
    int zfs_delete_dentry = 0, Flag: "1: names are dropped with the last reference";
    int zfs_delete_inode = 0, Flag: "1: inodes are dropped with the last reference";
    int zfs_dio_enabled = 1, Flag: "1: `O_DIRECT` bypasses the cache";
    int zfs_dio_strict = 0, Flag: "1: `O_DIRECT` refuses what is not aligned";
    uint zfs_dio_write_verify_events_per_second = 20, Count:
        "events of a device in a second for changed buffers";
    int zfs_dmu_offset_next_sync = 1, Flag: "1: a search for holes waits for dirty blocks";
    int zfs_expire_snapshot = 300, Seconds: "time after which a mounted snapshot is unmounted";
    uint zfs_fallocate_reserve_percent = 110, Percent: "free space that `fallocate` needs";
    uint zfs_object_mutex_size = 64, Count: "locks of a file system's files";
    int zfs_snapshot_no_setuid = 0, Flag: "1: snapshots are mounted with `nosuid`";
    int zfs_unlink_suspend_progress = 0, Flag: "1: removed files are not freed";
    uint zfs_vdev_direct_write_verify = 1, Flag: "1: blocks of direct writes are verified";
    big zfs_vnops_read_chunk_size = 32 << 20, Bytes: "bytes read at once";
    int zfs_xattr_compat = 0, Flag: "1: extended attributes get the names of other systems";
};

pub(super) static VOLUMES: Group = group! {
    "Volumes",
    "Volumes are served to [programs and NBD clients](nbd.md), and not as devices of the kernel module.";
    uint zvol_blk_mq_blocks_per_thread = 8, Count: "blocks that a thread takes at once";
    uint zvol_blk_mq_queue_depth = 128, Count: "depth of a queue";
    int zvol_enforce_quotas = 1, Flag: "1: a volume keeps to its quota exactly";
    uint zvol_inhibit_dev = 0, Flag: "1: volumes get no devices";
    uint_read zvol_major = 230, Count: "major number of devices";
    big_read zvol_max_discard_blocks = 16_384, Count: "blocks discarded at once";
    uint zvol_num_taskqs = 0, Count: "queues; 0: chosen from the processors";
    uint zvol_prefetch_bytes = 128 << 10, Bytes: "bytes prefetched at both ends";
    uint zvol_request_sync = 0, Flag: "1: the requesting thread serves its request";
    uint zvol_threads = 0, Count: "threads; 0: one for each processor";
    uint zvol_use_blk_mq = 0, Flag: "1: devices have several queues";
    uint zvol_volmode = 1, Count: "what `volmode=default` means";
};

pub(super) static IMPORT_MULTIHOST: Group = group! {
    "Import, multihost", "The times of multihost protection and the checks of an import are fixed.";
    words_read spa_config_path = &["/etc/zfs/zpool.cache"], Words: "the list of imported pools";
    int spa_load_print_vdev_tree = 0, Flag: "1: an import logs the vdevs";
    uint spa_load_verify_shift = 4, Shift: "part of the cache for the reads that verify a pool";
    uint spa_upgrade_errlog_limit = 0, Count: "errors that are converted when the log gets its new form";
    int vdev_validate_skip = 0, Flag: "1: labels are not compared with the config";
    int zfs_ccw_retry_interval = 300, Seconds:
        "time after which the list of imported pools is written again";
    big zfs_max_missing_tvds_cachefile = 2, Count: "missing vdevs with which a listed pool's config is read";
    big zfs_max_missing_tvds_scan = 0, Count: "missing vdevs with which a found pool's config is read";
    uint zfs_multihost_fail_intervals = 10, Count:
        "intervals without a write after which a pool is suspended";
    uint zfs_multihost_history = 0, Count: "writes in the kstat `multihost`";
    uint zfs_multihost_import_intervals = 20, Count: "intervals that an import watches a pool";
    big zfs_multihost_interval = 1000, Milliseconds: "time between two writes to a device";
};

pub(super) static COMMANDS_AND_EVENTS: Group = group! {
    "Commands and events", "The limits of commands are fixed, and each event is recorded.";
    big zfs_history_output_max = 1 << 20, Bytes: "bytes of output that the history keeps of a command";
    big zfs_lua_max_instrlimit = 100_000_000, Count: "steps that a channel program may ask for";
    big zfs_lua_max_memlimit = 100 << 20, Bytes: "bytes that a channel program may ask for";
    big zfs_max_nvlist_src_size = 0, Bytes: "bytes of a request; 0: chosen from memory";
    int zfs_snapshot_history_enabled = 1, Flag: "1: snapshots are in the history";
    uint zfs_zevent_retain_expire_secs = 900, Seconds:
        "time that events are remembered to find repeated ones";
    uint zfs_zevent_retain_max = 2000, Count: "events that are remembered to find repeated ones";
};

pub(super) static PROCESSORS_THREADS_MEMORY: Group = group! {
    "Processors, threads, memory",
    "The implementation is chosen by the libraries, and memory is that of a program.";
    words icp_aes_impl = &["fastest", "generic"], Words: "implementation of AES";
    uint_within icp_gcm_avx_chunk_size = (32_256, 96..=131_072), Bytes:
        "bytes encrypted at once with vector registers";
    words icp_gcm_impl = &["fastest", "generic"], Words: "implementation of GCM";
    big zfs_key_max_salt_uses = 400_000_000, Count: "blocks encrypted with one salt";
    int zfs_abd_scatter_enabled = 1, Flag: "1: buffers are made of pages";
    uint zfs_abd_scatter_max_order = 9, Shift: "largest number of pages in a row";
    int zfs_abd_scatter_min_size = 1536, Bytes: "size from which buffers are made of pages";
    words zfs_blake3_impl = &["fastest", "generic"], Words: "implementation of BLAKE3";
    words zfs_fletcher_4_impl = &["fastest", "scalar"], Words: "implementation of fletcher4";
    words zfs_sha256_impl = &["fastest", "generic"], Words: "implementation of SHA-256";
    words zfs_sha512_impl = &["fastest", "generic"], Words: "implementation of SHA-512";
    words zfs_vdev_raidz_impl = &["fastest", "original", "scalar"], Words: "implementation of raidz parity";
    uint zio_taskq_batch_pct = 80, Percent: "processors for requests";
    uint zio_taskq_batch_tpq = 0, Count: "threads of a queue; 0: chosen from the processors";
    words zio_taskq_free = &["scale,32 null null null"], Words: "queues for frees";
    words zio_taskq_read = &["fixed,1,8 null scale null"], Words: "queues for reads";
    words zio_taskq_write = &["sync null scale null"], Words: "queues for writes";
    uint zio_taskq_write_tpq = 16, Count: "processors for each queue of writes";
    uint zstd_abort_size = 128 << 10, Bytes: "size from which zstd first tries whether a block compresses";
    uint zstd_earlyabort_pass = 1, Flag: "1: zstd first tries whether a block compresses";
};

pub(super) static DEBUGGING: Group = group! {
    "Debugging", "Poolhouse logs [by itself](../guide/monitoring.md), and has no such checks.";
    uint zfs_btree_verify_intensity = 0, Count: "checks of trees in memory";
    int zfs_dbgmsg_enable = 1, Flag: "1: messages are kept";
    uint zfs_dbgmsg_maxsize = 4 << 20, Bytes: "bytes of messages that are kept";
    int zfs_dbuf_state_index = 0, Count: "statistics of the table of dbufs";
    uint zfs_flags = 0, Pattern: "checks and messages";
    uint zfs_read_history = 0, Count: "reads in the kstat `reads`";
    int zfs_read_history_hits = 0, Flag: "1: with those that the cache serves";
    int zfs_recover = 0, Flag: "1: some errors in metadata do not end the program";
};
