//! `zpool create`.

use api::settings::compat::{self, Folders};
use api::{CreatePool, Layout, MountRequest, Reason, Refusal};
use ondisk::feature::FEATURES;

use super::devices::{self, Lenience};
use super::settings::{self, Of, add, get};
use crate::cx::{Cx, Outcome, Stop};
use crate::vdev_name::NameFlags;
use crate::{names, zfs};
use api::settings::pool::may_enable;
use console::getopt::{Found, Getopt, Opt};
use console::words;

/// The parsed command line.
#[derive(Default)]
struct Create {
    request: CreatePool,
    dry_run: bool,
    /// Whether only the named features are enabled (`-d`).
    bare: bool,
    mountpoint: Option<String>,
}

/// `zpool create` (`zpool_do_create`).
///
/// ```text
/// zpool create [-fnd] [-o property=value] ... [-O property=value] ... [-m mountpoint] [-R root]
///         [-t name] <pool> <vdev> ...
/// ```
pub fn run(cx: &mut Cx, args: &[String]) -> Outcome {
    let (mut create, operands) = read(cx, args)?;
    let [pool, vdevs @ ..] = &operands[..] else {
        return Err(Stop::usage("missing pool name argument\n"));
    };
    if vdevs.is_empty() {
        return Err(Stop::usage("missing vdev specification\n"));
    }
    if pool.contains('/') {
        writeln!(cx.err, "cannot create '{pool}': invalid character '/' in pool name");
        cx.err.put("use 'zfs create' to create a dataset\n");
        return Ok(1);
    }
    let force = create.request.force;
    let ashift = devices::ashift(&create.request.props).map(str::to_owned);
    let let_pass = Lenience { in_use: force, replication: force };
    let layout = devices::read(cx, None, vdevs, ashift.as_deref(), let_pass)?;
    if layout.tops.is_empty() {
        cx.err.put("invalid vdev specification: at least one toplevel vdev must be specified\n");
        return Ok(1);
    }
    check_mountpoint(cx, &create, pool)?;
    if let Some(mountpoint) = create.mountpoint.take() {
        add(cx, &mut create.request.root_props, Of::Filesystem, "mountpoint", &mountpoint)?;
    }
    if create.dry_run {
        writeln!(cx.out, "would create '{pool}' with the following layout:\n");
        show(cx, pool, &layout);
        return Ok(0);
    }
    features(cx, &mut create)?;
    (create.request.name, create.request.layout) = (pool.clone(), layout);
    make(cx, create.request)
}

fn read(cx: &mut Cx, args: &[String]) -> Result<(Create, Vec<String>), Stop> {
    let mut c = Create::default();
    let mut g = Getopt::new(args, ":fndR:m:o:O:t:", &[]);
    for found in g.by_ref() {
        let r = &mut c.request;
        match found {
            Found::Is(Opt::Short('f'), _) => r.force = true,
            Found::Is(Opt::Short('n'), _) => c.dry_run = true,
            Found::Is(Opt::Short('d'), _) => c.bare = true,
            Found::Is(Opt::Short('R'), arg) => {
                add(cx, &mut r.props, Of::Pool, "altroot", &arg)?;
                settings::default(&mut r.props, "cachefile", "none");
            }
            Found::Is(Opt::Short('m'), arg) => c.mountpoint = Some(arg),
            Found::Is(Opt::Short('o'), arg) => {
                let (name, value) = settings::split(cx, 'o', &arg)?;
                add(cx, &mut r.props, Of::Pool, name, value)?;
                // A pool of a version before 5000 has no features.
                c.bare |= name == "version" && value.parse::<u64>().is_ok_and(|v| v < 5000);
            }
            Found::Is(Opt::Short('O'), arg) => match settings::split(cx, 'O', &arg)? {
                ("mountpoint", value) => c.mountpoint = Some(value.to_owned()),
                (name, value) => add(cx, &mut r.root_props, Of::Filesystem, name, value)?,
            },
            Found::Is(_, arg) => {
                if arg.contains('/') {
                    writeln!(cx.err, "cannot create '{arg}': invalid character '/' in temporary name");
                    cx.err.put("use 'zfs create' to create a dataset\n");
                    return Err(Stop::Fail(1));
                }
                add(cx, &mut r.props, Of::Pool, "tname", &arg)?;
                settings::default(&mut r.props, "cachefile", "none");
                r.temporary_name = Some(arg);
            }
            Found::Missing(c) => return Err(Stop::missing(c)),
            Found::Invalid(c) => return Err(Stop::invalid(c)),
        }
    }
    Ok((c, g.operands()))
}

/// Checks that the mountpoint of the root file system does not exist, or is an empty directory.
fn check_mountpoint(cx: &mut Cx, create: &Create, pool: &str) -> Result<(), Stop> {
    let altroot = get(&create.request.props, "altroot").unwrap_or("");
    if !altroot.is_empty() && !altroot.starts_with('/') {
        writeln!(cx.err, "invalid alternate root '{altroot}': must be an absolute path");
        return Err(Stop::Fail(1));
    }
    let path = match create.mountpoint.as_deref() {
        Some("legacy" | "none") => return Ok(()),
        Some(path) if !path.starts_with('/') => {
            writeln!(cx.err, "invalid mountpoint '{path}': must be an absolute path, 'legacy', or 'none'");
            return Err(Stop::Fail(1));
        }
        Some(path) => format!("{altroot}{path}"),
        None => format!("{altroot}/{pool}"),
    };
    let what = match std::fs::read_dir(&path).map(|mut entries| entries.next().is_none()) {
        Ok(true) => return Ok(()),
        Ok(false) => format!("mountpoint '{path}' exists and is not empty"),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(e) => format!("mountpoint '{path}' : {}", words::io(&e)),
    };
    writeln!(cx.err, "{what}\nuse '-m' option to provide a different default");
    Err(Stop::Fail(1))
}

fn show(cx: &mut Cx, pool: &str, layout: &Layout) {
    let flags = NameFlags::default();
    for (title, class) in [(pool, ""), ("dedup", "dedup"), ("special", "special"), ("logs", "log")] {
        devices::show(cx, Some(title), &layout.tops, class, flags);
    }
    devices::show_aside(cx, "cache", &layout.cache, flags);
    devices::show_aside(cx, "spares", &layout.spares, flags);
}

/// Adds the features to enable: all allowed ones, unless the command line names others.
fn features(cx: &mut Cx, create: &mut Create) -> Result<(), Stop> {
    let allowed = allowed(cx, get(&create.request.props, "compatibility").unwrap_or(""))?;
    let props = &mut create.request.props;
    for feature in &FEATURES {
        let name = format!("feature@{}", feature.name);
        match get(props, &name) {
            Some("disabled") => props.retain(|(n, _)| *n != name),
            Some("enabled") if !allowed.has(feature) => writeln!(
                cx.err,
                "Warning: feature \"{}\" enabled but is not in specified 'compatibility' feature set.",
                feature.name
            ),
            None if !create.bare && may_enable(feature) && allowed.has(feature) => {
                props.push((name, "enabled".to_owned()));
            }
            _ => {}
        }
    }
    Ok(())
}

/// The features that the property `compatibility` allows.
///
/// # Errors
/// * [`Stop::Fail`]: a file of features can't be read, or has a fault. It is reported.
pub fn allowed(cx: &mut Cx, compatibility: &str) -> Result<compat::Allowed, Stop> {
    match compat::load(compatibility, &Folders::default()) {
        Ok(allowed) => {
            if let Some(warning) = &allowed.warning {
                writeln!(cx.err, "Warning: {warning}");
            }
            Ok(allowed)
        }
        Err(fault) => {
            writeln!(cx.err, "Error: {fault}");
            Err(Stop::Fail(1))
        }
    }
}

fn make(cx: &mut Cx, mut request: CreatePool) -> Outcome {
    let name = request.name.clone();
    let what = format!("cannot create '{name}'");
    if let Some(fault) = names::pool_name_fault(&name, true) {
        writeln!(cx.err, "{what}: {fault}\npool name may have been omitted");
        return Ok(1);
    }
    request.key = zfs::new_key(cx, &name, &mut request.root_props, false).map_err(|fault| {
        writeln!(cx.err, "{what}: {fault}");
        Stop::Fail(1)
    })?;
    let service = cx.service()?;
    if let Err(e) = service.create_pool(&request) {
        let why = match &e.reason {
            Reason::PoolExists => "pool already exists".to_owned(),
            Reason::Refused { why: Refusal::NoSpace } => "one or more devices is out of space".to_owned(),
            reason => words::reason(reason, &cx.clock),
        };
        writeln!(cx.err, "{what}: {why}");
        return Ok(1);
    }
    let now = request.temporary_name.unwrap_or(name);
    cx.made(&now);
    let mount = MountRequest { datasets: vec![now], ..MountRequest::default() };
    match service.mount(&mount) {
        Ok(report) => {
            zfs::mount_failures(cx, "mount", &report);
            Ok(i32::from(!report.failures.is_empty()))
        }
        Err(e) => Err(cx.fail("cannot mount", &e)),
    }
}
