//! `poolhouse bench`: how long thousands of file systems take to import, mount, unmount and export.
//!
//! # Theory
//! It makes the pool of illumos bug 8115 in a file:
//!
//! * 2 groups of 100 containers;
//! * 2 timeflows in each container;
//! * 5 leaves in each timeflow, each with a file of 1 MiB.
//!
//! With the pool's own these are 2,603 file systems. Then it imports, loads, mounts, unmounts and
//! exports the pool, with one thread and with many. The devices delay each read by a given time,
//! with several reads in flight, because mounting is slow when reads wait one after another.
//!
//! Each run is a process of its own, so that no cache is warm and the memory is its own. It does
//! what the daemon does for the commands, mounts included.
//!
//! The memory of a mount is measured after an idle period. Until then the allocator keeps memory of
//! threads that have ended.
//!
//! # See
//! illumos bug 8115; OpenZFS `mount_tp_nthr`, `ZFS_SERIAL_MOUNT`.

mod once;
mod tree;

pub use once::{Case, Took, once};
pub use tree::{POOL, Shape, make, names};

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::str::FromStr;

use cli::json::{Json, Object};
use cli::manual::BENCH;
use console::Out;
use console::getopt::{Found, Getopt, Opt};

/// What follows the line that says how it is called.
const USAGE: &str = "\
Makes a pool of 2,603 file systems in DIR (that of temporary files), imports it, mounts them, and takes all of it down
again, timing each phase; by one thread and by many.

    -g    groups of 1,301 file systems (2)
    -i    seconds of idleness before memory is measured (12)
    -j    print JSON
    -l    what a read takes, in milliseconds (0,5)
    -n    rounds; medians are printed (1)
    -q    reads that the device does at a time (64)
    -S    leave out the runs by one thread
    -t    threads of the others (the daemon's own number)
";

/// Seconds after which the allocator has returned unused memory.
pub const IDLE_S: u64 = 12;

/// The usage text.
fn help() -> String {
    format!("usage: {BENCH}\n\n{USAGE}")
}

/// The parsed command line.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Plan {
    shape: Shape,
    json: bool,
    latencies_ms: Vec<u64>,
    rounds: usize,
    in_flight: u32,
    idle_s: u64,
    serial: bool,
    threads: u32,
    dir: PathBuf,
}

/// Runs `poolhouse bench`. Returns the exit code.
pub fn run(words: &[String], out: &mut Out, err: &mut Out) -> i32 {
    let done = match words.split_first() {
        Some((word, rest)) if word == "mount" => match read(rest) {
            Ok(plan) => bench(&plan, out),
            Err(why) => return usage(err, &why),
        },
        Some((word, rest)) if word == "mount-once" => match Case::from_words(rest) {
            Some((case, dir)) => once(&dir, &case).map(|took| out.put(&took.to_words())),
            None => return usage(err, "invalid case"),
        },
        Some((word, _)) if word == "--help" || word == "-h" => {
            out.put(&help());
            return 0;
        }
        Some((word, _)) => return usage(err, &format!("unknown benchmark '{word}'")),
        None => return usage(err, "missing benchmark"),
    };
    match done {
        Ok(()) => 0,
        Err(error) => {
            writeln!(err, "cannot measure: {}", api::plain(&format!("{error:#}")));
            1
        }
    }
}

fn usage(err: &mut Out, why: &str) -> i32 {
    writeln!(err, "{why}");
    err.put(&help());
    2
}

/// The number that an option has as its argument, which must not be below `least`.
fn number<N: FromStr + PartialOrd + From<u8>>(option: char, arg: &str, least: u8) -> Result<N, String> {
    let number = arg.parse().ok().filter(|n| *n >= N::from(least));
    number.ok_or_else(|| format!("invalid value '{arg}' of option '-{option}'"))
}

/// Reads the command line. The error says what is wrong with it.
fn read(words: &[String]) -> Result<Plan, String> {
    let mut plan = Plan {
        shape: Shape::default(),
        json: false,
        latencies_ms: vec![0, 5],
        rounds: 1,
        in_flight: 64,
        idle_s: IDLE_S,
        serial: true,
        threads: server::mounts::threads::mount_threads(),
        dir: std::env::temp_dir(),
    };
    let mut getopt = Getopt::new(words, ":g:i:jl:n:q:St:", &[]);
    for found in getopt.by_ref() {
        match found {
            Found::Is(Opt::Short('j'), _) => plan.json = true,
            Found::Is(Opt::Short('S'), _) => plan.serial = false,
            Found::Is(Opt::Short('i'), arg) => plan.idle_s = number('i', &arg, 0)?,
            Found::Is(Opt::Short('g'), arg) => plan.shape.groups = number('g', &arg, 1)?,
            Found::Is(Opt::Short('l'), arg) => {
                plan.latencies_ms = arg.split(',').map(|ms| number('l', ms, 0)).collect::<Result<_, _>>()?;
            }
            Found::Is(Opt::Short('n'), arg) => plan.rounds = number('n', &arg, 1)?,
            Found::Is(Opt::Short('q'), arg) => plan.in_flight = number('q', &arg, 1)?,
            Found::Is(_, arg) => plan.threads = number('t', &arg, 1)?,
            Found::Invalid(c) => return Err(format!("invalid option '{c}'")),
            Found::Missing(c) => return Err(format!("missing argument for '{c}' option")),
        }
    }
    let mut operands = getopt.operands().into_iter();
    if let Some(dir) = operands.next() {
        plan.dir = PathBuf::from(dir);
    }
    match operands.next() {
        None => Ok(plan),
        Some(_) => Err("too many arguments".to_owned()),
    }
}

/// The measurements of one case.
struct Row {
    case: Case,
    took: Took,
}

fn bench(plan: &Plan, out: &mut Out) -> anyhow::Result<()> {
    let room = tempfile::Builder::new().prefix("poolhouse-bench-").tempdir_in(&plan.dir)?;
    make(room.path(), plan.shape)?;
    let mut rows = Vec::new();
    for &ms in &plan.latencies_ms {
        let serial = plan.serial.then_some(1);
        for threads in serial.into_iter().chain([plan.threads]) {
            let case =
                Case { latency_us: ms * 1000, in_flight: plan.in_flight, threads, idle_s: plan.idle_s };
            let mut rounds = Vec::new();
            for _ in 0..plan.rounds {
                rounds.push(by_itself(room.path(), &case)?);
            }
            rows.push(Row { case, took: Took::median(&rounds) });
        }
    }
    if plan.json {
        writeln!(out, "{}", to_json(plan, &rows).line());
    } else {
        table(plan, &rows, out);
    }
    Ok(())
}

/// Measures in a process of its own.
fn by_itself(room: &Path, case: &Case) -> anyhow::Result<Took> {
    let words: Vec<OsString> =
        ["bench".into(), "mount-once".into()].into_iter().chain(case.to_words(room)).collect();
    let done = Command::new("/proc/self/exe").args(words).stdin(Stdio::null()).output()?;
    anyhow::ensure!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr).trim());
    Took::from_words(&String::from_utf8_lossy(&done.stdout))
}

/// The run with one thread that a run is compared with.
fn serial<'a>(rows: &'a [Row], row: &Row) -> Option<&'a Row> {
    let same = |case: &Case| case.latency_us == row.case.latency_us;
    rows.iter().find(|other| other.case.threads == 1 && row.case.threads > 1 && same(&other.case))
}

fn times(other: f64, own: f64) -> String {
    if own > 0.0 { format!("{:.1}x", other / own) } else { "-".into() }
}

fn table(plan: &Plan, rows: &[Row], out: &mut Out) {
    let count = plan.shape.file_systems();
    writeln!(out, "{count} file systems; seconds; a device that does {} reads at a time", plan.in_flight);
    writeln!(
        out,
        "{:>5} {:>7} {:>8} {:>8} {:>8} {:>9} {:>8} {:>9} {:>9} {:>8} {:>8} {:>9} {:>6} {:>6}",
        "READ",
        "THREADS",
        "IMPORT",
        "LOAD",
        "MOUNT",
        "TOGETHER",
        "SPEEDUP",
        "OF MOUNT",
        "LOAD WARM",
        "UNMOUNT",
        "EXPORT",
        "KIB/MOUNT",
        "CACHED",
        "KERNEL"
    );
    for row in rows {
        let (case, took) = (&row.case, &row.took);
        let beside = serial(rows, row);
        let of = |f: fn(&Took) -> f64| beside.map_or("-".into(), |one| times(f(&one.took), f(took)));
        writeln!(
            out,
            "{:>3}ms {:>7} {:>8.3} {:>8.3} {:>8.3} {:>9.3} {:>8} {:>9} {:>9.3} {:>8.3} {:>8.3} {:>9.1} {:>6.1} {:>6.1}",
            case.latency_us / 1000,
            case.threads,
            took.import_s,
            took.load_s,
            took.mount_s,
            took.together_s,
            of(|t| t.together_s),
            of(|t| t.mount_s),
            took.load_warm_s,
            took.unmount_s,
            took.export_s,
            took.kib_per_mount,
            took.cached_kib_per_mount,
            took.kernel_kib_per_mount,
        );
    }
}

fn to_json(plan: &Plan, rows: &[Row]) -> Object {
    let mut all = Object::new();
    all.number("file_systems", plan.shape.file_systems());
    all.number("reads_in_flight", plan.in_flight.into());
    all.number("rounds", plan.rounds as u64);
    let mut runs = Object::new();
    for row in rows {
        let mut run = Object::new();
        run.number("read_us", row.case.latency_us);
        run.number("threads", row.case.threads.into());
        for (name, value) in row.took.named() {
            run.put(name, Json::Text(format!("{value:.4}")));
        }
        if let Some(one) = serial(rows, row) {
            run.text("speedup_together", times(one.took.together_s, row.took.together_s));
            run.text("speedup_mount", times(one.took.mount_s, row.took.mount_s));
        }
        runs.object(format!("{}us-{}", row.case.latency_us, row.case.threads), run);
    }
    all.object("runs", runs);
    all
}

#[cfg(test)]
mod tests;
