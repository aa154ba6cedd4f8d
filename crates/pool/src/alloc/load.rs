//! Loading metaslabs (`metaslab_load`).

use super::Allocator;
use super::live::Weight;
use super::state::{MetaslabKey, State};
use crate::metaslab::{LogChanges, TopVdev};
use crate::range::RangeSet;
use crate::{Error, Mos, Result};
use arc::Cache;
use dmu::Objset;
use ondisk::{Blkptr, ObjNum, VdevId};
use std::sync::Weak;
use zio::{IoFlags, ReadOptions};

/// The map of a metaslab as of the last synced txg.
struct Map {
    place: MetaslabKey,
    top: TopVdev,
    object: ObjNum,
    cache: Weak<Cache>,
    root: Blkptr,
}

impl Map {
    /// The ranges that are allocated by the map.
    fn read(&self, flags: IoFlags) -> Result<RangeSet> {
        // A damaged map is no reason to wait, because there may be space elsewhere.
        let options = ReadOptions::demand().with(flags.with(IoFlags::CAN_FAIL));
        let cache = self.cache.upgrade().ok_or(Error::Closed)?;
        let mos = Mos::open(Objset::open(cache, 0, &self.root, options)?)?;
        let none = LogChanges::default();
        Ok(mos.load_metaslab(&self.top, self.place.1.into(), self.object.0, None, &none)?.allocated)
    }
}

/// True for an error of devices, which may not occur the next time.
fn may_pass(error: &Error) -> bool {
    use zio::Error::{Io, Suspended};
    matches!(error, Error::Object(dmu::Error::Read(Io { .. } | Suspended { .. })))
}

impl Allocator {
    /// Loads the metaslab of a range, even if its map could not be read lately, because the caller
    /// needs the answer.
    pub(super) fn load_at(&self, vdev: VdevId, start: u64, size: u64) -> Result<()> {
        let place = {
            let mut state = self.state.lock();
            let Some(place) = state.find(vdev, start, size) else { return Ok(()) };
            if state.resting.remove(&place) {
                state.metaslab(place).resting = false;
                state.reweigh(place);
            }
            place
        };
        self.load(place, IoFlags::NONE)
    }

    /// The ranges of a metaslab that are allocated on disk, by its map as of the last synced txg.
    ///
    /// Later changes are ignored. Empty if there is no such metaslab. In an imported pool, the maps
    /// are complete only after a txg was written.
    ///
    /// # Errors
    /// * The errors of [reading](Error#reading).
    /// * [`Error::Closed`]: the pool was closed.
    pub fn allocated_on_disk(&self, vdev: VdevId, id: u32) -> Result<RangeSet> {
        let _one = self.loading.lock();
        let map = {
            let state = self.state.lock();
            let metaslab = state.vdevs.get(&vdev).and_then(|v| Some((v.top, v.metaslabs.get(id as usize)?)));
            let Some((top, Some(object))) = metaslab.map(|(top, ms)| (top, ms.object)) else {
                return Ok(RangeSet::new());
            };
            let (cache, root) = state.view.as_ref().ok_or(Error::Closed)?;
            Map { place: (vdev, id), top, object, cache: cache.clone(), root: *root }
        };
        map.read(IoFlags::NONE)
    }

    /// Loads a metaslab, or takes it out of use.
    ///
    /// # Errors
    /// * [`Error::Object`]: the map can't be read now, because devices fail or the pool is
    ///   suspended.
    pub(super) fn load(&self, place: MetaslabKey, flags: IoFlags) -> Result<()> {
        let _one = self.loading.lock();
        loop {
            let Some(map) = self.state.lock().look_for_map(place) else { return Ok(()) };
            let read = map.read(flags);
            let mut state = self.state.lock();
            // A txg has synced meanwhile. The map may have changed, and its blocks may be
            // overwritten.
            if state.view.as_ref().is_some_and(|(_, root)| *root != map.root) {
                continue;
            }
            let passing = read.as_ref().err().filter(|e| may_pass(e)).cloned();
            state.put_map(place, read);
            return passing.map_or(Ok(()), Err);
        }
    }
}

impl State {
    /// The map to read. `None` if the metaslab is loaded, or out of use for now.
    fn look_for_map(&mut self, place: MetaslabKey) -> Option<Map> {
        let ms = self.metaslab(place);
        let (loaded, object) = (ms.free.is_some() || ms.broken || ms.resting, ms.object);
        if loaded {
            return None;
        }
        let Some(object) = object else {
            // The metaslab was never used.
            self.put_map(place, Ok(RangeSet::new()));
            return None;
        };
        let top = self.vdevs[&place.0].top;
        match &self.view {
            Some((cache, root)) => Some(Map { place, top, object, cache: cache.clone(), root: *root }),
            None => {
                self.put_map(place, Err(Error::Closed));
                None
            }
        }
    }

    /// Stores the result of reading a metaslab's map.
    fn put_map(&mut self, place: MetaslabKey, read: Result<RangeSet>) {
        let ms = self.metaslab(place);
        match read {
            Ok(allocated) => ms.broken |= !ms.load(allocated),
            Err(e) if may_pass(&e) => {
                ms.resting = true;
                self.resting.insert(place);
            }
            Err(_) => ms.broken = true,
        }
        self.reweigh(place);
    }

    pub(super) fn reweigh(&mut self, place: MetaslabKey) {
        let vdev = self.vdevs.get_mut(&place.0).expect("places are of vdevs that are there");
        let ms = &mut vdev.metaslabs[place.1 as usize];
        if ms.activated.is_none() || ms.reckon_weight() == Weight::NONE {
            self.groups[ms.group.0].reweigh(place.1, ms);
        }
    }

    /// Allows another try for metaslabs whose maps could not be read.
    pub(super) fn wake(&mut self) {
        for place in std::mem::take(&mut self.resting) {
            self.metaslab(place).resting = false;
            self.reweigh(place);
        }
    }
}
