//! Encoding of a config: the list in a label or in the MOS.
//!
//! The fields are in OpenZFS's order. A config that is decoded and encoded again has the same
//! bytes.
//!
//! OpenZFS: `spa_config_generate` in `module/zfs/spa_config.c`, `vdev_config_generate` in
//! `module/zfs/vdev_label.c`.

use super::{PoolConfig, VdevConfig, VdevKind};
use crate::{Guid, Nvlist, ObjNum, Txg, Value};

/// Destination of a config (`vdev_config_flag_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConfigFor {
    /// A device's label, by which discovery finds the pool.
    Label,
    /// The config object of the MOS, which also has the vdevs' ZAPs (`VDEV_CONFIG_MOS`).
    Mos,
}

fn put(nv: &mut Nvlist, name: &str, value: u64) {
    nv.set(name, Value::Uint64(value));
}

fn text(nv: &mut Nvlist, name: &str, value: &Option<Vec<u8>>) {
    if let Some(v) = value {
        nv.set(name, Value::String(v.clone()));
    }
}

fn object(nv: &mut Nvlist, name: &str, value: Option<ObjNum>) {
    if let Some(v) = value {
        put(nv, name, v.0);
    }
}

fn set_flag(nv: &mut Nvlist, name: &str, value: bool) {
    if value {
        put(nv, name, 1);
    }
}

impl VdevConfig {
    /// Encodes this vdev and all vdevs below it (`vdev_config_generate`).
    ///
    /// `top` tells whether this is a top-level vdev.
    pub fn to_nvlist(&self, place: ConfigFor, top: bool) -> Nvlist {
        let mut nv = Nvlist::new();
        nv.set("type", Value::String(self.kind.name().into()));
        put(&mut nv, "id", self.id);
        put(&mut nv, "guid", self.guid.0);
        text(&mut nv, "path", &self.path);
        text(&mut nv, "devid", &self.devid);
        text(&mut nv, "phys_path", &self.phys_path);
        self.put_shape(&mut nv);
        if let Some(whole) = self.whole_disk {
            put(&mut nv, "whole_disk", whole.into());
        }
        set_flag(&mut nv, "not_present", self.not_present);
        set_flag(&mut nv, "is_spare", self.is_spare);
        if top {
            put(&mut nv, "metaslab_array", self.metaslab_array.map_or(0, |o| o.0));
            put(&mut nv, "metaslab_shift", self.metaslab_shift.unwrap_or(0));
            put(&mut nv, "ashift", self.ashift.map_or(0, |a| a.0.into()));
            put(&mut nv, "asize", self.asize.unwrap_or(0));
            put(&mut nv, "is_log", self.is_log.into());
            set_flag(&mut nv, "non_allocating", self.non_allocating);
            set_flag(&mut nv, "removing", self.removing && !self.is_log);
        }
        object(&mut nv, "DTL", self.dtl);
        object(&mut nv, "com.delphix:indirect_object", self.indirect_object);
        object(&mut nv, "com.delphix:indirect_births", self.indirect_births);
        if let Some(prev) = self.prev_indirect_vdev {
            put(&mut nv, "com.delphix:prev_indirect_vdev", prev);
        }
        if let Some(txg) = self.create_txg {
            put(&mut nv, "create_txg", txg.0);
        }
        if let Some(time) = self.expansion_time {
            put(&mut nv, "expansion_time", time);
        }
        if place == ConfigFor::Mos {
            object(&mut nv, "com.delphix:vdev_zap_leaf", self.leaf_zap);
            object(&mut nv, "com.delphix:vdev_zap_top", self.top_zap);
            object(&mut nv, "com.klarasystems:vdev_zap_root", self.root_zap);
        }
        if self.kind.is_leaf() {
            self.put_leaf_state(&mut nv);
        } else {
            let top = self.kind == VdevKind::Root;
            let children = self.children.iter().map(|c| c.to_nvlist(place, top)).collect();
            nv.set("children", Value::ListArray(children));
        }
        nv
    }

    /// Encodes a hot spare or cache device for the MOS (`VDEV_CONFIG_L2CACHE`).
    ///
    /// Such a device has no number among siblings, and no allocatable space.
    pub fn to_aux_nvlist(&self) -> Nvlist {
        let mut nv = Nvlist::new();
        nv.set("type", Value::String(self.kind.name().into()));
        put(&mut nv, "guid", self.guid.0);
        text(&mut nv, "path", &self.path);
        text(&mut nv, "devid", &self.devid);
        text(&mut nv, "phys_path", &self.phys_path);
        self.put_shape(&mut nv);
        if let Some(whole) = self.whole_disk {
            put(&mut nv, "whole_disk", whole.into());
        }
        set_flag(&mut nv, "not_present", self.not_present);
        set_flag(&mut nv, "is_spare", self.is_spare);
        put(&mut nv, "ashift", self.ashift.map_or(0, |a| a.0.into()));
        if let Some(txg) = self.create_txg {
            put(&mut nv, "create_txg", txg.0);
        }
        self.put_leaf_state(&mut nv);
        nv
    }

    fn put_shape(&self, nv: &mut Nvlist) {
        if let Some(p) = self.nparity {
            put(nv, "nparity", p);
        }
        if self.raidz_expanding {
            nv.set("raidz_expanding", Value::Boolean);
        }
        if !self.raidz_expand_txgs.is_empty() {
            let txgs = self.raidz_expand_txgs.iter().map(|t| t.0).collect();
            nv.set("raidz_expand_txgs", Value::Uint64Array(txgs));
        }
        if let Some(d) = self.draid {
            put(nv, "draid_ndata", d.ndata);
            put(nv, "draid_nspares", d.nspares);
            put(nv, "draid_ngroups", d.ngroups);
        }
        if let Some((top, id)) = self.draid_spare {
            put(nv, "top_guid", top.0);
            put(nv, "spareid", id);
        }
    }

    fn put_leaf_state(&self, nv: &mut Nvlist) {
        set_flag(nv, "offline", self.offline);
        if let Some(txg) = self.resilver_txg.filter(|t| t.0 != 0) {
            put(nv, "resilver_txg", txg.0);
        }
        if let Some(txg) = self.rebuild_txg.filter(|t| t.0 != 0) {
            put(nv, "rebuild_txg", txg.0);
        }
        if self.resilver_defer {
            nv.set(super::RESILVER_DEFER, Value::Boolean);
        }
        set_flag(nv, "faulted", self.faulted);
        set_flag(nv, "degraded", self.degraded);
        set_flag(nv, "removed", self.removed);
        set_flag(nv, "unspare", self.unspare);
        set_flag(nv, "is_hole", self.is_hole || self.kind == VdevKind::Hole);
        if let Some(aux) = &self.aux_state {
            nv.set("aux_state", Value::String(aux.clone().into()));
        }
        if let Some(guid) = self.orig_guid {
            put(nv, "orig_guid", guid.0);
        }
    }
}

impl PoolConfig {
    /// Encodes the config object of the MOS as of `txg` (`spa_config_generate` of the root).
    pub fn to_mos(&self, txg: Txg) -> Nvlist {
        let mut nv = self.head(txg);
        if let Some(split) = &self.split {
            nv.set("splitcfg", Value::List(split.clone()));
        }
        nv.set("com.delphix:has_per_vdev_zaps", Value::Boolean);
        self.put_tops(&mut nv);
        if let Some(root) = &self.vdev_tree {
            nv.set("vdev_tree", Value::List(root.to_nvlist(ConfigFor::Mos, false)));
        }
        self.put_split(&mut nv);
        self.put_features(&mut nv);
        nv
    }

    /// Encodes the label of the device `leaf` as of `txg` (`spa_config_generate` of a leaf).
    ///
    /// The label has the device's top-level vdev with all vdevs below it. `None` if the tree has no
    /// such device.
    pub fn to_label(&self, leaf: Guid, txg: Txg) -> Option<Nvlist> {
        let tops = &self.vdev_tree.as_ref()?.children;
        let top = tops.iter().find(|t| t.find(leaf).is_some())?;
        let device = top.find(leaf)?;
        let mut nv = self.head(txg);
        put(&mut nv, "top_guid", top.guid.0);
        put(&mut nv, "guid", leaf.0);
        set_flag(&mut nv, "is_spare", device.is_spare);
        set_flag(&mut nv, "is_log", device.is_log);
        self.put_tops(&mut nv);
        nv.set("vdev_tree", Value::List(top.to_nvlist(ConfigFor::Label, true)));
        self.put_split(&mut nv);
        self.put_features(&mut nv);
        Some(nv)
    }

    /// Puts the guid of the pool from which this pool was split.
    fn put_split(&self, nv: &mut Nvlist) {
        if let Some(guid) = self.split.as_ref().and_then(|split| split.u64("split_guid")) {
            put(nv, "split_guid", guid);
        }
    }

    fn head(&self, txg: Txg) -> Nvlist {
        let mut nv = Nvlist::new();
        put(&mut nv, "version", self.version);
        text(&mut nv, "name", &self.name.clone().map(String::into_bytes));
        put(&mut nv, "state", self.state as u64);
        put(&mut nv, "txg", txg.0);
        put(&mut nv, "pool_guid", self.pool_guid.map_or(0, |g| g.0));
        put(&mut nv, "errata", self.errata);
        text(&mut nv, "comment", &self.comment.clone().map(String::into_bytes));
        text(&mut nv, "compatibility", &self.compatibility.clone().map(String::into_bytes));
        if let Some(hostid) = self.hostid.filter(|h| *h != 0) {
            put(&mut nv, "hostid", hostid);
        }
        text(&mut nv, "hostname", &self.hostname.clone().map(String::into_bytes));
        nv
    }

    fn put_tops(&self, nv: &mut Nvlist) {
        let tops = self.vdev_tree.as_ref().map_or(&[][..], |r| &r.children);
        let holes: Vec<u64> =
            (0..).zip(tops).filter(|(_, t)| t.kind == VdevKind::Hole).map(|(i, _)| i).collect();
        if !holes.is_empty() {
            nv.set("hole_array", Value::Uint64Array(holes));
        }
        put(nv, "vdev_children", tops.len() as u64);
    }

    fn put_features(&self, nv: &mut Nvlist) {
        let mut features = Nvlist::new();
        for guid in &self.features_for_read {
            features.set(guid.as_str(), Value::Boolean);
        }
        nv.set("features_for_read", Value::List(features));
    }
}
