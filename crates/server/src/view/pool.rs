//! An imported pool.

use dsl::Dsl;
use ondisk::mos;
use pool::errlog::ErrLog;
use spa::Spa;
use spa::engine::{FailMode, Live, Reason};
use zpl::FileSystem;

use super::props::{self, PoolFacts};
use super::vdevs::Tree;
use super::{ddt, engine, iostat, states, status, vdev_props};
use crate::api::{
    CheckpointStat, CheckpointState, Error, ExpandStat, Pool, PoolQuery, PoolState, RemovalStat, ScanFunc,
    ScanStat, ScanState, SuspendReason,
};

/// Bytes of an entry of a removed vdev's mapping in memory.
const MAPPING_ENTRY: u64 = 24;
const HEAD_ERRLOG: &str = "com.delphix:head_errlog";

/// What is known of an imported pool.
///
/// # Errors
/// The first failure to read its books.
pub fn pool(spa: &Spa, dsl: &Dsl, facts: &PoolFacts, query: &PoolQuery) -> Result<Pool, Error> {
    let name = spa.name();
    build(spa, dsl, facts, query).map_err(|e| engine(name, &e))
}

fn build(spa: &Spa, dsl: &Dsl, facts: &PoolFacts, query: &PoolQuery) -> pool::Result<Pool> {
    let info = spa.tree().describe();
    let tree = Tree::of(spa, &info, facts.readonly)?;
    let ddts = spa.ddts(&spa.top_vdevs()?)?;
    let tables = ddt::summary(spa, &ddts)?;
    let errors = error_bookmarks(spa)?;
    let mut out = Pool {
        name: spa.name().to_owned(),
        guid: spa.guid().0,
        state: PoolState::Active,
        // A pool that is only read never writes its configuration (`spa_config_txg`).
        txg: if spa.writer().is_some() { spa.last_synced_txg().0 } else { 0 },
        version: spa.version(),
        errata: spa.errata().map_or(0, spa::Errata::number),
        root: tree.root()?,
        spares: spa.spares().iter().map(|a| tree.auxiliary(a, false)).collect::<Result<_, _>>()?,
        l2cache: spa.l2cache().iter().map(|a| tree.auxiliary(a, true)).collect::<Result<_, _>>()?,
        scan: scan(spa)?,
        removal: removal(spa)?,
        checkpoint: checkpoint(spa),
        expand: expansion(spa)?,
        error_count: Some((errors.len() as u64).max(scan_errors(spa))),
        ddt: Some(tables.clone()),
        suspended: spa.writer().and_then(suspended),
        ..Pool::default()
    };
    if let Some(c) = &mut out.checkpoint {
        c.space = out.root.stat.checkpoint_space;
    }
    let compatibility = spa.config().compatibility.clone();
    out.status = status(&out, &|guid| spa.features().is_enabled(guid), compatibility.as_deref());
    if query.props {
        out.props = props::properties(spa, &out, &tree, &tables, facts)?;
    }
    if query.io {
        iostat::fill(&mut out.root, &info);
    }
    if query.vdev_props {
        vdev_props::fill(spa, &mut out)?;
    }
    if query.errors {
        out.errors = errors.iter().map(|&(dataset, object)| error_path(dsl, dataset, object)).collect();
    }
    Ok(out)
}

/// Brings what was told of a pool up to date as far as that needs no device: the states and counters of its vdevs, and whether it is suspended.
pub fn refresh(spa: &Spa, pool: &mut Pool) {
    let info = spa.tree().describe();
    super::vdevs::refresh(&mut pool.root, &info);
    pool.suspended = spa.writer().and_then(suspended);
    let compatibility = spa.config().compatibility.clone();
    pool.status = status(pool, &|guid| spa.features().is_enabled(guid), compatibility.as_deref());
    let health = props::health(pool);
    for prop in pool.props.iter_mut().filter(|prop| prop.name == "health") {
        prop.text = health.to_owned();
    }
}

/// Why a pool is suspended, if it is.
fn suspended(live: &Live) -> Option<SuspendReason> {
    Some(match (live.suspended()?, live.failmode()) {
        (Reason::Mmp, _) => SuspendReason::Mmp,
        (Reason::Io, FailMode::Continue) => SuspendReason::IoContinue,
        (Reason::Io, FailMode::Wait | FailMode::Panic) => SuspendReason::IoWait,
    })
}

/// What the last scan could not look at or put right. It is not in the pool's logs.
fn scan_errors(spa: &Spa) -> u64 {
    let stat = spa.writer().and_then(|live| live.scan_stat());
    stat.map_or(0, |stat| stat.phys.errors)
}

/// The damaged objects that the pool's logs name, each once.
fn error_bookmarks(spa: &Spa) -> pool::Result<Vec<(u64, u64)>> {
    let by_head = spa.features().is_active(HEAD_ERRLOG);
    let mut all = Vec::new();
    for log in [ErrLog::Scrub, ErrLog::Last] {
        all.extend(spa.mos().errlog(log, by_head)?.iter().map(|b| (b.objset, b.object)));
    }
    all.sort_unstable();
    all.dedup();
    Ok(all)
}

/// A damaged object as `zpool status -v` names it (`zpool_obj_to_path`).
fn error_path(dsl: &Dsl, dataset: u64, object: u64) -> String {
    if dataset == 0 {
        return format!("<metadata>:<0x{object:x}>");
    }
    let Ok(d) = dsl.by_object(ondisk::ObjNum(dataset)) else {
        return format!("<0x{dataset:x}>:<0x{object:x}>");
    };
    let path = d
        .objset()
        .ok()
        .flatten()
        .and_then(|os| FileSystem::open(&os).ok())
        .and_then(|fs| fs.object_path(ondisk::ObjNum(object)).ok());
    match path {
        Some(path) => {
            let path = String::from_utf8_lossy(&path).into_owned();
            format!("{}:/{}", d.name(), path.trim_start_matches('/'))
        }
        None => format!("{}:<0x{object:x}>", d.name()),
    }
}

fn scan(spa: &Spa) -> pool::Result<Option<ScanStat>> {
    let running = spa.writer().and_then(Live::scan_stat);
    let Some(s) = running.map_or_else(|| spa.mos().scan(), |now| Ok(Some(now.phys)))? else {
        return Ok(None);
    };
    let func = states::scan_func(s.func);
    if func == ScanFunc::None {
        return Ok(None);
    }
    let out = ScanStat {
        func,
        state: states::scan_state(s.state),
        start_time: s.start_time,
        end_time: s.end_time,
        to_examine: s.to_examine,
        examined: s.examined,
        skipped: s.skipped,
        processed: s.processed,
        errors: s.errors,
        issued: s.examined.saturating_sub(s.skipped),
        ..ScanStat::default()
    };
    Ok(Some(match running {
        None => out,
        Some(now) => ScanStat {
            issued: now.issued,
            pass_start: now.pass_start,
            pass_exam: now.pass_examined,
            pass_issued: now.pass_issued,
            pass_scrub_pause: now.paused_at,
            pass_scrub_spent_paused: now.spent_paused,
            ..out
        },
    }))
}

fn removal(spa: &Spa) -> pool::Result<Option<RemovalStat>> {
    let Some(r) = spa.mos().removing()? else { return Ok(None) };
    let state = states::work_state(r.state);
    if state == ScanState::None {
        return Ok(None);
    }
    let mut mapping_memory = 0;
    let config = spa.config();
    let tops = config.vdev_tree.iter().flat_map(|root| &root.children);
    for object in tops.filter_map(|c| c.indirect_object) {
        let entries = spa.mos().indirect_mapping(object)?.entries.len() as u64;
        mapping_memory += entries * MAPPING_ENTRY;
    }
    Ok(Some(RemovalStat {
        state,
        removing_vdev: r.removing_vdev,
        start_time: r.start_time,
        end_time: r.end_time,
        to_copy: r.to_copy,
        copied: r.copied,
        mapping_memory,
    }))
}

fn checkpoint(spa: &Spa) -> Option<CheckpointStat> {
    match spa.checkpoint() {
        Some(ub) => {
            Some(CheckpointStat { state: CheckpointState::Exists, start_time: ub.timestamp, space: 0 })
        }
        None if spa.is_discarding_checkpoint() => {
            Some(CheckpointStat { state: CheckpointState::Discarding, start_time: 0, space: 0 })
        }
        None => None,
    }
}

/// The expansion that runs, or the last that ended.
fn expansion(spa: &Spa) -> pool::Result<Option<ExpandStat>> {
    let mut last: Option<ExpandStat> = None;
    let config = spa.config();
    let tops = config.vdev_tree.iter().flat_map(|root| &root.children);
    for c in tops {
        let Some(zap) = c.top_zap else { continue };
        let read = |name: &str| spa.mos().u64(zap, name);
        let Some(state) = read(mos::VDEV_TOP_RAIDZ_EXPAND_STATE)? else { continue };
        let e = ExpandStat {
            state: states::work_state(state),
            expanding_vdev: c.id,
            start_time: read(mos::VDEV_TOP_RAIDZ_EXPAND_START_TIME)?.unwrap_or(0),
            end_time: read(mos::VDEV_TOP_RAIDZ_EXPAND_END_TIME)?.unwrap_or(0),
            to_reflow: 0,
            reflowed: read(mos::VDEV_TOP_RAIDZ_EXPAND_BYTES_COPIED)?.unwrap_or(0),
            waiting_for_resilver: false,
        };
        if last.as_ref().is_none_or(|l| e.state == ScanState::Scanning || e.end_time > l.end_time) {
            last = Some(e);
        }
    }
    Ok(last)
}
