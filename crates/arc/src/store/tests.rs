//! The store keeps its limit, lets no scan push out what is used again, learns from ghosts, and
//! gives one read to all its readers.

use super::*;
use ondisk::blkptr::{Body, CryptParams, Stored};
use ondisk::*;
use proptest::prelude::*;

/// A store with a settable clock.
struct Rig {
    store: Arc<Store>,
    now: Arc<AtomicU32>,
}

fn pointer(n: u64, kind: DmuType, crypt: bool) -> Blkptr {
    let dva = Dva { vdev: VdevId(0), offset: Offset(n << 12), asize: Asize(4096), gang: false };
    let stored = Stored {
        dvas: [Some(dva), None, None],
        psize: Psize(4096),
        compress: CompressKind::Off,
        checksum: ChecksumKind::Fletcher4,
        sum: [n; 4],
        phys_birth: Txg(1),
        fill: 1,
        dedup: false,
        crypt,
        crypt_params: CryptParams { salt: [0; 8], iv: [0; 12] },
    };
    Blkptr { kind, lsize: Lsize(4096), body: Body::Stored(stored), ..Blkptr::HOLE }
}

impl Rig {
    fn new(max: u64) -> Rig {
        let now = Arc::new(AtomicU32::new(0));
        let told = now.clone();
        Rig { store: Store::with_clock(max, Box::new(move || told.load(Ordering::Relaxed))), now }
    }

    fn later(&self) {
        self.now.fetch_add(1000, Ordering::Relaxed);
    }

    fn key_of(&self, n: u64, pool: u32) -> Key {
        self.store.key(&pointer(n, DmuType::PLAIN_FILE_CONTENTS, false), 1, pool).unwrap()
    }

    fn key(&self, n: u64) -> Key {
        self.key_of(n, 0)
    }

    fn find(&self, n: u64) -> Found {
        self.store.find_or_start(&self.key(n), false, Arc::default, None)
    }

    /// Reads a block, without other readers; returns whether it was there.
    fn read(&self, n: u64) -> bool {
        match self.find(n) {
            Found::Block(..) => true,
            Found::PendingRead(..) => panic!("nobody else reads"),
            Found::Nothing => {
                self.store.land(&self.key(n), Some(&Block::zeroed(4096).into()), None, false);
                false
            }
        }
    }

    fn held(&self, n: u64) -> bool {
        self.store.inner.bucket(&self.key(n)).lock().holds(&self.key(n))
    }

    fn named(&self, name: &str) -> u64 {
        self.store.named().into_iter().find(|(n, _)| *n == name).map(|(_, value)| value).unwrap()
    }

    /// Waits until there is nothing to evict.
    fn settle(&self) {
        assert!(self.store.wake(), "there can be threads");
        self.store.inner.pressure.await_round();
    }

    /// Checks that the counters match the contents, once nothing is being evicted.
    fn check(&self) {
        let inner = &self.store.inner;
        if matches!(*self.store.thread.lock(), Evictor::Runs(_)) {
            inner.pressure.await_rest();
        }
        let mut sums = [(0, 0); State::LISTS];
        let (mut compressed, mut uncompressed, mut overhead, mut both) = (0, 0, 0, 0);
        for bucket in &inner.buckets {
            for Entry(h) in &bucket.lock().entries {
                let sum = &mut sums[h.state().list(h.key.kind())];
                *sum = (sum.0 + h.bytes(), sum.1 + 1);
                let packed = h.forms.packed().map(|p| p.len() as u64);
                let plain = match h.forms.get() {
                    Form::Plain(plain) => Some(plain.len() as u64),
                    Form::Packed(_) | Form::Nothing => None,
                };
                assert_eq!(plain.or(packed).is_some(), !h.state().is_ghost());
                assert_eq!(plain.is_some() && packed.is_some(), h.is_both());
                if !h.state().is_ghost() {
                    assert_eq!(h.bytes(), plain.unwrap_or(0) + packed.unwrap_or(0));
                    compressed += packed.or(plain).unwrap();
                    uncompressed += if packed.is_some() { h.key.lsize() as u64 } else { plain.unwrap() };
                }
                if h.is_both() {
                    (overhead, both) = (overhead + plain.unwrap(), both + 1);
                }
            }
        }
        let told = ["compressed_size", "uncompressed_size", "overhead_size"].map(|name| self.named(name));
        assert_eq!(told, [compressed, uncompressed, overhead]);
        assert_eq!(inner.packed.both_count.load(Ordering::Relaxed), both);
        assert!(inner.packed.both.evenness().all >= both, "each is in its list");
        let parts = ["data_size", "metadata_size", "hdr_size"].map(|name| self.named(name));
        assert_eq!(parts.iter().sum::<u64>(), inner.pressure.size());
        let mut size = both * BOTH_OVERHEAD;
        for (list, (bytes, count)) in sums.into_iter().enumerate() {
            assert_eq!(inner.sums[list].bytes.load(Ordering::Relaxed), bytes);
            assert_eq!(inner.sums[list].count.load(Ordering::Relaxed), count);
            assert!(inner.lists[list].evenness().all >= count, "each is in its list");
            size += if list < 4 { bytes + count * HELD_OVERHEAD } else { count * GHOST_OVERHEAD };
        }
        assert_eq!(inner.pressure.size(), size);
        assert!(size <= inner.pressure.max());
    }
}

const ENTRY: u64 = 4096 + HELD_OVERHEAD;

/// Goal: two datasets share a block without a key, but not one that needs a key. Pools share
/// nothing.
#[test]
fn keyed_blocks_are_their_datasets_own() {
    let rig = Rig::new(1 << 20);
    let key = |kind, crypt, objset, pool| rig.store.key(&pointer(1, kind, crypt), objset, pool);
    let same = |kind, crypt| key(kind, crypt, 1, 0) == key(kind, crypt, 2, 0);
    assert!(same(DmuType::PLAIN_FILE_CONTENTS, false));
    assert!(!same(DmuType::PLAIN_FILE_CONTENTS, true), "encrypted");
    assert!(!same(DmuType::OBJSET, true), "authenticated");
    assert!(rig.key_of(1, 0) != rig.key_of(1, 1));
}

/// Goal: however many blocks and threads, no more is held than the limit, and the newest blocks are
/// there.
#[test]
fn bounded() {
    let rig = Rig::new(64 * ENTRY);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let rig = &rig;
            scope.spawn(move || {
                for n in 0..1000 {
                    rig.read(thread << 32 | n);
                    assert!(rig.store.stats().size <= 64 * ENTRY);
                }
            });
        }
    });
    rig.settle();
    rig.check();
    assert!(!rig.read(7 << 32) && rig.read(7 << 32), "the newest block is there");
    assert!(rig.named("deleted") > 3000);
}

/// Goal: blocks that were used twice, and not at once, outlive a scan of many that are used once.
/// It does not matter how often each part of the scan is used.
#[test]
fn scan_resistant() {
    let rig = Rig::new(64 * ENTRY);
    for _ in 0..2 {
        (0..4).for_each(|n| {
            rig.read(n);
        });
        rig.later();
    }
    assert_eq!(rig.named("mfu_size"), 4 * 4096);
    for n in 100..1000 {
        rig.read(n);
        assert!(rig.read(n));
    }
    assert_eq!(rig.named("mfu_size"), 4 * 4096);
    assert!((0..4).all(|n| rig.read(n)));
    rig.settle();
    rig.check();
}

/// Goal: a working set larger than the share of blocks used once gets more of the cache, by its
/// ghosts. Blocks found by their ghosts count as used again.
#[test]
fn ghosts_teach() {
    let rig = Rig::new(64 * ENTRY);
    for _ in 0..2 {
        (0..60).for_each(|n| {
            rig.read(n);
        });
        rig.later();
    }
    let before = rig.named("pd");
    for n in 1000..1200 {
        rig.read(n);
    }
    rig.settle();
    let ghosts: Vec<u64> = (1000..1200).filter(|n| !rig.held(*n)).collect();
    let met = rig.named("mru_ghost_hits");
    ghosts.iter().rev().take(10).for_each(|n| assert!(!rig.read(*n)));
    assert!(rig.named("mru_ghost_hits") > met, "{} ghosts", rig.named("mru_ghost_size"));
    assert!(rig.named("pd") > before);
    rig.settle();
    rig.check();
}

/// Goal: a block that was used since the last look is skipped once.
#[test]
fn what_is_used_stays() {
    let rig = Rig::new(64 * ENTRY);
    rig.read(1);
    for n in 100..400 {
        rig.read(n);
        rig.settle();
        assert!(rig.read(1), "at {n}");
    }
}

/// Goal: a query whether a block is there is no use: it is evicted as if there had been none.
#[test]
fn asking_is_no_use() {
    let rig = Rig::new(16 * ENTRY);
    assert!(!rig.store.holds(&rig.key(1)));
    assert!(!rig.read(1));
    assert!(rig.store.holds(&rig.key(1)) && !rig.store.holds(&rig.key(2)));
    for n in 2..100 {
        rig.store.holds(&rig.key(1));
        rig.read(n);
    }
    rig.settle();
    assert!(!rig.store.holds(&rig.key(1)), "it was used once");
}

/// Goal: a block that was written with zeros at its end takes the memory of what it holds. Once it
/// was read whole, it takes all of it.
#[test]
fn sparse() {
    let rig = Rig::new(1 << 20);
    let half = Sparse::new(Block::copy_of(&[7; 512]), 4096);
    rig.store.insert(&rig.key(1), &half, None);
    assert_eq!(rig.store.stats().size, 512 + HELD_OVERHEAD);
    let Found::Block(found, _) = rig.find(1) else { panic!("it is not there") };
    rig.store.complete(&rig.key(1), &found.whole());
    rig.store.complete(&rig.key(1), &found.whole());
    assert_eq!(rig.store.stats().size, ENTRY);
    let Found::Block(found, _) = rig.find(1) else { panic!("it is not there") };
    assert!(found.is_whole() && found.whole() == half.whole());
    rig.store.complete(&rig.key(2), &found.whole());
    assert!(!rig.read(2));
    rig.check();
}

/// Goal: a second reader joins the first one's flight. A block that is read while the cache is
/// purged is not kept, and another pool's stay.
#[test]
fn flights() {
    let rig = Rig::new(1 << 20);
    rig.store.insert(&rig.key_of(9, 1), &Block::zeroed(4096).into(), None);
    let first = Arc::<PendingRead>::default();
    let found = rig.store.find_or_start(&rig.key(1), false, || first.clone(), None);
    assert!(matches!(found, Found::Nothing));
    let Found::PendingRead(joined, false) = rig.find(1) else { panic!("did not join") };
    assert!(Arc::ptr_eq(&first, &joined));
    rig.store.purge(0);
    rig.store.land(&rig.key(1), Some(&Block::zeroed(4096).into()), None, false);
    assert_eq!(rig.store.stats().size, ENTRY);
    assert!(!rig.read(1));
    rig.store.purge(0);
    rig.store.purge(1);
    assert_eq!(rig.store.stats().size, 0);
    rig.check();
}

/// Goal: a block is dropped by a pointer from a list of freed blocks, which has no checksum. Other
/// blocks that a pool claims to be in its place stay.
#[test]
fn freed_by_a_list() {
    let rig = Rig::new(1 << 20);
    rig.read(1);
    let listed = |kind| {
        let mut bp = pointer(1, kind, false);
        let Body::Stored(stored) = &mut bp.body else { panic!("it is stored") };
        stored.sum = [0; 4];
        rig.store.key(&bp, 1, 0).unwrap().with_any_sum()
    };
    rig.store.forget(&listed(DmuType::DNODE));
    assert_eq!(rig.store.stats().size, ENTRY);
    rig.store.forget(&listed(DmuType::PLAIN_FILE_CONTENTS));
    assert_eq!(rig.store.stats().size, 0);
    assert!(!rig.read(1));
}

/// Goal: a freed block takes no memory, nor does one that was being read when it was freed. Others
/// stay. A store with a lower limit holds less.
#[test]
fn freed() {
    let rig = Rig::new(1 << 20);
    rig.read(1);
    rig.read(2);
    rig.later();
    assert!(rig.read(2));
    rig.read(3);
    (2..5).for_each(|n| rig.store.forget(&rig.key(n)));
    assert_eq!(rig.store.stats().size, ENTRY);
    assert!(matches!(rig.find(5), Found::Nothing));
    rig.store.forget(&rig.key(5));
    rig.store.land(&rig.key(5), Some(&Block::zeroed(4096).into()), None, false);
    assert_eq!(rig.store.stats().size, ENTRY);
    assert!(rig.read(1) && !rig.read(5));
    (10..20).for_each(|n| {
        rig.read(n);
    });
    rig.store.set_max(2 * ENTRY);
    assert!(rig.store.stats().size <= 2 * ENTRY);
    rig.check();
    rig.store.set_max(0);
    assert!(!rig.read(30) && !rig.read(30));
}

/// Goal: blocks that come and go without eviction leave nothing behind: stale references are swept.
#[test]
fn churn_leaves_nothing() {
    let rig = Rig::new(64 << 20);
    (0..100).for_each(|n| {
        rig.read(n);
    });
    for n in 1000..40_000 {
        rig.read(n);
        rig.store.forget(&rig.key(n));
    }
    let left: u64 = rig.store.sublists().map(|s| s.evenness.all).sum();
    assert!(left < 4 * 400, "{left} references to 100 blocks");
    rig.check();
}

/// Goal: blocks are spread evenly over the sublists, and over as many as are set.
#[test]
fn sublists_are_even() {
    let rig = Rig::new(256 << 20);
    (0..8000).for_each(|n| {
        rig.read(n);
    });
    let of = |list: &str| rig.store.sublists().find(|s| s.list == list).unwrap().evenness;
    let evenness = of("mru_data");
    assert_eq!(evenness.all, 8000);
    assert!(evenness.sublists >= 4 && evenness.percent() > 80, "{evenness:?}");
    assert_eq!(of("mfu_data").percent(), 100, "nothing is even");
}

#[derive(Debug, Clone)]
enum Step {
    Read(u64),
    ReadPacked(u64),
    Insert(u64),
    Forget(u64),
    Later,
    Limit(u64),
    Purge,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0..60u64).prop_map(Step::Read),
        8 => (60..120u64).prop_map(Step::ReadPacked),
        2 => (0..60u64).prop_map(Step::Insert),
        2 => (0..120u64).prop_map(Step::Forget),
        2 => Just(Step::Later),
        1 => (0..40u64).prop_map(Step::Limit),
        1 => Just(Step::Purge),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Goal: after any steps the sums match the contents, the limit holds, and a dropped block is
    /// not found.
    #[test]
    fn sums_hold(steps in proptest::collection::vec(step(), 1..200)) {
        let rig = Rig::new(20 * ENTRY);
        for step in steps {
            match step {
                Step::Read(n) => {
                    rig.read(n);
                }
                Step::ReadPacked(n) => {
                    packed::read(&rig, n);
                }
                Step::Insert(n) => rig.store.insert(&rig.key(n), &Block::zeroed(4096).into(), None),
                Step::Forget(n) => {
                    rig.store.forget(&rig.key(n));
                    rig.store.forget(&packed::lz4(&rig, n));
                    assert!(!rig.held(n) && !rig.store.holds(&packed::lz4(&rig, n)));
                }
                Step::Later => rig.later(),
                Step::Limit(n) => rig.store.set_max(n * ENTRY),
                Step::Purge => rig.store.purge(0),
            }
        }
        rig.settle();
        rig.check();
    }
}

/// Goal: a block that was used again gives a hand. The hand leads to it as long as it is held, and
/// to nothing once it was evicted, dropped or purged.
#[test]
fn hands_hold_nothing() {
    let rig = Rig::new(64 * ENTRY);
    let kept = std::cell::RefCell::new(None);
    let keep = |hand| *kept.borrow_mut() = Some(hand);
    let hand = |n: u64| {
        rig.read(n);
        for _ in 0..2 {
            assert!(kept.take().is_none(), "used once");
            let found = rig.store.find_or_start(&rig.key(n), false, Arc::default, Some(&keep));
            assert!(matches!(found, Found::Block(..)));
            rig.later();
        }
        kept.take().expect("used again")
    };
    let (forgotten, evicted, purged) = (hand(1), hand(2), hand(3));
    let before = rig.store.stats();
    assert!(rig.store.by_ref(&forgotten).is_some_and(|b| b.len() == forgotten.len()));
    let after = rig.store.stats();
    assert_eq!((after.hits, after.by_ref), (before.hits + 1, before.by_ref + 1));
    rig.store.forget(&rig.key(1));
    assert!(rig.store.by_ref(&forgotten).is_none());
    assert!(!rig.read(1), "forgotten");
    assert!(rig.store.by_ref(&forgotten).is_none(), "another header has it now");
    rig.store.set_max(0);
    rig.settle();
    assert!(rig.store.by_ref(&evicted).is_none());
    rig.store.set_max(64 * ENTRY);
    rig.read(3);
    rig.store.purge(0);
    assert!(rig.store.by_ref(&purged).is_none());
    assert_eq!(rig.store.stats().by_ref, after.by_ref);
    rig.check();
}

/// Reads a block ahead; returns whether a device was needed.
fn ahead(rig: &Rig, n: u64) -> bool {
    match rig.store.find_or_start(&rig.key(n), true, || PendingRead::new(true), None) {
        Found::Nothing => {
            rig.store.land(&rig.key(n), Some(&Block::zeroed(4096).into()), None, true);
            true
        }
        Found::Block(..) | Found::PendingRead(..) => false,
    }
}

/// Goal: the first use of a block that was read ahead is its first, however long it was here. Reads
/// ahead count as such, and so do those that are never used.
#[test]
fn read_ahead() {
    let rig = Rig::new(1 << 20);
    assert!(ahead(&rig, 1) && !ahead(&rig, 1));
    rig.later();
    assert!(matches!(rig.find(1), Found::Block(_, true)));
    assert_eq!((rig.named("mru_hits"), rig.named("mfu_size")), (1, 0), "no second use");
    rig.later();
    assert!(matches!(rig.find(1), Found::Block(_, false)));
    assert_eq!(rig.named("mfu_size"), 4096, "a second one");
    assert_eq!(rig.named("demand_hit_predictive_prefetch"), 1);
    assert_eq!((rig.named("prefetch_data_misses"), rig.named("prefetch_data_hits")), (1, 1));
    assert_eq!((rig.named("demand_data_misses"), rig.named("demand_data_hits")), (0, 2));
    // A block that a reader waits for while it is read ahead is used when it comes.
    let flight = || PendingRead::new(true);
    assert!(matches!(rig.store.find_or_start(&rig.key(2), true, flight, None), Found::Nothing));
    assert!(matches!(rig.find(2), Found::PendingRead(_, true)));
    assert!(matches!(rig.find(2), Found::PendingRead(_, false)), "told once");
    rig.store.land(&rig.key(2), Some(&Block::zeroed(4096).into()), None, true);
    assert!(matches!(rig.find(2), Found::Block(_, false)));
    assert_eq!(rig.named("demand_iohit_predictive_prefetch"), 1);
    assert_eq!(rig.store.inner.ahead.load(Ordering::Relaxed), 0);
    rig.check();
}

/// Goal: nothing is read ahead into a full cache, nor more than a part of it. Eviction of unused
/// blocks allows more.
#[test]
fn ahead_in_its_place() {
    let rig = Rig::new(64 * ENTRY);
    let may = |n: u64| rig.store.may_read_ahead(&rig.key(n));
    let most = (0..64).take_while(|n| may(*n) && ahead(&rig, *n)).count();
    assert_eq!(most, 16, "a quarter");
    (0..8).for_each(|n| assert!(rig.read(n)));
    assert!(may(100), "what was asked for is used");
    (8..16).for_each(|n| rig.store.forget(&rig.key(n)));
    assert_eq!(rig.store.inner.ahead.load(Ordering::Relaxed), 0);
    // Completely full, as when the eviction is too slow.
    let left = rig.store.max() - rig.store.stats().size;
    assert!(rig.store.inner.pressure.take(left, || false) == Reserved::Yes);
    assert!(!may(200) && rig.named("prefetch_data_misses") == 16);
    assert!(rig.store.zfetch().throttled.get() >= 2);
    rig.store.inner.pressure.give(left);
}

mod limit;
mod packed;

/// Goal: evicted blocks count by whether a cache device might have them, and by whether they were
/// used again, also without such a device. The bytes are uncompressed, whatever form is held.
#[test]
fn evicted_by_what_may_be_elsewhere() {
    let rig = Rig::new(32 * ENTRY);
    let evicted = || {
        ["cached", "eligible_mru", "eligible_mfu", "ineligible"]
            .map(|what| rig.named(&format!("evict_l2_{what}")) / 4096)
    };
    let pass = |ns: std::ops::Range<u64>, keep: bool| {
        for n in ns {
            let mut key = rig.key(n);
            if keep {
                key.keep_from_l2();
            }
            assert!(matches!(rig.store.find_or_start(&key, false, Arc::default, None), Found::Nothing));
            rig.store.land(&key, Some(&Block::zeroed(4096).into()), None, false);
            rig.settle();
        }
    };
    let deleted = || rig.named("deleted");
    pass(0..200, false);
    let once = deleted();
    assert!(once > 150);
    assert_eq!(evicted(), [0, once, 0, 0]);
    pass(1000..1200, true);
    let [cached, mru, mfu, kept] = evicted();
    assert_eq!((cached, mfu, mru + kept), (0, 0, deleted()));
    assert!(kept > 150 && mru < 250, "{mru} {kept}");
    // Used again, and pushed out by others that are.
    for round in 0..4 {
        for n in 2000..2100 {
            rig.read(n);
            rig.later();
            rig.read(n);
            if round == 0 {
                rig.settle();
            }
        }
    }
    rig.settle();
    let [cached, mru, mfu, kept] = evicted();
    assert_eq!((cached, mru + mfu + kept), (0, deleted()));
    assert!(mfu > 0);
    assert_eq!(rig.named("evict_l2_eligible") / 4096, mru + mfu);
    rig.check();
}
