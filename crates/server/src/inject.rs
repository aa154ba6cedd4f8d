//! Faults that are asked for (`zinject`): here names become what the rooms below know, and imports and exports are held up.
//!
//! # See
//! [`vdev::inject`].

use crate::api::{DeviceFault, Error, InjectRequest, Injected, Reason};
use crate::pools::Pools;
use ondisk::Guid;
use parking_lot::Mutex;
use spa::engine::Verdict;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use vdev::inject::{self, Blocks, Fault, On, Target, Wrong};

/// Longest that an operation or a pool is held up.
const LONGEST: Duration = Duration::from_secs(600);
/// How often a pool that is held up is looked at.
const STEP: Duration = Duration::from_millis(50);
/// Numbers of what holds up pools begin here, apart from those of the rooms below.
const FIRST_PASS: u64 = 1 << 32;

struct Pass {
    id: u64,
    pool: String,
    import: bool,
    time: Duration,
}

/// What holds up imports and exports.
static PASSES: Mutex<(u64, Vec<Pass>)> = Mutex::new((FIRST_PASS, Vec::new()));

/// Waits where somebody asked for a pool's import or export to take longer, unless all pools are let go.
pub(crate) fn pass(pool: &str, import: bool, closing: &AtomicBool) {
    let since = Instant::now();
    let wanted = || {
        let passes = PASSES.lock();
        passes.1.iter().filter(|p| p.pool == pool && p.import == import).map(|p| p.time).max()
    };
    // What is taken back holds nobody up any longer.
    while !closing.load(Ordering::Relaxed) && wanted().is_some_and(|time| since.elapsed() < time) {
        std::thread::sleep(STEP);
    }
}

/// Does what is asked for, and says which faults there are; after asking for one that is the only one told.
pub(crate) fn ask(pools: &Pools, request: &InjectRequest) -> Result<Vec<Injected>, Error> {
    let fault = match request {
        InjectRequest::List => return Ok(list(pools)),
        InjectRequest::Cancel { id } => {
            let before = list(pools);
            inject::cancel(*id);
            PASSES.lock().1.retain(|p| id.is_some_and(|id| id != p.id));
            return Ok(before.into_iter().filter(|one| id.is_none_or(|id| id == one.id)).collect());
        }
        InjectRequest::Forget { pool } => {
            let imported = pools.pool(pool)?;
            let spa = imported.pool.spa();
            // What is in no group on disk is in memory, and can't be forgotten.
            if let Some(live) = spa.writer() {
                live.sync_all().map_err(|_| Error::new(pool, Reason::Suspended))?;
            }
            spa.cache().purge();
            return Ok(Vec::new());
        }
        InjectRequest::Verdict { pool, device, faulted } => {
            let imported = pools.pool(pool)?;
            let leaf = crate::shape::find(&imported, device)?;
            let live = imported.pool.spa().writer().ok_or_else(|| Error::new(pool, Reason::PoolReadonly))?;
            let verdict = if *faulted { Verdict::Failing } else { Verdict::Poor };
            crate::device_life::judge(pool, live, leaf, verdict)?;
            return Ok(Vec::new());
        }
        InjectRequest::Pass { pool, import, seconds } => {
            let time = Duration::from_secs(u64::from(*seconds)).min(LONGEST);
            let (last, passes) = &mut *PASSES.lock();
            *last += 1;
            passes.push(Pass { id: *last, pool: pool.clone(), import: *import, time });
            return Ok(vec![Injected { id: *last, pool: pool.clone(), ..Injected::default() }]);
        }
        InjectRequest::Device { pool, device, on, wrong, often } => {
            let imported = pools.pool(pool)?;
            let leaf = crate::shape::find(&imported, device)?;
            let bad = |what: &str| Error::new(pool, Reason::BadValue { what: format!("'{what}'") });
            let on = match on.as_deref() {
                None => None,
                Some("read") => Some(On::Read),
                Some("write") => Some(On::Write),
                Some("flush") => Some(On::Flush),
                Some("free") => Some(On::Free),
                Some("probe") => Some(On::Probe),
                Some(other) => return Err(bad(other)),
            };
            let wrong = match wrong {
                DeviceFault::Error(code) => Wrong::Error(*code),
                DeviceFault::Corrupt => Wrong::Corrupt,
                DeviceFault::Noop => Wrong::Noop,
                DeviceFault::Delay(ms, lanes) => {
                    let each = Duration::from_millis(*ms).min(LONGEST);
                    Wrong::Delay { each, lanes: (*lanes).clamp(1, 4096) }
                }
            };
            let pool = imported.pool.spa().guid();
            Fault { pool, target: Target::Leaf { leaf, on, wrong }, often: *often }
        }
        InjectRequest::Data { dataset, object, level, range, copies, checksum, often } => {
            let imported = pools.pool_of(dataset)?;
            let spa = imported.pool.spa();
            let of_dsl = |_| Error::new(dataset, Reason::NoSuchDataset);
            let found = imported.pool.dsl().dataset(dataset).map_err(of_dsl)?;
            let blkid = match range {
                None => 0..u64::MAX,
                Some((from, to)) => {
                    let size = block_size(&found, *object).ok_or_else(|| of_dsl_missing(dataset))?;
                    from / size..to.div_ceil(size)
                }
            };
            let (objset, object) = (found.object().0, *object);
            let blocks =
                Blocks { objset, object, level: *level, blkid, copies: *copies, checksum: *checksum };
            Fault { pool: spa.guid(), target: Target::Data(blocks), often: *often }
        }
    };
    let full = || Error::new("zinject", Reason::BadValue { what: "too many faults".to_owned() });
    let id = inject::add(fault).ok_or_else(full)?;
    Ok(list(pools).into_iter().filter(|one| one.id == id).collect())
}

fn of_dsl_missing(dataset: &str) -> Error {
    Error::new(dataset, Reason::NoSuchDataset)
}

fn block_size(dataset: &dsl::Dataset, object: u64) -> Option<u64> {
    let objset = dataset.objset().ok()??;
    let dnode = objset.dnode(ondisk::ObjNum(object)).ok()?;
    Some(dnode.block_size().max(512))
}

/// All that are asked for.
fn list(pools: &Pools) -> Vec<Injected> {
    let all = pools.all();
    let name_of = |guid: Guid| {
        let pool = all.iter().find(|p| p.pool.spa().guid() == guid);
        pool.map_or_else(|| guid.0.to_string(), |p| p.pool.name().to_owned())
    };
    let row = |(id, fault, hits): (u64, Fault, u64)| {
        let what = match &fault.target {
            Target::Leaf { leaf, on, wrong } => {
                let on = on.map_or_else(|| "all".to_owned(), |on| format!("{on:?}").to_lowercase());
                format!("device {:x}  {on}  {wrong:?}", leaf.0)
            }
            Target::Data(b) => {
                let how = if b.checksum { "checksum" } else { "io" };
                format!("objset {}  object {}  level {}  {how}", b.objset, b.object, b.level)
            }
        };
        Injected { id, pool: name_of(fault.pool), what, hits }
    };
    let mut rows: Vec<Injected> = inject::list().into_iter().map(row).collect();
    for p in &PASSES.lock().1 {
        let what =
            format!("{} delayed by {} s", if p.import { "import" } else { "export" }, p.time.as_secs());
        rows.push(Injected { id: p.id, pool: p.pool.clone(), what, hits: 0 });
    }
    rows
}
