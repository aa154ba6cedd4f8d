//! Space maps of whole vdevs, beside those of their metaslabs: space that a checkpoint holds back,
//! and obsolete ranges of removed vdevs.
//!
//! # Theory
//! While a checkpoint exists, a block that its uberblock reaches must not be reused. When such a
//! block is freed, it stays allocated on the map of its metaslab. Its range is added as free to a
//! map of its vdev. That map lists what to free when the checkpoint is discarded. A discard goes in
//! steps from the end of the map, one step in each txg.
//!
//! A block of a removed vdev is freed where its segments are now. Another map of the removed vdev
//! (`obsolete_counts`) records that its range is no longer used. It shows what a condensed mapping
//! may leave out.
//!
//! # On disk
//! A space map for each vdev and kind, which the ZAP of the vdev names from its first entry on.
//!
//! | map | entries |
//! |---|---|
//! | of a checkpoint | frees in sectors; none crosses a metaslab |
//! | of obsolete ranges | allocations in bytes |
//!
//! # Absent
//! Mappings are not condensed. That would save memory, and nothing on disk.
//!
//! # See
//! OpenZFS `module/zfs/spa_checkpoint.c`, `vdev_indirect.c` (`vdev_indirect_mark_obsolete`,
//! `vdev_indirect_sync_obsolete`).

use super::Allocator;
use super::live::{TXG_SIZE, slot};
use super::state::State;
use crate::feature::known;
use crate::range::RangeSet;
use crate::spacemap::{Pass, SpaceMap};
use crate::{Error, Mos, Result};
use dmu::Tx;
use ondisk::spacemap::MapType;
use ondisk::{ObjNum, Txg, VdevConfig, VdevId, mos};
use std::collections::BTreeMap;
use vdev::Tree;

/// Bytes of a block of such a map (`zfs_vdev_standard_sm_blksz`).
const BLOCK_SIZE: u32 = 1 << 17;
/// The feature `obsolete_counts`, which counts the removed vdevs with a map of obsolete ranges or
/// with such counts.
const OBSOLETE_COUNTS: &str = "com.delphix:obsolete_counts";

/// The purpose of such a map.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum VdevMapKind {
    Checkpoint,
    Obsolete,
}

impl VdevMapKind {
    fn name(self) -> &'static str {
        match self {
            VdevMapKind::Checkpoint => mos::VDEV_TOP_POOL_CHECKPOINT_SM,
            VdevMapKind::Obsolete => mos::VDEV_TOP_INDIRECT_OBSOLETE_SM,
        }
    }

    fn notes(self) -> MapType {
        match self {
            VdevMapKind::Checkpoint => MapType::Free,
            VdevMapKind::Obsolete => MapType::Alloc,
        }
    }
}

/// The place and units of a vdev's maps.
#[derive(Debug, Clone, Copy)]
struct Home {
    top_zap: Option<ObjNum>,
    asize: u64,
    shift: u8,
}

/// The pending entries of these maps, and what the checkpoint holds back.
#[derive(Debug, Default)]
pub(super) struct VdevMaps {
    /// The txg of the checkpointed uberblock.
    checkpoint: Option<Txg>,
    /// Bytes on the checkpoint's maps of all vdevs.
    held: u64,
    /// True if ranges of obsolete blocks are recorded (`obsolete_counts` is enabled).
    counts: bool,
    /// The pending entries of each txg, by kind, vdev, and, for a checkpoint, metaslab.
    fresh: [BTreeMap<(VdevMapKind, VdevId, u32), RangeSet>; TXG_SIZE],
}

impl VdevMaps {
    /// True if the checkpoint refers to a block that was written in `born` and is freed in `txg`.
    fn holds(&self, born: Txg, txg: Txg) -> bool {
        self.checkpoint.is_some_and(|checkpoint| born <= checkpoint && txg > checkpoint)
    }

    /// True if `txg` has pending entries.
    pub(super) fn is_dirty(&self, txg: Txg) -> bool {
        !self.fresh[slot(txg)].is_empty()
    }
}

impl State {
    /// Frees a block's copy where it is now (`metaslab_free_impl`). A mapping that leads nowhere
    /// frees nothing.
    pub(super) fn free_copy(
        &mut self,
        tree: &Tree,
        (vdev, start, size): (VdevId, u64, u64),
        born: Txg,
        txg: Txg,
    ) {
        let held = self.side.holds(born, txg);
        if self.vdevs.contains_key(&vdev) {
            return self.free_piece(vdev, start, size, held, txg);
        }
        let Ok(route) = tree.follow(vdev, start, size) else {
            self.bad_frees += 1;
            return;
        };
        if self.side.counts {
            for (vdev, start, size) in route.left {
                let noted = self.side.fresh[slot(txg)].entry((VdevMapKind::Obsolete, vdev, 0)).or_default();
                if !noted.add(start, start + size) {
                    self.bad_frees += 1;
                }
            }
        }
        for (vdev, start, size) in route.pieces {
            self.free_piece(vdev, start, size, held, txg);
        }
    }

    fn free_piece(&mut self, vdev: VdevId, start: u64, size: u64, held: bool, txg: Txg) {
        if !held {
            return self.free(vdev, start, size, txg);
        }
        let place = self.find(vdev, start, size);
        let Some(place) = place.filter(|p| !self.metaslab(*p).refuses_free(start, start + size)) else {
            self.bad_frees += 1;
            return;
        };
        let noted =
            self.side.fresh[slot(txg)].entry((VdevMapKind::Checkpoint, place.0, place.1)).or_default();
        if !noted.add(start, start + size) {
            self.bad_frees += 1;
        }
    }

    fn home(&self, tree: &Tree, vdev: VdevId) -> Home {
        match self.vdevs.get(&vdev) {
            Some(v) => Home { top_zap: v.top.top_zap, asize: v.top.asize, shift: v.top.ashift.0 },
            None => {
                let spec: Option<&VdevConfig> = tree.top_spec(vdev).ok();
                let of = |f: fn(&VdevConfig) -> Option<u64>| spec.and_then(f);
                let top_zap = spec.and_then(|s| s.top_zap);
                Home { top_zap, asize: of(|s| s.asize).unwrap_or(0), shift: 0 }
            }
        }
    }
}

impl Home {
    /// The vdev's map of a kind, if it has one.
    fn map(&self, mos: &Mos, kind: VdevMapKind) -> Result<Option<SpaceMap>> {
        let Some(zap) = self.top_zap else { return Ok(None) };
        let Some(object) = mos.u64(zap, kind.name())? else { return Ok(None) };
        SpaceMap::open(mos, ObjNum(object), 0, self.asize, self.shift).map(Some)
    }

    fn make(&self, tx: &Tx, mos: &Mos, kind: VdevMapKind) -> Result<SpaceMap> {
        let zap = self.top_zap.ok_or(Error::Missing { name: kind.name() })?;
        let object = mos.create_space_map(tx, BLOCK_SIZE)?;
        mos.set_word(tx, zap, kind.name(), object.0)?;
        if kind == VdevMapKind::Obsolete {
            mos.feature_incr(tx, known(OBSOLETE_COUNTS))?;
        }
        SpaceMap::open(mos, object, 0, self.asize, self.shift)
    }
}

impl Allocator {
    /// Reads the sums of the maps of an existing pool.
    ///
    /// # Errors
    /// * The errors of [reading](Error#reading).
    /// * [`Error::Unsupported`]: a mapping is being condensed.
    pub(super) fn open_side(&self, mos: &Mos) -> Result<()> {
        if mos.dir_words(mos::CONDENSING_INDIRECT)?.is_some_and(|w| w.first().is_some_and(|vdev| *vdev != 0))
        {
            return Err(Error::Unsupported { what: "a mapping of a removed device that is being condensed" });
        }
        let checkpoint = mos.checkpoint()?.and_then(|words| words.get(2).copied()).map(Txg);
        let mut state = self.state.lock();
        state.side.checkpoint = checkpoint;
        state.side.counts = mos.feature_enabled(OBSOLETE_COUNTS)?;
        let tops: Vec<_> = state.vdevs.values().map(|v| v.top).collect();
        for top in tops {
            state.side.held = state.side.held.saturating_add(mos.checkpoint_space(&top)?);
        }
        Ok(())
    }

    /// Sets the txg up to which freed blocks are held back, or none (`spa_checkpoint_txg`).
    ///
    /// The caller does this before the first free in the syncing txg.
    pub fn set_checkpoint(&self, checkpoint: Option<Txg>) {
        self.state.lock().side.checkpoint = checkpoint;
    }

    /// Bytes that only a checkpoint refers to (`spa_get_checkpoint_space`).
    pub fn checkpoint_space(&self) -> u64 {
        self.state.lock().side.held
    }

    /// Records that a range of a removed vdev is no longer used
    /// (`spa_vdev_indirect_mark_obsolete`).
    ///
    /// This happens when a pointer is rewritten to the block's new place, and the old pointer has
    /// died. Ranges of other vdevs are ignored.
    pub fn mark_obsolete(&self, dva: &ondisk::Dva, txg: Txg) {
        let tree = self.tree.get();
        let mut state = self.state.lock();
        let removed = tree.top_spec(dva.vdev).is_ok_and(|v| v.kind == ondisk::VdevKind::Indirect);
        let end = dva.offset.0.checked_add(dva.asize.0);
        let Some(end) = end.filter(|_| removed && state.side.counts && dva.asize.0 > 0) else { return };
        let noted = state.side.fresh[slot(txg)].entry((VdevMapKind::Obsolete, dva.vdev, 0)).or_default();
        if !noted.add(dva.offset.0, end) {
            state.bad_frees += 1;
        }
    }

    /// Writes the pending entries of the txg to these maps.
    pub(super) fn sync_side(&self, pass: &Pass<'_>, mos: &Mos) -> Result<bool> {
        let (fresh, tree) = {
            let mut state = self.state.lock();
            (std::mem::take(&mut state.side.fresh[slot(pass.tx.txg())]), self.tree.get())
        };
        let any = !fresh.is_empty();
        for ((kind, vdev, _), ranges) in fresh {
            let home = self.state.lock().home(&tree, vdev);
            let mut map = match home.map(mos, kind)? {
                Some(map) => map,
                None => home.make(pass.tx, mos, kind)?,
            };
            map.append(pass, kind.notes(), &ranges)?;
            map.store(pass.tx)?;
            if kind == VdevMapKind::Checkpoint {
                self.state.lock().side.held += ranges.space();
            }
        }
        Ok(any)
    }

    /// Frees about `limit` ranges of a former checkpoint (`spa_checkpoint_discard_thread_sync`).
    /// True if none is left.
    ///
    /// The sync thread calls this once in a txg, before [`Allocator::sync`].
    ///
    /// # Errors
    /// The errors of [counting features](Error#counting-features).
    pub fn discard(&self, tx: &Tx, mos: &Mos, limit: u64) -> Result<bool> {
        let tree = self.tree.get();
        let vdevs: Vec<VdevId> = self.state.lock().vdevs.keys().copied().collect();
        let mut left = limit;
        for vdev in vdevs {
            let home = self.state.lock().home(&tree, vdev);
            let Some(mut map) = home.map(mos, VdevMapKind::Checkpoint)? else { continue };
            if left == 0 {
                return Ok(false);
            }
            map.take_last(tx, &mut left, |range| {
                let mut state = self.state.lock();
                let size = range.end - range.start;
                state.side.held = state.side.held.saturating_sub(size);
                state.free(vdev, range.start, size, tx.txg());
                Ok(())
            })?;
            if map.phys().length > 0 {
                return Ok(false);
            }
            let zap = home.top_zap.expect("a vdev without a ZAP has no map");
            mos.destroy_space_map(tx, map.object())?;
            mos.unset(tx, zap, VdevMapKind::Checkpoint.name())?;
        }
        Ok(true)
    }
}
