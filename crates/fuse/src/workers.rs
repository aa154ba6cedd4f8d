//! The threads that serve mounts: a fixed number, shared by any number of mounts.
//!
//! # Theory
//! A thread and a buffer for each mount would cost thousands of threads and gigabytes of address space on a pool with
//! thousands of file systems, most of them idle. So the devices of all mounts hang on one `epoll` instance, and a few
//! workers wait there. A device is armed for one wake-up at a time: the worker that takes it reads one request, arms
//! it again, and only then does the work, so that another request of the same mount wakes another worker while nobody
//! is woken for nothing.
//!
//! A worker may block on a device of the pool. Pools therefore don't share workers: the daemon starts a set for each.
//!
//! # Life
//! A mount is *served* from [`Workers::serve`] until the kernel says that it is gone (`ENODEV`: unmounted by us, by
//! somebody's `umount`, or aborted). Then it has *ended*: its device closes and its tree is let go as soon as the last
//! request under way is answered.
//!
//! # Locks
//! The table of mounts is read for each request and written when a mount begins or ends; it isn't held during a
//! request.

mod refused;

use crate::dispatch::{Behaviour, MAX_WRITE, Outcome, answer, leaves_wrong_pages};
use crate::error::Error;
use crate::message::{Answer, Request};
use crate::tree::Tree;
use parking_lot::{Condvar, Mutex, RwLock};
use refused::Refused;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;

/// The number on `epoll` that says stop.
const STOP: u64 = 0;
const ARMED: EventFlags = EventFlags::IN.union(EventFlags::ONESHOT);

/// One mount as its workers see it.
struct Session {
    device: OwnedFd,
    tree: Arc<dyn Tree>,
    behaviour: Behaviour,
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
        let next_id = AtomicU64::new(STOP + 1);
        let shared = Arc::new(Shared {
            epoll,
            stop,
            sessions: RwLock::default(),
            next_id,
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
                .spawn(move || shared.work())
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
        let session = Arc::new(Session { device, tree, behaviour, _end: End(Arc::clone(&done)) });
        // In the table before it can wake a worker.
        self.shared.sessions.write().insert(id, Arc::clone(&session));
        if let Err(errno) = epoll::add(&self.shared.epoll, &session.device, EventData::new_u64(id), ARMED) {
            self.shared.sessions.write().remove(&id);
            return Err(Error::Workers { operation: "watch a mount", source: errno.into() });
        }
        Ok((id, done))
    }

    /// Stops serving a mount: when the requests under way are answered the device closes, and whoever still uses the
    /// mount gets `ENOTCONN`.
    pub(crate) fn abandon(&self, id: u64) {
        let _quiet = self.shared.refused.quiet();
        self.shared.end(id);
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
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a FUSE worker panicked");
            }
        }
    }
}

impl Shared {
    fn work(&self) {
        let mut buf = vec![0_u8; MAX_WRITE as usize + 4096];
        let mut out = Answer::default();
        loop {
            let mut events = [epoll::Event { flags: EventFlags::empty(), data: EventData::new_u64(STOP) }];
            match epoll::wait(&self.epoll, &mut events, None) {
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
            self.turn(id, &session, &mut buf, &mut out);
        }
    }

    /// Reads one request of a mount and answers it.
    fn turn(&self, id: u64, session: &Session, buf: &mut [u8], out: &mut Answer) {
        let read = rustix::io::read(&session.device, &mut *buf);
        if read == Err(Errno::NODEV) {
            self.end(id);
            return;
        }
        if let Err(errno) = epoll::modify(&self.epoll, &session.device, EventData::new_u64(id), ARMED) {
            // Already taken off: somebody abandoned the mount.
            tracing::debug!(id, %errno, "a mount is no longer watched");
        }
        match read {
            Ok(len) => match Request::parse(&buf[..len]) {
                Some(request) => {
                    if session.answer(&request, out) {
                        self.refused.add(id, request.head.nodeid);
                    }
                }
                None => tracing::error!(id, len, "the kernel sent no whole request"),
            },
            // Another worker was faster; or the caller was interrupted before we got its request.
            Err(Errno::AGAIN | Errno::NOENT | Errno::INTR) => {}
            Err(errno) => tracing::warn!(id, %errno, "reading a FUSE request failed"),
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
    /// Answers a request, and says whether the kernel has pages now that are not the file's.
    fn answer(&self, request: &Request<'_>, out: &mut Answer) -> bool {
        out.clear();
        let Outcome::Send(result) = answer(&*self.tree, self.behaviour, request, out) else { return false };
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
