//! Accounting of space and objects by user, group and project.
//!
//! # Theory
//! After an object's blocks are written, its space and its owners before and after the txg are
//! known. The differences are summed by owner and added to three ZAPs. The name of an entry is the
//! owner's number in hexadecimal, with the prefix `obj-` for the count of objects. Flags in the
//! dnode say whether an object is counted. A counted object stays counted.
//!
//! A stream can carry owners whose entries collide, so that the ZAP has no space for one more
//! (`crate::zap::room`). A sync can't refuse the stream any more. So such an owner is not counted,
//! and has no quota. Removing its files later leaves its count at 0.

use crate::live::dirty::SpillBlock;
use crate::sync::{Sync, Synced};
use crate::zap::{Normalization, Zap};
use crate::{
    DMU_GROUPUSED_OBJECT, DMU_PROJECTUSED_OBJECT, DMU_USERUSED_OBJECT, Error, NewObject, Objset, Result, Tx,
};
use ondisk::dnode::{DNODE_MIN_SIZE, DnodeFlags, DnodePhys};
use ondisk::objset::{ObjsetFlags, ObjsetKind};
use ondisk::sa::{Attr, SA_MAGIC};
use ondisk::zap::ZapFlags;
use ondisk::znode::{Pflags, ZNODE_SIZE, Znode};
use ondisk::{ByteOrder, Corrupt, DmuType, ObjNum};
use std::collections::BTreeMap;

/// Offsets of the attributes that accounting needs, after the header of a file's bonus
/// (`SA_UID_OFFSET` and so on).
///
/// The layouts of all files begin alike.
const SA_GEN: usize = 16;
const SA_UID: usize = 24;
const SA_GID: usize = 32;
const SA_FLAGS: usize = 48;
const SA_PROJID: usize = 128;

/// The owners of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Owner {
    user: u64,
    group: u64,
    project: u64,
}

impl Owner {
    /// The owners of a file with this bonus (`zpl_get_file_info`). `None` for an object that is no
    /// file.
    fn of(kind: DmuType, bonus: &[u8]) -> ondisk::Result<Option<Owner>> {
        let le = ByteOrder::Little;
        match kind {
            DmuType::ZNODE if bonus.len() < ZNODE_SIZE => {
                Err(Corrupt::Truncated { what: "znode", need: ZNODE_SIZE, have: bonus.len() })
            }
            DmuType::ZNODE => {
                let word = |attr| {
                    let at = Znode::place(attr).expect("a znode has a place for its owners");
                    le.u64("znode", bonus, at.start)
                };
                Ok(Some(Owner { user: word(Attr::Uid)?, group: word(Attr::Gid)?, project: 0 }))
            }
            DmuType::SA => {
                let what = "system attributes";
                let order = match le.u32(what, bonus, 0)? {
                    // A file to which nothing was written yet.
                    0 => return Ok(Some(Owner::default())),
                    SA_MAGIC => ByteOrder::Little,
                    m if m.swap_bytes() == SA_MAGIC => ByteOrder::Big,
                    found => return Err(Corrupt::Magic { what, found: found.into() }),
                };
                let header = usize::from(order.u16(what, bonus, 4)? >> 10) * 8;
                let word = |at: usize| order.u64(what, bonus, header + at);
                let own = Pflags(word(SA_FLAGS)?).has(Pflags::PROJID);
                let project = if own { word(SA_PROJID)? } else { 0 };
                Ok(Some(Owner { user: word(SA_UID)?, group: word(SA_GID)?, project }))
            }
            _ => Ok(None),
        }
    }
}

/// Whether accounting can read the owners of a file from its bonus, or from a spill block in its
/// place.
///
/// What arrives from outside is checked with this before it becomes an object, because a sync can't
/// refuse it.
///
/// # Errors
/// * [`Corrupt`]: the owners can't be read.
pub fn check_owner(kind: DmuType, bonus: &[u8]) -> ondisk::Result<()> {
    if bonus.is_empty() { Ok(()) } else { Owner::of(kind, bonus).map(drop) }
}

/// The generation of a file with this bonus, which tells a file from a later one of the same number
/// (`zfi_generation`). `None` for an object that is no file.
///
/// # Errors
/// * [`Corrupt`]: it can't be read.
pub fn generation(kind: DmuType, bonus: &[u8]) -> ondisk::Result<Option<u64>> {
    let le = ByteOrder::Little;
    match (kind, Owner::of(kind, bonus)?) {
        (DmuType::ZNODE, Some(_)) => {
            let at = Znode::place(Attr::Gen).expect("a znode has a place for its generation");
            le.u64("znode", bonus, at.start).map(Some)
        }
        (_, Some(_)) if le.u32("system attributes", bonus, 0)? != 0 => {
            let order = if le.u32("system attributes", bonus, 0)? == SA_MAGIC { le } else { ByteOrder::Big };
            let header = usize::from(order.u16("system attributes", bonus, 4)? >> 10) * 8;
            order.u64("system attributes", bonus, header + SA_GEN).map(Some)
        }
        _ => Ok(None),
    }
}

/// Sums by table and name.
#[derive(Default)]
struct Deltas(BTreeMap<(ObjNum, String), i64>);

impl Deltas {
    /// Counts an object in (`sign` 1) or out (`sign` -1), as far as its flags say that it is
    /// counted.
    fn count(&mut self, owner: Owner, flags: DnodeFlags, used: u64, sign: i64, projects: bool) {
        let mut tables = vec![(DMU_USERUSED_OBJECT, owner.user), (DMU_GROUPUSED_OBJECT, owner.group)];
        if projects {
            tables.push((DMU_PROJECTUSED_OBJECT, owner.project));
        }
        for (table, id) in tables {
            if flags.has(DnodeFlags::USERUSED_ACCOUNTED) {
                let bytes = used.saturating_add(DNODE_MIN_SIZE as u64).min(i64::MAX as u64) as i64;
                *self.0.entry((table, format!("{id:x}"))).or_default() += sign * bytes;
            }
            if flags.has(DnodeFlags::USEROBJUSED_ACCOUNTED) {
                *self.0.entry((table, format!("obj-{id:x}"))).or_default() += sign;
            }
        }
    }
}

impl Sync<'_> {
    /// Counts the changes of these objects (`dmu_objset_sync_done`).
    ///
    /// # Errors
    /// * The errors of [changing a ZAP](Error#changing-a-zap).
    pub(super) fn account(&mut self, os: &Objset, tx: &Tx, synced: &mut [Synced]) -> Result<()> {
        let live = self.live.clone();
        let phys = live.phys();
        // If only the root changes, no table is read. The key of the object set may not be loaded.
        // The owners of what arrives raw are encrypted.
        if phys.kind != ObjsetKind::Zfs || synced.is_empty() || live.raw.is_raw() {
            return Ok(());
        }
        let mut recount = live.recount.lock();
        let mut recount = recount.as_mut().filter(|r| r.covers(self.txg));
        if let Some(r) = recount.as_deref_mut().filter(|r| !r.is_begun) {
            for table in [DMU_USERUSED_OBJECT, DMU_GROUPUSED_OBJECT, DMU_PROJECTUSED_OBJECT] {
                match os.free_object(tx, table) {
                    Ok(()) | Err(Error::NoSuchObject { .. }) => {}
                    Err(e) => return Err(e),
                }
            }
            r.is_begun = true;
        }
        let flags = recount.as_ref().map_or(phys.flags, |r| r.flags);
        let has = |flag| flags.0 & flag != 0;
        if !has(ObjsetFlags::USERACCOUNTING_COMPLETE) {
            return Ok(());
        }
        let mut new_flags = DnodeFlags::USERUSED_ACCOUNTED;
        if has(ObjsetFlags::USEROBJACCOUNTING_COMPLETE) {
            new_flags |= DnodeFlags::USEROBJUSED_ACCOUNTED;
        }
        let projects = has(ObjsetFlags::PROJECTQUOTA_COMPLETE);
        let mut deltas = Deltas::default();
        for s in synced {
            let recounted = recount.as_deref_mut().map(|r| r.note(s.dn.object, s.new.is_some()));
            if let Some(old) = &s.old
                && let Some(owner) = self.owner_before(s, &old.phys)?
            {
                let counted = match recounted {
                    Some(false) => DnodeFlags(0),
                    Some(true) => DnodeFlags(new_flags),
                    None => old.phys.flags,
                };
                deltas.count(owner, counted, old.phys.used_bytes, -1, projects);
            }
            let Some(new) = &mut s.new else { continue };
            new.flags.0 |= new_flags;
            let (flags, used) = (new.flags, new.used_bytes);
            if let Some(owner) = self.owner_after(s)? {
                deltas.count(owner, flags, used, 1, projects);
            }
        }
        for table in [DMU_USERUSED_OBJECT, DMU_GROUPUSED_OBJECT] {
            table_of(os, tx, table)?;
        }
        if projects {
            table_of(os, tx, DMU_PROJECTUSED_OBJECT)?;
        }
        for ((table, name), delta) in deltas.0.into_iter().filter(|(_, delta)| *delta != 0) {
            match table_of(os, tx, table)?.increment(tx, name.as_bytes(), delta) {
                // Its owner is not counted.
                Ok(()) | Err(Error::ZapFull { .. }) => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    fn owner_before(&self, s: &Synced, old: &DnodePhys) -> Result<Option<Owner>> {
        let spilled = old.bonus_kind == DmuType::SA && old.bonus.is_empty();
        let spill = if spilled { s.old.as_ref().map_or(Ok(None), |t| t.spill(&self.options))? } else { None };
        let bytes = spill.as_deref().unwrap_or(&old.bonus);
        self.owner(s, old.bonus_kind, bytes)
    }

    fn owner_after(&self, s: &Synced) -> Result<Option<Owner>> {
        let Some(new) = &s.new else { return Ok(None) };
        let spilled = new.bonus_kind == DmuType::SA && new.bonus.is_empty();
        let spill = match &s.dirty.spill {
            _ if !spilled => None,
            Some(Some(SpillBlock::Plain(block))) => Some(block.clone()),
            // Of a raw stream, nothing is counted.
            Some(_) => None,
            None => s.old.as_ref().filter(|_| !s.dirty.wipe).map_or(Ok(None), |t| t.spill(&self.options))?,
        };
        self.owner(s, new.bonus_kind, spill.as_deref().unwrap_or(&new.bonus))
    }

    fn owner(&self, s: &Synced, kind: DmuType, bytes: &[u8]) -> Result<Option<Owner>> {
        let bad = |source| Error::Corrupt { objset: self.live.home.id, object: s.dn.object, source };
        if bytes.is_empty() {
            return Ok(None);
        }
        Owner::of(kind, bytes).map_err(bad)
    }
}

/// The ZAP of a table, created if there is none.
fn table_of(os: &Objset, tx: &Tx, table: ObjNum) -> Result<Zap> {
    match os.dnode(table) {
        Ok(dn) => Zap::open(&dn),
        Err(Error::NoSuchObject { .. }) => {
            let spec = NewObject::new(DmuType::USERGROUP_USED);
            Zap::create_claim(os, tx, table, &spec, Normalization::NONE, ZapFlags::default())
        }
        Err(e) => Err(e),
    }
}
