//! Machines made of files, and the findings about them.

use super::*;
use api::Peer;

fn machine(root: &std::path::Path) -> Machine {
    Machine {
        root: root.to_owned(),
        is_root: false,
        uid: 1000,
        named: true,
        path: vec![root.join("bin")],
        files: Some(1024),
        locked: Some(8 << 20),
        place: Ok("/run/here".into()),
        passed: Vec::new(),
        daemon: false,
        apart: None,
        roots: None,
        mounting: None,
        own: fs::canonicalize(root).expect("a folder").join("own/poolhouse"),
    }
}

fn state(machine: &Machine, name: &str) -> State {
    machine.examine().into_iter().find(|f| f.name == name).map(|f| f.state).expect("it is looked at")
}

/// Goal: a bare machine distinguishes what everything needs from what a feature needs. Each finding
/// says how to get it.
#[test]
fn bare() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut machine = machine(dir.path());
    let findings = machine.examine();
    let ill: Vec<&str> =
        findings.iter().filter(|f| matches!(f.state, State::Ill(_))).map(|f| f.name).collect();
    assert_eq!(ill, ["/dev/fuse", "fusermount3"]);
    assert!(matches!(state(&machine, "nbd devices"), State::Without(how) if how.contains("modprobe nbd")));
    assert!(matches!(state(&machine, "open files"), State::Without(how) if how.contains("some 960")));
    // Root needs no helper to mount.
    machine.is_root = true;
    assert!(matches!(state(&machine, "fusermount3"), State::Without(_)));
    machine.place = Err("it is somebody else's".into());
    assert!(matches!(state(&machine, "the daemon's folder"), State::Ill(_)));
}

/// Goal: what exists is found.
#[test]
fn furnished() {
    let dir = tempfile::tempdir().expect("a folder");
    for (file, text) in [
        ("dev/fuse", ""),
        ("dev/loop-control", ""),
        ("dev/ublk-control", ""),
        ("dev/nbd0", ""),
        ("etc/fuse.conf", "# words\nuser_allow_other\n"),
        ("etc/hostid", "1234"),
        ("proc/sys/user/max_user_namespaces", "100\n"),
        ("proc/sys/kernel/io_uring_disabled", "2\n"),
    ] {
        let path = dir.path().join(file);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(path, text).expect("a file");
    }
    let mut machine = machine(dir.path());
    machine.files = None;
    for name in [
        "/dev/fuse",
        "user_allow_other",
        "loop devices",
        "ublk",
        "nbd devices",
        "host id",
        "user namespaces",
        "open files",
    ] {
        assert_eq!(state(&machine, name), State::Well, "{name}");
    }
    let said = machine.examine().into_iter().find(|f| f.name == "io_uring").expect("it is looked at").seen;
    assert!(said.contains("switched off"), "{said}");
}

/// Goal: an ordinary user learns what `fusermount3` allows. That decides the exit code.
#[test]
fn users() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut machine = machine(dir.path());
    for folder in ["bin", "etc", "dev"] {
        fs::create_dir_all(dir.path().join(folder)).expect("a folder");
    }
    let write = |file: &str, text: &str| fs::write(dir.path().join(file), text).expect("a file");
    write("dev/fuse", "");
    write("etc/fuse.conf", "#user_allow_other\n");
    let says = |machine: &Machine, name: &str, word: &str| matches!(state(machine, name), State::Without(how) | State::Ill(how) if how.contains(word));
    assert!(says(&machine, "user_allow_other", "nobody else reaches this user's mounts"));
    assert!(says(&machine, "user_allow_other", "poolhouse serve --allow-other"));
    // Without root, a user can't get a working helper. A helper that doesn't work is still
    // distinguished.
    write("bin/fusermount3", "");
    assert!(says(&machine, "fusermount3", "chmod u+s"));
    machine.named = false;
    assert!(says(&machine, "fusermount3", "give user 1000 a line in /etc/passwd"));
    let mut out = Out::new(Box::new(std::io::sink()));
    assert_eq!(report(&mut out, &machine.examine()), 1);
    machine.is_root = true;
    assert_eq!(state(&machine, "user_allow_other"), State::Well);
    assert_eq!(report(&mut out, &machine.examine()), 0);
}

/// Goal: a caller of `zpool` learns whether that is this program, and a user with a daemon that
/// root has another.
#[test]
fn whose_commands() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut machine = machine(dir.path());
    for folder in ["bin", "own"] {
        fs::create_dir(dir.path().join(folder)).expect("a folder");
    }
    fs::write(&machine.own, "").expect("a file");
    let name = "zpool and zfs";
    assert!(matches!(state(&machine, name), State::Without(how) if how.contains("`poolhouse zpool`")));
    for link in ["zpool", "zfs"] {
        std::os::unix::fs::symlink(&machine.own, dir.path().join("bin").join(link)).expect("a link");
    }
    assert_eq!(state(&machine, name), State::Well);
    fs::remove_file(dir.path().join("bin/zfs"))
        .and_then(|()| fs::write(dir.path().join("bin/zfs"), ""))
        .expect("a file");
    assert!(
        matches!(state(&machine, name), State::Without(how) if how.contains("scripts call that program"))
    );
    (machine.daemon, machine.roots) = (true, Some("/run/poolhouse".into()));
    let place =
        machine.examine().into_iter().find(|f| f.name == "the daemon's folder").expect("it is looked at");
    assert!(place.seen.contains("POOLHOUSE_RUN_DIR=/run/poolhouse"), "{}", place.seen);
}

/// Goal: what prevents this process from mounting is found. A folder that is not the first
/// candidate has a reason.
#[test]
fn what_is_in_the_way() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut machine = machine(dir.path());
    assert_eq!(state(&machine, "mounting"), State::Well);
    machine.mounting = Some("root without CAP_SYS_ADMIN".into());
    assert!(matches!(state(&machine, "mounting"), State::Ill(how) if how.contains("CAP_SYS_ADMIN")));
    machine.passed = vec!["/run/poolhouse is full".into()];
    let found =
        machine.examine().into_iter().find(|f| f.name == "the daemon's folder").expect("it is looked at");
    assert!(found.seen.ends_with("Not used: /run/poolhouse is full"), "{}", found.seen);
}

/// Goal: a daemon in another namespace is distinguished from one in this namespace, and the
/// consequence is reported.
#[test]
fn a_daemon_elsewhere() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut machine = machine(dir.path());
    machine.daemon = true;
    assert_eq!(state(&machine, "the daemon's folder"), State::Well);
    machine.apart = Some("another PID namespace".into());
    let State::Without(how) = state(&machine, "the daemon's folder") else { panic!("it is taken for well") };
    assert!(how.contains("where the daemon runs"), "{how}");
    // This process shares its own namespaces.
    let (here, _there) = UnixStream::pair().expect("a pair");
    let daemon = Daemon { peer: |_| Ok(Peer::own()), metrics: |_| Ok(String::new()) };
    assert_eq!(apart(&here, &daemon), None);
    let hidden = Daemon { peer: |_| Ok(Peer { pid: None, ..Peer::own() }), ..daemon };
    assert_eq!(apart(&here, &hidden).as_deref(), Some("another PID namespace"));
}

/// Goal: no `chmod` is advised if the owner of `fusermount3` is not a user of this namespace.
#[test]
fn a_helper_of_nobody() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut machine = machine(dir.path());
    let program = dir.path().join("bin/fusermount3");
    fs::create_dir_all(dir.path().join("bin")).expect("a folder");
    fs::create_dir_all(dir.path().join("proc/sys/kernel")).expect("a folder");
    fs::write(&program, "").expect("a file");
    machine.uid = fs::metadata(&program).expect("a file").uid() + 1;
    let advice = |machine: &Machine| match state(machine, "fusermount3") {
        State::Ill(how) => how,
        other => panic!("{other:?}"),
    };
    assert!(advice(&machine).contains("chmod u+s"));
    let owner = fs::metadata(&program).expect("a file").uid();
    fs::write(dir.path().join("proc/sys/kernel/overflowuid"), format!("{owner}\n")).expect("a file");
    assert!(advice(&machine).contains("unshare -rm") && !advice(&machine).contains("chmod"));
}
