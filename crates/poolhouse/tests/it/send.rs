//! Streams that the library sends, compared with those that OpenZFS's kernel module made of the
//! same snapshots.
//!
//! The streams are only in the whole set of fixtures.

use crate::common::words;
use poolhouse::ondisk::ObjNum;
use poolhouse::ondisk::replay::{Begin, End, Record, Write};
use poolhouse::stream::{Forms, Options, Origin, Reader, Resume};
use poolhouse::{OpenOptions, Pool};
use testkit::find;

const PLAIN: Forms = Forms { large_blocks: false, embedded: false, compressed: false, raw: false };

/// The origin of a stream by its name: `@snapshot` or `#bookmark` of the same file system.
fn origin(pool: &Pool, dataset: &str, name: &str) -> Origin {
    let to = pool.dataset(dataset).unwrap();
    let head = pool.dataset(dataset.split('@').next().unwrap()).unwrap();
    let found = match name.strip_prefix('#') {
        Some(name) => {
            let mark = head.dsl().bookmark(name).unwrap().unwrap();
            Origin::of_bookmark(to.dsl(), head.dsl(), &mark.phys)
        }
        None => {
            let from = pool.dataset(&format!("{}{name}", head.name())).unwrap();
            Origin::of_snapshot(to.dsl(), from.dsl())
        }
    };
    found.unwrap()
}

/// Goal: each stream of one snapshot has the records of the kernel module's, and their payloads.
#[test]
fn streams_are_those_of_openzfs() {
    let Some(fixture) = find("send-src") else { return };
    // Another test has the fixture's own images.
    let copy = fixture.copy();
    let pool = Pool::open(copy.images(), &OpenOptions::default()).unwrap();
    pool.load_key("send-src/enc", b"correct horse").unwrap();
    let lec = Forms { large_blocks: true, embedded: true, compressed: true, raw: false };
    let raw = Forms { raw: true, ..PLAIN };
    let cases = [
        ("full-a", "send-src/fs@a", None, PLAIN),
        ("incr-a-b", "send-src/fs@b", Some("@a"), PLAIN),
        ("incr-bookmark-a-b", "send-src/fs@b", Some("#a"), PLAIN),
        ("compressed-c", "send-src/fs@c", None, Forms { compressed: true, ..PLAIN }),
        ("large-embed-a", "send-src/fs@a", None, Forms { compressed: false, ..lec }),
        ("large-embed-compressed-incr", "send-src/fs@c", Some("@b"), lec),
        ("plain-of-enc", "send-src/enc@e2", None, PLAIN),
        ("vol-full", "send-src/tree/vol@r1", None, PLAIN),
        ("vol-raw", "send-src/tree/vol@r1", None, raw),
        ("raw-enc-e1", "send-src/enc@e1", None, raw),
        ("raw-enc-incr", "send-src/enc@e2", Some("@e1"), raw),
    ];
    for (name, dataset, from, forms) in cases {
        let want = fixture.stream(&format!("{name}.zsend")).unwrap();
        let origin = from.map(|from| origin(&pool, dataset, from));
        let options = Options { origin, forms, ..Options::default() };
        compare(name, &records(name, &send(&pool, dataset, &options)), &records(name, &want));
    }
    // OpenZFS made no such stream for the fixture. Its records fit their payloads.
    let options = Options { forms: Forms { compressed: true, ..PLAIN }, ..Options::default() };
    let decrypted = records("compressed-of-enc", &send(&pool, "send-src/enc@e2", &options));
    let packed = |(record, _): &&(Record, Vec<u8>)| matches!(record, Record::Write(r) if r.compression != 0);
    assert!(decrypted.iter().filter(packed).count() > 10, "{} records", decrypted.len());
    // The token of the fixture says so.
    let resume = Resume { object: ObjNum(0x50), offset: 0, bytes: 0x7c_2d40 };
    let options = Options { resume: Some(resume), ..Options::default() };
    let rest = records("resumed-rest", &send(&pool, "send-src/fs@a", &options));
    compare("resumed-rest", &rest, &records("resumed-rest", &fixture.stream("resumed-rest.zsend").unwrap()));
}

/// Goal: what OpenZFS's kernel module has received in part is sent on with the records that it had
/// received, and no END.
#[test]
fn a_part_that_openzfs_received() {
    let (Some(fixture), Some(source)) = (find("send-partial"), find("send-src")) else { return };
    let copy = fixture.copy();
    let pool = Pool::open(copy.images(), &OpenOptions::default()).unwrap();
    let name = "send-partial/part";
    let sent = send(&pool, name, &Options { saved: true, ..Options::default() });
    let sent = records(name, &sent);
    let want = records("full-a", &source.stream("full-a.zsend").unwrap());
    let ends = sent.last().unwrap();
    // The last record frees all objects behind the part.
    assert!(matches!(ends.0, Record::FreeObjects(_)), "{:?}", ends.0);
    let begin = |records: &[(Record, Vec<u8>)]| match records[0].0 {
        Record::Begin(begin) => Begin { creation_time: 0, ..begin },
        ref other => panic!("{other:?}"),
    };
    assert_eq!(begin(&sent), begin(&want));
    // Holes behind the end of a file may begin elsewhere, and blocks be stored in another way.
    let contents = |records: &[(Record, Vec<u8>)]| {
        let of = |(record, payload): &(Record, Vec<u8>)| match record {
            Record::Free(_) | Record::Begin(_) => None,
            Record::Write(write) => {
                let key = Write { key_checksum: [0; 4], key_prop: 0, checksum_type: 0, ..*write };
                let here = Record::Write(key);
                Some((here, payload.clone()))
            }
            record => Some((*record, payload.clone())),
        };
        records.iter().filter_map(of).collect::<Vec<_>>()
    };
    let (sent, want) = (contents(&sent), contents(&want));
    // The receiver has split blocks above 128 KiB, since the stream had, and the last one is the
    // end of the part.
    let others: Vec<_> = sent.iter().filter(|one| !want.contains(one)).map(|(record, _)| record).collect();
    assert!(sent.len() > 100 && others.len() < 6, "{} of {}: {others:?}", others.len(), sent.len());
    let refused = pool.dataset("send-partial/rt@a").unwrap();
    let refused = refused.send(&Options { saved: true, ..Options::default() }, &mut Vec::new());
    assert!(words(&refused.unwrap_err()).contains("no partially received state"));
}

fn send(pool: &Pool, dataset: &str, options: &Options) -> Vec<u8> {
    let mut stream = Vec::new();
    let sent = pool.dataset(dataset).unwrap().send(options, &mut stream);
    sent.unwrap_or_else(|e| panic!("{dataset}: {}", words(&e)));
    stream
}

/// The records of a stream with their payloads, and without what follows from the bytes of others.
pub fn records(name: &str, stream: &[u8]) -> Vec<(Record, Vec<u8>)> {
    let mut reader = Reader::new(stream);
    let mut out = Vec::new();
    while let Some(packet) = reader.next_packet().unwrap_or_else(|e| panic!("{name}: {}", words(&e))) {
        let record = match packet.record {
            Record::End(end) => Record::End(End { checksum: [0; 4], ..end }),
            record => record,
        };
        out.push((record, packet.payload.to_vec()));
    }
    out
}

/// Compares two streams. The one known difference: OpenZFS sends an embedded spill block as a data
/// block at an impossible place, and this library as a spill block.
pub fn compare(name: &str, have: &[(Record, Vec<u8>)], want: &[(Record, Vec<u8>)]) {
    let is_misplaced =
        |record: &Record| matches!(record, Record::WriteEmbedded(r) if r.offset > u64::MAX / 2);
    let mut ours = have.iter();
    for (number, (want, payload)) in want.iter().enumerate() {
        let (have, ours) = ours.next().unwrap_or_else(|| panic!("{name}: ends at record {number}"));
        match (have, want) {
            (Record::Spill(have), Record::WriteEmbedded(embedded)) if is_misplaced(want) => {
                assert_eq!((have.object, have.length), (embedded.object, embedded.length), "{name} {number}");
                assert_eq!(ours.len() as u64, have.length, "{name} {number}");
            }
            _ => {
                assert_eq!(have, want, "{name}: record {number}");
                assert!(ours == payload, "{name}: the payload of record {number}");
            }
        }
    }
    assert!(ours.next().is_none(), "{name}: longer");
}
