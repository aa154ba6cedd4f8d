//! Changes of leaf blocks of fat ZAPs.

use super::leaf::{ARRAY_BYTES, CHAIN_END, CHUNK_ARRAY, CHUNK_ENTRY, CHUNK_FREE, CHUNK_SIZE, HEADER_SIZE};
use super::leaf::{Leaf, LeafEntry, ZAP_LEAF_MAGIC, geometry};
use super::{ZAP_MAXVALUELEN, ZBT_LEAF};
use crate::{Corrupt, Result};

const WHAT: &str = "ZAP leaf";
/// `ZLF_ENTRIES_CDSORTED`.
const CD_SORTED: u8 = 1;

/// A new entry of a leaf.
#[derive(Debug, Clone, Copy)]
pub struct NewEntry<'a> {
    /// Hash of the normalized name.
    pub hash: u64,
    /// The name with its NUL, or the words of the key, big-endian.
    pub name: &'a [u8],
    /// Bytes of one of the name's integers: 1 for names, 8 for words.
    pub name_int: usize,
    /// Bytes of one of the value's integers.
    pub int_size: u8,
    /// Integers of the value, big-endian.
    pub value: &'a [u8],
}

impl NewEntry<'_> {
    /// Number of chunks that the entry takes (`ZAP_LEAF_ARRAY_NCHUNKS`).
    pub fn chunks(&self) -> usize {
        1 + self.name.len().div_ceil(ARRAY_BYTES) + self.value.len().div_ceil(ARRAY_BYTES)
    }
}

/// A mutable view of a leaf block.
///
/// Free chunks form a chain, which a bad block can have broken. So each chunk that is taken from
/// the chain is checked. A change that fails with [`Corrupt`] may have been made in part.
#[derive(Debug)]
pub struct LeafMut<'a> {
    buf: &'a mut [u8],
    chunks_at: usize,
    chunks: usize,
    buckets: usize,
    prefix_len: u32,
}

impl<'a> LeafMut<'a> {
    /// Decodes the leaf in `buf`.
    ///
    /// # Errors
    /// The variants and causes that [`Leaf::parse`] lists.
    pub fn parse(buf: &'a mut [u8]) -> Result<Self> {
        let prefix_len = Leaf::parse(buf)?.prefix_len;
        Ok(Self::over(buf, prefix_len))
    }

    fn over(buf: &'a mut [u8], prefix_len: u32) -> Self {
        let (chunks_at, chunks) = geometry(buf.len());
        let buckets = buf.len() >> 5;
        Self { buf, chunks_at, chunks, buckets, prefix_len }
    }

    /// Makes `buf` a leaf without entries; `buf` has a power of two of at least 512 bytes
    /// (`zap_leaf_init`).
    ///
    /// With `sorted`, the chains will be sorted by collision differentiator.
    ///
    /// # Panics
    /// If `buf` is too short for a leaf.
    pub fn init(buf: &'a mut [u8], prefix: u64, prefix_len: u32, sorted: bool) -> Self {
        buf.fill(0);
        let mut leaf = Self::over(buf, prefix_len);
        leaf.buf[..8].copy_from_slice(&ZBT_LEAF.to_le_bytes());
        leaf.buf[16..24].copy_from_slice(&prefix.to_le_bytes());
        leaf.buf[24..28].copy_from_slice(&ZAP_LEAF_MAGIC.to_le_bytes());
        leaf.set16(28, leaf.chunks as u16);
        leaf.set16(32, prefix_len as u16);
        leaf.buf[36] = if sorted { CD_SORTED } else { 0 };
        leaf.buf[HEADER_SIZE..leaf.chunks_at].fill(0xff);
        for n in 0..leaf.chunks {
            let at = leaf.chunks_at + n * CHUNK_SIZE;
            leaf.buf[at] = CHUNK_FREE;
            let next = if n + 1 == leaf.chunks { CHAIN_END } else { n as u16 + 1 };
            leaf.set16(at + 22, next);
        }
        leaf
    }

    fn get16(&self, at: usize) -> u16 {
        u16::from_le_bytes([self.buf[at], self.buf[at + 1]])
    }

    fn set16(&mut self, at: usize, v: u16) {
        self.buf[at..at + 2].copy_from_slice(&v.to_le_bytes());
    }

    /// Number of free chunks (`lh_nfree`).
    pub fn free_chunks(&self) -> usize {
        self.get16(28).into()
    }

    /// Number of chunks in a leaf of `size` bytes, a power of two of at least 512
    /// (`ZAP_LEAF_NUMCHUNKS_BS`).
    pub fn chunks_of(size: usize) -> usize {
        geometry(size).1
    }

    /// Offset of chunk `n`, which is of this kind.
    fn chunk(&self, n: u16, kind: u8) -> Result<usize> {
        if usize::from(n) >= self.chunks {
            return Err(Corrupt::Range { what: WHAT, field: "chunk number", value: n.into() });
        }
        let at = self.chunks_at + usize::from(n) * CHUNK_SIZE;
        if self.buf[at] != kind {
            return Err(Corrupt::Range { what: WHAT, field: "chunk type", value: self.buf[at].into() });
        }
        Ok(at)
    }

    /// Takes a free chunk, and returns its number and offset.
    fn take(&mut self, kind: u8) -> Result<(u16, usize)> {
        let n = self.get16(34);
        let at = self.chunk(n, CHUNK_FREE)?;
        let left = self.get16(28).checked_sub(1);
        let left =
            left.ok_or(Corrupt::Shape { what: WHAT, why: "it has more free chunks than it counts" })?;
        self.set16(34, self.get16(at + 22));
        self.set16(28, left);
        self.buf[at..at + CHUNK_SIZE].fill(0);
        self.buf[at] = kind;
        Ok((n, at))
    }

    fn give_back(&mut self, n: u16, at: usize) {
        self.buf[at..at + CHUNK_SIZE].fill(0);
        self.buf[at] = CHUNK_FREE;
        self.set16(at + 22, self.get16(34));
        self.set16(34, n);
        // Never more than exist: the chunk was in use, and this corrects a wrong count.
        let free = self.get16(28).saturating_add(1).min(self.chunks as u16);
        self.set16(28, free);
    }

    fn put_array(&mut self, bytes: &[u8]) -> Result<u16> {
        // From the end, so that each chunk is written once.
        let mut next = CHAIN_END;
        for part in bytes.chunks(ARRAY_BYTES).rev() {
            let (n, at) = self.take(CHUNK_ARRAY)?;
            self.buf[at + 1..at + 1 + part.len()].copy_from_slice(part);
            self.set16(at + 22, next);
            next = n;
        }
        Ok(next)
    }

    fn drop_array(&mut self, mut n: u16, len: usize) -> Result<()> {
        for _ in 0..len.div_ceil(ARRAY_BYTES) {
            let at = self.chunk(n, CHUNK_ARRAY)?;
            let next = self.get16(at + 22);
            self.give_back(n, at);
            n = next;
        }
        Ok(())
    }

    fn bucket_at(&self, hash: u64) -> usize {
        let shift = self.buckets.trailing_zeros();
        let bucket = (hash >> (64 - shift - self.prefix_len)) as usize & (self.buckets - 1);
        HEADER_SIZE + 2 * bucket
    }

    /// Offset of the link to the first entry in the chain for which `stop` is true, or of the
    /// chain's last link.
    fn link(&self, hash: u64, stop: impl Fn(u16, u32) -> bool) -> Result<usize> {
        let mut link = self.bucket_at(hash);
        for _ in 0..=self.chunks {
            let n = self.get16(link);
            if n == CHAIN_END {
                return Ok(link);
            }
            let at = self.chunk(n, CHUNK_ENTRY)?;
            let c = &self.buf[at + 12..at + 16];
            if stop(n, u32::from_le_bytes([c[0], c[1], c[2], c[3]])) {
                return Ok(link);
            }
            link = at + 2;
        }
        Err(Corrupt::Shape { what: WHAT, why: "a chain of entries runs in a circle" })
    }

    /// Adds an entry with this collision differentiator; false if there is no space
    /// (`zap_entry_create`).
    ///
    /// No entry of the leaf may have the same hash and differentiator.
    ///
    /// # Errors
    /// * [`Corrupt::Range`]: a chain has an impossible chunk number or chunk type.
    /// * [`Corrupt::Shape`]: a chain is cyclic, or the header counts too few free chunks or too
    ///   many entries.
    ///
    /// # Panics
    /// If one of the integer sizes in `e` is 0.
    pub fn insert(&mut self, e: &NewEntry<'_>, cd: u32) -> Result<bool> {
        if self.free_chunks() < e.chunks() {
            return Ok(false);
        }
        let link = self.link(e.hash, |_, other| other > cd)?;
        let (n, at) = self.take(CHUNK_ENTRY)?;
        let name = self.put_array(e.name)?;
        let value = self.put_array(e.value)?;
        self.buf[at + 1] = e.int_size;
        self.set16(at + 4, name);
        self.set16(at + 6, (e.name.len() / e.name_int) as u16);
        self.set16(at + 8, value);
        self.set16(at + 10, (e.value.len() / usize::from(e.int_size)) as u16);
        self.buf[at + 12..at + 16].copy_from_slice(&cd.to_le_bytes());
        self.buf[at + 16..at + 24].copy_from_slice(&e.hash.to_le_bytes());
        self.set16(at + 2, self.get16(link));
        self.set16(link, n);
        let count = self.get16(30).checked_add(1).filter(|c| usize::from(*c) <= self.chunks);
        self.set16(30, count.ok_or(Corrupt::Shape { what: WHAT, why: "it counts more entries than fit" })?);
        Ok(true)
    }

    /// Removes an entry of this leaf; `name_int` is the size of the name's integers
    /// (`zap_entry_remove`).
    ///
    /// # Errors
    /// * [`Corrupt::Range`]: a chain has an impossible chunk number or chunk type.
    /// * [`Corrupt::Shape`]: the entry is in no chain, or its chain is cyclic.
    pub fn remove(&mut self, e: &LeafEntry, name_int: usize) -> Result<()> {
        let (at, n) = (self.chunk(e.chunk, CHUNK_ENTRY)?, e.chunk);
        let link = self.link(e.hash, |other, _| other == n)?;
        if self.get16(link) != n {
            return Err(Corrupt::Shape { what: WHAT, why: "an entry is in no chain" });
        }
        self.set16(link, self.get16(at + 2));
        self.drop_array(e.name_chunk, usize::from(e.name_ints) * name_int)?;
        self.drop_array(e.value_chunk, usize::from(e.num_ints) * usize::from(e.int_size))?;
        self.give_back(n, at);
        self.set16(30, self.get16(30).saturating_sub(1));
        Ok(())
    }

    /// Replaces the value of an entry; false if there is no space (`zap_entry_update`).
    ///
    /// # Errors
    /// * [`Corrupt::Range`]: a chain has an impossible chunk number or chunk type.
    /// * [`Corrupt::Shape`]: the header counts too few free chunks.
    ///
    /// # Panics
    /// If `int_size` is 0. In debug builds also if `value` is longer than [`ZAP_MAXVALUELEN`].
    pub fn set_value(&mut self, e: &LeafEntry, int_size: u8, value: &[u8]) -> Result<bool> {
        let at = self.chunk(e.chunk, CHUNK_ENTRY)?;
        let old = usize::from(e.num_ints) * usize::from(e.int_size);
        let room = self.free_chunks() + old.div_ceil(ARRAY_BYTES);
        if room < value.len().div_ceil(ARRAY_BYTES) {
            return Ok(false);
        }
        debug_assert!(value.len() <= ZAP_MAXVALUELEN);
        self.drop_array(e.value_chunk, old)?;
        let chunk = self.put_array(value)?;
        self.buf[at + 1] = int_size;
        self.set16(at + 8, chunk);
        self.set16(at + 10, (value.len() / usize::from(int_size)) as u16);
        Ok(true)
    }

    /// Moves the entries whose next bit of the hash is set to `sibling`, a block of the same size
    /// (`zap_leaf_split`).
    ///
    /// The prefix of both leaves then has one bit more. `name_int` is the size of the names'
    /// integers.
    ///
    /// # Errors
    /// After an error both blocks are undefined.
    ///
    /// * [`Corrupt::Magic`], [`Corrupt::Range`] and [`Corrupt::Shape`]: the leaf has a fault that
    ///   [`Leaf::parse`] or [`Leaf::entries`] lists.
    /// * [`Corrupt::Range`]: the hash has no bit left, or a name or value has an impossible length,
    ///   chunk number or chunk type.
    /// * [`Corrupt::Shape`]: entries share chunks, so that not all fit.
    pub fn split(&mut self, sibling: &mut [u8], sorted: bool, name_int: usize) -> Result<()> {
        let old = self.buf.to_vec();
        let leaf = Leaf::parse(&old)?;
        let (prefix, len) = (leaf.prefix << 1, leaf.prefix_len + 1);
        if len + self.buckets.trailing_zeros() > 64 {
            return Err(Corrupt::Range { what: WHAT, field: "prefix length", value: len.into() });
        }
        *self = LeafMut::init(std::mem::take(&mut self.buf), prefix, len, sorted);
        let mut other = LeafMut::init(sibling, prefix | 1, len, sorted);
        for e in leaf.entries()? {
            let name = leaf.array(e.name_chunk, usize::from(e.name_ints) * name_int)?;
            let value = leaf.value(&e)?;
            let moved = NewEntry { hash: e.hash, name: &name, name_int, int_size: e.int_size, value: &value };
            let up = e.hash >> (64 - len) & 1 == 1;
            let fits = if up { other.insert(&moved, e.cd) } else { self.insert(&moved, e.cd) };
            if !fits? {
                return Err(Corrupt::Shape { what: WHAT, why: "its entries share chunks" });
            }
        }
        Ok(())
    }
}
