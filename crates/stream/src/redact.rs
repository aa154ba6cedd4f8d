//! Redacting: the blocks that some later snapshots all have changed come on a list.
//!
//! # Theory
//! One thread for each redaction snapshot walks over what differs from the snapshot that is
//! redacted: blocks, holes, and objects that are gone or only wait to be freed. So it gives ranges
//! in the order of objects and blocks. The caller's thread joins them. A block is redacted if it is
//! in a range of every thread, and the object exists in the redacted snapshot.
//!
//! Metadata are never redacted: directories, attributes and the like.
//!
//! # Life
//! The bookmark is made first. The list grows by a transaction for each [`AT_ONCE`] entries. What a
//! crash or an error has cut short goes on with the same command.
//!
//! # See
//! OpenZFS `dmu_redact.c`.

use std::collections::HashSet;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use dmu::zap::Zap;
use dmu::{Dnode, Objset};
use dsl::keys::KeyStatus;
use dsl::ops::redact::{AppendRedactions, CreateRedacted, ListSlot};
use dsl::{Dataset, KeyRefusal, LongHold, Name, ZFS_MAX_DATASET_NAME_LEN};
use ondisk::bookmark::RedactBlock;
use ondisk::{Corrupt, ObjNum, Txg};
use spa::Spa;
use spa::engine::{PoolWriter, TaskError};
use spa::txg::Stopped;

use crate::send::walk::{Change, Start, Walk};

#[cfg(test)]
mod tests;

/// Entries that one transaction adds to a list.
const AT_ONCE: usize = 4096;
/// Most blocks of one entry (`REDACT_BLOCK_MAX_COUNT`).
const COUNT_MAX: u64 = (1 << 48) - 1;
/// The last block that an object can have: an offset has 63 bits, a block at least 512 bytes.
const BLKID_MAX: u64 = (1 << 54) - 1;
/// Ranges of one thread that wait to be joined.
const WAITING: usize = 1024;

/// Why a snapshot is not redacted.
#[derive(Debug, thiserror::Error)]
pub enum RedactError {
    /// A dataset can't be read, or the pool refuses the bookmark.
    #[error(transparent)]
    Dataset(#[from] dsl::Error),
    /// What is to be redacted is not a snapshot (`EINVAL`).
    #[error("operation only applies to snapshots")]
    NotSnapshot,
    /// A redaction snapshot does not descend from the snapshot (`EINVAL`).
    #[error("{0}: redaction snapshot must be descendent of snapshot being redacted")]
    NotDescendant(String),
    /// A redaction snapshot is of another pool (`EXDEV`).
    #[error("{0}: potentially invalid redaction snapshot; full dataset names required")]
    OtherPool(String),
    /// The snapshot or a redaction snapshot was received redacted (`EALREADY`).
    #[error("{0}: attempted to redact redacted dataset or with respect to redacted dataset")]
    Redacted(String),
    /// The bookmark exists (`EEXIST`).
    #[error("specified redaction bookmark provided already exists")]
    Exists,
    /// The bookmark has an incomplete list for other snapshots (`ESRCH`).
    #[error("attempted to resume redaction with a mismatched redaction list")]
    Mismatched,
    /// The bookmark's name would be too long (`ENAMETOOLONG`).
    #[error("final name would be too long")]
    NameTooLong,
    /// Blocks of a snapshot can't be read.
    #[error(transparent)]
    Walk(#[from] dmu::Error),
    /// A thread can't start.
    #[error("a thread can't start")]
    Thread(#[source] std::io::Error),
    /// The pool has stopped.
    #[error(transparent)]
    Stopped(#[from] Stopped),
}

impl From<TaskError> for RedactError {
    fn from(error: TaskError) -> Self {
        match error {
            TaskError::Refused(error) => error.into(),
            TaskError::Stopped(stopped) => stopped.into(),
        }
    }
}

/// Creates a redaction bookmark of a snapshot, or completes it (`dmu_redact_snap`).
///
/// `bookmark` is the part of its name after the `#`. `by` has the full names of the redaction
/// snapshots.
///
/// # Errors
/// * [`RedactError::Dataset`]: a snapshot does not exist, can't be read, or its key is not loaded;
///   or the pool refuses the bookmark: a feature is not enabled, there are too many redaction
///   snapshots, no space.
/// * [`RedactError::NotSnapshot`], [`RedactError::NotDescendant`], [`RedactError::OtherPool`],
///   [`RedactError::Redacted`], [`RedactError::NameTooLong`]: the snapshots or the name do not fit.
/// * [`RedactError::Exists`], [`RedactError::Mismatched`]: the bookmark exists, and is no list for
///   these snapshots that can go on.
/// * [`RedactError::Walk`], [`RedactError::Thread`], [`RedactError::Stopped`]: the list is not
///   complete. The same request completes it.
pub fn redact(spa: &Arc<Spa>, snapshot: &str, bookmark: &str, by: &[String]) -> Result<(), RedactError> {
    let read_only = || dsl::Error::Refused { name: snapshot.to_owned(), why: dsl::Refusal::ReadOnly };
    let live = spa.writer().ok_or_else(read_only)?;
    let by = once_each(by);
    let found = spa.read(|| Found::new(live, snapshot, bookmark, &by))?;
    let (list, _hold, from) = match found.list {
        Some(list) => list,
        None => {
            let made = ListSlot::default();
            live.run(Box::new(CreateRedacted {
                bookmark: found.bookmark.clone(),
                snapshot: snapshot.to_owned(),
                snaps: found.by.iter().map(|by| by.phys().guid).collect(),
                made: Arc::clone(&made),
            }))?;
            let (list, hold) = made.lock().take().expect("the task leaves the list there");
            (list, hold, (0, 0))
        }
    };
    let os = contents(&found.snapshot)?;
    let mut list = List { live, object: list, from, open: None, blocks: Vec::new(), os: &os, last: None };
    join_all(&found.snapshot, &found.by, &mut list)?;
    list.end()
}

/// Names without repetitions, in the order of their last places, as in an nvlist.
fn once_each(names: &[String]) -> Vec<String> {
    let mut seen = HashSet::new();
    let mut out: Vec<String> = names.iter().rev().filter(|name| seen.insert(*name)).cloned().collect();
    out.reverse();
    out
}

/// The object set of a snapshot.
fn contents(of: &Dataset) -> Result<Objset, RedactError> {
    let none = || dsl::Error::Refused { name: of.name(), why: dsl::Refusal::Inconsistent };
    Ok(of.objset()?.ok_or_else(none)?)
}

/// What a request names.
struct Found {
    snapshot: Dataset,
    by: Vec<Dataset>,
    /// The full name of the bookmark.
    bookmark: String,
    /// The incomplete list that the bookmark has: its object, and where it goes on.
    list: Option<(ObjNum, LongHold, (u64, u64))>,
    #[allow(dead_code, reason = "keeps the snapshots by living")]
    holds: Vec<LongHold>,
}

impl Found {
    fn new(live: &PoolWriter, snapshot: &str, bookmark: &str, by: &[String]) -> Result<Self, RedactError> {
        let dsl = live.dsl();
        let open = |name: &str| -> Result<Dataset, RedactError> {
            let found = dsl.dataset(name)?;
            if dsl.keys().status(found.dir())? == KeyStatus::Unavailable {
                return Err(dsl::Error::Key { name: name.to_owned(), why: KeyRefusal::NotLoaded }.into());
            }
            Ok(found)
        };
        let of = open(snapshot)?;
        let (head, Some(_)) = (of.dir().name().to_owned(), of.snapshot_name()) else {
            return Err(RedactError::NotSnapshot);
        };
        if of.redacted_for()?.is_some() {
            return Err(RedactError::Redacted(snapshot.to_owned()));
        }
        let mut holds = vec![dsl.heads().long_hold(of.object().0)];
        let mut all = Vec::new();
        for name in by {
            if pool_of(name).is_none_or(|pool| Some(pool) != pool_of(snapshot)) {
                return Err(RedactError::OtherPool(name.clone()));
            }
            let by = open(name)?;
            // A head would change meanwhile.
            if !by.is_snapshot() || !by.is_after_txg(&of, of.phys().creation_txg)? {
                return Err(RedactError::NotDescendant(name.clone()));
            }
            if by.redacted_for()?.is_some() {
                return Err(RedactError::Redacted(name.clone()));
            }
            holds.push(dsl.heads().long_hold(by.object().0));
            all.push(by);
        }
        let full = format!("{head}#{bookmark}");
        if full.len() >= ZFS_MAX_DATASET_NAME_LEN {
            return Err(RedactError::NameTooLong);
        }
        let Some(mark) = dsl.dataset(&head)?.bookmark(bookmark)? else {
            return Ok(Self { snapshot: of, by: all, bookmark: full, list: None, holds });
        };
        if mark.phys.redaction_obj == 0 {
            return Err(RedactError::Exists);
        }
        let object = ObjNum(mark.phys.redaction_obj);
        let list = dsl.redaction_list(object)?;
        let same = |by: &Dataset| list.snaps().contains(&by.phys().guid);
        if list.snaps().len() != all.len() || !all.iter().all(same) || mark.phys.guid != of.phys().guid {
            return Err(RedactError::Mismatched);
        }
        let held = dsl.heads().try_long_hold(object.0).ok_or(RedactError::Exists)?;
        // Another command may have gone on with it before it was held.
        let list = dsl.redaction_list(object)?;
        if list.is_complete() {
            return Err(RedactError::Exists);
        }
        let list = Some((object, held, list.reached()));
        Ok(Self { snapshot: of, by: all, bookmark: full, list, holds })
    }
}

/// The pool in a full name.
fn pool_of(name: &str) -> Option<&str> {
    Name::parse(name).ok().map(|name| name.pool())
}

/// A range of blocks, from the first to the last, each with its object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Span {
    first: (u64, u64),
    last: (u64, u64),
}

/// Joins the ranges of all redaction snapshots, and adds what is in all of them to the list.
fn join_all(of: &Dataset, by: &[Dataset], list: &mut List<'_>) -> Result<(), RedactError> {
    let since = of.phys().creation_txg;
    let sets: Vec<(Objset, HashSet<u64>)> =
        by.iter().map(|by| Ok((contents(by)?, unlinked(by)?))).collect::<Result<_, RedactError>>()?;
    std::thread::scope(|scope| {
        let mut threads: Vec<Ranges> = Vec::new();
        for (os, unlinked) in &sets {
            let (out, ranges) = sync_channel(WAITING);
            let walk = move || walk(os, unlinked, since, &out);
            let thread = std::thread::Builder::new().name("redact-walk".to_owned());
            thread.spawn_scoped(scope, walk).map_err(RedactError::Thread)?;
            threads.push(Ranges(ranges));
        }
        join(&mut threads, &mut |span| list.span(span))
    })
}

/// The ranges of one thread. Once it is dropped, the thread ends.
struct Ranges(Receiver<Result<Span, dmu::Error>>);

impl Ranges {
    /// The next range; `None` after the last.
    fn next(&mut self) -> Result<Option<Span>, dmu::Error> {
        self.0.recv().ok().transpose()
    }
}

/// Gives what is in ranges of all threads (`perform_thread_merge`).
///
/// The range that ends first has helped as much as it can, and is replaced by the next one of its
/// thread.
fn join(
    threads: &mut [Ranges],
    found: &mut dyn FnMut(Span) -> Result<(), RedactError>,
) -> Result<(), RedactError> {
    let mut fronts = Vec::new();
    for thread in threads.iter_mut() {
        let Some(front) = thread.next()? else { return Ok(()) };
        fronts.push(front);
    }
    loop {
        let (Some(first), Some(last)) =
            (fronts.iter().map(|f| f.first).max(), fronts.iter().map(|f| f.last).min())
        else {
            return Ok(());
        };
        if first <= last {
            found(Span { first, last })?;
        }
        let at = fronts.iter().position(|f| f.last == last).expect("one of them is the least");
        match threads[at].next()? {
            Some(next) => fronts[at] = next,
            None => return Ok(()),
        }
    }
}

/// The objects of a file system that were removed and are not freed yet (`zfs_get_deleteq`).
fn unlinked(of: &Dataset) -> Result<HashSet<u64>, RedactError> {
    let Some(queue) = of.master_node("DELETE_QUEUE")? else { return Ok(HashSet::new()) };
    let queue = Zap::open(&contents(of)?.dnode(ObjNum(queue))?)?;
    let mut out = HashSet::new();
    for entry in queue.entries() {
        out.extend(entry?.value.first());
    }
    Ok(out)
}

/// Gives the ranges in which a snapshot differs from one of an earlier txg (`redact_cb`).
fn walk(os: &Objset, unlinked: &HashSet<u64>, since: Txg, out: &SyncSender<Result<Span, dmu::Error>>) {
    // The object whose blocks come, the size of these, and whether they count.
    let (mut block_size, mut gone) = (1, None);
    let mut emit = |change: Change| {
        let whole = |first: u64, last: u64| Some(Span { first: (first, 0), last: (last, u64::MAX) });
        let span = match change {
            Change::NoObjects { first, count } => {
                whole(first.max(1), first.saturating_add(count.saturating_sub(1)))
            }
            Change::Object { object, dnode, .. } => {
                block_size = u64::from(dnode.datablksz);
                gone = unlinked.contains(&object.0).then_some(object);
                gone.and_then(|object| whole(object.0, object.0))
            }
            Change::Hole { object, .. } | Change::Data { object, .. } | Change::Redacted { object, .. }
                if gone == Some(object) =>
            {
                None
            }
            Change::Hole { object, offset, length } | Change::Redacted { object, offset, length } => {
                let end = offset.saturating_add(length);
                let last = if end == u64::MAX { u64::MAX } else { (end / block_size).saturating_sub(1) };
                Some(Span { first: (object.0, offset / block_size), last: (object.0, last) })
            }
            Change::Data { object, blkid, .. } => {
                Some(Span { first: (object.0, blkid.0), last: (object.0, blkid.0) })
            }
            Change::Dnodes { .. } | Change::Spill { .. } | Change::Lost(_) => None,
        };
        span.is_none_or(|span| out.send(Ok(span)).is_ok())
    };
    let done = Walk {
        cache: os.cache(),
        objset: os.id(),
        since,
        start: Start::default(),
        raw: false,
        behind: true,
        before: None,
        skips: false,
        options: os.options().clone(),
        steps: os.cache().zio().walk_limit(),
        emit: &mut emit,
    }
    .run(&os.phys().meta_dnode);
    if let Err(Some(error)) = done {
        // Without a receiver, the error is that of another thread.
        drop(out.send(Err(error)));
    }
}

/// A list that grows.
struct List<'a> {
    live: &'a PoolWriter,
    object: ObjNum,
    /// What comes before is on the list already.
    from: (u64, u64),
    /// The entry to which the next block may still be added.
    open: Option<RedactBlock>,
    /// Entries that wait for a transaction.
    blocks: Vec<RedactBlock>,
    /// The redacted snapshot.
    os: &'a Objset,
    /// The object that was used last.
    last: Option<Dnode>,
}

impl List<'_> {
    /// Adds the blocks of a range that exist (`perform_redaction`).
    fn span(&mut self, span: Span) -> Result<(), RedactError> {
        let ((first, from), (last, to)) = (span.first, span.last);
        if first == last {
            let known = self.last.take().filter(|dnode| dnode.object().0 == first);
            let dnode = match known {
                Some(dnode) => dnode,
                None => match self.os.dnode(ObjNum(first)) {
                    Ok(dnode) => dnode,
                    Err(dmu::Error::NoSuchObject { .. }) => return Ok(()),
                    Err(error) => return Err(error.into()),
                },
            };
            let added = self.blocks_of(&dnode, from, to);
            self.last = Some(dnode);
            return added;
        }
        for dnode in self.os.objects(ObjNum(first)) {
            let dnode = dnode?;
            let object = dnode.object().0;
            if object > last {
                break;
            }
            let from = if object == first { from } else { 0 };
            let to = if object == last { to } else { u64::MAX };
            self.blocks_of(&dnode, from, to)?;
        }
        Ok(())
    }

    /// Adds blocks of an object.
    fn blocks_of(&mut self, dnode: &Dnode, from: u64, to: u64) -> Result<(), RedactError> {
        let (object, max) = (dnode.object().0, dnode.max_blkid().0);
        if dnode.kind().is_metadata() || (object, to) < self.from {
            return Ok(());
        }
        if max > BLKID_MAX {
            let why = "it has more blocks than its offsets have numbers";
            return Err(dnode.corrupt(Corrupt::Shape { what: "dnode", why }).into());
        }
        let from = if object == self.from.0 { from.max(self.from.1) } else { from };
        let (mut blkid, behind) = (from, max.min(to) + 1);
        while blkid < behind {
            let count = (behind - blkid).min(COUNT_MAX);
            let next = RedactBlock { object, blkid, block_size: dnode.block_size(), count };
            if let ControlFlow::Break(reached) = self.add(next) {
                self.append(reached)?;
            }
            blkid += count;
        }
        Ok(())
    }

    /// Adds an entry. Breaks with the place up to which all entries can be stored, if there are
    /// many.
    fn add(&mut self, next: RedactBlock) -> ControlFlow<(u64, u64)> {
        if let Some(open) = &mut self.open {
            let continues = (open.object, open.blkid + open.count) == (next.object, next.blkid);
            if continues && open.count + next.count <= COUNT_MAX {
                open.count += next.count;
                return ControlFlow::Continue(());
            }
            self.blocks.push(*open);
        }
        self.open = Some(next);
        match self.blocks.len() < AT_ONCE {
            true => ControlFlow::Continue(()),
            false => ControlFlow::Break((next.object, next.blkid)),
        }
    }

    /// Stores the entries.
    fn append(&mut self, reached: (u64, u64)) -> Result<(), RedactError> {
        let blocks = std::mem::take(&mut self.blocks);
        Ok(self.live.run(Box::new(AppendRedactions { object: self.object, blocks, reached }))?)
    }

    /// Stores the last entries: the list is complete.
    fn end(mut self) -> Result<(), RedactError> {
        self.blocks.extend(self.open.take());
        self.append((u64::MAX, u64::MAX))
    }
}
