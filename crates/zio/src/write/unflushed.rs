//! Making writes durable, even on devices whose flush fails.
//!
//! # Theory
//! When a flush fails, it is not known which earlier writes are on the device. Another flush proves
//! nothing, since systems forget what they could not write. A device that the pool can do without
//! is then faulted. For a device that the pool needs, there is only one way: to write everything
//! again. So written bytes are kept until a flush has succeeded, and flushes in between limit their
//! amount.
//!
//! The same goes for a device that was missing and is available again: a loss of its power may have
//! lost what it had taken.
//!
//! # See
//! OpenZFS `zio_flush`, which trusts the device.

use crate::{Reason, Zio};
use device::{Block, DeviceError, Op};
use ondisk::{Dva, Guid, Offset, Txg, VdevId};
use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use vdev::{FlushError, Priority, Request};

/// Bytes that are kept before there is a flush.
const KEEP_MAX: u64 = 64 << 20;

/// What devices were given and may not hold durably.
#[derive(Default)]
pub(crate) struct Unflushed {
    /// In the order in which it was written. `None` if the place has been given back since, and may
    /// hold another block.
    blocks: VecDeque<(Txg, Dva, Option<Block>)>,
    bytes: u64,
    /// Number of blocks that were dropped from the front.
    gone: u64,
    /// A flush that failed. Everything is to be written again before the next one counts, whatever
    /// happened to the device's errors meanwhile. It stays, and nothing is dropped, until a flush
    /// after the rewrite has succeeded.
    failed: Option<FlushError>,
    /// Number of failed flushes. One that fails while another succeeds makes that one worthless.
    failures: u64,
    /// The last failed flush.
    last: Option<FlushError>,
}

/// A point in time: the number of flushes that failed before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlushMark(u64);

impl Unflushed {
    /// The end of all that has been written: a flush that begins now makes it durable.
    fn mark(&self) -> u64 {
        self.gone + self.blocks.len() as u64
    }

    /// Records that a flush failed, or proves nothing.
    fn fail(&mut self, e: FlushError) {
        self.last = Some(e.clone());
        self.failed.get_or_insert(e);
        self.failures += 1;
    }

    /// Drops what was written before `mark`. Logs may be written while others flush.
    fn forget(&mut self, mark: u64) {
        while self.gone < mark
            && let Some((.., bytes)) = self.blocks.pop_front()
        {
            self.gone += 1;
            self.bytes -= bytes.map_or(0, |bytes| bytes.len() as u64);
        }
    }
}

impl Zio {
    /// Makes everything that was written durable (`zio_flush`). A device whose flush fails is
    /// faulted; see [`vdev::Tree::flush`].
    ///
    /// If the pool needs the device, the pool is suspended. Once it is cleared, everything since
    /// the last flush is written again.
    ///
    /// # Errors
    /// * [`vdev::FlushError`]: the flush of a device failed that the pool needs, and the pool is
    ///   not attended.
    ///
    /// # Panics
    /// If there are deferred writes that [`Zio::write_held`] has not written.
    pub fn flush(&self, txg: Txg) -> Result<(), FlushError> {
        assert!(self.holds_nothing(), "all of a group is written before it is made durable");
        loop {
            let (mark, failed, failures) = {
                let unflushed = self.unflushed.lock();
                (unflushed.mark(), unflushed.failed.clone(), unflushed.failures)
            };
            if let Some(e) = failed
                && !self.write_again()
            {
                return Err(e);
            }
            match self.flush_once(txg) {
                Ok(()) => {
                    let mut unflushed = self.unflushed.lock();
                    if unflushed.failures == failures {
                        unflushed.failed = None;
                        unflushed.forget(mark);
                        return Ok(());
                    }
                }
                Err(e) if !self.suspension().wait(Reason::Io) => return Err(e),
                Err(_) => {}
            }
        }
    }

    /// Distrusts a device that was given up and is about to be used again. What was written since
    /// the last flush is written once more before the next one counts.
    pub fn doubt(&self, guid: Guid) {
        let source = Arc::new(DeviceError::Io {
            op: Op::Flush,
            device: String::new(),
            offset: 0,
            len: 0,
            source: std::io::Error::other("the device had been given up"),
        });
        self.unflushed.lock().fail(FlushError { guid, source });
    }

    /// Flushes like [`Zio::flush`], without waiting. On failure, the caller rewrites what it wrote
    /// and is not kept here.
    ///
    /// # Errors
    /// * [`vdev::FlushError`]: the flush of a device failed that the pool needs.
    pub fn flush_once(&self, txg: Txg) -> Result<(), FlushError> {
        self.flush_leaves(self.tree().devices().map(|(guid, _)| guid).collect(), txg)
    }

    /// The current point in time, for a caller about to write what a failed flush must not lose
    /// ([`Zio::flush_vdevs`]).
    pub fn flush_mark(&self) -> FlushMark {
        FlushMark(self.unflushed.lock().failures)
    }

    /// Flushes these top-level vdevs alone, without waiting. For log blocks that were written since
    /// `since`.
    ///
    /// # Errors
    /// * [`vdev::FlushError`]: the flush of a device failed that the pool needs. Also if any flush
    ///   has failed since `since`, by any caller, even if its blocks were rewritten. Log blocks are
    ///   not rewritten, and a device that failed, or was missing, may lack what it took before.
    pub fn flush_vdevs(&self, vdevs: &[VdevId], txg: Txg, since: FlushMark) -> Result<(), FlushError> {
        self.flush_leaves(vdevs.iter().flat_map(|vdev| self.tree().leaves_of(*vdev)).collect(), txg)?;
        let unflushed = self.unflushed.lock();
        let later = unflushed.last.clone().filter(|_| unflushed.failures != since.0);
        unflushed.failed.clone().or(later).map_or(Ok(()), Err)
    }

    fn flush_leaves(&self, leaves: Vec<Guid>, txg: Txg) -> Result<(), FlushError> {
        let tree = self.tree();
        let workers = self.workers();
        let flush = move |leaf| tree.flush_leaf(leaf, txg);
        let flushed = match leaves.len() > workers.count() {
            true => workers.at_once(leaves, flush),
            false => workers.map(leaves, flush),
        };
        let flushed: Result<(), _> = flushed.into_iter().collect();
        if let Err(e) = &flushed {
            self.unflushed.lock().fail(e.clone());
        }
        flushed
    }

    /// Keeps written bytes until they are durable.
    pub(super) fn keep(&self, blocks: Vec<(Txg, Dva, Block)>) {
        // A pool without an attendant rewrites nothing.
        if !self.suspension().is_attended() {
            return;
        }
        let Some(txg) = blocks.iter().map(|(txg, ..)| *txg).max() else { return };
        let (full, mark, failures) = {
            let mut unflushed = self.unflushed.lock();
            for (txg, dva, bytes) in blocks {
                unflushed.bytes += bytes.len() as u64;
                unflushed.blocks.push_back((txg, dva, Some(bytes)));
            }
            let full = unflushed.bytes > KEEP_MAX && unflushed.failed.is_none();
            (full, unflushed.mark(), unflushed.failures)
        };
        if full {
            // If it fails, everything is kept, and the flush at the txg's end handles it.
            if self.flush_once(txg).is_ok() {
                let mut unflushed = self.unflushed.lock();
                if unflushed.failures == failures {
                    unflushed.forget(mark);
                }
            }
        }
    }

    /// Drops kept bytes of these places, which are about to be given back. They must not overwrite
    /// another block there later.
    pub(super) fn spoil<'d>(&self, dvas: impl IntoIterator<Item = &'d Dva>) {
        let places: HashSet<(VdevId, Offset)> = dvas.into_iter().map(|dva| (dva.vdev, dva.offset)).collect();
        if places.is_empty() {
            return;
        }
        self.held.forget(places.iter().copied());
        let Unflushed { blocks, bytes, .. } = &mut *self.unflushed.lock();
        for (_, _, block) in blocks.iter_mut().filter(|(_, dva, _)| places.contains(&(dva.vdev, dva.offset)))
        {
            *bytes -= block.take().map_or(0, |block| block.len() as u64);
        }
    }

    /// Writes the kept bytes again, in order, until that succeeds. False: the attendance ended.
    fn write_again(&self) -> bool {
        let blocks = self.unflushed.lock().blocks.clone();
        let request = Request::new(Priority::AsyncWrite);
        // Two of them may be at one place, so one after another.
        blocks.iter().all(|(txg, dva, bytes)| {
            let Some(bytes) = bytes else { return true };
            while self.tree().write_block(dva.vdev, dva.offset.0, bytes, *txg, &request).is_err() {
                if !self.suspension().wait(Reason::Io) {
                    return false;
                }
            }
            true
        })
    }
}
