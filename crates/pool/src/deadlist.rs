//! Writing deadlists: the blocks that died in a dataset, by when they were born.
//!
//! # Theory
//! A block that a dataset no longer refers to, but one of its snapshots does, goes on the dataset's deadlist. The list has a sub-list
//! for each snapshot before it, of what was born after that snapshot and up to the next: so destroying a snapshot frees whole
//! sub-lists and looks at no block. A key is there for each snapshot, and 0, though its sub-list be empty.
//!
//! # Absent
//! Livelists' matching of births and deaths.
//!
//! # See
//! OpenZFS `module/zfs/dsl_deadlist.c`.

use crate::bpobj::{Deadlist, Dsize, Space, space_of};
use crate::{Error, Mos, Result};
use dmu::zap::{Normalization, Zap};
use dmu::{NewObject, Tx};
use ondisk::bpobj::DeadlistPhys;
use ondisk::version::SPA_VERSION_DEADLISTS;
use ondisk::zap::ZapFlags;
use ondisk::{Blkptr, Corrupt, DmuType, ObjNum};
use std::collections::BTreeMap;

/// The name of a key in the ZAP.
fn name(mintxg: u64) -> String {
    format!("{mintxg:x}")
}

impl Mos {
    /// A new deadlist without keys (`dsl_deadlist_alloc`); before version 26 a plain list.
    ///
    /// # Errors
    /// As changing the MOS fails.
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

    /// The list of what was born in `birth`, and its key.
    fn list_of(&self, lists: &BTreeMap<u64, ObjNum>, birth: u64) -> Result<(u64, ObjNum)> {
        let before = lists.range(..birth).next_back();
        before.map(|(k, v)| (*k, *v)).ok_or_else(|| self.corrupt("a block is older than all its lists"))
    }

    /// Puts dead blocks on the list (`dsl_deadlist_insert`).
    ///
    /// # Errors
    /// As changing the MOS fails; [`Error::Corrupt`] when a block is older than all lists.
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

    /// Adds the key of a snapshot that is newer than all before (`dsl_deadlist_add_key`).
    ///
    /// # Errors
    /// As changing the MOS fails.
    pub fn add_key(&self, mos: &Mos, tx: &Tx, mintxg: u64) -> Result<()> {
        if self.old {
            return Ok(());
        }
        let empty = mos.create_empty_bpobj(tx)?;
        mos.set_word(tx, self.object, &name(mintxg), empty.0)
    }

    /// Puts a whole list into that of a key.
    fn append_list(&self, mos: &Mos, tx: &Tx, key: u64, into: ObjNum, list: ObjNum) -> Result<()> {
        if !mos.is_empty_bpobj(into)? {
            return mos.bpobj_append_list(tx, into, list);
        }
        mos.set_word(tx, self.object, &name(key), list.0)?;
        mos.destroy_bpobj(tx, into)
    }

    /// Removes the key of a snapshot; what was under it comes under the key before (`dsl_deadlist_remove_key`).
    ///
    /// # Errors
    /// As changing the MOS fails; [`Error::Corrupt`] if there is no such key, or none before.
    pub fn remove_key(&self, mos: &Mos, tx: &Tx, mintxg: u64) -> Result<()> {
        if self.old {
            return Ok(());
        }
        let lists = self.lists(mos)?;
        let list = *lists.get(&mintxg).ok_or_else(|| self.corrupt("a snapshot has no list"))?;
        let (key, before) = self.list_of(&lists, mintxg)?;
        mos.unset(tx, self.object, &name(mintxg))?;
        self.append_list(mos, tx, key, before, list)
    }

    /// A new deadlist with the keys below `maxtxg`, and nothing on it (`dsl_deadlist_clone`). The old kind has no keys: for it they are
    /// `keys`, the txgs of the snapshots before (`dsl_deadlist_regenerate`).
    ///
    /// # Errors
    /// As changing the MOS fails.
    pub fn clone_keys(&self, mos: &Mos, tx: &Tx, maxtxg: u64, keys: &[u64]) -> Result<Deadlist> {
        let out = mos.create_deadlist(tx)?;
        let own: Vec<u64> = if self.old {
            keys.to_vec()
        } else {
            self.lists(mos)?.range(..maxtxg).map(|(k, _)| *k).collect()
        };
        own.into_iter().try_for_each(|key| out.add_key(mos, tx, key))?;
        Ok(out)
    }

    /// Moves all that is on another deadlist here; it is left empty, without keys (`dsl_deadlist_merge`).
    ///
    /// # Errors
    /// As changing the MOS fails; [`Error::Corrupt`] when something is older than all lists here.
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
            // What was under a key was born after it: it comes under that key here, or the one before.
            let (key, into) = self.list_of(&self.lists(mos)?, mintxg.saturating_add(1))?;
            mos.unset(tx, other.object, &name(mintxg))?;
            self.append_list(mos, tx, key, into, list)?;
        }
        other.total = Space::default();
        other.store(mos, tx)?;
        self.store(mos, tx)
    }

    /// Moves what was born after `mintxg`, with its keys, to a list of blocks (`dsl_deadlist_move_bpobj`).
    ///
    /// # Errors
    /// As changing the MOS fails; [`Error::Unsupported`] for the old kind.
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

    /// Destroys the list, not the blocks on it (`dsl_deadlist_free`).
    ///
    /// # Errors
    /// As changing the MOS fails.
    pub fn destroy(self, mos: &Mos, tx: &Tx) -> Result<()> {
        if self.old {
            return mos.destroy_bpobj(tx, self.object);
        }
        self.lists(mos)?.into_values().try_for_each(|list| mos.destroy_bpobj(tx, list))?;
        Ok(mos.objset().free_object(tx, self.object)?)
    }
}
