//! The export of a pool, and giving up one that can't be exported.

use crate::afs::Parting;
use crate::commands::pool::leave;
use crate::mounts::MountedFs;
use crate::mounts::threads::threads_for;
use crate::pools::holders::{PASSING, kept, lingers};
use crate::pools::imported::{Imported, Mounted, Parted};
use crate::pools::unmounting::{folders_of, remove_folders, restore_all, unmount_all};
use crate::pools::{Pools, ending};
use crate::volumes::attach::device::Taken;
use api::{Caller, Error, ExportRequest, Reason};
use fuse::Detach;
use ondisk::Guid;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a pool with an overdue transaction group may be without progress before it counts as
/// hung.
const STILL: Duration = Duration::from_secs(5);

/// An export that users prevent.
struct Refused {
    error: Error,
    /// Whether the users may end by themselves, so that a patient export may succeed later.
    may_pass: bool,
    /// The file systems that were unmounted, and those that could not be.
    mounts: Vec<Arc<MountedFs>>,
    /// Block devices of volumes that were detached.
    devices: Taken,
}

/// Refuses to lose removed files, which exist only while this process has them open.
///
/// # Errors
/// * [`Reason::Nameless`]: there are such files that the pool needs, and `force` is not set.
fn lose_nameless(imported: &Imported, force: bool) -> Result<(), Error> {
    let name = imported.pool.name();
    let files = crate::view::nameless(imported.pool.spa());
    let devices: Vec<Guid> = files.iter().map(|file| Guid(file.guid)).collect();
    let spared = imported.pool.spa().can_spare(&devices);
    if !force && !files.is_empty() && !spared {
        return Err(Error::new(name, Reason::Nameless { files }));
    }
    for file in &files {
        tracing::warn!(pool = name, file = file.path, "removed: it is gone with this export");
    }
    Ok(())
}

impl Pools {
    /// Unmounts and exports a pool (`spa_export`).
    ///
    /// # Errors
    /// See [`api::Service::export`].
    pub fn export(&self, caller: &Caller, request: &ExportRequest) -> Result<(), Error> {
        self.let_go(caller, request, false)
    }

    /// Exports a pool, or with `destroy` destroys it.
    ///
    /// # Errors
    /// See [`api::Service::export`].
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
        // Its file systems can't be unmounted without its devices either.
        if imported.pool.spa().writer().is_some_and(|live| live.suspended().is_some()) {
            return Err(Error::new(name, Reason::Suspended));
        }
        let force = request.force || request.hardforce;
        if !destroy {
            lose_nameless(&imported, force)?;
        }
        self.table.go(name, &imported)?;
        crate::commands::pool::inject::pass(name, false, self.table.closing());
        if let Err(refused) = self.take_from_users(caller, request, &imported) {
            imported.volumes.reopen();
            self.table.stay(name, &imported);
            self.attachments.devices_back(&self.table, refused.devices);
            imported.parted.lock().mounts.extend(refused.mounts);
            if !request.patient || !refused.may_pass {
                self.restore_parted(&imported);
            }
            return Err(refused.error);
        }
        if let Err(reason) = imported.pool.spa().writer().map_or(Ok(()), |live| leave(live, destroy)) {
            imported.volumes.reopen();
            self.table.stay(name, &imported);
            // A suspended pool gets its mounts back when it is cleared.
            self.restore_cleared(&imported);
            return Err(Error::new(name, reason));
        }
        drop(std::mem::take(&mut *imported.parted.lock()));
        if !self.table.gone(name, &imported) {
            tracing::info!(pool = name, "gone, after it was given up");
            return Ok(());
        }
        self.forget(&imported, !request.hardforce);
        tracing::info!(pool = name, destroy, "gone");
        Ok(())
    }

    /// Ends visits, and unmounts and closes what users have of a pool. All of it is recorded as
    /// [`Parted`].
    fn take_from_users(
        &self,
        caller: &Caller,
        request: &ExportRequest,
        imported: &Arc<Imported>,
    ) -> Result<(), Refused> {
        let (name, force) = (imported.pool.name(), request.force || request.hardforce);
        if force {
            self.visits.end(name);
        }
        // This check comes before anything is taken away from users.
        let busy = self.visits.in_use(imported, PASSING);
        let busy = busy.or_else(|| self.attachments.volume_in_use(imported, force));
        let busy = busy.or_else(|| self.afs.in_transaction(imported));
        if let Some(error) = busy.or_else(|| kept(imported)) {
            return Err(Refused { error, may_pass: true, mounts: Vec::new(), devices: Taken::new() });
        }
        let mounted = imported.mounted();
        // As on Linux, force unmounts nothing that is in use.
        let failures = unmount_all(caller, &mounted, Detach::Normal, threads_for(request.threads));
        let refused = failures.into_iter().next().map(|failure| failure.error);
        let (devices, refused) = match refused.or_else(|| lingers(imported)) {
            Some(error) => (Taken::new(), Some(error)),
            None => match self.attachments.release_volumes(imported, force) {
                Ok(all) => (all, None),
                Err(some) => {
                    let busy = self.attachments.volume_in_use(imported, force);
                    (some, Some(busy.unwrap_or_else(|| Error::new(name, Reason::Busy))))
                }
            },
        };
        let mounts = |mounted: Vec<Mounted>| mounted.into_iter().map(|(_, live)| live).collect::<Vec<_>>();
        let refused = refused.or_else(|| self.afs.release(imported, Parting::Asked).err());
        if let Some(error) = refused {
            return Err(Refused { may_pass: error.is_busy(), error, mounts: mounts(mounted), devices });
        }
        remove_folders(folders_of(&mounted));
        let mut parted = imported.parted.lock();
        parted.mounts.extend(mounts(mounted));
        parted.devices.extend(devices);
        Ok(())
    }

    /// Forgets an exported pool. `unlist` also removes it from its cache file: one that was
    /// exported with `zpool export -F` stays there.
    fn forget(&self, imported: &Imported, unlist: bool) {
        let (name, guid) = (imported.pool.name(), imported.pool.spa().guid());
        vdev::inject::forget(guid);
        self.doors.forget_offers(name);
        self.journal.take(name);
        self.tunables.tell(&self.table.present());
        if let Some(file) = self.memory.file_of(&imported.facts.read()).filter(|_| unlist) {
            self.memory.write(&file, &self.table.present(), Some(guid));
        }
    }

    /// Returns to a pool what refused exports have taken.
    fn restore_parted(&self, imported: &Arc<Imported>) {
        let Parted { mounts, devices } = std::mem::take(&mut *imported.parted.lock());
        let mounts: Vec<_> = mounts.into_iter().map(|live| (Arc::clone(imported), live)).collect();
        // Volumes are mounted as the AFS server has them.
        self.afs.adopt(imported);
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
        let is_slow =
            || imported.pool.spa().writer().is_some_and(|live| live.deadman().slow_group().is_some());
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
        self.afs.abandon(name);
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
