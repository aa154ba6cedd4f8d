//! Leaf blocks of fat ZAPs (`zap_leaf_phys_t`).

use super::{ZAP_MAXNAMELEN, ZAP_MAXVALUELEN, ZBT_LEAF};
use crate::bytes::le64;
use crate::{Corrupt, Result, SPA_MAXBLOCKSIZE};

const WHAT: &str = "ZAP leaf";
pub(super) const ZAP_LEAF_MAGIC: u32 = 0x2AB_1EAF;
/// End of a chain of chunks.
pub(super) const CHAIN_END: u16 = 0xffff;
pub(super) const HEADER_SIZE: usize = 48;
/// Size of a chunk (`ZAP_LEAF_CHUNKSIZE`).
pub const CHUNK_SIZE: usize = 24;
/// Bytes of a name or value that one chunk holds (`ZAP_LEAF_ARRAY_BYTES`).
pub(super) const ARRAY_BYTES: usize = CHUNK_SIZE - 3;

/// Chunk of an entry (`ZAP_CHUNK_ENTRY`).
pub(crate) const CHUNK_ENTRY: u8 = 252;
/// Chunk of a name or value (`ZAP_CHUNK_ARRAY`).
pub(crate) const CHUNK_ARRAY: u8 = 251;
/// Free chunk (`ZAP_CHUNK_FREE`).
pub(crate) const CHUNK_FREE: u8 = 253;

/// The offset of the first chunk, and the number of chunks, in a leaf of `size` bytes (a power of
/// two).
pub(crate) fn geometry(size: usize) -> (usize, usize) {
    let hash_bytes = (size >> 5) * 2;
    (HEADER_SIZE + hash_bytes, (size - hash_bytes) / CHUNK_SIZE - 2)
}

/// A view of a leaf block.
///
/// ```text
/// 0 type (8)  8 unused (8)  16 prefix (8)  24 magic (4)  28 free chunks (2)  30 entries (2)
/// 32 prefix length (2)  34 free list (2)  36 flags (1)  37..48 unused
/// 48 hash table: size/32 chunk numbers (2 each)   then chunks of 24 bytes
/// entry chunk: 0 type  1 value's integer size  2 next (2)  4 name chunk (2)  6 name's integers (2)
///              8 value chunk (2)  10 value's integers (2)  12 cd (4)  16 hash (8)
/// array chunk: 0 type  1 bytes (21; integers are big-endian)  22 next (2)
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Leaf<'a> {
    buf: &'a [u8],
    chunks_at: usize,
    chunks: usize,
    /// The high bits that all hashes in this leaf have in common (`lh_prefix`).
    pub prefix: u64,
    /// Number of these bits (`lh_prefix_len`).
    pub prefix_len: u32,
    /// Number of entries according to the header (`lh_nentries`).
    pub num_entries: u16,
    /// True if chains are sorted by collision differentiator (`ZLF_ENTRIES_CDSORTED`).
    pub cd_sorted: bool,
}

/// One entry of a leaf (`zap_leaf_entry`).
///
/// [`Leaf::name`], [`Leaf::words_key`] and [`Leaf::value`] read its name and value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeafEntry {
    /// Hash of the name (`le_hash`).
    pub hash: u64,
    /// Collision differentiator, by which names with the same hash differ (`le_cd`).
    pub cd: u32,
    /// Bytes of one of the value's integers: 1, 2, 4 or 8 (`le_value_intlen`).
    pub int_size: u8,
    /// Number of the value's integers (`le_value_numints`).
    pub num_ints: u16,
    /// Number of the name's integers: bytes with the NUL, or words (`le_name_numints`).
    pub name_ints: u16,
    /// Number of the entry's own chunk.
    pub(super) chunk: u16,
    pub(super) name_chunk: u16,
    pub(super) value_chunk: u16,
    next: u16,
}

impl LeafEntry {
    /// Number of chunks that the entry takes; `name_int` is the size of the name's integers.
    pub fn chunks(&self, name_int: usize) -> usize {
        let name = usize::from(self.name_ints) * name_int;
        let value = usize::from(self.num_ints) * usize::from(self.int_size);
        1 + name.div_ceil(ARRAY_BYTES) + value.div_ceil(ARRAY_BYTES)
    }
}

impl<'a> Leaf<'a> {
    /// Decodes the leaf in `buf`, a whole block.
    ///
    /// # Errors
    /// * [`Corrupt::Magic`]: one of the two magic numbers is wrong.
    /// * [`Corrupt::Range`]: one of these values is impossible:
    ///   * the block size, which is not a power of two from 512 bytes to 16 MiB
    ///   * the prefix or its length
    ///   * the number of entries
    pub fn parse(buf: &'a [u8]) -> Result<Self> {
        let size = buf.len();
        if size < 512 || !size.is_power_of_two() || size as u64 > SPA_MAXBLOCKSIZE {
            return Err(Corrupt::Range { what: WHAT, field: "block size", value: size as u64 });
        }
        if le64(buf, 0) != ZBT_LEAF {
            return Err(Corrupt::Magic { what: WHAT, found: le64(buf, 0) });
        }
        let magic = u32::from_le_bytes([buf[24], buf[25], buf[26], buf[27]]);
        if magic != ZAP_LEAF_MAGIC {
            return Err(Corrupt::Magic { what: WHAT, found: magic.into() });
        }
        let (chunks_at, chunks) = geometry(size);
        let prefix = le64(buf, 16);
        let prefix_len = u32::from(u16::from_le_bytes([buf[32], buf[33]]));
        let hash_shift = size.trailing_zeros() - 5;
        if prefix_len + hash_shift > 64 {
            return Err(Corrupt::Range { what: WHAT, field: "prefix length", value: prefix_len.into() });
        }
        if prefix >> prefix_len != 0 {
            return Err(Corrupt::Range { what: WHAT, field: "prefix", value: prefix });
        }
        let num_entries = u16::from_le_bytes([buf[30], buf[31]]);
        if usize::from(num_entries) > chunks {
            return Err(Corrupt::Range { what: WHAT, field: "entries", value: num_entries.into() });
        }
        Ok(Self { buf, chunks_at, chunks, prefix, prefix_len, num_entries, cd_sorted: buf[36] & 1 != 0 })
    }

    /// True if names with this hash belong into this leaf.
    pub fn covers(&self, hash: u64) -> bool {
        self.prefix_len == 0 || hash >> (64 - self.prefix_len) == self.prefix
    }

    /// The first hash after those of this leaf; `None` for the last leaf.
    pub fn next_hash(&self) -> Option<u64> {
        if self.prefix_len == 0 {
            return None;
        }
        (self.prefix + 1).checked_mul(1 << (64 - self.prefix_len)).filter(|&h| h != 0)
    }

    fn buckets(&self) -> usize {
        self.buf.len() >> 5
    }

    fn bucket_of(&self, hash: u64) -> usize {
        let shift = self.buf.len().trailing_zeros() - 5;
        ((hash >> (64 - shift - self.prefix_len)) as usize) & (self.buckets() - 1)
    }

    fn u16_at(&self, at: usize) -> u16 {
        u16::from_le_bytes([self.buf[at], self.buf[at + 1]])
    }

    fn chunk(&self, n: u16, kind: u8) -> Result<&'a [u8]> {
        if usize::from(n) >= self.chunks {
            return Err(Corrupt::Range { what: WHAT, field: "chunk number", value: n.into() });
        }
        let c = &self.buf[self.chunks_at + usize::from(n) * CHUNK_SIZE..][..CHUNK_SIZE];
        if c[0] != kind {
            return Err(Corrupt::Range { what: WHAT, field: "chunk type", value: c[0].into() });
        }
        Ok(c)
    }

    fn entry(&self, n: u16) -> Result<LeafEntry> {
        let c = self.chunk(n, CHUNK_ENTRY)?;
        let w = |i: usize| u16::from_le_bytes([c[i], c[i + 1]]);
        let int_size = c[1];
        if !matches!(int_size, 1 | 2 | 4 | 8) {
            return Err(Corrupt::Range { what: WHAT, field: "integer size", value: int_size.into() });
        }
        let num_ints = w(10);
        if usize::from(num_ints) * usize::from(int_size) > ZAP_MAXVALUELEN {
            return Err(Corrupt::Range { what: WHAT, field: "value length", value: num_ints.into() });
        }
        let hash = le64(c, 16);
        if !self.covers(hash) {
            return Err(Corrupt::Shape { what: WHAT, why: "an entry's hash belongs into another leaf" });
        }
        Ok(LeafEntry {
            hash,
            cd: u32::from_le_bytes([c[12], c[13], c[14], c[15]]),
            int_size,
            num_ints,
            name_ints: w(6),
            chunk: n,
            name_chunk: w(4),
            value_chunk: w(8),
            next: w(2),
        })
    }

    /// Follows the chain of one bucket. `left` bounds the number of steps, so that a cyclic chain
    /// ends.
    fn walk(
        &self,
        bucket: usize,
        left: &mut usize,
        mut f: impl FnMut(LeafEntry) -> Result<()>,
    ) -> Result<()> {
        let mut at = self.u16_at(HEADER_SIZE + 2 * bucket);
        while at != CHAIN_END {
            *left = left
                .checked_sub(1)
                .ok_or(Corrupt::Shape { what: WHAT, why: "a chain of entries runs in a circle" })?;
            let e = self.entry(at)?;
            if self.bucket_of(e.hash) != bucket {
                return Err(Corrupt::Shape { what: WHAT, why: "an entry is in another hash's chain" });
            }
            f(e)?;
            at = e.next;
        }
        Ok(())
    }

    /// The entries with exactly this hash, in the order of their chain.
    ///
    /// # Errors
    /// * [`Corrupt::Range`]: an entry has an impossible chunk number, chunk type, integer size or
    ///   value length.
    /// * [`Corrupt::Shape`]: the leaf is not for this hash, the chain is cyclic, or an entry is in
    ///   the wrong chain or leaf.
    pub fn entries_of(&self, hash: u64) -> Result<Vec<LeafEntry>> {
        let mut found = Vec::new();
        if !self.covers(hash) {
            return Err(Corrupt::Shape { what: WHAT, why: "the pointer table names a leaf of other hashes" });
        }
        self.walk(self.bucket_of(hash), &mut self.chunks.clone(), |e| {
            if e.hash == hash {
                found.push(e);
            }
            Ok(())
        })?;
        Ok(found)
    }

    /// All entries, sorted by hash and collision differentiator, which is the order of OpenZFS's
    /// cursors.
    ///
    /// # Errors
    /// * [`Corrupt::Range`]: an entry has an impossible chunk number, chunk type, integer size or
    ///   value length.
    /// * [`Corrupt::Shape`]: a chain is cyclic, or an entry is in the wrong chain or leaf.
    pub fn entries(&self) -> Result<Vec<LeafEntry>> {
        let mut all = Vec::with_capacity(self.num_entries.into());
        let mut left = self.chunks;
        for b in 0..self.buckets() {
            self.walk(b, &mut left, |e| {
                all.push(e);
                Ok(())
            })?;
        }
        all.sort_by_key(|e| (e.hash, e.cd));
        Ok(all)
    }

    /// The first `len` bytes of the array that starts at chunk `at`.
    pub(super) fn array(&self, mut at: u16, len: usize) -> Result<Vec<u8>> {
        if len > self.chunks * ARRAY_BYTES {
            return Err(Corrupt::Range { what: WHAT, field: "array length", value: len as u64 });
        }
        let mut out = Vec::with_capacity(len);
        while out.len() < len {
            let c = self.chunk(at, CHUNK_ARRAY)?;
            let n = ARRAY_BYTES.min(len - out.len());
            out.extend_from_slice(&c[1..1 + n]);
            at = u16::from_le_bytes([c[22], c[23]]);
        }
        Ok(out)
    }

    /// The name of `e`, without its NUL.
    ///
    /// # Errors
    /// * [`Corrupt::Range`]: the name has an impossible length, chunk number or chunk type.
    /// * [`Corrupt::Shape`]: the name does not end with a NUL, or has another NUL.
    pub fn name(&self, e: &LeafEntry) -> Result<Vec<u8>> {
        let len = usize::from(e.name_ints);
        if len == 0 || len > ZAP_MAXNAMELEN {
            return Err(Corrupt::Range { what: WHAT, field: "name length", value: len as u64 });
        }
        let mut name = self.array(e.name_chunk, len)?;
        if name.iter().position(|&b| b == 0) != Some(len - 1) {
            return Err(Corrupt::Shape { what: WHAT, why: "a name doesn't end where its length says" });
        }
        name.pop();
        Ok(name)
    }

    /// The key of `e` in a ZAP whose keys are words.
    ///
    /// # Errors
    /// * [`Corrupt::Range`]: the key has an impossible length, chunk number or chunk type.
    pub fn words_key(&self, e: &LeafEntry) -> Result<Vec<u64>> {
        let len = usize::from(e.name_ints) * 8;
        if len == 0 || len > ZAP_MAXNAMELEN {
            return Err(Corrupt::Range { what: WHAT, field: "key length", value: len as u64 });
        }
        let raw = self.array(e.name_chunk, len)?;
        Ok(raw.as_chunks::<8>().0.iter().map(|w| u64::from_be_bytes(*w)).collect())
    }

    /// The value of `e` as stored: `num_ints` big-endian integers of `int_size` bytes.
    ///
    /// # Errors
    /// * [`Corrupt::Range`]: the value has an impossible length, chunk number or chunk type.
    pub fn value(&self, e: &LeafEntry) -> Result<Vec<u8>> {
        self.array(e.value_chunk, usize::from(e.num_ints) * usize::from(e.int_size))
    }
}
