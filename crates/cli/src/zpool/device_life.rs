//! `zpool offline`, `online`, `attach`, `replace` and `detach`.

use api::{DeviceRefusal, Pool, PoolChange, PoolQuery, Reason, Settings, Vdev, VdevState};

use super::devices::{self, Lenience};
use super::settings::{self, Of};
use super::{change, get, wait};
use crate::cx::{Cx, Outcome, Stop};
use console::getopt::{Found, Getopt, Long, Opt};
use console::words;

/// Exit code after an error: libzfs returns -1.
const FAILED: i32 = 255;

const POWER: &[Long] = &[Long { name: "power", val: Opt::Named("power"), arg: false }];

/// The device that a word names in a pool.
pub(super) enum Target {
    /// A vdev of the tree.
    Vdev(u64),
    Spare,
    Cache(u64),
    Nothing,
}

impl Target {
    /// Finds the device that a word names (`zpool_find_vdev`).
    pub(super) fn of(pool: &Pool, word: &str) -> Self {
        let called = |v: &Vdev| {
            let path = v.path.as_deref();
            path == Some(word) || path == Some(&format!("/dev/{word}")) || word.parse() == Ok(v.guid)
        };
        match get::guid_of(pool, word) {
            Some(guid) => Target::Vdev(guid),
            None if pool.spares.iter().any(called) => Target::Spare,
            None => match pool.l2cache.iter().find(|v| called(v)) {
                Some(cache) => Target::Cache(cache.guid),
                None => Target::Nothing,
            },
        }
    }

    /// The guid of a device that can go offline and online: a vdev or a cache device.
    fn device(&self) -> Result<u64, &'static str> {
        match self {
            Target::Cache(guid) => Ok(*guid),
            _ => self.vdev(),
        }
    }

    /// The guid of a vdev of the tree, or the reason why the word names none.
    fn vdev(&self) -> Result<u64, &'static str> {
        match self {
            Target::Vdev(guid) => Ok(*guid),
            Target::Spare => Err("device is reserved as a hot spare"),
            Target::Cache(_) => Err("device is in use as a cache"),
            Target::Nothing => Err("no such device in pool"),
        }
    }
}

/// The pool's name, and the devices after it.
fn operands<'a>(words: &'a [String], pool: &str, device: &str) -> Result<(&'a String, &'a [String]), Stop> {
    match words {
        [] => Err(Stop::usage(pool)),
        [_] => Err(Stop::usage(device)),
        [name, devices @ ..] => Ok((name, devices)),
    }
}

/// Queries the pool for `zpool offline` and `zpool online`.
fn open(cx: &mut Cx, name: &str) -> Result<Pool, Stop> {
    let opened = super::open(cx, name, PoolQuery::default());
    if opened.is_err() {
        write!(cx.err, "failed to open pool \"{name}\"");
    }
    opened
}

/// `zpool offline [--power] | [[-f] [-t]] <pool> <device> ...` (`zpool_do_offline`).
pub fn offline(cx: &mut Cx, args: &[String]) -> Outcome {
    let (mut fault, mut temporary, mut power) = (false, false, false);
    let mut g = Getopt::new(args, "ft", POWER);
    for found in g.by_ref() {
        match found {
            Found::Is(Opt::Short('f'), _) => fault = true,
            Found::Is(Opt::Short(_), _) => temporary = true,
            Found::Is(Opt::Named(_), _) => power = true,
            Found::Invalid(c) | Found::Missing(c) => return Err(Stop::invalid(c)),
        }
    }
    if power && fault {
        return Err(Stop::usage("-0 and -f cannot be used together\n"));
    }
    if power && temporary {
        return Err(Stop::usage("-0 and -t cannot be used together\n"));
    }
    let words = g.operands();
    let (name, devices) = operands(&words, "missing pool name\n", "missing device name\n")?;
    let pool = open(cx, name)?;
    if power {
        return change::no_power(cx);
    }
    let mut code = 0;
    for device in devices {
        let target = Target::of(&pool, device);
        // A cache device can go offline, but can't be faulted.
        let why = match if fault { target.vdev() } else { target.device() } {
            Ok(guid) => {
                let change = PoolChange::Offline { guid, temporary, fault };
                match cx.service()?.change_pool(name, &change) {
                    Ok(()) => continue,
                    Err(e) => words::reason(&e.reason, &cx.clock),
                }
            }
            // OpenZFS says nothing here.
            Err(why) if fault && matches!(target, Target::Cache(_)) => {
                format!("{why}; use 'zpool offline' without -f")
            }
            Err(why) => why.to_owned(),
        };
        let verb = if fault { "fault" } else { "offline" };
        writeln!(cx.err, "cannot {verb} {device}: {why}");
        code = 1;
    }
    if code == 0 {
        cx.changed(name);
    }
    Ok(code)
}

/// `zpool online [--power] [-e] <pool> <device> ...` (`zpool_do_online`).
pub fn online(cx: &mut Cx, args: &[String]) -> Outcome {
    let (mut expand, mut power) = (false, false);
    let mut g = Getopt::new(args, "e", POWER);
    for found in g.by_ref() {
        match found {
            Found::Is(Opt::Short(_), _) => expand = true,
            Found::Is(Opt::Named(_), _) => power = true,
            Found::Invalid(c) | Found::Missing(c) => return Err(Stop::invalid(c)),
        }
    }
    let words = g.operands();
    let (name, devices) = operands(&words, "missing pool name\n", "missing device name\n")?;
    let pool = open(cx, name)?;
    if power {
        return change::no_power(cx);
    }
    let mut code = 0;
    for device in devices {
        let target = Target::of(&pool, device);
        if matches!(target, Target::Nothing) {
            writeln!(cx.err, "couldn't find device \"{device}\" in pool \"{name}\"");
            code = 1;
            continue;
        }
        let what = if expand { "expand" } else { "online" };
        let done = match target.device() {
            Ok(_) if expand && matches!(target, Target::Cache(_)) => {
                Err("cannot expand cache devices".to_owned())
            }
            Err(why) => Err(why.to_owned()),
            Ok(guid) => {
                let change = PoolChange::Online { guid, expand };
                match cx.service()?.change_pool(name, &change) {
                    Ok(()) => Ok(guid),
                    Err(e) => Err(words::reason(&e.reason, &cx.clock)),
                }
            }
        };
        match done {
            Ok(guid) => {
                if !remains(cx, name, device, guid, expand, &pool)? {
                    return Ok(1);
                }
            }
            Err(why) => {
                writeln!(cx.err, "cannot {what} {device}: {why}");
                writeln!(cx.err, "Failed to online \"{device}\" in pool \"{name}\": -1");
                code = 1;
            }
        }
    }
    if code == 0 {
        cx.changed(name);
    }
    Ok(code)
}

/// Warns of a device that is online again but not healthy; false if the command must stop.
fn remains(
    cx: &mut Cx,
    name: &str,
    device: &str,
    guid: u64,
    expand: bool,
    before: &Pool,
) -> Result<bool, Stop> {
    let now = super::open(cx, name, PoolQuery::default())?;
    let caches = || now.l2cache.iter().find_map(|v| state_of(v, guid));
    let state = state_of(&now.root, guid).or_else(caches).unwrap_or(VdevState::Unknown);
    if state == VdevState::Healthy {
        return Ok(true);
    }
    writeln!(cx.out, "warning: device '{device}' onlined, but remains in faulted state");
    cx.out.put(match state {
        VdevState::Faulted => "use 'zpool clear' to restore a faulted device\n",
        _ => "use 'zpool replace' to replace devices that are no longer present\n",
    });
    if !expand {
        return Ok(true);
    }
    let was = state_of(&before.root, guid).unwrap_or(VdevState::Unknown);
    let well = matches!(was, VdevState::Degraded | VdevState::Healthy);
    let word = if well { "error" } else { "warning" };
    writeln!(cx.out, "{word}: failed to expand usable space on unhealthy device '{device}'");
    Ok(!well)
}

fn state_of(v: &Vdev, guid: u64) -> Option<VdevState> {
    if v.guid == guid {
        return Some(v.stat.state);
    }
    v.children.iter().find_map(|c| state_of(c, guid))
}

/// `zpool attach [-fsw] [-o property=value] <pool> <device> <new-device>` (`zpool_do_attach`).
pub fn attach(cx: &mut Cx, args: &[String]) -> Outcome {
    join(cx, args, false)
}

/// `zpool replace` (`zpool_do_replace`).
///
/// ```text
/// zpool replace [-fsw] [-o property=value] <pool> <device> [<new-device>]
/// ```
pub fn replace(cx: &mut Cx, args: &[String]) -> Outcome {
    join(cx, args, true)
}

/// The error for a property that `-o` does not set on new devices.
pub(super) fn not_ashift(name: &str) -> Stop {
    Stop::usage(format!("invalid property '{name}': -o sets only ashift\n"))
}

fn join(cx: &mut Cx, args: &[String], replace: bool) -> Outcome {
    let (mut force, mut sequential, mut wait) = (false, false, false);
    let mut props = Settings::new();
    let mut g = Getopt::new(args, "fo:sw", &[]);
    for found in g.by_ref() {
        match found {
            Found::Is(Opt::Short('f'), _) => force = true,
            Found::Is(Opt::Short('s'), _) => sequential = true,
            Found::Is(Opt::Short('w'), _) => wait = true,
            Found::Is(_, arg) => match arg.split_once('=') {
                None => return Err(Stop::usage("missing '=' for -o option\n")),
                Some(("ashift", value)) => {
                    settings::add(cx, &mut props, Of::Pool, "ashift", value).map_err(|_| Stop::usage(""))?
                }
                Some((name, _)) => return Err(not_ashift(name)),
            },
            Found::Invalid(c) | Found::Missing(c) => return Err(Stop::invalid(c)),
        }
    }
    let words = g.operands();
    let (name, rest) = operands(&words, "missing pool name argument\n", "missing <device> specification\n")?;
    let (old, new) = match rest {
        [old] if replace => (old, old),
        [_] => return Err(Stop::usage("missing <new_device> specification\n")),
        [old, new] => (old, new),
        _ => return Err(Stop::usage("too many arguments\n")),
    };
    let pool = super::open(cx, name, PoolQuery { props: true, ..PoolQuery::default() })?;
    let own = pool.prop("ashift").filter(|p| p.source == api::Source::Local).map(|p| p.value(true));
    // The value is only checked: a new device gets the sector size of the vdev that it joins
    // (`VDEV_ALLOC_ATTACH`).
    let ashift = devices::ashift(&props).or(own).map(str::to_owned);
    let let_pass = Lenience { in_use: force, replication: true };
    let new = devices::one(cx, &pool, new, ashift.as_deref(), let_pass, replace)?;
    let asked = Asked { replace, sequential, force };
    let code = ask(cx, &pool, &asked, old, &new)?;
    if code == 0 {
        cx.changed(name);
        if wait {
            wait::until_over(cx, name, if replace { wait::REPLACE } else { wait::RESILVER })?;
        }
    }
    Ok(code)
}

/// The parsed command line.
struct Asked {
    replace: bool,
    sequential: bool,
    force: bool,
}

/// Requests that a device is attached, or replaces another (`zpool_vdev_attach`).
fn ask(cx: &mut Cx, pool: &Pool, asked: &Asked, old: &str, new: &Vdev) -> Outcome {
    let path = new.path.as_deref().unwrap_or_default();
    let what = match asked.replace {
        true => format!("cannot replace {old} with {path}"),
        false => format!("cannot attach {path} to {old}"),
    };
    let guid = match Target::of(pool, old).vdev() {
        Ok(guid) => guid,
        Err(why) => {
            writeln!(cx.err, "{what}: {why}");
            return Ok(FAILED);
        }
    };
    let Asked { replace, sequential, force } = *asked;
    let change = PoolChange::Attach { guid, new: Box::new(new.clone()), replace, sequential, force };
    let Err(e) = cx.service()?.change_pool(&pool.name, &change) else { return Ok(0) };
    let log = pool.root.children.iter().any(|top| top.is_log && state_of(top, guid).is_some());
    let why = match &e.reason {
        Reason::Device { why: DeviceRefusal::InUse } => format!("{path} is busy"),
        Reason::Device { why: DeviceRefusal::Target } if asked.replace && log => {
            "cannot replace a log with a spare".to_owned()
        }
        Reason::Device { why: DeviceRefusal::NotSequential | DeviceRefusal::RebuildDisabled }
            if asked.replace =>
        {
            "only mirror and dRAID vdevs support sequential reconstruction".to_owned()
        }
        Reason::Device { why: DeviceRefusal::Target } if asked.replace && asked.sequential => {
            "only mirror and dRAID vdevs support sequential reconstruction".to_owned()
        }
        Reason::Device { why: DeviceRefusal::Target } if asked.replace => {
            "already in replacing/spare config; wait for completion or use 'zpool detach'".to_owned()
        }
        reason => words::reason(reason, &cx.clock),
    };
    writeln!(cx.err, "{what}: {why}");
    Ok(FAILED)
}

/// `zpool detach <pool> <device>` (`zpool_do_detach`).
pub fn detach(cx: &mut Cx, args: &[String]) -> Outcome {
    let mut g = Getopt::new(args, "", &[]);
    if let Some(Found::Invalid(c) | Found::Missing(c)) = g.by_ref().next() {
        return Err(Stop::invalid(c));
    }
    let words = g.operands();
    let (name, devices) =
        operands(&words, "missing pool name argument\n", "missing <device> specification\n")?;
    let device = &devices[0];
    let pool = super::open(cx, name, PoolQuery::default())?;
    let why = match Target::of(&pool, device).vdev() {
        Ok(guid) => match cx.service()?.change_pool(name, &PoolChange::Detach { guid }) {
            Ok(()) => {
                cx.changed(name);
                return Ok(0);
            }
            Err(e) => words::reason(&e.reason, &cx.clock),
        },
        Err(why) => why.to_owned(),
    };
    writeln!(cx.err, "cannot detach {device}: {why}");
    Ok(FAILED)
}
