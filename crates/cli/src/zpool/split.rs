//! `zpool split`.

use api::{MountRequest, Pool, PoolChange, PoolQuery, Reason, Settings, Vdev};

use super::settings::{self, Of};
use super::{devices, spec};
use crate::cx::{Cx, Outcome, Stop};
use crate::vdev_name::{NameFlags, vdev_name};
use crate::{names, zfs};
use console::getopt::{Found, Getopt, Opt};
use console::words;

/// The parsed options.
#[derive(Default)]
struct Split {
    flags: NameFlags,
    dry_run: bool,
    import: bool,
    load_keys: bool,
    mount_options: Vec<String>,
    props: Settings,
}

fn read(cx: &mut Cx, args: &[String]) -> Result<(Split, Vec<String>), Stop> {
    let mut s = Split::default();
    let mut g = Getopt::new(args, "gLR:lno:P", &[]);
    for found in g.by_ref() {
        match found {
            Found::Is(Opt::Short('g'), _) => s.flags.guid = true,
            Found::Is(Opt::Short('L'), _) => s.flags.follow = true,
            Found::Is(Opt::Short('P'), _) => s.flags.path = true,
            Found::Is(Opt::Short('l'), _) => s.load_keys = true,
            Found::Is(Opt::Short('n'), _) => s.dry_run = true,
            Found::Is(Opt::Short('R'), path) => {
                s.import = true;
                settings::add(cx, &mut s.props, Of::Pool, "altroot", &path).map_err(|_| Stop::usage(""))?;
            }
            Found::Is(_, arg) => match arg.split_once('=') {
                Some((name, value)) => {
                    settings::add(cx, &mut s.props, Of::Pool, name, value).map_err(|_| Stop::usage(""))?;
                }
                None => s.mount_options = arg.split(',').map(str::to_owned).collect(),
            },
            Found::Missing(c) => return Err(Stop::missing(c)),
            Found::Invalid(c) => return Err(Stop::invalid(c)),
        }
    }
    if !s.import && !s.mount_options.is_empty() {
        return Err(Stop::usage("setting mntopts is only valid when importing the pool\n"));
    }
    if !s.import && s.load_keys {
        return Err(Stop::usage("loading keys is only valid when importing the pool\n"));
    }
    Ok((s, g.operands()))
}

/// `zpool split` (`zpool_do_split`).
///
/// ```text
/// zpool split [-gLnPl] [-R altroot] [-o mntopts] [-o property=value] <pool> <newpool>
///         [<device> ...]
/// ```
pub fn run(cx: &mut Cx, args: &[String]) -> Outcome {
    let (split, operands) = read(cx, args)?;
    let (name, new, wanted) = match &operands[..] {
        [] => return Err(Stop::usage("Missing pool name\n")),
        [_] => return Err(Stop::usage("Missing new pool name\n")),
        [name, new, wanted @ ..] => (name, new, wanted),
    };
    let pool = super::open(cx, name, PoolQuery::default())?;
    let wanted = named(cx, wanted)?;
    let fault = names::pool_name_fault(new, true);
    let chosen = match fault.map_or_else(|| choose(&pool, &wanted), Err) {
        Ok(chosen) => chosen,
        Err(fault) => {
            writeln!(cx.err, "Unable to split {name}: {fault}");
            return Ok(1);
        }
    };
    if split.dry_run {
        writeln!(cx.out, "would create '{new}' with the following layout:\n");
        devices::show(cx, Some(new), &chosen, "", split.flags);
        devices::show(cx, Some("dedup"), &chosen, "dedup", NameFlags::default());
        devices::show(cx, Some("special"), &chosen, "special", NameFlags::default());
        return Ok(0);
    }
    let change = PoolChange::Split {
        name: new.clone(),
        devices: chosen.iter().map(|leaf| leaf.guid).collect(),
        props: split.props.clone(),
        import: split.import,
    };
    if let Err(e) = cx.service()?.change_pool(name, &change) {
        let why = match &e.reason {
            Reason::PoolExists => "pool already exists".to_owned(),
            Reason::Busy => "pool is busy".to_owned(),
            Reason::System { errno } if *errno == rustix::io::Errno::INVAL.raw_os_error() => {
                "invalid argument for this pool operation".to_owned()
            }
            reason => words::reason(reason, &cx.clock),
        };
        writeln!(cx.err, "Unable to split {name}: {why}");
        return Ok(1);
    }
    cx.changed(name);
    if split.import { mount(cx, new, &split) } else { Ok(0) }
}

/// The devices on the command line.
fn named(cx: &mut Cx, wanted: &[String]) -> Result<Vec<Vdev>, Stop> {
    if wanted.is_empty() {
        return Ok(Vec::new());
    }
    let layout = spec::read(cx, wanted).inspect_err(|_| {
        cx.err.put("Unable to build a pool from the specified devices\n");
    })?;
    let group = layout.tops.iter().find(|top| top.path.is_none()).map(|top| top.kind.as_str());
    let aside =
        (!layout.spares.is_empty()).then_some("spare").or((!layout.cache.is_empty()).then_some("cache"));
    if let Some(kind) = group.or(aside) {
        writeln!(cx.err, "Cannot use '{kind}' as a device for splitting");
        return Err(Stop::Fail(1));
    }
    Ok(layout.tops)
}

/// The devices of the new pool: of each mirror the named child, or the last (`zpool_vdev_split`).
fn choose(pool: &Pool, wanted: &[Vdev]) -> Result<Vec<Vdev>, String> {
    let plain = NameFlags::default();
    let called = |side: &Vdev| {
        let name = vdev_name(None, side, plain);
        wanted.iter().any(|w| vdev_name(None, w, plain) == name)
    };
    let (mut chosen, mut found) = (Vec::new(), 0);
    for top in &pool.root.children {
        if top.is_log || top.is_hole || top.kind == "indirect" {
            continue;
        }
        let Some(last) = top.children.last().filter(|_| top.kind == "mirror") else {
            return Err("Source pool must be composed only of mirrors\n".to_owned());
        };
        let side = top.children.iter().find(|side| called(side));
        found += usize::from(side.is_some());
        chosen.push(Vdev { alloc_bias: top.alloc_bias.clone(), ..side.unwrap_or(last).clone() });
    }
    if found != wanted.len() {
        return Err("Device list must include at most one disk from each mirror".to_owned());
    }
    Ok(chosen)
}

/// Loads the keys of the new pool, and mounts its file systems.
fn mount(cx: &mut Cx, name: &str, split: &Split) -> Outcome {
    let failed = split.load_keys && zfs::load_keys_below(cx, name)?;
    let request = MountRequest {
        datasets: vec![name.to_owned()],
        recursive: true,
        options: split.mount_options.clone(),
        ..MountRequest::default()
    };
    let mounted = match cx.service()?.mount(&request) {
        Ok(report) => {
            zfs::mount_failures(cx, "mount", &report);
            report.failures.is_empty()
        }
        Err(e) => {
            cx.complain(&format!("cannot mount '{name}'"), &e);
            false
        }
    };
    if !mounted {
        cx.err.put(
            "Split was successful, but some datasets could not be mounted\nTry doing 'zpool import' with a different altroot\n",
        );
    }
    Ok(i32::from(failed))
}
