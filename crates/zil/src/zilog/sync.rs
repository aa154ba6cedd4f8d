//! What a group does to the log when it syncs.

use super::Zilog;
use super::chain::{BlockState, Chain};
use crate::{Error, Result};
use dmu::Tx;
use ondisk::zil::ZilHeader;
use ondisk::{Blkptr, Txg, VdevId};

impl Zilog {
    /// The log is to go: nobody changes the object set any more. What was committed stays so, by the group of `tx`, which takes the log's place;
    /// until it has synced the object set must stay live.
    ///
    /// # Errors
    /// [`Error::Dmu`] if the object set can't be changed.
    pub fn close(&self, tx: &Tx) -> Result<()> {
        let mut chain = self.chain.lock();
        chain.closing = true;
        Chain::wake(chain);
        self.os.touch(tx).map_err(|source| Error::Dmu { objset: self.os.id(), source })
    }

    /// Undoes [`Zilog::close`]: somebody changes the object set again.
    pub fn reopen(&self) {
        self.chain.lock().closing = false;
    }

    /// True if a block of it lies on this vdev.
    pub fn lies_on(&self, vdev: VdevId) -> bool {
        self.chain.lock().blocks.iter().any(|block| {
            block.bp.stored().is_some_and(|stored| stored.copies().any(|copy| copy.vdev == vdev))
        })
    }

    /// The chain ends here: what is in it stays durable until its groups have synced, and commits wait for groups until then. The next chain lies
    /// where there is room for it then.
    ///
    /// # Errors
    /// [`Error::Dmu`] if the object set can't be changed.
    pub fn begin_anew(&self, tx: &Tx) -> Result<()> {
        let mut chain = self.chain.lock();
        if !chain.blocks.is_empty() {
            chain.fail();
        }
        Chain::wake(chain);
        self.os.touch(tx).map_err(|source| Error::Dmu { objset: self.os.id(), source })
    }

    /// True if nothing is left of it.
    pub fn is_gone(&self) -> bool {
        let chain = self.chain.lock();
        chain.closing && chain.blocks.is_empty() && !chain.issuing && chain.header.is_none()
    }

    /// Frees the blocks that the group of `tx` makes superfluous, and has the header point behind them (`zil_sync`): called by the thread that syncs
    /// the group, before it writes the object set.
    ///
    /// # Errors
    /// As freeing fails: the group must not reach the disk.
    pub fn sync(&self, tx: &Tx) -> Result<()> {
        let txg = tx.txg();
        let (freed, header, ended) = {
            let mut chain = self.chain.lock();
            while chain.flies_for(txg) {
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
            // Until its group syncs, a chain that has just begun is in no header.
            let front = chain.blocks.front().filter(|b| b.alloc_txg <= txg || chain.header.is_some());
            let header = front.map(|b| b.bp);
            let changed = header != chain.header;
            chain.header = header;
            let ended = header.is_none() && (changed || chain.closing);
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

    /// A group is on disk: its records are not needed any more (`zil_clean`).
    pub fn clean(&self, synced: Txg) {
        let gone = self.pending.lock().clean(synced);
        drop(gone);
    }
}
