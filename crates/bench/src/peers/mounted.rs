//! Workloads on a mounted file system, ours or another's: what `scripts/bench-mount.sh` mounts is the stand, and this process its client.

use super::knobs::LOG;
use super::{Answer, Knobs};
use crate::drive::server_cpu;
use crate::mounts::Stand;
use anyhow::{Context, Result};
use std::path::Path;

/// A mounted file system, and who serves it.
pub(super) struct Mounted {
    stand: Stand,
}

/// What a measurement on it took.
pub(super) struct Spent {
    /// CPU seconds of who serves it, to 10 ms.
    pub(super) server_cpu_s: f64,
}

impl Mounted {
    /// Where it is.
    pub(super) fn dir(&self) -> &Path {
        self.stand.dir()
    }

    /// Does `work`, and says what it took.
    pub(super) fn measure<T>(&self, work: impl FnOnce(&Path) -> Result<T>) -> Result<(T, Spent)> {
        let cpu = server_cpu(self.stand.server())?;
        let out = work(self.dir())?;
        Ok((out, Spent { server_cpu_s: server_cpu(self.stand.server())? - cpu }))
    }
}

/// Mounts the file system `kind` (`poolhouse`, `zfs-fuse`, ...) with its images in folder `dir`, does a workload, and takes all of it away.
///
/// # Errors
/// As it fails, with what is missing if the file system can't be had.
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
