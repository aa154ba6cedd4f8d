//! The block tree of one object, as the pointers of a dnode define it. A tree never changes.

use crate::block_refs::BlockRefs;
use crate::dnode::{Extent, SPILL_BLKID};
use crate::objset::Home;
use crate::visited::{Visited, VisitedSince};
use crate::{Error, Result, zfetch};
use arc::{BlockOrigin, BlockRef, PrefetchTarget, ReadHooks};
use arc_swap::ArcSwapOption;
use device::{Block, Sparse};
use ondisk::blkptr::{BLKPTR_SHIFT, BLKPTR_SIZE, Body};
use ondisk::dnode::DnodePhys;
use ondisk::{BlkId, Blkptr, Corrupt, Level, ObjNum};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use zio::{Bookmark, IoFlags, ReadOptions};

/// Threads that read indirect blocks ahead of a free of the blocks below them.
const READERS: usize = 8;

/// Indirect blocks of level 1 that a tree keeps.
const WINDOWS: usize = 4;

/// Searches from the root of a tree before it keeps any. To change or drop one costs a look at each
/// thread of the process, and many trees serve one read.
const WALKS: u32 = 1;

/// The last data block that [`BlockTree::let_go`] drops from the cache.
const LET_GO_MAX: u64 = 15;

/// Some indirect blocks of level 1, in order.
pub(crate) struct Leaves {
    pub(crate) found: Vec<(BlkId, Blkptr)>,
    /// Most blocks in `found`.
    most: usize,
    /// The first data block below none of them, if there are more.
    pub(crate) behind: Option<BlkId>,
}

/// A block that stopped a search, with the reason. Nothing below it was searched.
pub(crate) struct Blocked {
    /// The first data block below it, and the first one after all those. `None` if no number is so
    /// high.
    pub(crate) from: Option<BlkId>,
    pub(crate) behind: Option<BlkId>,
    pub(crate) error: Error,
}

/// A dnode and the blocks below it.
pub(crate) struct BlockTree {
    pub(crate) home: Home,
    pub(crate) object: ObjNum,
    pub(crate) phys: DnodePhys,
    /// The indirect blocks of level 1 that were used last. The number of a block determines its
    /// slot, so neighbours have different slots. A read that finds its block here writes no shared
    /// memory.
    windows: OnceLock<Box<[Slot; WINDOWS]>>,
    /// Searches from the root, up to [`WALKS`].
    walks: AtomicU32,
    /// The blocks that the dnode itself points to, if there is no indirect block.
    refs: BlockRefs,
}

/// Made when it is first filled.
type Slot = OnceLock<ArcSwapOption<Window>>;

/// An indirect block of level 1, and references to the blocks below it.
struct Window {
    blkid: BlkId,
    block: Sparse,
    refs: BlockRefs,
}

impl PrefetchTarget for BlockTree {
    fn read_ahead(&self, level: u8, blkid: u64) {
        let (level, blkid) = (Level(level), BlkId(blkid));
        // An error is left to the reader that needs the block.
        if let Ok(bp) = self.bp(level, blkid, &ReadOptions::prefetch())
            && !bp.is_hole()
            && !matches!(bp.body, Body::Embedded(_))
        {
            self.home.cache.fetch_ahead(&bp, &self.bookmark(level, blkid));
        }
    }
}

impl BlockTree {
    pub(crate) fn new(home: Home, object: ObjNum, phys: DnodePhys) -> BlockTree {
        let (windows, walks) = (OnceLock::new(), AtomicU32::new(0));
        BlockTree { home, object, phys, windows, walks, refs: BlockRefs::default() }
    }

    pub(crate) fn corrupt(&self, source: Corrupt) -> Error {
        Error::Corrupt { objset: self.home.id, object: self.object, source }
    }

    /// The error of a block that a search has to pass.
    fn blocked(&self, level: Level, blkid: BlkId, error: Error) -> Blocked {
        let shift = self.phys.span_shift(level);
        let from = first_below(blkid.0, shift).map(BlkId);
        let behind = blkid.0.checked_add(1).and_then(|next| first_below(next, shift)).map(BlkId);
        Blocked { from, behind, error }
    }

    fn block_size(&self) -> u64 {
        self.phys.datablksz.into()
    }

    pub(crate) fn bookmark(&self, level: Level, blkid: BlkId) -> Bookmark {
        Bookmark { objset: self.home.id, object: self.object, level, blkid }
    }

    fn misplaced(&self, level: Level, blkid: BlkId) -> Error {
        Error::Misplaced { objset: self.home.id, object: self.object, level, blkid }
    }

    /// The pointer to block `blkid` of `level`. A hole if it or anything above it is a hole.
    ///
    /// # Errors
    /// The errors of [reading](Error#reading), for indirect blocks.
    pub(crate) fn bp(&self, level: Level, blkid: BlkId, options: &ReadOptions) -> Result<Blkptr> {
        let phys = &self.phys;
        let top = phys.nlevels - 1;
        if level.0 > top {
            return Ok(Blkptr::HOLE);
        }
        let shift = u32::from(top - level.0) * phys.epbs();
        let root = blkid.0.checked_shr(shift).unwrap_or(0);
        let Some(bp) = usize::try_from(root).ok().and_then(|i| phys.blkptrs.get(i)) else {
            return Ok(Blkptr::HOLE);
        };
        let mut bp = self.check_place(*bp, Level(top), BlkId(root))?;
        let mut at = top;
        if level.0 == 0
            && top >= 1
            && let Some(found) = self.in_window(blkid, |window| self.entry(&window.block, Level(0), blkid))
        {
            return found;
        }
        while at > level.0 {
            if bp.is_hole() {
                return Ok(Blkptr::HOLE);
            }
            let this = BlkId(blkid.0.checked_shr(u32::from(at - level.0) * phys.epbs()).unwrap_or(0));
            let block = self.read_indirect(&bp, Level(at), this, options)?;
            at -= 1;
            let below = BlkId(blkid.0.checked_shr(u32::from(at - level.0) * phys.epbs()).unwrap_or(0));
            bp = self.entry(&block, Level(at), below)?;
            if at == 0 {
                self.keep_window(this, block);
            }
        }
        Ok(bp)
    }

    /// Keeps an indirect block of level 1 for the next reads below it, if there were some.
    fn keep_window(&self, blkid: BlkId, block: Sparse) {
        // A rough count, so that shared memory is written at most this often.
        let walks = self.walks.load(Ordering::Relaxed);
        if walks < WALKS {
            self.walks.store(walks + 1, Ordering::Relaxed);
            return;
        }
        let window = Arc::new(Window { blkid, block, refs: BlockRefs::default() });
        let slot = &self.windows.get_or_init(Box::default)[blkid.0 as usize % WINDOWS];
        match slot.get() {
            Some(slot) => slot.store(Some(window)),
            // Of several threads at once, one keeps its window.
            None => drop(slot.get_or_init(|| ArcSwapOption::new(Some(window)))),
        }
    }

    /// The slot of the window above a data block, and the number of that indirect block.
    fn slot(&self, blkid: BlkId) -> Option<(&ArcSwapOption<Window>, BlkId)> {
        let l1 = BlkId(blkid.0 >> self.phys.epbs());
        Some((self.windows.get()?[l1.0 as usize % WINDOWS].get()?, l1))
    }

    /// Calls `of` with the window above a data block, if the tree keeps that window.
    fn in_window<R>(&self, blkid: BlkId, of: impl FnOnce(&Window) -> R) -> Option<R> {
        let (slot, l1) = self.slot(blkid)?;
        slot.load().as_deref().filter(|w| w.blkid == l1).map(of)
    }

    /// Reads a data block without the table of the cache, if it is read again and again.
    ///
    /// The outer `None` means that no window is kept for it.
    fn read_at_hand(&self, blkid: BlkId, options: &ReadOptions) -> Result<Option<Option<Block>>> {
        if self.phys.nlevels <= 1 {
            let bp = || self.bp(Level(0), blkid, options);
            return self.read_by(&self.refs, (blkid, blkid.0), bp, options).map(Some);
        }
        let index = blkid.0 & ((1 << self.phys.epbs()) - 1);
        let read = |window: &Window| {
            if window.refs.are_stale() {
                return Ok(None);
            }
            let bp = || self.entry(&window.block, Level(0), blkid);
            self.read_by(&window.refs, (blkid, index), bp, options).map(Some)
        };
        let Some(found) = self.in_window(blkid, read) else { return Ok(None) };
        if matches!(found, Ok(None)) {
            // The next read makes a new window of the indirect block, with references to what is in
            // the cache then.
            if let Some((slot, _)) = self.slot(blkid) {
                slot.store(None);
            }
        }
        found
    }

    fn read_by(
        &self,
        refs: &BlockRefs,
        (blkid, index): (BlkId, u64),
        bp: impl FnOnce() -> Result<Blkptr>,
        options: &ReadOptions,
    ) -> Result<Option<Block>> {
        if let Some(block) = refs.find(index, &self.home.cache) {
            return Ok(Some(block));
        }
        let bp = bp()?;
        if bp.is_hole() {
            return Ok(None);
        }
        let keep = |hand: BlockRef| {
            // A block of the wrong size must be refused at each read.
            if hand.len() as u64 == self.block_size() {
                refs.keep(index, hand);
            }
        };
        let note = |came| self.note(blkid, came, options);
        let ask = ReadHooks { keep: Some(&keep), told: Some(&note) };
        let block = self.home.cache.read_asking(&bp, &self.bookmark(Level(0), blkid), ask, options)?;
        self.check_size(block.len(), blkid)?;
        Ok(Some(block))
    }

    /// Refuses a data block that does not have the size that the dnode says.
    fn check_size(&self, len: usize, blkid: BlkId) -> Result<()> {
        if len as u64 == self.block_size() { Ok(()) } else { Err(self.misplaced(Level(0), blkid)) }
    }

    /// Reads an indirect block, and checks that it has the size that the dnode says.
    ///
    /// # Errors
    /// * [`Error::Read`]: the block can't be read.
    /// * [`Error::Corrupt`]: the block lies in its pointer.
    /// * [`Error::Misplaced`]: the block has another size.
    pub(crate) fn read_indirect(
        &self,
        bp: &Blkptr,
        level: Level,
        blkid: BlkId,
        options: &ReadOptions,
    ) -> Result<Sparse> {
        if matches!(bp.body, Body::Embedded(_)) {
            // No writer embeds an indirect block. A tree of embedded ones would be large and take
            // no space.
            let why = "an indirect block lies in its pointer";
            return Err(self.corrupt(Corrupt::Shape { what: "block tree", why }));
        }
        let block = self.home.cache.read_sparse(bp, &self.bookmark(level, blkid), options)?;
        if block.len() != 1 << self.phys.indblkshift {
            return Err(self.misplaced(level, blkid));
        }
        Ok(block)
    }

    /// The pointer to block `blkid` of `level`, from the indirect block above it.
    pub(crate) fn entry(&self, parent: &Sparse, level: Level, blkid: BlkId) -> Result<Blkptr> {
        let i = (blkid.0 & ((1 << self.phys.epbs()) - 1)) as usize;
        // The part that is not held is zeros: holes that were never written.
        let held = parent.head().get(i << BLKPTR_SHIFT..(i << BLKPTR_SHIFT) + BLKPTR_SIZE);
        let Some(raw) = held else { return Ok(Blkptr::HOLE) };
        // The error names the place, so that a reader that skips the damage knows how much is lost.
        let bad = |source| zio::Error::Corrupt { bookmark: self.bookmark(level, blkid), source };
        self.check_place(Blkptr::decode(raw).map_err(bad)?, level, blkid)
    }

    /// Refuses a pointer that claims another level.
    fn check_place(&self, bp: Blkptr, level: Level, blkid: BlkId) -> Result<Blkptr> {
        if bp.is_hole() || bp.level == level { Ok(bp) } else { Err(self.misplaced(level, blkid)) }
    }

    /// Reads all indirect blocks above the data blocks from `first` to `last`, as a sync that frees
    /// these does (`dmu_tx_check_ioerr`).
    ///
    /// # Errors
    /// The errors of [reading](Error#reading), for indirect blocks.
    pub(crate) fn check_above(&self, first: BlkId, last: BlkId, options: &ReadOptions) -> Result<()> {
        let top = Level(self.phys.nlevels - 1);
        let mut visited = Visited::default();
        let mut roots = (0..).map(BlkId).zip(&self.phys.blkptrs);
        roots.try_for_each(|(blkid, bp)| {
            self.check_below(bp, (top, blkid), (first, last), &mut visited, options)
        })
    }

    // The recursion is as deep as the dnode has levels.
    fn check_below(
        &self,
        bp: &Blkptr,
        (level, blkid): (Level, BlkId),
        range: (BlkId, BlkId),
        visited: &mut Visited,
        options: &ReadOptions,
    ) -> Result<()> {
        let shift = self.phys.span_shift(level);
        let Some(from) = first_below(blkid.0, shift).filter(|from| *from <= range.1.0) else { return Ok(()) };
        let to = first_below(blkid.0 + 1, shift).map_or(u64::MAX, |next| next - 1);
        if level.0 == 0 || to < range.0.0 || matches!(bp.body, Body::Hole | Body::Redacted) {
            return Ok(());
        }
        visited.note(bp, level, blkid).map_err(|source| self.corrupt(source))?;
        let bp = self.check_place(*bp, level, blkid)?;
        let block = self.read_indirect(&bp, level, blkid, options)?;
        let (below, span) = (Level(level.0 - 1), self.phys.span_shift(Level(level.0 - 1)));
        let (first, last) = (range.0.0.max(from), range.1.0.min(to));
        for child in (first.checked_shr(span).unwrap_or(0)..=last.checked_shr(span).unwrap_or(0)).map(BlkId) {
            let bp = self.entry(&block, below, child)?;
            self.check_below(&bp, (below, child), range, visited, options)?;
        }
        Ok(())
    }

    /// The indirect blocks of level 1 above a range of data blocks, at most `most`.
    ///
    /// `range` is the first and the last data block. `visited` belongs to the whole walk.
    ///
    /// # Errors
    /// The errors of [reading](Error#reading), for indirect blocks.
    pub(crate) fn leaves(
        &self,
        range: (BlkId, BlkId),
        most: usize,
        visited: &mut VisitedSince,
        options: &ReadOptions,
    ) -> Result<Leaves> {
        let top = Level(self.phys.nlevels - 1);
        let mut out = Leaves { found: Vec::new(), most, behind: None };
        for (blkid, bp) in (0..).map(BlkId).zip(&self.phys.blkptrs) {
            self.leaves_below(bp, (top, blkid), range, visited, &mut out, options)?;
        }
        Ok(out)
    }

    // The recursion is as deep as the dnode has levels.
    fn leaves_below(
        &self,
        bp: &Blkptr,
        (level, blkid): (Level, BlkId),
        range: (BlkId, BlkId),
        visited: &mut VisitedSince,
        out: &mut Leaves,
        options: &ReadOptions,
    ) -> Result<()> {
        let shift = self.phys.span_shift(level);
        let Some(from) = first_below(blkid.0, shift).filter(|from| *from <= range.1.0) else { return Ok(()) };
        let to = first_below(blkid.0 + 1, shift).map_or(u64::MAX, |next| next - 1);
        let nothing = level.0 == 0 || to < range.0.0 || matches!(bp.body, Body::Hole | Body::Redacted);
        if nothing || out.behind.is_some() {
            return Ok(());
        }
        if level.0 == 1 && out.found.len() >= out.most {
            out.behind = Some(BlkId(from));
            return Ok(());
        }
        visited.note(bp, level, blkid).map_err(|source| self.corrupt(source))?;
        let bp = self.check_place(*bp, level, blkid)?;
        if level.0 == 1 {
            out.found.push((blkid, bp));
            return Ok(());
        }
        let block = self.read_indirect(&bp, level, blkid, options)?;
        let (below, span) = (Level(level.0 - 1), self.phys.span_shift(Level(level.0 - 1)));
        let (first, last) = (range.0.0.max(from), range.1.0.min(to));
        let children = first.checked_shr(span).unwrap_or(0)..=last.checked_shr(span).unwrap_or(0);
        for child in children.map(BlkId) {
            if out.behind.is_some() {
                break;
            }
            let bp = self.entry(&block, below, child)?;
            self.leaves_below(&bp, (below, child), range, visited, out, options)?;
        }
        Ok(())
    }

    /// Reads these indirect blocks of level 1 into the cache, several at a time.
    ///
    /// # Errors
    /// The errors of [reading](Error#reading).
    pub(crate) fn warm(&self, leaves: &[(BlkId, Blkptr)], options: &ReadOptions) -> Result<()> {
        // A single block is read by the caller that needs it.
        if leaves.len() < 2 {
            return Ok(());
        }
        let next = AtomicUsize::new(0);
        let read = || -> Result<()> {
            while let Some((blkid, bp)) = leaves.get(next.fetch_add(1, Ordering::Relaxed)) {
                self.read_indirect(bp, Level(1), *blkid, options)?;
            }
            Ok(())
        };
        std::thread::scope(|scope| {
            // If a thread can't start, fewer threads do the work.
            let others = (1..READERS.min(leaves.len())).map_while(|n| {
                std::thread::Builder::new().name(format!("dmu_free-{n}")).spawn_scoped(scope, read).ok()
            });
            let others: Vec<_> = others.collect();
            let mine = read();
            let theirs = others.into_iter().map(|other| other.join().expect("reading does not panic"));
            theirs.fold(mine, Result::and)
        })
    }

    /// Data block `blkid`. `None` for a hole.
    ///
    /// # Errors
    /// The errors of [reading](Error#reading). [`Error::Misplaced`] also if the block does not have
    /// the size of the object's blocks.
    pub(crate) fn block(&self, blkid: BlkId, options: &ReadOptions) -> Result<Option<Block>> {
        if let Some(found) = self.read_at_hand(blkid, options)? {
            return Ok(found);
        }
        let bp = self.bp(Level(0), blkid, options)?;
        if bp.is_hole() {
            return Ok(None);
        }
        let note = |came| self.note(blkid, came, options);
        let ask = ReadHooks { told: Some(&note), ..ReadHooks::default() };
        let block = self.home.cache.read_asking(&bp, &self.bookmark(Level(0), blkid), ask, options)?;
        self.check_size(block.len(), blkid)?;
        Ok(Some(block))
    }

    /// Notes how a read got a data block, unless the read yields to foreground I/O or is of an
    /// older state: what is read ahead does not yield, and is of the newest one.
    fn note(&self, blkid: BlkId, came: BlockOrigin, options: &ReadOptions) {
        if !options.request.is_paced() && !options.has(IoFlags::MAY_BE_FREED) {
            zfetch::note(self, blkid.0, came);
        }
    }

    /// A tree of its own with the same pointers, for prefetch.
    pub(crate) fn detached(&self) -> BlockTree {
        BlockTree::new(self.home.clone(), self.object, self.phys.clone())
    }

    /// True if both have the same pointers.
    pub(crate) fn is_like(&self, other: &BlockTree) -> bool {
        let (a, b) = (&self.phys, &other.phys);
        a.blkptrs == b.blkptrs && (a.nlevels, a.datablksz) == (b.nlevels, b.datablksz)
    }

    /// As [`BlockTree::block`], but only as far as the cache holds the block, without the zeros at
    /// its end.
    pub(crate) fn block_sparse(&self, blkid: BlkId, options: &ReadOptions) -> Result<Option<Sparse>> {
        let bp = self.bp(Level(0), blkid, options)?;
        if bp.is_hole() {
            return Ok(None);
        }
        let note = |came| self.note(blkid, came, options);
        let ask = ReadHooks { told: Some(&note), ..ReadHooks::default() };
        let block = self.home.cache.read_sparse_asking(&bp, &self.bookmark(Level(0), blkid), ask, options)?;
        self.check_size(block.len(), blkid)?;
        Ok(Some(block))
    }

    /// Drops the first data blocks of the object from the cache, as many as a small object has.
    pub(crate) fn let_go(&self, options: &ReadOptions) {
        for blkid in (0..=self.phys.maxblkid.0.min(LET_GO_MAX)).map(BlkId) {
            // A block that can't be read was not in the cache.
            let Ok(bp) = self.bp(Level(0), blkid, options) else { return };
            self.home.cache.let_go(&bp, self.home.id);
        }
    }

    /// As [`BlockTree::block`], but encrypted blocks stay encrypted.
    pub(crate) fn block_undecrypted(&self, blkid: BlkId, options: &ReadOptions) -> Result<Option<Block>> {
        let bp = self.bp(Level(0), blkid, options)?;
        if bp.is_hole() {
            return Ok(None);
        }
        let bookmark = self.bookmark(Level(0), blkid);
        let block = self.home.cache.zio().read_undecrypted(&bp, &bookmark, options)?;
        self.check_size(block.len(), blkid)?;
        Ok(Some(block))
    }

    /// The spill block, if there is one.
    ///
    /// # Errors
    /// * [`Error::Read`]: the block can't be read.
    pub(crate) fn spill(&self, options: &ReadOptions) -> Result<Option<Block>> {
        match &self.phys.spill {
            Some(bp) if !bp.is_hole() => {
                Ok(Some(self.home.cache.read(bp, &self.bookmark(Level(0), SPILL_BLKID), options)?))
            }
            _ => Ok(None),
        }
    }

    /// The first block from `from` on that is, or is not, a hole, for a walk that has visited some
    /// of the tree before.
    pub(crate) fn next_block(
        &self,
        from: BlkId,
        want: Extent,
        visited: &mut Visited,
        options: &ReadOptions,
    ) -> std::result::Result<Option<BlkId>, Blocked> {
        let phys = &self.phys;
        let top = Level(phys.nlevels - 1);
        for (i, bp) in phys.blkptrs.iter().enumerate() {
            let Some(first) = first_below(i as u64, phys.span_shift(top)) else { break };
            let last = first_below(i as u64 + 1, phys.span_shift(top)).map_or(u64::MAX, |n| n - 1);
            if from.0 > last {
                continue;
            }
            let bp = self
                .check_place(*bp, top, BlkId(i as u64))
                .map_err(|e| self.blocked(top, BlkId(i as u64), e))?;
            if let Some(found) =
                self.search(&bp, (top, BlkId(i as u64)), BlkId(from.0.max(first)), want, visited, options)?
            {
                return Ok(Some(found).filter(|f| *f <= self.phys.maxblkid || want == Extent::Hole));
            }
        }
        Ok(None)
    }

    /// Searches below the pointer to block `blkid` of `level`.
    ///
    /// The recursion is as deep as the dnode has levels. No indirect block is read for two places.
    fn search(
        &self,
        bp: &Blkptr,
        (level, blkid): (Level, BlkId),
        from: BlkId,
        want: Extent,
        visited: &mut Visited,
        options: &ReadOptions,
    ) -> std::result::Result<Option<BlkId>, Blocked> {
        if bp.is_hole() {
            return Ok((want == Extent::Hole).then_some(from));
        }
        if level.0 == 0 {
            return Ok((want == Extent::Data).then_some(from));
        }
        let epbs = self.phys.epbs();
        let below = Level(level.0 - 1);
        let shift = self.phys.span_shift(below);
        let blocked = |error| self.blocked(level, blkid, error);
        visited.note(bp, level, blkid).map_err(|e| blocked(self.corrupt(e)))?;
        let block = self.read_indirect(bp, level, blkid, options).map_err(blocked)?;
        // No block number is so high, so nothing is there.
        let Some(base) = first_below(blkid.0, epbs) else { return Ok(None) };
        let start = from.0.checked_shr(shift).unwrap_or(0).max(base);
        let held = base.saturating_add(block.head().len() as u64 >> BLKPTR_SHIFT);
        for child in start..base.saturating_add(1 << epbs) {
            if child >= held && want == Extent::Data {
                break;
            }
            let Some(first) = first_below(child, shift) else { break };
            let child_bp =
                self.entry(&block, below, BlkId(child)).map_err(|e| self.blocked(below, BlkId(child), e))?;
            let child_from = BlkId(from.0.max(first));
            let found = self.search(&child_bp, (below, BlkId(child)), child_from, want, visited, options)?;
            if let Some(found) = found {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }
}

/// The first block of a lower level below block `n`. `None` if no number is so high.
///
/// A block of `n`'s level spans `1 << shift` blocks of the lower level.
pub(crate) fn first_below(n: u64, shift: u32) -> Option<u64> {
    if n == 0 { Some(0) } else { 1u64.checked_shl(shift).and_then(|span| n.checked_mul(span)) }
}
