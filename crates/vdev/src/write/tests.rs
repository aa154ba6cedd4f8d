//! What a write leaves behind when devices fail.

use device::{Block, Device, Fault, Op};
use ondisk::label::LABEL_START_SIZE;
use ondisk::{Guid, Psize, Txg, VdevId};

use super::{WriteError, join};
use crate::tests::{READ, WRITE, open, root, top};
use crate::{Tree, TxgRanges, VdevAux, VdevConfig, VdevKind, VdevState};

const TOP: VdevId = VdevId(0);

fn raidz(children: u64, nparity: u64) -> VdevConfig {
    VdevConfig { nparity: Some(nparity), ..top(VdevKind::Raidz, children) }
}

fn bytes(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 7 + i / 512) as u8).collect()
}

fn missed(tree: &Tree) -> Vec<u64> {
    let behind = |guid: &Guid| tree.dtl(*guid).unwrap().contains(9);
    tree.devices().map(|(guid, _)| guid).filter(behind).map(|g| g.0 - 100).collect()
}

fn reads(tree: &Tree, len: usize) -> bool {
    let mut attempts = tree.attempts(TOP, 8192, Psize(len as u64), Txg(9), &READ).unwrap();
    let good = attempts.find(|c| c[..] == bytes(len));
    attempts.settle(good.as_deref());
    good.is_some()
}

/// Goal: as many failing children as the vdev has redundancy cost the block nothing; they have
/// missed the txg and count errors. With one more, the error says where.
#[test]
fn redundancy_is_the_limit() {
    let shapes: [(u64, usize, usize); 4] = [(3, 2, 4096), (4, 1, 16_384), (6, 2, 40_960), (7, 3, 512 * 57)];
    for (children, tolerated, len) in shapes {
        for failing in 0..=tolerated + 1 {
            let spec =
                if children == 3 { top(VdevKind::Mirror, 3) } else { raidz(children, tolerated as u64) };
            let (tree, devices) = open(&root(vec![spec]), children);
            for d in &devices[..failing] {
                d.inject(Fault::Error { op: Op::Write, range: 0..u64::MAX });
            }
            let done = tree.write(TOP, 8192, &bytes(len), Txg(9), &WRITE);
            assert_eq!(missed(&tree), (0..failing as u64).collect::<Vec<_>>());
            let errors = |g| tree.stats(Guid(100 + g)).unwrap().write_errors.get();
            assert!((0..children).all(|n| (errors(n) > 0) == ((n as usize) < failing)));
            if failing <= tolerated {
                assert_eq!(done.unwrap().missed, failing);
                assert!(reads(&tree, len));
            } else {
                assert!(matches!(done, Err(WriteError::Lost { vdev: TOP, source: Some(_), .. })));
            }
        }
    }
}

/// Goal: a missing child counts as failed and has missed the txg, but counts no error. Once it is
/// available again, it is read last.
#[test]
fn absent_children_are_behind() {
    let (tree, _) = open(&root(vec![top(VdevKind::Mirror, 2)]), 2);
    tree.set_state(Guid(100), VdevState::Offline, VdevAux::None).unwrap();
    assert_eq!(tree.write(TOP, 8192, &bytes(4096), Txg(9), &WRITE).unwrap().missed, 1);
    assert_eq!((missed(&tree), tree.stats(Guid(100)).unwrap().write_errors.get()), (vec![0], 0));
    assert_eq!(tree.dtl(Guid(100)).unwrap(), TxgRanges::new([(9, 10)]));
    tree.set_state(Guid(100), VdevState::Healthy, VdevAux::None).unwrap();
    assert_eq!(
        tree.attempts(TOP, 8192, Psize(4096), Txg(9), &READ).unwrap().next().unwrap()[..],
        bytes(4096)
    );
}

/// Goal: neighbours are written at once, and one bad sector costs only the block that it is in.
#[test]
fn runs_join_and_part() {
    let (tree, devices) = open(&root(vec![top(VdevKind::Mirror, 2)]), 2);
    let bad = LABEL_START_SIZE + 8192 + 5 * 4096;
    devices[1].inject(Fault::Error { op: Op::Write, range: bad..bad + 512 });
    let block = Block::copy_of(&bytes(4096));
    let laid: Vec<_> =
        (0..8u64).rev().map(|n| tree.lay_out(TOP, 8192 + n * 4096, &block, Txg(9)).unwrap()).collect();
    let runs = join(&laid);
    assert_eq!(runs.len(), 2);
    let refused: Vec<_> = runs.iter().flat_map(|r| tree.issue(r, &WRITE)).collect();
    let failed: Vec<_> = refused.iter().map(|r| r.block).collect();
    assert_eq!(failed, [2]);
    for (n, laid) in laid.iter().enumerate() {
        let mine = refused.iter().filter(|r| r.block == n);
        assert_eq!(tree.conclude(laid, mine).unwrap().missed, usize::from(n == 2));
    }
    let mut back = vec![0; 4096];
    devices[0].read_at(&mut back, bad).unwrap();
    assert_eq!(back, bytes(4096));
}

/// Goal: a device that can't flush is faulted and has missed the txg. The flush fails only when the
/// pool needs the device.
#[test]
fn failed_flushes_fault() {
    let (tree, devices) = open(&root(vec![top(VdevKind::Mirror, 2)]), 2);
    devices[0].inject(Fault::Error { op: Op::Flush, range: 0..1 });
    tree.flush(Txg(9)).unwrap();
    assert_eq!((tree.state().0, missed(&tree)), (VdevState::Degraded, vec![0]));
    devices[1].inject(Fault::Error { op: Op::Flush, range: 0..1 });
    assert_eq!(tree.flush(Txg(9)).unwrap_err().guid, Guid(101));
}

/// Goal: sizes that are not whole sectors are filled up with zeros, and invalid places are refused.
#[test]
fn odd_sizes_and_places() {
    let mut spec = top(VdevKind::Mirror, 1);
    spec.ashift = Some(ondisk::Ashift(12));
    let (tree, devices) = open(&root(vec![spec]), 1);
    devices[0].write_at(&[0xff; 8192], LABEL_START_SIZE + 8192).unwrap();
    tree.write(TOP, 8192, &bytes(1024), Txg(9), &WRITE).unwrap();
    let mut back = vec![1; 8192];
    devices[0].read_at(&mut back, LABEL_START_SIZE + 8192).unwrap();
    assert!(back[..1024] == bytes(1024) && back[1024..4096].iter().all(|b| *b == 0) && back[4096] == 0xff);
    assert!(matches!(tree.write(TOP, 512, &bytes(512), Txg(9), &WRITE), Err(WriteError::Place(_))));
    assert!(matches!(tree.write(VdevId(3), 0, &bytes(512), Txg(9), &WRITE), Err(WriteError::Place(_))));
}

/// Goal: where a raidz leaves sectors between neighbours, these are still one write of each device.
/// The filling is no part of the block, also where its write fails, and is never written alone.
#[test]
fn skipped_sectors_are_written_over() {
    let (tree, devices) = open(&root(vec![raidz(3, 1)]), 3);
    let block = Block::copy_of(&bytes(512 * 2));
    // Three sectors, and one that is skipped.
    let lay = |n: u64| tree.lay_out_padded(TOP, n * 4 * 512, &block, Txg(9)).unwrap();
    let laid: Vec<_> = (0..9).map(lay).collect();
    let runs = join(&laid);
    assert_eq!((runs.len(), runs.iter().map(|run| run.bytes()).sum::<usize>()), (3, 9 * 4 * 512));
    // Of a raidz2's six sectors two are skipped: one on a device that has nothing else of the
    // block.
    let (wide, _) = open(&root(vec![raidz(5, 2)]), 5);
    let alone = join(&[wide.lay_out_padded(TOP, 0, &block, Txg(9)).unwrap()]);
    assert_eq!((alone.len(), alone.iter().filter(|run| run.is_padding()).count()), (5, 1));
    // The last sector of the second block's, on the device after its last column.
    let skipped = LABEL_START_SIZE + 7 / 3 * 512;
    devices[7 % 3].inject(Fault::Error { op: Op::Write, range: skipped..skipped + 512 });
    let refused: Vec<_> = runs.iter().flat_map(|run| tree.issue(run, &WRITE)).collect();
    assert_eq!(refused.iter().map(|r| r.block).collect::<Vec<_>>(), [1]);
    assert_eq!(tree.conclude(&laid[1], &refused).unwrap().missed, 0);
    assert!(missed(&tree).is_empty());
    for n in 0..9 {
        let mut attempts = tree.attempts(TOP, n * 4 * 512, Psize(1024), Txg(9), &READ).unwrap();
        assert_eq!(attempts.next().unwrap()[..], bytes(1024));
    }
}
