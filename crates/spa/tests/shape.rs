//! Pools whose shape changes while they are written, judged by OpenZFS's `zdb` where it is at hand.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::{Path, PathBuf};
use std::sync::Arc;

use dmu::{NewObject, Objset, Tx};
use dsl::Contents;
use dsl::ops::create::Create;
use ondisk::config::AllocBias;
use ondisk::feature::{FEATURES, Feature};
use ondisk::{Ashift, DmuType};
use spa::Host;
use spa::create::{Beginning, NewLeaf, NewPool, NewVdev, Setting, VdevShape, claim_file, create};
use spa::engine::{AddTerms, Live, ShapeError, SystemWorld};
use spa::import::{Hands, Options, SystemClock, import_for_writing};

struct Empty;

impl Contents for Empty {
    fn kind(&self) -> dsl::Kind {
        dsl::Kind::Filesystem
    }

    fn fill(&self, os: &Objset, tx: &Tx) -> Result<(), Arc<dyn std::error::Error + Send + Sync>> {
        use dmu::zap::{Normalization, Value, Zap};
        let spec = NewObject::new(DmuType::MASTER_NODE);
        let flags = ondisk::zap::ZapFlags::default();
        Zap::create_claim(os, tx, ondisk::ObjNum(1), &spec, Normalization::NONE, flags)
            .and_then(|zap| zap.add(tx, b"VERSION", &Value::integers(8, &[5])))
            .map_err(|e| Arc::new(e) as _)
    }
}

fn host() -> Host {
    Host { hostid: 0x1234, hostname: "here".into() }
}

fn image(dir: &Path, name: &str) -> PathBuf {
    let path = dir.join(name);
    std::fs::File::create(&path).unwrap().set_len(128 << 20).unwrap();
    path
}

fn vdev(dir: &Path, shape: VdevShape, bias: Option<AllocBias>, names: &[&str]) -> NewVdev {
    let leaves = names.iter().map(|n| NewLeaf { path: image(dir, n) }).collect();
    NewVdev { shape, bias, leaves }
}

fn single(dir: &Path, name: &str) -> NewVdev {
    vdev(dir, VdevShape::Single, None, &[name])
}

fn pool_of(vdevs: Vec<NewVdev>) -> Live {
    let new = NewPool { name: "tank".into(), vdevs, ashift: None, force: false };
    let features: Vec<&'static Feature> = FEATURES.iter().filter(|f| f.can_write()).collect();
    let begin = Beginning { features: &features, contents: &Empty, props: &Vec::new() };
    let setting = Setting {
        host: &host(),
        world: Arc::new(SystemWorld),
        claimer: &claim_file,
        workers: Arc::new(zio::Workers::new("zio", 1)),
        cache_bytes: 64 << 20,
    };
    create(&new, &begin, &setting).unwrap()
}

fn import(dir: &Path) -> Live {
    let hands = Hands { workers: Arc::new(zio::Workers::new("zio", 1)), world: Arc::new(SystemWorld) };
    let found = spa::scan(&[dir]).pools.remove(0);
    import_for_writing(
        &found,
        &Options { readonly: false, ..Options::default() },
        None,
        &host(),
        &SystemClock,
        hands,
    )
    .unwrap()
}

/// What `zdb` says, if there is one; a failure of it fails the test.
fn zdb(args: &[&dyn AsRef<std::ffi::OsStr>]) -> Option<String> {
    let named = std::env::var_os("ZDB").map(PathBuf::from);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|d| d.join("zdb")).find(|p| p.is_file());
    let out =
        std::process::Command::new(named.or(found)?).args(args.iter().map(|a| a.as_ref())).output().unwrap();
    let text = String::from_utf8_lossy(&out.stdout).into_owned() + &String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{text}");
    Some(text)
}

/// Asks `zdb` whether an exported pool is sound, and gives what it says of its config.
fn judge(dir: &Path, pool: &str) -> Option<String> {
    let blocks = zdb(&[&"-e", &"-p", &dir, &"-bcc", &pool])?;
    assert!(blocks.contains("No leaks"), "{blocks}");
    zdb(&[&"-e", &"-p", &dir, &"-d", &pool])?;
    zdb(&[&"-e", &"-p", &dir, &"-C", &pool])
}

fn terms() -> AddTerms<'static> {
    AddTerms { ashift: None, check_ashift: true, force: false, claimer: &claim_file }
}

/// Writes so much that every vdev gets some.
fn fill(live: &Live, name: &str, bytes: usize) {
    let at = format!("tank/{name}");
    let contents = Arc::new(Empty);
    let made = Create { name: at.clone(), contents, props: Vec::new(), crypt: None, enforce_limits: false };
    live.run(Box::new(made)).unwrap();
    let head = live.dsl().dataset(&at).unwrap();
    let owned = live.dsl().heads().own(&head).unwrap();
    let tx = live.tx(bytes as u64).unwrap();
    let spec = NewObject { block_size: 1 << 17, ..NewObject::new(DmuType::PLAIN_FILE_CONTENTS) };
    let file = owned.objset().create_object(&tx, &spec).unwrap();
    // No compressor makes this smaller.
    let mut seed = 88172645463325252u64;
    let noise: Vec<u8> = (0..bytes / 8)
        .flat_map(|_| {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            seed.to_le_bytes()
        })
        .collect();
    file.write_at(&tx, 0, &noise).unwrap();
    drop(tx);
    live.sync_all().unwrap();
}

/// Goal: vdevs of every class and shape are added to a pool that is written, take blocks at once, and are there after an export; `zdb`
/// finds the pool sound.
#[test]
fn vdevs_are_added() {
    let dir = tempfile::tempdir().unwrap();
    let d = dir.path();
    let live = pool_of(vec![single(d, "a")]);
    fill(&live, "before", 4 << 20);
    let room = |live: &Live| live.dsl().space().rdspace;
    let before = room(&live);
    live.add(&[vdev(d, VdevShape::Mirror, None, &["m0", "m1"]), single(d, "b")], &terms()).unwrap();
    assert!(room(&live) > 2 * before, "the new room is there");
    fill(&live, "middle", 16 << 20);
    live.add(
        &[
            vdev(d, VdevShape::Mirror, Some(AllocBias::Special), &["s0", "s1"]),
            vdev(d, VdevShape::Single, Some(AllocBias::Log), &["l"]),
            vdev(d, VdevShape::Raidz(1), None, &["r0", "r1", "r2"]),
        ],
        &terms(),
    )
    .unwrap();
    fill(&live, "after", 16 << 20);
    let tops = live.config().vdev_tree.as_ref().unwrap().children.len();
    assert_eq!(tops, 6);
    live.export().unwrap();
    judge(d, "tank");
    let live = import(d);
    fill(&live, "again", 1 << 20);
    live.add(&[single(d, "c")], &terms()).unwrap();
    fill(&live, "last", 1 << 20);
    live.export().unwrap();
    if let Some(config) = judge(d, "tank") {
        assert!(config.contains("vdev_children: 7"), "{config}");
        assert!(config.contains("create_txg"), "{config}");
    }
}

/// Goal: what can't be added is refused with its reason, and the pool goes on as it was.
#[test]
fn refused_additions() {
    let dir = tempfile::tempdir().unwrap();
    let d = dir.path();
    let live = pool_of(vec![single(d, "a")]);
    let other = AddTerms { ashift: Some(Ashift(12)), ..terms() };
    let odd = live.add(&[single(d, "b")], &other).unwrap_err();
    assert!(matches!(odd, ShapeError::AshiftMismatch { new: Ashift(12), old: Ashift(9) }), "{odd}");
    live.add(&[single(d, "b")], &AddTerms { check_ashift: false, ..other }).unwrap();
    let twice = NewVdev { leaves: vec![NewLeaf { path: d.join("a") }], ..single(d, "c") };
    assert!(matches!(live.add(&[twice], &terms()), Err(ShapeError::Devices(_))));
    fill(&live, "x", 1 << 20);
    live.export().unwrap();
    judge(d, "tank");
}

/// Goal: a pool that is left without an export after devices were added is whole when it is imported again.
#[test]
fn added_and_left() {
    let dir = tempfile::tempdir().unwrap();
    let d = dir.path();
    let live = pool_of(vec![single(d, "a")]);
    live.add(&[single(d, "b")], &terms()).unwrap();
    fill(&live, "x", 8 << 20);
    drop(live);
    let live = import(d);
    assert_eq!(live.config().vdev_tree.as_ref().unwrap().children.len(), 2);
    live.export().unwrap();
    judge(d, "tank");
}
