//! Reading directories that other programs made.

use super::{
    BITMAP, CHAIN_TABLE, CHAINS, ENTRY_HEAD, Entry, FIRST, HEADER_SLOTS, MAP, MAP_PAGES, MAX_NAME, MAX_PAGES,
    PAGE_SIZE, SLOT_SIZE, SLOTS, TAG, chain_of, first_slot, slots_of,
};
use crate::types::{Unique, Vnode};
use crate::{Error, Place, Record, Result};

/// A directory whose hash chains are whole.
#[derive(Debug, Clone)]
pub struct Directory<'a> {
    /// Its pages, without what may follow them.
    blob: &'a [u8],
    /// The slots of entries, in ascending order.
    slots: Vec<u16>,
    /// The used slots of each page.
    used: Vec<u64>,
}

fn place(at: usize) -> Place {
    Place { record: Record::Directory, at: at as u64 }
}

fn shape<T>(at: usize, why: &'static str) -> Result<T> {
    Err(Error::Shape { place: place(at), why })
}

fn range<T>(at: usize, field: &'static str, value: u64) -> Result<T> {
    Err(Error::Range { place: place(at), field, value })
}

fn u16_at(blob: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([blob[at], blob[at + 1]])
}

fn u32_at(blob: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([blob[at], blob[at + 1], blob[at + 2], blob[at + 3]])
}

/// The entry in a slot of a blob that was checked.
fn entry_at(blob: &[u8], slot: u16) -> Entry<'_> {
    let at = usize::from(slot) * SLOT_SIZE;
    let name = &blob[at + ENTRY_HEAD..];
    let length = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
    Entry { name: &name[..length], vnode: Vnode(u32_at(blob, at + 4)), unique: Unique(u32_at(blob, at + 8)) }
}

impl<'a> Directory<'a> {
    /// Checks a blob. Bytes after its last page are ignored.
    ///
    /// # Errors
    /// * [`Error::Truncated`]: it has less pages than it says.
    /// * [`Error::Magic`]: a page has another tag.
    /// * [`Error::Range`]: a slot, vnode or page count is none.
    /// * [`Error::TooLong`]: a name has more than 255 bytes.
    /// * [`Error::Shape`]: chains are cyclic or overlap, an entry is in the chain of another name,
    ///   a name occurs twice or is not allowed, or `.` or `..` is missing.
    pub fn new(blob: &'a [u8]) -> Result<Self> {
        let blob = pages_of(blob)?;
        let mut found = Self { blob, slots: Vec::new(), used: vec![1; blob.len() / PAGE_SIZE] };
        found.used[0] = (1 << HEADER_SLOTS) - 1;
        for chain in 0..CHAINS {
            let mut from = CHAIN_TABLE + 2 * chain;
            loop {
                let slot = u16_at(blob, from);
                if slot == 0 {
                    break;
                }
                found.take(chain, slot, from)?;
                from = usize::from(slot) * SLOT_SIZE + 2;
            }
        }
        found.slots.sort_unstable();
        found.check_names()?;
        Ok(found)
    }

    /// Checks the entry in `slot`, which the number at byte `from` names, and marks its slots.
    ///
    /// A slot is marked once only, so that no chain is endless.
    fn take(&mut self, chain: usize, slot: u16, from: usize) -> Result<()> {
        let (page, first) = (usize::from(slot) / SLOTS, usize::from(slot) % SLOTS);
        if page >= self.used.len() || first < first_slot(page) {
            return range(from, "the slot of an entry", slot.into());
        }
        let at = usize::from(slot) * SLOT_SIZE;
        if self.blob[at] != FIRST {
            return range(at, "the flag of an entry", self.blob[at].into());
        }
        let name = &self.blob[at + ENTRY_HEAD..(page + 1) * PAGE_SIZE];
        let Some(length) = name.iter().position(|byte| *byte == 0) else {
            return shape(at + ENTRY_HEAD, "a name does not end in its page");
        };
        let name = &name[..length];
        if length > MAX_NAME {
            return Err(Error::TooLong { place: place(at + ENTRY_HEAD), field: "a name", max: MAX_NAME });
        }
        if name.is_empty() || name.contains(&b'/') {
            return shape(at + ENTRY_HEAD, "a name is empty, or has a slash inside");
        }
        if chain_of(name) != chain {
            return shape(at + ENTRY_HEAD, "an entry is in the hash chain of another name");
        }
        if u32_at(self.blob, at + 4) == 0 {
            return range(at + 4, "the vnode of an entry", 0);
        }
        if first + slots_of(length) > SLOTS {
            return shape(at + ENTRY_HEAD, "a name does not end in its page");
        }
        let mask = ((1u64 << slots_of(length)) - 1) << first;
        if self.used[page] & mask != 0 {
            return shape(from, "two entries share a slot");
        }
        self.used[page] |= mask;
        self.slots.push(slot);
        Ok(())
    }

    fn check_names(&self) -> Result<()> {
        let mut names: Vec<(&[u8], u16)> =
            self.slots.iter().map(|slot| (entry_at(self.blob, *slot).name, *slot)).collect();
        names.sort_unstable();
        if let Some(pair) = names.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            return shape(usize::from(pair[1].1) * SLOT_SIZE + ENTRY_HEAD, "a name occurs twice");
        }
        let has = |name: &[u8]| names.binary_search_by_key(&name, |(name, _)| *name).is_ok();
        if has(b".") && has(b"..") { Ok(()) } else { shape(0, "an entry '.' or '..' is missing") }
    }

    /// The entries in the order of their slots, with `.` and `..`. Clients list them in this order.
    pub fn entries(&self) -> impl ExactSizeIterator<Item = Entry<'a>> + Clone {
        let blob = self.blob;
        self.slots.clone().into_iter().map(move |slot| entry_at(blob, slot))
    }

    /// The entry with this name.
    pub fn lookup(&self, name: &[u8]) -> Option<Entry<'a>> {
        let mut from = CHAIN_TABLE + 2 * chain_of(name);
        loop {
            let slot = u16_at(self.blob, from);
            let entry = (slot != 0).then(|| entry_at(self.blob, slot))?;
            if entry.name == name {
                return Some(entry);
            }
            from = usize::from(slot) * SLOT_SIZE + 2;
        }
    }

    /// How many pages the directory has.
    pub fn page_count(&self) -> usize {
        self.used.len()
    }

    /// Whether the bitmaps and the allocation map agree with the entries, and `.` and `..` are the
    /// first entries.
    ///
    /// OpenAFS's salvager repairs a directory for which this is false.
    pub fn is_allocation_right(&self) -> bool {
        let bitmap = |page: usize| {
            let at = page * PAGE_SIZE + BITMAP;
            let bytes = self.blob[at..at + 8].try_into().expect("eight bytes");
            u64::from_le_bytes(bytes)
        };
        let map = &self.blob[MAP..MAP + MAP_PAGES];
        let free = |page: usize| self.used.get(page).map_or(SLOTS as u32, |used| used.count_zeros());
        let dots = [b".".as_slice(), b".."].into_iter().zip([HEADER_SLOTS, HEADER_SLOTS + 1]);
        let are_dots_first = dots
            .zip(&self.slots)
            .all(|((name, at), slot)| usize::from(*slot) == at && entry_at(self.blob, *slot).name == name);
        are_dots_first
            && self.used.iter().enumerate().all(|(page, used)| bitmap(page) == *used)
            && map.iter().enumerate().all(|(page, count)| u32::from(*count) == free(page))
    }
}

/// The pages that a blob says it has.
fn pages_of(blob: &[u8]) -> Result<&[u8]> {
    let truncated = || Error::Truncated { place: place(blob.len()), field: "a page" };
    if blob.len() < PAGE_SIZE {
        return Err(truncated());
    }
    let pages = match u16_at(blob, 0) {
        // Old directories have no count. The pages whose slots are not all free exist.
        0 => blob[MAP..MAP + MAP_PAGES].iter().filter(|free| usize::from(**free) != SLOTS).count(),
        count => count.into(),
    };
    if pages == 0 || pages > MAX_PAGES {
        return range(0, "the number of pages", pages as u64);
    }
    let blob = blob.get(..pages * PAGE_SIZE).ok_or_else(truncated)?;
    for page in 0..pages {
        let at = page * PAGE_SIZE + 2;
        let tag = u16_at(blob, at);
        if tag != TAG {
            return Err(Error::Magic { place: place(at), found: tag.into() });
        }
    }
    Ok(blob)
}
