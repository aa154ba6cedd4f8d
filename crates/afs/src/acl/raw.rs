//! The forms of access lists that are stored: raw in dumps, compact in volumes.

use super::{Acl, AclEntry, MAX_ENTRIES, RAW_SIZE, Rights};
use crate::types::PrincipalId;
use crate::{Error, Place, Record, Result};

/// Size of the numbers before the entries of the raw form.
const RAW_HEAD: usize = 20;
/// Size of an entry in either form.
const ENTRY: usize = 8;
/// The version of the raw form (`ACL_ACLVERSION`).
const VERSION: u32 = 1;
/// Size of the two counts of the compact form.
const COMPACT_HEAD: usize = 2;

fn place(at: usize) -> Place {
    Place { record: Record::Acl, at: at as u64 }
}

fn range(at: usize, field: &'static str, value: u32) -> Error {
    Error::Range { place: place(at), field, value: value.into() }
}

fn word(bytes: &[u8], at: usize) -> [u8; 4] {
    bytes[at..at + 4].try_into().expect("four bytes")
}

impl Acl {
    /// The list of the raw form. What follows its last entry is ignored.
    ///
    /// The order of the entries is kept.
    ///
    /// # Errors
    /// [`Error::Range`]: a number in the head is impossible. OpenAFS refuses the same lists
    /// (EINVAL), and also those that it would give no rights by.
    pub fn from_raw(raw: &[u8; RAW_SIZE]) -> Result<Self> {
        let number = |index: usize| u32::from_be_bytes(word(raw, 4 * index));
        let [size, version, total, positive, negative] = std::array::from_fn(number);
        if version != VERSION {
            return Err(range(4, "the version", version));
        }
        if total as usize > MAX_ENTRIES {
            return Err(range(8, "the number of entries", total));
        }
        if positive > total {
            return Err(range(12, "the number of positive entries", positive));
        }
        if negative != total - positive {
            return Err(range(16, "the number of negative entries", negative));
        }
        let total = total as usize;
        if !(RAW_HEAD + ENTRY * total..=RAW_SIZE).contains(&(size as usize)) {
            return Err(range(0, "the size", size));
        }
        let entry = |index: usize| {
            let at = RAW_HEAD + ENTRY * index;
            let rights = Rights(u32::from_be_bytes(word(raw, at + 4)));
            AclEntry { who: PrincipalId(i32::from_be_bytes(word(raw, at))), rights }
        };
        let positive = positive as usize;
        Ok(Self {
            positive: (0..positive).map(entry).collect(),
            // Negative entries begin at the end and go backwards.
            negative: (positive..total).rev().map(entry).collect(),
        })
    }

    /// The raw form, with zeros after its last entry.
    pub fn to_raw(&self) -> [u8; RAW_SIZE] {
        let entries: Vec<&AclEntry> = self.positive.iter().chain(self.negative.iter().rev()).collect();
        let number = |count: usize| u32::try_from(count).expect("20 entries at most");
        let size = number(RAW_HEAD + ENTRY * entries.len());
        let (positive, negative) = (number(self.positive.len()), number(self.negative.len()));
        let mut raw = [0; RAW_SIZE];
        let head = [size, VERSION, number(entries.len()), positive, negative];
        let words = head.into_iter().map(u32::to_be_bytes);
        let words = words.chain(
            entries.iter().flat_map(|entry| [entry.who.0.to_be_bytes(), entry.rights.0.to_be_bytes()]),
        );
        for (word, to) in words.zip(raw.chunks_exact_mut(4)) {
            to.copy_from_slice(&word);
        }
        raw
    }

    /// The list of the compact form.
    ///
    /// # Errors
    /// * [`Error::Truncated`]: the bytes end too early.
    /// * [`Error::Range`]: there are too many entries.
    /// * [`Error::Shape`]: bytes follow the last entry.
    pub fn from_compact(bytes: &[u8]) -> Result<Self> {
        let truncated = || Error::Truncated { place: place(bytes.len()), field: "the access list" };
        let (&[positive, negative], entries) = bytes.split_first_chunk().ok_or_else(truncated)?;
        let total = usize::from(positive) + usize::from(negative);
        if total > MAX_ENTRIES {
            return Err(range(0, "the number of entries", u32::from(positive) + u32::from(negative)));
        }
        let (entries, rest) = entries.split_at_checked(ENTRY * total).ok_or_else(truncated)?;
        if !rest.is_empty() {
            let at = COMPACT_HEAD + ENTRY * total;
            return Err(Error::Shape { place: place(at), why: "bytes follow the access list" });
        }
        let mut entries = entries.chunks_exact(ENTRY).map(|bytes| AclEntry {
            who: PrincipalId(i32::from_le_bytes(word(bytes, 0))),
            rights: Rights(u32::from_le_bytes(word(bytes, 4))),
        });
        let positive = entries.by_ref().take(positive.into()).collect();
        Ok(Self { positive, negative: entries.collect() })
    }

    /// The compact form: the numbers of positive and negative entries, then the entries.
    ///
    /// Its numbers are little-endian, as in all that Poolhouse writes to a pool. Lists are equal if
    /// and only if their compact forms are.
    pub fn to_compact(&self) -> Vec<u8> {
        let count = |entries: &[AclEntry]| u8::try_from(entries.len()).expect("20 entries at most");
        let mut bytes = vec![count(&self.positive), count(&self.negative)];
        for entry in self.positive.iter().chain(&self.negative) {
            bytes.extend_from_slice(&entry.who.0.to_le_bytes());
            bytes.extend_from_slice(&entry.rights.0.to_le_bytes());
        }
        bytes
    }
}

const _: () = assert!(RAW_HEAD + ENTRY * MAX_ENTRIES <= RAW_SIZE);
