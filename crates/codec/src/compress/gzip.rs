//! `gzip-1` to `gzip-9`: zlib streams (`gzip.c`).

use super::Unpacked;
use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};
use ondisk::Corrupt;
use std::cell::RefCell;

thread_local! {
    static INFLATE: RefCell<Decompress> = RefCell::new(Decompress::new(true));
    static DEFLATE: RefCell<Option<(u32, Compress)>> = const { RefCell::new(None) };
}

pub(super) fn unpack(src: &[u8], dst: &mut [u8]) -> Unpacked {
    let bad = |why| Corrupt::Shape { what: "gzip", why };
    INFLATE.with_borrow_mut(|state| {
        state.reset(true);
        match state.decompress(src, dst, FlushDecompress::Finish) {
            Ok(Status::StreamEnd) if state.total_out() == dst.len() as u64 => Ok(()),
            Ok(Status::StreamEnd) => Err(bad("the stream ends before the block is full")),
            Ok(Status::Ok | Status::BufError) => Err(bad("the stream is cut short or longer than the block")),
            Err(_) => Err(bad("the stream is not valid")),
        }
    })
}

pub(super) fn pack(level: u32, src: &[u8], dst: &mut [u8]) -> Option<usize> {
    // At level 1 of this library, blocks are half as large again as zlib's. Its level 2 is as good
    // as zlib's level 1.
    let level = level.max(2);
    DEFLATE.with_borrow_mut(|slot| {
        if slot.as_ref().is_none_or(|(have, _)| *have != level) {
            *slot = Some((level, Compress::new(Compression::new(level), true)));
        }
        let (_, state) = slot.as_mut().expect("filled above");
        state.reset();
        match state.compress(src, dst, FlushCompress::Finish) {
            Ok(Status::StreamEnd) => usize::try_from(state.total_out()).ok(),
            // The output does not fit, so it is not worth storing.
            Ok(Status::Ok | Status::BufError) | Err(_) => None,
        }
    })
}
