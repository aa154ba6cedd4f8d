//! Grafting: a pool with changed blocks has right checksums, and the changes are read.

use std::collections::BTreeMap;

use fuzzing::graft::Graft;
use ondisk::DmuType;

/// Goal: a walk after a graft finds the change, and otherwise the same blocks. Undoing it restores
/// the image.
#[test]
fn a_graft_is_reached_and_undone() {
    let fixture = testkit::load("longname");
    let mut graft = Graft::open(&fixture);
    let before = std::fs::read(graft.image()).unwrap();
    let kinds: std::collections::BTreeSet<_> = graft.nodes().iter().map(|n| n.kind().to_disk()).collect();
    assert!(kinds.len() > 10, "only {kinds:?}");
    let (index, node) = graft
        .nodes()
        .iter()
        .enumerate()
        .rfind(|(_, n)| n.kind() == DmuType::DIRECTORY_CONTENTS)
        .expect("a pool has directories");
    let mut contents = node.contents().to_vec();
    contents[9] ^= 0x40;
    let count = graft.nodes().len();
    graft.apply(BTreeMap::from([(index, contents.clone())]));
    graft.rewalk();
    assert_eq!(graft.nodes().len(), count);
    assert!(graft.nodes().iter().any(|n| n.contents() == contents));
    graft.undo();
    assert!(std::fs::read(graft.image()).unwrap() == before);
}
