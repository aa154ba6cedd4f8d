//! Random numbers that follow from a seed.

/// The SplitMix64 generator. The field is its state.
#[derive(Debug, Clone)]
pub struct SplitMix(pub u64);

impl SplitMix {
    /// The next number.
    pub fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// The next number, reduced below `n`.
    ///
    /// # Panics
    /// `n` is 0.
    pub fn below(&mut self, n: u64) -> u64 {
        self.roll() % n
    }
}
