//! PoolWriter datasets: heads that are open for writing, and what syncing them changes.
//!
//! # Theory
//! A head that is open for writing has one live object set for all of its users. [`Heads`] finds it
//! by the dataset's object.
//!
//! When a txg syncs, each dirty head writes its blocks, and reports each block that is born or
//! dies. A dead block is freed if no snapshot knows it: it was born after the last one. Otherwise
//! it goes to the head's deadlist, and its space counts as the last snapshot's. It is unique to
//! that snapshot if the snapshot before does not know it.
//!
//! The sums are entered in the dataset and in all directories above it, once for each head and txg
//! ([`crate::account`]).
//!
//! # Life
//! A head is live from [`Heads::own`] or its creation. It stays live until its last owner releases
//! it, its changes are synced, and the MOS has its new block pointer. After that it uses no memory.
//! A dataset that is not live is read through its block pointer.
//!
//! # Locks
//! The registry's lock is held for look-ups only, never across I/O. The lists of changed heads come
//! after it.
//!
//! # Absent
//! Livelists: they make destroying a clone quicker, and are optional. A livelist must be complete
//! or absent. So a clone that has one loses it at its first write here.

mod write;

use crate::account::{Delta, adjust};
use crate::dataset::Dataset;
use crate::error::{KeyRefusal, Refusal};
use crate::keys::KeyStatus;
use crate::policy::{Own, Settings};
use crate::redact::ALLOW_REDACTED_MOUNT;
use crate::sync::Syncing;
use crate::{Error, Result};
use dmu::{Objset, SyncSink};
use observe::lock::Mutex;
use ondisk::dsl::{DS_FLAG_INCONSISTENT, DS_FLAG_UNIQUE_ACCURATE, DdUsed, DslDatasetPhys};
use ondisk::{Blkptr, ChecksumKind, CompressKind, DmuType, DnodePhys, Level, SPA_OLD_MAXBLOCKSIZE, Txg};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use zio::{ReadOptions, WritePolicy};

/// The feature that records of the intent log may need.
const LOG_FEATURE: &str = "zilsaxattr";

/// The live datasets of a pool.
#[derive(Debug, Default)]
pub struct Heads {
    state: Mutex<State>,
    dirty: Arc<DirtyHeads>,
    /// Counts changes of properties, so that heads know when to read them again.
    generation: AtomicU64,
    /// Counts destroyed snapshots, so that those who read one know when to look for it again.
    destroyed_snapshots: AtomicU64,
    /// See [`Heads::unsettled`].
    unsettled: Mutex<BTreeSet<u64>>,
}

/// The heads that changed, by txg. It may have some that are synced or gone.
///
/// A sync must not take longer because thousands of heads are open that did not change.
#[derive(Debug, Default)]
struct DirtyHeads([Mutex<BTreeSet<u64>>; TXG_SIZE as usize]);

impl DirtyHeads {
    fn of(&self, txg: Txg) -> &Mutex<BTreeSet<u64>> {
        &self.0[(txg.0 % TXG_SIZE) as usize]
    }

    /// Has a live object set note its changes, and notes those that it has.
    fn watch(self: &Arc<Self>, object: u64, os: &Objset) {
        let dirty = Arc::clone(self);
        os.on_dirty(move |txg| {
            dirty.of(txg).lock().insert(object);
        })
        .expect("a head is open for changes");
        for txg in (0..TXG_SIZE).map(Txg).filter(|txg| os.is_dirty(*txg)) {
            self.of(txg).lock().insert(object);
        }
    }
}

#[derive(Debug, Default)]
struct State {
    live: BTreeMap<u64, Head>,
    /// Heads that the syncing txg has written or is writing.
    written: BTreeSet<u64>,
    /// Long holds of datasets that are not live, such as snapshots that are being sent.
    holds: HashMap<u64, usize>,
}

#[derive(Debug)]
struct Head {
    os: Objset,
    owned: bool,
    settings: Option<(u64, Settings)>,
    /// Features that it has begun to use.
    begun: BTreeSet<&'static str>,
    /// Features that it no longer uses, unless it has begun to again.
    ended: BTreeSet<&'static str>,
    /// How far a receive that can be resumed has come, by txg.
    resume: BTreeMap<Txg, ResumePoint>,
}

/// How far a receive has come (`ds_resume_object` and others).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ResumePoint {
    /// The object of the last record.
    pub object: u64,
    /// The offset of the last record in it.
    pub offset: u64,
    /// The bytes of the stream up to the end of that record, without its BEGIN.
    pub bytes: u64,
}

/// A live dataset that only its owner may write to (`dsl_dataset_own`).
#[derive(Debug)]
pub struct Owned {
    heads: Arc<Heads>,
    object: u64,
    os: Objset,
}

impl Owned {
    /// The object set.
    pub fn objset(&self) -> &Objset {
        &self.os
    }

    /// The object of the dataset.
    pub fn object(&self) -> u64 {
        self.object
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        let mut state = self.heads.state.lock();
        if let Some(head) = state.live.get_mut(&self.object) {
            head.owned = false;
        }
        state.forget_idle(self.object);
    }
}

/// Keeps a dataset from being destroyed (`dsl_dataset_long_hold`).
#[derive(Debug)]
pub struct LongHold {
    heads: Arc<Heads>,
    object: u64,
}

impl Drop for LongHold {
    fn drop(&mut self) {
        let mut state = self.heads.state.lock();
        if let Some(n) = state.holds.get_mut(&self.object) {
            *n -= 1;
            if *n == 0 {
                state.holds.remove(&self.object);
            }
        }
    }
}

impl State {
    /// Drops a head that has no owner and nothing to write.
    ///
    /// A head that is being written has nothing left to write, but the MOS does not have its block
    /// pointer yet. So it stays.
    fn forget_idle(&mut self, object: u64) {
        let idle = |h: &Head| !h.owned && !is_dirty(&h.os);
        if !self.written.contains(&object) && self.live.get(&object).is_some_and(idle) {
            self.live.remove(&object);
        }
    }
}

impl Heads {
    /// The live object set of a dataset, read with `options`; `None` if it is not live.
    pub fn get(&self, object: u64, options: &ReadOptions) -> Option<Objset> {
        self.state.lock().live.get(&object).map(|h| h.os.with_options(options.clone()))
    }

    /// Opens a dataset for writing (`dsl_dataset_own`).
    ///
    /// # Errors
    /// * [`Error::Refused`] with [`Refusal::Busy`]: the dataset has an owner, or is redacted, and
    ///   [`ALLOW_REDACTED_MOUNT`] is 0.
    /// * [`Error::Refused`] with [`Refusal::ReadOnly`]: the dataset is a snapshot.
    /// * [`Error::Refused`] with [`Refusal::Inconsistent`]: it is incomplete, or has no contents.
    /// * [`Error::Key`] with [`KeyRefusal::NotLoaded`]: the key of an encrypted dataset is not
    ///   loaded.
    /// * [Reading](Error#reading): the dataset, its key object or its object set can't be read.
    pub fn own(self: &Arc<Self>, ds: &Dataset) -> Result<Owned> {
        if ds.dsl().keys().status(ds.dir())? == KeyStatus::Unavailable && !ds.is_snapshot() {
            return Err(Error::Key { name: ds.name(), why: KeyRefusal::NotLoaded });
        }
        if ALLOW_REDACTED_MOUNT.get() == 0 && ds.redacted_for()?.is_some() {
            return Err(Error::Refused { name: ds.name(), why: Refusal::Busy });
        }
        self.own_locked(ds)
    }

    /// Opens a dataset of which only the log's header changes, which needs no key.
    ///
    /// # Errors
    /// Those of [`Heads::own`], except for keys.
    pub fn own_locked(self: &Arc<Self>, ds: &Dataset) -> Result<Owned> {
        if ds.is_inconsistent() {
            return Err(Error::Refused { name: ds.name(), why: Refusal::Inconsistent });
        }
        // The receive has just ended, and its keys are not back.
        if ds.dsl().keys().is_raw(ds.object().0) {
            return Err(Error::Refused { name: ds.name(), why: Refusal::Busy });
        }
        self.own_any(ds)
    }

    /// Opens a dataset that is being received (`dsl_dataset_own_obj_force`).
    ///
    /// # Errors
    /// Those of [`Heads::own`], and:
    /// * [`Error::Refused`] with [`Refusal::Busy`]: it is not incomplete.
    pub fn own_receiving(self: &Arc<Self>, ds: &Dataset) -> Result<Owned> {
        if !ds.is_inconsistent() {
            return Err(Error::Refused { name: ds.name(), why: Refusal::Busy });
        }
        let keys = ds.dsl().keys();
        if !keys.is_raw(ds.object().0) && keys.status(ds.dir())? == KeyStatus::Unavailable {
            return Err(Error::Key { name: ds.name(), why: KeyRefusal::NotLoaded });
        }
        self.own_any(ds)
    }

    /// Opens what an interrupted receive has left, to send it (`dsl_dataset_own_force`). `raw` says
    /// whether it is sent as it is encrypted.
    ///
    /// # Errors
    /// Those of [`Heads::own`], except that it may be incomplete. With `raw`, it needs no key.
    pub fn own_partial(self: &Arc<Self>, ds: &Dataset, raw: bool) -> Result<Owned> {
        let keys = ds.dsl().keys();
        if !raw && keys.status(ds.dir())? == KeyStatus::Unavailable {
            return Err(Error::Key { name: ds.name(), why: KeyRefusal::NotLoaded });
        }
        if keys.is_raw(ds.object().0) {
            return Err(Error::Refused { name: ds.name(), why: Refusal::Busy });
        }
        self.own_any(ds)
    }

    fn own_any(self: &Arc<Self>, ds: &Dataset) -> Result<Owned> {
        let refuse = |why| Err(Error::Refused { name: ds.name(), why });
        if ds.is_snapshot() {
            return refuse(Refusal::ReadOnly);
        }
        let object = ds.object().0;
        // The owner may read with other options than the caller that opened the head.
        let options = ds.dsl().mos().options().clone();
        if let Some(os) = self.take(object) {
            let owned = |os: Objset| Ok(self.owned(object, os.with_options(options)));
            return os.map_or_else(|| refuse(Refusal::Busy), owned);
        }
        let Some(os) = ds.open_live()? else { return refuse(Refusal::Inconsistent) };
        let mut state = self.state.lock();
        let head = state.live.entry(object).or_insert_with(|| {
            self.dirty.watch(object, &os);
            Head::new(os)
        });
        if std::mem::replace(&mut head.owned, true) {
            drop(state);
            return refuse(Refusal::Busy);
        }
        let os = head.os.with_options(options);
        drop(state);
        Ok(self.owned(object, os))
    }

    fn owned(self: &Arc<Self>, object: u64, os: Objset) -> Owned {
        Owned { heads: self.clone(), object, os }
    }

    /// Takes a head that is already live: `None` if it is not, `Some(None)` if it has an owner.
    fn take(&self, object: u64) -> Option<Option<Objset>> {
        let mut state = self.state.lock();
        let head = state.live.get_mut(&object)?;
        Some((!std::mem::replace(&mut head.owned, true)).then(|| head.os.clone()))
    }

    /// Keeps a dataset from being destroyed while the result lives (`dsl_dataset_long_hold`).
    pub fn long_hold(self: &Arc<Self>, object: u64) -> LongHold {
        *self.state.lock().holds.entry(object).or_insert(0) += 1;
        LongHold { heads: self.clone(), object }
    }

    /// Holds an object like [`Heads::long_hold`], unless it has an owner or a long hold already.
    pub fn try_long_hold(self: &Arc<Self>, object: u64) -> Option<LongHold> {
        let mut state = self.state.lock();
        let owned = state.live.get(&object).is_some_and(|head| head.owned);
        if owned || state.holds.contains_key(&object) {
            return None;
        }
        state.holds.insert(object, 1);
        Some(LongHold { heads: self.clone(), object })
    }

    /// Whether a dataset has an owner or a long hold (`dsl_dataset_long_held`).
    pub fn is_busy(&self, object: u64) -> bool {
        let state = self.state.lock();
        state.holds.contains_key(&object) || state.live.get(&object).is_some_and(|h| h.owned)
    }

    /// How many snapshots were destroyed since the pool was opened. It grows after
    /// [`Dsl::is_snapshot`](crate::Dsl::is_snapshot) has begun to deny the snapshot.
    pub fn destroyed_snapshots(&self) -> u64 {
        self.destroyed_snapshots.load(Ordering::Acquire)
    }

    pub(crate) fn note_destroyed_snapshot(&self) {
        self.destroyed_snapshots.fetch_add(1, Ordering::Release);
    }

    /// Whether one of these has an owner, or unwritten changes.
    pub(crate) fn any_live(&self, mut heads: impl Iterator<Item = u64>) -> bool {
        let mut state = self.state.lock();
        heads.any(|head| {
            state.forget_idle(head);
            state.live.contains_key(&head)
        })
    }

    /// Notes that a head uses a feature; the dataset names it from the next sync on.
    pub fn begin_feature(&self, object: u64, feature: &'static str) {
        if let Some(head) = self.state.lock().live.get_mut(&object) {
            head.begun.insert(feature);
        }
    }

    /// Notes that a head stops using a feature, from the next sync on.
    pub fn end_feature(&self, object: u64, feature: &'static str) {
        if let Some(head) = self.state.lock().live.get_mut(&object) {
            head.ended.insert(feature);
        }
    }

    /// How level-0 blocks of an object of a head are written (`dmu_write_policy`).
    ///
    /// `None` if the head has not synced since properties changed.
    pub fn write_policy(&self, object: u64, kind: DmuType, dnode: &DnodePhys) -> Option<WritePolicy> {
        let now = self.generation.load(Ordering::Relaxed);
        let (generation, settings) = self.state.lock().live.get(&object)?.settings?;
        (generation == now).then(|| settings.policy(kind, Level(0), Own::of(dnode)))
    }

    /// Notes how far the receive into a head has come in the txg of `tx`, which has written all
    /// records up to there.
    pub fn set_resume_point(&self, object: u64, tx: &dmu::Tx, point: ResumePoint) {
        if let Some(head) = self.state.lock().live.get_mut(&object) {
            head.resume.insert(tx.txg(), point);
        }
    }

    /// The object set of a head with changes of this txg; the head stays until
    /// [`Heads::end_writes`].
    fn begin_write(&self, object: u64, txg: Txg) -> Option<Objset> {
        let mut state = self.state.lock();
        let os = state.live.get(&object).map(|h| h.os.clone()).filter(|os| os.is_dirty(txg))?;
        state.written.insert(object);
        Some(os)
    }

    /// Notes that the MOS has the block pointers of all written heads.
    pub(crate) fn end_writes(&self) {
        let mut state = self.state.lock();
        for object in std::mem::take(&mut state.written) {
            state.forget_idle(object);
        }
    }

    /// Notes that properties changed somewhere.
    pub(crate) fn properties_changed(&self) {
        self.generation.fetch_add(1, Ordering::Release);
    }

    /// A number that changes when properties change, or when a dataset inherits from another one.
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Enters a new head, which is dirty.
    pub(crate) fn enter(&self, object: u64, os: Objset, begun: &[&'static str]) {
        self.dirty.watch(object, &os);
        let mut head = Head::new(os);
        head.begun.extend(begun);
        self.state.lock().live.insert(object, head);
    }

    /// The heads that an import must look at, as of the last txg that was written: those with an
    /// intent log, and those that are not complete. It may have more.
    pub fn unsettled(&self) -> Vec<u64> {
        self.unsettled.lock().iter().copied().collect()
    }

    /// Notes a head that an import must look at.
    pub fn note_unsettled(&self, object: u64) {
        self.unsettled.lock().insert(object);
    }

    /// Notes that an import need not look at a head: it is gone, or was written without a log.
    pub(crate) fn note_settled(&self, object: u64) {
        self.unsettled.lock().remove(&object);
    }

    /// Drops a head that is destroyed or rolled back, and has no owner.
    pub(crate) fn forget(&self, object: u64) {
        self.state.lock().live.remove(&object);
    }

    /// The heads that are open for changes.
    pub(crate) fn live(&self) -> Vec<u64> {
        self.state.lock().live.keys().copied().collect()
    }

    /// Whether a head has unwritten changes of a txg (`dmu_objset_is_dirty`).
    pub fn is_dirty(&self, object: u64, txg: Txg) -> bool {
        self.state.lock().live.get(&object).is_some_and(|head| head.os.is_dirty(txg))
    }

    /// Whether a head has changes that the MOS does not have yet.
    pub fn has_changes(&self, object: u64) -> bool {
        let state = self.state.lock();
        state.written.contains(&object) || state.live.get(&object).is_some_and(|head| is_dirty(&head.os))
    }

    /// The blocks that a closed, unsynced txg clones into heads.
    ///
    /// Each must gain a reference before the txg frees anything.
    pub fn clones(&self, txg: Txg) -> Vec<Blkptr> {
        let dirty: Vec<u64> = self.dirty.of(txg).lock().iter().copied().collect();
        let live: Vec<Objset> = {
            let state = self.state.lock();
            dirty.iter().filter_map(|object| state.live.get(object)).map(|head| head.os.clone()).collect()
        };
        live.iter().flat_map(|os| os.clones(txg)).collect()
    }

    /// Takes the heads with changes of a txg. The caller writes them.
    fn take_dirty(&self, txg: Txg) -> Vec<u64> {
        let mut dirty: Vec<u64> = std::mem::take(&mut *self.dirty.of(txg).lock()).into_iter().collect();
        let state = self.state.lock();
        dirty.retain(|object| state.live.get(object).is_some_and(|head| head.os.is_dirty(txg)));
        // What is missed here would be lost.
        debug_assert!(
            state.live.iter().filter(|(_, head)| head.os.is_dirty(txg)).map(|(object, _)| object).eq(&dirty),
            "a head changed and was not noted"
        );
        dirty
    }
}

/// Whether an object set has unwritten changes of any txg.
fn is_dirty(os: &Objset) -> bool {
    (0..TXG_SIZE).any(|n| os.is_dirty(Txg(n)))
}

/// Txgs that can exist at a time (`TXG_SIZE`).
const TXG_SIZE: u64 = 4;

impl Head {
    fn new(os: Objset) -> Head {
        let (settings, begun, ended, resume) = Default::default();
        Head { os, owned: false, settings, begun, ended, resume }
    }
}

impl<'a> Syncing<'a> {
    /// Writes all heads with changes of this txg (the first half of `dsl_pool_sync`).
    ///
    /// # Errors
    /// * [Writing](Error#writing): a head can't be written. The txg must not reach the disk.
    pub fn sync_heads(&mut self, pass: u32) -> Result<()> {
        let heads = self.dsl.heads().clone();
        let dirty = heads.take_dirty(self.tx.txg());
        let mut planned = Vec::with_capacity(dirty.len());
        for object in &dirty {
            planned.extend(self.plan_head(*object)?);
        }
        for head in write::all(planned, self.tx, pass)? {
            self.conclude_head(head)?;
        }
        Ok(())
    }

    /// Writes one head, if it has changes of this txg.
    pub(crate) fn sync_head(&mut self, object: u64, pass: u32) -> Result<()> {
        match self.plan_head(object)? {
            Some(head) => {
                let workers = head.os.cache().zio().workers();
                let written = head.write(self.tx, pass, &workers)?;
                self.conclude_head(written)
            }
            None => Ok(()),
        }
    }

    /// Prepares the write of a head, if it has changes of this txg.
    fn plan_head(&mut self, object: u64) -> Result<Option<HeadSync<'a>>> {
        let heads = self.dsl.heads().clone();
        let Some(os) = heads.begin_write(object, self.tx.txg()) else { return Ok(None) };
        let settings = self.head_settings(object)?;
        let phys = self.ds(object)?;
        let dir = self.dir(phys.dir_obj)?;
        let prev = match phys.prev_snap_obj {
            0 => None,
            prev => Some(self.ds(prev)?).filter(|p| p.next_snap_obj == object),
        };
        let origin_txg = self.origin_txg(dir.origin_obj)?;
        self.drop_livelist(phys.dir_obj)?;
        let marks = self.counting_bookmarks(object)?;
        let sink = HeadSink {
            settings,
            marks: marks.iter().map(|b| (b.phys.creation_txg, Delta::default())).collect(),
            phys,
            txg: self.tx.txg(),
            origin_txg,
            prev_prev_txg: prev.map(|p| p.prev_snap_txg),
            dsize: self.env.dsize,
            os: os.clone(),
            sums: Sums::default(),
            dead: Vec::new(),
            begun: BTreeSet::new(),
            failed: None,
        };
        Ok(Some(HeadSync { object, os, marks, sink }))
    }

    /// Enters the results of a head's write.
    fn conclude_head(&mut self, (head, root): (HeadSync<'a>, Blkptr)) -> Result<()> {
        let heads = self.dsl.heads().clone();
        let HeadSync { object, os, marks, sink } = head;
        let HeadSink { phys, sums, dead, mut begun, marks: freed, failed, .. } = sink;
        if let Some(e) = failed {
            return Err(dmu::Error::from(e).into());
        }
        let (mut ended, mut resume) = (BTreeSet::new(), None);
        if let Some(head) = heads.state.lock().live.get_mut(&object) {
            begun.append(&mut head.begun);
            ended.append(&mut head.ended);
            // A txg whose records changed nothing has left its point.
            let later = head.resume.split_off(&Txg(self.tx.txg().0 + 1));
            resume = std::mem::replace(&mut head.resume, later).pop_last().map(|(_, point)| point);
        }
        if let Some(point) = resume {
            self.store_resume_point(object, point)?;
        }
        self.enter(object, root, &sums)?;
        let is_complete = self.ds(object)?.flags & DS_FLAG_INCONSISTENT == 0;
        let has_log = os.has_log(self.tx.txg())?;
        // Its records may need the feature. It ends in the txg that removes the log.
        if has_log
            && ended.remove(LOG_FEATURE)
            && let Some(head) = heads.state.lock().live.get_mut(&object)
        {
            head.ended.insert(LOG_FEATURE);
        }
        match has_log || !is_complete {
            true => heads.note_unsettled(object),
            false => heads.note_settled(object),
        }
        for (b, (_, d)) in marks.iter().zip(freed).filter(|(_, (_, d))| *d != Delta::default()) {
            self.bookmark_freed(object, b, d)?;
        }
        self.deadlist_insert(phys.deadlist_obj, &dead)?;
        for feature in ended.difference(&begun) {
            self.deactivate(object, feature)?;
        }
        for feature in begun {
            self.activate_new(object, feature)?;
        }
        Ok(())
    }

    /// The creation txg of the snapshot that a directory was cloned from; 0 without an origin
    /// (`dd_origin_txg`).
    pub(crate) fn origin_txg(&mut self, origin: u64) -> Result<u64> {
        if origin == 0 || Some(origin) == self.dsl.origin_snapshot()? {
            return Ok(0);
        }
        Ok(self.ds(origin)?.creation_txg.0)
    }

    /// Enters the sums of a head's sync (`dsl_dataset_block_born`, `dsl_dataset_block_kill`).
    fn enter(&mut self, object: u64, root: Blkptr, s: &Sums) -> Result<()> {
        const WHAT: &str = "DSL dataset";
        let reserved = self.refreservation(object)?;
        let p = self.ds_mut(object)?;
        let refd = s.born - s.freed - s.dead;
        let own = s.born - s.freed;
        adjust(object, WHAT, &mut p.referenced_bytes, refd.used)?;
        adjust(object, WHAT, &mut p.compressed_bytes, refd.comp)?;
        adjust(object, WHAT, &mut p.uncompressed_bytes, refd.uncomp)?;
        let before = p.unique_bytes.max(reserved);
        adjust_unique(object, p, own.used)?;
        let up = p.unique_bytes.max(reserved).wrapping_sub(before) as i64;
        p.bp = root;
        let (dir, prev) = (p.dir_obj, p.prev_snap_obj);
        let d = Delta { used: up, ..own };
        self.diduse_transfer(dir, d, own.used, DdUsed::Refrsrv, DdUsed::Head)?;
        if s.prev_unique != 0 {
            adjust_unique(prev, self.ds_mut(prev)?, s.prev_unique)?;
        }
        self.transfer(dir, s.to_snap, DdUsed::Head, DdUsed::Snap)
    }

    /// The settings of a head, read again if properties changed since.
    fn head_settings(&mut self, object: u64) -> Result<Settings> {
        let heads = self.dsl.heads().clone();
        let now = heads.generation();
        let known = heads.state.lock().live.get(&object).and_then(|h| h.settings);
        if let Some((_, s)) = known.filter(|(g, _)| *g == now) {
            return Ok(s);
        }
        let dir = self.ds(object)?.dir_obj;
        let settings = self.settings(dir)?;
        if let Some(head) = heads.state.lock().live.get_mut(&object) {
            head.settings = Some((now, settings));
        }
        Ok(settings)
    }
}

/// Adds to the unique bytes of a dataset.
///
/// Before version 9 the count was inaccurate, and may be less than what is subtracted.
fn adjust_unique(object: u64, p: &mut DslDatasetPhys, by: i64) -> Result<()> {
    if p.flags & DS_FLAG_UNIQUE_ACCURATE == 0 {
        p.unique_bytes = p.unique_bytes.saturating_add_signed(by);
        return Ok(());
    }
    adjust(object, "DSL dataset", &mut p.unique_bytes, by)
}

/// What one sync of a head changed.
#[derive(Debug, Default)]
struct Sums {
    born: Delta,
    /// Blocks that no snapshot knows.
    freed: Delta,
    /// Blocks that the last snapshot knows.
    dead: Delta,
    /// The part of `dead` that only the last snapshot knows.
    prev_unique: i64,
    /// The part of `dead` that the origin does not know.
    to_snap: i64,
}

/// A head before its write, or after it.
struct HeadSync<'a> {
    object: u64,
    os: Objset,
    /// The bookmarks that count dead blocks.
    marks: Vec<crate::ops::bookmark::Named>,
    sink: HeadSink<'a>,
}

struct HeadSink<'a> {
    settings: Settings,
    phys: DslDatasetPhys,
    txg: Txg,
    origin_txg: u64,
    /// The creation txg of the snapshot before the last one, if the last one is this dataset's own.
    prev_prev_txg: Option<u64>,
    dsize: &'a (dyn Fn(&Blkptr) -> u64 + Sync),
    os: Objset,
    sums: Sums,
    dead: Vec<Blkptr>,
    /// Dead blocks that each bookmark after the last snapshot knows, by the bookmark's txg.
    marks: Vec<(u64, Delta)>,
    begun: BTreeSet<&'static str>,
    /// The error of the first block that could not be freed.
    failed: Option<zio::Error>,
}

impl SyncSink for HeadSink<'_> {
    fn dsize(&self, bp: &Blkptr) -> u64 {
        (self.dsize)(bp)
    }

    fn hole_birth(&self) -> bool {
        self.settings.hole_birth
    }

    fn policy(&self, kind: DmuType, level: Level, dnode: &DnodePhys) -> WritePolicy {
        self.settings.policy(kind, level, Own::of(dnode))
    }

    fn large_dnode(&mut self) {
        self.begun.insert("large_dnode");
    }

    fn born(&mut self, bp: &Blkptr) {
        self.sums.born += Delta::of(bp, (self.dsize)(bp));
        if bp.is_hole() {
            return;
        }
        if bp.lsize.0 > SPA_OLD_MAXBLOCKSIZE {
            self.begun.insert("large_blocks");
        }
        let Some(s) = bp.stored() else { return };
        match s.checksum {
            ChecksumKind::Sha512 => self.begun.insert("sha512"),
            ChecksumKind::Skein => self.begun.insert("skein"),
            ChecksumKind::Edonr => self.begun.insert("edonr"),
            ChecksumKind::Blake3 => self.begun.insert("blake3"),
            _ => false,
        };
        if s.compress == CompressKind::Zstd {
            self.begun.insert("zstd_compress");
        }
    }

    fn kill(&mut self, bp: &Blkptr) {
        if bp.is_hole() {
            return;
        }
        let d = Delta::of(bp, (self.dsize)(bp));
        for (_, freed) in self.marks.iter_mut().filter(|(txg, _)| bp.birth.0 <= *txg) {
            *freed += d;
        }
        if bp.birth.0 > self.phys.prev_snap_txg {
            self.sums.freed += d;
            if bp.stored().is_some()
                && let Err(e) = self.os.cache().free(self.txg, bp, Some(self.os.id()))
            {
                self.failed.get_or_insert(e);
            }
            return;
        }
        self.sums.dead += d;
        self.dead.push(*bp);
        if self.prev_prev_txg.is_some_and(|t| bp.birth.0 > t) {
            self.sums.prev_unique += d.used;
        }
        if bp.birth.0 > self.origin_txg {
            self.sums.to_snap += d.used;
        }
    }
}
