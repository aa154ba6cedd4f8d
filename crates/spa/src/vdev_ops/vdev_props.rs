//! Properties of vdevs.
//!
//! # On disk
//! They are in the ZAP of the vdev under their names: the root's own, that of a top-level vdev, or
//! a leaf's. Numbers are words, strings have their NUL. `allocating` is also in the config, as a
//! vdev that takes no blocks (`non_allocating`).
//!
//! # Absent
//! `failfast` has no effect.
//!
//! # See
//! OpenZFS `vdev_prop_set`, `vdev_props_set_sync`, `spa_vdev_noalloc`.

use dmu::Tx;
use dmu::zap::{Add, new_has_room};
use dsl::sync::Event;
use ondisk::{Guid, ObjNum, VdevConfig, VdevId};

use crate::pool_core::PoolCore;
use crate::pool_core::errors::{ShapeError, SyncError};
use crate::vdev_ops::{Vdevs, error_limits};

/// Whether a vdev takes new blocks.
const ALLOCATING: &str = "allocating";

/// The new value of a vdev property (`vdev_prop_t`). The caller has checked name and value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VdevValue {
    /// A number.
    Number(u64),
    /// A string.
    Text(String),
    /// Removes a string: that of a user property.
    Gone,
}

fn zap_of(vdev: &VdevConfig) -> Option<ObjNum> {
    vdev.root_zap.or(vdev.top_zap).or(vdev.leaf_zap)
}

fn set_non_allocating(root: &mut VdevConfig, guid: Guid, passive: bool) {
    for top in root.children.iter_mut().filter(|top| top.guid == guid) {
        top.non_allocating = passive;
    }
}

impl Vdevs {
    /// Sets a property of a vdev (`vdev_prop_set`).
    ///
    /// # Errors
    /// * [`ShapeError::Tree`]: the pool has no such vdev.
    /// * [`ShapeError::Unsupported`]: the vdev has no ZAP, or `allocating` is set of a vdev that is
    ///   not top-level.
    /// * [`ShapeError::NoRoom`]: too little space would be left to allocate from for the pool's
    ///   slop.
    /// * [`ShapeError::NamesCollide`]: the names of too many user properties collide.
    /// * [`ShapeError::Metadata`]: the properties can't be read.
    /// * [`ShapeError::Stopped`]: the pool has stopped.
    pub fn set_vdev(&self, guid: Guid, name: &str, value: VdevValue) -> Result<(), ShapeError> {
        let _alone = self.core.shape.lock();
        let config = self.core.synced.read().config.clone();
        let root = config.root();
        let vdev = root.find(guid).ok_or(vdev::VdevError::NoSuchGuid { guid })?;
        let zap =
            zap_of(vdev).ok_or(ShapeError::Unsupported { what: "a property of a vdev without a ZAP" })?;
        let allocating = match (name, &value) {
            (ALLOCATING, VdevValue::Number(n)) => {
                let top = root.children.iter().find(|top| top.guid == guid);
                let top =
                    top.ok_or(ShapeError::Unsupported { what: "'allocating' of what is no top-level vdev" })?;
                let id = VdevId(top.id as u32);
                if *n == 0 && !self.can_do_without(id) {
                    return Err(ShapeError::NoRoom);
                }
                Some((id, *n != 0))
            }
            _ => None,
        };
        let value_len = match &value {
            VdevValue::Number(_) => Some(8),
            VdevValue::Text(text) => Some(text.len() + 1),
            VdevValue::Gone => None,
        };
        if let Some(value_len) = value_len {
            check_names(&self.core, Some(zap), &[Add { name: name.as_bytes(), value_len }])?;
        }
        let limits = error_limits::is_limit(name);
        let name = name.to_owned();
        self.core.change_pool(Box::new(move |core, tx| {
            let txg = tx.txg();
            if let Some((id, on)) = allocating {
                core.allocator.set_allocating(id, on);
                core.edit_config(|config| {
                    let root = config.root_mut();
                    set_non_allocating(root, guid, !on);
                });
            }
            let set = store(core, tx, zap, guid, &name, &value);
            set.map(|event| vec![event]).map_err(|source| SyncError::Metadata { txg, source })
        }))?;
        if limits {
            error_limits::load(&self.core);
        }
        Ok(())
    }
}

impl Vdevs {
    /// Whether the rest of the pool has enough space when a vdev takes no new blocks
    /// (`spa_vdev_noalloc`).
    fn can_do_without(&self, id: VdevId) -> bool {
        use pool::alloc::ClassKind;
        let others =
            self.core.allocator.vdevs().into_iter().filter(|top| top.id != id && !top.non_allocating);
        let normal = others.filter(|top| top.class == pool::metaslab::Class::Normal).count() > 0;
        let totals = self.core.allocator.totals().of(ClassKind::Normal);
        normal && totals.space > totals.alloc
    }
}

/// Checks that a table of properties has space for these, since a sync can't refuse them. No table
/// is one that is going to be created.
pub(crate) fn check_names(
    core: &PoolCore,
    table: Option<ObjNum>,
    adds: &[Add<'_>],
) -> Result<(), ShapeError> {
    let fits = match table {
        Some(table) => core.check_dsl.mos().zap(table)?.has_room(adds).map_err(pool::Error::from)?,
        None => new_has_room(adds),
    };
    if fits { Ok(()) } else { Err(ShapeError::NamesCollide) }
}

fn store(
    core: &PoolCore,
    tx: &Tx,
    zap: ObjNum,
    guid: Guid,
    name: &str,
    value: &VdevValue,
) -> pool::Result<Event> {
    let shown = match value {
        VdevValue::Number(n) => {
            core.sync_mos.set_word(tx, zap, name, *n)?;
            (*n as i64).to_string()
        }
        VdevValue::Text(text) => {
            core.sync_mos.set_string(tx, zap, name, text)?;
            text.clone()
        }
        VdevValue::Gone => {
            if core.sync_mos.value(zap, name)?.is_some() {
                core.sync_mos.unset(tx, zap, name)?;
            }
            String::new()
        }
    };
    let text = format!("vdev_guid={}: {name}={shown}", guid.0);
    Ok(Event { what: "vdev set", dataset: String::new(), object: 0, text })
}
