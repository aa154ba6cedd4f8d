//! Operations on the datasets of new pools, checked by OpenZFS's `zdb` if the variable `ZDB` names
//! it.

use dsl::ops::bookmark::CreateBookmarks;
use dsl::ops::clone::Clone;
use dsl::ops::create::{Create, NewVolume};
use dsl::ops::destroy::{DestroyHead, DestroySnapshots};
use dsl::ops::promote::Promote;
use dsl::ops::props::{SetAs, SetProps};
use dsl::ops::rename::Rename;
use dsl::ops::rollback::Rollback;
use dsl::ops::snapshot::Snapshot;
use dsl::prop::parse::{Context, setting};
use dsl::{Contents, Kind, SyncTask};
use ondisk::feature::{FEATURES, Feature};
use ondisk::{DmuType, ObjNum};
use pool::space::PoolSpace;
use spa::Host;
use spa::Spa;
use spa::create::{Beginning, NewLeaf, NewPool, NewVdev, Setting, VdevShape, claim_file, create};
use spa::engine::{PoolWriter, SystemWorld};
use std::path::Path;
use std::sync::Arc;
use zpl::NewFileSystem;

fn new_pool(image: &Path) -> Spa {
    std::fs::File::create(image).unwrap().set_len(256 << 20).unwrap();
    let leaves = vec![NewLeaf { path: image.to_owned() }];
    let vdevs = vec![NewVdev { shape: VdevShape::Single, bias: None, leaves }];
    let new = NewPool { name: "tank".into(), vdevs, ashift: None, force: false };
    let not = ["com.delphix:device_removal", "com.delphix:log_spacemap"];
    let features: Vec<&'static Feature> = FEATURES.iter().filter(|f| !not.contains(&f.guid)).collect();
    let root = NewFileSystem::new((1_800_000_000, 0));
    let begin = Beginning {
        features: &features,
        contents: &root,
        props: &Vec::new(),
        crypt: None,
        temporary_name: None,
        version: 5000,
    };
    let host = Host { hostid: 0x1234, hostname: "here".into() };
    let setting = Setting {
        host: &host,
        world: Arc::new(SystemWorld),
        claimer: &claim_file,
        workers: Arc::new(zio::Workers::new("zio", 1)),
        cache: (64u64 << 20).into(),
        altroot: None,
    };
    create(&new, &begin, &setting).unwrap()
}

fn fs(name: &str) -> Box<dyn SyncTask + Send> {
    make(name, NewFileSystem::new((1_800_000_000, 0)))
}

fn make(name: &str, contents: impl Contents + 'static) -> Box<dyn SyncTask + Send> {
    let contents = Arc::new(contents);
    Box::new(Create { name: name.into(), contents, props: Vec::new(), crypt: None, enforce_limits: true })
}

fn snap(names: &[&str]) -> Box<dyn SyncTask + Send> {
    let names = names.iter().map(|n| (*n).to_owned()).collect();
    Box::new(Snapshot { names, ..Snapshot::default() })
}

/// Writes `blocks` blocks of a file into a dataset, from block `from` on, and waits until they are
/// on disk.
fn write(live: &PoolWriter, name: &str, from: u64, blocks: u64, seed: u8) {
    let ds = live.read(|dsl| dsl.dataset(name)).unwrap();
    let owned = live.dsl().heads().own(&ds).unwrap();
    let tx = live.tx(1 << 20).unwrap();
    let os = owned.objset();
    let dn = match os.dnode(ObjNum(1000)) {
        Ok(dn) => dn,
        Err(_) => {
            let spec =
                dmu::NewObject { block_size: 4096, ..dmu::NewObject::new(DmuType::PLAIN_FILE_CONTENTS) };
            os.claim_object(&tx, ObjNum(1000), &spec).unwrap()
        }
    };
    for b in from..from + blocks {
        let data: Vec<u8> =
            (0..4096u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8 ^ seed ^ b as u8).collect();
        dn.write_at(&tx, b * 4096, &data).unwrap();
    }
    drop(tx);
    live.sync_all().unwrap();
}

/// Runs `zdb` on an exported pool, which must report no wrong checksum or count, no leak and no
/// double allocation.
fn judge(dir: &Path) {
    let Some(zdb) = std::env::var_os("ZDB") else { return };
    for what in ["-bcc", "-d"] {
        let out = std::process::Command::new(&zdb).args(["-e", "-p"]).arg(dir).arg(what).arg("tank").output();
        let out = out.unwrap();
        let text = String::from_utf8_lossy(&out.stdout).into_owned() + &String::from_utf8_lossy(&out.stderr);
        assert!(out.status.success(), "zdb {what}: {text}");
        assert!(what == "-d" || text.contains("No leaks"), "{text}");
    }
}

/// Goal: after each operation on datasets, the pool's metadata agrees with its blocks.
#[test]
fn operations_leave_a_sound_pool() {
    for steps in 0..=OPERATIONS.len() {
        let dir = tempfile::tempdir().unwrap();
        let spa = new_pool(&dir.path().join("d0.img"));
        let live = spa.writer().unwrap();
        // An import tells the datasets how much space there is. Any figure will do here.
        live.dsl().set_space(PoolSpace { rdspace: 200 << 20, dspace: 200 << 20, ..PoolSpace::default() });
        OPERATIONS[..steps].iter().for_each(|operation| operation(live));
        live.export().unwrap();
        drop(spa);
        judge(dir.path());
    }
}

/// The operations, in their order.
const OPERATIONS: [fn(&PoolWriter); 6] =
    [create_heads, snapshot_and_write, destroy_snapshot, clone_and_promote, set_and_roll_back, destroy_heads];

fn ok(live: &PoolWriter, task: Box<dyn SyncTask + Send>) {
    live.run(task).unwrap();
}

fn create_heads(live: &PoolWriter) {
    live.run_all(vec![
        fs("tank/a"),
        fs("tank/b"),
        make("tank/vol", NewVolume { size: 1 << 20, block: 1 << 14 }),
    ])
    .unwrap()
    .into_iter()
    .for_each(|r| r.unwrap());
    write(live, "tank/a", 0, 300, 1);
    write(live, "tank/b", 0, 100, 2);
}

fn snapshot_and_write(live: &PoolWriter) {
    ok(live, snap(&["tank/a@1", "tank/b@1"]));
    write(live, "tank/a", 50, 100, 3);
    ok(live, Box::new(CreateBookmarks { pairs: vec![("tank/a#m".into(), "tank/a@1".into())] }));
    ok(live, snap(&["tank/a@2"]));
    write(live, "tank/a", 100, 100, 4);
    ok(live, snap(&["tank/a@3"]));
    write(live, "tank/a", 0, 20, 5);
}

fn destroy_snapshot(live: &PoolWriter) {
    ok(live, Box::new(DestroySnapshots { names: vec!["tank/a@2".into()], defer: false }));
}

fn clone_and_promote(live: &PoolWriter) {
    let clone = |name: &str, origin: &str| {
        Box::new(Clone { name: name.into(), origin: origin.into(), props: Vec::new(), enforce_limits: true })
    };
    ok(live, clone("tank/c", "tank/a@3"));
    write(live, "tank/c", 10, 50, 6);
    ok(live, snap(&["tank/c@own"]));
    write(live, "tank/c", 20, 50, 7);
    ok(live, Box::new(Promote { name: "tank/c".into(), enforce_limits: true }));
    ok(live, Box::new(Rename { old: "tank/c".into(), new: "tank/b/c".into(), enforce_limits: true }));
}

fn set_and_roll_back(live: &PoolWriter) {
    let context = Context { kind: Kind::Filesystem, creating: false, max_block: 1 << 20 };
    let props = vec![
        setting("reservation", "10M", context).unwrap(),
        setting("refreservation", "5M", context).unwrap(),
        setting("filesystem_limit", "10", context).unwrap(),
    ];
    ok(live, Box::new(SetProps { name: "tank/b".into(), props, source: SetAs::Local }));
    write(live, "tank/b", 30, 100, 8);
    ok(live, snap(&["tank/b@2"]));
    write(live, "tank/b", 60, 100, 9);
    ok(live, Box::new(Rollback { name: "tank/b".into(), to: Some("tank/b@2".into()) }));
    live.sync_all().unwrap();
}

fn destroy_heads(live: &PoolWriter) {
    ok(live, Box::new(DestroyHead { name: "tank/a".into() }));
    ok(live, Box::new(DestroyHead { name: "tank/vol".into() }));
    ok(live, Box::new(DestroySnapshots { names: vec!["tank/b@1".into()], defer: false }));
    live.sync_all().unwrap();
    ok(live, fs("tank/z"));
}

/// Goal: many operations run in one transaction group, and each takes effect.
#[test]
fn many_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let spa = new_pool(&dir.path().join("d0.img"));
    let live = spa.writer().unwrap();
    let count = 50;
    let names: Vec<String> = (0..count).map(|n| format!("tank/fs{n}")).collect();
    let made = live.run_all(names.iter().map(|n| fs(n)).collect()).unwrap();
    made.into_iter().for_each(|r| r.unwrap());
    let snaps: Vec<String> = names.iter().map(|n| format!("{n}@s")).collect();
    live.run(Box::new(Snapshot { names: snaps, ..Snapshot::default() })).unwrap();
    for name in names {
        assert!(live.read(|dsl| dsl.dataset(&format!("{name}@s"))).is_ok());
    }
    live.export().unwrap();
    drop(spa);
    judge(dir.path());
}
