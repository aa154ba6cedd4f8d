//! The bytes of a dump, one buffer at a time.

use std::io::Read;

use crate::{Error, Place, Record, Result};

/// Size of the buffer: the largest piece of data.
const BUFFER: usize = 64 << 10;

/// A stream of bytes that knows its offset and the record that it is in.
#[derive(Debug)]
pub(super) struct Input<R> {
    from: R,
    buffer: Box<[u8]>,
    /// What of the buffer is not used yet.
    unused: std::ops::Range<usize>,
    at: u64,
    /// The record that errors name.
    record: Record,
    /// Where that record begins.
    began: u64,
}

impl<R: Read> Input<R> {
    pub fn new(from: R) -> Self {
        let buffer = vec![0; BUFFER].into_boxed_slice();
        Self { from, buffer, unused: 0..0, at: 0, record: Record::DumpHeader, began: 0 }
    }

    /// Notes that a record begins, whose first byte was read last.
    pub fn begin(&mut self, record: Record) {
        self.begin_at(record, self.before().at);
    }

    /// Notes that a record began at this byte.
    pub fn begin_at(&mut self, record: Record, began: u64) {
        (self.record, self.began) = (record, began);
    }

    /// The place where the current record begins.
    pub fn record_place(&self) -> Place {
        Place { record: self.record, at: self.began }
    }

    /// The place of the next byte.
    pub fn place(&self) -> Place {
        Place { record: self.record, at: self.at }
    }

    /// The place of the byte that was read last.
    pub fn before(&self) -> Place {
        Place { record: self.record, at: self.at.saturating_sub(1) }
    }

    /// Reads a buffer if none is left. Returns how many bytes are there: 0 at the end.
    fn fill(&mut self) -> Result<usize> {
        while self.unused.is_empty() {
            match self.from.read(&mut self.buffer) {
                Ok(0) => break,
                Ok(n) => self.unused = 0..n.min(BUFFER),
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(source) => return Err(Error::Read { place: self.place(), source }),
            }
        }
        Ok(self.unused.len())
    }

    fn advance(&mut self, n: usize) {
        self.unused.start += n;
        self.at += n as u64;
    }

    /// Whether the input is at its end.
    pub fn ended(&mut self) -> Result<bool> {
        Ok(self.fill()? == 0)
    }

    pub fn u8(&mut self, field: &'static str) -> Result<u8> {
        if self.fill()? == 0 {
            return Err(Error::Truncated { place: self.place(), field });
        }
        let byte = self.buffer[self.unused.start];
        self.advance(1);
        Ok(byte)
    }

    fn bytes<const N: usize>(&mut self, field: &'static str) -> Result<[u8; N]> {
        let mut bytes = [0; N];
        self.exact(&mut bytes, field)?;
        Ok(bytes)
    }

    /// Reads as many bytes as `to` takes.
    pub fn exact(&mut self, to: &mut [u8], field: &'static str) -> Result<()> {
        let mut done = 0;
        while done < to.len() {
            let n = self.fill()?.min(to.len() - done);
            if n == 0 {
                return Err(Error::Truncated { place: self.place(), field });
            }
            let from = self.unused.start;
            to[done..done + n].copy_from_slice(&self.buffer[from..from + n]);
            self.advance(n);
            done += n;
        }
        Ok(())
    }

    pub fn u16(&mut self, field: &'static str) -> Result<u16> {
        self.bytes(field).map(u16::from_be_bytes)
    }

    pub fn u32(&mut self, field: &'static str) -> Result<u32> {
        self.bytes(field).map(u32::from_be_bytes)
    }

    pub fn i32(&mut self, field: &'static str) -> Result<i32> {
        self.bytes(field).map(i32::from_be_bytes)
    }

    /// A string up to its NUL, `max` bytes at most.
    pub fn string(&mut self, max: usize, field: &'static str) -> Result<Vec<u8>> {
        let mut string = Vec::new();
        loop {
            match self.u8(field)? {
                0 => return Ok(string),
                _ if string.len() == max => {
                    return Err(Error::TooLong { place: self.before(), field, max });
                }
                byte => string.push(byte),
            }
        }
    }

    /// Skips `n` bytes.
    pub fn skip(&mut self, n: u64, field: &'static str) -> Result<()> {
        let mut left = n;
        while left > 0 {
            let some = (self.fill()? as u64).min(left);
            if some == 0 {
                return Err(Error::Truncated { place: self.place(), field });
            }
            self.advance(usize::try_from(some).expect("a buffer's length"));
            left -= some;
        }
        Ok(())
    }

    /// The next bytes, at least one and `max` at most.
    pub fn piece(&mut self, max: u64, field: &'static str) -> Result<&[u8]> {
        let n = usize::try_from(max.min(self.fill()? as u64)).expect("a buffer's length");
        if n == 0 {
            return Err(Error::Truncated { place: self.place(), field });
        }
        let from = self.unused.start;
        self.advance(n);
        Ok(&self.buffer[from..from + n])
    }
}
