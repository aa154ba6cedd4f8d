//! Memory of dropped buffers, for buffers that will be overwritten.
//!
//! # Theory
//! A new buffer must be filled with zeros, and its pages may be new to the process. Both cost about
//! as much as the read that follows. A stream or a scan drops a buffer for each that it takes. So
//! the memory of some dropped buffers is kept, the last dropped first.
//!
//! Kept memory was written once, so no byte of it is undefined. It has bytes of other blocks.
//!
//! # Life
//! At most [`MOST`] bytes are kept. [`shrink`] frees what was not used since its last call.
//!
//! # Locks
//! One for each size class, for a push or a pop.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::{SECTOR, Sector};

/// Most bytes that are kept.
const MOST: usize = 16 << 20;
/// Bytes of the smallest buffer that is kept. For smaller ones the allocator is as fast.
const LEAST: usize = 16 << 10;
/// Size classes: four for each power of two, as the allocator has, up to 16 MiB.
const CLASSES: usize = 41;

/// Memory that is kept.
pub(super) struct Recycle {
    kept: [Mutex<Vec<Vec<Sector>>>; CLASSES],
    /// Bytes kept.
    bytes: AtomicUsize,
    /// The least of `bytes` since the last call of [`Recycle::shrink`].
    idle: AtomicUsize,
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
        let (bytes, idle) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Self { kept: [const { Mutex::new(Vec::new()) }; CLASSES], bytes, idle }
    }

    /// Takes memory of `sectors` sectors with any content.
    pub(super) fn take(&self, sectors: usize) -> Vec<Sector> {
        let zero = Sector([0; SECTOR]);
        let Some((number, capacity)) = class(sectors) else { return vec![zero; sectors] };
        let kept = self.kept[number].lock().ok().and_then(|mut kept| kept.pop());
        let mut taken = match kept {
            Some(kept) => {
                let bytes = kept.capacity() * SECTOR;
                let left = self.bytes.fetch_sub(bytes, Ordering::Relaxed).saturating_sub(bytes);
                self.idle.fetch_min(left, Ordering::Relaxed);
                kept
            }
            None => Vec::with_capacity(capacity),
        };
        taken.resize(sectors, zero);
        taken
    }

    /// Keeps the memory of a dropped buffer, if that is worth it and there is space.
    pub(super) fn give(&self, sectors: Vec<Sector>) {
        let capacity = sectors.capacity();
        // Only memory that any buffer of its class fits into.
        let Some((number, _)) = class(capacity).filter(|(_, size)| *size == capacity) else { return };
        let bytes = capacity * SECTOR;
        if self.bytes.load(Ordering::Relaxed) + bytes > MOST {
            return;
        }
        let Ok(mut kept) = self.kept[number].lock() else { return };
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        kept.push(sectors);
    }

    fn shrink(&self) {
        let mut idle = self.idle.load(Ordering::Relaxed);
        for class in self.kept.iter().rev() {
            let mut freed = Vec::new();
            if let Ok(mut kept) = class.lock() {
                while idle > 0
                    && let Some(sectors) = kept.pop()
                {
                    let bytes = sectors.capacity() * SECTOR;
                    self.bytes.fetch_sub(bytes, Ordering::Relaxed);
                    idle = idle.saturating_sub(bytes);
                    freed.push(sectors);
                }
            }
        }
        self.idle.store(self.bytes.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

/// Frees the memory that no buffer has used since the last call.
pub fn shrink() {
    ALL.shrink();
}

#[cfg(test)]
mod tests;
