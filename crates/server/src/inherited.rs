//! What a daemon does not take over from the shell or script that started it.
//!
//! # Theory
//! A command starts the daemon, which then serves everybody for weeks. What the command was given
//! for itself must not bind or end the daemon:
//!
//! | inherited | what it would do | here |
//! |---|---|---|
//! | `RLIMIT_FSIZE` | a write beyond it ends the process by `SIGXFSZ` | raised; the signal is caught, the write fails with `EFBIG` |
//! | `RLIMIT_CPU` | ends the process by `SIGXCPU` | raised; the signal is caught until the hard limit |
//! | `RLIMIT_AS`, `RLIMIT_DATA` | an allocation fails, which ends the process | raised |
//! | `RLIMIT_NOFILE` | mounts and devices are open files | raised |
//! | `RLIMIT_NPROC` | a thread can't be started | raised |
//! | `nice` | everybody's I/O waits | 0, where a command started it and the system allows it |
//! | open files of a script | a lock or pipe of the script lasts as long as the daemon | closed when a command starts it (`start`) |
//! | terminal, folder, `umask` | | left by `daemon` |
//!
//! Root raises a limit to infinity, another user to the hard limit. What stays limited is logged.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Limits that are raised, by the names that `ulimit`'s manual gives them.
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
        // There is always a limit of open files.
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

/// Raises one limit; what stays, if one does.
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

/// Takes back the `nice` value of the command that started the daemon, where the system allows
/// that.
pub(crate) fn take_back_nice() {
    if let Err(errno) = rustix::process::setpriority_process(None, 0) {
        tracing::debug!(%errno, "the daemon stays as nice as the command that started it");
    }
}
