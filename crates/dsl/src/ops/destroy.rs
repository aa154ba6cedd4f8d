//! Destroying snapshots, file systems and volumes.
//!
//! # Theory
//! The blocks that only a snapshot knows are on the deadlist of the dataset after it: those born
//! after the snapshot before. Their lists go whole to the pool's list of blocks to free. The rest
//! of the snapshot's own deadlist is merged into that of the dataset after it. No block is visited.
//!
//! The blocks of a head are found by walking its tree. The tree goes to the pool's list of trees to
//! free ([`crate::ops::free`]).
//!
//! Both are freed later, a part in each txg. Until then their space counts as that of the hidden
//! directory `$FREE`.

use crate::account::Delta;
use crate::error::Refusal;
use crate::links::SeenObjects;
use crate::mos_objects::{DropEntry, words};
use crate::sync::{SyncTask, Syncing, TaskNeed};
use crate::{Error, Name, Result, Tail};
use ondisk::dsl::{DS_FLAG_DEFER_DESTROY, DdUsed, DslDatasetPhys};
use ondisk::{Blkptr, Corrupt, DmuType, ObjNum, mos};

/// A feature that counts, among others, the lists of dead blocks on removed devices.
const OBSOLETE_COUNTS: &str = "obsolete_counts";
/// Blocks of a plain deadlist that are processed together.
const OLD_LIST: u64 = 10_000;

/// Destroys snapshots together, and ignores absent ones (`dsl_destroy_snapshots_nvl`).
#[derive(Debug, Clone, Default)]
pub struct DestroySnapshots {
    /// The full names.
    pub names: Vec<String>,
    /// Destroy those with holds or clones later, when the last of these is gone (`zfs destroy -d`).
    pub defer: bool,
}

impl SyncTask for DestroySnapshots {
    fn need(&self) -> TaskNeed {
        TaskNeed::FREEING
    }

    fn check(&mut self, s: &mut Syncing<'_>) -> Result<()> {
        let mut failed = Vec::new();
        for name in &self.names {
            if !matches!(Name::parse(name)?.tail, Tail::Snapshot(_)) {
                return Syncing::refuse(name, Refusal::NotSnapshot);
            }
            match s.hold_snapshot(name) {
                Err(Error::NoSuchDataset { .. }) => {}
                Err(e) => return Err(e),
                Ok((_, snap)) => match s.check_destroy_snapshot(snap, name, self.defer) {
                    Err(e @ Error::Refused { .. }) => failed.push(e),
                    r => r?,
                },
            }
        }
        match failed.len() {
            0 => Ok(()),
            1 => Err(failed.remove(0)),
            _ => Err(Error::Several(failed)),
        }
    }

    fn sync(&mut self, s: &mut Syncing<'_>) -> Result<()> {
        for full in &self.names {
            let (_, name) = full.split_once('@').expect("the check found a snapshot's name");
            match s.hold_snapshot(full) {
                Err(Error::NoSuchDataset { .. }) => {}
                Err(e) => return Err(e),
                Ok((_, snap)) => s.destroy_snapshot(snap, name, full, self.defer)?,
            }
        }
        Ok(())
    }
}

/// Destroys a file system or volume without snapshots and children (`dsl_destroy_head`).
#[derive(Debug, Clone)]
pub struct DestroyHead {
    /// The full name.
    pub name: String,
}

impl SyncTask for DestroyHead {
    fn need(&self) -> TaskNeed {
        TaskNeed::FREEING
    }

    fn check(&mut self, s: &mut Syncing<'_>) -> Result<()> {
        if Name::parse(&self.name)?.tail != Tail::Head {
            return Syncing::refuse(&self.name, Refusal::NotHead);
        }
        let head = s.hold_head(&self.name)?;
        s.check_destroy_head(head, &self.name)
    }

    fn sync(&mut self, s: &mut Syncing<'_>) -> Result<()> {
        let head = s.hold_head(&self.name)?;
        s.destroy_head(head, &self.name)
    }
}

impl Syncing<'_> {
    /// Whether a snapshot may be destroyed (`dsl_destroy_snapshot_check_impl`).
    pub(crate) fn check_destroy_snapshot(&mut self, snap: u64, name: &str, defer: bool) -> Result<()> {
        let p = self.ds(snap)?;
        if self.dsl.heads().is_busy(snap) {
            return Self::refuse(name, Refusal::Busy);
        }
        if defer {
            return Ok(());
        }
        if self.user_refs(&p)? > 0 {
            return Self::refuse(name, Refusal::Held);
        }
        if p.num_children > 1 {
            return Self::refuse(name, Refusal::HasClones);
        }
        // Clones that can't be walked must be found before anything changes.
        self.clones_after(p.dir_obj, p.creation_txg.0).map(|_| ())
    }

    /// The number of holds of a snapshot (`ds_userrefs`).
    pub(crate) fn user_refs(&self, p: &DslDatasetPhys) -> Result<u64> {
        if p.userrefs_obj == 0 { Ok(0) } else { Ok(self.zap(p.userrefs_obj)?.count()?) }
    }

    /// Destroys a snapshot, or marks it for destruction (`dsl_destroy_snapshot_sync_impl`).
    pub(crate) fn destroy_snapshot(&mut self, snap: u64, name: &str, full: &str, defer: bool) -> Result<()> {
        let ds = self.ds(snap)?;
        if defer && (self.user_refs(&ds)? > 0 || ds.num_children > 1) {
            self.ds_mut(snap)?.flags |= DS_FLAG_DEFER_DESTROY;
            self.log("defer_destroy", full, snap, String::new());
            return Ok(());
        }
        self.log("destroy", full, snap, String::new());
        let keeps_key = self.bookmarks_snapshot_destroyed(snap)?;
        self.deactivate_all(snap)?;
        let own_prev = self.unlink_from_previous(snap, &ds)?;
        let next = ds.next_snap_obj;
        let old_unique = self.ds(next)?.unique_bytes;
        let p = self.ds_mut(next)?;
        p.prev_snap_obj = ds.prev_snap_obj;
        p.prev_snap_txg = ds.prev_snap_txg;
        self.give_blocks_to_next(snap, &ds, own_prev)?;
        self.move_remapped_blocks(snap, &ds)?;
        if !keeps_key {
            self.remove_clones_key(ds.dir_obj, ds.creation_txg.0)?;
        }
        let head = self.dir(ds.dir_obj)?.head_dataset_obj;
        if self.ds(next)?.is_snapshot() {
            let after = self.ds(next)?.next_snap_obj;
            let after = self.ds(after)?.deadlist_obj;
            let shared = self.dead_between(after, ds.prev_snap_txg, ds.creation_txg.0)?;
            self.ds_mut(next)?.unique_bytes += shared.used as u64;
            if !keeps_key {
                let deadlist = self.ds(head)?.deadlist_obj;
                self.deadlist_remove_key(deadlist, ds.creation_txg.0)?;
            }
            if let Some(remap) = self.field_u64(head, mos::DS_REMAP_DEADLIST)? {
                self.deadlist_remove_key(remap, ds.creation_txg.0)?;
            }
        } else {
            self.recalc_head_unique(next)?;
            let reserved = self.refreservation(next)?;
            let unique = self.ds(next)?.unique_bytes;
            if old_unique < reserved {
                let less = unique.saturating_sub(old_unique).min(reserved - old_unique);
                let d = Delta { used: -(less as i64), ..Delta::default() };
                self.diduse(ds.dir_obj, DdUsed::Refrsrv, d)?;
            }
        }
        self.forget_snapshot(snap, &ds, head, name)
    }

    /// Unlinks a snapshot from the one before.
    ///
    /// Returns the one before if it is of the same dataset.
    fn unlink_from_previous(&mut self, snap: u64, ds: &DslDatasetPhys) -> Result<Option<u64>> {
        if ds.prev_snap_obj == 0 {
            return Ok(None);
        }
        let prev = self.ds(ds.prev_snap_obj)?;
        if prev.next_snap_obj == snap {
            self.ds_mut(ds.prev_snap_obj)?.next_snap_obj = ds.next_snap_obj;
            return Ok(Some(ds.prev_snap_obj));
        }
        // It is the first snapshot of a clone.
        if prev.next_clones_obj != 0 {
            self.zap_remove_int(prev.next_clones_obj, snap)?;
            self.zap_add_int(prev.next_clones_obj, ds.next_snap_obj)?;
        }
        Ok(None)
    }

    /// Frees the blocks that only this snapshot knows; the next one gets the rest of its deadlist.
    fn give_blocks_to_next(&mut self, snap: u64, ds: &DslDatasetPhys, own_prev: Option<u64>) -> Result<()> {
        let next = self.ds(ds.next_snap_obj)?.deadlist_obj;
        if let Some(prev) = own_prev {
            let from = self.ds(prev)?.prev_snap_txg;
            let shared = self.dead_between(next, from, ds.prev_snap_txg)?;
            self.ds_mut(prev)?.unique_bytes += shared.used as u64;
        }
        let freed = self.dead_between(next, ds.prev_snap_txg, u64::MAX)?;
        self.diduse(ds.dir_obj, DdUsed::Snap, -freed)?;
        if self.mos().deadlist(ObjNum(next))?.is_old() {
            return self.free_from_old_list(snap, ds, next);
        }
        self.deadlist_move_to_free(next, ds.prev_snap_txg)?;
        let free_dir = self.special_dir("$FREE")?;
        self.diduse(free_dir, DdUsed::Head, freed)?;
        self.deadlist_merge(next, ds.deadlist_obj)?;
        self.ds_mut(snap)?.deadlist_obj = 0;
        Ok(())
    }

    /// The same for a plain deadlist of the next dataset (`process_old_deadlist`).
    ///
    /// Then all older deadlists are plain too. Its blocks are visited one by one. Those that are
    /// not freed join the list of the destroyed snapshot, which becomes the next dataset's.
    fn free_from_old_list(&mut self, snap: u64, ds: &DslDatasetPhys, next: u64) -> Result<()> {
        let (dsize, txg) = (self.env.dsize, self.tx.txg());
        let cache = self.mos().objset().cache();
        loop {
            let mut kept = Vec::new();
            let mut each = |bp: &Blkptr, _: bool| {
                if bp.birth.0 > ds.prev_snap_txg {
                    return cache.free(txg, bp, None).map_err(|e| pool::Error::from(dmu::Error::from(e)));
                }
                kept.push(*bp);
                Ok(())
            };
            let (_, done) = self.mos().bpobj_take(self.tx, ObjNum(next), OLD_LIST, dsize, &mut each)?;
            self.deadlist_insert(ds.deadlist_obj, &kept)?;
            if done {
                break;
            }
        }
        self.ds_mut(ds.next_snap_obj)?.deadlist_obj = ds.deadlist_obj;
        self.ds_mut(snap)?.deadlist_obj = 0;
        self.deadlist_free(next)
    }

    /// The space on a deadlist of blocks born after one txg and up to another
    /// (`dsl_deadlist_space_range`).
    pub(crate) fn dead_between(&self, deadlist: u64, after: u64, to: u64) -> Result<Delta> {
        let mos = self.mos();
        let list = mos.deadlist(ObjNum(deadlist))?;
        if !list.is_old() {
            return Ok(Delta::of_list(list.space_range(mos, after, to)?));
        }
        let mut sum = Delta::default();
        mos.walk_bpobj(list.object, &mut |bp, _| {
            if bp.birth.0 > after && bp.birth.0 <= to {
                sum += Delta::of(bp, (self.env.dsize)(bp));
            }
            Ok(())
        })?;
        Ok(sum)
    }

    /// Handles blocks on removed devices (`dsl_destroy_snapshot_handle_remaps`).
    ///
    /// Those that only this snapshot knows become obsolete. The next dataset gets the rest.
    fn move_remapped_blocks(&mut self, snap: u64, ds: &DslDatasetPhys) -> Result<()> {
        let next = ds.next_snap_obj;
        if let Some(list) = self.field_u64(next, mos::DS_REMAP_DEADLIST)? {
            let obsolete = match self.mos().dir(mos::OBSOLETE_BPOBJ)? {
                Some(object) => object,
                None => {
                    let object = self.mos().create_bpobj(self.tx)?;
                    self.mos().link(self.tx, mos::OBSOLETE_BPOBJ, object)?;
                    self.feature_count(OBSOLETE_COUNTS, 1)?;
                    object
                }
            };
            let mut list = self.mos().deadlist(ObjNum(list))?;
            list.move_to(self.mos(), self.tx, obsolete, ds.prev_snap_txg)?;
        }
        let Some(mine) = self.field_u64(snap, mos::DS_REMAP_DEADLIST)? else { return Ok(()) };
        let into = match self.field_u64(next, mos::DS_REMAP_DEADLIST)? {
            Some(list) => list,
            None => {
                let p = self.ds(next)?;
                let keys = self.deadlist_keys(p.deadlist_obj, u64::MAX, p.prev_snap_obj)?;
                let list = self.deadlist_create(&keys)?;
                self.zapify(next, DmuType::DSL_DATASET)?;
                self.zap(next)?.add(self.tx, mos::DS_REMAP_DEADLIST.as_bytes(), &words(&[list]))?;
                self.feature_count(OBSOLETE_COUNTS, 1)?;
                list
            }
        };
        self.deadlist_merge(into, mine)?;
        self.zap(snap)?.drop_entry(self.tx, mos::DS_REMAP_DEADLIST.as_bytes())?;
        self.feature_count(OBSOLETE_COUNTS, -1)
    }

    /// Removes a deadlist key from all clones made after it (`dsl_dir_remove_clones_key`).
    ///
    /// No snapshot needs the key any more.
    pub(crate) fn remove_clones_key(&mut self, dir: u64, txg: u64) -> Result<()> {
        for head in self.clones_after(dir, txg)? {
            let deadlist = self.ds(head)?.deadlist_obj;
            self.deadlist_remove_key(deadlist, txg)?;
            if let Some(remap) = self.field_u64(head, mos::DS_REMAP_DEADLIST)? {
                self.deadlist_remove_key(remap, txg)?;
            }
        }
        Ok(())
    }

    /// Heads of a directory's clones, and of their clones, whose origins are later than a txg.
    ///
    /// # Errors
    /// * [`Error::Corrupt`]: a clone is above itself, though origins go back in time.
    /// * [Reading](Error#reading): a directory or dataset can't be read.
    fn clones_after(&mut self, dir: u64, txg: u64) -> Result<Vec<u64>> {
        let mut out = Vec::new();
        let mut stack = vec![dir];
        let mut visited = SeenObjects::default();
        while let Some(dir) = stack.pop() {
            visited.once(dir, "DSL directory")?;
            for head in self.clone_heads(dir)? {
                let dir = self.ds(head)?.dir_obj;
                let origin = self.dir(dir)?.origin_obj;
                if self.origin_txg(origin)? > txg {
                    out.push(head);
                    stack.push(dir);
                }
            }
        }
        Ok(out)
    }

    /// Computes the unique bytes of a head (`dsl_dataset_recalc_head_uniq`).
    ///
    /// These are all bytes that it refers to, except those that its last snapshot shares.
    pub(crate) fn recalc_head_unique(&mut self, head: u64) -> Result<()> {
        let p = self.ds(head)?;
        let prev = if p.prev_snap_obj == 0 { 0 } else { self.ds(p.prev_snap_obj)?.referenced_bytes };
        let dead = self.mos().deadlist(ObjNum(p.deadlist_obj))?.total.used;
        let bad = || Error::Corrupt {
            object: ObjNum(head),
            source: Corrupt::Shape { what: "DSL dataset", why: "more died than was there" },
        };
        let shared = prev.checked_sub(dead).ok_or_else(bad)?;
        let unique = p.referenced_bytes.checked_sub(shared).ok_or_else(bad)?;
        let accurate = super::create::accurate(self.version());
        let p = self.ds_mut(head)?;
        p.unique_bytes = unique;
        p.flags |= accurate;
        Ok(())
    }

    /// Removes the name and the objects of a snapshot.
    fn forget_snapshot(&mut self, snap: u64, ds: &DslDatasetPhys, head: u64, name: &str) -> Result<()> {
        self.adjust_counts(ds.dir_obj, -1, mos::DD_SNAPSHOT_COUNT)?;
        let names = self.ds(head)?.snapnames_zapobj;
        self.zap(names)?.drop_entry(self.tx, name.as_bytes())?;
        self.snapshots_changed(ds.dir_obj)?;
        self.clear_bootfs(snap)?;
        for object in [ds.next_clones_obj, ds.props_obj, ds.userrefs_obj] {
            if object != 0 {
                self.mos().objset().free_object(self.tx, ObjNum(object))?;
            }
        }
        self.bonuses.forget_dataset(snap);
        self.free_zapified(snap)?;
        self.dsl.heads().note_destroyed_snapshot();
        Ok(())
    }

    /// Clears the pool property `bootfs` if it names this dataset (`spa_prop_clear_bootfs`).
    fn clear_bootfs(&mut self, ds: u64) -> Result<()> {
        let Some(props) = self.mos().dir(mos::PROPS)? else { return Ok(()) };
        let zap = self.mos().zap(props)?;
        if zap.lookup_u64(b"bootfs")? == Some(ds) {
            zap.drop_entry(self.tx, b"bootfs")?;
        }
        Ok(())
    }

    /// Whether a head is the last clone of a snapshot that is marked for destruction.
    pub(crate) fn takes_origin_along(&mut self, p: &DslDatasetPhys) -> Result<bool> {
        let origin = self.dir(p.dir_obj)?.origin_obj;
        if p.prev_snap_obj == 0 || self.origin_txg(origin)? == 0 {
            return Ok(false);
        }
        let prev = self.ds(p.prev_snap_obj)?;
        Ok(prev.flags & DS_FLAG_DEFER_DESTROY != 0 && prev.num_children == 2 && self.user_refs(&prev)? == 0)
    }

    /// Whether a head may be destroyed (`dsl_destroy_head_check_impl`).
    pub(crate) fn check_destroy_head(&mut self, head: u64, name: &str) -> Result<()> {
        let p = self.ds(head)?;
        let dir = self.dir(p.dir_obj)?;
        if dir.parent_obj == 0 {
            return Self::refuse(name, Refusal::Root);
        }
        if self.dsl.heads().is_busy(head) || self.has_foreign_log(head)? {
            return Self::refuse(name, Refusal::Busy);
        }
        if p.prev_snap_obj != 0 && self.ds(p.prev_snap_obj)?.next_snap_obj == head {
            return Self::refuse(name, Refusal::HasSnapshots);
        }
        if dir.child_dir_zapobj != 0 && self.zap(dir.child_dir_zapobj)?.count()? != 0 {
            return Self::refuse(name, Refusal::HasChildren);
        }
        self.check_destroy_key(p.dir_obj, name)?;
        if self.takes_origin_along(&p)? && self.dsl.heads().is_busy(p.prev_snap_obj) {
            return Self::refuse(name, Refusal::Busy);
        }
        Ok(())
    }

    /// Destroys a head and its directory (`dsl_destroy_head_sync_impl`).
    pub(crate) fn destroy_head(&mut self, head: u64, name: &str) -> Result<()> {
        // The blocks that this txg wrote must have addresses before they can be freed.
        self.sync_head(head, 1)?;
        let p = self.ds(head)?;
        let dir = p.dir_obj;
        let origin_goes = self.takes_origin_along(&p)?;
        self.drop_livelist(dir)?;
        self.drop_refreservation(head)?;
        self.deactivate_all(head)?;
        self.log("destroy", name, head, format!("(bptree, mintxg={})", p.prev_snap_txg));
        if p.prev_snap_obj != 0 {
            let next = self.ds(p.prev_snap_obj)?.next_clones_obj;
            if next != 0 {
                self.zap_remove_int(next, head)?;
            }
            let prev = self.ds_mut(p.prev_snap_obj)?;
            prev.num_children = prev.num_children.saturating_sub(1);
        }
        self.deadlist_free(p.deadlist_obj)?;
        if let Some(remap) = self.field_u64(head, mos::DS_REMAP_DEADLIST)? {
            self.deadlist_free(remap)?;
            self.feature_count(OBSOLETE_COUNTS, -1)?;
        }
        self.free_log(head)?;
        self.free_tree_later(dir, &p)?;
        if p.prev_snap_obj != 0 {
            let origin_dir = self.ds(p.prev_snap_obj)?.dir_obj;
            let clones = self.dir(origin_dir)?.clones;
            if clones != 0 {
                self.zap_remove_int(clones, head)?;
            }
        }
        self.dsl.heads().forget(head);
        self.dsl.heads().note_settled(head);
        self.dir_mut(dir)?.head_dataset_obj = 0;
        self.mos().objset().free_object(self.tx, ObjNum(p.snapnames_zapobj))?;
        self.drop_bookmarks(head)?;
        self.clear_bootfs(head)?;
        self.bonuses.forget_dataset(head);
        self.free_zapified(head)?;
        self.destroy_dir(dir, name)?;
        self.drop_errors(head)?;
        if origin_goes {
            let full = self.snapshot_name(p.prev_snap_obj)?;
            let (_, snap) = full.split_once('@').expect("a snapshot's name has an '@'");
            self.destroy_snapshot(p.prev_snap_obj, snap, &full, false)?;
        }
        Ok(())
    }

    /// Destroys the snapshots of a head that are later than the origin of a clone.
    pub(super) fn destroy_snapshots_after(&mut self, clone: u64, head: u64) -> Result<()> {
        let origin = self.ds(clone)?.prev_snap_obj;
        loop {
            let snap = self.ds(head)?.prev_snap_obj;
            if snap == origin {
                return Ok(());
            }
            let full = self.snapshot_name(snap)?;
            let (_, name) = full.split_once('@').expect("a snapshot's name has an '@'");
            self.destroy_snapshot(snap, name, &full, false)?;
        }
    }

    /// The full name of a snapshot, by its object.
    pub(crate) fn snapshot_name(&mut self, snap: u64) -> Result<String> {
        self.flush()?;
        Ok(self.dsl.by_object(ObjNum(snap))?.name())
    }

    /// Destroys the directory of a destroyed head (`dsl_dir_destroy_sync`).
    fn destroy_dir(&mut self, dir: u64, name: &str) -> Result<()> {
        let d = self.dir(dir)?;
        self.adjust_counts(d.parent_obj, -1, mos::DD_FILESYSTEM_COUNT)?;
        self.set_dir_reserved(dir, 0)?;
        let d = self.dir(dir)?;
        if d.used_bytes != 0 {
            let source = Corrupt::Shape { what: "DSL directory", why: "it uses space, though it is empty" };
            return Err(Error::Corrupt { object: ObjNum(dir), source });
        }
        self.destroy_key(dir)?;
        let (_, tail) = name.rsplit_once('/').expect("the root directory is never destroyed");
        let map = self.dir(d.parent_obj)?.child_dir_zapobj;
        self.zap(map)?.drop_entry(self.tx, tail.as_bytes())?;
        self.free_permissions(d.deleg_zapobj)?;
        for object in [d.child_dir_zapobj, d.props_zapobj, d.clones] {
            if object != 0 {
                self.mos().objset().free_object(self.tx, ObjNum(object))?;
            }
        }
        self.bonuses.forget_dir(dir);
        self.forget_names();
        self.free_zapified(dir)
    }

    /// Frees delegated permissions, a ZAP of ZAPs (`dsl_deleg_destroy`).
    fn free_permissions(&mut self, object: u64) -> Result<()> {
        if object == 0 {
            return Ok(());
        }
        let sets = self.numbers(object)?;
        for set in sets.into_iter().filter(|o| *o != 0) {
            self.mos().objset().free_object(self.tx, ObjNum(set))?;
        }
        self.mos().objset().free_object(self.tx, ObjNum(object))?;
        Ok(())
    }

    /// Drops the logged errors of a destroyed dataset (`spa_delete_dataset_errlog`).
    fn drop_errors(&mut self, head: u64) -> Result<()> {
        if !self.feature_enabled("head_errlog")? {
            return Ok(());
        }
        self.mos().errlog_forget(self.tx, head);
        Ok(())
    }
}
