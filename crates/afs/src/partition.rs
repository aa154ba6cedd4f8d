//! The names and numbers of partitions: "/vicepa" is 0, "/vicepiv" is 255.
//!
//! # See
//! OpenAFS: `src/util/volparse.c`.

use std::fmt;

/// Most partitions of a server (`VOLMAXPARTS`).
pub const MAX_PARTITIONS: usize = 256;

const PREFIX: &str = "/vicep";
const LETTERS: u16 = 26;

/// The number of a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PartitionId(pub u8);

impl PartitionId {
    /// The partition with this number in a call, if there is one.
    pub fn from_number(number: i32) -> Option<Self> {
        u8::try_from(number).ok().map(Self)
    }

    /// The partition with this name, as users type it: "/vicepa", "vicepa", "a" or "0".
    pub fn parse(name: &str) -> Option<Self> {
        if name.starts_with(|c: char| c.is_ascii_digit()) {
            let digits = name.bytes().all(|byte| byte.is_ascii_digit());
            return digits.then(|| name.parse().ok().map(Self)).flatten();
        }
        let rest = name.strip_prefix(PREFIX).or_else(|| name.strip_prefix(&PREFIX[1..])).unwrap_or(name);
        let letter = |byte: u8| byte.is_ascii_lowercase().then(|| u16::from(byte - b'a'));
        let number = match *rest.as_bytes() {
            [one] => letter(one)?,
            [first, second] => LETTERS * (1 + letter(first)?) + letter(second)?,
            _ => return None,
        };
        u8::try_from(number).ok().map(Self)
    }
}

impl fmt::Display for PartitionId {
    /// The name, "/vicepa".
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let letter = |number: u16| char::from(b'a' + u8::try_from(number).expect("below 26"));
        f.write_str(PREFIX)?;
        let number = u16::from(self.0);
        match number.checked_sub(LETTERS) {
            None => write!(f, "{}", letter(number)),
            Some(rest) => write!(f, "{}{}", letter(rest / LETTERS), letter(rest % LETTERS)),
        }
    }
}

#[cfg(test)]
mod tests;
