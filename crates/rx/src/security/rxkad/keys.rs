//! The cell's keys: the file `KeyFileExt`.
//!
//! # On disk
//! All words are big-endian.
//!
//! | bytes | field |
//! |---|---|
//! | 0 | number of keys |
//! | for each: 0 | length of what follows up to the key: 16 |
//! | 4 | type: 1 `rxkad`, 2 `rxkad_krb5`, 4 `rxgk` |
//! | 8 | version of the key |
//! | 12 | subtype: for `rxkad_krb5`, the encryption type |
//! | 16 | length of the key, then the key |
//!
//! # Life
//! During a change of keys, a cell has several. The file is read again when it has changed, at most
//! once a second, and when a ticket has a key that is not known.
//!
//! # See
//! OpenAFS: `src/auth/keys.c`.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use observe::lock::Mutex;
use zeroize::Zeroizing;

use super::krb5;
use crate::xdr::Reader;
use crate::{Error, Result};

/// Keys of one file, and bytes of one key.
const MOST: usize = 1_000;
const LONGEST: usize = 1_024;
/// Bytes of a key's description.
const RECORD: usize = 16;
/// Keys for tickets of Kerberos 5.
const RXKAD_KRB5: u32 = 2;
/// How often the file's date is checked.
const CHECK: Duration = Duration::from_secs(1);

/// A key of the cell. It is erased when dropped.
#[derive(Clone)]
pub struct Key {
    /// The version.
    pub kvno: i32,
    /// The encryption type.
    pub enctype: i32,
    pub(super) bytes: Zeroizing<Vec<u8>>,
}

impl std::fmt::Debug for Key {
    /// Shows nothing of the key itself.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Key(version {}, type {})", self.kvno, self.enctype)
    }
}

impl Key {
    /// A key from its bytes.
    #[must_use]
    pub fn new(kvno: i32, enctype: i32, bytes: &[u8]) -> Key {
        Key { kvno, enctype, bytes: Zeroizing::new(bytes.to_vec()) }
    }
}

/// The keys for tickets in the bytes of a `KeyFileExt`. Keys for other uses are left out.
///
/// # Errors
/// [`Error::Short`], [`Error::TooLong`], [`Error::Trailing`]: the file is damaged.
pub fn parse(bytes: &[u8]) -> Result<Vec<Key>> {
    let mut reader = Reader::new(bytes);
    let count = reader.array(MOST, RECORD + 4)?;
    let mut keys = Vec::new();
    for _ in 0..count {
        let record = reader.u32()? as usize;
        if record != RECORD {
            return Err(Error::TooLong { length: record, limit: RECORD });
        }
        let (kind, kvno, subtype) = (reader.u32()?, reader.i32()?, reader.i32()?);
        let length = reader.u32()? as usize;
        if length > LONGEST {
            return Err(Error::TooLong { length, limit: LONGEST });
        }
        // The file has no padding: keys whose lengths are no words follow each other closely.
        let rest = reader.rest();
        let Some((key, rest)) = rest.split_at_checked(length) else {
            return Err(Error::Short { missing: length - rest.len() });
        };
        reader = Reader::new(rest);
        if kind == RXKAD_KRB5 && krb5::key_length(subtype) == Some(length) {
            keys.push(Key::new(kvno, subtype, key));
        }
    }
    reader.finish()?;
    Ok(keys)
}

/// What is known of the file.
struct Known {
    keys: Arc<Vec<Key>>,
    date: Option<SystemTime>,
    checked: Option<Instant>,
}

/// The cell's keys, as they are now.
pub struct Keys {
    path: Option<PathBuf>,
    known: Mutex<Known>,
}

impl Keys {
    /// The keys of a file, which is read again when it changes.
    ///
    /// # Errors
    /// [`Error::KeyFile`] if it can't be read, and those of [`parse`].
    pub fn of_file(path: impl Into<PathBuf>) -> Result<Keys> {
        let keys = Keys {
            path: Some(path.into()),
            known: Mutex::new(Known { keys: Arc::default(), date: None, checked: None }),
        };
        keys.read(&mut keys.known.lock())?;
        Ok(keys)
    }

    /// Keys that don't change.
    #[must_use]
    pub fn fixed(keys: Vec<Key>) -> Keys {
        Keys { path: None, known: Mutex::new(Known { keys: Arc::new(keys), date: None, checked: None }) }
    }

    fn read(&self, known: &mut Known) -> Result<()> {
        let Some(path) = &self.path else { return Ok(()) };
        let failed = |source| Error::KeyFile { source };
        known.checked = Some(Instant::now());
        let date = std::fs::metadata(path).and_then(|meta| meta.modified()).map_err(failed)?;
        if known.date == Some(date) {
            return Ok(());
        }
        let bytes = Zeroizing::new(std::fs::read(path).map_err(failed)?);
        known.keys = Arc::new(parse(&bytes)?);
        known.date = Some(date);
        Ok(())
    }

    /// All keys. If the file can't be read any more, the keys that were in it.
    #[must_use]
    pub fn all(&self) -> Arc<Vec<Key>> {
        let mut known = self.known.lock();
        if known.checked.is_none_or(|at| at.elapsed() >= CHECK)
            && let Err(error) = self.read(&mut known)
        {
            tracing::warn!(%error, "the cell's keys can't be read again; those known are used");
        }
        Arc::clone(&known.keys)
    }

    /// Has the next use of the keys look at the file.
    #[cfg(test)]
    pub(super) fn check_now(&self) {
        self.known.lock().checked = None;
    }

    /// The key of a ticket.
    pub(super) fn find(&self, kvno: i32, enctype: i32) -> Option<Key> {
        self.all().iter().find(|key| key.kvno == kvno && key.enctype == enctype).cloned()
    }

    /// The key for tickets of our own: the newest of the best type.
    pub(super) fn best(&self) -> Option<Key> {
        let keys = self.all();
        let of_type = |wanted: i32| keys.iter().filter(move |key| key.enctype == wanted);
        let types = [krb5::AES_256, krb5::AES_128, krb5::RC4];
        types.into_iter().find_map(|enctype| of_type(enctype).max_by_key(|key| key.kvno).cloned())
    }
}
