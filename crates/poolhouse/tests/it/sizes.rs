//! Sizes of what this implementation writes, compared with OpenZFS's for the same contents.

use poolhouse::dsl::ops::create::Create;
use poolhouse::dsl::prop::parse::{Context, setting};
use poolhouse::dsl::{Kind as DatasetKind, Prop, PropList, Value};
use poolhouse::ondisk::feature::{FEATURES, Feature};
use poolhouse::ondisk::{Ashift, ObjNum};
use poolhouse::spa::Host;
use poolhouse::spa::create::{Beginning, NewLeaf, NewPool, NewVdev, Setting, VdevShape, claim_file, create};
use poolhouse::spa::import::Resources;
use poolhouse::zpl::{FileType, Kind, NewFile, NewFileSystem, Policies, Policy};
use poolhouse::{Claim, Dataset, OpenOptions, Pool};
use std::path::Path;
use std::sync::Arc;

/// A pool like the fixture on one disk: sectors of 512 bytes, lz4.
fn new_pool(image: &Path) -> Pool {
    std::fs::File::create(image).unwrap().set_len(512 << 20).unwrap();
    let leaves = vec![NewLeaf { path: image.to_owned() }];
    let vdevs = vec![NewVdev { shape: VdevShape::Single, bias: None, leaves }];
    let new = NewPool { name: "tank".into(), vdevs, ashift: Some(Ashift(9)), force: false };
    let features: Vec<&'static Feature> = FEATURES.iter().filter(|f| f.can_write()).collect();
    let contents = NewFileSystem::new((1_700_000_000, 0));
    let begin = Beginning {
        features: &features,
        contents: &contents,
        props: &props(&[("compression", "lz4")]),
        crypt: None,
        temporary_name: None,
        version: 5000,
    };
    let Resources { workers, world } = Resources::of_system("tank");
    let (host, cache) = (Host { hostid: 1, hostname: "here".into() }, (64u64 << 20).into());
    let setting = Setting { host: &host, world, claimer: &claim_file, workers, cache, altroot: None };
    Pool::with_spa(create(&new, &begin, &setting).unwrap(), None).unwrap()
}

/// The fixture, which other tests may read at the same time.
fn theirs() -> Pool {
    let fixture = testkit::find("single-lz4").expect("this fixture is bundled");
    let options = OpenOptions { claim: Claim::Share, ..OpenOptions::default() };
    Pool::open(fixture.images(), &options).unwrap()
}

fn props(all: &[(&str, &str)]) -> PropList {
    let context = Context { kind: DatasetKind::Filesystem, creating: true, max_block: 1 << 24 };
    all.iter().map(|(name, value)| setting(name, value, context).unwrap()).collect()
}

fn make(pool: &Pool, name: &str, set: &[(&str, &str)]) {
    let contents = Arc::new(NewFileSystem::new((1_700_000_000, 0)));
    let (name, props) = (name.to_owned(), props(set));
    let task = Box::new(Create { name, contents, props, crypt: None, enforce_limits: false });
    pool.spa().writer().unwrap().run(task).unwrap();
}

fn number(dataset: &Dataset, prop: Prop) -> u64 {
    match dataset.dsl().property(prop).unwrap().unwrap().value {
        Value::Number(n) => n,
        other => panic!("{prop:?} is {other:?}"),
    }
}

/// The objects of a file system's plain files, in order.
///
/// Files with several names or with extended attributes are left out, since these take blocks too.
fn files(dataset: &Dataset) -> Vec<ObjNum> {
    let fs = dataset.filesystem().unwrap();
    let nodes = fs.objset().objects(ObjNum(fs.root().0)).map(|dn| fs.node(dn.unwrap().object()));
    // Other objects are no files.
    let plain = nodes.flatten().filter(|n| {
        n.attr().kind == FileType::Regular && n.attr().nlink == 1 && n.xattrs().unwrap().is_empty()
    });
    plain.map(|n| n.object()).collect()
}

/// A dataset, its properties, and the percentage by which sizes may differ.
type Case = (&'static str, &'static [(&'static str, &'static str)], u64);

/// Goal: files that are written anew take the space that they took in OpenZFS's pool. Where the
/// compressed form is unique, sizes agree to the byte, elsewhere nearly.
#[test]
fn files_take_what_they_took() {
    let dir = tempfile::tempdir().unwrap();
    let theirs = theirs();
    let ours = new_pool(&dir.path().join("d0.img"));
    let cases: [Case; 10] = [
        ("comp-off", &[("compression", "off")], 0),
        ("comp-zle", &[("compression", "zle")], 0),
        ("comp-lzjb", &[("compression", "lzjb")], 0),
        ("comp-lz4", &[], 5),
        ("comp-gzip-9", &[("compression", "gzip-9")], 5),
        ("comp-zstd", &[("compression", "zstd")], 5),
        ("ck-sha512", &[("checksum", "sha512")], 5),
        ("copies-3", &[("copies", "3")], 5),
        ("rs-4K", &[("recordsize", "4K")], 5),
        ("rs-1M", &[("recordsize", "1M")], 5),
    ];
    for (name, set, percent) in cases {
        let from = theirs.dataset(&format!("single-lz4/{name}")).unwrap();
        let to = format!("tank/{name}");
        make(&ours, &to, set);
        let dataset = ours.dataset(&to).unwrap();
        let recordsize = u32::try_from(number(&from, Prop::Recordsize)).unwrap();
        let policy = Policy { recordsize, ..Policy::default() };
        let fs = ours.open_for_writing(dataset.dsl(), Policies::new(policy)).unwrap();
        let source = from.filesystem().unwrap();
        let mut pairs = Vec::new();
        for object in files(&from) {
            let node = source.node(object).unwrap();
            let file = format!("f{}", object.0);
            let made =
                fs.create(fs.root(), file.as_bytes(), &NewFile::new(Kind::Regular, 0o644)).unwrap().object;
            let size = node.attr().size;
            let mut at = 0;
            while let Ok(data) = node.seek_data(at) {
                let end = node.seek_hole(data).unwrap_or(size);
                let mut buf = vec![0; (end - data) as usize];
                node.read(data, &mut buf).unwrap();
                fs.write(made, data, &buf, false).unwrap();
                at = end;
            }
            fs.extend(made, size).unwrap();
            pairs.push((object, made));
        }
        fs.sync().unwrap();
        assert!(pairs.len() > 50, "{name}: {} files", pairs.len());
        let (mut total, mut wanted, mut wrong) = (0, 0, Vec::new());
        for (object, made) in pairs {
            let (want, got) = (source.node(object).unwrap(), fs.node(made).unwrap());
            let (w, g) = (want.attr(), got.attr());
            if w.size <= u64::from(recordsize) {
                // A larger file may have grown to its block size in steps.
                total += g.blocks;
                wanted += w.blocks;
            }
            let same = g.size == w.size && g.block_size == w.block_size;
            if percent == 0 && (!same || g.blocks != w.blocks) {
                wrong.push(format!(
                    "{object}: {} {} {}, was {} {} {}",
                    g.size, g.block_size, g.blocks, w.size, w.block_size, w.blocks
                ));
            }
        }
        assert!(wrong.is_empty(), "{name}: {wrong:#?}");
        assert!(total.abs_diff(wanted) * 100 <= wanted * percent, "{name}: {total} sectors, were {wanted}");
    }
}

/// Goal: an empty file system has the sizes of an empty one of OpenZFS, logical and physical.
#[test]
fn an_empty_file_system() {
    let dir = tempfile::tempdir().unwrap();
    let theirs = theirs();
    let ours = new_pool(&dir.path().join("d0.img"));
    make(&ours, "tank/empty", &[]);
    let (theirs, ours) =
        (theirs.dataset("single-lz4/props/none").unwrap(), ours.dataset("tank/empty").unwrap());
    for prop in [Prop::Referenced, Prop::Logicalreferenced, Prop::Used, Prop::Logicalused, Prop::Written] {
        assert_eq!(number(&ours, prop), number(&theirs, prop), "{prop:?}");
    }
}
