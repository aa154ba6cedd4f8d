//! What it costs to count operations, and to note waits (`poolhouse-bench observe`).
//!
//! # Theory
//! A difference of a percent is smaller than what the speed of a machine varies by from minute to
//! minute. So one process serves the same file system at two mountpoints: `plain` counts nothing,
//! `counted` does. A piece of work runs in the order plain, counted, counted, plain, so that a
//! machine that becomes faster or slower at a steady rate favours neither. Each such group gives a
//! ratio. The report has the median of the ratios, and an interval in which the true median lies
//! with a probability of at least 90 %.
//!
//! The client is a thread of the same process. So the CPU time is that of client, kernel and server
//! together, as a machine that does both would see it.

use crate::images::{Geometry, Images, POOL};
use crate::making::pattern;
use crate::measure::{here, median, round};
use anyhow::{Context, Result, anyhow, ensure};
use fuse::tree::Statfs;
use fuse::{Detach, Mount, Workers};
use observe::clients;
use observe::event::{self, OP_DONE, ZilCommit};
use observe::ops::{Ended, Frontend, Op, OpTable};
use observe::trace::{self, Buckets, Plan, Source, begin};
use observe::work::{self, Job, Kind, Wait};
use poolhouse::Pool;
use poolhouse::dsl::ops::create::Create;
use poolhouse::zpl::{NewFileSystem, Policies, Policy};
use rustix::fs::{AtFlags, OFlags, StatxFlags, statx};
use serde_json::{Value, json};
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

/// Bytes of the image of the pool.
const IMAGE: u64 = 1 << 30;
/// Bytes of the file that is read, which stays in the cache.
const FILE: u64 = 16 << 20;
/// Bytes of one read.
const READ: u64 = 8192;
/// Operations that one thread counts to find what one takes.
const COUNTS: u32 = 4_000_000;

/// A piece of work, below a directory of a mount. `at` is another number each time.
struct Piece {
    name: &'static str,
    what: &'static str,
    /// Operations of a piece, as a user counts them.
    ops: u64,
    run: fn(dir: &Path, at: u64, ops: u64) -> Result<()>,
}

const PIECES: [Piece; 4] = [
    Piece {
        name: "reads",
        what: "reads of 8 KiB past the page cache, from the ARC",
        ops: 10_000,
        run: reads,
    },
    Piece { name: "names", what: "files created and removed", ops: 1_000, run: names },
    Piece { name: "attributes", what: "files whose attributes are read", ops: 5_000, run: attributes },
    Piece { name: "fsync", what: "writes of 4 KiB, each durable", ops: 500, run: fsyncs },
];

fn reads(dir: &Path, at: u64, ops: u64) -> Result<()> {
    let flags = i32::try_from(OFlags::DIRECT.bits())?;
    let file = File::options().read(true).custom_flags(flags).open(dir.join("file"))?;
    let mut buf = vec![0; READ as usize];
    for n in at..at + ops {
        // Neighbours are far from each other, so nothing is read ahead.
        let block = n.wrapping_mul(0x9e37_79b9) % (FILE / READ);
        file.read_exact_at(&mut buf, block * READ)?;
    }
    Ok(())
}

fn names(dir: &Path, at: u64, ops: u64) -> Result<()> {
    for n in at..at + ops {
        let name = dir.join(format!("new-{n}"));
        File::create_new(&name)?;
        fs::remove_file(&name)?;
    }
    Ok(())
}

fn attributes(dir: &Path, at: u64, ops: u64) -> Result<()> {
    let file = File::open(dir.join("file"))?;
    // Without this flag, the kernel would answer from its cache.
    let flags = AtFlags::STATX_FORCE_SYNC | AtFlags::EMPTY_PATH;
    for _ in at..at + ops {
        statx(&file, "", flags, StatxFlags::ALL)?;
    }
    Ok(())
}

fn fsyncs(dir: &Path, at: u64, ops: u64) -> Result<()> {
    let file = File::options().create(true).truncate(false).write(true).open(dir.join("durable"))?;
    for n in at..at + ops {
        file.write_all_at(&[n as u8; 4096], n % 64 * 4096)?;
        file.sync_data()?;
    }
    Ok(())
}

/// The pool with its two mounts.
struct Stand {
    pool: Pool,
    mounts: Vec<(Mount, tempfile::TempDir)>,
    _images: Images,
}

impl Stand {
    fn new(scratch: &Path) -> Result<Self> {
        let images = Images::new(scratch, "observe", 1, IMAGE)?;
        let pool = Pool::with_spa(images.pool(&Geometry::default())?, None)?;
        let live = pool.spa().writer().context("a new pool is open for writing")?;
        let (name, contents) = (format!("{POOL}/fs"), Arc::new(NewFileSystem::new((1_700_000_000, 0))));
        let props = Vec::new();
        let create = Create { name: name.clone(), contents, props, crypt: None, enforce_limits: false };
        live.run(Box::new(create))?;
        let dataset = pool.dsl().dataset(&name)?;
        let fs = pool.open_for_writing(&dataset, Policies::new(Policy::default()))?;
        let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let workers = Arc::new(Workers::start("observe", threads)?);
        let mut mounts = Vec::new();
        for is_counted in [false, true] {
            let sizes = Statfs { unit: 512, transfer: 131_072, name_max: 255, ..Statfs::default() };
            let shown = fuse::dataset::Shown { name: name.clone(), posix_acl: false, xattrs: true, sizes };
            let mut tree = fuse::dataset::Dataset::new(fs.clone(), shown);
            if is_counted {
                tree = tree.with_ops(pool.ops().dataset((dataset.object().0, 0)));
            }
            let target = tempfile::tempdir()?;
            let options = fuse::Options { source: name.clone(), ..fuse::Options::default() };
            mounts.push((Mount::new(&workers, Arc::new(tree), target.path(), &options)?, target));
        }
        let stand = Self { pool, mounts, _images: images };
        let data = pattern();
        fs::write(stand.dir(false).join("file"), &data[..usize::try_from(FILE)?])?;
        File::open(stand.dir(false).join("file"))?.sync_all()?;
        Ok(stand)
    }

    fn dir(&self, is_counted: bool) -> &Path {
        self.mounts[usize::from(is_counted)].1.path()
    }

    /// The operations that were counted so far.
    fn counted(&self) -> u64 {
        self.pool.ops().ops().iter().map(|op| op.times.count()).sum()
    }

    /// Unmounts and exports.
    fn end(self) -> Result<()> {
        self.mounts.iter().try_for_each(|(mount, _)| mount.unmount(Detach::Lazy))?;
        Ok(self.pool.export()?)
    }
}

/// The median of values, and an interval in which that of their source lies with a probability of
/// at least 90 %. Sorts the values.
///
/// A value is below the true median as often as a coin shows heads, so the bounds are values of
/// certain ranks. Less than five values are too few: then they are the least and the greatest.
fn interval(values: &mut [f64]) -> (f64, f64, f64) {
    let (middle, n) = (median(values), values.len());
    // How probable it is that exactly so many values are below the median, and at most so many.
    let (mut exactly, mut at_most, mut rank) = (0.5_f64.powf(n as f64), 0.0, 0);
    while at_most + exactly <= 0.05 {
        at_most += exactly;
        exactly *= (n - rank) as f64 / (rank + 1) as f64;
        rank += 1;
    }
    let low = rank.saturating_sub(1);
    (middle, values[low], values[n - 1 - low])
}

fn share(mut ratios: Vec<f64>) -> Value {
    let (middle, low, high) = interval(&mut ratios);
    let percent = |ratio: f64| round((ratio - 1.0) * 100.0);
    json!({ "percent": percent(middle), "low": percent(low), "high": percent(high) })
}

fn piece(stand: &Stand, piece: &Piece, groups: usize) -> Result<Value> {
    let mut at = 0;
    let mut run = |is_counted: bool| {
        at += piece.ops;
        here(|| (piece.run)(stand.dir(is_counted), at, piece.ops)).map(|((), took)| took)
    };
    // The first run of each warms the caches.
    run(false)?;
    run(true)?;
    let before = stand.counted();
    let (mut cpu, mut wall, mut plain_us) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..groups {
        let [first, second, third, fourth] = [run(false)?, run(true)?, run(true)?, run(false)?];
        let plain = (first.cpu_s + fourth.cpu_s, first.wall_s + fourth.wall_s);
        cpu.push((second.cpu_s + third.cpu_s) / plain.0);
        wall.push((second.wall_s + third.wall_s) / plain.1);
        plain_us.push(plain.0 / 2.0 / piece.ops as f64 * 1e6);
    }
    let counted = stand.counted() - before;
    ensure!(counted >= 2 * groups as u64 * piece.ops, "{}: only {counted} were counted", piece.name);
    Ok(json!({
        "work": piece.name,
        "what": piece.what,
        "requests_per_op": round(counted as f64 / (2 * groups) as f64 / piece.ops as f64),
        "plain_cpu_us": round(median(&mut plain_us)),
        "cpu": share(cpu),
        "wall": share(wall),
    }))
}

/// Nanoseconds that one count takes, and its part for the client; that a job takes around an
/// operation without a wait, and that one wait takes, by so many threads at once. Also what an
/// event takes that nothing reads, and how much more a count takes with a session of `poolhouse
/// trace` that takes all.
fn single_ns(threads: usize) -> Result<Value> {
    let table = Arc::new(OpTable::default());
    let of = table.dataset((1, 1));
    let count = || {
        let began = Instant::now();
        of.count(Frontend::Fuse, &Ended::now(Op::Read, began, READ, None), String::new);
    };
    let (kind, began) = (Kind::Request(Frontend::Fuse, Op::Read), Instant::now());
    let ended = Ended::now(Op::Read, began, READ, None);
    let client = || clients::count(&ended);
    let job = || drop(work::begin(Job { kind, place: 1, node: 1, pid: 1, uid: 1, client: 0, began }));
    let wait = || drop(work::wait(Wait::Read, 1));
    let event = || event::zil_commit(|| ZilCommit { ns: 1 });
    let alone = each_ns(threads, count);
    let session = begin(plan()).map_err(|why| anyhow!("no session: {why}"))?;
    let before = trace::COST.get();
    trace::COST.set(1000);
    let traced = each_ns(threads, || {
        let _running =
            work::begin(Job { kind, place: 1, node: 1, pid: std::process::id(), uid: 1, client: 0, began });
        count();
    });
    trace::COST.set(before);
    session.end();
    let job = each_ns(threads, job);
    Ok(json!({
        "threads": threads,
        "count_ns": round(alone),
        "client_ns": round(each_ns(threads, client)),
        "job_ns": round(job),
        "wait_ns": round(each_ns(threads, wait)),
        "event_ns": round(each_ns(threads, event)),
        "session_ns": round(traced - alone - job),
    }))
}

/// A session that counts operations by process, operation and errno.
fn plan() -> Plan {
    let keys = ["process", "op", "errno"].iter().filter_map(|name| Source::named(&OP_DONE, name)).collect();
    let (conditions, sums, buckets) = (Vec::new(), Vec::new(), Buckets::None);
    Plan { event: &OP_DONE, conditions, keys, measure: None, buckets, sums, is_raw: false }
}

/// Nanoseconds that this takes, by so many threads at once.
fn each_ns(threads: usize, work: impl Fn() + Sync) -> f64 {
    work();
    let rounds = (0..5).map(|_| {
        let began = Instant::now();
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| (0..COUNTS).for_each(|_| work()));
            }
        });
        began.elapsed().as_secs_f64() / f64::from(COUNTS) * 1e9
    });
    median(&mut rounds.collect::<Vec<_>>())
}

/// Measures with so many groups of each piece of work, on a new pool in the directory `scratch`.
///
/// # Errors
/// The pool can't be made or mounted, an operation failed, or one was not counted.
pub fn run(scratch: &Path, groups: usize) -> Result<Value> {
    let stand = Stand::new(scratch)?;
    let works = PIECES.iter().map(|of| piece(&stand, of, groups)).collect::<Result<Vec<_>>>()?;
    stand.end()?;
    Ok(json!({ "groups": groups, "works": works, "single": [single_ns(1)?, single_ns(2)?] }))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the bounds have the ranks that the binomial distribution gives: 6 and 15 of 20 values
    /// (with 95.9 %; 7 and 14 would have 88.5 %).
    #[test]
    fn ranks() {
        let mut values: Vec<f64> = (1..=20).rev().map(f64::from).collect();
        assert_eq!(interval(&mut values), (10.5, 6.0, 15.0));
        assert_eq!(interval(&mut [3.0, 1.0, 2.0]), (2.0, 1.0, 3.0));
    }
}
