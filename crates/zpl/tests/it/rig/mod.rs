//! A pool in a file for tests that write, and the check of its on-disk state.

#![allow(dead_code)]

use ondisk::feature::{FEATURES, Feature};
use spa::create::{Beginning, Claimer, NewLeaf, NewPool, NewVdev, Setting, VdevShape, claim_file, create};
use spa::engine::{PoolWriter, SystemWorld};
use spa::import::{Options, Resources, SystemClock, import_for_writing};
use spa::{Host, OpenHead, Spa};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use testpools::HookedSource;
use zil::TxSource;
use zpl::{FileSystem, NewFileSystem, Policies, Policy, Zilog};

/// A clock for all pools together, which advances by a second with each reading.
static CLOCK: AtomicU64 = AtomicU64::new(2_000_000_000);

/// The pool as a file system sees it.
pub struct Pool {
    source: Arc<HookedSource>,
    /// Runs in the next transaction before any of its changes.
    meddle: Arc<Mutex<Option<Meddle>>>,
    spa: Arc<Spa>,
}

type Meddle = Box<dyn FnOnce(&dmu::Objset, &dmu::Tx) + Send>;

impl Pool {
    pub fn live(&self) -> &PoolWriter {
        self.spa.writer().unwrap()
    }

    pub fn log(&self) -> Option<&Zilog> {
        self.source.log()
    }

    /// Runs `how` at the start of the next transaction. Its operation then finds a changed state.
    pub fn meddle(&self, how: impl FnOnce(&dmu::Objset, &dmu::Tx) + Send + 'static) {
        *self.meddle.lock().unwrap() = Some(Box::new(how));
    }
}

fn tick() -> SystemTime {
    let secs = CLOCK.fetch_add(1, Ordering::Relaxed);
    UNIX_EPOCH + Duration::new(secs, 5)
}

/// A pool with its root file system open for changes.
pub struct Rig {
    pub fs: FileSystem,
    pub pool: Arc<Pool>,
    dir: Arc<tempfile::TempDir>,
}

fn host() -> Host {
    Host { hostid: 0x1234, hostname: "here".into() }
}

impl Rig {
    pub fn new() -> Rig {
        Self::with(&NewFileSystem::new((1_000_000, 0)), Policy::default())
    }

    pub fn with(root: &NewFileSystem, policy: Policy) -> Rig {
        Self::on(root, policy, &claim_file)
    }

    /// As `with`, on a device that `claimer` opens.
    pub fn on(root: &NewFileSystem, policy: Policy, claimer: &Claimer<'_>) -> Rig {
        Self::sized(root, policy, claimer, 512 << 20)
    }

    /// As `on`, with `size` bytes.
    pub fn sized(root: &NewFileSystem, policy: Policy, claimer: &Claimer<'_>, size: u64) -> Rig {
        Self::made(root, policy, claimer, (size, 5000))
    }

    /// A pool of an old version.
    pub fn of_version(version: u64, root: &NewFileSystem) -> Rig {
        Self::made(root, Policy::default(), &claim_file, (512 << 20, version))
    }

    fn made(root: &NewFileSystem, policy: Policy, claimer: &Claimer<'_>, (size, version): (u64, u64)) -> Rig {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("d0.img");
        std::fs::File::create(&path).unwrap().set_len(size).unwrap();
        let leaves = vec![NewLeaf { path }];
        let vdevs = vec![NewVdev { shape: VdevShape::Single, bias: None, leaves }];
        let new = NewPool { name: "tank".into(), vdevs, ashift: None, force: false };
        let features: Vec<&'static Feature> = FEATURES.iter().filter(|f| f.can_write()).collect();
        let begin = Beginning {
            features: &features,
            contents: root,
            props: &Vec::new(),
            crypt: None,
            temporary_name: None,
            version,
        };
        let setting = Setting {
            host: &host(),
            world: Arc::new(SystemWorld),
            claimer,
            workers: Arc::new(zio::Workers::new("zio", 1)),
            cache: (64u64 << 20).into(),
            altroot: None,
        };
        let spa = create(&new, &begin, &setting).unwrap();
        Self::open(Arc::new(dir), spa, policy)
    }

    fn open(dir: Arc<tempfile::TempDir>, spa: Spa, policy: Policy) -> Rig {
        let spa = Arc::new(spa);
        let root = spa.writer().unwrap().dsl().dataset("tank").unwrap();
        let head = OpenHead::open(&spa, &root).unwrap();
        head.begin_log().unwrap();
        let os = head.objset().clone();
        let meddle: Arc<Mutex<Option<Meddle>>> = Arc::default();
        let next = meddle.clone();
        let source = Arc::new(HookedSource::new(head, tick).after(move |head, tx| {
            if let Some(meddle) = next.lock().unwrap().take() {
                meddle(head.objset(), tx);
            }
        }));
        let fs = FileSystem::open_live(&os, source.clone(), Policies::new(policy)).unwrap();
        let pool = Arc::new(Pool { source, meddle, spa });
        Rig { fs, pool, dir }
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Replays the log that a crash left, and returns the number of records. All of them must
    /// apply.
    pub fn replay(&self) -> u64 {
        let os = self.pool.source.head().objset();
        let log = zil::Log::open(os, self.pool.spa.last_synced_txg().0, 0).unwrap().expect("there is a log");
        let done = zpl::replay(os, &log, self.pool.source.clone(), &Policies::default()).unwrap();
        assert!(done.ended.is_none(), "{:?}", done.ended);
        done.records
    }

    /// Number of datasets that use a feature.
    pub fn users(&self, feature: &str) -> u64 {
        let feature = Feature::by_name(feature).unwrap();
        self.pool.spa.mos().feature_refcount(feature).unwrap().unwrap_or(0)
    }

    pub fn sync(&self) {
        self.pool.live().sync_all().unwrap();
    }

    pub fn export(self) -> Arc<tempfile::TempDir> {
        let Rig { fs, pool, dir } = self;
        drop(fs);
        let Pool { source, spa, .. } = Arc::into_inner(pool).expect("nobody else has the pool");
        drop(Arc::into_inner(source).expect("nobody else has the file system"));
        spa.writer().unwrap().export().unwrap();
        drop(spa);
        dir
    }

    /// Exports the pool, checks it with `judge`, and imports it again.
    pub fn again(self, policy: Policy) -> Rig {
        let dir = self.export();
        judge(dir.path());
        Self::import(dir, policy)
    }

    /// Imports the pool in a folder.
    pub fn import(dir: Arc<tempfile::TempDir>, policy: Policy) -> Rig {
        let scan = spa::discover(&[dir.path()]);
        let options = Options { readonly: false, ..Options::default() };
        let resources =
            Resources { workers: Arc::new(zio::Workers::new("zio", 1)), world: Arc::new(SystemWorld) };
        let spa =
            import_for_writing(&scan.pools[0], &options, None, &host(), &SystemClock, resources).unwrap();
        Self::open(dir, spa, policy)
    }
}

/// The path of `zdb`: named by `ZDB`, or found in `PATH`.
fn zdb() -> Option<PathBuf> {
    let named = std::env::var_os("ZDB").map(PathBuf::from);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|d| d.join("zdb")).find(|p| p.is_file());
    named.or(found)
}

/// The output of `zdb`; `None` without one.
pub fn ask(dir: &Path, args: &[&str]) -> Option<String> {
    let out = std::process::Command::new(zdb()?).args(["-e", "-p"]).arg(dir).args(args).output().unwrap();
    let text = String::from_utf8_lossy(&out.stdout).into_owned() + &String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "zdb {args:?}: {text}");
    Some(text)
}

/// Checks with `zdb`, if there is one, that an exported pool is sound.
pub fn judge(dir: &Path) {
    if let Some(blocks) = ask(dir, &["-bcc", "tank"]) {
        assert!(blocks.contains("No leaks"), "{blocks}");
    }
}
