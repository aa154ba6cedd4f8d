//! The grammar, and a small pool measured.

use super::*;

fn words(line: &str) -> Vec<String> {
    line.split_whitespace().map(str::to_owned).collect()
}

/// Goal: the pool has as many file systems as the bug names, and all their names are different.
#[test]
fn the_pool_of_the_bug() {
    let shape = Shape::default();
    let names = names(POOL, shape);
    assert_eq!((shape.file_systems(), names.len()), (2603, 2602));
    assert_eq!(names.iter().collect::<std::collections::BTreeSet<_>>().len(), 2602);
    assert!(names[2601].ends_with("timeflow-1/ds-4"));
}

/// Goal: options are taken as the usage text has them, and nothing else is.
#[test]
fn reads_its_options() {
    let plan = read(&words("-j -S -g 8 -l 0,2,5 -n 3 -q 32 -t 16 /there")).expect("a plan");
    assert_eq!((plan.json, plan.serial, plan.rounds, plan.in_flight, plan.threads), (true, false, 3, 32, 16));
    assert_eq!((plan.shape.groups, plan.latencies_ms, plan.dir), (8, vec![0, 2, 5], PathBuf::from("/there")));
    for bad in ["-x", "-g 0", "-l 1,", "-t", "-t 0", "a b"] {
        assert_eq!(read(&words(bad)), None, "{bad}");
    }
}

/// Goal: figures and cases arrive as they were sent to and from a process of their own; of several rounds the middle one counts.
#[test]
fn figures_travel() {
    let took = |n: f64| Took { import_s: n, kib_per_mount: 2.0 * n, ..Took::default() };
    assert_eq!(Took::from_words(&took(1.5).to_words()).expect("figures"), took(1.5));
    assert!(Took::from_words("nothing of that kind").is_err());
    assert_eq!(Took::median(&[took(3.0), took(1.0), took(2.0)]), took(2.0));
    let case = Case { latency_us: 5000, in_flight: 64, threads: 1, only: true };
    let sent = case.to_words(Path::new("/room"));
    let sent: Vec<String> = sent.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    assert_eq!(Case::from_words(&sent), Some((case, PathBuf::from("/room"))));
}

/// Goal: a small pool goes all the way, on a device that takes its time, by several threads; where nothing can be mounted it says so.
#[test]
#[allow(clippy::print_stderr, reason = "it says what it leaves out")]
fn measures_a_small_pool() {
    let room = tempfile::tempdir().expect("a folder");
    let shape = Shape { groups: 1, containers: 2, timeflows: 1, leaves: 2 };
    make(room.path(), shape).expect("a pool");
    for only in [false, true] {
        let case = Case { latency_us: 100, in_flight: 4, threads: 4, only };
        match once(room.path(), &case) {
            Ok(took) => assert_eq!(took.mounts, shape.file_systems() as f64),
            Err(error) => eprintln!("nothing can be mounted here: {error:#}"),
        }
    }
    assert!(!room.path().join("mnt").join(POOL).exists() || fuse_free(room.path()));
}

/// Whether nothing is mounted below a folder.
fn fuse_free(dir: &Path) -> bool {
    let table = std::fs::read_to_string("/proc/self/mountinfo").expect("the table of mounts");
    !table.contains(&dir.display().to_string())
}
