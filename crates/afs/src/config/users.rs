//! UserList: who is a superuser of a server.

use super::{lines, word};

/// Longest name of a line in bytes.
const MAX_USER: usize = 64;
/// The kind of names that rxkad has (`RX_ID_KRB4`).
const KERBEROS_4: i64 = 0;

/// The superusers of a server.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct UserList {
    names: Vec<Vec<u8>>,
    /// The number of the first line that is wrong. OpenAFS reads no line after it.
    pub wrong_line: Option<usize>,
}

impl UserList {
    /// Reads UserList.
    pub fn parse(file: &[u8]) -> Self {
        let mut list = Self::default();
        for (number, line) in lines(file) {
            match identity(line) {
                Some(Some(name)) => list.names.push(name),
                Some(None) => {}
                None => {
                    list.wrong_line = Some(number);
                    break;
                }
            }
        }
        list
    }

    /// Whether this user is a superuser.
    ///
    /// `name` is `user` or `user.instance`, and has `@realm` if the realm is a foreign one.
    pub fn has(&self, name: &[u8]) -> bool {
        !name.is_empty() && self.names.iter().any(|known| known == name)
    }

    /// The names of the superusers.
    pub fn names(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        self.names.iter().map(Vec::as_slice)
    }
}

/// The name in a line. `Some(None)`: a name of a kind that rxkad does not have. `None`: the line is
/// wrong.
///
/// A line is a name, or a space and then the kind, the name in base 64, and the name to show.
fn identity(line: &[u8]) -> Option<Option<Vec<u8>>> {
    let Some(extended) = line.strip_prefix(b" ") else {
        let name = word(line).0;
        return (!name.is_empty()).then(|| Some(name[..name.len().min(MAX_USER)].to_vec()));
    };
    let mut fields = extended.split(|byte| *byte == b' ');
    let kind: i64 = std::str::from_utf8(fields.next()?).ok()?.parse().ok()?;
    let name = base64(fields.next()?)?;
    fields.next()?;
    Some((kind == KERBEROS_4).then_some(name))
}

/// The bytes that base 64 stands for.
fn base64(text: &[u8]) -> Option<Vec<u8>> {
    const DIGITS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let end = text.iter().position(|byte| *byte == b'=').unwrap_or(text.len());
    let (text, fill) = text.split_at(end);
    if !(text.len() + fill.len()).is_multiple_of(4) || fill.len() > 2 || fill.iter().any(|byte| *byte != b'=')
    {
        return None;
    }
    let (mut bytes, mut bits, mut count) = (Vec::new(), 0u32, 0);
    for byte in text {
        let digit = DIGITS.iter().position(|digit| digit == byte)?;
        bits = bits << 6 | u32::try_from(digit).ok()?;
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count) as u8);
            bits &= (1 << count) - 1;
        }
    }
    Some(bytes)
}
