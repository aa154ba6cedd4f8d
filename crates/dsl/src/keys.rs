//! Keys of encrypted datasets: loaded, unloaded, found for a block.
//!
//! # Theory
//! An *encryption root* is a directory whose wrapping key the user has; it and the datasets below that name it as their
//! root each have data keys of their own, wrapped by that key, in a ZAP. Loading a key unwraps the root's data keys, which proves
//! that it is the right one. A dataset is *admitted* when its object set is opened: its wrapped keys are remembered here and
//! unwrapped as soon as the root's key is loaded, so that finding a block's key ([`Keys::key`]) is one look-up by object set.
//!
//! # Locks
//! One lock around the tables, held for look-ups and for unwrapping, never while a block is read.
//!
//! # Absent
//! Where the user keeps the key (`keylocation`): the commands ask for it. No key is ever written.

use crate::dataset::Dataset;
use crate::dir::Dir;
use crate::{Dsl, Error, Result};
pub use codec::crypt::WrappingKey;
use codec::crypt::{CryptoSuite, DataKeys, KeyVersion, WrappedKeys};
use ondisk::{Corrupt, Guid, ObjNum, crypto_key as ck};
use parking_lot::RwLock;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// Whether a dataset's key is there (`zfs_keystatus_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u64)]
pub enum KeyStatus {
    /// It is not encrypted.
    None = 0,
    /// The key is not loaded.
    Unavailable = 1,
    /// The key is loaded.
    Available = 2,
}

/// What the user has as a key (`zfs_keyformat_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum KeyFormat {
    /// 32 bytes.
    Raw,
    /// 64 hexadecimal digits.
    Hex,
    /// 8 to 512 characters.
    Passphrase,
}

/// Least length of a passphrase (`MIN_PASSPHRASE_LEN`).
pub const MIN_PASSPHRASE_LEN: usize = 8;
/// Greatest length of a passphrase (`MAX_PASSPHRASE_LEN`).
pub const MAX_PASSPHRASE_LEN: usize = 512;

/// Why a key could not be loaded or unloaded.
#[derive(Debug, Clone, thiserror::Error)]
pub enum KeyError {
    /// The dataset is not encrypted.
    #[error("Dataset is not encrypted.")]
    NotEncrypted,
    /// The key belongs to a dataset above.
    #[error("Keys must be loaded for encryption root of '{name}' ({root}).")]
    NotRoot {
        /// The dataset.
        name: String,
        /// Its encryption root.
        root: String,
    },
    /// The key is loaded already (`EEXIST`).
    #[error("Key already loaded for '{name}'.")]
    Loaded {
        /// The dataset.
        name: String,
    },
    /// The key is not loaded (`EACCES`).
    #[error("Key already unloaded for '{name}'.")]
    NotLoaded {
        /// The dataset.
        name: String,
    },
    /// Somebody writes to a dataset under it, or what was written is not on disk yet (`EBUSY`).
    #[error("'{name}' is busy.")]
    Busy {
        /// The dataset.
        name: String,
    },
    /// The key cannot be one of this format.
    #[error("{0}")]
    Malformed(Malformed),
    /// It is not the key (`EACCES`).
    #[error("Incorrect key provided for '{name}'.")]
    Wrong {
        /// The dataset.
        name: String,
    },
    /// The dataset could not be read.
    #[error(transparent)]
    Dataset(#[from] Error),
}

/// What is wrong with a key before it is tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// Fewer bytes than a raw key has.
    #[error("Raw key too short (expected 32).")]
    RawShort,
    /// More bytes than a raw key has.
    #[error("Raw key too long (expected 32).")]
    RawLong,
    /// Fewer digits than a hexadecimal key has.
    #[error("Hex key too short (expected 64).")]
    HexShort,
    /// More digits than a hexadecimal key has.
    #[error("Hex key too long (expected 64).")]
    HexLong,
    /// A character that is no hexadecimal digit.
    #[error("Invalid hex character detected.")]
    HexDigit,
    /// A passphrase of fewer characters than allowed.
    #[error("Passphrase too short (min {MIN_PASSPHRASE_LEN}).")]
    PassphraseShort,
    /// A passphrase of more characters than allowed.
    #[error("Passphrase too long (max {MAX_PASSPHRASE_LEN}).")]
    PassphraseLong,
}

/// Loaded keys of a pool; shared with the block pipeline.
#[derive(Debug, Default)]
pub struct Keys(RwLock<State>);

#[derive(Debug, Default)]
struct State {
    /// Wrapping keys by directory of the encryption root.
    roots: HashMap<u64, Arc<WrappingKey>>,
    /// Datasets whose object set was opened.
    admitted: BTreeMap<u64, Admitted>,
}

#[derive(Debug)]
struct Admitted {
    root: u64,
    wrapped: WrappedKeys,
    open: Option<Arc<DataKeys>>,
}

impl Keys {
    /// The data keys of an object set; `None` if it is not encrypted, not admitted or its key not loaded.
    pub fn key(&self, objset: u64) -> Option<Arc<DataKeys>> {
        self.0.read().admitted.get(&objset)?.open.clone()
    }

    /// The loaded wrapping key of an encryption root.
    pub(crate) fn root(&self, dir: u64) -> Option<Arc<WrappingKey>> {
        self.0.read().roots.get(&dir).cloned()
    }

    /// An encryption root has this wrapping key now.
    pub(crate) fn set_root(&self, dir: u64, key: Arc<WrappingKey>) {
        self.0.write().roots.insert(dir, key);
    }

    /// A directory is no encryption root any more.
    pub(crate) fn forget_root(&self, dir: u64) {
        self.0.write().roots.remove(&dir);
    }

    /// Another directory is the encryption root now.
    pub(crate) fn move_root(&self, from: u64, to: u64) {
        let mut state = self.0.write();
        if let Some(key) = state.roots.remove(&from) {
            state.roots.insert(to, key);
        }
        for a in state.admitted.values_mut().filter(|a| a.root == from) {
            a.root = to;
        }
    }

    /// Enters a new dataset with its keys.
    pub(crate) fn enter(&self, objset: u64, root: u64, wrapped: WrappedKeys, open: Arc<DataKeys>) {
        self.0.write().admitted.insert(objset, Admitted { root, wrapped, open: Some(open) });
    }

    /// A dataset's keys were wrapped again.
    pub(crate) fn rewrapped(&self, objset: u64, root: u64, wrapped: WrappedKeys) {
        if let Some(a) = self.0.write().admitted.get_mut(&objset) {
            a.root = root;
            a.wrapped = wrapped;
        }
    }

    /// Whether the key of a directory's datasets is loaded.
    ///
    /// # Errors
    /// As reading fails.
    pub fn status(&self, dir: &Dir) -> Result<KeyStatus> {
        let Some(key) = dir.crypto_object()? else { return Ok(KeyStatus::None) };
        let root = dir.dsl().mos().u64(key, ck::ROOT_DDOBJ)?;
        let loaded = root.is_some_and(|r| self.0.read().roots.contains_key(&r));
        Ok(if loaded { KeyStatus::Available } else { KeyStatus::Unavailable })
    }

    /// Remembers a dataset's wrapped keys, so that its blocks can be read as soon as the root's key is there.
    ///
    /// # Errors
    /// As reading fails; [`Error::Corrupt`] for a malformed key object.
    pub(crate) fn admit(&self, dataset: &Dataset) -> Result<()> {
        let objset = dataset.object().0;
        if self.0.read().admitted.contains_key(&objset) {
            return Ok(());
        }
        let Some(object) = dataset.dir().crypto_object()? else { return Ok(()) };
        let (root, wrapped) = read_wrapped(dataset.dsl(), object)?;
        let mut state = self.0.write();
        let open = match state.roots.get(&root) {
            Some(key) => Some(Arc::new(key.unwrap(&wrapped).map_err(|_| Error::Corrupt {
                object,
                source: Corrupt::Shape { what: "crypto key", why: "the root's key does not open it" },
            })?)),
            None => None,
        };
        state.admitted.insert(objset, Admitted { root, wrapped, open });
        Ok(())
    }

    /// Loads the key of an encryption root (`zfs load-key`). `material` is what the user has: 32 bytes, 64 digits, or a
    /// passphrase, without line ends. With `check_only` the key is tried and not kept (`-n`).
    ///
    /// # Errors
    /// [`KeyError`] says why it is refused.
    pub fn load(&self, dir: &Dir, material: &[u8], check_only: bool) -> std::result::Result<(), KeyError> {
        let name = || dir.name().to_owned();
        let object = dir.crypto_object()?.ok_or(KeyError::NotEncrypted)?;
        let (root, wrapped) = read_wrapped(dir.dsl(), object)?;
        if root != dir.object().0 {
            let root = dir.encryption_root()?.map_or_else(String::new, |d| d.name().to_owned());
            return Err(KeyError::NotRoot { name: name(), root });
        }
        if !check_only && self.0.read().roots.contains_key(&root) {
            return Err(KeyError::Loaded { name: name() });
        }
        let key = wrapping_key(dir, object, material)?;
        key.unwrap(&wrapped).map_err(|_| KeyError::Wrong { name: name() })?;
        if check_only {
            return Ok(());
        }
        let key = Arc::new(key);
        let mut state = self.0.write();
        for a in state.admitted.values_mut().filter(|a| a.root == root) {
            a.open = key.unwrap(&a.wrapped).ok().map(Arc::new);
        }
        state.roots.insert(root, key);
        drop(state);
        // What was read without the key was not checked against its MACs.
        dir.dsl().mos().objset().cache().purge();
        Ok(())
    }

    /// Forgets the key of an encryption root (`zfs unload-key`). Whether a dataset under it is read, the caller knows. One that was written
    /// must have been let go and synced: its blocks can't be encrypted without the key.
    ///
    /// # Errors
    /// [`KeyError::NotEncrypted`], [`KeyError::NotRoot`], [`KeyError::NotLoaded`], [`KeyError::Busy`]; as reading fails.
    pub fn unload(&self, dir: &Dir) -> std::result::Result<(), KeyError> {
        let name = || dir.name().to_owned();
        let object = dir.crypto_object()?.ok_or(KeyError::NotEncrypted)?;
        let (root, _) = read_wrapped(dir.dsl(), object)?;
        if root != dir.object().0 {
            let root = dir.encryption_root()?.map_or_else(String::new, |d| d.name().to_owned());
            return Err(KeyError::NotRoot { name: name(), root });
        }
        let mut state = self.0.write();
        let under = state.admitted.iter().filter(|(_, a)| a.root == root).map(|(objset, _)| *objset);
        if dir.dsl().heads().any_live(under) {
            return Err(KeyError::Busy { name: name() });
        }
        if state.roots.remove(&root).is_none() {
            return Err(KeyError::NotLoaded { name: name() });
        }
        for a in state.admitted.values_mut().filter(|a| a.root == root) {
            a.open = None;
        }
        drop(state);
        // What was decrypted must not outlive the key.
        dir.dsl().mos().objset().cache().purge();
        Ok(())
    }
}

impl zio::KeySource for Keys {
    fn keys(&self, objset: u64) -> std::result::Result<Arc<DataKeys>, zio::KeyError> {
        self.key(objset).ok_or(zio::KeyError::NotLoaded { objset })
    }
}

/// The root's directory and the wrapped keys that a key object holds.
pub(crate) fn read_wrapped(dsl: &Dsl, object: ObjNum) -> Result<(u64, WrappedKeys)> {
    let mos = dsl.mos();
    let shape = |why| Error::Corrupt { object, source: Corrupt::Shape { what: "crypto key", why } };
    let num = |name| mos.u64(object, name)?.ok_or_else(|| shape("a number is missing"));
    fn bytes<const N: usize>(mos: &pool::Mos, object: ObjNum, name: &str) -> Result<Option<[u8; N]>> {
        let value = mos.value(object, name)?;
        Ok(value.and_then(|v| v.as_bytes().and_then(|b| b.first_chunk().copied())))
    }
    let missing = || shape("a key, vector or tag is missing or short");
    let version = mos.u64(object, ck::VERSION)?.unwrap_or(0);
    let wrapped = WrappedKeys {
        suite: CryptoSuite::from_disk(num(ck::SUITE)?).map_err(Error::corrupt(object))?,
        version: KeyVersion::from_disk(version).map_err(|_| shape("its version is unknown"))?,
        guid: Guid(num(ck::GUID)?),
        iv: bytes(mos, object, ck::IV)?.ok_or_else(missing)?,
        mac: bytes(mos, object, ck::MAC)?.ok_or_else(missing)?,
        master: bytes(mos, object, ck::MASTER_KEY)?.ok_or_else(missing)?,
        hmac: bytes(mos, object, ck::HMAC_KEY)?.ok_or_else(missing)?,
    };
    Ok((num(ck::ROOT_DDOBJ)?, wrapped))
}

/// The wrapping key that the user's material stands for.
fn wrapping_key(dir: &Dir, object: ObjNum, material: &[u8]) -> std::result::Result<WrappingKey, KeyError> {
    let bad = |m| Err(KeyError::Malformed(m));
    let mos = dir.dsl().mos();
    let number = |name| mos.u64(object, name).map_err(Error::from);
    match dir.key_format()?.ok_or(KeyError::NotEncrypted)? {
        KeyFormat::Raw => match material.try_into() {
            Ok(key) => Ok(WrappingKey::from_raw(key)),
            Err(_) if material.len() < 32 => bad(Malformed::RawShort),
            Err(_) => bad(Malformed::RawLong),
        },
        KeyFormat::Hex => match material.len() {
            0..64 => bad(Malformed::HexShort),
            64 => match WrappingKey::from_hex(material) {
                Ok(key) => Ok(key),
                Err(_) => bad(Malformed::HexDigit),
            },
            _ => bad(Malformed::HexLong),
        },
        KeyFormat::Passphrase => match material.len() {
            0..MIN_PASSPHRASE_LEN => bad(Malformed::PassphraseShort),
            MIN_PASSPHRASE_LEN..=MAX_PASSPHRASE_LEN => {
                let salt = number("pbkdf2salt")?.unwrap_or(0);
                let iterations = number("pbkdf2iters")?.unwrap_or(0);
                let value = Corrupt::Range { what: "crypto key", field: "iterations", value: iterations };
                WrappingKey::from_passphrase(material, salt, iterations)
                    .map_err(|_| Error::Corrupt { object, source: value }.into())
            }
            _ => bad(Malformed::PassphraseLong),
        },
    }
}

impl Dir {
    /// The directory whose key wraps this one's, if it is encrypted (`encryptionroot`).
    ///
    /// # Errors
    /// As reading fails.
    pub fn encryption_root(&self) -> Result<Option<Dir>> {
        let Some(key) = self.crypto_object()? else { return Ok(None) };
        let Some(root) = self.dsl().mos().u64(key, ck::ROOT_DDOBJ)? else { return Ok(None) };
        match self.chain().find(|d| d.object().0 == root) {
            Some(dir) => Ok(Some(dir.clone())),
            // A clone's root may be elsewhere.
            None => self.dsl().dir_by_object(ObjNum(root)).map(Some),
        }
    }

    /// What the user has as a key; `None` if it is not encrypted.
    ///
    /// # Errors
    /// As reading fails; [`Error::Corrupt`] for an unknown format.
    pub fn key_format(&self) -> Result<Option<KeyFormat>> {
        let Some(key) = self.crypto_object()? else { return Ok(None) };
        match self.dsl().mos().u64(key, "keyformat")? {
            Some(1) => Ok(Some(KeyFormat::Raw)),
            Some(2) => Ok(Some(KeyFormat::Hex)),
            Some(3) => Ok(Some(KeyFormat::Passphrase)),
            v => Err(Error::Corrupt {
                object: key,
                source: Corrupt::Range { what: "crypto key", field: "keyformat", value: v.unwrap_or(0) },
            }),
        }
    }
}
