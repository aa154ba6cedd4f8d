//! ZAPs and deadlists as operations on datasets change them.
//!
//! # On disk
//! A deadlist is a ZAP from a txg to a list of the blocks born after it, up to the next key. There
//! is a key for each snapshot in the dataset's past, and the key 0. So destroying a snapshot finds
//! its blocks in whole lists ([`pool::deadlist`]).

use crate::account::Delta;
use crate::sync::Syncing;
use crate::{Error, Result};
use dmu::zap::{Normalization, Value, Zap};
use dmu::{NewObject, Objset, Tx};
use ondisk::mos::{DD_LIVELIST, FREE_BPOBJ};
use ondisk::objset::ZIL_HEADER;
use ondisk::zap::ZapFlags;
use ondisk::{Blkptr, Corrupt, DmuType, ObjNum};

/// Words as a ZAP value.
pub(crate) fn words(words: &[u64]) -> Value {
    Value::integers(8, words)
}

/// Removal of entries that may be absent.
pub(crate) trait DropEntry {
    /// Removes an entry; true if it was there.
    fn drop_entry(&self, tx: &Tx, name: &[u8]) -> Result<bool>;
}

impl DropEntry for Zap {
    fn drop_entry(&self, tx: &Tx, name: &[u8]) -> Result<bool> {
        match self.remove(tx, name) {
            Ok(()) => Ok(true),
            Err(dmu::Error::NoEntry { .. }) => Ok(false),
            Err(e) => Err(e.into()),
        }
    }
}

/// How names are compared without case, where a dataset asks for it (`U8_TEXTPREP_TOUPPER`).
pub(crate) fn upper() -> Normalization {
    Normalization::from_disk(0x02).expect("file systems fold case alone")
}

/// The key of a number in a ZAP that is a set of numbers (`zap_add_int`).
pub(crate) fn int_key(n: u64) -> String {
    format!("{n:x}")
}

impl Syncing<'_> {
    /// A new, empty ZAP of the MOS.
    pub(crate) fn zap_create(&self, kind: DmuType) -> Result<u64> {
        self.zap_create_norm(kind, Normalization::NONE)
    }

    /// A new, empty ZAP of the MOS whose names are compared this way.
    pub(crate) fn zap_create_norm(&self, kind: DmuType, norm: Normalization) -> Result<u64> {
        let spec = NewObject::new(kind);
        let zap = Zap::create(self.mos().objset(), self.tx, &spec, norm, ZapFlags::default())?;
        Ok(zap.dnode().object().0)
    }

    /// A new deadlist with these keys and no blocks (`dsl_deadlist_alloc`).
    pub(crate) fn deadlist_create(&self, keys: &[u64]) -> Result<u64> {
        let list = self.mos().create_deadlist(self.tx)?;
        list.add_keys(self.mos(), self.tx, keys)?;
        Ok(list.object.0)
    }

    /// The keys of a deadlist below `max`.
    ///
    /// A deadlist of an old pool has no keys. The snapshots in its dataset's past give the keys
    /// that it would have; `latest` is the last of them.
    pub(crate) fn deadlist_keys(&mut self, object: u64, max: u64, latest: u64) -> Result<Vec<u64>> {
        let list = self.mos().deadlist(ObjNum(object))?;
        if !list.is_old() {
            return Ok(list.lists(self.mos())?.into_keys().take_while(|k| *k < max).collect());
        }
        let mut keys = Vec::new();
        let mut at = latest;
        while at != 0 {
            let p = self.ds(at)?;
            if keys.last().is_some_and(|k| *k <= p.prev_snap_txg) {
                let why = "the chain does not go back in time";
                let source = Corrupt::Shape { what: "snapshot", why };
                return Err(Error::Corrupt { object: ObjNum(at), source });
            }
            keys.push(p.prev_snap_txg);
            at = p.prev_snap_obj;
        }
        Ok(keys)
    }

    /// Adds dead blocks to a deadlist (`dsl_deadlist_insert`).
    pub(crate) fn deadlist_insert(&mut self, object: u64, dead: &[Blkptr]) -> Result<()> {
        if dead.is_empty() {
            return Ok(());
        }
        let mut list = self.mos().deadlist(ObjNum(object))?;
        Ok(list.insert(self.mos(), self.tx, dead, self.env.dsize)?)
    }

    /// Removes a key that is no longer needed: its list joins the one before
    /// (`dsl_deadlist_remove_key`).
    pub(crate) fn deadlist_remove_key(&mut self, object: u64, key: u64) -> Result<()> {
        Ok(self.mos().deadlist(ObjNum(object))?.remove_key(self.mos(), self.tx, key)?)
    }

    /// Moves blocks born after a txg to the pool's list of blocks to free
    /// (`dsl_deadlist_move_bpobj`).
    pub(crate) fn deadlist_move_to_free(&mut self, object: u64, after: u64) -> Result<()> {
        let to = self.free_list()?;
        self.mos().deadlist(ObjNum(object))?.move_to(self.mos(), self.tx, to, after)?;
        Ok(())
    }

    /// Merges a deadlist into another, and frees it (`dsl_deadlist_merge`).
    pub(crate) fn deadlist_merge(&mut self, into: u64, from: u64) -> Result<()> {
        let mut list = self.mos().deadlist(ObjNum(into))?;
        list.merge(self.mos(), self.tx, ObjNum(from), self.env.dsize)?;
        self.deadlist_free(from)
    }

    /// Frees a deadlist with all its lists, but not the blocks on them (`dsl_deadlist_free`).
    pub(crate) fn deadlist_free(&mut self, object: u64) -> Result<()> {
        Ok(self.mos().deadlist(ObjNum(object))?.destroy(self.mos(), self.tx)?)
    }

    /// The pool's list of blocks to free (`dp_free_bpobj`).
    fn free_list(&self) -> Result<ObjNum> {
        Ok(self.mos().dir(FREE_BPOBJ)?.ok_or(pool::Error::Missing { name: FREE_BPOBJ })?)
    }

    /// Whether the pool's list has blocks.
    pub(crate) fn free_list_is_waiting(&self) -> Result<bool> {
        let Some(list) = self.mos().dir(FREE_BPOBJ)? else { return Ok(false) };
        let p = self.mos().bpobj(list)?;
        Ok(p.num_blkptrs > 0 || p.num_subobjs > 0)
    }

    /// Frees blocks of the pool's list; returns their space.
    pub(crate) fn free_from_list(&mut self, budget: &mut u64) -> Result<Delta> {
        let mut freed = Delta::default();
        if *budget == 0 || !self.free_list_is_waiting()? {
            return Ok(freed);
        }
        let (dsize, txg) = (self.env.dsize, self.tx.txg());
        let cache = self.mos().objset().cache();
        let mut each = |bp: &Blkptr, _: bool| {
            freed += Delta::of(bp, dsize(bp));
            cache.free(txg, bp, None).map_err(|e| pool::Error::from(dmu::Error::from(e)))
        };
        let list = self.free_list()?;
        let (taken, _) = self.mos().bpobj_take(self.tx, list, *budget, dsize, &mut each)?;
        *budget -= taken.min(*budget);
        Ok(freed)
    }

    /// Drops a livelist, since the clone's blocks change (`dsl_dir_remove_livelist`).
    pub(crate) fn drop_livelist(&mut self, dir: u64) -> Result<()> {
        let Some(list) = self.field_u64(dir, DD_LIVELIST)? else { return Ok(()) };
        self.deadlist_free(list)?;
        self.zap(dir)?.drop_entry(self.tx, DD_LIVELIST.as_bytes())?;
        self.feature_count("livelist", -1)
    }

    /// The object set of a head that has an intent log.
    fn with_log(&mut self, head: u64) -> Result<Option<Objset>> {
        let bp = self.ds(head)?.bp;
        if bp.is_hole() {
            return Ok(None);
        }
        let os = Objset::open(self.mos().objset().cache().clone(), head, &bp, self.mos().options().clone())?;
        let none = [0; ZIL_HEADER.end - ZIL_HEADER.start];
        Ok((os.phys().zil_header != none).then_some(os))
    }

    /// Whether a head has an intent log, and no way to find its blocks.
    pub(crate) fn has_foreign_log(&mut self, head: u64) -> Result<bool> {
        Ok(self.log_blocks.is_none() && self.with_log(head)?.is_some())
    }

    /// Frees the blocks of a head's intent log (`zil_destroy_sync`). No account counts them.
    pub(crate) fn free_log(&mut self, head: u64) -> Result<()> {
        let Some((os, find)) = self.with_log(head)?.zip(self.log_blocks) else { return Ok(()) };
        let zio = self.mos().objset().cache().zio();
        for bp in find(&os)? {
            zio.free(self.tx.txg(), &bp).map_err(dmu::Error::from)?;
        }
        Ok(())
    }
}
