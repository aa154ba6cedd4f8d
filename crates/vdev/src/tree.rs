//! The tree itself: built from a configuration, walked by reads, described for commands.

mod build;
mod describe;
mod health;
mod reshape;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use device::{Device, DeviceError};
use observe::lock::RwLock;
use ondisk::indirect::MappingEntry;
use ondisk::label::LABEL_START_SIZE;
use ondisk::{Ashift, Asize, Guid, Psize, Txg, VdevId};

use crate::alarm::{AlarmQueue, ErrorRates, Symptom};
use crate::draid::Draid;
use crate::hung::{Underway, nanos};
use crate::indirect::Indirect;
use crate::kind;
use crate::pace::Precedence;
use crate::raidz::Raidz;
use crate::report::{Reports, Trouble};
use crate::request::Request;
use crate::write::shared_flush::SharedFlush;
use crate::{
    Attempts, Reflow, Result, TxgRanges, VdevAux, VdevConfig, VdevError, VdevKind, VdevState, VdevStats,
};

pub use describe::VdevInfo;
pub use reshape::{Devices, TreeCell};

/// Opens the device of a leaf, or returns why it can't be opened.
pub type Opener<'a> = dyn FnMut(&VdevConfig) -> std::result::Result<Arc<dyn Device>, VdevAux> + 'a;

/// Index of a vdev in its tree's arena.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct NodeId(pub(crate) u32);

/// How a vdev turns an offset of its own into offsets of what is below it.
pub(crate) enum Layout {
    /// A device, or none when it could not be opened.
    Leaf(Option<Arc<dyn Device>>),
    /// Every child holds everything at the same offset.
    Mirrored,
    /// Columns with parity.
    Raidz(Raidz),
    /// Columns with parity, permuted.
    Draid(Box<Draid>),
    /// A distributed spare: at each offset it is one of the children of a draid.
    DraidSpare { draid: NodeId, spare: u64 },
    /// A removed vdev: its mapping says where its blocks are.
    Indirect(Indirect),
    /// No blocks are here: a hole, or a vdev without a description.
    Absent,
    /// The root: its children are addressed by number.
    Root,
}

/// One vdev.
pub(crate) struct Node {
    pub(crate) kind: VdevKind,
    pub(crate) guid: Guid,
    pub(crate) parent: Option<NodeId>,
    pub(crate) children: Vec<NodeId>,
    pub(crate) layout: Layout,
    /// The configuration, without its children.
    pub(crate) spec: VdevConfig,
    vitals: Arc<Vitals>,
    bell: Arc<AlarmQueue>,
}

/// What changes in place of a vdev. It stays when the tree is replaced.
#[derive(Default)]
pub(crate) struct Vitals {
    pub(crate) stats: VdevStats,
    pub(crate) reports: Reports,
    pub(crate) tally: ErrorRates,
    pub(crate) underway: Underway,
    state: AtomicU8,
    aux: AtomicU8,
    /// Whether `dtl` holds anything, so that a read of a healthy device takes no lock.
    stale: AtomicBool,
    dtl: RwLock<TxgRanges>,
    /// It takes no more writes, though the pool needs it. For a vdev above the leaves: one below it
    /// is so.
    pub(crate) cant_write: AtomicBool,
    /// A flush of it failed, though the pool needs it. Which of its writes are durable is not
    /// known.
    pub(crate) lost_writes: AtomicBool,
    /// The storage behind its device had no space for a write, and the error has not been cleared.
    pub(crate) no_room: AtomicBool,
    /// Whether its device supported TRIM when it was given up.
    pub(crate) could_trim: AtomicBool,
    /// Turns of flushing it.
    pub(crate) flushing: SharedFlush,
    /// The order of operations on its device.
    pub(crate) precedence: Precedence,
    /// Device operations under way, and where the last one ended. A mirror chooses by these.
    pub(crate) in_flight: AtomicU32,
    pub(crate) last_end: AtomicU64,
}

impl std::ops::Deref for Node {
    type Target = Vitals;

    fn deref(&self) -> &Vitals {
        &self.vitals
    }
}

/// Largest space of a vdev, far beyond any device. Offsets below it can be added without a check.
pub(crate) const MAX_ASIZE: u64 = 1 << 62;

impl Node {
    pub(crate) fn ashift(&self) -> Ashift {
        self.spec.ashift.unwrap_or_default()
    }

    pub(crate) fn state(&self) -> VdevState {
        VdevState::from_u8(self.state.load(Relaxed))
    }

    pub(crate) fn aux(&self) -> VdevAux {
        VdevAux::from_u8(self.aux.load(Relaxed))
    }

    pub(crate) fn put_state(&self, state: VdevState, aux: VdevAux) {
        let before = VdevState::from_u8(self.state.swap(state as u8, Relaxed));
        // A device that is opened for the first time had no state before.
        if before != state && before != VdevState::Unknown && matches!(self.layout, Layout::Leaf(_)) {
            self.report(Trouble::State { before, now: state, aux }, None);
            self.aux.store(aux as u8, Relaxed);
            self.bell.ring();
        }
        self.aux.store(aux as u8, Relaxed);
    }

    /// Whether it can be read (`vdev_readable`).
    pub(crate) fn readable(&self) -> bool {
        self.state() >= VdevState::Degraded && !matches!(self.layout, Layout::Absent)
    }

    /// Whether it is an open device or a distributed spare.
    pub(crate) fn is_here(&self) -> bool {
        matches!(self.layout, Layout::Leaf(Some(_)) | Layout::DraidSpare { .. })
    }

    /// Whether it missed this txg, or any txg if `txg` is unknown
    /// (`vdev_dtl_contains(DTL_MISSING)`).
    pub(crate) fn missed(&self, txg: Txg) -> bool {
        self.stale.load(Relaxed) && (txg == crate::write::TXG_UNKNOWN || self.dtl.read().contains(txg.0))
    }

    /// Records that it missed this txg (`vdev_dtl_dirty`).
    pub(crate) fn miss(&self, txg: Txg) {
        if self.missed(txg) {
            return;
        }
        self.dtl.write().add(txg.0);
        self.stale.store(true, Relaxed);
    }
}

/// The vdevs of a pool (`vdev_t`).
pub struct Tree {
    nodes: Vec<Node>,
    pub(crate) by_guid: HashMap<Guid, NodeId>,
    /// The configuration that it was built from.
    config: VdevConfig,
    /// So many top-level vdevs may be lost, and the others can still be read.
    lacking: usize,
    pub(crate) bell: Arc<AlarmQueue>,
}

impl std::fmt::Debug for Tree {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Tree({} vdevs)", self.nodes.len())
    }
}

impl Tree {
    /// Builds the tree of a configuration, whose top is the root vdev, and opens its leaves with
    /// `open`.
    ///
    /// A leaf that can't be opened is no error. Its state says so, and the states of its parents
    /// follow.
    ///
    /// # Errors
    /// * [`VdevError::Config`]: a field has an invalid value: an id, size, sector shift, width or
    ///   parity.
    /// * [`VdevError::Shape`]: the vdevs are nested in an invalid way, are too many, or share a
    ///   guid.
    pub fn open(root: &VdevConfig, open: &mut Opener<'_>) -> Result<Self> {
        build::build(root, Arc::default(), open)
    }

    /// The same tree, of which so many top-level vdevs may be lost, but not all
    /// (`spa_missing_tvds_allowed`). For reading what is left.
    #[must_use]
    pub fn lacking(mut self, tops: usize) -> Self {
        self.lacking = tops;
        self.assess(Self::ROOT);
        self
    }

    /// Top-level vdevs that are lost, except logs (`spa_missing_tvds`).
    pub fn lost_tops(&self) -> usize {
        let tops = self.node(Self::ROOT).children.iter().map(|top| self.node(*top));
        tops.filter(|top| self.is_lost(top) && !top.spec.is_log).count()
    }

    pub(crate) fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.0 as usize]
    }

    pub(crate) fn nodes(&self) -> impl Iterator<Item = &Node> {
        self.nodes.iter()
    }

    pub(crate) const ROOT: NodeId = NodeId(0);

    pub(crate) fn top(&self, vdev: VdevId) -> Result<NodeId> {
        let tops = &self.node(Self::ROOT).children;
        tops.get(vdev.0 as usize).copied().ok_or(VdevError::NoSuchVdev { vdev })
    }

    /// The pool's guid.
    pub fn root_guid(&self) -> Guid {
        self.node(Self::ROOT).guid
    }

    pub(crate) fn guid(&self, guid: Guid) -> Result<&Node> {
        self.by_guid.get(&guid).map(|id| self.node(*id)).ok_or(VdevError::NoSuchGuid { guid })
    }

    /// How many top-level vdevs the pool has, including holes and removed ones.
    pub fn top_count(&self) -> u32 {
        self.node(Self::ROOT).children.len() as u32
    }

    /// The configuration that it was built from.
    pub fn config(&self) -> &VdevConfig {
        &self.config
    }

    /// The configuration of a top-level vdev, without its children.
    ///
    /// # Errors
    /// * [`VdevError::NoSuchVdev`]: the pool has no top-level vdev of this number.
    pub fn top_spec(&self, vdev: VdevId) -> Result<&VdevConfig> {
        Ok(&self.node(self.top(vdev)?).spec)
    }

    /// The route from a range of a removed vdev to where it is now (`vdev_indirect_remap`). The
    /// route of another vdev's range is the range itself.
    ///
    /// # Errors
    /// * [`VdevError::NoSuchVdev`]: the pool has no top-level vdev of this number, or a mapping
    ///   names one that it hasn't.
    /// * [`VdevError::Unmapped`]: a mapping is not loaded, lacks the range, or leads in a circle.
    pub fn follow(&self, vdev: VdevId, offset: u64, size: u64) -> Result<crate::Route> {
        crate::indirect::follow(self, vdev, offset, size)
    }

    /// The candidates of a block of `psize` bytes at `offset` of a top-level vdev, born in `birth`.
    ///
    /// `birth` is the physical birth. The geometry of an expanded raidz, and what a stale device
    /// has missed, depend on it.
    ///
    /// # Errors
    /// The block pointer can't be right, or its vdev is missing:
    ///
    /// * [`VdevError::NoSuchVdev`]: the pool has no top-level vdev of this number.
    /// * [`VdevError::Size`]: no block has this size.
    /// * [`VdevError::Range`]: the block passes the end of the vdev.
    /// * [`VdevError::Misaligned`]: no block begins at this offset.
    /// * [`VdevError::Absent`]: the vdev is a hole or is missing.
    /// * [`VdevError::Unmapped`]: the vdev was removed, and its mapping does not lead to the block.
    pub fn attempts<'t>(
        &'t self,
        vdev: VdevId,
        offset: u64,
        psize: Psize,
        birth: Txg,
        request: &'t Request,
    ) -> Result<Attempts<'t>> {
        Attempts::new(self, (vdev, offset, psize), birth, request)
    }

    /// Bytes that a block of `psize` born in `txg` takes on a top-level vdev, parity and padding
    /// included (`vdev_psize_to_asize_txg`).
    ///
    /// # Errors
    /// * [`VdevError::NoSuchVdev`]: the pool has no top-level vdev of this number.
    /// * [`VdevError::Size`]: no block has this size.
    /// * [`VdevError::Absent`]: the vdev is a hole or is missing.
    pub fn psize_to_asize(&self, vdev: VdevId, psize: Psize, txg: Txg) -> Result<Asize> {
        let node = self.node(self.top(vdev)?);
        if psize.0 == 0 || psize.0 > ondisk::SPA_MAXBLOCKSIZE {
            return Err(VdevError::Size { vdev, size: psize.0 });
        }
        let plain = || psize.0.next_multiple_of(1 << node.ashift().0);
        match &node.layout {
            Layout::Raidz(raidz) => Ok(Asize(raidz.asize(psize.0, txg))),
            Layout::Draid(draid) => Ok(Asize(draid.asize(psize.0))),
            Layout::Mirrored => {
                let raidz = self.raidz_children(node).map(|(_, raidz)| raidz.asize(psize.0, txg));
                Ok(Asize(raidz.fold(plain(), u64::max)))
            }
            Layout::Leaf(_) | Layout::DraidSpare { .. } | Layout::Indirect(_) => Ok(Asize(plain())),
            Layout::Absent | Layout::Root => Err(VdevError::Absent { vdev }),
        }
    }

    /// The children of a mirror that are raidz. Only pools of ztest have any.
    pub(crate) fn raidz_children<'a>(
        &'a self,
        mirror: &'a Node,
    ) -> impl Iterator<Item = (NodeId, &'a Raidz)> {
        mirror.children.iter().filter_map(|id| match &self.node(*id).layout {
            Layout::Raidz(raidz) => Some((*id, raidz)),
            _ => None,
        })
    }

    /// Counts a checksum error against a leaf.
    pub(crate) fn lied(&self, leaf: NodeId, range: Option<(u64, u64)>) {
        let node = self.node(leaf);
        node.stats.checksum_errors.inc();
        if node.report(Trouble::Checksum, range) {
            self.complain(leaf, Symptom::Checksum, range);
        }
    }

    /// Counts a failed operation against a leaf, with the cause if the device gave one.
    pub(crate) fn failed(
        &self,
        leaf: NodeId,
        what: Trouble,
        range: Option<(u64, u64)>,
        why: Option<&DeviceError>,
    ) {
        let node = self.node(leaf);
        if why.is_some_and(DeviceError::is_no_room) {
            node.no_room.store(true, Relaxed);
        }
        node.report_why(what, range, why.and_then(DeviceError::errno));
        self.complain(leaf, Symptom::Io, range);
    }

    /// Records an operation of a leaf if it was slow (`zio_slow_io_ms`).
    pub(crate) fn timed(&self, leaf: NodeId, took: Duration, range: (u64, u64)) {
        let ns = nanos(took);
        if !VdevStats::is_slow(ns) {
            return;
        }
        let node = self.node(leaf);
        node.stats.slow_ios.inc();
        if node.report(Trouble::Delay { took_ns: ns }, Some(range)) {
            self.complain(leaf, Symptom::Slow, None);
        }
    }

    /// How many children of a vdev can't be read or have missed a txg.
    pub(crate) fn troubled(&self, id: NodeId, birth: Txg) -> usize {
        let fine = |c: &&NodeId| self.node(**c).readable() && !self.node(**c).missed(birth);
        let children = &self.node(id).children;
        children.len() - children.iter().filter(fine).count()
    }

    /// Replaces the set of txgs that a device has missed, its DTL (`vdev_dtl_load`).
    ///
    /// # Errors
    /// * [`VdevError::NoSuchGuid`]: the pool has no vdev of this guid.
    pub fn set_dtl(&self, guid: Guid, ranges: TxgRanges) -> Result<()> {
        let node = self.guid(guid)?;
        let mut dtl = node.dtl.write();
        node.stale.store(!ranges.is_empty(), Relaxed);
        *dtl = ranges;
        Ok(())
    }

    /// Records that a device misses the txg that syncs, and those that may be open meanwhile
    /// (`vdev_dtl_dirty`).
    ///
    /// It is not known what the device got of these before it disappeared.
    ///
    /// # Errors
    /// * [`VdevError::NoSuchGuid`]: the pool has no vdev of this guid.
    pub fn leaves_out(&self, guid: Guid, txg: Txg) -> Result<()> {
        let node = self.guid(guid)?;
        (txg.0..=txg.0.saturating_add(crate::write::OPEN_GROUPS)).for_each(|t| node.miss(Txg(t)));
        Ok(())
    }

    /// Records that a scan in this txg covers only the devices in `present`.
    ///
    /// Other devices that have missed something miss this txg too. Without that, the end of the
    /// scan would count as if it had brought these devices up to date, however long they were
    /// missing. A device that has missed nothing is not affected.
    pub fn passed_by(&self, present: &BTreeSet<Guid>, txg: Txg) {
        let absent = self.nodes.iter().filter(|n| n.stale.load(Relaxed) && !present.contains(&n.guid));
        absent.for_each(|node| node.miss(txg));
    }

    /// The txgs that a device has missed (`vdev_dtl`).
    ///
    /// # Errors
    /// * [`VdevError::NoSuchGuid`]: the pool has no vdev of this guid.
    pub fn dtl(&self, guid: Guid) -> Result<TxgRanges> {
        Ok(self.guid(guid)?.dtl.read().clone())
    }

    /// The open devices that take writes and have missed txgs.
    pub fn behind(&self) -> Vec<Guid> {
        let stale = self.nodes.iter().filter(|n| n.is_here() && n.stale.load(Relaxed)).map(|n| n.guid);
        stale.filter(|guid| self.by_guid.get(guid).is_some_and(|id| self.writable(*id))).collect()
    }

    /// The open devices that take writes.
    pub fn writable_devices(&self) -> Vec<Guid> {
        let here = self.nodes.iter().filter(|n| n.is_here()).map(|n| n.guid);
        here.filter(|guid| self.by_guid.get(guid).is_some_and(|id| self.writable(*id))).collect()
    }

    /// Forgets what a device missed before a txg, except what is also in `keep`
    /// (`vdev_dtl_reassess`).
    ///
    /// # Errors
    /// * [`VdevError::NoSuchGuid`]: the pool has no vdev of this guid.
    pub fn forget_missed(&self, guid: Guid, before: Txg, keep: &TxgRanges) -> Result<()> {
        let node = self.guid(guid)?;
        let mut dtl = node.dtl.write();
        let later =
            dtl.iter().filter(|(_, end)| *end > before.0).map(|(start, end)| (start.max(before.0), end));
        let kept = dtl
            .iter()
            .flat_map(|(start, end)| keep.iter().map(move |(from, to)| (from.max(start), to.min(end))));
        let left = TxgRanges::new(later.chain(kept));
        node.stale.store(!left.is_empty(), Relaxed);
        *dtl = left;
        Ok(())
    }

    /// Whether blocks may be on a top-level vdev: it is neither a hole nor removed
    /// (`vdev_is_concrete`).
    pub fn holds_blocks(&self, vdev: VdevId) -> bool {
        self.top(vdev).is_ok_and(|id| kind::is_concrete(self.node(id).kind))
    }

    /// Whether there are log devices.
    pub fn has_logs(&self) -> bool {
        let tops = self.node(Self::ROOT).children.iter().map(|id| self.node(*id));
        tops.into_iter().any(|n| n.spec.is_log && kind::is_concrete(n.kind))
    }

    /// Whether a top-level vdev lays blocks out in columns.
    pub fn is_striped(&self, vdev: VdevId) -> bool {
        let columns = |id| matches!(self.node(id).layout, Layout::Raidz(_) | Layout::Draid(_));
        self.top(vdev).is_ok_and(columns)
    }

    /// The unit of block offsets on a top-level vdev, in bytes of its space: a sector, or a stripe
    /// of a dRAID. At least 1.
    pub fn unit_of(&self, vdev: VdevId) -> u64 {
        self.top(vdev).map_or(1, |id| match &self.node(id).layout {
            Layout::Draid(draid) => draid.stripe(),
            _ => 1 << self.node(id).ashift().0,
        })
    }

    /// Bytes of data in a row of a dRAID, which all its devices together hold. 0 for other vdevs.
    ///
    /// Each group of a dRAID's columns lies on some of its devices only. Other vdevs have a block
    /// on all of their devices or, if it is small, on any.
    pub fn breadth_of(&self, vdev: VdevId) -> u64 {
        self.top(vdev).map_or(0, |id| match &self.node(id).layout {
            Layout::Draid(draid) => draid.row(),
            _ => 0,
        })
    }

    /// The smallest allocation of the top-level vdevs that hold data, and the greatest common
    /// divisor of all, in bytes (`spa_min_alloc`, `spa_gcd_alloc`).
    ///
    /// Compressed sizes are rounded to these. Both are 512 while there is no such vdev.
    pub fn alloc_unit(&self) -> (u64, u64) {
        let tops = self.node(Self::ROOT).children.iter().map(|id| self.node(*id));
        let units = tops.filter(|n| kind::is_concrete(n.kind) && !n.spec.is_log).map(|n| {
            let sector = 1u64 << n.ashift().0;
            if let Layout::Draid(draid) = &n.layout { draid.min_alloc() } else { sector }
        });
        units
            .map(|unit| (unit, unit))
            .reduce(|(min, all), (unit, _)| (min.min(unit), gcd(all, unit)))
            .unwrap_or((ondisk::SPA_MINBLOCKSIZE, ondisk::SPA_MINBLOCKSIZE))
    }

    /// Sets where the blocks of a removed vdev went, in place of what was known.
    ///
    /// # Errors
    /// * [`VdevError::NoSuchVdev`]: the pool has no such top-level vdev, or it has not been
    ///   removed.
    /// * [`VdevError::Mapping`]: the entries overlap, are out of order, or are empty.
    pub fn set_indirect_mapping(&self, vdev: VdevId, entries: Vec<MappingEntry>) -> Result<()> {
        match &self.node(self.top(vdev)?).layout {
            Layout::Indirect(indirect) => indirect.set(vdev, entries),
            _ => Err(VdevError::NoSuchVdev { vdev }),
        }
    }

    /// Sets how far the expansion of a raidz has copied. At most one raidz is being expanded, and
    /// the uberblock has the offset. Until then nothing counts as copied.
    pub fn set_reflow(&self, reflow: Reflow) {
        for node in &self.nodes {
            if let Layout::Raidz(raidz) = &node.layout {
                raidz.set_reflow(reflow);
            }
        }
    }

    /// The counters of a vdev (`vdev_get_stats`).
    ///
    /// # Errors
    /// * [`VdevError::NoSuchGuid`]: the pool has no vdev of this guid.
    pub fn stats(&self, guid: Guid) -> Result<&VdevStats> {
        Ok(&self.guid(guid)?.stats)
    }

    /// The open devices of the leaves, with their guids.
    pub fn devices(&self) -> impl Iterator<Item = (Guid, &Arc<dyn Device>)> {
        self.nodes.iter().filter_map(|n| match &n.layout {
            Layout::Leaf(Some(device)) => Some((n.guid, device)),
            _ => None,
        })
    }
}

/// The greatest common divisor (Euclid).
fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// Offset on a leaf's device of `offset` of the leaf.
pub(crate) fn device_offset(offset: u64) -> u64 {
    // The scratch area of a raidz expansion lies before the space; its offsets wrap around zero.
    offset.wrapping_add(LABEL_START_SIZE)
}

#[cfg(test)]
mod tests;
