//! Lists of block pointers: bpobjs with their sub-lists, and deadlists.

use crate::{Error, Mos, Result};
use ondisk::bpobj::{BPOBJ_ENTRY_SIZE, BpobjPhys, DeadlistPhys};
use ondisk::bytes::le64;
use ondisk::{Blkptr, Corrupt, DmuType, ObjNum, mos};
use std::collections::{BTreeMap, BTreeSet};

mod write;

pub use write::Dsize;

/// The sizes of a block, as a list sums them up.
pub fn space_of(bp: &Blkptr, dsize: Dsize<'_>) -> Space {
    let psize = bp.stored().map_or(0, |s| s.psize.0);
    // Metadata counts with its compressed size only (`BP_GET_UCSIZE`).
    let uncomp = if bp.is_metadata() { psize } else { bp.lsize.0 };
    Space { used: dsize(bp), comp: psize, uncomp }
}

/// Sums of the sizes of a list's blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Space {
    /// Allocated bytes.
    pub used: u64,
    /// Compressed bytes.
    pub comp: u64,
    /// Uncompressed bytes.
    pub uncomp: u64,
}

impl Space {
    pub(crate) fn add(&mut self, other: Space) {
        self.used = self.used.wrapping_add(other.used);
        self.comp = self.comp.wrapping_add(other.comp);
        self.uncomp = self.uncomp.wrapping_add(other.uncomp);
    }
}

/// Most sub-lists that a list may have in all.
const MAX_SUBOBJS: usize = 1 << 20;

impl Mos {
    /// The header of a bpobj (`bpobj_phys_t`).
    ///
    /// # Errors
    /// The errors of [reading](Error#reading).
    pub fn bpobj(&self, object: ObjNum) -> Result<BpobjPhys> {
        BpobjPhys::decode(self.objset().dnode(object)?.bonus()).map_err(Error::corrupt(object))
    }

    /// Calls `each` with every block pointer of a bpobj and of its sub-lists
    /// (`bpobj_iterate_nofree`).
    ///
    /// The second argument is true for a block that a livelist marks as freed.
    ///
    /// # Errors
    /// * The errors of [reading](Error#reading). [`Error::Corrupt`] also if lists contain each
    ///   other.
    /// * The errors of `each`.
    pub fn walk_bpobj(
        &self,
        object: ObjNum,
        each: &mut dyn FnMut(&Blkptr, bool) -> Result<()>,
    ) -> Result<()> {
        let mut seen = BTreeSet::from([object]);
        let mut queue = vec![object];
        while let Some(object) = queue.pop() {
            let bad = Error::corrupt(object);
            let dn = self.objset().dnode(object)?;
            let phys = BpobjPhys::decode(dn.bonus()).map_err(&bad)?;
            if phys.num_blkptrs > dn.max_size() / BPOBJ_ENTRY_SIZE {
                return Err(bad(Corrupt::Range {
                    what: "bpobj",
                    field: "pointers",
                    value: phys.num_blkptrs,
                }));
            }
            let per = dn.block_size() / BPOBJ_ENTRY_SIZE;
            if per == 0 {
                return Err(bad(Corrupt::Shape { what: "bpobj", why: "its blocks hold no pointer" }));
            }
            let mut at = 0;
            for block in dn.log_blocks(phys.num_blkptrs.div_ceil(per)) {
                let block = block?;
                let n = per.min(phys.num_blkptrs - at) as usize;
                for raw in block.chunks_exact(BPOBJ_ENTRY_SIZE as usize).take(n) {
                    // Livelists mark frees with the low bit of the fill count (`BP_GET_FREE`).
                    let freed = word(raw, 11) & 1 != 0;
                    each(&Blkptr::decode(raw).map_err(&bad)?, freed)?;
                }
                at += n as u64;
            }
            for sub in self.bpobj_subobjs(object, &phys)? {
                if !seen.insert(sub) || seen.len() > MAX_SUBOBJS {
                    return Err(bad(Corrupt::Shape { what: "bpobj", why: "its sub-lists form a loop" }));
                }
                queue.push(sub);
            }
        }
        Ok(())
    }

    /// The sub-lists that a header names.
    ///
    /// # Errors
    /// The errors of [reading](Error#reading). [`Error::Corrupt`] also if there are more than their
    /// object can hold.
    pub fn bpobj_subobjs(&self, object: ObjNum, phys: &BpobjPhys) -> Result<Vec<ObjNum>> {
        if phys.subobjs == 0 {
            return Ok(Vec::new());
        }
        let dn = self.objset().dnode(ObjNum(phys.subobjs))?;
        if phys.num_subobjs > dn.max_size() / 8 || phys.num_subobjs > MAX_SUBOBJS as u64 {
            let source = Corrupt::Range { what: "bpobj", field: "sub-lists", value: phys.num_subobjs };
            return Err(Error::Corrupt { object, source });
        }
        let mut buf = vec![0; phys.num_subobjs as usize * 8];
        dn.read_at(0, &mut buf)?;
        Ok(buf.as_chunks::<8>().0.iter().map(|c| ObjNum(u64::from_le_bytes(*c))).collect())
    }

    /// Opens a deadlist (`dsl_deadlist_open`).
    ///
    /// # Errors
    /// The errors of [reading](Error#reading).
    pub fn deadlist(&self, object: ObjNum) -> Result<Deadlist> {
        let dn = self.objset().dnode(object)?;
        let bad = Error::corrupt(object);
        if dn.kind() == DmuType::BPOBJ {
            let p = BpobjPhys::decode(dn.bonus()).map_err(bad)?;
            let total = Space { used: p.bytes, comp: p.comp, uncomp: p.uncomp };
            return Ok(Deadlist { object, total, old: true });
        }
        let p = DeadlistPhys::decode(dn.bonus()).map_err(bad)?;
        Ok(Deadlist { object, total: Space { used: p.used, comp: p.comp, uncomp: p.uncomp }, old: false })
    }
}

/// Blocks that died in a dataset since its previous snapshot (`dsl_deadlist_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deadlist {
    /// The object of the deadlist.
    pub object: ObjNum,
    /// The sums of all its blocks (`dsl_deadlist_space`).
    pub total: Space,
    /// True for a plain bpobj, as in pools before version 26.
    pub(crate) old: bool,
}

impl Deadlist {
    /// True for a plain bpobj, as in pools before version 26.
    pub fn is_old(&self) -> bool {
        self.old
    }

    /// The sub-lists by birth. Each holds blocks born after its key, and up to the next key.
    ///
    /// Empty for a plain bpobj.
    ///
    /// # Errors
    /// The errors of [reading](Error#reading). [`Error::Corrupt`] also if a name is no txg.
    pub fn lists(&self, mos: &Mos) -> Result<BTreeMap<u64, ObjNum>> {
        let mut out = BTreeMap::new();
        if self.old {
            return Ok(out);
        }
        let bad = || Corrupt::Shape { what: "deadlist", why: "a name is no txg" };
        for e in mos.zap(self.object)?.all()? {
            let name = std::str::from_utf8(e.name()).ok();
            let mintxg = name.and_then(|name| u64::from_str_radix(name, 16).ok());
            let mintxg = mintxg.ok_or_else(|| Error::corrupt(self.object)(bad()))?;
            out.insert(mintxg, ObjNum(e.value.first().unwrap_or(0)));
        }
        Ok(out)
    }

    /// The sums of blocks born after `mintxg` and up to `maxtxg` (`dsl_deadlist_space_range`).
    ///
    /// # Errors
    /// The errors of [reading](Error#reading).
    pub fn space_range(&self, mos: &Mos, mintxg: u64, maxtxg: u64) -> Result<Space> {
        let mut out = Space::default();
        if self.old {
            mos.walk_bpobj(self.object, &mut |bp, _| {
                if bp.birth.0 > mintxg && bp.birth.0 <= maxtxg {
                    let asize = |bp: &Blkptr| bp.stored().map_or(0, |s| s.copies().map(|d| d.asize.0).sum());
                    out.add(space_of(bp, &asize));
                }
                Ok(())
            })?;
            return Ok(out);
        }
        if (mintxg, maxtxg) == (0, u64::MAX) {
            return Ok(self.total);
        }
        let empty = mos.dir(mos::EMPTY_BPOBJ)?;
        let lists = self.lists(mos)?;
        for list in lists.range(mintxg..maxtxg).map(|(_, list)| *list).filter(|list| Some(*list) != empty) {
            let p = mos.bpobj(list)?;
            out.add(Space { used: p.bytes, comp: p.comp, uncomp: p.uncomp });
        }
        Ok(out)
    }
}

/// The word at index `i` of a block of words.
pub(crate) fn word(block: &[u8], i: usize) -> u64 {
    le64(block, i * 8)
}
