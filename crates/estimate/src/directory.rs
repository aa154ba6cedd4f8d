//! Directories: the ZAPs that hold their names.
//!
//! # Theory
//! Up to 2,047 short names are a micro ZAP. It is made and compressed as it would be in a pool.
//!
//! More or longer names are a fat ZAP. Its leaves follow from the hashes of the names alone: a leaf
//! splits if its names don't fit, by one more bit of the hash. A directory of very many names keeps
//! only those whose hashes begin with some zero bits, and its leaves stand for all.

use crate::pointers::{PER_BLOCK, Pointers};
use crate::rule::{self, Space};
use ondisk::zap::{
    FatHeader, HashBits, LeafMut, MICRO_NAME_MAX, MicroZapMut, NewEntry, PtrTable, hash_bytes,
};

/// Most names of a micro ZAP: 128 KiB in slots of 64 bytes, one of which is its header.
const MICRO_MAX: u64 = 2047;
/// Bytes of a block of a fat ZAP.
const FAT_BLOCK: usize = 16 << 10;
/// Bytes of all names that are kept.
const KEPT_MAX: usize = 4 << 20;
/// Start of the hashes.
const SALT: u64 = 0x5a17_0000_9e37_79b1;

/// The names of a directory.
#[derive(Debug, Default)]
pub(crate) struct Names {
    count: u64,
    long: bool,
    /// Hashes with names.
    kept: Vec<(u64, Box<[u8]>)>,
    bytes: usize,
    /// Only names whose hashes begin with so many zero bits are kept.
    zeros: u32,
}

/// What a directory takes, its dnode aside.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Taken {
    pub(crate) space: Space,
    /// Bytes of a block.
    pub(crate) block: u64,
    pub(crate) blocks: u64,
}

impl Names {
    pub(crate) fn add(&mut self, name: &[u8]) {
        self.count += 1;
        self.long |= name.len() > MICRO_NAME_MAX;
        let hash = hash_bytes(SALT, name, HashBits::Bits28);
        if hash.leading_zeros() < self.zeros {
            return;
        }
        self.bytes += name.len();
        self.kept.push((hash, name.into()));
        while self.bytes > KEPT_MAX {
            self.zeros += 1;
            self.kept.retain(|(hash, _)| hash.leading_zeros() >= self.zeros);
            self.bytes = self.kept.iter().map(|(_, name)| name.len()).sum();
        }
    }

    pub(crate) fn len(&self) -> u64 {
        self.count
    }

    pub(crate) fn measure(self, sector: u64, scratch: &mut Vec<u8>) -> Taken {
        match self.long || self.count > MICRO_MAX {
            true => self.fat(sector, scratch),
            false => self.micro(sector, scratch),
        }
    }

    fn micro(self, sector: u64, scratch: &mut Vec<u8>) -> Taken {
        let size = ((self.count as usize + 1) * 64).next_multiple_of(512);
        let mut block = vec![0; size];
        let mut zap = MicroZapMut::init(&mut block, SALT, 0);
        for (slot, (_, name)) in self.kept.iter().enumerate() {
            zap.set(slot, name, entry(slot), 0);
        }
        let mut space = Space::default();
        if let Some(psize) = rule::metadata(sector, &block, true, scratch) {
            space.metadata(sector, psize);
        }
        Taken { space, block: size as u64, blocks: 1 }
    }

    fn fat(mut self, sector: u64, scratch: &mut Vec<u8>) -> Taken {
        self.kept.sort_unstable();
        let mut leaves = Leaves { deepest: self.zeros, number: 0, space: Space::default(), sector, scratch };
        // Leaves of which only one is kept, and those that are kept of each.
        leaves.split(&self.kept, self.zeros);
        let (number, deepest) = (leaves.number << self.zeros, leaves.deepest);
        let mut space = leaves.space;
        let scale = |n: u64| n << self.zeros;
        space = Space { asize: scale(space.asize), psize: scale(space.psize), logical: scale(space.logical) };
        let embedded = FAT_BLOCK.ilog2() - 4;
        // The pointer table is in the header, or in blocks of its own.
        let tables = if deepest <= embedded { 0 } else { 1 << (deepest - embedded - 1) };
        for table in 0..=tables {
            let psize = rule::metadata(sector, &header(number, tables, table), false, scratch).unwrap_or(0);
            space.metadata(sector, psize);
        }
        let blocks = 1 + tables + number;
        // Pointers to metadata have two places.
        space.add(Pointers::new(sector, FAT_BLOCK as u64, true).whole(blocks));
        Taken { space, block: FAT_BLOCK as u64, blocks }
    }
}

/// The value of an entry: the object of a file, and its type.
fn entry(index: usize) -> u64 {
    8 << 60 | (index as u64 + 256)
}

/// The header of a fat ZAP of `leaves` leaves, or one of its tables.
fn header(leaves: u64, tables: u64, table: u64) -> Vec<u8> {
    let mut block = vec![0; FAT_BLOCK];
    let half = FAT_BLOCK / 2;
    let at = if table == 0 { half } else { 0 };
    if table == 0 {
        let h = FatHeader {
            block_shift: FAT_BLOCK.ilog2(),
            table: PtrTable::Embedded,
            table_shift: FAT_BLOCK.ilog2() - 4,
            next_table: 0,
            blocks_copied: 0,
            free_block: leaves + 1,
            num_leafs: leaves,
            num_entries: leaves * 200,
            salt: SALT,
            normflags: 0,
            flags: ondisk::zap::ZapFlags::default(),
        };
        h.write(&mut block);
    }
    if table > 0 || tables == 0 {
        let slots = ((block.len() - at) / 8) as u64;
        // Leaves split in the order of their hashes, which look random.
        let each = (slots * tables.max(1) / leaves.max(1)).max(1);
        for (i, slot) in block[at..].as_chunks_mut::<8>().0.iter_mut().enumerate() {
            let leaf = (i as u64 / each + table * slots / each).wrapping_mul(0x9e37_79b1) % leaves.max(1);
            *slot = (leaf + 1).to_le_bytes();
        }
    }
    block
}

/// Makes leaves of sorted names.
struct Leaves<'a> {
    /// Bits of the hash that tell the leaves apart.
    deepest: u32,
    number: u64,
    space: Space,
    sector: u64,
    scratch: &'a mut Vec<u8>,
}

impl Leaves<'_> {
    /// The leaves of names whose hashes have the same first `bits` bits.
    fn split(&mut self, names: &[(u64, Box<[u8]>)], bits: u32) {
        let mut todo = vec![(names, bits)];
        while let Some((names, bits)) = todo.pop() {
            let mut block = vec![0; FAT_BLOCK];
            if !self.fill(names, bits, &mut block) && bits < HashBits::Bits28.get() {
                let at = names.partition_point(|(hash, _)| hash & 1 << (63 - bits) == 0);
                todo.extend([(&names[at..], bits + 1), (&names[..at], bits + 1)]);
                continue;
            }
            self.deepest = self.deepest.max(bits);
            self.number += 1;
            let psize = rule::metadata(self.sector, &block, false, self.scratch).unwrap_or(0);
            self.space.metadata(self.sector, psize);
        }
    }

    /// Puts names into a leaf. False if they don't fit.
    fn fill(&self, names: &[(u64, Box<[u8]>)], bits: u32, block: &mut [u8]) -> bool {
        let new = |name: &[u8]| [name, &[0]].concat();
        let mut leaf =
            LeafMut::init(block, names.first().map_or(0, |(hash, _)| hash >> (63 - bits) >> 1), bits, false);
        names.iter().enumerate().all(|(i, (hash, name))| {
            let (name, value) = (new(name), entry(i).to_be_bytes());
            let e = NewEntry { hash: *hash, name: &name, name_int: 1, int_size: 8, value: &value };
            leaf.insert(&e, 0).unwrap_or(false)
        })
    }
}

const _: () = assert!(PER_BLOCK == 1024 && MICRO_MAX == (128 << 10) / 64 - 1);
