//! Blocks that get their place before their txg is written, so that a log can name them instead of
//! copying their data.
//!
//! # Theory
//! The txg is open. Its other blocks get their places when it syncs. It takes this block as it is,
//! if it has not changed by then.
//!
//! These blocks can't be written early, and go into the log:
//!
//! * blocks for the dedup table;
//! * holes, and blocks that fit into their pointer;
//! * blocks without contiguous space.
//!
//! # See
//! OpenZFS `dmu_sync`.

use super::place::put;
use super::prepare::{Env, Prepared};
use crate::{IoFlags, WriteReq, Zio};
use device::Block;
use ondisk::{Blkptr, Txg};
use std::sync::Arc;

/// A block that has its place and is not written yet.
pub struct EarlyWrite {
    pub(super) bp: Blkptr,
    pub(super) bytes: Block,
}

impl std::fmt::Debug for EarlyWrite {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "EarlyWrite({} bytes)", self.bytes.len())
    }
}

impl EarlyWrite {
    /// The pointer to its place.
    pub fn pointer(&self) -> &Blkptr {
        &self.bp
    }
}

impl Zio {
    /// Finds places for blocks of the open txg `txg` (`dmu_sync`). `None` for those that can't be
    /// written early. [`Zio::write_logs`] writes them.
    pub fn place_early(&self, txg: Txg, reqs: Vec<WriteReq>) -> Vec<Option<EarlyWrite>> {
        // A block that is rewritten before its txg syncs takes space each time, which is not
        // reserved.
        if self.suspension().reason().is_some() || self.space().is_scarce() {
            return reqs.iter().map(|_| None).collect();
        }
        let env = Arc::new(Env::of(self, txg, IoFlags::NONE));
        let prepared = self.workers().map(reqs, move |req| match req.policy.dedup {
            true => None,
            false => env.prepare(req).ok(),
        });
        let place = |prepared: Option<Prepared>| {
            let Some(Prepared::Store(sealed)) = prepared else { return None };
            let dvas = self.space().allocate(&sealed.want).ok()?;
            let (mut bp, bytes) = (sealed.pointer, sealed.bytes);
            put(&mut bp, |s| s.dvas = dvas);
            Some(EarlyWrite { bp, bytes })
        };
        prepared.into_iter().map(place).collect()
    }

    /// Gives back the place of a block to which nothing refers.
    pub fn give_back_early(&self, txg: Txg, early: &EarlyWrite) {
        let copies = early.bp.stored().into_iter().flat_map(|s| s.copies());
        copies.for_each(|dva| self.space().unallocate(dva, txg));
    }
}
