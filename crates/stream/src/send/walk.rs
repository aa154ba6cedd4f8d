//! The changes of a snapshot since another, in the order of a stream.
//!
//! # Theory
//! The block tree is visited depth first: block of dnodes by block of dnodes, object by object,
//! block by block. What is born at or before the origin's txg is skipped, with all below it.
//!
//! A hole has a birth too, and is skipped like a block. Pools without the feature `hole_birth` have
//! holes without a birth, and any of these may be newer than the origin. So they are all changes
//! (`send_holes_without_birth_time`).
//!
//! # See
//! OpenZFS `traverse_visitbp`, `send_cb`.

use std::ops::{ControlFlow, Range};

use arc::Cache;
use device::Block;
use dmu::Dnode;
use ondisk::blkptr::{BLKPTR_SHIFT, BLKPTR_SIZE, Body};
use ondisk::dnode::{DNODE_MIN_SIZE, DNODE_SHIFT, DnodePhys};
use ondisk::{BlkId, Blkptr, ByteOrder, Corrupt, DmuType, Level, ObjNum, Txg};
use zio::{Bookmark, ReadOptions};

use super::lost::{Lost, LostPart, bytes_below};

/// What differs from the origin.
#[derive(Debug, Clone)]
pub(crate) enum Change {
    /// A block of dnodes, which only raw streams mention.
    Dnodes { first: u64, slots: u64, bp: Blkptr },
    /// An object, and the bytes of its dnode.
    Object { object: ObjNum, dnode: Box<DnodePhys>, slots: Block, at: usize },
    /// Numbers without an object.
    NoObjects { first: u64, count: u64 },
    /// A hole, in bytes.
    Hole { object: ObjNum, offset: u64, length: u64 },
    /// Blocks that were left out of the stream from which the dataset was received.
    Redacted { object: ObjNum, offset: u64, length: u64 },
    /// A block of data.
    Data { object: ObjNum, blkid: BlkId, size: u32, kind: DmuType, bp: Blkptr },
    /// A spill block.
    Spill { object: ObjNum, bp: Blkptr },
    /// What can't be read, if that is left out.
    Lost(Box<Lost>),
}

/// Where a stream continues: nothing before this byte of this object is visited.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Start {
    pub(crate) object: ObjNum,
    pub(crate) blkid: BlkId,
}

/// Why the walk ended early: a failure, or `None` if the receiver of the changes wants no more.
pub(crate) type Stop = Option<dmu::Error>;

type Step = ControlFlow<Stop>;

/// A walk over one object set.
pub(crate) struct Walk<'a> {
    pub(crate) cache: &'a Cache,
    pub(crate) objset: u64,
    /// The txg of the origin.
    pub(crate) since: Txg,
    pub(crate) start: Start,
    /// Whether dnodes stay encrypted.
    pub(crate) raw: bool,
    /// Also holes behind the last block of an object, which no stream mentions.
    pub(crate) behind: bool,
    /// The dnodes of the origin. Objects that are as there are no changes.
    pub(crate) before: Option<&'a Dnode>,
    pub(crate) options: ReadOptions,
    /// What can't be read is left out.
    pub(crate) skips: bool,
    /// Reads left before the walk must be going in circles.
    pub(crate) steps: u64,
    /// Gets each change, and whether to go on.
    pub(crate) emit: &'a mut dyn FnMut(Change) -> bool,
}

/// One object whose blocks are visited.
struct Tree<'a> {
    object: ObjNum,
    dnode: &'a DnodePhys,
}

/// Where a dnode has the number of its further slots (`dn_extra_slots`).
const DNODE_EXTRA_SLOTS: usize = 12;
/// The object whose data are the dnodes (`DMU_META_DNODE_OBJECT`).
const META_DNODE: ObjNum = ObjNum(0);

impl Walk<'_> {
    /// Visits all objects.
    pub(crate) fn run(&mut self, meta: &DnodePhys) -> Result<(), Stop> {
        match self.object(META_DNODE, meta) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(stop) => Err(stop),
        }
    }

    fn emit(&mut self, change: Change) -> Step {
        if (self.emit)(change) { ControlFlow::Continue(()) } else { ControlFlow::Break(None) }
    }

    fn object(&mut self, object: ObjNum, dnode: &DnodePhys) -> Step {
        let tree = Tree { object, dnode };
        for (i, bp) in dnode.blkptrs.iter().enumerate() {
            self.below(&tree, bp, Level(dnode.nlevels - 1), BlkId(i as u64))?;
        }
        if let Some(bp) = dnode.spill.filter(|bp| !bp.is_hole() && bp.birth > self.since) {
            self.emit(Change::Spill { object, bp })?;
        }
        ControlFlow::Continue(())
    }

    /// Visits a pointer and what is below it, or leaves all of that out.
    fn below(&mut self, tree: &Tree<'_>, bp: &Blkptr, level: Level, blkid: BlkId) -> Step {
        match self.visit(tree, bp, level, blkid) {
            ControlFlow::Break(Some(why)) => self.left_out(tree, level, blkid, why),
            step => step,
        }
    }

    /// Leaves out what is below a pointer, or ends the walk.
    fn left_out(&mut self, tree: &Tree<'_>, level: Level, blkid: BlkId, why: dmu::Error) -> Step {
        // A walk in circles must end.
        if !self.skips || self.steps == 0 {
            return ControlFlow::Break(Some(why));
        }
        let (offset, length) = bytes_below(tree.dnode, level, blkid.0);
        let part = match tree.object {
            META_DNODE => LostPart::Objects { first: offset >> DNODE_SHIFT, count: length >> DNODE_SHIFT },
            object if tree.dnode.kind.is_metadata() => LostPart::Object { object },
            // What is below an indirect block has partly not changed.
            object => LostPart::Bytes { object, offset, length, changed: level.0 == 0 },
        };
        self.emit(Change::Lost(Box::new(Lost { part, why })))
    }

    fn visit(&mut self, tree: &Tree<'_>, bp: &Blkptr, level: Level, blkid: BlkId) -> Step {
        let born = bp.birth > self.since || (bp.is_hole() && bp.birth == Txg(0));
        if !born || self.is_before_start(tree, level, blkid) {
            return ControlFlow::Continue(());
        }
        let at = Bookmark { objset: self.objset, object: tree.object, level, blkid };
        if bp.is_hole() {
            return self.hole(tree, level, blkid);
        }
        if bp.level != level {
            let (objset, object) = (self.objset, tree.object);
            return ControlFlow::Break(Some(dmu::Error::Misplaced { objset, object, level, blkid }));
        }
        let protected = bp.stored().is_none_or(|stored| stored.crypt);
        if self.raw && !protected {
            return ControlFlow::Break(Some(self.corrupt(&at, "a block without the mark of encryption")));
        }
        if self.raw && bp.order == ByteOrder::Big {
            let why = "raw streams of pools of the other byte order are not in this release";
            return ControlFlow::Break(Some(self.corrupt(&at, why)));
        }
        if level.0 > 0 {
            let block = self.read(bp, &at)?;
            return self.indirect(tree, &block, &at);
        }
        if tree.object == META_DNODE {
            return self.dnodes(bp, &at);
        }
        let (object, size, kind) = (tree.object, tree.dnode.datablksz, tree.dnode.kind);
        // A block behind the last one would break the order of the stream.
        if blkid > tree.dnode.maxblkid && !kind.is_metadata() {
            return ControlFlow::Break(Some(self.corrupt(&at, "a block behind the object's last one")));
        }
        if bp.lsize.0 != u64::from(size) {
            return ControlFlow::Break(Some(self.corrupt(&at, "a block is not of the object's block size")));
        }
        let offset = blkid.0.saturating_mul(size.into());
        match bp.body {
            Body::Redacted => self.emit(Change::Redacted { object, offset, length: size.into() }),
            _ => self.emit(Change::Data { object, blkid, size, kind, bp: *bp }),
        }
    }

    fn indirect(&mut self, tree: &Tree<'_>, block: &Block, at: &Bookmark) -> Step {
        if block.len() != 1 << tree.dnode.indblkshift {
            return ControlFlow::Break(Some(self.corrupt(at, "an indirect block of the wrong size")));
        }
        let below = Level(at.level.0 - 1);
        for (i, raw) in block.chunks_exact(BLKPTR_SIZE).enumerate() {
            let Some(first) = at.blkid.0.checked_mul((block.len() >> BLKPTR_SHIFT) as u64) else { break };
            let bp = Blkptr::decode(raw).map_err(|source| self.wrong(tree.object, source));
            let blkid = BlkId(first.saturating_add(i as u64));
            match bp {
                Ok(bp) => self.below(tree, &bp, below, blkid)?,
                // What comes before it was sent, and stays.
                Err(why) => self.left_out(tree, below, blkid, why)?,
            }
        }
        ControlFlow::Continue(())
    }

    fn dnodes(&mut self, bp: &Blkptr, at: &Bookmark) -> Step {
        let block = self.read(bp, at)?;
        let slots = (block.len() >> DNODE_SHIFT) as u64;
        let Some(first) = at.blkid.0.checked_mul(slots) else { return ControlFlow::Continue(()) };
        if self.raw {
            self.emit(Change::Dnodes { first, slots, bp: *bp })?;
        }
        let mut before = Before::new(self.before, &block, at.blkid);
        let mut slot = 0;
        while slot < slots {
            let object = ObjNum(first + slot);
            let at = slot as usize * DNODE_MIN_SIZE;
            let dnode = match DnodePhys::decode(&block[at..]) {
                Ok(dnode) => dnode,
                Err(source) if self.skips => {
                    // Its other slots are no dnodes: their bytes may be a user's.
                    let count = (1 + u64::from(block[at + DNODE_EXTRA_SLOTS])).min(slots - slot);
                    let part = LostPart::Objects { first: object.0, count };
                    let why = self.wrong(object, source);
                    self.emit(Change::Lost(Box::new(Lost { part, why })))?;
                    slot += count;
                    continue;
                }
                Err(source) => return ControlFlow::Break(Some(self.wrong(object, source))),
            };
            let taken = dnode.as_ref().map_or(1, |dnode| dnode.num_slots());
            slot += taken as u64;
            if before.as_mut().is_some_and(|before| before.has(&block, at..at + taken * DNODE_MIN_SIZE)) {
                continue;
            }
            // What was sent before the stream was interrupted is in the same block at most.
            if object < self.start.object || object == META_DNODE {
                continue;
            }
            match dnode {
                None => self.emit(Change::NoObjects { first: object.0, count: 1 })?,
                Some(dnode) => {
                    let dnode = Box::new(dnode);
                    self.emit(Change::Object { object, dnode: dnode.clone(), slots: block.clone(), at })?;
                    // Old receivers lose a spill block that no record mentions.
                    if let Some(bp) = dnode.spill.filter(|bp| !bp.is_hole() && bp.birth <= self.since) {
                        self.emit(Change::Spill { object, bp })?;
                    }
                    self.object(object, &dnode)?;
                }
            }
        }
        ControlFlow::Continue(())
    }

    fn hole(&mut self, tree: &Tree<'_>, level: Level, blkid: BlkId) -> Step {
        let span = span(tree.dnode, level);
        let range = blkid.0.checked_mul(span).map(|from| (from, from.checked_add(span)));
        let Some((from, to)) = range else { return ControlFlow::Continue(()) };
        let size = u64::from(tree.dnode.datablksz);
        if tree.object == META_DNODE {
            let per = size >> DNODE_SHIFT;
            let first = from.saturating_mul(per);
            let count = to.unwrap_or(u64::MAX).saturating_mul(per) - first;
            // Behind the last number that there can be.
            if count == 0 {
                return ControlFlow::Continue(());
            }
            return self.emit(Change::NoObjects { first, count });
        }
        let metadata = tree.dnode.kind.is_metadata();
        if from > tree.dnode.maxblkid.0 && !metadata && !self.behind {
            return ControlFlow::Continue(());
        }
        // No block can be where bytes have no number: it can't have been anything but a hole.
        let Some(offset) = from.checked_mul(size) else { return ControlFlow::Continue(()) };
        let end = to.and_then(|to| to.checked_mul(size)).unwrap_or(u64::MAX);
        self.emit(Change::Hole { object: tree.object, offset, length: end - offset })
    }

    /// Whether all below a pointer comes before [`Walk::start`] (`zbookmark_subtree_completed`).
    fn is_before_start(&self, tree: &Tree<'_>, level: Level, blkid: BlkId) -> bool {
        let last = blkid.0.checked_add(1).and_then(|next| next.checked_mul(span(tree.dnode, level)));
        let Some(end) = last else { return false };
        if tree.object == META_DNODE {
            let per = u64::from(tree.dnode.datablksz) >> DNODE_SHIFT;
            return end.checked_mul(per).is_some_and(|end| end <= self.start.object.0);
        }
        tree.object == self.start.object && end <= self.start.blkid.0
    }

    fn read(&mut self, bp: &Blkptr, at: &Bookmark) -> ControlFlow<Stop, Block> {
        let Some(left) = self.steps.checked_sub(1) else {
            let why = "the block tree has more blocks than the pool has sectors";
            return ControlFlow::Break(Some(self.corrupt(at, why)));
        };
        self.steps = left;
        // The cache has dnodes decrypted.
        let read = match self.raw && bp.is_encrypted() {
            true => self.cache.zio().read_undecrypted(bp, at, &self.options),
            false => self.cache.read(bp, at, &self.options),
        };
        read.map_or_else(|e| ControlFlow::Break(Some(e.into())), ControlFlow::Continue)
    }

    fn corrupt(&self, at: &Bookmark, why: &'static str) -> dmu::Error {
        self.wrong(at.object, Corrupt::Shape { what: "block tree", why })
    }

    fn wrong(&self, object: ObjNum, source: Corrupt) -> dmu::Error {
        dmu::Error::Corrupt { objset: self.objset, object, source }
    }
}

/// A block of dnodes of the origin.
pub(super) struct Before {
    block: Block,
    /// Where its next dnode or free slot begins. What is inside a larger dnode is no dnode.
    at: usize,
}

impl Before {
    /// The block that `now` was. `None`: there was none of this size, or it can't be read. Then all
    /// objects are named.
    fn new(before: Option<&Dnode>, now: &Block, blkid: BlkId) -> Option<Self> {
        let block = before?.block(blkid).ok()??;
        (block.len() == now.len()).then(|| Self::of(block))
    }

    pub(super) fn of(block: Block) -> Self {
        Self { block, at: 0 }
    }

    /// Whether it has the same dnode or free slots as `now` in these bytes. Callers pass rising
    /// ranges.
    pub(super) fn has(&mut self, now: &Block, bytes: Range<usize>) -> bool {
        while self.at < bytes.start {
            let is_free = self.block[self.at] == 0;
            let more = if is_free { 0 } else { self.block[self.at + DNODE_EXTRA_SLOTS] };
            self.at += (1 + usize::from(more)) * DNODE_MIN_SIZE;
        }
        self.at == bytes.start && self.block[bytes.clone()] == now[bytes]
    }
}

/// How many data blocks are below a pointer (`bp_span_in_blocks`).
pub(super) fn span(dnode: &DnodePhys, level: Level) -> u64 {
    1u64.checked_shl(dnode.span_shift(level)).unwrap_or(u64::MAX)
}
