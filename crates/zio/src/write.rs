//! Writing blocks, in batches.
//!
//! # Theory
//! A batch goes through four stages:
//!
//! 1. *Prepare*, on the workers: detect zeros, compress, encrypt, checksum. A block that is a hole
//!    or fits into its pointer is then done.
//! 2. *Place*, on the caller's thread in the order of the requests, so that the same batch always
//!    gets the same places. Keep the old block, find one in the dedup table, overwrite one of this
//!    txg, or allocate. A block without contiguous space becomes a gang block.
//! 3. *Lay out*, on the workers: compute parity.
//! 4. *Issue*, on the workers: join neighbours into contiguous runs, and write each with one system
//!    call.
//!
//! # Crash
//! Nothing of a batch is durable until [`Zio::flush`] has returned. Nothing refers to it before its
//! caller makes it so.
//!
//! # See
//! OpenZFS `zio.c`: `zio_write_compress`, `zio_encrypt`, `zio_checksum_generate`, `zio_nop_write`,
//! `zio_ddt_write`, `zio_dva_allocate`, `zio_write_gang_block`.

mod deferred;
mod early;
mod free;
mod gang;
mod log;
mod place;
mod prepare;
mod unflushed;

use crate::{Error, IoFlags, Priority, Reason, Request, Result, Workers, WriteReq, Zio};
use device::Block;
use ondisk::{Blkptr, CompressKind, Dva, Txg};
use place::{Batch, Bound};
use prepare::{Env, Prepared, Sealed};
use std::sync::Arc;
use vdev::{Laid, Run, Tree};

pub(crate) use deferred::DeferredWrites;
pub use early::EarlyWrite;
pub use unflushed::FlushMark;
pub(crate) use unflushed::Unflushed;

/// How often a block is placed anew before the pool is suspended.
const MAX_TRIES: u32 = 8;

/// A request that has its place.
struct Placed {
    pointer: Blkptr,
    /// `None` if it takes no space.
    sealed: Option<Box<Sealed>>,
}

/// A block that was written.
#[derive(Debug, Clone)]
pub struct Written {
    /// Its pointer.
    pub pointer: Blkptr,
    /// Its compressed bytes, like [`crate::Opened::packed`]. `None` if it is encrypted, takes no
    /// space, or shares the space of another block.
    pub packed: Option<Block>,
}

impl From<Placed> for Written {
    fn from(placed: Placed) -> Self {
        let Placed { pointer, sealed } = placed;
        let stored = pointer.stored().filter(|s| s.compress != CompressKind::Off && !pointer.is_encrypted());
        // The block of the dedup table may be compressed in another way.
        let same = |sealed: &Sealed| {
            let (was, is) = (sealed.pointer.stored(), stored);
            was.zip(is).is_some_and(|(w, i)| (w.compress, w.psize, w.sum) == (i.compress, i.psize, i.sum))
        };
        let packed = sealed.filter(|sealed| same(sealed)).map(|sealed| sealed.bytes);
        Self { pointer, packed }
    }
}

/// Which threads write the runs of a batch.
#[derive(Debug, Clone, Copy)]
enum IssueThreads {
    /// The workers, in the order of offsets on all devices. A device may get several runs at a
    /// time.
    Batch,
    /// A thread for each device, in the order of its offsets.
    Devices,
}

/// Bytes that could not be written to a place.
struct Failed {
    req: usize,
    dva: Dva,
    source: vdev::WriteError,
}

impl Zio {
    /// Writes blocks of a txg that is being synced, spread over `workers` (`zio_write`).
    ///
    /// Returns their pointers in the order of the requests, once the devices have taken them. A
    /// pointer that equals the old one was kept. A pointer with the old one's places was
    /// overwritten there.
    ///
    /// # Errors
    /// What the batch had allocated is given back.
    ///
    /// * [`Error::NoSpace`]: there is no space for a block, and the pool is not attended.
    /// * [`Error::Write`]: too many devices failed, and the pool is not attended.
    /// * [`Error::Suspended`]: the pool is suspended, and its attendance ended.
    /// * [`Error::Key`]: a block has to be encrypted, and its key is not loaded.
    /// * [`Error::Encode`]: a block can't be encoded for storage.
    ///
    /// # Panics
    /// If no allocator has been set ([`Zio::set_space`]).
    pub fn write_batch(&self, txg: Txg, reqs: Vec<WriteReq>, workers: &Workers) -> Result<Vec<Blkptr>> {
        Ok(self.write_batch_packed(txg, reqs, workers)?.into_iter().map(|written| written.pointer).collect())
    }

    /// Writes blocks like [`Zio::write_batch`], and also returns their compressed bytes.
    ///
    /// # Errors
    /// Those of [`Zio::write_batch`].
    ///
    /// # Panics
    /// If no allocator has been set ([`Zio::set_space`]).
    pub fn write_batch_packed(
        &self,
        txg: Txg,
        reqs: Vec<WriteReq>,
        workers: &Workers,
    ) -> Result<Vec<Written>> {
        // The pool may have been suspended for another reason than a write, and may be in use by
        // another host. Then this batch must not write.
        if let Some(first) = reqs.first().filter(|_| !self.suspension().pass()) {
            return Err(Error::Suspended { bookmark: first.bookmark });
        }
        let env = Arc::new(Env::of(self, txg, IoFlags::MUST_SUCCEED));
        let prepared = workers.map(reqs, move |req| env.prepare(req));
        let mut batch = Batch::default();
        let placed = self.place_all(&mut batch, prepared);
        let written = placed.and_then(|placed| self.store(txg, &mut batch, placed, workers));
        match &written {
            Ok(_) => self.give_back_spoiled(txg, &mut batch),
            Err(_) => self.undo(txg, &batch),
        }
        written
    }

    fn place_all(&self, batch: &mut Batch, prepared: Vec<Result<Prepared>>) -> Result<Vec<Placed>> {
        let place = |(n, prepared)| match prepared? {
            Prepared::Done(pointer) => Ok(Placed { pointer, sealed: None }),
            Prepared::Store(sealed) => {
                let pointer = self.place_or_wait(batch, n, &sealed)?;
                Ok(Placed { pointer, sealed: Some(sealed) })
            }
        };
        prepared.into_iter().enumerate().map(place).collect()
    }

    /// Finds a place for a block. If there is none, waits until failed devices are repaired, or
    /// space becomes free.
    ///
    /// A txg can't be repeated, so giving up would stop the pool for good.
    fn place_or_wait(&self, batch: &mut Batch, n: usize, sealed: &Sealed) -> Result<Blkptr> {
        loop {
            match self.place(batch, n, sealed) {
                Err(e @ Error::NoSpace { .. }) => {
                    if !self.suspension().wait(Reason::Io) {
                        return Err(e);
                    }
                    self.displace(sealed.want.txg, batch, &[n]);
                    self.give_back_spoiled(sealed.want.txg, batch);
                }
                done => return done,
            }
        }
    }

    /// Writes placed blocks. A block whose write fails is placed elsewhere and written again. If
    /// nothing works, the pool is suspended; once it is cleared, everything begins anew.
    fn store(
        &self,
        txg: Txg,
        batch: &mut Batch,
        mut placed: Vec<Placed>,
        workers: &Workers,
    ) -> Result<Vec<Written>> {
        let mut tries = 0;
        loop {
            let bound = self.hold(std::mem::take(&mut batch.bound), &placed);
            let failed = self.put(bound, workers, IssueThreads::Batch, |_| Priority::AsyncWrite, |_| true);
            let Some(first) = failed.first() else {
                self.relieve()?;
                return Ok(placed.into_iter().map(Written::from).collect());
            };
            let bookmark = |n: usize| placed[n].sealed.as_ref().expect("what is written was sealed").bookmark;
            let error =
                Error::Write { bookmark: bookmark(first.req), dva: first.dva, source: first.source.clone() };
            let mut again: Vec<usize> = failed.iter().map(|f| f.req).collect();
            if batch.shares(&again) {
                // Other blocks of the batch may point at a block that was not written.
                again = (0..placed.len()).filter(|n| placed[*n].sealed.is_some()).collect();
            }
            again.dedup();
            tries += 1;
            let mut moved = tries % MAX_TRIES != 0 && self.move_away(txg, batch, &mut placed, &again)?;
            while !moved {
                if !self.suspension().wait(Reason::Io) {
                    return Err(error);
                }
                self.displace(txg, batch, &again);
                self.give_back_spoiled(txg, batch);
                moved = self.move_away(txg, batch, &mut placed, &again)?;
            }
        }
    }

    /// Places some requests anew; returns false if there is no space elsewhere.
    fn move_away(&self, txg: Txg, batch: &mut Batch, placed: &mut [Placed], reqs: &[usize]) -> Result<bool> {
        self.displace(txg, batch, reqs);
        for n in reqs {
            let Some(sealed) = placed[*n].sealed.as_mut() else { continue };
            // The old place is not used again.
            sealed.old = None;
            match self.place(batch, *n, sealed) {
                Ok(pointer) => placed[*n].pointer = pointer,
                Err(Error::NoSpace { .. }) => return Ok(false),
                Err(e) => return Err(e),
            }
        }
        Ok(true)
    }

    /// Writes bytes to their devices and waits.
    ///
    /// Returns those that were not written, in the order of their requests. Of the others, the
    /// requests for which `keep` returns true are kept until they are durable. `class` gives the
    /// class of each request. A run of several classes has the class of its first block.
    fn put(
        &self,
        bound: Vec<Bound>,
        workers: &Workers,
        together: IssueThreads,
        class: impl Fn(usize) -> Priority,
        keep: impl Fn(usize) -> bool,
    ) -> Vec<Failed> {
        let whose: Vec<(usize, Txg, Dva, Block)> =
            bound.iter().map(|b| (b.req, b.txg, b.dva, b.bytes.clone())).collect();
        let now = self.tree();
        let tree = Arc::clone(&now);
        let lay = move |b: Bound| tree.lay_out_padded(b.dva.vdev, b.dva.offset.0, &b.bytes, b.txg);
        let (mut laid, mut places, mut failed) =
            (Vec::<Laid>::with_capacity(whose.len()), Vec::new(), Vec::new());
        for (result, place) in workers.map(bound, lay).into_iter().zip(whose) {
            match result {
                Ok(l) => {
                    laid.push(l);
                    places.push(place);
                }
                Err(e) => failed.push(Failed { req: place.0, dva: place.2, source: e.into() }),
            }
        }
        let tree: Arc<Tree> = Arc::clone(&now);
        let runs = vdev::join(&laid).into_iter().filter(|run| !run.is_padding()).collect();
        let classes: Vec<Priority> = places.iter().map(|(req, ..)| class(*req)).collect();
        let issue = move |run: Run| tree.issue(&run, &Request::new(classes[run.first_block()]));
        let mut refused = match together {
            IssueThreads::Batch => workers.map(runs, issue),
            IssueThreads::Devices => {
                let each = |runs: Vec<Run>| runs.into_iter().flat_map(&issue).collect();
                workers.at_once(vdev::by_device(runs), each)
            }
        }
        .concat();
        refused.sort_by_key(|r| r.block);
        let mut kept = Vec::new();
        let mut rest = refused.as_slice();
        for (n, (laid, (req, txg, dva, bytes))) in laid.iter().zip(places).enumerate() {
            let (mine, others) = rest.split_at(rest.partition_point(|r| r.block <= n));
            rest = others;
            match now.conclude(laid, mine) {
                Ok(_) if keep(req) => kept.push((txg, dva, bytes)),
                Ok(_) => {}
                Err(source) => failed.push(Failed { req, dva, source }),
            }
        }
        if !kept.is_empty() {
            self.keep(kept);
        }
        failed.sort_by_key(|f| f.req);
        failed
    }
}

#[cfg(test)]
mod tests;
