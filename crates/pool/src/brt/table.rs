//! The table of cloned blocks of a pool that is written.
//!
//! # Theory
//! A clone adds a reference to a block in its txg. A free takes a reference away while there are
//! any. Only after the last one does it free the block.
//!
//! An entry counts the references beyond the first, by the place of the first copy. The clones of a
//! txg count when the txg begins to sync, before its frees ([`CloneTable::begin`]). The result of
//! both is written once ([`CloneTable::sync`]).
//!
//! # Locks
//! One mutex, held while an entry is looked up in the MOS of the last txg.
//!
//! # See
//! OpenZFS `module/zfs/brt.c`.

use super::BrtVdev;
use crate::feature::known;
use crate::metaslab::TopVdev;
use crate::{Error, Mos, Result};
use arc::Cache;
use dmu::zap::{Normalization, Value, Zap};
use dmu::{NewObject, Objset, Tx};
use observe::lock::Mutex;
use ondisk::brt::{BRT_VDEV_PREFIX, BrtVdevPhys};
use ondisk::zap::ZapFlags;
use ondisk::{Blkptr, Corrupt, DmuType, ObjNum, Txg, VdevId};
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use zio::ReadOptions;

/// Bytes that one count covers (`BRT_RANGESIZE`).
const RANGE: u64 = 16 << 20;
/// Bytes of a block of counts (`BRT_BLOCKSIZE`).
const COUNTS_BLOCK: u32 = 32 << 10;
/// Bytes of a block of entries (`brt_zap_default_bs`, `brt_zap_default_ibs`: 2^12).
const ENTRIES_BLOCK: u32 = 1 << 12;
const ENTRIES_SHIFT: u8 = 12;
/// The feature `block_cloning`, which counts the vdevs that have a table.
const FEATURE: &str = "com.fudosecurity:block_cloning";

/// The tables of all vdevs (`spa_brt_vdevs`).
#[derive(Debug)]
pub struct CloneTable(Mutex<State>);

#[derive(Debug)]
struct State {
    vdevs: BTreeMap<VdevId, Vdev>,
    /// Clones by the txg that made them.
    pending: BTreeMap<Txg, Noted>,
    /// The MOS of the last txg.
    view: (Weak<Cache>, Blkptr),
    /// The first failed lookup. Its answer is unknown, so nothing more is freed or written.
    failed: Option<Error>,
}

/// Clones by the place of the block's first copy: their number, and the deflated bytes of the
/// block.
type Noted = BTreeMap<(VdevId, u64), (u64, u64)>;

/// The table of a vdev.
#[derive(Debug)]
struct Vdev {
    top: TopVdev,
    object: Option<ObjNum>,
    phys: BrtVdevPhys,
    counts: Vec<u16>,
    /// The object of the entries in the MOS of the last txg, if there was one.
    known: Option<ObjNum>,
    /// The current entries that this txg has used, and whether they must be written. A count of 0
    /// means no entry.
    entries: BTreeMap<u64, (u64, bool)>,
    dirty: bool,
}

impl Vdev {
    fn name(&self) -> String {
        format!("{BRT_VDEV_PREFIX}{}", self.top.id)
    }

    fn range(&self, offset: u64) -> usize {
        (offset / self.phys.rangesize.max(1)) as usize
    }

    fn new(top: TopVdev) -> Vdev {
        let size = top.space().div_ceil(RANGE);
        let phys = BrtVdevPhys { size, rangesize: RANGE, ..BrtVdevPhys::default() };
        let counts = vec![0; size as usize];
        Vdev { top, object: None, phys, counts, known: None, entries: BTreeMap::new(), dirty: false }
    }

    fn open(mos: &Mos, top: TopVdev, brt: &BrtVdev) -> Result<Vdev> {
        let range = |field, value| Error::Corrupt {
            object: brt.object,
            source: Corrupt::Range { what: "BRT vdev", field, value },
        };
        let mut phys = brt.phys;
        if phys.big_endian {
            return Err(Error::Unsupported { what: "cloned blocks counted big-endian" });
        }
        // As many counts as cover the vdev's metaslabs. The vdev may have grown since they were
        // written.
        let size = top.space().div_ceil(phys.rangesize.max(1 << 20));
        let dn = mos.objset().dnode(brt.object)?;
        if phys.rangesize < 1 << 20 || phys.size > size || phys.size > dn.max_size() / 2 {
            return Err(range("ranges", phys.size));
        }
        let mut raw = vec![0; phys.size as usize * 2];
        dn.read_at(0, &mut raw)?;
        let mut counts: Vec<u16> = raw.as_chunks::<2>().0.iter().map(|c| u16::from_le_bytes(*c)).collect();
        counts.resize(size as usize, 0);
        phys.size = size;
        let known = Some(ObjNum(phys.mos_entries));
        Ok(Vdev {
            top,
            object: Some(brt.object),
            phys,
            counts,
            known,
            entries: BTreeMap::new(),
            dirty: false,
        })
    }

    /// Adds `n` references to the entry at `offset`, which has `have`. The block takes `dsize`
    /// bytes.
    fn add(&mut self, offset: u64, have: u64, n: u64, dsize: u64) {
        self.phys.savedspace = self.phys.savedspace.saturating_add(dsize.saturating_mul(n));
        if have == 0 {
            self.phys.usedspace = self.phys.usedspace.saturating_add(dsize);
            self.phys.totalcount += 1;
            let range = self.range(offset);
            if let Some(count) = self.counts.get_mut(range) {
                *count = count.saturating_add(1);
            }
        }
        self.entries.insert(offset, (have.saturating_add(n), true));
        self.dirty = true;
    }

    /// Removes one reference.
    fn take(&mut self, offset: u64, have: u64, dsize: u64) {
        self.phys.savedspace = self.phys.savedspace.saturating_sub(dsize);
        if have == 1 {
            self.phys.usedspace = self.phys.usedspace.saturating_sub(dsize);
            self.phys.totalcount = self.phys.totalcount.saturating_sub(1);
            let range = self.range(offset);
            if let Some(count) = self.counts.get_mut(range) {
                *count = count.saturating_sub(1);
            }
        }
        self.entries.insert(offset, (have - 1, true));
        self.dirty = true;
    }

    /// Writes the changes of the txg.
    fn sync(&mut self, tx: &Tx, mos: &Mos) -> Result<()> {
        let object = match self.object {
            Some(object) => object,
            None => self.create(tx, mos)?,
        };
        let entries = ObjNum(self.phys.mos_entries);
        let zap = mos.zap(entries)?;
        for (offset, (n, dirty)) in &mut self.entries {
            let key = [*offset];
            match *n {
                _ if !std::mem::take(dirty) => {}
                0 if zap.lookup_words(&key)?.is_some() => zap.remove_words(tx, &key)?,
                0 => {}
                // The count is eight bytes and not one word, because OpenZFS writes it so.
                n => zap.update_words(tx, &key, &Value::bytes(&n.to_le_bytes()))?,
            }
        }
        self.dirty = false;
        if self.phys.totalcount == 0 {
            mos.unlink(tx, &self.name())?;
            mos.objset().free_object(tx, entries)?;
            mos.objset().free_object(tx, object)?;
            mos.feature_decr(tx, known(FEATURE))?;
            *self = Vdev::new(self.top);
            return Ok(());
        }
        let dn = mos.objset().dnode(object)?;
        let raw: Vec<u8> = self.counts.iter().flat_map(|c| c.to_le_bytes()).collect();
        dn.write_at(tx, 0, &raw)?;
        Ok(dn.set_bonus(tx, DmuType::UINT64_METADATA, &self.phys.encode())?)
    }

    fn create(&mut self, tx: &Tx, mos: &Mos) -> Result<ObjNum> {
        let spec = NewObject {
            block_size: ENTRIES_BLOCK,
            indblkshift: ENTRIES_SHIFT,
            ..NewObject::new(DmuType::ZAP_METADATA)
        };
        let flags = ZapFlags::WORDS;
        let entries = Zap::create(mos.objset(), tx, &spec, Normalization::NONE, flags)?;
        self.phys.mos_entries = entries.dnode().object().0;
        let spec = NewObject { block_size: COUNTS_BLOCK, ..NewObject::new(DmuType::UINT64_METADATA) };
        let spec = spec.with_bonus(DmuType::UINT64_METADATA, self.phys.encode());
        let object = mos.objset().create_object(tx, &spec)?.object();
        mos.link(tx, &self.name(), object)?;
        mos.feature_incr(tx, known(FEATURE))?;
        self.object = Some(object);
        Ok(object)
    }
}

/// The place of a block's first copy.
fn place(bp: &Blkptr) -> Option<(VdevId, u64)> {
    bp.stored()?.dvas[0].map(|d| (d.vdev, d.offset.0))
}

impl State {
    /// The deflated bytes of a block.
    fn dsize(&self, bp: &Blkptr) -> u64 {
        let one = |d: &ondisk::Dva| self.vdevs.get(&d.vdev).map_or(0, |v| v.top.deflate(d.asize.0));
        bp.stored().map_or(0, |s| s.copies().map(one).sum())
    }

    /// The references of a block beyond the first, for the sync of a txg.
    fn count(&self, vdev: VdevId, offset: u64) -> Result<u64> {
        let Some(v) = self.vdevs.get(&vdev) else { return Ok(0) };
        if let Some((n, _)) = v.entries.get(&offset) {
            return Ok(*n);
        }
        let maybe = v.counts.get(v.range(offset)).is_none_or(|n| *n > 0);
        let Some(object) = v.known.filter(|_| maybe) else { return Ok(0) };
        let Some(cache) = self.view.0.upgrade() else { return Err(Error::Closed) };
        let mos = Mos::open(Objset::open(cache, 0, &self.view.1, ReadOptions::sync())?)?;
        let Some(value) = mos.zap(object)?.lookup_words(&[offset])? else { return Ok(0) };
        let bytes = value.as_bytes().and_then(|b| <[u8; 8]>::try_from(b).ok());
        let n = bytes.map(u64::from_le_bytes).or_else(|| value.as_u64());
        let why = "its count is not eight bytes";
        n.ok_or(Error::Corrupt { object, source: Corrupt::Shape { what: "BRT entry", why } })
    }

    fn look_at(&mut self, mos: &Mos) {
        self.view = (Arc::downgrade(mos.objset().cache()), mos.objset().root_bp());
    }

    fn fail(&mut self, e: Error) {
        self.failed.get_or_insert(e);
    }
}

impl CloneTable {
    /// Opens the table of a pool (`brt_load`).
    ///
    /// `mos` is the MOS that was synced last, and `vdevs` are those that have space.
    ///
    /// # Errors
    /// * The errors of [reading](Error#reading). [`Error::Corrupt`] also if counts don't match
    ///   their vdev.
    /// * [`Error::Unsupported`]: the counts have the other byte order.
    pub fn open(mos: &Mos, vdevs: &[TopVdev]) -> Result<CloneTable> {
        let tables = mos.brt(vdevs.iter().map(|v| v.id.0 + 1).max().unwrap_or(0))?;
        let mut all = BTreeMap::new();
        for top in vdevs {
            let table = tables.iter().find(|t| t.vdev == top.id);
            let vdev = table.map_or_else(|| Ok(Vdev::new(*top)), |t| Vdev::open(mos, *top, t))?;
            all.insert(top.id, vdev);
        }
        let view = (Arc::downgrade(mos.objset().cache()), mos.objset().root_bp());
        Ok(CloneTable(Mutex::new(State { vdevs: all, pending: BTreeMap::new(), view, failed: None })))
    }

    /// Adds a new vdev.
    pub fn add_vdev(&self, top: &TopVdev) {
        self.0.lock().vdevs.entry(top.id).or_insert_with(|| Vdev::new(*top));
    }

    /// Notes a clone of a block that `txg` makes (`brt_pending_add`).
    pub fn add(&self, txg: Txg, bp: &Blkptr) {
        let mut state = self.0.lock();
        let dsize = state.dsize(bp);
        if let Some(place) = place(bp) {
            state.pending.entry(txg).or_default().entry(place).or_insert((0, dsize)).0 += 1;
        }
    }

    /// Withdraws a clone that was noted in `txg` (`brt_pending_remove`). True if there was one.
    pub fn withdraw(&self, txg: Txg, bp: &Blkptr) -> bool {
        let mut state = self.0.lock();
        let noted = place(bp).and_then(|p| state.pending.get_mut(&txg)?.get_mut(&p));
        noted.is_some_and(|(n, _)| {
            let had = *n > 0;
            *n -= u64::from(had);
            had
        })
    }

    /// Sets the current vdevs of the pool.
    pub fn set_vdevs(&self, vdevs: &[TopVdev]) {
        vdevs.iter().for_each(|top| self.add_vdev(top));
    }

    /// Begins the sync of `txg`: counts its clones, before anything is freed (`brt_pending_apply`).
    ///
    /// # Errors
    /// * The errors of [reading](Error#reading), for an entry.
    /// * [`Error::Closed`]: the pool was closed.
    pub fn begin(&self, txg: Txg) -> Result<()> {
        let mut state = self.0.lock();
        for ((vdev, offset), (n, dsize)) in state.pending.remove(&txg).unwrap_or_default() {
            let have = state.count(vdev, offset)?;
            if let Some(v) = state.vdevs.get_mut(&vdev).filter(|_| n > 0) {
                v.add(offset, have, n, dsize);
            }
        }
        Ok(())
    }

    /// Writes the changes of the txg since the last call (`brt_sync`). True if there were any.
    ///
    /// `mos` is the live MOS.
    ///
    /// # Errors
    /// * The errors of [counting features](Error#counting-features).
    /// * The error of the first lookup that failed during a free.
    pub fn sync(&self, tx: &Tx, mos: &Mos) -> Result<bool> {
        let mut state = self.0.lock();
        if let Some(e) = &state.failed {
            return Err(e.clone());
        }
        let mut any = false;
        for v in state.vdevs.values_mut().filter(|v| v.dirty) {
            v.sync(tx, mos)?;
            any = true;
        }
        Ok(any)
    }

    /// Ends a txg, which has synced together with `mos`.
    pub fn sync_done(&self, mos: &Mos) {
        let mut state = self.0.lock();
        state.look_at(mos);
        for v in state.vdevs.values_mut() {
            v.entries.clear();
            v.known = v.object.map(|_| ObjNum(v.phys.mos_entries));
        }
    }

    /// The deflated bytes that clones save (`brt_get_saved`).
    pub fn saved(&self) -> u64 {
        self.0.lock().vdevs.values().fold(0, |n, v| n.saturating_add(v.phys.savedspace))
    }
}

impl zio::Clones for CloneTable {
    fn release(&self, _: Txg, bp: &Blkptr) -> bool {
        let mut state = self.0.lock();
        let Some((vdev, offset)) = place(bp) else { return false };
        match state.count(vdev, offset) {
            Ok(0) => false,
            Ok(have) => {
                let dsize = state.dsize(bp);
                if let Some(v) = state.vdevs.get_mut(&vdev) {
                    v.take(offset, have, dsize);
                }
                true
            }
            // The block may be shared. So it stays allocated, and the txg can't be synced.
            Err(e) => {
                state.fail(e);
                true
            }
        }
    }
}
