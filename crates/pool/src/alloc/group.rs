//! Metaslab groups and classes: which vdev, and which of its metaslabs, is next.

use super::live::{LiveMetaslab, Weight};
use ondisk::VdevId;
use std::cmp::Reverse;
use std::collections::BTreeSet;

/// Most metaslabs that one search visits, unless it must succeed (`zfs_metaslab_find_max_tries`).
const FIND_MAX_TRIES: usize = 100;
/// An active metaslab is left when the index of its weight has fallen by this much
/// (`zfs_metaslab_switch_threshold`).
const SWITCH_THRESHOLD: u8 = 2;
/// Bytes of a turn, for each data disk (`metaslab_aliquot`).
const ALIQUOT: u64 = 1 << 20;

/// The index of a metaslab group in the allocator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct GroupId(pub(super) usize);

/// The purpose of space (`metaslab_class_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ClassKind {
    /// Data and metadata.
    Normal,
    /// Metadata and small blocks.
    Special,
    /// Deduplication tables.
    Dedup,
    /// Intent logs on devices of their own.
    Log,
    /// The metaslab that each large normal vdev lends to intent logs.
    EmbeddedLog,
}

impl ClassKind {
    /// All classes.
    pub const ALL: [ClassKind; 5] =
        [ClassKind::Normal, ClassKind::Special, ClassKind::Dedup, ClassKind::Log, ClassKind::EmbeddedLog];
}

/// The vdev of a metaslab group whose vdev was removed. No vdev has that number.
pub(super) const NO_VDEV: VdevId = VdevId(u32::MAX);

/// The metaslabs of a vdev that serve one class (`metaslab_group_t`).
#[derive(Debug)]
pub(super) struct Group {
    pub(super) vdev: VdevId,
    pub(super) class: ClassKind,
    /// The number of disks that hold data, without parity.
    pub(super) data_disks: u64,
    /// Bytes more or less than the usual turn.
    pub(super) bias: i64,
    /// True if it takes no new blocks.
    pub(super) passive: bool,
    /// The size of its metaslabs in bytes.
    pub(super) space: u64,
    /// The bytes of them that are not available, as of the last txg (`vs_alloc`).
    pub(super) alloc: u64,
    /// Its metaslabs, the best first. Equal ones are in order of their numbers.
    order: BTreeSet<(Reverse<Weight>, u32)>,
    /// The metaslabs in use for the first, second and third copies (`mga_primary`,
    /// `mga_secondary`).
    active: [Option<u32>; 3],
}

impl Group {
    pub(super) fn new(vdev: VdevId, class: ClassKind, data_disks: u64, passive: bool) -> Self {
        Self {
            vdev,
            class,
            data_disks: data_disks.max(1),
            bias: 0,
            passive,
            space: 0,
            alloc: 0,
            order: BTreeSet::new(),
            active: [None; 3],
        }
    }

    pub(super) fn add(&mut self, id: u32, ms: &mut LiveMetaslab) {
        self.space += ms.size;
        ms.counted = 0;
        self.count(ms);
        self.order.insert((Reverse(ms.weight), id));
    }

    pub(super) fn remove(&mut self, id: u32, ms: &LiveMetaslab) {
        self.space -= ms.size;
        self.alloc -= ms.counted;
        self.order.remove(&(Reverse(ms.weight), id));
        self.active.iter_mut().filter(|a| **a == Some(id)).for_each(|a| *a = None);
    }

    /// Updates the weight of a metaslab.
    pub(super) fn reweigh(&mut self, id: u32, ms: &mut LiveMetaslab) {
        let weight = ms.reckon_weight();
        if weight != ms.weight {
            self.order.remove(&(Reverse(ms.weight), id));
            ms.weight = weight;
            self.order.insert((Reverse(weight), id));
        }
    }

    /// Updates the sum for a metaslab.
    pub(super) fn count(&mut self, ms: &mut LiveMetaslab) {
        self.alloc = self.alloc - ms.counted + ms.taken();
        ms.counted = ms.taken();
    }

    /// The bytes of its turn.
    pub(super) fn aliquot(&self) -> u64 {
        (ALIQUOT * self.data_disks).saturating_add_signed(self.bias)
    }

    pub(super) fn set_bias(&mut self, percent: i64) {
        self.bias = (percent - 100).saturating_mul((ALIQUOT * self.data_disks) as i64) / 100;
    }

    /// The metaslab to try for copy `copy` of a block (`find_valid_metaslab`).
    ///
    /// `serves` tells whether a metaslab can take the block. The order is: the metaslab in use for
    /// such copies, the best one that is not in use, the best of all.
    pub(super) fn choose(
        &mut self,
        copy: usize,
        try_hard: bool,
        mut serves: impl FnMut(u32) -> bool,
    ) -> Option<u32> {
        if let Some(id) = self.active[copy].filter(|id| serves(*id)) {
            return Some(id);
        }
        let tries = if try_hard { usize::MAX } else { FIND_MAX_TRIES };
        let idle = |id: &u32| !self.active.contains(&Some(*id));
        let fit = |all: bool, serves: &mut dyn FnMut(u32) -> bool| {
            let weighty = self.order.iter().take_while(|(w, _)| w.0 != Weight::NONE).map(|(_, id)| *id);
            weighty.filter(|id| all || idle(id)).take(tries).find(|id| serves(*id))
        };
        fit(false, &mut serves).or_else(|| fit(true, &mut serves))
    }

    /// The metaslab in use for copy `copy`.
    pub(super) fn active(&self, copy: usize) -> Option<u32> {
        self.active[copy]
    }

    /// Notes that a metaslab is now in use for copy `copy`, if none is.
    pub(super) fn activate(&mut self, copy: usize, id: u32, ms: &mut LiveMetaslab) {
        if self.active[copy].is_none() && !self.active.contains(&Some(id)) {
            self.active[copy] = Some(id);
            ms.activated = Some(ms.reckon_weight().index);
        }
    }

    /// Leaves a metaslab that is used up, after an allocation (`metaslab_segment_may_passivate`).
    pub(super) fn passivate_spent(&mut self, id: u32, ms: &mut LiveMetaslab) {
        let Some(at) = ms.activated else { return };
        let now = ms.reckon_weight();
        if now == Weight::NONE || now.index.saturating_add(SWITCH_THRESHOLD) <= at {
            self.passivate(id, ms);
        }
    }

    /// Leaves a metaslab.
    pub(super) fn passivate(&mut self, id: u32, ms: &mut LiveMetaslab) {
        self.active.iter_mut().filter(|a| **a == Some(id)).for_each(|a| *a = None);
        ms.activated = None;
        self.reweigh(id, ms);
    }
}

/// The metaslab groups of a class, and whose turn it is (`metaslab_class_t`).
#[derive(Debug, Default)]
pub(super) struct Class {
    pub(super) groups: Vec<GroupId>,
    /// The index of the metaslab group whose turn it is (`mca_rotor`).
    pub(super) rotor: usize,
    /// The bytes that it got in this turn (`mca_aliquot`).
    pub(super) aliquot: u64,
}

impl Class {
    /// Gives the turn to another metaslab group.
    pub(super) fn turn(&mut self, to: usize) {
        self.rotor = to % self.groups.len().max(1);
        self.aliquot = 0;
    }
}
