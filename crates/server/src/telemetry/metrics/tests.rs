//! Pages of invented pools.

use crate::telemetry::metrics::{CONTENT_TYPE, Page};
use api::{
    ClassIo, IoStat, Kstat, KstatValue, Pool, ScanFunc, ScanStat, ScanState, TopClass, TopDataset, TopLock,
    TopOp, TopPool, TopTimes, TxgTotals, Vdev, VdevStat, VdevState,
};
use prometheus_client::registry::Registry;

fn text(page: Page) -> String {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(page));
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).expect("text");
    text
}

fn disk(path: &str, stat: VdevStat) -> Vdev {
    Vdev { kind: "file".to_owned(), path: Some(path.to_owned()), stat, ..Vdev::default() }
}

/// Reads of callers, of which three took 1 to 2 µs, and a scrub with a read of 4 to 8 µs.
fn classes() -> Vec<ClassIo> {
    let powers = |power: usize, n: u64| {
        let mut all = vec![0; power + 1];
        all[power] = n;
        all
    };
    let demand = ClassIo {
        class: "sync_read".to_owned(),
        io: "read".to_owned(),
        ops: 3,
        bytes: 12_288,
        disk_sum_ns: 4_500,
        wait: vec![3],
        disk: powers(10, 3),
        ..ClassIo::default()
    };
    let scrub = ClassIo {
        class: "scrub".to_owned(),
        io: "read".to_owned(),
        ops: 1,
        active: 2,
        waiting: 5,
        wait: powers(20, 1),
        disk: powers(12, 1),
        ..ClassIo::default()
    };
    let repair =
        ClassIo { io: "write".to_owned(), ops: 4, wait: vec![4], active: 0, waiting: 0, ..scrub.clone() };
    vec![demand, scrub, repair]
}

fn pool() -> Pool {
    let ill = VdevStat {
        state: VdevState::Faulted,
        ops: [0, 7, 11, 0, 0, 2],
        bytes: [0, 4096, 8192, 0, 0, 0],
        read_errors: 5,
        write_errors: 6,
        checksum_errors: 9,
        slow_ios: 1,
        self_healed: 512,
        io: Some(Box::new(IoStat { classes: classes() })),
        ..VdevStat::default()
    };
    let well = VdevStat { state: VdevState::Healthy, ..VdevStat::default() };
    let mirror = Vdev {
        kind: "mirror".to_owned(),
        children: vec![disk("/dev/a \"b\"", ill), disk("/dev/c", well.clone())],
        ..Vdev::default()
    };
    let log = Vdev { is_log: true, id: 1, ..disk("/dev/log", well.clone()) };
    Pool {
        name: "tank".to_owned(),
        txg: 42,
        error_count: Some(3),
        root: Vdev { kind: "root".to_owned(), children: vec![mirror, log], ..Vdev::default() },
        spares: vec![disk("/dev/s", well)],
        scan: Some(ScanStat {
            func: ScanFunc::Resilver,
            state: ScanState::Scanning,
            to_examine: 100,
            issued: 60,
            ..ScanStat::default()
        }),
        ..Pool::default()
    }
}

/// Goal: a page has each device's errors, states, operations and service times, with labels that
/// identify the device.
#[test]
fn devices() {
    let text = text(Page { pools: vec![pool()], ..Page::default() });
    let ill = r#"pool="tank",vdev="a \"b\"",path="/dev/a \"b\"",role="data""#;
    for line in [
        format!("poolhouse_vdev_state{{{ill},state=\"faulted\"}} 1"),
        format!("poolhouse_vdev_reads_total{{{ill}}} 7"),
        format!("poolhouse_vdev_trims_total{{{ill}}} 2"),
        format!("poolhouse_vdev_written_bytes_total{{{ill}}} 8192"),
        format!("poolhouse_vdev_read_errors_total{{{ill}}} 5"),
        format!("poolhouse_vdev_write_errors_total{{{ill}}} 6"),
        format!("poolhouse_vdev_checksum_errors_total{{{ill}}} 9"),
        format!("poolhouse_vdev_slow_ios_total{{{ill}}} 1"),
        format!("poolhouse_vdev_self_healed_bytes_total{{{ill}}} 512"),
        format!("poolhouse_vdev_reads_active{{{ill}}} 2"),
        format!("poolhouse_vdev_read_service_seconds_count{{{ill}}} 4"),
        // 1 to 2 µs: three; 4 to 8 µs: one more.
        format!("poolhouse_vdev_read_service_seconds_bucket{{le=\"0.000002048\",{ill}}} 3"),
        format!("poolhouse_vdev_read_service_seconds_bucket{{le=\"0.000008192\",{ill}}} 4"),
        format!("poolhouse_vdev_read_service_seconds_bucket{{le=\"+Inf\",{ill}}} 4"),
        "poolhouse_vdev_state{pool=\"tank\",vdev=\"mirror-0\",path=\"\",role=\"data\",state=\"unknown\"} 1"
            .to_owned(),
        "poolhouse_vdev_reads_total{pool=\"tank\",vdev=\"log\",path=\"/dev/log\",role=\"log\"} 0".to_owned(),
        "poolhouse_vdev_reads_total{pool=\"tank\",vdev=\"s\",path=\"/dev/s\",role=\"spare\"} 0".to_owned(),
        "poolhouse_pool_txg{pool=\"tank\"} 42".to_owned(),
        "poolhouse_pool_known_errors{pool=\"tank\"} 3".to_owned(),
        "poolhouse_scan_running{pool=\"tank\",scan=\"resilver\"} 1".to_owned(),
        "poolhouse_scan_issued_bytes{pool=\"tank\",scan=\"resilver\"} 60".to_owned(),
    ] {
        assert!(text.lines().any(|l| l == line), "{line}\n{text}");
    }
    let sum =
        text.lines().find(|l| l.starts_with("poolhouse_vdev_read_service_seconds_sum") && l.contains(ill));
    let sum: f64 = sum.and_then(|l| l.rsplit(' ').next()?.parse().ok()).expect("a sum");
    assert!((sum - (3.0 * 1.5 * 1024.0 + 1.5 * 4096.0) / 1e9).abs() < 1e-12, "{sum}");
    assert!(text.ends_with("# EOF\n") && CONTENT_TYPE.starts_with("application/openmetrics-text"));
}

/// Goal: a page has each device's operations by class and type, those that there were. A vdev above
/// has none: they would count twice. Only classes that waited have wait times.
#[test]
fn classes_of_devices() {
    let text = text(Page { pools: vec![pool()], ..Page::default() });
    let ill = r#"pool="tank",vdev="a \"b\"",path="/dev/a \"b\"",role="data""#;
    let demand = format!("{ill},class=\"sync_read\",op=\"read\"");
    let scrub = format!("{ill},class=\"scrub\",op=\"read\"");
    let repair = format!("{ill},class=\"scrub\",op=\"write\"");
    for line in [
        format!("poolhouse_device_ops_total{{{demand}}} 3"),
        format!("poolhouse_device_ops_total{{{scrub}}} 1"),
        format!("poolhouse_device_ops_total{{{repair}}} 4"),
        format!("poolhouse_device_bytes_total{{{demand}}} 12288"),
        format!("poolhouse_device_seconds_sum{{{demand}}} 0.0000045"),
        format!("poolhouse_device_seconds_count{{{demand}}} 3"),
        format!("poolhouse_device_seconds_bucket{{le=\"0.000002048\",{demand}}} 3"),
        format!("poolhouse_device_seconds_bucket{{le=\"0.000004096\",{scrub}}} 0"),
        format!("poolhouse_device_seconds_bucket{{le=\"0.000008192\",{scrub}}} 1"),
        // From 1 to 2 ms.
        format!("poolhouse_device_wait_seconds_bucket{{le=\"0.001048576\",{scrub}}} 0"),
        format!("poolhouse_device_wait_seconds_bucket{{le=\"0.002097152\",{scrub}}} 1"),
        format!("poolhouse_device_active{{{scrub}}} 2"),
        format!("poolhouse_device_waiting{{{scrub}}} 5"),
        format!("poolhouse_device_waiting{{{repair}}} 0"),
    ] {
        assert!(text.lines().any(|l| l == line), "{line}\n{text}");
    }
    let rows = |name: &str| text.lines().filter(|l| l.starts_with(name)).count();
    assert_eq!(rows("poolhouse_device_ops_total"), 3, "{text}");
    assert_eq!(rows("poolhouse_device_wait_seconds_count"), 1, "{text}");
}

/// Goal: a page has the global kstats by their names, and not those of single pools and datasets.
#[test]
fn kstats() {
    let kstat = |pool: Option<&str>, name: &str, values| Kstat {
        pool: pool.map(str::to_owned),
        name: name.to_owned(),
        values,
        text: None,
    };
    let zil = vec![
        ("zil_commit_count".to_owned(), KstatValue::Number(5)),
        ("flush_count".to_owned(), KstatValue::Number(6)),
        ("commit_ns_p50".to_owned(), KstatValue::Number(7)),
    ];
    let values = vec![
        ("hits".to_owned(), KstatValue::Number(12)),
        ("c".to_owned(), KstatValue::Number(13)),
        ("memory_available_bytes".to_owned(), KstatValue::Signed(-4)),
    ];
    let one = vec![("dataset_name".to_owned(), KstatValue::Text("tank/a".to_owned()))];
    // The same numbers from 1 to 2 µs, and from 4 to 8.
    let mut took = vec![0; 40];
    (took[10], took[12]) = (3, 1);
    let took: Vec<(String, KstatValue)> = took
        .iter()
        .enumerate()
        .map(|(power, n)| (format!("{} ns", 2_u64 << power), KstatValue::Number(*n)))
        .collect();
    let kstats = vec![
        kstat(None, "arcstats", values),
        kstat(None, "zil", zil),
        kstat(Some("tank"), "objset-0x36", one),
        kstat(Some("tank"), "zil_commit", took.clone()),
        kstat(Some("tank"), "zil_commit-0x36", took),
    ];
    let text = text(Page { kstats, ..Page::default() });
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines.contains(&"poolhouse_arcstats_hits_total 12"), "{text}");
    assert!(lines.contains(&"poolhouse_arcstats_memory_available_bytes -4"), "{text}");
    for line in [
        "# TYPE poolhouse_arcstats_hits counter",
        "# TYPE poolhouse_arcstats_c gauge",
        "poolhouse_arcstats_c 13",
        "# TYPE poolhouse_zil_commit_count counter",
        "poolhouse_zil_commit_count_total 5",
        "poolhouse_zil_flush_count_total 6",
    ] {
        assert!(lines.contains(&line), "{line}\n{text}");
    }
    assert!(!text.contains("p50") && !text.contains("zil_zil") && !text.contains("unknown"), "{text}");
    assert!(!text.contains("objset") && !text.contains("0x36"), "{text}");
    for line in [
        "poolhouse_zil_commit_seconds_count{pool=\"tank\"} 4",
        "poolhouse_zil_commit_seconds_bucket{le=\"0.000002048\",pool=\"tank\"} 3",
        "poolhouse_zil_commit_seconds_bucket{le=\"0.000008192\",pool=\"tank\"} 4",
    ] {
        assert!(lines.contains(&line), "{line}\n{text}");
    }
}

/// Operations by kind and of a dataset; `others` did 12,345.
fn operations_of_tank() -> (Vec<TopPool>, Vec<TopPool>) {
    // Up to 1,024 ns: three; up to 4,096: one more. One takes longer than all bounds.
    let times =
        TopTimes { sum: 1_500_000_000, max: 9, buckets: vec![(63, 1), (1023, 2), (2559, 1), (u64::MAX, 1)] };
    let op = TopOp {
        frontend: "fuse".to_owned(),
        op: "rmdir".to_owned(),
        times: times.clone(),
        bytes: 512,
        errors: vec![("ENOTEMPTY".to_owned(), 57)],
        other_errors: 2,
    };
    let class = TopClass { class: "names".to_owned(), times, bytes: 7, errors: 59 };
    let others = TopClass { errors: 12345, ..class.clone() };
    let dataset = TopDataset { number: 1, name: "tank/a \"b\"".to_owned(), classes: vec![class] };
    let tank = TopPool { name: "tank".to_owned(), ..TopPool::default() };
    (
        vec![TopPool { ops: vec![op], ..tank.clone() }],
        vec![TopPool { datasets: vec![dataset], other_datasets: vec![others], ..tank }],
    )
}

/// Goal: a page has operations by kind with their times and errnos, and datasets with counters by
/// class. A name can't end its label. What the other datasets did is not a counter.
#[test]
fn operations() {
    let (ops, datasets) = operations_of_tank();
    let text = text(Page { ops, datasets, ..Page::default() });
    let (op, a) =
        (r#"pool="tank",frontend="fuse",op="rmdir""#, r#"pool="tank",dataset="tank/a \"b\"",class="names""#);
    for line in [
        "# TYPE poolhouse_op_seconds histogram".to_owned(),
        format!("poolhouse_op_seconds_count{{{op}}} 5"),
        format!("poolhouse_op_seconds_sum{{{op}}} 1.5"),
        format!("poolhouse_op_seconds_bucket{{le=\"0.000001024\",{op}}} 3"),
        format!("poolhouse_op_seconds_bucket{{le=\"0.000002048\",{op}}} 3"),
        format!("poolhouse_op_seconds_bucket{{le=\"0.000004096\",{op}}} 4"),
        format!("poolhouse_op_seconds_bucket{{le=\"34.359738368\",{op}}} 4"),
        format!("poolhouse_op_seconds_bucket{{le=\"+Inf\",{op}}} 5"),
        format!("poolhouse_op_bytes_total{{{op}}} 512"),
        format!("poolhouse_op_errors_total{{{op},errno=\"ENOTEMPTY\"}} 57"),
        format!("poolhouse_op_errors_total{{{op},errno=\"others\"}} 2"),
        "# TYPE poolhouse_dataset_ops counter".to_owned(),
        format!("poolhouse_dataset_ops_total{{{a}}} 5"),
        format!("poolhouse_dataset_bytes_total{{{a}}} 7"),
        format!("poolhouse_dataset_errors_total{{{a}}} 59"),
        format!("poolhouse_dataset_seconds_total{{{a}}} 1.5"),
    ] {
        assert!(text.lines().any(|l| l == line), "{line}\n{text}");
    }
    assert!(!text.contains("12345"), "{text}");
}

fn waits() -> (Vec<TxgTotals>, Vec<TopLock>) {
    let named = |all: &[(&str, u64)]| all.iter().map(|(name, n)| ((*name).to_owned(), *n)).collect();
    let txgs = TxgTotals {
        pool: "tank".to_owned(),
        took_ns: named(&[("open", 5_000_000_000), ("syncing", 250_000_000)]),
        closed: named(&[("age", 8), ("dirty", 0)]),
        throttled_ns: 1_500_000_000,
        syncing_ns: 500_000_000,
        dirty: 4096,
        dirty_max: 8192,
    };
    let waits = TopTimes { sum: 2_500_000_000, max: 9, buckets: vec![(63, 1), (1023, 2)] };
    (vec![txgs], vec![TopLock { name: "zil \"pending\"".to_owned(), waits, ..TopLock::default() }])
}

/// Goal: a page has the sums over transaction groups of each pool, what is dirty, and the waits for
/// locks by their sites.
#[test]
fn groups_and_locks() {
    let (txgs, locks) = waits();
    let text = text(Page { txgs, locks, ..Page::default() });
    for line in [
        "# TYPE poolhouse_txg_seconds counter",
        "poolhouse_txg_seconds_total{pool=\"tank\",phase=\"open\"} 5.0",
        "poolhouse_txg_seconds_total{pool=\"tank\",phase=\"syncing\"} 0.25",
        "poolhouse_txg_closed_total{pool=\"tank\",why=\"age\"} 8",
        "poolhouse_txg_closed_total{pool=\"tank\",why=\"dirty\"} 0",
        "poolhouse_txg_throttled_seconds_total{pool=\"tank\"} 1.5",
        "poolhouse_txg_syncing_seconds{pool=\"tank\"} 0.5",
        "poolhouse_txg_dirty_bytes{pool=\"tank\"} 4096",
        "poolhouse_txg_dirty_max_bytes{pool=\"tank\"} 8192",
        "poolhouse_lock_wait_seconds_total{site=\"zil \\\"pending\\\"\"} 2.5",
        "poolhouse_lock_waits_total{site=\"zil \\\"pending\\\"\"} 3",
    ] {
        assert!(text.lines().any(|l| l == line), "{line}\n{text}");
    }
}

/// Goal: a page has how fragmented a top-level vdev is where it is known, and when a scan ended,
/// but not of one that runs.
#[test]
fn fragmentation_and_ends_of_scans() {
    let mut pool = pool();
    let end = "poolhouse_scan_end_timestamp_seconds{";
    let running = text(Page { pools: vec![pool.clone()], ..Page::default() });
    assert!(!running.contains(end) && !running.contains("poolhouse_vdev_fragmentation_ratio{"), "{running}");
    let scan = pool.scan.as_mut().expect("a scan");
    (scan.state, scan.end_time) = (ScanState::Finished, 1_700_000_000);
    let mirror = &mut pool.root.children[0].stat;
    (mirror.space, mirror.fragmentation) = (1 << 30, Some(25));
    let text = text(Page { pools: vec![pool], ..Page::default() });
    for line in [
        "poolhouse_scan_end_timestamp_seconds{pool=\"tank\",scan=\"resilver\"} 1700000000",
        "poolhouse_vdev_fragmentation_ratio{pool=\"tank\",vdev=\"mirror-0\",path=\"\",role=\"data\"} 0.25",
    ] {
        assert!(text.lines().any(|l| l == line), "{line}\n{text}");
    }
}

/// Goal: `page.txt` has each metric of a page with its type and labels. Checks of dashboards read
/// it, so that they need no daemon. With `PAGE=write`, this test writes it.
#[test]
fn the_whole_page() {
    let mut tank = pool();
    tank.root.children[0].stat.fragmentation = Some(25);
    tank.root.children[0].stat.space = 1 << 30;
    let mut done = tank.clone();
    done.name = "done".to_owned();
    let scan = done.scan.as_mut().expect("a scan");
    (scan.state, scan.end_time) = (ScanState::Finished, 1_700_000_000);
    done.root.children.clear();
    let mut kstats = crate::telemetry::kstats::all(&crate::pools::Pools::default());
    for (_, value) in kstats.iter_mut().flat_map(|kstat| &mut kstat.values) {
        *value = KstatValue::Number(1);
    }
    let took = (0..40).map(|power: u32| (format!("{} ns", 2_u64 << power), KstatValue::Number(1))).collect();
    let name = "zil_commit".to_owned();
    kstats.push(Kstat { pool: Some("tank".to_owned()), name, values: took, text: None });
    let (ops, datasets) = operations_of_tank();
    let (txgs, locks) = waits();
    let text = text(Page { pools: vec![tank, done], kstats, ops, datasets, locks, txgs });
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/telemetry/metrics/page.txt");
    if std::env::var_os("PAGE").is_some_and(|value| value == "write") {
        std::fs::write(path, &text).expect("the page");
    }
    let kept = std::fs::read_to_string(path).expect("the page");
    let differs = kept.lines().zip(text.lines()).find(|(kept, now)| kept != now);
    assert_eq!(differs, None, "PAGE=write cargo test -p poolhouse-server the_whole_page writes it anew");
    assert_eq!(kept.lines().count(), text.lines().count());
}
