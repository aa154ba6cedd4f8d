//! Wrapping keys for new encryption roots.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use dsl::keys::{KeyFormat, WrappingKey};
use dsl::ops::key::{NewCrypt, NewKey};
use dsl::{KeyRefusal, PropError};
use ondisk::crypto_key::CryptoSuite;

use api::{Error, KeyMaterial, Reason, Settings};

/// The default number of iterations (`DEFAULT_PBKDF2_ITERATIONS`).
const ROUNDS: u64 = 350_000;

fn get<'a>(props: &'a Settings, name: &str) -> Option<&'a str> {
    props.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
}

/// The names of the properties that request encryption or a key (`proplist_has_encryption_props`).
pub(crate) fn settings(props: &Settings) -> impl Iterator<Item = &str> {
    props.iter().filter_map(|(name, value)| match (name.as_str(), value.as_str()) {
        ("encryption", "off") | ("keylocation" | "keyformat", "none") => None,
        ("encryption" | "keylocation" | "keyformat" | "pbkdf2iters", _) => Some(name.as_str()),
        _ => None,
    })
}

/// Refuses encryption properties for a clone, which has its origin's (`zfs_crypto_clone_check`).
///
/// # Errors
/// * [`Reason::BadValue`]: `props` has such a property.
pub(crate) fn check_clone(about: &str, props: &Settings) -> Result<(), Error> {
    const OWN: [&str; 4] = ["encryption", "keyformat", "keylocation", "pbkdf2iters"];
    if props.iter().any(|(name, _)| OWN.contains(&name.as_str())) {
        return Err(bad(about, "Encryption properties must inherit from origin dataset."));
    }
    Ok(())
}

/// Refuses properties that can't change with a key (`zfs_crypto_verify_rewrap_nvlist`).
///
/// # Errors
/// * [`Reason::BadValue`]: `props` has another property than `keyformat`, `keylocation` and
///   `pbkdf2iters`, or `keylocation=none`.
pub(crate) fn check_change(about: &str, props: &Settings) -> Result<(), Error> {
    const OWN: [&str; 3] = ["keyformat", "keylocation", "pbkdf2iters"];
    if !props.iter().all(|(name, _)| OWN.contains(&name.as_str())) {
        return Err(bad(about, "Only keyformat, keylocation and pbkdf2iters may be set with this command."));
    }
    if get(props, "keylocation") == Some("none") {
        return Err(bad(about, &PropError::NoKeyLocation.to_string()));
    }
    Ok(())
}

fn bad(about: &str, what: &str) -> Error {
    Error::new(about, Reason::BadValue { what: what.to_owned() })
}

/// The wrapping key for the key that the user gave, with what the dataset stores of it
/// (`dsl_wrapping_key_create`).
///
/// # Errors
/// * [`Reason::BadKey`]: the key is malformed, or `pbkdf2iters` is not a number.
/// * [`Reason::BadValue`]: `pbkdf2iters` was given for a key that is not a passphrase.
pub(crate) fn new_key(about: &str, key: &KeyMaterial, props: &Settings) -> Result<NewKey, Error> {
    let bad = || Error::new(about, Reason::BadKey);
    let rounds = match get(props, "pbkdf2iters") {
        Some(text) => text.parse().map_err(|_| bad())?,
        None => ROUNDS,
    };
    let location = get(props, "keylocation").map(str::to_owned);
    if props.iter().any(|(name, _)| name == "pbkdf2iters") && !matches!(key, KeyMaterial::Passphrase(_)) {
        return Err(self::bad(about, "Cannot specify pbkdf2iters with a non-passphrase keyformat."));
    }
    let (format, wrapping, salt, iterations) = match key {
        KeyMaterial::Raw(bytes) => {
            let bytes = bytes.as_slice().try_into().map_err(|_| bad())?;
            (KeyFormat::Raw, WrappingKey::from_raw(bytes), 0, 0)
        }
        KeyMaterial::Hex(digits) => (KeyFormat::Hex, WrappingKey::from_hex(digits).map_err(|_| bad())?, 0, 0),
        KeyMaterial::Passphrase(phrase) => {
            // A salt has only to differ from other salts.
            let salt = RandomState::new().hash_one(about);
            let key = WrappingKey::from_passphrase(phrase, salt, rounds).map_err(|_| bad())?;
            (KeyFormat::Passphrase, key, salt, rounds)
        }
    };
    Ok(NewKey { format, location, key: Arc::new(wrapping), salt, iterations })
}

/// The encryption of a new dataset; `None` if the request has no encryption property
/// (`dsl_crypto_params_t`).
///
/// # Errors
/// * [`Reason::BadValue`]: there are key properties and no key.
/// * All others: see [`new_key`].
pub(crate) fn new_crypt(
    about: &str,
    key: Option<&KeyMaterial>,
    props: &Settings,
) -> Result<Option<NewCrypt>, Error> {
    let encryption = get(props, "encryption");
    if key.is_none() && settings(props).any(|of| of != "encryption") {
        return Err(bad(about, &KeyRefusal::NoFormat.to_string()));
    }
    if encryption.is_none() && key.is_none() {
        return Ok(None);
    }
    let suite = match encryption {
        Some("aes-128-ccm") => Some(CryptoSuite::Aes128Ccm),
        Some("aes-192-ccm") => Some(CryptoSuite::Aes192Ccm),
        Some("aes-256-ccm") => Some(CryptoSuite::Aes256Ccm),
        Some("aes-128-gcm") => Some(CryptoSuite::Aes128Gcm),
        Some("aes-192-gcm") => Some(CryptoSuite::Aes192Gcm),
        Some("on" | "aes-256-gcm") => Some(CryptoSuite::Aes256Gcm),
        // Any other text is not a value of the property, which the property's own check reports.
        Some(_) | None => None,
    };
    let key = key.map(|key| new_key(about, key, props)).transpose()?;
    Ok(Some(NewCrypt { suite, off: encryption == Some("off"), key }))
}
