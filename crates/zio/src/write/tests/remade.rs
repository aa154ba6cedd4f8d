//! The stored form of blocks, restored from memory.

use super::protected::{dnodes, encrypted_pool};
use super::{BOOKMARK, CHECKSUMS, COMPRESSORS, READ, noise, req, text};
use crate::{Bookmark, WritePolicy, WriteReq, Zio};
use codec::compress::ZstdLevel;
use device::Block;
use ondisk::blkptr::Body;
use ondisk::{Blkptr, ByteOrder, CompressKind, DmuType, Txg};

/// Half of it can be compressed, so that a slow zstd level finds more than a fast one.
fn mixed(len: usize) -> Block {
    let (text, noise) = (text(len), noise(len));
    let pieces = text.chunks(64).zip(noise.chunks(64)).enumerate();
    let bytes: Vec<u8> = pieces.flat_map(|(n, (t, r))| if n % 2 == 0 { t } else { r }).copied().collect();
    Block::copy_of(&bytes)
}

/// Blocks in every form in which they are stored, with their requests.
fn all(zio: &Zio) -> Vec<(Blkptr, WriteReq)> {
    let mut reqs = Vec::new();
    let levels = [1, 3, 9, 103].map(|n| ZstdLevel::from_disk(n).unwrap());
    for encrypt in [false, true] {
        for compress in COMPRESSORS {
            for zstd in levels {
                if compress != CompressKind::Zstd && zstd != levels[0] {
                    continue;
                }
                for data in [text(4096), mixed(131_072), noise(16_384)] {
                    let policy = WritePolicy { compress, zstd, encrypt, copies: 1, ..WritePolicy::PLAIN };
                    reqs.push(req(data, policy));
                }
            }
        }
        for checksum in CHECKSUMS.into_iter().skip(2) {
            let policy = WritePolicy { checksum, encrypt, compress: CompressKind::Lz4, ..WritePolicy::PLAIN };
            reqs.push(req(mixed(8192), policy));
        }
        let policy = WritePolicy { encrypt, compress: CompressKind::Lz4, ..WritePolicy::PLAIN };
        reqs.push(WriteReq { kind: DmuType::DNODE, ..req(dnodes(), policy) });
    }
    let pointers = zio.write_batch(Txg(4), reqs.clone(), &zio.workers()).unwrap();
    pointers.into_iter().zip(reqs).collect()
}

/// The bytes on the devices, padded to this.
fn stored(zio: &Zio, bp: &Blkptr, room: usize) -> Vec<u8> {
    let mut raw = zio.read_raw(bp, &BOOKMARK, &READ).unwrap().to_vec();
    raw.resize(room, 0);
    raw
}

/// Goal: with any compressor, level, checksum and key, memory's form of a block, plain or
/// compressed, gives its stored form again, padded to any sector.
#[test]
fn every_way() {
    let zio = encrypted_pool();
    let remaker = zio.remaker();
    let (mut packed, mut secret) = (0, 0);
    for (bp, req) in all(&zio) {
        let psize = bp.stored().unwrap().psize.0 as usize;
        let opened = zio.read_packed(&bp, &BOOKMARK, &READ).unwrap();
        for room in [psize, psize.next_multiple_of(1 << 13) + 4096] {
            let expected = stored(&zio, &bp, room);
            let of_plain =
                remaker.of_plain(&bp, BOOKMARK.objset, req.policy.zstd, &opened.block.whole(), room);
            assert_eq!(of_plain.as_deref(), Some(&expected[..]), "{bp:?} {:?}", req.policy);
            if let Some(bytes) = &opened.packed {
                let of_packed = remaker.of_packed(&bp, BOOKMARK.objset, bytes, room);
                assert_eq!(of_packed.as_deref(), Some(&expected[..]), "{bp:?}");
                packed += 1;
            }
        }
        secret += u32::from(bp.is_encrypted());
    }
    assert!(packed > 30 && secret > 20, "{packed} {secret}");
}

/// Goal: nothing is returned, rather than wrong bytes, without the key, with another salt, vector
/// or level, of other contents, or with too little space.
#[test]
fn nothing_else() {
    let zio = encrypted_pool();
    let remaker = zio.remaker();
    let objset = BOOKMARK.objset;
    for (bp, req) in all(&zio) {
        let s = *bp.stored().unwrap();
        let (psize, level) = (s.psize.0 as usize, req.policy.zstd);
        let opened = zio.read_packed(&bp, &BOOKMARK, &READ).unwrap();
        let with = |change: &dyn Fn(&mut ondisk::blkptr::Stored)| {
            let mut stored = s;
            change(&mut stored);
            Blkptr { body: Body::Stored(stored), ..bp }
        };
        let made = |bp: &Blkptr, objset, level, plain: &Block, packed: Option<&Block>, room| {
            let plain = remaker.of_plain(bp, objset, level, plain, room);
            plain.or_else(|| remaker.of_packed(bp, objset, packed?, room))
        };
        let (plain, packed) = (&opened.block.whole(), opened.packed.as_ref());
        assert!(made(&bp, objset, level, plain, packed, psize).is_some());
        if bp.is_encrypted() {
            assert!(made(&bp, 6, level, plain, packed, psize).is_none(), "another's key");
            for part in 0..2 {
                let other = with(&|s| match part {
                    0 => s.crypt_params.salt[3] ^= 1,
                    _ => s.crypt_params.iv[3] ^= 1,
                });
                assert!(made(&other, objset, level, plain, packed, psize).is_none(), "{bp:?}");
            }
        }
        let mut changed = plain.to_vec();
        // The first dnode of a block is free, and so is much of it; this one is in the second.
        changed[512 + 1] ^= 1;
        assert!(made(&bp, objset, level, &Block::copy_of(&changed), None, psize).is_none(), "{bp:?}");
        assert!(made(&bp, objset, level, plain, packed, psize - 512).is_none());
        let foreign = Blkptr { order: ByteOrder::Big, ..bp };
        assert!(remaker.of_plain(&foreign, objset, level, plain, psize).is_none());
    }
    // A level that compresses in another way.
    let policy = WritePolicy { compress: CompressKind::Zstd, encrypt: true, ..WritePolicy::PLAIN };
    let bp = zio.write_batch(Txg(5), vec![req(mixed(131_072), policy)], &zio.workers()).unwrap()[0];
    let psize = bp.stored().unwrap().psize.0 as usize;
    let block = zio.read(&bp, &Bookmark { ..BOOKMARK }, &READ).unwrap();
    let at = |n| remaker.of_plain(&bp, objset, ZstdLevel::from_disk(n).unwrap(), &block, psize);
    assert!(at(policy.zstd.to_disk()).is_some() && at(19).is_none());
}
