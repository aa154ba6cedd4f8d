//! One shard: a table of blocks and flights, and two lists in order of use.

use crate::cache::Flight;
use device::{Block, Sparse};
use ondisk::{Blkptr, Dva, Txg};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// What a hit may pin beyond its bytes: the entry, its place in a list.
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

enum Slot {
    Held { block: Sparse, used: u64, again: bool },
    Flying { flight: Arc<Flight>, forget: bool },
}

pub(crate) enum Found {
    Block(Sparse),
    Flight(Arc<Flight>),
    Nothing,
}

pub(crate) struct Shard {
    table: HashMap<Key, Slot>,
    /// Blocks used once, and blocks used again, by the time of their last use.
    once: BTreeMap<u64, Key>,
    again: BTreeMap<u64, Key>,
    once_size: u64,
    size: u64,
    max: u64,
    clock: u64,
}

fn weight(block: &Sparse) -> u64 {
    block.head().len() as u64 + ENTRY_OVERHEAD
}

impl Shard {
    pub(crate) fn new(max: u64) -> Shard {
        Shard {
            table: HashMap::new(),
            once: BTreeMap::new(),
            again: BTreeMap::new(),
            once_size: 0,
            size: 0,
            max,
            clock: 0,
        }
    }

    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// The block, or the flight that will bring it; otherwise `flight` is entered as such.
    pub(crate) fn find_or_start(&mut self, key: &Key, flight: &Arc<Flight>) -> Found {
        self.clock += 1;
        match self.table.get_mut(key) {
            Some(Slot::Held { block, used, again }) => {
                if *again {
                    self.again.remove(used);
                } else {
                    self.once.remove(used);
                    self.once_size -= weight(block);
                }
                (*used, *again) = (self.clock, true);
                self.again.insert(self.clock, *key);
                Found::Block(block.clone())
            }
            Some(Slot::Flying { flight, .. }) => Found::Flight(flight.clone()),
            None => {
                self.table.insert(*key, Slot::Flying { flight: flight.clone(), forget: false });
                Found::Nothing
            }
        }
    }

    /// Ends a flight: its block takes its place, or nothing does.
    pub(crate) fn land(&mut self, key: &Key, block: Option<&Sparse>) {
        let Some(Slot::Flying { forget, .. }) = self.table.remove(key) else { return };
        let Some(block) = block.filter(|_| !forget) else { return };
        self.hold(key, block);
    }

    /// Puts a whole block in the place of the beginning of it that is held.
    pub(crate) fn complete(&mut self, key: &Key, whole: &Block) {
        let whole = Sparse::from(whole.clone());
        if let Some(Slot::Held { block, again, .. }) = self.table.get_mut(key)
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
        if !self.table.contains_key(key) {
            self.hold(key, block);
        }
    }

    fn hold(&mut self, key: &Key, block: &Sparse) {
        if weight(block) > self.max {
            return;
        }
        self.clock += 1;
        let held = Slot::Held { block: block.clone(), used: self.clock, again: false };
        self.table.insert(*key, held);
        self.once.insert(self.clock, *key);
        self.once_size += weight(block);
        self.size += weight(block);
        self.evict();
    }

    /// Drops the least recently used blocks until the shard fits: once-used ones while they take more than half.
    fn evict(&mut self) {
        while self.size > self.max {
            let from_once = self.once_size > self.max / 2 || self.again.is_empty();
            let list = if from_once { &mut self.once } else { &mut self.again };
            let Some((_, key)) = list.pop_first() else { return };
            if let Some(Slot::Held { block, .. }) = self.table.remove(&key) {
                self.size -= weight(&block);
                if from_once {
                    self.once_size -= weight(&block);
                }
            }
        }
    }

    /// Drops a block that nothing leads to any more, also one that is on its way.
    pub(crate) fn forget(&mut self, key: &Key) {
        match self.table.get_mut(key) {
            Some(Slot::Flying { forget, .. }) => *forget = true,
            Some(Slot::Held { .. }) => {
                if let Some(Slot::Held { block, used, again }) = self.table.remove(key) {
                    self.size -= weight(&block);
                    if again {
                        self.again.remove(&used);
                    } else {
                        self.once.remove(&used);
                        self.once_size -= weight(&block);
                    }
                }
            }
            None => {}
        }
    }

    /// Holds at most so much from now on.
    pub(crate) fn limit(&mut self, max: u64) {
        self.max = max;
        self.evict();
    }

    pub(crate) fn purge(&mut self) {
        self.table.retain(|_, slot| match slot {
            Slot::Held { .. } => false,
            Slot::Flying { forget, .. } => {
                *forget = true;
                true
            }
        });
        self.once.clear();
        self.again.clear();
        (self.size, self.once_size) = (0, 0);
    }
}
