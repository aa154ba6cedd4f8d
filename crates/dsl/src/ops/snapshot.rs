//! Snapshots: many at once, or none.

use crate::error::Refusal;
use crate::mos_objects::{DropEntry, words};
use crate::ops::props::{PropList, SetAs};
use crate::sync::{SyncTask, Syncing, TaskNeed};
use crate::{Error, Name, Result, Tail};
use ondisk::dsl::{DS_FLAG_INCONSISTENT, DdUsed, DslDatasetPhys};
use ondisk::version::SPA_VERSION_SNAP_PROPS;
use ondisk::{Corrupt, DmuType, ObjNum, Txg, mos};
use std::cmp::Ordering;
use std::collections::{BTreeMap, HashMap, HashSet};

/// Creates snapshots together (`dsl_dataset_snapshot`).
///
/// The caller resolves recursion, since it knows the names.
#[derive(Debug, Clone, Default)]
pub struct Snapshot {
    /// The full names.
    pub names: Vec<String>,
    /// User properties of each snapshot.
    pub props: PropList,
    /// Enforce limits of counts; an administrator is exempt.
    pub enforce_limits: bool,
}

impl SyncTask for Snapshot {
    fn need(&self) -> TaskNeed {
        TaskNeed::normal(3 * self.names.len() as u64)
    }

    fn check(&mut self, s: &mut Syncing<'_>) -> Result<()> {
        if let Some(name) = self.names.first()
            && !self.props.is_empty()
            && s.version() < SPA_VERSION_SNAP_PROPS
        {
            return Syncing::refuse(name, Refusal::Feature("snapshot properties"));
        }
        let first = self.names.first().map_or("", String::as_str);
        s.check_new_props_room(first, &self.props)?;
        let mut failed = Vec::new();
        if self.enforce_limits
            && let Err(e) = self.check_counts(s)
        {
            failed.push(e);
        }
        let mut promised = HashMap::new();
        let mut heads = HashSet::new();
        for name in &self.names {
            let twice = !heads.insert(name.split('@').next());
            let checked = match twice {
                // A txg makes one snapshot of a dataset.
                true => Syncing::refuse(name, Refusal::CrossDevice),
                false => check_one(s, name, &mut promised),
            };
            match checked {
                Ok(()) => {}
                Err(e @ (Error::Refused { .. } | Error::NoSuchDataset { .. } | Error::BadName { .. })) => {
                    failed.push(e);
                }
                Err(e) => return Err(e),
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
            let (path, name) = full.split_once('@').expect("the check found a snapshot's name");
            let head = s.hold_head(path)?;
            // A snapshot shows the dataset at the end of the txg, so it must include all dirty
            // blocks.
            s.sync_head(head, 1)?;
            let snap = s.snapshot_head(head, name)?;
            for set in &self.props {
                s.store_snapshot_prop(snap, set, SetAs::Local)?;
            }
            s.log("snapshot", full, snap, String::new());
        }
        Ok(())
    }
}

impl Snapshot {
    /// Checks the limits of each directory for all snapshots below it.
    fn check_counts(&self, s: &mut Syncing<'_>) -> Result<()> {
        // The number of snapshots at or below each directory, and the first, which a refusal names.
        let mut more: BTreeMap<&str, (u64, &str)> = BTreeMap::new();
        for name in &self.names {
            let mut path = name.split('@').next().unwrap_or(name);
            loop {
                more.entry(path).or_insert((0, name)).0 += 1;
                match path.rsplit_once('/') {
                    Some((above, _)) => path = above,
                    None => break,
                }
            }
        }
        for (path, (n, first)) in more {
            let Some(dir) = s.find_dir(path)? else { continue };
            let above = s.dir(dir)?.parent_obj;
            s.check_limit(dir, n, mos::DD_SNAPSHOT_COUNT, above, first)?;
        }
        Ok(())
    }
}

/// Checks one snapshot of many.
///
/// `promised` is the space of each directory that those before it will take.
fn check_one(s: &mut Syncing<'_>, full: &str, promised: &mut HashMap<u64, u64>) -> Result<()> {
    let parsed = Name::parse(full)?;
    let Tail::Snapshot(name) = parsed.tail else { return Syncing::refuse(full, Refusal::NotSnapshot) };
    let head = s.hold_head(parsed.path)?;
    s.check_snapshot(head, name, full, false)?;
    let p = s.ds(head)?;
    let reserved = s.refreservation(head)?;
    // The snapshot takes over the space that the reservation covers, so the head needs it again.
    let need = p.unique_bytes.min(reserved);
    if need > 0 {
        let taken = promised.entry(p.dir_obj).or_default();
        if need.saturating_add(*taken) > s.available(p.dir_obj)? {
            return Syncing::refuse(full, Refusal::NoSpace);
        }
        *taken += need;
    }
    Ok(())
}

impl Syncing<'_> {
    /// Whether a snapshot of this name may be made of a head (`dsl_dataset_snapshot_check_impl`).
    pub(crate) fn check_snapshot(
        &mut self,
        head: u64,
        name: &str,
        full: &str,
        receiving: bool,
    ) -> Result<()> {
        Name::parse_new(full)?;
        let p = self.ds(head)?;
        self.check_last_snapshot(head, &p, full)?;
        if self.find_snapshot(head, name)?.is_some() {
            return Self::refuse(full, Refusal::Exists);
        }
        if !receiving && p.flags & DS_FLAG_INCONSISTENT != 0 {
            return Self::refuse(full, Refusal::Inconsistent);
        }
        self.check_entry(full, p.snapnames_zapobj, name)
    }

    /// Refuses what needs a last snapshot older than this txg, until the next txg.
    ///
    /// # Errors
    /// * [`Error::Refused`] with [`Refusal::Again`]: this txg already made a snapshot of the head.
    /// * [`Error::Corrupt`]: its last snapshot is of a later txg, so no wait would end.
    pub(crate) fn check_last_snapshot(&self, head: u64, ds: &DslDatasetPhys, full: &str) -> Result<()> {
        match ds.prev_snap_txg.cmp(&self.txg()) {
            Ordering::Less => Ok(()),
            Ordering::Equal => Self::refuse(full, Refusal::Again),
            Ordering::Greater => {
                let source = Corrupt::Shape { what: "dataset", why: "its last snapshot is from the future" };
                Err(Error::Corrupt { object: ObjNum(head), source })
            }
        }
    }

    /// Makes a snapshot of a head without dirty blocks, and returns it
    /// (`dsl_dataset_snapshot_sync_impl`).
    pub(crate) fn snapshot_head(&mut self, head: u64, name: &str) -> Result<u64> {
        self.snapshot_head_at(head, name, self.txg())
    }

    /// The same, with the txg `txg` as that of its creation.
    pub(crate) fn snapshot_head_at(&mut self, head: u64, name: &str, txg: u64) -> Result<u64> {
        let ds = self.ds(head)?;
        self.adjust_counts(ds.dir_obj, 1, mos::DD_SNAPSHOT_COUNT)?;
        let phys = DslDatasetPhys {
            next_snap_obj: head,
            snapnames_zapobj: 0,
            num_children: 1,
            creation_time: self.env.now,
            creation_txg: Txg(txg),
            // The head refers to everything that the snapshot refers to.
            unique_bytes: 0,
            fsid_guid: self.fsid(),
            guid: self.guid(),
            next_clones_obj: 0,
            props_obj: 0,
            userrefs_obj: 0,
            ..ds
        };
        let spec = dmu::NewObject::new(DmuType::DSL_DATASET)
            .with_bonus(DmuType::DSL_DATASET, phys.encode().to_vec());
        let snap = self.mos().objset().create_object(self.tx, &spec)?.object().0;
        self.bonuses.add_dataset(snap, phys);
        for (f, value) in self.dataset_features(head)? {
            self.activate(snap, f, &value)?;
        }
        self.link_behind_previous(&ds, head, snap)?;
        let reserved = self.refreservation(head)?;
        if reserved > 0 {
            let delta = crate::account::Delta {
                used: ds.unique_bytes.min(reserved) as i64,
                ..crate::account::Delta::default()
            };
            self.diduse(ds.dir_obj, DdUsed::Refrsrv, delta)?;
        }
        let mut keys = self.deadlist_keys(ds.deadlist_obj, u64::MAX, ds.prev_snap_obj)?;
        keys.push(ds.prev_snap_txg);
        keys.extend(self.bookmark_keys(head)?);
        let deadlist = self.deadlist_create(&keys)?;
        self.move_remap_deadlist(head, snap)?;
        self.new_ivset(ds.dir_obj, snap)?;
        let accurate = super::create::accurate(self.version());
        let p = self.ds_mut(head)?;
        p.deadlist_obj = deadlist;
        p.prev_snap_obj = snap;
        p.prev_snap_txg = txg;
        p.unique_bytes = 0;
        p.flags |= accurate;
        self.zap(ds.snapnames_zapobj)?.add(self.tx, name.as_bytes(), &words(&[snap]))?;
        self.snapshots_changed(ds.dir_obj)?;
        Ok(snap)
    }

    /// Puts a new snapshot between the head and what came before it.
    fn link_behind_previous(&mut self, ds: &DslDatasetPhys, head: u64, snap: u64) -> Result<()> {
        if ds.prev_snap_obj == 0 {
            return Ok(());
        }
        let prev = self.ds(ds.prev_snap_obj)?;
        if prev.next_snap_obj == head {
            self.ds_mut(ds.prev_snap_obj)?.next_snap_obj = snap;
        } else if prev.next_clones_obj != 0 {
            self.zap_remove_int(prev.next_clones_obj, head)?;
            self.zap_add_int(prev.next_clones_obj, snap)?;
        }
        Ok(())
    }

    /// Moves the list of dead blocks on removed devices to the snapshot that knows them.
    fn move_remap_deadlist(&mut self, head: u64, snap: u64) -> Result<()> {
        let Some(list) = self.field(head, mos::DS_REMAP_DEADLIST)? else { return Ok(()) };
        self.zap(head)?.drop_entry(self.tx, mos::DS_REMAP_DEADLIST.as_bytes())?;
        self.zapify(snap, DmuType::DSL_DATASET)?;
        self.zap(snap)?.add(self.tx, mos::DS_REMAP_DEADLIST.as_bytes(), &list)?;
        Ok(())
    }

    /// Gives a snapshot of an encrypted dataset the id of its set of initialisation vectors.
    fn new_ivset(&mut self, dir: u64, snap: u64) -> Result<()> {
        let encrypted = self.field_u64(dir, ondisk::crypto_key::FIELD)?.is_some_and(|o| o != 0);
        if !encrypted || !self.feature_enabled("bookmark_v2")? {
            return Ok(());
        }
        let guid = self.fsid();
        self.set_ivset(snap, guid)
    }

    /// Says which set of initialisation vectors a snapshot of an encrypted dataset has.
    pub(crate) fn set_ivset(&mut self, snap: u64, guid: u64) -> Result<()> {
        self.zapify(snap, DmuType::DSL_DATASET)?;
        self.zap(snap)?.update(self.tx, mos::DS_IVSET_GUID.as_bytes(), &words(&[guid]))?;
        Ok(())
    }

    /// Records when the snapshots of a directory changed (`dsl_dir_snap_cmtime_update`).
    pub(crate) fn snapshots_changed(&mut self, dir: u64) -> Result<()> {
        if !self.feature_enabled("extensible_dataset")? {
            return Ok(());
        }
        self.zapify(dir, DmuType::DSL_DIR)?;
        let value = words(&[self.env.now, 0]);
        self.zap(dir)?.update(self.tx, mos::DD_SNAPSHOTS_CHANGED.as_bytes(), &value)?;
        Ok(())
    }
}
