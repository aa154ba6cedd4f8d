//! Encoding of records.

use super::record::{AclLog, ClonedRange, Create, FileId, Rename, Setattr, TX_CI, Whiteout, Write, Xvattr};
use super::{LR_WRITE_SIZE, RecordBody, TxKind, ZIL_CHAIN_SIZE, ZIL_HEADER_SIZE, ZilChain, ZilHeader};
use crate::words::put_words;

/// Bytes of the common header of a record (`sizeof (lr_t)`).
pub const LR_SIZE: usize = 32;

impl ZilHeader {
    /// Encodes the header, little-endian.
    pub fn encode(&self) -> [u8; ZIL_HEADER_SIZE] {
        let mut raw = [0; ZIL_HEADER_SIZE];
        put_words(&mut raw[..16], 0, &[self.claim_txg, self.replay_seq]);
        raw[16..144].copy_from_slice(&self.log.encode());
        put_words(&mut raw[144..168], 0, &[self.claim_blk_seq, self.flags, self.claim_lr_seq]);
        raw
    }
}

impl ZilChain {
    /// Encodes the chain at the start of a log block of the newer kind, without its checksum.
    ///
    /// # Panics
    /// If the block is shorter than a chain.
    pub fn put(&self, block: &mut [u8]) {
        block[..ZIL_CHAIN_SIZE].fill(0);
        block[8..136].copy_from_slice(&self.next.encode());
        put_words(&mut block[136..144], 0, &[self.nused]);
    }
}

impl FileId {
    /// Encodes the id as in a record (`LR_FOID_SET_SLOTS`).
    fn to_disk(self) -> u64 {
        self.object | (self.slots.saturating_sub(1) & 0xff) << 56
    }
}

/// Bytes of a record being encoded: words first, then parts of varying length.
struct Out(Vec<u8>);

impl Out {
    fn words(&mut self, words: &[u64]) {
        words.iter().for_each(|w| self.0.extend_from_slice(&w.to_le_bytes()));
    }

    fn string(&mut self, s: &[u8]) {
        self.0.extend_from_slice(s);
        self.0.push(0);
    }

    fn xvattr(&mut self, x: &Xvattr) {
        self.0.extend_from_slice(&(x.bitmap.len() as u32).to_le_bytes());
        x.bitmap.iter().for_each(|w| self.0.extend_from_slice(&w.to_le_bytes()));
        self.words(&[x.attrs, x.crtime[0], x.crtime[1]]);
        self.0.extend_from_slice(&x.scanstamp);
    }

    fn acl_words(&mut self, acl: &AclLog) {
        let (domains, fuids) = (acl.domains.len() as u64, acl.fuids.len() as u64);
        self.words(&[acl.count, domains, fuids, acl.aces.len() as u64, acl.flags]);
    }

    fn acl_tail(&mut self, acl: &AclLog) {
        self.0.extend_from_slice(&acl.aces);
        let pad = acl.aces.len().next_multiple_of(8) - acl.aces.len();
        self.0.extend_from_slice(&[0; 8][..pad]);
        self.words(&acl.fuids);
        acl.domains.iter().for_each(|d| self.string(d));
    }

    fn create(&mut self, c: &Create) {
        self.words(&[c.doid, c.foid.to_disk(), c.mode, c.uid, c.gid, c.gen_, c.crtime[0], c.crtime[1]]);
        self.words(&[c.rdev]);
        if let Some(acl) = &c.acl {
            self.acl_words(acl);
        }
        if let Some(x) = &c.xvattr {
            self.xvattr(x);
        }
        if let Some(acl) = &c.acl {
            self.acl_tail(acl);
        }
        c.domains.iter().for_each(|d| self.string(d));
        self.string(&c.name);
        if let Some(link) = &c.link {
            self.string(link);
        }
    }

    fn rename(&mut self, r: &Rename) {
        self.words(&[r.sdoid, r.tdoid]);
        if let Some(w) = &r.whiteout {
            let Whiteout { foid, mode, uid, gid, gen_, crtime, rdev } = w;
            self.words(&[foid.to_disk(), *mode, *uid, *gid, *gen_, crtime[0], crtime[1], *rdev]);
        }
        self.string(&r.source);
        self.string(&r.target);
    }

    fn write(&mut self, w: &Write) {
        self.words(&[w.foid, w.offset, w.length, 0]);
        match &w.blkptr {
            Some(bp) => self.0.extend_from_slice(&bp.encode()),
            None => self.0.resize(LR_WRITE_SIZE, 0),
        }
        self.0.extend_from_slice(&w.data);
    }

    fn setattr(&mut self, s: &Setattr) {
        self.words(&[s.foid, s.mask, s.mode, s.uid, s.gid, s.size]);
        self.words(&[s.atime[0], s.atime[1], s.mtime[0], s.mtime[1]]);
        if let Some(x) = &s.xvattr {
            self.xvattr(x);
        }
        s.domains.iter().for_each(|d| self.string(d));
    }

    fn clone_range(&mut self, c: &ClonedRange) {
        self.words(&[c.foid, c.offset, c.length, c.blksz, c.blkptrs.len() as u64]);
        c.blkptrs.iter().for_each(|bp| self.0.extend_from_slice(&bp.encode()));
    }
}

impl RecordBody {
    /// Encodes the record as a record of this kind, in whole words.
    ///
    /// Transaction group and sequence number are 0 until [`set_place`] sets them. `ci` means that
    /// name look-ups ignored case.
    pub fn encode(&self, kind: TxKind, ci: bool) -> Vec<u8> {
        let mut out = Out(Vec::with_capacity(256));
        out.words(&[kind as u64 | if ci { TX_CI } else { 0 }, 0, 0, 0]);
        match self {
            RecordBody::Commit => {}
            RecordBody::Create(c) => out.create(c),
            RecordBody::Remove { doid, name } => {
                out.words(&[*doid]);
                out.string(name);
            }
            RecordBody::Link { doid, link_obj, name } => {
                out.words(&[*doid, *link_obj]);
                out.string(name);
            }
            RecordBody::Rename(r) => out.rename(r),
            RecordBody::Write(w) => out.write(w),
            RecordBody::Truncate { foid, offset, length } => out.words(&[*foid, *offset, *length]),
            RecordBody::Setattr(s) => out.setattr(s),
            RecordBody::Acl { foid, acl } if kind == TxKind::AclV0 => {
                out.words(&[*foid, acl.count]);
                out.0.extend_from_slice(&acl.aces);
            }
            RecordBody::Acl { foid, acl } => {
                out.words(&[*foid]);
                out.acl_words(acl);
                out.acl_tail(acl);
            }
            RecordBody::SetSaXattr { foid, name, value } => {
                out.words(&[*foid, value.as_ref().map_or(0, |v| v.len() as u64)]);
                out.string(name);
                out.0.extend_from_slice(value.as_deref().unwrap_or_default());
            }
            RecordBody::CloneRange(c) => out.clone_range(c),
        }
        let len = out.0.len().next_multiple_of(8);
        out.0.resize(len, 0);
        out.0[8..16].copy_from_slice(&(len as u64).to_le_bytes());
        out.0
    }
}

/// Encodes a write record with its data at the start of `out`, without the copy that
/// [`RecordBody::encode`] makes.
///
/// Returns the length of the record: [`LR_WRITE_SIZE`] and the data, rounded up to a whole word.
///
/// # Panics
/// If `out` is shorter than the record.
pub fn put_write(out: &mut [u8], foid: u64, offset: u64, data: &[u8]) -> usize {
    let len = (LR_WRITE_SIZE + data.len()).next_multiple_of(8);
    let (head, rest) = out[..len].split_at_mut(LR_WRITE_SIZE);
    put_words(head, 0, &[TxKind::Write as u64, len as u64, 0, 0, foid, offset, data.len() as u64, 0]);
    head[8 * 8..].fill(0);
    let (body, padding) = rest.split_at_mut(data.len());
    body.copy_from_slice(data);
    padding.fill(0);
    len
}

/// Sets the transaction group and sequence number of an encoded record.
///
/// # Panics
/// If `record` is shorter than a record's header.
pub fn set_place(record: &mut [u8], txg: u64, seq: u64) {
    put_words(&mut record[16..LR_SIZE], 0, &[txg, seq]);
}
