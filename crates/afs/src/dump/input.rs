//! The bytes of a dump, one buffer at a time.

use std::io::BufRead;

use crate::{Error, Place, Record, Result};

/// A stream of bytes that knows its offset and the record that it is in.
#[derive(Debug)]
pub(super) struct Input<R> {
    from: R,
    /// Bytes of its buffer that were used.
    used: usize,
    at: u64,
    /// The record that errors name.
    record: Record,
    /// Where that record begins.
    began: u64,
}

impl<R: BufRead> Input<R> {
    pub fn new(from: R) -> Self {
        Self { from, used: 0, at: 0, record: Record::DumpHeader, began: 0 }
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

    /// The next bytes. Waits for some if none are there: they are empty only at the end.
    fn fill(&mut self) -> Result<&[u8]> {
        self.from.consume(std::mem::take(&mut self.used));
        let place = self.place();
        loop {
            match self.from.fill_buf() {
                Ok(_) => break,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(source) => return Err(Error::Read { place, source }),
            }
        }
        // The buffer is still there, so this waits for nothing, except at the end, where it is
        // empty. The loop can't return it, since the compiler takes it as borrowed for each turn.
        self.from.fill_buf().map_err(|source| Error::Read { place, source })
    }

    /// The next bytes of the input are used.
    fn advance(&mut self, n: usize) {
        self.used += n;
        self.at += n as u64;
    }

    /// Whether the input is at its end.
    pub fn ended(&mut self) -> Result<bool> {
        Ok(self.fill()?.is_empty())
    }

    pub fn u8(&mut self, field: &'static str) -> Result<u8> {
        let Some(&byte) = self.fill()?.first() else {
            return Err(Error::Truncated { place: self.place(), field });
        };
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
            let next = self.fill()?;
            let n = next.len().min(to.len() - done);
            to[done..done + n].copy_from_slice(&next[..n]);
            if n == 0 {
                return Err(Error::Truncated { place: self.place(), field });
            }
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
            let some = (self.fill()?.len() as u64).min(left);
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
        let n = usize::try_from(max.min(self.fill()?.len() as u64)).expect("a buffer's length");
        if n == 0 {
            return Err(Error::Truncated { place: self.place(), field });
        }
        let place = self.place();
        self.advance(n);
        // They are taken out of the buffer when the next ones are wanted.
        let bytes = self.from.fill_buf().map_err(|source| Error::Read { place, source })?;
        Ok(&bytes[..n])
    }
}
