//! The kinds of pools, the faults, and which sets of faults a kind must tolerate.

use ondisk::config::{AllocBias, DraidShape};
use spa::create::VdevShape;

/// A top-level vdev: its shape and bias, its number of devices, and how many of these it can lose.
#[derive(Debug, Clone, Copy)]
pub(super) struct Part {
    pub(super) shape: VdevShape,
    pub(super) bias: Option<AllocBias>,
    pub(super) devices: usize,
    pub(super) spare: usize,
}

/// The layout of a pool.
#[derive(Debug, Clone, Copy)]
pub struct Kind {
    /// The name of the layout, for people.
    pub name: &'static str,
    pub(super) parts: &'static [Part],
    /// Copies of each block of a file (property `copies`).
    pub(super) copies: u64,
}

const fn part(shape: VdevShape, devices: usize, spare: usize) -> Part {
    Part { shape, bias: None, devices, spare }
}

/// A draid of so many devices, with two data blocks in each redundancy group.
pub(crate) const fn draid_shape(parity: u64, devices: usize, nspares: u64) -> VdevShape {
    let group = 2 + parity;
    let width = devices as u64 - nspares;
    // The least common multiple of group and width, in groups.
    let mut ngroups = 1;
    while !(group * ngroups).is_multiple_of(width) {
        ngroups += 1;
    }
    VdevShape::Draid(parity, DraidShape { ndata: 2, nspares, ngroups })
}

const fn draid(parity: u64, devices: usize, nspares: u64) -> Part {
    part(draid_shape(parity, devices, nspares), devices, parity as usize)
}

const fn biased(bias: AllocBias) -> Part {
    Part { shape: VdevShape::Mirror, bias: Some(bias), devices: 2, spare: 1 }
}

const fn kind(name: &'static str, parts: &'static [Part]) -> Kind {
    Kind { name, parts, copies: 1 }
}

impl Kind {
    /// All kinds.
    pub const ALL: [Kind; 14] = [
        kind("mirror of 2", &[part(VdevShape::Mirror, 2, 1)]),
        kind("mirror of 3", &[part(VdevShape::Mirror, 3, 2)]),
        kind("raidz1", &[part(VdevShape::Raidz(1), 3, 1)]),
        kind("raidz2", &[part(VdevShape::Raidz(2), 4, 2)]),
        kind("raidz3", &[part(VdevShape::Raidz(3), 5, 3)]),
        kind("draid1", &[draid(1, 4, 0)]),
        kind("draid1 with a spare", &[draid(1, 4, 1)]),
        kind("draid2", &[draid(2, 5, 0)]),
        kind("draid2 with a spare", &[draid(2, 5, 1)]),
        kind("draid3", &[draid(3, 6, 0)]),
        kind("draid3 with a spare", &[draid(3, 6, 1)]),
        Kind { copies: 2, ..kind("two copies on a disk", &[part(VdevShape::Single, 1, 0)]) },
        Kind { copies: 3, ..kind("three copies on a disk", &[part(VdevShape::Single, 1, 0)]) },
        kind(
            "raidz1 with mirrors for special blocks and logs",
            &[part(VdevShape::Raidz(1), 3, 1), biased(AllocBias::Special), biased(AllocBias::Log)],
        ),
    ];

    /// Whether the pool has one disk. Faults then hit copies of blocks in place of devices.
    pub(super) fn is_ditto(&self) -> bool {
        self.copies > 1
    }

    pub(super) fn has_log(&self) -> bool {
        self.parts.iter().any(|p| matches!(p.bias, Some(AllocBias::Log)))
    }

    pub(super) fn devices(&self) -> usize {
        self.parts.iter().map(|p| p.devices).sum()
    }

    /// The sets of devices, or of copies, that the pool can lose: at least one, at most the
    /// redundancy of each vdev.
    fn borne(&self) -> Vec<Vec<usize>> {
        if self.is_ditto() {
            return subsets(0..self.copies as usize, self.copies as usize - 1);
        }
        let mut sets: Vec<Vec<usize>> = vec![Vec::new()];
        let mut first = 0;
        for part in self.parts {
            let mut here = subsets(first..first + part.devices, part.spare);
            here.push(Vec::new());
            sets = sets.iter().flat_map(|set| here.iter().map(|h| [&set[..], h].concat())).collect();
            first += part.devices;
        }
        sets.retain(|set| !set.is_empty());
        sets
    }

    /// The sets of the first vdev's devices, or of copies, that are one more than it can lose.
    fn too_many(&self) -> Vec<Vec<usize>> {
        let (count, spare) = match self.is_ditto() {
            true => (self.copies as usize, self.copies as usize - 1),
            false => (self.parts[0].devices, self.parts[0].spare),
        };
        let mut sets = subsets(0..count, spare + 1);
        sets.retain(|set| set.len() == spare + 1);
        sets
    }

    /// All trials of this kind.
    pub fn trials(&self) -> Vec<Trial> {
        let faults: &[Fault] = if self.is_ditto() { &Fault::OF_COPIES } else { &Fault::ALL };
        let mut all = Vec::new();
        for (n, set) in self.borne().into_iter().enumerate() {
            all.extend(faults.iter().map(|f| Trial::Within(set.iter().map(|d| (*d, *f)).collect())));
            if set.len() > 1 {
                // Another fault for each device.
                let mixed = |(i, d): (usize, &usize)| (*d, faults[(n + 3 * i) % faults.len()]);
                all.push(Trial::Within(set.iter().enumerate().map(mixed).collect()));
            }
        }
        for set in self.too_many() {
            for fault in Fault::OF_COPIES {
                all.push(Trial::Beyond(set.iter().map(|d| (*d, fault)).collect()));
            }
            if !self.is_ditto() {
                // One device is away as well. It helps to repair the block when it is back.
                let mut mixed: Vec<_> = set.iter().map(|d| (*d, Fault::Random)).collect();
                mixed[0].1 = Fault::Gone;
                all.push(Trial::Beyond(mixed));
            }
        }
        all
    }
}

/// The fault of a device, or of a copy of each block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The device is absent, and comes back later.
    Gone,
    /// Some ranges have random bytes.
    Random,
    /// All but the labels has random bytes.
    Whole,
    /// All but the labels has the contents of some groups ago, as if writes were lost.
    Stale,
    /// The whole device, with its labels, has the contents of some groups ago.
    Past,
    /// Each read fails.
    Errors,
    /// All but the labels is zero.
    Zeros,
}

impl Fault {
    const ALL: [Fault; 7] =
        [Fault::Gone, Fault::Random, Fault::Whole, Fault::Stale, Fault::Past, Fault::Errors, Fault::Zeros];
    /// The faults that can hit a part of a device.
    const OF_COPIES: [Fault; 4] = [Fault::Random, Fault::Stale, Fault::Errors, Fault::Zeros];
}

/// Simultaneous faults, each with the number of the device or of the copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trial {
    /// No vdev has more faults than its redundancy makes up for.
    Within(Vec<(usize, Fault)>),
    /// One block has one fault more.
    Beyond(Vec<(usize, Fault)>),
}

/// The result of a trial that found no failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// All checks passed.
    Tried,
    /// No block lies on all of these devices, so nothing could be lost.
    Untried,
}

/// All subsets of these numbers with one to `most` members.
fn subsets(of: std::ops::Range<usize>, most: usize) -> Vec<Vec<usize>> {
    let mut all: Vec<Vec<usize>> = vec![Vec::new()];
    for n in of {
        let more: Vec<_> = all.iter().filter(|s| s.len() < most).map(|s| [&s[..], &[n]].concat()).collect();
        all.extend(more);
    }
    all.retain(|set| !set.is_empty());
    all.sort_by_key(Vec::len);
    all
}
