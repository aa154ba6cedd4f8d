#![allow(clippy::print_stdout, reason = "figures are shown with --nocapture")]

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;

use device::{Device, MemDevice, Spinning};
use observe::lock::Condvar;

use super::*;

const MS: u64 = 1_000_000;
/// A hard disk: bytes a second, and the time of a seek.
const RATE: u64 = 200_000_000;
const SEEK_NS: u64 = 8 * MS;
const SIZE: u64 = 64 << 20;
/// The time of a read of 8 KiB at another place, and of one of 1 MiB.
const SMALL_READ_NS: u64 = SEEK_NS + (8 << 10) * 5;
const LARGE_READ_NS: u64 = SEEK_NS + (1 << 20) * 5;

/// Simulated time. One actor acts at a time, in no time at all, until it waits. Then the actor that
/// waits for the earliest time is next, and time moves there.
#[derive(Default)]
struct Stage {
    state: Mutex<Scene>,
    moved: Condvar,
}

#[derive(Default)]
struct Scene {
    now_ns: u64,
    /// The actors, and those that wait: until when, and in which order they came.
    actors: usize,
    waiting: BTreeMap<(u64, u64), ()>,
    came: u64,
}

impl Stage {
    fn next(&self, scene: &mut Scene) {
        if scene.waiting.len() == scene.actors
            && let Some(((until, _), ())) = scene.waiting.first_key_value()
        {
            scene.now_ns = scene.now_ns.max(*until);
            self.moved.notify_all();
        }
    }

    /// Runs all actors until they are done.
    fn play<'a>(&self, actors: Vec<Box<dyn FnOnce() + Send + 'a>>) {
        self.state.lock().actors = actors.len();
        std::thread::scope(|scope| {
            for (n, actor) in (0..).zip(actors) {
                scope.spawn(move || {
                    // They start in the order of this list.
                    self.sleep_until(n);
                    actor();
                    let scene = &mut *self.state.lock();
                    scene.actors -= 1;
                    self.next(scene);
                });
            }
        });
    }
}

impl Clock for Stage {
    fn now_ns(&self) -> u64 {
        self.state.lock().now_ns
    }

    fn sleep_until(&self, deadline_ns: u64) {
        let mut scene = self.state.lock();
        scene.came += 1;
        let me = (deadline_ns.max(scene.now_ns), scene.came);
        scene.waiting.insert(me, ());
        self.next(&mut scene);
        while scene.waiting.len() < scene.actors || scene.waiting.first_key_value() != Some((&me, &())) {
            self.moved.wait(&mut scene);
        }
        scene.waiting.remove(&me);
    }
}

/// A leaf on a disk with a seek time.
struct Leaf {
    stage: Arc<Stage>,
    disk: Spinning,
    precedence: Precedence,
    waited_ns: Arc<Counter>,
}

impl Leaf {
    fn new(rate: u64, seek_ns: u64) -> Self {
        let stage = Arc::new(Stage::default());
        let disk = Spinning::new(Arc::new(MemDevice::new("disk", SIZE)), stage.clone(), rate, seek_ns);
        Self { stage, disk, precedence: Precedence::default(), waited_ns: Arc::default() }
    }

    /// Reads as much as one operation may have; returns how much.
    fn read(&self, pace: Option<&Pace>, offset: u64, len: u64) -> u64 {
        let read = |turn: Turn| {
            self.disk.read_at(&mut vec![0; turn.bytes as usize], offset).unwrap();
            turn.bytes
        };
        self.precedence.run_part(pace, len, read)
    }

    fn pace(&self, hurries: impl Fn() -> bool + Send + Sync + 'static) -> Pace {
        Pace::new(self.stage.clone(), Arc::clone(&self.waited_ns), hurries)
    }

    /// Reads 8 KiB at random places, with pauses of this time, give or take half of it. Returns how
    /// long each read took, sorted.
    fn look_up(&self, times: u64, pause_ns: u64) -> Vec<u64> {
        let mut took: Vec<u64> = (0..times)
            .map(|n| {
                self.stage.sleep_until(self.stage.now_ns() + pause_ns * (50 + n * 37 % 101) / 100);
                let from = self.stage.now_ns();
                self.read(None, ((n + 1) * 7919 % 4096) << 13, 8 << 10);
                self.stage.now_ns() - from
            })
            .collect();
        took.sort_unstable();
        took
    }

    /// Reads the second half from one end to the other in the background, again and again, until
    /// `over`. Returns the bytes.
    fn scan(&self, scan: Scan, over: &AtomicBool) -> u64 {
        let pace = (scan == Scan::Paced).then(|| self.pace(|| false));
        let (mut at, mut bytes) = (0, 0);
        while !over.load(SeqCst) {
            let len = self.read(pace.as_ref(), SIZE / 2 + at, (4 << 20).min(SIZE / 2 - at));
            (at, bytes) = ((at + len) % (SIZE / 2), bytes + len);
        }
        bytes
    }
}

/// The scan beside a reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scan {
    None,
    Paced,
    /// One that never yields.
    Rude,
}

/// What a reader experiences, with a scan beside it or without. Returns how long reads took, how
/// long all of it took, and what the scan read meanwhile.
fn beside(times: u64, pause_ns: u64, scan: Scan) -> (Vec<u64>, u64, u64) {
    let leaf = Leaf::new(RATE, SEEK_NS);
    let over = AtomicBool::new(false);
    let (mut took, mut lasted, mut scanned) = (Vec::new(), 0, 0);
    let mut actors: Vec<Box<dyn FnOnce() + Send + '_>> = vec![Box::new(|| {
        took = leaf.look_up(times, pause_ns);
        lasted = leaf.stage.now_ns();
        over.store(true, SeqCst);
    })];
    if scan != Scan::None {
        actors.push(Box::new(|| scanned = leaf.scan(scan, &over)));
    }
    leaf.stage.play(actors);
    let ms = |percent| percentile(&took, percent) as f64 / MS as f64;
    println!(
        "{scan:?}, reads {} ms apart: median {:.1} ms, p99 {:.1} ms, worst {:.1} ms; scanned at {} MB/s",
        pause_ns / MS,
        ms(50),
        ms(99),
        ms(100),
        scanned * 1000 / lasted
    );
    (took, lasted, scanned)
}

fn percentile(sorted: &[u64], percent: usize) -> u64 {
    sorted[(sorted.len() * percent / 100).min(sorted.len() - 1)]
}

/// Goal: most reads of a reader without pauses take as long as without a scan, and the worst one
/// operation longer. The scan has its share of the disk meanwhile.
#[test]
fn who_reads_again_and_again_meets_it_now_and_then() {
    let (alone, _, _) = beside(2000, 0, Scan::None);
    assert_eq!((percentile(&alone, 0), percentile(&alone, 100)), (SMALL_READ_NS, SMALL_READ_NS));
    let (took, lasted, scanned) = beside(2000, 0, Scan::Paced);
    assert_eq!(percentile(&took, 50), SMALL_READ_NS);
    assert!(percentile(&took, 100) <= SMALL_READ_NS + LARGE_READ_NS, "{took:?}");
    let share = scanned / (1 << 20) * LARGE_READ_NS * 100 / lasted;
    assert!((10..=15).contains(&share), "{share} %");
    // For comparison: a scan that does not yield.
    let (rude, _, _) = beside(2000, 0, Scan::Rude);
    assert!(percentile(&rude, 50) > 4 * SMALL_READ_NS);
}

/// Goal: a reader with pauses waits for one operation at worst, and the scan has most of the disk.
#[test]
fn who_reads_now_and_then_waits_for_one_operation() {
    let (alone, _, _) = beside(300, 100 * MS, Scan::None);
    assert_eq!(percentile(&alone, 100), SMALL_READ_NS);
    let (took, lasted, scanned) = beside(300, 100 * MS, Scan::Paced);
    // The longest operation that this disk does within 10 ms, or a little more.
    assert!(percentile(&took, 100) <= SMALL_READ_NS + LARGE_READ_NS + (1 << 20) * 5, "{took:?}");
    let share = scanned * 5 * 100 / lasted;
    assert!(share >= 60, "{share} %");
    let (rude, _, _) = beside(300, 100 * MS, Scan::Rude);
    assert!(percentile(&rude, 50) > percentile(&took, 50));
}

/// Goal: without a reader nothing waits, and operations become longer where they are quick, until a
/// reader comes.
#[test]
fn alone_it_waits_for_nobody() {
    let leaf = Leaf::new(4_000_000_000, 0);
    let pace = leaf.pace(|| false);
    let paced = Some(&pace);
    leaf.stage.state.lock().actors = 1;
    let mut lens = Vec::new();
    for round in 0..6 {
        lens.push(leaf.read(paced, 0, 4 << 20) >> 20);
        if round == 3 {
            assert_eq!(leaf.read(None, 0, 8 << 20), 8 << 20);
        }
    }
    assert_eq!(lens, [1, 1, 2, 4, 1, 2]);
    // For a moment at the start, and for the reader that came in between.
    assert_eq!(leaf.waited_ns.get(), WINDOW_NS.0 + (4 << 20) / 4);
    // Where operations are not quick, a reader would wait long.
    let leaf = Leaf::new(RATE, 0);
    let pace = leaf.pace(|| false);
    leaf.stage.state.lock().actors = 1;
    // The third and fourth are short, and so say nothing about longer ones.
    let lens = [8, 8, 1, 1, 8, 8, 8].map(|most| leaf.read(Some(&pace), 0, most << 20) >> 20);
    assert_eq!(lens, [1, 2, 1, 1, 2, 2, 2]);
    assert_eq!(leaf.waited_ns.get(), 0);
}

/// An operation of the foreground that doesn't end until this is dropped.
fn stuck(leaf: &Leaf) -> ForegroundOp<'_> {
    leaf.precedence.asked.begun.fetch_add(1, Relaxed);
    ForegroundOp(&leaf.precedence.asked)
}

/// Goal: beside an operation that never ends the background makes progress, in its share of the
/// time. It never waits longer than its patience.
#[test]
fn it_gets_on_whatever_happens() {
    for (took, waits) in [(MS, 6 * MS), (30 * MS, 180 * MS), (2000 * MS, 200 * MS)] {
        let leaf = Leaf::new(RATE, SEEK_NS);
        leaf.stage.state.lock().actors = 1;
        let _stuck = stuck(&leaf);
        let pace = leaf.pace(|| false);
        for n in 0..10 {
            leaf.precedence.run_part(Some(&pace), 0, |_| leaf.stage.sleep_until(leaf.stage.now_ns() + took));
            assert_eq!(leaf.stage.now_ns(), (n + 1) * took + n * waits);
        }
        assert_eq!(leaf.waited_ns.get(), 9 * waits);
    }
}

/// Goal: beside foreground I/O there is one background operation at a time, however many wait.
#[test]
fn one_at_a_time() {
    let leaf = &Leaf::new(RATE, SEEK_NS);
    let _stuck = stuck(leaf);
    let busy = &AtomicBool::new(false);
    let actor = || -> Box<dyn FnOnce() + Send + '_> {
        Box::new(move || {
            let pace = leaf.pace(|| false);
            for _ in 0..20 {
                leaf.precedence.run_part(Some(&pace), 0, |_| {
                    assert!(!busy.swap(true, SeqCst));
                    leaf.stage.sleep_until(leaf.stage.now_ns() + 10 * MS);
                    assert!(busy.swap(false, SeqCst));
                });
            }
        })
    };
    leaf.stage.play(vec![actor(), actor(), actor()]);
    let least = 60 * 10 * MS + 59 * 60 * MS;
    assert!((least..least + 60 * STEP_NS).contains(&leaf.stage.now_ns()), "{}", leaf.stage.now_ns());
}

/// Goal: when a caller waits for it, the background yields no more, and notices that soon.
#[test]
fn it_hurries_when_it_is_waited_for() {
    let leaf = Leaf::new(RATE, SEEK_NS);
    let _stuck = stuck(&leaf);
    let waited_for = Arc::new(AtomicBool::new(false));
    let hurries = Arc::clone(&waited_for);
    let pace = leaf.pace(move || hurries.load(SeqCst));
    let mut began = Vec::new();
    leaf.stage.play(vec![
        Box::new(|| {
            for _ in 0..4 {
                leaf.precedence.run_part(Some(&pace), 0, |_| {
                    began.push(leaf.stage.now_ns());
                    leaf.stage.sleep_until(leaf.stage.now_ns() + 60 * MS);
                });
            }
        }),
        Box::new(|| {
            leaf.stage.sleep_until(100 * MS);
            waited_for.store(true, SeqCst);
        }),
    ]);
    let [first, second, third, fourth] = began[..] else { panic!("{began:?}") };
    assert_eq!(first, 0);
    assert!((100 * MS..=100 * MS + STEP_NS).contains(&second), "{began:?}");
    assert_eq!((third, fourth), (second + 60 * MS, second + 120 * MS));
}

/// Time that stands still.
struct NoTime;

impl Clock for NoTime {
    fn now_ns(&self) -> u64 {
        0
    }

    fn sleep_until(&self, _: u64) {}
}

/// Goal: reads and writes of many blocks together take their turn on each device, in parts.
#[test]
fn every_device_is_asked_in_turn() {
    use crate::tests::{open, root, top};
    use crate::{Extent, Priority, Request, VdevAux, VdevKind, VdevState};
    use device::Block;
    use ondisk::{Guid, Psize, Txg, VdevId};

    let (tree, _) = open(&root(vec![top(VdevKind::Mirror, 3)]), 3);
    let reads = || {
        tree.devices().map(|(guid, _)| tree.stats(guid).unwrap().ops(crate::IoType::Read)).collect::<Vec<_>>()
    };
    let good = Block::copy_of(&[7; 1 << 20]);
    let blocks: Vec<Extent> = (0..3)
        .map(|n| Extent { vdev: VdevId(0), offset: n << 20, psize: Psize(1 << 20), birth: Txg(9) })
        .collect();
    for child in [100, 101] {
        tree.set_state(Guid(child), VdevState::Offline, VdevAux::None).unwrap();
    }
    let write = Request::new(Priority::AsyncWrite);
    for block in &blocks {
        tree.write_block(VdevId(0), block.offset, &good, block.birth, &write).unwrap();
    }
    for child in [100, 101] {
        tree.set_state(Guid(child), VdevState::Healthy, VdevAux::None).unwrap();
    }
    let turns = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&turns);
    let pace = Pace::new(Arc::new(NoTime), Arc::default(), move || {
        counted.fetch_add(1, Relaxed);
        false
    });
    let lacking: Vec<_> = blocks
        .iter()
        .flat_map(|block| tree.lay_out_missed(VdevId(0), block.offset, &good, block.birth).unwrap().0)
        .collect();
    tree.fetch(&blocks, true, &Request::new(Priority::Resilver));
    assert_eq!((reads(), turns.load(Relaxed)), (vec![1; 3], 0));
    let paced = Request::paced(Priority::Resilver, pace);
    tree.fetch(&blocks, true, &paced);
    assert_eq!((reads(), turns.swap(0, Relaxed)), (vec![4; 3], 9));
    let filled = tree.refill(&lacking, &paced);
    assert_eq!(filled.iter().map(|done| done.repaired).sum::<u64>(), 2 * (3 << 20));
    // Runs of 1 MiB, on two devices.
    assert_eq!(turns.swap(0, Relaxed), 6);
    tree.refill(&lacking, &Request::new(Priority::Resilver));
    assert_eq!(turns.load(Relaxed), 0);
}
