//! Claiming a log: an import for writing allocates the blocks that a log uses.
//!
//! # Theory
//! Log blocks, and the blocks that indirect writes name, are written between transaction groups. No
//! space map knows the blocks that are younger than the last txg. So an import for writing
//! allocates them before any other allocation. The log's header records how far the claim reached.
//! Nothing after that point is ever replayed or freed, even if it becomes readable later. The
//! blocks that a clone names belong to another file. Each gains a reference, so that it still
//! exists when the clone is replayed.
//!
//! A claim takes two steps:
//!
//! 1. [`Log::plan`] reads a chain and changes nothing, so that thousands of logs are read in
//!    parallel.
//! 2. [`Plan::take`] allocates the blocks in memory, one log after another. The first block whose
//!    space is not free ends its log, like a block that was never written.
//!
//! # Crash
//! Allocations, references and header belong to one transaction group. Until that txg is on disk,
//! the log is unchanged.
//!
//! # Absent
//! Keys: claiming needs none, because pointers are never encrypted. Replay verifies what a MAC
//! protects.
//!
//! # See
//! OpenZFS `zil_claim`, `zil_claim_log_block`, `zil_claim_log_record`, `zil_check_log_chain`.

use crate::{End, Log, LogBlock};
use ondisk::blkptr::Stored;
use ondisk::zil::{ZIL_CLAIM_LR_SEQ_VALID, ZIL_REPLAY_NEEDED, ZilHeader};
use ondisk::{Blkptr, Offset, Txg, VdevId};
use std::collections::HashSet;

/// Latest birth of a block that is claimed. The pool's txgs continue after it, and must not run
/// out.
const LAST_BIRTH: Txg = Txg(1 << 61);

/// Allocates the pool's space for a claim.
pub trait Claimant {
    /// Allocates all copies of a block; false, with nothing allocated, if a copy's space is not
    /// free (`zio_claim`).
    fn take(&mut self, bp: &Blkptr) -> bool;

    /// Adds a reference to each block; false, with nothing added, if a block is not allocated
    /// (`brt_pending_add`).
    fn share(&mut self, bps: &[Blkptr]) -> bool;
}

/// The blocks that a log has to claim.
#[derive(Debug)]
pub struct Plan {
    header: ZilHeader,
    first_txg: Txg,
    links: Vec<Link>,
    cut: Option<zio::Error>,
}

/// A block of the chain.
#[derive(Debug)]
struct Link {
    bp: Blkptr,
    seq: u64,
    /// The block's records by number, with the blocks that they name.
    records: Vec<(u64, Option<Box<Names>>)>,
}

/// Blocks that a record names.
#[derive(Debug)]
enum Names {
    Write(Blkptr),
    /// Blocks of a clone whose txg may be on disk already, although its log is claimed.
    OldClones(Vec<Blkptr>),
    Clones(Vec<Blkptr>),
}

impl Log {
    /// Reads the chain of a log that was not claimed before (`zil_check_log_chain`).
    pub fn plan(&self) -> Plan {
        let first_txg = self.first_txg();
        let mut plan = Plan { header: *self.header(), first_txg, links: Vec::new(), cut: None };
        let mut blocks = self.blocks();
        // A block without meaning was never written as a log block.
        for block in blocks.by_ref().map_while(Result::ok) {
            if block.bp.birth > LAST_BIRTH || !plan.follow(self, block) {
                return plan;
            }
        }
        if let Some(End::Unreadable(e)) = blocks.end() {
            plan.cut = Some(e.clone());
        }
        plan
    }

    /// Checks that the data of an indirect write is on disk. A log block may become durable before
    /// that data; the commit was not acknowledged then.
    fn check_data(&self, bp: &Blkptr) -> zio::Result<()> {
        match bp.is_hole() || bp.birth < self.first_txg() {
            true => Ok(()),
            false => self.read_stored(bp),
        }
    }
}

impl Plan {
    /// Adds a block; false if the log ends in it.
    fn follow(&mut self, log: &Log, block: LogBlock) -> bool {
        let mut link = Link { bp: block.bp, seq: block.seq, records: Vec::new() };
        let mut goes_on = true;
        for record in block.records.iter().flatten() {
            let names = match &record.blkptr {
                Some(bp) => {
                    match log.check_data(bp) {
                        Ok(()) if bp.birth <= LAST_BIRTH => {}
                        Err(e @ (zio::Error::Io { .. } | zio::Error::Place { .. })) => {
                            self.cut = Some(e);
                            goes_on = false;
                        }
                        Ok(()) | Err(_) => goes_on = false,
                    }
                    Some(Box::new(Names::Write(*bp)))
                }
                None if record.clones.is_empty() => None,
                None if record.header.txg < self.first_txg.0 => {
                    Some(Box::new(Names::OldClones(record.clones.clone())))
                }
                None => Some(Box::new(Names::Clones(record.clones.clone()))),
            };
            if !goes_on {
                break;
            }
            link.records.push((record.header.seq, names));
        }
        self.links.push(link);
        goes_on
    }

    /// The device failure that hides the end of the log, if there is one (`SPA_LOG_MISSING`).
    pub fn cut_short(&self) -> Option<&zio::Error> {
        self.cut.as_ref()
    }

    /// True if there is nothing to claim and nothing to replay.
    ///
    /// The log is then one unused block, which a txg on disk allocated.
    pub fn is_idle(&self) -> bool {
        match self.links.as_slice() {
            [] => self.cut.is_none(),
            [only] => self.cut.is_none() && only.records.is_empty() && only.bp.birth < self.first_txg,
            _ => false,
        }
    }

    /// Births of all blocks that the log names.
    ///
    /// The pool's next txg must be later than all of them, so that no block is of the future.
    pub fn births(&self) -> impl Iterator<Item = Txg> {
        self.links.iter().flat_map(|link| {
            let of_writes = link.records.iter().filter_map(|(_, names)| match names.as_deref() {
                Some(Names::Write(bp)) => Some(bp.birth),
                _ => None,
            });
            std::iter::once(link.bp.birth).chain(of_writes)
        })
    }

    /// All blocks that the log names: those of the chain, and those of its records.
    pub fn blocks(&self) -> impl Iterator<Item = &Blkptr> {
        self.links.iter().flat_map(|link| {
            let named = link.records.iter().filter_map(|(_, names)| names.as_deref());
            let of_records = named.flat_map(|names| match names {
                Names::Write(bp) => std::slice::from_ref(bp),
                Names::OldClones(bps) | Names::Clones(bps) => bps,
            });
            std::iter::once(&link.bp).chain(of_records)
        })
    }

    /// The blocks of the chain that txgs on disk have allocated.
    ///
    /// Giving a log up frees them (`zil_clear_log_block`).
    pub fn allocated(&self) -> Vec<Blkptr> {
        let first = self.first_txg;
        self.links.iter().map(|link| link.bp).take_while(|bp| bp.birth < first).collect()
    }

    /// Allocates all blocks, and returns the new header of the log (`zil_claim`).
    pub fn take(&self, by: &mut dyn Claimant) -> ZilHeader {
        let mut taking = ClaimInProgress { first_txg: self.first_txg, taken: HashSet::new(), by };
        let (mut blk_seq, mut lr_seq, mut blocks, mut records) = (0, 0, 0u64, 0u64);
        'chain: for link in &self.links {
            if !taking.block(&link.bp) {
                break;
            }
            blk_seq = link.seq;
            blocks += 1;
            for (seq, names) in &link.records {
                if !names.as_deref().is_none_or(|names| taking.names(names)) {
                    break 'chain;
                }
                lr_seq = *seq;
                records += 1;
            }
        }
        let needed = if records > 0 || blocks > 1 { ZIL_REPLAY_NEEDED } else { 0 };
        ZilHeader {
            claim_txg: self.first_txg.0,
            claim_blk_seq: blk_seq,
            claim_lr_seq: lr_seq,
            flags: self.header.flags | ZIL_CLAIM_LR_SEQ_VALID | needed,
            ..self.header
        }
    }
}

/// A claim in progress.
struct ClaimInProgress<'a> {
    first_txg: Txg,
    /// Blocks that this claim has allocated, by their first copy: a record may name one again.
    taken: HashSet<(VdevId, Offset)>,
    by: &'a mut dyn Claimant,
}

impl ClaimInProgress<'_> {
    fn block(&mut self, bp: &Blkptr) -> bool {
        let Some(place) = bp.stored().filter(|_| bp.birth >= self.first_txg).and_then(first) else {
            return true;
        };
        self.taken.contains(&place) || self.by.take(bp) && self.taken.insert(place)
    }

    /// Those of these blocks that take space. `None` if a block is in no txg on disk: then it can't
    /// belong to another file.
    fn others(&self, bps: &[Blkptr]) -> Option<Vec<Blkptr>> {
        let stored = bps.iter().filter_map(|bp| bp.stored().map(|s| (bp, s)));
        stored.map(|(bp, s)| (s.phys_birth < self.first_txg).then_some(*bp)).collect()
    }

    fn names(&mut self, names: &Names) -> bool {
        match names {
            Names::Write(bp) => self.block(bp),
            Names::Clones(bps) => {
                let stored = self.others(bps);
                stored.is_some_and(|stored| self.by.share(&stored))
            }
            // Replay skips this record, but destroying the log drops a reference to each of its
            // blocks. A block that is free by now is allocated instead, as that reference.
            Names::OldClones(bps) => {
                let stored = self.others(bps);
                stored.is_some_and(|s| {
                    s.iter().all(|bp| self.by.share(std::slice::from_ref(bp)) || self.by.take(bp))
                })
            }
        }
    }
}

/// The vdev and offset of a block's first copy.
pub(crate) fn first(s: &Stored) -> Option<(VdevId, Offset)> {
    s.copies().next().map(|dva| (dva.vdev, dva.offset))
}

impl Log {
    /// Every reference that a log holds, each as often as it is held (`zil_destroy_sync`).
    ///
    /// These are the blocks of the chain. If the log was claimed, they are also the blocks of
    /// indirect writes that the claim allocated, and the blocks that its clones hold. Destroying
    /// the log frees them.
    pub fn references(&self) -> Vec<Blkptr> {
        self.references_known().0
    }

    /// As [`Log::references`], and whether the list is complete.
    ///
    /// It is incomplete if a block of the chain can't be read, or has no meaning.
    pub fn references_known(&self) -> (Vec<Blkptr>, bool) {
        let mut all = References::new(self.header().claim_txg);
        let mut blocks = self.blocks();
        blocks.by_ref().map_while(Result::ok).for_each(|block| all.add(&block));
        let whole = match blocks.end() {
            Some(End::Hole | End::Unclaimed) => true,
            // The end of a claimed chain is known.
            Some(End::Unwritten(_) | End::Broken) => self.header().claim_txg == 0,
            Some(End::Unreadable(_)) | None => false,
        };
        (all.into_blocks(), whole)
    }
}

/// Gathers the blocks that a log refers to.
pub(crate) struct References {
    claim_txg: u64,
    /// Blocks that the log owns, by their first copy: a record may name one again.
    seen: HashSet<(VdevId, Offset)>,
    all: Vec<Blkptr>,
}

impl References {
    pub(crate) fn new(claim_txg: u64) -> Self {
        References { claim_txg, seen: HashSet::new(), all: Vec::new() }
    }

    fn own(&mut self, bp: &Blkptr) {
        let place = bp.stored().and_then(first);
        if place.is_some_and(|place| self.seen.insert(place)) {
            self.all.push(*bp);
        }
    }

    pub(crate) fn add(&mut self, block: &LogBlock) {
        self.own(&block.bp);
        if self.claim_txg == 0 {
            return;
        }
        for record in block.records.iter().flatten() {
            if let Some(bp) = record.blkptr.filter(|bp| bp.birth.0 >= self.claim_txg) {
                self.own(&bp);
            }
            self.all.extend(record.clones.iter().filter(|bp| bp.stored().is_some()));
        }
    }

    pub(crate) fn into_blocks(self) -> Vec<Blkptr> {
        self.all
    }
}

#[cfg(test)]
mod tests;
