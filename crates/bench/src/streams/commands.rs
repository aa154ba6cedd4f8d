//! `zfs send` and `zfs receive` with a pipe, and packages of many snapshots.
//!
//! The figures are the CPU time of the daemon and of the command, not of the program at the other
//! end of the pipe.

use super::{Phases, number};
use crate::drive::server_cpu;
use crate::making::pattern;
use crate::measure::{Took, children_cpu};
use crate::mounts::Stand;
use anyhow::{Context, Result, ensure};
use serde_json::json;
use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

/// A daemon with a pool, and the commands.
struct Daemon {
    stand: Stand,
    room: PathBuf,
    pool: String,
}

pub(super) fn run(dir: &Path, done: &mut Phases) -> Result<()> {
    let script = std::env::var_os("BENCH_MOUNTS").context("BENCH_MOUNTS names no script")?;
    let space = tempfile::Builder::new().prefix("bench-streams.").tempdir_in(dir)?;
    let room = space.path().join("poolhouse");
    let me = std::env::current_exe().context("find this program")?;
    let stand = Stand::new(Path::new(&script), &me, "poolhouse", &room, false)?;
    let mut daemon = Daemon { stand, room, pool: String::new() };
    daemon.pool = daemon.said("zpool", &["list", "-H", "-o", "name"])?;
    whole(&daemon, space.path(), done)?;
    packages(&daemon, space.path(), done)
}

impl Daemon {
    fn command(&self, name: &str, args: &[&str]) -> Command {
        let mut command = Command::new(self.room.join(name));
        command.args(args).env("POOLHOUSE_RUN_DIR", self.room.join("run")).stdin(Stdio::null());
        command
    }

    fn said(&self, name: &str, args: &[&str]) -> Result<String> {
        let output = self.command(name, args).output()?;
        ensure!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        Ok(String::from_utf8(output.stdout)?.trim().to_owned())
    }

    /// Runs a command, with CPU time of the daemon.
    fn timed<T: Send>(
        &self,
        command: &mut Command,
        beside: impl FnOnce(&mut std::process::Child) -> Result<T>,
    ) -> Result<(T, Took)> {
        let cpu = || Ok::<_, anyhow::Error>(server_cpu(self.stand.server())? + children_cpu()?);
        let (wall, before) = (Instant::now(), cpu()?);
        let mut child = command.spawn()?;
        let out = beside(&mut child)?;
        ensure!(child.wait()?.success(), "a command failed");
        Ok((out, Took { wall_s: wall.elapsed().as_secs_f64(), cpu_s: cpu()? - before }))
    }

    /// Sends to a pipe. Returns the length of the stream.
    fn send(&self, args: &[&str]) -> Result<(u64, Took)> {
        let args = [&["send"], args].concat();
        self.timed(self.command("zfs", &args).stdout(Stdio::piped()), |child| {
            let mut pipe = child.stdout.take().context("it was asked for")?;
            let (mut buf, mut bytes) = (vec![0; 128 << 10], 0);
            loop {
                match pipe.read(&mut buf)? {
                    0 => return Ok(bytes),
                    n => bytes += n as u64,
                }
            }
        })
    }

    /// Receives from a pipe.
    fn receive(&self, args: &[&str], from: &Path) -> Result<Took> {
        let args = [&["receive", "-u"], args].concat();
        let mut source = File::open(from)?;
        let ((), took) = self.timed(self.command("zfs", &args).stdin(Stdio::piped()), |child| {
            let mut pipe = child.stdin.take().context("it was asked for")?;
            let mut buf = vec![0; 128 << 10];
            loop {
                match source.read(&mut buf)? {
                    0 => return Ok(()),
                    n => pipe.write_all(&buf[..n])?,
                }
            }
        })?;
        Ok(took)
    }
}

/// Whole streams of a file system, in each form.
fn whole(daemon: &Daemon, space: &Path, done: &mut Phases) -> Result<()> {
    let mb = number("BENCH_STREAM_MB", 512)?;
    let fs = format!("{}/fs", daemon.pool);
    daemon.said("zfs", &["create", "-o", "compression=lz4", &fs])?;
    let mut file = File::create(daemon.stand.dir().join("fs/file"))?;
    let pattern = pattern();
    for at in 0..mb as usize {
        let from = (at << 20) % (pattern.len() - (1 << 20));
        file.write_all(&pattern[from..from + (1 << 20)])?;
    }
    file.sync_all()?;
    drop(file);
    let snapshot = format!("{fs}@s");
    daemon.said("zfs", &["snapshot", &snapshot])?;
    let received = format!("{}/r", daemon.pool);
    for (name, options) in [("", &[][..]), ("-c", &["-c"]), ("-w", &["-w"])] {
        let args = [options, &[snapshot.as_str()]].concat();
        let path = space.join("stream");
        let saved =
            daemon.command("zfs", &[&["send"], &args[..]].concat()).stdout(File::create(&path)?).status()?;
        ensure!(saved.success(), "zfs send {args:?} failed");
        if name.is_empty() {
            // The first use of memory, and of the image's, is not timed.
            daemon.receive(&[&received], &path)?;
            daemon.said("zfs", &["destroy", "-r", &received])?;
        }
        let (bytes, took) = daemon.send(&args)?;
        done.add(&format!("send{name}"), took, json!({ "bytes": bytes, "data": mb << 20 }));
        let took = daemon.receive(&[&received], &path)?;
        done.add(&format!("receive{name}"), took, json!({ "bytes": bytes, "data": mb << 20 }));
        daemon.said("zfs", &["destroy", "-r", &received])?;
        std::fs::remove_file(path)?;
    }
    Ok(())
}

/// Packages of more and more snapshots.
fn packages(daemon: &Daemon, space: &Path, done: &mut Phases) -> Result<()> {
    let most = number("BENCH_STREAM_SNAPSHOTS", 400)?;
    let fs = format!("{}/many", daemon.pool);
    daemon.said("zfs", &["create", &fs])?;
    let received = format!("{}/r", daemon.pool);
    let mut have = 0;
    for snapshots in [most / 4, most / 2, most] {
        while have < snapshots {
            have += 1;
            daemon.said("zfs", &["snapshot", &format!("{fs}@{have}")])?;
        }
        let newest = format!("{fs}@{have}");
        let (_, took) = daemon.send(&["-R", &newest])?;
        let counts = |took: Took| {
            let each = crate::measure::round(took.cpu_s * 1e6 / snapshots as f64);
            json!({ "snapshots": snapshots, "cpu_us_per_snapshot": each })
        };
        done.add(&format!("send-R {snapshots}"), took, counts(took));
        let path = space.join("package");
        let saved = daemon.command("zfs", &["send", "-R", &newest]).stdout(File::create(&path)?).status()?;
        ensure!(saved.success(), "zfs send -R failed");
        let took = daemon.receive(&[&received], &path)?;
        done.add(&format!("receive-R {snapshots}"), took, counts(took));
        daemon.said("zfs", &["destroy", "-r", &received])?;
    }
    Ok(())
}
