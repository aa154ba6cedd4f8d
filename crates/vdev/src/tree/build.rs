//! From configuration to tree, with every check that geometry later relies on.

use std::collections::HashMap;
use std::sync::Arc;

use device::Device;
use ondisk::label::{LABEL_END_SIZE, LABEL_SIZE, LABEL_START_SIZE, SPA_MINDEVSIZE};
use ondisk::{Ashift, Guid};

use super::{Layout, MAX_ASIZE, Node, NodeId, Opener, Tree};
use crate::alarm::AlarmQueue;
use crate::kind;
use crate::{Result, VdevAux, VdevConfig, VdevError, VdevKind, VdevState};

/// Deepest nesting: the deepest real one is root, draid, replacing, spare, disk.
const MAX_DEPTH: usize = 8;
/// Most vdevs in a tree: far more than any pool has, few enough to hold.
const MAX_NODES: usize = 1 << 20;
/// Largest sector shift (`ASHIFT_MAX`).
const ASHIFT_MAX: u8 = 16;
/// Smallest sector shift (`ASHIFT_MIN`).
const ASHIFT_MIN: u8 = 9;

pub(super) fn build(root: &VdevConfig, bell: Arc<AlarmQueue>, open: &mut Opener<'_>) -> Result<Tree> {
    if root.kind != VdevKind::Root {
        return Err(VdevError::Shape { guid: root.guid, why: "the top of a tree is not a root" });
    }
    let mut tree =
        Tree { nodes: Vec::new(), by_guid: HashMap::new(), config: root.clone(), lacking: 0, bell };
    add(&mut tree, root, None, 0, 0, open)?;
    link_spares(&mut tree);
    tree.assess_all();
    Ok(tree)
}

fn add(
    tree: &mut Tree,
    spec: &VdevConfig,
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
    // Only a top-level vdev's shift counts; the others inherit it.
    let ashift = match parent {
        Some(parent) if depth > 1 => tree.node(parent).ashift(),
        _ => spec.ashift.unwrap_or_default(),
    };
    let (layout, state, aux) = layout(spec, min_asize, ashift, open)?;
    let node = Node {
        kind: spec.kind,
        guid: spec.guid,
        parent,
        children: Vec::new(),
        layout,
        spec: shallow(spec),
        vitals: Arc::default(),
        bell: Arc::clone(&tree.bell),
    };
    node.put_state(state, aux);
    tree.nodes.push(node);
    // Holes have no guid of their own. Any other guid that comes twice is invalid.
    if spec.guid != Guid(0) && tree.by_guid.insert(spec.guid, id).is_some() {
        return Err(VdevError::Shape { guid: spec.guid, why: "two vdevs have the same guid" });
    }
    let draid = match &tree.node(id).layout {
        Layout::Draid(draid) => Some(draid.min_child_asize(spec.asize.unwrap_or(0))),
        _ => None,
    };
    for (n, child) in spec.children.iter().enumerate() {
        // The root's children are addressed by their place, so the place must be their number.
        if spec.kind == VdevKind::Root && child.id != n as u64 {
            return Err(VdevError::Config { guid: child.guid, field: "id", value: child.id });
        }
        let min = draid.unwrap_or_else(|| child_min_asize(spec, min_asize));
        let child = add(tree, child, Some(id), depth + 1, min, open)?;
        tree.nodes[id.0 as usize].children.push(child);
    }
    Ok(id)
}

/// What is needed later of a configuration; its children are nodes of their own.
fn shallow(spec: &VdevConfig) -> VdevConfig {
    VdevConfig {
        kind: spec.kind,
        guid: spec.guid,
        id: spec.id,
        path: spec.path.clone(),
        ashift: spec.ashift,
        asize: spec.asize,
        metaslab_array: spec.metaslab_array,
        metaslab_shift: spec.metaslab_shift,
        nparity: spec.nparity,
        draid: spec.draid,
        draid_spare: spec.draid_spare,
        is_log: spec.is_log,
        create_txg: spec.create_txg,
        dtl: spec.dtl,
        alloc_bias: spec.alloc_bias,
        indirect_object: spec.indirect_object,
        indirect_births: spec.indirect_births,
        prev_indirect_vdev: spec.prev_indirect_vdev,
        top_zap: spec.top_zap,
        leaf_zap: spec.leaf_zap,
        orig_guid: spec.orig_guid,
        ..VdevConfig::new(spec.kind, spec.guid)
    }
}

fn check(spec: &VdevConfig, depth: usize) -> Result<()> {
    let guid = spec.guid;
    let shape = |why| Err(VdevError::Shape { guid, why });
    if depth > MAX_DEPTH {
        return shape("vdevs are nested too deep");
    }
    if (depth == 0) != (spec.kind == VdevKind::Root) {
        return shape("the root is not where a root is");
    }
    if (spec.kind.is_leaf() || spec.kind == VdevKind::Indirect) && !spec.children.is_empty() {
        return shape("a leaf has children");
    }
    let grows = kind::is_mirrored(spec.kind) || matches!(spec.kind, VdevKind::Raidz | VdevKind::Draid);
    if grows && spec.children.is_empty() {
        return shape("a vdev that needs children has none");
    }
    // Commands never create a mirror of raidz, but OpenZFS opens one, and ztest creates them.
    let of_raidz = depth == 1 && spec.kind == VdevKind::Mirror;
    let below = |c: &VdevConfig| match c.kind {
        VdevKind::Disk | VdevKind::File | VdevKind::DraidSpare => true,
        VdevKind::Raidz => of_raidz || depth == 0,
        kind => kind::is_mirrored(kind),
    };
    // A missing child of a raidz or mirror stands for a device that the label at hand doesn't
    // describe.
    if depth > 0 && !spec.children.iter().all(|c| below(c) || c.kind == VdevKind::Missing) {
        return shape("a child is of a kind that can't be there");
    }
    if let Some(value) = spec.asize.filter(|a| *a > MAX_ASIZE) {
        return Err(VdevError::Config { guid, field: "asize", value });
    }
    let top = depth == 1 && (kind::is_concrete(spec.kind) || spec.kind == VdevKind::Indirect);
    let ashift = spec.ashift.unwrap_or_default().0;
    if top && !(ASHIFT_MIN..=ASHIFT_MAX).contains(&ashift) {
        return Err(VdevError::Config { guid, field: "ashift", value: ashift.into() });
    }
    if !top && matches!(spec.kind, VdevKind::Draid | VdevKind::Indirect) {
        return shape("a vdev with columns, or a removed one, is not at the top");
    }
    Ok(())
}

/// Smallest size of a child (`vdev_get_min_asize`); 0 where the configuration doesn't say.
fn child_min_asize(spec: &VdevConfig, own: u64) -> u64 {
    let all = least_asize(spec).max(own);
    match spec.kind {
        VdevKind::Root => 0,
        // The child that an expansion adds counts only when the expansion has ended.
        VdevKind::Raidz => all.div_ceil(spec.children.len() as u64 + u64::from(spec.raidz_expanding)),
        _ => all,
    }
}

/// The space of a vdev that is in use. A part of a metaslab at its end is not in use, and a
/// replacing device may lack it.
fn least_asize(spec: &VdevConfig) -> u64 {
    let unit = spec.metaslab_shift.filter(|s| *s < 63).map_or(1, |s| 1u64 << s);
    let asize = spec.asize.unwrap_or(0);
    asize / unit * unit
}

type Opened = (Layout, VdevState, VdevAux);

fn layout(spec: &VdevConfig, min_asize: u64, ashift: Ashift, open: &mut Opener<'_>) -> Result<Opened> {
    use VdevKind::{
        Disk, Draid, DraidSpare, File, Hole, Indirect, Mirror, Missing, Raidz, Replacing, Root, Spare,
    };
    let fine = |layout| Ok((layout, VdevState::Healthy, VdevAux::None));
    match spec.kind {
        Root => fine(Layout::Root),
        Mirror | Replacing | Spare => fine(Layout::Mirrored),
        Hole => fine(Layout::Absent),
        Missing => Ok((Layout::Absent, VdevState::CantOpen, VdevAux::OpenFailed)),
        Disk | File => Ok(open_leaf(spec, min_asize, open)),
        Raidz => fine(Layout::Raidz(crate::raidz::Raidz::new(spec, ashift)?)),
        Draid => fine(Layout::Draid(Box::new(crate::draid::Draid::new(spec)?))),
        Indirect => fine(Layout::Indirect(crate::indirect::Indirect::default())),
        // Its draid may come later in the tree.
        DraidSpare => Ok((Layout::Absent, VdevState::CantOpen, VdevAux::OpenFailed)),
    }
}

/// Opens a leaf as far as its configuration allows (`vdev_open`).
fn open_leaf(spec: &VdevConfig, min_asize: u64, open: &mut Opener<'_>) -> Opened {
    let closed = |state, aux| (Layout::Leaf(None), state, aux);
    let own_aux =
        if spec.aux_state.as_deref() == Some("external") { VdevAux::External } else { VdevAux::ErrExceeded };
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
    let usable = device.size() / LABEL_SIZE * LABEL_SIZE - LABEL_START_SIZE - LABEL_END_SIZE;
    if usable < min_asize.max(least_asize(spec)) {
        return closed(VdevState::CantOpen, VdevAux::BadLabel);
    }
    if spec.degraded {
        return (Layout::Leaf(Some(device)), VdevState::Degraded, VdevAux::ErrExceeded);
    }
    (Layout::Leaf(Some(device)), VdevState::Healthy, VdevAux::None)
}

/// Links each distributed spare to its dRAID. A spare without one stays unopened.
fn link_spares(tree: &mut Tree) {
    for i in 0..tree.nodes.len() {
        let Some((guid, spare)) = tree.nodes[i].spec.draid_spare else { continue };
        let Some(draid) = tree.by_guid.get(&guid).copied() else { continue };
        let fits = matches!(&tree.node(draid).layout, Layout::Draid(d) if spare < d.nspares());
        if fits && tree.nodes[i].kind == VdevKind::DraidSpare {
            tree.nodes[i].layout = Layout::DraidSpare { draid, spare };
            tree.nodes[i].put_state(VdevState::Healthy, VdevAux::None);
        }
    }
}
