//! Which file a node number means, when a file system was rolled back while the kernel had files of it.
//!
//! # Theory
//! A node is an object number, since no number is given to another file as long as the kernel has its file. A rollback breaks that: numbers of files that are
//! gone are free at once, and a file that was removed is back though another has its number. Who has the earlier file open must never reach the
//! later. So each rollback begins an era, and a node number says, above the object's, after which rollback its number came to mean another file than
//! before: noted for each number that the kernel may have and whose file is gone. Generations tell nothing: those of files that were
//! received are of another pool's groups.
//!
//! Before the first rollback all is one era, 0, and nothing is asked.

use crate::tree::Node;
use ondisk::ObjNum;
use parking_lot::RwLock;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};

/// Where the era begins in a node number. No file system comes to object numbers as large as this.
const ERA_SHIFT: u32 = 40;
/// The last era: numbers above the eras' are [`crate::ctldir`]'s.
const LAST_ERA: u8 = 255;

/// The eras of a mounted file system.
#[derive(Debug, Default)]
pub(super) struct Eras {
    any: AtomicBool,
    table: RwLock<Table>,
}

#[derive(Debug, Default)]
struct Table {
    /// Rollbacks so far.
    last: u8,
    /// The eras of numbers whose files are gone: for whoever has the numbers now, or gets them.
    of: HashMap<u64, u8>,
}

/// The object and the era of a node number.
pub(super) fn parts(node: Node) -> (ObjNum, u64) {
    (ObjNum(node.0 & ((1 << ERA_SHIFT) - 1)), node.0 >> ERA_SHIFT)
}

impl Eras {
    /// Whether there was a rollback.
    pub(super) fn any(&self) -> bool {
        self.any.load(Ordering::Acquire)
    }

    /// Whether there may be one more.
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

    /// There was a rollback: from now on, the numbers of what is `gone` mean other files.
    pub(super) fn begin(&self, gone: &[ObjNum]) {
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

    /// Goal: over two rollbacks no two files of one number have one node number, and a file that stays keeps its own.
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
        eras.begin(&[ObjNum(3)]);
        assert_eq!(nodes(&[2, 3, 4]), [2, era(3) | 3, era(2) | 4]);
        assert_eq!(parts(Node(era(2) | 3)), (ObjNum(3), 2));
    }

    /// Goal: there is an end to eras, before the numbers that are not a head's.
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
