//! The data blocks of an indirect block, or of a dnode, that are read again and again: what is left here of the dbuf of OpenZFS.
//!
//! # Theory
//! A hit in the cache costs a hash, a table's lock and the lines of both, most of them cold where there is much in the cache. Whoever has an indirect block at hand has a place for each
//! block below it, and what the cache once said of that block is kept there ([`arc::Hand`]); it says for itself whether it still holds.
//!
//! A tree that was only made for one answer is not worth it: places begin to be filled when some blocks were found through the table, again and again ([`ASKED`]).
//!
//! A place is written once: a block that was evicted and read again is not found here any more. When many are asked for in vain, all places of the indirect block are given
//! up together ([`Hands::are_stale`]).
//!
//! # Memory
//! Nothing until a block was used again after a while, and then for some neighbours at a time. What is kept are headers; the cache evicts their blocks as any others.

use arc::{Cache, Hand};
use device::Block;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// Neighbours whose places are made together.
const GROUP: usize = 64;
/// Groups: as many as an indirect block of 128 KiB takes. Blocks beyond have no place.
const GROUPS: usize = 16;
/// Blocks that are found through the table first.
const ASKED: u32 = 64;
/// Places that are asked in vain before all are given up.
const STALE: u32 = 64;

type Group = [OnceLock<Hand>; GROUP];

/// See the module.
#[derive(Default)]
pub(crate) struct Hands {
    groups: OnceLock<Box<[OnceLock<Box<Group>>; GROUPS]>>,
    asked: AtomicU32,
    in_vain: AtomicU32,
}

impl Hands {
    /// The block at a place, if something that holds is there.
    pub(crate) fn find(&self, index: u64, cache: &Cache) -> Option<Block> {
        let at = usize::try_from(index).ok().filter(|_| !self.are_stale())?;
        let hand = self.groups.get()?.get(at / GROUP)?.get()?[at % GROUP].get()?;
        let block = cache.at_hand(hand);
        if block.is_none() {
            self.in_vain.fetch_add(1, Ordering::Relaxed);
        }
        block
    }

    /// Puts what the cache said of a block in its place, unless something was there before.
    pub(crate) fn keep(&self, index: u64, hand: Hand) {
        // Counted roughly: no more than that is written by many.
        let asked = self.asked.load(Ordering::Relaxed);
        if asked < ASKED {
            self.asked.store(asked + 1, Ordering::Relaxed);
            return;
        }
        let at = usize::try_from(index).unwrap_or(usize::MAX);
        let groups = self.groups.get_or_init(Box::default);
        if let Some(group) = groups.get(at / GROUP) {
            let group = group.get_or_init(|| Box::new([const { OnceLock::new() }; GROUP]));
            group[at % GROUP].get_or_init(|| hand);
        }
    }

    /// Whether many of them lead to nothing.
    pub(crate) fn are_stale(&self) -> bool {
        self.in_vain.load(Ordering::Relaxed) > STALE
    }
}
