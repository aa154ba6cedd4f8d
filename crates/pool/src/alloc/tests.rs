//! The promises of the allocator, in memory and without maps.

use super::*;
use crate::metaslab::Class;
use ondisk::num::{Ashift, Guid, Level};
use ondisk::{DmuType, ObjNum, VdevConfig, VdevKind};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;
use vdev::Tree;
use vdev::{VdevAux, VdevState};
use zio::{ClassHint, IoFlags};

const MS_SHIFT: u8 = 24;

fn leaf(id: u64) -> VdevConfig {
    VdevConfig { id, ashift: Some(Ashift(9)), ..VdevConfig::new(VdevKind::File, Guid(100 + id)) }
}

/// Plain vdevs of these classes, each with so many metaslabs of 16 MiB.
fn allocator(vdevs: &[(Class, u64)]) -> Allocator {
    let children = (0..vdevs.len() as u64).map(leaf).collect();
    let root = VdevConfig { children, ..VdevConfig::new(VdevKind::Root, Guid(1)) };
    let tree = Tree::open(&root, &mut |_| Err(VdevAux::OpenFailed)).unwrap();
    // No device is used here, but a vdev that has failed would give no space.
    for leaf in root.leaves() {
        tree.set_state(leaf.guid, VdevState::Healthy, VdevAux::None).unwrap();
    }
    let out = Allocator::new(Arc::new(tree));
    for (id, (class, count)) in vdevs.iter().enumerate() {
        let top = TopVdev {
            id: VdevId(id as u32),
            ashift: Ashift(9),
            asize: count << MS_SHIFT,
            ms_array: ObjNum(0),
            ms_shift: MS_SHIFT,
            quantum: 1,
            class: *class,
            data_disks: 1,
            top_zap: None,
            deflate_ratio: 512,
            non_allocating: false,
        };
        out.add_vdev(&top);
    }
    out
}

fn want(psize: u64, copies: u8, txg: u64) -> Want {
    Want {
        psize: Psize(psize),
        copies,
        txg: Txg(txg),
        kind: DmuType::PLAIN_FILE_CONTENTS,
        level: Level(0),
        class: ClassHint::default(),
        gang_header: false,
        flags: IoFlags::NONE,
    }
}

impl Allocator {
    /// Syncs a txg without space maps.
    fn sync_in_memory(&self, txg: u64) {
        let mut state = self.state.lock();
        let _ = state.take(Txg(txg));
        state.finish(Txg(txg));
    }
}

/// Freed bytes that can't be used yet.
fn waiting(alloc: &Allocator) -> u64 {
    alloc.totals().0.values().map(|c| c.deferred).sum()
}

fn places(dvas: &[Option<Dva>; 3]) -> Vec<Dva> {
    dvas.iter().flatten().copied().collect()
}

/// Goal: whatever is allocated, freed and synced, no byte is given out while it is in use, or the
/// last two txgs may need it. Nothing is lost, and the sums are those of a model.
#[test]
fn nothing_is_given_out_twice_or_lost() {
    let op = prop_oneof![
        4 => (1u64..300, 1u8..=3).prop_map(|(n, copies)| (0, n, copies)),
        2 => any::<u64>().prop_map(|n| (1, n, 0)),
        1 => Just((2, 0, 0)),
        1 => any::<u64>().prop_map(|n| (3, n, 0)),
    ];
    proptest!(ProptestConfig::with_cases(40), |(ops in prop::collection::vec(op, 1..300))| {
        let alloc = allocator(&[(Class::Normal, 3), (Class::Normal, 2)]);
        let mut held: Vec<(u64, Vec<Dva>)> = Vec::new();
        // Busy bytes by vdev and start: their end, and the txg that freed them, if any.
        let mut busy: BTreeMap<(u32, u64), (u64, Option<u64>)> = BTreeMap::new();
        let mut txg = 4;
        for (what, n, copies) in ops {
            match what {
                0 => if let (waited, Ok(got)) = (waiting(&alloc), alloc.allocate(&want(n * 512, copies, txg))) {
                    let got = places(&got);
                    if waited > 0 && waiting(&alloc) == 0 {
                        // There was no other space, so what was freed before this txg need not
                        // wait.
                        busy.retain(|_, (_, freed)| freed.is_none_or(|f| f == txg));
                    }
                    prop_assert_eq!(got.len(), copies.into());
                    for d in &got {
                        let (start, end) = (d.offset.0, d.offset.0 + d.asize.0);
                        prop_assert_eq!(d.asize.0, n * 512);
                        let before = busy.range(..(d.vdev.0, end)).next_back();
                        let clash = before.is_some_and(|((v, _), (e, _))| *v == d.vdev.0 && *e > start);
                        prop_assert!(!clash, "{:?} is given out while busy", d);
                        busy.insert((d.vdev.0, start), (end, None));
                    }
                    held.push((txg, got));
                },
                1 if !held.is_empty() => {
                    let (_, dvas) = held.swap_remove(n as usize % held.len());
                    for d in dvas {
                        alloc.free(&d, Txg(4), Txg(txg));
                        busy.get_mut(&(d.vdev.0, d.offset.0)).unwrap().1 = Some(txg);
                    }
                }
                3 => if let Some(i) = held.iter().position(|(t, _)| *t == txg) {
                    for d in held.swap_remove(i).1 {
                        alloc.unallocate(&d, Txg(txg));
                        busy.remove(&(d.vdev.0, d.offset.0));
                    }
                }
                _ => {
                    alloc.sync_in_memory(txg);
                    busy.retain(|_, (_, freed)| freed.is_none_or(|f| f + 2 > txg));
                    txg += 1;
                    let sum: u64 = busy.iter().map(|((_, s), (e, _))| e - s).sum();
                    prop_assert_eq!(alloc.totals().alloc(), sum);
                }
            }
        }
        for t in txg..txg + 3 {
            for (_, dvas) in held.drain(..) {
                dvas.iter().for_each(|d| alloc.free(d, Txg(4), Txg(t)));
            }
            alloc.sync_in_memory(t);
        }
        prop_assert_eq!(alloc.totals().alloc(), 0);
        prop_assert_eq!(alloc.bad_frees(), 0);
        // All space is available again, one range in each metaslab.
        let all: Vec<_> = (0..5).map(|_| alloc.allocate(&want(16 << 20, 1, txg + 3))).collect();
        prop_assert!(all.iter().all(Result::is_ok), "{:?}", all);
    });
}

/// Goal: the copies of a block go to different vdevs, or to different metaslabs if there are too
/// few vdevs.
#[test]
fn copies_lie_apart() {
    let three = allocator(&[(Class::Normal, 2), (Class::Normal, 2), (Class::Normal, 2)]);
    for _ in 0..100 {
        let got = places(&three.allocate(&want(4096, 3, 4)).unwrap());
        let mut vdevs: Vec<_> = got.iter().map(|d| d.vdev).collect();
        vdevs.sort();
        vdevs.dedup();
        assert_eq!(vdevs.len(), 3, "{got:?}");
    }
    let one = allocator(&[(Class::Normal, 4)]);
    for _ in 0..100 {
        let got = places(&one.allocate(&want(4096, 3, 4)).unwrap());
        let mut metaslabs: Vec<_> = got.iter().map(|d| d.offset.0 >> MS_SHIFT).collect();
        metaslabs.sort();
        metaslabs.dedup();
        assert_eq!(metaslabs.len(), 3, "{got:?}");
    }
}

/// Goal: vdevs take turns by the megabyte, and an emptier one gets more.
#[test]
fn vdevs_take_turns() {
    let alloc = allocator(&[(Class::Normal, 8), (Class::Normal, 32)]);
    let mut got = [0u64; 2];
    for _ in 0..320 {
        let dva = places(&alloc.allocate(&want(128 << 10, 1, 4)).unwrap())[0];
        got[dva.vdev.0 as usize] += dva.asize.0;
    }
    assert!(got[0] >= 4 << 20 && got[1] > 2 * got[0], "{got:?}");
}

/// Goal: metadata, dedup tables, log blocks and data each go to their class. What finds no space
/// there goes to the normal class. Log devices take nothing else.
#[test]
fn classes_are_kept_and_fall_back() {
    let alloc = allocator(&[(Class::Normal, 4), (Class::Special, 1), (Class::Dedup, 1), (Class::Log, 1)]);
    let vdev = |w: Want| places(&alloc.allocate(&w).unwrap())[0].vdev.0;
    let metadata = Want { kind: DmuType::OBJECT_DIRECTORY, ..want(4096, 1, 4) };
    let indirect = Want { level: Level(1), ..want(4096, 1, 4) };
    let small = Want { class: ClassHint::Normal { special_small_blocks: 4096 }, ..want(4096, 1, 4) };
    let large = Want { psize: Psize(8192), ..small };
    let dedup = Want { class: ClassHint::Dedup, ..metadata };
    let log = Want { class: ClassHint::Log { devices: true }, kind: DmuType::INTENT_LOG, ..want(4096, 1, 4) };
    assert_eq!([want(4096, 1, 4), metadata, indirect, small].map(vdev), [0, 1, 1, 1]);
    assert_eq!([large, dedup, log].map(vdev), [0, 2, 3]);
    assert_eq!(vdev(Want { psize: Psize(16 << 20), ..metadata }), 0, "the special vdev has no such room");
    assert_eq!(vdev(Want { psize: Psize(16 << 20), ..log }), 0, "the log has no such room");
    let totals = alloc.totals();
    assert_eq!(totals.size(), 6 << MS_SHIFT, "log devices are not counted");
    alloc.set_allocating(VdevId(1), false);
    assert_eq!(vdev(metadata), 0);
    alloc.set_allocating(VdevId(1), true);
    assert_eq!(vdev(metadata), 1);
}

/// Goal: a large normal vdev lends one metaslab to log blocks, and data never gets it.
#[test]
fn a_metaslab_is_lent_to_logs() {
    let alloc = allocator(&[(Class::Normal, 65)]);
    let log = Want { class: ClassHint::Log { devices: true }, kind: DmuType::INTENT_LOG, ..want(4096, 1, 4) };
    let lent = places(&alloc.allocate(&log).unwrap())[0].offset.0 >> MS_SHIFT;
    let data: Vec<_> = std::iter::from_fn(|| alloc.allocate(&want(16 << 20, 1, 4)).ok()).collect();
    assert_eq!(data.len(), 64);
    assert!(data.iter().flatten().flatten().all(|d| d.offset.0 >> MS_SHIFT != lent));
    assert_eq!(alloc.totals().of(ClassKind::EmbeddedLog).space, 1 << MS_SHIFT);
}

/// Goal: the intent log takes none of the last space, which txgs need. It may fill its own
/// metaslab.
#[test]
fn logs_leave_the_last_room_to_groups() {
    let log = Want { class: ClassHint::Log { devices: true }, kind: DmuType::INTENT_LOG, ..want(4096, 1, 4) };
    let alloc = allocator(&[(Class::Normal, 4)]);
    assert!(!alloc.is_scarce());
    while !alloc.is_scarce() {
        alloc.allocate(&log).unwrap();
        alloc.allocate(&want(1 << 20, 1, 4)).unwrap();
    }
    assert!(alloc.allocate(&log).is_err());
    alloc.allocate(&want(1 << 20, 1, 4)).unwrap();
    let lent = allocator(&[(Class::Normal, 65)]);
    while lent.allocate(&want(16 << 20, 1, 4)).is_ok() {}
    assert!(lent.is_scarce());
    lent.allocate(&log).unwrap();
}

/// Goal: frees of space that is not allocated, is outside a vdev or crosses metaslabs change
/// nothing and are counted. A damaged pool may request them.
#[test]
fn bad_frees_are_refused() {
    let alloc = allocator(&[(Class::Normal, 4)]);
    let dva = places(&alloc.allocate(&want(4096, 1, 4)).unwrap())[0];
    alloc.sync_in_memory(4);
    alloc.free(&dva, Txg(4), Txg(5));
    alloc.free(&dva, Txg(4), Txg(5));
    alloc.sync_in_memory(5);
    alloc.free(&dva, Txg(4), Txg(6));
    let at = |offset, size| Dva { offset: ondisk::Offset(offset), asize: ondisk::Asize(size), ..dva };
    alloc.free(&at(8192, 512), Txg(4), Txg(6));
    alloc.free(&at((1 << MS_SHIFT) - 512, 1024), Txg(4), Txg(6));
    alloc.free(&at(u64::MAX - 511, 1024), Txg(4), Txg(6));
    alloc.free(&at(1, 512), Txg(4), Txg(6));
    alloc.free(&Dva { vdev: VdevId(7), ..dva }, Txg(4), Txg(6));
    assert_eq!(alloc.bad_frees(), 7);
    (6..9).for_each(|t| alloc.sync_in_memory(t));
    assert_eq!(alloc.totals().alloc(), 0);
}

/// Goal: a block of an intent log is claimed once, and is not given out.
#[test]
fn claims_take_the_space() {
    let alloc = allocator(&[(Class::Normal, 2)]);
    let dva = Dva { vdev: VdevId(0), offset: ondisk::Offset(8192), asize: ondisk::Asize(4096), gang: false };
    assert!(alloc.claim(&dva, Txg(4)).unwrap() && !alloc.claim(&dva, Txg(4)).unwrap());
    let all: Vec<_> = std::iter::from_fn(|| alloc.allocate(&want(4096, 1, 4)).ok()).collect();
    assert_eq!(all.len() as u64, (2 << MS_SHIFT) / 4096 - 1);
    assert!(all.iter().flatten().flatten().all(|d| (d.vdev, d.offset) != (dva.vdev, dva.offset)));
}

/// Goal: a pool that is full except for lately freed space uses that space. It does not use what
/// the syncing txg has freed.
#[test]
fn a_full_pool_waits_for_nothing() {
    let alloc = allocator(&[(Class::Normal, 40)]);
    let all: Vec<_> = std::iter::from_fn(|| alloc.allocate(&want(16 << 20, 1, 4)).ok()).collect();
    assert_eq!(all.len(), 40);
    let dvas: Vec<Dva> = all.iter().flat_map(places).collect();
    alloc.sync_in_memory(4);
    // With so much free space, frees may wait.
    dvas[..20].iter().for_each(|d| alloc.free(d, Txg(4), Txg(5)));
    alloc.sync_in_memory(5);
    assert!(waiting(&alloc) > 0 || alloc.totals().alloc() == 20 << MS_SHIFT);
    alloc.free(&dvas[20], Txg(4), Txg(6));
    let again: Vec<_> = std::iter::from_fn(|| alloc.allocate(&want(16 << 20, 1, 6)).ok()).collect();
    assert_eq!(again.len(), 20);
    assert!(again.iter().flat_map(places).all(|d| d.offset != dvas[20].offset));
    (6..9).for_each(|t| alloc.sync_in_memory(t));
    assert_eq!((alloc.totals().alloc(), alloc.bad_frees()), (39 << MS_SHIFT, 0));
}

fn disable_metaslab(alloc: &Allocator, id: u32) -> DisabledMetaslab<'_> {
    match alloc.disable_metaslab(VdevId(0), id, &|| false).unwrap() {
        DisableOutcome::Disabled(disabled) => disabled,
        other => panic!("{other:?}"),
    }
}

/// Goal: nothing is allocated from a disabled metaslab. Its free ranges contain neither
/// allocated nor lately freed space.
#[test]
fn disabled_space_is_left_alone() {
    let alloc = allocator(&[(Class::Normal, 8)]);
    let first = places(&alloc.allocate(&want(1 << 20, 1, 4)).unwrap())[0];
    let other = places(&alloc.allocate(&want(1 << 20, 1, 4)).unwrap())[0];
    alloc.sync_in_memory(4);
    alloc.free(&other, Txg(4), Txg(5));
    let id = |d: &Dva| (d.offset.0 >> MS_SHIFT) as u32;
    let range = |d: &Dva| (d.offset.0, d.offset.0 + d.asize.0);
    assert_eq!(id(&first), id(&other));
    for txg in 5..9 {
        let disabled = disable_metaslab(&alloc, id(&first));
        let touches = |(start, end)| disabled.free().iter().any(|(s, e)| *s < end && start < *e);
        assert!(!touches(range(&first)));
        assert_eq!(touches(range(&other)), txg == 8, "{txg}");
        for _ in 0..64 {
            let got = places(&alloc.allocate(&want(1 << 17, 1, txg)).unwrap())[0];
            assert_ne!(id(&got), id(&first));
        }
        drop(disabled);
        alloc.sync_in_memory(txg);
    }
    for (vdev, id) in [(0, 8), (1, 0)] {
        assert!(matches!(alloc.disable_metaslab(VdevId(vdev), id, &|| false), Ok(DisableOutcome::Never)));
    }
}

/// Goal: an allocation that finds no space while a metaslab is disabled requests it, and gets it
/// when it is given back. No metaslab is disabled before that.
#[test]
fn an_allocation_gets_disabled_space() {
    let alloc = allocator(&[(Class::Normal, 2)]);
    let half = places(&alloc.allocate(&want(16 << 20, 1, 4)).unwrap())[0];
    let id = 1 - (half.offset.0 >> MS_SHIFT) as u32;
    let disabled = disable_metaslab(&alloc, id);
    assert!(!disabled.is_wanted());
    std::thread::scope(|s| {
        let got = s.spawn(|| alloc.allocate(&want(16 << 20, 1, 4)));
        while !disabled.is_wanted() {
            std::thread::yield_now();
        }
        let next = s.spawn(|| disable_metaslab(&alloc, id).free().len());
        drop(disabled);
        assert_eq!(u64::from(id), places(&got.join().unwrap().unwrap())[0].offset.0 >> MS_SHIFT);
        // Nor before the txg has synced. A thread that must stop does not wait for that.
        assert!(matches!(alloc.disable_metaslab(VdevId(0), id, &|| true), Ok(DisableOutcome::Later)));
        alloc.sync_in_memory(4);
        assert_eq!(next.join().unwrap(), 0);
    });
    let disabled = disable_metaslab(&alloc, id);
    std::thread::scope(|s| {
        let none = s.spawn(|| alloc.allocate(&want(512, 1, 4)));
        while !disabled.is_wanted() {
            std::thread::yield_now();
        }
        drop(disabled);
        assert!(none.join().unwrap().is_err());
    });
}

/// Goal: a map that was read only to disable a metaslab is dropped, but never while a change of
/// it is not on disk.
#[test]
fn what_is_not_on_disk_is_not_forgotten() {
    let alloc = allocator(&[(Class::Normal, 8)]);
    let loaded = |id: u32| alloc.state.lock().metaslab((VdevId(0), id)).free.is_some();
    drop(disable_metaslab(&alloc, 7));
    assert!(!loaded(7));
    let got = places(&alloc.allocate(&want(512, 1, 4)).unwrap())[0];
    let id = (got.offset.0 >> MS_SHIFT) as u32;
    drop(disable_metaslab(&alloc, id));
    assert!(loaded(id));
}
