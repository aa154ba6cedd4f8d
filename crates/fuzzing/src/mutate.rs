//! Mutations that depend on a seed alone.

/// A small random number generator (SplitMix64). The same seed always gives the same mutations.
#[derive(Debug, Clone)]
pub struct Rng(u64);

impl Rng {
    /// The generator of this seed.
    pub fn new(seed: u64) -> Self {
        Rng(seed)
    }

    /// The next number.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `n`.
    ///
    /// # Panics
    /// `n` is 0.
    pub fn below(&mut self, n: usize) -> usize {
        (self.next_u64() % n as u64) as usize
    }
}

/// Numbers at the limits that decoders check.
const EDGES: [u64; 12] = [
    0,
    1,
    2,
    0x7f,
    0xff,
    0x7fff,
    0xffff,
    0x7fff_ffff,
    0xffff_ffff,
    0x7fff_ffff_ffff_ffff,
    u64::MAX,
    u64::MAX - 511,
];

/// Changes `bytes` in one to eight places.
///
/// A change flips a bit, sets a byte or a word, copies or clears a range, or sometimes cuts off the
/// end.
pub fn mutate(rng: &mut Rng, bytes: &mut Vec<u8>) {
    for _ in 0..1 + rng.below(8) {
        if bytes.is_empty() {
            bytes.extend_from_slice(&rng.next_u64().to_le_bytes());
        }
        let len = bytes.len();
        let at = rng.below(len);
        let width = [1, 2, 4, 8][rng.below(4)].min(len - at);
        match rng.below(8) {
            0 | 1 => bytes[at] ^= 1 << rng.below(8),
            2 => bytes[at] = rng.next_u64() as u8,
            3 => {
                let aligned = at / width * width;
                let edge = EDGES[rng.below(EDGES.len())].to_le_bytes();
                bytes[aligned..aligned + width].copy_from_slice(&edge[..width]);
            }
            4 => {
                let delta = (rng.below(35) as u8).wrapping_sub(17);
                bytes[at] = bytes[at].wrapping_add(delta);
            }
            5 => {
                let (from, n) = (rng.below(len), 1 + rng.below(32));
                let n = n.min(len - from).min(len - at);
                bytes.copy_within(from..from + n, at);
            }
            6 => {
                let n = (1 + rng.below(64)).min(len - at);
                bytes[at..at + n].fill([0, 0xff][rng.below(2)]);
            }
            _ if rng.below(4) == 0 => bytes.truncate(at),
            _ => bytes[at] = 0,
        }
    }
}
