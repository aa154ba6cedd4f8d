//! Scrub and resilver: from a request to the engine.

use spa::engine::{PoolWriter, ScanCommand, ScanDone};

use crate::replies::of_scan;
use api::{self, Error};

/// Starts, pauses or stops a scan (`spa_scan`).
///
/// # Errors
/// * [`Reason::System`](api::Reason::System) (`ENOENT`): there is nothing to pause or stop.
/// * [`Reason::System`](api::Reason::System) (`EBUSY`): another scan is running.
/// * [`Reason::System`](api::Reason::System) (`ENOTSUP`): a required feature is not enabled.
/// * [`Reason::Suspended`](api::Reason::Suspended): the pool accepts no writes.
pub(crate) fn scan(name: &str, live: &PoolWriter, command: api::ScanCommand) -> Result<(), Error> {
    let command = match command {
        api::ScanCommand::Scrub => ScanCommand::Scrub,
        api::ScanCommand::ScrubOn => ScanCommand::ScrubOn,
        api::ScanCommand::ErrorScrub => ScanCommand::ErrorScrub,
        api::ScanCommand::Resilver => ScanCommand::Resilver,
        api::ScanCommand::Pause => ScanCommand::Pause,
        api::ScanCommand::Stop => ScanCommand::Stop,
    };
    match live.scan(command) {
        Ok(ScanDone::Done | ScanDone::Resumed | ScanDone::Nothing) => Ok(()),
        Err(refusal) => Err(Error::new(name, of_scan(&refusal))),
    }
}
