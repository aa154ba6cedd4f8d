//! How much space datasets use, and how much was written since.

use crate::dataset::Dataset;
use crate::{Error, Result};
use ondisk::bookmark::{BookmarkPhys, ZBM_FLAG_HAS_FBN};
use ondisk::{Corrupt, ObjNum};
use pool::bpobj::Space;

/// The ratio of two sizes in hundredths; 1.00 of nothing.
pub(crate) fn ratio(uncompressed: u64, compressed: u64) -> u64 {
    (u128::from(uncompressed) * 100).checked_div(compressed.into()).unwrap_or(100) as u64
}

impl Dataset {
    /// Free bytes of the dataset (`available`).
    ///
    /// `refquota` and `refreservation` are the effective values of those properties.
    pub(crate) fn space_available(&self, refquota: u64, refreservation: u64) -> u64 {
        let p = self.phys();
        let mut left = self.dir().space_available();
        left = left.saturating_add(refreservation.saturating_sub(p.unique_bytes));
        if refquota != 0 {
            left = left.min(refquota.saturating_sub(p.referenced_bytes));
        }
        left
    }

    /// Bytes written since an earlier snapshot or bookmark (`dsl_dataset_space_written`).
    ///
    /// That is what the dataset refers to now and did not then. `None` if `since` is not in its
    /// past, or is a bookmark without the figures.
    ///
    /// # Errors
    /// * [Reading](Error#reading): a snapshot or a deadlist can't be read.
    /// * [`Error::Corrupt`]: the snapshots do not go back in time.
    pub fn written_since(&self, since: &BookmarkPhys) -> Result<Option<Space>> {
        let mos = self.dsl().mos();
        let p = self.phys();
        let minus = |a: u64, b: u64| a.wrapping_sub(b);
        let mut out = Space {
            used: minus(p.referenced_bytes, since.referenced_bytes),
            comp: minus(p.compressed_bytes, since.compressed_bytes),
            uncomp: minus(p.uncompressed_bytes, since.uncompressed_bytes),
        };
        let mut add = |s: Space| {
            out.used = out.used.wrapping_add(s.used);
            out.comp = out.comp.wrapping_add(s.comp);
            out.uncomp = out.uncomp.wrapping_add(s.uncomp);
        };
        let mut at = *p;
        // Blocks that the bookmark knows and that died in each later snapshot.
        while at.prev_snap_txg > since.creation_txg {
            let dead = mos.deadlist(ObjNum(at.deadlist_obj))?;
            add(dead.space_range(mos, 0, since.creation_txg)?);
            let object = ObjNum(at.prev_snap_obj);
            let next = self.dsl().dataset_phys(object)?;
            if next.prev_snap_txg >= at.prev_snap_txg {
                let source = Corrupt::Shape { what: "snapshot", why: "the chain does not go back in time" };
                return Err(Error::Corrupt { object, source });
            }
            at = next;
        }
        if since.flags & ZBM_FLAG_HAS_FBN != 0 {
            add(Space {
                used: since.referenced_freed_before_next_snap,
                comp: since.compressed_freed_before_next_snap,
                uncomp: since.uncompressed_freed_before_next_snap,
            });
        } else if at.prev_snap_txg == since.creation_txg {
            add(mos.deadlist(ObjNum(at.deadlist_obj))?.total);
        } else {
            return Ok(None);
        }
        Ok(Some(out))
    }

    /// Bytes that only a contiguous range of snapshots refers to (`dsl_dataset_space_wouldfree`).
    ///
    /// This snapshot is the first of the range. The blocks died in a later one, or in the dataset
    /// after the last. They were born after the snapshot before the first. `None` if `last` is not
    /// this one or a later snapshot of the same dataset.
    ///
    /// # Errors
    /// * [`Error::Corrupt`]: the snapshots do not go back in time.
    /// * [Reading](Error#reading): a snapshot or a deadlist can't be read.
    pub fn would_free(&self, last: &Dataset) -> Result<Option<u64>> {
        let mos = self.dsl().mos();
        let (first, end) = (self.phys(), last.phys());
        let later = end.creation_txg >= first.creation_txg && end.dir_obj == first.dir_obj;
        if !self.is_snapshot() || !last.is_snapshot() || !later {
            return Ok(None);
        }
        let mut used = 0u64;
        let mut at = self.dsl().dataset_phys(ObjNum(end.next_snap_obj))?;
        loop {
            let dead = mos.deadlist(ObjNum(at.deadlist_obj))?;
            used = used.saturating_add(dead.space_range(mos, first.prev_snap_txg, u64::MAX)?.used);
            let object = ObjNum(at.prev_snap_obj);
            if object == self.object() {
                return Ok(Some(used));
            }
            if object.0 == 0 || at.prev_snap_txg < first.creation_txg.0 {
                return Ok(None);
            }
            let before = self.dsl().dataset_phys(object)?;
            if before.prev_snap_txg >= at.prev_snap_txg {
                let source = Corrupt::Shape { what: "snapshot", why: "the chain does not go back in time" };
                return Err(Error::Corrupt { object, source });
            }
            at = before;
        }
    }

    /// Bytes written since the previous snapshot (`written`); `None` without one.
    ///
    /// # Errors
    /// Those of [`Dataset::written_since`].
    pub fn written(&self) -> Result<Option<u64>> {
        let object = self.phys().prev_snap_obj;
        if object == 0 {
            return Ok(None);
        }
        let prev = self.dsl().dataset_phys(ObjNum(object))?;
        Ok(self.written_since(&as_bookmark(&prev))?.map(|s| s.used))
    }

    /// Bytes written since a snapshot in the past of the dataset (`written@NAME`).
    ///
    /// The snapshot may be one of an origin. `None` if it is not in the past.
    ///
    /// # Errors
    /// Those of [`Dataset::written_since`].
    pub fn written_since_snapshot(&self, snapshot: &Dataset) -> Result<Option<u64>> {
        if !self.is_after(snapshot)? {
            return Ok(None);
        }
        Ok(self.written_since(&snapshot.as_bookmark())?.map(|s| s.used))
    }

    /// Whether `snapshot` is in the past of this dataset (`dsl_dataset_is_before`).
    ///
    /// # Errors
    /// * [`Error::Corrupt`]: the snapshots do not go back in time.
    /// * [Reading](Error#reading): a snapshot can't be read.
    pub fn is_after(&self, snapshot: &Dataset) -> Result<bool> {
        let mut at = *self.phys();
        loop {
            if at.prev_snap_obj == snapshot.object().0 {
                return Ok(true);
            }
            if at.prev_snap_obj == 0 || at.prev_snap_txg < snapshot.phys().creation_txg.0 {
                return Ok(false);
            }
            let object = ObjNum(at.prev_snap_obj);
            let next = self.dsl().dataset_phys(object)?;
            if next.prev_snap_txg >= at.prev_snap_txg && next.prev_snap_obj != 0 {
                let source = Corrupt::Shape { what: "snapshot", why: "the chain does not go back in time" };
                return Err(Error::Corrupt { object, source });
            }
            at = next;
        }
    }
}

impl Dataset {
    /// This snapshot as a bookmark of it, without the figures of freed blocks.
    pub fn as_bookmark(&self) -> BookmarkPhys {
        as_bookmark(self.phys())
    }

    /// Whether a snapshot or bookmark of the head `of`, made in `txg`, is in the past of this
    /// dataset (`dsl_dataset_is_before`). Looks at origins only, not at each snapshot between.
    ///
    /// # Errors
    /// * [Reading](Error#reading): an origin can't be read.
    pub fn is_after_txg(&self, of: &Dataset, txg: ondisk::Txg) -> Result<bool> {
        let mut later = self.clone();
        loop {
            if later.is_snapshot() && txg >= later.phys().creation_txg {
                return Ok(false);
            }
            if later.dir().object() == of.dir().object() {
                return Ok(true);
            }
            // Not `later.origin()`: of a snapshot, the head's origin counts.
            let origin = match later.dir().phys().origin_obj {
                0 => return Ok(false),
                origin => self.dsl().by_object(ObjNum(origin))?,
            };
            if origin.phys().creation_txg == txg && origin.dir().object() == of.dir().object() {
                return Ok(true);
            }
            // Origins go back in time, so this ends. A chain that does not is damage, and in no
            // past.
            if later.is_snapshot() && origin.phys().creation_txg >= later.phys().creation_txg {
                return Ok(false);
            }
            later = origin;
        }
    }
}

/// A snapshot as a bookmark of it, without the figures of freed blocks.
fn as_bookmark(p: &ondisk::dsl::DslDatasetPhys) -> BookmarkPhys {
    BookmarkPhys {
        guid: p.guid,
        creation_txg: p.creation_txg.0,
        creation_time: p.creation_time,
        referenced_bytes: p.referenced_bytes,
        compressed_bytes: p.compressed_bytes,
        uncompressed_bytes: p.uncompressed_bytes,
        ..BookmarkPhys::default()
    }
}
