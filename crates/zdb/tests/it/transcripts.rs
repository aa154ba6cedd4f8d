//! Compares our output with transcripts of OpenZFS's zdb, to the byte.
//!
//! [`EXCEPTIONS`] lists the lines that may differ, each with its reason. [`clean`] removes what
//! depends on the machine that made the transcripts.

use console::Clock;
use console::Out;
use std::cell::RefCell;
use std::io::{self, Write};
use std::rc::Rc;
use testkit::Fixture;

/// A sink whose contents the test can read.
#[derive(Clone, Default)]
struct Sink(Rc<RefCell<Vec<u8>>>);

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.borrow_mut().extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

struct Ran {
    code: i32,
    out: String,
    err: String,
}

fn zdb<S: AsRef<str>>(args: &[S]) -> Ran {
    let (out, err) = (Sink::default(), Sink::default());
    let args: Vec<String> = args.iter().map(|a| a.as_ref().to_owned()).collect();
    let mut sinks = (Out::new(Box::new(out.clone())), Out::new(Box::new(err.clone())));
    let code = zdb::run(&args, &mut sinks.0, &mut sinks.1, &Clock::fixed(|| 1_795_300_000));
    let text = |s: &Sink| String::from_utf8_lossy(&s.0.borrow()).into_owned();
    Ran { code, out: text(&out), err: text(&err) }
}

fn folder(f: &Fixture) -> String {
    f.images()[0].parent().expect("images are in a folder").display().to_string()
}

fn on(f: &Fixture, options: &str, operands: &[&str]) -> Ran {
    let mut args: Vec<String> = vec!["-e".into()];
    // The images of a damaged pool lie in two folders.
    for image in f.images() {
        args.extend(["-p".into(), image.display().to_string()]);
    }
    args.push(options.into());
    args.extend(operands.iter().map(|s| (*s).to_owned()));
    zdb(&args)
}

/// Lines of a transcript that may differ: fixture, transcript, beginning of the line, reason.
const EXCEPTIONS: &[(&str, &str, &str, &str)] = &[
    ("dedup-fast", "zdb-DDD", "", "made before the pool was exported: the image is eight groups younger"),
    ("", "zdb-zil", "\t\t\tsrc ", "OpenZFS takes a whiteout's fields for the names of the rename"),
    ("", "zdb-mos-dddd", "\t\t\tsrc ", "the same"),
    (
        "whole-disk-gpt",
        "zdb-mos-dddd",
        "\t        /tmp/vm/",
        "a path on the machine that made the transcript",
    ),
    (
        "big-endian",
        "zdb-blocks",
        "\tEmbedded log class",
        "nothing of nothing is nan on s390x and -nan on x86-64",
    ),
    ("send-src", "zdb-mos-dddd", "\t\tTota", "the transcript ends in the middle of this line"),
];

/// Removes progress lines, which overwrite themselves, and merged standard error from a transcript.
fn clean(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    let cuts = ["loading concrete vdev", "loading indirect vdev", "verifying vdev", "zdb: dmu_object_info()"];
    'next: while !rest.is_empty() {
        for start in cuts {
            let body = rest.strip_prefix('\r').unwrap_or(rest);
            if body.starts_with(start) {
                // Progress ends in dots, a message at the end of its line.
                let end = if start.starts_with("zdb") {
                    body.find('\n').map(|i| i + 1)
                } else {
                    body.find(" ...").map(|i| i + 4)
                };
                rest = &body[end.unwrap_or(body.len())..];
                // If standard error interrupted a line, its newline is not part of standard output.
                if !out.is_empty() && !out.ends_with('\n') && !rest.starts_with('\r') {
                    rest = rest.trim_start_matches('\n');
                }
                continue 'next;
            }
        }
        if let Some(body) = rest.strip_prefix('\r') {
            // A line of progress ends in eight spaces:
            // 12.3M completed (   4MB/s) estimated time remaining: 0hr 00min 02sec
            let end = body.find("sec        ").map_or(body.len(), |i| i + 11);
            rest = &body[end..];
            continue;
        }
        let mut chars = rest.chars();
        out.extend(chars.next());
        rest = chars.as_str();
    }
    // Standard error ended its own lines. The script that made the transcript added the exit
    // status.
    let lines = out.lines().filter(|l| !l.starts_with("zdb -bbcc exit status"));
    let mut clean = String::new();
    let mut blank = true;
    for l in lines {
        if !(l.is_empty() && blank) {
            clean.push_str(l);
            clean.push('\n');
        }
        blank = l.is_empty();
    }
    clean.trim_end().to_owned()
}

/// Compares line by line, except for [`EXCEPTIONS`]; the error is the first difference.
fn compare(f: &Fixture, name: &str, got: &str, want: &str) -> Result<(), String> {
    let allowed: Vec<&str> = EXCEPTIONS
        .iter()
        .filter(|(fx, n, ..)| (fx.is_empty() || *fx == f.name()) && *n == name)
        .map(|(_, _, line, _)| *line)
        .collect();
    if allowed.contains(&"") {
        return Ok(());
    }
    let got = clean(&got.replace(&format!("{}/", folder(f)), ""));
    let want = clean(want);
    let (mut g, mut w) = (got.lines(), want.lines());
    let cut = f.name() == "send-src" && name == "zdb-mos-dddd";
    for n in 1.. {
        match (g.next(), w.next()) {
            (Some(_), None) if cut => break,
            (None, None) => break,
            (g, w) if g == w => {}
            (Some(_), Some(w)) if allowed.iter().any(|a| w.starts_with(a)) => {}
            (g, w) => {
                return Err(format!("{} {name}, line {n}:\n  got  {g:?}\n  want {w:?}", f.name()));
            }
        }
    }
    Ok(())
}

/// Compares every transcript with this prefix, in all fixtures, with the output of `run`.
fn all(prefix: &str, run: impl Fn(&Fixture, &str, &str) -> Ran) {
    let mut wrong = Vec::new();
    let mut count = 0;
    for name in testkit::names() {
        let f = testkit::load(&name);
        if f.base().is_some() {
            continue;
        }
        for transcript in f.outputs() {
            let stem = transcript.split('.').next().expect("a name has a beginning").to_owned();
            if !stem.starts_with(prefix) {
                continue;
            }
            let want = f.output(&transcript).expect("it is listed");
            let ran = run(&f, &stem, &want);
            count += 1;
            if let Err(e) = compare(&f, &stem, &ran.out, &want) {
                wrong.push(e);
            }
        }
    }
    assert!(count > 0, "no transcript {prefix}");
    assert!(wrong.is_empty(), "{} of {count} differ:\n{}", wrong.len(), wrong.join("\n"));
}

/// Goal: labels and uberblocks are grouped by equal contents, in partitions too.
#[test]
fn labels() {
    all("zdb-label-", |f, stem, _| {
        let image = stem.strip_prefix("zdb-label-").expect("asked for");
        let ran = zdb(&["-luuu", &format!("{}/{image}.img", folder(f))]);
        assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{}", f.name());
        ran
    });
}

/// Goal: the uberblock is shown, and that of the checkpoint.
#[test]
fn uberblocks() {
    all("zdb-uberblock", |f, _, _| healthy(on(f, "-u", &[f.pool()])));
}

/// Goal: the pool's configuration is shown.
#[test]
fn configs() {
    all("zdb-config", |f, _, _| healthy(on(f, "-C", &[f.pool()])));
}

/// Goal: datasets come in OpenZFS's order, no MOS object leaks, and feature counts are right.
#[test]
fn datasets() {
    all("zdb-datasets", |f, _, _| healthy(on(f, "-d", &[f.pool()])));
}

/// Goal: metaslabs with histograms, mappings of removed devices and space map logs are shown.
#[test]
fn metaslabs() {
    all("zdb-metaslabs", |f, _, _| healthy(on(f, "-mm", &[f.pool()])));
}

/// Goal: every block is counted and verified, and nothing leaks.
///
/// The fixtures have gang blocks, dedup, clones, removed devices and checkpoints.
#[test]
fn blocks() {
    all("zdb-blocks", |f, _, want| {
        let ran = on(f, "-bbcc", &[f.pool()]);
        let code = want.lines().find_map(|l| l.strip_prefix("zdb -bbcc exit status "));
        assert_eq!(Some(ran.code.to_string().as_str()), code, "{}: {}", f.name(), ran.err);
        ran
    });
}

/// Goal: dedup tables and their histograms are shown.
#[test]
fn dedup_tables() {
    all("zdb-DDD", |f, _, _| healthy(on(f, "-DDD", &[f.pool()])));
}

/// Goal: the block reference table is shown.
#[test]
fn block_references() {
    all("zdb-TTT", |f, _, _| healthy(on(f, "-TTT", &[f.pool()])));
}

/// Goal: each record of an unreplayed log is shown, of encrypted datasets the part in clear text.
#[test]
fn intent_logs() {
    all("zdb-zil", |f, _, want| {
        let names = want.lines().filter_map(|l| l.strip_prefix("Dataset ")?.split(' ').next());
        let mut out = String::new();
        for name in names {
            out += &healthy(on(f, "-iiii", &[name])).out;
        }
        Ran { code: 0, out, err: String::new() }
    });
}

/// Goal: objects show attributes, ZAPs, block trees and segments. A number without an object ends
/// the command with that error.
#[test]
fn objects() {
    all("zdb-objects-", |f, stem, want| {
        let dataset = stem.strip_prefix("zdb-objects-").expect("asked for").replace("__", "/");
        let numbers: Vec<String> = (1..=18).chain([34, 128, 256]).map(|n: u64| n.to_string()).collect();
        let mut operands = vec![dataset.as_str()];
        operands.extend(numbers.iter().map(String::as_str));
        let ran = on(f, "-dddddd", &operands);
        let message = want.find("zdb: dmu_object_info()").map(|i| want[i..].lines().next().expect("a line"));
        match message {
            Some(m) => assert_eq!((ran.code, ran.err.trim_end()), (1, m), "{stem}"),
            None => assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{stem}"),
        }
        ran
    });
}

/// Goal: every object of every dataset and of the MOS is shown: half a million lines for one pool.
#[test]
fn everything() {
    all("zdb-mos-dddd", |f, _, _| healthy(on(f, "-dddd", &[f.pool()])));
}

fn healthy(ran: Ran) -> Ran {
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    ran
}

/// Goal: a pool that redundancy repairs shows no error. One beyond repair lists its errors and
/// exits with 3.
#[test]
fn damage() {
    let f = testkit::load("mirror2-damaged");
    let ran = on(&f, "-bcc", &[f.pool()]);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{}", ran.out);
    assert!(ran.out.contains("No leaks (block sum matches space maps exactly)"));
    let Some(f) = testkit::find("raidz1-3-broken") else { return };
    let ran = on(&f, "-bcc", &[f.pool()]);
    assert_eq!(ran.code, 3, "{}", ran.out);
    assert!(ran.out.contains("zdb_blkptr_cb: Got error 52 reading <"), "{}", ran.out);
    assert!(ran.out.contains("\nError counts:\n\n\terrno  count\n\t   52  "), "{}", ran.out);
}

/// Goal: a pool opens with a device missing. With too many missing, the error is zdb's.
#[test]
fn missing_devices() {
    let f = testkit::load("mirror2");
    let first = f.images()[0].display().to_string();
    let ran = zdb(&["-e", "-p", &first, "-bcc", f.pool()]);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{}", ran.out);
    let f = testkit::load("raidz3-7");
    let first = f.images()[0].display().to_string();
    let ran = zdb(&["-e", "-p", &first, "-u", f.pool()]);
    assert_eq!(ran.code, 1);
    let last = "zdb: can't open 'xraidz3-7': No such device or address";
    assert_eq!(ran.err.lines().last(), Some(last), "{}", ran.err);
}

/// Goal: a wrong command line or a missing object gives zdb's message and exit code.
#[test]
fn refusals() {
    let usage = |ran: &Ran| {
        ran.code == 1 && ran.out.is_empty() && ran.err.contains("Usage:\tzdb [-AbcdDFGhikLMPsvXy]")
    };
    assert!(usage(&zdb(&["-d"])));
    assert!(usage(&zdb(&["-j", "pool"])));
    let ran = zdb(&["-C", "-U", "/nowhere/zpool.cache"]);
    assert_eq!(
        (ran.code, ran.out.as_str()),
        (1, "cannot open '/nowhere/zpool.cache': No such file or directory\n")
    );
    let ran = zdb(&["-p", "/nowhere", "pool"]);
    assert!(usage(&ran) && ran.err.starts_with("-p option requires use of -e\n"));
    let ran = zdb(&["-t", "3", "pool"]);
    assert!(usage(&ran) && ran.err.starts_with("incorrect txg specified: 3\n"));
    let ran = zdb(&["-B", "pool/54"]);
    assert_eq!((ran.code, ran.err.as_str()), (1, "zdb: -B is not supported: backup streams\n"));
    for short in [&["-R", "pool"][..], &["-O", "pool/fs"], &["-r", "pool/fs", "path"], &["-E"]] {
        assert!(usage(&zdb(short)), "{short:?}");
    }
    let ran = zdb(&["-o", "nonsense", "pool"]);
    assert!(usage(&ran) && ran.err.starts_with("no value in 'nonsense'\n"), "{}", ran.err);
    assert!(usage(&zdb(&["-I", "none", "pool"])));
    let ran = zdb(&["-e", "-p", "/nowhere", "-d", "pool"]);
    assert_eq!((ran.code, ran.err.as_str()), (1, "zdb: can't open 'pool': No such file or directory\n"));
    let ran = zdb(&["-l", "/nowhere/d0.img"]);
    let want = "cannot open '/nowhere/d0.img': No such file or directory\n";
    assert_eq!((ran.code, ran.out.as_str(), ran.err.as_str()), (1, want, ""));
    let f = testkit::load("mirror2");
    let ran = on(&f, "-d", &["xmirror2/none"]);
    let want = "failed to hold dataset 'xmirror2/none': No such file or directory\n\
                zdb: can't open 'xmirror2/none': No such file or directory\n";
    assert_eq!((ran.code, ran.err.as_str()), (1, want));
    let ran = on(&f, "-d", &["xmirror2", "5:1"]);
    let want = "zdb: Bad object or range: '5:1': Start object ID may not exceed end object ID\n\n";
    assert_eq!((ran.code, ran.err.as_str()), (1, want));
}

/// Goal: with the key, the files of an encrypted dataset are shown; without it, they are marked as
/// encrypted.
#[test]
fn keys() {
    let f = testkit::load("encrypted");
    let ran = healthy(on(&f, "-dddd", &["encrypted/pass/child", "2"]));
    assert!(ran.out.contains("\t\t(bonus encrypted)\n\t\t(object encrypted)\n"), "{}", ran.out);
    let mut args = vec!["-K".to_owned(), "correct horse".to_owned(), "-e".into(), "-p".into(), folder(&f)];
    args.extend(["-dddd", "encrypted/pass/child", "2"].map(str::to_owned));
    let ran = healthy(zdb(&args));
    assert!(ran.out.contains("\tmode\t40755\n") && ran.out.contains("(type: Regular File)"), "{}", ran.out);
}

/// Goal: a bookmark is shown alone. A missing bookmark and a missing dataset give different errors.
#[test]
fn bookmarks() {
    let f = testkit::load("single-lz4");
    let all = healthy(on(&f, "-dddd", &["single-lz4"])).out;
    let line = all.lines().find(|line| line.starts_with("\t#mark-one: ")).expect("it is listed");
    let ran = healthy(on(&f, "-dddd", &["single-lz4/snaps#mark-one"]));
    assert_eq!(ran.out, format!("{line}\n"));
    for (target, why) in
        [("single-lz4/snaps#none", "No such process"), ("single-lz4/no#none", "No such file or directory")]
    {
        let ran = on(&f, "-d", &[target]);
        assert_eq!((ran.code, ran.err), (1, format!("zdb: can't dump '{target}': {why}\n")));
    }
}

/// Goal: a checkpointed state has the name under which OpenZFS imports it.
#[test]
fn checkpointed_names() {
    let f = testkit::load("checkpoint");
    let ran = healthy(on(&f, "-kd", &[f.pool()]));
    let of_datasets = |line: &&str| line.starts_with("Dataset ") && !line.starts_with("Dataset mos ");
    let named: Vec<&str> = ran.out.lines().filter(of_datasets).collect();
    let prefix = format!("Dataset {}_CHECKPOINTED_UNIVERSE", f.pool());
    assert!(!named.is_empty() && named.iter().all(|line| line.starts_with(&prefix)), "{named:?}");
}

/// Goal: the statistics of a label account for all its bytes, and the configuration for an import
/// has each device's path.
#[test]
fn configurations() {
    let f = testkit::load("mirror2");
    let image = f.images()[0].display().to_string();
    let ran = healthy(zdb(&["-ll", &image]));
    let (_, stats) = ran.out.split_once("ZFS Label NVList Config Stats:\n").expect("statistics");
    let column =
        |line: &str, n: usize| line.split_whitespace().nth(n).and_then(|word| word.parse::<usize>().ok());
    let used = column(stats.lines().next().expect("a line"), 0).expect("a number");
    let kinds = ["integers:", "strings:", "booleans:", "nvlists:"];
    let lines = stats.lines().filter(|line| kinds.iter().any(|kind| line.contains(kind)));
    assert_eq!(lines.filter_map(|line| column(line, 2)).sum::<usize>(), used, "{stats}");
    assert!(stats.contains("leaf vdevs:    2 "), "{stats}");
    let ran = healthy(on(&f, "-CC", &["xmirror2"]));
    let (_, config) = ran.out.split_once("\nConfiguration for import:\n").expect("a configuration");
    let (config, _) = config.split_once("\nMOS Configuration:\n").expect("the pool's own");
    assert_eq!(config.matches("path: ").count(), 2, "{config}");
    assert!(config.ends_with("load-rewind-policy: 2\n"), "{config}");
}

/// Goal: `-s` shows what zdb read from each vdev.
#[test]
fn statistics_of_devices() {
    let f = testkit::load("stripe-classes");
    let ran = healthy(on(&f, "-s", &[f.pool()]));
    let lines: Vec<&str> = ran.out.lines().collect();
    assert_eq!(
        lines[..3],
        [
            "                            capacity   operations   bandwidth  ---- errors ----",
            "description                used avail  read write  read write  read write cksum",
            // The rates depend on this run.
            &format!("stripe-classes            3.80M  204M{}", &lines[2][37..]),
        ]
    );
    let special = lines.iter().find(|line| line.contains("(special)")).expect("a vdev");
    assert!(special.starts_with("  mirror (special)         734K 47.3M "), "{special}");
    let log = lines.iter().find(|line| line.contains("(log)")).expect("a vdev");
    assert!(
        log.ends_with("     0     0     0     0     0     0     0") && log.contains("    8K 48.0M "),
        "{log}"
    );
    assert!(
        !special.ends_with("     0     0     0     0     0     0     0"),
        "its blocks were read: {special}"
    );
    assert_eq!(lines.len(), 9, "{}", ran.out);
}

/// Goal: a number names a dataset, and types select objects of a range.
#[test]
fn numbers() {
    let f = testkit::load("mirror2");
    let by_name = healthy(on(&f, "-d", &["xmirror2/sub"]));
    let id = by_name.out.split(", ID ").nth(1).and_then(|t| t.split(',').next()).expect("it has a number");
    assert_eq!(healthy(on(&f, "-d", &[&format!("xmirror2/{id}")])).out, by_name.out);
    let ran = healthy(on(&f, "-d", &["xmirror2/sub", "0:-1:d"]));
    let rows: Vec<&str> = ran.out.lines().filter(|l| l.contains("100.00") || l.contains("0.00")).collect();
    assert!(!rows.is_empty() && rows.iter().all(|l| l.ends_with("ZFS directory")), "{rows:?}");
}

/// Goal: a label in a partition of a master boot record shows as on a device of its own.
#[test]
fn labels_in_a_boot_record_partition() {
    const START: u64 = 3 << 20;
    let f = testkit::load("v1");
    let bytes = std::fs::read(&f.images()[0]).unwrap();
    let sectors = |bytes: u64| u32::try_from(bytes / 512).unwrap().to_le_bytes();
    let mut disk = vec![0; START as usize];
    // The second entry, with Solaris's type.
    disk[462 + 4] = 0xbf;
    disk[462 + 8..462 + 12].copy_from_slice(&sectors(START));
    disk[462 + 12..462 + 16].copy_from_slice(&sectors(bytes.len() as u64));
    disk[510..512].copy_from_slice(&[0x55, 0xaa]);
    disk.extend(bytes);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("disk");
    std::fs::write(&path, disk).unwrap();
    let alone = zdb(&["-l", &f.images()[0].display().to_string()]);
    let inside = zdb(&["-l", &path.display().to_string()]);
    assert_eq!((inside.code, inside.out), (0, alone.out));
}

/// The fields of the first line that shows a block of this level.
fn first_block(shown: &str, level: &str) -> String {
    let line = shown.lines().find(|l| l.contains(level)).unwrap_or_else(|| panic!("no {level} in {shown}"));
    line.trim().to_owned()
}

fn field<'a>(line: &'a str, begin: &str, end: &str) -> &'a str {
    line.split(begin)
        .nth(1)
        .and_then(|rest| rest.split(end).next())
        .unwrap_or_else(|| panic!("{begin}: {line}"))
}

/// Goal: files are found, shown and copied by their paths, to the byte.
#[test]
fn files_by_path() {
    let f = testkit::load("mirror2");
    let dir = tempfile::tempdir().unwrap();
    let to = dir.path().join("copy").display().to_string();
    let mut copied = 0;
    for manifest in f.manifests().into_iter().filter(|m| m.variant.is_none()) {
        let snapshot = manifest.dataset.clone();
        let entries = manifest.entries();
        let files = entries.iter().filter(|e| e.kind == testkit::EntryKind::File && e.sha256.is_some());
        for e in files.take(40) {
            let Ok(path) = std::str::from_utf8(&e.path) else { continue };
            let ran = healthy(on(&f, "-r", &[&snapshot, path, &to]));
            assert!(ran.out.ends_with(&format!(" is {} bytes\n", e.size)), "{}", ran.out);
            let digest = sha2::Digest::finalize(sha2::Digest::chain_update(
                <sha2::Sha256 as sha2::Digest>::new(),
                std::fs::read(&to).unwrap(),
            ));
            let digest: String = digest.iter().map(|b| format!("{b:02x}")).collect();
            assert_eq!(Some(&digest), e.sha256.as_ref(), "{snapshot} {path}");
            copied += 1;
        }
    }
    assert!(copied > 0, "no file in any manifest");
    let ran = healthy(on(&f, "-O", &["xmirror2", "/"]));
    assert!(ran.out.lines().any(|l| l.ends_with("  ZFS directory")), "{}", ran.out);
    let ran = on(&f, "-O", &["xmirror2", "none/below"]);
    let want = "failed to lookup dataset=xmirror2 path=/none: No such file or directory\n";
    assert_eq!((ran.code, ran.err.as_str()), (2, want));
}

/// Goal: a block is read by its place on a vdev or on a child of it.
///
/// It shows with its checksum, decompressed, as pointers, or raw.
#[test]
fn blocks_by_place() {
    let f = testkit::load("single-lz4");
    let pool = f.pool();
    // The dnodes of the MOS lie below indirect blocks, and lz4 compresses all of its blocks.
    let ran = healthy(on(&f, "-ddddddbbbbbb", &[pool, "0"]));
    let data = first_block(&ran.out, " L0 DVA");
    let place = field(&data, "DVA[0]=<", ">").to_owned();
    let (vdev, rest) = place.split_once(':').expect("a place");
    let (offset, _) = rest.split_once(':').expect("a size");
    let (lsize, psize) = field(&data, "size=", " ").split_once('/').expect("two sizes");
    let sizes = format!("{}/{}", lsize.trim_end_matches('L'), psize.trim_end_matches('P'));
    let cksum = data.split("cksum=").nth(1).expect("a checksum").to_owned();
    let psize = psize.trim_end_matches('P');
    let ran = on(&f, "-R", &[pool, &format!("{vdev}:{offset}:{psize}:c")]);
    assert!(ran.out.contains(&format!("   fletcher4\tcksum={cksum}\n")), "{cksum}: {}", ran.out);
    let whole = on(&f, "-R", &[pool, &format!("{vdev}:{offset}:{sizes}:d")]);
    let lines = u64::from_str_radix(lsize.trim_end_matches('L'), 16).unwrap() / 16;
    assert_eq!(whole.out.lines().filter(|l| l.get(6..7) == Some(":")).count() as u64, lines);
    // Without the logical size, zdb finds it out.
    let guessed = on(&f, "-R", &[pool, &format!("{vdev}:{offset}:{psize}:d")]);
    let body = |ran: &Ran| ran.out.lines().skip(3).map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(body(&guessed)[..8], body(&whole)[..8]);
    // The name of the device works too.
    let image = f.images()[0].display().to_string();
    let named = on(&f, "-R", &[pool, &format!("{image}:{offset}:{sizes}:d")]);
    assert_eq!((body(&named), named.err.as_str()), (body(&whole), format!("Found vdev: {image}\n").as_str()));
    let wrong = |thing: &str| on(&f, "-R", &[pool, thing]).out;
    assert_eq!(wrong("9:0:200"), "***Invalid vdev: 9\n");
    assert_eq!(
        wrong("0:1:200"),
        "Invalid block specifier: 0:1:200  - offset must be a multiple of sector size\n"
    );
    assert_eq!(wrong("0:0:200:b10"), "Block pointer offset 0x10 must be divisible by 0x80\n");
    assert!(wrong("0:ffffffffffe00:200").starts_with("Read of 0:ffffffffffe00:200 failed, error: "));
    let mirror = testkit::load("mirror2");
    let ran = healthy(on(&mirror, "-ddddddbbbbbb", &["xmirror2", "0"]));
    let place = field(&first_block(&ran.out, "L0 DVA"), "DVA[0]=<", ">").to_owned();
    let (_, rest) = place.split_once(':').expect("a place");
    let sides = ["0", "0.0", "0.1"].map(|v| on(&mirror, "-R", &["xmirror2", &format!("{v}:{rest}:r")]).out);
    assert!(!sides[0].is_empty() && sides[0] == sides[1] && sides[1] == sides[2]);
}

/// Goal: the payload of an embedded pointer is decompressed from its words.
#[test]
fn embedded_blocks() {
    let word = ondisk::blkptr::Embedded::new(ondisk::CompressKind::Off, b"sixteen bytes ..");
    let bp = ondisk::Blkptr {
        kind: ondisk::DmuType::PLAIN_FILE_CONTENTS,
        level: ondisk::Level(0),
        lsize: ondisk::Lsize(16),
        birth: ondisk::Txg(7),
        order: ondisk::ByteOrder::Little,
        body: ondisk::blkptr::Body::Embedded(word.expect("it fits")),
    };
    let words: Vec<String> =
        bp.encode().as_chunks::<8>().0.iter().map(|w| format!("{:x}", u64::from_le_bytes(*w))).collect();
    let ran = zdb(&["-E", &words.join(":")]);
    assert_eq!((ran.code, ran.out.as_str(), ran.err.as_str()), (0, "sixteen bytes ..", ""));
    assert_eq!(zdb(&["-E", "1:2:3"]).err, "invalid input format\n");
    assert_eq!(zdb(&["-E", &vec!["0"; 16].join(":")]).err, "decode failed: the pointer holds no data\n");
}

/// Goal: `-y` finds no fault in the space maps and livelists of any pool that OpenZFS wrote.
#[test]
fn space_maps_make_sense() {
    for name in testkit::names() {
        let f = testkit::load(&name);
        if f.base().is_some() {
            continue;
        }
        let ran = on(&f, "-y", &[f.pool()]);
        assert!(
            ran.out.starts_with("Verifying deleted livelist entries\nVerifying metaslab entries\n"),
            "{name}"
        );
        assert!(!ran.out.contains("ERROR"), "{name}: {}", ran.out);
    }
}

/// Goal: `-o` sets tunables, or refuses an unknown name.
///
/// A slash after the pool's name means the root dataset. `-N` shows the same as `-d`.
#[test]
fn settings_and_names() {
    let f = testkit::load("mirror2");
    let whole = healthy(on(&f, "-d", &["xmirror2"])).out;
    let root = healthy(on(&f, "-d", &["xmirror2/"])).out;
    assert!(whole.contains("Dataset mos [META]") && root.starts_with("Dataset xmirror2 [ZPL]"), "{root}");
    let mut args =
        vec!["-o".to_owned(), "zfs_arc_max=67108864".to_owned(), "-e".into(), "-p".into(), folder(&f)];
    args.extend(["-d", "xmirror2/"].map(str::to_owned));
    assert_eq!(healthy(zdb(&args)).out, root);
    args[1] = "zfs_nonsense=1".into();
    let ran = zdb(&args);
    assert!(ran.code == 1 && ran.err.starts_with("zfs_nonsense: "), "{}", ran.err);
    for other in [["-l", "/no/such/label"], ["-E", "0:0:0:0:0:0:0:0:0:0:0:0:0:0:0:0"]] {
        let ran = zdb(&[&["-o", "zfs_nonsense=1"][..], &other].concat());
        assert!(ran.code == 1 && ran.err.starts_with("zfs_nonsense: "), "{}", ran.err);
    }
    let id = field(&root, ", ID ", ",");
    let by = |option: &str| on(&f, option, &[&format!("xmirror2/{id}"), "1"]).out;
    assert_eq!(by("-NNNN"), by("-dddd"));
}
