//! The text of access lists in calls: two counts, then a name and a number in each line.

use std::io::Write;

use super::{Acl, AclEntry, MAX_ENTRIES, MAX_PRINCIPAL_NAME, MAX_TEXT, Rights};
use crate::types::PrincipalId;
use crate::{Error, Place, Record, Result};

/// A line of the text.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Line {
    name: Vec<u8>,
    rights: Rights,
}

/// An access list with names, as StoreACL has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AclText {
    lines: Vec<Line>,
    positive: usize,
}

/// The rest of a text. It reads as `sscanf` does in OpenAFS: white space of any kind and amount
/// may be before a number or a name.
struct Scanner<'a> {
    text: &'a [u8],
    at: usize,
}

impl<'a> Scanner<'a> {
    fn place(&self) -> Place {
        Place { record: Record::AclText, at: self.at as u64 }
    }

    fn shape(&self, why: &'static str) -> Error {
        Error::Shape { place: self.place(), why }
    }

    fn take(&mut self, wanted: impl Fn(u8) -> bool) -> &'a [u8] {
        let rest = &self.text[self.at..];
        let length = rest.iter().position(|byte| !wanted(*byte)).unwrap_or(rest.len());
        self.at += length;
        &rest[..length]
    }

    fn number(&mut self) -> Result<i64> {
        self.take(is_space);
        let digits = self.take(|byte| byte.is_ascii_digit() || byte == b'-' || byte == b'+');
        let number = std::str::from_utf8(digits).ok().and_then(|digits| digits.parse::<i64>().ok());
        number.ok_or_else(|| self.shape("a number is missing"))
    }

    fn count(&mut self) -> Result<usize> {
        let number = self.number()?;
        let place = self.place();
        let count = usize::try_from(number).ok().filter(|count| *count <= MAX_ENTRIES);
        count.ok_or(Error::Range { place, field: "the number of entries", value: number.cast_unsigned() })
    }

    fn line(&mut self) -> Result<Line> {
        self.take(is_space);
        let place = self.place();
        let name = self.take(|byte| !is_space(byte));
        if name.len() > MAX_PRINCIPAL_NAME {
            return Err(Error::TooLong { place, field: "a name", max: MAX_PRINCIPAL_NAME });
        }
        if name.is_empty() {
            return Err(self.shape("a name is missing"));
        }
        let rights = self.number()?;
        // Programs print the upper bits as a negative number, or not.
        let bits = u32::try_from(rights).ok();
        let bits = bits.or_else(|| i32::try_from(rights).ok().map(i32::cast_unsigned));
        let value = rights.cast_unsigned();
        let rights = Rights(bits.ok_or(Error::Range { place: self.place(), field: "the rights", value })?);
        self.take(|byte| byte != b'\n');
        if self.at == self.text.len() {
            return Err(self.shape("a line does not end"));
        }
        self.at += 1;
        Ok(Line { name: name.to_vec(), rights })
    }
}

/// White space as C counts it.
fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t'..=b'\r')
}

impl AclText {
    /// Takes the text of StoreACL apart. What follows its NUL, or its last entry, is ignored.
    ///
    /// # Errors
    /// The server answers all of them with EINVAL.
    /// * [`Error::Shape`]: the text has no NUL, a line does not end, or something is missing.
    /// * [`Error::Range`]: the number of entries, or the rights, are impossible.
    /// * [`Error::TooLong`]: the text or a name is too long.
    pub fn parse(text: &[u8]) -> Result<Self> {
        let place = Place { record: Record::AclText, at: 0 };
        if text.len() > MAX_TEXT {
            return Err(Error::TooLong { place, field: "the text", max: MAX_TEXT });
        }
        let Some(end) = text.iter().position(|byte| *byte == 0) else {
            return Err(Error::Shape { place, why: "the text has no NUL" });
        };
        let mut scanner = Scanner { text: &text[..end], at: 0 };
        let positive = scanner.count()?;
        let negative = scanner.count()?;
        let total = positive + negative;
        if total > MAX_ENTRIES {
            let place = scanner.place();
            return Err(Error::Range { place, field: "the number of entries", value: total as u64 });
        }
        let lines = (0..total).map(|_| scanner.line()).collect::<Result<_>>()?;
        Ok(Self { lines, positive })
    }

    /// The names, in the order in which [`Self::resolve`] takes their numbers.
    pub fn names(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        self.lines.iter().map(|line| line.name.as_slice())
    }

    /// The list, with the numbers that the protection server has for the names.
    ///
    /// # Errors
    /// [`Error::Shape`]: there is a number too few or too many, or a name is unknown. For unknown
    /// names the protection server has [`PrincipalId::ANONYMOUS`].
    pub fn resolve(&self, ids: &[PrincipalId]) -> Result<Acl> {
        let shape = |why| Error::Shape { place: Place { record: Record::AclText, at: 0 }, why };
        if ids.len() != self.lines.len() {
            return Err(shape("there are not as many numbers as names"));
        }
        if ids.contains(&PrincipalId::ANONYMOUS) {
            return Err(shape("the protection server does not know a name"));
        }
        let mut positive: Vec<AclEntry> = (self.lines.iter().zip(ids))
            .map(|(line, who)| AclEntry { who: *who, rights: line.rights })
            .collect();
        let negative = positive.split_off(self.positive);
        Ok(Acl::new(positive, negative).expect("parse checked the number of entries"))
    }
}

impl Acl {
    /// The text for FetchACL with its NUL. `names` are those of [`Self::principals`].
    ///
    /// A name that would spoil its line is replaced by its number. The protection server answers
    /// unknown numbers in the same way.
    ///
    /// # Errors
    /// * [`Error::Shape`]: there is a name too few or too many.
    /// * [`Error::TooLong`]: the text has more than 1,024 bytes (E2BIG).
    pub fn text<N: AsRef<[u8]>>(&self, names: &[N]) -> Result<Vec<u8>> {
        let place = Place { record: Record::AclText, at: 0 };
        let entries = self.positive().iter().chain(self.negative());
        if names.len() != entries.clone().count() {
            return Err(Error::Shape { place, why: "there are not as many names as entries" });
        }
        let mut text = Vec::new();
        let to_vec = "a Vec takes all";
        write!(text, "{}\n{}\n", self.positive().len(), self.negative().len()).expect(to_vec);
        for (entry, name) in entries.zip(names) {
            let name = name.as_ref();
            let is_whole = !name.is_empty() && name.iter().all(|byte| *byte != 0 && !is_space(*byte));
            if is_whole {
                text.extend_from_slice(name);
            } else {
                write!(text, "{}", entry.who).expect(to_vec);
            }
            writeln!(text, "\t{}", entry.rights.0.cast_signed()).expect(to_vec);
        }
        text.push(0);
        if text.len() > MAX_TEXT {
            return Err(Error::TooLong { place, field: "the text", max: MAX_TEXT });
        }
        Ok(text)
    }
}
