//! The shapes of a soak's pools.

use ondisk::config::AllocBias;
use spa::create::VdevShape;

use crate::faults::draid_shape;

/// The top-level vdevs: shape, allocation bias and number of devices of each.
pub(super) type Tops = &'static [(VdevShape, Option<AllocBias>, usize)];

/// The devices of a pool.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    pub(super) tops: Tops,
    /// Number of hot spares.
    pub(super) spares: usize,
}

const fn shape(spares: usize, tops: Tops) -> Shape {
    Shape { tops, spares }
}

impl Shape {
    /// The shapes that a soak uses in turn.
    pub const ALL: [Shape; 11] = [
        shape(0, &[(VdevShape::Single, None, 1)]),
        shape(1, &[(VdevShape::Mirror, None, 2)]),
        shape(0, &[(VdevShape::Raidz(1), None, 3)]),
        shape(1, &[(VdevShape::Raidz(2), None, 5)]),
        shape(
            0,
            &[
                (VdevShape::Mirror, None, 2),
                (VdevShape::Single, Some(AllocBias::Special), 1),
                (VdevShape::Single, Some(AllocBias::Dedup), 1),
                (VdevShape::Single, Some(AllocBias::Log), 1),
            ],
        ),
        shape(0, &[(VdevShape::Single, None, 1), (VdevShape::Mirror, None, 3)]),
        shape(0, &[(draid_shape(1, 4, 1), None, 4)]),
        shape(1, &[(VdevShape::Raidz(3), None, 6)]),
        shape(
            2,
            &[
                (VdevShape::Raidz(1), None, 3),
                (VdevShape::Mirror, Some(AllocBias::Special), 2),
                (VdevShape::Mirror, Some(AllocBias::Dedup), 2),
                (VdevShape::Mirror, Some(AllocBias::Log), 2),
            ],
        ),
        shape(0, &[(draid_shape(2, 6, 1), None, 6)]),
        shape(1, &[(VdevShape::Mirror, None, 2), (VdevShape::Mirror, None, 2)]),
    ];
}
