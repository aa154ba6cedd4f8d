//! Random reads of cached blocks of 8 KiB, from 32 objects.
//!
//! Each round reads them as copies and as references, and copies plain memory for comparison.

use super::knobs::{BS, OBJ_MB, OBJS, TITLE};
use super::stage::{Numbers, Stage, Together, duration, noise, together};
use super::{Answer, Knobs};
use anyhow::{Context, Result};
use poolhouse::ondisk::BlkId;
use std::hint::black_box;
use std::path::Path;
use std::sync::atomic::Ordering;

/// Reads a block, by the numbers of object and block.
type Read<'a> = dyn Fn(u64, u64, &mut [u8]) -> Result<()> + Sync + 'a;
/// Number of reads between two checks of the clock.
const STRIDE: u64 = 64;

pub(super) fn reads(dir: &Path, knobs: &Knobs) -> Result<Answer> {
    let (bs, mb) = (knobs.number(BS)?, knobs.number(OBJ_MB)?);
    let title = knobs.word(TITLE)?.to_owned();
    let stage = Stage::new(dir, knobs)?;
    let data = noise(super::stage::CHUNK, 1);
    let mut objects = Vec::new();
    for _ in 0..knobs.number(OBJS)? {
        let dnode = stage.object(bs)?;
        stage.put_all(&dnode, mb << 20, &data)?;
        objects.push(dnode);
    }
    stage.sync()?;
    for dnode in &objects {
        stage.read_all(dnode, mb << 20)?;
    }
    let memory = noise(usize::try_from((mb << 20) * objects.len() as u64)?, 5);
    let (blocks, size) = ((mb << 20) / bs, usize::try_from(bs)?);
    let count = objects.len() as u64;
    let mut answer = Answer::default();
    for threads in knobs.threads()? {
        let run = |read: &Read<'_>| {
            together(threads, duration(knobs)?, |id, stop| {
                let (mut numbers, mut buf, mut ops) = (Numbers::new(id as u64 + 1), vec![0; size], 0);
                while !stop.load(Ordering::Relaxed) {
                    for _ in 0..STRIDE {
                        let x = numbers.next();
                        read(x % count, (x >> 20) % blocks, &mut buf)?;
                    }
                    ops += STRIDE;
                }
                Ok(ops)
            })
        };
        let object = |o: u64| &objects[o as usize];
        let copied = run(&|o, b, buf| Ok(object(o).read_at(b * bs, buf)?))?;
        let held = run(&|o, b, _| {
            black_box(object(o).block(BlkId(b))?.context("it was written")?);
            Ok(())
        })?;
        let plain = run(&|o, b, buf| {
            let at = ((o * blocks + b) * bs) as usize;
            black_box(buf).copy_from_slice(&memory[at..at + size]);
            Ok(())
        })?;
        for (name, done) in [("", &copied), ("-by-reference", &held), ("-memory-control", &plain)] {
            put(&mut answer, &format!("{title}{name}"), threads, done);
        }
    }
    drop(objects);
    stage.end()?;
    Ok(answer)
}

fn put(answer: &mut Answer, title: &str, threads: usize, done: &Together<u64>) {
    let ops = done.each.iter().sum::<u64>() as f64;
    answer.put(title, &format!("t{threads}.ops_s"), ops / done.wall_s);
    answer.put(title, &format!("t{threads}.cpu_us"), done.cpu_s / ops * 1e6);
}
