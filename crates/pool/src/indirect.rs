//! Mappings of removed devices.

use crate::{Error, Mos, Result};
use ondisk::indirect::{BirthEntry, MappingEntry, MappingPhys, births_count};
use ondisk::{Corrupt, ObjNum};

/// Most entries that are read; each stands for at least a block, and takes 24 bytes of memory.
const MAX_ENTRIES: u64 = 1 << 28;

/// Where the blocks of a removed vdev went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mapping {
    /// Header.
    pub phys: MappingPhys,
    /// Segments, by source offset; they do not overlap.
    pub entries: Vec<MappingEntry>,
}

impl Mos {
    /// Reads an indirect mapping (`vdev_indirect_mapping_open`).
    ///
    /// # Errors
    /// As reading fails; [`Error::Corrupt`] for too many, bad or unsorted entries.
    pub fn indirect_mapping(&self, object: ObjNum) -> Result<Mapping> {
        const WHAT: &str = "indirect mapping";
        let bad = Error::corrupt(object);
        let dn = self.objset().dnode(object)?;
        let phys = MappingPhys::decode(dn.bonus()).map_err(&bad)?;
        let raw = self.array(object, phys.num_entries, MappingEntry::SIZE)?;
        let mut entries = Vec::with_capacity(phys.num_entries as usize);
        let mut end = 0;
        for r in raw.chunks_exact(MappingEntry::SIZE) {
            let e = MappingEntry::decode(r).map_err(&bad)?;
            if e.src.0 < end {
                return Err(bad(Corrupt::Shape {
                    what: WHAT,
                    why: "its segments overlap or are not sorted",
                }));
            }
            end = e.src.0 + e.size;
            entries.push(e);
        }
        Ok(Mapping { phys, entries })
    }

    /// Reads when the parts of a removed vdev were copied (`vdev_indirect_births_open`).
    ///
    /// # Errors
    /// As [`Mos::indirect_mapping`].
    pub fn indirect_births(&self, object: ObjNum) -> Result<Vec<BirthEntry>> {
        let bad = Error::corrupt(object);
        let count = births_count(self.objset().dnode(object)?.bonus()).map_err(&bad)?;
        let raw = self.array(object, count, BirthEntry::SIZE)?;
        raw.chunks_exact(BirthEntry::SIZE).map(|r| BirthEntry::decode(r).map_err(&bad)).collect()
    }

    /// Bytes of each mapping entry that were obsolete when the mapping was last condensed; empty if not kept.
    ///
    /// # Errors
    /// As [`Mos::indirect_mapping`].
    pub fn obsolete_counts(&self, phys: &MappingPhys) -> Result<Vec<u32>> {
        if phys.counts_object == 0 {
            return Ok(Vec::new());
        }
        let raw = self.array(ObjNum(phys.counts_object), phys.num_entries, 4)?;
        Ok(raw.as_chunks::<4>().0.iter().map(|c| u32::from_le_bytes(*c)).collect())
    }

    /// The first `count` elements of `size` bytes of an object.
    fn array(&self, object: ObjNum, count: u64, size: usize) -> Result<Vec<u8>> {
        let dn = self.objset().dnode(object)?;
        let bytes = count.checked_mul(size as u64).filter(|n| count <= MAX_ENTRIES && *n <= dn.max_size());
        let Some(bytes) = bytes else {
            let source = Corrupt::Range { what: "array", field: "entries", value: count };
            return Err(Error::Corrupt { object, source });
        };
        let mut buf = vec![0; bytes as usize];
        dn.read_at(0, &mut buf)?;
        Ok(buf)
    }
}
