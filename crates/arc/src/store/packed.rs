//! Blocks that are held compressed (`zfs_compressed_arc_enabled`).
//!
//! # Theory
//! A block comes compressed from a device, and is compressed on its way to one. If that saves an
//! eighth, the compressed bytes stay beside the plain ones ([`crate::forms`]). While memory is
//! free, nothing is ever decompressed twice.
//!
//! Under pressure, the plain forms of blocks that are also held compressed are released first,
//! those not used for long before others. This ends when they take no more than a share of the
//! cache ([`DBUF_CACHE_SHIFT`]). Only then are blocks evicted. So a cache under pressure holds its
//! limit in compressed blocks, and hot blocks are plain.
//!
//! A hit on a block with only the compressed form decompresses it, without any lock. It holds the
//! plain form again if memory is free without a wait. Compressed bytes were verified when they were
//! read, and are not verified again.
//!
//! Blocks in both forms are in a list of their own, in the order in which they got both, with their
//! own mark of uses.
//!
//! # Locks
//! As for eviction: a sublist's lock while some headers are taken out, then the bucket of each. The
//! sums change under the bucket's lock.

use super::{Inner, Store};
use crate::forms::Held;
use crate::header::{BOTH_OVERHEAD, Header, Key};
use crate::multilist::Multilist;
use crate::recipe::Recipes;
use crate::tunables::{ARC_EVICT_BATCH_LIMIT, COMPRESSED_ARC_ENABLED, DBUF_CACHE_SHIFT};
use device::{AlignedBuf, Block, Sparse};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// State of the compressed blocks of a store.
pub(super) struct Packed {
    /// The blocks that are held in both forms.
    pub(super) both: Multilist<Arc<Header>>,
    /// Number of these.
    pub(super) both_count: AtomicU64,
    /// Bytes of their plain forms (`overhead_size`).
    pub(super) overhead: AtomicU64,
    /// Bytes of all compressed forms.
    pub(super) bytes: AtomicU64,
    /// Uncompressed bytes of the same blocks.
    pub(super) lsize: AtomicU64,
    /// Blocks that a hit has decompressed.
    pub(super) unpacked: observe::Sharded,
    /// Plain forms that were released.
    pub(super) cooled: observe::Counter,
}

impl Packed {
    pub(super) fn new(sublists: usize) -> Packed {
        Packed {
            both: Multilist::new(sublists),
            both_count: AtomicU64::new(0),
            overhead: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            lsize: AtomicU64::new(0),
            unpacked: observe::Sharded::default(),
            cooled: observe::Counter::default(),
        }
    }

    /// The sublist for a header. It is always the same, since the number of sublists does not
    /// change.
    fn sublist(&self, header: &Header) -> usize {
        self.both.index(header.key.hash())
    }

    /// Records that a header holds the compressed form too from now on. Its bucket is locked.
    fn add(&self, header: &Header, packed: &Block) {
        self.bytes.fetch_add(packed.len() as u64, Relaxed);
        self.lsize.fetch_add(header.key.lsize() as u64, Relaxed);
    }

    /// Records that a header holds both forms from now on. Its bucket is locked.
    fn add_both(&self, header: &Arc<Header>, plain: &Block) {
        self.overhead.fetch_add(plain.len() as u64, Relaxed);
        self.both_count.fetch_add(1, Relaxed);
        header.set_both();
        self.both.push(self.sublist(header), header.clone());
    }

    /// Records that a header no longer holds its plain form beside its compressed one. Its bucket
    /// is locked.
    fn sub_both(&self, header: &Header, plain: &Block) {
        self.overhead.fetch_sub(plain.len() as u64, Relaxed);
        self.both_count.fetch_sub(1, Relaxed);
        header.unset_both();
    }
}

/// The compressed form, if it saves enough memory.
pub(super) fn worth<'a>(block: &Sparse, packed: Option<&'a Block>) -> Option<&'a Block> {
    let plain = block.head().len();
    packed.filter(|p| COMPRESSED_ARC_ENABLED.get() != 0 && !p.is_empty() && p.len() <= plain - plain / 8)
}

/// Decompresses a block; `None` if its compressed form is damaged, as memory can be.
fn unpack(key: &Key, packed: &Block) -> Option<Sparse> {
    let mut out = AlignedBuf::for_overwrite(key.lsize());
    if key.is_mostly_free() {
        let start = codec::compress::decompress_start(key.compress(), packed, &mut out).ok()?;
        let block = Sparse::starting(out, start);
        return Some(if block.is_whole() { Sparse::trimmed(block.head()) } else { block });
    }
    codec::compress::decompress(key.compress(), packed, &mut out).ok()?;
    Some(out.freeze().into())
}

impl Store {
    /// The block of a header of which a hit found only the compressed form: decompressed, and held
    /// so if memory is free.
    pub(super) fn open_packed(&self, header: &Arc<Header>, packed: &Block) -> Option<Sparse> {
        let block = unpack(&header.key, packed)?;
        self.inner.packed.unpacked.inc();
        let room = block.head().len() as u64 + BOTH_OVERHEAD;
        if self.inner.pressure.take_idle(room, || self.wake()) && !self.inner.warm(header, block.head()) {
            self.inner.pressure.give(room);
        }
        Some(block)
    }
}

impl Inner {
    /// Records that a header was entered with a compressed form. Its bucket is locked.
    pub(super) fn enter_packed(&self, header: &Arc<Header>, plain: &Block, packed: &Block) {
        self.packed.add(header, packed);
        self.packed.add_both(header, plain);
    }

    /// Holds the plain form of a block again, for which memory is reserved. Returns false if it
    /// can't be held.
    fn warm(&self, header: &Arc<Header>, plain: &Block) -> bool {
        let _bucket = self.lock(header);
        if !header.forms.warm(plain) {
            return false;
        }
        self.add_bytes(header, plain.len() as u64);
        self.packed.add_both(header, plain);
        true
    }

    /// Adds held bytes of a block. Its bucket is locked.
    pub(super) fn add_bytes(&self, header: &Header, more: u64) {
        header.set_bytes(header.bytes() + more);
        self.sums[header.state().list(header.key.kind())].bytes.fetch_add(more, Relaxed);
    }

    /// Gives up what a header holds, with its recipe in `recipes`. Its bucket is locked.
    pub(super) fn give_up(&self, recipes: &mut Recipes, header: &Header) -> Held<Block> {
        if recipes.forget(header) {
            self.l2.recipes.fetch_sub(1, Relaxed);
        }
        let held = header.forms.give_up();
        if let Some(packed) = &held.packed {
            self.packed.bytes.fetch_sub(packed.len() as u64, Relaxed);
            self.packed.lsize.fetch_sub(header.key.lsize() as u64, Relaxed);
            if let Some(plain) = &held.plain {
                self.packed.sub_both(header, plain);
                self.packed.both.note_stale(self.packed.sublist(header), |h| !h.is_both());
            }
        }
        held
    }

    /// Releases plain forms of compressed blocks while they take more than their share, about
    /// `goal` bytes; returns how many.
    pub(super) fn cool(&self, goal: u64) -> u64 {
        let shift = u32::try_from(DBUF_CACHE_SHIFT.get()).unwrap_or(u32::MAX);
        let share = self.pressure.max().checked_shr(shift).unwrap_or(0);
        let excess = || self.packed.overhead.load(Relaxed).saturating_sub(share);
        if excess() == 0 {
            return 0;
        }
        let list = &self.packed.both;
        let batch = usize::try_from(ARC_EVICT_BATCH_LIMIT.get()).unwrap_or(usize::MAX).clamp(1, 1 << 16);
        let there = self.packed.both_count.load(Relaxed);
        let (sublists, first) = (list.sublists(), self.roll());
        let (mut taken, mut blocks) = (Vec::with_capacity(batch.min(256)), Vec::new());
        let (mut freed, mut looked_at, mut n, mut idle) = (0, 0, 0, 0);
        while freed < goal && excess() > 0 && idle < sublists && looked_at <= 2 * there {
            let sublist = (first + n) % sublists;
            n += 1;
            list.take(sublist, batch, &mut taken);
            idle = if taken.is_empty() { idle + 1 } else { 0 };
            let mut stale = 0;
            for header in taken.drain(..) {
                match self.cool_one(&header, looked_at > there) {
                    None => stale += 1,
                    Some(plain) => {
                        looked_at += 1;
                        freed += plain.as_ref().map_or(0, |plain| plain.len() as u64 + BOTH_OVERHEAD);
                        blocks.extend(plain);
                    }
                }
            }
            if stale > 0 {
                list.met_stale(sublist, stale);
            }
            // Released without a lock.
            blocks.clear();
        }
        freed
    }

    /// Releases the plain form of a block. `Some(None)` if it was used since the last look. `None`
    /// if it is not held in both forms.
    fn cool_one(&self, header: &Arc<Header>, regardless: bool) -> Option<Option<Block>> {
        let _bucket = self.lock(header);
        if !header.is_both() {
            return None;
        }
        if header.unmark_warm() && !regardless {
            self.packed.both.push(self.packed.sublist(header), header.clone());
            return Some(None);
        }
        let plain = header.forms.cool().expect("both are held while the bucket is locked");
        let (bytes, room) = (plain.len() as u64, plain.len() as u64 + BOTH_OVERHEAD);
        if header.is_ahead() {
            self.ahead.fetch_sub(room, Relaxed);
        }
        self.packed.sub_both(header, &plain);
        header.set_bytes(header.bytes() - bytes);
        self.sums[header.state().list(header.key.kind())].bytes.fetch_sub(bytes, Relaxed);
        self.pressure.give(room);
        self.packed.cooled.inc();
        Some(Some(plain))
    }
}
