//! Indirect blocks: how well block pointers compress.
//!
//! # Theory
//! A pointer differs from its neighbour in the place of its block, in its checksum, and in its size
//! if blocks are compressed. The words of a checksum are sums (Fletcher-4), so the first ones have
//! fewer random bits the smaller a block is. Blocks of such pointers are made and compressed.

use crate::rule::{self, Space};
use ondisk::blkptr::{BLKPTR_SIZE, Body, Dva, Stored};
use ondisk::{
    Asize, Blkptr, ByteOrder, ChecksumKind, CompressKind, DmuType, Level, Lsize, Offset, Psize, Txg, VdevId,
};

/// Pointers of an indirect block of 128 KiB.
pub(crate) const PER_BLOCK: u64 = 1024;

/// A sequence of numbers that look random and are the same each time (SplitMix64).
#[derive(Debug, Clone)]
pub(crate) struct Noise(pub(crate) u64);

impl Noise {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }
}

/// A pointer to a stored block of `lsize` bytes that begins at `offset`, and the end of the block.
pub(crate) fn pointer(
    kind: DmuType,
    lsize: u64,
    psize: u64,
    offset: u64,
    noise: &mut Noise,
) -> (Blkptr, u64) {
    let words = (psize / 4).max(1).ilog2();
    let sum = [0, 1, 2, 3].map(|n| noise.next() >> 64u32.saturating_sub(32 + (n + 1) * words - n));
    let asize = psize.next_multiple_of(512);
    let dva = Dva { vdev: VdevId(0), offset: Offset(offset), asize: Asize(asize), gang: false };
    let stored = Stored {
        dvas: [Some(dva), None, None],
        psize: Psize(psize),
        compress: if psize < lsize { CompressKind::Lz4 } else { CompressKind::Off },
        checksum: ChecksumKind::Fletcher4,
        sum,
        phys_birth: Txg(0),
        fill: 1,
        dedup: false,
        crypt: false,
        crypt_params: ondisk::blkptr::CryptParams { salt: [0; 8], iv: [0; 12] },
    };
    let body = Body::Stored(stored);
    let (level, lsize, birth) = (Level(0), Lsize(lsize), Txg(20));
    (Blkptr { kind, level, lsize, birth, order: ByteOrder::Little, body }, offset + asize)
}

/// The sizes of indirect blocks over blocks of one size.
#[derive(Debug)]
pub(crate) struct Pointers {
    sector: u64,
    /// A whole indirect block.
    block: Vec<u8>,
    /// Sizes by the number of pointers, as far as they are known.
    known: Vec<Option<u64>>,
    scratch: Vec<u8>,
}

impl Pointers {
    /// Pointers to blocks of `lsize` bytes, which have different sizes if they are compressed.
    pub(crate) fn new(sector: u64, lsize: u64, compressed: bool) -> Pointers {
        let (mut noise, mut offset, mut block) = (Noise(lsize), 1 << 24, Vec::new());
        for _ in 0..PER_BLOCK {
            let psize = match compressed {
                true => (lsize / 4 + noise.next() % (lsize / 2)).next_multiple_of(sector).min(lsize),
                false => lsize,
            };
            let (bp, end) = pointer(DmuType::PLAIN_FILE_CONTENTS, lsize, psize, offset, &mut noise);
            block.extend_from_slice(&bp.encode());
            offset = end;
        }
        let known = vec![None; PER_BLOCK as usize + 1];
        Pointers { sector, block, known, scratch: Vec::new() }
    }

    /// Bytes of an indirect block with `count` pointers, as stored; 0 for a hole.
    fn size(&mut self, count: u64) -> u64 {
        let count = count.min(PER_BLOCK) as usize;
        if let Some(size) = self.known[count] {
            return size;
        }
        let mut block = vec![0; self.block.len()];
        block[..count * BLKPTR_SIZE].copy_from_slice(&self.block[..count * BLKPTR_SIZE]);
        let size = rule::metadata(self.sector, &block, false, &mut self.scratch).unwrap_or(0);
        self.known[count] = Some(size);
        size
    }

    /// The indirect blocks of an object whose lowest ones have these numbers of pointers.
    pub(crate) fn tree(&mut self, lowest: impl Iterator<Item = u64>) -> Space {
        let (mut space, mut blocks) = (Space::default(), 0);
        for count in lowest.filter(|count| *count > 0) {
            space.metadata(self.sector, self.size(count));
            blocks += 1;
        }
        while blocks > 1 {
            let full = blocks / PER_BLOCK;
            let full_size = if full > 0 { self.size(PER_BLOCK) } else { 0 };
            for _ in 0..full {
                space.metadata(self.sector, full_size);
            }
            if blocks % PER_BLOCK > 0 {
                let size = self.size(blocks % PER_BLOCK);
                space.metadata(self.sector, size);
            }
            blocks = blocks.div_ceil(PER_BLOCK);
        }
        space
    }

    /// The indirect blocks of an object with `blocks` blocks, none of them a hole.
    pub(crate) fn whole(&mut self, blocks: u64) -> Space {
        if blocks <= 1 {
            return Space::default();
        }
        let (full, rest) = (blocks / PER_BLOCK, blocks % PER_BLOCK);
        self.tree((0..full).map(|_| PER_BLOCK).chain([rest]))
    }
}
