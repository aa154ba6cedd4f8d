//! The verbs that change a pool as a whole: `destroy`, `set`, `reguid`, `sync`, `reopen`,
//! `checkpoint`, `prefetch`, `clear`.

use api::{Error, Pool, PoolChange, PoolQuery, Reason};
use ondisk::feature::{FEATURES, Feature};

use super::create::allowed;
use crate::cx::{Cx, Outcome, Stop};
use crate::names;
use console::getopt::{Found, Getopt, Long, Opt};
use console::words;

/// `EINVAL`: the exit code of `zpool set` if the pool or vdev does not exist.
const EINVAL: i32 = 22;

/// `zpool destroy [-f] <pool>` (`zpool_do_destroy`).
pub fn destroy(cx: &mut Cx, args: &[String]) -> Outcome {
    let mut force = false;
    let mut g = Getopt::new(args, "f", &[]);
    for found in g.by_ref() {
        match found {
            Found::Is(..) => force = true,
            Found::Invalid(c) | Found::Missing(c) => return Err(Stop::invalid(c)),
        }
    }
    let operands = g.operands();
    let name = one(&operands, "missing pool argument\n")?;
    if let Err(stop) = super::open(cx, name, PoolQuery::default()) {
        if name.contains('/') {
            cx.err.put("use 'zfs destroy' to destroy a dataset\n");
        }
        return Err(stop);
    }
    let change = PoolChange::Destroy { force, command: cx.command.clone() };
    match cx.service()?.change_pool(name, &change) {
        Ok(()) => Ok(0),
        Err(e) if e.about != *name && !matches!(e.reason, Reason::HeldOpen { .. }) => {
            let why = words::reason(&e.reason, &cx.clock);
            writeln!(cx.err, "cannot unmount '{}': {why}", e.about);
            writeln!(cx.err, "could not destroy '{name}': could not unmount datasets");
            Ok(1)
        }
        Err(e) => failed(cx, &format!("cannot destroy '{name}'"), &e),
    }
}

/// The only operand; `missing` is the message without any.
fn one<'a>(operands: &'a [String], missing: &str) -> Result<&'a String, Stop> {
    match operands {
        [] => Err(Stop::usage(missing)),
        [one] => Ok(one),
        _ => Err(Stop::usage("too many arguments\n")),
    }
}

/// Reports a failed change in the wording for pools.
pub(super) fn failed(cx: &mut Cx, what: &str, error: &Error) -> Outcome {
    let why = match &error.reason {
        Reason::HeldOpen { by } => words::pool_is_busy(&error.about, by),
        Reason::Busy => "pool is busy".to_owned(),
        Reason::System { errno } if *errno == rustix::io::Errno::NOTSUP.raw_os_error() => {
            "operation not supported on this type of pool".to_owned()
        }
        reason => words::reason(reason, &cx.clock),
    };
    writeln!(cx.err, "{what}: {why}");
    Ok(1)
}

/// Requests a change, and reports a failure.
fn ask(cx: &mut Cx, name: &str, change: &PoolChange, what: &str) -> Outcome {
    match cx.service()?.change_pool(name, change) {
        Ok(()) => {
            cx.changed(name);
            Ok(0)
        }
        Err(e) => failed(cx, what, &e),
    }
}

/// `zpool set <property=value> <pool> [vdev]` (`zpool_do_set`).
pub fn set(cx: &mut Cx, args: &[String]) -> Outcome {
    if let Some(c) = args.first().and_then(|a| a.strip_prefix('-')) {
        return Err(Stop::invalid(c.chars().next().unwrap_or('\0')));
    }
    let (word, name, vdev) = match args {
        [] => return Err(Stop::usage("missing property=value argument\n")),
        [_] => return Err(Stop::usage("missing pool name\n")),
        [word, name] => (word, name, None),
        [word, name, vdev] => (word, name, Some(vdev)),
        _ => return Err(Stop::usage("too many pool names\n")),
    };
    let Some((property, value)) = word.split_once('=') else {
        return Err(Stop::usage("missing value in property=value argument\n"));
    };
    let known = cx.service()?.pool_names().map_err(|e| cx.fail("cannot list pools", &e))?;
    if !known.contains(name) {
        writeln!(cx.err, "cannot open '{name}': is not a pool");
        return Ok(EINVAL);
    }
    if let Some(vdev) = vdev {
        return set_vdev(cx, name, vdev, (property, value));
    }
    let pool = super::open(cx, name, PoolQuery { props: true, ..PoolQuery::default() })?;
    if !compatible(cx, &pool, property, value)? {
        return Ok(255);
    }
    let change = PoolChange::Set { props: vec![(property.to_owned(), value.to_owned())] };
    let code = ask(cx, name, &change, &format!("cannot set property for '{name}'"))?;
    // libzfs returns -1.
    Ok(if code == 0 { 0 } else { 255 })
}

/// `zpool set <property=value> <pool> <vdev>`.
fn set_vdev(cx: &mut Cx, name: &str, vdev: &str, (property, value): (&str, &str)) -> Outcome {
    let pool = super::open(cx, name, PoolQuery::default())?;
    let word = if vdev == "root" { "root-0" } else { vdev };
    let found = super::get::guid_of(&pool, word);
    let Some(guid) = found else {
        writeln!(cx.err, "cannot find '{word}' in '{name}': device not in pool");
        return Ok(EINVAL);
    };
    let (property, value) = (property.to_owned(), value.to_owned());
    let what = format!("cannot set property {property} for {word} on {name}");
    let code = ask(cx, name, &PoolChange::SetVdev { guid, property, value }, &what)?;
    Ok(if code == 0 { 0 } else { 255 })
}

/// Whether a feature is enabled. The pool must have been queried with its properties.
pub(super) fn enabled(pool: &Pool, feature: &Feature) -> bool {
    pool.prop(&format!("feature@{}", feature.name)).is_some_and(|p| p.value(true) != "disabled")
}

/// Checks a change against the feature set of `compatibility`; false if it is refused.
///
/// It warns of enabled features outside a new set, and refuses features outside the present set.
fn compatible(cx: &mut Cx, pool: &Pool, property: &str, value: &str) -> Result<bool, Stop> {
    let name = &pool.name;
    if property == "compatibility" {
        let Ok(set) = allowed(cx, value) else { return Ok(false) };
        if FEATURES.iter().any(|f| enabled(pool, f) && !set.has(f)) {
            writeln!(
                cx.err,
                "Warning: one or more features already enabled on pool '{name}'\nare not present in this compatibility set."
            );
        }
    }
    let feature = property.strip_prefix("feature@").filter(|_| value == "enabled");
    let Some(feature) = feature.and_then(Feature::by_name) else { return Ok(true) };
    let set = pool.prop("compatibility").map_or("", |p| p.value(true)).to_owned();
    let Ok(set) = allowed(cx, &set) else {
        writeln!(
            cx.err,
            "Error: cannot enable feature '{}' on pool '{name}'\nbecause the pool's 'compatibility' property cannot be parsed.",
            feature.name
        );
        return Ok(false);
    };
    if set.has(feature) {
        return Ok(true);
    }
    writeln!(
        cx.err,
        "Error: cannot enable feature '{}' on pool '{name}'\nas it is not specified in this pool's current compatibility set.\n\
         Consider setting 'compatibility' to a less restrictive set, or to 'off'.",
        feature.name
    );
    Ok(false)
}

/// `zpool reguid [-g guid] <pool>` (`zpool_do_reguid`).
pub fn reguid(cx: &mut Cx, args: &[String]) -> Outcome {
    let mut guid = None;
    let mut g = Getopt::new(args, "g:", &[]);
    for found in g.by_ref() {
        match found {
            // `strtoull` accepts negative numbers, and wraps them.
            Found::Is(_, arg) => match arg.parse().or_else(|_| arg.parse().map(i64::cast_unsigned)) {
                Ok(n) => guid = Some(n),
                Err(_) => return Err(Stop::usage(format!("invalid GUID: {arg}\n"))),
            },
            Found::Invalid(c) | Found::Missing(c) => return Err(Stop::invalid(c)),
        }
    }
    let operands = g.operands();
    let name = one(&operands, "missing pool name\n")?;
    super::open(cx, name, PoolQuery::default())?;
    ask(cx, name, &PoolChange::Reguid { guid }, &format!("cannot reguid '{name}'"))
}

/// `zpool reopen [-n] [pool] ...` (`zpool_do_reopen`).
pub fn reopen(cx: &mut Cx, args: &[String]) -> Outcome {
    each(cx, args, "n", &PoolChange::Reopen, |name| format!("cannot reopen '{name}'"))
}

/// `zpool sync [-f] [pool] ...` (`zpool_do_sync`).
pub fn sync(cx: &mut Cx, args: &[String]) -> Outcome {
    // The only option is `-f`, so a search of the leading words finds it.
    let anew =
        args.iter().take_while(|a| a.len() > 1 && a.starts_with('-') && *a != "--").any(|a| a.contains('f'));
    let change = if anew { PoolChange::SyncAnew } else { PoolChange::Sync };
    each(cx, args, "f", &change, |name| format!("sync '{name}' failed"))
}

/// Requests a change of the named pools, or of all. A failure does not stop the others.
fn each(
    cx: &mut Cx,
    args: &[String],
    letters: &'static str,
    change: &PoolChange,
    words: impl Fn(&str) -> String,
) -> Outcome {
    let mut g = Getopt::new(args, letters, &[]);
    for found in g.by_ref() {
        if let Found::Invalid(c) | Found::Missing(c) = found {
            return Err(Stop::invalid(c));
        }
    }
    let operands = g.operands();
    let (pools, failed_any) = super::pools(cx, &operands, PoolQuery::default())?;
    let mut code = i32::from(failed_any);
    for pool in pools {
        if let Err(e) = cx.service()?.change_pool(&pool.name, change) {
            failed(cx, &words(&pool.name), &e)?;
            code = 1;
        }
    }
    Ok(code)
}

const CHECKPOINT: &[Long] = &[
    Long { name: "discard", val: Opt::Short('d'), arg: false },
    Long { name: "wait", val: Opt::Short('w'), arg: false },
];

/// `zpool checkpoint [-d [-w]] <pool>` (`zpool_do_checkpoint`).
pub fn checkpoint(cx: &mut Cx, args: &[String]) -> Outcome {
    let (mut discard, mut wait) = (false, false);
    let mut g = Getopt::new(args, ":dw", CHECKPOINT);
    for found in g.by_ref() {
        match found {
            Found::Is(Opt::Short('d'), _) => discard = true,
            Found::Is(..) => wait = true,
            Found::Invalid(c) | Found::Missing(c) => return Err(Stop::invalid(c)),
        }
    }
    if wait && !discard {
        return Err(Stop::usage("--wait only valid when --discard also specified\n"));
    }
    let operands = g.operands();
    let name = one(&operands, "missing pool argument\n")?;
    if let Err(stop) = super::open(cx, name, PoolQuery::default()) {
        if name.contains('/') {
            cx.err.put(
                "'zpool checkpoint' doesn't work on datasets. To save the state of a dataset from a specific point in time please \
                 use 'zfs snapshot'\n",
            );
        }
        return Err(stop);
    }
    if discard {
        ask(
            cx,
            name,
            &PoolChange::DiscardCheckpoint { wait },
            &format!("cannot discard checkpoint in '{name}'"),
        )
    } else {
        ask(cx, name, &PoolChange::Checkpoint, &format!("cannot checkpoint '{name}'"))
    }
}

const CLEAR: &[Long] = &[Long { name: "power", val: Opt::Named("power"), arg: false }];

/// `zpool prefetch -t <type> <pool>` (`zpool_do_prefetch`).
pub fn prefetch(cx: &mut Cx, args: &[String]) -> Outcome {
    let mut kind = None;
    let mut g = Getopt::new(args, "t:", &[]);
    for found in g.by_ref() {
        match found {
            Found::Is(_, arg) => kind = Some(arg),
            Found::Invalid(c) | Found::Missing(c) => return Err(Stop::invalid(c)),
        }
    }
    let operands = g.operands();
    let name = match &operands[..] {
        [] => return Err(Stop::usage("missing pool name argument\n")),
        [name] => name,
        _ => return Err(Stop::usage("too many arguments\n")),
    };
    if kind.as_deref() != Some("ddt") {
        return Err(Stop::usage("unsupported prefetch type\n"));
    }
    open(cx, name, PoolQuery::default())?;
    let read = cx.service()?.prefetch(name);
    read.map_err(|e| cx.fail(&format!("cannot prefetch ddt in '{name}'"), &e))?;
    Ok(0)
}

/// `zpool clear [-nF] <pool> [device]` (`zpool_do_clear`).
pub fn clear(cx: &mut Cx, args: &[String]) -> Outcome {
    let (mut rewind, mut dry_run, mut extreme, mut power) = (false, false, false, false);
    let mut g = Getopt::new(args, "FnX", CLEAR);
    for found in g.by_ref() {
        match found {
            Found::Is(Opt::Short('F'), _) => rewind = true,
            Found::Is(Opt::Short('n'), _) => dry_run = true,
            Found::Is(Opt::Short(_), _) => extreme = true,
            Found::Is(Opt::Named(_), _) => power = true,
            Found::Invalid(c) | Found::Missing(c) => return Err(Stop::invalid(c)),
        }
    }
    let operands = g.operands();
    let (name, device) = match &operands[..] {
        [] => return Err(Stop::usage("missing pool name\n")),
        [name] => (name, None),
        [name, device] => (name, Some(device.clone())),
        _ => return Err(Stop::usage("too many arguments\n")),
    };
    if (dry_run || extreme) && !rewind {
        return Err(Stop::usage("-n or -X only meaningful with -F\n"));
    }
    super::open(cx, name, PoolQuery::default())?;
    if power {
        return no_power(cx);
    }
    let what = match &device {
        Some(device) => format!("cannot clear errors for {device}"),
        None => format!("cannot clear errors for {name}"),
    };
    if dry_run {
        // OpenZFS clears the errors even with `-n`.
        writeln!(
            cx.err,
            "{what}: the pool is open, so -F would discard nothing; leave out -n to clear errors"
        );
        return Err(Stop::Fail(1));
    }
    ask(cx, name, &PoolChange::Clear { device }, &what)
}

/// Reports that Poolhouse can't switch the power of slots.
pub(super) fn no_power(cx: &mut Cx) -> Outcome {
    cx.err.put("Power control not supported\n");
    Ok(1)
}

/// Queries one pool by name.
///
/// # Errors
/// * [`Stop::Fail`]: the name is invalid, or the query fails. The reason is reported.
pub(super) fn open(cx: &mut Cx, name: &str, query: PoolQuery) -> Result<Pool, Stop> {
    let what = format!("cannot open '{name}'");
    if let Some(fault) = names::pool_name_fault(name, false) {
        writeln!(cx.err, "{what}: {fault}");
        return Err(Stop::Fail(1));
    }
    let service = cx.service()?;
    service.pool(name, &query).map_err(|e| cx.fail(&what, &e))
}
