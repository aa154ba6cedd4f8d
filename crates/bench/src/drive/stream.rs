//! Reads and writes of data, sequential and random.

use super::{Done, Numbers, Stage, forget, open, together};
use crate::making::pattern;
use anyhow::{Result, ensure};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::Instant;

const CHUNK: usize = 1 << 20;
const STREAM: u64 = 1 << 30;
const RANDOM: u64 = 256 << 20;
const PIECE: usize = 8 << 10;
/// The alignment that `O_DIRECT` needs.
const ALIGN: usize = 4096;
/// How often the file is read from the kernel's cache, as one pass is too short to measure.
const REREADS: u64 = 4;

fn fill(file: &File, bytes: u64) -> Result<()> {
    let data = pattern();
    for offset in (0..bytes).step_by(CHUNK) {
        let from = offset as usize % (data.len() - CHUNK);
        file.write_all_at(&data[from..from + CHUNK], offset)?;
    }
    Ok(file.sync_all()?)
}

fn read_whole(file: &File, bytes: u64) -> Result<Done> {
    let mut buf = vec![0; CHUNK];
    for offset in (0..bytes).step_by(CHUNK) {
        file.read_exact_at(&mut buf, offset)?;
    }
    Ok(Done { ops: bytes / CHUNK as u64, bytes, each: Vec::new() })
}

pub(super) fn stream(stage: &mut Stage) -> Result<()> {
    let file = open("stream", false)?;
    let data = pattern();
    stage.phase("write", || {
        for offset in (0..STREAM).step_by(CHUNK) {
            let from = offset as usize % (data.len() - CHUNK);
            file.write_all_at(&data[from..from + CHUNK], offset)?;
        }
        file.sync_all()?;
        Ok(Done { ops: STREAM / CHUNK as u64, bytes: STREAM, each: Vec::new() })
    })?;
    stage.settle()?;
    read_whole(&file, STREAM)?;
    stage.phase("reread", || {
        let mut all = Done::default();
        for _ in 0..REREADS {
            let done = read_whole(&file, STREAM)?;
            all.ops += done.ops;
            all.bytes += done.bytes;
        }
        Ok(all)
    })?;
    forget(&file)?;
    stage.phase("read", || read_whole(&file, STREAM))
}

pub(super) fn random(stage: &mut Stage) -> Result<()> {
    fill(&open("random", false)?, RANDOM)?;
    read_whole(&open("random", false)?, RANDOM)?;
    for (name, jobs, direct) in [("cached", 1, false), ("direct-1", 1, true), ("direct-4", 4, true)] {
        stage.phase(name, || {
            together(jobs, |job, until| {
                let file = open("random", direct)?;
                let mut room = vec![0; PIECE + ALIGN];
                let at = room.as_ptr().align_offset(ALIGN);
                ensure!(at < ALIGN, "no place in the buffer is aligned");
                let mut numbers = Numbers(0x9e37_79b9_7f4a_7c15 ^ (job + 1) << 20);
                let mut ops = 0;
                while Instant::now() < until {
                    let offset = numbers.below(RANDOM / PIECE as u64) * PIECE as u64;
                    file.read_exact_at(&mut room[at..at + PIECE], offset)?;
                    ops += 1;
                }
                Ok(Done { ops, bytes: ops * PIECE as u64, each: Vec::new() })
            })
        })?;
    }
    Ok(())
}
