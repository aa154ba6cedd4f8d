//! A file system that is written through the real kernel, then checked by OpenZFS's `zdb` if it is
//! installed.

use crate::stand::{Stand, can_mount, errno, list};
use rustix::fs::{CWD, FallocateFlags, Mode, OFlags, RenameFlags, XattrFlags};
use rustix::io::Errno;
use std::fs::{self, File};
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use zpl::Policy;

/// Goal: system calls create, write, list and remove files of all types, and the files survive an
/// export.
#[test]
fn makes_and_writes() {
    if !can_mount() {
        return;
    }
    let stand = Stand::new(Policy::default());
    let data: Vec<u8> = (0..3_000_001_u32).map(|i| (i >> 5) as u8 ^ (i >> 13) as u8).collect();
    fs::write(stand.path("big"), &data).unwrap();
    assert!(fs::read(stand.path("big")).unwrap() == data);
    fs::create_dir(stand.path("d")).unwrap();
    fs::create_dir(stand.path("d/e")).unwrap();
    symlink("../big", stand.path("d/link")).unwrap();
    fs::hard_link(stand.path("big"), stand.path("d/hard")).unwrap();
    assert_eq!(fs::metadata(stand.path("big")).unwrap().nlink(), 2);
    rustix::fs::mknodat(CWD, stand.path("fifo"), rustix::fs::FileType::Fifo, Mode::RUSR, 0).unwrap();
    assert!(fs::metadata(stand.path("fifo")).unwrap().file_type().is_fifo());
    let meta = fs::metadata(stand.path("d")).unwrap();
    assert_eq!((meta.nlink(), meta.size()), (3, 5));
    assert!(fs::read(stand.path("d/link")).unwrap() == data);
    fs::remove_file(stand.path("big")).unwrap();
    assert_eq!(fs::metadata(stand.path("d/hard")).unwrap().nlink(), 1);
    assert_eq!(errno(fs::remove_dir(stand.path("d"))), Errno::NOTEMPTY);
    assert_eq!(errno(fs::create_dir(stand.path("d"))), Errno::EXIST);
    let stand = stand.again();
    assert_eq!(list(&stand.path("")), ["d", "fifo"]);
    assert_eq!(list(&stand.path("d")), ["e", "hard", "link"]);
    assert!(fs::read(stand.path("d/hard")).unwrap() == data);
    fs::remove_dir_all(stand.path("d")).unwrap();
    fs::remove_file(stand.path("fifo")).unwrap();
    assert_eq!(fs::metadata(stand.path("")).unwrap().nlink(), 2);
    stand.end();
}

/// Goal: a file that is removed while open can be read and written until it is closed, and then its
/// space is free.
#[test]
fn outlives_its_name() {
    if !can_mount() {
        return;
    }
    let stand = Stand::new(Policy::default());
    let mut file = File::options().read(true).write(true).create_new(true).open(stand.path("f")).unwrap();
    file.write_all(b"before").unwrap();
    fs::remove_file(stand.path("f")).unwrap();
    file.write_all(b" and after").unwrap();
    let mut all = String::new();
    file.seek(SeekFrom::Start(0)).unwrap();
    file.read_to_string(&mut all).unwrap();
    assert_eq!(all, "before and after");
    assert_eq!(file.metadata().unwrap().nlink(), 0);
    assert_eq!(stand.rig.as_ref().unwrap().fs.unlinked().unwrap().len(), 1);
    drop(file);
    // A new file of the same name is another file.
    fs::write(stand.path("f"), b"new").unwrap();
    fs::write(stand.path("g"), b"other").unwrap();
    fs::rename(stand.path("f"), stand.path("g")).unwrap();
    assert_eq!(fs::read(stand.path("g")).unwrap(), b"new");
    stand.end();
}

/// Goal: sizes, holes, appends, truncation and memory maps work as on any file system.
#[test]
fn contents_change() {
    if !can_mount() {
        return;
    }
    let stand = Stand::new(Policy::default());
    let file =
        File::options().read(true).write(true).create(true).truncate(true).open(stand.path("f")).unwrap();
    file.write_all_at(b"end", 10 << 20).unwrap();
    assert_eq!(file.metadata().unwrap().len(), (10 << 20) + 3);
    let mut start = [1; 5];
    file.read_exact_at(&mut start, 100).unwrap();
    assert_eq!(start, [0; 5]);
    file.set_len(5 << 20).unwrap();
    file.set_len(11 << 20).unwrap();
    let mut there = [1; 3];
    file.read_exact_at(&mut there, 10 << 20).unwrap();
    assert_eq!(there, [0; 3]);
    file.write_all_at(&[7; 300_000], 1000).unwrap();
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(&file, punch, 2000, 250_000).unwrap();
    let all = fs::read(stand.path("f")).unwrap();
    assert_eq!(all.len(), 11 << 20);
    assert!(all[1000..2000].iter().all(|b| *b == 7) && all[2000..252_000].iter().all(|b| *b == 0));
    assert!(all[252_000..301_000].iter().all(|b| *b == 7) && all[301_000..].iter().all(|b| *b == 0));
    rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, 12 << 20).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 12 << 20);
    for i in 0..200 {
        let mut file = File::options().append(true).create(true).open(stand.path("log")).unwrap();
        writeln!(file, "line {i}").unwrap();
    }
    file.sync_all().unwrap();
    assert_eq!(fs::read_to_string(stand.path("log")).unwrap().lines().count(), 200);
    let meta = file.metadata().unwrap();
    assert!(meta.blocks() < 1024, "holes take nothing: {}", meta.blocks());
    drop(file);
    let stand = stand.again();
    assert!(fs::read(stand.path("f")).unwrap()[..all.len()] == all);
    assert_eq!(fs::read_to_string(stand.path("log")).unwrap().lines().last(), Some("line 199"));
    stand.end();
}

/// Goal: renames replace, refuse and exchange as on Linux, also across directories. A directory
/// never moves below itself.
#[test]
fn renames() {
    if !can_mount() {
        return;
    }
    let stand = Stand::new(Policy::default());
    let p = |name: &str| stand.path(name);
    for dir in ["a", "a/b", "a/b/c", "x"] {
        fs::create_dir(p(dir)).unwrap();
    }
    fs::write(p("a/f"), b"f").unwrap();
    fs::write(p("x/g"), b"g").unwrap();
    fs::rename(p("a/f"), p("x/f")).unwrap();
    assert_eq!((list(&p("a")), list(&p("x"))), (vec!["b".into()], vec!["f".into(), "g".into()]));
    assert_eq!(errno(fs::rename(p("a"), p("a/b/c/a"))), Errno::INVAL);
    assert_eq!(errno(fs::rename(p("a"), p("x"))), Errno::NOTEMPTY);
    assert_eq!(errno(fs::rename(p("a"), p("x/f"))), Errno::NOTDIR);
    assert_eq!(errno(fs::rename(p("x/f"), p("a"))), Errno::ISDIR);
    let how = |from: &str, to: &str, flags| rustix::fs::renameat_with(CWD, p(from), CWD, p(to), flags);
    assert_eq!(how("x/f", "x/g", RenameFlags::NOREPLACE), Err(Errno::EXIST));
    how("x/f", "x/h", RenameFlags::NOREPLACE).unwrap();
    how("x/h", "a/b", RenameFlags::EXCHANGE).unwrap();
    assert_eq!(fs::read(p("a/b")).unwrap(), b"f");
    assert_eq!(list(&p("x/h")), ["c"]);
    assert_eq!((fs::metadata(p("a")).unwrap().nlink(), fs::metadata(p("x")).unwrap().nlink()), (2, 3));
    fs::create_dir(p("empty")).unwrap();
    fs::rename(p("x/h"), p("empty")).unwrap();
    assert_eq!((fs::metadata(p("x")).unwrap().nlink(), list(&p("empty"))), (2, vec!["c".to_owned()]));
    fs::rename(p("x/g"), p("a/b")).unwrap();
    assert_eq!(fs::read(p("a/b")).unwrap(), b"g");
    assert_eq!(fs::metadata(p("")).unwrap().nlink(), 5);
    stand.end();
}

/// Goal: modes, owners, times, extended attributes and ACLs stay as set.
#[test]
fn attributes() {
    if !can_mount() {
        return;
    }
    for xattr_sa in [true, false] {
        let stand = Stand::new(Policy { posix_acl: true, xattr_sa, ..Policy::default() });
        fs::write(stand.path("f"), b"x").unwrap();
        for mode in [0o600, 0o4755, 0o077, 0o705, 0o1777, 0] {
            fs::set_permissions(stand.path("f"), fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(fs::metadata(stand.path("f")).unwrap().mode(), 0o100_000 | mode);
        }
        let times = fs::FileTimes::new()
            .set_modified(std::time::UNIX_EPOCH + std::time::Duration::new(1_234_567, 89))
            .set_accessed(std::time::UNIX_EPOCH - std::time::Duration::new(5, 0));
        File::options().write(true).open(stand.path("f")).unwrap().set_times(times).unwrap();
        let root = rustix::process::geteuid().is_root();
        if root {
            std::os::unix::fs::chown(stand.path("f"), Some(7), Some(8)).unwrap();
        }
        let set = |name: &str, value: &[u8], flags| rustix::fs::setxattr(stand.path("f"), name, value, flags);
        set("user.a", b"one", XattrFlags::empty()).unwrap();
        assert_eq!(set("user.a", b"", XattrFlags::CREATE), Err(Errno::EXIST));
        assert_eq!(set("user.b", b"", XattrFlags::REPLACE), Err(Errno::NODATA));
        set("user.big", &[5; 60_000], XattrFlags::empty()).unwrap();
        set("user.a", b"two", XattrFlags::REPLACE).unwrap();
        set("user.gone", b"!", XattrFlags::empty()).unwrap();
        rustix::fs::removexattr(stand.path("f"), "user.gone").unwrap();
        assert_eq!(rustix::fs::removexattr(stand.path("f"), "user.gone"), Err(Errno::NODATA));
        // user::rw- user:12:rwx group::r-- mask::r-x other::---
        let entries: [(u16, u16, u32); 5] =
            [(1, 6, u32::MAX), (2, 7, 12), (4, 4, u32::MAX), (0x10, 5, u32::MAX), (0x20, 0, u32::MAX)];
        let mut acl = 2_u32.to_le_bytes().to_vec();
        for (tag, perm, id) in entries {
            acl.extend(tag.to_le_bytes().iter().chain(&perm.to_le_bytes()).chain(&id.to_le_bytes()));
        }
        fs::create_dir(stand.path("d")).unwrap();
        rustix::fs::setxattr(stand.path("d"), "system.posix_acl_default", &acl, XattrFlags::empty()).unwrap();
        File::options().write(true).create(true).truncate(false).mode(0o666).open(stand.path("d/g")).unwrap();
        assert_eq!(fs::metadata(stand.path("d/g")).unwrap().mode(), 0o100_640);
        fs::set_permissions(stand.path("d/g"), fs::Permissions::from_mode(0o670)).unwrap();
        let stand = stand.again();
        let meta = fs::metadata(stand.path("f")).unwrap();
        assert_eq!((meta.mtime(), meta.mtime_nsec(), meta.atime()), (1_234_567, 89, -5));
        assert!(!root || (meta.uid(), meta.gid()) == (7, 8));
        let get = |path: &str, name: &str| {
            let mut value = vec![0; 70_000];
            let len = rustix::fs::getxattr(stand.path(path), name, &mut value[..]).unwrap();
            value.truncate(len);
            value
        };
        assert_eq!((get("f", "user.a"), get("f", "user.big")), (b"two".to_vec(), vec![5; 60_000]));
        assert_eq!(get("d/g", "system.posix_acl_access")[4 + 3 * 8 + 2], 7, "the mask follows the mode");
        fs::remove_dir_all(stand.path("d")).unwrap();
        fs::remove_file(stand.path("f")).unwrap();
        stand.end();
    }
}

/// Goal: many threads create, write, rename and remove files at once, and none is lost.
#[test]
fn many_at_once() {
    if !can_mount() {
        return;
    }
    let stand = Stand::new(Policy::default());
    std::thread::scope(|scope| {
        for t in 0..6 {
            let stand = &stand;
            scope.spawn(move || {
                let dir = stand.path(&format!("t{}", t / 2));
                match fs::create_dir(&dir) {
                    Ok(()) => {}
                    Err(e) => assert_eq!(e.kind(), ErrorKind::AlreadyExists),
                }
                for i in 0..150 {
                    let path = dir.join(format!("{t}-{i}"));
                    fs::write(&path, format!("{t} {i}").repeat(i * 20)).unwrap();
                    match i % 3 {
                        0 => fs::remove_file(&path).unwrap(),
                        1 => fs::rename(&path, stand.path(&format!("moved-{t}-{i}"))).unwrap(),
                        _ => {}
                    }
                }
            });
        }
    });
    let stand = stand.again();
    assert_eq!(list(&stand.path("")).len(), 3 + 6 * 50);
    for t in 0..6 {
        for i in (1..150).filter(|i| i % 3 != 0) {
            let path = match i % 3 {
                1 => stand.path(&format!("moved-{t}-{i}")),
                _ => stand.path(&format!("t{}/{t}-{i}", t / 2)),
            };
            assert_eq!(fs::read_to_string(path).unwrap(), format!("{t} {i}").repeat(i * 20));
        }
    }
    stand.end();
}

/// Goal: open(2) obeys `O_TRUNC`, `O_EXCL` and `O_APPEND`.
#[test]
fn opens() {
    if !can_mount() {
        return;
    }
    let stand = Stand::new(Policy::default());
    fs::write(stand.path("f"), b"long contents").unwrap();
    fs::write(stand.path("f"), b"short").unwrap();
    assert_eq!(fs::read(stand.path("f")).unwrap(), b"short");
    let exclusive = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY;
    assert_eq!(rustix::fs::open(stand.path("f"), exclusive, Mode::RUSR).unwrap_err(), Errno::EXIST);
    fs::copy(stand.path("f"), stand.path("copy")).unwrap();
    assert_eq!(fs::read(stand.path("copy")).unwrap(), b"short");
    assert_eq!(errno(File::create(stand.path("f/g"))), Errno::NOTDIR);
    assert_eq!(errno(File::create(stand.path(&"n".repeat(256)))), Errno::NAMETOOLONG);
    File::create(stand.path(&"n".repeat(255))).unwrap();
    stand.end();
}
