//! Promises: what fsync said is there after any crash, by its group or by the log.
//!
//! # Theory
//! Files of a mounted pool are made, written, renamed, truncated and removed, and each change is made durable by a commit that returns long before its group
//! is on disk. After a crash the file system is as of the last group, and its log says what was done since; here that is done again on a model, with
//! nothing but the records in their order. Then the pool is imported for writing, which claims the log, perhaps crashes once more, and replays it: what is there then must be
//! what the model says. A file of which the last commit had returned, and the next had not begun, must be exactly as it was left.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::atomic::AtomicU64;

use ondisk::ObjNum;
use ondisk::zil::RecordBody;
use parking_lot::Mutex;
use poolhouse::{OpenOptions, Pool};
use spa::create::VdevShape;
use zpl::{FileSystem, Kind, NewFile, Policies, Rename};

use super::work::{self, SIZE, next};
use super::{Outcome, Point, Tape};
use crate::chain;

/// What a name meant after a commit: the file's contents, or nothing.
struct Version {
    began: Point,
    acknowledged: Point,
    contents: Option<Vec<u8>>,
}

/// A recorded workload, and what it was promised.
pub struct Promises {
    tape: Tape,
    count: usize,
    names: HashMap<String, Vec<Version>>,
}

/// One who works, on names of his own.
struct Actor<'a> {
    fs: &'a FileSystem,
    tape: &'a Tape,
    number: usize,
    made: u64,
    dice: AtomicU64,
    names: HashMap<String, Vec<Version>>,
    sync: &'a (dyn Fn() + Sync),
}

const FINE: &str = "a healthy pool takes it";

impl Actor<'_> {
    fn below(&self, n: u64) -> u64 {
        next(&self.dice) % n
    }

    fn file(&mut self, prefix: &str) -> (String, ObjNum) {
        self.made += 1;
        let name = format!("{prefix}{}.{}", self.number, self.made);
        let new = NewFile::new(Kind::Regular, 0o600);
        let object = self.fs.create(self.fs.root(), name.as_bytes(), &new).expect(FINE).object;
        (name, object)
    }

    fn fill(&self, object: ObjNum) -> Vec<u8> {
        let words = [1, 30, 500, 4000, 20_000][self.below(5) as usize] + self.below(100);
        let contents: Vec<u8> = (0..words).flat_map(|_| next(&self.dice).to_le_bytes()).collect();
        for (n, piece) in contents.chunks(70_000).enumerate() {
            self.fs.write(object, n as u64 * 70_000, piece, false).expect(FINE);
        }
        contents
    }

    /// A name that means a file, with its contents.
    fn pick(&self) -> Option<(String, Vec<u8>)> {
        let mut all: Vec<_> =
            self.names.iter().filter_map(|(n, v)| Some((n, v.last()?.contents.as_ref()?))).collect();
        all.sort();
        let at = self.below(all.len().max(1) as u64) as usize;
        all.get(at).map(|(n, c)| ((*n).clone(), (*c).clone()))
    }

    fn promised(&mut self, name: String, began: Point, contents: Option<Vec<u8>>) {
        let version = Version { began, acknowledged: self.tape.end(), contents };
        self.names.entry(name).or_default().push(version);
    }

    fn object(&self, name: &str) -> ObjNum {
        self.fs.lookup(self.fs.root(), name.as_bytes()).expect(FINE)
    }

    fn step(&mut self) {
        let began = self.tape.end();
        let root = self.fs.root();
        match (self.below(10), self.pick()) {
            (0, Some((name, _))) => {
                let gone = self.fs.unlink(root, name.as_bytes()).expect(FINE);
                self.fs.fsync(root).expect(FINE);
                self.promised(name, began, None);
                gone.into_iter().for_each(|object| self.fs.reap(object).expect(FINE));
            }
            (1, Some((name, mut contents))) => {
                let object = self.object(&name);
                contents.truncate(self.below(contents.len() as u64 + 1) as usize);
                self.fs.truncate(object, contents.len() as u64, false).expect(FINE);
                self.fs.fsync(object).expect(FINE);
                self.promised(name, began, Some(contents));
            }
            (2, Some((name, mut contents))) => {
                let object = self.object(&name);
                let (at, len) = (self.below(contents.len() as u64 + 1) as usize, self.below(9000) as usize);
                contents.resize(contents.len().max(at + len), 0);
                contents[at..at + len].fill(self.number as u8);
                self.fs.write(object, at as u64, &vec![self.number as u8; len], false).expect(FINE);
                self.fs.fsync(object).expect(FINE);
                self.promised(name, began, Some(contents));
            }
            // A file takes the place of another, as editors and databases do it.
            (3 | 4, Some((name, _))) => {
                let (new, object) = self.file("new");
                let contents = self.fill(object);
                let to = (root, name.as_bytes());
                let gone = self.fs.rename((root, new.as_bytes()), to, Rename::Replace).expect(FINE);
                self.fs.fsync(root).expect(FINE);
                self.promised(name, began, Some(contents));
                gone.into_iter().for_each(|object| self.fs.reap(object).expect(FINE));
            }
            // Nobody was promised this one.
            (5, _) => {
                let (_, object) = self.file("loose");
                self.fill(object);
            }
            (6, _) => (self.sync)(),
            _ => {
                let (name, object) = self.file("f");
                let contents = self.fill(object);
                self.fs.fsync(object).expect(FINE);
                self.promised(name, began, Some(contents));
            }
        }
    }
}

/// Runs `actors` at once, each doing so many steps, on a new pool of this shape with `logs` log devices, and records it.
///
/// # Panics
/// When a step fails: there is no fault yet.
pub fn promise(
    shape: VdevShape,
    count: usize,
    logs: usize,
    actors: usize,
    steps: usize,
    seed: u64,
) -> Promises {
    let tape = Tape::default();
    let spa = work::begin(&tape, shape, count, logs, seed);
    let pool = Pool::with_spa(spa, None).expect(FINE);
    let dataset = pool.dsl().dataset(work::POOL).expect(FINE);
    let fs = pool.open_for_writing(&dataset, Policies::default()).expect(FINE);
    let sync = || pool.spa().writer().expect(FINE).sync_all().expect(FINE);
    let all = Mutex::new(HashMap::new());
    std::thread::scope(|scope| {
        for number in 0..actors {
            let dice = AtomicU64::new(seed.wrapping_add(number as u64));
            let (fs, tape, all, sync) = (&fs, &tape, &all, &sync);
            scope.spawn(move || {
                let mut actor = Actor { fs, tape, number, made: 0, dice, names: HashMap::new(), sync };
                (0..steps).for_each(|_| actor.step());
                all.lock().extend(actor.names);
            });
        }
    });
    // What comes now, when the pool is let go, is no part of it.
    let names = all.into_inner();
    let end = tape.end();
    drop(fs);
    tape.cut(end);
    Promises { tape, count: count + logs, names }
}

/// A directory of files, as the last group left it, under what the log says.
#[derive(Default)]
struct Model {
    names: HashMap<Vec<u8>, u64>,
    contents: HashMap<u64, Vec<u8>>,
}

impl Model {
    fn load(fs: &FileSystem) -> zpl::Result<Model> {
        let mut out = Model::default();
        for entry in fs.read_dir(fs.root(), zpl::DirCookie::START)? {
            let entry = entry?;
            let node = fs.node(entry.object)?;
            if node.attr().kind != zpl::FileType::Regular {
                continue;
            }
            let mut contents = vec![0; node.attr().size as usize];
            node.read(0, &mut contents)?;
            out.contents.insert(entry.object.0, contents);
            out.names.insert(entry.name, entry.object.0);
        }
        Ok(out)
    }

    /// What who looks sees.
    fn seen(&self) -> BTreeMap<&[u8], Option<&Vec<u8>>> {
        self.names.iter().map(|(name, object)| (name.as_slice(), self.contents.get(object))).collect()
    }

    /// Does what a record says; false if that makes no sense.
    fn apply(&mut self, body: RecordBody) -> bool {
        match body {
            RecordBody::Create(c) => {
                self.contents.insert(c.foid.object, Vec::new());
                self.names.insert(c.name, c.foid.object).is_none()
            }
            RecordBody::Remove { name, .. } => self.names.remove(&name).is_some(),
            RecordBody::Rename(r) => {
                let Some(object) = self.names.remove(&r.source) else { return false };
                self.names.insert(r.target, object);
                true
            }
            RecordBody::Write(w) => {
                // A file that is gone is written to for nothing.
                if let Some(contents) = self.contents.get_mut(&w.foid) {
                    let (at, end) = (w.offset as usize, (w.offset + w.length) as usize);
                    contents.resize(contents.len().max(end), 0);
                    contents[at..end].copy_from_slice(&w.data);
                }
                true
            }
            RecordBody::Truncate { foid, offset, length: 0 } => {
                self.contents.get_mut(&foid).is_none_or(|c| {
                    c.resize(offset as usize, 0);
                    true
                })
            }
            _ => true,
        }
    }
}

impl Promises {
    /// How many crash points there are.
    pub fn points(&self) -> Point {
        self.tape.end()
    }

    /// Crashes at `point`, in a folder of the caller's, and asks for what was promised; `seed` decides about what was not flushed. Where all is there
    /// the outcome's step is the number of names that were asked for.
    ///
    /// # Errors
    /// As writing image files fails.
    pub fn crash(&self, point: Point, seed: u64, dir: &Path) -> std::io::Result<Outcome> {
        let state = AtomicU64::new(seed);
        self.tape.develop(point, SIZE, self.count, dir, &mut || next(&state))?;
        let asked: Vec<(&String, Option<&Vec<u8>>)> =
            self.names.iter().filter_map(|(name, versions)| Some((name, at(versions, point)?))).collect();
        let options = OpenOptions { force: true, cache_bytes: Some(32 << 20), ..OpenOptions::default() };
        let pool = match Pool::open(&[dir], &options) {
            Ok(pool) => pool,
            Err(_) if asked.is_empty() => return Ok(Outcome::Nothing),
            Err(e) => return Ok(Outcome::Wrong(format!("it does not open: {}", chain(&e)))),
        };
        let model = match recover(&pool) {
            Ok(model) => model,
            Err(what) => return Ok(Outcome::Wrong(what)),
        };
        for (name, contents) in &asked {
            let found = model.names.get(name.as_bytes()).and_then(|o| model.contents.get(o));
            if found != *contents {
                let (found, promised) = (found.map(Vec::len), contents.map(Vec::len));
                return Ok(Outcome::Wrong(format!(
                    "{name}: promised {promised:?} bytes, there are {found:?}, or others"
                )));
            }
        }
        drop(pool);
        let replayed = match replay(dir, options, seed) {
            Ok(replayed) => replayed,
            Err(what) => return Ok(Outcome::Wrong(what)),
        };
        let (now, want) = (replayed.seen(), model.seen());
        for name in now.keys().chain(want.keys()) {
            let (now, want) = (now.get(name).copied().flatten(), want.get(name).copied().flatten());
            if now != want {
                let name = String::from_utf8_lossy(name);
                let (now, want) = (now.map(Vec::len), want.map(Vec::len));
                let what = format!("{name}: the log says {want:?} bytes, replayed to {now:?}, or others");
                return Ok(Outcome::Wrong(what));
            }
        }
        Ok(Outcome::Step(asked.len()))
    }
}

/// What a name must mean after a crash at `point`; `None` if it was being changed.
fn at(versions: &[Version], point: Point) -> Option<Option<&Vec<u8>>> {
    let last = versions.iter().rfind(|v| v.began <= point)?;
    (last.acknowledged <= point).then_some(last.contents.as_ref())
}

/// What is there when the pool was imported for writing and its log replayed.
fn replay(dir: &Path, options: OpenOptions, seed: u64) -> Result<Model, String> {
    let options = OpenOptions { write: true, ..options };
    let open = || Pool::open(&[dir], &options).map_err(|e| format!("it is not imported: {}", chain(&e)));
    if seed.is_multiple_of(2) {
        // The log is claimed, and nobody opens its dataset.
        drop(open()?);
    }
    let wrong = |e: &dyn std::error::Error| format!("its log is not replayed: {}", chain(e));
    let pool = open()?;
    let dataset = pool.dataset(work::POOL).map_err(|e| wrong(&e))?;
    if let Some(done) = pool.replay(dataset.dsl()).map_err(|e| wrong(&e))?
        && let Some(ended) = done.ended
    {
        return Err(wrong(&*ended));
    }
    let fs = pool.open_for_writing(dataset.dsl(), Policies::default()).map_err(|e| wrong(&e))?;
    let model = Model::load(&fs).map_err(|e| wrong(&e))?;
    // Whoever has a part of a pool has its devices.
    drop((fs, dataset, pool));
    // Nothing is replayed twice.
    let pool = open()?;
    let dataset = pool.dataset(work::POOL).map_err(|e| wrong(&e))?;
    match pool.replay(dataset.dsl()).map_err(|e| wrong(&e))? {
        Some(done) if done.records > 0 => Err(format!("{} records were replayed twice", done.records)),
        _ => Ok(model),
    }
}

fn recover(pool: &Pool) -> Result<Model, String> {
    let read = |e: poolhouse::Error| format!("it cannot be read: {}", chain(&e));
    let dataset = pool.dataset(work::POOL).map_err(read)?;
    let (os, fs) = (dataset.objset().map_err(read)?, dataset.filesystem().map_err(read)?);
    let mut model = Model::load(&fs).map_err(|e| format!("the file system: {}", chain(&e)))?;
    let synced = pool.spa().last_synced_txg().0;
    let log = zil::Log::open(&os, synced, 0).map_err(|e| format!("the log: {}", chain(&e)))?;
    for block in log.iter().flat_map(zil::Log::blocks) {
        let block = block.map_err(|e| format!("a log block: {}", chain(&e)))?;
        for record in block.records.into_iter().flatten().filter(|r| r.header.txg > synced) {
            let Some(body) = record.body else { return Err("a record is encrypted".into()) };
            let text = format!("{:?}", record.header);
            if !model.apply(body) {
                return Err(format!("a record makes no sense: {text}"));
            }
        }
    }
    Ok(model)
}
