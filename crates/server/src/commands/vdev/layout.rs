//! The devices of a request, as the engine creates them.

use crate::replies::of_shape;
use api::{Error, Layout, Reason, Vdev};
use ondisk::config::{AllocBias, DraidShape};
use spa::create::{NewLeaf, NewVdev, VdevShape, claim_file};
use spa::engine::PoolWriter;
use std::path::PathBuf;

/// A device of a new vdev. A distributed spare can't be one: it is part of a draid already, and can
/// only replace another device ([`stand_in`]).
///
/// # Errors
/// * [`Reason::InvalidConfig`]: it is a distributed spare, or has no path.
pub(crate) fn leaf(name: &str, v: &Vdev) -> Result<NewLeaf, Error> {
    if v.kind == "dspare" {
        return Err(Error::new(name, Reason::InvalidConfig));
    }
    stand_in(name, v)
}

/// A device to attach to another, or to replace it.
///
/// # Errors
/// * [`Reason::InvalidConfig`]: it has no path.
pub(crate) fn stand_in(name: &str, v: &Vdev) -> Result<NewLeaf, Error> {
    let path = v.path.clone().ok_or_else(|| Error::new(name, Reason::InvalidConfig))?;
    Ok(NewLeaf { path: PathBuf::from(path) })
}

/// The top-level vdevs of a layout.
///
/// # Errors
/// * [`Reason::InvalidConfig`]: a device is a distributed spare, or has no path.
pub(crate) fn vdevs(name: &str, layout: &Layout) -> Result<Vec<NewVdev>, Error> {
    let leaf = |v: &Vdev| leaf(name, v);
    let top = |v: &Vdev| -> Result<NewVdev, Error> {
        let children = v.children.len() as u64;
        let shape = match v.kind.as_str() {
            "mirror" => VdevShape::Mirror,
            "raidz" => VdevShape::Raidz(v.nparity),
            "draid" => VdevShape::Draid(v.nparity, draid(v, children)),
            _ => VdevShape::Single,
        };
        let bias = match (v.is_log, v.alloc_bias.as_deref()) {
            (true, _) => Some(AllocBias::Log),
            (false, Some("special")) => Some(AllocBias::Special),
            (false, Some("dedup")) => Some(AllocBias::Dedup),
            (false, _) => None,
        };
        let leaves = if v.children.is_empty() {
            vec![leaf(v)?]
        } else {
            v.children.iter().map(leaf).collect::<Result<_, _>>()?
        };
        Ok(NewVdev { shape, bias, leaves })
    };
    layout.tops.iter().map(top).collect()
}

/// The shape of a draid. It has as many groups as are needed until rows of groups and rows of
/// devices end together.
fn draid(v: &Vdev, children: u64) -> DraidShape {
    let (group, disks) = (v.draid_ndata + v.nparity, children.saturating_sub(v.draid_nspares).max(1));
    let gcd = |mut a: u64, mut b: u64| {
        while b != 0 {
            (a, b) = (b, a % b);
        }
        a
    };
    DraidShape { ndata: v.draid_ndata, nspares: v.draid_nspares, ngroups: disks / gcd(group, disks) }
}

/// Adds the hot spares and cache devices of a layout. `at` is the spares' position in the list of
/// all.
///
/// # Errors
/// * [`Reason::InvalidConfig`]: a device has no path, or is a distributed spare.
/// * All others: see [`of_shape`].
pub(crate) fn add_aux(
    live: &PoolWriter,
    name: &str,
    layout: &Layout,
    at: usize,
    force: bool,
) -> Result<(), Error> {
    if layout.spares.is_empty() && layout.cache.is_empty() {
        return Ok(());
    }
    let leaves = |list: &[Vdev]| list.iter().map(|v| leaf(name, v)).collect::<Result<Vec<NewLeaf>, _>>();
    let (spares, cache) = (leaves(&layout.spares)?, leaves(&layout.cache)?);
    live.vdevs()
        .add_aux_at(at, &spares, &cache, force, &claim_file)
        .map_err(|e| Error::new(name, of_shape(&e)))
}
