//! Threads for calls that may block.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering::Relaxed};

use crossbeam_channel::{Receiver, Sender};

use super::Service;
use crate::call::Call;
use crate::engine::CallId;
use crate::net::Outbox;
use crate::shard::{Request, Shard};

/// A call for a worker.
pub(super) struct Job {
    pub(super) shard: Arc<Shard>,
    pub(super) id: CallId,
    pub(super) request: Request,
    pub(super) service: Arc<dyn Service>,
}

impl Job {
    fn run(self) {
        let Job { shard, id, request, service } = self;
        let mut state = shard.lock();
        if state.engine.info(id).is_none() {
            // The client has given the call up. The channel's next call may start.
            state.engine.finish(id);
            shard.settle(state, &mut Outbox::new());
            return;
        }
        let mut call = Call::new(&shard, &mut state, id, request.info, request.body, request.complete);
        drop(state);
        match service.run(&mut call) {
            Ok(()) => {
                // If the client is gone, nothing is left to do.
                let _ = call.write_last(Vec::new());
                call.finish();
            }
            Err(code) => call.abort(code),
        }
    }
}

/// The threads.
pub(super) struct Pool {
    sender: parking_lot::Mutex<Option<Sender<Job>>>,
    waiting: AtomicUsize,
    most: usize,
    idle: AtomicU32,
    waited: AtomicU32,
}

impl Pool {
    /// So many threads, for which so many calls may wait.
    pub(super) fn new(workers: usize, most: usize) -> Arc<Pool> {
        let (sender, receiver) = crossbeam_channel::unbounded();
        let pool = Arc::new(Pool {
            sender: parking_lot::Mutex::new(Some(sender)),
            waiting: AtomicUsize::new(0),
            most,
            idle: AtomicU32::new(0),
            waited: AtomicU32::new(0),
        });
        for _ in 0..workers.max(1) {
            let (pool, receiver) = (Arc::clone(&pool), receiver.clone());
            let thread = std::thread::Builder::new().name("rx-worker".into());
            if let Err(error) = thread.spawn(move || pool.work(&receiver)) {
                tracing::error!(%error, "a worker for Rx calls can't start");
            }
        }
        pool
    }

    fn work(&self, jobs: &Receiver<Job>) {
        loop {
            self.idle.fetch_add(1, Relaxed);
            let job = jobs.recv();
            self.idle.fetch_sub(1, Relaxed);
            let Ok(job) = job else { return };
            self.waiting.fetch_sub(1, Relaxed);
            job.run();
        }
    }

    /// Gives a call to a thread. Returns `false` if too many wait.
    pub(super) fn submit(&self, job: Job) -> bool {
        if self.waiting.fetch_add(1, Relaxed) >= self.most {
            self.waiting.fetch_sub(1, Relaxed);
            return false;
        }
        if self.idle.load(Relaxed) == 0 {
            self.waited.fetch_add(1, Relaxed);
        }
        self.sender.lock().as_ref().is_some_and(|sender| sender.send(job).is_ok())
    }

    /// Has the threads end after their calls.
    pub(super) fn stop(&self) {
        self.sender.lock().take();
    }

    /// Calls that wait, threads that are idle, calls that ever waited.
    pub(super) fn numbers(&self) -> (u32, u32, u32) {
        (self.waiting.load(Relaxed) as u32, self.idle.load(Relaxed), self.waited.load(Relaxed))
    }
}
