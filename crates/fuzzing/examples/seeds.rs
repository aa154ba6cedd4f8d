//! Writes the seeds of every target into the folder named by its argument, one folder a target: a first corpus for libFuzzer.

use std::fs;
use std::path::PathBuf;

fn main() -> std::io::Result<()> {
    let to = PathBuf::from(std::env::args_os().nth(1).ok_or(std::io::ErrorKind::InvalidInput)?);
    for (name, _) in fuzzing::DECODERS {
        let dir = to.join(name);
        fs::create_dir_all(&dir)?;
        for (i, seed) in fuzzing::seeds::of(name).iter().enumerate() {
            fs::write(dir.join(format!("seed-{i:03}")), seed)?;
        }
    }
    Ok(())
}
