//! Entries of the list of a partition's volumes.
//!
//! # On disk
//! The file is a [`Log`](super::log::Log):
//!
//! | entry | words |
//! | --- | --- |
//! | a file system | 1; volume; flags; number; clones that follow; 4 objects; the clones |
//! | one that is gone | 2; volume; flags; number |
//! | the end of a group | 3; the txg; the pool's GUID; the partition's directory |
//!
//! An object has two words. A list of another pool or partition is of no use:
//! the file may be a copy. The flags: 1, the volume is gone, and the number is that of the file
//! system ([`Head::gone`]); 2, it must be read again at each start.

use std::collections::{HashMap, HashSet};

use ondisk::Txg;

use super::Head;
use super::log::{END, put, put_wide, wide, words_of};
use crate::types::VolumeId;

/// A file system.
pub(super) const HEAD: u32 = 1;
/// One that is gone.
pub(super) const GONE: u32 = 2;
const IS_GONE: u32 = 1;
const READ_AGAIN: u32 = 2;

/// Most clones of one file system.
pub(super) const MOST_CLONES: u32 = 1 << 16;

/// Objects of the MOS that change with what the list has of a file system: its directory, its
/// dataset, its properties, the names of its snapshots.
pub(super) type Objects = [u64; 4];

/// What the list has of a file system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Kept {
    pub(super) objects: Objects,
    pub(super) clones: Vec<VolumeId>,
    /// A change of it may be half-made.
    pub(super) read_again: bool,
}

/// The partition that a list is of: its pool's GUID, and the object of its directory.
pub(super) type Owner = (u64, u64);

/// An entry of the file.
pub(super) enum Entry {
    Head(Head, Kept),
    Gone(Head),
    End(Txg, Owner),
}

impl Entry {
    /// The words of the shortest one of a file system.
    pub(super) const LEAST: usize = 13;

    pub(super) fn head(words: &mut impl Iterator<Item = u32>) -> Option<(Head, u32)> {
        let (volume, flags, number) = (VolumeId(words.next()?), words.next()?, words.next()?);
        let gone = (flags & IS_GONE != 0).then_some(number);
        (gone != Some(u32::MAX)).then_some((Head { volume, gone }, flags))
    }

    pub(super) fn words(head: Head, flags: u32) -> [u32; 3] {
        let is_gone = if head.gone.is_some() { IS_GONE } else { 0 };
        [head.volume.0, is_gone | flags, head.gone.unwrap_or(0)]
    }

    /// The next entry. `None`: there is none that is complete and known.
    pub(super) fn read(words: &mut impl Iterator<Item = u32>) -> Option<Self> {
        match words.next()? {
            HEAD => {
                let (head, flags) = Self::head(words)?;
                let clones = words.next()?;
                let mut object = || wide(words);
                let objects = [object()?, object()?, object()?, object()?];
                if clones > MOST_CLONES {
                    return None;
                }
                let clones: Vec<VolumeId> = words.take(clones as usize).map(VolumeId).collect();
                Some(Self::Head(head, Kept { objects, clones, read_again: flags & READ_AGAIN != 0 }))
            }
            GONE => Some(Self::Gone(Self::head(words)?.0)),
            END => Some(Self::End(Txg(wide(words)?), (wide(words)?, wide(words)?))),
            _ => None,
        }
    }

    pub(super) fn write(&self, bytes: &mut Vec<u8>) {
        match self {
            Self::Head(head, kept) => {
                put(bytes, &[HEAD]);
                put(bytes, &Self::words(*head, if kept.read_again { READ_AGAIN } else { 0 }));
                put(bytes, &[kept.clones.len() as u32]);
                kept.objects.iter().for_each(|object| put_wide(bytes, *object));
                kept.clones.iter().for_each(|clone| put(bytes, &[clone.0]));
            }
            Self::Gone(head) => {
                put(bytes, &[GONE]);
                put(bytes, &Self::words(*head, 0));
            }
            Self::End(txg, owner) => {
                put(bytes, &[END]);
                [txg.0, owner.0, owner.1].iter().for_each(|number| put_wide(bytes, *number));
            }
        }
    }
}

/// A whole list as it was in a txg.
#[derive(Default)]
pub(super) struct State {
    pub(super) txg: Txg,
    pub(super) owner: Owner,
    pub(super) heads: HashMap<Head, Kept>,
}

impl State {
    /// The complete groups of a file, with their end and how many entries they have.
    pub(super) fn parse(bytes: &[u8]) -> (Self, u64, usize) {
        let mut state = Self::default();
        let (mut end, mut entries, mut group) = (0, 0, Vec::new());
        let mut words = words_of(bytes);
        while let Some(entry) = Entry::read(&mut words) {
            let Entry::End(txg, owner) = entry else {
                group.push(entry);
                continue;
            };
            entries += group.len();
            for entry in group.drain(..) {
                match entry {
                    Entry::Head(head, kept) => _ = state.heads.insert(head, kept),
                    Entry::Gone(head) => _ = state.heads.remove(&head),
                    Entry::End(..) => {}
                }
            }
            (state.txg, state.owner) = (txg, owner);
            end = (bytes.len() / 4 - words.size_hint().0) as u64 * 4;
        }
        (state, end, entries)
    }
}

/// What changed in the MOS: objects that are there, and ranges of free numbers in order.
#[derive(Default)]
pub(super) struct Changed {
    pub(super) used: HashSet<u64>,
    pub(super) free: Vec<(u64, u64)>,
}

impl Changed {
    /// How many objects there are.
    pub(super) fn count(&self) -> usize {
        self.used.len()
    }

    pub(super) fn has(&self, object: u64) -> bool {
        let at = self.free.partition_point(|(_, last)| *last < object);
        self.used.contains(&object) || self.free.get(at).is_some_and(|(first, _)| *first <= object)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(entries: &[Entry]) -> Vec<u8> {
        let mut bytes = Vec::new();
        entries.iter().for_each(|entry| entry.write(&mut bytes));
        bytes
    }

    /// Goal: a file gives its entries back, the last one of a file system counts, and a group
    /// without its end does not.
    #[test]
    fn groups() {
        let head = |id, gone| Head { volume: VolumeId(id), gone };
        let kept = |object: u64, clones: &[u32]| Kept {
            objects: [object, 1, 2, 1 << 40],
            clones: clones.iter().copied().map(VolumeId).collect(),
            read_again: object == 9,
        };
        let (one, two) = (head(7, None), head(7, Some(3)));
        let whole = bytes(&[
            Entry::Head(one, kept(8, &[])),
            Entry::Head(two, kept(9, &[10, 11])),
            Entry::End(Txg(1 << 33), (1, 2)),
            Entry::Head(one, kept(12, &[13])),
            Entry::End(Txg(5), (1 << 40, 7)),
        ]);
        let (state, end, entries) = State::parse(&whole);
        assert_eq!((state.txg, state.owner), (Txg(5), (1 << 40, 7)));
        assert_eq!((end, entries), (whole.len() as u64, 3));
        let expected = HashMap::from([(one, kept(12, &[13])), (two, kept(9, &[10, 11]))]);
        assert_eq!(state.heads, expected);
        let more = [whole.clone(), bytes(&[Entry::Gone(two), Entry::Gone(one)])].concat();
        for cut in [more.len(), more.len() - 5, whole.len() + 4] {
            let (state, end, _) = State::parse(&more[..cut]);
            assert_eq!((state.heads.len(), end), (2, whole.len() as u64), "{cut}");
        }
        let gone = [more, bytes(&[Entry::End(Txg(6), (1, 2))])].concat();
        assert_eq!(State::parse(&gone).0.heads.len(), 0);
    }

    /// Goal: hostile bytes make no list, and take no memory.
    #[test]
    fn hostile_bytes() {
        let mut many = bytes(&[Entry::Head(
            Head::of(VolumeId(1)),
            Kept { objects: [1; 4], clones: Vec::new(), read_again: false },
        )]);
        many[16..20].copy_from_slice(&u32::MAX.to_le_bytes());
        many.extend(bytes(&[Entry::End(Txg(1), (1, 2))]));
        for bytes in [&many[..], &[0xff; 64], &[0; 64], &[]] {
            let (state, end, entries) = State::parse(bytes);
            assert_eq!((state.heads.len(), end, entries), (0, 0, 0));
        }
    }

    /// Goal: an object is changed if it is there or in a range of free numbers.
    #[test]
    fn changed_objects() {
        let changed = Changed { used: HashSet::from([5]), free: vec![(8, 9), (20, 20)] };
        let all: Vec<u64> = (0..25).filter(|object| changed.has(*object)).collect();
        assert_eq!(all, [5, 8, 9, 20]);
    }
}
