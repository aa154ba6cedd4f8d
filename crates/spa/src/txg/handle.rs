//! A handle of the transaction groups that does not keep their threads running.

use std::sync::Arc;
use std::time::Instant;

use ondisk::Txg;

use super::{Hold, Shared, Stopped, Suspended};

/// The transaction groups, for users that must not keep their threads running.
#[derive(Clone)]
pub(crate) struct TxgHandle(pub(super) Arc<Shared>);

impl TxgHandle {
    /// See [`Txgs::sync_all`].
    pub(crate) fn sync_all(&self) -> Result<(), Stopped> {
        self.wait_synced(self.open())
    }

    /// See [`Txgs::stopped`].
    pub(crate) fn stopped(&self) -> Option<Stopped> {
        self.0.state.lock().stopped.clone()
    }

    /// See [`Txgs::hold`].
    pub(crate) fn hold(&self, bytes: u64) -> Result<Hold, Stopped> {
        self.0.hold(bytes)
    }

    /// See [`Txgs::wait_synced`].
    pub(crate) fn wait_synced(&self, txg: Txg) -> Result<(), Stopped> {
        self.0.wait_synced(txg)
    }

    /// See [`Txgs::wait_synced_unless_suspended`].
    pub(crate) fn wait_synced_unless_suspended(&self, txg: Txg) -> Result<(), Stopped> {
        self.0.wait(txg, || self.check_suspended())
    }

    /// See [`Txgs::open`].
    pub(crate) fn open(&self) -> Txg {
        self.0.state.lock().open
    }

    /// See [`Txgs::synced`].
    pub(crate) fn synced(&self) -> Txg {
        self.0.state.lock().synced
    }

    /// Lets the open txg sync by age though it has no holder, because there is something for it to
    /// write. Does not wait.
    pub(crate) fn touch(&self) {
        let mut s = self.0.state.lock();
        let txg = s.open;
        if s.closing || s.last.is_some_and(|last| txg > last) || s.slot(txg).changed {
            return;
        }
        s.slot(txg).changed = true;
        s.slot(txg).opened = Some(Instant::now());
        self.0.work.notify_all();
    }

    /// Lets the open txg sync at once, even if it is empty. Does not wait.
    pub(crate) fn kick(&self) {
        let mut s = self.0.state.lock();
        if !s.closing && s.last.is_none() {
            s.wanted = s.wanted.max(s.open);
            self.0.work.notify_all();
        }
    }

    /// See [`Txgs::check_suspended`].
    pub(crate) fn check_suspended(&self) -> Result<(), Stopped> {
        match self.0.suspension.reason() {
            None => Ok(()),
            Some(reason) => Err(Stopped { source: Some(Arc::new(Suspended { reason })) }),
        }
    }
}
