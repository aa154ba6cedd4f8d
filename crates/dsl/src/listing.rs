//! All datasets in one pass.
//!
//! # Theory
//! Listing a pool of thousands of datasets is waiting for metadata. So a few threads take
//! directories from one stack. A thread reads what belongs to a directory, reports it, and pushes
//! the children. The walk is depth first, so the stack is only as long as the open levels are wide.
//! A reported dataset is complete in itself, and the walk does not keep it.
//!
//! # Locks
//! The stack's lock is held for a push or a pop, never across a read or a callback.

use crate::dataset::Dataset;
use crate::dir::Dir;
use crate::{Dsl, Error, Result, is_hidden};
use observe::lock::{Condvar, Mutex};
use ondisk::ObjNum;
use std::sync::atomic::{AtomicBool, Ordering};

/// What to list.
#[derive(Debug, Clone, Copy)]
pub struct ListOptions<'a> {
    /// Snapshots too.
    pub snapshots: bool,
    /// Internal and temporary datasets too.
    pub hidden: bool,
    /// The number of levels below the start; `None` for all.
    pub depth: Option<usize>,
    /// The number of threads; at least one.
    pub threads: usize,
    /// Ends the listing early when it is set.
    pub stop: Option<&'a AtomicBool>,
    /// What is left out, with all below it. It takes no time.
    pub without: Option<Without<'a>>,
}

/// Datasets that a listing leaves out.
#[derive(Debug, Clone, Copy)]
pub struct Without<'a> {
    /// File systems by their names.
    pub of: &'a [String],
    /// Which of their children are left out, by the last part of the name.
    pub child: fn(&str) -> bool,
}

impl Without<'_> {
    /// The test for children of a directory, if some of them may be left out.
    fn below(&self, dir: &Dir) -> Option<fn(&str) -> bool> {
        self.of.iter().any(|name| name == dir.name()).then_some(self.child)
    }
}

impl Default for ListOptions<'_> {
    fn default() -> Self {
        Self { snapshots: false, hidden: false, depth: None, threads: 4, stop: None, without: None }
    }
}

/// What a listing reports.
#[derive(Debug)]
pub enum Listed {
    /// A dataset; snapshots come after their head, oldest first.
    Dataset(Dataset),
    /// Something with this name, or below it, could not be read.
    Failed {
        /// The name.
        name: String,
        /// The cause.
        error: Error,
    },
}

/// The result of [`Dsl::list_sorted`].
#[derive(Debug, Default)]
pub struct Listing {
    /// The datasets, sorted by name, snapshots after their head in order of creation.
    pub datasets: Vec<Dataset>,
    /// Names where a read failed, or below which one failed, with the errors; sorted by name.
    pub failures: Vec<(String, Error)>,
}

impl Listing {
    /// The datasets, if nothing failed.
    ///
    /// # Errors
    /// The first failure.
    pub fn whole(self) -> Result<Vec<Dataset>> {
        match self.failures.into_iter().next() {
            Some((_, error)) => Err(error),
            None => Ok(self.datasets),
        }
    }
}

/// A directory that is still to be visited.
enum Job {
    Open(Dir, usize),
    Child { parent: Dir, name: String, object: ObjNum, level: usize },
}

#[derive(Default)]
struct Stack {
    jobs: Vec<Job>,
    busy: usize,
}

impl Dsl {
    /// Reports every dataset at and below `start` to `each` (`dmu_objset_find_dp`).
    ///
    /// `None` starts at the root. Several threads call `each` at once, in the order in which they
    /// find datasets. Failures below the start are reported too.
    ///
    /// # Errors
    /// * [Reading](Error#reading): the root directory can't be opened.
    pub fn list(
        &self,
        start: Option<Dir>,
        options: &ListOptions<'_>,
        each: &(dyn Fn(Listed) + Sync),
    ) -> Result<()> {
        let start = start.map_or_else(|| self.root(), Ok)?;
        let stack = Mutex::new(Stack { jobs: vec![Job::Open(start, 0)], busy: 0 });
        let wake = Condvar::new();
        std::thread::scope(|scope| {
            for i in 1..options.threads.max(1) {
                let worker = || work(&stack, &wake, options, each);
                let spawned =
                    std::thread::Builder::new().name(format!("dsl-list-{i}")).spawn_scoped(scope, worker);
                // Fewer threads do the same work, only slower.
                if spawned.is_err() {
                    break;
                }
            }
            work(&stack, &wake, options, each);
        });
        Ok(())
    }

    /// All datasets at and below `start`, sorted, with what could not be read.
    ///
    /// # Errors
    /// * [Reading](Error#reading): the root directory can't be opened. Later failures are in the
    ///   listing.
    pub fn list_sorted(&self, start: Option<Dir>, options: &ListOptions<'_>) -> Result<Listing> {
        let out = Mutex::new(Listing::default());
        self.list(start, options, &|l| match l {
            Listed::Dataset(d) => out.lock().datasets.push(d),
            Listed::Failed { name, error } => out.lock().failures.push((name, error)),
        })?;
        let mut all = out.into_inner();
        all.datasets.sort_by(|a, b| {
            let key = |d: &Dataset| d.snapshot_name().map(|_| (d.phys().creation_txg, d.object()));
            a.dir().name().cmp(b.dir().name()).then_with(|| key(a).cmp(&key(b)))
        });
        all.failures.sort_by(|a, b| a.0.cmp(&b.0));
        Ok(all)
    }
}

fn work(stack: &Mutex<Stack>, wake: &Condvar, options: &ListOptions<'_>, each: &(dyn Fn(Listed) + Sync)) {
    loop {
        let job = {
            let mut s = stack.lock();
            loop {
                if let Some(job) = s.jobs.pop() {
                    s.busy += 1;
                    break job;
                }
                if s.busy == 0 {
                    return;
                }
                wake.wait(&mut s);
            }
        };
        let stopped = || options.stop.is_some_and(|stop| stop.load(Ordering::Relaxed));
        let more = if stopped() { Vec::new() } else { visit(job, options, each) };
        let mut s = stack.lock();
        s.jobs.extend(more);
        s.busy -= 1;
        wake.notify_all();
    }
}

/// Reports the datasets of one directory, and returns its children.
fn visit(job: Job, options: &ListOptions<'_>, each: &(dyn Fn(Listed) + Sync)) -> Vec<Job> {
    let fail = |name: String, error| each(Listed::Failed { name, error });
    let (dir, level) = match job {
        Job::Open(dir, level) => (dir, level),
        Job::Child { parent, name, object, level } => match parent.open_child(&name, object) {
            Ok(dir) => (dir, level),
            Err(e) => {
                fail(format!("{}/{name}", parent.name()), e);
                return Vec::new();
            }
        },
    };
    match dir.head() {
        Ok(None) => {}
        Err(e) => fail(dir.name().to_owned(), e),
        Ok(Some(head)) => {
            let snapshots = if options.snapshots { snapshots(&head, &fail) } else { Vec::new() };
            each(Listed::Dataset(head));
            snapshots.into_iter().for_each(|s| each(Listed::Dataset(s)));
        }
    }
    if options.depth.is_some_and(|d| level >= d) {
        return Vec::new();
    }
    let children = match dir.children() {
        Ok(children) => children,
        Err(e) => {
            fail(dir.name().to_owned(), e);
            return Vec::new();
        }
    };
    let mut jobs = Vec::new();
    let left_out = options.without.and_then(|without| without.below(&dir));
    for child in children {
        match child {
            Ok((name, _)) if !options.hidden && is_hidden(&name) => {}
            Ok((name, _)) if left_out.is_some_and(|is_left_out| is_left_out(&name)) => {}
            Ok((name, object)) => {
                jobs.push(Job::Child { parent: dir.clone(), name, object, level: level + 1 });
            }
            Err(e) => fail(dir.name().to_owned(), e),
        }
    }
    jobs
}

/// The readable snapshots of a head, oldest first.
fn snapshots(head: &Dataset, fail: &dyn Fn(String, Error)) -> Vec<Dataset> {
    let entries = match head.snapshot_entries() {
        Ok(entries) => entries,
        Err(e) => {
            fail(head.name(), e);
            return Vec::new();
        }
    };
    let mut out = Vec::new();
    for entry in entries {
        let Some((name, object)) = entry.map_err(|e| fail(head.name(), e)).ok() else { continue };
        match Dataset::open(head.dir(), object, Some(name.clone())) {
            Ok(snapshot) => out.push(snapshot),
            Err(e) => fail(format!("{}@{name}", head.name()), e),
        }
    }
    out.sort_by_key(|d| (d.phys().creation_txg, d.object()));
    out
}
