//! Scans and imports through the whole engine, in this process.

use crate::common;

use std::io::Write;
use std::os::unix::fs::{OpenOptionsExt, symlink};
use std::path::Path;
use std::process::Command;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use crate::common::{Ran, run};
use api::{ImportRequest, Requests, Rewind, ScanRequest};
use fuzzing::labels::{protect, relabel};
use ondisk::config::PoolState;
use ondisk::{Nvlist, Value};
use server::service::LocalService;
use spa::Host;
use spa::import::Clock;
use testkit::Fixture;

/// A directory with some of a fixture's devices, as private copies that an import may write.
struct Folder {
    dir: tempfile::TempDir,
    _copy: testkit::FixtureCopy,
}

impl Folder {
    fn path(&self) -> &Path {
        self.dir.path()
    }
}

fn folder(f: &Fixture, which: &[usize]) -> Folder {
    let (dir, copy) = (tempfile::tempdir().unwrap(), f.copy());
    for &n in which {
        let image = &copy.images()[n];
        symlink(image, dir.path().join(image.file_name().unwrap())).unwrap();
    }
    Folder { dir, _copy: copy }
}

fn house() -> Rc<dyn Requests> {
    Rc::new(LocalService::new().in_process())
}

fn import(service: &Rc<dyn Requests>, dir: &Path, rest: &str) -> Ran {
    run(&format!("zpool import -d {} {rest}", dir.display()), service.clone())
}

/// The columns of a table, separated by single spaces.
fn squeezed(text: &str, dir: &Path) -> String {
    let text = text.replace(&dir.display().to_string(), "DIR");
    let lines = text.lines().map(|l| l.split_whitespace().collect::<Vec<_>>().join(" "));
    lines.collect::<Vec<_>>().join("\n")
}

/// Goal: every fixture's pool is found with all its vdevs in order, and in the state in which it
/// was left.
#[test]
fn finds_every_pool() {
    for f in testkit::names().into_iter().filter_map(|n| testkit::find(&n)) {
        let all: Vec<usize> = (0..f.images().len()).collect();
        let dir = folder(&f, &all);
        let ran = import(&house(), dir.path(), "");
        assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{}", f.name());
        assert!(ran.out.contains(&format!("  pool: {}\n", f.pool())), "{}: {}", f.name(), ran.out);
        // A device that was removed from its pool no longer belongs to it.
        for image in f.images().iter().filter(|_| f.name() != "removed-vdev") {
            let name = image.file_name().unwrap().to_string_lossy();
            assert!(ran.out.contains(&*name), "{}: {name} is missing:\n{}", f.name(), ran.out);
        }
    }
}

/// Goal: a pool with enough redundancy for a missing device shows that with OpenZFS's messages.
#[test]
fn a_device_is_missing() {
    let Some(f) = testkit::find("raidz1-3") else { return };
    let dir = folder(&f, &[0, 1]);
    let ran = import(&house(), dir.path(), "");
    assert_eq!(
        squeezed(&ran.out, dir.path()).split_once("state:").unwrap().1,
        " DEGRADED
status: One or more devices are missing from the system.
action: The pool can be imported despite missing or damaged devices. The
fault tolerance of the pool may be compromised if imported.
see: https://openzfs.github.io/openzfs-docs/msg/ZFS-8000-2Q
config:

POOL DEGRADED
raidz1-0 DEGRADED
DIR/d0.img ONLINE
DIR/d1.img ONLINE
/fx/pools/raidz1-3/d2.img UNAVAIL cannot open"
            .replace("POOL", f.pool())
    );
}

/// Goal: a pool without enough devices is shown as such, and not imported.
#[test]
fn too_much_is_missing() {
    let Some(f) = testkit::find("raidz1-3") else { return };
    let dir = folder(&f, &[0]);
    let service = house();
    let ran = import(&service, dir.path(), "");
    assert_eq!(
        squeezed(&ran.out, dir.path()).split_once("config:").unwrap().1.trim(),
        "POOL UNAVAIL insufficient replicas
raidz1-0 UNAVAIL insufficient replicas
DIR/d0.img ONLINE
/fx/pools/raidz1-3/d1.img UNAVAIL cannot open
/fx/pools/raidz1-3/d2.img UNAVAIL cannot open"
            .replace("POOL", f.pool())
    );
    let ran = import(&service, dir.path(), &format!("-o readonly=on {}", f.pool()));
    let expected = format!("cannot import '{}': one or more devices is currently unavailable\n", f.pool());
    assert_eq!((ran.code, ran.err), (1, expected));
}

/// Goal: a pool without its log device is imported only with `-m`, and the device is named.
#[test]
fn the_log_is_missing() {
    let Some(f) = testkit::find("stripe-classes") else { return };
    let dir = folder(&f, &[0, 1, 2, 3, 5, 6]);
    let service = house();
    let ran = import(&service, dir.path(), &format!("-N -o readonly=on {}", f.pool()));
    assert_eq!(ran.code, 1);
    let devices = "The devices below are missing or corrupted, use '-m' to import the pool anyway:\n\
                   \t  /fx/pools/stripe-classes/d4.img\n\n";
    assert_eq!(ran.out, devices);
    let ran = import(&service, dir.path(), &format!("-N -m -o readonly=on {}", f.pool()));
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    assert_eq!(run("zpool list -H -o name,health", service.clone()).out, format!("{}\tDEGRADED\n", f.pool()));
}

/// Goal: a pool is imported for writing and written, imported read-only under a new name, hidden
/// from scans, and exported. A pool that can't be written shows why.
#[test]
fn in_and_out() {
    let Some(f) = testkit::find("mirror2") else { return };
    let dir = folder(&f, &[0, 1]);
    let service = house();
    let ran = import(&service, dir.path(), &format!("-f -N -o failmode=never {}", f.pool()));
    assert_eq!(ran.code, 1, "{ran:?}");
    assert_eq!(run("zpool list", service.clone()).out, "no pools available\n");
    let ran = import(&service, dir.path(), &format!("-f -N -R /r -o comment=mine {}", f.pool()));
    assert_eq!((ran.code, ran.out, ran.err), (0, String::new(), String::new()));
    assert_eq!(run("zpool get -H -o value comment", service.clone()).out, "mine\n");
    assert_eq!(run("zpool list -H -o readonly,altroot", service.clone()).out, "off\t/r\n");
    let ran = run(&format!("zfs snapshot {}@ours", f.pool()), service.clone());
    assert_eq!(ran.code, 0, "{ran:?}");
    let history = run(&format!("zpool history {}", f.pool()), service.clone()).out;
    let (imported, snapshot) = (history.find(" zpool import "), history.find("@ours\n"));
    assert!(imported.is_some() && imported < snapshot, "{history}");
    assert_eq!(run(&format!("zpool export {}", f.pool()), service.clone()).code, 0);
    let ran = import(&service, dir.path(), &format!("-N -o readonly=maybe {}", f.pool()));
    let expected = format!("cannot import pool '{}': 'readonly' must be one of 'on | off'\n", f.pool());
    assert_eq!((ran.code, ran.err), (1, expected));
    let ran = import(&service, dir.path(), &format!("-N -R /r -o readonly=on {} renamed", f.pool()));
    assert_eq!((ran.code, ran.out, ran.err), (0, String::new(), String::new()));
    let ran = run("zpool list -H -o name,readonly,altroot", service.clone());
    assert_eq!(ran.out, "renamed\ton\t/r\n");
    assert_eq!(import(&service, dir.path(), "").err, "no pools available to import\n");
    let ran = run("zfs list -Hr -d0 -o name,mountpoint renamed", service.clone());
    assert!(ran.out.starts_with("renamed\t/r/m/"), "{}", ran.out);
    assert_eq!(run("zfs list -H -o name renamed@ours", service.clone()).out, "renamed@ours\n");
    assert_eq!(run("zpool export renamed", service.clone()).code, 0);
    assert_eq!(run("zpool list", service).out, "no pools available\n");
    let Some(f) = testkit::find("v28") else { return };
    let (dir, service) = (folder(&f, &[0]), house());
    let ran = import(&service, dir.path(), &format!("-f -N {}", f.pool()));
    assert_eq!((ran.code, ran.err), (0, String::new()), "pools of old versions are written");
    let (version, upgrade) =
        (format!("zpool get -Ho value version {}", f.pool()), "zpool upgrade -V 5000 -a");
    assert_eq!(run(&version, service.clone()).out, "28\n");
    assert_eq!(run(upgrade, service.clone()).code, 0);
    assert_eq!(run(&version, service.clone()).out, "-\n");
    assert_eq!(run(&format!("zpool export {}", f.pool()), service).code, 0);
}

/// Goal: a pool that another host left in use needs `-f`, a rewind shows its target, and a dry run
/// imports nothing.
#[test]
fn force_and_rewind() {
    let Some(f) = testkit::find("zil-crash") else { return };
    let dir = folder(&f, &[0]);
    let service = house();
    let ran = import(&service, dir.path(), &format!("-N -o readonly=on {}", f.pool()));
    assert_eq!(ran.code, 1);
    assert!(
        ran.err.contains("pool was previously in use from another system.\nLast accessed by "),
        "{}",
        ran.err
    );
    let ran = import(&service, dir.path(), &format!("-fFn {}", f.pool()));
    assert!(ran.out.starts_with("Would be able to return "), "{ran:?}");
    assert_eq!(run("zpool list -H", service.clone()).out, "");
    let ran = import(&service, dir.path(), &format!("-N -fF -o readonly=on {}", f.pool()));
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(ran.out.starts_with(&format!("Pool {} returned to its state as of ", f.pool())), "{}", ran.out);
}

/// Goal: a pool has one owner: while it is imported here it can't be imported elsewhere, and after
/// its export it can.
#[test]
fn one_owner() {
    let copy = testkit::load("mirror2").copy();
    let (here, there) = (house(), house());
    let import_in = |service: &Rc<dyn Requests>| import(service, copy.dir(), "-N -o readonly=on xmirror2");
    assert_eq!(import_in(&here).code, 0);
    let refused = "cannot import 'xmirror2': one or more devices are already in use\n\n";
    let ran = import_in(&there);
    assert_eq!((ran.code, ran.out.as_str(), ran.err.as_str()), (1, "", refused));
    let found = import(&there, copy.dir(), "");
    assert!(found.out.contains(" state: ONLINE\n"), "it can still be looked at: {found:?}");
    assert_eq!(run("zpool export xmirror2", here).code, 0);
    assert_eq!(import_in(&there).code, 0);
}

/// A loop device over an image, which is detached on drop.
struct Loop(String);

impl Loop {
    /// Returns `None` if a loop device can't be created.
    fn over(image: &Path) -> Option<Loop> {
        let made = Command::new("losetup").args(["--find", "--show"]).arg(image).output().ok()?;
        let name = String::from_utf8(made.stdout).ok()?.trim().to_owned();
        (made.status.success() && !name.is_empty()).then_some(Loop(name))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        // A failure leaves the device, which can't be helped.
        let _ = Command::new("losetup").args(["--detach", &self.0]).status();
    }
}

/// Goal: block devices are claimed for reading too: a program that holds one prevents the import,
/// and the import keeps other programs out.
#[test]
fn one_owner_of_block_devices() {
    let copy = testkit::load("mirror2").copy();
    let loops: Option<Vec<Loop>> = copy.images().iter().map(|image| Loop::over(image)).collect();
    let Some(loops) = loops else {
        println!("not tested: no loop devices here");
        return;
    };
    let (here, there) = (house(), house());
    let devices: Vec<String> = loops.iter().map(|l| format!("-d {}", l.0)).collect();
    let line = format!("zpool import {} -N -o readonly=on xmirror2", devices.join(" "));
    let hold = || {
        // As a mount or the kernel's own import would.
        let excl = rustix::fs::OFlags::EXCL.bits().cast_signed();
        std::fs::File::options().read(true).custom_flags(excl).open(&loops[1].0)
    };
    let refused = "cannot import 'xmirror2': one or more devices are already in use\n\n";
    let other = hold().unwrap();
    assert_eq!(run(&line, here.clone()).err, refused);
    let by_images = |service: &Rc<dyn Requests>| import(service, copy.dir(), "-N -o readonly=on xmirror2");
    assert_eq!(by_images(&here).err, refused, "the image is the same disk");
    drop(other);
    assert_eq!(by_images(&here).code, 0);
    assert_eq!(hold().unwrap_err().kind(), std::io::ErrorKind::ResourceBusy);
    assert_eq!(run("zpool export xmirror2", here.clone()).code, 0);
    assert_eq!(run(&line, here.clone()), Ran { code: 0, out: String::new(), err: String::new() });
    assert_eq!(hold().unwrap_err().kind(), std::io::ErrorKind::ResourceBusy);
    assert_eq!(run(&line, there.clone()).err, refused);
    assert_eq!(by_images(&there).err, refused);
    assert_eq!(run("zpool export xmirror2", here).code, 0);
    assert!(hold().is_ok());
}

/// A clock on which only sleeping passes time.
#[derive(Default)]
struct Hand(Arc<AtomicU64>);

impl Clock for Hand {
    fn now(&self) -> Duration {
        Duration::from_secs(self.0.load(Relaxed))
    }
    fn sleep(&self, time: Duration) -> bool {
        self.0.fetch_add(time.as_secs(), Relaxed);
        true
    }
    fn random(&self, _: u32) -> u32 {
        0
    }
}

/// Goal: a pool that another host may be writing is watched once, by the scan. The import does not
/// wait again.
#[test]
fn watched_once() {
    let Some(f) = testkit::find("zil-freeze") else { return };
    let copy = f.copy();
    // An interval of one second, of which five may fail: watch for ten seconds.
    protect(&copy.images()[0], 1, 5 << 48 | 1 << 32 | 1000 << 8 | 7);
    let clock = Hand::default();
    let secs = clock.0.clone();
    let host = Host { hostid: 7, hostname: "elsewhere".into() };
    let service: Rc<dyn Requests> = Rc::new(LocalService::on(host, Box::new(clock)).in_process());
    let ran = import(&service, copy.dir(), &format!("-f -N -o readonly=on {}", f.pool()));
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    assert_eq!(secs.load(Relaxed), 10);
}

/// Goal: destroyed pools are shown and imported only with `-D`, as such.
#[test]
fn destroyed_pools() {
    let copy = testkit::load("mirror2").copy();
    let destroyed = PoolState::Destroyed as u64;
    for image in copy.images() {
        relabel(image, |nv| nv.set("state", ondisk::Value::Uint64(destroyed)));
    }
    let service = house();
    let ran = import(&service, copy.dir(), "");
    assert_eq!((ran.code, ran.out.as_str(), ran.err.as_str()), (0, "", "no pools available to import\n"));
    let ran = import(&service, copy.dir(), "-D");
    assert!(ran.out.starts_with("  pool: xmirror2\n"), "{}", ran.out);
    assert!(ran.out.contains("\n state: ONLINE (DESTROYED)\n"), "{}", ran.out);
    let named = "-f -N -o readonly=on xmirror2";
    let ran = import(&service, copy.dir(), named);
    assert_eq!((ran.code, ran.err.as_str()), (1, "cannot import 'xmirror2': no such pool available\n"));
    let ran = import(&service, copy.dir(), &format!("-D {named}"));
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    assert_eq!(run("zpool list -H -o name,health", service).out, "xmirror2\tONLINE\n");
}

/// Writes a cache file that names these devices of a pool (`spa_write_cachefile`).
fn cachefile(pool: &str, guid: u64, devices: &[String]) -> tempfile::NamedTempFile {
    let list = |entries: Vec<(&str, Value)>| {
        let mut nv = Nvlist::new();
        entries.into_iter().for_each(|(name, value)| nv.set(name, value));
        nv
    };
    let leaf = |(id, path): (usize, &String)| {
        let path = Value::String(path.clone().into_bytes());
        let kind = Value::String(b"file".to_vec());
        list(vec![
            ("type", kind),
            ("id", Value::Uint64(id as u64)),
            ("guid", Value::Uint64(1)),
            ("path", path),
        ])
    };
    let children = devices.iter().enumerate().map(leaf).collect();
    let root = list(vec![
        ("type", Value::String(b"root".to_vec())),
        ("id", Value::Uint64(0)),
        ("guid", Value::Uint64(guid)),
        ("children", Value::ListArray(children)),
    ]);
    let config = list(vec![("pool_guid", Value::Uint64(guid)), ("vdev_tree", Value::List(root))]);
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(&list(vec![(pool, Value::List(config))]).encode_xdr()).unwrap();
    file
}

/// Goal: a cache file tells where to scan. If its devices have other names now, their directories
/// are scanned. Another file is refused with OpenZFS's message.
#[test]
fn from_a_cache_file() {
    let copy = testkit::load("mirror2").copy();
    let guid = spa::discover(copy.images()).pools[0].guid.0;
    let paths: Vec<String> = copy.images().iter().map(|i| i.display().to_string()).collect();
    let service = house();
    let right = cachefile("xmirror2", guid, &paths);
    let ran = run(
        &format!("zpool import -c {} -N -o readonly=on xmirror2", right.path().display()),
        service.clone(),
    );
    assert_eq!(ran, Ran { code: 0, out: String::new(), err: String::new() });
    assert_eq!(run("zpool export xmirror2", service.clone()).code, 0);
    let moved: Vec<String> = paths.iter().map(|p| format!("{p}.moved")).collect();
    let moved = cachefile("xmirror2", guid, &moved);
    let ran = run(
        &format!("zpool import -c {} -N -o readonly=on xmirror2", moved.path().display()),
        service.clone(),
    );
    assert_eq!(
        (ran.code, ran.out.as_str(), ran.err.as_str()),
        (0, "cachefile import failed, retrying\n", "cannot import 'xmirror2': no such pool available\n")
    );
    std::fs::write(right.path(), "no list").unwrap();
    let ran = run(&format!("zpool import -c {}", right.path().display()), service.clone());
    let refused = "invalid or corrupt cache file contents: invalid or missing cache file\n";
    assert_eq!((ran.code, ran.err.as_str()), (1, refused));
    let ran = run("zpool import -c /nowhere", service);
    assert_eq!((ran.code, ran.err.as_str()), (1, "failed to open cache file: No such file or directory\n"));
}

/// Goal: if the devices of a pool in a cache file are gone, an import of all pools names it and
/// imports the others.
#[test]
fn gone_from_a_cache_file() {
    let copy = testkit::load("mirror2").copy();
    let guid = spa::discover(copy.images()).pools[0].guid.0;
    let paths: Vec<String> = copy.images().iter().map(|i| i.display().to_string()).collect();
    let service = house();
    let file = cachefile("gone", 7, &["/nowhere/d0".to_owned()]);
    let read = |path: &Path| Nvlist::decode(&std::fs::read(path).unwrap()).unwrap();
    let all = |options: &str| format!("zpool import -c {} {options}", file.path().display());
    let alone = run(&all("-aN"), service.clone());
    let retry = "cachefile import failed, retrying\n";
    let gone = "cannot import 'gone': no such pool or dataset\n";
    assert_eq!(alone, Ran { code: 1, out: retry.into(), err: gone.into() });
    let mut list = read(file.path());
    let other = cachefile("xmirror2", guid, &paths);
    list.set("xmirror2", read(other.path()).get("xmirror2").unwrap().clone());
    std::fs::write(file.path(), list.encode_xdr()).unwrap();
    let both = run(&all("-N -o readonly=on -a"), service.clone());
    assert_eq!(both, Ran { code: 1, out: retry.into(), err: gone.into() });
    assert_eq!(run("zpool list -H -o name", service.clone()).out, "xmirror2\n");
    assert_eq!(run("zpool export xmirror2", service).code, 0);
}

/// Goal: after a rewind for writing, the outcome has the time of the state that was loaded, and how
/// much was discarded since. This holds although the import has written by then.
#[test]
fn the_time_that_it_went_back_to() {
    let Some(f) = testkit::find("mirror2") else { return };
    let copy = f.copy();
    let found = spa::discover(copy.images());
    let states = spa::list_txgs(&found.pools[0]).unwrap();
    let newest = &states[0].uberblock;
    let service = house();
    for state in states[1..].iter().filter(|state| state.uberblock.timestamp < newest.timestamp) {
        let rewind = Rewind { extreme: true, txg: Some(state.uberblock.txg.0), ..Rewind::default() };
        let request = ImportRequest {
            guid: found.pools[0].guid.0,
            scan: ScanRequest { paths: copy.images().to_vec(), ..ScanRequest::default() },
            force: true,
            rewind,
            ..ImportRequest::default()
        };
        // Some states of that age can't be opened any more.
        let Ok(outcome) = service.import(&request) else { continue };
        let told = outcome.rewind.expect("it went back");
        assert_eq!(told.load_time, state.uberblock.timestamp);
        assert_eq!(told.seconds_lost, Some((newest.timestamp - state.uberblock.timestamp) as i64));
        return;
    }
    panic!("no state could be gone back to");
}

/// Goal: a device was detached while offline, before its pool got another guid. Its labels are not
/// offered as a pool beside that pool, which can be imported by name.
///
/// A scan for the old guid finds them.
#[test]
fn a_memory_is_not_offered() {
    let dir = tempfile::tempdir().unwrap();
    let paths = ["a", "b"].map(|name| dir.path().join(name));
    for path in &paths {
        std::fs::File::create(path).unwrap().set_len(128 << 20).unwrap();
    }
    let service = house();
    let good = |line: &str| common::good(line, &service);
    let [a, b] = [&paths[0], &paths[1]].map(|path| path.display().to_string());
    good(&format!("zpool create -m none tank mirror {a} {b}"));
    let old = good("zpool get -H -o value guid tank");
    for line in [&format!("zpool offline tank {b}"), &format!("zpool detach tank {b}"), "zpool reguid tank"] {
        good(line);
    }
    good("zpool export tank");
    let ran = import(&service, dir.path(), "");
    assert_eq!((ran.code, ran.out.matches("pool: tank\n").count()), (0, 1), "{}", ran.out);
    assert!(ran.out.contains(" ONLINE\n") && !ran.out.contains(old.trim()), "{}", ran.out);
    let ran = import(&service, dir.path(), "-N tank");
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    assert_ne!(good("zpool get -H -o value guid tank"), old);
    good("zpool export tank");
    let ran = run(&format!("zpool import -d {b}"), service.clone());
    assert!(ran.out.contains(old.trim()), "it is there for who asks for this device: {}", ran.out);
}
