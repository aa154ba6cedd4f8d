//! Indirect vdevs: where the blocks of a removed vdev went.
//!
//! # Theory
//! When a vdev is removed, its allocated ranges are copied to others, and block pointers stay as
//! they are. A mapping, sorted by source, leads from each range to its copy.
//!
//! A range may have been copied in parts. A block that crosses such parts is a *split block*: its
//! parts lie apart. The target may have been removed since; then its own mapping leads on.
//!
//! # See
//! OpenZFS `vdev_indirect.c` (`vdev_indirect_remap`), `vdev_indirect_mapping.c`.

use std::sync::Arc;

use observe::lock::RwLock;
use ondisk::VdevId;
use ondisk::indirect::MappingEntry;

use crate::tree::{Layout, Tree};
use crate::{Result, VdevError};

/// The mapping of a removed vdev; nothing until it has been loaded.
#[derive(Default, Clone)]
pub(crate) struct Indirect(Arc<RwLock<Option<Arc<[MappingEntry]>>>>);

impl Indirect {
    /// Checks and takes a mapping: its entries must rise and not overlap.
    pub(crate) fn set(&self, vdev: VdevId, entries: Vec<MappingEntry>) -> Result<()> {
        let mut last = 0;
        for entry in &entries {
            let ends = entry.src.0.checked_add(entry.size).zip(entry.dst.0.checked_add(entry.size));
            let Some((end, _)) = ends.filter(|_| entry.src.0 >= last && entry.size > 0) else {
                return Err(VdevError::Mapping { vdev, offset: entry.src.0 });
            };
            last = end;
        }
        *self.0.write() = Some(entries.into());
        Ok(())
    }

    fn entries(&self) -> Option<Arc<[MappingEntry]>> {
        self.0.read().clone()
    }
}

/// A part of a block that is contiguous on a vdev that still exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Segment {
    pub(crate) vdev: VdevId,
    pub(crate) offset: u64,
    pub(crate) size: u64,
}

/// Where a range of a removed vdev is now, and where it was; each as vdev, offset and size.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Route {
    /// Ranges of removed vdevs that the mappings lead over, the first among them.
    pub left: Vec<(VdevId, u64, u64)>,
    /// The ranges that hold it now, in its order, as they were copied.
    pub pieces: Vec<(VdevId, u64, u64)>,
}

/// Follows mappings from a range of a removed vdev to the segments that hold it now, in the block's
/// order.
pub(crate) fn remap(tree: &Tree, vdev: VdevId, offset: u64, size: u64) -> Result<Vec<Segment>> {
    let mut out: Vec<Segment> = Vec::new();
    for (vdev, offset, size) in follow(tree, vdev, offset, size)?.pieces {
        match out.last_mut() {
            Some(last) if last.vdev == vdev && last.offset + last.size == offset => last.size += size,
            _ => out.push(Segment { vdev, offset, size }),
        }
    }
    Ok(out)
}

/// Follows mappings from a range to the ranges that hold it now.
pub(crate) fn follow(tree: &Tree, vdev: VdevId, offset: u64, size: u64) -> Result<Route> {
    let mut out = Route::default();
    // What is still to be followed, the first on top, with the number of mappings that led to it.
    let mut todo = vec![(Segment { vdev, offset, size }, 0)];
    while let Some((at, hops)) = todo.pop() {
        let Layout::Indirect(indirect) = &tree.node(tree.top(at.vdev)?).layout else {
            out.pieces.push((at.vdev, at.offset, at.size));
            continue;
        };
        out.left.push((at.vdev, at.offset, at.size));
        let unmapped = |offset, size| VdevError::Unmapped { vdev: at.vdev, offset, size };
        // Each removal happened before the one whose mapping names it. So a longer chain is a
        // circle.
        if hops > tree.top_count() {
            return Err(unmapped(at.offset, at.size));
        }
        let entries = indirect.entries().ok_or(unmapped(at.offset, at.size))?;
        let end = at.offset.checked_add(at.size).ok_or(unmapped(at.offset, at.size))?;
        let mut pos = at.offset;
        let mut parts = Vec::new();
        let first = entries.partition_point(|e| e.src.0 + e.size <= pos);
        for entry in entries[first..].iter().take_while(|e| e.src.0 < end) {
            if entry.src.0 > pos {
                break;
            }
            let skip = pos - entry.src.0;
            let size = (entry.size - skip).min(end - pos);
            let offset = entry.dst.0.checked_add(skip).ok_or(unmapped(pos, size))?;
            parts.push((Segment { vdev: entry.vdev, offset, size }, hops + 1));
            pos += size;
        }
        if pos < end {
            return Err(unmapped(pos, end - pos));
        }
        todo.extend(parts.into_iter().rev());
    }
    Ok(out)
}
