//! Cache files that OpenZFS wrote.

use super::*;

/// As ztest's kernel in user space left it, for a pool of two disks and a cache device.
const ZPOOL_CACHE: &[u8] = include_bytes!("../../../tests/data/zpool.cache");

/// Goal: a cache file of OpenZFS names its pools, and the path of every device of theirs.
#[test]
fn a_real_cache_file() {
    let cached = Cached::decode(ZPOOL_CACHE).unwrap();
    assert_eq!(cached.len(), 1);
    let names: Vec<_> = cached[0].paths.iter().map(|p| p.file_name().unwrap().to_string_lossy()).collect();
    assert_eq!(names, ["ztest.0a", "ztest.1a"]);
}

/// Goal: what is no cache file is refused, however it is broken.
#[test]
fn broken_cache_files() {
    for len in (0..ZPOOL_CACHE.len()).step_by(7) {
        assert!(Cached::decode(&ZPOOL_CACHE[..len]).is_none(), "{len} bytes");
    }
    for at in 0..ZPOOL_CACHE.len() {
        let mut bytes = ZPOOL_CACHE.to_vec();
        bytes[at] ^= 0x81;
        // It may still be a list; it must end in a value.
        let _ = Cached::decode(&bytes);
    }
}
