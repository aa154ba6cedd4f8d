//! What `zfs receive` says and asks for, in the words of OpenZFS 2.3.2.

#![allow(clippy::unwrap_used)]

use std::cell::RefCell;
use std::io::{self, Seek, Write};
use std::rc::Rc;

use api::files::Denied;
use api::streams::{BEGIN_MAX, Received};
use api::{
    Caller, Changed, Dataset, DatasetChange, DatasetList, DatasetQuery, Error, FakeService, InProcess,
    MountFailure, Prop, Source, StreamFault,
};
use ondisk::bytes::ByteOrder;
use ondisk::replay::{BACKUP_MAGIC, Begin, End, features, flags};
use stream::Writer;

use super::*;
use crate::sink::Sink;
use crate::terminal::Stdin;
use console::{Clock, Out};

mod packages;

/// A daemon with some datasets.
#[derive(Default)]
struct Pools {
    datasets: RefCell<Vec<Dataset>>,
    /// What was asked for, besides datasets.
    asked: RefCell<Vec<String>>,
    /// Datasets that were received in part.
    partial: Vec<String>,
}

impl FakeService for Pools {
    fn datasets(&self, _: &Caller, query: &DatasetQuery) -> Result<DatasetList, Error> {
        let root = query.root.as_deref().unwrap();
        let all = self.datasets.borrow();
        if !all.iter().any(|one| one.name == root) {
            return Err(Error::new(root, Reason::NoSuchDataset));
        }
        let is_in = |one: &&Dataset| {
            let Some(tail) = one.name.strip_prefix(root) else { return false };
            let levels = tail.matches(['/', '@']).count() as u32;
            (tail.is_empty() || tail.starts_with(['/', '@'])) && query.depth.is_none_or(|most| levels <= most)
        };
        let kinds = |one: &&Dataset| query.kinds.contains(&one.kind);
        let datasets = all.iter().filter(is_in).filter(kinds).cloned().collect();
        Ok(DatasetList { datasets, ..DatasetList::default() })
    }

    fn change(&self, _: &Caller, change: &DatasetChange) -> Result<Changed, Error> {
        let mut asked = self.asked.borrow_mut();
        let mut datasets = self.datasets.borrow_mut();
        match change {
            DatasetChange::Create { name, .. } => {
                asked.push(format!("create {name}"));
                if name.ends_with("bad") {
                    return Err(Error::new(name, Reason::Refused { why: Refusal::Quota }));
                }
                datasets.push(dataset(name, 0));
            }
            DatasetChange::Hold { snapshots, tag } => asked.push(format!("hold {} {tag}", snapshots[0])),
            DatasetChange::Destroy { names, .. } => {
                asked.push(format!("destroy {}", names[0]));
                let below = format!("{}/", names[0]);
                if datasets.iter().any(|one| one.name.starts_with(&below)) {
                    let error = Error::new(&names[0], Reason::Refused { why: Refusal::Busy });
                    let failures = vec![MountFailure { name: names[0].clone(), error }];
                    return Ok(Changed { failures, ..Changed::default() });
                }
                datasets.retain(|one| one.name != names[0]);
            }
            DatasetChange::Rename { from, to, .. } => {
                asked.push(format!("rename {from} to {to}"));
                let renamed = |name: &str| name.replacen(from.as_str(), to, 1);
                for one in datasets.iter_mut() {
                    if one.name.starts_with(from.as_str()) {
                        one.name = renamed(&one.name);
                    }
                    for origin in one.props.iter_mut().filter(|prop| prop.name == "origin") {
                        origin.text = renamed(&origin.text);
                    }
                }
            }
            DatasetChange::RenameSnapshot { dataset, from, to, .. } => {
                asked.push(format!("rename {dataset}@{from} to {to}"));
                let name = format!("{dataset}@{from}");
                for one in datasets.iter_mut().filter(|one| one.name == name) {
                    one.name = format!("{dataset}@{to}");
                }
            }
            DatasetChange::Promote { name } => {
                asked.push(format!("promote {name}"));
                return Err(Error::new(name, Reason::Permission));
            }
            change => panic!("{change:?}"),
        }
        Ok(Changed::default())
    }

    fn mount(&self, _: &Caller, request: &api::MountRequest) -> Result<api::MountReport, Error> {
        self.asked.borrow_mut().push(format!("mount {}", request.datasets.join(" ")));
        Ok(api::MountReport::default())
    }

    fn change_pool(&self, _: &Caller, name: &str, change: &api::PoolChange) -> Result<(), Error> {
        self.asked.borrow_mut().push(format!("log {name} {change:?}"));
        Ok(())
    }

    fn receive_abort(&self, _: &Caller, dataset: &str) -> Result<(), Error> {
        self.asked.borrow_mut().push(format!("abort {dataset}"));
        match self.partial.iter().any(|one| one == dataset) {
            true => Ok(()),
            false => Err(Error::new(dataset, Reason::NoSuchDataset)),
        }
    }
}

/// A file system, or a snapshot with this guid.
fn dataset(name: &str, guid: u64) -> Dataset {
    let kind = if name.contains('@') { K::Snapshot } else { K::Filesystem };
    let number = |name: &str, n: u64| Prop::number(name, n.to_string(), n, Source::None);
    let props = vec![number("guid", guid), number("inconsistent", 0)];
    Dataset { name: name.to_owned(), kind, head: K::Filesystem, createtxg: guid, props }
}

fn with(mut dataset: Dataset, property: &str, value: &str) -> Dataset {
    dataset.props.retain(|prop| prop.name != property);
    let mut prop = Prop::new(property, value, Source::None);
    prop.number = value.parse().ok();
    dataset.props.push(prop);
    dataset
}

fn pools() -> Pools {
    let volume = Dataset { kind: K::Volume, head: K::Volume, ..dataset("tank/vol", 0) };
    let datasets = vec![
        dataset("tank", 0),
        dataset("tank/fs", 0),
        dataset("tank/fs@one", 11),
        dataset("tank/fs@two", 12),
        dataset("tank/empty", 0),
        dataset("tank/empty/child", 0),
        dataset("tank/other", 0),
        dataset("tank/other@one", 11),
        dataset("tank/other@deep", 21),
        with(dataset("tank/clone", 0), "origin", "tank/fs@one"),
        with(dataset("tank/crypt", 0), "encryption", "aes-256-gcm"),
        with(with(dataset("tank/part", 0), "inconsistent", "1"), "receive_resume_token", "1-abc"),
        with(dataset("tank/tok", 0), "receive_resume_token", "1-def"),
        volume,
    ];
    Pools { datasets: RefCell::new(datasets), partial: vec!["tank/part".to_owned()], ..Pools::default() }
}

/// BEGIN of a stream of `name` that builds on the snapshot `from`.
fn begin(name: &str, from: u64) -> Begin {
    let mut to_name = [0; 256];
    to_name[..name.len()].copy_from_slice(name.as_bytes());
    Begin {
        magic: BACKUP_MAGIC,
        version_info: 1 | features::LZ4 << Begin::FEATURES_SHIFT,
        creation_time: 0,
        objset_type: 2,
        flags: 0,
        to_guid: 12,
        from_guid: from,
        to_name,
    }
}

fn featured(begin: Begin, more: u64) -> Begin {
    Begin { version_info: begin.version_info | more << Begin::FEATURES_SHIFT, ..begin }
}

/// A stream with this BEGIN, and nothing else in it.
fn bytes_in(begin: &Begin, order: ByteOrder) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut writer = Writer::new(&mut bytes, order);
    writer.begin(begin, b"").unwrap();
    writer.end(begin.to_guid).unwrap();
    bytes
}

fn bytes(begin: &Begin) -> Vec<u8> {
    bytes_in(begin, ByteOrder::Little)
}

/// What a command did.
#[derive(Debug, Default, PartialEq, Eq)]
struct Ran {
    code: i32,
    out: String,
    err: String,
    /// The last request to receive.
    request: Option<ReceiveRequest>,
    /// All requests to receive.
    requests: Vec<ReceiveRequest>,
    /// What was left of standard input.
    left: usize,
    asked: Vec<String>,
}

/// Runs a command with a stream as its standard input, for a daemon that answers in this way.
fn ran_with(
    pools: Pools,
    line: &str,
    stream: &[u8],
    answer: impl Fn() -> Result<Received, Denied> + 'static,
) -> Ran {
    run(pools, line, stream, move |_, _| answer())
}

/// The same, for a daemon that reads each stream to its END before it answers.
fn ran_streams(
    pools: Pools,
    line: &str,
    stream: &[u8],
    answer: impl Fn(&ReceiveRequest) -> Result<Received, Denied> + 'static,
) -> Ran {
    let ends = move |input: &mut std::fs::File, request: &ReceiveRequest| {
        io::Read::read_exact(input, &mut [0; 312]).unwrap();
        answer(request)
    };
    run(pools, line, stream, ends)
}

fn run(
    pools: Pools,
    line: &str,
    stream: &[u8],
    answer: impl Fn(&mut std::fs::File, &ReceiveRequest) -> Result<Received, Denied> + 'static,
) -> Ran {
    let mut input = tempfile::tempfile().unwrap();
    input.write_all(stream).unwrap();
    input.rewind().unwrap();
    let (out, err) = (Sink::default(), Sink::default());
    let sinks = (Out::new(Box::new(out.clone())), Out::new(Box::new(err.clone())));
    let pools = Rc::new(pools);
    let (service, made) = (Rc::clone(&pools), Rc::clone(&pools));
    let connect = Box::new(move || Ok(Rc::new(InProcess::new(Rc::clone(&service))) as Rc<dyn api::Requests>));
    let mut cx = Cx::new(sinks.0, sinks.1, Clock::system(), Box::new(Stdin), connect);
    let requests = Rc::new(RefCell::new(Vec::new()));
    let (seen, given) = (Rc::clone(&requests), input.try_clone().unwrap());
    cx.input = Box::new(move || given.try_clone());
    cx.deliver = Box::new(move |request, _, rest| {
        seen.borrow_mut().push(request.clone());
        let received = answer(&mut rest.try_clone().unwrap(), request)?;
        let (head, _) = request.target.split_once('@').unwrap();
        let mut datasets = made.datasets.borrow_mut();
        if !datasets.iter().any(|one| one.name == head) {
            datasets.push(dataset(head, 0));
        }
        Ok(received)
    });
    let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
    let code = crate::zfs::run(&mut cx, &words);
    let left = stream.len() - input.stream_position().unwrap() as usize;
    let (requests, asked) = (requests.take(), pools.asked.take());
    let request = requests.last().cloned();
    Ran { code, out: out.text(), err: err.text(), request, requests, left, asked }
}

fn ran(line: &str, begin: &Begin) -> Ran {
    ran_with(pools(), line, &bytes(begin), || Ok(Received { bytes: 624, ..Received::default() }))
}

/// What a command says that is refused, without a request to the daemon.
fn refused(line: &str, begin: &Begin) -> String {
    let ran = ran(line, begin);
    assert_eq!((ran.code, ran.request), (1, None), "{line}: {}", ran.err);
    ran.err
}

/// Goal: each form of the target gives the name that OpenZFS gives, in both byte orders.
#[test]
fn targets() {
    for (args, sent, target) in [
        ("tank/new", "src/a/b@s", "tank/new@s"),
        ("tank/new@mine", "src/a/b@s", "tank/new@mine"),
        ("-d tank/fs", "src/b@s", "tank/fs/b@s"),
        ("-e tank/fs", "src/a/b@s", "tank/fs/b@s"),
        ("-e tank/fs", "src@s", "tank/fs/src@s"),
    ] {
        for order in [ByteOrder::Little, ByteOrder::Big] {
            let stream = bytes_in(&begin(sent, 0), order);
            let ran = ran_with(pools(), &format!("receive {args}"), &stream, || Ok(Received::default()));
            assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{args}");
            assert_eq!(ran.request.unwrap().target, target, "{args} {sent}");
            // The END is the daemon's.
            assert_eq!(ran.left, 312);
        }
    }
    // With `-d` a pool's own stream goes to the target itself.
    let ran = ran("receive -d -F tank/empty", &begin("src@s", 0));
    assert_eq!(ran.request.unwrap().target, "tank/empty@s");
}

/// Goal: `-d` creates missing parents, and says which of them failed.
#[test]
fn parents() {
    let ran_d = ran("receive -d tank/fs", &begin("src/x/y/z@s", 0));
    let created: Vec<_> = ran_d.asked.iter().filter(|one| one.starts_with("create")).collect();
    assert_eq!(created, ["create tank/fs/x", "create tank/fs/x/y"]);
    assert_eq!(ran_d.request.unwrap().target, "tank/fs/x/y/z@s");
    assert_eq!(
        refused("receive -d tank/fs", &begin("src/bad/z@s", 0)),
        "cannot create 'tank/fs/bad': out of space\n\
         cannot receive new filesystem stream: failed to create ancestor 'tank/fs/bad'\n"
    );
    for args in ["tank/no/fs", "-n -d tank/fs"] {
        let text = refused(&format!("receive {args}"), &begin("src/no/fs@s", 0));
        let parent = if args.starts_with('-') { "tank/fs/no" } else { "tank/no" };
        let expected = format!(
            "cannot open '{parent}': dataset does not exist\n\
             cannot receive new filesystem stream: unable to restore to destination\n"
        );
        assert_eq!(text, expected);
    }
}

const NEW: &str = "cannot receive new filesystem stream";

/// Checks what each command says that is refused: options and target, BEGIN, text.
fn check_refusals(rows: &[(&str, &Begin, String)]) {
    for (args, begin, text) in rows {
        assert_eq!(refused(&format!("recv {args}"), begin), format!("{text}\n"), "{args}");
    }
}

/// Goal: a name that is not valid, or does not exist, is refused in libzfs's words.
#[test]
fn names() {
    let (full, more) = (&begin("src/fs@s", 0), &begin("src/fs@s", 11));
    let clone = &Begin { flags: flags::CLONE, ..begin("src/fs@s", 99) };
    let cannot = |why: &str| format!("cannot receive: {why}");
    check_refusals(&[
        ("-d tank/none", full, cannot("specified fs (tank/none) does not exist")),
        ("-o origin=tank/fs@no tank/x", full, cannot("specified origin fs (tank/fs@no) does not exist")),
        ("-e tank/fs@one", full, cannot("invalid argument - snapshot not allowed with -e")),
        ("-d tank/fs@one", full, cannot("invalid argument - snapshot not allowed with -d")),
        ("tank//x", full, cannot("invalid name")),
        ("tank/vol/x", full, format!("{NEW}: parent 'tank/vol' is not a filesystem")),
        ("pond", full, format!("{NEW}: destination 'pond' does not exist")),
        (
            "tank/none",
            more,
            "cannot receive incremental stream: destination 'tank/none' does not exist".to_owned(),
        ),
        ("tank/none", clone, cannot("local origin for clone tank/none@s does not exist")),
    ]);
}

/// Goal: what may not be overwritten is refused in libzfs's words.
#[test]
fn overwriting() {
    let full = begin("src/fs@s", 0);
    let volume = &Begin { objset_type: 3, ..full };
    let odd = &Begin { objset_type: 1, ..full };
    let rest = &featured(full, features::RESUMING);
    let full = &full;
    let no = |why: &str| format!("{NEW}: {why}");
    check_refusals(&[
        ("tank/fs", full, no("destination 'tank/fs' exists\nmust specify -F to overwrite it")),
        (
            "-F tank/fs",
            full,
            no("destination has snapshots (eg. tank/fs@one)\nmust destroy them to overwrite it"),
        ),
        ("-F tank/clone", full, no("destination 'tank/clone' is a clone\nmust destroy it to overwrite it")),
        (
            "-F tank/crypt",
            full,
            no("zfs receive -F cannot be used to destroy an encrypted filesystem or overwrite an \
                unencrypted one with an encrypted one"),
        ),
        ("-F tank", volume, no("destination tank is the root dataset\ncannot overwrite with a ZVOL")),
        (
            "-F tank/empty",
            volume,
            no("destination has children (eg. tank/empty/child)\ncannot overwrite with a ZVOL"),
        ),
        (
            "tank/tok",
            rest,
            "cannot receive resume stream: Resuming recv on existing destination 'tank/tok'\n\
             must specify -F to overwrite it"
                .to_owned(),
        ),
        ("tank/x", odd, no("invalid record type: 0x1")),
    ]);
}

/// Goal: `-o` and `-x` of encryption decide on a new dataset, where the stream and its key allow
/// it.
#[test]
fn encryption() {
    let full = begin("src/fs@s", 0);
    let raw = featured(full, features::RAW);
    let increment = begin("src/fs@s", 11);
    let no = |what: &str, why: &str| format!("{what}: {why}\n");
    for (args, begin, text) in [
        ("-o encryption=on tank/x", &full, no(NEW, "Keyformat required for new encryption root.")),
        (
            "-o encryption=on -o keyformat=hex tank/x",
            &full,
            no(NEW, "Cannot use 'prompt' keylocation because stdin is in use."),
        ),
        (
            "-o keyformat=hex tank/x",
            &full,
            no(NEW, "Encryption must be turned on to set encryption properties."),
        ),
        (
            "-x encryption tank/x",
            &raw,
            no(NEW, "encryption property 'encryption' cannot be set or excluded for raw streams."),
        ),
        (
            "-o keylocation=file:///k tank/x",
            &raw,
            no(NEW, "encryption property 'keylocation' cannot be set or excluded for raw streams."),
        ),
        (
            "-o encryption=on tank/fs",
            &increment,
            no(
                "cannot receive incremental stream",
                "encryption property 'encryption' cannot be set for incremental streams.",
            ),
        ),
    ] {
        assert_eq!(refused(&format!("receive {args}"), begin), text, "{args}");
    }
}

/// Goal: what is no stream, or a stream that no release takes, is refused before its name matters.
#[test]
fn beginnings() {
    let full = begin("src/fs@s", 0);
    for (begin, text) in [
        (Begin { magic: 5, ..full }, "cannot receive: invalid stream (bad magic number)\n"),
        (begin("src/fs", 0), "cannot receive: invalid stream (bad snapshot name)\n"),
        (
            featured(full, features::DEDUP),
            "cannot receive: stream has deprecated feature: dedup, try 'zstream redup [send in a file] | zfs \
             recv [...]'\n",
        ),
        (
            featured(full, 1 << 40),
            "cannot receive: stream has unsupported feature, feature flags = 10000020000 (unknown flags = \
             10000000000)\n",
        ),
    ] {
        assert_eq!(refused("receive tank/new", &begin), text);
    }
    let short = |n: usize| ran_with(pools(), "receive tank/new", &bytes(&full)[..n], || panic!("no request"));
    assert_eq!(short(311).err, "cannot receive: failed to read from stream\n");
    // The END of a package says nothing.
    let end = Record::End(End { checksum: [0; 4], to_guid: 0 }).encode(0, ByteOrder::Little);
    let ran = ran_with(pools(), "receive tank/new", &end, || panic!("no request"));
    assert_eq!((ran.code, ran.err.as_str()), (1, ""));
}

/// Goal: a list behind BEGIN goes to the daemon with it. One that is cut or too long is refused.
#[test]
fn lists() {
    let mut stream = Record::Begin(begin("src/fs@s", 0)).encode(8, ByteOrder::Little).to_vec();
    stream.extend(b"8 bytes.");
    let ran_list = |stream: &[u8]| ran_with(pools(), "receive tank/new", stream, || Ok(Received::default()));
    assert_eq!(ran_list(&stream).code, 0);
    let cut = ran_list(&stream[..316]);
    assert_eq!(cut.err, "cannot receive new filesystem stream: incomplete stream\n");
    assert_eq!(cut.request, None);
    let length = BEGIN_MAX as u32;
    let long = Record::Begin(begin("src/fs@s", 0)).encode(length, ByteOrder::Little);
    assert_eq!(
        ran_list(&long).err,
        format!(
            "cannot receive new filesystem stream: its first record has a list of {length} bytes; this release \
             of Poolhouse takes {}\n",
            BEGIN_MAX - 312
        )
    );
}

/// Goal: the options reach the daemon, and `-v` shows what OpenZFS shows.
#[test]
fn requests() {
    let ran_v = ran("receive -v -s -u -F tank/fs@mine", &begin("src/fs@s", 11));
    let expected = ReceiveRequest {
        target: "tank/fs@mine".to_owned(),
        origin: None,
        force: true,
        resumable: true,
        unmounted: true,
        ..ReceiveRequest::default()
    };
    assert_eq!(ran_v.request, Some(expected));
    let (first, last) = ran_v.out.split_once('\n').unwrap();
    assert_eq!(first, "receiving incremental stream of src/fs@s into tank/fs@mine");
    assert!(last.starts_with("received 624B stream in 0.0"), "{last}");
    assert!(last.ends_with("/sec)\n"), "{last}");
    assert!(ran_v.asked.iter().any(|one| one.contains("zfs receive -v -s -u -F tank/fs@mine")));
    // A clone's origin is the snapshot nearest to the target.
    let clone = Begin { flags: flags::CLONE, ..begin("src/c@s", 11) };
    let ran_c = ran("receive -v tank/other/c", &clone);
    assert_eq!(ran_c.request.unwrap().origin.as_deref(), Some("tank/other@one"));
    assert!(ran_c.out.starts_with("found clone origin tank/other@one\n"), "{}", ran_c.out);
    let ran_o = ran("receive -v -o origin=tank/fs@two tank/c", &begin("src/c@s", 5));
    assert_eq!(ran_o.request.unwrap().origin.as_deref(), Some("tank/fs@two"));
    assert!(ran_o.out.starts_with("using provided clone origin tank/fs@two\n"), "{}", ran_o.out);
    // With `-d`, an increment goes to the file system that has its source.
    let ran_d = ran("receive -d tank/empty", &begin("src/gone@s", 21));
    assert_eq!(ran_d.request.unwrap().target, "tank/other@s");
}

/// Goal: `-n` reads the whole stream, and asks for nothing.
#[test]
fn dry_runs() {
    let full = begin("src/fs@s", 0);
    let dry = ran("receive -n -v tank/new", &full);
    assert_eq!((dry.code, dry.left, &dry.request), (0, 0, &None));
    assert_eq!(dry.out, "would receive full stream of src/fs@s into tank/new@s\n");
    assert!(dry.asked.is_empty());
    let cut = ran_with(pools(), "receive -n tank/new", &bytes(&full)[..400], || panic!("no request"));
    assert_eq!((cut.code, cut.err.as_str()), (1, "cannot receive: failed to read from stream\n"));
}

/// What the daemon's refusal becomes.
fn answered(line: &str, begin: &Begin, reason: &Reason) -> (i32, String) {
    let reason = reason.clone();
    let name = "tank/fs".to_owned();
    let answer = move || Err(Denied::Api(Error::new(&name, reason.clone())));
    let ran = ran_with(pools(), line, &bytes(begin), answer);
    assert!(ran.request.is_some(), "{line}: {}", ran.err);
    (ran.code, ran.err)
}

/// Goal: each refusal of the engine has libzfs's text for it.
#[test]
fn refusals() {
    let more = Begin { to_guid: 13, ..begin("src/fs@s", 11) };
    let what = |why: &str| format!("cannot receive incremental stream: {why}\n");
    for (why, text) in [
        (Refusal::NotSource, what("most recent snapshot of tank/fs does not\nmatch incremental source")),
        (Refusal::Modified, what("destination tank/fs has been modified\nsince most recent snapshot")),
        (Refusal::Exists, "cannot restore to tank/fs@s: destination already exists\n".to_owned()),
        (
            Refusal::ResumeExists,
            "cannot resume recv tank/fs@s: Resuming recv on existing dataset without force\n".to_owned(),
        ),
        (Refusal::Busy, what("dataset is busy")),
        (Refusal::NoSpace, what("out of space")),
        (Refusal::Quota, what("destination tank/fs space quota exceeded.")),
        (Refusal::Feature, what("pool must be upgraded to receive this stream.")),
        (Refusal::ParentKeyNotLoaded, what("inherited key must be loaded")),
        (
            Refusal::LargeBlocks,
            what("incremental send stream requires -L (--large-block), to match previous receive."),
        ),
    ] {
        assert_eq!(answered("receive tank/fs", &more, &Reason::Refused { why }), (1, text), "{why:?}");
    }
    let busy = answered("receive tank/tok", &more, &Reason::Refused { why: Refusal::Busy }).1;
    let text = "destination tank/tok contains partially-complete state from \"zfs receive -s\".";
    assert_eq!(busy, what(text));
    let exists = Reason::Refused { why: Refusal::Exists };
    let new = answered("receive tank/new", &begin("src/fs@s", 0), &exists).1;
    assert_eq!(new, "cannot restore to tank/new: destination already exists\n");
}

/// Goal: each fault of the stream or the pool has libzfs's text for it.
#[test]
fn faults() {
    let more = Begin { to_guid: 13, ..begin("src/fs@s", 11) };
    let of = |fault, what: &str| Reason::Stream { fault, what: what.to_owned() };
    for (reason, text) in [
        (of(StreamFault::Truncated, "x"), "incomplete stream"),
        (of(StreamFault::Checksum, "x"), "checksum mismatch"),
        (
            of(StreamFault::Invalid, "record 2 at byte 624: odd"),
            "invalid backup stream\nrecord 2 at byte 624: odd",
        ),
        (
            of(StreamFault::Feature, "zstd"),
            "pool must be upgraded to receive this stream.\n\
             It needs zstd, which the pool or this release of Poolhouse lacks.",
        ),
        (Reason::System { errno: 22 }, "invalid backup stream"),
        (Reason::System { errno: 28 }, "out of space"),
        (Reason::PoolReadonly, "pool is read-only"),
        (Reason::Suspended, "pool I/O is currently suspended"),
        (Reason::HeldOpen { by: "cp".to_owned() }, "dataset is busy: in use by cp"),
        (
            Reason::InTheWay { dataset: "tank/fs/x".to_owned(), by: None, why: api::Unmounts::Replaced },
            "dataset is busy: the stream replaces all of it, so that the receive has to unmount \
             'tank/fs/x', which is in use; end that, and try again",
        ),
    ] {
        let text = format!("cannot receive incremental stream: {text}\n");
        assert_eq!(answered("receive tank/fs", &more, &reason), (1, text), "{reason:?}");
    }
}

/// Goal: a daemon that ends, or is another user's, is named as the cause.
#[test]
fn other_failures() {
    let more = begin("src/fs@s", 11);
    let said = |answer: fn() -> Denied| {
        ran_with(pools(), "receive tank/fs", &bytes(&more), move || Err(answer())).err
    };
    let gone =
        || Denied::Socket { socket: "files.sock".into(), source: io::ErrorKind::ConnectionReset.into() };
    let what = "cannot receive incremental stream";
    assert_eq!(
        said(gone),
        format!("{what}: the daemon ended it: the pool is exported, or the daemon stops\n")
    );
    assert_eq!(said(|| Denied::Theirs), format!("{what}: the daemon is another user's\n"));
}

/// Goal: a corrective receive needs the snapshot of the stream, and says why it could not correct.
#[test]
fn corrective() {
    let again = begin("src/fs@two", 11);
    let done = ran("receive -cv tank/fs", &again);
    assert_eq!((done.code, done.err.as_str()), (0, ""));
    let request = done.request.unwrap();
    assert!(request.corrective && request.target == "tank/fs@two", "{request:?}");
    let begins = "receiving corrective incremental stream of src/fs@two into tank/fs@two\n";
    assert!(done.out.starts_with(begins), "{}", done.out);
    let full = begin("src/fs@two", 0);
    assert_eq!(ran("receive -c tank/fs@two", &full).code, 0);
    let what = "cannot receive incremental stream";
    for (args, text) in [
        ("-c -F tank/fs", "corrective recv can not be used when combined with this flag"),
        ("-cs tank/fs", "corrective recv can not be used when combined with this flag"),
        ("-c tank/fs@new", "corrective recv must specify an existing snapshot to heal"),
        ("-c tank/new", "corrective recv must specify an existing snapshot to heal"),
        ("-c tank/fs@one", "local snapshot doesn't match the snapshot in the provided stream"),
    ] {
        assert_eq!(refused(&format!("receive {args}"), &again), format!("{what}: {text}\n"));
    }
    let of = |fault| Reason::Stream { fault, what: "why".to_owned() };
    for (reason, text) in [
        (
            of(StreamFault::Checksum),
            "corrective receive was not able to reconstruct the data needed for healing.\nwhy",
        ),
        (of(StreamFault::Feature), "stream is not compatible with the data in the pool.\nwhy"),
        (Reason::KeyNotLoaded, "key must be loaded to do a non-raw corrective recv on an encrypted dataset."),
        (Reason::Permission, "permission denied"),
    ] {
        let text = format!("{what}: {text}\n");
        assert_eq!(answered("receive -c tank/fs", &again, &reason), (1, text), "{reason:?}");
    }
}

/// Goal: a receive that can continue says with which token.
#[test]
fn saved_state() {
    let of = |fault| Reason::Stream { fault, what: String::new() };
    let kept = Reason::Kept { reason: Box::new(of(StreamFault::Truncated)) };
    let more = begin("src/tok@s", 11);
    let text = "cannot receive incremental stream: checksum mismatch or incomplete stream.\n\
                Partially received snapshot is saved.\n\
                A resuming stream can be generated on the sending system by running:\n    zfs send -t 1-def\n";
    assert_eq!(answered("receive -s tank/tok", &more, &kept), (1, text.to_owned()));
    assert_eq!(answered("receive -s tank/tok", &more, &of(StreamFault::Checksum)), (1, text.to_owned()));
    let none = answered("receive -s tank/fs", &more, &of(StreamFault::Truncated)).1;
    assert_eq!(none, "cannot receive incremental stream: incomplete stream\n");
}

/// Goal: a snapshot that is there already is read past, and that is a success.
#[test]
fn repeated_streams() {
    let again = begin("src/fs@two", 11);
    let exists = || Err(Denied::Api(Error::new("tank/fs", Reason::Refused { why: Refusal::Exists })));
    let ran = ran_with(pools(), "receive -v tank/fs", &bytes(&again), exists);
    assert_eq!((ran.code, ran.err.as_str(), ran.left), (0, "", 0));
    assert!(ran.out.ends_with("snap tank/fs@two already exists; ignoring\n"), "{}", ran.out);
}

/// Goal: a file system that can't be mounted was received nonetheless.
#[test]
fn failed_mounts() {
    let failure = || MountFailure {
        name: "tank/new".to_owned(),
        error: Error::new("/tank/new", Reason::MountpointNotEmpty),
    };
    let answer = move || Ok(Received { bytes: 624, unmounted: vec![failure()], ..Received::default() });
    let ran = ran_with(pools(), "receive tank/new", &bytes(&begin("src/fs@s", 0)), answer);
    assert_eq!(ran.code, 1);
    assert_eq!(ran.err, "cannot mount '/tank/new': directory is not empty\n");
    assert!(ran.asked.iter().any(|one| one.contains("zfs receive tank/new")), "{:?}", ran.asked);
}

/// Goal: `-A` destroys what there is, and says what there is not.
#[test]
fn aborts() {
    let begin = begin("src/fs@s", 0);
    let done = ran("receive -A tank/part", &begin);
    assert_eq!((done.code, done.err.as_str(), done.left), (0, "", 624));
    assert_eq!(done.asked[0], "abort tank/part");
    assert_eq!(
        refused("receive -A tank/fs", &begin),
        "'tank/fs' does not have any resumable receive state to abort\n"
    );
    for (line, text) in [
        ("receive -A -n tank/part", "invalid option\n"),
        ("receive -A tank/none", "cannot open 'tank/none': dataset does not exist\n"),
    ] {
        let ran = ran(line, &begin);
        assert_eq!(ran.code, 2);
        assert!(ran.err.starts_with(text), "{}", ran.err);
    }
}

/// Goal: the grammar is OpenZFS's, and what this release lacks is named.
#[test]
fn grammar() {
    let begin = begin("src/fs@s", 0);
    for (args, text) in [
        ("", "missing snapshot argument\n"),
        ("tank/a tank/b", "too many arguments\n"),
        ("-d -e tank", "invalid option combination: -d and -e are mutually exclusive\n"),
        ("-e -d tank", "invalid option combination: -d and -e are mutually exclusive\n"),
        ("-z tank", "invalid option 'z'\n"),
        ("tank -o", "missing argument for 'o' option\n"),
        ("-o origin tank", "missing '=' for property=value argument\n"),
        ("-x atime=off tank", "invalid character '=' in property argument\n"),
        ("-x atime -o atime=off tank", "property 'atime' specified multiple times\n"),
    ] {
        let ran = ran(&format!("receive {args}"), &begin);
        assert_eq!(ran.code, 2, "{args}");
        assert!(ran.err.starts_with(text), "{args}: {}", ran.err);
    }
    assert_eq!(ran("receive -M tank/new", &begin).code, 0);
    for (args, text) in [
        ("-o nonsense=1", "cannot receive: cannot receive: invalid property 'nonsense'\n"),
        ("-o volsize=1G", "cannot receive: cannot receive: invalid property 'volsize'\n"),
        ("-x used", "cannot receive: cannot receive: invalid property 'used'\n"),
        ("-o atime=7", "cannot receive new filesystem stream: 'atime' must be one of 'on | off'\n"),
    ] {
        assert_eq!(refused(&format!("receive {args} tank/new"), &begin), text);
    }
    let volume = Begin { objset_type: 3, ..begin };
    let text =
        "cannot receive new filesystem stream: property 'atime' does not apply to datasets of this type\n";
    assert_eq!(refused("receive -o atime=off tank/new", &volume), text);
}
