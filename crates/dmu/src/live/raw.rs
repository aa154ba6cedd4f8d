//! What arrives encrypted, from the raw stream of another pool.
//!
//! # Theory
//! A raw stream has the blocks of an encrypted dataset as they were stored, with their salts, IVs
//! and MACs. Nothing here can decrypt them or make a MAC. So the tree that holds them must become
//! exactly the sender's: levels, sizes of indirect blocks, numbers of pointers, last blocks.
//!
//! The dnodes of a block have one MAC together, and their bonuses are encrypted as one. The stream
//! says what these are before it has the dnodes. A block of dnodes that is written in several txgs
//! has the right MAC from the last one on.
//!
//! # See
//! OpenZFS `dmu_objset.c` (`os_raw_receive`), `dbuf_prepare_encrypted_dnode_leaf`,
//! `dsl_crypto_recv_raw_objset_sync`.

use crate::live::header::INDBLKSHIFT;
use crate::live::node::LiveDnode;
use crate::{Dnode, Error, Objset, Result, Tx};
use codec::checksum::Checksum;
use observe::lock::Mutex;
use ondisk::blkptr::{BLKPTR_SHIFT, BLKPTR_SIZE};
use ondisk::dnode::{DN_MAX_LEVELS, DN_MAX_NBLKPTR, DNODE_BLOCK_SIZE, DnodePhys};
use ondisk::objset::{ObjsetFlags, ObjsetPhys};
use ondisk::{BlkId, Blkptr, Txg};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use zio::Encrypted;

/// The part of a live object set that is about raw streams.
#[derive(Default)]
pub(crate) struct Raw {
    is_raw: AtomicBool,
    /// How blocks of dnodes are encrypted that a txg is to write.
    blocks: Mutex<BTreeMap<(Txg, BlkId), Encrypted>>,
}

impl Raw {
    /// True if all that is written now arrives encrypted.
    pub(crate) fn is_raw(&self) -> bool {
        self.is_raw.load(Ordering::Acquire)
    }

    /// How a block of dnodes is encrypted that `txg` writes: as the stream says, or as it was.
    pub(crate) fn block_of_dnodes(&self, txg: Txg, blkid: BlkId, old: &Blkptr) -> Option<Encrypted> {
        if !self.is_raw() {
            return None;
        }
        let said = self.blocks.lock().get(&(txg, blkid)).copied();
        said.or_else(|| {
            let stored = old.stored()?;
            Some(Encrypted { params: stored.crypt_params, mac: Checksum(stored.sum).mac(old.order) })
        })
    }

    /// Drops what a txg has written.
    pub(crate) fn synced(&self, txg: Txg) {
        if self.is_raw() {
            self.blocks.lock().retain(|(of, _), _| *of > txg);
        }
    }
}

/// What a raw stream says about the object set itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RawObjset {
    /// The MAC over its portable parts (`os_portable_mac`).
    pub portable_mac: [u8; 32],
    /// Compressor of the blocks of dnodes, as the number on disk.
    pub compress: u8,
    /// Checksum of the blocks of dnodes, as the number on disk.
    pub checksum: u8,
    /// Levels of the tree of dnodes.
    pub levels: u8,
    /// log2 of its indirect blocks.
    pub indirect_shift: u8,
    /// Its last block.
    pub max_block: u64,
}

/// What a raw stream says about an object besides [`crate::NewObject`].
#[derive(Debug, Clone)]
pub struct RawObject {
    /// Levels of its tree.
    pub levels: u8,
    /// log2 of its indirect blocks.
    pub indirect_shift: u8,
    /// Pointers in its dnode.
    pub pointers: u8,
    /// Its last block.
    pub max_block: u64,
    /// Its bonus and all of the space behind it.
    pub bonus: Vec<u8>,
}

impl RawObject {
    /// True if a tree of this shape has the last block, and it fits into the slots of a dnode.
    pub fn is_possible(&self, slots: u8) -> bool {
        let Self { levels, indirect_shift, pointers, max_block, ref bonus } = *self;
        let tail = DnodePhys::tail_len(slots.into());
        let above = u32::from(levels.saturating_sub(1));
        let spans = u32::from(indirect_shift).saturating_sub(BLKPTR_SHIFT) * above;
        (1..=DN_MAX_LEVELS).contains(&levels)
            && INDBLKSHIFT.contains(&indirect_shift)
            && (1..=DN_MAX_NBLKPTR).contains(&usize::from(pointers))
            && usize::from(pointers) * BLKPTR_SIZE + bonus.len() <= tail
            && max_block.checked_shr(spans).unwrap_or(0) < pointers.into()
    }
}

impl Objset {
    /// Makes all that is written from now on blocks of a raw stream, and sets what the stream says
    /// about the object set (`dsl_crypto_recv_raw_objset_sync`).
    ///
    /// Space is not counted by user then. Called before anything is written. The caller must be the
    /// owner, and no key of the object set may be in use.
    ///
    /// # Errors
    /// * [`Error::Fixed`]: the object set is not open for changes.
    /// * [`Error::DnodesShape`]: it has dnodes already, in a tree of another shape.
    pub fn receive_raw(&self, tx: &Tx, raw: &RawObjset) -> Result<()> {
        let live = self.live()?;
        let shape = Error::DnodesShape { objset: self.id() };
        live.change_meta(tx, |phys| change_root(phys, raw).then_some(()).ok_or(shape))?;
        live.raw.is_raw.store(true, Ordering::Release);
        Ok(())
    }

    /// Says how a block of dnodes is encrypted that the txg of `tx` writes
    /// (`dmu_buf_set_crypt_params`).
    ///
    /// # Errors
    /// * [`Error::Fixed`]: the object set is not open for changes.
    pub fn encrypt_dnodes(&self, tx: &Tx, blkid: BlkId, encrypted: Encrypted) -> Result<()> {
        self.live()?.raw.blocks.lock().insert((tx.txg(), blkid), encrypted);
        Ok(())
    }
}

/// False if the object set has dnodes in a tree of another shape.
fn change_root(phys: &mut ObjsetPhys, raw: &RawObjset) -> bool {
    let RawObjset { portable_mac, compress, checksum, levels, indirect_shift, max_block } = *raw;
    let meta = &mut phys.meta_dnode;
    let is_new = meta.blkptrs.iter().all(|bp| *bp == Blkptr::HOLE);
    // The last block of dnodes never becomes a lower one.
    let same = meta.nlevels == levels && meta.indblkshift == indirect_shift && meta.maxblkid.0 <= max_block;
    let as_object = RawObject { levels, indirect_shift, pointers: 3, max_block, bonus: Vec::new() };
    if !(is_new || same)
        || meta.datablksz as usize != DNODE_BLOCK_SIZE
        || meta.blkptrs.len() != 3
        || !as_object.is_possible(1)
    {
        return false;
    }
    (meta.nlevels, meta.indblkshift, meta.maxblkid) = (levels, indirect_shift, BlkId(max_block));
    (meta.compress, meta.checksum) = (compress, checksum);
    phys.portable_mac = portable_mac;
    phys.local_mac = [0; 32];
    let uncounted = match is_new {
        true => u64::MAX,
        false => ObjsetFlags::USERACCOUNTING_COMPLETE,
    };
    phys.flags.0 &= !uncounted;
    true
}

impl Dnode {
    /// Gives the object the shape and the encrypted bonus of a raw stream. The length of the bonus
    /// stays.
    ///
    /// # Errors
    /// * [`Error::Fixed`]: the object set is not open for changes.
    /// * [`Error::NoSuchObject`]: the object was freed.
    pub fn set_raw(&self, tx: &Tx, raw: &RawObject) -> Result<()> {
        tx.count(raw.bonus.len() as u64);
        self.to_change()?.change_header(tx, |h| {
            (h.nlevels, h.indblkshift) = (raw.levels, raw.indirect_shift);
            (h.nblkptr, h.maxblkid) = (raw.pointers.into(), BlkId(raw.max_block));
            h.encrypted_bonus = Some(raw.bonus.clone());
        })
    }

    /// Sets the last block, which frees at the end of the object have changed
    /// (`dmu_object_set_maxblkid`).
    ///
    /// # Errors
    /// * [`Error::Fixed`]: the object set is not open for changes.
    /// * [`Error::NoSuchObject`]: the object was freed.
    pub fn set_max_block(&self, tx: &Tx, max: BlkId) -> Result<()> {
        let live: &Arc<LiveDnode> = self.to_change()?;
        live.change_header(tx, |h| h.maxblkid = max)
    }
}
