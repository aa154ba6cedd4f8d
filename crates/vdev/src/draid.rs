//! dRAID: groups of columns, permuted over all children, with spare space distributed among them.
//!
//! # Theory
//! * A *row* is 16 MiB of every child at one height.
//! * A *group* is as many columns as a stripe has (data and parity), each 16 MiB high. Groups
//!   follow one another over the children that are not spare, and wrap onto the next row.
//! * A *slice* is `ngroups` groups: after these, rows and groups end together.
//!
//! In each slice a permutation gives the order of the children. So the columns that would be spares
//! are on other children each time. A distributed spare is a column that is never used: one of the
//! last of each permutation.
//!
//! A block always takes whole stripes. Sectors at the end that it doesn't need are written as zeros
//! and count in the parity. A block that reaches the end of its group continues in the next, and
//! then has two rows.
//!
//! # On disk
//! The permutations are part of the format. Each is the one before it, shuffled (Fisher and Yates)
//! with the generator xoroshiro128++. The generator's seed is fixed for each number of children
//! ([`seeds`]). A sum over all permutations proves that they are right. Each permutation is used
//! `children` times, each time shifted by one child.
//!
//! # See
//! OpenZFS `vdev_draid.c`, `vdev_draid_rand.c`.

mod seeds;

use crate::columns::{Col, Map};
use crate::parity::MAX_PARITY;
use crate::{Result, VdevConfig, VdevError};

use seeds::{MAX_CHILDREN, MIN_CHILDREN, SEEDS};

/// Height of a row, in bytes (`VDEV_DRAID_ROWHEIGHT`).
pub const ROW_HEIGHT: u64 = 16 << 20;
/// Bytes of each child kept for a later expansion (`VDEV_DRAID_REFLOW_RESERVE`).
pub const REFLOW_RESERVE: u64 = 2 * ROW_HEIGHT;
/// First half of the generator's seed (`VDEV_DRAID_SEED`).
const SEED: u64 = 0xd_7a1d_5eed;

/// Geometry of a draid vdev.
pub(crate) struct Draid {
    pub(crate) nparity: usize,
    ndata: u64,
    nspares: u64,
    ngroups: u64,
    children: u64,
    ashift: u8,
    permutations: Vec<u8>,
}

impl Draid {
    /// Checks a configuration and generates its permutations.
    pub(crate) fn new(spec: &VdevConfig) -> Result<Self> {
        let config = |field, value| VdevError::Config { guid: spec.guid, field, value };
        let children = spec.children.len();
        if !(MIN_CHILDREN..=MAX_CHILDREN).contains(&children) {
            return Err(config("children", children as u64));
        }
        let parity = spec.nparity.unwrap_or(0);
        let nparity = usize::try_from(parity)
            .ok()
            .filter(|p| (1..=MAX_PARITY).contains(p))
            .ok_or(config("nparity", parity))?;
        let shape = spec.draid.ok_or(config("draid_ndata", 0))?;
        if shape.ndata == 0 || shape.ndata > children as u64 {
            return Err(config("draid_ndata", shape.ndata));
        }
        if shape.nspares > children as u64 || shape.ndata + parity + shape.nspares > children as u64 {
            return Err(config("draid_nspares", shape.nspares));
        }
        let group = shape.ndata + parity;
        let ndisks = children as u64 - shape.nspares;
        let even = (group * shape.ngroups.min(1 << 32)).is_multiple_of(ndisks);
        if shape.ngroups == 0 || shape.ngroups > MAX_CHILDREN as u64 || !even {
            return Err(config("draid_ngroups", shape.ngroups));
        }
        Ok(Self {
            nparity,
            ndata: shape.ndata,
            nspares: shape.nspares,
            ngroups: shape.ngroups,
            children: children as u64,
            ashift: spec.ashift.unwrap_or_default().0,
            permutations: permutations(children),
        })
    }

    /// Columns of a group.
    fn group_width(&self) -> u64 {
        self.ndata + self.nparity as u64
    }

    /// Children that a row uses.
    pub(crate) fn ndisks(&self) -> u64 {
        self.children - self.nspares
    }

    /// Bytes of the vdev's space in a group.
    fn group_size(&self) -> u64 {
        self.group_width() * ROW_HEIGHT
    }

    /// Smallest allocation: one sector of each data column (`vdev_draid_min_alloc`).
    pub(crate) fn min_alloc(&self) -> u64 {
        self.ndata << self.ashift
    }

    /// How many distributed spares it has.
    pub(crate) fn nspares(&self) -> u64 {
        self.nspares
    }

    /// Smallest size of a child, when the whole vdev has `asize` bytes (`vdev_draid_min_asize`).
    pub(crate) fn min_child_asize(&self, asize: u64) -> u64 {
        REFLOW_RESERVE + asize.div_ceil(self.ndisks())
    }

    /// Bytes that a block takes: whole stripes (`vdev_draid_psize_to_asize`).
    pub(crate) fn asize(&self, psize: u64) -> u64 {
        (psize.div_ceil(self.ndata << self.ashift) * self.group_width()) << self.ashift
    }

    /// Bytes of data that fit in whole stripes of `asize` bytes of the vdev's space
    /// (`vdev_draid_asize_to_psize`).
    pub(crate) fn psize(&self, asize: u64) -> u64 {
        asize / self.group_width() * self.ndata
    }

    /// How many of `asize` bytes, from where a stripe begins, are handled at once: within one
    /// group, and about `segment` bytes of each child (`vdev_draid_rebuild_asize`).
    pub(crate) fn stretch(&self, start: u64, asize: u64, segment: u64) -> u64 {
        let most = (ondisk::SPA_MAXBLOCKSIZE / self.ndata).min(segment) >> self.ashift;
        let most = (most.max(1) * self.group_width()) << self.ashift;
        let left = self.group_size() - start % self.group_size();
        asize.min(most).min(left)
    }

    /// The child at a place of a permutation (`vdev_draid_get_perm`, `vdev_draid_permute_id`).
    fn child(&self, permutation: u64, place: u64) -> u64 {
        let n = self.permutations.len() as u64 / self.children;
        let turn = permutation % (n * self.children);
        let base = (turn / self.children * self.children + place) as usize;
        (u64::from(self.permutations[base]) + turn % self.children) % self.children
    }

    /// The child that holds the byte at `offset` of a distributed spare
    /// (`vdev_draid_spare_get_child`).
    pub(crate) fn spare_child(&self, spare: u64, offset: u64) -> usize {
        let slice = self.group_size() * self.ngroups / self.ndisks();
        self.child(offset / slice, self.children - 1 - spare) as usize
    }

    /// Bytes of the vdev's space in a stripe that is one sector high.
    pub(crate) fn stripe(&self) -> u64 {
        self.group_width() << self.ashift
    }

    /// Bytes of data that fit in a row.
    pub(crate) fn row(&self) -> u64 {
        self.psize(self.ndisks() * ROW_HEIGHT)
    }

    /// Whether a block can begin at `offset`: stripes are whole.
    pub(crate) fn aligned(&self, offset: u64) -> bool {
        offset.is_multiple_of(self.stripe())
    }

    /// Calls `each` with the bytes of a child that a range covers (`vdev_draid_xlate`).
    ///
    /// In each group that the child is in, these are one contiguous run: a sector for each whole
    /// stripe.
    pub(crate) fn child_runs(&self, child: u64, start: u64, end: u64, each: &mut dyn FnMut(u64, u64)) {
        let stripe = self.stripe();
        let end = end / stripe * stripe;
        let mut at = start.next_multiple_of(stripe);
        while at < end {
            let here = (self.group_size() - at % self.group_size()).min(end - at);
            let mut first = Vec::with_capacity(self.group_width() as usize);
            self.push_row(&mut first, at, self.ndata << self.ashift, 0);
            let height = here / self.group_width();
            for col in first.iter().filter(|col| col.child as u64 == child) {
                each(col.offset, col.offset + height);
            }
            at += here;
        }
    }

    /// The columns of a block of `size` bytes (whole sectors) at `offset`, where a stripe begins.
    pub(crate) fn map(&self, offset: u64, size: u64) -> Map {
        let width = self.group_width() as usize;
        let mut map = Map { nparity: self.nparity, width, cols: Vec::with_capacity(2 * width) };
        let (mut offset, mut size, mut at) = (offset, size, 0);
        while size > 0 {
            let left = self.group_size() - offset % self.group_size();
            let row = size.min(left / self.group_width() * self.ndata);
            self.push_row(&mut map.cols, offset, row, at);
            at += row as usize;
            size -= row;
            offset += left;
        }
        map
    }

    fn push_row(&self, cols: &mut Vec<Col>, offset: u64, size: u64, at: usize) {
        let (ashift, nparity, width) = (self.ashift, self.nparity as u64, self.group_width());
        let ndisks = self.ndisks();
        let group = offset / self.group_size();
        let start = group * width % ndisks;
        let permutation = group / self.ngroups;
        // Rows before this slice, and rows before this group within it.
        let row = permutation * (width * self.ngroups / ndisks) + group % self.ngroups * width / ndisks;
        let stripe = offset % self.group_size() / width;
        let top = row * ROW_HEIGHT + stripe;
        let sectors = size >> ashift;
        let (height, rest) = (sectors / self.ndata, sectors % self.ndata);
        let big = if rest == 0 { 0 } else { rest + nparity };
        let mut at = at;
        for c in 0..width {
            let size = ((height + u64::from(c < big)) << ashift) as usize;
            let place = start + c;
            let wrapped = if place >= ndisks { ROW_HEIGHT } else { 0 };
            cols.push(Col {
                child: self.child(permutation, place % ndisks) as usize,
                offset: top + wrapped,
                size,
                at: if c < nparity { 0 } else { at },
            });
            if c >= nparity {
                at += size;
            }
        }
    }
}

/// All permutations of so many children, one after another (`vdev_draid_generate_perms`).
fn permutations(children: usize) -> Vec<u8> {
    let (seed, sum) = SEEDS[children - MIN_CHILDREN];
    let count = if children < 32 { 256 } else { 512 };
    let mut state = [SEED, seed];
    let mut row: Vec<u8> = (0..children).map(|i| i as u8).collect();
    let mut all = Vec::with_capacity(count * children);
    for _ in 0..count {
        for last in (1..children).rev() {
            let other = xoroshiro(&mut state) % (last as u64 + 1);
            row.swap(last, other as usize);
        }
        all.extend_from_slice(&row);
    }
    let found: u64 = all.as_chunks::<4>().0.iter().map(|w| u64::from(u32::from_le_bytes(*w))).sum();
    assert_eq!(found, sum, "the permutations of {children} children are part of the format");
    all
}

/// The next number of xoroshiro128++.
fn xoroshiro(state: &mut [u64; 2]) -> u64 {
    let [a, b] = *state;
    let out = a.wrapping_add(b).rotate_left(17).wrapping_add(a);
    let mix = a ^ b;
    *state = [a.rotate_left(49) ^ mix ^ (mix << 21), mix.rotate_left(28)];
    out
}

#[cfg(test)]
mod tests;
