//! Streams, and what is left of those that broke off.

use stream::Forms;

/// A stream of a snapshot, and where it goes. All names are full.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transfer {
    /// The snapshot.
    pub snapshot: String,
    /// The snapshot that it builds on.
    pub base: Option<String>,
    /// The head.
    pub to: String,
    /// The forms of its blocks.
    pub forms: Forms,
    /// If the receive is interrupted, what came is kept.
    pub resumable: bool,
}

/// A part of a stream.
#[derive(Debug, Clone)]
pub(super) struct Partial {
    pub(super) transfer: Transfer,
    /// The snapshot, and the one that it builds on (`Snap::copy`).
    pub(super) copies: (u64, Option<u64>),
}
