//! Blocks that lie whole on each of one or more leaves.

use device::AlignedBuf;
use ondisk::Txg;

use super::Failure;
use crate::read::Copy;
use crate::request::Request;
use crate::tree::{NodeId, Tree, device_offset};

/// The copies of a block on a disk or a mirror.
pub(crate) struct Copies<'t> {
    tree: &'t Tree,
    request: &'t Request,
    offset: u64,
    size: usize,
    /// In the order in which they are read.
    copies: Vec<Copy>,
    asked: usize,
    /// The leaf of the last candidate, with no verdict yet.
    pending: Option<Copy>,
    wrong: Vec<Copy>,
}

impl<'t> Copies<'t> {
    pub(crate) fn new(
        tree: &'t Tree,
        top: NodeId,
        offset: u64,
        size: usize,
        birth: Txg,
        request: &'t Request,
    ) -> Self {
        let copies = tree.copies(top, offset, birth);
        Self { tree, request, offset, size, copies, asked: 0, pending: None, wrong: Vec::new() }
    }

    pub(crate) fn next(&mut self, failure: &mut Failure) -> Option<AlignedBuf> {
        self.wrong.extend(self.pending.take());
        while let Some(copy) = self.copies.get(self.asked).copied() {
            self.asked += 1;
            let mut buf = AlignedBuf::for_overwrite(self.size);
            match self.tree.read_leaf(copy.leaf, self.offset, &mut buf, self.request) {
                Ok(()) => {
                    self.pending = Some(copy);
                    return Some(buf);
                }
                Err(why) => failure.note(why),
            }
        }
        None
    }

    /// The next candidate, from devices that did not miss the block.
    pub(crate) fn fresh(&mut self, failure: &mut Failure) -> Option<AlignedBuf> {
        self.copies.retain(|copy| !copy.stale);
        self.next(failure)
    }

    pub(crate) fn settle(mut self, good: Option<&[u8]>) {
        if good.is_none() {
            self.wrong.extend(self.pending.take());
        }
        // A stale copy was expected to be wrong.
        for copy in self.wrong.iter().filter(|c| !c.stale) {
            let range = (device_offset(self.offset), self.size as u64);
            self.tree.lied(copy.leaf, Some(range));
        }
    }
}
