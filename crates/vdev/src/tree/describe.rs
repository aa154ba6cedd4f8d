//! A description of the tree for commands.

use ondisk::Guid;

use super::{NodeId, Tree};
use crate::{AllocBias, IoType, Moved, StatsSnapshot, VdevAux, VdevKind, VdevState};

/// A vdev and everything below it at one moment, as `zpool status` shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VdevInfo {
    /// The name that commands show: a path, or kind and number (`mirror-0`). The root's is its
    /// kind.
    pub name: String,
    /// Kind.
    pub kind: VdevKind,
    /// Guid.
    pub guid: Guid,
    /// Number among its parent's children.
    pub id: u64,
    /// Where its device was last seen.
    pub path: Option<Vec<u8>>,
    /// State.
    pub state: VdevState,
    /// Why it is in this state.
    pub aux: VdevAux,
    /// Whether it is a log device.
    pub is_log: bool,
    /// The class of blocks that it is reserved for.
    pub alloc_bias: Option<AllocBias>,
    /// Allocatable bytes of a top-level vdev, by its configuration.
    pub asize: u64,
    /// Sector shift of a top-level vdev.
    pub ashift: u8,
    /// Counters; those of a vdev above the leaves include the operations and bytes below it.
    pub stats: StatsSnapshot,
    /// The vdevs below it.
    pub children: Vec<VdevInfo>,
}

impl Tree {
    /// The tree as it is now.
    pub fn describe(&self) -> VdevInfo {
        self.picture(Self::ROOT)
    }

    /// What all devices have read and written so far.
    pub fn moved(&self) -> Moved {
        self.nodes().fold(Moved::default(), |all, node| {
            let (reads, read) = node.stats.by_class.done(IoType::Read);
            let (writes, written) = node.stats.by_class.done(IoType::Write);
            Moved {
                reads: all.reads + reads,
                read: all.read + read,
                writes: all.writes + writes,
                written: all.written + written,
            }
        })
    }

    // As deep as the tree, whose depth was checked when it was built.
    fn picture(&self, id: NodeId) -> VdevInfo {
        let node = self.node(id);
        let spec = &node.spec;
        let children: Vec<_> = node.children.iter().map(|c| self.picture(*c)).collect();
        let mut stats = node.stats.snapshot();
        for child in &children {
            stats.add(&child.stats);
        }
        VdevInfo {
            name: self.name(id),
            kind: node.kind,
            guid: node.guid,
            id: spec.id,
            path: spec.path.clone(),
            state: node.state(),
            aux: node.aux(),
            is_log: spec.is_log,
            alloc_bias: spec.alloc_bias,
            asize: spec.asize.unwrap_or(0),
            ashift: node.ashift().0,
            stats,
            children,
        }
    }

    /// The name that commands show (`zpool_vdev_name`, without its flags).
    fn name(&self, id: NodeId) -> String {
        let node = self.node(id);
        let spec = &node.spec;
        match node.kind {
            VdevKind::Root => "root".to_owned(),
            VdevKind::Disk | VdevKind::File | VdevKind::DraidSpare => {
                let path = spec.path.as_deref().map(String::from_utf8_lossy);
                path.map_or_else(|| node.guid.to_string(), |p| p.into_owned())
            }
            VdevKind::Raidz => format!("raidz{}-{}", spec.nparity.unwrap_or(1), spec.id),
            VdevKind::Draid => match (spec.nparity, spec.draid) {
                (Some(p), Some(d)) => {
                    let n = node.children.len();
                    format!("draid{p}:{}d:{n}c:{}s-{}", d.ndata, d.nspares, spec.id)
                }
                _ => unreachable!("a draid without a shape is refused when the tree is built"),
            },
            kind => format!("{}-{}", kind.name(), spec.id),
        }
    }
}
