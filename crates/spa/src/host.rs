//! Who this host is, as pools know it.

use std::path::Path;

#[cfg(test)]
mod tests;

/// The identity that pools record of the host that uses them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    /// The system's hostid; 0 when it has none (`zone_get_hostid`).
    pub hostid: u32,
    /// The system's name.
    pub hostname: String,
}

impl Host {
    /// The host that this process runs on: the hostid is the `spl` module's parameter if set, else the first four bytes of
    /// `/etc/hostid`, else 0. The C library's guess from an IP address is deliberately not asked.
    pub fn of_system() -> Host {
        Self::from_root(Path::new("/"))
    }

    fn from_root(root: &Path) -> Host {
        let text = |path: &str| std::fs::read_to_string(root.join(path)).ok();
        let parameter =
            text("sys/module/spl/parameters/spl_hostid").and_then(|t| t.trim().parse::<u64>().ok());
        let file = || {
            let raw = std::fs::read(root.join("etc/hostid")).ok()?;
            Some(u32::from_ne_bytes(*raw.first_chunk::<4>()?))
        };
        let hostid = match parameter {
            Some(id) if id != 0 => id as u32,
            _ => file().unwrap_or(0),
        };
        let hostname = text("proc/sys/kernel/hostname").map(|t| t.trim().to_owned()).unwrap_or_default();
        Host { hostid, hostname }
    }
}
