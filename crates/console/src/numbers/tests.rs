//! Numbers from transcripts, and the edges of the rule.

use super::*;

/// Goal: exact and readable sizes that OpenZFS printed for the same pool agree here too.
#[test]
fn transcript_pairs() {
    for (n, text) in [
        (251_658_240, "240M"),
        (65_720_320, "62.7M"),
        (185_937_920, "177M"),
        (58_085_376, "55.4M"),
        (67_743_744, "64.6M"),
        (14_336, "14K"),
        (1_024_000, "1000K"),
        (8192, "8K"),
        (745_984, "728K"),
        (3_386_880, "3.23M"),
    ] {
        assert_eq!(bytes(n), text, "{n}");
    }
}

/// Goal: the edges are right: zero, the maximum, just below a power, and a little above a thousand.
#[test]
fn edges() {
    assert_eq!((num(0), bytes(0)), ("0".into(), "0B".into()));
    assert_eq!(num(u64::MAX), "16.0E");
    assert_eq!(num(10_239), "10.0K");
    assert_eq!(num(1023), "1023");
    assert_eq!(num(1024 * 1024 - 1), "1024K");
    assert_eq!(num(1025), "1.00K");
    assert_eq!(time_ns(999_999), "999us");
    assert_eq!(ratio(310, true), "3.10");
    assert_eq!(ratio(310, false), "3.10x");
    assert!(is_number("1.5") && !is_number("5.") && !is_number("") && !is_number("a"));
}
