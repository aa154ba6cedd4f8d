//! Overwrites of 8 KiB at random offsets of an object, with records of 8 KiB or larger.

use super::knobs::{BS, COUNT, OBJ_MB, RS, TITLE};
use super::stage::{Numbers, Stage, noise};
use super::{Answer, Knobs};
use crate::measure::process_cpu;
use anyhow::Result;
use std::path::Path;
use std::time::Instant;

pub(super) fn overwrite(dir: &Path, knobs: &Knobs) -> Result<Answer> {
    let (bs, rs) = (knobs.number(BS)?, knobs.number(RS)?);
    let (count, len) = (knobs.number(COUNT)?, knobs.number(OBJ_MB)? << 20);
    let title = knobs.word(TITLE)?.to_owned();
    let stage = Stage::new(dir, knobs)?;
    let dnode = stage.object(rs)?;
    let data = noise(super::stage::CHUNK, 4);
    stage.put_all(&dnode, len, &data)?;
    stage.sync()?;
    stage.read_all(&dnode, len)?;
    let piece = &data[..usize::try_from(bs)?];
    let mut numbers = Numbers::new(99);
    let (since, cpu) = (Instant::now(), process_cpu());
    for _ in 0..count {
        let offset = numbers.next() % (len / bs) * bs;
        dnode.write_at(&stage.tx(bs)?, offset, piece)?;
    }
    let mut answer = Answer::default();
    let each = |cpu_s: f64| cpu_s / count as f64 * 1e6;
    answer.put(&title, "call_cpu_us", each(process_cpu() - cpu));
    stage.sync()?;
    answer.put(&title, "cpu_us", each(process_cpu() - cpu));
    answer.put(&title, "ops_s", count as f64 / since.elapsed().as_secs_f64());
    drop(dnode);
    stage.end()?;
    Ok(answer)
}
