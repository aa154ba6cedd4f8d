//! What a caller may do beyond its user's number: the kernel says which process asks, and no more.

use std::fs;

/// `CAP_SYS_ADMIN`, by which Linux tells who administrates.
const CAP_SYS_ADMIN: u32 = 21;

/// Who asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Asker {
    /// Its user.
    pub uid: u32,
    /// Its thread, which waits for the answer; 0 if it is in no namespace of processes that ours contains.
    pub pid: u32,
}

impl Asker {
    /// Whether it administrates the system that serves it: it has `CAP_SYS_ADMIN`, and in the same user namespace, not in one that it has made for
    /// itself. What can't be found out is not granted.
    pub fn administrates(self) -> bool {
        // It can't end and give its number away before it is answered, unless it is killed.
        let about = |what: &str| format!("/proc/{}/{what}", self.pid);
        let same_users =
            || Some(fs::read_link(about("ns/user")).ok()? == fs::read_link("/proc/self/ns/user").ok()?);
        self.pid != 0
            && fs::read_to_string(about("status")).is_ok_and(|status| has(&status, CAP_SYS_ADMIN))
            && same_users() == Some(true)
    }
}

/// Whether a process of this status has a capability in effect.
fn has(status: &str, capability: u32) -> bool {
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let mask = line.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> capability & 1 == 1)
}

#[cfg(test)]
mod tests;
