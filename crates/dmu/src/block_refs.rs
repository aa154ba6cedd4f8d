//! References to data blocks below one indirect block or dnode that are read again and again.
//!
//! OpenZFS keeps a dbuf for each block in memory. These references are what is left of that here.
//!
//! # Theory
//! A hit in the cache costs a hash, the lock of a table, and cache lines of both. With much in the
//! cache, most of these lines are cold. A reader that has the indirect block already finds a slot
//! for each block below it. The slot keeps the cache's reference to that block ([`arc::BlockRef`]).
//! The reference itself tells whether it is still valid.
//!
//! For a tree that serves a single read, references are not worth their cost. So slots are filled
//! only after several reads found their blocks through the table ([`ASKED`]).
//!
//! A slot is written once. A block that was evicted and read again is no longer found through it.
//! After many failed lookups, all slots of the indirect block are dropped together
//! ([`BlockRefs::are_stale`]).
//!
//! # Memory
//! None until blocks are read repeatedly. Then slots are allocated for some neighbours at a time.
//! Slots hold headers; the cache evicts their blocks as any others.

use arc::{BlockRef, Cache};
use device::Block;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// Neighbours whose slots are allocated together.
const GROUP: usize = 64;
/// Allocations: enough for an indirect block of 128 KiB. Blocks beyond have no slot.
const GROUPS: usize = 16;
/// Reads through the table before slots are filled.
const ASKED: u32 = 64;
/// Failed lookups before all slots are dropped.
const STALE: u32 = 64;

type Group = [OnceLock<BlockRef>; GROUP];

/// The slots of one indirect block or dnode.
#[derive(Default)]
pub(crate) struct BlockRefs {
    groups: OnceLock<Box<[OnceLock<Box<Group>>; GROUPS]>>,
    lookups: AtomicU32,
    in_vain: AtomicU32,
}

impl BlockRefs {
    /// The block of a slot, if the slot holds a valid reference.
    pub(crate) fn find(&self, index: u64, cache: &Cache) -> Option<Block> {
        let at = usize::try_from(index).ok().filter(|_| !self.are_stale())?;
        let hand = self.groups.get()?.get(at / GROUP)?.get()?[at % GROUP].get()?;
        let block = cache.by_ref(hand);
        if block.is_none() {
            self.in_vain.fetch_add(1, Ordering::Relaxed);
        }
        block
    }

    /// Puts the cache's reference to a block into its slot, unless the slot is filled.
    pub(crate) fn keep(&self, index: u64, hand: BlockRef) {
        // A rough count, so that shared memory is written at most this often.
        let lookups = self.lookups.load(Ordering::Relaxed);
        if lookups < ASKED {
            self.lookups.store(lookups + 1, Ordering::Relaxed);
            return;
        }
        let at = usize::try_from(index).unwrap_or(usize::MAX);
        let groups = self.groups.get_or_init(Box::default);
        if let Some(group) = groups.get(at / GROUP) {
            let group = group.get_or_init(|| Box::new([const { OnceLock::new() }; GROUP]));
            group[at % GROUP].get_or_init(|| hand);
        }
    }

    /// True if many slots lead to nothing.
    pub(crate) fn are_stale(&self) -> bool {
        self.in_vain.load(Ordering::Relaxed) > STALE
    }
}
