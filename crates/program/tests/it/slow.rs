//! `poolhouse slower`, `poolhouse ops` and `poolhouse top -v threads`: what is slow, what is under
//! way, and what it waits for.
//!
//! Tests that need a mount print a message and do nothing without one.

use crate::client::Client;
use crate::daemon::command;
use crate::observed::Stand;
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::FileExt;
use std::process::Stdio;
use std::time::{Duration, Instant};

impl Stand {
    /// The operations that a command prints as lines of JSON.
    fn slow(&self, line: &str) -> Vec<Value> {
        let said = self.daemon.good(&format!("slower -j {line}"));
        said.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
    }

    /// What is under way.
    fn under_way(&self) -> Vec<Value> {
        let said = self.daemon.good("ops -j");
        let document: Value = serde_json::from_str(&said).expect("JSON");
        document["ops"].as_array().expect("ops").clone()
    }

    /// Delays all I/O of the pool's device by so many milliseconds. Returns the device's path.
    fn delay(&self, ms: u32) -> String {
        let device = self.at("d0").display().to_string();
        self.daemon.good(&format!("zinject -d {device} -D {ms}:1 tank"));
        device
    }
}

/// Contents that need a block of their own.
fn incompressible() -> [u8; 8192] {
    let mut seed = 1u32;
    std::array::from_fn(|_| {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (seed >> 24) as u8
    })
}

fn number(row: &Value, key: &str) -> u64 {
    row[key].as_u64().unwrap_or(0)
}

fn text<'a>(row: &'a Value, key: &str) -> &'a str {
    row[key].as_str().unwrap_or_default()
}

/// Goal: of an fsync and a read on a device with a known delay, at least 95 % of the time are waits
/// for that device, which is named, as are the file and its process. This holds for a mount of its
/// own and a nested one.
#[test]
fn where_time_goes() {
    for words in [&[][..], &["--nest"]] {
        let Some(s) = Stand::new(words) else { return };
        s.daemon.good("zfs create -o primarycache=metadata tank/a");
        fs::create_dir(s.at("mnt/a/dir")).expect("a directory");
        let path = s.at("mnt/a/dir/file");
        let file = fs::File::create(&path).expect("a file");
        file.write_all_at(&[1; 8192], 0).expect("it is written");
        file.sync_all().expect("it is durable");
        s.daemon.good("zpool sync tank");
        let device = s.delay(60);
        file.write_all_at(&incompressible(), 0).expect("it is written");
        file.sync_all().expect("it is durable");
        let synced = s.slow("--last 5m --op fsync 50");
        let [synced] = &synced[..] else { panic!("one fsync: {synced:?}") };
        let took = number(synced, "took_ns");
        let waited = number(synced, "write_ns") + number(synced, "flush_ns");
        assert!(took >= 120_000_000 && waited * 100 >= took * 95 && waited <= took, "{synced}");
        let longest = text(synced, "longest");
        assert!([format!("write: {device}"), format!("flush: {device}")].contains(&longest.to_owned()));
        assert_eq!((text(synced, "dataset"), text(synced, "file")), ("tank/a", "/dir/file"), "{words:?}");
        let (pid, uid) = (rustix::thread::gettid().as_raw_nonzero(), rustix::process::getuid().as_raw());
        let client = text(synced, "client");
        assert!(client.ends_with(&format!("[{pid}] u:{uid}")), "{client}");
        s.daemon.good("zinject -c all");
        s.daemon.good("zpool sync tank");
        drop(file);

        s.daemon.good("zpool export tank");
        s.daemon.good(&format!("zpool import -d {} tank", s.at("").display()));
        fs::metadata(&path).expect("it is there");
        s.delay(60);
        assert_eq!(fs::read(&path).expect("it is read"), incompressible());
        let read = s.slow("--last 5m --op read --dataset tank/a 50");
        let [read] = &read[..] else { panic!("one read: {read:?}") };
        let (took, waited) = (number(read, "took_ns"), number(read, "read_ns"));
        assert!(took >= 60_000_000 && waited * 100 >= took * 95 && waited <= took, "{read}");
        assert_eq!(text(read, "longest"), format!("read: {device}"));
        assert_eq!((number(read, "bytes"), text(read, "file")), (8192, "/dir/file"));
        assert!(s.slow("--last 5m --dataset tank/b 0").is_empty());
    }
}

/// Goal: while an operation waits for a device, it is shown with its file, age and wait. Afterwards
/// it is not.
#[test]
fn what_is_under_way() {
    let Some(s) = Stand::new(&[]) else { return };
    s.daemon.good("zfs create tank/a");
    let file = fs::File::create(s.at("mnt/a/file")).expect("a file");
    // The first fsync waits for the transaction group with the log.
    file.write_all_at(&[7; 8192], 0).expect("it is written");
    file.sync_all().expect("it is durable");
    file.write_all_at(&[8; 8192], 0).expect("it is written");
    let device = s.delay(700);
    std::thread::scope(|scope| {
        let syncing = scope.spawn(|| file.sync_all().expect("it is durable"));
        let until = Instant::now() + Duration::from_secs(20);
        let seen = loop {
            let all = s.under_way();
            let found = all.into_iter().find(|row| text(row, "op") == "fsync" && row["wait"] != Value::Null);
            if let Some(found) = found.filter(|row| number(row, "wait_ns") >= 100_000_000) {
                break found;
            }
            assert!(!syncing.is_finished() && Instant::now() < until, "it was never seen");
        };
        let wait = text(&seen, "wait");
        assert!(
            [format!("write: {device}"), format!("flush: {device}")].contains(&wait.to_owned()),
            "{seen}"
        );
        assert_eq!((text(&seen, "dataset"), text(&seen, "file")), ("tank/a", "/file"));
        assert!(number(&seen, "age_ns") >= number(&seen, "wait_ns"), "{seen}");
        syncing.join().expect("it ends");
    });
    s.daemon.good("zinject -c all");
    assert!(s.under_way().iter().all(|row| text(row, "op") != "fsync"));
    let shown = s.daemon.good("top -j -v threads");
    let document: Value = serde_json::from_str(&shown).expect("JSON");
    let rows = document["rows"].as_array().expect("rows");
    let of = |column: &str| rows.iter().map(|row| number(row, column)).sum::<u64>();
    // The share of the time since the start, in hundredths of a percent.
    assert!(of("write") + of("flush") > 0, "{shown}");
    // The worker that synced waited for the device 1.4 s, and hardly computed.
    let worker = |row: &&Value| number(row, "flush") + number(row, "write") > 1_000;
    let worker = rows.iter().find(worker).unwrap_or_else(|| panic!("{shown}"));
    assert!(text(worker, "thread").starts_with("fuse-tank-") && number(worker, "user") < 1_000, "{worker}");
}

/// Goal: while a command watches, it prints each operation once, as it ends, with its errno.
#[test]
fn each_is_printed_once() {
    let Some(s) = Stand::new(&[]) else { return };
    fs::create_dir_all(s.at("mnt/full/inner")).expect("directories");
    let mut watch = command(s.at("").as_path(), "slower -p -n 4 --op rmdir,write 0");
    let mut watching = watch.stdout(Stdio::piped()).spawn().expect("it starts");
    // The first request begins the watch, and the heads come after it.
    let mut lines = BufReader::new(watching.stdout.take().expect("a pipe"));
    let mut said = String::new();
    lines.read_line(&mut said).expect("the heads");
    for _ in 0..57 {
        fs::remove_dir(s.at("mnt/full")).expect_err("it is not empty");
    }
    fs::remove_dir(s.at("mnt/full/inner")).expect("it is empty");
    fs::write(s.at("mnt/file"), [1; 4096]).expect("it is written");
    lines.read_to_string(&mut said).expect("text");
    assert!(watching.wait().expect("it ends").success());
    let of = |op: &str, error: &str| {
        let cells = said.lines().map(|line| line.split('\t').collect::<Vec<_>>());
        cells.filter(|cells| (cells[11], cells[14]) == (op, error)).count()
    };
    let counts = [of("rmdir", "ENOTEMPTY"), of("rmdir", "-"), of("write", "-"), of("OP", "ERROR")];
    assert_eq!((counts, said.lines().count()), ([57, 1, 1, 1], 60), "{said}");
}

/// Goal: operations of a volume are there too.
#[test]
fn volumes() {
    let s = Stand::unmounted();
    let socket = s.at("sock");
    s.daemon.good("zfs create -s -V 64m tank/v");
    s.daemon.good(&format!("export -l {} tank/v", socket.display()));
    let mut client = Client::of(&socket, "tank/v");
    client.write(0, &[3; 8192]);
    client.flush();
    client.bye();
    let all = s.slow("--last 1m --dataset tank 0");
    let mut seen: Vec<_> = all
        .iter()
        .map(|row| (text(row, "op"), text(row, "frontend"), text(row, "dataset"), number(row, "bytes")))
        .collect();
    seen.sort_unstable();
    assert_eq!(seen, [("flush", "nbd", "tank/v", 0), ("write", "nbd", "tank/v", 8192)]);
}

/// Goal: a transaction group shows what waited for it, and where the time of its sync went: on a
/// device with a known delay, at least 95 % of it are waits for that device.
#[test]
fn why_groups_close() {
    let s = Stand::unmounted();
    s.daemon.good("zfs create tank/a");
    let device = s.delay(30);
    s.daemon.good("zfs snapshot tank/a@s");
    s.daemon.good("zinject -c all");
    let said = s.daemon.good("txgs -j -n 100 tank");
    let document: Value = serde_json::from_str(&said).expect("JSON");
    let all = document["txgs"].as_array().expect("groups");
    let by_command = |row: &&Value| text(row, "closed") == "request: change";
    let delayed = |row: &&Value| by_command(row) && number(row, "flush_ns") >= 30_000_000;
    let group = all.iter().find(delayed).unwrap_or_else(|| panic!("{all:?}"));
    let [sync, read, write, flush] =
        ["sync_ns", "read_ns", "write_ns", "flush_ns"].map(|key| number(group, key));
    assert!((read + write + flush) * 100 >= sync * 95 && read + write + flush <= sync, "{group}");
    assert!(text(group, "longest").ends_with(&device), "{group}");
    assert_eq!(text(group, "stage"), "committed");
    let last = all.last().expect("a group");
    assert_eq!((text(last, "stage"), last.get("closed")), ("open", None), "{last}");
    assert!(s.daemon.good("txgs").lines().count() > 3);
}
