//! Restores into volumes that have contents.

use std::time::Instant;

use afs::calls::volserver::{Call, Name, Reply, attach};
use afs::errors::{errno, volser, volume as code};
use afs::partition::PartitionId;
use afs::types::{Date, Fid, RestoreCookie, VolumeId};
use afs::wire::Chars;

use super::crash::{crash, datasets};
use super::{Client, Operator, Rig, TIME, VOLUME, root};

const COPY: VolumeId = VolumeId(VOLUME.0 + 20);
const BACKUP: VolumeId = VolumeId(VOLUME.0 + 2);
const READ_ONLY: i32 = 1;
const SIZE: u64 = 1 << 20;
/// The creation date that the second dump gives a copy.
const LATER: Date = Date(2_000_000_000);

fn cookie() -> RestoreCookie {
    RestoreCookie {
        name: Chars::new(b"v.readonly"),
        kind: READ_ONLY,
        parent: VOLUME,
        ..RestoreCookie::default()
    }
}

fn restore(transaction: i32) -> Call {
    Call::Restore { transaction, flags: 0, cookie: cookie() }
}

/// Data that can't be compressed.
fn new_data() -> Vec<u8> {
    let mut state = 1_u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    (0..SIZE).map(|_| next()).collect()
}

fn there(file: Fid) -> Fid {
    Fid { volume: COPY, ..file }
}

/// A volume with a file, a copy of it as at another site, and the dump of a later state.
struct World {
    rig: Rig,
    client: Client,
    operator: Operator,
    file: Fid,
    dump: Vec<u8>,
}

impl World {
    fn new() -> Self {
        let rig = Rig::new();
        rig.volume(VOLUME, "v");
        let (operator, client) = (rig.operator(), rig.client(None));
        let file = client.create(root(VOLUME), "f").unwrap().fid;
        client.store(file, 0, b"old", 3).unwrap();
        let name = Name::new("v.readonly").unwrap();
        let made = Call::CreateVolume { partition: 0, name, kind: READ_ONLY, parent: VOLUME, volume: COPY };
        let Reply::CreateVolume(made) = operator.call(made).unwrap() else { panic!() };
        operator.raw(&restore(made.transaction), &operator.dump(VOLUME, 0)).unwrap();
        operator.complete(made.transaction);
        client.store(file, 0, &new_data(), SIZE).unwrap();
        let transaction = operator.begin(VOLUME, attach::OFFLINE).unwrap();
        operator.call(Call::SetDate { transaction, date: LATER }).unwrap();
        operator.end(transaction).unwrap();
        let dump = operator.dump(VOLUME, 0);
        Self { rig, client, operator, file, dump }
    }

    fn has_hidden(&self) -> bool {
        self.rig.pool.as_ref().unwrap().dataset(&format!("cell/vicepa/{COPY}/%recv")).is_ok()
    }

    /// Begins to send the dump, and waits until the server restores it.
    fn send_half(&self, transaction: i32) -> (rx::Call, &[u8]) {
        let (half, rest) = self.dump.split_at(self.dump.len() / 2);
        let mut call = self.operator.connection.open(TIME).unwrap();
        call.write(restore(transaction).request()).unwrap();
        call.write(half.to_vec()).unwrap();
        let begun = Instant::now();
        while !self.has_hidden() {
            assert!(begun.elapsed() < TIME, "the restore does not begin");
            std::thread::yield_now();
        }
        (call, rest)
    }

    /// Waits until the server has cleaned up after a restore whose call was broken off: first it
    /// destroys the hidden clone, then the snapshot below it.
    fn wait_for_end(&self) {
        let begun = Instant::now();
        while self.has_hidden() || !datasets(&self.rig, '@').is_empty() {
            assert!(begun.elapsed() < TIME, "something of the restore stays");
            std::thread::yield_now();
        }
    }

    /// The copy has the old contents, and nothing of a restore is left.
    fn check_old(&self) {
        assert_eq!(self.client.fetch(there(self.file), 0, 9).unwrap().0, b"old");
        self.check_clean();
    }

    fn check_clean(&self) {
        assert!(!self.has_hidden());
        assert_eq!(datasets(&self.rig, '@'), Vec::<String>::new());
    }
}

/// Goal: clients read a copy while it is brought up to date. Then they hear of it, and have the new
/// contents, before the transaction ends.
#[test]
fn copies_stay_online() {
    let world = World::new();
    let (client, file) = (&world.client, there(world.file));
    let before = client.fetch(file, 0, 9).unwrap();
    assert_eq!(before.0, b"old");
    client.told.broken.lock().clear();
    let transaction = world.operator.begin(COPY, attach::OFFLINE).unwrap();
    let (mut call, rest) = world.send_half(transaction);
    assert_eq!(client.fetch(file, 0, 9).unwrap().0, b"old");
    assert_eq!(client.status(file).unwrap().sync, before.1.sync);
    // A client that knows nothing yet.
    assert_eq!(world.rig.client(None).fetch(file, 0, 9).unwrap().0, b"old");
    assert_eq!(client.create(root(COPY), "g").err(), Some(super::unified(errno::EROFS)));
    assert!(client.told.broken.lock().is_empty());
    call.write_last(rest.to_vec()).unwrap();
    assert_eq!(call.read_all(1).unwrap(), b"");
    let broken: Vec<String> = client.told.broken.lock().iter().map(Fid::to_string).collect();
    assert_eq!(broken, [format!("{COPY}.0.0")]);
    let after = client.fetch(file, 0, 9).unwrap();
    assert_eq!((after.0, after.1.status.length), (new_data()[..9].to_vec(), SIZE));
    assert_eq!(after.1.sync.creation_date, LATER);
    assert!(after.1.status.data_version > before.1.status.data_version);
    world.operator.complete(transaction);
    assert_eq!(client.fetch(file, 0, 9).unwrap().0, new_data()[..9]);
    let about = world.operator.listed(COPY).unwrap();
    assert_eq!((about.creation_date, about.kind, about.parent), (LATER, READ_ONLY, VOLUME));
    world.check_clean();
}

/// Goal: a dump that breaks off, or has bytes after its end, changes nothing that a client sees.
#[test]
fn failures_change_nothing() {
    let world = World::new();
    world.client.fetch(there(world.file), 0, 9).unwrap();
    world.client.told.broken.lock().clear();
    let transaction = world.operator.begin(COPY, attach::OFFLINE).unwrap();
    let more = [&world.dump[..], b"x"].concat();
    for dump in [&world.dump[..world.dump.len() / 2], &more] {
        let done = world.operator.raw(&restore(transaction), dump);
        assert_eq!(done.err(), Some(volser::VOLSERREAD_DUMPERROR));
        world.check_old();
    }
    let (call, _) = world.send_half(transaction);
    call.abort(errno::EIO);
    world.wait_for_end();
    world.check_old();
    assert!(world.client.told.broken.lock().is_empty());
    // The next one in the same transaction is a whole one.
    world.operator.raw(&restore(transaction), &world.dump).unwrap();
    world.operator.end(transaction).unwrap();
    assert_eq!(world.client.fetch(there(world.file), 0, 9).unwrap().0, new_data()[..9]);
}

/// Goal: a snapshot that is made meanwhile keeps the old contents, and so does the volume. The
/// release is to be repeated.
#[test]
fn snapshots_meanwhile() {
    let world = World::new();
    let transaction = world.operator.begin(COPY, attach::OFFLINE).unwrap();
    let (mut call, rest) = world.send_half(transaction);
    let pool = world.rig.pool.as_ref().unwrap();
    pool.snapshot(&format!("cell/vicepa/{COPY}@daily")).unwrap();
    call.write_last(rest.to_vec()).unwrap();
    assert!(matches!(call.read_all(1), Err(rx::Error::Aborted { code: errno::EIO })));
    assert_eq!(world.client.fetch(there(world.file), 0, 9).unwrap().0, b"old");
    assert!(!world.has_hidden());
    assert_eq!(datasets(&world.rig, '@'), [format!("cell/vicepa/{COPY}@daily")]);
    world.operator.raw(&restore(transaction), &world.dump).unwrap();
    world.operator.end(transaction).unwrap();
    assert_eq!(world.client.fetch(there(world.file), 0, 9).unwrap().0, new_data()[..9]);
    assert_eq!(datasets(&world.rig, '@'), [format!("cell/vicepa/{COPY}@daily")]);
}

/// Goal: a restore that can't destroy its snapshot, because a user has a clone of it, loses nothing
/// when the server starts again. Until the clone is gone, another restore is refused.
#[test]
fn snapshots_in_use() {
    let mut world = World::new();
    let old = world.operator.dump(COPY, 0);
    let snapshot = format!("cell/vicepa/{COPY}@before-restore");
    let transaction = world.operator.begin(COPY, attach::OFFLINE).unwrap();
    let (mut call, rest) = world.send_half(transaction);
    let pool = world.rig.pool.as_ref().unwrap();
    pool.clone_snapshot(&snapshot, "cell/kept").unwrap();
    call.write_last(rest.to_vec()).unwrap();
    call.read_all(1).unwrap();
    drop(call);
    world.operator.end(transaction).unwrap();
    assert!(!world.has_hidden());
    let restore_old = |world: &World| {
        let transaction = world.operator.begin(COPY, attach::OFFLINE).unwrap();
        let done = world.operator.raw(&restore(transaction), &old).map(drop);
        world.operator.end(transaction).unwrap();
        done
    };
    assert_eq!(restore_old(&world), Err(errno::EIO));
    for is_kept in [true, false] {
        assert_eq!(datasets(&world.rig, '@'), std::slice::from_ref(&snapshot));
        if !is_kept {
            world.rig.pool.as_ref().unwrap().destroy("cell/kept").unwrap();
        }
        world.rig.stop();
        world.rig.open(world.rig.dir.path().join("d0"));
        world.rig.start();
        world = World { client: world.rig.client(None), operator: world.rig.operator(), ..world };
        assert_eq!(world.client.fetch(there(world.file), 0, 9).unwrap().0, new_data()[..9]);
    }
    world.check_clean();
    restore_old(&world).unwrap();
    world.check_old();
}

/// Goal: after a crash, a copy has the old contents if its dump was not complete, and the new ones
/// if they were exchanged. Nothing of the restore is left.
#[test]
fn crashes() {
    for is_complete in [false, true] {
        let mut world = World::new();
        let image = world.rig.dir.path().join("d0");
        let transaction = world.operator.begin(COPY, attach::OFFLINE).unwrap();
        let (call, _) = world.send_half(transaction);
        let crashed = world.rig.dir.path().join("crashed");
        if is_complete {
            let core = std::sync::Arc::clone(world.rig.server().core());
            call.abort(errno::EIO);
            let volume = core.table.get(COPY).unwrap();
            world.wait_for_end();
            let partition = &volume.partition;
            partition.begin_restore(COPY).unwrap();
            let fs = partition.hidden_fs(COPY).unwrap();
            let mut header = afs::server::header::Stored::read(&fs).unwrap().unwrap();
            header.header.quota = 4711;
            header.write(&fs).unwrap();
            drop(fs);
            volume.exclusively(|| partition.switch(COPY)).unwrap();
            crash(&mut world.rig, image, world.operator);
        } else {
            world.rig.pool.as_ref().unwrap().sync().unwrap();
            std::fs::copy(&image, &crashed).unwrap();
            drop((call, world.operator));
            world.rig.stop();
            world.rig.open(crashed);
            world.rig.start();
        }
        (world.operator, world.client) = (world.rig.operator(), world.rig.client(None));
        world.check_old();
        assert_eq!(world.operator.listed(COPY).unwrap().quota == 4711, is_complete);
        assert_eq!(world.operator.listed(VOLUME).unwrap().kind, 0);
    }
}

/// Goal: a restore into a read-write volume keeps clients out, and leaves its backup and its
/// properties alone. The space of the old contents is free in the end.
#[test]
fn read_write_volumes() {
    let mut world = World::new();
    let (operator, client, file) = (&world.operator, &world.client, world.file);
    let pool = world.rig.pool.as_ref().unwrap();
    let dataset = format!("cell/vicepa/{VOLUME}");
    pool.set(&dataset, "reservation", "64K").unwrap();
    pool.set(&dataset, "site:note", "mine").unwrap();
    let transaction = operator.begin(VOLUME, attach::BUSY).unwrap();
    operator.clone_volume(transaction, 2, "v.backup", BACKUP).unwrap();
    operator.end(transaction).unwrap();
    let transaction = operator.begin(BACKUP, attach::OFFLINE).unwrap();
    operator.complete(transaction);
    client.store(file, 0, &[b'x'; 4 << 20], 4 << 20).unwrap();
    let space = || world.rig.server().core().partitions()[0].space().unwrap();
    let mut used = u64::MAX;
    for _ in 0..3 {
        let transaction = operator.begin(VOLUME, attach::OFFLINE).unwrap();
        let mut call = operator.connection.open(TIME).unwrap();
        let cookie = RestoreCookie { name: Chars::new(b"v"), parent: VOLUME, ..RestoreCookie::default() };
        call.write(Call::Restore { transaction, flags: 0, cookie }.request()).unwrap();
        assert_eq!(client.status(file).err(), Some(code::VOFFLINE));
        call.write_last(world.dump.clone()).unwrap();
        assert_eq!(call.read_all(1).unwrap(), b"");
        operator.end(transaction).unwrap();
        assert_eq!(client.fetch(file, 0, 9).unwrap().1.status.length, SIZE);
        let begun = Instant::now();
        let now = || space().total - space().free;
        // What is destroyed is freed in later transaction groups.
        while now() > used {
            assert!(begun.elapsed() < TIME, "{} KiB after {used}", now());
            pool.sync().unwrap();
        }
        (0..8).for_each(|_| pool.sync().unwrap());
        assert!(used == u64::MAX || now() > (2 * SIZE) >> 10);
        used = now() + 64;
    }
    assert_eq!(client.fetch(Fid { volume: BACKUP, ..file }, 0, 9).unwrap().0, new_data()[..9]);
    let new = client.create(root(VOLUME), "new").unwrap().fid;
    assert!(new.unique > file.unique);
    assert_eq!(datasets(&world.rig, '@'), [format!("cell/vicepa/{VOLUME}@{BACKUP}")]);
    let found = pool.dataset(&dataset).unwrap();
    assert_eq!(
        found.dsl().user_property("site:note").unwrap().unwrap().value,
        dsl::Value::Text("mine".into())
    );
    let reserved = found.dsl().property(dsl::Prop::Reservation).unwrap().unwrap().value;
    assert_eq!(reserved, dsl::Value::Number(64 << 10));
    drop((found, world.operator));
    world.rig.stop();
    testpools::judge(world.rig.dir.path(), "cell");
}

/// Goal: a partition that is forced out does not wait for the rest of a dump, and the copy has its
/// old contents when it is served again.
#[test]
fn partitions_are_forced_out() {
    let mut world = World::new();
    let image = world.rig.dir.path().join("d0");
    let transaction = world.operator.begin(COPY, attach::OFFLINE).unwrap();
    let (mut call, _) = world.send_half(transaction);
    let begun = Instant::now();
    world.rig.server().force_out(PartitionId(0)).unwrap();
    assert!(matches!(call.read_all(1), Err(rx::Error::Aborted { .. })));
    assert!(begun.elapsed() < TIME, "the restore waits for its dump");
    drop(call);
    world.rig.stop();
    world.rig.open(image);
    world.rig.start();
    world.client = world.rig.client(None);
    world.check_old();
}
