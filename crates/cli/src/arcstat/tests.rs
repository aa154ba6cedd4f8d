//! Lines as OpenZFS's `arcstat` prints them.

use super::*;

fn counts(pairs: &[(&str, u64)]) -> Counts {
    pairs.iter().map(|(name, n)| ((*name).to_owned(), *n)).collect()
}

fn asked(args: &str) -> Asked {
    let words: Vec<String> = args.split_whitespace().map(str::to_owned).collect();
    parse(&words).unwrap().unwrap()
}

/// Goal: the lines have OpenZFS's columns, widths and suffixes, of what grew since the line before.
#[test]
fn lines() {
    let before = counts(&[("hits", 100), ("demand_data_hits", 100)]);
    let now = counts(&[
        ("hits", 1900),
        ("misses", 200),
        ("demand_data_hits", 1600),
        ("demand_data_misses", 200),
        ("demand_metadata_hits", 300),
        ("size", 5 << 30),
        ("c", 1 << 20),
        ("memory_available_bytes", 3 << 29),
    ]);
    let asked = asked("");
    let want = "    time  read  ddread  ddh%  dmread  dmh%  pread  ph%   size      c  avail\n\
                12:00:01    2K    1.7K  88.2     300   100      0    0     5G  1024K   1.5G\n";
    assert_eq!(header(&asked) + &row(&asked, &before, &now, "12:00:01"), want);
}

/// Goal: chosen columns are as they are without suffixes and widths when a program reads them.
#[test]
fn for_programs() {
    let asked = asked("-p -s , -f hits,miss%,grow 2 3");
    assert_eq!((asked.interval, asked.count), (2, Some(3)));
    let line = row(&asked, &counts(&[]), &counts(&[("hits", 3), ("misses", 1)]), "");
    assert_eq!(header(&asked) + &line, "hits,miss%,grow\n1.5,25,1\n");
}

/// Goal: the columns of cache devices tell what is counted there.
#[test]
fn of_cache_devices() {
    let asked = asked("-p -s , -f l2hits,l2miss%,l2asize,l2wbytes 2 1");
    let now = [("l2_hits", 6), ("l2_misses", 2), ("l2_asize", 4096), ("l2_write_bytes", 1024)];
    let line = row(&asked, &counts(&[]), &counts(&now), "");
    assert_eq!(line, "3,25,4096,512\n");
}

/// Goal: what is not here is refused by name, and a list of columns has each.
#[test]
fn refused() {
    let fails = |args: &[&str]| parse(&args.iter().map(|a| (*a).to_owned()).collect::<Vec<_>>()).err();
    assert_eq!(
        fails(&["-f", "hits,l2pref%"]),
        Some("Invalid column definition! -- ['l2pref%']\n".to_owned())
    );
    assert!(fails(&["-x", "-z"]).is_some() && fails(&["-q"]).is_some() && fails(&["soon"]).is_some());
    assert_eq!(asked("-a").columns.len(), COLUMNS.len());
    assert!(parse(&["-v".to_owned()]).unwrap().is_none());
}
