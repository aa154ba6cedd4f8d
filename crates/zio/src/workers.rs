//! A fixed pool of threads that share a batch.
//!
//! # Theory
//! Work comes as a list, and its results in the same order. The thread with the list works on it
//! too. So a pool of one has no thread of its own: everything happens in order, on the caller's
//! thread. A run of the engine is then a function of its inputs.
//!
//! There are as many threads as can compute at a time. Devices are often more, and a thread that
//! waits for a device doesn't compute. So work on each of several devices gets threads of its own
//! ([`Workers::at_once`]).
//!
//! # Locks
//! The queue's lock is held to take an invitation to help. Each item and each result has a lock of
//! its own, held to move it. The lock of the work is held for reading by the threads that do it.

use observe::lock::{Condvar, Mutex, RwLock};
use observe::work::{Helping, Team};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;

/// Most threads that wait for devices at a time.
const WAITERS_MAX: usize = 64;

type Help = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct Queue {
    invitations: VecDeque<Help>,
    closed: bool,
}

#[derive(Default)]
struct SharedQueue {
    queue: Mutex<Queue>,
    wake: Condvar,
}

/// Threads that share lists of work (`taskq_t`).
pub struct Workers {
    shared: Arc<SharedQueue>,
    threads: Vec<JoinHandle<()>>,
}

/// One list under way.
struct Task<T, R, F> {
    items: Vec<Mutex<Option<T>>>,
    results: Vec<Mutex<Option<R>>>,
    next: AtomicUsize,
    done: Mutex<usize>,
    all_done: Condvar,
    team: Team,
    /// Read by the threads that work, and removed at the end. A late thread keeps the task a little
    /// longer, but nothing that the work refers to.
    work: RwLock<Option<F>>,
}

impl<T, R, F: Fn(T) -> R> Task<T, R, F> {
    /// Works for another thread until no item is left.
    fn help(&self) {
        let helping = self.team.help();
        self.work(|| helping.iter().for_each(Helping::report));
    }

    /// Works until no item is left. Calls `done` after each item, before it counts as done.
    fn work(&self, done: impl Fn()) {
        let work = self.work.read();
        let Some(work) = &*work else { return };
        loop {
            let n = self.next.fetch_add(1, Ordering::Relaxed);
            let Some(slot) = self.items.get(n) else { return };
            let item = slot.lock().take().expect("each number is given out once");
            // Counted however the work ends, so that no thread waits for one that is gone.
            let _count = Count { done: &self.done, all_done: &self.all_done };
            *self.results[n].lock() = Some(work(item));
            done();
        }
    }
}

struct Count<'a> {
    done: &'a Mutex<usize>,
    all_done: &'a Condvar,
}

impl Drop for Count<'_> {
    fn drop(&mut self) {
        *self.done.lock() += 1;
        self.all_done.notify_all();
    }
}

impl Workers {
    /// A pool in which `count` threads work on a list, the caller's included. With 1 there is no
    /// other.
    ///
    /// # Panics
    /// If the system can't start a thread.
    pub fn new(name: &str, count: usize) -> Workers {
        let shared = Arc::new(SharedQueue::default());
        let threads = (1..count)
            .map(|n| {
                let shared = Arc::clone(&shared);
                let thread = std::thread::Builder::new().name(format!("{name}-{n}"));
                thread.spawn(move || serve(&shared)).expect("the system has room for a few threads")
            })
            .collect();
        Workers { shared, threads }
    }

    /// A pool of the caller's thread alone. For one of several threads that already share something
    /// larger: waking others for a few small blocks would cost more than the blocks.
    pub fn inline() -> Workers {
        Workers::new("inline", 1)
    }

    /// Number of threads that work on a list.
    pub fn count(&self) -> usize {
        self.threads.len() + 1
    }

    /// The results of `work` for each item, in the order of the items. On return, `work` has been
    /// dropped.
    ///
    /// # Panics
    /// If `work` panics, on any thread.
    pub fn map<T, R, F>(&self, items: Vec<T>, work: F) -> Vec<R>
    where
        T: Send + 'static,
        R: Send + 'static,
        F: Fn(T) -> R + Send + Sync + 'static,
    {
        if self.threads.is_empty() || items.len() < 2 {
            return items.into_iter().map(work).collect();
        }
        let count = items.len();
        let task = Arc::new(Task {
            items: items.into_iter().map(|i| Mutex::new(Some(i))).collect(),
            results: (0..count).map(|_| Mutex::new(None)).collect(),
            next: AtomicUsize::new(0),
            done: Mutex::new(0),
            all_done: Condvar::new(),
            team: Team::new(),
            work: RwLock::new(Some(work)),
        });
        {
            let mut queue = self.shared.queue.lock();
            for _ in 0..self.threads.len().min(count - 1) {
                let task = Arc::clone(&task);
                queue.invitations.push_back(Box::new(move || task.help()));
            }
        }
        self.shared.wake.notify_all();
        task.work(|| {});
        task.team.wait(|| {
            let mut done = task.done.lock();
            while *done < count {
                task.all_done.wait(&mut done);
            }
        });
        // Releases what the work holds, such as a pool's devices, before the caller continues.
        // Threads that have just ended are about to leave.
        *task.work.write() = None;
        task.results.iter().map(|slot| slot.lock().take().expect("no work panics")).collect()
    }

    /// The results of `work` for each item, in the order of the items, all at the same time.
    ///
    /// For a few items, each of which waits for a device of its own. A pool of one does them in
    /// order.
    ///
    /// # Panics
    /// If `work` panics, or the system can't start a thread.
    pub fn at_once<T: Send, R: Send>(&self, items: Vec<T>, work: impl Fn(T) -> R + Sync) -> Vec<R> {
        if self.threads.is_empty() || items.len() < 2 {
            return items.into_iter().map(work).collect();
        }
        let count = items.len();
        let (items, results) = (Mutex::new(items.into_iter().enumerate()), Mutex::new(Vec::new()));
        let team = Team::new();
        let help = || {
            loop {
                let next = items.lock().next();
                let Some((n, item)) = next else { return };
                let result = work(item);
                results.lock().push((n, result));
            }
        };
        let help_another = || {
            let _helping = team.help();
            help();
        };
        std::thread::scope(|scope| {
            let mut others = Vec::new();
            for _ in 1..count.min(WAITERS_MAX) {
                let thread = std::thread::Builder::new().name("zio-device".into());
                let started = thread.spawn_scoped(scope, help_another);
                others.push(started.expect("the system has room for a few threads"));
            }
            help();
            team.wait(|| {
                for other in others {
                    other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
                }
            });
        });
        let mut results = results.into_inner();
        results.sort_unstable_by_key(|(n, _)| *n);
        results.into_iter().map(|(_, result)| result).collect()
    }
}

fn serve(shared: &SharedQueue) {
    loop {
        let mut queue = shared.queue.lock();
        let help = loop {
            match queue.invitations.pop_front() {
                Some(help) => break help,
                None if queue.closed => return,
                None => shared.wake.wait(&mut queue),
            }
        };
        drop(queue);
        help();
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.shared.queue.lock().closed = true;
        self.shared.wake.notify_all();
        for thread in self.threads.drain(..) {
            // A thread that panicked has reported that already.
            let _ = thread.join();
        }
    }
}

impl std::fmt::Debug for Workers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Workers({})", self.count())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: results come in the order of the items, however many threads there are, and several
    /// lists may be under way.
    #[test]
    fn order_is_kept() {
        for count in 1..4 {
            let workers = Arc::new(Workers::new("test", count));
            let lists: Vec<_> = (0..4u64)
                .map(|n| {
                    let workers = Arc::clone(&workers);
                    std::thread::spawn(move || workers.map((0..200u64).collect(), move |i| i * 10 + n))
                })
                .collect();
            for (n, list) in lists.into_iter().enumerate() {
                let want: Vec<u64> = (0..200).map(|i| i * 10 + n as u64).collect();
                assert_eq!(list.join().unwrap(), want);
            }
        }
    }

    /// Goal: `at_once` runs all items at the same time, more than there are threads that compute,
    /// and returns them in order. A pool of one runs them in order.
    #[test]
    fn devices_are_waited_for_at_once() {
        let all = std::sync::Barrier::new(7);
        let wait = |n: u64| (all.wait(), n * 10).1;
        assert_eq!(Workers::new("test", 2).at_once((0..7).collect(), wait), [0, 10, 20, 30, 40, 50, 60]);
        let here = std::thread::current().id();
        let alone = Workers::new("test", 1).at_once(vec![3, 4], |n| (n, std::thread::current().id()));
        assert_eq!(alone, [(3, here), (4, here)]);
        let many = Workers::new("test", 3).at_once((0..1000).collect(), |n: u64| n + 1);
        assert_eq!(many, (1..=1000).collect::<Vec<u64>>());
    }

    /// Goal: when a list is done, no thread holds what its work refers to, though invitations may
    /// be left.
    #[test]
    fn nothing_is_held_on_to() {
        let workers = Workers::new("test", 4);
        for _ in 0..2000 {
            let about = Arc::new(());
            let seen = Arc::downgrade(&about);
            let done = workers.map((0..5u64).collect(), move |i| (i, Arc::strong_count(&about)).0);
            assert_eq!(done, [0, 1, 2, 3, 4]);
            assert!(seen.upgrade().is_none());
        }
    }
}
