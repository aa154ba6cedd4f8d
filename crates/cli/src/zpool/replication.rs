//! Checks that the vdevs of a pool have the same redundancy (`get_replication`,
//! `check_replication`).
//!
//! # Theory
//! A pool is as safe as its weakest vdev. So a command line that mixes vdevs of different
//! redundancy counts as a mistake, and needs `-f`. In a pool that already mixes them, nothing is
//! refused.

use api::Vdev;

#[cfg(test)]
mod tests;

/// Tolerated difference of the sizes of a vdev's devices, in bytes (`ZPOOL_FUZZ`).
const SIZE_SLACK: u64 = 16 << 20;

/// The redundancy of a vdev (`replication_level_t`).
#[derive(Debug, Clone, PartialEq, Eq)]
struct Level {
    kind: String,
    children: u64,
    parity: u64,
}

impl Level {
    fn of(vdev: &Vdev) -> Self {
        let children = if vdev.children.is_empty() { 1 } else { vdev.children.len() as u64 };
        Self { kind: vdev.kind.clone(), children, parity: vdev.nparity }
    }

    fn has_parity(&self) -> bool {
        self.kind == "raidz" || self.kind == "draid"
    }

    /// The difference between two vdevs, if any.
    ///
    /// With `loosely`, for vdevs of one command line, raidz and draid need only the same parity.
    fn against(&self, other: &Self, loosely: bool) -> Option<Difference> {
        let crossed = [(self, other), (other, self)];
        if let Some((raidz, mirror)) = crossed.into_iter().find(|(a, b)| a.has_parity() && b.kind == "mirror")
        {
            let same = raidz.parity == mirror.children - 1;
            return (!same).then(|| Difference::Redundancy(raidz.clone(), mirror.clone()));
        }
        if loosely && self.has_parity() && other.has_parity() {
            return (self.parity != other.parity).then_some(Difference::Parity);
        }
        if self.kind != other.kind {
            Some(Difference::Kind)
        } else if self.parity != other.parity {
            Some(Difference::Parity)
        } else if self.children != other.children {
            Some(Difference::Children)
        } else {
            None
        }
    }
}

/// A difference between two vdevs.
enum Difference {
    Kind,
    Parity,
    Children,
    /// A raidz or draid and a mirror that survive different numbers of failures.
    Redundancy(Level, Level),
}

/// Finds the size of a device in bytes, if it is known.
pub type SizeOf<'a> = dyn Fn(&str) -> Option<u64> + 'a;

/// The vdevs that count: no logs, and no remains of removed vdevs.
fn counted(tops: &[Vdev]) -> impl Iterator<Item = &Vdev> {
    tops.iter().filter(|v| !v.is_log && v.kind != "hole" && v.kind != "indirect")
}

/// The faults within the vdevs of one pool or command line, and the redundancy of the last vdev.
fn within(tops: &[Vdev], size: &SizeOf<'_>) -> (Vec<String>, Option<Level>) {
    let mut faults = Vec::new();
    let mut last: Option<Level> = None;
    for vdev in counted(tops) {
        if let Some(fault) = uneven(vdev, size) {
            faults.push(fault);
        }
        let level = Level::of(vdev);
        let before = last.as_ref().and_then(|last| Some((last, last.against(&level, true)?)));
        if let Some((last, difference)) = before {
            let what = match difference {
                Difference::Redundancy(raidz, mirror) => format!(
                    "{} and {} vdevs with different redundancy, {} vs. {} ({}-way) are present",
                    raidz.kind,
                    mirror.kind,
                    raidz.parity,
                    mirror.children - 1,
                    mirror.children
                ),
                Difference::Parity => format!(
                    "{} and {} vdevs with different redundancy, {} vs. {} are present",
                    last.kind, level.kind, last.parity, level.parity
                ),
                Difference::Kind => format!("both {} and {} vdevs are present", last.kind, level.kind),
                Difference::Children => format!(
                    "both {}-way and {}-way {} vdevs are present",
                    last.children, level.children, level.kind
                ),
            };
            faults.push(format!("mismatched replication level: {what}"));
        }
        last = Some(level);
    }
    (faults, last)
}

/// The first leaf below a spare or replacing vdev.
fn real(mut vdev: &Vdev) -> &Vdev {
    while let ("replacing" | "spare", Some(first)) = (vdev.kind.as_str(), vdev.children.first()) {
        vdev = first;
    }
    vdev
}

/// A message if the devices of a vdev have different types or sizes.
fn uneven(vdev: &Vdev, size: &SizeOf<'_>) -> Option<String> {
    let mut before: Option<(&str, u64)> = None;
    for leaf in vdev.children.iter().map(real) {
        let Some(bytes) = leaf.path.as_deref().and_then(size).filter(|n| *n > 0) else { continue };
        if let Some((kind, of)) = before {
            if kind != leaf.kind {
                return Some(format!(
                    "mismatched replication level: {} contains both files and devices",
                    vdev.kind
                ));
            }
            if bytes.abs_diff(of) > SIZE_SLACK {
                return Some(format!("{} contains devices of different sizes", vdev.kind));
            }
        }
        before = Some((&leaf.kind, bytes));
    }
    None
}

/// The faults of new vdevs, one message each.
///
/// `pool` has the vdevs of the pool, if it exists already.
pub fn check(pool: Option<&[Vdev]>, new: &[Vdev], size: &SizeOf<'_>) -> Vec<String> {
    let current = match pool.map(|tops| within(tops, size)) {
        // The pool already mixes redundancies.
        Some((faults, _)) if !faults.is_empty() => return Vec::new(),
        Some((_, level)) => level,
        None => None,
    };
    if new.iter().all(|v| v.is_log) {
        return Vec::new();
    }
    let (faults, level) = within(new, size);
    if !faults.is_empty() {
        return faults;
    }
    let (Some(current), Some(new)) = (current, level) else { return Vec::new() };
    let Some(difference) = current.against(&new, false) else { return Vec::new() };
    let what = match difference {
        Difference::Redundancy(raidz, mirror) => format!(
            "pool and new vdev with different redundancy, {} and {} vdevs, {} vs. {} ({}-way)",
            raidz.kind,
            mirror.kind,
            raidz.parity,
            mirror.children - 1,
            mirror.children
        ),
        Difference::Kind => format!("pool uses {} and new vdev is {}", current.kind, new.kind),
        Difference::Parity => {
            format!("pool uses {} device parity and new vdev uses {}", current.parity, new.parity)
        }
        Difference::Children => format!(
            "pool uses {}-way {} and new vdev uses {}-way {}",
            current.children, current.kind, new.children, new.kind
        ),
    };
    vec![format!("mismatched replication level: {what}")]
}
