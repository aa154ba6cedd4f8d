//! What is sent as blocks.

use dsl::LongHold;
use poolhouse::stream::Origin;

use crate::server::store::Head;
use crate::types::VolumeId;

/// A clone that is to be sent as blocks.
pub(super) struct Plan {
    /// Its file system.
    pub(super) head: Head,
    /// The clone.
    pub(super) id: VolumeId,
    /// The guid of the snapshot that the stream builds on; 0: it is whole.
    pub(super) base: u64,
    /// The same, as this pool has it.
    pub(super) origin: Option<Origin>,
    /// Keeps that snapshot.
    pub(super) _hold: Option<LongHold>,
    /// It has the files of that snapshot, and so has the other server. Only the header is sent.
    pub(super) same: bool,
}
