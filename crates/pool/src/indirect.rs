//! The mappings of removed devices (`vdev_indirect_mapping.c`, `vdev_indirect_births.c`).

use crate::{Error, Mos, Result};
use ondisk::indirect::{BirthEntry, MappingEntry, MappingPhys, births_count};
use ondisk::{Corrupt, ObjNum};

/// Most entries that are read. Each stands for at least a block, and takes 24 bytes of memory.
const MAX_ENTRIES: u64 = 1 << 28;
/// Bytes of an array that are read at a time.
const PIECE: usize = 128 << 10;

/// Where the blocks of a removed vdev are now (`vdev_indirect_mapping_t`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mapping {
    /// The header.
    pub phys: MappingPhys,
    /// The segments, by source offset. They do not overlap.
    pub entries: Vec<MappingEntry>,
}

impl Mos {
    /// Reads an indirect mapping (`vdev_indirect_mapping_open`).
    ///
    /// # Errors
    /// The errors of [reading](Error#reading). [`Error::Corrupt`] also if there are too many
    /// entries, or if they overlap or are not sorted.
    pub fn indirect_mapping(&self, object: ObjNum) -> Result<Mapping> {
        const WHAT: &str = "indirect mapping";
        let bad = Error::corrupt(object);
        let dn = self.objset().dnode(object)?;
        let phys = MappingPhys::decode(dn.bonus()).map_err(&bad)?;
        let mut entries = Vec::new();
        let mut end = 0;
        self.array(object, phys.num_entries, MappingEntry::SIZE, |r| {
            let e = MappingEntry::decode(r).map_err(&bad)?;
            if e.src.0 < end {
                return Err(bad(Corrupt::Shape {
                    what: WHAT,
                    why: "its segments overlap or are not sorted",
                }));
            }
            end = e.src.0 + e.size;
            entries.push(e);
            Ok(())
        })?;
        Ok(Mapping { phys, entries })
    }

    /// Reads when the segments of a removed vdev were copied (`vdev_indirect_births_open`).
    ///
    /// # Errors
    /// The errors of [reading](Error#reading). [`Error::Corrupt`] also if there are too many
    /// entries, or if they are not sorted.
    pub fn indirect_births(&self, object: ObjNum) -> Result<Vec<BirthEntry>> {
        let bad = Error::corrupt(object);
        let count = births_count(self.objset().dnode(object)?.bonus()).map_err(&bad)?;
        let mut births: Vec<BirthEntry> = Vec::new();
        self.array(object, count, BirthEntry::SIZE, |r| {
            let birth = BirthEntry::decode(r).map_err(&bad)?;
            if births.last().is_some_and(|last| birth.offset <= last.offset) {
                return Err(bad(Corrupt::Shape { what: "indirect births", why: "they are not sorted" }));
            }
            births.push(birth);
            Ok(())
        })?;
        Ok(births)
    }

    /// The obsolete bytes of each mapping entry, as of the last condensing
    /// (`vdev_indirect_mapping_load_obsolete_counts`).
    ///
    /// Empty if the pool keeps no counts.
    ///
    /// # Errors
    /// The errors of [reading](Error#reading). [`Error::Corrupt`] also if there are too many
    /// entries.
    pub fn obsolete_counts(&self, phys: &MappingPhys) -> Result<Vec<u32>> {
        if phys.counts_object == 0 {
            return Ok(Vec::new());
        }
        let mut counts = Vec::new();
        self.array(ObjNum(phys.counts_object), phys.num_entries, 4, |r| {
            counts.extend(r.first_chunk().map(|c| u32::from_le_bytes(*c)));
            Ok(())
        })?;
        Ok(counts)
    }

    /// Passes the first `count` elements of `size` bytes of an object to `each`, in parts.
    ///
    /// So the claimed length of an object takes no memory before its contents prove it.
    fn array(
        &self,
        object: ObjNum,
        count: u64,
        size: usize,
        mut each: impl FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        let dn = self.objset().dnode(object)?;
        let bytes = count.checked_mul(size as u64).filter(|n| count <= MAX_ENTRIES && *n <= dn.max_size());
        let Some(bytes) = bytes else {
            let source = Corrupt::Range { what: "array", field: "entries", value: count };
            return Err(Error::Corrupt { object, source });
        };
        let mut buf = vec![0; PIECE / size * size];
        let mut at = 0;
        while at < bytes {
            let n = (bytes - at).min(buf.len() as u64) as usize;
            dn.read_at(at, &mut buf[..n])?;
            buf[..n].chunks_exact(size).try_for_each(&mut each)?;
            at += n as u64;
        }
        Ok(())
    }
}
