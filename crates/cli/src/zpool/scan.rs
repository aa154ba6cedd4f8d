//! `zpool scrub` and `zpool resilver`.

use api::{CheckpointState, Pool, PoolChange, PoolQuery, Reason, ScanCommand, ScanFunc, ScanState};
use rustix::io::Errno;

use super::wait;
use crate::cx::{Cx, Outcome, Stop};
use console::getopt::{Found, Getopt, Opt};

/// `zpool scrub [-e | -s | -p | -C] [-w] <pool> ...` (`zpool_do_scrub`).
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
    let command = match (pause, stop, on, errors) {
        (true, ..) => ScanCommand::Pause,
        (_, true, ..) => ScanCommand::Stop,
        (_, _, true, _) => ScanCommand::ScrubOn,
        (false, false, false, true) => ScanCommand::ErrorScrub,
        (false, false, false, false) => ScanCommand::Scrub,
    };
    let operands = g.operands();
    let (pools, mut failed) = named(cx, &operands)?;
    for pool in &pools {
        failed |= !ask(cx, pool, command);
    }
    if wait && !failed {
        for pool in &pools {
            wait::until_over(cx, &pool.name, wait::SCRUB)?;
        }
    }
    Ok(failed.into())
}

/// `zpool resilver <pool> ...` (`zpool_do_resilver`).
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

/// Requests a scan of one pool, and reports a refusal; returns whether it succeeded (`zpool_scan`).
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
    let scrubs = matches!(command, ScanCommand::Scrub | ScanCommand::ScrubOn | ScanCommand::ErrorScrub);
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
        // Without a scrub to pause, `-p` has nothing to do.
        Err(e) if command == ScanCommand::Pause && errno(&e.reason) == Some(Errno::NOENT) => true,
        Err(e) => {
            let what = match command {
                ScanCommand::Scrub | ScanCommand::ScrubOn | ScanCommand::ErrorScrub => "scrub",
                ScanCommand::Pause => "pause scrubbing",
                ScanCommand::Resilver => "restart resilver on",
                ScanCommand::Stop => "cancel scrubbing",
            };
            let why = match (errno(&e.reason), command) {
                (Some(Errno::BUSY), _) => busy(pool, command).to_owned(),
                (Some(Errno::NOENT), _) => "there is no active scrub".to_owned(),
                (Some(Errno::NOTSUP), ScanCommand::ErrorScrub) => {
                    "operation not supported on this type of pool".to_owned()
                }
                (Some(Errno::NOTSUP), ScanCommand::Resilver) => {
                    "this action requires the resilver_defer feature".to_owned()
                }
                _ => console::words::reason(&e.reason, &cx.clock),
            };
            writeln!(cx.err, "cannot {what} {name}: {why}");
            false
        }
    }
}

/// The text for a scan that another scan prevents (`EBUSY` in `zpool_scan`).
fn busy(pool: &Pool, command: ScanCommand) -> &'static str {
    let Some(s) = pool.scan.as_ref() else { return "currently resilvering" };
    let scrubs = s.func == ScanFunc::Scrub && s.state == ScanState::Scanning;
    let scrubs_errors =
        s.error_scrub_func == ScanFunc::ErrorScrub && s.error_scrub_state == ScanState::ErrorScrubbing;
    if scrubs && command == ScanCommand::Pause {
        "scrub is paused; use 'zpool scrub' to resume scrub"
    } else if scrubs && s.pass_scrub_pause != 0 {
        "scrub is paused; use 'zpool scrub' to resume or 'zpool scrub -s' to cancel scrub"
    } else if scrubs {
        "currently scrubbing; use 'zpool scrub -s' to cancel scrub"
    } else if scrubs_errors && s.pass_error_scrub_pause != 0 {
        "error scrub is paused; use 'zpool scrub -e' to resume error scrub"
    } else if scrubs_errors {
        "currently error scrubbing; use 'zpool scrub -s' to cancel error scrub"
    } else {
        "currently resilvering"
    }
}
