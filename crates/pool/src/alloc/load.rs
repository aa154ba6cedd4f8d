//! Loading metaslabs.

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

/// A metaslab's map as of the last group that has synced.
struct Map {
    place: MetaslabKey,
    top: TopVdev,
    object: ObjNum,
    cache: Weak<Cache>,
    root: Blkptr,
}

impl Map {
    /// What is allocated by it.
    fn read(&self, flags: IoFlags) -> Result<RangeSet> {
        // A damaged map is no reason to wait: there may be room elsewhere.
        let options = ReadOptions::demand().with(flags.with(IoFlags::CAN_FAIL));
        let cache = self.cache.upgrade().ok_or(Error::Closed)?;
        let mos = Mos::open(Objset::open(cache, 0, &self.root, options)?)?;
        let none = LogChanges::default();
        Ok(mos.load_metaslab(&self.top, self.place.1.into(), self.object.0, None, &none)?.allocated)
    }
}

/// Whether an error is one of devices, which may be over the next time.
fn may_pass(error: &Error) -> bool {
    use zio::Error::{Io, Suspended};
    matches!(error, Error::Object(dmu::Error::Read(Io { .. } | Suspended { .. })))
}

impl Allocator {
    /// Loads the metaslab that holds a range, also if its map could not be read lately: who asks needs to know.
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

    /// What of a metaslab is allocated by its map as of the last group that has synced, whatever was done since; nothing if there is no such metaslab. Of an
    /// imported pool the maps say all when a group has been written.
    ///
    /// # Errors
    /// As reading the map fails.
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
    /// As reading fails, if that may pass.
    pub(super) fn load(&self, place: MetaslabKey, flags: IoFlags) -> Result<()> {
        let _one = self.loading.lock();
        loop {
            let Some(map) = self.state.lock().look_for_map(place) else { return Ok(()) };
            let read = map.read(flags);
            let mut state = self.state.lock();
            // A group has synced meanwhile: the map may say something else now, and what it was in may be written over.
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
    /// The map to be read; `None` where the metaslab is loaded or out of use now.
    fn look_for_map(&mut self, place: MetaslabKey) -> Option<Map> {
        let ms = self.metaslab(place);
        let (loaded, object) = (ms.free.is_some() || ms.broken || ms.resting, ms.object);
        if loaded {
            return None;
        }
        let Some(object) = object else {
            // It was never used.
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

    /// Enters what was read of a metaslab's map.
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

    /// Metaslabs whose maps could not be read are tried again.
    pub(super) fn wake(&mut self) {
        for place in std::mem::take(&mut self.resting) {
            self.metaslab(place).resting = false;
            self.reweigh(place);
        }
    }
}
