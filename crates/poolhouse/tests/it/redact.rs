//! Redaction: bookmarks, redacted streams, and what is received on top of them.
//!
//! The kernel module's bookmark and stream are only in the whole set of fixtures.

use crate::common::words;
use crate::send::{compare, records};
use poolhouse::dsl::Refusal;
use poolhouse::dsl::redact::RedactionList;
use poolhouse::ondisk::ObjNum;
use poolhouse::ondisk::bookmark::RedactBlock;
use poolhouse::ondisk::feature::Feature;
use poolhouse::ondisk::replay::Record;
use poolhouse::stream::{Options, Origin, ReceiveError, ReceiveOptions, RedactError, Resume, redact};
use poolhouse::{Error, OpenOptions, Pool};
use std::path::Path;
use testkit::find;

const BLOCK: usize = 128 << 10;

fn create(dir: &Path, name: &str) -> Pool {
    let image = dir.join(name);
    std::fs::File::create(&image).unwrap().set_len(512 << 20).unwrap();
    Pool::create(name, &[&[&image]]).unwrap()
}

fn made(pool: &Pool, snapshot: &str, bookmark: &str, by: &[&str]) -> Result<(), RedactError> {
    let by: Vec<String> = by.iter().map(|by| (*by).to_owned()).collect();
    redact(pool.spa(), snapshot, bookmark, &by)
}

fn make(pool: &Pool, snapshot: &str, bookmark: &str, by: &[&str]) {
    made(pool, snapshot, bookmark, by).unwrap_or_else(|e| panic!("{bookmark}: {}", words(&e)));
}

/// The object of the redaction list of `head#bookmark`, and the list.
fn list(pool: &Pool, bookmark: &str) -> (ObjNum, RedactionList) {
    let (head, short) = bookmark.split_once('#').unwrap();
    let mark = pool.dataset(head).unwrap().dsl().bookmark(short).unwrap().unwrap();
    let object = ObjNum(mark.phys.redaction_obj);
    (object, pool.dsl().redaction_list(object).unwrap())
}

fn blocks(pool: &Pool, bookmark: &str) -> Vec<RedactBlock> {
    list(pool, bookmark).1.entries(0).unwrap()
}

/// The stream of a snapshot, redacted by a bookmark, from a snapshot or bookmark.
fn send(pool: &Pool, name: &str, by: Option<&str>, from: Option<&str>) -> Vec<u8> {
    let to = pool.dataset(name).unwrap();
    let origin = from.map(|from| match from.split_once('#') {
        None => Origin::of_snapshot(to.dsl(), pool.dataset(from).unwrap().dsl()).unwrap(),
        Some((head, mark)) => {
            let head = pool.dataset(head).unwrap();
            let mark = head.dsl().bookmark(mark).unwrap().unwrap();
            Origin::of_bookmark(to.dsl(), head.dsl(), &mark.phys).unwrap()
        }
    });
    let redact = by.map(|by| list(pool, by).0);
    let options = Options { origin, redact, ..Options::default() };
    let mut stream = Vec::new();
    to.send(&options, &mut stream).unwrap_or_else(|e| panic!("{name}: {}", words(&e)));
    let exact = redact.is_some() || origin.is_some_and(|origin| origin.redaction_list().is_some());
    let estimate = poolhouse::stream::estimate(to.dsl(), &options).unwrap();
    assert!(!exact || estimate == stream.len() as u64, "{name}: {estimate} estimated, {}", stream.len());
    stream
}

fn receive(pool: &Pool, stream: &[u8], name: &str) -> Result<(), Error> {
    let options = ReceiveOptions { name: name.to_owned(), ..ReceiveOptions::default() };
    pool.receive(stream, &options).map(drop)
}

fn received(pool: &Pool, stream: &[u8], name: &str) {
    receive(pool, stream, name).unwrap_or_else(|e| panic!("{name}: {}", words(&e)));
}

/// Checks an exported pool with zdb. `zdb -d` of OpenZFS 2.3 hangs at any redaction bookmark.
fn sound(dir: &Path, pool: &str) {
    if let Some(blocks) = testpools::ask(dir, pool, &["-bcc"]) {
        assert!(blocks.contains("No leaks"), "{blocks}");
    }
}

/// The number of users of a feature.
fn users(pool: &Pool, feature: &str) -> u64 {
    let feature = Feature::by_name(feature).unwrap();
    pool.dsl().mos().feature_refcount(feature).unwrap().unwrap()
}

/// Goal: for the snapshots of the kernel module's redaction bookmark, the list is the same, and so
/// is the redacted stream.
#[test]
fn as_openzfs_redacts() {
    let Some(fixture) = find("send-src") else { return };
    let copy = fixture.copy();
    let pool = Pool::open(copy.images(), &OpenOptions { write: true, force: true, ..OpenOptions::default() });
    let pool = pool.unwrap();
    make(&pool, "send-src/fs@a", "ours", &["send-src/redclone@r"]);
    let (theirs, ours) = (list(&pool, "send-src/fs#redbk").1, list(&pool, "send-src/fs#ours").1);
    assert!(theirs.is_complete() && ours.is_complete());
    assert_eq!(ours.snaps(), theirs.snaps());
    assert_eq!(ours.entries(0).unwrap(), theirs.entries(0).unwrap());
    assert_eq!(users(&pool, "redaction_bookmarks"), 2);
    let want = records("redacted-a", &fixture.stream("redacted-a.zsend").unwrap());
    for by in ["send-src/fs#redbk", "send-src/fs#ours"] {
        compare(by, &records(by, &send(&pool, "send-src/fs@a", Some(by), None)), &want);
    }
    pool.export().unwrap();
    sound(copy.dir(), "send-src");
}

/// A pool with a file system of three files, its snapshot `one`, two clones that change some of
/// them, and the redaction bookmarks `first` (of the first clone) and `both`.
fn source(dir: &Path) -> Pool {
    let pool = create(dir, "s");
    let fs = pool.create_filesystem("s/fs").unwrap();
    for (file, count) in [("/a", 10), ("/b", 4), ("/gone", 3)] {
        let bytes = testpools::noise(count as u64, count * BLOCK);
        fs.create_file(file).unwrap().write_at(&bytes, 0).unwrap();
    }
    pool.snapshot("s/fs@one").unwrap();
    let first = pool.clone_snapshot("s/fs@one", "s/first").unwrap();
    let a = first.open_for_writing("/a").unwrap();
    a.write_at(&[1; BLOCK], 2 * BLOCK as u64).unwrap();
    a.write_at(&[1; 3 * BLOCK], 6 * BLOCK as u64).unwrap();
    first.open_for_writing("/b").unwrap().set_len(BLOCK as u64).unwrap();
    first.remove("/gone").unwrap();
    pool.snapshot("s/first@r").unwrap();
    let second = pool.clone_snapshot("s/fs@one", "s/second").unwrap();
    second.open_for_writing("/a").unwrap().write_at(&[2; 2 * BLOCK], 7 * BLOCK as u64).unwrap();
    second.open_for_writing("/b").unwrap().write_at(&[2; BLOCK], 2 * BLOCK as u64).unwrap();
    pool.snapshot("s/second@r").unwrap();
    make(&pool, "s/fs@one", "first", &["s/first@r"]);
    make(&pool, "s/fs@one", "both", &["s/first@r", "s/second@r"]);
    pool
}

/// The contents of a file.
fn content(pool: &Pool, name: &str, file: &str) -> Vec<u8> {
    let file = pool.dataset(name).unwrap().open(file).unwrap();
    let mut bytes = vec![0; file.size() as usize];
    assert_eq!(file.read_at(&mut bytes, 0).unwrap(), bytes.len());
    bytes
}

/// The blocks of the files of two snapshots that differ: a letter for each file, and a number.
fn differences(ours: (&Pool, &str), theirs: (&Pool, &str)) -> Vec<(char, usize)> {
    let mut out = Vec::new();
    for (letter, file) in [('a', "/a"), ('b', "/b"), ('g', "/gone")] {
        let (have, want) = (content(ours.0, ours.1, file), content(theirs.0, theirs.1, file));
        assert_eq!(have.len(), want.len(), "{file}");
        let pairs = have.chunks(BLOCK).zip(want.chunks(BLOCK)).enumerate();
        for (n, (have, want)) in pairs.filter(|(_, (have, want))| have != want) {
            assert!(have.iter().all(|byte| *byte == 0), "{file}, block {n}: neither redacted nor whole");
            assert!(want.iter().any(|byte| *byte != 0));
            out.push((letter, n));
        }
    }
    out
}

/// Goal: the blocks that all redaction snapshots have changed, freed or removed with their file are
/// redacted. A stream from the redaction bookmark brings them, also the last one of each file.
#[test]
fn what_clones_changed() {
    let dir = tempfile::tempdir().unwrap();
    let (from, to) = (source(dir.path()), create(dir.path(), "r"));
    let first = [
        ('a', vec![2, 6, 7, 8]),
        ('b', vec![1, 2, 3]),
        // The removed file.
        ('g', vec![0, 1, 2]),
    ];
    let both = [('a', vec![7, 8]), ('b', vec![2])];
    let flat = |all: &[(char, Vec<usize>)]| -> Vec<(char, usize)> {
        all.iter().flat_map(|(file, blocks)| blocks.iter().map(move |n| (*file, *n))).collect()
    };
    for (name, want) in [("first", flat(&first)), ("both", flat(&both))] {
        let (head, mark) = (format!("r/{name}"), format!("s/fs#{name}"));
        received(&to, &send(&from, "s/fs@one", Some(&mark), None), &format!("{head}@one"));
        let snap = format!("{head}@one");
        assert_eq!(differences((&to, &snap), (&from, "s/fs@one")), want, "{name}");
        let redacted = to.dataset(&snap).unwrap().dsl().redacted_for().unwrap();
        assert_eq!(redacted.as_deref(), Some(list(&from, &mark).1.snaps()));
        // What was left out, and nothing else: from and to the same snapshot.
        let rest = send(&from, "s/fs@one", None, Some(&mark));
        let writes = records(name, &rest).into_iter().filter(|(r, _)| matches!(r, Record::Write(_)));
        assert_eq!(writes.count(), want.len(), "{name}");
        received(&to, &rest, &format!("{head}@whole"));
        let whole = format!("{head}@whole");
        assert_eq!(differences((&to, &whole), (&from, "s/fs@one")), [], "{name}");
        assert_eq!(to.dataset(&whole).unwrap().dsl().redacted_for().unwrap(), None);
    }
    // Two heads, and a snapshot of each. Those that were completed count no more.
    assert_eq!(users(&to, "redacted_datasets"), 2);
    to.export().unwrap();
    sound(dir.path(), "r");
}

/// Goal: on top of a redacted snapshot come only streams that replace what it lacks, or redact a
/// part of it.
#[test]
fn what_fits_a_redacted_snapshot() {
    let dir = tempfile::tempdir().unwrap();
    let (from, to) = (source(dir.path()), create(dir.path(), "r"));
    let fs = from.dataset("s/fs").unwrap();
    fs.open_for_writing("/b").unwrap().write_at(&[9; BLOCK], 0).unwrap();
    from.snapshot("s/fs@two").unwrap();
    for (name, by) in [("late", "s/first@r"), ("late2", "s/second@r")] {
        // A clone of `two` is no snapshot of `one`'s clones.
        let clone = from.clone_snapshot("s/fs@two", &format!("s/{name}")).unwrap();
        clone.open_for_writing("/a").unwrap().write_at(&[3; BLOCK], 0).unwrap();
        from.snapshot(&format!("s/{name}@r")).unwrap();
        assert!(matches!(made(&from, "s/fs@two", name, &[by]), Err(RedactError::NotDescendant(_))));
        make(&from, "s/fs@two", name, &[&format!("s/{name}@r")]);
    }
    let base = send(&from, "s/fs@one", Some("s/fs#first"), None);
    let refused = |stream: &[u8], head: &str| {
        received(&to, &base, &format!("r/{head}@one"));
        match receive(&to, stream, &format!("r/{head}@two")) {
            Err(Error::Receive(ReceiveError::Refused(poolhouse::dsl::Error::Refused {
                why: Refusal::Stream(why),
                ..
            }))) => assert!(why.starts_with("it does not fit a redacted snapshot"), "{why}"),
            other => panic!("{head}: {other:?}"),
        }
    };
    // The next snapshot takes for granted what was redacted, whether it is redacted or not.
    refused(&send(&from, "s/fs@two", None, Some("s/fs@one")), "plain");
    refused(&send(&from, "s/fs@two", Some("s/fs#late"), Some("s/fs@one")), "redacted");
    // From a bookmark that has redacted more.
    refused(&send(&from, "s/fs@two", None, Some("s/fs#both")), "more");
    // From the bookmark.
    received(&to, &base, "r/book@one");
    received(&to, &send(&from, "s/fs@two", None, Some("s/fs#first")), "r/book@two");
    assert_eq!(differences((&to, "r/book@two"), (&from, "s/fs@two")), []);
    // From the bookmark, redacted again. Block 0 of `/a` is all that `late` has changed.
    received(&to, &base, "r/again@one");
    let again = send(&from, "s/fs@two", Some("s/fs#late"), Some("s/fs#first"));
    received(&to, &again, "r/again@two");
    assert_eq!(differences((&to, "r/again@two"), (&from, "s/fs@two")), [('a', 0)]);
    // The redaction snapshot itself, as a clone of what was redacted for it.
    received(&to, &base, "r/base@one");
    let clone = send(&from, "s/first@r", None, Some("s/fs@one"));
    let origin = Some("r/base@one".to_owned());
    let options = ReceiveOptions { name: "r/clone@r".to_owned(), origin, ..ReceiveOptions::default() };
    to.receive(&clone[..], &options).unwrap();
    assert_eq!(content(&to, "r/clone@r", "/a"), content(&from, "s/first@r", "/a"));
    assert_eq!(content(&to, "r/clone@r", "/b"), content(&from, "s/first@r", "/b"));
    assert_eq!(to.dataset("r/clone@r").unwrap().dsl().redacted_for().unwrap(), None);
    // Of the other snapshot that a list has in common, no clone fits.
    let other = send(&from, "s/second@r", None, Some("s/fs@one"));
    let options = ReceiveOptions { name: "r/other@r".to_owned(), ..options };
    assert!(to.receive(&other[..], &options).is_err());
    to.export().unwrap();
    sound(dir.path(), "r");
}

/// Goal: a redacted dataset is sent on with its holes, and names the snapshots for which it is
/// redacted. It can't be redacted again, nor redact others, nor be written to.
#[test]
fn redacted_datasets() {
    let dir = tempfile::tempdir().unwrap();
    let (from, to) = (source(dir.path()), create(dir.path(), "r"));
    received(&to, &send(&from, "s/fs@one", Some("s/fs#first"), None), "r/fs@one");
    let on = send(&to, "r/fs@one", None, None);
    received(&to, &on, "r/on@one");
    assert_eq!(differences((&to, "r/on@one"), (&from, "s/fs@one")).len(), 10);
    to.clone_snapshot("r/fs@one", "r/clone").unwrap();
    to.snapshot("r/clone@r").unwrap();
    let refused = |snapshot: &str, by: &str| match made(&to, snapshot, "b", &[by]) {
        Err(RedactError::Redacted(name)) => name,
        other => panic!("{other:?}"),
    };
    assert_eq!(refused("r/fs@one", "r/clone@r"), "r/fs@one");
    assert!(to.dataset("r/clone").unwrap().dsl().redacted_for().unwrap().is_some());
    let busy = to.dataset("r/fs").unwrap().create_file("/new").err().unwrap();
    assert!(words(&busy).contains("busy"), "{}", words(&busy));
    // A bookmark of it has a list too, of no blocks.
    let bookmarks = poolhouse::dsl::ops::bookmark::CreateBookmarks {
        pairs: vec![("r/fs#mark".to_owned(), "r/fs@one".to_owned())],
    };
    to.spa().writer().unwrap().run(Box::new(bookmarks)).unwrap();
    let of_it = list(&to, "r/fs#mark").1;
    assert!(of_it.is_complete() && of_it.is_empty());
    assert_eq!(of_it.snaps(), list(&from, "s/fs#first").1.snaps());
    to.export().unwrap();
    sound(dir.path(), "r");
}

/// Goal: a redacted receive that breaks off anywhere goes on where its token says, and so does the
/// one from the redaction bookmark. The token names the snapshots of both lists.
#[test]
fn interrupted_and_resumed() {
    let dir = tempfile::tempdir().unwrap();
    let (from, to) = (source(dir.path()), create(dir.path(), "r"));
    let rest_of = |redact: Option<ObjNum>, origin: Option<Origin>| {
        let token = to.dataset("r/fs").unwrap().dsl().resume_token().unwrap().unwrap();
        let token = poolhouse::stream::token::decode(&token).unwrap();
        let number = |name| token.u64(name).unwrap();
        let resume = Some(Resume {
            object: ObjNum(number("object")),
            offset: number("offset"),
            bytes: number("bytes"),
        });
        let mut rest = Vec::new();
        let options = Options { redact, origin, resume, ..Options::default() };
        from.dataset("s/fs@one").unwrap().send(&options, &mut rest).unwrap();
        (token, rest)
    };
    let options =
        |name: &str| ReceiveOptions { name: name.to_owned(), resumable: true, ..ReceiveOptions::default() };
    let (object, snaps) = (list(&from, "s/fs#first").0, list(&from, "s/fs#first").1.snaps().to_vec());
    let whole = send(&from, "s/fs@one", Some("s/fs#first"), None);
    let mut part = whole[..whole.len() / 4].to_vec();
    for round in 0..4 {
        to.receive(&part[..], &options("r/fs@one")).unwrap_err();
        let (token, rest) = rest_of(Some(object), None);
        assert_eq!(token.u64s("redact_snaps"), Some(&snaps[..]));
        part = if round == 3 { rest } else { rest[..rest.len() / 2].to_vec() };
    }
    to.receive(&part[..], &options("r/fs@one")).unwrap();
    assert_eq!(differences((&to, "r/fs@one"), (&from, "s/fs@one")).len(), 10);
    let fill = send(&from, "s/fs@one", None, Some("s/fs#first"));
    to.receive(&fill[..fill.len() / 2], &options("r/fs@whole")).unwrap_err();
    let head = from.dataset("s/fs").unwrap();
    let mark = head.dsl().bookmark("first").unwrap().unwrap();
    let of = from.dataset("s/fs@one").unwrap();
    let origin = Origin::of_bookmark(of.dsl(), head.dsl(), &mark.phys).unwrap();
    let (token, rest) = rest_of(None, Some(origin));
    assert_eq!(token.u64s("book_redact_snaps"), Some(&snaps[..]));
    assert!(rest.len() < fill.len());
    to.receive(&rest[..], &options("r/fs@whole")).unwrap();
    assert_eq!(differences((&to, "r/fs@whole"), (&from, "s/fs@one")), []);
    to.export().unwrap();
    sound(dir.path(), "r");
}

/// Goal: what can't be redacted is refused for OpenZFS's reasons, and the pool has no bookmark.
#[test]
fn refusals() {
    let dir = tempfile::tempdir().unwrap();
    let pool = source(dir.path());
    let fails = |snapshot: &str, mark: &str, by: &[&str]| made(&pool, snapshot, mark, by).unwrap_err();
    use RedactError as E;
    assert!(matches!(fails("s/fs", "x", &["s/first@r"]), E::NotSnapshot));
    assert!(matches!(fails("s/fs@one", "x", &["s/fs@one"]), E::NotDescendant(_)));
    assert!(matches!(fails("s/first@r", "x", &["s/second@r"]), E::NotDescendant(_)));
    assert!(matches!(fails("s/fs@one", "x", &["s/first"]), E::NotDescendant(_)));
    assert!(matches!(fails("s/fs@one", "x", &["@r"]), E::OtherPool(_)));
    assert!(matches!(fails("s/fs@one", "x", &["s/no@r"]), E::Dataset(_)));
    assert!(matches!(fails("s/fs@one", "first", &["s/first@r"]), E::Exists));
    assert!(matches!(fails("s/fs@one", "first", &["s/second@r"]), E::Mismatched));
    assert!(matches!(fails("s/fs@one", &"x".repeat(260), &["s/first@r"]), E::NameTooLong));
    assert!(matches!(
        fails("s/fs@one", "#x", &["s/first@r"]),
        E::Dataset(poolhouse::dsl::Error::BadName { .. })
    ));
    assert_eq!(pool.dataset("s/fs").unwrap().dsl().bookmarks().unwrap().len(), 2);
    assert_eq!(users(&pool, "redaction_bookmarks"), 2);
    // A destroyed bookmark frees its list.
    let names = vec!["s/fs#first".to_owned(), "s/fs#both".to_owned()];
    let destroy = poolhouse::dsl::ops::bookmark::DestroyBookmarks { names };
    let hold = pool.dsl().heads().long_hold(list(&pool, "s/fs#both").0.0);
    let live = pool.spa().writer().unwrap();
    let busy = live.run(Box::new(destroy.clone())).unwrap_err();
    assert!(words(&busy).contains("busy"), "{}", words(&busy));
    drop(hold);
    live.run(Box::new(destroy)).unwrap();
    assert_eq!(users(&pool, "redaction_bookmarks"), 0);
    pool.export().unwrap();
    sound(dir.path(), "s");
}

/// Goal: a list of many snapshots has its header in a spill block, and the same blocks on it as one
/// of few.
#[test]
fn many_snapshots() {
    let dir = tempfile::tempdir().unwrap();
    let pool = source(dir.path());
    let mut by = vec!["s/first@r".to_owned()];
    for n in 0..40 {
        let clone = format!("s/c{n}");
        let clone = pool.clone_snapshot("s/first@r", &clone).unwrap();
        clone.open_for_writing("/a").unwrap().write_at(&[n; 100], 0).unwrap();
        by.push(format!("{}@r", clone.name()));
        pool.snapshot(by.last().unwrap()).unwrap();
    }
    redact(pool.spa(), "s/fs@one", "many", &by).unwrap();
    assert_eq!(list(&pool, "s/fs#many").1.snaps().len(), 41);
    assert_eq!(blocks(&pool, "s/fs#many"), blocks(&pool, "s/fs#first"));
    assert_eq!(users(&pool, "redaction_list_spill"), 1);
    pool.export().unwrap();
    sound(dir.path(), "s");
    drop(pool);
    let image = dir.path().join("s");
    let options = OpenOptions { write: true, ..OpenOptions::default() };
    let pool = Pool::open(&[image], &options).unwrap();
    assert_eq!(blocks(&pool, "s/fs#many"), blocks(&pool, "s/fs#first"));
    let names = vec!["s/fs#many".to_owned()];
    let destroy = poolhouse::dsl::ops::bookmark::DestroyBookmarks { names };
    pool.spa().writer().unwrap().run(Box::new(destroy)).unwrap();
    assert_eq!(users(&pool, "redaction_list_spill"), 0);
    pool.export().unwrap();
    sound(dir.path(), "s");
}
