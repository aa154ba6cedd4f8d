//! Object sets: from object numbers to dnodes.

use crate::met::Met;
use crate::{
    DMU_GROUPUSED_OBJECT, DMU_PROJECTUSED_OBJECT, DMU_USERUSED_OBJECT, DN_MAX_OBJECT, Dnode, Error, Result,
};
use arc::Cache;
use device::Block;
use ondisk::blkptr::Body;
use ondisk::dnode::{DNODE_MIN_SIZE, DNODE_SHIFT, DnodePhys};
use ondisk::objset::{ObjsetKind, ObjsetPhys};
use ondisk::{BlkId, Blkptr, Corrupt, Level, ObjNum};
use std::sync::Arc;
use zio::Bookmark;

/// An open object set; clones share it (`objset_t`).
#[derive(Clone)]
pub struct Objset(Arc<Inner>);

struct Inner {
    home: Home,
    root: Blkptr,
    phys: ObjsetPhys,
    meta: Dnode,
}

/// What every dnode needs of its object set.
#[derive(Clone)]
pub(crate) struct Home {
    /// The cache that blocks are read through.
    pub(crate) cache: Arc<Cache>,
    /// The dataset's object number; 0 is the MOS.
    pub(crate) id: u64,
}

impl std::fmt::Debug for Objset {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Objset")
            .field("id", &self.0.home.id)
            .field("kind", &self.0.phys.kind)
            .finish_non_exhaustive()
    }
}

impl Objset {
    /// Opens the object set at `root`; `id` is its dataset's object number, 0 for the MOS.
    ///
    /// # Errors
    /// [`Error::Read`] when the root block cannot be read, [`Error::Corrupt`] when it is no object set.
    pub fn open(cache: Arc<Cache>, id: u64, root: &Blkptr) -> Result<Objset> {
        let corrupt = |source| Error::Corrupt { objset: id, object: ObjNum(0), source };
        if root.is_hole() {
            return Err(corrupt(Corrupt::Shape { what: "object set", why: "its root is a hole" }));
        }
        let bookmark = Bookmark { objset: id, object: ObjNum(0), level: Level(0), blkid: BlkId(0) };
        let block = cache.read(root, &bookmark)?;
        let phys = ObjsetPhys::decode(&block).map_err(corrupt)?;
        let home = Home { cache, id };
        let meta = Dnode::new(home.clone(), ObjNum(0), phys.meta_dnode.clone());
        Ok(Objset(Arc::new(Inner { home, root: *root, phys, meta })))
    }

    /// The dataset's object number; 0 for the MOS (`dmu_objset_id`).
    pub fn id(&self) -> u64 {
        self.0.home.id
    }

    /// What it holds (`os_type`).
    pub fn kind(&self) -> ObjsetKind {
        self.0.phys.kind
    }

    /// The object set as stored.
    pub fn phys(&self) -> &ObjsetPhys {
        &self.0.phys
    }

    /// The pointer that it was opened from (`os_rootbp`).
    pub fn root_bp(&self) -> &Blkptr {
        &self.0.root
    }

    /// The cache that its blocks are read through.
    pub fn cache(&self) -> &Arc<Cache> {
        &self.0.home.cache
    }

    /// The object whose data are the dnodes (`DMU_META_DNODE`).
    pub fn meta_dnode(&self) -> &Dnode {
        &self.0.meta
    }

    fn corrupt(&self, object: ObjNum, source: Corrupt) -> Error {
        Error::Corrupt { objset: self.0.home.id, object, source }
    }

    /// Dnodes in one block of the meta dnode.
    fn dnodes_per_block(&self) -> u64 {
        u64::from(self.0.phys.meta_dnode.datablksz) >> DNODE_SHIFT
    }

    /// A block of dnodes. Of a locked dataset's all but the encrypted bonuses is in the clear: such a block comes
    /// with the reason why those can't be had.
    fn dnode_block(&self, blkid: BlkId) -> Result<Option<(Block, Option<Error>)>> {
        match self.meta_dnode().block(blkid) {
            Err(locked @ Error::Read(zio::Error::Key { .. })) => {
                Ok(self.meta_dnode().block_undecrypted(blkid)?.map(|b| (b, Some(locked))))
            }
            r => Ok(r?.map(|b| (b, None))),
        }
    }

    /// Opens an object (`dnode_hold`). In a dataset whose key is not loaded that works for objects that hold no secret
    /// in their bonus.
    ///
    /// # Errors
    /// [`Error::NoSuchObject`] for a free slot, or one inside a larger dnode; otherwise as a read fails.
    pub fn dnode(&self, object: ObjNum) -> Result<Dnode> {
        self.hold(object, false)
    }

    /// As [`Objset::dnode`], also for objects whose bonus can't be decrypted, for want of the key: theirs is ciphertext.
    ///
    /// # Errors
    /// As [`Objset::dnode`].
    pub fn dnode_undecrypted(&self, object: ObjNum) -> Result<Dnode> {
        self.hold(object, true)
    }

    fn hold(&self, object: ObjNum, undecrypted: bool) -> Result<Dnode> {
        let missing = || Error::NoSuchObject { objset: self.0.home.id, object };
        let special = match object {
            DMU_USERUSED_OBJECT => Some(&self.0.phys.userused),
            DMU_GROUPUSED_OBJECT => Some(&self.0.phys.groupused),
            DMU_PROJECTUSED_OBJECT => Some(&self.0.phys.projectused),
            _ => None,
        };
        if let Some(phys) = special {
            return Ok(Dnode::new(self.0.home.clone(), object, phys.clone().ok_or_else(missing)?));
        }
        if object.0 == 0 || object.0 >= DN_MAX_OBJECT {
            return Err(missing());
        }
        let per = self.dnodes_per_block();
        let (block, locked) = self.dnode_block(BlkId(object.0 / per))?.ok_or_else(missing)?;
        let target = (object.0 % per) as usize;
        let mut slot = 0;
        while slot < target {
            slot += allocated_slots(&block[slot * DNODE_MIN_SIZE..]).map_err(|e| self.corrupt(object, e))?;
        }
        if slot != target {
            return Err(missing());
        }
        let phys = DnodePhys::decode(&block[target * DNODE_MIN_SIZE..])
            .map_err(|e| self.corrupt(object, e))?
            .ok_or_else(missing)?;
        if let Some(locked) = locked.filter(|_| phys.bonus_kind.is_encrypted() && !undecrypted) {
            return Err(locked);
        }
        Ok(Dnode::new(self.0.home.clone(), object, phys))
    }

    /// The allocated objects from `first` on, in order.
    pub fn objects(&self, first: ObjNum) -> Objects {
        Objects { os: self.clone(), next: first.0.max(1), met: Met::default(), undecrypted: false }
    }

    /// As [`Objset::objects`], with those whose bonus can't be decrypted, for want of the key: theirs is ciphertext.
    pub fn objects_undecrypted(&self, first: ObjNum) -> Objects {
        Objects { undecrypted: true, ..self.objects(first) }
    }
}

/// Slots taken at the head of `raw`, counting a free one as one.
fn allocated_slots(raw: &[u8]) -> ondisk::Result<usize> {
    if raw[0] == 0 { Ok(1) } else { DnodePhys::slots(raw) }
}

/// Iterator over the allocated objects of an object set.
///
/// After an error it goes on behind the block that failed, so that a rescue can skip damage.
pub struct Objects {
    os: Objset,
    next: u64,
    met: Met,
    undecrypted: bool,
}

impl Objects {
    /// Refuses a block of dnodes that was met at another place, or lies in its pointer, where none can be.
    fn check_new(&mut self, blkid: BlkId) -> Result<()> {
        let bp = self.os.meta_dnode().bp(Level(0), blkid)?;
        let why = "a block of dnodes lies in its pointer";
        let embedded =
            matches!(bp.body, Body::Embedded(_)).then_some(Corrupt::Shape { what: "object set", why });
        let met = embedded.map_or_else(|| self.met.note(&bp, Level(0), blkid), Err);
        met.map_err(|e| self.os.corrupt(ObjNum(0), e))
    }

    fn step(&mut self) -> Result<Option<Dnode>> {
        let per = self.os.dnodes_per_block();
        loop {
            if self.next >= DN_MAX_OBJECT {
                return Ok(None);
            }
            let from = BlkId(self.next / per);
            let meta = self.os.meta_dnode();
            let Some(blkid) = meta.next_data_block_in(from, &mut self.met)? else { return Ok(None) };
            if blkid.0 >= DN_MAX_OBJECT / per {
                self.next = DN_MAX_OBJECT;
                let value = blkid.0;
                return Err(self
                    .os
                    .corrupt(ObjNum(0), Corrupt::Range { what: "object set", field: "block", value }));
            }
            let base = blkid.0 * per;
            self.check_new(blkid).inspect_err(|_| self.next = base + per)?;
            let read = self.os.dnode_block(blkid).inspect_err(|_| self.next = base + per)?;
            let Some((block, locked)) = read else {
                self.next = base + per;
                continue;
            };
            let mut slot = 0;
            while slot < per {
                let at = slot as usize * DNODE_MIN_SIZE;
                let object = ObjNum(base + slot);
                let taken = allocated_slots(&block[at..]).map_err(|e| {
                    self.next = base + per;
                    self.os.corrupt(object, e)
                })?;
                if block[at] != 0 && object.0 >= self.next {
                    self.next = object.0 + taken as u64;
                    let phys = DnodePhys::decode(&block[at..]).map_err(|e| self.os.corrupt(object, e))?;
                    if let Some(phys) = phys {
                        let hidden = phys.bonus_kind.is_encrypted() && !self.undecrypted;
                        if let Some(locked) = locked.filter(|_| hidden) {
                            return Err(locked);
                        }
                        return Ok(Some(Dnode::new(self.os.0.home.clone(), object, phys)));
                    }
                }
                slot += taken as u64;
            }
            self.next = base + per;
        }
    }
}

impl Iterator for Objects {
    type Item = Result<Dnode>;

    fn next(&mut self) -> Option<Self::Item> {
        let before = self.next;
        let r = self.step().transpose();
        if matches!(r, Some(Err(_))) && self.next == before {
            // The way to the block failed: nothing beyond can be found by going on from here.
            self.next = u64::MAX;
            return r;
        }
        r
    }
}
