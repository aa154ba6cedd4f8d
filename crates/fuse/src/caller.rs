//! What a calling process may do beyond its user ID: the kernel passes the ID of the process only.

use std::fs;

/// The capability by which Linux recognises an administrator.
const CAP_SYS_ADMIN: u32 = 21;

/// The process that sent a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Asker {
    /// Its file-system user ID.
    pub uid: u32,
    /// The ID of its thread, which waits for the answer. 0 if the thread is in no PID namespace
    /// that this process can see.
    pub pid: u32,
}

impl Asker {
    /// Whether the process may administer the system that serves it.
    ///
    /// It must have `CAP_SYS_ADMIN`, and be in the same user namespace as this process. A
    /// capability in a namespace that it made for itself doesn't count. If `/proc` doesn't show
    /// either fact, the answer is no.
    pub fn administrates(self) -> bool {
        // The thread waits for the answer, so its ID can't be reused unless it is killed.
        let about = |what: &str| format!("/proc/{}/{what}", self.pid);
        let same_users =
            || Some(fs::read_link(about("ns/user")).ok()? == fs::read_link("/proc/self/ns/user").ok()?);
        self.pid != 0
            && fs::read_to_string(about("status")).is_ok_and(|status| has(&status, CAP_SYS_ADMIN))
            && same_users() == Some(true)
    }
}

/// Whether the effective capabilities in the text of `/proc/PID/status` include this one.
fn has(status: &str, capability: u32) -> bool {
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let mask = line.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> capability & 1 == 1)
}

#[cfg(test)]
mod tests;
