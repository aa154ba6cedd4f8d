//! The crash test at length: `crash POINTS [SEED [afs|commits|datasets|devices|receives]]`.
//!
//! It records workloads of changing shape and seed, and crashes each at every point, until POINTS
//! points were tried. The workloads take turns, unless the command names one:
//!
//! | name | workload |
//! |---|---|
//! | `commits` | files with commits, by one or more threads, with and without log devices |
//! | `datasets` | operations on datasets |
//! | `afs` | calls of AFS clients; only some of the points are tried |
//! | `receives` | streams that are received, break off and are resumed |
//! | `devices` | devices that are added, replaced and removed; only some of the points are tried |
//!
//! If `ZDB` names OpenZFS's `zdb`, it checks every 500th pool, and every 100th of `afs`, `devices`
//! and `receives`: no leak, no bad checksum.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "it is run by hand, and tells what it found")]

use sim::crash::{Outcome, Point, Tale, live, promise, receive, record, serve};
use spa::create::VdevShape;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

const SHAPES: [(VdevShape, usize); 4] =
    [(VdevShape::Single, 1), (VdevShape::Mirror, 2), (VdevShape::Raidz(1), 3), (VdevShape::Raidz(2), 4)];
const STEPS: usize = 30;
const JUDGED: usize = 500;
/// The same for `devices`, of which fewer points are tried.
const LIVES_JUDGED: usize = 100;
/// Of `devices`, one in so many points is tried, as each check takes long.
const LIVES_EVERY: usize = 23;
/// Of each workload of `afs`, so many points are tried.
const CALLS_POINTS: usize = 250;
/// Steps of the workload of `afs`.
const CALLS: usize = 150;

/// The kind of workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Of {
    Commits,
    Datasets,
    Devices,
    Receives,
    Afs,
}

const ALL: [Of; 5] = [Of::Commits, Of::Datasets, Of::Devices, Of::Receives, Of::Afs];

fn usage() -> ! {
    eprintln!("usage: crash POINTS [SEED [afs|commits|datasets|devices|receives]]");
    std::process::exit(2)
}

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let mut number =
        |default: u64| args.next().map_or(default, |text| text.parse().unwrap_or_else(|_| usage()));
    let (points, seed) = (number(10_000) as usize, number(1));
    let of: &[Of] = match args.next().as_deref() {
        None => &ALL,
        Some("commits") => &ALL[..1],
        Some("datasets") => &ALL[1..2],
        Some("devices") => &ALL[2..3],
        Some("receives") => &ALL[3..4],
        Some("afs") => &ALL[4..],
        Some(_) => usage(),
    };
    let dir = tempfile::tempdir().expect("a folder for image files");
    let mut sums = Sums::default();
    let mut round = 0;
    while sums.tried < points {
        let seed = seed.wrapping_add(round as u64);
        let work = work(of[round % of.len()], round / of.len(), seed, dir.path());
        println!("{}, seed {seed}: {} points", work.name, work.points);
        let first = 1 + seed as usize % work.every;
        for (n, point) in (first..=work.points).step_by(work.every).enumerate() {
            let dice = seed.wrapping_mul(0x9e37_79b9).wrapping_add(point as u64);
            match (work.crash)(point, dice).expect("image files can be written") {
                Outcome::Step(_) => {
                    if (n + 1).is_multiple_of(work.judged) {
                        sums.judged += 1;
                        sums.wrong += u32::from(!judge(&work.dir));
                    }
                }
                Outcome::Nothing => sums.nothing += 1,
                Outcome::Wrong(what) => {
                    sums.wrong += 1;
                    println!("WRONG: {}, seed {seed}, point {point}, dice {dice}: {what}", work.name);
                }
            }
            sums.tried += 1;
        }
        round += 1;
    }
    let Sums { tried, nothing, judged, wrong } = sums;
    println!("{tried} crash points, {nothing} before there was a pool, {judged} shown to zdb, {wrong} wrong");
    if wrong == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

#[derive(Default)]
struct Sums {
    tried: usize,
    nothing: usize,
    judged: usize,
    wrong: u32,
}

/// A recorded workload.
struct Work {
    name: String,
    points: Point,
    /// One in so many points is tried, and `zdb` checks one in `judged` of these.
    every: usize,
    judged: usize,
    /// The directory of the images that a crash leaves.
    dir: PathBuf,
    crash: Crash,
}

type Crash = Box<dyn Fn(Point, u64) -> std::io::Result<Outcome>>;

/// Records the workload of a round.
fn work(of: Of, round: usize, seed: u64, dir: &Path) -> Work {
    let (shape, devices) = SHAPES[round % SHAPES.len()];
    let (every, judged, dir) = (1, JUDGED, dir.to_owned());
    let at = dir.clone();
    match of {
        Of::Devices => {
            let tale = Tale::ALL[round % Tale::ALL.len()];
            let life = live(tale, seed);
            let (name, points, dir) = (format!("devices, {tale:?}"), life.points(), life.dir().to_owned());
            let crash = Box::new(move |point, dice| life.crash(point, dice, true));
            Work { name, points, every: LIVES_EVERY, judged: LIVES_JUDGED, dir, crash }
        }
        Of::Datasets => {
            let script = record(shape, devices, STEPS, seed);
            let (name, points) = (format!("datasets on {shape:?}"), script.points());
            Work {
                name,
                points,
                every,
                judged,
                dir,
                crash: Box::new(move |p, dice| script.crash(p, dice, &at)),
            }
        }
        Of::Receives => {
            let script = receive(shape, devices, seed);
            let (name, (first, last)) = (format!("receives on {shape:?}"), script.points());
            let crash = Box::new(move |point, dice| script.crash(first - 1 + point, dice, &at));
            Work { name, points: last + 1 - first, every, judged: LIVES_JUDGED, dir, crash }
        }
        Of::Afs => {
            let script = serve(shape, devices, CALLS, seed);
            let (name, (first, last)) = (format!("afs on {shape:?}"), script.points());
            let every = (last - first) / CALLS_POINTS + 1;
            let crash = Box::new(move |point, dice| script.crash(first - 1 + point, dice, &at));
            Work { name, points: last + 1 - first, every, judged: LIVES_JUDGED, dir, crash }
        }
        Of::Commits => {
            // Each shape with each number of actors, with and without a log device.
            let (logs, actors) = ((round / 4 + round) % 2, 1 + round % 3);
            let script = promise(shape, devices, logs, actors, 3 * STEPS / actors, seed);
            let name = format!("commits by {actors} with {logs} log devices on {shape:?}");
            let points = script.points();
            Work {
                name,
                points,
                every,
                judged,
                dir,
                crash: Box::new(move |p, dice| script.crash(p, dice, &at)),
            }
        }
    }
}

/// Whether `zdb` accepts the pool that a crash left. True if `ZDB` is not set.
fn judge(dir: &Path) -> bool {
    let Some(zdb) = std::env::var_os("ZDB") else { return true };
    let out = Command::new(zdb).args(["-e", "-p"]).arg(dir).args(["-bcc", "tank"]).output();
    let out = out.expect("the program that ZDB names can be run");
    let text = String::from_utf8_lossy(&out.stdout);
    let good = out.status.success() && text.contains("No leaks");
    if !good {
        println!("WRONG: zdb: {text}{}", String::from_utf8_lossy(&out.stderr));
    }
    good
}
