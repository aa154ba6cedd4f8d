//! Operations on names, without file contents.

use super::{Done, Stage, forget_names};
use anyhow::{Result, ensure};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, mkdirat, openat, renameat, statat, unlinkat};

const FILES: u64 = 100_000;

fn each(prefix: &str, work: impl Fn(&str) -> rustix::io::Result<()>) -> Result<Done> {
    for i in 0..FILES {
        work(&format!("names/{prefix}-{i:06}"))?;
    }
    Ok(Done { ops: FILES, ..Done::default() })
}

fn list() -> Result<Done> {
    let ops = std::fs::read_dir("names")?.try_fold(0, |n, entry| entry.map(|_| n + 1))?;
    ensure!(ops == FILES, "{ops} of {FILES} files are listed");
    Ok(Done { ops, ..Done::default() })
}

fn look(name: &str) -> rustix::io::Result<()> {
    statat(CWD, name, AtFlags::empty()).map(drop)
}

pub(super) fn names(stage: &mut Stage) -> Result<()> {
    mkdirat(CWD, "names", Mode::from_raw_mode(0o755))?;
    stage.phase("create", || {
        each("file", |name| {
            let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
            openat(CWD, name, flags, Mode::from_raw_mode(0o644)).map(drop)
        })
    })?;
    stage.settle()?;
    stage.phase("stat", || each("file", look))?;
    if forget_names() {
        stage.phase("list", list)?;
        forget_names();
        stage.phase("stat-cold", || each("file", look))?;
    }
    stage.phase("rename", || {
        each("file", |name| renameat(CWD, name, CWD, name.replacen("file", "other", 1)))
    })?;
    stage.settle()?;
    stage.phase("remove", || each("other", |name| unlinkat(CWD, name, AtFlags::empty())))?;
    stage.settle()
}
