//! The block pipeline: block pointer to verified bytes and back.
//!
//! # Theory
//! A read goes down once per attempt and comes up once: fetch the stored bytes of one copy, verify their
//! checksum, and only then decrypt or authenticate, decompress, and put them into the native byte order.
//! A copy that does not verify is never decoded. The `vdev` room offers further candidates for the same
//! place (other sides of a mirror, reconstructions); this room judges them, and says which was right, so
//! that exactly the devices that were wrong are charged. When a place has no good candidate the next ditto
//! copy is tried. Blocks are immutable from here up.
//!
//! # Absent
//! This room does not know what a pool, an object set or a dataset is: keys come through [`KeySource`], places
//! through `vdev::Tree`, and bookmarks are only for messages and for finding a key.

mod bookmark;
mod damage;
mod dedup;
mod error;
mod gang;
mod keys;
mod options;
mod policy;
mod read;
mod scrub;
mod space;
mod stored;
mod suspend;
mod workers;
mod write;

pub use bookmark::Bookmark;
pub use damage::{Damage, Loss, Why};
pub use dedup::{Clones, Dedup, Found};
pub use error::Error;
pub use keys::{Entropy, KeyError, KeySource};
pub use options::{IoFlags, ReadOptions};
pub use policy::{WritePolicy, WriteReq};
pub use read::{Opened, Zio};
pub use scrub::{Lacking, Look};
pub use space::{ClassHint, NoSpace, Space, Want};
pub use stored::Remaker;
pub use suspend::{Entry, FailMode, Reason, Suspended, Suspension};
pub use workers::Workers;
pub use write::{EarlyWrite, FlushMark, Written};

pub use vdev::{Priority, Request};

/// A result of this room.
pub type Result<T> = std::result::Result<T, Error>;
