//! The block pipeline: block pointer to verified bytes and back.
//!
//! # Theory
//! A read has these steps:
//!
//! 1. Fetch the stored bytes of one copy.
//! 2. Verify their checksum.
//! 3. Decrypt or authenticate.
//! 4. Decompress.
//! 5. Convert to the native byte order.
//!
//! A copy whose checksum is wrong is never decoded. `vdev` offers further candidates for the same
//! place (other children of a mirror, reconstructions). This crate verifies them, and reports which
//! was right, so that exactly the devices that were wrong count checksum errors. If a place has no
//! good candidate, the next ditto copy is tried. Blocks are immutable from here up.
//!
//! # Absent
//! This crate does not know pools, object sets or datasets. Keys come through [`KeySource`], places
//! through `vdev::Tree`. Bookmarks serve only for messages and to find a key.
//!
//! # See
//! OpenZFS `zio.c`, `zio_checksum.c`, `zio_compress.c`, `zio_inject.c`.

mod bookmark;
mod damage;
mod dedup;
mod error;
mod gang;
mod keys;
mod options;
mod policy;
mod read;
mod restore;
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
pub use policy::{Compressed, Encrypted, WritePolicy, WriteReq};
pub use read::{Opened, Zio};
pub use scrub::{ExamineKind, MissingPieces};
pub use space::{ClassHint, NoSpace, Space, Want};
pub use stored::Remaker;
pub use suspend::{Entry, FailMode, Reason, Suspended, Suspension};
pub use workers::Workers;
pub use write::{EarlyWrite, FlushMark, Written};

pub use vdev::{Priority, Request};

/// A result of this crate.
pub type Result<T> = std::result::Result<T, Error>;
