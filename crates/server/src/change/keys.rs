//! Wrapping keys for new encryption roots.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use dsl::keys::{KeyFormat, WrappingKey};
use dsl::ops::key::{NewCrypt, NewKey};
use ondisk::crypto_key::CryptoSuite;

use crate::api::{Error, KeyMaterial, Reason, Settings};

/// Rounds where the user says nothing (`DEFAULT_PBKDF2_ITERATIONS`).
const ROUNDS: u64 = 350_000;

fn get<'a>(props: &'a Settings, name: &str) -> Option<&'a str> {
    props.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
}

/// The key that the user gave, with what the dataset remembers of it.
pub(crate) fn new_key(about: &str, key: &KeyMaterial, props: &Settings) -> Result<NewKey, Error> {
    let bad = || Error::new(about, Reason::BadKey);
    let rounds = match get(props, "pbkdf2iters") {
        Some(text) => text.parse().map_err(|_| bad())?,
        None => ROUNDS,
    };
    let location = get(props, "keylocation").unwrap_or("prompt").to_owned();
    let (format, wrapping, salt, iterations) = match key {
        KeyMaterial::Raw(bytes) => {
            let bytes = bytes.as_slice().try_into().map_err(|_| bad())?;
            (KeyFormat::Raw, WrappingKey::from_raw(bytes), 0, 0)
        }
        KeyMaterial::Hex(digits) => (KeyFormat::Hex, WrappingKey::from_hex(digits).map_err(|_| bad())?, 0, 0),
        KeyMaterial::Passphrase(phrase) => {
            // A salt has only to differ from others'.
            let salt = RandomState::new().hash_one(about);
            let key = WrappingKey::from_passphrase(phrase, salt, rounds).map_err(|_| bad())?;
            (KeyFormat::Passphrase, key, salt, rounds)
        }
    };
    Ok(NewKey { format, location, key: Arc::new(wrapping), salt, iterations })
}

/// How a new dataset is to be encrypted; nothing if the request says nothing about it.
pub(crate) fn new_crypt(
    about: &str,
    key: Option<&KeyMaterial>,
    props: &Settings,
) -> Result<Option<NewCrypt>, Error> {
    let encryption = get(props, "encryption");
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
        // Another text is none of the property's values, which its own check says.
        Some(_) | None => None,
    };
    let key = key.map(|key| new_key(about, key, props)).transpose()?;
    Ok(Some(NewCrypt { suite, off: encryption == Some("off"), key }))
}
