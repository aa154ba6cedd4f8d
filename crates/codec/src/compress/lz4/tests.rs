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

/// Unpacks all of a block.
fn whole(src: &[u8], dst: &mut [u8]) -> Option<usize> {
    let (start, len) = unpack_block(src, dst)?;
    dst[start..len].fill(0);
    Some(len)
}

/// Streams with long runs, of zeros and others, near and far.
fn sequences() -> impl Strategy<Value = Vec<u8>> {
    let one = (prop::collection::vec(prop_oneof![Just(0u8), any::<u8>()], 0..14), 0usize..2_000, 0u16..3_000);
    prop::collection::vec(one, 1..12).prop_map(|all| {
        let mut stream = Vec::new();
        for (literals, run, offset) in all {
            stream.push((literals.len() as u8) << 4 | run.min(15) as u8);
            stream.extend(literals);
            stream.extend(offset.to_le_bytes());
            if run >= 15 {
                stream.extend(vec![255; (run - 15) / 255]);
                stream.push(((run - 15) % 255) as u8);
            }
        }
        stream.extend([0x50, 0, 0, 0, 0, 0]);
        stream
    })
}

proptest! {
    /// Goal: this decoder and another one find the same in any sequences.
    #[test]
    fn agrees_on_sequences(stream in sequences()) {
        let (mut ours, mut theirs) = (vec![0x5a; 30_000], vec![0; 30_000]);
        if let Ok(len) = decompress_into(&stream, &mut theirs) {
            prop_assert_eq!(whole(&stream, &mut ours), Some(len));
            prop_assert!(ours[..len] == theirs[..len]);
        }
    }

    /// Goal: the unpacker restores the output of another encoder, in a buffer of exactly its
    /// length.
    #[test]
    fn unpacks_another_encoders(data in texture()) {
        let mut out = vec![0x5a; data.len()];
        prop_assert_eq!(whole(&compress(&data), &mut out), Some(data.len()));
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
        let (n, m) = (whole(&packed, &mut ours), decompress_into(&packed, &mut theirs));
        match (n, m) {
            (Some(n), Ok(m)) => prop_assert!(n == m && ours[..n] == theirs[..m]),
            (None, Ok(m)) => prop_assert!(false, "only the other takes it, as {m} bytes"),
            _ => {}
        }
    }

    /// Goal: what the unpacker leaves out at the end of a block is zeros.
    #[test]
    fn starts(data in texture(), zeros in 1_000usize..200_000, last in any::<u8>()) {
        let mut data = data;
        data.extend(vec![0; zeros]);
        for tail in [vec![], vec![last], vec![0; 600]] {
            data.extend(tail);
            let mut out = vec![0x5a; data.len()];
            let (start, len) = unpack_block(&compress(&data), &mut out).unwrap();
            prop_assert_eq!(len, data.len());
            prop_assert!(out[..start] == data[..start] && is_zero(&data[start..]));
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
    assert_eq!(unpack_block(&[0x10, b'a', 1, 0, 0], &mut [0; 64]), Some((5, 5)));
    assert_eq!(unpack_block(&[], &mut [0; 64]), None);
}

/// Goal: of an indirect block with few pointers, the zeros are left out. Those that something
/// follows are written.
#[test]
fn sparse_blocks() {
    let mut block = vec![0; 131_072];
    (0u8..200).zip(&mut block).for_each(|(byte, place)| *place = byte.wrapping_mul(37) | 1);
    let mut out = vec![0x5a; block.len()];
    let (start, len) = unpack_block(&compress(&block), &mut out).unwrap();
    assert!((200..RUN).contains(&start) && len == block.len(), "{start} of {len}");
    assert!(out[..start] == block[..start]);
    block[131_071] = 1;
    assert_eq!(unpack_block(&compress(&block), &mut out), Some((block.len(), block.len())));
    assert!(out == block);
}
