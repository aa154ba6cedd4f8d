//! Replaying a log: doing again what was fsynced and is in no group on disk.
//!
//! # Theory
//! A claimed log is read record by record, and each of them is applied in a transaction of its own; the log's header gets the record's number in the same
//! group. So a crash at any moment leaves a header that says which records the groups on disk have, and the next replay goes on behind them: each is
//! applied once. Records of groups that were on disk when the log was claimed are passed over, and those of objects that are gone where
//! the record may have been written after the removal. Who opens a dataset to change it replays its log before anybody sees the dataset, and then destroys
//! it: everything that it refers to ([`Replayed::references`]) is free in the group in which its header is empty.
//!
//! A record that can't be, such as one that makes a file that is there, ends the replay, as in OpenZFS: what is behind it builds on it. So does a block that was good
//! when the log was claimed, and is not now. It is told ([`Replayed::ended`]), and the log is destroyed with what it still had.
//!
//! # Crash
//! See above. What fails for want of room, a key or a device leaves the log as it is, to be replayed another time.
//!
//! # See
//! OpenZFS `zil_replay`, `zil_replay_log_record`, `zil_destroy`.

use crate::claim::References;
use crate::{Log, LogRecord};
use dmu::Tx;
use ondisk::zil::{RecordBody, RecordHeader, TxKind, ZIL_CLAIM_LR_SEQ_VALID, ZIL_REPLAY_NEEDED, ZilHeader};
use ondisk::{BlkId, Blkptr, ObjNum};
use std::collections::HashSet;

/// What a record dirties beside its own bytes, about: dnodes, blocks of names, the object set's root.
const RECORD_BYTES: u64 = 16 << 10;

/// Applies records to what they are about.
pub trait Replayer {
    /// Why a record could not be applied.
    type Error: From<zio::Error>;

    /// A transaction for a record that dirties about `bytes`.
    ///
    /// # Errors
    /// As asking for one fails.
    fn tx(&self, bytes: u64) -> Result<Tx, Self::Error>;

    /// Applies a record in the group of `tx`, all of it: it must not take a transaction of its own. A write that names a block comes with
    /// all of the block as its data.
    ///
    /// # Errors
    /// As the operation fails.
    fn apply(&self, tx: &Tx, header: &RecordHeader, body: &RecordBody) -> Result<(), Self::Error>;

    /// Whether an error says that the record can't be, rather than that it could not be applied now.
    fn ends(&self, error: &Self::Error) -> bool;
}

/// Whether an error is one of devices, keys or a suspended pool, which may be over when the log is replayed again.
pub fn may_pass(error: &dmu::Error) -> bool {
    use zio::Error::{Io, Key, Suspended};
    matches!(error, dmu::Error::Read(Io { .. } | Key { .. } | Suspended { .. }))
}

/// What a replay came to.
#[derive(Debug)]
pub struct Replayed<E> {
    /// Records that were applied.
    pub records: u64,
    /// What ended it before the end of what was claimed, if something did; no record behind that was applied.
    pub ended: Option<Ended<E>>,
    /// What the log refers to: to be freed in the group in which its header becomes empty.
    pub references: Vec<Blkptr>,
}

/// The end of a replay before the end of the log.
#[derive(Debug, thiserror::Error)]
pub enum Ended<E> {
    /// A record that can't be.
    #[error("the intent log ends at record {seq} ({})", kind.name())]
    Record {
        /// The record's number.
        seq: u64,
        /// What it does.
        kind: TxKind,
        /// Why it can't be.
        #[source]
        source: E,
    },
    /// A block that is not what it was when the log was claimed.
    #[error("the intent log ends behind record {last}, and had {claimed} when it was claimed")]
    Block {
        /// The last record that there is.
        last: u64,
        /// The last record that there was.
        claimed: u64,
    },
}

/// Why a log could not be replayed.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError<E> {
    /// A record could not be applied for now.
    #[error("record {seq} of the intent log ({}) could not be replayed", kind.name())]
    Record {
        /// The record's number.
        seq: u64,
        /// What it does.
        kind: TxKind,
        /// Why.
        #[source]
        source: E,
    },
    /// What it is to be replayed in can't be opened.
    #[error("what the intent log is to be replayed in")]
    Open {
        /// Why.
        #[source]
        source: E,
    },
    /// A block of the log can't be read; it could when the log was claimed.
    #[error("the intent log cannot be read to its end")]
    Unreadable(#[source] zio::Error),
}

impl Log {
    /// True if it has records that may have to be replayed; else it is only to be destroyed.
    pub fn is_pending(&self) -> bool {
        self.header().claim_txg != 0 && self.header().flags & ZIL_REPLAY_NEEDED != 0
    }

    /// The objects of which a record says that bytes are theirs that another record's block has brought ([`TxKind::Write2`]). OpenZFS writes such records, and
    /// nobody here.
    pub fn grown_later(&self) -> HashSet<ObjNum> {
        let blocks = self.blocks().map_while(Result::ok);
        let records = blocks.flat_map(|block| block.records.into_iter().flatten());
        let grown = records.filter(|r| r.header.kind == TxKind::Write2).filter_map(|r| match r.body {
            Some(RecordBody::Write(w)) => Some(ObjNum(w.foid)),
            _ => None,
        });
        grown.collect()
    }

    /// Replays it. `note` enters a header in the object set, in the group of a transaction.
    ///
    /// # Errors
    /// [`ReplayError`]: the log stays, and the next replay goes on where this one stopped.
    pub fn replay<R: Replayer>(
        &self,
        by: &R,
        note: &mut dyn FnMut(&Tx, &ZilHeader),
    ) -> Result<Replayed<R::Error>, ReplayError<R::Error>> {
        let mut references = References::new(self.header().claim_txg);
        let (mut records, mut ended, mut last) = (0, None, 0);
        let mut blocks = self.blocks();
        // A block that means nothing ends the log, as it did when the log was claimed.
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

    /// Whether a record is neither replayed yet nor in a group that was on disk.
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

    /// A record with the data that it names.
    fn whole(&self, record: &LogRecord) -> zio::Result<RecordBody> {
        let Some(body) = record.body.clone() else {
            // Without the key nobody can tell what it says.
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
