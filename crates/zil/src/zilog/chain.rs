//! The chain as memory has it: its blocks from the header's on, and what of them is durable.

use super::waiting::Waiting;
use crate::tunables::{COMMIT_TIMEOUT_PCT, MAXBLOCKSIZE};
use ondisk::{Blkptr, Txg};
use parking_lot::MutexGuard;
use std::collections::VecDeque;
use std::thread::Thread;
use std::time::{Duration, Instant};

/// Groups that can be told apart at a time (`TXG_SIZE`).
const TXG_SIZE: usize = 4;
/// Bursts that the size of the next block is guessed from (`ZIL_BURSTS`).
const BURSTS: usize = 8;
/// So many writes take the best time half-way to the usual one.
const FORGET: u32 = 64;
/// Most writes of log blocks on their way at a time.
const MAX_FLIGHTS: usize = 16;
/// Smallest log block, and the largest that there can be (`ZIL_MIN_BLKSZ`, `SPA_OLD_MAXBLOCKSIZE`).
pub(super) const MIN_BLOCK: u64 = 4096;
pub(super) const MAX_BLOCK: u64 = 128 << 10;

/// What became of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BlockState {
    /// It has its place, and nothing is in it.
    Next,
    /// It is being written.
    Flying,
    /// It is on the devices.
    Durable,
    /// It is not, and nobody relies on it.
    Failed,
}

/// A block of the chain (`lwb_t`).
#[derive(Debug)]
pub(super) struct ChainBlock {
    pub(super) bp: Blkptr,
    /// The group that it was allocated in.
    pub(super) alloc_txg: Txg,
    /// The last group that it has a record of.
    pub(super) max_txg: Txg,
    pub(super) state: BlockState,
}

/// Blocks that are written together.
#[derive(Debug)]
struct Flight {
    id: u64,
    /// The take whose last record is in it, or in one before it.
    take: u64,
    /// Whether it has come down, and well.
    landed: Option<bool>,
    since: Instant,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Chain {
    pub(super) guid: [u64; 2],
    pub(super) blocks: VecDeque<ChainBlock>,
    /// What the object set's header points at.
    pub(super) header: Option<Blkptr>,
    /// Number of the last record.
    pub(super) lr_seq: u64,
    /// The last take that is in log blocks, those being written included.
    pub(super) taken: u64,
    /// The last take that is durable, with all before it.
    pub(super) durable: u64,
    /// The last take that may not be in the log: who needs it waits for its group.
    pub(super) lost: u64,
    /// Blocks can't be added: the chain ends where writing failed, until it is gone.
    pub(super) broken: bool,
    /// The log is to go with the next group.
    pub(super) closing: bool,
    /// Somebody fills blocks.
    pub(super) issuing: bool,
    /// Those who wait for any of this.
    pub(super) waiting: Waiting,
    flights: VecDeque<Flight>,
    last_flight: u64,
    /// Flights whose blocks point at blocks of a group.
    in_flight: [usize; TXG_SIZE],
    last_issue: Option<Instant>,
    /// What writing takes, of late and at its best.
    latency: Duration,
    best: Duration,
    bursts: [u64; BURSTS],
    burst: usize,
}

impl Chain {
    /// Whether whoever wants something written is to begin now. While nothing is on its way, at once; else after a while, in which others
    /// may come and join. If not now: how long to wait at most.
    ///
    /// What is on its way at a time is of use only where the devices do it at a time. So the while is a tenth of what a write takes at its best
    /// (`zfs_commit_timeout_pct`), and what it takes longer than that, which is what it waited for others before it: ten are on their way to devices that
    /// make none wait, and two to those that take one after another, one of them waiting.
    pub(super) fn due(&self, now: Instant) -> Result<(), Option<Duration>> {
        let flying = self.flights.iter().filter(|f| f.landed.is_none()).count();
        let Some(last) = self.last_issue.filter(|_| flying > 0) else { return Ok(()) };
        if flying >= MAX_FLIGHTS {
            return Err(None);
        }
        let queued = self.latency.saturating_sub(self.best);
        // One alone has not waited for any of ours: a device that is busy with others is not to keep the next one from standing behind it.
        let queued = if flying == 1 { queued.min(self.best) } else { queued };
        let others = self.best.saturating_mul(pct(&COMMIT_TIMEOUT_PCT)) / 100;
        match queued.saturating_add(others).checked_sub(now.saturating_duration_since(last)) {
            None | Some(Duration::ZERO) => Ok(()),
            left => Err(left),
        }
    }

    /// How large the next block should be, going by what was written lately.
    pub(super) fn guess(&self) -> u64 {
        block_size(self.bursts.iter().copied().max().unwrap_or(0))
    }

    /// Notes how much one commit wanted to write, the blocks' own heads included.
    pub(super) fn note_burst(&mut self, bytes: u64) {
        self.bursts[self.burst % BURSTS] = bytes;
        self.burst = (self.burst + 1) % BURSTS;
    }

    /// Blocks that point at one of `txg` take off.
    pub(super) fn take_off(&mut self, take: u64, txg: Txg, since: Instant) -> u64 {
        self.last_flight += 1;
        self.flights.push_back(Flight { id: self.last_flight, take, landed: None, since });
        self.in_flight[txg.0 as usize % TXG_SIZE] += 1;
        self.last_issue = Some(since);
        self.last_flight
    }

    /// They have come down. `seqs`: where they are in the chain, by the numbers that their pointers have.
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
        // They are among the last: before them may be all blocks since the last group.
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
            // One that failed may have taken no time at all.
            if well {
                self.latency = (self.latency * 7 + took) / 8;
                // Quick ones are forgotten slowly: devices change, and may be busy with others.
                self.best = match self.best {
                    Duration::ZERO => took,
                    best => took.min(best + self.latency.saturating_sub(best) / FORGET),
                };
            }
        }
        self.settle();
    }

    /// A take came to nothing that had to be written.
    pub(super) fn pass(&mut self, take: u64, since: Instant) {
        self.taken = take;
        if self.broken {
            self.lost = take;
        }
        self.last_flight += 1;
        self.flights.push_back(Flight { id: self.last_flight, take, landed: Some(true), since });
        self.settle();
    }

    /// From here on nothing that was taken counts as durable.
    pub(super) fn fail(&mut self) {
        self.broken = true;
        self.lost = self.lost.max(self.taken);
    }

    fn settle(&mut self) {
        while let Some(well) = self.flights.front().and_then(|f| f.landed) {
            let take = self.flights.pop_front().map_or(0, |f| f.take);
            // What comes behind a block that failed can't be reached.
            if well && !self.broken {
                self.durable = self.durable.max(take);
            }
        }
    }

    /// Lets go, and wakes those for whom something has changed.
    pub(super) fn wake(mut chain: MutexGuard<'_, Chain>) {
        let all = chain.broken || chain.closing;
        let done = chain.durable.max(chain.lost);
        let taken = chain.taken;
        let woken = chain.waiting.woken(if all { u64::MAX } else { done }, taken);
        drop(chain);
        woken.iter().for_each(Thread::unpark);
    }

    /// True while blocks are being written that point at one of `txg`.
    pub(super) fn flies_for(&self, txg: Txg) -> bool {
        self.in_flight[txg.0 as usize % TXG_SIZE] > 0
    }
}

/// The number that a pointer to a log block has.
pub(super) fn seq_of(bp: &Blkptr) -> u64 {
    bp.stored().map_or(0, |s| s.sum[ondisk::zil::ZIL_ZC_SEQ])
}

/// The size of a block that is to hold so many bytes, as far as there may be such.
pub(super) fn block_size(bytes: u64) -> u64 {
    let most = (MAXBLOCKSIZE.get() & !(MIN_BLOCK - 1)).clamp(MIN_BLOCK, MAX_BLOCK);
    bytes.next_multiple_of(MIN_BLOCK).clamp(MIN_BLOCK, most)
}

/// The size of a block for a record of so many bytes that can't be split: as large as it needs.
pub(super) fn block_size_of(record: u64) -> u64 {
    record.next_multiple_of(MIN_BLOCK).clamp(MIN_BLOCK, MAX_BLOCK)
}

fn pct(of: &observe::Tunable) -> u32 {
    u32::try_from(of.get()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;
