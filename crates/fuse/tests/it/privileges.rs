//! What changes of a program by other users do to its privileges, through the real kernel.

use crate::stand::{Stand, can_mount};
use rustix::fs::{FallocateFlags, Uid, XattrFlags};
use rustix::io::Errno;
use std::fs::{self, File, Permissions};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::thread;
use zpl::Policy;

/// A user other than root.
const STRANGER: u32 = 1000;
/// A group of which neither root nor the stranger is a member.
const GROUP: u32 = 61_013;

/// Runs `work` in a thread of the stranger.
fn as_stranger<R: Send>(work: impl FnOnce() -> R + Send) -> R {
    let work = || {
        let uid = Uid::from_raw(STRANGER);
        rustix::thread::set_thread_res_uid(uid, uid, uid).unwrap();
        work()
    };
    thread::scope(|scope| scope.spawn(work).join().unwrap())
}

/// A program that the tests below run. It prints its effective user.
#[test]
#[ignore = "a program for other tests"]
fn effective_user() {
    println!("euid={}", rustix::process::geteuid().as_raw());
}

/// The effective user of a copy of this program that the stranger runs.
fn runs_as(program: &Path) -> u32 {
    let words = ["--ignored", "--exact", "privileges::effective_user", "--nocapture"];
    let ran = Command::new(program).args(words).uid(STRANGER).gid(STRANGER).output().unwrap();
    let said = String::from_utf8_lossy(&ran.stdout).into_owned();
    let user = said.lines().find_map(|line| line.split("euid=").nth(1));
    user.unwrap_or_else(|| panic!("{said}")).split_whitespace().next().unwrap().parse().unwrap()
}

/// A change of a file. The number is the size of the file.
type Act = fn(&File, &File, u64);

const ACTS: [(&str, Act); 5] = [
    ("write", |file, _, end| file.write_all_at(b"x", end).unwrap()),
    ("truncate", |file, _, end| file.set_len(end + 1).unwrap()),
    ("fallocate", |file, _, end| {
        rustix::fs::fallocate(file, FallocateFlags::empty(), 0, end + 1).unwrap();
    }),
    ("punch", |file, _, end| {
        let how = FallocateFlags::KEEP_SIZE | FallocateFlags::PUNCH_HOLE;
        rustix::fs::fallocate(file, how, end, 4096).unwrap();
    }),
    ("copy", |file, other, end| {
        let (mut from, mut to) = (0, end);
        let copied = rustix::fs::copy_file_range(other, Some(&mut from), file, Some(&mut to), 4);
        assert_eq!(copied.unwrap(), 4);
    }),
];

/// Goal: a program that an ordinary user changes no longer runs as its owner.
///
/// This holds for each system call, for a file that was opened before, and for a mode that the
/// kernel may cache for good.
#[test]
fn set_id_goes_with_a_change() {
    if !can_mount() || !rustix::process::geteuid().is_root() {
        return;
    }
    let stand = Stand::new(Policy::default());
    fs::write(stand.path("other"), b"more").unwrap();
    for (name, act) in ACTS {
        let program = stand.path(name);
        fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
        fs::set_permissions(&program, Permissions::from_mode(0o777)).unwrap();
        // Opened before the bits are set.
        let open = as_stranger(|| File::options().write(true).open(&program).unwrap());
        fs::set_permissions(&program, Permissions::from_mode(0o6777)).unwrap();
        stand.rig.as_ref().unwrap().sync();
        let end = program.metadata().unwrap().len();
        let other = File::open(stand.path("other")).unwrap();
        as_stranger(|| act(&open, &other, end));
        drop(open);
        // No program reads its attributes before it runs.
        assert_eq!(runs_as(&program), STRANGER, "{name}");
        assert_eq!(program.metadata().unwrap().mode() & 0o7777, 0o777, "{name}");
        fs::set_permissions(&program, Permissions::from_mode(0o6777)).unwrap();
        let user = runs_as(&program);
        if user != 0 {
            println!("set-user-id has no effect here: {user}");
        }
        // Changes by root leave the bits.
        let open = File::options().write(true).open(&program).unwrap();
        act(&open, &other, end + 1);
        assert_eq!(open.metadata().unwrap().mode() & 0o7777, 0o6777, "{name}");
        drop(open);
        fs::remove_file(&program).unwrap();
    }
    stand.end();
}

/// Goal: each change of a program's contents removes its capabilities, by root and by other users.
#[test]
fn capabilities_go_with_a_change() {
    if !can_mount() || !rustix::process::geteuid().is_root() {
        return;
    }
    let stand = Stand::new(Policy::default());
    // VFS_CAP_REVISION_2 with CAP_NET_RAW permitted.
    let mut cap = 0x0200_0000_u32.to_le_bytes().to_vec();
    cap.extend([0, 0x20, 0, 0].iter().chain(&[0; 12]));
    fs::write(stand.path("other"), b"more").unwrap();
    for stranger in [false, true] {
        for (name, act) in ACTS {
            let file = stand.path("f");
            fs::write(&file, b"contents").unwrap();
            fs::set_permissions(&file, Permissions::from_mode(0o777)).unwrap();
            let open = File::options().write(true).open(&file).unwrap();
            // From now on the kernel has cached that the file has none.
            open.write_all_at(b"contents", 0).unwrap();
            rustix::fs::setxattr(&file, "security.capability", &cap, XattrFlags::empty()).unwrap();
            let other = File::open(stand.path("other")).unwrap();
            let work = || act(&open, &other, 8);
            if stranger {
                as_stranger(work)
            } else {
                work()
            }
            let got = rustix::fs::getxattr(&file, "security.capability", &mut [0u8; 64]);
            assert_eq!(got, Err(Errno::NODATA), "{name} {stranger}");
        }
    }
    stand.end();
}

/// Goal: an owner outside the group of a file clears the set-group-ID bit by a new ACL, as by a new
/// mode.
#[test]
fn set_group_id_goes_with_an_acl() {
    if !can_mount() || !rustix::process::geteuid().is_root() {
        return;
    }
    let stand = Stand::new(Policy { posix_acl: true, ..Policy::default() });
    // POSIX_ACL_XATTR_VERSION, then tag, permissions and ID of each entry: the owner, another user,
    // the group, the mask, others.
    let entries: [(u16, u16, u32); 5] =
        [(1, 7, u32::MAX), (2, 5, 7), (4, 7, u32::MAX), (0x10, 7, u32::MAX), (0x20, 5, u32::MAX)];
    let mut acl = 2_u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        acl.extend(tag.to_le_bytes().into_iter().chain(permissions.to_le_bytes()).chain(id.to_le_bytes()));
    }
    let set = |path: &Path| {
        rustix::fs::setxattr(path, "system.posix_acl_access", &acl, XattrFlags::empty()).unwrap();
    };
    for (name, directory) in [("f", false), ("d", true)] {
        let path = stand.path(name);
        if directory {
            fs::create_dir(&path).unwrap();
        } else {
            fs::write(&path, b"").unwrap();
        }
        chown(&path, Some(STRANGER), Some(GROUP)).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o2775)).unwrap();
        set(&path);
        assert_eq!(path.metadata().unwrap().mode() & 0o7777, 0o2775, "root keeps it: {name}");
        as_stranger(|| set(&path));
        assert_eq!(path.metadata().unwrap().mode() & 0o7777, 0o775, "{name}");
        let mut got = [0; 64];
        let len = rustix::fs::getxattr(&path, "system.posix_acl_access", &mut got).unwrap();
        assert_eq!(got[..len], acl[..]);
    }
    stand.end();
}
