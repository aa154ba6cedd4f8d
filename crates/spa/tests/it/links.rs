//! Clones, promotions, renames and keys in every order, up to datasets whose origins form cycles
//! with their parents.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use codec::crypt::{CryptoSuite, WrappingKey};
use dsl::keys::KeyFormat;
use dsl::ops::clone::Clone as CloneOf;
use dsl::ops::create::Create;
use dsl::ops::destroy::{DestroyHead, DestroySnapshots};
use dsl::ops::key::{ChangeKey, NewCrypt, NewKey};
use dsl::ops::promote::Promote;
use dsl::ops::rename::Rename;
use dsl::ops::snapshot::Snapshot;
use dsl::{Dataset, Error, KeyRefusal, ListOptions, SyncTask};
use spa::create::VdevShape;
use spa::engine::{PoolWriter, TaskError};
use testpools::{Empty, import, judge, new_pool};

type Key = [u8; 32];

fn new_key(key: Key) -> NewKey {
    let key = Arc::new(WrappingKey::from_raw(key));
    NewKey { format: KeyFormat::Raw, location: Some("prompt".into()), key, salt: 0, iterations: 0 }
}

fn create(name: String, key: Option<Key>) -> Create {
    let suite = key.map(|_| CryptoSuite::Aes128Gcm);
    let crypt = Some(NewCrypt { suite, off: false, key: key.map(new_key) });
    Create { name, contents: Arc::new(Empty), props: Vec::new(), crypt, enforce_limits: false }
}

fn snapshot(name: String) -> Snapshot {
    Snapshot { names: vec![name], ..Snapshot::default() }
}

fn clone_of(origin: String, name: String) -> CloneOf {
    CloneOf { name, origin, props: Vec::new(), enforce_limits: false }
}

fn promote(name: &str) -> Promote {
    Promote { name: name.to_owned(), enforce_limits: false }
}

fn change_key(name: &str, key: Option<Key>) -> ChangeKey {
    ChangeKey { name: name.to_owned(), key: key.map(new_key) }
}

/// Runs a task. Returns the reason if it was refused.
fn run(live: &PoolWriter, task: impl SyncTask + Send + 'static) -> Option<Error> {
    match live.run(Box::new(task)) {
        Ok(()) => None,
        Err(TaskError::Refused(e)) => Some(e),
        Err(e) => panic!("{e:?}"),
    }
}

fn done(live: &PoolWriter, task: impl SyncTask + Send + 'static) {
    assert!(run(live, task).is_none_or(|e| panic!("{e:?}")));
}

fn all(live: &PoolWriter) -> Vec<Dataset> {
    let options = ListOptions { snapshots: true, threads: 1, ..ListOptions::default() };
    live.dsl().list_sorted(None, &options).unwrap().whole().unwrap()
}

/// Checks links in both directions and keys. Each encrypted dataset has a root with its own key,
/// and each clone has its origin's key. Returns the names of the roots.
fn check(live: &PoolWriter, datasets: &[Dataset]) -> Vec<String> {
    let mut roots = Vec::new();
    for d in datasets {
        let key = d.dir().crypto_object().unwrap();
        if let Some(origin) = d.origin().unwrap() {
            assert!(origin.clones().unwrap().iter().any(|c| c.name() == d.name()), "{}", d.name());
            assert_eq!(origin.dir().crypto_object().unwrap(), key, "{}", d.name());
        }
        let Some(root) = d.dir().encryption_root().unwrap() else { continue };
        let of_root = root.encryption_root().unwrap().unwrap();
        assert_eq!(of_root.object(), root.object(), "{} has a root that is none", d.name());
        let status = live.dsl().keys().status(d.dir()).unwrap();
        assert_eq!(status, dsl::keys::KeyStatus::Available, "{}", d.name());
        if root.object() == d.dir().object() && !d.is_snapshot() {
            roots.push(d.name());
        }
    }
    roots
}

/// Goal: an encryption root that is a clone of its own child can be promoted back, and its child's
/// key can be changed.
///
/// Neither can inherit the common key from the other. The pool is consistent, and opens with the
/// last key alone.
#[test]
fn a_root_that_is_a_clone_of_its_child() {
    let dir = tempfile::tempdir().unwrap();
    let spa = new_pool(VdevShape::Mirror, &testpools::images(dir.path(), 2, 128 << 20));
    let live = spa.writer().unwrap();
    let (p, child) = ("tank/p", "tank/p/cl");
    done(live, create(p.into(), Some([1; 32])));
    done(live, create("tank/p/x".into(), None));
    done(live, snapshot("tank/p@s".into()));
    done(live, clone_of("tank/p@s".into(), child.into()));
    done(live, promote(child));
    assert_eq!(check(live, &all(live)), [child]);
    let refused = run(live, change_key(child, None));
    assert!(matches!(refused, Some(Error::Key { why: KeyRefusal::KeyOfParent, .. })), "{refused:?}");
    done(live, change_key(child, Some([2; 32])));
    done(live, promote(p));
    assert_eq!(check(live, &all(live)), [p]);
    done(live, change_key(p, Some([3; 32])));
    live.export().unwrap();
    drop(spa);
    judge(dir.path(), "tank");
    opens_with(dir.path(), &BTreeMap::from([(p.to_owned(), [3; 32])]));
}

/// Goal: a promotion does not look for keys that were destroyed with their datasets in the same
/// txg.
#[test]
fn keys_that_are_gone_in_the_same_group() {
    let dir = tempfile::tempdir().unwrap();
    let spa = new_pool(VdevShape::Single, &testpools::images(dir.path(), 1, 128 << 20));
    let live = spa.writer().unwrap();
    done(live, create("tank/p".into(), Some([1; 32])));
    done(live, create("tank/p/sub".into(), None));
    done(live, create("tank/p/sub/x".into(), Some([2; 32])));
    done(live, snapshot("tank/p@s".into()));
    done(live, clone_of("tank/p@s".into(), "tank/cl".into()));
    let tasks: Vec<Box<dyn SyncTask + Send>> = vec![
        Box::new(DestroyHead { name: "tank/p/sub/x".into() }),
        Box::new(DestroyHead { name: "tank/p/sub".into() }),
        Box::new(promote("tank/cl")),
    ];
    let results = live.run_all(tasks).unwrap();
    assert!(results.iter().all(Result::is_ok), "{results:?}");
    assert_eq!(check(live, &all(live)), ["tank/cl"]);
    live.export().unwrap();
    drop(spa);
    judge(dir.path(), "tank");
    opens_with(dir.path(), &BTreeMap::from([("tank/cl".to_owned(), [1; 32])]));
}

/// Goal: a dataset that was moved below its own clone, out of the tree of its encryption root, gets
/// the root's new keys. The root can't be destroyed while others need its key.
#[test]
fn a_root_out_of_reach() {
    let dir = tempfile::tempdir().unwrap();
    let spa = new_pool(VdevShape::Mirror, &testpools::images(dir.path(), 2, 128 << 20));
    let live = spa.writer().unwrap();
    done(live, create("tank/p".into(), Some([1; 32])));
    done(live, create("tank/p/d".into(), None));
    done(live, snapshot("tank/p/d@s".into()));
    done(live, clone_of("tank/p/d@s".into(), "tank/n".into()));
    let (old, new) = ("tank/p/d".to_owned(), "tank/n/d".to_owned());
    done(live, Rename { old, new, enforce_limits: false });
    done(live, change_key("tank/p", Some([2; 32])));
    assert_eq!(check(live, &all(live)), ["tank/p"]);
    let refused = run(live, DestroyHead { name: "tank/p".into() });
    assert!(matches!(refused, Some(Error::Key { why: KeyRefusal::RootOfOthers, .. })), "{refused:?}");
    done(live, change_key("tank/n/d", Some([3; 32])));
    assert_eq!(check(live, &all(live)), ["tank/n/d", "tank/p"]);
    done(live, DestroyHead { name: "tank/p".into() });
    live.export().unwrap();
    drop(spa);
    judge(dir.path(), "tank");
    opens_with(dir.path(), &BTreeMap::from([("tank/n/d".to_owned(), [3; 32])]));
}

/// Imports a pool and loads the keys of all its roots.
fn opens_with(dir: &Path, keys: &BTreeMap<String, Key>) {
    let spa = import(dir).unwrap();
    let live = spa.writer().unwrap();
    for (name, key) in keys {
        live.dsl().keys().load(&live.dsl().dir(name).unwrap(), key, false).unwrap();
    }
    let datasets = all(live);
    assert_eq!(check(live, &datasets), keys.keys().cloned().collect::<Vec<_>>());
    for d in &datasets {
        d.objset().unwrap().unwrap().objects(ondisk::ObjNum(1)).for_each(|o| drop(o.unwrap()));
    }
    live.export().unwrap();
}

/// A pool whose datasets are changed at random, and the keys that it should have.
struct Model<'a> {
    live: &'a PoolWriter,
    seed: u64,
    made: u64,
    /// Keys by the object numbers of their roots' directories.
    keys: BTreeMap<u64, Key>,
}

impl Model<'_> {
    fn dice(&mut self, n: usize) -> usize {
        self.seed = self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.seed >> 33) as usize % n
    }

    fn pick(&mut self, from: &[String]) -> Option<String> {
        if from.is_empty() { None } else { Some(from[self.dice(from.len())].clone()) }
    }

    fn new_name(&mut self) -> String {
        self.made += 1;
        format!("d{}", self.made)
    }

    fn key(&mut self) -> Key {
        self.made += 1;
        [self.made as u8; 32]
    }

    fn root_of(&self, name: &str) -> Option<u64> {
        self.live.dsl().dir(name).unwrap().encryption_root().unwrap().map(|d| d.object().0)
    }

    fn object(&self, name: &str) -> u64 {
        self.live.dsl().dir(name).unwrap().object().0
    }

    /// Creates a dataset, half of the time as an encryption root.
    fn create(&mut self, new: &str) -> Option<Error> {
        let key = (self.dice(2) == 0).then(|| self.key());
        println!("create {new} {key:?}");
        let refused = run(self.live, create(new.to_owned(), key));
        if let (None, Some(key)) = (&refused, key) {
            self.keys.insert(self.object(new), key);
        }
        refused
    }

    /// Promotes a clone. The key of its encryption root moves with it.
    fn promote(&mut self, clone: &str) -> Option<Error> {
        let before = self.live.dsl().dataset(clone).unwrap().origin().unwrap().unwrap();
        let of = before.dir().object().0;
        println!("promote {clone}");
        let refused = run(self.live, promote(clone));
        if refused.is_none()
            && self.root_of(clone) == Some(self.object(clone))
            && let Some(key) = self.keys.remove(&of)
        {
            self.keys.insert(self.object(clone), key);
        }
        refused
    }

    /// Runs one operation. Returns the reason if it was refused.
    fn step(&mut self) -> Option<Error> {
        let datasets = all(self.live);
        let name = |d: &&Dataset| d.name();
        let heads: Vec<String> = datasets.iter().filter(|d| !d.is_snapshot()).map(|d| name(&d)).collect();
        let snaps: Vec<String> = datasets.iter().filter(|d| d.is_snapshot()).map(|d| name(&d)).collect();
        let clones: Vec<String> =
            datasets.iter().filter(|d| d.origin().unwrap().is_some()).map(|d| name(&d)).collect();
        let below: Vec<String> = heads.iter().filter(|n| n.contains('/')).cloned().collect();
        let any = self.pick(&heads)?;
        let live = self.live;
        match self.dice(if heads.len() < 16 { 12 } else { 14 }) {
            0 => {
                let new = format!("{any}/{}", self.new_name());
                self.create(&new)
            }
            1 | 2 => {
                let snap = format!("{any}@{}", self.new_name());
                println!("snapshot {snap}");
                run(live, snapshot(snap))
            }
            3..=5 => {
                let origin = self.pick(&snaps)?;
                // Half of the clones are created below their own origin.
                let own = origin.split('@').next().unwrap().to_owned();
                let above = if self.dice(2) == 0 { own } else { any };
                let name = format!("{above}/{}", self.new_name());
                println!("clone {origin} {name}");
                run(live, clone_of(origin, name))
            }
            6..=8 => {
                let clone = self.pick(&clones)?;
                self.promote(&clone)
            }
            9 => {
                let old = self.pick(&below)?;
                let new = format!("{any}/{}", self.new_name());
                println!("rename {old} {new}");
                run(live, Rename { old, new, enforce_limits: false })
            }
            10 | 11 => {
                let key = (self.dice(3) > 0).then(|| self.key());
                println!("change-key {any} {key:?}");
                let refused = run(live, change_key(&any, key));
                if refused.is_none() {
                    self.keys.remove(&self.object(&any));
                    self.keys.extend(key.map(|key| (self.object(&any), key)));
                }
                refused
            }
            12 => {
                let head = self.pick(&below)?;
                let object = self.object(&head);
                println!("destroy {head}");
                let refused = run(live, DestroyHead { name: head });
                if refused.is_none() {
                    self.keys.remove(&object);
                }
                refused
            }
            _ => {
                let snap = self.pick(&snaps)?;
                println!("destroy {snap}");
                run(live, DestroySnapshots { names: vec![snap], defer: false })
            }
        }
    }
}

/// Goal: in random sequences of clones, promotions, renames, key changes and removals, each
/// operation is done or refused with a reason.
///
/// After each, links agree, keys have roots, and no dataset is lost. At the end the pool is
/// consistent and opens with its last keys.
#[test]
fn random_graphs_of_clones_and_keys() {
    let steps = std::env::var("LINKS_STEPS").ok().and_then(|n| n.parse().ok()).unwrap_or(120);
    for seed in 1..=3 {
        let dir = tempfile::tempdir().unwrap();
        let spa = new_pool(VdevShape::Mirror, &testpools::images(dir.path(), 2, 256 << 20));
        let live = spa.writer().unwrap();
        let mut model = Model { live, seed, made: 0, keys: BTreeMap::new() };
        done(live, create("tank/p".into(), Some([255; 32])));
        model.keys.insert(model.object("tank/p"), [255; 32]);
        let mut did = 0;
        for step in 0..steps {
            match model.step() {
                None => did += 1,
                Some(e @ (Error::Refused { .. } | Error::Key { .. })) => println!("  {e}"),
                Some(e) => panic!("seed {seed}, step {step}: {e:?}"),
            }
            let roots = check(live, &all(live));
            let known: Vec<u64> = roots.iter().map(|name| model.object(name)).collect();
            let mut wanted: Vec<u64> = model.keys.keys().copied().collect();
            wanted.sort_by_key(|o| known.iter().position(|k| k == o));
            assert_eq!(known, wanted, "seed {seed}, step {step}: {roots:?}");
        }
        assert!(did > steps / 3, "seed {seed}: {did} of {steps}");
        let roots = check(live, &all(live));
        let keys = roots.into_iter().map(|name| (name.clone(), model.keys[&model.object(&name)])).collect();
        live.export().unwrap();
        drop(spa);
        judge(dir.path(), "tank");
        opens_with(dir.path(), &keys);
    }
}
