//! Requests taken apart and answers put together, as bytes.

use crate::abi::{InHeader, OutHeader};
use rustix::io::Errno;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// A request as read from the device.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// Its head.
    pub head: InHeader,
    body: &'a [u8],
}

impl<'a> Request<'a> {
    /// Takes the bytes of one read. `None` when they are not one whole request, which no kernel sends.
    pub fn parse(bytes: &'a [u8]) -> Option<Self> {
        let (head, body) = InHeader::read_from_prefix(bytes).ok()?;
        (head.len as usize == bytes.len()).then_some(Self { head, body })
    }

    /// The fixed body of the opcode; `EINVAL` when it is too short.
    pub fn body<T: FromBytes + KnownLayout + Immutable>(&self) -> Result<T, Errno> {
        T::read_from_prefix(self.body).map(|(body, _)| body).map_err(|_| Errno::INVAL)
    }

    /// The name that follows a body of `T` (`()` for none), without its NUL; `EINVAL` when it has none.
    pub fn name_after<T>(&self) -> Result<&'a [u8], Errno> {
        let rest = self.body.get(size_of::<T>()..).ok_or(Errno::INVAL)?;
        let end = rest.iter().position(|&byte| byte == 0).ok_or(Errno::INVAL)?;
        Ok(&rest[..end])
    }

    /// The two names that follow a body of `T`, each without its NUL; `EINVAL` when they are not there.
    pub fn names_after<T>(&self) -> Result<(&'a [u8], &'a [u8]), Errno> {
        let first = self.name_after::<T>()?;
        let rest = &self.body[size_of::<T>() + first.len() + 1..];
        let end = rest.iter().position(|&byte| byte == 0).ok_or(Errno::INVAL)?;
        Ok((first, &rest[..end]))
    }

    /// The bytes that follow a body of `T`.
    pub fn rest_after<T>(&self) -> Result<&'a [u8], Errno> {
        self.body.get(size_of::<T>()..).ok_or(Errno::INVAL)
    }
}

/// An answer under construction: one buffer, kept from request to request.
///
/// The bytes lie behind room for the head, so that an answer goes out in one write without being moved.
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
    /// Forgets what was put in.
    pub fn clear(&mut self) {
        self.len = HEAD;
    }

    /// Bytes put in so far.
    pub fn len(&self) -> usize {
        self.len - HEAD
    }

    /// Whether nothing was put in.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Room of `size` bytes to be filled, after what is there; what it holds is left from earlier answers. It counts
    /// once [`Self::commit`] says so.
    pub fn room(&mut self, size: usize) -> &mut [u8] {
        if self.buf.len() < self.len + size {
            self.buf.resize(self.len + size, 0);
        }
        &mut self.buf[self.len..self.len + size]
    }

    /// Counts `size` bytes of the last [`Self::room`] in.
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

    /// Writes the head, which says whether the request went well, and gives the whole answer.
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
