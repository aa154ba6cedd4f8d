//! DER, as far as tickets of Kerberos 5 need it.
//!
//! Every length is checked against what holds it. Nothing is copied, and nothing recurses.

/// The tag of an integer.
pub(super) const INTEGER: u8 = 0x02;
/// The tag of a bit string.
pub(super) const BITS: u8 = 0x03;
/// The tag of an octet string.
pub(super) const OCTETS: u8 = 0x04;
/// The tag of a moment.
pub(super) const TIME: u8 = 0x18;
/// The tag of a string.
pub(super) const STRING: u8 = 0x1b;
/// The tag of a sequence.
pub(super) const SEQUENCE: u8 = 0x30;
/// The tag of a field of a structure.
pub(super) const fn field(n: u8) -> u8 {
    0xa0 | n
}
/// The tag of a structure of an application.
pub(super) const fn application(n: u8) -> u8 {
    0x60 | n
}

/// Reads elements, one after the other. `None` is the error: the bytes are no such element.
#[derive(Debug, Clone, Copy)]
pub(super) struct Der<'a>(pub(super) &'a [u8]);

impl<'a> Der<'a> {
    /// The content of the next element, which must have this tag.
    pub(super) fn element(&mut self, tag: u8) -> Option<Der<'a>> {
        let [first, length, rest @ ..] = self.0 else { return None };
        if *first != tag {
            return None;
        }
        let (length, rest) = match *length {
            short @ 0..0x80 => (usize::from(short), rest),
            0x80 => return None,
            long => {
                let (bytes, rest) = rest.split_at_checked(usize::from(long & 0x7f))?;
                if bytes.len() > 3 {
                    return None;
                }
                (bytes.iter().fold(0, |length, byte| length << 8 | usize::from(*byte)), rest)
            }
        };
        let (content, rest) = rest.split_at_checked(length)?;
        self.0 = rest;
        Some(Der(content))
    }

    /// The content of the next element if it has this tag.
    pub(super) fn optional(&mut self, tag: u8) -> Option<Option<Der<'a>>> {
        if self.0.first() == Some(&tag) { self.element(tag).map(Some) } else { Some(None) }
    }

    /// A structure's field, which holds one element with a tag of its own.
    pub(super) fn typed(&mut self, n: u8, tag: u8) -> Option<Der<'a>> {
        self.element(field(n))?.element(tag)
    }

    /// An integer of up to four bytes.
    pub(super) fn integer(self) -> Option<i32> {
        let [first, ..] = self.0 else { return None };
        if self.0.len() > 5 || (self.0.len() == 5 && *first != 0) {
            return None;
        }
        let sign = if *first & 0x80 == 0 { 0 } else { -1 };
        let value = self.0.iter().fold(sign, |value: i64, byte| value << 8 | i64::from(*byte));
        // Key versions are unsigned, other numbers are signed.
        i32::try_from(value).ok().or_else(|| u32::try_from(value).ok().map(u32::cast_signed))
    }

    /// A string.
    pub(super) fn text(self) -> Option<&'a str> {
        std::str::from_utf8(self.0).ok().filter(|text| !text.contains('\0'))
    }

    /// A moment (`YYYYMMDDhhmmssZ`), in seconds since 1970.
    pub(super) fn time(self) -> Option<u32> {
        if self.0.len() != 15 || self.0[14] != b'Z' || !self.0[..14].iter().all(u8::is_ascii_digit) {
            return None;
        }
        let number =
            |from: usize, to: usize| self.0[from..to].iter().fold(0, |n, b| n * 10 + i64::from(b - b'0'));
        let (year, month, day) = (number(0, 4), number(4, 6), number(6, 8));
        let (hour, minute, second) = (number(8, 10), number(10, 12), number(12, 14));
        if !(1..=12).contains(&month) || !(1..=31).contains(&day) || hour > 23 || minute > 59 || second > 60 {
            return None;
        }
        let seconds = days(year, month, day) * 86_400 + hour * 3_600 + minute * 60 + second;
        u32::try_from(seconds.max(0)).ok()
    }
}

/// Days from 1970-01-01 to a date. Years begin in March here, so that leap days come last.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let leap = year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    year * 365 + leap + (month * 153 + 2) / 5 + day - 1 - 719_468
}

/// The bytes of a moment.
pub(super) fn time(seconds: u32) -> Vec<u8> {
    let (day, second) = (i64::from(seconds / 86_400), seconds % 86_400);
    let mut year = 1970 + day / 366;
    while days(year + 1, 1, 1) <= day {
        year += 1;
    }
    let mut month = 1;
    while month < 12 && days(year, month + 1, 1) <= day {
        month += 1;
    }
    let date = day - days(year, month, 1) + 1;
    let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
    format!("{year:04}{month:02}{date:02}{hour:02}{minute:02}{second:02}Z").into_bytes()
}

/// An element with its content.
pub(super) fn wrap(tag: u8, content: &[u8]) -> Vec<u8> {
    let mut bytes = vec![tag];
    match content.len() {
        short @ 0..0x80 => bytes.push(short as u8),
        long => {
            let length = (long as u32).to_be_bytes();
            let skip = length.iter().take_while(|byte| **byte == 0).count();
            bytes.push(0x80 | (4 - skip) as u8);
            bytes.extend_from_slice(&length[skip..]);
        }
    }
    bytes.extend_from_slice(content);
    bytes
}

/// An integer.
pub(super) fn integer(value: i32) -> Vec<u8> {
    let bytes = value.to_be_bytes();
    let redundant = |at: &usize| {
        let sign = bytes[at + 1] & 0x80;
        (bytes[*at] == 0 && sign == 0) || (bytes[*at] == 0xff && sign != 0)
    };
    let skip = (0..3).take_while(redundant).count();
    wrap(INTEGER, &bytes[skip..])
}
