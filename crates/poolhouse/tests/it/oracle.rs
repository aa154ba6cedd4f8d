//! Pools that are not fixtures: the variable `ORACLE` names their directory. The test opens each
//! and reads everything.
//!
//! `scripts/oracle.sh` fills the directory with the old and unusual pools of OpenZFS's test suite,
//! and with new ones of ztest. Without the variable the test does nothing.

use std::path::Path;

use crate::common::words;
use poolhouse::dmu::Objset;
use poolhouse::dsl::keys::KeyFormat;
use poolhouse::ondisk::objset::ObjsetKind;
use poolhouse::ondisk::{BlkId, ObjNum};
use poolhouse::zpl::{DirCookie, FileSystem, FileType};
use poolhouse::{Claim, Dataset, OpenOptions, Pool};

/// Reads every file below the root. Returns the number of files.
fn read_files(fs: &FileSystem) -> Result<u64, String> {
    let mut files = 0;
    let mut pending = vec![fs.root()];
    let mut buf = vec![0; 1 << 20];
    while let Some(dir) = pending.pop() {
        for entry in fs.read_dir(dir, DirCookie(2)).map_err(|e| words(&e))? {
            let entry = entry.map_err(|e| words(&e))?;
            let node = fs.node(entry.object).map_err(|e| words(&e))?;
            node.xattrs().map_err(|e| words(&e))?;
            match node.attr().kind {
                FileType::Directory => pending.push(entry.object),
                FileType::Regular => {
                    let mut at = 0;
                    while at < node.attr().size {
                        at += node.read(at, &mut buf).map_err(|e| words(&e))?.max(1) as u64;
                    }
                    files += 1;
                }
                _ => files += 1,
            }
        }
    }
    Ok(files)
}

/// Reads every block of every object. The data of ztest is no file system.
fn read_objects(os: &Objset) -> Result<u64, String> {
    let mut objects = 0;
    for dnode in os.objects(ObjNum(1)) {
        let dnode = dnode.map_err(|e| words(&e))?;
        let mut next = dnode.next_data_block(BlkId(0)).map_err(|e| words(&e))?;
        while let Some(blkid) = next {
            dnode.block(blkid).map_err(|e| words(&e))?;
            next = dnode.next_data_block(BlkId(blkid.0 + 1)).map_err(|e| words(&e))?;
        }
        objects += 1;
    }
    Ok(objects)
}

fn read(dataset: &Dataset) -> Result<u64, String> {
    let os = dataset.objset().map_err(|e| words(&e))?;
    match os.kind() {
        // ztest's root is a file system without contents, not even a root directory.
        ObjsetKind::Zfs if os.objects(ObjNum(1)).next().is_some() => {
            read_files(&dataset.filesystem().map_err(|e| words(&e))?)
        }
        _ => read_objects(&os),
    }
}

/// Loads the keys that the test suite and ztest use.
fn load_keys(pool: &Pool) {
    for name in pool.dataset_names(false).unwrap_or_default().names {
        let dir = pool.dsl().dir(&name).unwrap();
        if dir.encryption_root().unwrap().is_some_and(|root| root.object() == dir.object()) {
            let key: &[u8] = match dir.key_format().unwrap() {
                Some(KeyFormat::Raw) => b"abcdefghijklmnopqrstuvwxyz012345",
                _ => b"password",
            };
            pool.load_key(&name, key).unwrap_or_else(|e| panic!("{name}: {}", words(&e)));
        }
    }
}

/// Goal: each pool of the directory opens, and all its files and volumes can be read.
#[test]
fn pools_of_the_oracle() {
    let Some(dir) = std::env::var_os("ORACLE") else { return };
    let dir = testkit::workspace_root().join(dir);
    let scan = poolhouse::spa::discover(&[Path::new(&dir)]);
    let mut wrong = Vec::new();
    for candidate in &scan.pools {
        let options = OpenOptions {
            pool: Some(candidate.guid.to_string()),
            force: true,
            claim: Claim::Nothing,
            ..OpenOptions::default()
        };
        let pool = match Pool::open(&[&dir], &options) {
            Ok(pool) => pool,
            // A pool version that does not exist.
            Err(error) if candidate.name == "v999-pool" => {
                assert!(words(&error).contains("version 999 is not supported"), "{}", words(&error));
                continue;
            }
            Err(error) => {
                wrong.push(format!("{}: {}", candidate.name, words(&error)));
                continue;
            }
        };
        load_keys(&pool);
        let found = pool.dataset_names(true).unwrap();
        wrong.extend(found.failures.iter().map(|(name, error)| format!("{name}: {}", words(error))));
        for name in found.names {
            match pool.dataset(&name).map_err(|e| words(&e)).and_then(|d| read(&d)) {
                Ok(count) => println!("{name}: {count} files or objects"),
                Err(error) => wrong.push(format!("{name}: {error}")),
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {} pools:\n{}", wrong.len(), scan.pools.len(), wrong.join("\n"));
    assert!(!scan.pools.is_empty(), "no pool in {}", dir.display());
}

/// Goal: every block of every object of every dataset in a big-endian pool can be read, plain or
/// encrypted.
#[test]
fn the_other_byte_order() {
    let fixture = testkit::load("big-endian");
    let options = OpenOptions { force: true, claim: Claim::Nothing, ..OpenOptions::default() };
    let pool = Pool::open(fixture.images(), &options).unwrap();
    load_keys(&pool);
    let count = |name: &String| read(&pool.dataset(name).unwrap()).unwrap_or_else(|e| panic!("{name}: {e}"));
    let found = pool.dataset_names(true).unwrap();
    assert!(found.failures.is_empty(), "{:?}", found.failures);
    let counts: Vec<u64> = found.names.iter().map(count).collect();
    // The counts of zdb on that machine, which exclude the object sets' own dnodes.
    let text = fixture.output("zdb-datasets.txt").unwrap();
    let wanted = |l: &str| l.strip_suffix(" objects")?.rsplit(' ').next()?.parse::<u64>().ok();
    let wanted: Vec<u64> =
        text.lines().filter(|l| l.starts_with("Dataset ztest")).filter_map(wanted).collect();
    assert!(wanted.len() > 3);
    assert_eq!((counts.len(), counts.iter().sum::<u64>()), (wanted.len(), wanted.iter().sum()));
}
