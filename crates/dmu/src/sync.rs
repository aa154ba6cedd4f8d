//! Writing out what a transaction group changed.
//!
//! # Theory
//! A group is written in batches, one for each stage that needs the one before: data blocks of all changed objects at
//! once, then their indirect blocks level by level, since a pointer is known when its block is written; then the
//! accounting, which counts what that made of the objects; then the blocks of dnodes, level by level; then the root block. Each batch is data-parallel in the
//! pipeline below, and allocates in a fixed order: object, level, block.
//!
//! A pool that is written in passes changes its MOS while it writes it (space maps say where). From the second pass on a
//! block that was born in this group is written where it is, if it still fits there, so that nothing new is
//! allocated, and the passes end.
//!
//! A data block that was written early for the log's sake ([`crate::DirtyBlock`]) is there already.
//!
//! # Life
//! [`Objset::sync`] takes the changes out of each object, writes them, and puts the new trees in place of the old. What
//! changes in the meantime, in a later group or in this one, is kept for its own time.
//!
//! # Crash
//! Until the uberblock that leads here is written, the old trees stand: nothing of them is overwritten but what was born in
//! this group.
//!
//! # Errors
//! A sync that failed leaves the object set as readers saw it, but can't be repeated: the pool must be suspended.

mod accounting;
mod dnodes;
mod weave;

use crate::live::LiveObjset;
use crate::live::dirty::Dirty;
use crate::live::node::LiveDnode;
use crate::tree::BlockTree;
use crate::{DN_MAX_OBJECT, Objset, Result, Tx};
use device::{Block, Sparse};
use ondisk::blkptr::Body;
use ondisk::dnode::{DnodeFlags, DnodePhys};
use ondisk::objset::ObjsetPhys;
use ondisk::version::{SPA_VERSION_DNODE_BYTES, SPA_VERSION_USERSPACE};
use ondisk::{BlkId, Blkptr, DmuType, Level, ObjNum, Txg};
use std::sync::Arc;
use weave::Weave;
use zio::{Bookmark, ReadOptions, Workers, WritePolicy, WriteReq};

/// First pass that rewrites in place (`zfs_sync_pass_rewrite`).
const PASS_REWRITE: u32 = 2;
/// Bytes of blocks that are handed to the pipeline at a time.
const BATCH_BYTES: usize = 64 << 20;

/// What writing an object set needs from above: from the dataset that it belongs to, or from the pool for the MOS.
pub trait SyncSink {
    /// How a block of an object is to be written; `kind` is the block's type, `dnode` the object's dnode
    /// (`dmu_write_policy`).
    fn policy(&self, kind: DmuType, level: Level, dnode: &DnodePhys) -> WritePolicy;
    /// A block was born (`dsl_dataset_block_born`).
    fn born(&mut self, bp: &Blkptr);
    /// A block is no more part of the object set: it is free, or goes to a deadlist (`dsl_dataset_block_kill`).
    fn kill(&mut self, bp: &Blkptr);
    /// Space that a block takes, as users are told (`bp_get_dsize_sync`).
    fn dsize(&self, bp: &Blkptr) -> u64;
    /// True if holes keep the group that they were made in (the feature `hole_birth` is active).
    fn hole_birth(&self) -> bool;
    /// An object with a dnode of several slots was written: the feature `large_dnode` is in use.
    fn large_dnode(&mut self) {}
}

/// What one call of [`Objset::sync`] works with.
pub(crate) struct Sync<'a> {
    live: Arc<LiveObjset>,
    txg: Txg,
    pass: u32,
    out: &'a mut dyn SyncSink,
    workers: &'a Workers,
    /// A sync can't be done again: its reads wait for a suspended pool.
    options: ReadOptions,
}

/// An object that is being synced.
struct Synced {
    dn: Arc<LiveDnode>,
    old: Option<Arc<BlockTree>>,
    dirty: Arc<Dirty>,
    /// The dnode after the group; `None` if the object is then free.
    new: Option<DnodePhys>,
}

impl Objset {
    /// Writes everything that the group of `tx` changed, and returns where the object set now is. It may be called again in a
    /// later pass for what changed since (`dmu_objset_sync`). Batches are spread over `workers`.
    ///
    /// # Errors
    /// As reading the blocks to be changed, and as writing fails; [`crate::Error::Fixed`].
    pub fn sync(&self, tx: &Tx, pass: u32, out: &mut dyn SyncSink, workers: &Workers) -> Result<Blkptr> {
        let live = self.live()?.clone();
        let _pass = live.begin_pass();
        let options = ReadOptions::sync();
        let os = self.with_options(options.clone());
        let mut sync = Sync { live: live.clone(), txg: tx.txg(), pass, out, workers, options };
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
        // Accounting made these dirty, or did so in addition.
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
        let bp = self.root_block(&root.bp, &phys)?;
        self.live.zil_header_synced(self.txg);
        self.live.install(bp, |phys| accept(phys, &meta, &special));
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
        let mut weaves = Vec::new();
        let mut weave_of = Vec::new();
        for dn in dns {
            let old = dn.synced();
            let Some(dirty) = dn.start_sync(self.txg) else { continue };
            let home = self.live.home.clone();
            for bp in dirty.superseded() {
                // Nothing was ever told that it was born.
                home.cache.free(self.txg, bp, Some(home.id))?;
            }
            if let Some(gone) = old.as_ref().filter(|_| dirty.wipe) {
                Weave::new(home.clone(), dn.object, gone.phys.clone(), dirty.clone()).kill_all(self)?;
            }
            let base = old.clone().filter(|_| !dirty.wipe);
            if let Some(header) = &dirty.header {
                let before = base.as_deref().map(|t| &t.phys);
                let mut phys = header.over(before);
                phys.flags.0 = phys.flags.0 & !ACCOUNTED | before.map_or(0, |b| b.flags.0 & ACCOUNTED);
                phys.nlevels = before.map_or(1, |b| b.nlevels);
                if dirty.spill == Some(None)
                    && let Some(gone) = before.and_then(|b| b.spill)
                {
                    self.kill(&gone, &mut phys.used_bytes);
                }
                let mut weave = Weave::new(home, dn.object, phys, dirty.clone());
                weave.free_ranges(&dirty.freed, self)?;
                weave.grow(header.nlevels);
                weave_of.push(all.len());
                weaves.push(weave);
            }
            all.push(Synced { dn, old, dirty, new: None });
        }
        self.weave(&mut weaves)?;
        if weaves.iter().any(|w| w.phys.extra_slots > 0) {
            self.out.large_dnode();
        }
        for (i, weave) in weave_of.into_iter().zip(weaves) {
            all[i].new = Some(weave.finish());
        }
        Ok(all)
    }

    /// Writes the changed blocks of all weaves, level by level.
    fn weave(&mut self, weaves: &mut [Weave]) -> Result<()> {
        let mut batch = Batch::default();
        for at in 0..weaves.len() {
            let dirty = weaves[at].dirty.clone();
            let kind = weaves[at].phys.kind;
            for (blkid, block) in &dirty.blocks {
                let weave = &mut weaves[at];
                if let Some(bp) = dirty.placed(*blkid) {
                    let old = weave.pointer(Level(0), *blkid)?;
                    self.replace(&old, bp, false, &mut weave.phys.used_bytes);
                    weave.set_pointer(Level(0), *blkid, *bp)?;
                    self.live.home.cache.insert(bp, &weave.bookmark(Level(0), *blkid), block);
                    continue;
                }
                let fill = if kind == DmuType::DNODE { dnodes::fill(block) } else { 1 };
                let old = weave.pointer(Level(0), *blkid)?;
                if fill == 0 {
                    self.kill(&old, &mut weave.phys.used_bytes);
                    let hole = self.hole(&old);
                    weave.set_pointer(Level(0), *blkid, hole)?;
                    continue;
                }
                let req = self.request(weave, kind, Level(0), *blkid, (block.clone(), fill, old));
                self.push(&mut batch, weaves, at, req)?;
            }
            for (blkid, bp) in &dirty.clones {
                self.link(&mut weaves[at], *blkid, bp)?;
            }
            if let Some(Some(block)) = &dirty.spill {
                let old = weaves[at].phys.spill.unwrap_or(Blkptr::HOLE);
                let kind = weaves[at].phys.bonus_kind;
                let what = (block.clone(), 1, old);
                let req = self.request(&weaves[at], kind, Level(0), crate::SPILL_BLKID, what);
                self.push(&mut batch, weaves, at, req)?;
            }
        }
        self.flush(&mut batch, weaves)?;
        let top = weaves.iter().map(|w| w.phys.nlevels).max().unwrap_or(1);
        for level in (1..top).map(Level) {
            for at in 0..weaves.len() {
                for blkid in weaves[at].changed(level) {
                    let weave = &mut weaves[at];
                    let Some(what) = weave.take_indirect(level, blkid, self)? else { continue };
                    let req = self.request(weave, weave.phys.kind, level, blkid, what);
                    self.push(&mut batch, weaves, at, req)?;
                }
            }
            self.flush(&mut batch, weaves)?;
        }
        Ok(())
    }

    fn request(
        &self,
        weave: &Weave,
        kind: DmuType,
        level: Level,
        blkid: BlkId,
        (data, fill, old): (impl Into<Sparse>, u64, Blkptr),
    ) -> WriteReq {
        WriteReq {
            data: data.into(),
            kind,
            level,
            bookmark: weave.bookmark(level, blkid),
            fill,
            policy: self.out.policy(kind, level, &weave.phys),
            old: (old.birth.0 != 0).then_some(old),
            in_place: self.may_rewrite(&old),
        }
    }

    fn may_rewrite(&self, old: &Blkptr) -> bool {
        self.pass >= PASS_REWRITE && old.birth == self.txg && old.stored().is_some()
    }

    fn push(&mut self, batch: &mut Batch, weaves: &mut [Weave], at: usize, req: WriteReq) -> Result<()> {
        batch.bytes += req.data.len();
        batch.at.push(at);
        batch.reqs.push(req);
        if batch.bytes >= BATCH_BYTES { self.flush(batch, weaves) } else { Ok(()) }
    }

    /// Writes a batch, and puts the pointers where they belong.
    fn flush(&mut self, batch: &mut Batch, weaves: &mut [Weave]) -> Result<()> {
        if batch.reqs.is_empty() {
            return Ok(());
        }
        let Batch { at, reqs, .. } = std::mem::take(batch);
        let places: Vec<_> = reqs.iter().map(|r| (r.bookmark, r.old, r.in_place)).collect();
        let bps = self.live.home.cache.write_batch(self.txg, reqs, self.workers)?;
        for ((at, (bm, old, in_place)), bp) in at.into_iter().zip(places).zip(bps) {
            let weave = &mut weaves[at];
            let before = old.unwrap_or(Blkptr::HOLE);
            self.replace(&before, &bp, in_place, &mut weave.phys.used_bytes);
            if bm.blkid == crate::SPILL_BLKID && bm.level == Level(0) {
                weave.phys.spill = Some(bp);
            } else {
                weave.set_pointer(bm.level, bm.blkid, bp)?;
            }
        }
        Ok(())
    }

    /// Makes another's block a block of this object: born now, but where and when it was written (`dbuf_sync_leaf` of a clone).
    fn link(&mut self, weave: &mut Weave, blkid: BlkId, bp: &Blkptr) -> Result<()> {
        let old = weave.pointer(Level(0), blkid)?;
        let new = Blkptr { birth: self.txg, ..*bp };
        self.replace(&old, &new, false, &mut weave.phys.used_bytes);
        weave.set_pointer(Level(0), blkid, new)
    }

    /// Notes that `new` is now where `old` was.
    fn replace(&mut self, old: &Blkptr, new: &Blkptr, in_place: bool, used: &mut u64) {
        let space = |bp: &Blkptr| if is_block(bp) { self.out.dsize(bp) } else { 0 };
        *used = used.saturating_add(space(new)).saturating_sub(space(old));
        let rewritten = in_place
            && match (old.stored(), new.stored()) {
                (Some(o), Some(n)) => o.dvas == n.dvas && !n.dedup,
                _ => false,
            };
        // Else it was kept, because the contents are the same.
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

    /// What a pointer becomes when its block is freed.
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
            kind: DmuType::OBJSET,
            level: Level(0),
            bookmark,
            fill: phys.meta_dnode.blkptrs.iter().map(weave::fill_of).sum(),
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

/// Flags that say what was counted of an object.
const ACCOUNTED: u8 = DnodeFlags::USERUSED_ACCOUNTED | DnodeFlags::USEROBJUSED_ACCOUNTED;

/// Writes to be handed over together.
#[derive(Default)]
struct Batch {
    reqs: Vec<WriteReq>,
    /// Which weave each is of.
    at: Vec<usize>,
    bytes: usize,
}

/// True for what is counted and freed: neither hole nor redacted.
fn is_block(bp: &Blkptr) -> bool {
    !matches!(bp.body, Body::Hole | Body::Redacted)
}

/// Puts dnodes that have no block of dnodes into the root block.
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
