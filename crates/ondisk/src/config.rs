//! The pool's config in labels and in the MOS: a typed view of the nvlist.
//!
//! # Theory
//! A label's config describes the pool by scalars. Of the vdevs it holds one top-level vdev only,
//! to which the device belongs. The config object of the MOS holds the whole tree. Both have the
//! same nvlist shape, and both become a [`PoolConfig`] here.
//!
//! The decoder checks what a vdev must have: its type, its guid, and the children of an interior
//! vdev. Every other field is an option, because labels of spares, of cache devices and of 2005
//! lack many of them. The nvlist stays beside the view, so that a rewritten config keeps all that
//! it held.
//!
//! OpenZFS: `vdev_config_generate` in `module/zfs/vdev_label.c`, `ZPOOL_CONFIG_*` in
//! `include/sys/fs/zfs.h`.

use crate::{Ashift, Corrupt, Guid, Nvlist, ObjNum, Result, Txg, Value};
use strum::{EnumString, FromRepr, IntoStaticStr};

mod encode;
mod rooted;
#[cfg(test)]
mod tests;

pub use encode::ConfigFor;
pub use rooted::RootedConfig;

const WHAT: &str = "pool config";
/// Most children of a vdev, and most top-level vdevs of a pool, that the decoder accepts.
pub const MAX_CHILDREN: usize = 4096;
/// Deepest vdev tree that the decoder accepts: root, top-level, replacing or spare, and space for
/// odd ones.
pub const MAX_DEPTH: u32 = 8;
/// Most children of a draid vdev (`VDEV_DRAID_MAX_CHILDREN`).
const MAX_DRAID_CHILDREN: u64 = 255;
/// Most distributed spares (`VDEV_DRAID_MAX_SPARES`).
const MAX_DRAID_SPARES: u64 = 100;
/// Most vdevs of a tree in all.
const MAX_VDEVS: usize = 65536;

/// State of a pool as labels record it (`pool_state_t`, `POOL_STATE_*`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, FromRepr)]
#[repr(u64)]
pub enum PoolState {
    /// A host uses the pool, or used it until the host stopped.
    Active = 0,
    /// Exported.
    Exported = 1,
    /// Destroyed; `zpool import -D` can import it until its devices are reused.
    Destroyed = 2,
    /// The label of a hot spare, which is in no pool of its own.
    Spare = 3,
    /// The label of a cache device, which is in no pool of its own.
    L2cache = 4,
    /// In memory only.
    Uninitialized = 5,
    /// In memory only.
    Unavail = 6,
    /// In memory only.
    PotentiallyActive = 7,
}

impl PoolState {
    /// Decodes an on-disk number.
    ///
    /// # Errors
    /// * [`Corrupt::Range`]: no state has this number.
    pub fn from_disk(v: u64) -> Result<Self> {
        Self::from_repr(v).ok_or(Corrupt::Range { what: WHAT, field: "state", value: v })
    }
}

/// A pool's config (`spa_config`). Each field names its key in the nvlist.
#[derive(Debug, Clone, PartialEq)]
pub struct PoolConfig {
    /// Pool version: 1 to 28, or 5000 (`version`).
    pub version: u64,
    /// The pool's name; labels of spares and cache devices have none (`name`).
    pub name: Option<String>,
    /// State of the pool (`state`).
    pub state: PoolState,
    /// Transaction group of the last change of the config; 0 for a device that is being added
    /// (`txg`).
    pub txg: Txg,
    /// Guid of the pool (`pool_guid`).
    pub pool_guid: Option<Guid>,
    /// Host that used the pool last (`hostid`).
    pub hostid: Option<u64>,
    /// Name of that host (`hostname`).
    pub hostname: Option<String>,
    /// In a label: the guid of the device's top-level vdev (`top_guid`).
    pub top_guid: Option<Guid>,
    /// In a label: the guid of the device itself (`guid`).
    pub guid: Option<Guid>,
    /// Number of top-level vdevs, holes included (`vdev_children`).
    pub vdev_children: Option<u64>,
    /// Numbers of the top-level vdevs that are holes (`hole_array`).
    pub hole_array: Vec<u64>,
    /// In a label, the tree of the device's top-level vdev; in the MOS, the root (`vdev_tree`).
    pub vdev_tree: Option<VdevConfig>,
    /// In a label, guids of the features that a reader of the MOS must know (`features_for_read`).
    pub features_for_read: Vec<String>,
    /// A known defect of the pool (`errata`, `zpool_errata_t`).
    pub errata: u64,
    /// The user's comment (`comment`).
    pub comment: Option<String>,
    /// Names of the feature sets with which the pool stays compatible (`compatibility`).
    pub compatibility: Option<String>,
    /// In a label: the device is a hot spare (`is_spare`).
    pub is_spare: bool,
    /// The split of this pool from another, as stored (`splitcfg`).
    pub split: Option<Nvlist>,
    /// The whole nvlist from which the config was decoded.
    pub nvlist: Nvlist,
}

/// Kind of a vdev (`vdev_ops_t`, `VDEV_TYPE_*`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EnumString, IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum VdevKind {
    /// The root of the tree.
    Root,
    /// Copies on every child.
    Mirror,
    /// A mirror of a device and its replacement, until the replacement has all data.
    Replacing,
    /// A mirror of a device and the hot spare that replaces it.
    Spare,
    /// Parity over the children.
    Raidz,
    /// Parity over groups of the children, with distributed spare space.
    Draid,
    /// A distributed spare of a draid vdev.
    #[strum(serialize = "dspare")]
    DraidSpare,
    /// A block device.
    Disk,
    /// A file.
    File,
    /// A device that could not be found.
    Missing,
    /// The slot of a removed log vdev.
    Hole,
    /// A removed vdev, whose blocks were copied to others.
    Indirect,
}

impl VdevKind {
    /// The name in configs (`vdev_op_type`).
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// The kind with this name in configs.
    ///
    /// # Errors
    /// * [`Corrupt::Shape`]: no kind has this name.
    pub fn from_name(name: &[u8]) -> Result<Self> {
        let kind = std::str::from_utf8(name).ok().and_then(|name| name.parse().ok());
        kind.ok_or(Corrupt::Shape { what: WHAT, why: "a vdev's type is unknown" })
    }

    /// True if the vdev has no children (`vdev_op_leaf`).
    pub fn is_leaf(self) -> bool {
        use VdevKind::*;
        matches!(self, DraidSpare | Disk | File | Missing | Hole | Indirect)
    }
}

/// Purpose of a vdev's space (`vdev_alloc_bias_t`).
///
/// On disk it is in the vdev's ZAP, not in the config.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AllocBias {
    /// The intent log.
    Log,
    /// Metadata and small blocks.
    Special,
    /// Dedup tables.
    Dedup,
}

/// The shape of a draid vdev (`vdev_draid_config_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DraidShape {
    /// Data devices of a redundancy group (`draid_ndata`).
    pub ndata: u64,
    /// Distributed spares (`draid_nspares`).
    pub nspares: u64,
    /// Redundancy groups of a row of slices (`draid_ngroups`).
    pub ngroups: u64,
}

/// A vdev of the tree. Each field names its key in the nvlist.
#[derive(Debug, Clone, PartialEq)]
pub struct VdevConfig {
    /// Kind of the vdev (`type`).
    pub kind: VdevKind,
    /// Number of the vdev among its siblings (`id`).
    pub id: u64,
    /// Guid of the vdev (`guid`).
    pub guid: Guid,
    /// Path at which the device was last seen, as bytes (`path`).
    pub path: Option<Vec<u8>>,
    /// Identity of the device on the host (`devid`).
    pub devid: Option<Vec<u8>>,
    /// Physical location of the device (`phys_path`).
    pub phys_path: Option<Vec<u8>>,
    /// ZFS partitioned the whole disk for itself (`whole_disk`).
    pub whole_disk: Option<bool>,
    /// log2 of the sector size, on top-level vdevs (`ashift`).
    pub ashift: Option<Ashift>,
    /// Allocatable bytes, on top-level vdevs (`asize`).
    pub asize: Option<u64>,
    /// Object of the array of the metaslabs' space maps (`metaslab_array`).
    pub metaslab_array: Option<ObjNum>,
    /// log2 of the size of a metaslab (`metaslab_shift`).
    pub metaslab_shift: Option<u64>,
    /// Parity devices of raidz and draid (`nparity`).
    pub nparity: Option<u64>,
    /// Shape of a draid vdev (`draid_ndata`, `draid_nspares`, `draid_ngroups`).
    pub draid: Option<DraidShape>,
    /// Of a distributed spare: its draid vdev, and its number there (`top_guid`, `spareid`).
    pub draid_spare: Option<(Guid, u64)>,
    /// A raidz expansion is in progress (`raidz_expanding`).
    pub raidz_expanding: bool,
    /// Transaction groups in which earlier raidz expansions ended (`raidz_expand_txgs`).
    pub raidz_expand_txgs: Vec<Txg>,
    /// The vdev holds the intent log (`is_log`).
    pub is_log: bool,
    /// The vdev is a hot spare (`is_spare`).
    pub is_spare: bool,
    /// The slot of a removed vdev, in old configs (`is_hole`).
    pub is_hole: bool,
    /// Transaction group in which the vdev was added (`create_txg`).
    pub create_txg: Option<Txg>,
    /// Space map of the transaction groups that the vdev misses (`DTL`).
    pub dtl: Option<ObjNum>,
    /// The administrator took the vdev offline (`offline`).
    pub offline: bool,
    /// Faulted (`faulted`).
    pub faulted: bool,
    /// Degraded (`degraded`).
    pub degraded: bool,
    /// Physically removed (`removed`).
    pub removed: bool,
    /// The device could not be opened when the config was written (`not_present`).
    pub not_present: bool,
    /// The vdev takes no new allocations (`non_allocating`).
    pub non_allocating: bool,
    /// A removal of the vdev is in progress (`removing`).
    pub removing: bool,
    /// A resilver of the vdev is in progress since this transaction group (`resilver_txg`).
    pub resilver_txg: Option<Txg>,
    /// The resilver of the vdev begins after the current one (`com.datto:resilver_defer`).
    pub resilver_defer: bool,
    /// A rebuild of the vdev is in progress since this transaction group (`rebuild_txg`).
    pub rebuild_txg: Option<Txg>,
    /// The hot spare is detached as soon as the vdev misses nothing (`unspare`).
    pub unspare: bool,
    /// Reason for which the vdev is faulted or degraded: `external` or `err_exceeded`
    /// (`aux_state`).
    pub aux_state: Option<String>,
    /// Time of the last growth, in seconds since 1970 (`expansion_time`).
    pub expansion_time: Option<u64>,
    /// Guid before a split (`orig_guid`).
    pub orig_guid: Option<Guid>,
    /// Purpose of the vdev's space; only in configs that a running pool prints (`alloc_bias`).
    pub alloc_bias: Option<AllocBias>,
    /// Of a removed vdev: object of the mapping (`com.delphix:indirect_object`).
    pub indirect_object: Option<ObjNum>,
    /// Of a removed vdev: object of the births of the mapping's parts
    /// (`com.delphix:indirect_births`).
    pub indirect_births: Option<ObjNum>,
    /// Of a removed vdev: the vdev removed before it (`com.delphix:prev_indirect_vdev`).
    pub prev_indirect_vdev: Option<u64>,
    /// ZAP of a top-level vdev (`com.delphix:vdev_zap_top`).
    pub top_zap: Option<ObjNum>,
    /// ZAP of a leaf (`com.delphix:vdev_zap_leaf`).
    pub leaf_zap: Option<ObjNum>,
    /// ZAP of the root (`com.klarasystems:vdev_zap_root`).
    pub root_zap: Option<ObjNum>,
    /// Children of the vdev, in order (`children`).
    pub children: Vec<VdevConfig>,
    /// Cache devices, on the root (`l2cache`).
    pub l2cache: Vec<VdevConfig>,
    /// Hot spares, on the root (`spares`).
    pub spares: Vec<VdevConfig>,
}

/// `ZPOOL_CONFIG_RESILVER_DEFER`.
const RESILVER_DEFER: &str = "com.datto:resilver_defer";

fn text(nv: &Nvlist, name: &str) -> Option<String> {
    nv.string(name).map(|s| String::from_utf8_lossy(s).into_owned())
}

impl PoolConfig {
    /// The config of a new pool with this name and version, without vdevs.
    pub fn new(name: &str, version: u64) -> Self {
        Self {
            version,
            name: Some(name.to_owned()),
            state: PoolState::Active,
            txg: Txg(0),
            pool_guid: None,
            hostid: None,
            hostname: None,
            top_guid: None,
            guid: None,
            vdev_children: None,
            hole_array: Vec::new(),
            vdev_tree: None,
            features_for_read: Vec::new(),
            errata: 0,
            comment: None,
            compatibility: None,
            is_spare: false,
            split: None,
            nvlist: Nvlist::new(),
        }
    }

    /// Decodes the config in a label or in the MOS.
    ///
    /// # Errors
    /// * [`Corrupt::Shape`]: the config has no `state` or no `version`.
    /// * [`Corrupt::Shape`]: the config has no `name` or no `pool_guid`, and is not that of a spare
    ///   or cache device.
    /// * [`Corrupt::Range`]: `state` is unknown, or `vdev_children` or `hole_array` counts more
    ///   than [`MAX_CHILDREN`].
    /// * [`Corrupt::Shape`] and [`Corrupt::Range`]: `vdev_tree` has a fault that
    ///   [`VdevConfig::from_nvlist`] lists.
    pub fn from_nvlist(nv: &Nvlist) -> Result<Self> {
        // Labels of cache devices and of unused spares hold only version, state and guid.
        let state = PoolState::from_disk(nv.u64("state").ok_or(missing("the config has no state"))?)?;
        let aux = matches!(state, PoolState::Spare | PoolState::L2cache);
        let version = nv.u64("version").ok_or(missing("the config has no version"))?;
        if !aux && (nv.string("name").is_none() || nv.u64("pool_guid").is_none()) {
            return Err(missing("the config names no pool"));
        }
        let mut budget = MAX_VDEVS;
        let vdev_tree = nv.list("vdev_tree").map(|t| VdevConfig::decode(t, 0, &mut budget)).transpose()?;
        let vdev_children = nv.u64("vdev_children");
        if let Some(value) = vdev_children.filter(|n| *n > MAX_CHILDREN as u64) {
            return Err(Corrupt::Range { what: WHAT, field: "vdev_children", value });
        }
        let hole_array = nv.u64s("hole_array").unwrap_or(&[]).to_vec();
        if hole_array.len() > MAX_CHILDREN {
            return Err(Corrupt::Range { what: WHAT, field: "hole_array", value: hole_array.len() as u64 });
        }
        let features_for_read = nv
            .list("features_for_read")
            .map(|l| l.iter().map(|(n, _)| String::from_utf8_lossy(n).into_owned()).collect())
            .unwrap_or_default();
        Ok(Self {
            version,
            name: text(nv, "name"),
            state,
            txg: Txg(nv.u64("txg").unwrap_or(0)),
            pool_guid: nv.u64("pool_guid").map(Guid),
            hostid: nv.u64("hostid"),
            hostname: text(nv, "hostname"),
            top_guid: nv.u64("top_guid").map(Guid),
            guid: nv.u64("guid").map(Guid),
            vdev_children,
            hole_array,
            vdev_tree,
            features_for_read,
            errata: nv.u64("errata").unwrap_or(0),
            comment: text(nv, "comment"),
            compatibility: text(nv, "compatibility"),
            is_spare: flag(nv, "is_spare"),
            split: nv.list("splitcfg").cloned(),
            nvlist: nv.clone(),
        })
    }
}

fn missing(why: &'static str) -> Corrupt {
    Corrupt::Shape { what: WHAT, why }
}

/// True if the flag is set. Most flags are `uint64`, some are a bare name.
fn flag(nv: &Nvlist, name: &str) -> bool {
    match nv.get(name) {
        Some(Value::Uint64(v)) => *v != 0,
        Some(Value::Boolean) => true,
        Some(Value::BooleanValue(v)) => *v,
        _ => false,
    }
}

impl VdevConfig {
    /// A vdev of this kind and guid, with all other fields empty.
    pub fn new(kind: VdevKind, guid: Guid) -> Self {
        Self {
            kind,
            id: 0,
            guid,
            path: None,
            devid: None,
            phys_path: None,
            whole_disk: None,
            ashift: None,
            asize: None,
            metaslab_array: None,
            metaslab_shift: None,
            nparity: None,
            draid: None,
            draid_spare: None,
            raidz_expanding: false,
            raidz_expand_txgs: Vec::new(),
            is_log: false,
            is_spare: false,
            is_hole: false,
            create_txg: None,
            dtl: None,
            offline: false,
            faulted: false,
            degraded: false,
            removed: false,
            not_present: false,
            non_allocating: false,
            removing: false,
            resilver_txg: None,
            resilver_defer: false,
            rebuild_txg: None,
            unspare: false,
            aux_state: None,
            expansion_time: None,
            orig_guid: None,
            alloc_bias: None,
            indirect_object: None,
            indirect_births: None,
            prev_indirect_vdev: None,
            top_zap: None,
            leaf_zap: None,
            root_zap: None,
            children: Vec::new(),
            l2cache: Vec::new(),
            spares: Vec::new(),
        }
    }

    /// Decodes a vdev's list and all vdevs below it.
    ///
    /// # Errors
    /// * [`Corrupt::Shape`]: the tree is impossible:
    ///   * a vdev has no type, an unknown type, or no guid
    ///   * an interior vdev has no children, or a leaf has children
    ///   * a draid vdev has no parity or no shape, or its shape does not fit its children
    ///   * the tree is deeper than [`MAX_DEPTH`] or has more than 65,536 vdevs
    /// * [`Corrupt::Range`]: a number is impossible:
    ///   * an `ashift` above 16
    ///   * an `nparity` that is not 1 to 3, or not below the number of children
    ///   * more than [`MAX_CHILDREN`] children
    pub fn from_nvlist(nv: &Nvlist) -> Result<Self> {
        Self::decode(nv, 0, &mut { MAX_VDEVS })
    }

    fn decode(nv: &Nvlist, depth: u32, budget: &mut usize) -> Result<Self> {
        if depth > MAX_DEPTH {
            return Err(missing("the vdev tree is too deep"));
        }
        *budget = budget.checked_sub(1).ok_or(missing("the vdev tree is too large"))?;
        let kind = VdevKind::from_name(nv.string("type").ok_or(missing("a vdev has no type"))?)?;
        let children = kids(nv, "children", depth, budget)?;
        if !kind.is_leaf() && kind != VdevKind::Root && children.is_empty() {
            return Err(missing("an interior vdev has no children"));
        }
        if kind.is_leaf() && !children.is_empty() {
            return Err(missing("a leaf vdev has children"));
        }
        let guid = Guid(nv.u64("guid").ok_or(missing("a vdev has no guid"))?);
        let ashift = nv.u64("ashift");
        if let Some(value) = ashift.filter(|a| *a > 16) {
            return Err(Corrupt::Range { what: WHAT, field: "ashift", value });
        }
        let obj = |name: &str| nv.u64(name).filter(|o| *o != 0).map(ObjNum);
        let bytes = |name: &str| nv.string(name).map(<[u8]>::to_vec);
        Ok(Self {
            kind,
            id: nv.u64("id").unwrap_or(0),
            guid,
            path: bytes("path"),
            devid: bytes("devid"),
            phys_path: bytes("phys_path"),
            whole_disk: nv.u64("whole_disk").map(|w| w != 0),
            ashift: ashift.map(|a| Ashift(a as u8)),
            asize: nv.u64("asize"),
            metaslab_array: obj("metaslab_array"),
            metaslab_shift: nv.u64("metaslab_shift"),
            nparity: parity(nv, kind, children.len())?,
            draid: draid(nv, kind, children.len())?,
            draid_spare: draid_spare(nv, kind),
            raidz_expanding: flag(nv, "raidz_expanding"),
            raidz_expand_txgs: nv.u64s("raidz_expand_txgs").unwrap_or(&[]).iter().copied().map(Txg).collect(),
            is_log: flag(nv, "is_log"),
            is_spare: flag(nv, "is_spare"),
            is_hole: flag(nv, "is_hole"),
            create_txg: nv.u64("create_txg").map(Txg),
            dtl: obj("DTL"),
            offline: flag(nv, "offline"),
            faulted: flag(nv, "faulted"),
            degraded: flag(nv, "degraded"),
            removed: flag(nv, "removed"),
            not_present: flag(nv, "not_present"),
            non_allocating: flag(nv, "non_allocating"),
            removing: flag(nv, "removing"),
            resilver_txg: nv.u64("resilver_txg").map(Txg),
            resilver_defer: flag(nv, RESILVER_DEFER),
            rebuild_txg: nv.u64("rebuild_txg").map(Txg),
            unspare: flag(nv, "unspare"),
            aux_state: text(nv, "aux_state"),
            expansion_time: nv.u64("expansion_time"),
            orig_guid: nv.u64("orig_guid").map(Guid),
            alloc_bias: alloc_bias(nv),
            indirect_object: obj("com.delphix:indirect_object"),
            indirect_births: obj("com.delphix:indirect_births"),
            prev_indirect_vdev: nv.u64("com.delphix:prev_indirect_vdev").filter(|v| *v != u64::MAX),
            top_zap: obj("com.delphix:vdev_zap_top"),
            leaf_zap: obj("com.delphix:vdev_zap_leaf"),
            root_zap: obj("com.klarasystems:vdev_zap_root"),
            children,
            l2cache: kids(nv, "l2cache", depth, budget)?,
            spares: kids(nv, "spares", depth, budget)?,
        })
    }

    /// This vdev and all vdevs below it, parents first, without spares and cache devices.
    pub fn walk(&self) -> impl Iterator<Item = &VdevConfig> {
        let mut todo = vec![self];
        std::iter::from_fn(move || {
            let v = todo.pop()?;
            todo.extend(v.children.iter().rev());
            Some(v)
        })
    }

    /// The leaves at or below this vdev.
    pub fn leaves(&self) -> impl Iterator<Item = &VdevConfig> {
        self.walk().filter(|v| v.kind.is_leaf())
    }

    /// The vdev with this guid at or below this one (`vdev_lookup_by_guid`).
    pub fn find(&self, guid: Guid) -> Option<&VdevConfig> {
        self.walk().find(|v| v.guid == guid)
    }
}

fn kids(nv: &Nvlist, name: &str, depth: u32, budget: &mut usize) -> Result<Vec<VdevConfig>> {
    let lists = nv.lists(name).unwrap_or(&[]);
    if lists.len() > MAX_CHILDREN {
        return Err(Corrupt::Range { what: WHAT, field: "children", value: lists.len() as u64 });
    }
    lists.iter().map(|l| VdevConfig::decode(l, depth + 1, budget)).collect()
}

/// Parity of raidz and draid.
///
/// Raidz without a recorded parity has 1: before
/// [`SPA_VERSION_RAIDZ2`](crate::version::SPA_VERSION_RAIDZ2) there was no other.
fn parity(nv: &Nvlist, kind: VdevKind, children: usize) -> Result<Option<u64>> {
    let stored = nv.u64("nparity");
    match (kind, stored) {
        (VdevKind::Raidz, None) => Ok(Some(1)),
        (VdevKind::Draid, None) => Err(missing("a draid vdev has no parity")),
        (VdevKind::Raidz | VdevKind::Draid, Some(p)) if !(1..=3).contains(&p) || p >= children as u64 => {
            Err(Corrupt::Range { what: WHAT, field: "nparity", value: p })
        }
        (VdevKind::Raidz | VdevKind::Draid, p) => Ok(p),
        _ => Ok(None),
    }
}

/// The class of blocks that a top-level vdev is for.
fn alloc_bias(nv: &Nvlist) -> Option<AllocBias> {
    match nv.string("alloc_bias")? {
        b"log" => Some(AllocBias::Log),
        b"special" => Some(AllocBias::Special),
        b"dedup" => Some(AllocBias::Dedup),
        _ => None,
    }
}

/// Of a distributed spare: the guid of its draid vdev, and its number there.
fn draid_spare(nv: &Nvlist, kind: VdevKind) -> Option<(Guid, u64)> {
    (kind == VdevKind::DraidSpare).then(|| Some((Guid(nv.u64("top_guid")?), nv.u64("spareid")?)))?
}

fn draid(nv: &Nvlist, kind: VdevKind, children: usize) -> Result<Option<DraidShape>> {
    if kind != VdevKind::Draid {
        return Ok(None);
    }
    let shape = || {
        Some(DraidShape {
            ndata: nv.u64("draid_ndata")?,
            nspares: nv.u64("draid_nspares")?,
            ngroups: nv.u64("draid_ngroups")?,
        })
    };
    let d = shape().ok_or(missing("a draid vdev lacks its shape"))?;
    let nparity = nv.u64("nparity").unwrap_or(0);
    let children = children as u64;
    let group = d.ndata.saturating_add(nparity);
    let fits = children <= MAX_DRAID_CHILDREN
        && d.ndata != 0
        && d.nspares <= MAX_DRAID_SPARES
        && group.saturating_add(d.nspares) <= children
        && (1..=MAX_DRAID_CHILDREN).contains(&d.ngroups)
        && (group * d.ngroups).is_multiple_of(children - d.nspares);
    if !fits {
        return Err(missing("a draid vdev's shape does not fit its children"));
    }
    Ok(Some(d))
}
