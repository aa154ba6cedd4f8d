//! Open volumes whose properties change.

use poolhouse::dsl::ops::create::{Create, NewVolume};
use poolhouse::dsl::ops::props::{InheritProp, SetAs, SetProps};
use poolhouse::dsl::ops::rename::Rename;
use poolhouse::dsl::{Contents, Setting, Value};
use poolhouse::ondisk::Txg;
use poolhouse::spa::create::VdevShape;
use poolhouse::zpl::NewFileSystem;
use poolhouse::zvol::Volume;
use poolhouse::{OpenOptions, Pool};
use std::path::Path;
use std::sync::Arc;

fn make(pool: &Pool, name: &str, contents: Arc<dyn Contents + Send + Sync>) {
    let create =
        Create { name: name.into(), contents, props: Vec::new(), crypt: None, enforce_limits: false };
    pool.spa().writer().unwrap().run(Box::new(create)).unwrap();
}

fn first(dir: &Path, name: &str) -> [u8; 6] {
    let options = OpenOptions { write: true, force: true, ..OpenOptions::default() };
    let pool = Pool::open(&[dir], &options).unwrap();
    let volume = pool.open_volume(pool.dataset(name).unwrap().dsl()).unwrap();
    let mut bytes = [0; 6];
    volume.read_at(&mut bytes, 0).unwrap();
    bytes
}

/// The first bytes of a volume after a crash. Before `work` it has `group!` on disk, and the crash
/// comes before the txg of `work` syncs.
fn after_crash(pool: &Pool, from: &Path, (volume, name): (&Volume, &str), work: &dyn Fn()) -> [u8; 6] {
    let live = pool.spa().writer().unwrap();
    loop {
        volume.write_at(b"group!", 0).unwrap();
        live.sync_all().unwrap();
        let open = live.txgs().open();
        work();
        let hold = live.tx(0).unwrap();
        live.txgs().wait_synced(Txg(hold.txg().0 - 1)).unwrap();
        let left = testkit::copy_of(from);
        // Otherwise that txg may be on disk already.
        if live.txgs().synced() < open {
            drop(hold);
            return first(left.path(), name);
        }
    }
}

/// Goal: an open volume follows its own `sync` property and the inherited one, also after its
/// parent was renamed.
#[test]
fn volumes_follow_their_properties() {
    let dir = tempfile::tempdir().unwrap();
    let images = testpools::images(dir.path(), 1, 256 << 20);
    let pool = Pool::with_spa(testpools::new_pool(VdevShape::Single, &images), None).unwrap();
    let live = pool.spa().writer().unwrap();
    let set = |name: &str, sync: u64| {
        let props = vec![Setting { name: "sync".into(), value: Value::Number(sync) }];
        live.run(Box::new(SetProps { name: name.into(), props, source: SetAs::Local })).unwrap();
    };
    make(&pool, "tank/above", Arc::new(NewFileSystem::new((1_000_000, 0))));
    make(&pool, "tank/above/v", Arc::new(NewVolume { size: 8 << 20, block: 16 << 10 }));
    let volume = pool.open_volume(pool.dataset("tank/above/v").unwrap().dsl()).unwrap();
    volume.flush().unwrap();
    volume.write_at(b"begin", 0).unwrap();
    volume.flush().unwrap();
    let (old, new) = ("tank/above".to_owned(), "tank/other".to_owned());
    live.run(Box::new(Rename { old, new, enforce_limits: false })).unwrap();
    let v = (&volume, "tank/other/v");
    let write = || volume.write_at(b"more!!", 0).unwrap();
    let write_and_flush = || {
        write();
        volume.flush().unwrap();
    };
    assert_eq!(&after_crash(&pool, dir.path(), v, &write), b"group!");
    assert_eq!(&after_crash(&pool, dir.path(), v, &write_and_flush), b"more!!");
    set("tank/other", 1);
    assert_eq!(&after_crash(&pool, dir.path(), v, &write), b"more!!");
    set("tank/other/v", 2);
    assert_eq!(&after_crash(&pool, dir.path(), v, &write_and_flush), b"group!");
    let (name, property) = (v.1.to_owned(), "sync".to_owned());
    live.run(Box::new(InheritProp { name, property, received: false })).unwrap();
    assert_eq!(&after_crash(&pool, dir.path(), v, &write), b"more!!");
}
