//! Blocks on a mirror whose children are raidz.
//!
//! # Theory
//! Each child holds the whole block, in columns of its own. So each child has its own sequence of
//! candidates, all its reconstructions included. The next child begins when the one before has none
//! left. That also makes the error counts right, since a child that was wrong has read all of its
//! columns.
//!
//! Children that are devices are the cheapest and come first. Of the others, one that has lost
//! fewer columns goes first; among equals the offset decides.

use device::AlignedBuf;
use ondisk::Txg;

use super::Failure;
use super::copies::Copies;
use super::stripes::Stripes;
use crate::request::Request;
use crate::tree::{NodeId, Tree};

/// Reads within this many bytes go to the same child (`vdev_mirror_shift`).
const SHIFT: u32 = 21;

/// The candidates of a block on a mirror of raidz.
pub(crate) struct MirrorChildren<'t> {
    /// The children that are devices.
    copies: Copies<'t>,
    /// The others, each with what it could not read.
    stripes: Vec<(Stripes<'t>, Failure)>,
    /// How many of `stripes` have nothing left.
    done: usize,
}

impl<'t> MirrorChildren<'t> {
    pub(crate) fn new(
        tree: &'t Tree,
        mirror: NodeId,
        offset: u64,
        psize: usize,
        birth: Txg,
        request: &'t Request,
    ) -> Self {
        let node = tree.node(mirror);
        let size = psize.next_multiple_of(1 << node.ashift().0);
        let mut children: Vec<_> =
            tree.raidz_children(node).filter(|(id, _)| tree.node(*id).readable()).collect();
        let turn = (offset >> SHIFT) as usize % children.len().max(1);
        children.rotate_left(turn);
        children.sort_by_key(|(id, _)| tree.troubled(*id, birth));
        let stripes = children
            .into_iter()
            .map(|(id, raidz)| {
                let map = raidz.map(offset, size as u64, birth);
                (Stripes::new((tree, request), id, Some(raidz), map, size, birth), Failure::default())
            })
            .collect();
        Self { copies: Copies::new(tree, mirror, offset, psize, birth, request), stripes, done: 0 }
    }

    pub(crate) fn next(&mut self, failure: &mut Failure) -> Option<AlignedBuf> {
        if let Some(buf) = self.copies.next(failure) {
            return Some(buf);
        }
        while let Some((stripes, own)) = self.stripes.get_mut(self.done) {
            // A child sets its count anew when it reads all of its columns. The counts of the
            // children before it must stay.
            failure.unread -= own.unread;
            let buf = stripes.next(own);
            failure.unread += own.unread;
            failure.io = own.io.take().or(failure.io.take());
            if buf.is_some() {
                return buf;
            }
            self.done += 1;
        }
        None
    }

    pub(crate) fn settle(self, good: Option<&[u8]>) {
        self.copies.settle(good);
        // A child that was not read has no column to count errors against.
        for (stripes, _) in self.stripes {
            stripes.settle(good);
        }
    }
}
