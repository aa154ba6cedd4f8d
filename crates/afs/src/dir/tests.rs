use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::Error;
use crate::dump::{Event, Reader};
use crate::types::{Unique, Vnode};

const ITSELF: (Vnode, Unique) = (Vnode(3), Unique(30));
const PARENT: (Vnode, Unique) = (Vnode(1), Unique(10));

type Model = BTreeMap<Vec<u8>, (u32, u32)>;

fn build<'a>(entries: impl IntoIterator<Item = (&'a [u8], (u32, u32))>) -> Vec<u8> {
    let mut builder = Builder::new(ITSELF, PARENT);
    for (name, (vnode, unique)) in entries {
        builder.add(Entry { name, vnode: Vnode(vnode), unique: Unique(unique) }).unwrap();
    }
    builder.finish()
}

fn from_model(model: &Model) -> Vec<u8> {
    build(model.iter().map(|(name, of)| (name.as_slice(), *of)))
}

fn to_model(directory: &Directory<'_>) -> Model {
    directory.entries().map(|e| (e.name.to_vec(), (e.vnode.0, e.unique.0))).collect()
}

/// Names of all lengths, the short ones more often.
fn any_model(size: impl Into<prop::collection::SizeRange>) -> impl Strategy<Value = Model> {
    let byte = (1..=255u8).prop_filter("names have no slash", |byte| *byte != b'/');
    let length = prop_oneof![3 => 1..=20usize, 1 => 1..=MAX_NAME];
    let name = length.prop_flat_map(move |length| prop::collection::vec(byte.clone(), length));
    let name = name.prop_filter("the dots are there", |name| name != b"." && name != b"..");
    prop::collection::btree_map(name, (1..=u32::MAX, any::<u32>()), size)
}

proptest! {
    /// Goal: a blob has exactly the entries that it was made of, its maps are right, and its length
    /// is known without it.
    #[test]
    fn entries_come_back(mut model in any_model(0..300)) {
        let blob = from_model(&model);
        prop_assert_eq!(&blob, &from_model(&model), "stable");
        prop_assert_eq!(page_count(model.keys().map(Vec::as_slice)).unwrap() * PAGE_SIZE, blob.len());
        let directory = Directory::new(&blob).unwrap();
        prop_assert!(directory.is_allocation_right());
        for (name, (vnode, unique)) in &model {
            let entry = Entry { name, vnode: Vnode(*vnode), unique: Unique(*unique) };
            prop_assert_eq!(directory.lookup(name), Some(entry));
            let longer = [name, &b"x"[..]].concat();
            prop_assert_eq!(directory.lookup(&longer).is_some(), model.contains_key(&longer));
        }
        model.insert(b".".to_vec(), (3, 30));
        model.insert(b"..".to_vec(), (1, 10));
        prop_assert_eq!(to_model(&directory), model);
    }

    /// Goal: changed bytes are refused, or make a directory that can be read; nothing panics or
    /// takes for ever.
    #[test]
    fn changed_blobs_never_panic(model in any_model(0..40), changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6), cut in prop::option::of(any::<prop::sample::Index>())) {
        let mut blob = from_model(&model);
        for (at, to) in changes {
            let at = at.index(blob.len());
            blob[at] = to;
        }
        if let Some(cut) = cut {
            blob.truncate(cut.index(blob.len() + 1));
        }
        if let Ok(directory) = Directory::new(&blob) {
            for entry in directory.entries() {
                prop_assert_eq!(directory.lookup(entry.name), Some(entry));
            }
            directory.is_allocation_right();
        }
    }
}

/// Goal: chains are those of an independent implementation, also where the sum counts as negative.
#[test]
fn chains_follow_the_hash() {
    let known = [
        (".", 46),
        ("..", 68),
        ("hello", 56),
        ("name-1", 127),
        ("lost+found", 43),
        ("xxxxxxxxxxxxxxxxxxxx", 32),
        ("a name of some length", 49),
    ];
    for (name, chain) in known {
        assert_eq!(chain_of(name.as_bytes()), chain, "{name}");
    }
}

/// Goal: an entry takes as many slots as its name needs.
#[test]
fn names_take_slots() {
    for (length, slots) in [(1, 1), (15, 1), (16, 2), (47, 2), (48, 3), (255, 9)] {
        assert_eq!(slots_of(length), slots, "{length}");
    }
}

/// Goal: a directory takes as many entries as fit into 1,023 pages, and then refuses.
#[test]
fn a_directory_can_be_full() {
    let mut builder = Builder::new(ITSELF, PARENT);
    let most = 51 + (MAX_PAGES - 1) * 63 - 2;
    let names: Vec<String> = (0..=most).map(|i| format!("{i:x}")).collect();
    let entry = |name| Entry { name, vnode: Vnode(2), unique: Unique(2) };
    for name in &names[..most] {
        builder.add(entry(name.as_bytes())).unwrap();
    }
    assert!(matches!(builder.add(entry(names[most].as_bytes())), Err(Error::TooLong { .. })));
    assert_eq!(page_count(names[..most].iter().map(String::as_bytes)).unwrap(), MAX_PAGES);
    assert!(page_count(names.iter().map(String::as_bytes)).is_err());
    let blob = builder.finish();
    assert_eq!(blob.len(), MAX_PAGES * PAGE_SIZE);
    let directory = Directory::new(&blob).unwrap();
    assert!(directory.is_allocation_right());
    assert_eq!(directory.entries().len(), most + 2);
}

/// Goal: names that AFS can't have are refused.
#[test]
fn impossible_names_are_refused() {
    let mut builder = Builder::new(ITSELF, PARENT);
    let long = [b'x'; MAX_NAME + 1];
    for name in [&b""[..], b"a/b", b"a\0b", &long] {
        assert!(builder.add(Entry { name, vnode: Vnode(2), unique: Unique(2) }).is_err(), "{name:?}");
        assert!(page_count([name]).is_err());
    }
    builder.add(Entry { name: &long[1..], vnode: Vnode(2), unique: Unique(2) }).unwrap();
}

/// Goal: each kind of damage has its error, with the offset.
#[test]
fn damage_is_named_with_its_place() {
    let blob = build([(&b"name"[..], (2, 2)), (b"other", (4, 4))]);
    let slot = |number: usize| number * SLOT_SIZE;
    let damaged = |at: usize, to: &[u8]| {
        let mut blob = blob.clone();
        blob[at..at + to.len()].copy_from_slice(to);
        Directory::new(&blob).unwrap_err().to_string()
    };
    assert_eq!(
        Directory::new(&blob[..2047]).unwrap_err().to_string(),
        "the directory at byte 2047: the input ends inside a page"
    );
    assert_eq!(damaged(0, &[0, 2]), "the directory at byte 2048: the input ends inside a page");
    assert_eq!(
        damaged(0, &[4, 0]),
        "the directory at byte 0: the number of pages is 1024, which is out of range"
    );
    assert_eq!(damaged(2, &[1]), "the directory at byte 2: 0x1d2 is not the magic number");
    let chain = CHAIN_TABLE + 2 * chain_of(b"name");
    assert_eq!(
        damaged(chain, &[0, 12]),
        format!("the directory at byte {chain}: the slot of an entry is 12, which is out of range")
    );
    assert_eq!(
        damaged(chain, &[0, 64]),
        format!("the directory at byte {chain}: the slot of an entry is 64, which is out of range")
    );
    assert_eq!(
        damaged(chain, &[0, 16]),
        format!("the directory at byte {}: an entry is in the hash chain of another name", slot(16) + 12)
    );
    assert_eq!(
        damaged(slot(15), &[2]),
        format!("the directory at byte {}: the flag of an entry is 2, which is out of range", slot(15))
    );
    assert_eq!(
        damaged(slot(15) + 2, &[0, 15]),
        format!("the directory at byte {}: two entries share a slot", slot(15) + 2)
    );
    assert_eq!(
        damaged(slot(15) + 4, &[0, 0, 0, 0]),
        format!("the directory at byte {}: the vnode of an entry is 0, which is out of range", slot(15) + 4)
    );
    assert_eq!(
        damaged(slot(15) + 12, &[0]),
        format!("the directory at byte {}: a name is empty, or has a slash inside", slot(15) + 12)
    );
    assert_eq!(
        damaged(slot(15) + 12, &[b'x'; 300]),
        format!("the directory at byte {}: a name is longer than 255", slot(15) + 12)
    );
    let rest = vec![b'x'; PAGE_SIZE - slot(15) - 12];
    assert_eq!(
        damaged(slot(15) + 12, &rest),
        format!("the directory at byte {}: a name does not end in its page", slot(15) + 12)
    );
    let dots = CHAIN_TABLE + 2 * chain_of(b"..");
    assert_eq!(damaged(dots, &[0, 0]), "the directory at byte 0: an entry '.' or '..' is missing");
}

/// Goal: a name that occurs twice is refused.
#[test]
fn a_name_that_occurs_twice_is_refused() {
    let blob = build([(&b"name"[..], (2, 2)), (b"name", (4, 4))]);
    let error = Directory::new(&blob).unwrap_err().to_string();
    assert_eq!(error, format!("the directory at byte {}: a name occurs twice", 16 * SLOT_SIZE + 12));
}

/// The directories of a stored dump.
fn stored(name: &str) -> Vec<(Vnode, Vec<u8>)> {
    let path = format!("{}/tests/data/{name}", env!("CARGO_MANIFEST_DIR"));
    let bytes = std::fs::read(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let mut reader = Reader::new(&bytes[..]);
    let mut all: Vec<(Vnode, Vec<u8>)> = Vec::new();
    loop {
        match reader.next_event().unwrap() {
            Event::Vnode(record) => all.push((record.vnode, Vec::new())),
            Event::Data(data) => all.last_mut().unwrap().1.extend_from_slice(data),
            Event::End => break,
            _ => {}
        }
    }
    all.retain(|(vnode, blob)| vnode.is_directory() && !blob.is_empty());
    all
}

/// Goal: directories that OpenAFS 1.8.9 wrote are read, with the names that its client made. One
/// that only grew has the bytes that the builder makes of its entries in order of creation.
#[test]
fn directories_of_openafs_are_read() {
    let all = stored("openafs-full.dump");
    let blob = |path: &[&[u8]]| {
        let mut vnode = Vnode::ROOT;
        for name in path {
            let (_, blob) = all.iter().find(|(number, _)| *number == vnode).unwrap();
            vnode = Directory::new(blob).unwrap().lookup(name).unwrap().vnode;
        }
        &all.iter().find(|(number, _)| *number == vnode).unwrap().1
    };
    for (vnode, blob) in &all {
        let directory = Directory::new(blob).unwrap();
        assert!(directory.is_allocation_right(), "vnode {vnode}");
        assert_eq!(directory.page_count() * PAGE_SIZE, blob.len());
    }
    let holes = Directory::new(blob(&[b"holes"])).unwrap();
    let numbers = (1..=90).filter(|i| i % 7 != 1).map(|i| format!("name-{i}"));
    let others = [
        "l".repeat(255),
        "m".repeat(17),
        "s".into(),
        "sub".into(),
        "link".into(),
        "hard".into(),
        ".".into(),
        "..".into(),
    ];
    let mut expected: Vec<String> = numbers.chain(others).collect();
    expected.sort_unstable();
    let mut found: Vec<String> =
        holes.entries().map(|e| String::from_utf8(e.name.to_vec()).unwrap()).collect();
    found.sort_unstable();
    assert_eq!(found, expected);

    let plain = blob(&[b"plain"]);
    let directory = Directory::new(plain).unwrap();
    let dot = directory.lookup(b".").unwrap();
    let parent = directory.lookup(b"..").unwrap();
    let mut builder = Builder::new((dot.vnode, dot.unique), (parent.vnode, parent.unique));
    for length in 1..=70 {
        let name = format!("{length:0length$}");
        builder.add(directory.lookup(name.as_bytes()).unwrap()).unwrap();
    }
    assert!(builder.finish() == *plain, "the same bytes");
}

/// Goal: directories of an independent writer of the format are read.
#[test]
fn directories_of_another_writer_are_read() {
    let all = stored("made.dump");
    assert_eq!(all.len(), 3);
    let names: usize = all.iter().map(|(_, blob)| Directory::new(blob).unwrap().entries().len() - 2).sum();
    assert_eq!(names, 2 + 2 + 30);
    assert!(all.iter().all(|(_, blob)| Directory::new(blob).unwrap().is_allocation_right()));
}
