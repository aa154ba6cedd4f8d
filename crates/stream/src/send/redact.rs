//! Redacted streams, and streams from redaction bookmarks.
//!
//! # Theory
//! Three sequences of ranges of blocks are joined, all in the order of objects and blocks:
//!
//! | sequence | where it comes from | where it counts, the stream has |
//! |---|---|---|
//! | redacted | the list of `--redact` | REDACT |
//! | changed | the walk over the snapshot | what the walk says |
//! | earlier | the list of the bookmark that is the origin | the blocks as they are now |
//!
//! Where ranges overlap, the first of the three counts. What is on both lists is not mentioned: the
//! receiver has it redacted already.
//!
//! # See
//! OpenZFS `find_next_range`, `send_merge_thread`, and of `send_reader_thread` the case
//! `PREVIOUSLY_REDACTED`. That ends one block early: the last block of an object stays redacted
//! there, and is sent here.

use std::collections::VecDeque;

use dmu::{Dnode, Objset};
use dsl::Dataset;
use dsl::redact::RedactionList;
use ondisk::blkptr::Body;
use ondisk::bookmark::RedactBlock;
use ondisk::{BlkId, Corrupt, Level, ObjNum, Txg};

use super::walk::{Change, Start, Stop};
use super::{Options, SendError};

#[cfg(test)]
mod tests;

/// The lists that a stream uses.
#[derive(Debug, Default)]
pub(super) struct Lists {
    /// What it leaves out.
    pub(super) redact: Option<RedactionList>,
    /// What the origin has left out.
    pub(super) earlier: Option<RedactionList>,
}

impl Lists {
    /// Opens the lists that the options name.
    ///
    /// # Errors
    /// * [`SendError::Incomplete`]: a list is not complete.
    /// * [`SendError::Dataset`]: a list can't be read.
    pub(super) fn open(dataset: &Dataset, options: &Options) -> Result<Self, SendError> {
        let open = |object: u64| {
            if object == 0 {
                return Ok(None);
            }
            let list = dataset.dsl().redaction_list(ObjNum(object))?;
            if list.is_complete() { Ok(Some(list)) } else { Err(SendError::Incomplete) }
        };
        let redact = open(options.redact.map_or(0, |object| object.0))?;
        let earlier = open(options.origin.map_or(0, |origin| origin.mark.redaction_obj))?;
        Ok(Self { redact, earlier })
    }
}

/// A range of blocks of one object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Range {
    object: u64,
    from: u64,
    /// The first block behind it.
    to: u64,
    block_size: u64,
}

impl Range {
    fn start(&self) -> (u64, u64) {
        (self.object, self.from)
    }

    /// The rest from a block on, if there is one.
    fn after(self, from: u64) -> Option<Self> {
        (from < self.to).then_some(Self { from, ..self })
    }
}

/// The ranges of a list, in order.
struct Cursor {
    list: Option<RedactionList>,
    /// The number of the entry after `read`.
    next: u64,
    read: VecDeque<RedactBlock>,
    front: Option<Range>,
}

impl Cursor {
    /// The ranges from a place on.
    fn new(list: Option<&RedactionList>, start: Start) -> dmu::Result<Self> {
        let (object, blkid) = (start.object.0, start.blkid.0);
        let next = list.map_or(Ok(0), |list| list.find(object, blkid))?;
        let mut cursor = Self { list: list.cloned(), next, read: VecDeque::new(), front: None };
        cursor.front = cursor.take((0, 0))?;
        if let Some(front) = cursor.front.as_mut().filter(|front| front.object == object) {
            front.from = front.from.max(blkid);
        }
        Ok(cursor)
    }

    /// The next entry, which must not begin before a place.
    fn take(&mut self, least: (u64, u64)) -> dmu::Result<Option<Range>> {
        let Some(list) = &self.list else { return Ok(None) };
        if self.read.is_empty() {
            self.read = list.entries(self.next)?.into();
            self.next += self.read.len() as u64;
        }
        let Some(entry) = self.read.pop_front() else { return Ok(None) };
        let RedactBlock { object, blkid: from, block_size, count } = entry;
        if (object, from) < least {
            return Err(list.malformed());
        }
        Ok(Some(Range { object, from, to: from + count, block_size }))
    }

    /// Drops what is before block `to` of the range in front.
    fn advance(&mut self, to: u64) -> dmu::Result<()> {
        let Some(front) = self.front else { return Ok(()) };
        self.front = match front.after(to) {
            None => self.take((front.object, front.to))?,
            rest => rest,
        };
        Ok(())
    }
}

/// Joins the changes of a walk with the lists.
pub(super) struct Merge<'a> {
    os: &'a Objset,
    /// The txg of the origin.
    since: Txg,
    redact: Cursor,
    earlier: Cursor,
    /// The size of the blocks of the object that the walk is in.
    block_size: u64,
    /// The object that was looked up last: `None` if it does not exist.
    last: Option<(u64, Option<Dnode>)>,
    failed: Option<dmu::Error>,
    /// Gets each change, and says whether to go on.
    out: &'a mut dyn FnMut(Change) -> bool,
}

impl<'a> Merge<'a> {
    /// Joins with `lists`, from a place on.
    ///
    /// # Errors
    /// * [`dmu::Error`]: a list can't be read, or is malformed.
    pub(super) fn new(
        os: &'a Objset,
        since: Txg,
        lists: &Lists,
        start: Start,
        out: &'a mut dyn FnMut(Change) -> bool,
    ) -> dmu::Result<Self> {
        let redact = Cursor::new(lists.redact.as_ref(), start)?;
        let earlier = Cursor::new(lists.earlier.as_ref(), start)?;
        Ok(Self { os, since, redact, earlier, block_size: 1, last: None, failed: None, out })
    }

    /// Takes a change of the walk. Says whether to go on.
    pub(super) fn change(&mut self, change: Change) -> bool {
        let done = match (self.redact.front, self.earlier.front) {
            (None, None) => Ok((self.out)(change)),
            _ => self.joined(change),
        };
        done.unwrap_or_else(|error| {
            self.failed = Some(error);
            false
        })
    }

    /// Ends the walk, which came to this result.
    pub(super) fn end(mut self, done: Result<(), Stop>) -> Result<(), Stop> {
        if let Some(error) = self.failed.take() {
            return Err(Some(error));
        }
        done?;
        match self.before(u64::MAX) {
            Ok(true) => Ok(()),
            Ok(false) => Err(None),
            Err(error) => Err(Some(error)),
        }
    }

    fn joined(&mut self, change: Change) -> dmu::Result<bool> {
        let (object, from, to) = match &change {
            Change::Object { object, dnode, .. } => {
                self.block_size = u64::from(dnode.datablksz);
                return Ok(self.before(object.0)? && (self.out)(change));
            }
            Change::NoObjects { first, .. } | Change::Dnodes { first, .. } => {
                return Ok(self.before(*first)? && (self.out)(change));
            }
            // One that has not changed comes with its object. Else it is behind all blocks.
            Change::Lost(_) => return Ok((self.out)(change)),
            Change::Spill { bp, .. } if bp.birth <= self.since => return Ok((self.out)(change)),
            Change::Spill { object, .. } => {
                return Ok(self.before(object.0.saturating_add(1))? && (self.out)(change));
            }
            Change::Data { object, blkid, .. } => (object.0, blkid.0, blkid.0.saturating_add(1)),
            Change::Hole { object, offset, length } | Change::Redacted { object, offset, length } => {
                let to = match offset.saturating_add(*length) {
                    u64::MAX => u64::MAX,
                    end => end / self.block_size,
                };
                (object.0, offset / self.block_size, to)
            }
        };
        let block_size = self.block_size;
        let mut rest = Some(Range { object, from, to, block_size }).filter(|range| range.from < range.to);
        while rest.is_some() {
            if !self.next(&mut rest, Some(&change))? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Gives what is on the lists for objects below a number.
    fn before(&mut self, object: u64) -> dmu::Result<bool> {
        let below = |front: Option<Range>| front.is_some_and(|front| front.object < object);
        while below(self.redact.front) || below(self.earlier.front) {
            if !self.next(&mut None, None)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Gives the range that begins first, up to where another one begins or ends.
    fn next(&mut self, changed: &mut Option<Range>, change: Option<&Change>) -> dmu::Result<bool> {
        let fronts = [self.redact.front, *changed, self.earlier.front];
        let Some(at) = fronts.iter().flatten().map(Range::start).min() else { return Ok(true) };
        let same = fronts.iter().flatten().filter(|range| range.object == at.0);
        let to = same.map(|range| if range.from > at.1 { range.from } else { range.to }).min();
        let to = to.expect("one of them is the first");
        let [redact, of_walk, earlier] = fronts.map(|range| range.filter(|range| range.start() == at));
        if redact.is_some() {
            self.redact.advance(to)?;
        }
        if let Some(range) = of_walk {
            *changed = range.after(to);
        }
        if earlier.is_some() {
            self.earlier.advance(to)?;
        }
        match (redact, of_walk, earlier) {
            (Some(_), _, Some(_)) => Ok(true),
            (Some(range), of_walk, None) => {
                let exists = of_walk.is_some() || self.object(range.object)?.is_some();
                let object = ObjNum(range.object);
                Ok(!exists || (self.out)(bytes(object, range.block_size, (at.1, to), true)))
            }
            (None, Some(_), _) => Ok((self.out)(part(change, self.block_size, (at.1, to)))),
            (None, None, Some(range)) => self.again(range.object, at.1, to),
            (None, None, None) => Ok(true),
        }
    }

    /// The dnode of an object of the snapshot, if there is one.
    fn object(&mut self, object: u64) -> dmu::Result<Option<Dnode>> {
        if let Some((_, dnode)) = self.last.as_ref().filter(|(last, _)| *last == object) {
            return Ok(dnode.clone());
        }
        let found = match self.os.dnode_undecrypted(ObjNum(object)) {
            Ok(dnode) => Some(dnode),
            Err(dmu::Error::NoSuchObject { .. }) => None,
            Err(error) => return Err(error),
        };
        self.last = Some((object, found.clone()));
        Ok(found)
    }

    /// Gives blocks that the origin lacks, as they are now.
    fn again(&mut self, number: u64, from: u64, to: u64) -> dmu::Result<bool> {
        let Some(dnode) = self.object(number)? else { return Ok(true) };
        let (object, size) = (dnode.object(), dnode.block_size());
        let to = to.min(dnode.max_blkid().0.saturating_add(1));
        let mut at = from;
        while at < to {
            let data = dnode.next_data_block(BlkId(at))?.map_or(to, |blkid| blkid.0.min(to));
            if data > at {
                if !(self.out)(bytes(object, size, (at, data), false)) {
                    return Ok(false);
                }
                at = data;
                continue;
            }
            let (blkid, kind) = (BlkId(at), dnode.kind());
            let bp = dnode.bp(Level(0), blkid)?;
            if bp.lsize.0 != size {
                let why = "a block is not of the object's block size";
                return Err(dnode.corrupt(Corrupt::Shape { what: "block tree", why }));
            }
            let change = match bp.body {
                Body::Redacted => bytes(object, size, (at, at + 1), true),
                _ => Change::Data { object, blkid, size: size as u32, kind, bp },
            };
            if !(self.out)(change) {
                return Ok(false);
            }
            at += 1;
        }
        Ok(true)
    }
}

/// Blocks that are redacted, or else a hole.
fn bytes(object: ObjNum, block_size: u64, (from, to): (u64, u64), redacted: bool) -> Change {
    let offset = from.saturating_mul(block_size);
    let length = to.saturating_mul(block_size) - offset;
    match redacted {
        true => Change::Redacted { object, offset, length },
        false => Change::Hole { object, offset, length },
    }
}

/// Some blocks of a change.
fn part(change: Option<&Change>, block_size: u64, blocks: (u64, u64)) -> Change {
    match change.expect("a range of the walk has its change") {
        Change::Hole { object, offset, length } => {
            let whole = bytes(*object, block_size, blocks, false);
            // A hole may end where bytes have no numbers.
            match whole {
                Change::Hole { offset: at, .. } if blocks.1 == u64::MAX => {
                    Change::Hole { object: *object, offset: at, length: offset + length - at }
                }
                whole => whole,
            }
        }
        Change::Redacted { object, .. } => bytes(*object, block_size, blocks, true),
        change => change.clone(),
    }
}
