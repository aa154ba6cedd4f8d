//! The list of a package.

#![allow(clippy::unwrap_used)]

use super::*;

fn text(value: &str) -> Value {
    Value::String(value.as_bytes().to_vec())
}

/// A package with one of everything.
fn package() -> Package {
    let props = || [(b"compression".to_vec(), Value::Uint64(16))].into_iter().collect::<Nvlist>();
    let holds = || [(b"keep".to_vec(), Value::Uint64(1_700_000_000))].into_iter().collect::<Nvlist>();
    let snap = |name: &str, guid, props, holds| Snap { name: name.to_owned(), guid, props, holds };
    let top = Member {
        guid: 0xabc,
        name: "src/a".to_owned(),
        props: Some(props()),
        snaps: vec![snap("r1", 11, None, None), snap("r2", 12, Some(Nvlist::new()), Some(holds()))],
        holds: true,
        ..Member::default()
    };
    let clone = Member {
        guid: u64::MAX,
        name: "src/a/c".to_owned(),
        parent_from: 11,
        origin: Some(11),
        is_encroot: true,
        snaps: vec![snap("r2", 13, Some(props()), None)],
        ..Member::default()
    };
    Package {
        from: Some("r1".to_owned()),
        to: "r2".to_owned(),
        recursive: false,
        raw: true,
        members: vec![top, clone],
    }
}

/// Goal: a list becomes the same package again, and has OpenZFS's names in its order.
#[test]
fn a_list_and_back() {
    let list = Nvlist::decode(&package().encode()).unwrap();
    assert_eq!(Package::decode(&list).unwrap(), package());
    let names = |list: &Nvlist| -> Vec<String> {
        list.iter().map(|(name, _)| String::from_utf8_lossy(name).into_owned()).collect()
    };
    assert_eq!(names(&list), ["fromsnap", "tosnap", "not_recursive", "raw", "fss"]);
    let members = list.list("fss").unwrap();
    assert_eq!(names(members), ["0xabc", "0xffffffffffffffff"]);
    let first = members.list("0xabc").unwrap();
    assert_eq!(names(first), ["name", "parentfromsnap", "props", "snaps", "snapprops", "snapholds"]);
    let second = members.list("0xffffffffffffffff").unwrap();
    assert_eq!(names(second), ["name", "parentfromsnap", "origin", "is_encroot", "snaps", "snapprops"]);
}

/// Goal: a list that lacks what each list has is not a package.
#[test]
fn malformed_lists() {
    let whole = Nvlist::decode(&package().encode()).unwrap();
    let mut none = whole.clone();
    none.remove("fss");
    assert_eq!(Package::decode(&none), None);
    for (name, value) in [
        ("name", Value::Uint64(1)),
        ("parentfromsnap", text("1")),
        ("snaps", Value::Boolean),
        ("snaps", Value::List([(b"r1".to_vec(), text("1"))].into_iter().collect())),
    ] {
        let mut member = whole.list("fss").unwrap().list("0xabc").unwrap().clone();
        member.set(name, value);
        let mut members = Nvlist::new();
        members.set("0xabc", Value::List(member));
        let mut list = whole.clone();
        list.set("fss", Value::List(members.clone()));
        assert_eq!(Package::decode(&list), None, "{name}");
    }
    let mut odd = Nvlist::new();
    odd.set("12", Value::List(Nvlist::new()));
    let mut list = whole;
    list.set("fss", Value::List(odd));
    assert_eq!(Package::decode(&list), None);
}

/// Goal: a snapshot is found by its guid, and of several with one guid, the first.
#[test]
fn by_guid() {
    let mut members = package().members;
    members[1].snaps[0].guid = 11;
    let places = ByGuid::of(&members);
    assert_eq!((places.find(11), places.find(12), places.find(13)), (Some((0, 0)), Some((0, 1)), None));
}
