//! Why a volume can't be served.

use crate::partition::PartitionId;
use crate::types::VolumeId;

/// Why a volume or partition can't be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The pool or a dataset refuses.
    #[error(transparent)]
    Pool(#[from] poolhouse::Error),
    /// The files of a volume can't be read or changed.
    #[error(transparent)]
    Files(#[from] zpl::Error),
    /// A header or dump is malformed, or can't be made.
    #[error(transparent)]
    Format(#[from] crate::Error),
    /// The system gives no random bytes.
    #[error("the system gives no random bytes")]
    Random,
    /// A stored header lacks a part.
    #[error("the stored header of the volume is malformed")]
    Malformed,
    /// A volume has no header.
    #[error("volume {volume} has no header: it is no volume of Poolhouse, or its restore was interrupted")]
    Header {
        /// The volume.
        volume: VolumeId,
    },
    /// The server has a partition of this number.
    #[error("{partition} is served already; choose another letter")]
    Exists {
        /// The partition.
        partition: PartitionId,
    },
    /// The partition is not served any more.
    #[error("{partition} is not served any more; 'poolhouse afs enable' serves it again")]
    Ended {
        /// The partition.
        partition: PartitionId,
    },
    /// The server has a volume of this number.
    #[error("volume {volume} exists already (VVOLEXISTS); 'poolhouse afs volumes {volume}' shows it")]
    Taken {
        /// The volume.
        volume: VolumeId,
    },
    /// A stream builds on contents that were not offered for it.
    #[error("the stream builds on other contents than volume {volume} has")]
    Base {
        /// The volume.
        volume: VolumeId,
    },
    /// The files of a volume are in use.
    #[error("volume {volume} is in use")]
    Busy {
        /// The volume.
        volume: VolumeId,
    },
    /// A transaction of an administrator's program has a volume.
    #[error(
        "volume {volume} is in transaction {transaction} ({call}); wait for its end, or end it with \
         `vos endtrans -server HOST -transaction {transaction}`"
    )]
    InTransaction {
        /// The volume.
        volume: VolumeId,
        /// The number of the transaction.
        transaction: i32,
        /// The last call in it.
        call: &'static str,
    },
    /// The endpoint of a service can't be bound, or the key file can't be read.
    #[error(transparent)]
    Rx(#[from] rx::Error),
    /// A file of the configuration can't be read or has errors.
    #[error("{path}: {why}")]
    Config {
        /// The file.
        path: String,
        /// What is wrong, and what to do.
        why: String,
    },
}

/// The result of what serves volumes.
pub type Result<T> = std::result::Result<T, Error>;

/// An error with its causes, for the log.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}
