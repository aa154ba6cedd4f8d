//! The output of `zpool iostat`, `zpool events`, `zpool wait` and `zfs wait`, in the layouts of
//! OpenZFS 2.3.2's transcripts.

use std::path::Path;
use std::rc::Rc;

use crate::common::paper::Paper;
use crate::common::{in_process, run, same};
use api::*;
use server::service::LocalService;

/// The pool of OpenZFS's transcripts, a second after its creation: a mirror, a log, a cache device.
fn watched() -> Rc<dyn Requests> {
    let stat = |ops: [u64; 2], bytes: [u64; 2], space: Option<(u64, u64)>| VdevStat {
        ops: [0, ops[0], ops[1], 0, 0, 0],
        bytes: [0, bytes[0], bytes[1], 0, 0, 0],
        timestamp_ns: 1_000_000_000,
        alloc: space.map_or(0, |s| s.0),
        space: space.map_or(0, |s| s.0 + s.1),
        ..VdevStat::default()
    };
    let leaf = |guid: u64, path: &str, stat: VdevStat| Vdev {
        kind: "file".into(),
        guid,
        path: Some(path.into()),
        stat,
        ..Vdev::default()
    };
    let space = Some((21_442_560, 179_884_032));
    let mut root = Vdev { kind: "root".into(), guid: 1, ..Vdev::default() };
    root.stat = stat([1, 268], [15_974, 11_639_194], space);
    let mut mirror = Vdev { kind: "mirror".into(), guid: 2, ..Vdev::default() };
    mirror.stat = stat([1, 263], [10_649, 11_219_763], space);
    mirror.children = vec![
        leaf(3, "/p/a", stat([0, 133], [5_314, 5_630_853], None)),
        leaf(4, "/p/b", stat([0, 130], [5_314, 5_630_853], None)),
    ];
    let mut log = leaf(5, "/p/l", stat([0, 4], [5_304, 327_680], Some((0, 80 << 20))));
    (log.is_log, log.id) = (true, 1);
    root.children = vec![mirror, log];
    let cache = leaf(6, "/p/k", stat([1, 10], [114_688, 799_744], Some((3_292_528, 96_888_422))));
    let pool = Pool { name: "t".into(), guid: 1, root, l2cache: vec![cache], ..Pool::default() };
    in_process(Rc::new(Paper { pools: vec![pool], ..Paper::default() }))
}

fn prints(line: &str, want: &str) {
    let ran = run(line, watched());
    assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{line}");
    same(line, &ran.out, want);
}

/// Goal: tables of capacity, operations and bandwidth are OpenZFS's, with all vdevs, for scripts,
/// exact, for one vdev, and in several rounds.
#[test]
fn iostat_shows_what_openzfs_shows() {
    const HEAD: &str = "              capacity     operations     bandwidth \n\
                        pool        alloc   free   read  write   read  write\n\
                        ----------  -----  -----  -----  -----  -----  -----\n";
    let one = "t           20.4M   172M      1    268  15.6K  11.1M\n";
    prints("zpool iostat", &format!("{HEAD}{one}"));
    prints("zpool iostat t", &format!("{HEAD}{one}"));
    let all = "t           20.4M   172M      1    268  15.6K  11.1M\n  \
               mirror-0  20.4M   172M      1    263  10.4K  10.7M\n    \
               /p/a        -      -      0    133  5.19K  5.37M\n    \
               /p/b        -      -      0    130  5.19K  5.37M\n\
               logs            -      -      -      -      -      -\n  \
               /p/l          0    80M      0      4  5.18K   320K\n\
               cache           -      -      -      -      -      -\n  \
               /p/k      3.14M  92.4M      1     10   112K   781K\n\
               ----------  -----  -----  -----  -----  -----  -----\n";
    prints("zpool iostat -v", &format!("{HEAD}{all}"));
    prints(
        "zpool iostat -vH",
        "t\t20.4M\t172M\t1\t268\t15.6K\t11.1M\nmirror-0\t20.4M\t172M\t1\t263\t10.4K\t10.7M\n/p/a\t-\t-\t0\t133\t5.19K\t5.37M\n\
         /p/b\t-\t-\t0\t130\t5.19K\t5.37M\n\n/p/l\t0\t80M\t0\t4\t5.18K\t320K\n\n/p/k\t3.14M\t92.4M\t1\t10\t112K\t781K\n",
    );
    prints("zpool iostat -pH", "t\t21442560\t179884032\t1\t268\t15974\t11639194\n");
    prints(
        "zpool iostat -p",
        "                        capacity                         operations                         bandwidth           \n\
         pool                  alloc             free             read            write             read            write\n\
         ----------  ---------------  ---------------  ---------------  ---------------  ---------------  ---------------\n\
         t                  21442560        179884032                1              268            15974         11639194\n",
    );
    prints(
        "zpool iostat t /p/a",
        "              capacity     operations     bandwidth \n\
         vdev        alloc   free   read  write   read  write\n\
         ----------  -----  -----  -----  -----  -----  -----\n\
         /p/a            -      -      0    133  5.19K  5.37M\n\n\n\
         ----------  -----  -----  -----  -----  -----  -----\n",
    );
    prints("zpool iostat -Tu", &format!("1795300000\n{HEAD}{one}"));
    // The pool is idle between two rounds.
    let idle = "t           20.4M   172M      0      0      0      0\n";
    prints("zpool iostat -n 1 2", &format!("{HEAD}{one}{idle}"));
    prints("zpool iostat -y 1 2", &format!("{HEAD}{idle}{idle}"));
    prints("zpool iostat -y", &format!("{HEAD}{idle}"));
}

/// Goal: the headers and borders of latencies, queues and histograms are OpenZFS's.
#[test]
fn iostat_has_openzfs_columns() {
    prints(
        "zpool iostat -lq",
        "              capacity     operations     bandwidth    total_wait     disk_wait    syncq_wait    asyncq_wait  scrub   trim  rebuild   syncq_read    syncq_write   asyncq_read  asyncq_write   scrubq_read   trimq_write  rebuildq_write\n\
         pool        alloc   free   read  write   read  write   read  write   read  write   read  write   read  write   wait   wait   wait   pend  activ   pend  activ   pend  activ   pend  activ   pend  activ   pend  activ   pend  activ\n\
         ----------  -----  -----  -----  -----  -----  -----  -----  -----  -----  -----  -----  -----  -----  -----  -----  -----  -----  -----  -----  -----  -----  -----  -----  -----  -----  -----  -----  -----  -----  -----  -----\n\
         t           20.4M   172M      1    268  15.6K  11.1M      -      -      -      -      -      -      -      -      -      -      -      0      0      0      0      0      0      0      0      0      0      0      0      0      0\n",
    );
    let out = run("zpool iostat -w", watched()).out;
    let head = "\n\
         t            total_wait     disk_wait    syncq_wait    asyncq_wait\n\
         latency      read  write   read  write   read  write   read  write  scrub   trim  rebuild\n\
         ----------  -----  -----  -----  -----  -----  -----  -----  -----  -----  -----  -----\n\
         1ns             0      0      0      0      0      0      0      0      0      0      0\n";
    assert!(out.starts_with(head), "{out}");
    let end = "137s            0      0      0      0      0      0      0      0      0      0      0\n\
         ---------------------------------------------------------------------------------------\n";
    assert!(out.ends_with(end) && out.lines().count() == 42, "{out}");
    let out = run("zpool iostat -r", watched()).out;
    let head = "\n\
         t             sync_read    sync_write    async_read    async_write      scrub         trim         rebuild  \n\
         req_size      ind    agg    ind    agg    ind    agg    ind    agg    ind    agg    ind    agg    ind    agg\n\
         ----------  -----  -----  -----  -----  -----  -----  -----  -----  -----  -----  -----  -----  -----  -----\n\
         512             0      0      0      0      0      0      0      0      0      0      0      0      0      0\n";
    assert!(out.starts_with(head), "{out}");
    assert!(out.ends_with(&format!("{}\n", "-".repeat(108))) && out.lines().count() == 21, "{out}");
    assert!(
        run("zpool iostat -wH", watched()).out.starts_with("\nt\n1\t0\t0\t0\t0\t0\t0\t0\t0\t0\t0\t0\n3\t0")
    );
}

/// A pool with one operation of each class and type. The n-th has taken `2^n` ns and waited for
/// `2^(n+1)` ns, is of `2^(n+9)` bytes, and n are active and 20 + n wait. Its size is that of a
/// joined operation if n is odd.
fn with_every_class() -> Rc<dyn Requests> {
    let pairs = [
        "sync_read read",
        "sync_write write",
        "async_read read",
        "async_write write",
        "scrub read",
        "scrub write",
        "resilver read",
        "resilver write",
        "rebuild read",
        "rebuild write",
        "trim trim",
        "initialize write",
        "prefetch read",
        "log write",
    ];
    let classes = pairs.iter().enumerate().map(|(n, pair)| {
        let (class, io) = pair.split_once(' ').expect("two words");
        let power = |power: usize| {
            let mut counts = vec![0; power + 1];
            counts[power] = 1;
            counts
        };
        let (single, joined) = if n % 2 == 1 { (vec![], power(n + 9)) } else { (power(n + 9), vec![]) };
        ClassIo {
            class: class.to_owned(),
            io: io.to_owned(),
            active: n as u64,
            waiting: 20 + n as u64,
            disk: power(n),
            wait: power(n + 1),
            total: power(n + 2),
            single,
            joined,
            ..ClassIo::default()
        }
    });
    let mut root = Vdev { kind: "root".into(), guid: 1, ..Vdev::default() };
    root.stat.timestamp_ns = 1_000_000_000;
    root.stat.io = Some(Box::new(IoStat { classes: classes.collect() }));
    let pool = Pool { name: "t".into(), guid: 1, root, ..Pool::default() };
    in_process(Rc::new(Paper { pools: vec![pool], ..Paper::default() }))
}

/// The numbers of a table without header, whose columns have tabs between them.
fn cells(line: &str, service: &Rc<dyn Requests>) -> Vec<Vec<u64>> {
    let ran = run(line, Rc::clone(service));
    assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{line}");
    let row =
        |line: &str| line.split('\t').skip(1).map(|cell| cell.parse().unwrap_or(0)).collect::<Vec<u64>>();
    ran.out.lines().filter(|line| line.contains('\t')).map(row).collect()
}

/// Goal: each class is in the columns where OpenZFS counts the same I/O, and in no others: log
/// writes are synchronous, prefetches and initialisation asynchronous, a resilver is a scrub. What
/// a scrub or resilver writes is asynchronous.
#[test]
fn iostat_has_classes_in_their_columns() {
    let service = with_every_class();
    // Of the columns sync_read, sync_write, async_read, async_write, scrub, trim and rebuild.
    let columns: [&[u64]; 7] = [&[0], &[1, 13], &[2, 12], &[3, 5, 7, 11], &[4, 6], &[10], &[8, 9]];
    let sum = |column: &[u64], of: fn(u64) -> u64| column.iter().copied().map(of).sum::<u64>();
    let got = &cells("zpool iostat -qHp", &service)[0][6..];
    let want: Vec<u64> =
        columns.iter().flat_map(|column| [sum(column, |n| 20 + n), sum(column, |n| n)]).collect();
    assert_eq!(got, want);
    // The average of a bucket is one and a half of its lowest value.
    let mean = |of: &[u64], shift: u64| {
        of.iter().map(|n| (1 << (n + shift)) + (1 << (n + shift)) / 2).sum::<u64>() / of.len() as u64
    };
    let (reads, writes): (&[u64], &[u64]) = (&[0, 2, 4, 6, 8, 12], &[1, 3, 5, 7, 9, 11, 13]);
    let mut want = vec![mean(reads, 2), mean(writes, 2), mean(reads, 0), mean(writes, 0)];
    want.extend(columns.iter().map(|column| mean(column, 1)));
    assert_eq!(cells("zpool iostat -lHp", &service)[0][6..], want);
    let rows = cells("zpool iostat -wHp", &service);
    for (power, row) in rows.iter().enumerate() {
        let one = |of: &[u64], shift: u64| of.iter().filter(|n| **n + shift == power as u64).count() as u64;
        let mut want = vec![one(reads, 2), one(writes, 2), one(reads, 0), one(writes, 0)];
        want.extend(columns.iter().map(|column| one(column, 1)));
        assert_eq!(*row, want, "2^{power} ns");
    }
    for (n, row) in cells("zpool iostat -rHp", &service).iter().enumerate() {
        let has = |column: &[u64]| u64::from(column.contains(&(n as u64)));
        let want: Vec<u64> = columns
            .iter()
            .flat_map(|column| if n % 2 == 0 { [has(column), 0] } else { [0, has(column)] })
            .collect();
        assert_eq!(*row, want, "2^{} bytes", n + 9);
    }
    let tall = run("zpool iostat -r", service).out;
    let line = |size: &str| tall.lines().find(|l| l.starts_with(size)).expect("a line").to_owned();
    let log = "4M              0      0      0      1      0      0      0      0      0      0      0      0      0      0";
    assert_eq!(line("4M "), log);
}

/// Goal: invalid operands and invalid combinations of options are refused with OpenZFS's messages.
#[test]
fn iostat_refuses_nonsense() {
    let usage = "usage:\n\tiostat [[[-c [script1,script2,...][-lq]]|[-rw]] [-T d | u] [-ghHLpPvy]\n";
    for (line, words) in [
        (
            "zpool iostat t nope",
            "Expected either a list of pools, or list of vdevs in \"t\", but got:\n\tnope (unknown)\n\n",
        ),
        ("zpool iostat -w -l", "[-r|-w] isn't allowed with [-c|-l|-q]\n"),
        ("zpool iostat -rw", "Only one of [-r|-w] can be passed at a time\n"),
        ("zpool iostat -x", "invalid option 'x'\n"),
        ("zpool iostat t 0", "interval cannot be zero\n"),
    ] {
        let ran = run(line, watched());
        assert_eq!(ran.code, 2, "{line}");
        assert!(ran.err.starts_with(&format!("{words}{usage}")), "{line}: {}", ran.err);
    }
    let ran = run("zpool iostat nope", watched());
    assert_eq!((ran.code, ran.err.as_str()), (1, "Unable to parse pools/vdevs list.\n\n"));
    let ran = run("zpool iostat", in_process(Rc::new(Paper::default())));
    assert_eq!((ran.code, ran.err.as_str()), (1, "no pools available\n"));
}

/// A pool on one device with nothing mounted.
fn pool(dir: &Path) -> Rc<dyn Requests> {
    let image = dir.join("d0.img");
    std::fs::File::create(&image).expect("an image").set_len(256 << 20).expect("room");
    let house: Rc<dyn Requests> = Rc::new(LocalService::new().in_process());
    good(&format!("zpool create -m none tank {}", image.display()), &house);
    house
}

fn good(line: &str, house: &Rc<dyn Requests>) -> String {
    let ran = run(line, house.clone());
    assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{line}");
    ran.out
}

/// Goal: a pool's activity is counted: the sum of its devices is the pool's, and histograms have as
/// many operations as there were.
#[test]
fn iostat_counts_what_is_done() {
    let dir = tempfile::tempdir().expect("a folder");
    let house = pool(dir.path());
    let query = PoolQuery { io: true, ..PoolQuery::default() };
    let found = house.pool("tank", &query).expect("the pool");
    let (root, leaf) = (&found.root.stat, &found.root.children[0].stat);
    assert!(root.ops[2] > 0 && root.bytes[2] > 0 && leaf.timestamp_ns > 0);
    assert_eq!((root.ops, root.bytes), (leaf.ops, leaf.bytes));
    let io = leaf.io.as_deref().expect("details");
    for (kind, at) in [("read", 1), ("write", 2)] {
        let count = |of: fn(&ClassIo) -> &[u64]| io.histogram(kind, of).iter().sum::<u64>();
        let sizes = count(|one| &one.single) + count(|one| &one.joined);
        let times = [count(|one| &one.wait), count(|one| &one.disk), count(|one| &one.total)];
        assert_eq!((sizes, times, io.active(kind)), (leaf.ops[at], [leaf.ops[at]; 3], 0));
        assert_eq!(io.of_type(kind).map(|one| one.bytes).sum::<u64>(), leaf.bytes[at]);
    }
    // The sums of ind and agg of sync_read, sync_write, async_read, async_write, scrub, trim and
    // rebuild.
    let sums = || {
        let mut sums = vec![0; 7];
        for row in cells("zpool iostat -rHp", &house) {
            row.chunks(2).zip(&mut sums).for_each(|(pair, sum)| *sum += pair.iter().sum::<u64>());
        }
        sums
    };
    // So far there were transaction groups only.
    let before = sums();
    assert!(before[3] > 0 && (before[1], before[4], before[6]) == (0, 0, 0), "{before:?}");
    good("zpool scrub -w tank", &house);
    let after = sums();
    assert!(after[4] > 0 && after[4] - before[4] > after[0] - before[0], "{before:?} then {after:?}");
    assert_eq!((after[1], after[2], after[6]), (before[1], before[2], before[6]));
    // How long each waited for its turn; without foreground I/O, that is no time, which counts too.
    let waits = cells("zpool iostat -wHp tank", &house);
    let of = |column: usize| waits.iter().map(|row| row[column]).sum::<u64>();
    assert_eq!((of(8), of(10)), (after[4], 0), "{waits:?}");
    good("zpool destroy tank", &house);
}

/// Goal: changes of a pool are reported as events of OpenZFS's classes, in order, in three formats,
/// and are cleared on request.
#[test]
fn events_tell_what_was_done() {
    let dir = tempfile::tempdir().expect("a folder");
    let house = pool(dir.path());
    let classes = |out: &str| -> Vec<String> {
        out.lines().skip(1).filter_map(|l| l.rsplit_once(' ').map(|(_, class)| class.to_owned())).collect()
    };
    let short = |all: &[String]| -> Vec<String> {
        let mut all: Vec<String> = all.iter().map(|c| c.replace("sysevent.fs.zfs.", "")).collect();
        all.dedup();
        all
    };
    let out = good("zpool events", &house);
    assert!(out.starts_with("TIME                           CLASS\n"), "{out}");
    let made = short(&classes(&out));
    assert_eq!(made[0], "pool_create");
    let out = good("zpool events -v", &house);
    let versions = "history_internal_str = \"pool version 5000; software version poolhouse-";
    let told = |out: &str, what: &str| {
        let name = format!("history_internal_name = \"{what}\"\n");
        out.split("\n\n").any(|event| event.contains(&name) && event.contains(versions))
    };
    assert!(told(&out, "create"), "{out}");
    assert!(made.contains(&"config_sync".to_owned()));
    let line = out.lines().nth(1).expect("an event");
    assert_eq!((line.len(), &line[20..21], &line[30..31]), (58, ".", " "), "{line}");
    assert!(good("zpool events -c", &house).starts_with("cleared "));
    assert_eq!(good("zpool events", &house), "TIME                           CLASS\n");
    good("zfs create tank/a", &house);
    good("zfs snapshot tank/a@s", &house);
    let out = good("zpool events -v tank", &house);
    for line in [
        "        version = 0x0\n        class = \"sysevent.fs.zfs.history_event\"\n        pool = \"tank\"\n        pool_guid = 0x",
        "\n        pool_state = 0x0\n        pool_context = 0x0\n        history_hostname = \"",
        "        history_dsname = \"tank/a@s\"\n",
        "        history_internal_name = \"snapshot\"\n        history_dsid = 0x",
    ] {
        assert!(out.contains(line), "{line} in {out}");
    }
    assert!(
        out.contains("\n        time = 0x") && out.contains(" \n        eid = 0x") && out.ends_with("\n\n")
    );
    assert_eq!(good("zpool events -H other", &house), "");
    let image = dir.path().display().to_string();
    good("zpool export tank", &house);
    good(&format!("zpool import -d {image} tank"), &house);
    good("zpool sync -f tank", &house);
    let out = good("zpool events -v", &house);
    assert!(told(&out, "import"), "{out}");
    let out = good("zpool history -i tank", &house);
    assert!(
        out.contains("] create pool version 5000; ") && out.contains("] import pool version 5000; "),
        "{out}"
    );
    good("zpool destroy tank", &house);
    let out = good("zpool events -H", &house);
    let kinds: Vec<&str> = out
        .lines()
        .filter_map(|l| l.split_once('\t'))
        .map(|l| l.1.rsplit('.').next().unwrap_or(l.1))
        .collect();
    let mut at = 0;
    for class in ["pool_export", "config_sync", "pool_import", "pool_destroy"] {
        at += kinds[at..].iter().position(|k| *k == class).unwrap_or_else(|| panic!("{class} in {kinds:?}"));
    }
}

/// Goal: `zpool events` refuses invalid names and options.
#[test]
fn events_refuse() {
    let house: Rc<dyn Requests> = Rc::new(LocalService::new().in_process());
    for (line, words) in [
        ("zpool events 1x", "invalid pool name '1x'\nusage:\n\tevents [-vHf [pool] | -c]\n"),
        ("zpool events -c tank", "invalid options combined with -c\nusage:\n\tevents [-vHf [pool] | -c]\n"),
        ("zpool events a b", "too many arguments\nusage:\n\tevents [-vHf [pool] | -c]\n"),
    ] {
        let ran = run(line, house.clone());
        assert_eq!((ran.code, ran.err.as_str()), (2, words), "{line}");
    }
}

/// Goal: without activity, waits return at once, with OpenZFS's table of remaining work.
#[test]
fn waits_end() {
    let dir = tempfile::tempdir().expect("a folder");
    let house = pool(dir.path());
    assert_eq!(good("zpool wait tank", &house), "");
    assert_eq!(good("zpool wait -H tank 1", &house), "0\t0\t0\t0\t0\t0\t0\t0\t0\n");
    assert_eq!(
        good("zpool wait tank 1", &house),
        "  DISCARD    FREE  INITIALIZE  REPLACE  REMOVE  RESILVER   SCRUB    TRIM  RAIDZ_EXPAND\n        \
         0       0           0        0       0         0       0       0             0\n"
    );
    assert_eq!(good("zpool wait -pt trim,free tank 1", &house), "    FREE    TRIM\n       0       0\n");
    good("zpool checkpoint tank", &house);
    good("zpool checkpoint -d tank", &house);
    good("zpool wait -t discard tank", &house);
    let found = house.pool("tank", &PoolQuery::default()).expect("the pool");
    assert!(found.checkpoint.is_none_or(|c| c.state == CheckpointState::None));
    assert_eq!(good("zfs wait tank", &house), "");
    assert_eq!(good("zfs wait -t deleteq tank", &house), "");
    for (line, code, words) in [
        ("zpool wait nope", 1, "cannot open 'nope': no such pool\n"),
        ("zpool wait -t x tank", 2, "invalid activity 'x'\nusage:\n\twait [-Hp] "),
        ("zpool wait", 2, "missing 'pool' argument\nusage:\n\twait [-Hp] "),
        ("zpool wait tank 1 2", 2, "too many arguments\nusage:\n\twait [-Hp] "),
        ("zfs wait nope", 1, "cannot open 'nope': dataset does not exist\n"),
        ("zfs wait -t x tank", 2, "invalid activity 'x'\nusage:\n\twait [-t <activity>] <filesystem>\n"),
        ("zfs wait", 2, "missing 'filesystem' argument\nusage:\n\twait "),
    ] {
        let ran = run(line, house.clone());
        assert_eq!(ran.code, code, "{line}");
        assert!(ran.err.starts_with(words), "{line}: {}", ran.err);
    }
    good("zpool destroy tank", &house);
}

/// Goal: a device that returns wrong data is reported by an event of OpenZFS's class, with its
/// place in the tree and the offset.
#[test]
fn events_tell_of_a_device_that_lies() {
    use std::os::unix::fs::FileExt;
    let dir = tempfile::tempdir().expect("a folder");
    let images: Vec<String> =
        (0..2).map(|i| dir.path().join(format!("d{i}.img")).display().to_string()).collect();
    for image in &images {
        std::fs::File::create(image).expect("an image").set_len(256 << 20).expect("room");
    }
    let house: Rc<dyn Requests> = Rc::new(LocalService::new().in_process());
    good(&format!("zpool create -m none tank mirror {}", images.join(" ")), &house);
    (0..20).for_each(|i| drop(good(&format!("zfs create -o test:x={i} tank/{i}"), &house)));
    good("zpool export tank", &house);
    let bad = std::fs::OpenOptions::new().write(true).open(&images[0]).expect("an image");
    let noise: Vec<u8> = (0..1u32 << 20).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    (4..200u64).for_each(|mib| bad.write_all_at(&noise, mib << 20).expect("written"));
    good("zpool events -c", &house);
    good(&format!("zpool import -d {} tank", dir.path().display()), &house);
    good("zfs list -r tank", &house);
    let out = good("zpool events -v", &house);
    let report = out.split("\n\n").find(|e| e.contains("ereport.fs.zfs.checksum")).expect("a report");
    for line in [
        "\n        class = \"ereport.fs.zfs.checksum\"\n        ena = 0x",
        "\n        pool_failmode = \"wait\"\n        vdev_guid = 0x",
        "\n        vdev_type = \"file\"\n        vdev_path = \"",
        "\n        parent_type = \"mirror\"\n        zio_err = 0x34\n        zio_offset = 0x",
    ] {
        assert!(report.contains(line), "{line} in {report}");
    }
    assert!(report.contains(&images[0]), "{report}");
    // The event has the error count at the time of the error, not at the time of the query.
    let charged = out.lines().filter_map(|line| line.trim().strip_prefix("vdev_cksum_errors = 0x"));
    let charged: Vec<u64> = charged.filter_map(|n| u64::from_str_radix(n, 16).ok()).collect();
    assert!(charged.first() < charged.last(), "{charged:?}");
    good("zpool destroy tank", &house);
}

/// Goal: what a pool does on its own after a command is reported like commands.
///
/// The events are the history records of a resilver's end and of the detach that follows, and the
/// detach itself. A removed device is reported with its old description.
#[test]
fn events_tell_what_pools_do_by_themselves() {
    let dir = tempfile::tempdir().expect("a folder");
    let images: Vec<String> =
        (0..4).map(|i| dir.path().join(format!("d{i}.img")).display().to_string()).collect();
    for image in &images {
        std::fs::File::create(image).expect("an image").set_len(256 << 20).expect("room");
    }
    let house: Rc<dyn Requests> = Rc::new(LocalService::new().in_process());
    good(&format!("zpool create -m none tank mirror {} {}", images[0], images[1]), &house);
    good("zpool events -c", &house);
    good(&format!("zpool replace tank {} {}", images[0], images[2]), &house);
    good("zpool wait -t replace tank", &house);
    let out = good("zpool events -v tank", &house);
    let events: Vec<&str> = out.split("\n\n").collect();
    let gone = format!("vdev_path = \"{}\"\n", images[0]);
    let mut at = 0;
    for wanted in [
        vec!["fs.zfs.resilver_start\""],
        vec!["history_event\"", "func=2 "],
        vec!["fs.zfs.resilver_finish\""],
        vec!["history_event\"", "history_internal_name = \"scan done\""],
        vec!["fs.zfs.vdev_remove\"", &gone],
        vec!["history_event\"", "history_internal_name = \"detach\""],
    ] {
        let found = events[at..].iter().position(|event| wanted.iter().all(|part| event.contains(part)));
        at += found.unwrap_or_else(|| panic!("{wanted:?} after {at} in {out}")) + 1;
    }
    assert!(out.contains("fs.zfs.vdev_attach\""), "{out}");
    for (role, class) in
        [("spare", "vdev_remove_aux"), ("cache", "vdev_remove_aux"), ("log", "vdev_remove_dev")]
    {
        good(&format!("zpool add tank {role} {}", images[3]), &house);
        good("zpool events -c", &house);
        good(&format!("zpool remove tank {}", images[3]), &house);
        let out = good("zpool events -v tank", &house);
        let path = format!("vdev_path = \"{}\"\n", images[3]);
        let told =
            out.split("\n\n").any(|event| event.contains(&format!("{class}\"")) && event.contains(&path));
        assert!(told, "{role}: {out}");
    }
    good(&format!("zpool detach tank {}", images[1]), &house);
    assert_eq!(good("zpool events -H tank", &house).matches("fs.zfs.vdev_remove\n").count(), 1);
    good("zpool destroy tank", &house);
}
