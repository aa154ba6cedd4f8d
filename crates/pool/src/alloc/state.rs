//! The state of the allocator, behind its lock.

use super::group::{Class, ClassKind, Group, GroupId, NO_VDEV};
use super::live::{LiveMetaslab, TXG_SIZE, Weight, slot};
use crate::Mos;
use crate::metaslab::{Class as VdevClass, TopVdev};
use crate::range::RangeSet;
use crate::space::EMBEDDED_SLOG_MIN_MS;
use arc::Cache;
use ondisk::spacemap::SPACE_MAP_HISTOGRAM_SIZE;
use ondisk::{Asize, Blkptr, DmuType, Dva, Offset, Txg, VdevId};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};
use vdev::Tree;
use zio::{ClassHint, NoSpace, Want};

/// Percentage of the special class that only metadata may fill
/// (`zfs_special_class_metadata_reserve_pct`).
const SPECIAL_RESERVE_PERCENT: u64 = 25;

/// The vdev and number of a metaslab.
pub(super) type MetaslabKey = (VdevId, u32);

/// The changes that a sync pass writes to the space map of a metaslab.
#[derive(Debug)]
pub(super) struct Changes {
    pub(super) place: MetaslabKey,
    /// Changes that only the logs of an imported pool held: allocations and frees.
    pub(super) unflushed: (RangeSet, RangeSet),
    pub(super) allocs: RangeSet,
    pub(super) frees: RangeSet,
    /// The histogram of free ranges after all these changes, in units of the map.
    pub(super) histogram: [u64; SPACE_MAP_HISTOGRAM_SIZE],
}

/// A top-level vdev with its metaslabs.
#[derive(Debug)]
pub(super) struct LiveVdev {
    pub(super) top: TopVdev,
    pub(super) metaslabs: Vec<LiveMetaslab>,
    pub(super) group: GroupId,
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) vdevs: BTreeMap<VdevId, LiveVdev>,
    pub(super) groups: Vec<Group>,
    pub(super) classes: BTreeMap<ClassKind, Class>,
    /// The MOS that was synced last, from which maps are read. The cache refers to the allocator,
    /// so this reference must not keep the cache alive.
    pub(super) view: Option<(Weak<Cache>, Blkptr)>,
    /// The metaslabs that each txg changes.
    pub(super) dirty: [BTreeSet<MetaslabKey>; TXG_SIZE],
    /// Metaslabs with changes in the syncing txg, or with deferred frees.
    pub(super) pending: BTreeSet<MetaslabKey>,
    /// Metaslabs whose maps the last txg with changes wrote after its first pass.
    pub(super) late: BTreeSet<MetaslabKey>,
    /// The vdevs of an imported pool, if logs hold some of its changes.
    pub(super) logged: Option<Vec<TopVdev>>,
    /// The metaslabs with such changes.
    pub(super) to_fold: BTreeSet<MetaslabKey>,
    /// Frees of space that was not allocated.
    pub(super) bad_frees: u64,
    /// A metaslab to load before the request can be answered.
    pub(super) wanted: Option<MetaslabKey>,
    /// Metaslabs whose maps could not be read since the last txg.
    pub(super) resting: BTreeSet<MetaslabKey>,
    /// The maps of whole vdevs.
    pub(super) side: super::vdev_maps::VdevMaps,
    /// Metaslabs that are disabled.
    pub(super) disabled: super::disabled::DisabledMetaslabs,
    /// True if space that becomes free is recorded.
    pub(super) notes_frees: bool,
}

/// True for a log block. A commit that gets none waits for its txg instead.
pub(super) fn is_log(want: &Want) -> bool {
    matches!(want.class, ClassHint::Log { .. })
}

impl State {
    pub(super) fn new() -> Self {
        Self {
            vdevs: BTreeMap::new(),
            groups: Vec::new(),
            classes: ClassKind::ALL.into_iter().map(|c| (c, Class::default())).collect(),
            view: None,
            dirty: Default::default(),
            pending: BTreeSet::new(),
            late: BTreeSet::new(),
            logged: None,
            to_fold: BTreeSet::new(),
            bad_frees: 0,
            wanted: None,
            resting: BTreeSet::new(),
            side: Default::default(),
            disabled: Default::default(),
            notes_frees: false,
        }
    }

    fn class(&mut self, kind: ClassKind) -> &mut Class {
        self.classes.get_mut(&kind).expect("every class is there")
    }

    fn add_group(&mut self, vdev: VdevId, class: ClassKind, data_disks: u64, passive: bool) -> GroupId {
        let id = GroupId(self.groups.len());
        self.groups.push(Group::new(vdev, class, data_disks, passive));
        if !passive {
            self.class(class).groups.push(id);
        }
        id
    }

    /// Adds a vdev whose space is all free, as far as known.
    pub(super) fn add_vdev(&mut self, top: &TopVdev) {
        let class = match top.class {
            VdevClass::Normal => ClassKind::Normal,
            VdevClass::Log => ClassKind::Log,
            VdevClass::Special => ClassKind::Special,
            VdevClass::Dedup => ClassKind::Dedup,
        };
        let group = self.add_group(top.id, class, top.data_disks, top.non_allocating);
        let metaslabs = (0..top.ms_count()).map(|id| {
            let (start, size) = top.metaslab(id);
            LiveMetaslab::new(start, size, top.ashift.0, group)
        });
        let mut vdev = LiveVdev { top: *top, metaslabs: metaslabs.collect(), group };
        for (id, ms) in vdev.metaslabs.iter_mut().enumerate() {
            self.groups[group.0].add(id as u32, ms);
        }
        let new = self.vdevs.insert(top.id, vdev);
        assert!(new.is_none(), "vdev {} is added once", top.id);
    }

    /// Adds the new metaslabs of a vdev. The one that is lent to logs stays the same.
    pub(super) fn grow_vdev(&mut self, top: &TopVdev) {
        let vdev = self.vdevs.get_mut(&top.id).expect("a vdev that grows is there");
        let group = vdev.group;
        for id in vdev.metaslabs.len() as u64..top.ms_count() {
            let (start, size) = top.metaslab(id);
            let mut ms = LiveMetaslab::new(start, size, top.ashift.0, group);
            self.groups[group.0].add(id as u32, &mut ms);
            vdev.metaslabs.push(ms);
        }
        vdev.top = *top;
    }

    /// Lends the emptiest metaslab of a large normal vdev to intent logs (`vdev_metaslab_init`).
    ///
    /// The sums of the vdev must be known.
    pub(super) fn lend_log_metaslab(&mut self, id: VdevId) {
        let vdev = &self.vdevs[&id];
        if vdev.top.class != VdevClass::Normal || vdev.top.ms_count() <= EMBEDDED_SLOG_MIN_MS {
            return;
        }
        let Some(ms) = (0..vdev.metaslabs.len()).min_by_key(|i| vdev.metaslabs[*i].allocated) else { return };
        let passive = self.groups[vdev.group.0].passive;
        let log = self.add_group(id, ClassKind::EmbeddedLog, vdev.top.data_disks, passive);
        let vdev = self.vdevs.get_mut(&id).expect("it was there");
        let lent = &mut vdev.metaslabs[ms];
        self.groups[lent.group.0].remove(ms as u32, lent);
        lent.group = log;
        self.groups[log.0].add(ms as u32, lent);
    }

    pub(super) fn set_allocating(&mut self, vdev: VdevId, allocating: bool) {
        for (i, group) in self.groups.iter_mut().enumerate().filter(|(_, g)| g.vdev == vdev) {
            if group.passive != allocating {
                continue;
            }
            group.passive = !allocating;
            let class = self.classes.get_mut(&group.class).expect("every class is there");
            match allocating {
                true => class.groups.push(GroupId(i)),
                false => class.groups.retain(|g| *g != GroupId(i)),
            }
            class.groups.sort_unstable();
            class.turn(0);
        }
    }

    /// True if a vdev has no allocated space, and no change of it waits for a txg.
    pub(super) fn is_unused(&self, vdev: VdevId) -> bool {
        let waits = self.dirty.iter().chain([&self.pending]).flatten().any(|(v, _)| *v == vdev);
        !waits && self.vdevs.get(&vdev).is_some_and(|v| v.metaslabs.iter().all(|ms| ms.taken() == 0))
    }

    /// Removes a vdev without allocated space.
    ///
    /// Its metaslab groups stay, empty and without a vdev, because those after them are known by
    /// their indices.
    pub(super) fn remove_vdev(&mut self, vdev: VdevId) {
        self.set_allocating(vdev, false);
        self.vdevs.remove(&vdev);
        for group in self.groups.iter_mut().filter(|group| group.vdev == vdev) {
            *group = Group::new(NO_VDEV, group.class, group.data_disks, true);
        }
        let Self { pending, late, to_fold, resting, .. } = self;
        for places in self.dirty.iter_mut().chain([pending, late, to_fold, resting]) {
            places.retain(|(v, _)| *v != vdev);
        }
    }

    pub(super) fn metaslab(&mut self, (vdev, ms): MetaslabKey) -> &mut LiveMetaslab {
        let vdev = self.vdevs.get_mut(&vdev).expect("places are of vdevs that are there");
        &mut vdev.metaslabs[ms as usize]
    }

    /// The metaslab that holds a whole range. `None` if there is none.
    pub(super) fn find(&self, vdev: VdevId, start: u64, size: u64) -> Option<MetaslabKey> {
        let v = self.vdevs.get(&vdev)?;
        let id = start.checked_shr(v.top.ms_shift.into())?;
        let ms = v.metaslabs.get(usize::try_from(id).ok()?)?;
        let unit = (1u64 << v.top.ashift.0) - 1;
        let inside = start >= ms.start && start.checked_add(size)? <= ms.end();
        (inside && size > 0 && (start | size) & unit == 0).then_some((vdev, id as u32))
    }

    // The classes that a block may go to, the best first (`spa_preferred_class`, `zio_alloc_zil`).
    fn preferences(&self, want: &Want) -> [Option<ClassKind>; 3] {
        let has = |c: ClassKind| !self.classes[&c].groups.is_empty();
        let small = match want.class {
            ClassHint::Log { devices } => {
                let first = devices.then_some(ClassKind::Log);
                let last = (!self.is_scarce()).then_some(ClassKind::Normal);
                return [first, Some(ClassKind::EmbeddedLog), last];
            }
            ClassHint::Dedup => {
                let first = if has(ClassKind::Dedup) { ClassKind::Dedup } else { ClassKind::Special };
                return [Some(first), Some(ClassKind::Normal), None];
            }
            ClassHint::Normal { special_small_blocks } => special_small_blocks,
        };
        let metadata = want.level.0 > 0 || want.kind.is_metadata();
        let is_small = want.kind == DmuType::PLAIN_FILE_CONTENTS && want.psize.0 <= small;
        let special = metadata || is_small && self.special_has_room();
        [special.then_some(ClassKind::Special), Some(ClassKind::Normal), None]
    }

    fn special_has_room(&self) -> bool {
        let (alloc, space) = self.class_space(ClassKind::Special);
        u128::from(alloc) * 100 < u128::from(space) * u128::from(100 - SPECIAL_RESERVE_PERCENT)
    }

    /// Takes space. If [`State::wanted`] is set afterwards, nothing was taken, and that metaslab
    /// must be loaded first.
    pub(super) fn allocate(&mut self, tree: &Tree, want: &Want) -> Result<[Option<Dva>; 3], NoSpace> {
        match self.allocate_free(tree, want) {
            // A pool that stops for lack of space is worse than one that can't be rewound for two
            // txgs. The intent log can wait.
            Err(NoSpace) if self.may_release(want) && self.release_deferred() => {
                self.allocate_free(tree, want)
            }
            done => done,
        }
    }

    /// True if only freed space that is not reusable yet is left. Metaslabs that are to be loaded
    /// or are disabled come first.
    fn may_release(&self, want: &Want) -> bool {
        self.wanted.is_none() && !is_log(want) && !self.disabled.any()
    }

    /// Makes all space usable that was freed before the syncing txg. True if there was any.
    ///
    /// The last uberblock does not reach it. Older ones may.
    fn release_deferred(&mut self) -> bool {
        let mut any = false;
        for place in self.pending.clone() {
            let ms = self.metaslab(place);
            if ms.broken || ms.deferred() == 0 {
                continue;
            }
            any = true;
            ms.release();
            let group = ms.group;
            let ms = &mut self.vdevs.get_mut(&place.0).expect("it was there").metaslabs[place.1 as usize];
            self.groups[group.0].count(ms);
            if ms.activated.is_none() || ms.reckon_weight() == Weight::NONE {
                self.groups[group.0].reweigh(place.1, ms);
            }
        }
        any
    }

    fn allocate_free(&mut self, tree: &Tree, want: &Want) -> Result<[Option<Dva>; 3], NoSpace> {
        for class in self.preferences(want).into_iter().flatten() {
            let mut got: [Option<Dva>; 3] = [None; 3];
            let copies = usize::from(want.copies.clamp(1, 3));
            let all = (0..copies).all(|copy| {
                got[copy] = self.allocate_copy(tree, class, want, &got[..copy]);
                got[copy].is_some()
            });
            if all {
                return Ok(got);
            }
            for dva in got.iter().flatten() {
                self.unallocate(dva.vdev, dva.offset.0, dva.asize.0, want.txg);
            }
            if self.wanted.is_some() {
                break;
            }
        }
        Err(NoSpace)
    }

    /// Takes space for one copy (`metaslab_alloc_dva`). `others` are the copies before it.
    fn allocate_copy(
        &mut self,
        tree: &Tree,
        kind: ClassKind,
        want: &Want,
        others: &[Option<Dva>],
    ) -> Option<Dva> {
        let class = &self.classes[&kind];
        let n = class.groups.len();
        if n == 0 {
            return None;
        }
        let last = others.last().copied().flatten();
        let after = last.and_then(|d| class.groups.iter().position(|g| self.groups[g.0].vdev == d.vdev));
        let first = after.map_or(class.rotor, |at| at + 1) % n;
        let log = is_log(want);
        let least = self.vdevs.values().map(|v| 1u64 << v.top.ashift.0).min().unwrap_or(0);
        let tries_hard = want.gang_header || log || want.psize.0 <= least;
        for try_hard in [false, true].into_iter().take(1 + usize::from(tries_hard)) {
            for i in 0..n {
                let at = (first + i) % n;
                let group = self.classes[&kind].groups[at];
                let vdev = self.groups[group.0].vdev;
                let asize = tree.psize_to_asize(vdev, want.psize, want.txg).ok();
                // A vdev that has failed takes nothing until its errors are cleared
                // (`vdev_allocatable`).
                let asize = asize.filter(|_| tree.takes_blocks(vdev));
                let found = asize.and_then(|a| self.allocate_in(group, a.0, want.txg, others, try_hard));
                if let (Some(start), Some(asize)) = (found, asize) {
                    self.take_turn(kind, at, asize.0, log);
                    return Some(Dva { vdev, offset: Offset(start), asize: Asize(asize.0), gang: false });
                }
                if self.wanted.is_some() {
                    return None;
                }
                self.class(kind).turn(at + 1);
            }
        }
        None
    }

    /// Counts an allocation of metaslab group number `at` of a class, and passes the turn on.
    fn take_turn(&mut self, kind: ClassKind, at: usize, asize: u64, log: bool) {
        let id = self.classes[&kind].groups[at];
        if self.classes[&kind].aliquot == 0 {
            let (alloc, space) = self.class_space(kind);
            let (mine, whole) = (self.groups[id.0].alloc, self.groups[id.0].space);
            let groups = self.classes[&kind].groups.len() as u128;
            let share = u128::from(whole.saturating_sub(mine)) * groups * 100;
            let percent = share / (u128::from(space.saturating_sub(alloc)) + 1);
            self.groups[id.0].set_bias(percent.min(10_000) as i64);
        }
        let aliquot = self.groups[id.0].aliquot();
        let class = self.class(kind);
        class.aliquot = class.aliquot.saturating_add(asize);
        if log || class.aliquot >= aliquot {
            class.turn(at + 1);
        }
    }

    /// Takes space of one metaslab group (`metaslab_group_alloc`).
    fn allocate_in(
        &mut self,
        group: GroupId,
        asize: u64,
        txg: Txg,
        others: &[Option<Dva>],
        try_hard: bool,
    ) -> Option<u64> {
        let vdev = self.groups[group.0].vdev;
        let shift = self.vdevs[&vdev].top.ms_shift;
        let taken = |id: u32| {
            let at = |d: &Dva| d.vdev == vdev && d.offset.0 >> shift == u64::from(id);
            others.iter().flatten().any(at)
        };
        let copy = others.iter().flatten().filter(|d| d.vdev == vdev).count().min(2);
        loop {
            let (metaslabs, disabled) = (&mut self.vdevs.get_mut(&vdev)?.metaslabs, &self.disabled);
            let g = &mut self.groups[group.0];
            if let Some(id) = g.active(copy).filter(|id| !metaslabs[*id as usize].may_hold(asize)) {
                g.passivate(id, &mut metaslabs[id as usize]);
            }
            let idle = |id: u32| !disabled.holds((vdev, id)) && (try_hard || !taken(id));
            let serves = |id: u32| metaslabs[id as usize].may_hold(asize) && idle(id);
            let id = g.choose(copy, try_hard, serves)?;
            if metaslabs[id as usize].free.is_none() {
                self.wanted = Some((vdev, id));
                return None;
            }
            let ms = &mut self.vdevs.get_mut(&vdev)?.metaslabs[id as usize];
            let g = &mut self.groups[group.0];
            g.activate(copy, id, ms);
            let size = ms.size;
            let free = ms.free.as_mut().expect("it has been loaded");
            match free.allocate(asize, size) {
                Some(start) => {
                    let fresh = ms.allocating[slot(txg)].add(start, start + asize);
                    assert!(fresh, "what was free was not being allocated");
                    g.passivate_spent(id, ms);
                    self.dirty[slot(txg)].insert((vdev, id));
                    return Some(start);
                }
                // The metaslab is loaded now, so it knows that it can't hold so much.
                None => g.passivate(id, ms),
            }
        }
    }

    pub(super) fn free(&mut self, vdev: VdevId, start: u64, size: u64, txg: Txg) {
        let place = self.find(vdev, start, size);
        let Some(place) = place.filter(|p| !self.metaslab(*p).refuses_free(start, start + size)) else {
            self.bad_frees += 1;
            return;
        };
        let fresh = self.metaslab(place).freeing[slot(txg)].add(start, start + size);
        assert!(fresh, "a range that is being freed was refused");
        self.dirty[slot(txg)].insert(place);
    }

    pub(super) fn unallocate(&mut self, vdev: VdevId, start: u64, size: u64, txg: Txg) {
        let place = self.find(vdev, start, size).expect("only what was allocated is given back");
        let ms = self.metaslab(place);
        let held = ms.allocating[slot(txg)].remove(start, start + size);
        assert!(held, "only what was allocated in this group is given back");
        ms.free.as_mut().expect("it was loaded to allocate from").add(start, start + size);
        let group = ms.group;
        let ms = &mut self.vdevs.get_mut(&place.0).expect("it was there").metaslabs[place.1 as usize];
        // A metaslab that was used up can serve again, so an allocation that waits for space must
        // find it.
        if ms.activated.is_none() {
            self.groups[group.0].reweigh(place.1, ms);
        }
    }

    pub(super) fn claim(&mut self, vdev: VdevId, start: u64, size: u64, txg: Txg) -> bool {
        let Some(place) = self.find(vdev, start, size) else { return false };
        assert!(!self.disabled.holds(place), "an import claims before anybody cleans up");
        let ms = self.metaslab(place);
        if !ms.free.as_mut().is_some_and(|f| f.remove(start, start + size)) {
            return false;
        }
        let fresh = ms.allocating[slot(txg)].add(start, start + size);
        assert!(fresh, "what was free was not being allocated");
        self.dirty[slot(txg)].insert(place);
        true
    }

    pub(super) fn is_allocated(&mut self, vdev: VdevId, start: u64, size: u64) -> bool {
        let Some(place) = self.find(vdev, start, size) else { return false };
        let loaded = self.metaslab(place).free.is_some();
        loaded && !self.metaslab(place).refuses_free(start, start + size)
    }

    /// Takes the changes of `txg` since the last call, to be written to the space maps, and counts
    /// them as written.
    pub(super) fn take(&mut self, txg: Txg) -> Vec<Changes> {
        let mut out = Vec::new();
        let mut places = std::mem::take(&mut self.dirty[slot(txg)]);
        places.append(&mut self.to_fold);
        for place in places {
            out.push(Changes { place, ..self.metaslab(place).take(txg) });
            self.pending.insert(place);
        }
        out
    }

    /// Makes the synced object set the one that maps are read from.
    pub(super) fn look_at(&mut self, mos: &Mos) {
        self.view = Some((Arc::downgrade(mos.objset().cache()), mos.objset().root_bp()));
    }

    /// Ends the txg `txg`, which has synced: moves its allocations and frees to their next states.
    pub(super) fn finish(&mut self, txg: Txg) {
        assert!(self.dirty[slot(txg)].is_empty(), "everything that the group changed is on the space maps");
        self.wake();
        self.disabled.eat();
        let (defer, note) = (self.may_defer(), self.notes_frees);
        for place in std::mem::take(&mut self.pending) {
            let ms = self.metaslab(place);
            ms.done(txg, defer && !ms.broken, note);
            let (group, waits) = (ms.group, ms.waits());
            let ms = &mut self.vdevs.get_mut(&place.0).expect("it was there").metaslabs[place.1 as usize];
            self.groups[group.0].count(ms);
            // A metaslab in use keeps its weight until it is left.
            if ms.activated.is_none() || ms.reckon_weight() == Weight::NONE {
                self.groups[group.0].reweigh(place.1, ms);
            }
            if waits {
                self.pending.insert(place);
            }
        }
    }
}
