//! Changes of micro ZAPs.

use super::change::Put;
use super::room::{FLOOR_BITS, MICRO_CHUNKS, alike};
use super::{MicroSlot, Shape, View, Wanted, Zap};
use crate::{Result, Tx};
use ondisk::zap::{MICRO_ENTRY_SIZE, MicroZap, MicroZapMut};
use ondisk::{BlkId, Corrupt};

/// Largest micro ZAP without the feature `large_microzap` (`zap_micro_max_size`).
const MICRO_MAX: u64 = 128 << 10;
/// Most entries whose hashes begin alike, so that they fit into a leaf of a fat ZAP
/// (`mze_canfit_fzap_leaf`).
///
/// A leaf of 16 KiB has 637 chunks.
const ALIKE_MAX: usize = 637 / MICRO_CHUNKS;

impl Zap {
    /// Adds or updates an entry. False if there is no space, so that the ZAP must become a fat one.
    pub(super) fn put_micro(&self, tx: &Tx, v: &mut View, name: &[u8], value: u64, how: Put) -> Result<bool> {
        let dn = &self.0.dn;
        let found = self.find_micro(v, &Wanted::new(name, super::Match::Exact, v.norm))?;
        match found {
            Some(_) if how == Put::Add => return Err(self.exists()),
            Some((slot, ..)) => {
                dn.modify_block(tx, BlkId(0), |b| {
                    MicroZapMut::parse(b).map(|mut z| z.set_value(slot, value))
                })?
                .map_err(|e| self.corrupt(e))?;
                return Ok(true);
            }
            None => {}
        }
        let hash = v.hash_name(name);
        let index = self.micro_index(v)?;
        let from = index.partition_point(|s| s.hash < hash);
        let same = index[from..].iter().take_while(|s| s.hash == hash);
        let cd = same.clone().zip(0u32..).take_while(|(s, cd)| s.cd == *cd).count() as u32;
        let from = index.partition_point(|s| s.hash < hash && !alike(s.hash, hash, FLOOR_BITS));
        let crowd = index[from..].iter().take_while(|s| alike(s.hash, hash, FLOOR_BITS));
        if crowd.count() >= ALIKE_MAX {
            return Ok(false);
        }
        let Some(slot) = self.free_slot(tx, v)? else { return Ok(false) };
        dn.modify_block(tx, BlkId(0), |b| MicroZapMut::parse(b).map(|mut z| z.set(slot, name, value, cd)))?
            .map_err(|e| self.corrupt(e))?;
        if let Shape::Micro { index, hint, .. } = &mut v.shape {
            let new = MicroSlot { hash, cd, slot };
            let index = index.get_mut().expect("it was made above");
            index.insert(index.partition_point(|s| *s < new), new);
            *hint = slot + 1;
        }
        Ok(true)
    }

    /// A free slot. If there is none, the block grows by a sector, up to its largest size.
    fn free_slot(&self, tx: &Tx, v: &View) -> Result<Option<usize>> {
        let Shape::Micro { hint, .. } = &v.shape else { return Ok(None) };
        let used = self.micro_index(v)?.len();
        let size = {
            let head = self.head(v)?;
            let z = MicroZap::parse(&head).map_err(|e| self.corrupt(e))?;
            if used < z.slots() {
                let order = (*hint..z.slots()).chain(0..(*hint).min(z.slots()));
                for slot in order {
                    if z.entry(slot).map_err(|e| self.corrupt(e))?.is_none() {
                        return Ok(Some(slot));
                    }
                }
                let why = "it has more entries than slots";
                return Err(self.corrupt(Corrupt::Shape { what: "micro ZAP", why }));
            }
            head.len() as u64
        };
        if size + 512 > MICRO_MAX {
            return Ok(None);
        }
        self.0.dn.set_block_size(tx, (size + 512) as u32)?;
        Ok(Some(size as usize / MICRO_ENTRY_SIZE - 1))
    }

    pub(super) fn remove_micro(&self, tx: &Tx, v: &mut View, wanted: &Wanted<'_>) -> Result<()> {
        // An entry is found by a form of its name, and removed by its slot.
        self.micro_index(v)?;
        let Some((slot, ..)) = self.find_micro(v, wanted)? else { return Err(self.missing()) };
        self.0
            .dn
            .modify_block(tx, BlkId(0), |b| MicroZapMut::parse(b).map(|mut z| z.clear(slot)))?
            .map_err(|e| self.corrupt(e))?;
        let hash = v.hash_name(wanted.name);
        if let Shape::Micro { index, hint, .. } = &mut v.shape {
            let index = index.get_mut().expect("it was made above");
            let from = index.partition_point(|s| s.hash < hash);
            if let Some(i) = index[from..].iter().position(|s| s.slot == slot) {
                index.remove(from + i);
            }
            *hint = slot.min(*hint);
        }
        Ok(())
    }

    /// Name, value and differentiator of all entries, in cursor order.
    pub(super) fn micro_entries(&self, v: &View) -> Result<Vec<(Vec<u8>, u64, u32)>> {
        let head = self.head(v)?;
        let z = MicroZap::parse(&head).map_err(|e| self.corrupt(e))?;
        let mut all = Vec::new();
        for s in self.micro_index(v)? {
            if let Some(e) = z.entry(s.slot).map_err(|e| self.corrupt(e))? {
                all.push((e.name.to_vec(), e.value, e.cd));
            }
        }
        Ok(all)
    }
}
