//! Statistics of samples: mean with its interval, and whether two samples differ.
//!
//! # Theory
//! The interval of a mean is `q·SD/√n`. `q` is the normal distribution's from 30 numbers on, as in
//! the papers that this command follows, and Student's t below.
//!
//! Two samples are compared by two tests, since each misses something. Welch's t-test is about the
//! means, and assumes that they are normally distributed: a few very long times can hide a
//! difference. The test of Mann and Whitney is about the order of all numbers, so single numbers
//! don't disturb it, and it assumes nothing of their distribution.

use statrs::distribution::{ContinuousCDF, Normal, StudentsT};

/// From so many numbers on, the interval of a mean is that of the normal distribution.
const NORMAL_FROM: usize = 30;
/// Up to so many pairs of numbers, the test of Mann and Whitney is exact if no two are equal.
const EXACT_PAIRS: usize = 400;

/// Numbers, at least one, in rising order. They are finite.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Sample(Vec<f64>);

impl Sample {
    /// `None` if there are no numbers.
    pub(super) fn new(mut numbers: Vec<f64>) -> Option<Self> {
        numbers.sort_unstable_by(f64::total_cmp);
        (!numbers.is_empty()).then_some(Self(numbers))
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    fn n(&self) -> f64 {
        self.0.len() as f64
    }

    pub(super) fn min(&self) -> f64 {
        self.0[0]
    }

    pub(super) fn max(&self) -> f64 {
        self.0[self.0.len() - 1]
    }

    pub(super) fn mean(&self) -> f64 {
        self.0.iter().sum::<f64>() / self.n()
    }

    pub(super) fn median(&self) -> f64 {
        let middle = self.0.len() / 2;
        match self.0.len() % 2 {
            1 => self.0[middle],
            _ => f64::midpoint(self.0[middle - 1], self.0[middle]),
        }
    }

    /// The variance of what the sample was taken from (with n - 1). `None` of one number.
    pub(super) fn variance(&self) -> Option<f64> {
        let mean = self.mean();
        let squares = self.0.iter().map(|number| (number - mean).powi(2)).sum::<f64>();
        (self.0.len() > 1).then(|| squares / (self.n() - 1.0))
    }

    /// Half of the interval in which the true mean lies with this confidence. `None` of one number.
    pub(super) fn error(&self, confidence: f64) -> Option<f64> {
        error(self.variance()?.sqrt(), self.0.len(), confidence)
    }

    /// How many numbers are in each of `count` bins of equal width. The last has the maximum too.
    pub(super) fn bins(&self, count: usize) -> Vec<(f64, f64, u64)> {
        let (min, width) = (self.min(), (self.max() - self.min()) / count as f64);
        let end = |bin: usize| min + width * bin as f64;
        let mut bins: Vec<(f64, f64, u64)> = (0..count).map(|bin| (end(bin), end(bin + 1), 0)).collect();
        for number in &self.0 {
            // Without a width, all numbers are in the first.
            let bin = ((number - min) / width).floor();
            let bin = if bin.is_finite() { bin as usize } else { 0 };
            bins[bin.min(count - 1)].2 += 1;
        }
        bins
    }
}

/// The value that a normal variable exceeds with the probability `(1 - confidence) / 2`.
fn normal(confidence: f64) -> Option<f64> {
    Some(Normal::new(0.0, 1.0).ok()?.inverse_cdf(f64::midpoint(1.0, confidence)))
}

fn student(confidence: f64, freedom: f64) -> Option<f64> {
    Some(StudentsT::new(0.0, 1.0, freedom).ok()?.inverse_cdf(f64::midpoint(1.0, confidence)))
}

/// Half of the interval of a mean of so many numbers with this standard deviation.
fn error(deviation: f64, n: usize, confidence: f64) -> Option<f64> {
    let quantile =
        if n >= NORMAL_FROM { normal(confidence)? } else { student(confidence, n.checked_sub(1)? as f64)? };
    Some(quantile * deviation / (n as f64).sqrt())
}

/// Welch's t-test of two means.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Welch {
    /// The difference of the means.
    pub(super) difference: f64,
    /// Half of its interval.
    pub(super) error: f64,
    /// How probable so large a difference is if the true means are equal.
    pub(super) p: f64,
}

impl Welch {
    /// Compares `of` with `base`. `None` if one has a single number, or if neither varies.
    pub(super) fn new(of: &Sample, base: &Sample, confidence: f64) -> Option<Self> {
        let (a, b) = (of.variance()? / of.n(), base.variance()? / base.n());
        let spread = a + b;
        if spread <= 0.0 {
            return None;
        }
        let freedom = spread * spread / (a * a / (of.n() - 1.0) + b * b / (base.n() - 1.0));
        let difference = of.mean() - base.mean();
        let t = StudentsT::new(0.0, 1.0, freedom).ok()?;
        let p = 2.0 * t.cdf(-(difference / spread.sqrt()).abs());
        Some(Self { difference, error: student(confidence, freedom)? * spread.sqrt(), p })
    }
}

/// The test of Mann and Whitney.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct MannWhitney {
    /// How many pairs have the greater number in the first sample. Equal ones count half.
    pub(super) u: f64,
    /// How probable so uneven a count is if both come from the same distribution.
    pub(super) p: f64,
}

impl MannWhitney {
    /// Compares `of` with `base`.
    pub(super) fn new(of: &Sample, base: &Sample) -> Self {
        let mut all: Vec<(f64, bool)> = of.0.iter().map(|number| (*number, true)).collect();
        all.extend(base.0.iter().map(|number| (*number, false)));
        all.sort_unstable_by(|(a, _), (b, _)| a.total_cmp(b));
        // Equal numbers share the mean of their ranks.
        let (mut ranks, mut ties, mut at) = (0.0, 0.0, 0);
        for same in all.chunk_by(|(a, _), (b, _)| a == b) {
            let count = same.len() as f64;
            let rank = at as f64 + (count + 1.0) / 2.0;
            ranks += rank * same.iter().filter(|(_, is_of)| *is_of).count() as f64;
            ties += count.powi(3) - count;
            at += same.len();
        }
        let (n, m) = (of.n(), base.n());
        let u = ranks - n * (n + 1.0) / 2.0;
        let p = if ties == 0.0 && of.len() * base.len() <= EXACT_PAIRS {
            exact(u as usize, of.len(), base.len())
        } else {
            let total = n + m;
            let variance = n * m / 12.0 * (total + 1.0 - ties / (total * (total - 1.0)));
            let z = ((u - n * m / 2.0).abs() - 0.5).max(0.0) / variance.sqrt();
            // If all numbers are equal, nothing varies.
            if variance > 0.0 {
                Normal::new(0.0, 1.0).map_or(1.0, |normal| 2.0 * normal.cdf(-z))
            } else {
                1.0
            }
        };
        Self { u, p: p.min(1.0) }
    }
}

/// The probability of a count at least as far from its mean as `u`, of `n` and `m` numbers.
///
/// The counts of the orders by `u` are the coefficients of a Gaussian binomial: the product of
/// `(1 - x^(m+i)) / (1 - x^i)` for `i` from 1 to `n`.
fn exact(u: usize, n: usize, m: usize) -> f64 {
    let mut orders = vec![0.0; n * m + 1];
    orders[0] = 1.0;
    for i in 1..=n {
        for at in (m + i..orders.len()).rev() {
            orders[at] -= orders[at - m - i];
        }
        for at in i..orders.len() {
            orders[at] += orders[at - i];
        }
    }
    let all: f64 = orders.iter().sum();
    let below: f64 = orders[..=u].iter().sum();
    let above: f64 = orders[u..].iter().sum();
    2.0 * below.min(above) / all
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail so")]

    use super::*;

    fn sample(numbers: &[f64]) -> Sample {
        Sample::new(numbers.to_vec()).unwrap()
    }

    fn close(a: f64, b: f64, digits: i32) {
        assert!((a - b).abs() < 10_f64.powi(-digits) / 2.0 * (1.0 + 1e-6), "{a} is not {b}");
    }

    /// Goal: the interval of a paper's 31 reboots, whose standard deviation it prints, to six
    /// digits. Below 30 numbers it is Student's: 2.776 for 5 numbers and 95 %, as in any table.
    #[test]
    fn intervals() {
        close(error(2.550_985, 31, 0.9).unwrap(), 0.753_623, 6);
        close(error(1.0, 5, 0.95).unwrap() * 5_f64.sqrt(), 2.776_445, 6);
        close(error(1.0, 30, 0.95).unwrap() * 30_f64.sqrt(), 1.959_964, 6);
        close(error(1.0, 2, 0.9).unwrap() * 2_f64.sqrt(), 6.313_752, 5);
        assert_eq!(sample(&[3.0]).error(0.95), None);
    }

    /// Goal: moments are those of the definition, for odd, even and single samples.
    #[test]
    fn moments() {
        let of = sample(&[4.0, 1.0, 3.0, 2.0]);
        assert_eq!((of.min(), of.max(), of.mean(), of.median()), (1.0, 4.0, 2.5, 2.5));
        close(of.variance().unwrap(), 5.0 / 3.0, 9);
        let one = sample(&[7.0]);
        assert_eq!((one.median(), one.mean(), one.variance()), (7.0, 7.0, None));
        assert_eq!(sample(&[5.0, 9.0, 1.0]).median(), 5.0);
        assert!(Sample::new(Vec::new()).is_none());
    }

    /// Goal: each number is in one bin, the maximum in the last. Equal numbers are in the first.
    #[test]
    fn bins() {
        let counts = |of: &Sample, n| of.bins(n).iter().map(|(.., count)| *count).collect::<Vec<_>>();
        let of = sample(&[0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0]);
        assert_eq!(counts(&of, 5), [2, 2, 2, 2, 3]);
        assert_eq!((of.bins(5)[0].0, of.bins(5)[0].1, of.bins(5)[4].1), (0.0, 2.0, 10.0));
        assert_eq!(counts(&sample(&[2.0, 2.0]), 3), [2, 0, 0]);
        assert_eq!(counts(&sample(&[-1e308, 1e308]), 2).iter().sum::<u64>(), 2);
    }

    /// Goal: Welch's test gives what R's `t.test` gives for Student's sleep data: p = 0.07939, and
    /// an interval of -3.3654832 to 0.2054832.
    #[test]
    fn welch() {
        let one = sample(&[0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0]);
        let two = sample(&[1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4]);
        let found = Welch::new(&one, &two, 0.95).unwrap();
        close(found.p, 0.079_39, 5);
        close(found.difference - found.error, -3.365_483_2, 6);
        close(found.difference + found.error, 0.205_483_2, 6);
        let mirrored = Welch::new(&two, &one, 0.95).unwrap();
        close(mirrored.p, found.p, 12);
        assert_eq!(Welch::new(&sample(&[1.0]), &two, 0.95), None);
        assert_eq!(Welch::new(&sample(&[1.0, 1.0]), &sample(&[2.0, 2.0]), 0.95), None);
    }

    /// Goal: the exact test gives what counting all orders gives. With ties it gives what R's
    /// `wilcox.test` gives for the sleep data (W = 25.5, p = 0.06933).
    #[test]
    fn mann_whitney() {
        // Of 20 orders of 3 and 3 numbers, one has U = 0, and one U = 9.
        close(MannWhitney::new(&sample(&[1.0, 2.0, 3.0]), &sample(&[4.0, 5.0, 6.0])).p, 0.1, 12);
        let found = MannWhitney::new(&sample(&[4.0, 5.0, 6.0]), &sample(&[1.0, 2.0, 3.0]));
        assert_eq!((found.u, (found.p * 1e9).round()), (9.0, 1e8));
        // Orders of 4 and 3 by U, counted by hand: 1, 1, 2, 3, 4, 4, 5, 4, 4, 3, 2, 1, 1 of 35.
        let counts = [1, 1, 2, 3, 4, 4, 5, 4, 4, 3, 2, 1, 1];
        for u in 0..=12 {
            let below = counts[..=u].iter().sum::<i32>().min(counts[u..].iter().sum());
            close(exact(u, 4, 3), 2.0 * f64::from(below) / 35.0, 12);
        }
        let one = sample(&[0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0]);
        let two = sample(&[1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4]);
        let found = MannWhitney::new(&one, &two);
        assert_eq!(found.u, 25.5);
        close(found.p, 0.069_33, 5);
        assert_eq!(MannWhitney::new(&sample(&[2.0, 2.0]), &sample(&[2.0])).p, 1.0);
        let many = |from: u32| sample(&(from..from + 40).map(f64::from).collect::<Vec<_>>());
        assert!(MannWhitney::new(&many(0), &many(40)).p < 1e-12);
        close(MannWhitney::new(&many(0), &many(0)).p, 1.0, 12);
    }
}
