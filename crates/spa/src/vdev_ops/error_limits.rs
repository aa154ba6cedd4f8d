//! How many errors a device may have before it is degraded or faulted.
//!
//! # See
//! OpenZFS's vdev properties `checksum_n`, `io_n` and `slow_io_n`, which `zed` reads
//! (`cmd/zed/agents/zfs_diagnosis.c`).

use std::time::Duration;

use ondisk::ObjNum;
use vdev::{Limit, Symptom};

use crate::pool_core::PoolCore;

/// The properties that limit a symptom: the number of errors, and the seconds within which they
/// count.
const LIMITS: [(Symptom, &str, &str); 3] = [
    (Symptom::Checksum, "checksum_n", "checksum_t"),
    (Symptom::Io, "io_n", "io_t"),
    (Symptom::Slow, "slow_io_n", "slow_io_t"),
];

/// Whether a vdev property is a limit for a symptom.
pub(crate) fn is_limit(name: &str) -> bool {
    LIMITS.iter().any(|(_, count, time)| name == *count || name == *time)
}

/// The limit that the properties set. Slow I/Os have a limit only if both properties are set.
fn limit(what: Symptom, count: Option<u64>, seconds: Option<u64>) -> Limit {
    let usual = match what {
        Symptom::Slow if count.is_none() || seconds.is_none() => return Limit::NEVER,
        _ => Limit::DEFAULT,
    };
    Limit { count: count.unwrap_or(usual.count), within: seconds.map_or(usual.within, Duration::from_secs) }
}

/// Gives the tree its error limits, from the properties of devices and their top-level vdevs. A
/// property that can't be read counts as unset.
pub(crate) fn load(core: &PoolCore) {
    let config = core.config_now();
    let tree = core.tree();
    let number = |zap: Option<ObjNum>, name: &str| {
        let value = zap.and_then(|zap| core.mos.u64(zap, name).ok().flatten());
        // `none` is stored as this value, which also stands for an unset property.
        value.filter(|n| *n != u64::MAX)
    };
    for top in &config.root().children {
        for leaf in top.leaves() {
            for (what, count, time) in LIMITS {
                let of = |name: &str| number(leaf.leaf_zap, name).or_else(|| number(top.top_zap, name));
                // A vdev that has left the tree needs no limit.
                let _ = tree.set_limit(leaf.guid, what, limit(what, of(count), of(time)));
            }
        }
    }
}
