//! Transactions: an administrator's program has a volume for itself.
//!
//! # Theory
//! A program begins a transaction on a volume, makes calls in it, and ends it. There is one for
//! each volume at a time. While it exists, clients get VOFFLINE or VBUSY, as the program asked. A
//! transaction that no call uses for ten minutes ends by itself.
//!
//! # See
//! OpenAFS: `src/volser/voltrans.c`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::errors::{errno, volser};
use crate::server::now;
use crate::server::volume::Volume;
use crate::types::{Date, VolumeId};

/// When a transaction that is not used ends (`OLDTRANSTIME`).
const IDLE: Duration = Duration::from_secs(600);
/// Most transactions.
const MOST: usize = 10_000;

/// A transaction.
#[derive(Clone)]
pub struct Transaction {
    /// Its number.
    pub id: i32,
    /// Its volume.
    pub volume: Arc<Volume>,
    /// How clients see the volume meanwhile ([`crate::calls::volserver::attach`]).
    pub attach: i32,
    /// Flags of the volume, as SetFlags set them.
    pub flags: i32,
    /// The volume was deleted in it.
    pub is_deleted: bool,
    /// The volume changed in it, so its end waits until that is on disk.
    pub has_changed: bool,
    /// When it began.
    pub begun: Date,
    /// When it was last used.
    pub used: Date,
    /// The last call in it.
    pub last_call: &'static str,
    /// Whether that call runs still.
    pub is_running: bool,
    idle_since: Instant,
}

/// All transactions of a server.
#[derive(Default)]
pub struct Transactions {
    all: Mutex<BTreeMap<i32, Transaction>>,
    last: AtomicI32,
}

/// A transaction in use by a call. Dropping it ends the use.
pub struct Lease<'a> {
    all: &'a Transactions,
    transaction: Transaction,
}

impl std::ops::Deref for Lease<'_> {
    type Target = Transaction;

    fn deref(&self) -> &Transaction {
        &self.transaction
    }
}

impl Drop for Lease<'_> {
    fn drop(&mut self) {
        self.all.update(self.transaction.id, |transaction| {
            transaction.is_running = false;
            transaction.used = now();
            transaction.idle_since = Instant::now();
        });
    }
}

impl Transactions {
    /// Begins a transaction.
    ///
    /// # Errors
    /// VOLSERVOLBUSY: the volume has one, or there are too many.
    pub fn begin(&self, volume: Arc<Volume>, attach: i32) -> Result<Transaction, i32> {
        let mut all = self.all.lock();
        let taken = all.values().any(|other| other.volume.id == volume.id && !other.is_deleted);
        if taken || all.len() >= MOST {
            return Err(volser::VOLSERVOLBUSY);
        }
        let id = loop {
            let id = self.last.fetch_add(1, Ordering::Relaxed).wrapping_add(1) & i32::MAX;
            if id != 0 && !all.contains_key(&id) {
                break id;
            }
        };
        let transaction = Transaction {
            id,
            volume,
            attach,
            flags: 0,
            is_deleted: false,
            has_changed: false,
            begun: now(),
            used: now(),
            last_call: "TransCreate",
            is_running: false,
            idle_since: Instant::now(),
        };
        all.insert(id, transaction.clone());
        Ok(transaction)
    }

    /// Uses a transaction for a call.
    ///
    /// # Errors
    /// * ENOENT: there is none of this number, or its volume is deleted.
    /// * VOLSERVOLBUSY: another call uses it.
    pub fn lease(&self, id: i32, call: &'static str) -> Result<Lease<'_>, i32> {
        let mut all = self.all.lock();
        let transaction = all.get_mut(&id).filter(|found| !found.is_deleted).ok_or(errno::ENOENT)?;
        if transaction.is_running {
            return Err(volser::VOLSERVOLBUSY);
        }
        transaction.is_running = true;
        transaction.last_call = call;
        Ok(Lease { all: self, transaction: transaction.clone() })
    }

    /// Changes a transaction.
    pub fn update(&self, id: i32, change: impl FnOnce(&mut Transaction)) {
        self.all.lock().get_mut(&id).map(change);
    }

    /// Ends a transaction.
    ///
    /// # Errors
    /// * ENOENT: there is none of this number.
    /// * VOLSERVOLBUSY: a call uses it.
    pub fn end(&self, id: i32) -> Result<Transaction, i32> {
        let mut all = self.all.lock();
        match all.get(&id) {
            None => Err(errno::ENOENT),
            Some(found) if found.is_running => Err(volser::VOLSERVOLBUSY),
            Some(_) => all.remove(&id).ok_or(errno::ENOENT),
        }
    }

    /// Ends the transactions that no call uses, and returns their volumes.
    pub fn expire(&self) -> Vec<Arc<Volume>> {
        let mut all = self.all.lock();
        let old = |found: &Transaction| !found.is_running && found.idle_since.elapsed() >= IDLE;
        let expired: Vec<i32> = all.values().filter(|found| old(found)).map(|found| found.id).collect();
        let ended = expired.iter().filter_map(|id| all.remove(id));
        let ended: Vec<_> = ended.filter(|found| !found.is_deleted).collect();
        for found in &ended {
            tracing::warn!(transaction = found.id, volume = found.volume.id.0, "a transaction timed out");
        }
        ended.into_iter().map(|found| found.volume).collect()
    }

    /// Whether a volume is in a transaction.
    pub fn has(&self, volume: VolumeId) -> bool {
        self.all.lock().values().any(|found| found.volume.id == volume && !found.is_deleted)
    }

    /// All transactions in the order of their numbers.
    pub fn all(&self) -> Vec<Transaction> {
        self.all.lock().values().cloned().collect()
    }
}
