//! Calls on files: statuses, versions, data, errors, quotas.

use std::time::Instant;

use afs::calls::fileserver::{Call, Message, Reply, lock};
use afs::calls::volserver::attach;
use afs::errors::{errno, volume as code};
use afs::types::{Date, Fid, StoreStatus, StoreVolumeStatus, Unique, Vnode, VnodeType, VolumeId};
use afs::wire::List;

use super::{Client, Rig, TIME, VOLUME, name, root, unified};

/// Goal: each change raises the version of each directory that it changes by one, and the replies
/// have the statuses after the change.
#[test]
fn versions_of_directories() {
    let rig = Rig::new();
    rig.volume(VOLUME, "v");
    let (client, top) = (rig.client(None), root(VOLUME));
    let before = client.version(top);
    let made = client.create(top, "f").unwrap();
    assert_eq!(made.directory.data_version.0, before + 1);
    assert_eq!((made.status.data_version.0, made.status.link_count), (0, 1));
    assert_eq!(made.fid.vnode.0 % 2, 0);
    assert_eq!((made.status.parent, made.status.parent_unique), (Vnode::ROOT, Unique(1)));
    let dir = client.make_dir(top, "d").unwrap();
    assert_eq!((dir.fid.vnode.0 % 2, dir.status.link_count), (1, 2));
    assert_eq!((dir.directory.data_version.0, dir.directory.link_count), (before + 2, 3));
    assert_eq!((dir.status.parent, dir.status.length), (dir.fid.vnode, 2048));

    // A rename changes both directories, and of a directory that moves the entry `..`.
    let (one, two) = (client.make_dir(top, "one").unwrap().fid, client.make_dir(top, "two").unwrap().fid);
    let moved = client.make_dir(one, "m").unwrap().fid;
    let versions = [one, two, moved].map(|fid| client.version(fid));
    let call = |old_directory, old, new_directory, new| Call::Rename {
        old_directory,
        old_name: name(old),
        new_directory,
        new_name: name(new),
    };
    let Reply::Rename(reply) = client.call(call(one, "m", two, "n")).unwrap() else { panic!() };
    assert_eq!(reply.old_directory.data_version.0, versions[0] + 1);
    assert_eq!(reply.new_directory.data_version.0, versions[1] + 1);
    assert_eq!((reply.old_directory.link_count, reply.new_directory.link_count), (2, 3));
    assert_eq!(client.version(moved), versions[2] + 1);
    let Reply::Rename(reply) = client.call(call(two, "n", two, "o")).unwrap() else { panic!() };
    assert_eq!(reply.old_directory, reply.new_directory);
    assert_eq!((client.version(two), client.version(moved)), (versions[1] + 2, versions[2] + 1));

    // Removing.
    let version = client.version(top);
    client.remove(top, "f").unwrap();
    assert_eq!(client.version(top), version + 1);
    assert_eq!(client.status(made.fid), Err(code::VNOVNODE));
    let again = client.create(top, "f").unwrap();
    assert_ne!(again.fid.unique, made.fid.unique);
}

/// Goal: a store raises the version by one, whatever its size and whether it cuts the file, and
/// data are read back at every place.
#[test]
fn stores() {
    let rig = Rig::new();
    rig.volume(VOLUME, "v");
    let client = rig.client(None);
    // The default quota is 5,000 KiB.
    let file = client.create(root(VOLUME), "f").unwrap().fid;
    let data: Vec<u8> = (0..3_500_000u32).map(|i| ((i * 7) >> 3) as u8).collect();
    let reply = client.store(file, 0, &data, 0).unwrap();
    assert_eq!((reply.status.data_version.0, reply.status.length), (1, data.len() as u64));
    assert_eq!(client.fetch(file, 0, i64::MAX).unwrap().0, data);
    assert_eq!(client.fetch(file, 1_048_570, 20).unwrap().0, data[1_048_570..1_048_590]);
    assert_eq!(client.fetch(file, 9_000_000, 20).unwrap().0, b"");
    let reply = client.store(file, 10, b"abc", 100).unwrap();
    assert_eq!((reply.status.data_version.0, reply.status.length), (2, 100));
    let reply = client.store(file, 0, b"", 5000).unwrap();
    assert_eq!((reply.status.data_version.0, reply.status.length), (3, 5000));
    let (read, reply) = client.fetch(file, 8, 92).unwrap();
    assert_eq!((&read[..5], reply.status.data_version.0), (&[data[8], data[9], b'a', b'b', b'c'][..], 3));
    assert_eq!(client.fetch(file, 100, 4900).unwrap().0, vec![0; 4900]);
    // A store that breaks off in its first piece leaves the file alone. Later, the beginning stays,
    // with a new version.
    let call = Call::StoreData64 {
        fid: file,
        status: StoreStatus::default(),
        position: 0,
        length: 3 << 20,
        file_length: 5000,
    };
    assert!(client.raw(&call, b"only these").is_err());
    assert_eq!(client.version(file), 3);
    assert!(client.raw(&call, &[9; (1 << 20) + 10]).is_err());
    assert_eq!(client.version(file), 4);
    assert_eq!(client.fetch(file, 0, 2 << 20).unwrap().0, vec![9; 1 << 20]);
    assert_eq!(client.store(file, u64::MAX - 5, b"abc", 0).err(), Some(unified(errno::EFBIG)));
    assert_eq!(client.fetch(file, -1, 5).err(), Some(unified(errno::EINVAL)));
    let dir = client.make_dir(root(VOLUME), "d").unwrap().fid;
    assert_eq!(client.store(dir, 0, b"abc", 3).err(), Some(unified(errno::EISDIR)));
}

/// Goal: a directory is fetched as pages with its entries, and a symbolic link as its target.
#[test]
fn other_contents() {
    let rig = Rig::new();
    rig.volume(VOLUME, "v");
    let (client, top) = (rig.client(None), root(VOLUME));
    let fids: Vec<Fid> = (0..200).map(|i| client.create(top, &format!("file{i}")).unwrap().fid).collect();
    let (blob, reply) = client.fetch(top, 0, 1 << 20).unwrap();
    assert_eq!(reply.status.length, blob.len() as u64);
    assert!(reply.status.length > 2048 && reply.status.length % 2048 == 0);
    let directory = afs::dir::Directory::new(&blob).unwrap();
    assert_eq!(directory.entries().count(), 202);
    let found = directory.lookup(b"file77").unwrap();
    assert_eq!((found.vnode, found.unique), (fids[77].vnode, fids[77].unique));
    // The second half alone is the same.
    assert_eq!(client.fetch(top, 2048, 4096).unwrap().0, blob[2048..6144.min(blob.len())]);
    let target = afs::calls::fileserver::Path::new("#root.cell.").unwrap();
    let status = StoreStatus { mode: Some(0o644), ..StoreStatus::default() };
    let call = Call::Symlink { directory: top, name: name("mount"), target, status };
    let Reply::Symlink(link) = client.call(call).unwrap() else { panic!() };
    assert_eq!((link.status.kind, link.status.mode), (Some(VnodeType::Symlink), 0o644));
    assert_eq!(client.fetch(link.fid, 0, 100).unwrap().0, b"#root.cell.");
}

/// Goal: each error has its code, unified for clients that want that, and codes of volumes as they
/// are.
#[test]
fn errors() {
    let rig = Rig::new();
    rig.volume(VOLUME, "v");
    let (client, top) = (rig.client(None), root(VOLUME));
    let old = Client::new(&rig, None, false);
    let file = client.create(top, "f").unwrap().fid;
    let dir = client.make_dir(top, "d").unwrap().fid;
    client.create(dir, "in").unwrap();
    assert_eq!(client.create(top, "f").err(), Some(unified(errno::EEXIST)));
    assert_eq!(old.create(top, "f").err(), Some(errno::EEXIST));
    assert_eq!(client.create(file, "x").err(), Some(unified(errno::ENOTDIR)));
    assert_eq!(client.create(top, "a/b").err(), Some(unified(errno::EINVAL)));
    assert_eq!(client.create(top, "").err(), Some(unified(errno::EINVAL)));
    assert_eq!(client.create(top, "lib@sys").err(), Some(unified(errno::EINVAL)));
    assert_eq!(client.create(top, &"n".repeat(256)).err(), Some(unified(errno::ENAMETOOLONG)));
    client.create(top, &"n".repeat(255)).unwrap();
    assert_eq!(client.remove(top, "none").err(), Some(unified(errno::ENOENT)));
    assert_eq!(client.remove(top, "d").err(), Some(unified(errno::EISDIR)));
    let rmdir = |directory, text| client.call(Call::RemoveDir { directory, name: name(text) }).err();
    assert_eq!(rmdir(top, "f"), Some(unified(errno::ENOTDIR)));
    assert_eq!(rmdir(top, "d"), Some(unified(errno::EEXIST)));
    let link = |directory, existing| client.call(Call::Link { directory, name: name("l"), existing }).err();
    assert_eq!(link(dir, file), Some(unified(errno::EXDEV)));
    assert_eq!(link(top, dir), Some(unified(errno::EISDIR)));
    assert_eq!(link(top, file), None);
    // The two names of a file.
    let (old_name, new_name) = (name("l"), name("f"));
    let rename = Call::Rename { old_directory: top, old_name, new_directory: top, new_name };
    assert_eq!(client.call(rename).err(), Some(unified(errno::EINVAL)));
    let blob = client.fetch(top, 0, 1 << 20).unwrap().0;
    assert!(afs::dir::Directory::new(&blob).unwrap().lookup(b"l").is_some());
    let gone = Fid { unique: Unique(file.unique.0 + 1), ..file };
    assert_eq!(client.status(gone).err(), Some(code::VNOVNODE));
    assert_eq!(client.status(Fid { vnode: Vnode(0), ..file }).err(), Some(code::VNOVNODE));
    assert_eq!(client.status(Fid { volume: VolumeId(5), ..file }).err(), Some(code::VNOVOL));
    assert_eq!(client.call(Call::GetRootVolume {}).err(), Some(-455));
    // In a bulk call each file has its own error.
    let fids = || List::new(vec![file, gone, top]).unwrap();
    let Reply::InlineBulkStatus(bulk) = client.call(Call::InlineBulkStatus { fids: fids() }).unwrap() else {
        panic!()
    };
    let errors: Vec<i32> = bulk.statuses.iter().map(|status| status.error).collect();
    assert_eq!(errors, [0, code::VNOVNODE, 0]);
    assert_eq!(client.call(Call::BulkStatus { fids: fids() }).err(), Some(code::VNOVNODE));
    // Operations that do not exist, and arguments that are cut.
    let raw = |bytes: Vec<u8>| client.connection.call(bytes, super::TIME);
    assert!(matches!(raw(vec![0, 0, 99, 99]), Err(rx::Error::Aborted { code: -455 })));
    assert!(matches!(raw(vec![0, 0, 0, 132, 1, 2]), Err(rx::Error::Aborted { code: -453 })));
    assert!(matches!(raw(vec![0, 0]), Err(rx::Error::Aborted { code: -453 })));
}

/// Goal: a status is stored as the client asks, leaves the version alone, and shows at once.
#[test]
fn statuses() {
    let rig = Rig::new();
    rig.volume(VOLUME, "v");
    let client = rig.client(None);
    let file = client.create(root(VOLUME), "f").unwrap().fid;
    let set = StoreStatus {
        modify_time: Some(Date(1_000_000)),
        mode: Some(0o640),
        is_durable: true,
        ..StoreStatus::default()
    };
    let Reply::StoreStatus(reply) = client.call(Call::StoreStatus { fid: file, status: set }).unwrap() else {
        panic!()
    };
    assert_eq!((reply.status.mode, reply.status.modify_time), (0o640, Date(1_000_000)));
    assert_eq!(reply.status.data_version.0, 0);
    assert_eq!(client.status(file).unwrap().status, reply.status);
}

/// Goal: locks are counted, refused to others, and shown in the status.
#[test]
fn locks() {
    let rig = Rig::new();
    rig.volume(VOLUME, "v");
    let (one, two) = (rig.client(None), rig.client(None));
    let fid = one.create(root(VOLUME), "f").unwrap().fid;
    one.call(Call::SetLock { fid, kind: lock::READ }).unwrap();
    two.call(Call::SetLock { fid, kind: lock::READ }).unwrap();
    assert_eq!(two.status(fid).unwrap().status.lock_count, 2);
    assert_eq!(one.call(Call::SetLock { fid, kind: lock::WRITE }).err(), Some(unified(errno::EAGAIN)));
    one.call(Call::ReleaseLock { fid }).unwrap();
    assert_eq!(*one.told.broken.lock(), []);
    two.call(Call::ReleaseLock { fid }).unwrap();
    // A client that waits for the lock learns it, if it has asked for the status.
    assert_eq!(*one.told.broken.lock(), [fid]);
    two.call(Call::ReleaseLock { fid }).unwrap();
    assert_eq!(one.told.broken.lock().len(), 1);
    one.call(Call::SetLock { fid, kind: lock::WRITE }).unwrap();
    assert_eq!(two.call(Call::SetLock { fid, kind: lock::READ }).err(), Some(unified(errno::EAGAIN)));
    one.call(Call::ExtendLock { fid }).unwrap();
    assert_eq!(two.status(fid).unwrap().status.lock_count, -1);
    assert_eq!(one.call(Call::SetLock { fid, kind: 7 }).err(), Some(unified(errno::EINVAL)));
}

pub(super) fn quota(quota: i32) -> Call {
    Call::SetVolumeStatus {
        volume: VOLUME,
        status: StoreVolumeStatus { mask: StoreVolumeStatus::QUOTA, min_quota: 0, quota },
        name: name(""),
        offline_message: Default::default(),
        motd: Default::default(),
    }
}

/// Goal: an administrator's message and name for a volume are stored. Empty ones change nothing.
#[test]
fn texts_of_volumes() {
    let rig = Rig::new();
    rig.volume(VOLUME, "v");
    let admin = rig.client(Some("admin"));
    let set = |new: &str, message: &str| Call::SetVolumeStatus {
        volume: VOLUME,
        status: StoreVolumeStatus::default(),
        name: name(new),
        offline_message: Message::new(message).unwrap(),
        motd: Message::new("ignored").unwrap(),
    };
    let now = || match admin.call(Call::GetVolumeStatus { volume: VOLUME }).unwrap() {
        Reply::GetVolumeStatus(reply) => {
            [reply.name.as_bytes(), reply.offline_message.as_bytes(), reply.motd.as_bytes()]
                .map(|text| String::from_utf8_lossy(text).into_owned())
        }
        other => panic!("{other:?}"),
    };
    admin.call(set("", "back at noon")).unwrap();
    assert_eq!(now(), ["v", "back at noon", ""]);
    admin.call(set("w", "")).unwrap();
    assert_eq!(now(), ["w", "back at noon", ""]);
}

/// A store of `data`, of which the first pieces are written and the last are not sent yet.
fn begun_store(client: &Client, observer: &Client, file: Fid, data: &[u8]) -> rx::Call {
    let (status, length) = (StoreStatus::default(), data.len() as u64);
    let request = Call::StoreData64 { fid: file, status, position: 0, length, file_length: 0 }.request();
    let mut call = client.connection.open(TIME).unwrap();
    call.write(request).unwrap();
    call.write(data[..SENT].to_vec()).unwrap();
    let began = Instant::now();
    while observer.status(file).unwrap().status.length == 0 {
        assert!(began.elapsed() < TIME, "nothing is stored");
        std::thread::yield_now();
    }
    call
}

/// Bytes of a store that [`begun_store`] sends.
const SENT: usize = 5 << 20 >> 2;

/// Goal: an administrator who takes a volume off line waits for a store, and gets it done if it
/// ends soon.
#[test]
fn stores_end_before_their_volume() {
    let rig = Rig::new();
    rig.volume(VOLUME, "v");
    let (client, admin) = (rig.client(None), rig.client(Some("admin")));
    let file = client.create(root(VOLUME), "f").unwrap().fid;
    let data = vec![7; 3 << 20 >> 1];
    let mut call = begun_store(&client, &admin, file, &data);
    std::thread::scope(|scope| {
        let taken = scope.spawn(|| {
            let operator = rig.operator();
            let transaction = operator.begin(VOLUME, attach::OFFLINE).unwrap();
            operator.end(transaction).unwrap();
        });
        // It has the volume when new changes are refused.
        let mut names = (0..).map(|n: u32| format!("g{n}"));
        while client.create(root(VOLUME), &names.next().unwrap()).is_ok() {}
        call.write_last(data[SENT..].to_vec()).unwrap();
        call.read_all(1 << 10).unwrap();
        taken.join().unwrap();
    });
    assert_eq!((client.version(file), client.fetch(file, 0, 1).unwrap().0), (1, vec![7]));
}

/// Goal: a store that outlasts an administrator's patience is broken off, and its file has a new
/// version before the volume is off line.
#[test]
fn slow_stores_are_broken_off() {
    let rig = Rig::new();
    rig.volume(VOLUME, "v");
    let (client, admin) = (rig.client(None), rig.client(Some("admin")));
    let file = client.create(root(VOLUME), "f").unwrap().fid;
    let call = begun_store(&client, &admin, file, &vec![7; 3 << 20 >> 1]);
    let operator = rig.operator();
    let transaction = operator.begin(VOLUME, attach::OFFLINE).unwrap();
    operator.end(transaction).unwrap();
    assert_eq!(admin.version(file), 1);
    drop(call);
}

/// Goal: a store whose last step fails raises the version, because the steps before it have
/// changed the data.
#[test]
fn half_a_store() {
    let rig = Rig::new();
    rig.volume(VOLUME, "v");
    let (client, admin) = (rig.client(None), rig.client(Some("admin")));
    let file = client.create(root(VOLUME), "f").unwrap().fid;
    let data = vec![7; 3 << 20 >> 1];
    let mut call = begun_store(&client, &admin, file, &data);
    admin.call(quota(100)).unwrap();
    call.write_last(data[SENT..].to_vec()).unwrap();
    let failed = call.read_all(1 << 10).unwrap_err();
    assert!(matches!(failed, rx::Error::Aborted { code: code::VOVERQUOTA }), "{failed}");
    assert_eq!((client.version(file), client.fetch(file, 0, 1).unwrap().0), (1, vec![7]));
}

/// Goal: the quota in KiB is of lengths, is checked before a change, and is given back. A store may
/// exceed it by 1,024 KiB, and then no file can be created.
#[test]
fn quotas() {
    let rig = Rig::new();
    rig.volume(VOLUME, "v");
    let (client, admin) = (rig.client(None), rig.client(Some("admin")));
    assert_eq!(client.call(quota(100)).err(), Some(unified(errno::EACCES)));
    admin.call(quota(100)).unwrap();
    let used = || match client.call(Call::GetVolumeStatus { volume: VOLUME }).unwrap() {
        Reply::GetVolumeStatus(reply) => (reply.status.quota, reply.status.used),
        other => panic!("{other:?}"),
    };
    assert_eq!(used(), (100, 2));
    let file = client.create(root(VOLUME), "f").unwrap().fid;
    assert_eq!(client.store(file, 0, &vec![7; (99 + 1024) << 10], 0).err(), Some(code::VOVERQUOTA));
    assert_eq!(client.version(file), 0);
    client.store(file, 0, &vec![7; (98 + 1024) << 10], 0).unwrap();
    assert_eq!(used(), (100, 100 + 1024));
    assert_eq!(client.store(file, 0, b"", (99 + 1024) << 10).err(), Some(code::VOVERQUOTA));
    assert_eq!(client.create(root(VOLUME), "g").err(), Some(code::VOVERQUOTA));
    client.store(file, 0, b"", 0).unwrap();
    client.store(file, 0, &[7; 97 << 10], 0).unwrap();
    assert_eq!(used(), (100, 99));
    client.store(file, 0, b"", 10 << 10).unwrap();
    assert_eq!(used(), (100, 12));
    client.store(file, 0, &[7; 98 << 10], 10 << 10).unwrap();
    assert_eq!(client.create(root(VOLUME), "g").err(), Some(code::VOVERQUOTA));
    client.remove(root(VOLUME), "f").unwrap();
    assert_eq!(used(), (100, 2));
    client.create(root(VOLUME), "g").unwrap();
}

/// Goal: in a partition without space, a volume that was just opened lets files be removed, and
/// then others be stored.
#[test]
fn full_partitions() {
    let mut rig = Rig::new();
    rig.volume(VOLUME, "v");
    let image = rig.dir.path().join("d0");
    // Data that no compressor makes shorter.
    let next = |state: &u64| Some(state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
    let data: Vec<u8> =
        std::iter::successors(Some(1), next).map(|state| (state >> 56) as u8).take(1 << 20).collect();
    let client = rig.client(None);
    for number in 0..4 {
        let file = client.create(root(VOLUME), &format!("f{number}")).unwrap().fid;
        client.store(file, 0, &data, 1 << 20).unwrap();
    }
    drop(client);
    rig.stop();
    rig.open(image);
    rig.start();
    let client = rig.client(None);
    let pool = rig.pool.as_ref().unwrap();
    pool.sync().unwrap();
    // The least quota that is not below what is used.
    let quota = (4_000..8_000).find(|kib| pool.set("cell/vicepa", "quota", &format!("{kib}K")).is_ok());
    assert!(quota.is_some());
    assert_eq!(client.create(root(VOLUME), "more").err(), Some(code::VOVERQUOTA));
    for number in 0..3 {
        client.remove(root(VOLUME), &format!("f{number}")).unwrap();
    }
    pool.sync().unwrap();
    let file = client.create(root(VOLUME), "again").unwrap().fid;
    client.store(file, 0, &data[..1 << 16], 1 << 16).unwrap();
}
