//! Metadata that waits for the rest of its txg.

use super::failing::{ALL, Bench, SLOT, bench};
use super::{BOOKMARK, READ, noise, req, text};
use crate::{WritePolicy, WriteReq};
use device::{Block, Device, Fault, Op};
use ondisk::label::LABEL_START_SIZE;
use ondisk::{Blkptr, DmuType, Guid, Txg};

const TWO: WritePolicy = WritePolicy { copies: 2, ..WritePolicy::PLAIN };

fn metadata(data: Block) -> WriteReq {
    WriteReq { kind: DmuType::DNODE, ..req(data, TWO) }
}

fn holding(tops: u64) -> Bench {
    let b = bench(tops);
    b.zio.hold_writes();
    b
}

fn writes(b: &Bench, device: u64) -> u64 {
    b.zio.tree().stats(Guid(100 + device)).unwrap().ops(vdev::IoType::Write)
}

fn on_disk(b: &Bench, device: usize, slot: u64, len: usize) -> Vec<u8> {
    let mut buf = vec![0; len];
    b.devices[device].read_at(&mut buf, LABEL_START_SIZE + slot * SLOT).unwrap();
    buf
}

fn write(b: &Bench, reqs: Vec<WriteReq>) -> Vec<Blkptr> {
    b.zio.write_batch(Txg(4), reqs, &b.zio.workers()).unwrap()
}

/// Goal: metadata in two copies reads as last written while it waits. It is then written once, in
/// its last version, in the order of offsets. Metadata with one copy, and file data, don't wait.
#[test]
fn what_waits_is_read() {
    let b = holding(1);
    let first = write(&b, vec![metadata(noise(4096)), metadata(text(4096))]);
    assert_eq!(writes(&b, 0), 0);
    b.devices[0].inject(Fault::Error { op: Op::Read, range: ALL });
    assert_eq!(b.zio.read(&first[1], &BOOKMARK, &READ).unwrap(), text(4096));
    let again = WriteReq { old: Some(first[0]), in_place: true, ..metadata(text(4096)) };
    let second = write(&b, vec![again])[0];
    assert_eq!(second.stored().unwrap().dvas, first[0].stored().unwrap().dvas);
    assert_eq!((writes(&b, 0), b.zio.read(&second, &BOOKMARK, &READ).unwrap()), (0, text(4096)));
    b.devices[0].heal();
    b.zio.write_held().unwrap();
    // Four slots, which don't touch.
    assert_eq!((writes(&b, 0), b.zio.read(&second, &BOOKMARK, &READ).unwrap()), (4, text(4096)));
    assert!((0..4).all(|slot| on_disk(&b, 0, slot, 4096) == text(4096)[..]));
    b.zio.flush(Txg(4)).unwrap();
    write(&b, vec![req(noise(4096), TWO)]);
    write(&b, vec![WriteReq { policy: WritePolicy::PLAIN, ..metadata(noise(4096)) }]);
    assert_eq!(writes(&b, 0), 7);
}

/// Goal: a place that gets other contents at once, or is given back, gets none of the held bytes.
#[test]
fn what_is_gone_is_not_written() {
    let b = holding(1);
    let old = write(&b, vec![metadata(noise(4096))])[0];
    let data = WriteReq { old: Some(old), in_place: true, ..req(text(4096), TWO) };
    let new = write(&b, vec![data])[0];
    assert_eq!((new.stored().unwrap().dvas, writes(&b, 0)), (old.stored().unwrap().dvas, 2));
    b.zio.write_held().unwrap();
    assert_eq!((writes(&b, 0), b.zio.read(&new, &BOOKMARK, &READ).unwrap()), (2, text(4096)));
    // The pool has no attendant, so the batch fails, and also gives back what waits.
    b.devices[0].inject(Fault::Error { op: Op::Write, range: LABEL_START_SIZE..u64::MAX });
    let plain = req(noise(4096), WritePolicy::PLAIN);
    b.zio.write_batch(Txg(4), vec![metadata(noise(4096)), plain], &b.zio.workers()).unwrap_err();
    b.devices[0].heal();
    let before = writes(&b, 0);
    b.zio.write_held().unwrap();
    assert_eq!(writes(&b, 0), before);
}

/// Goal: no more than 16 MiB is held, and overwritten blocks don't count.
#[test]
fn much_is_written_at_once() {
    let b = holding(4);
    let all = |b: &Bench| (0..4).map(|device| writes(b, device)).sum::<u64>();
    let reqs = || (0..60).map(|_| metadata(noise(128 << 10))).collect();
    let mut some = write(&b, reqs());
    let again = |bp: &Blkptr| WriteReq { old: Some(*bp), in_place: true, ..metadata(text(128 << 10)) };
    for _ in 0..3 {
        some = write(&b, some.iter().map(again).collect());
    }
    write(&b, reqs());
    assert_eq!(all(&b), 0);
    write(&b, reqs());
    assert!(all(&b) > 0);
    assert!(some.iter().all(|bp| b.zio.read(bp, &BOOKMARK, &READ).unwrap() == text(128 << 10)));
    b.zio.flush(Txg(4)).unwrap();
}

/// Goal: if one copy of a block can't be written the other counts, and the block is examined before
/// the next txg. A block without any copy waits for its devices.
#[test]
fn places_that_fail() {
    let b = holding(2);
    b.attend();
    let bad = LABEL_START_SIZE..LABEL_START_SIZE + SLOT;
    b.devices[0].inject(Fault::Error { op: Op::Write, range: bad });
    let bp = write(&b, vec![metadata(noise(4096))])[0];
    b.zio.write_held().unwrap();
    assert_eq!(b.zio.unhealed().pending(), [(BOOKMARK, Txg(4))]);
    assert_eq!(on_disk(&b, 1, 0, 4096), noise(4096)[..]);
    assert_eq!(b.zio.read(&bp, &BOOKMARK, &READ).unwrap(), noise(4096));

    b.devices.iter().for_each(|d| d.inject(Fault::Error { op: Op::Write, range: ALL }));
    let bp = write(&b, vec![metadata(text(4096))])[0];
    std::thread::scope(|s| {
        let writer = s.spawn(|| b.zio.write_held());
        b.rescue();
        writer.join().unwrap().unwrap();
    });
    b.zio.flush(Txg(4)).unwrap();
    assert!((0..2).all(|device| on_disk(&b, device, 1, 4096) == text(4096)[..]));
    assert_eq!(b.zio.read(&bp, &BOOKMARK, &READ).unwrap(), text(4096));
}

/// Goal: in a pool without an attendant, a block that can't be written is an error.
#[test]
fn nobody_waits() {
    let b = holding(1);
    b.devices[0].inject(Fault::Error { op: Op::Write, range: ALL });
    write(&b, vec![metadata(noise(4096))]);
    assert!(matches!(b.zio.write_held(), Err(crate::Error::Write { .. })));
}
