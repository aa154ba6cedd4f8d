//! Statistics of a fat ZAP, for `zdb`.

use super::{Result, Shape, Zap};
use ondisk::bytes::le64;
use ondisk::zap::{Leaf, PtrTable};

/// Buckets of each histogram (`ZAP_HISTOGRAM_SIZE`).
pub const HISTOGRAM: usize = 10;
/// Bytes of a name or value that one chunk holds (`ZAP_LEAF_ARRAY_BYTES`).
const ARRAY_BYTES: usize = 21;
/// Bytes of a chunk in the fill of a leaf. Only one byte of its header counts.
const CHUNK_COUNTED: usize = ARRAY_BYTES + 1;

/// Statistics of a fat ZAP (`zap_stats_t`). The last bucket of each histogram also counts
/// everything larger.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FatStats {
    /// Entries of the pointer table.
    pub table_len: u64,
    /// First block of the pointer table; 0 if it is in the header.
    pub table_block: u64,
    /// Blocks of the pointer table.
    pub table_blocks: u64,
    /// log2 of its entries.
    pub table_shift: u32,
    /// First block of the table that it grows into (`zt_nextblk`).
    pub next_table: u64,
    /// Blocks that were copied there.
    pub blocks_copied: u64,
    /// Entries.
    pub entries: u64,
    /// Leaves.
    pub leafs: u64,
    /// Blocks.
    pub blocks: u64,
    /// First word of the header.
    pub block_type: u64,
    /// Its magic number.
    pub magic: u64,
    /// Salt of the hashes.
    pub salt: u64,
    /// Leaves by log2 of the pointers to them.
    pub leafs_with_2n_pointers: [u64; HISTOGRAM],
    /// Leaves by entries, in steps of five.
    pub blocks_with_n5_entries: [u64; HISTOGRAM],
    /// Leaves by their fill, in tenths.
    pub blocks_n_tenths_full: [u64; HISTOGRAM],
    /// Entries by their number of chunks.
    pub entries_using_n_chunks: [u64; HISTOGRAM],
    /// Hash buckets of leaves by their entries.
    pub buckets_with_n_entries: [u64; HISTOGRAM],
}

fn count(histogram: &mut [u64; HISTOGRAM], n: usize) {
    histogram[n.min(HISTOGRAM - 1)] += 1;
}

impl Zap {
    /// Statistics of a fat ZAP (`zap_get_stats`). `None` for a micro ZAP.
    ///
    /// # Errors
    /// The errors of [reading](crate::Error#reading).
    pub fn fat_stats(&self) -> Result<Option<FatStats>> {
        let v = self.see();
        let Shape::Fat(h) = &v.shape else { return Ok(None) };
        let head = self.head(&v)?;
        let (table_block, table_blocks) = match h.table {
            PtrTable::Embedded => (0, 0),
            PtrTable::External { start, blocks } => (start, blocks),
        };
        let mut stats = FatStats {
            table_len: 1 << h.table_shift,
            table_block,
            table_blocks,
            table_shift: h.table_shift,
            next_table: h.next_table,
            blocks_copied: h.blocks_copied,
            entries: h.num_entries,
            leafs: h.num_leafs,
            blocks: h.free_block,
            block_type: le64(&head, 0),
            magic: le64(&head, 8),
            salt: h.salt,
            ..FatStats::default()
        };
        let mut hash = Some(0);
        while let Some(at) = hash {
            let block = self.leaf_block(&v, h, at)?.1;
            let leaf = Leaf::parse(&block).map_err(|e| self.corrupt(e))?;
            if !leaf.covers(at) {
                let why = "the pointer table names a leaf of other hashes";
                return Err(self.corrupt(ondisk::Corrupt::Shape { what: "fat ZAP", why }));
            }
            self.leaf_stats(&leaf, &block, h.table_shift, &mut stats)?;
            hash = leaf.next_hash();
        }
        Ok(Some(stats))
    }

    fn leaf_stats(
        &self,
        leaf: &Leaf<'_>,
        block: &[u8],
        table_shift: u32,
        stats: &mut FatStats,
    ) -> Result<()> {
        let size = block.len();
        let pointers = table_shift.saturating_sub(leaf.prefix_len);
        count(&mut stats.leafs_with_2n_pointers, pointers as usize);
        count(&mut stats.blocks_with_n5_entries, usize::from(leaf.num_entries) / 5);
        let free = usize::from(u16::from_le_bytes([block[28], block[29]]));
        count(&mut stats.blocks_n_tenths_full, size.saturating_sub(free * CHUNK_COUNTED) * 10 / size);
        let buckets = size >> 5;
        let mut filled = vec![0usize; buckets];
        // The bits of a hash that choose the bucket lie after those that chose the leaf.
        let shift = 64 - buckets.trailing_zeros() - leaf.prefix_len;
        for e in leaf.entries().map_err(|e| self.corrupt(e))? {
            let value = usize::from(e.num_ints) * usize::from(e.int_size);
            let chunks = 1 + usize::from(e.name_ints).div_ceil(ARRAY_BYTES) + value.div_ceil(ARRAY_BYTES);
            count(&mut stats.entries_using_n_chunks, chunks);
            filled[(e.hash >> shift) as usize & (buckets - 1)] += 1;
        }
        filled.into_iter().for_each(|n| count(&mut stats.buckets_with_n_entries, n));
        Ok(())
    }
}
