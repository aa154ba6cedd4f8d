//! Walking a chain.

use crate::{Error, Result};
use dmu::Objset;
use ondisk::blkptr::Stored;
use ondisk::zil::{
    Record, RecordBody, RecordHeader, ZIL_CLAIM_LR_SEQ_VALID, ZIL_ZC_OBJSET, ZIL_ZC_SEQ, ZilChain, ZilHeader,
};
use ondisk::{BlkId, Blkptr, ByteOrder, ChecksumKind, Corrupt, Level, ObjNum, Txg};
use zio::Bookmark;

/// The log of an object set, for reading.
#[derive(Debug, Clone)]
pub struct Log {
    os: Objset,
    header: ZilHeader,
    min_claim_txg: u64,
}

/// What an import does with a log block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Claim {
    /// An earlier import claimed the log.
    Already,
    /// The import claims it: the block is live.
    Will,
    /// The import leaves it: its txg was synced.
    Wont,
}

/// Why a chain ended.
#[derive(Debug, Clone)]
pub enum End {
    /// The next pointer is a hole.
    Hole,
    /// A block does not verify: it was never written, or only in part.
    Unwritten(zio::Error),
    /// A block can't be read, so the chain may continue after it.
    Unreadable(zio::Error),
    /// A block's pointer to the next block is not its successor.
    Broken,
    /// The earlier claim did not reach the next block.
    Unclaimed,
}

/// A record, as far as it can be read (`lr_t`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogRecord {
    /// The record's header.
    pub header: RecordHeader,
    /// The record's contents; `None` if the dataset is encrypted and its key is not loaded.
    pub body: Option<RecordBody>,
    /// The block that an indirect write names. It is known without the key.
    pub blkptr: Option<Blkptr>,
    /// The blocks that a clone names. They are known without the key.
    pub clones: Vec<Blkptr>,
}

/// A block of the chain (`zil_chain_t`).
#[derive(Debug, Clone)]
pub struct LogBlock {
    /// The pointer that led to the block.
    pub bp: Blkptr,
    /// The block's sequence number.
    pub seq: u64,
    /// What an import does with the block.
    pub claim: Claim,
    /// The block's records; `None` for the block at which the chain ends.
    pub records: Option<Vec<LogRecord>>,
}

impl Log {
    /// Opens the log of an object set; `None` if it has no log.
    ///
    /// `synced_txg` and `checkpoint_txg` (0 without a checkpoint) are the uberblock's.
    ///
    /// # Errors
    /// * [`Error::Header`]: the log's header does not decode.
    pub fn open(os: &Objset, synced_txg: u64, checkpoint_txg: u64) -> Result<Option<Log>> {
        let header = ZilHeader::decode(&os.phys().zil_header)
            .map_err(|source| Error::Header { objset: os.id(), source })?;
        if header.log.is_hole() {
            return Ok(None);
        }
        // With a checkpoint, blocks born after it stay as they are (`spa_min_claim_txg`).
        let last = if checkpoint_txg != 0 { checkpoint_txg } else { synced_txg };
        Ok(Some(Log { os: os.clone(), header, min_claim_txg: last.saturating_add(1) }))
    }

    /// The log's header (`zil_header_t`).
    pub fn header(&self) -> &ZilHeader {
        &self.header
    }

    /// True if the block's birth is late enough for a claim.
    pub fn is_live(&self, bp: &Blkptr) -> bool {
        !bp.is_hole() && bp.birth.0 >= self.min_claim_txg
    }

    /// True if a device failed in the middle of the chain, so that its end is unknown
    /// (`SPA_LOG_MISSING`).
    pub fn is_cut_short(&self) -> bool {
        let mut blocks = self.blocks();
        blocks.by_ref().for_each(drop);
        matches!(blocks.end(), Some(End::Unreadable(_)))
    }

    /// The first txg that is not on disk; older records need neither claim nor replay
    /// (`spa_min_claim_txg`).
    pub fn first_txg(&self) -> Txg {
        Txg(self.min_claim_txg)
    }

    /// The blocks in the order of the chain (`zil_parse`).
    pub fn blocks(&self) -> Blocks<'_> {
        Blocks { log: self, next: Some(self.header.log), end: None }
    }

    fn claim(&self, bp: &Blkptr) -> Claim {
        match self.header.claim_txg {
            0 if bp.birth.0 >= self.min_claim_txg => Claim::Will,
            0 => Claim::Wont,
            _ => Claim::Already,
        }
    }

    /// Reads the data of an indirect write, or any block that a record names (`zil_read_log_data`).
    ///
    /// # Errors
    /// * [`zio::Error`]: the block can't be read; its variants name the cause.
    pub fn read_block(&self, bp: &Blkptr, object: ObjNum, blkid: BlkId) -> zio::Result<device::Block> {
        let bookmark = Bookmark { objset: self.os.id(), object, level: Level(0), blkid };
        self.os.cache().zio().read(bp, &bookmark, self.os.options())
    }

    /// The object set.
    pub(crate) fn objset(&self) -> &Objset {
        &self.os
    }

    /// Reads a block that a record names, and checks it as far as is possible without its key.
    pub(crate) fn read_stored(&self, bp: &Blkptr) -> zio::Result<()> {
        let bookmark = Bookmark { objset: self.os.id(), object: ObjNum(0), level: Level(0), blkid: BlkId(0) };
        self.os.cache().zio().read_perhaps(bp, &bookmark, self.os.options()).map(drop)
    }
}

/// Iterator over a chain; [`Blocks::end`] says why the chain ended.
#[derive(Debug)]
pub struct Blocks<'a> {
    log: &'a Log,
    next: Option<Blkptr>,
    end: Option<End>,
}

impl Blocks<'_> {
    /// Why the chain ended; `None` while it goes on.
    pub fn end(&self) -> Option<&End> {
        self.end.as_ref()
    }

    fn stop(&mut self, end: End) {
        self.next = None;
        self.end = Some(end);
    }

    /// Decodes a block that verified: the next pointer, and the records up to the last claimed one.
    fn decode(
        &self,
        bp: &Blkptr,
        stored: &Stored,
        block: &[u8],
        locked: bool,
    ) -> ondisk::Result<Option<(Blkptr, Vec<LogRecord>, bool)>> {
        let (chain, used) = ZilChain::decode(stored.checksum, block)?;
        let mut expected = stored.sum;
        expected[ZIL_ZC_SEQ] = expected[ZIL_ZC_SEQ].wrapping_add(1);
        match chain.next.stored() {
            Some(next) if next.sum == expected => {}
            _ => return Ok(None),
        }
        let h = &self.log.header;
        // Old logs don't say how many records were claimed.
        let counted = h.claim_txg != 0 && h.flags & ZIL_CLAIM_LR_SEQ_VALID != 0;
        let last_seq = if counted { h.claim_lr_seq } else { u64::MAX };
        let foreign = bp.order == ByteOrder::Big;
        let mut records = Vec::new();
        let mut rest = used;
        while !rest.is_empty() {
            let header = RecordHeader::decode(rest)?;
            if header.seq > last_seq {
                return Ok(Some((chain.next, records, true)));
            }
            let raw = &rest[..header.reclen];
            let body = if locked { None } else { Some(Record::decode(raw, foreign)?.body) };
            records.push(LogRecord {
                header,
                body,
                blkptr: header.blkptr(raw)?,
                clones: header.clones(raw)?,
            });
            rest = &rest[header.reclen..];
        }
        Ok(Some((chain.next, records, false)))
    }

    fn visit(&mut self, bp: Blkptr, stored: &Stored) -> Result<LogBlock> {
        let seq = stored.sum[ZIL_ZC_SEQ];
        let mut out = LogBlock { bp, seq, claim: self.log.claim(&bp), records: None };
        let bookmark = Bookmark {
            objset: stored.sum[ZIL_ZC_OBJSET],
            object: ObjNum(0),
            level: Level(0),
            blkid: BlkId(seq),
        };
        let (zio, options) = (self.log.os.cache().zio(), self.log.os.options());
        let (read, locked) = match zio.read(&bp, &bookmark, options) {
            Err(zio::Error::Key { .. }) => (zio.read_undecrypted(&bp, &bookmark, options), true),
            r => (r, false),
        };
        let block = match read {
            Ok(block) => block,
            Err(e @ (zio::Error::Checksum { .. } | zio::Error::Decode { .. })) => {
                self.stop(End::Unwritten(e));
                return Ok(out);
            }
            Err(e) => {
                self.stop(End::Unreadable(e));
                return Ok(out);
            }
        };
        let objset = self.log.os.id();
        let decoded = self.decode(&bp, stored, &block, locked);
        match decoded.map_err(|source| Error::Block { objset, seq, source })? {
            None => self.stop(End::Broken),
            Some((_, records, true)) => {
                out.records = Some(records);
                self.stop(End::Unclaimed);
            }
            Some((next, records, false)) => {
                out.records = Some(records);
                self.next = Some(next);
            }
        }
        Ok(out)
    }
}

impl Iterator for Blocks<'_> {
    type Item = Result<LogBlock>;

    fn next(&mut self) -> Option<Self::Item> {
        let bp = self.next.take()?;
        let Some(stored) = bp.stored().copied() else {
            self.end = Some(End::Hole);
            return None;
        };
        let seq = stored.sum[ZIL_ZC_SEQ];
        let header = &self.log.header;
        if header.claim_txg != 0 && seq > header.claim_blk_seq {
            self.end = Some(End::Unclaimed);
            return None;
        }
        if !matches!(stored.checksum, ChecksumKind::Zilog | ChecksumKind::Zilog2) {
            let source = Corrupt::Shape { what: "intent log block", why: "its checksum is of another kind" };
            return Some(Err(Error::Block { objset: self.log.os.id(), seq, source }));
        }
        Some(self.visit(bp, &stored))
    }
}
