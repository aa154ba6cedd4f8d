//! Blocks of intent logs: allocated ahead, since another block points at each before it is written.

use super::EarlyWrite;
use super::place::Batch;
use super::{Failed, IssueThreads};
use crate::{Bookmark, ClassHint, Error, IoFlags, KeyError, Priority, Result, Want, Zio};
use codec::checksum::Checksum;
use codec::checksum::embedded::{self, Verifier};
use codec::crypt::{DataKeys, IV_LEN};
use device::{AlignedBuf, Block};
use ondisk::blkptr::{Body, CryptParams, Stored};
use ondisk::{
    Blkptr, ByteOrder, ChecksumKind, CompressKind, Corrupt, DmuType, Level, Lsize, ObjNum, Psize, Txg,
};
use std::sync::Arc;

/// Unit in which the used part of a log block is checksummed and written (`ZIL_MIN_BLKSZ`).
const ZIL_MIN_BLKSZ: usize = 4096;
/// Offset of the number of used bytes in a log block (`zc_nused`).
const NUSED: usize = 136;

impl Zio {
    /// Allocates a log block of `size` bytes of an object set (`zio_alloc_zil`), on a log device if
    /// `devices` and there is one.
    ///
    /// The caller sets its checksum words, which bind it to its chain, before anything points at
    /// it. In an encrypted object set, salt and IV are chosen here.
    ///
    /// # Errors
    /// * [`Error::NoSpace`]: there is no contiguous space; log blocks are never gang blocks.
    /// * [`Error::Key`]: the object set is encrypted, and its key is not loaded.
    pub fn allocate_log(
        &self,
        txg: Txg,
        size: Psize,
        objset: u64,
        encrypted: bool,
        devices: bool,
    ) -> Result<Blkptr> {
        let bookmark = log_bookmark(objset);
        let mut crypt_params = CryptParams { salt: [0; 8], iv: [0; 12] };
        if encrypted {
            let entropy = self.entropy();
            let mut iv = [0; IV_LEN];
            entropy.fill(&mut iv);
            crypt_params = CryptParams { salt: self.log_keys(objset)?.salt(|salt| entropy.fill(salt)), iv };
        }
        let want = Want {
            psize: size,
            copies: 1,
            txg,
            kind: DmuType::INTENT_LOG,
            level: Level(0),
            class: ClassHint::Log { devices },
            gang_header: false,
            flags: IoFlags::NONE,
        };
        let dvas = self.space().allocate(&want).map_err(|_| Error::NoSpace { bookmark, psize: size })?;
        let stored = Stored {
            dvas,
            psize: size,
            compress: CompressKind::Off,
            checksum: ChecksumKind::Zilog2,
            sum: [0; 4],
            phys_birth: txg,
            fill: 0,
            dedup: false,
            crypt: encrypted,
            crypt_params,
        };
        Ok(Blkptr {
            kind: DmuType::INTENT_LOG,
            level: Level(0),
            lsize: Lsize(size.0),
            birth: txg,
            order: ByteOrder::Little,
            body: Body::Stored(stored),
        })
    }

    /// Writes log blocks to the places of their pointers: encrypts their records, and sets
    /// checksums.
    ///
    /// Each block begins with the chain's header, whose fill count and next pointer are set, and is
    /// as long as its pointer says. What follows the fill count, rounded up, is not written. The
    /// blocks of `early`, which the log names, are written too.
    ///
    /// # Errors
    /// None of the blocks then counts as written.
    ///
    /// * [`Error::Suspended`]: the pool is suspended.
    /// * [`Error::Write`]: too many devices failed.
    /// * [`Error::Key`]: the object set is encrypted, and its key is not loaded.
    /// * [`Error::Encode`]: the records can't be encrypted or checksummed.
    /// * [`Error::Corrupt`]: a block's fill count is larger than the block.
    ///
    /// # Panics
    /// If a pointer does not point at a log block of this length.
    pub fn write_logs(
        &self,
        objset: u64,
        blocks: Vec<(Blkptr, AlignedBuf)>,
        early: Vec<EarlyWrite>,
    ) -> Result<()> {
        let bookmark = log_bookmark(objset);
        // The pool may be in use by another host.
        if self.suspension().reason().is_some() {
            return Err(Error::Suspended { bookmark });
        }
        let mut batch = Batch::default();
        let logs = blocks.len();
        for (n, (bp, block)) in blocks.into_iter().enumerate() {
            let s = bp.stored().expect("a log block has a place");
            let bytes = self.seal_log(&bp, objset, block)?;
            batch.bind(n, s.phys_birth, &s.dvas, &bytes);
        }
        // The caller has an alternative, which is to wait for the txg. So this write does not wait
        // for a suspended pool.
        for (n, EarlyWrite { bp, bytes }) in early.into_iter().enumerate() {
            let s = bp.stored().expect("a block that is written early has a place");
            batch.bind(logs + n, s.phys_birth, &s.dvas, &bytes);
        }
        let places = batch.bound.iter().map(|b| self.place_of(&b.dva, b.bytes.len() as u64));
        let _pass = self.closed_ranges().pass(places.collect());
        // No txg depends on log blocks, so only the others are kept for rewriting.
        let is_early = |req| req >= logs;
        let class = |req| if is_early(req) { Priority::SyncWrite } else { Priority::Log };
        let failed = self.put(batch.bound, &self.workers(), IssueThreads::Batch, class, is_early);
        match failed.into_iter().next() {
            Some(Failed { dva, source, .. }) => Err(Error::Write { bookmark, dva, source }),
            None => Ok(()),
        }
    }

    fn seal_log(&self, bp: &Blkptr, objset: u64, mut block: AlignedBuf) -> Result<Block> {
        let bookmark = log_bookmark(objset);
        let encode = |source| Error::Encode { bookmark, source };
        let s = bp.stored().expect("a log block has a place");
        assert!(s.checksum == ChecksumKind::Zilog2 && block.len() as u64 == s.psize.0, "a whole log block");
        let used =
            ByteOrder::Little.u64("log block", &block, NUSED).ok().and_then(|n| usize::try_from(n).ok());
        let used = used.filter(|n| *n <= block.len()).ok_or(Error::Corrupt {
            bookmark,
            source: Corrupt::Shape { what: "log block", why: "its fill count doesn't fit" },
        })?;
        block[used..].fill(0);
        let mac = match bp.is_encrypted() {
            true => Some(
                self.log_keys(objset)?
                    .encrypt(DmuType::INTENT_LOG, &s.crypt_params, &mut block)
                    .map_err(encode)?,
            ),
            false => None,
        };
        embedded::seal(&Verifier::Zilog2(Checksum(s.sum)), &mut block, mac.as_ref()).map_err(encode)?;
        // The columns of a raidz depend on the size of the block, so there the whole block is
        // written (`zio_shrink`).
        if s.copies().all(|dva| !self.tree().is_striped(dva.vdev)) {
            block.truncate(used.next_multiple_of(ZIL_MIN_BLKSZ));
        }
        Ok(block.freeze())
    }

    fn log_keys(&self, objset: u64) -> Result<Arc<DataKeys>> {
        let bookmark = log_bookmark(objset);
        let keys = match self.key_source() {
            Some(source) => source.keys(objset),
            None => Err(KeyError::NotLoaded { objset }),
        };
        keys.map_err(|source| Error::Key { bookmark, source })
    }
}

/// The bookmark of a log block, which is no block of an object.
fn log_bookmark(objset: u64) -> Bookmark {
    Bookmark { objset, object: ObjNum(0), level: Level(0), blkid: 0.into() }
}
