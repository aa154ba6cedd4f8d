//! The intent log: chains and records.
//!
//! # Theory
//! Each object set has a chain of log blocks. A block's pointer holds no checksum of it, since it was written first: it
//! holds the chain's guid, the object set and a sequence number, and the block carries a checksum that only verifies with those. So the
//! end of a chain shows itself: the next block does not verify, because it was never written. Blocks born after the last
//! synced transaction group are *live*: importing the pool to write claims them, and replays their records of later
//! groups than that. Until then, they lie in space that the space maps call free.
//!
//! [`Log`] walks a chain, and knows what is to be claimed of it ([`Log::plan`]) and how it is replayed ([`Log::replay`]). [`Zilog`] writes one.
//!
//! # Absent
//! Keys: without them an encrypted log shows headers only, and is claimed all the same.
//!
//! # See
//! OpenZFS `zil.c` (`zil_parse`), `zdb_il.c`.

mod bytes;
mod claim;
mod error;
mod groups;
mod log;
mod replay;
mod stats;
pub mod tunables;
mod zilog;

pub use bytes::Bytes;
pub use claim::{Claimant, Plan};
pub use error::Error;
pub use groups::{Groups, Missing, Source};
pub use log::{Blocks, Claim, End, Log, LogBlock, LogRecord};
pub use replay::{Ended, ReplayError, Replayed, Replayer, may_pass};
pub use stats::{LogBlocks, Stats};
pub use zilog::{EarlyPolicy, LogPolicy, SyncMode, UseSaXattrs, Zilog};

/// A result of this room.
pub type Result<T> = std::result::Result<T, Error>;
