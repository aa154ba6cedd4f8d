//! The formats of amounts in a report.

/// Bytes with a unit of powers of 1024; above bytes with one decimal (`f_bytes`).
pub(super) fn bytes(n: i128) -> String {
    const UNITS: [&str; 8] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB", "ZiB", "YiB"];
    if n < 1024 {
        return format!("{n} Bytes");
    }
    let power = (n.ilog2() / 10).min(8);
    format!("{:.1} {}", n as f64 / 1024f64.powi(power as i32), UNITS[power as usize - 1])
}

/// A count with a letter of powers of 1000 (`f_hits`).
pub(super) fn count(n: i128) -> String {
    const LETTERS: [&str; 8] = ["k", "M", "G", "T", "P", "E", "Z", "Y"];
    if n < 1000 {
        return n.to_string();
    }
    let power = (n.ilog10() / 3).min(8);
    format!("{:.1}{}", n as f64 / 1000f64.powi(power as i32), LETTERS[power as usize - 1])
}

/// The percentage of a part in a whole (`f_perc`).
///
/// A part that rounds to zero without being zero shows as such. A whole of zero has no percentage.
pub(super) fn percent(part: f64, whole: f64) -> String {
    if whole == 0.0 {
        return "n/a".to_owned();
    }
    match format!("{:.1} %", 100.0 * part / whole) {
        zero if zero == "0.0 %" && part > 0.0 => "< 0.1 %".to_owned(),
        text => text,
    }
}
