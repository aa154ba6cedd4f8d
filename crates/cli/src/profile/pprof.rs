//! Stacks for `pprof`, and for programs that read its files, such as Firefox Profiler.
//!
//! # See
//! `profile.proto` of pprof. The fields that are written, by their numbers there:
//!
//! | message | fields |
//! |---|---|
//! | `Profile` | 1 `sample_type`, 2 `sample`, 4 `location`, 5 `function`, 6 `string_table` |
//! | | 10 `duration_nanos`, 11 `period_type`, 12 `period` |
//! | `ValueType` | 1 `type`, 2 `unit` |
//! | `Sample` | 1 `location_id`, 2 `value` |
//! | `Location` | 1 `id`, 4 `line` |
//! | `Line` | 1 `function_id` |
//! | `Function` | 1 `id`, 2 `name` |

use std::collections::HashMap;

use super::{RATE, Stack};

/// A message of protocol buffers.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.0.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.0.push(number as u8);
    }

    /// A field with a number.
    fn number(&mut self, field: u64, number: u64) {
        self.varint(field << 3);
        self.varint(number);
    }

    /// A field with bytes: a text, or another message.
    fn bytes(&mut self, field: u64, bytes: &[u8]) {
        self.varint(field << 3 | 2);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    /// A field with another message.
    fn message(&mut self, field: u64, fill: impl FnOnce(&mut Self)) {
        let mut inner = Self::default();
        fill(&mut inner);
        self.bytes(field, &inner.0);
    }
}

/// Texts, each with its place in the table; the first is empty.
struct Texts {
    places: HashMap<String, u64>,
    all: Vec<String>,
}

impl Texts {
    fn place(&mut self, text: &str) -> u64 {
        if let Some(place) = self.places.get(text) {
            return *place;
        }
        let place = self.all.len() as u64;
        self.all.push(text.to_owned());
        self.places.insert(text.to_owned(), place);
        place
    }
}

/// The profile of stacks that were seen within so many nanoseconds.
pub(super) fn profile(stacks: &[Stack], ns: u64) -> Vec<u8> {
    let mut texts = Texts { places: HashMap::from([(String::new(), 0)]), all: vec![String::new()] };
    let (samples, count) = (texts.place("samples"), texts.place("count"));
    let (wall, nanoseconds) = (texts.place("wall"), texts.place("nanoseconds"));
    let period = (1e9 / RATE) as u64;
    let mut whole = Message::default();
    let value = |kind, unit| {
        move |message: &mut Message| {
            message.number(1, kind);
            message.number(2, unit);
        }
    };
    whole.message(1, value(samples, count));
    whole.message(1, value(wall, nanoseconds));
    // A frame is a function with one location, both with the same number.
    let mut frames: HashMap<&str, u64> = HashMap::new();
    let mut named = Vec::new();
    for stack in stacks {
        let mut ids: Vec<u64> = Vec::new();
        for frame in stack.named() {
            let next = frames.len() as u64 + 1;
            ids.push(*frames.entry(frame).or_insert_with(|| {
                named.push(frame);
                next
            }));
        }
        // The innermost frame comes first.
        ids.reverse();
        whole.message(2, |sample| {
            ids.iter().for_each(|id| sample.number(1, *id));
            sample.number(2, stack.count);
            sample.number(2, stack.count.saturating_mul(period));
        });
    }
    for (frame, id) in named.into_iter().zip(1..) {
        whole.message(4, |location| {
            location.number(1, id);
            location.message(4, |line| line.number(1, id));
        });
        let name = texts.place(frame);
        whole.message(5, |function| {
            function.number(1, id);
            function.number(2, name);
        });
    }
    texts.all.iter().for_each(|text| whole.bytes(6, text.as_bytes()));
    whole.number(10, ns);
    whole.message(11, value(wall, nanoseconds));
    whole.number(12, period);
    whole.0
}
