//! Gang blocks: assembled from the pieces that a header points at.
//!
//! # On disk
//! The place of the block holds a 512-byte header with up to three pointers, whose data follow one another;
//! a piece may be a gang block again. The header's checksum is bound to the first copy's place and the birth of the
//! pointer that led to it, whichever copy is read; in an encrypted object a MAC takes half of it, as everywhere. Each
//! piece has a checksum of its own.

use crate::read::{Fetch, has_mac};
use crate::{Bookmark, Error, Result, Zio};
use codec::checksum::embedded::{self, Verifier};
use device::AlignedBuf;
use ondisk::blkptr::Stored;
use ondisk::gang::{GANG_HEADER_SIZE, decode_gang_header};
use ondisk::{Blkptr, Corrupt, Dva};

/// Deepest gang tree: three pieces a level reach 16 MiB from 512 bytes in ten.
const MAX_DEPTH: u32 = 12;

impl Zio {
    /// The stored bytes of the gang block at `dva`.
    pub(crate) fn read_gang(
        &self,
        bp: &Blkptr,
        s: &Stored,
        dva: &Dva,
        bm: &Bookmark,
        depth: u32,
    ) -> Result<AlignedBuf> {
        let corrupt =
            |why| Error::Corrupt { bookmark: *bm, source: Corrupt::Shape { what: "gang block", why } };
        if depth > MAX_DEPTH {
            return Err(corrupt("its tree is too deep"));
        }
        let verifier =
            Verifier::GangHeader { vdev: dva.vdev.0.into(), offset: dva.offset.0, birth: s.phys_birth.0 };
        let fetch = Fetch { dva, size: GANG_HEADER_SIZE, birth: s.phys_birth, bookmark: bm };
        let header = self.fetch(&fetch, |buf| embedded::verify(&verifier, buf, has_mac(bp, s)).map(drop))?;
        let children =
            decode_gang_header(&header).map_err(|source| Error::Corrupt { bookmark: *bm, source })?;
        let size = s.psize.0 as usize;
        let mut whole = AlignedBuf::zeroed(size);
        let mut at = 0;
        for child in &children {
            let piece = self.read_piece(child, bm, depth)?;
            let end = at + piece.len();
            let out =
                whole.get_mut(at..end).ok_or_else(|| corrupt("its pieces are longer than the block"))?;
            out.copy_from_slice(&piece);
            at = end;
        }
        if at == size { Ok(whole) } else { Err(corrupt("its pieces are shorter than the block")) }
    }

    fn read_piece(&self, bp: &Blkptr, bm: &Bookmark, depth: u32) -> Result<AlignedBuf> {
        let why = "a piece is not a block on devices";
        let s = bp
            .stored()
            .ok_or(Error::Corrupt { bookmark: *bm, source: Corrupt::Shape { what: "gang block", why } })?;
        self.fetch_stored(bp, s, bm, depth + 1)
    }
}
