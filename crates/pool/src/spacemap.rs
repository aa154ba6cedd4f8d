//! Reading space maps.

use crate::{Error, Mos, Result};
use dmu::Dnode;
use ondisk::bytes::le64;
use ondisk::spacemap::{MapType, SpaceMapEntry, SpaceMapPhys, decode_entry};
use ondisk::{Corrupt, ObjNum};

mod write;

pub use write::{DTL_BLOCK_SIZE, METASLAB_BLOCK_SIZE, Pass};

const WHAT: &str = "space map";

/// An open space map (`space_map_t`).
#[derive(Debug, Clone)]
pub struct SpaceMap {
    dnode: Dnode,
    phys: SpaceMapPhys,
    start: u64,
    size: u64,
    shift: u8,
}

/// A range in a space map, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MapRange {
    /// Whether it was allocated or freed.
    pub kind: MapType,
    /// The vdev field of a two-word entry. It has a meaning only in log space maps.
    pub vdev: Option<u32>,
    /// Its first byte.
    pub start: u64,
    /// The byte after its last.
    pub end: u64,
    /// The low 50 bits of the txg from the debug entry before, or 0.
    pub txg: u64,
    /// The sync pass from the debug entry before, or 0.
    pub pass: u16,
    /// The place of the entry in the map, in words.
    pub word: u64,
    /// True if the entry has two words.
    pub two_words: bool,
}

/// An entry of a space map.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MapStep {
    /// A range.
    Range(MapRange),
    /// A debug entry. All zeros if it is only padding.
    Debug {
        /// Its place in the map, in words.
        word: u64,
        /// The kind of the entries that follow.
        action: MapType,
        /// Its sync pass.
        pass: u16,
        /// Its txg.
        txg: u64,
    },
}

impl SpaceMap {
    /// Opens the map of the region `start..start + size`, in units of `1 << shift` bytes
    /// (`space_map_open`).
    ///
    /// # Errors
    /// The errors of [reading](Error#reading). [`Error::Corrupt`] also if the length or the shift
    /// is absurd.
    pub fn open(mos: &Mos, object: ObjNum, start: u64, size: u64, shift: u8) -> Result<Self> {
        let bad = Error::corrupt(object);
        if shift >= 32 {
            return Err(bad(Corrupt::Range { what: WHAT, field: "shift", value: shift.into() }));
        }
        let dnode = mos.objset().dnode(object)?;
        let phys = SpaceMapPhys::decode(dnode.bonus()).map_err(&bad)?;
        if phys.length > dnode.max_size() {
            return Err(bad(Corrupt::Range { what: WHAT, field: "length", value: phys.length }));
        }
        Ok(Self { dnode, phys, start, size, shift })
    }

    /// The header (`space_map_phys_t`).
    pub fn phys(&self) -> &SpaceMapPhys {
        &self.phys
    }

    /// The object.
    pub fn object(&self) -> ObjNum {
        self.dnode.object()
    }

    /// Calls `step` for each entry, in the order in which they were logged (`space_map_iterate`).
    ///
    /// # Errors
    /// * The errors of [reading](Error#reading). [`Error::Corrupt`] also if an entry leaves the
    ///   region.
    /// * The errors of `step`.
    pub fn walk(&self, mut step: impl FnMut(MapStep) -> Result<()>) -> Result<()> {
        let block_size = self.dnode.block_size();
        let mut when = (0, 0);
        let mut at = 0;
        for block in self.dnode.log_blocks(self.phys.length.div_ceil(block_size)) {
            let block = block?;
            let n = (self.phys.length - at).min(block_size) as usize;
            self.walk_block(&block[..n], at, &mut when, &mut step)?;
            at += block_size;
        }
        Ok(())
    }

    /// Calls `step` for each entry of a block at byte `at`. `when` is the txg and pass of the last
    /// debug entry.
    fn walk_block(
        &self,
        words: &[u8],
        at: u64,
        when: &mut (u64, u16),
        step: &mut impl FnMut(MapStep) -> Result<()>,
    ) -> Result<()> {
        let bad = Error::corrupt(self.object());
        let mut i = 0;
        while i + 8 <= words.len() {
            let next = (i + 16 <= words.len()).then(|| le64(words, i + 8));
            let (entry, took) = decode_entry(le64(words, i), next).map_err(&bad)?;
            let word = (at + i as u64) / 8;
            match entry {
                SpaceMapEntry::Debug { action, pass, txg } => {
                    *when = (txg, pass);
                    step(MapStep::Debug { word, action, pass, txg })?;
                }
                SpaceMapEntry::Range { kind, vdev, offset, run, two_words } => {
                    let (start, end) = self.bytes(offset, run).map_err(&bad)?;
                    let (txg, pass) = *when;
                    step(MapStep::Range(MapRange { kind, vdev, start, end, txg, pass, word, two_words }))?;
                }
            }
            i += took * 8;
        }
        Ok(())
    }

    /// The range of an entry in bytes, checked against the region.
    fn bytes(&self, offset: u64, run: u64) -> ondisk::Result<(u64, u64)> {
        let range = |value| Corrupt::Range { what: WHAT, field: "offset", value };
        let scale = |units: u64| units.checked_mul(1 << self.shift);
        let rel = scale(offset).ok_or(range(offset))?;
        let len = scale(run).ok_or(range(offset))?;
        match rel.checked_add(len) {
            Some(end) if end <= self.size => Ok((self.start + rel, self.start + end)),
            _ => Err(range(offset)),
        }
    }
}
