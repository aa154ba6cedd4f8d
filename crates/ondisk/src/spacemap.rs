//! Space maps: logs of allocations and frees.
//!
//! # On disk
//! A space map is an object of 64-bit words, with a [`SpaceMapPhys`] as its bonus. There are three
//! kinds of entries:
//!
//! * one word (version 1)
//! * two words, which also name a vdev (`spacemap_v2`)
//! * a debug word, with the transaction group and pass of the entries after it
//!
//! Offsets and lengths are in units of `1 << shift` bytes. Offsets count from the start of the
//! map's region. Log space maps (`log_spacemap`) are the same kind of object, with two-word entries
//! of all vdevs.

use crate::words::words_from;
use crate::{Corrupt, Result};

/// Buckets of the histogram of free segments.
pub const SPACE_MAP_HISTOGRAM_SIZE: usize = 32;

/// Header of a space map, in its bonus (`space_map_phys_t`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpaceMapPhys {
    /// Number of the map's own object; 0 in newer pools (`smp_object`).
    pub object: u64,
    /// Length of the log in bytes (`smp_length`).
    pub length: u64,
    /// Allocated less freed bytes of the region; negative in maps that log frees (`smp_alloc`).
    pub alloc: i64,
    /// Number of free segments from `2^(i+shift)` up to twice that many bytes; all 0 without
    /// `spacemap_histogram` (`smp_histogram`).
    pub histogram: [u64; SPACE_MAP_HISTOGRAM_SIZE],
    /// True if the bonus has space for the histogram.
    pub have_histogram: bool,
}

impl SpaceMapPhys {
    /// Decodes the bonus: 3 words, or 40 with `spacemap_histogram`.
    ///
    /// # Errors
    /// * [`Corrupt::Truncated`]: the bonus has fewer than 3 words.
    /// * [`Corrupt::Range`]: the length is not a multiple of 8.
    pub fn decode(bonus: &[u8]) -> Result<Self> {
        let w: [u64; 8 + SPACE_MAP_HISTOGRAM_SIZE] = words_from("space map", bonus, 3)?;
        if !w[1].is_multiple_of(8) {
            return Err(Corrupt::Range { what: "space map", field: "length", value: w[1] });
        }
        let have_histogram = bonus.len() >= (8 + SPACE_MAP_HISTOGRAM_SIZE) * 8;
        let mut histogram = [0; SPACE_MAP_HISTOGRAM_SIZE];
        if have_histogram {
            histogram.copy_from_slice(&w[8..]);
        }
        Ok(Self { object: w[0], length: w[1], alloc: w[2] as i64, histogram, have_histogram })
    }

    /// The header of an empty map in the object `object`.
    pub fn empty(object: u64, have_histogram: bool) -> Self {
        Self { object, length: 0, alloc: 0, histogram: [0; SPACE_MAP_HISTOGRAM_SIZE], have_histogram }
    }

    /// Encodes the bonus, little-endian: 24 bytes, or 320 with a histogram.
    pub fn encode(&self) -> Vec<u8> {
        let mut w = vec![self.object, self.length, self.alloc as u64];
        if self.have_histogram {
            w.resize(8, 0);
            w.extend(self.histogram);
        }
        w.iter().flat_map(|v| v.to_le_bytes()).collect()
    }
}

/// What happened to the range of an entry (`maptype_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MapType {
    /// The range was allocated (`SM_ALLOC`).
    Alloc,
    /// The range was freed (`SM_FREE`).
    Free,
}

/// A decoded entry of a space map (`space_map_entry_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpaceMapEntry {
    /// The start of a sync pass's entries (`SM_DEBUG_PREFIX`). One of zeros is padding before a
    /// two-word entry.
    Debug {
        /// Kind of the entries that follow.
        action: MapType,
        /// Number of the sync pass.
        pass: u16,
        /// Low 50 bits of the transaction group.
        txg: u64,
    },
    /// A range that was allocated or freed (`SM_PREFIX_DECODE`, `SM2_PREFIX`).
    Range {
        /// What happened to the range.
        kind: MapType,
        /// Vdev of a two-word entry: the top-level vdev in log space maps, 0 without meaning in a
        /// metaslab's own map.
        ///
        /// `None` in one-word entries.
        vdev: Option<u32>,
        /// Start of the range, in the map's units, from the start of the map's region.
        offset: u64,
        /// Length of the range in the same units; at least 1.
        run: u64,
        /// True if the entry takes two words.
        two_words: bool,
    },
}

/// Decodes the entry that starts with the word `first`, and tells how many words it takes.
///
/// `next` is the word after `first`, if the block has one.
///
/// # Errors
/// * [`Corrupt::Truncated`]: the second word of a two-word entry is missing.
/// * [`Corrupt::Range`]: a debug word has an unknown action.
pub fn decode_entry(first: u64, next: Option<u64>) -> Result<(SpaceMapEntry, usize)> {
    const WHAT: &str = "space map entry";
    let kind = |bit: u64| if bit & 1 == 0 { MapType::Alloc } else { MapType::Free };
    match first >> 62 {
        2 => {
            let act = (first >> 60) & 3;
            if act > 1 {
                return Err(Corrupt::Range { what: WHAT, field: "debug action", value: act });
            }
            let pass = ((first >> 50) & 0x3ff) as u16;
            Ok((SpaceMapEntry::Debug { action: kind(act), pass, txg: first & ((1 << 50) - 1) }, 1))
        }
        3 => {
            let second = next.ok_or(Corrupt::Truncated { what: WHAT, need: 16, have: 8 })?;
            let entry = SpaceMapEntry::Range {
                kind: kind(second >> 63),
                vdev: Some((first & 0xff_ffff) as u32),
                offset: second & (u64::MAX >> 1),
                run: ((first >> 24) & ((1 << 36) - 1)) + 1,
                two_words: true,
            };
            Ok((entry, 2))
        }
        _ => {
            let entry = SpaceMapEntry::Range {
                kind: kind(first >> 15),
                vdev: None,
                offset: (first >> 16) & ((1 << 47) - 1),
                run: (first & 0x7fff) + 1,
                two_words: false,
            };
            Ok((entry, 1))
        }
    }
}

/// Largest length of a one-word entry, in the map's units.
pub const SM_RUN_MAX: u64 = 1 << 15;
/// First offset that needs two words, in the map's units.
pub const SM_OFFSET_MAX: u64 = 1 << 47;
/// Largest length of a two-word entry, in the map's units.
pub const SM2_RUN_MAX: u64 = 1 << 36;

/// Encodes consecutive entries of a map, block by block.
#[derive(Debug, Clone)]
pub struct EntryEncoder {
    words: Vec<u8>,
    /// Offset of the first of these entries in the map, in bytes.
    start: u64,
    block_size: u64,
    two_words: bool,
}

impl EntryEncoder {
    /// An encoder of entries from byte `start` of a map with blocks of `block_size` bytes.
    ///
    /// `two_words` is true if the pool has `spacemap_v2`.
    pub fn new(start: u64, block_size: u64, two_words: bool) -> Self {
        Self { words: Vec::new(), start, block_size, two_words }
    }

    fn push(&mut self, word: u64) {
        self.words.extend_from_slice(&word.to_le_bytes());
    }

    /// Bytes left in the current block.
    fn left(&self) -> u64 {
        self.block_size - (self.start + self.words.len() as u64) % self.block_size
    }

    /// Appends a debug word: the pass, transaction group and kind of the entries after it
    /// (`space_map_write_intro_debug`).
    pub fn debug(&mut self, action: MapType, pass: u32, txg: u64) {
        let action = u64::from(action == MapType::Free);
        self.push(2 << 62 | action << 60 | u64::from(pass & 0x3ff) << 50 | txg & ((1 << 50) - 1));
    }

    /// Appends a range in the map's units, as several entries if it is too long for one
    /// (`space_map_write_seg`).
    ///
    /// Only log space maps have a `vdev`.
    ///
    /// # Panics
    /// With `spacemap_v2`, if the block size is 0.
    pub fn range(&mut self, kind: MapType, mut offset: u64, mut run: u64, vdev: Option<u32>) {
        let free = u64::from(kind == MapType::Free);
        let two = self.two_words && (vdev.is_some() || run > SM_RUN_MAX || offset >= SM_OFFSET_MAX);
        while run > 0 {
            let n = run.min(if two { SM2_RUN_MAX } else { SM_RUN_MAX });
            if two {
                if self.left() < 16 {
                    // An entry doesn't cross blocks. An empty debug word fills this block.
                    self.push(2 << 62);
                }
                self.push(3 << 62 | (n - 1) << 24 | u64::from(vdev.unwrap_or(0)) & 0xff_ffff);
                self.push(free << 63 | offset);
            } else {
                self.push(offset << 16 | free << 15 | (n - 1));
            }
            (offset, run) = (offset + n, run - n);
        }
    }

    /// The encoded bytes.
    pub fn finish(self) -> Vec<u8> {
        self.words
    }
}

#[cfg(test)]
mod tests;
