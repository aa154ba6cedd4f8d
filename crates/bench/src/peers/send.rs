//! A send to a pipe. Both sides import the same image, which this program creates, and send the
//! same snapshot.

use super::knobs::{FORM, TITLE};
use super::scrub::images;
use super::stage::{CHUNK, Stage, import, pass};
use super::{Answer, Knobs};
use crate::images::POOL;
use crate::making::pattern;
use crate::measure::process_cpu;
use anyhow::{Context, Result, bail, ensure};
use poolhouse::dsl::ops::snapshot::Snapshot;
use poolhouse::stream::{Forms, Options, send as send_stream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

/// The snapshot that is sent.
const SNAPSHOT: &str = "w@s";

/// Creates the pool for the sends, and leaves it: `objs` objects of `obj_mb` MiB that lz4
/// compresses to a half.
pub(super) fn make(dir: &Path, knobs: &Knobs) -> Result<Answer> {
    let since = Instant::now();
    let stage = Stage::compressed(images(dir, knobs)?, knobs, "lz4")?;
    stage.put_objects(knobs, &pattern()[..CHUNK])?;
    let names = vec![format!("{POOL}/{SNAPSHOT}")];
    stage.live().run(Box::new(Snapshot { names, ..Snapshot::default() }))?;
    stage.leave()?;
    let mut answer = Answer::default();
    answer.put(knobs.word(TITLE)?, "s", since.elapsed().as_secs_f64());
    Ok(answer)
}

/// Sends the snapshot. The cache has only what an import reads. The program that reads the pipe
/// does not count.
pub(super) fn send(dir: &Path, knobs: &Knobs) -> Result<Answer> {
    let forms = match knobs.word(FORM)? {
        "plain" => Forms::default(),
        "compressed" => Forms { compressed: true, ..Forms::default() },
        "raw" => Forms { raw: true, ..Forms::default() },
        form => bail!("form is plain, compressed or raw, not {form}"),
    };
    let spa = import(images(dir, knobs)?, knobs)?;
    let live = spa.writer().context("it was imported for writing")?;
    let snapshot = live.dsl().dataset(&format!("{POOL}/{SNAPSHOT}"))?;
    let mut reader = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn()?;
    let pipe = reader.stdin.take().context("it was asked for")?;
    let (since, cpu) = (Instant::now(), process_cpu());
    send_stream(&snapshot, &Options { forms, ..Options::default() }, pipe)?;
    let (wall_s, cpu_s) = (since.elapsed().as_secs_f64(), process_cpu() - cpu);
    ensure!(reader.wait()?.success(), "the reader of the pipe failed");
    live.export()?;
    pass(knobs, wall_s, cpu_s)
}

#[cfg(test)]
mod tests {
    use super::super::Workload;
    use super::*;

    /// Goal: the snapshot of an image can be sent several times, in each form.
    #[test]
    fn sends_of_an_image() {
        let dir = tempfile::tempdir().unwrap();
        let knobs = |work: &str, more: &[&str]| {
            let words = ["image=it", "size_mb=128", "obj_mb=1", "rs=131072", "objs=3", "cache_mb=64"];
            let words: Vec<String> = words.iter().chain(more).map(|w| (*w).to_owned()).collect();
            Knobs::parse(Workload::by_name(work).unwrap().knobs(), &words).unwrap()
        };
        make(dir.path(), &knobs("send-image", &[])).unwrap();
        for form in ["form=plain", "form=compressed", "form=raw"] {
            let answer = send(dir.path(), &knobs("send", &[form, "title=s"])).unwrap();
            assert!(answer.figures["s.mb_s"] > 0.0 && answer.figures["s.cpu_s"] > 0.0);
        }
        assert!(send(dir.path(), &knobs("send", &["form=other"])).is_err());
        drop(images(dir.path(), &knobs("send", &[])).unwrap());
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
