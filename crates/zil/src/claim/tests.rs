use super::*;
use ondisk::blkptr::{Body, CryptParams, Stored};
use ondisk::{Asize, ByteOrder, ChecksumKind, CompressKind, DmuType, Dva, Level, Lsize, Psize};

/// Blocks by their offset, some of them allocated.
#[derive(Default)]
struct Fake {
    allocated: Vec<u64>,
    taken: Vec<u64>,
    shared: Vec<u64>,
}

fn place(bp: &Blkptr) -> u64 {
    first(bp.stored().unwrap()).unwrap().1.0
}

impl Claimant for Fake {
    fn take(&mut self, bp: &Blkptr) -> bool {
        let free = !self.allocated.contains(&place(bp));
        if free {
            self.taken.push(place(bp));
            self.allocated.push(place(bp));
        }
        free
    }

    fn share(&mut self, bps: &[Blkptr]) -> bool {
        let all = bps.iter().all(|bp| self.allocated.contains(&place(bp)));
        if all {
            self.shared.extend(bps.iter().map(place));
        }
        all
    }
}

fn block(offset: u64, birth: u64) -> Blkptr {
    let dva = Dva { vdev: VdevId(0), offset: Offset(offset), asize: Asize(4096), gang: false };
    let stored = Stored {
        dvas: [Some(dva), None, None],
        psize: Psize(4096),
        compress: CompressKind::Off,
        checksum: ChecksumKind::Fletcher4,
        sum: [0; 4],
        phys_birth: Txg(birth),
        fill: 1,
        dedup: false,
        crypt: false,
        crypt_params: CryptParams { salt: [0; 8], iv: [0; 12] },
    };
    Blkptr {
        kind: DmuType::PLAIN_FILE_CONTENTS,
        level: Level(0),
        lsize: Lsize(4096),
        birth: Txg(birth),
        order: ByteOrder::Little,
        body: Body::Stored(stored),
    }
}

/// Claims a log of one block whose records have these names, in a pool whose next txg is 10.
fn claimed(names: Vec<Names>, by: &mut Fake) -> ZilHeader {
    let records =
        names.into_iter().enumerate().map(|(n, names)| (n as u64 + 1, Some(Box::new(names)))).collect();
    let header = ZilHeader {
        claim_txg: 0,
        replay_seq: 0,
        log: block(0, 10),
        claim_blk_seq: 0,
        flags: 0,
        claim_lr_seq: 0,
    };
    let links = vec![Link { bp: block(0, 10), seq: 1, records }];
    Plan { header, first_txg: Txg(10), links, cut: None }.take(by)
}

/// Goal: a clone whose txg is on disk doesn't end a log if one of its blocks has been freed since.
///
/// That block is allocated until the log is destroyed, which frees it. A clone whose txg is not on
/// disk ends the log, and so does a clone of a block that is in no txg.
#[test]
fn clones_of_blocks_that_are_free() {
    let mut by = Fake { allocated: vec![100], ..Fake::default() };
    let header = claimed(vec![Names::OldClones(vec![block(100, 5), block(200, 5), Blkptr::HOLE])], &mut by);
    assert_eq!((header.claim_lr_seq, &by.shared[..], &by.taken[..]), (1, &[100][..], &[0, 200][..]));

    for last in [Names::Clones(vec![block(100, 5), block(200, 5)]), Names::OldClones(vec![block(100, 10)])] {
        let mut by = Fake { allocated: vec![100], ..Fake::default() };
        let header = claimed(vec![Names::Clones(vec![block(100, 5)]), last], &mut by);
        assert_eq!((header.claim_lr_seq, &by.shared[..], &by.taken[..]), (1, &[100][..], &[0][..]));
    }
}
