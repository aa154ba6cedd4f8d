//! Runs are read in turns, within the limit, after waiting readers, and not after the end.

use super::*;

/// Reads blocks, and waits at a gate while it is shut.
#[derive(Default)]
struct Reader {
    state: Mutex<Read>,
    changed: Condvar,
}

#[derive(Default)]
struct Read {
    done: Vec<u64>,
    waiting: usize,
    open: bool,
}

impl PrefetchTarget for Reader {
    fn read_ahead(&self, _: u8, blkid: u64) {
        let mut s = self.state.lock();
        s.waiting += 1;
        self.changed.notify_all();
        while !s.open {
            self.changed.wait(&mut s);
        }
        s.waiting -= 1;
        s.done.push(blkid);
        self.changed.notify_all();
    }
}

impl Reader {
    fn until(&self, what: impl Fn(&Read) -> bool) {
        let mut s = self.state.lock();
        while !what(&s) {
            self.changed.wait(&mut s);
        }
    }

    fn open(&self) {
        self.state.lock().open = true;
        self.changed.notify_all();
    }
}

fn prefetcher() -> (PrefetchWorkers, Arc<Reader>, Arc<Zfetch>) {
    let counters = Arc::<Zfetch>::default();
    let prefetcher = PrefetchWorkers::new(0, counters.clone());
    prefetcher.begin(1);
    (prefetcher, Arc::default(), counters)
}

fn run(of: &Arc<Reader>, next: u64, step: i64, count: u64, bytes: u64) -> Run {
    Run { of: of.clone(), level: 0, next, step, count, bytes }
}

/// Goal: all blocks of all runs are read, each once, forwards and backwards, and counted.
#[test]
fn all_is_read() {
    let (prefetcher, reader, counters) = prefetcher();
    reader.open();
    assert!(
        prefetcher.push(run(&reader, 0, 1, 50, 4096)) && prefetcher.push(run(&reader, 1000, -10, 50, 4096))
    );
    reader.until(|s| s.done.len() == 100);
    let mut done = std::mem::take(&mut reader.state.lock().done);
    done.sort_unstable();
    let mut want: Vec<u64> = (0..50).chain((0..50).map(|n| 1000 - 10 * n)).collect();
    want.sort_unstable();
    assert_eq!(done, want);
    prefetcher.close();
    assert_eq!((counters.io_issued.get(), counters.io_active()), (100, 0));
}

/// Goal: the allowed bytes are under way, fewer while a reader waits for a device, and more when it
/// no longer does.
#[test]
fn behind_those_who_wait() {
    let (prefetcher, reader, _) = prefetcher();
    // A unit is a mebibyte: one while a reader waits, three otherwise.
    let demand = prefetcher.demand();
    assert!(prefetcher.push(run(&reader, 0, 1, 32, 1 << 18)));
    reader.until(|s| s.waiting == 4);
    assert_eq!(prefetcher.0.state.lock().active, 4);
    drop(demand);
    reader.until(|s| s.waiting == 12);
    assert_eq!(prefetcher.0.state.lock().active, 12);
    reader.open();
    reader.until(|s| s.done.len() == 32);
}

/// Goal: a prefetcher that was not begun takes no run. After a close nothing is under way, and no
/// queued block is read.
#[test]
fn closed() {
    let (prefetcher, reader, counters) = prefetcher();
    prefetcher.begin(0);
    assert!(!prefetcher.push(run(&reader, 0, 1, 4, 4096)), "not begun");
    prefetcher.begin(1);
    assert!(prefetcher.push(run(&reader, 0, 1, 1000, 1 << 20)));
    reader.until(|s| s.waiting == 3);
    std::thread::scope(|scope| {
        scope.spawn(|| prefetcher.close());
        // The reads under way end only now.
        while !prefetcher.0.state.lock().closed {
            std::thread::yield_now();
        }
        reader.open();
    });
    assert_eq!(reader.state.lock().done.len(), 3);
    assert!(!prefetcher.push(run(&reader, 0, 1, 4, 4096)));
    assert_eq!(counters.io_active(), 0);
    assert_eq!(Arc::strong_count(&reader), 1, "nothing is held");
}
