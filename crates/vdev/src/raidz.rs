//! RAID-Z: a block in columns over all children, with its parity.
//!
//! # Theory
//! A raidz vdev's space is counted in sectors that go round the children: sector s is on child s
//! mod width, at s / width. A block begins at any sector. Its first sectors are parity, and its
//! data follow column by column. So each column is one contiguous range of one child, and the last
//! columns may be one sector shorter. A block's space is padded to a multiple of (parity + 1)
//! sectors, so that no unusable gap is left.
//!
//! With single parity, the first two columns change places where bit 20 of the offset is set. This
//! was meant to spread the parity, and is part of the format.
//!
//! # Expansion
//! A child can be added. All sectors, parity included, are then copied ("reflowed") to their places
//! in the new width. The number of a sector stays, and its place changes.
//!
//! A block keeps the width that it was written with, its *logical* width, which follows from its
//! birth. A row of such a block is no longer at one height on each child, so an old block is mapped
//! sector by sector.
//!
//! While the copying is under way, rows that lie wholly before the copied offset are at the new
//! place, others at the old one. At the start, the first rows may be in the scratch area before the
//! vdev's space instead.
//!
//! # See
//! OpenZFS `vdev_raidz_map_alloc`, `vdev_raidz_map_alloc_expanded`, `raidz_simulate_failure`.

use observe::lock::RwLock;

use ondisk::label::BOOT_SIZE;
use ondisk::{Ashift, Txg};

use crate::columns::{Col, Map};
use crate::parity::MAX_PARITY;
use crate::{Result, VdevConfig, VdevError};

/// Most children: the field has no more distinct powers.
const MAX_CHILDREN: usize = 255;

/// How far an expansion has copied (`ub_raidz_reflow_info`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reflow {
    /// Bytes of the vdev's space that are at their new place (`RRSS_GET_OFFSET`).
    pub offset: u64,
    /// These bytes are still in the scratch area (`RRSS_SCRATCH_VALID`).
    pub in_scratch: bool,
}

/// Geometry of a raidz vdev.
pub(crate) struct Raidz {
    pub(crate) nparity: usize,
    /// Children now.
    pub(crate) width: u64,
    /// Children when the vdev was created.
    pub(crate) original: u64,
    ashift: u8,
    /// The txg from which each logical width applies, in rising order.
    widths: Vec<(u64, u64)>,
    expanding: bool,
    reflow: RwLock<Reflow>,
}

impl Raidz {
    /// Checks a configuration. The sectors are those of its top-level vdev, which may be another.
    pub(crate) fn new(spec: &VdevConfig, ashift: Ashift) -> Result<Self> {
        let config = |field, value| VdevError::Config { guid: spec.guid, field, value };
        let children = spec.children.len();
        if children > MAX_CHILDREN {
            return Err(config("children", children as u64));
        }
        // Before version 8 there was no other parity, and none was recorded.
        let parity = spec.nparity.unwrap_or(1);
        let nparity = usize::try_from(parity)
            .ok()
            .filter(|p| (1..=MAX_PARITY).contains(p))
            .ok_or(config("nparity", parity))?;
        let txgs = &spec.raidz_expand_txgs;
        if !txgs.is_sorted_by(|a, b| a < b) {
            return Err(config("raidz_expand_txgs", txgs.len() as u64));
        }
        let grown = txgs.len() + usize::from(spec.raidz_expanding);
        // At least one data column, in the beginning too.
        if children < nparity + 1 + grown {
            return Err(config("children", children as u64));
        }
        let (width, original) = (children as u64, (children - grown) as u64);
        let widths = txgs.iter().zip(original + 1..).map(|(txg, w)| (txg.0, w)).collect();
        // Until the uberblock's state is set, nothing counts as copied.
        let offset = if spec.raidz_expanding { 0 } else { u64::MAX };
        Ok(Self {
            nparity,
            width,
            original,
            ashift: ashift.0,
            widths,
            expanding: spec.raidz_expanding,
            reflow: RwLock::new(Reflow { offset, in_scratch: false }),
        })
    }

    /// How far its expansion has copied, as last set.
    pub(crate) fn reflow(&self) -> Reflow {
        *self.reflow.read()
    }

    /// Sets how far an expansion has copied. Has no effect on a vdev that isn't being expanded.
    pub(crate) fn set_reflow(&self, reflow: Reflow) {
        if self.expanding {
            *self.reflow.write() = reflow;
        }
    }

    /// Whether a child is being added.
    pub(crate) fn is_expanding(&self) -> bool {
        self.expanding
    }

    /// The width that blocks born in `birth` were written with (`vdev_raidz_get_logical_width`).
    fn logical_width(&self, birth: Txg) -> u64 {
        let later = self.widths.partition_point(|(txg, _)| *txg <= birth.0);
        if later == 0 { self.original } else { self.widths[later - 1].1 }
    }

    /// The bytes of a child that a range covers, if any (`vdev_raidz_xlate`).
    ///
    /// Of the range's whole sectors these are the ones whose number is the child's, modulo the
    /// width.
    pub(crate) fn child_run(&self, child: u64, start: u64, end: u64) -> Option<(u64, u64)> {
        let first = start.div_ceil(1 << self.ashift);
        let last = end >> self.ashift;
        // How many of the child's sectors have a lower number.
        let before = |sector: u64| sector.saturating_sub(child).div_ceil(self.width);
        let (first, last) = (before(first), before(last));
        (first < last).then(|| (first << self.ashift, last << self.ashift))
    }

    /// Bytes that a block takes, parity and padding included (`vdev_raidz_psize_to_asize`).
    pub(crate) fn asize(&self, psize: u64, birth: Txg) -> u64 {
        let (nparity, width) = (self.nparity as u64, self.logical_width(birth));
        let data = psize.div_ceil(1 << self.ashift);
        let sectors = data + nparity * data.div_ceil(width - nparity);
        sectors.next_multiple_of(nparity + 1) << self.ashift
    }

    /// The sectors behind a block of `size` bytes that belong to it and hold nothing: child and
    /// offset. For blocks of an earlier width, none.
    pub(crate) fn skipped(&self, offset: u64, size: u64, birth: Txg) -> impl Iterator<Item = (usize, u64)> {
        let (ndata, nparity) = (self.width - self.nparity as u64, self.nparity as u64);
        let data = size.div_ceil(1 << self.ashift);
        let first = offset >> self.ashift;
        let held = first + data + nparity * data.div_ceil(ndata);
        let told = self.logical_width(birth) == self.width && !self.expanding;
        let end = if told { first + (self.asize(size, birth) >> self.ashift) } else { held };
        (held..end).map(|s| ((s % self.width) as usize, (s / self.width) << self.ashift))
    }

    /// The columns of a block of `size` bytes at `offset`, both whole sectors.
    pub(crate) fn map(&self, offset: u64, size: u64, birth: Txg) -> Map {
        let logical = self.logical_width(birth);
        let mut map = if logical == self.width {
            self.plain(offset, size)
        } else {
            let reflow = *self.reflow.read();
            self.reflowed(offset, size, logical, reflow)
        };
        if self.nparity == 1 && offset & (1 << 20) != 0 {
            for row in map.cols.chunks_mut(map.width) {
                if let [first, second, ..] = row {
                    std::mem::swap(&mut first.child, &mut second.child);
                    std::mem::swap(&mut first.offset, &mut second.offset);
                }
            }
        }
        map
    }

    /// A block of the current width: one row, whose columns are several sectors high.
    fn plain(&self, offset: u64, size: u64) -> Map {
        let (ashift, nparity) = (self.ashift, self.nparity as u64);
        let sectors = size >> ashift;
        let first = offset >> ashift;
        let height = sectors / (self.width - nparity);
        let rest = sectors % (self.width - nparity);
        let big = if rest == 0 { 0 } else { rest + nparity };
        let used = if height == 0 { big } else { self.width };
        let mut at = 0;
        let cols = (0..used)
            .map(|c| {
                let size = ((height + u64::from(c < big)) << ashift) as usize;
                let begin = at;
                if c >= nparity {
                    at += size;
                }
                let sector = first + c;
                // A column that passes the last child begins one sector further down.
                let down = (first / self.width + u64::from(first % self.width + c >= self.width)) << ashift;
                Col { child: (sector % self.width) as usize, offset: down, size, at: begin }
            })
            .collect();
        Map { nparity: self.nparity, width: used as usize, cols }
    }

    /// A block of an earlier width, sector by sector.
    fn reflowed(&self, offset: u64, size: u64, logical: u64, reflow: Reflow) -> Map {
        let (ashift, nparity) = (self.ashift, self.nparity as u64);
        let sector_size = 1usize << ashift;
        let sectors = size >> ashift;
        let ndata = logical - nparity;
        let (full, rest) = (sectors / ndata, sectors % ndata);
        let big = if rest == 0 { 0 } else { rest + nparity };
        let total = sectors + nparity * (full + u64::from(rest != 0));
        let rows = total.div_ceil(logical);
        let width = total.min(logical);
        let mut cols = Vec::with_capacity((rows * width) as usize);
        for row in 0..rows {
            let first = (offset >> ashift) + row * logical;
            let moved = first + width <= reflow.offset >> ashift;
            let children = if moved { self.width } else { self.width - 1 };
            let scratch = if moved && reflow.in_scratch { BOOT_SIZE } else { 0 };
            for c in 0..width {
                let sector = first + c;
                let absent = c >= nparity && row == rows - 1 && big != 0 && c >= big;
                // Data are stored column by column. The columns before this one are `rows` high, or
                // one less.
                let d = c.saturating_sub(nparity);
                let before =
                    if big == 0 || c < big { d * rows } else { rest * rows + (d - rest) * (rows - 1) };
                let place = if c < nparity || absent { 0 } else { before + row };
                cols.push(Col {
                    child: (sector % children) as usize,
                    offset: ((sector / children) << ashift).wrapping_sub(scratch),
                    size: if absent { 0 } else { sector_size },
                    at: (place as usize) << ashift,
                });
            }
        }
        Map { nparity: self.nparity, width: width as usize, cols }
    }

    /// What may have failed together: each child, and each child of each earlier width
    /// (`raidz_simulate_failure`).
    ///
    /// An expansion has since spread the sectors of the earlier widths. A suspect is (width,
    /// child). A column belongs to it when its sector number is that child modulo that width.
    pub(crate) fn suspects(&self) -> impl Iterator<Item = (u64, u64)> + use<> {
        (self.original..=self.width).rev().flat_map(|w| (0..w).map(move |child| (w, child)))
    }

    /// Whether a column belongs to a suspect.
    pub(crate) fn implicates(&self, (width, child): (u64, u64), col: &Col) -> bool {
        let sector = (col.offset >> self.ashift).wrapping_mul(self.width).wrapping_add(col.child as u64);
        sector % width == child
    }
}

#[cfg(test)]
mod tests;
