//! Making writes durable, even by devices that fail at it.
//!
//! # Theory
//! When a flush fails, nobody knows what of all that was written before is on the device, and asking it again proves nothing: systems forget what
//! they could not write. A device that the pool can do without is faulted for it. But for one that it can't do without, there is only one
//! way: to write everything again. So what was written is kept until a flush has succeeded, and there are flushes in between, lest that be much. The
//! same goes for a device that was gone and is back: what it had taken before may be gone with its power.
//!
//! # See
//! OpenZFS `zio_flush`, which believes the device.

use crate::{Reason, Zio};
use device::{Block, DeviceError, Op};
use ondisk::{Dva, Guid, Offset, Txg, VdevId};
use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use vdev::{FlushError, Priority, Request};

/// Bytes that are kept before there is a flush.
const KEEP_MAX: u64 = 64 << 20;

/// What devices took and may not hold for good.
#[derive(Default)]
pub(crate) struct Unflushed {
    /// In the order in which it was written; nothing where the place has been given back since, and may be another's.
    blocks: VecDeque<(Txg, Dva, Option<Block>)>,
    bytes: u64,
    /// How many were forgotten.
    gone: u64,
    /// A flush that failed: all is to be written again before the next one counts, whatever became of the device's errors meanwhile. It stands until a
    /// flush after that has succeeded, and nothing is forgotten before.
    failed: Option<FlushError>,
    /// How many failed: one that fails while another succeeds takes its worth.
    failures: u64,
    /// The last one that did.
    last: Option<FlushError>,
}

/// A moment, by the flushes that have failed before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlushMark(u64);

impl Unflushed {
    /// A place behind all that has been written: what a flush that begins now makes durable.
    fn mark(&self) -> u64 {
        self.gone + self.blocks.len() as u64
    }

    /// Notes that a flush failed, or proves nothing.
    fn fail(&mut self, e: FlushError) {
        self.last = Some(e.clone());
        self.failed.get_or_insert(e);
        self.failures += 1;
    }

    /// Forgets what was written before `mark`: who logs writes while others flush.
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
    /// Makes everything that was written durable. A device that fails at it is faulted; see [`vdev::Tree::flush`]. If the pool can't do without
    /// it the pool is suspended, and what was written since the last flush is written again when that is over.
    ///
    /// # Errors
    /// [`vdev::FlushError`] when the pool can't do without a device, and nobody attends the pool.
    ///
    /// # Panics
    /// When there is something that [`Zio::write_held`] has not written.
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

    /// A device that was given up is about to be tried again: what was written since the last flush is written once more before the next one counts.
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

    /// As [`Zio::flush`], without waiting: whoever wrote something that is not kept here writes it again if it fails.
    ///
    /// # Errors
    /// [`vdev::FlushError`] when the pool can't do without a device.
    pub fn flush_once(&self, txg: Txg) -> Result<(), FlushError> {
        self.flush_leaves(self.tree().devices().map(|(guid, _)| guid).collect(), txg)
    }

    /// This moment, for who is going to write what a flush that fails must not lose ([`Zio::flush_vdevs`]).
    pub fn flush_mark(&self) -> FlushMark {
        FlushMark(self.unflushed.lock().failures)
    }

    /// As [`Zio::flush`], for these top-level vdevs alone, and without waiting: what log blocks need that were written since `since`.
    ///
    /// # Errors
    /// As [`Zio::flush`]; also where any flush has failed since, whoever asked for it and whatever was done about it: blocks of logs are not written again, and
    /// a device that failed, or was gone, may lack what it took before.
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

    /// Keeps what was written until it is durable.
    pub(super) fn keep(&self, blocks: Vec<(Txg, Dva, Block)>) {
        // Where nobody waits, nothing is written twice.
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
            // If it fails, all is kept, and the flush at the group's end sees to it.
            if self.flush_once(txg).is_ok() {
                let mut unflushed = self.unflushed.lock();
                if unflushed.failures == failures {
                    unflushed.forget(mark);
                }
            }
        }
    }

    /// These places are about to be given back: what was written there must not be written again, over what somebody else has there then.
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

    /// Writes what is kept again, in its order, until it succeeds. False: nobody attends the pool any more.
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
