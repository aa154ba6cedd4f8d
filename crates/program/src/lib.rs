//! The program `poolhouse`: commands and the daemon in one binary.
//!
//! # Theory
//! Commands (`cli`) and the daemon (`server`) share the protocol between them (`api`) and don't
//! link each other. The program links both, so that a command can start its own file as the
//! daemon, and answers itself where none runs. It is also where the command is that measures the
//! daemon's code in its own process ([`mod@bench`]).

pub mod bench;

use api::Requests;
use cli::daemon::Daemon;

/// What commands need of the daemon's code.
pub const DAEMON: Daemon = Daemon {
    peer: server::control::peer::of_stream,
    metrics: |service: &dyn Requests| server::telemetry::metrics::page(service),
};
