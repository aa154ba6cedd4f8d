//! Claiming a log: an import for writing takes the places of its blocks.
//!
//! # Theory
//! Blocks of a log, and the blocks that its indirect writes name, are written between transaction groups: no space map knows of those that are
//! younger than the last group. So whoever opens a pool to write takes their places before anything is allocated, and notes in the log's header how
//! far it got: nothing behind that is ever replayed or freed, even if it can be read some day. The blocks that a clone names are another file's, and gain a
//! reference, so that they are still there when the clone is replayed.
//!
//! It takes two steps. [`Log::plan`] reads a chain and changes nothing, so that thousands of logs are read side by side. [`Plan::take`] then takes the
//! places, in memory, one log after another: the first block whose places are not free ends its log, as a block does that was never written.
//!
//! # Crash
//! Places, references and header are of one group. Until it is on disk, the log is as it was.
//!
//! # Absent
//! Keys: claiming needs none, since pointers are never encrypted. What a MAC protects is looked at when the log is replayed.
//!
//! # See
//! OpenZFS `zil_claim`, `zil_claim_log_block`, `zil_claim_log_record`, `zil_check_log_chain`.

use crate::{End, Log, LogBlock};
use ondisk::blkptr::Stored;
use ondisk::zil::{ZIL_CLAIM_LR_SEQ_VALID, ZIL_REPLAY_NEEDED, ZilHeader};
use ondisk::{Blkptr, Offset, Txg, VdevId};
use std::collections::HashSet;

/// Latest birth of a block that is claimed: groups are counted on from there, and must not run out.
const LAST_BIRTH: Txg = Txg(1 << 61);

/// Who gives out the pool's space.
pub trait Claimant {
    /// Takes all places of a block; false, with nothing taken, if one of them is not free.
    fn take(&mut self, bp: &Blkptr) -> bool;

    /// Adds a reference to each of these blocks; false, with nothing added, if one of them is not allocated.
    fn share(&mut self, bps: &[Blkptr]) -> bool;
}

/// What a log has to claim.
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
    /// Its records by number, with what they name.
    records: Vec<(u64, Option<Box<Names>>)>,
}

/// Blocks that a record names.
#[derive(Debug)]
enum Names {
    Write(Blkptr),
    /// Of a record whose group may be on disk already, for all that it is in a log that is claimed.
    OldClones(Vec<Blkptr>),
    Clones(Vec<Blkptr>),
}

impl Log {
    /// Reads the chain of a log that nobody has claimed.
    pub fn plan(&self) -> Plan {
        let first_txg = self.first_txg();
        let mut plan = Plan { header: *self.header(), first_txg, links: Vec::new(), cut: None };
        let mut blocks = self.blocks();
        // A block that means nothing is one that was never written as a log block.
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

    /// Whether the data of an indirect write are there: a log block may have become durable before them, and then nobody was told that
    /// they are.
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

    /// Why nobody can tell where the log ends, if so: a device failed (`SPA_LOG_MISSING`).
    pub fn cut_short(&self) -> Option<&zio::Error> {
        self.cut.as_ref()
    }

    /// True if there is nothing to claim and nothing to replay: the log is one block, which is not used yet and was allocated by a group that
    /// is on disk.
    pub fn is_idle(&self) -> bool {
        match self.links.as_slice() {
            [] => self.cut.is_none(),
            [only] => self.cut.is_none() && only.records.is_empty() && only.bp.birth < self.first_txg,
            _ => false,
        }
    }

    /// Births of all blocks that it names: the pool's groups go on behind the last, so that no block is of the future.
    pub fn births(&self) -> impl Iterator<Item = Txg> {
        self.links.iter().flat_map(|link| {
            let of_writes = link.records.iter().filter_map(|(_, names)| match names.as_deref() {
                Some(Names::Write(bp)) => Some(bp.birth),
                _ => None,
            });
            std::iter::once(link.bp.birth).chain(of_writes)
        })
    }

    /// All blocks that it names: those of the chain, and of its records.
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

    /// The blocks of the chain that groups on disk have allocated: what is to be freed of a log that is given up (`zil_clear_log_block`).
    pub fn allocated(&self) -> Vec<Blkptr> {
        let first = self.first_txg;
        self.links.iter().map(|link| link.bp).take_while(|bp| bp.birth < first).collect()
    }

    /// Takes the places of all blocks, and says what is to be in the log's header from now on.
    pub fn take(&self, by: &mut dyn Claimant) -> ZilHeader {
        let mut taking = Taking { first_txg: self.first_txg, taken: HashSet::new(), by };
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

/// A claim under way.
struct Taking<'a> {
    first_txg: Txg,
    /// Blocks that it has taken, by their first place: a record may name one again.
    taken: HashSet<(VdevId, Offset)>,
    by: &'a mut dyn Claimant,
}

impl Taking<'_> {
    fn block(&mut self, bp: &Blkptr) -> bool {
        let Some(place) = bp.stored().filter(|_| bp.birth >= self.first_txg).and_then(first) else {
            return true;
        };
        self.taken.contains(&place) || self.by.take(bp) && self.taken.insert(place)
    }

    /// Those of these blocks that take space; `None` if one of them is in no group on disk, and so can't be another file's.
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
            // It won't be replayed, but who destroys the log gives up a reference to each of its blocks, which may be free by now: then the reference is
            // their place.
            Names::OldClones(bps) => {
                let stored = self.others(bps);
                stored.is_some_and(|s| {
                    s.iter().all(|bp| self.by.share(std::slice::from_ref(bp)) || self.by.take(bp))
                })
            }
        }
    }
}

/// The place of a block's first copy.
pub(crate) fn first(s: &Stored) -> Option<(VdevId, Offset)> {
    s.copies().next().map(|dva| (dva.vdev, dva.offset))
}

impl Log {
    /// Everything that a log refers to, each once for each reference: its blocks, and if it was claimed those of its indirect writes that its claim
    /// took, and those that its clones hold. They are free when the log is destroyed (`zil_destroy_sync`).
    pub fn references(&self) -> Vec<Blkptr> {
        self.references_known().0
    }

    /// The same, and whether these are all: not if a block of the chain could not be read or means nothing.
    pub fn references_known(&self) -> (Vec<Blkptr>, bool) {
        let mut all = References::new(self.header().claim_txg);
        let mut blocks = self.blocks();
        blocks.by_ref().map_while(Result::ok).for_each(|block| all.add(&block));
        let whole = match blocks.end() {
            Some(End::Hole | End::Unclaimed) => true,
            // Where a chain that was claimed ends, is known.
            Some(End::Unwritten(_) | End::Broken) => self.header().claim_txg == 0,
            Some(End::Unreadable(_)) | None => false,
        };
        (all.into_blocks(), whole)
    }
}

/// Gathers what a log refers to.
pub(crate) struct References {
    claim_txg: u64,
    /// Blocks that it owns, by their first place: a record may name one again.
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
