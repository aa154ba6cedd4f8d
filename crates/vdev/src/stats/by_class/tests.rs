//! Operations of trees over devices in memory, by class.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock, Weak};

use device::{Block, Clock, Device, Fault, Op};
use observe::lock::Mutex;
use observe::{Counter, HistogramSnapshot};
use ondisk::label::LABEL_START_SIZE;
use ondisk::{Guid, Psize, Txg, VdevId};

use super::{ClassSnapshot, IoType};
use crate::tests::{READ, WRITE, open, root, top};
use crate::{Extent, Pace, Priority, Request, Tree, VdevKind};

const TOP: VdevId = VdevId(0);
const TXG: Txg = Txg(9);
const LEAF: Guid = Guid(100);

fn classes(tree: &Tree) -> Vec<ClassSnapshot> {
    tree.stats(LEAF).unwrap().snapshot().classes
}

fn names(classes: &[ClassSnapshot]) -> Vec<(&'static str, &'static str)> {
    classes.iter().map(|one| (one.class.name(), one.io.name())).collect()
}

fn block(len: usize) -> Block {
    Block::copy_of(&vec![7; len])
}

fn extent(offset: u64, psize: u64) -> Extent {
    Extent { vdev: TOP, offset, psize: Psize(psize), birth: TXG }
}

fn read(tree: &Tree, offset: u64, request: &Request) {
    let mut attempts = tree.attempts(TOP, offset, Psize(4096), TXG, request).unwrap();
    let found = attempts.next().unwrap();
    attempts.settle(Some(&found));
}

/// The values of a histogram, by the largest value of each bucket.
fn values(histogram: &HistogramSnapshot) -> Vec<(u64, u64)> {
    histogram.buckets().collect()
}

/// Goal: an operation counts in its own class and type, and in no other.
#[test]
fn each_class_counts_apart() {
    for class in Priority::ALL {
        let (tree, _devices) = open(&root(vec![top(VdevKind::Mirror, 1)]), 1);
        let request = Request::new(class);
        let mut want = Vec::new();
        if class.has(IoType::Read) {
            read(&tree, 8192, &request);
            want.push((class.name(), "read"));
        }
        if class.has(IoType::Write) {
            tree.write_block(TOP, 8192, &block(4096), TXG, &request).unwrap();
            want.push((class.name(), "write"));
        }
        if class.has(IoType::Trim) {
            tree.discard(LEAF, 8192, 4096).unwrap();
            want.push((class.name(), "trim"));
        }
        let got = classes(&tree);
        assert_eq!(names(&got), want);
        assert!(!want.is_empty());
        for one in got {
            assert_eq!((one.ops, one.bytes, one.active, one.waiting), (1, 4096, 0, 0));
            assert_eq!((values(&one.single), values(&one.joined)), (vec![(8191, 1)], vec![]));
            assert_eq!((values(&one.wait_ns), one.disk_ns.count()), (vec![(0, 1)], 1));
            assert_eq!(one.disk_ns, one.total_ns);
        }
    }
}

/// Goal: what fails has ended and moved no bytes.
#[test]
fn failures_move_nothing() {
    let (tree, devices) = open(&root(vec![top(VdevKind::Mirror, 1)]), 1);
    devices[0].inject(Fault::Error { op: Op::Read, range: 0..u64::MAX });
    assert!(tree.attempts(TOP, 0, Psize(4096), TXG, &READ).unwrap().next().is_none());
    let got = classes(&tree);
    assert_eq!((got[0].bytes, got[0].active, names(&got)), (0, 0, vec![("sync_read", "read")]));
    assert!(got[0].ops > 0);
}

/// Goal: an operation on several blocks has its size among the joined ones.
#[test]
fn joined_operations_are_known() {
    let (tree, _devices) = open(&root(vec![top(VdevKind::Mirror, 1)]), 1);
    let laid: Vec<_> =
        [0, 4096].map(|at| tree.lay_out_padded(TOP, at, &block(4096), TXG).unwrap()).into_iter().collect();
    for run in crate::join(&laid) {
        assert!(tree.issue(&run, &WRITE).is_empty());
    }
    tree.fetch(&[extent(0, 4096), extent(4096, 4096)], false, &Request::new(Priority::Scrub));
    tree.fetch(&[extent(0, 4096)], false, &Request::new(Priority::Scrub));
    let got = classes(&tree);
    assert_eq!(names(&got), [("sync_write", "write"), ("scrub", "read")]);
    assert_eq!((values(&got[0].single), values(&got[0].joined)), (vec![], vec![(16_383, 1)]));
    assert_eq!((values(&got[1].single), values(&got[1].joined)), (vec![(8191, 1)], vec![(16_383, 1)]));
}

/// Goal: a vdev has the operations of all leaves below it, each class apart.
#[test]
fn a_vdev_adds_up_its_leaves() {
    let (tree, _devices) = open(&root(vec![top(VdevKind::Mirror, 3)]), 3);
    tree.write_block(TOP, 0, &block(4096), TXG, &WRITE).unwrap();
    tree.write_block(TOP, 0, &block(4096), TXG, &Request::new(Priority::Log)).unwrap();
    tree.discard(LEAF, 1 << 20, 4096).unwrap();
    let whole = tree.describe().stats;
    let sums: Vec<_> = whole.classes.iter().map(|one| (one.class, one.io, one.ops, one.bytes)).collect();
    assert_eq!(
        sums,
        [
            (Priority::SyncWrite, IoType::Write, 3, 3 * 4096),
            (Priority::Trim, IoType::Trim, 1, 4096),
            (Priority::Log, IoType::Write, 3, 3 * 4096),
        ]
    );
    assert_eq!((whole.write_ops, whole.write_bytes), (6, 6 * 4096));
    assert_eq!((whole.trim_ops, whole.trim_bytes, whole.read_ops), (1, 4096, 0));
    assert_eq!(whole.classes[0].disk_ns.count(), 3);
    assert_eq!((tree.moved().writes, tree.moved().written), (6, 6 * 4096));
}

/// A clock that goes on by a millisecond with each look, and looks at the tree while a request
/// sleeps.
#[derive(Default)]
struct Ticking {
    now: AtomicU64,
    tree: OnceLock<Weak<Tree>>,
    /// Waiting and active operations of the first class.
    seen: Mutex<Vec<(u64, u64)>>,
}

impl Clock for Ticking {
    fn now_ns(&self) -> u64 {
        self.now.fetch_add(1_000_000, Relaxed)
    }

    fn sleep_until(&self, deadline_ns: u64) {
        if let Some(tree) = self.tree.get().and_then(Weak::upgrade) {
            let one = &classes(&tree)[0];
            self.seen.lock().push((one.waiting, one.active));
        }
        self.now.fetch_max(deadline_ns, Relaxed);
    }
}

/// Goal: the time that a background operation waits for its turn is its wait. Its total is wait
/// and disk together. It waits, and is not active, meanwhile. Foreground operations of the same
/// class wait for nothing.
#[test]
fn turns_are_waits() {
    let (tree, devices) = open(&root(vec![top(VdevKind::Mirror, 1)]), 1);
    devices[0].write_at(&[7; 4096], LABEL_START_SIZE).unwrap();
    let (tree, clock, waited_ns) = (Arc::new(tree), Arc::new(Ticking::default()), Arc::new(Counter::new()));
    clock.tree.set(Arc::downgrade(&tree)).unwrap();
    let pace = Pace::new(clock.clone(), waited_ns.clone(), || false);
    let paced = Request::paced(Priority::Scrub, pace);
    let leaf = tree.node(tree.by_guid[&LEAF]);
    // The first is due at once. The second waits for its share beside an operation of the
    // foreground.
    leaf.precedence.run(|| (0..2).for_each(|_| read(&tree, 0, &paced)));
    read(&tree, 0, &Request::new(Priority::Scrub));
    let got = classes(&tree);
    assert_eq!(names(&got), [("scrub", "read")]);
    let one = &got[0];
    assert_eq!((one.ops, one.active, one.waiting), (3, 0, 0));
    let waits = values(&one.wait_ns);
    assert_eq!((waits[0], waits.len(), waits[1].1), ((0, 2), 2, 1), "{waits:?}");
    let bucket = waited_ns.get().next_power_of_two() - 1;
    assert!(waited_ns.get() > 1_000_000 && waits[1].0 == bucket, "{waits:?}");
    assert_eq!((one.disk_ns.count(), one.total_ns.count()), (3, 3));
    assert!(one.total_ns.quantile(1.0) >= bucket && one.disk_ns != one.total_ns);
    let seen = clock.seen.lock();
    assert!(!seen.is_empty() && seen.iter().all(|seen| *seen == (1, 0)), "{seen:?}");
}
