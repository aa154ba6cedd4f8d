//! The shares follow the ghosts, and stay within their bounds.

use super::*;

const MB: u64 = 1 << 20;

/// Goal: a ghost moves the share towards blocks like it, of those used once or again. The rarer
/// kind moves it further.
#[test]
fn ghosts_move_their_share() {
    let balance = Balance::new();
    let (_, pd, pm) = balance.shares();
    balance.ghost_hit(MB, false, false, 100 * MB, [MB, MB]);
    let (_, grown, same) = balance.shares();
    assert!(grown > pd && same == pm);
    balance.ghost_hit(MB, false, true, 100 * MB, [4 * MB, MB]);
    let (_, less, _) = balance.shares();
    assert!(less < pd, "four times as much for the rarer kind");
}

/// Goal: ghosts move the share between metadata and data, and one of data counts less.
#[test]
fn metadata_against_data() {
    let _default = crate::tunables::STEERING.lock();
    let balance = Balance::new();
    let meta = balance.shares().0;
    balance.ghost_hit(MB, true, false, 100 * MB, [MB, MB]);
    let up = balance.shares().0 - meta;
    balance.ghost_hit(MB, false, false, 100 * MB, [MB, MB]);
    let down = meta + up - balance.shares().0;
    assert!(up > 0 && (up / 5).abs_diff(down) <= 1, "{up} and {down}");
}

/// Goal: however often one kind moves the share, the other keeps a part. Empty lists are handled
/// too.
#[test]
fn within_bounds() {
    let balance = Balance::new();
    for _ in 0..10_000 {
        balance.ghost_hit(u64::MAX, true, true, 0, [0, u64::MAX]);
    }
    let (meta, pd, pm) = balance.shares();
    assert_eq!((meta, pd, pm), (ONE - LEAST, ONE / 2, LEAST));
}

/// Goal: of the lists that are not empty, the one furthest above its target is chosen.
#[test]
fn the_fattest_gives_way() {
    let balance = Balance::new();
    let sizes = [[MB, 9 * MB], [MB, MB]];
    assert_eq!(balance.fattest(sizes, |_, _| true), Some((0, 1)));
    assert_eq!(balance.fattest(sizes, |kind, _| kind == 1).map(|(kind, _)| kind), Some(1));
    assert_eq!(balance.fattest(sizes, |_, _| false), None);
}
