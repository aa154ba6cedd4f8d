//! Reading indirect blocks and dnodes before the walk needs them.
//!
//! # Theory
//! A walk goes in the order of objects, and the blocks that it needs lie in the order of the txgs
//! that wrote them. Two methods avoid a seek for each block:
//!
//! * The surroundings of a block are read with it ([`Windows::of`]): blocks of one txg lie side by
//!   side.
//! * If a block leads to many that are needed next, these are read in the order of their places
//!   ([`Windows::ahead`]). All devices read at once. Blocks of many txgs lie in any order.
//!
//! The fetched bytes go with the request for a block, as in [`crate::scan::issue`]; the rest is
//! read singly.
//!
//! Memory holds 16 reads around a block, of 256 KiB each, and for each [`Row`] twice the 8 MiB of
//! its read-ahead. Each is multiplied by the copies and parity of a vdev.
//!
//! # See
//! OpenZFS `dsl_scan_prefetch`, which prefetches through the cache, as many at once as devices have
//! queues for.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use ondisk::{Blkptr, Psize, VdevId};
use vdev::{Extent, Fetched, Request, Tree};

/// Most bytes of blocks that are read ahead of each vdev.
pub(crate) const AHEAD: u64 = 8 << 20;

/// The places of a block's copies; gang copies have none.
pub(crate) fn extents(bp: &Blkptr) -> impl Iterator<Item = Extent> {
    bp.stored().into_iter().flat_map(|s| {
        s.copies().filter(|dva| !dva.gang).map(|dva| Extent {
            vdev: dva.vdev,
            offset: dva.offset.0,
            psize: s.psize,
            birth: s.phys_birth,
        })
    })
}

/// Bytes that are read around an indirect block: mostly the next bytes are needed next.
const WINDOW: u64 = 256 << 10;
/// Most of these reads that are kept.
const WINDOWS: usize = 16;
/// Most blocks that are read ahead between two checks whether to stop.
const TOGETHER: usize = 64;
/// Largest gap that is read too between blocks that are read ahead. A seek costs more, and few
/// blocks are nearer to each other.
const GAP: u64 = 512 << 10;

/// The kinds of blocks that are read ahead. New blocks of a row replace the old ones of that row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Row {
    /// Blocks of dnodes, below one indirect block.
    Dnodes,
    /// The first blocks of the objects in one block of dnodes.
    Objects,
    /// Indirect blocks, below another one.
    Pointers,
}

/// Blocks that were read ahead, by place.
type Ahead = BTreeMap<(VdevId, u64), Arc<Fetched>>;

/// Recently read surroundings of indirect blocks, and indirect blocks that are needed next.
#[derive(Default)]
pub(crate) struct Windows {
    around: VecDeque<(Extent, Arc<Fetched>)>,
    ahead: BTreeMap<Row, Ahead>,
}

impl Windows {
    /// The read around a block, if there is one.
    pub(crate) fn around(&self, of: &Extent) -> Option<&Arc<Fetched>> {
        let within = |e: &Extent| {
            let end = of.offset.saturating_add(of.psize.0);
            e.vdev == of.vdev && e.offset <= of.offset && end <= e.offset.saturating_add(e.psize.0)
        };
        self.around.iter().find(|(e, _)| within(e)).map(|(_, fetched)| fetched)
    }

    /// A read that contains a block; it is made if there is none.
    pub(crate) fn of(&mut self, tree: &Tree, bp: &Blkptr, request: &Request) -> Option<Arc<Fetched>> {
        let of = extents(bp).next()?;
        let ahead = || self.ahead.values().find_map(|row| row.get(&(of.vdev, of.offset)));
        if let Some(fetched) = self.around(&of).or_else(ahead) {
            return Some(Arc::clone(fetched));
        }
        // Blocks of one txg lie side by side, in either order.
        let near = of.offset - of.offset % WINDOW;
        let start = near - near % tree.unit_of(of.vdev);
        let psize = Psize(WINDOW.max(of.offset - start + of.psize.0));
        let extent = Extent { offset: start, psize, ..of };
        // If the range doesn't begin and end at block boundaries, only this block is read.
        let extent = if tree.pieces_of(extent.vdev, start, psize, of.birth).is_ok() { extent } else { of };
        let fetched = Arc::new(tree.fetch(&[extent], false, request));
        if self.around.len() == WINDOWS {
            self.around.pop_front();
        }
        self.around.push_back((extent, Arc::clone(&fetched)));
        Some(fetched)
    }

    /// Reads blocks that are needed next and are absent, in the order of their places, until memory
    /// is full or it `stops`.
    ///
    /// The blocks of this row that were read ahead before are dropped. Gives the number of the
    /// first block without memory, if there is one.
    pub(crate) fn ahead(
        &mut self,
        row: Row,
        tree: &Tree,
        blocks: impl Iterator<Item = (usize, Blkptr)>,
        stops: impl Fn() -> bool,
        request: &Request,
    ) -> Option<usize> {
        let (mut wanted, mut bytes, mut left) = (Vec::new(), 0, None);
        for (n, bp) in blocks {
            let Some(of) = extents(&bp).next().filter(|of| self.around(of).is_none()) else { continue };
            bytes += of.psize.0;
            if bytes > AHEAD && !wanted.is_empty() {
                left = Some(n);
                break;
            }
            wanted.push(of);
        }
        wanted.sort_unstable_by_key(|of| (of.vdev, of.offset));
        let there = self.ahead.entry(row).or_default();
        there.clear();
        // A single block is read with its surroundings.
        if wanted.len() < 2 {
            return left;
        }
        for some in wanted.chunks(TOGETHER) {
            if stops() {
                break;
            }
            let fetched = Arc::new(tree.fetch_over(some, false, GAP, request));
            there.extend(some.iter().map(|of| ((of.vdev, of.offset), Arc::clone(&fetched))));
        }
        left
    }

    /// The reads around blocks.
    pub(crate) fn all(&self) -> impl Iterator<Item = Arc<Fetched>> {
        self.around.iter().map(|(_, fetched)| Arc::clone(fetched))
    }
}
