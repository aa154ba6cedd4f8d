//! The chain in memory: its blocks from the header's on, and which of them are durable.

use super::waiting::Waiting;
use crate::tunables::{COMMIT_TIMEOUT_PCT, MAXBLOCKSIZE};
use observe::event::{self, ZilWrite};
use observe::lock::MutexGuard;
use ondisk::{Blkptr, Txg};
use std::collections::VecDeque;
use std::thread::Thread;
use std::time::{Duration, Instant};

/// Number of transaction groups that can be distinguished at a time (`TXG_SIZE`).
const TXG_SIZE: usize = 4;
/// Number of bursts that the size of the next block is predicted from (`ZIL_BURSTS`).
const BURSTS: usize = 8;
/// After this many writes the best time has moved half-way to the usual one.
const FORGET: u32 = 64;
/// Most writes of log blocks in flight at a time.
const MAX_FLIGHTS: usize = 16;
/// Smallest log block, and the largest possible one (`ZIL_MIN_BLKSZ`, `SPA_OLD_MAXBLOCKSIZE`).
pub(super) const MIN_BLOCK: u64 = 4096;
pub(super) const MAX_BLOCK: u64 = 128 << 10;

/// The state of a log block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BlockState {
    /// Allocated and empty.
    Next,
    /// Being written.
    Flying,
    /// On the devices.
    Durable,
    /// Not on the devices; no commit relies on it.
    Failed,
}

/// A block of the chain (`lwb_t`).
#[derive(Debug)]
pub(super) struct ChainBlock {
    pub(super) bp: Blkptr,
    /// The txg that allocated the block.
    pub(super) alloc_txg: Txg,
    /// The newest txg that has a record in the block.
    pub(super) max_txg: Txg,
    pub(super) state: BlockState,
}

/// Blocks that are written together.
#[derive(Debug)]
struct Flight {
    id: u64,
    /// The take whose last record is in this flight, or in an earlier one.
    take: u64,
    /// Whether the flight has landed, and if so, whether it succeeded.
    landed: Option<bool>,
    since: Instant,
}

/// The chain: see the module.
#[derive(Debug, Default)]
pub(super) struct Chain {
    pub(super) guid: [u64; 2],
    pub(super) blocks: VecDeque<ChainBlock>,
    /// The block that the object set's header points at.
    pub(super) header: Option<Blkptr>,
    /// Number of the last record.
    pub(super) lr_seq: u64,
    /// The last take that is in log blocks, including those being written.
    pub(super) taken: u64,
    /// The last take that is durable together with all earlier ones.
    pub(super) durable: u64,
    /// The last take that may be missing from the log: its committers wait for their txg.
    pub(super) lost: u64,
    /// No block can be added: the chain ends where writing failed, until it is gone.
    pub(super) broken: bool,
    /// The log is to be removed with the next txg.
    pub(super) closing: bool,
    /// The log went without a sync ([`super::Zilog::leave`]).
    pub(super) left: bool,
    /// The dataset uses the feature `zilsaxattr` for the chain.
    pub(super) has_sa_xattrs: bool,
    /// A thread is filling blocks.
    pub(super) issuing: bool,
    /// The threads that wait for any of this.
    pub(super) waiting: Waiting,
    flights: VecDeque<Flight>,
    last_flight: u64,
    /// By txg: flights whose blocks point at blocks of that txg.
    in_flight: [usize; TXG_SIZE],
    last_issue: Option<Instant>,
    /// What a write takes, recently and at its best.
    latency: Duration,
    best: Duration,
    bursts: [u64; BURSTS],
    burst: usize,
}

impl Chain {
    /// Whether the next write should begin now. If not, returns how long to wait at most.
    ///
    /// With nothing in flight it begins at once. Otherwise it waits a while, in which other commits
    /// may join.
    ///
    /// Parallel writes help only if the devices work in parallel. So the wait has two parts. One is
    /// a share of the best write time (`zfs_commit_timeout_pct`). The other is the recent write
    /// time minus the best one, which a write spent behind others. Devices without a queue then
    /// have ten writes in flight. Devices that write one after another have two, one of them
    /// queued.
    pub(super) fn due(&self, now: Instant) -> Result<(), Option<Duration>> {
        let flying = self.flights.iter().filter(|f| f.landed.is_none()).count();
        let Some(last) = self.last_issue.filter(|_| flying > 0) else { return Ok(()) };
        if flying >= MAX_FLIGHTS {
            return Err(None);
        }
        let queued = self.latency.saturating_sub(self.best);
        // A single flight has not waited for another of ours. If others keep the device busy, the
        // next write must still be able to queue behind it.
        let queued = if flying == 1 { queued.min(self.best) } else { queued };
        let others = self.best.saturating_mul(pct(&COMMIT_TIMEOUT_PCT)) / 100;
        match queued.saturating_add(others).checked_sub(now.saturating_duration_since(last)) {
            None | Some(Duration::ZERO) => Ok(()),
            left => Err(left),
        }
    }

    /// The size of the next block, predicted from recent commits.
    pub(super) fn guess(&self) -> u64 {
        block_size(self.bursts.iter().copied().max().unwrap_or(0))
    }

    /// Notes how much one commit wanted to write, including the headers of the blocks.
    pub(super) fn note_burst(&mut self, bytes: u64) {
        self.bursts[self.burst % BURSTS] = bytes;
        self.burst = (self.burst + 1) % BURSTS;
    }

    /// Starts a flight of blocks that point at a block of `txg`.
    pub(super) fn take_off(&mut self, take: u64, txg: Txg, since: Instant) -> u64 {
        self.last_flight += 1;
        self.flights.push_back(Flight { id: self.last_flight, take, landed: None, since });
        self.in_flight[txg.0 as usize % TXG_SIZE] += 1;
        self.last_issue = Some(since);
        self.last_flight
    }

    /// Ends a flight. `seqs` are the sequence numbers of its blocks.
    pub(super) fn land(
        &mut self,
        id: u64,
        txg: Txg,
        seqs: std::ops::RangeInclusive<u64>,
        well: bool,
        now: Instant,
    ) {
        self.in_flight[txg.0 as usize % TXG_SIZE] -= 1;
        let state = if well { BlockState::Durable } else { BlockState::Failed };
        // The blocks are near the end: all blocks since the last txg may precede them.
        let last = self.blocks.iter_mut().rev().take_while(|b| seq_of(&b.bp) >= *seqs.start());
        for block in last.filter(|b| seqs.contains(&seq_of(&b.bp))) {
            block.state = state;
        }
        if !well {
            self.fail();
        }
        if let Some(flight) = self.flights.iter_mut().find(|f| f.id == id) {
            flight.landed = Some(well);
            let took = now.saturating_duration_since(flight.since);
            event::zil_write(|| ZilWrite {
                blocks: seqs.clone().count() as u64,
                ns: u64::try_from(took.as_nanos()).unwrap_or(u64::MAX),
            });
            // A failed write may have taken no time at all.
            if well {
                self.latency = (self.latency * 7 + took) / 8;
                // The best time is forgotten slowly: devices change, and other work may keep them
                // busy.
                self.best = match self.best {
                    Duration::ZERO => took,
                    best => took.min(best + self.latency.saturating_sub(best) / FORGET),
                };
            }
        }
        self.settle();
    }

    /// Ends a take that had nothing to write.
    pub(super) fn pass(&mut self, take: u64, since: Instant) {
        self.taken = take;
        if self.broken {
            self.lost = take;
        }
        self.last_flight += 1;
        self.flights.push_back(Flight { id: self.last_flight, take, landed: Some(true), since });
        self.settle();
    }

    /// From here on no take in the chain counts as durable.
    pub(super) fn fail(&mut self) {
        self.broken = true;
        self.lost = self.lost.max(self.taken);
    }

    fn settle(&mut self) {
        while let Some(well) = self.flights.front().and_then(|f| f.landed) {
            let take = self.flights.pop_front().map_or(0, |f| f.take);
            // Blocks after a failed block can't be reached.
            if well && !self.broken {
                self.durable = self.durable.max(take);
            }
        }
    }

    /// Unlocks the chain, and wakes the threads for which something has changed.
    pub(super) fn wake(mut chain: MutexGuard<'_, Chain>) {
        let all = chain.broken || chain.closing;
        let done = chain.durable.max(chain.lost);
        let taken = chain.taken;
        let woken = chain.waiting.woken(if all { u64::MAX } else { done }, taken);
        drop(chain);
        woken.iter().for_each(Thread::unpark);
    }

    /// Whether a sync has nothing to do: no block will become superfluous, and the header points at
    /// the first one.
    pub(super) fn rests(&self) -> bool {
        let is_quiet = !self.issuing && !self.closing && !self.broken && self.in_flight == [0; TXG_SIZE];
        let is_empty = self.blocks.iter().all(|block| block.state == BlockState::Next);
        is_quiet && is_empty && self.header == self.blocks.front().map(|block| block.bp)
    }

    /// True while blocks are being written that point at a block of `txg`.
    pub(super) fn flies_for(&self, txg: Txg) -> bool {
        self.in_flight[txg.0 as usize % TXG_SIZE] > 0
    }
}

/// The sequence number in a pointer to a log block.
pub(super) fn seq_of(bp: &Blkptr) -> u64 {
    bp.stored().map_or(0, |s| s.sum[ondisk::zil::ZIL_ZC_SEQ])
}

/// The size of a block for so many bytes, within the limits.
pub(super) fn block_size(bytes: u64) -> u64 {
    let most = (MAXBLOCKSIZE.get() & !(MIN_BLOCK - 1)).clamp(MIN_BLOCK, MAX_BLOCK);
    bytes.next_multiple_of(MIN_BLOCK).clamp(MIN_BLOCK, most)
}

/// The size of a block for a record of so many bytes that can't be split.
pub(super) fn block_size_of(record: u64) -> u64 {
    record.next_multiple_of(MIN_BLOCK).clamp(MIN_BLOCK, MAX_BLOCK)
}

fn pct(of: &observe::Tunable) -> u32 {
    u32::try_from(of.get()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;
