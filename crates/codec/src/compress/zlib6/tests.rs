use super::*;

/// Inputs with repetitions, as in the generator of the expected values.
fn input(seed: u64, n: usize, alphabet: u64, repeats: bool) -> Vec<u8> {
    let mut x = seed;
    let mut out: Vec<u8> = Vec::new();
    while out.len() < n {
        x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let r = x >> 33;
        if repeats && r.is_multiple_of(4) && out.len() > 8 {
            let d = (r / 4) as usize % out.len().min(6000) + 1;
            for _ in 0..r / 7 % 40 + 3 {
                out.push(out[out.len() - d]);
            }
        } else {
            out.push((r / 5 % alphabet) as u8);
        }
    }
    out.truncate(n);
    out
}

/// Seed, length, alphabet, repetitions; length and a hash of zlib 1.2's output
/// (`zlib.compress(data, 6)` in Python).
const ZLIB: &[(u64, usize, u64, bool, usize, u64)] = &[
    (0, 0, 2, false, 8, 0x320f2f7ae02),
    (1, 1, 256, false, 9, 0x61286a7889c3),
    (2, 5, 2, true, 13, 0x57e468cbb87042c3),
    (3, 40, 4, true, 29, 0xcc5baad4057f7ee3),
    (4, 184, 16, true, 56, 0x38c885d7d47c3199),
    (5, 300, 256, false, 311, 0xb63a20cde8b0da22),
    (6, 300, 30, true, 85, 0x557f472350f8e91a),
    (7, 1000, 3, true, 163, 0x26e494ef2795ce5d),
    (8, 1000, 256, true, 213, 0xef2f0865496c0b26),
    (9, 2000, 60, false, 1514, 0x4790647ef3ebb74c),
    (10, 4000, 200, true, 935, 0xcf133d2b3d0b9798),
    (11, 8000, 90, true, 1585, 0x13dfc2f25a0fdd4a),
    (12, 12000, 256, true, 2735, 0x635118c63a7f901e),
    (13, 15999, 17, true, 2817, 0x2ed617555115795b),
    (14, 16000, 2, true, 2269, 0x3e93d674fe9b7214),
    (15, 16000, 256, false, 16011, 0x8371d1b1ed2a7473),
    (16, 700, 1, false, 15, 0xef930671792319f6),
    (17, 5000, 250, false, 5011, 0x3fa09e038bf45ade),
    (18, 9000, 40, true, 1574, 0x3e6a1909d9c0d270),
    (19, 3000, 8, false, 1421, 0x3a631019a088c28f),
];

/// Goal: every stream is bit for bit the one that zlib makes.
#[test]
fn streams_are_zlibs() {
    for &(seed, n, alphabet, repeats, len, hash) in ZLIB {
        let got = compress(&input(seed, n, alphabet, repeats));
        let sum = got.iter().fold(0u64, |h, b| h.wrapping_mul(31).wrapping_add((*b).into()));
        assert_eq!((got.len(), sum), (len, hash), "seed {seed}");
    }
}

proptest::proptest! {
    /// Goal: another decoder restores every input from its stream.
    #[test]
    fn streams_decode(data in proptest::collection::vec(0u8..6, 0..3000)) {
        let mut out = vec![0; data.len()];
        let mut inflate = flate2::Decompress::new(true);
        let end = inflate.decompress(&compress(&data), &mut out, flate2::FlushDecompress::Finish);
        proptest::prop_assert_eq!(end.unwrap(), flate2::Status::StreamEnd);
        proptest::prop_assert_eq!(out, data);
    }
}
