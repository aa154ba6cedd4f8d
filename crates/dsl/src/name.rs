//! Names of datasets.

use crate::{Error, error::NameError};

/// Longest full name in bytes, with its NUL (`ZFS_MAX_DATASET_NAME_LEN`).
pub const ZFS_MAX_DATASET_NAME_LEN: usize = 256;

/// What follows the path in a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Tail<'a> {
    /// Nothing: a file system or volume.
    Head,
    /// `@` and the name of a snapshot.
    Snapshot(&'a str),
    /// `#` and the name of a bookmark.
    Bookmark(&'a str),
}

/// A name, checked and split.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Name<'a> {
    /// The path, which begins with the pool's name.
    pub path: &'a str,
    /// The part after the path.
    pub tail: Tail<'a>,
}

impl<'a> Name<'a> {
    /// Splits and checks a name (`entity_namecheck`).
    ///
    /// # Errors
    /// * [`Error::BadName`]: the name is malformed; its [`NameError`] is the reason.
    pub fn parse(name: &'a str) -> Result<Self, Error> {
        let bad = |why| Err(Error::BadName { name: name.to_owned(), why });
        if name.len() >= ZFS_MAX_DATASET_NAME_LEN {
            return bad(NameError::TooLong);
        }
        if name.starts_with('/') {
            return bad(NameError::LeadingSlash);
        }
        if name.ends_with('/') {
            return bad(NameError::TrailingSlash);
        }
        let (path, tail) = match name.find(['@', '#']) {
            None => (name, Tail::Head),
            Some(i) => {
                let rest = &name[i + 1..];
                if rest.contains(['@', '#']) {
                    return bad(NameError::MultipleDelimiters);
                }
                let tail =
                    if name.as_bytes()[i] == b'@' { Tail::Snapshot(rest) } else { Tail::Bookmark(rest) };
                (&name[..i], tail)
            }
        };
        let last = match tail {
            Tail::Head => None,
            Tail::Snapshot(s) | Tail::Bookmark(s) => Some(s),
        };
        for part in path.split('/').chain(last) {
            if part.is_empty() {
                return bad(NameError::EmptyComponent);
            }
            if part == "." || part == ".." {
                return bad(NameError::DotReference);
            }
            let ok = |c: char| c.is_ascii_alphanumeric() || "-_.: %$".contains(c);
            if let Some(c) = part.chars().find(|c| !ok(*c)) {
                return bad(NameError::InvalidChar(c));
            }
        }
        Ok(Self { path, tail })
    }

    /// As [`Name::parse`], for a name that a user gives to something new. The characters of the
    /// engine's own names are not allowed: `$` (`$MOS`) and `%` (`%recv`).
    ///
    /// # Errors
    /// * [`Error::BadName`]: the name is malformed; its [`NameError`] is the reason.
    pub fn parse_new(name: &'a str) -> Result<Self, Error> {
        let parsed = Self::parse(name)?;
        match name.chars().find(|c| is_internal(*c)) {
            Some(c) => Err(Error::BadName { name: name.to_owned(), why: NameError::InvalidChar(c) }),
            None => Ok(parsed),
        }
    }

    /// The pool's name.
    pub fn pool(&self) -> &'a str {
        self.path.split('/').next().unwrap_or(self.path)
    }

    /// The components below the pool's name.
    pub fn components(&self) -> impl Iterator<Item = &'a str> {
        self.path.split('/').skip(1)
    }
}

/// Whether listings hide this component: internal (`$MOS`) or temporary (`%recv`) datasets.
pub fn is_hidden(component: &str) -> bool {
    component.contains(is_internal)
}

fn is_internal(c: char) -> bool {
    matches!(c, '$' | '%')
}
