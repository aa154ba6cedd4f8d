//! One shard: a table of blocks and flights, and two lists in order of use.

mod table;

use crate::cache::Flight;
use device::{Block, Sparse};
use ondisk::{Blkptr, Dva, Txg};
use std::sync::Arc;
use table::{At, List, Table};

/// What a block takes beyond its bytes: its entry, and those that hold its memory together.
const ENTRY_OVERHEAD: u64 = 256;

/// The name of a block: its first copy and the transaction group that wrote it; of one that a key makes readable,
/// also whose key that was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    dva: Dva,
    birth: Txg,
    /// Compressed and logical size and the place in a tree: a hostile pool can name one place in two ways.
    shape: (u64, u64, u8, u8),
    sum: [u64; 4],
    /// The object set for which a block was decrypted or its MAC checked. Another one that leads to the block, as a
    /// snapshot does and as a hostile pool can make any dataset do, has to have the key itself.
    keyed_by: Option<u64>,
}

impl Key {
    /// The name of a block on devices that is read for this object set; others are not worth caching.
    pub(crate) fn of(bp: &Blkptr, objset: u64) -> Option<Key> {
        let s = bp.stored()?;
        let shape = (s.psize.0, bp.lsize.0, bp.level.0, bp.kind.to_disk());
        let keyed_by = (bp.is_encrypted() || bp.is_authenticated()).then_some(objset);
        Some(Key { dva: s.dvas[0]?, birth: s.phys_birth, shape, sum: s.sum, keyed_by })
    }

    /// The shard that the block belongs to.
    pub(crate) fn shard(&self, shards: usize) -> usize {
        let mix = (self.dva.offset.0 >> 9 ^ u64::from(self.dva.vdev.0) << 40 ^ self.birth.0 << 20)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mix >> 40) as usize % shards
    }
}

/// What the table knows of a block.
enum Slot {
    /// It is here, in the list of those that were used again or in the other.
    Held { block: Sparse, again: bool },
    /// Somebody is reading it.
    Flying { flight: Arc<Flight>, forget: bool },
}

pub(crate) enum Found {
    Block(Sparse),
    Flight(Arc<Flight>),
    Nothing,
}

pub(crate) struct Shard {
    table: Table<Slot>,
    /// Blocks used once, and blocks used again, in the order of their last use.
    once: List,
    again: List,
    once_size: u64,
    size: u64,
    max: u64,
}

fn weight(block: &Sparse) -> u64 {
    block.head().len() as u64 + ENTRY_OVERHEAD
}

impl Shard {
    pub(crate) fn new(max: u64) -> Shard {
        let (once, again) = (List::default(), List::default());
        Shard { table: Table::default(), once, again, once_size: 0, size: 0, max }
    }

    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// The block, or the flight that will bring it; otherwise `flight` is entered as such.
    pub(crate) fn find_or_start(&mut self, key: &Key, flight: &Arc<Flight>) -> Found {
        let Some(at) = self.table.find(key) else {
            self.table.add(*key, Slot::Flying { flight: flight.clone(), forget: false });
            return Found::Nothing;
        };
        match self.table.get_mut(at) {
            Slot::Held { block, again } => {
                let found = block.clone();
                let was_again = std::mem::replace(again, true);
                let list = if was_again { &mut self.again } else { &mut self.once };
                list.take_out(&mut self.table, at);
                self.once_size -= if was_again { 0 } else { weight(&found) };
                self.again.push(&mut self.table, at);
                Found::Block(found)
            }
            Slot::Flying { flight, .. } => Found::Flight(flight.clone()),
        }
    }

    /// Whether it has the block.
    pub(crate) fn holds(&mut self, key: &Key) -> bool {
        self.table.find(key).is_some_and(|at| matches!(self.table.get_mut(at), Slot::Held { .. }))
    }

    /// Ends a flight: its block takes its place, or nothing does.
    pub(crate) fn land(&mut self, key: &Key, block: Option<&Sparse>) {
        let Some(at) = self.table.find(key) else { return };
        let Slot::Flying { forget, .. } = self.table.get_mut(at) else { return };
        let kept = block.filter(|_| !*forget);
        self.table.remove(at);
        if let Some(block) = kept {
            self.hold(key, block);
        }
    }

    /// Puts a whole block in the place of the beginning of it that is held.
    pub(crate) fn complete(&mut self, key: &Key, whole: &Block) {
        let whole = Sparse::from(whole.clone());
        if let Some(at) = self.table.find(key)
            && let Slot::Held { block, again } = self.table.get_mut(at)
            && !block.is_whole()
            && weight(&whole) <= self.max
        {
            let more = weight(&whole) - weight(block);
            *block = whole;
            self.size += more;
            self.once_size += if *again { 0 } else { more };
            self.evict();
        }
    }

    /// Enters a block that nobody asked for; nothing happens when it is there or on its way.
    pub(crate) fn insert(&mut self, key: &Key, block: &Sparse) {
        if self.table.find(key).is_none() {
            self.hold(key, block);
        }
    }

    fn hold(&mut self, key: &Key, block: &Sparse) {
        if weight(block) > self.max {
            return;
        }
        let at = self.table.add(*key, Slot::Held { block: block.clone(), again: false });
        self.once.push(&mut self.table, at);
        self.once_size += weight(block);
        self.size += weight(block);
        self.evict();
    }

    /// Drops the least recently used blocks until the shard fits: once-used ones while they take more than half.
    fn evict(&mut self) {
        while self.size > self.max {
            let from_once = self.once_size > self.max / 2 || self.again.is_empty();
            let list = if from_once { &self.once } else { &self.again };
            let Some(at) = list.first() else { return };
            self.drop_held(at);
        }
    }

    /// Drops a block that is held; nothing happens to one that is on its way.
    fn drop_held(&mut self, at: At) {
        let Slot::Held { block, again } = self.table.get_mut(at) else { return };
        let (weight, again) = (weight(block), *again);
        let list = if again { &mut self.again } else { &mut self.once };
        list.take_out(&mut self.table, at);
        self.table.remove(at);
        self.size -= weight;
        self.once_size -= if again { 0 } else { weight };
    }

    /// Drops a block that nothing leads to any more, also one that is on its way.
    pub(crate) fn forget(&mut self, key: &Key) {
        let Some(at) = self.table.find(key) else { return };
        match self.table.get_mut(at) {
            Slot::Flying { forget, .. } => *forget = true,
            Slot::Held { .. } => self.drop_held(at),
        }
    }

    /// Holds at most so much from now on.
    pub(crate) fn limit(&mut self, max: u64) {
        self.max = max;
        self.evict();
    }

    pub(crate) fn purge(&mut self) {
        for (key, mut slot) in std::mem::take(&mut self.table).into_entries() {
            if let Slot::Flying { forget, .. } = &mut slot {
                *forget = true;
                self.table.add(key, slot);
            }
        }
        (self.once, self.again) = (List::default(), List::default());
        (self.size, self.once_size) = (0, 0);
    }
}
