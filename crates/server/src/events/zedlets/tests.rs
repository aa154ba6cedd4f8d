//! Zedlets at invented events: real processes in a folder of the test.

use crate::events::zedlets::*;
use api::EventValue;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt;

/// A folder for zedlets, and one for their output, which they know as `$OUT`.
struct Stand {
    dir: tempfile::TempDir,
}

impl Stand {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        for name in ["zedlets", "out"] {
            std::fs::create_dir(dir.path().join(name)).unwrap();
        }
        let stand = Self { dir };
        stand.mode("zedlets", 0o755);
        stand
    }

    fn mode(&self, name: &str, mode: u32) {
        let permissions = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(self.dir.path().join(name), permissions).unwrap();
    }

    fn zedlet(&self, name: &str, text: &str) {
        let (dir, out) = (self.dir.path(), self.dir.path().join("out"));
        std::fs::write(dir.join("text"), format!("#!/bin/sh\nOUT={}\n{text}\n", out.display())).unwrap();
        let name = format!("zedlets/{name}");
        testkit::copy_program(dir.join("text"), dir.join(&name));
        self.mode(&name, 0o755);
    }

    fn terms(&self) -> Terms {
        Terms::of(&self.dir.path().join("zedlets"))
    }

    fn out(&self, name: &str) -> String {
        std::fs::read_to_string(self.dir.path().join("out").join(name)).unwrap_or_default()
    }
}

fn event(eid: u64, class: &str) -> Event {
    let details = vec![
        ("class".to_owned(), EventValue::Text(class.to_owned())),
        ("eid".to_owned(), EventValue::Number(eid)),
    ];
    Event { eid, time: (1_700_000_000, 7), class: class.to_owned(), pool: "tank".to_owned(), details }
}

/// Waits until all queued events are done.
fn settle(zedlets: &Zedlets) {
    let mut state = zedlets.state.lock();
    while !state.queue.is_empty() || state.beginning || state.running > 0 {
        zedlets.changed.wait(&mut state);
    }
}

/// Goal: an event runs the zedlets whose names begin with its class, its subclass or `all` as a
/// whole word, as in zed.
#[test]
fn names() {
    let class = "resource.fs.zfs.statechange";
    for (name, fit) in [
        ("all", true),
        ("all-log.sh", true),
        ("all_things", true),
        ("allow", false),
        ("statechange", true),
        ("statechange-led.sh", true),
        ("statechanges", false),
        ("resource.fs.zfs.statechange-mail", true),
        ("resource", false),
        ("scrub_finish-mail", false),
        (".all-hidden", false),
        ("state", false),
    ] {
        assert_eq!(folder::fits(OsStr::new(name), class), fit, "{name}");
    }
    // A class with fewer parts is used whole.
    assert!(folder::fits(OsStr::new("odd.class"), "odd.class"));
    assert!(!folder::fits(OsStr::new("class"), "odd.class"));
}

/// Goal: each part of an event is a variable in zed's form. The daemon's own environment is not
/// passed on.
#[test]
fn variables() {
    use EventValue::{List, Number, Numbers, State, Text};
    let mut event = event(9, "resource.fs.zfs.statechange");
    for (name, value) in [
        ("pool_guid", Number(0xabc)),
        ("pool_state", Number(0)),
        ("vdev_state", State(5)),
        ("vdev_laststate", State(7)),
        ("vdev_spare_guids", Numbers(vec![1, 255])),
        ("time", Numbers(vec![1_700_000_000, 7])),
        ("odd-name", Text("a b\nc".to_owned())),
        ("bad", Text("a\0b".to_owned())),
        ("inner", List(Vec::new())),
    ] {
        event.details.push((name.to_owned(), value));
    }
    let all = environment::of(&event, Path::new("/folder"), Some(Path::new("/run/here")));
    let all: BTreeMap<_, _> =
        all.into_iter().map(|(name, value)| (name, value.into_string().unwrap())).collect();
    let is = |name: &str, value: &str| assert_eq!(all.get(name).map(String::as_str), Some(value), "{name}");
    is("ZEVENT_CLASS", "resource.fs.zfs.statechange");
    is("ZEVENT_SUBCLASS", "statechange");
    is("ZEVENT_POOL_GUID", "0x0000000000000ABC");
    is("ZEVENT_POOL_STATE", "0");
    is("ZEVENT_POOL_STATE_STR", "ACTIVE");
    is("ZEVENT_VDEV_STATE", "5");
    is("ZEVENT_VDEV_STATE_STR", "FAULTED");
    is("ZEVENT_VDEV_LASTSTATE_STR", "ONLINE");
    is("ZEVENT_VDEV_SPARE_GUIDS", "0x0000000000000001 0x00000000000000FF");
    is("ZEVENT_TIME", "1700000000 7");
    is("ZEVENT_TIME_SECS", "1700000000");
    is("ZEVENT_TIME_NSECS", "7");
    is("ZEVENT_ODD_NAME", "a b\nc");
    is("ZEVENT_INNER", "_NOT_IMPLEMENTED_");
    is("ZED_ZEDLET_DIR", "/folder");
    is("ZED_PID", &std::process::id().to_string());
    is("POOLHOUSE_RUN_DIR", "/run/here");
    is("PATH", "/usr/bin:/bin:/usr/sbin:/sbin");
    assert!(all["ZEVENT_TIME_STRING"].starts_with("2023-11-1"), "{}", all["ZEVENT_TIME_STRING"]);
    assert!(all["ZPOOL"].ends_with("zpool"), "{}", all["ZPOOL"]);
    assert!(!all.contains_key("ZEVENT_BAD"), "it can't be in an environment");
    assert!(!all.contains_key("HOME") && !all.contains_key("CARGO_MANIFEST_DIR"));
}

/// Goal: zedlets start in the order of events, and at one event in the order of their names.
#[test]
fn in_order() {
    let stand = Stand::new();
    stand.zedlet("all-a", "echo $ZEVENT_EID a >> $OUT/order");
    stand.zedlet("config_sync-b", "echo $ZEVENT_EID b >> $OUT/order");
    stand.zedlet("pool_create-c", "echo $ZEVENT_EID c >> $OUT/order");
    let zedlets = Zedlets::start(Terms { jobs: 1, ..stand.terms() }).unwrap();
    for (eid, what) in [(1, "pool_create"), (2, "config_sync"), (3, "other")] {
        zedlets.put(&event(eid, &format!("sysevent.fs.zfs.{what}")));
    }
    settle(&zedlets);
    assert_eq!(stand.out("order"), "1 a\n1 c\n2 a\n2 b\n3 a\n");
    zedlets.end();
}

/// Goal: a zedlet that hangs is killed with its children when its time is over. Only then another
/// takes its place.
#[test]
fn hanging() {
    let stand = Stand::new();
    stand.zedlet("all-a-hangs", "sleep 1000 & echo $! > $OUT/sleeper; wait");
    stand.zedlet("all-b-runs", "echo ran > $OUT/b");
    let terms = Terms { jobs: 1, limit: Duration::from_secs(3), ..stand.terms() };
    let zedlets = Zedlets::start(terms).unwrap();
    zedlets.put(&event(1, "sysevent.fs.zfs.other"));
    settle(&zedlets);
    assert_eq!(stand.out("b"), "ran\n");
    gone(&stand.out("sleeper"));
    zedlets.end();
}

/// Waits until a process is gone, or dead and not yet waited for by its new parent.
fn gone(pid: &str) {
    let stat = format!("/proc/{}/stat", pid.trim());
    while std::fs::read_to_string(&stat).is_ok_and(|stat| !stat.contains(") Z ") && !stat.contains(") X ")) {
        std::thread::yield_now();
    }
}

/// Goal: many zedlets that hang do not delay the threads that enter events. Dropped events are
/// counted. The end kills what runs, and counts all that it did not start.
#[test]
fn too_many() {
    let stand = Stand::new();
    stand.zedlet("all-hangs", "echo $$ > $OUT/$ZEVENT_EID; sleep 1000");
    let zedlets = Zedlets::start(Terms { jobs: 2, queue: 3, ..stand.terms() }).unwrap();
    for eid in 1..=3 {
        zedlets.put(&event(eid, "sysevent.fs.zfs.other"));
        // Two run, and one is about to start, before the queue is filled.
        let mut state = zedlets.state.lock();
        while !state.queue.is_empty() {
            zedlets.changed.wait_for(&mut state, Duration::from_millis(1));
        }
    }
    (4..=10).for_each(|eid| zedlets.put(&event(eid, "sysevent.fs.zfs.other")));
    let state = zedlets.state.lock();
    assert_eq!((state.queue.len(), state.dropped), (3, 4));
    drop(state);
    zedlets.end();
    let state = zedlets.state.lock();
    assert_eq!((state.running, state.queue.len(), state.beginning), (0, 3, false));
    drop(state);
    ["1", "2"].iter().for_each(|eid| gone(&stand.out(eid)));
    assert_eq!(stand.out("3"), "", "it was begun after the end");
    zedlets.put(&event(11, "sysevent.fs.zfs.other"));
    assert_eq!(zedlets.state.lock().dropped, 5);
}

/// Goal: a folder that is missing, not a directory, or writable by other users is refused by name.
/// In a valid folder, files that are writable by others or not executable are skipped, and the rest
/// runs.
#[test]
fn unfit() {
    let stand = Stand::new();
    let refused = |name: &str| {
        let terms = Terms::of(&stand.dir.path().join(name));
        let error = Zedlets::start(terms).err().expect("it is fit");
        assert!(error.to_string().contains(name), "{error}");
        error
    };
    assert!(matches!(refused("nowhere"), ZedletError::Io { .. }));
    std::fs::write(stand.dir.path().join("file"), "").unwrap();
    assert!(matches!(refused("file"), ZedletError::NoFolder { .. }));
    stand.mode("zedlets", 0o775);
    assert!(matches!(refused("zedlets"), ZedletError::Open { mode: 0o775, .. }));
    stand.mode("zedlets", 0o755);
    for (name, mode) in
        [("all-writable", 0o757), ("all-group", 0o775), ("all-plain", 0o644), ("all-good", 0o755)]
    {
        stand.zedlet(name, &format!("echo ran > $OUT/{name}"));
        stand.mode(&format!("zedlets/{name}"), mode);
    }
    std::fs::create_dir(stand.dir.path().join("zedlets/all-folder")).unwrap();
    let mut folder = Folder::open(&stand.terms().folder).unwrap();
    let fitting = folder.fitting("sysevent.fs.zfs.other");
    assert_eq!(fitting, [stand.dir.path().join("zedlets/all-good")]);
    let zedlets = Zedlets::start(stand.terms()).unwrap();
    zedlets.put(&event(1, "sysevent.fs.zfs.other"));
    settle(&zedlets);
    let ran: Vec<_> = std::fs::read_dir(stand.dir.path().join("out")).unwrap().collect();
    assert_eq!((ran.len(), stand.out("all-good").as_str()), (1, "ran\n"));
    // This also applies later, since the folder is checked each time.
    stand.mode("zedlets", 0o777);
    assert_eq!(folder.fitting("sysevent.fs.zfs.other"), Vec::<PathBuf>::new());
    stand.mode("zedlets", 0o755);
    assert_eq!(folder.fitting("sysevent.fs.zfs.other").len(), 1);
    zedlets.end();
}

/// Goal: reports that are collected repeatedly are collected once more at the end, and their
/// zedlets still run.
#[test]
fn gathered_at_the_end() {
    let stand = Stand::new();
    stand.zedlet("last", "echo $ZEVENT_EID > $OUT/last");
    let zedlets = Zedlets::start(stand.terms()).unwrap();
    let own = Arc::downgrade(&zedlets);
    let asked = move || {
        let own = own.upgrade().unwrap();
        if own.state.lock().stopping {
            own.put(&event(5, "sysevent.fs.zfs.last"));
        }
    };
    zedlets.gather(asked).unwrap();
    zedlets.end();
    assert_eq!(stand.out("last"), "5\n");
}
