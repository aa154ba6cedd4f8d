//! Compressed blocks in the cache: a working set larger than the cache, of blocks that compress
//! well, is served from memory.

use arc::tunables::COMPRESSED_ARC_ENABLED;
use ondisk::ObjNum;
use parking_lot::Mutex;
use spa::Spa;
use spa::create::VdevShape;
use spa::import::Options;

const MIB: usize = 1 << 20;
/// More than fits into the cache uncompressed.
const FILE: usize = 24 * MIB;
const CACHE: usize = 16 * MIB;

/// Serializes the tests, because the tunable belongs to the process.
static TUNABLE: Mutex<()> = Mutex::new(());

/// Contents of which a third is noise.
fn contents(seed: u64) -> Vec<u8> {
    let noise = testpools::noise(seed, FILE / 3);
    let mut bytes = Vec::with_capacity(FILE);
    for piece in noise.chunks(1024) {
        bytes.extend(piece);
        bytes.resize(bytes.len() + 2048, 7);
    }
    bytes
}

fn counter(spa: &Spa, name: &str) -> u64 {
    spa.cache().store().named().iter().find(|(n, _)| *n == name).unwrap_or_else(|| panic!("no {name}")).1
}

fn read(spa: &Spa, file: ObjNum) -> Vec<u8> {
    testpools::read_file(&testpools::own(spa.writer().unwrap(), "tank"), file, FILE)
}

/// The bytes that the third read of a file takes from the device. The first two reads found the
/// file on disk or in memory.
fn third_reading(reimport: bool) -> (Spa, u64, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    drop(testpools::new_pool(VdevShape::Single, &testpools::images(dir.path(), 1, 256 << 20)));
    let import = || {
        let options = Options { cache: (CACHE as u64).into(), ..Options::default() };
        testpools::import_as(dir.path(), options).unwrap()
    };
    let mut spa = import();
    let bytes = contents(1);
    let file = {
        let owned = testpools::own(spa.writer().unwrap(), "tank");
        testpools::write_file(spa.writer().unwrap(), &owned, &bytes).unwrap()
    };
    spa.writer().unwrap().sync_all().unwrap();
    if reimport {
        drop(spa);
        spa = import();
    }
    for _ in 0..2 {
        assert!(read(&spa, file) == bytes);
    }
    let before = spa.tree().describe().stats.read_bytes;
    assert!(read(&spa, file) == bytes);
    let took = spa.tree().describe().stats.read_bytes - before;
    assert!(counter(&spa, "size") <= CACHE as u64);
    (spa, took, dir)
}

/// Goal: blocks that were read or written are found in memory again, although their uncompressed
/// form does not fit, and arcstats shows it.
#[test]
fn a_larger_working_set_is_served_from_memory() {
    let _on = TUNABLE.lock();
    for reimport in [true, false] {
        let (spa, took, _dir) = third_reading(reimport);
        assert_eq!(took, 0, "bytes of the device, imported anew: {reimport}");
        let (compressed, unpacked) = (counter(&spa, "compressed_size"), counter(&spa, "uncompressed_size"));
        assert!(unpacked >= FILE as u64 && compressed < FILE as u64 / 2, "{compressed} of {unpacked}");
        assert!(counter(&spa, "overhead_size") + compressed <= CACHE as u64);
        assert!(spa.cache().store().unpacked().0 > 0);
    }
}

/// Goal: with `zfs_compressed_arc_enabled=0` no block is held compressed, and the same working set
/// is read from the device again and again.
#[test]
fn turned_off() {
    let _off = TUNABLE.lock();
    COMPRESSED_ARC_ENABLED.set(0);
    let (spa, took, _dir) = third_reading(true);
    COMPRESSED_ARC_ENABLED.set(1);
    assert!(took > MIB as u64, "{took} bytes of the device");
    assert_eq!(counter(&spa, "compressed_size"), counter(&spa, "uncompressed_size"));
    assert_eq!(counter(&spa, "overhead_size"), 0);
    assert_eq!(spa.cache().store().unpacked(), (0, 0));
}
