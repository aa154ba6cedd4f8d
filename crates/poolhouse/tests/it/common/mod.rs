//! Compares what the library shows of a pool with the manifests of what OpenZFS showed. Each
//! difference is a line with dataset, path and field.

mod words;

use std::collections::{BTreeMap, BTreeSet};

use poolhouse::zpl::{DirCookie, FileSystem, FileType, Node};
use poolhouse::zvol::Volume;
use sha2::{Digest, Sha256};
use testkit::{Entry, EntryKind, Manifest};
pub use words::words;

fn kind(k: EntryKind) -> FileType {
    match k {
        EntryKind::File => FileType::Regular,
        EntryKind::Dir => FileType::Directory,
        EntryKind::Symlink => FileType::Symlink,
        EntryKind::Fifo => FileType::Fifo,
        EntryKind::Chr => FileType::CharDevice,
        EntryKind::Blk => FileType::BlockDevice,
        EntryKind::Sock => FileType::Socket,
    }
}

fn hex(hash: Sha256) -> String {
    hash.finalize().iter().map(|b| format!("{b:02x}")).collect()
}

/// The hash of the bytes that `read` returns from `from` on, or the error as text.
fn sha256(from: u64, len: u64, mut read: impl FnMut(u64, &mut [u8]) -> Result<usize, String>) -> String {
    let mut hash = Sha256::new();
    let mut buf = vec![0; 1 << 20];
    let mut at = from;
    while at < from + len {
        let want = buf.len().min((from + len - at) as usize);
        match read(at, &mut buf[..want]) {
            Ok(0) => return format!("nothing at {at}"),
            Ok(n) => {
                hash.update(&buf[..n]);
                at += n as u64;
            }
            Err(error) => return error,
        }
    }
    hex(hash)
}

fn of_node(node: &Node, from: u64, len: u64) -> String {
    sha256(from, len, |at, buf| node.read(at, buf).map_err(|e| words(&e)))
}

/// The hash of a volume's contents.
pub fn of_volume(volume: &Volume) -> String {
    sha256(0, volume.size(), |at, buf| volume.read_at(buf, at).map(|()| buf.len()).map_err(|e| words(&e)))
}

/// The fields that differ between a file and its manifest line, with both values.
///
/// `acls`: the dataset has `acltype=posix`. Without that property, OpenZFS does not show the ACLs
/// of files.
fn differences(node: &Node, want: &Entry, snapshot: bool, acls: bool) -> Vec<String> {
    let a = node.attr();
    let mut out = Vec::new();
    let mut check = |what: &str, got: String, want: String| {
        if got != want {
            out.push(format!("{what} is {got}, OpenZFS showed {want}"));
        }
    };
    check("type", format!("{:?}", a.kind), format!("{:?}", kind(want.kind)));
    check("mode", format!("{:o}", a.mode & 0o7777), format!("{:o}", want.mode));
    check("owner", format!("{}:{}", a.uid.rid(), a.gid.rid()), format!("{}:{}", want.uid, want.gid));
    check("size", a.size.to_string(), want.size.to_string());
    // A root that shows its `.zfs` has one more link. Only the FUSE front end adds it, because it
    // knows the property.
    let ctldir = u64::from(want.path.is_empty() && want.nlink == a.nlink + 1);
    check("nlink", (a.nlink + ctldir).to_string(), want.nlink.to_string());
    // The root of a mounted snapshot has an inode number that its mount makes up.
    if !(snapshot && want.path.is_empty()) {
        check("ino", a.object.to_string(), want.ino.to_string());
    }
    check("mtime", a.mtime.as_nanos().to_string(), want.mtime.to_string());
    check("ctime", a.ctime.as_nanos().to_string(), want.ctime.to_string());
    // The manifest of a live dataset was made by reading its files.
    if snapshot {
        check("atime", a.atime.as_nanos().to_string(), want.atime.to_string());
    }
    check("blocks", a.blocks.to_string(), want.blocks.to_string());
    check("rdev", format!("{:?}", a.rdev), format!("{:?}", want.rdev));
    check("flags", a.fs_flags().to_string(), want.flags.to_string());
    check("projid", a.projid.to_string(), u64::from(want.projid.unwrap_or(0)).to_string());
    if let Some(target) = &want.target {
        let got = node.readlink().map_err(|e| words(&e));
        check("target", format!("{got:?}"), format!("{:?}", Ok::<_, String>(target)));
    }
    if let Some(hash) = &want.sha256 {
        check("sha256", of_node(node, 0, a.size), hash.clone());
    }
    for s in &want.segments {
        check(&format!("segment at {}", s.offset), of_node(node, s.offset, s.len), s.sha256.clone());
    }
    let xattrs: Result<BTreeMap<String, Vec<u8>>, String> = node
        .xattrs()
        .map(|all| {
            all.into_iter()
                .map(|(k, v)| (String::from_utf8_lossy(&k).into_owned(), v))
                .filter(|(k, _)| acls || !k.starts_with("system.posix_acl_"))
                .collect()
        })
        .map_err(|e| words(&e));
    check("xattrs", format!("{xattrs:?}"), format!("{:?}", Ok::<_, String>(&want.xattrs)));
    out
}

/// All paths below the root, found by listing. The walk does not enter `mounts`.
fn walk(fs: &FileSystem, mounts: &BTreeSet<Vec<u8>>) -> Result<BTreeSet<Vec<u8>>, String> {
    let mut found = BTreeSet::from([Vec::new()]);
    let mut pending = vec![(Vec::new(), fs.root())];
    while let Some((path, dir)) = pending.pop() {
        let at =
            |e: &dyn std::error::Error| format!("listing {:?}: {}", String::from_utf8_lossy(&path), words(e));
        for entry in fs.read_dir(dir, DirCookie(2)).map_err(|e| at(&e))? {
            let entry = entry.map_err(|e| at(&e))?;
            let mut child = path.clone();
            if !child.is_empty() {
                child.push(b'/');
            }
            child.extend_from_slice(&entry.name);
            if mounts.contains(&child) {
                continue;
            }
            if fs.lookup(dir, &entry.name).map_err(|e| at(&e))? != entry.object {
                return Err(format!(
                    "{:?} is listed and looked up differently",
                    String::from_utf8_lossy(&child)
                ));
            }
            if fs.node(entry.object).map_err(|e| at(&e))?.attr().kind == FileType::Directory {
                pending.push((child.clone(), entry.object));
            }
            if !found.insert(child) {
                return Err(format!("{:?} is listed twice", String::from_utf8_lossy(&entry.name)));
            }
        }
    }
    Ok(found)
}

/// Compares a file system with its manifest. `below` are the paths at which other datasets were
/// mounted in it.
///
/// Returns the number of compared paths, and the differences as path and field.
pub fn compare(
    fs: &FileSystem,
    manifest: &Manifest,
    below: &BTreeSet<Vec<u8>>,
    acls: bool,
) -> (usize, Vec<(String, String)>) {
    let inside =
        |p: &[u8]| below.iter().any(|m| p.starts_with(m) && (p.len() == m.len() || p[m.len()] == b'/'));
    let entries: Vec<Entry> = manifest.entries().into_iter().filter(|e| !inside(&e.path)).collect();
    let mut wrong = Vec::new();
    for entry in &entries {
        let path = String::from_utf8_lossy(&entry.path).into_owned();
        match fs.resolve_link(&entry.path) {
            Ok(node) => {
                let found = differences(&node, entry, manifest.is_snapshot(), acls);
                wrong.extend(found.into_iter().map(|d| (path.clone(), d)));
                if let Err(error) = fs.object_path(node.object())
                    && node.attr().nlink == 1
                {
                    wrong.push((path, format!("no way back from object to path: {}", words(&error))));
                }
            }
            Err(error) => wrong.push((path, words(&error))),
        }
    }
    match walk(fs, below) {
        Ok(found) => {
            let want: BTreeSet<Vec<u8>> = entries.iter().map(|e| e.path.clone()).collect();
            for path in found.symmetric_difference(&want) {
                let side = if want.contains(path) { "not listed" } else { "listed, but OpenZFS showed none" };
                wrong.push((String::from_utf8_lossy(path).into_owned(), side.to_owned()));
            }
        }
        Err(error) => wrong.push((String::new(), error)),
    }
    (entries.len(), wrong)
}
