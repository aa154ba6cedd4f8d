//! Granting and revoking permissions (`zfs allow`, `zfs unallow`).

use crate::deleg::{Grants, is_permission, is_set, is_whom};
use crate::error::Refusal;
use crate::links::ParentWalk;
use crate::mos_objects::{DropEntry, words};
use crate::sync::{SyncTask, Syncing, TaskNeed};
use crate::{Error, Result};
use ondisk::version::SPA_VERSION_DELEGATED_PERMS;
use ondisk::{Corrupt, DmuType, ObjNum};
use std::collections::BTreeSet;

/// Grants permissions at a directory, or revokes them (`dsl_deleg_set`).
#[derive(Debug, Clone, Default)]
pub struct SetGrants {
    /// The full name of the dataset.
    pub name: String,
    /// Words by grantee; with `remove`, no words mean all.
    pub grants: Grants,
    /// Revoke them.
    pub remove: bool,
}

impl SyncTask for SetGrants {
    fn need(&self) -> TaskNeed {
        TaskNeed::reserved(self.grants.len() as u64)
    }

    fn check(&mut self, s: &mut Syncing<'_>) -> Result<()> {
        s.hold_dir(&self.name)?;
        if s.version() < SPA_VERSION_DELEGATED_PERMS {
            return Syncing::refuse(&self.name, Refusal::Feature("delegated administration"));
        }
        for (whom, granted) in &self.grants {
            // Grants of sets have capital letters, grants of permissions don't.
            let sets = whom.starts_with(|c: char| c.is_ascii_uppercase());
            let fits = |word: &String| is_permission(word) && is_set(word) == sets;
            let empty = granted.is_empty() && !self.remove;
            if !is_whom(whom) || empty || !granted.iter().all(fits) {
                return Syncing::refuse(&self.name, Refusal::BadGrant);
            }
        }
        if self.remove { Ok(()) } else { s.check_grants_room(&self.name, &self.grants) }
    }

    fn sync(&mut self, s: &mut Syncing<'_>) -> Result<()> {
        let dir = s.hold_dir(&self.name)?;
        let head = s.dir(dir)?.head_dataset_obj;
        for (whom, granted) in &self.grants {
            if self.remove {
                s.take_back(dir, whom, granted.iter().map(String::as_str))?;
            } else {
                s.grant(dir, whom, granted.iter().map(String::as_str))?;
            }
            if granted.is_empty() {
                s.log("permission who remove", &self.name, head, whom.clone());
            }
            for word in granted {
                let what = if self.remove { "permission remove" } else { "permission update" };
                s.log(what, &self.name, head, format!("{whom} {word}"));
            }
        }
        Ok(())
    }
}

/// An operation that creates a dataset for a user (`dsl_deleg_set_create_perms`).
///
/// The user gets what the datasets above grant to creators.
pub struct MadeBy<T> {
    /// The operation.
    pub task: T,
    /// The full name of the new dataset.
    pub name: String,
    /// The creating user.
    pub uid: u32,
}

impl<T: SyncTask> SyncTask for MadeBy<T> {
    fn need(&self) -> TaskNeed {
        self.task.need()
    }

    fn check(&mut self, s: &mut Syncing<'_>) -> Result<()> {
        self.task.check(s)?;
        let above = self.name.rsplit_once('/').map_or(self.name.as_str(), |(above, _)| above);
        let parent = s.hold_dir(above)?;
        s.check_creator_room(parent, &self.name)
    }

    fn sync(&mut self, s: &mut Syncing<'_>) -> Result<()> {
        self.task.sync(s)?;
        let dir = s.hold_dir(&self.name)?;
        s.grant_creator(dir, self.uid)
    }
}

impl Syncing<'_> {
    /// Grants the creator of a dataset what the datasets above grant to creators
    /// (`dsl_deleg_set_create_perms`).
    pub(super) fn grant_creator(&mut self, dir: u64, uid: u32) -> Result<()> {
        let mut parents = ParentWalk::from(dir);
        let mut above = parents.parent(self, dir)?;
        while above != 0 {
            let p = self.dir(above)?;
            for (makers, maker) in [("c-$", 'u'), ("C-$", 'U')] {
                let granted = self.granted(p.deleg_zapobj, makers)?;
                if !granted.is_empty() {
                    self.grant(dir, &format!("{maker}l${uid}"), granted.iter().map(String::as_str))?;
                }
            }
            above = parents.parent(self, above)?;
        }
        Ok(())
    }

    /// Checks the space for grants at a directory.
    fn check_grants_room(&mut self, name: &str, grants: &Grants) -> Result<()> {
        let dir = self.hold_dir(name)?;
        let zap = self.dir(dir)?.deleg_zapobj;
        let entry = |name: &String| (name.clone(), 8);
        self.check_entries(name, zap, &grants.keys().map(entry).collect())?;
        for (whom, granted) in grants {
            let object = self.whom(zap, whom)?.unwrap_or(0);
            self.check_entries(name, object, &granted.iter().map(entry).collect())?;
        }
        Ok(())
    }

    /// Checks the space for what the creator of a dataset below `parent` is granted.
    pub(super) fn check_creator_room(&mut self, parent: u64, name: &str) -> Result<()> {
        let mut words: [BTreeSet<String>; 2] = Default::default();
        let (mut at, mut parents) = (parent, ParentWalk::from(parent));
        while at != 0 {
            let grants = self.dir(at)?.deleg_zapobj;
            for (words, makers) in words.iter_mut().zip(["c-$", "C-$"]) {
                words.extend(self.granted(grants, makers)?);
            }
            at = parents.parent(self, at)?;
        }
        for words in words {
            self.check_entries(name, 0, &words.into_iter().map(|word| (word, 8)).collect())?;
        }
        Ok(())
    }

    /// The object with the words of a grantee.
    fn whom(&self, grants: u64, whom: &str) -> Result<Option<u64>> {
        let object = if grants == 0 { None } else { self.zap(grants)?.lookup_u64(whom.as_bytes())? };
        if let Some(object) = object
            && self.zap(object)?.dnode().kind() != DmuType::DSL_PERMS
        {
            let source = Corrupt::Shape {
                what: "delegated permissions",
                why: "they lie in an object of another type",
            };
            return Err(Error::Corrupt { object: ObjNum(object), source });
        }
        Ok(object)
    }

    /// The words of a grantee in a directory's grants; empty without grants.
    fn granted(&self, grants: u64, whom: &str) -> Result<Vec<String>> {
        let object = self.whom(grants, whom)?;
        let Some(object) = object else { return Ok(Vec::new()) };
        let names = self.mos().entries(ObjNum(object))?.map(|e| Ok(e?.name_lossy()));
        names.collect()
    }

    fn grant<'w>(&mut self, dir: u64, whom: &str, granted: impl Iterator<Item = &'w str>) -> Result<()> {
        let grants = match self.dir(dir)?.deleg_zapobj {
            0 => {
                let object = self.zap_create(DmuType::DSL_PERMS)?;
                self.dir_mut(dir)?.deleg_zapobj = object;
                object
            }
            object => object,
        };
        let object = match self.whom(grants, whom)? {
            Some(object) => object,
            None => {
                let object = self.zap_create(DmuType::DSL_PERMS)?;
                self.zap(grants)?.add(self.tx, whom.as_bytes(), &words(&[object]))?;
                object
            }
        };
        for word in granted {
            self.zap(object)?.update(self.tx, word.as_bytes(), &words(&[0]))?;
        }
        Ok(())
    }

    /// Revokes words of a grantee, or all if none is named.
    fn take_back<'w>(&mut self, dir: u64, whom: &str, granted: impl Iterator<Item = &'w str>) -> Result<()> {
        let grants = self.dir(dir)?.deleg_zapobj;
        let Some(object) = self.whom(grants, whom)? else { return Ok(()) };
        let mut all = true;
        for word in granted {
            all = false;
            self.zap(object)?.drop_entry(self.tx, word.as_bytes())?;
        }
        if all || self.zap(object)?.count()? == 0 {
            self.zap(grants)?.drop_entry(self.tx, whom.as_bytes())?;
            self.mos().objset().free_object(self.tx, ObjNum(object)).map_err(Error::from)?;
        }
        Ok(())
    }
}
