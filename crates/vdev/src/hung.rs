//! Device operations that have begun and not ended (`vdev_deadman`).
//!
//! # Theory
//! An operation that never returns does not fail, so no error counter sees it. Each leaf therefore
//! keeps a list of its operations under way. A periodic check examines these lists
//! ([`Tree::find_hung`]). The system can't cancel an operation that hangs. The check reports it,
//! and its caller may give the device up, so that no further request reaches it.
//!
//! # Locks
//! Each leaf's list has a lock of its own, held for a few instructions as an operation begins and
//! ends.
//!
//! # See
//! OpenZFS `vdev_deadman`, `zio_deadman`.

use std::time::{Duration, Instant};

use device::Op;
use observe::lock::Mutex;
use observe::work::{self, Wait, Waiting};
use ondisk::Guid;

use crate::report::Trouble;
use crate::tree::{Layout, Tree};

/// An operation that has not ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hung {
    /// Its device.
    pub leaf: Guid,
    /// The kind of operation.
    pub op: Op,
    /// How long ago it began.
    pub since: Duration,
    /// Its offset on the device, in bytes.
    pub offset: u64,
    /// Its size in bytes.
    pub size: u64,
}

/// The operations under way on a leaf.
#[derive(Debug, Default)]
pub(crate) struct Underway(Mutex<List>);

#[derive(Debug, Default)]
struct List {
    last: u64,
    all: Vec<One>,
}

#[derive(Debug)]
struct One {
    id: u64,
    at: Instant,
    op: Op,
    offset: u64,
    size: u64,
    /// When it was last reported.
    told: Option<Instant>,
}

/// An operation under way, until this is dropped.
pub(crate) struct Begun<'a> {
    of: &'a Underway,
    id: u64,
    at: Instant,
    _waiting: Option<Waiting>,
}

impl Underway {
    /// Enters an operation on the leaf with this guid, for which this thread waits. For a flush it
    /// waits already: another thread may do it.
    pub(crate) fn begin(&self, leaf: Guid, op: Op, offset: u64, size: u64) -> Begun<'_> {
        let at = Instant::now();
        let wait = match op {
            Op::Write => Some(Wait::Write),
            Op::Flush => None,
            Op::Trim => Some(Wait::Discard),
            Op::Read | Op::Open => Some(Wait::Read),
        };
        let waiting = wait.map(|wait| work::wait_since(wait, leaf.0, at));
        let list = &mut *self.0.lock();
        list.last += 1;
        list.all.push(One { id: list.last, at, op, offset, size, told: None });
        Begun { of: self, id: list.last, at, _waiting: waiting }
    }
}

impl Begun<'_> {
    /// How long ago it began.
    pub(crate) fn took(&self) -> Duration {
        self.at.elapsed()
    }
}

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        let list = &mut *self.of.0.lock();
        if let Some(at) = list.all.iter().position(|one| one.id == self.id) {
            list.all.swap_remove(at);
        }
    }
}

impl Tree {
    /// Reports and returns the operations that have been under way for longer than `longer`
    /// (`ereport.fs.zfs.deadman`).
    ///
    /// Those that were reported within the last `again` are left out. The oldest of each device
    /// comes first.
    pub fn find_hung(&self, longer: Duration, again: Duration) -> Vec<Hung> {
        let mut found = Vec::new();
        for node in self.nodes().filter(|node| matches!(node.layout, Layout::Leaf(_))) {
            let mut here: Vec<Hung> = {
                let list = &mut *node.underway.0.lock();
                let now = Instant::now();
                let old = list.all.iter_mut().filter(|one| {
                    let told = one.told.is_some_and(|told| now.duration_since(told) < again);
                    now.duration_since(one.at) >= longer && !told
                });
                old.map(|one| {
                    one.told = Some(now);
                    let since = now.duration_since(one.at);
                    Hung { leaf: node.guid, op: one.op, since, offset: one.offset, size: one.size }
                })
                .collect()
            };
            here.sort_by_key(|hung| std::cmp::Reverse(hung.since));
            for hung in &here {
                node.report(Trouble::Deadman { for_ns: nanos(hung.since) }, Some((hung.offset, hung.size)));
            }
            found.extend(here);
        }
        found
    }

    /// Reports, for the root vdev, that a transaction group has taken so long to be written. No
    /// device operation need hang: the thread that writes the group may make no progress.
    pub fn report_slow_group(&self, since: Duration) {
        let Some(root) = self.nodes().find(|node| node.guid == self.root_guid()) else { return };
        root.report(Trouble::Deadman { for_ns: nanos(since) }, None);
    }
}

/// Nanoseconds of a time, at most `u64::MAX`.
pub(crate) fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
