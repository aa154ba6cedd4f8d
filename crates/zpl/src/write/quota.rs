//! Quotas of users, groups and projects, in bytes and in objects (`zfs_quota.c`).
//!
//! # Theory
//! A syncing txg counts what an owner uses. A quota is compared with that count before a change. So
//! an owner can exceed a quota by what was written since the last txg. The next change then fails,
//! as in OpenZFS.
//!
//! # On disk
//! For each kind of quota that was ever set, the master node names a ZAP of limits. Its names are
//! owners, as hexadecimal numbers.
//!
//! # Locks
//! The set of tables is locked while a handle is copied and while a table is created. No
//! transaction is taken while it is locked.

use super::Writer;
use super::data::ATTR_BYTES;
use crate::{Attr, Error, FileSystem, Fuid, Result, SpaceKind};
use dmu::zap::{Value, Zap};
use dmu::{DMU_GROUPUSED_OBJECT, DMU_PROJECTUSED_OBJECT, DMU_USERUSED_OBJECT, Objset};
use dsl::Need;
use observe::lock::RwLock;
use ondisk::objset::ObjsetFlags;
use ondisk::{DmuType, ObjNum};

/// The kinds that limit bytes: users, groups, projects.
const BYTES: [SpaceKind; 3] = [SpaceKind::UserQuota, SpaceKind::GroupQuota, SpaceKind::ProjectQuota];
/// The kinds that limit objects.
const OBJECTS: [SpaceKind; 3] =
    [SpaceKind::UserObjQuota, SpaceKind::GroupObjQuota, SpaceKind::ProjectObjQuota];
/// The objects that count usage.
const USED: [ObjNum; 3] = [DMU_USERUSED_OBJECT, DMU_GROUPUSED_OBJECT, DMU_PROJECTUSED_OBJECT];
/// The first version with quotas of users (`ZPL_VERSION_USERSPACE`).
const ZPL_VERSION_USERSPACE: u64 = 4;
/// Estimate of what creating and registering a table dirties, in bytes.
const TABLE_BYTES: u64 = 4096;

/// The user, group and project whose quotas apply to a change, each if any.
#[derive(Debug, Clone, Copy)]
pub(super) struct Payers([Option<u64>; 3]);

impl Payers {
    /// Project 0 means none.
    pub(super) fn new(uid: Option<u64>, gid: Option<u64>, project: Option<u64>) -> Payers {
        Payers([uid, gid, project.filter(|p| *p != 0)])
    }
}

impl From<&Attr> for Payers {
    fn from(a: &Attr) -> Payers {
        Payers::new(Some(a.uid.0), Some(a.gid.0), Some(a.projid))
    }
}

/// The tables of limits: of bytes and of objects, for users, groups and projects.
#[derive(Debug, Default)]
pub(crate) struct Quotas(RwLock<[[Option<Zap>; 3]; 2]>);

impl Quotas {
    /// Opens the tables that a file system has.
    pub(crate) fn load(os: &Objset, master: &Zap) -> Result<Quotas> {
        let open = |kind: SpaceKind| -> Result<Option<Zap>> {
            let Some(object) = table_object(master, kind)? else { return Ok(None) };
            Ok(Some(Zap::open(&os.dnode(object)?)?))
        };
        let three = |kinds: [SpaceKind; 3]| -> Result<[Option<Zap>; 3]> {
            Ok([open(kinds[0])?, open(kinds[1])?, open(kinds[2])?])
        };
        Ok(Quotas(RwLock::new([three(BYTES)?, three(OBJECTS)?])))
    }
}

fn table_object(master: &Zap, kind: SpaceKind) -> Result<Option<ObjNum>> {
    let Some(name) = kind.quota_name() else { return Ok(None) };
    Ok(master.lookup_u64(name.as_bytes())?.filter(|o| *o != 0).map(ObjNum))
}

impl FileSystem {
    /// Fails if a user, group or project has used its quota of bytes (`zfs_id_overblockquota`).
    pub(super) fn check_bytes(&self, w: &Writer, payers: Payers) -> Result<()> {
        self.check(w, payers, 0)
    }

    /// As `check_bytes`, but also for one more object (`zfs_id_overquota`).
    pub(super) fn check_one_more(&self, w: &Writer, payers: Payers) -> Result<()> {
        self.check(w, payers, 0)?;
        self.check(w, payers, 1)
    }

    fn check(&self, w: &Writer, payers: Payers, table: usize) -> Result<()> {
        // The first execution of a replayed operation checked the quotas.
        if w.replaying {
            return Ok(());
        }
        for (class, id) in payers.0.into_iter().enumerate() {
            let Some(id) = id else { continue };
            let Some(limits) = w.quotas.0.read()[table][class].clone() else { continue };
            let Some(limit) = limits.lookup_u64(format!("{id:x}").as_bytes())? else { continue };
            if self.used(class, table == 1, id)?.is_some_and(|used| used >= limit) {
                return Err(Error::Quota);
            }
        }
        Ok(())
    }

    /// The usage of an owner, as the last txg counted it.
    fn used(&self, class: usize, objects: bool, id: u64) -> Result<Option<u64>> {
        let dn = match self.objset().dnode(USED[class]) {
            Ok(dn) => dn,
            Err(dmu::Error::NoSuchObject { .. }) => return Ok(None),
            Err(e) => return Err(e.into()),
        };
        let prefix = if objects { crate::space::OBJECTS } else { b"" };
        let name = [prefix, format!("{id:x}").as_bytes()].concat();
        Ok(Zap::open(&dn)?.lookup_u64(&name)?)
    }

    /// Sets a quota of a user, group or project, in bytes or objects; 0 removes it
    /// (`zfs_set_userquota`).
    ///
    /// # Errors
    /// * [`Error::NotCounted`]: `kind` is no quota, or the file system doesn't count that usage.
    /// * The errors of [changing](Error#changing), except [`Error::NoFile`].
    pub fn set_quota(&self, kind: SpaceKind, id: Fuid, limit: u64) -> Result<()> {
        let w = self.writer()?;
        let place = |kinds: [SpaceKind; 3]| kinds.iter().position(|k| *k == kind);
        let (table, class) = match (place(BYTES), place(OBJECTS)) {
            (Some(class), _) => (0, class),
            (None, Some(class)) => (1, class),
            (None, None) => return Err(Error::NotCounted),
        };
        let mut needed = if table == 1 { ObjsetFlags::USEROBJACCOUNTING_COMPLETE } else { 0 };
        needed |= if class == 2 { ObjsetFlags::PROJECTQUOTA_COMPLETE } else { 0 };
        if self.version() < ZPL_VERSION_USERSPACE
            || (self.objset().phys().flags.0 | w.txs.accounting().0) & needed != needed
        {
            return Err(Error::NotCounted);
        }
        let tx = w.tx(Need::netfree(ATTR_BYTES + TABLE_BYTES))?;
        let name = format!("{:x}", id.0).into_bytes();
        let mut tables = w.quotas.0.write();
        let limits = match &tables[table][class] {
            Some(limits) => limits.clone(),
            None => {
                let made = Zap::create_kind(self.objset(), &tx, DmuType::USERGROUP_QUOTA)?;
                let object = made.dnode().object();
                let entry = kind.quota_name().expect("it is one of the quotas");
                self.master().add(&tx, entry.as_bytes(), &Value::from(object.0))?;
                tables[table][class] = Some(made.clone());
                made
            }
        };
        drop(tables);
        if limit > 0 {
            return Ok(limits.update(&tx, &name, &Value::from(limit))?);
        }
        match limits.remove(&tx, &name) {
            Ok(()) | Err(dmu::Error::NoEntry { .. }) => Ok(()),
            Err(e) => Err(e.into()),
        }
    }
}
