//! Tests of the rules for grants.

use super::*;

fn grants(list: &[(&str, &[&str])]) -> Grants {
    let words = |words: &[&str]| words.iter().map(|w| (*w).to_owned()).collect();
    list.iter().map(|(whom, of)| ((*whom).to_owned(), words(of))).collect()
}

fn may(list: &[(&str, &[&str])], reach: char, permission: &str) -> bool {
    let asker = Credentials { uid: 1000, groups: vec![100, 200] };
    grants_here(&grants(list), (reach, false), permission, &asker, &mut BTreeSet::new())
}

/// Goal: users, groups and everyone have exactly their grants, at the right place.
#[test]
fn whom() {
    assert!(may(&[("ul$1000", &["snapshot"])], 'l', "snapshot"));
    assert!(!may(&[("ul$1000", &["snapshot"])], 'd', "snapshot"));
    assert!(!may(&[("ul$1001", &["snapshot"])], 'l', "snapshot"));
    assert!(!may(&[("ul$100", &["snapshot"])], 'l', "snapshot"));
    assert!(may(&[("gd$200", &["snapshot"])], 'd', "snapshot"));
    assert!(!may(&[("gd$201", &["snapshot"])], 'd', "snapshot"));
    assert!(may(&[("el$", &["snapshot"])], 'l', "snapshot"));
    assert!(!may(&[("c-$", &["snapshot"])], 'l', "snapshot"));
    let asker = Credentials::default();
    let making = |list| grants_here(&grants(list), ('d', true), "hold", &asker, &mut BTreeSet::new());
    assert!(making(&[("c-$", &["hold"])]));
    assert!(making(&[("C-$", &["@a"]), ("s-$@a", &["hold"])]));
    assert!(!making(&[("C-$", &["@b"]), ("s-$@a", &["hold"])]));
}

/// Goal: sets give what is in them and in sets within them, and a circle of sets ends.
#[test]
fn sets() {
    let list: [(&str, &[&str]); 4] =
        [("Ul$1000", &["@a"]), ("S-$@a", &["@b"]), ("S-$@b", &["@a"]), ("s-$@b", &["hold"])];
    assert!(may(&list, 'l', "hold"));
    assert!(!may(&list, 'l', "release"));
    // A set that is not granted gives nothing.
    assert!(!may(&[("s-$@a", &["hold"])], 'l', "hold"));
    // A set that is granted here is defined further up.
    let mut given = BTreeSet::new();
    let asker = Credentials { uid: 1000, groups: Vec::new() };
    assert!(!grants_here(&grants(&[("Ul$1000", &["@a"])]), ('l', false), "hold", &asker, &mut given));
    assert!(grants_here(&grants(&[("s-$@a", &["hold"])]), ('d', false), "hold", &asker, &mut given));
}

/// Goal: invalid permissions and grantees are recognised.
#[test]
fn words() {
    for good in ["snapshot", "receive:append", "compression", "compress", "@set", "mountpoint", "volsize"] {
        assert!(is_permission(good), "{good}");
    }
    for bad in ["", "used", "snap", "@", "@a/b", "mlslabel", "user:prop", &format!("@{}", "x".repeat(63))] {
        assert!(!is_permission(bad), "{bad}");
    }
    for good in ["ul$0", "Ud$1000", "gd$4294967295", "el$", "Ed$", "c-$", "S-$@x"] {
        assert!(is_whom(good), "{good}");
    }
    for bad in [
        "",
        "u",
        "ul",
        "ul$",
        "ul$x",
        "ul$01",
        "ul$+1",
        "ul$4294967296",
        "el$1",
        "c-$x",
        "cl$",
        "s-$x",
        "x-$",
        "u-$1",
        "ul#1",
        "uä$1",
    ] {
        assert!(!is_whom(bad), "{bad}");
    }
}
