//! Promises: after any crash, what `fsync` made durable is in its transaction group or in the log.
//!
//! # Theory
//! The workload changes files and directories of a mounted pool: it creates, writes, clones, links,
//! renames, truncates and removes them. A commit makes each change durable, and returns long before
//! the transaction group is on disk.
//!
//! After a crash, the file system has the state of the last group, and its log has the later
//! changes. The test does three things:
//!
//! 1. It applies the records to a model, in their order.
//! 2. It imports the pool for writing, which claims the log. It may crash once more, and then
//!    replays the log.
//! 3. It compares the result with the model.
//!
//! If the last commit of a file had returned, and the next had not begun, the file must be exactly
//! as that commit left it. A change that replaces a name atomically is there or not, and nothing
//! else, even before its commit has returned.
//!
//! Some changes have no record: the first name of a file that was created without one, and clones
//! whose group was closed before their commit. Later changes, such as a rename over another file,
//! must not become durable before them.

use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::AtomicU64;

use ondisk::ObjNum;
use parking_lot::Mutex;
use poolhouse::{OpenOptions, Pool};
use spa::create::VdevShape;
use zpl::{CloneRange, FileSystem, Kind, NewFile, Policies, Rename, SetAttr, SetXattr};

use super::model::{Applied, File, Model};
use super::work::{self, SIZE, next};
use super::{Outcome, Point, Tape};
use crate::chain;

/// What a name means after a commit: the contents of a file, or no file.
struct Version {
    began: Point,
    acknowledged: Point,
    /// Whether it atomically replaces what was there before.
    whole: bool,
    contents: Option<Vec<u8>>,
}

/// A recorded workload, and the promises of its commits.
pub struct Promises {
    tape: Tape,
    count: usize,
    names: HashMap<String, Vec<Version>>,
}

/// A thread of the workload, which changes only names of its own.
struct Actor<'a> {
    fs: &'a FileSystem,
    tape: &'a Tape,
    number: usize,
    made: u64,
    dice: AtomicU64,
    names: HashMap<String, Vec<Version>>,
    /// The directories of this actor.
    dirs: Vec<String>,
    sync: &'a (dyn Fn() + Sync),
    /// Whether there are other actors, so that the order of changes is random anyway.
    races: bool,
}

const FINE: &str = "a healthy pool takes it";

impl Actor<'_> {
    fn below(&self, n: u64) -> u64 {
        next(&self.dice) % n
    }

    fn fill(&self, object: ObjNum) -> Vec<u8> {
        let words = [1, 30, 500, 4000, 20_000][self.below(5) as usize] + self.below(100);
        let contents: Vec<u8> = (0..words).flat_map(|_| next(&self.dice).to_le_bytes()).collect();
        for (n, piece) in contents.chunks(70_000).enumerate() {
            self.fs.write(object, n as u64 * 70_000, piece, false).expect(FINE);
        }
        contents
    }

    /// A name of an existing file, with the file's contents.
    fn pick(&self) -> Option<(String, Vec<u8>)> {
        let mut all: Vec<_> =
            self.names.iter().filter_map(|(n, v)| Some((n, v.last()?.contents.as_ref()?))).collect();
        all.sort();
        let at = self.below(all.len().max(1) as u64) as usize;
        all.get(at).map(|(n, c)| ((*n).clone(), (*c).clone()))
    }

    /// Records a new version of a name, which was made in several steps.
    fn promised(&mut self, name: String, began: Point, contents: Option<Vec<u8>>) {
        let version = Version { began, acknowledged: self.tape.end(), whole: false, contents };
        self.names.entry(name).or_default().push(version);
    }

    /// Records a new version of a name, which was made atomically.
    fn replaced(&mut self, name: String, began: Point, contents: Option<Vec<u8>>) {
        let version = Version { began, acknowledged: self.tape.end(), whole: true, contents };
        self.names.entry(name).or_default().push(version);
    }

    fn object(&self, name: &str) -> ObjNum {
        name.split('/').fold(self.fs.root(), |dir, name| self.fs.lookup(dir, name.as_bytes()).expect(FINE))
    }

    /// The directory and the last part of a path.
    fn place<'p>(&self, path: &'p str) -> (ObjNum, &'p [u8]) {
        match path.rsplit_once('/') {
            Some((dir, name)) => (self.object(dir), name.as_bytes()),
            None => (self.fs.root(), path.as_bytes()),
        }
    }

    /// A path for a new file, at the root or in a directory of this actor.
    fn path(&mut self, prefix: &str) -> String {
        self.made += 1;
        let name = format!("{prefix}{}.{}", self.number, self.made);
        match self.below(3).checked_sub(1).filter(|_| !self.dirs.is_empty()) {
            None => name,
            Some(_) => format!("{}/{name}", self.dirs[self.below(self.dirs.len() as u64) as usize]),
        }
    }

    fn file(&mut self, prefix: &str) -> (String, ObjNum) {
        let path = self.path(prefix);
        let (dir, name) = self.place(&path);
        let object = self.fs.create(dir, name, &NewFile::new(Kind::Regular, 0o600)).expect(FINE).object;
        (path, object)
    }

    fn reap(&self, gone: Option<ObjNum>) {
        gone.into_iter().for_each(|object| self.fs.reap(object).expect(FINE));
    }

    fn write(&self, object: ObjNum, contents: &mut Vec<u8>, at: usize, bytes: &[u8]) {
        contents.resize(contents.len().max(at + bytes.len()), 0);
        contents[at..at + bytes.len()].copy_from_slice(bytes);
        self.fs.write(object, at as u64, bytes, false).expect(FINE);
        self.fs.fsync(object).expect(FINE);
    }

    fn step(&mut self) {
        match (self.below(20), self.pick()) {
            (0..5, Some((name, contents))) => self.change(name, contents),
            (5..11, Some((name, contents))) => self.move_about(name, contents),
            // This file has no commit, so nothing is promised.
            (11, _) => {
                let (_, object) = self.file("loose");
                self.fill(object);
            }
            (12, _) => (self.sync)(),
            (13, _) => {
                let path = self.path("dir");
                let (dir, name) = self.place(&path);
                let made = self.fs.create(dir, name, &NewFile::new(Kind::Directory, 0o700)).expect(FINE);
                self.fs.fsync(made.object).expect(FINE);
                self.dirs.push(path);
            }
            _ => {
                let began = self.tape.end();
                let (name, object) = self.file("f");
                let contents = self.fill(object);
                self.fs.fsync(object).expect(FINE);
                self.promised(name, began, Some(contents));
            }
        }
    }

    /// Changes the contents or attributes of a file.
    fn change(&mut self, name: String, mut contents: Vec<u8>) {
        let began = self.tape.end();
        let object = self.object(&name);
        let (at, dice) = (self.below(contents.len() as u64 + 1) as usize, next(&self.dice));
        match self.below(6) {
            0 => {
                contents.truncate(at);
                self.fs.truncate(object, contents.len() as u64, false).expect(FINE);
                self.fs.fsync(object).expect(FINE);
            }
            1 => {
                let len = (dice % 200_000) as usize;
                self.fs.punch(object, at as u64, len as u64).expect(FINE);
                let end = (at + len).min(contents.len());
                contents[at..end].fill(0);
                self.fs.fsync(object).expect(FINE);
            }
            2 => {
                let value = vec![dice as u8; [10, 40_000, 1, 60_000][(dice >> 8) as usize % 4]];
                let name = if dice & 0x1000 == 0 { b"user.a" } else { b"user.b" };
                self.fs.set_xattr(object, name, &value, SetXattr::Either).expect(FINE);
                let permissions = Some(0o600 | dice as u32 & 0o77);
                self.fs.set_attr(object, &SetAttr { permissions, ..SetAttr::default() }).expect(FINE);
                self.fs.fsync(object).expect(FINE);
            }
            // Overwrite the same range, perhaps in the same transaction group.
            3 => {
                for n in 0..2 {
                    let bytes: Vec<u8> =
                        (0..30_000).flat_map(|_| (next(&self.dice) + n).to_le_bytes()).collect();
                    self.write(object, &mut contents, at, &bytes);
                }
            }
            _ => {
                let bytes = vec![self.number as u8; (dice % 9000) as usize];
                self.write(object, &mut contents, at, &bytes);
            }
        }
        self.promised(name, began, Some(contents));
    }

    /// Changes names of files.
    fn move_about(&mut self, name: String, contents: Vec<u8>) {
        let began = self.tape.end();
        let root = self.fs.root();
        match self.below(9) {
            0 => {
                let (dir, last) = self.place(&name);
                let gone = self.fs.unlink(dir, last).expect(FINE);
                self.fs.fsync(root).expect(FINE);
                self.replaced(name, began, None);
                self.reap(gone);
            }
            // A new file replaces another, as editors and databases do it.
            1 | 2 => {
                let (new, object) = self.file("new");
                let contents = self.fill(object);
                let gone = self.fs.rename(self.place(&new), self.place(&name), Rename::Replace).expect(FINE);
                self.fs.fsync(root).expect(FINE);
                self.replaced(name, began, Some(contents));
                self.reap(gone);
            }
            3 => {
                let (new, object) = (self.path("link"), self.object(&name));
                let ((dir, last), (old, was)) = (self.place(&new), self.place(&name));
                self.fs.link(object, dir, last).expect(FINE);
                self.reap(self.fs.unlink(old, was).expect(FINE));
                self.fs.fsync(object).expect(FINE);
                self.replaced(name, began, None);
                self.replaced(new, began, Some(contents));
            }
            4 => {
                let Some((other, theirs)) = self.pick().filter(|(other, _)| *other != name) else { return };
                self.fs.rename(self.place(&name), self.place(&other), Rename::Exchange).expect(FINE);
                self.fs.fsync(root).expect(FINE);
                self.replaced(name, began, Some(theirs));
                self.replaced(other, began, Some(contents));
            }
            5 => self.rename_dir(),
            6 => {
                let (new, target) = self.file("clone");
                self.clone_file(&name, target, &contents);
                self.fs.fsync(target).expect(FINE);
                self.promised(new, began, Some(contents));
            }
            7 => {
                let object =
                    self.fs.create_unnamed(root, &NewFile::new(Kind::Regular, 0o600)).expect(FINE).object;
                let (new, contents) = (self.path("born"), self.fill(object));
                let (dir, last) = self.place(&new);
                self.fs.link(object, dir, last).expect(FINE);
                self.take_place(&new, name, began, contents);
            }
            _ => {
                let Some((other, _)) = self.pick().filter(|(other, _)| *other != name) else { return };
                let (new, target) = self.file("clone");
                self.clone_file(&name, target, &contents);
                self.take_place(&new, other, began, contents);
            }
        }
    }

    /// Gives a new file the contents of another, by cloning.
    fn clone_file(&self, name: &str, target: ObjNum, contents: &[u8]) {
        let (source, len) = (self.object(name), contents.len() as u64);
        let range = CloneRange { source, from: 0, target, to: 0, len };
        // Blocks that are not on disk yet can't be cloned. They are copied.
        let done = self.fs.clone_range(&range, false).unwrap_or(0) as usize;
        if done < contents.len() {
            self.fs.write(target, done as u64, &contents[done..], false).expect(FINE);
        }
    }

    /// Replaces a file with a new one, while the transaction group is being closed.
    fn take_place(&mut self, new: &str, name: String, began: Point, contents: Vec<u8>) {
        let gone = std::thread::scope(|scope| {
            if self.races {
                scope.spawn(|| (self.sync)());
            }
            let gone = self.fs.rename(self.place(new), self.place(&name), Rename::Replace).expect(FINE);
            self.fs.fsync(self.fs.root()).expect(FINE);
            gone
        });
        self.replaced(name, began, Some(contents));
        self.reap(gone);
    }

    /// Renames a directory, and with it all paths below it.
    fn rename_dir(&mut self) {
        let began = self.tape.end();
        // Choose a directory without subdirectories, so that their paths stay valid.
        let leaf = |d: &&String| !self.dirs.iter().any(|o| o.starts_with(&format!("{d}/")));
        let Some(old) = self.dirs.iter().find(leaf).cloned() else { return };
        self.made += 1;
        let new = format!("moved{}.{}", self.number, self.made);
        self.fs.rename(self.place(&old), self.place(&new), Rename::Replace).expect(FINE);
        self.fs.fsync(self.fs.root()).expect(FINE);
        let inside = format!("{old}/");
        let live = |v: &Vec<Version>| v.last().and_then(|v| v.contents.clone());
        let moved: Vec<(String, Vec<u8>)> = self
            .names
            .iter()
            .filter(|(name, _)| name.starts_with(&inside))
            .filter_map(|(name, v)| Some((name.clone(), live(v)?)))
            .collect();
        for (name, contents) in moved {
            let there = format!("{new}/{}", &name[inside.len()..]);
            self.replaced(name, began, None);
            self.replaced(there, began, Some(contents));
        }
        self.dirs.retain(|d| *d != old);
        self.dirs.push(new);
    }
}

/// Records a workload of commits on a new pool of this shape.
///
/// `actors` threads run at once, each with `steps` steps. The pool has `count` devices and `logs`
/// log devices.
///
/// # Panics
/// A step fails. No step should, as there are no faults yet.
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
    let (all, races) = (Mutex::new(HashMap::new()), actors > 1);
    std::thread::scope(|scope| {
        for number in 0..actors {
            let dice = AtomicU64::new(seed.wrapping_add(number as u64));
            let (fs, tape, all, sync) = (&fs, &tape, &all, &sync);
            scope.spawn(move || {
                let (names, dirs) = (HashMap::new(), Vec::new());
                let mut actor = Actor { fs, tape, number, made: 0, dice, names, dirs, sync, races };
                (0..steps).for_each(|_| actor.step());
                all.lock().extend(actor.names);
            });
        }
    });
    // The writes of closing the pool are no part of the workload.
    let names = all.into_inner();
    let end = tape.end();
    drop(fs);
    tape.cut(end);
    Promises { tape, count: count + logs, names }
}

impl Promises {
    /// Number of crash points.
    pub fn points(&self) -> Point {
        self.tape.end()
    }

    /// Crashes at `point` and checks the promises. The images go to `dir`.
    ///
    /// `seed` decides what becomes of unflushed writes. If all promises are kept, the step in the
    /// result is the number of checked names.
    ///
    /// # Errors
    /// [`std::io::Error`]: an image file can't be written.
    pub fn crash(&self, point: Point, seed: u64, dir: &Path) -> std::io::Result<Outcome> {
        let state = AtomicU64::new(seed);
        self.tape.develop(point, SIZE, self.count, dir, &mut || next(&state))?;
        let asked: Vec<_> = self.names.iter().map(|(name, versions)| (name, at(versions, point))).collect();
        let asked: Vec<_> = asked.into_iter().filter(|(_, may)| !may.is_empty()).collect();
        let options = OpenOptions {
            force: true,
            cache_bytes: Some(32 << 20),
            no_read_ahead: true,
            ..OpenOptions::default()
        };
        let pool = match Pool::open(&[dir], &options) {
            Ok(pool) => pool,
            Err(_) if asked.is_empty() => return Ok(Outcome::Nothing),
            Err(e) => return Ok(Outcome::Wrong(format!("it does not open: {}", chain(&e)))),
        };
        let model = match recover(&pool) {
            Ok(model) => model,
            Err(what) => return Ok(Outcome::Wrong(what)),
        };
        for (name, may) in &asked {
            let found = model.file(name).map(|f| &f.contents);
            if !may.contains(&found) {
                let promised: Vec<_> = may.iter().map(|contents| contents.map(Vec::len)).collect();
                let found = found.map(Vec::len);
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
            let (now, want) = (now.get(name), want.get(name));
            if now != want {
                let name = String::from_utf8_lossy(name);
                let told = |f: &File| {
                    let xattrs: Vec<_> =
                        f.xattrs.iter().map(|(n, v)| (String::from_utf8_lossy(n), v.len())).collect();
                    format!("mode {:o}, {} bytes, attributes {xattrs:?}", f.mode, f.contents.len())
                };
                let (now, want) = (now.map(told), want.map(told));
                let what = format!("{name}: the log says {want:?}, replayed to {now:?}, or others");
                return Ok(Outcome::Wrong(what));
            }
        }
        Ok(Outcome::Step(asked.len()))
    }
}

/// What a name may mean after a crash at `point`. Empty during a change that is not atomic, as
/// anything is possible then.
fn at(versions: &[Version], point: Point) -> Vec<Option<&Vec<u8>>> {
    let Some(last) = versions.iter().rposition(|v| v.began <= point) else { return Vec::new() };
    let (now, before) = (&versions[last], last.checked_sub(1).map(|n| &versions[n]));
    let contents = now.contents.as_ref();
    match (now.acknowledged <= point, now.whole) {
        (true, _) => vec![contents],
        (false, true) => vec![before.and_then(|v| v.contents.as_ref()), contents],
        (false, false) => Vec::new(),
    }
}

/// The contents after an import for writing and the replay of the log.
fn replay(dir: &Path, options: OpenOptions, seed: u64) -> Result<Model, String> {
    let options = OpenOptions { write: true, ..options };
    let open = || Pool::open(&[dir], &options).map_err(|e| format!("it is not imported: {}", chain(&e)));
    if seed.is_multiple_of(2) {
        // This import claims the log, but does not replay it.
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
    // Each handle of a part of the pool keeps the devices open.
    drop((fs, dataset, pool));
    // A second import must not replay the log again.
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
    let Some(log) = zil::Log::open(&os, synced, 0).map_err(|e| format!("the log: {}", chain(&e)))? else {
        return Ok(model);
    };
    for block in log.blocks() {
        let block = block.map_err(|e| format!("a log block: {}", chain(&e)))?;
        for record in block.records.into_iter().flatten().filter(|r| r.header.txg > synced) {
            let text = format!("{:?}", record.header);
            match model.apply(&log, record) {
                Applied::Done => {}
                Applied::Senseless => return Err(format!("a record makes no sense: {text}")),
                Applied::End => return Ok(model),
            }
        }
    }
    Ok(model)
}
