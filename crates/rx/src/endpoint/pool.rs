//! Threads that receive, and run the calls that may block.
//!
//! # Theory
//! Most calls that may block do not: what they need is in memory. To wake another thread for such a
//! call costs more than the call. So the thread that receives from a socket runs the calls that
//! arrived itself. Meanwhile no thread has its [`Receiver`], which lies where any thread of the
//! pool can take it.
//!
//! A thread must not be missed while its call does block, or takes long. Three things see to that:
//!
//! * For calls that take long in any case, another thread is woken at once.
//! * A thread that is about to wait for its client, or for a server, first wakes another one
//!   ([`Pool::cover`]).
//! * The watcher looks at the pool every [`TICK`] while a receiver is free or calls wait, or more
//!   rarely if nothing stalls. If one of the receivers was free all the time, or no call began, it
//!   wakes a thread, and twice as many the next time.
//!
//! After such a stall, threads are woken for each call for a while ([`EAGER`]).
//!
//! Which call is next is the business of [`Lines`].
//!
//! # Life
//! Some threads are always there. Others start when a call would wait, and end when they had
//! nothing to do for a while. There are always enough for the receivers, even if each call blocks.
//! [`Pool::stop`] drops the calls that wait.
//!
//! # Locks
//! A thread may hold the lock of a shard when it takes that of the pool; never the reverse.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use observe::lock::{Condvar, Mutex, MutexGuard};

use super::Service;
use super::lines::{Line, Lines};
use crate::call::Call;
use crate::engine::CallId;
use crate::net::Outbox;
use crate::shard::{Boxes, Queued, Receiver, Request, Shard};

/// After which time without work an extra thread ends.
const IDLE: Duration = Duration::from_secs(30);
/// How long [`Pool::stop`] waits for threads, whose calls have failed.
const GRACE: Duration = Duration::from_secs(5);
/// How often the watcher looks at the pool. A call that blocks delays others for twice as long.
const TICK: Duration = Duration::from_micros(400);
/// How rarely it looks when nothing has stalled for a while. A look costs as much as a small call.
const QUIET_TICK: Duration = Duration::from_micros(1_600);
/// Ticks without a free receiver and without calls, after which the watcher sleeps.
const CALM: u32 = 2;
/// Ticks for which calls wake threads after a stall, and the most of them after many.
const EAGER: (u32, u32) = (4, 64);

/// A call for a worker.
pub(super) struct Job {
    pub(super) shard: Arc<Shard>,
    pub(super) id: CallId,
    pub(super) request: Request,
    pub(super) service: Arc<dyn Service>,
}

impl Job {
    fn line(&self) -> Line {
        (*self.request.info.peer.ip(), self.request.info.proved)
    }

    fn run(self, outbox: &mut Outbox) {
        let Job { shard, id, request, service } = self;
        let mut state = shard.lock();
        if state.engine.info(id).is_none() {
            // The client has given the call up. The channel's next call may start.
            state.engine.finish(id);
            shard.settle(state, outbox);
            return;
        }
        let arrived = (request.body, request.complete);
        let mut call = Call::new(&shard, &mut state, id, request.info, arrived, std::mem::take(outbox));
        drop(state);
        *outbox = match service.run(&mut call) {
            Ok(()) => call.finish(true),
            Err(code) => call.fail(code),
        };
    }
}

/// What no thread has. What is free for the longest time is taken first.
pub(super) struct Free<R> {
    /// The things, each with the number of looks before it was put here.
    things: VecDeque<(u64, R)>,
    looks: u64,
}

impl<R> Default for Free<R> {
    fn default() -> Free<R> {
        Free { things: VecDeque::new(), looks: 0 }
    }
}

impl<R> Free<R> {
    pub(super) fn put(&mut self, thing: R) {
        self.things.push_back((self.looks, thing));
    }

    pub(super) fn take(&mut self) -> Option<R> {
        self.things.pop_front().map(|(_, thing)| thing)
    }

    fn is_empty(&self) -> bool {
        self.things.is_empty()
    }

    /// Whether one of the things was free all the time since the last look.
    pub(super) fn look(&mut self) -> bool {
        let was_free = self.things.front().is_some_and(|(looks, _)| *looks < self.looks);
        self.looks += 1;
        was_free
    }
}

/// What the lock of the pool protects.
struct State {
    lines: Lines<Job>,
    /// Receivers that no thread has.
    free: Free<Receiver>,
    /// The threads that were started, and those that run.
    threads: usize,
    running: Vec<ThreadId>,
    /// Calls that run.
    calls: usize,
    idle: usize,
    /// Calls that ever waited.
    waited: u32,
    /// Calls that ever began.
    begun: u64,
    /// Ticks for which each call wakes a thread.
    eager: u32,
    /// The watcher does not sleep.
    watched: bool,
    /// The last thread that was to start could not.
    failing: bool,
    /// No more calls begin.
    stopped: bool,
    /// No more receivers either.
    ended: bool,
}

impl State {
    /// This thread ends.
    fn end(&mut self) {
        self.threads -= 1;
        self.running.retain(|id| *id != thread::current().id());
    }

    /// Whether a call may begin. More than the limit would leave no thread that receives.
    fn may_begin(&self) -> bool {
        !self.stopped && self.calls < self.lines.limit && self.lines.has_turns()
    }

    /// Whether there is something to do for a thread.
    fn has_work(&self) -> bool {
        !self.free.is_empty() || self.may_begin()
    }
}

/// The threads.
pub(super) struct Pool {
    state: Mutex<State>,
    /// There is a call, a free receiver, or the end.
    work: Condvar,
    /// The watcher has work, or ends.
    watch: Condvar,
    /// A thread or a call has ended.
    ended: Condvar,
    /// Threads that are always there.
    least: usize,
    /// Threads at most.
    most: usize,
}

/// A call that runs. Its end counts, however it comes.
struct Running<'a> {
    pool: &'a Pool,
    line: Line,
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let mut state = self.pool.state.lock();
        state.lines.done(self.line);
        state.calls -= 1;
        if state.stopped {
            self.pool.ended.notify_all();
        }
        if thread::panicking() {
            state.end();
        }
    }
}

impl Pool {
    /// So many threads for calls that are always there, so many at most, and so many calls that
    /// may wait. There are as many more threads as there will be receivers.
    ///
    /// # Errors
    /// The system can't start a thread.
    pub(super) fn new(least: usize, limit: usize, waiting: usize, receivers: usize) -> io::Result<Arc<Pool>> {
        let least = least.max(1);
        let lines = Lines::new(limit.max(least), waiting);
        let pool = Arc::new(Pool {
            most: lines.limit + receivers,
            state: Mutex::new(State {
                lines,
                free: Free::default(),
                threads: 0,
                running: Vec::new(),
                calls: 0,
                idle: 0,
                waited: 0,
                begun: 0,
                eager: 0,
                watched: true,
                failing: false,
                stopped: false,
                ended: false,
            }),
            work: Condvar::new(),
            watch: Condvar::new(),
            ended: Condvar::new(),
            least: least + receivers,
        });
        let started = pool.start_all();
        if started.is_err() {
            pool.stop(&[]);
        }
        started.map(|()| pool)
    }

    fn start_all(self: &Arc<Pool>) -> io::Result<()> {
        let watcher = Arc::clone(self);
        let mut state = self.state.lock();
        thread::Builder::new().name("rx-watcher".into()).spawn(move || watcher.watch_all())?;
        state.threads += 1;
        (0..self.least).try_for_each(|_| self.add(&mut state))
    }

    /// Starts a thread.
    fn add(self: &Arc<Pool>, state: &mut State) -> io::Result<()> {
        let (pool, thread) = (Arc::clone(self), thread::Builder::new().name("rx-worker".into()));
        thread.spawn(move || pool.work())?;
        state.threads += 1;
        Ok(())
    }

    /// Has threads receive.
    pub(super) fn receive(self: &Arc<Pool>, receivers: Vec<Receiver>) {
        let mut state = self.state.lock();
        receivers.into_iter().for_each(|receiver| state.free.put(receiver));
        self.work.notify_all();
        self.watch(&mut state);
    }

    /// Has a thread look for work: an idle one, or a new one. Returns `false` if none can start.
    fn wake(self: &Arc<Pool>, state: &mut State) -> bool {
        if state.idle > 0 {
            self.work.notify_one();
            return true;
        }
        if state.running.len() >= self.most || state.threads > self.most {
            return true;
        }
        let added = self.add(state);
        // Said once: the watcher tries again soon.
        if let Err(error) = &added
            && !state.failing
        {
            tracing::error!(%error, "a worker for Rx calls can't start");
        }
        state.failing = added.is_err();
        !state.failing
    }

    /// Has the watcher look at the pool from now on.
    fn watch(&self, state: &mut State) {
        if !state.watched {
            state.watched = true;
            self.watch.notify_one();
        }
    }

    fn work(self: &Arc<Pool>) {
        let mut boxes = Boxes::default();
        let mut state = self.state.lock();
        state.running.push(thread::current().id());
        loop {
            let job = if state.may_begin() { state.lines.pop() } else { None };
            if let Some((line, job)) = job {
                state.begun += 1;
                state.calls += 1;
                drop(state);
                let running = Running { pool: self, line };
                job.run(&mut boxes.outbox);
                drop(running);
                state = self.state.lock();
            } else if let Some(receiver) = state.free.take() {
                state = self.receive_until_calls(state, receiver, &mut boxes);
            } else if state.stopped {
                break;
            } else {
                state.idle += 1;
                let late = self.work.wait_for(&mut state, IDLE).timed_out();
                state.idle -= 1;
                // The watcher counts as a thread.
                if late && state.threads > self.least + 1 && !state.has_work() {
                    break;
                }
            }
        }
        state.end();
        self.ended.notify_all();
    }

    /// Receives until calls wait for a thread, or no more is to be received.
    fn receive_until_calls<'a>(
        &'a self,
        state: MutexGuard<'a, State>,
        mut receiver: Receiver,
        boxes: &mut Boxes,
    ) -> MutexGuard<'a, State> {
        drop(state);
        loop {
            if receiver.is_stopped() {
                drop(receiver);
                return self.state.lock();
            }
            if !receiver.turn(boxes) {
                continue;
            }
            let mut state = self.state.lock();
            if state.may_begin() {
                state.free.put(receiver);
                self.watch(&mut state);
                return state;
            }
        }
    }

    /// Gives a call to a thread. `lazy`: the caller is a thread of the pool and may look for it.
    pub(super) fn submit(self: &Arc<Pool>, job: Job, lazy: bool) -> Queued {
        let mut state = self.state.lock();
        let line = job.line();
        if state.stopped || !state.lines.may_wait(&line) {
            return Queued::Refused;
        }
        state.lines.push(line, job);
        state.waited = state.waited.wrapping_add(u32::from(state.idle == 0));
        self.watch(&mut state);
        // After a stall, other threads are woken for all calls.
        if lazy && state.eager == 0 {
            return Queued::Here;
        }
        self.wake(&mut state);
        Queued::Elsewhere
    }

    /// A thread is about to wait. If it could be the one that receives, another thread does.
    pub(super) fn cover(self: &Arc<Pool>) {
        let mut state = self.state.lock();
        if state.has_work() {
            self.wake(&mut state);
        }
    }

    /// The watcher: see the module.
    fn watch_all(self: &Arc<Pool>) {
        let (mut calm, mut threads, mut tick) = (0, 1, TICK);
        let (mut before, mut had_calls) = (0, false);
        loop {
            let mut state = self.state.lock();
            if state.ended {
                state.end();
                self.ended.notify_all();
                return;
            }
            let (has_calls, begun) = (state.may_begin(), state.begun - before);
            let deaf = state.free.look();
            let stuck = has_calls && had_calls && begun == 0;
            let slow = has_calls && state.lines.waiting() as u64 > 2 * begun;
            state.eager = state.eager.saturating_sub(1);
            if deaf || stuck {
                for _ in 0..threads {
                    if !self.wake(&mut state) {
                        break;
                    }
                }
                threads = (threads * 2).min(self.most);
                state.eager = (state.eager + EAGER.0).min(EAGER.1);
                tick = TICK;
            } else {
                threads = 1;
                tick = (tick + tick / 16).min(QUIET_TICK);
                if slow {
                    self.wake(&mut state);
                }
            }
            (before, had_calls) = (state.begun, has_calls);
            let is_calm = state.free.is_empty() && !has_calls && state.eager == 0;
            calm = if is_calm { calm + 1 } else { 0 };
            if calm > CALM {
                state.watched = false;
                while !state.watched && !state.ended {
                    self.watch.wait(&mut state);
                }
                calm = 0;
            }
            drop(state);
            thread::sleep(tick);
        }
    }

    /// Has the threads end after their calls, which should have failed, and waits for them a while.
    /// A thread that its service keeps for longer ends later. Receivers go on until the calls have
    /// ended.
    pub(super) fn stop(&self, shards: &[Arc<Shard>]) {
        let mut state = self.state.lock();
        state.stopped = true;
        let jobs = state.lines.clear();
        self.watch(&mut state);
        self.work.notify_all();
        // A service that drops its endpoint does so in one of the threads.
        let own = usize::from(state.running.contains(&thread::current().id()));
        let deadline = Instant::now() + GRACE;
        while state.calls > own && !self.ended.wait_until(&mut state, deadline).timed_out() {}
        state.ended = true;
        let free = std::mem::take(&mut state.free);
        self.watch.notify_all();
        self.work.notify_all();
        drop(state);
        shards.iter().for_each(|shard| shard.stop());
        drop((jobs, free));
        let mut state = self.state.lock();
        while state.threads > own && !self.ended.wait_until(&mut state, deadline).timed_out() {}
    }

    /// Calls that wait, threads that are idle, calls that ever waited.
    pub(super) fn numbers(&self) -> (u32, u32, u32) {
        let state = self.state.lock();
        (state.lines.waiting() as u32, state.idle as u32, state.waited)
    }
}
