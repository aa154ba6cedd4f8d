//! Keys and values of ZAP entries.

use std::borrow::Cow;

/// The key of an entry.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Key {
    /// A name without its final NUL. Usually, but not always, UTF-8.
    Name(Vec<u8>),
    /// An array of words.
    Words(Vec<u64>),
}

impl Key {
    /// The name. `None` if the key is words.
    pub fn name(&self) -> Option<&[u8]> {
        match self {
            Self::Name(n) => Some(n),
            Self::Words(_) => None,
        }
    }
}

/// The value of an entry: an array of integers of 1, 2, 4 or 8 bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Value(Repr);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Repr {
    /// The common case, without an allocation.
    Word(u64),
    /// Big-endian integers of `size` bytes.
    Ints { size: u8, raw: Box<[u8]> },
}

impl Value {
    /// One 64-bit integer.
    pub(super) fn word(v: u64) -> Self {
        Self(Repr::Word(v))
    }

    /// Big-endian integers of `size` bytes. `raw` holds a whole number of them.
    pub(super) fn ints(size: u8, raw: Vec<u8>) -> Self {
        match raw.as_slice().try_into() {
            Ok(word) if size == 8 => Self::word(u64::from_be_bytes(word)),
            _ => Self(Repr::Ints { size, raw: raw.into() }),
        }
    }

    /// Bytes, such as a string with its final NUL.
    pub fn bytes(raw: &[u8]) -> Self {
        Self::ints(1, raw.to_vec())
    }

    /// Integers of `size` bytes: 1, 2, 4 or 8. Higher bytes of `ints` are cut off.
    ///
    /// # Panics
    /// If `size` is another one.
    pub fn integers(size: u8, ints: &[u64]) -> Self {
        assert!(matches!(size, 1 | 2 | 4 | 8), "an integer has 1, 2, 4 or 8 bytes");
        let skip = 8 - usize::from(size);
        Self::ints(size, ints.iter().flat_map(|v| v.to_be_bytes().into_iter().skip(skip)).collect())
    }

    /// The integers as they are stored, big-endian.
    pub(super) fn raw(&self) -> Cow<'_, [u8]> {
        match &self.0 {
            Repr::Word(w) => Cow::Owned(w.to_be_bytes().to_vec()),
            Repr::Ints { raw, .. } => Cow::Borrowed(raw),
        }
    }

    /// Bytes of one integer (`za_integer_length`).
    pub fn int_size(&self) -> u8 {
        match &self.0 {
            Repr::Word(_) => 8,
            Repr::Ints { size, .. } => *size,
        }
    }

    /// Number of integers (`za_num_integers`).
    pub fn len(&self) -> usize {
        match &self.0 {
            Repr::Word(_) => 1,
            Repr::Ints { size, raw } => raw.len() / usize::from(*size),
        }
    }

    /// True if there is no integer.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The integers, widened to 64 bits.
    pub fn iter(&self) -> impl Iterator<Item = u64> + '_ {
        let (size, raw): (usize, &[u8]) = match &self.0 {
            Repr::Word(_) => (8, &[]),
            Repr::Ints { size, raw } => (usize::from(*size), raw),
        };
        let word = match &self.0 {
            Repr::Word(w) => Some(*w),
            Repr::Ints { .. } => None,
        };
        word.into_iter()
            .chain(raw.chunks_exact(size).map(|c| c.iter().fold(0, |v, b| (v << 8) | u64::from(*b))))
    }

    /// The first integer, widened to 64 bits (`za_first_integer`). `None` if there is none.
    pub fn first(&self) -> Option<u64> {
        self.iter().next()
    }

    /// The value, if it is exactly one 64-bit integer.
    pub fn as_u64(&self) -> Option<u64> {
        match &self.0 {
            Repr::Word(w) => Some(*w),
            Repr::Ints { .. } => None,
        }
    }

    /// The value, if its integers are bytes: a string, usually with its final NUL.
    pub fn as_bytes(&self) -> Option<&[u8]> {
        match &self.0 {
            Repr::Ints { size: 1, raw } => Some(raw),
            _ => None,
        }
    }
}

impl From<u64> for Value {
    fn from(v: u64) -> Self {
        Self::word(v)
    }
}
