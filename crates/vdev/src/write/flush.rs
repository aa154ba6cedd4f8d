//! Making writes durable.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use device::{Device, DeviceError, Op};
use observe::work::{self, Wait};
use ondisk::{Guid, Txg, VdevId};

use crate::inject::{self, On, Wrong};
use crate::report::Trouble;
use crate::stats::Io;
use crate::tree::{Layout, NodeId, Tree};
use crate::write::shared_flush::FlushOutcome;

/// Txgs that may be open while one syncs (`TXG_CONCURRENT_STATES`, less that one).
pub(crate) const OPEN_GROUPS: u64 = 2;

/// A device could not make its writes durable, and the pool needs it.
#[derive(Debug, Clone, thiserror::Error)]
#[error("vdev {guid}: flush")]
pub struct FlushError {
    /// The leaf.
    pub guid: Guid,
    /// The cause.
    #[source]
    pub source: Arc<DeviceError>,
}

fn flushed(pool: Guid, guid: Guid, device: &dyn Device) -> device::Result<()> {
    match inject::strike(|| pool, guid, On::Flush) {
        Some(Wrong::Error(code)) => Err(inject::error(code, Op::Flush, device.name(), 0, 0)),
        Some(Wrong::Noop) => Ok(()),
        _ => device.flush(),
    }
}

impl Tree {
    /// Makes every write that has returned durable on all devices (`zio_flush`).
    ///
    /// A device that can't is faulted, since it is not known what it holds. It has missed `txg` and
    /// later ones.
    ///
    /// # Errors
    /// * [`FlushError`]: the flush of a device failed, and the pool can't do without the device.
    pub fn flush(&self, txg: Txg) -> Result<(), FlushError> {
        let leaves: Vec<Guid> = self.devices().map(|(guid, _)| guid).collect();
        leaves.into_iter().try_for_each(|leaf| self.flush_leaf(leaf, txg))
    }

    /// The leaves with devices below a top-level vdev: those that a write to it may have reached.
    pub fn leaves_of(&self, vdev: VdevId) -> Vec<Guid> {
        let mut todo: Vec<NodeId> = self.top(vdev).into_iter().collect();
        let mut leaves = Vec::new();
        while let Some(id) = todo.pop() {
            let node = self.node(id);
            todo.extend(node.children.iter().rev());
            if matches!(node.layout, Layout::Leaf(Some(_))) {
                leaves.push(node.guid);
            }
        }
        leaves
    }

    /// Flushes one device, together with all other callers that wait for that now. Several devices
    /// may be flushed at once. A device that is not readable is skipped.
    ///
    /// # Errors
    /// * [`FlushError`]: the flush failed, and the pool can't do without the device.
    pub fn flush_leaf(&self, guid: Guid, txg: Txg) -> Result<(), FlushError> {
        let Some(id) = self.by_guid.get(&guid).copied() else { return Ok(()) };
        let node = self.node(id);
        let Layout::Leaf(Some(device)) = &node.layout else { return Ok(()) };
        // Blocks of logs belong to txgs that have not synced yet. They are flushed beside those of
        // an older txg.
        let unsynced = txg.0.saturating_sub(OPEN_GROUPS)..=txg.0.saturating_add(OPEN_GROUPS);
        let miss = || unsynced.clone().for_each(|txg| node.miss(Txg(txg)));
        if !node.readable() {
            // Writes from before the device was given up may not be durable.
            miss();
            return Ok(());
        }
        let _waiting = work::wait(Wait::Flush, guid.0);
        // A flush for other callers may have failed for another txg.
        match node.flushing.take(|| self.flush_device(id, &**device, &miss)) {
            FlushOutcome::Durable => Ok(()),
            FlushOutcome::Faulted => {
                miss();
                Ok(())
            }
            FlushOutcome::Lost(e) => {
                miss();
                Err(e)
            }
        }
    }

    /// Flushes the device of a leaf; on failure counts the error and gives the device up.
    fn flush_device(&self, id: NodeId, device: &dyn Device, miss: &dyn Fn()) -> FlushOutcome {
        let node = self.node(id);
        let lost = || DeviceError::Io {
            op: Op::Flush,
            device: device.name().to_owned(),
            offset: 0,
            len: 0,
            source: std::io::Error::other("an earlier flush failed"),
        };
        let begun = node.underway.begin(node.guid, Op::Flush, 0, 0);
        let done = node
            .precedence
            .run(|| flushed(self.root_guid(), node.guid, device))
            .and_then(|()| if node.lost_writes.load(Relaxed) { Err(lost()) } else { Ok(()) });
        let (took, failed) = (begun.took(), done.as_ref().err());
        drop(begun);
        Io { device: node.guid, what: None, offset: 0, bytes: 0, took, failed }.show();
        let Err(source) = done else { return FlushOutcome::Durable };
        node.stats.write_errors.inc();
        self.failed(id, Trouble::Flush, None, Some(&source));
        miss();
        if self.fault(id, device.is_gone()) {
            return FlushOutcome::Faulted;
        }
        node.lost_writes.store(true, Relaxed);
        FlushOutcome::Lost(FlushError { guid: node.guid, source: Arc::new(source) })
    }
}

impl Tree {
    /// Sets the states of a vdev's parents from its state.
    pub(crate) fn assess_above(&self, id: NodeId) {
        let mut up = self.node(id).parent;
        while let Some(id) = up {
            self.assess(id);
            up = self.node(id).parent;
        }
    }
}
