//! A pool that could be imported.

use ondisk::config::PoolState;
use spa::{PoolStatus, Report, SpaError};
use vdev::VdevInfo;

use crate::view::{states, vdevs};
use api::{self, Activity, Candidate, Host, LoadInfo, MmpState, Pool, StatusReason as S, Vdev};

/// The result of a search and a trial load of a pool. `hostid` is this host's.
pub fn candidate(found: &spa::Candidate, report: &Report, hostid: u64) -> Candidate {
    let config = report.config.as_ref().unwrap_or(&found.config);
    let root_config = config.vdev_tree.as_ref().or(found.config.vdev_tree.as_ref());
    let mut root = match (&report.tree, root_config) {
        (Some(info), config) => merge(info, config),
        (None, Some(config)) => tree(config),
        (None, None) => Vdev { kind: "root".into(), ..Vdev::default() },
    };
    if report.tree.is_none() {
        (root.stat.state, root.stat.aux) = (api::VdevState::CantOpen, api::VdevAux::CorruptData);
    }
    for member in found.members.iter().rev() {
        place(&mut root, member);
    }
    let auxiliary = |list: &[spa::import::AuxVdev]| -> Vec<Vdev> {
        let one = |a: &spa::import::AuxVdev| {
            let mut v = vdevs::from_config(&a.config);
            (v.stat.state, v.stat.aux) = (states::state(a.state), states::aux(a.aux));
            v
        };
        list.iter().map(one).collect()
    };
    let (status, errata) = status(report.status);
    let pool = Pool {
        name: found.name.clone(),
        guid: found.guid.0,
        state: states::pool_state(found.state),
        txg: config.txg.0,
        version: config.version,
        status,
        errata,
        root,
        spares: auxiliary(&report.spares),
        l2cache: auxiliary(&report.l2cache),
        load_info: load_info(found, report),
        ..Pool::default()
    };
    let used_by = config.hostid.or(found.config.hostid).unwrap_or(0);
    let elsewhere = found.state != PoolState::Exported && used_by != hostid;
    Candidate {
        force_required: elsewhere || pool.load_info.mmp != MmpState::Inactive,
        pool,
        comment: config.comment.clone(),
        host: Host { name: found.config.hostname.clone(), id: found.config.hostid },
        timestamp: (report.timestamp != 0).then_some(report.timestamp),
        seen: report.seen.map(|s| Activity { txg: s.txg.0, timestamp: s.timestamp, seq: s.seq }),
    }
}

fn load_info(found: &spa::Candidate, report: &Report) -> LoadInfo {
    let config = report.config.as_ref().unwrap_or(&found.config);
    let mut info =
        LoadInfo { host: Host { name: config.hostname.clone(), id: config.hostid }, ..LoadInfo::default() };
    let pairs = |list: &[spa::UnsupportedFeature]| -> Vec<(String, String)> {
        list.iter().map(|f| (f.guid.clone(), f.description.clone())).collect()
    };
    match &report.error {
        Some(SpaError::UnsupportedFeatures { features, can_readonly }) => {
            (info.unsup_features, info.can_rdonly) = (pairs(features), *can_readonly);
        }
        Some(SpaError::Active { hostname, hostid }) => {
            info.mmp = MmpState::Active;
            info.mmp_host = Host { name: hostname.clone(), id: *hostid };
        }
        Some(SpaError::NoHostid) => info.mmp = MmpState::NoHostid,
        _ if !report.unknown_for_write.is_empty() => {
            (info.unsup_features, info.can_rdonly) = (pairs(&report.unknown_for_write), true);
        }
        _ => {}
    }
    info
}

/// Sets the path where a device was found.
fn place(v: &mut Vdev, member: &spa::Member) {
    if v.guid == member.guid().0 && v.children.is_empty() {
        v.path = Some(member.place.to_string());
    }
    v.children.iter_mut().for_each(|child| place(child, member));
}

/// The top-level vdevs that prevent an import.
pub(crate) fn missing(vdevs: &[VdevInfo]) -> Vec<Vdev> {
    vdevs.iter().map(|info| merge(info, None)).collect()
}

/// The tree as it was found, with what only the configuration has.
fn merge(info: &VdevInfo, config: Option<&ondisk::VdevConfig>) -> Vdev {
    let mut v = match config {
        Some(config) => vdevs::from_config(config),
        None => Vdev {
            kind: info.kind.name().into(),
            id: info.id,
            guid: info.guid.0,
            is_log: info.is_log,
            ..Vdev::default()
        },
    };
    v.path = info.path.as_ref().map(|p| String::from_utf8_lossy(p).into_owned()).or(v.path);
    v.alloc_bias = info.alloc_bias.filter(|_| !v.is_log).map(|b| states::bias(b).to_owned()).or(v.alloc_bias);
    vdevs::counters(&mut v.stat, info);
    for child in &info.children {
        let config = config.and_then(|c| c.children.iter().find(|x| x.guid == child.guid));
        v.children.push(merge(child, config));
    }
    v
}

fn tree(config: &ondisk::VdevConfig) -> Vdev {
    let mut v = vdevs::from_config(config);
    v.children = config.children.iter().map(tree).collect();
    v
}

fn status(s: PoolStatus) -> (S, u64) {
    use PoolStatus as P;
    let reason = match s {
        P::Errata(e) => return (S::Errata, e.number()),
        P::CorruptCache => S::CorruptCache,
        P::MissingDevR => S::MissingDevReplicated,
        P::MissingDevNr => S::MissingDevNotReplicated,
        P::CorruptLabelR => S::CorruptLabelReplicated,
        P::CorruptLabelNr => S::CorruptLabelNotReplicated,
        P::BadGuidSum => S::BadGuidSum,
        P::CorruptPool => S::CorruptPool,
        P::CorruptData => S::CorruptData,
        P::FailingDev => S::FailingDev,
        P::VersionNewer => S::VersionNewer,
        P::HostidMismatch => S::HostidMismatch,
        P::HostidActive => S::HostidActive,
        P::HostidRequired => S::HostidRequired,
        P::IoFailureWait => S::IoFailureWait,
        P::IoFailureContinue => S::IoFailureContinue,
        P::IoFailureMmp => S::IoFailureMmp,
        P::BadLog => S::BadLog,
        P::UnsupFeatRead => S::UnsupFeatRead,
        P::UnsupFeatWrite => S::UnsupFeatWrite,
        P::FaultedDevR => S::FaultedDevReplicated,
        P::FaultedDevNr => S::FaultedDevNotReplicated,
        P::VersionOlder => S::VersionOlder,
        P::FeatDisabled => S::FeatDisabled,
        P::Resilvering => S::Resilvering,
        P::OfflineDev => S::OfflineDev,
        P::RemovedDev => S::RemovedDev,
        P::Rebuilding => S::Rebuilding,
        P::RebuildScrub => S::RebuildScrub,
        P::NonNativeAshift => S::NonNativeAshift,
        P::CompatibilityErr => S::CompatibilityErr,
        P::IncompatibleFeat => S::IncompatibleFeat,
        P::Ok => S::Ok,
    };
    (reason, 0)
}
