use super::*;
use lz4_flex::block::{compress_into, decompress_into};
use proptest::prelude::*;

/// Data in which LZ4 finds matches at every distance, including short ones that overlap themselves.
fn texture() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        prop::collection::vec(any::<u8>(), 1..100),
        (prop::collection::vec(any::<u8>(), 1..40), 1usize..3000).prop_map(|(unit, n)| unit
            .iter()
            .copied()
            .cycle()
            .take(n)
            .collect()),
    ];
    prop::collection::vec(piece, 1..10).prop_map(|p| p.concat())
}

fn compress(data: &[u8]) -> Vec<u8> {
    let mut out = vec![0; get_maximum_output_size(data.len())];
    let len = compress_into(data, &mut out).unwrap();
    out.truncate(len);
    out
}

proptest! {
    /// Goal: the unpacker restores the output of another encoder, in a buffer of exactly its
    /// length.
    #[test]
    fn unpacks_another_encoders(data in texture()) {
        let mut out = vec![0x5a; data.len()];
        prop_assert_eq!(unpack_block(&compress(&data), &mut out), Some(data.len()));
        prop_assert!(out == data);
        prop_assert_eq!(unpack_block(&compress(&data), &mut out[..data.len() - 1]), None);
    }

    /// Goal: on broken streams, this decoder agrees with another one. It accepts all that the other
    /// accepts, and finds the same content.
    #[test]
    fn agrees_on_broken_streams(data in texture(), at in any::<prop::sample::Index>(), bit in 0u8..8, room in 0usize..100) {
        let mut packed = compress(&data);
        let at = at.index(packed.len());
        packed[at] ^= 1 << bit;
        let mut ours = vec![0; data.len() + room];
        let mut theirs = ours.clone();
        let (n, m) = (unpack_block(&packed, &mut ours), decompress_into(&packed, &mut theirs));
        match (n, m) {
            (Some(n), Ok(m)) => prop_assert!(n == m && ours[..n] == theirs[..m]),
            (None, Ok(m)) => prop_assert!(false, "only the other takes it, as {m} bytes"),
            _ => {}
        }
    }

    /// Goal: no bytes make the unpacker panic.
    #[test]
    fn any_bytes(src in prop::collection::vec(any::<u8>(), 0..300), room in 0usize..500) {
        unpack_block(&src, &mut vec![0; room]);
    }
}

/// Goal: a match that starts before the block, or at distance 0, is refused.
#[test]
fn impossible_matches() {
    assert_eq!(unpack_block(&[0x10, b'a', 2, 0, 0], &mut [0; 64]), None);
    assert_eq!(unpack_block(&[0x10, b'a', 0, 0, 0], &mut [0; 64]), None);
    assert_eq!(unpack_block(&[0x10, b'a', 1, 0, 0], &mut [0; 64]), Some(5));
    assert_eq!(unpack_block(&[], &mut [0; 64]), None);
}
