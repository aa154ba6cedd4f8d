//! A device in memory.

use observe::lock::RwLock;

use crate::{Device, Op, Result, check_range};

/// Unit of memory: a device of many gigabytes costs only what was written.
const CHUNK: usize = 64 << 10;

/// A device in memory, for tests and benchmarks. Unwritten bytes read as zeros and take no memory.
#[derive(Debug)]
pub struct MemDevice {
    name: String,
    size: u64,
    sector: u32,
    chunks: RwLock<std::collections::BTreeMap<u64, Box<[u8]>>>,
}

impl MemDevice {
    /// A device of `size` zeros with sectors of 512 bytes.
    pub fn new(name: &str, size: u64) -> Self {
        Self::with_sector(name, size, 512)
    }

    /// A device of `size` zeros with sectors of `sector` bytes.
    pub fn with_sector(name: &str, size: u64, sector: u32) -> Self {
        Self { name: name.to_owned(), size, sector, chunks: RwLock::default() }
    }

    /// A device that holds a copy of `bytes`.
    pub fn from_bytes(name: &str, bytes: &[u8]) -> Self {
        let device = Self::new(name, bytes.len() as u64);
        device.store(bytes, 0);
        device
    }

    fn store(&self, buf: &[u8], offset: u64) {
        let mut chunks = self.chunks.write();
        for (index, at, range) in pieces(offset, buf.len()) {
            let chunk = chunks.entry(index).or_insert_with(|| vec![0; CHUNK].into());
            let len = range.len();
            chunk[at..at + len].copy_from_slice(&buf[range]);
        }
    }
}

/// The chunks that a range touches: (number of the chunk, offset in it, range of the buffer).
fn pieces(offset: u64, len: usize) -> impl Iterator<Item = (u64, usize, std::ops::Range<usize>)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        if done == len {
            return None;
        }
        let pos = offset + done as u64;
        let at = (pos % CHUNK as u64) as usize;
        let n = (CHUNK - at).min(len - done);
        let piece = (pos / CHUNK as u64, at, done..done + n);
        done += n;
        Some(piece)
    })
}

impl Device for MemDevice {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        check_range(self, Op::Read, offset, buf.len() as u64)?;
        let chunks = self.chunks.read();
        for (index, at, range) in pieces(offset, buf.len()) {
            let len = range.len();
            match chunks.get(&index) {
                Some(chunk) => buf[range].copy_from_slice(&chunk[at..at + len]),
                None => buf[range].fill(0),
            }
        }
        Ok(())
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        check_range(self, Op::Write, offset, buf.len() as u64)?;
        self.store(buf, offset);
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }

    fn trim(&self, offset: u64, len: u64) -> Result<()> {
        check_range(self, Op::Trim, offset, len)?;
        // Whole chunks only: a trim promises nothing about later reads.
        let first = offset.div_ceil(CHUNK as u64);
        let last = (offset + len) / CHUNK as u64;
        let mut chunks = self.chunks.write();
        let gone: Vec<u64> = chunks.range(first..last.max(first)).map(|(i, _)| *i).collect();
        for index in gone {
            chunks.remove(&index);
        }
        Ok(())
    }

    fn size(&self) -> u64 {
        self.size
    }

    fn logical_sector(&self) -> u32 {
        self.sector
    }

    fn physical_sector(&self) -> u32 {
        self.sector
    }

    fn name(&self) -> &str {
        &self.name
    }
}
