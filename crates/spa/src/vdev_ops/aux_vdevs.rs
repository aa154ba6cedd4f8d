//! Hot spares and cache devices of a writable pool.
//!
//! # Theory
//! They are not part of the tree: lists in the MOS name them. Their labels give only their kind,
//! since pools may share a spare. So adding one writes its labels first and then the list. Removing
//! one writes the list, and leaves the labels.
//!
//! Each is claimed while it is on its list ([`crate::aux_devices`]), except an offline cache
//! device. The contents of a cache device are the cache's ([`arc::CacheDevice`]). The pool works on
//! without a device that can't be claimed, or that fails.
//!
//! # See
//! OpenZFS `spa_validate_aux`, `spa_sync_aux_dev`, `vdev_aux_label_generate`,
//! `vdev_draid_spare_create`.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use arc::CacheDevice;
use device::{Device, Mode};
use dsl::sync::Event;
use ondisk::config::PoolState;
use ondisk::label::LABELS;
use ondisk::version::{SPA_VERSION_L2CACHE, SPA_VERSION_RAIDZ2};
use ondisk::{Ashift, Guid, Nvlist, Value, VdevConfig, VdevKind};
use vdev::label::LabelWriter;
use vdev::{VdevAux, VdevState};

use crate::aux_devices;
use crate::discovery::location::Openings;
use crate::import::aux::{AuxVdev, look};
use crate::new_vdevs::{Claimer, CreateError, NewLeaf, Terms, claim_aux};
use crate::pool_core::errors::ShapeError;
use crate::pool_core::state::{AuxLists, Role};
use crate::vdev_ops::Vdevs;
use crate::vdev_ops::blank_check::{is_spare, says_spare};
use crate::{DeviceLocation, Labels};

/// A claimed device and its use.
type NewAux = (Role, Arc<dyn Device>, VdevConfig);

/// Writes the labels of a spare or cache device, which void its earlier ones.
///
/// They are durable when this returns. At any moment one label at each end is valid, if the device
/// had labels. The front is emptied too: anything that is there later was put there by another
/// program.
fn label(
    device: &dyn Device,
    config: &VdevConfig,
    role: Role,
    version: u64,
) -> Result<(), vdev::label::LabelWriteError> {
    let mut nv = Nvlist::new();
    nv.set("version", Value::Uint64(version));
    nv.set("state", Value::Uint64(role.state() as u64));
    nv.set("guid", Value::Uint64(config.guid.0));
    if role == Role::Cache {
        nv.set("ashift", Value::Uint64(config.ashift.map_or(0, |a| a.0.into())));
    }
    if let Some(path) = &config.path {
        nv.set("path", Value::String(path.clone()));
    }
    let writer = LabelWriter::of(device, config.guid);
    writer.clear_front()?;
    writer.clear_rings()?;
    for parity in 0..2 {
        (parity..LABELS).step_by(2).try_for_each(|l| writer.config(l, &nv))?;
        writer.flush()?;
    }
    Ok(())
}

/// Writes the labels of a hot spare that is no longer in use.
pub(crate) fn label_spare(
    device: &dyn Device,
    config: &VdevConfig,
    version: u64,
) -> Result<(), vdev::label::LabelWriteError> {
    label(device, config, Role::Spare, version)
}

impl Vdevs {
    /// Uses a cache device from now on, if it is large enough.
    fn use_cache_device(&self, config: &VdevConfig, device: Arc<dyn Device>) {
        let ashift = config.ashift.unwrap_or(Ashift(9));
        let pool = self.core.synced.read().config.pool_guid.unwrap_or_default();
        let _ = self.core.cache.add_device(CacheDevice { pool, guid: config.guid, ashift, device });
        self.core.dsl.note_seconds();
    }

    /// Updates which datasets the cache keeps on cache devices, if properties have changed since
    /// the last call.
    pub(crate) fn update_cache_devices(&self) {
        let now = self.core.sync_dsl.heads().generation();
        if self.core.cache.has_devices() && self.cache_as_of.swap(now, Ordering::Relaxed) != now {
            self.core.sync_dsl.note_seconds();
        }
    }

    /// Keeps the claim on a device of one of the lists.
    pub(crate) fn keep_aside(&self, config: &VdevConfig, device: Arc<dyn Device>) {
        let Some(path) = config.path.as_deref() else { return };
        let held = aux_devices::adopt(Path::new(OsStr::from_bytes(path)), device);
        self.aside.lock().insert(config.guid, held);
    }

    /// Uses the cache devices that were found and can be claimed. Others show as not openable.
    pub(crate) fn use_cache_devices(&self) {
        let openings = Openings::new(Mode::Write, self.core.world.layer());
        for one in &mut self.core.aux.write().l2cache {
            let Some(place) = one.place.as_ref().filter(|_| one.state == VdevState::Healthy) else {
                continue;
            };
            match openings.open(place) {
                Ok(device) => self.use_cache_device(&one.config, device),
                Err(_) => (one.state, one.aux) = (VdevState::CantOpen, VdevAux::OpenFailed),
            }
        }
    }

    /// Restores the labels of hot spares whose labels still name a mirror that no longer exists.
    /// Such a spare was in use and unreachable when it was released, or the power failed during its
    /// labelling.
    ///
    /// A program that assembles the pool from labels alone, like `zpool import` of OpenZFS, may
    /// take the spare for a child of that mirror. A spare that is not writable, and a device that
    /// is no longer a spare, stay as they are.
    pub(crate) fn relabel_spares(&self) {
        let config = self.core.config_now();
        let (own, version) = (config.pool_guid, config.version);
        let used = |guid: Guid| config.root().find(guid).is_some();
        let openings = Openings::new(Mode::Write, self.core.world.layer());
        for one in self.core.aux.read().spares.iter().filter(|one| one.state == VdevState::Healthy) {
            let (guid, place) = (one.config.guid, one.place.as_ref());
            let Some(place) = place.filter(|_| !used(guid)) else { continue };
            let peek = Openings::new(Mode::Peek, self.core.world.layer());
            let stale = |device: Arc<dyn Device>| {
                let labels = Labels::read(&*device);
                !says_spare(&labels, guid) && is_spare(&*device, &labels, guid, own)
            };
            if !peek.open(place).is_ok_and(stale) {
                continue;
            }
            let Ok(device) = openings.open(place) else { continue };
            // If this fails, it is a spare all the same.
            let _ = label_spare(&*device, &one.config, version);
        }
    }
}

impl Vdevs {
    /// The hot spares and cache devices as of the last txg.
    pub(crate) fn aux(&self) -> AuxLists {
        self.core.aux.read().clone()
    }

    /// Number of hot spares.
    pub fn spare_count(&self) -> usize {
        self.core.aux.read().spares.len()
    }

    /// Adds hot spares and cache devices (`spa_vdev_add`).
    ///
    /// # Errors
    /// * [`ShapeError::Devices`]: a device cannot be used; see [`CreateError`].
    /// * [`ShapeError::Labels`]: the labels of a device cannot be written.
    /// * [`ShapeError::Metadata`]: the pool metadata cannot be read.
    /// * [`ShapeError::Stopped`]: the pool has stopped.
    ///
    /// The pool is then as it was, though devices may have lost their old labels.
    pub fn add_aux(
        &self,
        spares: &[NewLeaf],
        cache: &[NewLeaf],
        force: bool,
        claimer: &Claimer<'_>,
    ) -> Result<(), ShapeError> {
        self.add_aux_at(usize::MAX, spares, cache, force, claimer)
    }

    /// The same, with the new spares at index `at` of the list, in whose order they are tried.
    ///
    /// # Errors
    /// See [`Vdevs::add_aux`].
    pub fn add_aux_at(
        &self,
        at: usize,
        spares: &[NewLeaf],
        cache: &[NewLeaf],
        force: bool,
        claimer: &Claimer<'_>,
    ) -> Result<(), ShapeError> {
        let _alone = self.core.shape.lock();
        let mut aux = self.aux();
        let txg = self.core.txgs().open();
        let version = self.core.mos.version();
        let common = Terms { first: 0, ashift: None, force, txg, claimer, version };
        let new = self.claim_aux_all(spares, cache, &common, &aux)?;
        let mut to_use = Vec::new();
        let behind = aux.spares.split_off(at.min(aux.spares.len()));
        for (role, device, config) in new {
            label(&*device, &config, role, version)?;
            to_use.push((role, config.clone(), device));
            let path = config.path.as_deref().map(|p| DeviceLocation::whole(std::ffi::OsStr::from_bytes(p)));
            let added = AuxVdev { config, place: path, state: VdevState::Healthy, aux: VdevAux::None };
            aux.list(role).push(added);
        }
        aux.spares.extend(behind);
        self.core.change_pool(Box::new(move |core, tx| core.put_aux(tx, &aux).map(|()| Vec::new())))?;
        for (role, config, device) in to_use {
            self.keep_aside(&config, device.clone());
            if role == Role::Cache {
                self.use_cache_device(&config, device);
            }
        }
        Ok(())
    }

    /// Claims new hot spares and cache devices, unless this pool or another has them.
    fn claim_aux_all(
        &self,
        spares: &[NewLeaf],
        cache: &[NewLeaf],
        common: &Terms<'_>,
        aux: &AuxLists,
    ) -> Result<Vec<NewAux>, ShapeError> {
        let old = |list: &[NewLeaf], since| !list.is_empty() && common.version < since;
        if old(spares, SPA_VERSION_RAIDZ2) || old(cache, SPA_VERSION_L2CACHE) {
            return Err(CreateError::OldPool.into());
        }
        // Another pool of this process may have claimed the spare already.
        let shared = aux_devices::lending(common.claimer, self.core.world.layer());
        let of_spares = Terms { claimer: &shared, ..*common };
        let mut new = Vec::new();
        for (role, leaf) in
            spares.iter().map(|l| (Role::Spare, l)).chain(cache.iter().map(|l| (Role::Cache, l)))
        {
            let path = leaf.path.as_os_str().as_bytes();
            if aux.l2cache.iter().any(|a| a.config.path.as_deref() == Some(path)) {
                // This pool itself has claimed the device already.
                let (path, pool) = (leaf.path.display().to_string(), self.core.dsl.pool_name().to_owned());
                return Err(CreateError::InUse { path, pool, state: role.state() }.into());
            }
            let terms = if role == Role::Spare { &of_spares } else { common };
            let (device, mut config) = claim_aux(leaf, terms, &mut || self.core.world.random())?;
            let old = Labels::read(&*device).newest().map(|l| (l.state, l.guid));
            let mine = |g: Option<Guid>| aux.all().any(|a| Some(a.config.guid) == g);
            match old {
                Some((PoolState::Spare | PoolState::L2cache, guid)) if mine(guid) => {
                    let (path, pool) =
                        (leaf.path.display().to_string(), self.core.dsl.pool_name().to_owned());
                    return Err(CreateError::InUse { path, pool, state: role.state() }.into());
                }
                // It may be the spare of another pool too: all use the same guid for it.
                Some((PoolState::Spare, Some(guid))) if role == Role::Spare => config.guid = guid,
                _ => {}
            }
            new.push((role, device, config));
        }
        for (n, (_, _, config)) in new.iter().enumerate() {
            if new[..n].iter().any(|(_, _, c)| c.path == config.path) {
                let path = String::from_utf8_lossy(config.path.as_deref().unwrap_or_default()).into_owned();
                return Err(CreateError::Twice { path }.into());
            }
        }
        Ok(new)
    }

    /// Whether it is a cache device of the pool.
    pub(crate) fn is_cache(&self, guid: Guid) -> bool {
        self.core.aux.read().l2cache.iter().any(|one| one.config.guid == guid)
    }

    /// Takes a cache device offline until it is brought online, or until the next import if
    /// `temporary`. The caller holds `shape`.
    pub(crate) fn cache_offline(&self, guid: Guid, temporary: bool) -> Result<(), ShapeError> {
        self.edit_cache(guid, |one| {
            one.config.offline = !temporary;
            (one.state, one.aux) = (VdevState::Offline, VdevAux::None);
        })?;
        let _ = self.core.cache.remove_device(guid);
        self.aside.lock().remove(&guid);
        Ok(())
    }

    /// Brings a cache device online that is offline, was absent or failed; gives its state then.
    /// Its contents are found again. The caller holds `shape`.
    pub(crate) fn cache_online(&self, guid: Guid) -> Result<VdevState, ShapeError> {
        let Some(mut one) = self.aux().l2cache.into_iter().find(|one| one.config.guid == guid) else {
            return Err(vdev::VdevError::NoSuchGuid { guid }.into());
        };
        if self.core.cache.device_stats(guid).is_some_and(|stats| !stats.failed) {
            return Ok(VdevState::Healthy);
        }
        let _ = self.core.cache.remove_device(guid);
        self.aside.lock().remove(&guid);
        let recorded =
            || one.config.path.as_deref().map(|p| DeviceLocation::whole(std::ffi::OsStr::from_bytes(p)));
        let place = one.place.clone().or_else(recorded);
        let mut now = (VdevState::CantOpen, VdevAux::OpenFailed);
        let mut device = None;
        if let Some(place) = &place {
            now = look(place, &one.config);
            if now.0 == VdevState::Healthy {
                device = Openings::new(Mode::Write, self.core.world.layer()).open(place).ok();
            }
        }
        if now.0 == VdevState::Healthy && device.is_none() {
            now = (VdevState::CantOpen, VdevAux::OpenFailed);
        }
        one.config.offline = false;
        let config = one.config.clone();
        self.edit_cache(guid, |one| {
            one.config.offline = false;
            (one.state, one.aux, one.place) = (now.0, now.1, place);
        })?;
        if let Some(device) = device {
            self.keep_aside(&config, device.clone());
            self.use_cache_device(&config, device);
        }
        Ok(now.0)
    }

    /// Changes the list entry of a cache device, in a txg.
    fn edit_cache(&self, guid: Guid, with: impl FnOnce(&mut AuxVdev)) -> Result<(), ShapeError> {
        let mut aux = self.aux();
        let one = aux.l2cache.iter_mut().find(|one| one.config.guid == guid);
        with(one.ok_or(vdev::VdevError::NoSuchGuid { guid })?);
        self.core.change_pool(Box::new(move |core, tx| core.put_aux(tx, &aux).map(|()| Vec::new())))?;
        Ok(())
    }

    /// Removes a hot spare or cache device (`spa_vdev_remove`).
    ///
    /// # Errors
    /// * [`ShapeError::Tree`]: the pool has none of this guid.
    /// * [`ShapeError::Busy`]: the spare is in use.
    /// * [`ShapeError::Unsupported`]: it is a distributed spare, or a vdev of the tree.
    /// * [`ShapeError::Stopped`]: the pool has stopped.
    pub fn remove_aux(&self, guid: Guid) -> Result<(), ShapeError> {
        let _alone = self.core.shape.lock();
        let mut aux = self.aux();
        let config = self.core.synced.read().config.clone();
        let in_tree = config.root().find(guid).is_some();
        let found = [Role::Spare, Role::Cache].into_iter().find_map(|role| {
            let at = aux.list(role).iter().position(|a| a.config.guid == guid)?;
            Some((role, at))
        });
        let Some((role, at)) = found else {
            return Err(match in_tree {
                true => ShapeError::Unsupported { what: "removing a vdev that holds data" },
                false => vdev::VdevError::NoSuchGuid { guid }.into(),
            });
        };
        if in_tree {
            return Err(ShapeError::Busy { guid });
        }
        if aux.list(role)[at].config.kind == VdevKind::DraidSpare {
            return Err(ShapeError::Unsupported { what: "removing a distributed spare" });
        }
        let gone = aux.list(role).remove(at).config;
        let was_at = gone.path.clone();
        self.core.change_pool(Box::new(move |core, tx| {
            core.put_aux(tx, &aux)?;
            let path = String::from_utf8_lossy(gone.path.as_deref().unwrap_or(b"-")).into_owned();
            let text = format!("{} vdev ({}) {path}", core.dsl.pool_name(), role.word());
            Ok(vec![Event { what: "vdev remove", dataset: String::new(), object: 0, text }])
        }))?;
        self.works.notice_gone(guid, was_at, "vdev_remove_aux");
        // The cache doesn't know spares.
        let _ = self.core.cache.remove_device(guid);
        self.aside.lock().remove(&guid);
        Ok(())
    }
}
