use super::*;

/// A snapshot's inode numbers differ from every live one and from each other, for all numbers that occur; and for
/// those that can't be packed side by side, they still differ within a mount.
#[test]
fn numbers_of_snapshots_are_their_own() {
    let mut seen = std::collections::HashSet::new();
    for (slot, dataset) in [(1, 54), (2, 387), (3, (1 << 23) - 1), (4, 1 << 23), (5, 1 << 47)] {
        for object in [1, 34, 1 << 20, (1 << 40) - 1, 1 << 40, (1 << 48) - 1] {
            let ino = snapshot_ino(slot, dataset, object);
            assert!(ino >= 1 << 40, "a live file could have {ino}");
            assert!(seen.insert(ino), "{slot} {dataset} {object}");
        }
    }
}
