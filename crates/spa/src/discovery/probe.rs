//! Reading devices that may hang.
//!
//! # Theory
//! A system call to a device that hangs can't be cancelled: the calling thread hangs as long as the
//! device. So Poolhouse uses threads that it can leave behind to probe devices, and to open them.
//! The caller waits [`PROBE_TIMEOUT`] for each answer. It abandons a thread that is late, which
//! ends when its call returns. The other answers arrive meanwhile.
//!
//! While a call hangs, its path is remembered. The next probe of that path waits a moment for that
//! call to return, and adds no other. A limit applies once `MAX_HANGING` threads hang, or
//! `MAX_LOST` of one search. A search that has then left threads behind probes no more, and the
//! rest counts as silent. A search that has left none goes on: dead devices elsewhere do not keep
//! it from its own. If no thread can be started, the caller's thread makes the call.
//!
//! A probe from within another probe shares the time limit of that one, and needs no thread.
//!
//! # Locks
//! The lock of a `Crew` is held to take or end one probe. `HANGING` is held to look a path up,
//! and comes after it. Nothing is read under either.
//!
//! # Absent
//! Devices of an open pool are not read through this: the pool handles those itself (`failmode`,
//! suspension).

mod patient;

use observe::lock::{Condvar, Mutex};
use observe::{Tunable, Unit};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

pub(crate) use patient::layer;

/// Milliseconds in which a probed device must answer (`zfs_probe_timeout_ms`). A sleeping disk
/// takes about ten seconds to spin up.
pub static PROBE_TIMEOUT: Tunable = Tunable::new(
    "zfs_probe_timeout_ms",
    15_000,
    100..=3_600_000,
    Unit::Milliseconds,
    "longest time that a search for pools or an import waits for a device",
);
/// Wait for a call that hung before.
const AGAIN: Duration = Duration::from_secs(1);
/// Most threads that probe for one search, without those that hang.
const MAX_THREADS: usize = 16;
/// Most threads of a process that hang.
const MAX_HANGING: usize = 128;
/// Most threads that one search leaves behind.
const MAX_LOST: usize = 32;
/// Interval of the check for late threads.
const TURN: Duration = Duration::from_millis(50);

/// The paths that threads hang on, and how many on each.
struct Hanging {
    paths: Mutex<BTreeMap<PathBuf, usize>>,
    changed: Condvar,
}

static HANGING: Hanging = Hanging { paths: Mutex::new(BTreeMap::new()), changed: Condvar::new() };

impl Hanging {
    fn begins(&self, path: &Path) {
        *self.paths.lock().entry(path.to_owned()).or_default() += 1;
    }

    fn ends(&self, path: &Path) {
        let mut paths = self.paths.lock();
        if let Some(count) = paths.get_mut(path) {
            *count -= 1;
            if *count == 0 {
                paths.remove(path);
            }
        }
        self.changed.notify_all();
    }

    fn is_full(&self) -> bool {
        self.paths.lock().values().sum::<usize>() >= MAX_HANGING
    }

    /// Which of these hang still, after a moment in which they may answer.
    fn still(&self, paths: &[PathBuf]) -> Vec<bool> {
        let until = Instant::now() + AGAIN;
        let mut hanging = self.paths.lock();
        loop {
            let late: Vec<bool> = paths.iter().map(|path| hanging.contains_key(path)).collect();
            if !late.contains(&true) || self.changed.wait_until(&mut hanging, until).timed_out() {
                return late;
            }
        }
    }
}

/// Which of these paths are known to hang now.
pub fn silent<'p>(paths: impl IntoIterator<Item = &'p Path>) -> Vec<PathBuf> {
    let hanging = HANGING.paths.lock();
    paths.into_iter().filter(|path| hanging.contains_key(*path)).map(Path::to_owned).collect()
}

/// The time limit of a probe.
fn patience() -> Duration {
    Duration::from_millis(PROBE_TIMEOUT.get())
}

thread_local! {
    /// Whether this thread runs a probe, and may be left behind.
    static ANSWERS: Cell<bool> = const { Cell::new(false) };
}

/// The worker pool of one search, and its queue of paths.
struct Crew<F> {
    /// The index of the answer, and the path.
    asked: Vec<(usize, PathBuf)>,
    turn: Mutex<Turn>,
    question: F,
}

#[derive(Default)]
struct Turn {
    next: usize,
    /// The start of each probe that has not ended.
    busy: BTreeMap<usize, Instant>,
}

impl<F> Crew<F> {
    fn work<T>(&self, tell: &Sender<(usize, T)>)
    where
        F: Fn(&Path) -> T,
    {
        ANSWERS.set(true);
        while let Some(at) = self.begin() {
            let (slot, path) = &self.asked[at];
            let answer = (self.question)(path);
            let in_time = self.turn.lock().busy.remove(&at).is_some();
            if !in_time {
                drop(answer);
                return HANGING.ends(path);
            }
            if tell.send((*slot, answer)).is_err() {
                return;
            }
        }
    }

    fn begin(&self) -> Option<usize> {
        let mut turn = self.turn.lock();
        let at = turn.next;
        if at == self.asked.len() {
            return None;
        }
        turn.next += 1;
        turn.busy.insert(at, Instant::now());
        Some(at)
    }

    /// Abandons the probes that take too long, and gives their number.
    fn give_up(&self, patience: Duration) -> usize {
        let mut turn = self.turn.lock();
        let late = |(at, since): (&usize, &Instant)| (since.elapsed() >= patience).then_some(*at);
        let late: Vec<usize> = turn.busy.iter().filter_map(late).collect();
        for at in &late {
            turn.busy.remove(at);
            HANGING.begins(&self.asked[*at].1);
        }
        late.len()
    }
}

/// Probes each path, several at a time. `None` for each that does not answer in time
/// ([`PROBE_TIMEOUT`]).
pub fn each<T, F>(paths: &[PathBuf], question: F) -> Vec<Option<T>>
where
    T: Send + 'static,
    F: Fn(&Path) -> T + Send + Sync + 'static,
{
    let mut answers: Vec<Option<T>> = paths.iter().map(|_| None).collect();
    let late = HANGING.still(paths);
    let asked: Vec<_> =
        paths.iter().cloned().enumerate().zip(late).filter(|(_, late)| !late).map(|(one, _)| one).collect();
    let mut left = asked.len();
    let cpus = std::thread::available_parallelism().map_or(1, |n| n.get());
    // Reading labels waits for devices more than it computes.
    let most = (2 * cpus).min(MAX_THREADS);
    let crew = Arc::new(Crew { asked, turn: Mutex::default(), question });
    let (tell, told) = channel();
    let (mut threads, mut lost) = (0, 0);
    while left > 0 {
        let spent = || lost > 0 && (lost >= MAX_LOST || HANGING.is_full());
        while threads < most.min(left) && !spent() {
            let (crew, tell) = (Arc::clone(&crew), tell.clone());
            let thread = std::thread::Builder::new().name("ask".to_owned());
            if thread.spawn(move || crew.work(&tell)).is_err() {
                break;
            }
            threads += 1;
        }
        if threads == 0 && spent() {
            break;
        }
        if threads == 0 {
            while let Some(at) = crew.begin() {
                let (slot, path) = &crew.asked[at];
                answers[*slot] = Some((crew.question)(path));
            }
            break;
        }
        match told.recv_timeout(TURN.min(patience())) {
            Ok((slot, answer)) => {
                answers[slot] = Some(answer);
                left -= 1;
            }
            Err(_) => {
                let late = crew.give_up(patience());
                threads -= late;
                left -= late;
                lost += late;
            }
        }
    }
    answers
}

/// Probes one path on a thread that can be left behind. `None` if it does not answer in time
/// ([`PROBE_TIMEOUT`]).
pub fn one<T, F>(path: &Path, question: F) -> Option<T>
where
    T: Send + 'static,
    F: Fn(&Path) -> T + Send + Sync + 'static,
{
    if ANSWERS.get() {
        return Some(question(path));
    }
    each(&[path.to_owned()], question).pop().flatten()
}
