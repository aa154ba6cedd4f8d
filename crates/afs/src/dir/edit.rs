//! Changing a directory's blob, entry by entry.

use super::{
    BITMAP, CHAIN_TABLE, ENTRY_HEAD, Entry, FIRST, MAP, MAP_PAGES, MAX_NAME, MAX_PAGES, PAGE_SIZE, SLOT_SIZE,
    SLOTS, TAG, chain_of, first_slot, slots_of,
};
use crate::types::{Unique, Vnode};

/// Most slots that an entry takes.
const MAX_SLOTS: usize = slots_of(MAX_NAME);

/// A directory's blob, which stays whole while entries come and go.
///
/// A new entry takes the first place with enough free slots, as OpenAFS chooses it.
#[derive(Debug, Clone)]
pub struct Editor {
    blob: Vec<u8>,
    /// Used slots of each page.
    used: Vec<u64>,
    /// For each number of slots, the pages before this one have no space for so many.
    from: [usize; MAX_SLOTS + 1],
}

impl AsRef<[u8]> for Editor {
    fn as_ref(&self) -> &[u8] {
        &self.blob
    }
}

impl Editor {
    /// The blob of a [`super::Builder`], for changes.
    pub fn new(blob: Vec<u8>) -> Self {
        let bitmap = |page: &[u8]| {
            let bytes = page[BITMAP..BITMAP + 8].iter().rev();
            bytes.fold(0u64, |bits, byte| bits << 8 | u64::from(*byte))
        };
        let used = blob.chunks_exact(PAGE_SIZE).map(bitmap).collect();
        Self { blob, used, from: [0; MAX_SLOTS + 1] }
    }

    /// How many bytes it has.
    pub fn len(&self) -> usize {
        self.blob.len()
    }

    /// Whether it has no bytes. No directory is so.
    pub fn is_empty(&self) -> bool {
        self.blob.is_empty()
    }

    /// Whether an entry with this name has space.
    pub fn has_room(&self, name: &[u8]) -> bool {
        let count = slots_of(name.len());
        let pages = self.used.iter().skip(self.from[count]);
        self.used.len() < MAX_PAGES || pages.into_iter().any(|used| place_of(*used, count).is_some())
    }

    /// The slots for an entry: a page, and the first slot in it.
    fn take(&mut self, count: usize) -> Option<(usize, usize)> {
        let mut page = self.from[count];
        let slot = loop {
            match self.used.get(page) {
                Some(used) => match place_of(*used, count) {
                    Some(slot) => break slot,
                    None => page += 1,
                },
                None if page == MAX_PAGES => return None,
                None => self.grow(),
            }
        };
        self.from[count] = page;
        self.used[page] |= mask(slot, count);
        Some((page, slot))
    }

    fn grow(&mut self) {
        let page = self.used.len();
        self.blob.resize((page + 1) * PAGE_SIZE, 0);
        self.used.push((1 << first_slot(page)) - 1);
        let head = &mut self.blob[page * PAGE_SIZE..];
        head[2..4].copy_from_slice(&TAG.to_be_bytes());
        head[4] = (SLOTS - first_slot(page)) as u8;
        self.blob[..2].copy_from_slice(&((page + 1) as u16).to_be_bytes());
    }

    /// Writes the bitmap of a page, and its number of free slots.
    fn note(&mut self, page: usize) {
        let used = self.used[page];
        let at = page * PAGE_SIZE + BITMAP;
        self.blob[at..at + 8].copy_from_slice(&used.to_le_bytes());
        if page < MAP_PAGES {
            self.blob[MAP + page] = used.count_zeros() as u8;
        }
    }

    /// Adds an entry, whose name the directory does not have. `false`: there is no space.
    pub fn add(&mut self, entry: Entry<'_>) -> bool {
        let Some((page, slot)) = self.take(slots_of(entry.name.len())) else { return false };
        self.note(page);
        let chain = CHAIN_TABLE + 2 * chain_of(entry.name);
        let next = [self.blob[chain], self.blob[chain + 1]];
        let number = (page * SLOTS + slot) as u16;
        self.blob[chain..chain + 2].copy_from_slice(&number.to_be_bytes());
        let at = usize::from(number) * SLOT_SIZE;
        let place = &mut self.blob[at..at + slots_of(entry.name.len()) * SLOT_SIZE];
        place.fill(0);
        place[0] = FIRST;
        place[2..4].copy_from_slice(&next);
        place[ENTRY_HEAD..ENTRY_HEAD + entry.name.len()].copy_from_slice(entry.name);
        self.point(at, entry.vnode, entry.unique);
        true
    }

    fn point(&mut self, at: usize, vnode: Vnode, unique: Unique) {
        self.blob[at + 4..at + 8].copy_from_slice(&vnode.0.to_be_bytes());
        self.blob[at + 8..at + 12].copy_from_slice(&unique.0.to_be_bytes());
    }

    /// The number of an entry's first slot, and where the chain has it.
    fn find(&self, name: &[u8]) -> Option<(usize, usize)> {
        let mut from = CHAIN_TABLE + 2 * chain_of(name);
        loop {
            let slot = usize::from(u16::from_be_bytes([self.blob[from], self.blob[from + 1]]));
            if slot == 0 {
                return None;
            }
            let at = slot * SLOT_SIZE;
            let found = &self.blob[at + ENTRY_HEAD..];
            if found.starts_with(name) && found.get(name.len()) == Some(&0) {
                return Some((slot, from));
            }
            from = at + 2;
        }
    }

    /// Removes an entry. `false`: there is none of this name.
    pub fn remove(&mut self, name: &[u8]) -> bool {
        let Some((slot, from)) = self.find(name) else { return false };
        let at = slot * SLOT_SIZE;
        self.blob.copy_within(at + 2..at + 4, from);
        let (page, count) = (slot / SLOTS, slots_of(name.len()));
        self.blob[at..at + count * SLOT_SIZE].fill(0);
        self.used[page] &= !mask(slot % SLOTS, count);
        self.note(page);
        self.from.iter_mut().for_each(|from| *from = (*from).min(page));
        true
    }

    /// Points an entry at another vnode. `false`: there is none of this name.
    pub fn replace(&mut self, entry: Entry<'_>) -> bool {
        let Some((slot, _)) = self.find(entry.name) else { return false };
        self.point(slot * SLOT_SIZE, entry.vnode, entry.unique);
        true
    }
}

fn mask(slot: usize, count: usize) -> u64 {
    ((1 << count) - 1) << slot
}

/// The first of `count` free slots of a page.
fn place_of(used: u64, count: usize) -> Option<usize> {
    // A bit stays if it and the next ones are free.
    let free = (1..count).fold(!used, |free, by| free & (!used >> by));
    let slot = free.trailing_zeros() as usize;
    (slot + count <= SLOTS).then_some(slot)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::dir::{Builder, Directory};

    fn entry(name: &str, number: u32) -> Entry<'_> {
        Entry { name: name.as_bytes(), vnode: Vnode(number), unique: Unique(number + 1) }
    }

    proptest! {
        /// Goal: after any changes, the blob has exactly the entries, and its maps are right. If
        /// entries are only added, it is the builder's.
        #[test]
        fn changes(steps in prop::collection::vec((0..60u32, 1..80usize, 1..9u32), 1..300)) {
            let root = (Vnode(1), Unique(1));
            let mut editor = Editor::new(Builder::new(root, root).finish());
            let mut builder = Some(Builder::new(root, root));
            let mut model = BTreeMap::new();
            for (which, length, number) in steps {
                let name = format!("{which}-{}", "n".repeat(length * usize::from(which % 7 == 0)));
                let new = entry(&name, number * 2);
                if model.insert(name.clone(), number * 2).is_none() {
                    prop_assert!(editor.has_room(new.name) && editor.add(new));
                    builder = builder.map(|mut builder| { builder.add(new).unwrap(); builder });
                } else if number % 3 == 0 {
                    prop_assert!(editor.replace(new));
                    builder = None;
                } else {
                    model.remove(&name);
                    prop_assert!(editor.remove(name.as_bytes()) && !editor.remove(name.as_bytes()));
                    builder = None;
                }
                if let Some(builder) = &builder {
                    prop_assert_eq!(editor.as_ref(), &builder.clone().finish()[..]);
                }
            }
            let directory = Directory::new(editor.as_ref()).unwrap();
            prop_assert!(directory.is_allocation_right());
            prop_assert_eq!(directory.entries().count(), model.len() + 2);
            for (name, number) in &model {
                prop_assert_eq!(directory.lookup(name.as_bytes()), Some(entry(name, *number)));
            }
        }
    }

    /// Goal: a full directory takes no more entries, and takes one again when one is removed.
    #[test]
    fn full() {
        let root = (Vnode(1), Unique(1));
        let mut editor = Editor::new(Builder::new(root, root).finish());
        let name = |number: u32| format!("{number:0>250}");
        let mut count = 0;
        while editor.has_room(name(count).as_bytes()) {
            assert!(editor.add(entry(&name(count), 2)));
            count += 1;
        }
        assert_eq!(editor.len(), MAX_PAGES * PAGE_SIZE);
        assert!(!editor.add(entry(&name(count), 2)));
        assert!(editor.remove(name(77).as_bytes()));
        assert!(editor.has_room(name(count).as_bytes()) && editor.add(entry(&name(count), 2)));
        assert_eq!(Directory::new(editor.as_ref()).unwrap().entries().count(), count as usize + 2);
    }
}
