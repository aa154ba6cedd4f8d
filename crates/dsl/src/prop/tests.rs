use super::parse::{Context, setting};
use super::text::{LITERAL, NICE, nicebytes, nicenum, ratio, time};
use super::*;
use crate::error::PropError;

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

/// A value that users may set, and how it is printed: the names of an index, or a sample.
fn samples(d: &PropDesc) -> Vec<(&'static str, &'static str)> {
    match (d.id, d.kind) {
        (_, PropKind::Index) => {
            let shown = |number| d.index_name(number).expect("the number has a name");
            d.index.iter().map(|&(name, number)| (name, shown(number))).collect()
        }
        (Prop::Pbkdf2Iters, _) => vec![("350000", "350000")],
        (Prop::FilesystemLimit | Prop::SnapshotLimit, _) => vec![("none", "none"), ("12", "12")],
        (_, PropKind::Number) => vec![("128K", "131072")],
        (Prop::Mountpoint, _) => vec![("/a", "/a"), ("legacy", "legacy")],
        (Prop::Sharenfs | Prop::Sharesmb, _) => vec![("off", "off")],
        (_, PropKind::String) => vec![("none", "none")],
    }
}

/// Goal: every row of the table can be parsed and printed: what users may set is stored, and shown
/// under the first of its names. Everything else is refused as read-only.
#[test]
fn each_property_is_parsed_and_printed() {
    for d in PROPS {
        let kinds = [Kind::Filesystem, Kind::Volume];
        let Some(kind) = kinds.into_iter().find(|kind| d.is_valid_for(*kind)) else { continue };
        let context = Context { kind, creating: true, max_block: 16 << 20 };
        if d.is_readonly() && !d.is_setonce() {
            let refused = setting(d.name, "1", context);
            assert!(matches!(refused, Err(PropError::ReadOnly(name)) if name == d.name), "{}", d.name);
            continue;
        }
        for (text, shown) in samples(d) {
            let set = setting(d.name, text, context).unwrap_or_else(|e| panic!("{}={text}: {e}", d.name));
            assert_eq!(set.name, d.name);
            let source = Source::Local;
            let found = Property { name: set.name, prop: Some(d.id), value: set.value, source };
            assert_eq!(found.text(&LITERAL), shown, "{}={text}", d.name);
        }
    }
}

/// Goal: every visible row says what the property means, and which values it has.
#[test]
fn each_property_is_explained() {
    for d in PROPS {
        assert_eq!(d.help.ends_with('.'), d.visible, "{}: its meaning", d.name);
        assert_eq!(!d.values.is_empty(), d.visible, "{}: its values", d.name);
        assert!(d.effective || d.visible, "{}", d.name);
    }
}
