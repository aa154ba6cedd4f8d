//! What a tree is built from: a vdev configuration.

use ondisk::{Ashift, Guid, ObjNum, Txg};

/// Kind of a vdev (`vdev_ops_t`, `ZPOOL_CONFIG_TYPE`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum VdevKind {
    /// The root of the tree (`root`).
    Root,
    /// A block device (`disk`).
    Disk,
    /// An image file (`file`).
    File,
    /// Every child holds the same (`mirror`).
    Mirror,
    /// A child that is being replaced and its replacement (`replacing`).
    Replacing,
    /// A child and the spare that stands in for it (`spare`).
    Spare,
    /// Columns with parity (`raidz`).
    Raidz,
    /// Columns with parity, permuted over all children (`draid`).
    Draid,
    /// The share of a dRAID's children that stands in for a failed one (`dspare`).
    DraidSpare,
    /// A removed vdev whose blocks went elsewhere (`indirect`).
    Indirect,
    /// A number that is not in use (`hole`).
    Hole,
    /// A vdev that the configuration at hand doesn't describe (`missing`).
    Missing,
}

impl VdevKind {
    /// The name in configurations.
    pub fn name(self) -> &'static str {
        use VdevKind::*;
        match self {
            Root => "root",
            Disk => "disk",
            File => "file",
            Mirror => "mirror",
            Replacing => "replacing",
            Spare => "spare",
            Raidz => "raidz",
            Draid => "draid",
            DraidSpare => "dspare",
            Indirect => "indirect",
            Hole => "hole",
            Missing => "missing",
        }
    }

    /// The kind of this name; `None` for names that OpenZFS 2.3 doesn't know.
    pub fn from_name(name: &str) -> Option<Self> {
        use VdevKind::*;
        [Root, Disk, File, Mirror, Replacing, Spare, Raidz, Draid, DraidSpare, Indirect, Hole, Missing]
            .into_iter()
            .find(|k| k.name() == name)
    }

    /// Whether a vdev of this kind is a device or stands for one (`vdev_op_leaf`).
    pub fn is_leaf(self) -> bool {
        use VdevKind::*;
        match self {
            Disk | File | DraidSpare | Hole | Missing => true,
            Root | Mirror | Replacing | Spare | Raidz | Draid | Indirect => false,
        }
    }

    /// Whether blocks live on it (`vdev_is_concrete`).
    pub fn is_concrete(self) -> bool {
        !matches!(self, VdevKind::Root | VdevKind::Indirect | VdevKind::Hole | VdevKind::Missing)
    }

    /// Whether all its children hold the same (`vdev_mirror_ops` and its two relatives).
    pub fn is_mirrored(self) -> bool {
        matches!(self, VdevKind::Mirror | VdevKind::Replacing | VdevKind::Spare)
    }
}

/// What a top-level vdev is reserved for (`ZPOOL_CONFIG_ALLOCATION_BIAS`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AllocBias {
    /// The intent log (`log`).
    Log,
    /// Metadata and small blocks (`special`).
    Special,
    /// Dedup tables (`dedup`).
    Dedup,
}

/// A vdev as the configuration describes it, with everything below it. Fields that a kind doesn't have are
/// zero, empty or `None`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VdevSpec {
    /// Kind (`type`).
    pub kind: VdevKind,
    /// Its number among its parent's children (`id`).
    pub id: u64,
    /// Its guid (`guid`).
    pub guid: Guid,
    /// Where its device was last seen (`path`).
    pub path: Option<String>,
    /// Sector shift of a top-level vdev (`ashift`).
    pub ashift: Ashift,
    /// Allocatable bytes of a top-level vdev (`asize`); 0 is not known.
    pub asize: u64,
    /// Parity columns of a raidz or draid (`nparity`).
    pub nparity: u64,
    /// When a raidz was expanded, by one child each time (`raidz_expand_txgs`).
    pub raidz_expand_txgs: Vec<u64>,
    /// A raidz is being expanded: the last child is the new one (`raidz_expanding`).
    pub raidz_expanding: bool,
    /// Data columns of a draid group (`draid_ndata`).
    pub draid_ndata: u64,
    /// Distributed spares of a draid (`draid_nspares`).
    pub draid_nspares: u64,
    /// Groups in a slice of a draid (`draid_ngroups`).
    pub draid_ngroups: u64,
    /// The draid that a distributed spare belongs to (`top_guid`).
    pub top_guid: Guid,
    /// Number of a distributed spare (`spare_id`).
    pub spare_id: u64,
    /// A log device (`is_log`).
    pub is_log: bool,
    /// What it is reserved for (`alloc_bias`).
    pub alloc_bias: Option<AllocBias>,
    /// Taken offline by hand (`offline`).
    pub offline: bool,
    /// Faulted, and why (`faulted`, `aux_state` "external" or not).
    pub faulted: bool,
    /// Degraded (`degraded`).
    pub degraded: bool,
    /// Its device had been pulled (`removed`).
    pub removed: bool,
    /// Faulted or degraded by hand rather than for its errors (`aux_state` is `external`).
    pub external: bool,
    /// The object that holds its DTL (`DTL`).
    pub dtl: Option<ObjNum>,
    /// The array of its space maps (`metaslab_array`).
    pub metaslab_array: Option<ObjNum>,
    /// log2 of the size of its metaslabs (`metaslab_shift`).
    pub metaslab_shift: u64,
    /// Mapping object of an indirect vdev (`com.delphix:indirect_object`).
    pub indirect_object: Option<ObjNum>,
    /// Births object of an indirect vdev (`com.delphix:indirect_births`).
    pub indirect_births: Option<ObjNum>,
    /// The indirect vdev that was removed before this one (`com.delphix:prev_indirect_vdev`).
    pub prev_indirect_vdev: Option<u64>,
    /// When it was added (`create_txg`).
    pub create_txg: Txg,
    /// Whether ZFS partitioned the disk itself (`whole_disk`).
    pub whole_disk: bool,
    /// Children (`children`).
    pub children: Vec<VdevSpec>,
}

impl VdevSpec {
    /// A vdev of this kind and guid with nothing else said about it.
    pub fn new(kind: VdevKind, guid: Guid) -> Self {
        Self {
            kind,
            id: 0,
            guid,
            path: None,
            ashift: Ashift(0),
            asize: 0,
            nparity: 0,
            raidz_expand_txgs: Vec::new(),
            raidz_expanding: false,
            draid_ndata: 0,
            draid_nspares: 0,
            draid_ngroups: 0,
            top_guid: Guid(0),
            spare_id: 0,
            is_log: false,
            alloc_bias: None,
            offline: false,
            faulted: false,
            degraded: false,
            removed: false,
            external: false,
            dtl: None,
            metaslab_array: None,
            metaslab_shift: 0,
            indirect_object: None,
            indirect_births: None,
            prev_indirect_vdev: None,
            create_txg: Txg(0),
            whole_disk: false,
            children: Vec::new(),
        }
    }
}
