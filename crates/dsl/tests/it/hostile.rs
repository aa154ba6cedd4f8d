//! Pools with valid checksums and one damaged block. Every read must end, with a result or an
//! error.

use crate::common;

use dsl::{Dsl, ListOptions, Listed, Options};
use fuzzing::graft::Graft;
use fuzzing::mutate::{Rng, mutate};
use ondisk::DmuType;
use pool::errlog::ErrLog;
use pool::metaslab::LogChanges;
use pool::space::PoolSpace;
use std::collections::BTreeMap;

/// Number of mutations for each pool. The variable `HOSTILE_ROUNDS` overrides it.
const ROUNDS: u64 = 40;

/// Reads everything that the crates `pool` and `dsl` can read. Errors are valid results.
fn read_everything(image: std::path::PathBuf) -> Result<(), Box<dyn std::error::Error>> {
    let o = common::try_open(&[image])?;
    let mos = &o.mos;
    let _ = (mos.features(), mos.pool_props(), mos.scan(), mos.removing(), mos.checkpoint());
    let _ = (mos.errlog(ErrLog::Last, true), mos.errlog(ErrLog::Scrub, false));
    let vdevs = o.try_vdevs()?;
    if let Ok(logs) = LogChanges::read(mos, &vdevs) {
        for vd in &vdevs {
            let _ = mos.metaslabs(vd, &logs, |ms| {
                assert_eq!(ms.free().space() + ms.allocated.space(), ms.size);
                Ok(())
            });
            let _ = (mos.vdev_space(vd), mos.checkpoint_space(vd));
        }
    }
    let ddts = mos.ddts(&common::Opened::dsize(&vdevs));
    for ddt in ddts.iter().flatten() {
        for class in &ddt.classes {
            let _ = mos.ddt_entries(ddt, class).map(|all| all.take_while(Result::is_ok).count());
        }
    }
    for brt in mos.brt(1).iter().flatten() {
        let _ = mos.brt_entries(brt).map(|all| all.take_while(Result::is_ok).count());
    }
    if let Ok(Some(history)) = mos.history() {
        let _ = history.take_while(Result::is_ok).count();
    }
    let space = PoolSpace::of(mos, &vdevs, &ddts.unwrap_or_default()).unwrap_or_default();
    let dsl = Dsl::open(mos.clone(), Options { pool_name: "p".to_owned(), space, altroot: None })?;
    let all = ListOptions { snapshots: true, hidden: true, threads: 2, ..ListOptions::default() };
    dsl.list(None, &all, &|l| {
        let Listed::Dataset(d) = l else { return };
        let _ = (d.properties(), d.holds(), d.clones(), d.origin(), d.written(), d.resume_token());
        for b in d.bookmarks().into_iter().flatten() {
            let _ = b.properties(&dsl, &d.name());
        }
        let _ = dsl.by_object(d.object());
        let _ = dsl.keys().load(d.dir(), b"wrong horse", true);
    })?;
    Ok(())
}

/// Goal: no damaged block of the pool's own objects makes a read panic, hang or use unbounded
/// memory.
#[test]
fn wrong_blocks_end_in_answers() {
    let rounds = std::env::var("HOSTILE_ROUNDS").ok().and_then(|n| n.parse().ok()).unwrap_or(ROUNDS);
    for name in ["send-partial", "dedup-fast", "block-clone"] {
        let Some(f) = testkit::find(name) else { continue };
        let mut graft = Graft::open(&f);
        let interesting: Vec<usize> = (0..graft.nodes().len())
            .filter(|i| {
                let kind = graft.nodes()[*i].kind();
                kind != DmuType::PLAIN_FILE_CONTENTS && kind != DmuType::DIRECTORY_CONTENTS
            })
            .collect();
        assert!(interesting.len() > 50, "{name}");
        for round in 0..rounds {
            let mut rng = Rng::new(round);
            let index = interesting[rng.below(interesting.len())];
            let mut contents = graft.nodes()[index].contents().to_vec();
            let len = contents.len();
            mutate(&mut rng, &mut contents);
            contents.resize(len, 0);
            println!("{name}, round {round}: block {index} of {:?}", graft.nodes()[index].kind());
            graft.apply(BTreeMap::from([(index, contents)]));
            let _ = read_everything(graft.image());
            graft.undo();
        }
    }
}

/// Goal: a listing names an unreadable head and an unreadable snapshot, and contains all other
/// datasets.
#[test]
fn a_damaged_dataset_hides_no_other() {
    let f = testkit::load("dedup-fast");
    let mut graft = Graft::open(&f);
    let open = |graft: &Graft| {
        let mos = common::open(&[graft.image()]).mos;
        Dsl::open(mos, Options { pool_name: "dedup-fast".to_owned(), ..Options::default() }).unwrap()
    };
    let all = ListOptions { snapshots: true, ..ListOptions::default() };
    let names = |datasets: &[dsl::Dataset]| -> Vec<String> { datasets.iter().map(|d| d.name()).collect() };
    let dsl = open(&graft);
    let mut want = names(&dsl.list_sorted(None, &all).unwrap().whole().unwrap());
    let broken = ["dedup-fast/c1@s", "dedup-fast/c2"];
    let bonuses = broken.map(|name| {
        let object = dsl.dataset(name).unwrap().object();
        dsl.mos().objset().dnode(object).unwrap().bonus().to_vec()
    });
    // A dataset without a directory.
    let bad = bonuses.clone().map(|b| [&[0; 8], &b[8..]].concat());
    graft.replace(&[(&bonuses[0], &bad[0]), (&bonuses[1], &bad[1])]);
    let listing = open(&graft).list_sorted(None, &all).unwrap();
    want.retain(|name| !broken.contains(&name.as_str()));
    assert!(want.len() > 3);
    assert_eq!(names(&listing.datasets), want);
    assert_eq!(listing.failures.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), broken);
    assert!(listing.whole().is_err());
}
