use super::*;

const K: u64 = 1024;

fn write_hand() -> WriteHand {
    WriteHand::new(100 * K, 200 * K)
}

/// Frees space, and writes this many bytes. Returns what it evicted for them.
fn write(h: &mut WriteHand, bytes: u64) -> Vec<(u64, u64)> {
    let gone = h.make_way(25 * K);
    h.hand += bytes;
    gone.iter().map(|range| (range.start, range.end)).collect()
}

/// Goal: on the first round nothing is given up. Later, what is in front of the hand is, and no
/// more than needed. A write never passes the end.
#[test]
fn the_hand_goes_round() {
    let mut h = write_hand();
    for n in 0..4 {
        assert_eq!(write(&mut h, 25 * K), [], "write {n}");
    }
    assert_eq!((h.hand, h.first), (200 * K, true));
    assert_eq!(write(&mut h, 20 * K), [(100 * K, 125 * K)]);
    assert_eq!((h.hand, h.evict, h.first), (120 * K, 125 * K, false));
    // What was given up and not used is not given up again.
    assert_eq!(write(&mut h, 25 * K), [(120 * K, 145 * K)]);
    assert_eq!(write(&mut h, 25 * K), [(145 * K, 170 * K)]);
    assert_eq!(write(&mut h, 25 * K), [(170 * K, 195 * K)]);
    assert_eq!(h.hand, 195 * K);
    assert_eq!(write(&mut h, 1), [(195 * K, 200 * K), (100 * K, 125 * K)]);
    assert_eq!((h.hand, h.evict), (100 * K + 1, 125 * K));
}

/// Goal: what was written and not given up is valid, on either side of the end.
#[test]
fn what_is_given_up_is_not_alive() {
    let mut h = write_hand();
    assert!(!h.holds(100 * K, 1), "nothing was written");
    write(&mut h, 25 * K);
    assert!(h.holds(100 * K, 25 * K));
    assert!(!h.holds(100 * K, 25 * K + 1));
    for _ in 0..4 {
        write(&mut h, 25 * K);
    }
    h.make_way(25 * K);
    assert_eq!((h.hand, h.evict), (125 * K, 150 * K));
    assert!(h.holds(100 * K, 25 * K) && h.holds(150 * K, 50 * K));
    assert!(!h.holds(130 * K, 1) && !h.holds(149 * K, 2 * K) && !h.holds(124 * K, 2 * K));
    assert!(!h.holds(99 * K, 2 * K) && !h.holds(199 * K, 2 * K) && !h.holds(u64::MAX, 1));
}

/// Goal: a chain of log blocks leads from younger to older ones, or nowhere, also where it wraps
/// round the end.
#[test]
fn a_chain_never_leads_in_a_circle() {
    let mut h = write_hand();
    for _ in 0..5 {
        write(&mut h, 25 * K);
    }
    h.make_way(25 * K);
    let log = |payload_start, daddr| LogPointer { daddr, payload_start, asize: K, ..LogPointer::default() };
    let (newest, older) = (log(110 * K, 120 * K), log(190 * K, 105 * K));
    assert!(h.valid(&newest) && h.valid(&older));
    let mut bound = u64::MAX;
    let mut leads = |log: &LogPointer| h.older(log.daddr, log.asize, &mut bound);
    assert!(leads(&newest) && !leads(&newest) && leads(&older) && !leads(&newest));
    assert!(h.named_by(&older, 195 * K, K) && h.named_by(&older, 101 * K, K));
    assert!(!h.named_by(&older, 180 * K, K) && !h.named_by(&older, 105 * K, K));
    assert!(!h.valid(&log(140 * K, 155 * K)), "its first blocks were given up");
    assert!(!h.valid(&LogPointer::default()));
}

/// Goal: nothing that is found overlaps what was found before.
#[test]
fn nothing_lies_on_another() {
    let mut h = write_hand();
    write(&mut h, 25 * K);
    let mut bound = u64::MAX;
    assert!(h.older(110 * K, 5 * K, &mut bound));
    assert!(!h.older(110 * K, K, &mut bound) && !h.older(108 * K, 2 * K + 1, &mut bound));
    assert!(!h.older(124 * K, 2 * K, &mut bound), "it is not alive");
    assert!(h.older(108 * K, 2 * K, &mut bound) && !h.older(109 * K, K, &mut bound));
    assert!(h.older(100 * K, 8 * K, &mut bound) && !h.older(100 * K, 1, &mut bound));
}

/// Goal: a header that was written when a round had just begun leads to what is behind the mark. A
/// header with positions that are not on the device leads nowhere.
#[test]
fn a_round_that_has_just_begun() {
    let mut h = write_hand();
    for _ in 0..4 {
        write(&mut h, 20 * K);
    }
    let newest = h.hand;
    assert_eq!((newest, h.first), (180 * K, true));
    assert_eq!(write_hand().resumed(newest, h.evict, true), Some(h));
    h.make_way(25 * K);
    assert_eq!((h.hand, h.evict, h.first), (100 * K, 125 * K, false));
    assert_eq!(write_hand().resumed(newest, h.evict, false), Some(h));
    assert!(h.holds(160 * K, 20 * K) && !h.holds(120 * K, K));
    // Once something was logged in it.
    write(&mut h, 20 * K);
    assert_eq!(write_hand().resumed(h.hand, h.evict, false), Some(h));
    assert_eq!(write_hand().resumed(201 * K, 125 * K, false), None);
    assert_eq!(write_hand().resumed(110 * K, 99 * K, false), None);
}
