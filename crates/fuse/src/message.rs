//! Requests decoded and answers encoded, as bytes.

use crate::abi::{InHeader, OutHeader};
use rustix::io::Errno;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// A request as read from the FUSE device.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// Its header.
    pub head: InHeader,
    body: &'a [u8],
}

impl<'a> Request<'a> {
    /// Takes the bytes of one read. `None` if they are not exactly one request, which no kernel
    /// sends.
    pub fn parse(bytes: &'a [u8]) -> Option<Self> {
        let (head, body) = InHeader::read_from_prefix(bytes).ok()?;
        (head.len as usize == bytes.len()).then_some(Self { head, body })
    }

    /// Decodes the fixed body of the opcode.
    ///
    /// # Errors
    /// `EINVAL`: the request is too short.
    pub fn body<T: FromBytes + KnownLayout + Immutable>(&self) -> Result<T, Errno> {
        T::read_from_prefix(self.body).map(|(body, _)| body).map_err(|_| Errno::INVAL)
    }

    /// The name that follows a body of `T` (`()` for none), without its NUL.
    ///
    /// # Errors
    /// `EINVAL`: the request is too short or has no NUL.
    pub fn name_after<T>(&self) -> Result<&'a [u8], Errno> {
        let rest = self.body.get(size_of::<T>()..).ok_or(Errno::INVAL)?;
        let end = rest.iter().position(|&byte| byte == 0).ok_or(Errno::INVAL)?;
        Ok(&rest[..end])
    }

    /// The two names that follow a body of `T`, each without its NUL.
    ///
    /// # Errors
    /// `EINVAL`: the request is too short or has fewer than two NULs.
    pub fn names_after<T>(&self) -> Result<(&'a [u8], &'a [u8]), Errno> {
        let first = self.name_after::<T>()?;
        let rest = &self.body[size_of::<T>() + first.len() + 1..];
        let end = rest.iter().position(|&byte| byte == 0).ok_or(Errno::INVAL)?;
        Ok((first, &rest[..end]))
    }

    /// The bytes that follow a body of `T`.
    ///
    /// # Errors
    /// `EINVAL`: the request is shorter than the body.
    pub fn rest_after<T>(&self) -> Result<&'a [u8], Errno> {
        self.body.get(size_of::<T>()..).ok_or(Errno::INVAL)
    }
}

/// An answer under construction, in a buffer that is reused for each request.
///
/// The buffer begins with space for the header. So one write sends the answer, and no bytes move.
#[derive(Debug)]
pub struct Answer {
    buf: Vec<u8>,
    len: usize,
}

const HEAD: usize = size_of::<OutHeader>();

impl Default for Answer {
    fn default() -> Self {
        Self { buf: vec![0; HEAD + 4096], len: HEAD }
    }
}

impl Answer {
    /// Removes all bytes.
    pub fn clear(&mut self) {
        self.len = HEAD;
    }

    /// Number of bytes so far, without the header.
    pub fn len(&self) -> usize {
        self.len - HEAD
    }

    /// Whether there are no bytes so far.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Space of `size` bytes after the present ones, for the caller to fill.
    ///
    /// It may contain bytes of earlier answers. It becomes part of the answer with
    /// [`Self::commit`].
    pub fn room(&mut self, size: usize) -> &mut [u8] {
        if self.buf.len() < self.len + size {
            self.buf.resize(self.len + size, 0);
        }
        &mut self.buf[self.len..self.len + size]
    }

    /// Adds the first `size` bytes of the last [`Self::room`] to the answer.
    ///
    /// # Panics
    /// If `size` is more than the buffer has.
    pub fn commit(&mut self, size: usize) {
        assert!(self.len + size <= self.buf.len(), "more was filled than there was room");
        self.len += size;
    }

    /// Appends bytes.
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.room(bytes.len()).copy_from_slice(bytes);
        self.commit(bytes.len());
    }

    /// Appends a structure.
    pub fn put<T: IntoBytes + Immutable>(&mut self, value: &T) {
        self.bytes(value.as_bytes());
    }

    /// Writes the header and returns the whole answer.
    ///
    /// An error replaces everything appended so far.
    ///
    /// # Panics
    /// If the answer has 4 GiB or more. Requests limit it to about a megabyte.
    pub fn finish(&mut self, unique: u64, result: Result<(), Errno>) -> &[u8] {
        let error = match result {
            Ok(()) => 0,
            Err(errno) => {
                self.len = HEAD;
                -errno.raw_os_error()
            }
        };
        let len = u32::try_from(self.len).expect("an answer is at most a megabyte and its head");
        self.buf[..HEAD].copy_from_slice(OutHeader { len, error, unique }.as_bytes());
        &self.buf[..self.len]
    }
}
