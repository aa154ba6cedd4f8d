//! How many transaction groups a release takes.

use super::*;

/// The groups of a release of changed files, at the source and at another site.
const GROUPS: [u64; 2] = [1, 2];

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
    let mut cell = Cell::new(3);
    cell.release(0).unwrap();
    let mut least = [u64::MAX; 2];
    for seed in 0..4 {
        cell.change(seed as usize % 3, 100 + seed);
        let took = release(&cell);
        least = [least[0].min(took[0]), least[1].min(took[1])];
    }
    assert_eq!(cell.traffic().0, 5);
    assert_eq!(least, GROUPS);
    for rig in [&mut cell.here, &mut cell.there] {
        rig.stop();
        testpools::judge(rig.dir.path(), "cell");
    }
}

/// Goal: once a release is complete, a crash undoes none of it: neither the first one, which makes
/// the volume of the site, nor a later one. The next release is an increment.
#[test]
fn a_crash_after_a_release() {
    let mut cell = Cell::new(2);
    let mut image = cell.there.dir.path().join("d0");
    for round in 0..2 {
        cell.change(0, 100 + round);
        cell.reclone();
        let operator = cell.there.operator();
        let transaction = Cell::begin(&operator);
        cell.send(round as u32, destination(&cell.there), transaction).unwrap();
        operator.complete(transaction);
        let crashed = cell.there.dir.path().join(format!("crashed{round}"));
        std::fs::copy(&image, &crashed).unwrap();
        let right = operator.listed(CLONE).unwrap();
        drop(operator);
        cell.there.stop();
        cell.there.open(crashed.clone());
        cell.there.start();
        image = crashed;
        let found = cell.there.operator().listed(CLONE).unwrap();
        let of = |about: &afs::types::VolumeInfo| {
            (about.creation_date, about.update_date, about.kind, about.in_use.0, about.size, about.file_count)
        };
        assert_eq!((of(&found), found.name), (of(&right), right.name));
        let there = Fid { volume: CLONE, ..cell.files[0] };
        assert!(cell.there.client(None).fetch(there, 0, FILE as i64).unwrap().0 == text(100 + round, FILE));
        assert_eq!(datasets(&cell.there, '@').len(), 1);
    }
    cell.change(1, 200);
    cell.reclone();
    cell.release(1).unwrap();
    assert_eq!((cell.traffic().0, cell.traffic().2), (3, 0));
    cell.check_equal();
}
