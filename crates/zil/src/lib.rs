//! The intent log (ZIL): chains of log blocks and their records.
//!
//! # Theory
//! Each object set has a chain of log blocks. A pointer to a log block holds no checksum of its
//! contents, because the pointer is written before the block. It holds the chain's guid, the object
//! set and a sequence number. The block carries a checksum that verifies only with those values. So
//! the chain shows its own end: the next block was never written, and does not verify.
//!
//! Blocks born after the last synced transaction group are *live*. Importing the pool for writing
//! claims them, and replays their records of later txgs. Until then they lie in space that the
//! space maps call free.
//!
//! | type | purpose |
//! |---|---|
//! | [`Log`] | walks a chain, plans its claim ([`Log::plan`]), replays it ([`Log::replay`]) |
//! | [`Zilog`] | writes a chain |
//! | [`TxSource`] | gives changes of a dataset their transactions, and its log |
//!
//! # Absent
//! Keys: without them the records of an encrypted log show only their headers. A claim needs no
//! key.
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
mod tx_source;
mod zilog;

pub use bytes::Bytes;
pub use claim::{Claimant, Plan};
pub use error::Error;
pub use groups::{Groups, Missing, Source};
pub use log::{Blocks, Claim, End, Log, LogBlock, LogRecord};
pub use replay::{Ended, ReplayError, Replayed, Replayer, may_pass};
pub use stats::{LogBlocks, Stats};
pub use tx_source::{TxError, TxSource};
pub use zilog::{EarlyPolicy, LogPolicy, SyncMode, UseSaXattrs, Zilog};

/// A result of this crate.
pub type Result<T> = std::result::Result<T, Error>;
