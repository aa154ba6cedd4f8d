//! File systems that get the contents of their hidden clones. At the end `zdb` of OpenZFS checks
//! the pool, where it is installed.

use codec::crypt::{CryptoSuite, WrappingKey};
use poolhouse::dsl::keys::KeyFormat;
use poolhouse::dsl::ops::create::Create;
use poolhouse::dsl::ops::destroy::{DestroyHead, DestroySnapshots};
use poolhouse::dsl::ops::key::{NewCrypt, NewKey};
use poolhouse::dsl::ops::replace::{HiddenClone, SwapHidden, hidden_name};
use poolhouse::dsl::ops::snapshot::Snapshot;
use poolhouse::dsl::{PropList, SyncTask};
use poolhouse::zpl::NewFileSystem;
use poolhouse::{OpenOptions, Pool};
use std::sync::Arc;

const KEY: [u8; 32] = [9; 32];
const FS: &str = "r/fs";
const HIDDEN: &str = "r/fs/%recv";

fn make(pool: &Pool, is_encrypted: bool) {
    let key = || NewKey {
        format: KeyFormat::Raw,
        location: None,
        key: Arc::new(WrappingKey::from_raw(KEY)),
        salt: 0,
        iterations: 0,
    };
    let suite = Some(CryptoSuite::Aes256Gcm);
    let crypt = is_encrypted.then(|| NewCrypt { suite, off: false, key: Some(key()) });
    let contents = Arc::new(NewFileSystem::new((1_000_000, 0)));
    let create = Create { name: FS.into(), contents, props: PropList::new(), crypt, enforce_limits: false };
    run(pool, vec![Box::new(create)]).unwrap();
}

fn run(pool: &Pool, tasks: Vec<Box<dyn SyncTask + Send>>) -> Result<(), String> {
    pool.spa().writer().unwrap().run_in_order(tasks).map_err(|error| format!("{error:?}"))
}

fn write(pool: &Pool, dataset: &str, path: &str, seed: u64) {
    let dataset = pool.dataset(dataset).unwrap();
    let file = dataset.open_for_writing(path).or_else(|_| dataset.create_file(path)).unwrap();
    file.write_at(&testpools::noise(seed, 300_000), 0).unwrap();
    file.sync().unwrap();
}

fn is(pool: &Pool, dataset: &str, path: &str, seed: u64) -> bool {
    let mut bytes = vec![0; 300_000];
    let file = pool.dataset(dataset).unwrap().open(path).unwrap();
    file.read_at(&mut bytes, 0).unwrap() == bytes.len() && bytes == testpools::noise(seed, 300_000)
}

fn clone(snapshot: &str) -> Vec<Box<dyn SyncTask + Send>> {
    let names = vec![snapshot.to_owned()];
    let snapshot = Snapshot { names, props: PropList::new(), enforce_limits: false };
    let origin = snapshot.names[0].clone();
    vec![Box::new(snapshot), Box::new(HiddenClone { origin, props: PropList::new() })]
}

fn swap() -> Vec<Box<dyn SyncTask + Send>> {
    vec![Box::new(SwapHidden { head: FS.to_owned() })]
}

fn end(snapshot: &str) -> Vec<Box<dyn SyncTask + Send>> {
    let names = vec![snapshot.to_owned()];
    vec![
        Box::new(DestroyHead { name: HIDDEN.to_owned() }),
        Box::new(DestroySnapshots { names, defer: false }),
    ]
}

/// Goal: a file system gets what was written to its hidden clone, at once. Earlier snapshots stay,
/// and no space is lost. While one of both is in use, or with a later snapshot, that is refused.
#[test]
fn contents_are_exchanged() {
    assert_eq!(hidden_name(FS), HIDDEN);
    for is_encrypted in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let image = dir.path().join("image");
        std::fs::File::create(&image).unwrap().set_len(256 << 20).unwrap();
        let pool = Pool::create("r", &[&[&image]]).unwrap();
        make(&pool, is_encrypted);
        write(&pool, FS, "/a", 1);
        write(&pool, FS, "/b", 2);
        pool.snapshot("r/fs@before").unwrap();
        write(&pool, FS, "/a", 3);
        run(&pool, clone("r/fs@base")).unwrap();
        assert!(run(&pool, clone("r/fs@again")).is_err());
        write(&pool, HIDDEN, "/a", 4);
        write(&pool, HIDDEN, "/new", 5);
        // What the file system gets meanwhile is lost.
        write(&pool, FS, "/b", 6);
        let names = pool.dataset_names(false).unwrap().names;
        assert_eq!(names, ["r", "r/fs"]);
        // The refused clone left its snapshot.
        assert!(run(&pool, swap()).unwrap_err().contains("NotLatest"));
        let names = vec!["r/fs@again".to_owned()];
        run(&pool, vec![Box::new(DestroySnapshots { names, defer: false })]).unwrap();
        for used in [FS, HIDDEN] {
            let dataset = pool.dataset(used).unwrap();
            let held = dataset.open_for_writing("/b").unwrap();
            assert!(run(&pool, swap()).unwrap_err().contains("Busy"));
            drop(held);
        }
        run(&pool, swap()).unwrap();
        assert!(is(&pool, FS, "/a", 4) && is(&pool, FS, "/new", 5) && is(&pool, FS, "/b", 2));
        assert!(is(&pool, HIDDEN, "/a", 3) && is(&pool, HIDDEN, "/b", 6));
        run(&pool, end("r/fs@base")).unwrap();
        assert!(pool.dataset(HIDDEN).is_err());
        assert!(is(&pool, "r/fs@before", "/a", 1) && is(&pool, "r/fs@before", "/b", 2));
        write(&pool, FS, "/new", 7);
        pool.export().unwrap();
        drop(pool);
        let options = OpenOptions { write: true, force: true, ..OpenOptions::default() };
        let pool = Pool::open(&[image], &options).unwrap();
        if is_encrypted {
            pool.load_key(FS, &KEY).unwrap();
        }
        assert!(is(&pool, FS, "/a", 4) && is(&pool, FS, "/new", 7) && is(&pool, FS, "/b", 2));
        pool.export().unwrap();
        drop(pool);
        testpools::judge(dir.path(), "r");
    }
}
