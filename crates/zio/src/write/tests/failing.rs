//! Writes whose devices fail: written elsewhere, later, or not at all.

use super::{BOOKMARK, READ, noise, req};
use crate::{FailMode, IoFlags, NoSpace, ReadOptions, Reason, Space, Want, WritePolicy, Zio};
use device::{AlignedBuf, Block, Device, Fault, Faulty, MemDevice, Op};
use observe::lock::Mutex;
use ondisk::label::{LABEL_START_SIZE, SPA_MINDEVSIZE};
use ondisk::{Ashift, Asize, Blkptr, DmuType, Dva, Guid, Offset, Psize, Txg, VdevConfig, VdevId, VdevKind};
use std::collections::BTreeSet;
use std::sync::Arc;
use vdev::Tree;

/// Allocates slots of 128 KiB from the vdevs that take blocks, in turns, the first free one of
/// each.
struct Slots {
    tree: Arc<Tree>,
    taken: Mutex<BTreeSet<(u32, u64)>>,
    turn: Mutex<u32>,
}

pub(super) const SLOT: u64 = 128 << 10;

impl Space for Slots {
    fn allocate(&self, want: &Want) -> Result<[Option<Dva>; 3], NoSpace> {
        let (mut taken, mut turn) = (self.taken.lock(), self.turn.lock());
        let mut dvas = [None; 3];
        for dva in dvas.iter_mut().take(want.copies.into()) {
            let tops = self.tree.top_count();
            let at = (0..tops).map(|n| (*turn + n) % tops).find(|n| self.tree.takes_blocks(VdevId(*n)));
            let vdev = at.ok_or(NoSpace)?;
            *turn = vdev + 1;
            let slot = (0..100).find(|s| !taken.contains(&(vdev, *s))).ok_or(NoSpace)?;
            taken.insert((vdev, slot));
            let asize = self.tree.psize_to_asize(VdevId(vdev), want.psize, want.txg).map_err(|_| NoSpace)?;
            *dva = Some(Dva { vdev: VdevId(vdev), offset: Offset(slot * SLOT), asize, gang: false });
        }
        Ok(dvas)
    }

    fn free(&self, _: &Dva, _: Txg, _: Txg) {}

    fn unallocate(&self, dva: &Dva, _: Txg) {
        assert!(
            self.taken.lock().remove(&(dva.vdev.0, dva.offset.0 / SLOT)),
            "what was taken is given back once"
        );
    }
}

pub(super) struct Bench {
    pub(super) zio: Arc<Zio>,
    space: Arc<Slots>,
    pub(super) devices: Vec<Arc<Faulty>>,
}

fn leaf(id: u64) -> VdevConfig {
    VdevConfig { id, ashift: Some(Ashift(12)), ..VdevConfig::new(VdevKind::File, Guid(100 + id)) }
}

pub(super) fn bench(tops: u64) -> Bench {
    bench_of((0..tops).map(leaf).collect(), tops)
}

fn mirror() -> Bench {
    let children = (0..2).map(leaf).collect();
    let mirror =
        VdevConfig { ashift: Some(Ashift(12)), children, ..VdevConfig::new(VdevKind::Mirror, Guid(10)) };
    bench_of(vec![mirror], 2)
}

fn bench_of(children: Vec<VdevConfig>, leaves: u64) -> Bench {
    let mem = |_| Arc::new(Faulty::new(Arc::new(MemDevice::new("d", SPA_MINDEVSIZE)), 1));
    let devices: Vec<Arc<Faulty>> = (0..leaves).map(mem).collect();
    let root = VdevConfig { children, ..VdevConfig::new(VdevKind::Root, Guid(1)) };
    let open = &mut |leaf: &VdevConfig| Ok(devices[leaf.guid.0 as usize - 100].clone() as Arc<dyn Device>);
    let tree = Arc::new(Tree::open(&root, open).unwrap());
    let zio = Zio::new(Arc::clone(&tree));
    let space = Arc::new(Slots { tree, taken: Mutex::default(), turn: Mutex::default() });
    zio.set_space(space.clone());
    Bench { zio: Arc::new(zio), space, devices }
}

impl Bench {
    pub(super) fn attend(&self) {
        self.zio.suspension().attend("tank", FailMode::Wait, Box::new(|| ()));
    }

    /// Waits until the pool is suspended, repairs its devices and clears it.
    pub(super) fn rescue(&self) {
        self.rescue_into(None);
    }

    fn wait_suspended(&self) {
        while self.zio.suspension().reason() != Some(Reason::Io) {
            std::thread::yield_now();
        }
    }

    /// The same, but then the first device fails in another way.
    fn rescue_into(&self, fault: Option<Fault>) {
        self.wait_suspended();
        self.devices.iter().for_each(|d| d.heal());
        fault.into_iter().for_each(|f| self.devices[0].inject(f));
        self.zio.tree().clear(None).unwrap();
        self.zio.suspension().clear();
    }
}

pub(super) const ALL: std::ops::Range<u64> = 0..u64::MAX;

/// Goal: a block that meets a bad place goes to another one, and no other block moves. The bad
/// place is given back.
#[test]
fn bad_places_are_left() {
    let b = bench(1);
    let bad = LABEL_START_SIZE + SLOT..LABEL_START_SIZE + 2 * SLOT;
    b.devices[0].inject(Fault::Error { op: Op::Write, range: bad });
    let reqs: Vec<_> = (0..4).map(|_| req(noise(8192), WritePolicy::PLAIN)).collect();
    let bps = b.zio.write_batch(Txg(4), reqs, &b.zio.workers()).unwrap();
    let slots: Vec<u64> =
        bps.iter().map(|bp| bp.stored().unwrap().dvas[0].unwrap().offset.0 / SLOT).collect();
    assert_eq!(slots, [0, 4, 2, 3]);
    assert_eq!(*b.space.taken.lock(), [(0, 0), (0, 2), (0, 3), (0, 4)].into());
    assert!(bps.iter().all(|bp| b.zio.read(bp, &BOOKMARK, &READ).unwrap() == noise(8192)));
}

/// Goal: when one of two vdevs fails, everything goes to the other.
#[test]
fn dead_vdevs_are_left() {
    let b = bench(2);
    b.devices[0].inject(Fault::Error { op: Op::Write, range: ALL });
    let policy = WritePolicy { copies: 2, ..WritePolicy::PLAIN };
    let bps = b
        .zio
        .write_batch(Txg(4), vec![req(noise(8192), policy), req(noise(4096), policy)], &b.zio.workers())
        .unwrap();
    let tops: Vec<u32> = bps
        .iter()
        .flat_map(|bp| bp.stored().unwrap().copies().map(|d| d.vdev.0).collect::<Vec<_>>())
        .collect();
    assert_eq!((tops, b.space.taken.lock().len()), (vec![1; 4], 4));
    assert_eq!(b.zio.read(&bps[0], &BOOKMARK, &READ).unwrap(), noise(8192));
}

/// Goal: when nothing works the writer waits, and its blocks are written when the pool is cleared.
/// In a pool without an attendant it fails and gives everything back.
#[test]
fn writers_wait() {
    let b = bench(1);
    b.devices[0].inject(Fault::Error { op: Op::Write, range: ALL });
    let batch = || vec![req(noise(8192), WritePolicy::PLAIN); 3];
    assert!(b.zio.write_batch(Txg(4), batch(), &b.zio.workers()).is_err());
    assert!(b.space.taken.lock().is_empty());
    b.attend();
    let bps = std::thread::scope(|s| {
        let writer = s.spawn(|| b.zio.write_batch(Txg(4), batch(), &b.zio.workers()).unwrap());
        b.rescue();
        writer.join().unwrap()
    });
    assert!(bps.iter().all(|bp| b.zio.read(bp, &BOOKMARK, &READ).unwrap() == noise(8192)));
    assert_eq!(b.space.taken.lock().len(), 3);
}

/// Goal: what a device had not made durable when its flush failed is written again, since its state
/// is not known.
#[test]
fn failed_flushes_write_again() {
    let b = bench(1);
    b.attend();
    let bp =
        b.zio.write_batch(Txg(4), vec![req(noise(8192), WritePolicy::PLAIN)], &b.zio.workers()).unwrap()[0];
    b.devices[0].inject(Fault::Error { op: Op::Flush, range: ALL });
    std::thread::scope(|s| {
        let flusher = s.spawn(|| b.zio.flush(Txg(4)));
        while b.zio.suspension().reason().is_none() {
            std::thread::yield_now();
        }
        let at = LABEL_START_SIZE + bp.stored().unwrap().dvas[0].unwrap().offset.0;
        b.devices[0].write_at(&[0; 8192], at).unwrap();
        b.rescue();
        flusher.join().unwrap().unwrap();
    });
    assert_eq!(b.zio.read(&bp, &BOOKMARK, &READ).unwrap(), noise(8192));
}

/// Goal: while blocks are rewritten after a failed flush, a flush of another thread forgets none of
/// them.
#[test]
fn doubted_blocks_are_not_forgotten() {
    let b = bench(1);
    b.attend();
    let bp =
        b.zio.write_batch(Txg(4), vec![req(noise(8192), WritePolicy::PLAIN)], &b.zio.workers()).unwrap()[0];
    b.devices[0].inject(Fault::Error { op: Op::Flush, range: ALL });
    std::thread::scope(|s| {
        let flusher = s.spawn(|| b.zio.flush(Txg(4)));
        b.rescue_into(Some(Fault::Error { op: Op::Write, range: ALL }));
        b.wait_suspended();
        // The rewrite is under way. Another thread writes so much that there is a flush, which
        // succeeds.
        let mib = Block::zeroed(1 << 20);
        let dva =
            Dva { vdev: VdevId(0), offset: Offset(100 * SLOT), asize: Asize(mib.len() as u64), gang: false };
        b.zio.keep((0..65).map(|_| (Txg(5), dva, mib.clone())).collect());
        b.rescue_into(Some(Fault::Error { op: Op::Flush, range: ALL }));
        b.wait_suspended();
        let at = LABEL_START_SIZE + bp.stored().unwrap().dvas[0].unwrap().offset.0;
        b.devices[0].write_at(&[0; 8192], at).unwrap();
        b.rescue();
        flusher.join().unwrap().unwrap();
    });
    assert_eq!(b.zio.read(&bp, &BOOKMARK, &READ).unwrap(), noise(8192));
}

/// Goal: a device that misses a block which is written with a log has missed the block's own txg,
/// whenever the log's block was allocated. The block is a synchronous write, beside that of the
/// log.
#[test]
fn blocks_beside_a_log_are_missed_in_their_own_group() {
    let b = mirror();
    let log = b.zio.allocate_log(Txg(4), Psize(4096), 5, false, false).unwrap();
    let early =
        b.zio.place_early(Txg(9), vec![req(noise(8192), WritePolicy::PLAIN)]).pop().flatten().unwrap();
    let at = LABEL_START_SIZE + early.pointer().stored().unwrap().dvas[0].unwrap().offset.0;
    b.devices[1].inject(Fault::Error { op: Op::Write, range: at..at + SLOT });
    let mut block = AlignedBuf::zeroed(4096);
    // Only the chain's header is used.
    block[136..144].copy_from_slice(&192u64.to_le_bytes());
    b.zio.write_logs(5, vec![(log, block)], vec![early]).unwrap();
    let behind = |leg: u64, txg| b.zio.tree().dtl(Guid(100 + leg)).unwrap().contains(txg);
    assert_eq!(
        [(0, 4), (0, 9), (1, 4), (1, 9)].map(|(leg, txg)| behind(leg, txg)),
        [false, false, false, true]
    );
    let classes = b.zio.tree().stats(Guid(100)).unwrap().snapshot().classes;
    let writes: Vec<_> = classes.iter().map(|one| (one.class, one.bytes)).collect();
    assert_eq!(writes, [(vdev::Priority::SyncWrite, 8192), (vdev::Priority::Log, 4096)]);
}

/// Goal: a read that a sync needs waits for a device that is missing, has a bad sector or has wrong
/// bytes there. Any other read fails at once. A read that a sync can do without waits only for
/// missing devices.
#[test]
fn needed_reads_wait() {
    let b = bench(1);
    b.attend();
    let bp =
        b.zio.write_batch(Txg(4), vec![req(noise(8192), WritePolicy::PLAIN)], &b.zio.workers()).unwrap()[0];
    b.devices[0].inject(Fault::Error { op: Op::Read, range: LABEL_START_SIZE..1 << 30 });
    assert!(b.zio.read(&bp, &BOOKMARK, &READ).is_err());
    // Only the block's place is bad.
    let place = LABEL_START_SIZE..LABEL_START_SIZE + SLOT;
    let (bad, wrong) =
        (Fault::Error { op: Op::Read, range: place.clone() }, Fault::Corrupt { range: place.clone() });
    let needed = &ReadOptions::sync();
    let dispensable = &needed.with(IoFlags::CAN_FAIL);
    for (fault, options) in [
        (Fault::Error { op: Op::Read, range: ALL }, needed),
        (Fault::Error { op: Op::Read, range: ALL }, dispensable),
        (bad.clone(), needed),
        (wrong.clone(), needed),
    ] {
        b.devices[0].heal();
        b.devices[0].inject(fault);
        let data = std::thread::scope(|s| {
            let reader = s.spawn(|| b.zio.read(&bp, &BOOKMARK, options).unwrap());
            b.rescue();
            reader.join().unwrap()
        });
        assert_eq!(data, noise(8192));
    }
    for fault in [bad, wrong] {
        b.devices[0].heal();
        b.devices[0].inject(fault);
        assert!(b.zio.read(&bp, &BOOKMARK, dispensable).is_err());
        // The flag has no effect alone, nor with a pointer that may be stale or freed, nor on a
        // speculative read.
        for flag in [IoFlags::MAY_BE_STALE, IoFlags::SPECULATIVE, IoFlags::MAY_BE_FREED] {
            assert!(b.zio.read(&bp, &BOOKMARK, &needed.with(flag)).is_err());
        }
        assert!(b.zio.read(&bp, &BOOKMARK, &READ.with(IoFlags::CAN_FAIL)).is_err());
        // The end of a log's chain can't be read.
        let log = Blkptr { kind: DmuType::INTENT_LOG, ..bp };
        assert!(b.zio.read(&log, &BOOKMARK, needed).is_err());
    }
}

/// Goal: a read with a pointer that may be stale counts no checksum error against a device when it
/// fails, since the place may have another block. The read after it, with a newer pointer, does.
#[test]
fn a_stale_pointer_is_no_fault_of_a_device() {
    let b = bench(1);
    let reqs = vec![req(noise(8192), WritePolicy::PLAIN)];
    let bp = b.zio.write_batch(Txg(4), reqs, &b.zio.workers()).unwrap()[0];
    b.devices[0].inject(Fault::Corrupt { range: LABEL_START_SIZE..LABEL_START_SIZE + SLOT });
    let errors = || b.zio.tree().describe().children[0].stats.checksum_errors;
    assert!(b.zio.read(&bp, &BOOKMARK, &READ.with(IoFlags::MAY_BE_STALE)).is_err());
    assert_eq!(errors(), 0);
    assert!(b.zio.read(&bp, &BOOKMARK, &READ).is_err());
    assert_eq!(errors(), 1);
}

/// Goal: a read of a block that may have been freed counts no error, whether one copy is still
/// right or none is. One wrong copy is recorded for a repair, which looks the block up. Without a
/// checksum it is refused.
#[test]
fn a_freed_block_is_no_fault_of_a_device() {
    fn errors(of: &vdev::VdevInfo) -> u64 {
        of.stats.checksum_errors + of.children.iter().map(errors).sum::<u64>()
    }
    let freed = &READ.with(IoFlags::MAY_BE_FREED);
    for (b, copies) in [(mirror(), 1), (bench(2), 2)] {
        let policy = WritePolicy { copies, ..WritePolicy::PLAIN };
        let bp = b.zio.write_batch(Txg(4), vec![req(noise(8192), policy)], &b.zio.workers()).unwrap()[0];
        let errors = || errors(&b.zio.tree().describe());
        let wrong = |device: usize| {
            b.devices[device].inject(Fault::Corrupt { range: LABEL_START_SIZE..LABEL_START_SIZE + SLOT });
        };
        for device in [0, 1] {
            wrong(device);
            for _ in 0..4 {
                assert_eq!(b.zio.read(&bp, &BOOKMARK, freed).unwrap(), noise(8192));
            }
            b.devices[device].heal();
        }
        assert_eq!(b.zio.unhealed().count(), 1, "one of the two was read first");
        (0..2).for_each(wrong);
        assert!(b.zio.read(&bp, &BOOKMARK, freed).is_err() && b.zio.read_raw(&bp, &BOOKMARK, freed).is_err());
        assert_eq!((errors(), b.zio.damage().count()), (0, 0));
        assert!(b.zio.read(&bp, &BOOKMARK, &READ).is_err());
        assert_eq!((errors(), b.zio.damage().count()), (2, 1));
        (0..2).for_each(|device| b.devices[device].heal());
        wrong(0);
        while errors() == 2 {
            assert!(b.zio.read(&bp, &BOOKMARK, &READ).is_ok());
        }
    }
    let b = bench(1);
    let policy = WritePolicy { checksum: ondisk::ChecksumKind::Off, ..WritePolicy::PLAIN };
    let bp = b.zio.write_batch(Txg(4), vec![req(noise(8192), policy)], &b.zio.workers()).unwrap()[0];
    let refused = b.zio.read(&bp, &BOOKMARK, freed).unwrap_err().to_string();
    assert!(b.zio.read(&bp, &BOOKMARK, &READ).is_ok() && refused.contains("block pointer"), "{refused}");
}

/// Goal: log writes to a device that was given up and is available again do not count as durable,
/// until a txg is. Log writes from before never do.
#[test]
fn logs_do_not_believe_a_device_that_was_gone() {
    let bench = bench(1);
    bench.zio.suspension().attend("p", FailMode::Wait, Box::new(|| {}));
    let flush = |since| bench.zio.flush_vdevs(&[VdevId(0)], Txg(5), since);
    let before = bench.zio.flush_mark();
    flush(before).unwrap();
    bench.zio.doubt(Guid(100));
    let amid = bench.zio.flush_mark();
    assert!(flush(amid).is_err());
    bench.zio.flush(Txg(5)).unwrap();
    assert!(flush(before).is_err(), "it was written before the device was given up");
    flush(amid).unwrap();
}

/// Goal: a block is not written again to a place that has been given back, since the place may hold
/// another block.
#[test]
fn places_that_were_given_back_are_left_alone() {
    let b = bench(1);
    b.attend();
    let reqs = vec![req(noise(8192), WritePolicy::PLAIN), req(noise(4096), WritePolicy::PLAIN)];
    let bps = b.zio.write_batch(Txg(4), reqs, &b.zio.workers()).unwrap();
    let given_back: Vec<_> = bps[0].stored().unwrap().copies().copied().collect();
    b.zio.spoil(&given_back);
    b.zio.doubt(Guid(100));
    let before = b.devices[0].count();
    b.zio.flush(Txg(4)).unwrap();
    // One write of the block, and the flush.
    assert_eq!(b.devices[0].count() - before, 2);
}
