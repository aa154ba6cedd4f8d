//! The soak at length: `soak MINUTES [SEED]`.
//!
//! Lives of changing shape and seed, by an actor in a process of its own that is killed now and then and goes on from what it left; after each
//! kill the pool is held to the model, and at a life's end, with `ZDB` set, OpenZFS's `zdb` is asked: no leak, no bad checksum.
//! `soak act DIR SHAPE SEED STEPS` is the actor: it goes on after so many steps, and prints the number of each step that it has done.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "it is run by hand, and tells what it found")]

use sim::crash::SplitMix;
use sim::soak::{Life, Shape};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// Steps of a life.
const STEPS: u64 = 600;
/// Most steps between two kills.
const BETWEEN: u64 = 80;
/// Threads of an actor.
const WORKERS: usize = 2;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let done = match words[..] {
        ["act", dir, shape, seed, steps] => act(dir, shape, seed, steps),
        [minutes] => soak(minutes, "1"),
        [minutes, seed] => soak(minutes, seed),
        _ => Err("usage: soak MINUTES [SEED]".into()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("soak: {e}");
            ExitCode::FAILURE
        }
    }
}

fn act(dir: &str, shape: &str, seed: &str, steps: &str) -> Result<()> {
    let (dir, seed, steps) = (Path::new(dir), seed.parse()?, steps.parse()?);
    let shape = *Shape::ALL.get(shape.parse::<usize>()?).ok_or("there is no such shape")?;
    let mut life = match steps {
        0 => Life::begin(dir, shape, seed, WORKERS)?,
        steps => Life::resume(dir, seed, WORKERS, steps)?,
    };
    let mut out = std::io::stdout();
    loop {
        writeln!(out, "{}", life.steps())?;
        out.flush()?;
        if life.steps() >= STEPS {
            return life.export();
        }
        life.step()?;
    }
}

fn soak(minutes: &str, seed: &str) -> Result<()> {
    let end = Instant::now() + Duration::from_secs(60 * minutes.parse::<u64>()?);
    let mut seed: u64 = seed.parse()?;
    let (mut lives, mut kills, mut steps) = (0u64, 0, 0);
    while Instant::now() < end {
        let shape = lives as usize % Shape::ALL.len();
        let dir = tempfile::tempdir()?;
        let killed = live(dir.path(), shape, seed)
            .map_err(|e| format!("{:?}, seed {seed}: {e}", Shape::ALL[shape]))?;
        lives += 1;
        kills += killed;
        steps += STEPS;
        println!("{:?}, seed {seed}: {STEPS} steps, {killed} kills", Shape::ALL[shape]);
        seed += 1;
    }
    println!("{lives} lives, {steps} steps, {kills} kills, nothing wrong");
    Ok(())
}

/// One life; how often it was killed.
fn live(dir: &Path, shape: usize, seed: u64) -> Result<u64> {
    let mut dice = SplitMix(seed);
    let (mut done, mut kills) = (0, 0);
    loop {
        let until = done + 1 + dice.below(BETWEEN);
        let mut actor = Command::new(std::env::current_exe()?)
            .arg("act")
            .arg(dir)
            .args([shape.to_string(), seed.to_string(), done.to_string()])
            .stdout(Stdio::piped())
            .spawn()?;
        let told = actor.stdout.take().ok_or("an actor's words are heard")?;
        let mut killed = false;
        // To the end: it may have said more before it died.
        for line in BufReader::new(told).lines() {
            done = line?.parse()?;
            if done >= until && done < STEPS && !killed {
                actor.kill()?;
                killed = true;
            }
        }
        let status = actor.wait()?;
        if done >= STEPS && status.success() {
            break;
        }
        if status.code().is_some() {
            return Err(format!("the actor failed after {done} steps: {status}").into());
        }
        kills += 1;
        // What it had done of the next step, if anything, is told by the pool.
        done = Life::resume(dir, seed, 1, done)?.steps();
    }
    judge(dir)?;
    Ok(kills)
}

fn judge(dir: &Path) -> Result<()> {
    let Some(zdb) = std::env::var_os("ZDB") else { return Ok(()) };
    for what in ["-bcc", "-d"] {
        let out =
            Command::new(&zdb).args(["-e", "-p"]).arg(dir).args([what, sim::soak::Model::POOL]).output()?;
        let text = String::from_utf8_lossy(&out.stdout);
        if !out.status.success() || what == "-bcc" && !text.contains("No leaks") {
            return Err(format!("zdb {what}: {text}{}", String::from_utf8_lossy(&out.stderr)).into());
        }
    }
    Ok(())
}
