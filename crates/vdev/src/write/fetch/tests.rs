use device::Device;
use ondisk::label::LABEL_START_SIZE;

use super::*;
use crate::tests::{open, root, top};
use crate::{Priority, VdevConfig, VdevKind};

/// Goal: neighbours are one read. Small gaps are always read over, large ones only where much is
/// around them. A read has a largest size.
#[test]
fn ranges_are_joined() {
    let kib = |list: &[(u64, u64)]| list.iter().map(|(a, b)| (a << 10, b << 10)).collect::<Vec<_>>();
    let joined = |ranges: &[(u64, u64)]| {
        let reads = joined(ranges, SMALL_GAP);
        assert_eq!(reads.iter().map(|(_, _, of)| of).sum::<usize>(), ranges.len());
        reads.into_iter().map(|(start, end, _)| (start, end)).collect::<Vec<_>>()
    };
    assert_eq!(joined(&kib(&[(0, 4), (4, 8), (40, 44)])), kib(&[(0, 44)]));
    assert_eq!(joined(&kib(&[(0, 4), (133, 137)])), kib(&[(0, 4), (133, 137)]));
    assert_eq!(joined(&kib(&[(0, 1000), (1100, 1200)])), kib(&[(0, 1200)]));
    assert_eq!(joined(&kib(&[(0, 4096), (4096, 4100)])), kib(&[(0, 4096), (4096, 4100)]));
    // The same block twice.
    assert_eq!(joined(&kib(&[(0, 128), (0, 128), (0, 64)])), kib(&[(0, 128)]));
}

/// Goal: of a read that is mostly gaps, only the requested ranges are kept, with the right bytes,
/// also where blocks overlap.
#[test]
fn gaps_are_not_kept() {
    let (tree, devices) = open(&root(vec![top(VdevKind::Mirror, 1)]), 1);
    let bytes: Vec<u8> = (0..2u32 << 20).map(|i| (i / 512 + i) as u8).collect();
    devices[0].write_at(&bytes, LABEL_START_SIZE).unwrap();
    let extent =
        |offset: u64, psize: u64| Extent { vdev: VdevId(0), offset, psize: Psize(psize), birth: Txg(9) };
    let sparse: Vec<Extent> = (0..16).map(|n| extent(n * 65536, 1024)).chain([extent(512, 1024)]).collect();
    let dense: Vec<Extent> = (0..16).map(|n| extent(n * 4096, 3072)).collect();
    let leaf = tree.by_guid[&Guid(100)];
    for (extents, most) in [(sparse, 16 * 1024 + 512), (dense, 15 * 4096 + 3072)] {
        let fetched = Arc::new(tree.fetch(&extents, false, &Request::new(Priority::Scrub)));
        let held: usize = fetched.runs.values().flatten().map(|(_, buf)| buf.len()).sum();
        assert_eq!(held, most);
        let before = tree.stats(Guid(100)).unwrap().ops(crate::IoType::Read);
        let request = Request::new(Priority::Scrub).with_fetched(fetched);
        for e in extents {
            let mut buf = vec![0; e.psize.0 as usize];
            tree.read_leaf(leaf, e.offset, &mut buf, &request).unwrap();
            assert!(buf == bytes[e.offset as usize..][..buf.len()], "{e:?}");
        }
        assert_eq!(tree.stats(Guid(100)).unwrap().ops(crate::IoType::Read), before);
    }
}

/// Goal: fetched ranges answer reads within them, of requests that carry them, from every part, and
/// no others.
#[test]
fn requests_are_answered_from_it() {
    let mut bytes = AlignedBuf::zeroed(8);
    bytes.copy_from_slice(b"abcdefgh");
    let fetched = |guid| Fetched {
        runs: BTreeMap::from([(Guid(guid), vec![(100, bytes.clone())])]),
        ..Fetched::default()
    };
    let both = fetched(1).with([Arc::new(fetched(3))]);
    let read = |request: &Request, guid, offset| {
        let mut buf = [0; 2];
        request.fetched().is_some_and(|f| f.get(Guid(guid), offset, &mut buf)).then_some(buf)
    };
    let plain = Request::new(Priority::Scrub);
    let with = plain.with_fetched(Arc::new(both));
    assert_eq!(read(&plain, 1, 102), None);
    assert_eq!((read(&with, 1, 102), read(&with, 1, 106)), (Some(*b"cd"), Some(*b"gh")));
    assert_eq!((read(&with, 1, 107), read(&with, 1, 99), read(&with, 2, 102)), (None, None, None));
    assert_eq!(read(&with, 3, 102), Some(*b"cd"));
}

/// Goal: where one read of a raidz ends the next continues, though blocks leave unused sectors
/// behind them.
#[test]
fn the_next_read_goes_on() {
    let spec = VdevConfig { nparity: Some(2), ..top(VdevKind::Raidz, 5) };
    let (tree, _) = open(&root(vec![spec]), 5);
    // Four sectors with two rows of parity, and one more to make it a multiple of three.
    let extent =
        |n: u64| Extent { vdev: VdevId(0), offset: 8192 + n * 9 * 512, psize: Psize(2048), birth: Txg(9) };
    let request = Request::new(Priority::Scrub);
    let read = |numbers: std::ops::Range<u64>| {
        tree.fetch(&numbers.map(extent).collect::<Vec<_>>(), false, &request)
            .runs
            .into_values()
            .collect::<Vec<_>>()
    };
    let (first, second) = (read(0..3), read(3..8));
    assert_eq!((first.len(), second.len()), (5, 5));
    for (first, second) in first.iter().zip(&second) {
        let [(start, bytes)] = &first[..] else { panic!("{} reads", first.len()) };
        assert_eq!((second.len(), second[0].0), (1, start + bytes.len() as u64));
    }
}
