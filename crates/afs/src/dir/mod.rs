//! Directories as clients fetch them and as dumps have them: a blob of pages.
//!
//! # Theory
//! A client fetches a directory as if it were a file, and searches it itself. So a server must lay
//! out the bytes exactly, and the length of this file is part of the directory's status.
//!
//! | part | bytes | content |
//! | --- | --- | --- |
//! | page | 2,048 | 64 slots |
//! | slot | 32 | the first slot of a page is its header |
//! | page header | 13 | page count (page 0 only), tag 1234, a count, bitmap of used slots |
//! | allocation map | 128 | in page 0: free slots of pages 0 to 127, 64 if there is no page |
//! | hash table | 256 | after the map: the first slot of each of 128 chains |
//! | entry | 12 and the name | flag 1, a byte 0, next slot of the chain, vnode, unique, name, NUL |
//!
//! An entry takes as many slots as its name needs, in one page. [`Builder`] puts it into the first
//! page that has space, as OpenAFS does. So the same entries in the same order make the same bytes,
//! also after a restart and for a client that fetches a directory in parts.
//!
//! [`Editor`] changes a blob with the directory, so that its cost is that of the change.
//!
//! [`Directory`] reads blobs of others. It follows the hash chains as clients do, and refuses a
//! blob whose chains are damaged. Nothing else finds an entry, so the bitmaps only matter to those
//! who add entries: [`Directory::is_allocation_right`] compares them.
//!
//! # See
//! OpenAFS: `src/dir/dir.h`, `src/dir/dir.c`, `src/dir/salvage.c`.

mod build;
mod edit;
mod read;
#[cfg(test)]
mod tests;

pub use build::{Builder, page_count};
pub use edit::Editor;
pub use read::Directory;

use crate::types::{Unique, Vnode};

/// Size of a page in bytes (`AFS_PAGESIZE`).
pub const PAGE_SIZE: usize = 2048;
/// Most pages of a directory (`BIGMAXPAGES`).
pub const MAX_PAGES: usize = 1023;
/// Longest name in bytes, without its NUL (`AFSNAMEMAX`).
pub const MAX_NAME: usize = 255;

/// Slots of a page (`EPP`).
const SLOTS: usize = 64;
/// Size of a slot in bytes.
const SLOT_SIZE: usize = 32;
/// Slots at the beginning of page 0 that are no entries (`DHE` and the page header).
const HEADER_SLOTS: usize = 13;
/// Pages of which page 0 knows the free slots (`MAXPAGES`).
const MAP_PAGES: usize = 128;
/// Where the allocation map begins.
const MAP: usize = 32;
/// Hash chains (`NHASHENT`).
const CHAINS: usize = 128;
/// Where the hash table begins.
const CHAIN_TABLE: usize = 160;
/// Where the bitmap of used slots begins in a page header.
const BITMAP: usize = 5;
/// The tag of each page.
const TAG: u16 = 1234;
/// Bytes of an entry before its name.
const ENTRY_HEAD: usize = 12;
/// The flag of the first slot of an entry (`FFIRST`).
const FIRST: u8 = 1;

/// An entry of a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entry<'a> {
    /// The name.
    pub name: &'a [u8],
    /// The vnode that it names.
    pub vnode: Vnode,
    /// The use of the vnode's number.
    pub unique: Unique,
}

/// How many slots an entry takes (`afs_dir_NameBlobs`).
///
/// The first one counts for 16 bytes of the name and its NUL, although 20 would fit.
const fn slots_of(name_length: usize) -> usize {
    1 + (name_length + 1).saturating_sub(16).div_ceil(SLOT_SIZE)
}

/// The first slot of a page that entries may take.
fn first_slot(page: usize) -> usize {
    if page == 0 { HEADER_SLOTS } else { 1 }
}

/// The hash chain of a name (`afs_dir_DirHash`).
fn chain_of(name: &[u8]) -> usize {
    let sum = name.iter().fold(0u32, |sum, byte| sum.wrapping_mul(173).wrapping_add((*byte).into()));
    // The sum counts as negative if its top bit is set, and so does the rest of the division.
    let low = sum as usize % CHAINS;
    if sum >> 31 == 1 { (CHAINS - low) % CHAINS } else { low }
}
