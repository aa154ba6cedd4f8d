//! Calls on volumes.

use afs::calls::volserver::{Call, Reply, attach, volume_flag};
use afs::errors::{errno, volser, volume as code};
use afs::partition::PartitionId;
use afs::server::store::{Found, Partition};
use afs::types::{Date, RestoreCookie, VolumeId, VolumeInfo};
use afs::wire::{Chars, Flag};

use super::{Operator, Rig, VOLUME, denied, root};

const CLONE: VolumeId = VolumeId(VOLUME.0 + 2);
const OTHER: VolumeId = VolumeId(VOLUME.0 + 10);

fn restore(operator: &Operator, volume: VolumeId, dump: &[u8]) -> Result<(), i32> {
    let transaction = operator.begin(volume, attach::OFFLINE)?;
    let cookie = RestoreCookie { name: Chars::new(b"other"), parent: volume, ..RestoreCookie::default() };
    let restored = operator.raw(&Call::Restore { transaction, flags: 0, cookie }, dump).map(drop);
    operator.end(transaction)?;
    restored
}

/// Goal: a volume that was not completed is offline, is not listed, and goes with its transaction.
#[test]
fn new_volumes() {
    let rig = Rig::new();
    let (operator, client) = (rig.operator(), rig.client(None));
    let transaction = operator.create(VOLUME, "v").unwrap();
    assert_eq!(operator.create(VOLUME, "v").err(), Some(code::VVOLEXISTS));
    assert_eq!(client.status(root(VOLUME)).err(), Some(code::VOFFLINE));
    assert_eq!(operator.begin(VOLUME, attach::OFFLINE).err(), Some(volser::VOLSERVOLBUSY));
    let Reply::GetFlags(flags) = operator.call(Call::GetFlags { transaction }).unwrap() else { panic!() };
    assert_eq!(flags, volume_flag::DELETE_ON_SALVAGE | volume_flag::OUT_OF_SERVICE);
    operator.end(transaction).unwrap();
    let Reply::ListVolumes(list) = operator.call(Call::ListVolumes { partition: 0, flags: 1 }).unwrap()
    else {
        panic!()
    };
    assert!(list.is_empty());
    assert_eq!(client.status(root(VOLUME)).err(), Some(code::VOFFLINE));
    let transaction = operator.begin(VOLUME, attach::OFFLINE).unwrap();
    operator.complete(transaction);
    client.status(root(VOLUME)).unwrap();
    let about = operator.listed(VOLUME).unwrap();
    assert_eq!((about.name.as_bytes(), about.quota, about.in_use), (&b"v"[..], 5000, Flag(1)));
    for (transaction, expected) in [(999, errno::ENOENT), (transaction, errno::ENOENT)] {
        assert_eq!(operator.end(transaction).err(), Some(expected));
    }
    assert_eq!(operator.begin(OTHER, attach::OFFLINE).err(), Some(code::VNOVOL));
    assert_eq!(operator.begin(VOLUME, 0).err(), Some(errno::EINVAL));
    let listed = operator.call(Call::ListOneVolume { partition: 0, volume: OTHER });
    assert_eq!(listed.err(), Some(errno::ENODEV));
    let partition = Call::TransCreate { volume: VOLUME, partition: 1, flags: attach::BUSY };
    assert_eq!(operator.call(partition).err(), Some(volser::VOLSERILLEGAL_PARTITION));
}

/// Goal: a volume is made when it is complete, or when a call needs its files. Until then its
/// number is taken, and what `vos` does after an error leaves nothing.
#[test]
fn unmade_volumes() {
    let mut rig = Rig::new();
    let operator = rig.operator();
    let partition = rig.server().core().partitions().remove(0);
    let exists = |partition: &Partition| partition.stored(Found::Dataset(VOLUME)).is_ok();
    let transaction = operator.create(VOLUME, "v").unwrap();
    let info = VolumeInfo { quota: 7, ..operator.listed(VOLUME).unwrap() };
    operator.call(Call::SetInfo { transaction, info }).unwrap();
    assert!(!exists(&partition));
    operator.call(Call::DeleteVolume { transaction }).unwrap();
    assert_eq!(operator.begin(VOLUME, attach::OFFLINE).err(), Some(code::VNOVOL));
    // The number is free at once, and the end of the old transaction does not touch the new volume.
    let new = operator.create(VOLUME, "v").unwrap();
    operator.end(transaction).unwrap();
    operator.complete(new);
    assert_eq!(operator.listed(VOLUME).unwrap().name.as_bytes(), b"v");
    operator.call(Call::NukeVolume { partition: 0, volume: VOLUME }).unwrap();
    // It can't be made, as a dataset has its name. Then its number is free again, too.
    partition.pool().create_filesystem(&format!("{}/{OTHER}", partition.dataset())).unwrap();
    for _ in 0..2 {
        let transaction = operator.create(OTHER, "other").unwrap();
        assert!(operator.call(Call::SetFlags { transaction, flags: 0 }).is_err());
        assert!(operator.call(Call::GetName { transaction }).is_err());
        operator.end(transaction).unwrap();
    }
    assert_eq!(operator.begin(OTHER, attach::OFFLINE).err(), Some(code::VNOVOL));
    partition.pool().destroy(&format!("{}/{OTHER}", partition.dataset())).unwrap();
    // A call that needs files makes it as it is.
    let transaction = operator.create(VOLUME, "v").unwrap();
    operator.call(Call::GetName { transaction }).unwrap();
    assert!(exists(&partition));
    operator.call(Call::DeleteVolume { transaction }).unwrap();
    operator.end(transaction).unwrap();
    assert!(!exists(&partition));
    // The header is as it was changed before.
    let transaction = operator.create(VOLUME, "v").unwrap();
    let info = VolumeInfo { quota: 9, ..operator.listed(VOLUME).unwrap() };
    operator.call(Call::SetInfo { transaction, info }).unwrap();
    operator.complete(transaction);
    assert_eq!(operator.listed(VOLUME).unwrap().quota, 9);
    operator.create(OTHER, "other").unwrap();
    drop((operator, partition));
    rig.stop();
    rig.open(rig.dir.path().join("d0"));
    rig.start();
    let operator = rig.operator();
    assert_eq!(operator.listed(VOLUME).unwrap().quota, 9);
    assert_eq!(operator.begin(OTHER, attach::OFFLINE).err(), Some(code::VNOVOL));
    operator.create(OTHER, "other").unwrap();
}

/// Goal: only superusers change volumes.
#[test]
fn superusers_only() {
    let rig = Rig::new();
    rig.volume(VOLUME, "v");
    let client = rig.client(Some("admin"));
    let address = rig.server().volume_address().unwrap();
    let connection = client.endpoint.connect(address, 4, &rx::security::Null).unwrap();
    let call = |call: Call| connection.call(call.request(), super::TIME).map(drop);
    let refused = call(Call::TransCreate { volume: VOLUME, partition: 0, flags: attach::OFFLINE });
    assert!(matches!(refused, Err(rx::Error::Aborted { code: volser::VOLSERBAD_ACCESS })));
    call(Call::XListPartitions {}).unwrap();
}

/// Goal: a clone is a snapshot: it stays as it is, survives its volume, and becomes one.
#[test]
fn clones() {
    let rig = Rig::new();
    rig.volume(VOLUME, "v");
    let (operator, client) = (rig.operator(), rig.client(None));
    let file = client.create(root(VOLUME), "f").unwrap().fid;
    client.store(file, 0, b"one", 3).unwrap();
    let transaction = operator.begin(VOLUME, attach::BUSY).unwrap();
    // Reads go on while it is busy.
    client.fetch(file, 0, 3).unwrap();
    assert_eq!(client.store(file, 0, b"two", 3).err(), Some(code::VBUSY));
    operator.clone_volume(transaction, 1, "v.readonly", CLONE).unwrap();
    operator.end(transaction).unwrap();
    let in_clone = afs::types::Fid { volume: CLONE, ..file };
    assert_eq!(client.status(in_clone).err(), Some(code::VOFFLINE));
    let transaction = operator.begin(CLONE, attach::OFFLINE).unwrap();
    operator.complete(transaction);
    client.store(file, 0, b"two", 3).unwrap();
    assert_eq!(client.fetch(in_clone, 0, 3).unwrap().0, b"one");
    assert_eq!(client.store(in_clone, 0, b"xxx", 3).err(), Some(super::unified(errno::EROFS)));
    let about = operator.listed(CLONE).unwrap();
    assert_eq!((about.kind, about.parent), (1, VOLUME));
    assert_eq!(operator.listed(VOLUME).unwrap().clone, CLONE);
    // The volume goes, and the clone stays.
    let transaction = operator.begin(VOLUME, attach::OFFLINE).unwrap();
    operator.call(Call::DeleteVolume { transaction }).unwrap();
    operator.end(transaction).unwrap();
    assert_eq!(client.status(file).err(), Some(code::VNOVOL));
    assert_eq!(client.fetch(in_clone, 0, 3).unwrap().0, b"one");
    // Another volume of the same number may come, and go.
    rig.volume(VOLUME, "v");
    assert_eq!(client.status(file).err(), Some(code::VNOVNODE));
    let call = Call::ConvertRoToRw { partition: 0, volume: CLONE };
    assert_eq!(operator.call(call.clone()).err(), Some(code::VVOLEXISTS));
    operator.call(Call::NukeVolume { partition: 0, volume: VOLUME }).unwrap();
    operator.call(call).unwrap();
    assert_eq!(client.fetch(file, 0, 3).unwrap().0, b"one");
    client.store(file, 0, b"yes", 3).unwrap();
    assert_eq!(client.status(in_clone).err(), Some(code::VNOVOL));
    let about = operator.listed(VOLUME).unwrap();
    assert_eq!((about.name.as_bytes(), about.kind), (&b"v"[..], 0));
}

/// Goal: the verbs of `vos` wait for few transaction groups. Each costs writes to all devices, and
/// a flush of their caches.
#[test]
fn few_transaction_groups() {
    let rig = Rig::new();
    let operator = rig.operator();
    let synced = || {
        let partition = rig.server().core().partitions().remove(0);
        partition.pool().spa().writer().unwrap().txgs().synced().0
    };
    let mut least = [u64::MAX; 5];
    for _ in 0..8 {
        let mut at = vec![synced()];
        let transaction = operator.create(VOLUME, "v").unwrap();
        let mut info = operator.listed(VOLUME).unwrap();
        info.quota = 7;
        operator.call(Call::SetInfo { transaction, info }).unwrap();
        operator.complete(transaction);
        at.push(synced());
        for again in [false, true] {
            let transaction = operator.begin(VOLUME, attach::BUSY).unwrap();
            if again {
                operator.call(Call::ReClone { transaction, clone: CLONE }).unwrap();
            } else {
                operator.clone_volume(transaction, 2, "v.backup", CLONE).unwrap();
            }
            let of_clone = operator.begin(CLONE, attach::OFFLINE).unwrap();
            operator.complete(of_clone);
            operator.end(transaction).unwrap();
            at.push(synced());
        }
        for volume in [CLONE, VOLUME] {
            let transaction = operator.begin(volume, attach::OFFLINE).unwrap();
            let flags = volume_flag::DELETE_ON_SALVAGE | volume_flag::OUT_OF_SERVICE;
            operator.call(Call::SetFlags { transaction, flags }).unwrap();
            operator.call(Call::DeleteVolume { transaction }).unwrap();
            operator.end(transaction).unwrap();
            at.push(synced());
        }
        // Others may come in between: of the timer, and of the server's own.
        let waited = at.windows(2).map(|pair| pair[1] - pair[0]);
        least.iter_mut().zip(waited).for_each(|(least, waited)| *least = waited.min(*least));
    }
    assert_eq!(least, [1, 2, 1, 1, 1], "create, backup, backup again, remove backup, remove");
}

/// Goal: a dump restored elsewhere is the same volume. A damaged dump leaves the volume as it was.
#[test]
fn dumps_and_restores() {
    let rig = Rig::new();
    rig.volume(VOLUME, "v");
    rig.volume(OTHER, "other");
    let (operator, client) = (rig.operator(), rig.client(None));
    let file = client.create(root(VOLUME), "f").unwrap().fid;
    client.store(file, 0, b"contents", 8).unwrap();
    let dir = client.make_dir(root(VOLUME), "d").unwrap().fid;
    client.create(root(OTHER), "first").unwrap();
    let kept = client.create(root(OTHER), "kept").unwrap().fid;
    let dump = operator.dump(VOLUME, 0);
    let transaction = operator.begin(VOLUME, attach::BUSY).unwrap();
    let Reply::GetSize(size) = operator.call(Call::GetSize { transaction, since: Date(0) }).unwrap() else {
        panic!()
    };
    operator.end(transaction).unwrap();
    assert_eq!(size, dump.len() as u64);
    // Cut, and with bytes after its end.
    assert_eq!(restore(&operator, OTHER, &dump[..dump.len() - 1]).err(), Some(volser::VOLSERREAD_DUMPERROR));
    client.status(kept).unwrap();
    restore(&operator, OTHER, &dump).unwrap();
    assert_eq!(client.status(kept).err(), Some(code::VNOVNODE));
    let there = |fid| afs::types::Fid { volume: OTHER, ..fid };
    assert_eq!(client.fetch(there(file), 0, 99).unwrap().0, b"contents");
    assert_eq!(client.version(there(dir)), client.version(dir));
    let more = [&dump[..], b"x"].concat();
    assert_eq!(restore(&operator, OTHER, &more).err(), Some(volser::VOLSERREAD_DUMPERROR));
    // An increment.
    let since = operator.listed(VOLUME).unwrap().update_date.0;
    client.store(file, 0, b"CONTENTS", 8).unwrap();
    client
        .call(afs::calls::fileserver::Call::RemoveDir { directory: root(VOLUME), name: super::name("d") })
        .unwrap();
    restore(&operator, OTHER, &operator.dump(VOLUME, since)).unwrap();
    assert_eq!(client.fetch(there(file), 0, 99).unwrap().0, b"CONTENTS");
    assert_eq!(client.status(there(dir)).err(), Some(code::VNOVNODE));
    let about = operator.listed(OTHER).unwrap();
    assert_eq!((about.name.as_bytes(), about.file_count), (&b"other"[..], 2));
    // New files have uniques that the dumped volume never gave.
    let new = client.create(root(OTHER), "new").unwrap().fid;
    assert!(new.unique > dir.unique);
}

/// Goal: a read-only volume whose read-write volume moved away takes increments from there.
#[test]
fn restores_into_clones() {
    let rig = Rig::new();
    rig.volume(VOLUME, "v");
    rig.volume(OTHER, "elsewhere");
    let (operator, client) = (rig.operator(), rig.client(None));
    let file = client.create(root(VOLUME), "f").unwrap().fid;
    client.store(file, 0, b"one", 3).unwrap();
    let transaction = operator.begin(VOLUME, attach::BUSY).unwrap();
    operator.clone_volume(transaction, 1, "v.readonly", CLONE).unwrap();
    operator.end(transaction).unwrap();
    let transaction = operator.begin(CLONE, attach::OFFLINE).unwrap();
    operator.complete(transaction);
    restore(&operator, OTHER, &operator.dump(VOLUME, 0)).unwrap();
    let there = |volume| afs::types::Fid { volume, ..file };
    client.store(there(OTHER), 0, b"two", 3).unwrap();
    let since = operator.listed(CLONE).unwrap().creation_date;
    let dump = operator.dump(OTHER, since.0);
    // A clone of a volume that is here does not change.
    assert_eq!(restore(&operator, CLONE, &dump).err(), Some(errno::EROFS));
    operator.call(Call::NukeVolume { partition: 0, volume: VOLUME }).unwrap();
    assert_eq!(restore(&operator, CLONE, &dump[..dump.len() - 1]).err(), Some(volser::VOLSERREAD_DUMPERROR));
    assert_eq!(client.fetch(there(CLONE), 0, 9).unwrap().0, b"one");
    let about = operator.listed(CLONE).unwrap();
    assert_eq!((about.kind, about.parent, about.creation_date), (1, VOLUME, since));
    restore(&operator, CLONE, &dump).unwrap();
    assert_eq!(client.fetch(there(CLONE), 0, 9).unwrap().0, b"two");
    assert_eq!(client.status(file).err(), Some(code::VNOVOL));
}

/// Goal: what SetInfo, SetDate and SetIdsTypes set is listed, and a rename shows in `zfs list`.
#[test]
fn headers() {
    let rig = Rig::new();
    rig.volume(VOLUME, "v");
    let operator = rig.operator();
    let transaction = operator.begin(VOLUME, attach::OFFLINE).unwrap();
    let none = VolumeId(u32::MAX);
    let unset = Date(u32::MAX);
    let info = VolumeInfo {
        quota: 777,
        day_use: -1,
        creation_date: unset,
        update_date: Date(5),
        update_counter: -1,
        id: none,
        ..VolumeInfo::default()
    };
    operator.call(Call::SetInfo { transaction, info }).unwrap();
    operator.call(Call::SetDate { transaction, date: Date(6) }).unwrap();
    let name = afs::calls::volserver::Name::new("renamed").unwrap();
    let (parent, clone, backup) = (VOLUME, CLONE, OTHER);
    operator.call(Call::SetIdsTypes { transaction, name, kind: 0, parent, clone, backup }).unwrap();
    let Reply::GetStatus(status) = operator.call(Call::GetStatus { transaction }).unwrap() else { panic!() };
    assert_eq!((status.quota, status.creation_date, status.update_date), (777, Date(6), Date(5)));
    assert_eq!((status.clone, status.backup), (CLONE, OTHER));
    let Reply::Monitor(all) = operator.call(Call::Monitor {}).unwrap() else { panic!() };
    assert_eq!((all[0].volume, all[0].last_call.as_bytes()), (VOLUME, &b"GetStatus"[..]));
    assert_eq!(operator.listed(VOLUME).unwrap().status, code::VBUSY);
    operator.end(transaction).unwrap();
    let about = operator.listed(VOLUME).unwrap();
    assert_eq!((about.name.as_bytes(), about.clone, about.backup), (&b"renamed"[..], CLONE, OTHER));
    let pool = rig.pool.as_ref().unwrap();
    let dataset = pool.dataset(&format!("cell/vicepa/{VOLUME}")).unwrap();
    let shown = dataset.dsl().user_property(afs::server::store::NAME).unwrap().unwrap();
    assert_eq!(shown.value, dsl::Value::Text("renamed".into()));
}

/// Goal: partitions have their names and space.
#[test]
fn partitions() {
    let rig = Rig::new();
    let operator = rig.operator();
    let Reply::XListPartitions(all) = operator.call(Call::XListPartitions {}).unwrap() else { panic!() };
    assert_eq!(*all, [0]);
    let name = afs::wire::Text::new("/vicepa").unwrap();
    let Reply::PartitionInfo64(info) = operator.call(Call::PartitionInfo64 { name }).unwrap() else {
        panic!()
    };
    assert_eq!((info.name.as_bytes(), info.device.as_bytes()), (&b"/vicepa"[..], &b"cell/vicepa"[..]));
    assert!(info.free > 0 && info.free <= info.total);
}

/// Goal: a late call on a volume whose pool was abandoned notes nothing that is then taken for the
/// volume of the same number that is served in its place.
#[test]
fn late_calls_on_an_abandoned_volume() {
    let rig = Rig::new();
    rig.volume(VOLUME, "v");
    let (client, top) = (rig.client(None), root(VOLUME));
    let file = client.create(top, "f").unwrap().fid;
    let late = rig.server().core().table.get(VOLUME).unwrap().open().unwrap();
    // With the access list as it is now.
    let found = [top, file].map(|fid| late.find(fid.vnode, fid.unique).unwrap());
    rig.client(Some("admin")).set_acl(top, "1\n0\nbob\t127\n").unwrap();
    rig.server().abandon(PartitionId(0));
    let pool = rig.pool.clone().unwrap();
    rig.server().add(Partition::begin(PartitionId(0), pool, "cell/vicepa").unwrap()).unwrap();
    found.iter().for_each(|file| drop(late.know(file).unwrap()));
    drop((found, late));
    assert_eq!(client.status(file).err(), denied::<()>().err());
}

/// Goal: the list of volumes does not wait for a call that has a volume, nor for one that waits for
/// that call.
#[test]
fn a_list_waits_for_no_call() {
    let rig = Rig::new();
    rig.volume(VOLUME, "v");
    let volume = rig.server().core().table.get(VOLUME).unwrap();
    let entered = volume.enter(afs::server::volume::Access::Read).unwrap();
    assert!(volume.try_peek().is_some_and(|header| header.is_ok()));
    std::thread::scope(|scope| {
        // It waits for the call.
        scope.spawn(|| volume.set_service(afs::server::header::Service::Unknown));
        while volume.try_enter().is_some() {
            std::thread::yield_now();
        }
        assert!(volume.try_peek().is_none());
        drop(entered);
    });
    assert!(volume.try_peek().is_some_and(|header| header.is_ok()));
}
