//! Freeing the blocks of destroyed datasets, a part in each txg.
//!
//! # Theory
//! Two lists are in the MOS: blocks of destroyed snapshots (`free_bpobj`), and trees of destroyed
//! heads (`bptree_obj`).
//!
//! A tree is walked children first, and the walk records the first block that it has not freed. So
//! the next txg, the next import, or OpenZFS goes on there. Blocks born at or before the tree's
//! birth txg belong to its origin, with everything below them.
//!
//! # On disk
//! The trees are an array of entries of 168 bytes: block pointer, birth txg, and the resume
//! position as four words. The bonus says which entries are left, and what space they have
//! (`bptree_phys_t`).
//!
//! # Crash
//! The frees and the resume position are of one txg. If it does not reach the disk, neither has
//! happened.

use crate::account::Delta;
use crate::mos_objects::{DropEntry, words};
use crate::sync::Syncing;
use crate::{Error, Result};
use device::Block;
use dmu::{Dnode, NewObject};
use ondisk::blkptr::{BLKPTR_SHIFT, BLKPTR_SIZE};
use ondisk::bytes::le64;
use ondisk::dnode::{DNODE_MIN_SIZE, DnodePhys};
use ondisk::dsl::{DdUsed, DslDatasetPhys};
use ondisk::mos::{BPTREE_OBJ, DIRECTORY_OBJECT};
use ondisk::objset::ObjsetPhys;
use ondisk::{BlkId, Blkptr, Corrupt, DmuType, Level, ObjNum};
use zio::{Bookmark, IoFlags};

const ASYNC: &str = "async_destroy";
/// Bytes of an entry (`bptree_entry_phys_t`).
const ENTRY: u64 = 168;
/// The object set in a resume position, whose dataset is gone (`ZB_DESTROYED_OBJSET`).
const DESTROYED: u64 = u64::MAX;

/// A tree to free.
#[derive(Debug, Clone, Copy)]
struct Entry {
    bp: Blkptr,
    birth: u64,
    /// The first block that is not freed; all zeros at the start.
    next: WalkPosition,
}

/// A block's position in a tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct WalkPosition {
    object: u64,
    level: u64,
    blkid: u64,
}

/// The order in which the walk frees blocks: after everything below them.
type Rank = (u64, u64, u64);

impl Entry {
    fn decode(raw: &[u8], object: ObjNum) -> Result<Entry> {
        let bp = Blkptr::decode(raw).map_err(Error::corrupt(object))?;
        let w = |i: usize| le64(raw, BLKPTR_SIZE + i * 8);
        let next = WalkPosition { object: w(2), level: w(3), blkid: w(4) };
        Ok(Entry { bp, birth: w(0), next })
    }

    fn encode(&self) -> [u8; ENTRY as usize] {
        let mut out = [0; ENTRY as usize];
        out[..BLKPTR_SIZE].copy_from_slice(&self.bp.encode());
        let n = self.next;
        let objset = if n == WalkPosition::default() { 0 } else { DESTROYED };
        for (i, w) in [self.birth, objset, n.object, n.level, n.blkid].into_iter().enumerate() {
            let at = BLKPTR_SIZE + i * 8;
            out[at..at + 8].copy_from_slice(&w.to_le_bytes());
        }
        out
    }
}

/// The bonus of the list (`bptree_phys_t`).
#[derive(Debug, Clone, Copy, Default)]
struct Header {
    begin: u64,
    end: u64,
    bytes: u64,
    comp: u64,
    uncomp: u64,
}

impl Header {
    fn of(dn: &Dnode) -> Result<Header> {
        let b = dn.bonus();
        if b.len() < 40 {
            let source = Corrupt::Truncated { what: "tree list", need: 40, have: b.len() };
            return Err(Error::Corrupt { object: dn.object(), source });
        }
        let w = |i: usize| le64(b, i * 8);
        Ok(Header { begin: w(0), end: w(1), bytes: w(2), comp: w(3), uncomp: w(4) })
    }

    fn encode(&self) -> Vec<u8> {
        [self.begin, self.end, self.bytes, self.comp, self.uncomp]
            .iter()
            .flat_map(|w| w.to_le_bytes())
            .collect()
    }

    fn less(&mut self, d: Delta) {
        self.bytes = self.bytes.wrapping_add_signed(-d.used);
        self.comp = self.comp.wrapping_add_signed(-d.comp);
        self.uncomp = self.uncomp.wrapping_add_signed(-d.uncomp);
    }
}

/// How a walk ended.
enum End {
    /// The whole tree is freed.
    Done,
    /// The budget is used up; the next walk starts here.
    Pause(WalkPosition),
}

/// A walk over one tree.
struct Walk<'a, 'b> {
    s: &'a mut Syncing<'b>,
    birth: u64,
    resume: Option<Rank>,
    budget: &'a mut u64,
    freed: Delta,
    /// Where the budget was used up.
    pause: Option<WalkPosition>,
    /// Where the walk failed: everything before is freed.
    stuck: Option<WalkPosition>,
    /// Blocks left before the walk must be going in circles.
    steps: u64,
}

impl Syncing<'_> {
    /// Puts the tree of a destroyed head on the list; its space becomes `$FREE`'s
    /// (`dsl_async_dataset_destroy`).
    pub(crate) fn free_tree_later(&mut self, dir: u64, ds: &DslDatasetPhys) -> Result<()> {
        let d = self.dir(dir)?;
        let used = Delta {
            used: d.used_bytes as i64,
            comp: d.compressed_bytes as i64,
            uncomp: d.uncompressed_bytes as i64,
        };
        if !self.feature_enabled(ASYNC)? {
            return self.free_tree_now(dir, ds, used);
        }
        if !ds.bp.is_hole() {
            let list = self.tree_list()?;
            let dn = self.mos().objset().dnode(list)?;
            let mut h = Header::of(&dn)?;
            let entry = Entry { bp: ds.bp, birth: ds.prev_snap_txg, next: WalkPosition::default() };
            dn.write_at(self.tx, h.end * ENTRY, &entry.encode())?;
            h.end += 1;
            h.less(-used);
            dn.set_bonus(self.tx, DmuType::UINT64_METADATA, &h.encode())?;
        }
        self.diduse(dir, DdUsed::Head, -used)?;
        let free_dir = self.special_dir("$FREE")?;
        self.diduse(free_dir, DdUsed::Head, used)
    }

    /// Frees a whole tree in this txg, in pools without a list of trees
    /// (`old_synchronous_dataset_destroy`).
    ///
    /// Blocks behind one that can't be read stay allocated.
    fn free_tree_now(&mut self, dir: u64, ds: &DslDatasetPhys, used: Delta) -> Result<()> {
        self.diduse(dir, DdUsed::Head, -used)?;
        if ds.bp.is_hole() {
            return Ok(());
        }
        let entry = Entry { bp: ds.bp, birth: ds.prev_snap_txg, next: WalkPosition::default() };
        let mut budget = u64::MAX;
        if let (Err((_, error)), _) = self.free_tree(&entry, &mut budget) {
            self.log("destroy", "", dir, format!("what can't be read stays allocated: {error}"));
        }
        Ok(())
    }

    /// The list of trees, created on first use.
    fn tree_list(&mut self) -> Result<ObjNum> {
        if let Some(list) = self.mos().dir(BPTREE_OBJ)? {
            return Ok(list);
        }
        let spec = NewObject {
            block_size: ondisk::SPA_OLD_MAXBLOCKSIZE as u32,
            ..NewObject::new(DmuType::UINT64_METADATA)
                .with_bonus(DmuType::UINT64_METADATA, Header::default().encode())
        };
        let list = self.mos().objset().create_object(self.tx, &spec)?.object();
        self.feature_count(ASYNC, 1)?;
        let value = words(&[list.0]);
        self.zap(DIRECTORY_OBJECT)?.add(self.tx, BPTREE_OBJ.as_bytes(), &value)?;
        Ok(list)
    }

    /// Whether destroyed datasets have blocks to free.
    ///
    /// # Errors
    /// * [Reading](Error#reading): the MOS directory or the list of blocks can't be read.
    pub fn has_to_free(&self) -> Result<bool> {
        Ok(self.mos().dir(BPTREE_OBJ)?.is_some() || self.free_list_is_waiting()?)
    }

    /// Frees up to `budget` blocks of destroyed datasets, and returns how many
    /// (`dsl_process_async_destroys`).
    ///
    /// It must run in the first pass of a txg, when [`Syncing::has_to_free`] is true.
    ///
    /// # Errors
    /// * [Writing](Error#writing): a list can't be read or changed.
    ///
    /// A tree that can't be read is no error. It stays on the list, and the trees behind it are
    /// freed.
    pub fn free_destroyed(&mut self, mut budget: u64) -> Result<u64> {
        let given = budget;
        let freed = self.free_from_list(&mut budget)?;
        let dir = self.special_dir("$FREE")?;
        self.diduse(dir, DdUsed::Head, -freed)?;
        if let Some(list) = self.mos().dir(BPTREE_OBJ)? {
            self.free_trees(list, dir, &mut budget)?;
        }
        Ok(given - budget)
    }

    fn free_trees(&mut self, list: ObjNum, dir: u64, budget: &mut u64) -> Result<()> {
        let dn = self.mos().objset().dnode(list)?;
        let mut h = Header::of(&dn)?;
        let mut stalled = false;
        for i in h.begin..h.end {
            if *budget == 0 {
                break;
            }
            let mut raw = [0; ENTRY as usize];
            dn.read_at(i * ENTRY, &mut raw)?;
            let mut entry = Entry::decode(&raw, list)?;
            let (end, freed) = self.free_tree(&entry, budget);
            h.less(freed);
            self.diduse(dir, DdUsed::Head, -freed)?;
            match end {
                Ok(End::Done) if stalled => entry.birth = u64::MAX,
                Ok(End::Done) => {
                    h.begin = i + 1;
                    dn.free_range(self.tx, i * ENTRY, ENTRY)?;
                    continue;
                }
                Ok(End::Pause(place)) => {
                    entry.next = place;
                    dn.write_at(self.tx, i * ENTRY, &entry.encode())?;
                    break;
                }
                Err((place, _)) => {
                    // A later txg tries it again; the trees behind it need not wait.
                    entry.next = place;
                    stalled = true;
                }
            }
            dn.write_at(self.tx, i * ENTRY, &entry.encode())?;
        }
        if h.begin < h.end {
            dn.set_bonus(self.tx, DmuType::UINT64_METADATA, &h.encode())?;
            return Ok(());
        }
        self.mos().objset().free_object(self.tx, list)?;
        self.zap(DIRECTORY_OBJECT)?.drop_entry(self.tx, BPTREE_OBJ.as_bytes())?;
        self.feature_count(ASYNC, -1)
    }

    /// Walks one tree; returns how the walk ended, and the freed space.
    ///
    /// A failure has the position to resume at.
    fn free_tree(
        &mut self,
        entry: &Entry,
        budget: &mut u64,
    ) -> (std::result::Result<End, (WalkPosition, Error)>, Delta) {
        let resume = (entry.next != WalkPosition::default()).then_some(entry.next);
        let steps = self.mos().objset().cache().zio().walk_limit();
        let mut w = Walk {
            s: self,
            birth: entry.birth,
            resume: None,
            budget,
            freed: Delta::default(),
            pause: None,
            stuck: None,
            steps,
        };
        let r = w.objset(&entry.bp, resume);
        let (pause, freed) = (w.pause, w.freed);
        let end = match (r, pause) {
            (Err(e), _) => Err((w.stuck.unwrap_or(entry.next), e)),
            (Ok(()), Some(place)) => Ok(End::Pause(place)),
            (Ok(()), None) => Ok(End::Done),
        };
        (end, freed)
    }
}

/// Dnodes in a block of the meta dnode, as a shift (`DNODES_PER_BLOCK_SHIFT`).
const DNODES_SHIFT: u32 = 5;

/// The rank of a block.
fn rank(place: WalkPosition, epbs: u32) -> Rank {
    let end = |shift: u32| {
        let n = u128::from(place.blkid) + 1;
        u64::try_from(n << shift.min(64)).unwrap_or(u64::MAX)
    };
    let level = place.level.min(63) as u32;
    if place.object == 0 {
        // A block of dnodes comes after the last object in it.
        (end(level * epbs + DNODES_SHIFT) - 1, u64::MAX, place.level)
    } else {
        (place.object, end(level * epbs), place.level)
    }
}

/// The first data block below a block: the position to resume at if the block can't be read.
fn first_below(place: WalkPosition, epbs: u32) -> WalkPosition {
    let n = u128::from(place.blkid) << (place.level.min(63) as u32 * epbs).min(64);
    let first = u64::try_from(n).unwrap_or(u64::MAX);
    if place.object == 0 {
        // Object 0 is the dnodes themselves.
        return WalkPosition { object: (first << DNODES_SHIFT).max(1), level: 0, blkid: 0 };
    }
    WalkPosition { blkid: first, level: 0, ..place }
}

impl Walk<'_, '_> {
    fn bookmark(place: WalkPosition) -> Bookmark {
        Bookmark {
            objset: DESTROYED,
            object: ObjNum(place.object),
            level: Level(place.level as u8),
            blkid: BlkId(place.blkid),
        }
    }

    /// Frees a block, unless the budget is used up; false stops the walk.
    ///
    /// The walk stops at data only, as OpenZFS's does.
    fn free(&mut self, bp: &Blkptr, place: WalkPosition, may_pause: bool) -> Result<bool> {
        if *self.budget == 0 && may_pause {
            self.pause = Some(place);
            return Ok(false);
        }
        *self.budget = self.budget.saturating_sub(1);
        self.freed += Delta::of(bp, (self.s.env.dsize)(bp));
        if bp.stored().is_some() {
            self.s.mos().objset().cache().free(self.s.tx.txg(), bp, None).map_err(dmu::Error::from)?;
        }
        Ok(true)
    }

    /// Whether a block is a hole, belongs to the origin, or was freed before.
    fn skips(&self, bp: &Blkptr, r: Rank) -> bool {
        bp.is_hole() || bp.birth.0 <= self.birth || self.resume.is_some_and(|at| r < at)
    }

    fn read(&self, bp: &Blkptr, place: WalkPosition) -> Result<Block> {
        let zio = self.s.mos().objset().cache().zio();
        // A damaged tree stays on the list, and the txg must not wait for it.
        let options = self.s.mos().options().with(IoFlags::CAN_FAIL);
        let read = zio.read_undecrypted(bp, &Self::bookmark(place), &options).map_err(dmu::Error::from)?;
        Ok(read)
    }

    fn objset(&mut self, root: &Blkptr, resume: Option<WalkPosition>) -> Result<()> {
        let place = WalkPosition::default();
        if root.is_hole() || root.birth.0 <= self.birth {
            return Ok(());
        }
        let block = self.read(root, place)?;
        let os = ObjsetPhys::decode(&block).map_err(Error::corrupt(ObjNum(0)))?;
        if let Some(at) = resume {
            // Positions are at level 0 or in the meta dnode, so only its shift matters.
            self.resume = Some(rank(at, os.meta_dnode.epbs()));
        }
        if !self.dnode(0, &os.meta_dnode)? {
            return Ok(());
        }
        for (object, d) in [
            (dmu::DMU_PROJECTUSED_OBJECT, &os.projectused),
            (dmu::DMU_GROUPUSED_OBJECT, &os.groupused),
            (dmu::DMU_USERUSED_OBJECT, &os.userused),
        ] {
            if let Some(d) = d
                && !self.dnode(object.0, d)?
            {
                return Ok(());
            }
        }
        self.free(root, place, false).map(|_| ())
    }

    /// Frees the blocks of an object; false if the walk stopped.
    fn dnode(&mut self, object: u64, d: &DnodePhys) -> Result<bool> {
        let level = u64::from(d.nlevels - 1);
        for (i, bp) in d.blkptrs.iter().enumerate() {
            if !self.tree(bp, WalkPosition { object, level, blkid: i as u64 }, d)? {
                return Ok(false);
            }
        }
        let Some(bp) = &d.spill else { return Ok(true) };
        let place = WalkPosition { object, level: 0, blkid: dmu::SPILL_BLKID.0 };
        let r = (object, u64::MAX, 0);
        Ok(self.skips(bp, r) || self.free(bp, place, true)?)
    }

    /// Frees a block and everything below it; false if the walk stopped.
    fn tree(&mut self, bp: &Blkptr, place: WalkPosition, d: &DnodePhys) -> Result<bool> {
        if self.skips(bp, rank(place, d.epbs())) {
            return Ok(true);
        }
        let done = self.below(bp, place, d).inspect_err(|_| {
            self.stuck.get_or_insert_with(|| first_below(place, d.epbs()));
        })?;
        Ok(done && self.free(bp, place, place.level == 0 && place.object != 0)?)
    }

    /// Frees everything below a block; false if the walk stopped.
    fn below(&mut self, bp: &Blkptr, place: WalkPosition, d: &DnodePhys) -> Result<bool> {
        let circle = Corrupt::Shape { what: "block tree", why: "it goes in circles" };
        let left = self.steps.checked_sub(1);
        self.steps = left.ok_or(Error::Corrupt { object: ObjNum(place.object), source: circle })?;
        if place.level > 0 {
            if u64::from(bp.level.0) != place.level {
                let source = Corrupt::Shape { what: "block pointer", why: "it is out of place" };
                return Err(Error::Corrupt { object: ObjNum(place.object), source });
            }
            let block = self.read(bp, place)?;
            let bad = Error::corrupt(ObjNum(place.object));
            let first = place.blkid.checked_shl(d.epbs()).unwrap_or(u64::MAX);
            for (i, raw) in block.chunks_exact(1 << BLKPTR_SHIFT).enumerate() {
                let child = Blkptr::decode(raw).map_err(&bad)?;
                let at =
                    WalkPosition { level: place.level - 1, blkid: first.saturating_add(i as u64), ..place };
                if !self.tree(&child, at, d)? {
                    return Ok(false);
                }
            }
        } else if place.object == 0 {
            let block = self.read(bp, place)?;
            return self.dnodes(&block, place.blkid);
        }
        Ok(true)
    }

    /// Frees the objects of a block of dnodes; false if the walk stopped.
    fn dnodes(&mut self, block: &[u8], blkid: u64) -> Result<bool> {
        let bad = Error::corrupt(ObjNum(0));
        let mut slot = 0;
        while (slot + 1) * DNODE_MIN_SIZE <= block.len() {
            let raw = &block[slot * DNODE_MIN_SIZE..];
            let object = (blkid << DNODES_SHIFT) + slot as u64;
            if raw[0] == 0 {
                slot += 1;
                continue;
            }
            if let Some(d) = DnodePhys::decode(raw).map_err(&bad)?
                && !self.dnode(object, &d)?
            {
                return Ok(false);
            }
            slot += DnodePhys::slots(raw).map_err(&bad)?;
        }
        Ok(true)
    }
}
