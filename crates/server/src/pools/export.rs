//! The export of a pool, and giving up one that can't be exported.

use crate::commands::pool::leave;
use crate::mounts::threads::threads_for;
use crate::pools::holders::{PASSING, kept, lingers};
use crate::pools::imported::{Imported, Parted};
use crate::pools::unmounting::{folders_of, remove_folders, restore_all, unmount_all};
use crate::pools::{Pools, ending};
use api::{Caller, Error, ExportRequest, Reason};
use fuse::Detach;
use ondisk::Guid;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a pool with an overdue transaction group may be without progress before it counts as
/// hung.
const STILL: Duration = Duration::from_secs(5);

impl Pools {
    /// Unmounts and exports a pool (`spa_export`).
    ///
    /// # Errors
    /// See [`api::Service::export`].
    pub fn export(&self, caller: &Caller, request: &ExportRequest) -> Result<(), Error> {
        self.let_go(caller, request, false)
    }

    pub(super) fn let_go(
        &self,
        caller: &Caller,
        request: &ExportRequest,
        destroy: bool,
    ) -> Result<(), Error> {
        let name = request.name.as_str();
        if let Some(hung) = self.hung(name) {
            if request.force && !destroy {
                self.give_up(name, &hung);
                return Ok(());
            }
            return Err(Error::new(name, Reason::Silent));
        }
        let imported = self.table.pool(name)?;
        let guid = imported.pool.spa().guid();
        // Its file systems can't be unmounted without its devices either.
        if imported.pool.spa().writer().is_some_and(|live| live.suspended().is_some()) {
            return Err(Error::new(name, Reason::Suspended));
        }
        let force = request.force || request.hardforce;
        // A removed file exists only while this process has it open.
        let files = if destroy { Vec::new() } else { crate::view::nameless(imported.pool.spa()) };
        let devices: Vec<Guid> = files.iter().map(|file| Guid(file.guid)).collect();
        let spared = imported.pool.spa().can_spare(&devices);
        if !force && !files.is_empty() && !spared {
            return Err(Error::new(name, Reason::Nameless { files }));
        }
        for file in &files {
            tracing::warn!(pool = name, file = file.path, "removed: it is gone with this export");
        }
        self.table.go(name, &imported)?;
        crate::commands::pool::inject::pass(name, false, self.table.closing());
        let stays = |error: Error| {
            imported.volumes.reopen();
            self.table.stay(name, &imported);
            Err(error)
        };
        if force {
            self.visits.end(name);
        }
        // This check comes before anything is taken away from users.
        let busy = self.visits.in_use(&imported, PASSING);
        let busy = busy.or_else(|| self.attachments.volume_in_use(&imported, force));
        if let Some(busy) = busy.or_else(|| kept(&imported)) {
            let refused = stays(busy);
            if !request.patient {
                self.restore_parted(&imported);
            }
            return refused;
        }
        let mounted = imported.mounted();
        // As on Linux, force unmounts nothing that is in use.
        let failures = unmount_all(caller, &mounted, Detach::Normal, threads_for(request.threads));
        let refused = failures.into_iter().next().map(|failure| failure.error);
        let refused = refused.or_else(|| lingers(&imported));
        let mut taken = Vec::new();
        let refused = refused.or_else(|| match self.attachments.release_volumes(&imported, force) {
            Ok(all) => {
                taken = all;
                None
            }
            Err(some) => {
                taken = some;
                let busy = self.attachments.volume_in_use(&imported, force);
                Some(busy.unwrap_or_else(|| Error::new(name, Reason::Busy)))
            }
        });
        if let Some(error) = refused {
            let refused = stays(error.clone());
            self.attachments.devices_back(&self.table, taken);
            imported.parted.lock().mounts.extend(mounted.into_iter().map(|(_, live)| live));
            if !request.patient || !error.is_busy() {
                self.restore_parted(&imported);
            }
            return refused;
        }
        remove_folders(folders_of(&mounted));
        {
            let mut parted = imported.parted.lock();
            parted.mounts.extend(mounted.into_iter().map(|(_, live)| live));
            parted.devices.extend(taken);
        }
        if let Err(reason) = imported.pool.spa().writer().map_or(Ok(()), |live| leave(live, destroy)) {
            let refused = stays(Error::new(name, reason));
            // A suspended pool gets its mounts back when it is cleared.
            self.restore_cleared(&imported);
            return refused;
        }
        drop(std::mem::take(&mut *imported.parted.lock()));
        if !self.table.gone(name, &imported) {
            tracing::info!(pool = name, "gone, after it was given up");
            return Ok(());
        }
        vdev::inject::forget(guid);
        self.doors.forget_offers(name);
        self.journal.take(name);
        self.tunables.tell(&self.table.present());
        // A pool exported with `zpool export -F` stays in the cache file.
        if let Some(file) = self.memory.file_of(&imported.facts.read()).filter(|_| !request.hardforce) {
            self.memory.write(&file, &self.table.present(), Some(guid));
        }
        tracing::info!(pool = name, destroy, "gone");
        Ok(())
    }

    /// Returns to a pool what refused exports have taken.
    fn restore_parted(&self, imported: &Arc<Imported>) {
        let Parted { mounts, devices } = std::mem::take(&mut *imported.parted.lock());
        let mounts: Vec<_> = mounts.into_iter().map(|live| (Arc::clone(imported), live)).collect();
        restore_all(&mounts);
        self.attachments.devices_back(&self.table, devices);
    }

    /// The same, if the pool is imported and not suspended. Otherwise the next clear does it.
    pub(super) fn restore_cleared(&self, imported: &Arc<Imported>) {
        let suspended = imported.pool.spa().writer().is_some_and(|live| live.suspended().is_some());
        let is_here = self.table.pool(imported.pool.name()).is_ok_and(|here| Arc::ptr_eq(&here, imported));
        if is_here && !suspended {
            self.restore_parted(imported);
        }
    }

    /// A pool that is broken, or that has an overdue transaction group and makes no progress. A
    /// slow pool is worth waiting for.
    fn hung(&self, name: &str) -> Option<Arc<Imported>> {
        let imported = self.table.pool_or_going(name).ok()?;
        if imported.pool.spa().writer().is_some_and(|live| live.broken().is_some()) {
            return Some(imported);
        }
        let is_slow = || imported.pool.spa().writer().is_some_and(|live| live.slow_group().is_some());
        if !is_slow() {
            return None;
        }
        let (before, since) = (ending::Signs::of(&imported), Instant::now());
        while since.elapsed() < STILL {
            std::thread::sleep(STILL / 50);
            if !is_slow() || ending::Signs::of(&imported) != before {
                return None;
            }
        }
        Some(imported)
    }

    /// Gives up a pool that can't be exported, as a crash would: its mounts end, and nothing waits
    /// for it.
    ///
    /// Its devices stay claimed until the process ends. So no other process writes to them while
    /// one of its threads may.
    fn give_up(&self, name: &str, imported: &Arc<Imported>) {
        let guid = imported.pool.spa().guid();
        self.table.remove(name);
        self.doors.forget_offers(name);
        self.journal.take(name);
        self.visits.send_away(name);
        ending::give_up(imported, ending::Users::Fail);
        if let Some(live) = imported.pool.spa().writer() {
            live.txgs().abandon();
        }
        self.tunables.tell(&self.table.present());
        if let Some(file) = self.memory.file_of(&imported.facts.read()) {
            self.memory.write(&file, &self.table.present(), Some(guid));
        }
        // Dropping it would wait for its threads.
        std::mem::forget(Arc::clone(imported));
        tracing::warn!(
            pool = name,
            "given up: what was not written is lost, and its devices stay claimed until this service ends"
        );
    }
}
