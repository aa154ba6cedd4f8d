//! The adaptive replacement cache.
//!
//! # Theory
//! Blocks are cached by where they are and when they were born: a copy-on-write pool never puts two different
//! blocks under one such name. The cache is cut into shards, one lock each, so that two readers of different
//! blocks rarely meet; each shard keeps a list of blocks that were used once and one of blocks that were used
//! again, and a scan of once-used blocks cannot push the others out (the MRU and MFU states of OpenZFS's
//! `arc.c`; ghosts and adaptation are not here yet: once-used blocks may take at most half of a full shard).
//!
//! A block that is being read is in the table as a flight: a second reader waits for the first instead
//! of reading it again. A hit hands out a reference, never a copy.
//!
//! A block that a key makes readable has its dataset in its name, so that one whose key is not loaded never finds what
//! another's key decrypted; the price is that an encrypted dataset and its snapshots share no cached data.
//!
//! # Locks
//! A shard's lock is held for a look-up or an insertion, never across a read. Waiters of a flight sleep on the
//! flight's own condition.
//!
//! # Absent
//! No L2ARC, no compressed buffers, no dirty data.

mod cache;
mod shard;

pub use cache::{Cache, Stats};

#[cfg(test)]
mod tests;
