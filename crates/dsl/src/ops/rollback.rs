//! Rolling back: a head becomes a copy of its last snapshot.

use crate::account::Delta;
use crate::error::Refusal;
use crate::mos_objects::DropEntry;
use crate::sync::{SyncTask, Syncing, TaskNeed};
use crate::{Name, Result, Tail, ZFS_MAX_DATASET_NAME_LEN};
use ondisk::ObjNum;
use ondisk::dsl::DdUsed;

/// The txg that creates a pool (`TXG_INITIAL`).
const TXG_INITIAL: u64 = 4;
/// The clone that a head is exchanged with.
const TEMPORARY: &str = "%rollback";

/// Rolls a head back to its last snapshot (`dsl_dataset_rollback`).
///
/// The head must have no owner: a mount suspends itself first.
#[derive(Debug, Clone)]
pub struct Rollback {
    /// The full name of the head.
    pub name: String,
    /// The full name of the snapshot that must be the last.
    pub to: Option<String>,
}

impl SyncTask for Rollback {
    fn need(&self) -> TaskNeed {
        TaskNeed::reserved(1)
    }

    fn check(&mut self, s: &mut Syncing<'_>) -> Result<()> {
        if Name::parse(&self.name)?.tail != Tail::Head {
            return Syncing::refuse(&self.name, Refusal::NotHead);
        }
        let head = s.hold_head(&self.name)?;
        let p = s.ds(head)?;
        if p.prev_snap_txg < TXG_INITIAL {
            return Syncing::refuse(&self.name, Refusal::NoSnapshot);
        }
        s.check_last_snapshot(head, &p, &self.name)?;
        if let Some(to) = &self.to {
            let (_, snap) = s.hold_snapshot(to)?;
            if snap != p.prev_snap_obj {
                let origin = s.dir(p.dir_obj)?.origin_obj;
                let related = s.ds(snap)?.dir_obj == p.dir_obj || origin == snap;
                let why = if related { Refusal::NotLatest } else { Refusal::NoSnapshot };
                return Syncing::refuse(to, why);
            }
        }
        if s.bookmarks(head)?.last().is_some_and(|b| b.phys.creation_txg > p.prev_snap_txg) {
            return Syncing::refuse(&self.name, Refusal::NotLatest);
        }
        if s.dsl.heads().is_busy(head) {
            return Syncing::refuse(&self.name, Refusal::Busy);
        }
        let children = s.dir(p.dir_obj)?.child_dir_zapobj;
        s.check_own_entry(&self.name, children, TEMPORARY)?;
        let quota = s.own_prop(p.dir_obj, "refquota")?.unwrap_or(0);
        if quota != 0 && s.ds(p.prev_snap_obj)?.referenced_bytes > quota {
            return Syncing::refuse(&self.name, Refusal::Quota);
        }
        let temporary = format!("{}/{TEMPORARY}", self.name);
        if temporary.len() < ZFS_MAX_DATASET_NAME_LEN && s.find_dir(&temporary)?.is_some() {
            return Syncing::refuse(&self.name, Refusal::Busy);
        }
        let need = s.refreservation(head)?.min(p.unique_bytes);
        if need > 0 && need > s.available(p.dir_obj)? {
            return Syncing::refuse(&self.name, Refusal::NoSpace);
        }
        Ok(())
    }

    fn sync(&mut self, s: &mut Syncing<'_>) -> Result<()> {
        let head = s.hold_head(&self.name)?;
        s.sync_head(head, 1)?;
        s.dsl.heads().forget(head);
        let p = s.ds(head)?;
        let dir = s.create_dir(Some(p.dir_obj), TEMPORARY)?;
        let clone = s.create_dataset(dir, Some(p.prev_snap_obj), 0)?;
        s.create_counts(dir)?;
        s.swap_with_clone(clone, head)?;
        s.reset_log(head)?;
        let name = format!("{}/{TEMPORARY}", self.name);
        let parent = self.name.rsplit('/').next().unwrap_or_default();
        s.log("clone swap", &name, clone, format!("parent={parent}"));
        s.destroy_head(clone, &name)
    }
}

impl Syncing<'_> {
    /// Exchanges the contents of a clone and the head of its origin
    /// (`dsl_dataset_clone_swap_sync_impl`).
    ///
    /// Both have the same last snapshot.
    pub(crate) fn swap_with_clone(&mut self, clone: u64, head: u64) -> Result<()> {
        self.swap_features(clone, head)?;
        self.dsl.heads().forget(clone);
        self.dsl.heads().forget(head);
        let (c, h) = (self.ds(clone)?, self.ds(head)?);
        let reserved = self.refreservation(head)?;
        let unused = reserved.min(h.unique_bytes) as i64 - reserved.min(c.unique_bytes) as i64;
        let mos = self.mos();
        let (cl, hl) = (mos.deadlist(ObjNum(c.deadlist_obj))?, mos.deadlist(ObjNum(h.deadlist_obj))?);

        // The unique bytes of the last snapshot depend on the dataset after it.
        let prev = self.ds(c.prev_snap_obj)?;
        let unique = cl.space_range(mos, prev.prev_snap_txg, u64::MAX)?.used;
        self.ds_mut(c.prev_snap_obj)?.unique_bytes = unique;

        let all = |p: &ondisk::dsl::DslDatasetPhys, dead: pool::bpobj::Space| {
            let mut d = Delta {
                used: p.referenced_bytes as i64,
                comp: p.compressed_bytes as i64,
                uncomp: p.uncompressed_bytes as i64,
            };
            d += Delta::of_list(dead);
            d
        };
        let more = all(&c, cl.total) - all(&h, hl.total);
        self.diduse(h.dir_obj, DdUsed::Head, more)?;
        self.diduse(c.dir_obj, DdUsed::Head, -more)?;
        let origin = self.dir(h.dir_obj)?.origin_obj;
        let origin_txg = self.origin_txg(origin)?;
        let to_snap = cl.space_range(mos, origin_txg, u64::MAX)?.used as i64
            - hl.space_range(mos, origin_txg, u64::MAX)?.used as i64;
        self.transfer(h.dir_obj, to_snap, DdUsed::Head, DdUsed::Snap)?;

        for (object, from) in [(clone, h), (head, c)] {
            let p = self.ds_mut(object)?;
            p.bp = from.bp;
            p.referenced_bytes = from.referenced_bytes;
            p.compressed_bytes = from.compressed_bytes;
            p.uncompressed_bytes = from.uncompressed_bytes;
            p.unique_bytes = from.unique_bytes;
            p.deadlist_obj = from.deadlist_obj;
        }
        self.diduse(h.dir_obj, DdUsed::Refrsrv, Delta { used: unused, ..Delta::default() })?;
        self.swap_fields(clone, head, ondisk::mos::DS_REMAP_DEADLIST)?;
        self.bookmarks_next_changed(head, h.prev_snap_obj)?;
        self.drop_livelist(c.dir_obj)?;
        self.drop_livelist(h.dir_obj)
    }

    fn swap_features(&mut self, a: u64, b: u64) -> Result<()> {
        let (of_a, of_b) = (self.dataset_features(a)?, self.dataset_features(b)?);
        self.deactivate_all(a)?;
        self.deactivate_all(b)?;
        for (object, features) in [(a, of_b), (b, of_a)] {
            for (f, value) in features {
                self.activate(object, f, &value)?;
            }
        }
        Ok(())
    }

    fn swap_fields(&mut self, a: u64, b: u64, name: &str) -> Result<()> {
        let (of_a, of_b) = (self.field(a, name)?, self.field(b, name)?);
        if of_a.is_none() && of_b.is_none() {
            return Ok(());
        }
        for (object, value) in [(a, of_b), (b, of_a)] {
            self.zapify(object, ondisk::DmuType::DSL_DATASET)?;
            let zap = self.zap(object)?;
            match value {
                Some(v) => zap.update(self.tx, name.as_bytes(), &v)?,
                None => drop(zap.drop_entry(self.tx, name.as_bytes())?),
            }
        }
        Ok(())
    }
}
