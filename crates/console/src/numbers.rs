//! Numbers for people, as OpenZFS writes them (`zfs_nicenum_format`).
//!
//! Counts, sizes and ratios are written as properties are, by the room that knows those.

#[cfg(test)]
mod tests;

pub use dsl::prop::text::{nicebytes as bytes, nicenum as num, ratio};

/// A number of bytes in a field that OpenZFS cuts at `width` characters.
pub fn num_cut(n: u64, width: usize) -> String {
    let mut s = num(n);
    s.truncate(width);
    s
}

/// A duration in nanoseconds, without decimals: `15ms`, `-` for nothing.
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

/// Whether a word is a number for the purposes of an interval (`zfs_isnumber`): digits and points, not ending in a point.
pub fn is_number(s: &str) -> bool {
    !s.is_empty() && s.bytes().all(|b| b.is_ascii_digit() || b == b'.') && !s.ends_with('.')
}
