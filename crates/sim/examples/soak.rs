//! The soak at length.
//!
//! | command | what it does |
//! |---|---|
//! | `soak MINUTES [SEED]` | lives of changing shape and seed, with kills |
//! | `soak life SHAPE SEED DIR` | one life, in a directory that is kept |
//! | `soak plan SHAPE SEED` | prints the steps of a life |
//! | `soak act DIR SHAPE SEED STEPS` | the actor: continues after STEPS steps, prints each done |
//! | `soak finish DIR SHAPE SEED` | removes all faults of a pool at the end of its life |
//!
//! An actor in a process of its own lives each life. It is killed at random, and a new actor
//! continues from the pool that it left. After each kill the pool is compared with the model. At
//! the end of a life OpenZFS's `zdb` checks the pool, if `ZDB` names it: no leak, no bad checksum.

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
/// The most steps between two kills.
const BETWEEN: u64 = 80;
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
    Ok(Terms { shape, seed: seed.parse()?, faults: Faults::All, streams: true })
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

/// How often each kind of fault or operation hit a device.
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
        count(&mut befell, Terms { shape: Shape::ALL[shape], seed, faults: Faults::All, streams: true });
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
        // The pool shows whether the actor had done the next step.
        done = Life::resume(
            dir,
            Terms { shape: Shape::ALL[shape], seed, faults: Faults::All, streams: true },
            1,
            done,
        )?
        .steps();
    }
    // First with the faults of its devices, then without.
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
