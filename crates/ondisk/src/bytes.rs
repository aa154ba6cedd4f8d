//! Integers of either byte order, read from bounded slices.

use crate::{Corrupt, Result};

/// Byte order of a stored structure. The encoders of this project write [`ByteOrder::Little`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ByteOrder {
    /// Least significant byte first.
    Little,
    /// Most significant byte first.
    Big,
}

macro_rules! getter {
    ($name:ident, $ty:ty, $n:expr, $doc:expr) => {
        #[doc = $doc]
        ///
        /// # Errors
        /// * [`Corrupt::Truncated`]: `buf` ends before the field does.
        pub fn $name(self, what: &'static str, buf: &[u8], at: usize) -> Result<$ty> {
            let end = at.saturating_add($n);
            let raw = buf.get(at..end).ok_or(Corrupt::Truncated { what, need: end, have: buf.len() })?;
            let mut b = [0u8; $n];
            b.copy_from_slice(raw);
            Ok(match self {
                ByteOrder::Little => <$ty>::from_le_bytes(b),
                ByteOrder::Big => <$ty>::from_be_bytes(b),
            })
        }
    };
}

impl ByteOrder {
    getter!(u16, u16, 2, "The 16-bit integer at byte `at` of `buf`.");
    getter!(u32, u32, 4, "The 32-bit integer at byte `at` of `buf`.");
    getter!(u64, u64, 8, "The 64-bit integer at byte `at` of `buf`.");

    /// The byte order in which the number `found_le`, read as little-endian, equals `magic`.
    ///
    /// `None` if it equals `magic` in neither order.
    pub fn by_magic(found_le: u64, magic: u64) -> Option<ByteOrder> {
        if found_le == magic {
            Some(ByteOrder::Little)
        } else if found_le.swap_bytes() == magic {
            Some(ByteOrder::Big)
        } else {
            None
        }
    }
}

/// The little-endian 64-bit integer at byte `at` of a slice that is known to be long enough.
///
/// # Panics
/// If the slice ends before the integer does. The caller has checked the length.
pub fn le64(buf: &[u8], at: usize) -> u64 {
    let mut b = [0u8; 8];
    b.copy_from_slice(&buf[at..at + 8]);
    u64::from_le_bytes(b)
}

/// Swaps every 64-bit word of `buf` in place (`byteswap_uint64_array`).
///
/// A tail shorter than a word stays as it is.
pub fn swap64(buf: &mut [u8]) {
    for w in buf.as_chunks_mut::<8>().0 {
        w.reverse();
    }
}
