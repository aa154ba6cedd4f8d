//! An imported pool.

use dsl::Dsl;
use ondisk::mos;
use ondisk::scan::ErrorScrubPhys;
use spa::Spa;
use spa::engine::{FailMode, PoolWriter, Reason};

use crate::view::damage;
use crate::view::damage::Mountpoints;
use crate::view::props;
use crate::view::props::PoolFacts;
use crate::view::vdevs::VdevFacts;
use crate::view::{ddt, engine, iostat, states, status, vdev_props};
use api::{
    CheckpointStat, CheckpointState, Error, ExpandStat, Pool, PoolQuery, PoolState, RemovalStat, ScanFunc,
    ScanStat, ScanState, SuspendReason,
};

/// Bytes in memory for an entry of a removed vdev's mapping.
const MAPPING_ENTRY: u64 = 24;

/// The status of an imported pool (`spa_get_stats`). `mountpoints` is for the names of damaged
/// files.
///
/// # Errors
/// * [`Reason::Io`](api::Reason::Io), [`Reason::Corrupt`](api::Reason::Corrupt): its metadata can't
///   be read.
pub fn pool(
    spa: &Spa,
    dsl: &Dsl,
    facts: &PoolFacts,
    query: &PoolQuery,
    mountpoints: &Mountpoints,
) -> Result<Pool, Error> {
    let name = spa.name();
    build(spa, dsl, facts, query, mountpoints).map_err(|e| engine(name, &e))
}

fn build(
    spa: &Spa,
    dsl: &Dsl,
    facts: &PoolFacts,
    query: &PoolQuery,
    mountpoints: &Mountpoints,
) -> pool::Result<Pool> {
    // This comes before reading the scans, so that a resilver that begins meanwhile appears there.
    let resilver_wanted = spa.writer().is_some_and(|live| live.scans().awaits_resilver());
    // The tree comes first. A vdev that has joined it by then is in the configuration that is read
    // next, or is not on disk yet.
    let (vdevs, config) = (spa.tree(), spa.config());
    let info = vdevs.describe();
    let tree = VdevFacts::of(spa, (&vdevs, &info), &config, facts.readonly)?;
    let ddts = spa.ddts(&spa.top_vdevs()?)?;
    let mut tables = ddt::summary(spa, &ddts)?;
    if query.dedup_cached {
        tables.cached = Some(ddt::cached(spa, &ddts)?);
    }
    let mut out = Pool {
        name: spa.name().to_owned(),
        guid: spa.guid().0,
        state: PoolState::Active,
        // A read-only pool never writes its configuration (`spa_config_txg`).
        txg: if spa.writer().is_some() { spa.last_synced_txg().0 } else { 0 },
        version: spa.version(),
        errata: spa.errata().map_or(0, spa::Errata::number),
        root: tree.root()?,
        spares: spa.spares().iter().map(|a| tree.auxiliary(a, false)).collect::<Result<_, _>>()?,
        l2cache: spa.l2cache().iter().map(|a| tree.auxiliary(a, true)).collect::<Result<_, _>>()?,
        scan: scan(spa)?,
        resilver_wanted,
        removal: removal(spa)?,
        checkpoint: checkpoint(spa),
        expand: expansion(spa)?,
        nameless: crate::view::nameless(spa),
        no_room: spa.without_room(),
        error_count: Some(spa.error_count()),
        ddt: Some(tables.clone()),
        suspended: spa.writer().and_then(suspended),
        broken: spa.writer().and_then(broken),
        slow_group: spa.writer().and_then(slow_group),
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
        iostat::fill(&mut out, &info, spa.cache());
    }
    if query.vdev_props {
        vdev_props::fill(spa, &mut out)?;
    }
    if query.errors {
        out.errors = damage::names(spa, dsl, mountpoints)
            .unwrap_or_else(|error| vec![format!("the list of errors is unavailable: {error}")]);
    }
    Ok(out)
}

/// Updates a status without any device: the states and counters of its vdevs, and whether the pool
/// is suspended.
pub fn refresh(spa: &Spa, pool: &mut Pool) {
    let info = spa.tree().describe();
    crate::view::vdevs::refresh(&mut pool.root, &info);
    pool.suspended = spa.writer().and_then(suspended);
    pool.broken = spa.writer().and_then(broken);
    pool.slow_group = spa.writer().and_then(slow_group);
    pool.no_room = spa.without_room();
    let compatibility = spa.config().compatibility.clone();
    pool.status = status(pool, &|guid| spa.features().is_enabled(guid), compatibility.as_deref());
    let health = props::health(pool);
    for prop in pool.props.iter_mut().filter(|prop| prop.name == "health") {
        prop.text = health.to_owned();
    }
}

/// Why a pool is suspended, if it is.
fn suspended(live: &PoolWriter) -> Option<SuspendReason> {
    // A broken pool counts as suspended too.
    let reason = live.suspended().or_else(|| live.broken().map(|_| Reason::Io))?;
    Some(match (reason, live.failmode()) {
        (Reason::Mmp, _) => SuspendReason::Mmp,
        (Reason::Io, FailMode::Continue) => SuspendReason::IoContinue,
        (Reason::Io, FailMode::Wait | FailMode::Panic) => SuspendReason::IoWait,
    })
}

/// Why a pool can't write transaction groups any more, if so.
fn broken(live: &PoolWriter) -> Option<String> {
    live.broken().map(|stopped| api::chain(&stopped))
}

/// For how many seconds a transaction group has been syncing, if that is too long.
fn slow_group(live: &PoolWriter) -> Option<u64> {
    live.deadman().slow_group().map(|took| took.as_secs())
}

fn scan(spa: &Spa) -> pool::Result<Option<ScanStat>> {
    let out = with_error_scrub(spa, scan_or_none(spa)?.unwrap_or_default())?;
    let any = out.func != ScanFunc::None || out.error_scrub_func != ScanFunc::None;
    Ok(any.then_some(out))
}

/// The last scan of the error log, combined with another scan.
fn with_error_scrub(spa: &Spa, scan: ScanStat) -> pool::Result<ScanStat> {
    let (phys, paused_at) = match spa.writer() {
        Some(live) => match live.scans().error_scrub_stat() {
            Some(now) => now,
            None => return Ok(scan),
        },
        None => match spa.mos().dir_words(mos::ERRORSCRUB)?.map(|w| ErrorScrubPhys::decode(&w)) {
            // A malformed entry counts as no scrub.
            Some(Ok(phys)) => (phys, 0),
            Some(Err(_)) | None => return Ok(scan),
        },
    };
    Ok(ScanStat {
        error_scrub_func: states::scan_func(phys.func),
        error_scrub_state: states::scan_state(phys.state),
        error_scrub_start: phys.start_time,
        error_scrub_end: phys.end_time,
        error_scrub_examined: phys.examined,
        error_scrub_to_be_examined: phys.to_examine,
        pass_error_scrub_pause: paused_at,
        ..scan
    })
}

fn scan_or_none(spa: &Spa) -> pool::Result<Option<ScanStat>> {
    let running = spa.writer().and_then(|writer| writer.scans().stat());
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

/// The running expansion, or the last one.
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
