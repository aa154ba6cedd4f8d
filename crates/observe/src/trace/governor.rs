//! How much of the processor time a session takes.

use parking_lot::Mutex;
use rustix::time::{ClockId, clock_gettime};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use std::time::{Duration, Instant};

use super::Reading;
use crate::op::nanos;
use crate::{Tunable, Unit};

/// The most that a session may take of the program's processor time.
pub static COST: Tunable = Tunable::new(
    "poolhouse_trace_cost_permille",
    10,
    1..=1000,
    Unit::Count,
    "most processor time that a session of 'poolhouse trace' takes, in parts of a thousand",
);

/// One of so many events is measured.
const MEASURED: u64 = 32;
/// What an event costs beside what is measured.
const BESIDE_NS: u64 = 25;
/// A measured event counts for at most so much: one that was interrupted would count for many.
const LONGEST_NS: u64 = 2_000;
/// Nothing is left out before a session has cost so much in all.
const FREE_NS: u64 = 2_000_000;
/// The same of a session that looks for the ancestors of processes: a command may have hundreds,
/// and each is looked up once.
const FREE_UNDER_NS: u64 = 50_000_000;
/// How often the cost is looked at.
const PERIOD: Duration = Duration::from_millis(100);
/// At most one of two to the power of this number is taken. Then nearly all of the cost is that of
/// leaving events out.
const MOST: u32 = 8;
const MILLION: u64 = 1_000_000;

/// The cost and the processor time at one moment.
#[derive(Debug, Clone, Copy)]
struct Moment {
    cost_ns: u64,
    cpu_ns: u64,
    at: Instant,
    /// The share of the period before it.
    newest: u64,
    /// The shift was raised then.
    has_raised: bool,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Governor {
    /// The limit of a test.
    #[cfg(test)]
    takes_all: AtomicBool,
    /// The highest shift that there was.
    #[cfg(test)]
    most: AtomicU32,
    /// One of two to the power of this number is taken.
    shift: AtomicU32,
    is_sampled: AtomicBool,
    cost_ns: AtomicU64,
    free_ns: u64,
    began_ns: u64,
    last: Mutex<Moment>,
}

/// Processor time of this program.
fn cpu_ns() -> u64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    seconds.saturating_mul(1_000_000_000).saturating_add(u64::try_from(time.tv_nsec).unwrap_or(0))
}

/// A part of a whole, in parts of a million.
fn share(part: u64, whole: u64) -> u64 {
    let share = u128::from(part) * u128::from(MILLION) / u128::from(whole.max(1));
    u64::try_from(share).unwrap_or(u64::MAX)
}

/// A number without the order of these, which operations at equal distances have (the end of
/// SplitMix64).
fn mixed(stamp: u64) -> u64 {
    let stamp = (stamp ^ stamp >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let stamp = (stamp ^ stamp >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    stamp ^ stamp >> 31
}

impl Governor {
    /// `is_under`: ancestors of processes are looked up.
    pub(super) fn begin(is_under: bool) -> Self {
        let began_ns = cpu_ns();
        let last = Mutex::new(Moment {
            cost_ns: 0,
            cpu_ns: began_ns,
            at: Instant::now(),
            newest: 0,
            has_raised: false,
        });
        let (shift, is_sampled) = (AtomicU32::new(0), AtomicBool::new(false));
        Self {
            #[cfg(test)]
            takes_all: AtomicBool::new(false),
            #[cfg(test)]
            most: AtomicU32::new(0),
            shift,
            is_sampled,
            cost_ns: AtomicU64::new(0),
            free_ns: if is_under { FREE_UNDER_NS } else { FREE_NS },
            began_ns,
            last,
        }
    }

    /// Takes all from now on.
    #[cfg(test)]
    pub(super) fn take_all(&self) {
        self.takes_all.store(true, Relaxed);
        self.shift.store(0, Relaxed);
        self.is_sampled.store(false, Relaxed);
    }

    /// The highest shift that there was.
    #[cfg(test)]
    pub(super) fn most(&self) -> u32 {
        self.most.load(Relaxed)
    }

    /// For how many an event counts whose operation began at this time. 0: it is not taken.
    pub(super) fn weight(&self, stamp: u64) -> u64 {
        match self.shift.load(Relaxed) {
            0 => 1,
            shift => u64::from(mixed(stamp) >> (u64::BITS - shift) == 0) << shift,
        }
    }

    /// Whether the event of this number of a thread is measured.
    pub(super) fn is_measured(&self, number: u64) -> bool {
        number.is_multiple_of(MEASURED)
    }

    /// Counts something that is rare and takes long.
    pub(super) fn took(&self, from: Instant) {
        self.cost_ns.fetch_add(nanos(from.elapsed()), Relaxed);
    }

    /// Counts an event that was measured from this time on. Returns whether a period has passed.
    pub(super) fn measured(&self, from: Instant) -> bool {
        let now = Instant::now();
        let ns = nanos(now.saturating_duration_since(from)).min(LONGEST_NS);
        self.cost_ns.fetch_add((ns + BESIDE_NS) * MEASURED, Relaxed);
        let Some(mut last) = self.last.try_lock() else { return false };
        if now.saturating_duration_since(last.at) < PERIOD {
            return false;
        }
        let (cost_ns, cpu_ns) = (self.cost_ns.load(Relaxed), cpu_ns());
        let newest = share(cost_ns - last.cost_ns, cpu_ns.saturating_sub(last.cpu_ns));
        let all = share(cost_ns, cpu_ns.saturating_sub(self.began_ns));
        let (limit, shift) = (COST.get() * (MILLION / 1000), self.shift.load(Relaxed));
        let all = if cost_ns < self.free_ns { 0 } else { all };
        // Leaving events out costs something too. If that is most of it, leaving out more is no
        // use.
        let is_useless = last.has_raised && newest > last.newest / 4 * 3;
        let most = if is_useless { shift } else { MOST };
        let wanted = next(shift, newest, all, limit).min(most);
        *last = Moment { cost_ns, cpu_ns, at: now, newest, has_raised: wanted > shift || is_useless };
        #[cfg(test)]
        let wanted = if self.takes_all.load(Relaxed) { 0 } else { wanted };
        #[cfg(test)]
        self.most.fetch_max(wanted, Relaxed);
        self.shift.store(wanted, Relaxed);
        self.is_sampled.fetch_or(wanted > 0, Relaxed);
        true
    }

    /// Adds what a reading says of it.
    pub(super) fn state(&self, reading: &mut Reading) {
        reading.one_of = 1 << self.shift.load(Relaxed);
        reading.is_sampled = self.is_sampled.load(Relaxed);
        reading.cpu_ns = cpu_ns().saturating_sub(self.began_ns);
        reading.cost_ppm = share(self.cost_ns.load(Relaxed), reading.cpu_ns);
    }
}

/// The next shift, by the share of the last period, that of all, and the limit.
fn next(shift: u32, newest: u64, all: u64, limit: u64) -> u32 {
    if newest > limit && all > limit / 10 * 9 {
        return (shift + 1).min(MOST);
    }
    // Twice as many still have room.
    if newest < limit / 3 && all < limit { shift.saturating_sub(1) } else { shift }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a session takes less if it costs too much, and more when there is room.
    #[test]
    fn takes_less_and_more() {
        assert_eq!(next(0, 20_000, 15_000, 10_000), 1);
        assert_eq!(next(3, 9_000, 9_000, 10_000), 3);
        assert_eq!(next(3, 3_000, 9_000, 10_000), 2);
        assert_eq!(next(3, 3_000, 11_000, 10_000), 3);
        assert_eq!(next(0, 0, 0, 10_000), 0);
        assert_eq!(next(MOST, 99_000, 99_000, 10_000), MOST);
        // A burst after a quiet time has room.
        assert_eq!(next(0, 20_000, 1_000, 10_000), 0);
    }

    /// Goal: what is taken stands for all: of many operations, the weights add up to their number.
    #[test]
    fn weights_add_up() {
        let governor = Governor::begin(false);
        for shift in [0, 1, 4, 8] {
            governor.shift.store(shift, Relaxed);
            let count = 1_000_000u64;
            let sum: u64 = (0..count).map(|n| governor.weight(n * 1009)).sum();
            let error = sum.abs_diff(count) as f64;
            // Three standard errors of the count, if one of 2^shift is taken.
            let weight = 2f64.powi(shift as i32);
            let bound = 3.0 * (count as f64 / weight).sqrt() * weight;
            assert!(shift == 0 && error == 0.0 || error < bound, "{shift}: {sum}");
        }
    }
}
