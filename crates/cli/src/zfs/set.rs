//! `zfs set`, `inherit` and `upgrade`.

use api::{Dataset, DatasetChange, DatasetKind as K, PropSelect, Settings};

use super::datasets::{Gather, gather};
use super::open::parse_prop;
use crate::cx::{Cx, Outcome, Stop};
use crate::props::{self, Edit};
use console::getopt::{Found, Getopt, Opt};

const ALL: [K; 3] = [K::Filesystem, K::Volume, K::Snapshot];
/// The current version of file systems (`ZPL_VERSION`).
const ZPL_VERSION: u64 = 5;

/// `zfs set [-u] <property=value> ... <filesystem|volume|snapshot> ...` (`zfs_do_set`).
///
/// # Errors
/// See [`Outcome`].
pub fn set(cx: &mut Cx, args: &[String]) -> Outcome {
    let mut keep_mounted = false;
    let mut g = Getopt::new(args, "u", &[]);
    for found in g.by_ref() {
        match found {
            Found::Is(..) => keep_mounted = true,
            Found::Invalid(c) | Found::Missing(c) => return Err(Stop::invalid(c)),
        }
    }
    let operands = g.operands();
    match &operands[..] {
        [] => return Err(Stop::usage("missing arguments\n")),
        [word] if !word.contains('=') => return Err(Stop::usage("missing property=value argument(s)\n")),
        [_] => return Err(Stop::usage("missing dataset name(s)\n")),
        _ => {}
    }
    let first = operands.iter().position(|w| !w.contains('='));
    let first = first.ok_or_else(|| Stop::usage("missing dataset name(s)\n"))?;
    if first > 0 && operands[first..].iter().any(|w| w.contains('=')) {
        return Err(Stop::usage("invalid argument order\n"));
    }
    let mut props = Settings::new();
    for word in &operands[..first] {
        // OpenZFS returns -1.
        parse_prop(cx, &mut props, word).map_err(|_| Stop::Fail(255))?;
    }
    each(cx, &operands[first..], false, &|cx, d| {
        let what = format!("cannot set property for '{}'", d.name);
        let change = DatasetChange::Set { name: d.name.clone(), props: props.clone(), keep_mounted };
        Ok(match change_one(cx, &change, &what)? {
            Fate::Made => 0,
            Fate::Failed => 1,
            // OpenZFS returns -1.
            Fate::Stale => 255,
        })
    })
}

/// Calls `act` for each dataset that the operands name. Returns the exit code. As in OpenZFS, a
/// failure doesn't stop the rest.
fn each(
    cx: &mut Cx,
    operands: &[String],
    recursive: bool,
    act: &dyn Fn(&mut Cx, &Dataset) -> Outcome,
) -> Outcome {
    let how = Gather { kinds: ALL.to_vec(), recurse: recursive, ..Gather::default() };
    let gathered = gather(cx, operands, &how)?;
    let mut code = i32::from(gathered.failed());
    for d in &gathered.found {
        code |= act(cx, d)?;
    }
    Ok(code)
}

/// The message after a change that mounted file systems could not follow.
const STALE: &str = "property may be set but unable to remount filesystem\n";

/// The result of a change.
#[derive(PartialEq, Eq)]
enum Fate {
    Made,
    Failed,
    /// The change is made, but mounted file systems could not follow it.
    Stale,
}

/// Requests one change.
fn change_one(cx: &mut Cx, change: &DatasetChange, what: &str) -> Result<Fate, Stop> {
    let service = cx.service()?;
    match service.change(change) {
        Ok(changed) => {
            cx.changed(change.subject());
            // Mounts that fail afterwards are reported, and do not count as a failure
            // (`changelist_postfix`).
            let report = api::MountReport { failures: changed.unmounted, ..Default::default() };
            super::mount::failures(cx, "mount", &report);
            if !report.failures.is_empty() {
                cx.err.put(STALE);
            }
            let stale = api::MountReport { failures: changed.failures, ..Default::default() };
            super::mount::failures(cx, "mount", &stale);
            if stale.failures.is_empty() {
                return Ok(Fate::Made);
            }
            cx.err.put(STALE);
            Ok(Fate::Stale)
        }
        Err(e) if e.about.starts_with('/') => {
            cx.complain(&format!("cannot unmount '{}'", e.about), &e);
            Ok(Fate::Failed)
        }
        Err(e) => {
            cx.complain(what, &e);
            Ok(Fate::Failed)
        }
    }
}

/// `zfs inherit [-rS] <property> <filesystem|volume|snapshot> ...` (`zfs_do_inherit`).
///
/// # Errors
/// See [`Outcome`].
pub fn inherit(cx: &mut Cx, args: &[String]) -> Outcome {
    let (mut recursive, mut received) = (false, false);
    let mut g = Getopt::new(args, "rS", &[]);
    for found in g.by_ref() {
        match found {
            Found::Is(Opt::Short('r'), _) => recursive = true,
            Found::Is(..) => received = true,
            Found::Invalid(c) | Found::Missing(c) => return Err(Stop::invalid(c)),
        }
    }
    let operands = g.operands();
    let (word, datasets) = match &operands[..] {
        [] => return Err(Stop::usage("missing property argument\n")),
        [_] => return Err(Stop::usage("missing dataset argument\n")),
        [word, datasets @ ..] => (word, datasets),
    };
    let native = props::find(props::DATASET, word);
    match native {
        Some(d) if d.edit == Edit::ReadOnly => {
            writeln!(cx.err, "{word} property is read-only");
            return Ok(1);
        }
        Some(d) if !matches!(d.edit, Edit::Inherited | Edit::Once) && !received => {
            writeln!(cx.err, "'{word}' property cannot be inherited");
            if ["quota", "reservation", "refquota", "refreservation"].contains(&d.name) {
                writeln!(
                    cx.err,
                    "use 'zfs set {word}=none' to clear\nuse 'zfs inherit -S {word}' to revert to received value"
                );
            }
            return Ok(1);
        }
        Some(d) if received && ["volsize", "version"].contains(&d.name) => {
            writeln!(cx.err, "'{word}' property cannot be reverted to a received value");
            return Ok(1);
        }
        None if !props::is_user(word) => return Err(Stop::usage(format!("invalid property '{word}'\n"))),
        _ => {}
    }
    let prop = native.map_or(word.as_str(), |d| d.name).to_owned();
    each(cx, datasets, recursive, &|cx, d| {
        let what = format!("cannot inherit {word} for '{}'", d.name);
        if native.is_some_and(|n| !n.applies(d.kind)) {
            if !recursive {
                writeln!(cx.err, "{what}: property doesn't apply to datasets of this type");
            }
            return Ok(i32::from(!recursive));
        }
        let change = DatasetChange::Inherit { name: d.name.clone(), prop: prop.clone(), received };
        Ok(i32::from(change_one(cx, &change, &what)? != Fate::Made))
    })
}

/// What `zfs upgrade -v` prints.
const FILESYSTEM_VERSIONS: &str = "The following filesystem versions are supported:\n\nVER  DESCRIPTION\n\
     ---  --------------------------------------------------------\n 1   Initial ZFS filesystem version\n \
     2   Enhanced directory entries\n 3   Case insensitive and filesystem user identifier (FUID)\n \
     4   userquota, groupquota properties\n 5   System attributes\n\n\
     For more information on a particular version, including supported releases,\nsee the ZFS Administration Guide.\n\n";

/// The options and operands of `zfs upgrade`.
#[derive(Default)]
struct Upgrade {
    all: bool,
    recursive: bool,
    show: bool,
    version: Option<u64>,
    names: Vec<String>,
}

impl Upgrade {
    fn read(args: &[String]) -> Result<Self, Stop> {
        let mut o = Self::default();
        let mut g = Getopt::new(args, "rvV:a", &[]);
        for found in g.by_ref() {
            match found {
                Found::Is(Opt::Short('r'), _) => o.recursive = true,
                Found::Is(Opt::Short('v'), _) => o.show = true,
                Found::Is(Opt::Short('a'), _) => o.all = true,
                Found::Is(_, arg) => match (arg.as_str(), arg.parse::<u64>()) {
                    ("current", _) => o.version = Some(ZPL_VERSION),
                    (_, Ok(n)) if (1..=ZPL_VERSION).contains(&n) => o.version = Some(n),
                    _ => return Err(Stop::usage(format!("invalid version {arg}\n"))),
                },
                Found::Invalid(c) | Found::Missing(c) => return Err(Stop::invalid(c)),
            }
        }
        o.names = g.operands();
        if o.show && (o.recursive || o.all || o.version.is_some() || !o.names.is_empty()) {
            return Err(Stop::usage("-v is not allowed with other options or operands\n"));
        }
        if o.lists() && (o.recursive || o.version.is_some()) {
            return Err(Stop::usage("missing filesystem argument (specify -a for all)\n"));
        }
        if o.all && !o.names.is_empty() {
            return Err(Stop::usage("too many arguments\n"));
        }
        Ok(o)
    }

    /// Whether it upgrades nothing, and lists the file systems of older versions.
    fn lists(&self) -> bool {
        !self.all && self.names.is_empty()
    }
}

/// `zfs upgrade [-v]`, `zfs upgrade [-r] [-V version] <-a | filesystem ...>` (`zfs_do_upgrade`).
///
/// # Errors
/// See [`Outcome`].
pub fn upgrade(cx: &mut Cx, args: &[String]) -> Outcome {
    let options = Upgrade::read(args)?;
    if options.show {
        cx.out.put(FILESYSTEM_VERSIONS);
        return Ok(0);
    }
    let how = Gather {
        kinds: vec![K::Filesystem],
        recurse: options.recursive || options.names.is_empty(),
        paths: true,
        props: PropSelect::Named(vec!["version".into()]),
        ..Gather::default()
    };
    let gathered = gather(cx, &options.names, &how)?;
    let (failed, found) = (gathered.failed(), gathered.found);
    if options.lists() {
        list(cx, &found);
        return Ok(i32::from(failed));
    }
    let wanted = options.version.unwrap_or(ZPL_VERSION);
    let (mut upgraded, mut same, mut bad) = (0u64, 0u64, failed);
    for d in &found {
        match d.number("version").unwrap_or(ZPL_VERSION) {
            has if has < wanted => {
                let props = vec![("version".to_owned(), wanted.to_string())];
                let change = DatasetChange::Set { name: d.name.clone(), props, keep_mounted: true };
                let done = change_one(cx, &change, &format!("cannot set property for '{}'", d.name))?;
                let done = done == Fate::Made;
                upgraded += u64::from(done);
                bad |= !done;
            }
            has if has > wanted => {
                writeln!(cx.out, "{}: can not be downgraded; it is already at version {has}", d.name);
                bad = true;
            }
            _ => same += 1,
        }
    }
    writeln!(cx.out, "{upgraded} filesystems upgraded");
    if same > 0 {
        writeln!(cx.out, "{same} filesystems already at this version");
    }
    Ok(i32::from(bad))
}

fn list(cx: &mut Cx, found: &[Dataset]) {
    writeln!(cx.out, "This system is currently running ZFS filesystem version {ZPL_VERSION}.\n");
    let old: Vec<&Dataset> =
        found.iter().filter(|d| d.number("version").is_some_and(|v| v < ZPL_VERSION)).collect();
    if old.is_empty() {
        cx.out.put("All filesystems are formatted with the current version.\n");
        return;
    }
    cx.out.put(
        "The following filesystems are out of date, and can be upgraded.  After being\nupgraded, these filesystems (and any 'zfs send' \
         streams generated from\nsubsequent snapshots) will no longer be accessible by older software versions.\n\n\
         VER  FILESYSTEM\n---  ------------\n",
    );
    for d in old {
        writeln!(cx.out, "{:2}   {}", d.number("version").unwrap_or(0), d.name);
    }
}
