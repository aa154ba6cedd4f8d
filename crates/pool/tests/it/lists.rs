//! Block pointer lists of pools that OpenZFS wrote, written again in memory.

use crate::common::{Opened, open};
use dmu::{Objset, Tx};
use ondisk::feature::Feature;
use ondisk::{Blkptr, DmuType, ObjNum, Txg};
use pool::Mos;
use pool::bpobj::Space;
use pool::metaslab::TopVdev;

const POOLS: &[&str] =
    &["single-lz4", "dedup-legacy", "encrypted", "v28", "v1", "zvols", "send-src", "raidz1-3"];

struct Live {
    o: Opened,
    live: Mos,
    vdevs: Vec<TopVdev>,
    tx: Tx,
}

impl Live {
    fn dsize(&self, bp: &Blkptr) -> u64 {
        let dsize = Opened::dsize(&self.vdevs);
        bp.stored().map_or(0, |s| s.copies().map(&dsize).sum())
    }

    /// The entries, and those that a livelist marks as freed.
    fn entries(&self, list: ObjNum) -> (Vec<Blkptr>, Vec<Blkptr>) {
        let mut out = (Vec::new(), Vec::new());
        let each = &mut |bp: &Blkptr, freed| {
            if freed { &mut out.1 } else { &mut out.0 }.push(*bp);
            Ok(())
        };
        self.o.mos.walk_bpobj(list, each).unwrap();
        out
    }

    fn space(&self, list: ObjNum) -> Space {
        let p = self.live.bpobj(list).unwrap();
        Space { used: p.bytes, comp: p.comp, uncomp: p.uncomp }
    }

    /// The number of references to the shared empty list.
    fn empties(&self) -> Option<u64> {
        let feature = Feature::by_name("empty_bpobj").unwrap();
        self.live.feature_refcount(feature).ok().flatten()
    }
}

fn pools() -> impl Iterator<Item = (&'static str, Live)> {
    POOLS.iter().filter_map(|name| {
        let f = testkit::find(name)?;
        let o = open(f.images());
        let os = Objset::open_live(o.cache.clone(), 0, &o.mos.objset().root_bp(), zio::ReadOptions::demand())
            .unwrap();
        let (live, vdevs, tx) = (Mos::open(os).unwrap(), o.vdevs(), Tx::new(Txg(o.txg + 1), None));
        Some((*name, Live { o, live, vdevs, tx }))
    })
}

fn objects(l: &Live, kind: DmuType) -> Vec<ObjNum> {
    let all = l.o.mos.objset().objects(ObjNum(1)).map(Result::unwrap);
    all.filter(|dn| dn.kind() == kind).map(|dn| dn.object()).collect()
}

fn sum(spaces: impl Iterator<Item = Space>) -> Space {
    spaces.fold(Space::default(), |a, b| Space {
        used: a.used + b.used,
        comp: a.comp + b.comp,
        uncomp: a.uncomp + b.uncomp,
    })
}

/// Goal: a list that OpenZFS wrote, appended entry by entry to a new list, has the sums that
/// OpenZFS kept.
///
/// * Appended to another list, by copy or as a sub-list, it keeps these sums.
/// * Entries that are taken off in batches come in reverse order, and none is left.
#[test]
fn lists_written_again_have_the_same_sums() {
    let (mut entries, mut nested, mut marks) = (0, 0, 0);
    for (name, l) in pools() {
        let (mos, tx) = (&l.live, &l.tx);
        let dsize = |bp: &Blkptr| l.dsize(bp);
        let before = l.empties();
        for list in objects(&l, DmuType::BPOBJ) {
            let phys = l.o.mos.bpobj(list).unwrap();
            let (bps, freed) = l.entries(list);
            let new = mos.create_bpobj(tx).unwrap();
            mos.bpobj_append(tx, new, &bps, false, &dsize).unwrap();
            mos.bpobj_append(tx, new, &freed, true, &dsize).unwrap();
            marks += freed.len();
            assert_eq!(mos.bpobj(new).unwrap().num_freed, freed.len() as u64);
            let want = Space { used: phys.bytes, comp: phys.comp, uncomp: phys.uncomp };
            let got = l.space(new);
            assert_eq!(got.used, want.used, "{name}: {list}");
            if phys.have_comp {
                assert_eq!(got, want, "{name}: {list}");
            }
            // Long enough to become a sub-list. The list `new` is short enough to be copied.
            let long = mos.create_bpobj(tx).unwrap();
            let many: Vec<Blkptr> =
                bps.iter().copied().cycle().take(if bps.is_empty() { 0 } else { 1100 }).collect();
            mos.bpobj_append(tx, long, &many, false, &dsize).unwrap();
            let all = mos.create_bpobj(tx).unwrap();
            let parts = sum([l.space(new), l.space(long)].into_iter());
            mos.bpobj_append_list(tx, all, new).unwrap();
            mos.bpobj_append_list(tx, all, long).unwrap();
            assert_eq!(l.space(all), parts, "{name}: {list}");
            nested += mos.bpobj(all).unwrap().num_subobjs;
            assert!(mos.objset().dnode(new).is_err(), "{name}: a list that was copied is gone");
            let mut back = Vec::new();
            let each = &mut |bp: &Blkptr, freed: bool| {
                back.push((bp.encode()[..88].to_vec(), freed));
                Ok(())
            };
            while !mos.bpobj_take(tx, all, 97, &dsize, each).unwrap().1 {}
            let plain = |bp: &Blkptr| (bp.encode()[..88].to_vec(), false);
            let mut want: Vec<_> = freed.iter().rev().map(|bp| (plain(bp).0, true)).collect();
            want.extend(bps.iter().rev().chain(many.iter().rev()).map(plain));
            assert_eq!(back, want, "{name}: {list}");
            assert_eq!(l.space(all), Space::default(), "{name}: {list}");
            assert!(
                many.is_empty() || mos.objset().dnode(long).is_err(),
                "{name}: a sub-list that is empty is gone"
            );
            mos.destroy_bpobj(tx, all).unwrap();
            assert!(mos.objset().dnode(all).is_err(), "{name}");
            entries += bps.len();
        }
        assert_eq!(l.empties(), before, "{name}");
    }
    assert!(entries > 50 && nested > 5 && marks > 5, "{entries} entries, {nested} nested, {marks} marks");
}

/// Goal: a deadlist that OpenZFS wrote, built again key by key, has the same sums under each key.
///
/// * The entries of a removed key move to the key before it.
/// * Merging, moving and destroying lose no entry.
/// * The count of references to the shared empty list is right.
#[test]
fn deadlists_built_again_are_the_same() {
    let (mut keys, mut full) = (0, 0);
    for (name, l) in pools() {
        let (mos, tx) = (&l.live, &l.tx);
        let dsize = |bp: &Blkptr| l.dsize(bp);
        let before = l.empties();
        for object in objects(&l, DmuType::DEADLIST) {
            let old = l.o.mos.deadlist(object).unwrap();
            let lists = old.lists(&l.o.mos).unwrap();
            let parts: Vec<_> = lists.values().map(|list| l.entries(*list)).collect();
            if parts.iter().any(|(_, freed)| !freed.is_empty()) {
                continue; // A livelist.
            }
            let bps: Vec<Blkptr> = parts.into_iter().flat_map(|(bps, _)| bps).collect();
            let mut new = mos.create_deadlist(tx).unwrap();
            let keys_of_lists: Vec<u64> = lists.keys().copied().collect();
            new.add_keys(mos, tx, &keys_of_lists).unwrap();
            new.insert(mos, tx, &bps, &dsize).unwrap();
            assert_eq!(new.total, old.total, "{name}: {object}");
            assert_eq!(mos.deadlist(new.object).unwrap(), new, "{name}: {object}");
            for (key, list) in new.lists(mos).unwrap() {
                let want = l.o.mos.bpobj(lists[&key]).unwrap();
                assert_eq!(l.space(list), Space { used: want.bytes, comp: want.comp, uncomp: want.uncomp });
                assert_eq!(mos.is_empty_bpobj(list).unwrap(), want.bytes == 0 && before.is_some(), "{name}");
            }
            // Without the last snapshot.
            let mut twin = mos.create_deadlist(tx).unwrap();
            twin.add_keys(mos, tx, &keys_of_lists).unwrap();
            assert_eq!(twin.total, Space::default());
            twin.insert(mos, tx, &bps, &dsize).unwrap();
            if let Some(last) = lists.keys().next_back().filter(|_| lists.len() > 1) {
                let from = lists.range(..last).next_back().map_or(0, |(k, _)| *k);
                let both = twin.space_range(mos, from, u64::MAX).unwrap();
                twin.remove_key(mos, tx, *last).unwrap();
                assert_eq!(twin.space_range(mos, from, *last).unwrap(), both, "{name}: {object}");
                keys += 1;
            }
            assert_eq!(twin.total, old.total);
            twin.merge(mos, tx, new.object, &dsize).unwrap();
            let new = mos.deadlist(new.object).unwrap();
            assert_eq!((new.total, new.lists(mos).unwrap().len()), (Space::default(), 0));
            assert_eq!(twin.total, sum([old.total, old.total].into_iter()), "{name}: {object}");
            let free = mos.create_bpobj(tx).unwrap();
            let moved = twin.move_to(mos, tx, free, 1).unwrap();
            assert_eq!(l.space(free), moved);
            let rest: Vec<_> = twin.lists(mos).unwrap().values().map(|o| l.space(*o)).collect();
            assert_eq!(twin.total, sum(rest.into_iter()), "{name}: {object}");
            assert_eq!(sum([moved, twin.total].into_iter()), sum([old.total, old.total].into_iter()));
            full += usize::from(!bps.is_empty());
            mos.destroy_bpobj(tx, free).unwrap();
            new.destroy(mos, tx).unwrap();
            twin.destroy(mos, tx).unwrap();
        }
        assert_eq!(l.empties(), before, "{name}");
    }
    assert!(keys > 3 && full > 3, "{keys} keys, {full} deadlists with blocks");
}
