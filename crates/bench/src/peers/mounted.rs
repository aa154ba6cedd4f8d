//! Workloads on a mounted file system, ours or another.
//!
//! `scripts/bench-mount.sh` mounts it, and this process is its client.

use super::knobs::LOG;
use super::{Answer, Knobs};
use crate::drive::server_cpu;
use crate::mounts::Stand;
use anyhow::{Context, Result};
use std::path::Path;

/// A mounted file system, with the process that serves it.
pub(super) struct Mounted {
    stand: Stand,
}

/// The cost of a measurement.
pub(super) struct Spent {
    /// CPU seconds of the process that serves it, in steps of 10 ms.
    pub(super) server_cpu_s: f64,
}

impl Mounted {
    /// Where it is mounted.
    pub(super) fn dir(&self) -> &Path {
        self.stand.dir()
    }

    /// Runs `work` and measures it.
    pub(super) fn measure<T>(&self, work: impl FnOnce(&Path) -> Result<T>) -> Result<(T, Spent)> {
        let cpu = server_cpu(self.stand.server())?;
        let out = work(self.dir())?;
        Ok((out, Spent { server_cpu_s: server_cpu(self.stand.server())? - cpu }))
    }
}

/// Mounts the file system `kind`, runs a workload, unmounts and removes everything.
///
/// `kind` is `poolhouse`, `zfs-fuse` and so on. The images are in the directory `dir`.
///
/// # Errors
/// The file system can't be mounted, with the reason, or the workload failed.
pub(super) fn on(
    kind: &str,
    dir: &Path,
    knobs: &Knobs,
    work: impl FnOnce(&Mounted, &Knobs) -> Result<Answer>,
) -> Result<Answer> {
    let script = std::env::var_os("BENCH_MOUNTS").context("BENCH_MOUNTS names no script that mounts")?;
    let me = std::env::current_exe().context("find this program")?;
    let room = tempfile::Builder::new().prefix("bench-peers.").tempdir_in(dir)?;
    let log = knobs.number(LOG)? > 0;
    let stand = Stand::new(Path::new(&script), &me, kind, &room.path().join(kind), log)?;
    work(&Mounted { stand }, knobs)
}
