//! When the stages of a receive wait for each other.

#![allow(clippy::unwrap_used)]

use ondisk::replay::Free;

use super::*;

fn item(number: u64, bytes: usize) -> Item {
    let record = Record::Free(Free { object: number, offset: 0, length: 1, to_guid: 7 });
    let (order, payload) = (ByteOrder::Little, Block::zeroed(bytes));
    Item { record, order, payload, number, at: 0, end: 0 }
}

fn numbers(batch: &[Item]) -> Vec<u64> {
    batch.iter().map(|item| item.number).collect()
}

/// Goal: a record of a slow sender is taken before another one or the end comes. Of many, no more
/// than a batch is taken at a time. Behind the last there is none.
#[test]
fn batches() {
    let queue = Queue::new(1 << 20, 10_000);
    assert!(queue.push(item(0, 100)));
    assert_eq!(numbers(&queue.take().unwrap()), [0]);
    (1..=5).for_each(|number| assert!(queue.push(item(number, 4000))));
    assert_eq!(numbers(&queue.take().unwrap()), [1, 2]);
    queue.end();
    assert_eq!(numbers(&queue.take().unwrap()), [3, 4]);
    assert_eq!(numbers(&queue.take().unwrap()), [5]);
    assert!(queue.take().is_none());
    assert_eq!(queue.taken_in(), 6);
}

/// Goal: the queue never holds more than its limit and one record, and its reader goes on when
/// there is space, also if a batch is larger than the queue. A writer that stops ends the reader.
#[test]
fn memory_is_bounded() {
    const LIMIT: usize = 64 << 10;
    let queue = Queue::new(LIMIT, 1 << 20);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| (0..).take_while(|number| queue.push(item(*number, 5000))).count());
        let mut next = 0;
        while next < 1000 {
            assert!(queue.state.lock().bytes < LIMIT + 5000 + RECORD);
            for number in numbers(&queue.take().unwrap()) {
                assert_eq!(number, next);
                next += 1;
            }
        }
        queue.cancel();
        assert!(reader.join().unwrap() as u64 >= next);
    });
}
