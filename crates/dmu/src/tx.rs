//! Transactions: the transaction group of a change.

use observe::lock::Mutex;
use ondisk::{ObjNum, Txg};
use std::sync::Arc;

/// Holds the txg of a transaction open until it is dropped.
pub trait Hold: Send + Sync {
    /// Reports bytes that the transaction has made dirty, and that were clean in its txg
    /// (`dp_dirty_pertxg`).
    ///
    /// They include blocks, and the memory for the changes of objects.
    fn dirtied(&self, bytes: u64);
}

/// The right to change objects in one transaction group (`dmu_tx_t`, assigned).
///
/// While a transaction exists, its txg can't sync. Dropping it releases the txg.
///
/// # Panics
/// A change panics if a newer txg has changed the object already. Two rules prevent this:
///
/// * The owner of the txgs admits no transaction to a txg before the last holder of the txg before
///   has left.
/// * A thread takes its locks before it takes a transaction, never after.
///
/// OpenZFS lets txgs overlap. There, a change in the newer txg waits for the holders of the object
/// in the older one.
pub struct Tx {
    txg: Txg,
    hold: Option<Arc<dyn Hold>>,
    /// See [`Tx::is_first`].
    counted: Mutex<Vec<ObjNum>>,
}

impl Tx {
    /// A transaction of `txg`. `hold` is dropped with it, and then releases the txg.
    pub fn new(txg: Txg, hold: Option<Box<dyn Hold>>) -> Tx {
        Tx { txg, hold: hold.map(Arc::from), counted: Mutex::default() }
    }

    /// Another handle of this transaction, for an operation that needs its own. The txg is released
    /// when all handles are dropped.
    pub fn share(&self) -> Tx {
        Tx { txg: self.txg, hold: self.hold.clone(), counted: Mutex::default() }
    }

    /// Its transaction group (`tx_txg`).
    pub fn txg(&self) -> Txg {
        self.txg
    }

    /// True at the first call for an object with this handle. So an operation that changes an
    /// object in several steps counts the change once.
    pub fn is_first(&self, object: ObjNum) -> bool {
        let mut counted = self.counted.lock();
        let first = !counted.contains(&object);
        if first {
            counted.push(object);
        }
        first
    }

    pub(crate) fn count(&self, bytes: u64) {
        if let Some(hold) = &self.hold {
            hold.dirtied(bytes);
        }
    }
}

impl std::fmt::Debug for Tx {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Tx({})", self.txg)
    }
}
