//! Numbers for people, as OpenZFS writes them (`zfs_nicenum_format`).
//!
//! A size has at most five characters: as many decimals as fit, none where the number is an even multiple of its unit.

#[cfg(test)]
mod tests;

/// A count: `1.50K`, `7`.
pub fn num(n: u64) -> String {
    scaled(n, ["", "K", "M", "G", "T", "P", "E"])
}

/// A number of bytes: `1.50K`, `7B`.
pub fn bytes(n: u64) -> String {
    scaled(n, ["B", "K", "M", "G", "T", "P", "E"])
}

/// A number of bytes in a field that OpenZFS cuts at `width` characters.
pub fn num_cut(n: u64, width: usize) -> String {
    let mut s = num(n);
    s.truncate(width);
    s
}

/// A ratio in hundredths: `1.50x`, or `1.50` exactly.
pub fn ratio(hundredths: u64, exact: bool) -> String {
    format!("{}.{:02}{}", hundredths / 100, hundredths % 100, if exact { "" } else { "x" })
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

fn scaled(n: u64, units: [&str; 7]) -> String {
    let (mut whole, mut unit) = (n, 0);
    while whole >= 1024 && unit < 6 {
        whole /= 1024;
        unit += 1;
    }
    let size = 1u64 << (10 * unit);
    if n.is_multiple_of(size) {
        return format!("{whole}{}", units[unit]);
    }
    let value = n as f64 / size as f64;
    let mut text = String::new();
    for decimals in [2, 1, 0] {
        text = format!("{value:.decimals$}{}", units[unit]);
        if text.len() <= 5 {
            break;
        }
    }
    text
}

/// Whether a word is a number for the purposes of an interval (`zfs_isnumber`): digits and points, not ending in a point.
pub fn is_number(s: &str) -> bool {
    !s.is_empty() && s.bytes().all(|b| b.is_ascii_digit() || b == b'.') && !s.ends_with('.')
}
