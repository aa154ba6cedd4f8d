//! A pool of one disk in memory. Its allocator never reuses an offset and knows what is in use.

use arc::Cache;
use device::{Device, MemDevice};
use dmu::{Dnode, Objset, SyncSink, Tx};
use ondisk::blkptr::{BLKPTR_SIZE, Body};
use ondisk::dnode::DnodePhys;
use ondisk::objset::{ObjsetFlags, ObjsetKind};
use ondisk::{
    Ashift, BlkId, Blkptr, DmuType, Dva, Guid, Level, ObjNum, Offset, Txg, VdevConfig, VdevId, VdevKind,
};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use vdev::Tree;
use zio::{Bookmark, NoSpace, ReadOptions, Space, Want, WritePolicy, Zio};

/// An allocator that allocates from the front.
pub struct Front {
    tree: Arc<Tree>,
    state: Mutex<(u64, BTreeMap<u64, u64>)>,
}

impl Space for Front {
    fn allocate(&self, want: &Want) -> Result<[Option<Dva>; 3], NoSpace> {
        let vdev = VdevId(0);
        let asize = self.tree.psize_to_asize(vdev, want.psize, want.txg).map_err(|_| NoSpace)?;
        let (next, used) = &mut *self.state.lock();
        let mut dvas = [None; 3];
        for dva in dvas.iter_mut().take(usize::from(want.copies)) {
            *dva = Some(Dva { vdev, offset: Offset(*next), asize, gang: false });
            used.insert(*next, asize.0);
            *next += asize.0;
        }
        Ok(dvas)
    }

    fn free(&self, dva: &Dva, _: Txg, _: Txg) {
        assert_eq!(self.state.lock().1.remove(&dva.offset.0), Some(dva.asize.0), "{dva:?} was freed twice");
    }

    fn unallocate(&self, dva: &Dva, txg: Txg) {
        self.free(dva, txg, txg);
    }
}

/// The sink that a sync needs. It frees at once.
pub struct Sink {
    pub space: Arc<Front>,
    pub txg: Txg,
    pub policy: WritePolicy,
    pub born: usize,
}

impl SyncSink for Sink {
    fn policy(&self, _: DmuType, _: Level, _: &DnodePhys) -> WritePolicy {
        self.policy
    }

    fn born(&mut self, bp: &Blkptr) {
        assert_eq!(bp.birth, self.txg);
        self.born += 1;
    }

    fn kill(&mut self, bp: &Blkptr) {
        bp.stored().into_iter().flat_map(|s| s.copies()).for_each(|d| self.space.free(d, bp.birth, self.txg));
    }

    fn dsize(&self, bp: &Blkptr) -> u64 {
        bp.stored().map_or(0, |s| s.copies().map(|d| d.asize.0).sum())
    }

    fn hole_birth(&self) -> bool {
        true
    }

    fn large_dnode(&mut self) {}
}

pub struct Rig {
    pub cache: Arc<Cache>,
    pub space: Arc<Front>,
    pub policy: WritePolicy,
}

impl Rig {
    pub fn new() -> Rig {
        Rig::over(Arc::new(MemDevice::new("d", 1 << 40)))
    }

    /// A pool on this device.
    pub fn over(device: Arc<dyn Device>) -> Rig {
        let mut root = VdevConfig::new(VdevKind::Root, Guid(1));
        let mut leaf = VdevConfig::new(VdevKind::File, Guid(2));
        leaf.ashift = Some(Ashift(9));
        leaf.path = Some(b"/d".to_vec());
        root.children = vec![leaf];
        let open = &mut |_: &VdevConfig| Ok(device.clone());
        let tree = Arc::new(Tree::open(&root, open).unwrap());
        let zio = Zio::new(tree.clone());
        let space = Arc::new(Front { tree, state: Mutex::default() });
        zio.set_space(space.clone());
        let policy = WritePolicy { embed: true, ..WritePolicy::PLAIN };
        Rig { cache: Arc::new(Cache::new(zio, 64 << 20)), space, policy }
    }

    pub fn create(&self, kind: ObjsetKind, flags: u64) -> Objset {
        Objset::create_live(self.cache.clone(), 5, kind, ObjsetFlags(flags), &tx(1), ReadOptions::demand())
    }

    pub fn sync_pass(&self, os: &Objset, txg: u64, pass: u32) -> Blkptr {
        let space = self.space.clone();
        let mut sink = Sink { space, txg: Txg(txg), policy: self.policy, born: 0 };
        let bp = os.sync(&tx(txg), pass, &mut sink, &os.cache().zio().workers()).unwrap();
        assert!(!os.is_dirty(Txg(txg)));
        bp
    }

    /// Syncs a transaction group, and opens the result as a read-only object set.
    pub fn sync(&self, os: &Objset, txg: u64) -> Objset {
        let bp = self.sync_pass(os, txg, 1);
        self.open(&bp)
    }

    pub fn open(&self, bp: &Blkptr) -> Objset {
        self.cache.purge();
        Objset::open(self.cache.clone(), 5, bp, ReadOptions::demand()).unwrap()
    }

    /// Checks that only blocks which the object set reaches are in use, and that the counts in
    /// pointers and dnodes are right.
    pub fn check(&self, os: &Objset) {
        let mut walk = Walk { cache: self.cache.clone(), used: BTreeMap::new(), space: 0 };
        let root = os.root_bp();
        walk.take(&root);
        let meta = os.meta_dnode();
        let objects: Vec<Dnode> = os.objects(ObjNum(1)).collect::<Result<_, _>>().unwrap();
        let fill = walk.object(&meta);
        assert_eq!(fill, objects.len() as u64);
        assert_eq!(root.stored().unwrap().fill, fill);
        let special = [dmu::DMU_USERUSED_OBJECT, dmu::DMU_GROUPUSED_OBJECT, dmu::DMU_PROJECTUSED_OBJECT];
        let special: Vec<_> = special.iter().filter_map(|o| os.dnode(*o).ok()).collect();
        for dn in objects.iter().chain(&special) {
            walk.object(dn);
        }
        let used = &self.space.state.lock().1;
        assert_eq!(used, &walk.used, "what is in use and what is reachable differ");
    }
}

struct Walk {
    cache: Arc<Cache>,
    used: BTreeMap<u64, u64>,
    space: u64,
}

impl Walk {
    fn take(&mut self, bp: &Blkptr) {
        for d in bp.stored().into_iter().flat_map(|s| s.copies()) {
            assert!(self.used.insert(d.offset.0, d.asize.0).is_none(), "two pointers lead to one block");
            self.space += d.asize.0;
        }
    }

    fn object(&mut self, dn: &Dnode) -> u64 {
        self.space = 0;
        let phys = dn.phys();
        let top = Level(phys.nlevels - 1);
        let mut fill = 0;
        let mut last = 0;
        for (i, bp) in phys.blkptrs.iter().enumerate() {
            fill += self.below(dn, bp, top, i as u64, &mut last);
        }
        if let Some(spill) = &phys.spill {
            self.take(spill);
        }
        assert_eq!(phys.used_bytes, self.space, "{dn:?} counts its space wrong");
        assert!(last <= phys.maxblkid.0, "{dn:?} has block {last} behind its last, {}", phys.maxblkid);
        fill
    }

    fn below(&mut self, dn: &Dnode, bp: &Blkptr, level: Level, blkid: u64, last: &mut u64) -> u64 {
        self.take(bp);
        let stored_fill = match &bp.body {
            Body::Hole | Body::Redacted => return 0,
            Body::Embedded(_) => 1,
            Body::Stored(s) => s.fill,
        };
        assert_eq!(bp.level, level);
        if level.0 == 0 {
            *last = blkid.max(*last);
            return stored_fill;
        }
        let bookmark = Bookmark { objset: 5, object: dn.object(), level, blkid: BlkId(blkid) };
        let block = self.cache.read(bp, &bookmark, &ReadOptions::demand()).unwrap();
        let below = Level(level.0 - 1);
        let fill = block.chunks_exact(BLKPTR_SIZE).enumerate().map(|(i, raw)| {
            let id = (blkid << dn.phys().epbs()) + i as u64;
            self.below(dn, &Blkptr::decode(raw).unwrap(), below, id, last)
        });
        let fill: u64 = fill.sum();
        assert_eq!(fill, stored_fill, "{dn:?} level {level} block {blkid} counts wrong");
        assert!(fill > 0, "an indirect block of holes was written");
        fill
    }
}

pub fn tx(txg: u64) -> Tx {
    Tx::new(Txg(txg), None)
}
