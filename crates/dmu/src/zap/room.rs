//! How many entries with similar hashes a ZAP holds.
//!
//! # Theory
//! The hash is linear: whether two names of equal length collide doesn't depend on the salt. So a
//! user can compute names that collide in every ZAP. Entries whose hashes begin alike share a leaf
//! until the pointer table is large enough to tell them apart. Two limits follow:
//!
//! * **Table.** The pointer table of a ZAP of names grows to 2^18 pointers, or to 64 for each
//!   entry. Random names need a small part of that.
//! * **Leaf.** Entries that such a table can't tell apart must fit into one leaf. An entry that
//!   doesn't fit is refused with [`Error::ZapFull`], and the ZAP stays as it was.
//!
//! A sync can't refuse an entry. So a check asks [`Zap::has_room`] before. It leaves a quarter of
//! the leaf and one bit of the table to the entries that a sync makes on its own.
//!
//! ZAPs whose keys are words have no names of users. Their table grows with the bits of the hash.
//!
//! [`Error::ZapFull`]: crate::Error::ZapFull

use super::change::{FAT_BLOCK, NAME_MAX};
use super::{Match, Shape, Value, View, Wanted, Zap};
use crate::Result;
use ondisk::zap::{FatHeader, HashBits, Leaf, LeafEntry, LeafMut, NewEntry, ZAP_MAXVALUELEN, hash_bytes};
use std::collections::BTreeMap;

/// The bits of the hash that index a pointer table of the size that each ZAP may have: 2 MiB.
pub(super) const FLOOR_BITS: u32 = 18;
/// Pointers for each entry in a larger table.
const POINTERS_PER_ENTRY: u64 = 64;
/// The most chunks of a leaf that an entry of a micro ZAP takes.
pub(super) const MICRO_CHUNKS: usize = 5;

/// An entry that is going to be added to a ZAP, or updated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Add<'a> {
    /// Its name.
    pub name: &'a [u8],
    /// Bytes of its value.
    pub value_len: usize,
}

impl<'a> Add<'a> {
    /// An entry with this value.
    pub fn new(name: &'a [u8], value: &Value) -> Self {
        Self { name, value_len: value.len() * usize::from(value.int_size()) }
    }

    fn chunks(&self) -> usize {
        let name = [self.name, &[0]].concat();
        let value = vec![0; self.value_len];
        NewEntry { hash: 0, name: &name, name_int: 1, int_size: 1, value: &value }.chunks()
    }

    fn is_valid(&self) -> bool {
        (1..NAME_MAX).contains(&self.name.len()) && self.value_len <= ZAP_MAXVALUELEN
    }
}

/// True if the first `bits` bits of two hashes are equal.
pub(super) fn alike(a: u64, b: u64, bits: u32) -> bool {
    (a ^ b).leading_zeros() >= bits
}

/// The bits of the hash that can tell entries of a ZAP apart.
pub(super) fn most_bits(h: &FatHeader) -> u32 {
    let all = h.hash_bits().get() - 2;
    if h.flags.uint64_key() {
        return all;
    }
    let pointers = h.num_entries.saturating_mul(POINTERS_PER_ENTRY).max(1 << FLOOR_BITS);
    // A table that is there is used.
    all.min(pointers.ilog2()).max(h.table_shift)
}

/// The chunks of the entries of a leaf whose hashes begin like `hash`, without those of `but`.
pub(super) fn chunks_alike(
    leaf: &Leaf<'_>,
    (hash, bits): (u64, u32),
    name_int: usize,
    but: Option<&LeafEntry>,
) -> ondisk::Result<usize> {
    let entries = leaf.entries()?;
    let counted = entries.iter().filter(|e| alike(e.hash, hash, bits) && Some(*e) != but);
    Ok(counted.map(|e| e.chunks(name_int)).sum())
}

/// The chunks of a leaf.
pub(super) fn most_chunks(block_size: usize) -> usize {
    LeafMut::chunks_of(block_size)
}

/// The chunks of a leaf that entries with names of users may take.
fn users_chunks(block_size: usize) -> usize {
    most_chunks(block_size) / 4 * 3
}

/// An entry of a leaf to come: its hash, its chunks, and whether it is new.
type Planned = (u64, usize, bool);

/// True if each group of entries that are alike fits into a leaf, and takes at most `most` chunks
/// if some of it are new.
fn fits(entries: impl Iterator<Item = Planned>, bits: u32, most: usize) -> bool {
    let mut sorted: Vec<_> = entries.collect();
    sorted.sort_unstable();
    sorted.chunk_by(|a, b| alike(a.0, b.0, bits)).all(|group| {
        let limit = if group.iter().any(|e| e.2) { most } else { most_chunks(FAT_BLOCK as usize) };
        group.iter().map(|e| e.1).sum::<usize>() <= limit
    })
}

/// True if a new ZAP can take these entries (see [`Zap::has_room`]).
///
/// The salt of a ZAP that doesn't exist isn't known. So this finds names of equal length that
/// collide; those of different lengths collide in few ZAPs.
pub fn new_has_room(adds: &[Add<'_>]) -> bool {
    let mut lengths: Vec<usize> = adds.iter().map(|add| add.name.len()).collect();
    lengths.sort_unstable();
    lengths.dedup();
    adds.iter().all(Add::is_valid)
        && lengths.into_iter().all(|len| {
            let same = adds.iter().filter(|add| add.name.len() == len);
            let hashed = same.map(|add| (hash_bytes(0, add.name, HashBits::Bits28), add.chunks(), true));
            fits(hashed, FLOOR_BITS - 1, users_chunks(FAT_BLOCK as usize))
        })
}

impl Zap {
    /// Whether entries with names that users choose can be added together.
    ///
    /// False if their names collide with each other, or with those of entries that are there, so
    /// that a leaf could become full. False also if a name or value is too long. An addition that
    /// follows doesn't fail with [`Error::ZapFull`].
    ///
    /// [`Error::ZapFull`]: crate::Error::ZapFull
    ///
    /// # Errors
    /// The errors of [reading](crate::Error#reading).
    pub fn has_room(&self, adds: &[Add<'_>]) -> Result<bool> {
        let v = self.see();
        let block = v.fat_header().map_or(FAT_BLOCK as usize, |h| 1 << h.block_shift);
        Ok(adds.iter().all(Add::is_valid) && self.has_room_in(&v, adds, (1, users_chunks(block)))?)
    }

    /// The same for names that the engine chooses: they may use the space that users leave.
    ///
    /// # Errors
    /// The errors of [reading](crate::Error#reading).
    pub fn can_add(&self, adds: &[Add<'_>]) -> Result<bool> {
        let v = self.see();
        let block = v.fat_header().map_or(FAT_BLOCK as usize, |h| 1 << h.block_shift);
        self.has_room_in(&v, adds, (0, most_chunks(block)))
    }

    /// The same for names of every length, with these limits: bits of the table to leave, and the
    /// chunks that entries may take which the table can't tell apart.
    pub(super) fn has_room_in(
        &self,
        v: &View,
        adds: &[Add<'_>],
        (spare, most): (u32, usize),
    ) -> Result<bool> {
        let names: BTreeMap<&[u8], usize> = adds.iter().map(|add| (add.name, add.chunks())).collect();
        let mut new: Vec<Planned> =
            names.iter().map(|(name, chunks)| (v.hash_name(name), *chunks, true)).collect();
        new.sort_unstable();
        match &v.shape {
            Shape::Micro { .. } => {
                // Most often a bound is enough, and no name must be hashed.
                let bits = FLOOR_BITS - spare;
                let there = self.micro_index(v)?.iter().map(|s| (s.hash, MICRO_CHUNKS, false));
                if fits(there.chain(new.iter().copied()), bits, most) {
                    return Ok(true);
                }
                for (name, ..) in self.micro_entries(v)? {
                    if !names.contains_key(&name[..]) {
                        let add = Add { name: &name, value_len: 8 };
                        new.push((v.hash_name(&name), add.chunks(), false));
                    }
                }
                Ok(fits(new.into_iter(), bits, most))
            }
            Shape::Fat(h) => {
                let bits = (most_bits(h) - spare).max(h.table_shift);
                for add in adds {
                    let hash = v.hash_name(add.name);
                    let block = self.leaf_block(v, h, hash)?.1;
                    let leaf = Leaf::parse(&block).map_err(|e| self.corrupt(e))?;
                    let wanted = Wanted::new(add.name, Match::Exact, v.norm);
                    let old = self.find_in_leaf(&leaf, hash, &wanted)?.map(|(e, _)| e);
                    let there = chunks_alike(&leaf, (hash, bits), 1, old.as_ref());
                    let there = there.map_err(|e| self.corrupt(e))?;
                    let from = new.partition_point(|e| e.0 < hash && !alike(e.0, hash, bits));
                    let with_it = new[from..].iter().take_while(|e| alike(e.0, hash, bits));
                    if there + with_it.map(|e| e.1).sum::<usize>() > most {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
        }
    }
}
