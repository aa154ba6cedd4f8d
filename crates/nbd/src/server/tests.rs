//! Log messages about refused clients.

use super::*;

/// Goal: the log has the first refused client at once, and the number of later ones once a minute.
#[test]
fn many_that_are_turned_away_are_one_line() {
    let (common, begun) = (Common::default(), Instant::now());
    assert_eq!(common.turn_away(begun), Some(1));
    for second in 0..59 {
        assert_eq!(common.turn_away(begun + Duration::from_secs(second)), None);
    }
    assert_eq!(common.turn_away(begun + QUIET), Some(60));
    assert_eq!(common.turn_away(begun + QUIET), None);
    assert_eq!(common.turn_away(begun + 2 * QUIET), Some(2));
}
