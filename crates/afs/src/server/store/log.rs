//! Files to which groups of entries are appended.
//!
//! # On disk
//! Little-endian words of 32 bits. An entry [`END`] ends a group, and says as of which txg the file
//! is right, and of which partition. What follows the last one is ignored.
//!
//! # Crash
//! Each transaction group has the file with a part of an append, in the order of its bytes, so a
//! group that is not complete has no end.

use ondisk::{ObjNum, Txg};
use zpl::{FileSystem, Kind, NewFile, Rename};

use super::entry::Owner;
use crate::server::Result;

/// The end of a group: the txg, the pool's GUID, the partition's directory; of two words each.
pub(super) const END: u32 = 3;

/// The bytes of it.
const END_SIZE: usize = 28;
/// Bytes of one write and one read.
const PIECE: usize = 1 << 20;
/// The largest file.
pub(super) const MOST_BYTES: u64 = 1 << 30;

/// The words of bytes.
pub(super) fn words_of(bytes: &[u8]) -> impl Iterator<Item = u32> {
    bytes.chunks_exact(4).map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]]))
}

/// The words of a file, which is read in pieces.
pub(super) struct Words<'a> {
    fs: &'a FileSystem,
    object: ObjNum,
    /// What was read of the file, and what comes next in it.
    piece: Vec<u8>,
    at: usize,
    next: u64,
    end: u64,
    error: Option<zpl::Error>,
}

impl Words<'_> {
    /// The words that are left.
    pub(super) fn len(&self) -> usize {
        ((self.end - self.next) as usize + self.piece.len() - self.at) / 4
    }

    /// How many bytes came before.
    pub(super) fn at(&self) -> u64 {
        self.next - (self.piece.len() - self.at) as u64
    }

    /// Why they ended early.
    pub(super) fn take_error(&mut self) -> Option<zpl::Error> {
        self.error.take()
    }

    fn refill(&mut self) -> Option<()> {
        let length = (self.end - self.next).min(PIECE as u64) & !3;
        self.piece.resize(length as usize, 0);
        self.at = 0;
        let mut done = 0;
        while done < self.piece.len() {
            match self.fs.read(self.object, self.next + done as u64, &mut self.piece[done..]) {
                Ok(0) => break,
                Ok(count) => done += count,
                Err(error) => {
                    self.error = Some(error);
                    break;
                }
            }
        }
        self.piece.truncate(done & !3);
        self.next += self.piece.len() as u64;
        (!self.piece.is_empty()).then_some(())
    }
}

impl Iterator for Words<'_> {
    type Item = u32;

    fn next(&mut self) -> Option<u32> {
        if self.at == self.piece.len() {
            self.refill()?;
        }
        let word = self.piece.get(self.at..)?.first_chunk()?;
        self.at += 4;
        Some(u32::from_le_bytes(*word))
    }
}

/// The next number of two words.
pub(super) fn wide(words: &mut impl Iterator<Item = u32>) -> Option<u64> {
    let (low, high) = (words.next()?, words.next()?);
    Some(u64::from(high) << 32 | u64::from(low))
}

/// Appends words.
pub(super) fn put(bytes: &mut Vec<u8>, words: &[u32]) {
    words.iter().for_each(|word| bytes.extend(word.to_le_bytes()));
}

/// Appends a number as two words.
pub(super) fn put_wide(bytes: &mut Vec<u8>, number: u64) {
    bytes.extend(number.to_le_bytes());
}

/// A file.
#[derive(Debug)]
pub(super) struct Log {
    name: &'static [u8],
    /// The file while it is written anew.
    new_name: &'static [u8],
    pub(super) object: ObjNum,
    /// The end of its last group.
    pub(super) end: u64,
    /// Entries before it.
    pub(super) entries: usize,
}

impl Log {
    /// The file with this name. It is made if there is none yet.
    ///
    /// # Errors
    /// [`Error::Files`](crate::server::Error::Files).
    pub(super) fn open(fs: &FileSystem, name: &'static [u8], new_name: &'static [u8]) -> Result<Self> {
        let object = match fs.lookup(fs.root(), name) {
            Ok(object) => object,
            Err(zpl::Error::NoEntry { .. }) => {
                fs.create(fs.root(), name, &NewFile::new(Kind::Regular, 0o600))?.object
            }
            Err(error) => return Err(error.into()),
        };
        Ok(Self { name, new_name, object, end: 0, entries: 0 })
    }

    /// What it has.
    ///
    /// # Errors
    /// [`Error::Files`](crate::server::Error::Files).
    pub(super) fn bytes(&self, fs: &FileSystem) -> Result<Vec<u8>> {
        let size = fs.node(self.object)?.attr().size;
        let mut bytes = vec![0; usize::try_from(size.min(MOST_BYTES)).unwrap_or(0)];
        let mut at = 0;
        while at < bytes.len() {
            let to = bytes.len().min(at + PIECE);
            match fs.read(self.object, at as u64, &mut bytes[at..to])? {
                0 => break,
                count => at += count,
            }
        }
        bytes.truncate(at);
        Ok(bytes)
    }

    /// The words before this end.
    pub(super) fn words<'a>(&self, fs: &'a FileSystem, end: u64) -> Words<'a> {
        let (object, piece) = (self.object, Vec::new());
        Words { fs, object, piece, at: 0, next: 0, end, error: None }
    }

    /// The end of the last group, if the file ends with it: the length of the file, the txg and the
    /// owner.
    ///
    /// # Errors
    /// [`Error::Files`](crate::server::Error::Files).
    pub(super) fn tail(&self, fs: &FileSystem) -> Result<Option<(u64, Txg, Owner)>> {
        let size = fs.node(self.object)?.attr().size;
        let mut bytes = [0; END_SIZE];
        let Some(begin) = size.checked_sub(END_SIZE as u64).filter(|_| size <= MOST_BYTES) else {
            return Ok(None);
        };
        if fs.read(self.object, begin, &mut bytes)? < END_SIZE {
            return Ok(None);
        }
        let mut words = words_of(&bytes);
        let is_end = words.next() == Some(END);
        let numbers = wide(&mut words).zip(wide(&mut words)).zip(wide(&mut words));
        Ok(numbers.filter(|_| is_end).map(|((txg, pool), dir)| (size, Txg(txg), (pool, dir))))
    }

    /// Appends a group with this number of entries before its end.
    ///
    /// # Errors
    /// [`Error::Files`](crate::server::Error::Files).
    pub(super) fn append(&mut self, fs: &FileSystem, group: &[u8], entries: usize) -> Result<()> {
        // A part of another group must not follow.
        fs.truncate(self.object, self.end, false)?;
        write(fs, self.object, self.end, group)?;
        (self.end, self.entries) = (self.end + group.len() as u64, self.entries + entries);
        Ok(())
    }

    /// Writes a new file, which then takes the place of this one.
    ///
    /// # Errors
    /// [`Error::Files`](crate::server::Error::Files).
    pub(super) fn write_anew(&mut self, fs: &FileSystem, bytes: &[u8], entries: usize) -> Result<()> {
        let root = fs.root();
        match fs.unlink(root, self.new_name) {
            Ok(Some(old)) => fs.reap(old)?,
            Ok(None) | Err(zpl::Error::NoEntry { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        let object = fs.create(root, self.new_name, &NewFile::new(Kind::Regular, 0o600))?.object;
        write(fs, object, 0, bytes)?;
        let old = fs.rename((root, self.new_name), (root, self.name), Rename::Replace)?;
        (self.object, self.end, self.entries) = (object, bytes.len() as u64, entries);
        Ok(old.map_or(Ok(()), |old| fs.reap(old))?)
    }
}

pub(super) fn write(fs: &FileSystem, object: ObjNum, at: u64, bytes: &[u8]) -> Result<()> {
    for (number, piece) in bytes.chunks(PIECE).enumerate() {
        fs.write(object, at + (number * PIECE) as u64, piece, false)?;
    }
    Ok(())
}
