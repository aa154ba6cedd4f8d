use super::*;
use ondisk::blkptr::{Body, CryptParams, Stored};
use ondisk::{Asize, ByteOrder, ChecksumKind, CompressKind, DmuType, Dva, Lsize, Psize};

fn block(offset: u64, phys_birth: u64) -> Blkptr {
    let dva = Dva { vdev: VdevId(0), offset: Offset(offset), asize: Asize(4096), gang: false };
    Blkptr {
        kind: DmuType::PLAIN_FILE_CONTENTS,
        level: Level(1),
        lsize: Lsize(128 << 10),
        birth: Txg(phys_birth),
        order: ByteOrder::Little,
        body: Body::Stored(Stored {
            dvas: [Some(dva), None, None],
            psize: Psize(4096),
            compress: CompressKind::Lz4,
            checksum: ChecksumKind::Fletcher4,
            sum: [0; 4],
            phys_birth: Txg(phys_birth),
            fill: 1,
            dedup: false,
            crypt: false,
            crypt_params: CryptParams { salt: [0; 8], iv: [0; 12] },
        }),
    }
}

/// Goal: a walk beside writers accepts a younger block at a known place. Two pointers to one block,
/// or one to an older block, are damage.
#[test]
fn younger_blocks_in_old_places() {
    let (mut visited, mut fixed) = (VisitedSince::default(), Visited::default());
    visited.note(&block(4096, 10), Level(2), BlkId(0)).unwrap();
    visited.note(&block(4096, 10), Level(2), BlkId(0)).unwrap();
    assert!(visited.note(&block(4096, 10), Level(2), BlkId(1)).is_err());
    visited.note(&block(4096, 12), Level(2), BlkId(1)).unwrap();
    assert!(visited.note(&block(4096, 12), Level(1), BlkId(1)).is_err());
    assert!(visited.note(&block(4096, 10), Level(2), BlkId(0)).is_err());
    // A tree that doesn't change has no younger blocks.
    fixed.note(&block(4096, 10), Level(2), BlkId(0)).unwrap();
    assert!(fixed.note(&block(4096, 12), Level(2), BlkId(1)).is_err());
}
