//! Replaying a volume's log (`zvol_replay_vector`).
//!
//! # Theory
//! A volume's records are writes, frees and clones of blocks. Each changes the one data object, in
//! the txg of its transaction.

use crate::{Error, Result, Volume, ZVOL_OBJ};
use dmu::{Objset, Tx};
use dsl::Need;
use ondisk::zil::{RecordBody, RecordHeader, Write, ZilHeader};
use ondisk::{BlkId, Corrupt};
use std::sync::Arc;
use zil::{Log, ReplayError, Replayed, Replayer, TxSource};

const WHAT: &str = "intent log record";

/// Replays the log of the volume that a live object set holds.
///
/// No other handle may have the volume open.
///
/// # Errors
/// The log stays, and a later replay continues where this one stopped.
///
/// * [`ReplayError::Open`]: the volume can't be opened; see [`Volume::open`].
/// * [`ReplayError::Record`]: the pool is stopped or full, or a device or key is missing.
/// * [`ReplayError::Unreadable`]: a block of the log can't be read.
///
/// # Panics
/// If `os` is not live.
pub fn replay(
    os: &Objset,
    log: &Log,
    txs: Arc<dyn TxSource>,
) -> std::result::Result<Replayed<Error>, ReplayError<Error>> {
    let volume = Volume::open(os).map_err(|source| ReplayError::Open { source })?;
    log.replay(&Replay { volume, txs }, &mut |tx: &Tx, header: &ZilHeader| {
        os.set_zil_header(tx, header.encode()).expect("a live object set takes a header");
    })
}

struct Replay {
    volume: Volume,
    txs: Arc<dyn TxSource>,
}

fn bad(field: &'static str, value: u64) -> Error {
    Error::Corrupt(Corrupt::Range { what: WHAT, field, value })
}

impl Replay {
    /// Checks that a range lies in the volume as it is now: the volume may have become smaller
    /// since the record.
    fn within(&self, foid: u64, offset: u64, length: u64) -> Result<()> {
        if foid != ZVOL_OBJ.0 {
            return Err(bad("object", foid));
        }
        let block = self.volume.block_size();
        let size = self.volume.size().div_ceil(block).saturating_mul(block);
        let end = offset.checked_add(length).filter(|end| *end <= size);
        end.map(drop).ok_or(Error::PastEnd { offset, len: length, size })
    }

    fn write(&self, tx: &Tx, w: &Write) -> Result<()> {
        self.within(w.foid, w.offset, w.length)?;
        let mut at = w.offset;
        if let Some(bp) = &w.blkptr {
            // The record brings all of the block.
            at -= at.checked_rem(bp.lsize.0).unwrap_or(0);
        }
        let len = w.data.len() as u64;
        self.within(w.foid, at, len)?;
        if at.saturating_add(len) < w.offset.saturating_add(w.length) {
            return Err(bad("length", w.length));
        }
        Ok(self.volume.dnode().write_at(tx, at, &w.data)?)
    }
}

impl Replayer for Replay {
    type Error = Error;

    fn tx(&self, bytes: u64) -> Result<Tx> {
        // The first execution of the operation reserved the space.
        Ok(self.txs.tx(Need::netfree(bytes.max(self.volume.block_size())))?)
    }

    fn apply(&self, tx: &Tx, _: &RecordHeader, body: &RecordBody) -> Result<()> {
        match body {
            RecordBody::Commit => Ok(()),
            RecordBody::Write(w) => self.write(tx, w),
            RecordBody::Truncate { foid, offset, length } => {
                self.within(*foid, *offset, *length)?;
                Ok(self.volume.dnode().free_range(tx, *offset, *length)?)
            }
            RecordBody::CloneRange(c) => {
                self.within(c.foid, c.offset, c.length)?;
                let block = self.volume.block_size();
                let whole = c.blksz == block && c.offset.is_multiple_of(block);
                if !whole || c.length.div_ceil(block) != c.blkptrs.len() as u64 {
                    return Err(bad("block size", c.blksz));
                }
                Ok(self.volume.dnode().clone_pointers(tx, BlkId(c.offset / block), &c.blkptrs)?)
            }
            RecordBody::Create(_)
            | RecordBody::Remove { .. }
            | RecordBody::Link { .. }
            | RecordBody::Rename(_)
            | RecordBody::Setattr(_)
            | RecordBody::Acl { .. }
            | RecordBody::SetSaXattr { .. } => {
                Err(Error::Corrupt(Corrupt::Shape { what: WHAT, why: "it is none of a volume's" }))
            }
        }
    }

    fn ends(&self, error: &Error) -> bool {
        match error {
            Error::Stopped { .. } | Error::NoSpace | Error::Quota => false,
            Error::Dmu(e) => !zil::may_pass(e),
            _ => true,
        }
    }
}

impl From<zio::Error> for Error {
    fn from(e: zio::Error) -> Self {
        Error::Dmu(dmu::Error::from(e))
    }
}
