//! Transactions: an administrator's program has a volume for itself.
//!
//! # Theory
//! A program begins a transaction on a volume, makes calls in it, and ends it. There is one for
//! each volume at a time. While it exists, clients get VOFFLINE or VBUSY, as the program asked.
//! Those of a read-only volume get its files. A transaction that no call uses for ten minutes ends
//! by itself.
//!
//! # See
//! OpenAFS: `src/volser/voltrans.c`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::{Duration, Instant};

use observe::lock::Mutex;

use crate::errors::{errno, volser};
use crate::server::header::Stored;
use crate::server::now;
use crate::server::store::Found;
use crate::server::volume::Volume;
use crate::types::{Date, VolumeId};

/// When a transaction that is not used ends (`OLDTRANSTIME`).
pub const IDLE: Duration = Duration::from_secs(600);
/// Most transactions.
const MOST: usize = 10_000;

/// What was sent of a volume, at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Sent {
    /// Nothing.
    Nothing,
    /// Its header: the other server has its files.
    Header,
    /// Blocks.
    Blocks,
    /// Not all that was to be sent.
    Part,
}

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
    /// The header of a volume that does not exist yet: [`VolumeServer`] makes it in the call that
    /// needs it, or completes it.
    ///
    /// [`VolumeServer`]: super::VolumeServer
    pub unmade: Option<Box<Stored>>,
    /// The volume was deleted in it.
    pub is_deleted: bool,
    /// The volume changed in it, so its end waits until that is on disk.
    pub has_changed: bool,
    /// The volume has other contents, or is of another kind.
    pub has_new_contents: bool,
    /// What was sent of the volume in it.
    pub sent: Sent,
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

impl Transaction {
    /// At its end: what becomes of the former snapshot of its volume, by what was sent.
    pub fn end_of_former(&self) {
        let Found::Snapshot { head, .. } = self.volume.found() else { return };
        match self.sent {
            Sent::Nothing | Sent::Part => {}
            Sent::Header => self.volume.partition.cancel_time_out(head),
            Sent::Blocks => self.volume.partition.queue_drop_former(head),
        }
    }
}

/// All transactions of a server.
#[derive(Default)]
pub struct Transactions {
    all: Mutex<All>,
    last: AtomicI32,
}

#[derive(Default)]
struct All {
    transactions: BTreeMap<i32, Transaction>,
    /// The volumes that transactions or calls have.
    taken: BTreeSet<VolumeId>,
}

/// A volume that a call has for itself without a transaction. Dropping it gives the volume back.
pub struct Taken<'a> {
    all: &'a Transactions,
    volume: VolumeId,
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        self.all.all.lock().taken.remove(&self.volume);
    }
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

impl Lease<'_> {
    /// Whether the transaction has ended, which happens when its partition is forced out.
    pub fn has_ended(&self) -> bool {
        !self.all.all.lock().transactions.contains_key(&self.transaction.id)
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
        let all = &mut *self.all.lock();
        if all.transactions.len() >= MOST || !all.taken.insert(volume.id) {
            return Err(volser::VOLSERVOLBUSY);
        }
        let id = loop {
            let id = self.last.fetch_add(1, Ordering::Relaxed).wrapping_add(1) & i32::MAX;
            if id != 0 && !all.transactions.contains_key(&id) {
                break id;
            }
        };
        let transaction = Transaction {
            id,
            volume,
            attach,
            flags: 0,
            unmade: None,
            is_deleted: false,
            has_changed: false,
            has_new_contents: false,
            sent: Sent::Nothing,
            begun: now(),
            used: now(),
            last_call: "TransCreate",
            is_running: false,
            idle_since: Instant::now(),
        };
        all.transactions.insert(id, transaction.clone());
        Ok(transaction)
    }

    /// Takes a volume for a call without a transaction.
    ///
    /// # Errors
    /// VOLSERVOLBUSY: a transaction or another call has it.
    pub fn take(&self, volume: VolumeId) -> Result<Taken<'_>, i32> {
        match self.all.lock().taken.insert(volume) {
            true => Ok(Taken { all: self, volume }),
            false => Err(volser::VOLSERVOLBUSY),
        }
    }

    /// Notes that the volume of a transaction is deleted. Another one of its number may come.
    pub fn deleted(&self, id: i32) {
        let all = &mut *self.all.lock();
        if let Some(transaction) = all.transactions.get_mut(&id) {
            (transaction.is_deleted, transaction.unmade) = (true, None);
            all.taken.remove(&transaction.volume.id);
        }
    }

    /// Uses a transaction for a call.
    ///
    /// # Errors
    /// * ENOENT: there is none of this number, or its volume is deleted.
    /// * VOLSERVOLBUSY: another call uses it.
    pub fn lease(&self, id: i32, call: &'static str) -> Result<Lease<'_>, i32> {
        let mut all = self.all.lock();
        let transaction =
            all.transactions.get_mut(&id).filter(|found| !found.is_deleted).ok_or(errno::ENOENT)?;
        if transaction.is_running {
            return Err(volser::VOLSERVOLBUSY);
        }
        transaction.is_running = true;
        transaction.last_call = call;
        Ok(Lease { all: self, transaction: transaction.clone() })
    }

    /// Changes a transaction.
    pub fn update(&self, id: i32, change: impl FnOnce(&mut Transaction)) {
        self.all.lock().transactions.get_mut(&id).map(change);
    }

    /// A transaction that no call uses.
    pub fn unused(&self, id: i32) -> Option<Transaction> {
        self.all.lock().transactions.get(&id).filter(|found| !found.is_running).cloned()
    }

    /// Ends a transaction.
    ///
    /// # Errors
    /// * ENOENT: there is none of this number.
    /// * VOLSERVOLBUSY: a call uses it.
    pub fn end(&self, id: i32) -> Result<Transaction, i32> {
        let all = &mut *self.all.lock();
        match all.transactions.get(&id) {
            None => Err(errno::ENOENT),
            Some(found) if found.is_running => Err(volser::VOLSERVOLBUSY),
            Some(found) => {
                if !found.is_deleted {
                    all.taken.remove(&found.volume.id);
                }
                all.transactions.remove(&id).ok_or(errno::ENOENT)
            }
        }
    }

    /// The transactions that no call uses any more. While a lease is there, no other call has the
    /// volume.
    pub fn expired(&self, idle: Duration) -> Vec<Lease<'_>> {
        let old = |found: &Transaction| !found.is_running && found.idle_since.elapsed() >= idle;
        let mut expired = Vec::new();
        let mut all = self.all.lock();
        for found in all.transactions.values_mut().filter(|found| old(found)) {
            tracing::warn!(transaction = found.id, volume = found.volume.id.0, "a transaction timed out");
            found.is_running = true;
            expired.push(Lease { all: self, transaction: found.clone() });
        }
        expired
    }

    /// Ends the transactions of chosen volumes, also those that a call uses.
    pub fn end_all(&self, is_chosen: impl Fn(&Volume) -> bool) -> Vec<Transaction> {
        let All { transactions, taken } = &mut *self.all.lock();
        let ended: Vec<Transaction> = transactions
            .extract_if(.., |_, found| is_chosen(&found.volume))
            .map(|(_, found)| found)
            .collect();
        ended.iter().for_each(|found| _ = taken.remove(&found.volume.id));
        ended
    }

    /// Whether a transaction or call has a volume.
    pub fn has(&self, volume: VolumeId) -> bool {
        self.all.lock().taken.contains(&volume)
    }

    /// The volumes that transactions and calls have.
    pub fn taken(&self) -> Vec<VolumeId> {
        self.all.lock().taken.iter().copied().collect()
    }

    /// All transactions in the order of their numbers.
    pub fn all(&self) -> Vec<Transaction> {
        self.all.lock().transactions.values().cloned().collect()
    }
}
