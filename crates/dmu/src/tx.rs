//! Transactions: which transaction group a change belongs to.

use ondisk::Txg;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The right to change objects in one transaction group (`dmu_tx_t`, assigned).
///
/// While one is alive its group cannot be synced; dropping it lets go. A change to an object must not come in an older
/// group than the last one did, or the thread panics: whoever hands these out lets nobody into a group before the last holder of the
/// one before has left, and a thread takes its locks before it takes one of these, never after. (OpenZFS lets groups overlap, but makes who
/// wants an object in the newer one wait for those who hold it in the older one.)
pub struct Tx {
    txg: Txg,
    gauge: Option<Arc<AtomicU64>>,
    _hold: Option<Box<dyn Send + Sync>>,
}

impl Tx {
    /// A transaction of group `txg`; `hold` is dropped with it, and lets the group go.
    pub fn new(txg: Txg, hold: Option<Box<dyn Send + Sync>>) -> Tx {
        Tx { txg, gauge: None, _hold: hold }
    }

    /// The same, counting in `gauge` the bytes of blocks that become dirty (`dp_dirty_pertxg`).
    #[must_use]
    pub fn with_gauge(self, gauge: Arc<AtomicU64>) -> Tx {
        Tx { gauge: Some(gauge), ..self }
    }

    /// Its group (`tx_txg`).
    pub fn txg(&self) -> Txg {
        self.txg
    }

    pub(crate) fn count(&self, bytes: u64) {
        if let Some(g) = &self.gauge {
            g.fetch_add(bytes, Ordering::Relaxed);
        }
    }
}

impl std::fmt::Debug for Tx {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Tx({})", self.txg)
    }
}
