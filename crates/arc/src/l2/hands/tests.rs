use super::*;

const K: u64 = 1024;

fn hands() -> Hands {
    Hands::new(100 * K, 200 * K)
}

/// Makes way, and writes so much; what was given up for it.
fn write(h: &mut Hands, bytes: u64) -> Vec<(u64, u64)> {
    let gone = h.make_way(25 * K);
    h.hand += bytes;
    gone.iter().map(|range| (range.start, range.end)).collect()
}

/// On the first round nothing is given up; then what lies in front of the hand, and no more than is asked for; a write never passes the end.
#[test]
fn the_hand_goes_round() {
    let mut h = hands();
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

/// What is alive is what was written and not given up, on either side of the end.
#[test]
fn what_is_given_up_is_not_alive() {
    let mut h = hands();
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

/// A chain of log blocks leads from younger to older ones, or nowhere: also one that wraps round the end.
#[test]
fn a_chain_never_leads_in_a_circle() {
    let mut h = hands();
    for _ in 0..5 {
        write(&mut h, 25 * K);
    }
    h.make_way(25 * K);
    let log = |payload_start, daddr| LogPointer { daddr, payload_start, asize: K, ..LogPointer::default() };
    let (newest, older) = (log(110 * K, 120 * K), log(190 * K, 105 * K));
    assert!(h.valid(&newest, None) && h.valid(&older, Some(&newest)));
    assert!(!h.valid(&newest, Some(&older)) && !h.valid(&newest, Some(&newest)));
    assert!(h.named_by(&older, 195 * K, K) && h.named_by(&older, 101 * K, K));
    assert!(!h.named_by(&older, 180 * K, K) && !h.named_by(&older, 105 * K, K));
    assert!(!h.valid(&log(140 * K, 155 * K), None), "its first blocks were given up");
    assert!(!h.valid(&LogPointer::default(), None));
}
