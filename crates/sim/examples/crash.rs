//! The crash test at length: `crash POINTS [SEED [commits]]`.
//!
//! Workloads of changing shape and seed are recorded and crashed at every point, until so many points were tried: in turns files with
//! commits, by one or several at once, with log devices and without, and, unless `commits` says otherwise, operations on datasets. With `ZDB` set, OpenZFS's `zdb` is asked
//! about every 500th: no leak, no bad checksum.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "it is run by hand, and tells what it found")]

use sim::crash::{Outcome, Point, promise, record};
use spa::create::VdevShape;
use std::path::Path;
use std::process::{Command, ExitCode};

const SHAPES: [(VdevShape, usize); 4] =
    [(VdevShape::Single, 1), (VdevShape::Mirror, 2), (VdevShape::Raidz(1), 3), (VdevShape::Raidz(2), 4)];
const STEPS: usize = 30;
const JUDGED: usize = 500;

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let mut number = |default: u64| match args.next() {
        None => default,
        Some(text) => text.parse().unwrap_or_else(|_| {
            eprintln!("usage: crash POINTS [SEED [commits]]");
            std::process::exit(2)
        }),
    };
    let (points, seed) = (number(10_000) as usize, number(1));
    let datasets = std::env::args().nth(3).is_none();
    let dir = tempfile::tempdir().expect("a folder for image files");
    let (mut tried, mut judged, mut wrong, mut nothing) = (0, 0, 0, 0);
    let mut round = 0;
    while tried < points {
        let (shape, devices) = SHAPES[round / 2 % SHAPES.len()];
        let seed = seed.wrapping_add(round as u64);
        let (name, points, crash) = work(round, shape, devices, seed, datasets);
        println!("{name} on {shape:?}, seed {seed}: {points} points");
        for point in 1..=points {
            let dice = seed.wrapping_mul(0x9e37_79b9).wrapping_add(point as u64);
            match crash(point, dice, dir.path()).expect("image files can be written") {
                Outcome::Step(_) => {
                    if point % JUDGED == 0 {
                        judged += 1;
                        wrong += u32::from(!judge(dir.path()));
                    }
                }
                Outcome::Nothing => nothing += 1,
                Outcome::Wrong(what) => {
                    wrong += 1;
                    println!("WRONG: {shape:?}, seed {seed}, point {point}, dice {dice}: {what}");
                }
            }
            tried += 1;
        }
        round += 1;
    }
    println!("{tried} crash points, {nothing} before there was a pool, {judged} shown to zdb, {wrong} wrong");
    if wrong == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

type Crash = Box<dyn Fn(Point, u64, &Path) -> std::io::Result<Outcome>>;

/// Records the workload of a round: its name, how many points it has, and how to crash it at one.
fn work(round: usize, shape: VdevShape, devices: usize, seed: u64, datasets: bool) -> (String, Point, Crash) {
    if datasets && !round.is_multiple_of(2) {
        let script = record(shape, devices, STEPS, seed);
        return (
            "datasets".into(),
            script.points(),
            Box::new(move |p, dice, dir| script.crash(p, dice, dir)),
        );
    }
    // Each shape with each number of actors, with a log device and without.
    let (logs, actors) = ((round / 8 + round) % 2, 1 + round / 2 % 3);
    let script = promise(shape, devices, logs, actors, 3 * STEPS / actors, seed);
    let name = format!("commits by {actors} with {logs} log devices");
    (name, script.points(), Box::new(move |p, dice, dir| script.crash(p, dice, dir)))
}

/// What `zdb` says of the pool that a crash left; true if nobody can be asked.
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
