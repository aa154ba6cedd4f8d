//! A tree of small files, like an unpacked archive that is read and removed.

use super::{Done, Numbers, Stage, forget, forget_names};
use crate::making::pattern;
use anyhow::{Result, ensure};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

const TOPS: u64 = 20;
const DIRS: u64 = 20;
const FILES: u64 = 50;
/// The largest file in bytes. The average is half of it.
const LARGEST: u64 = 16 << 10;
const ROOT: &str = "tree";

fn make(data: &[u8]) -> Result<Done> {
    let mut numbers = Numbers(0x2545_f491_4f6c_dd1d);
    let mut done = Done::default();
    fs::create_dir(ROOT)?;
    for top in 0..TOPS {
        fs::create_dir(format!("{ROOT}/{top}"))?;
        for dir in 0..DIRS {
            let dir = format!("{ROOT}/{top}/{dir}");
            fs::create_dir(&dir)?;
            for i in 0..FILES {
                let (size, from) = (numbers.below(LARGEST) + 1, numbers.below(1 << 24));
                let mut file = File::create_new(format!("{dir}/{i}"))?;
                file.write_all(&data[from as usize..(from + size) as usize])?;
                done.ops += 1;
                done.bytes += size;
            }
        }
    }
    Ok(done)
}

/// Calls `work` with every file below `dir`.
fn each(dir: &Path, work: &mut dyn FnMut(PathBuf) -> Result<()>) -> Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            each(&entry.path(), work)?;
        } else {
            work(entry.path())?;
        }
    }
    Ok(())
}

fn read() -> Result<Done> {
    let mut done = Done::default();
    let mut buf = Vec::with_capacity(LARGEST as usize + 1);
    each(Path::new(ROOT), &mut |path| {
        buf.clear();
        done.bytes += File::open(path)?.read_to_end(&mut buf)? as u64;
        done.ops += 1;
        Ok(())
    })?;
    ensure!(done.ops == TOPS * DIRS * FILES, "only {} files are there", done.ops);
    Ok(done)
}

pub(super) fn tree(stage: &mut Stage) -> Result<()> {
    let data = pattern();
    stage.phase("make", || make(&data))?;
    stage.settle()?;
    stage.phase("read", read)?;
    each(Path::new(ROOT), &mut |path| forget(&File::open(path)?))?;
    if forget_names() {
        stage.phase("read-cold", read)?;
    }
    stage.phase("remove", || {
        fs::remove_dir_all(ROOT)?;
        Ok(Done { ops: TOPS * DIRS * FILES, ..Done::default() })
    })?;
    stage.settle()
}
