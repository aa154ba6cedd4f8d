use super::*;
use crate::telemetry::tunables::Tunables;
use api::Caller;
use std::collections::BTreeSet;

/// What OpenZFS's test suite sets on Linux (`tests/zfs-tests/include/tunables.cfg`).
const SUITE: &str = "\
    dbuf_cache_shift ddt_zap_default_bs ddt_zap_default_ibs l2arc_dwpd_limit l2arc_ext_headroom_pct \
    l2arc_meta_cycles l2arc_mfuonly l2arc_noprefetch l2arc_rebuild_blocks_min_l2size \
    l2arc_rebuild_enabled l2arc_trim_ahead l2arc_write_max metaslab_debug_load \
    metaslab_force_ganging metaslab_force_ganging_pct raidz_expand_max_reflow_bytes \
    send_holes_without_birth_time spa_asize_inflation spa_flush_txg_time spa_load_verify_data \
    spa_load_verify_metadata spa_note_txg_time vdev_file_logical_ashift vdev_file_physical_ashift \
    vdev_raidz_outlier_check_interval_ms vdev_raidz_outlier_insensitivity vdev_read_sit_out_secs \
    vdev_validate_skip zap_micro_max_size zfs_admin_snapshot zfs_allow_redacted_dataset_mount \
    zfs_arc_max zfs_arc_min zfs_async_block_max_blocks zfs_bclone_enabled \
    zfs_bclone_strict_properties zfs_bclone_wait_dirty zfs_checksum_events_per_second \
    zfs_commit_timeout_pct zfs_compressed_arc_enabled zfs_condense_indirect_commit_entry_delay_ms \
    zfs_condense_indirect_obsolete_pct zfs_condense_min_mapping_bytes zfs_ddt_data_is_special \
    zfs_deadman_checktime_ms zfs_deadman_events_per_second zfs_deadman_failmode \
    zfs_deadman_synctime_ms zfs_deadman_ziotime_ms zfs_dedup_log_flush_entries_max \
    zfs_dedup_log_flush_entries_min zfs_dedup_log_txg_max zfs_dio_enabled zfs_dio_strict \
    zfs_dio_write_verify_events_per_second zfs_disable_ivset_guid_check zfs_dmu_offset_next_sync \
    zfs_embedded_slog_min_ms zfs_expire_snapshot zfs_initialize_chunk_size zfs_initialize_value \
    zfs_keep_log_spacemaps_at_export zfs_livelist_condense_new_alloc \
    zfs_livelist_condense_sync_cancel zfs_livelist_condense_sync_pause \
    zfs_livelist_condense_zthr_cancel zfs_livelist_condense_zthr_pause zfs_livelist_max_entries \
    zfs_livelist_min_percent_shared zfs_lua_max_memlimit zfs_max_dataset_nesting \
    zfs_max_missing_tvds zfs_multihost_fail_intervals zfs_multihost_history \
    zfs_multihost_import_intervals zfs_multihost_interval zfs_override_estimate_recordsize \
    zfs_prefetch_disable zfs_rebuild_scrub_enabled zfs_recv_defer_batch_size \
    zfs_removal_suspend_progress zfs_remove_max_segment zfs_resilver_defer_percent \
    zfs_resilver_min_time_ms zfs_scan_legacy zfs_scan_suspend_progress zfs_scan_vdev_limit \
    zfs_scrub_after_expand zfs_slow_io_events_per_second zfs_snapshot_no_setuid \
    zfs_spa_discard_memory_limit zfs_trim_extent_bytes_min zfs_trim_metaslab_skip zfs_trim_txg_batch \
    zfs_txg_history zfs_txg_timeout zfs_unlink_suspend_progress zfs_vdev_direct_write_verify \
    zfs_vdev_max_auto_ashift zfs_vdev_min_ms_count zfs_xattr_compat zfs_zevent_len_max \
    zfs_zevent_retain_max zfs_zil_saxattr zio_slow_io_ms zvol_inhibit_dev zvol_request_sync \
    zvol_use_blk_mq zvol_volmode";

fn name(one: &NoEffect) -> &'static str {
    one.tunable.parameter().name
}

/// Goal: a parameter is listed once, marked, with its default; a value is kept, and one that
/// OpenZFS's type can't have is refused.
#[test]
fn kept_and_refused() {
    let tunables = Tunables::default();
    let set = |name: &str, value| tunables.set(&Caller::this_process(), name, value, &[]);
    let listed = |name: &str| tunables.list().into_iter().find(|t| t.name == name).unwrap();
    for one in all() {
        let (name, range) = (name(one), &one.tunable.parameter().range);
        let shown = listed(name);
        assert!(shown.no_effect && shown.default == one.tunable.default(), "{name}");
        assert!(range.contains(&shown.default), "{name}");
        assert_eq!(shown.read_only, one.read_only, "{name}");
        assert_eq!(set(name, *range.end()).is_ok(), !one.read_only, "{name}");
        let kept = if one.read_only { shown.value } else { *range.end() };
        assert_eq!(listed(name).value, kept, "{name}");
        assert!(*range.end() == u64::MAX || set(name, range.end() + 1).is_err(), "{name}");
        let least = u64::from(i32::MIN.unsigned_abs()).wrapping_neg();
        let signed = one.kind == Kind::Int;
        let fits = !one.read_only && (signed || *range.end() == u64::MAX);
        assert_eq!(set(name, least).is_ok(), fits, "{name}");
        assert!(!signed || listed(name).told(least) == "-2147483648", "{name}");
        one.tunable.set(one.tunable.default());
    }
    let names: Vec<String> = tunables.list().into_iter().map(|t| t.name).collect();
    let once: BTreeSet<&String> = names.iter().collect();
    assert_eq!(once.len(), names.len(), "no name is listed twice");
    assert!(listed("zfs_txg_timeout").name == "zfs_txg_timeout" && !listed("zfs_txg_timeout").no_effect);
}

/// Goal: OpenZFS's test suite finds each name that it sets.
#[test]
fn the_suite_finds_its_names() {
    let names: BTreeSet<String> = Tunables::default().list().into_iter().map(|t| t.name).collect();
    let lacking: Vec<&str> = SUITE.split_whitespace().filter(|name| !names.contains(*name)).collect();
    assert_eq!(lacking, <[&str; 0]>::default());
    assert!(SUITE.split_whitespace().count() > 100);
}

/// The page's part that comes from the table.
fn rendered() -> String {
    let mut text = String::new();
    for group in GROUPS {
        text += &format!("## {}\n\n{}\n\n", group.title, group.why);
        text += "| name | type | default | meaning in OpenZFS |\n|---|---|---|---|\n";
        for one in group.rows {
            let kind = match one.kind {
                Kind::Int => "int",
                Kind::Uint => "uint",
                Kind::Big => "u64",
                Kind::Words => "word",
            };
            let read = if one.read_only { ", read only" } else { "" };
            let default = match one.tunable.words() {
                [] => one.tunable.default().to_string(),
                words => format!("`{}`", words[0]),
            };
            let what = one.tunable.parameter().text;
            text += &format!("| `{}` | {kind}{read} | {default} | {what} |\n", name(one));
        }
        text += "\n";
    }
    text.trim_end().to_owned() + "\n"
}

/// Goal: docs/reference/tunables-without-effect.md has the table, as it is.
///
/// With `UPDATE_REFERENCE` in the environment, the test writes the page.
#[test]
fn the_page_has_the_table() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/tunables-without-effect.md");
    let text = std::fs::read_to_string(page).unwrap();
    let (intro, table) = text.split_at(text.find("\n## ").unwrap() + 1);
    if std::env::var_os("UPDATE_REFERENCE").is_some() {
        std::fs::write(page, intro.to_owned() + &rendered()).unwrap();
        return;
    }
    assert!(table == rendered(), "the page is not up to date: run this test with UPDATE_REFERENCE=1");
}
