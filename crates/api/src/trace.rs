//! Sessions that count or keep events: the data of `poolhouse trace`.
//!
//! # Theory
//! The first request has no number and begins a session. Further ones read it, by the number of the
//! reply. A session ends with a request that says so, or without a request for ten seconds. So it
//! does not outlive its reader.
//!
//! Names of processes, datasets and files are hostile text: another user chose them.

use serde::{Deserialize, Serialize};

/// A condition of a session.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct TraceCondition {
    /// The field of the event.
    pub field: String,
    /// `=`, `!=`, `>`, `>=`, `<`, `<=`; for texts also `~` and `!~`, with patterns.
    pub test: String,
    /// What it is compared with: a number with or without a unit, or a name.
    pub value: String,
}

/// A request to begin, read or end a session.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct TraceQuery {
    /// The number of the session. `None`: it begins, by what follows.
    pub session: Option<u64>,
    /// Whether it ends with this reading.
    pub end: bool,
    /// Whether groups count anew after this reading.
    pub anew: bool,
    /// The event. Empty: no session begins, and the reply lists the events.
    pub event: String,
    /// All of these must be met.
    pub conditions: Vec<TraceCondition>,
    /// Whether only operations of the process that sends this request count, and those of its
    /// descendants.
    pub under: bool,
    /// The fields by which events are grouped, or those that are kept. Empty, of events that are
    /// kept: the usual ones.
    pub keys: Vec<String>,
    /// `count`, `sum:FIELD`, `avg:FIELD`, `min:FIELD`, `max:FIELD`, `quantize:FIELD`, or
    /// `lquantize:FIELD:FROM:TO:STEP`. Empty: `count`.
    pub measure: String,
    /// Further fields that are added up.
    pub sums: Vec<String>,
    /// Whether events are kept, rather than counted.
    pub raw: bool,
}

/// What a column has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TraceUnit {
    /// Text.
    #[default]
    Text,
    /// A number.
    Number,
    /// Nanoseconds.
    Time,
    /// Bytes.
    Bytes,
}

/// A column.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct TraceColumn {
    /// The name of the field.
    pub name: String,
    /// What it has.
    pub unit: TraceUnit,
}

/// A kind of events.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct TraceEvent {
    /// Its name.
    pub name: String,
    /// What happened.
    pub about: String,
    /// Its fields.
    pub fields: Vec<TraceColumn>,
    /// Fields that it has from the operation of its thread.
    pub common: Vec<TraceColumn>,
}

/// Events with the same keys.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct TraceGroup {
    /// The values of the keys, exact numbers.
    pub keys: Vec<String>,
    /// How many events.
    pub count: u64,
    /// The sum of what was measured.
    pub sum: u64,
    /// The least that was measured.
    pub min: u64,
    /// The most that was measured.
    pub max: u64,
    /// The sums of further fields.
    pub sums: Vec<u64>,
    /// How many events by bucket, each named by its least value, in rising order.
    pub buckets: Vec<(u64, u64)>,
}

/// An event that was kept.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct TraceKept {
    /// When it happened, in nanoseconds since 1970.
    pub at_ns: u64,
    /// The number of the thread.
    pub tid: u32,
    /// The values of the columns, exact numbers.
    pub values: Vec<String>,
}

/// What a session has seen.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Traced {
    /// The process that traces ([`crate::process_id`]).
    pub process: u64,
    /// The number of the session.
    pub session: u64,
    /// The events that there are, if the request names none.
    pub events: Vec<TraceEvent>,
    /// The columns of the keys.
    pub columns: Vec<TraceColumn>,
    /// What the measured field has.
    pub measured: TraceUnit,
    /// Nanoseconds since the session began.
    pub ns: u64,
    /// Events that happened since then.
    pub seen: u64,
    /// Those that met the conditions.
    pub met: u64,
    /// One of how many operations is taken now. Counts and sums are estimates if it was ever more
    /// than one.
    pub one_of: u64,
    /// Whether only a part was taken at any time.
    pub is_sampled: bool,
    /// Processor time of the daemon since the session began, in nanoseconds.
    pub cpu_ns: u64,
    /// The session's share of it, in parts of a million.
    pub cost_ppm: u64,
    /// The groups.
    pub groups: Vec<TraceGroup>,
    /// Events that found no room in a group.
    pub others: Option<TraceGroup>,
    /// Events that were kept, the oldest first.
    pub kept: Vec<TraceKept>,
    /// How many found no room since the reading before.
    pub lost: u64,
}
