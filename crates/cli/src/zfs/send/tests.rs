//! What `zfs send` writes and says of packages, in the words of OpenZFS 2.3.2.

#![allow(clippy::unwrap_used)]

use std::cell::RefCell;
use std::rc::Rc;

use api::files::Denied;
use api::streams::{Part, Parts};
use api::{
    Caller, Dataset, DatasetKind as K, DatasetList, DatasetQuery, Error, FakeService, Hold, InProcess, Prop,
    Reason, SendRequest, Source,
};
use ondisk::nvlist::{Nvlist, Value};
use ondisk::replay::{HeaderType, Record, features};
use stream::Reader;

use crate::cx::Cx;
use crate::sink::Sink;
use crate::terminal::Stdin;
use crate::zfs::package::Package;
use console::{Clock, Out};

/// A daemon with some datasets.
struct Pools(Vec<Dataset>);

impl FakeService for Pools {
    fn datasets(&self, _: &Caller, query: &DatasetQuery) -> Result<DatasetList, Error> {
        let root = query.root.as_deref().unwrap();
        if !self.0.iter().any(|one| one.name == root) {
            return Err(Error::new(root, Reason::NoSuchDataset));
        }
        let is_in = |one: &&Dataset| {
            let Some(tail) = one.name.strip_prefix(root) else { return false };
            let levels = tail.matches(['/', '@']).count() as u32;
            (tail.is_empty() || tail.starts_with(['/', '@'])) && query.depth.is_none_or(|most| levels <= most)
        };
        let kinds = |one: &&Dataset| query.kinds.contains(&one.kind);
        Ok(DatasetList::whole(self.0.iter().filter(is_in).filter(kinds).cloned().collect()))
    }

    fn holds(&self, _: &Caller, snapshot: &str) -> Result<Vec<Hold>, Error> {
        let hold = Hold { snapshot: snapshot.to_owned(), tag: "keep".to_owned(), time: 7 };
        Ok(if snapshot.ends_with("@r1") { vec![hold] } else { Vec::new() })
    }

    fn send_size(&self, _: &Caller, request: &SendRequest) -> Result<u64, Error> {
        match request.dataset.contains("odd") {
            true => Err(Error::new(&request.dataset, Reason::Suspended)),
            false => Ok(if request.from.is_some() { 1024 } else { 4096 }),
        }
    }
}

/// A dataset. A number is its guid and when it was created.
fn dataset(name: &str, number: u64) -> Dataset {
    let kind = if name.contains('@') { K::Snapshot } else { K::Filesystem };
    let props = vec![Prop::number("guid", number.to_string(), number, Source::None)];
    Dataset { name: name.to_owned(), kind, head: K::Filesystem, createtxg: number, props }
}

fn with(mut dataset: Dataset, name: &str, value: &str, source: Source) -> Dataset {
    let mut prop = Prop::new(name, value, source);
    prop.number = match value {
        "zstd" => Some(16),
        value => value.parse().ok(),
    };
    prop.received = Some(("lz4".to_owned(), "lz4".to_owned())).filter(|_| name == "compression");
    dataset.props.push(prop);
    dataset
}

/// A tree with a clone, and a child that lacks the first snapshot.
fn tree() -> Vec<Dataset> {
    let top = with(dataset("src/t", 1), "compression", "zstd", Source::Local);
    let top = with(top, "com.example:p", "v", Source::Local);
    let top = with(top, "atime", "1", Source::Inherited("src".to_owned()));
    let top = with(top, "quota", "4096", Source::Received);
    let top = with(top, "used", "1", Source::None);
    vec![
        dataset("src", 0),
        top,
        dataset("src/t@r0", 10),
        with(dataset("src/t@r1", 11), "com.example:s", "w", Source::Local),
        dataset("src/t@r2", 30),
        dataset("src/t@late", 99),
        with(dataset("src/t/a-clone", 25), "origin", "src/t/k@r1", Source::None),
        dataset("src/t/a-clone@r2", 31),
        dataset("src/t/k", 2),
        dataset("src/t/k@r1", 12),
        dataset("src/t/k@r2", 32),
        dataset("src/t/new", 26),
        dataset("src/t/new@r2", 33),
    ]
}

struct Stub(Vec<u8>, bool);

impl Parts for Stub {
    fn next(&mut self) -> Result<Option<Part<'_>>, Denied> {
        Ok((!std::mem::replace(&mut self.1, true)).then_some(Part::Bytes(&self.0)))
    }
}

/// What a command did.
#[derive(Debug, Default)]
struct Ran {
    code: i32,
    out: Vec<u8>,
    err: String,
    /// The snapshots that the daemon was asked for, with what they build on.
    asked: Vec<String>,
}

impl Ran {
    fn text(&self) -> String {
        String::from_utf8(self.out.clone()).unwrap()
    }

    /// The list of the package, whether it has holds, and the records behind its head.
    fn package(&self) -> (Option<Package>, bool, usize) {
        let mut reader = Reader::new(&self.out[..]);
        let first = reader.next_packet().unwrap().unwrap();
        let Record::Begin(begin) = first.record else { panic!("{:?}", first.record) };
        assert_eq!(begin.header_type().unwrap(), HeaderType::Compound);
        let holds = begin.features() & features::HOLDS != 0;
        let list = (!first.payload.is_empty()).then(|| Nvlist::decode(first.payload).unwrap());
        let end = reader.next_packet().unwrap().unwrap();
        let (Record::End(sum), Some(before)) = (end.record, end.before) else { panic!("{:?}", end.record) };
        assert_eq!((sum.checksum, end.stored.0), (before.0, [0; 4]));
        let mut more = 0;
        while let Some(packet) = reader.next_packet().unwrap() {
            assert_eq!(
                (&packet.record, packet.stored.0),
                (&Record::End(ondisk::replay::End { checksum: [0; 4], to_guid: 0 }), [0; 4])
            );
            more += 1;
        }
        (list.map(|list| Package::decode(&list).unwrap()), holds, more)
    }
}

fn ran_of(datasets: Vec<Dataset>, line: &str) -> Ran {
    let (out, err) = (Sink::default(), Sink::default());
    let sinks = (Out::new(Box::new(out.clone())), Out::new(Box::new(err.clone())));
    let pools = Rc::new(Pools(datasets));
    let connect = Box::new(move || Ok(Rc::new(InProcess::new(Rc::clone(&pools))) as Rc<dyn api::Requests>));
    let mut cx = Cx::new(sinks.0, sinks.1, Clock::system(), Box::new(Stdin), connect);
    let asked = Rc::new(RefCell::new(Vec::new()));
    let seen = Rc::clone(&asked);
    cx.stream = Box::new(move |request, _| {
        let from = request.from.as_deref().unwrap_or("-");
        seen.borrow_mut().push(format!("{from} {}", request.dataset));
        if request.dataset.contains("odd") {
            return Err(Denied::Api(Error::new(&request.dataset, Reason::Suspended)));
        }
        Ok(Box::new(Stub(Vec::new(), false)))
    });
    cx.keep = |_, _| Ok(Box::new(()));
    let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
    let code = crate::zfs::run(&mut cx, &words);
    let err = err.text();
    Ran { code, out: out.bytes(), err, asked: asked.take() }
}

fn ran(line: &str) -> Ran {
    ran_of(tree(), line)
}

/// Goal: a tree is sent in the order of its dependencies, with the snapshots that each option
/// means.
#[test]
fn streams() {
    for (line, expected) in [
        (
            "-R src/t@r2",
            &[
                "- src/t@r0",
                "src/t@r0 src/t@r1",
                "src/t@r1 src/t@r2",
                "- src/t/k@r1",
                "src/t/k@r1 src/t/k@r2",
                "- src/t/new@r2",
                "src/t/k@r1 src/t/a-clone@r2",
            ][..],
        ),
        (
            "-R -I @r1 src/t@r2",
            &["src/t@r1 src/t@r2", "src/t/k@r1 src/t/k@r2", "- src/t/new@r2", "src/t/k@r1 src/t/a-clone@r2"],
        ),
        (
            "-R -i r0 src/t@r2",
            &[
                "src/t@r0 src/t@r2",
                // The clone's origin is needed.
                "- src/t/k@r1",
                "src/t/k@r1 src/t/k@r2",
                "- src/t/new@r2",
                "src/t/k@r1 src/t/a-clone@r2",
            ],
        ),
        (
            "-R -X src/t/k,src/t/new src/t@r2",
            &["- src/t@r0", "src/t@r0 src/t@r1", "src/t@r1 src/t@r2", "src/t/k@r1 src/t/a-clone@r2"],
        ),
        ("-I @r0 src/t@r2", &["src/t@r0 src/t@r1", "src/t@r1 src/t@r2"]),
        ("-I src/t/k@r1 src/t/a-clone@r2", &["src/t/k@r1 src/t/a-clone@r2"]),
        ("-p src/t@r2", &["- src/t@r2"]),
        ("-p -i @r1 src/t@r2", &["src/t@r1 src/t@r2"]),
    ] {
        let ran = ran(&format!("send {line}"));
        assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{line}");
        assert_eq!(ran.asked, expected, "{line}");
        // The stub's streams are empty, so only the last END follows the head.
        assert_eq!(ran.package().2, 1, "{line}");
    }
}

/// Goal: the list has what is set at each dataset and snapshot, and the parents of each.
#[test]
fn lists() {
    let package = ran("send -R -h -I @r1 src/t@r2").package();
    assert!(package.1);
    let package = package.0.unwrap();
    assert_eq!((package.from.as_deref(), package.to.as_str()), (Some("r1"), "r2"));
    assert!(package.recursive && !package.raw);
    let names: Vec<_> = package.members.iter().map(|one| (one.name.as_str(), one.parent_from)).collect();
    assert_eq!(names, [("src/t", 0), ("src/t/a-clone", 11), ("src/t/k", 11), ("src/t/new", 11)]);
    let top = &package.members[0];
    let props = top.props.as_ref().unwrap();
    let found: Vec<_> = props.iter().map(|(name, value)| (String::from_utf8_lossy(name), value)).collect();
    assert_eq!(found[0], ("compression".into(), &Value::Uint64(16)));
    assert_eq!(found[1], ("com.example:p".into(), &Value::String(b"v".to_vec())));
    assert_eq!(found[2], ("quota".into(), &Value::Uint64(4096)));
    assert_eq!(found.len(), 3);
    // What is newer than the last snapshot is left out.
    let snaps: Vec<_> = top.snaps.iter().map(|snap| (snap.name.as_str(), snap.guid)).collect();
    assert_eq!(snaps, [("r0", 10), ("r1", 11), ("r2", 30)]);
    assert_eq!(top.snaps[1].props.as_ref().unwrap().str("com.example:s"), Some("w"));
    assert_eq!(top.snaps[1].holds.as_ref().unwrap().u64("keep"), Some(7));
    assert_eq!(package.members[1].origin, Some(12));
    // Received values only, of one snapshot.
    let package = ran("send -b src/t@r2").package().0.unwrap();
    assert!(!package.recursive);
    assert_eq!(package.members[0].props.as_ref().unwrap().len(), 1);
    assert_eq!(package.members[0].props.as_ref().unwrap().u64("compression"), Some(15));
    assert_eq!(package.members[0].snaps.len(), 1);
    // A series of one dataset without properties has no list.
    assert_eq!(ran("send -I @r0 src/t@r2").package().0, None);
    let package = ran("send -p -I @r0 src/t@r2").package().0.unwrap();
    let listed = package.members[0].snaps.iter().map(|snap| (&*snap.name, snap.props.is_some()));
    assert_eq!(listed.collect::<Vec<_>>(), [("r0", false), ("r1", true), ("r2", true)]);
}

/// Goal: `-n`, `-v` and `-P` show each stream and the total.
#[test]
fn sizes() {
    let dry = ran("send -n -v -R -I @r1 src/t@r2");
    let skipped = "skipping snapshot src/t@late because it was created after the destination snapshot (r2)\n";
    assert_eq!((dry.code, dry.err.as_str(), dry.asked.len()), (0, skipped, 0));
    assert_eq!(
        dry.text(),
        "send from @r1 to src/t@r2 estimated size is 1K\n\
         send from @r1 to src/t/k@r2 estimated size is 1K\n\
         full send of src/t/new@r2 estimated size is 4K\n\
         full send of src/t/a-clone@r2 estimated size is 4K\n\
         total estimated size is 10K\n"
    );
    let dry = ran("send -nP -I @r0 src/t@r2");
    assert_eq!(dry.text(), "incremental\tr0\tsrc/t@r1\t1024\nincremental\tr1\tsrc/t@r2\t1024\nsize\t2048\n");
    let ran = ran("send -P -I @r1 src/t@r2");
    assert_eq!((ran.code, ran.err.as_str()), (0, "incremental\tr1\tsrc/t@r2\t1024\nsize\t1024\n"));
    assert!(ran_of(tree(), "send -n -R src/t@r2").out.is_empty());
}

/// Goal: what is missing is reported in libzfs's words, and left out where that was wanted.
#[test]
fn missing_snapshots() {
    let mut datasets = tree();
    datasets.push(dataset("src/t/bare", 3));
    datasets.push(dataset("src/t/bare/below", 4));
    let refused = ran_of(datasets.clone(), "send -R src/t@r2");
    assert_eq!(
        (refused.code, refused.err.as_str()),
        (
            1,
            "cannot send src/t@r2 recursively: snapshot src/t/bare@r2 does not exist\n\
             warning: cannot send 'src/t@r2': backup failed\n"
        )
    );
    assert!(refused.out.is_empty());
    let skipped = ran_of(datasets, "send -R -s src/t@r2");
    assert_eq!(
        (skipped.code, skipped.err.as_str(), skipped.asked.len()),
        (0, "WARNING: skipping dataset src/t/bare and its children: snapshot r2 does not exist\n", 7)
    );
    // What is newer than the snapshot does not need it.
    let newer = ran("send -v -R -n src/t@r1");
    assert!(newer.err.contains("skipping dataset src/t/new: snapshot r1 does not exist\n"), "{}", newer.err);
    assert!(
        newer.err.contains(
            "skipping snapshot src/t@late because it was created after the destination snapshot (r1)\n"
        ),
        "{}",
        newer.err
    );
    let late = ran("send -I @r2 src/t@r1");
    assert_eq!(
        (late.code, late.err.as_str()),
        (1, "WARNING: could not send src/t@r1:\nincremental source (src/t@r2) is not earlier than it\n")
    );
}

/// Goal: a stream that fails ends the package, which keeps its END.
#[test]
fn failures() {
    let mut datasets = tree();
    datasets.push(dataset("src/t/a-odd", 3));
    datasets.push(dataset("src/t/a-odd@r2", 34));
    let ran = ran_of(datasets, "send -R src/t@r2");
    assert_eq!(ran.code, 1);
    assert_eq!(ran.err, "warning: cannot send 'src/t/a-odd@r2': pool I/O is currently suspended\n");
    assert_eq!((ran.asked.len(), ran.package().2), (4, 1));
    let mut datasets = tree();
    datasets[1] = with(datasets[1].clone(), "encryption", "aes-256-gcm", Source::None);
    datasets[1] = with(datasets[1].clone(), "encryptionroot", "src/t", Source::None);
    let ran = ran_of(datasets.clone(), "send -p src/t@r2");
    assert_eq!(
        (ran.code, ran.err.as_str()),
        (
            1,
            "cannot send src/t@r2: encrypted dataset src/t may not be sent with properties without the raw \
             flag\nwarning: cannot send 'src/t@r2': backup failed\n"
        )
    );
    let raw = ran_of(datasets, "send -p -w src/t@r2").package().0.unwrap();
    assert!(raw.raw && raw.members[0].is_encroot);
}

/// Goal: the grammar is OpenZFS's.
#[test]
fn grammar() {
    for (line, code, text) in [
        ("-I @a -i @b src/t@r2", 2, "usage:"),
        ("-X src/t src/t@r2", 1, "Cannot specify dataset exclusion (-X) on a non-recursive send.\n"),
        ("-R -X src src/t@r2", 2, "-X src: not a valid non-root dataset name.\n"),
        ("-s src/t@r2", 2, "skip-missing flag can only be used in conjunction with replicate\n"),
        ("-R -t 1-a", 2, "invalid flags combined with -t\n"),
        ("-I #mark src/t@r2", 1, "Error: multiple snapshots cannot be sent from a bookmark.\n"),
        ("-R src/t", 1, "Error: Unsupported flag with filesystem or bookmark.\n"),
        ("-I src/t/k@r1 src/t@r2", 2, "incremental source must be in same filesystem\n"),
        ("-I @a@b src/t@r2", 2, "invalid incremental source\n"),
        ("-I @ src/t@r2", 1, "cannot send 'src/t': zero-length incremental source\n"),
        ("-I @no src/t@r2", 1, "cannot open 'src/t@no': dataset does not exist\n"),
        ("-R src/t@no", 1, "cannot open 'src/t@no': dataset does not exist\n"),
    ] {
        let ran = ran(&format!("send {line}"));
        assert_eq!(ran.code, code, "{line}: {}", ran.err);
        assert!(ran.err.starts_with(text), "{line}: {}", ran.err);
        assert!(ran.out.is_empty(), "{line}");
    }
}
