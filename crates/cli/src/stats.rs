//! `poolhouse get tunable|kstat` and `poolhouse set tunable`.
//!
//! Tunables and kstats have the names of OpenZFS's module parameters and kstats.

use api::{Reason, Requests};

use crate::daemon::Daemon;
use console::Clock;
use console::Out;
use console::words;

const USAGE: &str = "\
usage: poolhouse get tunable [NAME ...]
       poolhouse get kstat [NAME | POOL/NAME ...]
       poolhouse set tunable NAME=VALUE ...
";

/// Runs `get` or `set`. Returns the exit code.
pub fn run(out: &mut Out, err: &mut Out, service: &dyn Requests, verb: &str, args: &[String]) -> i32 {
    let done = match (verb, args) {
        ("get", [what, names @ ..]) if what == "tunable" => tunables(out, service, names),
        ("get", [what, names @ ..]) if what == "kstat" => counted(out, service, names),
        ("set", [what, pairs @ ..]) if what == "tunable" && !pairs.is_empty() => set(service, pairs),
        (_, [help]) if help == "--help" || help == "-h" => {
            out.put(USAGE);
            return 0;
        }
        _ => {
            match args {
                [] => err.put("missing argument\n"),
                [what] if what == "tunable" => err.put("missing NAME=VALUE argument\n"),
                [what, ..] => writeln!(err, "cannot {verb} '{what}': no such kind of value"),
            }
            err.put(USAGE);
            return 2;
        }
    };
    match done {
        Ok(()) => 0,
        Err(why) => {
            writeln!(err, "{why}");
            1
        }
    }
}

/// Runs `metrics`. Returns the exit code.
pub fn metrics(
    out: &mut Out,
    err: &mut Out,
    service: &dyn Requests,
    args: &[String],
    daemon: &Daemon,
) -> i32 {
    const USAGE: &str = "usage: poolhouse metrics\n";
    match args {
        [] => {}
        [help] if help == "--help" || help == "-h" => {
            out.put(USAGE);
            return 0;
        }
        _ => {
            err.put("too many arguments\n");
            err.put(USAGE);
            return 2;
        }
    }
    match (daemon.metrics)(service) {
        Ok(page) => {
            out.put(&page);
            0
        }
        Err(error) => {
            writeln!(err, "{}", why("cannot get metrics", &error));
            1
        }
    }
}

/// The result of a request; an error is one line of text.
type Said = Result<(), String>;

fn why(what: &str, error: &api::Error) -> String {
    let reason = match &error.reason {
        Reason::BadProperty { .. } => "there is no such tunable".to_owned(),
        reason => words::reason(reason, &Clock::system()),
    };
    format!("{what}: {reason}")
}

fn tunables(out: &mut Out, service: &dyn Requests, names: &[String]) -> Said {
    let all = service.tunables().map_err(|e| why("cannot get tunables", &e))?;
    if let Some(name) = names.iter().find(|name| !all.iter().any(|t| t.name == **name)) {
        return Err(format!("cannot get '{name}': there is no such tunable"));
    }
    let wide = |of: fn(&api::Tunable) -> usize| all.iter().map(of).max().unwrap_or_default();
    let (name, value) = (wide(|t| t.name.len()), wide(|t| t.told(t.value).len()));
    for t in all.iter().filter(|t| names.is_empty() || names.contains(&t.name)) {
        match names.is_empty() {
            true => {
                let (now, default) = (t.told(t.value), t.told(t.default));
                let mark = if t.no_effect { "no effect here; " } else { "" };
                writeln!(out, "{:<name$}  {now:>value$}  {} ({mark}default {default})", t.name, t.what)
            }
            false => writeln!(out, "{}", t.told(t.value)),
        }
    }
    Ok(())
}

fn counted(out: &mut Out, service: &dyn Requests, names: &[String]) -> Said {
    let all = service.kstats().map_err(|e| why("cannot get kstats", &e))?;
    let full = |k: &api::Kstat| match &k.pool {
        Some(pool) => format!("{pool}/{}", k.name),
        None => k.name.clone(),
    };
    if let Some(name) = names.iter().find(|name| !all.iter().any(|k| full(k) == **name)) {
        return Err(format!("cannot get '{name}': there is no such kstat"));
    }
    for k in &all {
        if names.is_empty() {
            writeln!(out, "{}", full(k));
        } else if names.contains(&full(k)) {
            out.put(&k.file());
        }
    }
    Ok(())
}

fn set(service: &dyn Requests, pairs: &[String]) -> Said {
    let all = service.tunables().map_err(|e| why("cannot set tunables", &e))?;
    for pair in pairs {
        let not_a_pair = || format!("cannot set '{pair}': that is not NAME=VALUE with a number");
        let (name, value) = pair.split_once('=').ok_or_else(not_a_pair)?;
        let value = match all.iter().find(|t| t.name == name && !t.words.is_empty()) {
            Some(t) => t.word(value).ok_or_else(|| {
                format!("cannot set '{name}': '{value}' is not one of '{}'", t.words.join(" | "))
            })?,
            None => {
                let number = |text: &str| text.parse().ok();
                let known = all.iter().find(|t| t.name == name);
                let value = known.map_or_else(|| number(value), |t| t.value_of(value, number));
                value.ok_or_else(not_a_pair)?
            }
        };
        service.set_tunable(name, &value).map_err(|e| why(&format!("cannot set '{name}'"), &e))?;
    }
    Ok(())
}
