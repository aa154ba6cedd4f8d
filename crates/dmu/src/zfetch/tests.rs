//! Streams are found and followed, and reads without a stream start no prefetch.

use super::*;

const SHAPE: Shape = Shape { block: 1 << 17, last: 10_000, epbs: Some(10) };
const FETCH: Fetch = Fetch { data: true, roomy: true };

/// A reader for which prefetched blocks arrive at once.
#[derive(Default)]
struct Reader {
    streams: Streams,
    counters: Counters,
    there: std::collections::BTreeSet<u64>,
    above: std::collections::BTreeSet<u64>,
    missed: u64,
    now: u64,
    /// Requested blocks.
    asked: u64,
    /// Prefetched blocks are forgotten, and may be requested again.
    forgets: bool,
}

impl Reader {
    fn read(&mut self, blkid: u64) {
        let came = if self.there.remove(&blkid) { BlockOrigin::Prefetched } else { BlockOrigin::Missed };
        self.missed += u64::from(came == BlockOrigin::Missed);
        for wish in self.streams.note(blkid, came, SHAPE, FETCH, self.now, &self.counters) {
            for n in 0..wish.count {
                let at = wish.next.wrapping_add_signed(wish.step * n as i64);
                assert!(at <= SHAPE.last, "within the object");
                let new = if wish.level == 0 { self.there.insert(at) } else { self.above.insert(at) };
                self.asked += 1;
                assert!(new || self.forgets, "{at} is asked for once");
            }
        }
    }
}

/// Goal: a reader from front to back waits for two blocks only. While it does not wait, the
/// prefetch distance grows to its bound and no further. The stream ends with the object.
#[test]
fn from_front_to_back() {
    let mut r = Reader::default();
    (0..1000).for_each(|b| r.read(b));
    assert_eq!(r.missed, 2);
    assert_eq!(r.there.len(), 32, "4 MiB");
    assert_eq!((r.counters.hits.get(), r.counters.misses.get()), (998, 2));
    assert!(r.above.len() <= 3 && r.above.contains(&1), "{:?}", r.above);
    (1000..=SHAPE.last).for_each(|b| r.read(b));
    assert!(r.missed == 2 && r.there.is_empty() && r.streams.streams.is_empty());
    assert_eq!(r.above, (1..=9).collect());
}

/// Goal: the same holds in steps, backwards, and for several streams at a time.
#[test]
fn in_steps() {
    let steps: [fn(u64) -> u64; 3] = [|n| 100 + 7 * n, |n| 9000 - n, |n| 9000 - 3 * n];
    for at in steps {
        let mut r = Reader::default();
        (0..500).for_each(|n| r.read(at(n)));
        assert_eq!(r.missed, 4, "from {} to {}", at(0), at(1));
    }
    let mut r = Reader::default();
    (0..500).for_each(|n| (0..4).for_each(|k| r.read(k * 2000 + n)));
    assert_eq!(r.missed, 8);
}

/// Goal: blocks out of order, as from readers that share a stream, belong to it. A few skipped
/// blocks don't end the stream.
#[test]
fn out_of_order() {
    let mut r = Reader::default();
    (0..10).for_each(|b| r.read(b));
    for of in (10..1000).step_by(4) {
        [2, 0, 3, 1].iter().for_each(|n| r.read(of + n));
    }
    assert_eq!(r.missed, 2);
    assert!(r.counters.past.get() > 0);
    // The skipped blocks are in memory already, so they are not reported.
    let mut r = Reader::default();
    (0..1000).filter(|n| *n < 100 || n % 100 > 15).for_each(|b| r.read(b));
    assert_eq!(r.missed, 2);
}

/// Goal: random reads cause nearly no prefetch, in a large object and in a small one.
#[test]
fn here_and_there() {
    for blocks in [10_000, 500] {
        let mut r = Reader { forgets: true, ..Reader::default() };
        let mut x = 12345u64;
        for _ in 0..2000 {
            x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            r.read((x >> 33) % blocks);
            r.there.clear();
        }
        assert!(r.asked < if blocks > 1000 { 20 } else { 200 }, "{} of 2000 in {blocks}", r.asked);
    }
}

/// Goal: idle streams lose their place to new ones, and as many as the limit allows keep theirs for
/// a moment.
#[test]
fn places() {
    let mut r = Reader::default();
    for s in 0..12 {
        (0..3).for_each(|n| r.read(s * 800 + n));
    }
    assert_eq!(r.streams.streams.len(), 8);
    assert!(r.counters.max_streams.get() > 0);
    r.now = 10;
    (9700..9703).for_each(|b| r.read(b));
    assert_eq!(r.streams.streams.len(), 1, "the others are forgotten");
}

/// Goal: with metadata alone, only indirect blocks are requested. Only a waiting reader widens a
/// stream beyond the first bound.
#[test]
fn how_far() {
    let mut streams = Streams::default();
    let metadata = Fetch { data: false, roomy: true };
    let wishes =
        (0..600).flat_map(|b| streams.note(b, BlockOrigin::Missed, SHAPE, metadata, 0, &Counters::default()));
    let wishes: Vec<PrefetchRange> = wishes.collect();
    assert!(!wishes.is_empty() && wishes.iter().all(|w| w.level == 1));
    let mut streams = Streams::default();
    (0..600).for_each(|b| drop(streams.note(b, BlockOrigin::Late, SHAPE, FETCH, 0, &Counters::default())));
    assert_eq!(streams.streams[0].asked, (64 << 20) / SHAPE.block, "64 MiB");
}

/// Goal: the number of remembered objects is bounded, whatever is read in however many file
/// systems. Objects that are read in order stay, while others are read at random.
#[test]
fn only_so_many() {
    let mut objects = Objects::new();
    let counters = Counters::default();
    let read = |objects: &mut Objects, name, blkid, ms| {
        let object = object_of(objects, name, ms);
        let _ = object.streams.note(blkid, BlockOrigin::Missed, SHAPE, FETCH, ms / 1000, &counters);
    };
    let stream = (7, ObjNum(8));
    for n in 0..1000 {
        read(&mut objects, stream, n, n);
        for other in 0..12 {
            read(&mut objects, (n, ObjNum(1000 + other)), n * 40 % 700, n);
        }
        assert!(objects.len() <= OBJECTS);
    }
    assert!(objects[&stream].streams.is_followed(1));
    assert!(counters.hits.get() >= 990, "{}", counters.hits.get());
    // The object is replaced in the end.
    (0..20).for_each(|other| read(&mut objects, (1, ObjNum(other)), 5, 10_000));
    assert!(!objects.contains_key(&stream));
}
