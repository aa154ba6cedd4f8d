//! Datasets: directories, snapshots, clones, bookmarks, properties, keys.
//!
//! # Theory
//! The names of a pool form a tree of *directories* ([`Dir`]). A directory has a *head dataset*
//! ([`Dataset`]): the live file system or volume. A head has snapshots.
//!
//! [`Dsl`] is the entry point. It finds datasets by name or by object, or lists all of them in one
//! parallel pass ([`Dsl::list`]). A handle keeps its chain of directories up to the root. So all
//! children of a directory share one reading of inherited properties and quotas. A dataset without
//! handles uses no memory.
//!
//! The tree is hostile input. Each directory must name as its parent the directory that lists it,
//! and is listed there once, so a walk ends. Names have a length limit, which bounds the depth.
//!
//! *Sync tasks* ([`Syncing`], [`ops`]) change datasets while a txg syncs. [`Heads`] knows the
//! datasets that are open for writing, and accounts for what they write.
//!
//! # Space
//! A writer requests space in a head *before* it changes anything: with [`Dsl::reserve`] and a
//! [`Need`]. `tx_for` of `spa` does this and opens the transaction in one call. A need says two
//! things:
//!
//! * How many bytes become dirty at most, in whole blocks.
//! * Whether the change frees more than it takes in the end (`netfree`: removing, truncating).
//!
//! The answer is a transaction, or [`Refusal::Quota`] (`EDQUOT`), or [`Refusal::NoSpace`]
//! (`ENOSPC`). After a refusal nothing has changed. Every change that may take space must request
//! it. Otherwise a full pool stops in its sync. `reservation.rs` has the theory.
//!
//! # Locks
//! Handles are immutable. Only loaded keys change, behind their own lock ([`keys`]).
//!
//! # Absent
//! The contents of a dataset: `zpl` and `zvol` know them. Whether it is mounted: the front ends
//! know.

mod account;
mod bonus_cache;
mod dataset;
pub mod deleg;
mod dir;
mod dsl;
mod error;
mod features;
mod heads;
pub mod keys;
mod links;
mod listing;
mod mos_objects;
mod name;
pub mod ops;
mod policy;
pub mod prop;
pub mod redact;
mod reservation;
mod resume;
mod reverse;
mod space;
pub mod sync;
pub mod traverse;

pub use account::Delta;
pub use dataset::{Bookmark, Dataset, Hold, SnapshotEntry};
pub use dir::Dir;
pub use dsl::{Dsl, Options};
pub use error::{Error, KeyRefusal, NameError, PropError, Refusal};
pub use heads::{Heads, LongHold, Owned, ResumePoint};
pub use listing::{ListOptions, Listed, Listing, Without};
pub use name::{Name, Tail, ZFS_MAX_DATASET_NAME_LEN, is_hidden};
pub use ops::create::Contents;
pub use ops::props::{PropList, Setting};
pub use policy::compression_named;
pub use prop::{Kind, Prop, Property, Source, Value};
pub use reservation::{Need, Reservation, ReserveOutcome};
pub use resume::Partial;
pub use sync::{Env, Event, SyncTask, Syncing, TaskNeed};

/// A result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// All tunables of this crate.
pub static TUNABLES: &[&observe::Tunable] = &[&ops::create::MAX_NESTING, &redact::ALLOW_REDACTED_MOUNT];
