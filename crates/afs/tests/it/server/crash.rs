//! What clients can rely on after a server crashed.

use std::path::PathBuf;

use afs::calls::volserver::{Call, attach, volume_flag};
use afs::errors::{errno, volume as code};
use afs::types::{Date, RestoreCookie, VolumeId};
use afs::wire::{Chars, Flag};
use ondisk::Txg;

use super::{Operator, Rig, VOLUME, root};

/// Goal: after a clean stop, versions go on and clients keep what they have. After a crash, no
/// unique that was handed out comes again, and no version that a client may have seen.
#[test]
fn uniques_and_versions() {
    let mut rig = Rig::new();
    rig.volume(VOLUME, "v");
    let image = rig.dir.path().join("d0");
    let (version, file) = {
        let client = rig.client(None);
        let file = client.create(root(VOLUME), "f").unwrap().fid;
        (client.version(root(VOLUME)), file)
    };
    rig.stop();
    rig.open(image.clone());
    rig.start();
    {
        let client = rig.client(None);
        assert_eq!(client.version(root(VOLUME)), version);
        let next = client.create(root(VOLUME), "g").unwrap().fid;
        assert_eq!(next.unique.0, file.unique.0 + 1);
    }
    // The image as it was before these changes.
    rig.pool.as_ref().unwrap().sync().unwrap();
    let crashed = rig.dir.path().join("crashed");
    std::fs::copy(&image, &crashed).unwrap();
    let (lost, seen) = {
        let client = rig.client(None);
        let lost = client.create(root(VOLUME), "lost").unwrap();
        (lost.fid, lost.directory.data_version.0)
    };
    rig.stop();
    rig.open(crashed);
    rig.start();
    let client = rig.client(None);
    assert!(client.status(lost).is_err());
    let now = client.version(root(VOLUME));
    assert!(now > seen, "{now} after {seen}");
    let next = client.create(root(VOLUME), "h").unwrap();
    assert!(next.fid.unique > lost.unique);
    assert_eq!(next.directory.data_version.0, now + 1);
}

/// Goal: each crash raises the versions of a volume that is only read, and its header is not
/// written for that. They rise also if the volume is from a partition with more crashes.
#[test]
fn versions_of_what_is_only_read() {
    let mut rig = Rig::new();
    let other = VolumeId(VOLUME.0 + 5);
    rig.volume(VOLUME, "v");
    rig.volume(other, "other");
    let mut image = rig.dir.path().join("d0");
    rig.stop();
    rig.open(image.clone());
    rig.start();
    let of_other = rig.server().core().table.get(other).unwrap().open().unwrap();
    of_other.change_header(|stored| stored.crashes = 1_000);
    of_other.flush().unwrap();
    drop(of_other);
    let mut before = [VOLUME, other].map(|id| rig.client(None).version(root(id)));
    for round in 0..3 {
        rig.pool.as_ref().unwrap().sync().unwrap();
        let crashed = rig.dir.path().join(format!("crashed{round}"));
        std::fs::copy(&image, &crashed).unwrap();
        rig.stop();
        rig.open(crashed.clone());
        rig.start();
        image = crashed;
        let now = [VOLUME, other].map(|id| rig.client(None).version(root(id)));
        assert_eq!(now, before.map(|version| version + 65_536));
        let open = rig.server().core().table.get(VOLUME).unwrap().open().unwrap();
        assert_eq!((open.is_dirty(), open.written()), (false, Txg(0)), "crash {round}");
        drop(open);
        // All crashes are counted from the header before the first one.
        assert_eq!(on_disk(&rig), 0);
        before = now;
    }
    // Another partition would count other crashes.
    rig.stop();
    rig.open(image);
    assert_eq!(on_disk(&rig), 3);
}

/// How many crashes the stored header of the volume knows.
fn on_disk(rig: &Rig) -> u32 {
    let dataset = rig.pool.as_ref().unwrap().dataset(&format!("cell/vicepa/{VOLUME}")).unwrap();
    let fs = dataset.filesystem().unwrap();
    afs::server::header::Stored::read(&fs).unwrap().unwrap().crashes
}

/// Goal: after a crash, a volume that was not completed is gone with its dataset. A restore that
/// did not end takes no change back.
#[test]
fn half_made_volumes() {
    let mut rig = Rig::new();
    rig.volume(VOLUME, "v");
    let image = rig.dir.path().join("d0");
    let other = VolumeId(VOLUME.0 + 5);
    let operator = rig.operator();
    operator.create(other, "half").unwrap();
    let clone = VolumeId(VOLUME.0 + 2);
    let transaction = operator.begin(VOLUME, attach::BUSY).unwrap();
    operator.clone_volume(transaction, 2, "v.backup", clone).unwrap();
    operator.end(transaction).unwrap();
    let file = rig.client(None).create(root(VOLUME), "f").unwrap().fid;
    rig.client(None).store(file, 0, b"newer", 5).unwrap();
    // A restore that succeeded could not destroy its snapshot.
    rig.pool.as_ref().unwrap().snapshot(&format!("cell/vicepa/{VOLUME}@before-restore")).unwrap();
    rig.client(None).store(file, 0, b"newest", 6).unwrap();
    rig.pool.as_ref().unwrap().sync().unwrap();
    let crashed = rig.dir.path().join("crashed");
    std::fs::copy(&image, &crashed).unwrap();
    drop(operator);
    rig.stop();
    rig.open(crashed);
    rig.start();
    let client = rig.client(None);
    for half in [other, clone] {
        assert_eq!(client.status(root(half)).err(), Some(code::VNOVOL));
    }
    assert!(rig.pool.as_ref().unwrap().dataset(&format!("cell/vicepa/{other}")).is_err());
    assert_eq!(client.fetch(file, 0, 10).unwrap().0, b"newest");
    let names = rig.pool.as_ref().unwrap().dataset_names(true).unwrap().names;
    assert!(!names.iter().any(|name| name.contains('@')), "{names:?}");
}

/// Goal: a complete volume or clone that gets the flag to go is offline, and goes at the next
/// start: after an orderly end, and after a crash amid its transaction. One that is completed again
/// at once stays.
#[test]
fn flagged_volumes() {
    let mut rig = Rig::new();
    let [clone, kept_clone, gone, amid, kept] = [1, 2, 5, 6, 7].map(|more| VolumeId(VOLUME.0 + more));
    [VOLUME, gone, amid, kept].iter().for_each(|id| rig.volume(*id, &format!("v{id}")));
    let image = rig.dir.path().join("d0");
    let operator = rig.operator();
    let transaction = operator.begin(VOLUME, attach::BUSY).unwrap();
    operator.clone_volume(transaction, 1, "v.readonly", clone).unwrap();
    operator.clone_volume(transaction, 2, "v.backup", kept_clone).unwrap();
    operator.end(transaction).unwrap();
    for id in [clone, kept_clone] {
        operator.complete(operator.begin(id, attach::OFFLINE).unwrap());
    }
    rig.sync_on_demand();
    let flags = volume_flag::DELETE_ON_SALVAGE | volume_flag::OUT_OF_SERVICE;
    let flag = |id| {
        let transaction = operator.begin(id, attach::OFFLINE).unwrap();
        operator.call(Call::SetFlags { transaction, flags }).unwrap();
        transaction
    };
    [gone, clone].into_iter().for_each(|id| operator.end(flag(id)).unwrap());
    [kept, kept_clone].into_iter().for_each(|id| operator.complete(flag(id)));
    flag(amid);
    let client = rig.client(None);
    for id in [gone, clone] {
        assert_eq!(client.status(root(id)).err(), Some(code::VOFFLINE), "{id}");
    }
    drop(client);
    rig.pool.as_ref().unwrap().sync().unwrap();
    let crashed = rig.dir.path().join("crashed");
    std::fs::copy(&image, &crashed).unwrap();
    drop(operator);
    for after in [image, crashed] {
        rig.stop();
        rig.open(after);
        rig.start();
        let client = rig.client(None);
        for id in [gone, amid, clone] {
            assert_eq!(client.status(root(id)).err(), Some(code::VNOVOL), "{id}");
        }
        for id in [VOLUME, kept, kept_clone] {
            assert_eq!(client.status(root(id)).map(drop), Ok(()), "{id}");
        }
        let names = rig.pool.as_ref().unwrap().dataset_names(true).unwrap().names;
        let is_gone = |name: &String| [gone, amid, clone].iter().any(|id| name.contains(&id.to_string()));
        assert!(!names.iter().any(is_gone), "{names:?}");
    }
}

/// Goal: after a crash, a clone that was not completed is gone with its snapshot. A complete one
/// stays, and no mark is left.
#[test]
fn half_made_clones() {
    let mut rig = Rig::new();
    rig.volume(VOLUME, "v");
    let image = rig.dir.path().join("d0");
    let (half, whole) = (VolumeId(VOLUME.0 + 1), VolumeId(VOLUME.0 + 2));
    let operator = rig.operator();
    let transaction = operator.begin(VOLUME, attach::BUSY).unwrap();
    operator.clone_volume(transaction, 2, "v.backup", whole).unwrap();
    operator.clone_volume(transaction, 1, "v.readonly", half).unwrap();
    operator.end(transaction).unwrap();
    let transaction = operator.begin(whole, attach::OFFLINE).unwrap();
    operator.complete(transaction);
    crash(&mut rig, image, operator);
    let listed = |id| rig.operator().listed(id).map(|about| about.in_use);
    assert_eq!(listed(whole), Ok(Flag(1)));
    assert_eq!(listed(half), Err(errno::ENODEV));
    assert_eq!(datasets(&rig, '@'), [format!("cell/vicepa/{VOLUME}@{whole}")]);
    assert_eq!(mark(&rig, VOLUME), None);
}

/// Goal: of two changes of one volume's mark at once, none is lost: two administrators complete two
/// clones of it.
#[test]
fn marks_at_once() {
    let rig = Rig::new();
    rig.volume(VOLUME, "v");
    let operators = [rig.operator(), rig.operator()];
    for round in 0..8 {
        let clones = [1, 2].map(|kind| (kind, VolumeId(VOLUME.0 + 10 * round + kind as u32)));
        for (kind, clone) in clones {
            let transaction = operators[0].begin(VOLUME, attach::BUSY).unwrap();
            operators[0].clone_volume(transaction, kind, &format!("v.{clone}"), clone).unwrap();
            operators[0].end(transaction).unwrap();
        }
        assert!(mark(&rig, VOLUME).is_some());
        std::thread::scope(|scope| {
            for (operator, (_, clone)) in operators.iter().zip(clones) {
                scope.spawn(move || {
                    let transaction = operator.begin(clone, attach::OFFLINE).unwrap();
                    operator.complete(transaction);
                });
            }
        });
        assert_eq!(mark(&rig, VOLUME), None);
    }
}

/// Goal: after a crash within the conversion of a read-only volume, the read-write volume is there,
/// and gives out no unique that its predecessor may have given.
#[test]
fn half_converted_volumes() {
    let mut rig = Rig::new();
    rig.volume(VOLUME, "v");
    let image = rig.dir.path().join("d0");
    let clone = VolumeId(VOLUME.0 + 1);
    let operator = rig.operator();
    let transaction = operator.begin(VOLUME, attach::BUSY).unwrap();
    operator.clone_volume(transaction, 1, "v.readonly", clone).unwrap();
    operator.end(transaction).unwrap();
    let of_clone = operator.begin(clone, attach::OFFLINE).unwrap();
    operator.complete(of_clone);
    let last = rig.client(None).create(root(VOLUME), "f").unwrap().fid;
    operator.call(Call::NukeVolume { partition: 0, volume: VOLUME }).unwrap();
    // A conversion came as far as to its rename.
    let mut stored = rig.server().core().table.get(clone).unwrap().peek().unwrap();
    stored.header.id = VOLUME;
    stored.header.kind = afs::types::VolumeType::ReadWrite;
    stored.header.clone = clone;
    stored.header.next_unique.0 = 1_000_000;
    let hexadecimal: String = stored.encode().unwrap().iter().map(|byte| format!("{byte:02x}")).collect();
    let pool = rig.pool.as_ref().unwrap();
    let old = datasets(&rig, '.').into_iter().find(|name| !name.contains('@')).unwrap();
    pool.set(&old, "poolhouse:volume-incomplete", "header").unwrap();
    pool.set(&old, "poolhouse:volume-header", &hexadecimal).unwrap();
    let new = format!("cell/vicepa/{VOLUME}");
    let rename = dsl::ops::rename::Rename { old, new, enforce_limits: false };
    pool.spa().writer().unwrap().run(Box::new(rename)).unwrap();
    crash(&mut rig, image, operator);
    assert_eq!(rig.operator().listed(clone).err(), Some(errno::ENODEV));
    assert_eq!(rig.operator().listed(VOLUME).unwrap().kind, 0);
    let new = rig.client(None).create(root(VOLUME), "g").unwrap().fid;
    assert!(new.unique.0 >= 1_000_000 && new.unique > last.unique);
    assert_eq!((datasets(&rig, '@'), mark(&rig, VOLUME)), (Vec::new(), None));
}

/// Crashes a server, whose pool is as it was synced, and starts the next one.
pub(super) fn crash(rig: &mut Rig, image: PathBuf, operator: Operator) {
    rig.pool.as_ref().unwrap().sync().unwrap();
    let crashed = rig.dir.path().join("crashed");
    std::fs::copy(image, &crashed).unwrap();
    drop(operator);
    rig.stop();
    rig.open(crashed);
    rig.start();
}

/// The datasets whose names have this character.
pub(super) fn datasets(rig: &Rig, with: char) -> Vec<String> {
    let names = rig.pool.as_ref().unwrap().dataset_names(true).unwrap().names;
    names.into_iter().filter(|name| name.contains(with)).collect()
}

/// The mark of a volume that something of it may be incomplete.
fn mark(rig: &Rig, volume: VolumeId) -> Option<dsl::Value> {
    let dataset = rig.pool.as_ref().unwrap().dataset(&format!("cell/vicepa/{volume}")).unwrap();
    let mark = dataset.dsl().user_property("poolhouse:volume-incomplete").unwrap();
    mark.map(|property| property.value)
}

/// Goal: after a crash, a volume that was being changed has the counts of what there is. A volume
/// that was not changed is not counted anew, and neither is one after a clean stop.
#[test]
fn counts_after_a_crash() {
    let mut rig = Rig::new();
    rig.volume(VOLUME, "v");
    let image = rig.dir.path().join("d0");
    let counts = |rig: &Rig| {
        let about = rig.operator().listed(VOLUME).unwrap();
        (about.file_count, about.size)
    };
    rig.stop();
    rig.open(image.clone());
    rig.start();
    let client = rig.client(None);
    // The header is written each second. These are in the pool without it.
    let (mut made, crashed) = (0, rig.dir.path().join("crashed"));
    let first = client.create(root(VOLUME), "first").unwrap().fid;
    rig.pool.as_ref().unwrap().sync().unwrap();
    while made < 50 {
        let file = client.create(root(VOLUME), &format!("f{made}")).unwrap().fid;
        client.store(file, 0, &[7; 5_000], 5_000).unwrap();
        made += 1;
    }
    client.remove(root(VOLUME), "first").unwrap();
    client.make_dir(root(VOLUME), "dir").unwrap();
    let seen = counts(&rig);
    rig.pool.as_ref().unwrap().sync().unwrap();
    std::fs::copy(&image, &crashed).unwrap();
    drop(client);
    rig.stop();
    rig.open(crashed);
    rig.start();
    let client = rig.client(None);
    assert_eq!(client.status(first).err(), Some(code::VNOVNODE));
    assert_eq!(counts(&rig), seen);
    client.remove(root(VOLUME), "f0").unwrap();
    assert_eq!(counts(&rig), (seen.0 - 1, seen.1 - 5));
}

/// Goal: after a crash, a volume that was being changed has no older date than its last change.
/// That holds also before it is opened. Otherwise 'vos release' would take older replicas for
/// current.
#[test]
fn date_of_the_last_change() {
    let mut rig = Rig::new();
    rig.volume(VOLUME, "v");
    let image = rig.dir.path().join("d0");
    let (long_ago, operator, client) = (Date(1_000_000_000), rig.operator(), rig.client(None));
    // The first file reserves uniques, which writes the header.
    client.create(root(VOLUME), "e").unwrap();
    let open = rig.server().core().table.get(VOLUME).unwrap().open().unwrap();
    open.change_header(|stored| stored.header.update_date = long_ago);
    open.flush().unwrap();
    rig.pool.as_ref().unwrap().sync().unwrap();
    client.create(root(VOLUME), "f").unwrap();
    // The pool as it is on disk: the header says that it may lack changes, and has the old date.
    let crashed = rig.dir.path().join("crashed");
    std::fs::copy(image, &crashed).unwrap();
    let changed = operator.listed(VOLUME).unwrap().update_date;
    assert!(changed > long_ago);
    drop((operator, client, open));
    rig.stop();
    rig.open(crashed);
    rig.start();
    assert!(rig.operator().listed(VOLUME).unwrap().update_date >= changed);
    rig.client(None).status(root(VOLUME)).unwrap();
    assert!(rig.operator().listed(VOLUME).unwrap().update_date >= changed);
}

/// Goal: only a mark of a volume's own makes it one that a crash left half-made: one that is
/// inherited destroys nothing.
#[test]
fn inherited_marks() {
    let mut rig = Rig::new();
    rig.volume(VOLUME, "v");
    rig.pool.as_ref().unwrap().set("cell/vicepa", "poolhouse:volume-incomplete", "on").unwrap();
    let image = rig.dir.path().join("d0");
    rig.stop();
    rig.open(image);
    rig.start();
    rig.client(None).status(root(VOLUME)).unwrap();
}

/// Goal: versions in a dump are those that clients see, also after a crash, and a restore keeps
/// them.
#[test]
fn versions_in_dumps() {
    let mut rig = Rig::new();
    rig.volume(VOLUME, "v");
    let image = rig.dir.path().join("d0");
    rig.pool.as_ref().unwrap().sync().unwrap();
    let crashed = rig.dir.path().join("crashed");
    std::fs::copy(&image, &crashed).unwrap();
    rig.stop();
    rig.open(crashed);
    rig.start();
    let other = VolumeId(VOLUME.0 + 5);
    rig.volume(other, "other");
    let (operator, client) = (rig.operator(), rig.client(None));
    let version = client.version(root(VOLUME));
    assert!(version >= 65_536);
    for (from, to) in [(VOLUME, other), (other, VOLUME)] {
        let dump = operator.dump(from, 0);
        let transaction = operator.begin(to, attach::OFFLINE).unwrap();
        let cookie = RestoreCookie { name: Chars::new(b"x"), parent: to, ..RestoreCookie::default() };
        operator.raw(&Call::Restore { transaction, flags: 0, cookie }, &dump).unwrap();
        operator.end(transaction).unwrap();
        assert_eq!(client.version(root(to)), version);
    }
}

/// Goal: what clients stored is there after an export, in a volume and in its backup. `KEEP=DIR`
/// leaves the image there, and the same files as `files`, for OpenZFS's kernel module.
#[test]
fn pools_for_openzfs() {
    let (mut rig, backup) = (Rig::new(), VolumeId(VOLUME.0 + 2));
    rig.volume(VOLUME, "v");
    let image = rig.dir.path().join("d0");
    let files = |n: u32| (0..14 * n * n).map(move |at| (at / 7 + n) as u8).collect::<Vec<_>>();
    let made: Vec<_> = {
        let client = rig.client(None);
        let dir = client.make_dir(root(VOLUME), "dir").unwrap().fid;
        let make = |n| {
            let file = client.create(dir, &format!("file{n}")).unwrap().fid;
            client.store(file, 0, &files(n), 0).unwrap();
            (n, file)
        };
        let made = (0..100).map(make).filter(|(n, _)| n % 9 != 0).collect();
        (0..100).step_by(9).for_each(|n| client.remove(dir, &format!("file{n}")).unwrap());
        let operator = rig.operator();
        let transaction = operator.begin(VOLUME, attach::BUSY).unwrap();
        operator.clone_volume(transaction, 2, "v.backup", backup).unwrap();
        operator.complete(transaction);
        let transaction = operator.begin(backup, attach::OFFLINE).unwrap();
        operator.complete(transaction);
        client.create(root(VOLUME), "after").unwrap();
        made
    };
    rig.stop();
    if let Some(keep) = std::env::var_os("KEEP").map(std::path::PathBuf::from) {
        let dir = keep.join("files/dir");
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::copy(&image, keep.join("afs.img")).unwrap();
        for (n, _) in &made {
            std::fs::write(dir.join(format!("file{n}")), files(*n)).unwrap();
        }
    }
    rig.open(image);
    rig.start();
    let client = rig.client(None);
    for (n, file) in made {
        for volume in [VOLUME, backup] {
            let found = client.fetch(afs::types::Fid { volume, ..file }, 0, 2 << 20).unwrap();
            assert!(found.0 == files(n), "file{n} in {volume}");
        }
    }
}
