//! Promoting a clone: it and its origin's dataset change places.
//!
//! # Theory
//! The clone takes over the snapshots up to the origin, and the bookmarks of that time. The dataset
//! that they belonged to becomes a clone of the same snapshot. No block moves: only the directory
//! that counts it changes.

use crate::account::Delta;
use crate::error::Refusal;
use crate::mos_objects::{DropEntry, words};
use crate::sync::{SyncTask, Syncing, TaskNeed};
use crate::{Error, Name, Result, Tail, ZFS_MAX_DATASET_NAME_LEN};
use ondisk::dsl::{DD_FLAG_USED_BREAKDOWN, DS_FLAG_NOPROMOTE, DdUsed};
use ondisk::{Corrupt, ObjNum, mos};
use std::collections::HashMap;

/// Makes a clone independent of its origin's dataset (`dsl_dataset_promote`).
#[derive(Debug, Clone)]
pub struct Promote {
    /// The full name.
    pub name: String,
    /// Enforce limits of counts; an administrator is exempt.
    pub enforce_limits: bool,
}

/// The datasets of a promotion; lists have the newest first.
struct Parts {
    head: u64,
    dir: u64,
    origin: u64,
    origin_dir: u64,
    origin_head: u64,
    /// Snapshots that move: the origin and those before it in its dataset.
    shared: Vec<u64>,
    /// The clone's own snapshots, its head first.
    own: Vec<u64>,
    /// Snapshots after the origin in its dataset, the head first.
    after: Vec<u64>,
    /// The origin of the origin's dataset, if there is one; the pool's empty snapshot counts.
    origin_origin: u64,
}

/// The space that moves.
struct Moved {
    space: Delta,
    unique: u64,
    clone_snaps: u64,
    origin_snaps: u64,
}

impl SyncTask for Promote {
    fn need(&self) -> TaskNeed {
        TaskNeed::reserved(2)
    }

    fn check(&mut self, s: &mut Syncing<'_>) -> Result<()> {
        if Name::parse(&self.name)?.tail != Tail::Head {
            return Syncing::refuse(&self.name, Refusal::NotHead);
        }
        let head = s.hold_head(&self.name)?;
        if s.ds(head)?.flags & DS_FLAG_NOPROMOTE != 0 {
            return Syncing::refuse(&self.name, Refusal::CrossDevice);
        }
        let parts = s.promote_parts(head, &self.name)?;
        s.check_promote_key(parts.dir, parts.origin_dir, &self.name)?;
        let names = s.snapshot_names(parts.origin_head)?;
        let mut conflicts = Vec::new();
        let mut moving = Vec::new();
        for snap in &parts.shared {
            if s.dsl.heads().is_busy(*snap) {
                return Syncing::refuse(&self.name, Refusal::Busy);
            }
            let Some(name) = names.get(snap) else { continue };
            let full = format!("{}@{name}", self.name);
            if full.len() >= ZFS_MAX_DATASET_NAME_LEN {
                return Syncing::refuse(&full, Refusal::NameTooLong);
            }
            if s.find_snapshot(head, name)?.is_some() {
                conflicts.push(Error::Refused { name: full, why: Refusal::SnapshotConflict });
            }
            moving.push((name.clone(), 8));
        }
        let map = s.ds(head)?.snapnames_zapobj;
        s.check_entries(&self.name, map, &moving)?;
        let mut moving = Vec::new();
        let txg = s.ds(parts.origin)?.creation_txg.0;
        let own = s.bookmarks(head)?;
        for b in s.bookmarks(parts.origin_head)?.iter().filter(|b| b.phys.creation_txg <= txg) {
            if own.iter().any(|o| o.name == b.name) {
                let full = format!("{}#{}", self.name, b.name);
                conflicts.push(Error::Refused { name: full, why: Refusal::SnapshotConflict });
            }
            moving.push(b.name.clone());
        }
        s.check_head_bookmarks(&self.name, head, moving)?;
        match conflicts.len() {
            0 => {}
            1 => return Err(conflicts.remove(0)),
            _ => return Err(Error::Several(conflicts)),
        }
        let moved = s.promote_space(&parts)?;
        if self.enforce_limits {
            let ancestor = s.common_ancestor(parts.origin_dir, parts.dir)?;
            let n = parts.shared.len() as u64;
            s.check_limit(parts.dir, n, mos::DD_SNAPSHOT_COUNT, ancestor, &self.name)?;
        }
        s.check_transfer(parts.origin_dir, parts.dir, moved.space.used as u64, &self.name)
    }

    fn sync(&mut self, s: &mut Syncing<'_>) -> Result<()> {
        let head = s.hold_head(&self.name)?;
        s.sync_head(head, 1)?;
        let parts = s.promote_parts(head, &self.name)?;
        s.sync_head(parts.origin_head, 1)?;
        let moved = s.promote_space(&parts)?;
        s.promote_key(parts.dir, parts.origin_dir)?;
        let old_next = s.promote_links(&parts)?;
        s.promote_bookmarks(&parts)?;
        s.promote_snapshots(&parts, old_next)?;
        s.promote_account(&parts, &moved)?;
        s.drop_livelist(parts.dir)?;
        s.drop_livelist(parts.origin_dir)?;
        if s.feature_enabled("head_errlog")? {
            // The clone now has as its own the damaged blocks that both share.
            let before = s.ds(parts.origin)?.creation_txg.0;
            // A log that is damaged itself is no reason to fail: the links are changed already.
            let _ = s.mos().errlog_promote(s.tx, parts.origin_head, parts.head, before);
        }
        s.dsl.heads().properties_changed();
        s.log("promote", &self.name, head, String::new());
        Ok(())
    }
}

impl Syncing<'_> {
    fn promote_parts(&mut self, head: u64, name: &str) -> Result<Parts> {
        let dir = self.ds(head)?.dir_obj;
        let origin = self.dir(dir)?.origin_obj;
        if origin == 0 || Some(origin) == self.dsl.origin_snapshot()? {
            return Self::refuse(name, Refusal::NotClone);
        }
        let origin_dir = self.ds(origin)?.dir_obj;
        let od = self.dir(origin_dir)?;
        Ok(Parts {
            head,
            dir,
            origin,
            origin_dir,
            origin_head: od.head_dataset_obj,
            shared: self.snapshots_back(origin, od.origin_obj)?,
            own: self.snapshots_back(head, origin)?,
            after: self.snapshots_back(od.head_dataset_obj, origin)?,
            origin_origin: od.origin_obj,
        })
    }

    /// A dataset and those before it, newest first, up to but without `until`.
    fn snapshots_back(&mut self, from: u64, until: u64) -> Result<Vec<u64>> {
        let mut out = Vec::new();
        let mut at = from;
        let mut txg = u64::MAX;
        while at != until && at != 0 {
            let p = self.ds(at)?;
            if p.prev_snap_txg >= txg {
                let why = "the chain does not go back in time";
                let source = Corrupt::Shape { what: "snapshot", why };
                return Err(Error::Corrupt { object: ObjNum(at), source });
            }
            out.push(at);
            txg = if p.prev_snap_obj == 0 { 0 } else { p.prev_snap_txg };
            at = p.prev_snap_obj;
        }
        Ok(out)
    }

    /// The names of a head's snapshots, by their objects.
    fn snapshot_names(&mut self, head: u64) -> Result<HashMap<u64, String>> {
        let map = self.ds(head)?.snapnames_zapobj;
        self.mos()
            .entries(ObjNum(map))?
            .map(|e| {
                let e = e?;
                Ok((e.value.first().unwrap_or(0), e.name_lossy()))
            })
            .collect()
    }

    /// Bytes on deadlists of blocks born after a txg.
    fn dead_after(&mut self, datasets: &[u64], txg: u64) -> Result<u64> {
        let mut sum = 0u64;
        for ds in datasets {
            let list = self.ds(*ds)?.deadlist_obj;
            let space = self.dead_between(list, txg, u64::MAX)?;
            sum = sum.saturating_add(space.used as u64);
        }
        Ok(sum)
    }

    fn promote_space(&mut self, parts: &Parts) -> Result<Moved> {
        let origin = self.ds(parts.origin)?;
        let of = |p: &ondisk::dsl::DslDatasetPhys| Delta {
            used: p.referenced_bytes as i64,
            comp: p.compressed_bytes as i64,
            uncomp: p.uncompressed_bytes as i64,
        };
        // The space born in the moving snapshots: that of the last one, and what died before it.
        let mut space = of(&origin);
        for snap in &parts.shared {
            let p = self.ds(*snap)?;
            if p.prev_snap_obj != 0 {
                space += Delta::of_list(self.mos().deadlist(ObjNum(p.deadlist_obj))?.total);
            }
        }
        if parts.origin_origin != 0 {
            space = space - of(&self.ds(parts.origin_origin)?);
        }
        let first = *parts.own.last().expect("the clone's head is in its own past");
        let list = self.ds(first)?.deadlist_obj;
        let unique = self.dead_between(list, origin.prev_snap_txg, u64::MAX)?.used as u64;
        let origin_txg = self.origin_txg(parts.origin_origin)?;
        let clone_snaps =
            self.dead_after(&parts.shared, origin_txg)? + self.dead_after(&parts.own, origin_txg)?;
        let origin_snaps = self.dead_after(&parts.after, origin.creation_txg.0)?;
        Ok(Moved { space, unique, clone_snaps, origin_snaps })
    }

    /// Makes the clone the origin's successor; returns the former successor.
    fn promote_links(&mut self, parts: &Parts) -> Result<u64> {
        let first = *parts.own.last().expect("the clone's head is in its own past");
        let origin = self.ds(parts.origin)?;
        let old_next = origin.next_snap_obj;
        self.ds_mut(parts.origin)?.next_snap_obj = first;
        if origin.next_clones_obj != 0 {
            self.zap_remove_int(origin.next_clones_obj, first)?;
            self.zap_add_int(origin.next_clones_obj, old_next)?;
        }
        self.dir_mut(parts.dir)?.origin_obj = parts.origin_origin;
        self.dir_mut(parts.origin_dir)?.origin_obj = parts.origin;
        let clones = self.dir(parts.origin_dir)?.clones;
        if clones != 0 {
            self.zap_remove_int(clones, parts.head)?;
        }
        if parts.origin_origin != 0 {
            let above = self.ds(parts.origin_origin)?.dir_obj;
            let of_above = self.dir(above)?.clones;
            if of_above != 0 {
                self.zap_add_int(of_above, parts.head)?;
                self.zap_remove_int(of_above, parts.origin_head)?;
            }
        }
        self.note_clone(parts.dir, parts.origin_head)?;
        Ok(old_next)
    }

    fn promote_bookmarks(&mut self, parts: &Parts) -> Result<()> {
        let txg = self.ds(parts.origin)?.creation_txg.0;
        for b in self.bookmarks(parts.origin_head)? {
            if b.phys.creation_txg <= txg {
                self.move_bookmark(&b, parts.origin_head, parts.head)?;
            }
        }
        self.bookmarks_next_changed(parts.head, parts.origin)
    }

    fn promote_snapshots(&mut self, parts: &Parts, old_next: u64) -> Result<()> {
        let names = self.snapshot_names(parts.origin_head)?;
        let from = self.ds(parts.origin_head)?.snapnames_zapobj;
        let to = self.ds(parts.head)?.snapnames_zapobj;
        for snap in &parts.shared {
            let p = self.ds(*snap)?;
            if let Some(name) = names.get(snap) {
                self.zap(from)?.drop_entry(self.tx, name.as_bytes())?;
                self.zap(to)?.add(self.tx, name.as_bytes(), &words(&[*snap]))?;
            }
            self.adjust_counts(parts.origin_dir, -1, mos::DD_SNAPSHOT_COUNT)?;
            self.adjust_counts(parts.dir, 1, mos::DD_SNAPSHOT_COUNT)?;
            self.ds_mut(*snap)?.dir_obj = parts.dir;
            if p.next_clones_obj == 0 {
                continue;
            }
            let clones = self.numbers(p.next_clones_obj)?;
            for clone in clones.into_iter().filter(|c| *c != old_next) {
                let dir = self.ds(clone)?.dir_obj;
                let head = self.dir(dir)?.head_dataset_obj;
                let clones = self.dir(parts.origin_dir)?.clones;
                if clones != 0 {
                    self.zap_remove_int(clones, head)?;
                }
                self.note_clone(parts.dir, head)?;
            }
        }
        self.snapshots_changed(parts.dir)?;
        self.snapshots_changed(parts.origin_dir)
    }

    fn promote_account(&mut self, parts: &Parts, m: &Moved) -> Result<()> {
        for (dir, snaps, sign) in [(parts.dir, m.clone_snaps, 1i64), (parts.origin_dir, m.origin_snaps, -1)] {
            let d = self.dir(dir)?;
            let delta = if d.flags & DD_FLAG_USED_BREAKDOWN == 0 {
                0
            } else {
                snaps as i64 - d.used_breakdown[DdUsed::Snap as usize] as i64
            };
            self.diduse(dir, DdUsed::Snap, Delta { used: delta, ..Delta::default() })?;
            let rest = if sign > 0 { m.space } else { -m.space };
            self.diduse(dir, DdUsed::Head, Delta { used: rest.used - delta, ..rest })?;
        }
        self.ds_mut(parts.origin)?.unique_bytes = m.unique;
        Ok(())
    }
}
