//! Round trips, and what a reader refuses.

use proptest::prelude::*;

use super::{Reader, Writer};
use crate::Error;

/// Goal: each value has the bytes of RFC 4506, and is read as it was written.
#[test]
fn values_have_their_bytes() {
    let mut writer = Writer::new();
    writer.u32(0x0102_0304).i32(-2).u64(5).i64(-6).bool(true).opaque(b"abcde").fixed(b"xyz");
    let bytes = writer.finish();
    assert_eq!(bytes[..8], [1, 2, 3, 4, 0xff, 0xff, 0xff, 0xfe]);
    assert_eq!(bytes[28..44], *b"\0\0\0\x05abcde\0\0\0xyz\0");
    let mut reader = Reader::new(&bytes);
    assert_eq!((reader.u32().unwrap(), reader.i32().unwrap()), (0x0102_0304, -2));
    assert_eq!((reader.u64().unwrap(), reader.i64().unwrap()), (5, -6));
    assert!(reader.bool().unwrap());
    assert_eq!(reader.opaque(5).unwrap(), b"abcde");
    assert_eq!(reader.fixed(3).unwrap(), b"xyz");
    reader.finish().unwrap();
}

/// Goal: a length is refused when it is above its limit, or when the bytes can't hold it.
#[test]
fn lengths_are_bounded() {
    let reader = || Reader::new(b"\0\0\0\x05abcd");
    assert!(matches!(reader().opaque(4), Err(Error::TooLong { length: 5, limit: 4 })));
    assert!(matches!(reader().opaque(5), Err(Error::Short { missing: 1 })));
    assert!(matches!(reader().array(9, 4), Err(Error::Short { missing: 16 })));
    assert!(matches!(Reader::new(&[0xff; 8]).array(usize::MAX, usize::MAX), Err(Error::Short { .. })));
    assert_eq!(Reader::new(b"\0\0\0\x02abcdefgh").array(2, 4).unwrap(), 2);
}

/// Goal: the bytes that fill up a word must be there, and may have any value.
#[test]
fn padding_must_be_there() {
    assert!(matches!(Reader::new(b"\0\0\0\x03abc").opaque(9), Err(Error::Short { missing: 1 })));
    assert_eq!(Reader::new(b"\0\0\0\x03abc\xff").opaque(9).unwrap(), b"abc");
}

/// Goal: a string has no byte 0, and nothing may follow the last value.
#[test]
fn strings_and_ends_are_checked() {
    assert!(matches!(Reader::new(b"\0\0\0\x04ab\0c").string(9), Err(Error::Nul)));
    assert!(matches!(Reader::new(b"x").finish(), Err(Error::Trailing { extra: 1 })));
}

proptest! {
    /// Goal: any string comes back, whatever follows it.
    #[test]
    fn strings_come_back(bytes in prop::collection::vec(any::<u8>(), 0..70), after: u32) {
        let mut writer = Writer::new();
        writer.opaque(&bytes).u32(after);
        let all = writer.finish();
        prop_assert_eq!(all.len() % 4, 0);
        let mut reader = Reader::new(&all);
        prop_assert_eq!(reader.opaque(70).unwrap(), bytes);
        prop_assert_eq!(reader.u32().unwrap(), after);
    }
}
