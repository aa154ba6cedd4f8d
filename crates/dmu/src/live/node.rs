//! One object of a live object set: its synced state, and over it the changes of each transaction
//! group.

use crate::live::LiveObjset;
use crate::live::clean::Clean;
use crate::live::dirty::{BlockLocation, Dirty, PackedBlock, SpillBlock};
use crate::live::header::Header;
use crate::tree::BlockTree;
use crate::{Error, Result, Tx};
use device::{AlignedBuf, Block};
use observe::lock::{Mutex, RwLock};
use ondisk::dnode::DNODE_MIN_SIZE;
use ondisk::{BlkId, Blkptr, Corrupt, Level, ObjNum, Txg};
use std::any::Any;
use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};
use zio::{Bookmark, ReadOptions};

type User = Arc<dyn Any + Send + Sync>;

/// An object that is in use or has changes. All its handles share one of these.
pub(crate) struct LiveDnode {
    pub(crate) os: Arc<LiveObjset>,
    pub(crate) object: ObjNum,
    state: RwLock<State>,
    /// The synced tree, while there are no changes. Set under the lock of the state.
    clean: Clean<BlockTree>,
    /// Values that the users of the object share, one of each type (`db_user`).
    users: Mutex<Vec<User>>,
}

struct State {
    /// The synced tree. `None` if the object was free.
    tree: Option<Arc<BlockTree>>,
    /// The changes that are being synced.
    syncing: Option<Arc<Dirty>>,
    /// The changes that are not being synced yet, oldest first. One record for each txg, at most
    /// three.
    dirty: VecDeque<Dirty>,
    /// Counts changes of contents.
    seq: u64,
    /// The dnode with the newest change, since it was last asked for.
    head: OnceLock<Arc<BlockTree>>,
}

/// Where a block is found.
enum BlockSource {
    Known(Option<Block>),
    Packed(PackedBlock),
    Cloned(Blkptr),
    BlockTree(Arc<BlockTree>),
}

impl State {
    /// All changes, the newest first.
    fn changes(&self) -> impl Iterator<Item = &Dirty> {
        self.dirty.iter().rev().chain(self.syncing.as_deref())
    }

    fn header(&self) -> Option<Header> {
        match self.changes().next() {
            Some(d) => d.header.clone(),
            None => self.tree.as_ref().map(|t| Header::of(&t.phys)),
        }
    }

    fn is_free(&self) -> bool {
        self.changes().next().map_or(self.tree.is_none(), |d| d.header.is_none())
    }

    /// The location of the block: in a change, or in a tree.
    fn find(&self, blkid: BlkId) -> BlockSource {
        for d in self.changes() {
            match d.block(blkid) {
                BlockLocation::Here(b) => return BlockSource::Known(Some(b)),
                BlockLocation::Packed(packed) => return BlockSource::Packed(packed),
                BlockLocation::There(bp) => return BlockSource::Cloned(bp),
                BlockLocation::Hole => return BlockSource::Known(None),
                BlockLocation::Before => {}
            }
        }
        self.tree.clone().map_or(BlockSource::Known(None), BlockSource::BlockTree)
    }
}

impl LiveDnode {
    pub(crate) fn new(os: Arc<LiveObjset>, object: ObjNum, tree: Option<Arc<BlockTree>>) -> Arc<LiveDnode> {
        let state = State { tree, syncing: None, dirty: VecDeque::new(), seq: 0, head: OnceLock::new() };
        Arc::new(LiveDnode {
            os,
            object,
            state: RwLock::new(state),
            clean: Clean::default(),
            users: Mutex::default(),
        })
    }

    fn corrupt(&self, source: Corrupt) -> Error {
        Error::Corrupt { objset: self.os.home.id, object: self.object, source }
    }

    fn missing(&self) -> Error {
        Error::NoSuchObject { objset: self.os.home.id, object: self.object }
    }

    /// The current dnode, over the pointers that were synced last. `None` if the object is free.
    pub(crate) fn head(&self) -> Option<Arc<BlockTree>> {
        let s = self.state.read();
        if s.changes().next().is_none() {
            return s.tree.clone();
        }
        let header = s.changes().next()?.header.as_ref()?;
        // Several handles of an object are made between two changes.
        let head = s.head.get_or_init(|| {
            let wiped = s.changes().any(|d| d.wipe);
            let old = s.tree.as_ref().filter(|_| !wiped).map(|t| &t.phys);
            Arc::new(BlockTree::new(self.os.home.clone(), self.object, header.over(old)))
        });
        Some(Arc::clone(head))
    }

    /// The tree that was synced last.
    pub(crate) fn synced(&self) -> Option<Arc<BlockTree>> {
        self.state.read().tree.clone()
    }

    /// Bytes of a data block.
    pub(crate) fn block_size(&self) -> u64 {
        if let Some(tree) = self.clean.get() {
            return tree.phys.datablksz.into();
        }
        let s = self.state.read();
        let now = match s.changes().next() {
            Some(d) => d.header.as_ref().map(|h| h.datablksz),
            None => s.tree.as_ref().map(|t| t.phys.datablksz),
        };
        now.map_or(512, u64::from)
    }

    /// The largest block number.
    pub(crate) fn max_blkid(&self) -> BlkId {
        if let Some(tree) = self.clean.get() {
            return tree.phys.maxblkid;
        }
        let s = self.state.read();
        let now = match s.changes().next() {
            Some(d) => d.header.as_ref().map(|h| h.maxblkid),
            None => s.tree.as_ref().map(|t| t.phys.maxblkid),
        };
        now.unwrap_or(BlkId(0))
    }

    /// The current data block `blkid`. `None` for a hole.
    ///
    /// # Errors
    /// The errors of [reading](Error#reading).
    pub(crate) fn block(&self, blkid: BlkId, options: &ReadOptions) -> Result<Option<Block>> {
        if !self.os.has_passes()
            && let Some(tree) = self.clean.get()
        {
            return tree.block(blkid, options);
        }
        loop {
            let place = self.state.read().find(blkid);
            let BlockSource::BlockTree(tree) = &place else { return self.fetch(blkid, place, options) };
            if !self.os.has_passes() && self.clean.is_due() {
                let s = self.state.read();
                self.clean.begin(s.tree.clone().filter(|_| s.changes().next().is_none()));
            }
            let is_old = || !matches!(self.state.read().find(blkid), BlockSource::BlockTree(now) if Arc::ptr_eq(&now, tree));
            if let Some(found) = self.os.steadily(|options| tree.block(blkid, options), is_old, options)? {
                return Ok(found);
            }
        }
    }

    fn fetch(&self, blkid: BlkId, place: BlockSource, options: &ReadOptions) -> Result<Option<Block>> {
        match place {
            BlockSource::Known(block) => Ok(block),
            BlockSource::Packed(packed) => self.unpack(&packed, self.block_size() as usize).map(Some),
            BlockSource::BlockTree(tree) => tree.block(blkid, options),
            BlockSource::Cloned(bp) => {
                let (objset, object) = (self.os.home.id, self.object);
                let bookmark = Bookmark { objset, object, level: Level(0), blkid };
                Ok(Some(self.os.home.cache.read(&bp, &bookmark, options)?))
            }
        }
    }

    /// Decompresses a block. Nothing reads an encrypted one before its txg is synced.
    fn unpack(&self, packed: &PackedBlock, size: usize) -> Result<Block> {
        let mut buf = AlignedBuf::zeroed(size);
        let why = "a block can't be decompressed";
        if packed.encrypted.is_some() {
            let why = "a block that arrived encrypted is not written yet";
            return Err(self.corrupt(Corrupt::Shape { what: "data block", why }));
        }
        codec::compress::decompress(packed.compress, &packed.bytes, &mut buf)
            .map_err(|_| self.corrupt(Corrupt::Shape { what: "data block", why }))?;
        Ok(buf.freeze())
    }

    /// Reads the indirect blocks that a sync needs to replace this block.
    ///
    /// A sync that finds damage could only suspend the pool, so the writer looks for it first.
    ///
    /// # Errors
    /// The errors of [reading](Error#reading), for indirect blocks.
    pub(crate) fn check_path(&self, blkid: BlkId, options: &ReadOptions) -> Result<()> {
        let tree = self.synced().filter(|tree| tree.phys.nlevels > 1 && blkid <= tree.phys.maxblkid);
        tree.map_or(Ok(()), |tree| tree.bp(Level(0), blkid, options).map(|_| ()))
    }

    /// As [`LiveDnode::check_path`], for a range of blocks that are all freed or replaced.
    ///
    /// # Errors
    /// The errors of [reading](Error#reading), for indirect blocks.
    pub(crate) fn check_above(&self, first: BlkId, last: BlkId, options: &ReadOptions) -> Result<()> {
        let tree = self.synced().filter(|tree| tree.phys.nlevels > 1);
        tree.map_or(Ok(()), |tree| tree.check_above(first, last.min(tree.phys.maxblkid), options))
    }

    /// The synced pointer to a data block. `None` if a txg that is not synced has changed the
    /// block.
    ///
    /// # Errors
    /// The errors of [reading](Error#reading), for indirect blocks.
    pub(crate) fn synced_bp(&self, blkid: BlkId, options: &ReadOptions) -> Result<Option<Blkptr>> {
        let place = self.state.read().find(blkid);
        match place {
            BlockSource::BlockTree(tree) => tree.bp(Level(0), blkid, options).map(Some),
            BlockSource::Known(None) if self.state.read().tree.is_none() => Ok(Some(Blkptr::HOLE)),
            _ => Ok(None),
        }
    }

    /// The blocks of other objects that `txg`, which is closed, clones into this object.
    pub(crate) fn clones(&self, txg: Txg, out: &mut Vec<Blkptr>) {
        let s = self.state.read();
        out.extend(s.dirty.iter().filter(|d| d.txg == txg).flat_map(|d| d.clones.values()));
    }

    /// A block that `txg`, which is open, has written, and its place if it was written early.
    pub(crate) fn dirty_block(&self, txg: Txg, blkid: BlkId) -> Option<(Block, Option<Blkptr>)> {
        let s = self.state.read();
        let d = s.dirty.iter().find(|d| d.txg == txg)?;
        Some((d.blocks.get(&blkid)?.clone(), d.placed(blkid).copied()))
    }

    /// Notes the early write of a block of an open txg. False if the block changed meanwhile.
    pub(crate) fn place_early(&self, txg: Txg, blkid: BlkId, block: &Block, bp: &Blkptr) -> bool {
        let mut s = self.state.write();
        s.dirty.iter_mut().find(|d| d.txg == txg).is_some_and(|d| d.place(blkid, block, bp))
    }

    /// Withdraws the place of an early write.
    pub(crate) fn displace_early(&self, txg: Txg, blkid: BlkId, bp: &Blkptr) {
        let mut s = self.state.write();
        if let Some(d) = s.dirty.iter_mut().find(|d| d.txg == txg) {
            d.displace(blkid, bp);
        }
    }

    /// The current spill block.
    ///
    /// # Errors
    /// The errors of [reading](Error#reading).
    pub(crate) fn spill(&self, options: &ReadOptions) -> Result<Option<Block>> {
        let tree = {
            let s = self.state.read();
            for d in s.changes() {
                match &d.spill {
                    Some(None) => return Ok(None),
                    Some(Some(SpillBlock::Plain(block))) => return Ok(Some(block.clone())),
                    Some(Some(SpillBlock::Packed(block, size))) => {
                        return self.unpack(block, *size as usize).map(Some);
                    }
                    None if d.wipe => return Ok(None),
                    None => {}
                }
            }
            s.tree.clone()
        };
        tree.map_or(Ok(None), |t| t.spill(options))
    }

    /// Whether the changes say that blocks from `from` on exist, for one range at a time.
    ///
    /// Returns the last block of the range that begins with `from`, and whether its blocks exist.
    /// `None` if only the tree knows.
    pub(crate) fn extent(&self, from: BlkId) -> (BlkId, Option<bool>) {
        let s = self.state.read();
        let mut end = u64::MAX;
        for d in s.changes() {
            if d.has(from) {
                return (from, Some(true));
            }
            if let Some(next) = d.next(from) {
                end = end.min(next.0 - 1);
            }
            if d.wipe {
                return (BlkId(end), Some(false));
            }
            if let Some(last) = d.freed.end_of(from.0) {
                return (BlkId(end.min(last)), Some(false));
            }
            if let Some(first) = d.freed.start_after(from.0) {
                end = end.min(first - 1);
            }
        }
        (BlkId(end), if s.tree.is_some() { None } else { Some(false) })
    }

    /// Changes the object in the txg of `tx`.
    ///
    /// # Errors
    /// * [`Error::NoSuchObject`]: the object is free.
    ///
    /// # Panics
    /// If a newer txg has changed the object already.
    pub(crate) fn change<R>(self: &Arc<Self>, tx: &Tx, f: impl FnOnce(&mut Dirty) -> R) -> Result<R> {
        let mut s = self.state.write();
        if s.is_free() {
            return Err(self.missing());
        }
        Ok(f(self.record(&mut s, tx)))
    }

    /// Changes the header in the txg of `tx`.
    ///
    /// # Errors
    /// * [`Error::NoSuchObject`]: the object is free.
    ///
    /// # Panics
    /// If a newer txg has changed the object already.
    pub(crate) fn change_header<R>(self: &Arc<Self>, tx: &Tx, f: impl FnOnce(&mut Header) -> R) -> Result<R> {
        self.change(tx, |d| d.header.as_mut().map(f))?.ok_or_else(|| self.missing())
    }

    /// Changes the object, even if it is free.
    ///
    /// # Panics
    /// If a newer txg has changed the object already.
    pub(crate) fn change_any<R>(self: &Arc<Self>, tx: &Tx, f: impl FnOnce(&mut Dirty) -> R) -> R {
        f(self.record(&mut self.state.write(), tx))
    }

    /// The record of the txg of `tx`, which is opened if there is none.
    fn record<'a>(self: &Arc<Self>, s: &'a mut State, tx: &Tx) -> &'a mut Dirty {
        let newest = s.changes().next().map(|d| d.txg);
        assert!(
            newest.is_none_or(|t| t <= tx.txg()),
            "object {} changes in group {} after group {newest:?}",
            self.object,
            tx.txg()
        );
        if s.dirty.back().is_none_or(|d| d.txg != tx.txg()) {
            let header = s.header();
            self.clean.clear();
            s.dirty.push_back(Dirty::new(tx.txg(), header));
            tx.count(size_of::<Dirty>() as u64 + DNODE_MIN_SIZE as u64);
            self.os.note_dirty(tx.txg(), self);
        }
        s.seq += 1;
        s.head.take();
        s.dirty.back_mut().expect("one was just pushed")
    }

    /// Changes the bytes of block `blkid` in place. A hole becomes zeros first.
    ///
    /// A block that this txg has changed before, and that no other reference holds, is not copied.
    ///
    /// # Errors
    /// * The errors of [reading](Error#reading).
    /// * [`Error::NoSuchObject`]: the object is free.
    ///
    /// # Panics
    /// If a newer txg has changed the object already.
    pub(crate) fn modify_block<R>(
        self: &Arc<Self>,
        tx: &Tx,
        blkid: BlkId,
        f: impl FnOnce(&mut [u8]) -> R,
        options: &ReadOptions,
    ) -> Result<R> {
        loop {
            let (seq, found) = {
                let mut s = self.state.write();
                if let Some(d) = s.dirty.back_mut().filter(|d| d.txg == tx.txg())
                    && let Some(block) = d.written_mut(blkid)
                {
                    let r = f(block.make_mut());
                    s.seq += 1;
                    return Ok(r);
                }
                (s.seq, s.find(blkid))
            };
            // The block is read without the lock. If anything changed meanwhile, the loop starts
            // again.
            let base = self.fetch(blkid, found, options)?;
            let mut s = self.state.write();
            if s.seq != seq {
                continue;
            }
            if s.is_free() {
                return Err(self.missing());
            }
            let d = self.record(&mut s, tx);
            let h = d.header.as_mut().expect("the object is not free");
            h.reach(blkid).map_err(|source| self.corrupt(source))?;
            let mut buf = match base {
                Some(b) => b.thaw(),
                None => AlignedBuf::zeroed(h.datablksz as usize),
            };
            tx.count(buf.len() as u64);
            let r = f(&mut buf);
            d.put(blkid, buf.freeze());
            return Ok(r);
        }
    }

    /// The value of this type that the users of the object share. `make` creates it if there is
    /// none.
    ///
    /// # Errors
    /// The errors of `make`.
    pub(crate) fn user<T: Any + Send + Sync>(&self, make: impl FnOnce() -> Result<T>) -> Result<Arc<T>> {
        let shared = |all: &[User]| all.iter().find_map(|u| u.clone().downcast::<T>().ok());
        if let Some(u) = shared(&self.users.lock()) {
            return Ok(u);
        }
        let made = Arc::new(make()?);
        let mut users = self.users.lock();
        // A value of another thread may have changed since it was made. This one can't have.
        Ok(shared(&users).unwrap_or_else(|| {
            users.push(made.clone());
            made
        }))
    }

    /// Drops the shared values, because the object is now another one.
    pub(crate) fn forget_user(&self) {
        self.users.lock().clear();
    }

    /// True if no block of the object waits to be written or freed, so that its space stays the
    /// same.
    pub(crate) fn space_is_settled(&self) -> bool {
        self.state.read().changes().all(Dirty::keeps_space)
    }

    /// True if there is nothing to sync.
    pub(crate) fn is_clean(&self) -> bool {
        self.state.read().changes().next().is_none()
    }

    /// Takes the changes of `txg` to be synced. Later changes go into another record.
    pub(crate) fn start_sync(&self, txg: Txg) -> Option<Arc<Dirty>> {
        let mut s = self.state.write();
        let d = s.dirty.pop_front_if(|d| d.txg == txg)?;
        let d = Arc::new(d);
        s.syncing = Some(d.clone());
        Some(d)
    }

    /// Puts the synced tree in place.
    pub(crate) fn end_sync(&self, tree: Option<Arc<BlockTree>>) {
        let mut s = self.state.write();
        s.tree = tree;
        s.syncing = None;
        s.head.take();
        if s.dirty.is_empty() {
            self.clean.set(&s.tree);
        }
    }
}
