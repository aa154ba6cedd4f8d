//! The adaptive replacement cache (ARC).
//!
//! # Theory
//! Blocks are cached by their place and birth: a copy-on-write pool never gives two different
//! blocks the same pair. All pools of a daemon share one [`Store`], so that memory goes where it is
//! of use. A block's pool is part of its name.
//!
//! A block that was used once is in one state (`MRU`), and moves to another when it is used again
//! (`MFU`). Each state has data and metadata apart. An evicted block leaves a *ghost*, a header
//! without a block. A read that finds a ghost shows which of the two states should have had more
//! memory (`balance`). So a scan does not push out blocks that are used again. A working set that
//! is a little larger than its share gets a larger one.
//!
//! No lock is taken by all threads. Headers are found through many buckets, one lock each. Each
//! state's list is cut into sublists, one lock each (`multilist`). A hit takes the lock of its
//! bucket, marks the header, and takes no other lock. The eviction moves marked headers (a clock,
//! as in CAR by Bansal and Modha, 2004). The second use moves a header from one state to the other,
//! once.
//!
//! Eviction has a thread of its own. Only threads that find no free memory at all wait for it
//! (`pressure`). The limit is never passed, and follows the memory of the machine (`store::limit`).
//!
//! A thread that reads the same places again and again keeps a [`BlockRef`] for each. It leads to
//! the block without the table, through the header alone, and to nothing once the block is evicted
//! or dropped.
//!
//! A block that is being read is in the table as a *flight*. A second reader waits for the first
//! instead of reading again. A hit returns a reference, never a copy.
//!
//! A block that needs a key has its dataset in its name. So a dataset without its key never finds
//! what another's key decrypted. The price is that an encrypted dataset and its snapshots share no
//! cached data.
//!
//! Blocks that compress well are also held compressed, and under pressure only so (`forms`,
//! `store::packed`). A hit decompresses them.
//!
//! Predicted blocks are read ahead, behind reads that callers wait for (`ahead`). They are marked:
//! their first use is counted apart. Nothing is read ahead when memory is short, nor while blocks
//! that were not used yet take a quarter of it.
//!
//! # Locks
//! A bucket's lock, then a sublist's. The eviction holds a sublist's only to take some headers out.
//! None is held across a read, nor during a wait for memory. Waiters of a flight sleep on the
//! flight's own condition.
//!
//! # Absent
//! Dirty data.
//!
//! # See
//! OpenZFS `arc.c`, `multilist.c`.

mod balance;
mod cache;
mod forms;
mod header;
mod l2;
mod l2_read;
mod multilist;
mod policy;
mod prefetch;
mod pressure;
mod recipe;
mod store;
mod sync;
pub mod tunables;

pub use cache::{BlockOrigin, Cache, CacheMemory, PrefetchGuard, ReadHooks};
pub use l2::{CacheDevice, CacheDeviceStats};
pub use multilist::SublistSpread;
pub use policy::{CacheType, Policy};
pub use prefetch::{PrefetchTarget, Run, Zfetch};
pub use store::{BlockRef, Memory, Stats, Store, Sublists};
