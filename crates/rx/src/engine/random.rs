//! Random numbers for nonces, serial numbers and the numbers of connections.

use std::fmt;

use zeroize::Zeroize;

/// Where random numbers come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// The system. Other hosts can't guess these.
    System,
    /// A sequence that this number determines (splitmix64). For tests: two results reveal the rest.
    Seed(u64),
}

/// Bytes that are fetched from the system at a time.
const BUFFER: usize = 1_024;

/// Random numbers, fetched from the system many at a time.
pub(super) struct Random {
    source: Source,
    buffer: Box<[u8; BUFFER]>,
    /// What is used of the buffer.
    at: usize,
}

impl Random {
    pub(super) fn new(source: Source) -> Random {
        Random { source, buffer: Box::new([0; BUFFER]), at: BUFFER }
    }

    /// The next number, or `None` if the system has none.
    pub(super) fn next(&mut self) -> Option<u32> {
        if let Source::Seed(state) = &mut self.source {
            *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = *state;
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            return Some(((z ^ (z >> 31)) >> 32) as u32);
        }
        if self.at == BUFFER {
            getrandom::fill(&mut self.buffer[..]).ok()?;
            self.at = 0;
        }
        let (word, _) = self.buffer[self.at..].split_first_chunk_mut::<4>()?;
        let number = u32::from_ne_bytes(*word);
        // A number is used once, and stays in no memory.
        word.zeroize();
        self.at += 4;
        Some(number)
    }
}

impl fmt::Debug for Random {
    /// Shows no number.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Random")
    }
}
