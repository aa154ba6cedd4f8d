//! Who this host is, as pools know it, and how much memory it gives.

use std::path::{Path, PathBuf};

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

/// Bytes of memory that this process may use: the machine's, or what its control group is limited to. 1 GiB where that can't be found out.
pub fn memory() -> u64 {
    memory_below(Path::new("/"))
}

/// Bytes of the machine's memory that nobody uses, and that could be had without anybody suffering; 0 where that can't be found out.
pub fn memory_left() -> (u64, u64) {
    let number = |name: &str| meminfo(Path::new("/"), name).unwrap_or(0);
    (number("MemFree:"), number("MemAvailable:"))
}

/// A size that the system tells, in bytes.
fn meminfo(root: &Path, name: &str) -> Option<u64> {
    let text = std::fs::read_to_string(root.join("proc/meminfo")).ok()?;
    let kib = text.lines().find_map(|l| l.strip_prefix(name))?.trim().strip_suffix("kB")?.trim();
    kib.parse::<u64>().ok()?.checked_mul(1024)
}

fn memory_below(root: &Path) -> u64 {
    const FALLBACK: u64 = 1 << 30;
    let text = |path: &Path| std::fs::read_to_string(root.join(path)).ok();
    let total = meminfo(root, "MemTotal:");
    let number = |path: PathBuf| text(&path)?.trim().parse::<u64>().ok();
    // Version 2 has one tree, and each group above ours limits us too; version 1 one for memory alone. `max` is no number, and no limit.
    let groups = text(Path::new("proc/self/cgroup")).unwrap_or_default();
    let limits = groups.lines().filter_map(|line| {
        let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
        let (base, file) = match controllers {
            "" => ("sys/fs/cgroup", "memory.max"),
            "memory" => ("sys/fs/cgroup/memory", "memory.limit_in_bytes"),
            _ => return None,
        };
        let path = Path::new(path.trim_start_matches('/'));
        path.ancestors().filter_map(|group| number(Path::new(base).join(group).join(file))).min()
    });
    limits.chain(total).min().unwrap_or(FALLBACK)
}
