//! Cache files that OpenZFS wrote.

use crate::commands::pool::import::*;

/// The file that ztest's user-space engine left for a pool of two disks and a cache device.
const ZPOOL_CACHE: &[u8] = include_bytes!("../../../../tests/data/zpool.cache");

/// Goal: a cache file of OpenZFS gives its pools, and the paths of all their devices.
#[test]
fn a_real_cache_file() {
    let cached = Cached::decode(ZPOOL_CACHE).unwrap();
    assert_eq!(cached.len(), 1);
    let names: Vec<_> = cached[0].paths.iter().map(|p| p.file_name().unwrap().to_string_lossy()).collect();
    assert_eq!(names, ["ztest.0a", "ztest.1a"]);
}

/// Goal: a malformed cache file is refused, however it is broken.
#[test]
fn broken_cache_files() {
    for len in (0..ZPOOL_CACHE.len()).step_by(7) {
        assert!(Cached::decode(&ZPOOL_CACHE[..len]).is_none(), "{len} bytes");
    }
    for at in 0..ZPOOL_CACHE.len() {
        let mut bytes = ZPOOL_CACHE.to_vec();
        bytes[at] ^= 0x81;
        // The result may still be a list. Decoding must only end.
        let _ = Cached::decode(&bytes);
    }
}
