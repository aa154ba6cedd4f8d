//! The damaged blocks that the pool knows: their number, and the objects and datasets that hold
//! them.
//!
//! # Theory
//! A damaged block is found once, in one dataset. Snapshots, clones of these and snapshots of the
//! clones may hold it too. With the feature `head_errlog` the log records the block's birth, and a
//! query finds the datasets that hold it. A dataset holds the block if the block at the same place
//! of the same object has the same birth.
//!
//! The search begins with the oldest file system that may hold the block. It goes through the
//! snapshots of that one, and on through their clones. Without the feature only the dataset is
//! known in which the block was found.
//!
//! A block that no dataset holds any more is no damage: the next txg removes it from the logs
//! ([`Holders::None`]). An entry stays if damage on the way to its block leaves the answer open.
//!
//! # See
//! OpenZFS `spa_get_errlog`, `check_filesystem`, `spa_approx_errlog_size`.

use std::cell::Cell;
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use dsl::Heads;
use ondisk::dsl::{DslDatasetPhys, DslDirPhys};
use ondisk::scan::ErrBookmark;
use ondisk::{BlkId, Blkptr, Level, ObjNum, Txg};
use pool::Mos;
use zio::Bookmark;

/// The feature by which error logs name the head datasets of blocks.
pub(crate) const HEAD_ERRLOG: &str = "com.delphix:head_errlog";

/// The datasets that hold a damaged block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Holders {
    /// These datasets; the first is the one in which it was found, if that is known.
    These(Vec<u64>),
    /// The block is freed, or will be.
    None,
}

/// What a search for holders needs.
pub(crate) struct Search<'a> {
    mos: &'a Mos,
    /// Open head datasets, whose state in memory counts.
    heads: Option<&'a Heads>,
}

/// What an entry's place in a dataset holds.
enum At {
    /// A block.
    Block(Box<Blkptr>),
    /// Nothing.
    Nothing,
    /// The block can't be read for damage on the way to it.
    Unknown,
}

impl<'a> Search<'a> {
    /// A search of what is on disk.
    pub(crate) fn on_disk(mos: &'a Mos) -> Search<'a> {
        Search { mos, heads: None }
    }

    /// A search of what is on disk, and in memory for these open head datasets.
    pub(crate) fn with_heads(mos: &'a Mos, heads: &'a Heads) -> Search<'a> {
        Search { mos, heads: Some(heads) }
    }

    /// The object set of a dataset, with the MOS's read options.
    fn open(&self, object: u64, root: &Blkptr) -> dmu::Result<dmu::Objset> {
        let cache = Arc::clone(self.mos.objset().cache());
        dmu::Objset::open(cache, object, root, self.mos.options().clone())
    }

    /// `None` if the object is not a dataset, or no longer one.
    fn dataset(&self, object: u64) -> pool::Result<Option<DslDatasetPhys>> {
        match self.mos.objset().dnode(ObjNum(object)) {
            Ok(dnode) if dnode.bonus_kind() == ondisk::DmuType::DSL_DATASET => {
                let corrupt = |source| pool::Error::Corrupt { object: ObjNum(object), source };
                DslDatasetPhys::decode(dnode.bonus()).map(Some).map_err(corrupt)
            }
            Ok(_) | Err(dmu::Error::NoSuchObject { .. }) => Ok(None),
            Err(e) => Err(e.into()),
        }
    }

    /// The head of the directory of a dataset; `None` if there is no such dataset (`get_head_ds`).
    pub(crate) fn head_of(&self, objset: u64) -> pool::Result<Option<u64>> {
        let Some(ds) = self.dataset(objset)? else { return Ok(None) };
        let dnode = self.mos.objset().dnode(ObjNum(ds.dir_obj))?;
        let corrupt = |source| pool::Error::Corrupt { object: ObjNum(ds.dir_obj), source };
        let dir = DslDirPhys::decode(dnode.bonus()).map_err(corrupt)?;
        Ok(Some(dir.head_dataset_obj).filter(|head| *head != 0))
    }

    /// What a dataset holds at the place of an entry (`find_birth_txg`).
    fn at(&self, object: u64, ds: &DslDatasetPhys, e: &ErrBookmark) -> At {
        let live = self.heads.and_then(|heads| heads.get(object, self.mos.options()));
        let os = match live {
            Some(os) => Ok(os),
            None if ds.bp.is_hole() => return At::Nothing,
            None => self.open(object, &ds.bp),
        };
        let dnode = match os.and_then(|os| os.dnode_undecrypted(ObjNum(e.object))) {
            Ok(dnode) => dnode,
            Err(dmu::Error::NoSuchObject { .. }) => return At::Nothing,
            Err(_) => return At::Unknown,
        };
        let Ok(level) = u8::try_from(e.level) else { return At::Unknown };
        let bp = if e.blkid == dmu::SPILL_BLKID.0 && level == 0 {
            Ok(dnode.phys().spill.unwrap_or(Blkptr::HOLE))
        } else if level >= dnode.phys().nlevels {
            return At::Nothing;
        } else {
            dnode.bp(Level(level), BlkId(e.blkid))
        };
        match bp {
            Ok(bp) if bp.is_hole() => At::Nothing,
            Ok(bp) => At::Block(Box::new(bp)),
            Err(_) => At::Unknown,
        }
    }

    /// The head of the oldest directory whose snapshots may hold a block of that birth
    /// (`find_top_affected_fs`).
    fn oldest(&self, head: u64, birth: u64) -> pool::Result<u64> {
        let (mut oldest, mut last) = (head, u64::MAX);
        while let Some(ds) = self.dataset(oldest)? {
            // Each step goes back in time, so a damaged chain cannot loop.
            if ds.prev_snap_obj == 0 || ds.prev_snap_txg < birth || ds.prev_snap_txg >= last {
                break;
            }
            (oldest, last) = (ds.prev_snap_obj, ds.prev_snap_txg);
        }
        Ok(self.head_of(oldest)?.unwrap_or(head))
    }

    /// The holders of an entry's block. If the answer stays open for a dataset and no other holds
    /// it, the dataset in which it was found.
    ///
    /// # Errors
    /// * [`pool::Error`]: the MOS cannot be read.
    pub(crate) fn holders(&self, e: &ErrBookmark) -> pool::Result<Holders> {
        // Only the object set knows its blocks of dnodes, and the MOS has no snapshots.
        let known = e.birth.filter(|birth| *birth != 0 && e.objset != 0 && e.object != 0);
        let Some(birth) = known.map(Txg) else { return Ok(Holders::These(vec![e.objset])) };
        let Some(head) = self.head_of(e.objset)? else { return Ok(Holders::None) };
        let (mut found, doubt) = (Vec::new(), Cell::new(false));
        let mut seen = BTreeSet::new();
        let mut queue = VecDeque::from([self.oldest(head, birth.0)?]);
        while let Some(head) = queue.pop_front() {
            if seen.insert(head) {
                self.in_directory(head, e, birth, &doubt, &mut found, &mut queue)?;
            }
        }
        Ok(match (found.is_empty(), doubt.get()) {
            (false, _) => Holders::These(found),
            (true, true) => Holders::These(vec![e.objset]),
            (true, false) => Holders::None,
        })
    }

    /// Searches a head and the snapshots of its directory; queues the heads of their clones.
    fn in_directory(
        &self,
        head: u64,
        e: &ErrBookmark,
        birth: Txg,
        doubt: &Cell<bool>,
        found: &mut Vec<u64>,
        queue: &mut VecDeque<u64>,
    ) -> pool::Result<()> {
        let Some(ds) = self.dataset(head)? else { return Ok(()) };
        let has = |object: u64, ds: &DslDatasetPhys| match self.at(object, ds, e) {
            At::Block(bp) => bp.birth == birth,
            At::Nothing => false,
            At::Unknown => {
                doubt.set(true);
                object == e.objset
            }
        };
        // What the head still holds, all snapshots since its birth hold.
        let still = has(head, &ds);
        if still {
            found.push(head);
        }
        let dir = ds.dir_obj;
        let (mut at, mut txg, mut last) = (ds.prev_snap_obj, ds.prev_snap_txg, u64::MAX);
        while at != 0 && txg >= birth.0 && txg < last {
            let Some(snap) = self.dataset(at)?.filter(|snap| snap.dir_obj == dir) else { break };
            if still || has(at, &snap) {
                found.push(at);
                if snap.next_clones_obj != 0 {
                    for next in self.mos.entries(ObjNum(snap.next_clones_obj))? {
                        let next = next?.value.first().unwrap_or(0);
                        queue.extend(self.head_of(next)?.filter(|clone| *clone != head));
                    }
                }
            }
            last = txg;
            (at, txg) = (snap.prev_snap_obj, snap.prev_snap_txg);
        }
        Ok(())
    }

    /// The pointer to an entry's block, by a dataset or (0) the MOS. `None` if there is no block,
    /// or the way to it can't be read.
    pub(crate) fn pointer(&self, objset: u64, e: &ErrBookmark) -> Option<Blkptr> {
        if objset == 0 {
            let dnode = self.mos.objset().dnode(ObjNum(e.object)).ok()?;
            let level = u8::try_from(e.level).ok()?;
            return dnode.bp(Level(level), BlkId(e.blkid)).ok().filter(|bp| !bp.is_hole());
        }
        let ds = self.dataset(objset).ok()??;
        match self.at(objset, &ds, e) {
            At::Block(bp) => Some(*bp),
            At::Nothing | At::Unknown => None,
        }
    }

    /// The pointers to the blocks that are at a place now. An object set's own block and its first
    /// block of dnodes have the same place.
    pub(crate) fn blocks(&self, at: &Bookmark) -> Vec<Blkptr> {
        if at.object.0 != 0 {
            return self.pointer(at.objset, &self.entry(at, Txg(0), false)).into_iter().collect();
        }
        let (own, dnodes) = if at.objset == 0 {
            (None, Some(self.mos.objset().meta_dnode()))
        } else {
            let Ok(Some(ds)) = self.dataset(at.objset) else { return Vec::new() };
            let os = self.open(at.objset, &ds.bp);
            (Some(ds.bp), os.ok().map(|os| os.meta_dnode()))
        };
        let own = own.filter(|_| (at.level, at.blkid) == (Level(0), BlkId(0)));
        let dnodes = dnodes.filter(|dnodes| at.level.0 < dnodes.phys().nlevels);
        let below = dnodes.and_then(|dnodes| dnodes.bp(at.level, at.blkid).ok());
        own.into_iter().chain(below).filter(|bp| !bp.is_hole()).collect()
    }

    /// An entry of the old form in the new one; `None` if the block is gone
    /// (`sync_upgrade_errlog`).
    pub(crate) fn with_birth(&self, e: &ErrBookmark) -> Option<ErrBookmark> {
        let known = |birth| Some(ErrBookmark { birth: Some(birth), ..*e });
        if e.objset == 0 || e.object == 0 {
            return known(0);
        }
        let ds = self.dataset(e.objset).ok()??;
        let head = self.head_of(e.objset).ok()??;
        let birth = match self.at(e.objset, &ds, e) {
            At::Block(bp) => bp.birth.0,
            At::Nothing => return None,
            At::Unknown => 0,
        };
        Some(ErrBookmark { objset: head, birth: Some(birth), ..*e })
    }

    /// The log entry of a damaged block; with `by_head`, it names the head dataset and the birth.
    pub(crate) fn entry(&self, met: &Bookmark, birth: Txg, by_head: bool) -> ErrBookmark {
        let old = ErrBookmark {
            objset: met.objset,
            object: met.object.0,
            level: i64::from(met.level.0),
            blkid: met.blkid.0,
            birth: None,
        };
        if !by_head {
            return old;
        }
        // If the head can't be found, the entry names the dataset in which the block was found.
        let head = self.head_of(met.objset).ok().flatten().unwrap_or(met.objset);
        ErrBookmark { objset: head, birth: Some(birth.0), ..old }
    }
}
