//! Writing space maps.

use super::{MapRange, MapStep, SpaceMap};
use crate::feature::known;
use crate::range::RangeSet;
use crate::{Error, Mos, Result};
use dmu::{NewObject, Tx};
use ondisk::spacemap::{EntryEncoder, MapType, SPACE_MAP_HISTOGRAM_SIZE, SpaceMapPhys};
use ondisk::{BlkId, Corrupt, DmuType, ObjNum};

/// Bytes of a block of a metaslab's map (`zfs_metaslab_sm_blksz_no_log`).
pub const METASLAB_BLOCK_SIZE: u32 = 1 << 14;
/// Bytes of a block of a DTL (`zfs_vdev_dtl_sm_blksz`).
pub const DTL_BLOCK_SIZE: u32 = 1 << 12;
/// log2 of the bytes of an indirect block of a map (`space_map_ibs`).
const INDIRECT_SHIFT: u8 = 14;
/// The feature `spacemap_histogram`, which counts maps with a histogram in their header.
const HISTOGRAM: &str = "com.delphix:spacemap_histogram";
/// The feature `spacemap_v2`: entries may have two words.
const V2: &str = "com.delphix:spacemap_v2";

/// The sync pass in which maps are written.
#[derive(Debug, Clone, Copy)]
pub struct Pass<'a> {
    /// The transaction of its txg.
    pub tx: &'a Tx,
    /// The number of the pass, from 1.
    pub number: u32,
    /// True if entries may have two words (`spacemap_v2` is active).
    pub two_words: bool,
}

impl<'a> Pass<'a> {
    /// A pass over a pool, with the features that the pool has.
    ///
    /// # Errors
    /// The errors of [reading](Error#reading).
    pub fn new(mos: &Mos, tx: &'a Tx, number: u32) -> Result<Self> {
        Ok(Pass { tx, number, two_words: mos.feature_enabled(V2)? })
    }
}

impl Mos {
    /// Creates an empty space map (`space_map_alloc`).
    ///
    /// # Errors
    /// The errors of [counting features](Error#counting-features).
    pub fn create_space_map(&self, tx: &Tx, block_size: u32) -> Result<ObjNum> {
        let histogram = self.feature_enabled(HISTOGRAM)?;
        if histogram {
            self.feature_incr(tx, known(HISTOGRAM))?;
        }
        let header = SpaceMapPhys::empty(0, histogram).encode();
        let spec =
            NewObject { block_size, indblkshift: INDIRECT_SHIFT, ..NewObject::new(DmuType::SPACE_MAP) };
        let spec = spec.with_bonus(DmuType::SPACE_MAP_HEADER, header);
        Ok(self.objset().create_object(tx, &spec)?.object())
    }

    /// Destroys a space map (`space_map_free_obj`).
    ///
    /// # Errors
    /// The errors of [counting features](Error#counting-features). [`Error::Corrupt`] also if the
    /// object is no space map.
    pub fn destroy_space_map(&self, tx: &Tx, object: ObjNum) -> Result<()> {
        let dn = self.objset().dnode(object)?;
        if dn.kind() != DmuType::SPACE_MAP {
            let why = "it is another kind of object";
            return Err(Error::Corrupt { object, source: Corrupt::Shape { what: "space map", why } });
        }
        let phys = SpaceMapPhys::decode(dn.bonus()).map_err(Error::corrupt(object))?;
        if phys.have_histogram && self.feature_enabled(HISTOGRAM)? {
            self.feature_decr(tx, known(HISTOGRAM))?;
        }
        Ok(self.objset().free_object(tx, object)?)
    }
}

impl SpaceMap {
    /// Appends ranges, which must be whole units of the region (`space_map_write`).
    ///
    /// The header in the object changes only with [`SpaceMap::store`]. Before that, nothing counts.
    ///
    /// # Errors
    /// The errors of [changing](Error#changing).
    pub fn append(&mut self, pass: &Pass<'_>, kind: MapType, ranges: &RangeSet) -> Result<()> {
        if ranges.is_empty() {
            return Ok(());
        }
        let mut out = EntryEncoder::new(self.phys.length, self.dnode.block_size(), pass.two_words);
        out.debug(kind, pass.number, pass.tx.txg().0);
        for (start, end) in ranges.iter() {
            out.range(kind, (start - self.start) >> self.shift, (end - start) >> self.shift, None);
        }
        let raw = out.finish();
        self.dnode.write_at(pass.tx, self.phys.length, &raw)?;
        self.phys.length += raw.len() as u64;
        let bytes = ranges.space() as i64;
        self.phys.alloc += if kind == MapType::Alloc { bytes } else { -bytes };
        Ok(())
    }

    /// Takes whole blocks of entries off the end, until `limit` ranges are taken or none is left
    /// (`space_map_incremental_destroy`).
    ///
    /// `limit` becomes the number of ranges that could still have been taken.
    ///
    /// # Errors
    /// * The errors of [changing](Error#changing). [`Error::Corrupt`] also if an entry leaves the
    ///   region.
    /// * The errors of `each`.
    pub fn take_last(
        &mut self,
        tx: &Tx,
        limit: &mut u64,
        mut each: impl FnMut(MapRange) -> Result<()>,
    ) -> Result<()> {
        let block = self.dnode.block_size();
        while *limit > 0 && self.phys.length > 0 {
            let at = (self.phys.length - 1) / block * block;
            let mut words = vec![0; (self.phys.length - at) as usize];
            self.dnode.read_at(at, &mut words)?;
            let mut sum = 0i64;
            self.walk_block(&words, at, &mut (0, 0), &mut |step| {
                let MapStep::Range(range) = step else { return Ok(()) };
                let bytes = (range.end - range.start) as i64;
                sum = sum.saturating_add(if range.kind == MapType::Alloc { bytes } else { -bytes });
                *limit = limit.saturating_sub(1);
                each(range)
            })?;
            self.phys.length = at;
            self.phys.alloc = self.phys.alloc.saturating_sub(sum);
        }
        self.store(tx)
    }

    /// Empties the map (`space_map_truncate`).
    ///
    /// # Errors
    /// The errors of [changing](Error#changing).
    pub fn truncate(&mut self, tx: &Tx) -> Result<()> {
        self.dnode.free_range(tx, 0, u64::MAX)?;
        (self.phys.length, self.phys.alloc) = (0, 0);
        self.phys.histogram = [0; SPACE_MAP_HISTOGRAM_SIZE];
        Ok(())
    }

    /// Sets the histogram of free segments, if the header can hold one.
    pub fn set_histogram(&mut self, histogram: &[u64; SPACE_MAP_HISTOGRAM_SIZE]) {
        if self.phys.have_histogram {
            self.phys.histogram = *histogram;
        }
    }

    /// Writes the header.
    ///
    /// # Errors
    /// The errors of [changing](Error#changing).
    pub fn store(&mut self, tx: &Tx) -> Result<()> {
        self.phys.object = self.object().0;
        self.dnode.set_bonus(tx, DmuType::SPACE_MAP_HEADER, &self.phys.encode())?;
        Ok(())
    }

    /// Has this pass write the header and the block that the next entries go to, unchanged.
    ///
    /// # Errors
    /// The errors of [changing](Error#changing).
    pub(crate) fn touch(&mut self, tx: &Tx) -> Result<()> {
        let (length, block) = (self.phys.length, self.dnode.block_size());
        if !length.is_multiple_of(block) {
            self.dnode.modify_block(tx, BlkId(length / block), |_| {})?;
        }
        self.store(tx)
    }

    /// True if a rewritten map would be so much smaller that a rewrite pays
    /// (`metaslab_should_condense`).
    ///
    /// `segments` is the number of ranges that it would then list.
    pub fn should_condense(&self, segments: u64, sector: u64) -> bool {
        /// The size of the map in percent of the least possible size, from which on it is rewritten
        /// (`zfs_metaslab_condense_pct`).
        const PERCENT: u64 = 200;
        /// Least number of blocks of a map that is rewritten
        /// (`zfs_metaslab_condense_block_threshold`).
        const BLOCKS: u64 = 4;
        let record = self.dnode.block_size().max(sector);
        self.phys.length > BLOCKS * record
            && self.phys.length >= (segments + 1).saturating_mul(8).saturating_mul(PERCENT) / 100
    }
}
