//! Rows and totals of the report, and its options.

#![allow(clippy::unwrap_used, reason = "tests fail so")]

use super::*;
use api::Prop;

fn volume(id: u32, name: &str, kind: &str, dataset: &str) -> AfsVolume {
    let (name, kind, dataset) = (name.to_owned(), kind.to_owned(), dataset.to_owned());
    AfsVolume { id, name, kind, dataset, files: 10, ..AfsVolume::default() }
}

fn dataset(name: &str, of: &[(&str, u64)]) -> Dataset {
    let kind = if name.contains('@') { DatasetKind::Snapshot } else { DatasetKind::Filesystem };
    let prop = |(name, number): &(&str, u64)| Prop {
        name: (*name).to_owned(),
        text: String::new(),
        exact: None,
        number: Some(*number),
        source: api::Source::default(),
        received: None,
    };
    let props = of.iter().map(prop).collect();
    Dataset { name: name.to_owned(), kind, head: DatasetKind::Filesystem, createtxg: 1, props }
}

fn lines(order: Order) -> Vec<Line> {
    let space = |used, logical, ratio| {
        [("used", used), ("referenced", used), ("logicalreferenced", logical), ("refcompressratio", ratio)]
    };
    let fs = |used, logical, ratio| [&space(used, logical, ratio)[..], &[("logicalused", logical)]].concat();
    let datasets = [
        dataset("tank/a", &fs(9000, 9000, 100)),
        dataset("tank/a/1", &fs(1000, 2000, 200)),
        dataset("tank/a/1@3", &space(50, 1900, 200)),
        dataset("tank/a/2", &fs(3000, 3000, 100)),
    ];
    let volumes = vec![
        volume(1, "root", "RW", "tank/a/1"),
        volume(3, "root.backup", "BK", "tank/a/1@3"),
        volume(2, "home", "RW", "tank/a/2"),
        volume(4, "away", "RW", "tank/a/4"),
    ];
    joined(volumes, &datasets, order)
}

/// Goal: rows are in the order of the column. A volume whose dataset can't be read is the last by
/// size, and has no figures.
#[test]
fn orders() {
    let ids = |order| lines(order).iter().map(|line| line.volume.id).collect::<Vec<_>>();
    assert_eq!(ids(Order::Used), [2, 1, 3, 4]);
    assert_eq!(ids(Order::Id), [1, 2, 3, 4]);
    assert_eq!(ids(Order::Name), [4, 2, 1, 3]);
    assert_eq!(ids(Order::Type), [3, 1, 2, 4]);
    assert_eq!(ids(Order::Ratio), [1, 3, 2, 4]);
    assert!(lines(Order::Id)[3].space.is_none());
}

/// Goal: the total counts file systems, with their clones, once. Its ratio is that of all bytes.
#[test]
fn totals() {
    let sum = total(&lines(Order::Used));
    assert_eq!(sum, Total { volumes: 4, files: 40, logical: 5000, used: 4000, ratio: 125 });
    assert_eq!(total(&[]).ratio, 100);
}

/// Goal: volumes are chosen by number and by name, and what no volume has is named.
#[test]
fn choice() {
    let all: Vec<AfsVolume> = lines(Order::Id).into_iter().map(|line| line.volume).collect();
    let names = ["home", "3", "nope"].map(str::to_owned);
    let (some, unknown) = chosen(all.clone(), &names);
    assert_eq!(some.iter().map(|v| v.id).collect::<Vec<_>>(), [2, 3]);
    assert_eq!(unknown, ["nope"]);
    assert_eq!(chosen(all, &[]).0.len(), 4);
}

/// Goal: options of an estimate are those of 'poolhouse estimate'. Without '--estimate' they are
/// refused by name, and so is the one that only directories have.
#[test]
fn options_of_an_estimate() {
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let why = |line: &str| match read(&words(line)) {
        Err(Stop::Usage(why)) => why,
        Err(stop) => panic!("{line}: {stop:?}"),
        Ok(_) => panic!("{line}: it is taken"),
    };
    for (line, expected) in [
        ("-r 16K", "option '-r' needs --estimate\n"),
        ("--dedup home", "option '--dedup' needs --estimate\n"),
        ("--svg x", "option '--svg' needs --estimate\n"),
        ("--estimate --cross", "option '--cross' is for directories: leave it out\n"),
        ("--estimate -r 3K", "bad record size '3K': choose a power of two from 4K to 16M\n"),
        ("--estimate --time soon", "invalid value 'soon' of option '--time': a number is needed\n"),
        ("--estimate --root", "invalid option '--root'\n"),
    ] {
        assert_eq!(why(line), expected, "{line}");
    }
    let asked = read(&words("--estimate -jp -r 16K,1M -s id --partition b --sample all home 7")).unwrap();
    let options = asked.estimate.unwrap().options;
    assert_eq!((options.records, options.sample, options.cross), (vec![16 << 10, 1 << 20], None, false));
    assert!(asked.wanted.json && asked.wanted.exact && asked.order == Order::Id);
    assert_eq!(asked.wanted.query.partition.as_deref(), Some("b"));
    assert_eq!(asked.volumes, ["home", "7"]);
    assert!(read(&words("-Hp home")).unwrap().estimate.is_none());
}
