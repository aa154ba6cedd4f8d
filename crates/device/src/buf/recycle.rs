//! Memory of dropped buffers, for buffers that will be overwritten.
//!
//! # Theory
//! A new buffer must be filled with zeros, and its pages may be new to the process. Both cost about
//! as much as the read that follows. A stream, a scan or a writer drops a buffer for each that it
//! takes, though writers drop those of a transaction group at once. So the memory of some dropped
//! buffers is kept, the last dropped first. The allocator gives most of it back to the system.
//!
//! Kept memory was written once, so no byte of it is undefined. It has bytes of other blocks.
//!
//! # Life
//! At most [`LEAST_LIMIT`] bytes are kept, or more after [`set_memory`]. [`shrink`] frees what no
//! buffer has used since its last call, of each size class. A daemon calls both, the second once a
//! second. To take as many bytes as may be kept frees unused memory, too: that of sizes which no
//! buffer has any more.
//!
//! # Locks
//! One for each size class, for a push or a pop.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::{SECTOR, Sector};

/// Most bytes that are kept at first.
const LEAST_LIMIT: usize = 16 << 20;
/// Most bytes that are kept on a large machine: what is written in half a second.
const MOST_LIMIT: usize = 256 << 20;
/// Bytes of the smallest buffer that is kept. For smaller ones the allocator is as fast.
const LEAST: usize = 16 << 10;
/// Size classes: four for each power of two, as the allocator has, up to 16 MiB.
const CLASSES: usize = 41;

/// Memory that is kept.
pub(super) struct Recycle {
    classes: [Mutex<Class>; CLASSES],
    /// Bytes kept.
    bytes: AtomicUsize,
    /// Most bytes that are kept.
    limit: AtomicUsize,
    /// Bytes that were taken since memory that no buffer uses was last freed.
    taken: AtomicUsize,
}

/// Memory for buffers of one size class. The last dropped is at the end.
struct Class {
    kept: Vec<Vec<Sector>>,
    /// The least number kept since the last call of [`Recycle::shrink`].
    idle: usize,
}

/// That of all buffers.
pub(super) static ALL: Recycle = Recycle::new();

/// The size class of a buffer: the number of the class, and sectors of its buffers. `None` if such
/// buffers are not kept.
fn class(sectors: usize) -> Option<(usize, usize)> {
    const FIRST: usize = LEAST / SECTOR;
    if sectors < FIRST {
        return None;
    }
    let power = sectors.ilog2();
    let step = 1usize << (power - 2);
    let quarter = (sectors - (1 << power)).div_ceil(step);
    let number = (power - FIRST.ilog2()) as usize * 4 + quarter;
    (number < CLASSES).then_some((number, (1 << power) + quarter * step))
}

impl Recycle {
    const fn new() -> Self {
        Self {
            classes: [const { Mutex::new(Class { kept: Vec::new(), idle: 0 }) }; CLASSES],
            bytes: AtomicUsize::new(0),
            limit: AtomicUsize::new(LEAST_LIMIT),
            taken: AtomicUsize::new(0),
        }
    }

    /// Takes memory of `sectors` sectors with any content.
    pub(super) fn take(&self, sectors: usize) -> Vec<Sector> {
        let mut taken = self.take_part(sectors);
        taken.resize(sectors, Sector([0; SECTOR]));
        taken
    }

    /// Takes memory for `sectors` sectors, of which some have any content, perhaps none or more.
    pub(super) fn take_part(&self, sectors: usize) -> Vec<Sector> {
        let Some((number, capacity)) = class(sectors) else { return Vec::with_capacity(sectors) };
        let bytes = capacity * SECTOR;
        let limit = self.limit.load(Ordering::Relaxed);
        // Of several that reach the limit at once, one frees.
        if self.taken.fetch_add(bytes, Ordering::Relaxed) + bytes > limit
            && self.taken.swap(0, Ordering::Relaxed) > limit
        {
            self.shrink();
        }
        let kept = self.classes[number].lock().ok().and_then(|mut class| {
            let kept = class.kept.pop();
            class.idle = class.idle.min(class.kept.len());
            kept
        });
        let taken = kept.unwrap_or_else(|| Vec::with_capacity(capacity));
        // What is kept is not empty.
        if !taken.is_empty() {
            self.bytes.fetch_sub(taken.capacity() * SECTOR, Ordering::Relaxed);
        }
        taken
    }

    /// Keeps the memory of a dropped buffer, if that is worth it and there is space.
    pub(super) fn give(&self, sectors: Vec<Sector>) {
        let capacity = sectors.capacity();
        // Only memory that any buffer of its class fits into.
        let Some((number, _)) = class(capacity).filter(|(_, size)| *size == capacity) else { return };
        let bytes = capacity * SECTOR;
        let limit = self.limit.load(Ordering::Relaxed);
        let fits = self.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes <= limit;
        match self.classes[number].lock() {
            Ok(mut class) if fits && !sectors.is_empty() => class.kept.push(sectors),
            _ => drop(self.bytes.fetch_sub(bytes, Ordering::Relaxed)),
        }
    }

    fn shrink(&self) {
        for class in &self.classes {
            // Freed without the lock.
            let freed: Vec<Vec<Sector>> = match class.lock() {
                Ok(mut class) => {
                    let idle = class.idle.min(class.kept.len());
                    let freed = class.kept.drain(..idle).collect();
                    class.idle = class.kept.len();
                    freed
                }
                Err(_) => continue,
            };
            let bytes = freed.iter().map(|sectors| sectors.capacity() * SECTOR).sum::<usize>();
            self.bytes.fetch_sub(bytes, Ordering::Relaxed);
        }
    }
}

/// Sets how much is kept, on a machine with this memory: a sixty-fourth, at most [`MOST_LIMIT`].
pub fn set_memory(bytes: u64) {
    let limit = usize::try_from(bytes / 64).unwrap_or(MOST_LIMIT).clamp(LEAST_LIMIT, MOST_LIMIT);
    ALL.limit.store(limit, Ordering::Relaxed);
}

/// Frees the memory that no buffer has used since the last call.
pub fn shrink() {
    ALL.taken.store(0, Ordering::Relaxed);
    ALL.shrink();
}

#[cfg(test)]
mod tests;
