//! What a receive says of the objects that an increment touches, for streams that no sender makes.
//!
//! The rule: whatever the records are, an object that differs from the snapshot is among those that
//! the receive names, and one whose data differ is not named for its dnode alone.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;

use dmu::Objset;
use ondisk::replay::{Begin, Free, FreeObjects, OBJECT_SPILL, Object, Record};
use ondisk::{BlkId, ByteOrder, ObjNum};
use poolhouse::stream::{Reader as Packets, ReceiveError, ReceiveOptions, Receiving, Touch, Writer as Sink};
use proptest::prelude::*;

use super::*;

/// Records of a stream between BEGIN and END, with their payloads.
type Records = Vec<(Record, Vec<u8>)>;

/// A file system with two snapshots, and a copy that has the first one.
struct World {
    rig: Rig,
    begin: Record,
    list: Vec<u8>,
    records: Records,
    /// The numbers of its objects.
    objects: Vec<u64>,
}

fn world() -> &'static World {
    static WORLD: OnceLock<World> = OnceLock::new();
    WORLD.get_or_init(World::new)
}

impl World {
    fn new() -> Self {
        let rig = Rig::new();
        let pool = rig.pool.as_ref().unwrap();
        let fs = pool.create_filesystem("cell/fs").unwrap();
        for number in 0..50 {
            let file = fs.create_file(format!("/{number}")).unwrap();
            file.write_at(&text(number, 9000 * (number as usize % 9 + 1)), 0).unwrap();
            file.sync().unwrap();
        }
        pool.snapshot("cell/fs@a").unwrap();
        for number in (0..50).step_by(7) {
            fs.create_file(format!("/new {number}")).unwrap().write_at(b"new", 0).unwrap();
            let file = fs.create_file(format!("/again {number}")).unwrap();
            file.write_at(&text(100 + number, 200_000), 4096).unwrap();
            file.sync().unwrap();
            fs.remove(format!("/{number}")).unwrap();
        }
        fs.create_dir("/d").unwrap();
        pool.snapshot("cell/fs@b").unwrap();
        let (a, b) = (pool.dataset("cell/fs@a").unwrap(), pool.dataset("cell/fs@b").unwrap());
        let mut full = Vec::new();
        a.send(&stream::Options::default(), &mut full).unwrap();
        pool.receive(&full[..], &options("a")).unwrap();
        let origin = Some(stream::Origin::of_snapshot(b.dsl(), a.dsl()).unwrap());
        let mut bytes = Vec::new();
        b.send(&stream::Options { origin, ..stream::Options::default() }, &mut bytes).unwrap();
        let mut packets = Packets::new(&bytes[..]);
        let mut all = Records::new();
        while let Some(packet) = packets.next_packet().unwrap() {
            all.push((packet.record, packet.payload.to_vec()));
        }
        let (begin, list) = all.remove(0);
        all.pop();
        let objects = old(pool).objects(ObjNum(1)).map(|dnode| dnode.unwrap().object().0).collect();
        Self { rig, begin, list, records: all, objects }
    }

    fn pool(&self) -> &poolhouse::Pool {
        self.rig.pool.as_ref().unwrap()
    }

    /// A stream of these records, with right checksums.
    fn stream(&self, records: &Records) -> Vec<u8> {
        let Record::Begin(begin) = &self.begin else { panic!() };
        let mut bytes = Vec::new();
        let mut sink = Sink::new(&mut bytes, ByteOrder::Little);
        sink.begin(begin, &self.list).unwrap();
        records.iter().for_each(|(record, payload)| sink.write(record, payload).unwrap());
        sink.end(begin.to_guid).unwrap();
        bytes
    }

    fn receive(&self, bytes: &[u8]) -> Result<Receiving, ReceiveError> {
        Receiving::new(self.pool().spa(), bytes, &options("b"))
    }
}

fn options(snapshot: &str) -> ReceiveOptions {
    ReceiveOptions { name: format!("cell/copy@{snapshot}"), force: true, ..ReceiveOptions::default() }
}

/// The copy as the first snapshot has it.
fn old(pool: &poolhouse::Pool) -> Objset {
    let found = pool.dataset("cell/copy@a").or_else(|_| pool.dataset("cell/fs@a")).unwrap();
    pool.spa().read(|| found.dsl().objset()).unwrap().unwrap()
}

/// What an object is, but for its data.
type Facts = (u8, u64, u8, usize, Vec<u8>);
/// Data that are not zero, by their block.
type Data = (BTreeMap<u64, Vec<u8>>, Option<Vec<u8>>);

fn contents(os: &Objset) -> BTreeMap<u64, (Facts, Data)> {
    let mut all = BTreeMap::new();
    for dnode in os.objects(ObjNum(1)).map(Result::unwrap) {
        let facts = (
            dnode.kind().to_disk(),
            dnode.block_size(),
            dnode.bonus_kind().to_disk(),
            dnode.phys().num_slots(),
            dnode.bonus().to_vec(),
        );
        let (mut data, mut from) = (BTreeMap::new(), BlkId(0));
        while let Some(block) = dnode.next_data_block(from).unwrap() {
            let bytes = dnode.block(block).unwrap().map(|bytes| bytes.to_vec()).unwrap_or_default();
            if bytes.iter().any(|byte| *byte != 0) {
                data.insert(block.0, bytes);
            }
            from = BlkId(block.0 + 1);
        }
        let spill = dnode.spill().unwrap().map(|spill| spill.to_vec());
        all.insert(dnode.object().0, (facts, (data, spill)));
    }
    all
}

/// Checks the rule. Returns how many objects differ.
fn check(old: &Objset, new: &Objset, touched: &[Touch]) -> usize {
    let (old, new) = (contents(old), contents(new));
    let numbers: BTreeSet<u64> = old.keys().chain(new.keys()).copied().collect();
    let mut differ = 0;
    for number in numbers {
        let (was, is) = (old.get(&number), new.get(&number));
        let of = |touch: &&Touch| (touch.first.0..=touch.last.0).contains(&number);
        if was.map(|was| &was.0) != is.map(|is| &is.0) {
            assert!(touched.iter().any(|touch| of(&touch)), "object {number} differs");
        }
        if was.is_some() && is.is_some() && was.map(|was| &was.1) != is.map(|is| &is.1) {
            let has_data = |touch: &Touch| of(&touch) && !touch.is_dnode;
            assert!(touched.iter().any(has_data), "the data of object {number} differ");
        }
        differ += usize::from(was != is);
    }
    differ
}

/// What a hostile sender does.
#[derive(Debug, Clone)]
enum Lie {
    Object(usize, u64),
    Offset(usize, u64),
    Twice(usize, usize),
    Drop(usize),
    Swap(usize),
    FreeObjects(usize, u64, u64),
    Free(usize, u64, u64, u64),
    Field(usize, u8, usize),
}

fn lie() -> impl Strategy<Value = Lie> {
    let at = || 0usize..10_000;
    // A place in the list of objects, or a number of no object.
    let object = || prop_oneof![6 => 0u64..200, 1 => prop::sample::select(vec![9999, 1 << 40, u64::MAX])];
    let offset = || {
        let far = vec![0, 512, 131_072, 1 << 20, 1 << 40, (1 << 62) + 512, u64::MAX - 511, u64::MAX];
        prop::sample::select(far)
    };
    prop_oneof![
        3 => (at(), object()).prop_map(|(at, object)| Lie::Object(at, object)),
        2 => (at(), offset()).prop_map(|(at, offset)| Lie::Offset(at, offset)),
        2 => (at(), at()).prop_map(|(from, to)| Lie::Twice(from, to)),
        2 => at().prop_map(Lie::Drop),
        2 => at().prop_map(Lie::Swap),
        1 => (at(), object(), object()).prop_map(|(at, first, count)| Lie::FreeObjects(at, first, count)),
        2 => (at(), object(), offset(), offset())
            .prop_map(|(at, object, offset, length)| Lie::Free(at, object, offset, length)),
        4 => (at(), 0u8..7, 0usize..1000).prop_map(|(at, field, value)| Lie::Field(at, field, value)),
    ]
}

fn apply(world: &World, records: &mut Records, lie: &Lie) {
    let at = |at: usize| at % records.len();
    // Small numbers are those of objects, and of some that are free.
    let object = |number: u64| world.objects.get(number as usize).copied().unwrap_or(number);
    let Record::Begin(begin) = &world.begin else { panic!() };
    let to_guid = begin.to_guid;
    match *lie {
        Lie::Object(from, number) => {
            let (from, number) = (at(from), object(number));
            match &mut records[from].0 {
                Record::Object(r) => r.object = number,
                Record::Write(r) => r.object = number,
                Record::Free(r) => r.object = number,
                Record::FreeObjects(r) => r.first = number,
                _ => {}
            }
        }
        Lie::Offset(from, offset) => {
            let from = at(from);
            match &mut records[from].0 {
                Record::Write(r) => r.offset = offset,
                Record::Free(r) => (r.offset, r.length) = (offset, u64::MAX),
                Record::FreeObjects(r) => r.count = offset,
                _ => {}
            }
        }
        Lie::Twice(from, to) => records.insert(at(to), records[at(from)].clone()),
        Lie::Drop(from) => drop(records.remove(at(from))),
        Lie::Swap(from) => {
            let (from, last) = (at(from), records.len() - 1);
            records.swap(from, (from + 1).min(last));
        }
        Lie::Field(from, field, value) => {
            let from = (at(from)..records.len()).find(|from| matches!(records[*from].0, Record::Object(_)));
            let Some((Record::Object(r), bonus)) = from.map(|from| &mut records[from]) else { return };
            match field {
                0 => r.block_size = 512 << (value % 9),
                1 => r.checksum_type = (value % 16) as u8,
                2 => r.compress = (value % 18) as u8,
                3 => r.flags ^= OBJECT_SPILL,
                4 => r.kind = (value % 54) as u32,
                5 => r.dn_slots = (value % 3) as u8,
                _ if bonus.is_empty() => {}
                _ => {
                    let at = value % bonus.len();
                    bonus[at] ^= 1;
                }
            }
        }
        Lie::FreeObjects(to, first, count) => {
            let record = FreeObjects { first: object(first), count, to_guid };
            records.insert(at(to), (Record::FreeObjects(record), Vec::new()));
        }
        Lie::Free(to, number, offset, length) => {
            let record = Free { object: object(number), offset, length, to_guid };
            records.insert(at(to), (Record::Free(record), Vec::new()));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Goal: the rule holds for any stream that is taken, and no stream ends the process or stops
    /// the pool. The stream of the sender is taken afterwards as before.
    #[test]
    fn hostile_streams(lies in prop::collection::vec(lie(), 1..5)) {
        let world = world();
        let mut records = world.records.clone();
        lies.iter().for_each(|lie| apply(world, &mut records, lie));
        match world.receive(&world.stream(&records)) {
            Ok(receiving) => {
                let touched = receiving.touched().unwrap();
                check(&old(world.pool()), receiving.objset().unwrap(), touched);
            }
            Err(ReceiveError::Pool(error)) => panic!("{error}"),
            Err(_) => {}
        }
        prop_assert!(world.pool().spa().writer().unwrap().suspended().is_none());
    }
}

/// Goal: the rule holds for what the sender makes, and of each record, what it changes alone is
/// named. A stream that is cut at a record, or within it, is refused.
#[test]
fn each_record() {
    let world = World::new();
    let whole = world.stream(&world.records);
    let old = old(world.pool());
    let mut packets = Packets::new(&whole[..]);
    let mut cuts = 0;
    while packets.next_packet().unwrap().is_some() {
        for cut in [packets.position() as usize, packets.position() as usize - 7] {
            let is_refused = world.receive(&whole[..cut.min(whole.len())]).is_err();
            assert_eq!(is_refused, cut < whole.len(), "cut at {cut}");
            cuts += 1;
        }
    }
    assert!(cuts > 60, "{cuts}");
    for (record, payload) in &world.records {
        let Ok(receiving) = world.receive(&world.stream(&vec![(*record, payload.clone())])) else { continue };
        check(&old, receiving.objset().unwrap(), receiving.touched().unwrap());
    }
    // A FREE and nothing else, for any object: all of it, or the first block.
    let mut freed = 0;
    for (object, length) in world.objects.iter().flat_map(|object| [(*object, u64::MAX), (*object, 131_072)])
    {
        let mut records = Records::new();
        let Record::Begin(begin) = &world.begin else { panic!() };
        let free = Free { object, offset: 0, length, to_guid: begin.to_guid };
        records.push((Record::Free(free), Vec::new()));
        let Ok(receiving) = world.receive(&world.stream(&records)) else { continue };
        freed += check(&old, receiving.objset().unwrap(), receiving.touched().unwrap());
    }
    assert!(freed > 60, "{freed}");
    let receiving = world.receive(&whole).unwrap();
    let differ = check(&old, receiving.objset().unwrap(), receiving.touched().unwrap());
    assert!(differ > 16, "{differ}");
}

/// Goal: the tree of dnodes of an AFS volume grows by object numbers of a stream to no more than
/// numbers can have, and its blocks are those of the objects. Larger numbers are refused by name.
/// What reads all objects ends, whatever lies between them.
#[test]
fn huge_numbers_of_objects() {
    let world = world();
    let pool = world.pool();
    let Some((Record::Object(model), bonus)) =
        world.records.iter().find(|(record, _)| matches!(record, Record::Object(r) if r.bonus_len > 0))
    else {
        panic!("there is an object")
    };
    let Record::Begin(begin) = world.begin else { panic!() };
    // A full stream, into a volume with the tree of dnodes of those that are made.
    let receive = |numbers: &[u64]| {
        let mut bytes = Vec::new();
        let mut sink = Sink::new(&mut bytes, ByteOrder::Little);
        sink.begin(&Begin { from_guid: 0, ..begin }, &world.list).unwrap();
        for number in numbers {
            let record = Record::Object(Object { object: *number, ..*model });
            sink.write(&record, bonus).unwrap();
        }
        sink.end(begin.to_guid).unwrap();
        let name = "cell/huge@b".to_owned();
        let options = ReceiveOptions { name, dnodes: Some(zpl::AFS_DNODES), ..ReceiveOptions::default() };
        Receiving::new(pool.spa(), &bytes[..], &options)
    };
    // Four levels hold some 2^33 objects, five 2^42, and six all.
    let most = (1 << 48) - 1;
    for (numbers, levels) in [
        (vec![1, 2], 4),
        (vec![1, (1 << 32) - 1], 4),
        (vec![1, 1 << 40], 5),
        (vec![1, 1 << 33, 1 << 40, most], 6),
        (vec![most, 1], 6),
        ((0..48).map(|shift| 1 << shift).collect(), 6),
    ] {
        let receiving = receive(&numbers).unwrap();
        let os = receiving.objset().unwrap();
        let sorted: BTreeSet<u64> = numbers.iter().copied().collect();
        assert!(os.objects(ObjNum(1)).map(|dnode| dnode.unwrap().object().0).eq(sorted));
        pool.sync().unwrap();
        let phys = os.phys();
        assert_eq!(phys.meta_dnode.nlevels, levels, "{numbers:?}");
        // Each object has a block of dnodes and its path at most.
        let (used, blocks) = (phys.meta_dnode.used_bytes, numbers.len() as u64 * u64::from(levels));
        assert!((1..=blocks * (64 << 10)).contains(&used), "{numbers:?}: {used} bytes");
    }
    for number in [0, 1 << 48, (1 << 48) + 1, 1 << 62, u64::MAX] {
        let refused = receive(&[1, number]);
        let Err(ReceiveError::Record { why, .. }) = refused else { panic!("{number}") };
        assert_eq!(why, "it has an impossible object number");
    }
}

/// Goal: a stream of a volume is refused that has an object of a huge number beside the volume's
/// own, whether an object can have the number or not. The site's volume stays. Without that object,
/// the stream is taken.
#[test]
fn a_volume_with_a_huge_number() {
    let cell = Cell::new(3);
    cell.release(0).unwrap();
    let (header, stream) = cell.stream();
    let (head, stream) = stream.split_at(header as usize);
    let mut packets = Packets::new(stream);
    let (mut records, mut last) = (Records::new(), None);
    while let Some(packet) = packets.next_packet().unwrap() {
        let pair = (packet.record, packet.payload.to_vec());
        if matches!(pair.0, Record::Object(_)) {
            last = Some(pair.clone());
        }
        records.push(pair);
    }
    let (Record::Begin(begin), list) = records.remove(0) else { panic!() };
    records.pop();
    let Some((Record::Object(model), bonus)) = last else { panic!("there is an object") };
    let operator = cell.there.operator();
    for number in [Some((1 << 48) - 1), Some(1 << 40), Some(1 << 48), Some(u64::MAX), None] {
        let mut bytes = head.to_vec();
        let mut sink = Sink::new(&mut bytes, ByteOrder::Little);
        sink.begin(&begin, &list).unwrap();
        records.iter().for_each(|(record, payload)| sink.write(record, payload).unwrap());
        if let Some(object) = number {
            sink.write(&Record::Object(Object { object, ..model }), &bonus).unwrap();
        }
        sink.end(begin.to_guid).unwrap();
        let transaction = operator.begin(CLONE, attach::OFFLINE).unwrap();
        let version = BLOCKS_VERSION;
        let call = Call::RestoreBlocks { transaction, version, cookie: cookie(), base: 0, header };
        let expected = number.map(|_| volser::VOLSERREAD_DUMPERROR);
        assert_eq!(operator.raw(&call, &bytes).err(), expected, "{number:?}");
        operator.complete(transaction);
        cell.settle();
        cell.check_equal();
    }
}
