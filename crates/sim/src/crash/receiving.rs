//! Receiving streams, with a power failure at any moment.
//!
//! # Theory
//! A pool receives a whole stream and an increment. Each breaks off once and is resumed. After a
//! crash there is one of these, in this order, and none that is older than what was acknowledged:
//!
//! * nothing of the file system;
//! * a part of it that can be resumed;
//! * the first snapshot;
//! * the first snapshot, and a part of the increment that can be resumed;
//! * both snapshots.
//!
//! What is missing is then received. In the end the snapshots have the contents that were sent.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::AtomicU64;

use ondisk::ObjNum;
use poolhouse::stream::{Forms, Options, Origin, ReceiveError, ReceiveOptions, Resume, token};
use poolhouse::{Dataset, Error, OpenOptions, Pool};
use spa::create::VdevShape;

use super::work::{SIZE, begin, next};
use super::{Outcome, Point, Tape};
use crate::chain;

/// The file system that is sent, on its own pool.
const SENT: &str = "tank/src";
/// Where it goes.
const HEAD: &str = "tank/fs";
/// What receives resume from, in the order of the states of [`Received`].
const SNAPSHOTS: [&str; 2] = ["1", "2"];
/// Files of the file system.
const FILES: u64 = 9;

/// The contents of each file of a snapshot.
type Contents = BTreeMap<String, Vec<u8>>;

type Fallible<T> = Result<T, Box<dyn std::error::Error>>;

/// A recorded receive.
pub struct Received {
    tape: Tape,
    count: usize,
    source: Pool,
    contents: [Contents; 2],
    /// The end of the tape when the pool was ready, and when each state was acknowledged.
    begun: Point,
    acknowledged: Vec<Point>,
}

/// Records receives on a new pool of this shape.
///
/// # Panics
/// A step fails. No step should, as there are no faults yet.
pub fn receive(shape: VdevShape, count: usize, seed: u64) -> Received {
    const FINE: &str = "nothing stands in the way of it";
    let dice = AtomicU64::new(seed);
    let source = Pool::with_spa(begin(&Tape::default(), VdevShape::Single, 1, 0, seed), None).expect(FINE);
    let fs = source.create_filesystem(SENT).expect(FINE);
    let contents = SNAPSHOTS.map(|snapshot| {
        change(&fs, &dice).expect(FINE);
        source.snapshot(&format!("{SENT}@{snapshot}")).expect(FINE);
        contents(&source, &format!("{SENT}@{snapshot}")).expect(FINE)
    });
    let tape = Tape::default();
    let target = Pool::with_spa(begin(&tape, shape, count, 0, seed), None).expect(FINE);
    target.sync().expect(FINE);
    let (begun, mut acknowledged) = (tape.end(), Vec::new());
    for n in 0..SNAPSHOTS.len() {
        let stream = stream(&source, n, None).expect(FINE);
        let part = stream.len() / 4 + next(&dice) as usize % (stream.len() / 2);
        match target.receive(&stream[..part], &options(n)) {
            Err(Error::Receive(ReceiveError::Resumable { .. })) => {}
            other => panic!("a stream that breaks off: {other:?}"),
        }
        acknowledged.push(tape.end());
        resume(&target, &source, n).expect(FINE);
        acknowledged.push(tape.end());
    }
    drop(target);
    Received { tape, count, source, contents, begun, acknowledged }
}

/// Changes files at random.
fn change(fs: &Dataset, dice: &AtomicU64) -> Fallible<()> {
    for n in 0..FILES {
        let name = format!("/{n}");
        let file = match fs.create_file(&name) {
            Ok(file) => file,
            Err(_) if next(dice).is_multiple_of(3) => continue,
            Err(_) => fs.open_for_writing(&name)?,
        };
        let (size, at) = (next(dice) % (1 << (9 + n)), next(dice) % (1 << (8 + n)));
        let bytes: Vec<u8> = (0..size / 8).flat_map(|n| (next(dice) >> (n % 60)).to_le_bytes()).collect();
        file.write_at(&bytes, at)?;
        if next(dice).is_multiple_of(4) {
            file.set_len(size / 2)?;
        }
        file.sync()?;
    }
    Ok(())
}

fn contents(pool: &Pool, name: &str) -> Fallible<Contents> {
    let snapshot = pool.dataset(name)?;
    let mut all = Contents::new();
    for n in 0..FILES {
        let file = snapshot.open(format!("/{n}"))?;
        let mut bytes = vec![0; file.size() as usize];
        let read = file.read_at(&mut bytes, 0)?;
        bytes.truncate(read);
        all.insert(n.to_string(), bytes);
    }
    Ok(all)
}

/// The stream of a snapshot, or its rest.
fn stream(source: &Pool, n: usize, resume: Option<Resume>) -> Fallible<Vec<u8>> {
    let to = source.dataset(&format!("{SENT}@{}", SNAPSHOTS[n]))?;
    let origin = match n {
        0 => None,
        n => {
            let from = source.dataset(&format!("{SENT}@{}", SNAPSHOTS[n - 1]))?;
            Some(Origin::of_snapshot(to.dsl(), from.dsl())?)
        }
    };
    let mut stream = Vec::new();
    let forms = Forms { compressed: n == 1, ..Forms::default() };
    to.send(&Options { origin, forms, resume, ..Options::default() }, &mut stream)?;
    Ok(stream)
}

fn options(n: usize) -> ReceiveOptions {
    let name = format!("{HEAD}@{}", SNAPSHOTS[n]);
    ReceiveOptions { name, resumable: true, ..ReceiveOptions::default() }
}

/// Receives the rest of a stream.
fn resume(target: &Pool, source: &Pool, n: usize) -> Fallible<()> {
    let head = target.dataset(HEAD)?;
    let token = head.dsl().resume_token()?.and_then(|token| token::decode(&token).ok());
    let from = token.and_then(|token| {
        let (object, offset) = (token.u64("object")?, token.u64("offset")?);
        Some(Resume { object: ObjNum(object), offset, bytes: token.u64("bytes")? })
    });
    target.receive(&stream(source, n, from)?[..], &options(n))?;
    Ok(())
}

impl Received {
    /// The first and the last crash point.
    pub fn points(&self) -> (Point, Point) {
        (self.begun, self.tape.end())
    }

    /// Crashes at `point`, and receives what is missing. The images go to `dir`.
    ///
    /// [`Outcome::Step`] has the number of the state that the crash left.
    ///
    /// # Errors
    /// [`std::io::Error`]: an image file can't be written.
    pub fn crash(&self, point: Point, seed: u64, dir: &Path) -> std::io::Result<Outcome> {
        let dice = AtomicU64::new(seed);
        self.tape.develop(point, SIZE, self.count, dir, &mut || next(&dice))?;
        let least = self.acknowledged.iter().filter(|end| **end <= point).count();
        let looked = self.look(dir).map_err(|error| chain(&*error));
        Ok(match looked {
            Ok(state) if state < least => {
                Outcome::Wrong(format!("state {state}, and {least} was acknowledged"))
            }
            Ok(state) => Outcome::Step(state),
            Err(what) => Outcome::Wrong(what),
        })
    }

    /// Opens the pool, receives what is missing, and exports it. Returns the state that it had.
    fn look(&self, dir: &Path) -> Fallible<usize> {
        let options = OpenOptions {
            write: true,
            force: true,
            cache_bytes: Some(32 << 20),
            no_read_ahead: true,
            ..OpenOptions::default()
        };
        let pool = Pool::open(&[dir], &options)?;
        let state = self.state(&pool)?;
        for (n, snapshot) in SNAPSHOTS.iter().enumerate() {
            // Of each snapshot there is nothing, a part, or all.
            match state.checked_sub(2 * n) {
                None | Some(0) => {
                    pool.receive(&stream(&self.source, n, None)?[..], &self::options(n))?;
                }
                Some(1) => resume(&pool, &self.source, n)?,
                Some(_) => {}
            }
            let name = format!("{HEAD}@{snapshot}");
            if contents(&pool, &name)? != self.contents[n] {
                return Err(format!("from state {state}, {name} does not have what was sent").into());
            }
        }
        pool.export()?;
        Ok(state)
    }

    /// The state that a crash left.
    fn state(&self, pool: &Pool) -> Fallible<usize> {
        let head = match pool.dataset(HEAD) {
            Ok(head) => head,
            Err(Error::Dataset(dsl::Error::NoSuchDataset { .. })) => return Ok(0),
            Err(error) => return Err(error.into()),
        };
        let names: Vec<String> = head.snapshots()?.iter().map(Dataset::name).collect();
        let right = SNAPSHOTS.map(|snapshot| format!("{HEAD}@{snapshot}"));
        if names != right[..names.len().min(2)] {
            return Err(format!("there are {names:?}").into());
        }
        let partial = head.dsl().resume_token()?.is_some();
        if names.is_empty() && !partial {
            return Err("what can't be resumed is visible".into());
        }
        Ok(2 * names.len() + usize::from(partial))
    }
}
