//! Numbers and fixed layouts of the protocol. All integers are big-endian.
//!
//! # See
//! `doc/proto.md` of the NBD project, which has the names.

use zerocopy::byteorder::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The first bytes from a server (`NBDMAGIC`).
pub const INIT_MAGIC: u64 = 0x4e42_444d_4147_4943;
/// The next bytes of the newstyle negotiation, and the first of each option (`IHAVEOPT`).
pub const OPTION_MAGIC: u64 = 0x4948_4156_454f_5054;
/// The first bytes of each answer to an option.
pub const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
/// The first bytes of each request (`NBD_REQUEST_MAGIC`).
pub const REQUEST_MAGIC: u32 = 0x2560_9513;
/// The first bytes of a simple reply (`NBD_SIMPLE_REPLY_MAGIC`).
pub const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
/// The first bytes of a chunk of a structured reply (`NBD_STRUCTURED_REPLY_MAGIC`).
pub const STRUCTURED_REPLY_MAGIC: u32 = 0x668e_33ef;

/// Handshake flags of server and client (`NBD_FLAG_FIXED_NEWSTYLE`, `NBD_FLAG_NO_ZEROES`).
pub mod handshake {
    /// It knows options other than [`super::opt::EXPORT_NAME`].
    pub const FIXED_NEWSTYLE: u16 = 1;
    /// No zeros follow the answer to [`super::opt::EXPORT_NAME`].
    pub const NO_ZEROES: u16 = 1 << 1;
}

/// Transmission flags: what an export supports (`NBD_FLAG_*`).
pub mod flag {
    /// The flags are valid.
    pub const HAS_FLAGS: u16 = 1;
    /// The export is read-only.
    pub const READ_ONLY: u16 = 1 << 1;
    /// It supports flush.
    pub const SEND_FLUSH: u16 = 1 << 2;
    /// It supports forced unit access.
    pub const SEND_FUA: u16 = 1 << 3;
    /// It supports trim.
    pub const SEND_TRIM: u16 = 1 << 5;
    /// It supports write-zeroes.
    pub const SEND_WRITE_ZEROES: u16 = 1 << 6;
    /// A read may request its data in one chunk.
    pub const SEND_DF: u16 = 1 << 7;
    /// A flush on one connection covers all connections.
    pub const CAN_MULTI_CONN: u16 = 1 << 8;
    /// It supports cache.
    pub const SEND_CACHE: u16 = 1 << 10;
    /// Write-zeroes may request to fail unless it is fast.
    pub const SEND_FAST_ZERO: u16 = 1 << 11;
}

/// Options (`NBD_OPT_*`).
pub mod opt {
    /// Select an export and begin. The answer can't be an error.
    pub const EXPORT_NAME: u32 = 1;
    /// End the connection.
    pub const ABORT: u32 = 2;
    /// List the exports.
    pub const LIST: u32 = 3;
    /// Encrypt the connection.
    pub const STARTTLS: u32 = 5;
    /// Describe an export.
    pub const INFO: u32 = 6;
    /// Select an export and begin.
    pub const GO: u32 = 7;
    /// Use structured replies.
    pub const STRUCTURED_REPLY: u32 = 8;
    /// List metadata contexts.
    pub const LIST_META_CONTEXT: u32 = 9;
    /// Select metadata contexts.
    pub const SET_META_CONTEXT: u32 = 10;
}

/// Types of messages that answer options (`NBD_REP_*`).
pub mod rep {
    /// The option is done.
    pub const ACK: u32 = 1;
    /// An entry in the list of exports.
    pub const SERVER: u32 = 2;
    /// A part of the description of an export.
    pub const INFO: u32 = 3;
    /// A metadata context.
    pub const META_CONTEXT: u32 = 4;
    /// The option is unknown.
    pub const ERR_UNSUP: u32 = 1 << 31 | 1;
    /// The option is invalid.
    pub const ERR_INVALID: u32 = 1 << 31 | 3;
    /// The option is refused until the connection is encrypted.
    pub const ERR_TLS_REQD: u32 = 1 << 31 | 5;
    /// There is no such export.
    pub const ERR_UNKNOWN: u32 = 1 << 31 | 6;
    /// The server or the export is closing.
    pub const ERR_SHUTDOWN: u32 = 1 << 31 | 7;
    /// The option is too long.
    pub const ERR_TOO_BIG: u32 = 1 << 31 | 9;
}

/// Parts of the description of an export (`NBD_INFO_*`).
pub mod info {
    /// Size and flags.
    pub const EXPORT: u16 = 0;
    /// The name, as in the list of exports.
    pub const NAME: u16 = 1;
    /// A description for people.
    pub const DESCRIPTION: u16 = 2;
    /// Minimum, preferred and maximum size of requests.
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
    /// Make all changes durable that were acknowledged before.
    pub const FLUSH: u16 = 3;
    /// Free the space of a range.
    pub const TRIM: u16 = 4;
    /// Prefetch a range.
    pub const CACHE: u16 = 5;
    /// Make a range read as zeroes.
    pub const WRITE_ZEROES: u16 = 6;
    /// List extents of data and holes.
    pub const BLOCK_STATUS: u16 = 7;
}

/// Flags of commands (`NBD_CMD_FLAG_*`).
pub mod cmd_flag {
    /// The change must be durable before its answer.
    pub const FUA: u16 = 1;
    /// The zeros must take space.
    pub const NO_HOLE: u16 = 1 << 1;
    /// The data must come in one chunk.
    pub const DF: u16 = 1 << 2;
    /// Report one extent only.
    pub const REQ_ONE: u16 = 1 << 3;
    /// Fail unless the operation is fast.
    pub const FAST_ZERO: u16 = 1 << 4;
}

/// Types and flags of chunks of structured replies (`NBD_REPLY_TYPE_*`).
pub mod chunk {
    /// The last chunk of a reply (`NBD_REPLY_FLAG_DONE`).
    pub const DONE: u16 = 1;
    /// No content.
    pub const NONE: u16 = 0;
    /// Data.
    pub const OFFSET_DATA: u16 = 1;
    /// A hole, which reads as zeros.
    pub const OFFSET_HOLE: u16 = 2;
    /// Extents.
    pub const BLOCK_STATUS: u16 = 5;
    /// An error.
    pub const ERROR: u16 = 1 << 15 | 1;
}

/// States of extents in the context `base:allocation` (`NBD_STATE_*`).
pub mod state {
    /// The extent takes no space.
    pub const HOLE: u32 = 1;
    /// The extent reads as zeros.
    pub const ZERO: u32 = 1 << 1;
}

/// The only metadata context.
pub const BASE_ALLOCATION: &str = "base:allocation";
/// Its number, on connections that selected it.
pub const BASE_ALLOCATION_ID: u32 = 1;
/// Length of the longest string in bytes.
pub const STRING_MAX: usize = 4096;

/// Header of an option.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct OptionHead {
    /// [`OPTION_MAGIC`].
    pub magic: U64,
    /// One of [`opt`].
    pub option: U32,
    /// Number of bytes that follow.
    pub len: U32,
}

/// Header of a message that answers an option.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct OptionReply {
    /// [`OPTION_REPLY_MAGIC`].
    pub magic: U64,
    /// The option to which it is the answer.
    pub option: U32,
    /// One of [`rep`].
    pub reply: U32,
    /// Number of bytes that follow.
    pub len: U32,
}

/// Header of a request.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct RequestHead {
    /// [`REQUEST_MAGIC`].
    pub magic: U32,
    /// Some of [`cmd_flag`].
    pub flags: U16,
    /// One of [`cmd`].
    pub command: U16,
    /// Identifies the answer.
    pub cookie: U64,
    /// The first byte of the range.
    pub offset: U64,
    /// Length of the range in bytes.
    pub len: U32,
}

/// A simple reply, without its data.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct SimpleReply {
    /// [`SIMPLE_REPLY_MAGIC`].
    pub magic: U32,
    /// A [`crate::Code`], or 0.
    pub error: U32,
    /// The cookie of the request.
    pub cookie: U64,
}

/// Header of a chunk of a structured reply.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct ChunkHead {
    /// [`STRUCTURED_REPLY_MAGIC`].
    pub magic: U32,
    /// [`chunk::DONE`] or 0.
    pub flags: U16,
    /// One of [`chunk`].
    pub kind: U16,
    /// The cookie of the request.
    pub cookie: U64,
    /// Number of bytes that follow.
    pub len: U32,
}

const _: () = assert!(size_of::<OptionHead>() == 16);
const _: () = assert!(size_of::<OptionReply>() == 20);
const _: () = assert!(size_of::<RequestHead>() == 28);
const _: () = assert!(size_of::<SimpleReply>() == 16);
const _: () = assert!(size_of::<ChunkHead>() == 20);
