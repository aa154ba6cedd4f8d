//! Events of pools, as `zpool events` shows them.

use serde::{Deserialize, Serialize};

/// Which events to return (`zpool_events_next`).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct EventQuery {
    /// Only those after this number; 0 for all.
    pub after: u64,
    /// The [`EventPage::teller`] that assigned that number. Another teller's events start with the
    /// first.
    pub teller: u64,
    /// Drop the events instead of returning them.
    pub clear: bool,
}

/// Events, the oldest first.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct EventPage {
    /// The events.
    pub events: Vec<Event>,
    /// How many events after the requested number, and before these, are dropped already.
    pub dropped: u64,
    /// How many were dropped by this request.
    pub cleared: u64,
    /// The identity of the daemon that numbered them. A restarted daemon numbers anew.
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
    /// All other details, in OpenZFS's order and by its names, from `version` to `eid`.
    pub details: Vec<(String, EventValue)>,
}

/// A value of an event, of one of the types that an nvlist has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EventValue {
    /// An integer of any size, which commands show in hexadecimal.
    Number(u64),
    /// Several integers.
    Numbers(Vec<u64>),
    /// Text.
    Text(String),
    /// The state of a vdev (`vdev_state_t`).
    State(u64),
    /// A nested list.
    List(Vec<(String, EventValue)>),
}
