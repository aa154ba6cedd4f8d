//! A socket, its engine, and what joins them.
//!
//! # Theory
//! Wake-ups of threads dominate the cost of small calls. So the thread of a socket receives a batch
//! of datagrams, lets the engine take them in, answers the calls that can be answered from memory
//! right there, and sends everything that results at once. Only calls that may block are queued.
//! The same thread runs them next, unless they do block: then another one receives meanwhile (the
//! pool of the endpoint).
//!
//! The engine is behind a lock. A worker that has something to send takes the lock, lets the engine
//! make the packets, and sends them itself: it wakes no other thread for that.
//!
//! # Locks
//! No service runs, and nothing is sent, while an engine is locked. A thread locks one engine at a
//! time.
//!
//! # Connections and sockets
//! Several sockets share a port, and the kernel chooses one by the peer's address. So the packets
//! of a connection arrive at one socket. There are two exceptions: replies to calls of our own, and
//! clients that changed their address. Their thread passes the packets to the engine that knows
//! the connection.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::net::{SocketAddrV4, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use observe::lock::{Condvar, Mutex, MutexGuard};
use rustix::event::{EventfdFlags, PollFd, PollFlags};

use crate::block::Slice;
use crate::code;
use crate::engine::{Arrived, CallId, Counts, Engine, Event, Info, Limiter, Time};
use crate::net::{Inbox, Outbox, WAIT};
use crate::packet::{Flags, HEADER, Header, Kind};
use crate::stats::Stats;
use crate::{Error, Result};

/// How long the thread lets packets and acknowledgements of large calls gather.
///
/// It more than halves the CPU time of reads by OpenAFS's clients, whose window is 32 packets
/// (`scripts/rx-judge.sh`). A client that decrypts is slower, so its acknowledgements need more
/// time.
const GATHER: std::ops::RangeInclusive<u64> = 50..=500;
/// The range of datagrams to aim for in one wake-up, for each large call. Fewer: wait longer. More:
/// wait less. An OpenAFS client sends 16 for each window: with all of them, it would have to wait.
const GATHERED: std::ops::RangeInclusive<usize> = 5..=12;
/// Large calls that count for that. More fill a batch.
const FLOWS: usize = 4;

/// Calls that are started at a time: their replies count in the shares before the next ones start.
const STARTS: usize = 16;
/// Questions of `rxdebug` that a host may ask in a second, and at once.
const QUESTIONS: (u64, u64) = (500, 2_000);

/// A request, as far as it has arrived.
#[derive(Debug)]
pub struct Request {
    /// Who calls, and what.
    pub info: Info,
    /// The bytes of the request.
    pub body: Vec<u8>,
    /// Whether these are all.
    pub complete: bool,
}

/// The answer to a request that needs no thread of its own.
#[derive(Debug)]
pub enum Reply {
    /// Bytes, in parts that are not copied.
    Parts(Vec<Slice>),
    /// A code that ends the call.
    Abort(i32),
}

/// What became of a call for a thread.
pub(crate) enum Queued {
    /// Another thread was woken for it.
    Elsewhere,
    /// This thread should look for it.
    Here,
    /// There are too many.
    Refused,
}

/// What serves requests.
pub(crate) trait Handler: Send + Sync {
    /// Answers a complete request at once, or not.
    fn quick(&self, request: &Request) -> Option<Reply>;

    /// Has a thread serve a call. `lazy`: this thread may look for it itself.
    fn queue(&self, shard: &Arc<Shard>, id: CallId, request: Request, lazy: bool) -> Queued;

    /// This thread is about to wait for a peer. Another one must receive.
    fn waits(&self);

    /// Answers a packet that belongs to no connection.
    fn question(&self, header: &Header, body: &[u8]) -> Option<Vec<u8>>;
}

/// Where a thread waits for its call.
#[derive(Debug, Default)]
pub(crate) struct Waiter {
    changed: Condvar,
    /// The code that the call failed with, and whether it failed.
    code: AtomicI32,
    failed: AtomicBool,
}

impl Waiter {
    /// The code that the call failed with.
    pub(crate) fn failed(&self) -> Option<i32> {
        self.failed.load(Ordering::Acquire).then(|| self.code.load(Ordering::Relaxed))
    }

    fn fail(&self, code: i32) {
        self.code.store(code, Ordering::Relaxed);
        self.failed.store(true, Ordering::Release);
    }
}

/// What the lock of a shard protects.
pub(crate) struct State {
    pub(crate) engine: Engine,
    waiters: HashMap<CallId, Arc<Waiter>>,
    /// What [`Stats`] has already.
    published: Counts,
}

/// A socket with its engine.
pub(crate) struct Shard {
    state: Mutex<State>,
    socket: UdpSocket,
    wake: OwnedFd,
    /// When the thread wakes up by itself, in the time of the engine.
    sleeps_until: AtomicU64,
    stopped: AtomicBool,
    /// Large calls that are under way.
    streaming: AtomicUsize,
    begun: Instant,
    stats: Arc<Stats>,
    handler: OnceLock<Arc<dyn Handler>>,
    /// All shards of the program, in their order.
    all: OnceLock<Vec<Weak<Shard>>>,
    index: usize,
    /// A channel of some connection became free.
    free: Condvar,
}

impl Shard {
    pub(crate) fn new(
        socket: UdpSocket,
        engine: Engine,
        index: usize,
        begun: Instant,
        stats: Arc<Stats>,
    ) -> Result<Arc<Shard>> {
        let wake = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|error| Error::Socket { source: error.into() })?;
        Ok(Arc::new(Shard {
            state: Mutex::new(State { engine, waiters: HashMap::new(), published: Counts::default() }),
            stats,
            socket,
            wake,
            sleeps_until: AtomicU64::new(u64::MAX),
            stopped: AtomicBool::new(false),
            streaming: AtomicUsize::new(0),
            begun,
            handler: OnceLock::new(),
            all: OnceLock::new(),
            index,
            free: Condvar::new(),
        }))
    }

    /// Tells the shard who serves its calls, and which shards there are.
    pub(crate) fn join(&self, handler: Arc<dyn Handler>, all: Vec<Weak<Shard>>) {
        // Each is set once, before the thread starts.
        let _ = self.handler.set(handler);
        let _ = self.all.set(all);
    }

    pub(crate) fn now(&self) -> Time {
        Time(self.begun.elapsed().as_micros() as u64 + 1)
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Has the thread of the shard end.
    pub(crate) fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
        self.wake_up();
    }

    fn wake_up(&self) {
        // A full counter wakes the thread, too.
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }

    /// Registers a thread that waits for a call.
    pub(crate) fn wait_for(state: &mut State, id: CallId) -> Arc<Waiter> {
        let waiter = Arc::new(Waiter::default());
        state.waiters.insert(id, Arc::clone(&waiter));
        waiter
    }

    /// Forgets the thread of a call.
    pub(crate) fn forget(state: &mut State, id: CallId) {
        state.waiters.remove(&id);
    }

    /// Waits for news of a call. Returns `false` if the deadline passed.
    pub(crate) fn wait(
        &self,
        state: &mut MutexGuard<'_, State>,
        waiter: &Waiter,
        deadline: Option<Instant>,
    ) -> bool {
        self.cover();
        match deadline {
            Some(deadline) => !waiter.changed.wait_until(state, deadline).timed_out(),
            None => {
                waiter.changed.wait(state);
                true
            }
        }
    }

    /// Waits for a free channel. Returns `false` if the deadline passed.
    pub(crate) fn wait_free(&self, state: &mut MutexGuard<'_, State>, deadline: Option<Instant>) -> bool {
        self.cover();
        match deadline {
            Some(deadline) => !self.free.wait_until(state, deadline).timed_out(),
            None => {
                self.free.wait(state);
                true
            }
        }
    }

    fn cover(&self) {
        if let Some(handler) = self.handler.get() {
            handler.waits();
        }
    }

    /// Ends all calls. Their peers get an abort, and threads that wait for them go on.
    pub(crate) fn shut_down(self: &Arc<Shard>) {
        let mut state = self.lock();
        state.engine.shut_down();
        self.settle(state, &mut Outbox::new());
        self.free.notify_all();
    }

    /// Takes what happened from the engine. Returns the next calls that start.
    fn events(&self, state: &mut State) -> Vec<(CallId, Request)> {
        let mut starts = Vec::new();
        while starts.len() < STARTS
            && let Some(event) = state.engine.event()
        {
            match event {
                Event::Start(id) => {
                    if let (Some(info), Ok(read)) = (state.engine.info(id), state.engine.take(id)) {
                        starts.push((id, Request { info, body: read.bytes, complete: read.done }));
                    } else {
                        // It ended in the batch that began it. The next call of its channel waits.
                        state.engine.finish(id);
                    }
                }
                Event::Readable(id) | Event::Writable(id) => {
                    if let Some(waiter) = state.waiters.get(&id) {
                        waiter.changed.notify_all();
                    }
                }
                Event::Failed(id, code) => {
                    // A thread that has not begun sees by itself that the call is gone.
                    if let Some(waiter) = state.waiters.get(&id) {
                        waiter.fail(code);
                        waiter.changed.notify_all();
                    }
                }
                Event::Free(_) => {
                    self.free.notify_all();
                }
            }
        }
        starts
    }

    /// Does what follows from a change of the engine: starts calls, and sends what leaves.
    pub(crate) fn settle<'a>(self: &'a Arc<Shard>, state: MutexGuard<'a, State>, outbox: &mut Outbox) {
        self.settle_as(state, outbox, false);
    }

    /// [`Shard::settle`]. `lazy`: this thread is about to look for calls. Returns whether it
    /// should.
    fn settle_as<'a>(
        self: &'a Arc<Shard>,
        mut state: MutexGuard<'a, State>,
        outbox: &mut Outbox,
        lazy: bool,
    ) -> bool {
        let mut queued = false;
        loop {
            let starts = self.events(&mut state);
            if starts.is_empty() {
                break;
            }
            drop(state);
            let (replies, here) = self.start(starts, lazy);
            queued |= here;
            state = self.state.lock();
            for (id, reply) in replies {
                match reply {
                    Reply::Parts(parts) => {
                        // If the call is gone, so is the interest in its reply.
                        let _ = state.engine.send(id, parts, true);
                        state.engine.finish(id);
                    }
                    Reply::Abort(code) => state.engine.abort(id, code),
                }
            }
        }
        state.engine.transmit(self.now(), &mut outbox.datagrams);
        self.streaming.store(state.engine.streaming(), Ordering::Relaxed);
        let state_now = &mut *state;
        self.stats.publish(state_now.engine.events_so_far(), &state_now.published);
        state_now.published = *state_now.engine.events_so_far();
        let late = state.engine.timer().is_some_and(|at| at.0 < self.sleeps_until.load(Ordering::Acquire));
        drop(state);
        self.send(outbox);
        if late {
            self.wake_up();
        }
        queued
    }

    fn send(&self, outbox: &mut Outbox) {
        outbox.send(&self.socket);
        let failures = std::mem::take(&mut outbox.failures);
        if failures > 0 {
            self.stats.failed(failures);
            self.state.lock().engine.count_failures(failures);
        }
    }

    /// Answers calls, or has threads do so. Returns whether this thread should look for calls.
    fn start(self: &Arc<Shard>, starts: Vec<(CallId, Request)>, lazy: bool) -> (Vec<(CallId, Reply)>, bool) {
        let Some(handler) = self.handler.get() else { return (Vec::new(), false) };
        let (mut replies, mut here) = (Vec::with_capacity(starts.len()), false);
        for (id, request) in starts {
            let reply = if request.complete { handler.quick(&request) } else { None };
            if let Some(reply) = reply {
                replies.push((id, reply));
                continue;
            }
            match handler.queue(self, id, request, lazy) {
                Queued::Elsewhere => {}
                Queued::Here => here = true,
                Queued::Refused => replies.push((id, Reply::Abort(code::RESTARTING))),
            }
        }
        (replies, here)
    }

    /// Whether no timer passes and no other thread wakes this one while it waits in the socket.
    ///
    /// A timer that another thread starts meanwhile may be late by that wait.
    fn may_wait_in_socket(&self) -> bool {
        let until = self.now().after(WAIT);
        !self.stopped.load(Ordering::Acquire)
            && self.state.lock().engine.timer().is_none_or(|timer| timer > until)
    }

    /// Waits for a datagram, a timer or another thread.
    fn sleep(&self) {
        let timer = {
            let state = self.state.lock();
            let timer = state.engine.timer();
            self.sleeps_until.store(timer.map_or(u64::MAX, |at| at.0), Ordering::Release);
            timer
        };
        let timeout = timer.map(|at| at.since(self.now()).max(Duration::from_micros(1)));
        let timeout = timeout.map(|time| rustix::event::Timespec {
            tv_sec: time.as_secs() as i64,
            tv_nsec: i64::from(time.subsec_nanos()),
        });
        let mut fds = [
            PollFd::from_borrowed_fd(self.socket.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(self.wake.as_fd(), PollFlags::IN),
        ];
        // A signal is as good as a timer.
        let _ = rustix::event::poll(&mut fds, timeout.as_ref());
        let woken = !fds[1].revents().is_empty();
        // While the thread is awake, it looks at timers itself.
        self.sleeps_until.store(0, Ordering::Release);
        if woken {
            let _ = rustix::io::read(&self.wake, &mut [0; 8]);
        }
    }

    /// Takes a batch in. Returns whether this thread should look for calls.
    fn take_in(self: &Arc<Shard>, inbox: &mut Inbox, outbox: &mut Outbox, questions: &mut Limiter) -> bool {
        let now = self.now();
        let (mut own, mut foreign) = (Vec::new(), Vec::new());
        let mut state = self.state.lock();
        state.engine.set_clock(now, unix());
        for (from, datagram) in inbox.datagrams() {
            let header = Header::parse(datagram).ok().filter(|_| can_answer(from));
            let Some((header, _)) = header else {
                state.engine.count_bogus();
                continue;
            };
            let body = &mut datagram[HEADER..];
            if matches!(header.kind, Kind::Debug | Kind::Version | Kind::Params)
                || !self.is_own(&state.engine, from, &header)
            {
                foreign.push((from, header, body.to_vec()));
            } else {
                own.push(Arrived { from, header, body });
            }
        }
        state.engine.receive_all(now, &mut own);
        state.engine.tick(now);
        let mut queued = self.settle_as(state, outbox, true);
        for (from, header, body) in foreign {
            if matches!(header.kind, Kind::Debug | Kind::Version | Kind::Params) {
                if questions.allows(now, *from.ip()) {
                    self.answer(from, &header, &body, outbox);
                } else {
                    self.stats.refused_question();
                }
            } else {
                queued |= self.pass_on(from, &header, body, outbox);
            }
        }
        queued
    }

    fn shards(&self) -> &[Weak<Shard>] {
        self.all.get().map_or(&[], Vec::as_slice)
    }

    /// Whether a packet is for this engine: it knows the connection, or no other one can.
    fn is_own(&self, engine: &Engine, from: SocketAddrV4, header: &Header) -> bool {
        self.shards().len() < 2 || engine.knows(from, header)
    }

    /// Passes a packet to the engine that knows its connection. If none does, it is for this one.
    /// Returns whether this thread should look for calls.
    fn pass_on(
        self: &Arc<Shard>,
        from: SocketAddrV4,
        header: &Header,
        mut body: Vec<u8>,
        outbox: &mut Outbox,
    ) -> bool {
        let others = self.shards().iter().filter_map(Weak::upgrade).filter(|shard| shard.index != self.index);
        let owner = others.into_iter().find(|shard| shard.state.lock().engine.knows(from, header));
        let owner = owner.as_ref().unwrap_or(self);
        let mut state = owner.state.lock();
        state.engine.receive(owner.now(), from, header, &mut body);
        owner.settle_as(state, outbox, true)
    }

    /// Answers `rxdebug`, if it is a client that asks.
    fn answer(&self, to: SocketAddrV4, header: &Header, body: &[u8], outbox: &mut Outbox) {
        if !header.flags.has(Flags::CLIENT) {
            return;
        }
        let Some(answer) = self.handler.get().and_then(|handler| handler.question(header, body)) else {
            return;
        };
        let header = Header { flags: Flags(header.flags.0 & !Flags::CLIENT.0), ..*header };
        let datagram = crate::engine::Datagram { to, head: header.encode(), body: Slice::from(answer) };
        outbox.datagrams.push(datagram);
        self.send(outbox);
    }
}

/// Where a thread receives and sends. It stays with the thread.
#[derive(Default)]
pub(crate) struct Boxes {
    /// Made when the thread first receives: it is large.
    inbox: Option<Inbox>,
    pub(crate) outbox: Outbox,
}

/// The right to receive from a shard. One thread has it at a time.
pub(crate) struct Receiver {
    shard: Arc<Shard>,
    /// More datagrams may be waiting.
    full: bool,
    /// Calls were run since the last batch.
    late: bool,
    /// Datagrams arrived at the last turn.
    busy: bool,
    questions: Limiter,
    /// Microseconds for which packets of large calls gather.
    gather: u64,
    /// The large calls of the last turn. With one, the next turn begins with gathering.
    flows: usize,
}

impl Receiver {
    /// The receiver of a shard, which has no other.
    pub(crate) fn new(shard: Arc<Shard>) -> Receiver {
        Receiver {
            shard,
            full: false,
            late: false,
            busy: false,
            questions: Limiter::new(RandomState::new().hash_one(0), QUESTIONS.0, QUESTIONS.1),
            gather: *GATHER.start(),
            flows: 0,
        }
    }

    /// Whether the shard was stopped, so that no more is to be received.
    pub(crate) fn is_stopped(&self) -> bool {
        self.shard.stopped.load(Ordering::Acquire)
    }

    /// Waits for a batch of packets, or for a timer, answers and sends. Returns whether this
    /// thread should look for calls.
    pub(crate) fn turn(&mut self, boxes: &mut Boxes) -> bool {
        let inbox = boxes.inbox.get_or_insert_default();
        let gathers = self.flows > 0 && !self.full && !self.late;
        if gathers {
            std::thread::sleep(Duration::from_micros(self.gather));
        }
        // After a full batch, there are more datagrams; after calls and after a while, there
        // probably are.
        let probably = self.full || self.late || gathers;
        // While datagrams arrive, the next one is not far.
        let wait = !probably && self.busy && self.shard.may_wait_in_socket();
        let mut received = match probably || wait {
            true => inbox.receive(&self.shard.socket, wait),
            false => Ok(0),
        };
        if matches!(received, Ok(0)) && !wait {
            self.shard.sleep();
            received = inbox.receive(&self.shard.socket, false);
        }
        self.busy = matches!(received, Ok(1..));
        let flows = self.flows.clamp(1, FLOWS);
        match received {
            Ok(count) if count < GATHERED.start() * flows => {
                self.gather = (self.gather * 5 / 4).min(*GATHER.end());
            }
            Ok(count) if count > GATHERED.end() * flows => {
                self.gather = (self.gather / 2).max(*GATHER.start());
            }
            Ok(_) => {}
            Err(error) => {
                tracing::error!(%error, "the Rx socket can't receive");
                std::thread::sleep(Duration::from_millis(100));
            }
        }
        self.full = inbox.was_full();
        let queued = self.shard.take_in(inbox, &mut boxes.outbox, &mut self.questions);
        self.flows = self.shard.streaming.load(Ordering::Relaxed);
        self.late = queued;
        queued
    }
}

/// Whether datagrams can be sent to an address: it is that of one host, and has a port.
fn can_answer(to: SocketAddrV4) -> bool {
    let ip = to.ip();
    to.port() != 0 && !ip.is_unspecified() && !ip.is_multicast() && !ip.is_broadcast()
}

/// The number of seconds since 1970.
pub(crate) fn unix() -> u32 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs() as u32)
}

#[cfg(test)]
mod tests {
    use super::can_answer;

    /// Goal: addresses that no host sends from are known: an answer to them would fail.
    #[test]
    fn impossible_sources_are_known() {
        for bad in ["10.0.0.1:0", "0.0.0.0:7001", "255.255.255.255:7001", "224.0.0.1:7001"] {
            assert!(!can_answer(bad.parse().unwrap()), "{bad}");
        }
        assert!(can_answer("10.0.0.1:7001".parse().unwrap()));
    }
}
