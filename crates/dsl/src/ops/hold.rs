//! Holds: a snapshot with a hold is not destroyed.

use crate::error::{NameError, Refusal};
use crate::mos_objects::{DropEntry, words};
use crate::sync::{SyncTask, Syncing, TaskNeed};
use crate::{Error, Name, Result, Tail};
use ondisk::dsl::DS_FLAG_DEFER_DESTROY;
use ondisk::version::SPA_VERSION_USERREFS;
use ondisk::{DmuType, ObjNum};
use std::collections::BTreeSet;

/// Length of a tag in bytes that is too long, with its NUL (`MAXNAMELEN`).
const MAX_TAG: usize = 256;

/// Holds snapshots together (`dsl_dataset_user_hold`).
///
/// Absent snapshots are ignored, unless all are absent.
#[derive(Debug, Clone, Default)]
pub struct HoldSnapshots {
    /// Full names of snapshots, each with a tag.
    pub holds: Vec<(String, String)>,
}

impl SyncTask for HoldSnapshots {
    fn need(&self) -> TaskNeed {
        TaskNeed::reserved(self.holds.len() as u64)
    }

    fn check(&mut self, s: &mut Syncing<'_>) -> Result<()> {
        if s.version() < SPA_VERSION_USERREFS {
            let name = self.holds.first().map_or("", |(name, _)| name);
            return Syncing::refuse(name, Refusal::Feature("user holds"));
        }
        let mut seen = BTreeSet::new();
        let mut missing = None;
        let mut found = false;
        for (name, tag) in &self.holds {
            if !matches!(Name::parse(name)?.tail, Tail::Snapshot(_)) {
                return Syncing::refuse(name, Refusal::NotSnapshot);
            }
            if tag.len() >= MAX_TAG {
                return Syncing::refuse(name, Refusal::TagTooLong);
            }
            let bad = |why| Err(Error::BadName { name: tag.clone(), why });
            if tag.is_empty() {
                return bad(NameError::EmptyComponent);
            }
            if tag.contains('\0') {
                return bad(NameError::InvalidChar('\0'));
            }
            if !seen.insert((name, tag)) {
                return Syncing::refuse(name, Refusal::TagExists);
            }
            let snap = match s.hold_snapshot(name) {
                Ok((_, snap)) => snap,
                Err(e @ Error::NoSuchDataset { .. }) => {
                    missing = Some(e);
                    continue;
                }
                Err(e) => return Err(e),
            };
            found = true;
            let tags = s.ds(snap)?.userrefs_obj;
            if tags != 0 && s.zap(tags)?.lookup(tag.as_bytes())?.is_some() {
                return Syncing::refuse(name, Refusal::TagExists);
            }
        }
        match missing {
            Some(e) if !found => Err(e),
            _ => s.check_holds_room(&self.holds),
        }
    }

    fn sync(&mut self, s: &mut Syncing<'_>) -> Result<()> {
        for (name, tag) in &self.holds {
            let snap = match s.hold_snapshot(name) {
                Ok((_, snap)) => snap,
                Err(Error::NoSuchDataset { .. }) => continue,
                Err(e) => return Err(e),
            };
            let tags = match s.ds(snap)?.userrefs_obj {
                0 => {
                    let o = s.zap_create(DmuType::USERREFS)?;
                    s.ds_mut(snap)?.userrefs_obj = o;
                    o
                }
                o => o,
            };
            let zap = s.zap(tags)?;
            zap.add(s.tx, tag.as_bytes(), &words(&[s.env.now]))?;
            let refs = s.zap(tags)?.count()?;
            s.log("hold", name, snap, format!("tag={tag} temp=0 refs={refs}"));
        }
        Ok(())
    }
}

/// Releases holds together (`dsl_dataset_user_release`).
///
/// The last hold of a snapshot that is marked for destruction destroys it.
#[derive(Debug, Clone, Default)]
pub struct ReleaseSnapshots {
    /// Full names of snapshots, each with a tag.
    pub holds: Vec<(String, String)>,
}

impl SyncTask for ReleaseSnapshots {
    fn need(&self) -> TaskNeed {
        TaskNeed::FREEING
    }

    fn check(&mut self, s: &mut Syncing<'_>) -> Result<()> {
        let mut seen = BTreeSet::new();
        for (name, tag) in &self.holds {
            if !matches!(Name::parse(name)?.tail, Tail::Snapshot(_)) {
                return Syncing::refuse(name, Refusal::NotSnapshot);
            }
            let (_, snap) = s.hold_snapshot(name)?;
            let p = s.ds(snap)?;
            let there = p.userrefs_obj != 0 && s.zap(p.userrefs_obj)?.lookup(tag.as_bytes())?.is_some();
            if !there || !seen.insert((name, tag)) {
                return Syncing::refuse(name, Refusal::NoTag);
            }
            let last = s.user_refs(&p)? == self.holds.iter().filter(|(n, _)| n == name).count() as u64;
            let goes = last && p.flags & DS_FLAG_DEFER_DESTROY != 0 && p.num_children == 1;
            if goes && s.dsl.heads().is_busy(snap) {
                return Syncing::refuse(name, Refusal::Busy);
            }
        }
        Ok(())
    }

    fn sync(&mut self, s: &mut Syncing<'_>) -> Result<()> {
        for (name, tag) in &self.holds {
            let (_, snap) = s.hold_snapshot(name)?;
            let p = s.ds(snap)?;
            s.zap(p.userrefs_obj)?.drop_entry(s.tx, tag.as_bytes())?;
            s.forget_temporary_hold(snap, tag)?;
            let refs = s.user_refs(&p)?;
            s.log("release", name, snap, format!("tag={tag} refs={refs}"));
            if refs == 0 && p.flags & DS_FLAG_DEFER_DESTROY != 0 && p.num_children == 1 {
                let (_, tail) = name.split_once('@').expect("the check found a snapshot's name");
                s.destroy_snapshot(snap, tail, name, false)?;
            }
        }
        Ok(())
    }
}

impl Syncing<'_> {
    /// Removes a hold of a process from the pool's list of those (`dsl_pool_user_release`).
    fn forget_temporary_hold(&mut self, snap: u64, tag: &str) -> Result<()> {
        let Some(map) = self.mos().dir(ondisk::mos::TMP_USERREFS)? else { return Ok(()) };
        let key = format!("{snap:x}-{tag}");
        let zap = self.mos().zap(ObjNum(map.0))?;
        if zap.lookup(key.as_bytes())?.is_some() {
            zap.drop_entry(self.tx, key.as_bytes())?;
        }
        Ok(())
    }
}
