//! Block compressors: what OpenZFS stores for each `compression` value, both ways.
//!
//! # Theory
//! The caller knows both sizes (`psize` and `lsize` of the block pointer) and brings both buffers, so nothing here
//! allocates by what a disk says. Unpacking must fill the destination exactly: a block that yields less or more
//! is corrupt. Stored bytes are padded with zeros to whole sectors; each format finds its own end.
//!
//! Packing is only worth it if it saves an eighth: [`max_size`] is OpenZFS's limit, and a block that doesn't get below it is
//! stored as it is. Every packed form is one that OpenZFS unpacks; LZJB and ZLE are byte for byte what it writes.
//!
//! The states of zlib, zstd and LZ4 are kept per thread, because making one costs more than a small block.
//!
//! # On disk
//! - `lzjb`, `zle`: the bare stream.
//! - `gzip-N`: a zlib stream (RFC 1950), not a gzip file.
//! - `lz4`: a big-endian 32-bit length, then an LZ4 block.
//! - `zstd`: a big-endian 32-bit length, a level byte and a 24-bit version, then a frame without its magic number.
//!
//! # See
//! OpenZFS: `zio_compress.c`, `lzjb.c`, `zle.c`, `gzip.c`, `lz4_zfs.c`, `zfs_zstd.c`.

mod gzip;
mod lz4;
mod lzjb;
mod zle;
pub mod zlib6;
mod zstd;

#[cfg(test)]
mod tests;

pub use zstd::{ZstdHeader, ZstdLevel};

use crate::{Error, Result};
use ondisk::{CompressKind, Corrupt};

/// Bytes that fit into an embedded block pointer (`BPE_PAYLOAD_SIZE`).
const BPE_PAYLOAD_SIZE: usize = 112;

type Unpacked = std::result::Result<(), Corrupt>;

/// Unpacks `src`, as stored, into all of `dst`, whose length is the block's logical size.
///
/// `Off` copies a block of that very size; `Empty` is the kind of holes and yields zeros from nothing.
///
/// # Errors
/// [`Error::Decompress`] when `src` isn't a packed form of a block of that size, or `kind` is one that no
/// stored block has. What `dst` holds is then undefined.
pub fn decompress(kind: CompressKind, src: &[u8], dst: &mut [u8]) -> Result<()> {
    let unpacked = match kind {
        CompressKind::Off if src.len() == dst.len() => {
            dst.copy_from_slice(src);
            Ok(())
        }
        CompressKind::Empty if src.is_empty() => {
            dst.fill(0);
            Ok(())
        }
        CompressKind::Off | CompressKind::Empty => Err(shape(kind, "stored and logical sizes don't fit")),
        CompressKind::Inherit | CompressKind::On => Err(shape(kind, "no block is stored like this")),
        CompressKind::Lzjb => lzjb::unpack(src, dst),
        CompressKind::Gzip1
        | CompressKind::Gzip2
        | CompressKind::Gzip3
        | CompressKind::Gzip4
        | CompressKind::Gzip5
        | CompressKind::Gzip6
        | CompressKind::Gzip7
        | CompressKind::Gzip8
        | CompressKind::Gzip9 => gzip::unpack(src, dst),
        CompressKind::Zle => zle::unpack(src, dst),
        CompressKind::Lz4 => lz4::unpack(src, dst),
        CompressKind::Zstd => zstd::unpack(src, dst),
    };
    unpacked.map_err(|source| Error::Decompress { kind, psize: src.len(), lsize: dst.len(), source })
}

/// Packs `src` into the front of `dst`, and says how many bytes that took; `None` if it doesn't fit, so
/// `dst` is as long as is worth while ([`max_size`]). `zstd` is the level when `kind` is `Zstd`.
///
/// `Empty` takes zeros only, to no bytes. `Off`, `Inherit` and `On` pack nothing. What follows the packed bytes in `dst`
/// is undefined; the caller pads with zeros to whole sectors.
pub fn compress(kind: CompressKind, zstd: ZstdLevel, src: &[u8], dst: &mut [u8]) -> Option<usize> {
    match kind {
        CompressKind::Inherit | CompressKind::On | CompressKind::Off => None,
        CompressKind::Empty => is_zero(src).then_some(0),
        CompressKind::Lzjb => lzjb::pack(src, dst),
        CompressKind::Gzip1 => gzip::pack(1, src, dst),
        CompressKind::Gzip2 => gzip::pack(2, src, dst),
        CompressKind::Gzip3 => gzip::pack(3, src, dst),
        CompressKind::Gzip4 => gzip::pack(4, src, dst),
        CompressKind::Gzip5 => gzip::pack(5, src, dst),
        CompressKind::Gzip6 => gzip::pack(6, src, dst),
        CompressKind::Gzip7 => gzip::pack(7, src, dst),
        CompressKind::Gzip8 => gzip::pack(8, src, dst),
        CompressKind::Gzip9 => gzip::pack(9, src, dst),
        CompressKind::Zle => zle::pack(src, dst),
        CompressKind::Lz4 => lz4::pack(src, dst),
        CompressKind::Zstd => zstd::pack_worthwhile(zstd, src, dst),
    }
}

/// The most bytes that a packed block of `lsize` may have (`zio_get_compression_max_size`): an eighth must be saved,
/// in whole units of allocation. `gcd_alloc` is the greatest common divisor of the vdevs' smallest
/// allocations, `min_alloc` the smallest of them, both in bytes.
///
/// # Panics
/// When `gcd_alloc` is 0.
pub fn max_size(kind: CompressKind, gcd_alloc: usize, min_alloc: usize, lsize: usize) -> usize {
    let limit = lsize - lsize / 8;
    if kind == CompressKind::Zle {
        return limit;
    }
    let whole = limit - limit % gcd_alloc;
    // Too small for a sector of its own; it may still fit into the block pointer.
    if whole < min_alloc { BPE_PAYLOAD_SIZE } else { whole }
}

/// True if all bytes are zero: such a block is stored as a hole.
pub fn is_zero(block: &[u8]) -> bool {
    let (words, tail) = block.as_chunks::<64>();
    words.iter().all(|w| w.iter().fold(0, |acc, b| acc | b) == 0) && tail.iter().all(|b| *b == 0)
}

/// The header of a zstd block: level and version of the writer.
///
/// # Errors
/// [`Error::Decompress`] when `src` has no valid header.
pub fn zstd_header(src: &[u8]) -> Result<ZstdHeader> {
    zstd::split(src).map(|(header, _)| header).map_err(|source| Error::Decompress {
        kind: CompressKind::Zstd,
        psize: src.len(),
        lsize: 0,
        source,
    })
}

fn shape(kind: CompressKind, why: &'static str) -> Corrupt {
    Corrupt::Shape { what: kind.name(), why }
}

/// The bytes that a big-endian length at the front of `src` announces, and what follows the length.
fn prefixed<'a>(what: &'static str, src: &'a [u8], header: usize) -> std::result::Result<&'a [u8], Corrupt> {
    let len = ondisk::ByteOrder::Big.u32(what, src, 0)? as usize;
    let need = header.saturating_add(len);
    src.get(header..need).ok_or(Corrupt::Truncated { what, need, have: src.len() })
}
