//! `zpool initialize` and `zpool trim`.

use api::settings::pool::nice_number;
use api::{Error, LeafWork, Pool, PoolChange, PoolQuery, Reason, Vdev, WorkCommand, WorkKind, WorkState};
use rustix::io::Errno;

use super::get;
use crate::cx::{Cx, Outcome, Stop};
use crate::vdev_name::{NameFlags, vdev_name};
use console::getopt::{Found, Getopt, Long, Opt};

/// Exit code after an error: libzfs returns -1.
const FAILED: i32 = 255;
/// Shortest and longest pause between two queries with `-w`, in seconds.
const LOOKS: (f64, f64) = (0.05, 1.0);

const fn long(name: &'static str, letter: char, arg: bool) -> Long {
    Long { name, val: Opt::Short(letter), arg }
}

const INITIALIZE: &[Long] = &[
    long("cancel", 'c', false),
    long("suspend", 's', false),
    long("uninit", 'u', false),
    long("wait", 'w', false),
];
const TRIM: &[Long] = &[
    long("cancel", 'c', false),
    long("secure", 'd', false),
    long("rate", 'r', true),
    long("suspend", 's', false),
    long("wait", 'w', false),
];

/// The parsed command line.
struct Asked {
    kind: WorkKind,
    command: WorkCommand,
    rate: u64,
    secure: bool,
    wait: bool,
}

impl Asked {
    /// Accepts the option of a command. Two commands exclude each other.
    fn command(&mut self, letter: char, command: WorkCommand) -> Result<(), Stop> {
        if self.command != WorkCommand::Start && self.command != command {
            return Err(Stop::usage(format!("-{letter} cannot be combined with other options\n")));
        }
        self.command = command;
        Ok(())
    }

    /// Accepts an option that needs the command to start.
    fn only_to_start(&self, letter: char) -> Result<(), Stop> {
        match self.command {
            WorkCommand::Start => Ok(()),
            _ => Err(Stop::usage(format!("-{letter} cannot be combined with the -c or -s options\n"))),
        }
    }
}

/// `zpool initialize [-c | -s | -u] [-w] <pool> [<device> ...]` (`zpool_do_initialize`).
pub fn initialize(cx: &mut Cx, args: &[String]) -> Outcome {
    read(cx, WorkKind::Initialize, Getopt::new(args, "csuw", INITIALIZE))
}

/// `zpool trim [-dw] [-r <rate>] [-c | -s] <pool> [<device> ...]` (`zpool_do_trim`).
pub fn trim(cx: &mut Cx, args: &[String]) -> Outcome {
    read(cx, WorkKind::Trim, Getopt::new(args, "cdr:sw", TRIM))
}

fn read(cx: &mut Cx, kind: WorkKind, mut g: Getopt<'_>) -> Outcome {
    let mut asked = Asked { kind, command: WorkCommand::Start, rate: 0, secure: false, wait: false };
    for found in g.by_ref() {
        match found {
            Found::Is(Opt::Short('c'), _) => asked.command('c', WorkCommand::Cancel)?,
            Found::Is(Opt::Short('s'), _) => asked.command('s', WorkCommand::Suspend)?,
            Found::Is(Opt::Short('u'), _) => asked.command('u', WorkCommand::Undo)?,
            Found::Is(Opt::Short('w'), _) => asked.wait = true,
            Found::Is(Opt::Short('d'), _) => {
                asked.only_to_start('d')?;
                asked.secure = true;
            }
            Found::Is(_, rate) => {
                asked.only_to_start('r')?;
                asked.rate = nice_number(&rate)
                    .map_err(|why| Stop::usage(format!("invalid value for rate: {why}\n")))?;
            }
            Found::Invalid(c) | Found::Missing(c) => return Err(Stop::invalid(c)),
        }
    }
    let operands = g.operands();
    let [name, devices @ ..] = &operands[..] else {
        return Err(Stop::usage("missing pool name argument\n"));
    };
    if asked.wait && asked.command != WorkCommand::Start {
        return Err(Stop::usage(match kind {
            WorkKind::Initialize => "-w cannot be used with -c, -sor -u\n",
            WorkKind::Trim => "-w cannot be used with -c or -s\n",
        }));
    }
    let pool = match super::open(cx, name, PoolQuery::default()) {
        Err(Stop::Fail(_)) => return Ok(FAILED),
        pool => pool?,
    };
    ask(cx, &pool, &asked, devices)
}

/// Collects all devices, by the names under which they are reported (`zpool_collect_leaves`).
fn leaves(pool: &Pool, v: &Vdev, into: &mut Vec<(String, u64)>) {
    if v.children.is_empty() {
        let flags = NameFlags { path: true, ..NameFlags::default() };
        let name = vdev_name(Some(&pool.name), v, flags);
        if !v.is_hole && v.kind != "indirect" {
            into.push((name, v.guid));
        }
    }
    v.children.iter().for_each(|c| leaves(pool, c, into));
}

/// The devices that the words name; reports unknown ones (`zpool_translate_vdev_guids`).
fn named(cx: &mut Cx, pool: &Pool, verb: &str, words: &[String]) -> Option<Vec<(String, u64)>> {
    let mut all = Vec::new();
    let mut good = true;
    for word in words {
        let called = |v: &Vdev| v.path.as_deref() == Some(word.as_str()) || word.parse() == Ok(v.guid);
        let why = match get::guid_of(pool, word) {
            Some(guid) => {
                all.push((word.clone(), guid));
                continue;
            }
            None if pool.spares.iter().any(called) => "device is reserved as a hot spare",
            None if pool.l2cache.iter().any(called) => "device is in use as a cache",
            None => "no such device in pool",
        };
        writeln!(cx.err, "cannot {verb} '{word}': {why}");
        good = false;
    }
    good.then_some(all)
}

fn ask(cx: &mut Cx, pool: &Pool, asked: &Asked, words: &[String]) -> Outcome {
    let verb = match asked.kind {
        WorkKind::Initialize => "initialize",
        WorkKind::Trim => "trim",
    };
    let devices = if words.is_empty() {
        let mut all = Vec::new();
        leaves(pool, &pool.root, &mut all);
        all
    } else {
        match named(cx, pool, verb, words) {
            Some(all) => all,
            None => return Ok(FAILED),
        }
    };
    let change = PoolChange::Work {
        kind: asked.kind,
        command: asked.command,
        devices: devices.iter().map(|(_, guid)| *guid).collect(),
        rate: asked.rate,
        secure: asked.secure,
    };
    match cx.service()?.change_pool(&pool.name, &change) {
        Ok(()) => {}
        Err(Error { reason: Reason::Several { errors }, .. }) => {
            if refused(cx, asked, verb, &devices, &errors, words.is_empty()) {
                return Ok(FAILED);
            }
        }
        Err(e) => {
            cx.complain("operation failed", &e);
            return Ok(FAILED);
        }
    }
    if asked.wait {
        wait(cx, pool, asked.kind, &devices)?;
    }
    cx.changed(&pool.name);
    Ok(0)
}

/// Reports the devices that refused; returns whether any was reported (`check_trim_errs`).
fn refused(
    cx: &mut Cx,
    asked: &Asked,
    verb: &str,
    devices: &[(String, u64)],
    errors: &[Error],
    whole_pool: bool,
) -> bool {
    let trim = asked.kind == WorkKind::Trim;
    let (mut reported, mut passed_over) = (false, 0);
    for e in errors {
        let errno = match e.reason {
            Reason::System { errno } => Errno::from_raw_os_error(errno),
            _ => Errno::IO,
        };
        if trim && errno == Errno::OPNOTSUPP && whole_pool && !asked.secure {
            passed_over += 1;
            continue;
        }
        let name =
            devices.iter().find(|(_, guid)| e.about == guid.to_string()).map_or(&e.about, |(name, _)| name);
        let why = match errno {
            Errno::NODEV => "no such device in pool".to_owned(),
            Errno::INVAL | Errno::ROFS => "invalid device".to_owned(),
            Errno::BUSY if trim => "currently trimming".to_owned(),
            Errno::BUSY => "currently initializing".to_owned(),
            Errno::SRCH if trim => "there is no active trim".to_owned(),
            Errno::SRCH => "there is no active initialization".to_owned(),
            Errno::OPNOTSUPP => "trim operations are not supported by this device".to_owned(),
            _ => console::words::reason(&e.reason, &cx.clock),
        };
        writeln!(cx.err, "cannot {verb} '{name}': {why}");
        reported = true;
    }
    if trim && passed_over == devices.len() {
        cx.err.put("cannot trim: no devices in pool support trim operations\n");
        reported = true;
    }
    reported
}

/// Waits until the work has ended on all these devices.
fn wait(cx: &mut Cx, pool: &Pool, kind: WorkKind, devices: &[(String, u64)]) -> Result<(), Stop> {
    let work = |v: &Vdev| -> LeafWork {
        match kind {
            WorkKind::Initialize => v.stat.initialize.clone(),
            WorkKind::Trim => v.stat.trim.clone(),
        }
    };
    fn busy(v: &Vdev, devices: &[(String, u64)], work: &dyn Fn(&Vdev) -> LeafWork) -> bool {
        let mine = devices.iter().any(|(_, guid)| *guid == v.guid);
        (mine && work(v).state == WorkState::Active) || v.children.iter().any(|c| busy(c, devices, work))
    }
    let service = cx.service()?;
    let mut pause = LOOKS.0;
    loop {
        let now = match service.pool(&pool.name, &PoolQuery::default()) {
            Ok(now) => now,
            Err(e) if matches!(e.reason, Reason::NoSuchPool) => return Ok(()),
            Err(e) => return Err(cx.fail("error waiting", &e)),
        };
        if (!now.stale || now.suspended.is_some()) && !busy(&now.root, devices, &work) {
            return Ok(());
        }
        (cx.sleep)(pause);
        pause = (pause * 2.0).min(LOOKS.1);
    }
}
