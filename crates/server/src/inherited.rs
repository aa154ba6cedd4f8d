//! Limits and settings that a daemon does not inherit from the shell or script that started it.
//!
//! # Theory
//! A command starts the daemon, which then serves all users for weeks. What the command inherited
//! for itself must not bind or end the daemon:
//!
//! | inherited | effect on a daemon | here |
//! |---|---|---|
//! | `RLIMIT_FSIZE` | a write beyond it ends the process (`SIGXFSZ`) | raised; see 1 |
//! | `RLIMIT_CPU` | ends the process (`SIGXCPU`) | raised; see 2 |
//! | `RLIMIT_AS`, `RLIMIT_DATA` | an allocation fails, which ends the process | raised |
//! | `RLIMIT_NOFILE` | mounts and devices are open files | raised |
//! | `RLIMIT_NPROC` | a thread can't be started | raised |
//! | `nice` | I/O of all users waits | 0, if a command started it and the system allows it |
//! | open files of a script | its locks and pipes last as long as the daemon | closed; see 3 |
//! | terminal, folder, `umask` | | left by `daemon` |
//!
//! 1. The signal is caught, and the write fails with `EFBIG`.
//! 2. The signal is caught until the hard limit.
//! 3. A command closes them when it starts the daemon (`api::start`).
//!
//! Root raises a limit to infinity, another user to the hard limit. Remaining limits are logged.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The limits to raise, with the names in the manual of `ulimit`.
const LIMITS: [(Resource, &str); 6] = [
    (Resource::Fsize, "file size"),
    (Resource::Cpu, "CPU time"),
    (Resource::As, "address space"),
    (Resource::Data, "data size"),
    (Resource::Nofile, "open files"),
    (Resource::Nproc, "processes"),
];

/// Raises the limits of this process as far as the system allows. Logs those that still bind it.
pub fn raise_limits() {
    for (resource, name) in LIMITS {
        let at_most = raise(resource);
        // The number of open files always has a limit.
        if let Some(at_most) = at_most
            && !matches!(resource, Resource::Nofile | Resource::Nproc)
        {
            tracing::warn!(
                name,
                at_most,
                "a limit of the shell binds the daemon, which may not raise it (ulimit)"
            );
        }
    }
}

/// Raises one limit. Returns the remaining limit, if there is one.
fn raise(resource: Resource) -> Option<u64> {
    let before = getrlimit(resource);
    // The number of open files has a limit even for root (`fs.nr_open`).
    let infinite = Rlimit { current: None, maximum: None };
    if resource != Resource::Nofile && setrlimit(resource, infinite).is_ok() {
        return None;
    }
    if let Err(errno) = setrlimit(resource, Rlimit { current: before.maximum, ..before }) {
        tracing::debug!(%errno, ?resource, "the limit stays as it is");
        return before.current;
    }
    before.maximum
}

/// Resets the `nice` value of the command that started the daemon, if the system allows that.
pub(crate) fn take_back_nice() {
    if let Err(errno) = rustix::process::setpriority_process(None, 0) {
        tracing::debug!(%errno, "the daemon stays as nice as the command that started it");
    }
}
