//! Replaying a log: applying changes again that were fsynced and are in no txg on disk.
//!
//! # Theory
//! A claimed log is read record by record. Each record is applied in a transaction of its own. The
//! log's header gets the record's number in the same txg. So after a crash the header says which
//! records the txgs on disk contain. The next replay continues after them, and each record is
//! applied once.
//!
//! Two kinds of records are skipped:
//!
//! * records of txgs that were on disk when the log was claimed;
//! * records of objects that do not exist, where the record may have been written after the
//!   removal.
//!
//! Opening a dataset for changes replays its log before the dataset is visible, and then destroys
//! the log. Everything that the log refers to ([`Replayed::references`]) is freed in the txg in
//! which its header becomes empty.
//!
//! A record that can't apply ends the replay, as in OpenZFS: later records build on it. An example
//! is a record that creates a file that exists. A block that was good when the log was claimed, and
//! is not now, also ends it. [`Replayed::ended`] reports this. The log is destroyed with the
//! records after that point.
//!
//! # Crash
//! See above. If space, a key or a device is missing, the log stays as it is and can be replayed
//! later.
//!
//! # See
//! OpenZFS `zil_replay`, `zil_replay_log_record`, `zil_destroy`.

use crate::claim::References;
use crate::{Log, LogRecord};
use dmu::Tx;
use ondisk::zil::{RecordBody, RecordHeader, TxKind, ZIL_CLAIM_LR_SEQ_VALID, ZIL_REPLAY_NEEDED, ZilHeader};
use ondisk::{BlkId, Blkptr, ObjNum};
use std::collections::HashSet;

/// Estimate of what a record dirties beside its own bytes: dnodes, directory blocks, the root of
/// the object set.
const RECORD_BYTES: u64 = 16 << 10;

/// Applies records to a file system or a volume (`zil_replay_func_t`).
pub trait Replayer {
    /// Why a record could not be applied.
    type Error: From<zio::Error>;

    /// A transaction for a record that dirties about `bytes`.
    ///
    /// # Errors
    /// The implementation's own error, if the pool gives no transaction: it is stopped or full.
    fn tx(&self, bytes: u64) -> Result<Tx, Self::Error>;

    /// Applies all of a record in the txg of `tx`, without a transaction of its own.
    ///
    /// A write that names a block arrives with all of the block as its data.
    ///
    /// # Errors
    /// The implementation's own error, if the record does not apply, or an object can't be read or
    /// changed. [`Replayer::ends`] tells these cases apart.
    fn apply(&self, tx: &Tx, header: &RecordHeader, body: &RecordBody) -> Result<(), Self::Error>;

    /// True if the error means that the record can never apply, rather than that it failed this
    /// time.
    fn ends(&self, error: &Self::Error) -> bool;
}

/// True for errors of devices, keys or a suspended pool: a later replay may succeed.
pub fn may_pass(error: &dmu::Error) -> bool {
    use zio::Error::{Io, Key, Suspended};
    matches!(error, dmu::Error::Read(Io { .. } | Key { .. } | Suspended { .. }))
}

/// The outcome of a replay.
#[derive(Debug)]
pub struct Replayed<E> {
    /// Number of records that were applied.
    pub records: u64,
    /// What ended the replay before the end of the claim, if anything. No record after it was
    /// applied.
    pub ended: Option<Ended<E>>,
    /// The blocks that the log refers to, to be freed in the txg in which its header becomes empty.
    pub references: Vec<Blkptr>,
}

/// The end of a replay before the end of the log.
#[derive(Debug, thiserror::Error)]
pub enum Ended<E> {
    /// A record can't apply.
    #[error("the intent log ends at record {seq} ({})", kind.name())]
    Record {
        /// The record's number.
        seq: u64,
        /// The record's kind.
        kind: TxKind,
        /// The cause.
        #[source]
        source: E,
    },
    /// A block has changed since the log was claimed.
    #[error("the intent log ends behind record {last}, and had {claimed} when it was claimed")]
    Block {
        /// The last record that was found.
        last: u64,
        /// The last record that was claimed.
        claimed: u64,
    },
}

/// Why a log could not be replayed.
///
/// The log stays, for another attempt.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError<E> {
    /// A record could not be applied this time.
    #[error("record {seq} of the intent log ({}) could not be replayed", kind.name())]
    Record {
        /// The record's number.
        seq: u64,
        /// The record's kind.
        kind: TxKind,
        /// The cause.
        #[source]
        source: E,
    },
    /// The file system or volume of the log can't be opened.
    #[error("what the intent log is to be replayed in")]
    Open {
        /// The cause.
        #[source]
        source: E,
    },
    /// A block of the log can't be read; it was readable when the log was claimed.
    #[error("the intent log cannot be read to its end")]
    Unreadable(#[source] zio::Error),
}

impl Log {
    /// True if the log has records that may need replay (`ZIL_REPLAY_NEEDED`).
    ///
    /// Otherwise it only needs to be destroyed.
    pub fn is_pending(&self) -> bool {
        self.header().claim_txg != 0 && self.header().flags & ZIL_REPLAY_NEEDED != 0
    }

    /// The objects with a [`TxKind::Write2`] record: its bytes are in the block of another record.
    ///
    /// OpenZFS writes such records; Poolhouse does not.
    pub fn grown_later(&self) -> HashSet<ObjNum> {
        let blocks = self.blocks().map_while(Result::ok);
        let records = blocks.flat_map(|block| block.records.into_iter().flatten());
        let grown = records.filter(|r| r.header.kind == TxKind::Write2).filter_map(|r| match r.body {
            Some(RecordBody::Write(w)) => Some(ObjNum(w.foid)),
            _ => None,
        });
        grown.collect()
    }

    /// Replays the log (`zil_replay`).
    ///
    /// `note` stores a header in the object set, in the txg of a transaction.
    ///
    /// # Errors
    /// The log stays, and the next replay continues where this one stopped.
    ///
    /// * [`ReplayError::Record`]: a record could not be applied this time.
    /// * [`ReplayError::Unreadable`]: a block of the log can't be read.
    pub fn replay<R: Replayer>(
        &self,
        by: &R,
        note: &mut dyn FnMut(&Tx, &ZilHeader),
    ) -> Result<Replayed<R::Error>, ReplayError<R::Error>> {
        let mut references = References::new(self.header().claim_txg);
        let (mut records, mut ended, mut last) = (0, None, 0);
        let mut blocks = self.blocks();
        // A block without meaning ends the log, as it did when the log was claimed.
        for block in blocks.by_ref().map_while(Result::ok) {
            references.add(&block);
            for record in block.records.iter().flatten() {
                last = record.header.seq;
                if ended.is_some() || !self.is_due(&record.header) {
                    continue;
                }
                let RecordHeader { seq, kind, .. } = record.header;
                match self.apply(by, record, note) {
                    Ok(()) => records += 1,
                    Err(source) if by.ends(&source) => ended = Some(Ended::Record { seq, kind, source }),
                    Err(source) => return Err(ReplayError::Record { seq, kind, source }),
                }
            }
        }
        if let Some(crate::End::Unreadable(e)) = blocks.end() {
            return Err(ReplayError::Unreadable(e.clone()));
        }
        let claimed = self.header().claim_lr_seq;
        if self.header().flags & ZIL_CLAIM_LR_SEQ_VALID != 0 && last < claimed {
            ended.get_or_insert(Ended::Block { last, claimed });
        }
        Ok(Replayed { records, ended, references: references.into_blocks() })
    }

    /// True if a record was neither replayed nor in a txg on disk at the claim.
    fn is_due(&self, record: &RecordHeader) -> bool {
        let header = self.header();
        record.seq > header.replay_seq && record.txg >= header.claim_txg
    }

    fn apply<R: Replayer>(
        &self,
        by: &R,
        record: &LogRecord,
        note: &mut dyn FnMut(&Tx, &ZilHeader),
    ) -> Result<(), R::Error> {
        let body = self.whole(record)?;
        let data = match &body {
            RecordBody::Write(w) => w.data.len() as u64,
            RecordBody::CloneRange(c) => c.blkptrs.len() as u64 * 512,
            _ => 0,
        };
        let tx = by.tx(record.header.reclen as u64 + data + RECORD_BYTES)?;
        by.apply(&tx, &record.header, &body)?;
        note(&tx, &ZilHeader { replay_seq: record.header.seq, ..*self.header() });
        Ok(())
    }

    /// A record with the data of the block that it names.
    fn whole(&self, record: &LogRecord) -> zio::Result<RecordBody> {
        let Some(body) = record.body.clone() else {
            // Without the key the record's contents are unknown.
            let (objset, object, blkid) = (self.objset().id(), ObjNum(0), BlkId(0));
            let bookmark = zio::Bookmark { objset, object, level: ondisk::Level(0), blkid };
            return Err(zio::Error::Key { bookmark, source: zio::KeyError::NotLoaded { objset } });
        };
        Ok(match body {
            RecordBody::Write(mut w) => {
                if let Some(bp) = &w.blkptr {
                    let blkid = BlkId(w.offset.checked_div(bp.lsize.0).unwrap_or(0));
                    w.data = self.read_block(bp, ObjNum(w.foid), blkid)?.to_vec();
                }
                RecordBody::Write(w)
            }
            body => body,
        })
    }
}
