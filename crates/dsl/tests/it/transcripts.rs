//! Datasets of pools that OpenZFS wrote, compared with the output of its own `zfs`.

use crate::common;

use crate::common::open;
use dsl::keys::{KeyError, KeyFormat, KeyStatus, Malformed};
use dsl::prop::text::{LITERAL, NICE};
use dsl::{Dataset, Dsl, Kind, ListOptions, Options, Prop, Property, Source};
use pool::space::PoolSpace;
use std::collections::BTreeMap;

/// Pools that their labels alone describe, and whose listings show (nearly) the state in the
/// images.
const POOLS: &[&str] = &[
    "single-lz4",
    "gang",
    "dedup-fast",
    "dedup-legacy",
    "block-clone",
    "zvols",
    "longname",
    "encrypted",
    "v28",
    "v1",
    "v5000-nofeat",
    "checkpoint",
    "send-src",
    "send-partial",
    "mirror2",
    "raidz1-3",
    "raidz2-5",
    "raidz3-7",
    "raidz-expanded",
    "draid1",
    "stripe-classes",
    "multi-vdev",
];

fn pools() -> impl Iterator<Item = (&'static str, testkit::Fixture, Dsl)> {
    POOLS.iter().filter_map(|name| {
        let f = testkit::find(name)?;
        let dsl = open_dsl(&f);
        Some((*name, f, dsl))
    })
}

fn open_dsl(f: &testkit::Fixture) -> Dsl {
    let o = open(f.images());
    let vdevs = o.vdevs();
    let ddts = o.mos.ddts(&common::Opened::dsize(&vdevs)).unwrap();
    let space = PoolSpace::of(&o.mos, &vdevs, &ddts).unwrap();
    let options = Options { pool_name: f.pool().to_owned(), space, altroot: None };
    let dsl = Dsl::open(o.mos, options).unwrap();
    o.cache.zio().set_keys(dsl.keys().clone());
    dsl
}

/// The key material of an encryption root of a fixture.
fn material(f: &testkit::Fixture, root: &dsl::Dir) -> Vec<u8> {
    match root.key_format().unwrap().unwrap() {
        KeyFormat::Passphrase => b"correct horse".to_vec(),
        KeyFormat::Raw => f.file("raw.key"),
        KeyFormat::Hex => f.file("hex.key").trim_ascii().to_vec(),
    }
}

/// Loads the keys that were loaded for the listings, which are all but one.
fn load_keys(f: &testkit::Fixture, dsl: &Dsl) {
    for d in everything(dsl).iter().filter(|d| !d.is_snapshot()) {
        let root = d.dir().encryption_root().unwrap();
        // This dataset was received raw, and its key was not loaded.
        if d.name() == "send-partial/rawenc" {
            continue;
        }
        if root.is_some_and(|r| r.object() == d.dir().object()) {
            dsl.keys().load(d.dir(), &material(f, d.dir()), false).unwrap();
        }
    }
}

fn everything(dsl: &Dsl) -> Vec<Dataset> {
    dsl.list_sorted(None, &ListOptions { snapshots: true, ..ListOptions::default() })
        .unwrap()
        .whole()
        .unwrap()
}

/// True for properties that only a running system knows.
fn is_of_the_moment(property: &str, source: &str) -> bool {
    property == "mounted" || source == "temporary"
}

/// The listings are some txgs older than the images.
///
/// In between, the pool's own objects grew or shrank a little. That changes the used space of the
/// root, and by as much the available space of all other datasets.
struct Drift<'a> {
    root: &'a str,
    bytes: i64,
    /// Frees that old pools defer add to the difference.
    slack: u64,
}

impl Drift<'_> {
    fn explains(&self, dataset: &str, property: &str, want: &str, got: &str) -> bool {
        let (Ok(w), Ok(g)) = (want.parse::<i64>(), got.parse::<i64>()) else {
            return dataset == self.root && property == "compressratio";
        };
        match property {
            "available" => (g + self.bytes).abs_diff(w) <= self.slack,
            "used" | "usedbychildren" => dataset == self.root && g - self.bytes == w,
            "logicalused" => dataset == self.root && g.abs_diff(w) < 1 << 20,
            _ => false,
        }
    }
}

/// The properties in the output of `zfs get`, by dataset: name, value and source.
fn listed(text: &str) -> BTreeMap<&str, Vec<(&str, &str, &str)>> {
    let mut all: BTreeMap<&str, Vec<_>> = BTreeMap::new();
    for line in text.lines() {
        let w: Vec<&str> = line.split('\t').collect();
        if let [dataset, property, value, source] = w[..]
            && !is_of_the_moment(property, source)
        {
            all.entry(dataset).or_default().push((property, value, source));
        }
    }
    all
}

/// The properties of all datasets, snapshots and bookmarks, by full name.
fn properties(dsl: &Dsl) -> BTreeMap<String, Vec<Property>> {
    let mut all = BTreeMap::new();
    for d in everything(dsl) {
        if !d.is_snapshot() {
            for b in d.bookmarks().unwrap() {
                all.insert(format!("{}#{}", d.name(), b.name), b.properties(dsl, &d.name()).unwrap());
            }
        }
        all.insert(d.name(), d.properties().unwrap());
    }
    all
}

/// Goal: every property of every dataset, snapshot and bookmark has the name, value, source and
/// order of `zfs get -p all`.
#[test]
fn zfs_get_all() {
    let mut compared = 0;
    let mut wrong = Vec::new();
    for (name, f, dsl) in pools() {
        let text = f.output("zfs-get.txt").unwrap();
        let want = listed(&text);
        load_keys(&f, &dsl);
        let got = properties(&dsl);
        let names: Vec<&str> = want.keys().copied().collect();
        assert_eq!(got.keys().map(String::as_str).collect::<Vec<_>>(), names, "{name}");
        let number = |of: &str| of.parse::<i64>().unwrap();
        let root_used = got[f.pool()].iter().find(|p| p.name == "used").unwrap().text(&LITERAL);
        let said = want[f.pool()].iter().find(|w| w.0 == "used").unwrap().1;
        let space = dsl.space();
        let drift = Drift {
            root: f.pool(),
            bytes: number(&root_used) - number(said),
            slack: space.deferred
                + if space.checkpoint > 0 || name.starts_with("zil-") { 1 << 20 } else { 0 },
        };
        assert!(drift.bytes.abs() < 1 << 20, "{name}: the image is no longer the pool that was listed");
        for (dataset, want) in want {
            let got: Vec<(String, String, String)> = got[dataset]
                .iter()
                .map(|p| (p.name.clone(), p.text(&LITERAL), p.source.to_string()))
                .filter(|(p, _, _)| !is_of_the_moment(p, ""))
                .collect();
            let got: Vec<_> = got.iter().map(|(p, v, s)| (p.as_str(), v.as_str(), s.as_str())).collect();
            compared += want.len();
            for w in want.iter().filter(|w| !got.contains(w)) {
                let instead = got.iter().find(|g| g.0 == w.0);
                if instead.is_some_and(|g| g.2 == w.2 && drift.explains(dataset, w.0, w.1, g.1)) {
                    continue;
                }
                // Pools without extensible datasets keep this in memory only.
                if w.0 == "snapshots_changed" && name.starts_with('v') {
                    continue;
                }
                wrong.push(format!(
                    "{dataset}: {w:?}, got {instead:?}, the root's use moved by {}",
                    drift.bytes
                ));
            }
            for g in got.iter().filter(|g| !want.iter().any(|w| w.0 == g.0)) {
                wrong.push(format!("{dataset}: not there: {g:?}"));
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "{} of {compared} differ:\n{}",
        wrong.len(),
        wrong[..wrong.len().min(80)].join("\n")
    );
    assert!(compared > 1000, "only {compared} properties compared");
}

/// Goal: the columns of `zfs list -o space`, with units, are the same for all datasets but the
/// root. Available space may differ by the root's drift.
#[test]
fn zfs_list_space() {
    let mut compared = 0;
    for (_, f, dsl) in pools() {
        let text = f.output("zfs-list-space.txt").unwrap();
        let mut lines = text.lines();
        let columns: Vec<&str> = lines.next().unwrap().split_whitespace().collect();
        let by_name: BTreeMap<String, Dataset> =
            everything(&dsl).into_iter().map(|d| (d.name(), d)).collect();
        for line in lines {
            let w: Vec<&str> = line.split_whitespace().collect();
            let bookmark = w[0].split_once('#').map(|(d, b)| by_name[d].bookmark(b).unwrap().unwrap());
            let d = &by_name[w[0].split('#').next().unwrap()];
            for (column, want) in columns.iter().zip(&w).skip(1) {
                if *column == "AVAIL" || w[0] == f.pool() {
                    continue;
                }
                let prop = Prop::by_name(&column.to_lowercase()).unwrap();
                let got = match &bookmark {
                    Some(b) => b.property(&dsl, &d.name(), prop).unwrap(),
                    None => d.property(prop).unwrap(),
                };
                let got = got.map_or("-".to_owned(), |p| p.text(&NICE));
                assert_eq!(got, *want, "{} {column}", w[0]);
                compared += 1;
            }
        }
    }
    assert!(compared > 100, "only {compared} figures");
}

/// Goal: snapshots, clones and holds have the right names, kinds, object numbers and order.
#[test]
fn tree_of_names() {
    let f = testkit::load("single-lz4");
    let dsl = open_dsl(&f);
    let snaps: Vec<String> =
        dsl.dataset("single-lz4/snaps").unwrap().snapshots().unwrap().iter().map(Dataset::name).collect();
    assert_eq!(snaps, ["single-lz4/snaps@one", "single-lz4/snaps@two", "single-lz4/snaps@three"]);
    let head = dsl.dataset("single-lz4/snaps").unwrap();
    assert_eq!(head.snapshot_count().unwrap(), 3);
    let (mut names, mut from) = (Vec::new(), 0);
    while let [entry] = head.snapshot_page(from, 1).unwrap().as_slice() {
        names.push((String::from_utf8(entry.name.clone()).unwrap(), entry.object));
        from = entry.next;
    }
    assert_eq!(names, head.snapshot_objects().unwrap());
    let clone = dsl.dataset("single-lz4/clone").unwrap();
    let origin = clone.origin().unwrap().unwrap();
    assert!(origin.clones().unwrap().iter().any(|c| c.name() == "single-lz4/clone"));
    assert!(clone.is_after(&origin).unwrap() && !origin.is_after(&origin).unwrap());
    for d in everything(&dsl) {
        assert_eq!(dsl.by_object(d.object()).unwrap().name(), d.name());
        assert_eq!(dsl.dataset(&d.name()).unwrap().object(), d.object());
    }
    for wrong in ["single-lz4/nothing", "single-lz4@nothing", "other", "single-lz4/snaps/one", "single-lz4#x"]
    {
        assert!(matches!(dsl.dataset(wrong), Err(dsl::Error::NoSuchDataset { .. })), "{wrong}");
    }
    for wrong in ["", "/a", "a/", "a//b", "a@b@c", "a/b@", "a@b/c", "a/../b", "a/b?"] {
        assert!(matches!(dsl.dataset(wrong), Err(dsl::Error::BadName { .. })), "{wrong}");
    }
    let mut holds: Vec<(String, String)> = Vec::new();
    for d in everything(&dsl).iter().filter(|d| d.is_snapshot()) {
        holds.extend(d.holds().unwrap().into_iter().map(|h| (d.name(), h.tag)));
    }
    let text = f.output("zfs-holds.txt").unwrap();
    let mut want: Vec<(String, String)> = text
        .lines()
        .map(|l| l.split('\t').collect::<Vec<_>>())
        .map(|w| (w[0].to_owned(), w[1].to_owned()))
        .collect();
    holds.sort();
    want.sort();
    assert_eq!(holds, want);
}

/// Goal: the space written since a snapshot is what `zfs get written` showed when it was the last
/// one.
#[test]
fn written_since() {
    let f = testkit::load("single-lz4");
    let dsl = open_dsl(&f);
    for d in everything(&dsl) {
        let Some(written) = d.written().unwrap() else { continue };
        let object = d.phys().prev_snap_obj;
        let prev = dsl.by_object(ondisk::ObjNum(object)).unwrap();
        assert_eq!(d.written_since_snapshot(&prev).unwrap(), Some(written), "{}", d.name());
    }
    let one = dsl.dataset("single-lz4/snaps@one").unwrap();
    let head = dsl.dataset("single-lz4/snaps").unwrap();
    let since_one = head.written_since_snapshot(&one).unwrap().unwrap();
    assert!(since_one >= head.written().unwrap().unwrap());
    let other = dsl.dataset("single-lz4/nest").unwrap();
    assert_eq!(other.written_since_snapshot(&one).unwrap(), None);
}

/// Goal: a listing with one thread and with many is the same. It obeys the requested depth, and
/// hides hidden datasets unless requested.
#[test]
fn one_pass_lists_all() {
    let dsl = open_dsl(&testkit::load("single-lz4"));
    let names = |o: &ListOptions| -> Vec<String> {
        dsl.list_sorted(None, o).unwrap().whole().unwrap().iter().map(Dataset::name).collect()
    };
    let all = ListOptions { snapshots: true, ..ListOptions::default() };
    assert_eq!(names(&ListOptions { threads: 1, ..all }), names(&ListOptions { threads: 16, ..all }));
    let depth = |n| names(&ListOptions { depth: Some(n), ..ListOptions::default() });
    assert_eq!(depth(0), ["single-lz4"]);
    assert!(depth(1).iter().all(|n| n.matches('/').count() <= 1) && depth(1).len() > 10);
    assert!(names(&ListOptions { hidden: true, ..all }).iter().any(|n| n == "single-lz4/$ORIGIN"));
}

/// Goal: what a listing leaves out is missing with all below it, and only below the named
/// directory.
#[test]
fn listings_leave_out() {
    let dsl = open_dsl(&testkit::load("single-lz4"));
    let names = |of: &[String]| -> Vec<String> {
        let without = Some(dsl::Without { of, child: |name| name == "one" || name == "nest" });
        let options = ListOptions { snapshots: true, without, ..ListOptions::default() };
        dsl.list_sorted(None, &options).unwrap().whole().unwrap().iter().map(Dataset::name).collect()
    };
    let all = names(&[]);
    let (root, nest) = ("single-lz4".to_owned(), "single-lz4/nest".to_owned());
    let has = |names: &[String], start: &str| names.iter().any(|name| name.starts_with(start));
    let without_one = names(std::slice::from_ref(&nest));
    assert!(has(&all, "single-lz4/nest/one") && !has(&without_one, "single-lz4/nest/one"));
    assert!(without_one.contains(&nest));
    let without_nest = names(&[root]);
    let expected: Vec<_> = all.iter().filter(|name| !name.starts_with(&nest)).cloned().collect();
    assert_eq!(without_nest, expected);
}

/// Goal: the sources local, inherited, default and none are distinct, and so are file systems and
/// volumes.
#[test]
fn sources_and_kinds() {
    let dsl = open_dsl(&testkit::load("single-lz4"));
    let p = |d: &str, p| dsl.dataset(d).unwrap().property(p).unwrap().unwrap();
    assert_eq!(p("single-lz4", Prop::Compression).source, Source::Local);
    assert_eq!(
        p("single-lz4/nest/one", Prop::Compression).source,
        Source::Inherited("single-lz4".to_owned())
    );
    assert_eq!(p("single-lz4", Prop::Checksum).source, Source::Default);
    assert_eq!(p("single-lz4", Prop::Used).source, Source::None);
    assert_eq!(dsl.dataset("single-lz4").unwrap().kind().unwrap(), Some(Kind::Filesystem));
}

/// Goal: keys have the right status for each dataset, and wrong and malformed keys are refused.
/// Roots load and unload keys, and loaded keys open the data.
#[test]
fn keys_load_and_unload() {
    let Some(f) = testkit::find("encrypted") else { return };
    let dsl = open_dsl(&f);
    let dir = |name: &str| dsl.dir(name).unwrap();
    let (pass, hex, raw) = (dir("encrypted/pass"), dir("encrypted/hex"), dir("encrypted/raw"));
    let keys = dsl.keys();
    assert_eq!(keys.status(&dir("encrypted")).unwrap(), KeyStatus::None);
    assert_eq!(keys.status(&pass).unwrap(), KeyStatus::Unavailable);
    assert!(matches!(keys.load(&pass, b"wrong horse", false), Err(KeyError::Wrong { .. })));
    let malformed = |r| match r {
        Err(KeyError::Malformed(m)) => m,
        other => panic!("{other:?}"),
    };
    assert_eq!(malformed(keys.load(&pass, b"short", false)), Malformed::PassphraseShort);
    assert_eq!(malformed(keys.load(&pass, &[b'a'; 513], false)), Malformed::PassphraseLong);
    assert_eq!(malformed(keys.load(&raw, &[0; 31], false)), Malformed::RawShort);
    assert_eq!(malformed(keys.load(&raw, &[0; 33], false)), Malformed::RawLong);
    assert_eq!(malformed(keys.load(&hex, &[b'0'; 63], false)), Malformed::HexShort);
    assert_eq!(malformed(keys.load(&hex, &[b'x'; 64], false)), Malformed::HexDigit);
    assert!(matches!(
        keys.load(&dir("encrypted/pass/child"), b"correct horse", false),
        Err(KeyError::NotRoot { .. })
    ));
    assert!(matches!(keys.load(&dir("encrypted"), b"correct horse", false), Err(KeyError::NotEncrypted)));
    assert!(matches!(keys.unload(&pass), Err(KeyError::NotLoaded { .. })));

    let child = dsl.dataset("encrypted/pass/child").unwrap();
    let os = child.objset().unwrap().unwrap();
    // The root directory of the file system is encrypted.
    let root_dir = ondisk::ObjNum(34);
    let read = || os.dnode(root_dir).map(|d| d.bonus().to_vec());
    assert!(read().is_err(), "an encrypted bonus cannot be read without its key");
    keys.load(&pass, b"correct horse", true).unwrap();
    assert_eq!(keys.status(&pass).unwrap(), KeyStatus::Unavailable, "trying a key does not load it");
    keys.load(&pass, b"correct horse", false).unwrap();
    assert!(matches!(keys.load(&pass, b"correct horse", false), Err(KeyError::Loaded { .. })));
    assert_eq!(keys.status(child.dir()).unwrap(), KeyStatus::Available);
    read().unwrap();
    keys.unload(&pass).unwrap();
    assert_eq!(keys.status(child.dir()).unwrap(), KeyStatus::Unavailable);
    load_keys(&f, &dsl);
    for d in everything(&dsl) {
        let os = d.objset().unwrap().unwrap();
        for dn in os.objects(ondisk::ObjNum(1)) {
            dn.unwrap_or_else(|e| panic!("{}: {e}", d.name()));
        }
    }
}

/// Goal: a dataset without a loaded key does not get blocks from the cache that another dataset's
/// key decrypted, though its pointers lead there.
///
/// Loading a key discards what was read without it.
#[test]
fn cached_secrets_stay_with_their_dataset() {
    let dsl = open_dsl(&testkit::load("encrypted"));
    let (pass, raw) = (dsl.dir("encrypted/pass").unwrap(), dsl.dir("encrypted/raw").unwrap());
    let cache = dsl.mos().objset().cache().clone();
    let locked = raw.head().unwrap().unwrap();
    locked.objset().unwrap().unwrap();
    assert!(cache.stats().size > 0);
    dsl.keys().load(&pass, b"correct horse", false).unwrap();
    assert_eq!(cache.stats().size, 0);

    let open = pass.head().unwrap().unwrap();
    let os = open.objset().unwrap().unwrap();
    let (object, level, blkid) = (ondisk::ObjNum(0), ondisk::Level(0), ondisk::BlkId(0));
    let bp = os.meta_dnode().bp(level, blkid).unwrap();
    assert!(bp.is_encrypted());
    let read = |of: &Dataset| {
        cache.read(
            &bp,
            &zio::Bookmark { objset: of.object().0, object, level, blkid },
            &zio::ReadOptions::demand(),
        )
    };
    read(&open).unwrap();
    let hits = cache.stats().hits;
    read(&open).unwrap();
    assert_eq!(cache.stats().hits, hits + 1, "its own dataset finds it");
    assert!(matches!(read(&locked), Err(zio::Error::Key { .. })));
}

/// Goal: the resume token of a partly received dataset is, to the last digit, the one that OpenZFS
/// printed.
#[test]
fn resume_token() {
    let Some(f) = testkit::find("send-partial") else { return };
    let text = f.output("zfs-get.txt").unwrap();
    let want = text.lines().find(|l| l.contains("\treceive_resume_token\t")).unwrap();
    let w: Vec<&str> = want.split('\t').collect();
    let dsl = open_dsl(&f);
    assert_eq!(dsl.dataset(w[0]).unwrap().resume_token().unwrap().as_deref(), Some(w[2]));
}
