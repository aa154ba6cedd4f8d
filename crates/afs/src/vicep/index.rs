//! The indexes of a volume: records of one size, behind a head that takes the place of one.

use std::fs::File;
use std::io::{self, BufReader, Read};

use super::layout::{DiskVnode, LARGE_SIZE, SMALL_SIZE, index_head};
use super::names::VNODE_MASK;
use super::{Damage, Part, Result};
use crate::types::Vnode;

/// Bytes that are read at once.
const BUFFER: usize = 64 << 10;

/// The index of directories, or that of files and links.
#[derive(Debug)]
pub(super) struct Index {
    of_directories: bool,
    file: File,
    name: String,
    /// Its records, without the head.
    records: u32,
}

impl Index {
    /// Checks the head and the length of an index.
    pub fn new((file, length): (File, u64), name: String, of_directories: bool) -> Result<Self> {
        let part = if of_directories { Part::LargeIndex } else { Part::SmallIndex };
        let size = size_of(of_directories) as u64;
        let mut head = [0; 8];
        let read = read_at(&file, &mut head, 0).map_err(|source| unreadable(&name, source).of(part))?;
        index_head(&head[..read], of_directories).map_err(|damage| damage.of(part))?;
        // One with a head alone may be shorter than a record.
        let records = match length {
            0..=8 => 0,
            length if length % size == 0 => length / size - 1,
            length => return Err(Damage::Length { found: length, wanted: length / size * size }.of(part)),
        };
        let most = u64::from(VNODE_MASK / 2);
        if records > most {
            return Err(Damage::Length { found: length, wanted: (most + 1) * size }.of(part));
        }
        let records = u32::try_from(records).expect("checked above");
        Ok(Self { of_directories, file, name, records })
    }

    /// Calls `each` with the vnodes that are in use, in ascending order, and with what is damaged.
    /// An error of `each` ends the walk.
    pub fn each<E>(
        &self,
        each: &mut dyn FnMut(Result<DiskVnode>) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        let part = if self.of_directories { Part::LargeIndex } else { Part::SmallIndex };
        let size = size_of(self.of_directories);
        let mut from = BufReader::with_capacity(BUFFER, At { file: &self.file, at: size as u64 });
        let mut record = vec![0; size];
        for number in 0..self.records {
            if let Err(source) = from.read_exact(&mut record) {
                return each(Err(unreadable(&self.name, source).of(part)));
            }
            // Directories have odd numbers, and 1 is the first; 2 is the first of the others.
            let vnode = Vnode(2 * number + 1 + u32::from(!self.of_directories));
            match DiskVnode::decode(&record, vnode) {
                Ok(None) => {}
                Ok(Some(found)) => each(Ok(found))?,
                Err(damage) => each(Err(damage.of(Part::Vnode(vnode))))?,
            }
        }
        Ok(())
    }
}

fn size_of(of_directories: bool) -> usize {
    if of_directories { LARGE_SIZE } else { SMALL_SIZE }
}

pub(super) fn unreadable(name: &str, source: io::Error) -> Damage {
    Damage::File { file: name.to_owned(), source }
}

/// Reads as much as there is.
pub(super) fn read_at(file: &File, buffer: &mut [u8], at: u64) -> io::Result<usize> {
    let mut done = 0;
    while done < buffer.len() {
        match rustix::io::pread(file, &mut buffer[done..], at + done as u64) {
            Ok(0) => break,
            Ok(n) => done += n,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(done)
}

/// A file from some byte on.
struct At<'a> {
    file: &'a File,
    at: u64,
}

impl Read for At<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = read_at(self.file, buffer, self.at)?;
        self.at += n as u64;
        Ok(n)
    }
}
