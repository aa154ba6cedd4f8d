//! Blocks that lie in columns with parity.
//!
//! # Theory
//! 1. The first candidate reads the data columns straight into place and no parity. If a column
//!    can't be read, or its child has missed the block's txg, just enough parity to replace it is
//!    read.
//! 2. When a candidate was wrong, every column is read and kept, stale ones too.
//! 3. Then each set of suspects is taken for wrong and computed from the rest. The sets have one
//!    member at first, then up to as many as there is parity.
//!
//! The right bytes, once known, show which columns were wrong.

use device::AlignedBuf;
use ondisk::Txg;

use super::Failure;
use crate::columns::{Col, Map};
use crate::parity;
use crate::raidz::Raidz;
use crate::read::{Copy, Unread};
use crate::request::Request;
use crate::tree::{Layout, NodeId, Tree};

/// Most candidates from sets of suspects, and most bytes of them. A wider vdev would otherwise keep
/// a reader busy for minutes over one block.
const MAX_COMBINATIONS: u64 = 100_000;
const MAX_COMBINED_BYTES: u64 = 8 << 30;
/// Most columns examined for sets of suspects, also for sets that leave nothing to try.
///
/// This is more than all sets of three of 255 children have. An expanded raidz often has so many
/// suspects that examining each set would take years.
const MAX_LOOKED: u64 = 1 << 30;
/// Columns of one child are read together when at most this many bytes lie between them
/// (`zfs_vdev_read_gap_limit`). One long read is cheaper than two, and an expanded raidz has a
/// block in many single sectors.
const GAP: u64 = 32 << 10;

/// What is known of a column.
#[derive(Debug, Default)]
enum Known {
    /// Not read yet.
    #[default]
    Unasked,
    /// Its bytes as a device gave them.
    Read(Vec<u8>, Copy),
    /// It can't be read.
    Lost,
}

/// What the next candidate comes from.
enum Stage {
    /// Data columns alone, and parity for those that fail.
    Cheap,
    /// All columns, taken as they are.
    All,
    /// A set of suspects: the numbers of its members, in rising order.
    Suspects(Vec<usize>),
    /// Nothing is left to try.
    Done,
}

/// The candidates of a block on a raidz or draid.
pub(crate) struct Stripes<'t> {
    tree: &'t Tree,
    request: &'t Request,
    children: &'t [NodeId],
    /// What an expansion may have spread; `None` for a dRAID, which can't be expanded.
    raidz: Option<&'t Raidz>,
    map: Map,
    size: usize,
    birth: Txg,
    known: Vec<Known>,
    stage: Stage,
    /// For each suspect, the columns that it covers.
    suspects: Vec<Vec<usize>>,
    /// Most suspects in a set.
    spare_parity: usize,
    tried: u64,
    /// Columns examined for sets of suspects.
    looked: u64,
    rejected: bool,
}

impl<'t> Stripes<'t> {
    pub(crate) fn new(
        (tree, request): (&'t Tree, &'t Request),
        top: NodeId,
        raidz: Option<&'t Raidz>,
        map: Map,
        size: usize,
        birth: Txg,
    ) -> Self {
        let children = &tree.node(top).children;
        Self {
            tree,
            request,
            children,
            raidz,
            map,
            size,
            birth,
            known: Vec::new(),
            stage: Stage::Cheap,
            suspects: Vec::new(),
            spare_parity: 0,
            tried: 0,
            looked: 0,
            rejected: false,
        }
    }

    pub(crate) fn next(&mut self, failure: &mut Failure) -> Option<AlignedBuf> {
        loop {
            match &mut self.stage {
                Stage::Cheap => {
                    self.stage = Stage::All;
                    if let Some(buf) = self.cheap(failure) {
                        return Some(buf);
                    }
                }
                Stage::All => {
                    self.rejected = true;
                    self.read_all(failure);
                    self.suspects = self.find_suspects();
                    // A row that has lost columns has that much less parity left for suspects.
                    let lost = |row: &[Known]| row.iter().filter(|k| matches!(k, Known::Lost)).count();
                    let worst = self.known.chunks(self.map.width).map(lost).max().unwrap_or(0);
                    self.spare_parity = self.map.nparity.saturating_sub(worst);
                    self.stage = Stage::Suspects(Vec::new());
                    if let Some(buf) = self.rebuild(&[]) {
                        return Some(buf);
                    }
                }
                Stage::Suspects(set) => {
                    let spent = self.tried * self.size as u64;
                    let more = advance(set, self.suspects.len(), self.spare_parity);
                    self.looked += self.map.cols.len() as u64;
                    let enough = self.tried >= MAX_COMBINATIONS || self.looked > MAX_LOOKED;
                    if !more || enough || spent > MAX_COMBINED_BYTES {
                        self.stage = Stage::Done;
                        continue;
                    }
                    let set = set.clone();
                    if let Some(buf) = self.rebuild(&set) {
                        self.tried += 1;
                        return Some(buf);
                    }
                }
                Stage::Done => return None,
            }
        }
    }

    /// Reads the data columns into place; on failure, parity for what is missing.
    pub(crate) fn cheap(&mut self, failure: &mut Failure) -> Option<AlignedBuf> {
        let mut buf = AlignedBuf::zeroed(self.size);
        let failed = self.read_data(&mut buf, failure);
        if failed.is_empty() {
            return Some(buf);
        }
        self.known.resize_with(self.map.cols.len(), Known::default);
        let per_row = self.map.width;
        for index in &failed {
            let row = index / per_row;
            self.known[*index] = Known::Lost;
            // As many parity columns as there are lost ones, the first that can be read.
            for p in row * per_row..row * per_row + self.map.nparity {
                if matches!(self.known[p], Known::Unasked) {
                    self.known[p] = self.read_col(p, false, failure);
                    if matches!(self.known[p], Known::Read(..)) {
                        break;
                    }
                }
            }
        }
        let rows: std::collections::BTreeSet<usize> = failed.iter().map(|i| i / per_row).collect();
        let ok = rows.into_iter().all(|row| self.fill_row(row, &mut buf));
        // A later stage may still read what a stale device has, so nothing is recorded yet.
        for index in failed {
            self.known[index] = Known::Unasked;
        }
        ok.then_some(buf)
    }

    /// Computes the lost data columns of a row whose other data columns are in `buf`.
    fn fill_row(&self, row: usize, buf: &mut [u8]) -> bool {
        let first = row * self.map.width;
        let cols = &self.map.cols[first..first + self.map.width];
        let known = &self.known[first..first + self.map.width];
        let (parity_cols, data_cols) = cols.split_at(self.map.nparity);
        let data: Vec<Option<&[u8]>> = data_cols
            .iter()
            .zip(&known[self.map.nparity..])
            .map(|(c, k)| (!matches!(k, Known::Lost)).then(|| &buf[c.at..c.at + c.size]))
            .collect();
        let parity: Vec<Option<&[u8]>> = known[..self.map.nparity].iter().map(Known::bytes).collect();
        let Some(found) = parity::recover(&data, &parity, parity_cols[0].size) else { return false };
        let lost: Vec<&Col> =
            data_cols.iter().zip(&data).filter(|(_, d)| d.is_none()).map(|(c, _)| c).collect();
        let lost: Vec<Col> = lost.into_iter().copied().collect();
        for (col, bytes) in lost.iter().zip(found) {
            buf[col.at..col.at + col.size].copy_from_slice(&bytes[..col.size]);
        }
        true
    }

    /// Reads all data columns into `buf`; returns the numbers of those that could not be read.
    fn read_data(&self, buf: &mut [u8], failure: &mut Failure) -> Vec<usize> {
        let mut failed = Vec::new();
        let mut run: Vec<usize> = Vec::new();
        let cols = &self.map.cols;
        let mut order: Vec<usize> =
            (0..cols.len()).filter(|i| !self.map.is_parity(*i) && cols[*i].size > 0).collect();
        if cols.len() > self.map.width {
            order.sort_unstable_by_key(|i| (cols[*i].child, cols[*i].offset));
        }
        for index in order {
            let near = run.last().is_some_and(|last| {
                let (last, next) = (&cols[*last], &cols[index]);
                let end = last.offset.wrapping_add(last.size as u64);
                last.child == next.child && next.offset.wrapping_sub(end) <= GAP
            });
            if !near {
                self.read_run(&run, buf, &mut failed, failure);
                run.clear();
            }
            run.push(index);
        }
        self.read_run(&run, buf, &mut failed, failure);
        failed
    }

    /// Reads neighbouring columns of one child with one read.
    fn read_run(&self, run: &[usize], buf: &mut [u8], failed: &mut Vec<usize>, failure: &mut Failure) {
        let cols = &self.map.cols;
        let (Some(first), Some(last)) = (run.first(), run.last()) else { return };
        let (first, last) = (cols[*first], cols[*last]);
        if run.len() == 1 {
            let to = &mut buf[first.at..first.at + first.size];
            if let Err(why) = self.read_child(first.child, first.offset, to, false) {
                failure.note(why);
                failed.push(run[0]);
            }
            return;
        }
        let len = last.offset.wrapping_sub(first.offset) as usize + last.size;
        let mut scratch = AlignedBuf::zeroed(len);
        if let Err(why) = self.read_child(first.child, first.offset, &mut scratch, false) {
            failure.note(why);
            // One bad sector in a run must not cost its neighbours.
            for index in run {
                self.read_run(&[*index], buf, failed, failure);
            }
            return;
        }
        for index in run {
            let col = cols[*index];
            let from = col.offset.wrapping_sub(first.offset) as usize;
            buf[col.at..col.at + col.size].copy_from_slice(&scratch[from..from + col.size]);
        }
    }

    /// Reads a range of a child from its best copy. Reads from a stale copy only if `stale` allows
    /// it.
    fn read_child(
        &self,
        child: usize,
        offset: u64,
        buf: &mut [u8],
        stale: bool,
    ) -> std::result::Result<Copy, Unread> {
        let (leaf, mut why) = (self.children[child], Unread::NoDevice);
        let node = self.tree.node(leaf);
        if matches!(node.layout, Layout::Leaf(_)) {
            // Nearly every child is a device: nothing to choose, nothing to allocate.
            let copy = Copy { leaf, stale: node.missed(self.birth) };
            if !node.readable() || copy.stale && !stale {
                return Err(why);
            }
            return self.tree.read_leaf(leaf, offset, buf, self.request).map(|()| copy);
        }
        for copy in self.tree.copies(self.children[child], offset, self.birth) {
            if copy.stale && !stale {
                break;
            }
            match self.tree.read_leaf(copy.leaf, offset, buf, self.request) {
                Ok(()) => return Ok(copy),
                Err(e) => why = e,
            }
        }
        Err(why)
    }

    fn read_col(&self, index: usize, stale: bool, failure: &mut Failure) -> Known {
        let col = self.map.cols[index];
        let mut bytes = vec![0; col.size];
        match self.read_child(col.child, col.offset, &mut bytes, stale) {
            Ok(copy) => Known::Read(bytes, copy),
            Err(why) => {
                failure.note(why);
                Known::Lost
            }
        }
    }

    /// Reads every column that has not been read. Forgets the failures noted so far, so that the
    /// count is of columns and not of tries.
    fn read_all(&mut self, failure: &mut Failure) {
        self.known.resize_with(self.map.cols.len(), Known::default);
        failure.unread = self.known.iter().filter(|k| matches!(k, Known::Lost)).count() as u32;
        for index in 0..self.known.len() {
            if matches!(self.known[index], Known::Unasked) && self.map.cols[index].size > 0 {
                self.known[index] = self.read_col(index, true, failure);
            }
        }
    }

    /// The sets of columns that may have failed together.
    fn find_suspects(&self) -> Vec<Vec<usize>> {
        let read = |i: &usize| matches!(self.known[*i], Known::Read(..));
        let all = || (0..self.map.cols.len()).filter(read);
        let sets: Vec<Vec<usize>> = match self.raidz {
            Some(raidz) => raidz
                .suspects()
                .map(|s| all().filter(|i| raidz.implicates(s, &self.map.cols[*i])).collect())
                .collect(),
            None => (0..self.children.len())
                .map(|child| all().filter(|i| self.map.cols[*i].child == child).collect())
                .collect(),
        };
        sets.into_iter().filter(|s: &Vec<usize>| !s.is_empty()).collect()
    }

    /// The block, when the columns of the suspects in `set` are taken for wrong. `None` when a row
    /// loses more than its parity, or when the set changes nothing.
    fn rebuild(&self, set: &[usize]) -> Option<AlignedBuf> {
        let mut doubted = vec![false; self.map.cols.len()];
        for index in set.iter().flat_map(|s| &self.suspects[*s]) {
            doubted[*index] = true;
        }
        // Suspecting parity alone gives the same data as no suspicion, unless lost columns are
        // computed from it.
        let lost =
            |i: usize| !self.map.is_parity(i) && self.map.cols[i].size > 0 && self.known[i].bytes().is_none();
        let all = 0..doubted.len();
        if !set.is_empty()
            && !all.clone().any(lost)
            && all.clone().all(|i| !doubted[i] || self.map.is_parity(i))
        {
            return None;
        }
        let mut buf = AlignedBuf::zeroed(self.size);
        for (row, cols) in self.map.rows().enumerate() {
            let first = row * self.map.width;
            let bytes = |c: usize| self.known[first + c].bytes().filter(|_| !doubted[first + c]);
            let parity: Vec<_> = (0..self.map.nparity).map(bytes).collect();
            let data: Vec<_> = (self.map.nparity..cols.len())
                .map(|c| if cols[c].size == 0 { Some(&[][..]) } else { bytes(c) })
                .collect();
            let mut found = parity::recover(&data, &parity, cols[0].size)?.into_iter();
            for (col, bytes) in cols[self.map.nparity..].iter().zip(&data) {
                let to = &mut buf[col.at..col.at + col.size];
                match bytes {
                    Some(bytes) => to.copy_from_slice(bytes),
                    None => {
                        let bytes = found.next().expect("each lost column was recovered");
                        to.copy_from_slice(&bytes[..col.size]);
                    }
                }
            }
        }
        Some(buf)
    }

    pub(crate) fn settle(self, good: Option<&[u8]>) {
        // The first candidate was right, or no further one was requested. So no device is under
        // suspicion.
        if !self.rejected {
            return;
        }
        let wrong = |index: usize, right: Option<&[u8]>| match &self.known[index] {
            Known::Read(bytes, copy) if !copy.stale && right.is_none_or(|r| r != &bytes[..]) => {
                Some(copy.leaf)
            }
            _ => None,
        };
        let charge = |leaf: Option<NodeId>| {
            if let Some(leaf) = leaf {
                self.tree.lied(leaf, None);
            }
        };
        let Some(good) = good else {
            // It can't be known which of them is wrong, so all count an error.
            (0..self.known.len()).for_each(|i| charge(wrong(i, None)));
            return;
        };
        // The caller's block may end before its last sector does.
        let mut block = AlignedBuf::zeroed(self.size);
        block[..good.len()].copy_from_slice(good);
        for (row, cols) in self.map.rows().enumerate() {
            let first = row * self.map.width;
            let data: Vec<&[u8]> =
                cols[self.map.nparity..].iter().map(|c| &block[c.at..c.at + c.size]).collect();
            let mut parity = vec![vec![0; cols[0].size]; self.map.nparity];
            parity::generate(&data, &mut parity);
            let right = parity.iter().map(Vec::as_slice).chain(data);
            for (c, right) in right.enumerate() {
                charge(wrong(first + c, Some(right)));
            }
        }
    }
}

impl Known {
    fn bytes(&self) -> Option<&[u8]> {
        match self {
            Known::Read(bytes, _) => Some(bytes),
            Known::Unasked | Known::Lost => None,
        }
    }
}

/// Turns `set` into the next set of numbers below `n`: all sets of one, then of two, up to `most`
/// members.
fn advance(set: &mut Vec<usize>, n: usize, most: usize) -> bool {
    let k = set.len();
    // The last member that can still rise takes those behind it along.
    if let Some(i) = (0..k).rev().find(|i| set[*i] + (k - i) < n) {
        let base = set[i] + 1;
        for (j, member) in set[i..].iter_mut().enumerate() {
            *member = base + j;
        }
        return true;
    }
    *set = (0..k + 1).collect();
    k < most && k < n
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: every set of up to three of five comes up once, small sets first.
    #[test]
    fn sets_are_complete() {
        let (mut set, mut all) = (Vec::new(), Vec::new());
        while advance(&mut set, 5, 3) {
            all.push(set.clone());
        }
        assert_eq!(all.len(), 5 + 10 + 10);
        assert!(all.is_sorted_by_key(|s: &Vec<usize>| (s.len(), s.clone())));
        assert!(!advance(&mut Vec::new(), 0, 3));
    }
}
