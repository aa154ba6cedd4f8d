//! The most severe problem of an imported pool (`check_status`).

use ondisk::feature::FEATURES;

use api::settings::compat;
use api::settings::pool::may_enable;
use api::{
    Pool, RebuildState, ScanFunc, ScanState, StatusReason as S, SuspendReason, Vdev, VdevAux, VdevStat,
    VdevState,
};

/// A possible problem of a vdev.
type Problem = fn(&VdevStat) -> bool;

/// The most severe problem.
///
/// The pool's tree, scan, errors and version must be filled in. `enabled` says whether a feature,
/// by its guid, is enabled. `compatibility` is the pool's property.
pub fn status(pool: &Pool, enabled: &dyn Fn(&str) -> bool, compatibility: Option<&str>) -> S {
    if pool.broken.is_some() {
        return S::Broken;
    }
    // This hides all others: until it ends, no other problem can be fixed.
    if pool.slow_group.is_some() {
        return S::SlowGroup;
    }
    if let Some(reason) = working(pool) {
        return reason;
    }
    if let Some(reason) = suspended(pool) {
        return reason;
    }
    let lost = pool.root.stat.state == VdevState::CantOpen;
    let any = |problem: Problem| below(&pool.root, problem) || pool.l2cache.iter().any(|v| problem(&v.stat));
    let faulted = |s: &VdevStat| s.state == VdevState::Faulted;
    let missing = |s: &VdevStat| s.state == VdevState::CantOpen && s.aux == VdevAux::OpenFailed;
    let broken = |s: &VdevStat| s.state == VdevState::CantOpen;
    if lost {
        if any(faulted) {
            return S::FaultedDevNotReplicated;
        } else if any(missing) {
            return S::MissingDevNotReplicated;
        } else if any(broken) {
            return S::CorruptLabelNotReplicated;
        } else if pool.root.stat.aux == VdevAux::CorruptData {
            return S::CorruptPool;
        }
    }
    if pool.error_count.is_some_and(|n| n != 0) {
        return S::CorruptData;
    }
    let problems: [(Problem, S); 7] = [
        (faulted, S::FaultedDevReplicated),
        (missing, S::MissingDevReplicated),
        (broken, S::CorruptLabelReplicated),
        (erring, S::FailingDev),
        (|s| s.state == VdevState::Offline, S::OfflineDev),
        (|s| s.state == VdevState::Removed, S::RemovedDev),
        (|s| s.configured_ashift < s.physical_ashift, S::NonNativeAshift),
    ];
    if let Some((_, reason)) = problems.iter().find(|p| any(p.0)) {
        return *reason;
    }
    if pool.errata != 0 {
        return S::Errata;
    }
    format(pool, enabled, compatibility)
}

/// A resilver that runs, or a rebuild that no scrub followed.
fn working(pool: &Pool) -> Option<S> {
    let scan = pool.scan.as_ref();
    if scan.is_some_and(|s| s.func == ScanFunc::Resilver && s.state == ScanState::Scanning) {
        return Some(S::Resilvering);
    }
    let rebuilds = || pool.root.children.iter().filter_map(|v| v.rebuild.as_ref());
    if rebuilds().any(|r| r.state == RebuildState::Active) {
        return Some(S::Rebuilding);
    }
    let end = rebuilds().filter(|r| r.state == RebuildState::Complete).map(|r| r.end_time).max().unwrap_or(0);
    let scrubbed = match scan {
        None => false,
        Some(s) if s.state == ScanState::None => false,
        Some(s) => !(s.state == ScanState::Finished && s.func == ScanFunc::Scrub && end > s.end_time),
    };
    (end > 0 && !scrubbed).then_some(S::RebuildScrub)
}

fn suspended(pool: &Pool) -> Option<S> {
    Some(match pool.suspended? {
        SuspendReason::Mmp => S::IoFailureMmp,
        SuspendReason::IoContinue => S::IoFailureContinue,
        SuspendReason::IoWait => S::IoFailureWait,
    })
}

fn erring(s: &VdevStat) -> bool {
    s.state == VdevState::Degraded || s.read_errors != 0 || s.write_errors != 0 || s.checksum_errors != 0
}

/// Whether a leaf has a problem. Leaves that are being replaced don't count (`find_vdev_problem`).
fn below(v: &Vdev, problem: Problem) -> bool {
    match v.kind.as_str() {
        "replacing" => false,
        _ if v.children.is_empty() => problem(&v.stat),
        _ => v.children.iter().any(|c| below(c, problem)),
    }
}

/// Problems of the version and features: features that could be enabled, within the pool's
/// `compatibility`, and enabled ones outside it.
fn format(pool: &Pool, enabled: &dyn Fn(&str) -> bool, compatibility: Option<&str>) -> S {
    if (1..=28).contains(&pool.version) {
        return if compatibility == Some("legacy") { S::Ok } else { S::VersionOlder };
    }
    let Ok(allowed) = compat::load(compatibility.unwrap_or("off"), &compat::Folders::default()) else {
        return S::CompatibilityErr;
    };
    if FEATURES.iter().any(|f| enabled(f.guid) && !allowed.has(f)) {
        S::IncompatibleFeat
    } else if FEATURES.iter().any(|f| may_enable(f) && allowed.has(f) && !enabled(f.guid)) {
        S::FeatDisabled
    } else {
        S::Ok
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a pool that can't write transaction groups is reported neither as having failed
    /// devices nor as slow.
    #[test]
    fn a_broken_pool() {
        let pool = Pool {
            broken: Some("the pool has stopped writing: out of space".to_owned()),
            suspended: Some(SuspendReason::IoWait),
            slow_group: Some(90),
            ..Pool::default()
        };
        assert_eq!(status(&pool, &|_| true, None), S::Broken);
    }
}
