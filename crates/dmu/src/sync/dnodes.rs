//! Writing dnodes into their blocks.

use crate::Result;
use crate::live::dirty::Dirty;
use crate::live::header::Header;
use crate::sync::block_tree::SyncTree;
use crate::sync::{Sync, Synced};
use crate::tree::BlockTree;
use device::AlignedBuf;
use ondisk::blkptr::BLKPTR_SIZE;
use ondisk::dnode::{DNODE_CORE_SIZE, DNODE_MIN_SIZE, DNODE_SHIFT, DnodePhys};
use ondisk::version::SPA_VERSION_DNODE_BYTES;
use ondisk::{BlkId, ObjNum};
use std::sync::Arc;

/// The number of objects in a block of dnodes, which is the fill of its pointer.
pub(crate) fn fill(block: &[u8]) -> u64 {
    let (mut at, mut n) = (0, 0);
    while at < block.len() {
        let used = block[at] != 0;
        n += u64::from(used);
        let slots = if used { DnodePhys::slots(&block[at..]).unwrap_or(1) } else { 1 };
        at += slots * DNODE_MIN_SIZE;
    }
    n
}

/// Puts a dnode into its slots whose bonus is ciphertext, as is all of the space behind it.
fn put_raw(slots: &mut [u8], encoded: &[u8], s: &Synced, new: &DnodePhys) {
    let spill = if new.spill.is_some() { BLKPTR_SIZE } else { 0 };
    let bonus = DNODE_CORE_SIZE + new.blkptrs.len() * BLKPTR_SIZE..slots.len() - spill;
    let arrived = s.dirty.header.as_ref().and_then(|header| header.encrypted_bonus.as_deref());
    let kept = s.old.is_some() && !s.dirty.wipe && arrived.is_none();
    slots[..bonus.start].copy_from_slice(&encoded[..bonus.start]);
    slots[bonus.end..].copy_from_slice(&encoded[bonus.end..]);
    if !kept {
        slots[bonus.clone()].copy_from_slice(&encoded[bonus.clone()]);
    }
    if let Some(bytes) = arrived {
        // A spill block that the object did not announce takes the end.
        let bytes = &bytes[..bytes.len().min(bonus.len())];
        slots[bonus][..bytes.len()].copy_from_slice(bytes);
    }
}

impl Sync<'_> {
    /// Writes the changed blocks of dnodes, and returns the new meta dnode.
    pub(super) fn dnode_blocks(&mut self, meta: &Arc<BlockTree>, synced: &[Synced]) -> Result<DnodePhys> {
        if synced.is_empty() {
            return Ok(meta.phys.clone());
        }
        let size = meta.phys.datablksz as usize;
        let per = (size >> DNODE_SHIFT) as u64;
        let mut header = Header::of(&meta.phys);
        let sectors = self.live.home.cache.zio().pool_version() < SPA_VERSION_DNODE_BYTES;
        let mut dirty = Dirty::new(self.txg, None);
        for same in synced.chunk_by(|a, b| a.dn.object.0 / per == b.dn.object.0 / per) {
            let blkid = BlkId(same[0].dn.object.0 / per);
            let raw = self.live.raw.is_raw();
            let old = match blkid <= meta.phys.maxblkid {
                true if raw => meta.block_undecrypted(blkid, &self.options)?,
                true => meta.block(blkid, &self.options)?,
                false => None,
            };
            let mut buf = old.map_or_else(|| AlignedBuf::zeroed(size), |b| b.thaw());
            let at = |s: &Synced| (s.dn.object.0 % per) as usize * DNODE_MIN_SIZE;
            // First all dnodes that go: a new one may lie across several of them.
            for s in same {
                if let Some(old) = s.old.as_ref().filter(|_| s.dirty.wipe) {
                    let end = at(s) + old.phys.num_slots() * DNODE_MIN_SIZE;
                    buf[at(s)..end.min(size)].fill(0);
                }
            }
            for s in same {
                if let Some(new) = &s.new {
                    let encoded = if sectors { new.encode_sectors() } else { new.encode() };
                    let slots = &mut buf[at(s)..at(s) + encoded.len()];
                    if raw { put_raw(slots, &encoded, s, new) } else { slots.copy_from_slice(&encoded) }
                }
            }
            header.reach(blkid).map_err(|e| meta.corrupt(e))?;
            dirty.blocks.insert(blkid, buf.freeze());
        }
        let mut phys = meta.phys.clone();
        phys.maxblkid = header.maxblkid;
        let mut sync_tree = SyncTree::new(self.live.home.clone(), ObjNum(0), phys, Arc::new(dirty));
        sync_tree.grow(header.nlevels);
        let mut trees = [sync_tree];
        self.sync_tree(&mut trees)?;
        let [sync_tree] = trees;
        Ok(sync_tree.finish())
    }
}
