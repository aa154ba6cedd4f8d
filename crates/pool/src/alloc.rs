//! The allocator: which bytes of which vdev a new block gets, and when freed ones may be used again.
//!
//! # Theory
//! Each top-level vdev's metaslabs form a *group* of one class; the groups of a class take turns (a rotor), each for about
//! a megabyte a data disk, more for a vdev that is emptier than the others. In a group the metaslab with the largest free ranges is used until
//! it is used up to a quarter of their size; in a metaslab blocks lie one after another (first fit), or, when little is left, in the
//! smallest range that fits. Copies of a block go to vdevs that follow one another, or on one vdev to different
//! metaslabs. A class that is full falls back to the normal one.
//!
//! What a group of transactions allocates and frees is gathered by metaslab, and appended to its space map when that group syncs
//! ([`Allocator::sync`]). What was freed is used again only when two more groups have synced ([`Allocator::sync_done`]), so that the
//! last uberblocks stay good; only when the pool is nearly full is it used at once, and when nothing else is left.
//!
//! Of a metaslab only its sums are known, until something is allocated from it: then its map is read, from the object set
//! as it was when the last group had synced, never from the one that is being changed.
//!
//! # Life
//! [`Allocator::new`] with [`Allocator::create`] for each vdev of a new pool, or [`Allocator::open`]; then for each group of
//! transactions `allocate` and `free` at any time, [`Allocator::sync`] once or more, [`Allocator::sync_done`] once.
//!
//! # Locks
//! One mutex over all, which is held for no read or write. Who finds that a metaslab must be loaded lets it go, reads the map, and begins again: one map is
//! read at a time, under a lock of its own, as whoever needs another would mostly need this one. The reads go through an immutable object set, so they wait
//! for nobody who might wait for space.
//!
//! # Errors
//! A metaslab whose map can't be read by a passing error, such as of a device that comes back, is out of use until the next group has synced; one whose map is bad, until the
//! pool is imported again.
//!
//! # Crash
//! Everything here is memory; the maps that a group writes are reached by its uberblock only.
//!
//! # Absent
//! No log space maps are written: those of an imported pool are folded into the metaslabs' own and destroyed. Pools with a device
//! that is being removed are refused: freeing does not heed that.
//!
//! # See
//! OpenZFS `module/zfs/metaslab.c`, `module/zfs/space_map.c`.

mod aside;
mod free_space;
mod group;
mod live;
mod load;
mod open;
mod side;
mod state;
mod sync;
mod totals;

pub use aside::{Aside, Chance, MetaslabFigures};
pub use group::ClassKind;
pub use totals::{ClassTotals, Totals};

use crate::Mos;
use crate::metaslab::TopVdev;
use live::slot;
use observe::Site;
use ondisk::gang::GANG_HEADER_SIZE;
use ondisk::{Dva, Psize, Txg, VdevId};
use parking_lot::{Condvar, Mutex};
use state::State;
use vdev::TreeCell;
use zio::{NoSpace, Space, Want};

/// Where it is waited for.
static STATE: Site = Site::new("allocator");

/// Allocates and frees space of a pool (`spa_normal_class` and the others, with their metaslabs).
pub struct Allocator {
    tree: TreeCell,
    state: observe::Mutex<State>,
    /// Held by who reads a map.
    loading: Mutex<()>,
    /// A metaslab is no longer aside, or nobody starves any more.
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
            state: observe::Mutex::new(&STATE, state),
            loading: Mutex::default(),
            given_back: Condvar::new(),
        }
    }

    /// Adds a vdev, all of whose space is free.
    ///
    /// # Panics
    /// When the vdev is there already.
    pub fn add_vdev(&self, top: &TopVdev) {
        let mut state = self.state.lock();
        state.add_vdev(top);
        state.lend_log_metaslab(top.id);
    }

    /// Adds the metaslabs that a vdev has more than before, all of which are free (`vdev_metaslab_init`).
    ///
    /// # Panics
    /// When there is no such vdev.
    pub fn grow_vdev(&self, top: &TopVdev) {
        self.state.lock().grow_vdev(top);
    }

    /// Stops or allows allocation from a vdev (`metaslab_group_passivate`): while it is removed, or has failed.
    pub fn set_allocating(&self, vdev: VdevId, allocating: bool) {
        self.state.lock().set_allocating(vdev, allocating);
    }

    /// True if nothing lies on a vdev, and nothing that lay there waits for a group.
    pub fn is_unused(&self, vdev: VdevId) -> bool {
        self.state.lock().is_unused(vdev)
    }

    /// Forgets a vdev, if nothing lies on it ([`Allocator::is_unused`]); says whether it did (`vdev_metaslab_fini`). Nothing is allocated from it since
    /// [`Allocator::set_allocating`] said so.
    pub fn remove_vdev(&self, vdev: VdevId) -> bool {
        let mut state = self.state.lock();
        let unused = state.is_unused(vdev);
        if unused {
            state.remove_vdev(vdev);
        }
        unused
    }

    /// Takes a range that an intent log's block has from before the import (`metaslab_claim`): false if it is not free.
    ///
    /// # Errors
    /// As reading the map fails that knows, if that may pass.
    pub fn claim(&self, dva: &Dva, txg: Txg) -> crate::Result<bool> {
        let size = self.size_of(dva);
        self.load_at(dva.vdev, dva.offset.0, size)?;
        Ok(self.state.lock().claim(dva.vdev, dva.offset.0, size, txg))
    }

    /// True if a copy's place is allocated, by what is known: of a metaslab whose map is bad nothing is.
    ///
    /// # Errors
    /// As [`Allocator::claim`].
    pub fn is_allocated(&self, dva: &Dva) -> crate::Result<bool> {
        let size = self.size_of(dva);
        self.load_at(dva.vdev, dva.offset.0, size)?;
        Ok(self.state.lock().is_allocated(dva.vdev, dva.offset.0, size))
    }

    /// The group `txg` has synced, and `mos` with it. What was freed two groups before may be used again
    /// (`metaslab_sync_done`).
    pub fn sync_done(&self, txg: Txg, mos: &Mos) {
        let mut state = self.state.lock();
        state.look_at(mos);
        state.finish(txg);
    }

    /// Tries metaslabs again whose maps could not be read, without waiting for a group to sync: it may be that one that finds no room.
    pub fn retry(&self) {
        self.state.lock().wake();
    }

    /// True if the group `txg` has allocated or freed something that is not on the space maps.
    pub fn is_dirty(&self, txg: Txg) -> bool {
        let state = self.state.lock();
        !state.dirty[slot(txg)].is_empty() || state.side.is_dirty(txg)
    }

    /// True if there are frees that wait for groups to come: until those have synced, `zpool list` shows less room than there is.
    pub fn is_waiting(&self) -> bool {
        !self.state.lock().pending.is_empty()
    }

    /// The vdevs that it gives out.
    pub fn vdevs(&self) -> Vec<TopVdev> {
        self.state.lock().vdevs.values().map(|v| v.top).collect()
    }

    /// Room by class.
    pub fn totals(&self) -> Totals {
        self.state.lock().totals()
    }

    /// Frees that were refused because the range was not allocated; such space is left allocated. Only damaged pools have any.
    pub fn bad_frees(&self) -> u64 {
        self.state.lock().bad_frees
    }

    /// Bytes that a copy takes: a gang block's DVA says what its members take; itself it is a header
    /// (`metaslab_free_dva`).
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
                    None if done.is_err() && state.aside.any() && !state::is_log(want) => None,
                    None => return done,
                    Some(place) => Some(place),
                }
            };
            let Some(place) = place else { return self.allocate_starving(want) };
            // Whether that went well shows when it is tried again.
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
