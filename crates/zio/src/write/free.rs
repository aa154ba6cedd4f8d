//! Freeing blocks.

use crate::gang::MAX_DEPTH;
use crate::{Bookmark, Error, ReadOptions, Result, Zio};
use ondisk::gang::GANG_HEADER_SIZE;
use ondisk::{BlkId, Blkptr, Corrupt, Dva, Level, ObjNum, Psize, Txg};

/// Blocks are freed by their pointers alone; their bookmarks are no longer known.
const NO_BOOKMARK: Bookmark = Bookmark { objset: 0, object: ObjNum(0), level: Level(0), blkid: BlkId(0) };

impl Zio {
    /// Frees a block in `txg`, which is being synced (`zio_free_sync`): all its copies, and of a
    /// gang block all pieces.
    ///
    /// A block in the dedup table or the table of clones loses a reference instead. Holes and
    /// embedded blocks take no space.
    ///
    /// # Errors
    /// A gang block can't be read; then nothing of it is freed. See [`Zio::places`].
    pub fn free(&self, txg: Txg, bp: &Blkptr) -> Result<()> {
        let Some(s) = bp.stored() else { return Ok(()) };
        if s.dedup && self.dedup().is_some_and(|table| !table.release(txg, bp)) {
            return Ok(());
        }
        if self.clones().is_some_and(|table| table.release(txg, bp)) {
            return Ok(());
        }
        let space = self.space();
        if s.copies().all(|dva| !dva.gang) {
            s.copies().for_each(|dva| space.free(dva, s.phys_birth, txg));
            return Ok(());
        }
        self.places(bp, &ReadOptions::sync())?.iter().for_each(|(dva, born)| space.free(dva, *born, txg));
        Ok(())
    }

    /// Whether a block can be cloned (`brt_pending_add`). The answer holds until the txg, which the
    /// caller keeps open, has synced.
    ///
    /// A deduplicated block that the dedup table no longer has can't be: two tables would count its
    /// references.
    pub fn can_clone(&self, txg: Txg, bp: &Blkptr, options: &ReadOptions) -> bool {
        let known = || self.dedup().is_some_and(|table| table.has(txg, bp, options));
        !bp.stored().is_some_and(|s| s.dedup) || known()
    }

    /// Every place that a block takes, as it was allocated, and the txg that wrote it. For a gang
    /// block, its headers and all its pieces.
    ///
    /// # Errors
    /// A gang block can't be read:
    ///
    /// * [`Error::Place`]: its pointer names a place that no block can have.
    /// * [`Error::Io`]: a header could not be read.
    /// * [`Error::Checksum`]: a header has a wrong checksum.
    /// * [`Error::Corrupt`]: the gang tree is invalid.
    pub fn places(&self, bp: &Blkptr, options: &ReadOptions) -> Result<Vec<(Dva, Txg)>> {
        let mut out = Vec::new();
        self.gather(bp, 0, &mut out, options)?;
        Ok(out)
    }

    fn gather(
        &self,
        bp: &Blkptr,
        depth: u32,
        out: &mut Vec<(Dva, Txg)>,
        options: &ReadOptions,
    ) -> Result<()> {
        let Some(s) = bp.stored() else { return Ok(()) };
        let corrupt = |why| Error::Corrupt {
            bookmark: NO_BOOKMARK,
            source: Corrupt::Shape { what: "gang block", why },
        };
        if depth > MAX_DEPTH {
            return Err(corrupt("its tree is too deep"));
        }
        for dva in s.copies() {
            let mut place = *dva;
            if dva.gang {
                let header = Psize(GANG_HEADER_SIZE as u64);
                let asize = self.tree().psize_to_asize(dva.vdev, header, s.phys_birth);
                place.asize =
                    asize.map_err(|source| Error::Place { bookmark: NO_BOOKMARK, dva: *dva, source })?;
                place.gang = false;
            }
            out.push((place, s.phys_birth));
        }
        if bp.is_gang() {
            let pieces =
                |dva: &Dva, options: &ReadOptions| self.gang_pieces(bp, s, dva, &NO_BOOKMARK, options);
            let pieces = self.any_copy(bp, s, &NO_BOOKMARK, options, pieces)?;
            let mut rest = s.psize.0;
            for piece in &pieces {
                let size = piece.stored().map_or(0, |p| p.psize.0);
                // Pieces that are no smaller than their block would never end.
                if size == 0 || size > rest || size >= s.psize.0 {
                    return Err(corrupt("its pieces are not as long as the block"));
                }
                rest -= size;
                self.gather(piece, depth + 1, out, options)?;
            }
        }
        Ok(())
    }
}
