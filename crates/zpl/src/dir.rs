//! Directories: looking names up and listing them.

use crate::fs::CaseSensitivity;
use crate::{Error, FileSystem, NAME_MAX, Node, Result};
use dmu::zap::{Cookie, Cursor, Match, Value};
use ondisk::dirent::{Dirent, FileType};
use ondisk::znode::Pflags;
use ondisk::{Corrupt, ObjNum};

/// A position in a directory: 0 is its start. The same numbers as OpenZFS's, so that a door may hand them on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct DirCookie(pub u64);

impl DirCookie {
    /// Before the first entry.
    pub const START: Self = Self(0);
    const AFTER_DOT: Self = Self(1);
    const AFTER_DOT_DOT: Self = Self(2);
}

/// One entry of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirEntry {
    /// Its name: any bytes but NUL, and without `/` unless it is that of an attribute in a hidden directory.
    pub name: Vec<u8>,
    /// The file.
    pub object: ObjNum,
    /// What it is; [`FileType::Unknown`] in file systems of version 1.
    pub kind: FileType,
    /// The position after it.
    pub next: DirCookie,
}

/// The entries of a directory from a position on: `.` and `..` first, then names in the order of their hashes.
#[derive(Debug)]
pub struct ReadDir {
    dir: ObjNum,
    parent: ObjNum,
    /// Its entries are extended attributes, whose names aren't those of files.
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

    /// The entry of this name: the object, its recorded type, and the name as it is stored (`zfs_dirlook`).
    ///
    /// `fold` asks a file system of mixed case to ignore case; `.` and `..` are known.
    ///
    /// # Errors
    /// [`Error::NoEntry`], [`Error::NotDirectory`], [`Error::NameTooLong`], [`Error::NotUtf8`], or as reading fails.
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

    /// Its entries from `from` on.
    ///
    /// # Errors
    /// [`Error::NotDirectory`], or as reading the directory's first block fails.
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
            // The cursor stays where it failed: going on would fail for ever.
            Some(Err(_)) => self.failed = true,
            None => {}
        }
        r
    }
}

impl FileSystem {
    /// The object that `name` means in directory `dir`, by the file system's rules of case and normalization.
    ///
    /// # Errors
    /// As [`Node::lookup_entry`].
    pub fn lookup(&self, dir: ObjNum, name: &[u8]) -> Result<ObjNum> {
        Ok(self.node(dir)?.lookup_entry(name, false)?.object)
    }

    /// The entries of directory `dir` from `from` on.
    ///
    /// # Errors
    /// As [`Node::read_dir`].
    pub fn read_dir(&self, dir: ObjNum, from: DirCookie) -> Result<ReadDir> {
        self.node(dir)?.read_dir(from)
    }
}
