//! Reconstruction over devices in memory, with the bytes laid out by our own geometry. The right
//! bytes are known, so every combination of losses can be tried. Pools of OpenZFS are read in
//! `tests/`.

use std::sync::Arc;

use device::{Device, Fault, Faulty, Op};
use ondisk::config::DraidShape;
use ondisk::indirect::MappingEntry;
use ondisk::label::LABEL_START_SIZE;
use ondisk::{Guid, Offset, Psize, Txg, VdevId};

use crate::columns::Map;
use crate::tests::{READ, leaf, open, root, sums, top};
use crate::tree::Layout;
use crate::{Tree, TxgRanges, VdevConfig, VdevError, VdevKind, parity};

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 7 + i / 512 * 13 + 1) as u8).collect()
}

fn map(tree: &Tree, offset: u64, size: u64, birth: u64) -> Map {
    match &tree.node(tree.top(VdevId(0)).unwrap()).layout {
        Layout::Raidz(r) => r.map(offset, size, Txg(birth)),
        Layout::Draid(d) => d.map(offset, size),
        _ => panic!("columns"),
    }
}

/// Stores a block where the geometry says, parity included.
fn store(tree: &Tree, devices: &[Arc<Faulty>], offset: u64, block: &[u8], birth: u64) {
    let map = map(tree, offset, block.len() as u64, birth);
    for row in map.rows() {
        let (pars, data) = row.split_at(map.nparity);
        let bytes: Vec<&[u8]> = data.iter().map(|c| &block[c.at..c.at + c.size]).collect();
        let mut parity = vec![vec![0; pars[0].size]; map.nparity];
        parity::generate(&bytes, &mut parity);
        for (col, bytes) in row.iter().zip(parity.iter().map(Vec::as_slice).chain(bytes)) {
            devices[col.child].write_at(bytes, LABEL_START_SIZE + col.offset).unwrap();
        }
    }
}

/// Reads the block back as `zio` does; returns whether it was right, and after how many candidates.
fn read(tree: &Tree, offset: u64, block: &[u8], birth: u64) -> (bool, usize) {
    let psize = Psize(block.len() as u64);
    let mut attempts = tree.attempts(VdevId(0), offset, psize, Txg(birth), &READ).unwrap();
    let mut tries = 0;
    let good = attempts.find(|c| {
        tries += 1;
        c[..] == *block
    });
    attempts.settle(good.as_deref());
    (good.is_some(), tries)
}

fn raidz(nparity: u64, children: u64, txgs: &[u64]) -> VdevConfig {
    let raidz_expand_txgs = txgs.iter().copied().map(Txg).collect();
    VdevConfig { nparity: Some(nparity), raidz_expand_txgs, ..top(VdevKind::Raidz, children) }
}

fn draid() -> VdevConfig {
    let draid = Some(DraidShape { ndata: 3, nspares: 1, ngroups: 6 });
    VdevConfig { nparity: Some(2), draid, ..top(VdevKind::Draid, 7) }
}

fn cases() -> Vec<(VdevConfig, u64, u64)> {
    // A vdev, an offset, a birth.
    let draid_end = 5 * (16 << 20) - 5 * 512 * 2;
    vec![
        (raidz(1, 3, &[]), 0x1200, 1),
        (raidz(1, 3, &[]), (1 << 20) + 512, 1),
        (raidz(2, 5, &[]), 0xe00, 1),
        (raidz(3, 6, &[]), 0x3400, 1),
        (raidz(1, 5, &[10, 20]), 0x1a00, 5),
        (raidz(1, 5, &[10, 20]), (1 << 20) + 0x1a00, 15),
        (raidz(2, 6, &[10]), 0x2200, 5),
        (raidz(2, 6, &[10]), 0x2200, 10),
        (draid(), 0, 1),
        (draid(), draid_end, 1),
    ]
}

/// Goal: a block of any size can be read whichever children are lost, up to as many as there is
/// parity. With one more it can't. Lost children fail or return wrong bytes, and exactly those with
/// wrong bytes count an error.
#[test]
fn every_loss_is_survived() {
    for (spec, offset, birth) in cases() {
        let n = spec.children.len() as u64;
        let nparity = spec.nparity.unwrap() as u32;
        for sectors in [1, 2, 3, 4, 7, 16] {
            let block = pattern(sectors * 512);
            for (set, lie) in (0..1u32 << n).flat_map(|s| [(s, false), (s, true)]) {
                if set.count_ones() > nparity {
                    continue;
                }
                let (tree, devices) = open(&root(vec![spec.clone()]), n);
                store(&tree, &devices, offset, &block, birth);
                let all = 0..devices[0].size();
                let map = map(&tree, offset, block.len() as u64, birth);
                for d in (0..n as usize).filter(|d| set >> d & 1 == 1) {
                    devices[d].inject(match lie {
                        true => Fault::Corrupt { range: all.clone() },
                        false => Fault::Error { op: Op::Read, range: all.clone() },
                    });
                }
                let (ok, tries) = read(&tree, offset, &block, birth);
                assert!(ok, "{sectors} sectors at {offset:#x} without {set:b}, lie: {lie}");
                assert!(lie || tries == 1);
                for (d, sum) in sums(&tree).into_iter().enumerate() {
                    let cols = map.cols.iter().filter(|c| c.child == d && c.size > 0).count() as u64;
                    // When the first candidate was right, the other columns were not read.
                    let charged = if lie && set >> d & 1 == 1 && tries > 1 { cols } else { 0 };
                    assert_eq!(sum, charged);
                }
            }
        }
    }
}

/// Goal: with one loss more than parity, no candidate is the block, and the candidates end.
#[test]
fn too_much_loss_ends() {
    for lie in [false, true] {
        let (tree, devices) = open(&root(vec![raidz(2, 5, &[])]), 5);
        let block = pattern(16 * 512);
        store(&tree, &devices, 0, &block, 1);
        for d in &devices[..3] {
            let range = 0..d.size();
            d.inject(if lie { Fault::Corrupt { range } } else { Fault::Error { op: Op::Read, range } });
        }
        assert!(!read(&tree, 0, &block, 1).0);
        let charged: u64 = sums(&tree).iter().sum();
        assert_eq!(charged, if lie { 5 } else { 2 });
    }
}

/// Goal: a child that is stale for the block's txg is left out at first, and serves as a last
/// resort. A child that also returns wrong bytes is found.
#[test]
fn stale_columns() {
    let (tree, devices) = open(&root(vec![raidz(1, 4, &[])]), 4);
    let block = pattern(9 * 512);
    store(&tree, &devices, 0, &block, 7);
    tree.set_dtl(Guid(102), TxgRanges::new([(5, 9)])).unwrap();
    let ops = || tree.stats(Guid(102)).unwrap().ops(crate::IoType::Read);
    assert_eq!((read(&tree, 0, &block, 7), ops()), ((true, 1), 0));
    assert_eq!((read(&tree, 0, &block, 20), ops()), ((true, 1), 1));
    // Another child returns wrong bytes, so that only the stale one's bytes, right by luck, help.
    devices[1].inject(Fault::Corrupt { range: 0..devices[1].size() });
    assert!(read(&tree, 0, &block, 7).0);
    assert_eq!(sums(&tree), [0, 1, 0, 0]);
}

/// Goal: damage that an expansion has since spread over all children is found. One child of the old
/// width was wrong before its sectors were copied.
#[test]
fn damage_before_an_expansion() {
    let (tree, devices) = open(&root(vec![raidz(1, 4, &[10])]), 4);
    let block = pattern(8 * 512);
    store(&tree, &devices, 0x1200, &block, 5);
    for col in &map(&tree, 0x1200, block.len() as u64, 5).cols {
        let sector = (col.offset >> 9) * 4 + col.child as u64;
        if sector % 3 == 1 && col.size > 0 {
            let at = LABEL_START_SIZE + col.offset;
            devices[col.child].inject(Fault::Corrupt { range: at..at + 512 });
        }
    }
    assert!(read(&tree, 0x1200, &block, 5).0);
}

/// Goal: a distributed spare stands in for a lost child: its sectors are where the geometry puts
/// them.
#[test]
fn distributed_spare() {
    let mut spec = draid();
    let lost = spec.children[2].clone();
    let dspare =
        VdevConfig { draid_spare: Some((spec.guid, 0)), ..VdevConfig::new(VdevKind::DraidSpare, Guid(77)) };
    spec.children[2] =
        VdevConfig { children: vec![lost, dspare], ..VdevConfig::new(VdevKind::Spare, Guid(78)) };
    let (tree, devices) = open(&root(vec![spec.clone()]), 7);
    let block = pattern(8 * 512);
    store(&tree, &devices, 0, &block, 1);
    // The content of the lost child is copied to the spare's places; the child itself fails.
    let Layout::Draid(geometry) = &tree.node(tree.top(VdevId(0)).unwrap()).layout else { panic!() };
    for col in map(&tree, 0, block.len() as u64, 1).cols.iter().filter(|c| c.child == 2) {
        let mut bytes = vec![0; col.size];
        devices[2].read_at(&mut bytes, LABEL_START_SIZE + col.offset).unwrap();
        let to = geometry.spare_child(0, col.offset);
        devices[to].write_at(&bytes, LABEL_START_SIZE + col.offset).unwrap();
    }
    devices[2].inject(Fault::Error { op: Op::Read, range: 0..devices[2].size() });
    // With the spare, two more may be lost.
    for d in [0, 5] {
        devices[d].inject(Fault::Error { op: Op::Read, range: 0..devices[d].size() });
    }
    assert!(read(&tree, 0, &block, 1).0);
    // A spare that stands in for itself is not followed for ever.
    let own =
        VdevConfig { draid_spare: Some((spec.guid, 0)), ..VdevConfig::new(VdevKind::DraidSpare, Guid(79)) };
    let spares: Vec<_> = (0..7)
        .map(|n| VdevConfig {
            children: vec![VdevConfig { guid: Guid(200 + n), ..own.clone() }; 1],
            id: n,
            ..VdevConfig::new(VdevKind::Spare, Guid(300 + n))
        })
        .collect();
    let (tree, _) = open(&root(vec![VdevConfig { children: spares, ..spec }]), 0);
    assert!(tree.attempts(VdevId(0), 0, Psize(512), Txg(1), &READ).unwrap().next().is_none());
}

fn indirect(id: u64) -> VdevConfig {
    VdevConfig { id, ashift: Some(ondisk::Ashift(9)), ..VdevConfig::new(VdevKind::Indirect, Guid(50 + id)) }
}

fn entry(src: u64, vdev: u32, dst: u64, size: u64) -> MappingEntry {
    MappingEntry { src: Offset(src), vdev: VdevId(vdev), dst: Offset(dst), size }
}

/// Goal: a block of a removed vdev is found through two mappings and in parts. When every copy of
/// the whole is damaged somewhere, each part's good copy is picked.
#[test]
fn split_blocks_combine() {
    let mirror = VdevConfig { children: vec![leaf(0), leaf(1)], ..top(VdevKind::Mirror, 2) };
    let (tree, devices) = open(&root(vec![mirror, indirect(1), indirect(2)]), 2);
    let read = || tree.attempts(VdevId(1), 0x400, Psize(0xc00), Txg(1), &READ);
    assert!(matches!(read(), Err(VdevError::Unmapped { .. })));
    tree.set_indirect_mapping(VdevId(2), vec![entry(0x8000, 0, 0x20000, 0x1000)]).unwrap();
    let entries =
        vec![entry(0, 0, 0x10000, 0x800), entry(0x800, 2, 0x8200, 0x400), entry(0xc00, 0, 0, 0x400)];
    tree.set_indirect_mapping(VdevId(1), entries).unwrap();
    let block = pattern(0xc00);
    let places = [(0x10400, 0..0x400), (0x20200, 0x400..0x800), (0, 0x800..0xc00)];
    for (at, part) in places.clone() {
        for d in &devices {
            d.write_at(&block[part.clone()], LABEL_START_SIZE + at).unwrap();
        }
    }
    let mut attempts = read().unwrap();
    assert_eq!(attempts.next().unwrap()[..], block[..]);
    attempts.settle(Some(&block));
    for (d, (at, _)) in [0, 1, 0].into_iter().zip(places) {
        let at = LABEL_START_SIZE + at;
        devices[d].inject(Fault::Corrupt { range: at + 5..at + 6 });
    }
    let mut attempts = read().unwrap();
    assert!(attempts.any(|c| c[..] == block[..]));
    attempts.settle(Some(&block));
    assert_eq!(sums(&tree), [2, 1]);
    // Mappings that lead in a circle, overlap or leave gaps are errors.
    let circle = vec![entry(0, 1, 0, 0x10000)];
    tree.set_indirect_mapping(VdevId(1), circle).unwrap();
    assert!(matches!(read(), Err(VdevError::Unmapped { .. })));
    let overlap = vec![entry(0, 0, 0, 0x800), entry(0x600, 0, 0, 0x800)];
    assert!(matches!(tree.set_indirect_mapping(VdevId(1), overlap), Err(VdevError::Mapping { .. })));
    let gap = vec![entry(0, 0, 0, 0x800), entry(0xa00, 0, 0, 0x800)];
    tree.set_indirect_mapping(VdevId(1), gap).unwrap();
    assert!(matches!(read(), Err(VdevError::Unmapped { .. })));
    assert!(tree.set_indirect_mapping(VdevId(0), Vec::new()).is_err());
}

/// Goal: a mirror of two raidz1 of three gives its block back as long as one child has it,
/// whichever devices fail or are wrong. Only the wrong ones count errors. What
/// `every_loss_is_survived` shows of one raidz holds for a child.
#[test]
fn a_mirror_of_raidz_survives_a_side() {
    let side = |n: u64| {
        let children = (3 * n..3 * n + 3).map(leaf).collect();
        VdevConfig { guid: Guid(20 + n), id: n, ashift: None, children, ..raidz(1, 3, &[]) }
    };
    let spec = VdevConfig {
        ashift: Some(ondisk::Ashift(12)),
        children: vec![side(0), side(1)],
        ..top(VdevKind::Mirror, 0)
    };
    let (offset, block) = (0x3000, pattern(5 * 4096));
    let alone = VdevConfig { ashift: spec.ashift, ..raidz(1, 3, &[]) };
    for (set, lie) in (0..1u32 << 6).flat_map(|s| [(s, false), (s, true)]) {
        let (tree, devices) = open(&root(vec![spec.clone()]), 6);
        // Each child is laid out as a raidz by itself.
        for devices in devices.chunks(3) {
            store(&open(&root(vec![alone.clone()]), 3).0, devices, offset, &block, 1);
        }
        for d in (0..6).filter(|d| set >> d & 1 == 1) {
            // Its labels can be read, so that it is not given up.
            let range = LABEL_START_SIZE..devices[0].size() - (1 << 20);
            devices[d].inject(match lie {
                true => Fault::Corrupt { range },
                false => Fault::Error { op: Op::Read, range },
            });
        }
        let dead = |side: u32| (set >> (3 * side) & 7).count_ones() > 1;
        let (ok, _) = read(&tree, offset, &block, 1);
        assert_eq!(ok, !(dead(0) && dead(1)), "without {set:b}, lie: {lie}");
        for (d, sum) in sums(&tree).into_iter().enumerate() {
            assert!(!ok || sum == 0 || lie && set >> d & 1 == 1, "device {d} without {set:b}");
        }
        if !ok && !lie {
            let mut attempts =
                tree.attempts(VdevId(0), offset, Psize(block.len() as u64), Txg(1), &READ).unwrap();
            assert!(attempts.next().is_none());
            assert_eq!(attempts.failure().unread, set.count_ones());
        }
    }
    let (tree, _) = open(&root(vec![spec]), 6);
    // Five sectors, three of parity, no padding needed. Refused where no sector begins.
    let asize = tree.psize_to_asize(VdevId(0), Psize(block.len() as u64), Txg(1)).unwrap();
    assert_eq!(asize.0, 8 * 4096);
    let astray = tree.attempts(VdevId(0), 512, Psize(4096), Txg(1), &READ).map(drop);
    assert!(matches!(astray, Err(VdevError::Misaligned { .. })));
    // A write must not reach one half of it.
    let written = tree.lay_out(VdevId(0), 0x3000, &device::Block::zeroed(4096), Txg(1)).map(drop);
    assert!(matches!(written, Err(VdevError::RaidzSides { .. })));
}
