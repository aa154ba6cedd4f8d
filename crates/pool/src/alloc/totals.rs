//! The space of each class.

use super::group::{ClassKind, GroupId};
use super::live::LiveMetaslab;
use super::state::{MetaslabKey, State};
use crate::metaslab::fragmentation;
use crate::space::{MAX_SLOP, MIN_SLOP, SLOP_SHIFT};
use std::collections::BTreeMap;

/// The space of one class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ClassTotals {
    /// Bytes in metaslabs (`mc_space`).
    pub space: u64,
    /// Allocated bytes, including freed bytes that can't be used yet (`mc_alloc`).
    pub alloc: u64,
    /// Freed bytes among them (`mc_deferred`).
    pub deferred: u64,
    /// The space in 512-byte units times the deflate ratio (`mc_dspace`).
    pub dspace: u64,
    /// True if blocks can be allocated.
    pub present: bool,
    /// Fragmentation of the free space in percent. `None` if it is not known.
    pub fragmentation: Option<u64>,
}

/// The space by class.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Totals(pub BTreeMap<ClassKind, ClassTotals>);

impl Totals {
    /// The space of one class.
    pub fn of(&self, class: ClassKind) -> ClassTotals {
        self.0.get(&class).copied().unwrap_or_default()
    }

    /// SIZE of `zpool list`: bytes in the metaslabs of all classes that hold data.
    pub fn size(&self) -> u64 {
        self.sum(|c| c.space)
    }

    /// ALLOC of `zpool list`: allocated bytes of these classes.
    pub fn alloc(&self) -> u64 {
        self.sum(|c| c.alloc)
    }

    fn sum(&self, of: impl Fn(&ClassTotals) -> u64) -> u64 {
        let listed = self.0.iter().filter(|(kind, _)| **kind != ClassKind::Log);
        listed.fold(0, |n, (_, c)| n.saturating_add(of(c)))
    }

    /// Deflated bytes of the normal class, without what is lent to logs (`spa_update_dspace`:
    /// `spa_rdspace`).
    pub fn rdspace(&self) -> u64 {
        self.of(ClassKind::Normal).dspace
    }

    /// Deflated bytes that are kept back, so that a full pool can still delete
    /// (`spa_get_slop_space`).
    pub fn slop(&self) -> u64 {
        let room = self.rdspace();
        let slop = (room >> SLOP_SHIFT).min(MAX_SLOP);
        let slop = slop - self.of(ClassKind::EmbeddedLog).dspace.min(slop / 2);
        slop.max((room / 2).min(MIN_SLOP))
    }
}

impl State {
    /// The allocated bytes of a class, and all of its bytes.
    pub(super) fn class_space(&self, kind: ClassKind) -> (u64, u64) {
        let groups = self.classes[&kind].groups.iter().map(|g| &self.groups[g.0]);
        groups.fold((0, 0), |(alloc, space), g| (alloc + g.alloc, space + g.space))
    }

    /// True if there is enough free space that freed space can wait (`metaslab_sync_done`).
    pub(super) fn may_defer(&self) -> bool {
        let totals = self.totals();
        let normal = totals.of(ClassKind::Normal);
        normal.space - normal.alloc.min(normal.space) > totals.slop()
    }

    /// True if half of the slop is used up, counting what unsynced txgs have taken. These txgs need
    /// the rest.
    pub(super) fn is_scarce(&self) -> bool {
        let normal = &self.classes[&ClassKind::Normal].groups;
        let at = |place: &MetaslabKey| {
            let ms = self.vdevs.get(&place.0)?.metaslabs.get(place.1 as usize)?;
            normal.contains(&ms.group).then_some(ms)
        };
        let (alloc, space) = self.class_space(ClassKind::Normal);
        let open = self.dirty.iter().enumerate().flat_map(|(slot, places)| {
            places.iter().filter_map(at).map(move |ms| ms.allocating[slot].space())
        });
        let syncing = self.pending.iter().filter_map(at).map(|ms| ms.taken().saturating_sub(ms.counted));
        let fresh: u64 = open.chain(syncing).sum();
        let slop = (space >> SLOP_SHIFT).min(MAX_SLOP).max((space / 2).min(MIN_SLOP));
        space.saturating_sub(alloc).saturating_sub(fresh) < slop / 2
    }

    pub(super) fn totals(&self) -> Totals {
        let mut out: BTreeMap<ClassKind, ClassTotals> = BTreeMap::new();
        let mut frag: BTreeMap<ClassKind, Fragments> = BTreeMap::new();
        for (id, group) in self.groups.iter().enumerate() {
            let Some(vdev) = self.vdevs.get(&group.vdev) else { continue };
            let class = out.entry(group.class).or_default();
            let frag = frag.entry(group.class).or_default();
            class.present |= !group.passive;
            class.space += group.space;
            class.alloc += group.alloc;
            for ms in vdev.metaslabs.iter().filter(|m| m.group == GroupId(id)) {
                class.deferred += ms.deferred();
                if !group.passive {
                    class.dspace += vdev.top.deflate(ms.size);
                }
                frag.add(ms);
            }
        }
        for (kind, class) in &mut out {
            class.fragmentation = frag[kind].percent();
        }
        Totals(out)
    }
}

/// Fragmentation of several metaslabs, weighted by their free space
/// (`metaslab_group_fragmentation`).
#[derive(Default)]
struct Fragments {
    known: u64,
    all: u64,
    weighted: u128,
    free: u128,
}

impl Fragments {
    fn add(&mut self, ms: &LiveMetaslab) {
        self.all += 1;
        if let Some(f) = fragmentation(ms.phys.as_ref(), ms.shift) {
            let free = u128::from(ms.size.saturating_sub(ms.allocated));
            self.known += 1;
            self.free += free;
            self.weighted += free * u128::from(f);
        }
    }

    fn percent(&self) -> Option<u64> {
        let enough = self.known >= self.all.div_ceil(2);
        if enough { self.weighted.checked_div(self.free).map(|f| f as u64) } else { None }
    }
}
