//! The calls that a program makes to a mounted file system, whatever serves it.
//!
//! # Theory
//! A process of its own drives a [`Group`] of phases. The process knows only a directory, so every
//! file system gets the same calls from the same code. All paths are relative to the working
//! directory, so a deep mountpoint costs nothing.
//!
//! A phase is timed from its first call to its last. The wait for delayed writes is not part of
//! that time. It is shown beside it (`sync_s`).
//!
//! CPU time is that of this process and of the process that serves the mount. It does not include
//! the threads that the kernel uses for its own file systems.

mod names;
mod stream;
mod sync;
mod tree;

use crate::measure::{median, process_cpu, round};
use anyhow::{Context, Result};
use rustix::fs::{Advice, CWD, Mode, OFlags};
use serde_json::{Map, Value, json};
use std::fs::File;
use std::path::Path;
use std::time::{Duration, Instant};

/// How long a phase without a fixed end takes.
const PHASE: Duration = Duration::from_millis(1500);

/// Phases that belong together.
#[derive(Debug, Clone, Copy)]
pub struct Group {
    /// The name of the workload.
    pub name: &'static str,
    /// A line that describes it.
    pub what: &'static str,
    does: fn(&mut Stage) -> Result<()>,
}

impl Group {
    /// All groups.
    pub const ALL: &[Group] = &[
        Group {
            name: "mount-stream",
            what: "a large file from start to end: written, read from the kernel's cache, and read from who serves it",
            does: stream::stream,
        },
        Group {
            name: "mount-random",
            what: "8 KiB at random places of a file in memory: from the kernel's cache, and past it with 1 and 4 threads",
            does: stream::random,
        },
        Group {
            name: "mount-fsync",
            what: "8 KiB written and made durable, by 1, 8 and 64 threads in a file each",
            does: sync::fsync,
        },
        Group {
            name: "mount-names",
            what: "100,000 files in one directory: made, looked at, renamed, removed",
            does: names::names,
        },
        Group {
            name: "mount-tree",
            what: "20,000 small files in 400 directories: made, read, removed",
            does: tree::tree,
        },
    ];

    /// The group of that name.
    pub fn by_name(name: &str) -> Option<Group> {
        Group::ALL.iter().find(|g| g.name == name).copied()
    }

    /// Drives the group in a new directory in `dir`, and returns the measured phases.
    ///
    /// `server` is the process that serves the file system. The new directory is removed
    /// afterwards.
    ///
    /// # Errors
    /// A call on the file system failed, the directory can't be created or removed, or the server
    /// ended.
    pub fn drive(self, dir: &Path, server: Option<u32>) -> Result<Value> {
        let room = dir.join(format!("drive-{}", std::process::id()));
        std::fs::create_dir(&room).with_context(|| format!("make {}", room.display()))?;
        std::env::set_current_dir(&room)?;
        let mut stage = Stage { server, phases: Vec::new() };
        let done = (self.does)(&mut stage);
        std::env::set_current_dir(dir)?;
        std::fs::remove_dir_all(&room).with_context(|| format!("remove {}", room.display()))?;
        sync_all(dir)?;
        done?;
        Ok(json!({ "phases": stage.phases }))
    }
}

/// The work of a phase.
#[derive(Debug, Default)]
struct Done {
    /// Number of calls, or of what the phase counts.
    ops: u64,
    /// Bytes read or written; 0 if the phase measures no data.
    bytes: u64,
    /// Seconds of each call, if the phase measures them.
    each: Vec<f64>,
}

/// The measurement of phases.
struct Stage {
    server: Option<u32>,
    phases: Vec<Value>,
}

impl Stage {
    /// Runs `work` and records its times.
    fn phase(&mut self, name: &str, work: impl FnOnce() -> Result<Done>) -> Result<()> {
        let before = (Instant::now(), process_cpu(), self.server_cpu()?);
        let mut done = work().with_context(|| name.to_owned())?;
        let (wall_s, client_s) = (before.0.elapsed().as_secs_f64(), process_cpu() - before.1);
        let mut out = Map::new();
        out.insert("phase".into(), name.into());
        out.insert("ops".into(), done.ops.into());
        out.insert("wall_s".into(), json!(wall_s));
        out.insert("client_cpu_s".into(), json!(client_s));
        out.insert("server_cpu_s".into(), json!(self.server_cpu()? - before.2));
        if done.bytes > 0 {
            out.insert("bytes".into(), done.bytes.into());
        }
        if !done.each.is_empty() {
            out.insert("p50_us".into(), json!(round(median(&mut done.each) * 1e6)));
            out.insert("p99_us".into(), json!(round(done.each[done.each.len() * 99 / 100] * 1e6)));
        }
        self.phases.push(Value::Object(out));
        Ok(())
    }

    /// Waits until all changes are on the devices, and adds the time to the last phase.
    fn settle(&mut self) -> Result<()> {
        let (start, cpu) = (Instant::now(), self.server_cpu()?);
        sync_all(Path::new("."))?;
        let cpu = self.server_cpu()? - cpu;
        if let Some(last) = self.phases.last_mut() {
            last["sync_s"] = json!(start.elapsed().as_secs_f64());
            last["server_cpu_s"] = json!(last["server_cpu_s"].as_f64().unwrap_or_default() + cpu);
        }
        Ok(())
    }

    /// CPU seconds of the process that serves the file system, in steps of 10 ms.
    fn server_cpu(&self) -> Result<f64> {
        server_cpu(self.server)
    }
}

/// CPU seconds of a process, in steps of 10 ms. 0 if the kernel serves the file system.
pub(crate) fn server_cpu(server: Option<u32>) -> Result<f64> {
    const TICKS: f64 = 100.0;
    let Some(pid) = server else { return Ok(0.0) };
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).context("the server is gone")?;
    let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let ticks = fields.split_whitespace().skip(11).take(2).map(str::parse::<f64>);
    Ok(ticks.sum::<Result<f64, _>>().context("/proc/PID/stat")? / TICKS)
}

/// Waits until all changes in the file system are durable.
///
/// On a FUSE mount `syncfs` reaches only the kernel's pages. So the directory is synced as well.
fn sync_all(dir: &Path) -> Result<()> {
    let dir = File::open(dir)?;
    rustix::fs::syncfs(&dir)?;
    Ok(dir.sync_all()?)
}

/// Drops the file's pages from the kernel's page cache, so that reads reach the server again.
fn forget(file: &File) -> Result<()> {
    Ok(rustix::fs::fadvise(file, 0, None, Advice::DontNeed)?)
}

/// Drops unused names and attributes from the kernel's cache. Returns `false` if that needs root.
fn forget_names() -> bool {
    std::fs::write("/proc/sys/vm/drop_caches", "2").is_ok()
}

/// Opens a file for reading and writing, and creates it if needed. `direct` bypasses the page
/// cache.
fn open(name: &str, direct: bool) -> Result<File> {
    let mut flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC;
    flags.set(OFlags::DIRECT, direct);
    Ok(rustix::fs::openat(CWD, name, flags, Mode::from_raw_mode(0o644))?.into())
}

/// A small random number generator (xorshift), with the same numbers in each run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

/// Runs `work` in `jobs` threads at once, until the time of a phase is over.
///
/// Each thread gets its number and the time when it must stop.
fn together(jobs: u64, work: impl Fn(u64, Instant) -> Result<Done> + Sync) -> Result<Done> {
    let until = Instant::now() + PHASE;
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..jobs)
            .map(|job| {
                scope.spawn({
                    let work = &work;
                    move || work(job, until)
                })
            })
            .collect();
        let mut all = Done::default();
        for thread in threads {
            let done = thread.join().expect("a thread that works here returns its errors")?;
            all.ops += done.ops;
            all.bytes += done.bytes;
            all.each.extend(done.each);
        }
        Ok(all)
    })
}
