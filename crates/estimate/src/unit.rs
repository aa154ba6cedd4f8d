//! Reads a unit of a file, and what its records would take.

use crate::origin::{File, Origin, PAGE};
use crate::rule::{Fate, Space, fate};
use crate::{Deadline, Options};
use codec::compress;
use ondisk::CompressKind;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

/// The unit of a file's block size.
const BLOCK_MIN: u64 = 512;

/// What to do with a unit.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Work<'a> {
    /// Compress all records.
    pub(crate) measure: bool,
    /// For each record size, the prefixes of hashes to keep: those up to this number.
    pub(crate) keep: Option<&'a [u64]>,
}

/// What the records of one size, compressed in one way, take of a unit.
#[derive(Debug, Clone, Default)]
pub(crate) struct Cell {
    pub(crate) space: Space,
    /// What embedded blocks would take on devices if they were not embedded.
    pub(crate) apart: u64,
    /// Pointers that are not holes, for each indirect block.
    pub(crate) groups: Vec<u32>,
    /// The payload of the last pointer, if it is embedded.
    pub(crate) payload: Option<u8>,
}

/// A record whose hash was kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Kept {
    /// Index of the record size.
    pub(crate) record: usize,
    pub(crate) hash: u128,
    /// Bytes on devices, for each compressor; 0 for a hole.
    pub(crate) sizes: Box<[u32]>,
}

/// A unit that was read.
#[derive(Debug, Default)]
pub(crate) struct Unit {
    /// A cell for each record size and compressor.
    pub(crate) cells: Vec<Cell>,
    pub(crate) kept: Vec<Kept>,
    /// For each record size, what records of zeros take without compression.
    pub(crate) zeros: Vec<u64>,
    /// Bytes that were read.
    pub(crate) read: u64,
}

/// Memory of one thread.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    data: Vec<u8>,
    packed: Vec<u8>,
    pages: Vec<bool>,
}

/// A unit to read.
#[derive(Debug, Clone)]
pub(crate) struct Job {
    pub(crate) file: Arc<File>,
    pub(crate) offset: u64,
    /// It is the last of its file.
    pub(crate) last: bool,
}

/// Reads units on several threads. The results have the order of the jobs. `None` after the
/// deadline.
pub(crate) fn read_all(
    origin: &dyn Origin,
    jobs: &[Job],
    options: &Options,
    work: Work<'_>,
    deadline: Deadline,
) -> Vec<Option<io::Result<Unit>>> {
    let done: Vec<OnceLock<io::Result<Unit>>> = jobs.iter().map(|_| OnceLock::new()).collect();
    let next = AtomicUsize::new(0);
    let run = || {
        let mut scratch = Scratch::default();
        while !deadline.has_passed()
            && let Some((job, slot)) = {
                let at = next.fetch_add(1, Ordering::Relaxed);
                jobs.get(at).zip(done.get(at))
            }
        {
            let _ = slot.set(read(origin, &job.file, job.offset, options, work, &mut scratch));
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..options.threads.min(jobs.len()) {
            scope.spawn(run);
        }
        run();
    });
    done.into_iter().map(OnceLock::into_inner).collect()
}

/// Bytes of a file's blocks, in a file system with this record size. 0 for an empty file.
pub(crate) fn block_size(size: u64, record: u64) -> u64 {
    if size <= record { size.next_multiple_of(BLOCK_MIN) } else { record }
}

/// Number of blocks in a range of a file that begins with a block.
pub(crate) fn blocks(len: u64, block: u64) -> u64 {
    if len == 0 { 0 } else { len.div_ceil(block) }
}

/// Reads the unit of a file at `offset`.
///
/// # Errors
/// The file can't be read, or is no longer the file that the walk found.
fn read(
    origin: &dyn Origin,
    file: &File,
    offset: u64,
    options: &Options,
    work: Work<'_>,
    scratch: &mut Scratch,
) -> io::Result<Unit> {
    let len = (file.size - offset).min(options.unit());
    if len == 0 {
        return Ok(Unit::default());
    }
    let most = options.records.iter().map(|r| len.next_multiple_of(block_size(file.size, (*r).into()))).max();
    let Scratch { data, packed, pages } = scratch;
    data.clear();
    data.resize(most.unwrap_or(len) as usize, 0);
    pages.clear();
    pages.resize(len.div_ceil(PAGE) as usize, !file.sparse);
    let read = origin.fill(file, offset, &mut data[..len as usize], pages)?;
    let mut unit = Unit { read, ..Unit::default() };
    for (index, record) in options.records.iter().enumerate() {
        let records = Records { index, record: u64::from(*record), file, offset, len };
        records.measure(options, work, (data, pages), packed, &mut unit);
    }
    Ok(unit)
}

/// The records of one size in a unit.
struct Records<'a> {
    index: usize,
    record: u64,
    file: &'a File,
    offset: u64,
    len: u64,
}

impl Records<'_> {
    fn measure(
        &self,
        options: &Options,
        work: Work<'_>,
        (data, pages): (&[u8], &[bool]),
        packed: &mut Vec<u8>,
        unit: &mut Unit,
    ) {
        let (sector, block) = (options.sector(), block_size(self.file.size, self.record));
        let count = options.compressors.len();
        let group = crate::pointers::PER_BLOCK * block;
        let groups = (self.offset + self.len).div_ceil(group) - self.offset / group;
        let mut zeros = 0;
        let mut cells = vec![Cell { groups: vec![0; groups as usize], ..Cell::default() }; count];
        for i in 0..blocks(self.len, block) {
            let at = i * block;
            let own = (at / PAGE) as usize..((at + block).min(self.len).div_ceil(PAGE) as usize);
            if !pages[own].contains(&true) {
                continue;
            }
            let record = &data[at as usize..(at + block) as usize];
            let zero = compress::is_zero(record);
            let hash = match work.keep {
                Some(keep) if !zero => self.hash(record, keep[self.index]),
                Some(_) if options.compressors.iter().any(|by| by.kind == CompressKind::Off) => {
                    zeros += block.next_multiple_of(sector);
                    None
                }
                Some(_) | None => None,
            };
            if !work.measure && hash.is_none() {
                continue;
            }
            let place = ((self.offset + at) / group - self.offset / group) as usize;
            let mut sizes = vec![0; if hash.is_some() { count } else { 0 }];
            for (c, by) in options.compressors.iter().enumerate() {
                let fate = fate(by, sector, record, zero, packed);
                cells[c].count(sector, fate, block, place);
                if let Some(size) = sizes.get_mut(c) {
                    *size = match fate {
                        Fate::Hole => 0,
                        Fate::Embedded { apart: psize, .. } | Fate::Stored(psize) => {
                            psize.next_multiple_of(sector) as u32
                        }
                    };
                }
            }
            if let Some(hash) = hash {
                unit.kept.push(Kept { record: self.index, hash, sizes: sizes.into() });
            }
        }
        unit.cells.extend(cells);
        unit.zeros.push(zeros);
    }

    /// The hash of a record, if it is one to keep. Records of different lengths have different
    /// hashes.
    fn hash(&self, record: &[u8], most: u64) -> Option<u128> {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&(record.len() as u64).to_le_bytes());
        hasher.update(record);
        let bytes = *hasher.finalize().as_bytes();
        let hash = u128::from_le_bytes(bytes[..16].try_into().expect("16 of 32 bytes"));
        ((hash >> 64) as u64 <= most).then_some(hash)
    }
}

impl Cell {
    fn count(&mut self, sector: u64, fate: Fate, lsize: u64, group: usize) {
        match fate {
            Fate::Hole => return,
            Fate::Embedded { payload, apart } => {
                self.space.psize += u64::from(payload);
                self.space.logical += lsize;
                self.apart += apart.next_multiple_of(sector);
                self.payload = Some(payload);
            }
            Fate::Stored(psize) => {
                self.space.data(sector, psize, lsize);
                self.payload = None;
            }
        }
        self.groups[group] += 1;
    }
}
