//! Making a directory's blob.

use super::{
    BITMAP, CHAIN_TABLE, CHAINS, ENTRY_HEAD, Entry, FIRST, MAP, MAP_PAGES, MAX_NAME, MAX_PAGES, PAGE_SIZE,
    SLOT_SIZE, SLOTS, TAG, chain_of, first_slot, slots_of,
};
use crate::types::{Unique, Vnode};
use crate::{Error, Place, Record, Result};

/// Most slots that an entry takes.
const MAX_SLOTS: usize = slots_of(MAX_NAME);

/// Where entries go: the first page with enough free slots, as OpenAFS chooses it.
///
/// Entries are only added, so the used slots of a page are its first ones.
#[derive(Debug, Clone, Default)]
struct Slots {
    /// Used slots of each page.
    used: Vec<u8>,
    /// For each number of slots, the pages before this one have no space for so many.
    from: [usize; MAX_SLOTS + 1],
}

impl Slots {
    /// Takes `count` slots of one page, and returns the number of the first. `None`: no page has
    /// them.
    fn take(&mut self, count: usize) -> Option<usize> {
        let mut page = self.from[count];
        while self.used.get(page).is_some_and(|used| usize::from(*used) + count > SLOTS) {
            page += 1;
        }
        self.from[count] = page;
        if page == self.used.len() {
            if page == MAX_PAGES {
                return None;
            }
            self.used.push(u8::try_from(first_slot(page)).expect("a page has 64 slots"));
        }
        let used = &mut self.used[page];
        let first = page * SLOTS + usize::from(*used);
        *used += u8::try_from(count).expect("an entry has few slots");
        Some(first)
    }
}

/// Why the builder refuses a name.
fn check(name: &[u8], page: usize) -> Result<()> {
    let place = Place { record: Record::Directory, at: (page * PAGE_SIZE) as u64 };
    if name.len() > MAX_NAME {
        return Err(Error::TooLong { place, field: "a name", max: MAX_NAME });
    }
    if name.is_empty() || name.iter().any(|byte| matches!(byte, 0 | b'/')) {
        return Err(Error::Shape { place, why: "a name is empty, or has a slash or a NUL inside" });
    }
    Ok(())
}

fn full() -> Error {
    let place = Place { record: Record::Directory, at: (MAX_PAGES * PAGE_SIZE) as u64 };
    Error::TooLong { place, field: "the directory", max: MAX_PAGES * PAGE_SIZE }
}

/// Makes a directory's blob from its entries.
#[derive(Debug, Clone)]
pub struct Builder {
    slots: Slots,
    blob: Vec<u8>,
}

impl Builder {
    /// A directory with the entries `.` and `..`.
    ///
    /// `itself` and `parent` are the two directories. For the root they are equal.
    pub fn new(itself: (Vnode, Unique), parent: (Vnode, Unique)) -> Self {
        let mut builder = Self { slots: Slots::default(), blob: Vec::new() };
        for (name, (vnode, unique)) in [(&b"."[..], itself), (b"..", parent)] {
            builder.put(Entry { name, vnode, unique }).expect("the first page has space");
        }
        builder
    }

    /// Adds an entry. The caller adds no name twice.
    ///
    /// # Errors
    /// * [`Error::TooLong`]: the name has more than 255 bytes (ENAMETOOLONG), or the directory has
    ///   no space left (EFBIG).
    /// * [`Error::Shape`]: the name is empty, or has a slash or a NUL inside (EINVAL).
    pub fn add(&mut self, entry: Entry<'_>) -> Result<()> {
        check(entry.name, self.page_count())?;
        self.put(entry).ok_or_else(full)
    }

    /// How many pages the directory has.
    pub fn page_count(&self) -> usize {
        self.slots.used.len()
    }

    fn put(&mut self, entry: Entry<'_>) -> Option<()> {
        let slot = self.slots.take(slots_of(entry.name.len()))?;
        self.blob.resize(self.page_count() * PAGE_SIZE, 0);
        let chain = CHAIN_TABLE + 2 * chain_of(entry.name);
        // A new entry is the first of its chain.
        let next = [self.blob[chain], self.blob[chain + 1]];
        let number = u16::try_from(slot).expect("a directory has less than 65,536 slots");
        self.blob[chain..chain + 2].copy_from_slice(&number.to_be_bytes());
        let place = &mut self.blob[slot * SLOT_SIZE..];
        place[0] = FIRST;
        place[2..4].copy_from_slice(&next);
        place[4..8].copy_from_slice(&entry.vnode.0.to_be_bytes());
        place[8..12].copy_from_slice(&entry.unique.0.to_be_bytes());
        place[ENTRY_HEAD..ENTRY_HEAD + entry.name.len()].copy_from_slice(entry.name);
        Some(())
    }

    /// The blob.
    pub fn finish(mut self) -> Vec<u8> {
        let pages = u16::try_from(self.page_count()).expect("1,023 pages at most");
        for (page, used) in self.slots.used.iter().enumerate() {
            let head = &mut self.blob[page * PAGE_SIZE..];
            head[2..4].copy_from_slice(&TAG.to_be_bytes());
            // The free slots of the empty page: OpenAFS never changes this byte.
            head[4] = u8::try_from(SLOTS - first_slot(page)).expect("a page has 64 slots");
            let bitmap = u64::MAX >> (SLOTS - usize::from(*used));
            head[BITMAP..BITMAP + 8].copy_from_slice(&bitmap.to_le_bytes());
        }
        self.blob[..2].copy_from_slice(&pages.to_be_bytes());
        for (page, free) in self.blob[MAP..MAP + MAP_PAGES].iter_mut().enumerate() {
            *free = SLOTS as u8 - self.slots.used.get(page).copied().unwrap_or(0);
        }
        self.blob
    }
}

/// The number of pages of a directory with these names and `.` and `..`, without its blob.
///
/// The length in the status of a directory is this number times [`PAGE_SIZE`].
///
/// # Errors
/// As those of [`Builder::add`].
pub fn page_count<'a>(names: impl IntoIterator<Item = &'a [u8]>) -> Result<usize> {
    let mut slots = Slots::default();
    for dots in [1, 2] {
        slots.take(slots_of(dots)).expect("the first page has space");
    }
    for name in names {
        check(name, slots.used.len())?;
        slots.take(slots_of(name.len())).ok_or_else(full)?;
    }
    Ok(slots.used.len())
}

const _: () = assert!(CHAIN_TABLE + 2 * CHAINS == super::HEADER_SLOTS * SLOT_SIZE);
const _: () = assert!(MAP + MAP_PAGES == CHAIN_TABLE);
