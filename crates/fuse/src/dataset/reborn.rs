//! Which file a node number means, when a file system was rolled back while the kernel had files of it.
//!
//! # Theory
//! A node is an object number, since no number is given to another file as long as the kernel has its file. A rollback breaks that: numbers of files that are
//! gone are free at once, and a file that was removed is back though another has its number. Who has the earlier file open must never reach the
//! later. So each rollback begins an era, and a node number says, above the object's, in which era its file came to its number. It came in the era in
//! which it was made, which its generation tells, or by a rollback, which is noted.
//!
//! Before the first rollback all is one era, 0, and nothing is asked.

use crate::tree::Node;
use ondisk::ObjNum;
use parking_lot::RwLock;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use zpl::FileRef;

/// Where the era begins in a node number. No file system comes to object numbers as large as this.
const ERA_SHIFT: u32 = 40;
/// The last era: numbers above the eras' are [`crate::ctldir`]'s.
const LAST_ERA: usize = 255;

/// The eras of a mounted file system.
#[derive(Debug, Default)]
pub(super) struct Eras {
    any: AtomicBool,
    table: RwLock<Table>,
}

#[derive(Debug, Default)]
struct Table {
    /// The last group before each era but the first.
    ends: Vec<u64>,
    /// Files that a rollback brought back to numbers that others had: their generations, and the eras in which that was.
    reborn: HashMap<u64, (u64, usize)>,
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
        self.table.read().ends.len() < LAST_ERA
    }

    /// The node number of a file.
    pub(super) fn node(&self, file: FileRef) -> Node {
        if !self.any() {
            return Node(file.object.0);
        }
        let table = self.table.read();
        let era = match table.reborn.get(&file.object.0) {
            Some((generation, era)) if *generation == file.generation => *era,
            _ => table.ends.partition_point(|end| *end < file.generation),
        };
        Node((era as u64) << ERA_SHIFT | file.object.0)
    }

    /// There was a rollback: `reborn` came to others' numbers, and who is made from now on, after the group `end`, comes to numbers of files that are
    /// gone.
    pub(super) fn begin(&self, end: u64, reborn: &[FileRef]) {
        let mut table = self.table.write();
        table.ends.push(end);
        let era = table.ends.len();
        table.reborn.extend(reborn.iter().map(|file| (file.object.0, (file.generation, era))));
        self.any.store(true, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(object: u64, generation: u64) -> FileRef {
        FileRef { object: ObjNum(object), generation }
    }

    /// Goal: over two rollbacks no two files of one number have one node number, and a file that stays keeps its own.
    #[test]
    fn files_of_one_number_have_different_nodes() {
        let eras = Eras::default();
        let nodes = |files: &[FileRef]| files.iter().map(|f| eras.node(*f).0).collect::<Vec<_>>();
        assert_eq!(nodes(&[file(2, 10), file(3, 30)]), [2, 3]);
        // Back to group 20, in group 40: 3 is the file that was made in 12 again.
        eras.begin(40, &[file(3, 12)]);
        let era = |n: u64| n << ERA_SHIFT;
        assert_eq!(nodes(&[file(2, 10), file(3, 12)]), [2, era(1) | 3]);
        // 4 was made in 35, is gone, and its number is given again.
        assert_eq!(nodes(&[file(4, 35), file(4, 41)]), [4, era(1) | 4]);
        // Back to group 15, in group 60: 4 is one that was made in 5; 3 stays what it is.
        eras.begin(60, &[file(4, 5)]);
        assert_eq!(
            nodes(&[file(3, 12), file(4, 5), file(4, 61), file(3, 62)]),
            [era(1) | 3, era(2) | 4, era(2) | 4, era(2) | 3]
        );
        assert_eq!(parts(Node(era(2) | 3)), (ObjNum(3), 2));
    }
}
