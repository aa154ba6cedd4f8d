//! Properties of pools (`zpool_valid_proplist`).

use super::compat;
use dsl::prop::parse::ZFS_MAXPROPLEN;
use ondisk::feature::{FEATURES, Feature};
use std::path::Path;

#[cfg(test)]
mod tests;

/// The occasion on which properties are set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// The creation of the pool.
    Create,
    /// A change of an imported pool.
    Set,
    /// The import of the pool.
    Import,
}

/// A valid property.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Setting {
    /// A number that the pool stores.
    Number(&'static str, u64),
    /// A text that the pool stores.
    Text(String, String),
    /// The version, 1 to 28 or 5000.
    Version(u64),
    /// Enable this feature.
    Feature(&'static Feature),
    /// Leave this feature as it is.
    NoFeature(&'static Feature),
    /// The directory for its mountpoints, until its export.
    AltRoot(String),
    /// The cache file that lists the pool, until its export; absent for the default one.
    CacheFile(Option<String>),
    /// Whether to import the pool read-only.
    ReadOnly(bool),
    /// The name that it has until its export.
    TemporaryName(String),
    /// The name of the dataset to boot from.
    BootFs(String),
}

/// The longest comment in bytes (`ZPROP_MAX_COMMENT`).
const COMMENT_MAX: usize = 32;
/// The longest name in bytes (`ZAP_MAXNAMELEN`).
const NAME_MAX: usize = 256;
/// The only version with features (`SPA_VERSION_FEATURES`).
const VERSION_FEATURES: u64 = 5000;
/// The last version without features (`SPA_VERSION_BEFORE_FEATURES`).
const VERSION_BEFORE_FEATURES: u64 = 28;

/// The words of enumerated properties, in the order of their numbers.
const WORDS: [(&str, &[&str]); 8] = [
    ("delegation", &["off", "on"]),
    ("autoreplace", &["off", "on"]),
    ("failmode", &["wait", "continue", "panic"]),
    ("listsnapshots", &["off", "on"]),
    ("autoexpand", &["off", "on"]),
    ("readonly", &["off", "on"]),
    ("multihost", &["off", "on"]),
    ("autotrim", &["off", "on"]),
];

/// Properties that can't be set.
const READ_ONLY: [&str; 21] = [
    "name",
    "size",
    "capacity",
    "health",
    "guid",
    "dedupratio",
    "free",
    "allocated",
    "expandsize",
    "freeing",
    "fragmentation",
    "leaked",
    "maxblocksize",
    "maxdnodesize",
    "checkpoint",
    "load_guid",
    "bcloneused",
    "bclonesaved",
    "bcloneratio",
    "dedup_table_size",
    "last_scrubbed_txg",
];

/// Checks one property (`zpool_valid_proplist`).
///
/// `current` is the pool's version, and `hostid` this machine's.
///
/// # Errors
/// In OpenZFS's words: the property is unknown or read-only, can't be set on this occasion, or
/// can't have this value.
pub fn check(name: &str, value: &str, when: When, current: u64, hostid: u32) -> Result<Setting, String> {
    if let Some(feature) = name.strip_prefix("feature@") {
        return check_feature(name, feature, value, when);
    }
    if READ_ONLY.contains(&name) {
        return Err(format!("'{name}' is readonly"));
    }
    if let Some((property, words)) = WORDS.iter().find(|(property, _)| *property == name) {
        let number = words.iter().position(|word| *word == value);
        let list = match *words {
            ["off", "on"] => "on | off".to_owned(),
            words => words.join(" | "),
        };
        let number = number.ok_or_else(|| format!("'{name}' must be one of '{list}'"))? as u64;
        return match *property {
            "readonly" if when != When::Import => {
                Err(format!("property '{name}' can only be set at import time"))
            }
            "readonly" => Ok(Setting::ReadOnly(number != 0)),
            "multihost" if hostid == 0 => Err("requires a non-zero system hostid".to_owned()),
            property => Ok(Setting::Number(property, number)),
        };
    }
    match name {
        "version" => check_version(name, value, current),
        "ashift" => match number(value)? {
            n if n == 0 || (9..=16).contains(&n) => Ok(Setting::Number("ashift", n)),
            n => Err(format!(
                "property '{name}' number {n} is invalid, only values between 9 and 16 are allowed."
            )),
        },
        "dedup_table_quota" => match value {
            "none" => Ok(Setting::Number("dedup_table_quota", 0)),
            "auto" => Ok(Setting::Number("dedup_table_quota", u64::MAX)),
            _ => Ok(Setting::Number("dedup_table_quota", number(value)?)),
        },
        "bootfs" if when != When::Set => {
            Err(format!("property '{name}' cannot be set at creation or import time"))
        }
        "bootfs" => Ok(Setting::BootFs(value.to_owned())),
        "altroot" if when == When::Set => {
            Err(format!("property '{name}' can only be set during pool creation or import"))
        }
        "altroot" if !value.starts_with('/') => Err(format!("bad alternate root '{value}'")),
        "altroot" => Ok(Setting::AltRoot(value.to_owned())),
        "cachefile" => check_cachefile(name, value),
        "compatibility" => {
            compat::load(value, &compat::Folders::default())?;
            Ok(Setting::Text(name.to_owned(), value.to_owned()))
        }
        "comment" if value.bytes().any(|b| !(b' '..=b'~').contains(&b)) => {
            Err("comment may only have printable characters".to_owned())
        }
        "comment" if value.len() > COMMENT_MAX => {
            Err(format!("comment must not exceed {COMMENT_MAX} characters"))
        }
        "comment" => Ok(Setting::Text(name.to_owned(), value.to_owned())),
        "tname" if when == When::Create => Ok(Setting::TemporaryName(value.to_owned())),
        "tname" => Err(format!("property '{name}' can only be set at creation time")),
        _ if dsl::prop::is_user_property(name) => check_user_property(name, value),
        _ => Err(format!("invalid property '{name}'")),
    }
}

fn check_user_property(name: &str, value: &str) -> Result<Setting, String> {
    if name.len() >= NAME_MAX {
        Err(format!("property name '{name}' is too long"))
    } else if value.len() >= ZFS_MAXPROPLEN {
        Err(format!("property value '{value}' is too long"))
    } else {
        Ok(Setting::Text(name.to_owned(), value.to_owned()))
    }
}

/// Whether a feature may be enabled on a pool: each known feature may.
///
/// An active feature that writing does not maintain is refused when the pool is opened.
pub fn may_enable(feature: &Feature) -> bool {
    FEATURES.iter().any(|known| known.guid == feature.guid)
}

fn check_feature(name: &str, feature: &str, value: &str, when: When) -> Result<Setting, String> {
    let known = FEATURES.iter().find(|known| known.name == feature && may_enable(known));
    let feature = known.ok_or_else(|| format!("feature '{feature}' unsupported by kernel"))?;
    match value {
        "enabled" => Ok(Setting::Feature(feature)),
        "disabled" if when == When::Create => Ok(Setting::NoFeature(feature)),
        "disabled" => Err(format!("property '{name}' can only be set to 'disabled' at creation time")),
        _ => Err(format!("property '{name}' can only be set to 'enabled' or 'disabled'")),
    }
}

fn check_version(name: &str, value: &str, current: u64) -> Result<Setting, String> {
    let version = number(value)?;
    let exists = (1..=VERSION_BEFORE_FEATURES).contains(&version) || version == VERSION_FEATURES;
    if !exists || version < current {
        return Err(format!("property '{name}' number {version} is invalid."));
    }
    Ok(Setting::Version(version))
}

fn check_cachefile(name: &str, value: &str) -> Result<Setting, String> {
    match value {
        "" => return Ok(Setting::CacheFile(None)),
        "none" => return Ok(Setting::CacheFile(Some(value.to_owned()))),
        _ => {}
    }
    let Some((folder, file)) = value.rsplit_once('/').filter(|_| value.starts_with('/')) else {
        return Err(format!("property '{name}' must be empty, an absolute path, or 'none'"));
    };
    if matches!(file, "" | "." | "..") {
        return Err(format!("'{value}' is not a valid file"));
    }
    if !folder.is_empty() && !Path::new(folder).is_dir() {
        return Err(format!("'{folder}' is not a valid directory"));
    }
    Ok(Setting::CacheFile(Some(value.to_owned())))
}

/// A number with an optional unit, as `zfs_nicestrtonum` parses it.
fn number(value: &str) -> Result<u64, String> {
    nice_number(value)
}

/// A number with an optional unit: `16`, `1.5G`, `64KiB`, `0x10` (`zfs_nicestrtonum`).
///
/// # Errors
/// In OpenZFS's words: it is not a number, the unit is unknown, or it needs more than 64 bits.
pub fn nice_number(value: &str) -> Result<u64, String> {
    let bad = || format!("bad numeric value '{value}'");
    let large = || "numeric value is too large".to_owned();
    if !value.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
        return Err(bad());
    }
    if let Some(hex) = value.strip_prefix("0x") {
        return u64::from_str_radix(hex, 16).map_err(|_| bad());
    }
    let end = value.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(value.len());
    let (digits, suffix) = value.split_at(end);
    let unit = suffix.to_ascii_uppercase();
    let shift = match unit.as_bytes() {
        [] => 0,
        [first, rest @ ..] => {
            let at = "BKMGTPEZ"
                .find(char::from(*first))
                .ok_or_else(|| format!("invalid numeric suffix '{suffix}'"))?;
            // `K`, `KB` and `KiB`, but only `B` alone.
            if !(rest.is_empty() || (at > 0 && matches!(rest, b"B" | b"IB"))) {
                return Err(format!("invalid numeric suffix '{suffix}'"));
            }
            10 * at as u32
        }
    };
    if digits.contains('.') {
        let n: f64 = digits.parse().map_err(|_| bad())?;
        let n = n * 2f64.powi(shift as i32);
        // 2^64 is the least number that does not fit.
        return if n < 2f64.powi(64) { Ok(n as u64) } else { Err(large()) };
    }
    let n: u64 = digits.parse().map_err(|_| large())?;
    n.checked_mul(1u64.checked_shl(shift).filter(|unit| *unit != 0).ok_or_else(large)?).ok_or_else(large)
}
