//! Less common system calls of Linux, through the real kernel.

use crate::stand;

use crate::stand::{Stand, can_mount, list};
use rustix::fs::{CWD, FallocateFlags, Mode, OFlags, RenameFlags, XattrFlags};
use rustix::io::Errno;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, PermissionsExt};
use zpl::{Atime, NewFileSystem, Policy};

/// Goal: a file created without a name is freed when it is closed. If it got a name, it survives an
/// export.
#[test]
fn unnamed() {
    if !can_mount() {
        return;
    }
    let stand = Stand::new(Policy::default());
    let make = || {
        let fd = rustix::fs::open(stand.path(""), OFlags::TMPFILE | OFlags::RDWR, Mode::from(0o640)).unwrap();
        File::from(fd)
    };
    let (kept, lost) = (make(), make());
    assert_eq!((kept.metadata().unwrap().nlink(), lost.metadata().unwrap().mode()), (0, 0o100_640));
    kept.write_all_at(&[7; 200_000], 5).unwrap();
    lost.write_all_at(b"lost", 0).unwrap();
    assert_eq!(list(&stand.path("")), [""; 0]);
    rustix::fs::linkat(&kept, "", CWD, stand.path("kept"), rustix::fs::AtFlags::EMPTY_PATH).unwrap();
    assert_eq!(kept.metadata().unwrap().nlink(), 1);
    drop((kept, lost));
    let stand = stand.again();
    assert_eq!(list(&stand.path("")), ["kept"]);
    assert!(fs::read(stand.path("kept")).unwrap()[5..] == [7; 200_000]);
    stand.end();
}

/// Goal: `copy_file_range` shares whole blocks and copies the rest, and the copy is a file of its
/// own.
#[test]
fn copies_by_cloning() {
    if !can_mount() {
        return;
    }
    let stand = Stand::new(Policy::default());
    let mut x = 1_u64;
    let next = || {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        x as u8
    };
    let data: Vec<u8> = std::iter::repeat_with(next).take(5_000_001).collect();
    fs::write(stand.path("f"), &data).unwrap();
    fs::write(stand.path("small"), &data[..700]).unwrap();
    stand.rig.as_ref().unwrap().sync();
    let copy = |from: &str, to: &str| {
        let (from, to) = (File::open(stand.path(from)).unwrap(), File::create(stand.path(to)).unwrap());
        let mut copied = 0;
        loop {
            match rustix::fs::copy_file_range(&from, None, &to, None, 1 << 30).unwrap() {
                0 => return copied,
                n => copied += n,
            }
        }
    };
    assert_eq!((copy("f", "g"), copy("small", "tiny")), (data.len(), 700));
    let rig = stand.rig.as_ref().unwrap();
    rig.sync();
    let space = rig.pool.live().dsl().space();
    assert!(space.dspace - space.rdspace >= 38 << 17, "its blocks are the other's: {space:?}");
    // A range that begins within a block is copied.
    let (f, h) = (File::open(stand.path("f")).unwrap(), File::create(stand.path("h")).unwrap());
    let (mut from, mut to) = (1000, 3);
    while from < 400_000 {
        let left = 400_000 - from as usize;
        assert!(rustix::fs::copy_file_range(&f, Some(&mut from), &h, Some(&mut to), left).unwrap() > 0);
    }
    File::options().write(true).open(stand.path("g")).unwrap().write_all_at(b"other", 131_000).unwrap();
    drop((f, h));
    let stand = stand.again();
    assert!(fs::read(stand.path("f")).unwrap() == data);
    let mut changed = data.clone();
    changed[131_000..131_005].copy_from_slice(b"other");
    assert!(fs::read(stand.path("g")).unwrap() == changed);
    assert!(fs::read(stand.path("h")).unwrap()[3..] == data[1000..400_000]);
    assert!(fs::read(stand.path("tiny")).unwrap() == data[..700]);
    fs::remove_file(stand.path("f")).unwrap();
    let stand = stand.again();
    assert!(fs::read(stand.path("g")).unwrap() == changed);
    stand.end();
}

/// Goal: a rename leaves a whiteout, a device 0:0, if requested.
#[test]
fn whiteouts() {
    if !can_mount() || !rustix::process::geteuid().is_root() {
        return;
    }
    let stand = Stand::new(Policy::default());
    let p = |name: &str| stand.path(name);
    for dir in ["a", "b", "a/d"] {
        fs::create_dir(p(dir)).unwrap();
    }
    fs::write(p("a/f"), b"f").unwrap();
    fs::write(p("b/g"), b"g").unwrap();
    let how = |from: &str, to: &str, flags| rustix::fs::renameat_with(CWD, p(from), CWD, p(to), flags);
    how("a/f", "b/g", RenameFlags::WHITEOUT).unwrap();
    how("a/d", "b/d", RenameFlags::WHITEOUT | RenameFlags::NOREPLACE).unwrap();
    assert_eq!(fs::read(p("b/g")).unwrap(), b"f");
    for name in ["a/f", "a/d"] {
        let meta = fs::metadata(p(name)).unwrap();
        assert!(meta.file_type().is_char_device() && meta.rdev() == 0);
    }
    assert_eq!((fs::metadata(p("a")).unwrap().nlink(), fs::metadata(p("b")).unwrap().nlink()), (2, 3));
    assert_eq!(how("b/g", "b/d", RenameFlags::WHITEOUT | RenameFlags::NOREPLACE), Err(Errno::EXIST));
    stand.end();
}

/// Goal: a read of a file updates its access time once after a change, and never with `atime=off`.
#[test]
fn times_of_access() {
    if !can_mount() {
        return;
    }
    for (atime, changes) in [(Atime::Relative, true), (Atime::Never, false)] {
        let stand = Stand::new(Policy { atime, ..Policy::default() });
        fs::write(stand.path("f"), b"contents").unwrap();
        fs::create_dir(stand.path("d")).unwrap();
        std::os::unix::fs::symlink("f", stand.path("l")).unwrap();
        // A new mount, since the cache of the kernel that wrote the file would answer.
        let stand = stand.again();
        let at = |name: &str| fs::symlink_metadata(stand.path(name)).unwrap().atime();
        let before = [at("f"), at("d"), at("l")];
        assert_eq!(fs::read(stand.path("l")).unwrap(), b"contents");
        list(&stand.path("d"));
        let after = [at("f"), at("d"), at("l")];
        for (before, after) in before.into_iter().zip(after) {
            assert_eq!(after > before, changes, "{before} {after}");
        }
        let stand = stand.again();
        let at = |name: &str| fs::symlink_metadata(stand.path(name)).unwrap().atime();
        assert_eq!([at("f"), at("d")], [after[0], after[1]]);
        fs::read(stand.path("f")).unwrap();
        assert_eq!(at("f"), after[0], "it says no more than before");
        stand.end();
    }
}

/// Goal: a write to a file removes its capabilities, and its set-user-ID bit unless the writer may
/// keep it.
#[test]
fn privileges_go_with_writing() {
    if !can_mount() || !rustix::process::geteuid().is_root() {
        return;
    }
    let stand = Stand::new(Policy::default());
    // VFS_CAP_REVISION_2 with CAP_NET_RAW permitted.
    let mut cap = 0x0200_0000_u32.to_le_bytes().to_vec();
    cap.extend([0, 0x20, 0, 0].iter().chain(&[0; 12]));
    let name = "security.capability";
    type Act = fn(&File);
    let acts: [Act; 3] = [
        |file| file.write_all_at(b"x", 0).unwrap(),
        |file| file.set_len(1).unwrap(),
        |file| rustix::fs::fchown(file, Some(rustix::fs::Uid::from_raw(5)), None).unwrap(),
    ];
    for act in acts {
        fs::write(stand.path("f"), b"contents").unwrap();
        rustix::fs::setxattr(stand.path("f"), name, &cap, XattrFlags::empty()).unwrap();
        let file = File::options().write(true).open(stand.path("f")).unwrap();
        act(&file);
        let got = rustix::fs::getxattr(stand.path("f"), name, &mut [0u8; 64]);
        assert_eq!(got, Err(Errno::NODATA));
        fs::remove_file(stand.path("f")).unwrap();
    }
    stand.end();
}

/// Goal: holes and data are distinguished, both before and after they are on disk. Zeroing a range,
/// with and without a change of size, does what the calls promise.
#[test]
fn holes_and_ranges() {
    if !can_mount() {
        return;
    }
    let stand = Stand::new(Policy::default());
    let file = File::create_new(stand.path("f")).unwrap();
    file.write_all_at(&[1; 1000], 10 << 20).unwrap();
    file.write_all_at(&[1; 1000], 30 << 20).unwrap();
    for synced in [false, true] {
        if synced {
            stand.rig.as_ref().unwrap().sync();
        }
        let seek = |from| rustix::fs::seek(&file, from).unwrap();
        assert_eq!(seek(rustix::fs::SeekFrom::Data(0)), 10 << 20);
        let hole = seek(rustix::fs::SeekFrom::Hole(10 << 20));
        assert!(hole > 10 << 20 && hole <= (10 << 20) + (128 << 10), "{hole}");
        assert_eq!(seek(rustix::fs::SeekFrom::Data(hole)), 30 << 20);
        assert_eq!(seek(rustix::fs::SeekFrom::Hole(30 << 20)), (30 << 20) + 1000);
        assert_eq!(rustix::fs::seek(&file, rustix::fs::SeekFrom::Data(31 << 20)), Err(Errno::NXIO));
    }
    let size = || file.metadata().unwrap().len();
    rustix::fs::fallocate(&file, FallocateFlags::KEEP_SIZE, 0, 64 << 20).unwrap();
    assert_eq!(size(), (30 << 20) + 1000);
    rustix::fs::fallocate(&file, FallocateFlags::ZERO_RANGE, 30 << 20, 2 << 20).unwrap();
    assert_eq!(size(), 32 << 20);
    assert!(fs::read(stand.path("f")).unwrap()[(10 << 20) + 1000..].iter().all(|b| *b == 0));
    let e = rustix::fs::fallocate(&file, FallocateFlags::COLLAPSE_RANGE, 0, 1 << 20).unwrap_err();
    assert_eq!(e, Errno::OPNOTSUPP);
    drop(file);
    stand.end();
}

/// Goal: different names that mean one entry find it, can't be created twice, and can replace each
/// other. Names that are not UTF-8 are refused.
#[test]
fn folded_names() {
    if !can_mount() {
        return;
    }
    let policy = Policy::default();
    let root = NewFileSystem {
        case: zpl::CaseSensitivity::Insensitive,
        normalization: 0x10,
        utf8only: true,
        ..NewFileSystem::new((1_000_000, 0))
    };
    let stand = Stand::over(stand::rig::Rig::with(&root, policy), policy);
    let p = |name: &str| stand.path(name);
    fs::write(p("Stra\u{df}e"), b"1").unwrap();
    assert_eq!(fs::read(p("STRA\u{df}E")).unwrap(), b"1");
    assert_eq!(File::create_new(p("stra\u{df}e")).unwrap_err().kind(), std::io::ErrorKind::AlreadyExists);
    fs::write(p("caf\u{e9}"), b"2").unwrap();
    assert_eq!(fs::read(p("cafe\u{301}")).unwrap(), b"2");
    // Both names mean one file, so Linux does nothing.
    fs::rename(p("caf\u{e9}"), p("CAFE\u{301}")).unwrap();
    assert_eq!(list(&p("")), ["Stra\u{df}e", "caf\u{e9}"]);
    fs::remove_file(p("cafe\u{301}")).unwrap();
    assert!(!p("caf\u{e9}").exists());
    use std::os::unix::ffi::OsStrExt;
    let bad = p("").join(std::ffi::OsStr::from_bytes(b"\xff"));
    assert_eq!(stand::errno(File::create(bad)), Errno::ILSEQ);
    stand.end();
}

/// The value of an extended attribute.
fn attribute(path: &std::path::Path, name: &str) -> Result<Vec<u8>, Errno> {
    let mut value = vec![0; 4096];
    let len = rustix::fs::getxattr(path, name, &mut value[..])?;
    value.truncate(len);
    Ok(value)
}

/// The names of a file's extended attributes.
fn attributes(path: &std::path::Path) -> Vec<String> {
    let mut all = vec![0; 4096];
    let len = rustix::fs::listxattr(path, &mut all[..]).unwrap();
    let names = all[..len].split(|b| *b == 0).filter(|name| !name.is_empty());
    let mut names: Vec<_> = names.map(|name| String::from_utf8(name.to_vec()).unwrap()).collect();
    names.sort();
    names
}

/// Goal: attributes may have names that no file can have, wherever they are stored. Only an empty
/// name is refused.
#[test]
fn odd_names_of_attributes() {
    if !can_mount() {
        return;
    }
    const ODD: [&str; 6] = ["user.", "user..", "user...", "user./", "user.a/b", "user.ok"];
    for xattr_sa in [true, false] {
        let stand = Stand::new(Policy { xattr_sa, ..Policy::default() });
        let f = stand.path("f");
        fs::write(&f, b"f").unwrap();
        for name in ODD {
            let set = rustix::fs::setxattr(&f, name, name.as_bytes(), XattrFlags::empty());
            assert_eq!(set, if name == "user." { Err(Errno::INVAL) } else { Ok(()) }, "{name}");
        }
        assert_eq!(attribute(&f, "user."), Err(Errno::INVAL));
        assert_eq!(rustix::fs::removexattr(&f, "user."), Err(Errno::INVAL));
        assert_eq!(attributes(&f), &ODD[1..]);
        let stand = stand.again();
        let f = stand.path("f");
        assert_eq!(attributes(&f), &ODD[1..]);
        for name in &ODD[1..] {
            assert_eq!(attribute(&f, name).unwrap(), name.as_bytes());
            rustix::fs::setxattr(&f, *name, b"new", XattrFlags::REPLACE).unwrap();
            assert_eq!(attribute(&f, name).unwrap(), b"new");
            rustix::fs::removexattr(&f, *name).unwrap();
            assert_eq!(attribute(&f, name), Err(Errno::NODATA));
            assert_eq!(rustix::fs::removexattr(&f, *name), Err(Errno::NODATA));
        }
        assert_eq!(attributes(&f), [""; 0]);
        // Attributes that exist when the file is removed are removed with it.
        rustix::fs::setxattr(&f, "user.a/b", b"", XattrFlags::empty()).unwrap();
        fs::remove_file(&f).unwrap();
        stand.end();
    }
}

/// Goal: `fallocate` by an ordinary user clears the set-ID bits of a file, as a write does. By root
/// it doesn't.
#[test]
fn allocating_takes_privileges() {
    if !can_mount() || !rustix::process::geteuid().is_root() {
        return;
    }
    let stand = Stand::new(Policy::default());
    let f = stand.path("f");
    fs::write(&f, [1; 10_000]).unwrap();
    std::os::unix::fs::chown(&f, Some(1000), Some(1000)).unwrap();
    let file = File::options().write(true).open(&f).unwrap();
    let mode = || fs::metadata(&f).unwrap().mode() & 0o7777;
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    for how in [FallocateFlags::empty(), FallocateFlags::KEEP_SIZE, FallocateFlags::ZERO_RANGE, punch] {
        fs::set_permissions(&f, fs::Permissions::from_mode(0o6755)).unwrap();
        rustix::fs::fallocate(&file, how, 0, 4096).unwrap();
        assert_eq!(mode(), 0o6755);
        // The kernel sends the file-system user ID of the thread.
        std::thread::scope(|scope| {
            let other = scope.spawn(|| {
                rustix::thread::set_thread_uid(rustix::fs::Uid::from_raw(1000)).unwrap();
                rustix::fs::fallocate(&file, how, 0, 4096)
            });
            other.join().unwrap().unwrap();
        });
        assert_eq!(mode(), 0o755, "{how:?}");
    }
    drop(file);
    let stand = stand.again();
    assert_eq!(fs::metadata(stand.path("f")).unwrap().mode() & 0o7777, 0o755);
    stand.end();
}

/// Goal: `statfs` in a project that is inherited shows the project's quota as the size, and the
/// space that the project uses.
#[test]
fn projects_see_their_quota() {
    if !can_mount() {
        return;
    }
    let stand = Stand::new(Policy::default());
    fs::create_dir_all(stand.path("p/below")).unwrap();
    fs::create_dir(stand.path("other")).unwrap();
    let rig = stand.rig.as_ref().unwrap();
    let dir = rig.fs.resolve(b"/p").unwrap().object();
    rig.fs.set_flags(dir, 0x2000_0000, 7).unwrap();
    let sizes = |path: &str| {
        let s = rustix::fs::statvfs(stand.path(path)).unwrap();
        (s.f_blocks, s.f_bfree, s.f_bavail, s.f_files, s.f_ffree)
    };
    let whole = sizes("other");
    assert_eq!(sizes("p"), whole, "there is no quota yet");
    rig.fs.set_quota(zpl::SpaceKind::ProjectQuota, zpl::Fuid(7), 1 << 20).unwrap();
    rig.fs.set_quota(zpl::SpaceKind::ProjectObjQuota, zpl::Fuid(7), 10).unwrap();
    fs::create_dir(stand.path("p/d")).unwrap();
    fs::write(stand.path("p/d/f"), vec![9; 1 << 17]).unwrap();
    rig.sync();
    let used = rig.fs.space_of(zpl::SpaceKind::ProjectUsed, zpl::Fuid(7)).unwrap().unwrap();
    assert!(used > 0);
    let seen = (1 << 20, (1 << 20) - used, (1 << 20) - used, 10, 7);
    assert_eq!((sizes("p"), sizes("p/d")), (seen, seen));
    assert_eq!((sizes("other"), sizes("")), (whole, whole));
    rig.fs.set_quota(zpl::SpaceKind::ProjectQuota, zpl::Fuid(7), 1).unwrap();
    assert_eq!(sizes("p").1, 0);
    stand.end();
}

/// A Python program that changes a mapped file, and prints the errno of the flush.
const MAP: &str = "
import mmap, sys
with open(sys.argv[1], 'r+b') as f:
    m = mmap.mmap(f.fileno(), 0)
    m[0:5] = b'wrong'
    try:
        m.flush()
        print(0)
    except OSError as e:
        print(e.errno)
";

/// Goal: changes through a shared map of a file that can't change are refused at the flush. After
/// that no program reads them from the page cache.
#[test]
fn maps_of_what_cannot_change() {
    if !can_mount() {
        return;
    }
    let stand = Stand::new(Policy::default());
    let rig = stand.rig.as_ref().unwrap();
    for flag in [0x10, 0x20, 0] {
        let f = stand.path("f");
        fs::write(&f, b"right bytes").unwrap();
        let object = rig.fs.resolve(b"/f").unwrap().object();
        rig.fs.set_flags(object, flag, 0).unwrap();
        let Ok(said) = std::process::Command::new("python3").args(["-c", MAP]).arg(&f).output() else {
            println!("skipped: there is no python3 here");
            return;
        };
        let said = String::from_utf8(said.stdout).unwrap();
        if flag == 0 {
            assert_eq!((said.trim(), &fs::read(&f).unwrap()[..]), ("0", &b"wrong bytes"[..]));
            continue;
        }
        assert_eq!(said.trim(), "1", "EPERM");
        // The kernel drops the pages a moment after their write was refused.
        let mut rounds = 0;
        while fs::read(&f).unwrap() != b"right bytes" {
            rounds += 1;
            assert!(rounds < 100_000, "the page cache keeps what is in no file");
            std::thread::yield_now();
        }
        rig.fs.set_flags(object, 0, 0).unwrap();
        assert_eq!(fs::read(&f).unwrap(), b"right bytes");
    }
    stand.end();
}
