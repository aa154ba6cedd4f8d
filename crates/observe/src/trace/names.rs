//! Texts of a session: names of processes and datasets.
//!
//! A text gets a number at its first sight. So an event has numbers alone.

use std::collections::HashMap;
use std::sync::Arc;

/// The most texts of a session. Further ones are [`CROWD`].
const TEXTS: usize = 20_000;
/// The most nodes: files, or objects of them.
const NODES: usize = 100_000;
/// The most threads whose processes a session knows at a time.
const PROCESSES: usize = 20_000;
/// How many ancestors of a process are looked up.
const ANCESTORS: usize = 32;
/// What is known of a process is looked up again after so many nanoseconds: its number may be
/// another one's by then.
pub(super) const FRESH_NS: u64 = 1_000_000_000;
/// The number of the text for all that found no room.
const CROWD: u64 = 0;

/// A process that sent an operation.
#[derive(Debug, Clone)]
pub(super) struct Process {
    /// The number of its name.
    pub(super) name: u64,
    /// Itself and its ancestors, if a condition wants to know them.
    pub(super) line: Arc<[u32]>,
}

/// The texts of a session.
#[derive(Debug)]
pub(super) struct Names {
    numbers: HashMap<Arc<str>, u64>,
    texts: Vec<Arc<str>>,
    /// With the time when each was looked up.
    processes: HashMap<u32, (u64, Process)>,
    /// Nodes that the file of an event may be, by their numbers: see [`Names::node`].
    nodes: Vec<(u64, u64)>,
    node_numbers: HashMap<(u64, u64), u64>,
}

impl Default for Names {
    fn default() -> Self {
        let texts = vec![Arc::from("(others)")];
        let (numbers, processes) = (HashMap::new(), HashMap::new());
        // The first one stands for those that are unknown, or found no room.
        Self { numbers, texts, processes, nodes: vec![(0, 0)], node_numbers: HashMap::new() }
    }
}

impl Names {
    /// The number of a text.
    pub(super) fn number(&mut self, text: &str) -> u64 {
        if let Some(number) = self.numbers.get(text) {
            return *number;
        }
        if self.texts.len() >= TEXTS {
            return CROWD;
        }
        let (number, text) = (self.texts.len() as u64, Arc::<str>::from(text));
        self.texts.push(Arc::clone(&text));
        self.numbers.insert(text, number);
        number
    }

    /// The text of a number.
    pub(super) fn text(&self, number: u64) -> Arc<str> {
        let text = usize::try_from(number).ok().and_then(|at| self.texts.get(at));
        Arc::clone(text.unwrap_or(&self.texts[0]))
    }

    /// The number of a node of a place.
    pub(super) fn node(&mut self, node: (u64, u64)) -> u64 {
        if let Some(number) = self.node_numbers.get(&node) {
            return *number;
        }
        if self.nodes.len() >= NODES {
            return CROWD;
        }
        let number = self.nodes.len() as u64;
        self.nodes.push(node);
        self.node_numbers.insert(node, number);
        number
    }

    /// The place and the node of a number.
    pub(super) fn node_of(&self, number: u64) -> (u64, u64) {
        let node = usize::try_from(number).ok().and_then(|at| self.nodes.get(at));
        node.copied().unwrap_or_default()
    }

    /// The process of a thread at this time. It is looked up before the operation ends: later it
    /// may have ended, too.
    /// `under`: its ancestors are wanted, up to this process.
    pub(super) fn process(&mut self, pid: u32, now: u64, under: Option<u32>) -> Process {
        let known = self.processes.get(&pid);
        if let Some((at, process)) = known
            && now < at.saturating_add(FRESH_NS)
        {
            return process.clone();
        }
        let name = crate::slow::process_name(pid);
        let process = match known {
            // It has ended, so no other one can have its number yet.
            Some((_, process)) if name.is_empty() => process.clone(),
            _ => {
                let line: Arc<[u32]> = under.map(|until| line_of(pid, until)).unwrap_or_default().into();
                Process { name: self.number(&name), line }
            }
        };
        if self.processes.len() >= PROCESSES {
            self.processes.clear();
        }
        self.processes.insert(pid, (now, process.clone()));
        process
    }
}

/// A thread's process, and its ancestors up to this one.
fn line_of(pid: u32, until: u32) -> Vec<u32> {
    let mut line = Vec::new();
    let mut next = thread_group(pid).unwrap_or(pid);
    while next != 0 && line.len() < ANCESTORS && !line.contains(&next) {
        line.push(next);
        if next == until {
            break;
        }
        next = status(next, "PPid:").unwrap_or(0);
    }
    line
}

/// The process that a thread belongs to.
fn thread_group(pid: u32) -> Option<u32> {
    status(pid, "Tgid:")
}

/// A number of a process's status: see proc_pid_status(5).
fn status(pid: u32, name: &str) -> Option<u32> {
    // A name of a process may have any bytes, but no line end.
    let status = std::fs::read(format!("/proc/{pid}/status")).ok()?;
    let status = String::from_utf8_lossy(&status);
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim().parse().ok()
}
