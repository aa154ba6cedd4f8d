use super::*;

fn names(txg: u64, n: u8) -> Itx {
    Itx { txg: Txg(txg), body: Body::Whole(vec![n]) }
}

fn data(txg: u64, object: u64, offset: u64, length: u64) -> Itx {
    Itx { txg: Txg(txg), body: Body::Data { object, offset, length } }
}

/// What a take yields, in short: the byte of a record of names, or object and offset of a write.
fn said(taken: VecDeque<Itx>) -> Vec<(u64, u64)> {
    let short = |itx: Itx| match itx.body {
        Body::Whole(raw) | Body::Clones(raw) => (0, raw[0].into()),
        Body::Data { object, offset, .. } => (object, offset),
    };
    taken.into_iter().map(short).collect()
}

/// Goal: a take yields names in the order of their txgs. An object's data follows the names of its
/// txg, if it was pulled; the data of other objects stays.
#[test]
fn takes_are_in_order() {
    let mut p = Pending::default();
    p.push(names(5, 1));
    p.push_of(7, data(5, 7, 100, 10));
    p.push_of(8, data(5, 8, 0, 10));
    p.push(names(5, 2));
    p.push(names(6, 3));
    p.push_of(7, data(6, 7, 500, 10));
    p.pull(Some(7));
    assert!(p.is_waiting(Txg(4)) && !p.is_waiting(Txg(6)));
    assert_eq!(said(p.take(Txg(4))), [(0, 1), (0, 2), (7, 100), (0, 3), (7, 500)]);
    assert_eq!(said(p.take(Txg(4))), []);
    p.pull(None);
    assert_eq!(said(p.take(Txg(4))), [(8, 0)]);
}

/// Goal: adjacent writes of one txg become one record up to a limit, and their bytes are known.
#[test]
fn neighbours_join() {
    let mut p = Pending::default();
    for n in 0..20 {
        p.push_of(7, data(5, 7, n << 17, 1 << 17));
    }
    p.push_of(7, data(6, 7, 20 << 17, 1 << 17));
    p.push_of(7, data(6, 7, 0, 100));
    assert_eq!(p.bytes_of(7, None), (21 << 17) + 100);
    // Writes of the txg that names its blocks count less, except for the small one.
    assert_eq!(p.bytes_of(7, Some(Txg(6))), (20 << 17) + (1 << 17) / NAMED_SHARE + 100);
    p.pull(Some(7));
    let starts = [(7, 0), (7, 8 << 17), (7, 16 << 17), (7, 20 << 17), (7, 0)];
    assert_eq!(said(p.take(Txg(4))), starts);
    assert_eq!(p.bytes_of(7, None), 0);
}

/// Goal: records that have synced, or that belong to a removed object, are dropped.
#[test]
fn what_nobody_needs_is_forgotten() {
    let mut p = Pending::default();
    p.push(names(5, 1));
    p.push(names(6, 2));
    p.push_of(7, data(6, 7, 0, 10));
    p.push_of(8, data(6, 8, 0, 10));
    p.forget(7);
    assert_eq!(p.clean(Txg(5)).len(), TXG_SIZE - 1);
    p.pull(None);
    assert_eq!(said(p.take(Txg(4))), [(0, 2), (8, 0)]);
    // Four txgs later the slot belongs to another txg.
    p.push(names(10, 3));
    assert_eq!(said(p.take(Txg(6))), [(0, 3)]);
}

/// Goal: while a change without a record is not on disk, everything stays where it is.
#[test]
fn barred_by_a_change_without_a_record() {
    let mut pending = Pending::default();
    assert_eq!(pending.barred(Txg(0)), None);
    pending.unlogged = Txg(7);
    assert_eq!(pending.barred(Txg(6)), Some(Txg(7)));
    assert_eq!(pending.barred(Txg(7)), None);
}
