//! Dates and times in the forms that OpenZFS's commands print.

use jiff::{Timestamp, Zoned, tz::TimeZone};

/// A time zone to print in, and a source of the present time.
#[derive(Clone)]
pub struct Clock {
    zone: TimeZone,
    now: fn() -> u64,
}

impl Clock {
    /// The system's clock and time zone.
    pub fn system() -> Self {
        Self { zone: TimeZone::system(), now: || u64::try_from(Timestamp::now().as_second()).unwrap_or(0) }
    }

    /// A clock in UTC with this source of the time, for tests.
    pub fn fixed(now: fn() -> u64) -> Self {
        Self { zone: TimeZone::UTC, now }
    }

    /// The present time in seconds since the epoch.
    pub fn now(&self) -> u64 {
        (self.now)()
    }

    /// Formats as `Sat Nov 21 19:28:00 2026` (`ctime`, without its newline).
    pub fn ctime(&self, t: u64) -> String {
        self.format(t, |z| format!("{}:{}:{:02} {}", hour_minute(z, true), minute(z), z.second(), z.year()))
    }

    /// Formats as `Sat Nov 07 19:28:00 2026`: like [`Clock::ctime`], with the day padded by a zero
    /// (`cmd/arc_summary`).
    pub fn padded(&self, t: u64) -> String {
        self.format(t, |z| {
            format!("{} {:02} {:02}:{}:{:02} {}", day(z), z.day(), z.hour(), minute(z), z.second(), z.year())
        })
    }

    /// Formats as `Sat Nov 21 19:28 2026`, the hour padded with a space (property `creation`).
    pub fn creation(&self, t: u64) -> String {
        self.format(t, |z| format!("{}:{} {}", hour_minute(z, false), minute(z), z.year()))
    }

    /// Formats as `Sat Nov 21 19:28:00 2026`, the hour padded with a space (property
    /// `snapshots_changed`).
    pub fn changed(&self, t: u64) -> String {
        self.format(t, |z| format!("{}:{}:{:02} {}", hour_minute(z, false), minute(z), z.second(), z.year()))
    }

    /// Formats as `Sat Nov 21 19:28 2026` (`zfs holds`).
    pub fn hold(&self, t: u64) -> String {
        self.format(t, |z| format!("{}:{} {}", hour_minute(z, true), minute(z), z.year()))
    }

    /// Formats as `2026-11-21.19:28:00` (`zpool history`).
    pub fn history(&self, t: u64) -> String {
        self.format(t, |z| {
            format!(
                "{:04}-{:02}-{:02}.{:02}:{:02}:{:02}",
                z.year(),
                z.month(),
                z.day(),
                z.hour(),
                z.minute(),
                z.second()
            )
        })
    }

    /// Formats as `19:28:00` (`zfs send -v`).
    pub fn time(&self, t: u64) -> String {
        self.format(t, |z| format!("{:02}:{:02}:{:02}", z.hour(), z.minute(), z.second()))
    }

    fn format(&self, t: u64, f: impl Fn(&Zoned) -> String) -> String {
        // The disk format stores a time before 1970 as a negative number, and C prints it as one.
        match Timestamp::from_second(t as i64).ok() {
            Some(stamp) => f(&stamp.to_zoned(self.zone.clone())),
            None => t.to_string(),
        }
    }
}

/// The day of the week and the month.
fn day(z: &Zoned) -> String {
    const DAYS: [&str; 7] = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let day = DAYS[z.weekday().to_monday_zero_offset() as usize];
    format!("{day} {}", MONTHS[(z.month() - 1) as usize])
}

fn hour_minute(z: &Zoned, zero: bool) -> String {
    let hour = if zero { format!("{:02}", z.hour()) } else { format!("{:2}", z.hour()) };
    format!("{} {:2} {hour}", day(z), z.day())
}

fn minute(z: &Zoned) -> String {
    format!("{:02}", z.minute())
}

#[cfg(test)]
mod tests {
    //! The expected dates come from `date -u`.

    use super::*;

    /// Goal: each format is the one that its OpenZFS command prints, with the same padding of
    /// single digits.
    #[test]
    fn formats() {
        let c = Clock::fixed(|| 0);
        assert_eq!(c.ctime(1_795_289_280), "Sat Nov 21 19:28:00 2026");
        assert_eq!(c.padded(1_775_010_125), "Wed Apr 01 02:22:05 2026");
        assert_eq!(c.creation(1_775_010_125), "Wed Apr  1  2:22 2026");
        assert_eq!(c.hold(1_775_010_125), "Wed Apr  1 02:22 2026");
        assert_eq!(c.changed(1_775_010_125), "Wed Apr  1  2:22:05 2026");
        assert_eq!(c.history(1_795_288_133), "2026-11-21.19:08:53");
        assert_eq!(c.time(1_775_010_125), "02:22:05");
        assert_eq!(c.ctime(u64::MAX), "Wed Dec 31 23:59:59 1969");
        assert_eq!(c.ctime(i64::MAX as u64), i64::MAX.to_string());
    }
}
