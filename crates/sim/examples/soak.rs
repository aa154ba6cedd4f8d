//! The soak at length: `soak MINUTES [SEED]`.
//!
//! Lives of changing shape and seed, by an actor in a process of its own that is killed now and then and goes on from what it left; after each
//! kill the pool is held to the model, and at a life's end, with `ZDB` set, OpenZFS's `zdb` is asked: no leak, no bad checksum.
//! `soak act DIR SHAPE SEED STEPS` is the actor: it goes on after so many steps, and prints the number of each step that it has done. `soak finish DIR SHAPE SEED` has all
//! devices of a pool that is at its life's end be well.
//! `soak life SHAPE SEED DIR` lives one life in a folder that stays, and `soak plan SHAPE SEED` tells its steps.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "it is run by hand, and tells what it found")]

use sim::crash::SplitMix;
use sim::soak::{Faults, Life, Op, Shape, Terms, plan};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// Steps of a life.
const STEPS: u64 = 600;
/// Most steps between two kills.
const BETWEEN: u64 = 80;
/// Threads of an actor.
const WORKERS: usize = 2;
/// How long an actor is waited for at a time.
const PATIENCE: Duration = Duration::from_secs(30);
/// An actor that has done nothing in so many of these waits hangs. Where both are stopped together, for however long, that is one wait.
const WAITS: u32 = 10;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let done = match words[..] {
        ["act", dir, shape, seed, steps] => act(dir, shape, seed, steps),
        ["finish", dir, shape, seed] => finish(dir, shape, seed),
        ["life", shape, seed, dir] => one(shape, seed, dir),
        ["plan", shape, seed] => tell(shape, seed),
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

fn terms(shape: &str, seed: &str) -> Result<Terms> {
    let shape = *Shape::ALL.get(shape.parse::<usize>()?).ok_or("there is no such shape")?;
    Ok(Terms { shape, seed: seed.parse()?, faults: Faults::All })
}

fn act(dir: &str, shape: &str, seed: &str, steps: &str) -> Result<()> {
    let (dir, terms) = (Path::new(dir), terms(shape, seed)?);
    let mut life = match steps.parse()? {
        0 => Life::begin(dir, terms, WORKERS)?,
        steps => Life::resume(dir, terms, WORKERS, steps)?,
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

fn finish(dir: &str, shape: &str, seed: &str) -> Result<()> {
    Life::resume(Path::new(dir), terms(shape, seed)?, WORKERS, STEPS)?.finish()
}

fn one(shape: &str, seed: &str, dir: &str) -> Result<()> {
    std::fs::create_dir_all(dir)?;
    let killed = live(Path::new(dir), shape.parse()?, seed.parse()?)?;
    println!("{STEPS} steps, {killed} kills, nothing wrong");
    let mut befell = Befell::new();
    count(&mut befell, terms(shape, seed)?);
    println!("{}", words(&befell));
    Ok(())
}

fn tell(shape: &str, seed: &str) -> Result<()> {
    for (step, op) in plan(terms(shape, seed)?, STEPS).into_iter().enumerate() {
        println!("{step} {op:?}");
    }
    Ok(())
}

/// How often what befell devices.
type Befell = BTreeMap<&'static str, u64>;

fn count(befell: &mut Befell, terms: Terms) {
    for op in plan(terms, STEPS) {
        if let Op::Device(op) = op {
            *befell.entry(op.word()).or_default() += 1;
        }
    }
}

fn words(befell: &Befell) -> String {
    let all: Vec<String> = befell.iter().map(|(word, count)| format!("{word} {count}")).collect();
    format!("devices: {}", all.join(", "))
}

fn soak(minutes: &str, seed: &str) -> Result<()> {
    let end = Instant::now() + Duration::from_secs(60 * minutes.parse::<u64>()?);
    let mut seed: u64 = seed.parse()?;
    let (mut lives, mut kills, mut steps) = (0u64, 0, 0);
    let mut befell = Befell::new();
    while Instant::now() < end {
        let shape = lives as usize % Shape::ALL.len();
        let dir = tempfile::tempdir()?;
        let killed = live(dir.path(), shape, seed)
            .map_err(|e| format!("{:?}, seed {seed}: {e}", Shape::ALL[shape]))?;
        count(&mut befell, Terms { shape: Shape::ALL[shape], seed, faults: Faults::All });
        lives += 1;
        kills += killed;
        steps += STEPS;
        println!("{:?}, seed {seed}: {STEPS} steps, {killed} kills", Shape::ALL[shape]);
        seed += 1;
    }
    println!("{lives} lives, {steps} steps, {kills} kills, nothing wrong");
    println!("{}", words(&befell));
    Ok(())
}

fn actor(words: &[&str], dir: &Path, shape: usize, seed: u64) -> Result<Command> {
    let mut actor = Command::new(std::env::current_exe()?);
    actor.args(words).arg(dir).args([shape.to_string(), seed.to_string()]);
    Ok(actor)
}

/// Hears an actor to the end, and kills it when it has done so many steps; how many it says that it has done.
fn hear(mut child: Child, mut done: u64, until: u64) -> Result<u64> {
    let told = child.stdout.take().ok_or("an actor's words are heard")?;
    let (say, heard) = mpsc::channel();
    // To the end: it may have said more before it died.
    let ear = std::thread::spawn(move || BufReader::new(told).lines().try_for_each(|line| say.send(line)));
    let mut killed = false;
    let mut waits = 0;
    loop {
        match heard.recv_timeout(PATIENCE) {
            Ok(line) => (done, waits) = (line?.parse()?, 0),
            Err(mpsc::RecvTimeoutError::Disconnected) => break,
            Err(mpsc::RecvTimeoutError::Timeout) if waits + 1 < WAITS => waits += 1,
            Err(mpsc::RecvTimeoutError::Timeout) => {
                let pid = child.id();
                return Err(format!("the actor {pid} hangs after {done} steps").into());
            }
        }
        if done >= until && done < STEPS && !killed {
            child.kill()?;
            killed = true;
        }
    }
    drop(ear);
    let status = child.wait()?;
    if done < STEPS && status.code().is_some() || done >= STEPS && !status.success() {
        return Err(format!("the actor failed after {done} steps: {status}").into());
    }
    Ok(done)
}

/// One life; how often it was killed.
fn live(dir: &Path, shape: usize, seed: u64) -> Result<u64> {
    let mut dice = SplitMix(seed);
    let (mut done, mut kills) = (0, 0);
    loop {
        let until = done + 1 + dice.below(BETWEEN);
        let child =
            actor(&["act"], dir, shape, seed)?.arg(done.to_string()).stdout(Stdio::piped()).spawn()?;
        done = hear(child, done, until)?;
        if done >= STEPS {
            break;
        }
        kills += 1;
        // What it had done of the next step, if anything, is told by the pool.
        done = Life::resume(dir, Terms { shape: Shape::ALL[shape], seed, faults: Faults::All }, 1, done)?
            .steps();
    }
    // As it is with what befell its devices, and then whole.
    judge(dir)?;
    let finished = actor(&["finish"], dir, shape, seed)?.status()?;
    if !finished.success() {
        return Err(format!("in the end: {finished}").into());
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
