//! Object numbers, and ranges of them: `start:end:flags`.

use super::opts::number;
use super::text::{is_self_describing, type_name};
use ondisk::{DmuType, ObjNum};

/// Flags for types of objects (`ZOR_FLAG_*`).
const DIRECTORY: u64 = 1;
const PLAIN_FILE: u64 = 2;
const SPACE_MAP: u64 = 4;
const ZAP: u64 = 8;
const SUPPORTED: u64 = DIRECTORY | PLAIN_FILE | SPACE_MAP | ZAP;
const ALL: u64 = u64::MAX;

/// The objects to show (`zopt_object_range_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    /// The first object.
    pub start: ObjNum,
    /// The last object, inclusive.
    pub end: ObjNum,
    flags: u64,
}

impl Range {
    /// Whether this is a single object.
    pub fn is_single(&self) -> bool {
        self.start == self.end
    }

    /// Whether objects of this type are wanted.
    pub fn wants(&self, kind: DmuType) -> bool {
        if matches!(self.flags, 0 | ALL) {
            return true;
        }
        let bit = match kind {
            DmuType::DIRECTORY_CONTENTS => DIRECTORY,
            DmuType::PLAIN_FILE_CONTENTS => PLAIN_FILE,
            DmuType::SPACE_MAP => SPACE_MAP,
            k if is_self_describing(k) && type_name(k) == "zap" => ZAP,
            // "All but some" includes the types without a flag of their own.
            _ => return self.flags | SUPPORTED == ALL,
        };
        self.flags & bit != 0
    }
}

/// Parses an object number; -1, -2 and -3 are the accounting objects.
fn signed(s: &str) -> Option<u64> {
    match s.strip_prefix('-') {
        Some(n) => number(n).map(u64::wrapping_neg),
        None => number(s),
    }
}

/// Parses an operand (`parse_object_range`).
///
/// # Errors
/// OpenZFS's message: a number, the order of start and end, a colon or a flag is wrong.
pub fn parse(arg: &str) -> Result<Range, &'static str> {
    if !arg.contains(':') {
        let n = ObjNum(signed(arg).ok_or("Invalid characters in object ID")?);
        return Ok(Range { start: n, end: n, flags: 0 });
    }
    if arg.starts_with(':') {
        return Err("Invalid leading colon");
    }
    if arg.ends_with(':') {
        return Err("Invalid trailing colon");
    }
    let mut parts = arg.split(':').filter(|p| !p.is_empty());
    let start = parts.next().and_then(signed).ok_or("Invalid characters in start object ID")?;
    let end = parts.next().and_then(signed).ok_or("Invalid characters in end object ID")?;
    if start > end {
        return Err("Start object ID may not exceed end object ID");
    }
    let flags = match (parts.next(), parts.next()) {
        (None, _) => ALL,
        (Some(_), Some(_)) => return Err("Invalid colon-delimited field after flags"),
        (Some(f), None) => parse_flags(f)?,
    };
    Ok(Range { start: ObjNum(start), end: ObjNum(end), flags })
}

fn parse_flags(text: &str) -> Result<u64, &'static str> {
    let mut flags = 0;
    let mut chars = text.chars();
    while let Some(mut c) = chars.next() {
        let negate = c == '-';
        if negate {
            c = chars.next().ok_or("Invalid trailing negation operator")?;
        }
        let bits = match c {
            'd' => DIRECTORY,
            'f' => PLAIN_FILE,
            'm' => SPACE_MAP,
            'z' => ZAP,
            'A' => ALL,
            _ => return Err("Invalid flag"),
        };
        if negate {
            flags &= !bits;
        } else {
            flags |= bits;
        }
    }
    Ok(flags)
}
