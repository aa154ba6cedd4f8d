//! What determines a life.

use super::shape::Shape;
use super::slots::Faults;
use crate::crash::SplitMix;

/// The terms that determine a life.
#[derive(Debug, Clone, Copy)]
pub struct Terms {
    /// The devices of the pool.
    pub shape: Shape,
    /// The seed of its steps.
    pub seed: u64,
    /// Which faults devices have.
    pub faults: Faults,
    /// Whether snapshots are sent, and received elsewhere in the pool.
    pub streams: bool,
    /// Whether there is a second pool, with which the first exchanges snapshots.
    pub second: Option<Second>,
}

/// The second pool of a life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Second {
    /// It has as much space as the first.
    Ample,
    /// It is small, and runs out of space while it receives.
    Scarce,
}

impl Terms {
    /// The devices of the second pool.
    pub(super) fn second_shape(&self) -> Shape {
        let small = [Shape::ALL[0], Shape::ALL[1]];
        let of: &[Shape] = if self.second == Some(Second::Scarce) { &small } else { &Shape::ALL };
        of[SplitMix(self.seed).below(of.len() as u64) as usize]
    }
}
