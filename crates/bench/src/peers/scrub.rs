//! A scrub. Both sides import and scrub the same image, which this program creates.

use super::knobs::{DISKS, IMAGE, OBJ_MB, OBJS, TITLE};
use super::stage::{CHUNK, Stage, import, noise, pass};
use super::{Answer, Knobs};
use crate::images::Images;
use crate::measure::process_cpu;
use anyhow::{Context, Result, ensure};
use poolhouse::ondisk::scan::{ScanFunc, ScanState};
use poolhouse::spa::engine::ScanCommand;
use std::path::Path;
use std::time::Instant;

/// The images. Both sides, and the code that removes them, get the same settings.
pub(super) fn images(dir: &Path, knobs: &Knobs) -> Result<Images> {
    let count = usize::try_from(knobs.number(DISKS)?)?;
    Ok(Images::there(dir, knobs.word(IMAGE)?, count))
}

/// Creates the pool for the scrub, and leaves it: `objs` objects of `obj_mb` MiB that don't
/// compress.
pub(super) fn make(dir: &Path, knobs: &Knobs) -> Result<Answer> {
    let since = Instant::now();
    let stage = Stage::on(images(dir, knobs)?, knobs)?;
    stage.put_objects(knobs, &noise(CHUNK, 5))?;
    stage.sync()?;
    stage.leave()?;
    let mut answer = Answer::default();
    answer.put(knobs.word(TITLE)?, "s", since.elapsed().as_secs_f64());
    Ok(answer)
}

/// Scrubs the pool. The cache has only what an import reads.
///
/// The time is from the request until the transaction group that ends the scrub is on disk.
pub(super) fn scrub(dir: &Path, knobs: &Knobs) -> Result<Answer> {
    let bytes = (knobs.number(OBJS)? * knobs.number(OBJ_MB)?) << 20;
    let spa = import(images(dir, knobs)?, knobs)?;
    let live = spa.writer().context("it was imported for writing")?;
    let (since, cpu) = (Instant::now(), process_cpu());
    live.scan(ScanCommand::Scrub).map_err(|e| anyhow::anyhow!("scrub it: {e:?}"))?;
    live.scans().wait()?;
    live.sync_all()?;
    let (wall_s, cpu_s) = (since.elapsed().as_secs_f64(), process_cpu() - cpu);
    let phys = live.scans().stat().context("a pool knows its last scrub")?.phys;
    ensure!(phys.func == ScanFunc::Scrub && phys.state == ScanState::Finished, "the scrub did not end");
    ensure!(
        phys.errors == 0 && phys.examined >= bytes,
        "{} errors, {} bytes examined",
        phys.errors,
        phys.examined
    );
    live.export()?;
    pass(knobs, wall_s, cpu_s)
}

#[cfg(test)]
mod tests {
    use super::super::Workload;
    use super::*;

    /// Goal: the image can be scrubbed several times after its creator has ended. A scrub that
    /// examines less than it should is an error.
    #[test]
    fn an_image_for_all() {
        let dir = tempfile::tempdir().unwrap();
        let knobs = |more: &[&str]| {
            let words = ["image=it", "disks=4", "size_mb=128", "obj_mb=1", "rs=131072", "cache_mb=64"];
            let words: Vec<String> = words.iter().chain(more).map(|w| (*w).to_owned()).collect();
            Knobs::parse(Workload::by_name("scrub").unwrap().knobs(), &words).unwrap()
        };
        make(dir.path(), &knobs(&["objs=3"])).unwrap();
        for _ in 0..2 {
            let answer = scrub(dir.path(), &knobs(&["objs=3", "title=s"])).unwrap();
            assert!(answer.figures["s.mb_s"] > 0.0 && answer.figures["s.s"] > 0.0);
        }
        assert!(scrub(dir.path(), &knobs(&["objs=300"])).is_err());
        drop(images(dir.path(), &knobs(&[])).unwrap());
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
