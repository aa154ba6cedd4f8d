//! Operations on devices that have begun and not ended: found when they take too long (`vdev_deadman`).
//!
//! # Theory
//! An operation that never returns fails nowhere, so nothing that counts errors sees it. Each leaf therefore keeps what is under way on it, and somebody looks at
//! that from time to time ([`Tree::find_hung`]). What hangs can't be called back from the system: it is told, and the device may be given up, so that
//! nobody else asks it.
//!
//! # Locks
//! Each leaf's list has a lock of its own, held for a few instructions as an operation begins and ends.
//!
//! # See
//! OpenZFS `vdev_deadman`, `zio_deadman`.

use std::time::{Duration, Instant};

use device::Op;
use ondisk::Guid;
use parking_lot::Mutex;

use crate::report::Trouble;
use crate::tree::{Layout, Tree};

/// An operation that has not ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hung {
    /// Its device.
    pub leaf: Guid,
    /// What was asked.
    pub op: Op,
    /// How long ago.
    pub since: Duration,
    /// Where on the device, bytes.
    pub offset: u64,
    /// How many bytes.
    pub size: u64,
}

/// What is under way on a leaf.
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
    /// When it was last told that it takes long.
    told: Option<Instant>,
}

/// An operation under way, until this is dropped.
pub(crate) struct Begun<'a> {
    of: &'a Underway,
    id: u64,
    at: Instant,
}

impl Underway {
    /// Enters an operation.
    pub(crate) fn begin(&self, op: Op, offset: u64, size: u64) -> Begun<'_> {
        let at = Instant::now();
        let list = &mut *self.0.lock();
        list.last += 1;
        list.all.push(One { id: list.last, at, op, offset, size, told: None });
        Begun { of: self, id: list.last, at }
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
    /// The operations that have been under way for longer than this, and of which that was not told within the last `again`; each is reported
    /// (`ereport.fs.zfs.deadman`), the oldest of each device first.
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

    /// Reports, as of the root vdev, that a transaction group has taken so long to be written. No
    /// operation of a device need hang: the thread that writes it may make no progress.
    pub fn report_slow_group(&self, since: Duration) {
        let Some(root) = self.nodes().find(|node| node.guid == self.root_guid()) else { return };
        root.report(Trouble::Deadman { for_ns: nanos(since) }, None);
    }
}

/// Nanoseconds of a time; a time of centuries is as long as can be said.
pub(crate) fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
