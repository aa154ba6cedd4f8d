//! The threads that serve mounts: a fixed number for any number of mounts.
//!
//! # Theory
//! A pool may have thousands of file systems, most of them idle. A thread and a buffer for each
//! mount would cost thousands of threads and gigabytes of address space. So the devices of all
//! mounts are on one `epoll` instance, and a few workers wait there.
//!
//! A device is armed for one wake-up at a time. The worker that wakes reads one request and arms
//! the device again; only then does it do the work. So another request of the same mount wakes
//! another worker, and no worker wakes in vain. Having answered, it reads on while there are
//! requests.
//!
//! Most of the cost of a request is sleeping and waking up. A program that does one thing after
//! another sends its next request a few microseconds after an answer. So if one thread has sent the
//! last requests of a mount, the worker does not sleep. It polls for the next request, for
//! `PATIENCE` at most.
//!
//! Meanwhile the device is disarmed, so that no other worker wakes for it. Only a few workers may
//! poll at a time, and none on a machine with one processor. A worker that polled in vain a few
//! times stops for a while. So polling costs little where it doesn't help. A mount is armed
//! whenever no worker reads from it.
//!
//! A worker may block on a device of the pool. So pools don't share workers: the daemon starts a
//! set for each.
//!
//! A worker that makes changes durable certainly waits, and the more wait at a time, the more one
//! log write serves. So a spare worker takes the place of each that does (`waits`), up to
//! `MAX_WAITING`. It ends when it has been idle for a while.
//!
//! # Life
//! A mount is *served* from `Workers::serve` until the kernel reports `ENODEV`: a process
//! unmounted or aborted it. Then it has *ended*: its device closes and its tree is released once
//! the last request in progress is answered.
//!
//! A mount can be *suspended* for a while. Then no request of it is in progress. New requests wait
//! in its device, where they keep no worker from other mounts.
//!
//! # Locks
//! The lock of the table of mounts is taken for reading once per request and for writing when a
//! mount begins or ends. It is not held during a request. A mount's gate is held for reading during
//! each of its requests.

mod counted;
mod refused;

use crate::abi::op;
use crate::dataset::Stale;
use crate::dispatch::{
    Behaviour, MAX_WRITE, Outcome, answer, leaves_wrong_pages, node_of, nodeid_of, takes_setxattr_ext,
};
use crate::error::Error;
use crate::message::{Answer, Request};
use crate::tree::{FileTree, Node};
use observe::lock::{Condvar, Mutex, RwLock};
use observe::work::{self, Place, Registered};
use poolhouse::spa::txg::work_for;
use refused::{Refused, drop_name, drop_pages};
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The event on `epoll` that has the workers return.
const STOP: u64 = 0;
const ARMED: EventFlags = EventFlags::IN.union(EventFlags::ONESHOT);
const DISARMED: EventFlags = EventFlags::ONESHOT;
/// How many requests of one mount a worker answers before it serves others.
const TURN: usize = 64;
/// How many requests in a row one thread must have sent before a worker polls for the next.
const STREAK: u32 = 16;
/// How long a worker polls.
const PATIENCE: Duration = Duration::from_micros(30);
/// How often in a row polling may be in vain. After that, `VAIN_STREAK` requests must come first.
const VAIN_MAX: u32 = 4;
const VAIN_STREAK: u32 = 256;
/// How many spare workers may take the place of waiting ones.
const MAX_WAITING: usize = 60;
/// How long an idle spare worker stays.
const LEISURE: Timespec = Timespec { tv_sec: 10, tv_nsec: 0 };

/// How the requests of one thread follow each other.
#[derive(Debug, Default)]
struct Pace {
    thread: u32,
    /// Requests of this thread since the last one of another. If negative: how many more must come
    /// before the count begins.
    streak: i64,
    vain: u32,
}

impl Pace {
    /// Counts a request. Returns whether its thread alone sends requests.
    fn note(&mut self, thread: u32) -> bool {
        // Requests of the kernel itself have thread 0, and interrupt no streak.
        if thread != self.thread && thread != 0 {
            (self.thread, self.streak) = (thread, self.streak.min(0));
        }
        self.streak = self.streak.saturating_add(1);
        self.streak >= i64::from(STREAK)
    }

    /// Notes whether a request came during a poll.
    fn waited(&mut self, came: bool) {
        self.vain = if came { 0 } else { self.vain + 1 };
        if self.vain >= VAIN_MAX {
            (self.vain, self.streak) = (0, -i64::from(VAIN_STREAK));
        }
    }
}

/// One mount, as its workers see it.
struct Session {
    device: OwnedFd,
    tree: Arc<dyn FileTree>,
    /// Its number for operations under way.
    place: Registered,
    behaviour: Behaviour,
    /// What the INIT handshake added to the behaviour.
    setxattr_ext: AtomicBool,
    pace: Mutex<Pace>,
    /// Held for reading during each request, and for writing while the mount is suspended.
    gate: RwLock<()>,
    /// The last field, so that it reports the end after the others are dropped.
    _end: End,
}

/// Reports the end of a mount when it is dropped.
struct End(Arc<Done>);

impl Drop for End {
    fn drop(&mut self) {
        *self.0.ended.lock() = true;
        self.0.changed.notify_all();
    }
}

/// Whether a mount has ended.
#[derive(Default)]
pub(crate) struct Done {
    ended: Mutex<bool>,
    changed: Condvar,
}

impl Done {
    pub(crate) fn is_over(&self) -> bool {
        *self.ended.lock()
    }

    /// Waits until the mount's tree is released.
    pub(crate) fn wait(&self) {
        let mut ended = self.ended.lock();
        while !*ended {
            self.changed.wait(&mut ended);
        }
    }
}

struct Shared {
    epoll: OwnedFd,
    stop: OwnedFd,
    sessions: RwLock<HashMap<u64, Arc<Session>>>,
    next_id: AtomicU64,
    refused: Refused,
    name: String,
    /// The most workers that may poll at a time, and how many do.
    hurry_max: usize,
    hurry: AtomicUsize,
    /// Workers that wait for durability, and the spare workers that took their places.
    waiting: AtomicUsize,
    spare: Mutex<Spare>,
}

/// Spare workers.
#[derive(Default)]
struct Spare {
    count: usize,
    threads: Vec<JoinHandle<()>>,
    closed: bool,
}

/// The buffers of a worker.
struct Desk {
    buf: Vec<u8>,
    out: Answer,
}

impl Desk {
    fn new() -> Self {
        Self { buf: vec![0; MAX_WRITE as usize + 4096], out: Answer::default() }
    }
}

/// One unit of a counter, until dropped.
struct Counted<'a>(&'a AtomicUsize);

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Polls for a request.
///
/// # Errors
/// `EAGAIN`: none came within [`PATIENCE`]. Besides, any errno of read(2).
fn read_soon(device: &OwnedFd, buf: &mut [u8]) -> Result<usize, Errno> {
    let begun = Instant::now();
    loop {
        match rustix::io::read(device, &mut *buf) {
            Err(Errno::AGAIN) if begun.elapsed() < PATIENCE => std::hint::spin_loop(),
            read => return read,
        }
    }
}

/// Whether the answer waits until changes are durable.
fn waits(opcode: u32) -> bool {
    matches!(opcode, op::FSYNC | op::FSYNCDIR | op::SYNCFS)
}

/// A set of threads that serve mounts.
///
/// Dropping it ends the threads and the service of all their mounts.
pub struct Workers {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    /// The thread that has the kernel drop cached data.
    teller: Option<JoinHandle<()>>,
}

impl Workers {
    /// Starts `count` threads, at least one. Their names begin with `name`.
    ///
    /// # Errors
    /// [`Error::Workers`]: the `epoll` instance, the eventfd or a thread can't be created.
    pub fn start(name: &str, count: usize) -> Result<Self, Error> {
        let failed =
            |operation| move |errno: Errno| Error::Workers { operation, source: std::io::Error::from(errno) };
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(failed("make an epoll instance"))?;
        let stop = eventfd(0, EventfdFlags::CLOEXEC).map_err(failed("make an eventfd"))?;
        epoll::add(&epoll, &stop, EventData::new_u64(STOP), EventFlags::IN)
            .map_err(failed("watch the eventfd"))?;
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let shared = Arc::new(Shared {
            epoll,
            stop,
            sessions: RwLock::default(),
            next_id: AtomicU64::new(STOP + 1),
            name: name.to_owned(),
            hurry_max: cores / 2,
            hurry: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            spare: Mutex::default(),
            refused: Refused::default(),
        });
        let mut workers = Self { shared, threads: Vec::new(), teller: None };
        let teller = Arc::clone(&workers.shared);
        let thread = std::thread::Builder::new()
            .name(format!("{name}-tell"))
            .spawn(move || teller.refused.tell(&teller))
            .map_err(|source| Error::Workers { operation: "start a thread", source })?;
        workers.teller = Some(thread);
        for number in 0..count.max(1) {
            let shared = Arc::clone(&workers.shared);
            let thread = std::thread::Builder::new()
                .name(format!("{name}-{number}"))
                .spawn(move || shared.work(None))
                .map_err(|source| Error::Workers { operation: "start a thread", source })?;
            workers.threads.push(thread);
        }
        Ok(workers)
    }

    /// Serves the mount behind `device`, which must be non-blocking, until it ends.
    ///
    /// # Errors
    /// [`Error::Workers`]: the device can't be added to the `epoll` instance.
    pub(crate) fn serve(
        &self,
        device: OwnedFd,
        tree: Arc<dyn FileTree>,
        behaviour: Behaviour,
    ) -> Result<(u64, Arc<Done>), Error> {
        let id = self.shared.next_id.fetch_add(1, Ordering::Relaxed);
        let done = Arc::new(Done::default());
        let session = Arc::new_cyclic(|this: &Weak<Session>| Session {
            device,
            tree,
            place: work::register(this.clone()),
            behaviour,
            setxattr_ext: AtomicBool::new(false),
            pace: Mutex::default(),
            gate: RwLock::default(),
            _end: End(Arc::clone(&done)),
        });
        // The mount must be in the table before it can wake a worker.
        self.shared.sessions.write().insert(id, Arc::clone(&session));
        if let Err(errno) = epoll::add(&self.shared.epoll, &session.device, EventData::new_u64(id), ARMED) {
            self.shared.sessions.write().remove(&id);
            return Err(Error::Workers { operation: "watch a mount", source: errno.into() });
        }
        Ok((id, done))
    }

    /// Runs `work` while no request of a mount is in progress.
    pub(crate) fn suspended<R>(&self, id: u64, work: impl FnOnce() -> R) -> R {
        let Some(session) = self.shared.sessions.read().get(&id).cloned() else { return work() };
        let closed = session.gate.write();
        let done = work();
        drop(closed);
        self.shared.watch(id, &session, ARMED);
        done
    }

    /// Has the kernel drop cached data of a mount that are no longer true.
    ///
    /// This waits for requests of the mount, so no request may wait for the caller.
    pub(crate) fn tell(&self, id: u64, stale: &[Stale]) {
        let _telling = self.shared.refused.telling();
        let Some(session) = self.shared.sessions.read().get(&id).cloned() else { return };
        let nodeid = |node| nodeid_of(&*session.tree, node);
        for one in stale {
            let told = match one {
                Stale::File(node) => session.notify(&drop_pages(nodeid(*node))),
                Stale::Name(dir, name) => session.notify(&drop_name(nodeid(*dir), name)),
            };
            if let Err(errno) = told {
                tracing::warn!(id, ?one, %errno, "the kernel keeps what is no longer so");
            }
        }
    }

    /// Has the kernel drop all that it has cached of a file. Returns whether the kernel knew the
    /// file.
    ///
    /// This waits for requests of the mount, as [`Workers::tell`] does.
    pub(crate) fn drop_file(&self, id: u64, node: Node) -> bool {
        let _telling = self.shared.refused.telling();
        let Some(session) = self.shared.sessions.read().get(&id).cloned() else { return false };
        let told = rustix::io::write(&session.device, &drop_pages(nodeid_of(&*session.tree, node)));
        // If another error hides that, the kernel may know the file.
        !matches!(told, Err(Errno::NOENT | Errno::NODEV))
    }

    /// Ends the service of a mount.
    ///
    /// Its device closes once the requests in progress are answered. Processes that still use the
    /// mount get `ENOTCONN`.
    pub(crate) fn abandon(&self, id: u64) {
        let _quiet = self.shared.refused.quiet();
        self.shared.end(id);
    }

    /// Whether the kernel has the file system mounted nowhere any more.
    pub(crate) fn is_gone(&self, id: u64) -> bool {
        let Some(session) = self.shared.sessions.read().get(&id).cloned() else { return true };
        let mut device = [PollFd::new(&session.device, PollFlags::empty())];
        // A poll without a timeout asks the kernel and does not wait.
        match poll(&mut device, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })) {
            Ok(_) => device[0].revents().intersects(PollFlags::ERR | PollFlags::HUP | PollFlags::NVAL),
            Err(_) => false,
        }
    }

    /// Calls `work` with the device of a mount. `None` if the mount is over.
    pub(crate) fn with_device<R>(&self, id: u64, work: impl FnOnce(&OwnedFd) -> R) -> Option<R> {
        let session = self.shared.sessions.read().get(&id).cloned()?;
        Some(work(&session.device))
    }

    /// Number of mounts that are served.
    pub fn mounts(&self) -> usize {
        self.shared.sessions.read().len()
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.shared.refused.stop();
        // This thread comes first, since the others serve the requests for which it waits.
        if self.teller.take().is_some_and(|teller| teller.join().is_err()) {
            tracing::error!("the thread that tells the kernel what to drop panicked");
        }
        // The counter of an eventfd takes 1 unless it is nearly full, and this is the only write.
        let written = rustix::io::write(&self.shared.stop, &1_u64.to_ne_bytes());
        assert!(written.is_ok(), "an eventfd takes a 1");
        let spare = {
            let mut spare = self.shared.spare.lock();
            spare.closed = true;
            std::mem::take(&mut spare.threads)
        };
        for thread in self.threads.drain(..).chain(spare) {
            if thread.join().is_err() {
                tracing::error!("a FUSE worker panicked");
            }
        }
    }
}

impl Shared {
    /// Serves until the set is dropped, or until it was idle for `leisure`.
    fn work(self: &Arc<Self>, leisure: Option<&Timespec>) {
        let mut desk = Desk::new();
        loop {
            let mut events = [epoll::Event { flags: EventFlags::empty(), data: EventData::new_u64(STOP) }];
            match epoll::wait(&self.epoll, &mut events, leisure) {
                Ok(0) if leisure.is_some() => return,
                Ok(0) | Err(Errno::INTR) => continue,
                Ok(_) => {}
                Err(errno) => {
                    tracing::error!(%errno, "a FUSE worker can't wait for requests");
                    return;
                }
            }
            let id = events[0].data.u64();
            if id == STOP {
                return;
            }
            // If it is missing, it ended while this wake-up was on its way.
            let Some(session) = self.sessions.read().get(&id).cloned() else { continue };
            self.turn(id, &session, &mut desk);
        }
    }

    /// Answers requests of a mount until there are none.
    ///
    /// The device is disarmed at the start and armed at the end.
    fn turn(self: &Arc<Self>, id: u64, session: &Session, desk: &mut Desk) {
        let mut armed = false;
        let mut hurry = None;
        for _ in 0..TURN {
            // The thread that suspended the mount arms the device when it is done.
            let Some(_open) = session.gate.try_read() else { return };
            let read = match hurry.take() {
                None => rustix::io::read(&session.device, &mut *desk.buf),
                Some(_hurry) => {
                    let read = read_soon(&session.device, &mut desk.buf);
                    session.pace.lock().waited(read != Err(Errno::AGAIN));
                    read
                }
            };
            if read == Err(Errno::NODEV) {
                self.end(id);
                return;
            }
            if !armed {
                self.watch(id, session, ARMED);
                armed = true;
            }
            let len = match read {
                Ok(len) => len,
                // There is none, or the caller was interrupted before the request was read.
                Err(Errno::AGAIN | Errno::NOENT | Errno::INTR) => return,
                Err(errno) => {
                    tracing::warn!(id, %errno, "reading a FUSE request failed");
                    return;
                }
            };
            let Some(request) = Request::parse(&desk.buf[..len]) else {
                tracing::error!(id, len, "the kernel sent no whole request");
                return;
            };
            let began = Instant::now();
            let alone = session.pace.lock().note(request.head.pid);
            let wrong_pages = {
                let _place = waits(request.head.opcode).then(|| self.leave_place());
                work_for(request.head.pid);
                session.answer(&request, began, &mut desk.out)
            };
            if wrong_pages {
                self.refused.add(id, request.head.nodeid);
            }
            hurry = if alone { self.hurry() } else { None };
            if hurry.is_some() {
                self.watch(id, session, DISARMED);
                armed = false;
            }
        }
        if !armed {
            self.watch(id, session, ARMED);
        }
    }

    /// Permission to poll, if not too many workers do.
    fn hurry(&self) -> Option<Counted<'_>> {
        let more = |n: usize| (n < self.hurry_max).then(|| n + 1);
        let taken = self.hurry.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        taken.is_ok().then(|| Counted(&self.hurry))
    }

    /// Counts this worker as waiting for durability, and starts a spare worker if one is needed.
    fn leave_place(self: &Arc<Self>) -> Counted<'_> {
        let waiting = self.waiting.fetch_add(1, Ordering::Relaxed) + 1;
        let place = Counted(&self.waiting);
        let mut spare = self.spare.lock();
        if waiting <= spare.count || spare.count >= MAX_WAITING || spare.closed {
            return place;
        }
        spare.threads.retain(|thread| !thread.is_finished());
        let shared = Arc::clone(self);
        let started = std::thread::Builder::new().name(format!("{}-spare", self.name)).spawn(move || {
            shared.work(Some(&LEISURE));
            shared.spare.lock().count -= 1;
        });
        match started {
            Ok(thread) => {
                spare.threads.push(thread);
                spare.count += 1;
            }
            Err(error) => tracing::debug!(%error, "no other FUSE worker could be started"),
        }
        place
    }

    fn watch(&self, id: u64, session: &Session, flags: EventFlags) {
        if let Err(errno) = epoll::modify(&self.epoll, &session.device, EventData::new_u64(id), flags) {
            // It was removed already: another thread ended the mount.
            tracing::debug!(id, %errno, "a mount is no longer watched");
        }
    }
    fn end(&self, id: u64) {
        if let Some(session) = self.sessions.write().remove(&id)
            && let Err(errno) = epoll::delete(&self.epoll, &session.device)
        {
            tracing::debug!(id, %errno, "a mount was not watched");
        }
    }
}

impl Place for Session {
    fn dataset(&self, node: u64) -> Option<(String, Option<u64>)> {
        self.tree.dataset_of(node_of(&*self.tree, node))
    }

    fn path(&self, node: u64) -> Option<Vec<u8>> {
        // As for a request: the files are not exchanged meanwhile.
        let _open = self.gate.try_read()?;
        self.tree.path_of(node_of(&*self.tree, node))
    }
}

impl Session {
    /// Sends a notification to the kernel.
    ///
    /// If the kernel doesn't know the file, or the mount is gone, nothing is left to do.
    ///
    /// # Errors
    /// Any other errno of write(2).
    fn notify(&self, message: &[u8]) -> Result<(), Errno> {
        match rustix::io::write(&self.device, message) {
            Ok(_) | Err(Errno::NOENT | Errno::NODEV) => Ok(()),
            Err(errno) => Err(errno),
        }
    }

    /// Answers a request that came at `began`. Returns whether the kernel now has pages that differ
    /// from the file.
    fn answer(&self, request: &Request<'_>, began: Instant, out: &mut Answer) -> bool {
        out.clear();
        if request.head.opcode == op::INIT {
            self.setxattr_ext.store(takes_setxattr_ext(request), Ordering::Release);
        }
        let setxattr_ext = self.setxattr_ext.load(Ordering::Acquire);
        let behaviour = Behaviour { setxattr_ext, ..self.behaviour };
        let _running = counted::begin(&*self.tree, self.place.number(), request, began);
        let Outcome::Send(result) = answer(&*self.tree, behaviour, request, out) else { return false };
        counted::count(&*self.tree, request, began, result, out);
        let bytes = out.finish(request.head.unique, result);
        match rustix::io::write(&self.device, bytes) {
            Ok(_) => {}
            // The caller was killed meanwhile, or the mount is gone.
            Err(Errno::NOENT | Errno::NODEV) => {}
            Err(errno) => {
                tracing::warn!(opcode = request.head.opcode, %errno, "the kernel refused an answer");
            }
        }
        leaves_wrong_pages(request, result)
    }
}

#[cfg(test)]
mod tests;
