//! Pools that OpenZFS wrote, read through real mounts, and compared with what OpenZFS showed.

use crate::pool;

use dmu::Objset;
use fuse::ctldir::{Named, Snapshot, Snapshots, WithSnapshots};
use fuse::dataset::{Dataset, Shown};
use fuse::tree::{FileTree, Statfs};
use fuse::{Detach, Mount, Options, Workers};
use rustix::io::Errno;
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::Arc;
use testkit::{Entry, EntryKind, Manifest};
use zpl::FileSystem;

fn tree(name: &str, os: &Objset) -> Arc<dyn FileTree> {
    let sizes = Statfs { unit: 512, transfer: 131_072, name_max: 1023, ..Statfs::default() };
    let shown = Shown { name: name.to_owned(), posix_acl: true, xattrs: true, sizes };
    Arc::new(Dataset::new(FileSystem::open(os).unwrap(), shown))
}

/// The snapshots of one dataset among all object sets of a pool. The index in the list serves as
/// the object number.
struct Of {
    sets: Arc<BTreeMap<String, Objset>>,
    dataset: String,
}

impl Of {
    fn names(&self) -> Vec<Vec<u8>> {
        let prefix = format!("{}@", self.dataset);
        self.sets
            .keys()
            .filter_map(|name| name.strip_prefix(&prefix))
            .map(|s| s.as_bytes().to_vec())
            .collect()
    }
}

impl Snapshots for Of {
    fn page(&self, from: u64, limit: usize) -> Result<Vec<Named>, Errno> {
        let all = self.names().into_iter().zip(2..).filter(|(_, at)| *at > from).take(limit);
        Ok(all.map(|(name, next)| Named { name, dataset: next, next }).collect())
    }
    fn count(&self) -> Result<u64, Errno> {
        Ok(self.names().len() as u64)
    }
    fn open(&self, name: &[u8]) -> Result<Snapshot, Errno> {
        let name = format!("{}@{}", self.dataset, String::from_utf8_lossy(name));
        let dataset = 1 + self.sets.keys().position(|other| *other == name).ok_or(Errno::NOENT)? as u64;
        Ok(Snapshot { tree: tree(&name, &self.sets[&name]), dataset, born: 1 })
    }
    fn visible(&self) -> bool {
        false
    }
    fn disabled(&self) -> bool {
        false
    }
}

fn sha256(file: &fs::File, mut at: u64, end: u64) -> String {
    let mut hash = Sha256::new();
    let mut buf = vec![0; 1 << 20];
    while at < end {
        let want = buf.len().min((end - at) as usize);
        let n = file.read_at(&mut buf[..want], at).unwrap();
        assert!(n > 0, "the file ends early");
        hash.update(&buf[..n]);
        at += n as u64;
    }
    hash.finalize().iter().map(|b| format!("{b:02x}")).collect()
}

fn xattrs(path: &Path) -> rustix::io::Result<BTreeMap<String, Vec<u8>>> {
    let mut buf = vec![0; 65_536];
    let len = rustix::fs::llistxattr(path, &mut buf[..])?;
    let names: Vec<Vec<u8>> =
        buf[..len].split(|&b| b == 0).filter(|n| !n.is_empty()).map(<[u8]>::to_vec).collect();
    let mut out = BTreeMap::new();
    for name in names {
        let len = rustix::fs::lgetxattr(path, OsStr::from_bytes(&name), &mut buf[..])?;
        out.insert(String::from_utf8_lossy(&name).into_owned(), buf[..len].to_vec());
    }
    Ok(out)
}

fn times(meta: &fs::Metadata) -> [i128; 3] {
    let nanos = |sec: i64, nsec: i64| i128::from(sec) * 1_000_000_000 + i128::from(nsec);
    [
        nanos(meta.mtime(), meta.mtime_nsec()),
        nanos(meta.ctime(), meta.ctime_nsec()),
        nanos(meta.atime(), meta.atime_nsec()),
    ]
}

/// The differences between a path and its line of the manifest, as text.
fn differences(path: &Path, want: &Entry, snapshot: bool) -> Vec<String> {
    let meta = match fs::symlink_metadata(path) {
        Ok(meta) => meta,
        Err(error) => return vec![error.to_string()],
    };
    let mut out = Vec::new();
    let mut check = |what: &str, got: String, want: String| {
        if got != want {
            out.push(format!("{what} is {got}, was {want}"));
        }
    };
    let kind = match want.kind {
        EntryKind::File => 0o10,
        EntryKind::Dir => 0o4,
        EntryKind::Symlink => 0o12,
        EntryKind::Fifo => 0o1,
        EntryKind::Chr => 0o2,
        EntryKind::Blk => 0o6,
        EntryKind::Sock => 0o14,
    };
    check("mode", format!("{:o}", meta.mode()), format!("{:o}", kind << 12 | want.mode));
    check("owner", format!("{}:{}", meta.uid(), meta.gid()), format!("{}:{}", want.uid, want.gid));
    check("size", meta.size().to_string(), want.size.to_string());
    // A root that shows `.zfs` has one link more. That depends on the property, not on the pool.
    let visible = u64::from(want.path.is_empty() && want.nlink == meta.nlink() + 1);
    check("links", (meta.nlink() + visible).to_string(), want.nlink.to_string());
    let ino = if snapshot { meta.ino() & ((1 << 40) - 1) } else { meta.ino() };
    if !(snapshot && want.path.is_empty()) {
        check("inode", ino.to_string(), want.ino.to_string());
    }
    let [mtime, ctime, atime] = times(&meta);
    check("mtime", mtime.to_string(), want.mtime.to_string());
    check("ctime", ctime.to_string(), want.ctime.to_string());
    if snapshot {
        check("atime", atime.to_string(), want.atime.to_string());
    }
    check("blocks", meta.blocks().to_string(), want.blocks.to_string());
    if let Some(rdev) = want.rdev {
        let got = (rustix::fs::major(meta.rdev()), rustix::fs::minor(meta.rdev()));
        check("device", format!("{got:?}"), format!("{rdev:?}"));
    }
    if let Some(target) = &want.target {
        let got = fs::read_link(path).unwrap();
        check("target", format!("{:?}", got.as_os_str().as_bytes()), format!("{target:?}"));
    }
    if matches!(want.kind, EntryKind::File | EntryKind::Dir) {
        let file = fs::File::open(path).unwrap();
        let flags = rustix::fs::ioctl_getflags(&file).unwrap();
        check("flags", flags.bits().to_string(), want.flags.to_string());
        if let Some(hash) = &want.sha256 {
            check("contents", sha256(&file, 0, want.size), hash.clone());
        }
        for part in &want.segments {
            check("segment", sha256(&file, part.offset, part.offset + part.len), part.sha256.clone());
        }
    }
    check("xattrs", format!("{:?}", xattrs(path)), format!("{:?}", Ok::<_, Errno>(want.xattrs.clone())));
    out
}

/// All paths below a directory.
fn walk(root: &Path, below: &BTreeSet<Vec<u8>>) -> BTreeSet<Vec<u8>> {
    let mut found = BTreeSet::from([Vec::new()]);
    let mut todo = vec![Vec::new()];
    while let Some(dir) = todo.pop() {
        for entry in fs::read_dir(root.join(OsStr::from_bytes(&dir))).unwrap() {
            let entry = entry.unwrap();
            let mut at = dir.clone();
            if !at.is_empty() {
                at.push(b'/');
            }
            at.extend_from_slice(entry.file_name().as_bytes());
            if below.contains(&at) {
                continue;
            }
            if entry.file_type().unwrap().is_dir() {
                todo.push(at.clone());
            }
            assert!(found.insert(at), "listed twice");
        }
    }
    found
}

/// Compares a mounted file system, or a snapshot in it, with its manifest.
fn compare(root: &Path, manifest: &Manifest, below: &BTreeSet<Vec<u8>>) -> (usize, Vec<String>) {
    let inside = |path: &[u8]| {
        below
            .iter()
            .any(|m| path == m.as_slice() || (path.starts_with(m) && path.get(m.len()) == Some(&b'/')))
    };
    let entries: Vec<Entry> = manifest.entries().into_iter().filter(|entry| !inside(&entry.path)).collect();
    let mut problems = Vec::new();
    for entry in &entries {
        let path = match entry.path.as_slice() {
            // No slash after the root, since lstat(2) would follow it.
            b"" => root.to_owned(),
            path => root.join(OsStr::from_bytes(path)),
        };
        // The path is too long for a system call: it was created step by step.
        if path.as_os_str().len() >= 4096 {
            continue;
        }
        let found = differences(&path, entry, manifest.is_snapshot());
        let shown = String::from_utf8_lossy(&entry.path).into_owned();
        problems.extend(found.into_iter().map(|d| format!("{}: {shown:?}: {d}", manifest.dataset)));
    }
    let want: BTreeSet<Vec<u8>> = entries.iter().map(|entry| entry.path.clone()).collect();
    for path in walk(root, below).symmetric_difference(&want) {
        problems.push(format!("{}: {:?} is not in both", manifest.dataset, String::from_utf8_lossy(path)));
    }
    (entries.len(), problems)
}

/// Compares each file system of a pool and its snapshots with their manifests, through mounts.
///
/// Returns the number of files compared.
fn check(name: &str) -> usize {
    if fs::OpenOptions::new().read(true).write(true).open("/dev/fuse").is_err() {
        println!("skipped: /dev/fuse can't be opened here");
        return usize::MAX;
    }
    let Some(fixture) = testkit::find(name) else { return 0 };
    let sets = Arc::new(pool::filesystems(fixture.pool(), &pool::mos(&fixture.images()[0])));
    let workers = Arc::new(Workers::start("fuse-test", 3).unwrap());
    let dir = tempfile::tempdir().unwrap();
    let (mut files, mut problems) = (0, Vec::new());
    let manifests: Vec<Manifest> = fixture.manifests().into_iter().filter(|m| m.variant.is_none()).collect();
    for (dataset, os) in sets.iter().filter(|(dataset, _)| !dataset.contains('@')) {
        let snapshots = Of { sets: Arc::clone(&sets), dataset: dataset.clone() };
        let tree = WithSnapshots::new(tree(dataset, os), Box::new(snapshots));
        let options =
            Options { source: dataset.clone(), read_only: true, posix_acl: true, ..Options::default() };
        let mount = Mount::new(&workers, Arc::new(tree), dir.path(), &options).unwrap();
        // OpenZFS had mounted the datasets below on directories of their name.
        let below: BTreeSet<Vec<u8>> = manifests
            .iter()
            .filter_map(|other| other.dataset.strip_prefix(&format!("{dataset}/")))
            .filter(|rest| !rest.contains('@'))
            .map(|rest| rest.as_bytes().to_vec())
            .collect();
        for manifest in &manifests {
            let root = match manifest.dataset.split_once('@') {
                None => dir.path().to_owned(),
                Some((_, snapshot)) => dir.path().join(".zfs/snapshot").join(snapshot),
            };
            if manifest.dataset.split('@').next() == Some(dataset) {
                let (n, p) = compare(&root, manifest, &below);
                files += n;
                problems.extend(p);
            }
        }
        mount.unmount(Detach::Normal).unwrap();
    }
    let shown: Vec<_> = problems.iter().take(40).collect();
    assert!(problems.is_empty(), "{name}: {} differences: {shown:#?}", problems.len());
    files
}

/// Goal: all that a file system of today's defaults can hold reads as OpenZFS showed it.
///
/// That is: extended attributes in both forms, ACLs, devices, links, holes, flags, all block sizes
/// and compressors, case and normalization, snapshots and clones.
#[test]
fn single_lz4() {
    assert!(check("single-lz4") > 10_000);
}

/// Goal: znodes of old pools read as OpenZFS showed them. These have no types in directory entries,
/// and no system attributes.
#[test]
fn old_versions() {
    assert!(check("v1") > 50);
    assert!(check("v28") > 200);
}

/// Goal: names of up to 1023 bytes pass through the kernel.
#[test]
fn longname() {
    assert!(check("longname") > 50);
}
