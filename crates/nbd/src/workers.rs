//! A worker pool for jobs that may block, one for each ZFS pool.
//!
//! # Theory
//! One thread serves the sockets, and must never wait for a device; the workers do. ZFS pools don't
//! share workers, so that a pool with devices that hang delays no other.
//!
//! A worker starts when there is a job and no idle worker, up to a limit. A worker ends after it
//! was idle for a while.
//!
//! # Locks
//! The lock of the queue is held to add and remove jobs, never while a job runs.

use observe::lock::{Condvar, Mutex};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;

/// How long an idle worker waits for a job before it ends.
const PATIENCE: Duration = Duration::from_secs(10);

type Job = Box<dyn FnOnce() + Send>;

/// The worker pool of a ZFS pool.
pub struct Workers(Arc<Inner>);

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

impl Workers {
    /// Makes a pool of up to `most` workers, with names that begin with `name`. None is started
    /// yet.
    pub fn new(name: &str, most: usize) -> Workers {
        let inner =
            Inner { name: name.to_owned(), most: most.max(1), queue: Mutex::default(), work: Condvar::new() };
        Workers(Arc::new(inner))
    }

    /// Queues a job for the next idle worker.
    ///
    /// If no worker exists and none can be started, the job is dropped without being run.
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
            // Other workers will do the job. If there are none, it is dropped, and [`Workers::run`]
            // returns `None`.
            if queue.hands == 0 {
                queue.jobs.clear();
            }
        }
    }

    /// Runs a job and returns its result. `None` if the job could not run, or panicked.
    pub async fn run<T: Send + 'static>(&self, job: impl FnOnce() -> T + Send + 'static) -> Option<T> {
        let (done, wait) = oneshot::channel();
        self.spawn(move || {
            // If the caller no longer waits, the result is dropped here.
            drop(done.send(job()));
        });
        wait.await.ok()
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.0.queue.lock().over = true;
        self.0.work.notify_all();
    }
}

/// Uncounts a worker when a job panics.
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
        // Under the lock, so that no thread queues a job for this worker in between.
        queue.hands -= 1;
    }
}
