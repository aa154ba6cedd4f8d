//! The former snapshot of a volume: the clone that other sites have.
//!
//! # Theory
//! A release makes a clone in the place of the one before, and sends what differs. A bookmark of
//! the one before says when blocks were born, and no more. Of the files that share a block of
//! dnodes it can't say which differ, so an increment has all of them. The snapshot itself can say
//! it. So it stays until changes were sent.
//!
//! If nothing differs, the sites keep what they have. Then the snapshot stays for the next release.
//! It takes no space beyond that of the clone, which has the same blocks.
//!
//! # Life
//! `PARTITION/ID@`[`FORMER`] is a clone that was sent, once another takes its place. It goes
//! * after the transaction that sends changes to all sites that it calls,
//! * after the time-out of transactions, if nothing was sent,
//! * when another clone that was sent takes its place,
//! * with the clone, and with the past of the file system.
//!
//! Nothing needs it: without it, the bookmark serves. So a crash may leave it for the next release.
//! While a stream reads it, it can't go.

use std::time::{Duration, Instant};

use dsl::ops::rename::RenameSnapshot;

use super::{Head, Partition, Task, header_property};
use crate::server::{Result, chain};
use crate::types::{VolumeId, VolumeType};

/// The name of the snapshot.
const FORMER: &str = "release-former";

/// When a former snapshot goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TimeOut {
    /// The clone that took its place.
    clone: VolumeId,
    /// When that was.
    since: Instant,
}

impl Partition {
    fn former_name(&self, head: Head) -> String {
        format!("{}@{FORMER}", self.head_name(head))
    }

    /// Whether a snapshot has that name.
    fn has_former_name(&self, head: Head) -> bool {
        self.pool.dataset(&self.former_name(head)).is_ok()
    }

    /// Whether there is a former snapshot. One without the header of a clone is an administrator's.
    pub(super) fn has_former(&self, head: Head) -> bool {
        header_property(&self.pool, &self.former_name(head), head.volume).is_ok()
    }

    /// Whether a clone that is about to be replaced is to become the former snapshot. If so, there
    /// is none before it.
    pub(super) fn is_to_be_former(&self, head: Head, id: VolumeId) -> bool {
        self.makes_room(head, id).unwrap_or_else(|error| {
            tracing::debug!(volume = id.0, error = chain(&error), "it does not become the former snapshot");
            false
        })
    }

    fn makes_room(&self, head: Head, id: VolumeId) -> Result<bool> {
        if head.gone.is_some() || self.clone_header(head, id)?.header.kind != VolumeType::ReadOnly {
            return Ok(false);
        }
        if !self.was_sent(head, id)? {
            // The sites have what they had.
            if self.has_former(head) {
                self.start_time_out(head, id);
            }
            return Ok(false);
        }
        self.drop_former(head)?;
        Ok(!self.has_former_name(head))
    }

    /// The operation that makes a clone the former snapshot.
    pub(super) fn becomes_former(&self, head: Head, id: VolumeId) -> Task {
        self.start_time_out(head, id);
        let (old, new) = (id.to_string(), FORMER.to_owned());
        Box::new(RenameSnapshot { dataset: self.head_name(head), old, new, recursive: false })
    }

    fn start_time_out(&self, head: Head, clone: VolumeId) {
        self.formers.lock().insert(head.volume, TimeOut { clone, since: Instant::now() });
    }

    /// Destroys the former snapshot of a file system, if it has one.
    ///
    /// # Errors
    /// [`Error::Pool`](crate::server::Error::Pool): it is in use.
    pub(super) fn drop_former(&self, head: Head) -> Result<()> {
        self.cancel_time_out(head);
        if self.has_former(head) { self.destroy_snapshot(self.former_name(head)) } else { Ok(()) }
    }

    /// Has the former snapshot of a file system stay until the next release of its volume.
    pub fn cancel_time_out(&self, head: Head) {
        if head.gone.is_none() {
            self.formers.lock().remove(&head.volume);
        }
    }

    /// Has the former snapshot of a file system go soon, if it has one. If it is in use, it stays.
    pub fn queue_drop_former(&self, head: Head) {
        let Some(live) = self.pool.spa().writer().filter(|_| !self.is_stuck()) else { return };
        self.cancel_time_out(head);
        if !self.has_former(head) {
            return;
        }
        if let Err(error) = live.queue_in_order(vec![self.end_of(self.former_name(head))]) {
            tracing::debug!(volume = head.volume.0, error = chain(&error), "a former snapshot stays");
        }
    }

    /// Has former snapshots go whose time is over. `is_used`: whether a transaction has a volume or
    /// clone.
    pub fn queue_drop_formers(&self, idle: Duration, is_used: impl Fn(VolumeId) -> bool) {
        let is_over = |volume: VolumeId, time_out: &TimeOut| {
            time_out.since.elapsed() >= idle && !is_used(volume) && !is_used(time_out.clone)
        };
        let all = self.formers.lock().clone();
        for (volume, _) in all.into_iter().filter(|(volume, time_out)| is_over(*volume, time_out)) {
            // A release may have begun meanwhile.
            let now = self.formers.lock().get(&volume).copied();
            if now.is_some_and(|now| is_over(volume, &now)) {
                self.queue_drop_former(Head::of(volume));
            }
        }
    }
}
