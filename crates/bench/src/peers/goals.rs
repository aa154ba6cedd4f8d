//! What is to be reached beside the peer, and the rows that say whether it is.

use serde_json::{Value, json};

/// Whether less or more of something is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Better {
    Lower,
    Higher,
}

/// A goal: figures whose name matches are to be so many times the peer's, the better way round.
struct Goal {
    /// With `*` for anything.
    name: &'static str,
    ratio: f64,
}

/// The first that matches counts; what has none is to be no worse.
///
/// A copy of a cached block: 1.5 µs where libzpool takes 4.3 with a dbuf (2.9 times) and 17 without (11); one block freed: 5 µs where it takes 8.1 to 9.4.
const GOALS: &[Goal] = &[
    Goal { name: "cached-read.t*.cpu_us", ratio: 2.9 },
    Goal { name: "cached-read-large.t*.cpu_us", ratio: 2.9 },
    Goal { name: "fsync-storm-disk.t64.ops_s", ratio: 2.0 },
    Goal { name: "free-*.one_cpu_us", ratio: 1.8 },
    Goal { name: "free-1000000.all_cpu_s", ratio: 4.0 },
    // The kernel answers these from its own cache, whoever serves the mount: what differs is noise.
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
    /// The row of a figure; `None` if nobody can say which way it is better.
    pub(super) fn new(workload: &str, ours: f64, peer: f64) -> Option<Row> {
        let (unit, better) = unit(workload)?;
        let goal = GOALS.iter().find(|g| matches(g.name, workload)).map_or(1.0, |g| g.ratio);
        Some(Row { workload: workload.to_owned(), ours, peer, unit, better, goal })
    }

    /// How many times better ours is.
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

    /// As programs want it.
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

/// What the end of a figure's name says.
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

/// Whether `name` is what `pattern` says; `*` stands for anything.
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

    /// A goal counts the right way round, whichever way is better.
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

    /// A star stands for anything, and nothing else does.
    #[test]
    fn patterns() {
        assert!(matches("a.t*.cpu", "a.t64.cpu") && matches("free-*.one", "free-10.one"));
        assert!(!matches("a.t*.cpu", "a.t64.ops") && !matches("a", "ab") && matches("a", "a"));
        assert!(matches("*", "anything") && matches("a*b*c", "a1b2c") && !matches("a*b*c", "a1c"));
    }
}
