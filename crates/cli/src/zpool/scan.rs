//! `zpool scrub` and `zpool resilver`.

use rustix::io::Errno;
use server::api::{CheckpointState, Pool, PoolChange, PoolQuery, Reason, ScanCommand, ScanFunc, ScanState};

use super::wait;
use crate::cx::{Cx, Outcome, Stop};
use crate::getopt::{Found, Getopt, Opt};

/// `zpool scrub [-e | -s | -p | -C] [-w] <pool> ...`.
pub fn scrub(cx: &mut Cx, args: &[String]) -> Outcome {
    let (mut errors, mut stop, mut pause, mut on, mut wait) = (false, false, false, false, false);
    let mut g = Getopt::new(args, "spweC", &[]);
    for found in g.by_ref() {
        match found {
            Found::Is(Opt::Short('e'), _) => errors = true,
            Found::Is(Opt::Short('s'), _) => stop = true,
            Found::Is(Opt::Short('p'), _) => pause = true,
            Found::Is(Opt::Short('C'), _) => on = true,
            Found::Is(..) => wait = true,
            Found::Invalid(c) | Found::Missing(c) => return Err(Stop::invalid(c)),
        }
    }
    for (both, names) in [
        (pause && stop, "-s and -p"),
        (pause && on, "-p and -C"),
        (stop && on, "-s and -C"),
        (errors && on, "-e and -C"),
    ] {
        if both {
            return Err(Stop::usage(format!("invalid option combination: {names} are mutually exclusive\n")));
        }
    }
    if wait && (stop || pause) {
        return Err(Stop::usage("invalid option combination: -w cannot be used with -p or -s\n"));
    }
    let command = match (pause, stop, on) {
        (true, ..) => ScanCommand::Pause,
        (_, true, _) => ScanCommand::Stop,
        (_, _, true) => ScanCommand::ScrubOn,
        (false, false, false) => ScanCommand::Scrub,
    };
    let operands = g.operands();
    let (pools, mut failed) = named(cx, &operands)?;
    for pool in &pools {
        failed |= if errors && !stop { !scrub_errors(cx, pool) } else { !ask(cx, pool, command) };
    }
    if wait && !failed {
        for pool in &pools {
            wait::until_over(cx, &pool.name, wait::SCRUB)?;
        }
    }
    Ok(failed.into())
}

/// `zpool resilver <pool> ...`.
pub fn resilver(cx: &mut Cx, args: &[String]) -> Outcome {
    let mut g = Getopt::new(args, "", &[]);
    if let Some(found) = g.by_ref().next() {
        match found {
            Found::Invalid(c) | Found::Missing(c) | Found::Is(Opt::Short(c), _) => {
                return Err(Stop::invalid(c));
            }
            Found::Is(..) => {}
        }
    }
    let operands = g.operands();
    let (pools, mut failed) = named(cx, &operands)?;
    for pool in &pools {
        failed |= !ask(cx, pool, ScanCommand::Resilver);
    }
    Ok(failed.into())
}

fn named(cx: &mut Cx, operands: &[String]) -> Result<(Vec<Pool>, bool), Stop> {
    if operands.is_empty() {
        return Err(Stop::usage("missing pool name argument\n"));
    }
    super::pools(cx, operands, PoolQuery::default())
}

/// Asks for one pool's scan; false if it was refused, which has been reported (`zpool_scan`).
fn ask(cx: &mut Cx, pool: &Pool, command: ScanCommand) -> bool {
    let name = &pool.name;
    let done = match cx.service() {
        Ok(service) => service.change_pool(name, &PoolChange::Scan { command }),
        Err(_) => return false,
    };
    let errno = |reason: &Reason| match reason {
        Reason::System { errno } => Some(Errno::from_raw_os_error(*errno)),
        _ => None,
    };
    let scrubs = matches!(command, ScanCommand::Scrub | ScanCommand::ScrubOn);
    match done {
        Ok(()) => {
            cx.changed(name);
            let checkpoint = pool.checkpoint.as_ref().filter(|c| c.state == CheckpointState::Exists);
            if checkpoint.is_some() && (scrubs || command == ScanCommand::Pause) {
                writeln!(
                    cx.out,
                    "warning: will not scrub state that belongs to the checkpoint of pool '{name}'"
                );
            }
            true
        }
        // Nothing to pause is as good as paused.
        Err(e) if command == ScanCommand::Pause && errno(&e.reason) == Some(Errno::NOENT) => true,
        Err(e) => {
            let what = match command {
                ScanCommand::Scrub | ScanCommand::ScrubOn => "scrub",
                ScanCommand::Pause => "pause scrubbing",
                ScanCommand::Resilver => "restart resilver on",
                ScanCommand::Stop => "cancel scrubbing",
            };
            let scrubbing =
                pool.scan.as_ref().filter(|s| s.func == ScanFunc::Scrub && s.state == ScanState::Scanning);
            let why = match (errno(&e.reason), scrubbing) {
                (Some(Errno::BUSY), Some(_)) if command == ScanCommand::Pause => {
                    "scrub is paused; use 'zpool scrub' to resume scrub".to_owned()
                }
                (Some(Errno::BUSY), Some(_)) => {
                    "currently scrubbing; use 'zpool scrub -s' to cancel scrub".to_owned()
                }
                (Some(Errno::BUSY), None) => "currently resilvering".to_owned(),
                (Some(Errno::NOENT), _) => "there is no active scrub".to_owned(),
                (Some(Errno::NOTSUP), _) if command == ScanCommand::Resilver => {
                    "this action requires the resilver_defer feature".to_owned()
                }
                _ => crate::words::reason(&e.reason, &cx.clock),
            };
            writeln!(cx.err, "cannot {what} {name}: {why}");
            false
        }
    }
}

/// Reads again what the error log names: nothing, if that names nothing.
fn scrub_errors(cx: &mut Cx, pool: &Pool) -> bool {
    if pool.error_count == Some(0) {
        return true;
    }
    writeln!(
        cx.err,
        "cannot scrub {}: -e is not in this release of Poolhouse; 'zpool scrub' reads everything",
        pool.name
    );
    false
}
