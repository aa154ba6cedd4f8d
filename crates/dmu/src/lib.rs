//! Objects: object sets, dnodes, block trees, ZAP, system attributes.
//!
//! # Theory
//! An object set is an array of dnodes, and each dnode is the root of a tree of blocks. A [`Dnode`]
//! handle is cheap to clone and to pass between threads. It decodes its dnode once, and reads
//! blocks through the cache.
//!
//! This crate trusts no tree's shape. Levels come from the dnode, never from a block. So a walk of
//! a tree that points at itself ends after as many steps as the dnode has levels. A pointer whose
//! level or type contradicts its place is corrupt.
//!
//! An object set that is opened for reading never changes. A *live* object set
//! ([`Objset::open_live`], [`Objset::create_live`]) takes changes in transaction groups ([`Tx`]).
//! Its readers see them at once, and [`Objset::sync`] writes those of one txg.
//!
//! # Locks
//! A tree keeps the indirect blocks that were used last. Its readers exchange them atomically,
//! without a lock. The locks of live object sets and of ZAPs are described with them, in `live` and
//! [`zap`].
//!
//! # Absent
//! This crate knows no dataset names, no keys and no file system. It reports blocks that are born
//! or freed to the caller of a sync ([`SyncSink`]).

mod block_refs;
mod change;
mod dnode;
mod early;
mod error;
mod free_chunks;
mod live;
mod objset;
mod range;
pub mod sa;
mod sync;
mod tree;
mod tx;
mod visited;
mod walk;
pub mod zap;
pub mod zfetch;

pub use change::NewObject;
pub use dnode::{Dnode, Extent, LogBlocks, SPILL_BLKID};
pub use early::DirtyBlock;
pub use error::Error;
pub use free_chunks::{FreeChunk, FreeChunks};
pub use live::dirty::PackedBlock;
pub use live::raw::{RawObject, RawObjset};
pub use objset::{Bonus, BonusBlocks, Bonuses, Change, Changes, DnodesShape, Objects, Objset};
pub use range::{RangeGuard, RangeLocks};
pub use sync::{SyncSink, check_owner, generation};
pub use tx::{Hold, Tx};
pub use walk::{Damage, Walk};

/// All object numbers are below this one (`DN_MAX_OBJECT`).
pub const DN_MAX_OBJECT: u64 = 1 << 48;

/// A result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// The object whose ZAP counts space by user (`DMU_USERUSED_OBJECT`).
pub const DMU_USERUSED_OBJECT: ondisk::ObjNum = ondisk::ObjNum(u64::MAX);
/// The object whose ZAP counts space by group (`DMU_GROUPUSED_OBJECT`).
pub const DMU_GROUPUSED_OBJECT: ondisk::ObjNum = ondisk::ObjNum(u64::MAX - 1);
/// The object whose ZAP counts space by project (`DMU_PROJECTUSED_OBJECT`).
pub const DMU_PROJECTUSED_OBJECT: ondisk::ObjNum = ondisk::ObjNum(u64::MAX - 2);
