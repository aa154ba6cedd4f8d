//! What a zedlet is told: an event as environment variables.
//!
//! # Theory
//! Each part of an event is a variable, `ZEVENT_` and its name in capitals, in the forms of zed: guids in hexadecimal digits, other numbers in decimal ones, several with spaces between them, and beside the number of a state
//! its name. Nothing else of the daemon's environment gets through but the time zone: who can say what the daemon is started with, need not be who may say what it runs.

use super::folder::subclass;
use api::{Event, EventValue};
use jiff::{Timestamp, tz::TimeZone};
use std::ffi::OsString;
use std::path::Path;

/// Where programs are found (`_PATH_STDPATH`).
const PATH: &str = "/usr/bin:/bin:/usr/sbin:/sbin";
/// Bytes that a value may have; a longer one is left out, as the system would refuse to run anything with it.
const LONGEST: usize = 32 << 10;

/// The variables of an event.
pub(super) fn of(event: &Event, folder: &Path, run_dir: Option<&Path>) -> Vec<(String, OsString)> {
    let mut all: Vec<(String, OsString)> = Vec::new();
    let version = env!("CARGO_PKG_VERSION");
    for (name, value) in [
        ("IFS", " \t\n".to_owned()),
        ("PATH", PATH.to_owned()),
        ("ZFS_VERSION", version.to_owned()),
        ("ZFS_RELEASE", "1".to_owned()),
        ("ZFS_ALIAS", format!("poolhouse-{version}-1")),
        ("ZED_PID", std::process::id().to_string()),
    ] {
        all.push((name.to_owned(), value.into()));
    }
    for program in ["zdb", "zfs", "zinject", "zpool"] {
        all.push((program.to_uppercase(), command(program)));
    }
    all.push(("ZED_ZEDLET_DIR".to_owned(), folder.into()));
    all.extend(run_dir.map(|dir| (api::place::ENV_DIR.to_owned(), dir.into())));
    all.extend(std::env::var_os("TZ").map(|zone| ("TZ".to_owned(), zone)));
    for (name, value) in zevent(event) {
        // A history may hold anything.
        if value.len() <= LONGEST && !value.contains('\0') {
            all.push((name, value.into()));
        } else {
            tracing::debug!(eid = event.eid, name, "left out of what zedlets are told");
        }
    }
    all
}

/// A command of ours: beside the daemon's program, if it is there by its name, or by `PATH`.
fn command(name: &str) -> OsString {
    let beside = std::env::current_exe().ok().map(|own| own.with_file_name(name));
    beside.filter(|path| path.exists()).map_or_else(|| name.into(), Into::into)
}

/// The variables that come from the event alone.
fn zevent(event: &Event) -> Vec<(String, String)> {
    let mut all: Vec<(String, String)> = Vec::new();
    let mut put = |name: &str, value: String| all.push((variable(name), value));
    for (name, value) in &event.details {
        match value {
            EventValue::Number(n) => {
                put(name, number(name, *n));
                if name == "pool_state" {
                    put("pool_state_str", pool_state(*n).to_owned());
                }
            }
            EventValue::State(n) => {
                put(name, number(name, *n));
                put(&format!("{name}_str"), vdev_state(*n).to_owned());
            }
            EventValue::Numbers(all) => {
                put(name, all.iter().map(|n| number(name, *n)).collect::<Vec<_>>().join(" "));
            }
            EventValue::Text(text) => put(name, text.clone()),
            // As zed says it.
            EventValue::List(_) => put(name, "_NOT_IMPLEMENTED_".to_owned()),
        }
    }
    put("subclass", subclass(&event.class).to_owned());
    put("time_secs", event.time.0.to_string());
    put("time_nsecs", event.time.1.to_string());
    put("time_string", local(event.time.0));
    all
}

fn variable(name: &str) -> String {
    let upper = name.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' });
    "ZEVENT_".chars().chain(upper).collect()
}

fn number(name: &str, n: u64) -> String {
    if name.ends_with("_guid") || name.ends_with("_guids") { format!("0x{n:016X}") } else { n.to_string() }
}

/// `2026-11-23 16:20:05+0000`.
fn local(secs: u64) -> String {
    let time = i64::try_from(secs).ok().and_then(|secs| Timestamp::from_second(secs).ok());
    let time = time.unwrap_or_default().to_zoned(TimeZone::system());
    time.strftime("%Y-%m-%d %H:%M:%S%z").to_string()
}

/// `zpool_state_to_name`, nothing being known of why.
fn vdev_state(n: u64) -> &'static str {
    match n {
        1 | 2 => "OFFLINE",
        3 => "REMOVED",
        4 => "UNAVAIL",
        5 => "FAULTED",
        6 => "DEGRADED",
        7 => "ONLINE",
        _ => "UNKNOWN",
    }
}

/// `zpool_pool_state_to_name`.
fn pool_state(n: u64) -> &'static str {
    let names = ["ACTIVE", "EXPORTED", "DESTROYED", "SPARE", "L2CACHE", "UNINITIALIZED", "UNAVAIL"];
    let known = usize::try_from(n).ok().and_then(|n| names.get(n).copied());
    known.unwrap_or(if n == 7 { "POTENTIALLY_ACTIVE" } else { "UNKNOWN" })
}
