//! Pools that OpenZFS wrote, walked block by block.
//!
//! Each block pointer gives the places of its copies, their allocated size and their checksum. The
//! tests check all three.

use crate::common::{LAYOUTS, Pool, open, read, walk};
use device::{Fault, FileDevice, Mode, Op};
use ondisk::blkptr::Stored;
use ondisk::config::PoolConfig;
use ondisk::label::{LABELS, uberblock_shift};
use ondisk::{Ashift, Txg};
use vdev::label::Labels;

fn tries(pool: &Pool, stored: &Stored, copy: usize) -> Option<usize> {
    read(pool, stored, copy).map(|(_, tries)| tries)
}

/// Goal: every copy of every block lies where the geometry says, has the right allocated size, and
/// reads at the first attempt.
#[test]
fn every_block_reads() {
    for (name, _) in LAYOUTS {
        let Some(fixture) = testkit::find(name) else { continue };
        let pool = open(fixture.images());
        let blocks = walk(&pool);
        for (bp, stored) in &blocks {
            for (i, dva) in stored.copies().enumerate() {
                let takes = pool.tree.psize_to_asize(dva.vdev, stored.psize, stored.phys_birth).unwrap();
                assert_eq!(takes, dva.asize, "{name}: {dva:x?}");
                assert_eq!(tries(&pool, stored, i), Some(1), "{name}: {bp:x?}");
            }
        }
        // `zdb` counts as many block pointers and as much space, so the walk missed none. It counts
        // embedded pointers apart.
        let zdb = fixture.output("zdb-blocks.txt").unwrap();
        let count = |what: &str| -> u64 {
            let line = zdb.lines().find(|l| l.contains(what)).unwrap_or("0");
            line.rsplit(what).next().unwrap().split_whitespace().next().unwrap().parse().unwrap()
        };
        let embedded = count("non-pointer bps of type 0:");
        assert_eq!(blocks.len() as u64 + embedded, count("bp count:"), "{name}");
        let space: u64 = blocks.iter().flat_map(|(_, s)| s.copies()).map(|d| d.asize.0).sum();
        assert_eq!(space, count("bp allocated:"), "{name}");
    }
}

/// Goal: OpenZFS's parity reconstructs every block, for every set of lost children up to the number
/// of parities.
#[test]
fn real_parity_reconstructs() {
    for (name, nparity) in LAYOUTS {
        let Some(fixture) = testkit::find(name) else { continue };
        let pool = open(fixture.images());
        let blocks = walk(&pool);
        let all: Vec<_> = pool.devices.values().cloned().collect();
        for set in 0..1u32 << all.len() {
            if set.count_ones() as usize != nparity {
                continue;
            }
            for (d, device) in all.iter().enumerate() {
                device.heal();
                // Its first labels stay readable, so that the vdev keeps the device.
                if set >> d & 1 == 1 {
                    device.inject(Fault::Error { op: Op::Read, range: 4 << 20..u64::MAX });
                }
            }
            // Every tenth block under each set of losses, another tenth each time.
            for (_, stored) in blocks.iter().skip(set as usize % 10).step_by(10) {
                assert_eq!(tries(&pool, stored, 0), Some(1), "{name} without {set:b}");
            }
        }
    }
}

/// Goal: every block of a damaged pool still reads, and errors are counted against the damaged
/// device only.
#[test]
fn damage_is_survived_and_charged() {
    for name in ["mirror2-damaged", "raidz1-3-damaged"] {
        let Some(fixture) = testkit::find(name) else { continue };
        let pool = open(fixture.images());
        let blocks = walk(&pool);
        for (bp, stored) in &blocks {
            for i in 0..stored.copies().count() {
                assert!(tries(&pool, stored, i).is_some(), "{name}: {bp:x?}");
            }
        }
        let top = &pool.tree.describe().children[0];
        let sums: Vec<u64> = top.children.iter().map(|c| c.stats.checksum_errors).collect();
        assert!(sums[1] > 0);
        assert!(sums.iter().enumerate().all(|(i, n)| i == 1 || *n == 0));
        assert_eq!(top.stats.checksum_errors, 0);
    }
}

/// Goal: all four labels of every device are readable, agree, and hold the uberblocks that lead to
/// the pool.
///
/// On a damaged device the zeroed labels are detected and the others are used.
#[test]
fn labels() {
    for (name, _) in LAYOUTS {
        let Some(fixture) = testkit::find(name) else { continue };
        for path in fixture.images() {
            let device = FileDevice::open(path, Mode::Peek).unwrap();
            let labels = Labels::new(&device);
            let configs: Vec<_> = (0..LABELS).map(|l| labels.config(l).unwrap()).collect();
            assert!(configs.windows(2).all(|w| w[0] == w[1]));
            let config = PoolConfig::from_nvlist(&configs[0]).unwrap();
            assert_eq!(config.name.as_deref(), Some(fixture.pool()));
            let ashift = config.vdev_tree.unwrap().ashift.unwrap();
            let rings: Vec<_> =
                (0..LABELS).map(|l| labels.uberblocks(l, uberblock_shift(ashift)).unwrap()).collect();
            assert!(rings.windows(2).all(|w| w[0] == w[1]));
            let newest = rings[0].iter().map(|(_, u)| u.txg).max().unwrap();
            assert!(newest >= config.txg);
        }
    }
    if let Some(fixture) = testkit::find("mirror2-damaged") {
        let device = FileDevice::open(&fixture.images()[1], Mode::Peek).unwrap();
        let labels = Labels::new(&device);
        let good: Vec<bool> = (0..LABELS).map(|l| labels.config(l).is_ok()).collect();
        assert_eq!(good, [false, true, true, false]);
        assert_eq!(labels.best_config(Txg(u64::MAX)).unwrap().0, 1);
        assert!(labels.best_config(Txg(0)).is_err());
        assert!(labels.uberblocks(0, uberblock_shift(Ashift(12))).unwrap().is_empty());
    }
}
