//! Pools that are made here, judged by OpenZFS's `zdb` where it is at hand.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::{Path, PathBuf};
use std::sync::Arc;

use dmu::zap::{Value, Zap};
use dmu::{NewObject, Objset, Tx};
use dsl::Contents;
use dsl::ops::create::Create;
use dsl::ops::destroy::{DestroyHead, DestroySnapshots};
use dsl::ops::snapshot::Snapshot;
use ondisk::config::DraidShape;
use ondisk::feature::{FEATURES, Feature};
use ondisk::{DmuType, ObjNum};
use spa::Host;
use spa::Spa;
use spa::create::{Beginning, NewLeaf, NewPool, NewVdev, Setting, VdevShape, claim_file, create};
use spa::engine::SystemWorld;
use spa::import::{Hands, OpenFailure, Options, SystemClock, import_for_writing};

struct Empty;

impl Contents for Empty {
    fn kind(&self) -> dsl::Kind {
        dsl::Kind::Filesystem
    }

    fn fill(&self, os: &Objset, tx: &Tx) -> Result<(), Arc<dyn std::error::Error + Send + Sync>> {
        let spec = NewObject::new(DmuType::MASTER_NODE);
        let fill = || -> dmu::Result<()> {
            let zap = Zap::create_claim(
                os,
                tx,
                ObjNum(1),
                &spec,
                dmu::zap::Normalization::NONE,
                ondisk::zap::ZapFlags::default(),
            )?;
            zap.add(tx, b"VERSION", &Value::integers(8, &[5]))
        };
        fill().map_err(|e| Arc::new(e) as _)
    }
}

fn images(dir: &Path, count: usize, size: u64) -> Vec<PathBuf> {
    (0..count)
        .map(|i| {
            let path = dir.join(format!("d{i}.img"));
            std::fs::File::create(&path).unwrap().set_len(size).unwrap();
            path
        })
        .collect()
}

fn host() -> Host {
    Host { hostid: 0x1234, hostname: "here".into() }
}

fn new_pool(shape: VdevShape, images: &[PathBuf]) -> Spa {
    let leaves = images.iter().map(|p| NewLeaf { path: p.clone() }).collect();
    let vdevs = vec![NewVdev { shape, bias: None, leaves }];
    let new = NewPool { name: "tank".into(), vdevs, ashift: None, force: false };
    let features: Vec<&'static Feature> = FEATURES.iter().filter(|f| f.can_write()).collect();
    let begin = Beginning {
        features: &features,
        contents: &Empty,
        props: &Vec::new(),
        crypt: None,
        temporary_name: None,
    };
    let setting = Setting {
        host: &host(),
        world: Arc::new(SystemWorld),
        claimer: &claim_file,
        workers: Arc::new(zio::Workers::new("zio", 1)),
        cache_bytes: 64 << 20,
        altroot: None,
    };
    create(&new, &begin, &setting).unwrap()
}

/// Where `zdb` is: named by `ZDB`, or on the path.
fn zdb() -> Option<PathBuf> {
    let named = std::env::var_os("ZDB").map(PathBuf::from);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|d| d.join("zdb")).find(|p| p.is_file());
    named.or(found)
}

/// Reads every block of every object of an exported pool, through its labels; how many bytes of file contents there are.
fn read_all(dir: &Path) -> u64 {
    let scan = spa::scan(&[dir]);
    let imported = spa::import::import(&scan.pools[0], &Options::default(), &host(), &SystemClock).unwrap();
    let name = imported.name().to_owned();
    let options = dsl::Options { pool_name: name, ..dsl::Options::default() };
    let books = dsl::Dsl::open(imported.mos().clone(), options).unwrap();
    let listed =
        books.list_sorted(None, &dsl::ListOptions { snapshots: true, ..Default::default() }).unwrap();
    assert!(listed.failures.is_empty());
    let heads = listed.datasets.iter().filter_map(|d| d.objset().unwrap());
    let mut contents = 0;
    for os in heads.chain([imported.mos().objset().clone()]) {
        for dn in os.objects(ObjNum(1)) {
            let dn = dn.unwrap();
            let mut next = dn.next_data_block(ondisk::BlkId(0)).unwrap();
            while let Some(blkid) = next {
                let len = dn.block(blkid).unwrap().map_or(0, |b| b.len() as u64);
                contents += if dn.kind() == DmuType::PLAIN_FILE_CONTENTS { len } else { 0 };
                next = dn.next_data_block(ondisk::BlkId(blkid.0 + 1)).unwrap();
            }
        }
    }
    contents
}

/// Reads an exported pool, and asks `zdb`, if there is one, whether it is sound: every checksum, and no block that leaks or is allocated
/// twice.
fn judge(dir: &Path, pool: &str) {
    read_all(dir);
    let Some(zdb) = zdb() else { return };
    let ask = |what: &str| {
        let out = std::process::Command::new(&zdb)
            .args(["-e", "-p"])
            .arg(dir)
            .arg(what)
            .arg(pool)
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&out.stdout).into_owned() + &String::from_utf8_lossy(&out.stderr);
        assert!(out.status.success(), "zdb {what}: {text}");
        text
    };
    let blocks = ask("-bcc");
    assert!(blocks.contains("No leaks"), "{blocks}");
    ask("-d");
}

const SHAPES: [(VdevShape, usize); 7] = [
    (VdevShape::Single, 1),
    (VdevShape::Mirror, 2),
    (VdevShape::Raidz(1), 3),
    (VdevShape::Raidz(2), 5),
    (VdevShape::Raidz(3), 5),
    (VdevShape::Draid(1, DraidShape { ndata: 2, nspares: 1, ngroups: 4 }), 5),
    (VdevShape::Draid(2, DraidShape { ndata: 2, nspares: 0, ngroups: 5 }), 5),
];

/// Goal: a new pool of each shape is sound when it is exported.
#[test]
fn new_pools() {
    for (shape, count) in SHAPES {
        let dir = tempfile::tempdir().unwrap();
        let images = images(dir.path(), count, 128 << 20);
        let spa = new_pool(shape, &images);
        let live = spa.writer().unwrap();
        live.log_command("zpool create tank", 0).unwrap();
        live.export().unwrap();
        drop(spa);
        judge(dir.path(), "tank");
    }
}

/// Goal: what is written to a file system over several groups is there after an export, and the pool is sound.
#[test]
fn written_datasets() {
    for (shape, count) in SHAPES {
        let dir = tempfile::tempdir().unwrap();
        let images = images(dir.path(), count, 128 << 20);
        let spa = new_pool(shape, &images);
        let live = spa.writer().unwrap();
        let head = live.dsl().dataset("tank").unwrap();
        let owned = live.dsl().heads().own(&head).unwrap();
        let spec = NewObject { block_size: 1 << 17, ..NewObject::new(DmuType::PLAIN_FILE_CONTENTS) };
        let object = {
            let tx = live.tx(1 << 17).unwrap();
            owned.objset().create_object(&tx, &spec).unwrap().object()
        };
        for round in 0..5u64 {
            let tx = live.tx(1 << 20).unwrap();
            let dn = owned.objset().dnode(object).unwrap();
            let bytes: Vec<u8> = (0..1u64 << 20).map(|i| (((i * i) >> 7) ^ (i * round)) as u8).collect();
            dn.write_at(&tx, round << 19, &bytes).unwrap();
            let txg = tx.txg();
            drop(tx);
            live.txgs().wait_synced(txg).unwrap();
        }
        // Whoever holds a dataset holds the devices too.
        drop((owned, head));
        live.export().unwrap();
        drop(spa);
        // Five writes of a MiB, each half a MiB further on.
        assert_eq!(read_all(dir.path()), 3 << 20);
        judge(dir.path(), "tank");
    }
}

fn hands() -> Hands {
    Hands { workers: Arc::new(zio::Workers::new("zio", 1)), world: Arc::new(SystemWorld) }
}

fn import(dir: &Path) -> Result<Spa, OpenFailure> {
    let scan = spa::scan(&[dir]);
    let options = Options { readonly: false, ..Options::default() };
    import_for_writing(&scan.pools[0], &options, None, &host(), &SystemClock, hands())
}

/// Goal: a pool that was made here can be imported, changed and exported again and again.
#[test]
fn import_and_change() {
    let dir = tempfile::tempdir().unwrap();
    let images = images(dir.path(), 3, 128 << 20);
    new_pool(VdevShape::Raidz(1), &images).writer().unwrap().export().unwrap();
    for round in 0..3 {
        let spa = import(dir.path()).unwrap();
        let live = spa.writer().unwrap();
        live.run(file_system(&format!("tank/fs{round}"))).unwrap();
        live.export().unwrap();
        drop(spa);
        judge(dir.path(), "tank");
    }
    let spa = import(dir.path()).unwrap();
    let live = spa.writer().unwrap();
    assert!(live.dsl().dataset("tank/fs2").is_ok());
}

/// Goal: pools that OpenZFS wrote, among them one with log space maps, can be changed, and are sound afterwards.
#[test]
fn change_real_pools() {
    let mut changed = 0;
    for name in ["single-lz4", "mirror2", "raidz3-7", "draid1", "longname"] {
        let Some(fixture) = testkit::find(name) else { continue };
        let copy = fixture.copy();
        let spa = import(copy.dir()).unwrap();
        let live = spa.writer().unwrap();
        let pool = live.dsl().pool_name().to_owned();
        live.run(file_system(&format!("{pool}/ours"))).unwrap();
        live.export().unwrap();
        drop(spa);
        judge(copy.dir(), &pool);
        changed += 1;
    }
    assert!(changed >= 3, "only {changed} of the fixtures are here");
}

/// Goal: pools whose state is not kept up by writing are refused by name, and not a byte of them changes.
#[test]
fn refused_for_writing() {
    let all = ["v1", "v28"];
    let mut refusals = 0;
    for name in all {
        let Some(fixture) = testkit::find(name) else { continue };
        let copy = fixture.copy();
        let read = || copy.images().iter().map(|i| std::fs::read(i).unwrap()).collect::<Vec<_>>();
        let before = read();
        let scan = spa::scan(&[copy.dir()]);
        let options = Options { readonly: false, force: true, ..Options::default() };
        let refused =
            import_for_writing(&scan.pools[0], &options, None, &host(), &SystemClock, hands()).unwrap_err();
        assert!(matches!(refused, OpenFailure::Refused(_)), "{name}: {refused:?}");
        assert!(before == read(), "{name} was changed");
        refusals += 1;
    }
    assert!(refusals >= 1, "only {refusals} of the fixtures are here");
}

fn file_system(name: &str) -> Box<Create> {
    let (name, contents) = (name.to_owned(), Arc::new(Empty));
    Box::new(Create { name, contents, props: Vec::new(), crypt: None, enforce_limits: false })
}

fn snapshots(names: &[&str]) -> Box<Snapshot> {
    let names = names.iter().map(|n| (*n).to_owned()).collect();
    Box::new(Snapshot { names, props: Vec::new(), enforce_limits: false })
}

/// Goal: after datasets are made, written, snapshotted, cloned and destroyed, their space is free again, and the pool is sound.
#[test]
fn a_life_of_datasets() {
    let dir = tempfile::tempdir().unwrap();
    let images = images(dir.path(), 2, 128 << 20);
    let spa = new_pool(VdevShape::Mirror, &images);
    let live = spa.writer().unwrap();
    live.sync_all().unwrap();
    let before = live.dsl().root().unwrap().phys().used_bytes;
    live.run(file_system("tank/a")).unwrap();
    live.run(file_system("tank/a/b")).unwrap();
    for round in 0..3u8 {
        let head = live.dsl().dataset("tank/a/b").unwrap();
        let owned = live.dsl().heads().own(&head).unwrap();
        let tx = live.tx(1 << 22).unwrap();
        let spec = NewObject { block_size: 1 << 17, ..NewObject::new(DmuType::PLAIN_FILE_CONTENTS) };
        let dn = owned.objset().create_object(&tx, &spec).unwrap();
        let mut seed = u64::from(round) + 1;
        let bytes: Vec<u8> = std::iter::repeat_with(|| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 56) as u8
        })
        .take(3 << 20)
        .collect();
        dn.write_at(&tx, 0, &bytes).unwrap();
        drop((tx, dn, owned));
        let (a, b) = (format!("tank/a@s{round}"), format!("tank/a/b@s{round}"));
        live.run(snapshots(&[&a, &b])).unwrap();
    }
    let held = live.dsl().root().unwrap().phys().used_bytes;
    assert!(held > before + (9 << 20), "{before} {held}");
    // A snapshot of which a head below is still alive, and a name that is not there, change nothing.
    assert!(live.run(snapshots(&["tank/a@s0"])).is_err());
    assert!(live.run(Box::new(DestroyHead { name: "tank/a".into() })).is_err());
    let gone: Vec<String> = (0..3).flat_map(|r| [format!("tank/a@s{r}"), format!("tank/a/b@s{r}")]).collect();
    live.run(Box::new(DestroySnapshots { names: gone, defer: false })).unwrap();
    live.run(Box::new(DestroyHead { name: "tank/a/b".into() })).unwrap();
    live.run(Box::new(DestroyHead { name: "tank/a".into() })).unwrap();
    live.sync_all().unwrap();
    let after = live.dsl().root().unwrap().phys().used_bytes;
    assert!(after < before + (1 << 20), "{before} {after}");
    live.export().unwrap();
    drop(spa);
    judge(dir.path(), "tank");
}
