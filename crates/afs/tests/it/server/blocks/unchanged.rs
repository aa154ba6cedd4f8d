//! Releases of volumes that have not changed.

use super::*;

/// Changes the header of the read-write volume, and nothing else.
fn set_quota(cell: &Cell, quota: i32) {
    let operator = cell.here.operator();
    let transaction = operator.begin(VOLUME, attach::BUSY).unwrap();
    let mut info = operator.listed(VOLUME).unwrap();
    (info.quota, info.day_use, info.spare, info.min_quota) = (quota, -1, -1, -1);
    operator.call(Call::SetInfo { transaction, info }).unwrap();
    operator.end(transaction).unwrap();
}

/// Goal: a release of a volume whose files have not changed sends its header alone, and the next
/// ones are increments as ever. A site whose own files changed gets what it lost, and one that was
/// only taken out of service and back does not.
#[test]
fn releases_of_nothing() {
    let cell = Cell::new(3);
    cell.release(0).unwrap();
    let same = || cell.here.server().core().traffic.same.load(Ordering::Relaxed);
    let again = || {
        cell.reclone();
        cell.release(1).unwrap();
        cell.check_equal();
        (cell.traffic().0, same(), cell.traffic().2)
    };
    let reader = cell.there.client(None);
    for round in 0..6 {
        let before = reader.status(Fid { volume: CLONE, ..cell.files[0] }).unwrap();
        assert_eq!(again(), (1, 1 + round, 0));
        let after = reader.status(Fid { volume: CLONE, ..cell.files[0] }).unwrap();
        assert_eq!(after.status.data_version, before.status.data_version);
    }
    set_quota(&cell, 4_000_000);
    assert_eq!(again(), (1, 7, 0));
    assert_eq!(cell.there.operator().listed(CLONE).unwrap().quota, 4_000_000);
    cell.change(0, 10);
    assert_eq!(again(), (2, 7, 0));
    assert_eq!(again(), (2, 8, 0));
    // The access list of a directory, which is no data.
    cell.client.set_acl(root(VOLUME), "1\n0\nsystem:anyuser 127\n").unwrap();
    assert_eq!(again(), (3, 8, 0));
    assert_eq!(again(), (3, 9, 0));
    write_at(&cell.there, cell.files[1]);
    assert_eq!(again(), (4, 9, 0));
    let there = Fid { volume: CLONE, ..cell.files[1] };
    assert!(reader.fetch(there, 0, FILE as i64).unwrap().0 == text(2, FILE));
    assert_eq!(again(), (4, 10, 0));
    // Also after a restart of both.
    let mut cell = cell;
    for is_here in [true, false] {
        let rig = if is_here { &mut cell.here } else { &mut cell.there };
        rig.stop();
        rig.open(rig.dir.path().join("d0"));
        rig.start();
    }
    cell.client = cell.here.client(None);
    let same = || cell.here.server().core().traffic.same.load(Ordering::Relaxed);
    cell.reclone();
    cell.release(1).unwrap();
    cell.check_equal();
    assert_eq!((cell.traffic().0, same(), cell.traffic().2), (0, 1, 0));
    cell.there.stop();
    testpools::judge(cell.there.dir.path(), "cell");
}

/// Goal: what `vos` does after a release of nothing costs no transaction group. It restores under
/// the name of the read-write volume, and then sets the name that the volume has.
#[test]
fn few_groups() {
    let cell = Cell::new(1);
    cell.release(0).unwrap();
    cell.reclone();
    let (own, there) = (cell.here.operator(), cell.there.operator());
    let (transaction, to_transaction) = (own.begin(CLONE, attach::BUSY).unwrap(), Cell::begin(&there));
    let (since, to) = (Date(1), destination(&cell.there));
    let cookie = RestoreCookie { name: Chars::new(b"v"), ..cookie() };
    own.call(Call::Forward { transaction, since, to, to_transaction, cookie }).unwrap();
    own.end(transaction).unwrap();
    let synced = || cell.there.pool.as_ref().unwrap().spa().writer().unwrap().txgs().synced();
    let before = synced();
    let (name, clone) = (Name::new("v.readonly").unwrap(), VolumeId(0));
    let (transaction, kind, backup) = (to_transaction, READ_ONLY, clone);
    there.call(Call::SetIdsTypes { transaction, name, kind, parent: VOLUME, clone, backup }).unwrap();
    there.complete(transaction);
    assert_eq!(synced(), before);
    cell.check_equal();
    assert_eq!(cell.here.server().core().traffic.same.load(Ordering::Relaxed), 1);
}

/// Goal: after the call, a crash keeps the header, also if clients have opened the volume since. A
/// site that has crashed takes a header alone again, or an increment, and no dump.
#[test]
fn crashes() {
    let mut cell = Cell::new(3);
    cell.release(0).unwrap();
    // Dates have no parts of seconds, so they may be those of the first release.
    set_quota(&cell, 3_000_000);
    cell.reclone();
    let operator = cell.there.operator();
    let transaction = Cell::begin(&operator);
    cell.send(1, destination(&cell.there), transaction).unwrap();
    cell.there.client(None).status(Fid { volume: CLONE, ..cell.files[0] }).unwrap();
    let crashed = cell.there.dir.path().join("crashed");
    std::fs::copy(cell.there.dir.path().join("d0"), &crashed).unwrap();
    operator.end(transaction).unwrap();
    drop(operator);
    cell.there.stop();
    cell.there.open(crashed);
    cell.there.start();
    let about = |rig: &Rig| {
        let about = rig.operator().listed(CLONE).unwrap();
        (about.creation_date, about.update_date, about.quota)
    };
    assert_eq!(about(&cell.here).2, 3_000_000);
    assert_eq!(about(&cell.here), about(&cell.there));
    for _ in 0..3 {
        cell.reclone();
        cell.release(1).unwrap();
        cell.check_equal();
        assert_eq!(about(&cell.here), about(&cell.there));
    }
    assert_eq!(cell.traffic().2, 0);
}
