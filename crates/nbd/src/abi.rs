//! The protocol's numbers and fixed layouts. Everything is big-endian on the wire.
//!
//! # See
//! `doc/proto.md` of the NBD project, which has the names.

use zerocopy::byteorder::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// What a server says first (`NBDMAGIC`).
pub const INIT_MAGIC: u64 = 0x4e42_444d_4147_4943;
/// What follows in the newstyle negotiation, and begins each option (`IHAVEOPT`).
pub const OPTION_MAGIC: u64 = 0x4948_4156_454f_5054;
/// Begins each answer to an option.
pub const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
/// Begins each request (`NBD_REQUEST_MAGIC`).
pub const REQUEST_MAGIC: u32 = 0x2560_9513;
/// Begins a simple reply (`NBD_SIMPLE_REPLY_MAGIC`).
pub const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
/// Begins a chunk of a structured reply (`NBD_STRUCTURED_REPLY_MAGIC`).
pub const STRUCTURED_REPLY_MAGIC: u32 = 0x668e_33ef;

/// Handshake flags, of the server and of the client (`NBD_FLAG_FIXED_NEWSTYLE`, `NBD_FLAG_NO_ZEROES`).
pub mod handshake {
    /// Options other than [`super::opt::EXPORT_NAME`] are understood.
    pub const FIXED_NEWSTYLE: u16 = 1;
    /// No zeroes follow the answer to [`super::opt::EXPORT_NAME`].
    pub const NO_ZEROES: u16 = 1 << 1;
}

/// What an export can do (`NBD_FLAG_*`, transmission flags).
pub mod flag {
    /// There are flags.
    pub const HAS_FLAGS: u16 = 1;
    /// It can't be written.
    pub const READ_ONLY: u16 = 1 << 1;
    /// Flush is understood.
    pub const SEND_FLUSH: u16 = 1 << 2;
    /// Forced unit access is understood.
    pub const SEND_FUA: u16 = 1 << 3;
    /// Trim is understood.
    pub const SEND_TRIM: u16 = 1 << 5;
    /// Write-zeroes is understood.
    pub const SEND_WRITE_ZEROES: u16 = 1 << 6;
    /// A read may ask for its data in one piece.
    pub const SEND_DF: u16 = 1 << 7;
    /// A flush on one connection covers all.
    pub const CAN_MULTI_CONN: u16 = 1 << 8;
    /// Cache is understood.
    pub const SEND_CACHE: u16 = 1 << 10;
    /// Write-zeroes may ask to be quick or refused.
    pub const SEND_FAST_ZERO: u16 = 1 << 11;
}

/// Options (`NBD_OPT_*`).
pub mod opt {
    /// Choose an export and begin, without an answer that could be an error.
    pub const EXPORT_NAME: u32 = 1;
    /// End.
    pub const ABORT: u32 = 2;
    /// List the exports.
    pub const LIST: u32 = 3;
    /// Encrypt the connection.
    pub const STARTTLS: u32 = 5;
    /// Tell about an export.
    pub const INFO: u32 = 6;
    /// Choose an export and begin.
    pub const GO: u32 = 7;
    /// Structured replies.
    pub const STRUCTURED_REPLY: u32 = 8;
    /// List metadata contexts.
    pub const LIST_META_CONTEXT: u32 = 9;
    /// Choose metadata contexts.
    pub const SET_META_CONTEXT: u32 = 10;
}

/// Answers to options (`NBD_REP_*`).
pub mod rep {
    /// Done.
    pub const ACK: u32 = 1;
    /// An export.
    pub const SERVER: u32 = 2;
    /// Something about an export.
    pub const INFO: u32 = 3;
    /// A metadata context.
    pub const META_CONTEXT: u32 = 4;
    /// The option is not known.
    pub const ERR_UNSUP: u32 = 1 << 31 | 1;
    /// The option makes no sense.
    pub const ERR_INVALID: u32 = 1 << 31 | 3;
    /// Not before the connection is encrypted.
    pub const ERR_TLS_REQD: u32 = 1 << 31 | 5;
    /// There is no such export.
    pub const ERR_UNKNOWN: u32 = 1 << 31 | 6;
    /// The server is ending.
    pub const ERR_SHUTDOWN: u32 = 1 << 31 | 7;
    /// The option is too long.
    pub const ERR_TOO_BIG: u32 = 1 << 31 | 9;
}

/// What is told about an export (`NBD_INFO_*`).
pub mod info {
    /// Size and flags.
    pub const EXPORT: u16 = 0;
    /// The name as it is listed.
    pub const NAME: u16 = 1;
    /// A description for people.
    pub const DESCRIPTION: u16 = 2;
    /// Sizes of requests.
    pub const BLOCK_SIZE: u16 = 3;
}

/// Commands (`NBD_CMD_*`).
pub mod cmd {
    /// Read.
    pub const READ: u16 = 0;
    /// Write.
    pub const WRITE: u16 = 1;
    /// Disconnect.
    pub const DISC: u16 = 2;
    /// Make durable what was answered.
    pub const FLUSH: u16 = 3;
    /// Give back room.
    pub const TRIM: u16 = 4;
    /// Have it at hand.
    pub const CACHE: u16 = 5;
    /// Make a range read as zeroes.
    pub const WRITE_ZEROES: u16 = 6;
    /// Where data is, and where holes are.
    pub const BLOCK_STATUS: u16 = 7;
}

/// Flags of commands (`NBD_CMD_FLAG_*`).
pub mod cmd_flag {
    /// Durable before it is answered.
    pub const FUA: u16 = 1;
    /// Zeroes are to take room.
    pub const NO_HOLE: u16 = 1 << 1;
    /// The data in one piece.
    pub const DF: u16 = 1 << 2;
    /// One extent only.
    pub const REQ_ONE: u16 = 1 << 3;
    /// Quick, or refused.
    pub const FAST_ZERO: u16 = 1 << 4;
}

/// Chunks of structured replies (`NBD_REPLY_TYPE_*`).
pub mod chunk {
    /// The last chunk of a reply (`NBD_REPLY_FLAG_DONE`).
    pub const DONE: u16 = 1;
    /// Nothing.
    pub const NONE: u16 = 0;
    /// Data.
    pub const OFFSET_DATA: u16 = 1;
    /// Zeroes.
    pub const OFFSET_HOLE: u16 = 2;
    /// Extents.
    pub const BLOCK_STATUS: u16 = 5;
    /// A failure.
    pub const ERROR: u16 = 1 << 15 | 1;
}

/// States of extents in the context `base:allocation`.
pub mod state {
    /// It takes no room.
    pub const HOLE: u32 = 1;
    /// It reads as zeroes.
    pub const ZERO: u32 = 1 << 1;
}

/// The one metadata context that there is.
pub const BASE_ALLOCATION: &str = "base:allocation";
/// Its number, on connections that chose it.
pub const BASE_ALLOCATION_ID: u32 = 1;
/// Longest string, bytes.
pub const STRING_MAX: usize = 4096;

/// The head of an option.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct OptionHead {
    /// [`OPTION_MAGIC`].
    pub magic: U64,
    /// One of [`opt`].
    pub option: U32,
    /// Bytes that follow.
    pub len: U32,
}

/// The head of an answer to an option.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct OptionReply {
    /// [`OPTION_REPLY_MAGIC`].
    pub magic: U64,
    /// The option that is answered.
    pub option: U32,
    /// One of [`rep`].
    pub reply: U32,
    /// Bytes that follow.
    pub len: U32,
}

/// The head of a request.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct RequestHead {
    /// [`REQUEST_MAGIC`].
    pub magic: U32,
    /// Some of [`cmd_flag`].
    pub flags: U16,
    /// One of [`cmd`].
    pub command: U16,
    /// What the answer is known by.
    pub cookie: U64,
    /// First byte.
    pub offset: U64,
    /// Bytes.
    pub len: U32,
}

/// A simple reply, but for the data.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct SimpleReply {
    /// [`SIMPLE_REPLY_MAGIC`].
    pub magic: U32,
    /// A [`crate::Code`], or 0.
    pub error: U32,
    /// The request's.
    pub cookie: U64,
}

/// The head of a chunk of a structured reply.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct ChunkHead {
    /// [`STRUCTURED_REPLY_MAGIC`].
    pub magic: U32,
    /// [`chunk::DONE`] or nothing.
    pub flags: U16,
    /// One of [`chunk`].
    pub kind: U16,
    /// The request's.
    pub cookie: U64,
    /// Bytes that follow.
    pub len: U32,
}

const _: () = assert!(size_of::<OptionHead>() == 16);
const _: () = assert!(size_of::<OptionReply>() == 20);
const _: () = assert!(size_of::<RequestHead>() == 28);
const _: () = assert!(size_of::<SimpleReply>() == 16);
const _: () = assert!(size_of::<ChunkHead>() == 20);
