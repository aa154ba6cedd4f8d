//! Which file a node number means after a rollback while the kernel had files.
//!
//! # Theory
//! A node number is an object number, since an object number is not reused while the kernel has the
//! file. A rollback breaks that in two ways:
//!
//! * The numbers of files that it removes are free at once.
//! * A file that was removed exists again, although another one may have got its number.
//!
//! A program that has the earlier file open must never reach the later one. So each rollback begins
//! an era. Above the object number, a node number has the last rollback after which the object
//! number meant another file. The table has an entry for each object number that the kernel may
//! have and of which the file is gone.
//!
//! Generations can't replace eras: those of received files are transaction groups of another pool.
//!
//! Before the first rollback the era is 0, and no table is read.

use crate::tree::Node;
use observe::lock::RwLock;
use ondisk::ObjNum;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};

/// The lowest bit of the era in a node number. No file system reaches such large object numbers.
const ERA_SHIFT: u32 = 40;
/// The last era. Larger node numbers belong to [`crate::ctldir`].
const LAST_ERA: u8 = 255;

/// The eras of a mounted file system.
#[derive(Debug, Default)]
pub(super) struct Eras {
    any: AtomicBool,
    table: RwLock<Table>,
}

#[derive(Debug, Default)]
struct Table {
    /// Number of rollbacks so far.
    last: u8,
    /// The eras of object numbers of removed files. They apply to the files that have the numbers
    /// now or later.
    of: HashMap<u64, u8>,
}

/// The object number and the era of a node number.
pub(super) fn parts(node: Node) -> (ObjNum, u64) {
    (ObjNum(node.0 & ((1 << ERA_SHIFT) - 1)), node.0 >> ERA_SHIFT)
}

impl Eras {
    /// Whether there was a rollback.
    pub(super) fn any(&self) -> bool {
        self.any.load(Ordering::Acquire)
    }

    /// Whether one more rollback is possible.
    pub(super) fn may_begin(&self) -> bool {
        self.table.read().last < LAST_ERA
    }

    /// The node number of an object.
    pub(super) fn node(&self, object: ObjNum) -> Node {
        if !self.any() {
            return Node(object.0);
        }
        let era = self.table.read().of.get(&object.0).copied().unwrap_or(0);
        Node(u64::from(era) << ERA_SHIFT | object.0)
    }

    /// Begins an era after a rollback: from now on the object numbers in `gone` mean other files.
    ///
    /// Without any, no era is needed.
    pub(super) fn begin(&self, gone: &[ObjNum]) {
        if gone.is_empty() {
            return;
        }
        let mut table = self.table.write();
        table.last += 1;
        let era = table.last;
        table.of.extend(gone.iter().map(|object| (object.0, era)));
        self.any.store(true, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: over two rollbacks no two files of one object number have one node number. A file that
    /// stays keeps its node number.
    #[test]
    fn files_of_one_number_have_different_nodes() {
        let eras = Eras::default();
        let nodes = |objects: &[u64]| objects.iter().map(|n| eras.node(ObjNum(*n)).0).collect::<Vec<_>>();
        let era = |n: u64| n << ERA_SHIFT;
        assert_eq!(nodes(&[2, 3, 4]), [2, 3, 4]);
        eras.begin(&[ObjNum(3)]);
        assert_eq!(nodes(&[2, 3, 4]), [2, era(1) | 3, 4]);
        eras.begin(&[ObjNum(4)]);
        assert_eq!(nodes(&[2, 3, 4]), [2, era(1) | 3, era(2) | 4]);
        // Nothing is gone, so no era is used up.
        eras.begin(&[]);
        eras.begin(&[ObjNum(3)]);
        assert_eq!(nodes(&[2, 3, 4]), [2, era(3) | 3, era(2) | 4]);
        assert_eq!(parts(Node(era(2) | 3)), (ObjNum(3), 2));
    }

    /// Goal: the number of eras is limited, so that node numbers stay below those of other trees.
    #[test]
    fn eras_end() {
        let eras = Eras::default();
        for _ in 0..LAST_ERA {
            assert!(eras.may_begin());
            eras.begin(&[ObjNum(1)]);
        }
        assert!(!eras.may_begin());
        assert!(eras.node(ObjNum(1)).0 < 1 << crate::ctldir::SLOT_SHIFT);
    }
}
