//! The state of initialize and TRIM in a leaf's ZAP.

use dmu::Tx;
use dsl::sync::Event;
use ondisk::label::LABEL_START_SIZE;
use ondisk::{Guid, ObjNum, mos};

use crate::initialize_trim::{InitializeTrim, Key, Work, WorkKind, WorkStat, WorkState, progress};
use crate::pool_core::errors::SyncError;

impl WorkState {
    fn from_disk(n: u64) -> WorkState {
        match n {
            1 => WorkState::Active,
            2 => WorkState::Canceled,
            3 => WorkState::Suspended,
            4 => WorkState::Complete,
            _ => WorkState::None,
        }
    }
}

/// What a txg writes of a work.
struct Entry {
    key: Key,
    state: WorkState,
    words: Vec<(&'static str, u64)>,
    told: Vec<(&'static str, String)>,
}

/// The names of state, time and offset.
fn names(kind: WorkKind) -> [&'static str; 3] {
    match kind {
        WorkKind::Initialize => [
            mos::VDEV_LEAF_INITIALIZE_STATE,
            mos::VDEV_LEAF_INITIALIZE_ACTION_TIME,
            mos::VDEV_LEAF_INITIALIZE_LAST_OFFSET,
        ],
        WorkKind::Trim => {
            [mos::VDEV_LEAF_TRIM_STATE, mos::VDEV_LEAF_TRIM_ACTION_TIME, mos::VDEV_LEAF_TRIM_LAST_OFFSET]
        }
    }
}

impl Work {
    fn entry(&mut self, key: Key) -> Entry {
        let [state, time, offset] = names(key.1);
        let mut words = Vec::new();
        if self.next > 0 {
            words.push((offset, self.next + LABEL_START_SIZE));
        } else if self.reset {
            words.push((offset, 0));
        }
        if self.stat.action_time > 0 {
            words.push((time, self.stat.action_time));
        }
        if key.1 == WorkKind::Trim {
            if self.rate > 0 || self.reset {
                words.push((mos::VDEV_LEAF_TRIM_RATE, self.rate));
            }
            words.push((mos::VDEV_LEAF_TRIM_PARTIAL, self.partial.into()));
            words.push((mos::VDEV_LEAF_TRIM_SECURE, self.secure.into()));
        }
        words.push((state, self.stat.state as u64));
        (self.dirty, self.reset) = (false, false);
        Entry { key, state: self.stat.state, words, told: std::mem::take(&mut self.told) }
    }
}

impl InitializeTrim {
    /// Writes what has changed of the devices' works since the last txg.
    pub(crate) fn sync_works(&self, tx: &Tx) -> Result<(), SyncError> {
        let entries: Vec<Entry> = {
            let mut all = self.works.all.lock();
            let dirty = all.iter_mut().filter(|(_, work)| work.dirty);
            dirty.map(|(key, work)| work.entry(*key)).collect()
        };
        if entries.is_empty() {
            return Ok(());
        }
        let config = self.core.config_now();
        let root = config.root();
        for entry in entries {
            // The work of a device that has left the pool meanwhile is forgotten with it.
            let Some(zap) = root.find(entry.key.0).and_then(|leaf| leaf.leaf_zap) else { continue };
            let put = self.put_work(tx, zap, &entry);
            put.map_err(|source| SyncError::Metadata { txg: tx.txg(), source })?;
            let events: Vec<Event> = entry
                .told
                .into_iter()
                .map(|(what, text)| Event { what, dataset: String::new(), object: 0, text })
                .collect();
            self.core.log_events(tx, &events)?;
        }
        Ok(())
    }

    fn put_work(&self, tx: &Tx, zap: ObjNum, entry: &Entry) -> pool::Result<()> {
        if entry.state != WorkState::None {
            return entry
                .words
                .iter()
                .try_for_each(|(name, word)| self.core.sync_mos.set_word(tx, zap, name, *word));
        }
        for name in names(entry.key.1) {
            if self.core.sync_mos.value(zap, name)?.is_some() {
                self.core.sync_mos.unset(tx, zap, name)?;
            }
        }
        Ok(())
    }

    /// Reads the works of devices of which nothing is known yet.
    pub(crate) fn load_works(&self) {
        let config = self.core.config_now();
        let root = config.root();
        for leaf in root.leaves() {
            let Some(zap) = leaf.leaf_zap else { continue };
            for kind in [WorkKind::Initialize, WorkKind::Trim] {
                let key = (leaf.guid, kind);
                if self.works.all.lock().contains_key(&key) {
                    continue;
                }
                // A work that can't be read is read at the next import, or when the pool is
                // cleared.
                if let Ok(Some(work)) = self.read_work(zap, key) {
                    self.works.all.lock().insert(key, work);
                }
            }
        }
    }

    fn read_work(&self, zap: ObjNum, (leaf, kind): (Guid, WorkKind)) -> pool::Result<Option<Work>> {
        let read = |name: &str| self.core.mos.u64(zap, name);
        let [state, time, offset] = names(kind);
        let Some(state) = read(state)?.map(WorkState::from_disk) else { return Ok(None) };
        let next = read(offset)?.unwrap_or(0).saturating_sub(LABEL_START_SIZE);
        let mut work = Work { next, ..Work::default() };
        if kind == WorkKind::Trim {
            work.rate = read(mos::VDEV_LEAF_TRIM_RATE)?.unwrap_or(0);
            work.partial = read(mos::VDEV_LEAF_TRIM_PARTIAL)?.unwrap_or(0) != 0;
            work.secure = read(mos::VDEV_LEAF_TRIM_SECURE)?.unwrap_or(0) != 0;
        }
        let tree = self.core.tree();
        let top = tree.top_of(leaf);
        let (done, estimate) = top.map_or((0, 0), |top| progress(&self.core, &tree, top, leaf, next));
        work.stat = WorkStat { state, action_time: read(time)?.unwrap_or(0), done, estimate, errors: 0 };
        Ok(Some(work))
    }
}
