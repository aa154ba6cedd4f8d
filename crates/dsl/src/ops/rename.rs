//! Renaming: datasets with everything below them, and snapshots.

use crate::account::Delta;
use crate::error::Refusal;
use crate::links::{ParentWalk, SeenObjects};
use crate::mos_objects::{DropEntry, words};
use crate::ops::create::{check_new_place, max_nesting};
use crate::sync::{SyncTask, Syncing, TaskNeed};
use crate::{Error, Name, Result, Tail, ZFS_MAX_DATASET_NAME_LEN};
use ondisk::dsl::DdUsed;
use ondisk::objset::ObjsetKind;
use ondisk::{Corrupt, ObjNum, mos};

/// Renames a file system or volume, and may move it in the tree (`dsl_dir_rename`).
#[derive(Debug, Clone)]
pub struct Rename {
    /// The full name.
    pub old: String,
    /// The new full name.
    pub new: String,
    /// Enforce limits of counts; an administrator is exempt.
    pub enforce_limits: bool,
}

impl SyncTask for Rename {
    fn need(&self) -> TaskNeed {
        TaskNeed::reserved(3)
    }

    fn check(&mut self, s: &mut Syncing<'_>) -> Result<()> {
        let old = Name::parse_new(&self.old)?;
        if old.tail != Tail::Head {
            return Syncing::refuse(&self.old, Refusal::NotHead);
        }
        if old.pool() != Name::parse(&self.new)?.pool() {
            return Syncing::refuse(&self.new, Refusal::CrossDevice);
        }
        let dir = s.hold_dir(&self.old)?;
        let parent = check_new_place(s, &self.new)?;
        let d = s.dir(dir)?;
        if d.parent_obj == 0 {
            return Syncing::refuse(&self.old, Refusal::Root);
        }
        let head = s.dir(parent)?.head_dataset_obj;
        if head == 0 || s.head_kind(head)? != ObjsetKind::Zfs {
            return Syncing::refuse(&self.new, Refusal::WrongParent);
        }
        check_names_below(s, dir, &self.old, &self.new)?;
        if parent == d.parent_obj {
            return Ok(());
        }
        s.check_rename_key(dir, parent, &self.old)?;
        if s.is_above(dir, parent)? {
            return Syncing::refuse(&self.new, Refusal::Recursive);
        }
        let ancestor = s.common_ancestor(d.parent_obj, parent)?;
        if self.enforce_limits {
            let datasets = s.field_u64(dir, mos::DD_FILESYSTEM_COUNT)?.map_or(0, |n| n + 1);
            let snapshots = s.field_u64(dir, mos::DD_SNAPSHOT_COUNT)?.unwrap_or(0);
            s.check_limit(parent, datasets, mos::DD_FILESYSTEM_COUNT, ancestor, &self.new)?;
            s.check_limit(parent, snapshots, mos::DD_SNAPSHOT_COUNT, ancestor, &self.new)?;
        }
        let space = d.used_bytes.max(d.reserved);
        s.check_transfer(d.parent_obj, parent, space, &self.new)
    }

    fn sync(&mut self, s: &mut Syncing<'_>) -> Result<()> {
        let dir = s.hold_dir(&self.old)?;
        let (_, old_tail) = self.old.rsplit_once('/').expect("the check found a dataset above");
        let (above, tail) = self.new.rsplit_once('/').expect("the check found a dataset above");
        let parent = s.hold_dir(above)?;
        let d = s.dir(dir)?;
        s.log("rename", &self.old, d.head_dataset_obj, format!("-> {}", self.new));
        if parent != d.parent_obj {
            s.init_counts(dir)?;
            let datasets = s.field_u64(dir, mos::DD_FILESYSTEM_COUNT)?.map_or(0, |n| n as i64 + 1);
            let snapshots = s.field_u64(dir, mos::DD_SNAPSHOT_COUNT)?.unwrap_or(0) as i64;
            let space = Delta {
                used: d.used_bytes as i64,
                comp: d.compressed_bytes as i64,
                uncomp: d.uncompressed_bytes as i64,
            };
            let unused = d.reserved.saturating_sub(d.used_bytes) as i64;
            let unused = Delta { used: unused, ..Delta::default() };
            for (at, sign) in [(d.parent_obj, -1), (parent, 1)] {
                let signed = |d: Delta| if sign < 0 { -d } else { d };
                s.adjust_counts(at, sign * datasets, mos::DD_FILESYSTEM_COUNT)?;
                s.adjust_counts(at, sign * snapshots, mos::DD_SNAPSHOT_COUNT)?;
                s.diduse(at, DdUsed::Child, signed(space))?;
                s.diduse(at, DdUsed::ChildRsrv, signed(unused))?;
            }
        }
        let from = s.dir(d.parent_obj)?.child_dir_zapobj;
        let to = s.dir(parent)?.child_dir_zapobj;
        s.zap(from)?.drop_entry(s.tx, old_tail.as_bytes())?;
        s.dir_mut(dir)?.parent_obj = parent;
        s.zap(to)?.add(s.tx, tail.as_bytes(), &words(&[dir]))?;
        s.forget_names();
        s.dsl.heads().properties_changed();
        Ok(())
    }
}

/// Renames a snapshot of a dataset, and with `recursive` of all datasets below
/// (`dsl_dataset_rename_snapshot`).
#[derive(Debug, Clone)]
pub struct RenameSnapshot {
    /// The full name of the dataset.
    pub dataset: String,
    /// The name of the snapshot, after the `@`.
    pub old: String,
    /// The new name of the snapshot.
    pub new: String,
    /// Rename also in all datasets below that have a snapshot of this name.
    pub recursive: bool,
}

impl RenameSnapshot {
    /// The datasets whose snapshots are renamed, with their directories.
    fn datasets(&self, s: &mut Syncing<'_>) -> Result<Vec<(String, u64)>> {
        let top = s.hold_dir(&self.dataset)?;
        if !self.recursive {
            return Ok(vec![(self.dataset.clone(), top)]);
        }
        s.below(top, &self.dataset)
    }
}

impl SyncTask for RenameSnapshot {
    fn need(&self) -> TaskNeed {
        TaskNeed::reserved(1)
    }

    fn check(&mut self, s: &mut Syncing<'_>) -> Result<()> {
        let new = format!("{}@{}", self.dataset, self.new);
        Name::parse_new(&new)?;
        let old = format!("{}@{}", self.dataset, self.old);
        let (_, _) = s.hold_snapshot(&old)?;
        for (name, dir) in self.datasets(s)? {
            let head = s.dir(dir)?.head_dataset_obj;
            if head == 0 || s.find_snapshot(head, &self.old)?.is_none() {
                continue;
            }
            let full = format!("{name}@{}", self.new);
            if full.len() >= ZFS_MAX_DATASET_NAME_LEN {
                return Syncing::refuse(&full, Refusal::NameTooLong);
            }
            if s.find_snapshot(head, &self.new)?.is_some() {
                return Syncing::refuse(&full, Refusal::Exists);
            }
            let map = s.ds(head)?.snapnames_zapobj;
            s.check_entry(&full, map, &self.new)?;
        }
        Ok(())
    }

    fn sync(&mut self, s: &mut Syncing<'_>) -> Result<()> {
        for (name, dir) in self.datasets(s)? {
            let head = s.dir(dir)?.head_dataset_obj;
            if head == 0 {
                continue;
            }
            let Some(snap) = s.find_snapshot(head, &self.old)? else { continue };
            let old = format!("{name}@{}", self.old);
            s.log("rename", &old, snap, format!("-> @{}", self.new));
            let map = s.ds(head)?.snapnames_zapobj;
            let zap = s.zap(map)?;
            zap.drop_entry(s.tx, self.old.as_bytes())?;
            zap.add(s.tx, self.new.as_bytes(), &words(&[snap]))?;
            s.snapshots_changed(dir)?;
        }
        Ok(())
    }
}

/// Checks the length and depth of all names below (`dsl_valid_rename`).
fn check_names_below(s: &mut Syncing<'_>, dir: u64, old: &str, new: &str) -> Result<()> {
    let depth = |name: &str| name.matches('/').count();
    let longer = new.len() as i64 - old.len() as i64;
    let deeper = depth(new) as i64 - depth(old) as i64;
    if longer <= 0 && deeper <= 0 {
        return Ok(());
    }
    for (name, dir) in s.below(dir, old)? {
        let head = s.dir(dir)?.head_dataset_obj;
        let map = if head == 0 { 0 } else { s.ds(head)?.snapnames_zapobj };
        let mut longest = 0;
        if map != 0 {
            for e in s.mos().entries(ObjNum(map))? {
                longest = longest.max(e?.name.len() + 1);
            }
        }
        if (name.len() + longest) as i64 + longer >= ZFS_MAX_DATASET_NAME_LEN as i64 {
            return Syncing::refuse(new, Refusal::NameTooLong);
        }
        // A name that is too deep from an earlier limit may move, if it gets no deeper.
        if deeper > 0 && depth(&name) as i64 + deeper > max_nesting() as i64 {
            return Syncing::refuse(new, Refusal::TooDeep);
        }
    }
    Ok(())
}

impl Syncing<'_> {
    /// A directory and everything below it, with full names.
    pub(crate) fn below(&mut self, dir: u64, name: &str) -> Result<Vec<(String, u64)>> {
        let mut out = vec![(name.to_owned(), dir)];
        let mut visited = SeenObjects::default();
        let mut next = 0;
        while next < out.len() {
            let (name, dir) = out[next].clone();
            next += 1;
            visited.once(dir, "DSL directory")?;
            let children = self.children(dir)?;
            out.extend(children.into_iter().map(|(child, object)| (format!("{name}/{child}"), object)));
        }
        Ok(out)
    }

    /// Whether `dir` is `below`, or above it.
    pub(crate) fn is_above(&mut self, dir: u64, below: u64) -> Result<bool> {
        let mut at = below;
        for _ in 0..ZFS_MAX_DATASET_NAME_LEN {
            if at == dir {
                return Ok(true);
            }
            at = self.dir(at)?.parent_obj;
            if at == 0 {
                return Ok(false);
            }
        }
        let source = Corrupt::Shape { what: "DSL directory", why: "no way leads to the root" };
        Err(Error::Corrupt { object: ObjNum(below), source })
    }

    /// The lowest directory that is at or above both.
    pub(crate) fn common_ancestor(&mut self, a: u64, b: u64) -> Result<u64> {
        let (mut at, mut parents) = (a, ParentWalk::from(a));
        while !self.is_above(at, b)? {
            at = parents.parent(self, at)?;
        }
        Ok(at)
    }

    /// Checks that this space may move from one directory to another (`dsl_dir_transfer_possible`).
    pub(crate) fn check_transfer(&mut self, from: u64, to: u64, space: u64, name: &str) -> Result<()> {
        let ancestor = self.common_ancestor(from, to)?;
        let delta = self.would_change(from, -(space as i64), ancestor)?;
        if self.space_available(to, ancestor, delta)? < space {
            return Self::refuse(name, Refusal::NoSpace);
        }
        Ok(())
    }

    /// How much the used bytes of an ancestor would change (`would_change`).
    fn would_change(&mut self, dir: u64, delta: i64, ancestor: u64) -> Result<i64> {
        let (mut at, mut delta, mut parents) = (dir, delta, ParentWalk::from(dir));
        while at != ancestor {
            let d = self.dir(at)?;
            delta = crate::account::past(d.reserved, d.used_bytes, delta);
            at = parents.parent(self, at)?;
        }
        Ok(delta)
    }

    /// Counts what is below a directory that comes under a limit (`dsl_dir_init_fs_ss_count`).
    pub(crate) fn init_counts(&mut self, dir: u64) -> Result<()> {
        if !self.feature_active("filesystem_limits")? {
            return Ok(());
        }
        self.count_below(dir).map(|_| ())
    }

    /// Sets the counts of a directory and everything below it, and returns its own.
    ///
    /// Hidden datasets are not counted.
    pub(crate) fn count_below(&mut self, top: u64) -> Result<(u64, u64)> {
        if let Some(n) = self.field_u64(top, mos::DD_FILESYSTEM_COUNT)? {
            return Ok((n, self.field_u64(top, mos::DD_SNAPSHOT_COUNT)?.unwrap_or(0)));
        }
        // The deepest come first, so each finds its children counted.
        let mut all = self.below(top, "")?;
        all.reverse();
        let mut counts = std::collections::HashMap::new();
        for (name, dir) in all {
            let hidden = name.rsplit('/').next().is_some_and(|n| n.starts_with('$'));
            let d = self.dir(dir)?;
            let map = if d.head_dataset_obj == 0 { 0 } else { self.ds(d.head_dataset_obj)?.snapnames_zapobj };
            let (below, mut snaps) = counts.remove(&dir).unwrap_or((0, 0));
            snaps += if map == 0 { 0 } else { self.zap(map)?.count()? };
            let own = match self.field_u64(dir, mos::DD_FILESYSTEM_COUNT)? {
                Some(n) => (n, self.field_u64(dir, mos::DD_SNAPSHOT_COUNT)?.unwrap_or(0)),
                None => {
                    self.zapify(dir, ondisk::DmuType::DSL_DIR)?;
                    let zap = self.zap(dir)?;
                    for (field, n) in [(mos::DD_FILESYSTEM_COUNT, below), (mos::DD_SNAPSHOT_COUNT, snaps)] {
                        zap.update(self.tx, field.as_bytes(), &words(&[n]))?;
                    }
                    (below, snaps)
                }
            };
            if dir == top {
                return Ok(own);
            }
            let parent = counts.entry(d.parent_obj).or_insert((0u64, 0u64));
            if !hidden {
                parent.0 += own.0 + 1;
                parent.1 += own.1;
            }
        }
        Ok((0, 0))
    }
}
