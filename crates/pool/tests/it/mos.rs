//! The metadata of pools that OpenZFS wrote, compared with the output of its own tools.

use crate::common;

use crate::common::{nice_range, open};
use pool::ddt::{DdtHistogram, DdtStat};
use pool::metaslab::{Class, LogChanges};
use pool::space::PoolSpace;
use std::collections::BTreeMap;

/// Pools that their labels alone describe.
const POOLS: &[&str] = &[
    "single-lz4",
    "gang",
    "dedup-fast",
    "dedup-legacy",
    "block-clone",
    "zvols",
    "longname",
    "encrypted",
    "v28",
    "v1",
    "v5000-nofeat",
    "checkpoint",
    "zil-freeze",
    "zil-slog",
    "zil-crash",
    "send-src",
    "send-partial",
    "mirror2",
    "raidz1-3",
    "raidz2-5",
    "raidz3-7",
    "raidz-expanded",
    "draid1",
    "stripe-classes",
    "multi-vdev",
];

fn pools() -> impl Iterator<Item = (&'static str, testkit::Fixture, common::Opened)> {
    POOLS.iter().filter_map(|name| {
        let f = testkit::find(name)?;
        let o = open(f.images());
        Some((*name, f, o))
    })
}

/// The output of `zdb -mmm` for a metaslab: free bytes as printed, fragmentation, space map object,
/// sum of the map.
struct Zdb {
    free: String,
    frag: Option<u64>,
    object: u64,
    alloc: Option<i64>,
}

fn zdb_metaslabs(text: &str) -> Vec<Zdb> {
    let mut out: Vec<Zdb> = Vec::new();
    for line in text.lines() {
        let w: Vec<&str> = line.split_whitespace().collect();
        match w.as_slice() {
            ["metaslab", _, "offset", _, "spacemap", object, "free", free] => {
                let object = object.parse().unwrap();
                out.push(Zdb { free: (*free).to_owned(), frag: None, object, alloc: None });
            }
            ["On-disk", "histogram:", "fragmentation", f] => out.last_mut().unwrap().frag = f.parse().ok(),
            ["smp_alloc", "=", n] => {
                let n = u64::from_str_radix(n.trim_start_matches("0x"), 16).unwrap();
                if let Some(last) = out.last_mut().filter(|m| m.alloc.is_none()) {
                    last.alloc = Some(n as i64);
                }
            }
            _ => {}
        }
    }
    out
}

/// Goal: a replay of every space map gives the sum in its header, and the free space and
/// fragmentation that zdb prints.
#[test]
fn metaslabs_agree_with_zdb() {
    let mut seen = 0;
    for (name, f, o) in pools() {
        let zdb = zdb_metaslabs(&f.output("zdb-metaslabs.txt").unwrap());
        let vdevs = o.vdevs();
        let logs = LogChanges::read(&o.mos, &vdevs).unwrap();
        let mut all = Vec::new();
        for vd in &vdevs {
            o.mos
                .metaslabs(vd, &logs, |ms| {
                    let kept = ms.phys.as_ref().map_or(0, |p| p.alloc) + ms.unflushed;
                    assert_eq!(ms.allocated.space() as i64, kept, "{name}: metaslab {}", ms.id);
                    assert_eq!(ms.free().space() + ms.allocated.space(), ms.size);
                    all.push(ms);
                    Ok(())
                })
                .unwrap();
        }
        assert_eq!(all.len(), zdb.len(), "{name}");
        for (ms, z) in all.iter().zip(&zdb) {
            assert_eq!(ms.object.map_or(0, |o| o.0), z.object, "{name}: metaslab {}", ms.id);
            let free = ms.size as i64 - ms.phys.as_ref().map_or(0, |p| p.alloc);
            let (low, high) = nice_range(&z.free);
            assert!((low..=high).contains(&(free as f64)), "{name}: {free} is not {}", z.free);
            if z.frag.is_some() {
                assert_eq!(ms.fragmentation(), z.frag, "{name}: metaslab {}", ms.id);
            }
            seen += 1;
        }
    }
    assert!(seen > 20, "only {seen} metaslabs");
}

/// Goal: size, allocation and fragmentation are those of `zpool list -p`.
#[test]
fn space_agrees_with_zpool_list() {
    for (name, f, o) in pools() {
        // These pools were not exported, so OpenZFS's tools saw changes that were not yet flushed.
        let exported = !name.starts_with("zil-");
        let list = f.output("zpool-list-p.txt").unwrap();
        let w: Vec<&str> = list.lines().next().unwrap().split('\t').collect();
        let vdevs = o.vdevs();
        // Log devices don't count in the pool's size.
        let counted = vdevs.iter().filter(|v| v.class != Class::Log);
        let got: Vec<_> = counted.map(|v| o.mos.vdev_space(v).unwrap()).collect();
        assert_eq!(got.iter().map(|s| s.space).sum::<u64>().to_string(), w[1], "{name}: size");
        if exported {
            // The export wrote a few more blocks after this listing.
            let alloc: u64 = got.iter().map(|s| s.alloc).sum();
            let said: u64 = w[2].parse().unwrap();
            assert!(alloc.abs_diff(said) < 1 << 20, "{name}: {alloc} allocated, not {said}");
        }
    }
}

/// Goal: the space of the root dataset, with slop, dedup, clones and checkpoint, is used +
/// available of `zfs list`.
#[test]
fn room_agrees_with_zfs_list() {
    // The pools with logs were listed at other times than their images.
    for (name, f, o) in pools().filter(|(n, ..)| !n.starts_with("zil-")) {
        let list = f.output("zfs-list.txt").unwrap();
        let w: Vec<&str> = list.lines().next().unwrap().split('\t').collect();
        let (used, avail): (u64, u64) = (w[2].parse().unwrap(), w[3].parse().unwrap());
        let vdevs = o.vdevs();
        let ddts = o.mos.ddts(&common::Opened::dsize(&vdevs)).unwrap();
        let space = PoolSpace::of(&o.mos, &vdevs, &ddts).unwrap();
        // The listing is some txgs older than the image. Old pools defer frees from one txg to the
        // next, and the space that a checkpoint holds grows with each.
        let slack = space.deferred + if space.checkpoint > 0 { 64 << 10 } else { 0 };
        assert!((used + avail).abs_diff(space.adjusted()) <= slack, "{name}: {space:?}");
    }
}

/// Goal: the history has all records in order, as many of each kind as `zpool history -il` prints.
#[test]
fn history_agrees_with_zpool() {
    for (name, f, o) in pools() {
        let Some(history) = o.mos.history().unwrap() else { continue };
        let text = f.output("zpool-history.txt").unwrap();
        let records: Vec<_> = history.collect::<Result<_, _>>().unwrap();
        let commands: Vec<String> =
            records.iter().filter_map(|r| r.str("history command").map(str::to_owned)).collect();
        let shown: Vec<&str> = text.lines().filter(|l| l.starts_with("20")).collect();
        // The transcript was made before the last commands (trim, export).
        for c in commands.iter().take(commands.len().saturating_sub(4)) {
            assert!(shown.iter().any(|l| l.contains(c.as_str())), "{name}: {c:?} is not in the transcript");
        }
        // Trim and export came after the transcript.
        assert!(records.len() >= shown.len(), "{name}: {} records, {} shown", records.len(), shown.len());
        let late = records[shown.len()..].iter().filter_map(|r| r.str("history command"));
        assert!(records.len() - shown.len() <= 32, "{name}: {:?}", late.collect::<Vec<_>>());
    }
}

/// Goal: dedup tables, legacy ones and fast ones with their logs, have the entries and totals that
/// `zdb -DDD` prints.
#[test]
fn dedup_tables_agree_with_zdb() {
    for (name, f, o) in pools().filter(|(n, ..)| n.starts_with("dedup")) {
        let text = f.output("zdb-DDD.txt").unwrap();
        let vdevs = o.vdevs();
        let ddts = o.mos.ddts(&common::Opened::dsize(&vdevs)).unwrap();
        for ddt in &ddts {
            let legacy = if ddt.version == 0 { "LEGACY" } else { "FDT" };
            let flags = if ddt.is_flat() { "0x03 [FLAT LOG]" } else { "0x00" };
            let (sum, version, dir) = (ddt.checksum.name(), ddt.version, ddt.dir);
            let head = format!("DDT-{sum}: version={version} [{legacy}]; flags={flags}; rootobj={dir}");
            assert!(text.contains(&head), "{name}: zdb does not say {head:?}");
            for c in &ddt.classes {
                let mut histogram = DdtHistogram::default();
                let mut entries = 0;
                for e in o.mos.ddt_entries(ddt, c).unwrap() {
                    let e = e.unwrap();
                    for slot in e.phys.slots().iter().filter(|s| s.phys_birth.0 != 0) {
                        slot.blkptr(ddt.checksum, &e.key).unwrap();
                    }
                    let stat = DdtStat::of(&e.key, &e.phys, &common::Opened::dsize(&vdevs)).unwrap();
                    histogram.0[stat.ref_blocks.ilog2() as usize].add(&stat);
                    entries += 1;
                }
                assert_eq!(entries, c.entries, "{name}");
                assert_eq!(histogram, c.histogram, "{name}: what the pool counted is what there is");
                let class = ddt.class_name(c.class);
                let object = format!("{class}: object={}", c.object);
                assert!(text.contains(&object), "{name}: zdb does not say {object:?}");
            }
            for l in &ddt.logs {
                let log = format!("DDT-log-{sum}-{}: ", l.number);
                let line = text.lines().find(|t| t.starts_with(&log)).expect("zdb lists both logs");
                assert!(line.contains(&format!("obj={};", l.object)), "{name}: {line}");
            }
        }
        let mut total = DdtStat::default();
        ddts.iter().for_each(|d| total.add(&d.total()));
        let row = text.lines().find(|l| l.trim_start().starts_with("Total")).unwrap();
        let w: Vec<&str> = row.split_whitespace().collect();
        let got = [
            total.blocks,
            total.lsize,
            total.psize,
            total.dsize,
            total.ref_blocks,
            total.ref_lsize,
            total.ref_psize,
            total.ref_dsize,
        ];
        for (got, want) in got.iter().zip(&w[1..]) {
            let (low, high) = nice_range(want);
            assert!((low..=high).contains(&(*got as f64)), "{name}: {got} is not {want}");
        }
    }
}

/// Goal: the block reference table has the sums and the reference histogram that `zdb -TTT` prints.
#[test]
fn block_references_agree_with_zdb() {
    let Some(f) = testkit::find("block-clone") else { return };
    let o = open(f.images());
    let text = f.output("zdb-TTT.txt").unwrap();
    let brt = o.mos.brt(1).unwrap();
    let (used, saved) = (pool::brt::used(&brt), pool::brt::saved(&brt));
    let line = text.lines().find(|l| l.starts_with("BRT: used")).unwrap();
    let w: Vec<&str> = line.split_whitespace().collect();
    for (got, want) in [(used, w[2]), (saved, w[4])] {
        let (low, high) = nice_range(want.trim_end_matches(';'));
        assert!((low..=high).contains(&(got as f64)), "{got} is not {want}");
    }
    let entries: Vec<_> = o.mos.brt_entries(&brt[0]).unwrap().collect::<Result<_, _>>().unwrap();
    assert_eq!(entries.len() as u64, brt[0].phys.totalcount);
    let mut histogram: BTreeMap<u32, u64> = BTreeMap::new();
    for e in &entries {
        *histogram.entry(e.refcnt.ilog2() + 1).or_default() += 1;
    }
    for (bucket, n) in histogram {
        let row = format!("{bucket:3}: {n:6} ");
        assert!(text.contains(&row), "zdb does not say {row:?}");
    }
}

/// Goal: only the pool with a checkpoint reports one, a fresh pool reports no scan, and feature
/// counts are those of zdb.
#[test]
fn states_and_features() {
    for (name, _, o) in pools() {
        assert_eq!(o.mos.checkpoint().unwrap().is_some(), name == "checkpoint", "{name}");
        assert!(o.mos.condensing().unwrap().is_none());
        assert!(o.mos.errlog(pool::errlog::ErrLog::Last, true).unwrap().is_empty());
        let features = o.mos.features().unwrap();
        if name == "block-clone" || name == "single-lz4" {
            assert_eq!(features.is_active("com.fudosecurity:block_cloning"), name == "block-clone", "{name}");
        }
        assert_eq!(features.is_enabled("com.delphix:hole_birth"), !name.starts_with('v'), "{name}");
        o.mos.scan().unwrap();
        o.mos.pool_props().unwrap();
    }
}
