//! `zpool export`.

use api::{Error, ExportRequest, PoolChange, PoolQuery, Reason, Requests};

use crate::cx::{Cx, Outcome, Stop};
use crate::names;
use console::getopt::{Found, Getopt, Opt};
use console::words;

/// `zpool export [-af] <pool> ...` (`zpool_do_export`).
pub fn run(cx: &mut Cx, args: &[String]) -> Outcome {
    let (mut all, mut force, mut hardforce) = (false, false, false);
    let mut g = Getopt::new(args, "afF", &[]);
    for found in g.by_ref() {
        match found {
            Found::Is(Opt::Short('a'), _) => all = true,
            Found::Is(Opt::Short('f'), _) => force = true,
            Found::Is(..) => hardforce = true,
            Found::Invalid(c) | Found::Missing(c) => return Err(Stop::invalid(c)),
        }
    }
    let mut names = g.operands();
    if all && !names.is_empty() {
        return Err(Stop::usage("too many arguments\n"));
    }
    if !all && names.is_empty() {
        return Err(Stop::usage("missing pool argument\n"));
    }
    let service = cx.service()?;
    if all {
        names = service.pool_names().map_err(|e| cx.fail("cannot list pools", &e))?;
    }
    let mut failed = !retain_known(cx, &*service, &mut names)?;
    names.sort();
    names.dedup();
    names.iter().for_each(|name| record(cx, &*service, name));
    if force || hardforce {
        names.iter().for_each(|name| warn_of_nameless(cx, &*service, name));
    }
    // Pools can be mounted inside each other, so an export may succeed only after another one's
    // unmounts.
    let mut in_vain = 0;
    loop {
        let patient = names.len() > 1 && in_vain < ROUNDS;
        let request = |name: &String| ExportRequest {
            name: name.clone(),
            force,
            hardforce,
            threads: cx.mount_threads(),
            patient,
        };
        let requests: Vec<ExportRequest> = names.iter().map(request).collect();
        let done: Vec<_> = match cx.another {
            // In parallel, each export waits for the devices of its own pool only.
            Some(another) if names.len() > 1 => at_once(&requests, another),
            _ => requests.iter().map(|request| service.export(request)).collect(),
        };
        let tried: Vec<_> = names.iter().zip(done).collect();
        let gone = tried.iter().filter(|(_, done)| done.is_ok()).count();
        let failures: Vec<_> =
            tried.into_iter().filter_map(|(name, done)| Some((name.clone(), done.err()?))).collect();
        in_vain = if gone > 0 { 0 } else { in_vain + 1 };
        // A busy pool may become free when another pool's file systems are unmounted.
        let (again, said): (Vec<_>, Vec<_>) =
            failures.into_iter().partition(|(_, e)| (gone > 0 || patient) && e.is_busy());
        for (name, error) in &said {
            report(cx, name, error);
            failed = true;
        }
        if again.is_empty() {
            return Ok(i32::from(failed));
        }
        names = again.into_iter().map(|(name, _)| name).collect();
    }
}

/// Keeps the names of imported pools, and complains about the others. Returns whether there are no
/// others.
fn retain_known(cx: &mut Cx, service: &dyn Requests, names: &mut Vec<String>) -> Result<bool, Stop> {
    let known = service.pool_names().map_err(|e| cx.fail("cannot list pools", &e))?;
    let all = names.len();
    names.retain(|name| {
        let fault = names::pool_name_fault(name, false)
            .or_else(|| (!known.contains(name)).then(|| "no such pool".into()));
        if let Some(fault) = &fault {
            writeln!(cx.err, "cannot open '{name}': {fault}");
        }
        fault.is_none()
    });
    Ok(names.len() == all)
}

/// Writes the command into the pool's history.
///
/// That must happen before the export. A read-only or suspended pool can't record it.
fn record(cx: &mut Cx, service: &dyn Requests, name: &str) {
    match service.change_pool(name, &PoolChange::Log { command: cx.command.clone() }) {
        Ok(()) => {}
        // Without permission, the export itself reports that.
        Err(e) if matches!(e.reason, Reason::PoolReadonly | Reason::Suspended | Reason::Permission) => {}
        Err(e) => cx.complain(&format!("the history of '{name}' lacks this command"), &e),
    }
}

/// Warns of each device file that was unlinked, because the export loses it.
fn warn_of_nameless(cx: &mut Cx, service: &dyn Requests, name: &str) {
    // If the query fails, the export itself reports the reason.
    let files = service.pool(name, &PoolQuery::default()).map(|pool| pool.nameless).unwrap_or_default();
    for file in files {
        writeln!(
            cx.err,
            "warning: '{}' has been removed, and is gone with the export of '{name}'",
            file.path
        );
    }
}

/// Number of rounds without success before the last round.
const ROUNDS: u32 = 2;
/// Number of pools to export at a time.
const AT_A_TIME: usize = 32;

/// Exports pools in parallel, each over a connection of its own.
fn at_once(requests: &[ExportRequest], another: fn() -> Box<dyn Requests>) -> Vec<Result<(), Error>> {
    let mut done = Vec::new();
    for part in requests.chunks(AT_A_TIME) {
        std::thread::scope(|scope| {
            let threads: Vec<_> =
                part.iter().map(|request| scope.spawn(move || another().export(request))).collect();
            done.extend(threads.into_iter().map(|t| t.join().expect("a panic ends the program")));
        });
    }
    done
}

fn report(cx: &mut Cx, name: &str, error: &Error) {
    let (what, why) = match error.reason {
        Reason::HeldOpen { ref by } => {
            (format!("cannot export '{name}'"), words::pool_is_busy(&error.about, by))
        }
        Reason::Busy if error.about != name => {
            (format!("cannot unmount '{}'", error.about), words::reason(&error.reason, &cx.clock))
        }
        Reason::Busy => (format!("cannot export '{name}'"), "pool is busy".to_owned()),
        ref reason => (format!("cannot export '{name}'"), words::reason(reason, &cx.clock)),
    };
    writeln!(cx.err, "{what}: {why}");
}
