//! Names that collide in a ZAP are refused by a check, and the pool goes on.

use dmu::NewObject;
use dsl::ops::bookmark::CreateBookmarks;
use dsl::ops::clone::Clone;
use dsl::ops::create::Create;
use dsl::ops::deleg::{MadeBy, SetGrants};
use dsl::ops::hold::HoldSnapshots;
use dsl::ops::promote::Promote;
use dsl::ops::props::{InheritProp, PropList, SetAs, SetProps};
use dsl::ops::rename::{Rename, RenameSnapshot};
use dsl::ops::rollback::Rollback;
use dsl::ops::snapshot::Snapshot;
use dsl::{Error, Need, Refusal, Setting, SyncTask, Value};
use ondisk::DmuType;
use ondisk::sa::Attr;
use ondisk::znode::{ZNODE_SIZE, Znode};
use spa::Spa;
use spa::create::VdevShape;
use spa::engine::{PoolProp, ShapeError, TaskError, VdevValue};
use testkit::{colliding, colliding_with};
use testpools::{file_system, judge, new_pool, own, remove_file};

const FULL: Refusal = Refusal::NamesCollide;

/// A pool with the dataset `tank/fs`.
struct World {
    dir: tempfile::TempDir,
    spa: Spa,
}

impl World {
    fn new() -> World {
        let dir = tempfile::tempdir().unwrap();
        let spa = new_pool(VdevShape::Single, &testpools::images(dir.path(), 1, 256 << 20));
        let w = World { dir, spa };
        w.ok(create(w.name("/fs"), Vec::new()));
        w
    }

    fn name(&self, rest: &str) -> String {
        format!("tank{rest}")
    }

    fn run(&self, task: impl SyncTask + Send + 'static) -> Result<(), TaskError> {
        self.spa.writer().unwrap().run(Box::new(task)).map(drop)
    }

    fn ok(&self, task: impl SyncTask + Send + 'static) {
        self.run(task).unwrap();
    }

    fn refused(&self, task: impl SyncTask + Send + 'static) -> Refusal {
        match self.run(task) {
            Err(TaskError::Refused(Error::Refused { name, why })) => {
                assert!(name.starts_with("tank"), "{name}");
                why
            }
            r => panic!("{r:?}"),
        }
    }

    /// Runs a task for each name until one is refused, and returns how many were done.
    fn until_refused<T: SyncTask + Send + 'static>(
        &self,
        names: &[String],
        task: impl Fn(&str) -> T,
    ) -> usize {
        let refused = |name: &String| match self.run(task(name)) {
            Ok(()) => false,
            Err(TaskError::Refused(Error::Refused { why: FULL, .. })) => true,
            Err(e) => panic!("{e:?}"),
        };
        names.iter().position(refused).expect("some name is refused")
    }

    /// Checks that the pool goes on, and that it can be exported and imported.
    fn end(self) {
        let live = self.spa.writer().unwrap();
        assert!(live.txgs().stopped().is_none());
        live.run(file_system("tank/last", Vec::new())).unwrap();
        live.export().unwrap();
        drop(self.spa);
        judge(self.dir.path(), "tank");
        let spa = testpools::import(self.dir.path()).unwrap();
        let live = spa.writer().unwrap();
        live.dsl().dataset("tank/last").unwrap();
        live.export().unwrap();
    }
}

fn create(name: String, props: PropList) -> Create {
    *file_system(&name, props)
}

fn snapshot(name: &str, props: PropList) -> Snapshot {
    Snapshot { names: vec![name.to_owned()], props, enforce_limits: false }
}

fn setting(name: &str, len: usize) -> Setting {
    Setting { name: name.to_owned(), value: Value::Text("v".repeat(len)) }
}

fn set(props: Vec<Setting>, source: SetAs) -> SetProps {
    SetProps { name: "tank/fs".to_owned(), props, source }
}

/// Goal: user properties that collide are refused together and one by one, local and received, of
/// file systems, snapshots and new datasets. Others can be set.
#[test]
fn properties() {
    let w = World::new();
    let names = colliding("x:", 28, 4);
    let big: Vec<_> = names.iter().map(|n| setting(n, 8000)).collect();
    assert_eq!(w.refused(set(big[..2].to_vec(), SetAs::Local)), FULL);
    w.ok(set(big[..1].to_vec(), SetAs::Local));
    w.ok(set(big[..1].to_vec(), SetAs::Local));
    assert_eq!(w.refused(set(big[1..2].to_vec(), SetAs::Local)), FULL);
    w.ok(set(vec![setting("other:name", 8000), setting(&names[1], 10)], SetAs::Local));
    // The names of received values, and of the marks of what is inherited, end in a suffix.
    let received: Vec<_> = colliding_with("x:", "$recvd", 28, 4).iter().map(|n| setting(n, 8000)).collect();
    assert_eq!(w.refused(set(received[..2].to_vec(), SetAs::Received)), FULL);
    w.ok(set(received[2..3].to_vec(), SetAs::Received));
    assert_eq!(w.refused(set(received[3..].to_vec(), SetAs::Received)), FULL);
    let inherited = colliding_with("y:", "$inherit", 28, 300);
    let inherit =
        |name: &str| InheritProp { name: w.name("/fs"), property: name.to_owned(), received: false };
    let done = w.until_refused(&inherited, inherit);
    assert!(done > 90, "{done}");
    w.ok(inherit(&names[0]));

    let snap = w.name("/fs@s");
    assert_eq!(w.refused(snapshot(&snap, big[..2].to_vec())), FULL);
    w.ok(snapshot(&snap, big[..1].to_vec()));
    let more = SetProps { name: snap.clone(), props: big[1..2].to_vec(), source: SetAs::Local };
    assert_eq!(w.refused(more), FULL);
    assert_eq!(w.refused(create(w.name("/new"), big[..2].to_vec())), FULL);
    let (name, props) = (w.name("/clone"), big[..2].to_vec());
    assert_eq!(w.refused(Clone { name, origin: snap, props, enforce_limits: true }), FULL);
    w.end();
}

/// Goal: what belongs to the engine can be set beside user properties that collide with it.
#[test]
fn properties_of_the_engine() {
    let w = World::new();
    let names = colliding("x:", 28, 1000);
    let done = w.until_refused(&names, |n| set(vec![setting(n, 20)], SetAs::Local));
    assert!(done > 90, "{done}");
    for prop in ["compression", "quota", "recordsize"] {
        w.ok(set(vec![Setting { name: prop.to_owned(), value: Value::Number(0) }], SetAs::Local));
    }
    w.end();
}

/// Goal: 5,000 properties of a dataset are set without a refusal, in several operations and in one.
#[test]
fn many_properties() {
    let w = World::new();
    let props: Vec<_> = (0..5000).map(|n| setting(&format!("com.example:property-{n}"), 100)).collect();
    for some in props.chunks(250) {
        w.ok(set(some.to_vec(), SetAs::Local));
        w.ok(set(some.to_vec(), SetAs::Received));
    }
    w.ok(create(w.name("/new"), props));
    w.end();
}

/// Goal: datasets, snapshots, bookmarks and holds whose names collide are refused, also by a new
/// name, and others aren't.
#[test]
fn names() {
    let w = World::new();
    let names = colliding("n", 28, 300);
    let done = w.until_refused(&names, |n| create(w.name(&format!("/fs/{n}")), Vec::new()));
    assert!(done > 90, "{done}");
    let enforce_limits = true;
    w.ok(create(w.name("/fs/other"), Vec::new()));
    let (old, new) = (w.name("/fs/other"), w.name(&format!("/fs/{}", names[done])));
    assert_eq!(w.refused(Rename { old, new, enforce_limits }), FULL);
    w.spa.writer().unwrap().dsl().dataset("tank/fs/other").unwrap();

    w.ok(create(w.name("/s"), Vec::new()));
    let done = w.until_refused(&names, |n| snapshot(&w.name(&format!("/s@{n}")), Vec::new()));
    assert!(done > 90, "{done}");
    w.ok(snapshot("tank/s@other", Vec::new()));
    let rename = RenameSnapshot {
        dataset: w.name("/s"),
        old: "other".into(),
        new: names[done].clone(),
        recursive: false,
    };
    assert_eq!(w.refused(rename), FULL);
    w.ok(Rollback { name: w.name("/s"), to: None });

    let pair = |n: &str| (w.name(&format!("/s#{n}")), w.name("/s@other"));
    let pairs = names[..200].iter().map(|n| pair(n)).collect();
    assert_eq!(w.refused(CreateBookmarks { pairs }), FULL);
    let done = w.until_refused(&names, |n| CreateBookmarks { pairs: vec![pair(n)] });
    assert!(done > 30, "{done}");

    let hold = |n: &str| (w.name("/s@other"), n.to_owned());
    let holds = names.iter().map(|n| hold(n)).collect();
    assert_eq!(w.refused(HoldSnapshots { holds }), FULL);
    let done = w.until_refused(&names, |n| HoldSnapshots { holds: vec![hold(n)] });
    assert!(done > 90, "{done}");
    w.ok(HoldSnapshots { holds: vec![hold("other")] });
    w.end();
}

/// Goal: user properties of the pool and of a vdev that collide are refused.
#[test]
fn properties_of_the_pool() {
    let w = World::new();
    let names = colliding("x:", 28, 3);
    let live = w.spa.writer().unwrap();
    let prop = |i: usize| PoolProp::Text(names[i].clone(), "v".repeat(8000));
    assert!(matches!(live.set(vec![prop(0), prop(1)]), Err(ShapeError::NamesCollide)));
    live.set(vec![prop(0)]).unwrap();
    assert!(matches!(live.set(vec![prop(1)]), Err(ShapeError::NamesCollide)));
    let guid = live.config().root().children[0].guid;
    let set = |i: usize| live.vdevs().set_vdev(guid, &names[i], VdevValue::Text("v".repeat(8000)));
    set(0).unwrap();
    assert!(matches!(set(1), Err(ShapeError::NamesCollide)));
    w.end();
}

/// Goal: a pool goes on with files whose owners collide, and counts those that fit.
#[test]
fn owners() {
    let w = World::new();
    let live = w.spa.writer().unwrap();
    let owned = own(live, "tank/fs");
    let place = Znode::place(Attr::Uid).unwrap();
    let mut files = Vec::new();
    for name in colliding("1", 28, 300) {
        let mut bonus = vec![0; ZNODE_SIZE];
        bonus[place.clone()].copy_from_slice(&u64::from_str_radix(&name, 16).unwrap().to_le_bytes());
        let tx = live.tx_for(&owned, Need { bytes: 1 << 14, netfree: false }).unwrap();
        let spec = NewObject::new(DmuType::PLAIN_FILE_CONTENTS).with_bonus(DmuType::ZNODE, bonus);
        files.push(owned.objset().create_object(&tx, &spec).unwrap().object());
    }
    live.sync_all().unwrap();
    let counted = || {
        let table = owned.objset().dnode(dmu::DMU_USERUSED_OBJECT).unwrap();
        dmu::zap::Zap::open(&table).unwrap().count().unwrap()
    };
    assert!((212..300 * 2).contains(&counted()), "{}", counted());
    for object in files {
        remove_file(live, &owned, object).unwrap();
    }
    live.sync_all().unwrap();
    assert_eq!(counted(), 0);
    drop(owned);
    w.end();
}

/// Goal: a promotion that would move colliding names to a clone that has some is refused.
#[test]
fn promotion() {
    let w = World::new();
    let (origin, enforce_limits) = (w.name("/fs@origin"), true);
    let names = colliding("n", 28, 200);
    for name in &names[..80] {
        w.ok(snapshot(&w.name(&format!("/fs@{name}")), Vec::new()));
    }
    w.ok(snapshot(&origin, Vec::new()));
    w.ok(Clone { name: w.name("/clone"), origin, props: Vec::new(), enforce_limits });
    for name in &names[100..180] {
        w.ok(snapshot(&w.name(&format!("/clone@{name}")), Vec::new()));
    }
    assert_eq!(w.refused(Promote { name: w.name("/clone"), enforce_limits }), FULL);
    w.end();
}

/// Goal: grants whose words collide are refused, and so is a dataset whose creator would get such
/// words from several datasets above.
#[test]
fn grants() {
    let w = World::new();
    let words: Vec<_> = colliding("@", 28, 400);
    let grant = |path: &str, words: &[String]| SetGrants {
        name: w.name(path),
        grants: [("C-$".to_owned(), words.iter().cloned().collect())].into(),
        remove: false,
    };
    assert_eq!(w.refused(grant("/fs", &words[..300])), FULL);
    w.ok(grant("/fs", &words[..90]));
    w.ok(grant("", &words[100..190]));
    let name = w.name("/fs/new");
    assert_eq!(w.refused(MadeBy { task: create(name.clone(), Vec::new()), name, uid: 1000 }), FULL);
    let name = w.name("/new");
    w.ok(MadeBy { task: create(name.clone(), Vec::new()), name, uid: 1000 });
    w.end();
}
