//! The control protocol between the daemon and the commands, and its client.
//!
//! # Theory
//! A command asks for structured data and renders it; it never asks for text. So the types here are the engine's answers
//! in the shape of OpenZFS's own: a pool is the configuration tree that `ZFS_IOC_POOL_STATS` returns, with the statistics
//! that `zpool` reads from it; a dataset is its name, type and properties.
//!
//! One list of methods makes two traits. [`Service`] is the daemon's side: each method takes the
//! [`Caller`]. [`Requests`] is the commands' side, without a caller: [`Client`] implements it over
//! any [`Transport`] (the daemon's socket), and [`InProcess`] over a service in the same process,
//! which is how tests run commands without a daemon. [`dispatch`] leads from a request's bytes to
//! a method of [`Service`].
//!
//! [`client`] carries requests to the daemon, which [`place`] finds and [`start`] runs when one is
//! needed. [`files`] is a second protocol, on a socket of its own: the files of a dataset for
//! commands that use no mount.
//!
//! Rules that commands and the daemon both go by are here, too: properties of pools
//! ([`settings`]), and where file systems belong ([`plan`]).
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
//! An async runtime: the client reads and writes its socket itself. How the daemon answers, and
//! whom, is `server`'s; what a terminal shows is `cli`'s.

pub mod accounts;
mod budget;
mod caller;
mod change;
pub mod client;
mod dataset;
mod diff;
mod error;
mod event;
mod exports;
pub mod files;
mod import;
mod inject;
mod log;
pub mod place;
pub mod plan;
mod pool;
mod prop;
mod request;
mod service;
pub mod settings;
pub mod start;
mod stats;
#[cfg(test)]
mod tests;

pub use budget::{ANSWER_MAX, Budget, Share, TIME_OF_OTHERS};
pub use caller::{Caller, Peer};
pub use change::{
    Changed, CreatePool, DatasetChange, Layout, PoolChange, ScanCommand, Settings, WorkCommand, WorkKind,
};
pub use dataset::{
    Dataset, DatasetKind, DatasetList, DatasetQuery, Granted, Hold, ObjectPath, PropSelect, SpaceClass,
    SpaceEntry,
};
pub use diff::{DiffPart, DiffRequest, FileAt, FileChange, Text};
pub use error::{DeviceRefusal, Error, Reason, Refusal, Unmounts, chain};
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
pub use service::{
    Answer, Client, FakeService, InProcess, METHODS, Requests, Service, Transport, TransportError, clipped,
    dispatch,
};
pub use stats::{Kstat, KstatValue, SplParameter, Tunable};
