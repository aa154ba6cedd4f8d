//! Keys of encrypted datasets: loaded, unloaded, found for a block.
//!
//! # Theory
//! An *encryption root* is a directory whose wrapping key the user has. It and the datasets below
//! that name it as their root each have data keys. The wrapping key wraps these, and a ZAP holds
//! them. Loading a key unwraps the root's data keys, which proves that the key is right.
//!
//! A dataset is *admitted* when its object set is opened. [`Keys`] then keeps its wrapped keys, and
//! unwraps them as soon as the root's key is loaded. So finding the key of a block ([`Keys::key`])
//! is one look-up by object set.
//!
//! # Locks
//! One lock around the tables, held for look-ups and for unwrapping, never while a block is read.
//!
//! # Absent
//! Where the user keeps the key (`keylocation`): the commands fetch it. No wrapping key is ever
//! written.

use crate::dataset::Dataset;
use crate::dir::Dir;
use crate::{Dsl, Error, Result};
pub use codec::crypt::WrappingKey;
use codec::crypt::{CryptoSuite, DataKeys, KeyVersion, WrappedKeys};
use observe::lock::RwLock;
use ondisk::dnode::{DN_MAX_LEVELS, DNODE_BLOCK_SIZE};
use ondisk::nvlist::{Nvlist, Value};
use ondisk::{Corrupt, Guid, ObjNum, crypto_key as ck};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

/// Whether the key of a dataset is loaded (`zfs_keystatus_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u64)]
pub enum KeyStatus {
    /// The dataset is not encrypted.
    None = 0,
    /// The key is not loaded.
    Unavailable = 1,
    /// The key is loaded.
    Available = 2,
}

/// The form of the user's key (`zfs_keyformat_t`).
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
    /// A dataset under the root is open for writing, has unsynced changes, or is needed (`EBUSY`).
    #[error("'{name}' is busy.")]
    Busy {
        /// The dataset.
        name: String,
    },
    /// The key does not have the form of its format.
    #[error("{0}")]
    Malformed(Malformed),
    /// The key is wrong (`EACCES`).
    #[error("Incorrect key provided for '{name}'.")]
    Wrong {
        /// The dataset.
        name: String,
    },
    /// The dataset can't be read.
    #[error(transparent)]
    Dataset(#[from] Error),
}

/// What is wrong with the form of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// A raw key has too few bytes.
    #[error("Raw key too short (expected 32).")]
    RawShort,
    /// A raw key has too many bytes.
    #[error("Raw key too long (expected 32).")]
    RawLong,
    /// A hexadecimal key has too few digits.
    #[error("Hex key too short (expected 64).")]
    HexShort,
    /// A hexadecimal key has too many digits.
    #[error("Hex key too long (expected 64).")]
    HexLong,
    /// A character is no hexadecimal digit.
    #[error("Invalid hex character detected.")]
    HexDigit,
    /// A passphrase has too few characters.
    #[error("Passphrase too short (min {MIN_PASSPHRASE_LEN}).")]
    PassphraseShort,
    /// A passphrase has too many characters.
    #[error("Passphrase too long (max {MAX_PASSPHRASE_LEN}).")]
    PassphraseLong,
}

/// Numbers of compressors and checksums that need no feature (`ZIO_COMPRESS_LEGACY_FUNCTIONS`,
/// `ZIO_CHECKSUM_LEGACY_FUNCTIONS`).
const COMPRESS_LEGACY_FUNCTIONS: u64 = 15;
const CHECKSUM_LEGACY_FUNCTIONS: u64 = 10;

/// Loaded keys of a pool, shared with the block pipeline (`spa_keystore_t`).
#[derive(Debug, Default)]
pub struct Keys(RwLock<State>);

#[derive(Debug, Default)]
struct State {
    /// Wrapping keys by directory of the encryption root.
    roots: HashMap<u64, Arc<WrappingKey>>,
    /// Datasets whose object set was opened.
    admitted: BTreeMap<u64, Admitted>,
    /// Object sets that arrive encrypted. They are used as if no key were loaded.
    raw: HashSet<u64>,
    /// Keys that users need whatever is open, by the object with the wrapped keys.
    held: BTreeMap<u64, Held>,
}

#[derive(Debug)]
struct Held {
    root: u64,
    users: usize,
}

/// The need of a directory's key, which is not unloaded while this lives.
#[derive(Debug)]
pub struct KeyHold {
    keys: Arc<Keys>,
    object: u64,
}

impl Drop for KeyHold {
    fn drop(&mut self) {
        let mut state = self.keys.0.write();
        let Some(held) = state.held.get_mut(&self.object) else { return };
        held.users -= 1;
        if held.users == 0 {
            state.held.remove(&self.object);
        }
    }
}

#[derive(Debug)]
struct Admitted {
    /// The object with the wrapped keys. Datasets that were received raw may share their guid.
    object: u64,
    root: u64,
    wrapped: WrappedKeys,
    open: Option<Arc<DataKeys>>,
}

/// The use of an object set without its keys, although they may be loaded.
#[derive(Debug)]
pub struct RawUse {
    keys: Arc<Keys>,
    objset: u64,
}

impl Drop for RawUse {
    fn drop(&mut self) {
        let mut state = self.keys.0.write();
        state.raw.remove(&self.objset);
        // The next user reads the keys that are on disk now.
        state.admitted.remove(&self.objset);
    }
}

impl Keys {
    /// The data keys of an object set (`spa_keystore_lookup_key`).
    ///
    /// `None` if it is not encrypted, not admitted, or its key is not loaded.
    pub fn key(&self, objset: u64) -> Option<Arc<DataKeys>> {
        let state = self.0.read();
        if state.raw.contains(&objset) {
            return None;
        }
        state.admitted.get(&objset)?.open.clone()
    }

    /// The loaded wrapping key of an encryption root.
    pub(crate) fn root(&self, dir: u64) -> Option<Arc<WrappingKey>> {
        self.0.read().roots.get(&dir).cloned()
    }

    /// Sets the wrapping key of an encryption root.
    pub(crate) fn set_root(&self, dir: u64, key: Arc<WrappingKey>) {
        self.0.write().roots.insert(dir, key);
    }

    /// Notes that a directory is no longer an encryption root.
    pub(crate) fn forget_root(&self, dir: u64) {
        self.0.write().roots.remove(&dir);
    }

    /// Notes that another directory is the encryption root now.
    pub(crate) fn move_root(&self, from: u64, to: u64) {
        let mut state = self.0.write();
        if let Some(key) = state.roots.remove(&from) {
            state.roots.insert(to, key);
        }
        for a in state.admitted.values_mut().filter(|a| a.root == from) {
            a.root = to;
        }
        state.held.values_mut().filter(|held| held.root == from).for_each(|held| held.root = to);
    }

    /// Enters a new dataset with its keys.
    pub(crate) fn enter(
        &self,
        objset: u64,
        (object, root): (u64, u64),
        wrapped: WrappedKeys,
        open: Arc<DataKeys>,
    ) {
        self.0.write().admitted.insert(objset, Admitted { object, root, wrapped, open: Some(open) });
    }

    /// Notes that the keys of all datasets with this key object were wrapped again.
    pub(crate) fn rewrapped(&self, object: u64, root: u64, wrapped: WrappedKeys) {
        let mut state = self.0.write();
        for a in state.admitted.values_mut().filter(|a| a.object == object) {
            (a.root, a.wrapped) = (root, wrapped);
        }
        if let Some(held) = state.held.get_mut(&object) {
            held.root = root;
        }
    }

    /// Notes that all datasets with this key object, snapshots among them, have another encryption
    /// root now, whose key opens the same wrapped keys.
    pub(crate) fn moved(&self, object: u64, root: u64) {
        let mut state = self.0.write();
        let key = state.roots.get(&root).cloned();
        for a in state.admitted.values_mut().filter(|a| a.object == object) {
            a.root = root;
            a.open = a.open.take().or_else(|| key.as_ref()?.unwrap(&a.wrapped).ok().map(Arc::new));
        }
        if let Some(held) = state.held.get_mut(&object) {
            held.root = root;
        }
    }

    /// Keeps the key of a directory loaded, while the result lives. `None`: it is not encrypted.
    ///
    /// # Errors
    /// * [`KeyError::NotLoaded`]: the key is not loaded.
    /// * [`KeyError::Dataset`]: the directory or the key object can't be read.
    pub fn hold(self: &Arc<Self>, dir: &Dir) -> std::result::Result<Option<KeyHold>, KeyError> {
        let Some(object) = dir.crypto_object()? else { return Ok(None) };
        let (root, _) = read_wrapped(dir.dsl(), object)?;
        let mut state = self.0.write();
        if !state.roots.contains_key(&root) {
            return Err(KeyError::NotLoaded { name: dir.name().to_owned() });
        }
        state.held.entry(object.0).or_insert(Held { root, users: 0 }).users += 1;
        Ok(Some(KeyHold { keys: Arc::clone(self), object: object.0 }))
    }

    /// Uses an object set as if no key were loaded, while the result lives: it is received raw.
    pub(crate) fn receive_raw(self: &Arc<Self>, objset: u64) -> RawUse {
        self.0.write().raw.insert(objset);
        RawUse { keys: Arc::clone(self), objset }
    }

    /// Whether an object set is being received raw.
    pub fn is_raw(&self, objset: u64) -> bool {
        self.0.read().raw.contains(&objset)
    }

    /// Whether the key of a directory's datasets is loaded (`dsl_dataset_get_keystatus`).
    ///
    /// # Errors
    /// * [Reading](Error#reading): the directory's ZAP or the key object can't be read.
    pub fn status(&self, dir: &Dir) -> Result<KeyStatus> {
        let Some(key) = dir.crypto_object()? else { return Ok(KeyStatus::None) };
        let root = dir.dsl().mos().u64(key, ck::ROOT_DDOBJ)?;
        let loaded = root.is_some_and(|r| self.0.read().roots.contains_key(&r));
        Ok(if loaded { KeyStatus::Available } else { KeyStatus::Unavailable })
    }

    /// Keeps the wrapped keys of a dataset, so that loading the root's key opens its blocks.
    ///
    /// # Errors
    /// * [Reading](Error#reading): the key object can't be read.
    /// * [`Error::Corrupt`]: the key object is malformed.
    pub(crate) fn admit(&self, dataset: &Dataset) -> Result<()> {
        let objset = dataset.object().0;
        let is_known = |state: &State| state.admitted.contains_key(&objset) || state.raw.contains(&objset);
        if is_known(&self.0.read()) {
            return Ok(());
        }
        let Some(object) = dataset.dir().crypto_object()? else { return Ok(()) };
        let (root, wrapped) = read_wrapped(dataset.dsl(), object)?;
        let mut state = self.0.write();
        // Keys that arrived raw may be wrapped by another key than the root's, until the dataset
        // has the encryption root of its sender. Meanwhile they are locked.
        let open = state.roots.get(&root).and_then(|key| key.unwrap(&wrapped).ok()).map(Arc::new);
        state.admitted.insert(objset, Admitted { object: object.0, root, wrapped, open });
        Ok(())
    }

    /// Loads the key of an encryption root (`spa_keystore_load_wkey`).
    ///
    /// `material` is what the user has: 32 bytes, 64 digits, or a passphrase, without line ends.
    /// With `check_only` the key is only tried (`zfs load-key -n`).
    ///
    /// # Errors
    /// * [`KeyError::NotEncrypted`]: the dataset is not encrypted.
    /// * [`KeyError::NotRoot`]: the dataset is no encryption root.
    /// * [`KeyError::Loaded`]: the key is already loaded.
    /// * [`KeyError::Malformed`]: the material does not have the form of the key format.
    /// * [`KeyError::Wrong`]: the key does not open the data keys.
    /// * [`KeyError::Dataset`]: the directory or the key object can't be read.
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
        // Blocks that were read without the key were not checked against their MACs.
        dir.dsl().mos().objset().cache().purge();
        Ok(())
    }

    /// Unloads the key of an encryption root (`spa_keystore_unload_wkey`).
    ///
    /// The caller makes sure that no dataset under it is being read. A dataset that was written
    /// must have been released and synced: its blocks can't be encrypted without the key.
    ///
    /// # Errors
    /// * [`KeyError::NotEncrypted`]: the dataset is not encrypted.
    /// * [`KeyError::NotRoot`]: the dataset is no encryption root.
    /// * [`KeyError::NotLoaded`]: the key is not loaded.
    /// * [`KeyError::Busy`]: a dataset under it is open for writing or has unsynced changes, or the
    ///   key is held ([`Self::hold`]).
    /// * [`KeyError::Dataset`]: the directory or the key object can't be read.
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
        let is_held = state.held.values().any(|held| held.root == root);
        if is_held || dir.dsl().heads().any_live(under) {
            return Err(KeyError::Busy { name: name() });
        }
        if state.roots.remove(&root).is_none() {
            return Err(KeyError::NotLoaded { name: name() });
        }
        for a in state.admitted.values_mut().filter(|a| a.root == root) {
            a.open = None;
        }
        drop(state);
        // Decrypted blocks must not outlive the key.
        dir.dsl().mos().objset().cache().purge();
        Ok(())
    }
}

impl zio::KeySource for Keys {
    fn keys(&self, objset: u64) -> std::result::Result<Arc<DataKeys>, zio::KeyError> {
        self.key(objset).ok_or(zio::KeyError::NotLoaded { objset })
    }
}

/// What a raw stream says about its dataset: the wrapped keys, and the shape of the dnodes.
#[derive(Debug, Clone)]
pub struct RawKeys {
    pub(crate) wrapped: WrappedKeys,
    pub(crate) format: KeyFormat,
    pub(crate) salt: u64,
    pub(crate) iterations: u64,
    /// The object set.
    pub objset: dmu::RawObjset,
    /// The set of initialisation vectors of the snapshot that the stream builds on, or 0.
    pub(crate) from_ivset: u64,
    /// That of the new snapshot, or 0.
    pub(crate) to_ivset: u64,
}

impl RawKeys {
    /// Reads the list `crypt_keydata` of a stream (`dsl_crypto_recv_raw_key_check`,
    /// `dsl_crypto_recv_raw_objset_check`).
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(list: &Nvlist) -> std::result::Result<Self, &'static str> {
        fn bytes<const N: usize>(list: &Nvlist, name: &str) -> std::result::Result<[u8; N], &'static str> {
            let bytes = list.bytes(name).and_then(|bytes| bytes.try_into().ok());
            bytes.ok_or("its keys lack a field, or one has another length")
        }
        let number = |name| list.u64(name).ok_or("its keys lack a number");
        let small =
            |name, end: u64| number(name).map(|n| u8::try_from(n).ok().filter(|n| u64::from(*n) < end));
        let suite =
            CryptoSuite::from_disk(number(ck::SUITE)?).map_err(|_| "it has an unknown encryption suite")?;
        let version = KeyVersion::from_disk(number(ck::VERSION)?).ok();
        if version != Some(KeyVersion::V1) {
            return Err("its keys are of an unknown version");
        }
        let format = match number("keyformat")? {
            1 => KeyFormat::Raw,
            2 => KeyFormat::Hex,
            3 => KeyFormat::Passphrase,
            _ => return Err("its key has an unknown format"),
        };
        let (salt, iterations) = (number("pbkdf2salt")?, number("pbkdf2iters")?);
        let derived = format == KeyFormat::Passphrase;
        if derived != (salt != 0) || derived != (iterations != 0) {
            return Err("its key's format and parameters contradict each other");
        }
        let shape = "the blocks of dnodes have an impossible form";
        if number("mdn_blksz")? != DNODE_BLOCK_SIZE as u64 || number("mdn_nblkptr")? != 3 {
            return Err(shape);
        }
        Ok(Self {
            wrapped: WrappedKeys {
                suite,
                version: KeyVersion::V1,
                guid: Guid(number(ck::GUID)?),
                iv: bytes(list, ck::IV)?,
                mac: bytes(list, ck::MAC)?,
                master: bytes(list, ck::MASTER_KEY)?,
                hmac: bytes(list, ck::HMAC_KEY)?,
            },
            format,
            salt,
            iterations,
            objset: dmu::RawObjset {
                portable_mac: bytes(list, "portable_mac")?,
                compress: small("mdn_compress", COMPRESS_LEGACY_FUNCTIONS)?.ok_or(shape)?,
                checksum: small("mdn_checksum", CHECKSUM_LEGACY_FUNCTIONS)?.ok_or(shape)?,
                levels: small("mdn_nlevels", u64::from(DN_MAX_LEVELS) + 1)?.ok_or(shape)?,
                indirect_shift: small("mdn_indblkshift", 64)?.ok_or(shape)?,
                max_block: number("mdn_maxblkid")?,
            },
            from_ivset: list.u64("from_ivset_guid").unwrap_or(0),
            to_ivset: list.u64("to_ivset_guid").unwrap_or(0),
        })
    }
}

impl Dataset {
    /// What the receiver of a raw stream needs besides the blocks: the wrapped keys, and the shape
    /// of the dnodes (`dsl_crypto_populate_key_nvlist`). `from` is the set of initialisation
    /// vectors of the stream's origin, or 0. `None` if the dataset is not encrypted, or its keys
    /// are of the version that no receiver accepts.
    ///
    /// # Errors
    /// * [Reading](Error#reading): the key object or the object set can't be read.
    /// * [`Error::Corrupt`]: the key object is malformed.
    pub fn raw_keys(&self, from: u64) -> Result<Option<Nvlist>> {
        let (dsl, dir) = (self.dsl(), self.dir());
        let (Some(object), Some(os)) = (dir.crypto_object()?, self.objset()?) else { return Ok(None) };
        let (root, wrapped) = read_wrapped(dsl, object)?;
        let root = dsl.dir_by_object(ObjNum(root))?.crypto_object()?.unwrap_or(object);
        if wrapped.version != KeyVersion::V1 {
            return Ok(None);
        }
        let of_root = |name| Ok::<_, Error>(dsl.mos().u64(root, name)?.unwrap_or(0));
        let meta = os.phys().meta_dnode.clone();
        let mut list = Nvlist::new();
        list.set(ck::SUITE, Value::Uint64(wrapped.suite as u64));
        list.set(ck::GUID, Value::Uint64(wrapped.guid.0));
        list.set(ck::VERSION, Value::Uint64(wrapped.version as u64));
        list.set(ck::MASTER_KEY, Value::Uint8Array(wrapped.master.to_vec()));
        list.set(ck::HMAC_KEY, Value::Uint8Array(wrapped.hmac.to_vec()));
        list.set(ck::IV, Value::Uint8Array(wrapped.iv.to_vec()));
        list.set(ck::MAC, Value::Uint8Array(wrapped.mac.to_vec()));
        list.set("portable_mac", Value::Uint8Array(os.phys().portable_mac.to_vec()));
        for (name, number) in [
            ("keyformat", of_root("keyformat")?),
            ("pbkdf2iters", of_root("pbkdf2iters")?),
            ("pbkdf2salt", of_root("pbkdf2salt")?),
            ("mdn_checksum", meta.checksum.into()),
            ("mdn_compress", meta.compress.into()),
            ("mdn_nlevels", meta.nlevels.into()),
            ("mdn_blksz", meta.datablksz.into()),
            ("mdn_indblkshift", meta.indblkshift.into()),
            ("mdn_nblkptr", meta.blkptrs.len() as u64),
            ("mdn_maxblkid", meta.maxblkid.0),
            ("to_ivset_guid", self.field_u64(ondisk::mos::DS_IVSET_GUID)?.unwrap_or(0)),
            ("from_ivset_guid", from),
        ] {
            list.set(name, Value::Uint64(number));
        }
        Ok(Some(list))
    }
}

/// The encryption root and the wrapped keys of a key object.
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

/// The wrapping key that the user's material yields.
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
    /// * [Reading](Error#reading): the key object or the root can't be read.
    /// * [`Error::Corrupt`]: the parents of the root do not reach the root directory.
    pub fn encryption_root(&self) -> Result<Option<Dir>> {
        let Some(key) = self.crypto_object()? else { return Ok(None) };
        let Some(root) = self.dsl().mos().u64(key, ck::ROOT_DDOBJ)? else { return Ok(None) };
        match self.chain().find(|d| d.object().0 == root) {
            Some(dir) => Ok(Some(dir.clone())),
            // The root of a clone may be elsewhere.
            None => self.dsl().dir_by_object(ObjNum(root)).map(Some),
        }
    }

    /// The form of the user's key; `None` if the dataset is not encrypted.
    ///
    /// # Errors
    /// * [Reading](Error#reading): the key object can't be read.
    /// * [`Error::Corrupt`]: the format is unknown.
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
