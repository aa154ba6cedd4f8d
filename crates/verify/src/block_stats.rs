//! Counts every block of a pool, and reads the blocks to verify.
//!
//! # Theory
//! [`BlockStats`] is a [`Visitor`]. It adds each block pointer to sums by level and type, and to
//! histograms of sizes, as `zdb -b` prints them.
//!
//! The traversal finds a deduplicated or cloned block once for each reference, but the block takes
//! its space once. The space that later references would have taken goes to sums of its own.
//!
//! [`Verify`] says which further blocks it reads, so that every checksum is checked. The blocks
//! that the traversal itself reads count as verified too.
//!
//! # Locks
//! One mutex guards the sums. It is held for a few additions, never for a read.
//!
//! # See
//! OpenZFS `zdb_count_block` in `cmd/zdb/zdb.c`.

use crate::leaks::LeakCheck;
use dsl::traverse::{Visitor, leads_on};
use observe::lock::Mutex;
use ondisk::blkptr::{Body, DVAS_PER_BP, Stored};
use ondisk::dnode::DnodePhys;
use ondisk::{Blkptr, DmuType, Dva, Offset, VdevId};
use std::collections::{BTreeMap, HashMap, HashSet};
use zio::{Bookmark, ReadOptions, Zio};

/// Number of levels that are counted apart; no block tree has more.
pub const LEVELS: usize = 16;

/// Which blocks [`BlockStats`] reads to verify their checksums.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verify {
    /// None but those that the traversal needs.
    None,
    /// All metadata (`zdb -c`).
    Metadata,
    /// All blocks (`zdb -cc`).
    All,
}

/// The row of the statistics under which a block counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CountedAs {
    /// A numbered type (`dmu_object_type_t`).
    Type(DmuType),
    /// A block that waits to be freed (`ZDB_OT_DEFERRED`).
    DeferredFree,
    /// Any self-describing type (`DMU_OTN_*`; `ZDB_OT_OTHER`).
    Other,
}

impl CountedAs {
    /// The row for a block of this type.
    pub fn of(kind: DmuType) -> CountedAs {
        if kind.to_disk() & 0x80 != 0 { CountedAs::Other } else { CountedAs::Type(kind) }
    }
}

/// Sums over blocks (`zdb_blkstats_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sums {
    /// Number of blocks.
    pub count: u64,
    /// Allocated bytes, of all copies.
    pub asize: u64,
    /// Logical bytes.
    pub lsize: u64,
    /// Stored bytes.
    pub psize: u64,
    /// Copies that are gang blocks.
    pub gangs: u64,
    /// Blocks two of whose copies share a vdev.
    pub ditto_samevdev: u64,
    /// Blocks two of whose copies share a metaslab.
    pub ditto_same_ms: u64,
}

impl Sums {
    /// Adds other sums to these.
    pub fn add(&mut self, o: &Sums) {
        self.count += o.count;
        self.asize += o.asize;
        self.lsize += o.lsize;
        self.psize += o.psize;
        self.gangs += o.gangs;
        self.ditto_samevdev += o.ditto_samevdev;
        self.ditto_same_ms += o.ditto_same_ms;
    }
}

/// Blocks and bytes by size: bin n holds sizes from `1 << n` to below `1 << (n + 1)`.
///
/// The last bin holds all larger sizes too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SizeHistogram {
    /// Number of blocks.
    pub count: [u64; 32],
    /// Bytes of those blocks.
    pub bytes: [u64; 32],
}

impl SizeHistogram {
    fn add(&mut self, size: u64) {
        let bin = (size | 1).ilog2().min(31) as usize;
        self.count[bin] += 1;
        self.bytes[bin] += size;
    }
}

/// A block that could not be read.
#[derive(Debug, Clone)]
pub struct Unread {
    /// The place of the block.
    pub bookmark: Bookmark,
    /// The pointer, if it could be read.
    pub bp: Option<Blkptr>,
    /// The error.
    pub error: dmu::Error,
}

/// The results of a count (`zdb_cb_t`).
#[derive(Debug, Clone, Default)]
pub struct Counts {
    /// Sums by level and type.
    pub sums: BTreeMap<(u8, CountedAs), Sums>,
    /// Number of embedded blocks, by their payload in bytes.
    pub embedded: BTreeMap<u64, u64>,
    /// Number of redaction marks.
    pub redacted: u64,
    /// Blocks by stored size.
    pub psize: SizeHistogram,
    /// Blocks by logical size.
    pub lsize: SizeHistogram,
    /// Blocks by allocated size.
    pub asize: SizeHistogram,
    /// Later references to deduplicated blocks: their number, and the bytes that they would have
    /// taken.
    pub dedup: (u64, u64),
    /// Later references to cloned blocks: their number, and the bytes that they would have taken.
    pub cloned: (u64, u64),
    /// Blocks that could not be read: a list with a limit.
    pub failed: Vec<Unread>,
    /// Number of blocks that could not be read, including those that the list lacks.
    pub failures: u64,
    /// Stored bytes of the blocks that verified, once for each reference.
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

/// Facts about shared blocks that [`BlockStats`] needs beforehand.
#[derive(Debug, Clone, Default)]
pub struct Known {
    /// Cloned blocks, by the place of their first copy, with their extra references (`brt`).
    pub cloned: HashMap<(VdevId, Offset), u64>,
    /// Blocks of flat dedup tables that may have more copies than their pointers show.
    ///
    /// The key is the first copy, the value all copies.
    pub extended: HashMap<Dva, [Option<Dva>; DVAS_PER_BP]>,
    /// log2 of the metaslab size of each vdev.
    pub ms_shift: HashMap<VdevId, u8>,
}

struct State {
    counts: Counts,
    seen_dedup: HashSet<Dva>,
    /// Cloned blocks that the walk has found, with the references that are still to come.
    cloned_left: HashMap<(VdevId, Offset), u64>,
}

/// Length limit of the list of failures; further failures are only counted.
const MAX_FAILURES: usize = 10_000;

/// Counts blocks, and reads those to verify (`zdb_cb_t`).
pub struct BlockStats<'a> {
    zio: &'a Zio,
    verify: Verify,
    known: Known,
    claims: Option<&'a LeakCheck>,
    state: Mutex<State>,
}

impl<'a> BlockStats<'a> {
    /// Statistics without any block yet.
    pub fn new(zio: &'a Zio, verify: Verify, known: Known) -> BlockStats<'a> {
        let state =
            State { counts: Counts::default(), seen_dedup: HashSet::new(), cloned_left: HashMap::new() };
        BlockStats { zio, verify, known, claims: None, state: Mutex::new(state) }
    }

    /// Also claims the space of each block from `claims`, at its first reference.
    pub fn claiming(self, claims: &'a LeakCheck) -> BlockStats<'a> {
        BlockStats { claims: Some(claims), ..self }
    }

    /// Ends the count. The blocks that could not be read are sorted by place.
    pub fn finish(self) -> Counts {
        let mut counts = self.state.into_inner().counts;
        counts.failed.sort_by_key(|f| f.bookmark);
        counts
    }

    /// Counts one block under this row (`zdb_count_block`).
    pub fn count(&self, bp: &Blkptr, what: CountedAs) {
        let bp = &self.all_copies(bp);
        let sums = self.sums_of(bp);
        let first = {
            let mut state = self.state.lock();
            let state = &mut *state;
            let first = match &bp.body {
                Body::Stored(s) => self.count_reference(state, s),
                Body::Embedded(_) | Body::Redacted | Body::Hole => false,
            };
            let counts = &mut state.counts;
            counts.sums.entry((bp.level.0, what)).or_default().add(&sums);
            match &bp.body {
                Body::Embedded(e) => *counts.embedded.entry(e.payload().len() as u64).or_default() += 1,
                Body::Redacted => counts.redacted += 1,
                Body::Stored(_) => {
                    counts.psize.add(sums.psize);
                    counts.lsize.add(sums.lsize);
                    counts.asize.add(sums.asize);
                }
                Body::Hole => {}
            }
            first
        };
        if let Some(claims) = self.claims.filter(|_| first) {
            claims.claim(self.zio, bp);
        }
    }

    /// The pointer with the copies that the dedup table has added since.
    fn all_copies(&self, bp: &Blkptr) -> Blkptr {
        let mut bp = *bp;
        if let Body::Stored(s) = &mut bp.body
            && s.dedup
            && let Some(dvas) = s.dvas[0].and_then(|first| self.known.extended.get(&first))
        {
            // An encrypted block has its salt and part of its IV where others have a third copy.
            let n = if s.crypt { 2 } else { DVAS_PER_BP };
            s.dvas[..n].copy_from_slice(&dvas[..n]);
        }
        bp
    }

    /// Whether this is the first reference to a block; counts a later one.
    fn count_reference(&self, state: &mut State, s: &Stored) -> bool {
        let Some(first) = s.dvas[0] else { return false };
        let asize = s.copies().fold(0u64, |n, d| n.saturating_add(d.asize.0));
        if s.dedup {
            let new = state.seen_dedup.insert(first);
            if !new {
                state.counts.dedup.0 += 1;
                state.counts.dedup.1 += asize;
            }
            return new;
        }
        let place = (first.vdev, first.offset);
        let Some(extra) = self.known.cloned.get(&place) else { return true };
        match state.cloned_left.get_mut(&place) {
            None => {
                state.cloned_left.insert(place, *extra);
                true
            }
            // The pool has more references than the table, so this one counts as another block.
            Some(0) => true,
            Some(left) => {
                *left -= 1;
                state.counts.cloned.0 += 1;
                state.counts.cloned.1 += asize;
                false
            }
        }
    }

    fn sums_of(&self, bp: &Blkptr) -> Sums {
        let mut sums = Sums { count: 1, lsize: bp.lsize.0, ..Sums::default() };
        match &bp.body {
            Body::Stored(s) => {
                sums.psize = s.psize.0;
                sums.asize = s.copies().fold(0, |n, d| n.saturating_add(d.asize.0));
                sums.gangs = s.copies().filter(|d| d.gang).count() as u64;
                let copies: Vec<&Dva> = s.copies().collect();
                let any = |same: &dyn Fn(&Dva, &Dva) -> bool| {
                    copies.iter().enumerate().any(|(i, a)| copies[..i].iter().any(|b| same(a, b)))
                };
                sums.ditto_samevdev = u64::from(any(&|a, b| a.vdev == b.vdev));
                sums.ditto_same_ms = u64::from(any(&|a, b| {
                    let shift = self.known.ms_shift.get(&a.vdev);
                    a.vdev == b.vdev && shift.is_some_and(|s| a.offset.0 >> s == b.offset.0 >> s)
                }));
            }
            // Such a block lies in the pointer itself and takes no space.
            Body::Embedded(_) | Body::Hole | Body::Redacted => {}
        }
        sums
    }

    fn note(&self, bookmark: &Bookmark, bp: Option<&Blkptr>, error: dmu::Error) {
        let mut state = self.state.lock();
        state.counts.failures += 1;
        if state.counts.failed.len() < MAX_FAILURES {
            state.counts.failed.push(Unread { bookmark: *bookmark, bp: bp.copied(), error });
        }
    }
}

impl BlockStats<'_> {
    /// Whether to check this block's checksum.
    fn wants(&self, bp: &Blkptr) -> bool {
        let wanted = match self.verify {
            Verify::None => false,
            Verify::Metadata => bp.is_metadata(),
            Verify::All => true,
        };
        wanted && bp.stored().is_some()
    }

    fn verified(&self, bp: &Blkptr) {
        let psize = bp.stored().map_or(0, |s| s.psize.0);
        self.state.lock().counts.bytes_verified += psize;
    }
}

impl Visitor for BlockStats<'_> {
    fn block(&self, bp: &Blkptr, bookmark: &Bookmark, dnode: Option<&DnodePhys>) {
        self.count(bp, CountedAs::of(bp.kind));
        if leads_on(bookmark, dnode) || !self.wants(bp) {
            return;
        }
        match self.zio.read_raw(bp, bookmark, &ReadOptions::demand()) {
            Ok(_) => self.verified(bp),
            Err(e) => self.note(bookmark, Some(bp), dmu::Error::Read(e)),
        }
    }

    fn read(&self, bp: &Blkptr) {
        if self.wants(bp) {
            self.verified(bp);
        }
    }

    fn failed(&self, bookmark: &Bookmark, error: &dmu::Error) {
        self.note(bookmark, None, error.clone());
    }
}
