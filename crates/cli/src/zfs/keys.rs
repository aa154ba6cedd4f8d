//! `zfs load-key` and `unload-key`. The command fetches keys, and the service tries them.

use std::io::{BufRead, BufReader, Read};

use api::{Dataset, DatasetKind as K, Error, KeyMaterial, LoadKeyRequest, PropSelect, Reason};

use super::datasets::{Gather, gather};
use crate::cx::{Cx, Outcome, Stop};
use crate::https;
use console::getopt::{Found, Getopt, Opt};
use console::words;

/// Attempts of a user at a terminal.
const ATTEMPTS: u32 = 3;
const RAW_KEY: usize = 32;

const PROPS: [&str; 4] = ["keyformat", "keylocation", "keystatus", "encryptionroot"];

fn query(recurse: bool) -> Gather {
    let props = PropSelect::Named(PROPS.iter().map(|p| (*p).to_owned()).collect());
    Gather { kinds: vec![K::Filesystem, K::Volume], recurse, props, ..Gather::default() }
}

/// Runs `zfs load-key` or `unload-key` (`zfs_do_load_key`, `zfs_do_unload_key`).
///
/// ```text
/// zfs load-key [-rn] [-L <keylocation>] <-a | filesystem|volume>
/// zfs unload-key [-r] <-a | filesystem|volume>
/// ```
///
/// # Errors
/// See [`Outcome`].
pub fn run(cx: &mut Cx, args: &[String], load: bool) -> Outcome {
    let (mut all, mut recursive, mut noop, mut location) = (false, false, false, None);
    let mut g = Getopt::new(args, "anrL:", &[]);
    for found in g.by_ref() {
        match found {
            Found::Is(Opt::Short('n'), _) if load => noop = true,
            Found::Is(Opt::Short('L'), arg) if load => location = Some(arg),
            Found::Is(Opt::Short('a'), _) => all = true,
            Found::Is(Opt::Short('r'), _) => recursive = true,
            Found::Is(Opt::Short(c), _) => return Err(Stop::invalid(c)),
            Found::Is(Opt::Named(_), _) => {}
            Found::Invalid(c) | Found::Missing(c) => return Err(Stop::invalid(c)),
        }
    }
    let names = g.operands();
    let many = all || recursive;
    if !all && names.is_empty() {
        return Err(Stop::usage("Missing dataset argument or -a option\n"));
    }
    if all && !names.is_empty() {
        return Err(Stop::usage("Cannot specify dataset with -a option\n"));
    }
    if many && location.as_deref().is_some_and(|l| l != "prompt") {
        return Err(Stop::usage("alternate keylocation may only be 'prompt' with -r or -a\n"));
    }
    let gathered = gather(cx, &names, &query(recursive))?;
    let (bad, found) = (gathered.failed(), gathered.found);
    let (mut tried, mut failed) = (0, 0);
    for d in &found {
        if many && (!is_root(d) || loaded(d) == load) {
            continue;
        }
        tried += 1;
        let ok = if load { load_one(cx, d, noop, location.as_deref())? } else { unload_one(cx, d)? };
        failed += u64::from(!ok);
    }
    if noop || (many && tried != 0) {
        let done = match (load, noop) {
            (true, true) => "verified",
            (true, false) => "loaded",
            (false, _) => "unloaded",
        };
        writeln!(cx.out, "{} / {tried} key(s) successfully {done}", tried - failed);
    }
    Ok(if failed != 0 { 255 } else { i32::from(bad) })
}

/// Loads the keys of a dataset and of all below it.
///
/// Returns whether a dataset could not be read, how many keys were tried, and how many of these
/// failed.
fn load_below(cx: &mut Cx, name: &str) -> Result<(bool, u64, u64), Stop> {
    let gathered = gather(cx, &[name.to_owned()], &query(true))?;
    let (bad, found) = (gathered.failed(), gathered.found);
    let (mut tried, mut failed) = (0, 0);
    for d in found.iter().filter(|d| is_root(d) && !loaded(d)) {
        tried += 1;
        failed += u64::from(!load_one(cx, d, false, None)?);
    }
    Ok((bad, tried, failed))
}

/// Loads the keys below a dataset for `zpool import -l`, and prints how many
/// (`zfs_crypto_attempt_load_keys`).
///
/// Returns whether one failed.
///
/// # Errors
/// * [`Stop::Fail`]: the service can't be reached. That is reported.
pub(crate) fn load_keys_below(cx: &mut Cx, name: &str) -> Result<bool, Stop> {
    let (bad, tried, failed) = load_below(cx, name)?;
    writeln!(cx.out, "{} / {tried} keys successfully loaded", tried - failed);
    Ok(bad || failed != 0)
}

/// Loads the keys that the file systems of a pool need for mounting. Returns whether one failed.
///
/// # Errors
/// * [`Stop::Fail`]: the service can't be reached. That is reported.
pub(crate) fn load_keys_in(cx: &mut Cx, pool: &str) -> Result<bool, Stop> {
    let (bad, _, failed) = load_below(cx, pool)?;
    Ok(bad || failed != 0)
}

/// Loads the key that a dataset needs for mounting, if it is not loaded. Returns whether that
/// failed.
///
/// The key is the one of its encryption root.
///
/// # Errors
/// * [`Stop::Fail`]: the service can't be reached. That is reported.
pub(crate) fn load_key_for(cx: &mut Cx, name: &str) -> Result<bool, Stop> {
    let gathered = gather(cx, &[name.to_owned()], &query(false))?;
    // The mount request reports other problems of the dataset.
    let Some(d) = gathered.found.first().filter(|d| text(d, "keystatus") == "unavailable") else {
        return Ok(false);
    };
    if is_root(d) {
        return Ok(!load_one(cx, d, false, None)?);
    }
    let gathered = gather(cx, &[text(d, "encryptionroot").to_owned()], &query(false))?;
    let Some(root) = gathered.found.first() else { return Ok(true) };
    Ok(!load_one(cx, root, false, None)?)
}

fn text<'a>(d: &'a Dataset, name: &str) -> &'a str {
    d.prop(name).map_or("-", |p| p.value(true))
}

fn is_root(d: &Dataset) -> bool {
    text(d, "encryptionroot") == d.name
}

fn loaded(d: &Dataset) -> bool {
    text(d, "keystatus") == "available"
}

fn say(cx: &mut Cx, load: bool, message: &str) -> bool {
    cx.out.flush();
    writeln!(cx.err, "Key {} error: {message}", if load { "load" } else { "unload" });
    false
}

/// Why this dataset's key can't be loaded or unloaded, before any key is fetched.
fn unfit(d: &Dataset, load: bool) -> Option<String> {
    let verb = if load { "loaded" } else { "unloaded" };
    if matches!(text(d, "keyformat"), "none" | "-") {
        return Some(format!("'{}' is not encrypted.", d.name));
    }
    if !is_root(d) {
        let root = text(d, "encryptionroot");
        return Some(format!("Keys must be {verb} for encryption root of '{}' ({root}).", d.name));
    }
    None
}

fn unload_one(cx: &mut Cx, d: &Dataset) -> Result<bool, Stop> {
    let fault =
        unfit(d, false).or_else(|| (!loaded(d)).then(|| format!("Key already unloaded for '{}'.", d.name)));
    if let Some(fault) = fault {
        return Ok(say(cx, false, &fault));
    }
    match cx.service()?.unload_key(&d.name) {
        Ok(()) => Ok(true),
        Err(e) => {
            let message = refusal(cx, d, &e, false);
            Ok(say(cx, false, &message))
        }
    }
}

fn load_one(cx: &mut Cx, d: &Dataset, noop: bool, location: Option<&str>) -> Result<bool, Stop> {
    let location = location.unwrap_or_else(|| text(d, "keylocation")).to_owned();
    // The daemon may have the key only for another command, and takes it then. But no prompt is
    // shown in vain.
    let in_vain = !noop && loaded(d) && location == "prompt";
    let fault = unfit(d, true).or_else(|| in_vain.then(|| format!("Key already loaded for '{}'.", d.name)));
    if let Some(fault) = fault {
        return Ok(say(cx, true, &fault));
    }
    let format = text(d, "keyformat").to_owned();
    let retry = location == "prompt" && format != "raw" && cx.secret.interactive();
    for attempt in 1.. {
        let again = retry && attempt < ATTEMPTS;
        let key = match fetch(cx, &d.name, &location, &format, "") {
            Ok(key) => key,
            Err(message) => {
                say(cx, true, &message);
                if again {
                    continue;
                }
                return Ok(false);
            }
        };
        let request = LoadKeyRequest { dataset: d.name.clone(), key, noop };
        match cx.service()?.load_key(&request) {
            Ok(()) => return Ok(true),
            Err(e) => {
                let message = refusal(cx, d, &e, true);
                say(cx, true, &message);
                if !(again && matches!(e.reason, Reason::WrongKey)) {
                    return Ok(false);
                }
            }
        }
    }
    Ok(false)
}

fn refusal(cx: &Cx, d: &Dataset, e: &Error, load: bool) -> String {
    match &e.reason {
        Reason::WrongKey => format!("Incorrect key provided for '{}'.", d.name),
        Reason::KeyLoaded => format!("Key already loaded for '{}'.", d.name),
        Reason::KeyNotLoaded => format!("Key already unloaded for '{}'.", d.name),
        Reason::Busy => format!("'{}' is busy.", d.name),
        Reason::Permission => "Permission denied.".into(),
        Reason::BadKey if load => format!("Invalid parameters provided for dataset {}.", d.name),
        reason => words::reason(reason, &cx.clock),
    }
}

/// Fetches a key from its location and checks its form (`get_key_material`).
///
/// `which` is `new ` for the key of a new encryption root, and `again ` for its repetition.
///
/// # Errors
/// A text in OpenZFS's words:
///
/// * the location is invalid, or its scheme is not supported;
/// * the file, terminal or server can't be read;
/// * a raw or hexadecimal key has the wrong length or an invalid digit.
pub(super) fn fetch(
    cx: &mut Cx,
    name: &str,
    location: &str,
    format: &str,
    which: &str,
) -> Result<KeyMaterial, String> {
    let bytes = if location == "prompt" {
        cx.out.flush();
        let what = match format {
            "raw" => "raw key",
            "hex" => "hex key",
            _ => "passphrase",
        };
        let read = match format {
            "raw" if !cx.secret.interactive() => cx.secret.bytes(RAW_KEY + 1),
            _ => cx.secret.line(&match which {
                "again " => format!("Re-enter new {what}: "),
                which => format!("Enter {which}{what} for '{name}': "),
            }),
        };
        read.map_err(|e| e.to_string())?
    } else if let Some(path) = location.strip_prefix("file://") {
        from_file(path, format).map_err(|e| {
            let text = words::reason(&Reason::System { errno: e.raw_os_error().unwrap_or(5) }, &cx.clock);
            format!("Failed to open key material file: {text}")
        })?
    } else if ["https://", "http://"].iter().any(|scheme| location.starts_with(scheme)) {
        cx.out.flush();
        let found = https::get(location, &https::Certificates::of(cx.env)).map_err(|e| e.to_string())?;
        of_form(&found[..], format).map_err(|e| e.to_string())?
    } else if location.contains("://") {
        return Err("URI scheme is not supported".into());
    } else {
        return Err("Invalid keylocation.".into());
    };
    check(bytes, format)
}

fn from_file(path: &str, format: &str) -> std::io::Result<Vec<u8>> {
    of_form(std::fs::File::open(path)?, format)
}

/// Reads a key: a raw one whole, with one byte more to detect excess, and another one up to the
/// line's end.
fn of_form(from: impl Read, format: &str) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if format == "raw" {
        from.take(RAW_KEY as u64 + 1).read_to_end(&mut bytes)?;
        return Ok(bytes);
    }
    BufReader::new(from).take(4096).read_until(b'\n', &mut bytes)?;
    if bytes.last() == Some(&b'\n') {
        bytes.pop();
    }
    Ok(bytes)
}

fn check(bytes: Vec<u8>, format: &str) -> Result<KeyMaterial, String> {
    let length = |what: &str, expected: usize| match bytes.len() {
        n if n < expected => Err(format!("{what} key too short (expected {expected}).")),
        n if n > expected => Err(format!("{what} key too long (expected {expected}).")),
        _ => Ok(()),
    };
    match format {
        "raw" => length("Raw", RAW_KEY).map(|()| KeyMaterial::Raw(bytes)),
        "hex" => {
            length("Hex", 2 * RAW_KEY)?;
            if bytes.iter().all(u8::is_ascii_hexdigit) {
                Ok(KeyMaterial::Hex(bytes))
            } else {
                Err("Invalid hex character detected.".into())
            }
        }
        _ => Ok(KeyMaterial::Passphrase(bytes)),
    }
}
