//! Reading the ranges of many blocks, several batches at once.
//!
//! # Theory
//! In each batch ([`Tree::fetch`]) some devices have more than others, and some devices of a dRAID
//! have nothing. If one batch were read after the other, each device would wait for the slowest. So
//! each device has a thread of its own. It reads its share of one batch after the other, in order.
//! It may be ahead of others by as many batches as have begun.
//!
//! # Life
//! The caller begins batches and takes them in order. The caller limits how many are under way, and
//! so the memory. When this is dropped, devices skip what they have not begun to read.
//!
//! # Locks
//! None. Requests and results go through channels.
//!
//! # See
//! OpenZFS `scan_io_queues_run_one`, `zfs_scan_vdev_limit`.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{Builder, Scope};

use ondisk::Guid;

use super::fetch::{Extent, Fetched, Runs, SMALL_GAP};
use crate::request::Request;
use crate::tree::{NodeId, Tree};

/// What was read of a batch, by its number, from a device.
type Done = (u64, Guid, Runs);

/// A device's share of a batch. When it is dropped it sends what was read, or nothing if the read
/// did not take place.
struct LeafShare {
    lot: u64,
    tree: Arc<Tree>,
    leaf: NodeId,
    ranges: Vec<(u64, u64)>,
    runs: Runs,
    done: Sender<Done>,
}

impl Drop for LeafShare {
    fn drop(&mut self) {
        let guid = self.tree.node(self.leaf).guid;
        // If the receiver is gone, the result is not wanted.
        let _ = self.done.send((self.lot, guid, std::mem::take(&mut self.runs)));
    }
}

/// A batch under way, and how many devices have not read their shares.
#[derive(Default)]
struct Batch {
    left: usize,
    fetched: Fetched,
}

/// Batches that are read ahead; see the module.
pub struct BatchReader<'scope, 'env> {
    scope: &'scope Scope<'scope, 'env>,
    devices: BTreeMap<Guid, Sender<LeafShare>>,
    lots: VecDeque<Batch>,
    /// Number of the first of them.
    first: u64,
    done: (Sender<Done>, Receiver<Done>),
    over: Arc<AtomicBool>,
    request: Request,
}

impl<'scope, 'env> BatchReader<'scope, 'env> {
    /// Reads with threads of this scope, as `request` says.
    pub fn new(scope: &'scope Scope<'scope, 'env>, request: Request) -> Self {
        let (devices, lots) = (BTreeMap::new(), VecDeque::new());
        Self { scope, devices, lots, first: 0, done: channel(), over: Arc::default(), request }
    }

    /// Begins to read a batch, as [`Tree::fetch`] does.
    pub fn begin(&mut self, tree: &Arc<Tree>, extents: &[Extent], missed: bool) {
        let wanted = tree.wanted(extents, missed);
        let number = self.first + self.lots.len() as u64;
        self.lots.push_back(Batch { left: wanted.len(), ..Batch::default() });
        for (leaf, ranges) in wanted {
            let (tree, done) = (Arc::clone(tree), self.done.0.clone());
            let guid = tree.node(leaf).guid;
            let share = LeafShare { lot: number, tree, leaf, ranges, runs: Runs::new(), done };
            // The device's thread runs until `self` is dropped.
            let _ = self.device(guid).send(share);
        }
    }

    fn device(&mut self, guid: Guid) -> &Sender<LeafShare> {
        let (scope, over, request) = (self.scope, &self.over, &self.request);
        self.devices.entry(guid).or_insert_with(|| {
            let (send, take) = channel::<LeafShare>();
            let (request, over) = (request.clone(), Arc::clone(over));
            let read = move || {
                for mut share in take {
                    if !over.load(Ordering::Relaxed) {
                        let ranges = std::mem::take(&mut share.ranges);
                        share.runs = share.tree.read_ranges(share.leaf, ranges, SMALL_GAP, &request);
                    }
                }
            };
            let thread = Builder::new().name("device-ahead".into()).spawn_scoped(scope, read);
            thread.expect("the system has room for a thread");
            send
        })
    }

    /// Waits until the first batch under way has been read, and returns it; `None` if there is
    /// none.
    pub fn take(&mut self) -> Option<Fetched> {
        while self.lots.front()?.left > 0 {
            let (number, guid, runs) = self.done.1.recv().expect("this has a sender");
            let lot = usize::try_from(number - self.first).expect("few are under way");
            let lot = &mut self.lots[lot];
            lot.left -= 1;
            lot.fetched.runs.insert(guid, runs);
        }
        self.first += 1;
        self.lots.pop_front().map(|lot| lot.fetched)
    }
}

impl Drop for BatchReader<'_, '_> {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests;
