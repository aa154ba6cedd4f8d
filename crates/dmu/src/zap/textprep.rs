//! The form in which names are compared and hashed (`u8_textprep_str`).
//!
//! # Theory
//! A file system with `normalization`, or without full case sensitivity, hashes its names in a
//! prepared form. This crate must compute the same form as OpenZFS, bit for bit, or names can't be
//! found.
//!
//! The tables of OpenZFS are those of Unicode 5.0, with simple case mapping (one character to one),
//! and must stay so. By Unicode's stability policy, decompositions and combining classes of
//! assigned characters never change. So newer tables give the same results if characters that were
//! assigned after 5.0 are left alone. [`unicode5`] tells which are old enough.
//!
//! Upper case comes before decomposition. In a combining sequence it applies only to the first
//! character, and to a following iota subscript. Bytes that are not UTF-8 are kept.
//!
//! # See
//! UAX #15, stream-safe text: U+034F breaks a sequence of more than 30 combining marks.

#[cfg(test)]
mod tests;
mod unicode5;

use ondisk::{Corrupt, Result};
use unicode_normalization::char as ucd;

/// How names are prepared (`zap_normflags`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Normalization(u32);

impl Normalization {
    const UPPER: u32 = 0x02;
    const CANONICAL: u32 = 0x10;
    const COMPATIBLE: u32 = 0x20;
    const COMPOSE: u32 = 0x40;

    /// Names stay as they are.
    pub const NONE: Self = Self(0);

    /// The normalization of on-disk flags.
    ///
    /// # Errors
    /// * [`Corrupt::Range`]: no file system has this combination.
    pub fn from_disk(flags: u64) -> Result<Self> {
        let ok = matches!(flags & !u64::from(Self::UPPER), 0 | 0x10 | 0x50 | 0x20 | 0x60);
        match u32::try_from(flags) {
            Ok(f) if ok => Ok(Self(f)),
            _ => Err(Corrupt::Range { what: "ZAP", field: "normalization", value: flags }),
        }
    }

    /// The on-disk flags.
    pub fn to_disk(self) -> u64 {
        self.0.into()
    }

    /// True if names stay as they are.
    pub fn is_none(self) -> bool {
        self.0 == 0
    }

    /// The same without case folding.
    pub fn without_case(self) -> Self {
        Self(self.0 & !Self::UPPER)
    }

    fn has(self, bit: u32) -> bool {
        self.0 & bit != 0
    }
}

/// Longest combining sequence before it is broken (`U8_UPPER_LIMIT_IN_A_SEQ`).
const SEQUENCE_MAX: usize = 31;
const GRAPHEME_JOINER: char = '\u{34f}';
const IOTA_SUBSCRIPT: char = '\u{345}';
const CAPITAL_IOTA: char = '\u{399}';

/// `name` in the form of `norm` (`u8_textprep_str`).
pub fn normalize(name: &[u8], norm: Normalization) -> Vec<u8> {
    let mut out = Vec::with_capacity(name.len());
    if name.is_ascii() {
        out.extend(
            name.iter().map(|b| if norm.has(Normalization::UPPER) { b.to_ascii_uppercase() } else { *b }),
        );
        return out;
    }
    let mut rest = name;
    while !rest.is_empty() {
        let (chars, junk, after) = split(rest);
        prepare(&chars, norm, &mut out);
        out.extend_from_slice(junk);
        rest = after;
    }
    out
}

/// Splits `s` into the characters at its start, the bytes after them that are no character, and the
/// rest.
///
/// A lead byte takes as many bytes as it announces, even if they don't continue it.
fn split(s: &[u8]) -> (Vec<char>, &[u8], &[u8]) {
    let mut chars = Vec::new();
    let mut at = 0;
    while at < s.len() {
        let len = match s[at] {
            0..0x80 => 1,
            0xc2..0xe0 => 2,
            0xe0..0xf0 => 3,
            0xf0..0xf5 => 4,
            _ => 0,
        };
        let end = (at + len.max(1)).min(s.len());
        match std::str::from_utf8(&s[at..end]).ok().and_then(|c| c.chars().next()) {
            Some(c) if len > 0 => chars.push(c),
            _ => return (chars, &s[at..end], &s[end..]),
        }
        at = end;
    }
    (chars, &[], &[])
}

/// Prepares a run of characters.
fn prepare(chars: &[char], norm: Normalization, out: &mut Vec<u8>) {
    let upper = norm.has(Normalization::UPPER);
    let mut put = |c: char| {
        let mut buf = [0; 4];
        out.extend_from_slice(c.encode_utf8(&mut buf).as_bytes());
    };
    if !norm.has(Normalization::CANONICAL | Normalization::COMPATIBLE) {
        chars.iter().for_each(|&c| put(if upper { to_upper(c) } else { c }));
        return;
    }
    let mut at = 0;
    while at < chars.len() {
        let (seq, used) = sequence(&chars[at..], norm);
        at += used;
        if norm.has(Normalization::COMPOSE) {
            let ends_in_starter = seq.last().is_some_and(|(_, class)| *class == 0);
            let mut done = compose(&seq);
            if ends_in_starter {
                at += absorb(&mut done, &chars[at..]);
            }
            done.into_iter().for_each(&mut put);
        } else {
            seq.into_iter().for_each(|(c, _)| put(c));
        }
    }
}

/// What may follow the last character of a sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tail {
    /// Combining marks.
    Marks,
    /// A vowel jamo.
    Leading,
    /// A trailing jamo.
    LeadingVowel,
    /// Nothing: other parts of Hangul syllables.
    Nothing,
}

impl Tail {
    fn of(c: char) -> Self {
        match u32::from(c) {
            0x1100..0x1113 => Self::Leading,
            0x1161..0x1176 | 0x11a8..0x11c3 => Self::Nothing,
            s @ 0xac00..0xd7a4 if (s - 0xac00).is_multiple_of(28) => Self::LeadingVowel,
            0xac00..0xd7a4 => Self::Nothing,
            _ => Self::Marks,
        }
    }

    /// What may follow after `c`. `None` if `c` itself may not follow.
    fn then(self, c: char) -> Option<Self> {
        match (self, u32::from(c)) {
            (Self::Leading, 0x1161..0x1176) => Some(Self::LeadingVowel),
            (Self::LeadingVowel, 0x11a8..0x11c3) => Some(Self::Nothing),
            (Self::Marks, _) if !c.is_ascii() && class(c) != 0 => Some(Self::Marks),
            _ => None,
        }
    }
}

/// Decomposes the sequence at the start of `chars`: a character, and the marks that combine with
/// it.
///
/// The marks are put into canonical order. Returns the characters with their combining classes, and
/// how many of `chars` were used.
fn sequence(chars: &[char], norm: Normalization) -> (Vec<(char, u8)>, usize) {
    let mut seq = Vec::new();
    let Some(&first) = chars.first() else { return (seq, 0) };
    let upper = norm.has(Normalization::UPPER);
    let first = if upper { to_upper(first) } else { first };
    let compatible = norm.has(Normalization::COMPATIBLE);
    decompose(first, compatible, |c| seq.push((c, class(c))));
    let mut used = 1;
    let mut tail = Tail::of(first);
    while let Some(&c) = chars.get(used) {
        let Some(next) = tail.then(c) else { break };
        tail = next;
        let before = seq.len();
        if before < SEQUENCE_MAX {
            decompose(c, compatible, |c| seq.push((c, class(c))));
        }
        if before >= SEQUENCE_MAX || (tail == Tail::Marks && seq.len() >= SEQUENCE_MAX) {
            seq.truncate(before);
            seq.push((GRAPHEME_JOINER, 0));
            break;
        }
        if let Some(last) = seq.last_mut().filter(|l| upper && l.0 == IOTA_SUBSCRIPT) {
            last.0 = CAPITAL_IOTA;
        }
        used += 1;
    }
    let mut i = 0;
    while i < seq.len() {
        let marks = seq[i..].iter().take_while(|(_, class)| *class != 0).count();
        seq[i..i + marks].sort_by_key(|(_, class)| *class);
        i += marks.max(1);
    }
    (seq, used)
}

/// Canonical composition of one sequence.
///
/// Names on disk depend on two differences from UAX #15:
///
/// * A starter between a mark and the first character of the sequence blocks the mark.
/// * After a starter has composed, marks of its own class no longer block.
fn compose(seq: &[(char, u8)]) -> Vec<char> {
    let mut out: Vec<char> = Vec::with_capacity(seq.len());
    let mut i = 0;
    while i < seq.len() {
        let (first, first_class) = seq[i];
        i += 1;
        if first_class != 0 {
            out.push(first);
            continue;
        }
        let mut starter = first;
        let mut marks = Vec::new();
        let mut composed = false;
        while let Some(&(c, class)) = seq.get(i) {
            let earlier = seq.get(1..i).unwrap_or_default();
            let blocked = !composed && !marks.is_empty() && earlier.iter().any(|e| e.1 >= class || e.1 == 0);
            match compose_pair(starter, c).filter(|_| !blocked) {
                Some(joined) => {
                    starter = joined;
                    composed = true;
                }
                None if class == 0 => break,
                None => marks.push(c),
            }
            i += 1;
        }
        out.push(starter);
        out.append(&mut marks);
    }
    out
}

/// Composes the last character with those that follow the sequence, while that is possible. Returns
/// how many it used.
///
/// Hangul takes no part, because its jamos are one sequence already.
fn absorb(done: &mut [char], after: &[char]) -> usize {
    let Some(last) = done.last_mut() else { return 0 };
    let mut n = 0;
    while let Some(joined) = after
        .get(n)
        .filter(|c| !c.is_ascii() && Tail::of(**c) == Tail::Marks)
        .and_then(|&c| compose_pair(*last, c))
    {
        *last = joined;
        n += 1;
    }
    n
}

fn decompose(c: char, compatible: bool, f: impl FnMut(char)) {
    let mut f = f;
    if !unicode5::has(c) {
        f(c);
    } else if compatible {
        ucd::decompose_compatible(c, f);
    } else {
        ucd::decompose_canonical(c, f);
    }
}

fn class(c: char) -> u8 {
    if unicode5::has(c) { ucd::canonical_combining_class(c) } else { 0 }
}

fn compose_pair(a: char, b: char) -> Option<char> {
    if !(unicode5::has(a) && unicode5::has(b)) {
        return None;
    }
    ucd::compose(a, b).filter(|c| unicode5::has(*c))
}

/// The simple upper case of Unicode 5.0.
fn to_upper(c: char) -> char {
    if c.is_ascii() {
        return c.to_ascii_uppercase();
    }
    let code = u32::from(c);
    // Greek letters with an iota subscript have a simple capital, the title case, and a full one.
    let greek = match code {
        0x1f80..0x1fb0 => Some(code | 8),
        0x1fb3 | 0x1fc3 | 0x1ff3 => Some(code + 9),
        _ => None,
    };
    if let Some(g) = greek.and_then(char::from_u32) {
        return g;
    }
    let mut up = c.to_uppercase();
    match (up.next(), up.next()) {
        (Some(u), None) if unicode5::has(c) && unicode5::has(u) => u,
        _ => c,
    }
}
