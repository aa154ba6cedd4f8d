//! The check of a volume that was made from one that was checked, against that of all vnodes.

use std::time::{Duration, Instant};

use afs::volume::{Differences, Sums, check, check_changes};
use dmu::{Change, NewObject};
use dsl::Need;
use dsl::ops::destroy::DestroySnapshots;
use dsl::ops::snapshot::Snapshot;
use ondisk::{DmuType, Txg};
use poolhouse::stream::Touch;

use super::in_place::all_named;
use super::random::{Dice, base, change};
use super::*;
use poolhouse::zil::TxSource as _;

/// A volume with some directories, and more files than a block of dnodes has.
fn vnodes() -> Vec<Made> {
    let mut all = base();
    let many: Vec<(String, u32)> = (0..120).map(|n| (format!("file{n}"), 100 + 2 * n)).collect();
    let many: Vec<(&str, u32)> = many.iter().map(|(name, vnode)| (name.as_str(), *vnode)).collect();
    all[2] = directory(5, 1, 2, &many);
    all.extend(many.iter().map(|(name, vnode)| file(*vnode, 5, name.as_bytes().to_vec())));
    all
}

impl Rig {
    fn name(snapshot: &str) -> String {
        format!("tank/536870915@{snapshot}")
    }

    /// The files as they are now, and when that was.
    fn snapshot(&self, name: &str) -> (FileSystem, Txg) {
        let (live, name) = (self.spa.writer().unwrap(), Self::name(name));
        let names = vec![name.clone()];
        live.run(Box::new(Snapshot { names, props: Vec::new(), enforce_limits: false })).unwrap();
        let dataset = live.dsl().dataset(&name).unwrap();
        let os = dataset.objset().unwrap().unwrap();
        (FileSystem::open(&os).unwrap(), dataset.phys().creation_txg)
    }
}

impl Rig {
    /// Restores the dump of a volume, then the increment, which may be refused and leaves what it
    /// has done. Returns whether it was refused, and what the two checks say.
    fn compare(&self, full: &[u8], increment: &[u8]) -> (bool, Found) {
        self.restore(full).unwrap();
        let (old, since) = self.snapshot("old");
        let sums = check(&old).unwrap();
        let is_refused = self.restore(increment).is_err();
        let (new, _) = self.snapshot("new");
        let by = |differences| check_changes(&old, &new, differences, sums).map(Option::unwrap);
        let (changes, touched) = (by(Differences::Since(since)), touched(&old, &new, since));
        // A stream says the same by its records.
        match (by(Differences::Touched(&touched)), &changes) {
            (Ok(one), Ok(other)) => assert_eq!(one, *other),
            (one, other) => assert_eq!(one.is_err(), other.is_err(), "{one:?} {other:?}"),
        }
        // More than differs, more than once, in another order, and ranges of nothing.
        let all = |first, last, is_dnode| Touch { first: ObjNum(first), last: ObjNum(last), is_dnode };
        let mut more = [all(0, u64::MAX, false), all(u64::MAX, u64::MAX, true), all(90, 3, false)].to_vec();
        more.extend(touched.iter().rev().chain(&touched).copied());
        more.extend((0..300).map(|number| all(number, number, true)));
        match (by(Differences::Touched(&more)), &changes) {
            (Ok(one), Ok(other)) => assert_eq!(one, *other),
            (one, other) => assert_eq!(one.is_err(), other.is_err(), "{one:?} {other:?}"),
        }
        let found = (changes, check(&new));
        drop((old, new));
        let names = ["old", "new"].map(Rig::name).to_vec();
        self.spa.writer().unwrap().run(Box::new(DestroySnapshots { names, defer: false })).unwrap();
        (is_refused, found)
    }
}

/// What the records of an increment say: of each object in a block of dnodes that differs, that it
/// has a dnode, and of those that differ, that they have data.
fn touched(old: &FileSystem, new: &FileSystem, since: Txg) -> Vec<Touch> {
    let mut all = Vec::new();
    for change in new.objset().changes_since(since, ObjNum(1)) {
        match change.unwrap() {
            Change::Used(number) => {
                all.push(Touch { first: number, last: number, is_dnode: true });
                let was = old.objset().dnode(number);
                if !was.is_ok_and(|was| was.phys() == new.objset().dnode(number).unwrap().phys()) {
                    all.push(Touch { first: number, last: number, is_dnode: false });
                }
            }
            Change::Free(first, last) => all.push(Touch { first, last, is_dnode: false }),
        }
    }
    all
}

/// What the check of changes says, and that of all vnodes.
type Found = (Result<Sums, Error>, Result<Sums, Error>);

/// Goal: after any change, right or wrong, the check of what changed finds what the check of all
/// vnodes does, and the same sums.
#[test]
fn changes_at_random() {
    let rig = Rig::new();
    let base = vnodes();
    let full = write(&base);
    let mut right = 0;
    for seed in 0..100 {
        let (mut dice, mut all) = (Dice(seed), all_named(&base));
        for _ in 0..=dice.below(3) {
            change(&mut dice, &mut all, &base);
        }
        match rig.compare(&full, &write(&all)) {
            (_, (Ok(changed), Ok(all))) => {
                let greatest_unique = changed.greatest_unique.max(all.greatest_unique);
                assert_eq!(changed, Sums { greatest_unique, ..all }, "seed {seed}");
                right += 1;
            }
            (is_refused, (Err(changed), Err(_))) => assert!(is_refused, "seed {seed}: {changed}"),
            (_, found) => panic!("seed {seed}: {found:?}"),
        }
    }
    assert!((20..90).contains(&right), "{right} of 100 are right");
    rig.end();
}

/// Goal: each contradiction that changes can make is found, with the same words as by the check of
/// all vnodes. A directory with files can move.
#[test]
fn contradictions() {
    let rig = Rig::new();
    let base = vnodes();
    let full = write(&base);
    let root = |links, more: &[(&str, u32)]| {
        directory(1, 0, links, &[&[("a", 2), ("b", 2), ("d", 5), ("e", 4)], more].concat())
    };
    let with = |made: &Made, change: &dyn Fn(&mut Attributes)| {
        let mut made = made.clone();
        change(made.0.attributes.as_mut().unwrap());
        made
    };
    let cases: [(&str, Vec<Made>); 9] = [
        (
            "vnode 6: its link count is not the number of its names",
            vec![with(&base[6], &|file| file.link_count = 2)],
        ),
        (
            "vnode 6: its parent is not the directory that names it",
            vec![with(&base[6], &|file| file.parent = Vnode(1))],
        ),
        ("vnode 1: its link count is not 2 and the number of its subdirectories", vec![root(3, &[("c", 3)])]),
        (
            "vnode 3: its parents run in a circle",
            vec![
                root(3, &[]),
                directory(3, 7, 3, &[("f", 6), ("g", 7)]),
                directory(7, 3, 3, &[("h", 8), ("i", 10), ("c", 3)]),
            ],
        ),
        ("vnode 400: no directory names it", vec![file(400, 1, Vec::new())]),
        ("vnode 6: no directory names it", vec![directory(3, 1, 3, &[("g", 7)])]),
        (
            "vnode 402: a directory names it, but the volume lacks it",
            vec![directory(7, 3, 2, &[("h", 8), ("i", 10), ("z", 402)])],
        ),
        (
            "vnode 6: it has names in two directories, or for two uses of its number",
            vec![directory(7, 3, 2, &[("h", 8), ("i", 10), ("z", 6)])],
        ),
        (
            "vnode 1: a directory names the root directory",
            vec![directory(7, 3, 2, &[("h", 8), ("i", 10), ("z", 1)])],
        ),
    ];
    let increment = |changed: Vec<Made>| {
        let mut all = all_named(&base);
        all.retain(|(record, _)| changed.iter().all(|(other, _)| other.vnode != record.vnode));
        write(&[all, changed].concat())
    };
    for (expected, change) in cases {
        let (_, (changed, all)) = rig.compare(&full, &increment(change));
        let changed = changed.expect_err(expected).to_string();
        println!("{changed}; {}", all.expect_err(expected));
        let about = changed.replace(" at byte 0:", ":");
        // Of a circle any vnode is named.
        assert!(about == expected || about.replace("vnode 7", "vnode 3") == expected, "{changed}");
    }
    let moved =
        vec![root(3, &[]), directory(5, 1, 3, &[("c", 3)]), directory(3, 5, 3, &[("f", 6), ("g", 7)])];
    let gone: Vec<Made> = base.iter().filter(|(record, _)| record.vnode.0 < 100).cloned().collect();
    let mut all = all_named(&gone);
    all.retain(|(record, _)| ![1, 3, 5].contains(&record.vnode.0));
    let (is_refused, found) = rig.compare(&full, &write(&[all, moved].concat()));
    let (changed, all) = (found.0.unwrap(), found.1.unwrap());
    assert!(!is_refused);
    assert_eq!((changed.blocks, changed.vnodes), (all.blocks, all.vnodes));
    assert_eq!(changed.vnodes, 9);
    rig.end();
}

/// Goal: objects that are no files cost the check no more than themselves, whether they came or
/// were there before. One that lies beyond a run of free numbers is not looked at for it.
#[test]
fn objects_that_are_no_files() {
    const MANY: u64 = 40_000;
    let rig = Rig::new();
    let base = vnodes();
    let full = write(&base);
    rig.restore(&full).unwrap();
    let os = rig.fs.objset().clone();
    let begun = Instant::now();
    let mut last = rig.snapshot("0");
    for round in 1..3 {
        let first = 1_000_000 * round;
        for batch in (first..first + MANY).collect::<Vec<_>>().chunks(1000) {
            let tx = rig.source.tx(Need::growing(1 << 20)).unwrap();
            let spec = NewObject::new(DmuType::PLAIN_FILE_CONTENTS);
            batch.iter().for_each(|number| drop(os.claim_object(&tx, ObjNum(*number), &spec).unwrap()));
        }
        // Free numbers before those of the first round.
        let (gone, stay): (Vec<Made>, Vec<Made>) =
            base.iter().cloned().partition(|(record, _)| record.vnode.0 >= 100 && round == 2);
        let mut all = all_named(&stay);
        if !gone.is_empty() {
            all[2] = directory(5, 1, 2, &[]);
        }
        rig.restore(&write(&all)).unwrap();
        let next = rig.snapshot(&round.to_string());
        let (old, since) = &last;
        let changed =
            check_changes(old, &next.0, Differences::Since(*since), check(old).unwrap()).unwrap().unwrap();
        let all = check(&next.0).unwrap();
        assert_eq!((changed.blocks, changed.vnodes), (all.blocks, all.vnodes));
        last = next;
    }
    assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
}
