//! Ranges of a dRAID whose devices have missed something.

use std::sync::Arc;

use device::{Block, Device};
use ondisk::config::DraidShape;
use ondisk::label::LABEL_START_SIZE;
use ondisk::{Guid, Psize, Txg, VdevId};

use super::TXG_UNKNOWN;
use crate::tests::{READ, WRITE, open, root, top};
use crate::{Tree, TxgRanges, VdevConfig, VdevKind};

const TOP: VdevId = VdevId(0);
/// A group: one of four columns in a row, and a half of those of a slice, each 16 MiB high.
const GROUP: u64 = 3 * (16 << 20);
const SIZE: u64 = 3 * (256 << 10);

fn reads(tree: &Tree) -> Vec<u64> {
    tree.devices().map(|(guid, _)| tree.stats(guid).unwrap().ops(crate::IoType::Read)).collect()
}

/// Goal: what a device lacks of a dRAID is read from the others at once, and from no more of them
/// than needed. It is written to that device alone. Groups without a part on it are known to lack
/// nothing.
#[test]
fn a_draid_is_copied() {
    let draid = Some(DraidShape { ndata: 2, nspares: 1, ngroups: 4 });
    let spec = VdevConfig { nparity: Some(1), draid, ..top(VdevKind::Draid, 5) };
    let (tree, devices) = open(&root(vec![spec]), 5);
    let block = |n: u64| {
        let bytes: Vec<u8> = (0..SIZE / 3 * 2).map(|i| (i * 7 + i / 512 + n) as u8).collect();
        Block::copy_of(&bytes)
    };
    // A slice has three rows of four columns.
    let places: Vec<u64> = (0..4).flat_map(|group| [group * GROUP, group * GROUP + SIZE]).collect();
    for (at, n) in places.iter().zip(0..) {
        tree.write_block(TOP, *at, &block(n), Txg(9), &WRITE).unwrap();
    }
    let whole = |device: &dyn Device| {
        let mut all = vec![0; (device.size() - LABEL_START_SIZE) as usize];
        device.read_at(&mut all, LABEL_START_SIZE).unwrap();
        all
    };
    let on = |at: u64| tree.pieces_of(TOP, at, Psize(SIZE / 3 * 2), Txg(9)).unwrap();
    let one = on(0)[1].device;
    let device = &devices[one.0 as usize - 100];
    let before = whole(&**device);
    for piece in places.iter().flat_map(|at| on(*at)).filter(|piece| piece.device == one) {
        let len = (piece.range.end - piece.range.start) as usize;
        device.write_at(&vec![0xa5; len], piece.range.start).unwrap();
    }
    tree.set_dtl(one, TxgRanges::new([(9, 10)])).unwrap();

    let lacks = |at: u64| tree.lacks_of_stretch(TOP, at, SIZE).unwrap();
    let here: Vec<u64> =
        places.iter().copied().filter(|at| on(*at).iter().any(|piece| piece.device == one)).collect();
    assert!(here.len() == 6 && places.iter().all(|at| lacks(*at) == (here.contains(at), vec![])));

    let from = reads(&tree);
    let wanted: Vec<(u64, u64)> = here.iter().map(|at| (*at, SIZE)).collect();
    let request = READ.with_fetched(Arc::new(tree.fetch_stretches(TOP, &wanted, &READ)));
    let fetched: Vec<u64> = reads(&tree).iter().zip(from).map(|(now, before)| now - before).collect();
    // Two ranges of a group touch, on each of two devices.
    assert_eq!((fetched[one.0 as usize - 100], fetched.iter().sum::<u64>()), (0, 6), "{fetched:?}");
    let good: Vec<Block> =
        here.iter().map(|at| tree.read_stretch(TOP, *at, SIZE, &request).unwrap()).collect();
    assert_eq!(reads(&tree).iter().sum::<u64>(), 6, "all of it was fetched");

    let stretches: Vec<(u64, &Block)> = here.iter().copied().zip(&good).collect();
    let done = tree.fill_stretches(TOP, &stretches, &WRITE);
    assert!(done.iter().all(|done| done.as_ref().is_ok_and(|d| d.repaired == SIZE / 3 && d.refused == 0)));
    assert!(whole(&**device) == before);
    // A missing device is named. An offset where no block can be is an error of that range alone.
    tree.set_state(Guid(100), crate::VdevState::Offline, crate::VdevAux::None).unwrap();
    let named = |at: u64| lacks(at).1 == [Guid(100)];
    let has = |at: u64| on(at).iter().all(|piece| piece.device != Guid(100)) && on(at).len() < 3;
    assert!(places.iter().all(|at| named(*at) == has(*at)));
    let done = tree.fill_stretches(TOP, &[(512, &good[0]), (here[1], &good[1])], &WRITE);
    assert!(done[0].is_err() && done[1].is_ok());
    assert!(tree.lay_out(TOP, 512, &good[0], TXG_UNKNOWN).is_err());
}
