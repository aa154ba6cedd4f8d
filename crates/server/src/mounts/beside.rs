//! Mounts of volumes that the AFS server has, and of their clones.
//!
//! # Theory
//! `vos` changes and removes volumes whatever is mounted. So the end of a volume or clone ends its
//! mount first, also if it is in use: programs get an error. Commands on the pool are different:
//! they are refused while a mount is in use, as for any other file system.

use crate::mounts::look::{Look, NameNow, SnapDirNow, counted, sizes, with_snapshots};
use crate::mounts::volume::{Place, VolumeFiles};
use crate::mounts::{Files, Hold, Made, MountedFs, Mounts, State};
use afs::server::store::Beside;
use api::{Caller, Error, Reason};
use fuse::{Content, Detach};
use mount_rules::Plan;
use observe::lock::Mutex;
use poolhouse::Pool;
use std::path::Path;
use std::sync::{Arc, Weak};
use zpl::Policies;

/// Whether a dataset is `root` or below it.
fn within(root: &str, name: &str) -> bool {
    name.strip_prefix(root).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

impl Mounts {
    /// Mounts a volume that the AFS server has, read-only.
    ///
    /// # Errors
    /// * [`Reason::Afs`]: the place is in another mount, or the volume can't be used now.
    /// * All others: see [`Mounts::mount`].
    pub(super) fn mount_volume(
        &self,
        pool: &Pool,
        plan: &Plan,
        name: &NameNow,
        (around, target): (Option<&fuse::Mount>, &Path),
        place: Place,
    ) -> Result<Made, Reason> {
        if around.is_some() {
            let what = "AFS serves it, so it can't be mounted in another mount of this daemon; choose a \
                        mountpoint outside of it";
            return Err(Reason::Afs { what: what.to_owned() });
        }
        let (policies, snapdir) = (Policies::new(plan.policy), SnapDirNow::new(plan.snapdir));
        // The kernel would keep ACLs.
        let look = Look { posix_acl: false, ..Look::of(plan) };
        let sizes = sizes(pool.dsl().clone(), name.clone(), policies.clone(), plan.sizes);
        let ops = (counted(pool.ops(), &plan.dataset), name.clone());
        let files = VolumeFiles::new(place, look.how(plan.name.clone()), Box::new(sizes), ops)?;
        let ended = files.ended();
        let tree = with_snapshots(pool, plan, look, name, &snapdir, Arc::new(files));
        let options = fuse::Options { posix_acl: false, ..self.options(pool, plan, None, true)? };
        let mount = self.serve(plan, Content::Open(tree), (None, target), &options)?;
        let (given, turn) = (Arc::new(Mutex::new(plan.given.clone())), Arc::default());
        Ok(Made { mount, policies, snapdir, files: Files::served(ended), given, turn, hold: Hold::default() })
    }

    /// Ends a new mount of a volume that has ended meanwhile.
    ///
    /// # Errors
    /// * [`Reason::NoSuchDataset`]: it has.
    pub(super) fn check_volume(&self, live: &Arc<MountedFs>) -> Result<(), Error> {
        if !live.files.are_served() {
            return Ok(());
        }
        let name = live.name();
        match self.afs.volume_at(&name) {
            Ok(Some(place)) if place.volume().is_some_and(|volume| !volume.is_gone()) => Ok(()),
            _ => {
                self.end_one(live);
                Err(Error::new(name, Reason::NoSuchDataset))
            }
        }
    }

    /// Ends the mount of a volume or clone that is about to end, whatever uses it.
    pub(crate) fn end(&self, name: &str) {
        self.served().iter().filter(|live| live.name() == name).for_each(|live| self.end_one(live));
    }

    fn end_one(&self, live: &Arc<MountedFs>) {
        live.files.end();
        let (dataset, users) = (live.name(), live.users());
        tracing::warn!(dataset, ?users, "unmounted: AFS changes or removes the volume");
        let Err(error) = self.unmount(live, Detach::Force) else { return };
        // Another mount may hide it. Programs that have its files open get an error.
        tracing::warn!(dataset, %error, "it stays in the table of mounts, and has no files");
        if let Some(shown) = live.files.get() {
            live.mount.suspended(|| drop(shown.suspend()));
        }
        drop(live.hold.lock().take());
        let mut table = self.table.lock();
        if matches!(table.by_object.get(&live.object), Some(State::Here(now)) if now.number == live.number) {
            table.by_object.remove(&live.object);
        }
    }

    /// Unmounts the volumes of a partition that is to be served no more. Returns them.
    ///
    /// # Errors
    /// [`Reason::HeldOpen`], [`Reason::Busy`]: one of them is in use, and `force` is not set. The
    /// others are mounted again.
    pub(crate) fn release(
        &self,
        caller: &Caller,
        pool: &Pool,
        partition: &str,
        force: bool,
    ) -> Result<Vec<Arc<MountedFs>>, Error> {
        let mut gone = Vec::new();
        let mut all = self.served();
        all.retain(|live| live.files.are_served() && within(partition, &live.name()));
        for live in all.into_iter().rev() {
            match self.unmount(&live, Detach::Normal) {
                Ok(()) if live.mount.is_over() => gone.push(live),
                Ok(()) | Err(_) if force => self.end_one(&live),
                Ok(()) => {
                    let by = live.kept_by();
                    self.take_back(pool, &gone);
                    return Err(Error::new(live.name(), Reason::HeldOpen { by }));
                }
                Err(error) => {
                    let error = self.with_holders(caller, &live, error);
                    self.take_back(pool, &gone);
                    return Err(error);
                }
            }
        }
        Ok(gone)
    }

    /// Mounts again what [`Self::release`] has unmounted.
    pub(crate) fn take_back(&self, pool: &Pool, gone: &[Arc<MountedFs>]) {
        for live in gone.iter().rev() {
            if let Err(error) = self.restore(pool, live, false) {
                tracing::error!(%error, "it is not mounted again");
            }
        }
    }

    /// The file systems that are mounted, or about to be, with their places.
    pub(crate) fn present(&self) -> Vec<(String, Option<std::path::PathBuf>)> {
        let table = self.table.lock();
        let present = table.by_object.values().filter_map(|state| match state {
            State::Coming(name) => Some((name.get(), None)),
            State::Here(live) if live.mount.is_over() => None,
            State::Here(live) => Some((live.name(), Some(live.target().to_owned()))),
        });
        present.collect()
    }
}

/// The mounts of a pool, for the AFS server.
pub(crate) struct BesideAfs(pub(crate) Weak<Mounts>);

impl Beside for BesideAfs {
    fn ends(&self, dataset: &str) {
        if let Some(mounts) = self.0.upgrade() {
            mounts.end(dataset);
        }
    }

    fn renamed(&self, from: &str, to: &str) {
        if let Some(mounts) = self.0.upgrade() {
            mounts.renamed(from, to);
        }
    }
}
