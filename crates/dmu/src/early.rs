//! Blocks that are written before their txg syncs (`dmu_sync`).
//!
//! # Theory
//! A log that commits much data need not hold the data itself. The block is written to its final
//! place at once, and the log names the place. When the txg syncs, it takes over that place instead
//! of writing the block again.
//!
//! Blocks are immutable, so a change of a block shows in its memory. The txg takes the place if the
//! object still holds the very block that was written there. Otherwise it frees the place like any
//! block. So nothing else can be written there before the txg is on disk. From then on the log's
//! record has no meaning.
//!
//! # Life
//! The writer of an early block holds its txg open. It lets the txg sync only after the block is
//! written, or after it has withdrawn the place.

use crate::live::node::LiveDnode;
use crate::{DN_MAX_OBJECT, Dnode};
use device::Block;
use ondisk::dnode::DnodePhys;
use ondisk::{BlkId, Blkptr, DmuType, Level, Txg};
use std::sync::Arc;
use zio::{Bookmark, WritePolicy, WriteReq};

/// A data block that an open txg has changed, in its current state.
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
    /// Block `blkid` as `txg` has changed it.
    ///
    /// `None` if `txg` has not changed it or is already syncing, or if the block is not data of a
    /// file or volume.
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
    /// Its transaction group.
    pub fn txg(&self) -> Txg {
        self.txg
    }

    /// Its contents.
    pub fn block(&self) -> &Block {
        &self.block
    }

    /// The offset of its first byte in the object.
    pub fn offset(&self) -> u64 {
        self.blkid.0.saturating_mul(self.block.len() as u64)
    }

    /// The place where this txg has written it, if it has not changed since.
    pub fn placed(&self) -> Option<&Blkptr> {
        self.placed.as_ref()
    }

    /// The write request for it.
    ///
    /// `policy` returns how blocks of this type and object are written, or `None` if that is not
    /// known.
    pub fn request(&self, policy: &dyn Fn(DmuType, &DnodePhys) -> Option<WritePolicy>) -> Option<WriteReq> {
        let head = self.dn.head()?;
        let kind = head.phys.kind;
        let (objset, object) = (self.dn.os.home.id, self.dn.object);
        Some(WriteReq {
            data: self.block.clone().into(),
            compressed: None,
            encrypted: None,
            kind,
            level: Level(0),
            bookmark: Bookmark { objset, object, level: Level(0), blkid: self.blkid },
            fill: 1,
            policy: policy(kind, &head.phys)?,
            old: None,
            in_place: false,
        })
    }

    /// Makes the txg use this place. False if the block has changed, so that the place is of no
    /// use.
    pub fn place(&self, bp: &Blkptr) -> bool {
        self.dn.place_early(self.txg, self.blkid, &self.block, bp)
    }

    /// Withdraws the place after a failed write. The txg then writes the block as any other, and
    /// frees the place.
    pub fn displace(&self, bp: &Blkptr) {
        self.dn.displace_early(self.txg, self.blkid, bp);
    }
}
