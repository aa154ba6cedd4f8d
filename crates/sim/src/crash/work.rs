//! The workload, and what must be visible after a crash.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use device::Device;
use dmu::NewObject;
use dsl::ops::create::Create;
use dsl::ops::destroy::{DestroyHead, DestroySnapshots};
use dsl::ops::snapshot::Snapshot;
use ondisk::config::AllocBias;
use ondisk::feature::{FEATURES, Feature};
use ondisk::{DmuType, ObjNum, VdevKind};
use poolhouse::{OpenOptions, Pool};
use spa::Host;
use spa::Spa;
use spa::create::{Beginning, Claimer, NewLeaf, NewPool, NewVdev, Setting, VdevShape, create};
use spa::engine::{PoolWriter, World};
use zpl::NewFileSystem;

use super::{Point, SplitMix, Tape};
use crate::chain;

/// The name of the pool.
pub(super) const POOL: &str = "tank";
/// Size of each device in bytes.
pub(super) const SIZE: u64 = 64 << 20;

/// The visible contents of a pool: its datasets, and what the workload has written to each.
pub(super) type Seen = BTreeMap<String, Vec<u8>>;

/// A recorded workload.
pub struct Script {
    tape: Tape,
    count: usize,
    /// For each step: the visible contents after it, and the tape's end when it began and when it
    /// was acknowledged.
    steps: Vec<(Seen, Point, Point)>,
}

/// The result of a crash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The pool shows the state after this step, and that state is valid here.
    Step(usize),
    /// There is no pool, and its creation was not acknowledged.
    Nothing,
    /// An invalid state, in words for people.
    Wrong(String),
}

struct Seeded(AtomicU64);

impl World for Seeded {
    fn now(&self) -> u64 {
        1_700_000_000
    }

    fn random(&self) -> u64 {
        next(&self.0)
    }

    fn memory(&self) -> u64 {
        1 << 30
    }
}

pub(super) fn next(state: &AtomicU64) -> u64 {
    const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
    SplitMix(state.fetch_add(STEP, Ordering::Relaxed)).roll()
}

/// The host of all pools.
pub(super) fn host() -> Host {
    Host { hostid: 1, hostname: "sim".into() }
}

/// A new pool of this shape on `count` devices, with `logs` log devices.
pub(crate) fn begin(tape: &Tape, shape: VdevShape, count: usize, logs: usize, seed: u64) -> Spa {
    let mut vdevs = vec![(shape, None, count)];
    vdevs.resize(1 + logs, (VdevShape::Single, Some(AllocBias::Log), 1));
    begin_with(tape, &vdevs, seed)
}

/// A new pool of these vdevs. The number is that of a vdev's devices.
pub(super) fn begin_with(tape: &Tape, vdevs: &[(VdevShape, Option<AllocBias>, usize)], seed: u64) -> Spa {
    let devices = tape.devices(vdevs.iter().map(|(.., count)| count).sum(), SIZE);
    let by_path: HashMap<std::path::PathBuf, Arc<dyn Device>> =
        devices.iter().map(|d| (d.name().into(), d.clone())).collect();
    let mut rest = devices.iter().map(|d| NewLeaf { path: d.name().into() });
    let vdevs = vdevs.iter().map(|(shape, bias, count)| NewVdev {
        shape: *shape,
        bias: *bias,
        leaves: rest.by_ref().take(*count).collect(),
    });
    let vdevs = vdevs.collect();
    let claimer = |path: &Path| Ok((by_path[path].clone(), VdevKind::File));
    begin_on(vdevs, Arc::new(Seeded(AtomicU64::new(seed))), &claimer)
}

/// A new pool of these vdevs. `claimer` opens their devices.
pub(super) fn begin_on(vdevs: Vec<NewVdev>, world: Arc<dyn World>, claimer: &Claimer<'_>) -> Spa {
    let new = NewPool { name: POOL.into(), vdevs, ashift: None, force: false };
    let features: Vec<&'static Feature> = FEATURES.iter().filter(|f| f.can_write()).collect();
    let contents = NewFileSystem::new((1_700_000_000, 0));
    let begin = Beginning {
        features: &features,
        contents: &contents,
        props: &Vec::new(),
        crypt: None,
        temporary_name: None,
        version: 5000,
    };
    let setting = Setting {
        host: &host(),
        world,
        claimer,
        workers: Arc::new(zio::Workers::new("zio", 1)),
        cache: (32u64 << 20).into(),
        altroot: None,
    };
    create(&new, &begin, &setting).expect("sound devices make a pool")
}

/// Records a workload of so many steps on a new pool of this shape.
///
/// # Panics
/// A step fails. No step should, as there are no faults yet.
pub fn record(shape: VdevShape, count: usize, steps: usize, seed: u64) -> Script {
    let tape = Tape::default();
    let spa = begin(&tape, shape, count, 0, seed);
    let live = spa.writer().expect("a new pool is open for writing");
    let mut script = Script { tape, count, steps: Vec::new() };
    let mut seen = Seen::from([(POOL.to_owned(), Vec::new())]);
    script.steps.push((seen.clone(), 0, script.tape.end()));
    let dice = AtomicU64::new(seed);
    for step in 0..steps {
        let began = script.tape.end();
        one(live, &mut seen, step, next(&dice));
        script.steps.push((seen.clone(), began, script.tape.end()));
    }
    drop(spa);
    script
}

/// Does one step in one transaction group, which is on disk when this returns.
fn one(live: &PoolWriter, seen: &mut Seen, step: usize, dice: u64) {
    const FINE: &str = "nothing stands in the way of it";
    let pick = |of: Vec<&String>| of.get((dice >> 8) as usize % of.len().max(1)).map(|n| (*n).clone());
    let heads = |seen: &Seen| pick(seen.keys().filter(|n| !n.contains('@') && *n != POOL).collect());
    let snaps = |seen: &Seen| pick(seen.keys().filter(|n| n.contains('@')).collect());
    match (dice % 6, heads(seen), snaps(seen)) {
        (1 | 2, Some(head), _) => {
            let contents = write(live, &head, dice);
            seen.insert(head, contents);
        }
        (3, Some(head), _) => {
            let name = format!("{head}@s{step}");
            let task = Snapshot { names: vec![name.clone()], props: Vec::new(), enforce_limits: false };
            live.run(Box::new(task)).expect(FINE);
            let contents = seen[&head].clone();
            seen.insert(name, contents);
        }
        (4, _, Some(snap)) => {
            let task = DestroySnapshots { names: vec![snap.clone()], defer: false };
            live.run(Box::new(task)).expect(FINE);
            seen.remove(&snap);
        }
        (5, Some(head), _) if !seen.keys().any(|n| n.starts_with(&format!("{head}@"))) => {
            live.run(Box::new(DestroyHead { name: head.clone() })).expect(FINE);
            seen.remove(&head);
        }
        _ => {
            let name = format!("{POOL}/fs{step}");
            let contents = Arc::new(NewFileSystem::new((1_700_000_000, 0)));
            let (props, crypt) = (Vec::new(), None);
            let task = Create { name: name.clone(), contents, props, crypt, enforce_limits: false };
            live.run(Box::new(task)).expect(FINE);
            seen.insert(name, Vec::new());
        }
    }
}

/// The object that the workload writes in each dataset.
const OBJECT: ObjNum = ObjNum(1000);

/// What was written last to a head. `None` if it can't be read.
pub(super) fn read(live: &PoolWriter, head: &str) -> Option<Vec<u8>> {
    let objset = live.dsl().dataset(head).ok()?.objset().ok()??;
    contents(&objset).ok()
}

fn contents(objset: &dmu::Objset) -> dmu::Result<Vec<u8>> {
    let Ok(dn) = objset.dnode(OBJECT) else { return Ok(Vec::new()) };
    let mut contents = vec![0; dn.max_size() as usize];
    dn.read_at(0, &mut contents)?;
    Ok(bare(contents))
}

/// Writes new contents to the object, and waits until they are on disk. Returns them.
pub(super) fn write(live: &PoolWriter, head: &str, dice: u64) -> Vec<u8> {
    const FINE: &str = "a healthy pool takes it";
    let dataset = live.dsl().dataset(head).expect(FINE);
    let owned = live.dsl().heads().own(&dataset).expect(FINE);
    let tx = live.tx(1 << 20).expect(FINE);
    let state = AtomicU64::new(dice);
    let words = 1 + (dice >> 16) % 40_000;
    let contents: Vec<u8> = (0..words).flat_map(|_| next(&state).to_le_bytes()).collect();
    let dn = match owned.objset().dnode(OBJECT) {
        Ok(dn) => dn,
        Err(_) => {
            let spec = NewObject { block_size: 1 << 14, ..NewObject::new(DmuType::PLAIN_FILE_CONTENTS) };
            owned.objset().claim_object(&tx, OBJECT, &spec).expect(FINE)
        }
    };
    dn.free_range(&tx, 0, u64::MAX).expect(FINE);
    dn.write_at(&tx, 0, &contents).expect(FINE);
    let txg = tx.txg();
    drop(tx);
    live.txgs().wait_synced(txg).expect(FINE);
    bare(contents)
}

/// The contents without zeros at the end, as the size of an object is a whole number of blocks.
fn bare(mut contents: Vec<u8>) -> Vec<u8> {
    let used = contents.iter().rposition(|b| *b != 0).map_or(0, |n| n + 1);
    contents.truncate(used);
    contents
}

impl Script {
    /// Number of crash points.
    pub fn points(&self) -> Point {
        self.tape.end()
    }

    /// Crashes at `point`, and checks the pool. The images go to `dir`.
    ///
    /// `seed` decides what becomes of unflushed writes.
    ///
    /// # Errors
    /// [`std::io::Error`]: an image file can't be written.
    pub fn crash(&self, point: Point, seed: u64, dir: &Path) -> std::io::Result<Outcome> {
        let state = AtomicU64::new(seed);
        self.tape.develop(point, SIZE, self.count, dir, &mut || next(&state))?;
        let acknowledged = self.steps.iter().rposition(|(_, _, end)| *end <= point);
        let begun = self.steps.iter().rposition(|(_, start, _)| *start <= point).unwrap_or(0);
        let options = OpenOptions {
            force: true,
            cache_bytes: Some(32 << 20),
            no_read_ahead: true,
            ..OpenOptions::default()
        };
        let pool = match Pool::open(&[dir], &options) {
            Ok(pool) => pool,
            Err(_) if acknowledged.is_none() => return Ok(Outcome::Nothing),
            Err(e) => return Ok(Outcome::Wrong(format!("it does not open: {}", chain(&e)))),
        };
        let seen = match look(&pool) {
            Ok(seen) => seen,
            Err(e) => return Ok(Outcome::Wrong(format!("it cannot be read: {}", chain(&e)))),
        };
        let first = acknowledged.unwrap_or(0);
        // The same state may occur at several steps. Any of them is right.
        let found = (first..=begun).rev().find(|n| self.steps[*n].0 == seen);
        Ok(found.map_or_else(
            || {
                let names: Vec<&String> = seen.keys().collect();
                Outcome::Wrong(format!("between steps {first} and {begun} there is no such state: {names:?}"))
            },
            Outcome::Step,
        ))
    }
}

pub(super) fn look(pool: &Pool) -> poolhouse::Result<Seen> {
    let mut out = Seen::new();
    let listed = pool.dataset_names(true)?;
    if let Some((_, error)) = listed.failures.into_iter().next() {
        return Err(error.into());
    }
    for name in listed.names {
        let objset = pool.dsl().dataset(&name)?.objset()?;
        let contents = objset.map_or(Ok(Vec::new()), |os| contents(&os)).map_err(dsl::Error::from)?;
        out.insert(name, contents);
    }
    Ok(out)
}
