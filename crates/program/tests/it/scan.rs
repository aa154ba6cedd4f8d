//! `zpool scrub` and `zpool resilver`: messages, exit codes and the scan lines of `zpool status`,
//! as in libzfs.

use std::os::unix::fs::FileExt;
use std::path::Path;
use std::rc::Rc;

use crate::common::{good, run, same};
use api::*;
use server::service::LocalService;

const SIZE: u64 = 96 << 20;

fn pool(dir: &Path, shape: &str) -> Rc<dyn Requests> {
    for name in ["a", "b"] {
        let image = std::fs::File::create(dir.join(name)).expect("an image");
        image.set_len(SIZE).expect("room");
    }
    let house: Rc<dyn Requests> = Rc::new(LocalService::new().in_process());
    let d = dir.display();
    good(&format!("zpool create -m none t {shape} {d}/a {d}/b"), &house);
    house
}

fn said(house: &Rc<dyn Requests>, line: &str) -> String {
    let ran = run(line, Rc::clone(house));
    format!("{}{}rc {}\n", ran.out, ran.err, ran.code)
}

/// The scan lines of `zpool status`, without times and rates.
fn scan(house: &Rc<dyn Requests>) -> String {
    let text = good("zpool status t", house);
    let from = text.find("  scan: ").map_or("", |at| &text[at + 8..]);
    let until = from.find("config:").map_or(from, |at| &from[..at]);
    let cut = |line: &str| {
        let at = [" on ", " since ", " in 0", " at "].iter().filter_map(|w| line.find(w)).min();
        at.map_or(line, |at| &line[..at]).trim().to_owned()
    };
    until.lines().map(cut).next().unwrap_or_default()
}

/// Goal: a scrub is started, paused, resumed, stopped and waited for, and each refusal has libzfs's
/// message.
#[test]
fn commands() {
    let dir = tempfile::tempdir().expect("a folder");
    let house = pool(dir.path(), "mirror");
    let usage = "usage:\n\tscrub [-e | -s | -p | -C] [-w] <pool> ...\nrc 2\n";
    for (flags, why) in [
        ("-s -p t", "invalid option combination: -s and -p are mutually exclusive\n"),
        ("-p -C t", "invalid option combination: -p and -C are mutually exclusive\n"),
        ("-w -s t", "invalid option combination: -w cannot be used with -p or -s\n"),
        ("-w", "missing pool name argument\n"),
        ("-x t", "invalid option 'x'\n"),
    ] {
        same(flags, &said(&house, &format!("zpool scrub {flags}")), &format!("{why}{usage}"));
    }
    let idle = "cannot cancel scrubbing t: there is no active scrub\nrc 1\n";
    same("-s", &said(&house, "zpool scrub -s t"), idle);
    same("-p", &said(&house, "zpool scrub -p t"), "rc 0\n");
    same("nope", &said(&house, "zpool scrub nope"), "cannot open 'nope': no such pool\nrc 1\n");
    house.set_tunable("zfs_scan_suspend_progress", &1).expect("it exists");
    same("begin", &said(&house, "zpool scrub t"), "rc 0\n");
    assert_eq!(scan(&house), "scrub in progress");
    let busy = "cannot scrub t: currently scrubbing; use 'zpool scrub -s' to cancel scrub\nrc 1\n";
    same("again", &said(&house, "zpool scrub t"), busy);
    same("-p", &said(&house, "zpool scrub -p t"), "rc 0\n");
    assert_eq!(scan(&house), "scrub paused");
    let paused = "cannot pause scrubbing t: scrub is paused; use 'zpool scrub' to resume scrub\nrc 1\n";
    same("-p again", &said(&house, "zpool scrub -p t"), paused);
    same("resume", &said(&house, "zpool scrub t"), "rc 0\n");
    assert_eq!(scan(&house), "scrub in progress");
    same("-s", &said(&house, "zpool scrub -s t"), "rc 0\n");
    assert_eq!(scan(&house), "scrub canceled");
    house.set_tunable("zfs_scan_suspend_progress", &0).expect("it exists");
    same("-w", &said(&house, "zpool scrub -w t"), "rc 0\n");
    assert_eq!(scan(&house), "scrub repaired 0B");
    same("wait", &said(&house, "zpool wait -t scrub,resilver t"), "rc 0\n");
    same("-C", &said(&house, "zpool scrub -w -C t"), "rc 0\n");
    let history = good("zpool history -i t", &house);
    for told in ["scan setup func=1 mintxg=0 ", "scan cancelled errors=0", "scan done errors=0"] {
        assert!(history.contains(told), "{told}: {history}");
    }
    let events = good("zpool events -H", &house);
    for told in ["scrub_start", "scrub_paused", "scrub_resume", "scrub_abort", "scrub_finish"] {
        assert!(events.contains(&format!("sysevent.fs.zfs.{told}")), "{told}: {events}");
    }
    let json = good("zpool status -j t", &house);
    assert!(json.contains(r#""function":"SCRUB","state":"FINISHED""#), "{json}");
}

/// Goal: repairs of a scrub are counted for the damaged device, and reported.
#[test]
fn repairs_are_told() {
    let dir = tempfile::tempdir().expect("a folder");
    let house = pool(dir.path(), "mirror");
    good("zfs create -V 32M t/v", &house);
    good("zpool sync t", &house);
    let image = std::fs::OpenOptions::new().write(true).open(dir.path().join("a")).expect("an image");
    image.write_all_at(&vec![0x5a; (SIZE - (5 << 20)) as usize], 4 << 20).expect("written");
    same("-w", &said(&house, "zpool scrub -w t"), "rc 0\n");
    let text = good("zpool status -p t", &house);
    let row =
        text.lines().find(|l| l.trim().starts_with(&format!("{}/a", dir.path().display()))).expect("a row");
    let errors: u64 = row.split_whitespace().nth(4).expect("a column").parse().expect("a number");
    assert!(errors > 0, "{text}");
    assert!(text.contains("scan: scrub repaired ") && text.contains("with 0 errors"), "{text}");
    assert!(!text.contains("scrub repaired 0B"), "{text}");
    let document: serde_json::Value =
        serde_json::from_str(&good("zpool status -j --json-int t", &house)).expect("JSON");
    let healed = document.pointer("/pools/t/vdevs/t/vdevs/mirror-0/vdevs");
    let healed = healed.and_then(|disks| disks.as_object()).expect("disks").values();
    let healed: u64 = healed.filter_map(|disk| disk["self_healed"].as_u64()).sum();
    assert!(healed > 0, "the disk that was repaired says so: {document}");
    same("again", &said(&house, "zpool scrub -w t"), "rc 0\n");
    assert_eq!(scan(&house), "scrub repaired 0B");
}

/// Goal: a scrub of a pool with unrecoverable damage lists the files that OpenZFS's kernel module
/// listed, with its words and order.
///
/// The log is there after an import, and an error scrub finds the same.
#[test]
fn what_is_damaged_is_listed() {
    let Some(fixture) = testkit::find("raidz1-3-broken") else { return };
    let told = String::from_utf8(fixture.file("scrub.txt")).expect("a text");
    let copy = fixture.copy();
    let house: Rc<dyn Requests> = Rc::new(LocalService::new().in_process());
    let pool = fixture.pool();
    let import = format!("zpool import -N -d {} {pool}", copy.dir().display());
    good(&import, &house);
    same("none", &said(&house, &format!("zpool scrub -e -w {pool}")), "rc 0\n");
    same("-w", &said(&house, &format!("zpool scrub -w {pool}")), "rc 0\n");
    let verbose = format!("zpool status -v {pool}");
    let part = |text: &str, from: &str, until: &str| {
        let at = text.find(from).unwrap_or_else(|| panic!("no '{from}' in {text}"));
        let rest = &text[at..];
        rest[..rest.find(until).unwrap_or(rest.len())].trim_end().to_owned()
    };
    // The list ends where its indentation does.
    let files = |text: &str| {
        let list = part(text, "errors: ", "\u{0}");
        let mut lines = list
            .lines()
            .take_while(|l| l.is_empty() || l.starts_with("errors: ") || l.starts_with("        "));
        let kept: Vec<&str> = lines.by_ref().collect();
        kept.join("\n").trim_end().to_owned()
    };
    let why = |text: &str| part(text, "status: ", "  scan:");
    let text = good(&verbose, &house);
    same("files", &files(&text), &files(&told));
    same("status", &why(&text), &why(&told));
    let brief = good(&format!("zpool status {pool}"), &house);
    assert!(brief.contains(" data errors, use '-v' for a list\n"), "{brief}");
    assert!(good("zpool status -x", &house).contains("errors: "), "it is not healthy");
    let json = good(&format!("zpool status -j -v {pool}"), &house);
    assert!(json.contains(r#""errlist":["xraidz1-3:/small/s131073.txt","#), "{json}");
    same("-e", &said(&house, &format!("zpool scrub -e -w {pool}")), "rc 0\n");
    let text = good(&verbose, &house);
    same("files again", &files(&text), &files(&told));
    assert!(text.contains("\n scrub: scrubbed ") && text.contains(" error blocks in 0 days 00:0"), "{text}");
    good(&format!("zpool export {pool}"), &house);
    good(&import, &house);
    same("files after an import", &files(&good(&verbose, &house)), &files(&told));
}
