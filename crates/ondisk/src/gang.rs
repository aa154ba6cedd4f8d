//! Gang headers: the list of a block's parts, if no contiguous space for it was free
//! (`zio_gbh_phys_t`).
//!
//! # On disk
//! A gang header has 512 bytes: three block pointers, padding, and an embedded checksum of 40
//! bytes.

use crate::blkptr::{BLKPTR_SIZE, Blkptr};
use crate::{Corrupt, Result};

/// Bytes of a gang header (`SPA_GANGBLOCKSIZE`).
pub const GANG_HEADER_SIZE: usize = 512;
/// Block pointers in a gang header (`SPA_GBH_NBLKPTRS`).
pub const GANG_NBLKPTRS: usize = 3;

/// Decodes the children of a gang header, without holes, in the order of the data.
///
/// # Errors
/// * [`Corrupt::Truncated`]: `raw` has fewer than 512 bytes.
/// * [`Corrupt::Shape`]: all pointers are holes.
/// * [`Corrupt::Range`] and [`Corrupt::Shape`]: a pointer has a fault that [`Blkptr::decode`]
///   lists.
pub fn decode_gang_header(raw: &[u8]) -> Result<Vec<Blkptr>> {
    const WHAT: &str = "gang header";
    if raw.len() < GANG_HEADER_SIZE {
        return Err(Corrupt::Truncated { what: WHAT, need: GANG_HEADER_SIZE, have: raw.len() });
    }
    let mut children = Vec::with_capacity(GANG_NBLKPTRS);
    for p in raw[..GANG_NBLKPTRS * BLKPTR_SIZE].chunks_exact(BLKPTR_SIZE) {
        let bp = Blkptr::decode(p)?;
        if !bp.is_hole() {
            children.push(bp);
        }
    }
    if children.is_empty() {
        return Err(Corrupt::Shape { what: WHAT, why: "no children" });
    }
    Ok(children)
}
