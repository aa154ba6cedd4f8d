//! The goals beside the peer, and the rows that show whether they are met.

use serde_json::{Value, json};

/// Whether lower or higher values of a figure are better.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Better {
    Lower,
    Higher,
}

/// A goal for all figures that match a pattern: how many times better than the peer's they must be.
struct Goal {
    /// The pattern. `*` matches anything.
    name: &'static str,
    ratio: f64,
}

/// The goals. The first match counts. A figure without a match must be no worse than the peer's.
///
/// | operation | ours | libzpool |
/// |---|---|---|
/// | copy of a cached block | 1.5 µs | 4.3 µs with a dbuf (2.9 times), 17 µs without (11 times) |
/// | freeing one block | 5 µs | 8.1 to 9.4 µs |
const GOALS: &[Goal] = &[
    Goal { name: "cached-read.t*.cpu_us", ratio: 2.9 },
    Goal { name: "cached-read-large.t*.cpu_us", ratio: 2.9 },
    Goal { name: "fsync-storm-disk.t64.ops_s", ratio: 2.0 },
    Goal { name: "free-*.one_cpu_us", ratio: 1.8 },
    Goal { name: "free-1000000.all_cpu_s", ratio: 4.0 },
    // The kernel answers these reads from its own cache, whatever serves the mount. The difference
    // is noise.
    Goal { name: "fuse-read-hot.*", ratio: 0.85 },
];

/// A figure of both sides.
#[derive(Debug, Clone)]
pub(super) struct Row {
    pub(super) workload: String,
    pub(super) ours: f64,
    pub(super) peer: f64,
    pub(super) unit: &'static str,
    pub(super) better: Better,
    pub(super) goal: f64,
}

impl Row {
    /// The row of a figure; `None` if it is unknown whether lower or higher is better.
    pub(super) fn new(workload: &str, ours: f64, peer: f64) -> Option<Row> {
        let (unit, better) = unit(workload)?;
        let goal = GOALS.iter().find(|g| matches(g.name, workload)).map_or(1.0, |g| g.ratio);
        Some(Row { workload: workload.to_owned(), ours, peer, unit, better, goal })
    }

    /// How many times better than the peer's our figure is.
    pub(super) fn ratio(&self) -> f64 {
        let (good, bad) = match self.better {
            Better::Lower => (self.ours, self.peer),
            Better::Higher => (self.peer, self.ours),
        };
        if good > 0.0 { bad / good } else { f64::INFINITY }
    }

    /// Whether the goal is met.
    pub(super) fn is_met(&self) -> bool {
        self.ratio() >= self.goal
    }

    /// Encodes the row as JSON.
    pub(super) fn to_json(&self) -> Value {
        json!({
            "workload": self.workload,
            "ours": self.ours,
            "peer": self.peer,
            "unit": self.unit,
            "better": if self.better == Better::Lower { "lower" } else { "higher" },
            "goal_ratio": self.goal,
        })
    }
}

/// The unit of a figure, by the last part of its name.
fn unit(name: &str) -> Option<(&'static str, Better)> {
    let last = name.rsplit('.').next().unwrap_or(name);
    Some(match last {
        "ops_s" => ("operations/s", Better::Higher),
        "mb_s" => ("MB/s", Better::Higher),
        "server_cpu_us" => ("µs of the server's CPU per operation", Better::Lower),
        "cpu_us" | "one_cpu_us" | "call_cpu_us" => ("µs of CPU per operation", Better::Lower),
        "p50_us" | "p99_us" => ("µs", Better::Lower),
        "s" | "call_s" | "all_s" | "longest_wait_s" => ("s", Better::Lower),
        "cpu_s" | "all_cpu_s" | "write_cpu_s" => ("s of CPU", Better::Lower),
        _ => return None,
    })
}

/// Whether `name` matches `pattern`, in which `*` matches anything.
fn matches(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = parts.next().and_then(|first| name.strip_prefix(first)) else { return false };
    let mut parts = parts.peekable();
    if parts.peek().is_none() {
        return rest.is_empty();
    }
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return rest.ends_with(part);
        }
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a ratio above 1 is better, whether lower or higher values are better.
    #[test]
    fn ratios() {
        let lower = Row::new("cached-read.t2.cpu_us", 1.0, 3.0).unwrap();
        assert!(lower.is_met() && lower.ratio() == 3.0);
        assert!(!Row::new("cached-read.t2.cpu_us", 1.2, 3.0).unwrap().is_met());
        let higher = Row::new("fsync-storm-disk.t64.ops_s", 100.0, 60.0).unwrap();
        assert!(!higher.is_met() && higher.goal == 2.0);
        assert!(Row::new("fsync-storm-disk.t8.ops_s", 100.0, 60.0).unwrap().is_met());
        assert!(Row::new("fsync-storm-disk.t8.flushes_per_op", 1.0, 1.0).is_none());
    }

    /// Goal: a star matches anything, and all other characters match only themselves.
    #[test]
    fn patterns() {
        assert!(matches("a.t*.cpu", "a.t64.cpu") && matches("free-*.one", "free-10.one"));
        assert!(!matches("a.t*.cpu", "a.t64.ops") && !matches("a", "ab") && matches("a", "a"));
        assert!(matches("*", "anything") && matches("a*b*c", "a1b2c") && !matches("a*b*c", "a1c"));
    }
}
