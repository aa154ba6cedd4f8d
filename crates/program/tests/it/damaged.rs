//! Damaged pools of OpenZFS, repaired or reported as OpenZFS's kernel module did. Its `zdb` checks
//! the results.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::rc::Rc;

use crate::common::{good, run, same};
use api::*;
use server::service::LocalService;
use testkit::{Fixture, FixtureCopy};

/// The overwritten ranges of each image.
fn damage(fixture: &Fixture) -> BTreeMap<String, Vec<(u64, u64)>> {
    let all: BTreeMap<String, Vec<(u64, u64, i64)>> =
        serde_json::from_slice(&fixture.file("damage.json")).expect("a record of the damage");
    let bare = |list: Vec<(u64, u64, i64)>| list.into_iter().map(|(at, len, _)| (at, len)).collect();
    all.into_iter().map(|(image, list)| (image, bare(list))).collect()
}

fn bytes(image: &Path, (at, len): (u64, u64)) -> Vec<u8> {
    let mut bytes = vec![0; len as usize];
    File::open(image).expect("an image").read_exact_at(&mut bytes, at).expect("a range of it");
    bytes
}

/// The number of damaged ranges outside labels that are as before the damage, and the number of
/// all.
fn restored(fixture: &Fixture, copy: &FixtureCopy) -> (usize, usize) {
    let base = fixture.base().expect("it was damaged after it was described");
    let (mut same, mut all) = (0, 0);
    for (image, ranges) in damage(fixture) {
        let of = |images: &[std::path::PathBuf]| {
            images.iter().find(|p| p.ends_with(&image)).expect("an image of the pool").clone()
        };
        let (was, is) = (of(base.images()), of(copy.images()));
        let size = std::fs::metadata(&was).expect("an image").len();
        let space = (4 << 20)..size - (512 << 10);
        for range in ranges.into_iter().filter(|(at, _)| space.contains(at)) {
            all += 1;
            same += usize::from(bytes(&was, range) == bytes(&is, range));
        }
    }
    (same, all)
}

/// Errors of a device as `zpool status -p` counts them: reads, writes, checksums.
fn errors(status: &str, device: &str) -> [u64; 3] {
    let row = status.lines().find(|l| l.split_whitespace().next().is_some_and(|n| n.ends_with(device)));
    let words: Vec<&str> =
        row.unwrap_or_else(|| panic!("no {device} in {status}")).split_whitespace().collect();
    [2, 3, 4].map(|n| words[n].parse().expect("a number"))
}

/// Bytes that a scrub repaired, as a status shows.
fn repaired(status: &str) -> f64 {
    let word = part(status, "repaired ", " in ").trim_start_matches("repaired ");
    let at = word.find(|c: char| c.is_ascii_alphabetic()).expect("a unit");
    let unit = match &word[at..] {
        "B" => 0,
        "K" => 10,
        "M" => 20,
        unit => panic!("who repaired {unit}"),
    };
    word[..at].parse::<f64>().expect("a number") * f64::from(1 << unit)
}

/// The part of a status from one text to another.
fn part<'t>(text: &'t str, from: &str, until: &str) -> &'t str {
    let at = text.find(from).unwrap_or_else(|| panic!("no '{from}' in {text}"));
    let rest = &text[at..];
    rest[..rest.find(until).unwrap_or(rest.len())].trim_end()
}

/// Runs `zdb` on an exported pool, if it is available. Returns its success and output.
fn judge(what: &str, dir: &Path, pool: &str) -> Option<(bool, String)> {
    let zdb = std::env::var_os("ZDB")?;
    let out = Command::new(zdb).args(["-e", "-p"]).arg(dir).args([what, pool]).output().expect("zdb runs");
    let text = String::from_utf8_lossy(&out.stdout) + String::from_utf8_lossy(&out.stderr);
    Some((out.status.success(), text.into_owned()))
}

fn judged_whole(dir: &Path, pool: &str) {
    if let Some((fine, text)) = judge("-bcc", dir, pool) {
        assert!(fine && text.contains("No leaks"), "{text}");
    }
}

/// The smallest write of the mirror, in bytes.
const SECTOR: u64 = 4096;
/// Rounding error of a status in megabytes.
const ROUNDED: f64 = 0.005 * (1 << 20) as f64;

/// Checks a pool with one device that is damaged in 300 places. `more` is the number of damaged
/// sector-sized blocks that the kernel's scrub did not visit.
fn one_device(name: &str, device: &str, more: u64) {
    let Some(fixture) = testkit::find(name) else { return };
    let told = String::from_utf8(fixture.file("scrub.txt")).expect("a text");
    let copy = fixture.copy();
    let (before, all) = restored(&fixture, &copy);
    assert!(before < all / 20 && all > 200, "{before} of {all} are not damaged at all");
    let house: Rc<dyn Requests> = Rc::new(LocalService::new().in_process());
    let pool = fixture.pool();
    let dir = copy.dir().display();
    good(&format!("zpool import -N -d {dir} {pool}"), &house);
    let [_, _, before] = errors(&good(&format!("zpool status -p {pool}"), &house), device);
    same("scrub", &run(&format!("zpool scrub -w {pool}"), Rc::clone(&house)).err, "");
    let text = good(&format!("zpool status -p {pool}"), &house);
    for image in copy.images() {
        let image = image.file_name().expect("a name").to_str().expect("ASCII");
        let [read, write, checksum] = errors(&text, image);
        assert_eq!((read, write, checksum > 0), (0, 0, image == device), "{image}: {text}");
    }
    same("why", part(&text, "status: ", "  scan:"), part(&told, "status: ", "  scan:"));
    same("errors", part(&text, "errors: ", "\n"), part(&told, "errors: ", "\n"));
    let brief = good(&format!("zpool status {pool}"), &house);
    assert!(brief.contains(" with 0 errors on "), "{brief}");
    // Blocks that the import reads before it may write are counted then, and again at their repair.
    assert_eq!(errors(&text, device)[2] - before, errors(&told, device)[2] + more, "{text}");
    let (ours, theirs) = (repaired(&brief), repaired(&told));
    let unsaid = ours - theirs - (more * SECTOR) as f64;
    assert!(unsaid.abs() <= 2.0 * ROUNDED, "{ours} bytes were repaired, and {theirs} by OpenZFS");
    good(&format!("zpool clear {pool}"), &house);
    same("again", &run(&format!("zpool scrub -w {pool}"), Rc::clone(&house)).err, "");
    let text = good(&format!("zpool status -p {pool}"), &house);
    assert_eq!(errors(&text, device), [0; 3], "{text}");
    assert!(text.contains("scrub repaired 0B ") || text.contains("scrub repaired 0 "), "{text}");
    good(&format!("zpool export {pool}"), &house);
    let (after, all) = restored(&fixture, &copy);
    assert!(after > all / 2, "{after} of {all} are as they were; the others are where nothing is");
    judged_whole(copy.dir(), pool);
    // The labels are complete too.
    for image in copy.images() {
        if let Some(zdb) = std::env::var_os("ZDB") {
            let out = Command::new(zdb).arg("-l").arg(image).output().expect("zdb runs");
            let text = String::from_utf8_lossy(&out.stdout).into_owned();
            assert!(text.contains("labels = 0 1 2 3"), "{text}");
        }
    }
    // The first device is removed, so the repaired data is needed.
    std::fs::remove_file(&copy.images()[0]).expect("it was there");
    judged_whole(copy.dir(), pool);
}

/// Goal: a scrub finds and repairs everything on a mirror whose second child is damaged in 300
/// places, including two labels. Errors count against that child alone.
#[test]
fn mirror2_damaged() {
    one_device("mirror2-damaged", "d1.img", 8);
}

/// Goal: the same for a raidz1.
#[test]
fn raidz1_damaged() {
    one_device("raidz1-3-damaged", "d1.img", 0);
}

/// Goal: damage on two devices of a raidz1 is counted and reported as by the kernel. Damage on only
/// one of them is repaired, and the metadata is intact.
#[test]
fn raidz1_broken() {
    let Some(fixture) = testkit::find("raidz1-3-broken") else { return };
    let told = String::from_utf8(fixture.file("scrub.txt")).expect("a text");
    let copy = fixture.copy();
    let house: Rc<dyn Requests> = Rc::new(LocalService::new().in_process());
    let pool = fixture.pool();
    good(&format!("zpool import -N -d {} {pool}", copy.dir().display()), &house);
    good(&format!("zpool scrub -w {pool}"), &house);
    let text = good(&format!("zpool status {pool}"), &house);
    let found = |text: &str| part(text, " with ", " on ").to_owned();
    same("errors", &found(&text), &found(&told));
    // The kernel rewrites a copy with more damage than parity whole, from another copy of the
    // block. Here its intact parts are left alone.
    let (ours, theirs) = (repaired(&text), repaired(&told));
    assert!(ours > theirs / 2.0 && ours <= theirs, "{ours} bytes were repaired, and {theirs} by OpenZFS");
    // The kernel reads a block that it can't reconstruct once more, and counts an error of all
    // devices each time. It thus counts `d1.img`, which was not damaged.
    //
    // Here such an error counts once, and not for a device that another copy of the block shows to
    // be right.
    let charged = |text: &str| ["d0.img", "d1.img", "d2.img"].map(|device| errors(text, device));
    let ([d0, d1, d2], lost) = (charged(&told).map(|e| e[2]), charged(&told)[1][2] / 2);
    let unreadable: u64 =
        part(&text, " with ", " errors").trim_start_matches(" with ").parse().expect("a number");
    let expected = [d0 - d1 + lost, unreadable, d2 - d1 + lost].map(|checksum| [0, 0, checksum]);
    assert_eq!(charged(&text), expected, "{text}");
    good(&format!("zpool scrub -w {pool}"), &house);
    let again = good(&format!("zpool status {pool}"), &house);
    same("errors again", &found(&again), &found(&told));
    assert_eq!(repaired(&again), 0.0, "{again}");
    good(&format!("zpool export {pool}"), &house);
    if let Some((fine, text)) = judge("-b", copy.dir(), pool) {
        assert!(fine && text.contains("No leaks"), "{text}");
    }
    if let Some((_, text)) = judge("-bcc", copy.dir(), pool) {
        let counted: Vec<&str> =
            part(&text, "Error counts:", "No leaks").split_whitespace().skip(4).collect();
        assert!(text.contains("No leaks"), "{text}");
        assert_eq!(counted, ["52", &unreadable.to_string()], "EBADE, as often as the scrub said: {text}");
    }
}

/// Goal: a device that OpenZFS left offline is resilvered when it comes online, and the pool can
/// then work without the others. `zdb` agrees.
#[test]
fn a_stale_member_comes_back() {
    let Some(fixture) = testkit::find("multi-vdev") else { return };
    let copy = fixture.copy();
    let house: Rc<dyn Requests> = Rc::new(LocalService::new().in_process());
    let (dir, pool) = (copy.dir().display(), fixture.pool());
    let import = format!("zpool import -N -d {dir} {pool}");
    good(&import, &house);
    // The import resumes a TRIM that the fixture's pool had not finished.
    good(&format!("zpool wait -t trim {pool}"), &house);
    let text = good(&format!("zpool status {pool}"), &house);
    let told = String::from_utf8(fixture.file("outputs/zpool-status.txt")).expect("a text");
    let without_names = |text: &str| {
        let rows = part(text, "config:", "errors: ").lines().skip(2);
        rows.map(|row| row.split_whitespace().skip(1).collect::<Vec<_>>().join(" ")).collect::<Vec<_>>()
    };
    assert!(without_names(&told).contains(&"OFFLINE 0 0 0".to_owned()), "{told}");
    assert_eq!(without_names(&text), without_names(&told), "{text}");
    for (what, until) in [
        (" state: ", "\nstatus: "),
        ("status: ", "\naction: "),
        ("action: ", "\n  scan: "),
        ("  scan: ", "\nconfig:"),
        ("errors: ", "\n"),
    ] {
        same(what, part(&text, what, until), part(&told, what, until));
    }
    let run = run(&format!("zpool online {pool} {}", copy.images()[4].display()), Rc::clone(&house));
    same("online", &run.err, "");
    // The resilver begins in a txg after the command.
    good(&format!("zpool wait -t resilver {pool}"), &house);
    let text = good(&format!("zpool status {pool}"), &house);
    assert!(text.contains("scan: resilvered ") && text.contains(" with 0 errors"), "{text}");
    assert!(text.contains(" state: ONLINE") && !text.contains("OFFLINE"), "{text}");
    good(&format!("zpool scrub -w {pool}"), &house);
    let text = good(&format!("zpool status -p {pool}"), &house);
    assert!(text.contains("scrub repaired 0 ") || text.contains("scrub repaired 0B "), "{text}");
    copy.images().iter().for_each(|image| {
        assert_eq!(errors(&text, image.file_name().expect("a name").to_str().expect("ASCII")), [0; 3]);
    });
    good(&format!("zpool export {pool}"), &house);
    judged_whole(copy.dir(), pool);
    // This device is now the only one of its mirror.
    [3, 5, 6].iter().for_each(|n| std::fs::remove_file(&copy.images()[*n]).expect("it was there"));
    judged_whole(copy.dir(), pool);
    good(&import, &house);
    good(&format!("zpool scrub -w {pool}"), &house);
    let text = good(&format!("zpool status -v {pool}"), &house);
    assert!(text.contains("errors: No known data errors"), "{text}");
}
