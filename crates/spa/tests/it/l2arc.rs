//! Cache devices: what does not fit into memory is read from them, and their failures cost no more
//! than a read of the pool.

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arc::CacheDeviceStats;
use codec::checksum::embedded::{self, Verifier};
use codec::checksum::fletcher4;
use codec::crypt::{CryptoSuite, WrappingKey};
use dsl::keys::KeyFormat;
use dsl::ops::create::Create;
use dsl::ops::key::{NewCrypt, NewKey};
use dsl::ops::props::{SetAs, SetProps, Setting};
use ondisk::l2arc::{DevHeader, L2ARC_HDR_OFFSET, L2ARC_HDR_SIZE, L2ARC_LOG_BLK_SIZE, LogBlock, LogEntry};
use ondisk::{BlkId, ByteOrder, CompressKind, Guid, Level, ObjNum};
use spa::Spa;
use spa::create::{CreateError, NewLeaf, VdevShape, claim_file};
use spa::engine::{PoolWriter, ShapeError};
use spa::import::Options;
use vdev::VdevState;
use zio::Bookmark;

const MIB: usize = 1 << 20;
/// More than the small cache of these pools holds.
const FILE: usize = 24 * MIB;

fn live(spa: &Spa) -> &PoolWriter {
    spa.writer().unwrap()
}

/// Sets tunables: the tests feed the device themselves, and each list has one sublist.
fn steer() {
    arc::tunables::L2ARC_FEED_SECS.set(100_000);
    arc::tunables::ARC_NUM_SUBLISTS.set(1);
    arc::tunables::L2ARC_REBUILD_BLOCKS_MIN_L2SIZE.set(0);
}

/// A pool on one device, with a small cache and a cache device of a given size.
struct Bench {
    dir: tempfile::TempDir,
    spa: Option<Spa>,
    guid: Guid,
    /// The dataset that is written and read.
    dataset: &'static str,
}

impl Bench {
    fn new(cache_device: usize) -> Bench {
        steer();
        let dir = tempfile::tempdir().unwrap();
        drop(testpools::new_pool(VdevShape::Single, &testpools::images(dir.path(), 1, 256 << 20)));
        let mut bench = Bench { dir, spa: None, guid: Guid(0), dataset: "tank" };
        bench.import();
        let image = std::fs::File::create(bench.image()).unwrap();
        image.set_len(cache_device as u64).unwrap();
        let leaf = NewLeaf { path: bench.image() };
        live(bench.spa()).vdevs().add_aux(&[], &[leaf], false, &claim_file).unwrap();
        bench.guid = bench.spa().l2cache()[0].config.guid;
        bench
    }

    fn import(&mut self) {
        drop(self.spa.take());
        // The tests control reads and feeding, so prefetch is off.
        let options = Options { cache: (8u64 << 20).into(), read_ahead: false, ..Options::default() };
        self.spa = Some(testpools::import_as(self.dir.path(), options).unwrap());
    }

    fn spa(&self) -> &Spa {
        self.spa.as_ref().unwrap()
    }

    fn path(&self) -> &Path {
        self.dir.path()
    }

    fn image(&self) -> PathBuf {
        self.path().join("cache.img")
    }

    fn feed(&self) -> u64 {
        self.spa().cache().store().feed_cache_devices()
    }

    fn stats(&self) -> CacheDeviceStats {
        self.spa().cache().device_stats(self.guid).unwrap()
    }

    fn counter(&self, name: &str) -> u64 {
        let all = self.spa().cache().store().named();
        all.iter().find(|(n, _)| *n == name).unwrap_or_else(|| panic!("no {name}")).1
    }

    /// Bytes read from the pool's own device.
    fn pool_reads(&self) -> u64 {
        self.spa().tree().describe().stats.read_bytes
    }

    fn write(&self, bytes: &[u8]) -> ObjNum {
        let owned = testpools::own(live(self.spa()), self.dataset);
        let file = testpools::write_file(live(self.spa()), &owned, bytes).unwrap();
        live(self.spa()).sync_all().unwrap();
        file
    }

    /// Reads a file in pieces and feeds after each, so that all of it goes to the cache device.
    fn read_and_feed(&self, file: ObjNum, len: usize) {
        let owned = testpools::own(live(self.spa()), self.dataset);
        let dn = owned.objset().dnode(file).unwrap();
        let mut piece = vec![0; 2 * MIB];
        for at in (0..len).step_by(piece.len()) {
            dn.read_at(at as u64, &mut piece).unwrap();
            self.feed();
        }
    }

    fn read(&self, file: ObjNum, len: usize) -> Vec<u8> {
        testpools::read_file(&testpools::own(live(self.spa()), self.dataset), file, len)
    }
}

/// Contents of which half compresses well.
fn contents(seed: u64) -> Vec<u8> {
    let mut bytes = testpools::noise(seed, FILE / 2);
    bytes.extend((0..FILE / 2).map(|n| (n / 997) as u8));
    bytes
}

/// Goal: a working set larger than the cache is read from the cache device, and not from the pool.
#[test]
fn what_does_not_fit_is_read_from_the_cache_device() {
    let bench = Bench::new(64 * MIB);
    let bytes = contents(1);
    let file = bench.write(&bytes);
    // Blocks that are in memory from the writes might be evicted before they are fed.
    bench.spa().cache().purge();
    bench.read_and_feed(file, FILE);
    let (ours, pool) = (bench.stats(), bench.pool_reads());
    let evicted = || ["evict_l2_cached", "evict_l2_eligible"].map(|name| bench.counter(name));
    let before = evicted();
    assert!(ours.bytes[1] > (FILE / 2) as u64, "{ours:?}");
    assert_eq!(bench.read(file, FILE), bytes);
    let (after, pool_after) = (bench.stats(), bench.pool_reads());
    // At least a half of the incompressible half: the rest is in memory.
    assert!(after.bytes[0] - ours.bytes[0] > (FILE / 4) as u64, "{ours:?} {after:?}");
    // What is fed no caller waits for; what is read has the class of its reader.
    let of = |class| after.classes.iter().filter(|one| one.class == class).map(|one| one.bytes).sum::<u64>();
    assert!(of(vdev::Priority::SyncRead) > (FILE / 4) as u64, "{after:?}");
    assert_eq!(of(vdev::Priority::AsyncWrite), after.bytes[1]);
    let sum = |io| after.classes.iter().filter(|one| one.io == io).map(|one| one.bytes).sum::<u64>();
    assert_eq!(after.bytes, [sum(vdev::IoType::Read), sum(vdev::IoType::Write)]);
    assert!(pool_after - pool < (FILE / 20) as u64, "{} bytes came from the pool", pool_after - pool);
    assert!(bench.counter("l2_hits") > 0);
    // The evicted blocks had been fed, so the cache device has them.
    let [cached, eligible] = [0, 1].map(|n| evicted()[n] - before[n]);
    assert!(cached > (FILE / 4) as u64 && eligible < (FILE / 20) as u64, "{cached} and {eligible} bytes");
    assert_eq!((bench.counter("l2_cksum_bad"), bench.counter("l2_io_error")), (0, 0));
    assert!(after.alloc > 0 && after.alloc <= after.space);
}

/// Goal: damaged data on the cache device is detected, is counted for that device, and does no harm
/// to the pool.
#[test]
fn a_damaged_cache_device_costs_a_read() {
    let bench = Bench::new(64 * MIB);
    let bytes = contents(2);
    let file = bench.write(&bytes);
    bench.read_and_feed(file, FILE);
    let image = std::fs::OpenOptions::new().write(true).open(bench.image()).unwrap();
    image.write_all_at(&vec![0x5a; 50 * MIB], 5 << 20).unwrap();
    assert_eq!(bench.read(file, FILE), bytes);
    assert!(bench.counter("l2_cksum_bad") > 0);
    assert_eq!(bench.stats().checksum_errors, bench.counter("l2_cksum_bad"));
    let errors = bench.spa().tree().describe().stats;
    assert_eq!((errors.read_errors, errors.checksum_errors), (0, 0));
    // A block that was found damaged is not read there again.
    let bad = bench.counter("l2_cksum_bad");
    assert_eq!(bench.read(file, FILE), bytes);
    assert!(bench.counter("l2_cksum_bad") - bad < bad.max(2), "places that were wrong were not forgotten");
}

/// Goal: a cache device that shrinks to nothing while in use fails reads and writes, and the pool
/// continues.
#[test]
fn a_cache_device_that_vanishes_costs_a_read() {
    let bench = Bench::new(64 * MIB);
    let bytes = contents(3);
    let file = bench.write(&bytes);
    bench.read_and_feed(file, FILE);
    std::fs::OpenOptions::new().write(true).open(bench.image()).unwrap().set_len(0).unwrap();
    assert_eq!(bench.read(file, FILE), bytes);
    assert!(bench.counter("l2_io_error") > 0);
    bench.feed();
    assert_eq!(bench.read(file, FILE), bytes);
    assert!(live(bench.spa()).vdevs().remove_aux(bench.guid).is_ok());
    assert!(bench.spa().cache().device_stats(bench.guid).is_none());
    assert_eq!(bench.read(file, FILE), bytes);
}

/// Goal: the write position wraps around a device that is smaller than the data fed to it.
/// Overwritten and freed blocks are dropped from the index.
#[test]
fn a_small_device_is_written_round_and_round() {
    let bench = Bench::new(64 * MIB);
    let files: Vec<ObjNum> = (0..3).map(|n| bench.write(&testpools::noise(10 + n, FILE))).collect();
    for _ in 0..3 {
        for file in &files {
            bench.read_and_feed(*file, FILE);
        }
    }
    let stats = bench.stats();
    assert!(stats.bytes[1] > 2 * stats.space, "it was filled more than once: {stats:?}");
    assert!(stats.alloc <= stats.space, "{stats:?}");
    for (n, file) in files.iter().enumerate() {
        assert_eq!(bench.read(*file, FILE), testpools::noise(10 + n as u64, FILE));
    }
    assert_eq!(
        bench.counter("l2_cksum_bad"),
        0,
        "nothing that was written over is still believed to be there"
    );
    let owned = testpools::own(live(bench.spa()), "tank");
    for file in files {
        testpools::remove_file(live(bench.spa()), &owned, file).unwrap();
    }
    drop(owned);
    for _ in 0..6 {
        live(bench.spa()).sync_all().unwrap();
    }
    let left = bench.stats().alloc;
    assert!(left < stats.alloc / 4, "{left} of {} bytes are still counted", stats.alloc);
}

impl Bench {
    /// Exports the pool. `zdb` must confirm the header of the cache device; returns its output.
    fn export_and_ask(&mut self) -> Option<String> {
        let spa = self.spa.take().unwrap();
        live(&spa).export().unwrap();
        drop(spa);
        testpools::judge(self.path(), "tank");
        let out =
            std::process::Command::new(testpools::zdb()?).arg("-llll").arg(self.image()).output().unwrap();
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        assert!(out.status.success(), "{text}{}", String::from_utf8_lossy(&out.stderr));
        assert!(text.contains("L2ARC device header"), "{text}");
        assert!(text.contains(" 0 with invalid cksum"), "{text}");
        Some(text)
    }

    fn await_rebuilt(&self) {
        self.spa().cache().await_rebuilt(self.guid);
    }
}

/// The number of log blocks that `zdb` found.
fn log_blocks(text: &str) -> u64 {
    let line = text.lines().find(|l| l.contains("with valid cksum")).unwrap_or_else(|| panic!("{text}"));
    line.trim_start_matches("log_blk_count:").split_whitespace().next().unwrap().parse().unwrap()
}

/// Goal: an import rebuilds the contents of the cache device, and `zdb` agrees with every log
/// block.
#[test]
fn it_is_warm_after_an_import() {
    let mut bench = Bench::new(64 * MIB);
    let bytes = contents(20);
    let file = bench.write(&bytes);
    bench.read_and_feed(file, FILE);
    let logs = bench.counter("l2_log_blk_count");
    assert!(logs > 10, "{logs}");
    if let Some(text) = bench.export_and_ask() {
        assert_eq!(log_blocks(&text), logs, "{text}");
        assert!(text.contains("lb[   1]"), "{text}");
    }
    bench.import();
    bench.await_rebuilt();
    assert_eq!(bench.counter("l2_rebuild_success"), 1);
    assert_eq!(bench.counter("l2_rebuild_log_blks"), logs);
    let pool = bench.pool_reads();
    assert_eq!(bench.read(file, FILE), bytes);
    let from_pool = bench.pool_reads() - pool;
    assert!(from_pool < (FILE / 8) as u64, "{from_pool} bytes came from the pool");
    assert!(bench.counter("l2_hits") > 50);
    assert_eq!(bench.counter("l2_cksum_bad"), 0);
    // It continues where it was and can be rebuilt once more, also after it has wrapped.
    for n in 0..4 {
        let more = bench.write(&testpools::noise(30 + n, FILE));
        bench.read_and_feed(more, FILE);
    }
    let logs = bench.counter("l2_log_blk_count");
    if let Some(text) = bench.export_and_ask() {
        // OpenZFS also drops a log block that begins where the evicted range ends.
        assert!(logs.abs_diff(log_blocks(&text)) <= 1, "{logs}: {text}");
    }
    bench.import();
    bench.await_rebuilt();
    assert_eq!((bench.counter("l2_rebuild_success"), bench.counter("l2_rebuild_log_blks")), (1, logs));
    assert_eq!(bench.read(file, FILE), bytes);
    assert_eq!(bench.counter("l2_cksum_bad"), 0);
}

/// Goal: a pool that gets another guid keeps the contents of its cache device. A cache device in
/// use can't be added again.
#[test]
fn it_is_the_pools_own() {
    let mut bench = Bench::new(64 * MIB);
    let bytes = contents(70);
    let file = bench.write(&bytes);
    bench.read_and_feed(file, FILE);
    let again = NewLeaf { path: bench.image() };
    let refused = live(bench.spa()).vdevs().add_aux(&[], &[again], true, &claim_file).unwrap_err();
    assert!(matches!(refused, ShapeError::Devices(CreateError::InUse { .. })), "{refused:?}");
    live(bench.spa()).reguid(None).unwrap();
    bench.feed();
    bench.import();
    bench.await_rebuilt();
    assert_eq!(bench.counter("l2_rebuild_success"), 1);
    assert_eq!(bench.read(file, FILE), bytes);
    assert!(bench.counter("l2_hits") > 50);
}

/// Goal: a damaged log, or one that leads to overwritten blocks, is used as far as its checksums
/// are right. No read returns wrong data.
#[test]
fn a_damaged_log_is_not_believed() {
    let mut bench = Bench::new(64 * MIB);
    let bytes = contents(40);
    let file = bench.write(&bytes);
    bench.read_and_feed(file, FILE);
    drop(bench.spa.take());
    let image = std::fs::OpenOptions::new().read(true).write(true).open(bench.image()).unwrap();
    let good = std::fs::read(bench.image()).unwrap();
    let mut cut = 0;
    for n in 0..12u64 {
        image.write_all_at(&good[4 * MIB..], 4 << 20).unwrap();
        // The first four rounds damage the header, the others any place.
        let at = if n < 4 { (4 << 20) + n * 100 } else { (5 << 20) + n * 977_777 };
        let len = if n < 4 { 8 } else { 3 * MIB };
        image.write_all_at(&testpools::noise(n, len), at).unwrap();
        bench.import();
        bench.await_rebuilt();
        let aborted = ["l2_rebuild_dh_errors", "l2_rebuild_unsupported", "l2_rebuild_cksum_lb_errors"];
        cut += aborted.iter().map(|c| bench.counter(c)).sum::<u64>();
        assert_eq!(bench.read(file, FILE), bytes, "damage {n}");
        drop(bench.spa.take());
    }
    assert!(cut >= 4, "{cut}");
}

/// Goal: `secondarycache` decides what a dataset feeds to the device, also if it is set while the
/// dataset is in use.
#[test]
fn a_dataset_says_what_goes_there() {
    let bench = Bench::new(64 * MIB);
    let set = |value: u64| {
        let prop = vec![Setting { name: "secondarycache".into(), value: dsl::Value::Number(value) }];
        let source = SetAs::Local;
        live(bench.spa()).run(Box::new(SetProps { name: "tank".into(), props: prop, source })).unwrap();
    };
    set(1);
    let file = bench.write(&testpools::noise(50, FILE));
    bench.read_and_feed(file, FILE);
    assert_eq!(bench.counter("l2_bufc_data_asize"), 0);
    set(2);
    bench.read_and_feed(file, FILE);
    assert!(bench.counter("l2_bufc_data_asize") > (FILE / 2) as u64);
}

/// Goal: concurrent feeding, eviction, reads, frees and removal of the device leave every read
/// right. At the end all counters are back at zero.
#[test]
fn all_at_once() {
    let bench = Bench::new(64 * MIB);
    let len = 4 * MIB;
    let files: Vec<ObjNum> = (0..4).map(|n| bench.write(&testpools::noise(60 + n, len))).collect();
    let owned = testpools::own(live(bench.spa()), "tank");
    let store = bench.spa().cache().store().clone();
    let stop = std::sync::atomic::AtomicBool::new(false);
    let over = || stop.load(std::sync::atomic::Ordering::Relaxed);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over() {
                store.feed_cache_devices();
            }
        });
        scope.spawn(|| {
            let mut n = 100;
            while !over() {
                let file =
                    testpools::write_file(live(bench.spa()), &owned, &testpools::noise(n, MIB)).unwrap();
                live(bench.spa()).sync_all().unwrap();
                assert_eq!(testpools::read_file(&owned, file, MIB), testpools::noise(n, MIB));
                testpools::remove_file(live(bench.spa()), &owned, file).unwrap();
                n += 1;
            }
        });
        let readers: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| {
                    for round in 0..24 {
                        let n = round % files.len();
                        assert_eq!(
                            testpools::read_file(&owned, files[n], len),
                            testpools::noise(60 + n as u64, len)
                        );
                    }
                })
            })
            .collect();
        readers.into_iter().for_each(|r| r.join().unwrap());
        live(bench.spa()).vdevs().remove_aux(bench.guid).unwrap();
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    let left = ["l2_asize", "l2_size", "l2_hdr_size", "l2_log_blk_count", "l2_log_blk_asize"];
    assert_eq!(left.map(|c| bench.counter(c)), [0; 5]);
    drop(owned);
    // A purge drops ghost entries too, so what is left was never released.
    bench.spa().cache().purge();
    assert_eq!(store.stats().size, 0);
}

impl Bench {
    /// The header as stored on the device.
    fn header(&self) -> DevHeader {
        let mut raw = [0; L2ARC_HDR_SIZE];
        std::fs::File::open(self.image()).unwrap().read_exact_at(&mut raw, L2ARC_HDR_OFFSET).unwrap();
        DevHeader::decode(&raw).unwrap()
    }

    /// Changes the newest log block, and recomputes the checksums.
    fn relog(&self, change: impl Fn(&mut Vec<LogEntry>)) {
        let mut header = self.header();
        let newest = &mut header.newest[0];
        let image = std::fs::OpenOptions::new().read(true).write(true).open(self.image()).unwrap();
        let mut raw = vec![0; newest.asize as usize];
        image.read_exact_at(&mut raw, newest.daddr).unwrap();
        let mut plain = vec![0; L2ARC_LOG_BLK_SIZE];
        let kind = if newest.packed { CompressKind::Lz4 } else { CompressKind::Off };
        codec::compress::decompress(kind, &raw, &mut plain).unwrap();
        let mut block = LogBlock::decode(&plain, header.log_entries).unwrap();
        change(&mut block.entries);
        let plain = block.encode();
        image.write_all_at(&plain, newest.daddr).unwrap();
        // It is the last written block, so there is space after it.
        (newest.packed, newest.asize) = (false, plain.len() as u64);
        newest.sum = fletcher4(ByteOrder::Little, &plain).0;
        self.set_header(&header);
    }

    fn set_header(&self, header: &DevHeader) {
        let mut sector = header.encode().to_vec();
        embedded::seal(&Verifier::Label { offset: L2ARC_HDR_OFFSET }, &mut sector, None).unwrap();
        let image = std::fs::OpenOptions::new().write(true).open(self.image()).unwrap();
        image.write_all_at(&sector, L2ARC_HDR_OFFSET).unwrap();
    }
}

/// Goal: if the pool is exported just after a new round began, before any write of it, the contents
/// after the write position are rebuilt.
#[test]
fn it_is_warm_when_a_round_has_just_begun() {
    let mut bench = Bench::new(64 * MIB);
    let sizes = [24 * MIB, 17 * MIB];
    let fill = |(n, len): (u64, usize)| {
        let file = bench.write(&testpools::noise(60 + n, len));
        bench.read_and_feed(file, len);
        file
    };
    let files: Vec<ObjNum> = (0u64..).zip(sizes).map(fill).collect();
    // Both files are fed at once, so nothing is left for the next round.
    let logs = bench.counter("l2_log_blk_count");
    drop(bench.spa.take());
    // The state when the first round came close enough to the end and everything was written.
    let mut header = bench.header();
    assert!(header.first && header.newest[0].daddr > 40 << 20, "{header:?}");
    (header.first, header.evict) = (false, header.start + (15 << 20));
    bench.set_header(&header);
    bench.import();
    bench.await_rebuilt();
    let found = bench.counter("l2_rebuild_log_blks");
    assert_eq!(bench.counter("l2_rebuild_success"), 1);
    assert!(found > logs / 2 && found < logs, "{found} of {logs}");
    let pool = bench.pool_reads();
    assert_eq!(bench.read(files[1], sizes[1]), testpools::noise(61, sizes[1]));
    let from_pool = bench.pool_reads() - pool;
    assert!(from_pool < (sizes[1] / 4) as u64, "{from_pool} bytes came from the pool");
    assert_eq!(bench.counter("l2_cksum_bad"), 0);
}

/// Goal: a log with entries at unaligned offsets, or with overlapping ones, is used as far as its
/// other entries go.
#[test]
fn a_log_that_contradicts_itself() {
    let mut bench = Bench::new(64 * MIB);
    let bytes = testpools::noise(70, 12 * MIB);
    let file = bench.write(&bytes);
    bench.read_and_feed(file, bytes.len());
    drop(bench.spa.take());
    bench.import();
    bench.await_rebuilt();
    let all = bench.counter("l2_rebuild_bufs");
    assert!(all > 50, "{all}");
    drop(bench.spa.take());
    bench.relog(|entries| {
        assert_eq!(entries.len(), 3);
        entries[0].daddr += 1;
        entries[1].daddr = entries[2].daddr - 512;
    });
    bench.import();
    bench.await_rebuilt();
    assert_eq!((bench.counter("l2_rebuild_success"), bench.counter("l2_rebuild_bufs")), (1, all - 2));
    assert_eq!(bench.read(file, bytes.len()), bytes);
    assert_eq!(bench.counter("l2_cksum_bad"), 0);
}

/// Goal: prefetched blocks go to a cache device only after a read has used them, or if
/// `l2arc_noprefetch` is 0.
#[test]
fn what_nobody_has_asked_for() {
    let mut bench = Bench::new(64 * MIB);
    let bytes = testpools::noise(80, MIB);
    let file = bench.write(&bytes);
    bench.import();
    bench.await_rebuilt();
    while bench.feed() > 0 {}
    let owned = testpools::own(live(bench.spa()), "tank");
    let dn = owned.objset().dnode(file).unwrap();
    let cache = bench.spa().cache();
    let data = || bench.counter("l2_bufc_data_asize");
    let before = data();
    for n in 0..8 {
        let bp = dn.bp(Level(0), BlkId(n)).unwrap();
        let bookmark =
            Bookmark { objset: owned.objset().id(), object: file, level: Level(0), blkid: BlkId(n) };
        cache.fetch_ahead(&bp, &bookmark);
    }
    assert_eq!(bench.counter("prefetch_data_misses"), 8);
    bench.feed();
    assert_eq!(data(), before, "nobody has asked");
    // Half of the file.
    dn.read_at(0, &mut vec![0; MIB / 2]).unwrap();
    bench.feed();
    assert_eq!((data() - before, bench.counter("l2_prefetch_asize")), (MIB as u64 / 2, 0));
    arc::tunables::L2ARC_NOPREFETCH.set(0);
    bench.feed();
    arc::tunables::L2ARC_NOPREFETCH.set(1);
    assert_eq!((data() - before, bench.counter("l2_prefetch_asize")), (MIB as u64, MIB as u64 / 2));
}

/// The key of the encrypted datasets of these tests.
const KEY: [u8; 32] = [7; 32];

impl Bench {
    /// A bench whose dataset has this compression, encrypted or not.
    fn of_dataset(compression: u64, encrypted: bool) -> Bench {
        let mut bench = Bench::new(64 * MIB);
        let key = Arc::new(WrappingKey::from_raw(KEY));
        let location = Some("prompt".into());
        let key = NewKey { format: KeyFormat::Raw, location, key, salt: 0, iterations: 0 };
        let crypt = NewCrypt { suite: Some(CryptoSuite::Aes256Gcm), off: false, key: Some(key) };
        let props = vec![Setting { name: "compression".into(), value: dsl::Value::Number(compression) }];
        let create = Create { crypt: encrypted.then_some(crypt), ..*testpools::file_system("tank/e", props) };
        live(bench.spa()).run(Box::new(create)).unwrap();
        bench.dataset = "tank/e";
        bench
    }

    fn load_key(&self) {
        let dsl = live(self.spa()).dsl();
        dsl.keys().load(&dsl.dir(self.dataset).unwrap(), &KEY, false).unwrap();
    }
}

/// Bytes of which each block compresses by about a third.
fn packable(seed: u64) -> Vec<u8> {
    let mut bytes = testpools::noise(seed, FILE);
    bytes.chunks_mut(96).for_each(|piece| piece[64..].fill(7));
    bytes
}

/// Goal: blocks compressed by any level of zstd, and encrypted blocks, go to the cache device in
/// their on-disk form. They may come from a write or a read.
///
/// Reads find them there, also after an import, and `zdb` finds their compression right. No
/// plaintext of an encrypted dataset is on the device, and without the key no block can be read
/// from it.
#[test]
fn zstd_and_secrets_go_there_too() {
    let (zstd_1, zstd_fast, lz4, off) = (144, 13_200, 15, 2);
    for (compression, encrypted, level) in
        [(zstd_1, false, 1), (zstd_1, true, 1), (zstd_fast, true, 103), (lz4, true, 0), (off, true, 0)]
    {
        let what = format!("compression {compression}, encrypted: {encrypted}");
        let mut bench = Bench::of_dataset(compression, encrypted);
        let bytes = packable(90);
        // Blocks are fed as they were written, just before their eviction.
        let file = bench.write(&bytes);
        while bench.feed() > 0 {}
        let fresh = bench.counter("l2_bufc_data_asize");
        assert!(fresh > MIB as u64, "{what}: {fresh} bytes as they were written");
        // Blocks are fed as they were read.
        bench.read_and_feed(file, FILE);
        let there = bench.counter("l2_bufc_data_asize");
        assert!(there > (FILE / 2) as u64, "{what}: {there} bytes");
        let image = std::fs::read(bench.image()).unwrap();
        let clear = image.chunks_exact(32).filter(|piece| *piece == [7; 32]).count();
        assert_eq!(clear > 0, !encrypted && compression == off, "{what}");
        for imported in [false, true] {
            if imported {
                if let Some(text) = bench.export_and_ask() {
                    let compress = if level > 0 { 16 } else { compression };
                    let protected = u8::from(encrypted);
                    let marks = [
                        ("compr", compress),
                        ("complevel", level),
                        ("type", 0),
                        ("protected", protected.into()),
                    ];
                    let lines = marks.map(|(name, value)| format!("{name}: {value}\n"));
                    let so = |entry: &str| lines.iter().all(|line| entry.contains(line));
                    assert!(text.split("le[").filter(|entry| so(entry)).count() > 50, "{what}: {text}");
                }
                bench.import();
                bench.await_rebuilt();
                if encrypted {
                    let dsl = live(bench.spa()).dsl();
                    assert!(dsl.heads().own(&dsl.dataset("tank/e").unwrap()).is_err(), "{what}: locked");
                    let os = dsl.dataset("tank/e").unwrap().objset().unwrap().unwrap();
                    let read = os.dnode(file).and_then(|dn| dn.read_at(0, &mut [0; 512]));
                    assert!(read.is_err(), "{what}: {read:?}");
                    bench.load_key();
                }
            }
            let (hits, pool) = (bench.counter("l2_hits"), bench.pool_reads());
            assert!(bench.read(file, FILE) == bytes, "{what}");
            let from_pool = bench.pool_reads() - pool;
            assert!(from_pool < (FILE / 8) as u64, "{what}: {from_pool} bytes came from the pool");
            assert!(bench.counter("l2_hits") - hits > 50, "{what}");
            assert_eq!((bench.counter("l2_cksum_bad"), bench.counter("l2_io_error")), (0, 0), "{what}");
        }
        live(bench.spa()).vdevs().remove_aux(bench.guid).unwrap();
        bench.spa().cache().purge();
        assert_eq!(bench.spa().cache().store().stats().size, 0, "{what}: what was taken is given back");
    }
}

/// Goal: an offline cache device is neither read nor written, and stays offline over an import
/// unless that was temporary.
///
/// Its contents are rebuilt when it is online again. A device that disappeared is reported as
/// unavailable.
#[test]
fn it_goes_offline_and_comes_back() {
    let mut bench = Bench::new(64 * MIB);
    let state = |bench: &Bench| bench.spa().l2cache()[0].state;
    let bytes = contents(100);
    let file = bench.write(&bytes);
    bench.read_and_feed(file, FILE);
    let logs = bench.counter("l2_log_blk_count");
    for temporary in [false, true] {
        live(bench.spa()).vdevs().offline(bench.guid, temporary).unwrap();
        assert_eq!(state(&bench), VdevState::Offline);
        assert!(bench.spa().cache().device_stats(bench.guid).is_none());
        let hits = bench.counter("l2_hits");
        assert!(bench.read(file, FILE) == bytes);
        assert_eq!((bench.feed(), bench.counter("l2_hits"), bench.counter("l2_size")), (0, hits, 0));
        // A second request is no error.
        live(bench.spa()).vdevs().offline(bench.guid, temporary).unwrap();
        let told = bench.export_and_ask();
        assert!(told.is_none_or(|text| log_blocks(&text) == logs));
        bench.import();
        let now = if temporary { VdevState::Healthy } else { VdevState::Offline };
        assert_eq!(state(&bench), now);
        assert_eq!(live(bench.spa()).vdevs().online(bench.guid, false).unwrap(), VdevState::Healthy);
        assert_eq!(state(&bench), VdevState::Healthy);
        bench.await_rebuilt();
        assert_eq!((bench.counter("l2_rebuild_success"), bench.counter("l2_rebuild_log_blks")), (1, logs));
        let pool = bench.pool_reads();
        assert!(bench.read(file, FILE) == bytes);
        assert!(bench.pool_reads() - pool < (FILE / 8) as u64);
    }
    assert!(live(bench.spa()).vdevs().online(bench.guid, true).is_err(), "it does not grow");
    live(bench.spa()).vdevs().offline(bench.guid, false).unwrap();
    std::fs::rename(bench.image(), bench.path().join("elsewhere")).unwrap();
    assert_eq!(live(bench.spa()).vdevs().online(bench.guid, false).unwrap(), VdevState::CantOpen);
    assert_eq!(state(&bench), VdevState::CantOpen);
    std::fs::rename(bench.path().join("elsewhere"), bench.image()).unwrap();
    assert_eq!(live(bench.spa()).vdevs().online(bench.guid, false).unwrap(), VdevState::Healthy);
}
