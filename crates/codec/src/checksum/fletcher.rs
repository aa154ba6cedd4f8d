//! Fletcher-2 and Fletcher-4 (`zfs_fletcher.c`).
//!
//! # Theory
//! Fletcher-4 keeps four running sums: `a += word; b += a; c += b; d += c`, all modulo 2^64. Word
//! by word, each step waits for the one before. So this code sums [`LANES`] interleaved streams
//! side by side, and folds them into one at the end. The compiler turns the streams into vector
//! additions.
//!
//! The folding: let a word have `r` words from itself to the end, itself included. It has entered
//! `b` `C(r, 1)` times, `c` `C(r+1, 2)` times, and `d` `C(r+2, 3)` times. In lane `j` the same word
//! has `m` words of the lane to the end, and `r = LANES * m - j`. So each weight is a polynomial in
//! `m`.
//!
//! Backward differences at 0 express it as an integer combination of the lane's own weights `1,
//! C(m, 1), C(m+1, 2), C(m+2, 3)`. The table [`FOLD`] has these integers. They are exact, so the
//! modulus does no harm.

use super::Checksum;
use ondisk::ByteOrder;

/// Number of streams that are summed side by side.
const LANES: usize = 4;

/// `FOLD[j][s][t]`: how often sum `t` of lane `j` goes into sum `s` of the whole, modulo 2^64.
const FOLD: [[[u64; 4]; 4]; LANES] = fold_table();

/// C(r + s - 1, s) as a polynomial, for any r: the weight in sum `s` of a word that is `r` from the
/// end.
const fn weight(s: usize, r: i64) -> i64 {
    match s {
        0 => 1,
        1 => r,
        2 => r * (r + 1) / 2,
        _ => r * (r + 1) * (r + 2) / 6,
    }
}

const fn fold_table() -> [[[u64; 4]; 4]; LANES] {
    let mut table = [[[0; 4]; 4]; LANES];
    let mut j = 0;
    while j < LANES {
        let mut s = 0;
        while s < 4 {
            // The values of the polynomial at m = 0, -1, -2, -3, then their backward differences.
            let mut f = [0i64; 4];
            let mut i = 0;
            while i < 4 {
                f[i] = weight(s, -((LANES * i + j) as i64));
                i += 1;
            }
            let diff = [f[0], f[0] - f[1], f[0] - 2 * f[1] + f[2], f[0] - 3 * f[1] + 3 * f[2] - f[3]];
            let mut t = 0;
            while t < 4 {
                table[j][s][t] = diff[t] as u64;
                t += 1;
            }
            s += 1;
        }
        j += 1;
    }
    table
}

/// A Fletcher-4 sum in progress, for data in several parts (`fletcher_4_incremental_native`).
#[derive(Debug, Clone, Copy)]
pub struct Fletcher4 {
    order: ByteOrder,
    sum: [u64; 4],
}

impl Fletcher4 {
    /// A sum of no data, for words of `order`.
    pub fn new(order: ByteOrder) -> Self {
        Self { order, sum: [0; 4] }
    }

    /// Adds `data` to the sum.
    ///
    /// # Panics
    /// If the length of `data` is not a multiple of 4.
    pub fn append(&mut self, data: &[u8]) {
        let (words, tail) = data.as_chunks::<4>();
        assert!(tail.is_empty(), "Fletcher-4 is defined over whole 32-bit words");
        let (rows, rest) = words.as_chunks::<LANES>();
        let lanes = sum_rows(self.order, rows);
        self.join(&lanes, rows.len() * LANES);
        for raw in rest {
            let word = match self.order {
                ByteOrder::Little => u32::from_le_bytes(*raw),
                ByteOrder::Big => u32::from_be_bytes(*raw),
            };
            self.push(word);
        }
    }

    /// Adds `len` bytes whose own sum is known. They are not read.
    ///
    /// # Panics
    /// If `len` is not a multiple of 4.
    pub fn append_summed(&mut self, sum: &Checksum, len: usize) {
        assert!(len.is_multiple_of(4), "Fletcher-4 is defined over whole 32-bit words");
        self.join(&[[0; LANES]; 4], len / 4);
        for (total, added) in self.sum.iter_mut().zip(sum.0) {
            *total = total.wrapping_add(added);
        }
    }

    /// The sum of all appended data.
    pub fn finish(self) -> Checksum {
        Checksum(self.sum)
    }

    fn push(&mut self, word: u32) {
        let [a, b, c, d] = &mut self.sum;
        *a = a.wrapping_add(word.into());
        *b = b.wrapping_add(*a);
        *c = c.wrapping_add(*b);
        *d = d.wrapping_add(*c);
    }

    /// Appends `n` words whose lane sums are known. The earlier sums grow as `n` more steps would
    /// make them.
    fn join(&mut self, lanes: &[[u64; LANES]; 4], n: usize) {
        let steps = n as u128;
        let grow =
            [1, n as u64, (steps * (steps + 1) / 2) as u64, (steps * (steps + 1) * (steps + 2) / 6) as u64];
        let mut sum = [0u64; 4];
        for (s, total) in sum.iter_mut().enumerate() {
            for t in 0..=s {
                *total = total.wrapping_add(self.sum[t].wrapping_mul(grow[s - t]));
            }
            for (j, fold) in FOLD.iter().enumerate() {
                for t in 0..=s {
                    *total = total.wrapping_add(lanes[t][j].wrapping_mul(fold[s][t]));
                }
            }
        }
        self.sum = sum;
    }
}

/// The four sums of each lane over `rows`, with the widest vectors of this processor.
fn sum_rows(order: ByteOrder, rows: &[[[u8; 4]; LANES]]) -> [[u64; LANES]; 4] {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        #[allow(unsafe_code, reason = "measured: 3 times as fast as what every x86-64 has")]
        // SAFETY: the processor has the feature for which the function is built. Callers have no
        // other duty.
        return unsafe { sum_rows_avx2(order, rows) };
    }
    sum_rows_plain(order, rows)
}

/// [`sum_rows_plain`], built for 256-bit vectors.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn sum_rows_avx2(order: ByteOrder, rows: &[[[u8; 4]; LANES]]) -> [[u64; LANES]; 4] {
    sum_rows_plain(order, rows)
}

#[inline(always)]
fn sum_rows_plain(order: ByteOrder, rows: &[[[u8; 4]; LANES]]) -> [[u64; LANES]; 4] {
    match order {
        ByteOrder::Little => sum_lanes(rows, u32::from_le_bytes),
        ByteOrder::Big => sum_lanes(rows, u32::from_be_bytes),
    }
}

/// The four sums of each lane over `rows`.
#[inline(always)]
fn sum_lanes(rows: &[[[u8; 4]; LANES]], word: impl Fn([u8; 4]) -> u32) -> [[u64; LANES]; 4] {
    let [mut a, mut b, mut c, mut d] = [[0u64; LANES]; 4];
    for row in rows {
        for j in 0..LANES {
            a[j] = a[j].wrapping_add(word(row[j]).into());
            b[j] = b[j].wrapping_add(a[j]);
            c[j] = c[j].wrapping_add(b[j]);
            d[j] = d[j].wrapping_add(c[j]);
        }
    }
    [a, b, c, d]
}

/// A Fletcher-2 sum in progress: two interleaved streams of 64-bit words, two sums each.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fletcher2 {
    order: ByteOrder,
    sum: [u64; 4],
}

impl Fletcher2 {
    pub(super) fn new(order: ByteOrder) -> Self {
        Self { order, sum: [0; 4] }
    }

    pub(super) fn append(&mut self, data: &[u8]) {
        let (words, tail) = data.as_chunks::<8>();
        let (pairs, odd) = words.as_chunks::<2>();
        assert!(tail.is_empty() && odd.is_empty(), "Fletcher-2 is defined over whole pairs of 64-bit words");
        match self.order {
            ByteOrder::Little => self.add(pairs, u64::from_le_bytes),
            ByteOrder::Big => self.add(pairs, u64::from_be_bytes),
        }
    }

    #[inline(always)]
    fn add(&mut self, pairs: &[[[u8; 8]; 2]], word: impl Fn([u8; 8]) -> u64) {
        let [mut a0, mut a1, mut b0, mut b1] = self.sum;
        for [even, odd] in pairs {
            a0 = a0.wrapping_add(word(*even));
            a1 = a1.wrapping_add(word(*odd));
            b0 = b0.wrapping_add(a0);
            b1 = b1.wrapping_add(a1);
        }
        self.sum = [a0, a1, b0, b1];
    }

    pub(super) fn finish(self) -> Checksum {
        Checksum(self.sum)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Goal: data whose sum is known adds to a sum what its bytes would.
        #[test]
        fn known_sums_add_up(
            before in prop::collection::vec(any::<u32>(), 0..100),
            data in prop::collection::vec(any::<u32>(), 0..100),
        ) {
            let bytes = |words: &[u32]| words.iter().flat_map(|w| w.to_le_bytes()).collect::<Vec<u8>>();
            let mut own = Fletcher4::new(ByteOrder::Little);
            own.append(&bytes(&data));
            let mut known = Fletcher4::new(ByteOrder::Little);
            known.append(&bytes(&before));
            let mut all = known;
            all.append(&bytes(&data));
            known.append_summed(&own.finish(), 4 * data.len());
            prop_assert_eq!(known.finish(), all.finish());
        }

        /// Goal: vectors, of any kind that this machine has, sum as plain code does.
        #[test]
        fn vectors_sum_alike(words in prop::collection::vec(any::<[[u8; 4]; LANES]>(), 0..300), big in any::<bool>()) {
            let order = if big { ByteOrder::Big } else { ByteOrder::Little };
            prop_assert_eq!(sum_rows(order, &words), sum_rows_plain(order, &words));
        }
    }
}
