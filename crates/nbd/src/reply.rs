//! Answers to requests, as bytes.
//!
//! # Theory
//! A reply is a list of slices that are written one after another. They are headers, which this
//! module makes, and ranges of the data, which stay in the buffer of the read.

use crate::abi::{
    BASE_ALLOCATION_ID, ChunkHead, SIMPLE_REPLY_MAGIC, STRING_MAX, STRUCTURED_REPLY_MAGIC, SimpleReply, chunk,
};
use crate::error::Code;
use std::io::IoSlice;
use std::ops::Range;
use zerocopy::IntoBytes;

/// The answer to a request.
#[derive(Debug, Default)]
pub struct Reply {
    heads: Vec<u8>,
    data: Vec<u8>,
    pieces: Vec<Piece>,
}

#[derive(Debug)]
enum Piece {
    Head(Range<usize>),
    Data(Range<usize>),
}

impl Reply {
    /// A simple reply without data: success or an error.
    pub fn simple(cookie: u64, error: Option<Code>) -> Reply {
        let mut reply = Reply::default();
        reply.simple_head(cookie, error);
        reply
    }

    /// A simple reply with all data of a read.
    pub fn simple_data(cookie: u64, data: Vec<u8>) -> Reply {
        let mut reply = Reply::default();
        reply.simple_head(cookie, None);
        reply.data = data;
        reply.pieces.push(Piece::Data(0..reply.data.len()));
        reply
    }

    /// A structured reply without data: success.
    pub fn done(cookie: u64) -> Reply {
        let mut reply = Reply::default();
        reply.chunk(cookie, chunk::DONE, chunk::NONE, 0);
        reply
    }

    /// A structured reply with an error and its text.
    pub fn error(cookie: u64, code: Code, why: &str) -> Reply {
        let mut end = why.len().min(STRING_MAX);
        while !why.is_char_boundary(end) {
            end -= 1;
        }
        let why = &why.as_bytes()[..end];
        let mut reply = Reply::default();
        let mut body = (code as u32).to_be_bytes().to_vec();
        body.extend((why.len() as u16).to_be_bytes());
        body.extend(why);
        reply.chunk(cookie, chunk::DONE, chunk::ERROR, body.len());
        reply.head(&body);
        reply
    }

    /// A structured reply with the data of a read from byte `offset` on.
    ///
    /// `extents` has the ends of the runs of zeros (`true`) and of data, in order. The last end is
    /// the length of `data`.
    ///
    /// # Panics
    /// If the ends don't ascend.
    pub fn read(cookie: u64, offset: u64, data: Vec<u8>, extents: &[(usize, bool)]) -> Reply {
        let mut reply = Reply { data, ..Reply::default() };
        let mut start = 0;
        for (n, &(end, zero)) in extents.iter().enumerate() {
            let flags = if n + 1 == extents.len() { chunk::DONE } else { 0 };
            let at = (offset + start as u64).to_be_bytes();
            if zero {
                reply.chunk(cookie, flags, chunk::OFFSET_HOLE, 12);
                reply.head(&at);
                reply.head(&((end - start) as u32).to_be_bytes());
            } else {
                reply.chunk(cookie, flags, chunk::OFFSET_DATA, 8 + end - start);
                reply.head(&at);
                reply.pieces.push(Piece::Data(start..end));
            }
            start = end;
        }
        reply
    }

    /// A structured reply with extents: their lengths and states.
    pub fn status(cookie: u64, extents: &[(u32, u32)]) -> Reply {
        let mut reply = Reply::default();
        reply.chunk(cookie, chunk::DONE, chunk::BLOCK_STATUS, 4 + 8 * extents.len());
        reply.head(&BASE_ALLOCATION_ID.to_be_bytes());
        for (len, state) in extents {
            reply.head(&len.to_be_bytes());
            reply.head(&state.to_be_bytes());
        }
        reply
    }

    fn simple_head(&mut self, cookie: u64, error: Option<Code>) {
        let error = error.map_or(0, |code| code as u32);
        let head =
            SimpleReply { magic: SIMPLE_REPLY_MAGIC.into(), error: error.into(), cookie: cookie.into() };
        self.head(head.as_bytes());
    }

    fn chunk(&mut self, cookie: u64, flags: u16, kind: u16, len: usize) {
        let len = u32::try_from(len).expect("a request is shorter than 4 GiB");
        let head = ChunkHead {
            magic: STRUCTURED_REPLY_MAGIC.into(),
            flags: flags.into(),
            kind: kind.into(),
            cookie: cookie.into(),
            len: len.into(),
        };
        self.head(head.as_bytes());
    }

    fn head(&mut self, bytes: &[u8]) {
        let start = self.heads.len();
        self.heads.extend_from_slice(bytes);
        match self.pieces.last_mut() {
            Some(Piece::Head(range)) => range.end = self.heads.len(),
            _ => self.pieces.push(Piece::Head(start..self.heads.len())),
        }
    }

    /// The slices, in the order to send them.
    pub fn slices(&self) -> impl Iterator<Item = IoSlice<'_>> {
        self.pieces.iter().map(|piece| match piece {
            Piece::Head(range) => IoSlice::new(&self.heads[range.clone()]),
            Piece::Data(range) => IoSlice::new(&self.data[range.clone()]),
        })
    }

    /// All bytes of the reply.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.slices().flat_map(|slice| slice.to_vec()).collect()
    }
}
