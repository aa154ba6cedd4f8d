//! The integration tests of this crate, as one program.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod hostile;
mod pools;
mod sampled;
mod tree;
mod truth;

use estimate::{Compressor, Options};
use poolhouse::dsl;
use std::path::Path;

/// Options that read everything.
fn options(records: &[u32], compressors: &[&str], ashift: u32) -> Options {
    let compressor = |name: &&str| {
        let (kind, level) = dsl::compression_named(name).unwrap();
        Compressor { name: (*name).to_owned(), kind, level }
    };
    Options {
        records: records.to_vec(),
        compressors: compressors.iter().map(compressor).collect(),
        ashift,
        sample: None,
        time: None,
        dedup: false,
        cross: false,
        seed: 1,
        threads: 2,
    }
}

fn run(dir: &Path, options: &Options) -> estimate::Report {
    estimate::estimate(&[dir.to_owned()], options).unwrap()
}
