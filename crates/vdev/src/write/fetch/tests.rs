use super::*;
use crate::tests::{open, root, top};
use crate::{VdevConfig, VdevKind};

/// Goal: neighbours are one read, small gaps are read over and large ones only where much is around them, and a read has its largest size.
#[test]
fn ranges_are_joined() {
    let kib = |list: &[(u64, u64)]| list.iter().map(|(a, b)| (a << 10, b << 10)).collect::<Vec<_>>();
    assert_eq!(joined(&kib(&[(0, 4), (4, 8), (40, 44)])), kib(&[(0, 44)]));
    assert_eq!(joined(&kib(&[(0, 4), (133, 137)])), kib(&[(0, 4), (133, 137)]));
    assert_eq!(joined(&kib(&[(0, 1000), (1100, 1200)])), kib(&[(0, 1200)]));
    assert_eq!(joined(&kib(&[(0, 4096), (4096, 4100)])), kib(&[(0, 4096), (4096, 4100)]));
    // The same block twice.
    assert_eq!(joined(&kib(&[(0, 128), (0, 128), (0, 64)])), kib(&[(0, 128)]));
}

/// Goal: what was fetched answers reads within it of the thread to which it is lent, and no others.
#[test]
fn lent_to_a_thread() {
    let mut bytes = AlignedBuf::zeroed(8);
    bytes.copy_from_slice(b"abcdefgh");
    let fetched =
        Arc::new(Fetched { runs: BTreeMap::from([(Guid(1), vec![(100, bytes)])]), ..Fetched::default() });
    let read = |guid, offset| {
        let mut buf = [0; 2];
        answered(Guid(guid), offset, &mut buf).then_some(buf)
    };
    assert_eq!(read(1, 102), None);
    {
        let _lent = fetched.lend();
        assert_eq!((read(1, 102), read(1, 106)), (Some(*b"cd"), Some(*b"gh")));
        assert_eq!((read(1, 107), read(1, 99), read(2, 102)), (None, None, None));
        assert_eq!(std::thread::spawn(|| answered(Guid(1), 100, &mut [0])).join().ok(), Some(false));
    }
    assert_eq!(read(1, 102), None);
}

/// Goal: where one read of a raidz ends the next goes on, though blocks leave sectors behind them that hold nothing.
#[test]
fn the_next_read_goes_on() {
    let spec = VdevConfig { nparity: Some(2), ..top(VdevKind::Raidz, 5) };
    let (tree, _) = open(&root(vec![spec]), 5);
    // Four sectors with two rows of parity, and one more to make it a multiple of three.
    let extent =
        |n: u64| Extent { vdev: VdevId(0), offset: 8192 + n * 9 * 512, psize: Psize(2048), birth: Txg(9) };
    let read = |numbers: std::ops::Range<u64>| {
        tree.fetch(&numbers.map(extent).collect::<Vec<_>>(), false).runs.into_values().collect::<Vec<_>>()
    };
    let (first, second) = (read(0..3), read(3..8));
    assert_eq!((first.len(), second.len()), (5, 5));
    for (first, second) in first.iter().zip(&second) {
        let [(start, bytes)] = &first[..] else { panic!("{} reads", first.len()) };
        assert_eq!((second.len(), second[0].0), (1, start + bytes.len() as u64));
    }
}
