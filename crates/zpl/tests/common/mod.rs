//! Comparing file systems with the manifests of what OpenZFS showed.

#![allow(dead_code)]
pub mod pool;

use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use testkit::{Entry, EntryKind, Manifest};
use zpl::{DirCookie, FileSystem, FileType, Node};

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

fn sha256(node: &Node, from: u64, len: u64) -> String {
    let mut hash = Sha256::new();
    let mut buf = vec![0; 1 << 20];
    let mut at = from;
    while at < from + len {
        let want = buf.len().min((from + len - at) as usize);
        let n = node.read(at, &mut buf[..want]).unwrap();
        assert!(n > 0, "the file ends early");
        hash.update(&buf[..n]);
        at += n as u64;
    }
    hash.finalize().iter().map(|b| format!("{b:02x}")).collect()
}

/// What differs between a file and its manifest line, in words; empty if nothing does.
fn differences(node: &Node, want: &Entry, snapshot: bool) -> Vec<String> {
    let a = node.attr();
    let mut out = Vec::new();
    let mut check = |what: &str, got: String, want: String| {
        if got != want {
            out.push(format!("{what} is {got}, was {want}"));
        }
    };
    check("type", format!("{:?}", a.kind), format!("{:?}", kind(want.kind)));
    check("mode", format!("{:o}", a.mode & 0o7777), format!("{:o}", want.mode));
    check("owner", format!("{}:{}", a.uid.rid(), a.gid.rid()), format!("{}:{}", want.uid, want.gid));
    check("size", a.size.to_string(), want.size.to_string());
    // A root that shows its `.zfs` has one link more: the door knows that, which knows the property.
    let ctldir = u64::from(want.path.is_empty() && want.nlink == a.nlink + 1);
    check("links", (a.nlink + ctldir).to_string(), want.nlink.to_string());
    if !(snapshot && want.path.is_empty()) {
        check("object", a.object.to_string(), want.ino.to_string());
    }
    check("mtime", a.mtime.as_nanos().to_string(), want.mtime.to_string());
    check("ctime", a.ctime.as_nanos().to_string(), want.ctime.to_string());
    if snapshot {
        check("atime", a.atime.as_nanos().to_string(), want.atime.to_string());
    }
    check("blocks", a.blocks.to_string(), want.blocks.to_string());
    check("device", format!("{:?}", a.rdev), format!("{:?}", want.rdev));
    check("flags", a.fs_flags().to_string(), want.flags.to_string());
    check("project", a.projid.to_string(), u64::from(want.projid.unwrap_or(0)).to_string());
    if let Some(t) = &want.target {
        check("target", format!("{:?}", node.readlink()), format!("{:?}", Ok::<_, zpl::Error>(t.clone())));
    }
    if let Some(h) = &want.sha256 {
        check("contents", sha256(node, 0, a.size), h.clone());
    }
    for s in &want.segments {
        check("segment", sha256(node, s.offset, s.len), s.sha256.clone());
    }
    let xattrs: BTreeMap<String, Vec<u8>> = node
        .xattrs()
        .unwrap()
        .into_iter()
        .map(|(k, v)| (String::from_utf8_lossy(&k).into_owned(), v))
        .collect();
    check("xattrs", format!("{xattrs:?}"), format!("{:?}", want.xattrs));
    out
}

/// Everything below a directory by path, found by listing; does not enter `mounts`.
fn walk(fs: &FileSystem, mounts: &BTreeSet<Vec<u8>>) -> BTreeSet<Vec<u8>> {
    let mut found = BTreeSet::from([Vec::new()]);
    let mut todo = vec![(Vec::new(), fs.root())];
    while let Some((path, dir)) = todo.pop() {
        for e in fs.read_dir(dir, DirCookie(2)).unwrap() {
            let e = e.unwrap();
            let mut at = path.clone();
            if !at.is_empty() {
                at.push(b'/');
            }
            at.extend_from_slice(&e.name);
            if mounts.contains(&at) {
                continue;
            }
            assert_eq!(fs.lookup(dir, &e.name).unwrap(), e.object);
            if fs.node(e.object).unwrap().attr().kind == FileType::Directory {
                todo.push((at.clone(), e.object));
            }
            assert!(found.insert(at), "listed twice");
        }
    }
    found
}

/// Compares one file system with its manifest; `below` are the names of datasets that were mounted in it.
pub fn compare(fs: &FileSystem, manifest: &Manifest, below: &BTreeSet<Vec<u8>>) -> (usize, Vec<String>) {
    let mut problems = Vec::new();
    let inside = |p: &[u8]| {
        below.iter().any(|m| p == m.as_slice() || (p.starts_with(m) && p.get(m.len()) == Some(&b'/')))
    };
    let entries: Vec<Entry> = manifest.entries().into_iter().filter(|e| !inside(&e.path)).collect();
    for e in &entries {
        let path = String::from_utf8_lossy(&e.path).into_owned();
        match fs.resolve_link(&e.path) {
            Ok(node) => {
                let d = differences(&node, e, manifest.is_snapshot());
                problems.extend(d.into_iter().map(|d| format!("{}: {path:?}: {d}", manifest.dataset)));
                // Of several links, the way back may be another one, or one that is gone.
                let back = fs.object_path(node.object());
                if node.attr().nlink == 1 && back.as_deref().ok() != Some(&[b"/", e.path.as_slice()].concat())
                {
                    problems.push(format!("{}: {path:?}: the way back is {back:?}", manifest.dataset));
                }
            }
            Err(err) => problems.push(format!("{}: {path:?}: {err}", manifest.dataset)),
        }
    }
    let want: BTreeSet<Vec<u8>> = entries.iter().map(|e| e.path.clone()).collect();
    let found = walk(fs, below);
    for p in found.symmetric_difference(&want) {
        problems.push(format!("{}: {:?} is not in both", manifest.dataset, String::from_utf8_lossy(p)));
    }
    (entries.len(), problems)
}
