//! Allocation from pools that OpenZFS wrote, recorded in their space maps in memory.

use crate::common::{Opened, open};
use dmu::{Objset, Tx};
use ondisk::{DmuType, Dva, Level, Psize, Txg, mos};
use pool::Mos;
use pool::alloc::Allocator;
use pool::metaslab::{LogChanges, TopVdev};
use pool::range::RangeSet;
use std::collections::BTreeMap;
use zio::{ClassHint, IoFlags, ReadOptions, Space, Want};

/// Pools of each kind of vdev and class, with and without space map logs, old and new.
const POOLS: &[&str] = &[
    "single-lz4",
    "gang",
    "v28",
    "v1",
    "v5000-nofeat",
    "zil-freeze",
    "zil-slog",
    "mirror2",
    "raidz1-3",
    "raidz2-5",
    "draid1",
    "stripe-classes",
    "multi-vdev",
];

/// The allocated ranges of each metaslab, by its space map and the logs.
fn maps(mos: &Mos, vdevs: &[TopVdev]) -> BTreeMap<(u32, u64), RangeSet> {
    let logs = LogChanges::read(mos, vdevs).unwrap();
    let mut out = BTreeMap::new();
    for vd in vdevs {
        let each = |ms: pool::metaslab::Metaslab| {
            let sum = ms.phys.as_ref().map_or(0, |p| p.alloc) + ms.unflushed;
            assert_eq!(sum, ms.allocated.space() as i64, "the header's sum of {}/{}", vd.id, ms.id);
            out.insert((vd.id.0, ms.id), ms.allocated);
            Ok(())
        };
        mos.metaslabs(vd, &logs, each).unwrap();
    }
    out
}

struct Live {
    o: Opened,
    live: Mos,
    vdevs: Vec<TopVdev>,
    alloc: Allocator,
}

fn live(f: &testkit::Fixture) -> Live {
    let o = open(f.images());
    let root = o.mos.objset().root_bp();
    let live =
        Mos::open(Objset::open_live(o.cache.clone(), 0, &root, ReadOptions::demand()).unwrap()).unwrap();
    let vdevs = o.vdevs();
    let tree = o.cache.zio().tree();
    let alloc = Allocator::open(&o.mos, tree, &vdevs).unwrap();
    Live { o, live, vdevs, alloc }
}

fn want(psize: u64, kind: DmuType, copies: u8, txg: u64, class: ClassHint) -> Want {
    Want {
        psize: Psize(psize),
        copies,
        txg: Txg(txg),
        kind,
        level: Level(0),
        class,
        gang_header: false,
        flags: IoFlags::NONE,
    }
}

/// Marks `dvas` in the maps as allocated, or as free.
fn apply(maps: &mut BTreeMap<(u32, u64), RangeSet>, vdevs: &[TopVdev], dvas: &[Dva], free: bool) {
    for d in dvas {
        let vd = vdevs.iter().find(|v| v.id == d.vdev).unwrap();
        let ms = maps.get_mut(&(d.vdev.0, d.offset.0 >> vd.ms_shift)).unwrap();
        let (start, end) = (d.offset.0, d.offset.0 + d.asize.0);
        assert!(if free { ms.remove(start, end) } else { ms.add(start, end) }, "{d:?} overlaps");
    }
}

/// Goal: the allocator returns only space that was free, on every kind of vdev and in every class.
///
/// * After the sync, the space maps hold the old allocations and the new ones, and the space map
///   logs are folded in.
/// * After the blocks are freed, the space maps hold the old allocations.
#[test]
fn maps_say_what_was_allocated_and_freed() {
    let mut folded = 0;
    for name in POOLS {
        let Some(f) = testkit::find(name) else { continue };
        let Live { o, live, vdevs, alloc } = live(&f);
        let before = maps(&o.mos, &vdevs);
        let sum: u64 = before.values().map(RangeSet::space).sum();
        let totals: u64 = alloc.totals().0.values().map(|c| c.alloc).sum();
        assert_eq!(totals, sum, "{name}: what is allocated");
        folded += usize::from(!o.mos.log_spacemaps().unwrap().is_empty());
        let txg = o.txg + 1;
        let mut got = Vec::new();
        let kinds = [DmuType::PLAIN_FILE_CONTENTS, DmuType::DNODE, DmuType::PLAIN_FILE_CONTENTS];
        for i in 0..300u64 {
            let class = [ClassHint::default(), ClassHint::Log { devices: true }, ClassHint::Dedup]
                [i as usize % 7 % 3];
            let want = want(512 + i * 377 % 9 * 8192, kinds[i as usize % 3], (i % 3) as u8 + 1, txg, class);
            if let Ok(dvas) = alloc.allocate(&want) {
                got.extend(dvas.into_iter().flatten());
            }
        }
        assert!(got.len() > 300, "{name}: only {}", got.len());
        let mut want = before.clone();
        apply(&mut want, &vdevs, &got, false);
        let tx = Tx::new(Txg(txg), None);
        assert!(alloc.sync(&tx, &live, 1).unwrap(), "{name}");
        assert!(!alloc.sync(&tx, &live, 2).unwrap(), "{name}: nothing was left");
        assert!(live.dir(mos::LOG_SPACEMAP_ZAP).unwrap().is_none(), "{name}");
        assert_eq!(maps(&live, &vdevs), want, "{name}");
        // Freed space is in the maps at once, and can be allocated two txgs later.
        alloc.sync_done(Txg(txg), &o.mos);
        let tx = Tx::new(Txg(txg + 1), None);
        got.iter().for_each(|d| alloc.free(d, Txg(txg), Txg(txg + 1)));
        assert!(alloc.sync(&tx, &live, 1).unwrap());
        assert_eq!(maps(&live, &vdevs), before, "{name}");
        assert_eq!(alloc.bad_frees(), 0, "{name}");
        histograms_are_right(&live, &vdevs, name);
    }
    assert!(folded > 2, "only {folded} pools had logs");
}

/// Checks that the histogram of each loaded space map is consistent with its free space.
fn histograms_are_right(mos: &Mos, vdevs: &[TopVdev], name: &str) {
    let mut with = 0;
    for vd in vdevs {
        for (id, object) in mos.metaslab_objects(vd).unwrap().into_iter().enumerate() {
            if object == 0 {
                continue;
            }
            let none = LogChanges::default();
            let ms = mos.load_metaslab(vd, id as u64, object, None, &none).unwrap();
            let Some(phys) = ms.phys.as_ref().filter(|p| p.have_histogram) else { continue };
            let count: u64 = phys.histogram.iter().sum();
            let least: u64 =
                phys.histogram.iter().enumerate().map(|(i, n)| n << (i as u8 + vd.ashift.0)).sum();
            let free = ms.free().space();
            assert!(least <= free && (free == 0) == (count == 0), "{name}: {least} of {free} in {count}");
            with += 1;
        }
    }
    assert!(with > 0 || ["v28", "v1", "v5000-nofeat"].contains(&name), "{name} has histograms");
}
