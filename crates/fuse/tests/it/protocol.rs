//! The protocol against the real kernel, with a tree in memory.

use crate::memory::{Memory, ROOT};
use fuse::ctldir::{Named, Snapshot, Snapshots, WithSnapshots};
use fuse::tree::{FileTree, Flags};
use fuse::{Detach, Mount, Options, Workers};
use rustix::fs::{AtFlags, CWD, SeekFrom, StatxFlags};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;

/// Whether this machine can mount. Prints a note if not.
fn can_mount() -> bool {
    let can = fs::OpenOptions::new().read(true).write(true).open("/dev/fuse").is_ok();
    if !can {
        println!("skipped: /dev/fuse can't be opened here");
    }
    can
}

struct Stand {
    mount: Mount,
    dir: tempfile::TempDir,
}

impl Stand {
    fn new(tree: impl FileTree + 'static) -> Self {
        Self::with(tree, &Options::default())
    }

    fn with(tree: impl FileTree + 'static, options: &Options) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let workers = Arc::new(Workers::start("fuse-test", 3).unwrap());
        let options = Options { source: "test/fs".into(), read_only: !tree.writable(), ..options.clone() };
        let mount = Mount::new(&workers, Arc::new(tree), dir.path(), &options).unwrap();
        Self { mount, dir }
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.dir.path().join(name)
    }
}

impl Drop for Stand {
    fn drop(&mut self) {
        self.mount.unmount(Detach::Lazy).unwrap();
    }
}

/// Goal: each type of node shows its attributes through the mount.
///
/// They are: type, mode, owner, size, device number, link count, times to the nanosecond (also
/// before 1970), creation time, inode number and link target.
#[test]
fn shows_attributes_as_the_tree_has_them() {
    if !can_mount() {
        return;
    }
    let mut tree = Memory::new();
    let file = tree.add(ROOT, b"file", 0o104_751, b"hello");
    tree.get_mut(file).nlink = 3;
    tree.add(ROOT, b"link", 0o120_777, b"over/there");
    let device = tree.add(ROOT, b"chr", 0o020_600, b"");
    tree.get_mut(device).rdev = (259, 70_000);
    let device = tree.add(ROOT, b"blk", 0o060_660, b"");
    tree.get_mut(device).rdev = (8, 1);
    tree.add(ROOT, b"fifo", 0o010_644, b"");
    tree.add(ROOT, b"sock", 0o140_755, b"");
    let stand = Stand::new(tree);

    let meta = fs::symlink_metadata(stand.path("file")).unwrap();
    assert_eq!((meta.ino(), meta.mode(), meta.nlink(), meta.size()), (file, 0o104_751, 3, 5));
    assert_eq!((meta.uid(), meta.gid(), meta.blksize(), meta.blocks()), (0, 12, 131_072, 1));
    assert_eq!((meta.mtime(), meta.mtime_nsec()), (1_700_000_000, 123_456_789));
    assert_eq!((meta.atime(), meta.atime_nsec()), (-5, 1));
    let born = rustix::fs::statx(CWD, stand.path("file"), AtFlags::empty(), StatxFlags::BTIME).unwrap();
    assert_eq!((born.stx_btime.tv_sec, born.stx_btime.tv_nsec), (1_600_000_000, 999_999_999));
    assert_eq!(fs::metadata(stand.path("")).unwrap().ino(), ROOT);
    assert_eq!(fs::read_link(stand.path("link")).unwrap(), Path::new("over/there"));
    let meta = fs::symlink_metadata(stand.path("chr")).unwrap();
    assert!(meta.file_type().is_char_device());
    assert_eq!((rustix::fs::major(meta.rdev()), rustix::fs::minor(meta.rdev())), (259, 70_000));
    assert!(fs::symlink_metadata(stand.path("blk")).unwrap().file_type().is_block_device());
    assert!(fs::symlink_metadata(stand.path("fifo")).unwrap().file_type().is_fifo());
    assert!(fs::symlink_metadata(stand.path("sock")).unwrap().file_type().is_socket());
    assert_eq!(fs::metadata(stand.path("none")).unwrap_err().kind(), std::io::ErrorKind::NotFound);
}

/// Goal: a large file reads the same by requests of any size, and with or without the page cache.
/// Writes are refused.
#[test]
fn reads_files_whole_and_in_pieces() {
    if !can_mount() {
        return;
    }
    let contents: Vec<u8> = (0..5_000_003_u32).flat_map(|at| [(at >> 3) as u8 ^ (at >> 11) as u8]).collect();
    let mut tree = Memory::new();
    tree.add(ROOT, b"big", 0o100_644, &contents);
    tree.add(ROOT, b"empty", 0o100_644, b"");
    let stand = Stand::new(tree);
    assert!(fs::read(stand.path("big")).unwrap() == contents);
    assert!(fs::read(stand.path("empty")).unwrap().is_empty());
    let file = fs::File::open(stand.path("big")).unwrap();
    for (offset, len) in [(0, 1), (4095, 2), (1 << 20, 3 << 20), (4_999_999, 100), (6_000_000, 5)] {
        let mut buf = vec![0; len];
        let got = file.read_at(&mut buf, offset as u64).unwrap();
        let want = contents.get(offset..).unwrap_or_default();
        assert_eq!(buf[..got], want[..len.min(want.len())], "{len} bytes from {offset}");
    }
    let refused = fs::write(stand.path("big"), b"x").unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(Errno::ROFS.raw_os_error()));
}

/// The entries of `Many`.
const COUNT: u64 = 100_000;

/// A directory of `COUNT` files, whose names are their numbers.
struct Many;

impl FileTree for Many {
    fn root(&self) -> fuse::tree::Node {
        fuse::tree::Node(ROOT)
    }

    fn lookup(&self, _: fuse::tree::Node, name: &[u8]) -> Result<fuse::tree::Attr, Errno> {
        let number: u64 = std::str::from_utf8(name).ok().and_then(|n| n.parse().ok()).ok_or(Errno::NOENT)?;
        self.attr(fuse::tree::Node(number + 1000))
    }

    fn attr(&self, node: fuse::tree::Node) -> Result<fuse::tree::Attr, Errno> {
        let mut attr = Memory::new().attr(self.root())?;
        if node != self.root() {
            attr = fuse::tree::Attr { node, ino: node.0, mode: 0o100_644, size: node.0, ..attr };
        }
        Ok(attr)
    }

    fn readdir(
        &self,
        _: fuse::tree::Node,
        cookie: u64,
        limit: usize,
    ) -> Result<Vec<fuse::tree::Entry>, Errno> {
        let end = (cookie + limit as u64).min(COUNT);
        Ok((cookie..end)
            .map(|at| fuse::tree::Entry {
                name: format!("{at}").into_bytes(),
                node: Some(fuse::tree::Node(at + 1000)),
                ino: at + 1000,
                kind: 8,
                cookie: at + 1,
            })
            .collect())
    }

    fn readlink(&self, _: fuse::tree::Node) -> Result<Vec<u8>, Errno> {
        Err(Errno::INVAL)
    }

    fn read(&self, _: fuse::tree::Node, _: u64, _: &mut [u8]) -> Result<usize, Errno> {
        Ok(0)
    }

    fn xattr(&self, _: fuse::tree::Node, _: &[u8]) -> Result<Vec<u8>, Errno> {
        Err(Errno::NODATA)
    }

    fn xattr_names(&self, _: fuse::tree::Node) -> Result<Vec<Vec<u8>>, Errno> {
        Ok(Vec::new())
    }

    fn statfs(&self, _: fuse::tree::Node) -> Result<fuse::tree::Statfs, Errno> {
        Memory::new().statfs(fuse::tree::Node(34))
    }

    fn seek(&self, _: fuse::tree::Node, _: u64, _: fuse::tree::Seek) -> Result<u64, Errno> {
        Err(Errno::NXIO)
    }

    fn flags(&self, _: fuse::tree::Node) -> Result<Flags, Errno> {
        Ok(Flags::default())
    }
}

/// Goal: a directory of 100,000 entries is listed completely and once, with and without attributes.
#[test]
fn lists_a_hundred_thousand_entries() {
    if !can_mount() {
        return;
    }
    let stand = Stand::new(Many);
    for _round in 0..2 {
        let mut seen = vec![false; COUNT as usize];
        for entry in fs::read_dir(stand.path("")).unwrap() {
            let entry = entry.unwrap();
            let number: usize = entry.file_name().to_str().unwrap().parse().unwrap();
            assert!(!std::mem::replace(&mut seen[number], true), "{number} comes twice");
            if number.is_multiple_of(1000) {
                assert_eq!(entry.metadata().unwrap().size(), number as u64 + 1000);
            }
        }
        assert!(seen.iter().all(|&seen| seen));
    }
    let listed = std::process::Command::new("ls").arg("-lU").arg(stand.path("")).output().unwrap();
    assert!(listed.status.success());
    assert_eq!(listed.stdout.iter().filter(|&&byte| byte == b'\n').count(), COUNT as usize + 1);
}

/// Goal: extended attributes and their list, file flags, project IDs, holes, and the sizes of the
/// file system come through.
#[test]
fn answers_the_rarer_questions() {
    if !can_mount() {
        return;
    }
    let mut tree = Memory::new();
    let file = tree.add(ROOT, b"file", 0o100_644, &[1; 300_000]);
    let inner = tree.get_mut(file);
    inner.xattrs = BTreeMap::from([
        (b"user.one".to_vec(), b"value\0with nul".to_vec()),
        (b"user.empty".to_vec(), Vec::new()),
        (b"trusted.big".to_vec(), vec![7; 60_000]),
    ]);
    inner.holes.push(100_000..200_000);
    inner.flags = Flags { bits: 0x10 | 0x40 | 0x2000_0000, project: 4711 };
    let stand = Stand::new(tree);
    let path = stand.path("file");
    let mut buf = vec![0; 65_536];
    let len = rustix::fs::getxattr(&path, "user.one", &mut buf[..]).unwrap();
    assert_eq!(&buf[..len], b"value\0with nul");
    assert_eq!(rustix::fs::getxattr(&path, "user.empty", &mut buf[..]).unwrap(), 0);
    // The kernel shows these to root only.
    if rustix::process::geteuid().is_root() {
        assert_eq!(rustix::fs::getxattr(&path, "trusted.big", &mut buf[..]).unwrap(), 60_000);
    }
    assert_eq!(rustix::fs::getxattr(&path, "user.none", &mut buf[..]), Err(Errno::NODATA));
    assert_eq!(rustix::fs::getxattr(&path, "user.one", &mut buf[..3]), Err(Errno::RANGE));
    let len = rustix::fs::listxattr(&path, &mut buf[..]).unwrap();
    assert_eq!(&buf[..len], b"trusted.big\0user.empty\0user.one\0");

    let file = fs::File::open(&path).unwrap();
    assert_eq!(rustix::fs::seek(&file, SeekFrom::Hole(5)).unwrap(), 100_000);
    assert_eq!(rustix::fs::seek(&file, SeekFrom::Data(100_000)).unwrap(), 200_000);
    assert_eq!(rustix::fs::seek(&file, SeekFrom::Hole(250_000)).unwrap(), 300_000);
    assert_eq!(rustix::fs::seek(&file, SeekFrom::Data(300_000)), Err(Errno::NXIO));
    let flags = rustix::fs::ioctl_getflags(&file).unwrap();
    assert_eq!(flags.bits(), 0x2000_0050);
    let shown = std::process::Command::new("lsattr").arg("-p").arg(&path).output();
    if let Ok(shown) = shown {
        let line = String::from_utf8(shown.stdout).unwrap();
        assert!(line.trim_start().starts_with("4711 "), "{line}");
    }

    let sizes = rustix::fs::statvfs(stand.path("")).unwrap();
    assert_eq!((sizes.f_frsize, sizes.f_blocks, sizes.f_bfree, sizes.f_namemax), (512, 2000, 500, 255));
}

/// Goal: names over 255 bytes, which `longname` allows, are listed, found and opened.
#[test]
fn passes_long_names() {
    if !can_mount() {
        return;
    }
    let long = "n".repeat(1023);
    let mut tree = Memory::new();
    tree.add(ROOT, long.as_bytes(), 0o100_644, b"long");
    tree.add(ROOT, b"\xff\xfe", 0o100_644, b"raw");
    let stand = Stand::new(tree);
    let listed = std::process::Command::new("ls").arg("-U").arg(stand.path("")).output().unwrap();
    let lines: Vec<_> = listed.stdout.split(|&byte| byte == b'\n').collect();
    assert!(lines.contains(&long.as_bytes()), "{:?}", listed.stderr);
    assert_eq!(fs::read(stand.path(&long)).unwrap(), b"long");
    assert_eq!(fs::read(stand.dir.path().join(std::ffi::OsStr::from_bytes(b"\xff\xfe"))).unwrap(), b"raw");
}

/// Goal: all of this holds for a user who may not mount, through `fusermount3`.
///
/// The other tests run again as such a user, in a mount namespace of their own, where every user
/// may open the device.
#[test]
fn works_for_users_too() {
    if !rustix::process::geteuid().is_root() || !can_mount() {
        println!("skipped: it takes root to become a user in a namespace");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let program = dir.path().join("protocol");
    testkit::copy_program(std::env::current_exe().unwrap(), &program);
    let script = r#"
        command -v fusermount3 setpriv >&2 || exit 77
        mount --make-rprivate / || exit 77
        # Copies of other tests' mounts would keep these busy.
        cut -d" " -f2,3 /proc/self/mounts | grep " fuse.poolhouse$" | cut -d" " -f1 | xargs -r -n1 umount -l 2>/dev/null
        mknod "$1/fuse" c 10 229 && chmod 666 "$1/fuse" || exit 77
        mount --bind "$1/fuse" /dev/fuse || exit 77
        cd "$1" && exec env TMPDIR="$1" setpriv --reuid=65534 --regid=65534 --clear-groups ./protocol protocol::
    "#;
    let out = std::process::Command::new("unshare")
        .args(["--mount", "sh", "-c", script, "sh"])
        .arg(dir.path())
        .output();
    match out {
        Ok(out) if out.status.code() == Some(77) => {
            println!("skipped: {}", String::from_utf8_lossy(&out.stderr))
        }
        Ok(out) => assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stdout)),
        Err(error) => println!("skipped: unshare: {error}"),
    }
}

struct Two {
    visible: bool,
}

fn with_file(contents: &[u8]) -> Memory {
    let mut tree = Memory::new();
    let dir = tree.add(ROOT, b"dir", 0o040_755, b"");
    tree.add(dir, b"file", 0o100_644, contents);
    tree
}

impl Snapshots for Two {
    fn page(&self, from: u64, limit: usize) -> Result<Vec<Named>, Errno> {
        let all = [(&b"one"[..], 101, 2), (b"two", 102, 3)];
        let rest = all.into_iter().filter(|(_, _, next)| *next > from).take(limit);
        Ok(rest.map(|(name, dataset, next)| Named { name: name.to_vec(), dataset, next }).collect())
    }
    fn count(&self) -> Result<u64, Errno> {
        Ok(2)
    }
    fn open(&self, name: &[u8]) -> Result<Snapshot, Errno> {
        let dataset = match name {
            b"one" => 101,
            b"two" => 102,
            _ => return Err(Errno::NOENT),
        };
        Ok(Snapshot { tree: Arc::new(with_file(name)), dataset, born: 1 })
    }
    fn visible(&self) -> bool {
        self.visible
    }
    fn disabled(&self) -> bool {
        false
    }
}

/// Goal: `.zfs/snapshot` contains the snapshots, listed or not, and their files are the snapshots'
/// own.
///
/// Neither `cp` nor a comparison of inode numbers takes them for the live file. The live file is
/// the same as itself.
#[test]
fn walks_into_snapshots() {
    if !can_mount() {
        return;
    }
    for visible in [false, true] {
        let stand = Stand::new(WithSnapshots::new(Arc::new(with_file(b"now")), Box::new(Two { visible })));
        let listed = |name: &str| -> Vec<String> {
            let entries = fs::read_dir(stand.path(name)).unwrap();
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
        };
        assert_eq!(listed(""), if visible { vec![".zfs", "dir"] } else { vec!["dir"] });
        assert_eq!(listed(".zfs"), ["snapshot"]);
        assert_eq!(listed(".zfs/snapshot"), ["one", "two"]);
        assert_eq!(listed(".zfs/snapshot/one/dir"), ["file"]);
        assert_eq!(fs::read(stand.path("dir/file")).unwrap(), b"now");
        assert_eq!(fs::read(stand.path(".zfs/snapshot/one/dir/file")).unwrap(), b"one");
        assert_eq!(fs::read(stand.path(".zfs/snapshot/two/dir/../dir/file")).unwrap(), b"two");
        assert!(fs::metadata(stand.path(".zfs/snapshot/three")).is_err());
        assert!(fs::metadata(stand.path("dir/.zfs")).is_err());
        let mut seen = std::collections::HashSet::new();
        for name in ["", ".zfs/snapshot/one/", ".zfs/snapshot/two/"] {
            for file in ["dir/file", "dir", ""] {
                let meta = fs::metadata(stand.path(&format!("{name}{file}"))).unwrap();
                assert!(seen.insert((meta.dev(), meta.ino())), "{name}{file} looks like another");
            }
        }
        let same = |a: &str, b: &str| {
            let out =
                std::process::Command::new("cp").arg(stand.path(a)).arg(stand.path(b)).output().unwrap();
            assert!(!out.status.success(), "the mount is read-only");
            String::from_utf8(out.stderr).unwrap().contains("same file")
        };
        assert!(!same(".zfs/snapshot/one/dir/file", "dir/file"));
        assert!(!same(".zfs/snapshot/one/dir/file", ".zfs/snapshot/two/dir/file"));
        assert!(same("dir/file", "dir/../dir/file"));
        let found = std::process::Command::new("find").arg(stand.path("")).arg("-ls").output().unwrap();
        assert!(found.status.success(), "{found:?}");
    }
}

/// Goal: a busy mount refuses the unmount and goes on. A forced unmount ends it in any case. An
/// unmount by another program is noticed.
#[test]
fn unmounts_in_every_way() {
    if !can_mount() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let workers = Arc::new(Workers::start("fuse-test", 2).unwrap());
    let options = Options { source: "test/busy".into(), read_only: true, ..Options::default() };
    let tree = || Arc::new(with_file(b"now"));
    let mount = Mount::new(&workers, tree(), dir.path(), &options).unwrap();
    let open = fs::File::open(dir.path().join("dir/file")).unwrap();
    let busy = mount.unmount(Detach::Normal).unwrap_err();
    assert!(busy.is_busy(), "{busy}");
    assert_eq!(fs::read(dir.path().join("dir/file")).unwrap(), b"now");
    drop(open);
    mount.unmount(Detach::Normal).unwrap();
    assert!(mount.is_over() && !dir.path().join("dir").exists());
    assert_eq!(workers.mounts(), 0);

    for how in [Detach::Force, Detach::Lazy] {
        let mount = Mount::new(&workers, tree(), dir.path(), &options).unwrap();
        let inside = fs::File::open(dir.path().join("dir")).unwrap();
        mount.unmount(how).unwrap();
        let late = rustix::fs::statat(&inside, "file", AtFlags::empty());
        assert!(matches!(late, Err(Errno::NOTCONN | Errno::CONNABORTED)), "{how:?}: {late:?}");
        assert!(!fuse::system::is_mounted(dir.path()).unwrap());
    }

    let mount = Mount::new(&workers, tree(), dir.path(), &options).unwrap();
    let out = std::process::Command::new("umount").arg(dir.path()).output().unwrap();
    assert!(out.status.success(), "{out:?}");
    // The workers may have noticed already, or not.
    mount.unmount(Detach::Normal).unwrap();
    assert!(mount.is_over());

    // A mount that another program put over it is not unmounted in its place. (A user may not mount
    // over root's file system.)
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let mount = Mount::new(&workers, tree(), dir.path(), &options).unwrap();
    let cover = Mount::new(&workers, tree(), dir.path(), &options).unwrap();
    assert!(mount.unmount(Detach::Normal).unwrap_err().is_busy());
    assert!(!cover.is_over());
    cover.unmount(Detach::Normal).unwrap();
    mount.unmount(Detach::Normal).unwrap();
    assert!(!fuse::system::is_mounted(dir.path()).unwrap());
}

/// Goal: threads that unmount one mount at once don't unmount another that lies under it.
#[test]
fn unmounts_nothing_twice() {
    if !can_mount() || !rustix::process::geteuid().is_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let workers = Arc::new(Workers::start("fuse-test", 2).unwrap());
    let options = Options { source: "test/twice".into(), read_only: true, ..Options::default() };
    let new = || Mount::new(&workers, Arc::new(with_file(b"now")), dir.path(), &options).unwrap();
    for round in 0..50 {
        let (lower, upper) = (new(), new());
        let barrier = std::sync::Barrier::new(4);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    barrier.wait();
                    upper.unmount(Detach::Normal).unwrap();
                });
            }
        });
        assert!(upper.is_over() && !lower.is_over(), "round {round}");
        assert_eq!(fs::read(dir.path().join("dir/file")).unwrap(), b"now", "round {round}");
        lower.unmount(Detach::Normal).unwrap();
    }
}

/// Goal: a mount with two mountpoints is served until the second is gone, and can be attached
/// again, even after the folders above were renamed.
#[test]
fn lingers_and_comes_again() {
    if !can_mount() || !rustix::process::geteuid().is_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let place = |name: &str| dir.path().join(name);
    for name in ["a", "a/fs", "b"] {
        fs::create_dir(place(name)).unwrap();
    }
    let workers = Arc::new(Workers::start("fuse-test", 2).unwrap());
    let options = Options { source: "test/twice".into(), read_only: true, ..Options::default() };
    let mount = Mount::new(&workers, Arc::new(with_file(b"now")), &place("a/fs"), &options).unwrap();
    rustix::mount::mount_bind(place("a/fs"), place("b")).unwrap();
    fs::rename(place("a"), place("c")).unwrap();
    assert!(mount.is_attached() && mount.is_at(&place("c/fs")) && !mount.is_at(&place("b")));
    mount.unmount(Detach::Normal).unwrap();
    assert!(mount.lingers() && !mount.is_over() && !mount.is_attached());
    assert!(mount.users().iter().any(|(pid, _)| std::path::Path::new(&format!("/proc/{pid}")).exists()));
    assert_eq!(fs::read(place("b/dir/file")).unwrap(), b"now");
    let again = mount.again(&place("c/fs"), &options).unwrap();
    assert_eq!(fs::read(place("c/fs/dir/file")).unwrap(), b"now");
    rustix::mount::unmount(place("b"), rustix::mount::UnmountFlags::empty()).unwrap();
    assert!(!again.is_over() && !again.lingers());
    again.unmount(Detach::Normal).unwrap();
    assert!(again.is_over() && mount.is_over() && !mount.lingers());
    assert_eq!(workers.mounts(), 0);
    assert!(mount.again(&place("c/fs"), &options).is_err());
}

/// Goal: many mounts share a few threads, are all served at once, and leave nothing behind.
#[test]
fn serves_many_mounts_from_few_threads() {
    if !can_mount() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let workers = Arc::new(Workers::start("fuse-test", 2).unwrap());
    let mounts: Vec<_> = (0..50)
        .map(|number| {
            let target = dir.path().join(format!("fs{number}"));
            fs::create_dir(&target).unwrap();
            let options = Options { source: format!("test/{number}"), read_only: true, ..Options::default() };
            let tree = Arc::new(with_file(format!("{number}").as_bytes()));
            Mount::new(&workers, tree, &target, &options).unwrap()
        })
        .collect();
    assert_eq!(workers.mounts(), 50);
    std::thread::scope(|scope| {
        for (number, mount) in mounts.iter().enumerate() {
            scope.spawn(move || {
                assert_eq!(fs::read_to_string(mount.target().join("dir/file")).unwrap(), number.to_string());
            });
        }
    });
    for mount in &mounts {
        mount.unmount(Detach::Normal).unwrap();
    }
    assert_eq!(workers.mounts(), 0);
}

/// Goal: where POSIX ACLs count, every user can enter `.zfs`: nothing in it has an ACL.
#[test]
fn snapshots_beside_acls() {
    if !can_mount() || !rustix::process::geteuid().is_root() {
        return;
    }
    let tree = WithSnapshots::new(Arc::new(with_file(b"now")), Box::new(Two { visible: true }));
    let options = Options { posix_acl: true, allow_other: true, ..Options::default() };
    let stand = Stand::with(tree, &options);
    std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            rustix::thread::set_thread_uid(rustix::fs::Uid::from_raw(1000)).unwrap();
            assert_eq!(fs::read_dir(stand.path(".zfs/snapshot")).unwrap().count(), 2);
            assert_eq!(fs::read(stand.path(".zfs/snapshot/one/dir/file")).unwrap(), b"one");
        });
        other.join().unwrap();
    });
    for name in [".zfs", ".zfs/snapshot"] {
        let got = rustix::fs::getxattr(stand.path(name), "system.posix_acl_access", &mut [0_u8; 64]);
        assert_eq!(got, Err(Errno::NODATA));
    }
}

/// Goal: root can create a snapshot only with the capability to administer, which root of a
/// container lacks.
#[test]
fn snapshots_need_a_capability() {
    if !can_mount() || !rustix::process::geteuid().is_root() {
        return;
    }
    let head = Memory { writable: true, ..with_file(b"now") };
    let stand = Stand::new(WithSnapshots::new(Arc::new(head), Box::new(Two { visible: true })));
    let dir = stand.path(".zfs/snapshot/new");
    // These snapshots refuse all changes that reach them.
    assert_eq!(Errno::from_io_error(&fs::create_dir(&dir).unwrap_err()), Some(Errno::ROFS));
    let without = ["--bounding-set=-sys_admin", "--inh-caps=-sys_admin", "mkdir"];
    match std::process::Command::new("setpriv").env("LC_ALL", "C").args(without).arg(&dir).output() {
        Ok(out) => {
            let said = String::from_utf8_lossy(&out.stderr).into_owned();
            assert!(said.contains("Operation not permitted"), "{said}");
        }
        Err(error) => println!("skipped: setpriv: {error}"),
    }
}
