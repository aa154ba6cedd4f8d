//! The table of imported pools.
//!
//! # Theory
//! The table knows which pools there are and in which state, and nothing of what is done with them.
//! Modules that only look pools up take the table as an argument.
//!
//! # Life
//! A pool is *coming* while an import works on it, then *here*, and *going* while an export does.
//!
//! # Locks
//! The table is held for look-ups and inserts, never while a device is read.

use crate::pools::imported::Imported;
use api::{Error, Reason};
use dsl::Name;
use observe::lock::RwLock;
use ondisk::Guid;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

enum State {
    Coming(Guid),
    Here(Arc<Imported>),
    Going(Arc<Imported>),
}

impl State {
    /// Whether this very pool is being exported. A pool that was given up meanwhile is not.
    fn is_going(&self, pool: &Arc<Imported>) -> bool {
        matches!(self, Self::Going(going) if Arc::ptr_eq(going, pool))
    }

    fn guid(&self) -> Guid {
        match self {
            Self::Coming(guid) => *guid,
            Self::Here(imported) | Self::Going(imported) => imported.pool.spa().guid(),
        }
    }
}

/// The imported pools by name, and those that are being imported or exported.
#[derive(Default)]
pub struct PoolTable {
    states: RwLock<BTreeMap<String, State>>,
    /// Set when all pools are closed. No injected delay holds them up then.
    closing: AtomicBool,
}

/// The reason for a request that comes after the daemon has begun to end.
pub(super) fn ending() -> Reason {
    Reason::Daemon { what: "the daemon is ending".to_owned() }
}

impl PoolTable {
    /// The imported pools, by name; not those that are being exported.
    pub fn all(&self) -> Vec<Arc<Imported>> {
        let states = self.states.read();
        let here = states.values().filter_map(|state| match state {
            State::Here(pool) => Some(Arc::clone(pool)),
            State::Coming(_) | State::Going(_) => None,
        });
        here.collect()
    }

    /// The imported pools, with those that are being exported.
    pub(crate) fn present(&self) -> Vec<Arc<Imported>> {
        let states = self.states.read();
        let present = states.values().filter_map(|state| match state {
            State::Here(pool) | State::Going(pool) => Some(Arc::clone(pool)),
            State::Coming(_) => None,
        });
        present.collect()
    }

    /// Whether no pool is imported, coming or going.
    pub fn is_empty(&self) -> bool {
        self.states.read().is_empty()
    }

    /// The pool of this name.
    ///
    /// # Errors
    /// [`Reason::NoSuchPool`], or [`Reason::Busy`] while it is being exported.
    pub fn pool(&self, name: &str) -> Result<Arc<Imported>, Error> {
        match self.states.read().get(name) {
            Some(State::Here(pool)) => Ok(Arc::clone(pool)),
            Some(State::Coming(_)) | None => Err(Error::new(name, Reason::NoSuchPool)),
            Some(State::Going(_)) => Err(Error::new(name, Reason::Busy)),
        }
    }

    /// The pool of this name, even while it is being exported.
    ///
    /// # Errors
    /// [`Reason::NoSuchPool`]: it is not imported.
    pub fn pool_or_going(&self, name: &str) -> Result<Arc<Imported>, Error> {
        match self.states.read().get(name) {
            Some(State::Here(pool) | State::Going(pool)) => Ok(Arc::clone(pool)),
            Some(State::Coming(_)) | None => Err(Error::new(name, Reason::NoSuchPool)),
        }
    }

    /// The pool of a dataset. An error is about the dataset.
    ///
    /// # Errors
    /// [`Reason::InvalidName`], [`Reason::NoSuchDataset`], or [`Reason::Busy`]
    /// ([`PoolTable::pool`]).
    pub fn pool_of(&self, dataset: &str) -> Result<Arc<Imported>, Error> {
        let name = Name::parse(dataset).map_err(|_| Error::new(dataset, Reason::InvalidName))?;
        self.pool(name.pool()).map_err(|error| match error.reason {
            Reason::NoSuchPool => Error::new(dataset, Reason::NoSuchDataset),
            reason => Error::new(dataset, reason),
        })
    }

    /// The names of pools that are being imported.
    pub(super) fn coming(&self) -> Vec<String> {
        let states = self.states.read();
        let coming = states.iter().filter(|(_, state)| matches!(state, State::Coming(_)));
        coming.map(|(name, _)| name.clone()).collect()
    }

    /// Reserves a name for a pool that is about to be imported.
    ///
    /// # Errors
    /// * [`Reason::Daemon`]: the daemon is ending.
    /// * [`Reason::PoolExists`], [`Reason::DevicesInUse`]: the name or the pool is in use.
    pub(super) fn announce(&self, name: &str, guid: Guid) -> Result<(), Error> {
        let mut states = self.states.write();
        if self.is_closing() {
            return Err(Error::new(name, ending()));
        }
        if states.contains_key(name) {
            return Err(Error::new(name, Reason::PoolExists));
        }
        // It is the same pool on the same devices, even under another name.
        if states.values().any(|state| state.guid() == guid) {
            return Err(Error::new(name, Reason::DevicesInUse));
        }
        states.insert(name.to_owned(), State::Coming(guid));
        Ok(())
    }

    /// Adds an opened pool, unless the daemon is ending. Returns whether it was added.
    pub(super) fn enter(&self, name: &str, imported: &Arc<Imported>) -> bool {
        let mut states = self.states.write();
        // The check needs the table: the end of the daemon reads the table after setting the flag.
        let enters = !self.is_closing();
        if enters {
            states.insert(name.to_owned(), State::Here(Arc::clone(imported)));
        }
        enters
    }

    /// Marks a pool as being exported.
    ///
    /// # Errors
    /// * [`Reason::Busy`]: it is not here, or another export has begun.
    pub(super) fn go(&self, name: &str, imported: &Arc<Imported>) -> Result<(), Error> {
        match self.states.write().get_mut(name) {
            Some(state @ State::Here(_)) => {
                *state = State::Going(Arc::clone(imported));
                Ok(())
            }
            Some(State::Coming(_) | State::Going(_)) | None => Err(Error::new(name, Reason::Busy)),
        }
    }

    /// Ends the export of a pool that stays.
    pub(super) fn stay(&self, name: &str, imported: &Arc<Imported>) {
        if let Some(state) = self.states.write().get_mut(name).filter(|state| state.is_going(imported)) {
            *state = State::Here(Arc::clone(imported));
        }
    }

    /// Removes an exported pool. Returns false if it was given up meanwhile: another pool may have
    /// its name by now.
    pub(super) fn gone(&self, name: &str, imported: &Arc<Imported>) -> bool {
        let mut states = self.states.write();
        if !states.get(name).is_some_and(|state| state.is_going(imported)) {
            return false;
        }
        states.remove(name);
        true
    }

    /// Whether a pool of this name is being exported.
    pub(super) fn is_going(&self, name: &str) -> bool {
        matches!(self.states.read().get(name), Some(State::Going(_)))
    }

    /// Removes a name, whatever its state.
    pub(super) fn remove(&self, name: &str) {
        self.states.write().remove(name);
    }

    /// Removes all names.
    pub(super) fn clear(&self) {
        self.states.write().clear();
    }

    /// From now on, no pool is imported.
    pub(super) fn close(&self) {
        self.closing.store(true, Ordering::SeqCst);
    }

    /// Whether all pools are being closed.
    pub(super) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::SeqCst)
    }

    /// The flag of [`PoolTable::is_closing`], for an operation that waits.
    pub(super) fn closing(&self) -> &AtomicBool {
        &self.closing
    }
}
