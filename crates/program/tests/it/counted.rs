//! Counters and tunables of a running daemon: by name, as files, and in the reports of `arcstat`
//! and `arc_summary`.
//!
//! Tests that need a mount print a message and do nothing without one.

use crate::daemon::{Daemon, image, said};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A daemon with its tree of files.
struct Stand {
    daemon: Daemon,
    dir: tempfile::TempDir,
}

impl Stand {
    /// Returns `None` if mounting is not possible.
    fn new() -> Option<Self> {
        let dir = tempfile::tempdir().expect("a folder");
        // The daemon creates the directory.
        let tree = format!("{}/tree", dir.path().display());
        let daemon = Daemon::start_with(dir.path(), &["--tree", &tree]);
        if daemon.is_none() {
            eprintln!("nothing can be mounted here");
        }
        Some(Self { daemon: daemon?, dir })
    }

    fn good(&self, line: &str) -> String {
        self.daemon.good(line)
    }

    fn at(&self, path: &str) -> PathBuf {
        self.dir.path().join(path)
    }

    /// A file of the tree.
    fn read(&self, path: &str) -> String {
        fs::read_to_string(self.at("tree").join(path)).expect(path)
    }

    /// A counter of a kstat.
    fn value(&self, kstat: &str, name: &str) -> u64 {
        let text = self.read(&format!("proc/spl/kstat/zfs/{kstat}"));
        let row = text.lines().skip(2).find(|line| line.split_whitespace().next() == Some(name)).expect(name);
        row.split_whitespace().nth(2).and_then(|n| n.parse().ok()).expect("a number")
    }

    /// Writes to a file of the pool, with an fsync.
    fn fsync(&self) {
        let file = self.at("mnt/file");
        fs::write(&file, "x").and_then(|()| fs::File::open(&file)?.sync_all()).expect("it is mounted");
    }
}

const PARAMETERS: &str = "sys/module/zfs/parameters";

/// Goal: counters and tunables are shown and set by name and as files. Each read returns the
/// current value, and a tunable applies to later pools too.
#[test]
fn counted_and_set() {
    let Some(s) = Stand::new() else { return };
    // The tree is mounted before the daemon replies to any request.
    assert_eq!(s.good("get tunable zfs_txg_timeout"), "5\n");
    descriptions_in_one_column(&s.good("get tunable"));
    module_files(&s);
    tunables_are_set(&s);
    image(&s.at("d0"));
    let at = s.dir.path().display();
    s.good(&format!("zpool create -m {at}/mnt tank {at}/d0"));
    assert_eq!(s.read("proc/spl/kstat/zfs/tank/state"), "ONLINE\n");
    counters_of_the_cache(&s);
    counters_of_commits(&s);
    assert!(s.good("get kstat tank/state zil").starts_with("ONLINE\n"));
    assert!(s.read("proc/spl/kstat/zfs/tank/iostats").contains("trim_bytes_written"));
    // No scan ran, so none has yielded.
    assert_eq!(s.value("tank/scans", "waited_ns"), 0);
    listed_txgs(&s);
    s.good("zpool export tank");
    state_of_a_degraded_pool(&s);
}

/// The descriptions are in one column, whatever the length of names and numbers.
fn descriptions_in_one_column(table: &str) {
    let meaning = |line: &str| {
        let name = line.split(' ').next().expect("a name").len();
        let value = name + line[name..].find(|c| c != ' ').expect("a value");
        // A value may be several words.
        let at = value + line[value..].find("  ").expect("a description");
        (at, line[at..].starts_with("  ") && !line[at..].starts_with("   "))
    };
    let columns: std::collections::BTreeSet<_> = table.lines().map(meaning).collect();
    assert_eq!(columns.iter().map(|(_, spaced)| *spaced).collect::<Vec<_>>(), [true], "{table}");
}

fn module_files(s: &Stand) {
    assert_eq!(s.read(&format!("{PARAMETERS}/zfs_txg_timeout")), "5\n");
    let module = |path: &str| s.read(&format!("sys/module/zfs/{path}"));
    assert_eq!(module("features.pool/org.open-zfs:large_blocks/uname"), "large_blocks\n");
    assert_eq!(module("properties.dataset/recordsize/default"), "131072\n");
    assert_eq!(module("properties.pool/failmode/values"), "wait | continue | panic\n");
    let listed = fs::read_dir(s.at("tree/sys/module/zfs")).expect("a folder").count();
    assert_eq!(
        listed, 7,
        "parameters, version, features of the kernel and pools, properties of datasets, pools and vdevs"
    );
}

fn tunables_are_set(s: &Stand) {
    let file = s.at("tree").join(PARAMETERS).join("zfs_txg_timeout");
    s.good("set tunable zfs_txg_timeout=7 zfs_arc_max=100000000");
    assert_eq!(s.read(&format!("{PARAMETERS}/zfs_txg_timeout")), "7\n");
    fs::write(&file, "9\n").expect("it can be set");
    assert_eq!(s.good("get tunable zfs_txg_timeout"), "9\n");
    assert!(fs::write(&file, "0").is_err());
    parameters_without_effect(s);
    for bad in
        ["set tunable zfs_txg_timeout=0", "set tunable zfs_nonsense=1", "set tunable x", "get kstat none"]
    {
        assert_eq!(s.daemon.ran(bad).status.code(), Some(1), "{bad}");
    }
}

/// Scripts set parameters that steer nothing, and read their values back.
fn parameters_without_effect(s: &Stand) {
    let table = s.good("get tunable");
    let row = table.lines().find(|line| line.starts_with("zfs_flags ")).expect("it is listed");
    assert!(row.ends_with(" (no effect here; default 0)"), "{row}");
    let file = |name: &str| s.at("tree").join(PARAMETERS).join(name);
    fs::write(file("zfs_flags"), "0x10\n").expect("it can be set");
    assert_eq!(s.good("get tunable zfs_flags"), "16\n");
    s.good("set tunable zfs_flags=0 zfs_active_allocator=cursor");
    fs::write(file("zfs_livelist_min_percent_shared"), "-1\n").expect("it has a sign");
    assert_eq!(s.good("get tunable zfs_livelist_min_percent_shared"), "-1\n");
    s.good("set tunable zfs_livelist_min_percent_shared=-2 zfs_livelist_min_percent_shared=75");
    assert_eq!(s.daemon.ran("set tunable zfs_multihost_interval=-1").status.code(), Some(1));
    assert_eq!(s.read(&format!("{PARAMETERS}/zfs_active_allocator")), "cursor\n");
    s.good("set tunable zfs_active_allocator=dynamic");
    let refused = fs::write(file("zfs_flags"), "0x100000000\n").expect_err("it has 32 bits");
    assert_eq!(refused.kind(), std::io::ErrorKind::InvalidInput);
    let refused = fs::write(file("zvol_major"), "7\n").expect_err("it can only be read");
    assert_eq!(refused.kind(), std::io::ErrorKind::PermissionDenied);
    assert_eq!(s.read(&format!("{PARAMETERS}/zvol_major")), "230\n");
    assert!(said(&s.daemon.ran("set tunable zvol_major=7")).contains("only when its module is loaded"));
}

/// The settings of `tunables_are_set` reached the pool, and the counters follow later ones at once.
fn counters_of_the_cache(s: &Stand) {
    assert_eq!(s.value("arcstats", "c_max"), 100_000_000);
    // The counters follow a changed tunable at once.
    s.good("set tunable zfs_arc_num_sublists_per_state=7 zfs_arc_evict_batch_limit=3");
    assert_eq!(s.value("arc_sublists", "mru_metadata_sublists"), 7);
    assert_eq!(s.good("get tunable zfs_arc_evict_batch_limit"), "3\n");
    assert!(s.value("arcstats", "demand_metadata_hits") > 0 && s.value("arcstats", "mru_metadata") > 0);
    let lines = s.good("arcstat -p -s , -f c,zhits");
    let line = lines.lines().nth(1).expect("a header and a line");
    assert!(lines.starts_with("c,zhits\n") && line.ends_with(",0.0"), "{lines}");
    assert_eq!(line.split(',').next().and_then(|c| c.parse().ok()), Some(s.value("arcstats", "c")));
}

fn counters_of_commits(s: &Stand) {
    let commits = || s.value("zil", "zil_commit_count");
    s.fsync();
    let before = commits();
    s.fsync();
    assert!(commits() > before, "each read tells what is so now");
    let listed: Vec<String> = fs::read_dir(s.at("tree/proc/spl/kstat/zfs/tank"))
        .expect("a folder")
        .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
        .collect();
    let log = listed.iter().find(|name| name.starts_with("objset-0x")).expect("a log");
    assert!(
        s.read(&format!("proc/spl/kstat/zfs/tank/{log}"))
            .contains("dataset_name                    7    tank\n")
    );
    // The duration of commits: a row for each power of two, and a total count as large as the
    // number of commits.
    for name in [log.replace("objset", "zil_commit"), "zil_commit".to_owned()] {
        let text = s.read(&format!("proc/spl/kstat/zfs/tank/{name}"));
        let rows: Vec<&str> = text.lines().skip(2).collect();
        assert_eq!((rows.len(), rows[0].split_whitespace().next()), (40, Some("2")), "{text}");
        let took: u64 =
            rows.iter().filter_map(|row| row.split_whitespace().last()?.parse::<u64>().ok()).sum();
        let commits = s.read(&format!("proc/spl/kstat/zfs/tank/{log}"));
        let commits = commits.lines().find(|row| row.starts_with("zil_commit_count ")).expect("a count");
        assert_eq!(commits.split_whitespace().last(), Some(took.to_string().as_str()));
        assert!(took > 0, "{text}");
    }
}

/// The txgs: the last is open, those before it are on disk, and one of them has the written data.
fn listed_txgs(s: &Stand) {
    s.good("zpool sync tank");
    let groups = s.read("proc/spl/kstat/zfs/tank/txgs");
    let mut rows = groups.lines().map(|row| row.split_whitespace().collect::<Vec<_>>());
    let head = rows.next().expect("a head");
    assert_eq!(
        (head[0], head[2], head[3], head[5], head[11]),
        ("txg", "state", "ndirty", "nwritten", "stime")
    );
    let rows: Vec<(u64, &str, [u64; 3])> = rows
        .map(|row| {
            let n = |at: usize| row[at].parse::<u64>().expect("a number");
            assert_eq!(row.len(), 12, "{groups}");
            (n(0), row[2], [3, 5, 11].map(n))
        })
        .collect();
    assert!(rows.is_sorted_by(|a, b| a.0 + 1 == b.0), "{groups}");
    assert!(rows.iter().any(|(_, state, counts)| *state == "C" && counts.iter().all(|n| *n > 0)), "{groups}");
    assert_eq!(rows.last().map(|(_, state, counts)| (*state, *counts)), Some(("O", [0; 3])), "{groups}");
    s.good("set tunable zfs_txg_history=2");
    s.good("zpool sync tank");
    s.good("zpool sync -f tank");
    assert_eq!(s.read("proc/spl/kstat/zfs/tank/txgs").lines().count(), 3);
}

fn state_of_a_degraded_pool(s: &Stand) {
    let at = s.dir.path().display();
    for name in ["m0", "m1"] {
        image(&s.at(name));
    }
    s.good(&format!("zpool create -m none pair mirror {at}/m0 {at}/m1"));
    s.good("zpool export pair");
    fs::remove_file(s.at("m1")).expect("it was made");
    s.good(&format!("zpool import -d {at} pair"));
    assert_eq!(s.read("proc/spl/kstat/zfs/pair/state"), "DEGRADED\n");
    s.good("zpool export pair");
}

/// Goal: everything that OpenZFS's `arc_summary` reads is there: assigned transactions, log blocks
/// by destination, module versions and the host id.
///
/// The script itself prints the same from this tree as from a kernel's, given the tree's place and
/// otherwise unchanged. The variable `ARC_SUMMARY` names the script.
#[test]
fn summed_up() {
    let Some(s) = Stand::new() else { return };
    // The tree and its contents are there before the daemon replies to any request, also without a
    // pool.
    assert_eq!(s.good("get tunable zfs_txg_timeout"), "5\n");
    assert_eq!(s.value("zil", "zil_itx_metaslab_slog_count"), 0);
    for name in ["d", "log"] {
        image(&s.at(name));
    }
    let at = s.dir.path().display();
    s.good(&format!("zpool create -m {at}/mnt tank {at}/d"));
    let assigned = s.value("dmu_tx", "dmu_tx_assigned");
    // The first fsync creates the log.
    s.fsync();
    s.fsync();
    assert!(s.value("dmu_tx", "dmu_tx_assigned") > assigned);
    let normal = s.value("zil", "zil_itx_metaslab_normal_count");
    assert!(normal > 0);
    s.good(&format!("zpool add tank log {at}/log"));
    s.fsync();
    s.fsync();
    assert!(s.value("zil", "zil_itx_metaslab_slog_count") > 0);
    assert!(s.value("zil", "zil_itx_metaslab_slog_bytes") <= s.value("zil", "zil_itx_metaslab_slog_alloc"));
    let release = s.read("sys/module/zfs/version");
    assert_eq!(release, s.read("sys/module/spl/version"));
    assert!(s.good("zfs version").ends_with(&format!("zfs-kmod-{release}")));
    assert_eq!(s.read("sys/module/spl/parameters/spl_hostid_path"), "/etc/hostid\n");
    assert!(s.read("sys/module/spl/parameters/spl_hostid").trim().parse::<u32>().is_ok());
    reports(&s, release.trim());
    same_reports_as_openzfs(&s);
}

/// Our command finds everything that it reads, also under its own name.
fn reports(s: &Stand, release: &str) {
    let report = s.good("arc_summary");
    for line in
        [release, "ARC misc:", "Commit requests:", "L2ARC not detected, skipping section", "Tunables:"]
    {
        assert!(report.contains(line), "{line}: {report}");
    }
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_poolhouse"), s.at("arc_summary")).expect("a link");
    let mut linked = Command::new(s.at("arc_summary"));
    let linked = linked.args(["-s", "zil"]).env("POOLHOUSE_RUN_DIR", s.at("run")).output();
    let linked = linked.expect("it runs");
    assert!(
        linked.status.success() && said(&linked).contains("ZIL committed transactions:"),
        "{}",
        said(&linked)
    );
    assert!(s.good("arc_summary -r").contains("\nDMU_TX:\n"));
    let ran = s.daemon.ran("arc_summary -s vdev");
    assert!(ran.status.code() == Some(1) && said(&ran).contains("Error: Section \"vdev\" unknown"));
    assert!(s.good("arcstat -a").lines().all(|line| line.contains("  ") && line.len() > 1000));
    assert!(!s.daemon.ran("arcstat -f l2hits").status.success());
}

/// OpenZFS's scripts print the same as our commands.
fn same_reports_as_openzfs(s: &Stand) {
    for words in [&[][..], &["-a"], &["-r"], &["-g"], &["-s", "dmu"], &["-s", "zil"], &["-p", "3"]] {
        let Some(theirs) = theirs(&s.daemon, s.dir.path(), "ARC_SUMMARY", words) else { break };
        assert!(!theirs.contains("(unknown)"), "{theirs}");
        // The header has the time of the report, which differs.
        same(&s.daemon, s.dir.path(), "ARC_SUMMARY", words, &theirs, |line| {
            line.starts_with("ZFS Subsystem Report")
                || line.contains("Free memory")
                || line.contains("memory_")
                || line.contains("Available memory")
        });
    }
    if let Some(theirs) = theirs(&s.daemon, s.dir.path(), "ARCSTAT", &["-a", "-p", "-s", "\n"]) {
        // The requests count too, so only the names of the columns are the same.
        same(&s.daemon, s.dir.path(), "ARCSTAT", &["-a", "-p", "-s", "\n"], &theirs, |line| {
            line.starts_with(|c: char| c.is_ascii_digit() || c == '-')
        });
    }
    if let Some(theirs) = theirs(&s.daemon, s.dir.path(), "ARCSTAT", &["-v"]) {
        let listed = |text: &str| text.split_once("follows:\n").map(|(_, fields)| fields.to_owned());
        assert_eq!(listed(&said(&s.daemon.ran("arcstat -v"))), listed(&theirs));
    }
}

/// The output of OpenZFS's script, which this variable names, for a daemon's tree. Returns `None`
/// if the variable is not set.
fn theirs(daemon: &Daemon, dir: &Path, variable: &str, words: &[&str]) -> Option<String> {
    let script = fs::read_to_string(std::env::var_os(variable)?).expect("the script");
    let moved = |text: String, folder: &str| {
        ["'", "\""].iter().fold(text, |text, quote| {
            text.replace(&format!("{quote}{folder}"), &format!("{quote}{}/tree{folder}", dir.display()))
        })
    };
    let script = ["/proc/spl/", "/sys/module/"].iter().fold(script, |text, folder| moved(text, folder));
    let at = dir.join("theirs");
    fs::write(&at, script).expect("room");
    // This request waits until the tree is there.
    daemon.good("get tunable zfs_txg_timeout");
    let ran = Command::new("python3").arg(&at).args(words).output().expect("python3");
    let printed = said(&ran);
    assert!(ran.status.success() && !printed.contains("Traceback"), "{words:?}: {printed}");
    Some(printed)
}

/// Checks that our output has the same lines as OpenZFS's script. Lines that differ between its
/// runs before and after ours are ignored, and so are those that `pass` selects.
fn same(
    daemon: &Daemon,
    dir: &Path,
    variable: &str,
    words: &[&str],
    before: &str,
    pass: impl Fn(&str) -> bool,
) {
    let mut ours = Command::new(env!("CARGO_BIN_EXE_poolhouse"));
    ours.arg(variable.to_lowercase()).args(words).env("POOLHOUSE_RUN_DIR", dir.join("run"));
    let ours = said(&ours.output().expect("it runs"));
    let after = theirs(daemon, dir, variable, words).expect("it was there");
    let (before, ours, after): (Vec<_>, Vec<_>, Vec<_>) =
        (before.lines().collect(), ours.lines().collect(), after.lines().collect());
    assert_eq!((ours.len(), ours.len()), (before.len(), after.len()), "{words:?}");
    let (mut compared, mut moved) = (0, 0);
    for ((a, b), own) in before.iter().zip(&after).zip(&ours) {
        if pass(a) {
            continue;
        }
        if a == b {
            assert_eq!(own, a, "{words:?}");
            compared += 1;
        } else {
            moved += 1;
        }
    }
    assert!(compared > 4 * moved, "{words:?}: {compared} lines stayed, {moved} moved");
}
