//! Writing what devices are known to have missed, of many blocks together.
//!
//! # Theory
//! A resilver or rebuild knows the right bytes of one block after the other. If each were written
//! by itself, the device would do thousands of small writes in sequence. So
//! [`Tree::lay_out_missed`] lays out what is missed of a block, and writes nothing.
//! [`Tree::refill`] joins the pieces of many blocks into runs. It writes them in the order of
//! offsets, all devices at once.
//!
//! A raidz leaves sectors between blocks that belong to the one before and hold nothing. They are
//! filled with zeros, so that a run does not end there.
//!
//! # Life
//! If a run is refused, its pieces are tried one by one. A piece that is refused is known by its
//! block, and its device is named in [`RepairOutcome::behind`].
//!
//! # Locks
//! None. The caller keeps the blocks from being freed from when they are read until they are
//! written.
//!
//! # See
//! OpenZFS `vdev_queue_aggregate`, `vdev_raidz_io_start_write` (its optional writes of skipped
//! sectors).

use device::Block;
use ondisk::{Txg, VdevId};

use super::{Laid, MAX_VISITS, PADDING, Part, Refused, RepairOutcome, Run, join};
use crate::Result;
use crate::request::Request;
use crate::tree::{Layout, Tree};

impl Tree {
    /// Lays out what devices are known to have missed of a block, and nothing else. Writes nothing.
    ///
    /// Missing devices that lack the block are named in the result. `good` are its right bytes,
    /// `birth` its physical birth.
    ///
    /// # Errors
    /// * Those of [`Tree::lay_out`], for any part of the block.
    /// * [`VdevError::Unmapped`](crate::VdevError::Unmapped): the vdev was removed, and its mapping
    ///   does not lead to the block.
    pub fn lay_out_missed(
        &self,
        vdev: VdevId,
        offset: u64,
        good: &Block,
        birth: Txg,
    ) -> Result<(Vec<Laid>, RepairOutcome)> {
        let (mut all, mut done) = (Vec::new(), RepairOutcome::default());
        for (at, vdev, offset, len) in self.parts_of(vdev, offset, good.len())? {
            let mut laid = match len == good.len() {
                true => self.lay_out(vdev, offset, good, birth)?,
                false => self.lay_part(vdev, offset, &good[at..at + len], birth)?,
            };
            self.name_absent(&laid, &mut done);
            self.pad(&mut laid, len, birth);
            laid.pieces.retain(|piece| self.piece_missed(piece, birth));
            all.push(laid);
        }
        Ok((all, done))
    }

    /// Adds zeros for the sectors that a raidz leaves behind a block.
    pub(super) fn pad(&self, laid: &mut Laid, len: usize, birth: Txg) {
        let Ok(top) = self.top(laid.vdev) else { return };
        let node = self.node(top);
        let Layout::Raidz(raidz) = &node.layout else { return };
        let sector = 1usize << node.ashift().0;
        let absent = laid.absent.len();
        for (child, offset) in raidz.skipped(laid.offset, len as u64, birth) {
            let part = Part { column: PADDING, bytes: &Block::zeroed(sector), range: 0..sector };
            self.place(laid, node.children[child], None, offset, &part, &mut { MAX_VISITS });
        }
        // A piece that holds nothing can't be missed.
        laid.absent.truncate(absent);
    }

    /// Writes what devices lack of these blocks, each device in the order of offsets and all
    /// devices at once. Returns the outcome of each block, in order.
    pub fn refill(&self, laid: &[Laid], request: &Request) -> Vec<RepairOutcome> {
        let mut done: Vec<RepairOutcome> = laid
            .iter()
            .map(|l| {
                let held = l.pieces.iter().filter(|piece| piece.column != PADDING);
                let repaired = held.map(|piece| piece.range.len() as u64).sum();
                RepairOutcome { repaired, ..RepairOutcome::default() }
            })
            .collect();
        let mut runs = join(laid);
        runs.sort_by_key(Run::place);
        let devices: Vec<&[Run]> = runs.chunk_by(|a, b| a.place().0 == b.place().0).collect();
        let write =
            |runs: &[Run]| runs.iter().flat_map(|run| self.fill_run(run, request)).collect::<Vec<_>>();
        let write = &write;
        let refused: Vec<Refused> = std::thread::scope(|scope| {
            let mut devices = devices.into_iter();
            let first = devices.next();
            let spawn = |runs| scope.spawn(move || write(runs));
            let others: Vec<_> = devices.map(spawn).collect();
            let first = first.map_or_else(Vec::new, write);
            let others = others.into_iter().flat_map(|t| t.join().expect("a panic ends the program"));
            first.into_iter().chain(others).collect()
        });
        for Refused { block, leaf, account, len, .. } in refused.into_iter().filter(|r| r.column != PADDING) {
            let one = &mut done[block];
            one.repaired -= len as u64;
            one.refused += 1;
            one.behind.extend([self.node(leaf).guid, self.node(account).guid]);
        }
        done
    }

    fn fill_run(&self, run: &Run, request: &Request) -> Vec<Refused> {
        let refused = self.issue(run, request);
        let arrived = run.bytes() - refused.iter().map(|r| r.len).sum::<usize>();
        let stats = &self.node(run.place().0).stats;
        stats.self_healed.add(arrived as u64);
        stats.scan_repaired.add(arrived as u64);
        refused
    }
}

#[cfg(test)]
mod tests;
