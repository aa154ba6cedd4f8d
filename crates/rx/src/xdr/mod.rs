//! XDR: how arguments and results of calls are laid out in bytes.
//!
//! # Theory
//! Everything is in words of four bytes, big-endian. A string or array begins with its length, and
//! ends at a word boundary. The reader takes each length with a limit that its caller gives, and
//! refuses a length that the remaining bytes can't hold. So no claimed length causes an allocation.
//!
//! The bytes that fill a string up to a word must be there. Their values don't matter, as in other
//! implementations.
//!
//! # See
//! RFC 4506. OpenAFS: `src/rx/xdr.c`.

#[cfg(test)]
mod tests;

use crate::{Error, Result};

/// Reads values from bytes, one after the other.
#[derive(Debug, Clone)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

/// The length of `n` bytes up to a word boundary.
fn padded(n: usize) -> usize {
    n.next_multiple_of(4)
}

impl<'a> Reader<'a> {
    /// A reader at the first byte.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { rest: bytes }
    }

    /// What is not read yet.
    #[must_use]
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    fn take(&mut self, n: usize) -> Result<&'a [u8]> {
        let Some((head, rest)) = self.rest.split_at_checked(n) else {
            return Err(Error::Short { missing: n - self.rest.len() });
        };
        self.rest = rest;
        Ok(head)
    }

    fn words<const N: usize>(&mut self) -> Result<[u8; N]> {
        let bytes = self.take(N)?;
        Ok(bytes.try_into().expect("take returns as many bytes as it is given"))
    }

    /// An unsigned word (`afs_uint32`).
    ///
    /// # Errors
    /// [`Error::Short`].
    pub fn u32(&mut self) -> Result<u32> {
        self.words().map(u32::from_be_bytes)
    }

    /// A signed word (`afs_int32`).
    ///
    /// # Errors
    /// [`Error::Short`].
    pub fn i32(&mut self) -> Result<i32> {
        self.words().map(i32::from_be_bytes)
    }

    /// An unsigned number of two words (`afs_uint64`).
    ///
    /// # Errors
    /// [`Error::Short`].
    pub fn u64(&mut self) -> Result<u64> {
        self.words().map(u64::from_be_bytes)
    }

    /// A signed number of two words (`afs_int64`).
    ///
    /// # Errors
    /// [`Error::Short`].
    pub fn i64(&mut self) -> Result<i64> {
        self.words().map(i64::from_be_bytes)
    }

    /// A truth value. Every number but 0 is true.
    ///
    /// # Errors
    /// [`Error::Short`].
    pub fn bool(&mut self) -> Result<bool> {
        Ok(self.u32()? != 0)
    }

    /// Bytes whose length both sides know.
    ///
    /// # Errors
    /// [`Error::Short`].
    pub fn fixed(&mut self, n: usize) -> Result<&'a [u8]> {
        let bytes = self.take(n)?;
        self.take(padded(n) - n)?;
        Ok(bytes)
    }

    /// Bytes with their length before them, `limit` bytes at most.
    ///
    /// # Errors
    /// [`Error::TooLong`], [`Error::Short`].
    pub fn opaque(&mut self, limit: usize) -> Result<&'a [u8]> {
        let length = self.length(limit)?;
        self.fixed(length)
    }

    /// A string of `limit` bytes at most. It is in no particular encoding.
    ///
    /// # Errors
    /// [`Error::TooLong`], [`Error::Short`], and [`Error::Nul`] if a byte is 0: programs in C would
    /// end the string there.
    pub fn string(&mut self, limit: usize) -> Result<&'a [u8]> {
        let bytes = self.opaque(limit)?;
        if bytes.contains(&0) { Err(Error::Nul) } else { Ok(bytes) }
    }

    /// The number of elements of an array that follows, `limit` at most.
    ///
    /// Each element must take `size` bytes at least. So the number is one that the remaining bytes
    /// can hold, and a caller may allocate as many.
    ///
    /// # Errors
    /// [`Error::TooLong`], [`Error::Short`].
    pub fn array(&mut self, limit: usize, size: usize) -> Result<usize> {
        let count = self.length(limit)?;
        let bytes = count.saturating_mul(size);
        if bytes > self.rest.len() {
            return Err(Error::Short { missing: bytes - self.rest.len() });
        }
        Ok(count)
    }

    fn length(&mut self, limit: usize) -> Result<usize> {
        let length = self.u32()? as usize;
        if length > limit { Err(Error::TooLong { length, limit }) } else { Ok(length) }
    }

    /// Checks that everything was read.
    ///
    /// # Errors
    /// [`Error::Trailing`].
    pub fn finish(self) -> Result<()> {
        if self.rest.is_empty() { Ok(()) } else { Err(Error::Trailing { extra: self.rest.len() }) }
    }
}

/// Appends values to bytes.
#[derive(Debug, Clone, Default)]
pub struct Writer {
    bytes: Vec<u8>,
}

impl Writer {
    /// A writer without bytes.
    #[must_use]
    pub fn new() -> Writer {
        Writer::default()
    }

    /// A writer that does not allocate again before it has `n` bytes.
    #[must_use]
    pub fn with_capacity(n: usize) -> Writer {
        Writer { bytes: Vec::with_capacity(n) }
    }

    /// An unsigned word.
    pub fn u32(&mut self, value: u32) -> &mut Writer {
        self.bytes.extend_from_slice(&value.to_be_bytes());
        self
    }

    /// Unsigned words, all at once.
    pub fn words<const N: usize>(&mut self, values: [u32; N]) -> &mut Writer {
        self.bytes.extend_from_slice(values.map(u32::to_be_bytes).as_flattened());
        self
    }

    /// A signed word.
    pub fn i32(&mut self, value: i32) -> &mut Writer {
        self.u32(value.cast_unsigned())
    }

    /// An unsigned number of two words.
    pub fn u64(&mut self, value: u64) -> &mut Writer {
        self.bytes.extend_from_slice(&value.to_be_bytes());
        self
    }

    /// A signed number of two words.
    pub fn i64(&mut self, value: i64) -> &mut Writer {
        self.u64(value.cast_unsigned())
    }

    /// A truth value.
    pub fn bool(&mut self, value: bool) -> &mut Writer {
        self.u32(u32::from(value))
    }

    /// Bytes whose length both sides know.
    pub fn fixed(&mut self, bytes: &[u8]) -> &mut Writer {
        self.bytes.extend_from_slice(bytes);
        let fill = padded(bytes.len()) - bytes.len();
        self.bytes.extend_from_slice(&[0; 3][..fill]);
        self
    }

    /// Bytes or a string, with their length before them.
    ///
    /// # Panics
    /// If there are 4 GiB or more.
    pub fn opaque(&mut self, bytes: &[u8]) -> &mut Writer {
        self.u32(u32::try_from(bytes.len()).expect("arguments of calls are smaller than 4 GiB"));
        self.fixed(bytes)
    }

    /// What was written.
    #[must_use]
    pub fn finish(self) -> Vec<u8> {
        self.bytes
    }

    /// How many bytes were written.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether nothing was written.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }
}
