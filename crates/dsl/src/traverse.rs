//! Visiting every block of a pool.
//!
//! # Theory
//! A traversal starts at the MOS and at the object set of each dataset, and follows every pointer.
//! It skips what an older snapshot owns: a pointer born at or before the previous snapshot's txg.
//! So it visits each allocated block once.
//!
//! It is a pool of threads over one stack of half-visited nodes. A thread takes the newest node,
//! visits its next child, and puts the rest back before it descends. So the stack stays as small as
//! the depth of the trees times the threads, whatever the width of a block. Neighbours are read one
//! after another.
//!
//! A block that can't be read is reported, and what is below it is skipped. The traversal goes on.
//!
//! # Locks
//! The stack's lock is held to push and pop only. Many threads call the visitor at once.
//!
//! # See
//! OpenZFS `dmu_traverse.c`.

use device::Block;
use dmu::Objset;
use observe::lock::{Condvar, Mutex};
use ondisk::blkptr::{BLKPTR_SHIFT, BLKPTR_SIZE};
use ondisk::dnode::{DNODE_MIN_SIZE, DnodePhys};
use ondisk::dsl::DslDatasetPhys;
use ondisk::objset::ObjsetPhys;
use ondisk::{BlkId, Blkptr, Corrupt, DmuType, Level, ObjNum, Txg};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use zio::{Bookmark, ReadOptions, Zio};

/// What to do with the blocks of a traversal (`blkptr_cb_t`).
pub trait Visitor: Sync {
    /// Visits a block that is not a hole, with its place and its dnode.
    ///
    /// An object set's root block has no dnode.
    fn block(&self, bp: &Blkptr, bookmark: &Bookmark, dnode: Option<&DnodePhys>);

    /// Reports a block that can't be read or decoded; what is below it stays unvisited.
    fn failed(&self, bookmark: &Bookmark, error: &dmu::Error);

    /// Reports a block that the traversal has read to follow it: [`leads_on`] is true for it.
    fn read(&self, _bp: &Blkptr) {}

    /// Reports an object set, before its objects.
    fn objset(&self, _id: u64, _objset: &ObjsetPhys) {}

    /// Whether to go on; called between blocks.
    fn go_on(&self) -> bool {
        true
    }
}

/// Where a traversal starts.
#[derive(Debug, Clone)]
pub struct Root {
    /// The dataset's object; 0 is the MOS.
    pub objset: u64,
    /// The pointer to the object set.
    pub bp: Blkptr,
    /// Blocks born at or before this txg belong to an older snapshot.
    pub min_txg: Txg,
}

/// Whether a traversal reads this block itself, since others are below it.
///
/// Such blocks are object sets, indirect blocks and blocks of dnodes. `dnode` is that of
/// [`Visitor::block`].
pub fn leads_on(bookmark: &Bookmark, dnode: Option<&DnodePhys>) -> bool {
    dnode.is_none_or(|d| {
        bookmark.level.0 > 0 || (d.kind == DmuType::DNODE && bookmark.blkid != dmu::SPILL_BLKID)
    })
}

/// The roots of the MOS and of every dataset and snapshot in it.
///
/// `failed` gets the error of each object of the MOS that can't be read. The other roots are still
/// returned.
pub fn pool_roots(mos: &Objset, mut failed: impl FnMut(dmu::Error)) -> Vec<Root> {
    let mut roots = vec![Root { objset: 0, bp: mos.root_bp(), min_txg: Txg(0) }];
    for dnode in mos.objects(ObjNum(1)) {
        match dnode.and_then(|dn| root_of(&dn)) {
            Ok(found) => roots.extend(found),
            Err(e) => failed(e),
        }
    }
    roots
}

/// The root of this dataset object; `None` for other objects, and without contents.
fn root_of(dnode: &dmu::Dnode) -> dmu::Result<Option<Root>> {
    if dnode.bonus_kind() != DmuType::DSL_DATASET {
        return Ok(None);
    }
    let ds = DslDatasetPhys::decode(dnode.bonus()).map_err(|e| dnode.corrupt(e))?;
    let root = Root { objset: dnode.object().0, bp: ds.bp, min_txg: Txg(ds.prev_snap_txg) };
    Ok((!ds.bp.is_hole()).then_some(root))
}

/// What the blocks of one object have in common.
struct ObjectBlocks {
    objset: u64,
    object: ObjNum,
    min_txg: Txg,
    dnode: DnodePhys,
}

/// A node whose children from `next` on are still unvisited.
enum Work {
    Root(Root),
    Indirect { tree: Arc<ObjectBlocks>, block: Block, level: Level, blkid: BlkId, next: usize },
    Dnodes { objset: u64, min_txg: Txg, block: Block, blkid: BlkId, next: usize },
}

struct Stack {
    work: Vec<Work>,
    /// Threads that have a node and may push more.
    busy: usize,
}

struct Traversal<'a> {
    zio: &'a Zio,
    visitor: &'a dyn Visitor,
    stack: Mutex<Stack>,
    changed: Condvar,
    /// Reads left before the walk must be going in circles (`walk_limit`).
    steps: AtomicU64,
    /// Set when no reads were left: the walk is over.
    circling: AtomicBool,
}

/// Visits every block below `roots` with `threads` threads (`traverse_pool`).
pub fn traverse(zio: &Zio, roots: Vec<Root>, threads: usize, visitor: &dyn Visitor) {
    let work_len = roots.len() as u64;
    let work = roots.into_iter().rev().map(Work::Root).collect();
    // Each root may be a snapshot's, which is one read more than its blocks count.
    let steps = AtomicU64::new(zio.walk_limit().saturating_add(work_len));
    let circling = AtomicBool::new(false);
    let t = Traversal {
        zio,
        visitor,
        stack: Mutex::new(Stack { work, busy: 0 }),
        changed: Condvar::new(),
        steps,
        circling,
    };
    std::thread::scope(|scope| {
        for n in 1..threads.max(1) {
            let run = std::thread::Builder::new().name(format!("traverse-{n}"));
            // Fewer threads do the same work, only slower.
            if run.spawn_scoped(scope, || t.run()).is_err() {
                break;
            }
        }
        t.run();
    });
}

impl Traversal<'_> {
    fn run(&self) {
        while let Some(work) = self.take() {
            if self.visitor.go_on() && !self.circling.load(Ordering::Relaxed) {
                self.step(work);
            }
            let mut stack = self.stack.lock();
            stack.busy -= 1;
            if stack.busy == 0 && stack.work.is_empty() {
                self.changed.notify_all();
            }
        }
    }

    fn take(&self) -> Option<Work> {
        let mut stack = self.stack.lock();
        loop {
            if let Some(work) = stack.work.pop() {
                stack.busy += 1;
                return Some(work);
            }
            if stack.busy == 0 {
                return None;
            }
            self.changed.wait(&mut stack);
        }
    }

    fn push(&self, work: Work) {
        self.stack.lock().work.push(work);
        self.changed.notify_one();
    }

    fn step(&self, work: Work) {
        match work {
            Work::Root(root) => self.root(&root),
            Work::Indirect { tree, block, level, blkid, next } => {
                self.indirect(tree, block, level, blkid, next);
            }
            Work::Dnodes { objset, min_txg, block, blkid, next } => {
                self.dnodes(objset, min_txg, block, blkid, next);
            }
        }
    }

    fn root(&self, root: &Root) {
        if root.bp.is_hole() || root.bp.birth <= root.min_txg {
            return;
        }
        let bm = Bookmark { objset: root.objset, object: ObjNum(0), level: Level(0), blkid: BlkId(0) };
        self.visitor.block(&root.bp, &bm, None);
        let Some(block) = self.read(&root.bp, &bm) else { return };
        let os = match ObjsetPhys::decode(&block) {
            Ok(os) => os,
            Err(e) => return self.bad(&bm, e),
        };
        self.visitor.objset(root.objset, &os);
        let special = [
            (dmu::DMU_PROJECTUSED_OBJECT, &os.projectused),
            (dmu::DMU_GROUPUSED_OBJECT, &os.groupused),
            (dmu::DMU_USERUSED_OBJECT, &os.userused),
        ];
        for (object, dnode) in special {
            if let Some(d) = dnode {
                self.object(root.objset, object, root.min_txg, d.clone());
            }
        }
        self.object(root.objset, ObjNum(0), root.min_txg, os.meta_dnode);
    }

    fn object(&self, objset: u64, object: ObjNum, min_txg: Txg, dnode: DnodePhys) {
        let tree = Arc::new(ObjectBlocks { objset, object, min_txg, dnode });
        let top = Level(tree.dnode.nlevels - 1);
        for (i, bp) in tree.dnode.blkptrs.iter().enumerate() {
            self.child(&tree, bp, top, BlkId(i as u64));
        }
        if let Some(bp) = &tree.dnode.spill {
            self.child(&tree, bp, Level(0), dmu::SPILL_BLKID);
        }
    }

    /// Visits one pointer, and pushes what is below it.
    fn child(&self, tree: &Arc<ObjectBlocks>, bp: &Blkptr, level: Level, blkid: BlkId) {
        if bp.is_hole() || bp.birth <= tree.min_txg {
            return;
        }
        let bm = Bookmark { objset: tree.objset, object: tree.object, level, blkid };
        if bp.level != level {
            return self.bad(
                &bm,
                Corrupt::Shape { what: "block pointer", why: "its level is not that of its place" },
            );
        }
        self.visitor.block(bp, &bm, Some(&tree.dnode));
        if !leads_on(&bm, Some(&tree.dnode)) {
            return;
        }
        let Some(block) = self.read(bp, &bm) else { return };
        if level.0 > 0 {
            if block.len() != 1 << tree.dnode.indblkshift {
                return self.bad(&bm, Corrupt::Shape { what: "indirect block", why: "wrong size" });
            }
            self.push(Work::Indirect { tree: tree.clone(), block, level, blkid, next: 0 });
        } else {
            let (objset, min_txg) = (tree.objset, tree.min_txg);
            self.push(Work::Dnodes { objset, min_txg, block, blkid, next: 0 });
        }
    }

    fn indirect(&self, tree: Arc<ObjectBlocks>, block: Block, level: Level, blkid: BlkId, next: usize) {
        let entries = block.len() >> BLKPTR_SHIFT;
        let below = Level(level.0 - 1);
        let leaves = below.0 == 0 && tree.dnode.kind != DmuType::DNODE;
        for i in next..entries {
            let at = i << BLKPTR_SHIFT;
            let id = BlkId(blkid.0.wrapping_shl(tree.dnode.epbs()) + i as u64);
            match Blkptr::decode(&block[at..at + BLKPTR_SIZE]) {
                Ok(bp) if bp.is_hole() => continue,
                Ok(bp) if leaves => self.child(&tree, &bp, below, id),
                Ok(bp) => {
                    let (tree, block) = (tree.clone(), block.clone());
                    self.push(Work::Indirect { tree: tree.clone(), block, level, blkid, next: i + 1 });
                    return self.child(&tree, &bp, below, id);
                }
                Err(e) => {
                    let bm = Bookmark { objset: tree.objset, object: tree.object, level: below, blkid: id };
                    self.bad(&bm, e);
                }
            }
        }
    }

    fn dnodes(&self, objset: u64, min_txg: Txg, block: Block, blkid: BlkId, next: usize) {
        let per = block.len() / DNODE_MIN_SIZE;
        let mut slot = next;
        while slot < per {
            let raw = &block[slot * DNODE_MIN_SIZE..];
            let object = ObjNum(blkid.0.wrapping_mul(per as u64) + slot as u64);
            match DnodePhys::decode(raw) {
                Ok(None) => slot += 1,
                Ok(Some(dnode)) => {
                    let next = slot + dnode.num_slots();
                    self.push(Work::Dnodes { objset, min_txg, block, blkid, next });
                    return self.object(objset, object, min_txg, dnode);
                }
                Err(e) => {
                    let bm = Bookmark { objset, object: ObjNum(0), level: Level(0), blkid };
                    self.bad(&bm, e);
                    slot += 1;
                }
            }
        }
    }

    fn read(&self, bp: &Blkptr, bm: &Bookmark) -> Option<Block> {
        let step = self.steps.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1));
        if step.is_err() {
            if self.circling.swap(true, Ordering::Relaxed) {
                return None;
            }
            let why = "it has more blocks than the pool has sectors";
            self.bad(bm, Corrupt::Shape { what: "block tree", why });
            return None;
        }
        match self.zio.read_undecrypted(bp, bm, &ReadOptions::demand()) {
            Ok(block) => {
                self.visitor.read(bp);
                Some(block)
            }
            Err(e) => {
                self.visitor.failed(bm, &dmu::Error::Read(e));
                None
            }
        }
    }

    fn bad(&self, bm: &Bookmark, source: Corrupt) {
        self.visitor.failed(bm, &dmu::Error::Corrupt { objset: bm.objset, object: bm.object, source });
    }
}
