//! Numbers in readable form (`zfs_nicenum_format`).
//!
//! Counts, sizes and ratios have the form of properties; the `dsl` crate writes them.

#[cfg(test)]
mod tests;

pub use dsl::prop::text::{nicebytes as bytes, nicenum as num, ratio};

/// A count in readable form, cut to `width` characters as OpenZFS cuts it to its field.
pub fn num_cut(n: u64, width: usize) -> String {
    let mut s = num(n);
    s.truncate(width);
    s
}

/// A duration of `n` nanoseconds, without decimals: `15ms`; `-` for 0.
pub fn time_ns(n: u64) -> String {
    if n == 0 {
        return "-".into();
    }
    let units = ["ns", "us", "ms", "s", "?"];
    let (mut v, mut unit) = (n, 0);
    while v >= 1000 && unit < 4 {
        v /= 1000;
        unit += 1;
    }
    format!("{v}{}", units[unit])
}

/// Whether a word can be an interval: digits and points, the last no point (`zfs_isnumber`).
pub fn is_number(s: &str) -> bool {
    !s.is_empty() && s.bytes().all(|b| b.is_ascii_digit() || b == b'.') && !s.ends_with('.')
}
