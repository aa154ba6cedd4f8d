//! The control protocol between the daemon and the commands, and its client.
//!
//! # Theory
//! A command requests structured data and formats it; it never requests text. So the types here are
//! the engine's answers in the shape of OpenZFS's own:
//!
//! * A pool is the configuration tree that `ZFS_IOC_POOL_STATS` returns, with the statistics that
//!   `zpool` reads from it.
//! * A dataset is its name, type and properties.
//!
//! One list of methods generates two traits:
//!
//! * [`Service`] is the daemon's side: each method takes the [`Caller`].
//! * [`Requests`] is the commands' side, without a caller. [`Client`] implements it over any
//!   [`Transport`] (the daemon's socket). [`InProcess`] implements it over a service in the same
//!   process, which is how tests run commands without a daemon.
//!
//! [`dispatch`] leads from a request's bytes to a method of [`Service`].
//!
//! [`client`] carries requests to the daemon. [`run_dir`] finds the daemon, and [`start`] runs one
//! when it is needed. [`files`] is a second protocol, on a socket of its own: the files of a
//! dataset for commands that use no mount.
//!
//! # On the wire
//! A request is `POST /v1/METHOD` with a JSON body. The reply is `{"ok": ANSWER}` with status 200,
//! or `{"error": ERROR}` with a status that fits ([`Error::http_status`]).
//!
//! Receivers ignore unknown fields, and missing fields take their defaults. So a newer command and
//! an older daemon understand each other as far as they can.
//!
//! # Values
//! A property travels as its text for people, its exact text (`-p`) and, for a numeric property,
//! its number. Only the engine formats sizes and ratios. Times are seconds since the epoch; the
//! command converts them to local time.
//!
//! # Absent
//! * An async runtime: the client reads and writes its socket itself.
//! * How the daemon answers, and which callers it refuses: see `server`.
//! * What a terminal shows: see `cli`.
//! * Mount rules: see `mount_rules`.

pub mod accounts;
mod afs;
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
mod io_stat;
mod log;
mod pool;
mod prop;
mod request;
pub mod run_dir;
mod service;
pub mod settings;
pub mod start;
mod stats;
pub mod streams;
#[cfg(test)]
mod tests;
mod top;
mod trace;
mod work;

pub use afs::{
    AFS_PAGE, AfsAdopt, AfsClient, AfsDisable, AfsEnable, AfsLock, AfsPartition, AfsQuery, AfsServer,
    AfsStatus, AfsTransaction, AfsVolume,
};
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
pub use error::{DeviceRefusal, Error, Reason, Refusal, StreamFault, Unmounts, chain, plain};
pub use event::{Event, EventPage, EventQuery, EventValue};
pub use exports::{AttachRequest, DetachRequest, ExportList, OfferRequest, Offered, WithdrawRequest};
pub use import::{
    Activity, Candidate, Found, Host, ImportOutcome, ImportRequest, LoadInfo, Lost, MmpState, Rewind,
    RewindInfo, ScanRequest,
};
pub use inject::{Ailment, DataFault, DeviceFault, InjectRequest, Injected, Spell};
pub use io_stat::{ClassIo, IoStat, add_histogram};
pub use log::LogStats;
pub use pool::{
    CheckpointStat, CheckpointState, DdtSummary, DdtTotals, ExpandStat, HistoryKind, HistoryPage,
    HistoryRecord, LeafWork, Nameless, Pool, PoolQuery, PoolState, RebuildStat, RebuildState, RemovalStat,
    ScanFunc, ScanStat, ScanState, StatusReason, SuspendReason, Vdev, VdevAux, VdevStat, VdevState,
    WorkState,
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
pub use streams::{ReceiveRequest, RedactRequest, SendRequest};
pub use top::{
    TOP_MAX, Top, TopAfsClient, TopAttach, TopCall, TopClass, TopClient, TopClientOp, TopDataset, TopLock,
    TopOp, TopPool, TopPromise, TopQuery, TopThread, TopTimes, TopView, TopVolume, process_id,
};
pub use trace::{
    TraceColumn, TraceCondition, TraceEvent, TraceGroup, TraceKept, TraceQuery, TraceUnit, Traced,
};
pub use work::{
    AllUnderWay, SLOW_MAX, SlowOp, SlowOps, SlowQuery, Subject, TXGS_MAX, TxgRecord, TxgTotals, Txgs,
    UnderWay, Waited,
};
