//! Requests about volumes that are served over NBD.

use serde::{Deserialize, Serialize};

/// A request to offer volumes, or snapshots of volumes, at an address.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct OfferRequest {
    /// These.
    pub datasets: Vec<String>,
    /// Where: a path for a Unix socket, or an IP address with or without a port.
    pub listen: String,
    /// Nobody may write to them that way.
    pub read_only: bool,
    /// A folder of certificates, for TLS.
    pub tls: Option<String>,
}

/// A request to offer volumes no longer.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct WithdrawRequest {
    /// These; all if empty.
    pub datasets: Vec<String>,
    /// At this address only.
    pub listen: Option<String>,
}

/// A request to make a volume a block device.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct AttachRequest {
    /// The volume, or a snapshot of one.
    pub dataset: String,
    /// Nobody may write to it that way.
    pub read_only: bool,
}

/// A request to take a volume's block device away.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct DetachRequest {
    /// The volume.
    pub dataset: String,
    /// Also if somebody has it mounted (`-f`).
    pub force: bool,
}

/// An offer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offered {
    /// The volume or snapshot.
    pub dataset: String,
    /// What clients call it.
    pub uri: String,
    /// Nobody may write to it that way.
    #[serde(default)]
    pub read_only: bool,
}

/// What is served.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ExportList {
    /// The daemon's own socket, where every volume can be asked for by its name; none where there is no daemon.
    pub socket: Option<String>,
    /// What was offered elsewhere.
    pub offered: Vec<Offered>,
    /// What is used, and how many connections do.
    pub used: Vec<(String, u64)>,
}
