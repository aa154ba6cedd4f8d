//! Writing blocks, in batches.
//!
//! # Theory
//! A batch goes through four stages. *Prepare*, spread over the workers: look for zeros, compress, encrypt, checksum; what is a hole or fits
//! into its pointer is done here. *Place*, on the caller's thread in the order of the requests, so that the same batch always gets the
//! same places: keep the old block, find one in the dedup table, overwrite one of this group, or allocate; a block
//! that has no room in one piece becomes a gang. *Lay out*, on the workers: parity. *Issue*, on the workers: neighbours are joined
//! into runs, one system call each.
//!
//! # Crash
//! Nothing of a batch is durable until [`Zio::flush`] has returned, and nothing refers to it before its caller says so.
//!
//! # See
//! OpenZFS `zio.c`: `zio_write_compress`, `zio_encrypt`, `zio_checksum_generate`, `zio_nop_write`, `zio_ddt_write`,
//! `zio_dva_allocate`, `zio_write_gang_block`.

mod free;
mod gang;
mod log;
mod place;
mod prepare;

use crate::{Error, Result, WriteReq, Zio};
use ondisk::{Blkptr, Dva, Guid, Txg, VdevId};
use place::{Batch, Bound};
use prepare::{Env, Prepared};
use std::sync::Arc;
use vdev::{Laid, Tree};

impl Zio {
    /// Writes blocks of a group, and gives their pointers in the order of the requests, once the devices have taken them. A pointer that
    /// equals the old one was kept; one with the old one's places was written over it.
    ///
    /// # Errors
    /// [`Error::NoSpace`], [`Error::Write`] when too many devices fail, [`Error::Key`], [`Error::Encode`]. What the batch had allocated is
    /// given back then.
    ///
    /// # Panics
    /// When nobody has set the allocator ([`Zio::set_space`]).
    pub fn write_batch(&self, txg: Txg, reqs: Vec<WriteReq>) -> Result<Vec<Blkptr>> {
        let env = Arc::new(Env::of(self, txg));
        let bookmarks: Vec<_> = reqs.iter().map(|r| r.bookmark).collect();
        let prepared = self.workers().map(reqs, move |req| env.prepare(req));
        let mut batch = Batch::default();
        let pointers: Result<Vec<Blkptr>> = (prepared.into_iter().enumerate())
            .map(|(n, prepared)| match prepared? {
                Prepared::Done(bp) => Ok(bp),
                Prepared::Store(sealed) => self.place(&mut batch, n, *sealed),
            })
            .collect();
        let bound = std::mem::take(&mut batch.bound);
        let written = pointers.and_then(|pointers| match self.put(txg, bound) {
            Ok(()) => Ok(pointers),
            Err((n, dva, source)) => Err(Error::Write { bookmark: bookmarks[n], dva, source }),
        });
        if written.is_err() {
            self.undo(txg, &batch);
        }
        written
    }

    /// Hands bytes to their devices and waits for them.
    fn put(&self, txg: Txg, bound: Vec<Bound>) -> std::result::Result<(), (usize, Dva, vdev::WriteError)> {
        let workers = self.workers();
        let whose: Vec<(usize, Dva)> = bound.iter().map(|b| (b.req, b.dva)).collect();
        let now = self.tree();
        let tree = Arc::clone(&now);
        let lay = move |b: Bound| tree.lay_out(b.dva.vdev, b.dva.offset.0, &b.bytes, txg);
        let mut laid: Vec<Laid> = Vec::with_capacity(whose.len());
        for (result, (req, dva)) in workers.map(bound, lay).into_iter().zip(&whose) {
            laid.push(result.map_err(|e| (*req, *dva, e.into()))?);
        }
        let tree: Arc<Tree> = Arc::clone(&now);
        let refused = workers.map(vdev::join(&laid), move |run| tree.issue(&run)).concat();
        for (n, (laid, (req, dva))) in laid.iter().zip(&whose).enumerate() {
            let mine = refused.iter().filter(|r| r.block == n);
            now.conclude(laid, mine).map_err(|e| (*req, *dva, e))?;
        }
        Ok(())
    }

    /// Makes everything that was written durable. A device that fails at it is faulted; see [`vdev::Tree::flush`].
    ///
    /// # Errors
    /// [`vdev::FlushError`] when the pool can't do without it.
    pub fn flush(&self, txg: Txg) -> std::result::Result<(), vdev::FlushError> {
        self.flush_leaves(self.tree().devices().map(|(guid, _)| guid).collect(), txg)
    }

    /// As [`Zio::flush`], for these top-level vdevs alone: what a log block needs.
    ///
    /// # Errors
    /// As [`Zio::flush`].
    pub fn flush_vdevs(&self, vdevs: &[VdevId], txg: Txg) -> std::result::Result<(), vdev::FlushError> {
        self.flush_leaves(vdevs.iter().flat_map(|vdev| self.tree().leaves_of(*vdev)).collect(), txg)
    }

    fn flush_leaves(&self, leaves: Vec<Guid>, txg: Txg) -> std::result::Result<(), vdev::FlushError> {
        let tree = self.tree();
        self.workers().map(leaves, move |leaf| tree.flush_leaf(leaf, txg)).into_iter().collect()
    }
}

#[cfg(test)]
mod tests;
