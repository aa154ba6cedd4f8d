//! A tree in memory, for tests of the protocol.

use fuse::tree::{Attr, Entry, FileTree, Flags, Node, Seek, Statfs, Time};
use rustix::io::Errno;
use std::collections::BTreeMap;

/// A node of the tree.
#[derive(Debug, Clone)]
pub struct File {
    pub mode: u32,
    pub rdev: (u32, u32),
    pub nlink: u32,
    pub contents: Vec<u8>,
    /// Ranges of zeros that count as not stored.
    pub holes: Vec<std::ops::Range<u64>>,
    pub entries: BTreeMap<Vec<u8>, u64>,
    pub parent: u64,
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    pub flags: Flags,
    pub mtime: Time,
}

/// Files by object number. The root is 34, as in ZFS.
#[derive(Debug, Clone, Default)]
pub struct Memory {
    pub files: BTreeMap<u64, File>,
    /// Whether it claims that it can change. It refuses all changes anyway.
    pub writable: bool,
}

pub const ROOT: u64 = 34;

impl Memory {
    pub fn new() -> Self {
        let mut memory = Self::default();
        memory.files.insert(ROOT, Self::blank(0o040_755, ROOT));
        memory
    }

    fn blank(mode: u32, parent: u64) -> File {
        File {
            mode,
            rdev: (0, 0),
            nlink: 1,
            contents: Vec::new(),
            holes: Vec::new(),
            entries: BTreeMap::new(),
            parent,
            xattrs: BTreeMap::new(),
            flags: Flags::default(),
            mtime: Time { sec: 1_700_000_000, nsec: 123_456_789 },
        }
    }

    /// Adds a node to a directory, and returns its number.
    pub fn add(&mut self, dir: u64, name: &[u8], mode: u32, contents: &[u8]) -> u64 {
        let number = self.files.keys().last().unwrap() + 1;
        self.files.insert(number, File { contents: contents.to_vec(), ..Self::blank(mode, dir) });
        self.files.get_mut(&dir).unwrap().entries.insert(name.to_vec(), number);
        number
    }

    pub fn get_mut(&mut self, number: u64) -> &mut File {
        self.files.get_mut(&number).unwrap()
    }

    fn file(&self, node: Node) -> Result<&File, Errno> {
        self.files.get(&node.0).ok_or(Errno::STALE)
    }
}

impl FileTree for Memory {
    fn root(&self) -> Node {
        Node(ROOT)
    }

    fn lookup(&self, dir: Node, name: &[u8]) -> Result<Attr, Errno> {
        let number = self.file(dir)?.entries.get(name).ok_or(Errno::NOENT)?;
        self.attr(Node(*number))
    }

    fn attr(&self, node: Node) -> Result<Attr, Errno> {
        let file = self.file(node)?;
        let size = match file.mode & 0o170_000 {
            0o040_000 => file.entries.len() as u64 + 2,
            _ => file.contents.len() as u64,
        };
        Ok(Attr {
            node,
            ino: node.0,
            generation: 7,
            parent: Node(file.parent),
            mode: file.mode,
            nlink: file.nlink,
            uid: 0,
            gid: 12,
            rdev: file.rdev,
            size,
            blocks: size.div_ceil(512),
            blksize: 131_072,
            atime: Time { sec: -5, nsec: 1 },
            mtime: file.mtime,
            ctime: file.mtime,
            btime: Time { sec: 1_600_000_000, nsec: 999_999_999 },
            settled: true,
        })
    }

    fn readlink(&self, node: Node) -> Result<Vec<u8>, Errno> {
        Ok(self.file(node)?.contents.clone())
    }

    fn read(&self, node: Node, offset: u64, buf: &mut [u8]) -> Result<usize, Errno> {
        let contents = &self.file(node)?.contents;
        let rest = contents.get(offset as usize..).unwrap_or_default();
        let len = rest.len().min(buf.len());
        buf[..len].copy_from_slice(&rest[..len]);
        Ok(len)
    }

    /// A cookie is the entry's object number: a stable position, as the hash in a real directory
    /// is.
    fn readdir(&self, dir: Node, cookie: u64, limit: usize) -> Result<Vec<Entry>, Errno> {
        let entries = &self.file(dir)?.entries;
        let mut by_number: Vec<_> = entries.iter().filter(|(_, number)| **number > cookie).collect();
        by_number.sort_by_key(|(_, number)| **number);
        by_number
            .into_iter()
            .take(limit)
            .map(|(name, &number)| {
                let kind = (self.file(Node(number))?.mode >> 12) as u8;
                Ok(Entry { name: name.clone(), node: Some(Node(number)), ino: number, kind, cookie: number })
            })
            .collect()
    }

    fn xattr(&self, node: Node, name: &[u8]) -> Result<Vec<u8>, Errno> {
        self.file(node)?.xattrs.get(name).cloned().ok_or(Errno::NODATA)
    }

    fn xattr_names(&self, node: Node) -> Result<Vec<Vec<u8>>, Errno> {
        Ok(self.file(node)?.xattrs.keys().cloned().collect())
    }

    fn statfs(&self, _: Node) -> Result<Statfs, Errno> {
        Ok(Statfs {
            unit: 512,
            transfer: 131_072,
            blocks: 2000,
            free: 500,
            files: self.files.len() as u64,
            files_free: 77,
            name_max: 255,
        })
    }

    fn seek(&self, node: Node, offset: u64, what: Seek) -> Result<u64, Errno> {
        let file = self.file(node)?;
        let end = file.contents.len() as u64;
        if offset >= end {
            return Err(Errno::NXIO);
        }
        let within = file.holes.iter().find(|hole| hole.contains(&offset));
        match (what, within) {
            (Seek::Hole, Some(_)) | (Seek::Data, None) => Ok(offset),
            (Seek::Data, Some(hole)) if hole.end < end => Ok(hole.end),
            (Seek::Data, Some(_)) => Err(Errno::NXIO),
            (Seek::Hole, None) => {
                Ok(file.holes.iter().map(|hole| hole.start).find(|&start| start > offset).unwrap_or(end))
            }
        }
    }

    fn flags(&self, node: Node) -> Result<Flags, Errno> {
        Ok(self.file(node)?.flags)
    }

    fn writable(&self) -> bool {
        self.writable
    }
}
