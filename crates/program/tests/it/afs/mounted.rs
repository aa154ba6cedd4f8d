//! Mounts of volumes while the AFS server has them.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

use super::{Daemon, FileCall, FileReply, Stand, TIME, VOLUME, said};
use afs::acl::{Acl, AclEntry, Rights};
use afs::calls::fileserver;
use afs::calls::volserver::{Call, Name, Reply, attach};
use afs::types::{Date, Fid, PrincipalId, RestoreCookie, StoreStatus, Unique, Vnode, VolumeId};
use afs::wire::Chars;
use rustix::io::Errno;
use rx::security::Null;

/// The backup volume.
const BACKUP: VolumeId = VolumeId(VOLUME.0 + 2);
const ROOT: Fid = Fid { volume: VOLUME, vnode: Vnode::ROOT, unique: Unique(1) };

/// A call of an anonymous client, with the data that follow it.
fn call(stand: &Stand, call: &FileCall, data: &[u8]) -> FileReply {
    let (_endpoint, connection) = stand.connect(1, &Null);
    let bytes = connection.call([&call.request(), data].concat(), TIME).expect("it is served");
    FileReply::decode(call.opcode(), &bytes).expect("a reply")
}

pub(super) fn create(stand: &Stand, name: &str) -> Fid {
    let (name, status) = (fileserver::Name::new(name).expect("a name"), StoreStatus::default());
    match call(stand, &FileCall::CreateFile { directory: ROOT, name, status }, &[]) {
        FileReply::CreateFile(reply) => reply.fid,
        other => panic!("{other:?}"),
    }
}

fn store(stand: &Stand, fid: Fid, data: &[u8]) {
    let (status, length) = (StoreStatus::default(), data.len() as u64);
    let stored = FileCall::StoreData64 { fid, status, position: 0, length, file_length: length };
    call(stand, &stored, data);
}

fn remove(stand: &Stand, name: &str) {
    let name = fileserver::Name::new(name).expect("a name");
    call(stand, &FileCall::RemoveFile { directory: ROOT, name }, &[]);
}

/// Has the volume taken into a transaction, in which `work` is done.
fn in_transaction(stand: &Stand, flags: i32, work: impl FnOnce(i32)) {
    let begin = Call::TransCreate { volume: VOLUME, partition: 0, flags };
    let Ok(Reply::TransCreate(transaction)) = stand.operate(&begin) else { panic!("no transaction") };
    work(transaction);
    stand.operate(&Call::EndTrans { transaction }).expect("it ends");
}

/// Restores the volume from its own dump, in which anyone may do all.
pub(super) fn open_to_all(stand: &Stand) {
    let mut dump = Vec::new();
    in_transaction(stand, attach::BUSY, |transaction| {
        dump = stand.operate_raw(&Call::Dump { transaction, since: Date(0) }, &[]).expect("a dump");
    });
    let own = Acl::of_new_volume().to_raw();
    let at = dump.windows(own.len()).position(|bytes| bytes == own).expect("the root's access list");
    let anyone = AclEntry { who: PrincipalId::ANYUSER, rights: Rights::ALL };
    let all = Acl::new(vec![anyone], Vec::new()).expect("one entry").to_raw();
    dump[at..at + all.len()].copy_from_slice(&all);
    restore(stand, &dump);
}

/// Replaces the files of the volume by those of a dump.
fn restore(stand: &Stand, dump: &[u8]) {
    in_transaction(stand, attach::OFFLINE, |transaction| {
        let cookie = RestoreCookie { name: Chars::new(b"made"), parent: VOLUME, ..RestoreCookie::default() };
        let restore = Call::Restore { transaction, flags: 0, cookie };
        stand.operate_raw(&restore, dump).expect("it is restored");
    });
}

/// Makes or replaces the backup volume.
fn back_up(stand: &Stand, is_new: bool) {
    in_transaction(stand, attach::BUSY, |transaction| {
        if !is_new {
            stand.operate(&Call::ReClone { transaction, clone: BACKUP }).expect("it is cloned anew");
            return;
        }
        let name = Name::new("made.backup").expect("a name");
        let call = Call::Clone { transaction, purge: VolumeId(0), kind: 2, name, volume: BACKUP };
        stand.operate(&call).expect("it is cloned");
        let begin = Call::TransCreate { volume: BACKUP, partition: 0, flags: attach::OFFLINE };
        let Ok(Reply::TransCreate(own)) = stand.operate(&begin) else { panic!("no transaction") };
        stand.operate(&Call::SetFlags { transaction: own, flags: 0 }).expect("it is set");
        stand.operate(&Call::EndTrans { transaction: own }).expect("it ends");
    });
}

/// Deletes a volume, as `vos remove` does.
fn delete(stand: &Stand, volume: VolumeId) {
    let begin = Call::TransCreate { volume, partition: 0, flags: attach::OFFLINE };
    let Ok(Reply::TransCreate(transaction)) = stand.operate(&begin) else { panic!("no transaction") };
    stand.operate(&Call::DeleteVolume { transaction }).expect("it is deleted");
    stand.operate(&Call::EndTrans { transaction }).expect("it ends");
}

fn volume() -> String {
    format!("tank/vicepa/{VOLUME}")
}

/// A served volume in which anyone may do all, mounted. `None`: nothing can be mounted here.
fn mounted() -> Option<(Stand, PathBuf)> {
    let stand = Stand::new();
    stand.enable();
    stand.create();
    open_to_all(&stand);
    let at = stand.dir.path().join("mnt");
    stand.daemon.good(&format!("zfs set mountpoint={} {}", at.display(), volume()));
    // A volume is mounted by its name only.
    stand.daemon.good("zfs mount -a");
    assert_eq!(stand.daemon.good("zfs mount"), "");
    let mounted = stand.daemon.ran(&format!("zfs mount {}", volume()));
    if !mounted.status.success() {
        assert!(fs::metadata("/dev/fuse").is_err(), "{}", said(&mounted));
        println!("skipped: there is no /dev/fuse here");
        return None;
    }
    Some((stand, at))
}

/// Calls `look` until it is true. Time passes between its calls only in the system.
fn until(what: &str, mut look: impl FnMut() -> bool) {
    let since = Instant::now();
    while !look() {
        assert!(since.elapsed() < TIME, "{what}");
        std::thread::yield_now();
    }
}

fn errno<T: std::fmt::Debug>(result: io::Result<T>) -> Errno {
    Errno::from_io_error(&result.expect_err("it fails")).expect("an errno")
}

/// Goal: a mount of a served volume shows what a client changes, and refuses changes. A removed
/// file is gone for a program that has it open, also if another file has its number.
#[test]
fn shows_what_clients_change() {
    let Some((stand, at)) = mounted() else { return };
    let path = at.join("file");
    assert_eq!(errno(fs::read(&path)), Errno::NOENT);
    let fid = create(&stand, "file");
    store(&stand, fid, b"one");
    assert_eq!(fs::read(&path).expect("it is there"), b"one");
    let open = File::open(&path).expect("it opens");
    let mut buf = [0; 3];
    open.read_exact_at(&mut buf, 0).expect("three bytes");
    store(&stand, fid, b"two");
    assert_eq!(fs::read(&path).expect("it is there"), b"two");
    until("an open file shows the change", || {
        open.read_exact_at(&mut buf, 0).expect("three bytes");
        buf == *b"two"
    });
    let names = || -> Vec<_> {
        let entries = fs::read_dir(&at).expect("a directory");
        entries.map(|entry| entry.expect("an entry").file_name()).collect()
    };
    assert_eq!(names(), ["file"]);
    remove(&stand, "file");
    assert!(names().is_empty());
    assert_eq!(errno(fs::symlink_metadata(&path)), Errno::NOENT);
    create(&stand, "other");
    assert_eq!(names(), ["other"]);
    until("the open file is gone", || {
        open.metadata().is_err_and(|error| Errno::from_io_error(&error) == Some(Errno::STALE))
    });
    drop(open);
    for changed in [
        fs::write(at.join("new"), "x"),
        fs::write(at.join("other"), "x"),
        fs::remove_file(at.join("other")),
        fs::create_dir(at.join(".zfs/snapshot/x")),
    ] {
        assert_eq!(errno(changed), Errno::ROFS);
    }
    // Other users come in only by an option, since access lists have no effect.
    let all = fs::read_to_string("/proc/self/mounts").expect("the table of mounts");
    let row = all.lines().find(|row| row.contains(&at.display().to_string())).expect("its row");
    assert!(!row.contains("allow_other"), "{row}");
    // It does not become writable.
    let why = stand.bad(&format!("zfs mount -o remount,rw {}", volume()));
    assert!(why.contains("read-only"), "{why}");
    stand.daemon.good(&format!("zfs set readonly=off {}", volume()));
    assert_eq!(errno(fs::write(at.join("new"), "x")), Errno::ROFS);
    let again = stand.bad(&format!("zfs mount {}", volume()));
    assert!(again.contains("already mounted"), "{again}");
    stand.daemon.good(&format!("zfs unmount {}", volume()));
    store(&stand, create(&stand, "last"), b"3");
}

/// Goal: snapshots and clones of a served volume are readable in `.zfs/snapshot` and by mounts of
/// their own. A new backup ends the mount of the former one, also if it is in use.
#[test]
fn snapshots_and_clones() {
    let Some((stand, at)) = mounted() else { return };
    let fid = create(&stand, "file");
    store(&stand, fid, b"one");
    stand.daemon.good(&format!("zfs snapshot {}@daily", volume()));
    back_up(&stand, true);
    store(&stand, fid, b"two");
    let snapshots = at.join(".zfs/snapshot");
    for name in ["daily".to_owned(), BACKUP.to_string()] {
        assert_eq!(fs::read(snapshots.join(name).join("file")).expect("it is there"), b"one");
    }
    let mount = |name: &str| {
        let own = stand.dir.path().join(name);
        fs::create_dir_all(&own).expect("a folder");
        stand.daemon.good(&format!("mount.zfs {}@{name} {}", volume(), own.display()));
        own.join("file")
    };
    let (daily, backup) = (mount("daily"), mount(&BACKUP.to_string()));
    let open = File::open(&backup).expect("it opens");
    assert_eq!(fs::read(&daily).expect("it is there"), b"one");
    back_up(&stand, false);
    until("the former backup has ended", || open.metadata().is_err());
    assert_eq!(errno(fs::read(&backup)), Errno::NOENT);
    assert_eq!(fs::read(mount(&BACKUP.to_string())).expect("it is there"), b"two");
    let new = snapshots.join(BACKUP.to_string()).join("file");
    assert_eq!(fs::read(new).expect("it is there"), b"two");
    delete(&stand, BACKUP);
    delete(&stand, VOLUME);
    // The snapshot of the administrator stays.
    assert_eq!(fs::read(&daily).expect("it is there"), b"one");
    stand.daemon.good(&format!("zfs unmount {}", stand.dir.path().join("daily").display()));
    stand.daemon.good(&format!("zfs destroy {}.clones-1@daily", volume()));
}

/// Goal: a volume that is mounted and in use is removed, restored and taken offline. Programs get
/// errors, and nothing waits for them.
#[test]
fn vos_comes_first() {
    let Some((stand, at)) = mounted() else { return };
    let fid = create(&stand, "file");
    store(&stand, fid, b"one");
    let open = File::open(at.join("file")).expect("it opens");
    in_transaction(&stand, attach::OFFLINE, |_| {
        assert_eq!(errno(fs::symlink_metadata(at.join("file"))), Errno::BUSY);
        assert_eq!(errno(fs::read(at.join("file"))), Errno::BUSY);
        let why = stand.bad("afs disable tank/vicepa");
        assert!(why.contains("in transaction"), "{why}");
    });
    assert_eq!(fs::read(at.join("file")).expect("it is there again"), b"one");
    let mut dump = Vec::new();
    in_transaction(&stand, attach::BUSY, |transaction| {
        dump = stand.operate_raw(&Call::Dump { transaction, since: Date(0) }, &[]).expect("a dump");
        assert_eq!(fs::read(at.join("file")).expect("clients may read too"), b"one");
    });
    store(&stand, fid, b"two");
    restore(&stand, &dump);
    assert_eq!(fs::read(at.join("file")).expect("it is there"), b"one");
    delete(&stand, VOLUME);
    until("the volume has ended", || open.metadata().is_err());
    assert_eq!(stand.daemon.good("zfs mount"), "");
    assert!(stand.bad(&format!("zfs list {}", volume())).contains("does not exist"));
    // One of the same number is another volume.
    stand.create();
    until("it is another volume", || open.metadata().is_err());
    stand.daemon.good("zpool export tank");
}

/// Goal: a mounted read-only volume becomes the read-write one, under another number. Its mount
/// ends, and the new volume can be mounted.
#[test]
fn converted_while_mounted() {
    let Some((stand, at)) = mounted() else { return };
    delete(&stand, VOLUME);
    let (copy, name) = (VolumeId(VOLUME.0 + 1), Name::new("made.readonly").expect("a name"));
    let make = Call::CreateVolume { partition: 0, name, kind: 1, parent: VOLUME, volume: copy };
    let Ok(Reply::CreateVolume(made)) = stand.operate(&make) else { panic!("no volume is made") };
    stand.operate(&Call::SetFlags { transaction: made.transaction, flags: 0 }).expect("it is set");
    stand.operate(&Call::EndTrans { transaction: made.transaction }).expect("it ends");
    stand.daemon.good(&format!("zfs set mountpoint={} tank/vicepa/{copy}", at.display()));
    stand.daemon.good(&format!("zfs mount tank/vicepa/{copy}"));
    let open = File::open(&at).expect("it opens");
    let names = || fs::read_dir(&at).expect("a directory").count();
    assert_eq!(names(), 0);
    stand.operate(&Call::ConvertRoToRw { partition: 0, volume: copy }).expect("it is converted");
    until("the volume has ended", || open.metadata().is_err());
    assert_eq!(stand.daemon.good("zfs mount"), "");
    stand.daemon.good(&format!("zfs mount {}", volume()));
    open_to_all(&stand);
    store(&stand, create(&stand, "file"), b"one");
    assert_eq!(fs::read(at.join("file")).expect("it is there"), b"one");
}

/// Goal: a mount of a volume that another file system hides has no files after the volume has
/// ended. The other one stays, and afterwards the first can be unmounted.
#[test]
fn hidden_by_another() {
    let Some((stand, at)) = mounted() else { return };
    store(&stand, create(&stand, "file"), b"one");
    let open = File::open(at.join("file")).expect("it opens");
    stand.daemon.good(&format!("zfs create -o mountpoint={} tank/other", at.display()));
    fs::write(at.join("other"), b"two").expect("it is written");
    delete(&stand, VOLUME);
    until("the volume has ended", || open.metadata().is_err());
    assert_eq!(stand.daemon.good("zfs mount").lines().count(), 1);
    assert_eq!(fs::read(at.join("other")).expect("it stays"), b"two");
    stand.daemon.good("zfs unmount tank/other");
    assert_eq!(errno(fs::read(at.join("file"))), Errno::STALE);
    drop(open);
    let is_root = rustix::process::geteuid().is_root();
    let mut unmount = Command::new(if is_root { "umount" } else { "fusermount3" });
    let unmounted = unmount.args((!is_root).then_some("-u")).arg(&at).status().expect("it runs");
    assert!(unmounted.success());
    assert_eq!(errno(fs::read(at.join("file"))), Errno::NOENT);
}

/// Goal: commands on the pool are refused while a mount of a volume is in use, and end it
/// otherwise. An export that is refused leaves it mounted.
#[test]
fn commands_on_the_pool() {
    let Some((stand, at)) = mounted() else { return };
    store(&stand, create(&stand, "file"), b"one");
    let open = File::open(at.join("file")).expect("it opens");
    for line in ["zpool export tank", "afs disable tank/vicepa"] {
        let why = stand.bad(line);
        assert!(why.contains("busy") && why.contains("in use by"), "{line}: {why}");
        assert_eq!(fs::read(at.join("file")).expect("it stays"), b"one");
    }
    stand.status().expect("it is served still");
    drop(open);
    // By force, a mount in use ends too.
    let open = File::open(at.join("file")).expect("it opens");
    stand.daemon.good("afs disable -f tank/vicepa");
    until("the mount has ended", || open.metadata().is_err());
    assert_eq!(stand.daemon.good("zfs mount"), "");
    stand.daemon.good(&format!("zfs mount {}", volume()));
    assert_eq!(fs::read(at.join("file")).expect("it is mounted without the server"), b"one");
    let why = stand.bad(&format!("zfs mount -o remount,rw {}", volume()));
    assert!(why.contains("read-only"), "{why}");
    assert!(stand.try_enable().contains(&format!("zfs unmount {}", volume())));
    stand.daemon.good(&format!("zfs unmount {}", volume()));
    stand.enable();
    stand.daemon.good(&format!("zfs mount {}", volume()));
    stand.daemon.good("zpool export tank");
    stand.import();
    stand.status().expect("it is served again");
    assert_eq!(stand.daemon.good("zfs mount"), "");
}

/// Goal: after a crash of the daemon, a volume is served and mounted as before.
#[test]
fn mounted_again_after_a_crash() {
    let Some((mut stand, at)) = mounted() else { return };
    let fid = create(&stand, "file");
    store(&stand, fid, b"one");
    stand.daemon.good("zpool sync tank");
    stand.daemon.signal("KILL");
    stand.daemon.ended();
    stand.daemon = Daemon::start(stand.dir.path());
    stand.import();
    stand.status().expect("it is served again");
    assert_eq!(fs::read(at.join("file")).expect("it is there"), b"one");
    store(&stand, fid, b"two");
    assert_eq!(fs::read(at.join("file")).expect("it is there"), b"two");
    stand.daemon.signal("TERM");
    assert!(stand.daemon.ended().success());
    assert_eq!(errno(fs::read(at.join("file"))), Errno::NOENT);
}
