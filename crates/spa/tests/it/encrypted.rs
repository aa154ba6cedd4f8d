//! Encrypted datasets: created, written, locked and changed.

use std::sync::Arc;

use codec::crypt::{CryptoSuite, WrappingKey};
use dsl::keys::{KeyError, KeyFormat};
use dsl::ops::clone::Clone as CloneOf;
use dsl::ops::create::Create;
use dsl::ops::destroy::DestroyHead;
use dsl::ops::key::{ChangeKey, NewCrypt, NewKey};
use dsl::ops::snapshot::Snapshot;
use dsl::{Error, KeyRefusal, Setting, Value};
use ondisk::ObjNum;
use spa::create::VdevShape;
use spa::engine::PoolWriter;
use testpools::{Empty, ask, import, judge, new_pool, noise, own, read_file, remove_file, write_file};

const MIB: usize = 1 << 20;

fn new_key(key: [u8; 32]) -> NewKey {
    let key = Arc::new(WrappingKey::from_raw(key));
    NewKey { format: KeyFormat::Raw, location: Some("prompt".into()), key, salt: 0, iterations: 0 }
}

fn encrypted(name: &str, suite: Option<CryptoSuite>, key: Option<[u8; 32]>, dedup: bool) -> Box<Create> {
    let crypt = Some(NewCrypt { suite, off: false, key: key.map(new_key) });
    let set = Setting { name: "dedup".into(), value: Value::Number(1) };
    let props = if dedup { vec![set] } else { Vec::new() };
    Box::new(Create { name: name.into(), contents: Arc::new(Empty), props, crypt, enforce_limits: false })
}

fn load(live: &PoolWriter, name: &str, key: [u8; 32]) -> Result<(), KeyError> {
    live.dsl().keys().load(&live.dsl().dir(name).unwrap(), &key, false)
}

/// Writes and removes files, takes a snapshot, and changes a file in its clone `tank/e/c`.
fn fill_and_clone(live: &PoolWriter, bytes: &[u8]) -> Vec<ObjNum> {
    let mut files: Vec<ObjNum> = Vec::new();
    for name in ["tank/e", "tank/e/f"] {
        let owned = own(live, name);
        for _ in 0..3 {
            files.push(write_file(live, &owned, bytes).unwrap());
            live.sync_all().unwrap();
        }
        remove_file(live, &owned, files[files.len() - 2]).unwrap();
    }
    live.run(Box::new(Snapshot { names: vec!["tank/e@s".into()], props: Vec::new(), enforce_limits: false }))
        .unwrap();
    let clone = CloneOf {
        name: "tank/e/c".into(),
        origin: "tank/e@s".into(),
        props: Vec::new(),
        enforce_limits: false,
    };
    live.run(Box::new(clone)).unwrap();
    {
        let owned = own(live, "tank/e/c");
        assert_eq!(read_file(&owned, files[0], MIB), bytes);
        let tx = live.tx_for(&owned, dsl::Need { bytes: 1 << 17, netfree: false }).unwrap();
        owned.objset().dnode(files[0]).unwrap().write_at(&tx, 100, b"changed").unwrap();
    }
    files
}

/// Loads the old key, sets the new one, and adds a file under it.
fn change_key_and_file(live: &PoolWriter, (old, new): ([u8; 32], [u8; 32]), file: ObjNum, bytes: &[u8]) {
    let locked = live.dsl().heads().own(&live.dsl().dataset("tank/e").unwrap());
    assert!(matches!(locked, Err(Error::Key { why: KeyRefusal::NotLoaded, .. })), "{locked:?}");
    assert!(matches!(load(live, "tank/e", new), Err(KeyError::Wrong { .. })));
    load(live, "tank/e", old).unwrap();
    let change = ChangeKey { name: "tank/e".into(), key: Some(new_key(new)) };
    live.run(Box::new(change)).unwrap();
    {
        let owned = own(live, "tank/e/f");
        assert_eq!(read_file(&owned, file, MIB), bytes);
        write_file(live, &owned, &noise(99, MIB)).unwrap();
    }
}

/// Goal: encrypted datasets work with each suite, with a key of their own or an inherited one, with
/// and without deduplication.
///
/// * They are written over several txgs, with a snapshot and a clone.
/// * After an import they are locked, and open only with the right key.
/// * A key is changed, and a file is changed under the new key.
/// * A dataset without a loaded key can't be written, but it can be destroyed.
/// * zdb finds each state consistent.
#[test]
fn a_life_of_encrypted_datasets() {
    let suites = [CryptoSuite::Aes256Gcm, CryptoSuite::Aes128Gcm, CryptoSuite::Aes256Ccm];
    for (n, suite) in suites.into_iter().enumerate() {
        let dir = tempfile::tempdir().unwrap();
        let images = testpools::images(dir.path(), 2, 128 << 20);
        let spa = new_pool(VdevShape::Mirror, &images);
        let live = spa.writer().unwrap();
        let (old, new) = ([7; 32], [8; 32]);
        live.run(encrypted("tank/e", Some(suite), Some(old), n == 1)).unwrap();
        live.run(encrypted("tank/e/f", None, None, n == 1)).unwrap();
        let bytes = noise(n as u64, MIB);
        let files = fill_and_clone(live, &bytes);
        let busy = live.dsl().keys().unload(&live.dsl().dir("tank/e").unwrap());
        assert!(matches!(busy, Err(KeyError::Busy { .. })), "{busy:?}");
        live.export().unwrap();
        drop(spa);
        judge(dir.path(), "tank");
        if let Some(text) = ask(dir.path(), "tank", &["-dd"]) {
            assert!(text.contains("tank/e/f"), "{text}");
        }
        let spa = import(dir.path()).unwrap();
        let live = spa.writer().unwrap();
        change_key_and_file(live, (old, new), files[3], &bytes);
        live.sync_all().unwrap();
        let (keys, root) = (live.dsl().keys(), live.dsl().dir("tank/e").unwrap());
        // A clone has its key from the root.
        let held = keys.hold(&live.dsl().dir("tank/e/c").unwrap()).unwrap().unwrap();
        let busy = keys.unload(&root);
        assert!(matches!(busy, Err(KeyError::Busy { .. })), "{busy:?}");
        drop(held);
        keys.unload(&root).unwrap();
        let unloaded = keys.hold(&root);
        assert!(matches!(unloaded, Err(KeyError::NotLoaded { .. })), "{unloaded:?}");
        drop(root);
        live.export().unwrap();
        drop(spa);
        judge(dir.path(), "tank");
        let spa = import(dir.path()).unwrap();
        let live = spa.writer().unwrap();
        assert!(matches!(load(live, "tank/e", old), Err(KeyError::Wrong { .. })));
        // This dataset is destroyed without its key.
        live.run(Box::new(DestroyHead { name: "tank/e/f".into() })).unwrap();
        (0..3).for_each(|_| live.sync_all().unwrap());
        load(live, "tank/e", new).unwrap();
        let owned = own(live, "tank/e/c");
        assert_eq!(read_file(&owned, files[0], MIB)[100..107], *b"changed");
        let owned = own(live, "tank/e");
        assert_eq!(read_file(&owned, files[2], MIB), bytes);
        drop(owned);
        live.export().unwrap();
        drop(spa);
        judge(dir.path(), "tank");
    }
}

/// Goal: a pool with datasets that OpenZFS encrypted can be changed where no keys are needed, and
/// stays consistent.
#[test]
fn pools_of_openzfs() {
    let Some(fixture) = testkit::find("encrypted") else { return };
    let copy = fixture.copy();
    let spa = import(copy.dir()).unwrap();
    let live = spa.writer().unwrap();
    let pool = live.dsl().pool_name().to_owned();
    let all = live.dsl().list_sorted(None, &dsl::ListOptions::default()).unwrap().whole().unwrap();
    let locked = all.iter().filter(|ds| {
        let owned = live.dsl().heads().own(ds);
        matches!(owned, Err(Error::Key { why: KeyRefusal::NotLoaded, .. }))
    });
    assert!(locked.count() > 0);
    live.run(testpools::file_system(&format!("{pool}/ours"), Vec::new())).unwrap();
    write_file(live, &own(live, &format!("{pool}/ours")), &noise(1, MIB)).unwrap();
    live.export().unwrap();
    drop((all, spa));
    judge(copy.dir(), &pool);
}
