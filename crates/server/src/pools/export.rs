//! The export of a pool, and giving up one that can't be exported.

use crate::commands::pool::leave;
use crate::mounts::MountedFs;
use crate::pools::mounting::{folders_of, remove_folders, restore_all, unmount_all};
use crate::pools::{Imported, Pools, State, ending, threads_for};
use crate::volumes::attach::Taken;
use api::{Caller, Error, ExportRequest, Reason, Refusal};
use fuse::Detach;
use ondisk::Guid;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a pool with an overdue transaction group may be without progress before it counts as
/// hung.
const STILL: Duration = Duration::from_secs(5);

/// How long other mounts of a file system, and commands that use files without a mount, may take to
/// end by themselves.
const PASSING: Duration = Duration::from_millis(500);

/// What refused exports have taken from a pool.
#[derive(Default)]
pub(super) struct Parted {
    mounts: Vec<Arc<MountedFs>>,
    /// Block devices of volumes.
    devices: Taken,
}

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
        let imported = self.pool(name)?;
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
        match self.table.write().get_mut(name) {
            Some(state @ State::Here(_)) => *state = State::Going(Arc::clone(&imported)),
            Some(State::Coming(_) | State::Going(_)) | None => return Err(Error::new(name, Reason::Busy)),
        }
        crate::commands::pool::inject::pass(name, false, &self.closing);
        let stays = |error: Error| {
            imported.volumes.reopen();
            if let Some(state) = self.table.write().get_mut(name).filter(|state| state.is_going(&imported)) {
                *state = State::Here(Arc::clone(&imported));
            }
            Err(error)
        };
        if force {
            self.visits().end(name);
        }
        // This check comes before anything is taken away from users.
        let busy = self.visits().in_use(&imported, PASSING);
        let busy = busy.or_else(|| self.volume_in_use(&imported, force));
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
        let refused = refused.or_else(|| match self.release_volumes(&imported, force) {
            Ok(all) => {
                taken = all;
                None
            }
            Err(some) => {
                taken = some;
                let busy = self.volume_in_use(&imported, force);
                Some(busy.unwrap_or_else(|| Error::new(name, Reason::Busy)))
            }
        });
        if let Some(error) = refused {
            let refused = stays(error.clone());
            self.devices_back(taken);
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
        {
            let mut table = self.table.write();
            // Another pool may have its name by now.
            if !table.get(name).is_some_and(|state| state.is_going(&imported)) {
                tracing::info!(pool = name, "gone, after it was given up");
                return Ok(());
            }
            table.remove(name);
        }
        vdev::inject::forget(guid);
        self.forget_offers(name);
        self.journal.take(name);
        self.tunables.tell(&self.present());
        // A pool exported with `zpool export -F` stays in the cache file.
        if let Some(file) = self.memory.file_of(&imported.facts.read()).filter(|_| !request.hardforce) {
            self.memory.write(&file, &self.present(), Some(guid));
        }
        tracing::info!(pool = name, destroy, "gone");
        Ok(())
    }

    /// Returns to a pool what refused exports have taken.
    fn restore_parted(&self, imported: &Arc<Imported>) {
        let Parted { mounts, devices } = std::mem::take(&mut *imported.parted.lock());
        let mounts: Vec<_> = mounts.into_iter().map(|live| (Arc::clone(imported), live)).collect();
        restore_all(&mounts);
        self.devices_back(devices);
    }

    /// The same, if the pool is imported and not suspended. Otherwise the next clear does it.
    pub(super) fn restore_cleared(&self, imported: &Arc<Imported>) {
        let suspended = imported.pool.spa().writer().is_some_and(|live| live.suspended().is_some());
        let is_here = self.pool(imported.pool.name()).is_ok_and(|here| Arc::ptr_eq(&here, imported));
        if is_here && !suspended {
            self.restore_parted(imported);
        }
    }

    /// A pool that is broken, or that has an overdue transaction group and makes no progress. A
    /// slow pool is worth waiting for.
    fn hung(&self, name: &str) -> Option<Arc<Imported>> {
        let imported = self.pool_or_going(name).ok()?;
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
        self.table.write().remove(name);
        self.forget_offers(name);
        self.journal.take(name);
        self.visits().send_away(name);
        ending::give_up(imported, ending::Users::Fail);
        if let Some(live) = imported.pool.spa().writer() {
            live.txgs().abandon();
        }
        self.tunables.tell(&self.present());
        if let Some(file) = self.memory.file_of(&imported.facts.read()) {
            self.memory.write(&file, &self.present(), Some(guid));
        }
        // Dropping it would wait for its threads.
        std::mem::forget(Arc::clone(imported));
        tracing::warn!(
            pool = name,
            "given up: what was not written is lost, and its devices stay claimed until this service ends"
        );
    }
}

/// A file system of the pool that would stay mounted elsewhere, and its users. Unmounts nothing.
///
/// A new mount namespace has copies until its creator has unmounted them. One that ends has copies
/// until the kernel has released them. This function waits for both.
fn kept(imported: &Arc<Imported>) -> Option<Error> {
    let mounts = imported.mounts.list();
    // A mount that a user unmounted is noticed here, and lingers or is over.
    mounts.iter().for_each(|live| _ = live.is_attached());
    let since = Instant::now();
    loop {
        let keeper = |places: &fuse::system::Places| {
            let (live, by) = mounts.iter().find_map(|live| Some((live, live.keeper(places)?)))?;
            Some(Error::new(live.name(), Reason::HeldOpen { by }))
        };
        let kept = match fuse::system::Places::read() {
            Ok(places) => keeper(&places),
            Err(error) => {
                tracing::warn!(%error, "it is not known who else has file systems mounted");
                None
            }
        };
        if kept.is_none() && imported.mounts.lingering().is_empty() {
            return None;
        }
        if since.elapsed() >= PASSING {
            return lingers(imported).or(kept);
        }
        std::thread::sleep(PASSING / 50);
    }
}

/// A lingering file system of a pool, and its users.
fn lingers(imported: &Imported) -> Option<Error> {
    let lingering = imported.mounts.lingering();
    lingering.first().map(|live| Error::new(live.name(), Reason::HeldOpen { by: live.kept_by() }))
}

/// Adds the users of a busy dataset to the refusal of a change, if they are known. Callers who do
/// not own the daemon do not learn of them.
pub(super) fn with_user(caller: &Caller, pools: &Pools, imported: &Imported, error: Error) -> Error {
    if !caller.owns() || !matches!(error.reason, Reason::Busy | Reason::Refused { why: Refusal::Busy }) {
        return error;
    }
    let lingering = imported.mounts.lingering();
    let live = lingering.iter().find(|live| live.name() == error.about);
    let visitor = || {
        let object = imported.pool.dsl().dataset(&error.about).ok()?.object().0;
        let users = pools.visits().users(imported.pool.name());
        Some(users.into_iter().find(|(dataset, _)| *dataset == object)?.1)
    };
    let by = live.map(|live| live.kept_by()).or_else(visitor);
    let by = by.or_else(|| pools.users_of_volume(imported, &error.about));
    match by {
        Some(by) => Error::new(error.about, Reason::HeldOpen { by }),
        None => error,
    }
}
