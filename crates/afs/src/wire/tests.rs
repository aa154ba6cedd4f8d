use std::fmt::Debug;

use super::*;

#[track_caller]
fn comes_back<T: Wire + PartialEq + Debug>(value: &T, bytes: &[u8]) {
    assert_eq!(value.to_bytes(), bytes);
    assert_eq!(&T::from_bytes(bytes).unwrap(), value);
    for end in 0..bytes.len() {
        assert!(matches!(T::from_bytes(&bytes[..end]), Err(rx::Error::Short { .. })), "{end}");
    }
    let longer = [bytes, &[0]].concat();
    assert!(matches!(T::from_bytes(&longer), Err(rx::Error::Trailing { extra: 1 })));
}

/// Goal: each kind of value has the bytes that rxgen's code makes.
#[test]
fn values_have_their_bytes() {
    comes_back(&7u32, &[0, 0, 0, 7]);
    comes_back(&-2i32, &[255, 255, 255, 254]);
    comes_back(&(1i64 << 32), &[0, 0, 0, 1, 0, 0, 0, 0]);
    comes_back(&Short(258), &[0, 0, 1, 2]);
    comes_back(&Flag(1), &[0, 0, 0, 1]);
    comes_back(&Chars::<3>::new(b"a\xff"), &[0, 0, 0, b'a', 255, 255, 255, 255, 0, 0, 0, 0]);
    comes_back(&Text::<5>::new(*b"abcde").unwrap(), b"\0\0\0\x05abcde\0\0\0");
    comes_back(&Opaque::<4>::new([0, 1]).unwrap(), &[0, 0, 0, 2, 0, 1, 0, 0]);
    comes_back(&List::<u32, 2>::new(vec![1, 2]).unwrap(), &[0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 2]);
    comes_back(&[1u32, 2], &[0, 0, 0, 1, 0, 0, 0, 2]);
    let fid = Fid { volume: VolumeId(1), vnode: Vnode(2), unique: Unique(3) };
    comes_back(&fid, &[0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3]);
    let uuid = Uuid(*b"\x01\x02\x03\x04\x05\x06\x07\x08\x09\x80\x11\x12\x13\x14\x15\xff");
    let words = [0x0102_0304u32, 0x0506, 0x0708, 9, 0xffff_ff80, 0x11, 0x12, 0x13, 0x14, 0x15, 0xffff_ffff];
    comes_back(&uuid, &words.map(u32::to_be_bytes).concat());
}

/// Goal: what is longer than its type allows is refused, before memory is taken.
#[test]
fn bounds_hold() {
    let too_long = |error| matches!(error, rx::Error::TooLong { .. });
    assert!(Text::<5>::from_bytes(b"\0\0\0\x06abcdef\0\0").is_err_and(too_long));
    assert!(Opaque::<1>::from_bytes(&[0, 0, 0, 2, 0, 1, 0, 0]).is_err_and(too_long));
    assert!(List::<u32, 1>::from_bytes(&[0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 2]).is_err_and(too_long));
    let huge = List::<u64, { usize::MAX }>::from_bytes(&[255, 255, 255, 255, 0, 0, 0, 0]);
    assert!(matches!(huge, Err(rx::Error::Short { .. })));
    assert!(matches!(Text::<5>::from_bytes(b"\0\0\0\x02a\0\0\0"), Err(rx::Error::Nul)));
    assert_eq!((Text::<1>::new(*b"ab"), Text::<2>::new(*b"a\0")), (None, None));
    assert_eq!((Opaque::<1>::new([1, 2]), List::<u8, 1>::new(vec![1, 2])), (None, None));
    assert_eq!(Chars::<3>::new(b"abc").as_bytes(), b"ab");
    assert_eq!(Chars::<3>::new(b"a\0c").as_bytes(), b"a");
}
