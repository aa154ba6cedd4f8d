//! The work of a mail server in a directory. Each thread repeats four steps:
//!
//! 1. It delivers a message: a new file of 16 KiB, made durable.
//! 2. It appends to a message, and makes that durable.
//! 3. It reads a message.
//! 4. It removes the oldest of its messages.

use super::knobs::TITLE;
use super::mounted::Mounted;
use super::stage::{Numbers, duration, noise, together};
use super::{Answer, Knobs};
use anyhow::{Context, Result};
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::Instant;

/// How many messages each thread keeps.
const KEPT: u64 = 64;
/// Bytes of a message, and of an append.
const MESSAGE: usize = 16 << 10;

fn message(dir: &Path, id: usize, n: u64) -> PathBuf {
    dir.join(format!("{id}-{n}"))
}

fn deliver(path: &Path, data: &[u8]) -> Result<()> {
    let mut file = File::create_new(path)?;
    file.write_all(data)?;
    Ok(file.sync_all()?)
}

fn append(path: &Path, data: &[u8]) -> Result<()> {
    let mut file = File::options().append(true).open(path)?;
    file.write_all(data)?;
    Ok(file.sync_all()?)
}

pub(super) fn mail(mounted: &Mounted, knobs: &Knobs) -> Result<Answer> {
    let title = knobs.word(TITLE)?.to_owned();
    let mut answer = Answer::default();
    for threads in knobs.threads()? {
        let spool = mounted.dir().join(format!("spool-{threads}"));
        std::fs::create_dir(&spool).with_context(|| format!("make {}", spool.display()))?;
        let (done, spent) = mounted.measure(|_| {
            together(threads, duration(knobs)?, |id, stop| {
                let (data, mut numbers) = (noise(MESSAGE, id as u64 + 1), Numbers::new(id as u64 + 1));
                let mut us = Vec::new();
                let mut n = 0;
                while !stop.load(Ordering::Relaxed) {
                    let since = Instant::now();
                    deliver(&message(&spool, id, n), &data)?;
                    let oldest = n.saturating_sub(KEPT);
                    append(&message(&spool, id, oldest + numbers.next() % (n + 1 - oldest)), &data)?;
                    std::fs::read(message(&spool, id, oldest + numbers.next() % (n + 1 - oldest)))?;
                    if n >= KEPT {
                        std::fs::remove_file(message(&spool, id, oldest))?;
                    }
                    n += 1;
                    us.push(since.elapsed().as_secs_f64() * 1e6);
                }
                Ok(us)
            })
        })?;
        let us: Vec<f64> = done.each.into_iter().flatten().collect();
        let ops = us.len() as f64;
        answer.put(&title, &format!("t{threads}.ops_s"), ops / done.wall_s);
        answer.put(&title, &format!("t{threads}.server_cpu_us"), spent.server_cpu_s / ops * 1e6);
        answer.put_latency(&title, threads, us);
    }
    Ok(answer)
}
