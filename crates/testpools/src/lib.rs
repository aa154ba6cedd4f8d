//! Helpers for tests of written pools: creating, importing and checking them.
//!
//! # Theory
//! A test creates a pool on images in a directory of its own. It changes the pool and imports it
//! again. Then OpenZFS's `zdb` checks the pool, if it is available ([`judge`]).
//!
//! | module | devices |
//! |---|---|
//! | [`patient`], [`ward`] | devices that fail, hang or return wrong data |
//! | [`clock`] | modelled disks that take time, without real waiting |
//!
//! [`HookedSource`] gives a test's file system its transactions.
//!
//! # Absent
//! * Pools that OpenZFS wrote: `testkit` has them.
//! * Errors: each failure is a panic.

#![allow(clippy::unwrap_used, clippy::missing_panics_doc, reason = "helpers of tests fail as tests do")]

pub mod clock;
pub mod patient;
mod source;
pub mod ward;

pub use source::HookedSource;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use dmu::zap::{Normalization, Value, Zap};
use dmu::{NewObject, Objset, Tx};
use dsl::ops::create::Create;
use dsl::{Contents, Need, PropList};
use ondisk::feature::{FEATURES, Feature};
use ondisk::{DmuType, ObjNum};
use spa::Host;
use spa::Spa;
use spa::create::{Beginning, Claimer, NewLeaf, NewPool, NewVdev, Setting, VdevShape, claim_file, create};
use spa::engine::{PoolWriter, SystemWorld, TaskError, World};
use spa::import::{OpenFailure, Options, Resources, SystemClock, import_for_writing};

/// The contents of a new file system: only a master node.
pub struct Empty;

impl Contents for Empty {
    fn kind(&self) -> dsl::Kind {
        dsl::Kind::Filesystem
    }

    fn fill(&self, os: &Objset, tx: &Tx) -> Result<(), Arc<dyn std::error::Error + Send + Sync>> {
        let spec = NewObject::new(DmuType::MASTER_NODE);
        let fill = || -> dmu::Result<()> {
            let (none, flags) = (Normalization::NONE, ondisk::zap::ZapFlags::default());
            let zap = Zap::create_claim(os, tx, ObjNum(1), &spec, none, flags)?;
            zap.add(tx, b"VERSION", &Value::integers(8, &[5]))
        };
        fill().map_err(|e| Arc::new(e) as _)
    }
}

/// A world with so many bytes of memory.
pub struct Memory(pub u64);

impl World for Memory {
    fn now(&self) -> u64 {
        SystemWorld.now()
    }

    fn random(&self) -> u64 {
        SystemWorld.random()
    }

    fn memory(&self) -> u64 {
        self.0
    }
}

/// Imports the only pool in a directory for writing, in a world with so many bytes of memory.
pub fn import_with_memory(dir: &Path, bytes: u64) -> Spa {
    let scan = spa::discover(&[dir]);
    let options = Options { readonly: false, force: true, ..Options::default() };
    let resources =
        Resources { workers: Arc::new(zio::Workers::new("zio", 1)), world: Arc::new(Memory(bytes)) };
    import_for_writing(&scan.pools[0], &options, None, &host(), &SystemClock, resources).unwrap()
}

/// Creates `count` images of `size` bytes each.
pub fn images(dir: &Path, count: usize, size: u64) -> Vec<PathBuf> {
    let image = |i| {
        let path = dir.join(format!("d{i}.img"));
        std::fs::File::create(&path).unwrap().set_len(size).unwrap();
        path
    };
    (0..count).map(image).collect()
}

/// The host that imports the pools.
pub fn host() -> Host {
    Host { hostid: 0x1234, hostname: "here".into() }
}

fn resources() -> Resources {
    Resources { workers: Arc::new(zio::Workers::new("zio", 1)), world: Arc::new(SystemWorld) }
}

/// A new pool of one vdev on images, with all features that Poolhouse can write.
pub fn new_pool(shape: VdevShape, images: &[PathBuf]) -> Spa {
    new_pool_on(shape, images, &claim_file)
}

/// The same on devices that `claimer` opens.
pub fn new_pool_on(shape: VdevShape, images: &[PathBuf], claimer: &Claimer<'_>) -> Spa {
    new_pool_with(shape, images, claimer, 1)
}

/// The same with this many I/O workers.
pub fn new_pool_with(shape: VdevShape, images: &[PathBuf], claimer: &Claimer<'_>, workers: usize) -> Spa {
    let leaves = images.iter().map(|p| NewLeaf { path: p.clone() }).collect();
    let features: Vec<&'static Feature> = FEATURES.iter().filter(|f| f.can_write()).collect();
    pool_on(vec![NewVdev { shape, bias: None, leaves }], &features, claimer, workers)
}

/// A new pool of these vdevs with these features.
pub fn pool_of(vdevs: Vec<NewVdev>, features: &[&'static Feature]) -> Spa {
    pool_on(vdevs, features, &claim_file, 1)
}

/// The same on devices that `claimer` opens, with this many I/O workers.
pub fn pool_on(
    vdevs: Vec<NewVdev>,
    features: &[&'static Feature],
    claimer: &Claimer<'_>,
    workers: usize,
) -> Spa {
    pool_in(vdevs, features, claimer, workers, Arc::new(SystemWorld))
}

/// The same in another world than that of the system.
pub fn pool_in(
    vdevs: Vec<NewVdev>,
    features: &[&'static Feature],
    claimer: &Claimer<'_>,
    workers: usize,
    world: Arc<dyn World>,
) -> Spa {
    let new = NewPool { name: "tank".into(), vdevs, ashift: None, force: false };
    let begin = Beginning {
        features,
        contents: &Empty,
        props: &Vec::new(),
        crypt: None,
        temporary_name: None,
        version: 5000,
    };
    let setting = Setting {
        host: &host(),
        world,
        claimer,
        workers: Arc::new(zio::Workers::new("zio", workers)),
        cache: (64u64 << 20).into(),
        altroot: None,
    };
    create(&new, &begin, &setting).unwrap()
}

/// Imports the only pool in a directory for writing.
///
/// # Errors
/// See [`import_for_writing`].
pub fn import(dir: &Path) -> Result<Spa, OpenFailure> {
    import_as(dir, Options::default())
}

/// Imports the only pool in a directory for writing, with these options.
///
/// # Errors
/// See [`import_for_writing`].
pub fn import_as(dir: &Path, options: Options) -> Result<Spa, OpenFailure> {
    let scan = spa::discover(&[dir]);
    let options = Options { readonly: false, force: true, ..options };
    import_for_writing(&scan.pools[0], &options, None, &host(), &SystemClock, resources())
}

/// A task that creates an empty file system.
pub fn file_system(name: &str, props: PropList) -> Box<Create> {
    let (name, contents) = (name.to_owned(), Arc::new(Empty));
    Box::new(Create { name, contents, props, crypt: None, enforce_limits: false })
}

/// The path of `zdb`: the value of `ZDB`, or found on the search path.
pub fn zdb() -> Option<PathBuf> {
    let named = std::env::var_os("ZDB").map(PathBuf::from);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|d| d.join("zdb")).find(|p| p.is_file());
    named.or(found)
}

/// The output of `zdb` about an exported pool. `None` if there is no `zdb`.
pub fn ask(dir: &Path, pool: &str, what: &[&str]) -> Option<String> {
    let out =
        std::process::Command::new(zdb()?).args(["-e", "-p"]).arg(dir).args(what).arg(pool).output().unwrap();
    let text = String::from_utf8_lossy(&out.stdout).into_owned() + &String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "zdb {what:?}: {text}");
    Some(text)
}

/// Reads every block of every object of an exported pool. Returns the number of bytes of file
/// contents.
pub fn read_all(dir: &Path) -> u64 {
    let scan = spa::discover(&[dir]);
    let imported = spa::import::import(&scan.pools[0], &Options::default(), &host(), &SystemClock).unwrap();
    let options = dsl::Options { pool_name: imported.name().to_owned(), ..dsl::Options::default() };
    let dsl = dsl::Dsl::open(imported.mos().clone(), options).unwrap();
    let listed = dsl.list_sorted(None, &dsl::ListOptions { snapshots: true, ..Default::default() }).unwrap();
    assert!(listed.failures.is_empty());
    let heads = listed.datasets.iter().filter_map(|d| d.objset().unwrap());
    let mut contents = 0;
    for dn in heads.chain([imported.mos().objset().clone()]).flat_map(|os| os.objects(ObjNum(1))) {
        let dn = dn.unwrap();
        let mut next = dn.next_data_block(ondisk::BlkId(0)).unwrap();
        while let Some(blkid) = next {
            let len = dn.block(blkid).unwrap().map_or(0, |b| b.len() as u64);
            contents += if dn.kind() == DmuType::PLAIN_FILE_CONTENTS { len } else { 0 };
            next = dn.next_data_block(ondisk::BlkId(blkid.0 + 1)).unwrap();
        }
    }
    contents
}

/// Checks an exported pool with `zdb`: all checksums are right, no block is leaked or allocated
/// twice.
pub fn judge(dir: &Path, pool: &str) {
    if judge_blocks(dir, pool) {
        ask(dir, pool, &["-d"]);
    }
}

/// [`judge`], but for what is in the objects: a stranger's stream may fill them with nonsense.
/// False if there is no `zdb`.
pub fn judge_blocks(dir: &Path, pool: &str) -> bool {
    let Some(blocks) = ask(dir, pool, &["-bcc"]) else { return false };
    assert!(blocks.contains("No leaks"), "{blocks}");
    true
}

/// Incompressible bytes that follow from a seed.
pub fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut seed = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let byte = || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 56) as u8
    };
    std::iter::repeat_with(byte).take(len).collect()
}

/// Owns a head dataset for writing.
pub fn own(live: &PoolWriter, name: &str) -> dsl::Owned {
    let head = live.dsl().dataset(name).unwrap();
    live.dsl().heads().own(&head).unwrap()
}

/// Creates a file of 128 KiB blocks with these bytes.
///
/// # Errors
/// * [`TaskError::Refused`]: the pool has no free space, or a quota is exceeded.
/// * [`TaskError::Stopped`]: the pool accepts no more writes.
pub fn write_file(live: &PoolWriter, owned: &dsl::Owned, bytes: &[u8]) -> Result<ObjNum, TaskError> {
    let tx = live.tx_for(owned, Need { bytes: bytes.len() as u64, netfree: false })?;
    let spec = NewObject { block_size: 1 << 17, ..NewObject::new(DmuType::PLAIN_FILE_CONTENTS) };
    let dn = owned.objset().create_object(&tx, &spec).unwrap();
    dn.write_at(&tx, 0, bytes).unwrap();
    Ok(dn.object())
}

/// Removes a file.
///
/// # Errors
/// See [`write_file`].
pub fn remove_file(live: &PoolWriter, owned: &dsl::Owned, object: ObjNum) -> Result<(), TaskError> {
    let tx = live.tx_for(owned, Need { bytes: 1 << 14, netfree: true })?;
    owned.objset().free_object(&tx, object).unwrap();
    Ok(())
}

/// The bytes of a file.
pub fn read_file(owned: &dsl::Owned, object: ObjNum, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    owned.objset().dnode(object).unwrap().read_at(0, &mut bytes).unwrap();
    bytes
}
