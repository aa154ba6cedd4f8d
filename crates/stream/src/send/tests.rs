use super::read_ahead::Queue;
use super::records::{OLD_MAX_BLOCK, Payload, Records};
use super::walk::{Before, Change, Stop};
use crate::{Reader, Writer};
use device::Block;
use ondisk::blkptr::{Body, CryptParams, Stored};
use ondisk::replay::{Free, FreeObjects, Record, features};
use ondisk::{BlkId, Blkptr, ByteOrder, ChecksumKind, CompressKind, DmuType, Lsize, ObjNum, Psize, Txg};

const GUID: u64 = 7;

/// The records of these changes.
fn records(changes: &[(Change, Option<Payload>)], features: u64) -> Vec<Record> {
    let mut bytes = Vec::new();
    let mut writer = Writer::new(&mut bytes, ByteOrder::Little);
    let begin = ondisk::replay::Begin {
        magic: ondisk::replay::BACKUP_MAGIC,
        version_info: features << 2 | 1,
        creation_time: 0,
        objset_type: 2,
        flags: 0,
        to_guid: GUID,
        from_guid: 0,
        to_name: [0; 256],
    };
    writer.begin(&begin, &[]).unwrap();
    let mut records =
        Records { writer: &mut writer, to_guid: GUID, features, since: Txg(0), objects: 64, held: None };
    for (change, payload) in changes {
        records.change(change, payload.as_ref()).unwrap();
    }
    records.flush().unwrap();
    let mut reader = Reader::new(&bytes[..]);
    let mut out = Vec::new();
    while let Some(packet) = reader.next_packet().unwrap() {
        out.push(packet.record);
    }
    out.remove(0);
    out
}

fn hole(object: u64, offset: u64, length: u64) -> (Change, Option<Payload>) {
    (Change::Hole { object: ObjNum(object), offset, length }, None)
}

fn free(object: u64, offset: u64, length: u64) -> Record {
    Record::Free(Free { object, offset, length, to_guid: GUID })
}

fn data(object: u64, size: u32) -> Change {
    let bp = Blkptr { lsize: Lsize(size.into()), ..Blkptr::HOLE };
    Change::Data { object: ObjNum(object), blkid: BlkId(0), size, kind: DmuType::PLAIN_FILE_CONTENTS, bp }
}

/// Goal: neighbouring holes, and neighbouring numbers without an object, become one record. Others
/// do not.
#[test]
fn neighbours_are_joined() {
    let missing = |first, count| (Change::NoObjects { first, count }, None);
    let have = records(
        &[
            missing(1, 1),
            missing(2, 3),
            missing(9, 1),
            // No object has such a number.
            missing(60, 100),
            missing(64, 1),
            hole(5, 0, 512),
            hole(5, 512, 512),
            hole(6, 1024, 512),
            hole(6, 2048, 512),
            hole(6, 2560, u64::MAX - 2000),
        ],
        0,
    );
    let no = |first, count| Record::FreeObjects(FreeObjects { first, count, to_guid: GUID });
    let want = [no(1, 4), no(9, 1), no(60, 4), free(5, 0, 1024), free(6, 1024, 512), free(6, 2048, u64::MAX)];
    assert_eq!(have, want);
}

/// Goal: without large blocks, a large block travels in parts of 128 KiB.
#[test]
fn large_blocks_are_split() {
    let size = 3 * OLD_MAX_BLOCK;
    let change = data(1, size);
    let payload = || Some(Payload::whole(Block::zeroed(size as usize), None));
    let offsets = |records: &[Record]| -> Vec<(u64, u64)> {
        let each = records.iter().map(|record| match record {
            Record::Write(write) => (write.offset, write.logical_size),
            other => panic!("{other:?}"),
        });
        each.collect()
    };
    let part = u64::from(OLD_MAX_BLOCK);
    let have = records(&[(change.clone(), payload())], 0);
    assert_eq!(offsets(&have), [(0, part), (part, part), (2 * part, part)]);
    let have = records(&[(change, payload())], features::LARGE_BLOCKS);
    assert_eq!(offsets(&have), [(0, 3 * part)]);
}

/// Goal: what stands for an unreadable block is plain, though the block is compressed in the pool
/// and in the stream.
#[test]
fn a_stand_in_is_plain() {
    let stored = Stored {
        dvas: [None; 3],
        psize: Psize(512),
        compress: CompressKind::Lz4,
        checksum: ChecksumKind::Fletcher4,
        sum: [1; 4],
        phys_birth: Txg(1),
        fill: 1,
        dedup: false,
        crypt: false,
        crypt_params: CryptParams { salt: [0; 8], iv: [0; 12] },
    };
    let Change::Data { object, blkid, size, kind, bp } = data(1, 4096) else { panic!("a block of data") };
    let bp = Blkptr { body: Body::Stored(stored), birth: Txg(1), kind, ..bp };
    let change = Change::Data { object, blkid, size, kind, bp };
    let whole = |len| Payload::whole(Block::zeroed(len), None);
    let form = |payload: Payload| match records(&[(change.clone(), Some(payload))], features::COMPRESSED)[..]
    {
        [Record::Write(write)] => (write.compression, write.logical_size, write.compressed_size),
        ref other => panic!("{other:?}"),
    };
    assert_eq!(form(whole(512)), (CompressKind::Lz4 as u8, 4096, 512));
    assert_eq!(form(Payload { stands_in: true, ..whole(4096) }), (0, 4096, 0));
}

/// Goal: whatever order blocks are read in, changes come out in theirs, each with its own block.
/// An error of the walk comes after them.
#[test]
fn changes_keep_their_order() {
    const COUNT: u64 = 2000;
    let queue = Queue::new(64 << 10);
    let read = |change: &Change| match change {
        Change::Data { object, .. } => Ok(Payload::whole(Block::copy_of(&object.0.to_le_bytes()), None)),
        other => panic!("{other:?}"),
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for object in 0..COUNT {
                // Every third change has no block.
                let sent = match object % 3 {
                    0 => queue.push(hole(object, 0, 1).0, false),
                    _ => queue.push(data(object, 512), true),
                };
                assert!(sent);
            }
            let stop: Stop = Some(dmu::Error::Fixed { objset: 1 });
            queue.end(Err(stop));
        });
        for _ in 0..4 {
            scope.spawn(|| queue.serve(read));
        }
        let mut next = 0;
        loop {
            match queue.next() {
                Ok(batch) => {
                    for (change, block) in batch {
                        match (change, block) {
                            (Change::Hole { object, .. }, None) => assert_eq!(object.0, next),
                            (Change::Data { object, .. }, Some(Ok(payload))) => {
                                assert_eq!((object.0, &payload.block[..]), (next, &next.to_le_bytes()[..]));
                            }
                            other => panic!("{other:?}"),
                        }
                        next += 1;
                    }
                }
                Err(dmu::Error::Fixed { .. }) => break,
                Err(e) => panic!("{e}"),
            }
        }
        assert_eq!(next, COUNT);
        queue.cancel();
    });
}

/// Goal: a writer that stops ends the walk and the readers, however full the queue is.
#[test]
fn stages_end_with_the_writer() {
    let queue = Queue::new(4096);
    std::thread::scope(|scope| {
        let walk = scope.spawn(|| {
            let mut pushed = 0u64;
            while queue.push(data(pushed, 512), true) {
                pushed += 1;
            }
            pushed
        });
        let reader = scope.spawn(|| queue.serve(|_| Ok(Payload::whole(Block::zeroed(512), None))));
        assert!(!queue.next().unwrap().is_empty());
        queue.cancel();
        assert!(walk.join().unwrap() > 0);
        reader.join().unwrap();
    });
}

/// Goal: dnodes and free slots are found again where they were. What is inside a larger dnode is
/// none, also if it has the bytes of one.
#[test]
fn dnodes_of_the_origin() {
    const SLOT: usize = 512;
    let block = |dnodes: &[(usize, u8, u8)]| {
        let mut bytes = vec![0; 8 * SLOT];
        for (slot, kind, extra) in dnodes {
            let at = slot * SLOT;
            (bytes[at], bytes[at + 12], bytes[at + 100]) = (*kind, *extra, *slot as u8);
        }
        Block::copy_of(&bytes)
    };
    let found = |before: &Block, now: &Block, dnodes: &[(usize, usize)]| -> Vec<bool> {
        let mut before = Before::of(before.clone());
        let bytes = |(slot, count): &(usize, usize)| slot * SLOT..(slot + count) * SLOT;
        dnodes.iter().map(|dnode| before.has(now, bytes(dnode))).collect()
    };
    let before = block(&[(0, 19, 1), (1, 20, 0), (3, 19, 0), (5, 19, 2), (6, 7, 255)]);
    let all = [(0, 2), (2, 1), (3, 1), (4, 1), (5, 3)];
    assert_eq!(found(&before, &before, &all), [true; 5]);
    // The larger one is gone, and the bytes inside are a dnode now.
    let now = block(&[(1, 20, 0), (3, 20, 0), (5, 19, 2), (6, 7, 255)]);
    let dnodes = [(0, 1), (1, 1), (2, 1), (3, 1), (4, 1), (5, 3)];
    assert_eq!(found(&before, &now, &dnodes), [false, false, true, false, true, true]);
    // A caller may skip some.
    assert_eq!(found(&before, &before, &[(4, 1), (5, 3)]), [true; 2]);
    // A dnode that is larger than the rest of its block ends the comparison.
    let wrong = block(&[(0, 19, 255)]);
    assert_eq!(found(&wrong, &block(&[]), &[(0, 1), (1, 1), (7, 1)]), [false; 3]);
}
