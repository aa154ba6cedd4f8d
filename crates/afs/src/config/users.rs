//! UserList: who is a superuser of a server.

use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};

use observe::lock::Mutex;

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

/// How often the file's date is checked.
const CHECK: Duration = Duration::from_secs(1);

/// The superusers of a server as the file lists them now.
///
/// The file is read again when its date has changed, at most once a second. Without the file, there
/// are none.
#[derive(Debug, Default)]
pub struct Superusers {
    path: Option<PathBuf>,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    list: UserList,
    date: Option<SystemTime>,
    checked: Option<Instant>,
}

impl Superusers {
    /// The superusers of a file, which need not exist.
    ///
    /// # Errors
    /// The file is there and can't be read.
    pub fn of_file(path: impl Into<PathBuf>) -> io::Result<Self> {
        let users = Self { path: Some(path.into()), known: Mutex::default() };
        users.read(&mut users.known.lock())?;
        Ok(users)
    }

    /// Superusers that don't change.
    pub fn fixed(list: UserList) -> Self {
        Self { path: None, known: Mutex::new(Known { list, ..Known::default() }) }
    }

    fn read(&self, known: &mut Known) -> io::Result<()> {
        let Some(path) = &self.path else { return Ok(()) };
        known.checked = Some(Instant::now());
        let date = match std::fs::metadata(path).and_then(|about| about.modified()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            found => Some(found?),
        };
        if date == known.date {
            return Ok(());
        }
        let bytes = if date.is_some() { std::fs::read(path)? } else { Vec::new() };
        known.list = UserList::parse(&bytes);
        known.date = date;
        if let Some(line) = known.list.wrong_line {
            let path = path.display();
            tracing::warn!(%path, line, "this line is no superuser; it and those after it are ignored");
        }
        Ok(())
    }

    /// The list as it is now. If the file can't be read any more, the list that was in it.
    pub fn now(&self) -> UserList {
        self.up_to_date().list.clone()
    }

    /// Whether this user is a superuser. See [`UserList::has`].
    pub fn has(&self, name: &[u8]) -> bool {
        self.up_to_date().list.has(name)
    }

    fn up_to_date(&self) -> observe::lock::MutexGuard<'_, Known> {
        let mut known = self.known.lock();
        if known.checked.is_none_or(|at| at.elapsed() >= CHECK)
            && let Err(error) = self.read(&mut known)
        {
            tracing::warn!(%error, "UserList can't be read again; the superusers known are used");
        }
        known
    }

    /// Has the next question look at the file.
    #[cfg(test)]
    pub(super) fn check_now(&self) {
        self.known.lock().checked = None;
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
