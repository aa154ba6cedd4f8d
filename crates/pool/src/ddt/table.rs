//! The dedup tables of a pool that is written.
//!
//! # Theory
//! A block that is written with dedup is looked up by its checksum and sizes. If the block exists,
//! it gets a reference instead of a new place. A free takes a reference away.
//!
//! The changes of a txg are kept in memory, and are written after the datasets of the txg
//! ([`DedupTables::sync`]). The number of references determines where an entry goes:
//!
//! | references | place |
//! |---|---|
//! | more than one | the *duplicate* ZAP of the table |
//! | one | the *unique* ZAP |
//! | none | no ZAP; the block is freed |
//!
//! Each class has sums over its entries. An entry that changes is first subtracted from the sums of
//! its class, and added again in its final state.
//!
//! An entry of a *legacy* table has a slot for each number of copies, and each slot is a block of
//! its own. An entry of a *fast* table (feature `fast_dedup`) has one slot, which is extended when
//! more copies are needed. This code writes both kinds. A new table is fast if the feature is
//! enabled, as in OpenZFS.
//!
//! The logs of a fast table save writes to ZAPs. The first txg folds them into the ZAPs, and then
//! they stay empty.
//!
//! # Locks
//! One mutex, held while an entry is looked up in the MOS of the last txg. A thread that writes or
//! frees a block waits for that lookup anyway.
//!
//! # Crash
//! The entries of a txg are in the same MOS as its blocks.
//!
//! # Absent
//! `dedup_table_quota=auto` sets no limit. No release since 0.8 writes entries of class ditto. They
//! are freed when they are used, as in OpenZFS.
//!
//! # See
//! OpenZFS `module/zfs/ddt.c`, `ddt_zap.c`, `ddt_stats.c`.

use super::{Ddt, DdtHistogram, DdtStat, unpack};
use crate::feature::known;
use crate::metaslab::TopVdev;
use crate::{Error, Mos, Result};
use arc::Cache;
use codec::compress::ZstdLevel;
use dmu::zap::{Normalization, Value, Zap};
use dmu::{NewObject, Objset, Tx};
use observe::lock::Mutex;
use ondisk::blkptr::Body;
use ondisk::ddt::{
    DDL_FLAG_FLUSHING, DDT_CLASS_NAMES, DDT_FLAG_FLAT, DDT_FLAG_LOG, DdtKey, DdtPacking, DdtPhys,
};
use ondisk::mos::{DDT_STATS, DIRECTORY_OBJECT};
use ondisk::zap::ZapFlags;
use ondisk::{Blkptr, ByteOrder, ChecksumKind, CompressKind, Corrupt, DmuType, Dva, ObjNum, Txg, VdevId};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Weak};
use zio::{Found, IoFlags, ReadOptions, Space};

/// Bytes of a block of the ZAPs (`ddt_zap_default_bs`, `ddt_zap_default_ibs`: 2^15).
const BLOCK: u32 = 1 << 15;
const BLOCK_SHIFT: u8 = 15;
/// The classes, as indices of [`DDT_CLASS_NAMES`].
const DUPLICATE: usize = 1;
pub(super) const UNIQUE: usize = 2;
const CLASSES: usize = DDT_CLASS_NAMES.len();
/// The feature `fast_dedup`, which counts the fast tables.
const FEATURE: &str = "com.klarasystems:fast_dedup";
/// The pool property that limits the size of the tables. All ones mean `auto`.
const QUOTA: &str = "dedup_table_quota";

/// The dedup tables of a pool (`spa_ddt`).
pub struct DedupTables {
    pub(super) state: Mutex<State>,
    /// Takes back the places of a batch that failed.
    space: Arc<dyn Space>,
}

impl std::fmt::Debug for DedupTables {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DedupTables").finish_non_exhaustive()
    }
}

pub(super) struct State {
    tables: BTreeMap<ChecksumKind, Table>,
    pub(super) vdevs: BTreeMap<VdevId, TopVdev>,
    /// The MOS of the last txg.
    view: (Weak<Cache>, Blkptr),
    /// Most bytes of all tables. `None` for no limit.
    quota: Option<u64>,
    /// The time of the txg in seconds since 1970, which fast tables record for new entries.
    pub(super) now: u64,
    /// The txgs that wrote the blocks which got another reference since the last request.
    joined: BTreeSet<Txg>,
    /// Entries that clones of a txg will refer to, and which must not be pruned before.
    pub(super) wanted: HashMap<(ChecksumKind, DdtKey), Txg>,
    /// The first failed lookup or bad entry. Nothing more is freed or written.
    failed: Option<Error>,
}

/// The table of a checksum.
struct Table {
    checksum: ChecksumKind,
    /// Its flags, `DDT_FLAG_*`. 0 for a legacy table.
    flags: u64,
    /// The directory that names its objects. `None` before the first use.
    dir: Option<ObjNum>,
    classes: [Class; CLASSES],
    /// Logs to be emptied.
    logs: Vec<ObjNum>,
    /// The entries that this txg looked up, and those to be folded in from the logs.
    entries: BTreeMap<DdtKey, LiveEntry>,
}

/// A ZAP of a table.
#[derive(Default)]
struct Class {
    object: Option<ObjNum>,
    /// The object in the MOS of the last txg.
    known: Option<ObjNum>,
    histogram: DdtHistogram,
    /// The bytes that it takes (`ddo_dspace`).
    dspace: u64,
}

/// An entry in its current state.
pub(super) struct LiveEntry {
    pub(super) phys: DdtPhys,
    /// The class whose ZAP has it.
    stored: Option<usize>,
    /// True if it is in the sums of no class, and must be written.
    pub(super) out: bool,
}

impl Table {
    fn new(checksum: ChecksumKind, flags: u64, dir: Option<ObjNum>) -> Table {
        let (classes, logs, entries) = Default::default();
        Table { checksum, flags, dir, classes, logs, entries }
    }

    fn open(ddt: Ddt) -> Table {
        let mut table = Table::new(ddt.checksum, ddt.flags, Some(ddt.dir));
        for c in ddt.classes {
            let class = &mut table.classes[c.class];
            (class.object, class.known) = (Some(c.object), Some(c.object));
            (class.histogram, class.dspace) = (c.histogram, c.dspace);
        }
        let mut logs = ddt.logs;
        // The active log has the newer entries, so it comes last.
        logs.sort_by_key(|log| !log.is_flushing());
        for log in logs {
            table.logs.push(log.object);
            for (key, (class, phys)) in log.entries {
                let stored = Some(usize::from(class)).filter(|c| *c < CLASSES);
                table.entries.insert(key, LiveEntry { phys, stored, out: true });
            }
        }
        table
    }

    fn is_flat(&self) -> bool {
        self.flags & DDT_FLAG_FLAT != 0
    }

    fn name(&self, class: usize) -> String {
        format!("DDT-{}-zap-{}", self.checksum.name(), DDT_CLASS_NAMES[class])
    }
}

fn dsize(vdevs: &BTreeMap<VdevId, TopVdev>, dva: &Dva) -> u64 {
    vdevs.get(&dva.vdev).map_or(dva.asize.0, |v| v.deflate(dva.asize.0))
}

/// The bucket of an entry, and its share of the sums.
pub(super) fn share(
    vdevs: &BTreeMap<VdevId, TopVdev>,
    dir: Option<ObjNum>,
    key: &DdtKey,
    phys: &DdtPhys,
) -> Result<Option<(usize, DdtStat)>> {
    let object = dir.unwrap_or(ObjNum(DIRECTORY_OBJECT));
    let stat = DdtStat::of(key, phys, &|dva| dsize(vdevs, dva)).map_err(Error::corrupt(object))?;
    Ok(stat.ref_blocks.checked_ilog2().map(|bucket| (bucket as usize, stat)))
}

/// The value of an entry, as its ZAP stores it (`ddt_zap_compress`).
fn pack(phys: &DdtPhys) -> Value {
    let raw = phys.encode();
    let mut packed = vec![0; raw.len()];
    let zle = codec::compress::compress(CompressKind::Zle, ZstdLevel::DEFAULT, &raw, &mut packed);
    let (compress, bytes) = match zle {
        Some(len) if len < raw.len() => (CompressKind::Zle, &packed[..len]),
        _ => (CompressKind::Off, raw.as_slice()),
    };
    let first = DdtPacking { compress, order: ByteOrder::Little }.to_disk();
    Value::bytes(&[&[first], bytes].concat())
}

impl State {
    /// The table for a block, created if there is none.
    fn table(&mut self, checksum: ChecksumKind, options: &ReadOptions) -> Result<&mut Table> {
        if !self.tables.contains_key(&checksum) {
            let fast = self.view(options)?.feature_enabled(FEATURE)?;
            let table = match fast {
                true => Table::new(checksum, DDT_FLAG_FLAT | DDT_FLAG_LOG, None),
                false => Table::new(checksum, 0, Some(ObjNum(DIRECTORY_OBJECT))),
            };
            self.tables.insert(checksum, table);
        }
        Ok(self.tables.get_mut(&checksum).expect("it was just put there"))
    }

    fn view(&self, options: &ReadOptions) -> Result<Mos> {
        let cache = self.view.0.upgrade().ok_or(Error::Closed)?;
        Mos::open(Objset::open(cache, 0, &self.view.1, options.clone())?)
    }

    /// Loads an entry into memory. An entry that doesn't exist has no copies.
    pub(super) fn load(
        &mut self,
        checksum: ChecksumKind,
        key: &DdtKey,
        options: &ReadOptions,
    ) -> Result<&mut LiveEntry> {
        let table = self.table(checksum, options)?;
        if !table.entries.contains_key(key) {
            let flat = table.is_flat();
            let known: Vec<_> =
                table.classes.iter().enumerate().filter_map(|(n, c)| Some((n, c.known?))).collect();
            let mut found = None;
            if !known.is_empty() {
                let mos = self.view(options)?;
                for (class, object) in known {
                    let Some(value) = mos.zap(object)?.lookup_words(&key.to_words())? else { continue };
                    let why = "a value is not bytes";
                    let shape = Error::Corrupt { object, source: Corrupt::Shape { what: super::WHAT, why } };
                    found = Some((class, unpack(object, flat, value.as_bytes().ok_or(shape)?)?));
                    break;
                }
            }
            let live = match found {
                Some((class, phys)) => LiveEntry { phys, stored: Some(class), out: false },
                None => LiveEntry { phys: DdtPhys::empty(flat), stored: None, out: false },
            };
            self.tables.get_mut(&checksum).expect("it is there").entries.insert(*key, live);
        }
        let table = self.tables.get_mut(&checksum).expect("it is there");
        Ok(table.entries.get_mut(key).expect("it was just put there"))
    }

    /// As [`State::load`], for a change in the sync: subtracts the entry from the sums of its
    /// class.
    pub(super) fn take(&mut self, checksum: ChecksumKind, key: &DdtKey) -> Result<&mut LiveEntry> {
        let now = self.now;
        self.load(checksum, key, &ReadOptions::sync())?;
        let State { tables, vdevs, .. } = self;
        let table = tables.get_mut(&checksum).expect("it was loaded");
        let live = table.entries.get_mut(key).expect("it was loaded");
        if !std::mem::replace(&mut live.out, true) {
            match live.stored {
                Some(class) => {
                    if let Some((bucket, stat)) = share(vdevs, table.dir, key, &live.phys)? {
                        table.classes[class].histogram.0[bucket].subtract(&stat);
                    }
                }
                None => live.phys.slots_mut().iter_mut().for_each(|s| s.class_start = now),
            }
        }
        Ok(live)
    }

    fn over_quota(&self) -> bool {
        let size = || self.tables.values().flat_map(|t| &t.classes).map(|c| c.dspace).sum::<u64>();
        self.quota.is_some_and(|quota| size() > quota)
    }

    fn look_at(&mut self, mos: &Mos) -> Result<()> {
        self.view = (Arc::downgrade(mos.objset().cache()), mos.objset().root_bp());
        let props = mos.dir(ondisk::mos::PROPS)?;
        let quota = props.map(|props| mos.u64(props, QUOTA)).transpose()?.flatten();
        self.quota = quota.filter(|q| *q != 0 && *q != u64::MAX);
        Ok(())
    }

    fn fail(&mut self, e: Error) {
        self.failed.get_or_insert(e);
    }

    fn find(&mut self, bp: &Blkptr, copies: u8) -> Result<Found> {
        let (Some(key), Some(s)) = (DdtKey::of(bp), bp.stored()) else { return Ok(Found::Full) };
        let live = self.load(s.checksum, &key, &ReadOptions::sync())?;
        let slot = &live.phys.slots()[live.phys.slot_of(copies.into())];
        if slot.phys_birth.0 != 0 {
            let dvas = slot.dvas(&key).map_err(Error::corrupt(ObjNum(DIRECTORY_OBJECT)))?;
            return Ok(Found::Have { dvas, phys_birth: slot.phys_birth });
        }
        let none = live.phys.slots().iter().all(|s| s.phys_birth.0 == 0);
        Ok(if none && self.over_quota() { Found::Full } else { Found::New })
    }

    fn enter(&mut self, txg: Txg, bp: &Blkptr) -> Result<()> {
        let (Some(key), Some(s)) = (DdtKey::of(bp), bp.stored()) else { return Ok(()) };
        if s.phys_birth < txg {
            self.joined.insert(s.phys_birth);
        }
        let live = self.take(s.checksum, &key)?;
        let n = live.phys.slot_of(s.copies().count());
        let slot = &mut live.phys.slots_mut()[n];
        slot.set_block(bp);
        slot.refcnt += 1;
        Ok(())
    }

    fn revoke(&mut self, bp: &Blkptr, new: &[Dva]) -> Result<()> {
        let (Some(key), Some(s)) = (DdtKey::of(bp), bp.stored()) else { return Ok(()) };
        let live = self.take(s.checksum, &key)?;
        let n = live.phys.slot_of(s.copies().count());
        let slot = &mut live.phys.slots_mut()[n];
        slot.refcnt = slot.refcnt.saturating_sub(1);
        let is_new = |d: &Dva| new.iter().any(|n| n.vdev == d.vdev && n.offset == d.offset);
        let kept = s.dvas.map(|d| d.filter(|d| !is_new(d)));
        slot.set_dvas(kept, s.crypt);
        if kept[0].is_none() {
            *slot = ondisk::ddt::DdtPhysSlot::default();
        }
        Ok(())
    }

    /// The slot of a block (`ddt_phys_select`). `None` if the table doesn't know the block.
    fn slot_of(&mut self, bp: &Blkptr, key: &DdtKey, options: &ReadOptions) -> Result<Option<usize>> {
        let Some(s) = bp.stored() else { return Ok(None) };
        let live = self.load(s.checksum, key, options)?;
        for (n, slot) in live.phys.slots().iter().enumerate().filter(|(_, slot)| slot.phys_birth.0 != 0) {
            let first = slot.dvas(key).map_err(Error::corrupt(ObjNum(DIRECTORY_OBJECT)))?[0];
            if slot.phys_birth == s.phys_birth && first == s.dvas[0] {
                return Ok(Some(n));
            }
        }
        Ok(None)
    }

    /// Removes a reference. True if the table doesn't know the block.
    fn release(&mut self, bp: &Blkptr) -> Result<bool> {
        let (Some(key), Some(s)) = (DdtKey::of(bp), bp.stored()) else { return Ok(true) };
        let bad = Error::corrupt(ObjNum(DIRECTORY_OBJECT));
        let Some(mine) = self.slot_of(bp, &key, &ReadOptions::sync())? else { return Ok(true) };
        let slot = &mut self.take(s.checksum, &key)?.phys.slots_mut()[mine];
        let why = "more references go than there are";
        slot.refcnt = slot.refcnt.checked_sub(1).ok_or(bad(Corrupt::Shape { what: super::WHAT, why }))?;
        Ok(false)
    }
}

impl DedupTables {
    /// Opens the tables of a pool (`ddt_load`).
    ///
    /// `mos` is the MOS that was synced last. `vdevs` are those that have space, and `space`
    /// allocates it.
    ///
    /// # Errors
    /// The errors of [reading](Error#reading).
    pub fn open(mos: &Mos, vdevs: &[TopVdev], space: Arc<dyn Space>) -> Result<DedupTables> {
        let vdevs: BTreeMap<VdevId, TopVdev> = vdevs.iter().map(|v| (v.id, *v)).collect();
        let tables = mos.ddts(&|dva| dsize(&vdevs, dva))?;
        let tables = tables.into_iter().map(|ddt| (ddt.checksum, Table::open(ddt))).collect();
        let view = (Weak::new(), Blkptr::HOLE);
        let mut state = State {
            tables,
            vdevs,
            view,
            quota: None,
            now: 0,
            joined: BTreeSet::new(),
            wanted: HashMap::new(),
            failed: None,
        };
        state.look_at(mos)?;
        Ok(DedupTables { state: Mutex::new(state), space })
    }

    /// Begins the sync of `txg` at the time `now`, with the current vdevs.
    pub fn begin(&self, txg: Txg, now: u64, vdevs: &[TopVdev]) {
        let mut state = self.state.lock();
        state.wanted.retain(|_, wanted| *wanted >= txg);
        state.now = now;
        state.vdevs = vdevs.iter().map(|v| (v.id, *v)).collect();
    }

    /// The txgs that wrote the blocks which got another reference from equal writes since the last
    /// call.
    pub fn take_joined(&self) -> BTreeSet<Txg> {
        std::mem::take(&mut self.state.lock().joined)
    }

    /// Adds a reference to a block that is cloned (`ddt_addref`). False if the tables don't know
    /// the block.
    ///
    /// # Errors
    /// * The errors of [reading](Error#reading), for its entry.
    /// * [`Error::Unpack`]: its entry does not decompress.
    /// * [`Error::Closed`]: the pool was closed.
    pub fn add_ref(&self, bp: &Blkptr) -> Result<bool> {
        let mut state = self.state.lock();
        let (Some(key), Some(s)) = (DdtKey::of(bp), bp.stored()) else { return Ok(false) };
        let Some(mine) = state.slot_of(bp, &key, &ReadOptions::sync())? else { return Ok(false) };
        state.take(s.checksum, &key)?.phys.slots_mut()[mine].refcnt += 1;
        Ok(true)
    }

    /// Writes the changes of the txg since the last call (`ddt_sync`).
    ///
    /// `mos` is the live MOS. Returns the blocks without references. The caller frees them in this
    /// txg, before it writes the space maps.
    ///
    /// # Errors
    /// * The errors of [counting features](Error#counting-features).
    /// * The error of the first lookup that failed, or of the first bad entry.
    pub fn sync(&self, tx: &Tx, mos: &Mos) -> Result<Vec<Blkptr>> {
        let mut state = self.state.lock();
        if let Some(e) = &state.failed {
            return Err(e.clone());
        }
        let State { tables, vdevs, .. } = &mut *state;
        let mut dead = Vec::new();
        for table in tables.values_mut() {
            if table.entries.values().any(|e| e.out) || !table.logs.is_empty() {
                table.sync(tx, mos, vdevs, &mut dead)?;
            }
        }
        Ok(dead)
    }

    /// Ends a txg, which has synced together with `mos`.
    pub fn sync_done(&self, mos: &Mos) {
        let mut state = self.state.lock();
        if let Err(e) = state.look_at(mos) {
            state.fail(e);
        }
        for table in state.tables.values_mut() {
            // Entries of a log that were not written yet stay.
            table.entries.retain(|_, e| e.out);
            table.classes.iter_mut().for_each(|c| c.known = c.object);
        }
        // A table without entries may become one of the other kind.
        state.tables.retain(|_, t| !t.entries.is_empty() || t.classes.iter().any(|c| c.object.is_some()));
    }

    /// The deflated bytes that sharing saves (the gain of `ddt_get_dedup_dspace`).
    pub fn saved(&self) -> u64 {
        let state = self.state.lock();
        let mut all = DdtStat::default();
        for class in state.tables.values().flat_map(|t| &t.classes) {
            all.add(&class.histogram.total());
        }
        all.ref_dsize.saturating_sub(all.dsize)
    }
}

impl Table {
    fn sync(
        &mut self,
        tx: &Tx,
        mos: &Mos,
        vdevs: &BTreeMap<VdevId, TopVdev>,
        dead: &mut Vec<Blkptr>,
    ) -> Result<()> {
        let stats = match mos.dir(DDT_STATS)? {
            Some(stats) => stats,
            None => {
                let stats = mos.create_zap_of(tx, DmuType::DDT_STATS)?;
                mos.link(tx, DDT_STATS, stats)?;
                stats
            }
        };
        let dir = self.directory(tx, mos)?;
        let mut entries = std::mem::take(&mut self.entries);
        for (key, live) in entries.iter_mut().filter(|(_, e)| e.out) {
            self.put(tx, mos, (dir, stats), vdevs, key, live, dead)?;
            live.out = false;
        }
        self.entries = entries;
        for log in std::mem::take(&mut self.logs) {
            empty_log(tx, mos, log)?;
        }
        self.sum_up(tx, mos, (dir, stats))
    }

    /// The directory of its objects, created if there is none (`ddt_create_dir`).
    fn directory(&mut self, tx: &Tx, mos: &Mos) -> Result<ObjNum> {
        if let Some(dir) = self.dir {
            return Ok(dir);
        }
        let dir = mos.create_zap(tx)?;
        mos.link(tx, &format!("DDT-{}", self.checksum.name()), dir)?;
        mos.set_word(tx, dir, "version", 1)?;
        mos.set_word(tx, dir, "flags", self.flags)?;
        mos.feature_incr(tx, known(FEATURE))?;
        self.dir = Some(dir);
        Ok(dir)
    }

    /// Puts an entry into the ZAP where it belongs now (`ddt_sync_flush_entry`).
    #[allow(clippy::too_many_arguments, reason = "they are what one entry's way needs")]
    fn put(
        &mut self,
        tx: &Tx,
        mos: &Mos,
        (dir, stats): (ObjNum, ObjNum),
        vdevs: &BTreeMap<VdevId, TopVdev>,
        key: &DdtKey,
        live: &mut LiveEntry,
        dead: &mut Vec<Blkptr>,
    ) -> Result<()> {
        let flat = self.is_flat();
        let mut refs = 0u64;
        for (n, slot) in live.phys.slots_mut().iter_mut().enumerate() {
            if slot.phys_birth.0 == 0 {
                continue;
            }
            let ditto = !flat && n == 0;
            if ditto || slot.refcnt == 0 {
                let mut bp = slot.blkptr(self.checksum, key).map_err(Error::corrupt(dir))?;
                if let Body::Stored(s) = &mut bp.body {
                    // The dedup flag is cleared, so that the block itself is freed.
                    s.dedup = false;
                }
                dead.push(bp);
                *slot = ondisk::ddt::DdtPhysSlot::default();
                continue;
            }
            refs = refs.saturating_add(slot.refcnt);
        }
        let class = if refs > 1 { DUPLICATE } else { UNIQUE };
        let words = key.to_words();
        if let Some(old) = live.stored.filter(|old| *old != class || refs == 0)
            && let Some(object) = self.classes[old].object
        {
            mos.zap(object)?.remove_words(tx, &words)?;
            live.stored = None;
        }
        if refs == 0 {
            live.phys = DdtPhys::empty(flat);
            return Ok(());
        }
        let object = match self.classes[class].object {
            Some(object) => object,
            None => self.create(tx, mos, (dir, stats), class)?,
        };
        mos.zap(object)?.update_words(tx, &words, &pack(&live.phys))?;
        live.stored = Some(class);
        if let Some((bucket, stat)) = share(vdevs, Some(dir), key, &live.phys)? {
            self.classes[class].histogram.0[bucket].add(&stat);
        }
        Ok(())
    }

    /// Creates the ZAP of a class (`ddt_object_create`).
    fn create(&mut self, tx: &Tx, mos: &Mos, (dir, stats): (ObjNum, ObjNum), class: usize) -> Result<ObjNum> {
        let spec =
            NewObject { block_size: BLOCK, indblkshift: BLOCK_SHIFT, ..NewObject::new(DmuType::DDT_ZAP) };
        // A strong checksum can serve as the hash.
        let strong = codec::checksum::is_strong(self.checksum);
        let flags = if strong { ZapFlags::PRE_HASHED_WORDS } else { ZapFlags::WORDS };
        let object = Zap::create(mos.objset(), tx, &spec, Normalization::NONE, flags)?.dnode().object();
        let name = self.name(class);
        mos.set_word(tx, dir, &name, object.0)?;
        mos.set_words(tx, stats, &name, &[0; 64 * 8])?;
        self.classes[class].object = Some(object);
        Ok(object)
    }

    /// Writes the sums, and destroys a table without entries (`ddt_sync_update_stats`).
    fn sum_up(&mut self, tx: &Tx, mos: &Mos, (dir, stats): (ObjNum, ObjNum)) -> Result<()> {
        let mut entries = 0;
        for class in 0..CLASSES {
            let Some(object) = self.classes[class].object else { continue };
            let words: Vec<u64> = self.classes[class].histogram.0.iter().flat_map(|s| s.to_words()).collect();
            mos.set_words(tx, stats, &self.name(class), &words)?;
            let dn = mos.objset().dnode(object)?;
            self.classes[class].dspace = dn.used_bytes();
            entries += Zap::open(&dn)?.count()?;
        }
        if entries > 0 {
            return Ok(());
        }
        for class in 0..CLASSES {
            let Some(object) = self.classes[class].object.take() else { continue };
            let name = self.name(class);
            mos.unset(tx, dir, &name)?;
            mos.unset(tx, stats, &name)?;
            mos.objset().free_object(tx, object)?;
            self.classes[class] = Class { known: self.classes[class].known, ..Class::default() };
        }
        if self.flags != 0 {
            self.destroy_directory(tx, mos, dir)?;
        }
        Ok(())
    }

    fn destroy_directory(&mut self, tx: &Tx, mos: &Mos, dir: ObjNum) -> Result<()> {
        for n in 0..2 {
            if let Some(log) = mos.u64(dir, &format!("DDT-log-{}-{n}", self.checksum.name()))? {
                mos.objset().free_object(tx, ObjNum(log))?;
            }
        }
        mos.unlink(tx, &format!("DDT-{}", self.checksum.name()))?;
        mos.objset().free_object(tx, dir)?;
        mos.feature_decr(tx, known(FEATURE))?;
        self.dir = None;
        Ok(())
    }
}

/// Empties a log whose entries are in the ZAPs (`ddt_log_truncate`).
fn empty_log(tx: &Tx, mos: &Mos, log: ObjNum) -> Result<()> {
    let dn = mos.objset().dnode(log)?;
    let mut header = ondisk::ddt::DdtLogHeader::decode(dn.bonus()).map_err(Error::corrupt(log))?;
    if header.length == 0 && header.checkpoint.is_none() {
        return Ok(());
    }
    dn.free_range(tx, 0, u64::MAX)?;
    header.flags &= DDL_FLAG_FLUSHING;
    (header.length, header.checkpoint) = (0, None);
    Ok(dn.set_bonus(tx, DmuType::UINT64_METADATA, &header.encode())?)
}

impl zio::Dedup for DedupTables {
    fn find(&self, _: Txg, bp: &Blkptr, copies: u8) -> Found {
        let mut state = self.state.lock();
        state.find(bp, copies).unwrap_or_else(|e| {
            state.fail(e);
            Found::Full
        })
    }

    fn has(&self, txg: Txg, bp: &Blkptr, options: &ReadOptions) -> bool {
        // The caller has an alternative, so it does not wait for damaged entries.
        let options = &options.with(IoFlags::CAN_FAIL);
        let (Some(key), Some(s)) = (DdtKey::of(bp), bp.stored()) else { return false };
        let mut state = self.state.lock();
        if !matches!(state.slot_of(bp, &key, options), Ok(Some(_))) {
            return false;
        }
        let wanted = state.wanted.entry((s.checksum, key)).or_insert(txg);
        *wanted = txg.max(*wanted);
        true
    }

    fn enter(&self, txg: Txg, bp: &Blkptr) {
        let mut state = self.state.lock();
        if let Err(e) = state.enter(txg, bp) {
            state.fail(e);
        }
    }

    fn revoke(&self, txg: Txg, bp: &Blkptr, new: &[Dva]) {
        let mut state = self.state.lock();
        if let Err(e) = state.revoke(bp, new) {
            state.fail(e);
        }
        drop(state);
        new.iter().for_each(|dva| self.space.unallocate(dva, txg));
    }

    fn release(&self, _: Txg, bp: &Blkptr) -> bool {
        let mut state = self.state.lock();
        match state.release(bp) {
            Ok(free) => free,
            // The block may be shared. So it stays allocated, and the txg can't be synced.
            Err(e) => {
                state.fail(e);
                false
            }
        }
    }
}
