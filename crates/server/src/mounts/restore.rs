//! The mounts of a dead daemon, restored with all others of their pools.

use crate::mounts::journal::{Journal, Note};
use crate::mounts::plans;
use crate::pools::imported::Imported;
use crate::pools::table::PoolTable;
use api::MountRequest;
use mount_rules::{CanMount, Plan, Where};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The notes of left mounts in the requested pools, by dataset.
#[derive(Default)]
pub(crate) struct Left(BTreeMap<String, Note>);

impl Left {
    /// Takes the notes of the pools that a request covers completely. Each is returned once.
    pub(crate) fn of(request: &MountRequest, table: &PoolTable, journal: &Journal) -> Self {
        let pools: Vec<String> = if request.datasets.is_empty() {
            table.all().iter().map(|pool| pool.pool.name().to_owned()).collect()
        } else if request.recursive {
            request.datasets.iter().filter(|name| !name.contains(['/', '@'])).cloned().collect()
        } else {
            return Self::default();
        };
        let notes = pools.iter().flat_map(|pool| journal.take(pool));
        Self(notes.map(|note| (note.dataset.clone(), note)).collect())
    }

    /// Adds left mounts to the list of what to mount that the pass over a pool does not find:
    /// snapshots, and volumes of the AFS server.
    pub(crate) fn add_others(&self, pools: &PoolTable, chosen: &mut Vec<(Arc<Imported>, Plan)>) {
        let there: BTreeSet<String> = chosen.iter().map(|(_, plan)| plan.name.clone()).collect();
        for name in self.0.keys().filter(|name| !there.contains(*name)) {
            let Ok(pool) = pools.pool_of(name) else { continue };
            // A missing one is reported later, with all that are missing.
            let found = plans(pool.pool.dsl(), Some(name), false, &[], 1, &|| {});
            chosen.extend(
                found.into_iter().flat_map(|found| found.plans).map(|plan| (Arc::clone(&pool), plan)),
            );
        }
    }

    /// Changes a plan to the left mount. Returns whether it is mounted only for that reason.
    pub(crate) fn apply(&mut self, journal: &Journal, plan: &mut Plan, mounted: bool) -> bool {
        let Some(note) = self.0.remove(&plan.name) else { return false };
        if mounted {
            return false;
        }
        if plan.locked {
            // It is mounted later, with its key.
            journal.leave(&note);
            return false;
        }
        let target = note.target.display();
        match fuse::system::is_mounted(&note.target) {
            Ok(false) => {}
            Ok(true) => {
                tracing::warn!(dataset = plan.name, %target, "something else is mounted where it was");
                return false;
            }
            Err(error) => {
                tracing::warn!(dataset = plan.name, %target, %error, "it is not mounted where it was");
                return false;
            }
        }
        if let Err(option) = plan.apply(&note.given) {
            tracing::warn!(dataset = plan.name, option, "it was known when this was mounted");
        }
        let alone = plan.can_mount == CanMount::NoAuto || !matches!(plan.place, Where::Path(_));
        if !matches!(plan.place, Where::Path(_)) {
            // The same as by mount(8).
            plan.place = Where::Path(note.target.clone());
            plan.overlay = true;
        }
        tracing::info!(dataset = plan.name, %target, options = ?note.given, "mounted as it was before the last daemon died");
        alone
    }

    /// Logs what no longer exists.
    pub(crate) fn tell_gone(self) {
        for (dataset, note) in self.0 {
            tracing::warn!(dataset, target = %note.target.display(), "it was mounted before the last daemon died, and is gone");
        }
    }
}
