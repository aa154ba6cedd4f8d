//! Volumes that no call uses: their files are closed, and only their places are kept.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use afs::calls::fileserver::Call;
use afs::calls::volserver::{Call as Verb, Name, Reply, attach};
use afs::server::header::Stored;
use afs::server::table::Listed;
use afs::types::{Date, Fid, VolumeId};

use super::{Client, Rig, VOLUME, root};

const CLONE: VolumeId = VolumeId(VOLUME.0 + 2);

impl Rig {
    /// Has all volumes rest that can.
    fn rest(&self) {
        self.server().core().table.rest(0, usize::MAX);
    }

    fn rests(&self, id: VolumeId) -> bool {
        matches!(self.server().core().table.look(id).unwrap(), Listed::Resting { .. })
    }

    fn is_open(&self, id: VolumeId) -> bool {
        match self.server().core().table.look(id).unwrap() {
            Listed::Used(volume) => volume.is_open(),
            Listed::Resting { .. } => false,
        }
    }
}

fn give_up_all(client: &Client) {
    client.call(Call::GiveUpAllCallBacks {}).unwrap();
}

/// Goal: a volume that no call uses rests, and is what it was at its next use: its files with their
/// versions and uniques, its lists, its clones.
#[test]
fn volumes_rest() {
    let rig = Rig::new();
    rig.volume(VOLUME, "v");
    let (operator, client) = (rig.operator(), rig.client(None));
    let first = client.create(root(VOLUME), "f").unwrap().fid;
    client.store(first, 0, b"one", 3).unwrap();
    let transaction = operator.begin(VOLUME, attach::BUSY).unwrap();
    operator.clone_volume(transaction, 1, "v.readonly", CLONE).unwrap();
    // A transaction has it.
    rig.rest();
    assert!(rig.is_open(VOLUME));
    operator.end(transaction).unwrap();
    let transaction = operator.begin(CLONE, attach::OFFLINE).unwrap();
    operator.complete(transaction);
    let (version, about) = (client.version(first), operator.listed(VOLUME).unwrap());
    give_up_all(&client);
    rig.rest();
    assert_eq!((rig.rests(VOLUME), rig.rests(CLONE)), (true, true));
    assert_eq!(rig.server().core().table.count(afs::partition::PartitionId(0)), 2);
    // Lists open nothing.
    let Reply::ListVolumes(list) = operator.call(Verb::ListVolumes { partition: 0, flags: 1 }).unwrap()
    else {
        panic!()
    };
    let names = list.iter().map(|one| (one.id, one.name.as_bytes().to_vec(), one.in_use.0));
    let expected = [(VOLUME, b"v".to_vec(), 1), (CLONE, b"v.readonly".to_vec(), 1)];
    assert_eq!(names.collect::<Vec<_>>(), expected);
    assert_eq!(operator.listed(VOLUME).unwrap(), about);
    assert_eq!((rig.rests(VOLUME), rig.rests(CLONE)), (true, true));
    assert_eq!(client.version(first), version);
    assert_eq!(client.fetch(first, 0, 3).unwrap().0, b"one");
    let second = client.create(root(VOLUME), "g").unwrap().fid;
    assert_eq!(second.unique.0, first.unique.0 + 1);
    // What a resting clone is follows its volume.
    give_up_all(&client);
    rig.rest();
    operator.call(Verb::NukeVolume { partition: 0, volume: VOLUME }).unwrap();
    assert!(rig.rests(CLONE));
    let in_clone = Fid { volume: CLONE, ..first };
    assert_eq!(client.fetch(in_clone, 0, 3).unwrap().0, b"one");
    give_up_all(&client);
    rig.rest();
    operator.call(Verb::ConvertRoToRw { partition: 0, volume: CLONE }).unwrap();
    assert_eq!(client.fetch(first, 0, 3).unwrap().0, b"one");
}

/// Goal: what clients have of a volume outlives its files: promises and locks.
#[test]
fn promises_and_locks_outlive_files() {
    let rig = Rig::new();
    rig.volume(VOLUME, "v");
    let (one, two) = (rig.client(None), rig.client(None));
    let file = one.create(root(VOLUME), "f").unwrap().fid;
    give_up_all(&one);
    two.status(file).unwrap();
    rig.rest();
    assert_eq!((rig.is_open(VOLUME), rig.rests(VOLUME)), (false, false));
    one.store(file, 0, b"new", 3).unwrap();
    assert_eq!(*two.told.broken.lock(), [file]);
    one.call(Call::SetLock { fid: file, kind: 1 }).unwrap();
    [&one, &two].into_iter().for_each(give_up_all);
    rig.rest();
    assert_eq!((rig.is_open(VOLUME), rig.rests(VOLUME)), (false, false));
    assert!(two.call(Call::SetLock { fid: file, kind: 1 }).is_err());
    one.call(Call::ReleaseLock { fid: file }).unwrap();
    [&one, &two].into_iter().for_each(give_up_all);
    rig.rest();
    assert!(rig.rests(VOLUME));
}

/// Goal: beyond the bound of open volumes, the one that was used least lately is closed.
#[test]
fn few_are_open() {
    let rig = Rig::new();
    let ids: Vec<VolumeId> = (0..3).map(|number| VolumeId(VOLUME.0 + 10 * number)).collect();
    ids.iter().for_each(|id| rig.volume(*id, &id.to_string()));
    let client = rig.client(None);
    ids.iter().for_each(|id| _ = client.status(root(*id)).unwrap());
    rig.server().core().table.rest(u32::MAX, 2);
    assert_eq!(ids.iter().filter(|id| rig.is_open(**id)).count(), 2);
    rig.server().core().table.rest(u32::MAX, 2);
    assert_eq!(ids.iter().filter(|id| rig.is_open(**id)).count(), 2);
    ids.iter().for_each(|id| _ = client.status(root(*id)).unwrap());
}

/// Goal: volumes that come to rest while calls use them lose nothing, and no call fails.
#[test]
fn rest_beside_calls() {
    let rig = Rig::new();
    rig.volume(VOLUME, "v");
    let done = AtomicBool::new(false);
    let creates = |number: usize| {
        let client = rig.client(None);
        let create = |file| {
            let entry = client.create(root(VOLUME), &format!("{number}-{file}")).unwrap();
            give_up_all(&client);
            entry.fid.unique
        };
        (0..50).map(create).collect::<Vec<_>>()
    };
    let mut uniques = std::thread::scope(|scope| {
        let resting = scope.spawn(|| {
            while !done.load(Ordering::Acquire) {
                rig.rest();
            }
        });
        let creates = &creates;
        let clients: Vec<_> = (0..4).map(|number| scope.spawn(move || creates(number))).collect();
        let uniques: Vec<_> = clients.into_iter().flat_map(|client| client.join().unwrap()).collect();
        done.store(true, Ordering::Release);
        resting.join().unwrap();
        uniques
    });
    uniques.sort_unstable();
    uniques.dedup();
    assert_eq!(uniques.len(), 200);
    assert_eq!(rig.operator().listed(VOLUME).unwrap().file_count, 201);
}

/// Goal: a list has what was acknowledged before it began, whether the volume is in use, rests, or
/// came to rest just now.
#[test]
fn lists_are_not_older() {
    const FILES: u32 = 100;
    let rig = Rig::new();
    rig.volume(VOLUME, "v");
    let (made, rounds) = (AtomicU32::new(0), AtomicU32::new(0));
    let is_done = || made.load(Ordering::Acquire) == FILES && rounds.load(Ordering::Acquire) > 10;
    let client = rig.client(None);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_done() {
                rig.rest();
            }
        });
        scope.spawn(|| {
            let operator = rig.operator();
            while !is_done() {
                let least = 1 + made.load(Ordering::Acquire).cast_signed();
                let list = operator.call(Verb::ListVolumes { partition: 0, flags: 1 }).unwrap();
                let Reply::ListVolumes(list) = list else { panic!() };
                assert!(list.iter().all(|one| one.file_count >= least), "{list:?}, {least}");
                rounds.fetch_add(1, Ordering::AcqRel);
            }
        });
        for file in 0..FILES {
            client.create(root(VOLUME), &file.to_string()).unwrap();
            give_up_all(&client);
            made.fetch_add(1, Ordering::AcqRel);
        }
    });
}

/// Goal: a list reads no header of a volume that was just made. From its first use on, a volume has
/// the header of its files.
#[test]
fn headers_of_made_volumes() {
    let rig = Rig::new();
    let operator = rig.operator();
    let transaction = operator.create(VOLUME, "made").unwrap();
    operator.complete(transaction);
    let names = || {
        let list = operator.call(Verb::ListVolumes { partition: 0, flags: 1 }).unwrap();
        let Reply::ListVolumes(list) = list else { panic!() };
        let of_list: Vec<_> = list.iter().map(|one| one.name.as_bytes().to_vec()).collect();
        let alone = operator.listed(VOLUME).unwrap();
        (of_list, alone.name.as_bytes().to_vec(), alone.in_use.0)
    };
    let both = |name: &str| (vec![name.as_bytes().to_vec()], name.as_bytes().to_vec(), 1);
    let partition = rig.server().core().partition(afs::partition::PartitionId(0)).unwrap();
    {
        let fs = partition.fs(VOLUME).unwrap();
        let mut stored = Stored::read(&fs).unwrap().unwrap();
        stored.header.name = b"files".to_vec();
        stored.write(&fs).unwrap();
    }
    assert_eq!((names(), rig.is_open(VOLUME)), (both("made"), false));
    let client = rig.client(Some("admin"));
    client.status(root(VOLUME)).unwrap();
    assert_eq!((names(), rig.is_open(VOLUME)), (both("files"), true));
    give_up_all(&client);
    // In use, and closed.
    client.call(Call::SetLock { fid: root(VOLUME), kind: 0 }).unwrap();
    rig.rest();
    assert_eq!((names(), rig.is_open(VOLUME), rig.rests(VOLUME)), (both("files"), false, false));
}

/// Goal: properties for the cache steer a volume and its clone from their next opening on.
#[test]
fn properties_of_the_cache() {
    let rig = Rig::new();
    rig.volume(VOLUME, "v");
    let (operator, client) = (rig.operator(), rig.client(None));
    let transaction = operator.begin(VOLUME, attach::BUSY).unwrap();
    operator.clone_volume(transaction, 1, "v.readonly", CLONE).unwrap();
    operator.end(transaction).unwrap();
    operator.complete(operator.begin(CLONE, attach::OFFLINE).unwrap());
    let pool = rig.pool.as_ref().unwrap();
    let policies = || {
        [VOLUME, CLONE].iter().for_each(|id| _ = client.status(root(*id)).unwrap());
        let of = |name: String| {
            let object = pool.dataset(&name).unwrap().dsl().object().0;
            let cache = pool.spa().cache();
            (cache.keeps_data(object), cache.prefetches(object))
        };
        [of(format!("cell/vicepa/{VOLUME}")), of(format!("cell/vicepa/{VOLUME}@{CLONE}"))]
    };
    assert_eq!(policies(), [(true, Some(true)); 2]);
    pool.set("cell/vicepa", "primarycache", "metadata").unwrap();
    pool.set("cell/vicepa", "prefetch", "none").unwrap();
    give_up_all(&client);
    rig.rest();
    assert_eq!(policies(), [(false, None); 2]);
}

/// Goal: a change of a volume that comes to rest within the transaction, and is opened again, is on
/// disk when the transaction has ended.
#[test]
fn changes_before_a_rest() {
    let (mut rig, date) = (Rig::new(), Date(1_234_567_890));
    let operator = rig.operator();
    let name = Name::new("v.readonly").unwrap();
    let make = Verb::CreateVolume { partition: 0, name, kind: 1, parent: VOLUME, volume: CLONE };
    let Reply::CreateVolume(made) = operator.call(make).unwrap() else { panic!() };
    operator.complete(made.transaction);
    rig.sync_on_demand();
    let transaction = operator.begin(CLONE, attach::OFFLINE).unwrap();
    operator.call(Verb::SetDate { transaction, date }).unwrap();
    rig.rest();
    assert!(!rig.is_open(CLONE));
    operator.call(Verb::GetName { transaction }).unwrap();
    assert!(rig.is_open(CLONE));
    operator.end(transaction).unwrap();
    let crashed = rig.dir.path().join("crashed");
    std::fs::copy(rig.dir.path().join("d0"), &crashed).unwrap();
    drop(operator);
    rig.stop();
    rig.open(crashed);
    rig.start();
    assert_eq!(rig.operator().listed(CLONE).unwrap().creation_date, date);
}
