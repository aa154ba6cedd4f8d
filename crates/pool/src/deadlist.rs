//! Writing deadlists: the blocks that died in a dataset, by birth.
//!
//! # Theory
//! A block that a dataset no longer refers to, but that one of its snapshots does, goes on the
//! dataset's deadlist. The deadlist has a sub-list for each earlier snapshot. It holds blocks born
//! after that snapshot and up to the next. So destroying a snapshot frees whole sub-lists without
//! visiting a block. There is a key for each snapshot, and the key 0, even if their sub-lists are
//! empty.
//!
//! # Absent
//! Matching of births and deaths in livelists.
//!
//! # See
//! OpenZFS `module/zfs/dsl_deadlist.c`.

use crate::bpobj::{Deadlist, Dsize, Space, space_of};
use crate::{Error, Mos, Result};
use dmu::zap::{Normalization, Value, Zap};
use dmu::{NewObject, Tx};
use ondisk::bpobj::DeadlistPhys;
use ondisk::version::SPA_VERSION_DEADLISTS;
use ondisk::zap::ZapFlags;
use ondisk::{Blkptr, Corrupt, DmuType, ObjNum, mos};
use std::collections::BTreeMap;

/// The name of a key in the ZAP.
fn name(mintxg: u64) -> String {
    format!("{mintxg:x}")
}

impl Mos {
    /// Creates a deadlist without keys (`dsl_deadlist_alloc`). Before version 26, it is a plain
    /// list.
    ///
    /// # Errors
    /// The errors of [changing](Error#changing).
    pub fn create_deadlist(&self, tx: &Tx) -> Result<Deadlist> {
        if self.version() < SPA_VERSION_DEADLISTS {
            return self.deadlist(self.create_bpobj(tx)?);
        }
        let header = DeadlistPhys::default().encode().to_vec();
        let spec = NewObject::new(DmuType::DEADLIST).with_bonus(DmuType::DEADLIST_HDR, header);
        let zap = Zap::create(self.objset(), tx, &spec, Normalization::NONE, ZapFlags::default())?;
        self.deadlist(zap.dnode().object())
    }
}

impl Deadlist {
    fn store(&self, mos: &Mos, tx: &Tx) -> Result<()> {
        let phys = DeadlistPhys { used: self.total.used, comp: self.total.comp, uncomp: self.total.uncomp };
        let dn = mos.objset().dnode(self.object)?;
        Ok(dn.set_bonus(tx, DmuType::DEADLIST_HDR, &phys.encode())?)
    }

    fn corrupt(&self, why: &'static str) -> Error {
        Error::Corrupt { object: self.object, source: Corrupt::Shape { what: "deadlist", why } }
    }

    /// The key and the sub-list for blocks born in `birth`.
    fn list_of(&self, lists: &BTreeMap<u64, ObjNum>, birth: u64) -> Result<(u64, ObjNum)> {
        let before = lists.range(..birth).next_back();
        before.map(|(k, v)| (*k, *v)).ok_or_else(|| self.corrupt("a block is older than all its lists"))
    }

    /// Puts dead blocks on the list (`dsl_deadlist_insert`).
    ///
    /// # Errors
    /// The errors of [counting features](Error#counting-features). [`Error::Corrupt`] also if a
    /// block is older than all sub-lists.
    pub fn insert(&mut self, mos: &Mos, tx: &Tx, bps: &[Blkptr], dsize: Dsize<'_>) -> Result<()> {
        if bps.is_empty() {
            return Ok(());
        }
        let mut sum = Space::default();
        bps.iter().for_each(|bp| sum.add(space_of(bp, dsize)));
        if self.old {
            mos.bpobj_append(tx, self.object, bps, false, dsize)?;
            self.total.add(sum);
            return Ok(());
        }
        let lists = self.lists(mos)?;
        let mut by_list: BTreeMap<u64, (ObjNum, Vec<Blkptr>)> = BTreeMap::new();
        for bp in bps {
            let (key, list) = self.list_of(&lists, bp.birth.0)?;
            by_list.entry(key).or_insert_with(|| (list, Vec::new())).1.push(*bp);
        }
        for (key, (mut list, bps)) in by_list {
            if mos.is_empty_bpobj(list)? {
                mos.destroy_bpobj(tx, list)?;
                list = mos.create_bpobj(tx)?;
                mos.set_word(tx, self.object, &name(key), list.0)?;
            }
            mos.bpobj_append(tx, list, &bps, false, dsize)?;
        }
        self.total.add(sum);
        self.store(mos, tx)
    }

    /// Adds the keys of snapshots that are newer than all others (`dsl_deadlist_add_key`).
    ///
    /// # Errors
    /// The errors of [counting features](Error#counting-features).
    pub fn add_keys(&self, mos: &Mos, tx: &Tx, keys: &[u64]) -> Result<()> {
        if self.old {
            return Ok(());
        }
        let zap = Zap::open(&mos.objset().dnode(self.object)?)?;
        for (key, empty) in keys.iter().zip(mos.create_empty_bpobjs(tx, keys.len())?) {
            zap.update(tx, name(*key).as_bytes(), &Value::from(empty.0))?;
        }
        Ok(())
    }

    /// Moves a whole list into the sub-list of a key.
    fn append_list(&self, mos: &Mos, tx: &Tx, key: u64, into: ObjNum, list: ObjNum) -> Result<()> {
        if !mos.is_empty_bpobj(into)? {
            return mos.bpobj_append_list(tx, into, list);
        }
        mos.set_word(tx, self.object, &name(key), list.0)?;
        mos.destroy_bpobj(tx, into)
    }

    /// Removes the key of a snapshot, if there is one. Its blocks move to the key before
    /// (`dsl_deadlist_remove_key`).
    ///
    /// The key of a bookmark can be gone: another bookmark, a copy of it, had it too.
    ///
    /// # Errors
    /// * The errors of [counting features](Error#counting-features). [`Error::Corrupt`] also if
    ///   the key before is missing.
    /// * [`Error::Unsupported`]: the pool was too old for sub-lists when a list was created.
    pub fn remove_key(&self, mos: &Mos, tx: &Tx, mintxg: u64) -> Result<()> {
        if self.old {
            return Ok(());
        }
        let lists = self.lists(mos)?;
        let Some(&list) = lists.get(&mintxg) else { return Ok(()) };
        let (key, before) = self.list_of(&lists, mintxg)?;
        mos.unset(tx, self.object, &name(mintxg))?;
        self.append_list(mos, tx, key, before, list)
    }

    /// Moves everything from another deadlist to this one (`dsl_deadlist_merge`). The other is then
    /// empty, without keys.
    ///
    /// # Errors
    /// * The errors of [counting features](Error#counting-features). [`Error::Corrupt`] also if a
    ///   block is older than all sub-lists here.
    /// * [`Error::Unsupported`]: the pool was too old for sub-lists when a list was created.
    pub fn merge(&mut self, mos: &Mos, tx: &Tx, other: ObjNum, dsize: Dsize<'_>) -> Result<()> {
        let mut other = mos.deadlist(other)?;
        if other.old {
            loop {
                let mut bps = Vec::new();
                let mut each = |bp: &Blkptr, _| {
                    bps.push(*bp);
                    Ok(())
                };
                let (_, done) = mos.bpobj_take(tx, other.object, 10_000, dsize, &mut each)?;
                self.insert(mos, tx, &bps, dsize)?;
                if done {
                    return Ok(());
                }
            }
        }
        for (mintxg, list) in other.lists(mos)? {
            let phys = mos.bpobj(list)?;
            self.total.add(Space { used: phys.bytes, comp: phys.comp, uncomp: phys.uncomp });
            // The blocks of a key were born after it. So they go to that key here, or to the one
            // before.
            let (key, into) = self.list_of(&self.lists(mos)?, mintxg.saturating_add(1))?;
            mos.unset(tx, other.object, &name(mintxg))?;
            self.append_list(mos, tx, key, into, list)?;
        }
        other.total = Space::default();
        other.store(mos, tx)?;
        self.store(mos, tx)
    }

    /// Moves the blocks born after `mintxg`, and their keys, to a list of blocks
    /// (`dsl_deadlist_move_bpobj`).
    ///
    /// # Errors
    /// * The errors of [counting features](Error#counting-features).
    /// * [`Error::Unsupported`]: the deadlist is a plain list, or the pool was too old for
    ///   sub-lists.
    pub fn move_to(&mut self, mos: &Mos, tx: &Tx, bpobj: ObjNum, mintxg: u64) -> Result<Space> {
        if self.old {
            return Err(Error::Unsupported { what: "deadlists of pool versions before 26" });
        }
        let mut moved = Space::default();
        for (key, list) in self.lists(mos)?.range(mintxg..) {
            let phys = mos.bpobj(*list)?;
            moved.add(Space { used: phys.bytes, comp: phys.comp, uncomp: phys.uncomp });
            mos.bpobj_append_list(tx, bpobj, *list)?;
            mos.unset(tx, self.object, &name(*key))?;
        }
        self.total.used = self.total.used.saturating_sub(moved.used);
        self.total.comp = self.total.comp.saturating_sub(moved.comp);
        self.total.uncomp = self.total.uncomp.saturating_sub(moved.uncomp);
        self.store(mos, tx)?;
        Ok(moved)
    }

    /// Destroys the deadlist, but not the blocks on it (`dsl_deadlist_free`).
    ///
    /// # Errors
    /// The errors of [counting features](Error#counting-features).
    pub fn destroy(self, mos: &Mos, tx: &Tx) -> Result<()> {
        if self.old {
            return mos.destroy_bpobj(tx, self.object);
        }
        let empty = mos.dir(mos::EMPTY_BPOBJ)?;
        let (shared, own): (Vec<_>, Vec<_>) =
            self.lists(mos)?.into_values().partition(|list| Some(*list) == empty);
        own.into_iter().try_for_each(|list| mos.destroy_bpobj(tx, list))?;
        if !shared.is_empty() {
            mos.release_empty_bpobj(tx, shared.len() as u64)?;
        }
        Ok(mos.objset().free_object(tx, self.object)?)
    }
}
