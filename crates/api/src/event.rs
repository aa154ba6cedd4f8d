//! What happened to pools, as `zpool events` tells it.

use serde::{Deserialize, Serialize};

/// Which events are wanted.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct EventQuery {
    /// Those after this one; 0 for all.
    pub after: u64,
    /// Who told that one ([`EventPage::teller`]): another's are told from the first on.
    pub teller: u64,
    /// Forget them instead of telling them.
    pub clear: bool,
}

/// Events, the oldest first.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct EventPage {
    /// They.
    pub events: Vec<Event>,
    /// How many between the one that was asked after and these are forgotten already.
    pub dropped: u64,
    /// How many were forgotten now.
    pub cleared: u64,
    /// Who tells: a daemon that begins anew counts anew.
    pub teller: u64,
}

/// One event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// Its number, which grows (`eid`).
    pub eid: u64,
    /// When: seconds since the epoch, and nanoseconds.
    pub time: (u64, u32),
    /// Its class: `sysevent.fs.zfs.config_sync`.
    pub class: String,
    /// Its pool.
    pub pool: String,
    /// What else is known, in OpenZFS's order and by its names, from `version` to `eid`.
    pub details: Vec<(String, EventValue)>,
}

/// A value of an event, of one of the types that an nvlist has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EventValue {
    /// An integer of any size, shown in hexadecimal digits.
    Number(u64),
    /// Several.
    Numbers(Vec<u64>),
    /// Text.
    Text(String),
    /// The state of a vdev (`vdev_state_t`).
    State(u64),
    /// A list of its own.
    List(Vec<(String, EventValue)>),
}
