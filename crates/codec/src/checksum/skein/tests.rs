use super::*;

/// Goal: lengths around the edges of blocks have different hashes, and no data is one block.
#[test]
fn block_edges() {
    let mac = SkeinMac::new(&[3; 32]);
    let mut seen = std::collections::HashSet::new();
    for len in [0, 1, 63, 64, 65, 127, 128, 129] {
        assert!(seen.insert(mac.hash(&vec![0; len])), "{len}");
    }
}
