//! Blocks of encrypted object sets, and log blocks.

use super::{BOOKMARK, READ, noise, pool, req, text};
use crate::{Entropy, Error, FailMode, KeyError, KeySource, Reason, WritePolicy, WriteReq, Zio};
use codec::crypt::{CryptoSuite, DataKeys, KeyVersion};
use device::{AlignedBuf, Block};
use ondisk::blkptr::Body;
use ondisk::zil::ZIL_CHAIN_SIZE;
use ondisk::{Blkptr, ChecksumKind, CompressKind, DmuType, Guid, Level, Psize, Txg};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

/// The keys of one dataset, 5.
pub(crate) struct Keys(Arc<DataKeys>);

impl Keys {
    pub(crate) fn new() -> Keys {
        let keys = DataKeys::new(CryptoSuite::Aes256Gcm, KeyVersion::V1, Guid(42), &[5; 32], &[6; 64]);
        Keys(Arc::new(keys))
    }
}

impl KeySource for Keys {
    fn keys(&self, objset: u64) -> Result<Arc<DataKeys>, KeyError> {
        if objset == 5 { Ok(Arc::clone(&self.0)) } else { Err(KeyError::NotLoaded { objset }) }
    }
}

/// Bytes that rise with each call.
#[derive(Default)]
pub(crate) struct Counter(AtomicU8);

impl Entropy for Counter {
    fn fill(&self, buf: &mut [u8]) {
        buf.fill(self.0.fetch_add(1, Ordering::Relaxed));
    }
}

pub(super) fn encrypted_pool() -> Zio {
    let (zio, _) = pool(3, 12, u64::MAX);
    zio.set_keys(Arc::new(Keys::new()));
    zio.set_entropy(Arc::new(Counter::default()));
    zio
}

/// A block of dnodes, one of them in use, with a secret bonus.
pub(super) fn dnodes() -> Block {
    let mut raw = AlignedBuf::zeroed(16_384);
    raw[512..512 + 16].copy_from_slice(&[
        DmuType::PLAIN_FILE_CONTENTS.to_disk(),
        17,
        1,
        1,
        44,
        0,
        0,
        1,
        1,
        0,
        64,
        0,
        0,
        0,
        0,
        0,
    ]);
    raw[512 + 192..512 + 256].fill(0x77);
    raw.freeze()
}

fn objset() -> Block {
    let mut raw = AlignedBuf::zeroed(4096);
    raw[..4].copy_from_slice(&[DmuType::DNODE.to_disk(), 17, 1, 1]);
    raw[8] = 32;
    raw[704] = 2;
    raw.freeze()
}

/// Goal: every kind of protected block is read back with its keys, and has the fields of its kind.
/// Without keys, or with a changed byte, it is refused.
#[test]
fn every_kind() {
    let zio = encrypted_pool();
    let policy = WritePolicy { encrypt: true, embed: true, copies: 3, ..WritePolicy::PLAIN };
    let base = req(text(65_536), policy);
    let below = zio.write_batch(Txg(3), vec![base.clone()], &zio.workers()).unwrap()[0];
    let indirect = Block::copy_of(&[&below.encode()[..], &[0; 131_072 - 128]].concat());
    let of =
        |kind, level, data| WriteReq { kind, level: Level(level), data: Block::into(data), ..base.clone() };
    let kinds = [
        of(DmuType::PLAIN_FILE_CONTENTS, 0, noise(131_072)),
        of(DmuType::PLAIN_FILE_CONTENTS, 1, indirect),
        of(DmuType::DNODE, 0, dnodes()),
        of(DmuType::OBJSET, 0, objset()),
        of(DmuType::MASTER_NODE, 0, text(1024)),
        of(DmuType::SA, 0, text(512)),
    ];
    let pointers = zio.write_batch(Txg(4), kinds.to_vec(), &zio.workers()).unwrap();
    for (bp, req) in pointers.iter().chain([&below]).zip(kinds.iter().chain([&base])) {
        let s = *bp.stored().unwrap();
        assert!(s.crypt && Blkptr::decode(&bp.encode()).unwrap() == *bp);
        assert_eq!(s.copies().count(), if bp.is_encrypted() { 2 } else { 3 });
        if req.kind == DmuType::OBJSET {
            let read = zio.read(bp, &BOOKMARK, &READ).unwrap();
            assert_ne!(read[720..784], req.data.whole()[720..784]);
            assert_eq!((&read[..720], s.compress), (&req.data.whole()[..720], CompressKind::Off));
        } else {
            assert_eq!(zio.read(bp, &BOOKMARK, &READ).unwrap(), req.data.whole(), "{bp:?}");
        }
        if bp.is_encrypted() {
            assert_ne!(
                zio.read_raw(bp, &BOOKMARK, &READ).unwrap()[..],
                req.data.whole()[..s.psize.0 as usize]
            );
            let other = crate::Bookmark { objset: 6, ..BOOKMARK };
            assert!(matches!(zio.read(bp, &other, &READ), Err(Error::Key { .. })));
        }
        let mut forged = *bp;
        if let Body::Stored(s) = &mut forged.body {
            s.sum[3] ^= 1;
        }
        assert!(zio.read(&forged, &BOOKMARK, &READ).is_err());
    }
    let locked = WriteReq { bookmark: crate::Bookmark { objset: 6, ..BOOKMARK }, ..base };
    assert!(matches!(zio.write_batch(Txg(4), vec![locked], &zio.workers()), Err(Error::Key { .. })));
}

/// Goal: each block has its own initialisation vector under one salt. Blocks for the dedup table
/// have one that follows from their contents.
#[test]
fn salts_and_vectors() {
    let zio = encrypted_pool();
    let policy = WritePolicy { encrypt: true, checksum: ChecksumKind::Sha256, ..WritePolicy::PLAIN };
    let write = |policy| {
        let bp = zio.write_batch(Txg(4), vec![req(text(4096 * 4), policy)], &zio.workers()).unwrap()[0];
        bp.stored().unwrap().crypt_params
    };
    let (a, b) = (write(policy), write(policy));
    assert!(a.salt == b.salt && a.iv != b.iv);
    let dedup = WritePolicy { dedup: true, ..policy };
    assert_eq!(write(dedup), write(dedup));
    assert_ne!(write(dedup).salt, a.salt);
}

/// Goal: a log block is read back, encrypted or not, and only through a pointer of its own chain.
#[test]
fn log_blocks() {
    let zio = encrypted_pool();
    for encrypted in [false, true] {
        let mut bp = zio.allocate_log(Txg(8), Psize(32_768), 5, encrypted, true).unwrap();
        if let Body::Stored(s) = &mut bp.body {
            s.sum = [11, 12, 5, 1];
        }
        assert_eq!(Blkptr::decode(&bp.encode()).unwrap(), bp);
        let mut block = AlignedBuf::zeroed(32_768);
        // One record of 192 bytes: a type, its length, and contents.
        let used = ZIL_CHAIN_SIZE + 192;
        block[136..144].copy_from_slice(&(used as u64).to_le_bytes());
        block[ZIL_CHAIN_SIZE..ZIL_CHAIN_SIZE + 16]
            .copy_from_slice(&[4, 0, 0, 0, 0, 0, 0, 0, 192, 0, 0, 0, 0, 0, 0, 0]);
        block[ZIL_CHAIN_SIZE + 32..used].fill(0x5a);
        block[used..].fill(0xff);
        zio.write_logs(5, vec![(bp, block.clone())], Vec::new()).unwrap();
        let read = zio.read(&bp, &BOOKMARK, &READ).unwrap();
        assert_eq!(read[..144], block[..144]);
        assert_eq!(read[ZIL_CHAIN_SIZE..used], block[ZIL_CHAIN_SIZE..used]);
        assert!(read[used..].iter().all(|b| *b == 0));
        let mut other = bp;
        if let Body::Stored(s) = &mut other.body {
            s.sum[3] = 2;
        }
        assert!(zio.read(&other, &BOOKMARK, &READ).is_err());
    }
}

/// Goal: a suspended pool, which may be in use by another host, gets no log block until it is
/// cleared.
#[test]
fn suspended_pools_get_no_log_blocks() {
    let zio = encrypted_pool();
    let bp = zio.allocate_log(Txg(8), Psize(4096), 5, false, true).unwrap();
    let mut block = AlignedBuf::zeroed(4096);
    block[136..144].copy_from_slice(&(ZIL_CHAIN_SIZE as u64).to_le_bytes());
    zio.suspension().attend("p", FailMode::Wait, Box::new(|| {}));
    zio.suspension().suspend(Reason::Mmp);
    let refused = zio.write_logs(5, vec![(bp, block.clone())], Vec::new());
    assert!(matches!(refused, Err(Error::Suspended { .. })), "{refused:?}");
    assert!(zio.read(&bp, &BOOKMARK, &READ).is_err());
    zio.suspension().clear();
    zio.write_logs(5, vec![(bp, block)], Vec::new()).unwrap();
    assert!(zio.read(&bp, &BOOKMARK, &READ).is_ok());
}
