//! All fuzz targets, as one program to build. The environment variable FUZZ_TARGET names the one to
//! run.
#![no_main]

use std::sync::LazyLock;

use fuzzing::{DECODERS, Target};

static TARGET: LazyLock<fn(&[u8])> = LazyLock::new(|| {
    let name = std::env::var("FUZZ_TARGET").unwrap_or_default();
    let pool: Target = ("open_pool", sim::open::pool);
    let receive: Target = ("receive", sim::receives::stream);
    let restore: Target = ("afs_restore", sim::restores::increment);
    let found = DECODERS.iter().chain([&pool, &receive, &restore]).find(|(of, _)| *of == name);
    found.unwrap_or_else(|| panic!("FUZZ_TARGET names no fuzz target: '{name}'")).1
});

libfuzzer_sys::fuzz_target!(init: { LazyLock::force(&TARGET); }, |data: &[u8]| TARGET(data));
