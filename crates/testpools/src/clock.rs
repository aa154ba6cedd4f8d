//! A model clock, which advances only while all threads wait.

use std::collections::BTreeMap;
use std::fs;
use std::time::{Duration, Instant};

use device::Clock;
use parking_lot::{Condvar, Mutex, MutexGuard};

/// If the threads of the process don't all wait within this time, one of them never waits, however
/// busy the machine is.
const ENDLESS: Duration = Duration::from_secs(300);

/// A clock that all modelled devices of a test share.
///
/// Computing takes no time. Device operations take the time of the model. When no thread of the
/// process can run, the clock advances to the next moment for which a thread waits. So the load of
/// the machine changes nothing. Operations of several devices overlap.
#[derive(Default)]
pub struct ModelClock {
    state: Mutex<State>,
    moved: Condvar,
}

#[derive(Default)]
struct State {
    now_ns: u64,
    runs: bool,
    /// How many threads wait for each moment.
    awaited: BTreeMap<u64, usize>,
    /// A thread is about to advance the clock.
    moving: bool,
}

/// While this lives, no other test of the process has a running clock. Activity of that test would
/// keep this clock from advancing.
pub type Alone = MutexGuard<'static, ()>;

/// Permission to run a clock. Waits until no other test has it.
pub fn alone() -> Alone {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock()
}

impl ModelClock {
    /// Starts the clock. From now on threads wait for their moments; before, they did not wait.
    pub fn run(&self, _: &Alone) {
        self.state.lock().runs = true;
    }

    /// Stops the clock, and wakes all waiting threads.
    pub fn stop(&self) {
        let state = &mut *self.state.lock();
        state.runs = false;
        if let Some((last, _)) = state.awaited.last_key_value() {
            state.now_ns = state.now_ns.max(*last);
        }
        self.moved.notify_all();
    }
}

impl Clock for ModelClock {
    fn now_ns(&self) -> u64 {
        self.state.lock().now_ns
    }

    fn sleep_until(&self, deadline_ns: u64) {
        let mut state = self.state.lock();
        if !state.runs {
            state.now_ns = state.now_ns.max(deadline_ns);
        }
        if state.now_ns >= deadline_ns {
            return;
        }
        *state.awaited.entry(deadline_ns).or_default() += 1;
        while state.now_ns < deadline_ns {
            if state.moving {
                self.moved.wait(&mut state);
                continue;
            }
            state.moving = true;
            MutexGuard::unlocked(&mut state, all_wait);
            state.moving = false;
            let next = state.awaited.first_key_value().map(|(at, _)| *at);
            state.now_ns = state.now_ns.max(next.expect("this thread waits"));
            self.moved.notify_all();
        }
        let left = state.awaited.get_mut(&deadline_ns).expect("it is entered");
        *left -= 1;
        if *left == 0 {
            state.awaited.remove(&deadline_ns);
        }
    }
}

/// Returns when every other thread of the process waits for another thread, or for something that
/// takes seconds.
///
/// # Panics
/// A thread does not wait within [`ENDLESS`].
fn all_wait() {
    let this = fs::read_link("/proc/thread-self").ok();
    let this =
        this.and_then(|path| path.file_name()?.to_str().map(str::to_owned)).expect("Linux says who asks");
    let mut before = None;
    let since = Instant::now();
    loop {
        assert!(since.elapsed() < ENDLESS, "a thread never waits");
        let now = asleep(&this);
        // A thread that slept in both checks, and did not run in between, slept at the end of the
        // first check.
        if now.is_some() && now == before {
            return;
        }
        if now.is_none() {
            std::thread::yield_now();
        }
        before = now;
    }
}

/// How often each other thread has stopped running. `None` if one of them can run.
fn asleep(this: &str) -> Option<Vec<String>> {
    let mut all = Vec::new();
    for thread in fs::read_dir("/proc/self/task").expect("Linux says which threads there are") {
        let thread = thread.expect("Linux says which threads there are");
        if thread.file_name().to_str() == Some(this) {
            continue;
        }
        // The thread may have ended meanwhile.
        let Ok(status) = fs::read_to_string(thread.path().join("status")) else { continue };
        let line =
            |name: &str| status.lines().find(|line| line.starts_with(name)).unwrap_or_default().to_owned();
        let state = line("State:");
        if state.contains('Z') || state.contains('X') {
            continue;
        }
        if !state.contains("sleeping") {
            return None;
        }
        let stopped = line("voluntary_ctxt_switches:") + &line("nonvoluntary_ctxt_switches:");
        all.push(format!("{:?} {stopped}", thread.file_name()));
    }
    Some(all)
}
