//! Writing gang blocks: blocks without contiguous space.
//!
//! # Theory
//! A header of 512 bytes takes the block's place, and points at up to three pieces. Each piece is a
//! third of what is left, has its own checksum, and may be a gang block in turn. Since much depends
//! on a header, it has two copies where the block has one; its pieces have as many as the block.
//! Each copy of the pointer counts the space of its header and of that copy of all pieces.
//!
//! A gang block that is overwritten within its txg keeps its shape: only bytes and checksums
//! change.

use super::place::{Batch, Need};
use crate::gang::MAX_DEPTH;
use crate::{Error, ReadOptions, Result, Want, Zio};
use codec::checksum::embedded::{self, Verifier};
use device::{AlignedBuf, Block};
use ondisk::blkptr::{BLKPTR_SIZE, Body, CryptParams, Stored};
use ondisk::gang::{GANG_HEADER_SIZE, GANG_NBLKPTRS};
use ondisk::{
    Asize, Blkptr, ByteOrder, CompressKind, Corrupt, DmuType, Dva, Level, Lsize, Psize, SPA_MINBLOCKSIZE,
};

impl Zio {
    /// Allocates a block in pieces; returns the places of its header.
    pub(super) fn write_gang(
        &self,
        batch: &mut Batch,
        need: &Need<'_>,
        depth: u32,
    ) -> Result<[Option<Dva>; 3]> {
        let no_space = || Error::NoSpace { bookmark: need.bookmark, psize: need.want.psize };
        let total = need.bytes.len();
        if total as u64 <= SPA_MINBLOCKSIZE || depth >= MAX_DEPTH {
            return Err(no_space());
        }
        let mut dvas = self.allocate_header(&need.want).ok_or_else(no_space)?;
        batch.take(need.req, &dvas);
        let headers = dvas;
        let unit = self.tree().alloc_unit().0 as usize;
        let mut children = Vec::with_capacity(GANG_NBLKPTRS);
        let mut at = 0;
        while at < total {
            let third = (total - at).div_ceil(GANG_NBLKPTRS - children.len());
            let len = third.next_multiple_of(unit).min(total - at);
            let bytes = Block::copy_of(&need.bytes[at..at + len]);
            at += len;
            let want = Want { psize: Psize(len as u64), ..need.want };
            let piece = Need { want, bytes: &bytes, mac: false, ..*need };
            let places = match self.space().allocate(&want) {
                Ok(places) => {
                    batch.take(need.req, &places);
                    batch.bind(need.req, need.want.txg, &places, &bytes);
                    places
                }
                Err(_) => self.write_gang(batch, &piece, depth + 1)?,
            };
            for (whole, part) in dvas.iter_mut().zip(&places) {
                if let (Some(whole), Some(part)) = (whole, part) {
                    whole.asize = Asize(whole.asize.0 + part.asize.0);
                }
            }
            children.push(self.piece(&piece, places)?);
        }
        for dva in dvas.iter_mut().flatten() {
            dva.gang = true;
        }
        self.bind_header(batch, need, &headers, &children)?;
        Ok(dvas)
    }

    /// Space for a header, in two copies where the block has one.
    fn allocate_header(&self, want: &Want) -> Option<[Option<Dva>; 3]> {
        let psize = Psize(GANG_HEADER_SIZE as u64);
        let header =
            Want { psize, copies: want.copies.max(2).min(self.most_copies()), gang_header: true, ..*want };
        let space = self.space();
        let fewer = || space.allocate(&Want { copies: want.copies, ..header });
        space.allocate(&header).or_else(|_| fewer()).ok()
    }

    /// The pointer to a piece at these places. As in `zio_write_gang_block` it has no type, no
    /// compression, and the block's checksum function.
    fn piece(&self, need: &Need<'_>, dvas: [Option<Dva>; 3]) -> Result<Blkptr> {
        let order = ByteOrder::Little;
        let sum = self.checksummer().compute(need.checksum, order, need.bytes);
        let sum = sum.map_err(|source| Error::Encode { bookmark: need.bookmark, source })?;
        let stored = Stored {
            dvas,
            psize: need.want.psize,
            compress: CompressKind::Off,
            checksum: need.checksum,
            sum: sum.0,
            phys_birth: need.want.txg,
            fill: 0,
            dedup: false,
            crypt: false,
            crypt_params: CryptParams { salt: [0; 8], iv: [0; 12] },
        };
        Ok(Blkptr {
            kind: DmuType::NONE,
            level: Level(0),
            lsize: Lsize(need.want.psize.0),
            birth: need.want.txg,
            order,
            body: Body::Stored(stored),
        })
    }

    /// Adds the writes of a header to its places. Its checksum is bound to the first of them.
    fn bind_header(
        &self,
        batch: &mut Batch,
        need: &Need<'_>,
        places: &[Option<Dva>; 3],
        children: &[Blkptr],
    ) -> Result<()> {
        let mut raw = AlignedBuf::zeroed(GANG_HEADER_SIZE);
        for (to, bp) in raw.chunks_exact_mut(BLKPTR_SIZE).zip(children) {
            to.copy_from_slice(&bp.encode());
        }
        let first = places[0].expect("an allocation has a first copy");
        let (vdev, offset) = (first.vdev.0.into(), first.offset.0);
        let verifier = Verifier::GangHeader { vdev, offset, birth: need.want.txg.0 };
        // It has no MAC, but leaves the space of one.
        let mac = need.mac.then_some(&[0; 16]);
        embedded::seal(&verifier, &mut raw, mac)
            .map_err(|source| Error::Encode { bookmark: need.bookmark, source })?;
        batch.bind(need.req, need.want.txg, places, &raw.freeze());
        Ok(())
    }

    /// Overwrites a gang block of this txg with the same stored size. Its pieces stay where they
    /// are.
    pub(super) fn rewrite_gang(&self, batch: &mut Batch, need: &Need<'_>, old: &Blkptr) -> Result<()> {
        let shape = |why| Error::Corrupt {
            bookmark: need.bookmark,
            source: Corrupt::Shape { what: "gang block", why },
        };
        let s = old.stored().ok_or_else(|| shape("it is nowhere"))?;
        let (bookmark, sync) = (&need.bookmark, &ReadOptions::sync());
        let pieces = |dva: &Dva, options: &ReadOptions| self.gang_pieces(old, s, dva, bookmark, options);
        let pieces = self.any_copy(old, s, bookmark, sync, pieces)?;
        let mut at = 0;
        let mut children = Vec::with_capacity(pieces.len());
        for piece in &pieces {
            let p = piece.stored().ok_or_else(|| shape("a piece is not a block on devices"))?;
            let end = at + p.psize.0 as usize;
            let bytes =
                need.bytes.get(at..end).ok_or_else(|| shape("its pieces are longer than the block"))?;
            at = end;
            let bytes = Block::copy_of(bytes);
            let want = Want { psize: p.psize, ..need.want };
            let part = Need { want, bytes: &bytes, mac: false, ..*need };
            if piece.is_gang() {
                self.rewrite_gang(batch, &part, piece)?;
            } else {
                batch.bind(need.req, need.want.txg, &p.dvas, &bytes);
            }
            children.push(self.piece(&part, p.dvas)?);
        }
        if at != need.bytes.len() {
            return Err(shape("its pieces are not as long as the block"));
        }
        self.bind_header(batch, need, &s.dvas, &children)
    }
}
