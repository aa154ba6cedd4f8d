//! Hostile configurations.

use std::sync::Arc;

use device::{Device, MemDevice};
use ondisk::config::DraidShape;
use ondisk::indirect::MappingEntry;
use ondisk::label::SPA_MINDEVSIZE;
use ondisk::{Ashift, Guid, Offset, Psize, Txg, VdevId};
use proptest::prelude::*;

use crate::tests::{READ, leaf, root, top};
use crate::{Reflow, Tree, TxgRanges, VdevAux, VdevConfig, VdevError, VdevKind, VdevState};

fn build(spec: &VdevConfig) -> Result<Tree, VdevError> {
    Tree::open(spec, &mut |_| Ok(Arc::new(MemDevice::new("m", SPA_MINDEVSIZE)) as Arc<dyn Device>))
}

/// Goal: impossible configurations are refused, each for its reason.
#[test]
fn bad_trees_are_refused() {
    let shape = |spec: &VdevConfig| matches!(build(spec), Err(VdevError::Shape { .. }));
    let field = |spec: &VdevConfig| match build(spec) {
        Err(VdevError::Config { field, .. }) => field,
        other => panic!("{other:?}"),
    };
    let mut deep = leaf(0);
    for n in 0..20 {
        deep = VdevConfig { children: vec![deep], ..VdevConfig::new(VdevKind::Mirror, Guid(500 + n)) };
    }
    deep.ashift = Some(Ashift(9));
    assert!(shape(&root(vec![deep])));
    assert!(shape(&leaf(0)));
    assert!(shape(&root(vec![root(Vec::new())])));
    assert!(shape(&root(vec![top(VdevKind::Raidz, 0)])));
    let nested = |outer, inner| {
        let inner = VdevConfig { guid: Guid(11), nparity: Some(1), ..top(inner, 2) };
        root(vec![VdevConfig { children: vec![inner], nparity: Some(1), ..top(outer, 0) }])
    };
    assert!(build(&nested(VdevKind::Mirror, VdevKind::Raidz)).is_ok());
    assert!(shape(&nested(VdevKind::Mirror, VdevKind::Draid)));
    assert!(shape(&nested(VdevKind::Raidz, VdevKind::Raidz)));
    assert!(shape(&nested(VdevKind::Replacing, VdevKind::Raidz)));
    let mut twice = top(VdevKind::Mirror, 2);
    twice.children[1].guid = twice.children[0].guid;
    assert!(shape(&root(vec![twice])));
    assert!(shape(&root(vec![VdevConfig { children: vec![leaf(1)], ..top(VdevKind::Indirect, 0) }])));
    let bad = |f: fn(&mut VdevConfig)| {
        let mut spec = VdevConfig { nparity: Some(1), ..top(VdevKind::Raidz, 3) };
        f(&mut spec);
        field(&root(vec![spec]))
    };
    assert_eq!(bad(|s| s.ashift = None), "ashift");
    assert_eq!(bad(|s| s.ashift = Some(Ashift(17))), "ashift");
    assert_eq!(bad(|s| s.ashift = Some(Ashift(255))), "ashift");
    assert_eq!(bad(|s| s.asize = Some(u64::MAX)), "asize");
    assert_eq!(bad(|s| s.nparity = Some(3)), "children");
    assert_eq!(bad(|s| s.nparity = Some(u64::MAX)), "nparity");
    assert_eq!(bad(|s| s.id = 5), "id");
    assert_eq!(bad(|s| s.children = (0..300).map(leaf).collect()), "children");
}

/// Goal: a leaf's configuration and its device give the state that OpenZFS gives.
#[test]
fn leaves_open_as_configured() {
    let state = |f: fn(&mut VdevConfig), opened: Result<u64, VdevAux>| {
        let mut spec = VdevConfig { ashift: Some(Ashift(9)), ..leaf(0) };
        f(&mut spec);
        let tree = Tree::open(&root(vec![spec]), &mut |_| {
            opened.map(|size| Arc::new(MemDevice::new("m", size)) as Arc<dyn Device>)
        });
        let top = tree.unwrap().describe().children.remove(0);
        (top.state, top.aux)
    };
    use VdevState::*;
    let ok = Ok(SPA_MINDEVSIZE);
    assert_eq!(state(|_| {}, ok), (Healthy, VdevAux::None));
    assert_eq!(state(|s| s.offline = true, ok), (Offline, VdevAux::None));
    assert_eq!(state(|s| s.faulted = true, ok), (Faulted, VdevAux::ErrExceeded));
    let external = |s: &mut VdevConfig| (s.faulted, s.aux_state) = (true, Some("external".into()));
    assert_eq!(state(external, ok), (Faulted, VdevAux::External));
    assert_eq!(state(|s| s.degraded = true, ok), (Degraded, VdevAux::ErrExceeded));
    assert_eq!(state(|s| s.removed = true, Err(VdevAux::OpenFailed)), (Removed, VdevAux::None));
    assert_eq!(state(|_| {}, Err(VdevAux::CorruptData)), (CantOpen, VdevAux::CorruptData));
    assert_eq!(state(|_| {}, Ok(0)), (CantOpen, VdevAux::TooSmall));
    assert_eq!(state(|s| s.asize = Some(SPA_MINDEVSIZE), ok), (CantOpen, VdevAux::BadLabel));
}

/// Goal: a lost log device degrades a pool, and any other lost top-level vdev ends it. Holes and
/// removed vdevs don't count.
#[test]
fn top_levels_make_the_pool() {
    let state = |lost: u64, log: bool| {
        let disk = |n| VdevConfig { ashift: Some(Ashift(9)), is_log: log && n == 1, ..leaf(n) };
        let hole = VdevConfig { id: 2, ..VdevConfig::new(VdevKind::Hole, Guid(0)) };
        let gone = VdevConfig { id: 3, guid: Guid(9), ..top(VdevKind::Indirect, 0) };
        let spec = root(vec![disk(0), disk(1), hole, gone]);
        let tree = Tree::open(&spec, &mut |l| match l.id == lost {
            true => Err(VdevAux::OpenFailed),
            false => Ok(Arc::new(MemDevice::new("m", SPA_MINDEVSIZE)) as Arc<dyn Device>),
        });
        tree.unwrap().state()
    };
    assert_eq!(state(9, false), (VdevState::Healthy, VdevAux::None));
    assert_eq!(state(1, true), (VdevState::Degraded, VdevAux::None));
    assert_eq!(state(1, false), (VdevState::CantOpen, VdevAux::NoReplicas));
}

/// A vdev of one of these kinds with plausible fields most of the time, and its children.
fn vdev(
    kinds: &'static [VdevKind],
    children: impl Strategy<Value = Vec<VdevConfig>>,
) -> impl Strategy<Value = VdevConfig> {
    let odd = |fair: std::ops::Range<u64>| prop_oneof![30 => fair, 1 => any::<u64>()];
    let own = (
        proptest::sample::select(kinds),
        prop_oneof![20 => 9..13u8, 1 => any::<u8>()],
        odd(1..3),
        (odd(1..4), odd(0..2), odd(1..6)),
        (proptest::collection::vec(0..30u64, 0..2), prop::bool::weighted(0.2)),
        (1000..1004u64, odd(0..2)),
        children,
    );
    own.prop_map(|(kind, ashift, nparity, shape, (txgs, expanding), (spare, id), children)| VdevConfig {
        ashift: Some(Ashift(ashift)),
        nparity: Some(nparity),
        draid: Some(DraidShape { ndata: shape.0, nspares: shape.1, ngroups: shape.2 }),
        raidz_expand_txgs: txgs.into_iter().map(Txg).collect(),
        raidz_expanding: expanding,
        draid_spare: (kind == VdevKind::DraidSpare).then_some((Guid(spare), id)),
        children: if kind.is_leaf() { Vec::new() } else { children },
        ..VdevConfig::new(kind, Guid(0))
    })
}

fn any_top() -> impl Strategy<Value = VdevConfig> {
    use VdevKind::*;
    let leaf = || vdev(&[File, File, File, File, DraidSpare, Missing], Just(Vec::new()));
    let pair = vdev(&[Spare, Replacing, Mirror], proptest::collection::vec(leaf(), 1..3));
    let columns = vdev(&[Raidz], proptest::collection::vec(leaf(), 2..5));
    let child = prop_oneof![8 => leaf(), 2 => pair, 1 => columns];
    vdev(&[File, Mirror, Raidz, Raidz, Draid, Draid, Indirect, Hole], proptest::collection::vec(child, 1..7))
}

/// Numbers the vdevs, so that they can be told apart; the top ones begin at 1000.
fn number(vdev: &mut VdevConfig, guid: u64) {
    vdev.guid = Guid(guid);
    for (n, child) in vdev.children.iter_mut().enumerate() {
        number(child, guid * 10 + n as u64 + 1);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// Goal: whatever a configuration and an address say, the tree is built or refused, and a read
    /// ends.
    #[test]
    fn nothing_panics(
        mut tops in proptest::collection::vec(any_top(), 1..6),
        vdev in 0..3u32,
        offset in prop_oneof![6 => (0..1u64 << 30).prop_map(|o| o & !511), 1 => any::<u64>()],
        psize in prop_oneof![4 => (1..300u64).prop_map(|s| s * 512), 1 => any::<u64>()],
        (birth, reflow, in_scratch) in (0..40u64, any::<u64>(), any::<bool>()),
        entries in proptest::collection::vec((0..64u64, 0..5u32, 0..64u64, 1..64u64), 0..4),
    ) {
        // Top-level vdevs that are refused are left out, so that most cases reach a read.
        tops.retain(|top| build(&root(vec![top.clone()])).is_ok());
        for (n, top) in tops.iter_mut().enumerate() {
            top.id = n as u64;
            number(top, 1000 + n as u64);
        }
        let Ok(tree) = build(&root(tops)) else { return Ok(()) };
        tree.set_reflow(Reflow { offset: reflow, in_scratch });
        let _ = tree.set_dtl(Guid(10001), TxgRanges::new([(0, 20)]));
        let entries: Vec<_> = entries
            .into_iter()
            .map(|(src, vdev, dst, size)| MappingEntry {
                src: Offset(src * 512),
                vdev: VdevId(vdev),
                dst: Offset(dst * 512),
                size: size * 512,
            })
            .collect();
        for n in 0..tree.top_count() {
            let _ = tree.set_indirect_mapping(VdevId(n), entries.clone());
        }
        if let Ok(mut attempts) = tree.attempts(VdevId(vdev), offset, Psize(psize), Txg(birth), &READ) {
            for candidate in attempts.by_ref().take(50) {
                prop_assert_eq!(candidate.len() as u64, psize);
            }
            attempts.give_up();
        }
        tree.describe();
    }
}
