//! Writes that are durable when they return.

use super::{Done, Stage, open, together};
use anyhow::Result;
use std::os::unix::fs::FileExt;
use std::time::Instant;

const PIECE: usize = 8 << 10;
/// After this many bytes a thread writes from the beginning of its file again.
const WRAP: u64 = 16 << 20;

pub(super) fn fsync(stage: &mut Stage) -> Result<()> {
    for jobs in [1, 8, 64] {
        stage.phase(&format!("fsync-{jobs}"), || {
            together(jobs, |job, until| {
                let file = open(&format!("fsync-{job}"), false)?;
                let data = [job as u8 | 1; PIECE];
                let mut done = Done::default();
                while Instant::now() < until {
                    let start = Instant::now();
                    file.write_all_at(&data, done.bytes % WRAP)?;
                    file.sync_all()?;
                    done.each.push(start.elapsed().as_secs_f64());
                    done.ops += 1;
                    done.bytes += PIECE as u64;
                }
                Ok(done)
            })
        })?;
        stage.settle()?;
    }
    Ok(())
}
