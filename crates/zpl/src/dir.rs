//! Directories: looking names up and listing them.

use crate::fs::CaseSensitivity;
use crate::{Error, FileSystem, NAME_MAX, Node, Result};
use dmu::zap::{Cookie, Cursor, Match, Value};
use ondisk::dirent::{Dirent, FileType};
use ondisk::znode::Pflags;
use ondisk::{Corrupt, ObjNum};

/// A position in a directory; 0 is its start.
///
/// The numbers are those of OpenZFS, so that a front end may pass them on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct DirCookie(pub u64);

impl DirCookie {
    /// The position before the first entry.
    pub const START: Self = Self(0);
    const AFTER_DOT: Self = Self(1);
    const AFTER_DOT_DOT: Self = Self(2);
}

/// One entry of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirEntry {
    /// The name: any bytes but NUL. Only names of attributes, in a hidden directory, may contain
    /// `/`.
    pub name: Vec<u8>,
    /// The file.
    pub object: ObjNum,
    /// The file's type; [`FileType::Unknown`] in file systems of version 1.
    pub kind: FileType,
    /// The position after the entry.
    pub next: DirCookie,
}

/// The entries of a directory from a position on: `.` and `..`, then names in the order of their
/// hashes (`zfs_readdir`).
#[derive(Debug)]
pub struct ReadDir {
    dir: ObjNum,
    parent: ObjNum,
    /// True if the entries are extended attributes, whose names follow other rules than those of
    /// files.
    hidden: bool,
    at: DirCookie,
    cursor: Cursor,
    failed: bool,
}

impl Node {
    fn dirent(&self, value: &Value) -> Result<Dirent> {
        let bad = Corrupt::Shape { what: "directory entry", why: "its value is not a word" };
        // More words may follow the first: other users of the format put them there.
        match value.first() {
            Some(v) if value.int_size() == 8 => Ok(Dirent::from_disk(v)),
            _ => Err(self.corrupt(bad)),
        }
    }

    /// The entry of this name: the object, its recorded type, and the name as it is stored
    /// (`zfs_dirlook`).
    ///
    /// With `fold`, a file system of mixed case ignores case. The names `.` and `..` work too.
    ///
    /// # Errors
    /// * [`Error::NoEntry`]: the directory has no such entry.
    /// * [`Error::NotDirectory`]: this node is no directory.
    /// * [`Error::NameTooLong`]: the name is longer than [`NAME_MAX`].
    /// * [`Error::NotUtf8`]: the file system accepts only UTF-8, and the name is not.
    /// * The errors of [reading](Error#reading).
    pub fn lookup_entry(&self, name: &[u8], fold: bool) -> Result<DirEntry> {
        self.require_dir()?;
        let plain = |object, name: &[u8]| {
            Ok(DirEntry { name: name.to_vec(), object, kind: FileType::Directory, next: DirCookie::START })
        };
        match name {
            b"" | b"." => return plain(self.object(), b"."),
            b".." => return plain(self.attr().parent, b".."),
            _ if name.len() > NAME_MAX => return Err(Error::NameTooLong { len: name.len() }),
            _ if self.fs.utf8only() && std::str::from_utf8(name).is_err() => return Err(Error::NotUtf8),
            _ => {}
        }
        let zap = self.fs.dir_zap(&self.dn)?;
        let how = match self.fs.case_sensitivity() {
            CaseSensitivity::Mixed if !fold => Match::NormalizedCase,
            _ => Match::Normalized,
        };
        let (name, value) = zap.lookup_matching(name, how)?.ok_or(Error::NoEntry { dir: self.object() })?;
        let d = self.dirent(&value)?;
        Ok(DirEntry { name, object: d.obj, kind: d.kind, next: DirCookie::START })
    }

    /// The directory's entries from `from` on (`zfs_readdir`).
    ///
    /// # Errors
    /// * [`Error::NotDirectory`]: this node is no directory.
    /// * [`Error::Dmu`]: the directory's first block can't be read.
    pub fn read_dir(&self, from: DirCookie) -> Result<ReadDir> {
        self.require_dir()?;
        let zap = self.fs.dir_zap(&self.dn)?;
        let start = if from.0 <= DirCookie::AFTER_DOT_DOT.0 { Cookie::START } else { Cookie(from.0) };
        Ok(ReadDir {
            dir: self.object(),
            parent: self.attr().parent,
            hidden: self.attr().pflags.has(Pflags::XATTR),
            at: from,
            cursor: zap.cursor_at(start),
            failed: false,
        })
    }
}

impl ReadDir {
    fn step(&mut self) -> Result<Option<DirEntry>> {
        let dot = |name: &[u8], object, next| {
            Ok(Some(DirEntry { name: name.to_vec(), object, kind: FileType::Directory, next }))
        };
        match self.at {
            DirCookie::START => return dot(b".", self.dir, DirCookie::AFTER_DOT),
            DirCookie::AFTER_DOT => return dot(b"..", self.parent, DirCookie::AFTER_DOT_DOT),
            _ => {}
        }
        let Some(e) = self.cursor.next_entry()? else { return Ok(None) };
        let bad =
            |why| Error::Corrupt { object: self.dir, source: Corrupt::Shape { what: "directory", why } };
        let name = e.key.name().ok_or_else(|| bad("its keys are no names"))?.to_vec();
        let slash = !self.hidden && name.contains(&b'/');
        if name.is_empty() || slash || name == b"." || name == b".." {
            return Err(bad("an entry has a name that none may have"));
        }
        let v = e
            .value
            .first()
            .filter(|_| e.value.int_size() == 8)
            .ok_or_else(|| bad("an entry is not a word"))?;
        let d = Dirent::from_disk(v);
        Ok(Some(DirEntry { name, object: d.obj, kind: d.kind, next: DirCookie(e.next.0) }))
    }
}

impl Iterator for ReadDir {
    type Item = Result<DirEntry>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        let r = self.step().transpose();
        match &r {
            Some(Ok(e)) => self.at = e.next,
            // The cursor stays where it failed, so another step would fail again, forever.
            Some(Err(_)) => self.failed = true,
            None => {}
        }
        r
    }
}

impl FileSystem {
    /// The object that `name` means in directory `dir`, by the file system's rules of case and
    /// normalization (`zfs_lookup`).
    ///
    /// # Errors
    /// * All errors of [`Node::lookup_entry`].
    /// * [`Error::NoFile`]: `dir` is no file.
    pub fn lookup(&self, dir: ObjNum, name: &[u8]) -> Result<ObjNum> {
        Ok(self.node(dir)?.lookup_entry(name, false)?.object)
    }

    /// The entries of directory `dir` from `from` on.
    ///
    /// # Errors
    /// * All errors of [`Node::read_dir`].
    /// * [`Error::NoFile`]: `dir` is no file.
    pub fn read_dir(&self, dir: ObjNum, from: DirCookie) -> Result<ReadDir> {
        self.node(dir)?.read_dir(from)
    }
}
