use super::*;
use proptest::prelude::*;

fn verifiers() -> [Verifier; 4] {
    let words = Checksum([11, 12, 13, 14]);
    [
        Verifier::Label { offset: 0x1c000 },
        Verifier::GangHeader { vdev: 1, offset: 0x200, birth: 77 },
        Verifier::Zilog(words),
        Verifier::Zilog2(words),
    ]
}

fn block(len: usize) -> Vec<u8> {
    let mut b: Vec<u8> = (0..len).map(|i| (i * 31 / 7) as u8).collect();
    b[ZIL_CHAIN_NUSED..ZIL_CHAIN_NUSED + 8].copy_from_slice(&4097u64.to_le_bytes());
    b
}

/// Goal: a sealed block verifies, with and without a MAC, and only with its own verifier and bytes.
#[test]
fn sealed_blocks_verify() {
    for v in verifiers() {
        for mac in [None, Some([9; 16])] {
            let mut b = block(12288);
            seal(&v, &mut b, mac.as_ref()).unwrap();
            assert_eq!(verify(&v, &b, mac.is_some()), Ok(ByteOrder::Little));
            for other in verifiers().iter().filter(|o| **o != v) {
                verify(other, &b, mac.is_some()).unwrap_err();
            }
            verify(&Verifier::Zilog2(Checksum([11, 12, 13, 15])), &b, mac.is_some()).unwrap_err();
            b[300] ^= 1;
            assert!(matches!(verify(&v, &b, mac.is_some()), Err(Error::Mismatch { .. })));
        }
    }
}

/// Goal: the checksum does not cover the unused part of a log block.
#[test]
fn unused_part_of_a_log_block() {
    let v = Verifier::Zilog2(Checksum::ZERO);
    let mut b = block(12288);
    seal(&v, &mut b, None).unwrap();
    b[8192] ^= 1;
    verify(&v, &b, false).unwrap();
    b[8191] ^= 1;
    verify(&v, &b, false).unwrap_err();
}

/// Goal: a block of a big-endian writer verifies: all its words are swapped, and SHA-256 runs over
/// its bytes.
#[test]
fn other_byte_order() {
    for v in verifiers() {
        let mut b = block(8192);
        b[ZIL_CHAIN_NUSED..ZIL_CHAIN_NUSED + 8].copy_from_slice(&4097u64.to_be_bytes());
        let at = trailer_at(&v, &b).unwrap();
        b[at..at + 8].copy_from_slice(&ZEC_MAGIC.to_be_bytes());
        let span = span_to_verify(&v, &b).unwrap();
        assert_eq!(span.order, ByteOrder::Big);
        let own = sum(&v, span, &b);
        b[at + 8..at + 40].copy_from_slice(&own.to_bytes(ByteOrder::Big));
        assert_eq!(verify(&v, &b, false), Ok(ByteOrder::Big));
    }
}

proptest! {
    /// Goal: no bytes make the verification panic or pass.
    #[test]
    fn any_bytes(
        len in 0usize..300,
        big in any::<bool>(),
        nused in any::<u64>(),
        fill in any::<u8>(),
    ) {
        let magic = if big { ZEC_MAGIC.to_be_bytes() } else { ZEC_MAGIC.to_le_bytes() };
        for v in verifiers() {
            let mut b = vec![fill; len * 16];
            if let Some(field) = b.get_mut(ZIL_CHAIN_NUSED..ZIL_CHAIN_NUSED + 8) {
                field.copy_from_slice(&nused.to_le_bytes());
            }
            if let Ok(at) = trailer_at(&v, &b) {
                b[at..at + 8].copy_from_slice(&magic);
            }
            prop_assert!(verify(&v, &b, false).is_err());
            prop_assert!(verify(&v, &b[..b.len() / 3], true).is_err());
        }
    }
}
