//! The table of the present visits.
//!
//! # Locks
//! The table is held for look-ups, never while a dataset is opened or read. The lock of the keys
//! comes before it.

use crate::pools::imported::Imported;
use api::{Caller, Error, Reason};
use observe::lock::{Condvar, Mutex};
use ondisk::ObjNum;
use std::collections::BTreeMap;
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Most visits of owners at a time.
pub(super) const MOST: usize = 32;
/// Most visits of one other user.
const MOST_OF_ONE: usize = 8;
/// Most visits of all other users.
const MOST_OF_OTHERS: usize = 32;
/// How long visits may take to end after they were told to.
const ENDING: Duration = Duration::from_secs(20);

/// The visits of a daemon.
#[derive(Default)]
pub(crate) struct Visits {
    table: Mutex<Table>,
    /// Keys that visits have loaded, by pool and object of the encryption root.
    pub(super) keys: Mutex<BTreeMap<(String, u64), Key>>,
    changed: Condvar,
}

#[derive(Default)]
struct Table {
    listener: Option<(Arc<UnixListener>, PathBuf)>,
    /// Set when all pools are closed.
    closed: bool,
    last: u64,
    each: BTreeMap<u64, Entry>,
}

struct Entry {
    pool: String,
    /// The object number of the dataset, once it is known.
    dataset: Option<u64>,
    /// The object number of an encrypted dataset that it reads beside others. It needs the key, and
    /// does not keep the dataset.
    reads: Option<u64>,
    /// The command and its process.
    user: String,
    /// The user, if that is not an owner.
    other: Option<u32>,
    stream: UnixStream,
}

impl Table {
    /// Why a user gets no further visit.
    fn crowd(&self, other: Option<u32>) -> Option<String> {
        let count = |of: &dyn Fn(&Entry) -> bool| self.each.values().filter(|entry| of(entry)).count();
        if other.is_none() {
            let full = count(&|entry| entry.other.is_none()) >= MOST;
            return full.then(|| format!("{MOST} commands use files of its pools"));
        }
        if count(&|entry| entry.other == other) >= MOST_OF_ONE {
            return Some(format!("{MOST_OF_ONE} commands of this user send or receive"));
        }
        let full = count(&|entry| entry.other.is_some()) >= MOST_OF_OTHERS;
        full.then(|| format!("{MOST_OF_OTHERS} commands of users send or receive"))
    }
}

/// A key that visits have loaded.
pub(super) struct Key {
    /// The name of its encryption root.
    pub(super) root: String,
    /// The number of visits that need the key.
    pub(super) users: usize,
}

/// A visit's entry in the table.
pub(super) struct Seat {
    visits: Arc<Visits>,
    pub(super) number: u64,
}

impl Drop for Seat {
    fn drop(&mut self) {
        let visits = &self.visits;
        visits.table.lock().each.remove(&self.number);
        visits.changed.notify_all();
    }
}

impl Visits {
    /// Calls `load` for a user who loads a key, while no visit loads or unloads one. If only visits
    /// have loaded this key, `load` is to check the user's, and the key is left to the user.
    ///
    /// # Errors
    /// That of `load`.
    pub(crate) fn leave_key(
        &self,
        (pool, root): (&str, ObjNum),
        load: impl FnOnce(bool) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut keys = self.keys.lock();
        let place = (pool.to_owned(), root.0);
        load(keys.contains_key(&place))?;
        keys.remove(&place);
        Ok(())
    }

    /// The objects of a pool's datasets that visits have open, with the commands.
    pub(crate) fn users(&self, pool: &str) -> Vec<(u64, String)> {
        let table = self.table.lock();
        let of_pool = table.each.values().filter(|entry| entry.pool == pool);
        of_pool.filter_map(|entry| Some((entry.dataset?, entry.user.clone()))).collect()
    }

    /// The objects of a pool's encrypted datasets that visits read beside others, with the
    /// commands. A dataset may be gone by now.
    pub(crate) fn readers(&self, pool: &str) -> Vec<(u64, String)> {
        let table = self.table.lock();
        let of_pool = table.each.values().filter(|entry| entry.pool == pool);
        of_pool.filter_map(|entry| Some((entry.reads?, entry.user.clone()))).collect()
    }

    /// The error for a busy pool: a visit that has not ended by itself within `patience`.
    pub(crate) fn in_use(&self, imported: &Imported, patience: Duration) -> Option<Error> {
        let pool = imported.pool.name();
        if self.wait(pool, patience) {
            return None;
        }
        let of_pool = |entry: &&Entry| entry.pool == pool;
        let (dataset, by) = {
            let table = self.table.lock();
            let entry = table.each.values().find(of_pool)?;
            (entry.dataset, entry.user.clone())
        };
        let name = dataset.and_then(|object| imported.pool.dsl().by_object(ObjNum(object)).ok());
        let about = name.map_or_else(|| pool.to_owned(), |dataset| dataset.name());
        Some(Error::new(about, Reason::HeldOpen { by }))
    }

    /// Waits for a pool's visits to end by themselves. Returns whether they did.
    fn wait(&self, pool: &str, patience: Duration) -> bool {
        let until = Instant::now() + patience;
        let mut table = self.table.lock();
        while table.each.values().any(|entry| entry.pool == pool) {
            if self.changed.wait_until(&mut table, until).timed_out() {
                return false;
            }
        }
        true
    }

    /// Ends a pool's visits without waiting.
    pub(crate) fn send_away(&self, pool: &str) {
        for entry in self.table.lock().each.values().filter(|entry| entry.pool == pool) {
            // A visit whose command is gone has ended already.
            entry.stream.shutdown(Shutdown::Both).unwrap_or_default();
        }
    }

    /// Ends a pool's visits. Returns whether all have ended.
    pub(crate) fn end(&self, pool: &str) -> bool {
        self.send_away(pool);
        self.wait(pool, ENDING)
    }

    /// Enters a visit of a pool into the table.
    ///
    /// # Errors
    /// * [`Reason::Daemon`]: the daemon is ending, or there are too many visits.
    pub(super) fn enter(
        self: &Arc<Self>,
        stream: UnixStream,
        pool: &str,
        (caller, user): (&Caller, &str),
    ) -> Result<Seat, Error> {
        let mut table = self.table.lock();
        if table.closed {
            return Err(Error::new(pool, Reason::Daemon { what: "the daemon is ending".to_owned() }));
        }
        let other = (!caller.owns()).then(|| caller.peer().uid);
        if let Some(what) = table.crowd(other) {
            return Err(Error::new(pool, Reason::Daemon { what: format!("{what}; try again later") }));
        }
        table.last += 1;
        let number = table.last;
        let (pool, user) = (pool.to_owned(), user.to_owned());
        let entry = Entry { pool, dataset: None, reads: None, user, other, stream };
        table.each.insert(number, entry);
        Ok(Seat { visits: Arc::clone(self), number })
    }

    /// Records the dataset that a visit has open, or that it has closed it.
    pub(super) fn set_dataset(&self, visit: u64, dataset: Option<u64>) {
        if let Some(entry) = self.table.lock().each.get_mut(&visit) {
            entry.dataset = dataset;
        }
    }

    /// Records the encrypted dataset that a visit reads beside others.
    pub(super) fn set_reads(&self, visit: u64, dataset: u64) {
        if let Some(entry) = self.table.lock().each.get_mut(&visit) {
            entry.reads = Some(dataset);
        }
    }

    /// Keeps the listener, until no more visits are accepted.
    pub(super) fn listens(&self, listener: Arc<UnixListener>, socket: &Path) {
        self.table.lock().listener = Some((listener, socket.to_owned()));
    }

    /// Accepts no more visits.
    pub(crate) fn close(&self) {
        let mut table = self.table.lock();
        table.closed = true;
        if let Some((listener, socket)) = table.listener.take() {
            // This wakes up the thread that waits for connections.
            rustix::net::shutdown(&*listener, rustix::net::Shutdown::Both).unwrap_or_default();
            if let Err(error) = std::fs::remove_file(socket) {
                tracing::debug!(%error, "the socket of files stays");
            }
        }
    }
}
