//! The recording of a workload: an administrator makes, copies, changes and removes volumes.
//!
//! The calls are those of `vos`, in its order.

use std::collections::BTreeMap;
use std::sync::Arc;

use afs::calls::volserver::{self, Call, Reply, attach};
use afs::types::{Date, VolumeId, VolumeInfo};
use afs::volume_name::VolumeName;

use super::record::{FINE, NOBODY, Recorder, new_root};
use super::world::{Fallible, ROOT, Volume};

/// Types of volumes.
const READ_WRITE: i32 = 0;
pub(super) const READ_ONLY: i32 = 1;
const BACKUP: i32 = 2;
/// A partition with so many volumes gets no more.
const MOST_VOLUMES: usize = 9;
/// Syncs that are requested when a restore begins.
const SYNCS: usize = 5;
/// The number of the first volume.
const FIRST: u32 = 536_870_912;

fn named(name: &str, kind: i32) -> String {
    let kind = u32::try_from(kind).ok().and_then(afs::types::VolumeType::from_number);
    let name = VolumeName::new(name.as_bytes()).and_then(|name| name.with_type(kind.expect(FINE)));
    name.expect(FINE).as_str().to_owned()
}

/// What SetInfo sets beside the quota: nothing.
fn quota_alone(quota: i32) -> VolumeInfo {
    let unset = Date(u32::MAX);
    let (day_use, creation_date, update_date) = (-1, unset, unset);
    VolumeInfo { quota, day_use, creation_date, update_date, update_counter: -1, ..VolumeInfo::default() }
}

impl Recorder {
    pub(super) fn change_volumes(&mut self) {
        let is_full = self.world.volumes.len() >= MOST_VOLUMES;
        match self.dice.below(16) {
            0 if !is_full => self.new_volume(),
            1..6 => {
                let kind = if self.dice.below(3) == 0 { BACKUP } else { READ_ONLY };
                self.clone_volume(kind);
            }
            6 => self.remove_volume(),
            7..10 => self.convert(),
            10 if !is_full => self.copy_volume(),
            11..14 => self.release(),
            14 => self.set_quota(),
            _ => self.rename_volume(),
        }
    }

    fn number(&mut self) -> VolumeId {
        self.groups.made += 1;
        VolumeId(FIRST + self.groups.made)
    }

    fn of_kind(&self, is: impl Fn(i32) -> bool) -> Vec<VolumeId> {
        let volumes = self.world.volumes.iter();
        volumes.filter(|(_, volume)| is(volume.kind)).map(|(id, _)| *id).collect()
    }

    /// A call in which the model stays as it is.
    fn plain<T>(&mut self, what: String, call: impl FnOnce(&mut Self) -> T) -> T {
        self.begin();
        let done = call(self);
        self.end(&what, false, NOBODY, &[]);
        done
    }

    /// Ends a transaction that changed its volume. All is on disk then.
    fn end_transaction(&mut self, transaction: i32) {
        self.plain("EndTrans".into(), |all| all.operator.end(transaction).expect(FINE));
        self.note_durable();
    }

    /// Puts the volume of a transaction into service, which makes it exist.
    fn complete(&mut self, transaction: i32, id: VolumeId, volume: Volume) {
        self.begin();
        self.operator.complete(transaction).expect(FINE);
        self.world.volumes.insert(id, Arc::new(volume));
        self.end(&format!("SetFlags of {id}"), false, NOBODY, &[]);
        self.note_durable();
    }

    fn set_info(&mut self, transaction: i32, quota: i32) {
        let info = quota_alone(quota);
        self.operator.call(&Call::SetInfo { transaction, info }).expect(FINE);
    }

    /// Restores a dump, while the pool is synced again and again.
    fn restore(&mut self, transaction: i32, cookie: (&str, i32, VolumeId), dump: &[u8]) -> Fallible<()> {
        (0..SYNCS).for_each(|_| self.sync_beside());
        self.operator.restore(transaction, cookie, dump)
    }

    pub(super) fn new_volume(&mut self) {
        let id = self.number();
        let name = format!("v{id}");
        let made = self.plain(format!("CreateVolume {id}"), |all| all.operator.create(id, &name, READ_WRITE));
        let transaction = made.expect(FINE);
        self.plain(format!("SetInfo of {id}"), |all| all.set_info(transaction, 0));
        let files = BTreeMap::from([(ROOT, Arc::new(new_root()))]);
        self.complete(transaction, id, Volume { name, kind: READ_WRITE, parent: id, quota: 0, files });
        self.end_transaction(transaction);
        self.open_root(id);
    }

    /// Makes a clone of a volume at its site, or replaces it (`vos backup`, `vos release`).
    fn clone_volume(&mut self, kind: i32) {
        let all = self.of_kind(|kind| kind == READ_WRITE);
        // Often one of the same few, so that clones are replaced.
        let few = if self.dice.below(3) == 0 { all.len() } else { 1 };
        let Some(of) = self.pick(&all[..few.min(all.len())]) else { return };
        let has = |clone: &&VolumeId| self.world.volumes.get(clone).is_some_and(|clone| clone.kind == kind);
        let old = self.groups.clones.get(&of).and_then(|clones| clones.iter().find(has)).copied();
        if old.is_none() && self.world.volumes.len() >= MOST_VOLUMES {
            return;
        }
        let name = named(&self.world.volumes[&of].name, kind);
        let transaction = self.operator.begin(of, attach::BUSY).expect(FINE);
        let volume = Volume { name: name.clone(), kind, ..(*self.world.volumes[&of]).clone() };
        if let Some(clone) = old {
            self.begin();
            self.operator.call(&Call::ReClone { transaction, clone }).expect(FINE);
            self.world.volumes.insert(clone, Arc::new(volume));
            self.end(&format!("ReClone {of} as {clone}"), false, NOBODY, &[]);
            self.note_durable();
            self.groups.clones.entry(of).or_default().retain(|other| *other != clone);
            self.groups.clones.entry(of).or_default().push(clone);
            return self.end_transaction(transaction);
        }
        let clone = self.number();
        self.plain(format!("Clone {of} as {clone}"), |all| {
            let name = volserver::Name::new(name.as_str()).expect(FINE);
            let call = Call::Clone { transaction, purge: VolumeId(0), kind, name, volume: clone };
            all.operator.call(&call).expect(FINE);
        });
        self.end_transaction(transaction);
        let transaction = self.operator.begin(clone, attach::OFFLINE).expect(FINE);
        self.complete(transaction, clone, volume);
        self.end_transaction(transaction);
        self.groups.clones.entry(of).or_default().push(clone);
    }

    /// Removes a volume or clone. One read-write volume stays.
    fn remove_volume(&mut self) {
        let writable = self.of_kind(|kind| kind == READ_WRITE);
        let all = self.of_kind(|kind| kind != READ_WRITE || writable.len() > 1);
        if let Some(id) = self.pick(&all) {
            self.remove_one(id);
        }
    }

    fn remove_one(&mut self, id: VolumeId) {
        self.begin();
        if self.dice.below(3) == 0 {
            self.operator.call(&Call::NukeVolume { partition: 0, volume: id }).expect(FINE);
            self.world.volumes.remove(&id);
            self.end(&format!("NukeVolume {id}"), false, NOBODY, &[]);
        } else {
            let transaction = self.operator.begin(id, attach::OFFLINE).expect(FINE);
            self.operator.call(&Call::DeleteVolume { transaction }).expect(FINE);
            self.world.volumes.remove(&id);
            self.end(&format!("DeleteVolume {id}"), false, NOBODY, &[]);
            self.operator.end(transaction).expect(FINE);
        }
        self.note_durable();
        self.groups.clones.values_mut().for_each(|clones| clones.retain(|clone| *clone != id));
        self.groups.copies.remove(&id);
    }

    /// Makes a read-write volume of a read-only one whose read-write volume is gone.
    fn convert(&mut self) {
        let alone = |id: &VolumeId| {
            let parent = self.world.volumes[id].parent;
            // Only the newest clone can become a volume.
            let is_newest = match self.groups.copies.contains_key(id) {
                true => self.groups.clones.get(&parent).is_none_or(Vec::is_empty),
                false => self.groups.clones.get(&parent).is_some_and(|clones| clones.last() == Some(id)),
            };
            !self.world.volumes.contains_key(&parent) && is_newest
        };
        let mut all = self.of_kind(|kind| kind == READ_ONLY);
        all.retain(alone);
        let Some(id) = self.pick(&all) else { return self.move_away() };
        let mut volume = (*self.world.volumes[&id]).clone();
        let parent = volume.parent;
        volume.kind = READ_WRITE;
        volume.name = VolumeName::new(volume.name.as_bytes()).expect(FINE).split().0.to_owned();
        self.begin();
        self.operator.call(&Call::ConvertRoToRw { partition: 0, volume: id }).expect(FINE);
        self.world.volumes.remove(&id);
        self.world.volumes.insert(parent, Arc::new(volume));
        self.end(&format!("ConvertRoToRw {id} to {parent}"), false, NOBODY, &[]);
        self.groups.clones.values_mut().for_each(|clones| clones.retain(|clone| *clone != id));
        self.groups.copies.remove(&id);
    }

    /// Removes a read-write volume whose newest clone can take its place.
    fn move_away(&mut self) {
        let mut all = self.of_kind(|kind| kind == READ_WRITE);
        let is_read_only = |id: &VolumeId| self.world.volumes[id].kind == READ_ONLY;
        let last = |id: &VolumeId| self.groups.clones.get(id).and_then(|clones| clones.last());
        if all.len() > 1 {
            all.retain(|id| last(id).is_some_and(is_read_only));
            if let Some(id) = self.pick(&all) {
                self.remove_one(id);
            }
        }
    }

    /// Restores a dump as a new read-write volume (`vos copy`, `vos restore`).
    fn copy_volume(&mut self) {
        let all = self.of_kind(|_| true);
        let Some(of) = self.pick(&all) else { return };
        let dump = self.operator.dump(of, 0).expect(FINE);
        let model = (*self.world.volumes[&of]).clone();
        let id = self.number();
        let name = format!("v{id}");
        let made = self.plain(format!("CreateVolume {id}"), |all| all.operator.create(id, &name, READ_WRITE));
        let transaction = made.expect(FINE);
        self.plain(format!("Restore {of} as {id}"), |all| {
            all.restore(transaction, (&name, READ_WRITE, id), &dump).expect(FINE);
        });
        self.complete(transaction, id, Volume { name, kind: READ_WRITE, parent: id, ..model });
        self.end_transaction(transaction);
    }

    /// Brings a copy as at another site up to date (`vos release`), or makes it.
    fn release(&mut self) {
        let copies: Vec<(VolumeId, VolumeId, u32)> =
            self.groups.copies.iter().map(|(copy, (of, since))| (*copy, *of, *since)).collect();
        let live = |(_, of, _): &&(VolumeId, VolumeId, u32)| self.world.volumes.contains_key(of);
        let live: Vec<_> = copies.iter().filter(live).copied().collect();
        let now = afs_now();
        if let Some((copy, of, since)) = self.pick(&live) {
            let clones = self.groups.clones.get(&of).cloned().unwrap_or_default();
            if self.dice.below(2) == 0
                && let Some(clone) = clones.last()
            {
                self.forward(*clone, of, copy);
                return;
            }
            let since = if self.dice.below(2) == 0 { 0 } else { since };
            let dump = self.operator.dump(of, since).expect(FINE);
            let model = (*self.world.volumes[&of]).clone();
            let transaction = self.operator.begin(copy, attach::OFFLINE).expect(FINE);
            let name = self.world.volumes[&copy].name.clone();
            if self.dice.below(4) == 0 {
                let half = &dump[..dump.len() * 3 / 4];
                let restore = |all: &mut Self| all.restore(transaction, (&name, READ_ONLY, of), half);
                let broken = self.plain(format!("Restore a part of {of} as {copy}"), restore);
                assert!(broken.is_err(), "a part of a dump is refused");
            }
            self.begin();
            self.restore(transaction, (&name, READ_ONLY, of), &dump).expect(FINE);
            let volume = Volume { name, kind: READ_ONLY, parent: of, ..model };
            self.world.volumes.insert(copy, Arc::new(volume));
            self.end(&format!("Restore {of} since {since} as {copy}"), false, NOBODY, &[]);
            self.note_durable();
            self.end_transaction(transaction);
            self.groups.copies.insert(copy, (of, now));
            return;
        }
        if self.world.volumes.len() >= MOST_VOLUMES {
            return;
        }
        let all = self.of_kind(|kind| kind == READ_WRITE);
        let Some(of) = self.pick(&all) else { return };
        let dump = self.operator.dump(of, 0).expect(FINE);
        let model = (*self.world.volumes[&of]).clone();
        let copy = self.number();
        let name = format!("v{copy}.readonly");
        let made =
            self.plain(format!("CreateVolume {copy}"), |all| all.operator.create(copy, &name, READ_ONLY));
        let transaction = made.expect(FINE);
        self.plain(format!("Restore {of} as {copy}"), |all| {
            all.restore(transaction, (&name, READ_ONLY, of), &dump).expect(FINE);
        });
        self.complete(transaction, copy, Volume { name, kind: READ_ONLY, parent: of, ..model });
        self.end_transaction(transaction);
        self.groups.copies.insert(copy, (of, now));
    }

    /// Brings a copy up to date from a clone, mostly as blocks.
    fn forward(&mut self, clone: VolumeId, of: VolumeId, copy: VolumeId) {
        let model = (*self.world.volumes[&clone]).clone();
        let from = self.operator.begin(clone, attach::BUSY).expect(FINE);
        let transaction = self.operator.begin(copy, attach::OFFLINE).expect(FINE);
        let name = self.world.volumes[&copy].name.clone();
        self.begin();
        (0..SYNCS).for_each(|_| self.sync_beside());
        self.operator.forward([from, transaction], (&name, READ_ONLY, of)).expect(FINE);
        let volume = Volume { name, kind: READ_ONLY, parent: of, ..model };
        self.world.volumes.insert(copy, Arc::new(volume));
        self.end(&format!("Forward {clone} as {copy}"), false, NOBODY, &[]);
        self.note_durable();
        self.operator.end(from).expect(FINE);
        self.end_transaction(transaction);
        // When the clone was made is not known here.
        self.groups.copies.insert(copy, (of, 1));
    }

    fn set_quota(&mut self) {
        let all = self.of_kind(|kind| kind == READ_WRITE);
        let Some(id) = self.pick(&all) else { return };
        let quota = 1_000_000 + self.dice.below(1000) as i32;
        let transaction = self.operator.begin(id, attach::BUSY).expect(FINE);
        self.begin();
        self.set_info(transaction, quota);
        self.world.volume(id).quota = quota;
        self.end(&format!("SetInfo of {id}, quota {quota}"), false, NOBODY, &[]);
        self.end_transaction(transaction);
    }

    fn rename_volume(&mut self) {
        let all = self.of_kind(|kind| kind == READ_WRITE);
        let Some(id) = self.pick(&all) else { return };
        let name = format!("w{}", self.dice.below(1_000_000));
        let transaction = self.operator.begin(id, attach::OFFLINE).expect(FINE);
        let Reply::GetStatus(status) = self.operator.call(&Call::GetStatus { transaction }).expect(FINE)
        else {
            panic!("this is the reply of another call")
        };
        let call = Call::SetIdsTypes {
            transaction,
            name: volserver::Name::new(name.as_str()).expect(FINE),
            kind: READ_WRITE,
            parent: status.parent,
            clone: status.clone,
            backup: status.backup,
        };
        self.begin();
        self.operator.call(&call).expect(FINE);
        self.world.volume(id).name = name;
        self.end(&format!("SetIdsTypes of {id}"), false, NOBODY, &[]);
        self.end_transaction(transaction);
    }
}

/// Seconds since 1970, a little in the past: changes of the same second are in an increment.
fn afs_now() -> u32 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.unwrap_or_default().as_secs() as u32 - 1
}
