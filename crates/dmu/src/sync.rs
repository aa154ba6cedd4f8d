//! Writing the changes of a transaction group.
//!
//! # Theory
//! A txg is written in batches, one for each stage that needs the stage before:
//!
//! 1. the data blocks of all changed objects;
//! 2. their indirect blocks, level by level, because a pointer is known only after its block is
//!    written;
//! 3. the accounting, which counts the space that the objects now take;
//! 4. the blocks of dnodes, level by level;
//! 5. the root block.
//!
//! The pipeline works on each batch in parallel, and allocates in a fixed order: object, level,
//! block.
//!
//! A pool writes its MOS in passes, because writing it changes it: space maps record where it went.
//! From the second pass on, a block that was born in this txg is rewritten in place if it still
//! fits. Then nothing new is allocated, and the passes end.
//!
//! A data block that was written early for the log ([`crate::DirtyBlock`]) is in its place already.
//!
//! # Life
//! [`Objset::sync`] takes the changes out of each object, writes them, and replaces the old trees.
//! Changes that are made meanwhile, in a later txg or in this one, wait for their own sync.
//!
//! # Crash
//! Until the uberblock that leads here is written, the old trees are valid. Only blocks that were
//! born in this txg are overwritten.
//!
//! # Errors
//! After a failed sync, readers see the object set as before. But the sync can't be repeated: the
//! pool must be suspended.

mod accounting;
mod block_tree;
mod dnodes;

use crate::live::LiveObjset;
use crate::live::dirty::{Dirty, PackedBlock, SpillBlock};
use crate::live::node::LiveDnode;
use crate::tree::BlockTree;
use crate::{DN_MAX_OBJECT, Objset, Result, Tx};
pub use accounting::{check_owner, generation};
use block_tree::SyncTree;
use device::{Block, Sparse};
use ondisk::blkptr::Body;
use ondisk::dnode::{DnodeFlags, DnodePhys};
use ondisk::objset::ObjsetPhys;
use ondisk::version::{SPA_VERSION_DNODE_BYTES, SPA_VERSION_USERSPACE};
use ondisk::{BlkId, Blkptr, DmuType, Level, ObjNum, Txg};
use std::sync::Arc;
use zio::{Bookmark, Compressed, ReadOptions, Workers, WritePolicy, WriteReq};

/// First pass that rewrites in place (`zfs_sync_pass_rewrite`).
const PASS_REWRITE: u32 = 2;
/// Bytes of blocks that go to the pipeline at a time.
const BATCH_BYTES: usize = 64 << 20;

/// What a sync needs from the owner of the object set: its dataset, or for the MOS the pool.
pub trait SyncSink {
    /// How to write a block of an object (`dmu_write_policy`).
    ///
    /// `kind` is the type of the block, and `dnode` the dnode of its object.
    fn policy(&self, kind: DmuType, level: Level, dnode: &DnodePhys) -> WritePolicy;
    /// Reports a block that was born (`dsl_dataset_block_born`).
    fn born(&mut self, bp: &Blkptr);
    /// Reports a block that left the object set: it is freed, or goes to a deadlist
    /// (`dsl_dataset_block_kill`).
    fn kill(&mut self, bp: &Blkptr);
    /// The space of a block as users see it (`bp_get_dsize_sync`).
    fn dsize(&self, bp: &Blkptr) -> u64;
    /// True if holes keep the txg in which they were made: the feature `hole_birth` is active.
    fn hole_birth(&self) -> bool;
    /// Reports that a dnode of several slots was written, so that the feature `large_dnode` is in
    /// use.
    fn large_dnode(&mut self);
}

/// The state of one call of [`Objset::sync`].
pub(crate) struct Sync<'a> {
    live: Arc<LiveObjset>,
    txg: Txg,
    pass: u32,
    out: &'a mut dyn SyncSink,
    workers: &'a Workers,
    /// Reads wait while the pool is suspended, because a sync can't be repeated.
    options: ReadOptions,
    /// Blocks that this pass overwrites in their places.
    overwritten: Vec<Blkptr>,
}

/// An object that is being synced.
struct Synced {
    dn: Arc<LiveDnode>,
    old: Option<Arc<BlockTree>>,
    dirty: Arc<Dirty>,
    /// The dnode after the txg. `None` if the object is then free.
    new: Option<DnodePhys>,
}

impl Objset {
    /// Writes everything that the txg of `tx` changed, and returns the new root pointer
    /// (`dmu_objset_sync`).
    ///
    /// A later pass calls it again for the changes since. Batches are spread over `workers`.
    ///
    /// # Errors
    /// After an error, the sync can't be repeated.
    ///
    /// * The errors of [changing a ZAP](crate::Error#changing-a-zap). [`crate::Error::Read`] also
    ///   if a block can't be written, for example because the pool is full or suspended.
    pub fn sync(&self, tx: &Tx, pass: u32, out: &mut dyn SyncSink, workers: &Workers) -> Result<Blkptr> {
        let live = self.live()?.clone();
        let _pass = live.begin_pass();
        let options = ReadOptions::sync();
        let os = self.with_options(options.clone());
        let txg = tx.txg();
        let mut sync = Sync { live: live.clone(), txg, pass, out, workers, options, overwritten: Vec::new() };
        sync.run(&os, tx)
    }
}

impl Sync<'_> {
    fn run(&mut self, os: &Objset, tx: &Tx) -> Result<Blkptr> {
        let taken = self.live.take_dirty(self.txg);
        if !taken.root && taken.dnodes.is_empty() {
            return Ok(self.live.root().bp);
        }
        let mut synced = Vec::new();
        let (plain, special): (Vec<_>, Vec<_>) =
            taken.dnodes.into_values().partition(|d| d.object.0 < DN_MAX_OBJECT);
        synced.append(&mut self.objects(plain)?);
        self.account(os, tx, &mut synced)?;
        // Accounting changed these tables. Some of them may have been dirty before.
        let more = self.live.take_dirty(self.txg).dnodes.into_values();
        let mut specials: Vec<Arc<LiveDnode>> = special;
        for dn in more {
            assert!(dn.object.0 >= DN_MAX_OBJECT, "accounting changes the tables of users only");
            if !specials.iter().any(|s| s.object == dn.object) {
                specials.push(dn);
            }
        }
        let special = self.objects(specials)?;
        let root = self.live.root();
        let meta = self.dnode_blocks(&root.meta, &synced)?;
        let mut phys = ObjsetPhys::clone(&root.phys);
        accept(&mut phys, &meta, &special);
        phys.zil_header = self.live.zil_header_of(self.txg);
        phys.flags.0 |= self.live.counted_by(self.txg).0;
        let bp = self.root_block(&root.bp, &phys)?;
        self.live.zil_header_synced(self.txg);
        self.live.raw.synced(self.txg);
        self.live.install(bp, |phys| {
            accept(phys, &meta, &special);
            phys.flags.0 |= self.live.recounted(self.txg).0;
        });
        // Only now: until here, readers used the old trees.
        self.overwritten.iter().for_each(|old| self.live.home.cache.let_go(old, self.live.home.id));
        for s in synced.iter().chain(&special) {
            let tree = |phys: &DnodePhys| {
                Arc::new(BlockTree::new(self.live.home.clone(), s.dn.object, phys.clone()))
            };
            s.dn.end_sync(s.new.as_ref().map(tree));
        }
        let clean = |s: &&Synced| s.dn.is_clean();
        let mut slots = self.live.slots.lock();
        slots.synced(synced.iter().filter(clean).map(|s| s.dn.object), self.txg);
        Ok(bp)
    }

    /// Writes the blocks of these objects.
    fn objects(&mut self, dns: Vec<Arc<LiveDnode>>) -> Result<Vec<Synced>> {
        let mut all = Vec::with_capacity(dns.len());
        let mut trees = Vec::new();
        let mut tree_of = Vec::new();
        for dn in dns {
            let old = dn.synced();
            let Some(dirty) = dn.start_sync(self.txg) else { continue };
            let home = self.live.home.clone();
            for bp in dirty.superseded() {
                // The birth of this block was never reported to the sink.
                home.cache.free(self.txg, bp, Some(home.id))?;
            }
            if let Some(gone) = old.as_ref().filter(|_| dirty.wipe) {
                SyncTree::new(home.clone(), dn.object, gone.phys.clone(), dirty.clone()).kill_all(self)?;
            }
            let base = old.clone().filter(|_| !dirty.wipe);
            if let Some(header) = &dirty.header {
                let before = base.as_deref().map(|t| &t.phys);
                let mut phys = header.over(before);
                phys.flags.0 = phys.flags.0 & !ACCOUNTED | before.map_or(0, |b| b.flags.0 & ACCOUNTED);
                phys.nlevels = before.map_or(1, |b| b.nlevels);
                if matches!(dirty.spill, Some(None))
                    && let Some(gone) = before.and_then(|b| b.spill)
                {
                    self.kill(&gone, &mut phys.used_bytes);
                }
                let mut sync_tree = SyncTree::new(home, dn.object, phys, dirty.clone());
                sync_tree.free_ranges(&dirty.freed, self)?;
                sync_tree.grow(header.nlevels);
                tree_of.push(all.len());
                trees.push(sync_tree);
            }
            all.push(Synced { dn, old, dirty, new: None });
        }
        self.sync_tree(&mut trees)?;
        if trees.iter().any(|w| w.phys.extra_slots > 0) {
            self.out.large_dnode();
        }
        for (i, sync_tree) in tree_of.into_iter().zip(trees) {
            all[i].new = Some(sync_tree.finish());
        }
        Ok(all)
    }

    /// Writes the changed blocks of all trees, level by level.
    fn sync_tree(&mut self, trees: &mut [SyncTree]) -> Result<()> {
        let mut batch = Batch::default();
        for at in 0..trees.len() {
            let dirty = trees[at].dirty.clone();
            let kind = trees[at].phys.kind;
            // In the order of the file, so that what arrived compressed lies beside the rest.
            let mut packed = dirty.packed.iter().peekable();
            for (blkid, block) in &dirty.blocks {
                while let Some((blkid, block)) = packed.next_if(|(packed, _)| *packed < blkid) {
                    self.push_packed(&mut batch, trees, at, (*blkid, block))?;
                }
                let sync_tree = &mut trees[at];
                if let Some(bp) = dirty.placed(*blkid) {
                    let old = sync_tree.pointer(Level(0), *blkid)?;
                    self.replace(&old, bp, false, &mut sync_tree.phys.used_bytes);
                    sync_tree.set_pointer(Level(0), *blkid, *bp)?;
                    self.live.home.cache.insert(bp, &sync_tree.bookmark(Level(0), *blkid), block);
                    continue;
                }
                let fill = if kind == DmuType::DNODE { dnodes::fill(block) } else { 1 };
                let old = sync_tree.pointer(Level(0), *blkid)?;
                if fill == 0 {
                    self.kill(&old, &mut sync_tree.phys.used_bytes);
                    let hole = self.hole(&old);
                    sync_tree.set_pointer(Level(0), *blkid, hole)?;
                    continue;
                }
                let mut req = self.request(sync_tree, kind, Level(0), *blkid, (block.clone(), fill, old));
                if kind == DmuType::DNODE {
                    req.encrypted = self.live.raw.block_of_dnodes(self.txg, *blkid, &old);
                }
                self.push(&mut batch, trees, at, req)?;
            }
            for (blkid, block) in packed {
                self.push_packed(&mut batch, trees, at, (*blkid, block))?;
            }
            for (blkid, bp) in &dirty.clones {
                self.link(&mut trees[at], *blkid, bp)?;
            }
            if let Some(Some(block)) = &dirty.spill {
                let old = trees[at].phys.spill.unwrap_or(Blkptr::HOLE);
                let kind = trees[at].phys.bonus_kind;
                let req = match block {
                    SpillBlock::Plain(block) => {
                        let what = (block.clone(), 1, old);
                        self.request(&trees[at], kind, Level(0), crate::SPILL_BLKID, what)
                    }
                    SpillBlock::Packed(block, size) => {
                        self.packed_request(&trees[at], kind, (crate::SPILL_BLKID, *size), block, old)
                    }
                };
                self.push(&mut batch, trees, at, req)?;
            }
        }
        self.flush(&mut batch, trees)?;
        let top = trees.iter().map(|w| w.phys.nlevels).max().unwrap_or(1);
        for level in (1..top).map(Level) {
            for at in 0..trees.len() {
                for blkid in trees[at].changed(level) {
                    let sync_tree = &mut trees[at];
                    let Some(what) = sync_tree.take_indirect(level, blkid, self)? else { continue };
                    let req = self.request(sync_tree, sync_tree.phys.kind, level, blkid, what);
                    self.push(&mut batch, trees, at, req)?;
                }
            }
            self.flush(&mut batch, trees)?;
        }
        Ok(())
    }

    fn request(
        &self,
        sync_tree: &SyncTree,
        kind: DmuType,
        level: Level,
        blkid: BlkId,
        (data, fill, old): (impl Into<Sparse>, u64, Blkptr),
    ) -> WriteReq {
        WriteReq {
            data: data.into(),
            compressed: None,
            encrypted: None,
            kind,
            level,
            bookmark: sync_tree.bookmark(level, blkid),
            fill,
            policy: self.out.policy(kind, level, &sync_tree.phys),
            old: (old.birth.0 != 0).then_some(old),
            in_place: self.may_rewrite(&old),
        }
    }

    /// Adds a block that arrived compressed to a batch.
    fn push_packed(
        &mut self,
        batch: &mut Batch,
        trees: &mut [SyncTree],
        at: usize,
        (blkid, block): (BlkId, &PackedBlock),
    ) -> Result<()> {
        let tree = &mut trees[at];
        let old = tree.pointer(Level(0), blkid)?;
        let (kind, size) = (tree.phys.kind, tree.phys.datablksz.into());
        let req = self.packed_request(&trees[at], kind, (blkid, size), block, old);
        self.push(batch, trees, at, req)
    }

    /// The request for a block of this size that is compressed or encrypted already.
    fn packed_request(
        &self,
        tree: &SyncTree,
        kind: DmuType,
        (blkid, lsize): (BlkId, u64),
        block: &PackedBlock,
        old: Blkptr,
    ) -> WriteReq {
        let plain = self.request(tree, kind, Level(0), blkid, (block.bytes.clone(), 1, old));
        let compressed = Some(Compressed { kind: block.compress, lsize });
        WriteReq { compressed, encrypted: block.encrypted, ..plain }
    }

    fn may_rewrite(&self, old: &Blkptr) -> bool {
        self.pass >= PASS_REWRITE && old.birth == self.txg && old.stored().is_some()
    }

    fn push(&mut self, batch: &mut Batch, trees: &mut [SyncTree], at: usize, req: WriteReq) -> Result<()> {
        batch.bytes += req.data.len();
        batch.at.push(at);
        batch.reqs.push(req);
        if batch.bytes >= BATCH_BYTES { self.flush(batch, trees) } else { Ok(()) }
    }

    /// Writes a batch, and stores the new pointers.
    fn flush(&mut self, batch: &mut Batch, trees: &mut [SyncTree]) -> Result<()> {
        if batch.reqs.is_empty() {
            return Ok(());
        }
        let Batch { at, reqs, .. } = std::mem::take(batch);
        let places: Vec<_> = reqs.iter().map(|r| (r.bookmark, r.old, r.in_place)).collect();
        let bps = self.live.home.cache.write_batch(self.txg, reqs, self.workers)?;
        for ((at, (bm, old, in_place)), bp) in at.into_iter().zip(places).zip(bps) {
            let sync_tree = &mut trees[at];
            let before = old.unwrap_or(Blkptr::HOLE);
            self.replace(&before, &bp, in_place, &mut sync_tree.phys.used_bytes);
            if bm.blkid == crate::SPILL_BLKID && bm.level == Level(0) {
                sync_tree.phys.spill = Some(bp);
            } else {
                sync_tree.set_pointer(bm.level, bm.blkid, bp)?;
            }
        }
        Ok(())
    }

    /// Makes a block of another object a block of this object (`dbuf_sync_leaf` of a clone).
    ///
    /// Its logical birth is now. Its place and physical birth stay the same.
    fn link(&mut self, sync_tree: &mut SyncTree, blkid: BlkId, bp: &Blkptr) -> Result<()> {
        let old = sync_tree.pointer(Level(0), blkid)?;
        let new = Blkptr { birth: self.txg, ..*bp };
        self.replace(&old, &new, false, &mut sync_tree.phys.used_bytes);
        sync_tree.set_pointer(Level(0), blkid, new)
    }

    /// Notes that `new` replaces `old`.
    fn replace(&mut self, old: &Blkptr, new: &Blkptr, in_place: bool, used: &mut u64) {
        let space = |bp: &Blkptr| if is_block(bp) { self.out.dsize(bp) } else { 0 };
        *used = used.saturating_add(space(new)).saturating_sub(space(old));
        let rewritten = in_place
            && match (old.stored(), new.stored()) {
                (Some(o), Some(n)) => o.dvas == n.dvas && !n.dedup,
                _ => false,
            };
        if rewritten && old != new {
            self.overwritten.push(*old);
        }
        // Equal pointers: the block was kept, because its contents are the same.
        if rewritten || old == new {
            return;
        }
        if is_block(old) {
            self.out.kill(old);
        }
        if is_block(new) {
            self.out.born(new);
        }
    }

    /// Frees a block.
    fn kill(&mut self, bp: &Blkptr, used: &mut u64) {
        if is_block(bp) {
            *used = used.saturating_sub(self.out.dsize(bp));
            self.out.kill(bp);
        }
    }

    /// The hole that replaces the pointer of a freed block.
    fn hole(&self, old: &Blkptr) -> Blkptr {
        if old.birth.0 == 0 || !self.out.hole_birth() {
            return Blkptr::HOLE;
        }
        if old.is_hole() {
            return *old;
        }
        Blkptr { birth: self.txg, body: Body::Hole, ..*old }
    }

    fn root_block(&mut self, old: &Blkptr, phys: &ObjsetPhys) -> Result<Blkptr> {
        let id = self.live.home.id;
        let bookmark = Bookmark { objset: id, object: ObjNum(0), level: Level(0), blkid: BlkId(0) };
        let raw = match self.live.home.cache.zio().pool_version() {
            v if v < SPA_VERSION_USERSPACE => phys.encode_old(v < SPA_VERSION_DNODE_BYTES),
            _ => phys.encode(),
        };
        let req = WriteReq {
            data: Block::copy_of(&raw).into(),
            compressed: None,
            encrypted: None,
            kind: DmuType::OBJSET,
            level: Level(0),
            bookmark,
            fill: phys.meta_dnode.blkptrs.iter().map(block_tree::fill_of).sum(),
            policy: self.out.policy(DmuType::OBJSET, Level(0), &phys.meta_dnode),
            old: (old.birth.0 != 0).then_some(*old),
            in_place: self.may_rewrite(old),
        };
        let in_place = req.in_place;
        let mut bps = self.live.home.cache.write_batch(self.txg, vec![req], self.workers)?;
        let bp = bps.pop().expect("one request has one answer");
        self.replace(old, &bp, in_place, &mut 0);
        Ok(bp)
    }
}

/// Flags that say what is counted of an object.
const ACCOUNTED: u8 = DnodeFlags::USERUSED_ACCOUNTED | DnodeFlags::USEROBJUSED_ACCOUNTED;

/// Writes that go to the pipeline together.
#[derive(Default)]
struct Batch {
    reqs: Vec<WriteReq>,
    /// For each write, the index of its tree.
    at: Vec<usize>,
    bytes: usize,
}

/// True for a block that is counted and freed: neither a hole nor redacted.
fn is_block(bp: &Blkptr) -> bool {
    !matches!(bp.body, Body::Hole | Body::Redacted)
}

/// Puts the dnodes that are not in a block of dnodes into the root block.
fn accept(phys: &mut ObjsetPhys, meta: &DnodePhys, special: &[Synced]) {
    phys.meta_dnode = meta.clone();
    for s in special {
        let place = match s.dn.object {
            crate::DMU_USERUSED_OBJECT => &mut phys.userused,
            crate::DMU_GROUPUSED_OBJECT => &mut phys.groupused,
            _ => &mut phys.projectused,
        };
        place.clone_from(&s.new);
    }
}
