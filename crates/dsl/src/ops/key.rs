//! Keys of encrypted datasets: created, changed, inherited.
//!
//! # Theory
//! A new encrypted dataset gets random data keys. The wrapping key of its encryption root wraps
//! them: its own key, if one is given, or that of the parent's root. Changing a wrapping key wraps
//! again the data keys of all datasets under that root. No block changes. Clones share the key
//! object of their origin, which counts them.
//!
//! # Absent
//! The user's key and its location (`keylocation`), except that the latter is stored: the commands
//! fetch the key.

use crate::error::{KeyRefusal, PropError, Refusal};
use crate::keys::{KeyFormat, RawKeys, WrappingKey, read_wrapped};
use crate::links::ParentWalk;
use crate::mos_objects::{DropEntry, words};
use crate::ops::create::Create;
use crate::ops::props::{SetAs, Setting};
use crate::prop::{Prop, Value};
use crate::sync::{SyncTask, Syncing, TaskNeed};
use crate::{Error, Result};
use codec::crypt::{CryptoSuite, DataKeys, KeyVersion, WrappedKeys};
use dmu::zap;
use ondisk::crypto_key as ck;
use ondisk::{Corrupt, DmuType, Guid, ObjNum};
use std::collections::BTreeMap;
use std::sync::Arc;

mod root;

pub use root::MoveKeys;

/// A new wrapping key of a dataset (`dsl_crypto_params_t`).
#[derive(Debug, Clone)]
pub struct NewKey {
    /// The form of the user's key.
    pub format: KeyFormat,
    /// Where the user has the key (`keylocation`).
    ///
    /// `None` keeps the location of an encryption root, and is `prompt` for a new one.
    pub location: Option<String>,
    /// The key itself.
    pub key: Arc<WrappingKey>,
    /// The salt, for a passphrase; otherwise 0.
    pub salt: u64,
    /// The rounds, for a passphrase; otherwise 0.
    pub iterations: u64,
}

/// The encryption of a new dataset (`dsl_crypto_params_t`).
#[derive(Debug, Clone, Default)]
pub struct NewCrypt {
    /// The algorithm; `None` is the parent's, or without an encrypted parent no encryption.
    pub suite: Option<CryptoSuite>,
    /// Whether `encryption=off` was given.
    pub off: bool,
    /// The wrapping key; `None` is the parent's.
    pub key: Option<NewKey>,
}

/// Changes the wrapping key of a dataset, which becomes an encryption root
/// (`spa_keystore_change_key`).
///
/// Without a new key the dataset takes its parent's, and is no longer an encryption root.
#[derive(Debug, Clone)]
pub struct ChangeKey {
    /// The dataset's full name.
    pub name: String,
    /// The new key; `None` inherits the parent's (`zfs change-key -i`).
    pub key: Option<NewKey>,
}

impl SyncTask for ChangeKey {
    fn need(&self) -> TaskNeed {
        TaskNeed::reserved(1)
    }

    fn check(&mut self, s: &mut Syncing<'_>) -> Result<()> {
        let refuse = |why| Err(Error::Key { name: self.name.clone(), why });
        if !s.feature_enabled("encryption")? {
            return refuse(KeyRefusal::Feature);
        }
        let dir = s.hold_dir(&self.name)?;
        let Some(object) = s.crypto_object(dir)? else { return refuse(KeyRefusal::NotEncrypted) };
        let d = s.dir(dir)?;
        if s.origin_txg(d.origin_obj)? != 0 {
            return refuse(KeyRefusal::Clone);
        }
        let root = s.key_root(object)?;
        if s.dsl.keys().root(root).is_none() {
            return refuse(KeyRefusal::NotLoaded);
        }
        if self.key.is_some() {
            return s.check_rewrap(root, dir);
        }
        if root != dir {
            return refuse(KeyRefusal::NotRoot);
        }
        s.check_rewrap(root, dir)?;
        match s.crypto_object(d.parent_obj)? {
            None => refuse(KeyRefusal::NoParentRoot),
            Some(above) => match s.key_root(above)? {
                // After a promotion the parent may be a clone of its child.
                same if same == dir => refuse(KeyRefusal::KeyOfParent),
                root if s.dsl.keys().root(root).is_none() => refuse(KeyRefusal::NotLoaded),
                _ => Ok(()),
            },
        }
    }

    fn sync(&mut self, s: &mut Syncing<'_>) -> Result<()> {
        let dir = s.hold_dir(&self.name)?;
        let lost = || Error::Key { name: self.name.clone(), why: KeyRefusal::NotLoaded };
        let object = s.crypto_object(dir)?.ok_or_else(lost)?;
        let old_root = s.key_root(object)?;
        let old = s.dsl.keys().root(old_root).ok_or_else(lost)?;
        let (root, to, key) = match &self.key {
            Some(new) => {
                if old_root != dir || new.location.is_some() {
                    s.store_location(dir, new)?;
                }
                let to =
                    Wrapper { root: dir, format: new.format, salt: new.salt, iterations: new.iterations };
                (dir, to, new.key.clone())
            }
            None => {
                s.remove_prop(dir, Prop::Keylocation.name())?;
                let parent = s.dir(dir)?.parent_obj;
                let above = s.crypto_object(parent)?.ok_or_else(lost)?;
                let to = s.wrapper_of(above)?;
                (to.root, to, s.dsl.keys().root(to.root).ok_or_else(lost)?)
            }
        };
        s.rewrap(old_root, dir, &old, &to, &key)?;
        let keys = s.dsl.keys();
        if old_root == dir && root != dir {
            keys.forget_root(dir);
        }
        keys.set_root(root, key);
        Ok(())
    }
}

/// Directories by the root of their key and the object with the key.
#[derive(Debug, Default)]
pub(crate) struct KeyUsers(BTreeMap<u64, BTreeMap<u64, Vec<u64>>>);

impl KeyUsers {
    /// Forgets a directory that was destroyed.
    fn forget(&mut self, dir: u64) {
        for objects in self.0.values_mut() {
            // A key without users is freed.
            objects.retain(|_, dirs| {
                dirs.retain(|user| *user != dir);
                !dirs.is_empty()
            });
        }
    }
}

/// What a key object says of the wrapping key.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wrapper {
    root: u64,
    format: KeyFormat,
    salt: u64,
    iterations: u64,
}

impl KeyFormat {
    /// The number on disk (`zfs_keyformat_t`).
    fn to_disk(self) -> u64 {
        match self {
            Self::Raw => 1,
            Self::Hex => 2,
            Self::Passphrase => 3,
        }
    }
}

impl Create {
    /// Whether a dataset with this encryption may be created below `parent`
    /// (`dmu_objset_create_crypt_check`).
    pub(crate) fn check_key(&self, s: &mut Syncing<'_>, parent: u64) -> Result<()> {
        s.check_new_key(parent, &self.name, self.crypt.as_ref())
    }
}

impl Syncing<'_> {
    /// Whether a dataset with this encryption may be created below `parent`
    /// (`dmu_objset_create_crypt_check`).
    ///
    /// For the root dataset, `parent` is 0.
    pub(crate) fn check_new_key(&self, parent: u64, name: &str, crypt: Option<&NewCrypt>) -> Result<()> {
        let refuse = |why| Err(Error::Key { name: name.to_owned(), why });
        let none = NewCrypt::default();
        let crypt = crypt.unwrap_or(&none);
        let above = self.crypto_object(parent)?;
        let encrypts = !crypt.off && (crypt.suite.is_some() || above.is_some());
        if !encrypts {
            return if crypt.key.is_some() { refuse(KeyRefusal::NotEncrypted) } else { Ok(()) };
        }
        if !self.feature_enabled("encryption")? || !self.feature_enabled("bookmark_v2")? {
            return refuse(KeyRefusal::Feature);
        }
        match (&crypt.key, above) {
            (Some(_), _) => Ok(()),
            (None, None) => refuse(KeyRefusal::NoFormat),
            (None, Some(above)) => {
                let root = self.key_root(above)?;
                if self.dsl.keys().root(root).is_none() { refuse(KeyRefusal::NotLoaded) } else { Ok(()) }
            }
        }
    }

    /// The object with the wrapped key, if the directory is encrypted.
    pub(crate) fn crypto_object(&self, dir: u64) -> Result<Option<u64>> {
        if dir == 0 {
            return Ok(None);
        }
        Ok(self.field_u64(dir, ck::FIELD)?.filter(|o| *o != 0))
    }

    /// The encryption root that a key object names.
    fn key_root(&self, object: u64) -> Result<u64> {
        Ok(self.mos().u64(ObjNum(object), ck::ROOT_DDOBJ)?.unwrap_or(0))
    }

    fn wrapper_of(&self, object: u64) -> Result<Wrapper> {
        let number = |name| Ok::<_, Error>(self.mos().u64(ObjNum(object), name)?.unwrap_or(0));
        let format = match number("keyformat")? {
            1 => KeyFormat::Raw,
            2 => KeyFormat::Hex,
            _ => KeyFormat::Passphrase,
        };
        Ok(Wrapper {
            root: number(ck::ROOT_DDOBJ)?,
            format,
            salt: number("pbkdf2salt")?,
            iterations: number("pbkdf2iters")?,
        })
    }

    /// Creates the keys of a new dataset, if it is to be encrypted
    /// (`dsl_dataset_create_crypt_sync`).
    pub(crate) fn create_key(
        &mut self,
        dir: u64,
        ds: u64,
        name: &str,
        crypt: Option<&NewCrypt>,
    ) -> Result<()> {
        let none = NewCrypt::default();
        let crypt = crypt.unwrap_or(&none);
        let parent = self.dir(dir)?.parent_obj;
        let above = self.crypto_object(parent)?;
        if crypt.off || (crypt.suite.is_none() && above.is_none()) {
            return Ok(());
        }
        let lost = || Error::Key { name: name.to_owned(), why: KeyRefusal::NotLoaded };
        let inherited = match above {
            Some(o) => Some((read_wrapped(self.dsl, ObjNum(o))?.1.suite, self.wrapper_of(o)?)),
            None => None,
        };
        let suite = crypt.suite.or(inherited.map(|(suite, _)| suite)).unwrap_or(CryptoSuite::Aes256Gcm);
        let (to, key) = match (&crypt.key, inherited) {
            (Some(new), _) => {
                let to =
                    Wrapper { root: dir, format: new.format, salt: new.salt, iterations: new.iterations };
                (to, new.key.clone())
            }
            (None, Some((_, to))) => (to, self.dsl.keys().root(to.root).ok_or_else(lost)?),
            (None, None) => return Err(lost()),
        };
        let mut bytes = zeroize_buffer();
        self.random_bytes(&mut bytes[..]);
        let (master, hmac) = bytes.split_at(ck::MASTER_KEY_MAX_LEN);
        let hmac = hmac.first_chunk().expect("the buffer holds both keys");
        let guid = Guid(self.guid());
        let data = DataKeys::new(suite, KeyVersion::V1, guid, &master[..suite.key_len()], hmac);
        let wrapped = key.wrap(&data, self.new_iv());

        let object = self.zap_create(DmuType::ZAP_METADATA)?;
        self.put_key(object, &to, &wrapped)?;
        for (field, n) in [(ck::REFCOUNT, 1), (ck::VERSION, KeyVersion::V1.to_disk())] {
            self.zap(object)?.update(self.tx, field.as_bytes(), &words(&[n]))?;
        }
        self.zapify(dir, DmuType::DSL_DIR)?;
        self.zap(dir)?.add(self.tx, ck::FIELD.as_bytes(), &words(&[object]))?;
        self.activate_new(ds, "encryption")?;
        if let Some(new) = &crypt.key {
            self.store_location(dir, new)?;
            self.dsl.keys().set_root(dir, key);
        }
        self.dsl.keys().enter(ds, (object, to.root), wrapped, Arc::new(data));
        Ok(())
    }

    /// Stores the keys of a raw stream as those of its dataset, which becomes an encryption root if
    /// it has no keys yet (`dsl_crypto_recv_raw_key_sync`).
    pub(crate) fn receive_key(&mut self, dir: u64, ds: u64, raw: &RawKeys) -> Result<()> {
        let wrapper = |root| Wrapper { root, format: raw.format, salt: raw.salt, iterations: raw.iterations };
        if let Some(object) = self.crypto_object(dir)? {
            let root = self.key_root(object)?;
            self.put_key(object, &wrapper(root), &raw.wrapped)?;
            self.dsl.keys().rewrapped(object, root, raw.wrapped);
            return Ok(());
        }
        let object = self.zap_create(DmuType::ZAP_METADATA)?;
        self.put_key(object, &wrapper(dir), &raw.wrapped)?;
        for (field, n) in [(ck::REFCOUNT, 1), (ck::VERSION, KeyVersion::V1.to_disk())] {
            self.zap(object)?.update(self.tx, field.as_bytes(), &words(&[n]))?;
        }
        self.zapify(dir, DmuType::DSL_DIR)?;
        self.zap(dir)?.add(self.tx, ck::FIELD.as_bytes(), &words(&[object]))?;
        self.activate_new(ds, "encryption")?;
        let value = Value::Text("prompt".to_owned());
        self.store_prop(dir, &Setting { name: Prop::Keylocation.name().to_owned(), value }, SetAs::Local)
    }

    /// Refuses a raw stream with other keys than its dataset has.
    pub(crate) fn check_received_key(&self, dir: u64, name: &str, raw: &RawKeys) -> Result<()> {
        let Some(object) = self.crypto_object(dir)? else { return Ok(()) };
        if self.mos().u64(ObjNum(object), ck::GUID)? == Some(raw.wrapped.guid.0) {
            return Ok(());
        }
        Self::refuse(name, Refusal::RawStream("encryption key does not match existing key"))
    }

    /// Stores where the user has a new key.
    fn store_location(&mut self, dir: u64, key: &NewKey) -> Result<()> {
        let value = Value::Text(key.location.clone().unwrap_or_else(|| "prompt".to_owned()));
        self.store_prop(dir, &Setting { name: Prop::Keylocation.name().to_owned(), value }, SetAs::Local)
    }

    /// Why `keylocation` can't have this value, if it can't (`dsl_crypto_can_set_keylocation`).
    pub(crate) fn check_location(&self, dir: u64, location: &str) -> Result<Option<PropError>> {
        Ok(match (self.crypto_object(dir)?, location) {
            (None, "none") => None,
            (None, _) => Some(PropError::KeyLocationOfNone),
            (Some(_), "none") => Some(PropError::NoKeyLocation),
            (Some(object), _) => (self.key_root(object)? != dir).then_some(PropError::KeyLocationBelowRoot),
        })
    }

    /// A random initialisation vector, which no wrapping used before.
    fn new_iv(&mut self) -> [u8; ck::IV_LEN] {
        let mut iv = [0; ck::IV_LEN];
        self.random_bytes(&mut iv);
        iv
    }

    /// Writes wrapped keys (`dsl_crypto_key_sync_impl`).
    fn put_key(&mut self, object: u64, to: &Wrapper, w: &WrappedKeys) -> Result<()> {
        self.keys = None;
        let zap = self.zap(object)?;
        for (name, n) in [
            (ck::SUITE, w.suite as u64),
            (ck::ROOT_DDOBJ, to.root),
            (ck::GUID, w.guid.0),
            ("keyformat", to.format.to_disk()),
            ("pbkdf2salt", to.salt),
            ("pbkdf2iters", to.iterations),
        ] {
            zap.update(self.tx, name.as_bytes(), &words(&[n]))?;
        }
        for (name, raw) in
            [(ck::IV, &w.iv[..]), (ck::MAC, &w.mac), (ck::MASTER_KEY, &w.master), (ck::HMAC_KEY, &w.hmac)]
        {
            zap.update(self.tx, name.as_bytes(), &zap::Value::bytes(raw))?;
        }
        Ok(())
    }

    /// Wraps again the keys of a directory and of all below it that have this root
    /// (`spa_keystore_change_key_sync_impl`).
    fn rewrap(
        &mut self,
        root: u64,
        top: u64,
        old: &WrappingKey,
        to: &Wrapper,
        key: &WrappingKey,
    ) -> Result<()> {
        for object in self.keys_under(root, top)?.into_keys() {
            let (_, wrapped) = read_wrapped(self.dsl, ObjNum(object))?;
            let bad = || Error::Key { name: String::new(), why: KeyRefusal::NotLoaded };
            let data = old.unwrap(&wrapped).map_err(|_| bad())?;
            let again = key.wrap(&data, self.new_iv());
            self.put_key(object, to, &again)?;
            self.dsl.keys().rewrapped(object, to.root, again);
        }
        Ok(())
    }

    /// All key objects that have this root, each with the directories that use it.
    ///
    /// The search covers the whole pool. It runs once for all operations of a txg that change no
    /// key.
    ///
    /// A search along children and clones alone would miss some. Promotions make directories that
    /// are clones of their own children. A rename can move one below its own clone.
    fn keys_of_root(&mut self, root: u64) -> Result<BTreeMap<u64, Vec<u64>>> {
        if self.keys.is_none() {
            self.keys = Some(self.key_users()?);
        }
        Ok(self.keys.as_ref().and_then(|users| users.0.get(&root)).cloned().unwrap_or_default())
    }

    fn key_users(&mut self) -> Result<KeyUsers> {
        let mut roots: BTreeMap<u64, u64> = BTreeMap::new();
        let mut users = KeyUsers::default();
        for (_, dir) in self.below(self.dsl.root_object().0, "")? {
            let Some(object) = self.crypto_object(dir)? else { continue };
            let root = match roots.get(&object) {
                Some(root) => *root,
                None => self.key_root(object)?,
            };
            roots.insert(object, root);
            users.0.entry(root).or_default().entry(object).or_default().push(dir);
        }
        Ok(users)
    }

    /// Key objects at and below a directory that have this root, each with the directories that use
    /// it.
    ///
    /// A key belongs to the one of its directories that is no clone. It is below the key of the
    /// nearest directory above that has another key.
    ///
    /// # Errors
    /// * [`Error::Corrupt`]: all directories of a key are clones.
    /// * [Reading](Error#reading): a directory or key object can't be read.
    fn keys_under(&mut self, root: u64, top: u64) -> Result<BTreeMap<u64, Vec<u64>>> {
        let mut keys = self.keys_of_root(root)?;
        if top == root {
            return Ok(keys);
        }
        let mut below: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
        for (object, dirs) in &keys {
            if let Some(above) = self.key_above(*object, dirs)? {
                below.entry(above).or_default().push(*object);
            }
        }
        let mut out = BTreeMap::new();
        let mut stack: Vec<u64> = self.crypto_object(top)?.into_iter().collect();
        while let Some(object) = stack.pop() {
            // An object that was taken is not taken again, so this ends.
            let Some(dirs) = keys.remove(&object) else { continue };
            out.insert(object, dirs);
            stack.extend(below.remove(&object).into_iter().flatten());
        }
        Ok(out)
    }

    /// The key object above this one.
    fn key_above(&mut self, object: u64, dirs: &[u64]) -> Result<Option<u64>> {
        let mut owner = None;
        for dir in dirs {
            let origin = self.dir(*dir)?.origin_obj;
            if self.origin_txg(origin)? == 0 {
                owner = Some(*dir);
                break;
            }
        }
        let none = || {
            let source = Corrupt::Shape { what: "crypto key", why: "all that have it are clones" };
            Error::Corrupt { object: ObjNum(object), source }
        };
        let mut at = owner.ok_or_else(none)?;
        let mut parents = ParentWalk::from(at);
        while at != 0 {
            match self.crypto_object(at)? {
                Some(same) if same == object => at = parents.parent(self, at)?,
                other => return Ok(other),
            }
        }
        Ok(None)
    }

    /// Checks that the root's key opens all keys that a change wraps again.
    ///
    /// A failure must be found before anything changes.
    fn check_rewrap(&mut self, root: u64, top: u64) -> Result<()> {
        let Some(key) = self.dsl.keys().root(root) else { return Ok(()) };
        for object in self.keys_under(root, top)?.into_keys().map(ObjNum) {
            let (_, wrapped) = read_wrapped(self.dsl, object)?;
            let source = Corrupt::Shape { what: "crypto key", why: "the root's key does not open it" };
            key.unwrap(&wrapped).map_err(|_| Error::Corrupt { object, source })?;
        }
        Ok(())
    }

    /// Refuses to destroy the encryption root of other datasets: their key could never be loaded
    /// again.
    pub(crate) fn check_destroy_key(&mut self, dir: u64, name: &str) -> Result<()> {
        let Some(object) = self.crypto_object(dir)? else { return Ok(()) };
        if self.key_root(object)? != dir {
            return Ok(());
        }
        if self.keys_of_root(dir)?.into_values().flatten().any(|other| other != dir) {
            return Err(Error::Key { name: name.to_owned(), why: KeyRefusal::RootOfOthers });
        }
        Ok(())
    }

    /// Shares the key of the origin with a clone (`dsl_crypto_key_clone_sync`).
    pub(crate) fn clone_key(&mut self, dir: u64, origin: u64) -> Result<()> {
        let from = self.ds(origin)?.dir_obj;
        let Some(object) = self.crypto_object(from)? else { return Ok(()) };
        self.keys = None;
        self.count_key(object, 1)?;
        self.zapify(dir, DmuType::DSL_DIR)?;
        let value = words(&[object]);
        self.zap(dir)?.add(self.tx, ck::FIELD.as_bytes(), &value)?;
        Ok(())
    }

    fn count_key(&mut self, object: u64, by: i64) -> Result<u64> {
        let zap = self.zap(object)?;
        let mut n = zap.lookup_u64(ck::REFCOUNT.as_bytes())?.unwrap_or(0);
        crate::account::adjust(object, "crypto key", &mut n, by)?;
        zap.update(self.tx, ck::REFCOUNT.as_bytes(), &words(&[n]))?;
        Ok(n)
    }

    /// Removes a directory's use of its key, and frees the key after the last use
    /// (`dsl_crypto_key_destroy_sync`).
    pub(crate) fn destroy_key(&mut self, dir: u64) -> Result<()> {
        let Some(object) = self.crypto_object(dir)? else { return Ok(()) };
        if let Some(users) = &mut self.keys {
            users.forget(dir);
        }
        if self.count_key(object, -1)? == 0 {
            self.mos().objset().free_object(self.tx, ObjNum(object))?;
        }
        self.dsl.keys().forget_root(dir);
        Ok(())
    }

    /// Refuses to move a dataset out of its encryption root, unless it is one
    /// (`dsl_dir_rename_crypt_check`).
    pub(crate) fn check_rename_key(&mut self, dir: u64, parent: u64, name: &str) -> Result<()> {
        let Some(object) = self.crypto_object(dir)? else { return Ok(()) };
        let root = self.key_root(object)?;
        if root == dir {
            return Ok(());
        }
        match self.crypto_object(parent)? {
            Some(above) if self.key_root(above)? == root => Ok(()),
            _ => Err(Error::Key { name: name.to_owned(), why: KeyRefusal::LeavesRoot }),
        }
    }

    /// Refuses a promotion that would change the encryption root of a key
    /// (`dsl_dataset_promote_crypt_check`).
    ///
    /// Promoting changes no key.
    pub(crate) fn check_promote_key(&mut self, dir: u64, origin_dir: u64, name: &str) -> Result<()> {
        let Some(object) = self.crypto_object(origin_dir)? else { return Ok(()) };
        let od = self.dir(origin_dir)?;
        if self.origin_txg(od.origin_obj)? != 0 {
            return Ok(());
        }
        if self.key_root(object)? == origin_dir {
            return self.keys_of_root(origin_dir).map(|_| ());
        }
        let above = [od.parent_obj, self.dir(dir)?.parent_obj];
        let mut roots = [0; 2];
        for (root, dir) in roots.iter_mut().zip(above) {
            *root = match self.crypto_object(dir)? {
                Some(o) => self.key_root(o)?,
                None => 0,
            };
        }
        if roots[0] != 0 && roots[0] == roots[1] {
            return Ok(());
        }
        Err(Error::Key { name: name.to_owned(), why: KeyRefusal::LeavesRoot })
    }

    /// Makes a promoted clone the encryption root, if its origin's dataset was one
    /// (`dsl_dataset_promote_crypt_sync`).
    pub(crate) fn promote_key(&mut self, dir: u64, origin_dir: u64) -> Result<()> {
        let Some(object) = self.crypto_object(origin_dir)? else { return Ok(()) };
        let origin = self.dir(origin_dir)?.origin_obj;
        if self.origin_txg(origin)? != 0 || self.key_root(object)? != origin_dir {
            return Ok(());
        }
        let props = self.dir(origin_dir)?.props_zapobj;
        let location =
            self.mos().string(ObjNum(props), "keylocation")?.unwrap_or_else(|| "prompt".to_owned());
        let value = Value::Text(location);
        self.store_prop(dir, &Setting { name: "keylocation".to_owned(), value }, SetAs::Local)?;
        self.remove_prop(origin_dir, Prop::Keylocation.name())?;
        let objects = self.keys_of_root(origin_dir)?;
        self.keys = None;
        for object in objects.into_keys() {
            let value = words(&[dir]);
            self.zap(object)?.update(self.tx, ck::ROOT_DDOBJ.as_bytes(), &value)?;
        }
        self.dsl.keys().move_root(origin_dir, dir);
        Ok(())
    }

    /// Removes a value without a trace.
    fn remove_prop(&mut self, dir: u64, name: &str) -> Result<()> {
        let object = self.dir(dir)?.props_zapobj;
        self.zap(object)?.drop_entry(self.tx, name.as_bytes())?;
        Ok(())
    }
}

/// A buffer for a master key and an HMAC key, zeroed when it is dropped.
fn zeroize_buffer() -> zeroize::Zeroizing<[u8; ck::MASTER_KEY_MAX_LEN + ck::HMAC_KEY_LEN]> {
    zeroize::Zeroizing::new([0; ck::MASTER_KEY_MAX_LEN + ck::HMAC_KEY_LEN])
}
