//! Blocks that are written before their group syncs (`dmu_sync`).
//!
//! # Theory
//! A log that commits much data need not hold it: the block goes to its place at once, the log names the place, and the group takes it when it
//! syncs, instead of writing the block again. Blocks are immutable, so whether one has been changed since shows by its memory: a group
//! takes the place if it still has the very block that was written there. Else it frees it, like any block, so that nothing else gets there before the group is on
//! disk, with which the log's record loses its meaning.
//!
//! # Life
//! Whoever places a block holds its group open, and the group syncs only when he has written it, or has taken the place back.

use crate::live::node::LiveDnode;
use crate::{DN_MAX_OBJECT, Dnode};
use device::Block;
use ondisk::dnode::DnodePhys;
use ondisk::{BlkId, Blkptr, DmuType, Level, Txg};
use std::sync::Arc;
use zio::{Bookmark, WritePolicy, WriteReq};

/// A data block that an open group has changed, as it is now.
pub struct DirtyBlock {
    dn: Arc<LiveDnode>,
    txg: Txg,
    blkid: BlkId,
    block: Block,
    placed: Option<Blkptr>,
}

impl std::fmt::Debug for DirtyBlock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "DirtyBlock({}, {}, {:?})", self.dn.object, self.txg, self.blkid)
    }
}

impl Dnode {
    /// Block `blkid` as the group `txg` has changed it; `None` if it hasn't, or is syncing, or if the block is no file's or volume's data.
    pub fn dirty_block(&self, txg: Txg, blkid: BlkId) -> Option<DirtyBlock> {
        let dn = self.live_node()?;
        if self.kind().is_metadata() || dn.object.0 >= DN_MAX_OBJECT {
            return None;
        }
        let (block, placed) = dn.dirty_block(txg, blkid)?;
        Some(DirtyBlock { dn: dn.clone(), txg, blkid, block, placed })
    }
}

impl DirtyBlock {
    /// Its group.
    pub fn txg(&self) -> Txg {
        self.txg
    }

    /// Its contents.
    pub fn block(&self) -> &Block {
        &self.block
    }

    /// Its first byte in its object.
    pub fn offset(&self) -> u64 {
        self.blkid.0.saturating_mul(self.block.len() as u64)
    }

    /// Where it has been written in this group, and not been changed since.
    pub fn placed(&self) -> Option<&Blkptr> {
        self.placed.as_ref()
    }

    /// What writing it takes; `policy` says how blocks of this type of this object are written, and whether that is known.
    pub fn request(&self, policy: &dyn Fn(DmuType, &DnodePhys) -> Option<WritePolicy>) -> Option<WriteReq> {
        let head = self.dn.head()?;
        let kind = head.phys.kind;
        let (objset, object) = (self.dn.os.home.id, self.dn.object);
        Some(WriteReq {
            data: self.block.clone().into(),
            kind,
            level: Level(0),
            bookmark: Bookmark { objset, object, level: Level(0), blkid: self.blkid },
            fill: 1,
            policy: policy(kind, &head.phys)?,
            old: None,
            in_place: false,
        })
    }

    /// Has the group take this place. False if the block has been changed, and the place is of no use.
    pub fn place(&self, bp: &Blkptr) -> bool {
        self.dn.place_early(self.txg, self.blkid, &self.block, bp)
    }

    /// The block has not got to its place: the group writes it as any other, and frees the place.
    pub fn displace(&self, bp: &Blkptr) {
        self.dn.displace_early(self.txg, self.blkid, bp);
    }
}
