//! Writing a volume.
//!
//! # Theory
//! A write locks its range, takes a transaction, and changes blocks in memory. Blocks that it
//! covers completely are not read. The change appears on disk with its transaction group. A large
//! write goes through several transactions in order, each applied entirely or not at all.
//!
//! # Locks
//! The range of bytes, then the transaction. Resizing locks all of the volume.
//!
//! # Crash
//! A change is durable with its txg, or when a later [`Volume::flush`] has returned. The intent log
//! makes that quick: bytes and holes have records there. A new size has no record, so its flush
//! waits for the txg.
//!
//! # See
//! OpenZFS `zvol_write`, `zvol_discard`, `zvol_set_volsize`.

use crate::{Error, Result, SIZE, Volume, ZVOL_OBJ};
use dmu::zap::Value;
use dmu::{DirtyBlock, RangeLocks, Tx};
use dsl::Need;
use ondisk::zil::{RecordBody, TxKind};
use ondisk::{BlkId, ObjNum, Txg};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use zil::{Bytes, Missing, Source, SyncMode, TxSource};

/// Most bytes that one transaction writes.
const WRITE_MAX: u64 = 1 << 20;
/// Estimate of what a change dirties beside data blocks, in bytes.
const META_BYTES: u64 = 1024;
/// The largest volume, because offsets of files and devices are signed.
const SIZE_MAX: u64 = i64::MAX as u64;

/// The state of a writable volume.
pub(crate) struct Writer {
    txs: Arc<dyn TxSource>,
    pub(crate) ranges: RangeLocks,
    /// The newest txg that changed this volume.
    newest: AtomicU64,
}

impl std::fmt::Debug for Writer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Writer({:?})", self.ranges)
    }
}

impl Writer {
    pub(crate) fn new(txs: Arc<dyn TxSource>) -> Writer {
        Writer { txs, ranges: RangeLocks::default(), newest: AtomicU64::new(0) }
    }

    fn tx(&self, need: Need) -> Result<Tx> {
        let tx = self.txs.tx(need)?;
        self.newest.fetch_max(tx.txg().0, Ordering::Relaxed);
        Ok(tx)
    }
}

impl Volume {
    pub(crate) fn writer(&self) -> Result<&Writer> {
        self.0.writer.as_ref().ok_or(Error::ReadOnly)
    }

    /// True if the volume is open for writing.
    pub fn is_writable(&self) -> bool {
        self.0.writer.is_some()
    }

    /// Bytes of the blocks that a range touches.
    pub(crate) fn touched(&self, offset: u64, len: u64) -> u64 {
        let block = self.block_size();
        let end = offset.saturating_add(len).div_ceil(block).saturating_mul(block);
        end.saturating_sub(offset / block * block)
    }

    /// Writes all of `data` at byte `offset` (`zvol_write`).
    ///
    /// # Errors
    /// A part of the data may be written when an error other than [`Error::ReadOnly`] or
    /// [`Error::PastEnd`] returns.
    ///
    /// * [`Error::ReadOnly`]: the volume is not open for writing.
    /// * [`Error::PastEnd`]: a part of the range lies past the end of the volume.
    /// * [`Error::NoSpace`]: the pool has no free space.
    /// * [`Error::Quota`]: a quota is exceeded.
    /// * [`Error::Stopped`]: the pool accepts no more changes.
    /// * [`Error::Dmu`]: a block that is changed in part can't be read.
    pub fn write_at(&self, data: &[u8], offset: u64) -> Result<()> {
        let w = self.writer()?;
        let len = data.len() as u64;
        let end = self.check(offset, len)?;
        let range = w.ranges.lock(offset, end, true);
        self.check(offset, len)?;
        let mut done = 0;
        while done < len {
            let at = offset + done;
            // Later pieces begin at block boundaries.
            let most = WRITE_MAX.max(self.block_size());
            let n = (most - at % most).min(len - done);
            let tx = w.tx(Need::growing(self.touched(at, n) + META_BYTES))?;
            let piece = &data[done as usize..(done + n) as usize];
            self.dnode().write_at(&tx, at, piece)?;
            if let Some(log) = w.txs.log() {
                log.log_write(&tx, ZVOL_OBJ, at, piece, log.policy().sync == SyncMode::Always);
            }
            done += n;
        }
        drop(range);
        self.settle(w)
    }

    /// With `sync=always`, makes changes durable before they are acknowledged.
    fn settle(&self, w: &Writer) -> Result<()> {
        match w.txs.log() {
            Some(log) if log.policy().sync == SyncMode::Always => self.flush(),
            _ => Ok(()),
        }
    }

    /// Makes a range read as zeros, and frees its blocks, in time proportional to what it frees.
    ///
    /// This serves discard, unmap and TRIM (`zvol_discard`).
    ///
    /// # Errors
    /// As [`Volume::write_at`].
    pub fn punch(&self, offset: u64, len: u64) -> Result<()> {
        let w = self.writer()?;
        let end = self.check(offset, len)?;
        if end == offset {
            return Ok(());
        }
        let mut pieces = self.dnode().pieces(offset, len)?;
        let mut earlier = None;
        while let Some(piece) = pieces.next_piece()? {
            // Each piece has its own lock. A log commit that wants data of the range waits for one
            // piece, not for all the txgs.
            let range = w.ranges.lock(piece.offset, piece.offset + piece.len, true);
            self.check(piece.offset, piece.len)?;
            let tx = w.tx(Need::netfree(2 * self.block_size() + META_BYTES))?;
            self.dnode().free_range(&tx, piece.offset, piece.len)?;
            if let Some(log) = w.txs.log() {
                let body = RecordBody::Truncate { foid: ZVOL_OBJ.0, offset: piece.offset, length: piece.len };
                log.log_object(&tx, ZVOL_OBJ, TxKind::Truncate, &body);
            }
            let txg = tx.txg();
            drop((tx, range));
            if !piece.last
                && let Some(txg) = earlier.replace(txg)
            {
                w.txs.wait(txg)?;
            }
        }
        self.settle(w)
    }

    /// Frees the part of an unreachable range that is too much for one txg, and reads the indirect
    /// blocks of the rest without a transaction.
    fn free_much(&self, w: &Writer, offset: u64, len: u64) -> Result<()> {
        let mut pieces = self.dnode().pieces(offset, len)?;
        while let Some(piece) = pieces.next_piece()?.filter(|piece| !piece.last) {
            let tx = w.tx(Need::netfree(2 * self.block_size() + META_BYTES))?;
            self.dnode().free_range(&tx, piece.offset, piece.len)?;
            if let Some(log) = w.txs.log() {
                log.unlogged(&tx);
            }
            let txg = tx.txg();
            drop(tx);
            w.txs.wait(txg)?;
        }
        Ok(())
    }

    /// Changes the volume's size: a cut-off end is freed, an added end reads as zeros
    /// (`zvol_set_volsize`).
    ///
    /// # Errors
    /// * [`Error::BadSize`]: the size is 0, too large, or no multiple of the block size.
    /// * All errors of [`Volume::write_at`] except [`Error::PastEnd`].
    pub fn resize(&self, size: u64) -> Result<()> {
        let w = self.writer()?;
        let block = self.block_size();
        if size == 0 || size > SIZE_MAX || !size.is_multiple_of(block) {
            return Err(Error::BadSize { size, block });
        }
        let whole = w.ranges.lock(0, u64::MAX, true);
        let before = self.size();
        if size == before {
            return Ok(());
        }
        let tx = w.tx(Need { bytes: META_BYTES, netfree: size < before })?;
        self.0.props.update(&tx, SIZE, &Value::from(size))?;
        if size > before {
            // An earlier shrinking may not have freed everything past the end.
            self.dnode().free_range(&tx, before, u64::MAX)?;
        }
        self.0.size.store(size, Ordering::Release);
        if let Some(log) = w.txs.log() {
            log.unlogged(&tx);
        }
        drop(tx);
        if size < before {
            // Blocks past the end may be freed in any number of txgs.
            self.free_much(w, size, u64::MAX)?;
            let tx = w.tx(Need::netfree(META_BYTES))?;
            self.dnode().free_range(&tx, size, u64::MAX)?;
            if let Some(log) = w.txs.log() {
                log.unlogged(&tx);
            }
        }
        drop(whole);
        self.settle(w)
    }

    /// Waits until every earlier change is durable, in the intent log or with its txg
    /// (`zil_commit`).
    ///
    /// Returns at once if nothing was changed, or with `sync=disabled`.
    ///
    /// # Errors
    /// * [`Error::Stopped`]: the pool stopped before the changes were durable.
    pub fn flush(&self) -> Result<()> {
        let Some(w) = &self.0.writer else { return Ok(()) };
        if let Some(log) = w.txs.log() {
            return log.commit(Some(ZVOL_OBJ), self).map_err(|e| Error::Stopped { source: Arc::new(e) });
        }
        match w.newest.load(Ordering::Relaxed) {
            0 => Ok(()),
            txg => Ok(w.txs.wait(Txg(txg))?),
        }
    }
}

impl Source for Volume {
    fn data(&self, _: ObjNum, offset: u64, len: usize) -> std::result::Result<Bytes, Missing> {
        let w = self.0.writer.as_ref().ok_or(Missing::Unreadable)?;
        let end = offset.saturating_add(len as u64);
        let _range = w.ranges.lock(offset, end, false);
        // The volume has become smaller since.
        if end > self.size() {
            return Err(Missing::Gone);
        }
        Bytes::of(self.dnode(), offset, len).map_err(|_| Missing::Unreadable)
    }

    fn dirty(&self, _: ObjNum, offset: u64, txg: Txg) -> Option<DirtyBlock> {
        let w = self.0.writer.as_ref()?;
        let _range = w.ranges.lock(offset, offset.saturating_add(1), false);
        self.dnode().dirty_block(txg, BlkId(offset / self.block_size()))
    }
}
