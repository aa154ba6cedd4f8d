//! What a start takes from the list of a partition's volumes.
//!
//! # Theory
//! A list of a million volumes has nothing to tell of most of them but that they are there. So it
//! is read in pieces, and what did not change since its txg becomes one [`Item`] of 12 bytes. Only
//! the others are kept whole, since they are read again.
//!
//! That takes knowing the txg first: it is at the end of the file, unless a group is not complete.

use std::collections::HashMap;

use ondisk::Txg;

use super::Head;
use super::entry::{Changed, Entry, Kept, Owner};
use super::log::Words;
use crate::server::Result;
use crate::types::VolumeId;

/// A file system of the list.
#[derive(Debug, Clone, Copy)]
struct Item {
    volume: VolumeId,
    /// 0, or 1 more than [`Head::gone`].
    gone: u32,
    /// Where in [`Scan::clones`] its clones are, after their count.
    clones: u32,
}

/// There are no clones.
const NONE: u32 = u32::MAX;
/// The list says that the file system is gone.
const IS_GONE: u32 = u32::MAX - 1;

impl Item {
    fn head(self) -> Head {
        Head { volume: self.volume, gone: self.gone.checked_sub(1) }
    }

    fn key(&self) -> (VolumeId, u32) {
        (self.volume, self.gone)
    }
}

/// The list of a partition, of which most is right.
#[derive(Debug, Default)]
pub(super) struct Scan {
    /// The end of the last group, and the entries before it.
    pub(super) end: u64,
    pub(super) entries: usize,
    /// How many objects of the MOS changed since.
    pub(super) changes: usize,
    /// In order.
    items: Vec<Item>,
    clones: Vec<VolumeId>,
    /// Those that must be read again.
    pub(super) wrong: HashMap<Head, Kept>,
}

impl Scan {
    /// Reads a list up to the end of its last group, which is of this txg and partition. `None`: it
    /// is not what is there.
    ///
    /// # Errors
    /// [`Error::Files`](crate::server::Error::Files): the file can't be read.
    pub(super) fn read(
        words: &mut Words<'_>,
        (txg, owner): (Txg, Owner),
        changed: &Changed,
    ) -> Result<Option<Self>> {
        let mut scan = Self { changes: changed.count(), ..Self::default() };
        scan.items.reserve(words.len() / Entry::LEAST);
        let mut last = None;
        while let Some(entry) = Entry::read(words) {
            last = None;
            match entry {
                Entry::End(txg, owner) => last = Some((txg, owner)),
                Entry::Head(head, kept) => {
                    scan.entries += 1;
                    let clones = scan.put(&kept.clones);
                    scan.push(head, clones);
                    if kept.read_again || kept.objects.iter().any(|object| changed.has(*object)) {
                        scan.wrong.insert(head, kept);
                    } else if !scan.wrong.is_empty() {
                        scan.wrong.remove(&head);
                    }
                }
                Entry::Gone(head) => {
                    scan.entries += 1;
                    scan.push(head, IS_GONE);
                    scan.wrong.remove(&head);
                }
            }
        }
        if let Some(error) = words.take_error() {
            return Err(error.into());
        }
        scan.end = words.at();
        scan.settle();
        Ok(Some(scan).filter(|_| last == Some((txg, owner)) && words.len() == 0))
    }

    fn put(&mut self, clones: &[VolumeId]) -> u32 {
        if clones.is_empty() {
            return NONE;
        }
        let at = self.clones.len() as u32;
        self.clones.push(VolumeId(clones.len() as u32));
        self.clones.extend_from_slice(clones);
        at
    }

    fn push(&mut self, head: Head, clones: u32) {
        let gone = head.gone.map_or(0, |number| number.wrapping_add(1));
        self.items.push(Item { volume: head.volume, gone, clones });
    }

    /// Sorts the file systems. Of those that come twice, the last counts.
    fn settle(&mut self) {
        if !self.items.is_sorted_by(|one, other| one.key() < other.key()) {
            // The last of each comes first.
            self.items.reverse();
            self.items.sort_by_key(Item::key);
            self.items.dedup_by_key(|item| item.key());
        }
        self.items.retain(|item| item.clones != IS_GONE);
    }

    /// How many file systems there are.
    pub(super) fn len(&self) -> usize {
        self.items.len()
    }

    /// Whether the list has a file system.
    pub(super) fn has(&self, head: Head) -> bool {
        self.items.binary_search_by_key(&head, |item| item.head()).is_ok()
    }

    /// The file systems with their clones, in order.
    pub(super) fn each(&self) -> impl Iterator<Item = (Head, &[VolumeId])> {
        self.items.iter().map(|item| {
            let clones = match item.clones {
                NONE => &[][..],
                at => {
                    let at = at as usize;
                    &self.clones[at + 1..=at + self.clones[at].0 as usize]
                }
            };
            (item.head(), clones)
        })
    }
}
