//! Streams that the library receives: OpenZFS's own, and those of this library.
//!
//! A received snapshot is sent again, and its stream must be the one that came. At the end `zdb` of
//! OpenZFS checks the pool, where it is installed.

use crate::common::{self, words};
use crate::send::{compare, records};
use codec::crypt::{CryptoSuite, WrappingKey};
use poolhouse::dsl::keys::KeyFormat;
use poolhouse::dsl::ops::bookmark::CreateBookmarks;
use poolhouse::dsl::ops::create::Create;
use poolhouse::dsl::ops::key::{NewCrypt, NewKey};
use poolhouse::ondisk::ObjNum;
use poolhouse::ondisk::nvlist::{Nvlist, Value};
use poolhouse::ondisk::replay::{Object, RECORD_SIZE, Record, features};
use poolhouse::stream::rewrite::{Change, rewrite};
use poolhouse::stream::{Forms, Options, Origin, Packet, ReceiveError, ReceiveOptions, Resume};
use poolhouse::zpl::NewFileSystem;
use poolhouse::{Error, OpenOptions, Pool};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use testkit::{Manifest, find};

const PLAIN: Forms = Forms { large_blocks: false, embedded: false, compressed: false, raw: false };

fn create(dir: &Path, name: &str) -> Pool {
    let image = dir.join(name);
    std::fs::File::create(&image).unwrap().set_len(512 << 20).unwrap();
    Pool::create(name, &[&[&image]]).unwrap()
}

fn into(name: &str) -> ReceiveOptions {
    ReceiveOptions { name: name.to_owned(), ..ReceiveOptions::default() }
}

fn receive(pool: &Pool, stream: &[u8], options: &ReceiveOptions) {
    let bytes = pool.receive(stream, options).unwrap_or_else(|e| panic!("{}: {}", options.name, words(&e)));
    assert_eq!(bytes, stream.len() as u64, "{}", options.name);
}

/// The stream of a snapshot.
fn send(pool: &Pool, name: &str, from: Option<&str>, forms: Forms) -> Vec<u8> {
    let to = pool.dataset(name).unwrap();
    let origin = from.map(|from| {
        let from = pool.dataset(from).unwrap();
        Origin::of_snapshot(to.dsl(), from.dsl()).unwrap()
    });
    let mut stream = Vec::new();
    to.send(&Options { origin, forms, ..Options::default() }, &mut stream)
        .unwrap_or_else(|e| panic!("{}", words(&e)));
    stream
}

/// The records after BEGIN, which has the name of the sender's snapshot. Without the checksums of
/// blocks in their pool, where they may be compressed in another way.
fn after_begin(name: &str, stream: &[u8]) -> Vec<(Record, Vec<u8>)> {
    let mut all = records(name, stream).split_off(1);
    for (record, _) in &mut all {
        if let Record::Write(write) = record {
            (write.key_checksum, write.key_prop, write.checksum_type) = Default::default();
        }
    }
    all
}

/// Checks that a received snapshot has the files that the kernel module showed of the sent one.
fn check_files(pool: &Pool, name: &str, manifest: &Manifest) {
    let fs = pool.dataset(name).unwrap().filesystem().unwrap();
    let (paths, wrong) = common::compare(&fs, manifest, &BTreeSet::new(), true);
    // Its blocks may be compressed in another way.
    let wrong: Vec<_> = wrong.into_iter().filter(|(_, what)| !what.starts_with("blocks is")).collect();
    assert!(paths > 10 && wrong.is_empty(), "{name}: {paths} paths, {wrong:?}");
}

/// Goal: the kernel module's streams, whole and incremental, become snapshots that have the same
/// streams.
#[test]
fn streams_of_openzfs() {
    let Some(fixture) = find("send-src") else { return };
    let dir = tempfile::tempdir().unwrap();
    let pool = create(dir.path(), "r");
    let lec = Forms { large_blocks: true, embedded: true, compressed: true, raw: false };
    let le = Forms { compressed: false, ..lec };
    // Streams without large blocks are cut from larger blocks, so that they can't come back.
    for (stream, to, from, forms) in [
        ("full-a", "fs@a", None, None),
        ("incr-a-b", "fs@b", Some("fs@a"), None),
        ("compressed-c", "compressed/fs@c", None, None),
        ("large-embed-a", "large/fs@a", None, Some(le)),
        ("plain-of-enc", "enc@e2", None, None),
        ("vol-full", "tree/vol@r1", None, Some(PLAIN)),
    ] {
        let bytes = fixture.stream(&format!("{stream}.zsend")).unwrap();
        let name = format!("r/{to}");
        let above = name.rsplit_once('/').unwrap().0;
        if pool.dataset(above).is_err() {
            pool.create_filesystem(above).unwrap();
        }
        receive(&pool, &bytes, &into(&name));
        let sent = to.trim_start_matches("compressed/").trim_start_matches("large/");
        if let Some(manifest) = fixture.manifest(&format!("send-src/{sent}")) {
            check_files(&pool, &name, &manifest);
        }
        if let Some(forms) = forms {
            let have = send(&pool, &name, from, forms);
            compare(&name, &after_begin(&name, &have), &after_begin(stream, &bytes));
        }
    }
    pool.export().unwrap();
    testpools::judge(dir.path(), "r");
}

/// Goal: streams that don't fit are refused by name, and nothing of them stays.
#[test]
fn what_does_not_fit() {
    let Some(fixture) = find("send-src") else { return };
    let dir = tempfile::tempdir().unwrap();
    let pool = create(dir.path(), "r");
    let full = fixture.stream("full-a.zsend").unwrap();
    let incremental = fixture.stream("incr-a-b.zsend").unwrap();
    let fails = |stream: &[u8], options: &ReceiveOptions| match pool.receive(stream, options) {
        Err(Error::Receive(error)) => error,
        other => panic!("{other:?}"),
    };
    let refused = |stream: &[u8], options: &ReceiveOptions| match fails(stream, options) {
        ReceiveError::Refused(poolhouse::dsl::Error::Refused { why, .. }) => why,
        other => panic!("{other:?}"),
    };
    use poolhouse::dsl::Refusal as R;
    assert!(matches!(fails(&incremental, &into("r/fs@b")), ReceiveError::Refused(_)));
    receive(&pool, &full, &into("r/fs@a"));
    assert_eq!(refused(&full, &into("r/fs@other")), R::Exists);
    assert_eq!(refused(&full, &into("r/no/fs@a")), R::NoParent);
    // A damaged stream, and one that ends.
    let cut = &incremental[..incremental.len() / 2];
    assert!(matches!(fails(cut, &into("r/fs@b")), ReceiveError::Stream(_)));
    let mut spoiled = incremental.clone();
    let middle = spoiled.len() / 2;
    spoiled[middle] ^= 1;
    assert!(matches!(fails(&spoiled, &into("r/fs@b")), ReceiveError::Stream(_)));
    assert!(pool.dataset("r/fs/%recv").is_err());
    receive(&pool, &incremental, &into("r/fs@b"));
    assert_eq!(refused(&incremental, &into("r/fs@c")), R::Modified);
    // A raw stream replaces nothing that is not encrypted.
    let raw = fixture.stream("raw-enc-e1.zsend").unwrap();
    let force = ReceiveOptions { force: true, ..into("r/fs@e1") };
    assert!(matches!(refused(&raw, &force), R::RawStream(why) if why.contains("unencrypted dataset")));
    receive(&pool, &fixture.stream("plain-of-enc.zsend").unwrap(), &into("r/plain@e2"));
    assert!(pool.dataset("r/plain/%recv").is_err());
    pool.export().unwrap();
    testpools::judge(dir.path(), "r");
}

/// What the token of an interrupted receive says.
fn token(pool: &Pool, name: &str) -> Nvlist {
    let token = pool.dataset(name).unwrap().dsl().resume_token().unwrap().unwrap();
    poolhouse::stream::token::decode(&token).unwrap()
}

/// Where a token says that the stream goes on.
fn place(token: &Nvlist) -> Resume {
    let number = |name| token.u64(name).unwrap();
    Resume { object: ObjNum(number("object")), offset: number("offset"), bytes: number("bytes") }
}

/// Receives a stream that breaks off five times. `rest` makes the rest of it for a token.
fn receive_in_pieces(
    pool: &Pool,
    stream: &[u8],
    options: &ReceiveOptions,
    rest: impl Fn(&Nvlist) -> Vec<u8>,
) {
    let head = options.name.split('@').next().unwrap();
    let mut part = stream[..stream.len() / 3].to_vec();
    for round in 0.. {
        match pool.receive(&part[..], options) {
            Ok(_) if round > 4 => return,
            Err(Error::Receive(ReceiveError::Resumable { .. })) => {}
            other => panic!("{}, round {round}: {other:?}", options.name),
        }
        part = rest(&token(pool, head));
        if round < 4 {
            part.truncate(part.len() / 2);
        }
    }
}

/// Goal: a receive that breaks off anywhere goes on where its token says, and ends as an unbroken
/// one. Where the kernel module's receive of the stream broke off, the token is the same.
#[test]
fn interrupted_and_resumed() {
    let Some(fixture) = find("send-src") else { return };
    let dir = tempfile::tempdir().unwrap();
    let pool = create(dir.path(), "r");
    let copy = fixture.copy();
    let source = Pool::open(copy.images(), &OpenOptions::default()).unwrap();
    let full = fixture.stream("full-a.zsend").unwrap();
    let options = ReceiveOptions { resumable: true, ..into("r/fs@a") };
    // The kernel module has noted this place for a stream that ended somewhere behind it.
    let bytes = 0x7c_2d40;
    let cut = ReceiveOptions { name: "r/cut@a".to_owned(), ..options.clone() };
    pool.receive(&full[..bytes + RECORD_SIZE + 100], &cut).unwrap_err();
    let resume = place(&token(&pool, "r/cut"));
    assert_eq!((resume.object, resume.offset, resume.bytes), (ObjNum(0x50), 0, bytes as u64));
    receive_in_pieces(&pool, &full, &options, |token| {
        let mut rest = Vec::new();
        let to = source.dataset("send-src/fs@a").unwrap();
        to.send(&Options { resume: Some(place(token)), ..Options::default() }, &mut rest).unwrap();
        rest
    });
    check_files(&pool, "r/fs@a", &fixture.manifest("send-src/fs@a").unwrap());
    assert_eq!(pool.dataset("r/fs").unwrap().dsl().resume_token().unwrap(), None);
    pool.export().unwrap();
    testpools::judge(dir.path(), "r");
}

/// Goal: in each form, full and incremental streams become snapshots that are sent as the first
/// ones were: block by block, also the compressed and embedded ones.
#[test]
fn each_form() {
    let Some(fixture) = find("send-src") else { return };
    let dir = tempfile::tempdir().unwrap();
    let pool = create(dir.path(), "r");
    let copy = fixture.copy();
    let source = Pool::open(copy.images(), &OpenOptions::default()).unwrap();
    source.load_key("send-src/enc", b"correct horse").unwrap();
    let large = Forms { large_blocks: true, ..PLAIN };
    for (n, forms) in [
        large,
        Forms { embedded: true, ..large },
        Forms { compressed: true, ..large },
        Forms { embedded: true, compressed: true, ..large },
    ]
    .into_iter()
    .enumerate()
    {
        let above = format!("r/form{n}");
        pool.create_filesystem(&above).unwrap();
        for (dataset, snapshots) in
            [("fs", ["a", "b", "c"].as_slice()), ("enc", &["e1", "e2"]), ("tree/vol", &["r1"])]
        {
            if dataset == "enc" && forms.embedded {
                continue;
            }
            let tail = dataset.rsplit('/').next().unwrap();
            let mut from: Option<&str> = None;
            for snapshot in snapshots {
                let at =
                    |head: &str| (format!("{head}@{snapshot}"), from.map(|from| format!("{head}@{from}")));
                let (name, before) = at(&format!("send-src/{dataset}"));
                let stream = send(&source, &name, before.as_deref(), forms);
                let (received, before) = at(&format!("{above}/{tail}"));
                receive(&pool, &stream, &into(&received));
                let have = send(&pool, &received, before.as_deref(), forms);
                // The large blocks of `enc` are all holes, which the stream cuts.
                if dataset != "enc" {
                    compare(&received, &after_begin(&received, &have), &after_begin(&name, &stream));
                }
                if let Some(manifest) = fixture.manifest(&name) {
                    check_files(&pool, &received, &manifest);
                }
                from = Some(snapshot);
            }
        }
    }
    // A clone, and the same as a full stream onto another snapshot.
    let parent = send(&source, "send-src/tree/k1@r1", None, large);
    receive(&pool, &parent, &into("r/k1@r1"));
    let clone = send(&source, "send-src/tree/k1clone@r2", Some("send-src/tree/k1@r1"), large);
    let options = ReceiveOptions { origin: Some("r/k1@r1".to_owned()), ..into("r/clone@r2") };
    receive(&pool, &clone, &options);
    let full = send(&source, "send-src/tree/k1clone@r2", None, large);
    let options = ReceiveOptions { origin: Some("r/form0/fs@c".to_owned()), ..into("r/other@r2") };
    receive(&pool, &full, &options);
    for name in ["r/clone@r2", "r/other@r2"] {
        check_files(&pool, name, &fixture.manifest("send-src/tree/k1clone@r2").unwrap());
        assert!(pool.dataset(name.split('@').next().unwrap()).unwrap().dsl().origin().unwrap().is_some());
    }
    pool.export().unwrap();
    testpools::judge(dir.path(), "r");
}

/// Goal: a dataset that receives dnodes of several slots uses the feature `large_dnode`, as its
/// sender does. So its own streams say that they have such dnodes, and are received.
#[test]
fn large_dnodes_of_a_copy() {
    let dir = tempfile::tempdir().unwrap();
    let pool = create(dir.path(), "r");
    let fs = pool.create_filesystem("r/fs").unwrap();
    pool.set("r/fs", "dnodesize", "1k").unwrap();
    fs.create_file("/file").unwrap();
    pool.snapshot("r/fs@1").unwrap();
    for [from, to] in [["r/fs@1", "r/copy@1"], ["r/copy@1", "r/again@1"]] {
        let stream = send(&pool, from, None, PLAIN);
        let all = records(from, &stream);
        let Record::Begin(begin) = &all[0].0 else { panic!("{:?}", all[0].0) };
        assert_ne!(begin.features() & features::LARGE_DNODE, 0, "{from}");
        assert!(
            all.iter().any(|(record, _)| matches!(record, Record::Object(r) if r.dn_slots == 2)),
            "{from}"
        );
        receive(&pool, &stream, &into(to));
    }
    pool.export().unwrap();
    testpools::judge(dir.path(), "r");
}

/// Goal: raw streams, whole and incremental, become encrypted snapshots without any key. With the
/// key they have the right files, and they are sent again as they came.
#[test]
fn raw() {
    let Some(fixture) = find("send-src") else { return };
    let dir = tempfile::tempdir().unwrap();
    let pool = create(dir.path(), "r");
    let raw = Forms { raw: true, ..PLAIN };
    let full = fixture.stream("raw-enc-e1.zsend").unwrap();
    let incremental = fixture.stream("raw-enc-incr.zsend").unwrap();
    // In the second dataset the key is loaded from the full stream on.
    for (name, loads) in [("r/late", false), ("r/soon", true)] {
        let at = |snapshot: &str| format!("{name}@{snapshot}");
        receive(&pool, &full, &into(&at("e1")));
        if loads {
            pool.load_key(name, b"correct horse").unwrap();
            check_files(&pool, &at("e1"), &fixture.manifest("send-src/enc@e1").unwrap());
        }
        receive(&pool, &incremental, &into(&at("e2")));
        if !loads {
            pool.load_key(name, b"correct horse").unwrap();
            check_files(&pool, &at("e1"), &fixture.manifest("send-src/enc@e1").unwrap());
        }
        check_files(&pool, &at("e2"), &fixture.manifest("send-src/enc@e2").unwrap());
        for (from, to, sent) in [(None, "e1", &full), (Some(at("e1")), "e2", &incremental)] {
            let have = send(&pool, &at(to), from.as_deref(), raw);
            compare(name, &after_begin(to, &have), &after_begin(to, sent));
        }
        // With the key the file system can be written to, and then no increment fits.
        let fs = pool.dataset(name).unwrap();
        fs.create_file("/mine").unwrap().sync().unwrap();
        let refused = pool.receive(&incremental[..], &into(&at("e3"))).unwrap_err();
        assert!(words(&refused).contains("has been modified"), "{}", words(&refused));
        pool.snapshot(&at("mine")).unwrap();
    }
    // By force, over what was changed since.
    let force = ReceiveOptions { force: true, ..into("r/soon@again") };
    receive(&pool, &incremental, &force);
    check_files(&pool, "r/soon@again", &fixture.manifest("send-src/enc@e2").unwrap());
    pool.export().unwrap();
    drop(pool);
    testpools::judge(dir.path(), "r");
    let pool = Pool::open(&[dir.path().join("r")], &OpenOptions::default()).unwrap();
    pool.load_key("r/late", b"correct horse").unwrap();
    check_files(&pool, "r/late@e2", &fixture.manifest("send-src/enc@e2").unwrap());
}

/// Goal: a raw stream that breaks off goes on where it was, whole or incremental.
#[test]
fn raw_interrupted_and_resumed() {
    let Some(fixture) = find("send-src") else { return };
    let dir = tempfile::tempdir().unwrap();
    let pool = create(dir.path(), "r");
    let copy = fixture.copy();
    let source = Pool::open(copy.images(), &OpenOptions::default()).unwrap();
    let forms = Forms { raw: true, ..PLAIN };
    for (name, stream, to) in [("r/fs@e1", "raw-enc-e1", "enc@e1"), ("r/fs@e2", "raw-enc-incr", "enc@e2")] {
        let options = ReceiveOptions { resumable: true, ..into(name) };
        let stream = fixture.stream(&format!("{stream}.zsend")).unwrap();
        receive_in_pieces(&pool, &stream, &options, |token| {
            assert!(token.has("rawok"));
            let mut rest = Vec::new();
            let sent = source.dataset(&format!("send-src/{to}")).unwrap();
            let origin = token.has("fromguid").then(|| {
                let from = source.dataset("send-src/enc@e1").unwrap();
                Origin::of_snapshot(sent.dsl(), from.dsl()).unwrap()
            });
            sent.send(
                &Options { resume: Some(place(token)), forms, origin, ..Options::default() },
                &mut rest,
            )
            .unwrap();
            rest
        });
    }
    pool.load_key("r/fs", b"correct horse").unwrap();
    for snapshot in ["e1", "e2"] {
        let manifest = fixture.manifest(&format!("send-src/enc@{snapshot}")).unwrap();
        check_files(&pool, &format!("r/fs@{snapshot}"), &manifest);
    }
    pool.export().unwrap();
    testpools::judge(dir.path(), "r");
}

/// Goal: a raw increment needs the very snapshot that the sender has, by its set of initialisation
/// vectors.
#[test]
fn raw_on_another_base() {
    let Some(fixture) = find("send-src") else { return };
    let dir = tempfile::tempdir().unwrap();
    let pool = create(dir.path(), "r");
    receive(&pool, &fixture.stream("raw-enc-e1.zsend").unwrap(), &into("r/fs@e1"));
    let incremental = fixture.stream("raw-enc-incr.zsend").unwrap();
    for (ivset, why) in [(0, "IV set guid missing"), (7, "IV set guid mismatch")] {
        let mut changed = Vec::new();
        let change = |packet: &Packet<'_>| -> Result<Change, poolhouse::stream::Error> {
            if packet.number > 0 {
                return Ok(Change::Keep);
            }
            let mut list = Nvlist::decode(packet.payload).unwrap();
            let mut keys = list.list("crypt_keydata").unwrap().clone();
            keys.set("from_ivset_guid", Value::Uint64(ivset));
            list.set("crypt_keydata", Value::List(keys));
            Ok(Change::Replace { raw: Box::new(*packet.raw), payload: Some(list.encode_native()) })
        };
        rewrite(&incremental[..], &mut changed, change).unwrap();
        let refused = pool.receive(&changed[..], &into("r/fs@e2")).unwrap_err();
        assert!(words(&refused).contains(why), "{}", words(&refused));
    }
    receive(&pool, &incremental, &into("r/fs@e2"));
    pool.export().unwrap();
    testpools::judge(dir.path(), "r");
}

/// Goal: of a large file that becomes shorter, a raw increment frees only the end. It takes several
/// transactions.
#[test]
fn raw_and_shorter() {
    const KEY: [u8; 32] = [9; 32];
    /// The bytes below an indirect block of level 1, in blocks of 512 bytes.
    const SPAN: u64 = 512 << 10;
    let dir = tempfile::tempdir().unwrap();
    let (pool, source) = (create(dir.path(), "r"), create(dir.path(), "s"));
    let key = NewKey {
        format: KeyFormat::Raw,
        location: None,
        key: Arc::new(WrappingKey::from_raw(KEY)),
        salt: 0,
        iterations: 0,
    };
    let crypt = Some(NewCrypt { suite: Some(CryptoSuite::Aes256Gcm), off: false, key: Some(key) });
    let contents = Arc::new(NewFileSystem::new((1_000_000, 0)));
    let create = Create { name: "s/enc".into(), contents, props: Vec::new(), crypt, enforce_limits: false };
    source.spa().writer().unwrap().run(Box::new(create)).unwrap();
    source.set("s/enc", "recordsize", "512").unwrap();
    let enc = source.dataset("s/enc").unwrap();
    let file = enc.create_file("/large").unwrap();
    for n in 0..300 {
        file.write_at(&testpools::noise(n, 512), n * SPAN).unwrap();
    }
    file.sync().unwrap();
    source.snapshot("s/enc@1").unwrap();
    file.set_len(290 * SPAN).unwrap();
    file.sync().unwrap();
    source.snapshot("s/enc@2").unwrap();
    let raw = Forms { raw: true, ..PLAIN };
    receive(&pool, &send(&source, "s/enc@1", None, raw), &into("r/enc@1"));
    let increment = send(&source, "s/enc@2", Some("s/enc@1"), raw);
    receive(&pool, &increment, &into("r/enc@2"));
    pool.load_key("r/enc", &KEY).unwrap();
    for (snapshot, count) in [("r/enc@1", 300), ("r/enc@2", 290)] {
        let file = pool.dataset(snapshot).unwrap().open("/large").unwrap();
        let mut block = [0; 512];
        for n in 0..count {
            assert_eq!(file.read_at(&mut block, n * SPAN).unwrap(), 512, "{snapshot}");
            assert_eq!(block[..], testpools::noise(n, 512), "{snapshot}, block {n}");
        }
    }
    let have = send(&pool, "r/enc@2", Some("r/enc@1"), raw);
    compare("shorter", &after_begin("have", &have), &after_begin("sent", &increment));
    pool.export().unwrap();
    testpools::judge(dir.path(), "r");
}

type ChangeObject<'a> = &'a dyn Fn(&mut Object);
type ChangeKeys<'a> = &'a dyn Fn(&mut Nvlist);

/// Goal: what no raw stream can have is refused, and the pool goes on.
#[test]
fn impossible_raw_streams() {
    let Some(fixture) = find("send-src") else { return };
    let dir = tempfile::tempdir().unwrap();
    let pool = create(dir.path(), "r");
    let full = fixture.stream("raw-enc-e1.zsend").unwrap();
    let spoiled = |object: ChangeObject, keys: ChangeKeys| {
        let (mut out, mut done) = (Vec::new(), false);
        let change = |packet: &Packet<'_>| -> Result<Change, poolhouse::stream::Error> {
            let replace = |record: &Record, payload| {
                let raw = Box::new(record.encode(0, packet.order));
                Ok(Change::Replace { raw, payload })
            };
            match packet.record {
                Record::Begin(_) => {
                    let mut list = Nvlist::decode(packet.payload).unwrap();
                    let mut inner = list.list("crypt_keydata").unwrap().clone();
                    keys(&mut inner);
                    list.set("crypt_keydata", Value::List(inner));
                    let payload = Some(list.encode_native());
                    Ok(Change::Replace { raw: Box::new(*packet.raw), payload })
                }
                Record::Object(mut one) if !done => {
                    object(&mut one);
                    done = true;
                    replace(&Record::Object(one), None)
                }
                _ => Ok(Change::Keep),
            }
        };
        rewrite(&full[..], &mut out, change).unwrap();
        out
    };
    let no_object = |_: &mut Object| ();
    let no_keys = |_: &mut Nvlist| ();
    let number = |name: &'static str, n: u64| move |keys: &mut Nvlist| keys.set(name, Value::Uint64(n));
    let cases: [(&str, ChangeObject, ChangeKeys); 9] = [
        ("checksum of labels", &|one| one.checksum_type = 3, &no_keys),
        ("checksum with a feature", &|one| one.checksum_type = 13, &no_keys),
        ("compressor of no stream", &|one| one.compress = 16, &no_keys),
        ("small indirect blocks", &|one| one.indirect_shift = 9, &no_keys),
        ("too many levels", &|one| one.levels = 99, &no_keys),
        ("object behind the last block", &no_object, &number("mdn_maxblkid", 0)),
        ("flat blocks of dnodes", &no_object, &number("mdn_indblkshift", 0)),
        ("key of an unknown version", &no_object, &number("DSL_CRYPTO_VERSION", 0)),
        ("unknown suite", &no_object, &number("DSL_CRYPTO_SUITE", 99)),
    ];
    for (what, object, keys) in cases {
        let refused = pool.receive(&spoiled(object, keys)[..], &into("r/fs@1"));
        assert!(refused.is_err(), "{what}");
        assert!(pool.spa().writer().unwrap().suspended().is_none(), "{what}");
        assert!(pool.dataset("r/fs").is_err(), "{what}");
    }
    receive(&pool, &spoiled(&no_object, &no_keys), &into("r/fs@1"));
    pool.export().unwrap();
    testpools::judge(dir.path(), "r");
}

/// Goal: a dataset that has changed takes an increment only by force, which undoes the change and
/// destroys later snapshots.
#[test]
fn by_force() {
    let Some(fixture) = find("send-src") else { return };
    let dir = tempfile::tempdir().unwrap();
    let pool = create(dir.path(), "r");
    let full = fixture.stream("full-a.zsend").unwrap();
    let incremental = fixture.stream("incr-a-b.zsend").unwrap();
    receive(&pool, &full, &into("r/fs@a"));
    let mark = |snapshot: &str| {
        let pairs = vec![(snapshot.replace('@', "#"), snapshot.to_owned())];
        pool.spa().writer().unwrap().run(Box::new(CreateBookmarks { pairs })).unwrap();
    };
    let marks = || {
        let all = pool.dataset("r/fs").unwrap().dsl().bookmarks().unwrap();
        all.iter().map(|mark| mark.name.clone()).collect::<Vec<_>>()
    };
    mark("r/fs@a");
    pool.dataset("r/fs").unwrap().create_file("/mine").unwrap().sync().unwrap();
    pool.snapshot("r/fs@mine").unwrap();
    mark("r/fs@mine");
    let refused = pool.receive(&incremental[..], &into("r/fs@b")).unwrap_err();
    assert!(words(&refused).contains("has been modified"), "{}", words(&refused));
    let force = |name: &str| ReceiveOptions { force: true, ..into(name) };
    receive(&pool, &incremental, &force("r/fs@b"));
    check_files(&pool, "r/fs@b", &fixture.manifest("send-src/fs@b").unwrap());
    let snapshots = pool.dataset("r/fs").unwrap().snapshots().unwrap();
    assert_eq!(snapshots.iter().map(|s| s.name()).collect::<Vec<_>>(), ["r/fs@a", "r/fs@b"]);
    // An increment from a state that is lost would lack blocks.
    assert_eq!(marks(), ["a"]);
    // A full stream replaces everything.
    let other = fixture.stream("plain-of-enc.zsend").unwrap();
    receive(&pool, &other, &force("r/fs@e2"));
    check_files(&pool, "r/fs@e2", &fixture.manifest("send-src/enc@e2").unwrap());
    assert!(pool.dataset("r/fs@a").is_err());
    assert!(marks().is_empty());
    pool.export().unwrap();
    testpools::judge(dir.path(), "r");
}

/// A stream amid which something happens.
struct Meanwhile<'a, F> {
    stream: &'a [u8],
    at: usize,
    run: Option<F>,
}

impl<F: FnOnce()> std::io::Read for Meanwhile<'_, F> {
    fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
        let left = self.stream.len();
        if left <= self.at
            && let Some(run) = self.run.take()
        {
            run();
        }
        let limit = if self.run.is_some() { left - self.at } else { left };
        let n = buf.len().min(limit);
        buf[..n].copy_from_slice(&self.stream[..n]);
        self.stream = &self.stream[n..];
        Ok(n)
    }
}

/// Goal: a bookmark that is made while an increment comes is none of the past of what came: its
/// first blocks are older than the bookmark. The dataset had not changed.
#[test]
fn bookmarks_meanwhile() {
    let Some(fixture) = find("send-src") else { return };
    let dir = tempfile::tempdir().unwrap();
    let pool = create(dir.path(), "r");
    receive(&pool, &fixture.stream("full-a.zsend").unwrap(), &into("r/fs@a"));
    let mark = |snapshot: &str| {
        let pairs = vec![(snapshot.replace('@', "#"), snapshot.to_owned())];
        pool.spa().writer().unwrap().run(Box::new(CreateBookmarks { pairs })).unwrap();
    };
    mark("r/fs@a");
    let run = || {
        pool.snapshot("r/fs@meanwhile").unwrap();
        mark("r/fs@meanwhile");
        pool.destroy("r/fs@meanwhile").unwrap();
    };
    let stream = fixture.stream("incr-a-b.zsend").unwrap();
    let amid = Meanwhile { stream: &stream, at: stream.len() / 2, run: Some(run) };
    pool.receive(amid, &ReceiveOptions { force: true, ..into("r/fs@b") }).unwrap();
    let marks = pool.dataset("r/fs").unwrap().dsl().bookmarks().unwrap();
    assert_eq!(marks.iter().map(|mark| &mark.name[..]).collect::<Vec<_>>(), ["a"]);
    check_files(&pool, "r/fs@b", &fixture.manifest("send-src/fs@b").unwrap());
    pool.export().unwrap();
    testpools::judge(dir.path(), "r");
}

/// A stream whose reader copies the pool's image when a part of it was read.
struct Snapping<'a> {
    stream: &'a [u8],
    left: usize,
    pool: &'a Pool,
    image: &'a Path,
    copy: &'a Path,
}

impl std::io::Read for Snapping<'_> {
    fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
        let n = buf.len().min(self.left).min(self.stream.len());
        if n == 0 && self.left == 0 {
            self.left = usize::MAX;
            self.pool.spa().writer().unwrap().sync_all().unwrap();
            std::fs::copy(self.image, self.copy)?;
            return self.read(buf);
        }
        buf[..n].copy_from_slice(&self.stream[..n]);
        self.stream = &self.stream[n..];
        self.left -= n;
        Ok(n)
    }
}

/// Goal: after a crash in the middle of a receive, nothing of it is left, or what can be resumed.
#[test]
fn a_crash_in_the_middle() {
    let Some(fixture) = find("send-src") else { return };
    for resumable in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let pool = create(dir.path(), "r");
        let full = fixture.stream("full-a.zsend").unwrap();
        let incremental = fixture.stream("incr-a-b.zsend").unwrap();
        let crash = tempfile::tempdir().unwrap();
        let (image, copy) = (dir.path().join("r"), crash.path().join("r"));
        let snap = |stream: &[u8], name: &str| {
            let left = stream.len() / 2;
            let source = Snapping { stream, left, pool: &pool, image: &image, copy: &copy };
            pool.receive(source, &ReceiveOptions { resumable, ..into(name) }).unwrap();
            let options = OpenOptions { write: true, force: true, ..OpenOptions::default() };
            let after = Pool::open(&[&copy], &options).unwrap();
            let hidden = format!("{}/%recv", name.split('@').next().unwrap());
            let there = [name.split('@').next().unwrap(), &hidden].map(|name| after.dataset(name).is_ok());
            let token = after.dataset("r/fs").ok().and_then(|fs| fs.dsl().resume_token().unwrap());
            assert!(after.dataset(name).is_err());
            assert_eq!(token.is_some(), resumable);
            after.export().unwrap();
            testpools::judge(crash.path(), "r");
            there
        };
        assert_eq!(snap(&full, "r/fs@a"), [resumable, false]);
        assert_eq!(snap(&incremental, "r/fs@b"), [true, resumable]);
        pool.export().unwrap();
    }
}

/// A small file system with directories, holes, a file of several blocks and one that was removed.
fn small(pool: &Pool) {
    let fs = pool.create_filesystem("s/fs").unwrap();
    fs.create_dir("/d").unwrap();
    for n in 0..8 {
        let mut file = fs.create_file(format!("/d/{n}")).unwrap();
        std::io::Write::write_all(&mut file, &testpools::noise(n, 3000 * n as usize)).unwrap();
        file.sync().unwrap();
    }
    let file = fs.create_file("/holes").unwrap();
    file.write_at(&testpools::noise(9, 300 << 10), 1 << 20).unwrap();
    file.sync().unwrap();
}

/// Goal: streams in which one field of a record is wrong, and the checksums right, are received or
/// refused. No process ends, no transaction group fails, and `zdb` finds the blocks
/// of the pool sound.
#[test]
fn malformed_records() {
    let dir = tempfile::tempdir().unwrap();
    let source = create(dir.path(), "s");
    small(&source);
    source.snapshot("s/fs@1").unwrap();
    let all = Forms { large_blocks: true, embedded: true, compressed: true, raw: false };
    receive_malformed(&send(&source, "s/fs@1", None, all), 400);
}

/// Goal: the same of raw streams, whose records say more.
#[test]
fn malformed_raw_records() {
    let Some(fixture) = find("send-src") else { return };
    receive_malformed(&fixture.stream("raw-enc-e1.zsend").unwrap(), 200);
}

/// Receives `rounds` variants of a stream.
fn receive_malformed(stream: &[u8], rounds: u64) {
    let dir = tempfile::tempdir().unwrap();
    let pool = create(dir.path(), "r");
    let (count, mut random) = (records("small", stream).len() as u64, 0x9e37_79b9_7f4a_7c15_u64);
    let mut next = |below: u64| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random % below
    };
    let mut refused = 0;
    for n in 0..rounds {
        let (record, at, bit) = (1 + next(count - 1), 8 + next(80) as usize, next(8));
        let (value, replaces) = (next(256) as u8, next(2) == 0);
        let mut spoiled = Vec::new();
        let spoil = |packet: &Packet<'_>| -> Result<Change, poolhouse::stream::Error> {
            let mut raw = Box::new(*packet.raw);
            raw[at] = if replaces { value } else { raw[at] ^ 1 << bit };
            // A length that does not fit its payload would only spoil what follows.
            let size = Record::decode(&raw, packet.order).and_then(|record| record.payload_size(0));
            let fits = packet.number == record && size.is_ok_and(|size| size == packet.payload.len());
            Ok(if fits { Change::Replace { raw, payload: None } } else { Change::Keep })
        };
        rewrite(stream, &mut spoiled, spoil).unwrap();
        let options = ReceiveOptions { resumable: n % 3 == 0, ..into(&format!("r/n{n}@1")) };
        match pool.receive(&spoiled[..], &options) {
            Ok(_) => {}
            Err(Error::Receive(ReceiveError::Pool(e))) => panic!("{n}: {}", words(&*e)),
            Err(Error::Receive(_)) => refused += 1,
            Err(e) => panic!("{n}: {}", words(&e)),
        }
        assert!(pool.spa().writer().unwrap().suspended().is_none(), "{n}");
    }
    assert!((rounds / 8..rounds / 8 * 7).contains(&refused), "{refused} of {rounds} refused");
    pool.export().unwrap();
    testpools::judge_blocks(dir.path(), "r");
}
