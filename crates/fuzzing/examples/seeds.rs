//! Writes the seeds of every target, as a first corpus for libFuzzer, and prints its name.
//!
//! The argument names a directory, in which each target gets a directory of its own.

use std::fs;
use std::path::{Path, PathBuf};

use fuzzing::mutate::Rng;

fn main() -> std::io::Result<()> {
    let to = PathBuf::from(std::env::args_os().nth(1).ok_or(std::io::ErrorKind::InvalidInput)?);
    for (name, _) in fuzzing::DECODERS {
        let dir = directory(&to, name)?;
        for (i, seed) in fuzzing::seeds::of(name).iter().enumerate() {
            fs::write(dir.join(format!("seed-{i:03}")), seed)?;
        }
    }
    let dir = directory(&to, "receive")?;
    for (i, seed) in fuzzing::stream::snapshots().iter().enumerate() {
        fs::write(dir.join(format!("seed-{i:03}")), seed)?;
    }
    let dir = directory(&to, "afs_restore")?;
    for (i, seed) in fuzzing::afs::dumps().iter().enumerate() {
        fs::write(dir.join(format!("seed-{i:03}")), seed)?;
    }
    // Scripts of changes to a whole pool, of one to ten steps with random bytes.
    let dir = directory(&to, "open_pool")?;
    let mut rng = Rng::new(0);
    for steps in 1..=10 {
        let script: Vec<u8> = (0..1 + 10 * steps).map(|_| rng.next_u64() as u8).collect();
        fs::write(dir.join(format!("seed-{steps:03}")), script)?;
    }
    Ok(())
}

/// Creates the directory of a target.
#[allow(clippy::print_stdout, reason = "the names of the targets are its output")]
fn directory(to: &Path, target: &str) -> std::io::Result<PathBuf> {
    println!("{target}");
    let dir = to.join(target);
    fs::create_dir_all(&dir)?;
    Ok(dir)
}
