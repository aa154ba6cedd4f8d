//! Records that are not in a log block yet.

use super::NAMED_SHARE;
use crate::tunables::IMMEDIATE_WRITE_SZ;
use ondisk::Txg;
use std::collections::{HashMap, VecDeque};

/// One more than the transaction groups that may have records at a time (`TXG_SIZE`).
const TXG_SIZE: usize = 4;
/// Adjacent writes become one record up to this many bytes.
const JOIN_MAX: u64 = 1 << 20;

/// One record (`itx_t`).
#[derive(Debug)]
pub(super) struct Itx {
    pub(super) txg: Txg,
    pub(super) body: Body,
}

/// The contents of a record.
#[derive(Debug)]
pub(super) enum Body {
    /// One record, or several that must stay together, encoded for the log.
    Whole(Vec<u8>),
    /// Encoded for the log, but it may be logged only while its txg is open.
    Clones(Vec<u8>),
    /// Bytes of an object, which the commit fetches (`WR_NEED_COPY`).
    Data { object: u64, offset: u64, length: u64 },
}

impl Itx {
    /// Absorbs a write that begins where this one ends; false for all other records.
    fn join(&mut self, more: &Itx) -> bool {
        match (&mut self.body, &more.body) {
            (Body::Data { offset, length, .. }, Body::Data { offset: at, length: len, .. })
                if offset.checked_add(*length) == Some(*at) && *length + *len <= JOIN_MAX =>
            {
                *length += *len;
                true
            }
            _ => false,
        }
    }
}

/// The records of one transaction group (`itxg_t`).
#[derive(Debug, Default)]
pub(super) struct Group {
    txg: Txg,
    /// What the next commit takes, in this order.
    ordered: VecDeque<Itx>,
    /// What waits for a commit of its object.
    of_object: HashMap<u64, Vec<Itx>>,
}

impl Group {
    fn pull(&mut self, object: u64) {
        if let Some(records) = self.of_object.remove(&object) {
            self.ordered.extend(records);
        }
    }
}

/// All records that are not in a log block yet.
#[derive(Debug, Default)]
pub(super) struct Pending {
    groups: [Group; TXG_SIZE],
    /// Number of takes of all ordered records.
    pub(super) takes: u64,
    /// The newest txg with a change that has no record: commits wait for it.
    pub(super) unlogged: Txg,
}

impl Pending {
    fn group(&mut self, txg: Txg) -> &mut Group {
        let group = &mut self.groups[txg.0 as usize % TXG_SIZE];
        if group.txg != txg {
            // The slot's former txg has synced.
            *group = Group { txg, ..Group::default() };
        }
        group
    }

    /// Adds a record at the end of the order.
    pub(super) fn push(&mut self, itx: Itx) {
        self.group(itx.txg).ordered.push_back(itx);
    }

    /// Adds a record that waits for a commit of its object.
    pub(super) fn push_of(&mut self, object: u64, itx: Itx) {
        let list = self.group(itx.txg).of_object.entry(object).or_default();
        if !list.last_mut().is_some_and(|last| last.join(&itx)) {
            list.push(itx);
        }
    }

    /// Moves the records of one object, or of all, to the end of their txg's order
    /// (`zil_async_to_sync`).
    pub(super) fn pull(&mut self, object: Option<u64>) {
        for group in &mut self.groups {
            match object {
                Some(object) => group.pull(object),
                None => {
                    let mut all: Vec<u64> = group.of_object.keys().copied().collect();
                    all.sort_unstable();
                    all.into_iter().for_each(|object| group.pull(object));
                }
            }
        }
    }

    /// Bytes of data that a commit of an object would fetch. In the txg `named`, large writes name
    /// their blocks instead of copying them, and count as a fraction.
    pub(super) fn bytes_of(&self, object: u64, named: Option<Txg>) -> u64 {
        let records = self.groups.iter().filter_map(|g| g.of_object.get(&object)).flatten();
        let bytes = records.map(|itx| match itx.body {
            Body::Data { length, .. } if length >= IMMEDIATE_WRITE_SZ.get() && named == Some(itx.txg) => {
                length / NAMED_SHARE
            }
            Body::Data { length, .. } => length,
            Body::Whole(_) | Body::Clones(_) => 0,
        });
        bytes.fold(0, u64::saturating_add)
    }

    /// Drops the waiting records of a removed object (`zil_remove_async`).
    pub(super) fn forget(&mut self, object: u64) {
        for group in &mut self.groups {
            group.of_object.remove(&object);
        }
    }

    /// True if a commit has records to take.
    pub(super) fn is_waiting(&self, synced: Txg) -> bool {
        self.groups.iter().any(|g| g.txg > synced && !g.ordered.is_empty())
    }

    /// The newest txg with a change that has no record, while it has not synced. Nothing later than
    /// that change may be in the log.
    pub(super) fn barred(&self, synced: Txg) -> Option<Txg> {
        Some(self.unlogged).filter(|txg| *txg > synced)
    }

    /// Takes all ordered records that have not synced.
    pub(super) fn take(&mut self, synced: Txg) -> VecDeque<Itx> {
        let mut groups: Vec<&mut Group> = self.groups.iter_mut().filter(|g| g.txg > synced).collect();
        groups.sort_by_key(|g| g.txg);
        let mut out = VecDeque::new();
        for group in groups {
            out.append(&mut group.ordered);
        }
        out
    }

    /// Removes what has synced and returns it, so that the caller drops it without the lock
    /// (`zil_clean`).
    pub(super) fn clean(&mut self, synced: Txg) -> Vec<Group> {
        self.groups.iter_mut().filter(|g| g.txg <= synced).map(std::mem::take).collect()
    }

    /// Whether no record waits.
    pub(super) fn is_empty(&self) -> bool {
        self.groups.iter().all(|group| group.ordered.is_empty() && group.of_object.is_empty())
    }
}

#[cfg(test)]
mod tests;
