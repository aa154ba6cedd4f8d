//! Reading what leads on before it is needed, block by block.
//!
//! # Theory
//! A walk goes in the order of objects, and what it needs to get on lies in the order of the groups
//! that wrote it. Two things keep each block from being a seek. What lies around a block is read
//! with it ([`Windows::of`]): blocks of one group lie side by side. And where a block leads to many
//! that are needed next, these are read in the order of their places, all devices at once
//! ([`Windows::ahead`]): blocks of many groups lie in any order. What was read goes with the
//! request for a block, as in [`crate::scan::issue`], and what could not be read so is read by itself.
//!
//! In memory are 16 reads around a block, of 256 KiB each, and for each [`Row`] twice the 8 MiB that may be read ahead; of each as often as there are copies and parity on a vdev.
//!
//! # See
//! OpenZFS `dsl_scan_prefetch`, which reads ahead through the cache, as many at once as devices have queues for.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use ondisk::{Blkptr, Psize, VdevId};
use vdev::{Extent, Fetched, Request, Tree};

use crate::scan::issue::{AHEAD, extents};

/// Bytes that are read where something is needed that leads on: what follows it is needed next, mostly.
const WINDOW: u64 = 256 << 10;
/// Most of these reads that are kept.
const WINDOWS: usize = 16;
/// Most blocks that are read ahead without looking whether to stop.
const TOGETHER: usize = 64;
/// A gap that is read over between blocks that are read ahead. A seek costs more, and few lie nearer to each other.
const GAP: u64 = 512 << 10;

/// Whose blocks are read ahead: those of one row make room for others of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Row {
    /// Blocks of dnodes, below one block of pointers.
    Dnodes,
    /// What the objects of one block of dnodes begin with.
    Objects,
    /// Blocks of pointers, below one of them.
    Pointers,
}

/// Blocks that were read ahead, by their places.
type Ahead = BTreeMap<(VdevId, u64), Arc<Fetched>>;

/// What lies around blocks that lead on, read a moment ago, and such blocks that are needed next.
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

    /// A read in which a block is, made if there is none.
    pub(crate) fn of(&mut self, tree: &Tree, bp: &Blkptr, request: &Request) -> Option<Arc<Fetched>> {
        let of = extents(bp).next()?;
        let ahead = || self.ahead.values().find_map(|row| row.get(&(of.vdev, of.offset)));
        if let Some(fetched) = self.around(&of).or_else(ahead) {
            return Some(Arc::clone(fetched));
        }
        // Blocks of one group lie side by side, in either order.
        let near = of.offset - of.offset % WINDOW;
        let start = near - near % tree.unit_of(of.vdev);
        let psize = Psize(WINDOW.max(of.offset - start + of.psize.0));
        let extent = Extent { offset: start, psize, ..of };
        // Where no block can begin, or end, only this one is read.
        let extent = if tree.pieces_of(extent.vdev, start, psize, of.birth).is_ok() { extent } else { of };
        let fetched = Arc::new(tree.fetch(&[extent], false, request));
        if self.around.len() == WINDOWS {
            self.around.pop_front();
        }
        self.around.push_back((extent, Arc::clone(&fetched)));
        Some(fetched)
    }

    /// Reads blocks that are needed next and are not there, in the order of their places, as many as there is room for, or until it `stops`; those of this row that were read ahead before are gone.
    /// Which is the first for which there is no room, of these numbers, if there is one.
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
        // One is read with what lies around it.
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
