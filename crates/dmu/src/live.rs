//! Object sets that change.
//!
//! # Theory
//! A live object set is what was synced last, which never changes, under the changes of up to three transaction groups.
//! Readers ask the newest changes first, then older ones, then the synced tree. Changes hold data blocks only:
//! what becomes of indirect blocks and dnodes is worked out when their group is synced, so that a thousand writes to
//! one block, or to blocks beside it, cost one.
//!
//! # Life
//! A group's changes to an object are a record. It is open while its group is, closed when a newer group changes the same object, and
//! taken out when its group is synced ([`crate::Objset::sync`]); until that is done readers still find it. Then the
//! synced tree is exchanged for the new one.
//!
//! # Locks
//! The intent log's headers, then the synced root. An object's state, then the set of dirty objects of a group. The table of objects, then the synced root. None of
//! them is held across a read.
//!
//! # Errors
//! A pool's own object set is written in passes, of which later ones write over blocks of earlier ones where they are, and a tree that somebody has held for
//! several groups may lead to places that are others' by now. So what can't be read by a tree that has been exchanged meanwhile is read by the new one
//! ([`LiveObjset::steadily`]); only then is it damaged.
//!
//! # Crash
//! Nothing here is durable before its group is.

pub(crate) mod dirty;
pub(crate) mod header;
pub(crate) mod node;
pub(crate) mod slots;

use crate::objset::{Home, read_dnode};
use crate::tree::BlockTree;
use crate::{
    DMU_GROUPUSED_OBJECT, DMU_PROJECTUSED_OBJECT, DMU_USERUSED_OBJECT, DN_MAX_OBJECT, Error, Result, Tx,
};
use node::LiveDnode;
use ondisk::objset::ObjsetPhys;
use ondisk::zil::ZIL_HEADER_SIZE;
use ondisk::{Blkptr, ObjNum, Txg};
use parking_lot::{Mutex, ReentrantMutex, ReentrantMutexGuard, RwLock};
use slots::Slots;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;
use zio::{IoFlags, ReadOptions};

/// Groups that may have changes at one time, and one (`TXG_SIZE`).
const TXG_SIZE: usize = 4;

/// How long who could not read by a tree waits for a pass to be written.
const PASS_PATIENCE: Duration = Duration::from_secs(60);

/// Tables of objects that are held.
const TABLES: usize = 8;

/// An object set that changes.
pub(crate) struct LiveObjset {
    pub(crate) home: Home,
    root: RwLock<Root>,
    /// The objects that somebody holds, by number in tables by its last bits: a program that opens many files at once takes many locks.
    tables: [Mutex<HashMap<ObjNum, Weak<LiveDnode>>>; TABLES],
    dirty: [Mutex<DirtySet>; TXG_SIZE],
    pub(crate) slots: Mutex<Slots>,
    zil_header: Mutex<ZilHeaders>,
    /// Something was cloned since it was opened.
    cloned: AtomicBool,
    /// Held while a pass of a group is written, until its trees are there to be read by.
    pass: ReentrantMutex<()>,
}

/// The header of the intent log, by group: an older group must not be written with what a newer one says, or a crash between them would take
/// for replayed, or for gone, what the older one does not hold.
struct ZilHeaders {
    synced: [u8; ZIL_HEADER_SIZE],
    pending: BTreeMap<Txg, [u8; ZIL_HEADER_SIZE]>,
}

/// What was synced last; of the intent log's header what was set last.
#[derive(Clone)]
pub(crate) struct Root {
    pub(crate) bp: Blkptr,
    pub(crate) phys: Arc<ObjsetPhys>,
    /// The object whose data are the dnodes.
    pub(crate) meta: Arc<BlockTree>,
    generation: u64,
}

/// What a group changes.
#[derive(Default)]
pub(crate) struct DirtySet {
    pub(crate) dnodes: BTreeMap<ObjNum, Arc<LiveDnode>>,
    /// The root changes even if no object does.
    pub(crate) root: bool,
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
            slots: Mutex::default(),
            zil_header,
            cloned: AtomicBool::new(false),
            pass: ReentrantMutex::new(()),
        })
    }

    /// While a pass is written.
    pub(crate) fn begin_pass(&self) -> ReentrantMutexGuard<'_, ()> {
        self.pass.lock()
    }

    /// Whether blocks of this object set may be written over: only those of the pool's own are, which is written in passes.
    pub(crate) fn has_passes(&self) -> bool {
        self.home.id == 0
    }

    /// Reads by a tree, and if that fails because it has been exchanged meanwhile (`is_old` says so once no pass is being written), nothing: it is to be read by the
    /// new one.
    ///
    /// # Errors
    /// As reading fails.
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
        // Who syncs is let through; a pass that takes for ever has other worries.
        let pass = self.pass.try_lock_for(PASS_PATIENCE);
        let old = is_old();
        drop(pass);
        if old { Ok(None) } else { read(options).map(Some) }
    }

    pub(crate) fn root(&self) -> Root {
        self.root.read().clone()
    }

    pub(crate) fn phys(&self) -> Arc<ObjsetPhys> {
        self.root.read().phys.clone()
    }

    fn dirty_set(&self, txg: Txg) -> &Mutex<DirtySet> {
        &self.dirty[(txg.0 % TXG_SIZE as u64) as usize]
    }

    pub(crate) fn note_dirty(&self, txg: Txg, dn: &Arc<LiveDnode>) {
        self.dirty_set(txg).lock().dnodes.insert(dn.object, dn.clone());
    }

    pub(crate) fn is_dirty(&self, txg: Txg) -> bool {
        let set = self.dirty_set(txg).lock();
        set.root || !set.dnodes.is_empty()
    }

    /// Something is being cloned.
    pub(crate) fn note_clones(&self) {
        self.cloned.store(true, Ordering::Release);
    }

    /// Blocks of others that the group makes blocks of this object set.
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

    /// Forgets all changes: nobody is left who could sync them.
    pub(crate) fn abandon(&self) {
        for set in &self.dirty {
            set.lock().dnodes.clear();
        }
    }

    /// Changes what the root block says besides its dnodes.
    pub(crate) fn change_root(&self, tx: &Tx, f: impl FnOnce(&mut ObjsetPhys)) {
        f(Arc::make_mut(&mut self.root.write().phys));
        self.dirty_set(tx.txg()).lock().root = true;
    }

    /// Sets the header of the intent log in the group of `tx`.
    pub(crate) fn set_zil_header(&self, tx: &Tx, header: [u8; ZIL_HEADER_SIZE]) {
        let mut headers = self.zil_header.lock();
        headers.pending.insert(tx.txg(), header);
        let newest = *headers.pending.values().next_back().expect("one was just put there");
        self.change_root(tx, |phys| phys.zil_header = newest);
    }

    /// The header of the intent log as of `txg`, which is being synced.
    pub(crate) fn zil_header_of(&self, txg: Txg) -> [u8; ZIL_HEADER_SIZE] {
        let headers = self.zil_header.lock();
        headers.pending.range(..=txg).next_back().map_or(headers.synced, |(_, header)| *header)
    }

    /// The header of `txg` is on its way to the devices.
    pub(crate) fn zil_header_synced(&self, txg: Txg) {
        let mut headers = self.zil_header.lock();
        while let Some(first) = headers.pending.first_entry().filter(|first| *first.key() <= txg) {
            headers.synced = first.remove();
        }
    }

    /// Puts in place what was synced; `accept` says what of the root block.
    pub(crate) fn install(&self, bp: Blkptr, accept: impl FnOnce(&mut ObjsetPhys)) {
        let mut root = self.root.write();
        let phys = Arc::make_mut(&mut root.phys);
        accept(phys);
        let meta = BlockTree::new(self.home.clone(), ObjNum(0), phys.meta_dnode.clone());
        root.meta = Arc::new(meta);
        root.bp = bp;
        root.generation += 1;
    }

    /// The object, if it is known here.
    fn known(table: &HashMap<ObjNum, Weak<LiveDnode>>, object: ObjNum) -> Option<Arc<LiveDnode>> {
        table.get(&object).and_then(Weak::upgrade)
    }

    /// The object, free or not.
    ///
    /// # Errors
    /// As reading its dnode fails.
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
                // A group was synced meanwhile; this dnode may be of the past.
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
