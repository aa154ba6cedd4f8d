//! Objects: object sets, dnodes, block trees, ZAP, system attributes.
//!
//! # Theory
//! An object set is an array of dnodes; each dnode is the root of a tree of blocks. A [`Dnode`] handle is
//! cheap to clone and to hand between threads; it decodes its dnode once and reads blocks through the cache.
//! Nothing here trusts a tree's shape: levels come from the dnode, never from a block, so that a tree which
//! points at itself ends after as many steps as the dnode has levels, and a pointer whose level or type
//! contradicts its place is corrupt.
//!
//! An object set is opened to be read, and never changes, or *live* ([`Objset::open_live`], [`Objset::create_live`]): then it takes changes in
//! transaction groups ([`Tx`]), shows them to whoever reads it, and [`Objset::sync`] writes a group's.
//!
//! # Locks
//! A dnode keeps the last indirect block that it used behind a mutex that is held for a comparison and a
//! reference count, never across a read.
//!
//! # Absent
//! This room knows no dataset names, no keys and no file system; what is freed is told to whoever syncs ([`SyncSink`]).

mod change;
mod dnode;
mod early;
mod error;
mod hands;
mod live;
mod met;
mod objset;
mod pieces;
mod range;
pub mod sa;
mod sync;
mod tree;
mod tx;
mod walk;
pub mod zap;
pub mod zfetch;

pub use change::NewObject;
pub use dnode::{Dnode, Extent, LogBlocks, SPILL_BLKID};
pub use early::DirtyBlock;
pub use error::Error;
pub use objset::{Change, Changes, Objects, Objset};
pub use pieces::{Piece, Pieces};
pub use range::{RangeGuard, RangeLocks};
pub use sync::SyncSink;
pub use tx::{Hold, Tx};
pub use walk::{Damage, Walk};

/// No object has this number or a higher one (`DN_MAX_OBJECT`).
pub const DN_MAX_OBJECT: u64 = 1 << 48;

/// A result of this room.
pub type Result<T> = std::result::Result<T, Error>;

/// Object whose ZAP counts space by user (`DMU_USERUSED_OBJECT`).
pub const DMU_USERUSED_OBJECT: ondisk::ObjNum = ondisk::ObjNum(u64::MAX);
/// Object whose ZAP counts space by group (`DMU_GROUPUSED_OBJECT`).
pub const DMU_GROUPUSED_OBJECT: ondisk::ObjNum = ondisk::ObjNum(u64::MAX - 1);
/// Object whose ZAP counts space by project (`DMU_PROJECTUSED_OBJECT`).
pub const DMU_PROJECTUSED_OBJECT: ondisk::ObjNum = ondisk::ObjNum(u64::MAX - 2);
