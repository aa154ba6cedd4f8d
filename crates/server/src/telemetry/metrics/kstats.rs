//! Kstats as metrics.
//!
//! # Theory
//! A kstat is only a name and a number. What only grows is a counter here, with `_total` at the end
//! of its name. The rest are gauges. Numbers keep their names, with `poolhouse_` and the kstat's
//! name before them. A name that begins with the kstat's has it once: `zil_commit_count` of `zil`.
//! No gauge ends with `_count`, which belongs to histograms.
//!
//! # Absent
//! Kstats of single pools and datasets, since there may be thousands. Quantiles of commits: the
//! histogram of each pool has them.

use api::{Kstat, KstatValue};
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use std::fmt;

/// The numbers of `arcstats` that can shrink.
const SIZES: &str = "\
    abd_chunk_waste_size anon_data anon_evictable_data anon_evictable_metadata anon_metadata \
    anon_size arc_dnode_limit arc_loaned_bytes arc_meta_used arc_need_free arc_no_grow \
    arc_raw_size arc_sys_free arc_tempreserve bonus_size c c_max c_min compressed_size \
    data_size dbuf_size dnode_size hash_chain_max hash_chains hash_elements \
    hash_elements_max hdr_size l2_asize l2_bufc_data_asize l2_bufc_metadata_asize \
    l2_data_to_meta_ratio l2_hdr_size l2_log_blk_asize l2_log_blk_avg_asize l2_log_blk_count \
    l2_mfu_asize l2_mru_asize l2_prefetch_asize l2_size memory_all_bytes \
    memory_available_bytes memory_free_bytes meta metadata_size mfu_data mfu_evictable_data \
    mfu_evictable_metadata mfu_ghost_data mfu_ghost_evictable_data \
    mfu_ghost_evictable_metadata mfu_ghost_metadata mfu_ghost_size mfu_metadata mfu_size \
    mru_data mru_evictable_data mru_evictable_metadata mru_ghost_data \
    mru_ghost_evictable_data mru_ghost_evictable_metadata mru_ghost_metadata mru_ghost_size \
    mru_metadata mru_size overhead_size pd pm size uncached_data uncached_evictable_data \
    uncached_evictable_metadata uncached_metadata uncached_size uncompressed_size";
/// The ends of the names of numbers of `arc_sublists` that can shrink.
const BALANCE: [&str; 5] = ["_sublists", "_entries", "_most", "_least", "_evenness_percent"];
/// Numbers of `zil` that are no metrics.
const QUANTILES: [&str; 2] = ["commit_ns_p50", "commit_ns_p99"];

/// Whether a number can shrink. `metrics/page.txt` has all of them, with their types.
fn is_gauge(kstat: &str, name: &str) -> bool {
    match kstat {
        "arcstats" => SIZES.split(' ').any(|size| size == name),
        "arc_sublists" => BALANCE.iter().any(|end| name.ends_with(end)),
        "zfetchstats" => name == "io_active",
        _ => false,
    }
}

/// Encodes the numbers of kstats of all pools.
///
/// # Errors
/// Those of the encoder.
pub(super) fn encode(to: &mut DescriptorEncoder, kstats: &[Kstat]) -> fmt::Result {
    let whole = kstats.iter().filter(|kstat| kstat.pool.is_none());
    let all = whole.flat_map(|kstat| kstat.values.iter().map(move |value| (&*kstat.name, value)));
    for (kstat, (value_name, value)) in all {
        if kstat == "zil" && QUANTILES.contains(&&**value_name) {
            continue;
        }
        let own = value_name.strip_prefix(kstat).and_then(|rest| rest.strip_prefix('_'));
        let gauge = is_gauge(kstat, value_name);
        let own = own.unwrap_or(value_name);
        let own = own.strip_suffix("_count").filter(|_| gauge).unwrap_or(own);
        let name = format!("poolhouse_{kstat}_{own}");
        let help = format!("{value_name} of the kstat {kstat}");
        match value {
            KstatValue::Number(n) if !gauge => {
                let mut one = to.encode_descriptor(&name, &help, None, MetricType::Counter)?;
                one.encode_counter::<NoLabelSet, _, u64>(n, None)?;
            }
            KstatValue::Number(n) => {
                to.encode_descriptor(&name, &help, None, MetricType::Gauge)?.encode_gauge(n)?;
            }
            KstatValue::Signed(n) => {
                to.encode_descriptor(&name, &help, None, MetricType::Gauge)?.encode_gauge(n)?;
            }
            KstatValue::Text(_) => {}
        }
    }
    Ok(())
}
