//! Verifying a batch of blocks in the order in which they lie on the devices.
//!
//! # Theory
//! Each top-level vdev is a *lane* of its own. Its blocks are taken in the order of their places,
//! some megabytes at a time. All devices of the vdev read at once ([`vdev::BatchReader`]). While
//! threads verify one range, the next ones are read: so many that all devices have some to read,
//! also of a dRAID.
//!
//! What a resilver finds missing is joined, and written while other blocks are verified
//! ([`vdev::Tree::refill`]). So the written device goes from its beginning to its end. Second
//! copies, which lie elsewhere, wait until the lane is at its end, or they are many. Indirect
//! blocks are read before ([`Windows`]), and verified with the others.
//!
//! Memory holds for each lane the bytes being verified, being written and being read: 8 MiB each,
//! and twice as many being read. For a dRAID, up to 16 MiB for each device are being read, as far
//! as the queue may take as much memory. Parity, copies and gaps are added, as in
//! [`vdev::Tree::fetch`].
//!
//! # Absent
//! The queue of blocks ([`crate::scan::queue`]), and how long they wait.
//!
//! # See
//! OpenZFS `scan_io_queues_run`, `scan_exec_io`.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::mpsc::sync_channel;

use arc::Cache;
use ondisk::{Blkptr, VdevId};
use vdev::{BatchReader, Extent, Fetched, Laid, RepairOutcome, Request, Tree};
use zio::{Bookmark, ExamineKind, MissingPieces, ReadOptions, Workers};

use crate::scan::queue::Entry;
use crate::scan::windows::{AHEAD, Windows, extents};

/// A block to verify.
pub(crate) struct Item {
    pub(crate) bp: Blkptr,
    pub(crate) bookmark: Bookmark,
    /// Its entry in the queue.
    pub(crate) entry: Entry,
}

impl Item {
    fn place(&self) -> Option<(VdevId, u64)> {
        self.bp.stored().and_then(|s| s.copies().next()).map(|dva| (dva.vdev, dva.offset.0))
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bp.stored().map_or(0, |s| s.psize.0)
    }
}

/// Further copies that were read together.
struct Aside {
    read: Arc<Fetched>,
    /// All of them were read.
    whole: bool,
}

/// The result of verifying a block.
pub(crate) struct Looked {
    pub(crate) bp: Blkptr,
    pub(crate) entry: Entry,
    pub(crate) done: zio::Result<RepairOutcome>,
}

/// The verifier of a batch.
pub(crate) struct Issuer<'a> {
    pub(crate) cache: &'a Arc<Cache>,
    pub(crate) workers: &'a Workers,
    pub(crate) look: ExamineKind,
    /// How it yields to foreground I/O.
    pub(crate) request: &'a Request,
    /// Most bytes that are read at a time.
    pub(crate) most: u64,
    /// Most bytes of memory for what is read of a vdev.
    pub(crate) memory: u64,
    /// What has been read already.
    pub(crate) windows: &'a Windows,
    /// Whether to stop now.
    pub(crate) stops: &'a (dyn Fn() -> bool + Sync),
}

impl Issuer<'_> {
    /// Verifies all of them, or some if it must stop.
    pub(crate) fn run(&self, items: Vec<Item>) -> Vec<Looked> {
        let mut lanes: BTreeMap<Option<VdevId>, Vec<Item>> = BTreeMap::new();
        for item in items {
            lanes.entry(item.place().map(|(vdev, _)| vdev)).or_default().push(item);
        }
        std::thread::scope(|scope| {
            let mut lanes = lanes.into_values();
            let first = lanes.next();
            let lane = |items| {
                let work = || self.lane(items);
                std::thread::Builder::new().name("scan-lane".into()).spawn_scoped(scope, work)
            };
            let others: Vec<_> = lanes.map(lane).collect();
            let mut done = first.map_or_else(Vec::new, |items| self.lane(items));
            for other in others {
                let other = other.expect("the system has room for a thread");
                done.extend(other.join().expect("a panic ends the program"));
            }
            done
        })
    }

    fn lane(&self, mut items: Vec<Item>) -> Vec<Looked> {
        items.sort_by_key(Item::place);
        let aside = self.aside(&items);
        let depth = self.depth(&items);
        let chunks = self.chunks(items);
        std::thread::scope(|scope| {
            // The channel has no buffer: at any time the reader has finished at most one chunk that
            // the verifier has not taken.
            let (have_read, read) = sync_channel(0);
            let (have_looked, looked) = sync_channel(0);
            let reader = move || {
                std::thread::scope(|scope| {
                    let mut ahead = BatchReader::new(scope, self.request.clone());
                    let (mut chunks, mut under_way, mut got_on) =
                        (chunks.into_iter(), VecDeque::new(), false);
                    loop {
                        while under_way.len() < depth && (under_way.is_empty() || !(self.stops)()) {
                            let Some(chunk) = chunks.next() else { break };
                            self.begin(&mut ahead, &chunk, &aside);
                            under_way.push_back(chunk);
                        }
                        let Some(chunk) = under_way.pop_front() else { return };
                        if got_on && (self.stops)() {
                            return;
                        }
                        let fetched = ahead.take().expect("it was begun");
                        let fetched = fetched.with([Arc::clone(&aside.read)]).with(self.windows.all());
                        if have_read.send((chunk, Arc::new(fetched))).is_err() {
                            return;
                        }
                        got_on = true;
                    }
                });
            };
            let writer = || {
                let mut filling = Filling::new(self.request);
                looked.into_iter().for_each(|chunk| filling.take(chunk));
                filling.end()
            };
            let thread = |name: &str| std::thread::Builder::new().name(name.into());
            let room = "the system has room for a thread";
            thread("scan-ahead").spawn_scoped(scope, reader).expect(room);
            let writer = thread("scan-fill").spawn_scoped(scope, writer).expect(room);
            for (items, fetched) in read {
                have_looked.send(self.chunk(items, fetched)).expect("it takes all until there is none");
            }
            drop(have_looked);
            writer.join().expect("a panic ends the program")
        })
    }

    /// Most bytes that are read together.
    fn together(&self) -> u64 {
        AHEAD.min(self.most).max(1)
    }

    /// Number of chunks read at once: two, or as many as give each device of a dRAID a share.
    fn depth(&self, items: &[Item]) -> usize {
        let place = items.first().and_then(Item::place);
        let breadth = place.map_or(0, |(vdev, _)| self.cache.zio().tree().breadth_of(vdev));
        usize::try_from(breadth.min(self.most).min(self.memory) / self.together())
            .unwrap_or(usize::MAX)
            .max(2)
    }

    /// The chunks to read, in order.
    fn chunks(&self, items: Vec<Item>) -> Vec<Vec<Item>> {
        let most = self.together();
        let mut chunks: Vec<Vec<Item>> = Vec::new();
        let mut bytes = most;
        for item in items {
            if bytes >= most {
                chunks.push(Vec::new());
                bytes = 0;
            }
            bytes += item.bytes();
            chunks.last_mut().expect("one was just pushed").push(item);
        }
        chunks
    }

    /// Reads further copies of all of them, if they are small: those of indirect blocks lie side by
    /// side far from the first. A resilver needs them only if the first is wrong.
    fn aside(&self, items: &[Item]) -> Aside {
        if self.look == ExamineKind::Resilver {
            return Aside { read: Arc::default(), whole: true };
        }
        let mut extents: Vec<Extent> = items.iter().flat_map(|item| extents(&item.bp).skip(1)).collect();
        let whole = extents.iter().map(|e| e.psize.0).sum::<u64>() <= AHEAD;
        if !whole {
            extents.clear();
        }
        let read = Arc::new(self.cache.zio().tree().fetch(&extents, true, self.request));
        Aside { read, whole }
    }

    fn begin(&self, ahead: &mut BatchReader<'_, '_>, items: &[Item], aside: &Aside) {
        let copies = if aside.whole { 1 } else { usize::MAX };
        let extents = items.iter().flat_map(|item| extents(&item.bp).take(copies));
        let extents: Vec<Extent> = extents.filter(|e| self.windows.around(e).is_none()).collect();
        ahead.begin(&self.cache.zio().tree(), &extents, self.look == ExamineKind::Scrub);
    }

    fn chunk(&self, items: Vec<Item>, fetched: Arc<Fetched>) -> Vec<Seen> {
        let (cache, how) = (Arc::clone(self.cache), self.look);
        let options = ReadOptions::new(self.request.with_fetched(fetched));
        self.workers.map(items, move |item: Item| {
            let (zio, place) = (cache.zio(), item.place());
            let saw = match how {
                ExamineKind::Scrub => {
                    zio.look(&item.bp, &item.bookmark, &options).map(|(_, done)| Saw::Done(done))
                }
                ExamineKind::Resilver => zio.lacking(&item.bp, &item.bookmark, &options).map(Saw::of),
            };
            Seen { bp: item.bp, entry: item.entry, place, saw }
        })
    }
}

/// A verified block, and what to write of it.
struct Seen {
    bp: Blkptr,
    entry: Entry,
    place: Option<(VdevId, u64)>,
    saw: zio::Result<Saw>,
}

enum Saw {
    Done(RepairOutcome),
    MissingPieces(MissingPieces),
}

impl Saw {
    fn of(lacking: Option<MissingPieces>) -> Saw {
        lacking.map_or_else(|| Saw::Done(RepairOutcome::default()), Saw::MissingPieces)
    }
}

/// What to write of a block: its index, its tree, and its layout.
type ToFill = (usize, Arc<Tree>, Laid);

/// Writes what devices lack. What lies in the lane is written at once; other copies when they are
/// many, or last. So the written devices are written in order.
struct Filling<'a> {
    request: &'a Request,
    done: Vec<Looked>,
    elsewhere: Vec<ToFill>,
    elsewhere_bytes: u64,
}

impl<'a> Filling<'a> {
    fn new(request: &'a Request) -> Self {
        Self { request, done: Vec::new(), elsewhere: Vec::new(), elsewhere_bytes: 0 }
    }

    fn take(&mut self, chunk: Vec<Seen>) {
        let mut here: Vec<ToFill> = Vec::new();
        for Seen { bp, entry, place, saw } in chunk {
            let n = self.done.len();
            let MissingPieces { laid, tree, known } = match saw {
                Ok(Saw::MissingPieces(lacking)) => lacking,
                Ok(Saw::Done(done)) => {
                    self.done.push(Looked { bp, entry, done: Ok(done) });
                    continue;
                }
                Err(e) => {
                    self.done.push(Looked { bp, entry, done: Err(e) });
                    continue;
                }
            };
            self.done.push(Looked { bp, entry, done: Ok(known) });
            for laid in laid.into_iter().filter(|laid| laid.bytes() > 0) {
                if place.is_none_or(|place| place == laid.place()) {
                    here.push((n, Arc::clone(&tree), laid));
                } else {
                    self.elsewhere_bytes += laid.bytes();
                    self.elsewhere.push((n, Arc::clone(&tree), laid));
                }
            }
        }
        self.fill(here);
        if self.elsewhere_bytes > AHEAD {
            self.fill_elsewhere();
        }
    }

    fn fill_elsewhere(&mut self) {
        self.elsewhere_bytes = 0;
        let all = std::mem::take(&mut self.elsewhere);
        self.fill(all);
    }

    fn fill(&mut self, all: Vec<ToFill>) {
        // When devices come and go the tree is replaced, and a layout on one tree is invalid on the
        // next.
        let mut left = all.into_iter().peekable();
        while let Some((n, tree, laid)) = left.next() {
            let (mut blocks, mut together) = (vec![n], vec![laid]);
            while let Some((n, _, laid)) = left.next_if(|(_, other, _)| Arc::ptr_eq(other, &tree)) {
                blocks.push(n);
                together.push(laid);
            }
            for (n, outcome) in blocks.into_iter().zip(tree.refill(&together, self.request)) {
                if let Ok(done) = &mut self.done[n].done {
                    done.add(outcome);
                }
            }
        }
    }

    fn end(mut self) -> Vec<Looked> {
        self.fill_elsewhere();
        self.done
    }
}
