use super::*;
use proptest::prelude::*;

const SALT: [u8; 32] = [7; 32];

/// Fletcher-4 by its definition, one word after the other.
fn fletcher4_plain(order: ByteOrder, data: &[u8]) -> Checksum {
    let mut s = [0u64; 4];
    for raw in data.as_chunks::<4>().0 {
        let word = match order {
            ByteOrder::Little => u32::from_le_bytes(*raw),
            ByteOrder::Big => u32::from_be_bytes(*raw),
        };
        s[0] = s[0].wrapping_add(word.into());
        for i in 1..4 {
            s[i] = s[i].wrapping_add(s[i - 1]);
        }
    }
    Checksum(s)
}

proptest! {
    /// Goal: the sum in lanes, and in parts of any length, equals the plain definition.
    #[test]
    fn fletcher4_equals_its_definition(
        words in prop::collection::vec(any::<u32>(), 0..400),
        cut in any::<prop::sample::Index>(),
        big in any::<bool>(),
    ) {
        let order = if big { ByteOrder::Big } else { ByteOrder::Little };
        let data: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        let (front, back) = data.split_at(cut.index(words.len() + 1) * 4);
        let mut sum = Fletcher4::new(order);
        sum.append(front);
        sum.append(back);
        prop_assert_eq!(sum.finish(), fletcher4_plain(order, &data));
    }

    /// Goal: the sum over swapped words in the other byte order is the same sum.
    #[test]
    fn orders_mirror_each_other(words in prop::collection::vec(any::<u64>(), 0..64)) {
        let words = &words[..words.len() & !1];
        let le: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        let be: Vec<u8> = words.iter().flat_map(|w| w.to_be_bytes()).collect();
        prop_assert_eq!(fletcher2(ByteOrder::Little, &le), fletcher2(ByteOrder::Big, &be));
        let half: Vec<u8> = le.as_chunks::<4>().0.iter().flat_map(|w| w.iter().rev().copied()).collect();
        prop_assert_eq!(fletcher4(ByteOrder::Little, &le), fletcher4(ByteOrder::Big, &half));
    }
}

/// Goal: the largest block of the largest words overflows nothing but the defined modulus.
#[test]
fn fletcher4_of_the_largest_block() {
    let data = vec![0xff; 16 << 20];
    assert_eq!(fletcher4(ByteOrder::Little, &data), fletcher4_plain(ByteOrder::Little, &data));
}

/// Goal: the hashes are the standard ones, and only SHA-256 has big-endian words in both byte
/// orders (FIPS 180-4, "abc").
#[test]
fn standard_vectors() {
    let abc = b"abc";
    let sums = Checksummer::new(&SALT);
    let want = Checksum([0xba7816bf8f01cfea, 0x414140de5dae2223, 0xb00361a396177a9c, 0xb410ff61f20015ad]);
    for order in [ByteOrder::Little, ByteOrder::Big] {
        assert_eq!(sums.compute(ChecksumKind::Sha256, order, abc).unwrap(), want);
    }
    let want = Checksum([0x53048e2681941ef9, 0x9b2e29b76b4c7dab, 0xe4c2d0c634fc6d46, 0xe0e2f13107e7af23]);
    assert_eq!(sums.compute(ChecksumKind::Sha512, ByteOrder::Big, abc).unwrap(), want);
    let swapped = Checksum(want.0.map(u64::swap_bytes));
    assert_eq!(sums.compute(ChecksumKind::Sha512, ByteOrder::Little, abc).unwrap(), swapped);
}

/// Goal: blocks without a checksum have zeros, and kinds that name no plain function are refused.
#[test]
fn kinds_that_compute_nothing() {
    let sums = Checksummer::new(&SALT);
    for kind in [ChecksumKind::Off, ChecksumKind::Noparity] {
        assert_eq!(sums.compute(kind, ByteOrder::Little, &[1; 512]).unwrap(), Checksum::ZERO);
    }
    for kind in [
        ChecksumKind::Inherit,
        ChecksumKind::On,
        ChecksumKind::Label,
        ChecksumKind::GangHeader,
        ChecksumKind::Zilog,
        ChecksumKind::Zilog2,
    ] {
        assert_eq!(sums.compute(kind, ByteOrder::Little, &[1; 512]), Err(Error::ChecksumKind { kind }));
    }
}

/// Goal: with every function, one flipped bit anywhere is a mismatch.
#[test]
fn every_function_sees_a_flipped_bit() {
    let sums = Checksummer::new(&SALT);
    let data: Vec<u8> = (0..1024u32).map(|i| (i * 7 + i / 3) as u8).collect();
    for kind in [
        ChecksumKind::Fletcher2,
        ChecksumKind::Fletcher4,
        ChecksumKind::Sha256,
        ChecksumKind::Sha512,
        ChecksumKind::Skein,
        ChecksumKind::Edonr,
        ChecksumKind::Blake3,
    ] {
        let sum = sums.compute(kind, ByteOrder::Little, &data).unwrap();
        sums.verify(kind, ByteOrder::Little, &data, sum, false).unwrap();
        for bit in [0, 3000, 8191] {
            let mut bad = data.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(sums.verify(kind, ByteOrder::Little, &bad, sum, false).is_err(), "{kind:?} {bit}");
        }
    }
}

/// Goal: beside a MAC only half of a checksum counts, and weak sums are folded; the MAC keeps its
/// byte order.
#[test]
fn half_a_checksum_beside_a_mac() {
    let sum = Checksum([1, 2, 4, 8]);
    assert_eq!(sum.under_mac(ChecksumKind::Sha256), Checksum([1, 2, 0, 0]));
    assert_eq!(sum.under_mac(ChecksumKind::Fletcher4), Checksum([5, 10, 0, 0]));
    let mac: [u8; 16] = std::array::from_fn(|i| i as u8);
    for order in [ByteOrder::Little, ByteOrder::Big] {
        let both = Checksum([5, 10, 0, 0]).with_mac(order, &mac);
        assert_eq!(both.mac(order), mac);
        both.check(ChecksumKind::Fletcher4, sum, true).unwrap();
        both.check(ChecksumKind::Fletcher4, sum, false).unwrap_err();
    }
}
