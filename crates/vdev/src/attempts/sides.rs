//! Blocks on a mirror whose sides are raidz.
//!
//! # Theory
//! Each side holds the whole block, in columns of its own. So a side is a conversation of its own, all its
//! reconstructions included, and the next one begins when it has nothing left; that also makes the charges
//! right, since a side that was wrong has read all it has. A side that has lost fewer columns goes first, and among
//! equals the place decides. Sides that are devices, if there are any, are the cheapest and go before all others.

use device::AlignedBuf;
use ondisk::Txg;

use super::Failure;
use super::copies::Copies;
use super::stripes::Stripes;
use crate::request::Request;
use crate::tree::{NodeId, Tree};

/// Reads within this many bytes go to the same side (`vdev_mirror_shift`).
const SHIFT: u32 = 21;

/// The candidates of a block on a mirror of raidz.
pub(crate) struct Sides<'t> {
    /// The sides that are devices.
    copies: Copies<'t>,
    /// The others, each with what it could not read.
    stripes: Vec<(Stripes<'t>, Failure)>,
    /// How many of `stripes` have nothing left.
    done: usize,
}

impl<'t> Sides<'t> {
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
        let mut sides: Vec<_> = tree.raidz_sides(node).filter(|(id, _)| tree.node(*id).readable()).collect();
        let turn = (offset >> SHIFT) as usize % sides.len().max(1);
        sides.rotate_left(turn);
        sides.sort_by_key(|(id, _)| tree.troubled(*id, birth));
        let stripes = sides
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
            // A side counts anew when it reads all that it has, which must not forget the sides before it.
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
        // A side that was never asked has no column to charge.
        for (stripes, _) in self.stripes {
            stripes.settle(good);
        }
    }
}
