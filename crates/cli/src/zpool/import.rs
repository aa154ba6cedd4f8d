//! `zpool import`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use api::{
    Candidate, Error, Found, ImportOutcome, ImportRequest, Lost, MmpState, MountRequest, PoolQuery,
    PoolState, Reason, Rewind, StatusReason,
};

use super::{config, show_import};
use crate::cx::{Cx, Outcome, Stop};
use crate::{names, props, zfs};
use console::getopt::{Found as Arg, Getopt, Long, Opt};
use console::words;

const LONG: &[Long] =
    &[Long { name: "rewind-to-checkpoint", val: Opt::Named("rewind-to-checkpoint"), arg: false }];

/// Most pools to import at a time, since each import has its own threads.
const MOST_AT_ONCE: usize = 16;

/// The parsed command line.
#[derive(Default)]
struct Import {
    all: bool,
    destroyed: bool,
    load_keys: bool,
    only: bool,
    scan: bool,
    /// Extreme rewind: `-X`, or `-T` without `-F`.
    extreme: bool,
    mount_options: Vec<String>,
    request: ImportRequest,
    /// The first operand; [`Import::new_name`] is the second.
    target: Option<String>,
    /// Devices that were already reported as not responding.
    named: BTreeSet<PathBuf>,
    new_name: Option<String>,
}

/// `zpool import`: lists the importable pools, imports one, or imports all (`zpool_do_import`).
pub fn run(cx: &mut Cx, args: &[String]) -> Outcome {
    let mut import = read(cx, args)?;
    let guid = import.target.as_deref().and_then(|t| t.parse::<u64>().ok());
    let name = import.target.clone().filter(|_| guid.is_none());
    (import.request.scan.guid, import.request.scan.name) = (guid, name.clone());
    let service = cx.service()?;

    let exists = match (&name, guid) {
        (Some(name), _) => service.pool_names().is_ok_and(|names| names.contains(name)),
        (None, Some(guid)) => service.pool_names().is_ok_and(|names| {
            names.iter().any(|n| service.pool(n, &PoolQuery::default()).is_ok_and(|p| p.guid == guid))
        }),
        _ => false,
    };
    let mut found = search(cx, &mut import)?;
    let target = import.target.clone().unwrap_or_default();
    if exists && import.new_name.as_ref().is_none_or(|n| *n == target) {
        writeln!(cx.err, "cannot import '{target}': a pool with that name already exists");
        cx.err.put("use the form 'zpool import <pool | id> <newpool>' to give it a new name\n");
        return Ok(1);
    }
    let mut failed = pools(cx, &import, guid, &found)?;
    // The devices of the cache file may have new names. A device that does not respond is not
    // searched for under other names.
    let acts = import.all || import.target.is_some();
    let anew = failed || (acts && found.lost.iter().any(|lost| lost.silent.is_empty()));
    if anew && import.request.scan.cachefile.is_some() {
        cx.out.put("cachefile import failed, retrying\n");
        import.request.scan.beside = true;
        found = search(cx, &mut import)?;
        failed = pools(cx, &import, guid, &found)?;
    }
    if import.target.is_none() {
        found.lost.iter().for_each(|lost| cannot_find(cx, lost));
        failed |= import.all && !found.lost.is_empty();
    }
    Ok(i32::from(failed))
}

/// Reports that a pool of the cache file was not found.
fn cannot_find(cx: &mut Cx, lost: &Lost) {
    writeln!(cx.err, "cannot import '{}': no such pool or dataset", lost.name);
    no_answer(cx, &lost.silent);
}

/// Lists the devices that did not respond, as a possible reason.
fn no_answer(cx: &mut Cx, silent: &[PathBuf]) {
    if !silent.is_empty() {
        cx.err.put("\tThese devices do not answer:\n");
        silent.iter().for_each(|path| writeln!(cx.err, "\t\t{}", path.display()));
    }
}

/// Searches for the wanted pools, destroyed ones or not.
///
/// A device that does not respond is reported once.
fn search(cx: &mut Cx, im: &mut Import) -> Result<Found, Stop> {
    let service = cx.service()?;
    let mut found = match service.scan(&im.request.scan) {
        Ok(found) => found,
        Err(e) if im.request.scan.cachefile.is_some() => {
            if e.reason == Reason::InvalidConfig {
                cx.err.put("invalid or corrupt cache file contents: invalid or missing cache file\n");
                return Err(Stop::Fail(1));
            }
            return Err(cx.fail("failed to open cache file", &e));
        }
        Err(e) => return Err(cx.fail("cannot discover pools", &e)),
    };
    found.pools.retain(|c| (c.pool.state == PoolState::Destroyed) == im.destroyed);
    for path in &found.silent {
        if im.named.insert(path.clone()) {
            writeln!(cx.err, "warning: '{}' does not answer: it is passed over", path.display());
        }
    }
    Ok(found)
}

/// Imports or lists the found pools; returns whether something failed.
///
/// A pool that the cache file names is only listed if it is healthy. Otherwise the caller searches
/// the folders of its devices next.
fn pools(cx: &mut Cx, im: &Import, guid: Option<u64>, all: &Found) -> Result<bool, Stop> {
    let found = &all.pools;
    let mut failed = false;
    match &im.target {
        Some(target) => {
            let mut imported = Vec::new();
            let failed = one(cx, im, target, (guid, all), &mut imported)?;
            mount_all(cx, im, imported)?;
            return Ok(failed);
        }
        None if im.all => {
            let mut imported = Vec::new();
            let mut chosen = Vec::new();
            for c in found {
                if refused(cx, im, c) { failed = true } else { chosen.push(c) }
            }
            for (c, answer) in chosen.iter().zip(ask_for(cx, im, &chosen)?) {
                failed |= concluded(cx, im, c, answer, &mut imported)?;
            }
            mount_all(cx, im, imported)?;
        }
        None => {
            let first_try = im.request.scan.cachefile.is_some() && !im.request.scan.beside;
            for (i, c) in found.iter().enumerate() {
                cx.out.put(if i > 0 { "\n" } else { "" });
                failed = first_try && c.pool.status != StatusReason::Ok;
                if !failed {
                    show_import::show(cx, c);
                }
            }
        }
    }
    none_found(cx, all);
    Ok(failed)
}

fn none_found(cx: &mut Cx, found: &Found) {
    if found.pools.is_empty() && found.lost.is_empty() {
        cx.err.put("no pools available to import\n");
    }
}

fn read(cx: &mut Cx, args: &[String]) -> Result<Import, Stop> {
    let mut im = Import::default();
    let r = &mut im.request;
    let mut g = Getopt::new(args, ":ac:d:DfFlmnNo:R:stT:VX", LONG);
    for found in g.by_ref() {
        match found {
            Arg::Is(Opt::Short(c), arg) => match c {
                'a' => im.all = true,
                'c' => r.scan.cachefile = Some(real_path(&arg)),
                'd' => r.scan.paths.push(real_path(&arg)),
                'D' => (im.destroyed, r.destroyed) = (true, true),
                'f' => r.force = true,
                'F' => r.rewind.rewind = true,
                'l' => im.load_keys = true,
                'm' => r.missing_log = true,
                'n' => r.rewind.dry_run = true,
                'N' => im.only = true,
                'o' => match arg.split_once('=') {
                    Some((name, value)) => add_prop(cx, &mut r.props, name, value)?,
                    None => im.mount_options = arg.split(',').map(str::to_owned).collect(),
                },
                'R' => {
                    add_prop(cx, &mut r.props, "altroot", &arg)?;
                    default_prop(&mut r.props, "cachefile", "none");
                }
                's' => im.scan = true,
                't' => {
                    r.temporary_name = true;
                    default_prop(&mut r.props, "cachefile", "none");
                }
                'T' => match parse_txg(&arg) {
                    Some(txg) => r.rewind.txg = Some(txg),
                    None => return Err(Stop::usage("invalid txg value\n")),
                },
                // Undocumented in OpenZFS: imports without a look at what the labels say.
                'V' => return Err(Stop::usage("-V (verbatim import) is not in this release of Poolhouse\n")),
                _ => im.extreme = true,
            },
            Arg::Is(Opt::Named(_), _) => r.rewind.to_checkpoint = true,
            Arg::Missing(c) => return Err(Stop::missing(c)),
            Arg::Invalid(c) => return Err(Stop::invalid(c)),
        }
    }
    let operands = g.operands();
    check(&im, &operands)?;
    // With `-T` alone, the txg may be of any age. `-F` limits how far back the pool may go.
    let rewind = &mut im.request.rewind;
    rewind.extreme = im.extreme || (rewind.txg.is_some() && !rewind.rewind);
    let mut operands = operands.into_iter();
    (im.target, im.new_name) = (operands.next(), operands.next());
    im.request.new_name = im.new_name.clone();
    if im.request.scan.paths.is_empty()
        && let Some(path) = (cx.env)("ZPOOL_IMPORT_PATH")
    {
        im.request.scan.paths = path.split(':').filter(|p| !p.is_empty()).map(real_path).collect();
    }
    Ok(im)
}

/// The absolute path, for a daemon with another working directory.
///
/// A symbolic link at the end of a file's path is kept, since it may be the more stable name.
fn real_path(arg: &str) -> PathBuf {
    let path = Path::new(arg);
    let absolute = || std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    // The daemon will report a path that does not respond.
    spa::ask(path, real_path_of).unwrap_or_else(absolute)
}

fn real_path_of(path: &Path) -> PathBuf {
    let whole = || path.canonicalize().or_else(|_| std::path::absolute(path));
    let real = match (path.is_dir(), path.parent(), path.file_name()) {
        (false, Some(dir), Some(name)) => {
            let dir = if dir.as_os_str().is_empty() { Path::new(".") } else { dir };
            dir.canonicalize().map(|dir| dir.join(name)).or_else(|_| whole())
        }
        _ => whole(),
    };
    real.unwrap_or_else(|_| path.to_owned())
}

/// Checks which options go together.
fn check(im: &Import, operands: &[String]) -> Result<(), Stop> {
    let scan = &im.request.scan;
    let Rewind { rewind, dry_run, .. } = im.request.rewind;
    let message = if scan.cachefile.is_some() && !scan.paths.is_empty() {
        "-c is incompatible with -d\n"
    } else if scan.cachefile.is_some() && im.scan {
        "-c is incompatible with -s\n"
    } else if im.load_keys && im.only {
        "-l is incompatible with -N\n"
    } else if im.load_keys && !im.all && operands.is_empty() {
        "-l is only meaningful during an import\n"
    } else if (dry_run || im.extreme) && !rewind {
        "-n or -X only meaningful with -F\n"
    } else if operands.len() > if im.all { 0 } else { 2 } {
        "too many arguments\n"
    } else {
        return Ok(());
    };
    Err(Stop::usage(message))
}

/// Parses a txg as `strtoull` does: decimal, octal or hexadecimal.
fn parse_txg(text: &str) -> Option<u64> {
    if let Some(hex) = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        return u64::from_str_radix(hex, 16).ok();
    }
    match text.strip_prefix('0').filter(|rest| !rest.is_empty()) {
        Some(octal) => u64::from_str_radix(octal, 8).ok(),
        None => text.parse().ok(),
    }
}

fn add_prop(cx: &mut Cx, list: &mut Vec<(String, String)>, name: &str, value: &str) -> Result<(), Stop> {
    let desc = props::find(props::POOL, name);
    let Some(name) = desc.map(|d| d.name).or_else(|| name.starts_with("feature@").then_some(name)) else {
        writeln!(cx.err, "property '{name}' is not a valid pool or vdev property");
        return Err(Stop::Fail(1));
    };
    if name != "cachefile" && list.iter().any(|(n, _)| n == name) {
        writeln!(cx.err, "property '{name}' specified multiple times");
        return Err(Stop::Fail(1));
    }
    list.retain(|(n, _)| n != name);
    list.push((name.to_owned(), value.to_owned()));
    Ok(())
}

fn default_prop(list: &mut Vec<(String, String)>, name: &str, value: &str) {
    if !list.iter().any(|(n, _)| n == name) {
        list.push((name.to_owned(), value.to_owned()));
    }
}

/// Imports the pool that the command line names.
fn one(
    cx: &mut Cx,
    im: &Import,
    target: &str,
    (guid, found): (Option<u64>, &Found),
    imported: &mut Vec<String>,
) -> Result<bool, Stop> {
    let hits: Vec<&Candidate> =
        found.pools.iter().filter(|c| guid.map_or(c.pool.name == target, |g| c.pool.guid == g)).collect();
    match hits[..] {
        [] => {
            writeln!(cx.err, "cannot import '{target}': no such pool available");
            no_answer(cx, &found.silent);
            Ok(true)
        }
        [c] => do_import(cx, im, c, imported),
        [.., last] if guid.is_some() => do_import(cx, im, last, imported),
        _ => {
            for _ in 1..hits.len() {
                write!(
                    cx.err,
                    "cannot import '{target}': more than one matching pool\nimport by numeric ID instead\n"
                );
            }
            Ok(true)
        }
    }
}

/// Imports one pool and loads its keys; returns whether something failed (`do_import`).
///
/// A pool to mount is added to `imported`.
fn do_import(cx: &mut Cx, im: &Import, c: &Candidate, imported: &mut Vec<String>) -> Result<bool, Stop> {
    if refused(cx, im, c) {
        return Ok(true);
    }
    let mut answers = ask_for(cx, im, &[c])?;
    concluded(cx, im, c, answers.remove(0), imported)
}

/// Whether the pool must not be imported; reports the reason.
fn refused(cx: &mut Cx, im: &Import, c: &Candidate) -> bool {
    let name = &c.pool.name;
    if !(1..=28).contains(&c.pool.version) && c.pool.version != 5000 {
        writeln!(cx.err, "cannot import '{name}': pool is formatted using an unsupported ZFS version");
        return true;
    }
    if c.force_required && !im.request.force {
        refuse(cx, c);
        return true;
    }
    if let Some(new) = &im.new_name
        && let Some(fault) = names::pool_name_fault(new, true)
    {
        writeln!(cx.err, "cannot import '{new}': {fault}");
        return true;
    }
    if let Some(fault) = prop_fault(&im.request.props) {
        writeln!(cx.err, "cannot import pool '{name}': {fault}");
        return true;
    }
    false
}

/// The result of one import.
type Answer = Result<ImportOutcome, Error>;

/// Requests imports; the answers have the order of `chosen` (`import_pools`).
///
/// Several imports run in parallel, so that each waits for its own devices only.
fn ask_for(cx: &mut Cx, im: &Import, chosen: &[&Candidate]) -> Result<Vec<Answer>, Stop> {
    let threads = cx.mount_threads();
    let request =
        |c: &Candidate| ImportRequest { guid: c.pool.guid, seen: c.seen, threads, ..im.request.clone() };
    let requests: Vec<ImportRequest> = chosen.iter().map(|c| request(c)).collect();
    let (Some(another), 2..) = (cx.another, requests.len()) else {
        let service = cx.service()?;
        return Ok(requests.iter().map(|request| service.import(request)).collect());
    };
    let answers: Vec<OnceLock<Answer>> = requests.iter().map(|_| OnceLock::new()).collect();
    let next = AtomicUsize::new(0);
    let work = || {
        let service = another();
        while let Some((request, answer)) = {
            let at = next.fetch_add(1, Ordering::Relaxed);
            requests.get(at).zip(answers.get(at))
        } {
            answer.get_or_init(|| service.import(request));
        }
    };
    std::thread::scope(|s| {
        for _ in 1..requests.len().min(MOST_AT_ONCE) {
            s.spawn(work);
        }
        work();
    });
    Ok(answers.into_iter().map(|answer| answer.into_inner().expect("every pool was asked for")).collect())
}

/// Reports the result of an import, and loads keys; returns whether something failed.
fn concluded(
    cx: &mut Cx,
    im: &Import,
    c: &Candidate,
    answer: Answer,
    imported: &mut Vec<String>,
) -> Result<bool, Stop> {
    let (name, request) = (&c.pool.name, &im.request);
    let outcome = match answer {
        Ok(outcome) => outcome,
        Err(e) => {
            explain(cx, im, c, &e);
            return Ok(true);
        }
    };
    if let Some(r) = outcome.rewind.as_ref().filter(|_| request.rewind.rewind || request.rewind.txg.is_some())
    {
        let text = words::rewound(name, request.rewind.dry_run, r, &cx.clock);
        cx.out.put(&text);
    }
    if request.rewind.dry_run {
        return Ok(true);
    }
    let now = im.new_name.as_ref().unwrap_or(name);
    if !im.request.props.iter().any(|(prop, value)| prop == "readonly" && value == "on") {
        cx.made(now);
    }
    imported.push(now.clone());
    Ok(im.load_keys && zfs::load_keys_below(cx, now)?)
}

/// Mounts all imported pools in one request: a file system of one may belong inside another's.
fn mount_all(cx: &mut Cx, im: &Import, pools: Vec<String>) -> Result<(), Stop> {
    if im.only || pools.is_empty() {
        return Ok(());
    }
    let about = pools.join("', '");
    let mount = MountRequest {
        datasets: pools,
        recursive: true,
        options: im.mount_options.clone(),
        threads: cx.mount_threads(),
        ..MountRequest::default()
    };
    match cx.service()?.mount(&mount) {
        Ok(report) if report.failures.is_empty() => return Ok(()),
        Ok(report) => zfs::mount_failures(cx, "mount", &report),
        Err(e) => cx.complain(&format!("cannot mount '{about}'"), &e),
    }
    cx.err.put("Import was successful, but unable to mount some datasets\n");
    Ok(())
}

/// The fault of a property that applies to the import itself.
fn prop_fault(props: &[(String, String)]) -> Option<String> {
    props.iter().find_map(|(name, value)| match name.as_str() {
        "altroot" if !value.starts_with('/') => Some(format!("bad alternate root '{value}'")),
        "readonly" if value != "on" && value != "off" => Some(format!("'{name}' must be one of 'on | off'")),
        _ => None,
    })
}

/// Reports why a pool that another host may be using needs `-f`.
fn refuse(cx: &mut Cx, c: &Candidate) {
    let (name, info) = (&c.pool.name, &c.pool.load_info);
    match info.mmp {
        MmpState::Active => write!(
            cx.err,
            "cannot import '{name}': pool is imported on {} (hostid: 0x{:x})\nExport the pool on the other system, then run \
             'zpool import'.\n",
            info.mmp_host.name.as_deref().unwrap_or("<unknown>"),
            info.mmp_host.id.unwrap_or(0)
        ),
        MmpState::NoHostid => write!(
            cx.err,
            "Cannot import '{name}': pool has the multihost property on and the\nsystem's hostid is not set. Set a unique hostid \
             with the zgenhostid(8) command.\n"
        ),
        MmpState::Inactive => {
            let host = info.host.name.as_deref().or(c.host.name.as_deref()).unwrap_or("<unknown>");
            let id = info.host.id.or(c.host.id).unwrap_or(0);
            let when = cx.clock.ctime(c.timestamp.unwrap_or(0));
            write!(
                cx.err,
                "cannot import '{name}': pool was previously in use from another system.\nLast accessed by {host} (hostid={id:x}) \
                 at {when}\nThe pool can be imported, use 'zpool import -f' to import the pool.\n"
            );
        }
    }
}

/// Reports why an import failed, and what can be done (`zpool_import_props`).
fn explain(cx: &mut Cx, im: &Import, c: &Candidate, e: &Error) {
    let name = &c.pool.name;
    if im.request.rewind.dry_run {
        if let Some(r) = info_of(e).and_then(|i| i.rewind.as_ref()) {
            let text = words::rewound(name, true, r, &cx.clock);
            cx.out.put(&text);
        }
        return;
    }
    let what = match &im.new_name {
        None => format!("cannot import '{name}'"),
        Some(new) => format!("cannot import '{name}' as '{new}'"),
    };
    match &e.reason {
        Reason::Unsupported(info) if !info.unsup_features.is_empty() => {
            cx.out.put("This pool uses the following feature(s) not supported by this system:\n");
            cx.out.put(&words::unsupported_features(info));
            if info.can_rdonly {
                cx.out.put(
                    "All unsupported features are only required for writing to the pool.\nThe pool can be imported using '-o \
                     readonly=on'.\n",
                );
            }
            cx.out.flush();
            cx.complain(&what, e);
        }
        Reason::MissingDevices(info) if !info.missing_devices.is_empty() => {
            cx.out.put("The devices below are missing or corrupted, use '-m' to import the pool anyway:\n");
            config::missing(cx, &info.missing_devices, 2);
            cx.out.put("\n");
            cx.out.flush();
            cx.complain(&what, e);
        }
        Reason::Corrupt { .. } | Reason::Io { .. } | Reason::NoCheckpoint => {
            cx.complain(&what, e);
            let rewind = info_of(e).and_then(|info| info.rewind.as_ref());
            let text = words::recover("import", name, rewind, &cx.clock);
            write!(cx.out, "\t{text}");
        }
        _ => cx.complain(&what, e),
    }
}

fn info_of(e: &Error) -> Option<&api::LoadInfo> {
    match &e.reason {
        Reason::Corrupt { info, .. } | Reason::Io { info, .. } => Some(info),
        Reason::MissingDevices(info) | Reason::Unsupported(info) | Reason::Active(info) => Some(info),
        _ => None,
    }
}
