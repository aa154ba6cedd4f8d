//! How many transaction groups a release takes.

use super::*;

/// The groups of a release of changed files, at the source and at another site.
const GROUPS: [u64; 2] = [1, 4];

/// The last synced group of each server.
fn synced(cell: &Cell) -> [u64; 2] {
    [&cell.here, &cell.there].map(|rig| {
        let pool = rig.pool.as_ref().unwrap();
        pool.spa().writer().unwrap().txgs().synced().0
    })
}

/// Releases as `vos` does, and returns how many groups that took at the source and at the other
/// site. It restores under the name of the read-write volume, and then sets the one that the volume
/// has.
fn release(cell: &Cell) -> [u64; 2] {
    for rig in [&cell.here, &cell.there] {
        rig.pool.as_ref().unwrap().sync().unwrap();
    }
    let before = synced(cell);
    cell.reclone();
    let (own, there) = (cell.here.operator(), cell.there.operator());
    let (source, transaction) = (own.begin(CLONE, attach::BUSY).unwrap(), Cell::begin(&there));
    let (to, cookie) = (destination(&cell.there), RestoreCookie { name: Chars::new(b"v"), ..cookie() });
    let to = List::new(vec![Replica { transaction, server: to }]).unwrap();
    let call = Call::ForwardMultiple { transaction: source, since: Date(1), to, spare: 0, cookie };
    let Reply::ForwardMultiple(codes) = own.call(call).unwrap() else { panic!() };
    assert_eq!(codes.into_vec(), [0]);
    let (name, clone) = (Name::new("v.readonly").unwrap(), VolumeId(0));
    let (kind, backup) = (READ_ONLY, clone);
    there.call(Call::SetIdsTypes { transaction, name, kind, parent: VOLUME, clone, backup }).unwrap();
    there.complete(transaction);
    own.end(source).unwrap();
    let after = synced(cell);
    cell.check_equal();
    [after[0] - before[0], after[1] - before[1]]
}

/// Goal: a release of changed files takes few transaction groups: so many at the source, and so
/// many at each other site. More may sync by their age, so the least of some releases counts.
#[test]
fn groups_of_a_release() {
    let cell = Cell::new(3);
    cell.release(0).unwrap();
    let mut least = [u64::MAX; 2];
    for seed in 0..4 {
        cell.change(seed as usize % 3, 100 + seed);
        let took = release(&cell);
        least = [least[0].min(took[0]), least[1].min(took[1])];
    }
    assert_eq!(cell.traffic().0, 5);
    assert_eq!(least, GROUPS);
}
