//! `zstd`: OpenZFS's 8-byte header and a Zstandard frame without its magic number (`zfs_zstd.c`).
//!
//! # On disk
//! | bytes | |
//! |---|---|
//! | 0..4 | length of the frame, big-endian |
//! | 4..8 | level, then the library's version number as 24 big-endian bits |
//!
//! Big-endian machines once put the level behind the version. The first byte of the version is 0,
//! which tells the two layouts apart.

use super::{Unpacked, lz4, prefixed};
use ondisk::Corrupt;
use std::cell::RefCell;
use zstd_safe::{CCtx, CParameter, DCtx, DParameter, FrameFormat, ResetDirective};

const HEADER: usize = 8;
/// Highest level that is not a fast one (`ZIO_ZSTD_LEVEL_MAX`).
const MAX: u8 = 19;
/// Number of the level `fast-1` (`ZIO_ZSTD_LEVEL_FAST_1`).
const FAST_1: u8 = 103;
/// zstd's numbers of the levels from [`FAST_1`] up.
const FAST: [i32; 21] =
    [-1, -2, -3, -4, -5, -6, -7, -8, -9, -10, -20, -30, -40, -50, -60, -70, -80, -90, -100, -500, -1000];
/// Size from which a block is tried with something cheap before a slow level (`zstd_abort_size`).
const ABORT_SIZE: usize = 128 << 10;
/// Bytes of the sample that tells whether the whole block is worth a slow level.
const SAMPLE: usize = 8 << 10;
/// The first slow level (`zstd_cutoff_level`).
const CUTOFF: i32 = 3;

/// A compression level, in the numbers of blocks and properties (`enum zio_zstd_levels`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ZstdLevel(u8);

impl Default for ZstdLevel {
    /// Level 3, the meaning of `compression=zstd`.
    fn default() -> Self {
        Self::DEFAULT
    }
}

impl ZstdLevel {
    /// Level 3, the meaning of `compression=zstd` (`ZIO_ZSTD_LEVEL_DEFAULT`).
    pub const DEFAULT: Self = Self(3);

    /// Decodes an on-disk number: 1 to 19, or a fast level (103 to 123); `None` for others
    /// (`zstd_enum_to_level`).
    pub fn from_disk(v: u8) -> Option<Self> {
        let fast = v.checked_sub(FAST_1).is_some_and(|i| usize::from(i) < FAST.len());
        ((1..=MAX).contains(&v) || fast).then_some(Self(v))
    }

    /// Encodes the on-disk number.
    pub fn to_disk(self) -> u8 {
        self.0
    }

    /// The level in zstd's numbers, in which fast levels are negative.
    pub fn zstd(self) -> i32 {
        match self.0.checked_sub(FAST_1) {
            Some(i) => FAST[usize::from(i)],
            None => i32::from(self.0),
        }
    }
}

/// The header of a zstd block, which describes its writer (`zfs_zstdhdr_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ZstdHeader {
    /// Bytes of the frame (`c_len`).
    pub size: u32,
    /// Level with which the block was packed.
    pub level: ZstdLevel,
    /// Version of the library, as in `ZSTD_VERSION_NUMBER`.
    pub version: u32,
}

thread_local! {
    static DECODER: RefCell<DCtx<'static>> = RefCell::new({
        let mut state = DCtx::create();
        state.set_parameter(DParameter::Format(FrameFormat::Magicless)).expect("zstd-safe has this built in");
        state
    });
    static ENCODER: RefCell<CCtx<'static>> = RefCell::new({
        let mut state = CCtx::create();
        for parameter in [
            CParameter::Format(FrameFormat::Magicless),
            CParameter::ChecksumFlag(false),
            CParameter::ContentSizeFlag(false),
        ] {
            state.set_parameter(parameter).expect("zstd-safe has these built in");
        }
        state
    });
}

/// Splits a stored block into header and frame.
pub(super) fn split(src: &[u8]) -> std::result::Result<(ZstdHeader, &[u8]), Corrupt> {
    let frame = prefixed("zstd", src, HEADER)?;
    let raw = ondisk::ByteOrder::Big.u32("zstd", src, 4)?;
    let number = match raw.to_be_bytes() {
        [level, 0, ..] => level,
        [0, .., level] => level,
        [level, ..] => level,
    };
    let level = ZstdLevel::from_disk(number).ok_or(Corrupt::Range {
        what: "zstd",
        field: "level",
        value: number.into(),
    })?;
    let version = if raw >> 24 == u32::from(number) { raw & 0x00ff_ffff } else { raw >> 8 };
    Ok((ZstdHeader { size: frame.len() as u32, level, version }, frame))
}

pub(super) fn unpack(src: &[u8], dst: &mut [u8]) -> Unpacked {
    let bad = |why| Corrupt::Shape { what: "zstd", why };
    let (_, frame) = split(src)?;
    DECODER.with_borrow_mut(|state| match state.decompress(dst, frame) {
        Ok(n) if n == dst.len() => Ok(()),
        Ok(_) => Err(bad("the frame ends before the block is full")),
        Err(_) => {
            state.reset(ResetDirective::SessionOnly).expect("a session can always be reset");
            Err(bad("the frame is not valid"))
        }
    })
}

/// Packs at `level`, unless cheap tries show that a slow level would be wasted.
pub(super) fn pack_worthwhile(level: ZstdLevel, src: &[u8], dst: &mut [u8]) -> Option<usize> {
    if level.zstd() >= CUTOFF && src.len() >= ABORT_SIZE && !promising(src, dst) {
        // LZ4 is the cheapest try; zstd-1 can pack some of what LZ4 can't.
        lz4::pack(src, dst).or_else(|| pack(ZstdLevel(1), src, dst))?;
    }
    pack(level, src, dst)
}

/// True if a sample from the middle of the block packs by an eighth.
///
/// Then the whole block is worth the slow level. OpenZFS tries all of it with LZ4 first, which
/// would be wasted here.
fn promising(src: &[u8], dst: &mut [u8]) -> bool {
    let piece = &src[src.len() / 2..][..SAMPLE];
    dst.get_mut(..SAMPLE - SAMPLE / 8).is_some_and(|room| lz4::pack(piece, room).is_some())
}

fn pack(level: ZstdLevel, src: &[u8], dst: &mut [u8]) -> Option<usize> {
    let (header, room) = dst.split_at_mut_checked(HEADER)?;
    let len = ENCODER.with_borrow_mut(|state| {
        state.set_parameter(CParameter::CompressionLevel(level.zstd())).ok()?;
        // It fails if the frame doesn't fit, which is not an error.
        let packed = state.compress2(room, src);
        if packed.is_err() {
            state.reset(ResetDirective::SessionOnly).expect("a session can always be reset");
        }
        packed.ok()
    })?;
    let prefix = u32::try_from(len).expect("blocks are far below 4 GiB");
    header[..4].copy_from_slice(&prefix.to_be_bytes());
    let meta = u32::from(level.0) << 24 | zstd_safe::version_number() & 0x00ff_ffff;
    header[4..].copy_from_slice(&meta.to_be_bytes());
    Some(HEADER + len)
}
