//! Gang headers: a block that did not fit in one piece (`zio_gbh_phys_t`).
//!
//! # On disk
//! 512 bytes: three block pointers, padding, and a 40-byte embedded checksum tail.

use crate::blkptr::{BLKPTR_SIZE, Blkptr};
use crate::{Corrupt, Result};

/// Bytes of a gang header (`SPA_GANGBLOCKSIZE`).
pub const GANG_HEADER_SIZE: usize = 512;
/// Pointers in it (`SPA_GBH_NBLKPTRS`).
pub const GANG_NBLKPTRS: usize = 3;

/// The children of a gang header, holes left out, in the order of the data.
///
/// # Errors
/// [`Corrupt`] if the header is short, a pointer is bad, or nothing is in it.
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
