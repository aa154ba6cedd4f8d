//! Reports as OpenZFS's `arc_summary` prints them. The expected texts are what version 2.3.2
//! printed for the same numbers.

use super::*;
use crate::counts;

fn asked(words: &str) -> Asked {
    let words: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
    parse(&words).expect("they are right").expect("a report is asked for")
}

fn told() -> Told {
    let spl = [
        ("spl_hostid_path", "/etc/hostid"),
        ("spl_hostid", "7"),
        ("spl_a_name_that_is_long", &"x".repeat(60)),
    ];
    let tunables = [("zfs_txg_timeout", 5), ("l2arc_noprefetch", 1)];
    Told {
        kstats: counts::tests::kstats(),
        tunables: tunables
            .map(|(name, value)| Tunable {
                name: name.into(),
                value,
                default: 0,
                what: format!("what {name} is"),
                words: Vec::new(),
                no_effect: name.starts_with("l2arc"),
                read_only: false,
                signed: false,
            })
            .into(),
        spl: spl
            .map(|(name, value)| SplParameter {
                name: name.into(),
                value: value.into(),
                what: "of the host".into(),
            })
            .into(),
    }
}

/// Goal: a whole report, the list of all names, and the bar match OpenZFS's to the letter.
#[test]
fn as_openzfs() {
    let data = |what: &str| what.to_owned();
    let told = told();
    assert_eq!(told.report(&asked("")), Ok(data(include_str!("../../tests/data/arc/report.txt"))));
    let raw = told.report(&asked("--raw -a")).map(|text| text.trim_start_matches('\n').to_owned());
    let want = data(include_str!("../../tests/data/arc/raw.txt"));
    assert_eq!(raw.as_deref(), Ok(want.trim_start_matches('\n')));
    assert_eq!(told.graph(), Ok(data(include_str!("../../tests/data/arc/graph.txt"))));
}

/// Goal: a section, by name or by old number, equals its part of the whole report. Unknown ones get
/// OpenZFS's message.
#[test]
fn sections() {
    let told = told();
    let mut whole = String::new();
    for (name, _) in SECTIONS {
        whole += &told.report(&asked(&format!("-s {name}"))).expect("it is there");
    }
    assert_eq!(told.report(&asked("")), Ok(whole));
    let page = told.report(&asked("-p 4")).expect("it is there");
    let dmu = told.report(&asked("--section=dmu")).expect("it is there");
    assert_eq!(page, format!("WARNING: Pages are deprecated, please use \"--section\"\n\n{dmu}"));
    let no = |words: &str| told.report(&asked(words)).err();
    assert_eq!(no("-s vdev"), Some(Stop::NoSuch("Error: Section \"vdev\" unknown\n".to_owned())));
    for page in ["5", "0", "7", "-1"] {
        let said = format!("Error: Page \"{page}\" not supported\n");
        assert!(matches!(no(&format!("-p {page}")), Some(Stop::NoSuch(why)) if why.ends_with(&said)));
    }
    let described = told.report(&asked("-ads tunables"));
    let want = "Tunables:\n        # what l2arc_noprefetch is (no effect here)\n        l2arc_noprefetch=1\n        \
                # what zfs_txg_timeout is\n        zfs_txg_timeout=5\n\n";
    assert_eq!(described.as_deref(), Ok(want));
    let words = |words: &[&str]| parse(&words.iter().map(|w| (*w).to_owned()).collect::<Vec<_>>());
    assert_eq!(words(&["-a", "--help"]), Ok(None));
    for bad in [&["-x"][..], &["-p", "one"], &["arc"], &["-s"], &["--nonsense"]] {
        assert!(words(bad).is_err(), "{bad:?}");
    }
}

/// Goal: without an L2ARC its section says so. A missing counter ends the report with its name.
/// Device errors show.
#[test]
fn what_is_missing() {
    let mut told = told();
    let set = |told: &mut Told, name: &str, n: Option<u64>| {
        let values = &mut told.kstats.iter_mut().find(|k| k.name == "arcstats").expect("it is there").values;
        values.retain(|(found, _)| found != name);
        values.extend(n.map(|n| (name.to_owned(), KstatValue::Number(n))));
    };
    let l2 = |told: &Told| told.report(&asked("-s l2arc"));
    for (name, n) in [("l2_writes_error", 0), ("l2_cksum_bad", 0), ("l2_io_error", 0)] {
        set(&mut told, name, Some(n));
    }
    assert!(l2(&told).is_ok_and(|text| text.contains("HEALTHY\n")));
    set(&mut told, "l2_io_error", Some(1));
    assert!(l2(&told).is_ok_and(|text| text.contains("DEGRADED\n")));
    set(&mut told, "l2_size", Some(0));
    assert_eq!(l2(&told).as_deref(), Ok("L2ARC not detected, skipping section\n\n"));
    set(&mut told, "mfu_ghost_data", None);
    let missing = Stop::Failed("nothing is counted as 'mfu_ghost_data'".to_owned());
    assert_eq!(told.report(&asked("-s arc")), Err(missing));
    told.kstats.clear();
    assert!(told.report(&asked("-r")).is_err() && told.graph().is_err());
}

/// Goal: amounts have OpenZFS's units and digits at every border.
#[test]
fn amounts() {
    let bytes = [0, -5, 1023, 1024, 1280, (1 << 20) - 1, 1 << 20, u64::MAX.into()].map(format::bytes);
    let want =
        ["0 Bytes", "-5 Bytes", "1023 Bytes", "1.0 KiB", "1.2 KiB", "1024.0 KiB", "1.0 MiB", "16.0 EiB"];
    assert_eq!(bytes, want);
    let counts = [-3, 0, 999, 1000, 999_999, 1_000_000, 12_345_678_901].map(format::count);
    assert_eq!(counts, ["-3", "0", "999", "1.0k", "1000.0k", "1.0M", "12.3G"]);
    let parts = [(0.0, 0.0), (0.0, 5.0), (1.0, 5000.0), (1.0, 3.0), (7.0, 7.0)];
    let parts = parts.map(|(part, whole)| format::percent(part, whole));
    assert_eq!(parts, ["n/a", "0.0 %", "< 0.1 %", "33.3 %", "100.0 %"]);
}

/// Goal: the header shows the time, the machine and the release in lines of 72 columns.
#[test]
fn head() {
    let text = header(&Clock::fixed(|| 1_775_010_125));
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[..2], ["", &"-".repeat(WIDTH)]);
    assert_eq!(lines[2], "ZFS Subsystem Report                            Wed Apr 01 02:22:05 2026");
    assert!(lines[3].ends_with(&crate::version::module()) && lines[4].starts_with("Machine: "));
    assert!(text.ends_with("\n\n") && lines.len() == 6);
}
