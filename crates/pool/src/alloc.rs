//! The allocator: which bytes of which vdev a new block gets, and when freed bytes may be used
//! again.
//!
//! # Theory
//! The metaslabs of each top-level vdev form a *metaslab group* of one class. The metaslab groups
//! of a class take turns (a rotor). A turn is about a megabyte for each data disk, and more for a
//! vdev that is emptier than the others.
//!
//! In a metaslab group, the metaslab with the largest free ranges is used until these have shrunk
//! to a quarter of their size. In a metaslab, blocks lie one after another (first fit). When little
//! is free, a block gets the smallest range that fits.
//!
//! The copies of a block go to successive vdevs, or on a single vdev to different metaslabs. A
//! class that is full falls back to the normal class.
//!
//! The allocations and frees of a txg are gathered by metaslab. They are appended to its space map
//! when the txg syncs ([`Allocator::sync`]). Freed space is used again only after two more txgs
//! have synced ([`Allocator::sync_done`]), so that the last uberblocks stay valid. Only if the pool
//! is nearly full, and nothing else is left, is it used at once.
//!
//! The allocator knows only the sums of a metaslab until it allocates from it. Then it reads the
//! space map, from the object set that was synced last, and never from the one that is changing.
//!
//! # Life
//! 1. A new pool: [`Allocator::new`], and [`Allocator::create`] for each vdev. An existing pool:
//!    [`Allocator::open`].
//! 2. In each txg: `allocate` and `free` at any time, [`Allocator::sync`] once or more,
//!    [`Allocator::sync_done`] once.
//!
//! # Locks
//! One mutex protects everything, and is not held during reads or writes. A thread that has to load
//! a metaslab releases the mutex, reads the map and starts again.
//!
//! One map is read at a time, under a lock of its own, because another thread would mostly need the
//! same one. These reads use an immutable object set. So they never wait for a thread that may
//! itself wait for space.
//!
//! # Errors
//! A read of a space map may fail for a while, for example until a device is available again. The
//! metaslab is then out of use until the next txg has synced. A metaslab with a bad map is out of
//! use until the next import.
//!
//! # Crash
//! Everything here is in memory. The maps that a txg writes are reached only by its uberblock.
//!
//! # Absent
//! This allocator writes no log space maps. It folds those of an imported pool into the metaslabs'
//! own maps, and destroys them. It refuses pools with a device that is being removed, because its
//! frees do not handle that.
//!
//! # See
//! OpenZFS `module/zfs/metaslab.c`, `module/zfs/space_map.c`.

mod disabled;
mod free_space;
mod group;
mod live;
mod load;
mod open;
mod state;
mod sync;
mod totals;
mod vdev_maps;

pub use disabled::{DisableOutcome, DisabledMetaslab, MetaslabFigures};
pub use group::ClassKind;
pub use live::TXG_DEFER_SIZE;
pub use totals::{ClassTotals, Totals};

use crate::Mos;
use crate::metaslab::TopVdev;
use live::slot;
use observe::Site;
use observe::lock::{Condvar, Mutex};
use ondisk::gang::GANG_HEADER_SIZE;
use ondisk::{Dva, Psize, Txg, VdevId};
use state::State;
use vdev::TreeCell;
use zio::{NoSpace, Space, Want};

/// The site of waits for the allocator's lock.
static STATE: Site = Site::new("allocator");

/// Allocates and frees space of a pool (`spa_normal_class` and the others, with their metaslabs).
pub struct Allocator {
    tree: TreeCell,
    state: observe::Mutex<State>,
    /// Held while a map is read.
    loading: Mutex<()>,
    /// Signals that a metaslab is enabled again, or that no allocation is starving any more.
    given_back: Condvar,
}

impl std::fmt::Debug for Allocator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Allocator").finish_non_exhaustive()
    }
}

impl Allocator {
    /// An allocator without vdevs.
    pub fn new(tree: impl Into<TreeCell>) -> Allocator {
        Allocator::with(tree.into(), State::new())
    }

    fn with(tree: TreeCell, state: State) -> Allocator {
        Allocator {
            tree,
            state: observe::Mutex::of(&STATE, state),
            loading: Mutex::default(),
            given_back: Condvar::new(),
        }
    }

    /// Adds a vdev whose space is all free.
    ///
    /// # Panics
    /// If the vdev was added before.
    pub fn add_vdev(&self, top: &TopVdev) {
        let mut state = self.state.lock();
        state.add_vdev(top);
        state.lend_log_metaslab(top.id);
    }

    /// Adds the new metaslabs of a vdev that has grown, all of them free (`vdev_metaslab_init`).
    ///
    /// # Panics
    /// If there is no such vdev.
    pub fn grow_vdev(&self, top: &TopVdev) {
        self.state.lock().grow_vdev(top);
    }

    /// Stops or allows allocation from a vdev, while it is removed or has failed
    /// (`metaslab_group_passivate`).
    pub fn set_allocating(&self, vdev: VdevId, allocating: bool) {
        self.state.lock().set_allocating(vdev, allocating);
    }

    /// True if a vdev has no allocated space, and no change of it waits for a txg.
    pub fn is_unused(&self, vdev: VdevId) -> bool {
        self.state.lock().is_unused(vdev)
    }

    /// Removes a vdev without allocated space (`vdev_metaslab_fini`). Returns whether it did.
    ///
    /// See [`Allocator::is_unused`]. The caller has stopped allocation with
    /// [`Allocator::set_allocating`].
    pub fn remove_vdev(&self, vdev: VdevId) -> bool {
        let mut state = self.state.lock();
        let unused = state.is_unused(vdev);
        if unused {
            state.remove_vdev(vdev);
        }
        unused
    }

    /// Takes the range of an intent log block from before the import (`metaslab_claim`). False if
    /// it is not free.
    ///
    /// # Errors
    /// * [`crate::Error::Object`]: the space map can't be read now, because devices fail or the
    ///   pool is suspended. After any other failure the metaslab is out of use, and the range
    ///   counts as not free.
    pub fn claim(&self, dva: &Dva, txg: Txg) -> crate::Result<bool> {
        let size = self.size_of(dva);
        self.load_at(dva.vdev, dva.offset.0, size)?;
        Ok(self.state.lock().claim(dva.vdev, dva.offset.0, size, txg))
    }

    /// True if a copy's range is allocated. False also for a metaslab whose map is bad.
    ///
    /// # Errors
    /// * [`crate::Error::Object`]: the space map can't be read now, because devices fail or the
    ///   pool is suspended.
    pub fn is_allocated(&self, dva: &Dva) -> crate::Result<bool> {
        let size = self.size_of(dva);
        self.load_at(dva.vdev, dva.offset.0, size)?;
        Ok(self.state.lock().is_allocated(dva.vdev, dva.offset.0, size))
    }

    /// Ends the txg `txg`, which has synced together with `mos` (`metaslab_sync_done`).
    ///
    /// What was freed two txgs before may be used again.
    pub fn sync_done(&self, txg: Txg, mos: &Mos) {
        let mut state = self.state.lock();
        state.look_at(mos);
        state.finish(txg);
    }

    /// Tries metaslabs again whose maps could not be read, before the next txg has synced. That txg
    /// may be the one that finds no space.
    pub fn retry(&self) {
        self.state.lock().wake();
    }

    /// True if `txg` has allocated or freed something that is not on the space maps.
    pub fn is_dirty(&self, txg: Txg) -> bool {
        let state = self.state.lock();
        !state.dirty[slot(txg)].is_empty() || state.side.is_dirty(txg)
    }

    /// True if frees wait for later txgs. Until these have synced, `zpool list` shows less free
    /// space than there is.
    pub fn is_waiting(&self) -> bool {
        !self.state.lock().pending.is_empty()
    }

    /// The vdevs that space comes from.
    pub fn vdevs(&self) -> Vec<TopVdev> {
        self.state.lock().vdevs.values().map(|v| v.top).collect()
    }

    /// The space by class.
    pub fn totals(&self) -> Totals {
        self.state.lock().totals()
    }

    /// Frees that were refused because the range was not allocated. Such space stays allocated.
    /// Only damaged pools have any.
    pub fn bad_frees(&self) -> u64 {
        self.state.lock().bad_frees
    }

    /// The bytes of a copy (`metaslab_free_dva`).
    ///
    /// The DVA of a gang block gives the size of its members. The gang block itself is a header.
    fn size_of(&self, dva: &Dva) -> u64 {
        if !dva.gang {
            return dva.asize.0;
        }
        let header = Psize(GANG_HEADER_SIZE as u64);
        self.tree.get().psize_to_asize(dva.vdev, header, Txg(0)).map_or(dva.asize.0, |a| a.0)
    }
}

impl Space for Allocator {
    fn allocate(&self, want: &Want) -> Result<[Option<Dva>; 3], NoSpace> {
        let tree = self.tree.get();
        loop {
            let place = {
                let mut state = self.state.lock();
                let done = state.allocate(&tree, want);
                match state.wanted.take() {
                    None if done.is_err() && state.disabled.any() && !state::is_log(want) => None,
                    None => return done,
                    Some(place) => Some(place),
                }
            };
            let Some(place) = place else { return self.allocate_starving(want) };
            // The next attempt shows whether the load succeeded.
            let _ = self.load(place, want.flags);
        }
    }

    fn free(&self, dva: &Dva, born: Txg, txg: Txg) {
        let size = self.size_of(dva);
        self.state.lock().free_copy(&self.tree.get(), (dva.vdev, dva.offset.0, size), born, txg);
    }

    fn unallocate(&self, dva: &Dva, txg: Txg) {
        let size = self.size_of(dva);
        self.state.lock().unallocate(dva.vdev, dva.offset.0, size, txg);
    }

    fn is_scarce(&self) -> bool {
        self.state.lock().is_scarce()
    }
}

#[cfg(test)]
mod tests;
