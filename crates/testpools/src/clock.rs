//! Time that passes only while nobody has anything to do.

use std::collections::BTreeMap;
use std::fs;
use std::time::{Duration, Instant};

use device::Clock;
use parking_lot::{Condvar, Mutex, MutexGuard};

/// However busy the machine is, threads that go on for so long wait for nothing.
const ENDLESS: Duration = Duration::from_secs(300);

/// A clock that all modelled devices of a test share. What threads compute takes no time; what devices do takes as long as the model says. It moves on to the next moment for which
/// somebody waits when no thread of the process could run: so how busy the machine is changes nothing, and what one device does while another works is
/// done at the same time.
#[derive(Default)]
pub struct ModelClock {
    state: Mutex<State>,
    moved: Condvar,
}

#[derive(Default)]
struct State {
    now_ns: u64,
    runs: bool,
    /// How many wait for each moment.
    awaited: BTreeMap<u64, usize>,
    /// Somebody is about to move it.
    moving: bool,
}

/// While it lives, no other test of the process has a clock: what that did would keep this one from moving.
pub type Alone = MutexGuard<'static, ()>;

/// The leave to have a clock that runs.
pub fn alone() -> Alone {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock()
}

impl ModelClock {
    /// From now on who waits waits; before, what was waited for was there at once.
    pub fn run(&self, _: &Alone) {
        self.state.lock().runs = true;
    }

    /// Nobody waits any more.
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

/// Returns at a moment at which every other thread of the process waited for another, or for something that takes seconds.
fn all_wait() {
    let this = fs::read_link("/proc/thread-self").ok();
    let this =
        this.and_then(|path| path.file_name()?.to_str().map(str::to_owned)).expect("Linux says who asks");
    let mut before = None;
    let since = Instant::now();
    loop {
        assert!(since.elapsed() < ENDLESS, "a thread never waits");
        let now = asleep(&this);
        // Who slept both times and did not run in between slept when the first look ended.
        if now.is_some() && now == before {
            return;
        }
        if now.is_none() {
            std::thread::yield_now();
        }
        before = now;
    }
}

/// Each other thread, and how often it has stopped running; nothing if one could run.
fn asleep(this: &str) -> Option<Vec<String>> {
    let mut all = Vec::new();
    for thread in fs::read_dir("/proc/self/task").expect("Linux says which threads there are") {
        let thread = thread.expect("Linux says which threads there are");
        if thread.file_name().to_str() == Some(this) {
            continue;
        }
        // One that has ended is gone.
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
