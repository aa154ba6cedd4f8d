//! Datasets: directories, snapshots, clones, bookmarks, properties, keys.
//!
//! # Theory
//! A pool's names form a tree of *directories* ([`Dir`]); each has a *head* [`Dataset`], the live file system or
//! volume, and the head has snapshots. [`Dsl`] is the way in: by name, by object, or all in one pass over a few
//! threads ([`Dsl::list`]). A handle holds its chain of directories up to the root, so that inherited properties and quotas
//! are read once for all children of a directory; a dataset that nobody holds costs nothing.
//!
//! The tree is hostile input: a directory must name as its parent the one it was found in, and is listed once by
//! it, so that a walk ends; names have their length limit, so that it is not deep.
//!
//! They change by *sync tasks* ([`Syncing`], [`ops`]), while a transaction group syncs; live datasets are known to
//! [`Heads`], which also accounts for what they write.
//!
//! Who writes into a head asks for room *before* he changes anything: [`Dsl::reserve`] with a [`Need`], or, with the pool's transaction in one
//! call, `spa::engine::PoolWriter::tx_for(&owned, need)`. He says how many bytes he makes dirty at most (whole blocks), and whether he frees more
//! than he takes in the end (`netfree`: removing, truncating). The answer is a transaction; or [`Refusal::Quota`] (`EDQUOT`) or
//! [`Refusal::NoSpace`] (`ENOSPC`), and then nothing has changed. Every change that may take space must ask, or a full pool stops
//! in its sync instead. See the theory in `room.rs`.
//!
//! # Locks
//! Handles are immutable. Only loaded keys change, behind their own lock ([`keys`]).
//!
//! # Absent
//! What a dataset holds: that is `zpl` and `zvol`. Whether it is mounted: the doors know.

mod account;
mod books;
mod dataset;
pub mod deleg;
mod dir;
mod dsl;
mod error;
mod features;
mod heads;
pub mod keys;
mod kin;
mod list;
mod lists;
mod name;
pub mod ops;
mod policy;
pub mod prop;
mod resume;
mod reverse;
mod room;
mod space;
pub mod sync;
pub mod traverse;

pub use account::Delta;
pub use dataset::{Bookmark, Dataset, Hold, SnapshotEntry};
pub use dir::Dir;
pub use dsl::{Dsl, Options};
pub use error::{Error, KeyRefusal, NameError, PropError, Refusal};
pub use heads::{Heads, LongHold, Owned};
pub use list::{ListOptions, Listed, Listing};
pub use name::{Name, Tail, ZFS_MAX_DATASET_NAME_LEN, is_hidden};
pub use ops::create::Contents;
pub use ops::props::{PropList, Setting};
pub use prop::{Kind, Prop, Property, Source, Value};
pub use room::{Asked, Need, Reservation};
pub use sync::{Env, Event, SyncTask, Syncing, TaskNeed};

/// A result of this room.
pub type Result<T> = std::result::Result<T, Error>;

/// All tunables of this crate.
pub static TUNABLES: &[&observe::Tunable] = &[&ops::create::MAX_NESTING];
