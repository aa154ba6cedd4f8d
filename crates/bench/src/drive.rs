//! What a program does to a mounted file system, whichever it is.
//!
//! # Theory
//! A [`Group`] of phases is driven by a process of its own, which knows nothing but a directory, so that every file system is asked the same by the
//! same code. Everything is named relative to the working directory, so that a file system that is reached by a long way costs no more. A phase is timed
//! from its first call to its last; what it leaves to be written later is waited for outside of that time and shown beside it (`sync_s`).
//! CPU time is that of this process and of whoever serves the mount; what the kernel's own threads do for a file system of its own is in neither.

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

/// How long a phase without an end works.
const PHASE: Duration = Duration::from_millis(1500);

/// Phases that belong together.
#[derive(Debug, Clone, Copy)]
pub struct Group {
    /// Its name among the workloads.
    pub name: &'static str,
    /// What it does, in a line.
    pub what: &'static str,
    does: fn(&mut Stage) -> Result<()>,
}

impl Group {
    /// All of them.
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

    /// The one of that name.
    pub fn by_name(name: &str) -> Option<Group> {
        Group::ALL.iter().find(|g| g.name == name).copied()
    }

    /// Works in a new directory in `dir`, which it removes, and gives the phases. `server` is the process that serves the file system.
    ///
    /// # Errors
    /// As the first call that fails.
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

/// What a phase did.
#[derive(Debug, Default)]
struct Done {
    /// Calls, or whatever it counts.
    ops: u64,
    /// Bytes read or written, if that is what it is about.
    bytes: u64,
    /// How long each call took, if that was measured.
    each: Vec<f64>,
}

/// Where phases are measured.
struct Stage {
    server: Option<u32>,
    phases: Vec<Value>,
}

impl Stage {
    /// Does `work` and notes what it took.
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

    /// Waits until what was done is on the devices, and notes beside the last phase how long that took.
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

    /// CPU seconds of the process that serves the file system, to 10 ms.
    fn server_cpu(&self) -> Result<f64> {
        server_cpu(self.server)
    }
}

/// CPU seconds of a process, to 10 ms; none of the kernel.
pub(crate) fn server_cpu(server: Option<u32>) -> Result<f64> {
    const TICKS: f64 = 100.0;
    let Some(pid) = server else { return Ok(0.0) };
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).context("the server is gone")?;
    let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let ticks = fields.split_whitespace().skip(11).take(2).map(str::parse::<f64>);
    Ok(ticks.sum::<Result<f64, _>>().context("/proc/PID/stat")? / TICKS)
}

/// Of a mount of FUSE `syncfs` reaches the kernel's pages only, so the directory is made durable too.
fn sync_all(dir: &Path) -> Result<()> {
    let dir = File::open(dir)?;
    rustix::fs::syncfs(&dir)?;
    Ok(dir.sync_all()?)
}

/// Lets the kernel forget what it keeps of a file, so that it has to ask again.
fn forget(file: &File) -> Result<()> {
    Ok(rustix::fs::fadvise(file, 0, None, Advice::DontNeed)?)
}

/// Lets the kernel forget all names and attributes that nobody uses. Only root may; `false` if that is not so.
fn forget_names() -> bool {
    std::fs::write("/proc/sys/vm/drop_caches", "2").is_ok()
}

/// Makes or opens a file to be read and written, past the kernel's cache if `direct`.
fn open(name: &str, direct: bool) -> Result<File> {
    let mut flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC;
    flags.set(OFlags::DIRECT, direct);
    Ok(rustix::fs::openat(CWD, name, flags, Mode::from_raw_mode(0o644))?.into())
}

/// A small generator of numbers (xorshift), the same in each run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

/// Runs `work` in `jobs` threads at once, each with its number, until the time is over; it is told when to stop.
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
