//! Block compressors: what OpenZFS stores for each `compression` value, in both directions.
//!
//! # Theory
//! The caller knows both sizes (`psize` and `lsize` of the block pointer) and passes both buffers.
//! So no size from a disk makes this crate allocate memory. Unpacking must fill the destination
//! exactly: a block that yields less or more is corrupt. Stored bytes are padded with zeros to
//! whole sectors, and each format finds its own end.
//!
//! Packing is only worth it if it saves an eighth. [`max_size`] is OpenZFS's limit, and a block
//! that stays above it is stored without compression. OpenZFS unpacks every packed form. LZJB and
//! ZLE are byte for byte what OpenZFS writes.
//!
//! Each thread keeps its states of zlib, zstd and LZ4, because making one costs more than a small
//! block.
//!
//! # On disk
//! - `lzjb`, `zle`: the bare stream.
//! - `gzip-N`: a zlib stream (RFC 1950), not a gzip file.
//! - `lz4`: a big-endian 32-bit length, then an LZ4 block.
//! - `zstd`: a big-endian 32-bit length, a level byte and a 24-bit version, then a frame without
//!   its magic number.
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

/// Unpacks the stored bytes `src` to all of `dst`, whose length is the block's logical size
/// (`zio_decompress_data`).
///
/// `Off` copies a block of exactly that size. `Empty` is the kind of holes, and yields zeros from
/// no bytes.
///
/// # Errors
/// After an error the content of `dst` is undefined.
///
/// * [`Error::Decompress`]: `src` is not the packed form of a block of that size, or no stored
///   block has the kind `kind`.
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

/// Unpacks like [`decompress`], but may leave out zeros at the end: returns the length of the start
/// after which all is zeros. The bytes of `dst` after it are undefined.
///
/// Most of an indirect block of a small object is zeros, and to write them takes longer than the
/// rest. Only long runs in `lz4` are left out.
///
/// # Errors
/// Those of [`decompress`].
pub fn decompress_start(kind: CompressKind, src: &[u8], dst: &mut [u8]) -> Result<usize> {
    if kind != CompressKind::Lz4 {
        return decompress(kind, src, dst).map(|()| dst.len());
    }
    let (psize, lsize) = (src.len(), dst.len());
    lz4::unpack_start(src, dst).map_err(|source| Error::Decompress { kind, psize, lsize, source })
}

/// Packs `src` to the start of `dst`, and returns the length of the packed form
/// (`zio_compress_data`).
///
/// `None` if it doesn't fit. So the caller passes a `dst` as long as is worth it ([`max_size`]).
/// `zstd` is the level if `kind` is `Zstd`.
///
/// `Empty` takes only zeros, to no bytes. `Off`, `Inherit` and `On` pack nothing. The bytes of
/// `dst` after the packed form are undefined; the caller pads with zeros to whole sectors.
///
/// # Panics
/// If the packed form would have 4 GiB or more, which no block has.
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

/// The most bytes that a packed block of `lsize` bytes may have (`zio_get_compression_max_size`).
///
/// Packing must save an eighth, in whole units of allocation. `gcd_alloc` is the greatest common
/// divisor of the vdevs' smallest allocations, and `min_alloc` is the smallest of them, both in
/// bytes.
///
/// # Panics
/// If `gcd_alloc` is 0.
pub fn max_size(kind: CompressKind, gcd_alloc: usize, min_alloc: usize, lsize: usize) -> usize {
    let limit = lsize - lsize / 8;
    if kind == CompressKind::Zle {
        return limit;
    }
    let whole = limit - limit % gcd_alloc;
    // Too small for a sector of its own; it can still fit into the block pointer.
    if whole < min_alloc { BPE_PAYLOAD_SIZE } else { whole }
}

/// Bytes that a packed form of `packed` bytes takes on devices (`zio_roundup_alloc_size`).
///
/// The other arguments are those of [`max_size`].
///
/// # Panics
/// If `gcd_alloc` is 0.
pub fn alloc_size(gcd_alloc: usize, min_alloc: usize, packed: usize) -> usize {
    if packed > min_alloc { packed.next_multiple_of(gcd_alloc) } else { min_alloc }
}

/// True if all bytes are zero, so that the block is stored as a hole (`abd_cmp_zero`).
pub fn is_zero(block: &[u8]) -> bool {
    let (words, tail) = block.as_chunks::<64>();
    words.iter().all(|w| w.iter().fold(0, |acc, b| acc | b) == 0) && tail.iter().all(|b| *b == 0)
}

/// Decodes the header of a zstd block: level and version of the writer (`zfs_zstdhdr_t`).
///
/// # Errors
/// * [`Error::Decompress`]: `src` is shorter than the header and the length in it, or the level is
///   unknown.
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

/// The bytes whose big-endian length is at the start of `src`, after a header of `header` bytes.
fn prefixed<'a>(what: &'static str, src: &'a [u8], header: usize) -> std::result::Result<&'a [u8], Corrupt> {
    let len = ondisk::ByteOrder::Big.u32(what, src, 0)? as usize;
    let need = header.saturating_add(len);
    src.get(header..need).ok_or(Corrupt::Truncated { what, need, have: src.len() })
}
