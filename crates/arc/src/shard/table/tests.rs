//! The table against a simple model.

use super::*;
use crate::tests::key;
use std::collections::{BTreeMap, VecDeque};

/// Numbers that look random and are the same in each run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
}

/// Goal: whatever is added, used and removed, the table finds what is there and only that, and a list gives it in the order of its last use.
#[test]
fn like_a_model() {
    let (mut table, mut list) = (Table::<u64>::default(), List::default());
    let (mut model, mut order) = (BTreeMap::new(), VecDeque::new());
    let mut dice = Dice(8115);
    for round in 0..20_000 {
        let n = dice.below(60);
        match (table.find(&key(n)), dice.below(3)) {
            (None, _) => {
                let at = table.add(key(n), round);
                list.push(&mut table, at);
                model.insert(n, round);
                order.push_back(n);
            }
            (Some(at), 0) => {
                list.take_out(&mut table, at);
                table.remove(at);
                model.remove(&n);
                order.retain(|o| *o != n);
            }
            (Some(at), _) => {
                assert_eq!(Some(&*table.get_mut(at)), model.get(&n));
                list.take_out(&mut table, at);
                list.push(&mut table, at);
                order.retain(|o| *o != n);
                order.push_back(n);
            }
        }
        assert_eq!(list.first(), order.front().and_then(|n| table.find(&key(*n))));
        assert_eq!(list.is_empty(), order.is_empty());
        let n = dice.below(60);
        assert_eq!(table.find(&key(n)).is_some(), model.contains_key(&n));
    }
    while let Some(at) = list.first() {
        let n = order.pop_front().expect("as long as the list");
        assert_eq!(table.find(&key(n)), Some(at));
        list.take_out(&mut table, at);
        table.remove(at);
    }
    assert!(order.is_empty() && table.into_entries().next().is_none());
}

/// Goal: keys of one hash are told apart, in whatever order they go, and none is left behind.
#[test]
fn keys_of_one_hash() {
    for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        let mut table = Table::<u64> { one_hash: Some(7), ..Table::default() };
        let ats = [0, 1, 2].map(|n| table.add(key(n), n));
        for (gone, n) in order.into_iter().enumerate() {
            for (n, at) in ats.iter().enumerate() {
                let left = !order[..gone].contains(&n);
                assert_eq!(table.find(&key(n as u64)), left.then_some(*at), "{order:?}");
            }
            table.remove(ats[n]);
        }
        assert!(table.by_hash.is_empty());
        // What was free is used again.
        table.add(key(9), 9);
        assert_eq!(table.entries.len(), 3);
    }
}
