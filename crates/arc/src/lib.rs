//! The adaptive replacement cache.
//!
//! # Theory
//! Blocks are cached by where they are and when they were born: a copy-on-write pool never puts two different
//! blocks under one such name. All pools of a daemon share one [`Store`], so that memory is where it is of use; a block's pool is in its name.
//!
//! A block that was used once is in one state (`MRU`), one that was used again in another (`MFU`), each apart for data and metadata; what was evicted leaves a header
//! without a block, a ghost, and a read that meets one says which of the two should have had more room (`balance`). So a scan does not push out what is used again, and a
//! working set that is a little larger than its share gets more of it.
//!
//! Nothing is locked by all. Headers are found through many buckets, one lock each; each state's list is cut into sublists, one lock each (`multilist`). A hit takes the lock of its
//! bucket, marks the header and takes no other lock: who evicts moves what was used since (a clock, as in CAR by Bansal and Modha, 2004). A first second use moves a header from one
//! state to the other, once. Eviction has a thread of its own, for which those wait who find no room at all (`pressure`); the limit is never passed, and follows what the machine has (`store::limit`).
//!
//! Who reads the same places again and again keeps a hand for each ([`Hand`]): it leads to the block past the table, by the header's own line, and to nothing once the
//! block is evicted or forgotten.
//!
//! A block that is being read is in the table as a flight: a second reader waits for the first instead
//! of reading it again. A hit hands out a reference, never a copy.
//!
//! A block that a key makes readable has its dataset in its name, so that one whose key is not loaded never finds what
//! another's key decrypted; the price is that an encrypted dataset and its snapshots share no cached data.
//!
//! Blocks that packed well are held packed too, and under pressure no longer plain (`forms`, `store::packed`): a hit unpacks them.
//!
//! Who foresees what is read next has it read ahead, behind those who wait for what they read (`ahead`), and marked: its first use is its first, and counted apart. Nothing is read ahead where there
//! is no room, nor while a quarter of the memory holds what nobody has asked for.
//!
//! # Locks
//! A bucket's lock, then a sublist's; whoever evicts holds a sublist's only to take some out of it. None is held across a read, nor while somebody waits for room.
//! Waiters of a flight sleep on the flight's own condition.
//!
//! # Absent
//! No dirty data.

mod ahead;
mod balance;
mod cache;
mod forms;
mod header;
mod l2;
mod multilist;
mod policy;
mod pressure;
mod recipe;
mod second;
mod store;
mod sync;
pub mod tunables;

pub use ahead::{Foreseen, Run, Zfetch};
pub use cache::{Ask, Cache, Came, ReadingAhead, Room};
pub use l2::{CacheDevice, CacheDeviceStats};
pub use multilist::Evenness;
pub use policy::{Policy, Which};
pub use second::Second;
pub use store::{Hand, Memory, Stats, Store, Sublists};
