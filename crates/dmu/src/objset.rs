//! Object sets: from object numbers to dnodes.

mod block;
mod bonuses;
mod changes;

pub use bonuses::{Bonus, BonusBlocks, Bonuses};
pub use changes::{Change, Changes};

use crate::live::LiveObjset;
use crate::live::header::{Header, INDBLKSHIFT};
use crate::tree::BlockTree;
use crate::visited::Visited;
use crate::{
    DMU_GROUPUSED_OBJECT, DMU_PROJECTUSED_OBJECT, DMU_USERUSED_OBJECT, DN_MAX_OBJECT, Dnode, Error, Extent,
    NewObject, Result, Tx,
};
use arc::Cache;
use block::DnodeBlock;
use ondisk::blkptr::Body;
use ondisk::dnode::{DNODE_BLOCK_SIZE, DNODE_SHIFT, DnodePhys};
use ondisk::objset::{ObjsetFlags, ObjsetKind, ObjsetPhys};
use ondisk::{BlkId, Blkptr, Corrupt, DmuType, Level, ObjNum};
use std::sync::Arc;
use zio::{Bookmark, ReadOptions};

/// An open object set (`objset_t`). Clones share it.
///
/// An object set of [`Objset::open`] never changes. One of [`Objset::open_live`] or
/// [`Objset::create_live`] changes, and its readers see every change, synced or not.
#[derive(Clone)]
pub struct Objset {
    inner: Arc<Inner>,
    options: ReadOptions,
}

struct Inner {
    home: Home,
    state: State,
}

enum State {
    Fixed { root: Blkptr, phys: Arc<ObjsetPhys>, meta: Arc<BlockTree> },
    LiveObjset(Arc<LiveObjset>),
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let State::LiveObjset(live) = &self.state {
            live.abandon();
        }
    }
}

/// What each dnode needs of its object set.
#[derive(Clone)]
pub(crate) struct Home {
    /// The cache for its blocks.
    pub(crate) cache: Arc<Cache>,
    /// The dataset's object number; 0 is the MOS.
    pub(crate) id: u64,
}

impl Home {
    fn new(cache: Arc<Cache>, id: u64) -> Home {
        Home { cache, id }
    }
}

impl std::fmt::Debug for Objset {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Objset")
            .field("id", &self.inner.home.id)
            .field("kind", &self.kind())
            .finish_non_exhaustive()
    }
}

impl Objset {
    /// Opens the object set at `root` for reading (`dmu_objset_open_impl`).
    ///
    /// `id` is the object number of its dataset, 0 for the MOS. All reads through this handle use
    /// `options`.
    ///
    /// # Errors
    /// * [`Error::Read`]: the root block can't be read.
    /// * [`Error::Corrupt`]: the root is a hole, or the block is no object set.
    pub fn open(cache: Arc<Cache>, id: u64, root: &Blkptr, options: ReadOptions) -> Result<Objset> {
        let home = Home::new(cache, id);
        let phys = read_root(&home, root, &options)?;
        let meta = Arc::new(BlockTree::new(home.clone(), ObjNum(0), phys.meta_dnode.clone()));
        let state = State::Fixed { root: *root, phys: Arc::new(phys), meta };
        Ok(Objset { inner: Arc::new(Inner { home, state }), options })
    }

    /// Opens the object set at `root` for changes. Only one such handle of a dataset may exist at a
    /// time.
    ///
    /// # Errors
    /// * [`Error::Read`]: the root block can't be read.
    /// * [`Error::Corrupt`]: the root is a hole, or the block is no object set.
    pub fn open_live(cache: Arc<Cache>, id: u64, root: &Blkptr, options: ReadOptions) -> Result<Objset> {
        let home = Home::new(cache, id);
        let phys = read_root(&home, root, &options)?;
        let live = LiveObjset::new(home.clone(), *root, phys);
        Ok(Objset { inner: Arc::new(Inner { home, state: State::LiveObjset(live) }), options })
    }

    /// Creates an empty object set (`dmu_objset_create_impl`).
    ///
    /// `flags` is the accounting that it keeps from its start. A file system has
    /// [`ObjsetFlags::USERACCOUNTING_COMPLETE`], and the flags of the pool's features.
    pub fn create_live(
        cache: Arc<Cache>,
        id: u64,
        kind: ObjsetKind,
        flags: ObjsetFlags,
        tx: &Tx,
        options: ReadOptions,
    ) -> Objset {
        let home = Home::new(cache, id);
        let spec = NewObject { block_size: DNODE_BLOCK_SIZE as u32, ..NewObject::new(DmuType::DNODE) };
        let mut meta_dnode = Header::new(kind, &spec).over(None);
        if kind != ObjsetKind::Meta {
            // Enough levels for all object numbers, so that the meta dnode never grows while it is
            // read.
            while reach(&meta_dnode) < DN_MAX_OBJECT {
                meta_dnode.nlevels += 1;
            }
        }
        let phys = ObjsetPhys {
            meta_dnode,
            zil_header: [0; 192],
            kind,
            flags,
            portable_mac: [0; 32],
            local_mac: [0; 32],
            userused: None,
            groupused: None,
            projectused: None,
        };
        let live = LiveObjset::new(home.clone(), Blkptr::HOLE, phys);
        live.change_root(tx, |_| {});
        Objset { inner: Arc::new(Inner { home, state: State::LiveObjset(live) }), options }
    }

    /// Gives a new object set a tree of dnodes of this shape.
    ///
    /// # Errors
    /// * [`Error::Fixed`]: the object set is not open for changes.
    /// * [`Error::DnodesTree`]: no tree of dnodes has this shape.
    /// * [`Error::DnodesShape`]: it has dnodes already, synced or not.
    pub fn shape_dnodes(&self, tx: &Tx, shape: DnodesShape) -> Result<()> {
        let live = self.live()?;
        if !INDBLKSHIFT.contains(&shape.indirect_shift) || shape.objects > DN_MAX_OBJECT {
            let DnodesShape { indirect_shift, objects } = shape;
            return Err(Error::DnodesTree { objset: self.id(), indirect_shift, objects });
        }
        let has_changes = live.has_dirty_dnodes();
        live.change_meta(tx, |phys| {
            let meta = &mut phys.meta_dnode;
            if has_changes || meta.blkptrs.iter().any(|bp| *bp != Blkptr::HOLE) {
                return Err(Error::DnodesShape { objset: self.id() });
            }
            (meta.nlevels, meta.indblkshift) = (1, shape.indirect_shift);
            while reach(meta) < shape.objects {
                meta.nlevels += 1;
            }
            Ok(())
        })
    }

    /// The same object set, but reads through this handle, and through handles made from it, use
    /// `options`.
    #[must_use]
    pub fn with_options(&self, options: ReadOptions) -> Objset {
        Objset { inner: self.inner.clone(), options }
    }

    /// The read options of this handle.
    pub fn options(&self) -> &ReadOptions {
        &self.options
    }

    /// The object number of the dataset, 0 for the MOS (`dmu_objset_id`).
    pub fn id(&self) -> u64 {
        self.inner.home.id
    }

    /// The type of the object set (`os_type`).
    pub fn kind(&self) -> ObjsetKind {
        self.phys().kind
    }

    /// The object set as it is stored (`objset_phys_t`).
    ///
    /// Of a live one, the state that was synced last, but with the current header of the intent log
    /// and the current flags.
    pub fn phys(&self) -> Arc<ObjsetPhys> {
        match &self.inner.state {
            State::Fixed { phys, .. } => phys.clone(),
            State::LiveObjset(live) => live.phys(),
        }
    }

    /// The pointer to the root block that was opened or synced last (`os_rootbp`).
    pub fn root_bp(&self) -> Blkptr {
        match &self.inner.state {
            State::Fixed { root, .. } => *root,
            State::LiveObjset(live) => live.root().bp,
        }
    }

    /// The cache for its blocks.
    pub fn cache(&self) -> &Arc<Cache> {
        &self.inner.home.cache
    }

    fn meta(&self) -> Arc<BlockTree> {
        match &self.inner.state {
            State::Fixed { meta, .. } => meta.clone(),
            State::LiveObjset(live) => live.root().meta,
        }
    }

    /// The object whose data are the dnodes (`DMU_META_DNODE`). Of a live object set, as it was
    /// synced last.
    pub fn meta_dnode(&self) -> Dnode {
        Dnode::fixed(self.meta(), self.options.clone())
    }

    /// True if it is open for changes.
    pub fn is_live(&self) -> bool {
        matches!(self.inner.state, State::LiveObjset(_))
    }

    pub(crate) fn live(&self) -> Result<&Arc<LiveObjset>> {
        match &self.inner.state {
            State::Fixed { .. } => Err(Error::Fixed { objset: self.inner.home.id }),
            State::LiveObjset(live) => Ok(live),
        }
    }

    /// Opens an object (`dnode_hold`).
    ///
    /// Without the dataset's key, this works for objects whose bonus is not encrypted.
    ///
    /// # Errors
    /// * The errors of [reading](Error#reading), for the object's block of dnodes.
    /// * [`Error::NoSuchObject`]: the slot is free, or lies inside a larger dnode.
    pub fn dnode(&self, object: ObjNum) -> Result<Dnode> {
        self.hold(object, false)
    }

    /// As [`Objset::dnode`], but accepts an object whose bonus can't be decrypted for lack of the
    /// key. Its bonus is then ciphertext.
    ///
    /// # Errors
    /// * The errors of [reading](Error#reading), for the object's block of dnodes.
    /// * [`Error::NoSuchObject`]: the slot is free, or lies inside a larger dnode.
    pub fn dnode_undecrypted(&self, object: ObjNum) -> Result<Dnode> {
        self.hold(object, true)
    }

    fn hold(&self, object: ObjNum, undecrypted: bool) -> Result<Dnode> {
        let missing = || Error::NoSuchObject { objset: self.inner.home.id, object };
        let (phys, meta) = match &self.inner.state {
            State::LiveObjset(live) => {
                let dn = live.hold(object, undecrypted, &self.options)?;
                return Dnode::live(dn, self.options.clone()).ok_or_else(missing);
            }
            State::Fixed { phys, meta, .. } => (phys, meta),
        };
        let phys = match object {
            DMU_USERUSED_OBJECT => phys.userused.clone(),
            DMU_GROUPUSED_OBJECT => phys.groupused.clone(),
            DMU_PROJECTUSED_OBJECT => phys.projectused.clone(),
            ObjNum(0) | ObjNum(DN_MAX_OBJECT..) => None,
            _ => read_dnode(meta, object, undecrypted, &self.options)?,
        };
        let tree = BlockTree::new(self.inner.home.clone(), object, phys.ok_or_else(missing)?);
        Ok(Dnode::fixed(Arc::new(tree), self.options.clone()))
    }

    /// The allocated objects from `first` on, in order (`dmu_object_next`).
    pub fn objects(&self, first: ObjNum) -> Objects {
        let faults_left = self.cache().zio().walk_limit();
        let next = first.0.max(1);
        let (visited, end) = (Visited::default(), DN_MAX_OBJECT);
        Objects { os: self.clone(), next, end, visited, undecrypted: false, faults_left }
    }

    /// As [`Objset::objects`], but accepts objects whose bonus can't be decrypted for lack of the
    /// key. Their bonus is then ciphertext.
    pub fn objects_undecrypted(&self, first: ObjNum) -> Objects {
        Objects { undecrypted: true, ..self.objects(first) }
    }
}

/// The shape of a tree of dnodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DnodesShape {
    /// log2 of the size of its indirect blocks, 12 to 17.
    pub indirect_shift: u8,
    /// It has levels for so many objects, up to [`DN_MAX_OBJECT`]. More objects grow it.
    pub objects: u64,
}

/// The number of objects that a meta dnode of this geometry can hold.
fn reach(meta: &DnodePhys) -> u64 {
    let shift = u32::from(meta.nlevels - 1) * meta.epbs();
    let per = u64::from(meta.datablksz) >> DNODE_SHIFT;
    (meta.blkptrs.len() as u64 * per).checked_shl(shift).unwrap_or(u64::MAX)
}

fn read_root(home: &Home, root: &Blkptr, options: &ReadOptions) -> Result<ObjsetPhys> {
    let corrupt = |source| Error::Corrupt { objset: home.id, object: ObjNum(0), source };
    if root.is_hole() {
        return Err(corrupt(Corrupt::Shape { what: "object set", why: "its root is a hole" }));
    }
    let bookmark = Bookmark { objset: home.id, object: ObjNum(0), level: Level(0), blkid: BlkId(0) };
    let block = home.cache.read(root, &bookmark, options)?;
    ObjsetPhys::decode(&block).map_err(corrupt)
}

/// The number of dnodes in one block of the meta dnode.
fn dnodes_per_block(meta: &BlockTree) -> u64 {
    u64::from(meta.phys.datablksz) >> DNODE_SHIFT
}

/// The dnode of an object, from the blocks of the meta dnode. `None` if there is none.
///
/// # Errors
/// * The errors of [reading](Error#reading).
/// * [`Error::Read`] with [`zio::Error::Key`]: the bonus is encrypted, its key is not loaded, and
///   `undecrypted` is false.
pub(crate) fn read_dnode(
    meta: &BlockTree,
    object: ObjNum,
    undecrypted: bool,
    options: &ReadOptions,
) -> Result<Option<DnodePhys>> {
    let corrupt = |source| Error::Corrupt { objset: meta.home.id, object, source };
    let per = dnodes_per_block(meta);
    let read = DnodeBlock::read(meta, BlkId(object.0 / per), options)?;
    let Some(block) = read else { return Ok(None) };
    let target = (object.0 % per) as usize;
    let mut slot = 0;
    while slot < target {
        slot += block.taken(slot).map_err(corrupt)?;
    }
    if slot != target {
        return Ok(None);
    }
    let phys = block.decode(target).map_err(corrupt)?;
    let hidden = phys.as_ref().is_some_and(|p| p.bonus_kind.is_encrypted()) && !undecrypted;
    match block.locked.filter(|_| hidden) {
        Some(locked) => Err(locked),
        None => Ok(phys),
    }
}

/// The objects in a block of dnodes, and how many slots each takes.
pub(crate) fn slots_of_block(
    meta: &BlockTree,
    blkid: BlkId,
    options: &ReadOptions,
) -> Result<Vec<(ObjNum, u8)>> {
    let corrupt = |source| Error::Corrupt { objset: meta.home.id, object: ObjNum(0), source };
    let per = dnodes_per_block(meta);
    let Some(block) = DnodeBlock::read(meta, blkid, options)? else { return Ok(Vec::new()) };
    let (mut slot, mut all) = (0, Vec::new());
    while slot < per {
        let taken = block.taken(slot as usize).map_err(corrupt)?;
        if block.is_used(slot as usize) {
            all.push((ObjNum(blkid.0 * per + slot), taken as u8));
        }
        slot += taken as u64;
    }
    Ok(all)
}

/// Iterator over the allocated objects of an object set.
///
/// After an error, the iterator continues after the block that failed and everything below it. So a
/// rescue can skip damage. Each sector of the pool can be damaged once, so the iterator ends after
/// as many errors as the pool has sectors.
pub struct Objects {
    os: Objset,
    next: u64,
    end: u64,
    visited: Visited,
    undecrypted: bool,
    faults_left: u64,
}

/// Refuses a pointer with a block of dnodes in it: no dnode fits there, and a few bytes would be
/// many objects.
fn check_dnode_block(bp: &Blkptr) -> ondisk::Result<()> {
    let why = "a block of dnodes lies in its pointer";
    match bp.body {
        Body::Embedded(_) => Err(Corrupt::Shape { what: "object set", why }),
        _ => Ok(()),
    }
}

impl Objects {
    /// Only the objects below `end`. No dnode from there on is read.
    #[must_use]
    pub fn until(self, end: ObjNum) -> Self {
        Self { end: end.0.min(DN_MAX_OBJECT), ..self }
    }

    /// Refuses a block of dnodes that was visited at another place, and an embedded one.
    fn check_new(&mut self, meta: &BlockTree, blkid: BlkId) -> Result<()> {
        let bp = meta.bp(Level(0), blkid, &self.os.options)?;
        let visited = check_dnode_block(&bp).and_then(|()| self.visited.note(&bp, Level(0), blkid));
        visited.map_err(|e| meta.corrupt(e))
    }

    /// The next object in the blocks of dnodes, and the object number after it.
    fn step(&mut self) -> Result<Option<(Dnode, u64)>> {
        let meta = self.os.meta();
        let per = dnodes_per_block(&meta);
        loop {
            if self.next >= self.end {
                return Ok(None);
            }
            let from = BlkId(self.next / per);
            let blkid = match meta.next_block(from, Extent::Data, &mut self.visited, &self.os.options) {
                Ok(Some(blkid)) => blkid,
                Ok(None) => return Ok(None),
                Err(blocked) => {
                    let behind = blocked.behind.and_then(|b| b.0.checked_mul(per));
                    self.next = behind.unwrap_or(u64::MAX);
                    return Err(blocked.error);
                }
            };
            if blkid.0 >= DN_MAX_OBJECT / per {
                self.next = DN_MAX_OBJECT;
                let value = blkid.0;
                return Err(meta.corrupt(Corrupt::Range { what: "object set", field: "block", value }));
            }
            let base = blkid.0 * per;
            if base >= self.end {
                self.next = self.end;
                return Ok(None);
            }
            self.check_new(&meta, blkid).inspect_err(|_| self.next = base + per)?;
            let read = DnodeBlock::read(&meta, blkid, &self.os.options);
            let read = read.inspect_err(|_| self.next = base + per)?;
            let Some(block) = read else {
                self.next = base + per;
                continue;
            };
            let mut slot = 0;
            while slot < per && base + slot < self.end {
                let object = ObjNum(base + slot);
                let corrupt = |source| Error::Corrupt { objset: self.os.id(), object, source };
                let taken = block.taken(slot as usize).map_err(corrupt).inspect_err(|_| {
                    self.next = base + per;
                })?;
                if block.is_used(slot as usize) && object.0 >= self.next {
                    self.next = object.0 + taken as u64;
                    let phys = block.decode(slot as usize).map_err(corrupt)?;
                    if let Some(phys) = phys {
                        let hidden = phys.bonus_kind.is_encrypted() && !self.undecrypted;
                        if let Some(locked) = block.locked.filter(|_| hidden) {
                            return Err(locked);
                        }
                        let tree = BlockTree::new(self.os.inner.home.clone(), object, phys);
                        let dn = Dnode::fixed(Arc::new(tree), self.os.options.clone());
                        return Ok(Some((dn, self.next)));
                    }
                }
                slot += taken as u64;
            }
            self.next = base + per;
        }
    }

    /// The next object of a live object set: the first that is not freed, among the synced objects
    /// and those allocated since.
    fn step_live(&mut self, live: &Arc<LiveObjset>) -> Result<Option<Dnode>> {
        loop {
            let start = self.next;
            // A block that was visited before may have been freed and used again.
            self.visited = Visited::default();
            let root = live.root();
            let synced = self.step()?;
            let end = synced.as_ref().map_or(ObjNum(self.end), |(d, _)| d.object());
            let new = {
                let slots = live.slots.lock();
                if !live.is_current(&root) {
                    // New objects have gone from the slots to blocks that were not read.
                    self.next = start;
                    continue;
                }
                slots
                    .changed_from(ObjNum(start))
                    .take_while(|(o, _)| *o <= end)
                    .find(|(o, there)| *there && *o < end)
                    .map(|(o, _)| o)
            };
            let object = match (new, synced) {
                (Some(object), _) => object,
                (None, Some((synced, _))) => synced.object(),
                (None, None) => {
                    self.next = self.end;
                    return Ok(None);
                }
            };
            self.next = object.0 + 1;
            let options = &self.os.options;
            let dn = live.hold(object, self.undecrypted, options)?;
            if let Some(dn) = Dnode::live(dn, options.clone()) {
                self.next = object.0 + dn.phys().num_slots() as u64;
                return Ok(Some(dn));
            }
        }
    }
}

impl Iterator for Objects {
    type Item = Result<Dnode>;

    fn next(&mut self) -> Option<Self::Item> {
        let r = match &self.os.inner.state {
            State::Fixed { .. } => self.step().map(|d| d.map(|(d, _)| d)),
            State::LiveObjset(live) => {
                let live = live.clone();
                self.step_live(&live)
            }
        };
        let r = r.transpose();
        if matches!(r, Some(Err(_))) {
            self.faults_left = self.faults_left.saturating_sub(1);
            if self.faults_left == 0 {
                self.next = u64::MAX;
            }
        }
        r
    }
}
