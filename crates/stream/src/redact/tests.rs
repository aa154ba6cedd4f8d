//! Ranges of several threads, joined.

use super::*;

fn span(first: (u64, u64), last: (u64, u64)) -> Span {
    Span { first, last }
}

/// Joins threads that have these ranges.
fn joined(threads: &[&[Span]]) -> Vec<Span> {
    let mut ranges: Vec<Ranges> = threads
        .iter()
        .map(|spans| {
            let (out, ranges) = sync_channel(spans.len());
            spans.iter().for_each(|span| out.send(Ok(*span)).unwrap());
            Ranges(ranges)
        })
        .collect();
    let mut all = Vec::new();
    join(&mut ranges, &mut |span| {
        all.push(span);
        Ok(())
    })
    .unwrap();
    all
}

/// Goal: a block is redacted if it is in a range of every thread, whatever the ranges look like.
#[test]
fn what_all_have_in_common() {
    let alone = [span((1, 0), (1, 3)), span((2, 5), (2, 5))];
    assert_eq!(joined(&[&alone]), alone);
    assert_eq!(joined(&[&alone, &[]]), []);
    let object = [span((1, 2), (4, u64::MAX))];
    assert_eq!(joined(&[&alone, &object]), [span((1, 2), (1, 3)), span((2, 5), (2, 5))]);
    // The picture in `dmu_redact.c`.
    let first = [span((1, 2), (1, 9))];
    let second = [span((1, 3), (1, 6)), span((1, 8), (1, 10))];
    let third = [span((1, 5), (1, 11))];
    let want = [span((1, 5), (1, 6)), span((1, 8), (1, 9))];
    assert_eq!(joined(&[&first, &second, &third]), want);
    assert_eq!(joined(&[&third, &first, &second]), want);
}

/// Goal: for random ranges, what is joined is what a set of blocks says.
#[test]
fn as_sets_of_blocks_say() {
    let mut seed = 7u64;
    let mut random = |below: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % below
    };
    for _ in 0..300 {
        let threads: Vec<Vec<Span>> = (0..1 + random(4))
            .map(|_| {
                let mut at = 0;
                let mut spans = Vec::new();
                while at < 60 {
                    let (first, last) = (at + random(6), at + 6 + random(9));
                    spans.push(span((first / 8, first % 8), (last / 8, last % 8)));
                    at = last + 1;
                }
                spans
            })
            .collect();
        let blocks = |spans: &[Span]| -> HashSet<u64> {
            let number = |(object, blkid): (u64, u64)| object * 8 + blkid;
            spans.iter().flat_map(|s| number(s.first)..=number(s.last)).collect()
        };
        let all = threads.iter().map(|spans| blocks(spans));
        let want = all.reduce(|a, b| a.intersection(&b).copied().collect()).unwrap();
        let borrowed: Vec<&[Span]> = threads.iter().map(Vec::as_slice).collect();
        assert_eq!(blocks(&joined(&borrowed)), want, "{threads:?}");
    }
}

/// Goal: a name that is repeated counts once, where it was last.
#[test]
fn names_once_each() {
    let names = |names: &[&str]| names.iter().map(|n| (*n).to_owned()).collect::<Vec<_>>();
    assert_eq!(once_each(&names(&["a", "b", "a", "c"])), names(&["b", "a", "c"]));
}
