use crate::scan::rebuild::slice::*;

/// Goal: near ranges are copied together, distant ones are not, and nothing in use is left out or
/// counted twice.
#[test]
fn ranges_are_joined() {
    let used = [(0, 4096), (8192, 12288), (12288 + GAP, 12288 + GAP + 512), (GAP * 4, GAP * 5)];
    assert_eq!(joined(&used), [(0, 12288 + GAP + 512), (GAP * 4, GAP * 5)]);
    assert_eq!(joined(&[]), []);
    let parts: Vec<_> = within(&used, 100, 9000).collect();
    assert_eq!(parts, [(100, 4096), (8192, 9000)]);
    assert_eq!(within(&used, 4096, 8192).count(), 0);
    let halves: u64 = [(0, GAP * 2), (GAP * 2, GAP * 8)]
        .into_iter()
        .flat_map(|(s, e)| within(&used, s, e).collect::<Vec<_>>())
        .map(|(s, e)| e - s)
        .sum();
    assert_eq!(halves, used.iter().map(|(s, e)| e - s).sum::<u64>());
}
