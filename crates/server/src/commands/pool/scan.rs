//! Scrub and resilver: from a request to the engine.

use rustix::io::Errno;
use spa::engine::{PoolWriter, ScanCommand, ScanDone, ScanRefusal};

use api::{self, Error, Reason};

/// Starts, pauses or stops a scan (`spa_scan`).
///
/// # Errors
/// * [`Reason::System`] (`ENOENT`): there is nothing to pause or stop.
/// * [`Reason::System`] (`EBUSY`): another scan is running.
/// * [`Reason::System`] (`ENOTSUP`): a required feature is not enabled.
/// * [`Reason::Suspended`]: the pool accepts no writes.
pub(crate) fn scan(name: &str, live: &PoolWriter, command: api::ScanCommand) -> Result<(), Error> {
    let command = match command {
        api::ScanCommand::Scrub => ScanCommand::Scrub,
        api::ScanCommand::ScrubOn => ScanCommand::ScrubOn,
        api::ScanCommand::ErrorScrub => ScanCommand::ErrorScrub,
        api::ScanCommand::Resilver => ScanCommand::Resilver,
        api::ScanCommand::Pause => ScanCommand::Pause,
        api::ScanCommand::Stop => ScanCommand::Stop,
    };
    let system = |errno: Errno| Reason::System { errno: errno.raw_os_error() };
    let reason = match live.scan(command) {
        Ok(ScanDone::Done | ScanDone::Resumed | ScanDone::Nothing) => return Ok(()),
        Err(ScanRefusal::Idle) => system(Errno::NOENT),
        Err(ScanRefusal::Busy) => system(Errno::BUSY),
        Err(ScanRefusal::Unsupported { .. }) => system(Errno::NOTSUP),
        Err(ScanRefusal::Stopped(_)) => Reason::Suspended,
    };
    Err(Error::new(name, reason))
}
