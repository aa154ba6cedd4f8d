use device::{Block, Device, Fault, Faulty, Op};
use ondisk::label::LABEL_START_SIZE;
use ondisk::{Guid, Txg, VdevId};

use crate::tests::{WRITE, open, root, top};
use crate::{Tree, VdevAux, VdevConfig, VdevKind, VdevState};

const TOP: VdevId = VdevId(0);
const TXG: Txg = Txg(9);

fn bytes(len: usize, seed: u64) -> Block {
    Block::copy_of(&(0..len).map(|i| (i as u64 * 7 + i as u64 / 512 + seed * 31) as u8).collect::<Vec<_>>())
}

fn turn(tree: &Tree, child: u64, state: VdevState) {
    tree.set_state(Guid(100 + child), state, VdevAux::None).unwrap();
}

/// Blocks one behind the other, all of which the first child has missed.
fn missed(tree: &Tree, sizes: &[usize], asize: impl Fn(usize) -> u64) -> Vec<(u64, Block)> {
    turn(tree, 0, VdevState::Offline);
    let mut at = 8192;
    let blocks = sizes.iter().enumerate().map(|(n, size)| {
        let block = (at, bytes(*size, n as u64));
        at += asize(*size);
        tree.write_block(TOP, block.0, &block.1, TXG, &WRITE).unwrap();
        block
    });
    let blocks = blocks.collect();
    turn(tree, 0, VdevState::Healthy);
    blocks
}

fn writes(tree: &Tree) -> Vec<u64> {
    tree.devices().map(|(guid, _)| tree.stats(guid).unwrap().ops(crate::IoType::Write)).collect()
}

/// Goal: what a device lacks of neighbours is one write, though a raidz leaves sectors between
/// them. No other device is written, and the blocks can then be read from it.
#[test]
fn neighbours_are_one_write() {
    for (children, nparity, sizes) in
        [(3, 1, vec![512 * 3; 40]), (5, 2, vec![512 * 4; 30]), (4, 1, (1..60).map(|n| 512 * n).collect())]
    {
        let spec = VdevConfig { nparity: Some(nparity), ..top(VdevKind::Raidz, children) };
        let spec = root(vec![spec]);
        let (tree, devices) = open(&spec, children);
        let ndata = (children - nparity) as usize;
        let asize = |size: usize| {
            let sectors = size / 512;
            let all = sectors + nparity as usize * sectors.div_ceil(ndata);
            (all.next_multiple_of(nparity as usize + 1) * 512) as u64
        };
        let blocks = missed(&tree, &sizes, asize);
        let before = writes(&tree);
        let (mut laid, mut held) = (Vec::new(), 0);
        for (at, block) in blocks.iter().rev() {
            let (more, known) = tree.lay_out_missed(TOP, *at, block, TXG).unwrap();
            assert!(known.behind.is_empty());
            let columns = more.iter().flat_map(|l| &l.pieces).filter(|p| p.column != super::PADDING);
            held += columns.map(|p| p.range.len() as u64).sum::<u64>();
            laid.extend(more);
        }
        assert_eq!(writes(&tree), before);
        let done = tree.refill(&laid, &WRITE);
        let made: Vec<u64> = writes(&tree).iter().zip(before).map(|(now, before)| now - before).collect();
        assert_eq!((made[0], made[1..].iter().sum::<u64>()), (1, 0));
        assert_eq!(done.iter().map(|d| d.repaired).sum::<u64>(), held);
        assert!(done.iter().all(|d| d.refused == 0 && d.behind.is_empty()));
        // Every device is as if it had missed nothing.
        let (whole, others) = open(&spec, children);
        for (at, block) in &blocks {
            whole.write_block(TOP, *at, block, TXG, &WRITE).unwrap();
        }
        for (one, other) in devices.iter().zip(&others) {
            let all = |device: &Faulty| {
                let mut buf = vec![0; 1 << 20];
                device.read_at(&mut buf, LABEL_START_SIZE).unwrap();
                buf
            };
            assert!(all(one) == all(other), "{children} children");
        }
    }
}

/// Goal: a sector that can't be written costs its block, and no other. The result names the device,
/// and the other blocks count as written.
#[test]
fn a_bad_sector_costs_its_block() {
    let (tree, devices) = open(&root(vec![top(VdevKind::Mirror, 2)]), 2);
    let blocks = missed(&tree, &[4096; 8], |size| size as u64);
    let bad = LABEL_START_SIZE + blocks[5].0;
    devices[0].inject(Fault::Error { op: Op::Write, range: bad..bad + 512 });
    let lay = |(at, block): &(u64, Block)| tree.lay_out_missed(TOP, *at, block, TXG).unwrap().0.remove(0);
    let done = tree.refill(&blocks.iter().map(lay).collect::<Vec<_>>(), &WRITE);
    for (n, done) in done.iter().enumerate() {
        assert_eq!((done.repaired, done.refused), if n == 5 { (0, 1) } else { (4096, 0) });
        assert_eq!(done.behind.contains(&Guid(100)), n == 5);
    }
    assert_eq!(tree.stats(Guid(100)).unwrap().scan_repaired.get(), 7 * 4096);
}

/// Goal: a missing device that lacks a block is named, and nothing is laid out for it.
#[test]
fn who_is_not_there_is_named() {
    let (tree, _) = open(&root(vec![top(VdevKind::Mirror, 2)]), 2);
    let blocks = missed(&tree, &[4096], |size| size as u64);
    turn(&tree, 0, VdevState::Offline);
    let (laid, known) = tree.lay_out_missed(TOP, blocks[0].0, &blocks[0].1, TXG).unwrap();
    assert!(laid.iter().all(|l| l.bytes() == 0));
    assert_eq!(known.behind, [Guid(100)]);
}
