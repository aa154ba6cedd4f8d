//! The soak at length.
//!
//! | command | what it does |
//! |---|---|
//! | `soak MINUTES [SEED]` | lives of changing shape and seed, with kills |
//! | `soak life SHAPE SEED DIR` | one life, in a directory that is kept |
//! | `soak plan SHAPE SEED` | prints the steps of a life |
//! | `soak act DIR SHAPE SEED STEPS UNTIL WRITES` | the actor: continues after STEPS steps |
//! | `soak finish DIR SHAPE SEED` | removes all faults of a pool at the end of its life |
//!
//! The seed of a life also determines whether it has a second pool ([`Second`]). `SOAK_OF` names
//! one kind of lives: `one`, `ample` or `scarce`. The actor prints the number of each step done. In
//! the step UNTIL, its power fails after WRITES writes, if WRITES is not 0.
//!
//! An actor in a process of its own lives each life. It is killed at random, and a new actor
//! continues from the pool that it left. After each kill the pool is compared with the model. At
//! the end of a life OpenZFS's `zdb` checks the pool, if `ZDB` names it: no leak, no bad checksum.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "it is run by hand, and tells what it found")]

use sim::crash::SplitMix;
use sim::soak::{Faults, Life, Model, Op, Second, Shape, Terms, plan};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// Steps of a life.
const STEPS: u64 = 600;
/// The most steps between two kills.
const BETWEEN: u64 = 80;
/// The most writes of a step before the power fails.
const MOST_WRITES: u64 = 500;
/// I/O threads of an actor.
const WORKERS: usize = 2;
/// How long one wait for the next step of an actor takes.
const PATIENCE: Duration = Duration::from_secs(30);
/// After so many waits without a step, the actor hangs.
///
/// If the machine stops both processes together, however long, that counts as one wait.
const WAITS: u32 = 10;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let done = match words[..] {
        ["act", dir, shape, seed, steps, until, writes] => act(dir, shape, seed, (steps, until, writes)),
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
    let seed = seed.parse()?;
    let second = match std::env::var("SOAK_OF").as_deref() {
        Ok("one") => None,
        Ok("ample") => Some(Second::Ample),
        Ok("scarce") => Some(Second::Scarce),
        Ok(other) => return Err(format!("SOAK_OF={other}: there are no such lives").into()),
        Err(_) => [None, Some(Second::Ample), None, Some(Second::Scarce)][(seed % 4) as usize],
    };
    Ok(Terms { shape, seed, faults: Faults::All, streams: true, second })
}

fn act(dir: &str, shape: &str, seed: &str, (steps, until, writes): (&str, &str, &str)) -> Result<()> {
    let (until, writes): (u64, u64) = (until.parse()?, writes.parse()?);
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
            report(&life);
            return life.export();
        }
        if life.steps() == until && writes > 0 {
            report(&life);
            life.crash(writes);
            std::process::abort();
        }
        life.step()?;
    }
}

/// Prints what happened to receives that no plan says.
fn report(life: &Life) {
    for (what, count) in life.happened() {
        eprintln!("{count} receives: {what}");
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

/// How often each kind of fault or operation hit a device, and how many streams there were.
type Befell = BTreeMap<&'static str, u64>;

fn count(befell: &mut Befell, terms: Terms) {
    for op in plan(terms, STEPS) {
        let op = if let Op::Second(op) = op { *op } else { op };
        let word = match &op {
            Op::Device(op) => op.word(),
            Op::Receive(t) if t.base.is_some() => "increments",
            Op::Receive(_) => "whole streams",
            Op::Break(..) => "streams that break off",
            Op::Cramped(..) => "streams into a full pool",
            Op::Resume(_) => "resumed streams",
            Op::GiveUp(_) => "streams given up",
            _ => continue,
        };
        *befell.entry(word).or_default() += 1;
    }
}

fn words(befell: &Befell) -> String {
    let all: Vec<String> = befell.iter().map(|(word, count)| format!("{word} {count}")).collect();
    format!("devices and streams: {}", all.join(", "))
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
        count(&mut befell, terms(&shape.to_string(), &seed.to_string())?);
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

/// Reads the output of an actor to its end, and kills the actor after step `until`.
///
/// Returns the number of steps that it has done.
fn hear(mut child: Child, mut done: u64, until: u64) -> Result<u64> {
    let told = child.stdout.take().ok_or("an actor's words are heard")?;
    let (say, heard) = mpsc::channel();
    // Read to the end of the output: the actor may have acknowledged more steps before it died.
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

/// Lives one life. Returns the number of kills.
fn live(dir: &Path, shape: usize, seed: u64) -> Result<u64> {
    let mut dice = SplitMix(seed);
    let terms = terms(&shape.to_string(), &seed.to_string())?;
    let (mut done, mut kills) = (0, 0);
    loop {
        let until = done + 1 + dice.below(BETWEEN);
        // The actor is killed, or its power fails.
        let writes = if dice.below(2) == 0 { 0 } else { 1 + dice.below(MOST_WRITES) };
        let when = [done, until, writes].map(|n| n.to_string());
        let child = actor(&["act"], dir, shape, seed)?.args(when).stdout(Stdio::piped()).spawn()?;
        let until = if writes == 0 { until } else { u64::MAX };
        done = hear(child, done, until)?;
        if done >= STEPS {
            break;
        }
        kills += 1;
        // The pool shows whether the actor had done the next step.
        done = Life::resume(dir, terms, 1, done)?.steps();
    }
    // First with the faults of its devices, then without.
    judge(dir, terms)?;
    let finished = actor(&["finish"], dir, shape, seed)?.status()?;
    if !finished.success() {
        return Err(format!("in the end: {finished}").into());
    }
    judge(dir, terms)?;
    Ok(kills)
}

fn judge(dir: &Path, terms: Terms) -> Result<()> {
    let Some(zdb) = std::env::var_os("ZDB") else { return Ok(()) };
    let mut pools = vec![(dir.to_owned(), Model::POOL)];
    if terms.second.is_some() {
        pools.push((dir.join(Life::SECOND), Model::SECOND));
    }
    for (dir, pool) in pools {
        for what in ["-bcc", "-d"] {
            let out = Command::new(&zdb).args(["-e", "-p"]).arg(&dir).args([what, pool]).output()?;
            let text = String::from_utf8_lossy(&out.stdout);
            if !out.status.success() || what == "-bcc" && !text.contains("No leaks") {
                return Err(format!("zdb {what}: {text}{}", String::from_utf8_lossy(&out.stderr)).into());
            }
        }
    }
    Ok(())
}
