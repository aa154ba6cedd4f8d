//! Injected faults (`zinject`): names become what the lower layers know, and imports and exports
//! are delayed.
//!
//! # See
//! [`vdev::inject`].

use crate::pools::table::PoolTable;
use api::{Ailment, Caller, DataFault, DeviceFault, Error, InjectRequest, Injected, Reason, Spell};
use observe::lock::Mutex;
use ondisk::dnode::DNODE_MIN_SIZE;
use ondisk::{DmuType, Guid, ObjNum};
use spa::engine::Verdict;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use vdev::inject::{self, Bad, Blocks, Fault, MosBlocks, On, Part, Target, Wrong};

/// The longest delay of an operation or a pool.
const LONGEST: Duration = Duration::from_secs(600);
/// How often a delayed pool checks whether it may continue.
const STEP: Duration = Duration::from_millis(50);
/// The fraction of a pool's writes to lose.
const LOST: u32 = inject::ALWAYS / 5 * 3;
/// The operations of devices, by name.
const ASKED: [(&str, On); 5] = [
    ("read", On::Read),
    ("write", On::Write),
    ("flush", On::Flush),
    ("free", On::Free),
    ("probe", On::Probe),
];
/// The parts of labels, by name.
const PARTS: [(&str, Part); 4] =
    [("pad1", Part::Pad1), ("pad2", Part::Pad2), ("nvlist", Part::Nvlist), ("uber", Part::Uber)];

struct Pass {
    id: u64,
    pool: String,
    import: bool,
    time: Duration,
}

/// The delays of imports and exports.
static PASSES: Mutex<Vec<Pass>> = Mutex::new(Vec::new());

/// Waits for the injected delay of a pool's import or export, unless the daemon closes all pools.
pub(crate) fn pass(pool: &str, import: bool, closing: &AtomicBool) {
    let since = Instant::now();
    let wanted = || {
        let passes = PASSES.lock();
        passes.iter().filter(|p| p.pool == pool && p.import == import).map(|p| p.time).max()
    };
    // A removed delay stops at once.
    while !closing.load(Ordering::Relaxed) && wanted().is_some_and(|time| since.elapsed() < time) {
        std::thread::sleep(STEP);
    }
}

/// Injects or removes faults. Returns the present faults, or only the new one (`zio_inject_fault`).
///
/// # Errors
/// * [`Reason::Permission`]: the caller does not own the daemon.
/// * [`Reason::NoSuchPool`], [`Reason::NoSuchDataset`], [`Reason::NoSuchDevice`]: the subject does
///   not exist.
/// * [`Reason::BadValue`]: a word, level or type is not valid, or there are too many faults.
/// * [`Reason::PoolReadonly`]: the fault needs a writable pool.
/// * [`Reason::Suspended`]: dirty blocks can't be written.
/// * [`Reason::Device`] and others for a verdict: the device can't be taken out of use.
pub(crate) fn ask(
    caller: &Caller,
    pools: &PoolTable,
    request: &InjectRequest,
) -> Result<Vec<Injected>, Error> {
    caller.must_own("inject")?;
    let fault = match request {
        InjectRequest::List => return Ok(list(pools)),
        InjectRequest::Cancel { id } => {
            let before = list(pools);
            inject::cancel(*id);
            PASSES.lock().retain(|p| id.is_some_and(|id| id != p.id));
            return Ok(before.into_iter().filter(|one| id.is_none_or(|id| id == one.id)).collect());
        }
        InjectRequest::Forget { pool, sync } => {
            let imported = pools.pool(pool)?;
            let spa = imported.pool.spa();
            // A block that is in no transaction group on disk can't be dropped from memory.
            if let Some(live) = spa.writer().filter(|_| *sync) {
                live.sync_all().map_err(|_| Error::new(pool, Reason::Suspended))?;
            }
            spa.cache().purge();
            return Ok(Vec::new());
        }
        InjectRequest::Verdict { pool, device, faulted } => {
            let imported = pools.pool(pool)?;
            let leaf = crate::commands::vdev::find(&imported, device)?;
            let live = imported.pool.spa().writer().ok_or_else(|| Error::new(pool, Reason::PoolReadonly))?;
            let verdict = if *faulted { Verdict::Failing } else { Verdict::Poor };
            crate::commands::vdev::online_offline::judge(pool, live, leaf, verdict)?;
            return Ok(Vec::new());
        }
        InjectRequest::Pass { pool, import, seconds } => {
            let time = Duration::from_secs(u64::from(*seconds)).min(LONGEST);
            let id = inject::number();
            PASSES.lock().push(Pass { id, pool: pool.clone(), import: *import, time });
            return Ok(list(pools).into_iter().filter(|one| one.id == id).collect());
        }
        InjectRequest::Device { .. } => of_device(pools, request)?,
        InjectRequest::Data { .. } => of_data(pools, request)?,
        InjectRequest::Block { pool, objset, object, level, blkid, how } => {
            let end = blkid.checked_add(1).ok_or_else(|| bad(pool, format!("block {blkid:x}")))?;
            let (objset, object, level, blkid) = (*objset, *object, *level, *blkid..end);
            let blocks = Blocks { objset, object, level, blkid, copies: 0, how: way_of(*how) };
            let pool = pools.pool(pool)?.pool.spa().guid();
            Fault { pool, target: Target::Data(blocks), often: inject::ALWAYS }
        }
        InjectRequest::Mos { pool, kind, copies, how, often } => {
            let known = DmuType::from_disk(*kind).map_err(|_| bad(pool, format!("type {kind}")))?;
            let kind = Some(known).filter(|kind| *kind != DmuType::NONE);
            let blocks = MosBlocks { kind, copies: *copies, how: way_of(*how) };
            let pool = pools.pool(pool)?.pool.spa().guid();
            Fault { pool, target: Target::Mos(blocks), often: *often }
        }
        InjectRequest::LoseWrites { pool, spell } => {
            let spell = match spell {
                Spell::Seconds(seconds) => inject::Spell::Time(Duration::from_secs(u64::from(*seconds))),
                Spell::Groups(groups) => inject::Spell::Groups(u64::from(*groups)),
            };
            let imported = pools.pool(pool)?;
            let spa = imported.pool.spa();
            spa.writer().ok_or_else(|| Error::new(pool, Reason::PoolReadonly))?;
            Fault { pool: spa.guid(), target: Target::Writes(spell), often: LOST }
        }
    };
    let full = || Error::new("zinject", Reason::BadValue { what: "too many faults".to_owned() });
    let id = inject::add(fault).ok_or_else(full)?;
    Ok(list(pools).into_iter().filter(|one| one.id == id).collect())
}

fn bad(about: &str, what: String) -> Error {
    Error::new(about, Reason::BadValue { what })
}

fn way_of(how: DataFault) -> Bad {
    match how {
        DataFault::Io => Bad::Io,
        DataFault::Checksum => Bad::Checksum,
        DataFault::Decrypt => Bad::Decrypt,
        DataFault::Decompress => Bad::Decompress,
    }
}

/// A fault of a device.
fn of_device(pools: &PoolTable, request: &InjectRequest) -> Result<Fault, Error> {
    let InjectRequest::Device { pool, device, label, on, wrong, often } = request else {
        unreachable!("a request of a device is asked");
    };
    let imported = pools.pool(pool)?;
    let leaf = crate::commands::vdev::find(&imported, device)?;
    let on = on.as_deref().map(|word| named(&ASKED, word).ok_or_else(|| bad(pool, format!("'{word}'"))));
    let part = label.as_deref().map(|word| named(&PARTS, word).ok_or_else(|| bad(pool, format!("'{word}'"))));
    let (on, part) = (on.transpose()?, part.transpose()?);
    let wrong = match wrong {
        DeviceFault::Error(code) => Wrong::Error(*code),
        DeviceFault::Corrupt => Wrong::Corrupt,
        DeviceFault::Noop => Wrong::Noop,
        DeviceFault::Delay(ms, lanes) => {
            let each = Duration::from_millis(*ms).min(LONGEST);
            Wrong::Delay { each, lanes: (*lanes).clamp(1, 4096) }
        }
    };
    let target = match part {
        None => Target::Leaf { leaf, on, wrong },
        Some(_) if matches!(wrong, Wrong::Delay { .. }) => {
            return Err(bad(pool, "a delay of labels alone".to_owned()));
        }
        Some(part) => Target::Label { leaf, part, on, wrong },
    };
    Ok(Fault { pool: imported.pool.spa().guid(), target, often: *often })
}

/// A fault of a file's blocks, or of the block that holds its dnode.
fn of_data(pools: &PoolTable, request: &InjectRequest) -> Result<Fault, Error> {
    let InjectRequest::Data { dataset, object, dnode, level, range, copies, how, often } = request else {
        unreachable!("a request of data is asked");
    };
    let imported = pools.pool_of(dataset)?;
    let missing = || Error::new(dataset, Reason::NoSuchDataset);
    let found = imported.pool.dsl().dataset(dataset).map_err(|_| missing())?;
    let objset = found.objset().ok().flatten().ok_or_else(missing)?;
    let bytes = match (dnode, range) {
        (true, _) => {
            let at = object.saturating_mul(DNODE_MIN_SIZE as u64);
            Some((at, at.saturating_add(DNODE_MIN_SIZE as u64)))
        }
        (false, range) => *range,
    };
    let of = if *dnode { Ok(objset.meta_dnode()) } else { objset.dnode(ObjNum(*object)) };
    let of = of.map_err(|_| missing())?;
    let blkid = match bytes {
        None => 0..u64::MAX,
        Some((from, to)) => blocks(&of, from..to, *level)
            .ok_or_else(|| bad(dataset, "block level exceeds max level of object".to_owned()))?,
    };
    let (objset, object) = (found.object().0, if *dnode { 0 } else { *object });
    let blocks = Blocks { objset, object, level: *level, blkid, copies: *copies, how: way_of(*how) };
    Ok(Fault { pool: imported.pool.spa().guid(), target: Target::Data(blocks), often: *often })
}

/// The blocks of a level that hold or point to these bytes of an object. `None` if there is no such
/// level.
fn blocks(dnode: &dmu::Dnode, bytes: Range<u64>, level: u8) -> Option<Range<u64>> {
    if level > 0 && level >= dnode.nlevels() {
        return None;
    }
    let size = dnode.block_size().max(512);
    let shift = u32::from(level) * dnode.phys().epbs();
    let at = |byte: u64| (byte / size).checked_shr(shift).unwrap_or(0);
    Some(at(bytes.start)..at(bytes.end.saturating_sub(1)).saturating_add(1))
}

fn named<T: Copy>(all: &[(&str, T)], word: &str) -> Option<T> {
    all.iter().find(|(name, _)| *name == word).map(|(_, what)| *what)
}

fn name_of<T: Copy + PartialEq>(all: &[(&'static str, T)], what: T) -> String {
    all.iter().find(|(_, one)| *one == what).map_or("", |(name, _)| name).to_owned()
}

/// A fault, as the protocol shows it.
fn told(fault: &Fault) -> Ailment {
    let device = |leaf: Guid, label: Option<Part>, on: Option<On>, wrong: Wrong| Ailment::Device {
        guid: leaf.0,
        label: label.map(|part| name_of(&PARTS, part)),
        on: on.map_or_else(|| "all".to_owned(), |on| name_of(&ASKED, on)),
        wrong: match wrong {
            Wrong::Error(code) => DeviceFault::Error(code),
            Wrong::Corrupt => DeviceFault::Corrupt,
            Wrong::Noop => DeviceFault::Noop,
            Wrong::Delay { each, lanes } => DeviceFault::Delay(each.as_millis() as u64, lanes),
        },
        often: fault.often,
    };
    match &fault.target {
        Target::Leaf { leaf, on, wrong } => device(*leaf, None, *on, *wrong),
        Target::Label { leaf, part, on, wrong } => device(*leaf, Some(*part), *on, *wrong),
        Target::Data(b) => Ailment::Data {
            objset: b.objset,
            object: b.object,
            kind: 0,
            level: b.level,
            copies: b.copies,
            range: (b.blkid != (0..u64::MAX)).then(|| (b.blkid.start, b.blkid.end - 1)),
        },
        Target::Writes(inject::Spell::Time(time)) => {
            Ailment::LostWrites(Spell::Seconds(time.as_secs() as u32))
        }
        Target::Writes(inject::Spell::Groups(groups)) => Ailment::LostWrites(Spell::Groups(*groups as u32)),
        Target::Mos(b) => {
            let kind = b.kind.map_or(0, |kind| kind.to_disk());
            Ailment::Data { objset: 0, object: 0, kind, level: 0, copies: b.copies, range: None }
        }
    }
}

/// All injected faults, in order.
fn list(pools: &PoolTable) -> Vec<Injected> {
    let all = pools.all();
    let pool_name = |guid: Guid| {
        let pool = all.iter().find(|p| p.pool.spa().guid() == guid);
        pool.map_or_else(|| guid.0.to_string(), |p| p.pool.name().to_owned())
    };
    let row = |(id, fault, hits): (u64, Fault, u64)| Injected {
        id,
        pool: pool_name(fault.pool),
        what: told(&fault),
        hits,
    };
    let mut rows: Vec<Injected> = inject::list().into_iter().map(row).collect();
    for p in &*PASSES.lock() {
        let what = Ailment::Pass { import: p.import, seconds: p.time.as_secs() as u32 };
        rows.push(Injected { id: p.id, pool: p.pool.clone(), what, hits: 0 });
    }
    rows.sort_by_key(|one| one.id);
    rows
}
