//! Moments and round trips.

use std::time::Duration;

/// A moment: microseconds since a start that the caller chooses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Time(pub u64);

impl Time {
    /// The moment some time later.
    #[must_use]
    pub fn after(self, time: Duration) -> Time {
        Time(self.0.saturating_add(time.as_micros().min(u128::from(u64::MAX)) as u64))
    }

    /// How long it has been since an earlier moment.
    #[must_use]
    pub fn since(self, earlier: Time) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }
}

/// The time-out before the first measurement.
const FIRST: Duration = Duration::from_millis(400);
/// The shortest time-out. Receivers may delay acknowledgements by half of it.
const LEAST: Duration = Duration::from_millis(200);
/// The shortest time before a probe, where the acknowledgement was requested.
const PROBE: Duration = Duration::from_millis(30);
/// The longest time-out.
const MOST: Duration = Duration::from_secs(4);

/// The estimate of round trips to one peer (RFC 6298).
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Rtt {
    smooth: Option<Duration>,
    deviation: Duration,
}

impl Rtt {
    /// Takes a measurement into account.
    pub(super) fn measured(&mut self, sample: Duration) {
        let Some(smooth) = self.smooth else {
            self.smooth = Some(sample);
            self.deviation = sample / 2;
            return;
        };
        self.deviation = (self.deviation * 3 + smooth.abs_diff(sample)) / 4;
        self.smooth = Some((smooth * 7 + sample) / 8);
    }

    /// How long to wait for an acknowledgement, after `tries` that were in vain.
    pub(super) fn timeout(&self, tries: u32) -> Duration {
        let base = self.smooth.map_or(FIRST, |smooth| (smooth + self.deviation * 4).max(LEAST));
        (base * (1 << tries.min(6))).min(MOST)
    }

    /// How long to wait for an acknowledgement that was requested, before a probe.
    pub(super) fn probe(&self) -> Duration {
        self.smooth.map_or(FIRST, |smooth| (smooth * 2 + self.deviation * 4).max(PROBE))
    }

    /// The smoothed round trip and its deviation.
    pub(super) fn values(&self) -> (Duration, Duration) {
        (self.smooth.unwrap_or_default(), self.deviation)
    }
}
