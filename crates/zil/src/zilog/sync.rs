//! The log's part in the sync of a transaction group.

use super::Zilog;
use super::chain::{BlockState, Chain};
use crate::{Error, Result};
use dmu::Tx;
use observe::work::{self, Wait};
use ondisk::zil::ZilHeader;
use ondisk::{Blkptr, Txg, VdevId};
use std::sync::atomic::Ordering;

impl Zilog {
    /// Begins to remove the log, because the object set takes no more changes (`zil_close`).
    ///
    /// Committed changes stay durable: the txg of `tx` replaces the log. The object set must stay
    /// live until that txg has synced.
    ///
    /// # Errors
    /// * [`Error::Dmu`]: the object set is not open for changes.
    pub fn close(&self, tx: &Tx) -> Result<()> {
        let mut chain = self.chain.lock();
        chain.closing = true;
        self.note_work();
        Chain::wake(chain);
        self.os.touch(tx).map_err(|source| Error::Dmu { objset: self.os.id(), source })
    }

    /// Ends a log of which nothing is on disk and nothing waits, so that no txg has to remove it.
    ///
    /// Then the object set needs no change, and may go at once. Returns the newest txg with changes
    /// that were not logged; `None` if the log must be closed. The caller doesn't use the log
    /// again.
    pub fn leave(&self) -> Option<Txg> {
        // Both are locked, so that no work comes in between.
        let (pending, mut chain) = (self.pending.lock(), self.chain.lock());
        let is_empty = chain.blocks.is_empty() && chain.header.is_none() && !chain.has_sa_xattrs;
        // A take that has not ended holds records.
        let has_taken = pending.takes != chain.taken;
        chain.left = is_empty && !has_taken && pending.is_empty() && chain.rests();
        // The next log doesn't know what a commit of this one could not write.
        let lost = if chain.lost > 0 { self.groups.open() } else { Txg(0) };
        chain.left.then_some(pending.unlogged.max(lost))
    }

    /// Gives the log up, which can't be closed: it is left as after a crash.
    pub fn give_up(&self) {
        let mut chain = self.chain.lock();
        (chain.closing, chain.left) = (true, true);
    }

    /// Undoes [`Zilog::close`]: the object set takes changes again.
    pub fn reopen(&self) {
        self.chain.lock().closing = false;
    }

    /// True if a block of the chain lies on this vdev.
    pub fn lies_on(&self, vdev: VdevId) -> bool {
        self.chain.lock().blocks.iter().any(|block| {
            block.bp.stored().is_some_and(|stored| stored.copies().any(|copy| copy.vdev == vdev))
        })
    }

    /// Ends the chain, so that a later chain is allocated elsewhere (`zil_reset`).
    ///
    /// Its records stay durable until their txgs have synced, and commits wait for txgs until then.
    ///
    /// # Errors
    /// * [`Error::Dmu`]: the object set is not open for changes.
    pub fn begin_anew(&self, tx: &Tx) -> Result<()> {
        let mut chain = self.chain.lock();
        if !chain.blocks.is_empty() {
            chain.fail();
        }
        self.note_work();
        Chain::wake(chain);
        self.os.touch(tx).map_err(|source| Error::Dmu { objset: self.os.id(), source })
    }

    /// True if the log is closed and nothing is left of it.
    pub fn is_gone(&self) -> bool {
        let chain = self.chain.lock();
        chain.closing && chain.blocks.is_empty() && !chain.issuing && chain.header.is_none()
    }

    /// Frees the blocks that the txg of `tx` makes superfluous, and moves the header past them.
    ///
    /// The sync thread calls this before it writes the object set (`zil_sync`).
    ///
    /// # Errors
    /// The txg must not reach the disk after an error.
    ///
    /// * [`Error::Free`]: a block can't be freed.
    /// * [`Error::Dmu`]: the object set is not open for changes.
    pub fn sync(&self, tx: &Tx) -> Result<()> {
        let txg = tx.txg();
        let (freed, header, ended) = {
            let mut chain = self.chain.lock();
            while chain.flies_for(txg) {
                let _waiting = work::wait(Wait::Log, 0);
                self.landed.wait(&mut chain);
            }
            let mut freed: Vec<Blkptr> = Vec::new();
            while let Some(front) = chain.blocks.front() {
                let done = match front.state {
                    BlockState::Durable | BlockState::Failed => true,
                    BlockState::Next => (chain.broken || chain.closing) && !chain.issuing,
                    BlockState::Flying => false,
                };
                if !done || front.alloc_txg > txg || front.max_txg > txg {
                    break;
                }
                freed.push(front.bp);
                chain.blocks.pop_front();
            }
            if chain.blocks.is_empty() {
                chain.broken = false;
            }
            // A chain that has just begun gets its header when its txg syncs.
            let front = chain.blocks.front().filter(|b| b.alloc_txg <= txg || chain.header.is_some());
            let header = front.map(|b| b.bp);
            let changed = header != chain.header;
            chain.header = header;
            let ended = header.is_none() && (changed || chain.closing);
            chain.has_sa_xattrs &= !ended;
            Chain::wake(chain);
            (freed, changed.then_some(header), ended)
        };
        let zio = self.os.cache().zio();
        for bp in &freed {
            zio.free(txg, bp).map_err(|source| Error::Free { objset: self.os.id(), source })?;
        }
        if ended && let Some(uses) = &self.sa_xattrs {
            uses(false);
        }
        if let Some(log) = header {
            let log = log.unwrap_or(Blkptr::HOLE);
            let header =
                ZilHeader { claim_txg: 0, replay_seq: 0, log, claim_blk_seq: 0, flags: 0, claim_lr_seq: 0 };
            self.os
                .set_zil_header(tx, header.encode())
                .map_err(|source| Error::Dmu { objset: self.os.id(), source })?;
        }
        Ok(())
    }

    /// Drops the records of txgs that are on disk (`zil_clean`).
    ///
    /// Calls `rest` if the log has nothing to do in later syncs, until it calls
    /// [`crate::Groups::note_work`] again.
    pub fn clean(&self, synced: Txg, rest: impl FnOnce()) {
        let mut pending = self.pending.lock();
        let gone = pending.clean(synced);
        // Both are locked, so that no work comes in between.
        let chain = self.chain.lock();
        if pending.is_empty() && chain.rests() && !chain.left {
            rest();
            self.busy.store(false, Ordering::Release);
        }
        drop((chain, pending));
        drop(gone);
    }

    /// Whether syncs have nothing to do for the log.
    pub fn rests(&self) -> bool {
        // Both are locked, so that none of them is being changed.
        let (pending, chain) = (self.pending.lock(), self.chain.lock());
        pending.is_empty() && chain.rests()
    }
}
