//! `lz4`: a big-endian length and an LZ4 block.

use super::{Unpacked, prefixed};
use lz4_flex::block::{CompressTable, compress_into_with_table, decompress_into, get_maximum_output_size};
use ondisk::Corrupt;
use std::cell::RefCell;

/// Bytes of the length.
const PREFIX: usize = 4;
/// Largest scratch buffer that a thread keeps between blocks.
const KEEP: usize = 2 << 20;

thread_local! {
    // The packer wants room for the worst case, which is more than the caller's limit.
    static SCRATCH: RefCell<(CompressTable, Vec<u8>)> = const { RefCell::new((CompressTable::large(), Vec::new())) };
}

pub(super) fn unpack(src: &[u8], dst: &mut [u8]) -> Unpacked {
    let bad = |why| Corrupt::Shape { what: "lz4", why };
    match decompress_into(prefixed("lz4", src, PREFIX)?, dst) {
        Ok(n) if n == dst.len() => Ok(()),
        Ok(_) => Err(bad("the stream ends before the block is full")),
        Err(_) => Err(bad("the stream is not valid")),
    }
}

pub(super) fn pack(src: &[u8], dst: &mut [u8]) -> Option<usize> {
    SCRATCH.with_borrow_mut(|(table, scratch)| {
        let most = get_maximum_output_size(src.len());
        if scratch.len() < most {
            scratch.resize(most, 0);
        }
        let len =
            compress_into_with_table(src, scratch, table).expect("the scratch buffer fits the worst case");
        let packed = dst.get_mut(..PREFIX + len).map(|out| {
            let prefix = u32::try_from(len).expect("blocks are far below 4 GiB");
            out[..PREFIX].copy_from_slice(&prefix.to_be_bytes());
            out[PREFIX..].copy_from_slice(&scratch[..len]);
            PREFIX + len
        });
        if scratch.len() > KEEP {
            *scratch = Vec::new();
        }
        packed
    })
}
