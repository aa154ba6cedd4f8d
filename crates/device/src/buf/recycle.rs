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
//! At most [`MOST`] bytes are kept. [`shrink`] frees what no buffer has used since its last
//! call, of each size class.
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
    classes: [Mutex<Class>; CLASSES],
    /// Bytes kept.
    bytes: AtomicUsize,
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
        let bytes = AtomicUsize::new(0);
        Self { classes: [const { Mutex::new(Class { kept: Vec::new(), idle: 0 }) }; CLASSES], bytes }
    }

    /// Takes memory of `sectors` sectors with any content.
    pub(super) fn take(&self, sectors: usize) -> Vec<Sector> {
        let zero = Sector([0; SECTOR]);
        let Some((number, capacity)) = class(sectors) else { return vec![zero; sectors] };
        let kept = self.classes[number].lock().ok().and_then(|mut class| {
            let kept = class.kept.pop();
            class.idle = class.idle.min(class.kept.len());
            kept
        });
        let mut taken = kept.unwrap_or_else(|| Vec::with_capacity(capacity));
        // What is kept is not empty.
        if !taken.is_empty() {
            self.bytes.fetch_sub(taken.capacity() * SECTOR, Ordering::Relaxed);
        }
        taken.resize(sectors, zero);
        taken
    }

    /// Keeps the memory of a dropped buffer, if that is worth it and there is space.
    pub(super) fn give(&self, sectors: Vec<Sector>) {
        let capacity = sectors.capacity();
        // Only memory that any buffer of its class fits into.
        let Some((number, _)) = class(capacity).filter(|(_, size)| *size == capacity) else { return };
        let bytes = capacity * SECTOR;
        let fits = self.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes <= MOST;
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

/// Frees the memory that no buffer has used since the last call.
pub fn shrink() {
    ALL.shrink();
}

#[cfg(test)]
mod tests;
