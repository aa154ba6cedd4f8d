//! `poolhouse top` says exactly what users did: through mounts, nested mounts, snapshots and NBD.
//!
//! Tests that need a mount print a message and do nothing without one.

use crate::client::Client;
use crate::daemon::{Daemon, image};
use nbd::abi::cmd;
use serde_json::Value;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// A daemon with a pool whose file systems are mounted.
pub(crate) struct Stand {
    pub(crate) daemon: Daemon,
    dir: tempfile::TempDir,
}

impl Stand {
    /// A daemon with a pool that mounts nothing.
    pub(crate) fn unmounted() -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        let stand = Self { daemon: Daemon::start(dir.path()), dir };
        image(&stand.at("d0"));
        stand.daemon.good(&format!("zpool create -m none tank {}", stand.at("d0").display()));
        stand
    }

    /// Returns `None` if mounting is not possible.
    pub(crate) fn new(words: &[&str]) -> Option<Self> {
        let dir = tempfile::tempdir().expect("a folder");
        let daemon = Daemon::start_with(dir.path(), words)?;
        let stand = Self { daemon, dir };
        image(&stand.at("d0"));
        let at = stand.dir.path().display();
        let made = stand.daemon.ran(&format!("zpool create -m {at}/mnt tank {at}/d0"));
        if !made.status.success() {
            eprintln!("nothing can be mounted here: {}", crate::daemon::said(&made));
            return None;
        }
        Some(stand)
    }

    pub(crate) fn at(&self, path: &str) -> PathBuf {
        self.dir.path().join(path)
    }

    /// The rows of a view.
    pub(crate) fn rows_of(&self, view: &str) -> Vec<Value> {
        let said = self.daemon.good(&format!("top -j -v {view}"));
        let document: Value = serde_json::from_str(&said).expect("JSON");
        document["rows"].as_array().expect("rows").clone()
    }

    /// The rows of a view whose column has this text.
    pub(crate) fn rows(&self, view: &str, column: &str, text: &str) -> Vec<Value> {
        self.rows_of(view).into_iter().filter(|row| row[column] == text).collect()
    }

    /// Numbers of a dataset's row, by their columns. Zeros if it has no row.
    fn dataset<const N: usize>(&self, name: &str, columns: [&str; N]) -> [u64; N] {
        let rows = self.rows("datasets", "dataset", name);
        assert!(rows.len() <= 1, "{rows:?}");
        columns.map(|column| rows.first().map_or(0, |row| row[column].as_u64().expect(column)))
    }

    /// The names and values of a dataset's kstat.
    fn kstat_of(&self, dataset: &str) -> Vec<(String, String)> {
        let names = self.daemon.good("get kstat");
        let all = names.split_whitespace().filter(|name| name.starts_with("tank/objset-"));
        let pair = |line: &str| {
            let mut words = line.split_whitespace();
            Some((words.next()?.to_owned(), words.next_back()?.to_owned()))
        };
        let of =
            |name: &str| self.daemon.good(&format!("get kstat {name}")).lines().filter_map(pair).collect();
        let found = all.map(of).find(|values: &Vec<_>| values.iter().any(|(_, value)| value == dataset));
        found.expect("a kstat")
    }

    /// How many operations of this name there were, with bytes, errors and their codes.
    fn op(&self, frontend: &str, op: &str) -> (u64, u64, u64, String) {
        let rows = self.rows("ops", "op", op);
        let row = rows.into_iter().find(|row| row["frontend"] == frontend).unwrap_or_default();
        let number = |key: &str| row[key].as_u64().unwrap_or(0);
        let codes = row["codes"].as_str().unwrap_or_default().to_owned();
        (number("ops"), number("bytes"), number("errors"), codes)
    }
}

/// Does known work below a directory: 5 writes of 8 KiB with an fsync each, 57 `rmdir`s that fail,
/// and one that doesn't.
pub(crate) fn work(dir: &Path) {
    let file = fs::File::create(dir.join("file")).expect("a file");
    for at in 0..5 {
        file.write_all_at(&[7; 8192], at * 8192).expect("it is written");
        file.sync_all().expect("it is durable");
    }
    fs::create_dir_all(dir.join("full/inner")).expect("directories");
    for _ in 0..57 {
        let error = fs::remove_dir(dir.join("full")).expect_err("it is not empty");
        assert_eq!(error.kind(), std::io::ErrorKind::DirectoryNotEmpty);
    }
    fs::remove_dir(dir.join("full/inner")).expect("it is empty");
}

pub(crate) const OF_WORK: [&str; 5] = ["writes", "syncs", "bytes_written", "errors", "reads"];
pub(crate) const WORKED: [u64; 5] = [5, 5, 5 * 8192, 57, 0];

/// Goal: each dataset has exactly what was done to it, whether its mount is its own or nested. A
/// renamed one keeps its numbers, and a snapshot has its own.
#[test]
fn known_work_on_files() {
    for words in [&[][..], &["--nest"]] {
        let Some(s) = Stand::new(words) else { return };
        s.daemon.good("zfs create tank/a");
        s.daemon.good("zfs create tank/b");
        assert_eq!(s.dataset("tank/a", ["writes", "syncs"]), [0, 0]);
        work(&s.at("mnt/a"));
        assert_eq!(s.dataset("tank/a", OF_WORK), WORKED, "{words:?}");
        assert_eq!(s.dataset("tank/b", OF_WORK), [0; 5], "{words:?}");
        assert_eq!(s.op("fuse", "write"), (5, 5 * 8192, 0, String::new()));
        assert_eq!(s.op("fuse", "rmdir"), (58, 0, 57, "ENOTEMPTY 57".to_owned()));
        assert_eq!(s.op("fuse", "fsync").0, 5);
        // The kernel looks for a name before it makes it, and for capabilities before each write.
        assert_eq!((s.op("fuse", "lookup").2, s.op("fuse", "getxattr").2), (0, 0));
        assert!(s.op("fuse", "lookup").0 > 0 && s.dataset("tank", ["lookups"])[0] > 0);
        let kstat = s.kstat_of("tank/a");
        let number = |name: &str| kstat.iter().find(|(known, _)| known == name).expect(name).1.clone();
        let numbers = ["writes", "nwritten", "reads", "nread", "nunlinks"].map(number);
        // An empty directory was removed.
        assert_eq!(numbers, ["5", "40960", "0", "0", "1"]);
        let page = s.daemon.good("metrics");
        let row = r#"poolhouse_op_errors_total{pool="tank",frontend="fuse",op="rmdir",errno="ENOTEMPTY"} 57"#;
        assert!(page.lines().any(|line| line == row), "{page}");
        let row = r#"poolhouse_dataset_bytes_total{pool="tank",dataset="tank/a",class="write"} 40960"#;
        assert!(page.lines().any(|line| line == row), "{page}");
        s.daemon.good("zfs snapshot tank/a@s");
        let in_snapshot = fs::read(s.at("mnt/a/.zfs/snapshot/s/file")).expect("it is there");
        assert_eq!(in_snapshot.len(), 5 * 8192);
        let [reads, read] = s.dataset("tank/a@s", ["reads", "bytes_read"]);
        assert!((1..=5).contains(&reads) && read == 5 * 8192, "{reads} {read}");
        assert_eq!(s.dataset("tank/a", OF_WORK), WORKED, "{words:?}");
        s.daemon.good("zfs rename tank/a tank/c");
        work(&s.at("mnt/c"));
        assert_eq!(s.dataset("tank/c", OF_WORK), WORKED.map(|number| 2 * number), "{words:?}");
        assert!(s.rows("datasets", "dataset", "tank/a").is_empty());
        s.daemon.good("zpool export tank");
        assert!(s.rows("ops", "pool", "tank").is_empty());
    }
}

/// Goal: a volume has exactly what a client sent, with errors by their codes.
#[test]
fn known_work_on_a_volume() {
    let s = Stand::unmounted();
    let socket = s.at("sock");
    s.daemon.good("zfs create -s -V 64m tank/v");
    s.daemon.good(&format!("export -l {} tank/v", socket.display()));
    let mut client = Client::of(&socket, "tank/v");
    for at in 0..7 {
        client.write(at * 8192, &[3; 8192]);
    }
    for at in 0..4 {
        assert_eq!(client.read(at * 8192, 4096), [3; 4096]);
    }
    client.flush();
    let _ = client.ask(cmd::TRIM, 0, 0, 8192, &[]);
    for _ in 0..3 {
        let _ = client.ask(cmd::READ, 0, 1 << 40, 4096, &[]);
    }
    let columns = ["reads", "writes", "syncs", "others", "errors", "bytes_read", "bytes_written"];
    assert_eq!(s.dataset("tank/v", columns), [7, 7, 1, 1, 3, 4 * 4096, 7 * 8192]);
    assert_eq!(s.op("nbd", "read"), (7, 4 * 4096, 3, "EINVAL 3".to_owned()));
    assert_eq!(s.op("nbd", "trim").0, 1);
    client.bye();
    let shown = s.daemon.good("top --op write");
    assert!(shown.contains("write of tank through nbd: 7\n"), "{shown}");
}
