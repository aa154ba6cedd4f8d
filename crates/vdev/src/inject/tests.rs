use super::*;

fn leaf(guid: u64, on: Option<On>, wrong: Wrong) -> Fault {
    Fault { pool: Guid(1), target: Target::Leaf { leaf: Guid(guid), on, wrong }, often: ALWAYS }
}

/// Goal: a fault strikes its device and its kind of operation, until it is cancelled.
#[test]
fn leaves() {
    let error = Wrong::Error(5);
    let id = add(leaf(101, Some(On::Write), error)).unwrap();
    let all = add(leaf(102, None, error)).unwrap();
    let noop = add(leaf(103, None, Wrong::Noop)).unwrap();
    let corrupt = add(leaf(103, None, Wrong::Corrupt)).unwrap();
    assert_eq!(
        (strike(|| Guid(1), Guid(101), On::Write), strike(|| Guid(1), Guid(101), On::Read)),
        (Some(error), None)
    );
    assert_eq!(
        (strike(|| Guid(1), Guid(102), On::Flush), strike(|| Guid(1), Guid(102), On::Probe)),
        (Some(error), None)
    );
    assert_eq!(strike(|| Guid(1), Guid(103), On::Read), Some(Wrong::Corrupt));
    assert_eq!(strike(|| Guid(1), Guid(103), On::Write), Some(Wrong::Noop));
    assert!(list().iter().any(|(of, _, hits)| (*of, *hits) == (id, 1)));
    assert_eq!(strike(|| Guid(2), Guid(101), On::Write), None, "it is meant for a device of another pool");
    for id in [id, all, noop, corrupt] {
        assert_eq!(cancel(Some(id)), 1);
    }
    assert_eq!(strike(|| Guid(1), Guid(101), On::Write), None);
}

/// Goal: a fault strikes blocks of an object by their place and copy, in one pool alone.
#[test]
fn data() {
    let blocks = Blocks { objset: 7, object: 9, level: 0, blkid: 2..4, copies: 0b10, how: Bad::Checksum };
    let id = add(Fault { pool: Guid(11), target: Target::Data(blocks), often: ALWAYS }).unwrap();
    let ask = |pool, blkid, copy: usize| {
        let block =
            InjectedBlock { objset: 7, object: 9, level: 0, blkid, kind: DmuType::PLAIN_FILE_CONTENTS };
        spoil(|| Guid(pool), &block, || copy)
    };
    assert_eq!(ask(11, 3, 1), Some(true));
    for (pool, blkid, copy) in [(12, 3, 1), (11, 4, 1), (11, 3, 0)] {
        assert_eq!(ask(pool, blkid, copy), None);
    }
    cancel(Some(id));
    assert_eq!(ask(11, 3, 1), None);
}

/// Goal: a fault with a probability strikes in that share of cases.
#[test]
fn now_and_then() {
    let rare = Fault { often: ALWAYS / 4, ..leaf(104, Some(On::Read), Wrong::Error(5)) };
    let id = add(rare).unwrap();
    let hits = (0..4000).filter(|_| strike(|| Guid(1), Guid(104), On::Read).is_some()).count();
    assert!((600..1400).contains(&hits), "{hits}");
    cancel(Some(id));
}

/// Goal: the faults of a pool that is gone are cancelled, and no others.
#[test]
fn a_pool_that_is_gone() {
    let read = |pool| Fault { pool: Guid(pool), ..leaf(105, Some(On::Read), Wrong::Error(5)) };
    let (gone, other) = (add(read(21)).unwrap(), add(read(22)).unwrap());
    forget(Guid(21));
    assert!(list().iter().all(|(id, _, _)| *id != gone));
    assert_eq!(strike(|| Guid(21), Guid(105), On::Read), None);
    assert_eq!(strike(|| Guid(22), Guid(105), On::Read), Some(Wrong::Error(5)));
    assert_eq!(cancel(Some(other)), 1);
}

/// Goal: a fault strikes blocks of the MOS by their types, or all of them, at every level and of
/// every object. Blocks of other object sets are spared.
#[test]
fn mos() {
    let asked = |pool, kind| {
        let blocks = MosBlocks { kind, copies: 0, how: Bad::Io };
        add(Fault { pool: Guid(pool), target: Target::Mos(blocks), often: ALWAYS }).unwrap()
    };
    let ids = [asked(31, Some(DmuType::SPACE_MAP)), asked(32, None)];
    let ask = |pool, objset, kind, level| {
        spoil(|| Guid(pool), &InjectedBlock { objset, object: 61, level, blkid: 5, kind }, || 0)
    };
    for level in [0, 1] {
        assert_eq!(ask(31, 0, DmuType::SPACE_MAP, level), Some(false));
        assert_eq!(ask(32, 0, DmuType::OBJECT_DIRECTORY, level), Some(false));
    }
    assert_eq!(ask(31, 0, DmuType::OBJECT_DIRECTORY, 0), None);
    assert_eq!(ask(31, 54, DmuType::SPACE_MAP, 0), None);
    assert_eq!(ask(32, 54, DmuType::DNODE, 0), None);
    ids.into_iter().for_each(|id| assert_eq!(cancel(Some(id)), 1));
}

/// Goal: a fault of a part of a device's labels strikes operations of its kind that begin in that
/// part. It strikes probes if it names them, and spares the device's other operations.
#[test]
fn labels() {
    let wrong = Wrong::Error(5);
    let asked = |leaf, part, on| {
        let target = Target::Label { leaf: Guid(leaf), part, on, wrong };
        add(Fault { pool: Guid(41), target, often: ALWAYS }).unwrap()
    };
    let ids = [
        asked(106, Part::Nvlist, None),
        asked(107, Part::Uber, Some(On::Write)),
        asked(108, Part::Pad2, Some(On::Probe)),
        asked(109, Part::Pad1, None),
    ];
    let ask = |leaf, at, on, probing| strike_label(Guid(leaf), at, on, probing).is_some();
    for (at, hit) in
        [(PHYS_OFFSET - 1, false), (PHYS_OFFSET, true), (RING_OFFSET - 1, true), (RING_OFFSET, false)]
    {
        assert_eq!((ask(106, at, On::Read, false), ask(106, at, On::Write, false)), (hit, hit), "{at}");
    }
    assert!(ask(107, LABEL_SIZE - 1, On::Write, false) && !ask(107, RING_OFFSET, On::Read, false));
    assert!(ask(108, BOOT_ENV_OFFSET, On::Read, true) && !ask(108, BOOT_ENV_OFFSET, On::Read, false));
    assert!(ask(109, 0, On::Read, false) && !ask(109, BOOT_ENV_OFFSET, On::Read, false));
    assert_eq!(strike(|| Guid(41), Guid(106), On::Write), None);
    ids.into_iter().for_each(|id| assert_eq!(cancel(Some(id)), 1));
    assert!(!ask(106, PHYS_OFFSET, On::Read, false));
}

/// Goal: during a spell every device of the pool loses writes, and nothing else is affected. The
/// spell ends after so many txgs, or so long, from the first on.
#[test]
fn a_spell() {
    let asked =
        |pool, spell| add(Fault { pool: Guid(pool), target: Target::Writes(spell), often: ALWAYS }).unwrap();
    let ids = [asked(51, Spell::Groups(2)), asked(52, Spell::Time(Duration::ZERO))];
    for leaf in [110, 111] {
        assert_eq!(strike(|| Guid(51), Guid(leaf), On::Write), Some(Wrong::Noop));
        for on in [On::Read, On::Flush, On::Probe] {
            assert_eq!(strike(|| Guid(51), Guid(leaf), on), None);
        }
    }
    assert_eq!(strike_label(Guid(110), RING_OFFSET, On::Write, false), None);
    let over = [7, 8, 9, 10].map(|txg| is_over(|| Guid(51), Txg(txg)));
    assert_eq!(over, [false, false, false, true]);
    assert!(!is_over(|| Guid(52), Txg(1)));
    let began = Instant::now();
    while began.elapsed() == Duration::ZERO {}
    assert!(is_over(|| Guid(52), Txg(1)) && !is_over(|| Guid(53), Txg(1)));
    ids.into_iter().for_each(|id| assert_eq!(cancel(Some(id)), 1));
    assert!(!is_over(|| Guid(51), Txg(11)));
}

/// Goal: blocks that can't be decoded are read as they are, and are wrong only in the way of their
/// fault.
#[test]
fn undecodable() {
    let asked = |object, how| {
        let blocks = Blocks { objset: 7, object, level: 0, blkid: 2..4, copies: 0, how };
        add(Fault { pool: Guid(61), target: Target::Data(blocks), often: ALWAYS }).unwrap()
    };
    let ids = [asked(1, Bad::Decrypt), asked(2, Bad::Decompress), asked(3, Bad::Io)];
    let ways = |object, blkid| {
        let block = InjectedBlock { objset: 7, object, level: 0, blkid, kind: DmuType::PLAIN_FILE_CONTENTS };
        assert_eq!(spoil(|| Guid(61), &block, || 0).is_some(), object == 3 && blkid == 3);
        [Bad::Decrypt, Bad::Decompress].map(|way| baffles(|| Guid(61), &block, way))
    };
    assert_eq!([ways(1, 3), ways(2, 3), ways(3, 3)], [[true, false], [false, true], [false, false]]);
    assert_eq!([ways(1, 4), ways(2, 4)], [[false; 2]; 2]);
    ids.into_iter().for_each(|id| assert_eq!(cancel(Some(id)), 1));
}
