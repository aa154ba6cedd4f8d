//! The cost of freeing: single blocks among many cached ones, a whole object, and a sparse volume.

use super::knobs::{COUNT, RS, STRIDE, TITLE};
use super::stage::{Stage, noise};
use super::{Answer, Knobs};
use crate::measure::{median, process_cpu};
use anyhow::Result;
use rustix::time::{ClockId, clock_gettime};
use std::path::Path;
use std::time::Instant;

/// How many blocks are freed one by one.
const SINGLE: u64 = 100;

/// CPU seconds of this thread.
fn thread_cpu() -> f64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
}

/// Frees single blocks among `count` cached ones, then the whole object.
pub(super) fn free(dir: &Path, knobs: &Knobs) -> Result<Answer> {
    let (rs, count) = (knobs.number(RS)?, knobs.number(COUNT)?);
    let title = knobs.word(TITLE)?.to_owned();
    let stage = Stage::new(dir, knobs)?;
    let mut answer = Answer::default();
    let dnode = stage.object(rs)?;
    let object = dnode.object();
    let cpu = process_cpu();
    stage.put_all(&dnode, count * rs, &noise(super::stage::CHUNK, 9))?;
    stage.sync()?;
    answer.put(&title, "write_cpu_s", process_cpu() - cpu);
    stage.read_all(&dnode, count * rs)?;
    let mut each = Vec::new();
    for i in 0..SINGLE {
        let cpu = thread_cpu();
        let tx = stage.tx_to_free()?;
        dnode.free_range(&tx, (count / 2 + i * 7) * rs, rs)?;
        drop(tx);
        each.push((thread_cpu() - cpu) * 1e6);
    }
    answer.put(&title, "one_cpu_us", median(&mut each));
    stage.sync()?;
    drop(dnode);
    let (since, cpu) = (Instant::now(), process_cpu());
    stage.owned.objset().free_object(&stage.tx_to_free()?, object)?;
    stage.sync()?;
    answer.put(&title, "all_cpu_s", process_cpu() - cpu);
    answer.put(&title, "all_s", since.elapsed().as_secs_f64());
    stage.end()?;
    Ok(answer)
}

/// Writes one block in each `stride` of an object, then frees all of it.
pub(super) fn unmap(dir: &Path, knobs: &Knobs) -> Result<Answer> {
    let (rs, count) = (knobs.number(RS)?, knobs.number(COUNT)?);
    let (title, stride) = (knobs.word(TITLE)?.to_owned(), knobs.number(STRIDE)?);
    let stage = Stage::new(dir, knobs)?;
    let mut answer = Answer::default();
    let dnode = stage.object(rs)?;
    let data = noise(usize::try_from(rs)?, 9);
    let cpu = process_cpu();
    for i in 0..count {
        dnode.write_at(&stage.tx(rs)?, i * stride * rs, &data)?;
    }
    stage.sync()?;
    answer.put(&title, "write_cpu_s", process_cpu() - cpu);
    let (since, cpu) = (Instant::now(), process_cpu());
    let longest = stage.unmap(&dnode)?;
    answer.put(&title, "call_s", since.elapsed().as_secs_f64());
    stage.sync()?;
    answer.put(&title, "cpu_s", process_cpu() - cpu);
    answer.put(&title, "s", since.elapsed().as_secs_f64());
    answer.put(&title, "longest_wait_s", longest);
    drop(dnode);
    stage.end()?;
    Ok(answer)
}
