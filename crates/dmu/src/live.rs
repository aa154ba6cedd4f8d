//! Object sets that change.
//!
//! # Theory
//! A live object set is the last synced state, which never changes, under the changes of up to
//! three transaction groups. Readers look at the newest changes first, then at older ones, then at
//! the synced tree.
//!
//! Changes hold data blocks only. Indirect blocks and dnodes are computed when their txg syncs. So
//! a thousand writes to one block, or to its neighbours, cost one write.
//!
//! # Life
//! The changes of one txg to one object are a record ([`dirty::Dirty`]).
//!
//! 1. It is open while its txg is.
//! 2. It is closed when a newer txg changes the same object.
//! 3. It is taken out when its txg syncs ([`crate::Objset::sync`]). Readers still find it until the
//!    sync is done.
//! 4. Then the new tree replaces the synced tree.
//!
//! # Locks
//! A thread takes them in these orders, and holds none of them across a read. The exception is the
//! count of the space of users, which the sync holds while it changes its tables:
//!
//! * the headers of the intent log, then the synced root;
//! * the count of the space of users, then the tables of that count;
//! * the state of an object, then the dirty objects of a txg;
//! * the table of objects, then the synced root.
//!
//! # Errors
//! The MOS is written in passes, and later passes overwrite blocks of earlier ones in place. A tree
//! that a reader has held for several txgs may lead to places that now hold other blocks. If such a
//! tree fails and has been replaced meanwhile, the reader retries with the new tree
//! ([`LiveObjset::steadily`]). Only a failure of the current tree counts as damage.
//!
//! # Crash
//! Nothing here is durable before its txg is.

mod clean;
pub(crate) mod dirty;
pub(crate) mod header;
pub(crate) mod node;
pub(crate) mod raw;
pub(crate) mod recount;
pub(crate) mod slots;

use crate::objset::{Home, read_dnode};
use crate::tree::BlockTree;
use crate::{
    DMU_GROUPUSED_OBJECT, DMU_PROJECTUSED_OBJECT, DMU_USERUSED_OBJECT, DN_MAX_OBJECT, Error, Result, Tx,
};
use node::LiveDnode;
use observe::lock::{Mutex, RwLock};
use ondisk::objset::ObjsetPhys;
use ondisk::zil::ZIL_HEADER_SIZE;
use ondisk::{Blkptr, ObjNum, Txg};
use parking_lot::{ReentrantMutex, ReentrantMutexGuard};
use raw::Raw;
use recount::Recount;
use slots::Slots;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;
use zio::{IoFlags, ReadOptions};

/// Transaction groups that may have changes at one time, and one more (`TXG_SIZE`).
const TXG_SIZE: usize = 4;

/// How long a reader that failed waits for a pass to be written.
const PASS_PATIENCE: Duration = Duration::from_secs(60);

/// Tables of objects in use.
const TABLES: usize = 8;

/// An object set that changes.
pub(crate) struct LiveObjset {
    pub(crate) home: Home,
    root: RwLock<Root>,
    /// The objects in use. The last bits of the number choose the table, so that a program that
    /// opens many files at once spreads over several locks.
    tables: [Mutex<HashMap<ObjNum, Weak<LiveDnode>>>; TABLES],
    dirty: [Mutex<DirtySet>; TXG_SIZE],
    /// Is called with each txg that gets its first change.
    on_dirty: OnceLock<OnDirty>,
    pub(crate) slots: Mutex<Slots>,
    zil_header: Mutex<ZilHeaders>,
    /// What arrives encrypted.
    pub(crate) raw: Raw,
    /// The count of the space of users, if it is made anew.
    pub(crate) recount: Mutex<Option<Recount>>,
    /// True if something was cloned since the object set was opened.
    cloned: AtomicBool,
    /// Held while a pass of a txg is written, until readers can use its trees.
    pass: ReentrantMutex<()>,
}

/// A function that is called with a txg.
pub(crate) type OnDirty = Box<dyn Fn(Txg) + Send + Sync>;

/// The header of the intent log, by txg.
///
/// An older txg must not be written with the header of a newer one. After a crash between the two,
/// replay would take records for replayed, or for gone, that the older txg does not hold.
struct ZilHeaders {
    synced: [u8; ZIL_HEADER_SIZE],
    pending: BTreeMap<Txg, [u8; ZIL_HEADER_SIZE]>,
}

/// The state that was synced last, but with the header of the intent log that was set last.
#[derive(Clone)]
pub(crate) struct Root {
    pub(crate) bp: Blkptr,
    pub(crate) phys: Arc<ObjsetPhys>,
    /// The object whose data are the dnodes (`DMU_META_DNODE`).
    pub(crate) meta: Arc<BlockTree>,
    generation: u64,
}

/// The changes of one txg.
#[derive(Default)]
pub(crate) struct DirtySet {
    pub(crate) dnodes: BTreeMap<ObjNum, Arc<LiveDnode>>,
    /// True if the root changes, even if no object does.
    pub(crate) root: bool,
}

impl DirtySet {
    fn is_dirty(&self) -> bool {
        self.root || !self.dnodes.is_empty()
    }
}

impl LiveObjset {
    pub(crate) fn new(home: Home, bp: Blkptr, phys: ObjsetPhys) -> Arc<LiveObjset> {
        let meta = Arc::new(BlockTree::new(home.clone(), ObjNum(0), phys.meta_dnode.clone()));
        let zil_header = Mutex::new(ZilHeaders { synced: phys.zil_header, pending: BTreeMap::new() });
        let root = Root { bp, phys: Arc::new(phys), meta, generation: 0 };
        Arc::new(LiveObjset {
            home,
            root: RwLock::new(root),
            tables: Default::default(),
            dirty: Default::default(),
            on_dirty: OnceLock::new(),
            slots: Mutex::default(),
            zil_header,
            raw: Raw::default(),
            recount: Mutex::default(),
            cloned: AtomicBool::new(false),
            pass: ReentrantMutex::new(()),
        })
    }

    /// Takes the lock that marks a pass as being written.
    pub(crate) fn begin_pass(&self) -> ReentrantMutexGuard<'_, ()> {
        self.pass.lock()
    }

    /// True if blocks of this object set may be overwritten in place. Only those of the MOS are,
    /// because it is written in passes.
    pub(crate) fn has_passes(&self) -> bool {
        self.home.id == 0
    }

    /// Reads by a tree. `None` if that failed and the tree has been replaced meanwhile: the caller
    /// retries with the new one.
    ///
    /// `is_old` reports a replacement. It is called when no pass is being written.
    ///
    /// # Errors
    /// The errors of `read`, if the tree was not replaced.
    pub(crate) fn steadily<T>(
        &self,
        read: impl Fn(&ReadOptions) -> Result<T>,
        is_old: impl FnOnce() -> bool,
        options: &ReadOptions,
    ) -> Result<Option<T>> {
        if !self.has_passes() {
            return read(options).map(Some);
        }
        let found = read(&options.with(IoFlags::MAY_BE_STALE));
        let Err(Error::Read(_)) = found else { return found.map(Some) };
        // The sync thread takes this lock again while it reads, so it does not wait here. If a pass
        // takes longer than the limit, the reader goes on without the lock.
        let pass = self.pass.try_lock_for(PASS_PATIENCE);
        let old = is_old();
        drop(pass);
        if old { Ok(None) } else { read(options).map(Some) }
    }

    pub(crate) fn root(&self) -> Root {
        self.root.read().clone()
    }

    /// Whether no txg was synced since [`LiveObjset::root`] returned this.
    pub(crate) fn is_current(&self, root: &Root) -> bool {
        self.root.read().generation == root.generation
    }

    pub(crate) fn phys(&self) -> Arc<ObjsetPhys> {
        self.root.read().phys.clone()
    }

    fn dirty_set(&self, txg: Txg) -> &Mutex<DirtySet> {
        &self.dirty[(txg.0 % TXG_SIZE as u64) as usize]
    }

    pub(crate) fn note_dirty(&self, txg: Txg, dn: &Arc<LiveDnode>) {
        self.mark(txg, |set| {
            set.dnodes.insert(dn.object, dn.clone());
        });
    }

    /// Marks changes of a txg. Its holder does so, or the thread that syncs it.
    fn mark(&self, txg: Txg, mark: impl FnOnce(&mut DirtySet)) {
        let is_first = {
            let mut set = self.dirty_set(txg).lock();
            let is_first = !set.is_dirty();
            mark(&mut set);
            is_first
        };
        if is_first && let Some(on_dirty) = self.on_dirty.get() {
            on_dirty(txg);
        }
    }

    /// Has `on_dirty` called with each txg that gets its first change. Only the first call has an
    /// effect.
    pub(crate) fn on_dirty(&self, on_dirty: OnDirty) {
        let _ = self.on_dirty.set(on_dirty);
    }

    pub(crate) fn is_dirty(&self, txg: Txg) -> bool {
        self.dirty_set(txg).lock().is_dirty()
    }

    /// Whether a txg that is not synced changes an object.
    pub(crate) fn has_dirty_dnodes(&self) -> bool {
        self.dirty.iter().any(|set| !set.lock().dnodes.is_empty())
    }

    /// Notes that blocks are being cloned.
    pub(crate) fn note_clones(&self) {
        self.cloned.store(true, Ordering::Release);
    }

    /// The blocks of other objects that the txg clones into this object set.
    pub(crate) fn clones(&self, txg: Txg) -> Vec<Blkptr> {
        let mut out = Vec::new();
        if self.cloned.load(Ordering::Acquire) {
            let dnodes: Vec<_> = self.dirty_set(txg).lock().dnodes.values().cloned().collect();
            dnodes.iter().for_each(|dn| dn.clones(txg, &mut out));
        }
        out
    }

    /// Takes the set of objects that `txg` changed.
    pub(crate) fn take_dirty(&self, txg: Txg) -> DirtySet {
        std::mem::take(&mut self.dirty_set(txg).lock())
    }

    /// Drops all changes. Called when no handle is left that could sync them.
    pub(crate) fn abandon(&self) {
        for set in &self.dirty {
            set.lock().dnodes.clear();
        }
    }

    /// Changes the root block, except for its dnodes.
    pub(crate) fn change_root(&self, tx: &Tx, f: impl FnOnce(&mut ObjsetPhys)) {
        f(Arc::make_mut(&mut self.root.write().phys));
        self.mark(tx.txg(), |set| set.root = true);
    }

    /// Changes the dnode of the dnodes. Only called while no txg writes the object set.
    ///
    /// # Errors
    /// The errors of `f`.
    pub(crate) fn change_meta<E>(
        &self,
        tx: &Tx,
        f: impl FnOnce(&mut ObjsetPhys) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        let mut root = self.root.write();
        let mut phys = ObjsetPhys::clone(&root.phys);
        f(&mut phys)?;
        root.meta = Arc::new(BlockTree::new(self.home.clone(), ObjNum(0), phys.meta_dnode.clone()));
        root.phys = Arc::new(phys);
        root.generation += 1;
        drop(root);
        self.mark(tx.txg(), |set| set.root = true);
        Ok(())
    }

    /// Sets the header of the intent log in the txg of `tx`.
    pub(crate) fn set_zil_header(&self, tx: &Tx, header: [u8; ZIL_HEADER_SIZE]) {
        let mut headers = self.zil_header.lock();
        headers.pending.insert(tx.txg(), header);
        let newest = *headers.pending.values().next_back().expect("one was just put there");
        self.change_root(tx, |phys| phys.zil_header = newest);
    }

    /// The header of the intent log in `txg`, which is syncing.
    pub(crate) fn zil_header_of(&self, txg: Txg) -> [u8; ZIL_HEADER_SIZE] {
        let headers = self.zil_header.lock();
        headers.pending.range(..=txg).next_back().map_or(headers.synced, |(_, header)| *header)
    }

    /// Notes that the header of `txg` is on its way to the devices.
    pub(crate) fn zil_header_synced(&self, txg: Txg) {
        let mut headers = self.zil_header.lock();
        while let Some(first) = headers.pending.first_entry().filter(|first| *first.key() <= txg) {
            headers.synced = first.remove();
        }
    }

    /// Puts the synced state in place. `accept` changes the root block.
    pub(crate) fn install(&self, bp: Blkptr, accept: impl FnOnce(&mut ObjsetPhys)) {
        let mut root = self.root.write();
        let phys = Arc::make_mut(&mut root.phys);
        accept(phys);
        let meta = BlockTree::new(self.home.clone(), ObjNum(0), phys.meta_dnode.clone());
        root.meta = Arc::new(meta);
        root.bp = bp;
        root.generation += 1;
    }

    /// The object, if the table holds it.
    fn known(table: &HashMap<ObjNum, Weak<LiveDnode>>, object: ObjNum) -> Option<Arc<LiveDnode>> {
        table.get(&object).and_then(Weak::upgrade)
    }

    /// Whether the object is in use or has changes.
    pub(crate) fn is_held(&self, object: ObjNum) -> bool {
        let table = self.tables[object.0 as usize % TABLES].lock();
        table.get(&object).is_some_and(|dn| dn.strong_count() > 0)
    }

    /// The object, free or not.
    ///
    /// # Errors
    /// The errors of [reading](Error#reading), for its dnode.
    pub(crate) fn hold(
        self: &Arc<LiveObjset>,
        object: ObjNum,
        undecrypted: bool,
        options: &ReadOptions,
    ) -> Result<Arc<LiveDnode>> {
        let table = &self.tables[object.0 as usize % TABLES];
        loop {
            if let Some(dn) = Self::known(&table.lock(), object) {
                return Ok(dn);
            }
            let root = self.root();
            let phys = match object {
                DMU_USERUSED_OBJECT => root.phys.userused.clone(),
                DMU_GROUPUSED_OBJECT => root.phys.groupused.clone(),
                DMU_PROJECTUSED_OBJECT => root.phys.projectused.clone(),
                ObjNum(0) | ObjNum(DN_MAX_OBJECT..) => None,
                _ => {
                    let read = |options: &ReadOptions| read_dnode(&root.meta, object, undecrypted, options);
                    let is_old = || self.root.read().generation != root.generation;
                    match self.steadily(read, is_old, options)? {
                        Some(phys) => phys,
                        None => continue,
                    }
                }
            };
            let mut table = table.lock();
            if let Some(dn) = Self::known(&table, object) {
                return Ok(dn);
            }
            if self.root.read().generation != root.generation {
                // A txg was synced meanwhile, so this dnode may be an old one.
                continue;
            }
            let tree = phys.map(|p| Arc::new(BlockTree::new(self.home.clone(), object, p)));
            let dn = LiveDnode::new(self.clone(), object, tree);
            if table.len() == table.capacity() {
                table.retain(|_, dn| dn.strong_count() > 0);
            }
            table.insert(object, Arc::downgrade(&dn));
            return Ok(dn);
        }
    }
}
