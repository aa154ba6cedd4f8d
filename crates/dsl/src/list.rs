//! All datasets in one pass.
//!
//! # Theory
//! Listing a pool of thousands of datasets is waiting for metadata: so a few threads take directories from one stack, read
//! what belongs to one, hand it out, and push its children. Work is depth first, so that the stack stays as long as
//! the open levels are wide. What is handed out is complete in itself and forgotten.
//!
//! # Locks
//! The stack's lock is held for a push or a pop, never across a read or a call out.

use crate::dataset::Dataset;
use crate::dir::Dir;
use crate::{Dsl, Error, Result, is_hidden};
use ondisk::ObjNum;
use parking_lot::{Condvar, Mutex};

/// What to list.
#[derive(Debug, Clone, Copy)]
pub struct ListOptions {
    /// Snapshots too.
    pub snapshots: bool,
    /// Internal and temporary datasets too.
    pub hidden: bool,
    /// How many levels below the start; `None` for all.
    pub depth: Option<usize>,
    /// Threads to use; at least one is.
    pub threads: usize,
}

impl Default for ListOptions {
    fn default() -> Self {
        Self { snapshots: false, hidden: false, depth: None, threads: 4 }
    }
}

/// What is handed out.
#[derive(Debug)]
pub enum Listed {
    /// A dataset; snapshots come after their head, oldest first.
    Dataset(Dataset),
    /// Something below this name could not be read.
    Failed {
        /// The name.
        name: String,
        /// Why.
        error: Error,
    },
}

/// A directory yet to be visited.
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
    /// Hands every dataset below `start` (the root, if `None`), itself included, to `each`, which is called from several
    /// threads at once. The order is that in which they are found.
    ///
    /// # Errors
    /// As opening the root fails; later failures are handed out.
    pub fn list(
        &self,
        start: Option<Dir>,
        options: &ListOptions,
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
                // Fewer threads list as well, only slower.
                if spawned.is_err() {
                    break;
                }
            }
            work(&stack, &wake, options, each);
        });
        Ok(())
    }

    /// All datasets below `start`, sorted by name, snapshots after their head in order of creation.
    ///
    /// # Errors
    /// The first failure.
    pub fn list_sorted(&self, start: Option<Dir>, options: &ListOptions) -> Result<Vec<Dataset>> {
        let out = Mutex::new((Vec::new(), None));
        self.list(start, options, &|l| match l {
            Listed::Dataset(d) => out.lock().0.push(d),
            Listed::Failed { error, .. } => {
                out.lock().1.get_or_insert(error);
            }
        })?;
        let (mut all, failed) = out.into_inner();
        if let Some(e) = failed {
            return Err(e);
        }
        all.sort_by(|a, b| {
            let key = |d: &Dataset| d.snapshot_name().map(|_| (d.phys().creation_txg, d.object()));
            a.dir().name().cmp(b.dir().name()).then_with(|| key(a).cmp(&key(b)))
        });
        Ok(all)
    }
}

fn work(stack: &Mutex<Stack>, wake: &Condvar, options: &ListOptions, each: &(dyn Fn(Listed) + Sync)) {
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
        let more = visit(job, options, each);
        let mut s = stack.lock();
        s.jobs.extend(more);
        s.busy -= 1;
        wake.notify_all();
    }
}

/// Hands out one directory's datasets and returns its children.
fn visit(job: Job, options: &ListOptions, each: &(dyn Fn(Listed) + Sync)) -> Vec<Job> {
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
            let snapshots = if options.snapshots { head.snapshots() } else { Ok(Vec::new()) };
            each(Listed::Dataset(head));
            match snapshots {
                Ok(all) => all.into_iter().for_each(|s| each(Listed::Dataset(s))),
                Err(e) => fail(dir.name().to_owned(), e),
            }
        }
    }
    if options.depth.is_some_and(|d| level >= d) {
        return Vec::new();
    }
    match dir.child_objects() {
        Ok(all) => all
            .into_iter()
            .filter(|(n, _)| options.hidden || !is_hidden(n))
            .map(|(name, object)| Job::Child { parent: dir.clone(), name, object, level: level + 1 })
            .collect(),
        Err(e) => {
            fail(dir.name().to_owned(), e);
            Vec::new()
        }
    }
}
