//! Exporting a pool, and giving up one that can't be exported.

use super::mounting::{folders_of, remove_folders, restore_all, unmount_all};
use super::{Imported, Pools, State, ending, threads_for};
use crate::attach::Taken;
use crate::mounts::Live;
use crate::work::leave;
use api::{Caller, Error, ExportRequest, Reason, Refusal};
use fuse::Detach;
use ondisk::Guid;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long nothing must move in a pool whose transaction group takes too long, before it is said
/// to make no progress.
const STILL: Duration = Duration::from_secs(5);

/// How long another place that has a file system mounted may take to go by itself, and a command
/// that uses files without a mount.
const PASSING: Duration = Duration::from_millis(500);

/// What exports that were refused have taken from a pool.
#[derive(Default)]
pub(super) struct Parted {
    mounts: Vec<Arc<Live>>,
    /// Block devices of volumes.
    devices: Taken,
}

impl Pools {
    /// Unmounts and lets go of a pool.
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
        // Its file systems could not be unmounted without waiting for devices either.
        if imported.pool.spa().writer().is_some_and(|live| live.suspended().is_some()) {
            return Err(Error::new(name, Reason::Suspended));
        }
        let force = request.force || request.hardforce;
        // What has no name any more is there as long as we have it.
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
        crate::inject::pass(name, false, &self.closing);
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
        // Before anything is taken from anybody.
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
        // As on Linux, force takes nothing that is in use.
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
            // One that is suspended gets its mounts back when it is cleared.
            self.restore_cleared(&imported);
            return refused;
        }
        drop(std::mem::take(&mut *imported.parted.lock()));
        {
            let mut table = self.table.write();
            // Another may have its name by now.
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
        // What goes so (`zpool export -F`) is still remembered.
        if let Some(file) = self.memory.file_of(&imported.facts.read()).filter(|_| !request.hardforce) {
            self.memory.write(&file, &self.present(), Some(guid));
        }
        tracing::info!(pool = name, destroy, "gone");
        Ok(())
    }

    /// Gives a pool back what refused exports have taken: it is as it was before.
    fn restore_parted(&self, imported: &Arc<Imported>) {
        let Parted { mounts, devices } = std::mem::take(&mut *imported.parted.lock());
        let mounts: Vec<_> = mounts.into_iter().map(|live| (Arc::clone(imported), live)).collect();
        restore_all(&mounts);
        self.devices_back(devices);
    }

    /// The same if the pool is here and not suspended. Otherwise the next clear does it.
    pub(super) fn restore_cleared(&self, imported: &Arc<Imported>) {
        let suspended = imported.pool.spa().writer().is_some_and(|live| live.suspended().is_some());
        let is_here = self.pool(imported.pool.name()).is_ok_and(|here| Arc::ptr_eq(&here, imported));
        if is_here && !suspended {
            self.restore_parted(imported);
        }
    }

    /// A pool that is here or going, of which a transaction group takes too long to be written, and
    /// in which nothing moves: one that is slow is worth waiting for.
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

    /// Gives a pool up that can't be exported, as a crash would: its mounts go, and nothing waits
    /// for it. Its devices stay claimed until the process ends, so that nobody else writes to them
    /// while a thread of ours may.
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
        // To drop it is to wait for its threads.
        std::mem::forget(Arc::clone(imported));
        tracing::warn!(
            pool = name,
            "given up: what was not written is lost, and its devices stay claimed until this service ends"
        );
    }
}

/// The file system of a pool that stays mounted elsewhere when it is unmounted here, and what keeps
/// it. Nothing is unmounted for the answer.
///
/// A namespace of mounts that is being made has copies until its maker has unmounted them, and one
/// that ends has them until the kernel has released them: that is waited for.
fn kept(imported: &Arc<Imported>) -> Option<Error> {
    let mounts = imported.mounts.list();
    // One that was unmounted behind our back is noticed now, and lingers or is over.
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

/// The file system of a pool that is used where others have it mounted, and by whom.
fn lingers(imported: &Imported) -> Option<Error> {
    let lingering = imported.mounts.lingering();
    lingering.first().map(|live| Error::new(live.name(), Reason::HeldOpen { by: live.kept_by() }))
}

/// A change of a dataset that was refused because it is busy, with who uses it, if that is known.
pub(super) fn with_user(pools: &Pools, imported: &Imported, error: Error) -> Error {
    if !matches!(error.reason, Reason::Busy | Reason::Refused { why: Refusal::Busy }) {
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
