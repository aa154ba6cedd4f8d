//! Transactions: which transaction group a change belongs to.

use ondisk::Txg;
use std::sync::Arc;

/// What holds a transaction's group open until it is dropped.
pub trait Hold: Send + Sync {
    /// Learns that the transaction has made so many bytes dirty that were not dirty before in its group: blocks, and what is remembered of
    /// objects (`dp_dirty_pertxg`).
    fn dirtied(&self, bytes: u64);
}

/// The right to change objects in one transaction group (`dmu_tx_t`, assigned).
///
/// While one is alive its group cannot be synced; dropping it lets go. A change to an object must not come in an older
/// group than the last one did, or the thread panics: whoever hands these out lets nobody into a group before the last holder of the
/// one before has left, and a thread takes its locks before it takes one of these, never after. (OpenZFS lets groups overlap, but makes who
/// wants an object in the newer one wait for those who hold it in the older one.)
pub struct Tx {
    txg: Txg,
    hold: Option<Arc<dyn Hold>>,
}

impl Tx {
    /// A transaction of group `txg`; `hold` is dropped with it, and lets the group go.
    pub fn new(txg: Txg, hold: Option<Box<dyn Hold>>) -> Tx {
        Tx { txg, hold: hold.map(Arc::from) }
    }

    /// The same transaction once more, for an operation that wants one of its own: the group is let go when all of them are dropped.
    pub fn share(&self) -> Tx {
        Tx { txg: self.txg, hold: self.hold.clone() }
    }

    /// Its group (`tx_txg`).
    pub fn txg(&self) -> Txg {
        self.txg
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
