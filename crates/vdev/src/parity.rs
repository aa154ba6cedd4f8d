//! Parity over GF(2^8): up to three columns P, Q, R, and recovery from them.
//!
//! # Theory
//! The bytes at one place of the n data columns are numbers d(0) .. d(n-1). They are elements of
//! the field of 256 elements with the polynomial x^8 + x^4 + x^3 + x^2 + 1. A parity column is the
//! sum of g^(n-1-i) d(i), with g = 1, 2 and 4 for P, Q and R. Horner's rule computes it with one
//! multiplication by g for each column.
//!
//! Any k lost data columns follow from any k parity columns. The coefficients form a k by k matrix
//! whose columns are powers of distinct elements. It can be inverted for up to 255 columns. A
//! column that is shorter than the parity counts as followed by zeros.

/// Most parity columns (`VDEV_RAIDZ_MAXPARITY`).
pub(crate) const MAX_PARITY: usize = 3;

/// x times 2.
const fn times2(x: u8) -> u8 {
    (x << 1) ^ if x & 0x80 == 0 { 0 } else { 0x1d }
}

/// Powers of 2, twice around, so that a sum of two logarithms needs no reduction.
const EXP: [u8; 510] = {
    let mut table = [0; 510];
    let (mut i, mut x) = (0, 1);
    while i < 510 {
        table[i] = x;
        x = times2(x);
        i += 1;
    }
    table
};

/// Logarithms to base 2; that of 0 is never used.
const LOG: [u8; 256] = {
    let mut table = [0; 256];
    let mut i = 0;
    while i < 255 {
        table[EXP[i] as usize] = i as u8;
        i += 1;
    }
    table
};

fn mul(a: u8, b: u8) -> u8 {
    if a == 0 || b == 0 {
        0
    } else {
        EXP[usize::from(LOG[usize::from(a)]) + usize::from(LOG[usize::from(b)])]
    }
}

fn inv(a: u8) -> u8 {
    EXP[255 - usize::from(LOG[usize::from(a)])]
}

/// Coefficient of data column `i` of `n` in parity column `p`.
fn coefficient(p: usize, i: usize, n: usize) -> u8 {
    EXP[p * (n - 1 - i) % 255]
}

/// Computes the parity columns of a row, one to three, each as long as the longest data column. A
/// shorter data column counts as followed by zeros.
///
/// # Panics
/// If there are more than three parity columns, if they differ in length, or if a length is no
/// multiple of 64 bytes. Sectors always are.
pub(crate) fn encode(data: &[&[u8]], parity: &mut [&mut [u8]]) {
    match parity {
        [p] => encode_columns::<1, 8>(data, [p]),
        [p, q] => encode_columns::<2, 8>(data, [p, q]),
        [p, q, r] => encode_columns::<3, 4>(data, [p, q, r]),
        _ => panic!("a row has one to three parity columns"),
    }
}

/// Walks the columns in steps of `W` words of eight bytes: as many as the registers hold for each
/// of `N` sums.
fn encode_columns<const N: usize, const W: usize>(data: &[&[u8]], mut parity: [&mut [u8]; N]) {
    let step = 8 * W;
    let height = parity[0].len();
    assert!(parity.iter().all(|p| p.len() == height), "parity columns are of one length");
    assert!(data.iter().all(|d| d.len() <= height && d.len().is_multiple_of(step)), "data are whole sectors");
    for at in (0..height).step_by(step) {
        let mut sums = [[0u64; W]; N];
        for col in data {
            for (n, sum) in sums.iter_mut().enumerate() {
                for _ in 0..n {
                    sum.iter_mut().for_each(|x| *x = times2_each(*x));
                }
            }
            let Some(bytes) = col.get(at..at + step) else { continue };
            for (i, raw) in bytes.as_chunks::<8>().0.iter().enumerate() {
                let word = u64::from_ne_bytes(*raw);
                sums.iter_mut().for_each(|sum| sum[i] ^= word);
            }
        }
        for (out, sum) in parity.iter_mut().zip(&sums) {
            for (raw, word) in out[at..at + step].as_chunks_mut::<8>().0.iter_mut().zip(sum) {
                *raw = word.to_ne_bytes();
            }
        }
    }
}

/// Each byte of the word times 2, whatever the order of the bytes.
#[inline(always)]
const fn times2_each(x: u64) -> u64 {
    const HIGH: u64 = 0x8080_8080_8080_8080;
    let high = x & HIGH;
    // All bits of those bytes whose highest was set.
    let mask = (high << 1).wrapping_sub(high >> 7);
    ((x ^ high) << 1) ^ (mask & 0x1d1d_1d1d_1d1d_1d1d)
}

/// Computes parity column `p` (0 is P) of the data columns into `out`, which is as long as the
/// longest.
fn generate_one(p: usize, data: &[&[u8]], out: &mut [u8]) {
    out.fill(0);
    for col in data {
        match p {
            0 => {}
            1 => out.iter_mut().for_each(|x| *x = times2(*x)),
            _ => out.iter_mut().for_each(|x| *x = times2(times2(*x))),
        }
        out.iter_mut().zip(*col).for_each(|(x, d)| *x ^= d);
    }
}

/// Computes the parity columns of a row. Each is as long as the longest data column.
pub(crate) fn generate(data: &[&[u8]], parity: &mut [Vec<u8>]) {
    for (p, out) in parity.iter_mut().enumerate() {
        generate_one(p, data, out);
    }
}

/// Recovers the lost data columns of a row, each `len` bytes, in their order. `None` when there is
/// less parity than loss.
///
/// `len` is the parity's length, so a short column is followed by zeros.
pub(crate) fn recover(data: &[Option<&[u8]>], parity: &[Option<&[u8]>], len: usize) -> Option<Vec<Vec<u8>>> {
    let n = data.len();
    let lost: Vec<usize> = (0..n).filter(|i| data[*i].is_none()).collect();
    let k = lost.len();
    let usable: Vec<(usize, &[u8])> =
        parity.iter().enumerate().filter_map(|(p, bytes)| Some((p, (*bytes)?))).take(k).collect();
    if usable.len() < k {
        return None;
    }
    // Without the known columns, each parity is the sum of what the lost ones contribute.
    let known: Vec<&[u8]> = data.iter().map(|d| d.unwrap_or(&[])).collect();
    let mut rest = vec![vec![0; len]; k];
    for ((p, bytes), out) in usable.iter().zip(&mut rest) {
        generate_one(*p, &known, out);
        out.iter_mut().zip(*bytes).for_each(|(x, b)| *x ^= b);
    }
    let mut matrix = [[0; MAX_PARITY]; MAX_PARITY];
    for (row, (p, _)) in matrix.iter_mut().zip(&usable) {
        for (cell, i) in row.iter_mut().zip(&lost) {
            *cell = coefficient(*p, *i, n);
        }
    }
    let inverse = invert(matrix, k);
    let mut out = vec![vec![0; len]; k];
    for (col, factors) in out.iter_mut().zip(&inverse) {
        for (bytes, factor) in rest.iter().zip(factors) {
            add_multiple(col, bytes, *factor);
        }
    }
    Some(out)
}

/// Adds `factor` times `bytes` to `out`.
fn add_multiple(out: &mut [u8], bytes: &[u8], factor: u8) {
    match factor {
        0 => {}
        1 => out.iter_mut().zip(bytes).for_each(|(x, b)| *x ^= b),
        _ => {
            let table: [u8; 256] = std::array::from_fn(|b| mul(factor, b as u8));
            out.iter_mut().zip(bytes).for_each(|(x, b)| *x ^= table[usize::from(*b)]);
        }
    }
}

type Matrix = [[u8; MAX_PARITY]; MAX_PARITY];

/// Inverts the upper left k by k part, by Gauss and Jordan.
fn invert(mut m: Matrix, k: usize) -> Matrix {
    let mut inverse: Matrix = std::array::from_fn(|i| std::array::from_fn(|j| u8::from(i == j)));
    for i in 0..k {
        let pivot = (i..k).find(|r| m[*r][i] != 0).expect("powers of distinct elements are independent");
        m.swap(i, pivot);
        inverse.swap(i, pivot);
        let scale = inv(m[i][i]);
        for j in 0..k {
            m[i][j] = mul(m[i][j], scale);
            inverse[i][j] = mul(inverse[i][j], scale);
        }
        for r in (0..k).filter(|r| *r != i) {
            let factor = m[r][i];
            for j in 0..k {
                m[r][j] ^= mul(factor, m[i][j]);
                inverse[r][j] ^= mul(factor, inverse[i][j]);
            }
        }
    }
    inverse
}

#[cfg(test)]
mod tests;
