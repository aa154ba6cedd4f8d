//! Rollbacks of mounted file systems with open files. The tests do nothing if mounting is not
//! possible.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::rc::Rc;

use crate::common::stand::Stand;
use api::{DatasetChange, Requests};
use server::service::LocalService;

fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).expect("a directory");
    let name = |entry: std::io::Result<fs::DirEntry>| entry.map(|e| e.file_name().into_string());
    let mut all: Vec<_> = entries.map(|e| name(e).expect("an entry").expect("words")).collect();
    all.sort();
    all
}

fn open(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).open(path).expect("it opens")
}

/// The contents of an open file, from its start.
fn contents(file: &File) -> std::io::Result<String> {
    let (mut file, mut text) = (file.try_clone()?, String::new());
    file.seek(SeekFrom::Start(0))?;
    file.read_to_string(&mut text)?;
    Ok(text)
}

fn is_gone(file: &File) {
    let errno = |result: std::io::Result<usize>| result.err().and_then(|e| e.raw_os_error());
    // ESTALE, or EIO after the kernel has noticed.
    let gone = |errno: Option<i32>| assert!(matches!(errno, Some(116 | 5)), "{errno:?}");
    gone(errno(file.read_at(&mut [0; 8], 0)));
    gone(errno(file.write_at(b"lost", 0)));
    gone(file.metadata().err().and_then(|e| e.raw_os_error()));
}

/// Creates files until one has this inode number, and removes those before it.
fn reuse(dir: &Path, ino: u64) -> File {
    for n in 0..20_000 {
        let path = dir.join(format!("n{n}"));
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(&path).expect("a file");
        if file.metadata().expect("attributes").ino() == ino {
            file.write_at(b"another", 0).expect("room");
            return file;
        }
    }
    panic!("no file has the number {ino} again");
}

/// Goal: open files that are in the snapshot continue with their old contents, also if they were
/// removed. Later files are gone.
///
/// No descriptor ever leads to another file that reuses its number. The kernel's cached names,
/// attributes, lists and contents are those of the snapshot.
#[test]
fn open_files_go_on_as_they_were() {
    let Some(stand) = Stand::new("") else { return };
    stand.good("zfs create tank/a");
    let at = |name: &str| stand.path("tank/a").join(name);
    for (name, text) in
        [("kept", "kept"), ("changed", "as it was"), ("removed", "is back"), ("number", "own")]
    {
        fs::write(at(name), text).expect("a file");
    }
    fs::create_dir(at("d")).and_then(|()| fs::write(at("d/in"), b"in")).expect("a directory");
    let number = fs::metadata(at("number")).expect("attributes").ino();
    stand.good("zfs snapshot tank/a@s");

    let (kept, changed, removed) = (open(&at("kept")), open(&at("changed")), open(&at("removed")));
    changed.set_len(0).and_then(|()| changed.write_at(b"something else, and longer", 0)).expect("room");
    fs::remove_file(at("removed")).expect("it goes");
    assert!(!at("removed").exists() && contents(&changed).expect("contents").starts_with("something"));
    fs::write(at("new"), "new").expect("a file");
    let (new, new_number) = (open(&at("new")), fs::metadata(at("new")).expect("attributes").ino());
    fs::rename(at("d/in"), at("out")).and_then(|()| fs::create_dir(at("e"))).expect("a rename");
    fs::remove_file(at("number")).expect("it goes");
    // Numbers are reused when the file system is opened anew.
    let other = {
        drop((kept, changed, removed, new));
        stand.good("zfs unmount tank/a");
        stand.good("zpool sync tank");
        stand.good("zfs mount tank/a");
        reuse(&at("d"), number)
    };
    let (kept, changed, new) = (open(&at("kept")), open(&at("changed")), open(&at("new")));
    let mut behind = OpenOptions::new().append(true).open(at("changed")).expect("it opens");
    assert_eq!(names(&at("")), ["changed", "d", "e", "kept", "new", "out"]);
    assert_eq!(contents(&changed).expect("contents").len(), 26);

    stand.good("zfs rollback tank/a@s");
    assert_eq!(names(&at("")), ["changed", "d", "kept", "number", "removed"]);
    assert_eq!(names(&at("d")), ["in"]);
    for name in ["new", "out", "e", "d/n0"] {
        assert!(!at(name).exists(), "{name}");
    }
    assert_eq!(fs::read_to_string(at("removed")).expect("it is back"), "is back");
    assert_eq!(fs::read_to_string(at("number")).expect("it is back"), "own");
    assert_eq!(fs::metadata(at("number")).expect("attributes").ino(), number);
    assert_eq!(contents(&kept).expect("it goes on"), "kept");
    assert_eq!(contents(&changed).expect("it goes on"), "as it was");
    assert_eq!(changed.metadata().expect("attributes").len(), 9);
    behind.write_all(b", and on").and_then(|()| behind.sync_all()).expect("it goes on");
    assert_eq!(fs::read_to_string(at("changed")).expect("contents"), "as it was, and on");
    is_gone(&new);
    is_gone(&other);
    assert_eq!(fs::read_to_string(at("number")).expect("contents"), "own");
    // A descriptor of a file that is gone does not reach the new file with its number.
    let later = reuse(&at("d"), new_number);
    is_gone(&new);
    assert_eq!(contents(&later).expect("contents"), "another");

    // A second rollback discards what was done since the first.
    let again = open(&at("removed"));
    fs::remove_file(at("removed")).expect("it goes");
    assert_eq!(contents(&again).expect("it stays for who has it open"), "is back");
    stand.good("zfs rollback tank/a@s");
    assert_eq!(contents(&again).expect("it has its name again"), "is back");
    assert_eq!(fs::read_to_string(at("changed")).expect("contents"), "as it was");
    assert_eq!(names(&at("d")), ["in"]);
    is_gone(&later);
    fs::write(at("more"), vec![7; 300_000]).expect("it can be written");
    assert!(stand.good("zpool status tank").contains("errors: No known data errors"));
}

/// Goal: a refused rollback changes nothing, also for open removed files.
///
/// With `-r` it destroys later snapshots, even with an open file in one. It works on a read-only
/// mount too.
#[test]
fn a_refused_rollback_changes_nothing() {
    let Some(stand) = Stand::new("") else { return };
    stand.good("zfs create tank/a");
    let at = |name: &str| stand.path("tank/a").join(name);
    fs::write(at("f"), "one").expect("a file");
    stand.good("zfs snapshot tank/a@one");
    fs::write(at("f"), "two").expect("a file");
    stand.good("zfs snapshot tank/a@two");
    fs::write(at("f"), "three").expect("a file");
    fs::write(at("gone"), "removed, and open").expect("a file");
    let (file, gone) = (open(&at("f")), open(&at("gone")));
    fs::remove_file(at("gone")).expect("it goes");
    stand.good("zfs hold keep tank/a@two");
    let refused = stand.ran("zfs rollback -r tank/a@one");
    assert_eq!(refused.code, 1, "{}", refused.err);
    assert_eq!(contents(&file).expect("it is the same"), "three");
    assert_eq!(contents(&gone).expect("it is the same"), "removed, and open");
    gone.write_at(b"R", 0).and_then(|_| gone.sync_all()).expect("it can be written");
    assert_eq!(contents(&gone).expect("it is the same"), "Removed, and open");
    stand.good("zfs release keep tank/a@two");
    stand.good("zfs rollback -r tank/a@one");
    assert_eq!(contents(&file).expect("it goes on"), "one");
    is_gone(&gone);
    assert_eq!(stand.good("zfs list -H -t snapshot -o name"), "tank/a@one\n");
    fs::write(at("f"), "four").expect("a file");
    drop((file, gone));
    stand.good("zfs unmount tank/a");
    stand.good("zfs mount -o ro tank/a");
    let file = File::open(at("f")).expect("it opens");
    assert_eq!(contents(&file).expect("contents"), "four");
    stand.good("zfs rollback tank/a@one");
    assert_eq!(contents(&file).expect("it goes on"), "one");
    assert_eq!(fs::read_to_string(at("f")).expect("contents"), "one");
}

fn back(destroy: &[&str]) -> DatasetChange {
    let destroy = destroy.iter().map(|name| (*name).to_owned()).collect();
    DatasetChange::Rollback { snapshot: "tank/a@s".into(), destroy, force: false }
}

/// Goal: if a snapshot that the rollback was to destroy is already gone, the kernel still shows the
/// state after the rollback.
#[test]
fn who_destroys_first_may_come_late() {
    let Some(stand) = Stand::new("") else { return };
    stand.good("zfs create tank/a");
    let at = |name: &str| stand.path("tank/a").join(name);
    fs::write(at("f"), "then").expect("a file");
    stand.good("zfs snapshot tank/a@s");
    fs::write(at("f"), "now").expect("a file");
    fs::write(at("new"), "new").expect("a file");
    let (file, new) = (open(&at("f")), open(&at("new")));
    stand.house.change(&back(&["tank/gone"])).expect_err("there is none of that name");
    assert_eq!(contents(&file).expect("it goes on"), "then");
    assert_eq!(names(&at("")), ["f"]);
    is_gone(&new);
}

/// Goal: concurrent changes of limits and rollbacks don't block each other, and open removed files
/// stay available.
#[test]
fn limits_are_set_meanwhile() {
    let house = Rc::new(LocalService::new().in_process());
    let Some(stand) = Stand::over(house.clone(), 256 << 20, "") else { return };
    stand.good("zfs create tank/a");
    let at = |name: &str| stand.path("tank/a").join(name);
    fs::write(at("f"), "kept").expect("a file");
    stand.good("zfs snapshot tank/a@s");
    let file = open(&at("f"));
    let house = &*house;
    let limit = |n: u64| DatasetChange::Set {
        name: "tank/a".into(),
        props: vec![("userquota@1234".into(), format!("{n}M"))],
        keep_mounted: false,
    };
    std::thread::scope(|scope| {
        scope.spawn(|| (1..40).for_each(|n| drop(house.change(&limit(n)).expect("it is set"))));
        scope.spawn(|| (1..40).for_each(|_| drop(house.change(&back(&[])).expect("it is rolled back"))));
        for _ in 0..200 {
            assert_eq!(contents(&file).expect("it is there"), "kept");
        }
    });
    fs::remove_file(at("f")).expect("it goes");
    house.change(&limit(77)).expect("it is set");
    assert_eq!(contents(&file).expect("it stays for who has it open"), "kept");
    assert_eq!(stand.good("zfs get -Hp -o value userquota@1234 tank/a").trim(), (77 << 20).to_string());
}

/// Goal: after hundreds of rollbacks a file system can't be rolled back below its mount any more.
/// It is then unmounted for the rollback and mounted again, and refused while in use.
#[test]
fn it_is_unmounted_where_it_must_be() {
    let Some(stand) = Stand::new("") else { return };
    stand.good("zfs create tank/a");
    let at = |name: &str| stand.path("tank/a").join(name);
    fs::write(at("f"), "then").expect("a file");
    stand.good("zfs snapshot tank/a@s");
    let file = open(&at("f"));
    for _ in 0..255 {
        // A rollback after which no file is gone uses nothing up.
        fs::write(at("gone"), "").expect("a file");
        stand.house.change(&back(&[])).expect("it is rolled back");
    }
    fs::write(at("f"), "now").expect("a file");
    stand.bad("zfs rollback tank/a@s");
    assert_eq!(contents(&file).expect("it is the same"), "now");
    drop(file);
    let before = stand.mounted();
    stand.good("zfs rollback tank/a@s");
    assert_eq!(stand.mounted(), before);
    assert_eq!(fs::read_to_string(at("f")).expect("contents"), "then");
    fs::write(at("f"), "now").expect("it can be written");
}

/// Goal: `.zfs` is listed, hidden or missing as `snapdir` says, at once.
#[test]
fn the_control_directory_follows_its_property() {
    let Some(stand) = Stand::new("") else { return };
    stand.good("zfs create tank/a");
    stand.good("zfs snapshot tank/a@s");
    let root = stand.path("tank/a");
    for _ in 0..2 {
        for (how, listed, there) in
            [("visible", true, true), ("disabled", false, false), ("hidden", false, true)]
        {
            stand.good(&format!("zfs set snapdir={how} tank/a"));
            assert_eq!(!names(&root).is_empty(), listed, "{how}");
            assert_eq!(root.join(".zfs/snapshot/s").exists(), there, "{how}");
            assert_eq!(root.join(".zfs").exists(), there, "{how}");
            assert_eq!(fs::metadata(&root).expect("attributes").nlink(), 2 + u64::from(listed), "{how}");
        }
    }
}
