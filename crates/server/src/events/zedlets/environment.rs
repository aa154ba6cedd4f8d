//! The environment of a zedlet: an event as variables.
//!
//! # Theory
//! Each part of an event is a variable, `ZEVENT_` and its name in capitals. The forms are those of
//! zed:
//!
//! * Guids are hexadecimal, and other numbers decimal.
//! * Several numbers have spaces between them.
//! * The number of a state has a second variable with its name.
//!
//! Only the time zone is inherited from the daemon's environment. A user that can set the daemon's
//! environment may not be one that can choose what it runs.

use crate::events::zedlets::folder::subclass;
use api::{Event, EventValue};
use jiff::{Timestamp, tz::TimeZone};
use std::ffi::OsString;
use std::path::Path;

/// The path for programs (`_PATH_STDPATH`).
const PATH: &str = "/usr/bin:/bin:/usr/sbin:/sbin";
/// Most bytes of a value. A longer one is left out, since the system would refuse to run anything
/// with it.
const LONGEST: usize = 32 << 10;

/// The variables of an event.
pub(crate) fn of(event: &Event, folder: &Path, run_dir: Option<&Path>) -> Vec<(String, OsString)> {
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
    all.extend(run_dir.map(|dir| (api::run_dir::ENV_DIR.to_owned(), dir.into())));
    all.extend(std::env::var_os("TZ").map(|zone| ("TZ".to_owned(), zone)));
    for (name, value) in zevent(event) {
        // A history may contain anything.
        if value.len() <= LONGEST && !value.contains('\0') {
            all.push((name, value.into()));
        } else {
            tracing::debug!(eid = event.eid, name, "left out of what zedlets are told");
        }
    }
    all
}

/// A command of this program: the file beside the daemon's program, if it exists, or a name for
/// `PATH`.
fn command(name: &str) -> OsString {
    let beside = std::env::current_exe().ok().map(|own| own.with_file_name(name));
    beside.filter(|path| path.exists()).map_or_else(|| name.into(), Into::into)
}

/// The variables that depend only on the event.
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
            // The value that zed has.
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

/// A local time: `2026-11-23 16:20:05+0000`.
fn local(secs: u64) -> String {
    let time = i64::try_from(secs).ok().and_then(|secs| Timestamp::from_second(secs).ok());
    let time = time.unwrap_or_default().to_zoned(TimeZone::system());
    time.strftime("%Y-%m-%d %H:%M:%S%z").to_string()
}

/// The name of a vdev's state without a reason (`zpool_state_to_name`).
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

/// The name of a pool's state (`zpool_pool_state_to_name`).
fn pool_state(n: u64) -> &'static str {
    let names = ["ACTIVE", "EXPORTED", "DESTROYED", "SPARE", "L2CACHE", "UNINITIALIZED", "UNAVAIL"];
    let known = usize::try_from(n).ok().and_then(|n| names.get(n).copied());
    known.unwrap_or(if n == 7 { "POTENTIALLY_ACTIVE" } else { "UNKNOWN" })
}
