//! The report on a pool that could be imported, and its problems: the list of `zpool import`.

use ondisk::config::PoolState;
use ondisk::feature::FEATURES;
use ondisk::{PoolConfig, VdevKind};
use vdev::{VdevAux, VdevInfo, VdevState};

use crate::discovery::probe;
use crate::error::UnsupportedFeature;
use crate::import::features;
use crate::import::features::SPA_VERSION_FEATURES;
use crate::import::load::{Loader, Progress, Purpose};
use crate::import::mmp::Seen;
use crate::import::{AuxVdev, Claim, Clock, Options};
use crate::{Candidate, Errata, Host, PoolStatus, SpaError};

/// The result of a search and a trial load (the config that `spa_tryimport` returns).
#[derive(Debug)]
pub struct Report {
    /// The vdev tree with states; `None` if the labels make none.
    pub tree: Option<VdevInfo>,
    /// The trusted config, if it was reached.
    pub config: Option<PoolConfig>,
    /// Hot spares.
    pub spares: Vec<AuxVdev>,
    /// Cache devices.
    pub l2cache: Vec<AuxVdev>,
    /// Condition of the pool.
    pub status: PoolStatus,
    /// Why the trial load failed, if it did.
    pub error: Option<SpaError>,
    /// Time of the uberblock, seconds of the epoch; 0 if none was found.
    pub timestamp: u64,
    /// Features that forbid a writable import but not a read-only one.
    pub unknown_for_write: Vec<UnsupportedFeature>,
    /// A known defect.
    pub errata: Option<Errata>,
    /// The activity that the pool's uberblock showed; pass it to the import.
    pub seen: Option<Seen>,
}

/// Loads a candidate on trial, without claims, and reports the result (`spa_tryimport`).
///
/// `options` gives the limits of time and activity. Ownership and missing logs don't matter here. A
/// device that hangs counts as unreadable ([`crate::discovery::probe`]).
pub fn examine(candidate: &Candidate, options: &Options, host: &Host, clock: &dyn Clock) -> Report {
    let layer = probe::layer(options.layer.clone());
    let options = Options { claim: Claim::Nothing, missing_log: true, layer, ..options.clone() };
    let loader = Loader { candidate, options: &options, host, clock, purpose: Purpose::Examine };
    let mut progress = Progress::default();
    let max = options.max_txg.unwrap_or(ondisk::Txg(u64::MAX));
    let loaded = loader.load(&loader.devices(), max, options.max_txg.is_some(), &mut progress);
    let ub = progress.uberblock.as_ref();
    let mut report = Report {
        tree: None,
        config: progress.config.clone(),
        spares: Vec::new(),
        l2cache: Vec::new(),
        status: PoolStatus::Ok,
        error: None,
        timestamp: ub.map_or(0, |u| u.timestamp),
        unknown_for_write: Vec::new(),
        errata: None,
        seen: ub.map(Seen::of),
    };
    let mut all_enabled = true;
    let version = ub.map_or(candidate.config.version, |u| u.version);
    match loaded {
        Ok(spa) => {
            report.tree = Some(spa.tree().describe());
            report.config = Some(PoolConfig::clone(&spa.config()));
            report.unknown_for_write = features::unknown_for_write(&spa.mos, &spa.features());
            report.errata = spa.errata;
            let features = spa.features();
            all_enabled = FEATURES.iter().all(|f| features.is_enabled(f.guid));
            (report.spares, report.l2cache) = (spa.spares, spa.l2cache);
        }
        Err(error) => {
            let failure = progress.failure(error);
            (report.tree, report.error) = (failure.tree, Some(failure.error));
        }
    }
    if !report.unknown_for_write.is_empty()
        && let Some(tree) = &mut report.tree
    {
        (tree.state, tree.aux) = (VdevState::CantOpen, VdevAux::UnsupFeat);
    }
    report.status = status(&report, candidate, version, all_enabled, host);
    report
}

/// The most important problem (`check_status`).
fn status(
    report: &Report,
    candidate: &Candidate,
    version: u64,
    all_enabled: bool,
    host: &Host,
) -> PoolStatus {
    let (state, aux) =
        report.tree.as_ref().map_or((VdevState::CantOpen, VdevAux::CorruptData), |t| (t.state, t.aux));
    let lost = state == VdevState::CantOpen;
    let lost_by = |why| lost && aux == why;
    match &report.error {
        Some(SpaError::Active { .. }) => return PoolStatus::HostidActive,
        Some(SpaError::NoHostid) => return PoolStatus::HostidRequired,
        _ => {}
    }
    let hostid = candidate.config.hostid.unwrap_or(0);
    if hostid != 0 && hostid != u64::from(host.hostid) && candidate.state == PoolState::Active {
        return PoolStatus::HostidMismatch;
    }
    if lost_by(VdevAux::VersionNewer) {
        return PoolStatus::VersionNewer;
    }
    if lost_by(VdevAux::UnsupFeat) {
        let only_write = report.error.is_none();
        return if only_write { PoolStatus::UnsupFeatWrite } else { PoolStatus::UnsupFeatRead };
    }
    if lost_by(VdevAux::BadGuidSum) {
        return PoolStatus::BadGuidSum;
    }
    if lost_by(VdevAux::BadLog) {
        return PoolStatus::BadLog;
    }
    let faulted = |s: VdevState, _: VdevAux| s == VdevState::Faulted;
    let missing = |s, a| s == VdevState::CantOpen && a == VdevAux::OpenFailed;
    let broken = |s: VdevState, _: VdevAux| s == VdevState::CantOpen;
    let any = |problem: &dyn Fn(VdevState, VdevAux) -> bool| report.any_leaf(problem);
    if lost {
        if any(&faulted) {
            return PoolStatus::FaultedDevNr;
        } else if any(&missing) {
            return PoolStatus::MissingDevNr;
        } else if any(&broken) {
            return PoolStatus::CorruptLabelNr;
        } else if aux == VdevAux::CorruptData {
            return PoolStatus::CorruptPool;
        }
    }
    if any(&faulted) {
        return PoolStatus::FaultedDevR;
    } else if any(&missing) {
        return PoolStatus::MissingDevR;
    } else if any(&broken) {
        return PoolStatus::CorruptLabelR;
    } else if any(&|s, _| s == VdevState::Offline) {
        return PoolStatus::OfflineDev;
    } else if any(&|s, _| s == VdevState::Removed) {
        return PoolStatus::RemovedDev;
    }
    if let Some(errata) = report.errata {
        return PoolStatus::Errata(errata);
    }
    if features::version_supported(version) && version != SPA_VERSION_FEATURES {
        return PoolStatus::VersionOlder;
    }
    if !all_enabled { PoolStatus::FeatDisabled } else { PoolStatus::Ok }
}

impl Report {
    /// Whether a leaf or cache device has a problem. Devices that are being replaced don't count
    /// (`find_vdev_problem`).
    fn any_leaf(&self, problem: &dyn Fn(VdevState, VdevAux) -> bool) -> bool {
        fn below(v: &VdevInfo, problem: &dyn Fn(VdevState, VdevAux) -> bool) -> bool {
            if v.kind == VdevKind::Replacing {
                false
            } else if v.children.is_empty() {
                problem(v.state, v.aux)
            } else {
                v.children.iter().any(|c| below(c, problem))
            }
        }
        self.tree.as_ref().is_some_and(|t| below(t, problem))
            || self.l2cache.iter().any(|a| problem(a.state, a.aux))
    }
}
