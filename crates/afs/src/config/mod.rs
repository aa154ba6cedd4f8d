//! The configuration files of AFS servers, as OpenAFS reads them.
//!
//! # Theory
//! A file server takes the place of OpenAFS's, so it reads the same files:
//!
//! | file | content | parser |
//! | --- | --- | --- |
//! | ThisCell | the name of the cell | [`this_cell`] |
//! | CellServDB | the database servers of cells | [`CellServDb`] |
//! | UserList | who is a superuser | [`UserList`] |
//! | krb.conf, krb.excl | the realms that are the cell's own | [`Realms`] |
//! | NetInfo, NetRestrict | addresses of the server for clients | [`NetInfo`], [`NetRestrict`] |
//!
//! Each parser takes the file's bytes. Where OpenAFS skips a wrong line, the parser skips it, too,
//! and lists its number, so that the server can log it.
//!
//! # See
//! OpenAFS: `src/auth/cellconfig.c`, `src/auth/userok.c`, `src/auth/netrestrict.c`,
//! `src/auth/realms.c`.

mod cells;
mod net;
mod realms;
#[cfg(test)]
mod tests;
mod users;

pub use cells::{Cell, CellHost, CellServDb, MAX_HOSTS, this_cell};
pub use net::{NetInfo, NetRestrict};
pub use realms::Realms;
pub use users::{Superusers, UserList};

/// The lines of a file with their numbers, which begin at 1.
fn lines(file: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    let lines = file.split(|byte| *byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    let count = lines.clone().count();
    // What follows the last line feed is a line only if it is not empty.
    let last_is_empty = file.last().is_none_or(|byte| *byte == b'\n');
    (1..).zip(lines.take(count - usize::from(last_is_empty)))
}

/// The next word, and what follows it.
fn word(text: &[u8]) -> (&[u8], &[u8]) {
    let text = text.trim_ascii_start();
    let end = text.iter().position(u8::is_ascii_whitespace).unwrap_or(text.len());
    text.split_at(end)
}

/// The number that these digits are.
fn digits(text: &[u8]) -> Option<u32> {
    let text = std::str::from_utf8(text).ok()?;
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}
