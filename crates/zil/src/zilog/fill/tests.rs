use super::*;
use crate::tunables::{MAXBLOCKSIZE, STEERING};
use ondisk::blkptr::{Body, CryptParams, Stored};
use ondisk::zil::{Record, Records};
use ondisk::zil::{RecordBody, TxKind};
use ondisk::{
    Asize, ByteOrder, ChecksumKind, CompressKind, DmuType, Dva, Level, Lsize, Offset, Psize, VdevId,
};

fn pointer(seq: u64, size: u64) -> Blkptr {
    let dva = Dva { vdev: VdevId(0), offset: Offset(seq << 20), asize: Asize(size), gang: false };
    let stored = Stored {
        dvas: [Some(dva), None, None],
        psize: Psize(size),
        compress: CompressKind::Off,
        checksum: ChecksumKind::Zilog2,
        sum: [1, 2, 3, seq],
        phys_birth: Txg(1),
        fill: 0,
        dedup: false,
        crypt: false,
        crypt_params: CryptParams { salt: [0; 8], iv: [0; 12] },
    };
    Blkptr {
        kind: DmuType::INTENT_LOG,
        level: Level(0),
        lsize: Lsize(size),
        birth: Txg(1),
        order: ByteOrder::Little,
        body: Body::Stored(stored),
    }
}

fn remove(name: usize) -> Vec<u8> {
    RecordBody::Remove { doid: 1, name: vec![b'n'; name] }.encode(TxKind::Remove, false)
}

/// The records of blocks, whose chain and sizes are checked.
fn records(laid: &Laid) -> Vec<Record> {
    let mut out = Vec::new();
    for (n, draft) in laid.full.iter().enumerate() {
        let next = laid.full.get(n + 1).map_or(laid.next, |d| d.bp);
        let (chain, used) = ZilChain::decode(ChecksumKind::Zilog2, &draft.bytes).unwrap();
        assert_eq!((chain.next, chain.nused), (next, draft.used()));
        assert_eq!(draft.bytes.len() as u64, draft.bp.lsize.0);
        out.extend(Records::new(used, false).map(Result::unwrap));
    }
    out
}

proptest::proptest! {
    /// Goal: everything laid out is in the blocks, in order, with increasing numbers, and the data
    /// of a write adds up.
    #[test]
    fn everything_gets_a_place(
        sizes in proptest::collection::vec((proptest::bool::ANY, 1usize..200_000), 1..20),
        first in 1u64..33,
        most in 1u64..33,
    ) {
        let mut want = Vec::new();
        let pieces = sizes.iter().enumerate().map(|(n, (data, size))| {
            let txg = Txg(5 + n as u64 / 8);
            let what = if *data {
                want.push((n as u64, *size as u64));
                What::Data { object: n as u64, offset: 1000, bytes: Bytes::new(device::Block::copy_of(&vec![n as u8; *size]), 0..*size) }
            } else {
                let name = size % (RECORD_MAX - 48);
                want.push((u64::MAX, name as u64));
                What::Whole(remove(name))
            };
            Piece { txg, what }
        });
        let (mut seq, mut number) = (41, 1);
        let steering = STEERING.lock();
        MAXBLOCKSIZE.set(most * 4096);
        let laid = lay_out(pointer(1, first * 4096), pieces.collect(), &mut seq, 8192, |_, size| {
            number += 1;
            Ok::<_, ()>(pointer(number, size))
        });
        MAXBLOCKSIZE.set(MAXBLOCKSIZE.default());
        drop(steering);
        let laid = laid.unwrap_or_else(|_| panic!("there is room"));
        let mut got: Vec<(u64, u64)> = Vec::new();
        for (n, record) in records(&laid).into_iter().enumerate() {
            proptest::prop_assert_eq!(record.header.seq, 42 + n as u64);
            match record.body {
                RecordBody::Remove { name, .. } => got.push((u64::MAX, name.len() as u64)),
                RecordBody::Write(w) => {
                    let begun = got.last().filter(|(o, _)| *o == w.foid).map_or(0, |(_, n)| *n);
                    proptest::prop_assert_eq!(w.offset, 1000 + begun);
                    proptest::prop_assert!(w.data.iter().all(|b| *b == w.foid as u8) && w.data.len() as u64 == w.length);
                    if begun == 0 { got.push((w.foid, w.length)) } else { got.last_mut().unwrap().1 += w.length }
                }
                other => panic!("{other:?}"),
            }
        }
        proptest::prop_assert_eq!(got, want);
        for draft in laid.full.iter().skip(1).filter(|draft| draft.bytes.len() as u64 > most * 4096) {
            // The block begins with a record that can't be split, and is no larger than that needs.
            let (_, used) = ZilChain::decode(ChecksumKind::Zilog2, &draft.bytes).unwrap();
            let header = RecordHeader::decode(used).unwrap();
            let need = (header.reclen + ZIL_CHAIN_SIZE).next_multiple_of(4096);
            proptest::prop_assert_eq!((header.kind, draft.bytes.len()), (TxKind::Remove, need));
        }
        proptest::prop_assert_eq!(laid.next.lsize.0, 8192);
    }
}

/// Goal: records that belong together are never in two blocks, wherever a block ends, and each has
/// its own number.
#[test]
fn records_that_are_one_stay_together() {
    for room in 0..9 {
        let one: Vec<u8> = (1..4).flat_map(|n| remove(n * 500)).collect();
        let before = 4096 - ZIL_CHAIN_SIZE - 100 - room * 400;
        let pieces =
            [remove(before), one, remove(8)].map(|raw| Piece { txg: Txg(5), what: What::Whole(raw) });
        let (mut seq, mut number) = (0, 1);
        let laid = lay_out(pointer(1, 4096), pieces.into(), &mut seq, 4096, |_, size| {
            number += 1;
            Ok::<_, ()>(pointer(number, size))
        });
        let laid = laid.unwrap_or_else(|_| panic!("there is room"));
        let with = |draft: &Draft| {
            let (_, used) = ZilChain::decode(ChecksumKind::Zilog2, &draft.bytes).unwrap();
            let records = Records::new(used, false).map(Result::unwrap);
            records.filter(|r| (2..5).contains(&r.header.seq)).count()
        };
        let counts: Vec<usize> = laid.full.iter().map(with).filter(|n| *n > 0).collect();
        assert_eq!(counts, [3], "with {before} bytes before them");
        let seqs: Vec<u64> = records(&laid).iter().map(|r| r.header.seq).collect();
        assert_eq!(seqs, [1, 2, 3, 4, 5]);
    }
}
