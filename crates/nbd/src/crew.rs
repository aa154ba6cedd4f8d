//! Threads that do what may block, for one pool.
//!
//! # Theory
//! Sockets are watched by one thread, which never waits for a device; each pool has a crew that does. Pools share no crew, so that one whose devices hang
//! keeps nobody else waiting. Hands come when there is work that nobody is free for, up to a number, and leave when there has been none for a while.
//!
//! # Locks
//! The queue's lock is held to put and take work, never while it is done.

use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;

/// How long a thread waits for work before it ends.
const PATIENCE: Duration = Duration::from_secs(10);

type Job = Box<dyn FnOnce() + Send>;

/// The threads of a pool.
pub struct Crew(Arc<Inner>);

struct Inner {
    name: String,
    most: usize,
    queue: Mutex<Queue>,
    work: Condvar,
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    hands: usize,
    idle: usize,
    over: bool,
}

impl Crew {
    /// Up to `most` threads, with names that begin with `name`. None yet.
    pub fn new(name: &str, most: usize) -> Crew {
        let inner =
            Inner { name: name.to_owned(), most: most.max(1), queue: Mutex::default(), work: Condvar::new() };
        Crew(Arc::new(inner))
    }

    /// Has something done by whoever is free next.
    pub fn spawn(&self, job: impl FnOnce() + Send + 'static) {
        let mut queue = self.0.queue.lock();
        queue.jobs.push_back(Box::new(job));
        if queue.idle >= queue.jobs.len() || queue.hands >= self.0.most {
            drop(queue);
            self.0.work.notify_one();
            return;
        }
        queue.hands += 1;
        let number = queue.hands;
        drop(queue);
        let inner = Arc::clone(&self.0);
        let thread = std::thread::Builder::new().name(format!("{}-{number}", self.0.name));
        if let Err(error) = thread.spawn(move || inner.serve()) {
            let mut queue = self.0.queue.lock();
            queue.hands -= 1;
            tracing::error!(%error, hands = queue.hands, "a thread can't be started");
            // Somebody is there, or nobody ever will be: then the job is dropped, and who waits for it hears of that.
            if queue.hands == 0 {
                queue.jobs.clear();
            }
        }
    }

    /// Has something done, and says what came of it: `None` if it could not be done.
    pub async fn run<T: Send + 'static>(&self, job: impl FnOnce() -> T + Send + 'static) -> Option<T> {
        let (done, wait) = oneshot::channel();
        self.spawn(move || {
            // Nobody waits any more: what came of it is dropped here.
            drop(done.send(job()));
        });
        wait.await.ok()
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        self.0.queue.lock().over = true;
        self.0.work.notify_all();
    }
}

/// Counts a thread out when a job panics.
struct Leave<'a>(&'a Inner);

impl Drop for Leave<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.queue.lock().hands -= 1;
        }
    }
}

impl Inner {
    fn serve(&self) {
        let _leave = Leave(self);
        let mut queue = self.queue.lock();
        loop {
            if let Some(job) = queue.jobs.pop_front() {
                drop(queue);
                job();
                queue = self.queue.lock();
                continue;
            }
            if queue.over {
                break;
            }
            queue.idle += 1;
            let waited = self.work.wait_for(&mut queue, PATIENCE);
            queue.idle -= 1;
            if waited.timed_out() && queue.jobs.is_empty() {
                break;
            }
        }
        // Under the lock, so that nobody puts a job that waits for this thread.
        queue.hands -= 1;
    }
}
