//! Executables that are run at events: what mails, or lights a lamp, when a device fails.
//!
//! # Theory
//! What OpenZFS leaves to `zed`. A folder holds executables (*zedlets*), named after the events that they want ([`folder`]); each event is handed to those that fit in environment variables ([`environment`]), and each
//! of them is a process with a group and a time of its own ([`job`]).
//!
//! Who enters an event waits for nothing: it goes into a queue, from which a thread takes one after another. So zedlets are begun in the order of their events, and those of one event in the order of their names;
//! so many at once run at most, and one that hangs keeps one place until its time is over and its group is killed.
//! What finds no room in the queue is counted, and said in the log. What devices report is kept by the vdevs until somebody asks, so a second thread asks every second, for as long as there are zedlets:
//! a pool that hangs may hold that one, and what is entered without it is still told.
//!
//! # Life
//! Begun before anything is imported; ended ([`Zedlets::end`]) with the daemon: what is queued is begun still, what runs then is waited for, both for a moment, and what is left is killed and counted.
//!
//! # Absent
//! A place in the order of events that outlives the daemon (`zed.state`): so do its events not. Nothing is done about devices here: the engine does that by itself. `zed.rc` is no zedlet,
//! since it is not executable, and is read by those who want it.
//!
//! # See
//! OpenZFS `cmd/zed`, zed(8).

mod environment;
mod folder;
mod job;

use api::Event;
use folder::Folder;
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::io::{PipeReader, PipeWriter};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The folder that root's daemon looks into if it was told no other, if it is there.
pub(crate) const USUAL: &str = "/etc/poolhouse/events.d";
/// How long a zedlet may run.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);
/// How many run at once (`zed -j`).
const JOBS: usize = 16;
/// Events that wait for their zedlets.
const QUEUE: usize = 4096;
/// How often devices are asked what happened to them.
const GATHER: Duration = Duration::from_secs(1);
/// How long the end waits for the last reports, and then for what is queued and what runs.
const ENDING: Duration = Duration::from_secs(2);
/// How long it waits for those that it has killed.
const DYING: Duration = Duration::from_secs(1);

/// A folder whose executables can't be run.
#[derive(Debug, thiserror::Error)]
pub enum ZedletError {
    /// It can't be read, or a thread can't be started for it.
    #[error("cannot use the folder of events {}", folder.display())]
    Io {
        /// The folder.
        folder: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// It is no folder.
    #[error("the folder of events {} is no folder", folder.display())]
    NoFolder {
        /// What is there.
        folder: PathBuf,
    },
    /// It is neither root's nor this user's.
    #[error("the folder of events {} belongs to user {owner}, and not to root or user {user}: what is in it is not run", folder.display())]
    Foreign {
        /// The folder.
        folder: PathBuf,
        /// Whose it is.
        owner: u32,
        /// Who would run what is in it.
        user: u32,
    },
    /// Others may write in it.
    #[error("others may write in the folder of events {0}: its mode is {mode:04o}, and what is in it is not run; `chmod go-w {0}`", folder.display())]
    Open {
        /// The folder.
        folder: PathBuf,
        /// Its mode.
        mode: u32,
    },
}

/// How zedlets are run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Terms {
    /// Where they are.
    pub folder: PathBuf,
    /// How long each may take.
    pub limit: Duration,
    /// How many run at once; 1 at least.
    pub jobs: usize,
    /// Events that may wait.
    pub queue: usize,
    /// The daemon's folder, which they are told, so that commands of theirs ask it.
    pub run_dir: Option<PathBuf>,
}

impl Terms {
    /// Those of a folder, as many and as long as usual.
    pub fn of(folder: &Path) -> Self {
        Self { folder: folder.to_owned(), limit: LIMIT, jobs: JOBS, queue: QUEUE, run_dir: None }
    }
}

/// What runs the zedlets of a folder.
pub(crate) struct Zedlets {
    terms: Terms,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    queue: VecDeque<Event>,
    /// Events that found no room since that was said.
    dropped: u64,
    /// Whether the zedlets of an event are being begun.
    beginning: bool,
    running: usize,
    /// What devices report is asked for.
    gathering: bool,
    /// The end has come, and the last reports are asked for.
    stopping: bool,
    /// No event is taken any more.
    ending: bool,
    /// Nothing is begun any more.
    over: bool,
    /// Closed when everything that runs is to be killed.
    alarm: Option<PipeWriter>,
}

impl Zedlets {
    /// Begins to run what is in a folder.
    ///
    /// # Errors
    /// As the folder is not fit for it.
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

    /// Has the zedlets of an event run, if there is room; what is not is counted.
    pub(crate) fn put(&self, event: &Event) {
        let mut state = self.state.lock();
        if state.ending || state.queue.len() >= self.terms.queue {
            state.dropped += 1;
            return;
        }
        state.queue.push_back(event.clone());
        self.changed.notify_all();
    }

    /// Has this enter what is to be asked for, again and again until the end, and once more then.
    ///
    /// # Errors
    /// As no thread can be started.
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

    /// Takes no event any more, and waits for a moment until those that it has are told; then kills what runs still.
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
        state: &mut parking_lot::MutexGuard<'_, State>,
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

    /// The next event, and how many had no room before it; `None` at the end.
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

    /// Waits for a place for one more zedlet; whether it is still to be begun.
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

    /// Runs one on the place that was taken for it.
    fn begin(self: &Arc<Self>, job: job::Job) {
        let own = Arc::clone(self);
        let name = job.path.clone();
        // Its process is there when this returns: the next one's comes after it.
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
