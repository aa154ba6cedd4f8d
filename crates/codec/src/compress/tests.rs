use super::*;
use proptest::prelude::*;

const KINDS: [CompressKind; 8] = [
    CompressKind::Lzjb,
    CompressKind::Gzip1,
    CompressKind::Gzip6,
    CompressKind::Gzip9,
    CompressKind::Zle,
    CompressKind::Lz4,
    CompressKind::Zstd,
    CompressKind::Empty,
];

fn level(n: u8) -> ZstdLevel {
    ZstdLevel::from_disk(n).unwrap()
}

/// Data with literals, zeros, and near and far repetitions.
fn texture() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        prop::collection::vec(any::<u8>(), 1..200),
        (1usize..3000).prop_map(|n| vec![0; n]),
        (any::<u8>(), 1usize..500).prop_map(|(b, n)| vec![b; n]),
        (1usize..600).prop_map(|n| b"the quick brown fox ".iter().copied().cycle().take(n).collect()),
    ];
    prop::collection::vec(piece, 0..12).prop_map(|p| p.concat())
}

proptest! {
    /// Goal: all packed data unpack to the same data, also with padding after them.
    #[test]
    fn round_trip(data in texture(), fast in 0u8..21) {
        for kind in KINDS {
            let mut packed = vec![0; data.len()];
            let Some(len) = compress(kind, level(103 + fast), &data, &mut packed) else { continue };
            packed.truncate(len);
            if kind != CompressKind::Empty {
                packed.resize(len.next_multiple_of(512), 0);
            }
            let mut back = vec![0x5a; data.len()];
            decompress(kind, &packed, &mut back).unwrap();
            prop_assert!(back == data, "{kind:?}");
        }
    }

    /// Goal: hostile bytes give an error or fill the block; no sizes make the unpacker panic.
    #[test]
    fn any_bytes(src in prop::collection::vec(any::<u8>(), 0..600), lsize in 0usize..2000) {
        for kind in KINDS {
            let mut src = src.clone();
            let mut dst = vec![0; lsize];
            let _ = decompress(kind, &src, &mut dst);
            // The same with a plausible length in front.
            if src.len() > 8 {
                let len = (src.len() - 8) as u32;
                src[..4].copy_from_slice(&len.to_be_bytes());
                src[4..8].copy_from_slice(&[3, 0, 0x29, 5]);
                let _ = decompress(kind, &src, &mut dst);
            }
        }
    }

    /// Goal: damage to a packed block never causes a panic or a write past the block, and a block
    /// of another size is refused.
    #[test]
    fn damaged(data in texture(), at in any::<prop::sample::Index>(), bit in 0u8..8) {
        for kind in KINDS {
            let mut packed = vec![0; data.len()];
            let Some(len) = compress(kind, ZstdLevel::default(), &data, &mut packed) else { continue };
            if kind != CompressKind::Empty && kind != CompressKind::Lzjb {
                // LZJB has no end of its own: it fills any smaller block.
                prop_assert!(decompress(kind, &packed[..len], &mut vec![0; data.len() + 1]).is_err());
            }
            if len == 0 {
                continue;
            }
            packed[at.index(len)] ^= 1 << bit;
            let mut back = vec![0; data.len()];
            let _ = decompress(kind, &packed[..len], &mut back);
            let _ = decompress(kind, &packed[..at.index(len)], &mut back);
        }
    }
}

/// Goal: each zstd level number of OpenZFS is known, maps to zstd's level, and packs.
#[test]
fn zstd_levels() {
    let known: Vec<(u8, i32)> =
        (0..=255).filter_map(|n| ZstdLevel::from_disk(n).map(|l| (l.to_disk(), l.zstd()))).collect();
    assert_eq!(known.len(), 40);
    assert_eq!((known[0], known[18], known[19]), ((1, 1), (19, 19), (103, -1)));
    assert_eq!(
        (known[28], known[29], known[38], known[39]),
        ((112, -10), (113, -20), (122, -500), (123, -1000))
    );
    let data = b"poolhouse".repeat(12_000);
    for (number, _) in known {
        let mut packed = vec![0; data.len()];
        let len = compress(CompressKind::Zstd, level(number), &data, &mut packed).unwrap();
        assert_eq!(zstd_header(&packed[..len]).unwrap().level, level(number));
        let mut back = vec![0; data.len()];
        decompress(CompressKind::Zstd, &packed, &mut back).unwrap();
        assert_eq!(back, data);
    }
}

/// Goal: the decoder reads both layouts of the zstd header that exist on disks, and refuses unknown
/// levels.
#[test]
fn zstd_header_layouts() {
    let want = ZstdHeader { size: 0, level: level(3), version: 10405 };
    assert_eq!(zstd_header(&[0, 0, 0, 0, 3, 0, 0x28, 0xa5]).unwrap(), want);
    assert_eq!(zstd_header(&[0, 0, 0, 0, 0, 0x28, 0xa5, 3]).unwrap(), want);
    for bad in [[0, 0, 0, 0, 20, 0, 0x28, 0xa5], [0, 0, 0, 1, 3, 0, 0x28, 0xa5], [0; 8]] {
        zstd_header(&bad).unwrap_err();
    }
}

/// Goal: a state that has just failed works for the next block (states are reused).
#[test]
fn states_survive_failures() {
    let noise: Vec<u8> = (0..200_000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    let data = vec![b'x'; 131_072];
    for kind in KINDS {
        assert_eq!(compress(kind, level(1), &noise, &mut [0; 300]), None, "{kind:?}");
        let mut packed = vec![0; data.len()];
        let Some(len) = compress(kind, level(1), &data, &mut packed) else { continue };
        let mut back = vec![0; data.len()];
        let _ = decompress(kind, &noise, &mut back);
        decompress(kind, &packed[..len], &mut back).unwrap();
        assert_eq!(back, data);
    }
}

/// Goal: the limit is OpenZFS's: an eighth saved, whole sectors, or small enough for the block
/// pointer.
#[test]
fn limits() {
    assert_eq!(max_size(CompressKind::Lz4, 4096, 4096, 131_072), 114_688);
    assert_eq!(max_size(CompressKind::Lz4, 512, 512, 1000), 512);
    assert_eq!(max_size(CompressKind::Lz4, 4096, 4096, 4096), 112);
    assert_eq!(max_size(CompressKind::Zle, 4096, 4096, 4096), 3584);
}

/// Goal: kinds that no stored block has are refused, and the sizes must agree if nothing is packed.
#[test]
fn kinds_that_pack_nothing() {
    let mut dst = [1; 4];
    decompress(CompressKind::Off, &[5; 4], &mut dst).unwrap();
    assert_eq!(dst, [5; 4]);
    decompress(CompressKind::Empty, &[], &mut dst).unwrap();
    assert_eq!(dst, [0; 4]);
    decompress(CompressKind::Off, &[5; 3], &mut dst).unwrap_err();
    decompress(CompressKind::Empty, &[0], &mut dst).unwrap_err();
    for kind in [CompressKind::On, CompressKind::Inherit] {
        decompress(kind, &[5; 4], &mut dst).unwrap_err();
    }
}
