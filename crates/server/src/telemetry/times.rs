//! Distributions of times, as replies have them.

use api::TopTimes;
use observe::LatencySnapshot;

/// The times that were seen.
pub(super) fn times(seen: LatencySnapshot) -> TopTimes {
    TopTimes { sum: seen.sum, max: seen.max, buckets: seen.buckets }
}
