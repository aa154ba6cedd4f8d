use super::*;
use ondisk::blkptr::CryptParams;
use ondisk::{ByteOrder, DmuType, Guid};
use proptest::prelude::*;

const PARAMS: CryptParams = CryptParams { salt: [1, 2, 3, 4, 5, 6, 7, 8], iv: [9; 12] };
const SUITES: [CryptoSuite; 6] = [
    CryptoSuite::Aes128Ccm,
    CryptoSuite::Aes192Ccm,
    CryptoSuite::Aes256Ccm,
    CryptoSuite::Aes128Gcm,
    CryptoSuite::Aes192Gcm,
    CryptoSuite::Aes256Gcm,
];

fn keys(suite: CryptoSuite, version: KeyVersion) -> DataKeys {
    DataKeys::new(suite, version, Guid(42), &[5; 32][..suite.key_len()], &[6; 64])
}

/// Goal: PBKDF2 is the standard's, and absurd counts are refused. OpenSSL computed the expected 32
/// bytes for the salt "saltsalt".
#[test]
fn passphrases() {
    let salt = u64::from_le_bytes(*b"saltsalt");
    let key = WrappingKey::from_passphrase(b"password", salt, 4096).unwrap();
    let hex = b"baf9a7b042dcdce2c91418a3ec63f8aa2819f8e265016e0380ac207d933a12c7";
    let same = WrappingKey::from_hex(hex).unwrap();
    let keys = keys(CryptoSuite::Aes256Gcm, KeyVersion::V1);
    same.unwrap(&key.wrap(&keys, [0; 12])).unwrap();
    for iterations in [0, 100_000_001, u64::from(u32::MAX) + 4097] {
        let refused = WrappingKey::from_passphrase(b"password", salt, iterations);
        assert!(matches!(refused, Err(Error::Iterations { .. })));
    }
}

/// Goal: hexadecimal keys are 64 digits of either case and nothing else.
#[test]
fn hexadecimal_keys() {
    let digits = b"00112233445566778899aabbccddeeffFFEEDDCCBBAA99887766554433221100";
    WrappingKey::from_hex(digits).unwrap();
    let mut bad = *digits;
    bad[63] = b'g';
    for bad in [&digits[..63], &digits[..62], &bad[..], b""] {
        assert_eq!(WrappingKey::from_hex(bad).err(), Some(Error::HexKey));
    }
}

/// Goal: wrapped keys unwrap only with their wrapping key and only if unchanged, in every suite and
/// version.
#[test]
fn wrapping() {
    let (key, other) = (WrappingKey::from_raw([1; 32]), WrappingKey::from_raw([2; 32]));
    for suite in SUITES {
        for version in [KeyVersion::V0, KeyVersion::V1] {
            let wrapped = key.wrap(&keys(suite, version), [3; 12]);
            let open = key.unwrap(&wrapped).unwrap();
            assert_eq!(key.wrap(&open, [3; 12]), wrapped);
            assert_eq!(other.unwrap(&wrapped).err(), Some(Error::WrongKey));
            let changed = [
                WrappedKeys { guid: Guid(43), ..wrapped },
                WrappedKeys { iv: [4; 12], ..wrapped },
                WrappedKeys { hmac: [0; 64], ..wrapped },
            ];
            assert!(changed.iter().all(|w| key.unwrap(w).is_err()));
        }
    }
    for bad in [2, u64::MAX] {
        KeyVersion::from_disk(bad).unwrap_err();
    }
}

/// Goal: data survive encryption, and any change to bytes, IV, salt or MAC is detected. Many salts
/// evict one another from the cache without harm.
#[test]
fn round_trips() {
    for suite in SUITES {
        let keys = keys(suite, KeyVersion::V1);
        let plain: Vec<u8> = (0..4096u32).map(|i| ((i * i) >> 5) as u8).collect();
        for n in 0..40u8 {
            let params = CryptParams { salt: [n; 8], ..PARAMS };
            let mut block = plain.clone();
            let mac = keys.encrypt(DmuType::PLAIN_FILE_CONTENTS, &params, &mut block).unwrap();
            let open = |params: &CryptParams, mac: &[u8; 16], block: &[u8]| {
                let mut block = block.to_vec();
                let kind = DmuType::PLAIN_FILE_CONTENTS;
                keys.decrypt(kind, ByteOrder::Little, params, mac, &mut block).map(|()| block)
            };
            assert!(open(&params, &mac, &block).unwrap() == plain);
            assert!(open(&CryptParams { salt: [n + 1; 8], ..params }, &mac, &block).is_err());
            assert!(open(&CryptParams { iv: [8; 12], ..params }, &mac, &block).is_err());
            assert!(open(&params, &[0; 16], &block).is_err());
            block[n as usize] ^= 1;
            assert_eq!(open(&params, &mac, &block), Err(Error::Mac { what: "block" }));
        }
    }
}

/// Goal: CCM takes no more than its length field can count (16 MiB less one), and reports an error
/// for more.
#[test]
fn too_long_for_ccm() {
    let mut block = vec![0; 1 << 24];
    let params = PARAMS;
    let ccm = keys(CryptoSuite::Aes128Ccm, KeyVersion::V1);
    assert!(matches!(
        ccm.encrypt(DmuType::PLAIN_FILE_CONTENTS, &params, &mut block),
        Err(Error::Protected { .. })
    ));
}

/// A little-endian object set in which every field has a value.
fn objset(len: usize) -> Vec<u8> {
    let mut raw = vec![0; len];
    for (i, at) in [0, 1024, 1536, 2048].into_iter().filter(|at| *at < len).enumerate() {
        let dnode = &mut raw[at..at + 512];
        dnode[..8].copy_from_slice(&[10, 17, 1, 3, 0, 0, 0, 7]);
        dnode[8..12].copy_from_slice(&[32, 0, 1, 0]);
        dnode[16..24].copy_from_slice(&(77 + i as u64).to_le_bytes());
        dnode[24..32].copy_from_slice(&99u64.to_le_bytes());
        for (n, bp) in dnode[64..448].chunks_exact_mut(8).enumerate() {
            bp.copy_from_slice(&(n as u64 * 0x0101_0203_0507).to_le_bytes());
        }
        // Ordinary properties of level 0, written by a little-endian machine.
        for bp in dnode[64..448].chunks_exact_mut(128) {
            bp[48..56].copy_from_slice(&(1u64 << 63 | 1 << 61 | 10 << 48 | 7 << 40 | 15 << 32).to_le_bytes());
        }
        // The spill flag is set, but the pointer must not overlap the others: one pointer fewer.
        dnode[3] = 2;
    }
    raw[704..712].copy_from_slice(&2u64.to_le_bytes());
    raw[712..720].copy_from_slice(&1u64.to_le_bytes());
    raw
}

/// Goal: an object set has the same MACs in both byte orders, because all inputs are converted to
/// one.
#[test]
fn object_sets_of_both_orders() {
    for len in [1024, 2048, 4096] {
        let little = objset(len);
        let mut big = little.clone();
        for at in [0, 1024, 1536, 2048].into_iter().filter(|at| *at < len) {
            for field in [8..10, 10..12, 16..24, 24..32] {
                big[at..at + 512][field].reverse();
            }
            ondisk::bytes::swap64(&mut big[at + 64..at + 512]);
        }
        big[704..712].reverse();
        big[712..720].reverse();
        let keys = keys(CryptoSuite::Aes256Gcm, KeyVersion::V1);
        let macs = keys.objset_macs(ByteOrder::Little, &little).unwrap();
        assert_eq!(keys.objset_macs(ByteOrder::Big, &big).unwrap(), macs);
        assert_eq!(macs.local == [0; 32], len == 1024);
        // Used space isn't portable; the shape of the tree is.
        let mut other = little.clone();
        other[24] ^= 1;
        assert_eq!(keys.objset_macs(ByteOrder::Little, &other).unwrap(), macs);
        other[16] ^= 1;
        assert_ne!(keys.objset_macs(ByteOrder::Little, &other).unwrap().portable, macs.portable);
        let old = DataKeys::new(CryptoSuite::Aes256Gcm, KeyVersion::V0, Guid(42), &[5; 32], &[6; 64]);
        assert_ne!(old.objset_macs(ByteOrder::Little, &little).unwrap(), macs);
    }
}

/// Goal: an indirect block's digest ignores what isn't portable, and its versions differ.
#[test]
fn indirect_blocks() {
    let mut block = objset(1024)[64..320].to_vec();
    // Level 1.
    block[55] |= 1;
    let mac = indirect_mac(KeyVersion::V1, ByteOrder::Little, &block).unwrap();
    let old = indirect_mac(KeyVersion::V0, ByteOrder::Little, &block).unwrap();
    assert_ne!(mac, old);
    for mac in [mac, old] {
        verify_indirect(ByteOrder::Little, &block, &mac).unwrap();
    }
    verify_indirect(ByteOrder::Little, &block, &[0; 16]).unwrap_err();
    // Compressor, checksum and stored size of a pointer at level 1 may differ elsewhere; its level
    // may not.
    for (at, counts) in [(52, false), (53, false), (50, false), (55, true), (112, true), (96, false)] {
        let mut other = block.clone();
        other[at] ^= 2;
        let same = indirect_mac(KeyVersion::V1, ByteOrder::Little, &other).unwrap() == mac;
        assert_eq!(same, !counts, "byte {at}");
    }
    let mut swapped = block.clone();
    ondisk::bytes::swap64(&mut swapped);
    verify_indirect(ByteOrder::Big, &swapped, &mac).unwrap();
    indirect_mac(KeyVersion::V1, ByteOrder::Little, &block[1..]).unwrap_err();
}

fn check_split(split: &Split, len: usize) {
    let mut at = 0;
    for part in &split.secret {
        assert!(at <= part.start && part.start <= part.end && part.end <= split.end);
        at = part.end;
    }
    assert!(split.end <= len && split.aad.len() <= len + 64);
}

proptest! {
    /// Goal: no bytes make the splitting of a block panic, or its parts overlap.
    #[test]
    fn any_bytes(
        mut block in prop::collection::vec(any::<u8>(), 0..3000),
        small in any::<bool>(),
        big in any::<bool>(),
        nused in 0u64..4000,
        lens in prop::collection::vec((0u64..26, 0u64..400), 0..12),
    ) {
        let order = if big { ByteOrder::Big } else { ByteOrder::Little };
        let word = |v: u64| if big { v.to_be_bytes() } else { v.to_le_bytes() };
        if let Ok(split) = zil_block(order, &block) {
            check_split(&split, block.len());
        }
        // Records with plausible lengths.
        if block.len() > 200 {
            block[136..144].copy_from_slice(&word(nused));
            let mut at = 184;
            for (kind, len) in lens {
                let Some(header) = block.get_mut(at..at + 16) else { break };
                header[..8].copy_from_slice(&word(kind));
                header[8..].copy_from_slice(&word(len));
                at += len as usize;
            }
            if let Ok(split) = zil_block(order, &block) {
                check_split(&split, block.len());
            }
        }
        block.truncate(block.len() / 512 * 512);
        if small {
            // Dnodes with a plausible shape.
            for dnode in block.chunks_exact_mut(512) {
                (dnode[3], dnode[4], dnode[12]) = (dnode[3] % 4, dnode[4] % 60, dnode[12] % 3);
                for bp in dnode[64..448].chunks_exact_mut(128) {
                    bp[52] &= 0x7f;
                    bp[51] &= 0x7f;
                }
            }
        }
        for version in [KeyVersion::V0, KeyVersion::V1] {
            if let Ok(split) = dnode_block(version, order, &block) {
                check_split(&split, block.len());
            }
            let _ = indirect_mac(version, order, &block);
            let _ = keys(CryptoSuite::Aes256Gcm, version).objset_macs(order, &block);
        }
        block.resize(1024, 0);
        let _ = keys(CryptoSuite::Aes256Gcm, KeyVersion::V1).verify_objset(order, &block);
        let _ = zil_mac(&block[..block.len() / 6]);
    }
}
