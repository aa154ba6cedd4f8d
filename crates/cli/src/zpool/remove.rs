//! `zpool remove`: of hot spares and cache devices.

use server::api::{PoolChange, PoolQuery, Reason};

use crate::cx::{Cx, Outcome, Stop};
use crate::getopt::{Found, Getopt, Opt};
use crate::words;

/// `zpool remove [-npsw] <pool> <device> ...`.
pub fn run(cx: &mut Cx, args: &[String]) -> Outcome {
    let (mut dry_run, mut stop, mut wait) = (false, false, false);
    let mut g = Getopt::new(args, "npsw", &[]);
    for found in g.by_ref() {
        match found {
            Found::Is(Opt::Short('n'), _) => dry_run = true,
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
    super::open(cx, name, PoolQuery::default())?;
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
    if stop || dry_run {
        cx.err.put("zpool remove: this release of Poolhouse removes hot spares and cache devices only\n");
        return Ok(1);
    }
    let mut code = 0;
    for device in devices {
        let what = format!("cannot remove {device}");
        let change = PoolChange::Remove { device: device.clone() };
        let fault = if is_distributed_spare(device) {
            "dRAID spares cannot be removed: no such device in pool".to_owned()
        } else {
            match cx.service()?.change_pool(name, &change) {
                Ok(()) => continue,
                Err(e) if e.reason == Reason::Busy => {
                    "Pool busy; removal may already be in progress: device is busy".to_owned()
                }
                Err(e) => words::reason(&e.reason, &cx.clock),
            }
        };
        writeln!(cx.err, "{what}: {fault}");
        code = 1;
    }
    if code == 0 {
        cx.changed(name);
    }
    Ok(code)
}

/// Whether a name is that of a distributed spare: `draid2-0-3` (`zpool_is_draid_spare`).
fn is_distributed_spare(device: &str) -> bool {
    let Some(numbers) = device.strip_prefix("draid") else { return false };
    let parts: Vec<&str> = numbers.split('-').collect();
    parts.len() == 3 && parts.iter().all(|p| p.parse::<u64>().is_ok())
}
