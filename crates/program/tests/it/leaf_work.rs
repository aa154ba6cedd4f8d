//! `zpool initialize` and `zpool trim`: messages, exit codes and `zpool status` are those of
//! OpenZFS 2.3.2's transcripts.

use std::path::Path;
use std::rc::Rc;

use crate::common::{good, run, same};
use api::*;
use server::service::LocalService;

/// The pool of OpenZFS's transcripts: a mirror, a log, a cache device.
fn pool(dir: &Path) -> Rc<dyn Requests> {
    for name in ["a", "b", "l", "k"] {
        let image = std::fs::File::create(dir.join(name)).expect("an image");
        image.set_len(96 << 20).expect("room");
    }
    let house: Rc<dyn Requests> = Rc::new(LocalService::new().in_process());
    let d = dir.display();
    good(&format!("zpool create -m none t mirror {d}/a {d}/b log {d}/l cache {d}/k"), &house);
    house
}

/// The output of a command, with the directory and times of the transcripts. The exit code comes
/// last.
fn said(house: &Rc<dyn Requests>, dir: &Path, line: &str) -> String {
    let place = dir.display().to_string();
    let ran = run(&line.replace("/p/", &format!("{place}/")), Rc::clone(house));
    let mut text = ran.out + &ran.err;
    text = text.replace(&format!("{place}/"), "/p/");
    let mut out = String::new();
    for line in text.lines() {
        let when = ["started at ", "completed at "].iter().find_map(|w| line.find(w).map(|at| at + w.len()));
        out += &when.map_or_else(|| line.to_owned(), |at| format!("{}WHEN)", &line[..at]));
        out += "\n";
    }
    format!("{out}rc {}\n", ran.code)
}

/// The devices in `zpool status` with their initialize or trim states, without the columns between.
fn status(house: &Rc<dyn Requests>, dir: &Path, flag: &str) -> Vec<String> {
    let text = said(house, dir, &format!("zpool status {flag} t"));
    let devices = text.lines().filter(|l| l.contains("/p/"));
    let word = |l: &str| l.split_whitespace().next().unwrap_or_default().to_owned();
    devices.map(|l| format!("{} {}", word(l), l.split_once("  (").map_or("", |(_, rest)| rest))).collect()
}

/// Goal: a pool is initialized once and again, the work is stopped and undone, and invalid requests
/// are refused.
#[test]
fn initialize() {
    let dir = tempfile::tempdir().expect("a folder");
    let dir = dir.path();
    let house = pool(dir);
    let none = ["/p/a uninitialized)", "/p/b uninitialized)", "/p/l uninitialized)", "/p/k uninitialized)"];
    assert_eq!(status(&house, dir, "-i"), none);
    let nothing = "cannot initialize '/p/a': there is no active initialization\n\
                   cannot initialize '/p/b': there is no active initialization\n\
                   cannot initialize '/p/l': there is no active initialization\nrc 255\n";
    same("-s", &said(&house, dir, "zpool initialize -s t"), nothing);
    same("-c", &said(&house, dir, "zpool initialize -c t"), nothing);
    same(
        "none",
        &said(&house, dir, "zpool initialize t t/nope"),
        "cannot initialize 't/nope': no such device in pool\nrc 255\n",
    );
    same(
        "cache",
        &said(&house, dir, "zpool initialize t /p/k"),
        "cannot initialize '/p/k': device is in use as a cache\nrc 255\n",
    );
    same(
        "mirror",
        &said(&house, dir, "zpool initialize t mirror-0"),
        "cannot initialize 'mirror-0': invalid device\nrc 255\n",
    );
    same(
        "-sw",
        &said(&house, dir, "zpool initialize -sw t"),
        "-w cannot be used with -c, -sor -u\nusage:\n\
         \tinitialize [-c | -s | -u] [-w] <pool> [<device> ...]\nrc 2\n",
    );
    same(
        "-cs",
        &said(&house, dir, "zpool initialize -c -s t"),
        "-s cannot be combined with other options\nusage:\n\
         \tinitialize [-c | -s | -u] [-w] <pool> [<device> ...]\nrc 2\n",
    );
    same(
        "no pool",
        &said(&house, dir, "zpool initialize nope"),
        "cannot open 'nope': no such pool\nrc 255\n",
    );
    same("-w", &said(&house, dir, "zpool initialize -w t"), "rc 0\n");
    let done = "100% initialized, completed at WHEN)";
    let all = [format!("/p/a {done}"), format!("/p/b {done}"), format!("/p/l {done}")];
    assert_eq!(status(&house, dir, "-i")[..3], all);
    same("again", &said(&house, dir, "zpool initialize -w t"), "rc 0\n");
    same("-u", &said(&house, dir, "zpool initialize -u t /p/a"), "rc 0\n");
    assert_eq!(status(&house, dir, "-i")[0], "/p/a uninitialized)");
    let history = good("zpool history -i t", &house);
    for told in ["initialize vdev=", " activated", " complete", "uninitialize vdev=", "zpool initialize -w t"]
    {
        assert!(history.contains(told), "{told}: {history}");
    }
    good("zpool export t", &house);
}

/// Goal: a cache device goes offline and online and is shown so. It can be neither faulted nor
/// expanded, and the messages say why.
#[test]
fn cache_device() {
    let dir = tempfile::tempdir().expect("a folder");
    let dir = dir.path();
    let house = pool(dir);
    let state = || {
        let text = said(&house, dir, "zpool status t");
        let line = text.lines().find(|l| l.contains("/p/k")).unwrap_or_else(|| panic!("{text}"));
        line.split_whitespace().nth(1).unwrap_or_default().to_owned()
    };
    assert_eq!(state(), "ONLINE");
    same(
        "-f",
        &said(&house, dir, "zpool offline -f t /p/k"),
        "cannot fault /p/k: device is in use as a cache; use 'zpool offline' without -f\nrc 1\n",
    );
    same(
        "-f of nothing",
        &said(&house, dir, "zpool offline -f t /p/x"),
        "cannot fault /p/x: no such device in pool\nrc 1\n",
    );
    same("power", &said(&house, dir, "zpool clear --power t"), "Power control not supported\nrc 1\n");
    assert_eq!(state(), "ONLINE");
    same("offline", &said(&house, dir, "zpool offline t /p/k"), "rc 0\n");
    assert_eq!(state(), "OFFLINE");
    same(
        "-e",
        &said(&house, dir, "zpool online -e t /p/k"),
        "cannot expand /p/k: cannot expand cache devices\nFailed to online \"/p/k\" in pool \"t\": -1\nrc 1\n",
    );
    assert_eq!(state(), "OFFLINE");
    same("online", &said(&house, dir, "zpool online t /p/k"), "rc 0\n");
    assert_eq!(state(), "ONLINE");
    good("zpool export t", &house);
}

/// Goal: a pool is trimmed, slowly, and the work is stopped. It continues after an export, in a new
/// service too.
#[test]
fn trim() {
    let dir = tempfile::tempdir().expect("a folder");
    let dir = dir.path();
    let house = pool(dir);
    assert_eq!(status(&house, dir, "-t")[0], "/p/a untrimmed)");
    same("-w", &said(&house, dir, "zpool trim -w t"), "rc 0\n");
    let done = "100% trimmed, completed at WHEN)";
    let all = [
        format!("/p/a {done}"),
        format!("/p/b {done}"),
        format!("/p/l {done}"),
        "/p/k untrimmed)".to_owned(),
    ];
    assert_eq!(status(&house, dir, "-t"), all);
    let nothing = "cannot trim '/p/a': there is no active trim\n\
                   cannot trim '/p/b': there is no active trim\n\
                   cannot trim '/p/l': there is no active trim\nrc 255\n";
    same("-c", &said(&house, dir, "zpool trim -c t"), nothing);
    same("-r", &said(&house, dir, "zpool trim -r 1K t"), "rc 0\n");
    let busy = "cannot trim '/p/a': currently trimming\n\
                cannot trim '/p/b': currently trimming\n\
                cannot trim '/p/l': currently trimming\nrc 255\n";
    same("twice", &said(&house, dir, "zpool trim t"), busy);
    let begun = status(&house, dir, "-t");
    assert!(begun[0].ends_with("% trimmed, started at WHEN)"), "{begun:?}");
    good("zpool export t", &house);
    drop(house);
    let house: Rc<dyn Requests> = Rc::new(LocalService::new().in_process());
    good(&format!("zpool import -d {} t", dir.display()), &house);
    same(
        "twice",
        &said(&house, dir, "zpool trim t /p/a"),
        "cannot trim '/p/a': currently trimming\nrc 255\n",
    );
    same("-s", &said(&house, dir, "zpool trim -s t"), "rc 0\n");
    let stopped = status(&house, dir, "-t");
    assert!(stopped[0].ends_with("% trimmed, suspended, started at WHEN)"), "{stopped:?}");
    good("zpool export t", &house);
    good(&format!("zpool import -d {} t", dir.display()), &house);
    // An import recomputes the progress, which may be a percent off.
    let numberless = |lines: &[String]| lines.join("\n").replace(|c: char| c.is_ascii_digit(), "");
    assert_eq!(numberless(&status(&house, dir, "-t")), numberless(&stopped));
    same("-c", &said(&house, dir, "zpool trim -c t"), "rc 0\n");
    assert_eq!(status(&house, dir, "-t")[1], "/p/b untrimmed)");
    // An event has its own time, not the rounded second that the device records.
    let events = good("zpool events -H", &house);
    let moments: Vec<&str> = events
        .lines()
        .filter(|l| l.contains("trim_"))
        .map(|l| l.split('\t').next().unwrap_or_default())
        .collect();
    assert!(moments.len() >= 3 && !moments.iter().any(|m| m.ends_with(".000000000")), "{events}");
    let events = good("zpool events", &house);
    for what in ["trim_suspend", "trim_cancel"] {
        assert!(events.contains(&format!("sysevent.fs.zfs.{what}")), "{what}: {events}");
    }
    good("zpool wait -t trim,initialize t", &house);
    let sizes = good("zpool iostat -r t", &house);
    assert!(sizes.contains("trim"), "{sizes}");
    good("zpool export t", &house);
}

/// Goal: `zpool trim` refuses devices that can't be trimmed, unknown devices, and options that are
/// wrong or exclude each other.
#[test]
fn trim_refuses() {
    let dir = tempfile::tempdir().expect("a folder");
    let dir = dir.path();
    let house = pool(dir);
    same(
        "-d",
        &said(&house, dir, "zpool trim -d t"),
        "cannot trim '/p/a': trim operations are not supported by this device\n\
         cannot trim '/p/b': trim operations are not supported by this device\n\
         cannot trim '/p/l': trim operations are not supported by this device\nrc 255\n",
    );
    same(
        "none",
        &said(&house, dir, "zpool trim t nope"),
        "cannot trim 'nope': no such device in pool\nrc 255\n",
    );
    let usage = "usage:\n\ttrim [-dw] [-r <rate>] [-c | -s] <pool> [<device> ...]\nrc 2\n";
    same(
        "-cw",
        &said(&house, dir, "zpool trim -c -w t"),
        &format!("-w cannot be used with -c or -s\n{usage}"),
    );
    same(
        "-r",
        &said(&house, dir, "zpool trim -r x t"),
        &format!("invalid value for rate: bad numeric value 'x'\n{usage}"),
    );
    good("zpool export t", &house);
}

/// Goal: `zpool ddtprune` is accepted, and refused where OpenZFS refuses it.
#[test]
fn ddtprune() {
    let dir = tempfile::tempdir().expect("a folder");
    let dir = dir.path();
    let house = pool(dir);
    let usage = "usage:\n\tddtprune -d|-p <amount> <pool>\nrc 2\n";
    for (line, why) in [
        ("zpool ddtprune -p 0 t", "invalid percentage value\n"),
        ("zpool ddtprune -p 101 t", "invalid percentage value\n"),
        ("zpool ddtprune -d 0 t", "invalid days value\n"),
        ("zpool ddtprune t", "missing amount option (-d|-p <value>)\n"),
        ("zpool ddtprune -d 1 -p 1 t", "-p cannot be combined with -d option\n"),
        ("zpool ddtprune -d 1", "missing pool argument\n"),
        ("zpool ddtprune -d 1 t u", "too many arguments\n"),
    ] {
        same(line, &said(&house, dir, line), &format!("{why}{usage}"));
    }
    same("-p", &said(&house, dir, "zpool ddtprune -p 50 t"), "rc 0\n");
    same("-d", &said(&house, dir, "zpool ddtprune -d 0x1e t"), "rc 0\n");
    same("none", &said(&house, dir, "zpool ddtprune -p 1 u"), "cannot open 'u': no such pool\nrc 255\n");
    good("zpool export t", &house);
}
