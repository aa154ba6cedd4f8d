//! Executables that run at events, for example to send mail when a device fails.
//!
//! # Theory
//! These are what OpenZFS's `zed` runs. A folder holds executables (*zedlets*), named after their
//! events ([`folder`]). Each event is passed in environment variables ([`environment`]) to those
//! that match. Each of them is a process with its own group and time limit ([`job`]).
//!
//! A thread that enters an event never waits: the event goes into a queue, from which another
//! thread takes one after another. So zedlets start in the order of their events, and those of one
//! event in the order of their names. The number of running zedlets is limited. One that hangs
//! keeps one place until its time is over and its group is killed. Events that find the queue full
//! are counted and logged.
//!
//! The vdevs keep their devices' reports until they are collected. So a second thread collects them
//! every second. A pool that hangs may block that thread, but other events still arrive.
//!
//! # Life
//! Zedlets begin before anything is imported, and end with the daemon ([`Zedlets::end`]). At the
//! end, queued events still start their zedlets, and the daemon waits for the running ones. Both
//! have a moment. What is left is killed and counted.
//!
//! # Absent
//! * A position in the events that outlives the daemon (`zed.state`), since its events don't
//!   either.
//! * Actions on devices: the engine acts by itself.
//! * `zed.rc`: it is not executable, so it is not a zedlet. Zedlets that want it read it.
//!
//! # See
//! OpenZFS's `cmd/zed`, zed(8).

mod environment;
mod folder;
mod job;

use api::Event;
use folder::Folder;
use observe::lock::{Condvar, Mutex};
use std::collections::VecDeque;
use std::io::{PipeReader, PipeWriter};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The default folder for root's daemon, if it exists.
pub(crate) const USUAL: &str = "/etc/poolhouse/events.d";
/// How long a zedlet may run.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);
/// Most zedlets that run at once (`zed -j`).
const JOBS: usize = 16;
/// Most events in the queue.
const QUEUE: usize = 4096;
/// The interval between two collections of reports.
const GATHER: Duration = Duration::from_secs(1);
/// How long the end waits for the last reports, and then for queued events and running zedlets.
const ENDING: Duration = Duration::from_secs(2);
/// How long the end waits for killed zedlets.
const DYING: Duration = Duration::from_secs(1);

/// Why the executables of a folder can't be run.
#[derive(Debug, thiserror::Error)]
pub enum ZedletError {
    /// The folder can't be read, or a thread or pipe for it can't be created.
    #[error("cannot use the folder of events {}", folder.display())]
    Io {
        /// The folder.
        folder: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// It is not a directory.
    #[error("the folder of events {} is no folder", folder.display())]
    NoFolder {
        /// The path.
        folder: PathBuf,
    },
    /// It belongs neither to root nor to this user.
    #[error("the folder of events {} belongs to user {owner}, and not to root or user {user}: what is in it is not run", folder.display())]
    Foreign {
        /// The folder.
        folder: PathBuf,
        /// Its owner.
        owner: u32,
        /// The user that would run the executables.
        user: u32,
    },
    /// Other users may write in it.
    #[error("others may write in the folder of events {0}: its mode is {mode:04o}, and what is in it is not run; `chmod go-w {0}`", folder.display())]
    Open {
        /// The folder.
        folder: PathBuf,
        /// Its mode.
        mode: u32,
    },
}

/// How to run zedlets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Terms {
    /// Their folder.
    pub folder: PathBuf,
    /// The time limit of each.
    pub limit: Duration,
    /// Most that run at once, at least 1.
    pub jobs: usize,
    /// Most events in the queue.
    pub queue: usize,
    /// The daemon's folder, which zedlets get, so that their commands use this daemon.
    pub run_dir: Option<PathBuf>,
}

impl Terms {
    /// The default limits for a folder.
    pub fn of(folder: &Path) -> Self {
        Self { folder: folder.to_owned(), limit: LIMIT, jobs: JOBS, queue: QUEUE, run_dir: None }
    }
}

/// Runs the zedlets of a folder.
pub(crate) struct Zedlets {
    terms: Terms,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    queue: VecDeque<Event>,
    /// Events that found the queue full since the last log line.
    dropped: u64,
    /// Whether the zedlets of an event are being started.
    beginning: bool,
    running: usize,
    /// Whether a thread collects reports.
    gathering: bool,
    /// The end has come, and the last reports are being collected.
    stopping: bool,
    /// No more events are accepted.
    ending: bool,
    /// No more zedlets are started.
    over: bool,
    /// Closing it kills everything that runs.
    alarm: Option<PipeWriter>,
}

impl Zedlets {
    /// Starts to run the zedlets of a folder.
    ///
    /// # Errors
    /// * [`ZedletError::Io`]: the folder can't be read, or a pipe or thread can't be created.
    /// * [`ZedletError::NoFolder`]: it is not a directory.
    /// * [`ZedletError::Foreign`], [`ZedletError::Open`]: other users control it.
    pub(crate) fn start(terms: Terms) -> Result<Arc<Self>, ZedletError> {
        let failed = |source| ZedletError::Io { folder: terms.folder.clone(), source };
        let folder = Folder::open(&terms.folder)?;
        let (bell, alarm) = std::io::pipe().map_err(failed)?;
        let state = State { alarm: Some(alarm), ..State::default() };
        let zedlets =
            Arc::new(Self { terms: terms.clone(), state: Mutex::new(state), changed: Condvar::new() });
        let own = Arc::clone(&zedlets);
        let thread = std::thread::Builder::new().name("zedlets".to_owned());
        thread.spawn(move || own.run(folder, &Arc::new(bell))).map_err(failed)?;
        tracing::info!(folder = %terms.folder.display(), "its executables are run at events");
        Ok(zedlets)
    }

    /// Queues an event. Counts it if the queue is full.
    pub(crate) fn put(&self, event: &Event) {
        let mut state = self.state.lock();
        if state.ending || state.queue.len() >= self.terms.queue {
            state.dropped += 1;
            return;
        }
        state.queue.push_back(event.clone());
        self.changed.notify_all();
    }

    /// Calls `ask`, which enters events, every second until the end, and once more then.
    ///
    /// # Errors
    /// * [`ZedletError::Io`]: the thread can't be created.
    pub(crate) fn gather(self: &Arc<Self>, ask: impl Fn() + Send + 'static) -> Result<(), ZedletError> {
        let own = Arc::clone(self);
        let gather = move || {
            let mut on = true;
            while on {
                let mut state = own.state.lock();
                own.wait(&mut state, GATHER, |state| state.stopping);
                on = !state.stopping;
                drop(state);
                ask();
            }
            own.state.lock().gathering = false;
            own.changed.notify_all();
        };
        self.state.lock().gathering = true;
        let thread = std::thread::Builder::new().name("events".to_owned()).spawn(gather);
        thread.map(drop).map_err(|source| {
            self.state.lock().gathering = false;
            ZedletError::Io { folder: self.terms.folder.clone(), source }
        })
    }

    /// Accepts no more events, and waits a moment for the present ones. Then it kills what runs.
    pub(crate) fn end(&self) {
        let mut state = self.state.lock();
        state.stopping = true;
        self.changed.notify_all();
        self.wait(&mut state, ENDING, |state| !state.gathering);
        state.ending = true;
        self.changed.notify_all();
        self.wait(&mut state, ENDING, |state| {
            state.queue.is_empty() && !state.beginning && state.running == 0
        });
        state.over = true;
        if state.running > 0 {
            tracing::warn!(zedlets = state.running, "still running at the end, and killed");
        }
        state.alarm = None;
        self.changed.notify_all();
        self.wait(&mut state, DYING, |state| !state.beginning && state.running == 0);
        let lost = state.dropped + state.queue.len() as u64;
        if lost > 0 {
            tracing::warn!(events = lost, "nothing was run at events, since the daemon ends");
        }
    }

    fn wait(
        &self,
        state: &mut observe::lock::MutexGuard<'_, State>,
        time: Duration,
        so: impl Fn(&State) -> bool,
    ) {
        let end = Instant::now() + time;
        while !so(state) && !self.changed.wait_until(state, end).timed_out() {}
    }

    /// Takes one event after another.
    fn run(self: Arc<Self>, mut folder: Folder, bell: &Arc<PipeReader>) {
        while let Some((event, dropped)) = self.next() {
            if dropped > 0 {
                tracing::warn!(events = dropped, "nothing was run at events: too many came at once");
            }
            let fitting = folder.fitting(&event.class);
            let variables = if fitting.is_empty() {
                Vec::new()
            } else {
                environment::of(&event, &self.terms.folder, self.terms.run_dir.as_deref())
            };
            for path in fitting {
                if !self.take_place() {
                    break;
                }
                self.begin(job::Job {
                    path,
                    eid: event.eid,
                    variables: variables.clone(),
                    limit: self.terms.limit,
                    bell: Arc::clone(bell),
                });
            }
            self.state.lock().beginning = false;
            self.changed.notify_all();
        }
    }

    /// The next event, and how many were dropped before it. `None` at the end.
    fn next(&self) -> Option<(Event, u64)> {
        let mut state = self.state.lock();
        loop {
            if state.over {
                return None;
            }
            if let Some(event) = state.queue.pop_front() {
                state.beginning = true;
                let dropped = std::mem::take(&mut state.dropped);
                return Some((event, dropped));
            }
            if state.ending {
                return None;
            }
            self.changed.wait(&mut state);
        }
    }

    /// Waits for a place for one more zedlet. Returns whether it may still start.
    fn take_place(&self) -> bool {
        let mut state = self.state.lock();
        while !state.over && state.running >= self.terms.jobs.max(1) {
            self.changed.wait(&mut state);
        }
        if !state.over {
            state.running += 1;
        }
        !state.over
    }

    /// Runs a zedlet in the place that was taken for it.
    fn begin(self: &Arc<Self>, job: job::Job) {
        let own = Arc::clone(self);
        let name = job.path.clone();
        // The process exists when this returns, so those of later zedlets start after it.
        let began = job.begin().and_then(|running| {
            let thread = std::thread::Builder::new().name("zedlet".to_owned());
            thread.spawn(move || {
                running.watch();
                own.give_place();
            })
        });
        if let Err(error) = began {
            tracing::warn!(zedlet = %name.display(), %error, "cannot run it");
            self.give_place();
        }
    }

    fn give_place(&self) {
        self.state.lock().running -= 1;
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests;
