//! Printing values as `zfs get` and `zfs list` do.

use super::{Prop, PropKind, Property, Source, Value};

/// How to print.
#[derive(Clone, Copy)]
pub struct Style<'a> {
    /// Exact numbers and seconds, as with `-p`.
    pub literal: bool,
    /// Seconds that local time is ahead of UTC at a given time.
    pub utc_offset: &'a dyn Fn(u64) -> i64,
}

impl std::fmt::Debug for Style<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Style").field("literal", &self.literal).finish_non_exhaustive()
    }
}

/// Exact numbers, and times as seconds.
pub const LITERAL: Style<'static> = Style { literal: true, utc_offset: &|_| 0 };
/// Numbers with units, and times in UTC.
pub const NICE: Style<'static> = Style { literal: false, utc_offset: &|_| 0 };

/// A number in five characters with a binary unit; bytes below 1024 get a `B` (`zfs_nicebytes`).
pub fn nicebytes(n: u64) -> String {
    nice(n, "B")
}

/// A number in five characters with a binary unit (`zfs_nicenum`).
pub fn nicenum(n: u64) -> String {
    nice(n, "")
}

fn nice(n: u64, one: &str) -> String {
    const UNITS: [&str; 7] = ["", "K", "M", "G", "T", "P", "E"];
    let index = (n.checked_ilog2().unwrap_or(0) / 10) as usize;
    let unit = if index == 0 { one } else { UNITS[index] };
    let base = 1u64 << (10 * index);
    if n.is_multiple_of(base) {
        return format!("{}{unit}", n >> (10 * index));
    }
    // The most decimals that fit into five characters.
    let value = n as f64 / base as f64;
    (0..=2)
        .rev()
        .map(|places| format!("{value:.places$}{unit}"))
        .find(|s| s.len() <= 5)
        .unwrap_or_else(|| format!("{value:.0}{unit}"))
}

/// A ratio in hundredths: `2.63`, and an `x` unless literal.
pub fn ratio(hundredths: u64, literal: bool) -> String {
    format!("{}.{:02}{}", hundredths / 100, hundredths % 100, if literal { "" } else { "x" })
}

/// Converts days since 1970 to year, month (1 to 12), day, and day of the week (0 is Sunday).
///
/// The calendar is the proleptic Gregorian one.
fn civil(days: i64) -> (i64, u32, u32, u32) {
    // Days from 0000-03-01, in eras of 400 years.
    let z = days + 719_468;
    let era = z.div_euclid(146_097);
    let doe = z.rem_euclid(146_097);
    let yoe = (doe - doe / 1_460 + doe / 36_524 - doe / 146_096) / 365;
    let doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
    let mp = (5 * doy + 2) / 153;
    let month = if mp < 10 { mp + 3 } else { mp - 9 };
    let year = yoe + era * 400 + i64::from(month <= 2);
    (year, month as u32, (doy - (153 * mp + 2) / 5 + 1) as u32, (days + 4).rem_euclid(7) as u32)
}

/// Prints a time as `%a %b %e %k:%M %Y`, or with seconds.
pub fn time(seconds: u64, style: &Style<'_>, with_seconds: bool) -> String {
    const DAYS: [&str; 7] = ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"];
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    // Times past the year 9999 are damage; the number is better than nonsense.
    if style.literal || seconds > 253_402_300_799 {
        return seconds.to_string();
    }
    let local = seconds as i64 + (style.utc_offset)(seconds);
    let (days, of_day) = (local.div_euclid(86_400), local.rem_euclid(86_400));
    let (year, month, day, weekday) = civil(days);
    let (h, m, s) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
    let clock = if with_seconds { format!("{h:2}:{m:02}:{s:02}") } else { format!("{h:2}:{m:02}") };
    format!("{} {} {day:2} {clock} {year}", DAYS[weekday as usize], MONTHS[month as usize - 1])
}

impl Property {
    /// The value as text (`zfs_prop_get`).
    pub fn text(&self, style: &Style<'_>) -> String {
        let n = match &self.value {
            Value::Text(s) => return s.clone(),
            Value::Number(n) => *n,
        };
        let Some(prop) = self.prop else { return n.to_string() };
        let desc = prop.desc();
        match prop {
            Prop::Creation => time(n, style, false),
            Prop::SnapshotsChanged => time(n, style, true),
            Prop::Compressratio | Prop::Refratio => ratio(n, style.literal),
            Prop::Mounted => (if n == 0 { "no" } else { "yes" }).to_owned(),
            Prop::FilesystemLimit | Prop::SnapshotLimit | Prop::FilesystemCount | Prop::SnapshotCount
                if n == u64::MAX =>
            {
                "none".to_owned()
            }
            Prop::Quota | Prop::Refquota | Prop::Reservation | Prop::Refreservation
                if n == 0 && !style.literal =>
            {
                "none".to_owned()
            }
            _ if desc.is_id() => n.to_string(),
            _ if desc.kind == PropKind::Index => {
                desc.index_name(n).map_or_else(|| n.to_string(), str::to_owned)
            }
            _ if style.literal => n.to_string(),
            Prop::Quota
            | Prop::Refquota
            | Prop::Reservation
            | Prop::Refreservation
            | Prop::Referenced
            | Prop::Available
            | Prop::Used
            | Prop::Usedsnap
            | Prop::Usedds
            | Prop::Usedrefreserv
            | Prop::Usedchild => nicebytes(n),
            _ => nicenum(n),
        }
    }
}

impl std::fmt::Display for Source {
    /// Prints the source as the SOURCE column does.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Source::None => f.write_str("-"),
            Source::Default => f.write_str("default"),
            Source::Local => f.write_str("local"),
            Source::Inherited(from) => write!(f, "inherited from {from}"),
            Source::Received => f.write_str("received"),
            Source::Temporary => f.write_str("temporary"),
        }
    }
}
