//! Clones: new heads that begin as a snapshot.

use crate::error::Refusal;
use crate::ops::create::check_new_name;
use crate::ops::props::PropList;
use crate::sync::{SyncTask, Syncing, TaskNeed};
use crate::{Name, Result, Tail};
use dmu::Objset;
use ondisk::mos;
use ondisk::objset::{ObjsetKind, ZIL_HEADER};

/// Creates a clone (`dsl_dataset_clone`).
#[derive(Debug, Clone)]
pub struct Clone {
    /// The full name; the parent must exist.
    pub name: String,
    /// The full name of the snapshot.
    pub origin: String,
    /// The properties.
    pub props: PropList,
    /// Enforce limits of counts; an administrator is exempt.
    pub enforce_limits: bool,
}

impl SyncTask for Clone {
    fn need(&self) -> TaskNeed {
        TaskNeed::normal(6)
    }

    fn check(&mut self, s: &mut Syncing<'_>) -> Result<()> {
        if !matches!(Name::parse(&self.origin)?.tail, Tail::Snapshot(_)) {
            return Syncing::refuse(&self.origin, Refusal::NotSnapshot);
        }
        if Name::parse(&self.origin)?.pool() != Name::parse(&self.name)?.pool() {
            return Syncing::refuse(&self.name, Refusal::CrossDevice);
        }
        let parent = check_new_name(s, &self.name)?;
        if self.enforce_limits {
            s.check_limit(parent, 1, mos::DD_FILESYSTEM_COUNT, 0, &self.name)?;
        }
        let above = s.dir(parent)?.head_dataset_obj;
        if above == 0 || s.head_kind(above)? != ObjsetKind::Zfs {
            return Syncing::refuse(&self.name, Refusal::WrongParent);
        }
        let (head, snap) = s.hold_snapshot(&self.origin)?;
        let kind = match s.head_kind(head)? {
            ObjsetKind::Zvol => crate::Kind::Volume,
            _ => crate::Kind::Filesystem,
        };
        s.check_new_props_room(&self.name, &self.props)?;
        let refers = s.ds(snap)?.referenced_bytes;
        s.check_new_props(parent, &self.name, kind, &self.props, (0, refers))
    }

    fn sync(&mut self, s: &mut Syncing<'_>) -> Result<()> {
        let (above, tail) = self.name.rsplit_once('/').expect("the check found a dataset above");
        let parent = s.hold_dir(above)?;
        let (_, origin) = s.hold_snapshot(&self.origin)?;
        let dir = s.create_dir(Some(parent), tail)?;
        let ds = s.create_dataset(dir, Some(origin), 0)?;
        s.clone_key(dir, origin)?;
        s.create_counts(dir)?;
        s.reset_log(ds)?;
        s.log("clone", &self.name, ds, format!("origin={} ({origin})", self.origin));
        s.set_new_props(dir, &self.props)
    }
}

impl Syncing<'_> {
    /// Clears the log of a head that became a copy of a snapshot (`dsl_dataset_zero_zil`).
    ///
    /// The head must not replay the log that the snapshot had.
    pub(crate) fn reset_log(&mut self, head: u64) -> Result<()> {
        let bp = self.ds(head)?.bp;
        if bp.is_hole() {
            return Ok(());
        }
        let (cache, options) = (self.mos().objset().cache().clone(), self.mos().options());
        let os = Objset::open(cache.clone(), head, &bp, options.clone())?;
        if os.phys().zil_header == [0; ZIL_HEADER.end - ZIL_HEADER.start] {
            return Ok(());
        }
        let os = Objset::open_live(cache, head, &bp, options.clone())?;
        os.set_zil_header(self.tx, [0; ZIL_HEADER.end - ZIL_HEADER.start])?;
        self.dsl.heads().enter(head, os, &[]);
        self.sync_head(head, 1)
    }
}
