//! `zpool remove`: removes hot spares, cache devices and logs.

use api::{Pool, PoolChange, PoolQuery, Reason};

use super::device_life::Target;
use crate::cx::{Cx, Outcome, Stop};
use console::getopt::{Found, Getopt, Opt};
use console::words;

/// `zpool remove [-npsw] <pool> <device> ...` (`zpool_do_remove`).
pub fn run(cx: &mut Cx, args: &[String]) -> Outcome {
    let (mut dry_run, mut parsable, mut stop, mut wait) = (false, false, false, false);
    let mut g = Getopt::new(args, "npsw", &[]);
    for found in g.by_ref() {
        match found {
            Found::Is(Opt::Short('n'), _) => dry_run = true,
            Found::Is(Opt::Short('p'), _) => parsable = true,
            Found::Is(Opt::Short('s'), _) => stop = true,
            Found::Is(Opt::Short('w'), _) => wait = true,
            Found::Is(..) => {}
            Found::Invalid(c) | Found::Missing(c) => return Err(Stop::invalid(c)),
        }
    }
    let operands = g.operands();
    let [name, devices @ ..] = &operands[..] else {
        return Err(Stop::usage("missing pool name argument\n"));
    };
    let pool = super::open(cx, name, PoolQuery::default())?;
    if stop && dry_run {
        cx.err.put("stop request ignored\n");
        return Ok(0);
    }
    if stop && !devices.is_empty() {
        return Err(Stop::usage("too many arguments\n"));
    }
    if stop && wait {
        return Err(Stop::usage("invalid option combination: -w cannot be used with -s\n"));
    }
    if !stop && devices.is_empty() {
        return Err(Stop::usage("missing device\n"));
    }
    if stop {
        // Each removal is complete when its command ends, so none can be under way.
        cx.err.put("cannot cancel removal: operation is not in progress\n");
        return Ok(1);
    }
    if dry_run {
        return Ok(foretell(cx, &pool, devices, parsable));
    }
    let mut code = 0;
    for device in devices {
        let change = PoolChange::Remove { device: device.clone() };
        let fault = if super::spec::is_draid_spare(device) {
            "dRAID spares cannot be removed: no such device in pool".to_owned()
        } else {
            match cx.service()?.change_pool(name, &change) {
                Ok(()) => continue,
                Err(e) if e.reason == Reason::Busy && is_log(&pool, device) => {
                    "Mount encrypted datasets to replay logs.: pool or dataset is busy".to_owned()
                }
                Err(e) if e.reason == Reason::Busy => {
                    "Pool busy; removal may already be in progress: device is busy".to_owned()
                }
                Err(e) => words::reason(&e.reason, &cx.clock),
            }
        };
        writeln!(cx.err, "cannot remove {device}: {fault}");
        code = 1;
    }
    if code == 0 {
        cx.changed(name);
    }
    Ok(code)
}

/// Shows how much memory the mapping of each removal would take (`zpool_vdev_indirect_size`).
///
/// It is 0: the removable devices hold no mapped blocks.
fn foretell(cx: &mut Cx, pool: &Pool, devices: &[String], parsable: bool) -> i32 {
    for device in devices {
        let why = match Target::of(pool, device) {
            Target::Nothing => "no such device in pool",
            Target::Vdev(_) if !is_log(pool, device) => {
                "this release of Poolhouse does not remove devices that hold data"
            }
            Target::Vdev(_) | Target::Spare | Target::Cache(_) if parsable => {
                writeln!(cx.out, "{device} 0");
                continue;
            }
            Target::Vdev(_) | Target::Spare | Target::Cache(_) => {
                writeln!(cx.out, "Memory that will be used after removing {device}: 0");
                continue;
            }
        };
        writeln!(cx.err, "cannot determine indirect size of {device}: {why}");
        return 1;
    }
    0
}

/// Whether a word names a top-level log vdev.
fn is_log(pool: &Pool, word: &str) -> bool {
    let Target::Vdev(guid) = Target::of(pool, word) else { return false };
    pool.root.children.iter().any(|top| top.guid == guid && top.is_log)
}
