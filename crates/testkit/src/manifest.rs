//! Manifests: what the OpenZFS kernel module showed of each dataset, with a line for each path.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::unpack;

/// The manifest of one dataset or snapshot. Its lines are read on request, since some are long.
#[derive(Debug, Clone)]
pub struct Manifest {
    /// The dataset's full name, `pool/a/b` or `pool/a/b@snap`.
    pub dataset: String,
    /// The state that the manifest describes, if it is not that of the image: `at-checkpoint`,
    /// `replayed-by-openzfs`, `after-replay`.
    pub variant: Option<String>,
    path: PathBuf,
}

/// The type of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EntryKind {
    /// A regular file.
    File,
    /// A directory.
    Dir,
    /// A symbolic link.
    Symlink,
    /// A named pipe.
    Fifo,
    /// A character device.
    Chr,
    /// A block device.
    Blk,
    /// A socket.
    Sock,
}

/// A range of a large file, with its hash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segment {
    /// Offset of the first byte.
    pub offset: u64,
    /// Length in bytes.
    pub len: u64,
    /// SHA-256 of the bytes, in hex.
    pub sha256: String,
}

/// A path of a manifest, as `lstat` and similar calls showed it. Times are nanoseconds since 1970.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The path below the dataset's root, without a leading slash. Empty for the root.
    pub path: Vec<u8>,
    /// The type of the file.
    pub kind: EntryKind,
    /// Permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// `st_size`.
    pub size: u64,
    /// `st_nlink`.
    pub nlink: u64,
    /// `st_ino`, which is the object number.
    pub ino: u64,
    /// Time of the last change of the content.
    pub mtime: i128,
    /// Time of the last change of the attributes.
    pub ctime: i128,
    /// Time of the last access. For a live dataset it may differ from that of the image.
    pub atime: i128,
    /// `st_blocks`, in units of 512 bytes.
    pub blocks: u64,
    /// Major and minor number of a device node.
    pub rdev: Option<(u32, u32)>,
    /// The target of a symbolic link.
    pub target: Option<Vec<u8>>,
    /// SHA-256 of the content, in hex.
    pub sha256: Option<String>,
    /// The ranges with data of a file over 1 GiB, in place of `sha256`.
    pub segments: Vec<Segment>,
    /// Extended attributes, by their full name (`user.a`).
    pub xattrs: BTreeMap<String, Vec<u8>>,
    /// `FS_IOC_GETFLAGS` bits.
    pub flags: u32,
    /// Project id.
    pub projid: Option<u32>,
}

/// The contents of a volume, or of a snapshot of one.
#[derive(Debug, Clone, Deserialize)]
pub struct Zvol {
    /// The full name.
    #[serde(rename = "zvol")]
    pub name: String,
    /// Size in bytes, if it was recorded.
    pub size: Option<u64>,
    /// Block size in bytes, if it was recorded.
    pub volblocksize: Option<u64>,
    /// SHA-256 of its content, in hex.
    pub sha256: String,
    /// The state that this describes, if it is not that of the image (`after-replay` and so on).
    pub when: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    path: Option<String>,
    path_hex: Option<String>,
    #[serde(rename = "type")]
    kind: EntryKind,
    mode: u32,
    uid: u32,
    gid: u32,
    size: u64,
    nlink: u64,
    ino: u64,
    mtime: i128,
    ctime: i128,
    atime: i128,
    blocks: u64,
    rdev: Option<(u32, u32)>,
    target: Option<String>,
    target_hex: Option<String>,
    sha256: Option<String>,
    #[serde(default)]
    segments: Vec<(u64, u64, String)>,
    #[serde(default)]
    xattrs: BTreeMap<String, String>,
    #[serde(default)]
    flags: u32,
    projid: Option<u32>,
}

fn unhex(text: &str) -> Vec<u8> {
    assert!(text.len().is_multiple_of(2), "odd hex in a manifest: {text}");
    (0..text.len())
        .step_by(2)
        .map(|i| u8::from_str_radix(&text[i..i + 2], 16).unwrap_or_else(|e| panic!("hex {text}: {e}")))
        .collect()
}

fn plain_or_hex(plain: Option<String>, hex: Option<String>) -> Option<Vec<u8>> {
    plain.map(String::into_bytes).or_else(|| hex.map(|h| unhex(&h)))
}

impl From<Line> for Entry {
    fn from(l: Line) -> Self {
        Entry {
            path: plain_or_hex(l.path, l.path_hex).expect("a manifest line has a path"),
            kind: l.kind,
            mode: l.mode,
            uid: l.uid,
            gid: l.gid,
            size: l.size,
            nlink: l.nlink,
            ino: l.ino,
            mtime: l.mtime,
            ctime: l.ctime,
            atime: l.atime,
            blocks: l.blocks,
            rdev: l.rdev,
            target: plain_or_hex(l.target, l.target_hex),
            sha256: l.sha256,
            segments: l
                .segments
                .into_iter()
                .map(|(offset, len, sha256)| Segment { offset, len, sha256 })
                .collect(),
            // `error:ERRNO` stands for an attribute that the kernel module could not read.
            xattrs: l
                .xattrs
                .into_iter()
                .filter(|(_, v)| !v.starts_with("error:"))
                .map(|(k, v)| (k, unhex(&v)))
                .collect(),
            flags: l.flags,
            projid: l.projid,
        }
    }
}

impl Manifest {
    /// The lines, in the order of the file.
    ///
    /// # Panics
    /// The file can't be read, or a line is malformed.
    pub fn entries(&self) -> Vec<Entry> {
        read_lines::<Line>(&self.path, false).into_iter().map(Entry::from).collect()
    }

    /// Whether the manifest describes a snapshot.
    pub fn is_snapshot(&self) -> bool {
        self.dataset.contains('@')
    }
}

/// Whether a line of `zvols.jsonl` describes a volume. The pool `zvols` has its manifest in the
/// same file.
fn tells_of_volume(line: &[u8]) -> bool {
    line.starts_with(b"{\"zvol\"")
}

fn read_lines<T: for<'a> Deserialize<'a>>(path: &Path, of_volumes: bool) -> Vec<T> {
    let bytes =
        unpack::read_plain_or_zst(path).unwrap_or_else(|| panic!("{}: no such manifest", path.display()));
    bytes
        .split(|b| *b == b'\n')
        .filter(|l| !l.is_empty() && tells_of_volume(l) == of_volumes)
        .map(|l| {
            serde_json::from_slice(l)
                .unwrap_or_else(|e| panic!("{}: {e}: {}", path.display(), String::from_utf8_lossy(l)))
        })
        .collect()
}

/// `pool__a__b@s.at-checkpoint` is the variant `at-checkpoint` of `pool/a/b@s`.
fn parse_stem(stem: &str) -> (String, Option<String>) {
    const VARIANTS: [&str; 3] = ["at-checkpoint", "replayed-by-openzfs", "after-replay"];
    for variant in VARIANTS {
        if let Some(name) = stem.strip_suffix(variant).and_then(|s| s.strip_suffix('.')) {
            return (name.replace("__", "/"), Some(variant.to_owned()));
        }
    }
    (stem.replace("__", "/"), None)
}

pub(crate) fn read_all(folder: &Path) -> Vec<Manifest> {
    unpack::file_names(folder)
        .into_iter()
        .filter_map(|n| {
            let stem = n.trim_end_matches(".zst").strip_suffix(".jsonl")?;
            let (dataset, variant) = parse_stem(stem);
            let path = folder.join(format!("{stem}.jsonl"));
            let manifest = Manifest { dataset, variant, path };
            (stem != "zvols" || !manifest.entries().is_empty()).then_some(manifest)
        })
        .collect()
}

pub(crate) fn read_zvols(folder: &Path) -> Vec<Zvol> {
    let there = unpack::file_names(folder).iter().any(|n| n.starts_with("zvols.jsonl"));
    if there { read_lines(&folder.join("zvols.jsonl"), true) } else { Vec::new() }
}
