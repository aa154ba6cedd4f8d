//! Pools of versions before features that are created, written and upgraded, checked by OpenZFS's
//! `zdb` if there is one.

use crate::rig;

use crate::rig::{Rig, ask};
use dsl::ops::clone::Clone;
use dsl::ops::destroy::{DestroyHead, DestroySnapshots};
use dsl::ops::promote::Promote;
use dsl::ops::snapshot::Snapshot;
use dsl::{PropList, SyncTask};
use ondisk::ObjNum;
use ondisk::version::newest_zpl;
use spa::engine::PoolProp;
use zpl::{Kind, NewFile, NewFileSystem, Policy};

/// A version before each change of the format, and the last.
const VERSIONS: [u64; 9] = [1, 2, 4, 8, 10, 14, 22, 25, 28];

fn run(rig: &Rig, task: impl SyncTask + Send + 'static) {
    rig.pool.live().run(Box::new(task)).unwrap();
}

fn snapshot(rig: &Rig, name: &str) {
    run(rig, Snapshot { names: vec![name.into()], ..Snapshot::default() });
}

fn clone(rig: &Rig, name: &str, origin: &str) {
    let (name, origin) = (name.into(), origin.into());
    run(rig, Clone { name, origin, props: PropList::new(), enforce_limits: false });
}

fn destroy(rig: &Rig, names: &[&str]) {
    let names = names.iter().map(|n| (*n).to_owned()).collect();
    run(rig, DestroySnapshots { names, defer: false });
}

fn write(rig: &Rig, file: ObjNum, byte: u8, at: u64) {
    rig.fs.write(file, at, &vec![byte; 200_000], false).unwrap();
}

/// Makes blocks die in every way: between snapshots, in clones, with destroyed snapshots and
/// clones, and after a promotion.
fn live_through(rig: &Rig, file: ObjNum, at: u64) {
    write(rig, file, 1, at);
    snapshot(rig, "tank@a");
    write(rig, file, 2, at);
    snapshot(rig, "tank@b");
    write(rig, file, 3, at + 100_000);
    snapshot(rig, "tank@c");
    clone(rig, "tank/one", "tank@b");
    clone(rig, "tank/two", "tank@b");
    write(rig, file, 4, at);
    destroy(rig, &["tank@a"]);
    run(rig, Promote { name: "tank/two".into(), enforce_limits: false });
    run(rig, Promote { name: "tank".into(), enforce_limits: false });
    run(rig, DestroyHead { name: "tank/one".into() });
    run(rig, DestroyHead { name: "tank/two".into() });
    destroy(rig, &["tank@c"]);
    write(rig, file, 5, at);
    destroy(rig, &["tank@b"]);
    snapshot(rig, &format!("tank@kept{at}"));
    write(rig, file, 6, at);
    rig.sync();
}

fn made(version: u64) -> (Rig, ObjNum) {
    let root = NewFileSystem { version: newest_zpl(version), ..NewFileSystem::new((1_000_000, 0)) };
    let rig = Rig::of_version(version, &root);
    let file = rig.fs.create(rig.fs.root(), b"f", &NewFile::new(Kind::Regular, 0o644)).unwrap().object;
    (rig, file)
}

fn check(rig: &Rig, file: ObjNum, at: u64) {
    let mut data = vec![0; 300_000];
    assert_eq!(rig.fs.read(file, at, &mut data).unwrap(), data.len());
    assert!(data[..200_000].iter().all(|b| *b == 6) && data[200_000..].iter().all(|b| *b == 3));
}

/// Checks with `zdb` that the pool's directory has no names that the version doesn't know.
fn knows_nothing_newer(rig: Rig, version: u64) {
    let dir = rig.export();
    rig::judge(dir.path());
    let Some(text) = ask(dir.path(), &["-dddd", "tank", "1"]) else { return };
    for (name, since) in [
        ("deflate", 3),
        ("history", 4),
        ("free_bpobj", 26),
        ("features_for_read", 5000),
        ("bptree_obj", 5000),
        ("empty_bpobj", 5000),
    ] {
        assert_eq!(
            text.contains(&format!("\t\t{name} = ")),
            since <= version && since < 5000,
            "{version}: {text}"
        );
    }
    let text = ask(dir.path(), &["-C", "tank"]).unwrap();
    assert!(text.contains(&format!("version: {version}\n")), "{text}");
}

/// Goal: pools of versions around each change of the format are created and survive every way in
/// which blocks die. Nothing leaks, and they contain nothing that their version doesn't know.
#[test]
fn old_pools_are_written() {
    for version in VERSIONS {
        let (rig, file) = made(version);
        live_through(&rig, file, 0);
        let rig = rig.again(Policy::default());
        check(&rig, file, 0);
        live_through(&rig, file, 1 << 20);
        knows_nothing_newer(rig, version);
    }
}

/// Goal: a pool in use that is upgraded, step by step or at once, stays usable without leaks.
#[test]
fn old_pools_are_upgraded() {
    for steps in [&[1, 3, 5000][..], &[1, 5000], &[2, 11, 26, 28], &[8, 14, 15, 5000], &[22, 26], &[28, 5000]]
    {
        let (mut rig, file) = made(steps[0]);
        live_through(&rig, file, 0);
        for (n, to) in (1..).zip(&steps[1..]) {
            rig.pool.live().set(vec![PoolProp::Version(*to)]).unwrap();
            live_through(&rig, file, n << 20);
            rig = rig.again(Policy::default());
            check(&rig, file, 0);
            live_through(&rig, file, (n << 20) + (512 << 10));
            destroy(&rig, &[&format!("tank@kept{}", (n - 1) << 20)]);
        }
        rig.again(Policy::default());
    }
}
