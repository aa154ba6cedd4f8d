//! Counting every block of a pool, and reading those that are asked for.
//!
//! # Theory
//! The census is a [`Visitor`]: for each pointer it adds to the sums by level and type, and to histograms of sizes, as `zdb -b`
//! prints them. A deduplicated or cloned block is met once for each reference, but takes its space once; what
//! later references would have taken is summed apart. With [`Verify`] it also reads the blocks that the traversal itself
//! does not read, so that every checksum is checked.
//!
//! # Locks
//! Sums are behind one mutex, held for some additions; reading is done outside it.
//!
//! # See
//! OpenZFS `zdb_count_block` in `cmd/zdb/zdb.c`.

use crate::traverse::Visitor;
use ondisk::blkptr::{Body, Stored};
use ondisk::dnode::DnodePhys;
use ondisk::{Blkptr, DmuType, Dva, Txg};
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use zio::{Bookmark, Zio};

/// Largest levels that are told apart; a block tree has no more.
pub const LEVELS: usize = 16;

/// Which blocks a census reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verify {
    /// None beyond those that the traversal needs.
    None,
    /// Metadata (`zdb -c`).
    Metadata,
    /// Everything (`zdb -cc`).
    All,
}

/// What a block is counted as.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CountedAs {
    /// One of the numbered types.
    Type(DmuType),
    /// A block that waits to be freed.
    DeferredFree,
    /// Any self-describing type (`DMU_OTN_*`).
    Other,
}

impl CountedAs {
    /// How a block of this type is counted.
    pub fn of(kind: DmuType) -> CountedAs {
        if kind.to_disk() & 0x80 != 0 { CountedAs::Other } else { CountedAs::Type(kind) }
    }
}

/// Sums over blocks (`zdb_blkstats_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sums {
    /// Blocks.
    pub count: u64,
    /// Bytes allocated, of all copies.
    pub asize: u64,
    /// Bytes logical.
    pub lsize: u64,
    /// Bytes stored.
    pub psize: u64,
    /// Copies that are gang blocks.
    pub gangs: u64,
    /// Blocks two of whose copies share a vdev.
    pub ditto_samevdev: u64,
}

impl Sums {
    /// Adds other sums.
    pub fn add(&mut self, o: &Sums) {
        self.count += o.count;
        self.asize += o.asize;
        self.lsize += o.lsize;
        self.psize += o.psize;
        self.gangs += o.gangs;
        self.ditto_samevdev += o.ditto_samevdev;
    }
}

/// Blocks and bytes by size: bin n holds sizes from `1 << n`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SizeHistogram {
    /// Blocks.
    pub count: [u64; 32],
    /// Their bytes.
    pub bytes: [u64; 32],
}

impl SizeHistogram {
    fn add(&mut self, size: u64) {
        let bin = (size | 1).ilog2().min(31) as usize;
        self.count[bin] += 1;
        self.bytes[bin] += size;
    }
}

/// What a census found.
#[derive(Debug, Clone, Default)]
pub struct Counts {
    /// Sums by level and type.
    pub sums: BTreeMap<(u8, CountedAs), Sums>,
    /// Embedded blocks by stored size, data.
    pub embedded: BTreeMap<u64, u64>,
    /// Embedded blocks that are redaction marks.
    pub redacted: u64,
    /// Stored sizes.
    pub psize: SizeHistogram,
    /// Logical sizes.
    pub lsize: SizeHistogram,
    /// Allocated sizes.
    pub asize: SizeHistogram,
    /// References to deduplicated blocks beyond each one's first, and what they would have taken.
    pub dedup: (u64, u64),
    /// References to cloned blocks beyond each one's first, and what they would have taken.
    pub cloned: (u64, u64),
    /// Blocks that could not be read.
    pub failed: Vec<(Bookmark, String)>,
    /// Blocks that could not be read, those beyond the list's limit too.
    pub failures: u64,
    /// Bytes read to verify.
    pub bytes_verified: u64,
}

impl Counts {
    /// The sum over every type and level.
    pub fn total(&self) -> Sums {
        let mut t = Sums::default();
        self.sums.values().for_each(|s| t.add(s));
        t
    }

    /// The sum over one type.
    pub fn of(&self, what: CountedAs) -> Sums {
        let mut t = Sums::default();
        self.sums.iter().filter(|((_, w), _)| *w == what).for_each(|(_, s)| t.add(s));
        t
    }
}

/// Blocks that are referenced more than once.
#[derive(Debug, Clone, Default)]
pub struct Shared {
    /// First copies of blocks that the block reference table knows, with their extra references (`brt`).
    pub cloned: HashMap<Dva, u64>,
}

struct State {
    counts: Counts,
    seen_dedup: HashMap<(Dva, Txg), ()>,
    cloned_left: HashMap<Dva, Option<u64>>,
}

/// Most failures that are listed; more are only counted.
const MAX_FAILURES: usize = 10_000;

/// Counts blocks, and reads them if asked.
pub struct Census<'a> {
    zio: &'a Zio,
    verify: Verify,
    shared: Shared,
    state: Mutex<State>,
}

impl<'a> Census<'a> {
    /// A census that has seen nothing yet.
    pub fn new(zio: &'a Zio, verify: Verify, shared: Shared) -> Census<'a> {
        let state =
            State { counts: Counts::default(), seen_dedup: HashMap::new(), cloned_left: HashMap::new() };
        Census { zio, verify, shared, state: Mutex::new(state) }
    }

    /// What was counted.
    pub fn finish(self) -> Counts {
        self.state.into_inner().counts
    }

    /// Counts one block under a type of its own.
    pub fn count(&self, bp: &Blkptr, what: CountedAs) {
        let sums = sums_of(bp);
        let mut state = self.state.lock();
        let state = &mut *state;
        if let Body::Stored(s) = &bp.body {
            self.count_reference(state, s);
        }
        let counts = &mut state.counts;
        counts.sums.entry((bp.level.0, what)).or_default().add(&sums);
        match &bp.body {
            Body::Embedded(_) => *counts.embedded.entry(sums.psize).or_default() += 1,
            Body::Redacted => counts.redacted += 1,
            Body::Stored(_) => {
                counts.psize.add(sums.psize);
                counts.lsize.add(sums.lsize);
                counts.asize.add(sums.asize);
            }
            Body::Hole => {}
        }
    }

    /// Tells a first reference to a shared block from the later ones.
    fn count_reference(&self, state: &mut State, s: &Stored) {
        let Some(first) = s.dvas[0] else { return };
        let asize = s.copies().map(|d| d.asize.0).sum::<u64>();
        if s.dedup {
            if state.seen_dedup.insert((first, s.phys_birth), ()).is_some() {
                state.counts.dedup.0 += 1;
                state.counts.dedup.1 += asize;
            }
            return;
        }
        let Some(extra) = self.shared.cloned.get(&first) else { return };
        match state.cloned_left.entry(first).or_insert(None) {
            left @ None => *left = Some(*extra),
            Some(0) => {}
            Some(left) => {
                *left -= 1;
                state.counts.cloned.0 += 1;
                state.counts.cloned.1 += asize;
            }
        }
    }

    fn note(&self, bookmark: &Bookmark, error: &dyn std::error::Error) {
        let mut state = self.state.lock();
        state.counts.failures += 1;
        if state.counts.failed.len() < MAX_FAILURES {
            state.counts.failed.push((*bookmark, error.to_string()));
        }
    }
}

fn sums_of(bp: &Blkptr) -> Sums {
    let mut sums = Sums { count: 1, lsize: bp.lsize.0, ..Sums::default() };
    match &bp.body {
        Body::Stored(s) => {
            sums.psize = s.psize.0;
            sums.asize = s.copies().map(|d| d.asize.0).sum();
            sums.gangs = s.copies().filter(|d| d.gang).count() as u64;
            let vdevs: Vec<_> = s.copies().map(|d| d.vdev).collect();
            let shared = vdevs.iter().enumerate().any(|(i, v)| vdevs[..i].contains(v));
            sums.ditto_samevdev = u64::from(shared);
        }
        Body::Embedded(e) => sums.psize = e.payload().len() as u64,
        Body::Hole | Body::Redacted => {}
    }
    sums
}

impl Visitor for Census<'_> {
    fn block(&self, bp: &Blkptr, bookmark: &Bookmark, dnode: Option<&DnodePhys>) {
        self.count(bp, CountedAs::of(bp.kind));
        // The traversal reads what it has to follow: indirect blocks, blocks of dnodes, object sets.
        let followed = bp.level.0 > 0 || dnode.is_none() || bp.kind == DmuType::DNODE;
        let wanted = match self.verify {
            Verify::None => false,
            Verify::Metadata => bp.is_metadata(),
            Verify::All => true,
        };
        if followed || !wanted || bp.stored().is_none() {
            return;
        }
        match self.zio.read_raw(bp, bookmark) {
            Ok(block) => self.state.lock().counts.bytes_verified += block.len() as u64,
            Err(e) => self.note(bookmark, &e),
        }
    }

    fn failed(&self, bookmark: &Bookmark, error: &dmu::Error) {
        self.note(bookmark, error);
    }
}
