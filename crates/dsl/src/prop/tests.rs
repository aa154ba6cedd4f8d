use super::text::{LITERAL, NICE, nicebytes, nicenum, ratio, time};
use super::*;

/// Goal: each property is found by its name and column head, and knows its place in the order.
#[test]
fn table_is_consistent() {
    for (i, d) in PROPS.iter().enumerate() {
        assert_eq!(d.id as usize, i, "{}", d.name);
        assert_eq!(Prop::by_name(d.name), Some(d.id));
        assert_eq!(d.kind == PropKind::Index, !d.index.is_empty(), "{}", d.name);
        if d.kind == PropKind::Index && d.attr != PropAttr::Readonly && d.id != Prop::Version {
            assert!(d.index_name(d.default).is_some(), "{}: its default has no name", d.name);
        }
    }
    assert_eq!(Prop::by_name("avail"), Some(Prop::Available));
    assert_eq!(Prop::by_name("lused"), Some(Prop::Logicalused));
    assert_eq!(Prop::by_name("nonsense"), None);
}

/// Goal: the first name of each number is the one that OpenZFS shows.
#[test]
fn index_names() {
    assert_eq!(Prop::Xattr.desc().index_name(2), Some("on"));
    assert_eq!(Prop::Acltype.desc().index_name(1), Some("posix"));
    assert_eq!(Prop::Compression.desc().index_name(16 | 19 << 7), Some("zstd-19"));
    assert_eq!(Prop::Compression.desc().index_name(16 | 112 << 7), Some("zstd-fast-10"));
    assert_eq!(Prop::Dedup.desc().index_name(13 | 256), Some("edonr,verify"));
}

/// Goal: numbers and times are printed as OpenZFS 2.3 prints them.
#[test]
fn numbers_and_times() {
    for (n, bytes) in [
        (0, "0B"),
        (512, "512B"),
        (1023, "1023B"),
        (1024, "1K"),
        (10239, "10.0K"),
        (67743744, "64.6M"),
        (1048575, "1024K"),
        (5868032, "5.60M"),
        (25 << 30, "25G"),
        (u64::MAX, "16.0E"),
    ] {
        assert_eq!(nicebytes(n), bytes);
    }
    assert_eq!(nicenum(7), "7");
    assert_eq!(ratio(310, true), "3.10");
    assert_eq!(ratio(100, false), "1.00x");
    assert_eq!(time(1795288133, &NICE, false), "Sat Nov 21 19:08 2026");
    assert_eq!(time(1795288133, &LITERAL, false), "1795288133");
    assert_eq!(time(951_868_799, &NICE, true), "Tue Feb 29 23:59:59 2000");
    assert_eq!(time(951_840_000, &NICE, false), "Tue Feb 29 16:00 2000");
    assert_eq!(time(0, &NICE, false), "Thu Jan  1  0:00 1970");
}

/// Goal: a colon distinguishes user properties from native ones.
#[test]
fn user_properties() {
    assert!(is_user_property("com.example:color"));
    assert!(!is_user_property("compression"));
    assert!(!is_user_property("com.Example:color"));
}
