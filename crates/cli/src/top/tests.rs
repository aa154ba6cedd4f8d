//! What `poolhouse top` shows of two readings, and its options.

#![allow(clippy::unwrap_used, reason = "tests fail so")]

use super::*;
use crate::sink::{Sink, context};
use api::{Caller, Error, FakeService, InProcess, TopCall, TopClass, TopDataset, TopOp, TopPool, TopTimes};
use console::Out;
use std::rc::Rc;
use std::sync::Mutex;

/// A daemon whose readings are these, one after another. The last one stays.
struct Readings(Mutex<Vec<Top>>);

impl FakeService for Readings {
    fn top(&self, _: &Caller, _: &TopQuery) -> Result<Top, Error> {
        let mut all = self.0.lock().unwrap();
        Ok(if all.len() > 1 { all.remove(0) } else { all[0].clone() })
    }
}

/// Runs a line over these readings, on a terminal or not. Returns the exit code and both outputs.
fn ran_on(terminal: bool, readings: Vec<Top>, line: &str) -> (i32, String, String) {
    let service = Rc::new(InProcess::new(Box::new(Readings(Mutex::new(readings)))));
    let (out, err) = (Sink::default(), Sink::default());
    let sink = Box::new(out.clone());
    let stdout = if terminal { Out::terminal(sink) } else { Out::new(sink) };
    let mut cx = context(service, stdout, &err);
    let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
    let code = run(&mut cx, &words);
    (code, out.text(), err.text())
}

fn ran(readings: Vec<Top>, line: &str) -> (i32, String, String) {
    ran_on(false, readings, line)
}

/// The lines of a good run.
fn good(readings: Vec<Top>, line: &str) -> Vec<String> {
    let (code, out, err) = ran(readings, line);
    assert_eq!((code, err.as_str()), (0, ""), "{line}");
    out.lines().map(str::to_owned).collect()
}

/// The cells of a line, without the spaces between them.
fn cells(line: &str) -> Vec<&str> {
    line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect()
}

/// A reading at this second of the daemon's life. The server began at second 10.
fn reading(second: u64) -> Top {
    let ns = |second| second * 1_000_000_000;
    Top { clock_ns: ns(second), began_ns: ns(10), began: 1_700_000_000, run: 1, afs: true, ..Top::default() }
}

fn call(name: &str, buckets: &[(u64, u64)], max: u64, errors: &[(&str, u64)]) -> TopCall {
    let sum = buckets.iter().map(|(top, count)| top * count).sum();
    let errors = errors.iter().map(|(code, count)| ((*code).to_owned(), *count)).collect();
    let times = TopTimes { sum, max, buckets: buckets.to_vec() };
    TopCall { service: "file".to_owned(), call: name.to_owned(), times, errors, other_errors: 0 }
}

/// Two readings, two seconds apart.
fn two_of_calls() -> Vec<Top> {
    let fetch = |n: u64| call("FetchStatus", &[(1_000, 98 + n), (5_000_000, 1)], 4_900_000, &[("VNOVOL", 3)]);
    let store = |n: u64| call("StoreData64", &[(2_000_000, n)], 2_000_000, &[("EACCES", n / 2)]);
    let before = Top { calls: vec![fetch(0)], ..reading(110) };
    vec![before, Top { calls: vec![fetch(0), store(10)], ..reading(112) }]
}

/// Goal: totals are since the server's start. Quantiles are ends of buckets, and no longer than the
/// longest call.
#[test]
fn totals_of_calls() {
    let lines = good(two_of_calls(), "-v calls");
    assert!(lines[0].starts_with("poolhouse top  calls  Fri Jan 15"), "{lines:?}");
    assert_eq!(
        cells(&lines[1]),
        ["SERVICE", "CALL", "CALLS", "AVG ms", "p50 ms", "p99 ms", "MAX ms", "ERRORS", "CODES"]
    );
    let mean = (98 * 1_000 + 5_000_000) / 99;
    assert_eq!(mean, 51_494);
    assert_eq!(
        cells(&lines[2]),
        ["file", "FetchStatus", "99", "0.051", "0.001", "4.90", "4.90", "3", "VNOVOL 3"]
    );
    assert_eq!(lines.len(), 3);
}

/// Goal: an interval has what was added in it, per second. What was not called is not in it.
#[test]
fn intervals_of_calls() {
    let lines = good(two_of_calls(), "-v calls 2 1");
    assert!(lines[0].ends_with("+2.0 s"), "{lines:?}");
    assert_eq!(cells(&lines[1])[2..4], ["CALLS/s", "AVG ms"]);
    let row = ["file", "StoreData64", "5", "2.00", "2.00", "2.00", "2.00", "2.5", "EACCES 5"];
    assert_eq!((cells(&lines[2]), lines.len()), (row.to_vec(), 3));
    // Numbers for scripts are exact, and have the time.
    let lines = good(two_of_calls(), "-v calls -p 2 1");
    assert_eq!(lines[0].split('\t').next(), Some("TIME"));
    let row = "1800000000\tfile\tStoreData64\t5.000\t2000000\t2000000\t2000000\t2000000\t2.500\tEACCES 5";
    assert_eq!(lines[1..], [row]);
}

/// Goal: JSON has one document for each interval, with exact numbers.
#[test]
fn json_of_calls() {
    let mut readings = two_of_calls();
    readings.push(Top { calls: readings[1].calls.clone(), ..reading(113) });
    let lines = good(readings, "-v calls -j 1 2");
    let head = r#"{"output_version":{"command":"poolhouse top","vers_major":0,"vers_minor":1},"view":"calls","time":1800000000,"#;
    let row = r#"{"service":"file","call":"StoreData64","calls":10,"mean_ns":2000000,"p50_ns":2000000,"p99_ns":2000000,"max_ns":2000000,"errors":5,"codes":"EACCES 5"}"#;
    assert_eq!(
        lines,
        [
            format!(r#"{head}"ns":2000000000,"total":false,"rows":[{row}]}}"#),
            format!(r#"{head}"ns":1000000000,"total":false,"rows":[]}}"#),
        ]
    );
}

/// Goal: a server that was started anew counts from zero, and nothing becomes negative.
#[test]
fn another_server() {
    let mut readings = two_of_calls();
    let calls = vec![call("FetchStatus", &[(1_000, 7)], 1_000, &[])];
    let began_ns = 111_000_000_000;
    readings[1] = Top { calls, run: 2, began_ns, ..reading(112) };
    let lines = good(readings, "-v calls -p 2 1");
    assert!(lines[1].starts_with("1800000000\tfile\tFetchStatus\t7.000\t1000\t"), "{lines:?}");
}

/// Goal: the times of one call are a row for each power of two, also for empty ones in between.
#[test]
fn times_of_one_call() {
    let lines = good(two_of_calls(), "--call fetchstatus");
    assert_eq!(lines[1], "FetchStatus of service file: 99");
    let rows: Vec<&str> = lines[3..].iter().map(String::as_str).collect();
    assert_eq!(cells(rows[0]), ["0.001", "0.001", "98", &"@".repeat(40)]);
    assert_eq!(cells(rows[rows.len() - 1]), ["4.19", "8.39", "1", "@"]);
    // From 2^9 to 2^23.
    assert_eq!(rows.len(), 14);
    assert_eq!(good(two_of_calls(), "--call nope")[1], "no call nope was counted");
}

/// Goal: text that others chose can't begin another line, column or command of the terminal.
#[test]
fn hostile_text() {
    let mut top = two_of_calls().remove(0);
    top.calls[0].call = "a\u{1b}[2J\tb\nc\u{9b}1m".to_owned();
    for form in ["", "-p"] {
        let lines = good(vec![top.clone()], &format!("-v calls {form}"));
        assert_eq!(lines.len(), if form.is_empty() { 3 } else { 2 }, "{lines:?}");
        let row = &lines[lines.len() - 1];
        assert!(row.contains("a\\033[2J\\011b\\012c\\302\\2331m"), "{row}");
    }
    let (_, out, _) = ran(vec![top], "--call a\u{1b}[2J");
    assert!(!out.contains('\u{1b}'), "{out:?}");
}

/// Goal: on a terminal, each table takes the place of the one before, and fits the screen.
#[test]
fn live_view() {
    let many = (0..30).map(|n| call(&format!("Call{n}"), &[(7, 30 - n)], 7, &[])).collect();
    let (code, out, _) =
        ran_on(true, vec![reading(110), Top { calls: many, ..reading(111) }], "-v calls 1 1");
    let screens: Vec<&str> = out.split("\x1b[H\x1b[2J").collect();
    assert_eq!((code, screens.len()), (0, 3), "{out:?}");
    assert_eq!(screens[2].lines().count(), 11, "{out:?}");
    assert!(screens[2].contains("Call8 ") && !screens[2].contains("Call9 "), "{out:?}");
    // A sum is not cut off.
    let afs_clients = (0..30).map(|n| client(n, None, n + 1, 0)).collect();
    let (_, out, _) =
        ran_on(true, vec![reading(110), Top { afs_clients, ..reading(111) }], "-v afs-clients 1 1");
    let last: Vec<&str> = out.lines().rev().take(2).map(|line| cells(line)[0]).collect();
    assert_eq!(last, ["total", "others"], "{out:?}");
    assert!(!ran_on(true, two_of_calls(), "-v calls").1.contains('\x1b'));
}

/// Goal: a daemon without an AFS server is named, with what to do, in the views that need one.
#[test]
fn no_server() {
    let (code, out, err) = ran(vec![Top::default()], "-v calls");
    assert_eq!((code, out.as_str()), (1, ""));
    assert_eq!(err, "the daemon has no AFS server: 'poolhouse afs enable' starts it with a partition\n");
    for view in ["datasets", "ops", "locks"] {
        assert_eq!(ran(vec![Top::default()], &format!("-v {view}")).0, 0, "{view}");
    }
}

/// Goal: a daemon that ends, or its AFS server, ends the command with a message, in each view. It
/// does not report on its own process.
#[test]
fn server_that_ends() {
    let own = Top { process: api::process_id(), ..reading(12) };
    for (then, view, why) in [
        (Top { afs: false, run: 0, ..reading(12) }, "calls", "the daemon has no AFS server"),
        (own.clone(), "calls", "no poolhouse daemon runs"),
        (own, "locks", "no poolhouse daemon runs"),
    ] {
        let (code, _, err) = ran(vec![reading(11), then], &format!("-v {view} 1"));
        assert_eq!(code, 1, "{view}");
        assert!(err.starts_with(why), "{view}: {err}");
    }
}

/// Goal: wrong words are named with what would be right, and the help has each column.
#[test]
fn words() {
    for (line, why) in [
        (
            "-v nope",
            "unknown view 'nope': choose datasets, ops, clients, vms, calls, afs-clients, volumes, attach, locks, promises, threads\n",
        ),
        ("--limit 0", "invalid value '0' of option '--limit': choose 1 to 10000\n"),
        ("0", "invalid interval '0': choose 0.1 to 86400 seconds\n"),
        ("nan", "invalid interval 'nan': choose 0.1 to 86400 seconds\n"),
        ("1 0", "invalid count '0'\n"),
        ("1 2 3", "too many arguments\n"),
        ("--nope", "invalid option '--nope'\n"),
        ("-v", "missing argument for option '-v'\n"),
    ] {
        let (code, out, err) = ran(vec![reading(11)], line);
        assert_eq!((code, out.as_str()), (2, ""), "{line}");
        assert!(err.starts_with(why) && err.contains("\nusage: poolhouse top"), "{line}: {err}");
    }
    let help = ran(vec![reading(11)], "--help").1;
    for (name, _, columns) in VIEWS {
        assert!(help.contains(&format!("\n  {name}\n")), "{help}");
        for column in columns {
            assert!(help.contains(&format!("    {:<12} {}\n", column.name, column.help)), "{help}");
        }
    }
}

fn client(number: u64, user: Option<&str>, fetch: u64, read: u64) -> api::TopAfsClient {
    let user = user.map(str::to_owned);
    let address = format!("10.0.0.{number}:7001");
    api::TopAfsClient { number, address, user, connections: 2, fetch, read, ..Default::default() }
}

/// Two readings of clients. The third client is new. The fourth was there before, but not in the
/// list; the first one has made room since.
fn two_of_clients() -> Vec<Top> {
    let others = |fetch, errors| api::TopAfsClient { fetch, errors, ..Default::default() };
    let before = Top {
        afs_clients: vec![client(1, None, 100, 0), client(2, Some("alice"), 10, 1_048_576)],
        other_afs_clients: others(50, 1),
        next: 5,
        ..reading(110)
    };
    let afs_clients =
        vec![client(2, Some("alice"), 14, 5 * 1_048_576), client(5, None, 20, 0), client(4, None, 60, 0)];
    vec![before, Top { afs_clients, other_afs_clients: others(106, 3), next: 6, ..reading(112) }]
}

/// Goal: clients have what they did in the interval. What is not of a row that was known before is
/// among the others, so the total is right.
#[test]
fn intervals_of_clients() {
    let lines = good(two_of_clients(), "-v afs-clients -j 1 1");
    let json: Vec<&str> = lines[0].split("\"rows\":").collect();
    let zeros = r#""mkfile":0,"rmfile":0,"mkdir":0,"rmdir":0,"rename":0,"lookup":0,"link":0,"symlink":0,"sstore":0,"dstore":0"#;
    let rest = r#""status":0,"other":0,"errors":0,"bytes_in":0"#;
    // In all 160 before, and 200 now.
    let rows = format!(
        r#"[{{"client":"10.0.0.5:7001","connections":2,"calls":20,{zeros},"fetch":20,{rest},"bytes_out":0}},{{"client":"10.0.0.2:7001","user":"alice","connections":2,"calls":4,{zeros},"fetch":4,{rest},"bytes_out":4194304}}]"#
    );
    let rest = r#""status":0,"other":0,"errors":2,"bytes_in":0"#;
    let sums = format!(
        r#","sums":[{{"client":"others","connections":2,"calls":16,{zeros},"fetch":16,{rest},"bytes_out":0}},{{"client":"total","connections":6,"calls":40,{zeros},"fetch":40,{rest},"bytes_out":4194304}}]}}"#
    );
    assert_eq!(json[1], rows + &sums);
    let lines = good(two_of_clients(), "-v afs-clients 2 1");
    assert_eq!(cells(&lines[2])[..4], ["10.0.0.5:7001", "-", "2", "10"]);
    assert_eq!(cells(&lines[3])[..4], ["10.0.0.2:7001", "alice", "2", "2"]);
    assert!(cells(&lines[3]).ends_with(&["0.0", "2.0"]), "{lines:?}");
    assert!(lines[4].starts_with("====="), "{lines:?}");
    assert_eq!((cells(&lines[5])[0], cells(&lines[6])[0], lines.len()), ("others", "total", 7));
}

/// A client of a front end with so many reads, each of 1 KiB and 1 ms.
fn reader(number: u64, kind: &str, reads: u64) -> api::TopClient {
    let times = TopTimes { sum: reads * 1_000_000, max: 1_000_000, buckets: vec![(1_048_575, reads)] };
    let (ops, failed) = (vec![api::TopClientOp { op: "read".to_owned(), count: reads }], reads / 2);
    let errors = vec![("read EIO".to_owned(), failed)];
    let (kind, read, ns) = (kind.to_owned(), reads * 1024, times.sum);
    api::TopClient { number, kind, ops, failed, errors, read, ns, reads: times, ..Default::default() }
}

/// Two readings of clients. The second process is new, and the first one of AFS, too.
fn two_of_all_clients() -> Vec<Top> {
    let process = |number, pid, reads| api::TopClient {
        name: "post\u{7}gres".to_owned(),
        pid: Some(pid),
        uid: Some(999),
        cgroup: "/db".to_owned(),
        ..reader(number, "fuse", reads)
    };
    let volume = |reads| api::TopClient {
        name: "10.0.0.7".to_owned(),
        volume: Some("tank/v".to_owned()),
        subject: Some("CN=vm".to_owned()),
        connections: Some(2),
        ..reader(4, "nbd", reads)
    };
    let peer = |reads| api::TopClient { name: "10.0.0.9:7001 alice".to_owned(), ..reader(7, "afs", reads) };
    let others = |reads| vec![reader(0, "", reads)];
    let before = Top {
        clients: vec![process(3, 42, 10), volume(10)],
        other_clients: others(5),
        next: 5,
        afs_run: 1,
        afs_next: 7,
        ..reading(110)
    };
    let clients = vec![process(3, 42, 14), process(5, 43, 20), volume(40), peer(2)];
    let other_clients = others(6);
    let clock_ns = reading(111).clock_ns;
    vec![before.clone(), Top { clients, other_clients, clock_ns, next: 6, afs_next: 8, ..before }]
}

/// Goal: clients of all kinds have what they did in the interval. Those of AFS have their own
/// numbers. Scripts get more than people.
#[test]
fn intervals_of_all_clients() {
    let lines = good(two_of_all_clients(), "-v clients 1 1");
    let rows: Vec<Vec<&str>> = lines[2..].iter().map(|line| cells(line)).collect();
    let names: Vec<&str> = rows.iter().map(|row| row[0]).collect();
    let process = |pid| format!("post\\007gres[{pid}] u:999");
    let (first, second) = (process(43), process(42));
    let expected = [
        "10.0.0.7",
        &first,
        &second,
        "10.0.0.9:7001 alice",
        "=".repeat(names[4].len()).leak(),
        "others",
        "total",
    ];
    assert_eq!(names, expected, "{lines:?}");
    let ops: Vec<&str> = [0, 1, 2, 3, 5, 6].iter().map(|at| rows[*at][3]).collect();
    assert_eq!(ops, ["30", "20", "4", "2", "1", "57"], "{lines:?}");
    assert_eq!(rows[0][1..3], ["nbd", "2"]);
    assert!(rows[0].ends_with(&["1.00", "tank/v", "read EIO"]), "{lines:?}");
    assert!(!lines.join(" ").contains("/db"));
    let json = good(two_of_all_clients(), "-v clients -j 1 1").remove(0);
    let most = r#""bytes_written":0,"mean_ns":1000000,"volume":"tank/v","most_errors":"read EIO","subject":"CN=vm","number":4}"#;
    assert!(json.contains(most), "{json}");
    let more = r#""process":"post\\007gres","pid":43,"uid":999,"cgroup":"/db","number":5}"#;
    assert!(json.contains(more), "{json}");
    // Another server of AFS counts from zero, and a reading without one says nothing.
    let mut readings = two_of_all_clients();
    readings[0].clients.push(api::TopClient { name: String::new(), ..reader(7, "afs", 100) });
    (readings[1].afs_run, readings[1].afs_next) = (2, 9);
    let total = |readings| good(readings, "-v clients -p 1 1").pop().unwrap();
    assert!(total(readings.clone()).starts_with("1800000000\ttotal\t-\t-\t57.000\t"));
    (readings[0].afs_run, readings[0].clients) = (0, readings[0].clients[..2].to_vec());
    assert!(total(readings).starts_with("1800000000\ttotal\t-\t-\t55.000\t"));
}

/// Goal: each client of a volume has its reads and writes, with sizes and times.
#[test]
fn intervals_of_vms() {
    let only = |mut top: Top| {
        top.clients.retain(|client| client.volume.is_some());
        top
    };
    let readings: Vec<Top> = two_of_all_clients().into_iter().map(only).collect();
    let lines = good(readings.clone(), "-v vms 1 1");
    let row =
        ["tank/v", "10.0.0.7", "30", "0", "0.0", "0.0", "1.00", "-", "1.00", "-", "1.00", "-", "1.00", "-"];
    assert_eq!((cells(&lines[2]), lines.len()), (row.to_vec(), 3));
    assert_eq!(cells(&lines[1])[6..8], ["R SIZE KB", "W SIZE KB"]);
    let json = good(readings, "-v vms -j 1 1").remove(0);
    let row = r#"[{"volume":"tank/v","client":"10.0.0.7","reads":30,"writes":0,"bytes_read":30720,"bytes_written":0,"read_size":1024,"read_mean_ns":1000000,"read_p99_ns":1000000,"read_max_ns":1000000}]"#;
    assert!(json.ends_with(&format!(r#""rows":{row}}}"#)), "{json}");
}

/// Goal: a limit moves rows to the others, and a total without others has one row.
#[test]
fn limits() {
    let second = two_of_clients().remove(1);
    let lines = good(vec![second.clone()], "-v afs-clients -p --limit 1");
    let calls = |line: &String| line.split('\t').nth(4).unwrap().to_owned();
    assert_eq!(lines[1..].iter().map(calls).collect::<Vec<_>>(), ["60", "140", "200"]);
    let whole = Top { other_afs_clients: api::TopAfsClient::default(), ..second };
    assert_eq!(good(vec![whole], "-v afs-clients -p").len(), 5);
}

/// Goal: volumes are in the order of bytes that moved. A name that is not known is a dash, and one
/// that is hostile is harmless.
#[test]
fn volumes_by_bytes() {
    let volume = |id, name: &str, calls, read| {
        let (partition, name) = ("/vicepa".to_owned(), name.to_owned());
        api::TopVolume { number: id, partition, id: id as u32, name, calls, read, ..Default::default() }
    };
    let before = Top { volumes: vec![volume(1, "root", 9, 500)], next: 2, ..reading(110) };
    let volumes =
        vec![volume(1, "root", 10, 1_500), volume(2, "\u{1b}[31mred\n", 3, 4_000), volume(3, "", 1, 2_000)];
    let other_volumes = vec![volume(0, "", 7, 70)];
    let now = Top { volumes, other_volumes, next: 4, ..reading(111) };
    let lines = good(vec![before, now], "-v volumes -p 1 1");
    let row = |line: &str| line.split('\t').skip(1).map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(row(&lines[1]), ["/vicepa", "2", "\\033[31mred\\012", "3.000", "4000.000", "0.000"]);
    assert_eq!(row(&lines[2]), ["/vicepa", "3", "-", "1.000", "2000.000", "0.000"]);
    assert_eq!(row(&lines[3]), ["/vicepa", "1", "root", "1.000", "1000.000", "0.000"]);
    assert_eq!(row(&lines[4]), ["others", "-", "-", "7.000", "70.000", "0.000"]);
    assert_eq!(row(&lines[5]), ["total", "-", "-", "12.000", "7070.000", "0.000"]);
}

/// Goal: locks have waits, their time, and its share of the interval. A daemon without an AFS
/// server has them too.
#[test]
fn waits_for_locks() {
    let lock = |count| {
        let buckets = vec![(1_000_000, count)];
        let waits = TopTimes { sum: count * 1_000_000, max: 1_000_000, buckets };
        vec![api::TopLock { name: "afs volumes".to_owned(), waits, ..api::TopLock::default() }]
    };
    let at = |second, count| Top { locks: lock(count), afs: false, ..reading(second) };
    let lines = good(vec![at(110, 100), at(112, 350)], "-v locks 2 1");
    assert_eq!(cells(&lines[1])[..4], ["LOCK", "WAITS/s", "WAITED ms", "SHARE %"]);
    assert_eq!(cells(&lines[2])[..5], ["afs volumes", "125", "250", "12.5", "1.00"]);
}

/// Goal: partitions have how often volumes came into use, and how long that took.
#[test]
fn attached_volumes() {
    let of = |attached, opens, failed| {
        let opened = TopTimes { sum: opens * 2_000_000, max: 2_000_000, buckets: vec![(2_000_000, opens)] };
        let partition = "/vicepa".to_owned();
        vec![api::TopAttach { partition, attached, opened, failed, closed: opens / 2, rested: 0 }]
    };
    let at = |second, attach| Top { attach, ..reading(second) };
    let lines = good(vec![at(110, of(10, 4, 0)), at(111, of(30, 20, 1))], "-v attach 1 1");
    let row = ["/vicepa", "20", "16", "2.00", "2.00", "2.00", "2.00", "1", "8"];
    assert_eq!((cells(&lines[2]), lines.len()), (row.to_vec(), 3));
}

/// Goal: promises are those of this moment, with a total that has those which are not listed.
#[test]
fn promises_now() {
    let of = |address: &str, files, whole| api::TopPromise {
        address: address.to_owned(),
        volume: 7,
        files,
        whole,
        ..Default::default()
    };
    let promises = vec![of("10.0.0.1:7001", 5, false), of("", 0, true)];
    let now = Top { promises, other_promises: 4, ..reading(110) };
    let lines = good(vec![now.clone(), now], "-v promises 1 1");
    assert!(lines[0].ends_with("08:00:00 2027"), "{lines:?}");
    assert_eq!(cells(&lines[2]), ["10.0.0.1:7001", "7", "-", "5", "no", "-"]);
    assert_eq!(cells(&lines[3]), ["-", "7", "-", "1", "yes", "-"]);
    assert_eq!(cells(&lines[5])[..4], ["others", "-", "-", "4"]);
    assert_eq!(cells(&lines[6])[..4], ["total", "-", "-", "10"]);
}

/// Goal: options of another view are refused with the view that has them.
#[test]
fn options_of_views() {
    for (line, why) in [
        ("-v locks --call x", "option '--call' is for the view calls, not locks\n"),
        ("--client 10.0.0.1 -v calls", "option '--client' is for the view promises, not calls\n"),
        ("--op read --call x", "option '--call' is for the view calls, not ops\n"),
        ("-v promises --volume x", "'x' is no volume: give its number\n"),
    ] {
        let (code, _, err) = ran(vec![reading(11)], line);
        assert!(code == 2 && err.starts_with(why), "{line}: {err}");
    }
    // An option chooses the view that has it.
    for (line, view) in [
        ("--client 10.0.0.1 --volume 7", "promises"),
        ("-v promises --client 10.0.0.1", "promises"),
        ("--op read", "ops"),
        ("--call FetchStatus", "calls"),
        ("", "datasets"),
    ] {
        let (code, out, _) = ran(vec![reading(11)], line);
        assert!(code == 0 && out.starts_with(&format!("poolhouse top  {view}  ")), "{line}: {out}");
    }
}

fn class(name: &str, buckets: &[(u64, u64)], bytes: u64, errors: u64) -> TopClass {
    let sum = buckets.iter().map(|(top, count)| top * count).sum();
    let max = buckets.last().map_or(0, |(top, _)| *top);
    TopClass {
        class: name.to_owned(),
        times: TopTimes { sum, max, buckets: buckets.to_vec() },
        bytes,
        errors,
    }
}

fn dataset(number: u64, classes: &[TopClass]) -> TopDataset {
    TopDataset { number, name: format!("tank/{number}"), classes: classes.to_vec() }
}

fn pool(number: u64, datasets: Vec<TopDataset>, other_datasets: Vec<TopClass>) -> TopPool {
    TopPool { number, name: "tank".to_owned(), datasets, other_datasets, ops: Vec::new() }
}

/// Two readings of datasets, two seconds apart. The third dataset is new. The fourth was there
/// before, but not in the list. The counters of the first one have moved to the others since.
fn two_of_datasets() -> Vec<Top> {
    let read = |n| class("read", &[(1_000, n)], n * 4096, 0);
    let first = dataset(11, &[read(100)]);
    let second = |n| dataset(12, &[class("write", &[(2_000, n)], n * 1_048_576, 0), read(3)]);
    let names = |n: u64| class("names", &[(1_000, n - 1), (8_000, 1)], 0, n - 4);
    let before = pool(1, vec![first, second(10)], vec![read(50)]);
    let third = TopDataset { name: "tank/a\u{1b}[2J".to_owned(), ..dataset(15, &[names(20)]) };
    let now = pool(1, vec![second(14), third, dataset(14, &[read(60)])], vec![read(156)]);
    vec![
        Top { pools: vec![before], next: 15, ..reading(110) },
        Top { pools: vec![now], next: 16, ..reading(112) },
    ]
}

/// Goal: datasets have what was done in the interval, by classes. What is not of a row that was
/// known before is among the others, so the total is right.
#[test]
fn intervals_of_datasets() {
    let lines = good(two_of_datasets(), "-p 2 1");
    let row = |line: &str| line.split('\t').skip(1).map(str::to_owned).collect::<Vec<_>>();
    let head = "DATASET OPS READ WRITE SYNC LOOKUP NAMES ATTR OTHER ERRORS OUT IN AVG p99 MAX";
    assert_eq!(row(&lines[0]), head.split(' ').collect::<Vec<_>>());
    let numbers = |name: &str, rest: &str| {
        let rest = rest.split(' ').map(str::to_owned);
        [name.to_owned()].into_iter().chain(rest).collect::<Vec<_>>()
    };
    let zeros = "0.000 0.000 0.000";
    let third = format!("10.000 0.000 {zeros} 10.000 0.000 0.000 8.000 0.000 0.000 1350 8000 8000");
    assert_eq!(row(&lines[1]), numbers("tank/a\\033[2J", &third));
    let second = format!("2.000 0.000 2.000 {zeros} {zeros} 0.000 2097152.000 2000 2000 2000");
    assert_eq!(row(&lines[2]), numbers("tank/12", &second));
    // Of 153 reads before, and 219 now, none is in a row.
    let others = format!("33.000 33.000 {zeros} {zeros} 0.000 135168.000 0.000 - - -");
    assert_eq!(row(&lines[3]), numbers("others", &others));
    assert_eq!(row(&lines[4])[..4], numbers("total", "45.000 33.000 2.000"));
    assert_eq!(row(&lines[4])[9..12], ["8.000", "135168.000", "2097152.000"]);
    assert_eq!(lines.len(), 5);
}

/// Goal: a pool that was imported anew counts from zero, and one that is gone takes nothing from
/// the total.
#[test]
fn pools_that_change() {
    let mut readings = two_of_datasets();
    let read = |n| vec![class("read", &[(1_000, n)], 0, 0)];
    readings[1].pools = vec![pool(20, vec![dataset(21, &read(7))], read(1))];
    let lines = good(readings.clone(), "-p 1 1");
    let ops = |line: &String| line.split('\t').nth(2).unwrap().to_owned();
    assert_eq!(lines[1..].iter().map(ops).collect::<Vec<_>>(), ["3.500", "0.500", "4.000"]);
    readings[1].pools.clear();
    assert_eq!(good(readings, "-p 1 1")[1..].iter().map(ops).collect::<Vec<_>>(), ["0.000"]);
}

/// Goal: operations are by kind, with their errnos, and one of them by its times.
#[test]
fn intervals_of_operations() {
    let op = |frontend: &str, op: &str, n: u64, failed: u64| TopOp {
        frontend: frontend.to_owned(),
        op: op.to_owned(),
        times: class("", &[(1_000, n)], 0, 0).times,
        bytes: n * 1_048_576,
        errors: vec![("ENOENT".to_owned(), failed)],
        other_errors: failed / 2,
    };
    let pool = |ops| Top { pools: vec![TopPool { ops, ..pool(1, Vec::new(), Vec::new()) }], ..reading(110) };
    let before = pool(vec![op("fuse", "read", 5, 0)]);
    let now = pool(vec![op("fuse", "read", 9, 0), op("fuse", "rmdir", 6, 4), op("nbd", "read", 2, 0)]);
    let now = Top { clock_ns: 112_000_000_000, ..now };
    let lines = good(vec![before, now], "-v ops 2 1");
    let row =
        ["tank", "fuse", "rmdir", "3", "3.0", "0.001", "0.001", "0.001", "0.001", "3", "ENOENT 4, others 2"];
    assert_eq!(cells(&lines[2]), row);
    assert_eq!(cells(&lines[3])[..5], ["tank", "fuse", "read", "2", "2.0"]);
    assert_eq!((cells(&lines[4])[..5].to_vec(), lines.len()), (vec!["tank", "nbd", "read", "1", "1.0"], 5));
    let last = pool(vec![op("fuse", "read", 9, 0), op("nbd", "read", 2, 0)]);
    let lines = good(vec![last], "--op READ");
    assert_eq!(lines[1], "read of tank through fuse: 9, read of tank through nbd: 2");
    assert_eq!(cells(&lines[3])[2], "11");
}
