//! Deferred metadata writes: metadata that waits until its txg is written.
//!
//! # Theory
//! A txg writes its metadata in many small batches, one for each stage and pass. Each block has two
//! or three copies far from each other, and much of it is written once in every pass. Without
//! deferral, a disk would seek for each: sixty seeks for a txg that creates one file. So these
//! blocks are held, and written together, sorted by offset, before the devices are flushed. Of a
//! block that a later pass overwrites, only the last version is written. Readers of a held block
//! get it from here.
//!
//! A block with a single copy is not held. If its write fails it must be placed anew, but the
//! places of a held block are already known to others. A held block counts as written as soon as
//! one copy is. The DTLs record what devices then lack. The block is also recorded as unhealed, and
//! examined before the next txg. If no copy is written, the pool is suspended, and the rest is
//! written when it is cleared.
//!
//! # Locks
//! `sweeping` is held across writes. A write to a place that a held block has, or had, must not be
//! overtaken by the held block. The table's lock is held for a few instructions.
//!
//! # Crash
//! Only blocks that are held, or not written either, refer to a held block: the uberblock follows
//! the flush.
//!
//! # See
//! OpenZFS `vdev_queue_io_to_issue`, which sorts the I/O that is under way at one time.

use super::place::Bound;
use super::{Failed, IssueThreads, Placed};
use crate::{Bookmark, Error, Priority, Reason, Result, Zio};
use device::Block;
use observe::lock::Mutex;
use ondisk::{Dva, Offset, Txg, VdevId};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Bytes of blocks that are held before they are written.
const HELD_MAX: u64 = 16 << 20;

/// A block that is held.
#[derive(Clone)]
struct Waiting {
    txg: Txg,
    dvas: [Option<Dva>; 3],
    bytes: Block,
    bookmark: Bookmark,
}

#[derive(Default)]
struct Table {
    /// In the order in which they came.
    blocks: BTreeMap<u64, Waiting>,
    /// The places of their copies.
    places: HashMap<(VdevId, Offset), u64>,
    next: u64,
    bytes: u64,
}

/// The held blocks of a pool; see the module.
#[derive(Default)]
pub(crate) struct DeferredWrites {
    on: AtomicBool,
    table: Mutex<Table>,
    /// Number of blocks; a read checks it first.
    count: AtomicUsize,
    sweeping: Mutex<()>,
}

fn place(dva: &Dva) -> (VdevId, Offset) {
    (dva.vdev, dva.offset)
}

impl Table {
    fn put(&mut self, waiting: Waiting) {
        for dva in waiting.dvas.iter().flatten() {
            self.forget(place(dva));
        }
        self.bytes += waiting.bytes.len() as u64;
        self.places.extend(waiting.dvas.iter().flatten().map(|dva| (place(dva), self.next)));
        self.blocks.insert(self.next, waiting);
        self.next += 1;
    }

    /// Drops the block that has a copy at a place.
    fn forget(&mut self, at: (VdevId, Offset)) {
        if let Some(n) = self.places.get(&at).copied() {
            self.take(n);
        }
    }

    fn take(&mut self, n: u64) {
        if let Some(gone) = self.blocks.remove(&n) {
            self.bytes -= gone.bytes.len() as u64;
            for dva in gone.dvas.iter().flatten() {
                self.places.remove(&place(dva));
            }
        }
    }
}

impl DeferredWrites {
    fn is_empty(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    fn change<R>(&self, change: impl FnOnce(&mut Table) -> R) -> R {
        let mut table = self.table.lock();
        let out = change(&mut table);
        self.count.store(table.blocks.len(), Ordering::Release);
        out
    }

    /// The held bytes for a place, if they have this size.
    pub(crate) fn at(&self, dva: &Dva, size: usize) -> Option<Block> {
        if self.is_empty() {
            return None;
        }
        let table = self.table.lock();
        let n = table.places.get(&place(dva))?;
        table.blocks.get(n).map(|waiting| waiting.bytes.clone()).filter(|bytes| bytes.len() == size)
    }

    /// Drops held blocks from these places, which get other contents or are given back.
    pub(super) fn forget(&self, places: impl IntoIterator<Item = (VdevId, Offset)>) {
        if self.is_empty() {
            return;
        }
        let places: Vec<_> = places.into_iter().collect();
        let held = |table: &Table| places.iter().any(|at| table.places.contains_key(at));
        if held(&self.table.lock()) {
            let _none_under_way = self.sweeping.lock();
            self.change(|table| places.iter().for_each(|at| table.forget(*at)));
        }
    }
}

impl Placed {
    /// The block to hold, if it may be held: metadata with more than one copy, each contiguous,
    /// which no other block shares.
    fn waiting(&self) -> Option<Waiting> {
        let sealed = self.sealed.as_ref()?;
        let s = self.pointer.stored()?;
        let metadata = sealed.want.level.0 > 0 || sealed.want.kind.is_metadata();
        let whole = s.copies().count() > 1 && s.copies().all(|dva| !dva.gang);
        let (txg, bytes, bookmark) = (sealed.want.txg, sealed.bytes.clone(), sealed.bookmark);
        (metadata && whole && !s.dedup).then_some(Waiting { txg, dvas: s.dvas, bytes, bookmark })
    }
}

impl Zio {
    /// From now on metadata waits for [`Zio::write_held`]. The sync calls that before each flush.
    pub fn hold_writes(&self) {
        self.held.on.store(true, Ordering::Relaxed);
    }

    /// Holds those placed blocks that may be held; returns those to write now.
    pub(super) fn hold(&self, bound: Vec<Bound>, placed: &[Placed]) -> Vec<Bound> {
        let mut now = Vec::new();
        if self.held.on.load(Ordering::Relaxed) {
            let mut done = None;
            for b in bound {
                if done == Some(b.req) {
                    continue;
                }
                match placed[b.req].waiting() {
                    Some(waiting) => {
                        done = Some(b.req);
                        self.held.change(|table| table.put(waiting));
                    }
                    None => now.push(b),
                }
            }
        } else {
            now = bound;
        }
        self.held.forget(now.iter().map(|b| place(&b.dva)));
        now
    }

    /// Writes the held blocks, if there are many.
    pub(super) fn relieve(&self) -> Result<()> {
        let full = self.held.table.lock().bytes > HELD_MAX;
        if full { self.write_held() } else { Ok(()) }
    }

    /// Whether nothing is held.
    pub(super) fn holds_nothing(&self) -> bool {
        self.held.is_empty()
    }

    /// Writes all held blocks, those of each device in the order of offsets.
    ///
    /// If no copy of a block is written, the pool is suspended, and the rest is written when it is
    /// cleared.
    ///
    /// # Errors
    /// * [`Error::Write`]: no device takes a block, and the pool is not attended.
    /// * [`Error::Suspended`]: the pool is suspended, and its attendance ended.
    pub fn write_held(&self) -> Result<()> {
        let held = &self.held;
        let _one = held.sweeping.lock();
        loop {
            let (numbers, blocks): (Vec<u64>, Vec<Waiting>) =
                held.table.lock().blocks.iter().map(|(n, waiting)| (*n, waiting.clone())).unzip();
            let Some(first) = blocks.first() else { return Ok(()) };
            if !self.suspension().pass() {
                return Err(Error::Suspended { bookmark: first.bookmark });
            }
            let bound = blocks.iter().enumerate().flat_map(|(req, waiting)| {
                let Waiting { txg, dvas, bytes, .. } = waiting;
                dvas.iter().flatten().map(move |dva| Bound {
                    req,
                    txg: *txg,
                    dva: *dva,
                    bytes: bytes.clone(),
                })
            });
            let failed = self.put(
                bound.collect(),
                &self.workers(),
                IssueThreads::Devices,
                |_| Priority::AsyncWrite,
                |_| true,
            );
            let mut lost = HashSet::new();
            let mut error = None;
            for copies in failed.chunk_by(|a, b| a.req == b.req) {
                let [Failed { req, dva, source }, ..] = copies else { continue };
                let waiting = &blocks[*req];
                if copies.len() == waiting.dvas.iter().flatten().count() {
                    lost.insert(numbers[*req]);
                    let (bookmark, source) = (waiting.bookmark, source.clone());
                    error.get_or_insert(Error::Write { bookmark, dva: *dva, source });
                } else {
                    self.unhealed().note(&waiting.bookmark, waiting.txg);
                }
            }
            held.change(|table| numbers.iter().filter(|n| !lost.contains(n)).for_each(|n| table.take(*n)));
            let Some(error) = error else { return Ok(()) };
            if !self.suspension().wait(Reason::Io) {
                return Err(error);
            }
        }
    }
}
