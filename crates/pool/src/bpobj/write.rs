//! Writing lists of block pointers.
//!
//! # Theory
//! A list lives long, and is mostly moved as a whole. So a list may have other lists as sub-lists.
//! Each is an object, and the parent's sums include its sums. Small lists are copied instead, so
//! that lists don't nest deeply.
//!
//! Entries are freed from the end, where they can be cut off. The list's own come first, then those
//! of the last sub-list, up to the limit of the txg.
//!
//! Most lists of a deadlist are empty. With the feature `empty_bpobj` they all are one object,
//! whose users the feature counts.

use super::{Space, space_of};
use crate::feature::known;
use crate::{Error, Mos, Result};
use dmu::{Dnode, NewObject, Tx};
use ondisk::blkptr::{BLKPTR_SIZE, Body};
use ondisk::bpobj::{BPOBJ_ENTRY_SIZE, BpobjPhys};
use ondisk::version::{SPA_VERSION_BPOBJ_ACCOUNT, SPA_VERSION_DEADLISTS};
use ondisk::{Blkptr, Corrupt, DmuType, ObjNum, SPA_OLD_MAXBLOCKSIZE, mos};

/// The feature `empty_bpobj`, which counts the users of the shared empty list.
const EMPTY: &str = "com.delphix:empty_bpobj";
/// The feature `livelist`. If it is active, lists count their freed entries.
const LIVELIST: &str = "com.delphix:livelist";
/// Least bytes of a header with sub-lists (`BPOBJ_SIZE_V2`).
const SIZE_WITH_SUBOBJS: usize = 48;
/// Bytes of a header without sub-lists (`BPOBJ_SIZE_V1`), and of one without compressed and
/// uncompressed sums (`BPOBJ_SIZE_V0`).
const SIZE_WITHOUT_SUBOBJS: usize = 32;
const SIZE_WITHOUT_COMP: usize = 16;
/// Deepest nesting of lists that is followed.
const MAX_DEPTH: usize = 64;

/// The deflated bytes of a block (`bp_get_dsize_sync`).
pub type Dsize<'a> = &'a dyn Fn(&Blkptr) -> u64;

/// A list that is being changed: its object and header.
struct List {
    dn: Dnode,
    phys: BpobjPhys,
}

impl List {
    fn open(mos: &Mos, object: ObjNum) -> Result<List> {
        let dn = mos.objset().dnode(object)?;
        let shape = |why| Error::Corrupt { object, source: Corrupt::Shape { what: "bpobj", why } };
        if dn.kind() != DmuType::BPOBJ {
            return Err(shape("it is another kind of object"));
        }
        let phys = BpobjPhys::decode(dn.bonus()).map_err(Error::corrupt(object))?;
        if phys.num_blkptrs > dn.max_size() / BPOBJ_ENTRY_SIZE {
            return Err(shape("it has fewer pointers than it says"));
        }
        Ok(List { dn, phys })
    }

    fn store(&self, tx: &Tx) -> Result<()> {
        let mut raw = self.phys.encode(true);
        raw.truncate(self.dn.bonus().len());
        Ok(self.dn.set_bonus(tx, DmuType::BPOBJ_HDR, &raw)?)
    }

    fn is_empty(&self) -> bool {
        self.phys.num_blkptrs == 0 && self.phys.num_subobjs == 0
    }

    fn space(&self) -> Space {
        Space { used: self.phys.bytes, comp: self.phys.comp, uncomp: self.phys.uncomp }
    }

    fn add(&mut self, space: Space) {
        self.phys.bytes = self.phys.bytes.wrapping_add(space.used);
        self.phys.comp = self.phys.comp.wrapping_add(space.comp);
        self.phys.uncomp = self.phys.uncomp.wrapping_add(space.uncomp);
    }

    fn sub(&mut self, space: Space) {
        self.phys.bytes = self.phys.bytes.saturating_sub(space.used);
        self.phys.comp = self.phys.comp.saturating_sub(space.comp);
        self.phys.uncomp = self.phys.uncomp.saturating_sub(space.uncomp);
    }

    /// True if an object has at most one block.
    fn is_small(dn: &Dnode) -> bool {
        dn.max_size() <= dn.block_size()
    }

    /// Appends entries in their stored form.
    fn append_raw(&mut self, tx: &Tx, raw: &[u8]) -> Result<()> {
        self.dn.write_at(tx, self.phys.num_blkptrs * BPOBJ_ENTRY_SIZE, raw)?;
        self.phys.num_blkptrs += raw.len() as u64 / BPOBJ_ENTRY_SIZE;
        Ok(())
    }

    /// Appends the numbers of sub-lists.
    fn append_subobjs(&mut self, mos: &Mos, tx: &Tx, subobjs: &[u64]) -> Result<()> {
        if self.phys.subobjs == 0 {
            let block_size = SPA_OLD_MAXBLOCKSIZE as u32;
            let spec = NewObject { block_size, ..NewObject::new(DmuType::BPOBJ_SUBOBJ) };
            self.phys.subobjs = mos.objset().create_object(tx, &spec)?.object().0;
        }
        mos.write_words(tx, ObjNum(self.phys.subobjs), self.phys.num_subobjs, subobjs)?;
        self.phys.num_subobjs += subobjs.len() as u64;
        Ok(())
    }
}

/// An entry in its stored form, without the fields that a free does not need, so that lists
/// compress well (`bpobj_enqueue`).
fn entry(bp: &Blkptr, freed: bool) -> [u8; BLKPTR_SIZE] {
    let raw = bp.encode();
    let mut out = [0; BLKPTR_SIZE];
    let mut keep = |words: std::ops::Range<usize>| {
        out[words.start * 8..words.end * 8].copy_from_slice(&raw[words.start * 8..words.end * 8]);
    };
    match &bp.body {
        Body::Embedded(_) => {
            keep(6..7);
            keep(10..11);
        }
        Body::Stored(s) if s.dedup => {
            keep(0..11);
            keep(12..16);
        }
        _ => keep(0..11),
    }
    out[11 * 8] = freed.into();
    out
}

impl Mos {
    /// Creates a list (`bpobj_alloc`).
    ///
    /// # Errors
    /// The errors of [changing](Error#changing).
    pub fn create_bpobj(&self, tx: &Tx) -> Result<ObjNum> {
        let livelists = match self.feature_refcount(known(LIVELIST)) {
            Err(Error::Missing { .. }) => false,
            n => n?.is_some_and(|n| n > 0),
        };
        let mut header = BpobjPhys::default().encode(livelists);
        match self.version() {
            v if v < SPA_VERSION_BPOBJ_ACCOUNT => header.truncate(SIZE_WITHOUT_COMP),
            v if v < SPA_VERSION_DEADLISTS => header.truncate(SIZE_WITHOUT_SUBOBJS),
            _ => {}
        }
        let spec = NewObject { block_size: SPA_OLD_MAXBLOCKSIZE as u32, ..NewObject::new(DmuType::BPOBJ) };
        let spec = spec.with_bonus(DmuType::BPOBJ_HDR, header);
        Ok(self.objset().create_object(tx, &spec)?.object())
    }

    /// Empty lists that must be replaced before anything is added (`bpobj_alloc_empty`).
    ///
    /// With the feature `empty_bpobj` all of them are the shared one.
    ///
    /// # Errors
    /// The errors of [counting features](Error#counting-features).
    pub(crate) fn create_empty_bpobjs(&self, tx: &Tx, count: usize) -> Result<Vec<ObjNum>> {
        if count == 0 {
            return Ok(Vec::new());
        }
        if !self.feature_enabled(EMPTY)? {
            return (0..count).map(|_| self.create_bpobj(tx)).collect();
        }
        let shared = match self.dir(mos::EMPTY_BPOBJ)? {
            Some(shared) => shared,
            None => {
                let new = self.create_bpobj(tx)?;
                self.link(tx, mos::EMPTY_BPOBJ, new)?;
                new
            }
        };
        self.feature_add(tx, known(EMPTY), count as u64)?;
        Ok(vec![shared; count])
    }

    /// True for the shared empty list.
    ///
    /// # Errors
    /// The errors of [reading](Error#reading).
    pub fn is_empty_bpobj(&self, object: ObjNum) -> Result<bool> {
        Ok(self.dir(mos::EMPTY_BPOBJ)? == Some(object))
    }

    /// Removes users of the shared empty list. The last one destroys it (`bpobj_decr_empty`).
    pub(crate) fn release_empty_bpobj(&self, tx: &Tx, users: u64) -> Result<()> {
        if self.feature_sub(tx, known(EMPTY), users)? == 0
            && let Some(shared) = self.dir(mos::EMPTY_BPOBJ)?
        {
            self.unlink(tx, mos::EMPTY_BPOBJ)?;
            self.objset().free_object(tx, shared)?;
        }
        Ok(())
    }

    /// Destroys a list and its sub-lists, but not the blocks in them (`bpobj_free`). Of the shared
    /// empty list, removes a user.
    ///
    /// # Errors
    /// The errors of [counting features](Error#counting-features). [`Error::Object`] also if lists
    /// contain each other.
    pub fn destroy_bpobj(&self, tx: &Tx, object: ObjNum) -> Result<()> {
        if self.is_empty_bpobj(object)? {
            return self.release_empty_bpobj(tx, 1);
        }
        let mut left = vec![object];
        while let Some(object) = left.pop() {
            let list = List::open(self, object)?;
            left.extend(self.bpobj_subobjs(object, &list.phys)?);
            if list.phys.subobjs != 0 {
                self.objset().free_object(tx, ObjNum(list.phys.subobjs))?;
            }
            // If lists contain each other, the second visit finds the object freed, and can't open
            // it.
            self.objset().free_object(tx, object)?;
        }
        Ok(())
    }

    /// Appends block pointers, none of them a hole, to a list (`bpobj_enqueue`).
    ///
    /// In a livelist, `freed` marks them as frees.
    ///
    /// # Errors
    /// The errors of [changing](Error#changing). [`Error::Corrupt`] also if the object is no list.
    pub fn bpobj_append(
        &self,
        tx: &Tx,
        object: ObjNum,
        bps: &[Blkptr],
        freed: bool,
        dsize: Dsize<'_>,
    ) -> Result<()> {
        if bps.is_empty() {
            return Ok(());
        }
        let mut list = List::open(self, object)?;
        let raw: Vec<u8> = bps.iter().flat_map(|bp| entry(bp, freed)).collect();
        list.append_raw(tx, &raw)?;
        let mut space = Space::default();
        bps.iter().for_each(|bp| space.add(space_of(bp, dsize)));
        if freed {
            list.sub(space);
            list.phys.num_freed += bps.len() as u64;
        } else {
            list.add(space);
        }
        list.store(tx)
    }

    /// Moves a whole list into another (`bpobj_enqueue_subobj`). The list itself is gone then.
    ///
    /// A small list is copied. A large one becomes a sub-list.
    ///
    /// # Errors
    /// * The errors of [counting features](Error#counting-features). [`Error::Corrupt`] also if one
    ///   of the objects is no list.
    /// * [`Error::Unsupported`]: the pool was too old for sub-lists when `into` was created.
    pub fn bpobj_append_list(&self, tx: &Tx, into: ObjNum, sub: ObjNum) -> Result<()> {
        if self.is_empty_bpobj(sub)? {
            return self.release_empty_bpobj(tx, 1);
        }
        let mut list = List::open(self, sub)?;
        if list.is_empty() {
            return self.destroy_bpobj(tx, sub);
        }
        let mut to = List::open(self, into)?;
        if to.dn.bonus().len() < SIZE_WITH_SUBOBJS {
            return Err(Error::Unsupported { what: "lists of blocks without sub-lists" });
        }
        to.add(list.space());
        let nested = self.bpobj_subobjs(sub, &list.phys)?;
        let array = (list.phys.subobjs != 0).then_some(ObjNum(list.phys.subobjs));
        let array_small = match array {
            Some(a) => List::is_small(&self.objset().dnode(a)?),
            None => true,
        };
        if let Some(array) = array.filter(|_| array_small) {
            let numbers: Vec<u64> = nested.iter().map(|o| o.0).collect();
            to.append_subobjs(self, tx, &numbers)?;
            self.objset().free_object(tx, array)?;
            (list.phys.subobjs, list.phys.num_subobjs) = (0, 0);
        }
        if array_small && List::is_small(&list.dn) {
            let mut raw = vec![0; (list.phys.num_blkptrs * BPOBJ_ENTRY_SIZE) as usize];
            list.dn.read_at(0, &mut raw)?;
            to.append_raw(tx, &raw)?;
            to.phys.num_freed += list.phys.num_freed;
            self.objset().free_object(tx, sub)?;
        } else {
            list.store(tx)?;
            to.append_subobjs(self, tx, &[sub.0])?;
        }
        to.store(tx)
    }

    /// Takes up to `most` entries off the end of a list, and passes each to `each` with its mark
    /// (`bpobj_iterate`).
    ///
    /// Sub-lists that become empty are destroyed. Returns how many entries were taken, and whether
    /// none is left.
    ///
    /// # Errors
    /// After an error, entries that `each` got may still be on the list.
    ///
    /// * The errors of [changing](Error#changing). [`Error::Corrupt`] also if lists contain each
    ///   other.
    /// * The errors of `each`.
    pub fn bpobj_take(
        &self,
        tx: &Tx,
        object: ObjNum,
        most: u64,
        dsize: Dsize<'_>,
        each: &mut dyn FnMut(&Blkptr, bool) -> Result<()>,
    ) -> Result<(u64, bool)> {
        let mut path = vec![List::open(self, object)?];
        let mut left = most;
        loop {
            let list = path.last_mut().expect("the list itself stays");
            if list.phys.num_blkptrs > 0 {
                if left == 0 {
                    return Ok((most, false));
                }
                let (taken, space) = take_own(tx, list, left, dsize, each)?;
                left -= taken;
                for list in &mut path {
                    list.sub(space);
                    list.store(tx)?;
                }
            } else if list.phys.num_subobjs > 0 {
                let mut last = [0; 8];
                let array = self.objset().dnode(ObjNum(list.phys.subobjs))?;
                array.read_at((list.phys.num_subobjs - 1) * 8, &mut last)?;
                let sub = ObjNum(u64::from_le_bytes(last));
                if path.len() >= MAX_DEPTH || path.iter().any(|l| l.dn.object() == sub) {
                    let source = Corrupt::Shape { what: "bpobj", why: "its sub-lists form a loop" };
                    return Err(Error::Corrupt { object: sub, source });
                }
                path.push(List::open(self, sub)?);
            } else {
                if path.len() == 1 {
                    return Ok((most - left, true));
                }
                let done = path.pop().expect("there are two");
                let parent = path.last_mut().expect("there were two");
                parent.phys.num_subobjs -= 1;
                let array = self.objset().dnode(ObjNum(parent.phys.subobjs))?;
                array.free_range(tx, parent.phys.num_subobjs * 8, 8)?;
                parent.store(tx)?;
                if done.phys.subobjs != 0 {
                    self.objset().free_object(tx, ObjNum(done.phys.subobjs))?;
                }
                self.objset().free_object(tx, done.dn.object())?;
            }
        }
    }
}

/// Takes up to `most` of a list's own entries off its end. The caller reduces the sums and stores
/// the header.
fn take_own(
    tx: &Tx,
    list: &mut List,
    most: u64,
    dsize: Dsize<'_>,
    each: &mut dyn FnMut(&Blkptr, bool) -> Result<()>,
) -> Result<(u64, Space)> {
    let bad = Error::corrupt(list.dn.object());
    // One block at a time, so that the read is bounded.
    let per = (list.dn.block_size() / BPOBJ_ENTRY_SIZE).max(1);
    let first = (list.phys.num_blkptrs - 1) / per * per;
    let taken = (list.phys.num_blkptrs - first).min(most);
    let first = list.phys.num_blkptrs - taken;
    let mut raw = vec![0; (taken * BPOBJ_ENTRY_SIZE) as usize];
    list.dn.read_at(first * BPOBJ_ENTRY_SIZE, &mut raw)?;
    let (mut space, mut undone) = (Space::default(), Space::default());
    for raw in raw.as_chunks::<BLKPTR_SIZE>().0.iter().rev() {
        let freed = raw[11 * 8] & 1 != 0;
        let bp = Blkptr::decode(raw).map_err(&bad)?;
        each(&bp, freed)?;
        let sum = if freed { &mut undone } else { &mut space };
        sum.add(space_of(&bp, dsize));
        list.phys.num_freed = list.phys.num_freed.saturating_sub(freed.into());
    }
    list.phys.num_blkptrs = first;
    list.dn.free_range(tx, first * BPOBJ_ENTRY_SIZE, u64::MAX)?;
    // Entries that are marked as freed counted against the sums.
    space.used = space.used.wrapping_sub(undone.used);
    space.comp = space.comp.wrapping_sub(undone.comp);
    space.uncomp = space.uncomp.wrapping_sub(undone.uncomp);
    Ok((taken, space))
}
