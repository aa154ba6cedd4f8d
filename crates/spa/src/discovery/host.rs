//! The host's identity as pools record it, and its memory.

use std::path::{Path, PathBuf};

#[cfg(test)]
mod tests;

/// The file with the hostid, if the module `spl` has no parameter for it (`spl_hostid_path`).
pub const HOSTID_FILE: &str = "/etc/hostid";

/// The identity that pools record of the host that uses them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    /// The system's hostid; 0 when it has none (`zone_get_hostid`).
    pub hostid: u32,
    /// The system's name.
    pub hostname: String,
}

impl Host {
    /// The host of this process.
    ///
    /// The hostid is the `spl` module's parameter if set, else the first four bytes of
    /// [`HOSTID_FILE`], else 0. The C library's guess from an IP address does not count.
    pub fn of_system() -> Host {
        Self::from_root(Path::new("/"))
    }

    fn from_root(root: &Path) -> Host {
        let text = |path: &str| std::fs::read_to_string(root.join(path)).ok();
        let parameter =
            text("sys/module/spl/parameters/spl_hostid").and_then(|t| t.trim().parse::<u64>().ok());
        let file = || {
            let raw = std::fs::read(root.join(HOSTID_FILE.trim_start_matches('/'))).ok()?;
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

/// The versions of the pool, this program and the system, for the pool's history
/// (`spa_history_log_version`).
pub(crate) fn versions(pool: u64, nodename: &str) -> String {
    versions_below(Path::new("/"), pool, nodename)
}

fn versions_below(root: &Path, pool: u64, nodename: &str) -> String {
    let text = |path: &str| std::fs::read_to_string(root.join(path)).ok();
    let kernel = |file: &str| {
        let text = text(&format!("proc/sys/kernel/{file}"));
        text.map_or_else(|| "-".to_owned(), |text| text.trim().to_owned())
    };
    let (own, release, version) = (env!("CARGO_PKG_VERSION"), kernel("osrelease"), kernel("version"));
    let machine = std::env::consts::ARCH;
    format!(
        "pool version {pool}; software version poolhouse-{own}; uts {nodename} {release} {version} {machine}"
    )
}

/// Bytes of memory that this process may use: the machine's, or the limit of its control group. 1
/// GiB if neither can be read.
pub fn memory() -> u64 {
    memory_below(Path::new("/"))
}

/// Bytes of memory that are free for this process, in the machine and in its control groups. `None`
/// if they can't be read.
pub fn memory_left() -> Option<u64> {
    memory_left_below(Path::new("/"))
}

fn memory_left_below(root: &Path) -> Option<u64> {
    let of_groups = groups(root).into_iter().filter_map(|group| group.left());
    of_groups.chain(meminfo(root, "MemAvailable:")).min()
}

/// A control group that limits this process.
struct Group {
    dir: PathBuf,
    /// Names of its files: the limits, the use, and the reclaimable part of the use.
    limits: &'static [&'static str],
    used: &'static str,
    spare: &'static [&'static str],
}

impl Group {
    fn number(&self, file: &str) -> Option<u64> {
        // `max` is no number, and no limit.
        std::fs::read_to_string(self.dir.join(file)).ok()?.trim().parse().ok()
    }

    /// The limit in bytes, beyond which the system throttles or kills the process.
    fn limit(&self) -> Option<u64> {
        self.limits.iter().filter_map(|file| self.number(file)).min()
    }

    fn left(&self) -> Option<u64> {
        let used = self.number(self.used)?;
        let stat = std::fs::read_to_string(self.dir.join("memory.stat")).unwrap_or_default();
        let rows = stat.lines().filter_map(|line| line.split_once(' '));
        let spare = rows.filter(|(name, _)| self.spare.contains(name));
        let spare: u64 = spare.filter_map(|(_, bytes)| bytes.trim().parse::<u64>().ok()).sum();
        Some(self.limit()?.saturating_sub(used.saturating_sub(spare)))
    }
}

/// The control groups that limit our memory. Version 2 has one tree, in which each group above ours
/// limits us too; version 1 has one for memory alone.
fn groups(root: &Path) -> Vec<Group> {
    let of_us = std::fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
    let mut all = Vec::new();
    for line in of_us.lines() {
        let Some((controllers, path)) = line.split_once(':').and_then(|(_, rest)| rest.split_once(':'))
        else {
            continue;
        };
        let (base, limits, used, spare): (_, &[&str], _, &[&str]) = match controllers {
            "" => {
                let limits = &["memory.max", "memory.high"];
                ("sys/fs/cgroup", limits, "memory.current", &["inactive_file", "slab_reclaimable"])
            }
            "memory" => {
                let base = "sys/fs/cgroup/memory";
                (base, &["memory.limit_in_bytes"], "memory.usage_in_bytes", &["total_inactive_file"])
            }
            _ => continue,
        };
        let path = Path::new(path.trim_start_matches('/'));
        let dirs = path.ancestors().map(|group| root.join(base).join(group));
        all.extend(dirs.map(|dir| Group { dir, limits, used, spare }));
    }
    all
}

/// A size from the system's `meminfo`, in bytes.
fn meminfo(root: &Path, name: &str) -> Option<u64> {
    let text = std::fs::read_to_string(root.join("proc/meminfo")).ok()?;
    let kib = text.lines().find_map(|l| l.strip_prefix(name))?.trim().strip_suffix("kB")?.trim();
    kib.parse::<u64>().ok()?.checked_mul(1024)
}

fn memory_below(root: &Path) -> u64 {
    const FALLBACK: u64 = 1 << 30;
    let limits = groups(root).into_iter().filter_map(|group| group.limit());
    limits.chain(meminfo(root, "MemTotal:")).min().unwrap_or(FALLBACK)
}
