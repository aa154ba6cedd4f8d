//! The control API: what the daemon answers and the commands render.
//!
//! # Theory
//! A command asks for structured data and renders it; it never asks for text. So the types here are the engine's answers
//! in the shape of OpenZFS's own: a pool is the configuration tree that `ZFS_IOC_POOL_STATS` returns, with the statistics
//! that `zpool` reads from it; a dataset is its name, type and properties. Two things speak these types: the [`Service`]
//! trait, which whoever holds the pools implements once, and [`Client`], which is the same trait over any [`Transport`]
//! (the daemon's socket). [`dispatch`] stands between them on the daemon's side. A command is written against
//! `&dyn Service` and can't tell the two apart, which is how the tests run it without a daemon.
//!
//! # On the wire
//! `POST /v1/METHOD` with a JSON request; the reply is `{"ok": ANSWER}` with status 200, or `{"error": ERROR}` with a
//! status that fits ([`Error::http_status`]). Unknown fields are ignored and missing ones take their defaults, so that a
//! newer command and an older daemon understand each other as far as they can.
//!
//! # Values
//! A property travels as its text for people, its exact text (`-p`) and, where it is one, its number; formatting sizes and
//! ratios is the engine's job, once. Times are seconds since the epoch, and the command turns them into local time.
//!
//! # Absent
//! Nothing here knows HTTP, sockets, the engine or a terminal.

mod change;
mod dataset;
mod diff;
mod error;
mod event;
mod exports;
mod import;
mod inject;
mod log;
mod pool;
mod prop;
mod request;
mod service;
mod stats;
#[cfg(test)]
mod tests;

pub use change::{
    Changed, CreatePool, DatasetChange, Layout, PoolChange, ScanCommand, Settings, WorkCommand, WorkKind,
};
pub use dataset::{
    Dataset, DatasetKind, DatasetList, DatasetQuery, Granted, Hold, ObjectPath, PropSelect, SpaceClass,
    SpaceEntry,
};
pub use diff::{DiffPart, DiffRequest, FileAt, FileChange, Text};
pub use error::{DeviceRefusal, Error, Reason, Refusal, Unmounts};
pub use event::{Event, EventPage, EventQuery, EventValue};
pub use exports::{AttachRequest, DetachRequest, ExportList, OfferRequest, Offered, WithdrawRequest};
pub use import::{
    Activity, Candidate, Found, Host, ImportOutcome, ImportRequest, LoadInfo, Lost, MmpState, Rewind,
    RewindInfo, ScanRequest,
};
pub use inject::{Ailment, DataFault, DeviceFault, InjectRequest, Injected, Spell};
pub use log::LogStats;
pub use pool::{
    CheckpointStat, CheckpointState, DdtSummary, DdtTotals, ExpandStat, HistoryKind, HistoryPage,
    HistoryRecord, IoStat, LeafWork, Nameless, Pool, PoolQuery, PoolState, RebuildStat, RebuildState,
    RemovalStat, ScanFunc, ScanStat, ScanState, StatusReason, SuspendReason, Vdev, VdevAux, VdevStat,
    VdevState, WorkState,
};
pub use prop::{Prop, Source};
pub use request::{
    ExportRequest, KeyMaterial, LoadKeyRequest, Mount, MountFailure, MountPhase, MountProgress, MountReport,
    MountRequest, UnmountRequest,
};
pub(crate) use service::clipped;
pub use service::{Answer, Client, METHODS, Service, Transport, TransportError, dispatch};
pub use stats::{Kstat, KstatValue, SplParameter, Tunable};
