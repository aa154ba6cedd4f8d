//! Volumes that a command brings from a partition of OpenAFS ([`api::streams::adopt`]).

use std::io::Read;

use super::{Afs, Stage, of_afs};
use crate::pools::imported::Imported;
use afs::server::adopt::Beside;
use afs::types::{Date, VolumeId};
use api::{AfsAdopt, Caller, Error, Reason};

impl Afs {
    /// Makes a volume of a served partition from a dump.
    ///
    /// # Errors
    /// * [`Reason::Permission`]: the caller does not own the daemon.
    /// * [`Reason::NotAfs`]: the file system is no partition that is served.
    /// * [`Reason::Afs`]: the server has a volume of this number, or the dump is damaged.
    /// * [`Reason::Busy`]: another command works on the partition, or the volume.
    /// * All others: those of a write to the pool.
    pub(crate) fn take_in(
        &self,
        caller: &Caller,
        imported: &Imported,
        request: &AfsAdopt,
        from: &mut dyn Read,
    ) -> Result<(), Error> {
        let name = request.dataset.as_str();
        caller.must_own(name)?;
        imported.writer(name)?;
        let entry = self.partitions.lock().get(name).cloned();
        let id = match entry {
            Some(entry) if entry.stage == Stage::Served => entry.id,
            Some(entry) if entry.stage == Stage::Moving => return Err(Error::new(name, Reason::Busy)),
            Some(_) | None => None,
        };
        let running = self.server.lock().clone();
        let not_served = || Error::new(name, Reason::NotAfs);
        let (id, running) = id.zip(running).ok_or_else(not_served)?;
        let core = running.server.core();
        let partition = core.partition(id).filter(|partition| partition.dataset() == name);
        let partition = partition.ok_or_else(not_served)?;
        let (id, backup) = (VolumeId(request.volume), VolumeId(request.backup));
        let beside = Beside { id, backup, copy_date: Date(request.copied) };
        core.adopt(&partition, beside, from).map_err(|error| of_afs(name, &error))?;
        tracing::info!(dataset = name, volume = id.0, "a volume of another server is adopted");
        Ok(())
    }
}
