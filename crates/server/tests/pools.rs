//! Pools that OpenZFS wrote, imported, mounted, unmounted and exported.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "helpers of tests fail and speak as tests do")]

#[path = "pools/afs.rs"]
mod afs;

use api::{
    Budget, Caller, DatasetKind, DatasetQuery, Error, ExportRequest, KeyMaterial, LoadKeyRequest,
    MountReport, MountRequest, PropSelect, Reason, UnmountRequest,
};
use device::{Fault, Faulty, Layer};
use parking_lot::Mutex;
use poolhouse::{Claim, OpenOptions, Pool};
use server::pools::Pools;
use server::view::PoolFacts;
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

struct Stand {
    pools: Arc<Pools>,
    pool: String,
    dir: tempfile::TempDir,
}

impl Stand {
    /// Imports a fixture below its own directory. Returns `None`, with a message, if FUSE is not
    /// available.
    fn new(fixture: &str) -> Option<Self> {
        if fs::OpenOptions::new().read(true).write(true).open("/dev/fuse").is_err() {
            println!("skipped: /dev/fuse can't be opened here");
            return None;
        }
        let dir = tempfile::tempdir().unwrap();
        let fixture = testkit::load(fixture);
        let (pools, pool) = (Arc::<Pools>::default(), fixture.pool().to_owned());
        let altroot = Some(dir.path().to_str().unwrap().to_owned());
        let options = OpenOptions { altroot, claim: Claim::Nothing, ..OpenOptions::default() };
        pools
            .import(&pool, poolhouse::ondisk::Guid(7), || {
                let pool = Pool::open(fixture.images(), &options).unwrap();
                Ok((pool, PoolFacts::default(), ()))
            })
            .unwrap();
        Some(Self { pools, pool, dir })
    }

    fn mount_all(&self) -> MountReport {
        self.pools.mount(&Caller::this_process(), &MountRequest::default()).unwrap()
    }

    fn mounted(&self) -> BTreeSet<String> {
        self.pools.mounts().into_iter().map(|mount| mount.dataset).collect()
    }

    /// The path here of a path on the machine that made the pool.
    fn path(&self, path: &str) -> PathBuf {
        self.dir.path().join(path.trim_start_matches('/'))
    }

    fn mount_one(&self, dataset: &str) -> Result<(), Reason> {
        let request =
            MountRequest { datasets: vec![dataset.to_owned()], explicit: true, ..MountRequest::default() };
        let report = self.pools.mount(&Caller::this_process(), &request).map_err(|error| error.reason)?;
        report.failures.into_iter().next().map_or(Ok(()), |failure| Err(failure.error.reason))
    }

    fn unmount(&self, name: &str, force: bool) -> Result<(), Reason> {
        let request = UnmountRequest { names: vec![name.to_owned()], force, ..UnmountRequest::default() };
        let report = self.pools.unmount(&Caller::this_process(), &request).map_err(|error| error.reason)?;
        report.failures.into_iter().next().map_or(Ok(()), |failure| Err(failure.error.reason))
    }

    fn export(&self, force: bool) -> Result<(), Reason> {
        let request = ExportRequest { name: self.pool.clone(), force, ..ExportRequest::default() };
        self.pools.export(&Caller::this_process(), &request).map_err(|error| error.reason)
    }
}

impl Drop for Stand {
    fn drop(&mut self) {
        let left = self.pools.close(Duration::from_secs(60), |_, _| {});
        assert!(left.is_empty() || std::thread::panicking(), "{left:?}");
    }
}

fn in_table(dir: &Path) -> usize {
    fuse::system::table().unwrap().iter().filter(|mount| mount.target.starts_with(dir)).count()
}

/// Goal: each file system that should be mounted is mounted at its place, parents before children,
/// with the files of its manifest. The export leaves no mount.
#[test]
fn mounts_a_whole_pool_and_exports_it() {
    let Some(stand) = Stand::new("single-lz4") else { return };
    let report = stand.mount_all();
    assert!(report.failures.is_empty(), "{:?}", report.failures);
    assert_eq!(report.mounted, report.total);
    let mounts = stand.pools.mounts();
    assert_eq!(report.mounted as usize, mounts.len());
    assert_eq!(in_table(stand.dir.path()), mounts.len());
    let root = mounts.iter().find(|mount| mount.dataset == stand.pool).unwrap();
    for manifest in testkit::load("single-lz4").manifests() {
        // The manifest's names are relative to the mount point on the machine that made the pool.
        let Some(mount) = mounts.iter().find(|mount| mount.dataset == manifest.dataset) else { continue };
        let entries = manifest.entries();
        for entry in entries.iter().filter(|entry| !entry.path.is_empty() && entry.path.len() < 1000).take(50)
        {
            let path = Path::new(&mount.mountpoint)
                .join(<std::ffi::OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(&entry.path));
            let meta = fs::symlink_metadata(&path).unwrap();
            // A directory with a file system mounted on it shows that file system's root.
            if !mounts.iter().any(|other| Path::new(&other.mountpoint) == path) {
                assert_eq!(meta.ino(), entry.ino, "{}", path.display());
            }
        }
    }
    assert!(stand.mount_all().mounted == 0, "everything is mounted already");
    assert_eq!(stand.mount_one(&stand.pool), Err(Reason::AlreadyMounted));
    let listed = std::process::Command::new("ls").arg("-lR").arg(&root.mountpoint).output().unwrap();
    assert!(listed.status.success(), "{}", String::from_utf8_lossy(&listed.stderr));
    stand.export(false).unwrap();
    assert!(stand.pools.table().is_empty());
    assert_eq!(in_table(stand.dir.path()), 0);
}

/// Goal: snapshots can be entered below a mount and hold their files. `cp` does not confuse a file
/// with its snapshot.
#[test]
fn shows_snapshots() {
    let Some(stand) = Stand::new("single-lz4") else { return };
    stand.mount_all();
    let dataset = format!("{}/snaps", stand.pool);
    let mount = stand.pools.mounts().into_iter().find(|mount| mount.dataset == dataset).unwrap();
    let fixture = testkit::load("single-lz4");
    let snapshots: Vec<_> =
        fixture.manifests().into_iter().filter(|m| m.dataset.starts_with(&format!("{dataset}@"))).collect();
    assert!(snapshots.len() >= 3);
    for manifest in snapshots {
        let name = manifest.dataset.split_once('@').unwrap().1.to_owned();
        let root = Path::new(&mount.mountpoint).join(".zfs/snapshot").join(&name);
        for entry in manifest.entries().iter().filter(|entry| entry.sha256.is_some()) {
            let path = <std::ffi::OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(&entry.path);
            let (old, new) = (root.join(path), Path::new(&mount.mountpoint).join(path));
            assert_eq!(fs::metadata(&old).unwrap().size(), entry.size, "{}", old.display());
            if let Ok(live) = fs::metadata(&new) {
                let old = fs::metadata(&old).unwrap();
                assert_ne!((old.dev(), old.ino()), (live.dev(), live.ino()));
            }
        }
    }
}

/// Goal: a busy file system is not unmounted and blocks the export of its pool, forced or not, as
/// on Linux.
#[test]
fn busy_file_systems_hold_on() {
    let Some(stand) = Stand::new("mirror2") else { return };
    stand.mount_all();
    let mount = stand.pools.mounts().into_iter().find(|mount| mount.dataset == stand.pool).unwrap();
    let user = fs::File::open(&mount.mountpoint).unwrap();
    let count = stand.mounted().len();
    let busy_by = |done: Result<(), Reason>, whom: &str| match done {
        Err(Reason::HeldOpen { by }) => assert!(by.contains(whom), "{by}"),
        other => panic!("{other:?}"),
    };
    busy_by(stand.unmount(&mount.mountpoint, false), "/sub', mounted at ");
    busy_by(stand.export(false), "this daemon, which has ");
    assert!(!stand.pools.table().is_empty());
    // The children were unmounted by then. The pool is as usable as before.
    assert!(stand.mounted().len() <= count);
    stand.mount_all();
    assert_eq!(stand.mounted().len(), count);
    assert_eq!(stand.unmount("/nowhere", false), Err(Reason::NotAMountpoint));
    assert_eq!(stand.unmount("none/such", false), Err(Reason::NoSuchDataset));
    busy_by(stand.export(true), "this daemon, which has ");
    drop(user);
    stand.export(true).unwrap();
    assert_eq!(in_table(stand.dir.path()), 0);
}

/// Goal: a file system that was unmounted from outside can be mounted again.
#[test]
fn notices_an_unmount_from_outside() {
    let Some(stand) = Stand::new("mirror2") else { return };
    stand.mount_one(&stand.pool).unwrap();
    let mount = stand.pools.mounts().remove(0);
    let out = std::process::Command::new("umount").arg(&mount.mountpoint).output().unwrap();
    assert!(out.status.success(), "{out:?}");
    // The workers notice it a moment later. A new mount does not wait for them.
    while !stand.pools.mounts().is_empty() {
        std::thread::yield_now();
    }
    stand.mount_one(&stand.pool).unwrap();
    stand.unmount(&stand.pool, false).unwrap();
    assert_eq!(stand.unmount(&stand.pool, false), Err(Reason::NotMounted));
}

/// Goal: encrypted file systems are not mounted until their key is loaded, and block its unloading
/// while they are mounted.
#[test]
fn encrypted_file_systems_wait_for_their_key() {
    let Some(stand) = Stand::new("encrypted") else { return };
    let root = format!("{}/pass", stand.pool);
    let report = stand.mount_all();
    assert!(report.failures.is_empty(), "{:?}", report.failures);
    assert!(!stand.mounted().contains(&root));
    assert_eq!(stand.mount_one(&root), Err(Reason::KeyNotLoaded));
    let load = |key: &[u8], noop| {
        let key = KeyMaterial::Passphrase(key.to_vec());
        stand
            .pools
            .load_key(&Caller::this_process(), &LoadKeyRequest { dataset: root.clone(), key, noop })
            .map_err(|error| error.reason)
    };
    assert_eq!(load(b"wrong horse", false), Err(Reason::WrongKey));
    load(b"correct horse", true).unwrap();
    assert_eq!(stand.mount_one(&root), Err(Reason::KeyNotLoaded));
    load(b"correct horse", false).unwrap();
    assert_eq!(load(b"correct horse", false), Err(Reason::KeyLoaded));
    stand.mount_one(&root).unwrap();
    let mount = stand.pools.mounts().into_iter().find(|mount| mount.dataset == root).unwrap();
    assert!(fs::read_dir(&mount.mountpoint).unwrap().count() > 0);
    assert_eq!(stand.pools.unload_key(&Caller::this_process(), &root).unwrap_err().reason, Reason::Busy);
    stand.unmount(&root, false).unwrap();
    stand.pools.unload_key(&Caller::this_process(), &root).unwrap();
    assert_eq!(stand.mount_one(&root), Err(Reason::KeyNotLoaded));
}

/// Goal: mount options are known or refused, and an explicit mount point is created with its
/// parents. Invalid and unknown datasets are refused.
#[test]
fn heeds_the_properties() {
    let Some(stand) = Stand::new("single-lz4") else { return };
    let nothing = || MountRequest { datasets: vec![stand.pool.clone()], ..MountRequest::default() };
    let bad = MountRequest { options: vec!["sync".into()], ..nothing() };
    assert!(matches!(
        stand.pools.mount(&Caller::this_process(), &bad).unwrap_err().reason,
        Reason::BadMountOption { .. }
    ));
    assert_eq!(stand.mount_one("none/such"), Err(Reason::NoSuchDataset));
    assert_eq!(stand.mount_one("a b@c@d"), Err(Reason::InvalidName));
    let root = stand.path("/elsewhere/deep");
    let request = MountRequest {
        options: vec![format!("mntpoint={}", root.display()), "nosuid".into(), "nodev".into()],
        explicit: true,
        ..nothing()
    };
    let report = stand.pools.mount(&Caller::this_process(), &request).unwrap();
    assert!(report.failures.is_empty(), "{report:?}");
    let mount = stand.pools.mounts().remove(0);
    assert_eq!(Path::new(&mount.mountpoint), root);
    assert!(mount.options.contains("nosuid") && mount.options.contains("nodev"), "{}", mount.options);
    let shown = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let line = shown.lines().find(|line| line.contains("/elsewhere/deep ")).unwrap();
    assert!(line.contains(" ro,nosuid,nodev"), "{line}");
}

/// Goal: a history comes in parts of the requested size, which together are the whole.
#[test]
fn history_comes_in_parts() {
    let fixture = testkit::load("single-lz4");
    let options = OpenOptions { claim: Claim::Nothing, ..OpenOptions::default() };
    let pool = Pool::open(fixture.images(), &options).unwrap();
    let part = |from, bytes| server::view::history("single-lz4", pool.spa().mos(), from, bytes).unwrap();
    let whole = part(0, u64::MAX);
    assert!(whole.records.len() > 20 && whole.next.is_none());
    let (mut records, mut parts, mut from) = (Vec::new(), 0, Some(0));
    while let Some(begin) = from {
        let page = part(begin, 4 << 10);
        assert!(page.next.is_none_or(|next| next > begin));
        records.extend(page.records);
        (parts, from) = (parts + 1, page.next);
    }
    assert!(parts > 3, "{parts}");
    assert_eq!(records, whole.records);
}

/// Goal: a pool whose datasets can't be listed is reported by name, whether the request means all
/// pools or names some. The file systems of the others are mounted.
///
/// A request for that pool alone fails.
#[test]
fn a_pool_that_fails_keeps_no_other_from_being_mounted() {
    let Some(stand) = Stand::new("single-lz4") else { return };
    let fixture = testkit::load("mirror2");
    // A name that sorts first, so that its failure comes before the other pool.
    let sick = "a-sick-pool";
    let devices: Arc<Mutex<Vec<Arc<Faulty>>>> = Arc::default();
    let kept = Arc::clone(&devices);
    let layer = Layer::new(move |device| {
        let faulty = Arc::new(Faulty::new(device, 1));
        kept.lock().push(Arc::clone(&faulty));
        faulty
    });
    let scan = spa::discover(fixture.images());
    let open = OpenOptions { claim: Claim::Nothing, name: Some(sick.into()), ..OpenOptions::default() };
    // Without a cache, the listing must read from the device.
    let options = spa::import::Options { layer, cache: 0u64.into(), ..open.import() };
    let host = spa::Host::of_system();
    stand
        .pools
        .import(sick, poolhouse::ondisk::Guid(8), || {
            let spa =
                spa::import::import(&scan.pools[0], &options, &host, &spa::import::SystemClock).unwrap();
            let altroot = Some(stand.dir.path().join("sick").to_str().unwrap().to_owned());
            Ok((Pool::with_spa(spa, altroot).unwrap(), PoolFacts::default(), ()))
        })
        .unwrap();
    devices.lock().iter().for_each(|device| device.inject(Fault::Gone));
    for names in [vec![], vec![sick.to_owned(), stand.pool.clone()]] {
        let request = MountRequest { datasets: names, recursive: true, ..MountRequest::default() };
        let report = stand.pools.mount(&Caller::this_process(), &request).unwrap();
        let failed: Vec<&str> = report.failures.iter().map(|failure| failure.name.as_str()).collect();
        assert_eq!(failed, [sick]);
        assert!(report.mounted > 0 && stand.mounted().contains(&stand.pool), "{report:?}");
        assert!(
            stand
                .pools
                .unmount(&Caller::this_process(), &UnmountRequest::default())
                .unwrap()
                .failures
                .is_empty()
        );
    }
    let alone = MountRequest { datasets: vec![sick.into()], recursive: true, ..MountRequest::default() };
    assert_eq!(
        stand.pools.mount(&Caller::this_process(), &alone).map_err(|error| error.about),
        Err(sick.to_owned())
    );
}

/// Goal: an import that completes while all pools are closed is exported again, and the close waits
/// for that. Later imports are refused.
#[test]
fn ends_while_a_pool_comes() {
    let copy = testkit::load("mirror2").copy();
    let pools = Arc::new(Pools::default());
    let options = OpenOptions { write: true, ..OpenOptions::default() };
    let ending = Mutex::new(None);
    let guid = poolhouse::ondisk::Guid;
    let imported = pools.import("coming", guid(7), || {
        let pool = Pool::open(copy.images(), &options).unwrap();
        let own = Arc::clone(&pools);
        let close = move || own.close(Duration::from_secs(600), |_, _| {});
        *ending.lock() = Some(std::thread::spawn(close));
        let another = || {
            let none = || Err::<(Pool, PoolFacts, ()), _>(Error::new("another", Reason::NoSuchImport));
            pools.import("another", guid(8), none).unwrap_err().reason
        };
        while another() == Reason::NoSuchImport {
            std::thread::yield_now();
        }
        Ok((pool, PoolFacts::default(), ()))
    });
    assert!(matches!(imported.unwrap_err().reason, Reason::Daemon { .. }));
    assert!(ending.into_inner().unwrap().join().unwrap().is_empty());
    assert!(pools.table().is_empty());
    let found = spa::discover(copy.images());
    assert_eq!(found.pools[0].state, poolhouse::ondisk::config::PoolState::Exported);
}

/// Goal: a list of datasets that would exceed its budget ends with an error and releases its
/// memory. The same list fits into a large budget.
#[test]
fn lists_keep_to_their_budget() {
    let fixture = testkit::load("single-lz4");
    let options = OpenOptions { claim: Claim::Nothing, ..OpenOptions::default() };
    let pool = Pool::open(fixture.images(), &options).unwrap();
    let list = |root: Option<&str>, budget: &Budget| {
        let query = DatasetQuery {
            root: root.map(str::to_owned),
            depth: root.map(|_| 0),
            kinds: vec![DatasetKind::Filesystem, DatasetKind::Volume, DatasetKind::Snapshot],
            props: PropSelect::All,
            ..DatasetQuery::default()
        };
        pool.spa().read(|| server::view::datasets(pool.dsl(), &query, true, &|_| None, budget))
    };
    let all = list(None, &Budget::of(16 << 20)).unwrap();
    assert!(all.datasets.len() > 2 && all.failures.is_empty());
    for root in [None, Some(fixture.pool())] {
        let little = Budget::of(4 << 10);
        assert_eq!(list(root, &little).unwrap_err().reason, Reason::TooMuch);
    }
    let memory = serde_json::to_string(&all).unwrap().len() as u64;
    assert!(list(None, &Budget::of(memory)).is_err(), "what it takes in memory is more than its text");
}
