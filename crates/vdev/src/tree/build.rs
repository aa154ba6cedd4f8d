//! From configuration to tree, with every check that geometry relies on later.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64};

use device::Device;
use ondisk::Guid;
use parking_lot::RwLock;

use super::{Layout, Node, NodeId, Opener, Tree};
use crate::{
    LABEL_END_SIZE, LABEL_START_SIZE, Result, SPA_MINDEVSIZE, TxgRanges, VdevAux, VdevError, VdevKind,
    VdevSpec, VdevState, VdevStats,
};

/// Deepest nesting: the deepest real one is root, draid, replacing, spare, disk.
const MAX_DEPTH: usize = 8;
/// Most vdevs in a tree: far more than any pool has, few enough to hold.
const MAX_NODES: usize = 1 << 20;
/// Largest sector shift (`ASHIFT_MAX`).
const ASHIFT_MAX: u8 = 16;
/// Smallest sector shift (`ASHIFT_MIN`).
const ASHIFT_MIN: u8 = 9;

pub(super) fn build(root: &VdevSpec, open: &mut Opener<'_>) -> Result<Tree> {
    if root.kind != VdevKind::Root {
        return Err(VdevError::Shape { guid: root.guid, why: "the top of a tree is not a root" });
    }
    let mut tree = Tree { nodes: Vec::new(), by_guid: HashMap::new() };
    add(&mut tree, root, None, 0, 0, open)?;
    // Children come after their parents in the arena, so that backwards is bottom-up.
    for i in (0..tree.nodes.len()).rev() {
        if !tree.nodes[i].children.is_empty() {
            tree.assess(NodeId(i as u32));
        }
    }
    Ok(tree)
}

fn add(
    tree: &mut Tree,
    spec: &VdevSpec,
    parent: Option<NodeId>,
    depth: usize,
    min_asize: u64,
    open: &mut Opener<'_>,
) -> Result<NodeId> {
    check(spec, depth)?;
    if tree.nodes.len() >= MAX_NODES {
        return Err(VdevError::Shape { guid: spec.guid, why: "more vdevs than a pool can have" });
    }
    let id = NodeId(tree.nodes.len() as u32);
    let (layout, state, aux) = layout(spec, min_asize, open)?;
    let own = VdevSpec { children: Vec::new(), ..shallow(spec) };
    tree.nodes.push(Node {
        kind: spec.kind,
        guid: spec.guid,
        parent,
        children: Vec::new(),
        layout,
        spec: own,
        stats: VdevStats::default(),
        state: AtomicU8::new(state as u8),
        aux: AtomicU8::new(aux as u8),
        stale: AtomicBool::new(false),
        dtl: RwLock::new(TxgRanges::default()),
        in_flight: AtomicU32::new(0),
        last_end: AtomicU64::new(0),
    });
    // Holes have no guid of their own; any other that comes twice is a lie.
    if spec.guid != Guid(0) && tree.by_guid.insert(spec.guid, id).is_some() {
        return Err(VdevError::Shape { guid: spec.guid, why: "two vdevs have the same guid" });
    }
    for (n, child) in spec.children.iter().enumerate() {
        // The root's children are addressed by their place, so the place must be their number.
        if spec.kind == VdevKind::Root && child.id != n as u64 {
            return Err(VdevError::Config { guid: child.guid, field: "id", value: child.id });
        }
        let min = child_min_asize(spec, min_asize);
        let child = add(tree, child, Some(id), depth + 1, min, open)?;
        tree.nodes[id.0 as usize].children.push(child);
    }
    Ok(id)
}

/// The configuration without its children, so that a large tree isn't copied at each level.
fn shallow(spec: &VdevSpec) -> VdevSpec {
    VdevSpec {
        path: spec.path.clone(),
        raidz_expand_txgs: spec.raidz_expand_txgs.clone(),
        children: Vec::new(),
        ..*spec
    }
}

fn check(spec: &VdevSpec, depth: usize) -> Result<()> {
    let guid = spec.guid;
    let shape = |why| Err(VdevError::Shape { guid, why });
    if depth > MAX_DEPTH {
        return shape("vdevs are nested too deep");
    }
    if (depth == 0) != (spec.kind == VdevKind::Root) {
        return shape("the root is not where a root is");
    }
    if spec.kind.is_leaf() && !spec.children.is_empty() {
        return shape("a leaf has children");
    }
    let grows = spec.kind.is_mirrored() || matches!(spec.kind, VdevKind::Raidz | VdevKind::Draid);
    if grows && spec.children.is_empty() {
        return shape("a vdev that needs children has none");
    }
    let below = |c: &VdevSpec| {
        c.kind.is_mirrored() || matches!(c.kind, VdevKind::Disk | VdevKind::File | VdevKind::DraidSpare)
    };
    // A missing child of a raidz or mirror stands for a device that the label at hand doesn't describe.
    if depth > 0 && !spec.children.iter().all(|c| below(c) || c.kind == VdevKind::Missing) {
        return shape("a child is of a kind that can't be there");
    }
    if spec.asize > 1 << 62 {
        return Err(VdevError::Config { guid, field: "asize", value: spec.asize });
    }
    // Only a top-level vdev's shift matters; the others inherit it.
    let top = depth == 1 && (spec.kind.is_concrete() || spec.kind == VdevKind::Indirect);
    if top && !(ASHIFT_MIN..=ASHIFT_MAX).contains(&spec.ashift.0) {
        return Err(VdevError::Config { guid, field: "ashift", value: spec.ashift.0.into() });
    }
    Ok(())
}

/// Smallest a child may be (`vdev_get_min_asize`); 0 where the configuration doesn't say.
fn child_min_asize(spec: &VdevSpec, own: u64) -> u64 {
    let n = spec.children.len() as u64;
    match spec.kind {
        VdevKind::Root => 0,
        VdevKind::Raidz => spec.asize.max(own).div_ceil(n),
        _ => spec.asize.max(own),
    }
}

type Opened = (Layout, VdevState, VdevAux);

fn layout(spec: &VdevSpec, min_asize: u64, open: &mut Opener<'_>) -> Result<Opened> {
    use VdevKind::*;
    let fine = |layout| Ok((layout, VdevState::Healthy, VdevAux::None));
    match spec.kind {
        Root => fine(Layout::Root),
        Mirror | Replacing | Spare => fine(Layout::Mirrored),
        Hole => fine(Layout::Absent),
        Missing => Ok((Layout::Absent, VdevState::CantOpen, VdevAux::OpenFailed)),
        Disk | File => Ok(open_leaf(spec, min_asize, open)),
        Raidz | Draid | DraidSpare | Indirect => {
            Err(VdevError::Shape { guid: spec.guid, why: "this kind of vdev is not known" })
        }
    }
}

/// Opens a leaf as far as its configuration allows (`vdev_open`).
fn open_leaf(spec: &VdevSpec, min_asize: u64, open: &mut Opener<'_>) -> Opened {
    let closed = |state, aux| (Layout::Leaf(None), state, aux);
    let own_aux = if spec.external { VdevAux::External } else { VdevAux::ErrExceeded };
    if !spec.removed && spec.faulted {
        return closed(VdevState::Faulted, own_aux);
    }
    if spec.offline {
        return closed(VdevState::Offline, VdevAux::None);
    }
    let device: Arc<dyn Device> = match open(spec) {
        Ok(device) => device,
        Err(VdevAux::OpenFailed) if spec.removed => return closed(VdevState::Removed, VdevAux::None),
        Err(aux) => return closed(VdevState::CantOpen, aux),
    };
    if spec.faulted {
        return closed(VdevState::Faulted, own_aux);
    }
    if device.size() < SPA_MINDEVSIZE {
        return closed(VdevState::CantOpen, VdevAux::TooSmall);
    }
    // The end of a device that is not a multiple of a label's size is not used.
    let usable = device.size() / (256 << 10) * (256 << 10) - LABEL_START_SIZE - LABEL_END_SIZE;
    if usable < spec.asize.max(min_asize) {
        return closed(VdevState::CantOpen, VdevAux::BadLabel);
    }
    if spec.degraded {
        return (Layout::Leaf(Some(device)), VdevState::Degraded, VdevAux::ErrExceeded);
    }
    (Layout::Leaf(Some(device)), VdevState::Healthy, VdevAux::None)
}
