//! The former snapshot of a volume, which stays until changes were sent.

use std::time::Duration;

use super::super::restarts::wait;
use super::*;

/// Files of a few blocks of dnodes.
const FILES: usize = 40;
/// What an increment has less that names the file that changed alone, and not all that share its
/// block of dnodes: at least ten records.
const LESS: u64 = 10 * 312;

pub(super) fn name() -> String {
    format!("cell/vicepa/{VOLUME}@release-former")
}

fn has_former(cell: &Cell) -> bool {
    cell.here.pool.as_ref().unwrap().sync().unwrap();
    is_there(&cell.here, &name())
}

fn partition(cell: &Cell) -> Arc<Partition> {
    cell.here.server().core().partition(PartitionId(0)).unwrap()
}

/// Ends all former snapshots whose time-out runs, but for volumes in use.
fn end_time_outs(cell: &Cell, used: &[VolumeId]) {
    partition(cell).queue_drop_formers(Duration::ZERO, |id| used.contains(&id));
}

/// A cell whose clone was sent, and how long an increment with all neighbours of a file is.
fn released() -> (Cell, u64) {
    let cell = Cell::with(FILES, |seed, _| testpools::noise(seed, 512));
    cell.release(0).unwrap();
    assert!(!has_former(&cell));
    cell.change(3, 100);
    cell.reclone();
    cell.here.pool.as_ref().unwrap().destroy(&name()).unwrap();
    let length = sent(&cell);
    (cell, length)
}

/// Releases an increment. Returns its length.
fn sent(cell: &Cell) -> u64 {
    let (volumes, bytes, dumps) = cell.traffic();
    cell.release(1).unwrap();
    cell.check_equal();
    let now = cell.traffic();
    assert_eq!((now.0, now.2), (volumes + 1, dumps));
    now.1 - bytes
}

/// Goal: an increment from the former snapshot names what changed alone, and that ends the former
/// clone. If nothing changed, it stays for the next one, however many releases that takes.
#[test]
fn it_stays_until_changes_are_sent() {
    let (cell, with_neighbours) = released();
    let mut seed = 200;
    for unchanged in [0, 1, 3] {
        for _ in 0..unchanged {
            cell.reclone();
            assert!(has_former(&cell));
            let before = cell.traffic();
            cell.release(1).unwrap();
            cell.check_equal();
            assert_eq!(cell.traffic(), before);
            end_time_outs(&cell, &[]);
            assert!(has_former(&cell));
        }
        seed += 1;
        cell.change(3, seed);
        cell.reclone();
        assert!(has_former(&cell));
        let length = sent(&cell);
        assert!(length + LESS < with_neighbours, "{length}, {with_neighbours}");
        assert!(!has_former(&cell));
    }
    // It stayed for a release that never came.
    cell.change(3, 210);
    for _ in 0..2 {
        cell.reclone();
        cell.release(1).unwrap();
    }
    cell.change(3, 211);
    cell.reclone();
    end_time_outs(&cell, &[]);
    assert!(!has_former(&cell));
}

/// Goal: a clone that no site got is not the former one. The one that the sites have is, also if
/// releases fail.
#[test]
fn it_is_what_sites_have() {
    let (cell, with_neighbours) = released();
    let guid = || cell.here.pool.as_ref().unwrap().dataset(&name()).unwrap().dsl().phys().guid;
    for seed in 300..303 {
        cell.change(5, seed);
        cell.reclone();
        assert_eq!(guid(), cell.base());
    }
    // A call that reaches only one of two sites may be repeated.
    let (own, there) = (cell.here.operator(), cell.there.operator());
    let (transaction, to) = (own.begin(CLONE, attach::BUSY).unwrap(), Cell::begin(&there));
    let nowhere = Replica { transaction: 0, server: Destination { port: 9, ..destination(&cell.there) } };
    let to = [Replica { transaction: to, server: destination(&cell.there) }, nowhere];
    let (since, to) = (Date(1), List::new(to.to_vec()).unwrap());
    let call = Call::ForwardMultiple { transaction, since, to: to.clone(), spare: 0, cookie: cookie() };
    let Reply::ForwardMultiple(codes) = own.call(call).unwrap() else { panic!() };
    assert!(matches!(codes.into_vec()[..], [0, failed] if failed != 0));
    own.end(transaction).unwrap();
    there.complete(to.into_vec()[0].transaction);
    cell.check_equal();
    assert!(has_former(&cell));
    assert_ne!(guid(), cell.base());
    for used in [VOLUME, CLONE] {
        end_time_outs(&cell, &[used]);
        assert!(has_former(&cell));
    }
    end_time_outs(&cell, &[]);
    assert!(!has_former(&cell));
    cell.change(5, 304);
    cell.reclone();
    let length = sent(&cell);
    assert!(length + LESS < with_neighbours, "{length}, {with_neighbours}");
    assert!(!has_former(&cell));
    // Backup volumes have no former one, and end none.
    let operator = cell.here.operator();
    let backup = VolumeId(VOLUME.0 + 2);
    let transaction = operator.begin(VOLUME, attach::BUSY).unwrap();
    operator.clone_volume(transaction, 2, "v.backup", backup).unwrap();
    operator.call(Call::ReClone { transaction, clone: backup }).unwrap();
    operator.end(transaction).unwrap();
    assert!(!has_former(&cell));
    cell.change(5, 310);
    cell.reclone();
    let transaction = operator.begin(VOLUME, attach::BUSY).unwrap();
    operator.call(Call::ReClone { transaction, clone: backup }).unwrap();
    operator.end(transaction).unwrap();
    assert!(has_former(&cell));
}

/// Goal: a former snapshot that is in use hinders no release, and goes with a later one.
#[test]
fn one_in_use() {
    let (cell, with_neighbours) = released();
    let live = cell.here.pool.as_ref().unwrap().spa().writer().unwrap();
    cell.change(3, 400);
    cell.reclone();
    let holds = vec![(name(), "test".to_owned())];
    live.run(Box::new(HoldSnapshots { holds: holds.clone() })).unwrap();
    for seed in 401..403 {
        let length = sent(&cell);
        assert_eq!(length + LESS < with_neighbours, seed == 401, "{length}, {with_neighbours}");
        assert!(has_former(&cell));
        cell.change(3, seed);
        cell.reclone();
    }
    live.run(Box::new(ReleaseSnapshots { holds })).unwrap();
    sent(&cell);
    cell.change(3, 404);
    cell.reclone();
    let guid = cell.base();
    let (_, hold) = partition(&cell).origin(Head::of(VOLUME), CLONE, guid).unwrap().unwrap();
    assert!(cell.here.pool.as_ref().unwrap().destroy(&name()).is_err(), "a stream reads it");
    drop(hold);
    let length = sent(&cell);
    assert!(length + LESS < with_neighbours, "{length}, {with_neighbours}");
    assert!(!has_former(&cell));
    // Another's of that name stays.
    let pool = cell.here.pool.as_ref().unwrap();
    pool.snapshot(&name()).unwrap();
    for seed in 405..407 {
        cell.change(3, seed);
        cell.reclone();
        sent(&cell);
        end_time_outs(&cell, &[]);
        assert!(has_former(&cell));
    }
}

/// Goal: a limit of snapshots that has no place for a former one hinders no release.
#[test]
fn one_too_many() {
    let (cell, _) = released();
    let pool = cell.here.pool.as_ref().unwrap();
    cell.reclone();
    cell.release(1).unwrap();
    assert!(has_former(&cell));
    // The clone, the former snapshot, and the new clone until it takes the place of the clone.
    pool.set(&format!("cell/vicepa/{VOLUME}"), "snapshot_limit", "2").unwrap();
    cell.change(3, 700);
    cell.reclone();
    assert!(!has_former(&cell));
    sent(&cell);
}

/// Goal: a former snapshot whose release never comes goes after the time-out of transactions, and
/// with the server. One that a crash leaves goes with the next release.
#[test]
fn one_without_a_release() {
    let (mut cell, with_neighbours) = released();
    let image = cell.here.dir.path().join("d0");
    cell.here.stop();
    cell.here.open(image.clone());
    cell.here.start_with(|options| options.transactions = Duration::from_secs(1));
    cell.client = cell.here.client(None);
    cell.change(3, 500);
    cell.reclone();
    wait(|| !has_former(&cell));
    cell.here.stop();
    cell.here.open(image.clone());
    cell.here.start();
    cell.client = cell.here.client(None);
    cell.change(3, 501);
    cell.reclone();
    assert!(has_former(&cell));
    let crashed = cell.here.dir.path().join("crashed");
    std::fs::copy(&image, &crashed).unwrap();
    cell.here.stop();
    cell.here.open(image);
    assert!(datasets(&cell.here, '@').iter().all(|name| !name.ends_with("former")));
    cell.here.pool.take().unwrap().export().unwrap();
    cell.here.open(crashed);
    cell.here.start();
    assert!(has_former(&cell));
    cell.client = cell.here.client(None);
    cell.change(3, 502);
    cell.reclone();
    let length = sent(&cell);
    // The site has the one before the former one.
    assert!(length + LESS > with_neighbours, "{length}, {with_neighbours}");
    assert!(!has_former(&cell));
}

/// Goal: the former snapshot ends with the clone, and with the volume. One in use hinders neither,
/// and stays.
#[test]
fn one_whose_volume_ends() {
    for (is_changed, is_held, volumes) in
        [(true, false, [VOLUME, CLONE]), (false, false, [CLONE, VOLUME]), (true, true, [VOLUME, CLONE])]
    {
        let (cell, _) = released();
        if is_changed {
            cell.change(3, 600);
        }
        cell.reclone();
        if !is_changed {
            cell.release(1).unwrap();
        }
        assert!(has_former(&cell));
        if is_held {
            let holds = vec![(name(), "test".to_owned())];
            let live = cell.here.pool.as_ref().unwrap().spa().writer().unwrap();
            live.run(Box::new(HoldSnapshots { holds })).unwrap();
        }
        let operator = cell.here.operator();
        for volume in volumes {
            let transaction = operator.begin(volume, attach::OFFLINE).unwrap();
            operator.call(Call::DeleteVolume { transaction }).unwrap();
            operator.end(transaction).unwrap();
            let left = datasets(&cell.here, '@');
            let clones = usize::from(volume == VOLUME && volumes[0] == VOLUME);
            assert_eq!(left.len(), clones + usize::from(is_held), "{volume:?}: {left:?}");
        }
    }
}
