//! On-disk structures of the OpenZFS format and their codecs, without behaviour.
//!
//! # Theory
//! Bytes from a disk become a checked type once, in this crate. The layers above handle only
//! checked types.
//!
//! * The decoder checks every size, offset, count and name. A failed check is a value, [`Corrupt`],
//!   never a panic.
//! * Decoders read both byte orders. Encoders write little-endian.
//!
//! # Absent
//! This crate does no I/O, verifies no checksum (`codec` does), starts no thread and has no
//! `unsafe`.

pub mod acl;
pub mod blkptr;
pub mod bookmark;
pub mod bpobj;
pub mod brt;
pub mod bytes;
pub mod byteswap;
pub mod config;
pub mod crypto_key;
pub mod ddt;
pub mod dirent;
pub mod dnode;
pub mod dsl;
pub mod error;
pub mod feature;
pub mod fuid;
pub mod gang;
pub mod gpt;
pub mod history;
pub mod indirect;
pub mod kind;
pub mod l2arc;
pub mod label;
pub mod mbr;
pub mod mos;
pub mod num;
pub mod nvlist;
pub mod objset;
pub mod replay;
pub mod sa;
pub mod scan;
pub mod spacemap;
pub mod uberblock;
pub mod version;
mod words;
pub mod zap;
pub mod zil;
pub mod znode;

pub use blkptr::{Blkptr, Dva};
pub use bytes::ByteOrder;
pub use config::{PoolConfig, PoolState, RootedConfig, VdevConfig, VdevKind};
pub use dnode::DnodePhys;
pub use error::Corrupt;
pub use kind::{ChecksumKind, CompressKind, DmuType};
pub use num::{Ashift, Asize, BlkId, Guid, Level, Lsize, ObjNum, Offset, Psize, Txg, VdevId};
pub use nvlist::{Nvlist, Value};
pub use uberblock::Uberblock;

/// The result of decoding; its error says which bytes were wrong.
pub type Result<T> = std::result::Result<T, Corrupt>;

/// Smallest unit of allocation and of block sizes: 512 bytes (`SPA_MINBLOCKSIZE`).
pub const SPA_MINBLOCKSIZE: u64 = 512;
/// Shift of [`SPA_MINBLOCKSIZE`] (`SPA_MINBLOCKSHIFT`).
pub const SPA_MINBLOCKSHIFT: u32 = 9;
/// Largest block: 16 MiB (`SPA_MAXBLOCKSIZE`).
pub const SPA_MAXBLOCKSIZE: u64 = 1 << 24;
/// Largest block of pools without `large_blocks`: 128 KiB (`SPA_OLD_MAXBLOCKSIZE`).
pub const SPA_OLD_MAXBLOCKSIZE: u64 = 1 << 17;
