//! Requests about volumes that are served over NBD.

use serde::{Deserialize, Serialize};

/// A request to offer volumes, or snapshots of volumes, at an address.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct OfferRequest {
    /// The volumes and snapshots.
    pub datasets: Vec<String>,
    /// The address: a path for a Unix socket, or an IP address with or without a port.
    pub listen: String,
    /// Clients can't write to them.
    pub read_only: bool,
    /// The folder with the certificates for TLS.
    pub tls: Option<String>,
}

/// A request to stop offering volumes.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct WithdrawRequest {
    /// The volumes; all if empty.
    pub datasets: Vec<String>,
    /// Only at this address.
    pub listen: Option<String>,
}

/// A request to make a volume a block device.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct AttachRequest {
    /// The volume, or a snapshot of one.
    pub dataset: String,
    /// Programs can't write to the block device.
    pub read_only: bool,
}

/// A request to take a volume's block device away.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct DetachRequest {
    /// The volume.
    pub dataset: String,
    /// Detach it even if it is mounted (`-f`).
    pub force: bool,
}

/// A volume that is offered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offered {
    /// The volume or snapshot.
    pub dataset: String,
    /// The URI that clients use.
    pub uri: String,
    /// Clients can't write to it.
    #[serde(default)]
    pub read_only: bool,
}

/// The volumes that are served.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ExportList {
    /// The daemon's own socket, which serves every volume by its name; absent if no daemon runs.
    pub socket: Option<String>,
    /// What is offered at other addresses.
    pub offered: Vec<Offered>,
    /// The volumes in use, each with its number of connections.
    pub used: Vec<(String, u64)>,
}
