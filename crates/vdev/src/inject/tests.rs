use super::*;

fn leaf(guid: u64, on: Option<On>, wrong: Wrong) -> Fault {
    Fault { pool: Guid(1), target: Target::Leaf { leaf: Guid(guid), on, wrong }, often: ALWAYS }
}

/// Goal: a fault strikes the device and the kind of operation that it is meant for, until it is taken back.
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

/// Goal: blocks of an object are spoiled by their place and copy, of one pool alone.
#[test]
fn data() {
    let blocks = Blocks { objset: 7, object: 9, level: 0, blkid: 2..4, copies: 0b10, checksum: true };
    let id = add(Fault { pool: Guid(11), target: Target::Data(blocks), often: ALWAYS }).unwrap();
    let ask = |pool, blkid, copy: usize| spoil(|| Guid(pool), (7, 9, 0, blkid), || copy);
    assert_eq!(ask(11, 3, 1), Some(true));
    for (pool, blkid, copy) in [(12, 3, 1), (11, 4, 1), (11, 3, 0)] {
        assert_eq!(ask(pool, blkid, copy), None);
    }
    cancel(Some(id));
    assert_eq!(ask(11, 3, 1), None);
}

/// Goal: what is to happen now and then does so.
#[test]
fn now_and_then() {
    let rare = Fault { often: ALWAYS / 4, ..leaf(104, Some(On::Read), Wrong::Error(5)) };
    let id = add(rare).unwrap();
    let hits = (0..4000).filter(|_| strike(|| Guid(1), Guid(104), On::Read).is_some()).count();
    assert!((600..1400).contains(&hits), "{hits}");
    cancel(Some(id));
}

/// Goal: what was asked for of a pool that is gone is gone with it, and nothing else.
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
