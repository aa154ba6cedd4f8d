//! The calls that wait for a thread, and which of them is next.
//!
//! # Theory
//! Each host has a line of its own, and the lines take turns. So a host with many calls delays its
//! own calls, and those of others by one at most. A host whose calls take long has a quarter of the
//! threads at most, and no more than are free: the last ones are left for hosts that have none.
//!
//! Strangers, whose address may be forged, have lines of their own, in no way those of the host
//! that they pretend to be. Together they have half of the threads. Proven hosts come first, but
//! for every fourth turn.
//!
//! The places in the lines are shared likewise: a line has no more than are free, and strangers
//! have a quarter of all.

use std::collections::{HashMap, VecDeque};
use std::net::Ipv4Addr;

/// A host has one part of the threads in so many.
const PARTS: usize = 4;
/// Strangers come first in one turn of so many.
const TURNS: usize = 4;

/// Whose calls wait for each other: an address, and whether it is proven.
pub(super) type Line = (Ipv4Addr, bool);

/// The calls of a line.
struct Waiting<J> {
    jobs: VecDeque<J>,
    running: usize,
    /// It is among those whose turn comes.
    has_turn: bool,
}

/// Which call is next. It knows no thread.
pub(super) struct Lines<J> {
    /// How many calls run at a time, at most.
    pub(super) limit: usize,
    /// How many calls wait, at most.
    most: usize,
    lines: HashMap<Line, Waiting<J>>,
    /// Strangers, and proven hosts.
    turns: [VecDeque<Line>; 2],
    running: [usize; 2],
    /// Calls that wait: of strangers, and of proven hosts.
    waiting: [usize; 2],
    turn: usize,
}

impl<J> Lines<J> {
    pub(super) fn new(limit: usize, most: usize) -> Lines<J> {
        Lines {
            limit,
            most,
            lines: HashMap::new(),
            turns: [VecDeque::new(), VecDeque::new()],
            running: [0; 2],
            waiting: [0; 2],
            turn: 0,
        }
    }

    /// How many calls wait.
    pub(super) fn waiting(&self) -> usize {
        self.waiting[0] + self.waiting[1]
    }

    /// Whether a call of a line may wait: a line has no more places than are free.
    pub(super) fn may_wait(&self, line: &Line) -> bool {
        let (strangers, proven) = (self.most / PARTS, self.most - self.most / PARTS);
        let (class, all) = if line.1 { (1, proven) } else { (0, strangers.max(1)) };
        let own = self.lines.get(line).map_or(0, |waiting| waiting.jobs.len());
        own < all.saturating_sub(self.waiting[class])
    }

    pub(super) fn push(&mut self, line: Line, job: J) {
        self.waiting[usize::from(line.1)] += 1;
        let waiting = self.lines.entry(line).or_insert_with(|| Waiting {
            jobs: VecDeque::new(),
            running: 0,
            has_turn: false,
        });
        waiting.jobs.push_back(job);
        if !waiting.has_turn {
            waiting.has_turn = true;
            self.turns[usize::from(line.1)].push_back(line);
        }
    }

    /// Whether a line may have another thread. One that has none always may.
    fn may_run(&self, running: usize) -> bool {
        let free = self.limit.saturating_sub(self.running[0] + self.running[1]);
        running == 0 || running < (self.limit / PARTS).max(1).min(free)
    }

    /// The next call, which counts as running until [`Lines::done`].
    pub(super) fn pop(&mut self) -> Option<(Line, J)> {
        self.turn = (self.turn + 1) % TURNS;
        let first = usize::from(self.turn != 0);
        [first, 1 - first].into_iter().find_map(|class| self.pop_of(class))
    }

    fn pop_of(&mut self, class: usize) -> Option<(Line, J)> {
        if class == 0 && self.strangers_are_full() {
            return None;
        }
        while let Some(line) = self.turns[class].pop_front() {
            let running = self.lines.get(&line)?.running;
            let may_run = self.may_run(running);
            let waiting = self.lines.get_mut(&line)?;
            waiting.has_turn = false;
            // A line without a turn has a call that runs, whose end brings it back.
            let Some(job) = may_run.then(|| waiting.jobs.pop_front()).flatten() else { continue };
            waiting.running += 1;
            if !waiting.jobs.is_empty() {
                waiting.has_turn = true;
                self.turns[class].push_back(line);
            }
            self.running[class] += 1;
            self.waiting[class] -= 1;
            return Some((line, job));
        }
        None
    }

    pub(super) fn done(&mut self, line: Line) {
        let class = usize::from(line.1);
        self.running[class] -= 1;
        let Some(waiting) = self.lines.get_mut(&line) else { return };
        waiting.running -= 1;
        if waiting.jobs.is_empty() {
            if waiting.running == 0 && !waiting.has_turn {
                self.lines.remove(&line);
            }
        } else if !waiting.has_turn {
            waiting.has_turn = true;
            self.turns[class].push_back(line);
        }
    }

    fn strangers_are_full(&self) -> bool {
        self.running[0] >= (self.limit / 2).max(1)
    }

    /// Whether a call might run if there were a thread for it.
    pub(super) fn has_turns(&self) -> bool {
        !self.turns[1].is_empty() || (!self.turns[0].is_empty() && !self.strangers_are_full())
    }

    /// Forgets the calls that wait, and returns them.
    pub(super) fn clear(&mut self) -> Vec<J> {
        self.waiting = [0; 2];
        self.turns.iter_mut().for_each(VecDeque::clear);
        let lines = self.lines.values_mut();
        lines
            .flat_map(|line| {
                line.has_turn = false;
                std::mem::take(&mut line.jobs)
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);

    fn host(n: u32) -> Ipv4Addr {
        Ipv4Addr::from(0x0b00_0000 + n)
    }

    /// Goal: a host with a thousand calls has a quarter of the threads. The next host's call runs.
    #[test]
    fn a_host_has_a_share() {
        let mut lines = Lines::new(16, 10_000);
        (0..1_000).for_each(|n| lines.push((A, true), n));
        let taken = std::iter::from_fn(|| lines.pop()).count();
        assert_eq!(taken, 4);
        lines.push((host(1), true), 5_000);
        assert_eq!(lines.pop(), Some(((host(1), true), 5_000)));
        // An end makes place for one more of the same host.
        lines.done((A, true));
        assert!(lines.pop().is_some_and(|(line, _)| line.0 == A));
        assert!(lines.pop().is_none());
    }

    /// Goal: however many hosts take what they can, a host that has nothing finds a thread.
    #[test]
    fn the_last_threads_are_for_hosts_without() {
        let mut lines = Lines::new(16, 10_000);
        for n in 0..8 {
            (0..100).for_each(|job| lines.push((host(n), true), job));
        }
        let greedy = std::iter::from_fn(|| lines.pop().map(|(line, _)| line)).collect::<Vec<_>>();
        assert!(greedy.len() <= 15, "{}", greedy.len());
        lines.push((A, true), 0);
        assert_eq!(lines.pop(), Some(((A, true), 0)));
    }

    /// Goal: hosts take turns, and strangers neither fill the threads nor take a proven host's
    /// share.
    #[test]
    fn strangers_are_apart() {
        let mut lines = Lines::new(16, 10_000);
        for n in 0..100 {
            lines.push((host(n), false), 0);
            lines.push((A, false), 0);
        }
        (0..4).for_each(|n| lines.push((A, true), n));
        let taken: Vec<_> = std::iter::from_fn(|| lines.pop().map(|(line, _)| line)).collect();
        assert_eq!(taken.iter().filter(|line| !line.1).count(), 8);
        assert_eq!(taken.iter().filter(|line| **line == (A, true)).count(), 4);
        assert!(taken[..4].iter().filter(|line| line.1).count() >= 3, "{taken:?}");
        taken.into_iter().for_each(|line| lines.done(line));
        assert_eq!(lines.clear().len() + 12, 204);
    }

    /// Goal: neither strangers nor greedy hosts take the last place in the queue.
    #[test]
    fn a_place_is_left() {
        let mut lines = Lines::new(16, 100);
        let fill = |lines: &mut Lines<u32>, line: Line| {
            let mut count = 0;
            while lines.may_wait(&line) {
                lines.push(line, 0);
                count += 1;
            }
            count
        };
        assert_eq!((0..100).map(|n| fill(&mut lines, (host(n), false))).sum::<i32>(), 25);
        assert_eq!(fill(&mut lines, (A, true)), 38);
        let all: Vec<i32> = (0..5).map(|n| fill(&mut lines, (host(n), true))).collect();
        assert!(all.iter().all(|count| *count >= 1), "{all:?}");
        assert!(lines.waiting() <= 100);
    }
}
