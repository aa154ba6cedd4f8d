//! Writing space maps.

use super::{MapRange, MapStep, SpaceMap};
use crate::feature::known;
use crate::range::RangeSet;
use crate::{Error, Mos, Result};
use dmu::{NewObject, Tx};
use ondisk::spacemap::{EntryEncoder, MapType, SPACE_MAP_HISTOGRAM_SIZE, SpaceMapPhys};
use ondisk::{Corrupt, DmuType, ObjNum};

/// Bytes of a metaslab's map's blocks (`zfs_metaslab_sm_blksz_no_log`).
pub const METASLAB_BLOCK_SIZE: u32 = 1 << 14;
/// Bytes of a DTL's blocks (`zfs_vdev_dtl_sm_blksz`).
pub const DTL_BLOCK_SIZE: u32 = 1 << 12;
/// log2 of the bytes of a map's indirect blocks (`space_map_ibs`).
const INDIRECT_SHIFT: u8 = 14;
/// `spacemap_histogram`: counts maps whose header has one.
const HISTOGRAM: &str = "com.delphix:spacemap_histogram";
/// `spacemap_v2`: entries may have two words.
const V2: &str = "com.delphix:spacemap_v2";

/// What a group's sync pass writes maps with.
#[derive(Debug, Clone, Copy)]
pub struct Pass<'a> {
    /// The group.
    pub tx: &'a Tx,
    /// The pass, from 1.
    pub number: u32,
    /// Entries may have two words (`spacemap_v2` is active).
    pub two_words: bool,
}

impl<'a> Pass<'a> {
    /// A pass over a pool with these features.
    ///
    /// # Errors
    /// As reading the features fails.
    pub fn new(mos: &Mos, tx: &'a Tx, number: u32) -> Result<Self> {
        Ok(Pass { tx, number, two_words: mos.feature_enabled(V2)? })
    }
}

impl Mos {
    /// A new, empty space map (`space_map_alloc`).
    ///
    /// # Errors
    /// As changing the MOS fails.
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
    /// As changing the MOS fails; [`Error::Corrupt`] if it is none.
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
    /// Appends ranges, which must be whole units of the region (`space_map_write`). Nothing is durable, nor the header changed
    /// in the object, before [`SpaceMap::store`].
    ///
    /// # Errors
    /// As changing the object fails.
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

    /// Takes entries off its end, whole blocks of them, until `limit` ranges are taken or none is left
    /// (`space_map_incremental_destroy`); `limit` becomes how many more might have been.
    ///
    /// # Errors
    /// As reading, changing the object or `each` fails; [`Error::Corrupt`] for a bad entry.
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

    /// Empties it (`space_map_truncate`).
    ///
    /// # Errors
    /// As changing the object fails.
    pub fn truncate(&mut self, tx: &Tx) -> Result<()> {
        self.dnode.free_range(tx, 0, u64::MAX)?;
        (self.phys.length, self.phys.alloc) = (0, 0);
        self.phys.histogram = [0; SPACE_MAP_HISTOGRAM_SIZE];
        Ok(())
    }

    /// Sets the histogram of free segments, if its header has room for it.
    pub fn set_histogram(&mut self, histogram: &[u64; SPACE_MAP_HISTOGRAM_SIZE]) {
        if self.phys.have_histogram {
            self.phys.histogram = *histogram;
        }
    }

    /// Writes its header.
    ///
    /// # Errors
    /// As changing the object fails.
    pub fn store(&mut self, tx: &Tx) -> Result<()> {
        self.phys.object = self.object().0;
        self.dnode.set_bonus(tx, DmuType::SPACE_MAP_HEADER, &self.phys.encode())?;
        Ok(())
    }

    /// Whether so much less would do that it should be written anew; `segments` is how many ranges it would then list
    /// (`metaslab_should_condense`).
    pub fn should_condense(&self, segments: u64, sector: u64) -> bool {
        /// How many times the least size a map may have, in percent (`zfs_condense_pct`).
        const PERCENT: u64 = 200;
        /// Blocks below which a map is left alone (`zfs_metaslab_condense_block_threshold`).
        const BLOCKS: u64 = 4;
        let record = self.dnode.block_size().max(sector);
        self.phys.length > BLOCKS * record
            && self.phys.length >= (segments + 1).saturating_mul(8).saturating_mul(PERCENT) / 100
    }
}
