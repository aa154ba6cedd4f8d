//! Lines as OpenZFS's `arcstat` prints them. For many numbers the expected texts are what version
//! 2.3.2 printed.

use super::*;
use crate::counts::tests::kstats;

fn asked(args: &str) -> Asked {
    parse(&words(args)).expect("they are right")
}

fn words(args: &str) -> Vec<String> {
    args.split_whitespace().map(str::to_owned).collect()
}

/// Numbers, and the same names with zeros.
fn numbers() -> (Counts, Counts) {
    let mut now = Counts::default();
    now.add(&kstats(), "arcstats", "").expect("it is there");
    now.add(&kstats(), "zfetchstats", "zfetch_").expect("it is there");
    (now.all(0), now)
}

/// The header and a line, for counters that grew from zero to these.
fn printed(args: &str, pairs: &[(&str, i128)]) -> String {
    let (before, mut now) = numbers();
    now = now.all(0);
    pairs.iter().for_each(|(name, n)| now.set(name, *n));
    of(args, &before, &now)
}

fn of(args: &str, before: &Counts, now: &Counts) -> String {
    let asked = asked(args);
    let columns = choose(&asked.which, true).expect("they are there");
    let read = Reading { before, now, interval: asked.interval };
    header(&columns, &asked) + &row(&columns, &asked, &read, "12:00:01").expect("all is counted")
}

/// Goal: every column matches OpenZFS's to the letter, for people and for programs.
#[test]
fn as_openzfs() {
    let (before, now) = numbers();
    assert_eq!(of("-a", &before, &now), include_str!("../../tests/data/arc/all.txt"));
    assert_eq!(of("-p -a", &before, &now), include_str!("../../tests/data/arc/programs.txt"));
}

/// Goal: the list of columns has OpenZFS's, in the same order and words.
#[test]
fn listed() {
    let listed: String = columns::all().iter().map(|c| format!("{:>11} : {}\n", c.name, c.what)).collect();
    let theirs = include_str!("../../tests/data/arc/listed.txt");
    let (_, theirs) = theirs.split_once("follows:\n").expect("it has a head");
    assert_eq!(listed, theirs.trim_end_matches('\n').to_owned() + "\n");
}

/// Goal: lines have OpenZFS's columns, widths and suffixes, for the growth since the line before.
#[test]
fn lines() {
    let line = printed(
        "",
        &[
            ("hits", 1800),
            ("misses", 200),
            ("demand_data_hits", 1500),
            ("demand_data_misses", 200),
            ("demand_metadata_hits", 300),
            ("size", 5 << 30),
            ("c", 1 << 20),
            ("memory_available_bytes", -(3 << 29)),
        ],
    );
    let want = "    time  read  ddread  ddh%  dmread  dmh%  pread  ph%   size      c  avail\n\
                12:00:01    2K    1.7K  88.2     300   100      0    0     5G  1024K  -1.5G\n";
    assert_eq!(line, want);
}

/// Goal: a program gets the chosen columns without suffixes and widths.
#[test]
fn for_programs() {
    let parsed = asked("-p -s , -f hits,miss%,grow 2 3");
    assert_eq!((parsed.interval, parsed.count), (2, Some(3)));
    let line = printed("-p -s , -f hits,miss%,grow 2 3", &[("hits", 3), ("misses", 1)]);
    assert_eq!(line, "hits,miss%,grow\n1.5,25.0,1\n");
    assert_eq!([0.0, 1e-5, 12.0, 2.5e16, -1e-7].map(float), ["0.0", "1e-05", "12.0", "2.5e+16", "-1e-07"]);
}

/// Goal: the columns of cache devices show their counters, and are refused by name if there is no
/// data on one.
#[test]
fn of_cache_devices() {
    let now = [
        ("l2_hits", 6),
        ("l2_misses", 2),
        ("l2_asize", 4096),
        ("l2_mfu_asize", 1024),
        ("l2_write_bytes", 1024),
    ];
    let line = printed("-p -s , -f l2hits,l2miss%,l2asize,l2mfu%,l2wbytes 2 1", &now);
    assert!(line.ends_with("\n3.0,25.0,4096,25.0,512.0\n"), "{line}");
    let none = choose(&asked("-f hits,l2read,l2hsz").which, false).err();
    assert_eq!(none, Some(Stop::NoL2(vec!["l2read".to_owned(), "l2hsz".to_owned()])));
    let (all, without) = (choose(&Which::All, true), choose(&Which::All, false));
    let (all, without) = (all.expect("all"), without.expect("those without"));
    assert_eq!(all.len(), columns::all().len());
    let left: Vec<_> = all.iter().filter(|c| !c.name.starts_with("l2")).map(|c| &c.name).collect();
    assert_eq!(without.iter().map(|c| &c.name).collect::<Vec<_>>(), left);
}

/// Goal: unknown and contradictory arguments are refused by name, and a missing counter is named.
#[test]
fn refused() {
    let bad = choose(&asked("-f hits,l2no%,x").which, true).err();
    let said = "Invalid column definition! -- ['l2no%', 'x']\n".to_owned();
    assert_eq!(bad, Some(Stop::Usage(said)));
    for bad in ["-x -z", "-x -f hits", "-q", "soon", "1 2 3", "0", "-h", "-f", "--columns"] {
        assert!(matches!(parse(&words(bad)), Err(Stop::Usage(_))), "{bad}");
    }
    assert_eq!(parse(&words("-v")), Err(Stop::List));
    assert_eq!(asked("-a -x").which, Which::All);
    assert_eq!(asked("--outfile=there 5").file.as_deref(), Some("there"));
    let (nothing, columns) = (Counts::default(), choose(&asked("-f c").which, true).expect("it is there"));
    let read = Reading { before: &nothing, now: &nothing, interval: 1 };
    assert_eq!(row(&columns, &asked("-f c"), &read, ""), Err("nothing is counted as 'c'".to_owned()));
}
