//! Searches and imports through the whole engine, in this process.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod common;

use std::os::unix::fs::symlink;
use std::path::Path;
use std::rc::Rc;

use common::{Ran, run};
use server::api::Service;
use server::house::House;
use testkit::Fixture;

/// A folder with links to some of a fixture's devices.
fn folder(f: &Fixture, which: &[usize]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for &n in which {
        let image = &f.images()[n];
        symlink(image, dir.path().join(image.file_name().unwrap())).unwrap();
    }
    dir
}

fn house() -> Rc<dyn Service> {
    Rc::new(House::new())
}

fn import(service: &Rc<dyn Service>, dir: &Path, rest: &str) -> Ran {
    run(&format!("zpool import -d {} {rest}", dir.display()), service.clone())
}

/// The columns of a table as single spaces.
fn squeezed(text: &str, dir: &Path) -> String {
    let text = text.replace(&dir.display().to_string(), "DIR");
    let lines = text.lines().map(|l| l.split_whitespace().collect::<Vec<_>>().join(" "));
    lines.collect::<Vec<_>>().join("\n")
}

/// Goal: every fixture's pool is found with all its vdevs in order, and in the state that it was left in.
#[test]
fn finds_every_pool() {
    for f in testkit::names().into_iter().filter_map(|n| testkit::find(&n)) {
        let all: Vec<usize> = (0..f.images().len()).collect();
        let dir = folder(&f, &all);
        let ran = import(&house(), dir.path(), "");
        assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{}", f.name());
        assert!(ran.out.contains(&format!("  pool: {}\n", f.pool())), "{}: {}", f.name(), ran.out);
        // A device that was removed from its pool is no longer one of it.
        for image in f.images().iter().filter(|_| f.name() != "removed-vdev") {
            let name = image.file_name().unwrap().to_string_lossy();
            assert!(ran.out.contains(&*name), "{}: {name} is missing:\n{}", f.name(), ran.out);
        }
    }
}

/// Goal: a pool that can do without the device that is missing says so, in OpenZFS's words.
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

/// Goal: a pool that lacks too much is shown so, and not imported.
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

/// Goal: without its log device a pool is imported only with -m, and the device is named.
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

/// Goal: the life of an import: refused for writing, taken in under a new name, hidden from searches, exported.
#[test]
fn in_and_out() {
    let Some(f) = testkit::find("mirror2") else { return };
    let dir = folder(&f, &[0, 1]);
    let service = house();
    let ran = import(&service, dir.path(), f.pool());
    assert_eq!(ran.code, 1);
    assert!(ran.err.contains("this release imports pools read-only"), "{}", ran.err);
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
    assert_eq!(run("zpool export renamed", service.clone()).code, 0);
    assert_eq!(run("zpool list", service).out, "no pools available\n");
}

/// Goal: a pool that another host left in use asks for -f, a rewind says where it leads, and a rehearsal imports nothing.
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
