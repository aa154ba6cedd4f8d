//! Keys for new encryption roots, and `zfs change-key` (`libzfs_crypto.c`).

use api::{Dataset, DatasetChange, DatasetKind, KeyMaterial, Settings};
use dsl::Kind;
use dsl::prop::parse::{Context, setting};

use super::keys::fetch;
use super::open::{HEADS, ask, open, parse_prop};
use crate::cx::{Cx, Outcome, Stop};
use console::getopt::{Found, Getopt, Opt};

/// The lengths that a passphrase may have, in bytes (`MIN_PASSPHRASE_LEN`, `MAX_PASSPHRASE_LEN`).
const PASSPHRASE: std::ops::RangeInclusive<usize> = 8..=512;

/// The key of a new encryption root, if these properties make a dataset one (`zfs_crypto_create`).
///
/// Adds the key's location to the properties if it is missing. `below` says whether the parent is
/// encrypted.
///
/// # Errors
/// A text in OpenZFS's words:
///
/// * encryption properties are set without encryption;
/// * there is a location without a format, or `pbkdf2iters` without a passphrase;
/// * the key can't be fetched, or it has the wrong form or length;
/// * the repeated key differs.
pub fn new_key(
    cx: &mut Cx,
    name: &str,
    props: &mut Settings,
    below: bool,
) -> Result<Option<KeyMaterial>, String> {
    let get = |props: &Settings, what: &str| props.iter().find(|(n, _)| n == what).map(|(_, v)| v.clone());
    let format = get(props, "keyformat").filter(|f| f != "none");
    let location = get(props, "keylocation");
    if get(props, "encryption").map_or(!below, |e| e == "off") {
        let asks =
            format.is_some() || location.is_some_and(|l| l != "none") || get(props, "pbkdf2iters").is_some();
        return match asks {
            true => Err("Encryption must be turned on to set encryption properties.".into()),
            false => Ok(None),
        };
    }
    let Some(format) = format else {
        return match location {
            Some(_) => Err("Keyformat required for new encryption root.".into()),
            None => Ok(None),
        };
    };
    let location = location.unwrap_or_else(|| {
        props.push(("keylocation".to_owned(), "prompt".to_owned()));
        "prompt".to_owned()
    });
    if !["raw", "hex", "passphrase"].contains(&format.as_str()) {
        // The engine reports an invalid value in its own words.
        return Ok(None);
    }
    typed(cx, name, &location, &format, props).map(Some)
}

/// Fetches a new key. A terminal's user types it twice. A passphrase must have a valid length.
fn typed(
    cx: &mut Cx,
    name: &str,
    location: &str,
    format: &str,
    props: &Settings,
) -> Result<KeyMaterial, String> {
    if format != "passphrase" && props.iter().any(|(n, _)| n == "pbkdf2iters") {
        return Err("Cannot specify pbkdf2iters with a non-passphrase keyformat.".into());
    }
    let key = fetch(cx, name, location, format, "new ")?;
    if let KeyMaterial::Passphrase(phrase) = &key {
        if phrase.len() < *PASSPHRASE.start() {
            return Err(format!("Passphrase too short (min {}).", PASSPHRASE.start()));
        }
        if phrase.len() > *PASSPHRASE.end() {
            return Err(format!("Passphrase too long (max {}).", PASSPHRASE.end()));
        }
    }
    if location == "prompt" && cx.secret.interactive() && fetch(cx, name, location, format, "again ")? != key
    {
        return Err("Provided keys do not match.".into());
    }
    Ok(key)
}

/// What is wrong with the properties that a key change sets, if anything
/// (`zfs_crypto_verify_rewrap_nvlist`).
fn unfit(dataset: &Dataset, props: &Settings) -> Option<String> {
    if props.iter().any(|(name, _)| !["keyformat", "keylocation", "pbkdf2iters"].contains(&name.as_str())) {
        return Some("Only keyformat, keylocation and pbkdf2iters may be set with this command.".into());
    }
    let kind = if dataset.kind == DatasetKind::Volume { Kind::Volume } else { Kind::Filesystem };
    let context = Context { kind, creating: true, max_block: ondisk::SPA_MAXBLOCKSIZE };
    props.iter().find_map(|(name, value)| setting(name, value, context).err()).map(|e| e.to_string())
}

/// Runs `zfs change-key` (`zfs_do_change_key`).
///
/// ```text
/// zfs change-key [-l] [-o keyformat=<value>] ... <filesystem|volume>
/// zfs change-key -i [-l] <filesystem|volume>
/// ```
///
/// # Errors
/// See [`Outcome`].
pub fn change(cx: &mut Cx, args: &[String]) -> Outcome {
    let (mut inherit, mut load, mut props) = (false, false, Settings::new());
    let mut g = Getopt::new(args, "ilo:", &[]);
    for found in g.by_ref() {
        match found {
            Found::Is(Opt::Short('i'), _) => inherit = true,
            Found::Is(Opt::Short('l'), _) => load = true,
            Found::Is(_, arg) => parse_prop(cx, &mut props, &arg)?,
            Found::Invalid(c) | Found::Missing(c) => return Err(Stop::invalid(c)),
        }
    }
    if inherit && !props.is_empty() {
        return Err(Stop::usage("Properties not allowed for inheriting\n"));
    }
    let operands = g.operands();
    let name = match &operands[..] {
        [] => return Err(Stop::usage("Missing dataset argument\n")),
        [name] => name,
        _ => return Err(Stop::usage("Too many arguments\n")),
    };
    let wanted = ["encryption", "keyformat", "keylocation", "keystatus", "encryptionroot", "origin"];
    let dataset = open(cx, name, &HEADS, &wanted).map_err(|_| Stop::usage(""))?;
    let text = |what: &str| dataset.prop(what).map_or("-", |p| p.value(true)).to_owned();
    if load && text("keystatus") == "unavailable" && super::keys::load_keys_below(cx, name)? {
        return Ok(255);
    }
    let say = |cx: &mut Cx, fault: &str| {
        writeln!(cx.err, "Key change error: {fault}");
        Ok(255)
    };
    if matches!(text("encryption").as_str(), "off" | "-") {
        return say(cx, "Dataset not encrypted.");
    }
    if !matches!(text("origin").as_str(), "" | "-") {
        return say(cx, "Keys cannot be changed on clones.");
    }
    if let Some(fault) = unfit(&dataset, &props) {
        return say(cx, &fault);
    }
    let root = text("encryptionroot") == *name;
    if inherit && !root {
        return say(cx, "Key inheritting can only be performed on encryption roots.");
    }
    let key = if inherit {
        None
    } else {
        // A format of `none` counts as not given.
        props.retain(|(n, v)| n != "keyformat" || v != "none");
        let get = |what: &str| props.iter().find(|(n, _)| n == what).map(|(_, v)| v.clone());
        if !root && get("keyformat").is_none() {
            return say(cx, "Keyformat required for new encryption root.");
        }
        let format = get("keyformat").unwrap_or_else(|| text("keyformat"));
        let location = match get("keylocation") {
            Some(location) => location,
            None if root => text("keylocation"),
            None => {
                props.push(("keylocation".into(), "prompt".into()));
                "prompt".to_owned()
            }
        };
        match typed(cx, name, &location, &format, &props) {
            Ok(key) => Some(key),
            Err(fault) => return say(cx, &fault),
        }
    };
    let change = DatasetChange::ChangeKey { name: name.clone(), key, props };
    ask(cx, &change, "Key change error", &|_| None).map_err(|_| Stop::Fail(255))?;
    Ok(0)
}
