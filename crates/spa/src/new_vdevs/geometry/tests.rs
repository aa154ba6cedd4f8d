use crate::new_vdevs::geometry::*;
use observe::lock::Mutex;
use ondisk::{Guid, PoolConfig};

/// The tunables belong to the whole process: one test at a time sets them.
static ALONE: Mutex<()> = Mutex::new(());

fn trusted(fixture: &testkit::Fixture) -> (PoolConfig, Vec<u64>) {
    let sizes = fixture.images().iter().map(|i| i.metadata().unwrap().len()).collect();
    let device = device::FileDevice::open(&fixture.images()[0], device::Mode::Peek).unwrap();
    let config = crate::Labels::read(&device).newest().unwrap().clone();
    (config, sizes)
}

/// Goal: the space and the metaslabs of each kind of vdev are what OpenZFS gave the fixtures.
#[test]
fn real_vdevs() {
    let _alone = ALONE.lock();
    let mut seen = 0;
    for name in ["single-lz4", "mirror2", "raidz1-3", "raidz2-5", "raidz3-7", "draid1"] {
        let Some(fixture) = testkit::find(name) else { continue };
        seen += 1;
        let (config, sizes) = trusted(&fixture);
        let top = config.vdev_tree.unwrap();
        let space = asize(&top, &|_| leaf_asize(sizes[0]));
        assert_eq!(Some(space), top.asize, "{name}");
        assert_eq!(Some(metaslab_shift(space)), top.metaslab_shift, "{name}");
    }
    assert!(seen >= 3, "only {seen} of the fixtures are here");
}

/// Goal: the metaslab sizes of the table in OpenZFS's `vdev_metaslab_set_size`.
#[test]
fn metaslab_sizes() {
    let _alone = ALONE.lock();
    const G: u64 = 1 << 30;
    assert_eq!(metaslab_shift(59 << 20), 24);
    assert_eq!(metaslab_shift(7 * G), 29);
    assert_eq!(metaslab_shift(50 * G), 29);
    assert_eq!(metaslab_shift(1024 * G), 33);
    assert_eq!(metaslab_shift(100 << 40), 34);
    assert_eq!(metaslab_shift(4 << 50), 36);
}

/// Goal: whatever the tunables say, a vdev has at least one metaslab, also if its size is a power
/// of two.
#[test]
fn there_is_a_metaslab() {
    let _alone = ALONE.lock();
    let all = [&MIN_MS_COUNT, &DEFAULT_MS_COUNT, &MS_COUNT_LIMIT];
    for asize in [64 << 20, 1 << 30, (1 << 30) + (256 << 10), 1 << 36, 1 << 45] {
        for least in [1, 2, 3, 1 << 17] {
            for one in all {
                one.set(least);
                let count = asize >> metaslab_shift(asize);
                one.set(one.default());
                assert!(count > 0, "{asize} bytes with {least}");
            }
        }
        for at in [&DEFAULT_MS_SHIFT, &MAX_MS_SHIFT] {
            at.set(40);
            let count = asize >> metaslab_shift(asize);
            at.set(at.default());
            assert!(count > 0, "{asize} bytes with large metaslabs");
        }
    }
}

/// Goal: a disk of 4 KiB sectors that reports 512-byte ones gets its real size; absurd sizes are
/// ignored.
#[test]
fn sector_sizes() {
    assert_eq!(auto_ashift(512, 512), Ashift(9));
    assert_eq!(auto_ashift(512, 4096), Ashift(12));
    assert_eq!(auto_ashift(4096, 4096), Ashift(12));
    assert_eq!(auto_ashift(512, 65536), Ashift(9));
    assert_eq!(auto_ashift(512, 1 << 20), Ashift(9));
}

/// Goal: the smallest child limits the size of a vdev.
#[test]
fn the_smallest_child_counts() {
    let mut mirror = VdevConfig::new(VdevKind::Mirror, Guid(1));
    mirror.children =
        vec![VdevConfig::new(VdevKind::File, Guid(2)), VdevConfig::new(VdevKind::File, Guid(3))];
    assert_eq!(asize(&mirror, &|v| if v.guid.0 == 2 { 80 << 20 } else { 60 << 20 }), 60 << 20);
}
