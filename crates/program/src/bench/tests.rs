//! The grammar, and measurements of a small pool.

use super::*;

fn words(line: &str) -> Vec<String> {
    line.split_whitespace().map(str::to_owned).collect()
}

/// Goal: the pool has as many file systems as the bug names, all with different names.
#[test]
fn the_pool_of_the_bug() {
    let shape = Shape::default();
    let names = names(POOL, shape);
    assert_eq!((shape.file_systems(), names.len()), (2603, 2602));
    assert_eq!(names.iter().collect::<std::collections::BTreeSet<_>>().len(), 2602);
    assert!(names[2601].ends_with("timeflow-1/ds-4"));
}

/// Goal: the options of the usage text are accepted, and no others.
#[test]
fn reads_its_options() {
    let plan = read(&words("-j -S -g 8 -i 7 -l 0,2,5 -n 3 -q 32 -t 16 /there")).expect("a plan");
    assert_eq!((plan.json, plan.serial, plan.rounds, plan.in_flight, plan.threads), (true, false, 3, 32, 16));
    assert_eq!(plan.idle_s, 7);
    assert_eq!((plan.shape.groups, plan.latencies_ms, plan.dir), (8, vec![0, 2, 5], PathBuf::from("/there")));
    for bad in ["-x", "-i", "-i x", "-g 0", "-l 1,", "-t", "-t 0", "a b"] {
        assert!(read(&words(bad)).is_err(), "{bad}");
    }
}

/// Goal: figures and cases survive the way to another process and back. Of several rounds the
/// median counts.
#[test]
fn figures_travel() {
    let took = |n: f64| Took { import_s: n, kib_per_mount: 2.0 * n, ..Took::default() };
    assert_eq!(Took::from_words(&took(1.5).to_words()).expect("figures"), took(1.5));
    assert!(Took::from_words("nothing of that kind").is_err());
    assert_eq!(Took::median(&[took(3.0), took(1.0), took(2.0)]), took(2.0));
    let case = Case { latency_us: 5000, in_flight: 64, threads: 1, idle_s: 3 };
    let sent = case.to_words(Path::new("/room"));
    let sent: Vec<String> = sent.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    assert_eq!(Case::from_words(&sent), Some((case, PathBuf::from("/room"))));
}

/// Goal: a small pool passes all phases on a slow device with several threads. A machine that can't
/// mount reports it.
#[test]
#[allow(clippy::print_stderr, reason = "it says what it leaves out")]
fn measures_a_small_pool() {
    let room = tempfile::tempdir().expect("a folder");
    let shape = Shape { groups: 1, containers: 2, timeflows: 1, leaves: 2 };
    make(room.path(), shape).expect("a pool");
    for threads in [1, 4] {
        let case = Case { latency_us: 100, in_flight: 4, threads, idle_s: 0 };
        match once(room.path(), &case) {
            Ok(took) => assert_eq!(took.mounts, shape.file_systems() as f64),
            Err(error) => eprintln!("nothing can be mounted here: {error:#}"),
        }
    }
    assert!(!room.path().join("mnt").join(POOL).exists() || fuse_free(room.path()));
}

/// The least and the most KiB that the cache may hold for an idle mount. Below the least, nothing
/// was counted.
const CACHED_KIB: std::ops::Range<f64> = 4.0..24.0;

/// Goal: the cache holds little for one more idle mount. The mount itself can use most of a mount's
/// memory budget.
#[test]
#[allow(clippy::print_stderr, reason = "it says what it leaves out")]
fn an_idle_mount_is_small() {
    let cached = |containers| {
        let room = tempfile::tempdir().expect("a folder");
        make(room.path(), Shape { groups: 1, containers, timeflows: 1, leaves: 2 }).expect("a pool");
        // The first import of a new pool completes its creation, so the second one is measured.
        let once = || once(room.path(), &Case { latency_us: 0, in_flight: 4, threads: 4, idle_s: 0 });
        once().and_then(|_| once()).map(|took| (took.mounts, took.mounts * took.cached_kib_per_mount))
    };
    match cached(4).and_then(|few| Ok((few, cached(24)?))) {
        Ok(((few, held_of_few), (many, held_of_many))) => {
            let kib = (held_of_many - held_of_few) / (many - few);
            assert!(CACHED_KIB.contains(&kib), "{kib} KiB are cached for each mount");
        }
        Err(error) => eprintln!("nothing can be mounted here: {error:#}"),
    }
}

/// Whether nothing is mounted below a folder.
fn fuse_free(dir: &Path) -> bool {
    let table = std::fs::read_to_string("/proc/self/mountinfo").expect("the table of mounts");
    !table.contains(&dir.display().to_string())
}
