//! Changes of datasets by other commands: what the server has is protected, and what it can't serve
//! is followed.

use super::{Afs, Entry, within};
use crate::pools::imported::Imported;
use afs::server::Withheld;
use api::{DatasetChange, Error, Reason};
use std::sync::Arc;

impl Afs {
    /// Refuses a change that removes, moves or replaces what the server has, or that makes what it
    /// would take for its own.
    ///
    /// # Errors
    /// * [`Reason::ServedOverAfs`], [`Reason::BadValue`]
    pub(crate) fn check_change(&self, change: &DatasetChange) -> Result<(), Error> {
        let check = |name: &str| self.check_end_of(name);
        match change {
            DatasetChange::Destroy { names, .. } => names.iter().try_for_each(|name| check(name)),
            DatasetChange::Create { name, .. } | DatasetChange::Clone { name, .. } => {
                self.check_new_name(name)
            }
            DatasetChange::Rename { from, to, .. } => {
                check(from)?;
                self.check_new_name(to)
            }
            DatasetChange::RenameSnapshot { dataset, from, to, .. } => {
                check(&format!("{dataset}@{from}"))?;
                self.check_new_snapshot(&format!("{dataset}@{to}"))
            }
            DatasetChange::Snapshot { names, .. } => {
                names.iter().try_for_each(|name| self.check_new_snapshot(name))
            }
            DatasetChange::Rollback { snapshot, .. } => check(snapshot.split('@').next().unwrap_or(snapshot)),
            _ => Ok(()),
        }
    }

    /// Reads again which volumes the partitions have that are not served and have these datasets.
    fn read_again(&self, imported: &Imported, changed: &[&str]) {
        let mut names = self.names_of(imported.pool.name());
        names.retain(|root| !self.is_in_use(root) && changed.iter().any(|name| within(root, name)));
        for name in names {
            let entry = self.partitions.lock().get(&name).cloned();
            let Some(Entry { id: Some(id), .. }) = entry else { continue };
            let Ok(read) = Withheld::read(id, &imported.pool, &name) else { continue };
            if let Some(entry) = self.partitions.lock().get_mut(&name).filter(|entry| !entry.is_in_use()) {
                entry.withheld = Some(Arc::new(read));
            }
            self.list_in(imported);
        }
    }

    /// After a change: a partition that is not served may be gone, or have another name.
    pub(crate) fn follow(&self, imported: &Imported, change: &DatasetChange) {
        let changed: Vec<&str> = match change {
            DatasetChange::Destroy { names, .. } => names.iter().map(String::as_str).collect(),
            DatasetChange::Rename { from, to, .. } => vec![from, to],
            DatasetChange::Create { .. } | DatasetChange::Snapshot { .. } => vec![change.subject()],
            _ => return,
        };
        self.read_again(imported, &changed);
        let is_gone = |name: &str| {
            let found = imported.pool.spa().read(|| imported.pool.dsl().dir(name).map(drop));
            matches!(found, Err(dsl::Error::NoSuchDataset { .. }))
        };
        let mut gone = self.names_of(imported.pool.name());
        gone.retain(|name| !self.is_in_use(name) && is_gone(name));
        if gone.is_empty() {
            return;
        }
        {
            let mut partitions = self.partitions.lock();
            let is_left = |name: &String, entry: &Entry| !gone.contains(name) || entry.is_in_use();
            partitions.retain(|name, entry| is_left(name, entry));
        }
        match change {
            DatasetChange::Rename { .. } => self.adopt(imported),
            _ => self.list_in(imported),
        }
    }

    /// Refuses a dataset that would pass for a volume of a partition that is served, or that would
    /// be below one.
    ///
    /// # Errors
    /// * [`Reason::BadValue`]
    fn check_new_name(&self, name: &str) -> Result<(), Error> {
        if self.server_of(name).is_none_or(|(_, volume)| volume.is_none()) {
            return Ok(());
        }
        let what = "AFS has volumes under such names; choose a name that is no number, or make a volume \
                    with 'vos create'"
            .to_owned();
        Err(Error::new(name, Reason::BadValue { what }))
    }

    /// Refuses a snapshot of a volume that would pass for a clone: one whose name is a number.
    ///
    /// # Errors
    /// * [`Reason::BadValue`]
    fn check_new_snapshot(&self, name: &str) -> Result<(), Error> {
        let is_number = name.split_once('@').is_some_and(|(_, snapshot)| snapshot.parse::<u32>().is_ok());
        if !is_number || self.server_of(name).is_none_or(|(_, volume)| volume.is_none()) {
            return Ok(());
        }
        let what = "AFS has clones of volumes under such names; choose a name that is no number".to_owned();
        Err(Error::new(name, Reason::BadValue { what }))
    }

    /// Refuses to let a dataset end or move that the server has, or that has a partition. Snapshots
    /// are the server's if they are clones: their names are numbers.
    ///
    /// # Errors
    /// * [`Reason::ServedOverAfs`]
    pub(crate) fn check_end_of(&self, name: &str) -> Result<(), Error> {
        let is_own = name.split_once('@').is_none_or(|(_, snapshot)| snapshot.parse::<u32>().is_ok());
        if is_own && let Some((partition, volume)) = self.server_of(name) {
            return Err(Error::new(name, Reason::ServedOverAfs { partition, volume }));
        }
        let partitions = self.partitions.lock();
        let below = partitions.iter().find(|(root, entry)| entry.is_in_use() && within(name, root));
        match below {
            Some((partition, _)) => {
                let partition = partition.clone();
                Err(Error::new(name, Reason::ServedOverAfs { partition, volume: None }))
            }
            None => Ok(()),
        }
    }
}
