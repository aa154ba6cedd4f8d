//! Gang blocks: assembled from the pieces that a header points at.
//!
//! # On disk
//! The place of the block holds a 512-byte header with up to three pointers. Their data follow one
//! another. A *piece* is a block that such a pointer names; it may be a gang block again.
//!
//! The header's checksum is bound to the first copy's place and the birth of the pointer that led
//! to it, whichever copy is read. In an encrypted object a MAC takes half of the checksum, as
//! everywhere. Each piece has a checksum of its own.

use crate::read::{Fetch, has_mac};
use crate::{Bookmark, Error, IoFlags, ReadOptions, Result, Zio};
use codec::checksum::embedded::{self, Verifier};
use device::AlignedBuf;
use ondisk::blkptr::{DVAS_PER_BP, Stored};
use ondisk::gang::{GANG_HEADER_SIZE, decode_gang_header};
use ondisk::{Blkptr, Corrupt, Dva, SPA_MINBLOCKSHIFT};

/// Deepest gang tree. With three pieces a level, ten levels reach 16 MiB from 512 bytes.
pub(crate) const MAX_DEPTH: u32 = 12;

/// The state of the read of one gang block, with a limit on what it may read.
struct Walk<'a> {
    bookmark: &'a Bookmark,
    options: &'a ReadOptions,
    headers_left: u64,
}

impl Walk<'_> {
    fn corrupt(&self, why: &'static str) -> Error {
        Error::Corrupt { bookmark: *self.bookmark, source: Corrupt::Shape { what: "gang block", why } }
    }
}

impl Zio {
    /// The pointers to the pieces of the gang block `bp`, from the copy of its header at `dva`.
    ///
    /// # Errors
    /// * [`Error::Place`]: no header can be at this place.
    /// * [`Error::Io`]: the header could not be read.
    /// * [`Error::Checksum`]: the header has a wrong checksum.
    /// * [`Error::Corrupt`]: the header can't be decoded.
    pub fn gang_pieces(
        &self,
        bp: &Blkptr,
        s: &Stored,
        dva: &Dva,
        bm: &Bookmark,
        options: &ReadOptions,
    ) -> Result<Vec<Blkptr>> {
        // All copies of the header are bound to the place of the first.
        let first = s.copies().next().unwrap_or(dva);
        let verifier =
            Verifier::GangHeader { vdev: first.vdev.0.into(), offset: first.offset.0, birth: s.phys_birth.0 };
        let speculative = bp.kind == ondisk::DmuType::INTENT_LOG || options.has(IoFlags::SPECULATIVE);
        let (size, birth) = (GANG_HEADER_SIZE, s.phys_birth);
        let fetch = Fetch { dva, size, birth, bookmark: bm, speculative, options };
        let header = self.fetch(&fetch, |buf| embedded::verify(&verifier, buf, has_mac(bp, s)).map(drop))?;
        decode_gang_header(&header).map_err(|source| Error::Corrupt { bookmark: *bm, source })
    }

    /// The stored bytes of the gang block at `dva`.
    pub(crate) fn read_gang(
        &self,
        bp: &Blkptr,
        s: &Stored,
        dva: &Dva,
        bm: &Bookmark,
        options: &ReadOptions,
    ) -> Result<AlignedBuf> {
        // The limit: more than a whole tree has, a header for each sector and one for each level,
        // times all copies.
        //
        // Without a limit, pieces whose copies lead to one another would multiply with each level.
        let headers_left = DVAS_PER_BP as u64 * ((s.psize.0 >> SPA_MINBLOCKSHIFT) + u64::from(MAX_DEPTH));
        let mut walk = Walk { bookmark: bm, options, headers_left };
        let mut whole = AlignedBuf::zeroed(s.psize.0 as usize);
        self.fill(bp, s, dva, &mut walk, 0, &mut whole)?;
        Ok(whole)
    }

    /// Reads the gang block at `dva` into `out`, which has its size.
    fn fill(
        &self,
        bp: &Blkptr,
        s: &Stored,
        dva: &Dva,
        walk: &mut Walk<'_>,
        depth: u32,
        out: &mut [u8],
    ) -> Result<()> {
        if depth > MAX_DEPTH {
            return Err(walk.corrupt("its tree is too deep"));
        }
        let left = walk.headers_left.checked_sub(1);
        walk.headers_left =
            left.ok_or_else(|| walk.corrupt("its tree has more headers than it has sectors"))?;
        let children = self.gang_pieces(bp, s, dva, walk.bookmark, walk.options)?;
        let mut pieces = Vec::with_capacity(children.len());
        for child in &children {
            pieces.push((
                child,
                child.stored().ok_or_else(|| walk.corrupt("a piece is not a block on devices"))?,
            ));
        }
        // Checked before anything is read: the pieces of a valid block are as long as it is.
        let sum = pieces.iter().fold(0u64, |n, (_, s)| n.saturating_add(s.psize.0));
        if sum != out.len() as u64 {
            return Err(walk.corrupt("its pieces are not as long as the block"));
        }
        let mut rest = out;
        for (child, stored) in pieces {
            let (piece, after) = rest.split_at_mut(stored.psize.0 as usize);
            let (bookmark, options) = (walk.bookmark, walk.options);
            self.any_copy(child, stored, bookmark, options, |dva, options| {
                if dva.gang {
                    let mut below = Walk { bookmark, options, headers_left: walk.headers_left };
                    let filled = self.fill(child, stored, dva, &mut below, depth + 1, piece);
                    walk.headers_left = below.headers_left;
                    return filled;
                }
                piece.copy_from_slice(&self.fetch_copy(child, stored, dva, bookmark, options)?);
                Ok(())
            })?;
            rest = after;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
