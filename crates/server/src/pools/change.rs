//! Changes of an imported pool as a whole (`zpool`).

use crate::commands::pool::split::{self, Split};
use crate::commands::pool::{log, scan};
use crate::commands::vdev::{self, initialize_trim, online_offline, properties};
use crate::pools::Pools;
use crate::pools::imported::Imported;
use crate::replies::{of_checkpoint, of_shape};
use api::{Caller, Error, ExportRequest, PoolChange, Reason, Settings};
use ondisk::Guid;
use spa::Host;
use spa::engine::{PoolProp, PoolWriter};
use std::sync::Arc;

impl Pools {
    /// Changes a pool as a whole.
    ///
    /// # Errors
    /// See [`api::Service::change_pool`].
    pub fn change_pool(
        &self,
        caller: &Caller,
        name: &str,
        change: &PoolChange,
        host: &Host,
    ) -> Result<(), Error> {
        let imported = match change {
            PoolChange::Clear { .. } => self.table.pool_or_going(name)?,
            _ => self.table.pool(name)?,
        };
        let done = self.change_one(caller, &imported, change, host);
        if matches!(change, PoolChange::Clear { .. }) && done.is_ok() {
            self.restore_cleared(&imported);
        }
        let config = !matches!(
            change,
            PoolChange::Destroy { .. }
                | PoolChange::Sync
                | PoolChange::SyncAnew
                | PoolChange::Log { .. }
                | PoolChange::Clear { .. }
                | PoolChange::Work { .. }
                | PoolChange::PruneDdt { .. }
                | PoolChange::Scan { .. }
        );
        if done.is_ok() && config {
            self.remember(&imported);
        }
        done
    }

    fn change_one(
        &self,
        caller: &Caller,
        imported: &Arc<Imported>,
        change: &PoolChange,
        host: &Host,
    ) -> Result<(), Error> {
        let name = imported.pool.name();
        if let PoolChange::Destroy { force, command } = change {
            // A read-only pool is closed without a write, and can be imported again.
            if let Some(live) = imported.pool.spa().writer() {
                log(caller, live, command).map_err(|reason| Error::new(name, reason))?;
            }
            let request = ExportRequest { name: name.to_owned(), force: *force, ..ExportRequest::default() };
            return self.let_go(caller, &request, true);
        }
        let live = imported.writer(name)?;
        match change {
            PoolChange::Destroy { .. } => Ok(()),
            PoolChange::SyncAnew => live.sync_anew().map_err(|_| Error::new(name, Reason::Suspended)),
            PoolChange::Sync => live.sync_all().map_err(|_| Error::new(name, Reason::Suspended)),
            PoolChange::Set { props } => self.set_props(imported, live, props, host),
            PoolChange::SetVdev { guid, property, value } => {
                let value = properties::check(property, value)
                    .map_err(|what| Error::new(name, Reason::BadValue { what }))?;
                let done = live.vdevs().set_vdev(Guid(*guid), property, value);
                done.map_err(|e| Error::new(name, of_shape(&e)))
            }
            PoolChange::Reguid { guid } => self.reguid(name, live, *guid),
            PoolChange::Reopen => {
                let done = live.vdevs().reopen(None);
                done.map(drop).map_err(|e| Error::new(name, of_shape(&e.into())))
            }
            PoolChange::Add { .. } | PoolChange::Remove { .. } | PoolChange::Clear { .. } => {
                vdev::change(imported, live, change)
            }
            PoolChange::Offline { .. }
            | PoolChange::Online { .. }
            | PoolChange::Attach { .. }
            | PoolChange::Detach { .. } => online_offline::change(imported, live, change),
            PoolChange::Work { .. } => initialize_trim::work(imported, live, change),
            PoolChange::Scan { command } => scan::scan(name, live, *command),
            PoolChange::PruneDdt { older, percent } => initialize_trim::prune(name, live, *older, *percent),
            PoolChange::Split { name, devices, props, import } => {
                let how = Split { name, devices, props };
                self.split(caller, imported, host, &how, *import)
            }
            PoolChange::Upgrade { version } => {
                let done = live.set(vec![PoolProp::Version(*version)]);
                done.map_err(|e| Error::new(name, of_shape(&e)))
            }
            PoolChange::Checkpoint => {
                live.checkpoints().take().map_err(|e| Error::new(name, of_checkpoint(&e)))
            }
            PoolChange::DiscardCheckpoint { wait } => {
                live.checkpoints().discard(*wait).map_err(|e| Error::new(name, of_checkpoint(&e)))
            }
            PoolChange::Log { command } => {
                log(caller, live, command).map_err(|reason| Error::new(name, reason))
            }
        }
    }

    /// Sets properties of a pool (`spa_prop_set`).
    ///
    /// # Errors
    /// See [`vdev::props`] and [`of_shape`].
    fn set_props(
        &self,
        imported: &Imported,
        live: &PoolWriter,
        props: &Settings,
        host: &Host,
    ) -> Result<(), Error> {
        let props = vdev::props(imported, props, host)?;
        if let Some(file) = props.cachefile {
            let before = self.memory.file_of(&imported.facts.read());
            imported.facts.write().cachefile = file;
            if let Some(before) = before {
                self.memory.write(&before, &self.table.present(), None);
            }
        }
        if props.kept.is_empty() {
            return Ok(());
        }
        live.set(props.kept).map_err(|e| Error::new(imported.pool.name(), of_shape(&e)))
    }

    /// Gives a pool another guid, or a random one (`spa_change_guid`).
    ///
    /// # Errors
    /// * [`Reason::BadGuid`]: another imported pool has it.
    /// * All others: see [`of_shape`].
    fn reguid(&self, name: &str, live: &PoolWriter, guid: Option<u64>) -> Result<(), Error> {
        let taken = |g: u64| self.table.present().iter().any(|other| other.pool.spa().guid().0 == g);
        if guid.is_some_and(taken) {
            return Err(Error::new(name, Reason::BadGuid));
        }
        live.reguid(guid.map(Guid)).map(drop).map_err(|e| Error::new(name, of_shape(&e)))
    }

    /// Splits devices off into a new pool, which is exported again unless it is to stay
    /// (`spa_vdev_split_mirror`).
    ///
    /// # Errors
    /// They are about the old pool, unless the new one can't be exported.
    ///
    /// * Others before anything is written: see [`split::prepare`].
    /// * Others from the split itself: see [`split::open`].
    fn split(
        &self,
        caller: &Caller,
        imported: &Imported,
        host: &Host,
        how: &Split<'_>,
        stays: bool,
    ) -> Result<(), Error> {
        let old = imported.pool.name();
        let live = imported.writer(old)?;
        let new = split::prepare(imported, host, how)?;
        let guid = new.guid;
        let open = || split::open(old, live, host, how, new, self.tunables.room());
        self.import(how.name, guid, open).map_err(|e| Error { about: old.to_owned(), ..e })?;
        if stays {
            return Ok(());
        }
        self.export(caller, &ExportRequest { name: how.name.to_owned(), ..ExportRequest::default() })
    }
}
