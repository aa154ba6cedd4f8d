//! Volumes written through the library hold what a plain array would, and OpenZFS's `zdb` finds no
//! error.

use poolhouse::dsl::ops::create::{Create, NewVolume};
use poolhouse::dsl::{self, PropList};
use poolhouse::ondisk::Txg;
use poolhouse::spa::create::VdevShape;
use poolhouse::zvol::{Error, Volume};
use poolhouse::{OpenOptions, Pool};
use std::path::Path;
use std::sync::Arc;

const BLOCK: u64 = 16 << 10;

fn new_volume(pool: &Pool, name: &str, size: u64, block: u64) -> Volume {
    let contents = Arc::new(NewVolume { size, block: block as u32 });
    let (name, props) = (name.to_owned(), PropList::new());
    let create = Create { name: name.clone(), contents, props, crypt: None, enforce_limits: false };
    pool.spa().writer().unwrap().run(Box::new(create)).unwrap();
    open(pool, &name)
}

fn open(pool: &Pool, name: &str) -> Volume {
    pool.open_volume(pool.dataset(name).unwrap().dsl()).unwrap()
}

fn import(dir: &Path) -> Pool {
    let options = OpenOptions { write: true, force: true, ..OpenOptions::default() };
    Pool::open(&[dir], &options).unwrap()
}

fn contents(v: &Volume) -> Vec<u8> {
    let mut all = vec![0; v.size() as usize];
    v.read_at(&mut all, 0).unwrap();
    all
}

/// A seeded source of pseudorandom numbers.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
}

/// Makes one change to a volume, and the same to its model, an array.
fn change(v: &Volume, model: &mut Vec<u8>, dice: &mut Dice) {
    let size = model.len() as u64;
    let offset = dice.below(size);
    let len = (1 + dice.below(5 * BLOCK)).min(size - offset);
    let range = offset as usize..(offset + len) as usize;
    match dice.below(10) {
        0..=5 => {
            let data = testpools::noise(dice.0, len as usize);
            v.write_at(&data, offset).unwrap();
            model[range].copy_from_slice(&data);
        }
        6 | 7 => {
            v.punch(offset, len).unwrap();
            model[range].fill(0);
        }
        8 => {
            let size = (8 + dice.below(48)) * BLOCK.max(v.block_size());
            v.resize(size).unwrap();
            model.resize(size as usize, 0);
        }
        _ => v.flush().unwrap(),
    }
}

/// Goal: after any sequence of writes, punches and resizes, a volume holds what a plain array
/// would.
///
/// So it does after an export that `zdb` checks, and after a crash that follows a flush.
#[test]
fn like_an_array() {
    for (shape, disks) in [(VdevShape::Single, 1), (VdevShape::Raidz(1), 3)] {
        let dir = tempfile::tempdir().unwrap();
        let images = testpools::images(dir.path(), disks, 128 << 20);
        let pool = Pool::with_spa(testpools::new_pool(shape, &images), None).unwrap();
        let (mut dice, mut model) = (Dice(7), vec![0; 32 * BLOCK as usize]);
        let v = new_volume(&pool, "tank/v", model.len() as u64, BLOCK);
        for step in 0..150 {
            change(&v, &mut model, &mut dice);
            if step % 25 == 0 {
                assert!(contents(&v) == model, "step {step}");
            }
        }
        v.flush().unwrap();
        drop((v, pool));
        let pool = import(dir.path());
        let v = open(&pool, "tank/v");
        assert!(contents(&v) == model);
        (0..50).for_each(|_| change(&v, &mut model, &mut dice));
        pool.export().unwrap();
        drop((v, pool));
        testpools::judge(dir.path(), "tank");
        let pool = Pool::open(&[dir.path()], &OpenOptions::default()).unwrap();
        let v = pool.dataset("tank/v").unwrap().volume().unwrap();
        assert!(contents(&v) == model);
        assert!(matches!(v.write_at(b"x", 0), Err(Error::ReadOnly)));
    }
}

/// Goal: volumes that OpenZFS made can be written. Data next to the writes and their snapshots
/// stay.
#[test]
fn of_openzfs() {
    let copy = testkit::fixture_copy("zvols");
    let dir = copy.images()[0].parent().unwrap().to_owned();
    let pool = import(&dir);
    let mut models = Vec::new();
    for name in ["zvols/pat", "zvols/v512", "zvols/v1m", "zvols/v4k"] {
        let v = open(&pool, name);
        let (mut dice, mut model) = (Dice(3), contents(&v));
        (0..40).for_each(|_| change(&v, &mut model, &mut dice));
        models.push((name, model));
    }
    let before = contents(&pool.dataset("zvols/pat@one").unwrap().volume().unwrap());
    pool.export().unwrap();
    drop(pool);
    testpools::judge(&dir, "zvols");
    let pool = Pool::open(&[&dir], &OpenOptions::default()).unwrap();
    for (name, model) in models {
        assert!(contents(&pool.dataset(name).unwrap().volume().unwrap()) == model, "{name}");
    }
    assert!(contents(&pool.dataset("zvols/pat@one").unwrap().volume().unwrap()) == before);
}

/// Goal: each write is seen whole or not at all, under concurrent writes, within blocks and across
/// them.
#[test]
fn writes_are_whole() {
    const LEN: u64 = 3 * BLOCK / 2;
    let dir = tempfile::tempdir().unwrap();
    let images = testpools::images(dir.path(), 1, 128 << 20);
    let pool = Pool::with_spa(testpools::new_pool(VdevShape::Single, &images), None).unwrap();
    let v = new_volume(&pool, "tank/v", 4 * BLOCK, BLOCK);
    let write = |byte: u8| {
        for _ in 0..40 {
            v.write_at(&[byte; LEN as usize], BLOCK / 4).unwrap();
        }
    };
    std::thread::scope(|scope| {
        for byte in 1..5 {
            scope.spawn(move || write(byte));
        }
        let mut seen = vec![0; LEN as usize];
        for _ in 0..100 {
            v.read_at(&mut seen, BLOCK / 4).unwrap();
            assert!(seen.iter().all(|b| *b == seen[0]));
        }
    });
}

/// Goal: a write that covers whole blocks does not read them.
#[test]
fn whole_blocks_are_not_read() {
    let dir = tempfile::tempdir().unwrap();
    let images = testpools::images(dir.path(), 1, 128 << 20);
    let pool = Pool::with_spa(testpools::new_pool(VdevShape::Single, &images), None).unwrap();
    let v = new_volume(&pool, "tank/v", 64 * BLOCK, BLOCK);
    v.write_at(&testpools::noise(1, 64 * BLOCK as usize), 0).unwrap();
    v.flush().unwrap();
    let cache = pool.spa().cache();
    cache.purge();
    // This first write reads the dataset metadata that a space reservation needs.
    v.write_at(&testpools::noise(3, BLOCK as usize), 40 * BLOCK).unwrap();
    let before = cache.stats().misses;
    v.write_at(&testpools::noise(2, 16 * BLOCK as usize), 8 * BLOCK).unwrap();
    assert_eq!(cache.stats().misses, before);
    v.write_at(b"in part", 5 * BLOCK + 1).unwrap();
    assert!(cache.stats().misses > before);
}

/// Goal: overwritten blocks take no memory: the cache holds only the current blocks, however often
/// they were written.
#[test]
fn overwritten_blocks_are_not_cached() {
    let dir = tempfile::tempdir().unwrap();
    let images = testpools::images(dir.path(), 1, 128 << 20);
    let pool = Pool::with_spa(testpools::new_pool(VdevShape::Single, &images), None).unwrap();
    let v = new_volume(&pool, "tank/v", 64 * BLOCK, BLOCK);
    let write = |seed: u64| {
        v.write_at(&testpools::noise(seed, 64 * BLOCK as usize), 0).unwrap();
        pool.spa().writer().unwrap().sync_all().unwrap();
        pool.spa().cache().stats().size
    };
    let once = write(1);
    assert!(once > 64 * BLOCK);
    let often = (2..12).map(write).max().unwrap();
    assert!(often < 3 * once, "{often} bytes after {once}");
}

/// Goal: invalid operations are refused, and change nothing.
#[test]
fn refusals() {
    let dir = tempfile::tempdir().unwrap();
    let images = testpools::images(dir.path(), 1, 128 << 20);
    let pool = Pool::with_spa(testpools::new_pool(VdevShape::Single, &images), None).unwrap();
    let v = new_volume(&pool, "tank/v", 4 * BLOCK, BLOCK);
    assert!(matches!(v.write_at(b"xy", 4 * BLOCK - 1), Err(Error::PastEnd { .. })));
    assert!(matches!(v.write_at(b"xy", u64::MAX), Err(Error::PastEnd { .. })));
    assert!(matches!(v.punch(3 * BLOCK, BLOCK + 1), Err(Error::PastEnd { .. })));
    for size in [0, BLOCK + 1, u64::MAX / BLOCK * BLOCK] {
        assert!(matches!(v.resize(size), Err(Error::BadSize { .. })), "{size}");
    }
    assert!(contents(&v).iter().all(|b| *b == 0));
    let again = pool.open_volume(pool.dataset("tank/v").unwrap().dsl());
    assert!(matches!(again, Err(poolhouse::Error::Dataset(dsl::Error::Refused { .. }))));
    let file_system = pool.open_volume(pool.dataset("tank").unwrap().dsl());
    assert!(matches!(file_system, Err(poolhouse::Error::Volume(Error::NotVolume))));
}

/// A copy of the images that a crash now would leave. The held transaction keeps its txg from
/// syncing meanwhile.
fn crash(pool: &Pool, from: &Path) -> tempfile::TempDir {
    let live = pool.spa().writer().unwrap();
    let hold = live.tx(0).unwrap();
    live.txgs().wait_synced(Txg(hold.txg().0 - 1)).unwrap();
    let to = tempfile::tempdir().unwrap();
    let mut cp = std::process::Command::new("cp");
    let done = cp.args(["-r", "--sparse=always"]).arg(from.join(".")).arg(to.path()).status();
    assert!(done.unwrap().success());
    to
}

/// Goal: flushed data survives a crash, by its txg or by the log. The replay gives what a plain
/// array would hold.
#[test]
fn flushes_are_kept() {
    let dir = tempfile::tempdir().unwrap();
    let images = testpools::images(dir.path(), 2, 128 << 20);
    let pool = Pool::with_spa(testpools::new_pool(VdevShape::Mirror, &images), None).unwrap();
    let (mut dice, mut model) = (Dice(11), vec![0; 32 * BLOCK as usize]);
    let v = new_volume(&pool, "tank/v", model.len() as u64, BLOCK);
    let mut replayed = 0;
    for round in 0..8 {
        (0..1 + round).for_each(|_| change(&v, &mut model, &mut dice));
        v.flush().unwrap();
        let left = crash(&pool, dir.path());
        let after = import(left.path());
        let dataset = after.dataset("tank/v").unwrap();
        replayed += after.replay(dataset.dsl()).unwrap().map_or(0, |done| done.records);
        assert!(contents(&open(&after, "tank/v")) == model, "round {round}");
        after.export().unwrap();
        drop((dataset, after));
        if round == 7 {
            testpools::judge(left.path(), "tank");
        }
    }
    assert!(replayed > 10, "only {replayed} records were replayed");
}
