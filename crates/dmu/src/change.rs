//! Changes of objects.

use crate::live::dirty::{PackedBlock, SpillBlock};
use crate::live::header::Header;
use crate::live::node::LiveDnode;
use crate::{DN_MAX_OBJECT, Dnode, Error, Objset, Result, Tx};
use device::Block;
use observe::event::{self, FreeRange};
use ondisk::blkptr::Body;
use ondisk::dnode::DNODE_BLOCK_SIZE;
use ondisk::objset::{ObjsetFlags, ObjsetPhys};
use ondisk::{BlkId, Blkptr, ChecksumKind, CompressKind, DmuType, Level, ObjNum, SPA_MAXBLOCKSIZE, Txg};
use std::sync::Arc;
use std::time::Instant;

/// The properties of a new object (`dmu_object_alloc_dnsize`).
#[derive(Debug, Clone)]
pub struct NewObject {
    /// Its type.
    pub kind: DmuType,
    /// Bytes of a data block, rounded up to sectors. 0 means one sector.
    pub block_size: u32,
    /// log2 of the bytes of an indirect block. 0 means the default: 17, or 14 in a MOS.
    pub indblkshift: u8,
    /// Type of its bonus.
    pub bonus_kind: DmuType,
    /// Its bonus.
    pub bonus: Vec<u8>,
    /// Slots of its dnode, 1 to 32. More than one needs the feature `large_dnode`.
    pub slots: u8,
}

impl NewObject {
    /// An object of this type, with all defaults and without a bonus.
    pub fn new(kind: DmuType) -> NewObject {
        NewObject {
            kind,
            block_size: 0,
            indblkshift: 0,
            bonus_kind: DmuType::NONE,
            bonus: Vec::new(),
            slots: 1,
        }
    }

    /// The same with a bonus.
    #[must_use]
    pub fn with_bonus(self, bonus_kind: DmuType, bonus: Vec<u8>) -> NewObject {
        NewObject { bonus_kind, bonus, ..self }
    }
}

impl Objset {
    /// Creates an object under a free number (`dmu_object_alloc`).
    ///
    /// # Errors
    /// * The errors of [reading](Error#reading), for blocks of dnodes.
    /// * [`Error::Fixed`]: the object set is not open for changes.
    /// * [`Error::BonusLength`]: the bonus does not fit into the dnode.
    /// * [`Error::NoObjects`]: no object number is free.
    ///
    /// # Panics
    /// If a block would be larger than 16 MiB, or the dnode larger than 32 slots.
    pub fn create_object(&self, tx: &Tx, spec: &NewObject) -> Result<Dnode> {
        let live = self.live()?;
        let header = self.header(ObjNum(0), spec)?;
        let object = live.slots.lock().take(live, spec.slots.max(1), tx.txg(), self.options())?;
        let dn = live.hold(object, true, self.options())?;
        Ok(self.born(tx, dn, header))
    }

    /// Creates an object under this number, which must be free (`dmu_object_claim`).
    ///
    /// # Errors
    /// * The errors of [reading](Error#reading), for blocks of dnodes.
    /// * [`Error::Fixed`]: the object set is not open for changes.
    /// * [`Error::BonusLength`]: the bonus does not fit into the dnode.
    /// * [`Error::ObjectExists`]: an object has the number, or one of its slots.
    /// * [`Error::NoSuchObject`]: no object can have this number.
    ///
    /// # Panics
    /// If a block would be larger than 16 MiB, or the dnode larger than 32 slots.
    pub fn claim_object(&self, tx: &Tx, object: ObjNum, spec: &NewObject) -> Result<Dnode> {
        let live = self.live()?;
        let header = self.header(object, spec)?;
        let special = object.0 >= u64::MAX - 2;
        if !special {
            let outside = object.0 == 0 || object.0 >= DN_MAX_OBJECT;
            let (slots, options) = (spec.slots.max(1), self.options());
            if outside || !live.slots.lock().claim(live, object, slots, tx.txg(), options)? {
                let objset = self.id();
                let missing = Error::NoSuchObject { objset, object };
                return Err(if outside { missing } else { Error::ObjectExists { objset, object } });
            }
        }
        let dn = live.hold(object, true, self.options())?;
        if special && dn.head().is_some() {
            return Err(Error::ObjectExists { objset: self.id(), object });
        }
        Ok(self.born(tx, dn, header))
    }

    /// Whether [`Objset::claim_object`] would find this number free, for an object of one slot.
    ///
    /// # Errors
    /// * The errors of [reading](Error#reading), for blocks of dnodes.
    /// * [`Error::Fixed`]: the object set is not open for changes.
    pub fn is_free_object(&self, object: ObjNum) -> Result<bool> {
        let live = self.live()?;
        let outside = object.0 == 0 || object.0 >= DN_MAX_OBJECT;
        Ok(!outside && live.slots.lock().is_free(live, object, self.options())?)
    }

    fn header(&self, object: ObjNum, spec: &NewObject) -> Result<Header> {
        assert!(u64::from(spec.block_size) <= SPA_MAXBLOCKSIZE, "a block is at most 16 MiB large");
        let most = DNODE_BLOCK_SIZE / ondisk::dnode::DNODE_MIN_SIZE;
        assert!(usize::from(spec.slots) <= most, "a dnode has at most 32 slots");
        let header = Header::new(self.kind(), spec);
        let (room, len) = (header.bonus_room().unwrap_or(0), spec.bonus.len());
        if len > room {
            return Err(Error::BonusLength { objset: self.id(), object, len, room });
        }
        Ok(header)
    }

    fn born(&self, tx: &Tx, dn: Arc<LiveDnode>, header: Header) -> Dnode {
        dn.forget_user();
        dn.change_any(tx, |d| {
            d.clear();
            d.header = Some(header);
        });
        Dnode::live(dn, self.options().clone()).expect("it has a header now")
    }

    /// Frees an object with all its blocks (`dmu_object_free`).
    ///
    /// # Errors
    /// After an error, nothing has changed.
    ///
    /// * The errors of [reading](Error#reading), for its dnode and its indirect blocks.
    /// * [`Error::Fixed`]: the object set is not open for changes.
    /// * [`Error::NoSuchObject`]: the object is free.
    pub fn free_object(&self, tx: &Tx, object: ObjNum) -> Result<()> {
        let live = self.live()?;
        let dn = live.hold(object, true, self.options())?;
        dn.check_above(BlkId(0), BlkId(u64::MAX), self.options())?;
        dn.change(tx, |d| d.clear())?;
        dn.forget_user();
        live.slots.lock().note(object, None, tx.txg());
        Ok(())
    }

    /// True if `txg` has changes that are not synced (`dmu_objset_is_dirty`).
    pub fn is_dirty(&self, txg: Txg) -> bool {
        self.live().is_ok_and(|l| l.is_dirty(txg))
    }

    /// Has `on_dirty` called with each txg that gets its first change, again after a sync of it.
    /// A holder of the txg calls it, or the thread that syncs it. Only the first call of this
    /// method has an effect.
    ///
    /// # Errors
    /// * [`Error::Fixed`]: the object set is not open for changes.
    pub fn on_dirty(&self, on_dirty: impl Fn(Txg) + Send + Sync + 'static) -> Result<()> {
        self.live()?.on_dirty(Box::new(on_dirty));
        Ok(())
    }

    /// The blocks of other objects that `txg` clones into this object set.
    ///
    /// The txg must be closed and not yet synced. Each of these blocks gains a reference before the
    /// txg frees anything.
    pub fn clones(&self, txg: Txg) -> Vec<Blkptr> {
        self.live().map_or_else(|_| Vec::new(), |l| l.clones(txg))
    }

    /// Sets the header of the intent log, as `ondisk::zil` encodes it (`os_zil_header`).
    ///
    /// # Errors
    /// * [`Error::Fixed`]: the object set is not open for changes.
    pub fn set_zil_header(&self, tx: &Tx, header: [u8; 192]) -> Result<()> {
        self.live()?.set_zil_header(tx, header);
        Ok(())
    }

    /// Whether the intent log has a header in `txg`, which is syncing.
    ///
    /// # Errors
    /// * [`Error::Fixed`]: the object set is not open for changes.
    pub fn has_log(&self, txg: Txg) -> Result<bool> {
        Ok(self.live()?.zil_header_of(txg) != [0; 192])
    }

    /// Makes the txg of `tx` write the object set even if nothing in it changes
    /// (`dsl_dataset_dirty`).
    ///
    /// # Errors
    /// * [`Error::Fixed`]: the object set is not open for changes.
    pub fn touch(&self, tx: &Tx) -> Result<()> {
        self.change_root(tx, |_| {})
    }

    /// Sets the flags (`os_flags`).
    ///
    /// # Errors
    /// * [`Error::Fixed`]: the object set is not open for changes.
    pub fn set_flags(&self, tx: &Tx, flags: ObjsetFlags) -> Result<()> {
        self.change_root(tx, |phys| phys.flags = flags)
    }

    fn change_root(&self, tx: &Tx, f: impl FnOnce(&mut ObjsetPhys)) -> Result<()> {
        self.live()?.change_root(tx, f);
        Ok(())
    }
}

/// Whether blocks are stored compressed with this.
fn is_compressor(kind: CompressKind) -> bool {
    use CompressKind as C;
    !matches!(kind, C::Off | C::Empty | C::On | C::Inherit)
}

/// Whether the bytes of a block can be those of contents of this size.
fn is_sound(block: &PackedBlock, size: u64) -> bool {
    let len = block.bytes.len() as u64;
    match block.encrypted {
        Some(_) if block.compress == CompressKind::Off => len == size,
        Some(_) => is_compressor(block.compress) && len > 0 && len <= size && len.is_multiple_of(512),
        None => is_compressor(block.compress) && len > 0 && len <= size,
    }
}

impl Dnode {
    /// Writes `data` from byte `offset` on (`dmu_write`).
    ///
    /// Blocks that `data` covers whole are not read.
    ///
    /// # Errors
    /// The errors of [changing](Error#changing).
    pub fn write_at(&self, tx: &Tx, offset: u64, data: &[u8]) -> Result<()> {
        let live = self.to_change()?;
        let size = live.block_size();
        let mut done = 0;
        while done < data.len() {
            let at = offset + done as u64;
            let within = (at % size) as usize;
            let n = (size as usize - within).min(data.len() - done);
            let piece = &data[done..done + n];
            let blkid = BlkId(at / size);
            if n as u64 == size {
                self.write_block(tx, blkid, Block::copy_of(piece))?;
            } else {
                self.modify_block(tx, blkid, |b| b[within..within + n].copy_from_slice(piece))?;
            }
            done += n;
        }
        Ok(())
    }

    /// Makes `block` the block `blkid`, without a copy (`dmu_assign_arcbuf_by_dnode`).
    ///
    /// # Errors
    /// The errors of [changing](Error#changing). Only the pointer to the old block is read.
    ///
    /// # Panics
    /// If `block` does not have the size of the object's blocks.
    pub fn write_block(&self, tx: &Tx, blkid: BlkId, block: Block) -> Result<()> {
        let live = self.to_change()?;
        live.check_path(blkid, self.options())?;
        live.change(tx, |d| {
            let h = d.header.as_mut().expect("a changed object is not free");
            assert_eq!(block.len(), h.datablksz as usize, "a block has the size of the object's blocks");
            h.reach(blkid).map_err(|e| self.corrupt(e))?;
            let len = block.len() as u64;
            if d.put(blkid, block) {
                tx.count(len);
            }
            Ok(())
        })?
    }

    /// Makes `block`, which is compressed or encrypted already, the block `blkid`
    /// (`dmu_assign_arcbuf_by_dnode` of such a buffer). It is stored as it is, whatever the
    /// dataset's compression.
    ///
    /// The caller vouches that it is one block. Otherwise the block can't be read.
    ///
    /// # Errors
    /// * The errors of [changing](Error#changing). Only the pointer to the old block is read.
    /// * [`Error::PackedShape`] (`EINVAL`): `block` is empty, larger than a block of the object, or
    ///   not compressed with a compressor that stores blocks. Or it is encrypted and is not whole
    ///   sectors.
    pub fn write_packed(&self, tx: &Tx, blkid: BlkId, block: PackedBlock) -> Result<()> {
        let live = self.to_change()?;
        let len = block.bytes.len() as u64;
        if !is_sound(&block, live.block_size())
            || self.kind() == DmuType::DNODE
            || self.kind() == DmuType::OBJSET
        {
            let (objset, object) = (self.objset_id(), self.object());
            return Err(Error::PackedShape { objset, object, len });
        }
        live.check_path(blkid, self.options())?;
        live.change(tx, |d| {
            let h = d.header.as_mut().expect("a changed object is not free");
            h.reach(blkid).map_err(|e| self.corrupt(e))?;
            d.put_packed(blkid, block);
            tx.count(len);
            Ok(())
        })?
    }

    /// Clones `count` blocks of `source`, from `from` on, to blocks from `first` on
    /// (`dmu_read_l0_bps`, `dmu_brt_clone`).
    ///
    /// From this txg on, both objects share the blocks on disk. Nothing is copied. The call returns
    /// the pointers.
    ///
    /// * Both objects are in one pool, with the feature `block_cloning` enabled.
    /// * If they are encrypted, they have the same key.
    /// * A source that doesn't change, as that of a snapshot, must stay until the transaction ends.
    ///
    /// # Errors
    /// After an error, nothing has changed.
    ///
    /// * The errors of [changing](Error#changing). Only pointers are read.
    /// * [`Error::Unsynced`] (`EAGAIN`): a txg that is not synced has changed a block of the
    ///   source. The caller may wait for that txg, or copy.
    /// * [`Error::CloneShape`] (`EINVAL`): the block sizes differ, a block is not of a file or
    ///   volume, or it is redacted. Or it is deduplicated, and its entry was pruned from the table.
    pub fn clone_blocks(
        &self,
        tx: &Tx,
        first: BlkId,
        source: &Dnode,
        from: BlkId,
        count: u64,
    ) -> Result<Vec<Blkptr>> {
        let (objset, object) = (self.objset_id(), self.object());
        let shape = Error::CloneShape { objset, object };
        let live = self.to_change()?;
        let size = live.block_size();
        let files = [self.kind(), source.kind()].iter().all(|k| !k.is_metadata());
        let fits = first.0.checked_add(count).is_some() && from.0.checked_add(count).is_some();
        if size != source.block_size() || !files || !fits {
            return Err(shape);
        }
        let mut bps = Vec::new();
        for i in 0..count {
            let blkid = BlkId(from.0 + i);
            let unsynced = Error::Unsynced { objset: source.objset_id(), object: source.object(), blkid };
            let bp = match source.live_node() {
                Some(origin) => origin.synced_bp(blkid, source.options())?.ok_or(unsynced)?,
                // This object does not change.
                None => source.bp(Level(0), blkid)?,
            };
            if !bp.is_hole() && (bp.lsize.0 != size || bp.is_metadata() || bp.body == Body::Redacted) {
                return Err(shape);
            }
            if !live.os.home.cache.zio().can_clone(tx.txg(), &bp, self.options()) {
                return Err(shape);
            }
            bps.push(bp);
        }
        self.put_clones(live, tx, first, &bps)?;
        Ok(bps)
    }

    /// Clones the blocks of these pointers to blocks from `first` on (`dmu_brt_clone`).
    ///
    /// The caller keeps the blocks allocated until the txg is on disk.
    ///
    /// # Errors
    /// After an error, nothing has changed.
    ///
    /// * The errors of [changing](Error#changing).
    /// * [`Error::CloneShape`] (`EINVAL`): a pointer has another block size, is redacted, or is not
    ///   to data of a file or volume. An embedded block may be of any object.
    pub fn clone_pointers(&self, tx: &Tx, first: BlkId, bps: &[Blkptr]) -> Result<()> {
        let live = self.to_change()?;
        let size = live.block_size();
        let metadata = self.kind().is_metadata();
        let fits = |bp: &Blkptr| match bp.body {
            Body::Hole => !metadata,
            Body::Redacted => false,
            Body::Embedded(_) => bp.lsize.0 == size,
            Body::Stored(_) => bp.lsize.0 == size && !bp.is_metadata() && !metadata,
        };
        let last = first.0.checked_add(bps.len() as u64);
        if last.is_none() || !bps.iter().all(fits) {
            return Err(Error::CloneShape { objset: self.objset_id(), object: self.object() });
        }
        self.put_clones(live, tx, first, bps)
    }

    fn put_clones(&self, live: &Arc<LiveDnode>, tx: &Tx, first: BlkId, bps: &[Blkptr]) -> Result<()> {
        if let Some(last) = (bps.len() as u64).checked_sub(1) {
            live.check_above(first, BlkId(first.0.saturating_add(last)), self.options())?;
        }
        live.os.note_clones();
        live.change(tx, |d| {
            let h = d.header.as_mut().expect("a changed object is not free");
            if let Some(last) = (bps.len() as u64).checked_sub(1) {
                h.reach(BlkId(first.0 + last)).map_err(|e| self.corrupt(e))?;
            }
            for (i, bp) in bps.iter().enumerate() {
                let blkid = BlkId(first.0 + i as u64);
                if bp.is_hole() {
                    d.free(blkid, blkid);
                } else {
                    d.put_clone(blkid, *bp);
                }
            }
            Ok(())
        })?
    }

    /// Changes bytes of block `blkid` in place (`dmu_buf_will_dirty`). A hole becomes zeros first.
    ///
    /// # Errors
    /// The errors of [changing](Error#changing).
    pub fn modify_block<R>(&self, tx: &Tx, blkid: BlkId, f: impl FnOnce(&mut [u8]) -> R) -> Result<R> {
        self.to_change()?.modify_block(tx, blkid, f, self.options())
    }

    /// Frees `len` bytes from `offset` on (`dmu_free_range`).
    ///
    /// A `len` of `u64::MAX` means up to the end. Blocks that lie only partly in the range are
    /// zeroed there.
    ///
    /// # Errors
    /// The errors of [changing](Error#changing). Indirect blocks above the range are read, and
    /// blocks that lie partly in it.
    pub fn free_range(&self, tx: &Tx, offset: u64, len: u64) -> Result<()> {
        let live = self.to_change()?;
        let (size, last) = (live.block_size(), live.max_blkid());
        let end = offset.saturating_add(len);
        let size_end = last.0.saturating_add(1).saturating_mul(size);
        if offset >= size_end || len == 0 {
            return Ok(());
        }
        let zero = |from: u64, to: u64| -> Result<()> {
            let blkid = BlkId(from / size);
            if to <= from || live.block(blkid, self.options())?.is_none() {
                return Ok(());
            }
            let at = (from % size) as usize;
            self.modify_block(tx, blkid, |b| b[at..at + (to - from) as usize].fill(0))
        };
        let to_end = end >= size_end;
        let first = offset.div_ceil(size);
        let behind = if to_end { u64::MAX } else { end / size };
        let head_end = first.saturating_mul(size).min(end).min(size_end);
        zero(offset, head_end)?;
        if !to_end && end / size >= first {
            zero(end / size * size, end)?;
        }
        if first > last.0 || first >= behind {
            return Ok(());
        }
        let until = if to_end { u64::MAX } else { behind - 1 };
        let since = Instant::now();
        live.check_above(BlkId(first), BlkId(until), self.options())?;
        live.change(tx, |d| {
            d.free(BlkId(first), BlkId(until));
            if let Some(h) = d.header.as_mut().filter(|h| until >= h.maxblkid.0) {
                h.maxblkid = BlkId(first.saturating_sub(1));
            }
        })?;
        event::free_range(|| FreeRange {
            object: self.object().0,
            first,
            blocks: until.min(last.0).saturating_sub(first).saturating_add(1),
            ns: u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX),
        });
        Ok(())
    }

    /// Sets the bonus and its type (`dmu_set_bonus`, `dmu_set_bonustype`).
    ///
    /// # Errors
    /// * [`Error::Fixed`]: the object set is not open for changes.
    /// * [`Error::NoSuchObject`]: the object was freed.
    /// * [`Error::BonusLength`]: the bonus does not fit into the dnode.
    pub fn set_bonus(&self, tx: &Tx, kind: DmuType, bonus: &[u8]) -> Result<()> {
        self.to_change()?.change_header(tx, |h| {
            let (room, len) = (h.bonus_room().unwrap_or(0), bonus.len());
            if len > room {
                let (objset, object) = (self.objset_id(), self.object());
                return Err(Error::BonusLength { objset, object, len, room });
            }
            h.bonus_kind = kind;
            h.bonus.clear();
            h.bonus.extend_from_slice(bonus);
            Ok(())
        })?
    }

    /// Sets or removes the spill block (`dmu_spill_hold_by_dnode`, `dmu_rm_spill`).
    ///
    /// # Errors
    /// * [`Error::Fixed`]: the object set is not open for changes.
    /// * [`Error::NoSuchObject`]: the object was freed.
    /// * [`Error::BonusLength`]: the bonus leaves no space for the pointer to the spill block.
    ///
    /// # Panics
    /// If the block is not whole sectors.
    pub fn set_spill(&self, tx: &Tx, spill: Option<&[u8]>) -> Result<()> {
        let len = spill.map_or(0, <[u8]>::len);
        assert!(spill.is_none() || len > 0 && len.is_multiple_of(512), "a spill block is whole sectors");
        self.put_spill(tx, spill.map(|spill| SpillBlock::Plain(Block::copy_of(spill))), len as u64)
    }

    fn put_spill(&self, tx: &Tx, spill: Option<SpillBlock>, len: u64) -> Result<()> {
        let (objset, object) = (self.objset_id(), self.object());
        self.to_change()?.change(tx, |d| {
            let h = d.header.as_mut().expect("a changed object is not free");
            let had = std::mem::replace(&mut h.has_spill, spill.is_some());
            let (room, bonus) = (h.bonus_room(), h.bonus.len());
            if room.is_none_or(|room| bonus > room) {
                h.has_spill = had;
                return Err(Error::BonusLength { objset, object, len: bonus, room: room.unwrap_or(0) });
            }
            tx.count(len);
            d.spill = Some(spill);
            Ok(())
        })?
    }

    /// Makes `block`, whose contents have `size` bytes, the spill block, as another pool stored it.
    ///
    /// # Errors
    /// * [`Error::Fixed`]: the object set is not open for changes.
    /// * [`Error::NoSuchObject`]: the object was freed.
    /// * [`Error::BonusLength`]: the bonus leaves no space for the pointer to the spill block.
    /// * [`Error::PackedShape`] (`EINVAL`): see [`Dnode::write_packed`].
    pub fn set_packed_spill(&self, tx: &Tx, block: PackedBlock, size: u64) -> Result<()> {
        let (objset, object, len) = (self.objset_id(), self.object(), block.bytes.len() as u64);
        if !is_sound(&block, size) || !size.is_multiple_of(512) {
            return Err(Error::PackedShape { objset, object, len });
        }
        self.put_spill(tx, Some(SpillBlock::Packed(block, size)), len)
    }

    /// Sets the size of data blocks of an object with at most one block
    /// (`dmu_object_set_blocksize`).
    ///
    /// The block keeps its contents, as far as they fit.
    ///
    /// # Errors
    /// * The errors of [changing](Error#changing).
    /// * [`Error::BlockSize`]: the object has more than one block, or the size is above 16 MiB.
    pub fn set_block_size(&self, tx: &Tx, size: u32) -> Result<()> {
        let live = self.to_change()?;
        let (objset, object) = (self.objset_id(), self.object());
        let size = size.max(1).next_multiple_of(512);
        if live.max_blkid() != BlkId(0) || u64::from(size) > SPA_MAXBLOCKSIZE {
            return Err(Error::BlockSize { objset, object, size: size.into() });
        }
        if live.block_size() == u64::from(size) {
            return Ok(());
        }
        let block = live.block(BlkId(0), self.options())?.map(|old| {
            let mut buf = device::AlignedBuf::zeroed(size as usize);
            let n = old.len().min(buf.len());
            buf[..n].copy_from_slice(&old[..n]);
            buf.freeze()
        });
        live.change(tx, |d| {
            let h = d.header.as_mut().expect("a changed object is not free");
            h.datablksz = size;
            if let Some(block) = block {
                tx.count(block.len() as u64);
                d.put(BlkId(0), block);
            }
        })
    }

    /// Sets the checksum of blocks written from now on (`dmu_object_set_checksum`).
    ///
    /// [`ChecksumKind::Inherit`] means that of the dataset.
    ///
    /// # Errors
    /// * [`Error::Fixed`]: the object set is not open for changes.
    /// * [`Error::NoSuchObject`]: the object was freed.
    pub fn set_checksum(&self, tx: &Tx, checksum: ChecksumKind) -> Result<()> {
        self.to_change()?.change_header(tx, |h| h.checksum = checksum as u8)
    }

    /// Sets the compressor of blocks written from now on (`dmu_object_set_compress`).
    ///
    /// [`CompressKind::Inherit`] means that of the dataset.
    ///
    /// # Errors
    /// * [`Error::Fixed`]: the object set is not open for changes.
    /// * [`Error::NoSuchObject`]: the object was freed.
    pub fn set_compress(&self, tx: &Tx, compress: CompressKind) -> Result<()> {
        self.to_change()?.change_header(tx, |h| h.compress = compress as u8)
    }

    /// Sets the type (`dn_type`).
    ///
    /// # Errors
    /// * [`Error::Fixed`]: the object set is not open for changes.
    /// * [`Error::NoSuchObject`]: the object was freed.
    pub fn set_kind(&self, tx: &Tx, kind: DmuType) -> Result<()> {
        self.to_change()?.change_header(tx, |h| h.kind = kind)
    }
}
