//! The threads that serve mounts: a fixed number, shared by any number of mounts.
//!
//! # Theory
//! A thread and a buffer for each mount would cost thousands of threads and gigabytes of address space on a pool with
//! thousands of file systems, most of them idle. So the devices of all mounts hang on one `epoll` instance, and a few
//! workers wait there. A device is armed for one wake-up at a time: the worker that takes it reads one request, arms
//! it again, and only then does the work, so that another request of the same mount wakes another worker while nobody
//! is woken for nothing. Having answered, it reads on as long as there is something to read.
//!
//! What a request costs is mostly sleeping and waking up. A program that does one thing after another asks its next question a few microseconds after
//! it was answered. So where one thread has asked the last requests of a mount, the worker that answered waits for the next one without
//! sleeping, for [`PATIENCE`] at most, and disarms the device meanwhile, so that nobody else is woken for it. Few may do so at a time, none on a
//! machine with one processor, and who waited in vain a few times leaves it for a while. So it costs little where it doesn't help, and a mount is
//! armed whenever nobody reads from it.
//!
//! A worker may block on a device of the pool. Pools therefore don't share workers: the daemon starts a set for each. Whoever makes something
//! durable waits for certain, and the more wait at a time, the more one write of the log serves: so another worker takes the place of each that
//! does ([`waits`]), up to [`MAX_WAITING`]. It ends when it has had nothing to do for a while.
//!
//! # Life
//! A mount is *served* from [`Workers::serve`] until the kernel says that it is gone (`ENODEV`: unmounted by us, by
//! somebody's `umount`, or aborted). Then it has *ended*: its device closes and its tree is let go as soon as the last
//! request under way is answered.
//!
//! A mount can be *suspended* for a while: then nothing that its kernel asks is under way, and what it asks waits in its device, where it keeps no
//! worker from other mounts.
//!
//! # Locks
//! The table of mounts is read for each request and written when a mount begins or ends; it isn't held during a
//! request.

mod refused;

use crate::abi::op;
use crate::dataset::Stale;
use crate::dispatch::{
    Behaviour, MAX_WRITE, Outcome, answer, leaves_wrong_pages, nodeid_of, takes_setxattr_ext,
};
use crate::error::Error;
use crate::message::{Answer, Request};
use crate::tree::{Node, Tree};
use parking_lot::{Condvar, Mutex, RwLock};
use poolhouse::spa::txg::work_for;
use refused::{Refused, drop_name, drop_pages};
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The number on `epoll` that says stop.
const STOP: u64 = 0;
const ARMED: EventFlags = EventFlags::IN.union(EventFlags::ONESHOT);
const DISARMED: EventFlags = EventFlags::ONESHOT;
/// How many requests of one mount a worker answers before it looks for others.
const TURN: usize = 64;
/// How many requests in a row one thread must have asked for it to be waited for.
const STREAK: u32 = 16;
/// How long it is waited for without sleeping.
const PATIENCE: Duration = Duration::from_micros(30);
/// How often in a row that may be in vain, before that many requests have to be asked first.
const VAIN_MAX: u32 = 4;
const VAIN_STREAK: u32 = 256;
/// How many workers may take the place of others that wait for something to be durable.
const MAX_WAITING: usize = 60;
/// How long a worker that took another's place stays without anything to do.
const LEISURE: Timespec = Timespec { tv_sec: 10, tv_nsec: 0 };

/// How one thread's requests follow each other.
#[derive(Debug, Default)]
struct Pace {
    thread: u32,
    /// Requests of this thread since another's; below 0: so many more are wanted.
    streak: i64,
    vain: u32,
}

impl Pace {
    /// Notes a request, and says whether its thread alone asks.
    fn note(&mut self, thread: u32) -> bool {
        // Of what the kernel asks by itself it names nobody.
        if thread != self.thread && thread != 0 {
            (self.thread, self.streak) = (thread, self.streak.min(0));
        }
        self.streak = self.streak.saturating_add(1);
        self.streak >= i64::from(STREAK)
    }

    /// Notes whether the next request came while it was waited for.
    fn waited(&mut self, came: bool) {
        self.vain = if came { 0 } else { self.vain + 1 };
        if self.vain >= VAIN_MAX {
            (self.vain, self.streak) = (0, -i64::from(VAIN_STREAK));
        }
    }
}

/// One mount as its workers see it.
struct Session {
    device: OwnedFd,
    tree: Arc<dyn Tree>,
    behaviour: Behaviour,
    /// What the handshake added to that.
    setxattr_ext: AtomicBool,
    pace: Mutex<Pace>,
    /// Read for each request, and written while the mount is suspended.
    gate: RwLock<()>,
    /// Last, so that it tells when the others are gone.
    _end: End,
}

/// Tells that a mount has ended when it is dropped.
struct End(Arc<Done>);

impl Drop for End {
    fn drop(&mut self) {
        *self.0.ended.lock() = true;
        self.0.changed.notify_all();
    }
}

/// Tells when a mount has ended.
#[derive(Default)]
pub(crate) struct Done {
    ended: Mutex<bool>,
    changed: Condvar,
}

impl Done {
    pub(crate) fn is_over(&self) -> bool {
        *self.ended.lock()
    }

    /// Waits until the mount's tree is let go.
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
    /// Workers that may be waiting without sleeping, and are.
    hurry_max: usize,
    hurry: AtomicUsize,
    /// Workers that wait for something to be durable, and those that took their places.
    waiting: AtomicUsize,
    spare: Mutex<Spare>,
}

/// Workers that took others' places.
#[derive(Default)]
struct Spare {
    count: usize,
    threads: Vec<JoinHandle<()>>,
    closed: bool,
}

/// Where a worker reads and writes.
struct Desk {
    buf: Vec<u8>,
    out: Answer,
}

impl Desk {
    fn new() -> Self {
        Self { buf: vec![0; MAX_WRITE as usize + 4096], out: Answer::default() }
    }
}

/// One of those who are counted, until dropped.
struct Counted<'a>(&'a AtomicUsize);

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Reads a request that is about to come; `EAGAIN` if it doesn't.
fn read_soon(device: &OwnedFd, buf: &mut [u8]) -> Result<usize, Errno> {
    let begun = Instant::now();
    loop {
        match rustix::io::read(device, &mut *buf) {
            Err(Errno::AGAIN) if begun.elapsed() < PATIENCE => std::hint::spin_loop(),
            read => return read,
        }
    }
}

/// Whether answering means waiting until something is durable.
fn waits(opcode: u32) -> bool {
    matches!(opcode, op::FSYNC | op::FSYNCDIR | op::SYNCFS)
}

/// A set of threads that serve mounts. They end when this is dropped, with all mounts that they serve.
pub struct Workers {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    /// Tells the kernel what to drop.
    teller: Option<JoinHandle<()>>,
}

impl Workers {
    /// Starts `count` threads (at least one) with names that begin with `name`.
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

    /// Serves the mount behind `device`, which must not block, until it ends.
    pub(crate) fn serve(
        &self,
        device: OwnedFd,
        tree: Arc<dyn Tree>,
        behaviour: Behaviour,
    ) -> Result<(u64, Arc<Done>), Error> {
        let id = self.shared.next_id.fetch_add(1, Ordering::Relaxed);
        let done = Arc::new(Done::default());
        let session = Arc::new(Session {
            device,
            tree,
            behaviour,
            setxattr_ext: AtomicBool::new(false),
            pace: Mutex::default(),
            gate: RwLock::default(),
            _end: End(Arc::clone(&done)),
        });
        // In the table before it can wake a worker.
        self.shared.sessions.write().insert(id, Arc::clone(&session));
        if let Err(errno) = epoll::add(&self.shared.epoll, &session.device, EventData::new_u64(id), ARMED) {
            self.shared.sessions.write().remove(&id);
            return Err(Error::Workers { operation: "watch a mount", source: errno.into() });
        }
        Ok((id, done))
    }

    /// Does something while nothing that the kernel asks of a mount is under way.
    pub(crate) fn suspended<R>(&self, id: u64, work: impl FnOnce() -> R) -> R {
        let Some(session) = self.shared.sessions.read().get(&id).cloned() else { return work() };
        let closed = session.gate.write();
        let done = work();
        drop(closed);
        self.shared.watch(id, &session, ARMED);
        done
    }

    /// Has the kernel drop what it knows of a mount and is no longer so. Waits for requests of the mount, so that none may wait for it.
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

    /// Has the kernel drop what it knows of a file of a mount; whether it knew the file. As
    /// [`Workers::tell`], this waits for requests of the mount.
    pub(crate) fn drop_file(&self, id: u64, node: Node) -> bool {
        let _telling = self.shared.refused.telling();
        let Some(session) = self.shared.sessions.read().get(&id).cloned() else { return false };
        let told = rustix::io::write(&session.device, &drop_pages(nodeid_of(&*session.tree, node)));
        // Where that is not known, the kernel may have it.
        !matches!(told, Err(Errno::NOENT | Errno::NODEV))
    }

    /// Stops serving a mount: when the requests under way are answered the device closes, and whoever still uses the
    /// mount gets `ENOTCONN`.
    pub(crate) fn abandon(&self, id: u64) {
        let _quiet = self.shared.refused.quiet();
        self.shared.end(id);
    }

    /// Whether the kernel has no place left at which this is mounted.
    pub(crate) fn is_gone(&self, id: u64) -> bool {
        let Some(session) = self.shared.sessions.read().get(&id).cloned() else { return true };
        let mut device = [PollFd::new(&session.device, PollFlags::empty())];
        // The kernel is asked, and does not wait.
        match poll(&mut device, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })) {
            Ok(_) => device[0].revents().intersects(PollFlags::ERR | PollFlags::HUP | PollFlags::NVAL),
            Err(_) => false,
        }
    }

    /// Does something with the device of a mount that is served; `None` if it is over.
    pub(crate) fn with_device<R>(&self, id: u64, work: impl FnOnce(&OwnedFd) -> R) -> Option<R> {
        let session = self.shared.sessions.read().get(&id).cloned()?;
        Some(work(&session.device))
    }

    /// How many mounts are being served.
    pub fn mounts(&self) -> usize {
        self.shared.sessions.read().len()
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.shared.refused.stop();
        // First: the others serve what it waits for.
        if self.teller.take().is_some_and(|teller| teller.join().is_err()) {
            tracing::error!("the thread that tells the kernel what to drop panicked");
        }
        // Written once: an eventfd's counter is far from full.
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
    /// Serves until told to stop, or until there was nothing to do for `leisure`.
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
            // Gone: it ended while this wake-up was on its way.
            let Some(session) = self.sessions.read().get(&id).cloned() else { continue };
            self.turn(id, &session, &mut desk);
        }
    }

    /// Answers requests of a mount until there is none. The device isn't armed when this begins, and is when it ends.
    fn turn(self: &Arc<Self>, id: u64, session: &Session, desk: &mut Desk) {
        let mut armed = false;
        let mut hurry = None;
        for _ in 0..TURN {
            // Who suspended the mount arms it when he is done.
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
                // There is none; or the caller was interrupted before we got its request.
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
            let alone = session.pace.lock().note(request.head.pid);
            let wrong_pages = {
                let _place = waits(request.head.opcode).then(|| self.leave_place());
                work_for(request.head.pid);
                session.answer(&request, &mut desk.out)
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

    /// The right to wait without sleeping, if not too many have it.
    fn hurry(&self) -> Option<Counted<'_>> {
        let more = |n: usize| (n < self.hurry_max).then(|| n + 1);
        let taken = self.hurry.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        taken.is_ok().then(|| Counted(&self.hurry))
    }

    /// Sees to it that another serves while this worker waits for something to be durable.
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
            // Already taken off: somebody abandoned the mount.
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

impl Session {
    /// Tells the kernel something. That it doesn't know what it is about, or that the mount is gone, is as good.
    fn notify(&self, message: &[u8]) -> Result<(), Errno> {
        match rustix::io::write(&self.device, message) {
            Ok(_) | Err(Errno::NOENT | Errno::NODEV) => Ok(()),
            Err(errno) => Err(errno),
        }
    }

    /// Answers a request, and says whether the kernel has pages now that are not the file's.
    fn answer(&self, request: &Request<'_>, out: &mut Answer) -> bool {
        out.clear();
        if request.head.opcode == op::INIT {
            self.setxattr_ext.store(takes_setxattr_ext(request), Ordering::Release);
        }
        let setxattr_ext = self.setxattr_ext.load(Ordering::Acquire);
        let behaviour = Behaviour { setxattr_ext, ..self.behaviour };
        let Outcome::Send(result) = answer(&*self.tree, behaviour, request, out) else { return false };
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
