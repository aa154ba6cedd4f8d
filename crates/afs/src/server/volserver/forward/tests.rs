use super::*;

/// A block that is shared, and not copied.
#[derive(Clone)]
struct Shared(Arc<Vec<u8>>);

impl AsRef<[u8]> for Shared {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// Goal: the parts are what was written, in its order, and none is larger than allowed. Of large
/// parts of blocks, nothing is copied.
#[test]
fn large_blocks_go_out_uncopied() {
    let block = Shared(Arc::new((0..3 * PIECE as u32 + 5).map(|i| ((i * 7) >> 3) as u8).collect()));
    let bytes = block.as_ref();
    let mut put = Vec::<Slice>::new();
    let out = |part: Slice| -> io::Result<()> {
        put.push(part);
        Ok(())
    };
    let mut parts = Parts { at: 0, bytes: Vec::with_capacity(PIECE), put_at: Instant::now(), put: out };
    parts.write_all(b"head").unwrap();
    parts.block(&block, 10..10 + PIECE - 1).unwrap();
    parts.write_all(b"middle").unwrap();
    parts.block(&block, 7..bytes.len() - 1).unwrap();
    parts.block(&block, 0..0).unwrap();
    parts.write_all(b"end").unwrap();
    parts.flush().unwrap();
    let expected =
        [b"head", &bytes[10..10 + PIECE - 1], b"middle", &bytes[7..bytes.len() - 1], b"end"].concat();
    assert_eq!(parts.at, expected.len() as u64);
    let sizes: Vec<usize> = put.iter().map(Slice::len).collect();
    // The first block is too small to be shared: a part is full after most of it.
    assert_eq!(sizes, [PIECE, 3 + 6, PIECE, PIECE, PIECE - 3, 3]);
    assert!(put.iter().map(Slice::bytes).collect::<Vec<_>>().concat() == expected, "other bytes");
    let inside = bytes.as_ptr_range();
    let shared = put.iter().filter(|part| inside.contains(&part.bytes().as_ptr())).count();
    assert_eq!(shared, 3);
}
